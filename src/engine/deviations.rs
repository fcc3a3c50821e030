//! Sums of squared deviations of floats from their mean, and of products of such deviations, rounded once.
//!
//! Both engines compute them so, of exact sums: the numbers in between have any size.

use num_bigint::{BigInt, Sign};
use pystachio_plan::{Error, ErrorKind, Result};

/// The exponent of the least float above zero, of which every finite one is a multiple.
pub const VALUE_EXPONENT: i32 = -1074;
/// The same of products of two floats.
pub const PRODUCT_EXPONENT: i32 = 2 * VALUE_EXPONENT;

/// `(n * Σxy - Σx * Σy) / n` of `n` pairs of floats, of the products `Σx * Σy` and `Σxy` in units of 2 to the power of [`PRODUCT_EXPONENT`].
///
/// # Errors
///
/// `NumericOutOfRange` for a result that a float does not hold.
pub fn squared_deviations(count: &BigInt, sums: &BigInt, products: &BigInt) -> Result<f64> {
    let value = nearest_quotient(&(count * products - sums), count, PRODUCT_EXPONENT);
    match value.is_finite() {
        true => Ok(value),
        false => Err(Error::new(ErrorKind::NumericOutOfRange, "value out of range: overflow")),
    }
}

/// The nearest double to `numerator * 2^exponent / denominator`; infinite if it is too great. The denominator is above zero.
pub fn nearest_quotient(numerator: &BigInt, denominator: &BigInt, exponent: i32) -> f64 {
    let is_negative = numerator.sign() == Sign::Minus;
    let (numerator, denominator) = (numerator.magnitude(), denominator.magnitude());
    if numerator.bits() == 0 {
        return 0.0;
    }
    // At least 55 bits of the quotient; the remainder decides between two halves.
    let shift = 56 + denominator.bits() as i64 - numerator.bits() as i64;
    let (raised, divisor) = match u64::try_from(shift) {
        Ok(shift) => (numerator << shift, denominator.clone()),
        Err(_) => (numerator.clone(), denominator << shift.unsigned_abs()),
    };
    let (quotient, rest) = (&raised / &divisor, &raised % &divisor);
    let unit = i64::from(exponent) - shift;
    let lowest = (quotient.bits() as i64 - 53).max(i64::from(VALUE_EXPONENT) - unit);
    let bits = u64::try_from(&quotient).unwrap_or(u64::MAX);
    // The quotient has 56 or 57 bits, so that some are always cut. More than 63 are less than half of the least number.
    let value = if lowest > 63 {
        0.0
    } else {
        let (mut digits, cut) = (bits >> lowest, bits & ((1 << lowest) - 1));
        let half = 1_u64 << (lowest - 1);
        let is_above_half = cut > half || (cut == half && rest.bits() > 0);
        digits += u64::from(is_above_half || (cut == half && digits % 2 == 1));
        scaled(digits, (unit + lowest).clamp(-2000, 2000) as i32)
    };
    if is_negative { -value } else { value }
}

/// `digits * 2^exponent`, which is exact or infinite.
pub fn scaled(digits: u64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let exponent = exponent.clamp(VALUE_EXPONENT, 1100);
    // Two steps, of which the first does not leave the normal numbers.
    let half = exponent / 2;
    digits as f64 * power(half) * power(exponent - half)
}
