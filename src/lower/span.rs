//! Intervals that are differences of two timestamps, as decimals of seconds, in which engines compute.
//!
//! ```text
//! extract(epoch FROM b - a)      ─►  extract(epoch FROM b) - extract(epoch FROM a)
//! avg(b - a)                     ─►  mean_span(sum of days, sum of the rest, count)
//! b - a > interval '1 hour'      ─►  extract(epoch FROM b) - extract(epoch FROM a) > 3600.000000
//! ```
//!
//! A difference has days of 24 hours and the rest of a day, both of one sign and no months, so it is a number of microseconds. PostgreSQL
//! compares intervals by such numbers, with months of 30 days.
//!
//! Deliberately absent: intervals of columns, whose days and hours are apart; sums of differences, whose hours are more than the 292 years
//! that an engine counts in nanoseconds.
//!
//! Source: PostgreSQL 15, `timestamp.c` (`timestamp_mi`, `interval_cmp_value`, `extract_interval`, `interval_part`).

use pystachio_plan::{DataType, DateField, Expression, Function, Interval, Literal, Value};

use crate::{
    Lowered, LoweredResult, Refusal, Scale,
    numeric::{Arithmetic, arithmetic, decimal_type},
};

/// Digits of a second.
const SECOND_SCALE: i32 = 6;
/// No timestamp is as many seconds from 1970.
const SECONDS_MAX: f64 = 1e13;
const SECOND_MICROSECONDS: i128 = 1_000_000;
const MINUTE_SECONDS: i128 = 60;
const HOUR_SECONDS: i128 = 3_600;
const DAY_SECONDS: i128 = 86_400;
const MONTH_DAYS: i128 = 30;

/// The seconds of an interval, by which PostgreSQL compares it.
///
/// # Errors
///
/// If it is neither a constant nor a difference of timestamps.
pub(crate) fn compared_seconds(interval: &Lowered) -> LoweredResult {
    match &interval.expression {
        Expression::Literal(Literal { value: Value::Null, .. }) => {
            let data_type = decimal_type(SECONDS_MAX, SECOND_SCALE)?;
            Ok(Lowered::plain(Expression::literal(Value::Null, data_type)))
        }
        Expression::Literal(Literal { value: Value::Interval(interval), .. }) => {
            let Interval { months, days, microseconds } = *interval;
            let days = i128::from(months) * MONTH_DAYS + i128::from(days);
            let whole = days * DAY_SECONDS * SECOND_MICROSECONDS + i128::from(microseconds);
            decimal(whole, SECOND_SCALE)
        }
        _ => seconds_between(interval),
    }
}

/// A field of a difference of timestamps; `None` if PostgreSQL computes it in another way.
///
/// # Errors
///
/// If the interval is no such difference.
pub(crate) fn field_of_difference(
    field: DateField,
    interval: &Lowered,
    is_double: bool,
) -> Result<Option<Lowered>, Refusal> {
    let seconds = seconds_between(interval)?;
    let rest = |of: i128| arithmetic(Arithmetic::Modulo, seconds.clone(), decimal(of, 0)?);
    let value = match field {
        DateField::Epoch if is_double => {
            let whole = arithmetic(Arithmetic::Subtract, seconds.clone(), rest(DAY_SECONDS)?)?;
            return Ok(Some(sum_of_doubles(rest(DAY_SECONDS)?, whole)));
        }
        DateField::Second if is_double => {
            let whole = arithmetic(Arithmetic::Subtract, rest(MINUTE_SECONDS)?, rest(1)?)?;
            return Ok(Some(sum_of_doubles(whole, rest(1)?)));
        }
        DateField::Epoch => seconds,
        DateField::Second => rest(MINUTE_SECONDS)?,
        DateField::Day => whole_quotient(seconds, DAY_SECONDS)?,
        DateField::Hour => whole_quotient(rest(DAY_SECONDS)?, HOUR_SECONDS)?,
        DateField::Minute => whole_quotient(rest(HOUR_SECONDS)?, MINUTE_SECONDS)?,
        _ => return Ok(None),
    };
    Ok(Some(if is_double { Lowered::plain(double(value)) } else { value }))
}

/// `date_part` adds the rounded seconds of a part of a day or minute to the others.
fn sum_of_doubles(a: Lowered, b: Lowered) -> Lowered {
    Lowered::plain(Expression::call(Function::Add, vec![double(a), double(b)], DataType::Float64))
}

fn double(value: Lowered) -> Expression {
    Expression::call(Function::Cast, vec![value.expression], DataType::Float64)
}

/// The days of a difference, and the seconds of the rest.
pub(crate) fn days_and_seconds(difference: &Lowered) -> Result<(Lowered, Lowered), Refusal> {
    days_and_rest(seconds_between(difference)?)
}

/// The same of the seconds of a difference.
pub(crate) fn days_and_rest(seconds: Lowered) -> Result<(Lowered, Lowered), Refusal> {
    let rest = arithmetic(Arithmetic::Modulo, seconds.clone(), decimal(DAY_SECONDS, 0)?)?;
    Ok((whole_quotient(seconds, DAY_SECONDS)?, rest))
}

/// An interval of days and seconds, or the mean of a count of intervals that sum up to them.
pub(crate) fn interval_of(days: Lowered, seconds: Lowered, count: Option<Expression>) -> LoweredResult {
    let int64 = |value: Lowered| Expression::call(Function::Cast, vec![value.expression], DataType::Int64);
    let microseconds = arithmetic(Arithmetic::Multiply, seconds, decimal(SECOND_MICROSECONDS, 0)?)?;
    let function = if count.is_some() { Function::MeanSpan } else { Function::Span };
    let arguments = [int64(days), int64(microseconds)].into_iter().chain(count).collect();
    Ok(Lowered::plain(Expression::call(function, arguments, DataType::Interval)))
}

pub(crate) fn seconds_between(interval: &Lowered) -> LoweredResult {
    let Expression::Call { function: Function::TimestampDifference, arguments, .. } = &interval.expression
    else {
        return Err(Refusal::IntervalOfRow);
    };
    let [later, earlier] = arguments.as_slice() else { return Err(Refusal::IntervalOfRow) };
    let epoch = |moment: &Expression| {
        let data_type = decimal_type(SECONDS_MAX, SECOND_SCALE)?;
        let seconds = Expression::call(Function::Extract(DateField::Epoch), vec![moment.clone()], data_type);
        Ok::<_, Refusal>(Lowered::number(seconds, Scale::Fixed(SECOND_SCALE), SECONDS_MAX))
    };
    let difference = arithmetic(Arithmetic::Subtract, epoch(later)?, epoch(earlier)?)?;
    Ok(Lowered { not_null: interval.not_null, ..difference })
}

/// A quotient without its fraction.
fn whole_quotient(dividend: Lowered, divisor: i128) -> LoweredResult {
    let data_type = decimal_type(dividend.magnitude, 0)?;
    let arguments = vec![dividend.expression, decimal(divisor, 0)?.expression];
    let quotient = Expression::call(Function::DivideWhole, arguments, data_type);
    Ok(Lowered::number(quotient, Scale::Fixed(0), dividend.magnitude))
}

/// The decimal of an unscaled number.
fn decimal(unscaled: i128, scale: i32) -> LoweredResult {
    let magnitude = unscaled.unsigned_abs() as f64 / 10_f64.powi(scale);
    let data_type = decimal_type(magnitude, scale)?;
    let literal = Expression::literal(Value::Decimal(unscaled), data_type);
    Ok(Lowered::number(literal, Scale::Fixed(scale), magnitude))
}
