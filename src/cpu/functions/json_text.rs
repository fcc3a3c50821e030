//! Values as JSON.
//!
//! Source: PostgreSQL 15, `json.c` (`datum_to_json`, `JsonEncodeDateTime`, `escape_json`).

use std::fmt::{self, Write};

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{DataType as ArrowType, Date32Type, Time64MicrosecondType, TimestampMicrosecondType},
};
use pystachio_plan::{Error, Result};

use super::{
    calendar::{is_infinite_date, is_infinite_timestamp},
    digits::{Decimals, decimal_text},
    format::{write_date, write_time, write_timestamp, write_uuid},
    invocation::Invocation,
};

/// What NULL is in JSON.
const NULL: &str = "null";

/// The value of each row as JSON.
pub(super) fn json_text(call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.arrow_type(0)? {
        ArrowType::Boolean => {
            let values = call.array(0)?;
            let values: Vec<Option<bool>> = values.as_boolean().iter().collect();
            write_all(
                call,
                |row| values.get(row).copied().flatten(),
                |target, value| write!(target, "{value}"),
            )
        }
        ArrowType::Int16
        | ArrowType::Int32
        | ArrowType::Int64
        | ArrowType::Decimal128(..)
        | ArrowType::Decimal256(..) => {
            let (digits, scale) = Decimals::new(call.argument(0)?)?;
            match &digits {
                Decimals::Narrow(lanes) => {
                    write_all(call, |row| lanes.get(row), |target, value| write_digits(target, value, scale))
                }
                Decimals::Wide(lanes) => {
                    write_all(call, |row| lanes.get(row), |target, value| write_digits(target, value, scale))
                }
            }
        }
        ArrowType::Date32 => {
            let days = call.lanes::<Date32Type>(0)?;
            let write = |target: &mut String, days: i32| match is_infinite_date(days) {
                true => target.write_str(infinity(days < 0)),
                false => write_date(target, days.into()),
            };
            write_all(call, |row| days.get(row), quoted(write))
        }
        ArrowType::Time64(_) => {
            let times = call.lanes::<Time64MicrosecondType>(0)?;
            write_all(
                call,
                |row| times.get(row),
                quoted(|target: &mut String, time| write_time(target, time)),
            )
        }
        ArrowType::Timestamp(_, None) => {
            let moments = call.lanes::<TimestampMicrosecondType>(0)?;
            let write = |target: &mut String, moment: i64| match is_infinite_timestamp(moment) {
                true => target.write_str(infinity(moment < 0)),
                false => write_timestamp(target, moment, 'T', ""),
            };
            write_all(call, |row| moments.get(row), quoted(write))
        }
        ArrowType::FixedSizeBinary(16) => {
            let values = call.array(0)?;
            let values: Vec<Option<&[u8]>> = values.as_fixed_size_binary().iter().collect();
            let write = |target: &mut String, bytes: &[u8]| write_uuid(target, bytes);
            write_all(call, |row| values.get(row).copied().flatten(), quoted(write))
        }
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => {
            let texts = call.text(0)?;
            call.write_texts(|row, target| {
                match texts.get(row) {
                    Some(text) => write_escaped(target, text).map_err(failed)?,
                    None => target.push_str(NULL),
                }
                Ok(true)
            })
        }
        _ => Err(call.not_supported("JSON")),
    }
}

fn write_all<T>(
    call: &Invocation<'_>,
    value: impl Fn(usize) -> Option<T>,
    write: impl Fn(&mut String, T) -> fmt::Result,
) -> Result<ArrayRef> {
    call.write_texts(|row, target| {
        match value(row) {
            Some(value) => write(target, value).map_err(failed)?,
            None => target.push_str(NULL),
        }
        Ok(true)
    })
}

fn quoted<T>(write: impl Fn(&mut String, T) -> fmt::Result) -> impl Fn(&mut String, T) -> fmt::Result {
    move |target, value| {
        target.write_char('"')?;
        write(target, value)?;
        target.write_char('"')
    }
}

fn write_digits(target: &mut String, digits: impl fmt::Display, scale: u32) -> fmt::Result {
    match scale {
        0 => write!(target, "{digits}"),
        scale => target.write_str(&decimal_text(&digits.to_string(), scale)),
    }
}

/// A text with its quotes.
fn write_escaped(target: &mut String, text: &str) -> fmt::Result {
    target.write_char('"')?;
    for character in text.chars() {
        match character {
            '\u{8}' => target.write_str("\\b")?,
            '\u{c}' => target.write_str("\\f")?,
            '\n' => target.write_str("\\n")?,
            '\r' => target.write_str("\\r")?,
            '\t' => target.write_str("\\t")?,
            '"' => target.write_str("\\\"")?,
            '\\' => target.write_str("\\\\")?,
            control if control < ' ' => write!(target, "\\u{:04x}", u32::from(control))?,
            other => target.write_char(other)?,
        }
    }
    target.write_char('"')
}

fn infinity(is_negative: bool) -> &'static str {
    if is_negative { "-infinity" } else { "infinity" }
}

fn failed(error: fmt::Error) -> Error {
    Error::internal(error.to_string())
}
