//! Constants of PostgreSQL as literals of the plan.

use pgrx::{
    FromDatum,
    pg_sys::{self, NodeTag},
};
use pystachio_plan::{DataType, Expression, Interval, Value};

use super::{Lowered, LoweredResult, Refusal, Scale, type_name};
use crate::{
    planner::{
        nodes::{elements, node_as, text_of},
        planning::with_planning,
    },
    types::{EPOCH_DAYS, EPOCH_MICROSECONDS, data_type},
};

/// Elements of a constant array that are worth a place in a plan.
const ARRAY_ITEMS_MAX: usize = 10_000;

/// A constant as a literal.
pub unsafe fn lower_constant(constant: &pg_sys::Const) -> LoweredResult {
    unsafe { lower_datum(constant.constvalue, constant.constisnull, constant.consttype) }
}

/// The elements of a constant array; none if it is NULL, because NULL compared is NULL, which callers
/// would have to say: refused.
pub unsafe fn lower_array_constant(constant: &pg_sys::Const) -> Result<Vec<Lowered>, Refusal> {
    unsafe {
        let (element, items) = deconstruct(constant)?;
        items.into_iter().map(|(value, is_null)| lower_datum(value, is_null, element)).collect()
    }
}

/// The elements of an array that is a constant or made of expressions, as expressions; `None` for another array.
pub unsafe fn array_elements(array: *mut pg_sys::Node) -> Result<Option<Vec<*mut pg_sys::Node>>, Refusal> {
    unsafe {
        if let Some(constant) = node_as::<pg_sys::Const>(array, NodeTag::T_Const) {
            let (element, items) = deconstruct(constant)?;
            let (mut length, mut by_value) = (0i16, false);
            pg_sys::get_typlenbyval(element, &raw mut length, &raw mut by_value);
            let item = |(value, is_null): (pg_sys::Datum, bool)| {
                let (collation, length) = (constant.constcollid, i32::from(length));
                pg_sys::makeConst(element, -1, collation, length, value, is_null, by_value).cast()
            };
            return Ok(Some(items.into_iter().map(item).collect()));
        }
        if let Some(list) = node_as::<pg_sys::ArrayExpr>(array, NodeTag::T_ArrayExpr)
            && !list.multidims
        {
            return Ok(Some(elements::<pg_sys::Node>(list.elements).collect()));
        }
        if let Some(relabel) = node_as::<pg_sys::RelabelType>(array, NodeTag::T_RelabelType) {
            return array_elements(relabel.arg.cast());
        }
        Ok(None)
    }
}

/// The type and the elements of a constant array, each with whether it is NULL.
unsafe fn deconstruct(
    constant: &pg_sys::Const,
) -> Result<(pg_sys::Oid, Vec<(pg_sys::Datum, bool)>), Refusal> {
    unsafe {
        let element = pg_sys::get_element_type(constant.consttype);
        if element == pg_sys::InvalidOid || constant.constisnull {
            return Err(Refusal::new("a NULL array"));
        }
        let array = pg_sys::pg_detoast_datum(constant.constvalue.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let (mut length, mut by_value, mut alignment) = (0i16, false, 0);
        pg_sys::get_typlenbyvalalign(element, &raw mut length, &raw mut by_value, &raw mut alignment);
        let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            element,
            i32::from(length),
            by_value,
            alignment,
            &raw mut values,
            &raw mut nulls,
            &raw mut count,
        );
        if count as usize > ARRAY_ITEMS_MAX {
            return Err(Refusal(format!("an array of {count} elements, more than {ARRAY_ITEMS_MAX}")));
        }
        let items = (0..count as usize).map(|place| (*values.add(place), *nulls.add(place)));
        Ok((element, items.collect()))
    }
}

/// A value of PostgreSQL as a literal.
pub unsafe fn lower_datum(datum: pg_sys::Datum, is_null: bool, type_oid: pg_sys::Oid) -> LoweredResult {
    unsafe {
        if is_null {
            let data_type = match data_type(type_oid, -1) {
                Some(DataType::Numeric) => DataType::Decimal { precision: 1, scale: 0 },
                Some(data_type) => data_type,
                None => return Err(Refusal(format!("a constant of type {}", type_name(type_oid)))),
            };
            let scale = if data_type.is_decimal() { Scale::Fixed(0) } else { Scale::None };
            let expression = Expression::literal(Value::Null, data_type);
            return Ok(Lowered::number(expression, scale, 0.0));
        }
        let plain = |value, data_type| Ok(Lowered::plain(Expression::literal(value, data_type)));
        let integer = |value: i64, data_type| {
            let magnitude = value.unsigned_abs() as f64;
            let expression = Expression::literal(Value::Int(value), data_type);
            Ok(Lowered::number(expression, Scale::None, magnitude))
        };
        match type_oid {
            pg_sys::BOOLOID => plain(Value::Bool(datum.value() as u8 != 0), DataType::Bool),
            pg_sys::INT2OID => integer(i64::from(datum.value() as i16), DataType::Int16),
            pg_sys::INT4OID => integer(i64::from(datum.value() as i32), DataType::Int32),
            pg_sys::INT8OID => integer(datum.value() as i64, DataType::Int64),
            pg_sys::FLOAT4OID => {
                plain(Value::Float(f64::from(f32::from_bits(datum.value() as u32))), DataType::Float32)
            }
            pg_sys::FLOAT8OID => plain(Value::Float(f64::from_bits(datum.value() as u64)), DataType::Float64),
            pg_sys::NUMERICOID => lower_numeric(&text_of(pg_sys::OidOutputFunctionCall(
                pg_sys::Oid::from(pg_sys::F_NUMERIC_OUT),
                datum,
            ))),
            pg_sys::DATEOID => {
                let days = datum.value() as i32;
                let is_infinite = is_infinite(datum, type_oid);
                note_infinity(is_infinite);
                let shift = if is_infinite { 0 } else { i64::from(EPOCH_DAYS) };
                plain(Value::Int(i64::from(days) + shift), DataType::Date)
            }
            pg_sys::TIMEOID => plain(Value::Int(datum.value() as i64), DataType::Time),
            pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => {
                let microseconds = datum.value() as i64;
                let is_infinite = is_infinite(datum, type_oid);
                note_infinity(is_infinite);
                let shift = if is_infinite { 0 } else { EPOCH_MICROSECONDS };
                let Some(shifted) = microseconds.checked_add(shift) else {
                    return Err(Refusal::new("a timestamp after the year 294246"));
                };
                let data_type = if type_oid == pg_sys::TIMESTAMPOID {
                    DataType::Timestamp
                } else {
                    DataType::TimestampTz
                };
                plain(Value::Int(shifted), data_type)
            }
            pg_sys::INTERVALOID => {
                let interval = &*datum.cast_mut_ptr::<pg_sys::Interval>();
                // Engines count nanoseconds.
                if interval.time.checked_mul(1_000).is_none() {
                    return Err(Refusal::new("an interval constant of more than 292 years of hours"));
                }
                let value =
                    Interval { months: interval.month, days: interval.day, microseconds: interval.time };
                plain(Value::Interval(value), DataType::Interval)
            }
            pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => {
                let Some(mut text) = String::from_datum(datum, false) else {
                    return Err(Refusal::new("a text constant that can't be read"));
                };
                if type_oid == pg_sys::BPCHAROID {
                    text.truncate(text.trim_end_matches(' ').len());
                }
                plain(Value::Text(text), DataType::Text)
            }
            pg_sys::BYTEAOID => {
                let Some(bytes) = <Vec<u8>>::from_datum(datum, false) else {
                    return Err(Refusal::new("a bytea constant that can't be read"));
                };
                plain(Value::Bytes(bytes), DataType::Bytea)
            }
            pg_sys::UUIDOID => {
                let bytes = std::slice::from_raw_parts(datum.cast_mut_ptr::<u8>(), 16).to_vec();
                plain(Value::Bytes(bytes), DataType::Uuid)
            }
            _ => Err(Refusal(format!("a constant of type {}", type_name(type_oid)))),
        }
    }
}

/// Whether a value is a date or a timestamp without end.
pub fn is_infinite(datum: pg_sys::Datum, type_oid: pg_sys::Oid) -> bool {
    match type_oid {
        pg_sys::DATEOID => matches!(datum.value() as i32, i32::MIN | i32::MAX),
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => {
            matches!(datum.value() as i64, i64::MIN | i64::MAX)
        }
        _ => false,
    }
}

fn note_infinity(is_infinite: bool) {
    if is_infinite {
        with_planning(|planning| planning.meet_infinity());
    }
}

/// A numeric from the text that PostgreSQL prints, which shows its display scale.
fn lower_numeric(text: &str) -> LoweredResult {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = whole.trim_start_matches('-').chars().chain(fraction.chars()).collect();
    let significant = digits.trim_start_matches('0');
    let unscaled =
        significant.parse::<i128>().or_else(|error| if significant.is_empty() { Ok(0) } else { Err(error) });
    let (Ok(unscaled), true, true) =
        (unscaled, significant.len() <= 38, fraction.len() <= 38 && !digits.is_empty())
    else {
        return Err(Refusal(format!("the numeric constant {text}")));
    };
    let scale = fraction.len();
    let precision = significant.len().max(scale).max(1);
    let value = if text.starts_with('-') { -unscaled } else { unscaled };
    let data_type = DataType::Decimal { precision: precision as u8, scale: scale as u8 };
    let magnitude = unscaled as f64 / 10f64.powi(scale as i32);
    let expression = Expression::literal(Value::Decimal(value), data_type);
    Ok(Lowered::number(expression, Scale::Fixed(scale as i32), magnitude))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Option<(Value, DataType)> {
        match lower_numeric(text).ok()?.expression {
            Expression::Literal(literal) => Some((literal.value, literal.data_type)),
            _ => None,
        }
    }

    #[test]
    fn numerics_keep_their_digits() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        assert_eq!(literal("0.05"), Some((Value::Decimal(5), decimal(2, 2))));
        assert_eq!(literal("-1.50"), Some((Value::Decimal(-150), decimal(3, 2))));
        assert_eq!(literal("0"), Some((Value::Decimal(0), decimal(1, 0))));
        assert_eq!(literal("100"), Some((Value::Decimal(100), decimal(3, 0))));
    }

    #[test]
    fn what_has_no_digits_is_refused() {
        assert_eq!(literal("NaN"), None);
        assert_eq!(literal("Infinity"), None);
        assert_eq!(literal(&"9".repeat(39)), None);
    }
}
