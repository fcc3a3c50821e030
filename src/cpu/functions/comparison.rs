//! Comparisons, and the functions that choose among values by them.
//!
//! Floats: NaN equals NaN and is greater than everything else, -0 equals 0. Intervals: a month counts 30
//! days and a day 24 hours. Decimals of different scales are compared by value.
//!
//! Source: PostgreSQL 15, `utils/float.h` and `timestamp.c`, `interval_cmp_value`.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use crate::datafusion::logical_expr::ColumnarValue;
use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray},
    buffer::{BooleanBuffer, NullBuffer},
    compute::{
        is_not_null, is_null,
        kernels::{cmp, nullif::nullif, zip::zip},
    },
    datatypes::{
        DataType as ArrowType, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, i256,
    },
};
use pystachio_plan::{Function, Result};

use super::{
    digits::{Decimals, Digits},
    invocation::Invocation,
    lanes::{Lanes, internal, test_lanes},
};
use crate::error::from_arrow;

/// Days of a month and nanoseconds of a day, as far as comparing intervals goes.
const MONTH_DAYS: i128 = 30;
const DAY_NANOSECONDS: i128 = 86_400_000_000_000;

/// One comparison a row.
///
/// # Errors
///
/// `Internal` if the arguments' types can't be compared.
pub(super) fn compare(
    function: Function,
    a: &ColumnarValue,
    b: &ColumnarValue,
    rows: usize,
) -> Result<BooleanArray> {
    let test = |ordering: Ordering| holds(function, ordering);
    let (values, nulls) = match (a.data_type(), b.data_type()) {
        (ArrowType::Float32, ArrowType::Float32) => {
            test_primitive::<Float32Type>(a, b, rows, |a, b| test(compare_floats(a.into(), b.into())))?
        }
        (ArrowType::Float64, ArrowType::Float64) => {
            test_primitive::<Float64Type>(a, b, rows, |a, b| test(compare_floats(a, b)))?
        }
        (ArrowType::Interval(_), ArrowType::Interval(_)) => {
            test_primitive::<IntervalMonthDayNanoType>(a, b, rows, |a, b| {
                test(interval_length(a).cmp(&interval_length(b)))
            })?
        }
        (
            ArrowType::Decimal128(..) | ArrowType::Decimal256(..),
            ArrowType::Decimal128(..) | ArrowType::Decimal256(..),
        ) => test_decimals(a, b, rows, test)?,
        _ => return compare_same_type(function, a, b, rows),
    };
    Ok(match function {
        Function::IsDistinctFrom | Function::IsNotDistinctFrom => distinct(function, a, b, rows, &values)?,
        _ => BooleanArray::new(values, nulls),
    })
}

/// The first argument, or NULL where the second is true.
pub(super) fn null_where(call: &Invocation<'_>) -> Result<ArrayRef> {
    let condition = call.array(1)?;
    nullif(&call.array(0)?, condition.as_boolean()).map_err(|error| from_arrow(&error))
}

/// The greatest or the least argument, without NULLs; the first of equals.
pub(super) fn choose(greatest: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let replaces = if greatest { Function::Greater } else { Function::Less };
    let mut chosen = call.array(0)?;
    for index in 1..call.arguments().len() {
        let next = call.array(index)?;
        let (a, b) = (ColumnarValue::Array(Arc::clone(&next)), ColumnarValue::Array(Arc::clone(&chosen)));
        let better = compare(replaces, &a, &b, call.rows)?;
        let better = is_true(&better);
        // Against NULL the comparison is NULL: take what there is.
        let empty = is_null(&chosen).map_err(|error| from_arrow(&error))?;
        let take = BooleanArray::new(better.values() | empty.values(), None);
        chosen = zip(&take, &next, &chosen).map_err(|error| from_arrow(&error))?;
    }
    Ok(chosen)
}

/// The first argument that is not NULL.
pub(super) fn coalesce(call: &Invocation<'_>) -> Result<ArrayRef> {
    let mut chosen = call.array(0)?;
    for index in 1..call.arguments().len() {
        if chosen.null_count() == 0 {
            break;
        }
        let present = is_not_null(&chosen).map_err(|error| from_arrow(&error))?;
        chosen = match call.argument(index)? {
            ColumnarValue::Array(next) => zip(&present, &chosen, next),
            ColumnarValue::Scalar(next) => {
                zip(&present, &chosen, &next.to_scalar().map_err(|error| internal(&error))?)
            }
        }
        .map_err(|error| from_arrow(&error))?;
    }
    Ok(chosen)
}

fn holds(function: Function, ordering: Ordering) -> bool {
    match function {
        Function::Equal | Function::IsNotDistinctFrom => ordering.is_eq(),
        Function::NotEqual | Function::IsDistinctFrom => ordering.is_ne(),
        Function::Less => ordering.is_lt(),
        Function::LessEqual => ordering.is_le(),
        Function::Greater => ordering.is_gt(),
        _ => ordering.is_ge(),
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn interval_length(value: IntervalMonthDayNano) -> i128 {
    let days = i128::from(value.months) * MONTH_DAYS + i128::from(value.days);
    days * DAY_NANOSECONDS + i128::from(value.nanoseconds)
}

fn test_primitive<P: ArrowPrimitiveType>(
    a: &ColumnarValue,
    b: &ColumnarValue,
    rows: usize,
    test: impl Fn(P::Native, P::Native) -> bool,
) -> Result<(BooleanBuffer, Option<NullBuffer>)> {
    Ok(test_lanes(&Lanes::primitive::<P>(a)?, &Lanes::primitive::<P>(b)?, rows, test))
}

fn test_decimals(
    a: &ColumnarValue,
    b: &ColumnarValue,
    rows: usize,
    test: impl Fn(Ordering) -> bool,
) -> Result<(BooleanBuffer, Option<NullBuffer>)> {
    let (a, a_scale) = Decimals::new(a)?;
    let (b, b_scale) = Decimals::new(b)?;
    Ok(match (&a, &b) {
        (Decimals::Narrow(a), Decimals::Narrow(b)) if a_scale == b_scale => {
            test_lanes(a, b, rows, |a, b| test(a.cmp(&b)))
        }
        (Decimals::Narrow(a), Decimals::Narrow(b)) => {
            test_lanes(a, b, rows, |a, b| test(compare_scaled(a, a_scale, b, b_scale)))
        }
        _ => test_lanes(&a.widen(), &b.widen(), rows, |a: i256, b| {
            test(compare_scaled(a, a_scale, b, b_scale))
        }),
    })
}

fn compare_scaled<D: Digits>(a: D, a_scale: u32, b: D, b_scale: u32) -> Ordering {
    let raise = |value: D, by: u32| match D::power_of_ten(by) {
        Some(power) => value.multiply(power),
        None => (value, value != D::ZERO),
    };
    // A value that does not fit after raising is further from zero than any that does.
    if a_scale < b_scale {
        match raise(a, b_scale - a_scale) {
            (a, false) => a.cmp(&b),
            _ => a.cmp(&D::ZERO),
        }
    } else {
        match raise(b, a_scale - b_scale) {
            (b, false) => a.cmp(&b),
            _ => D::ZERO.cmp(&b),
        }
    }
}

fn compare_same_type(
    function: Function,
    a: &ColumnarValue,
    b: &ColumnarValue,
    rows: usize,
) -> Result<BooleanArray> {
    let (a, b) = (array(a, rows)?, array(b, rows)?);
    match function {
        Function::Equal => cmp::eq(&a, &b),
        Function::NotEqual => cmp::neq(&a, &b),
        Function::Less => cmp::lt(&a, &b),
        Function::LessEqual => cmp::lt_eq(&a, &b),
        Function::Greater => cmp::gt(&a, &b),
        Function::GreaterEqual => cmp::gt_eq(&a, &b),
        Function::IsDistinctFrom => cmp::distinct(&a, &b),
        _ => cmp::not_distinct(&a, &b),
    }
    .map_err(|error| from_arrow(&error))
}

/// `values` where neither side is NULL; two NULLs are not distinct.
fn distinct(
    function: Function,
    a: &ColumnarValue,
    b: &ColumnarValue,
    rows: usize,
    values: &BooleanBuffer,
) -> Result<BooleanArray> {
    let validity = |value: &ColumnarValue| -> Result<BooleanBuffer> {
        let array = array(value, rows)?;
        Ok(array.nulls().map_or_else(|| BooleanBuffer::new_set(rows), |nulls| nulls.inner().clone()))
    };
    let (a, b) = (validity(a)?, validity(b)?);
    let one_null = &a ^ &b;
    let both = &a & &b;
    let decided = values & &both;
    Ok(BooleanArray::new(
        if function == Function::IsDistinctFrom {
            &decided | &one_null
        } else {
            let both_null = !&(&a | &b);
            &decided | &both_null
        },
        None,
    ))
}

fn is_true(values: &BooleanArray) -> Cow<'_, BooleanArray> {
    match values.nulls() {
        Some(nulls) => Cow::Owned(BooleanArray::new(values.values() & nulls.inner(), None)),
        None => Cow::Borrowed(values),
    }
}

fn array(value: &ColumnarValue, rows: usize) -> Result<ArrayRef> {
    value.to_array(rows).map_err(|error| internal(&error))
}
