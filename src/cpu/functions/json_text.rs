//! Values as JSON.
//!
//! Source: PostgreSQL 15, `json.c` (`datum_to_json`, `array_dim_to_json`, `JsonEncodeDateTime`).

use std::fmt::{self, Write};

use crate::datafusion::{common::ScalarValue, logical_expr::ColumnarValue};
use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType as ArrowType, Date32Type, Time64MicrosecondType, TimestampMicrosecondType},
};
use pystachio_plan::{Error, Result};

use super::{
    calendar::{is_infinite_date, is_infinite_timestamp},
    format::{
        InstantWriter, infinity, write_date, write_json_string, write_time, write_timestamp, write_uuid,
    },
    invocation::Invocation,
    lanes::internal,
    shown_number::ShownNumbers,
};

/// What NULL is in JSON.
const NULL: &str = "null";

/// The value of each row as JSON.
pub(super) fn json_text(call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.arrow_type(0)? {
        ArrowType::List(_) => array_text(call),
        ArrowType::Float32 | ArrowType::Float64 => {
            let numbers = ShownNumbers::new(call)?;
            call.write_texts(|row, target| {
                numbers.write(row, target)?;
                // NaN and the infinities are no numbers of JSON.
                match target.bytes().last() {
                    None => target.push_str(NULL),
                    Some(b'0'..=b'9') => {}
                    Some(_) => *target = format!("\"{target}\""),
                }
                Ok(true)
            })
        }
        ArrowType::Int16
        | ArrowType::Int32
        | ArrowType::Int64
        | ArrowType::Decimal128(..)
        | ArrowType::Decimal256(..) => {
            let numbers = ShownNumbers::new(call)?;
            call.write_texts(|row, target| {
                numbers.write(row, target)?;
                if target.is_empty() {
                    target.push_str(NULL);
                }
                Ok(true)
            })
        }
        ArrowType::Boolean => {
            let values = call.array(0)?;
            let values: Vec<Option<bool>> = values.as_boolean().iter().collect();
            write_all(
                call,
                |row| values.get(row).copied().flatten(),
                |target, value| write!(target, "{value}"),
            )
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
        ArrowType::Timestamp(_, Some(_)) => {
            let (moments, zones) = (call.lanes::<TimestampMicrosecondType>(0)?, call.bytes(1)?);
            let mut writer = InstantWriter::new('T', true);
            call.write_texts(|row, target| {
                match (moments.get(row), zones.get(row)) {
                    (Some(moment), Some(zone)) => {
                        target.push('"');
                        writer.write(target, moment, zone)?;
                        target.push('"');
                    }
                    _ => target.push_str(NULL),
                }
                Ok(true)
            })
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
                    Some(text) => write_json_string(target, text),
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

/// Arrays of JSON of the elements. A second argument is the same in all rows.
fn array_text(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = array.as_list::<i32>();
    let end = |offset: Option<&i32>| offset.map_or(0, |offset| *offset as usize);
    let (start, end) = (end(lists.value_offsets().first()), end(lists.value_offsets().last()));
    let mut arguments = vec![ColumnarValue::Array(lists.values().slice(start, end - start))];
    if call.arguments().len() > 1 {
        let setting = ScalarValue::try_from_array(&call.array(1)?, 0).map_err(|error| internal(&error))?;
        arguments.push(ColumnarValue::Scalar(setting));
    }
    let items = match end - start {
        0 => None,
        rows => Some(json_text(&Invocation::new(&arguments, rows, call.result))?),
    };
    let items = items.as_ref().map(|items| items.as_string_view());
    call.write_texts(|row, target| {
        if lists.is_null(row) {
            target.push_str(NULL);
            return Ok(true);
        }
        target.push('[');
        let first = lists.value_offsets()[row] as usize - start;
        for place in 0..lists.value_length(row) as usize {
            if place > 0 {
                target.push(',');
            }
            target.push_str(items.map_or("", |items| items.value(first + place)));
        }
        target.push(']');
        Ok(true)
    })
}

fn failed(error: fmt::Error) -> Error {
    Error::internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::ListArray,
        datatypes::{Float64Type, Int32Type},
    };
    use pystachio_plan::DataType;

    use super::*;

    fn texts(arguments: &[ColumnarValue], rows: usize) -> Vec<String> {
        let array = json_text(&Invocation::new(arguments, rows, &DataType::Text)).expect("texts");
        array.as_string_view().iter().map(|text| text.expect("no NULL").to_owned()).collect()
    }

    #[test]
    fn arrays_are_those_of_their_rows() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(9)]),
            Some(vec![Some(1), None, Some(-3)]),
            None,
            Some(Vec::new()),
            Some(vec![Some(4)]),
        ]);
        let array = |from, count| ColumnarValue::Array(Arc::new(lists.slice(from, count)) as ArrayRef);
        assert_eq!(texts(&[array(1, 4)], 4), ["[1,null,-3]", "null", "[]", "[4]"]);
        assert_eq!(texts(&[array(2, 2)], 2), ["null", "[]"]);
    }

    #[test]
    fn elements_have_the_second_argument_of_the_array() {
        let values = [Some(0.1), Some(f64::NAN), None, Some(1e20)];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(values)]);
        let array = ColumnarValue::Array(Arc::new(lists) as ArrayRef);
        let digits = |setting: &str| ColumnarValue::Scalar(ScalarValue::Utf8View(Some(setting.to_owned())));
        assert_eq!(texts(&[array.clone(), digits("1")], 1), ["[0.1,\"NaN\",null,1e+20]"]);
        assert_eq!(texts(&[array, digits("-14")], 1), ["[0.1,\"NaN\",null,1e+20]"]);
    }
}
