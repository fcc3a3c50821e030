//! Three-valued logic, and choices by NULL and by order.

use super::{
    Example, Form, FunctionEntry, NullRule, ResultType, Shown, Signature,
    TypeClass::{Any, Bool, Records},
};
use crate::Function;

const BOOL: ResultType = ResultType::Of(Bool);

/// A test of one value, which is never NULL.
macro_rules! test {
    ($entry:ident, $name:literal, $function:expr, $words:literal, $class:expr, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .nulls(NullRule::Never)
            .shown(Shown::Postfix($words))
            .signatures(&[Signature::new(&[$class], BOOL, &[Example::of(concat!("{a} ", $words))])]);
    };
}

pub(super) static AND: FunctionEntry =
    FunctionEntry::new("and", Form::Plain(Function::And), "Whether all are true.")
        .nulls(NullRule::SomeNull)
        .shown(Shown::Infix("AND"))
        .signatures(&[Signature::new(&[Bool, Bool], BOOL, &[Example::of("{a} AND {b}")]).variadic()]);

pub(super) static OR: FunctionEntry =
    FunctionEntry::new("or", Form::Plain(Function::Or), "Whether one is true.")
        .nulls(NullRule::SomeNull)
        .shown(Shown::Infix("OR"))
        .signatures(&[Signature::new(&[Bool, Bool], BOOL, &[Example::of("{a} OR {b}")]).variadic()]);

pub(super) static NOT: FunctionEntry =
    FunctionEntry::new("not", Form::Plain(Function::Not), "Whether the condition is false.")
        .shown(Shown::Prefix("NOT"))
        .signatures(&[Signature::new(&[Bool], BOOL, &[Example::of("NOT {a}")])]);

pub(super) static IS_NULL: FunctionEntry =
    FunctionEntry::new("is_null", Form::Plain(Function::IsNull), "Whether the value is NULL.")
        .nulls(NullRule::Never)
        .shown(Shown::Postfix("IS NULL"))
        .signatures(&[
            Signature::new(&[Any], BOOL, &[Example::of("{a} IS NULL")]),
            // Of a composite value itself, which is no test of SQL.
            Signature::new(&[Records], BOOL, &[]),
        ]);
test!(IS_NOT_NULL, "is_not_null", Function::IsNotNull, "IS NOT NULL", Any, "Whether the value is not NULL.");
test!(IS_TRUE, "is_true", Function::IsTrue, "IS TRUE", Bool, "Whether the condition is true.");
test!(
    IS_NOT_TRUE,
    "is_not_true",
    Function::IsNotTrue,
    "IS NOT TRUE",
    Bool,
    "Whether the condition is false or NULL."
);
test!(IS_FALSE, "is_false", Function::IsFalse, "IS FALSE", Bool, "Whether the condition is false.");
test!(
    IS_NOT_FALSE,
    "is_not_false",
    Function::IsNotFalse,
    "IS NOT FALSE",
    Bool,
    "Whether the condition is true or NULL."
);

pub(super) static COALESCE: FunctionEntry =
    FunctionEntry::new("coalesce", Form::Plain(Function::Coalesce), "The first value that is not NULL.")
        .nulls(NullRule::AllNull)
        .signatures(&[
            Signature::new(&[Any], ResultType::Same, &[Example::of("coalesce({a}, {b})")]).variadic()
        ]);

pub(super) static NULL_IF: FunctionEntry =
    FunctionEntry::new("null_if", Form::Plain(Function::NullIf), "NULL if a equals b, otherwise a.")
        .nulls(NullRule::Own)
        .signatures(&[Signature::new(&[Any, Any], ResultType::Same, &[Example::of("nullif({a}, {b})")])]);

pub(super) static GREATEST: FunctionEntry =
    FunctionEntry::new("greatest", Form::Plain(Function::Greatest), "The greatest value that is not NULL.")
        .nulls(NullRule::AllNull)
        .signatures(&[
            Signature::new(&[Any, Any], ResultType::Same, &[Example::of("greatest({a}, {b})")]).variadic()
        ]);

pub(super) static LEAST: FunctionEntry =
    FunctionEntry::new("least", Form::Plain(Function::Least), "The least value that is not NULL.")
        .nulls(NullRule::AllNull)
        .signatures(&[
            Signature::new(&[Any, Any], ResultType::Same, &[Example::of("least({a}, {b})")]).variadic()
        ]);
