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

/// The plan type of a PostgreSQL type, for a domain that of its own type, or `None` if there is none.
pub fn data_type(type_oid: pg_sys::Oid, type_modifier: i32) -> Option<DataType> {
    let (base_oid, base_modifier) = base_type(type_oid, type_modifier);
    // SAFETY: a catalog lookup that answers InvalidOid for what is no array.
    let element = unsafe { pg_sys::get_element_type(base_oid) };
    if element != pg_sys::InvalidOid {
        return Some(DataType::List(Box::new(data_type(element, base_modifier)?)));
    }
    source_type(base_oid).data_type_with(base_modifier)
}

/// The type that a domain is of in the end, with that type's modifier; any other type as it is.
pub fn base_type(type_oid: pg_sys::Oid, type_modifier: i32) -> (pg_sys::Oid, i32) {
    // Types of pg_type.dat are no domains.
    if u32::from(type_oid) < pg_sys::FirstGenbkiObjectId {
        return (type_oid, type_modifier);
    }
    // A value of a domain has no modifier of its own.
    let mut base_modifier = -1;
    // SAFETY: a catalog lookup that takes and sets a modifier.
    let base_oid = unsafe { pg_sys::getBaseTypeAndTypmod(type_oid, &mut base_modifier) };
    if base_oid == type_oid { (type_oid, type_modifier) } else { (base_oid, base_modifier) }
}

/// How a scan reads a column of a foreign table, or `None` if its type can't be read. `described` is the
/// column in the files: the scale of a bare `numeric` is theirs.
pub fn scan_column(
    relation_oid: pg_sys::Oid,
    attribute: &pg_sys::FormData_pg_attribute,
    id: ColumnId,
    described: Option<&ColumnDescription>,
) -> Option<ScanColumn> {
    let (type_oid, type_modifier) = base_type(attribute.atttypid, attribute.atttypmod);
    let has_length =
        matches!(type_oid, pg_sys::VARCHAROID | pg_sys::BPCHAROID) && type_modifier > TYPMOD_OFFSET;
    let data_type = match data_type(type_oid, type_modifier)? {
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
        length_max: has_length.then(|| (type_modifier - TYPMOD_OFFSET).unsigned_abs()),
        trim_blanks: type_oid == pg_sys::BPCHAROID,
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
