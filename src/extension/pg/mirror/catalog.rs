//! Types and functions of the catalogs.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{ArrayType, CatalogFunction, SourceType};

use crate::{pg::list::string, types::base_type};

thread_local! {
    // Only what initdb made is kept: its oids never change meaning.
    static FUNCTIONS: RefCell<HashMap<pg_sys::Oid, Rc<CatalogFunction>>> = RefCell::default();
    static TYPES: RefCell<HashMap<pg_sys::Oid, SourceType>> = RefCell::default();
}

/// A type as lowering takes it: a domain is the type that it is of in the end.
pub fn source_type(type_oid: pg_sys::Oid) -> SourceType {
    match type_oid {
        pg_sys::BOOLOID => SourceType::Bool,
        pg_sys::INT2OID => SourceType::SmallInt,
        pg_sys::INT4OID => SourceType::Integer,
        pg_sys::INT8OID => SourceType::BigInt,
        pg_sys::FLOAT4OID => SourceType::Real,
        pg_sys::FLOAT8OID => SourceType::Double,
        pg_sys::NUMERICOID => SourceType::Numeric,
        pg_sys::DATEOID => SourceType::Date,
        pg_sys::TIMEOID => SourceType::Time,
        pg_sys::TIMESTAMPOID => SourceType::Timestamp,
        pg_sys::TIMESTAMPTZOID => SourceType::TimestampTz,
        pg_sys::INTERVALOID => SourceType::Interval,
        pg_sys::TEXTOID | pg_sys::UNKNOWNOID => SourceType::Text,
        pg_sys::VARCHAROID => SourceType::Varchar,
        pg_sys::BPCHAROID => SourceType::Character,
        pg_sys::JSONOID => SourceType::Json,
        pg_sys::JSONBOID => SourceType::from_text("jsonb"),
        pg_sys::NAMEOID => SourceType::Name,
        pg_sys::BYTEAOID => SourceType::Bytea,
        pg_sys::UUIDOID => SourceType::Uuid,
        _ if is_of_initdb(type_oid) => {
            if let Some(known) = TYPES.with_borrow(|known| known.get(&type_oid).cloned()) {
                return known;
            }
            let found = look_up_type(type_oid);
            TYPES.with_borrow_mut(|known| known.insert(type_oid, found.clone()));
            found
        }
        _ => look_up_type(type_oid),
    }
}

fn look_up_type(type_oid: pg_sys::Oid) -> SourceType {
    let name = type_name(type_oid);
    if type_oid == pg_sys::InvalidOid {
        return SourceType::other(name);
    }
    let (base_oid, _) = base_type(type_oid, -1);
    if base_oid != type_oid {
        return source_type(base_oid);
    }
    // SAFETY: a catalog lookup that answers InvalidOid for what is no array.
    let element = unsafe { pg_sys::get_element_type(type_oid) };
    if element != pg_sys::InvalidOid {
        return SourceType::Array(Rc::new(ArrayType { name, item: source_type(element) }));
    }
    // SAFETY: a catalog lookup, which returns false if no type has the number.
    match unsafe { pg_sys::type_is_enum(type_oid) } {
        true => SourceType::from_text(name),
        false => SourceType::other(name),
    }
}

/// A function as lowering takes it.
pub(super) fn function(function_oid: pg_sys::Oid) -> Rc<CatalogFunction> {
    if !is_of_initdb(function_oid) {
        return Rc::new(CatalogFunction::user_defined(function_name(function_oid)));
    }
    if let Some(known) = FUNCTIONS.with_borrow(|known| known.get(&function_oid).cloned()) {
        return known;
    }
    let found = Rc::new(CatalogFunction::builtin(function_name(function_oid)));
    FUNCTIONS.with_borrow_mut(|known| known.insert(function_oid, found.clone()));
    found
}

/// Whether a function is PostgreSQL's own of this name.
pub fn is_builtin(function_oid: pg_sys::Oid, name: &str) -> bool {
    is_of_initdb(function_oid) && function_name(function_oid) == name
}

fn is_of_initdb(oid: pg_sys::Oid) -> bool {
    u32::from(oid) < pg_sys::FirstNormalObjectId
}

/// PostgreSQL's name of a type.
pub fn type_name(type_oid: pg_sys::Oid) -> String {
    // SAFETY: a catalog lookup, which gives a C string for every oid.
    unsafe { string(pg_sys::format_type_be(type_oid)) }
}

/// PostgreSQL's name of a type with a modifier.
pub fn type_name_with(type_oid: pg_sys::Oid, type_modifier: i32) -> String {
    // SAFETY: as above.
    unsafe { string(pg_sys::format_type_with_typemod(type_oid, type_modifier)) }
}

/// PostgreSQL's name of a function.
pub fn function_name(function_oid: pg_sys::Oid) -> String {
    // SAFETY: a catalog lookup, which gives a C string, or NULL.
    unsafe { string(pg_sys::get_func_name(function_oid)) }
}
