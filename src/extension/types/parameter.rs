//! Datums as literals: the values of a plan's parameters.
#![expect(unsafe_code, reason = "reads datums")]

use std::ffi::CStr;

use pgrx::{
    FromDatum,
    pg_sys::{self, Datum},
};
use pystachio_plan::{DataType, Error, ErrorKind, Interval, Literal, Result, Value};

use super::{
    array::ElementLayout,
    fixed::{EPOCH_DAYS, EPOCH_MICROSECONDS},
    numeric::{self, Decoded},
};
use crate::pg::encoding;

/// The value of a parameter: a datum of PostgreSQL's type `type_oid`, as `data_type`.
///
/// # Errors
///
/// `NotSupported` for NaN, infinities, numbers of more than 38 digits, and text that UTF-8 has no equivalent of.
///
/// # Safety
///
/// The datum is a valid value of that type.
pub unsafe fn literal(datum: Datum, type_oid: pg_sys::Oid, data_type: &DataType) -> Result<Literal> {
    let plain = |value| Ok(Literal::new(value, data_type.clone()));
    // SAFETY: the caller says that the datum is a value of `type_oid`, which goes with `data_type`.
    unsafe {
        match data_type {
            DataType::Bool => plain(Value::Bool(datum.value() & 0xff != 0)),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                plain(Value::Int(integer(datum, type_oid)))
            }
            DataType::Float32 | DataType::Float64 => plain(Value::Float(float(datum, type_oid))),
            DataType::Numeric | DataType::Decimal { .. } => decimal(datum, type_oid, data_type),
            DataType::Date => match datum.value() as i32 {
                // Infinity is the least or greatest number in the plan too.
                infinite @ (i32::MIN | i32::MAX) => plain(Value::Int(i64::from(infinite))),
                days => plain(Value::Int(i64::from(days) + i64::from(EPOCH_DAYS))),
            },
            DataType::Time => plain(Value::Int(datum.value() as i64)),
            DataType::Timestamp | DataType::TimestampTz => match datum.value() as i64 {
                infinite @ (i64::MIN | i64::MAX) => plain(Value::Int(infinite)),
                time => time.checked_add(EPOCH_MICROSECONDS).map_or_else(
                    || Err(special("timestamp", "after the year 294246")),
                    |time| plain(Value::Int(time)),
                ),
            },
            DataType::Interval => {
                let interval = &*datum.cast_mut_ptr::<pg_sys::Interval>();
                plain(Value::Interval(Interval {
                    months: interval.month,
                    days: interval.day,
                    microseconds: interval.time,
                }))
            }
            DataType::Text => plain(Value::Text(text(datum, type_oid)?)),
            DataType::Bytea => plain(Value::Bytes(varlena(datum))),
            DataType::Uuid => {
                plain(Value::Bytes(std::slice::from_raw_parts(datum.cast_mut_ptr::<u8>(), 16).to_vec()))
            }
            DataType::List(_) | DataType::Record(_) => {
                let message = format!("a parameter of type {data_type} can't be sent to the engine");
                Err(Error::new(ErrorKind::NotSupported, message))
            }
        }
    }
}

/// The elements of an array of `element_oid`, whatever its dimensions, as `data_type`; `None` for what no
/// number of up to 38 digits equals: NaN and infinity of `numeric`, and longer numbers.
///
/// # Errors
///
/// As of [`literal`] for an element.
///
/// # Safety
///
/// The datum is a valid array of that type.
pub unsafe fn elements(
    datum: Datum,
    element_oid: pg_sys::Oid,
    data_type: &DataType,
) -> Result<Vec<Option<Literal>>> {
    // SAFETY: the caller says that the datum is an array of such elements.
    let (values, nulls, count) = unsafe {
        ElementLayout::of_elements(element_oid)
            .deconstruct(pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast())
    };
    (0..count)
        .map(|place| {
            // SAFETY: there are `count` values and flags.
            let (value, is_null) = unsafe { (*values.add(place), *nulls.add(place)) };
            if is_null {
                return Ok(Some(null_literal(data_type)));
            }
            // SAFETY: an element of the array.
            unsafe {
                if element_oid == pg_sys::NUMERICOID
                    && !matches!(numeric::decode(&varlena(value)), Decoded::Finite { .. })
                {
                    return Ok(None);
                }
                literal(value, element_oid, data_type).map(Some)
            }
        })
        .collect()
}

/// The elements of a `text[]` that are not NULL.
///
/// # Errors
///
/// As of [`text`].
///
/// # Safety
///
/// The datum is a valid `text[]`.
pub unsafe fn array_texts(array: Datum) -> Result<Vec<String>> {
    // SAFETY: the caller says so.
    let elements = unsafe { elements(array, pg_sys::TEXTOID, &DataType::Text)? };
    let text = |element: Option<Literal>| match element?.value {
        Value::Text(text) => Some(text),
        _ => None,
    };
    Ok(elements.into_iter().filter_map(text).collect())
}

/// A NULL. A literal always has a type of its own: a NULL `numeric` has the smallest.
pub fn null_literal(data_type: &DataType) -> Literal {
    let data_type = match data_type {
        DataType::Numeric => DataType::Decimal { precision: 1, scale: 0 },
        other => other.clone(),
    };
    Literal::new(Value::Null, data_type)
}

fn integer(datum: Datum, type_oid: pg_sys::Oid) -> i64 {
    match type_oid {
        pg_sys::INT2OID => i64::from(datum.value() as i16),
        pg_sys::INT4OID => i64::from(datum.value() as i32),
        _ => datum.value() as i64,
    }
}

fn float(datum: Datum, type_oid: pg_sys::Oid) -> f64 {
    match type_oid {
        pg_sys::FLOAT4OID => f64::from(f32::from_bits(datum.value() as u32)),
        _ => f64::from_bits(datum.value() as u64),
    }
}

/// Integers are decimals too, where the plan compares both.
unsafe fn decimal(datum: Datum, type_oid: pg_sys::Oid, data_type: &DataType) -> Result<Literal> {
    let decoded = match type_oid {
        pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID => {
            Decoded::Finite { unscaled: i128::from(integer(datum, type_oid)), scale: 0 }
        }
        // SAFETY: as of `literal`: a numeric.
        _ => numeric::decode(&unsafe { varlena(datum) }),
    };
    let (unscaled, scale) = match decoded {
        Decoded::Finite { unscaled, scale } => (unscaled, scale),
        Decoded::Special => return Err(special("numeric", "NaN or infinity")),
        Decoded::TooLong => return Err(special("numeric", "more than 38 digits")),
    };
    let DataType::Decimal { precision, scale: target_scale } = *data_type else {
        let precision = decimal_digits(unscaled).max(scale).max(1);
        return Ok(Literal::new(Value::Decimal(unscaled), DataType::Decimal { precision, scale }));
    };
    let rescaled = target_scale
        .checked_sub(scale)
        .and_then(|zeroes| unscaled.checked_mul(10i128.checked_pow(u32::from(zeroes))?))
        .filter(|value| decimal_digits(*value) <= precision);
    match rescaled {
        Some(value) => Ok(Literal::new(Value::Decimal(value), data_type.clone())),
        None => Err(special("numeric", &format!("not a {data_type}"))),
    }
}

fn decimal_digits(value: i128) -> u8 {
    value.unsigned_abs().checked_ilog10().map_or(1, |exponent| exponent as u8 + 1)
}

/// Text in UTF-8; blanks at the end of a `char(n)` mean nothing, and are removed.
///
/// # Errors
///
/// `NotSupported` for bytes that UTF-8 has no equivalent of.
///
/// # Safety
///
/// The datum is a valid value of a type of text, or a name.
pub unsafe fn text(datum: Datum, type_oid: pg_sys::Oid) -> Result<String> {
    // SAFETY: the caller says so.
    let bytes = unsafe {
        match type_oid {
            pg_sys::NAMEOID => CStr::from_ptr(datum.cast_mut_ptr()).to_bytes().to_vec(),
            _ => varlena(datum),
        }
    };
    let mut text = encoding::to_utf8(&bytes).ok_or_else(|| special("text", "not valid in UTF-8"))?;
    if type_oid == pg_sys::BPCHAROID {
        text.truncate(text.trim_end_matches(' ').len());
    }
    Ok(text)
}

/// The content of a varlena, wherever it is stored.
unsafe fn varlena(datum: Datum) -> Vec<u8> {
    // SAFETY: as of `literal`: a varlena has the layout of a bytea.
    unsafe { Vec::<u8>::from_datum(datum, false) }.unwrap_or_default()
}

fn special(type_name: &str, value: &str) -> Error {
    Error::new(ErrorKind::NotSupported, format!("a parameter of type {type_name} is {value}"))
        .with_detail("The engine has no such value.")
        .with_hint("SET pystachio.pushdown = off lets PostgreSQL evaluate the condition.")
}
