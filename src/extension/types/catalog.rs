//! Which plan type a PostgreSQL type is.
#![expect(unsafe_code, reason = "reads PostgreSQL's catalogs")]

use pgrx::pg_sys;
use pystachio_plan::{ColumnDescription, ColumnId, DataType, ScanColumn};

use crate::{options, pg::compat};

/// Bytes of the length word that typmods of character types and numeric include.
const TYPMOD_OFFSET: i32 = 4;
/// The most digits a `numeric(p,s)` may have to be held exactly.
const NUMERIC_DIGITS_MAX: i32 = 38;

/// The plan type of a PostgreSQL type, or `None` if there is none: `numeric` with more than 38 digits or a
/// negative scale has none. `numeric` without a scale is [`DataType::Numeric`].
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

/// How a scan reads a column of a foreign table, or `None` if its type can't be read. `described` is the
/// column in the files: the scale of a bare `numeric` is theirs.
pub fn scan_column(
    relation_oid: pg_sys::Oid,
    attribute: &pg_sys::FormData_pg_attribute,
    id: ColumnId,
    described: Option<&ColumnDescription>,
) -> Option<ScanColumn> {
    let has_length = matches!(attribute.atttypid, pg_sys::VARCHAROID | pg_sys::BPCHAROID)
        && attribute.atttypmod > TYPMOD_OFFSET;
    let data_type = match data_type(attribute.atttypid, attribute.atttypmod)? {
        DataType::Numeric => file_numeric(described),
        DataType::List(item) if *item == DataType::Numeric => match described?.data_type.clone()? {
            DataType::List(item) if item.is_decimal() => DataType::List(item),
            _ => return None,
        },
        declared => declared,
    };
    Some(ScanColumn {
        id,
        name: options::column_name(relation_oid, attribute.attnum),
        data_type,
        // SAFETY: the caller holds a lock on the table.
        not_null: unsafe { compat::is_not_null(relation_oid, attribute) },
        length_max: has_length.then(|| (attribute.atttypmod - TYPMOD_OFFSET).unsigned_abs()),
        trim_blanks: attribute.atttypid == pg_sys::BPCHAROID,
        common: Vec::new(),
    })
}

/// The decimal that a bare `numeric` column holds.
fn file_numeric(described: Option<&ColumnDescription>) -> DataType {
    let whole = |precision| DataType::Decimal { precision, scale: 0 };
    match described.and_then(|column| column.data_type.clone()) {
        Some(decimal @ DataType::Decimal { .. }) => decimal,
        Some(DataType::Int16) => whole(5),
        Some(DataType::Int32) => whole(10),
        Some(DataType::Int64) => whole(19),
        _ => whole(NUMERIC_DIGITS_MAX as u8),
    }
}

fn numeric_type(type_modifier: i32) -> Option<DataType> {
    let Some((precision, scale)) = numeric_modifier(type_modifier) else { return Some(DataType::Numeric) };
    // PostgreSQL allows a scale beyond the precision: numeric(2,4) holds up to 0.0099.
    let precision = precision.max(scale);
    (precision <= NUMERIC_DIGITS_MAX && scale >= 0)
        .then_some(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}

/// Precision and scale from a numeric's type modifier; `None` if it has neither.
pub fn numeric_modifier(type_modifier: i32) -> Option<(i32, i32)> {
    let packed = type_modifier - TYPMOD_OFFSET;
    if packed < 0 {
        return None;
    }
    // Eleven bits with a sign: PostgreSQL allows scales from -1000 to 1000.
    Some(((packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 0x400) - 0x400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_modifiers_are_read() {
        assert_eq!(numeric_modifier(((15 << 16) | 2) + 4), Some((15, 2)));
        assert_eq!(numeric_modifier(((5 << 16) | (0x7ff & -2i32)) + 4), Some((5, -2)));
        assert_eq!(numeric_modifier(-1), None);
    }
}
