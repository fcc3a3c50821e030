//! The digits of decimals: integers of 128 or 256 bits, their scales, and arrays of them.
//!
//! Invariants: a result has exactly the scale of its type. Work starts in 128 bits where operands and
//! result are that wide; a batch in which that overflows is computed again in 256 bits, and only what does
//! not fit the result's width then is an error.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use crate::datafusion::logical_expr::ColumnarValue;
use arrow::{
    array::{ArrayRef, Decimal128Array, Decimal256Array},
    datatypes::{
        DataType as ArrowType, Decimal128Type, Decimal256Type, Int16Type, Int32Type, Int64Type, i256,
    },
};
use num_bigint::BigInt;
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    faults::division_by_zero,
    invocation::Invocation,
    lanes::{Lanes, Nullable, map_lanes},
};

/// The powers of ten that 256 bits hold.
static WIDE_POWERS: LazyLock<Vec<i256>> = LazyLock::new(|| {
    let next = |power: &i256| power.checked_mul(i256::from_i128(10));
    std::iter::successors(Some(i256::ONE), next).collect()
});

/// An integer that holds a decimal's digits.
pub(super) trait Digits: Copy + Default + Ord + std::fmt::Display + 'static {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Ten to a power, if it fits.
    fn power_of_ten(exponent: u32) -> Option<Self>;
    /// Sum, and whether it overflowed.
    fn add(self, other: Self) -> (Self, bool);
    /// Difference, and whether it overflowed.
    fn subtract(self, other: Self) -> (Self, bool);
    /// Product, and whether it overflowed.
    fn multiply(self, other: Self) -> (Self, bool);
    /// Quotient, towards zero, and remainder; `None` by zero or if it overflows.
    fn divide(self, other: Self) -> Option<(Self, Self)>;
    /// Decimal digits, at least one.
    fn digit_count(self) -> u32;
    /// The same integer, if it fits.
    fn to_i64(self) -> Option<i64>;
}

impl Digits for i128 {
    const ZERO: Self = 0;
    const ONE: Self = 1;

    fn power_of_ten(exponent: u32) -> Option<Self> {
        10_i128.checked_pow(exponent)
    }

    #[inline]
    fn add(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }

    #[inline]
    fn subtract(self, other: Self) -> (Self, bool) {
        self.overflowing_sub(other)
    }

    #[inline]
    fn multiply(self, other: Self) -> (Self, bool) {
        // Nearly all factors have at most 18 digits, and their product takes one instruction.
        match (i64::try_from(self), i64::try_from(other)) {
            (Ok(a), Ok(b)) => (i128::from(a) * i128::from(b), false),
            _ => self.overflowing_mul(other),
        }
    }

    #[inline]
    fn divide(self, other: Self) -> Option<(Self, Self)> {
        if let (Ok(a), Ok(b)) = (i64::try_from(self), i64::try_from(other)) {
            return Some((a.checked_div(b)?.into(), a.checked_rem(b)?.into()));
        }
        Some((self.checked_div(other)?, self.checked_rem(other)?))
    }

    fn digit_count(self) -> u32 {
        self.unsigned_abs().checked_ilog10().unwrap_or(0) + 1
    }

    fn to_i64(self) -> Option<i64> {
        i64::try_from(self).ok()
    }
}

impl Digits for i256 {
    const ZERO: Self = i256::ZERO;
    const ONE: Self = i256::ONE;

    fn power_of_ten(exponent: u32) -> Option<Self> {
        WIDE_POWERS.get(exponent as usize).copied()
    }

    fn add(self, other: Self) -> (Self, bool) {
        self.checked_add(other).map_or((i256::ZERO, true), |sum| (sum, false))
    }

    fn subtract(self, other: Self) -> (Self, bool) {
        self.checked_sub(other).map_or((i256::ZERO, true), |difference| (difference, false))
    }

    fn multiply(self, other: Self) -> (Self, bool) {
        self.checked_mul(other).map_or((i256::ZERO, true), |product| (product, false))
    }

    fn divide(self, other: Self) -> Option<(Self, Self)> {
        if let (Some(a), Some(b)) = (self.to_i128(), other.to_i128())
            && let Some((quotient, remainder)) = a.divide(b)
        {
            return Some((i256::from_i128(quotient), i256::from_i128(remainder)));
        }
        // The remainder by a division of its own would take as long again.
        let quotient = self.checked_div(other)?;
        Some((quotient, self.wrapping_sub(quotient.wrapping_mul(other))))
    }

    fn digit_count(self) -> u32 {
        if let Some(narrow) = self.to_i128() {
            return narrow.digit_count();
        }
        // Less one of negative numbers: the magnitude of the least value does not fit.
        let bits = 2 * i128::BITS - if self.is_negative() { !self } else { self }.leading_zeros();
        // As many digits at least as bits would have that are all zero but the first: log10(2) rounded down.
        let mut count = bits.saturating_sub(1) * 30_102 / 100_000 + 1;
        while let Some(power) = Self::power_of_ten(count)
            && (self >= power || self <= -power)
        {
            count += 1;
        }
        count
    }

    fn to_i64(self) -> Option<i64> {
        self.to_i128().and_then(Digits::to_i64)
    }
}

/// Why a decimal operation failed.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The value needs more digits than there are; what was computed.
    Overflow(String),
    /// A divisor of zero.
    DivisionByZero,
}

/// A decimal argument of either width. Integers are decimals of scale 0.
pub(super) enum Decimals<'a> {
    /// 128 bits.
    Narrow(Lanes<'a, i128>),
    /// 256 bits.
    Wide(Lanes<'a, i256>),
}

impl<'a> Decimals<'a> {
    /// The digits of an argument, and its scale.
    pub(super) fn new(argument: &'a ColumnarValue) -> Result<(Self, u32)> {
        Ok(match argument.data_type() {
            ArrowType::Decimal128(_, scale) => {
                (Self::Narrow(Lanes::primitive::<Decimal128Type>(argument)?), unsigned_scale(scale)?)
            }
            ArrowType::Decimal256(_, scale) => {
                (Self::Wide(Lanes::primitive::<Decimal256Type>(argument)?), unsigned_scale(scale)?)
            }
            ArrowType::Int16 => {
                (Self::Narrow(Lanes::primitive::<Int16Type>(argument)?.convert(i128::from)), 0)
            }
            ArrowType::Int32 => {
                (Self::Narrow(Lanes::primitive::<Int32Type>(argument)?.convert(i128::from)), 0)
            }
            ArrowType::Int64 => {
                (Self::Narrow(Lanes::primitive::<Int64Type>(argument)?.convert(i128::from)), 0)
            }
            other => return Err(Error::internal(format!("a decimal was expected, not {other}"))),
        })
    }

    /// The same digits in 256 bits.
    pub(super) fn widen(&self) -> Lanes<'_, i256> {
        match self {
            Self::Narrow(lanes) => lanes.convert(i256::from_i128),
            Self::Wide(Lanes::Column { values, nulls }) => {
                Lanes::Column { values: Cow::Borrowed(values), nulls: nulls.clone() }
            }
            Self::Wide(Lanes::Constant(value)) => Lanes::Constant(*value),
        }
    }
}

/// Runs an operation in 128 bits if arguments and result allow, and in 256 bits if not or if that overflows.
pub(super) fn run(
    call: &Invocation<'_>,
    arguments: &[&Decimals<'_>],
    narrow: impl Fn(&[&Lanes<'_, i128>]) -> std::result::Result<Nullable<i128>, Fault>,
    wide: impl Fn(&[Lanes<'_, i256>]) -> std::result::Result<Nullable<i256>, Fault>,
) -> Result<ArrayRef> {
    let (precision, _) = result_type(call.result)?;
    let lanes: Option<Vec<&Lanes<'_, i128>>> = arguments
        .iter()
        .map(|argument| match argument {
            Decimals::Narrow(lanes) => Some(lanes),
            Decimals::Wide(_) => None,
        })
        .collect();
    if let Some(lanes) = lanes
        && is_narrow(precision)
    {
        match narrow(&lanes) {
            Ok(values) => return narrow_array(values, call.result),
            Err(Fault::DivisionByZero) => return Err(division_by_zero()),
            Err(Fault::Overflow(_)) => {}
        }
    }
    let lanes: Vec<Lanes<'_, i256>> = arguments.iter().map(|argument| argument.widen()).collect();
    match wide(&lanes) {
        Ok(values) => wide_array(values, call.result),
        Err(Fault::DivisionByZero) => Err(division_by_zero()),
        Err(Fault::Overflow(value)) => Err(decimal_overflow(&value, call.result)),
    }
}

/// Values of 256 bits as an array of a decimal type of either width.
pub(super) fn wide_array(values: Nullable<i256>, result: &DataType) -> Result<ArrayRef> {
    let (precision, scale) = result_type(result)?;
    if is_narrow(precision) {
        let lanes = Lanes::Column { values: Cow::Borrowed(&values.values), nulls: values.nulls.clone() };
        let narrow = map_lanes(
            &lanes,
            values.values.len(),
            |value| value.to_i128().map_or((0, true), |value| (value, false)),
            |value| decimal_overflow(&decimal_text(&value.to_string(), scale), result),
        )?;
        return narrow_array(narrow, result);
    }
    let array: Decimal256Array = values.into_array();
    let array = array
        .with_precision_and_scale(precision, arrow_scale(scale)?)
        .map_err(|error| Error::internal(format!("{result} is not a type of 256 bits: {error}")))?;
    Ok(Arc::new(array))
}

/// Values of 128 bits as an array of a decimal type of that width.
pub(super) fn narrow_array(values: Nullable<i128>, result: &DataType) -> Result<ArrayRef> {
    let (precision, scale) = result_type(result)?;
    let array: Decimal128Array = values.into_array();
    let array = array
        .with_precision_and_scale(precision, arrow_scale(scale)?)
        .map_err(|error| Error::internal(format!("{result} is not a type of 128 bits: {error}")))?;
    Ok(Arc::new(array))
}

/// Precision and scale of a decimal type.
pub(super) fn result_type(result: &DataType) -> Result<(u8, u32)> {
    match result {
        DataType::Decimal { precision, scale } => Ok((*precision, u32::from(*scale))),
        other => Err(Error::internal(format!("a decimal result was expected, not {other}"))),
    }
}

/// Whether a decimal of this many digits is held in 128 bits.
pub(super) fn is_narrow(precision: u8) -> bool {
    matches!(DataType::Decimal { precision, scale: 0 }.to_arrow(), ArrowType::Decimal128(..))
}

/// The error of a value that does not fit the width of its type.
pub(super) fn decimal_overflow(value: &str, result: &DataType) -> Error {
    let digits = match result {
        DataType::Decimal { precision, .. } if is_narrow(*precision) => 38,
        _ => 76,
    };
    Error::new(
        ErrorKind::NumericOutOfRange,
        format!("numeric value out of range: {value} needs more than {digits} digits"),
    )
    .with_hint("Cast an operand to a numeric with fewer digits, or to double precision.")
}

/// The quotient rounded half away from zero; `None` if it overflows or the divisor is zero.
pub(super) fn divide_rounded<D: Digits>(value: D, divisor: D) -> Option<D> {
    let (quotient, remainder) = value.divide(divisor)?;
    if remainder == D::ZERO {
        return Some(quotient);
    }
    let magnitude = |value: D| if value < D::ZERO { D::ZERO.subtract(value) } else { (value, false) };
    let (part, _) = magnitude(remainder);
    let (whole, overflow) = magnitude(divisor);
    // The least value's magnitude does not fit; no remainder is half of it in any decimal.
    if overflow || part < whole.subtract(part).0 {
        return Some(quotient);
    }
    let (rounded, overflow) = if (value < D::ZERO) == (divisor < D::ZERO) {
        quotient.add(D::ONE)
    } else {
        quotient.subtract(D::ONE)
    };
    (!overflow).then_some(rounded)
}

/// The value at another scale, rounded half away from zero; `None` if it overflows.
pub(super) fn rescale<D: Digits>(value: D, from: u32, to: u32) -> Option<D> {
    if to >= from {
        if value == D::ZERO {
            return Some(value);
        }
        let (scaled, overflow) = value.multiply(D::power_of_ten(to - from)?);
        (!overflow).then_some(scaled)
    } else {
        match D::power_of_ten(from - to) {
            Some(power) => divide_rounded(value, power),
            // A power that does not fit is more than twice as large as any value that does.
            None => Some(D::ZERO),
        }
    }
}

/// Digits with their point.
pub(super) fn decimal_text(digits: &str, scale: u32) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let scale = scale as usize;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

fn unsigned_scale(scale: i8) -> Result<u32> {
    u32::try_from(scale).map_err(|_| Error::internal(format!("decimal with negative scale {scale}")))
}

fn arrow_scale(scale: u32) -> Result<i8> {
    i8::try_from(scale).map_err(|_| Error::internal(format!("decimal with scale {scale}")))
}

/// The same integer.
pub(super) fn big_from_wide(value: i256) -> BigInt {
    BigInt::from_signed_bytes_le(&value.to_le_bytes())
}

/// The same integer, if 256 bits hold it.
pub(super) fn big_to_wide(value: &BigInt) -> Option<i256> {
    let bytes = value.to_signed_bytes_le();
    let fill = if value.sign() == num_bigint::Sign::Minus { 0xff } else { 0 };
    let mut wide = [fill; 32];
    wide.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    Some(i256::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_numbers_have_the_digits_of_their_text() {
        let powers = (0..255_u8).map(|bit| i256::ONE << bit).chain(WIDE_POWERS.iter().copied());
        let near =
            powers.flat_map(|power| [power.wrapping_sub(i256::ONE), power, power.wrapping_add(i256::ONE)]);
        for value in near.flat_map(|value| [value, value.wrapping_neg()]).chain([i256::MIN, i256::MAX]) {
            assert_eq!(
                value.digit_count() as usize,
                value.to_string().trim_start_matches('-').len(),
                "{value}"
            );
        }
        assert_eq!(
            (i256::power_of_ten(76), i256::power_of_ten(77)),
            (i256::from_string(&format!("1{:0>76}", "")), None)
        );
    }

    #[test]
    fn a_wide_division_has_the_remainder_of_its_quotient() {
        let large = WIDE_POWERS[70];
        for (a, b) in [(large, 7), (large.wrapping_neg(), 7), (large, -9), (i256::MIN, 3), (i256::MAX, 1)] {
            let b = i256::from_i128(b);
            let expected = Some((a.checked_div(b).unwrap(), a.checked_rem(b).unwrap()));
            assert_eq!(a.divide(b), expected, "{a} / {b}");
        }
        assert_eq!(i256::MIN.divide(i256::MINUS_ONE), None);
        assert_eq!(large.divide(i256::ZERO), None);
    }
}
