//! Values of constants.

use pgrx::{FromDatum, pg_sys};
use pystachio_lower::{ARRAY_ITEMS_MAX, Constant, Refusal};
use pystachio_plan::{Interval, Value};

use crate::{
    pg::list,
    types::{self, EPOCH_DAYS, EPOCH_MICROSECONDS},
};

/// A value as lowering takes it.
///
/// # Safety
///
/// The datum is a value of the type, or NULL.
pub unsafe fn constant(datum: pg_sys::Datum, is_null: bool, type_oid: pg_sys::Oid) -> Constant {
    if is_null {
        return Constant::Null;
    }
    let (type_oid, _) = types::base_type(type_oid, -1);
    let value = match type_oid {
        pg_sys::BOOLOID => Value::Bool(datum.value() as u8 != 0),
        pg_sys::INT2OID => Value::Int(i64::from(datum.value() as i16)),
        pg_sys::INT4OID => Value::Int(i64::from(datum.value() as i32)),
        pg_sys::INT8OID | pg_sys::TIMEOID => Value::Int(datum.value() as i64),
        pg_sys::FLOAT4OID => Value::Float(f64::from(f32::from_bits(datum.value() as u32))),
        pg_sys::FLOAT8OID => Value::Float(f64::from_bits(datum.value() as u64)),
        pg_sys::NUMERICOID => {
            let output = pg_sys::Oid::from(pg_sys::F_NUMERIC_OUT);
            // SAFETY: the caller says that it is a numeric; the function gives a C string.
            return Constant::Numeric(unsafe { list::string(pg_sys::OidOutputFunctionCall(output, datum)) });
        }
        pg_sys::DATEOID => Value::Int(match datum.value() as i32 {
            infinite @ (i32::MIN | i32::MAX) => i64::from(infinite),
            days => i64::from(days) + i64::from(EPOCH_DAYS),
        }),
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => match datum.value() as i64 {
            infinite @ (i64::MIN | i64::MAX) => Value::Int(infinite),
            time => match time.checked_add(EPOCH_MICROSECONDS) {
                Some(time) => Value::Int(time),
                None => return Constant::Refused(Refusal::LateTimestamp),
            },
        },
        pg_sys::INTERVALOID => {
            // SAFETY: the caller says that it is an interval.
            let interval = unsafe { &*datum.cast_mut_ptr::<pg_sys::Interval>() };
            Value::Interval(Interval {
                months: interval.month,
                days: interval.day,
                microseconds: interval.time,
            })
        }
        pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => {
            // SAFETY: the caller says that it is a text.
            match unsafe { types::text(datum, type_oid) } {
                Ok(text) => Value::Text(text),
                Err(_) => return Constant::Refused(Refusal::UnreadableText),
            }
        }
        // A literal among arguments of any type, as of `concat`: a C string.
        pg_sys::UNKNOWNOID => {
            // SAFETY: the caller says that it is such a literal.
            return unsafe {
                let text = pg_sys::cstring_to_text(datum.cast_mut_ptr::<std::ffi::c_char>());
                constant(text.into(), false, pg_sys::TEXTOID)
            };
        }
        pg_sys::JSONOID | pg_sys::JSONBOID => {
            let output = match type_oid {
                pg_sys::JSONBOID => pg_sys::F_JSONB_OUT,
                _ => pg_sys::F_JSON_OUT,
            };
            // SAFETY: the caller says that it is a value of the type; the function gives a C string.
            Value::Text(unsafe {
                list::string(pg_sys::OidOutputFunctionCall(pg_sys::Oid::from(output), datum))
            })
        }
        pg_sys::BYTEAOID => {
            // SAFETY: the caller says that it is a bytea.
            match unsafe { Vec::<u8>::from_datum(datum, false) } {
                Some(bytes) => Value::Bytes(bytes),
                None => return Constant::Refused(Refusal::UnreadableBytes),
            }
        }
        pg_sys::UUIDOID => {
            // SAFETY: the caller says that it is a uuid, which has 16 bytes.
            Value::Bytes(unsafe { std::slice::from_raw_parts(datum.cast_mut_ptr::<u8>(), 16) }.to_vec())
        }
        // SAFETY: as the caller says.
        _ => return unsafe { array(datum, type_oid) },
    };
    Constant::Value(value)
}

/// An array, or a value of a type that no plan has.
///
/// # Safety
///
/// The datum is a value of the type.
unsafe fn array(datum: pg_sys::Datum, type_oid: pg_sys::Oid) -> Constant {
    // SAFETY: the caller's.
    unsafe {
        let Some(elements) = Elements::of(datum, type_oid) else { return Constant::Unknown };
        if elements.count > ARRAY_ITEMS_MAX {
            return Constant::LongArray(elements.count);
        }
        let item = |place| {
            let (value, is_null) = elements.get(place);
            constant(value, is_null, elements.type_oid)
        };
        Constant::Array((0..elements.count).map(item).collect())
    }
}

/// The elements of an array, taken apart.
pub(super) struct Elements {
    pub(super) type_oid: pg_sys::Oid,
    pub(super) length: i16,
    pub(super) by_value: bool,
    pub(super) count: usize,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
}

impl Elements {
    /// `None` if the type is not one of arrays.
    ///
    /// # Safety
    ///
    /// The datum is a value of the type.
    pub(super) unsafe fn of(datum: pg_sys::Datum, array_type: pg_sys::Oid) -> Option<Self> {
        // SAFETY: catalog facts about a type, and the parts of an array of it.
        unsafe {
            let type_oid = pg_sys::get_element_type(array_type);
            if type_oid == pg_sys::InvalidOid {
                return None;
            }
            let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
            let (mut length, mut by_value, mut alignment) = (0i16, false, 0);
            pg_sys::get_typlenbyvalalign(type_oid, &raw mut length, &raw mut by_value, &raw mut alignment);
            let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
            pg_sys::deconstruct_array(
                array,
                type_oid,
                i32::from(length),
                by_value,
                alignment,
                &raw mut values,
                &raw mut nulls,
                &raw mut count,
            );
            let count = count.unsigned_abs() as usize;
            Some(Self { type_oid, length, by_value, count, values, nulls })
        }
    }

    /// The element at a place before `count`, and whether it is NULL.
    ///
    /// # Safety
    ///
    /// The place is one; the memory context of [`Self::of`] is still there.
    pub(super) unsafe fn get(&self, place: usize) -> (pg_sys::Datum, bool) {
        // SAFETY: the caller's.
        unsafe { (*self.values.add(place), *self.nulls.add(place)) }
    }
}
