//! `var_samp`, `var_pop`, `stddev_samp` and `stddev_pop` of numerics and integers from exact sums.
//!
//! Source: PostgreSQL 15, `numeric.c`, `numeric_stddev_internal` and `sqrt_var`. There are few rows here,
//! one a group, so integers of any size are used throughout.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int32Array},
    datatypes::{Int32Type, Int64Type, i256},
};
use num_bigint::{BigInt, Sign};
use pystachio_plan::Result;

use super::{
    call::Invocation,
    decimal::{Decimals, decimal_overflow, result_type, wide_array},
    lanes::{Lanes, Nullable},
    quotient::{Leading, big_from_wide, big_quotient, big_to_wide, scale_exceeded, select_scale},
};

/// `(count, sum, sum of squares, display scale)` → the variance or its root.
///
/// # Errors
///
/// `NumericOutOfRange` if the value does not fit the result's width or has more digits after the point
/// than the result's scale.
pub(super) fn variance(sample: bool, deviation: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (_, scale) = result_type(call.result)?;
    let rows = Moments::new(call)?;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let Some(Statistic { value, digits }) = rows.statistic(row, sample, deviation) else {
            values.push(None);
            continue;
        };
        let raised = u32::try_from(digits)
            .ok()
            .and_then(|digits| scale.checked_sub(digits))
            .ok_or_else(|| scale_exceeded(digits, scale))?;
        let held = value * BigInt::from(10).pow(raised);
        let held = big_to_wide(&held).ok_or_else(|| decimal_overflow(&held.to_string(), call.result))?;
        values.push(Some(held));
    }
    let nulls = values.iter().map(Option::is_some).collect::<Vec<bool>>();
    let values = values.into_iter().map(|value| value.unwrap_or(i256::ZERO)).collect();
    wide_array(Nullable { values, nulls: Some(nulls.into()) }, call.result)
}

/// The digits after the point of [`variance`] on the same arguments.
pub(super) fn variance_scale(sample: bool, deviation: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let rows = Moments::new(call)?;
    let scales: Int32Array = (0..call.rows)
        .map(|row| rows.statistic(row, sample, deviation).map(|statistic| statistic.digits))
        .collect();
    Ok(Arc::new(scales))
}

/// Counts and sums, one of each a row.
struct Moments<'a> {
    counts: Lanes<'a, i64>,
    sums: Decimals<'a>,
    sums_scale: u32,
    squares: Decimals<'a>,
    squares_scale: u32,
    displays: Lanes<'a, i32>,
}

/// A value times ten to the power of its count of digits after the point.
struct Statistic {
    value: BigInt,
    digits: i32,
}

impl<'a> Moments<'a> {
    fn new(call: &Invocation<'a>) -> Result<Self> {
        let (sums, sums_scale) = Decimals::new(call.argument(1)?)?;
        let (squares, squares_scale) = Decimals::new(call.argument(2)?)?;
        let counts = call.lanes::<Int64Type>(0)?;
        let displays = call.lanes::<Int32Type>(3)?;
        Ok(Self { counts, sums, sums_scale, squares, squares_scale, displays })
    }

    fn statistic(&self, row: usize, sample: bool, deviation: bool) -> Option<Statistic> {
        let count = self.counts.get(row)?;
        if count <= i64::from(sample) {
            return None;
        }
        let sum = big_value(&self.sums, row)?;
        let squares = big_value(&self.squares, row)?;
        let display = self.displays.get(row)?;
        // n * sum(x^2) - sum(x)^2, at the scale that both terms can have.
        let scale = self.squares_scale.max(self.sums_scale * 2);
        let raise = |value: BigInt, from: u32| value * BigInt::from(10).pow(scale - from);
        let numerator = raise(squares * count, self.squares_scale) - raise(&sum * &sum, self.sums_scale * 2);
        if numerator.sign() != Sign::Plus {
            return Some(Statistic { value: BigInt::ZERO, digits: 0 });
        }
        let denominator = BigInt::from(count) * BigInt::from(if sample { count - 1 } else { count });
        let digits = select_scale(
            Leading::of_big(&numerator, scale),
            display.saturating_mul(2),
            Leading::of_big(&denominator, 0),
            0,
        );
        let digits_power = BigInt::from(10).pow(digits.unsigned_abs());
        let value = big_quotient(&(numerator * &digits_power), &(denominator * BigInt::from(10).pow(scale)));
        if !deviation {
            return Some(Statistic { value, digits });
        }
        // One more digit than wanted, towards zero, decides the rounding: no root lies exactly between.
        let root = BigInt::sqrt(&(value * digits_power * 100_u32));
        Some(Statistic { value: big_quotient(&root, &BigInt::from(10)), digits })
    }
}

fn big_value(values: &Decimals<'_>, row: usize) -> Option<BigInt> {
    match values {
        Decimals::Narrow(lanes) => lanes.get(row).map(BigInt::from),
        Decimals::Wide(lanes) => lanes.get(row).map(big_from_wide),
    }
}
