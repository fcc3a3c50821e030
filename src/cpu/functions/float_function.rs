//! Functions of doubles that the C library computes.
//!
//! PostgreSQL calls the library of the same host, so that both have the same last digit. What PostgreSQL tests before a call and
//! after it is tested here.
//!
//! Source: PostgreSQL 15, `float.c`.

use std::sync::Arc;

use arrow::{array::ArrayRef, datatypes::Float64Type};
use pystachio_engine::mathematics::{self, Outcome};
use pystachio_plan::{Error, ErrorKind, FloatFunction, RADIANS_PER_DEGREE, Result};

use super::{
    faults::{float_overflow, float_underflow},
    invocation::Invocation,
    lanes::{map_lanes, zip_lanes},
};

/// Why there is no result.
#[derive(Clone, Copy)]
enum Fault {
    Overflow,
    Underflow,
    Input,
    LogarithmOfZero,
    LogarithmOfNegative,
    ZeroToNegative,
    Complex,
}

impl Fault {
    fn error(self) -> Error {
        let (kind, message) = match self {
            Self::Overflow => return float_overflow(),
            Self::Underflow => return float_underflow(),
            Self::Input => (ErrorKind::NumericOutOfRange, "input is out of range"),
            Self::LogarithmOfZero => (ErrorKind::InvalidLogarithmArgument, "cannot take logarithm of zero"),
            Self::LogarithmOfNegative => {
                (ErrorKind::InvalidLogarithmArgument, "cannot take logarithm of a negative number")
            }
            Self::ZeroToNegative => {
                (ErrorKind::InvalidPowerArgument, "zero raised to a negative power is undefined")
            }
            Self::Complex => (
                ErrorKind::InvalidPowerArgument,
                "a negative number raised to a non-integer power yields a complex result",
            ),
        };
        Error::new(kind, message)
    }
}

type Computed = std::result::Result<f64, Fault>;

/// A function of one double or two.
///
/// # Errors
///
/// PostgreSQL's.
pub(super) fn evaluate(function: FloatFunction, call: &Invocation<'_>) -> Result<ArrayRef> {
    let a = call.lanes::<Float64Type>(0)?;
    let split = |computed: Computed| computed.map_or((0.0, true), |value| (value, false));
    let fault = |computed: Computed| match computed {
        Err(fault) => fault.error(),
        Ok(_) => Error::internal("a function of a double fails once"),
    };
    let values = match two(function) {
        Some(compute) => {
            let b = call.lanes::<Float64Type>(1)?;
            zip_lanes(&a, &b, call.rows, |a, b| split(compute(a, b)), |a, b| fault(compute(a, b)))?
        }
        None => map_lanes(&a, call.rows, |a| split(one(function, a)), |a| fault(one(function, a)))?,
    };
    Ok(Arc::new(values.into_array::<Float64Type>()))
}

/// A function of two doubles; `None` of one.
fn two(function: FloatFunction) -> Option<fn(f64, f64) -> Computed> {
    match function {
        FloatFunction::Power => Some(power),
        FloatFunction::ArcTangentOfQuotient => Some(|a, b| {
            if a.is_nan() || b.is_nan() {
                return Ok(f64::NAN);
            }
            finite(mathematics::atan2(a, b).value)
        }),
        _ => None,
    }
}

fn one(function: FloatFunction, a: f64) -> Computed {
    // NaN is what all of them make of it.
    if a.is_nan() {
        return Ok(a);
    }
    match function {
        FloatFunction::CubeRoot => Ok(mathematics::cbrt(a).value),
        FloatFunction::Exponential => exponential(a),
        FloatFunction::NaturalLogarithm => logarithm(a, mathematics::log),
        FloatFunction::DecimalLogarithm => logarithm(a, mathematics::log10),
        FloatFunction::Sine => periodic(a, mathematics::sin).and_then(finite),
        FloatFunction::Cosine => periodic(a, mathematics::cos).and_then(finite),
        FloatFunction::Tangent => periodic(a, mathematics::tan),
        FloatFunction::Cotangent => Ok(1.0 / periodic(a, mathematics::tan)?),
        FloatFunction::ArcSine => {
            within_one(a)?;
            finite(mathematics::asin(a).value)
        }
        FloatFunction::ArcCosine => {
            within_one(a)?;
            finite(mathematics::acos(a).value)
        }
        FloatFunction::ArcTangent => finite(mathematics::atan(a).value),
        FloatFunction::HyperbolicSine => Ok(match mathematics::sinh(a) {
            Outcome { is_out_of_range: true, .. } => f64::INFINITY.copysign(a),
            outcome => outcome.value,
        }),
        FloatFunction::HyperbolicCosine => {
            let outcome = mathematics::cosh(a);
            let value = if outcome.is_out_of_range { f64::INFINITY } else { outcome.value };
            if value == 0.0 { Err(Fault::Underflow) } else { Ok(value) }
        }
        FloatFunction::HyperbolicTangent => finite(mathematics::tanh(a).value),
        FloatFunction::HyperbolicArcSine => Ok(mathematics::asinh(a).value),
        FloatFunction::HyperbolicArcCosine if a < 1.0 => Err(Fault::Input),
        FloatFunction::HyperbolicArcCosine => Ok(mathematics::acosh(a).value),
        FloatFunction::HyperbolicArcTangent => {
            within_one(a)?;
            Ok(if a.abs() == 1.0 { f64::INFINITY.copysign(a) } else { mathematics::atanh(a).value })
        }
        FloatFunction::Degrees => checked(a, a / RADIANS_PER_DEGREE),
        FloatFunction::Radians => checked(a, a * RADIANS_PER_DEGREE),
        FloatFunction::Power | FloatFunction::ArcTangentOfQuotient => Err(Fault::Input),
    }
}

fn finite(value: f64) -> Computed {
    if value.is_infinite() { Err(Fault::Overflow) } else { Ok(value) }
}

fn within_one(a: f64) -> std::result::Result<(), Fault> {
    if (-1.0..=1.0).contains(&a) { Ok(()) } else { Err(Fault::Input) }
}

/// What became infinite has overflowed, and what became zero has vanished.
fn checked(a: f64, value: f64) -> Computed {
    if value.is_infinite() && !a.is_infinite() {
        Err(Fault::Overflow)
    } else if value == 0.0 && a != 0.0 {
        Err(Fault::Underflow)
    } else {
        Ok(value)
    }
}

/// What the library says is out of range has overflowed, unless it became zero.
fn ranged(outcome: Outcome, may_be_zero: bool) -> Computed {
    let value = outcome.value;
    match outcome.is_out_of_range {
        true if value != 0.0 => Err(Fault::Overflow),
        true => Err(Fault::Underflow),
        false if value.is_infinite() => Err(Fault::Overflow),
        false if value == 0.0 && !may_be_zero => Err(Fault::Underflow),
        false => Ok(value),
    }
}

fn exponential(a: f64) -> Computed {
    if a.is_infinite() {
        return Ok(if a > 0.0 { a } else { 0.0 });
    }
    ranged(mathematics::exp(a), false)
}

fn logarithm(a: f64, compute: fn(f64) -> Outcome) -> Computed {
    if a == 0.0 {
        return Err(Fault::LogarithmOfZero);
    }
    if a < 0.0 {
        return Err(Fault::LogarithmOfNegative);
    }
    let value = compute(a).value;
    if value.is_infinite() && !a.is_infinite() {
        Err(Fault::Overflow)
    } else if value == 0.0 && a != 1.0 {
        Err(Fault::Underflow)
    } else {
        Ok(value)
    }
}

fn periodic(a: f64, compute: fn(f64) -> Outcome) -> Computed {
    let outcome = compute(a);
    if outcome.has_error || a.is_infinite() { Err(Fault::Input) } else { Ok(outcome.value) }
}

fn power(a: f64, b: f64) -> Computed {
    if a.is_nan() {
        return Ok(if b == 0.0 { 1.0 } else { f64::NAN });
    }
    if b.is_nan() {
        return Ok(if a == 1.0 { 1.0 } else { f64::NAN });
    }
    if a == 0.0 && b < 0.0 {
        return Err(Fault::ZeroToNegative);
    }
    if a < 0.0 && b.floor() != b {
        return Err(Fault::Complex);
    }
    if b.is_infinite() {
        let size = a.abs();
        return Ok(if size == 1.0 {
            1.0
        } else if (size > 1.0) == (b > 0.0) {
            f64::INFINITY
        } else {
            0.0
        });
    }
    if a.is_infinite() {
        return Ok(power_of_infinity(a, b));
    }
    let outcome = mathematics::pow(a, b);
    if outcome.is_no_number || outcome.value.is_nan() {
        return Err(Fault::Complex);
    }
    ranged(outcome, a == 0.0)
}

/// A power of a negative infinity is one of a negative number: `b` is an integer then, and an odd one keeps the sign.
fn power_of_infinity(a: f64, b: f64) -> f64 {
    let half = b / 2.0;
    let sign = if a < 0.0 && half.floor() != half { -1.0 } else { 1.0 };
    if b == 0.0 {
        1.0
    } else if b > 0.0 {
        f64::INFINITY * sign
    } else {
        0.0 * sign
    }
}
