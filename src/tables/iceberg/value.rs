//! Single values, in the forms that metadata have them, and what partition values say of columns.
//!
//! - Bounds of floats are not believed: Iceberg leaves NaN out, which PostgreSQL sorts above all others.
//! - The least integers cut off overflow in writers: a number so near the greatest one that it may be theirs bounds nothing.
//! - Early writers rounded times before 1970 towards zero: the bounds of years, months, days and hours from 0 down are widened.

use pystachio_plan::{DataType, Value};
use serde_json::Value as Json;

use super::avro::Datum;
use crate::{
    ValueBounds,
    value_text::{date_text, decimal_text, time_text, timestamp_text},
};

const DAY_US: i64 = 86_400_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// A bound in its binary form; `None` if it is not believed.
pub(super) fn bound(bytes: &[u8], data_type: &DataType) -> Option<Value> {
    let integer = || match bytes.len() {
        4 => bytes.try_into().ok().map(i32::from_le_bytes).map(i64::from),
        8 => bytes.try_into().ok().map(i64::from_le_bytes),
        _ => None,
    };
    Some(match data_type {
        DataType::Bool => Value::Bool(*bytes.first()? != 0),
        DataType::Int32 | DataType::Int64 | DataType::Date | DataType::Time => Value::Int(integer()?),
        // A date that became a time since.
        DataType::Timestamp if bytes.len() == 4 => Value::Int(integer()?.checked_mul(DAY_US)?),
        DataType::Timestamp | DataType::TimestampTz => Value::Int(integer()?),
        DataType::Decimal { .. } => Value::Decimal(unscaled(bytes)?),
        DataType::Text => Value::Text(std::str::from_utf8(bytes).ok()?.to_owned()),
        _ => return None,
    })
}

/// A number as many bytes have it, the greatest first.
fn unscaled(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let mut all = [if first & 0x80 == 0 { 0 } else { 0xFF }; 16];
    let start = all.len().checked_sub(bytes.len())?;
    all[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(all))
}

/// The value of an identity partition; `None` if it is none of the type.
fn identity(datum: &Datum, data_type: &DataType) -> Option<Value> {
    Some(match (datum, data_type) {
        (Datum::Null, _) => Value::Null,
        (Datum::Boolean(flag), DataType::Bool) => Value::Bool(*flag),
        (Datum::Long(number), DataType::Int32 | DataType::Int64 | DataType::Date | DataType::Time) => {
            Value::Int(*number)
        }
        (Datum::Long(number), DataType::Timestamp | DataType::TimestampTz) => Value::Int(*number),
        (Datum::Double(number), DataType::Float32 | DataType::Float64) => Value::Float(*number),
        (Datum::Bytes(bytes), DataType::Decimal { .. }) => Value::Decimal(unscaled(bytes)?),
        (Datum::Bytes(_), DataType::Text) => Value::Text(datum.text()?.to_owned()),
        (Datum::Bytes(bytes), DataType::Bytea | DataType::Uuid) => Value::Bytes(bytes.clone()),
        _ => return None,
    })
}

/// The text of an identity partition's value: nothing if it can't be told, NULL, or a text.
#[expect(clippy::option_option, reason = "a value that is NULL is not one that can't be told")]
pub(super) fn identity_text(datum: &Datum, data_type: &DataType) -> Option<Option<String>> {
    match identity(datum, data_type)? {
        Value::Null => Some(None),
        value => text(&value, data_type).map(Some),
    }
}

/// A value as `parse` reads it.
fn text(value: &Value, data_type: &DataType) -> Option<String> {
    Some(match (value, data_type) {
        (Value::Bool(flag), _) => flag.to_string(),
        (Value::Int(days), DataType::Date) => date_text(*days),
        (Value::Int(microseconds), DataType::Time) => time_text(*microseconds),
        (Value::Int(microseconds), DataType::Timestamp) => timestamp_text(*microseconds),
        (Value::Int(microseconds), DataType::TimestampTz) => format!("{}Z", timestamp_text(*microseconds)),
        (Value::Int(number), _) => number.to_string(),
        (Value::Float(number), DataType::Float32) => (*number as f32).to_string(),
        (Value::Float(number), _) => number.to_string(),
        (Value::Decimal(number), DataType::Decimal { scale, .. }) => decimal_text(*number, *scale),
        (Value::Text(text), _) => text.clone(),
        (Value::Bytes(bytes), _) => hex_text(bytes),
        _ => return None,
    })
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// A default of a schema as `parse` reads it.
pub(super) fn default_text(value: &Json, data_type: &DataType) -> Option<String> {
    let text = match (value, data_type) {
        (Json::String(text), DataType::Bytea) => format!("\\x{text}"),
        (Json::String(text), _) => text.clone(),
        (Json::Bool(_) | Json::Number(_), _) => value.to_string(),
        _ => return None,
    };
    crate::parse(&text, data_type).is_some().then_some(text)
}

/// What a partition's value says of the column that it was computed from. `row_count`: the rows of the file.
pub(super) fn partition_bounds(
    transform: &str,
    datum: &Datum,
    data_type: &DataType,
    row_count: Option<u64>,
) -> ValueBounds {
    let known = transform == "identity"
        || ["year", "month", "day", "hour"].contains(&transform)
        || ["truncate[", "bucket["].iter().any(|start| transform.starts_with(start));
    if !known {
        return ValueBounds::default();
    }
    // These transforms make NULL of NULL, and of nothing else.
    if datum.is_null() {
        return ValueBounds { null_count: row_count, ..ValueBounds::default() };
    }
    let (minimum, maximum) = match transform {
        "identity" => match identity(datum, data_type) {
            Some(value) if !matches!(value, Value::Float(_) | Value::Bytes(_)) => {
                (Some(value.clone()), Some(value))
            }
            _ => (None, None),
        },
        _ => match datum {
            Datum::Bytes(_) => (truncated(datum, data_type), None),
            Datum::Long(number) => range(transform, *number, data_type)
                .map_or((None, None), |(first, last)| (Some(Value::Int(first)), Some(Value::Int(last)))),
            _ => (None, None),
        },
    };
    ValueBounds { minimum, maximum, null_count: Some(0) }
}

/// The bound below values that were cut off.
fn truncated(datum: &Datum, data_type: &DataType) -> Option<Value> {
    match data_type {
        DataType::Text => Some(Value::Text(datum.text()?.to_owned())),
        DataType::Decimal { .. } => Some(Value::Decimal(unscaled(datum.bytes()?)?)),
        _ => None,
    }
}

/// The values that a transform makes a number of.
fn range(transform: &str, number: i64, data_type: &DataType) -> Option<(i64, i64)> {
    if let Some(width) = transform.strip_prefix("truncate[") {
        let width: i64 = width.strip_suffix(']')?.parse().ok().filter(|width| *width > 0)?;
        // Writers compute in the type that the column had then. Numbers near that type's least one come out at its other end,
        // where they are no multiples of the width.
        if number.rem_euclid(width) != 0 {
            return None;
        }
        let last = number.checked_add(width - 1)?;
        return match data_type {
            DataType::Int32 => i32::try_from(last).ok().map(|_| (number, last)),
            DataType::Int64 => Some((number, last)),
            _ => None,
        };
    }
    let unit_us = match data_type {
        DataType::Date => DAY_US,
        DataType::Timestamp | DataType::TimestampTz => 1,
        _ => return None,
    };
    let first = if number <= 0 { number.checked_sub(1)? } else { number };
    let (start, end) = (start_us(transform, first)?, start_us(transform, number.checked_add(1)?)?);
    Some((start.div_euclid(unit_us), (end - 1).div_euclid(unit_us)))
}

/// Where a unit of time begins, in microseconds since 1970.
fn start_us(transform: &str, number: i64) -> Option<i64> {
    let of_month = |months: i64| {
        let (year, month) = (months.div_euclid(12).checked_add(1970)?, months.rem_euclid(12) + 1);
        crate::value_text::days_of(year, month, 1).checked_mul(DAY_US)
    };
    // Years beyond these are no times, and would overflow.
    match transform {
        "year" if number.abs() < 200_000 => of_month(number.checked_mul(12)?),
        "month" if number.abs() < 2_400_000 => of_month(number),
        "day" => number.checked_mul(DAY_US),
        "hour" => number.checked_mul(HOUR_US),
        _ => None,
    }
}

/// Both are bounds of the same values: the narrower ones.
pub(super) fn narrowed(one: ValueBounds, other: ValueBounds) -> ValueBounds {
    let pick = |one: Option<Value>, other: Option<Value>, is_greatest: bool| match (one, other) {
        (Some(one), Some(other)) => match is_less(&one, &other) == Some(is_greatest) {
            true => Some(other),
            false => Some(one),
        },
        (one, other) => one.or(other),
    };
    ValueBounds {
        minimum: pick(one.minimum, other.minimum, true),
        maximum: pick(one.maximum, other.maximum, false),
        null_count: one.null_count.or(other.null_count),
    }
}

fn is_less(one: &Value, other: &Value) -> Option<bool> {
    Some(match (one, other) {
        (Value::Int(one), Value::Int(other)) => one < other,
        (Value::Decimal(one), Value::Decimal(other)) => one < other,
        (Value::Text(one), Value::Text(other)) => one < other,
        (Value::Bool(one), Value::Bool(other)) => one < other,
        _ => return None,
    })
}
