//! Variances from exact sums.

use super::{
    FailureRule, Form, FunctionEntry, NullRule, ResultType, Signature,
    TypeClass::{Decimals, Int32, Int64},
};
use crate::Function;

/// Count, sum, sum of squares, and the display scale of what was summed.
const SUMS: &[super::TypeClass] = &[Int64, Decimals, Decimals, Int32];

fn variance(sample: bool, deviation: bool) -> Function {
    Function::Variance { sample, deviation }
}

fn variance_scale(sample: bool, deviation: bool) -> Function {
    Function::VarianceScale { sample, deviation }
}

pub(super) static VARIANCE: FunctionEntry = FunctionEntry::new(
    "variance",
    Form::Moments(variance),
    "A variance or standard deviation, from count, sum, sum of squares and the summed numbers' digits after the point.",
)
.nulls(NullRule::StrictAndOwn)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(SUMS, ResultType::Of(Decimals), &[])]);

pub(super) static VARIANCE_SCALE: FunctionEntry = FunctionEntry::new(
    "variance_scale",
    Form::Moments(variance_scale),
    "The number of digits after the point of PostgreSQL's variance.",
)
.nulls(NullRule::StrictAndOwn)
.on_host()
.signatures(&[Signature::new(SUMS, ResultType::Of(Int32), &[])]);
