//! Dates and times made of numbers, moved by intervals, and the interval between two timestamps.
//!
//! Source: PostgreSQL 15, `date.c` (`make_date`, `make_time`, `float_time_overflows`, `datetime_timestamp`, `time_pl_interval`) and
//! `timestamp.c` (`make_timestamp_internal`, `timestamp_age`, `interval_div`).

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Date32Array},
    datatypes::{
        DataType as ArrowType, Date32Type, Float64Type, Int32Type, Int64Type, IntervalMonthDayNano,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use pystachio_plan::{Error, ErrorKind, Justified, Result, general_text};

use super::{
    calendar::{
        CivilDate, DAY_MICROSECONDS, HOUR_MICROSECONDS, MINUTE_MICROSECONDS, SECOND_MICROSECONDS,
        infinite_field, is_date, is_infinite_date, is_infinite_timestamp, is_timestamp, midnight, timestamp,
        timestamp_out_of_range,
    },
    invocation::Invocation,
    lanes::{Lanes, timestamp_array, zip_lanes},
};

/// Digits with which C prints a number by default.
const GENERAL_DIGITS: usize = 6;
/// The first day that PostgreSQL's timestamps have no moment of, and that 64 bits of microseconds since 1970 do not reach.
const MAKEABLE_DAYS_END: i64 = 106_762_940;

fn refused(message: String) -> Error {
    Error::new(ErrorKind::DatetimeOutOfRange, message)
}

/// `make_date`.
///
/// # Errors
///
/// `DatetimeOutOfRange` for numbers that make no date.
pub(super) fn make_date(call: &Invocation<'_>) -> Result<ArrayRef> {
    let [years, months, days] =
        [call.lanes::<Int32Type>(0)?, call.lanes::<Int32Type>(1)?, call.lanes::<Int32Type>(2)?];
    let of_row = |row| {
        let (Some(year), Some(month), Some(day)) = (years.get(row), months.get(row), days.get(row)) else {
            return Ok(None);
        };
        date_of(year, month, day).map(Some)
    };
    Ok(Arc::new((0..call.rows).map(of_row).collect::<Result<Date32Array>>()?))
}

fn date_of(year: i32, month: i32, day: i32) -> Result<i32> {
    // PostgreSQL's own calendar has a year 0, which an error prints once a year before Christ is in it.
    let known =
        if year < 0 { year.checked_add(1).filter(|_| year != i32::MIN).unwrap_or(year) } else { year };
    let shown = format!("{known}-{month:02}-{day:02}");
    let date = CivilDate::of_numbers(year, month, day)
        .ok_or_else(|| refused(format!("date field value out of range: {shown}")))?;
    let days =
        Some(date).filter(|date| date.is_counted()).map(CivilDate::to_days).filter(|days| is_date(*days));
    let days = days.and_then(|days| i32::try_from(days).ok());
    days.ok_or_else(|| refused(format!("date out of range: {shown}")))
}

/// The microseconds of a time; `None` if there is none.
fn time_of(hour: i32, minute: i32, second: f64) -> Option<i64> {
    let microseconds = (second * SECOND_MICROSECONDS as f64).round_ties_even();
    let is_second = (0.0..=MINUTE_MICROSECONDS as f64).contains(&microseconds);
    if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !is_second {
        return None;
    }
    let whole = i64::from(hour) * HOUR_MICROSECONDS + i64::from(minute) * MINUTE_MICROSECONDS;
    // In range, so that the conversion is exact.
    Some(whole + microseconds as i64).filter(|time| *time <= DAY_MICROSECONDS)
}

/// A time as errors print it.
fn shown_time(hour: i32, minute: i32, second: f64) -> String {
    let second = general_text(second, GENERAL_DIGITS);
    let (sign, digits) = second.strip_prefix('-').map_or(("", second.as_str()), |digits| ("-", digits));
    let width = 2_usize.saturating_sub(sign.len());
    format!("{hour}:{minute:02}:{sign}{digits:0>width$}")
}

/// `make_time`.
///
/// # Errors
///
/// `DatetimeOutOfRange` for numbers that make no time.
pub(super) fn make_time(call: &Invocation<'_>) -> Result<ArrayRef> {
    let [hours, minutes] = [call.lanes::<Int32Type>(0)?, call.lanes::<Int32Type>(1)?];
    let seconds = call.lanes::<Float64Type>(2)?;
    let of_row = |row| {
        let (Some(hour), Some(minute), Some(second)) = (hours.get(row), minutes.get(row), seconds.get(row))
        else {
            return Ok(None);
        };
        let shown =
            || refused(format!("time field value out of range: {}", shown_time(hour, minute, second)));
        time_of(hour, minute, second).ok_or_else(shown).map(Some)
    };
    Ok(Arc::new((0..call.rows).map(of_row).collect::<Result<arrow::array::Time64MicrosecondArray>>()?))
}

/// `make_timestamp`.
///
/// # Errors
///
/// `DatetimeOutOfRange` for numbers that make no timestamp; `NotSupported` for one that 64 bits do not hold.
pub(super) fn make_timestamp(call: &Invocation<'_>) -> Result<ArrayRef> {
    let numbers = (0..5).map(|place| call.lanes::<Int32Type>(place)).collect::<Result<Vec<_>>>()?;
    let seconds = call.lanes::<Float64Type>(5)?;
    let of_row = |row| {
        let numbers: Option<Vec<i32>> = numbers.iter().map(|lanes: &Lanes<'_, i32>| lanes.get(row)).collect();
        match (numbers.as_deref(), seconds.get(row)) {
            (Some(&[year, month, day, hour, minute]), Some(second)) => {
                timestamp_of((year, month, day), (hour, minute, second)).map(Some)
            }
            _ => Ok(None),
        }
    };
    let values = (0..call.rows).map(of_row).collect::<Result<arrow::array::TimestampMicrosecondArray>>()?;
    Ok(Arc::new(values))
}

fn timestamp_of((year, month, day): (i32, i32, i32), (hour, minute, second): (i32, i32, f64)) -> Result<i64> {
    let shown = format!("{year}-{month:02}-{day:02}");
    let date = CivilDate::of_numbers(year, month, day)
        .ok_or_else(|| refused(format!("date field value out of range: {shown}")))?;
    if !date.is_counted() {
        return Err(refused(format!("date out of range: {shown}")));
    }
    let shown_time = shown_time(hour, minute, second);
    let time = time_of(hour, minute, second)
        .ok_or_else(|| refused(format!("time field value out of range: {shown_time}")))?;
    let days = date.to_days();
    timestamp(days, time).ok_or_else(|| {
        if (0..MAKEABLE_DAYS_END).contains(&days) {
            return Error::new(
                ErrorKind::NotSupported,
                "timestamps after the year 294246 are not supported here",
            )
            .with_hint("SET pystachio.pushdown = off lets PostgreSQL compute them.");
        }
        refused(format!("timestamp out of range: {shown} {shown_time}"))
    })
}

/// `make_interval`.
///
/// # Errors
///
/// `DatetimeOutOfRange` for seconds that are no number or infinite; `NotSupported` for an interval that engines do not hold.
pub(super) fn make_interval(call: &Invocation<'_>) -> Result<ArrayRef> {
    let numbers = (0..6).map(|place| call.lanes::<Int32Type>(place)).collect::<Result<Vec<_>>>()?;
    let seconds = call.lanes::<Float64Type>(6)?;
    let of_row = |row| {
        let numbers: Option<Vec<i32>> = numbers.iter().map(|lanes: &Lanes<'_, i32>| lanes.get(row)).collect();
        let (Some(numbers), Some(second)) = (numbers, seconds.get(row)) else { return Ok(None) };
        if !second.is_finite() {
            return Err(refused("interval out of range".to_owned()));
        }
        interval_of(&numbers, second).map(Some).ok_or_else(|| {
            let message = "intervals of more than 2147483647 months or days, or 292 years of hours, minutes and seconds, are not supported here";
            Error::new(ErrorKind::NotSupported, message)
                .with_hint("SET pystachio.pushdown = off lets PostgreSQL compute them.")
        })
    };
    let values = (0..call.rows).map(of_row).collect::<Result<arrow::array::IntervalMonthDayNanoArray>>()?;
    Ok(Arc::new(values))
}

/// The interval of days and microseconds.
///
/// # Errors
///
/// `DatetimeOutOfRange` for what an interval does not hold.
pub(super) fn span(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<Int64Type>(0)?,
        &call.lanes::<Int64Type>(1)?,
        call.rows,
        |days, microseconds| match days_and_time(days, microseconds) {
            Some(interval) => (interval, false),
            None => (IntervalMonthDayNano::ZERO, true),
        },
        |_, _| refused("interval out of range".to_owned()),
    )?;
    Ok(Arc::new(values.into_array::<IntervalMonthDayNanoType>()))
}

/// The mean of intervals, of whose days and microseconds there are the sums.
///
/// # Errors
///
/// `DatetimeOutOfRange` for what an interval does not hold, `DivisionByZero` for none.
///
/// Source: PostgreSQL 15, `timestamp.c` (`interval_avg`, `interval_div`).
pub(super) fn mean_span(call: &Invocation<'_>) -> Result<ArrayRef> {
    let [days, microseconds, counts] =
        [call.lanes::<Int64Type>(0)?, call.lanes::<Int64Type>(1)?, call.lanes::<Int64Type>(2)?];
    let of_row = |row| {
        let (Some(days), Some(microseconds), Some(count)) =
            (days.get(row), microseconds.get(row), counts.get(row))
        else {
            return Ok(None);
        };
        if count == 0 {
            return Err(Error::new(ErrorKind::DivisionByZero, "division by zero"));
        }
        let mean = mean_of(days, microseconds, count as f64);
        mean.map(Some).ok_or_else(|| refused("interval out of range".to_owned()))
    };
    let values = (0..call.rows).map(of_row).collect::<Result<arrow::array::IntervalMonthDayNanoArray>>()?;
    Ok(Arc::new(values))
}

/// Divides days and microseconds. The fraction of a day becomes seconds, rounded to microseconds.
fn mean_of(days: i64, microseconds: i64, factor: f64) -> Option<IntervalMonthDayNano> {
    const DAY_SECONDS: f64 = 86_400.0;
    let second = SECOND_MICROSECONDS as f64;
    let quotient = i32::try_from(days).ok().map(f64::from)? / factor;
    let mut whole = quotient.trunc();
    let mut rest = ((quotient - whole) * DAY_SECONDS * second).round_ties_even() / second;
    if rest.abs() >= DAY_SECONDS {
        whole += (rest / DAY_SECONDS).trunc();
        rest -= (rest / DAY_SECONDS).trunc() * DAY_SECONDS;
    }
    let time = (microseconds as f64 / factor + rest * second).round_ties_even();
    days_and_time(whole as i64, time as i64)
}

fn days_and_time(days: i64, microseconds: i64) -> Option<IntervalMonthDayNano> {
    let days = i32::try_from(days).ok()?;
    Some(IntervalMonthDayNano::new(0, days, microseconds.checked_mul(NANOSECONDS)?))
}

/// An interval of years, months, weeks, days, hours and minutes, and of seconds; `None` if it does not fit.
fn interval_of(numbers: &[i32], second: f64) -> Option<IntervalMonthDayNano> {
    let &[years, months, weeks, days, hours, minutes] = numbers else { return None };
    let microseconds = (second * SECOND_MICROSECONDS as f64).round_ties_even();
    // The conversion stops at what 64 bits hold, and nanoseconds do not reach so far.
    let time = i64::from(hours) * HOUR_MICROSECONDS + i64::from(minutes) * MINUTE_MICROSECONDS;
    let time = time.checked_add(microseconds as i64)?.checked_mul(NANOSECONDS)?;
    let months = years.checked_mul(12)?.checked_add(months)?;
    Some(IntervalMonthDayNano::new(months, weeks.checked_mul(7)?.checked_add(days)?, time))
}

/// `isfinite`.
pub(super) fn is_finite(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let finite = match call.arrow_type(0)? {
        ArrowType::Date32 => {
            BooleanArray::from_unary(array.as_primitive::<Date32Type>(), |days| !is_infinite_date(days))
        }
        ArrowType::Timestamp(..) => {
            BooleanArray::from_unary(array.as_primitive::<TimestampMicrosecondType>(), |value| {
                !is_infinite_timestamp(value)
            })
        }
        _ => return Err(call.not_supported("isfinite")),
    };
    Ok(Arc::new(finite))
}

/// `age`.
///
/// # Errors
///
/// `NotSupported` of infinite timestamps.
pub(super) fn age(call: &Invocation<'_>) -> Result<ArrayRef> {
    let [a, b] = [call.lanes::<TimestampMicrosecondType>(0)?, call.lanes::<TimestampMicrosecondType>(1)?];
    let is_before = if call.arguments().len() > 2 { Some(call.array(2)?) } else { None };
    let is_before = is_before.as_ref().and_then(|array| array.as_boolean_opt());
    let of_row = |row| {
        let (Some(a), Some(b)) = (a.get(row), b.get(row)) else { return Ok(None) };
        let is_before = match is_before {
            Some(is_before) => is_before.is_valid(row).then(|| is_before.value(row)),
            None => Some(a < b),
        };
        let Some(is_before) = is_before else { return Ok(None) };
        if is_infinite_timestamp(a) || is_infinite_timestamp(b) {
            return Err(infinite_field());
        }
        Ok(Some(age_of(a, b, is_before)))
    };
    let values = (0..call.rows).map(of_row).collect::<Result<arrow::array::IntervalMonthDayNanoArray>>()?;
    Ok(Arc::new(values))
}

/// `justify_hours`, `justify_days` and `justify_interval`.
///
/// # Errors
///
/// `DatetimeOutOfRange` if the days or months do not fit.
pub(super) fn justify(units: Justified, call: &Invocation<'_>) -> Result<ArrayRef> {
    let intervals = call.lanes::<IntervalMonthDayNanoType>(0)?;
    let out_of_range = || Error::new(ErrorKind::DatetimeOutOfRange, "interval out of range");
    let of_row = |row| {
        intervals.get(row).map(|interval| justified(units, interval).ok_or_else(out_of_range)).transpose()
    };
    let values = (0..call.rows).map(of_row).collect::<Result<arrow::array::IntervalMonthDayNanoArray>>()?;
    Ok(Arc::new(values))
}

/// An interval of whole units; `None` if they do not fit.
fn justified(units: Justified, interval: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    const MONTH_DAYS: i32 = 30;
    const DAY_NANOSECONDS: i64 = DAY_MICROSECONDS * 1_000;
    let IntervalMonthDayNano { mut months, mut days, nanoseconds: mut time } = interval;
    let has_one_sign = (days > 0 && time > 0) || (days < 0 && time < 0);
    if units == Justified::All && has_one_sign {
        months = months.checked_add(days / MONTH_DAYS)?;
        days %= MONTH_DAYS;
    }
    if units != Justified::Days {
        days = days.checked_add((time / DAY_NANOSECONDS) as i32)?;
        time %= DAY_NANOSECONDS;
    }
    if units != Justified::Hours {
        months = months.checked_add(days / MONTH_DAYS)?;
        days %= MONTH_DAYS;
        // Of the days alone, or of the days and the time behind them.
        let rest = match units {
            Justified::All if days == 0 => time.signum(),
            _ => i64::from(days.signum()),
        };
        if months > 0 && rest < 0 {
            (months, days) = (months - 1, days + MONTH_DAYS);
        } else if months < 0 && rest > 0 {
            (months, days) = (months + 1, days - MONTH_DAYS);
        }
    }
    if units != Justified::Days {
        if days > 0 && time < 0 {
            (days, time) = (days - 1, time + DAY_NANOSECONDS);
        } else if days < 0 && time > 0 {
            (days, time) = (days + 1, time - DAY_NANOSECONDS);
        }
    }
    Some(IntervalMonthDayNano::new(months, days, time))
}

/// The difference, field by field. A negative one is that of the opposite signs.
fn age_of(a: i64, b: i64, is_before: bool) -> IntervalMonthDayNano {
    let split = |timestamp: i64| {
        let date = CivilDate::from_days(timestamp.div_euclid(DAY_MICROSECONDS));
        (date, timestamp.rem_euclid(DAY_MICROSECONDS))
    };
    let ((date_a, time_a), (date_b, time_b)) = (split(a), split(b));
    let sign = if is_before { -1 } else { 1 };
    let mut time = sign * (time_a - time_b);
    let mut days = sign * (date_a.day - date_b.day);
    let mut months = sign * ((date_a.year - date_b.year) * 12 + date_a.month - date_b.month);
    if time < 0 {
        time += DAY_MICROSECONDS;
        days -= 1;
    }
    let borrowed = if is_before { date_a } else { date_b };
    while days < 0 {
        days += borrowed.month_length();
        months -= 1;
    }
    // Timestamps are fewer years apart than 32 bits of months hold.
    let (months, days) = ((sign * months) as i32, (sign * days) as i32);
    IntervalMonthDayNano::new(months, days, sign * time * NANOSECONDS)
}

/// Nanoseconds of the unit in which an interval holds its microseconds.
const NANOSECONDS: i64 = 1_000;

/// date + time.
///
/// # Errors
///
/// `DatetimeOutOfRange` for a date of which there is no timestamp.
pub(super) fn add_time(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<Date32Type>(0)?,
        &call.lanes::<Time64MicrosecondType>(1)?,
        call.rows,
        |days, time| match days {
            i32::MIN => (i64::MIN, false),
            i32::MAX => (i64::MAX, false),
            _ => {
                let sum = midnight(days.into()).and_then(|start| start.checked_add(time));
                sum.filter(|sum| is_timestamp(*sum)).map_or((0, true), |sum| (sum, false))
            }
        },
        |days, _| match midnight(days.into()) {
            None => refused("date out of range for timestamp".to_owned()),
            Some(_) => timestamp_out_of_range(),
        },
    )?;
    Ok(timestamp_array(values, call.result))
}

/// time + interval.
pub(super) fn turn_time(call: &Invocation<'_>) -> Result<ArrayRef> {
    let values = zip_lanes(
        &call.lanes::<Time64MicrosecondType>(0)?,
        &call.lanes::<IntervalMonthDayNanoType>(1)?,
        call.rows,
        |time, interval| {
            let later = interval.nanoseconds / NANOSECONDS % DAY_MICROSECONDS;
            ((time + later).rem_euclid(DAY_MICROSECONDS), false)
        },
        |_, _| Error::internal("turning a time has failed"),
    )?;
    Ok(Arc::new(values.into_array::<Time64MicrosecondType>()))
}
