//! Arrays: those of columns, and those that aggregates make of their inputs. Rows that are counted.

use super::{
    CatalogNames, Example, Form, FunctionEntry, NullRule, ResultType, Shown, Signature,
    TypeClass::{Any, Bool, Float64, Int32, Lists, Records, Text},
};
use crate::Function;

pub(super) static EQUALS_ANY: FunctionEntry = FunctionEntry::new(
    "equals_any",
    Form::Plain(Function::EqualsAny),
    "Whether an element of the array equals the first; NULL if none does and the first or an element is NULL.",
)
.nulls(NullRule::SomeNull)
.shown(Shown::Any)
.on_host()
.signatures(&[Signature::new(&[Any, Lists], ResultType::Of(Bool), &[Example::of("{a} = ANY ({b})")])]);

pub(super) static CARDINALITY: FunctionEntry = FunctionEntry::new(
    "cardinality",
    Form::Plain(Function::Cardinality),
    "The number of an array's elements.",
)
.on_host()
.signatures(&[Signature::new(&[Lists], ResultType::Of(Int32), &[Example::of("cardinality({a})")])])
.catalog(&[CatalogNames::itself(&["cardinality", "array_length"])]);

pub(super) static ELEMENT: FunctionEntry = FunctionEntry::new(
    "element",
    Form::Plain(Function::Element),
    "The element of an array with this number, from 1; NULL if there is none.",
)
.nulls(NullRule::StrictAndOwn)
.shown(Shown::Subscript)
.on_host()
.signatures(&[Signature::new(&[Lists, Int32], ResultType::Of(Any), &[Example::of("({a})[{b}]")])]);

pub(super) static JOIN_TEXTS: FunctionEntry = FunctionEntry::new(
    "join_texts",
    Form::Plain(Function::JoinTexts),
    "The texts of an array that are not NULL, with a delimiter between them, or with each one's own before it.",
)
.nulls(NullRule::StrictAndOwn)
.on_host()
.signatures(&[
    Signature::new(&[Lists, Text], ResultType::Of(Text), &[]),
    Signature::new(&[Lists, Lists], ResultType::Of(Text), &[]),
]);

/// An array, and one fraction or several.
const FRACTIONS: &[super::TypeClass] = &[Lists, Float64];

pub(super) static PERCENTILE_CONT: FunctionEntry = FunctionEntry::new(
    "percentile_cont",
    Form::Plain(Function::PercentileCont),
    "The value at a fraction of an ordered array, between two elements where it falls there; an array for several fractions.",
)
.nulls(NullRule::StrictAndOwn)
.signatures(&[
    Signature::new(FRACTIONS, ResultType::Of(Float64), &[]),
    Signature::new(FRACTIONS, ResultType::Of(Lists), &[]).variadic(),
]);

pub(super) static PERCENTILE_DISC: FunctionEntry = FunctionEntry::new(
    "percentile_disc",
    Form::Plain(Function::PercentileDisc),
    "The first element of an ordered array at a fraction of it or behind; an array for several fractions.",
)
.nulls(NullRule::StrictAndOwn)
.signatures(&[
    Signature::new(FRACTIONS, ResultType::Of(Any), &[]),
    Signature::new(FRACTIONS, ResultType::Of(Lists), &[]).variadic(),
]);

pub(super) static MODE: FunctionEntry = FunctionEntry::new(
    "mode",
    Form::Plain(Function::Mode),
    "The first of the most frequent elements of an ordered array.",
)
.nulls(NullRule::StrictAndOwn)
.signatures(&[Signature::new(&[Lists], ResultType::Of(Any), &[])]);

pub(super) static ROW: FunctionEntry = FunctionEntry::new(
    "row",
    Form::Plain(Function::Row),
    "A composite value, of which different ones are counted.",
)
.nulls(NullRule::Never)
.on_host()
.signatures(&[Signature::new(&[Any], ResultType::Of(Records), &[]).variadic()]);
