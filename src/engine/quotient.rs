//! PostgreSQL's choice of digits for a quotient and for a square root, over integers of any size.
//!
//! PostgreSQL's digits are groups of four decimal digits aligned at the point; its weight is the place of the first
//! group that is not zero, 0 for the one before the point.
//!
//! Source: PostgreSQL 15, `numeric.c`, `select_div_scale` and `div_var`.

use num_bigint::{BigInt, Sign};

/// Digits in one of PostgreSQL's groups.
const GROUP_DIGITS: i64 = 4;
/// The least count of significant digits of a quotient.
const SIGNIFICANT_DIGITS_MIN: i64 = 16;
/// The most digits after the point that PostgreSQL displays.
const DISPLAY_SCALE_MAX: i64 = 1000;

/// PostgreSQL's digits after the point of a quotient of two numbers with these display scales.
pub fn select_scale(a: Leading, a_display: i32, b: Leading, b_display: i32) -> i32 {
    let mut weight = a.weight - b.weight;
    if a.group <= b.group {
        weight -= 1;
    }
    let scale = (SIGNIFICANT_DIGITS_MIN - weight * GROUP_DIGITS)
        .max(a_display.into())
        .max(b_display.into())
        .clamp(0, DISPLAY_SCALE_MAX);
    // At most DISPLAY_SCALE_MAX.
    scale as i32
}

/// PostgreSQL's digits after the point of the square root of a number with this display scale.
///
/// Source: PostgreSQL 15, `numeric.c`, `numeric_sqrt`.
pub fn select_root_scale(a: Leading, a_display: i32) -> i32 {
    // Places before the point of the root's first group.
    let places = (a.weight + 1) * GROUP_DIGITS / 2 - 1;
    let scale = (SIGNIFICANT_DIGITS_MIN - places).max(a_display.into()).clamp(0, DISPLAY_SCALE_MAX);
    // At most DISPLAY_SCALE_MAX.
    scale as i32
}

/// The first group of digits that is not zero, and its place. Zero has group 0 at place 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leading {
    weight: i64,
    group: i64,
}

impl Leading {
    /// Of an integer of any size times ten to the power of minus `scale`.
    pub fn of_big(value: &BigInt, scale: u32) -> Self {
        if let Ok(value) = i128::try_from(value) {
            let Some(last_place) = value.unsigned_abs().checked_ilog10() else { return Self::default() };
            return Self::locate(i64::from(last_place) + 1, scale, |dropped| {
                (value / 10_i128.checked_pow(dropped)?).try_into().ok()
            });
        }
        let digits = value.magnitude().to_string();
        let digit_count = digits.len() as i64;
        Self::locate(digit_count, scale, |dropped| {
            digits.get(..digits.len().saturating_sub(dropped as usize))?.parse().ok()
        })
    }

    /// Of a number that is not zero and has so many digits; `without_last` gives its digits but the last few.
    pub fn locate(digit_count: i64, scale: u32, without_last: impl Fn(u32) -> Option<i64>) -> Self {
        let weight = (digit_count - 1 - i64::from(scale)).div_euclid(GROUP_DIGITS);
        // The group ends at this place of the digits, counted from the last one.
        let dropped = i64::from(scale) + weight * GROUP_DIGITS;
        let kept = without_last(u32::try_from(dropped).unwrap_or(0)).unwrap_or(0).abs();
        let raised = u32::try_from(-dropped).unwrap_or(0);
        Self { weight, group: kept * 10_i64.pow(raised.min(GROUP_DIGITS as u32)) }
    }
}

/// The quotient rounded half away from zero; the divisor is not zero.
pub fn big_quotient(a: &BigInt, b: &BigInt) -> BigInt {
    let negative = (a.sign() == Sign::Minus) != (b.sign() == Sign::Minus);
    let (a, b) = (a.magnitude(), b.magnitude());
    let quotient = BigInt::from((a * 2_u32 + b) / (b * 2_u32));
    if negative { -quotient } else { quotient }
}
