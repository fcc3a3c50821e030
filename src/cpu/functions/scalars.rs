//! Single values as DataFusion's.

use crate::datafusion::common::ScalarValue;
use arrow::datatypes::{DataType as ArrowType, IntervalMonthDayNano, i256};
use pystachio_plan::{DataType, Error, ErrorKind, Literal, Result, Value};

const MICROSECOND_NANOSECONDS: i64 = 1_000;

/// The literal as DataFusion's.
///
/// # Errors
///
/// `Internal` if the value is not one of its type, `NotSupported` for arrays.
pub(crate) fn scalar(literal: &Literal) -> Result<ScalarValue> {
    let mismatch =
        || Error::internal(format!("{:?} is not a value of type {}", literal.value, literal.data_type));
    let arrow = literal.data_type.to_arrow();
    Ok(match (&literal.value, &literal.data_type) {
        (Value::Null, _) => {
            ScalarValue::try_from(&arrow).map_err(|error| crate::error::from_datafusion(&error))?
        }
        (_, DataType::List(_) | DataType::Record(_)) => {
            return Err(Error::new(
                ErrorKind::NotSupported,
                "a constant array or composite value is not supported here",
            ));
        }
        (Value::Bool(value), DataType::Bool) => ScalarValue::Boolean(Some(*value)),
        (Value::Int(value), _) => {
            integer_scalar(&arrow, i256::from_i128((*value).into())).ok_or_else(mismatch)?
        }
        (Value::Float(value), DataType::Float32) => ScalarValue::Float32(Some(*value as f32)),
        (Value::Float(value), DataType::Float64) => ScalarValue::Float64(Some(*value)),
        (Value::Decimal(value), DataType::Decimal { .. }) => {
            integer_scalar(&arrow, i256::from_i128(*value)).ok_or_else(mismatch)?
        }
        (Value::Text(value), DataType::Text) => ScalarValue::Utf8View(Some(value.clone())),
        (Value::Bytes(value), DataType::Bytea) => ScalarValue::BinaryView(Some(value.clone())),
        (Value::Bytes(value), DataType::Uuid) if value.len() == 16 => {
            ScalarValue::FixedSizeBinary(16, Some(value.clone()))
        }
        (Value::Interval(value), DataType::Interval) => {
            let nanoseconds = value.microseconds.checked_mul(MICROSECOND_NANOSECONDS).ok_or_else(|| {
                Error::new(
                    ErrorKind::DatetimeOutOfRange,
                    format!("interval out of range: {} microseconds", value.microseconds),
                )
            })?;
            let interval = IntervalMonthDayNano::new(value.months, value.days, nanoseconds);
            ScalarValue::IntervalMonthDayNano(Some(interval))
        }
        _ => return Err(mismatch()),
    })
}

/// A value of an Arrow type that is stored as an integer; `None` if it does not fit or is not such a type.
pub(super) fn integer_scalar(arrow: &ArrowType, value: i256) -> Option<ScalarValue> {
    use arrow::datatypes::TimeUnit::Microsecond;
    let narrow = value.to_i128();
    let long = narrow.and_then(|value| i64::try_from(value).ok());
    Some(match arrow {
        ArrowType::Int16 => ScalarValue::Int16(Some(i16::try_from(narrow?).ok()?)),
        ArrowType::Int32 => ScalarValue::Int32(Some(i32::try_from(narrow?).ok()?)),
        ArrowType::Int64 => ScalarValue::Int64(Some(long?)),
        ArrowType::Date32 => ScalarValue::Date32(Some(i32::try_from(narrow?).ok()?)),
        ArrowType::Time64(Microsecond) => ScalarValue::Time64Microsecond(Some(long?)),
        ArrowType::Timestamp(Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(long?), zone.clone())
        }
        ArrowType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(narrow?), *precision, *scale),
        ArrowType::Decimal256(precision, scale) => ScalarValue::Decimal256(Some(value), *precision, *scale),
        _ => return None,
    })
}

/// A text in one of Arrow's text types; `None` for every other type.
pub(super) fn text_scalar(arrow: &ArrowType, text: &str) -> Option<ScalarValue> {
    let text = Some(text.to_owned());
    match arrow {
        ArrowType::Utf8 => Some(ScalarValue::Utf8(text)),
        ArrowType::LargeUtf8 => Some(ScalarValue::LargeUtf8(text)),
        ArrowType::Utf8View => Some(ScalarValue::Utf8View(text)),
        _ => None,
    }
}
