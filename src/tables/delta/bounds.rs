//! What the log knows of columns' values in a file, as far as it is believed.
//!
//! - Writers cut timestamps off after milliseconds: the greatest is widened by one.
//! - Writers cut texts off, not all of them so that the greatest stays a bound: only short texts are believed.
//! - JSON has no NaN, and numbers of many digits are rounded by readers of JSON: neither floats nor long decimals are believed.

use pystachio_plan::{DataType, Value};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::{
    TableColumn, ValueBounds,
    value_text::{parse_days, parse_decimal, parse_microseconds},
};

/// Writers cut texts off at so many characters.
const TEXT_CHARACTERS_MAX: usize = 32;
/// Decimals of more digits are not believed: a JSON number holds no more.
const DECIMAL_DIGITS_MAX: u8 = 15;
/// What writers cut off from a timestamp.
const MILLISECOND_REST_US: i64 = 999;

/// The statistics of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Statistics {
    num_records: Option<i64>,
    min_values: Option<Map<String, Json>>,
    max_values: Option<Map<String, Json>>,
    null_count: Option<Map<String, Json>>,
}

impl Statistics {
    pub(super) fn row_count(&self) -> Option<u64> {
        self.num_records.and_then(|count| u64::try_from(count).ok())
    }

    /// The bounds of columns, by their places.
    pub(super) fn bounds(&self, columns: &[TableColumn]) -> Vec<(usize, ValueBounds)> {
        let of_column = |(place, column): (usize, &TableColumn)| {
            let data_type = column.data_type.as_ref().filter(|_| !column.is_json && !column.is_partition)?;
            let found =
                |values: &Option<Map<String, Json>>| values.as_ref()?.get(&column.stored.name).cloned();
            let bounds = ValueBounds {
                minimum: found(&self.min_values).and_then(|value| bound(&value, data_type, 0)),
                maximum: found(&self.max_values)
                    .and_then(|value| bound(&value, data_type, MILLISECOND_REST_US)),
                null_count: found(&self.null_count).and_then(|count| count.as_u64()),
            };
            (bounds != ValueBounds::default()).then_some((place, bounds))
        };
        columns.iter().enumerate().filter_map(of_column).collect()
    }
}

/// A bound of a type; `None` if it is not believed.
fn bound(value: &Json, data_type: &DataType, rest_us: i64) -> Option<Value> {
    Some(match data_type {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Value::Int(value.as_i64()?),
        DataType::Decimal { precision, scale } if *precision <= DECIMAL_DIGITS_MAX => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Value::Decimal(parse_decimal(&text, *precision, *scale)?)
        }
        DataType::Date => Value::Int(value.as_i64().or_else(|| parse_days(value.as_str()?))?),
        DataType::Timestamp | DataType::TimestampTz => {
            let parsed = || {
                let text = value.as_str()?;
                let utc = ["Z", "+00:00"].iter().find_map(|zone| text.strip_suffix(zone));
                parse_microseconds(utc.unwrap_or(text))
            };
            Value::Int(value.as_i64().or_else(parsed)?.checked_add(rest_us)?)
        }
        DataType::Text => {
            let text = value.as_str().filter(|text| text.chars().count() < TEXT_CHARACTERS_MAX)?;
            Value::Text(text.to_owned())
        }
        _ => return None,
    })
}
