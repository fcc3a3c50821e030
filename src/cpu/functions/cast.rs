//! Changes of type.
//!
//! Source: PostgreSQL 15, `int.c`, `int8.c`, `float.c`, `numeric.c`, `date.c` and `timestamp.c`.

use std::{fmt, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, StringViewArray, StringViewBuilder},
    datatypes::{
        DataType as ArrowType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        Time64MicrosecondType, TimestampMicrosecondType, i256,
    },
};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    calendar::{DAY_MICROSECONDS, infinite_field, is_infinite_timestamp, midnight},
    digits::{Decimals, Digits, Fault, decimal_text, divide_rounded, rescale, result_type, run},
    faults::{field_overflow, float_overflow, float_underflow, out_of_range},
    format::{write_date, write_time, write_timestamp, write_uuid},
    invocation::Invocation,
    lanes::{Lanes, Nullable, checked, map_lanes, text_array, timestamp_array},
};

/// The largest integers that a double holds exactly: all up to this.
const EXACT_INTEGER_MAX: u128 = 1 << 53;
/// The largest power of ten that a double holds exactly.
const EXACT_POWER_MAX: u32 = 22;
/// The largest integers that a float of 32 bits holds exactly, and the largest power of ten.
const EXACT_INTEGER_MAX_SINGLE: u128 = 1 << 24;
const EXACT_POWER_MAX_SINGLE: u32 = 10;

/// The plan language's cast.
///
/// # Errors
///
/// `NumericOutOfRange`, `DatetimeOutOfRange`; `NotSupported` between types that it does not connect.
pub(super) fn evaluate(call: &Invocation<'_>) -> Result<ArrayRef> {
    let from = call.arrow_type(0)?;
    match call.result {
        DataType::Int16 => to_integer::<Int16Type>(&from, call),
        DataType::Int32 => to_integer::<Int32Type>(&from, call),
        DataType::Int64 => to_integer::<Int64Type>(&from, call),
        DataType::Float32 | DataType::Float64 => to_float(&from, call),
        DataType::Decimal { .. } => to_decimal(&from, call),
        DataType::Bool if from == ArrowType::Int32 => {
            let array = call.array(0)?;
            let array = array.as_primitive::<Int32Type>();
            Ok(Arc::new(BooleanArray::from_unary(array, |value| value != 0)))
        }
        DataType::Text => to_text(&from, call),
        DataType::Date | DataType::Time | DataType::Timestamp | DataType::TimestampTz => {
            to_datetime(&from, call)
        }
        result if from == result.to_arrow() => call.array(0),
        _ => Err(not_connected(call)),
    }
}

/// The same value in another Arrow type of the same plan type: text in views, decimals of another
/// precision.
pub(super) fn align(call: &Invocation<'_>) -> Result<ArrayRef> {
    let target = call.result.to_arrow();
    if let (ArrowType::Decimal128(_, from), ArrowType::Decimal128(precision, to)) =
        (call.arrow_type(0)?, &target)
        && from == *to
    {
        let array = call.array(0)?;
        let array = array.as_primitive::<arrow::datatypes::Decimal128Type>().clone();
        let array = array
            .with_precision_and_scale(*precision, *to)
            .map_err(|error| crate::error::from_arrow(&error))?;
        return Ok(Arc::new(array));
    }
    match call.result {
        DataType::Decimal { .. } => rescale_decimal(call, None),
        _ => arrow::compute::cast(&call.array(0)?, &target).map_err(|error| crate::error::from_arrow(&error)),
    }
}

fn not_connected(call: &Invocation<'_>) -> Error {
    call.not_supported(&format!("a cast to {}", call.result))
}

/// An integer of some width, as `i64` and back.
trait Narrow: Copy + Default {
    fn narrow(value: i64) -> Option<Self>;
    fn widen(self) -> i64;
}

macro_rules! narrow {
    ($type:ty) => {
        impl Narrow for $type {
            fn narrow(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }
            fn widen(self) -> i64 {
                self.into()
            }
        }
    };
}

narrow!(i16);
narrow!(i32);
narrow!(i64);

fn to_integer<P>(from: &ArrowType, call: &Invocation<'_>) -> Result<ArrayRef>
where
    P: ArrowPrimitiveType,
    P::Native: Narrow,
{
    let values = match from {
        ArrowType::Int16 => integer_lanes::<Int16Type, P>(call)?,
        ArrowType::Int32 => integer_lanes::<Int32Type, P>(call)?,
        ArrowType::Int64 => integer_lanes::<Int64Type, P>(call)?,
        ArrowType::Float32 => {
            let lanes = call.lanes::<Float32Type>(0)?.convert(f64::from);
            map_lanes(
                &lanes,
                call.rows,
                |value| checked(integer_from_float(value)),
                |_| out_of_range(call.result),
            )?
        }
        ArrowType::Float64 => {
            let lanes = call.lanes::<Float64Type>(0)?;
            map_lanes(
                &lanes,
                call.rows,
                |value| checked(integer_from_float(value)),
                |_| out_of_range(call.result),
            )?
        }
        ArrowType::Boolean if *call.result == DataType::Int32 => {
            let array = call.array(0)?;
            let array = array.as_boolean();
            let values =
                array.values().iter().map(i64::from).map(|value| checked(P::Native::narrow(value)).0);
            Nullable { values: values.collect(), nulls: array.nulls().cloned() }
        }
        ArrowType::Decimal128(..) | ArrowType::Decimal256(..) => integer_from_decimal::<P>(call)?,
        _ => return Err(not_connected(call)),
    };
    Ok(Arc::new(values.into_array::<P>()))
}

fn integer_lanes<F, P>(call: &Invocation<'_>) -> Result<Nullable<P::Native>>
where
    F: ArrowPrimitiveType,
    F::Native: Narrow,
    P: ArrowPrimitiveType,
    P::Native: Narrow,
{
    map_lanes(
        &call.lanes::<F>(0)?,
        call.rows,
        |value| checked(P::Native::narrow(value.widen())),
        |_| out_of_range(call.result),
    )
}

/// Rounded half to even; `None` if it does not fit. Every `i16`, `i32` and `i64` bound is tested as
/// PostgreSQL does, before the conversion.
fn integer_from_float<I: Narrow>(value: f64) -> Option<I> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let rounded = value.round_ties_even();
    if !(-LIMIT..LIMIT).contains(&rounded) {
        return None;
    }
    // In range, so that the conversion is exact.
    I::narrow(rounded as i64)
}

fn integer_from_decimal<P>(call: &Invocation<'_>) -> Result<Nullable<P::Native>>
where
    P: ArrowPrimitiveType,
    P::Native: Narrow,
{
    fn convert<D: Digits, I: Narrow>(value: D, power: Option<D>) -> Option<I> {
        let Some(power) = power else { return I::narrow(0) };
        I::narrow(divide_rounded(value, power)?.to_i64()?)
    }
    let (digits, scale) = Decimals::new(call.argument(0)?)?;
    let range = || out_of_range(call.result);
    match &digits {
        Decimals::Narrow(lanes) => {
            let power = i128::power_of_ten(scale);
            map_lanes(lanes, call.rows, |value| checked(convert(value, power)), |_| range())
        }
        Decimals::Wide(lanes) => {
            let power = i256::power_of_ten(scale);
            map_lanes(lanes, call.rows, |value| checked(convert(value, power)), |_| range())
        }
    }
}

fn to_float(from: &ArrowType, call: &Invocation<'_>) -> Result<ArrayRef> {
    if let ArrowType::Decimal128(..) | ArrowType::Decimal256(..) = from {
        return float_from_decimal(call);
    }
    let single = *call.result == DataType::Float32;
    if single && *from == ArrowType::Float64 {
        let values = map_lanes(
            &call.lanes::<Float64Type>(0)?,
            call.rows,
            |value| {
                let result = value as f32;
                let overflow = result.is_infinite() && value.is_finite();
                (result, overflow || (result == 0.0 && value != 0.0))
            },
            |value| if value.abs() < 1.0 { float_underflow() } else { float_overflow() },
        )?;
        return Ok(Arc::new(values.into_array::<Float32Type>()));
    }
    let exact = matches!(
        from,
        ArrowType::Int16 | ArrowType::Int32 | ArrowType::Int64 | ArrowType::Float32 | ArrowType::Float64
    );
    if !exact {
        return Err(not_connected(call));
    }
    // Integers are rounded to the nearest float, halves to even, and floats widened.
    arrow::compute::cast(&call.array(0)?, &call.result.to_arrow())
        .map_err(|error| crate::error::from_arrow(&error))
}

/// The float nearest to the decimal, as reading its text gives.
fn float_from_decimal(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (digits, scale) = Decimals::new(call.argument(0)?)?;
    if *call.result == DataType::Float32 {
        let range = |text: String| {
            Error::new(ErrorKind::NumericOutOfRange, format!("\"{text}\" is out of range for type real"))
        };
        let values = match &digits {
            Decimals::Narrow(lanes) => map_lanes(
                lanes,
                call.rows,
                |value| single(value, Some(value), scale),
                |value| range(decimal_text(&value.to_string(), scale)),
            )?,
            Decimals::Wide(lanes) => map_lanes(
                lanes,
                call.rows,
                |value: i256| single(value, value.to_i128(), scale),
                |value| range(decimal_text(&value.to_string(), scale)),
            )?,
        };
        return Ok(Arc::new(values.into_array::<Float32Type>()));
    }
    let never = || Error::internal("a decimal does not fit a double");
    let values = match &digits {
        Decimals::Narrow(lanes) => {
            map_lanes(lanes, call.rows, |value| (double(value, Some(value), scale), false), |_| never())?
        }
        Decimals::Wide(lanes) => {
            map_lanes(lanes, call.rows, |value| (double(value, value.to_i128(), scale), false), |_| never())?
        }
    };
    Ok(Arc::new(values.into_array::<Float64Type>()))
}

fn double(value: impl fmt::Display, narrow: Option<i128>, scale: u32) -> f64 {
    if let Some(narrow) = narrow
        && narrow.unsigned_abs() <= EXACT_INTEGER_MAX
        && scale <= EXACT_POWER_MAX
    {
        // Both are exact, so the one division rounds correctly.
        return narrow as f64 / 10_f64.powi(scale as i32);
    }
    // Every decimal's text is a number, and none of 76 digits is out of range.
    decimal_text(&value.to_string(), scale).parse().unwrap_or(f64::NAN)
}

fn single(value: impl fmt::Display, narrow: Option<i128>, scale: u32) -> (f32, bool) {
    if let Some(narrow) = narrow
        && narrow.unsigned_abs() <= EXACT_INTEGER_MAX_SINGLE
        && scale <= EXACT_POWER_MAX_SINGLE
    {
        return (narrow as f32 / 10_f32.powi(scale as i32), false);
    }
    let result: f32 = decimal_text(&value.to_string(), scale).parse().unwrap_or(f32::NAN);
    (result, result.is_infinite() || (result == 0.0 && narrow != Some(0)))
}

fn to_decimal(from: &ArrowType, call: &Invocation<'_>) -> Result<ArrayRef> {
    match from {
        ArrowType::Int16
        | ArrowType::Int32
        | ArrowType::Int64
        | ArrowType::Decimal128(..)
        | ArrowType::Decimal256(..) => {
            let (precision, _) = result_type(call.result)?;
            rescale_decimal(call, Some(precision))
        }
        _ => Err(not_connected(call)),
    }
}

/// The value at the result's scale; of at most `precision` digits, if given.
fn rescale_decimal(call: &Invocation<'_>, precision: Option<u8>) -> Result<ArrayRef> {
    fn convert<D: Digits>(
        lanes: &Lanes<'_, D>,
        from: u32,
        to: u32,
        limit: Option<D>,
        rows: usize,
    ) -> std::result::Result<Nullable<D>, Fault> {
        map_lanes(
            lanes,
            rows,
            |value| match rescale(value, from, to) {
                Some(scaled) => {
                    let inside =
                        limit.is_none_or(|limit| scaled < limit && D::ZERO.subtract(limit).0 < scaled);
                    (scaled, !inside)
                }
                None => (D::ZERO, true),
            },
            |value| Fault::Overflow(decimal_text(&value.to_string(), from)),
        )
    }
    let (digits, from) = Decimals::new(call.argument(0)?)?;
    let (result_precision, to) = result_type(call.result)?;
    let exponent = precision.map(u32::from);
    let array = run(
        call,
        &[&digits],
        |lanes| convert(lanes[0], from, to, exponent.and_then(i128::power_of_ten), call.rows),
        |lanes| convert(&lanes[0], from, to, exponent.and_then(i256::power_of_ten), call.rows),
    );
    match array {
        Err(error) if error.kind == ErrorKind::NumericOutOfRange && precision.is_some() => {
            Err(field_overflow(result_precision, to))
        }
        array => array,
    }
}

fn to_datetime(from: &ArrowType, call: &Invocation<'_>) -> Result<ArrayRef> {
    match (from, call.result) {
        (ArrowType::Date32, DataType::Date) | (ArrowType::Time64(_), DataType::Time) => call.array(0),
        (ArrowType::Date32, DataType::Timestamp | DataType::TimestampTz) => {
            let values = map_lanes(
                &call.lanes::<Date32Type>(0)?,
                call.rows,
                |days| match days {
                    i32::MIN => (i64::MIN, false),
                    i32::MAX => (i64::MAX, false),
                    _ => checked(midnight(days.into())),
                },
                |_| Error::new(ErrorKind::DatetimeOutOfRange, "date out of range for timestamp"),
            )?;
            Ok(timestamp_array(values, call.result))
        }
        (ArrowType::Timestamp(..), _) => {
            let lanes = call.lanes::<TimestampMicrosecondType>(0)?;
            let never = |_| Error::internal("a cast of a timestamp has failed");
            let infinite = |_| infinite_field();
            match call.result {
                DataType::Date => {
                    // A quotient of 64 bits by the microseconds of a day fits 32 bits.
                    let date = |value: i64| match value {
                        i64::MIN => (i32::MIN, false),
                        i64::MAX => (i32::MAX, false),
                        _ => (value.div_euclid(DAY_MICROSECONDS) as i32, false),
                    };
                    Ok(Arc::new(map_lanes(&lanes, call.rows, date, never)?.into_array::<Date32Type>()))
                }
                DataType::Time => {
                    let time =
                        |value: i64| (value.rem_euclid(DAY_MICROSECONDS), is_infinite_timestamp(value));
                    let values = map_lanes(&lanes, call.rows, time, infinite)?;
                    Ok(Arc::new(values.into_array::<Time64MicrosecondType>()))
                }
                _ => Ok(timestamp_array(
                    map_lanes(&lanes, call.rows, |value| (value, false), never)?,
                    call.result,
                )),
            }
        }
        _ => Err(not_connected(call)),
    }
}

fn to_text(from: &ArrowType, call: &Invocation<'_>) -> Result<ArrayRef> {
    let text: StringViewArray = match from {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => text_array(&call.array(0)?)?,
        ArrowType::Int16 => write_lanes(&call.lanes::<Int16Type>(0)?, call.rows, display)?,
        ArrowType::Int32 => write_lanes(&call.lanes::<Int32Type>(0)?, call.rows, display)?,
        ArrowType::Int64 => write_lanes(&call.lanes::<Int64Type>(0)?, call.rows, display)?,
        ArrowType::Date32 => write_lanes(&call.lanes::<Date32Type>(0)?, call.rows, |target, days| {
            write_date(target, days.into())
        })?,
        ArrowType::Time64(_) => write_lanes(&call.lanes::<Time64MicrosecondType>(0)?, call.rows, write_time)?,
        ArrowType::Timestamp(_, zone) => {
            let zone = if zone.is_some() { "+00" } else { "" };
            write_lanes(&call.lanes::<TimestampMicrosecondType>(0)?, call.rows, |target, value| {
                write_timestamp(target, value, ' ', zone)
            })?
        }
        ArrowType::Boolean => {
            let array = call.array(0)?;
            let array = array.as_boolean();
            array.iter().map(|value| value.map(|value| if value { "true" } else { "false" })).collect()
        }
        ArrowType::FixedSizeBinary(16) => write_uuids(call)?,
        _ => return Err(not_connected(call)),
    };
    Ok(Arc::new(text))
}

fn display(target: &mut String, value: impl fmt::Display) -> fmt::Result {
    fmt::Write::write_fmt(target, format_args!("{value}"))
}

fn write_lanes<T: Copy>(
    lanes: &Lanes<'_, T>,
    rows: usize,
    write: impl Fn(&mut String, T) -> fmt::Result,
) -> Result<StringViewArray> {
    let mut text = String::new();
    let mut builder = StringViewBuilder::with_capacity(rows);
    for row in 0..rows {
        let Some(value) = lanes.get(row) else {
            builder.append_null();
            continue;
        };
        text.clear();
        write(&mut text, value).map_err(|error| Error::internal(error.to_string()))?;
        builder.append_value(&text);
    }
    Ok(builder.finish())
}

fn write_uuids(call: &Invocation<'_>) -> Result<StringViewArray> {
    let array = call.array(0)?;
    let mut text = String::new();
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for bytes in array.as_fixed_size_binary() {
        let Some(bytes) = bytes else {
            builder.append_null();
            continue;
        };
        text.clear();
        write_uuid(&mut text, bytes).map_err(|error| Error::internal(error.to_string()))?;
        builder.append_value(&text);
    }
    Ok(builder.finish())
}
