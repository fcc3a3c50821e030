//! Tables, their columns and their servers, as catalogs have them.

use std::marker::PhantomData;

use pgrx::pg_sys::{self, Oid};

use super::{Routine, entry::is_ours};
use crate::pg::{compat, list};

/// A table that is open. The query that is planned has locked it.
pub struct Table(pg_sys::Relation, PhantomData<*mut ()>);

impl Table {
    /// Opens a table of the query that is planned.
    pub fn open(table_oid: Oid) -> Self {
        // SAFETY: the query has locked the table; an ERROR if there is none.
        Self(unsafe { pg_sys::table_open(table_oid, pg_sys::NoLock as i32) }, PhantomData)
    }

    /// Its columns, dropped ones included.
    pub fn columns(&self) -> Vec<&pg_sys::FormData_pg_attribute> {
        // SAFETY: the descriptor is there as long as the table is open, and does not change.
        unsafe { list::attributes((*self.0).rd_att) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: opened by `open`. After an ERROR PostgreSQL closes what is open itself.
            unsafe { pg_sys::table_close(self.0, pg_sys::NoLock as i32) };
        }
    }
}

/// Locks a table as ALTER TABLE does, until the transaction ends.
pub fn lock_table(table_oid: Oid) {
    // SAFETY: takes a lock; an ERROR if it can't.
    unsafe { pg_sys::LockRelationOid(table_oid, pg_sys::AccessExclusiveLock as i32) };
}

/// The name of a table with its schema, as SQL writes it.
pub fn qualified_name(table_oid: Oid) -> String {
    // SAFETY: looks into catalogs, which give NULL or a string each.
    unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table_oid));
        match schema.is_null() {
            true => format!("table {}", u32::from(table_oid)),
            false => {
                list::string(pg_sys::quote_qualified_identifier(schema, pg_sys::get_rel_name(table_oid)))
            }
        }
    }
}

/// The name of a type with its modifier, as SQL writes it.
pub fn type_name(type_oid: Oid, type_modifier: i32) -> String {
    // SAFETY: a look into a catalog, which gives a string.
    unsafe { list::string(pg_sys::format_type_with_typemod(type_oid, type_modifier)) }
}

/// The name of a table; empty if there is none.
pub fn table_name(table_oid: Oid) -> String {
    // SAFETY: a look into a catalog, which gives NULL or a string.
    unsafe { list::string(pg_sys::get_rel_name(table_oid)) }
}

/// The name of a table's column; empty if there is none.
pub fn column_name(table_oid: Oid, attribute_number: i16) -> String {
    // SAFETY: a look into a catalog, which gives NULL or a string.
    unsafe { list::string(pg_sys::get_attname(table_oid, attribute_number, true)) }
}

/// The type of a table's column.
pub fn column_type(table_oid: Oid, attribute_number: i16) -> Oid {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::get_atttype(table_oid, attribute_number) }
}

/// Whether a table's column is declared NOT NULL.
pub fn column_is_not_null(table_oid: Oid, attribute_number: i16) -> bool {
    let cache = pg_sys::SysCacheIdentifier::ATTNUM as i32;
    // SAFETY: a look into a catalog, whose row is held meanwhile; the query that is planned has locked the table.
    unsafe {
        let row = pg_sys::SearchSysCache2(cache, table_oid.into(), pg_sys::Datum::from(attribute_number));
        if row.is_null() {
            return false;
        }
        let column = pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_attribute>();
        let is_not_null = compat::is_not_null(table_oid, &*column);
        pg_sys::ReleaseSysCache(row);
        is_not_null
    }
}

/// The server of a foreign table.
pub fn server_of(table_oid: Oid) -> Oid {
    // SAFETY: a look into a catalog; an ERROR if it is no foreign table.
    unsafe { (*pg_sys::GetForeignTable(table_oid)).serverid }
}

/// The name of a server.
pub fn server_name(server_oid: Oid) -> String {
    // SAFETY: a look into a catalog, which gives a server or an ERROR.
    unsafe { list::string((*pg_sys::GetForeignServer(server_oid)).servername) }
}

/// Whether the routine table of a server's foreign-data wrapper is the one that this library fills.
pub fn has_our_routine(server_oid: Oid) -> bool {
    // SAFETY: a look into a catalog; the routine table is in the current memory context.
    unsafe { Routine::at(pg_sys::GetFdwRoutineByServerId(server_oid)) }.is_some_and(is_ours)
}
