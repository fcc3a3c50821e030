//! Bits of integers, their common divisors and multiples.
//!
//! Source: PostgreSQL 15, `int.c` and `int8.c`.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType},
    datatypes::{Int16Type, Int32Type, Int64Type},
};
use pystachio_plan::{DataType, Error, Function, Result};

use super::{
    faults::out_of_range,
    invocation::Invocation,
    lanes::{checked, map_lanes, zip_lanes},
};

/// An operation on the bits of an integer, with the result that C compilers give on the server's processor.
trait Bits: Copy + Default {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    fn shift_left(self, count: i32) -> Self;
    fn shift_right(self, count: i32) -> Self;
    fn divisor(self, other: Self) -> Option<Self>;
    fn multiple(self, other: Self) -> Option<Self>;
}

/// Shifts are those of `$shifted`, in which C computes them.
macro_rules! bits {
    ($type:ty, $shifted:ty) => {
        impl Bits for $type {
            fn and(self, other: Self) -> Self {
                self & other
            }
            fn or(self, other: Self) -> Self {
                self | other
            }
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            fn not(self) -> Self {
                !self
            }
            fn shift_left(self, count: i32) -> Self {
                <$shifted>::from(self).wrapping_shl(count.cast_unsigned()) as Self
            }
            fn shift_right(self, count: i32) -> Self {
                <$shifted>::from(self).wrapping_shr(count.cast_unsigned()) as Self
            }
            fn divisor(self, other: Self) -> Option<Self> {
                let (mut a, mut b) = (self.unsigned_abs(), other.unsigned_abs());
                while b != 0 {
                    (a, b) = (b, a % b);
                }
                Self::try_from(a).ok()
            }
            fn multiple(self, other: Self) -> Option<Self> {
                if self == 0 || other == 0 {
                    return Some(0);
                }
                // The least number has no divisor that fits only if that is its own multiple.
                (self / self.divisor(other)?).checked_mul(other)?.checked_abs()
            }
        }
    };
}

bits!(i16, i32);
bits!(i32, i32);
bits!(i64, i64);

/// The functions of bits, `gcd` and `lcm`.
///
/// # Errors
///
/// `NumericOutOfRange` for a divisor or multiple that the type does not hold.
pub(super) fn evaluate(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.result {
        DataType::Int16 => evaluate_integer::<Int16Type>(function, call),
        DataType::Int32 => evaluate_integer::<Int32Type>(function, call),
        DataType::Int64 => evaluate_integer::<Int64Type>(function, call),
        _ => Err(call.not_supported(&format!("{function:?}"))),
    }
}

fn evaluate_integer<P>(function: Function, call: &Invocation<'_>) -> Result<ArrayRef>
where
    P: ArrowPrimitiveType,
    P::Native: Bits,
{
    let a = call.lanes::<P>(0)?;
    let rows = call.rows;
    let never = || Error::internal("a function of bits that can't fail has failed");
    if function == Function::BitNot {
        let values = map_lanes(&a, rows, |a| (a.not(), false), |_| never())?;
        return Ok(Arc::new(values.into_array::<P>()));
    }
    if matches!(function, Function::ShiftLeft | Function::ShiftRight) {
        let counts = call.lanes::<Int32Type>(1)?;
        let shift = if function == Function::ShiftLeft { Bits::shift_left } else { Bits::shift_right };
        let values = zip_lanes(&a, &counts, rows, |a: P::Native, n| (shift(a, n), false), |_, _| never())?;
        return Ok(Arc::new(values.into_array::<P>()));
    }
    let b = call.lanes::<P>(1)?;
    let range = || out_of_range(call.result);
    let values = match function {
        Function::BitAnd => zip_lanes(&a, &b, rows, |a, b| (a.and(b), false), |_, _| never())?,
        Function::BitOr => zip_lanes(&a, &b, rows, |a, b| (a.or(b), false), |_, _| never())?,
        Function::BitXor => zip_lanes(&a, &b, rows, |a, b| (a.xor(b), false), |_, _| never())?,
        Function::GreatestCommonDivisor => {
            zip_lanes(&a, &b, rows, |a, b| checked(a.divisor(b)), |_, _| range())?
        }
        Function::LeastCommonMultiple => {
            zip_lanes(&a, &b, rows, |a, b| checked(a.multiple(b)), |_, _| range())?
        }
        _ => return Err(call.not_supported(&format!("{function:?}"))),
    };
    Ok(Arc::new(values.into_array::<P>()))
}
