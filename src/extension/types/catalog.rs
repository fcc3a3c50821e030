//! Which plan type a PostgreSQL type is.
#![expect(unsafe_code, reason = "reads PostgreSQL's catalogs")]

use pgrx::pg_sys;
use pystachio_plan::{ColumnId, DataType, ScanColumn};

use crate::options;

/// Bytes of the length word that typmods of character types and numeric include.
const TYPMOD_OFFSET: i32 = 4;
/// The most digits a `numeric(p,s)` may have to be held exactly.
const NUMERIC_DIGITS_MAX: i32 = 38;

/// The plan type that holds every value of a column of this PostgreSQL type, or `None` if there is none.
///
/// A `numeric` without precision and scale, or with more than 38 digits or a negative scale, has none.
pub fn data_type(type_oid: pg_sys::Oid, type_modifier: i32) -> Option<DataType> {
    Some(match type_oid {
        pg_sys::BOOLOID => DataType::Bool,
        pg_sys::INT2OID => DataType::Int16,
        pg_sys::INT4OID => DataType::Int32,
        pg_sys::INT8OID => DataType::Int64,
        pg_sys::FLOAT4OID => DataType::Float32,
        pg_sys::FLOAT8OID => DataType::Float64,
        pg_sys::NUMERICOID => numeric_type(type_modifier)?,
        pg_sys::DATEOID => DataType::Date,
        pg_sys::TIMEOID => DataType::Time,
        pg_sys::TIMESTAMPOID => DataType::Timestamp,
        pg_sys::TIMESTAMPTZOID => DataType::TimestampTz,
        pg_sys::INTERVALOID => DataType::Interval,
        pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID | pg_sys::JSONOID => DataType::Text,
        pg_sys::BYTEAOID => DataType::Bytea,
        pg_sys::UUIDOID => DataType::Uuid,
        _ => {
            // SAFETY: a catalog lookup that answers InvalidOid for what is no array.
            let element = unsafe { pg_sys::get_element_type(type_oid) };
            if element == pg_sys::InvalidOid {
                return None;
            }
            DataType::List(Box::new(data_type(element, type_modifier)?))
        }
    })
}

/// How a scan reads a column of a foreign table, or `None` if its type can't be read.
pub fn scan_column(
    relation_oid: pg_sys::Oid,
    attribute: &pg_sys::FormData_pg_attribute,
    id: ColumnId,
) -> Option<ScanColumn> {
    let has_length = matches!(attribute.atttypid, pg_sys::VARCHAROID | pg_sys::BPCHAROID)
        && attribute.atttypmod >= TYPMOD_OFFSET;
    Some(ScanColumn {
        id,
        name: options::column_name(relation_oid, attribute.attnum),
        data_type: data_type(attribute.atttypid, attribute.atttypmod)?,
        not_null: attribute.attnotnull,
        length_max: has_length.then(|| (attribute.atttypmod - TYPMOD_OFFSET).unsigned_abs()),
        trim_blanks: attribute.atttypid == pg_sys::BPCHAROID,
    })
}

fn numeric_type(type_modifier: i32) -> Option<DataType> {
    let packed = type_modifier - TYPMOD_OFFSET;
    if packed < 0 {
        return None;
    }
    let precision = packed >> 16 & 0xffff;
    // Eleven bits with a sign: PostgreSQL allows scales from -1000 to 1000.
    let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
    (precision <= NUMERIC_DIGITS_MAX && (0..=precision).contains(&scale))
        .then_some(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}
