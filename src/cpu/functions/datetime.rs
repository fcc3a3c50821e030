//! Functions of dates, times and timestamps. A timestamp with time zone is one in UTC.
//!
//! Source: PostgreSQL 15, `timestamp.c` (`timestamp_part_common`, `timestamp_trunc`,
//! `timestamp_pl_interval`, `timestamp_mi`, `timestamp_bin`, `float8_timestamptz`) and `date.c` (`extract_date`, `time_part_common`, `date_pli`, `date_mi`).

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::ArrayRef,
    datatypes::{
        DataType as ArrowType, Date32Type, Float64Type, Int32Type, Int64Type, IntervalMonthDayNano,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, i256,
    },
};
use pystachio_plan::{DataType, DateField, Error, ErrorKind, Result};

use super::{
    calendar::{
        CivilDate, DAY_MICROSECONDS, HOUR_MICROSECONDS, MINUTE_MICROSECONDS, SECOND_MICROSECONDS,
        date_out_of_range, day_of_week, infinite_field, is_date, is_infinite_date, is_infinite_timestamp,
        is_timestamp, iso_week, midnight, timestamp, timestamp_out_of_range, week_start,
    },
    digits::{is_narrow, narrow_array, rescale, result_type, wide_array},
    invocation::Invocation,
    lanes::{Lanes, Nullable, checked, map_lanes, timestamp_array, zip_lanes},
};

/// Seconds from 1970 to 2000, where PostgreSQL counts from.
const EPOCH_SECONDS: i64 = 10_957 * 86_400;
/// The second with which PostgreSQL's timestamps begin, 4714-11-24 BC, and the one after their last, in 294277.
const FIRST_SECOND: f64 = -2_440_588.0 * 86_400.0;
const END_SECOND: f64 = (109_203_528.0 - 2_440_588.0) * 86_400.0;
/// Nanoseconds of the unit in which an interval holds its microseconds.
const MICROSECOND_NANOSECONDS: i64 = 1_000;

/// `extract(field FROM a)`.
///
/// # Errors
///
/// `NotSupported` for a field that the type does not have and for infinite values, `NumericOutOfRange` if the
/// value does not fit.
pub(super) fn extract(field: DateField, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (values, scale) = field_values(field, call)?;
    decimal_from_integers(values, scale, call.result)
}

/// `date_part(field, a)`.
///
/// # Errors
///
/// `NotSupported` as of [`extract`].
pub(super) fn date_part(field: DateField, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (values, scale) = field_values(field, call)?;
    // A field with a fraction is in microseconds.
    let seconds = |value: i64| (value / SECOND_MICROSECONDS) as f64;
    let fraction = |value: i64| (value % SECOND_MICROSECONDS) as f64;
    let part = |value: i64| match field {
        DateField::Second => seconds(value) + fraction(value) / 1e6,
        DateField::Milliseconds => seconds(value) * 1e3 + fraction(value) / 1e3,
        DateField::Epoch if scale > 0 => value as f64 / 1e6,
        _ => value as f64,
    };
    let parts = Nullable { values: values.values.into_iter().map(part).collect(), nulls: values.nulls };
    Ok(Arc::new(parts.into_array::<Float64Type>()))
}

/// A field as integers, and the power of ten that they are multiples of the inverse of.
fn field_values(field: DateField, call: &Invocation<'_>) -> Result<(Nullable<i64>, u32)> {
    Ok(match call.arrow_type(0)? {
        ArrowType::Date32 => {
            if !field.is_of_date() {
                return Err(field.not_supported(&DataType::Date));
            }
            let lanes = call.lanes::<Date32Type>(0)?;
            let values = map(&lanes, call.rows, is_infinite_date, |days| match field {
                DateField::Epoch => i64::from(days) * (DAY_MICROSECONDS / SECOND_MICROSECONDS),
                _ => date_field(field, days.into()),
            })?;
            (values, field.scale(&DataType::Date).into())
        }
        ArrowType::Time64(_) => {
            if !field.is_of_time() {
                return Err(field.not_supported(&DataType::Time));
            }
            let lanes = call.lanes::<Time64MicrosecondType>(0)?;
            let values = map(
                &lanes,
                call.rows,
                |_| false,
                |time| match field {
                    DateField::Epoch => time,
                    _ => time_field(field, time),
                },
            )?;
            (values, field.scale(&DataType::Time).into())
        }
        ArrowType::Timestamp(..) => {
            let lanes = call.lanes::<TimestampMicrosecondType>(0)?;
            let values = map(&lanes, call.rows, is_infinite_timestamp, |timestamp| match field {
                DateField::Epoch => timestamp,
                _ if field.is_of_time() => time_field(field, timestamp.rem_euclid(DAY_MICROSECONDS)),
                _ => date_field(field, timestamp.div_euclid(DAY_MICROSECONDS)),
            })?;
            (values, field.scale(&DataType::Timestamp).into())
        }
        _ => return Err(call.not_supported("extract")),
    })
}

/// `date_trunc(field, a)`.
///
/// # Errors
///
/// `NotSupported` for a field that can't be truncated to, `DatetimeOutOfRange`.
pub(super) fn date_trunc(field: DateField, call: &Invocation<'_>) -> Result<ArrayRef> {
    if !field.is_unit() {
        return Err(field.not_supported(call.result));
    }
    let lanes = call.lanes::<TimestampMicrosecondType>(0)?;
    let values = map_lanes(
        &lanes,
        call.rows,
        |timestamp| checked(truncate(field, timestamp)),
        |_| timestamp_out_of_range(),
    )?;
    Ok(timestamp_array(values, call.result))
}

/// date + integer.
///
/// # Errors
///
/// `DatetimeOutOfRange`.
pub(super) fn add_days(call: &Invocation<'_>) -> Result<ArrayRef> {
    shift_days(call, i32::overflowing_add)
}

/// date - days.
///
/// # Errors
///
/// As of [`add_days`].
pub(super) fn subtract_days(call: &Invocation<'_>) -> Result<ArrayRef> {
    shift_days(call, i32::overflowing_sub)
}

fn shift_days(call: &Invocation<'_>, shift: impl Fn(i32, i32) -> (i32, bool)) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<Date32Type>(0)?,
        &call.lanes::<Int32Type>(1)?,
        call.rows,
        |date, days| {
            if is_infinite_date(date) {
                return (date, false);
            }
            let (sum, overflow) = shift(date, days);
            (sum, overflow || !is_date(sum.into()))
        },
        |_, _| date_out_of_range(),
    )?;
    Ok(Arc::new(values.into_array::<Date32Type>()))
}

/// date - date.
///
/// # Errors
///
/// `DatetimeOutOfRange` if one is infinite, or if the count of days does not fit, which dates of PostgreSQL's range
/// always do.
pub(super) fn days_between(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<Date32Type>(0)?,
        &call.lanes::<Date32Type>(1)?,
        call.rows,
        |a, b| {
            let (difference, overflow) = a.overflowing_sub(b);
            (difference, overflow || is_infinite_date(a) || is_infinite_date(b))
        },
        |a, b| match is_infinite_date(a) || is_infinite_date(b) {
            true => Error::new(ErrorKind::DatetimeOutOfRange, "cannot subtract infinite dates"),
            false => date_out_of_range(),
        },
    )?;
    Ok(Arc::new(values.into_array::<Int32Type>()))
}

/// timestamp + interval.
///
/// # Errors
///
/// `DatetimeOutOfRange`.
pub(super) fn add_interval(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<TimestampMicrosecondType>(0)?,
        &call.lanes::<IntervalMonthDayNanoType>(1)?,
        call.rows,
        |timestamp, interval| checked(add(timestamp, interval)),
        |_, _| timestamp_out_of_range(),
    )?;
    Ok(timestamp_array(values, call.result))
}

/// timestamp - timestamp, in days of 24 hours and the rest.
///
/// # Errors
///
/// `DatetimeOutOfRange` if one is infinite or the difference does not fit.
pub(super) fn timestamp_difference(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<TimestampMicrosecondType>(0)?,
        &call.lanes::<TimestampMicrosecondType>(1)?,
        call.rows,
        |a, b| {
            let (difference, overflow) = a.overflowing_sub(b);
            let overflow = overflow || is_infinite_timestamp(a) || is_infinite_timestamp(b);
            // 64 bits of microseconds have fewer days than 32 bits hold.
            let days = (difference / DAY_MICROSECONDS) as i32;
            let nanoseconds = difference % DAY_MICROSECONDS * MICROSECOND_NANOSECONDS;
            (IntervalMonthDayNano::new(0, days, nanoseconds), overflow)
        },
        |a, b| {
            let is_infinite = is_infinite_timestamp(a) || is_infinite_timestamp(b);
            let message =
                if is_infinite { "cannot subtract infinite timestamps" } else { "interval out of range" };
            Error::new(ErrorKind::DatetimeOutOfRange, message)
        },
    )?;
    Ok(Arc::new(values.into_array::<IntervalMonthDayNanoType>()))
}

/// The start of the stride that a timestamp is in.
///
/// # Errors
///
/// `DatetimeOutOfRange` for an infinite origin, a stride that is not above 0, and where a distance or the start does not fit.
pub(super) fn date_bin(call: &Invocation<'_>) -> Result<ArrayRef> {
    let strides = zip_lanes(
        &call.lanes::<Int64Type>(1)?,
        &call.lanes::<TimestampMicrosecondType>(2)?,
        call.rows,
        |stride, origin| (Bins { stride, origin }, false),
        |_, _| timestamp_out_of_range(),
    )?;
    let values = zip_lanes(
        &call.lanes::<TimestampMicrosecondType>(0)?,
        &Lanes::Column { values: Cow::Owned(strides.values), nulls: strides.nulls },
        call.rows,
        |timestamp, bins| checked(bins.start(timestamp).ok()),
        |timestamp, bins| {
            let message = bins.start(timestamp).err().unwrap_or_default();
            Error::new(ErrorKind::DatetimeOutOfRange, message)
        },
    )?;
    Ok(timestamp_array(values, call.result))
}

/// Strides of time, counted from an origin.
#[derive(Clone, Copy, Default)]
struct Bins {
    stride: i64,
    origin: i64,
}

impl Bins {
    /// The start of the stride that a timestamp is in, or PostgreSQL's message.
    fn start(self, timestamp: i64) -> std::result::Result<i64, &'static str> {
        let Self { stride, origin } = self;
        if is_infinite_timestamp(timestamp) {
            return Ok(timestamp);
        }
        if is_infinite_timestamp(origin) {
            return Err("origin out of range");
        }
        if stride <= 0 {
            return Err("stride must be greater than zero");
        }
        let distance = timestamp.checked_sub(origin).ok_or("interval out of range")?;
        // Both are between two timestamps.
        let rest = distance % stride;
        let start = timestamp - rest;
        match rest < 0 {
            false => Ok(start),
            true => {
                start.checked_sub(stride).filter(|start| is_timestamp(*start)).ok_or("timestamp out of range")
            }
        }
    }
}

/// The moment so many seconds after 1970 began.
///
/// # Errors
///
/// `DatetimeOutOfRange`, with the seconds.
pub(super) fn to_timestamp(call: &Invocation<'_>) -> Result<ArrayRef> {
    let lanes = call.lanes::<Float64Type>(0)?;
    let values =
        map_lanes(&lanes, call.rows, |seconds| checked(moment_of_seconds(seconds)), Error::no_moment)?;
    Ok(timestamp_array(values, call.result))
}

fn moment_of_seconds(seconds: f64) -> Option<i64> {
    if seconds.is_infinite() {
        return Some(if seconds < 0.0 { i64::MIN } else { i64::MAX });
    }
    if !(FIRST_SECOND..END_SECOND).contains(&seconds) {
        return None;
    }
    // Less than 2^63 in size.
    let since_2000 = ((seconds - EPOCH_SECONDS as f64) * SECOND_MICROSECONDS as f64).round_ties_even() as i64;
    let moment = since_2000.checked_add(EPOCH_SECONDS * SECOND_MICROSECONDS)?;
    (is_timestamp(moment) && !is_infinite_timestamp(moment)).then_some(moment)
}

fn add(start: i64, interval: IntervalMonthDayNano) -> Option<i64> {
    if is_infinite_timestamp(start) {
        return Some(start);
    }
    let mut days = start.div_euclid(DAY_MICROSECONDS);
    let time = start.rem_euclid(DAY_MICROSECONDS);
    if interval.months != 0 {
        days = CivilDate::from_days(days).add_months(interval.months.into()).to_days();
        timestamp(days, time)?;
    }
    if interval.days != 0 {
        days += i64::from(interval.days);
        timestamp(days, time)?;
    }
    let sum = timestamp(days, time)?.checked_add(interval.nanoseconds / MICROSECOND_NANOSECONDS)?;
    is_timestamp(sum).then_some(sum)
}

/// The start of the unit that a timestamp is in.
pub(super) fn truncate(field: DateField, value: i64) -> Option<i64> {
    if is_infinite_timestamp(value) {
        return Some(value);
    }
    let days = value.div_euclid(DAY_MICROSECONDS);
    let unit = match field {
        DateField::Microseconds => 1,
        DateField::Milliseconds => SECOND_MICROSECONDS / 1_000,
        DateField::Second => SECOND_MICROSECONDS,
        DateField::Minute => MINUTE_MICROSECONDS,
        DateField::Hour => HOUR_MICROSECONDS,
        DateField::Day => return midnight(days),
        DateField::Week => return midnight(week_start(days)),
        _ => return midnight(truncate_date(field, CivilDate::from_days(days)).to_days()),
    };
    // Every unit divides a day, so the timestamp need not be split; the start of a unit is never before
    // the first timestamp, which is a midnight.
    Some(value - value.rem_euclid(unit))
}

fn truncate_date(field: DateField, date: CivilDate) -> CivilDate {
    let CivilDate { year, month, .. } = date;
    let start = |year| CivilDate { year, month: 1, day: 1 };
    match field {
        DateField::Month => CivilDate { year, month, day: 1 },
        DateField::Quarter => CivilDate { year, month: (month - 1) / 3 * 3 + 1, day: 1 },
        DateField::Year => start(year),
        DateField::Decade if year > 0 => start(year / 10 * 10),
        DateField::Decade => start(-((8 - (year - 1)) / 10) * 10),
        DateField::Century if year > 0 => start((year + 99) / 100 * 100 - 99),
        DateField::Century => start(-((99 - (year - 1)) / 100) * 100 + 1),
        _ if year > 0 => start((year + 999) / 1_000 * 1_000 - 999),
        _ => start(-((999 - (year - 1)) / 1_000) * 1_000 + 1),
    }
}

/// A field of a time of day, in microseconds for the fields with a fraction.
fn time_field(field: DateField, time: i64) -> i64 {
    match field {
        DateField::Hour => time / HOUR_MICROSECONDS,
        DateField::Minute => time / MINUTE_MICROSECONDS % 60,
        _ => time % MINUTE_MICROSECONDS,
    }
}

fn date_field(field: DateField, days: i64) -> i64 {
    let date = CivilDate::from_days(days);
    let CivilDate { year, month, day } = date;
    match field {
        DateField::Day => day,
        DateField::Week => iso_week(days).1,
        DateField::Month => month,
        DateField::Quarter => (month - 1) / 3 + 1,
        DateField::Year => without_year_zero(year),
        DateField::Decade if year >= 0 => year / 10,
        DateField::Decade => -((8 - (year - 1)) / 10),
        DateField::Century if year > 0 => (year + 99) / 100,
        DateField::Century => -((99 - (year - 1)) / 100),
        DateField::Millennium if year > 0 => (year + 999) / 1_000,
        DateField::Millennium => -((999 - (year - 1)) / 1_000),
        DateField::DayOfWeek => day_of_week(days),
        DateField::IsoDayOfWeek => (day_of_week(days) + 6) % 7 + 1,
        DateField::DayOfYear => days - CivilDate { year, month: 1, day: 1 }.to_days() + 1,
        _ => without_year_zero(iso_week(days).0),
    }
}

fn without_year_zero(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

fn map<P: Copy>(
    lanes: &Lanes<'_, P>,
    rows: usize,
    is_infinite: impl Fn(P) -> bool,
    field: impl Fn(P) -> i64,
) -> Result<Nullable<i64>> {
    map_lanes(lanes, rows, |value| (field(value), is_infinite(value)), |_| infinite_field())
}

fn decimal_from_integers(values: Nullable<i64>, scale: u32, result: &DataType) -> Result<ArrayRef> {
    let (precision, result_scale) = result_type(result)?;
    let rows = values.values.len();
    let lanes = Lanes::Column { values: Cow::Owned(values.values), nulls: values.nulls };
    let fault =
        |_| Error::new(ErrorKind::NumericOutOfRange, format!("numeric value out of range for {result}"));
    if is_narrow(precision) && scale == result_scale {
        let values = map_lanes(&lanes, rows, |value: i64| (i128::from(value), false), fault)?;
        return narrow_array(values, result);
    }
    if is_narrow(precision) {
        let values = map_lanes(
            &lanes,
            rows,
            |value: i64| checked(rescale(i128::from(value), scale, result_scale)),
            fault,
        )?;
        return narrow_array(values, result);
    }
    let values = map_lanes(
        &lanes,
        rows,
        |value: i64| checked(rescale(i256::from_i128(value.into()), scale, result_scale)),
        fault,
    )?;
    wide_array(values, result)
}
