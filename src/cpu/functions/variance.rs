//! `var_samp`, `var_pop`, `stddev_samp` and `stddev_pop` of numerics and integers from exact sums, as
//! [`pystachio_engine::variance`] computes them. There are few rows here, one a group.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int32Array},
    datatypes::{Int32Type, Int64Type, i256},
};
use num_bigint::BigInt;
use pystachio_engine::variance::{Moments, VarianceForm};
use pystachio_plan::Result;

use super::{
    digits::{Decimals, big_from_wide, big_to_wide, decimal_overflow, result_type, wide_array},
    invocation::Invocation,
    lanes::{Lanes, Nullable},
};

/// `(count, sum, sum of squares, display scale)` → the variance or its root.
///
/// # Errors
///
/// `NumericOutOfRange` if the value does not fit the result's width or has more digits after the point
/// than the result's scale.
pub(super) fn variance(form: VarianceForm, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (_, scale) = result_type(call.result)?;
    let rows = Rows::new(call)?;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let Some(statistic) = rows.moments(row).and_then(|moments| moments.statistic(form)) else {
            values.push(None);
            continue;
        };
        let held = statistic.held_at(scale)?;
        let held = big_to_wide(&held).ok_or_else(|| decimal_overflow(&held.to_string(), call.result))?;
        values.push(Some(held));
    }
    let nulls = values.iter().map(Option::is_some).collect::<Vec<bool>>();
    let values = values.into_iter().map(|value| value.unwrap_or(i256::ZERO)).collect();
    wide_array(Nullable { values, nulls: Some(nulls.into()) }, call.result)
}

/// The digits after the point of [`variance`] on the same arguments.
pub(super) fn variance_scale(form: VarianceForm, call: &Invocation<'_>) -> Result<ArrayRef> {
    let rows = Rows::new(call)?;
    let scales: Int32Array =
        (0..call.rows).map(|row| rows.moments(row).and_then(|moments| moments.digits(form))).collect();
    Ok(Arc::new(scales))
}

/// Counts and sums, one of each a row.
struct Rows<'a> {
    counts: Lanes<'a, i64>,
    sums: Decimals<'a>,
    sum_scale: u32,
    squares: Decimals<'a>,
    squares_scale: u32,
    displays: Lanes<'a, i32>,
}

impl<'a> Rows<'a> {
    fn new(call: &Invocation<'a>) -> Result<Self> {
        let (sums, sum_scale) = Decimals::new(call.argument(1)?)?;
        let (squares, squares_scale) = Decimals::new(call.argument(2)?)?;
        let counts = call.lanes::<Int64Type>(0)?;
        let displays = call.lanes::<Int32Type>(3)?;
        Ok(Self { counts, sums, sum_scale, squares, squares_scale, displays })
    }

    /// The arguments of a row; `None` if one of them is NULL.
    fn moments(&self, row: usize) -> Option<Moments> {
        Some(Moments {
            count: self.counts.get(row)?,
            sum: big_value(&self.sums, row)?,
            sum_scale: self.sum_scale,
            squares: big_value(&self.squares, row)?,
            squares_scale: self.squares_scale,
            display_scale: self.displays.get(row)?,
        })
    }
}

fn big_value(values: &Decimals<'_>, row: usize) -> Option<BigInt> {
    match values {
        Decimals::Narrow(lanes) => lanes.get(row).map(BigInt::from),
        Decimals::Wide(lanes) => lanes.get(row).map(big_from_wide),
    }
}
