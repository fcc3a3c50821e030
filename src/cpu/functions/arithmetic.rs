//! Arithmetic on integers and floats.
//!
//! Source: PostgreSQL 15, `int.c`, `int8.c`, `float.c` and `utils/float.h`.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType},
    datatypes::{Float32Type, Float64Type, Int16Type, Int32Type, Int64Type},
};
use pystachio_plan::{DataType, Error, ErrorKind, Function, Result};

use super::{
    faults::{division_by_zero, float_overflow, float_underflow, out_of_range},
    invocation::Invocation,
    lanes::{Lanes, map_lanes, zip_lanes},
};

/// Arithmetic whose result is an integer or a float, which its arguments are too.
///
/// # Errors
///
/// `NumericOutOfRange` and `DivisionByZero` with PostgreSQL's messages.
pub(super) fn evaluate(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.result {
        DataType::Int16 => evaluate_integer::<Int16Type>(function, call),
        DataType::Int32 => evaluate_integer::<Int32Type>(function, call),
        DataType::Int64 => evaluate_integer::<Int64Type>(function, call),
        DataType::Float32 => evaluate_float::<Float32Type>(function, call),
        DataType::Float64 => evaluate_float::<Float64Type>(function, call),
        _ => Err(call.not_supported(&format!("{function:?}"))),
    }
}

/// `round`, `trunc`, `ceil`, `floor` of floats.
pub(super) fn evaluate_rounding(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.result {
        DataType::Float32 => round_float::<Float32Type>(function, call),
        DataType::Float64 => round_float::<Float64Type>(function, call),
        _ => Err(call.not_supported(&format!("{function:?}"))),
    }
}

/// `sqrt`.
///
/// # Errors
///
/// `InvalidPowerArgument` of a negative argument.
pub(super) fn square_root(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = map_lanes(
        &call.lanes::<Float64Type>(0)?,
        call.rows,
        |a: f64| (a.sqrt(), a < 0.0),
        |_| root_of_negative(),
    )?;
    Ok(Arc::new(values.into_array::<Float64Type>()))
}

/// The error of a root of a negative number.
pub(super) fn root_of_negative() -> Error {
    Error::new(ErrorKind::InvalidPowerArgument, "cannot take square root of a negative number")
}

/// A float with one NaN and, where `one_zero` is set, one zero.
pub(super) fn normalize_float(call: &Invocation<'_>, one_zero: bool) -> Result<ArrayRef> {
    match call.result {
        DataType::Float32 => normalize::<Float32Type>(call, one_zero),
        DataType::Float64 => normalize::<Float64Type>(call, one_zero),
        _ => Err(call.not_supported("normalization")),
    }
}

/// Integer arithmetic that reports overflow.
trait Integer: Copy + Default + PartialOrd {
    const ZERO: Self;
    fn add(self, other: Self) -> (Self, bool);
    fn subtract(self, other: Self) -> (Self, bool);
    fn multiply(self, other: Self) -> (Self, bool);
    fn divide(self, other: Self) -> (Self, bool);
    fn modulo(self, other: Self) -> (Self, bool);
}

macro_rules! integer {
    ($type:ty) => {
        impl Integer for $type {
            const ZERO: Self = 0;
            fn add(self, other: Self) -> (Self, bool) {
                self.overflowing_add(other)
            }
            fn subtract(self, other: Self) -> (Self, bool) {
                self.overflowing_sub(other)
            }
            fn multiply(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
            fn divide(self, other: Self) -> (Self, bool) {
                match self.checked_div(other) {
                    Some(quotient) => (quotient, false),
                    None => (0, true),
                }
            }
            fn modulo(self, other: Self) -> (Self, bool) {
                // The remainder of the least value by -1 is 0, although the quotient does not fit.
                if other == 0 { (0, true) } else { (self.wrapping_rem(other), false) }
            }
        }
    };
}

integer!(i16);
integer!(i32);
integer!(i64);

fn evaluate_integer<P>(function: Function, call: &Invocation<'_>) -> Result<ArrayRef>
where
    P: ArrowPrimitiveType,
    P::Native: Integer,
{
    let range = || out_of_range(call.result);
    let zero = P::Native::ZERO;
    let a = call.lanes::<P>(0)?;
    let values = match function {
        Function::Negate => map_lanes(&a, call.rows, |a| zero.subtract(a), |_| range())?,
        Function::Absolute => {
            map_lanes(&a, call.rows, |a| if a < zero { zero.subtract(a) } else { (a, false) }, |_| range())?
        }
        _ => {
            let b = call.lanes::<P>(1)?;
            match function {
                Function::Add => zip_lanes(&a, &b, call.rows, Integer::add, |_, _| range())?,
                Function::Subtract => zip_lanes(&a, &b, call.rows, Integer::subtract, |_, _| range())?,
                Function::Multiply => zip_lanes(&a, &b, call.rows, Integer::multiply, |_, _| range())?,
                Function::Divide => zip_lanes(&a, &b, call.rows, Integer::divide, |_, b| {
                    if b == zero { division_by_zero() } else { range() }
                })?,
                Function::Modulo => zip_lanes(&a, &b, call.rows, Integer::modulo, |_, _| division_by_zero())?,
                _ => return Err(call.not_supported(&format!("{function:?}"))),
            }
        }
    };
    Ok(Arc::new(values.into_array::<P>()))
}

/// What PostgreSQL checks after a float operation.
trait Float: Copy + Default + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn divide(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn is_infinite(self) -> bool;
    fn negate(self) -> Self;
    fn absolute(self) -> Self;
    fn round(self, function: Function) -> Self;
}

macro_rules! float {
    ($type:ty) => {
        impl Float for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = <$type>::NAN;
            fn add(self, other: Self) -> Self {
                self + other
            }
            fn subtract(self, other: Self) -> Self {
                self - other
            }
            fn multiply(self, other: Self) -> Self {
                self * other
            }
            fn divide(self, other: Self) -> Self {
                self / other
            }
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }
            fn is_infinite(self) -> bool {
                <$type>::is_infinite(self)
            }
            fn negate(self) -> Self {
                -self
            }
            fn absolute(self) -> Self {
                self.abs()
            }
            fn round(self, function: Function) -> Self {
                match function {
                    Function::Round => self.round_ties_even(),
                    Function::Truncate => self.trunc(),
                    Function::Ceiling => self.ceil(),
                    _ => self.floor(),
                }
            }
        }
    };
}

float!(f32);
float!(f64);

fn overflowed<F: Float>(result: F, a: F, b: F) -> bool {
    result.is_infinite() && !a.is_infinite() && !b.is_infinite()
}

fn evaluate_float<P>(function: Function, call: &Invocation<'_>) -> Result<ArrayRef>
where
    P: ArrowPrimitiveType,
    P::Native: Float,
{
    let zero = P::Native::ZERO;
    let a = call.lanes::<P>(0)?;
    let rows = call.rows;
    let never = |_| Error::internal("a float operation that can't fail has failed");
    let values = match function {
        Function::Negate => map_lanes(&a, rows, |a| (a.negate(), false), never)?,
        Function::Absolute => map_lanes(&a, rows, |a| (a.absolute(), false), never)?,
        Function::Sign => map_lanes(&a, rows, |a| (sign(a), false), never)?,
        _ => {
            let b = call.lanes::<P>(1)?;
            zip_float(function, &a, &b, rows, zero)
                .ok_or_else(|| call.not_supported(&format!("{function:?}")))??
        }
    };
    Ok(Arc::new(values.into_array::<P>()))
}

fn zip_float<F: Float>(
    function: Function,
    a: &Lanes<'_, F>,
    b: &Lanes<'_, F>,
    rows: usize,
    zero: F,
) -> Option<Result<super::lanes::Nullable<F>>> {
    Some(match function {
        Function::Add => zip_lanes(
            a,
            b,
            rows,
            |a, b| {
                let result = a.add(b);
                (result, overflowed(result, a, b))
            },
            |_, _| float_overflow(),
        ),
        Function::Subtract => zip_lanes(
            a,
            b,
            rows,
            |a, b| {
                let result = a.subtract(b);
                (result, overflowed(result, a, b))
            },
            |_, _| float_overflow(),
        ),
        Function::Multiply => zip_lanes(
            a,
            b,
            rows,
            |a, b| {
                let result = a.multiply(b);
                (result, overflowed(result, a, b) || (result == zero && a != zero && b != zero))
            },
            |a, b| if a.multiply(b) == zero { float_underflow() } else { float_overflow() },
        ),
        Function::Divide => zip_lanes(
            a,
            b,
            rows,
            |a, b| {
                let result = a.divide(b);
                let by_zero = b == zero && !a.is_nan();
                let overflow = result.is_infinite() && !a.is_infinite();
                (result, by_zero || overflow || (result == zero && a != zero && !b.is_infinite()))
            },
            |a, b| {
                if b == zero {
                    division_by_zero()
                } else if a.divide(b) == zero {
                    float_underflow()
                } else {
                    float_overflow()
                }
            },
        ),
        _ => return None,
    })
}

fn sign<F: Float>(value: F) -> F {
    if value > F::ZERO {
        F::ONE
    } else if value < F::ZERO {
        F::ONE.negate()
    } else {
        F::ZERO
    }
}

fn round_float<P>(function: Function, call: &Invocation<'_>) -> Result<ArrayRef>
where
    P: ArrowPrimitiveType,
    P::Native: Float,
{
    let values = map_lanes(
        &call.lanes::<P>(0)?,
        call.rows,
        |a| (a.round(function), false),
        |_| Error::internal("rounding a float has failed"),
    )?;
    Ok(Arc::new(values.into_array::<P>()))
}

fn normalize<P>(call: &Invocation<'_>, one_zero: bool) -> Result<ArrayRef>
where
    P: ArrowPrimitiveType,
    P::Native: Float,
{
    let values = map_lanes(
        &call.lanes::<P>(0)?,
        call.rows,
        |a| match (a.is_nan(), one_zero) {
            (true, _) => (P::Native::NAN, false),
            // Adding zero turns -0 into 0 and leaves everything else.
            (false, true) => (a.add(P::Native::ZERO), false),
            (false, false) => (a, false),
        },
        |_| Error::internal("normalizing a float has failed"),
    )?;
    Ok(Arc::new(values.into_array::<P>()))
}
