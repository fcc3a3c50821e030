//! Quotients and roots of decimals, whose digits PostgreSQL chooses by the values.

use super::{
    CatalogNames, Example, FailureRule, Form, FunctionEntry, ResultType, Shown, Signature,
    TypeClass::{Decimals, Int32},
};
use crate::Function;

pub(super) static DIVIDE_DECIMAL: FunctionEntry = FunctionEntry::new(
    "divide_decimal",
    Form::Plain(Function::DivideDecimal),
    "The quotient of decimals, rounded to the number of digits after the point in the third argument. Division by zero is an error.",
)
.failure(FailureRule::Always)
.shown(Shown::Quotient)
.signatures(&[Signature::new(
    &[Decimals, Decimals, Int32],
    ResultType::Of(Decimals),
    &[Example::of("{a} / {b}")],
)])
.catalog(&[CatalogNames::itself(&["numeric_div"])]);

pub(super) static DIVIDE_WHOLE: FunctionEntry = FunctionEntry::new(
    "div",
    Form::Plain(Function::DivideWhole),
    "The quotient without the digits after its point. Division by zero is an error.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(
    &[Decimals, Decimals],
    ResultType::Of(Decimals),
    &[Example::of("div({a}, {b})")],
)])
.catalog(&[CatalogNames::itself(&["div"])]);

pub(super) static QUOTIENT_SCALE: FunctionEntry = FunctionEntry::new(
    "quotient_scale",
    Form::Plain(Function::QuotientScale),
    "The number of digits after the point of PostgreSQL's quotient, from both numbers and their digits after the point.",
)
.expensive()
.signatures(&[Signature::new(&[Decimals, Int32, Decimals, Int32], ResultType::Of(Int32), &[])]);

pub(super) static DECIMAL_ROOT: FunctionEntry = FunctionEntry::new(
    "decimal_root",
    Form::Plain(Function::DecimalRoot),
    "The square root of a decimal, rounded to the number of digits after the point in the second argument. A negative number is an error.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Decimals, Int32], ResultType::Of(Decimals), &[Example::of("sqrt({a})")])]);

pub(super) static ROOT_SCALE: FunctionEntry = FunctionEntry::new(
    "root_scale",
    Form::Plain(Function::RootScale),
    "The number of digits after the point of PostgreSQL's square root, from the number and its digits after the point.",
)
.on_host()
.signatures(&[Signature::new(&[Decimals, Int32], ResultType::Of(Int32), &[])]);
