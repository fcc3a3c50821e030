//! Which plan type a PostgreSQL type is.
#![expect(unsafe_code, reason = "reads PostgreSQL's catalogs")]

use pgrx::pg_sys;
use pystachio_plan::{ColumnDescription, ColumnId, DataType, ScanColumn};

use crate::{
    options,
    pg::{compat, mirror::source_type},
};

/// Bytes of the length word that type modifiers of character types include.
const TYPMOD_OFFSET: i32 = 4;
/// The digits that a bare `numeric` of unknown files may have.
const NUMERIC_DIGITS_MAX: u8 = 38;

/// The plan type of a PostgreSQL type, or `None` if there is none.
pub fn data_type(type_oid: pg_sys::Oid, type_modifier: i32) -> Option<DataType> {
    source_type(type_oid).data_type_with(type_modifier)
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
        _ => whole(NUMERIC_DIGITS_MAX),
    }
}
