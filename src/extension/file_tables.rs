//! `pystachio.read_parquet`: files as a table, without one that was made before.
//!
//! PostgreSQL plans foreign tables of its catalogs only. So the planner puts a temporary foreign
//! table in the place of the call (`planner/file_calls.rs`), and plans it as any other table. The
//! session makes one such table for each path with its columns.
//!
//! The function itself reads the files if the planner does not see the path (a parameter, a column
//! of another table), or if the call has loaded the library.
//!
//! Invariants: the role that makes a table may read the server's files, may use the server, and may make temporary tables; the
//! foreign-data wrapper's validator and PostgreSQL check that. Other roles of the session have no rights on it.
#![expect(unsafe_code, reason = "runs a statement by SPI and looks into catalogs")]

use std::{cell::RefCell, collections::HashMap, ffi::CString, ptr};

use pgrx::{AnyElement, pg_sys, prelude::*};
use pystachio_plan::{Error, ErrorKind, Result};

use crate::{
    error::OrRaise,
    import, options,
    pg::{encoding, list},
};

/// Rows that the function has in memory at once, besides its result.
const ROWS_AT_ONCE: i64 = 1024;

/// A column that a call of the function declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredColumn {
    /// Its name, which is the name in the files.
    pub name: String,
    /// Its type.
    pub type_oid: pg_sys::Oid,
    /// The type's modifier.
    pub type_modifier: i32,
    /// Its collation, if it is not the type's.
    pub collation: pg_sys::Oid,
}

/// What tables of the session are known by: the role that made them, the server, the path and the columns' definitions.
type TableKey = (pg_sys::Oid, String, String, String);

thread_local! {
    static TABLES: RefCell<HashMap<TableKey, (pg_sys::Oid, CString)>> = RefCell::default();
}

/// The columns of a row type.
///
/// # Errors
///
/// `InvalidArgument` if it has dropped columns, whose places a new table can't have.
pub fn columns_of_type(type_oid: pg_sys::Oid) -> Result<Vec<DeclaredColumn>> {
    // SAFETY: a copy of a row type's descriptor, or an ERROR.
    columns_of(unsafe { pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1) })
}

fn columns_of(descriptor: pg_sys::TupleDesc) -> Result<Vec<DeclaredColumn>> {
    // SAFETY: the caller's descriptor is valid.
    let attributes = unsafe { list::attributes(descriptor) };
    let columns = attributes.into_iter().map(|attribute| {
        if attribute.attisdropped {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the row type of read_parquet_as has dropped columns",
            )
            .with_hint("Use read_parquet with a column definition list, or CREATE TYPE with the columns."));
        }
        Ok(DeclaredColumn {
            // SAFETY: a name is a C string.
            name: unsafe { list::string(attribute.attname.data.as_ptr()) },
            type_oid: attribute.atttypid,
            type_modifier: attribute.atttypmod,
            collation: attribute.attcollation,
        })
    });
    columns.collect()
}

/// The temporary foreign table of a path, which is made if the session has none. It is locked for reading.
///
/// # Errors
///
/// Text that the database's encoding lacks. What PostgreSQL refuses is raised.
pub fn table_of(path: &str, server: &str, columns: &[DeclaredColumn]) -> Result<pg_sys::Oid> {
    options::require_read_server_files("read Parquet files");
    // SAFETY: reads a variable.
    let role = unsafe { pg_sys::GetUserId() };
    let key = (role, server.to_owned(), path.to_owned(), definitions(columns));
    let known = TABLES.with_borrow(|tables| tables.get(&key).cloned());
    if let Some((table_oid, name)) = known {
        // SAFETY: takes a lock, and looks into catalogs. The table may have been dropped before the lock was taken.
        unsafe {
            pg_sys::LockRelationOid(table_oid, pg_sys::AccessShareLock as i32);
            if temporary_table(&name) == table_oid {
                return Ok(table_oid);
            }
            pg_sys::UnlockRelationOid(table_oid, pg_sys::AccessShareLock as i32);
        }
    }
    let name = free_name();
    let (_, server, path, columns) = &key;
    let statement = format!(
        "CREATE FOREIGN TABLE pg_temp.{} ({columns}) SERVER {} OPTIONS (path {})",
        name.to_string_lossy(),
        import::quote_identifier(server),
        import::quote_literal(path)
    );
    run(&statement)?;
    // SAFETY: looks into catalogs.
    let table_oid = unsafe { temporary_table(&name) };
    TABLES.with_borrow_mut(|tables| tables.insert(key, (table_oid, name)));
    Ok(table_oid)
}

/// A table of this name among the session's temporary ones; invalid if there is none.
unsafe fn temporary_table(name: &CString) -> pg_sys::Oid {
    // SAFETY: looks into catalogs. PostgreSQL gives no namespace where the session has made no temporary table yet.
    unsafe {
        let namespace = pg_sys::LookupExplicitNamespace(c"pg_temp".as_ptr(), true);
        match namespace {
            pg_sys::InvalidOid => pg_sys::InvalidOid,
            namespace => pg_sys::get_relname_relid(name.as_ptr(), namespace),
        }
    }
}

fn free_name() -> CString {
    let is_free = |name: &CString| {
        // SAFETY: looks into catalogs.
        unsafe { temporary_table(name) == pg_sys::InvalidOid }
    };
    (1..)
        .map(|number| CString::new(format!("read_parquet_{number}")).unwrap_or_default())
        .find(is_free)
        .unwrap_or_default()
}

/// The columns as SQL declares them.
fn definitions(columns: &[DeclaredColumn]) -> String {
    let definition = |column: &DeclaredColumn| {
        // SAFETY: looks into catalogs; the results are C strings.
        let (sql_type, collation) = unsafe {
            let flags = pg_sys::FORMAT_TYPE_TYPEMOD_GIVEN | pg_sys::FORMAT_TYPE_FORCE_QUALIFY;
            let sql_type = pg_sys::format_type_extended(column.type_oid, column.type_modifier, flags as _);
            let is_own = column.collation != pg_sys::InvalidOid
                && column.collation != pg_sys::get_typcollation(column.type_oid);
            let collation = is_own.then(|| list::string(pg_sys::generate_collation_name(column.collation)));
            (list::string(sql_type), collation)
        };
        let collation = collation.map_or_else(String::new, |name| format!(" COLLATE {name}"));
        format!("{} {sql_type}{collation}", import::quote_identifier(&column.name))
    };
    columns.iter().map(definition).collect::<Vec<_>>().join(", ")
}

/// Runs a statement that gives no rows.
///
/// # Errors
///
/// `InvalidArgument` for text that the database's encoding lacks.
pub fn run(statement: &str) -> Result<()> {
    let text = server_text(statement)?;
    // SAFETY: SPI is connected around the statement; an ERROR ends both.
    unsafe {
        pg_sys::SPI_connect();
        pg_sys::SPI_execute(text.as_ptr(), false, 0);
        pg_sys::SPI_finish();
    }
    Ok(())
}

fn server_text(text: &str) -> Result<CString> {
    let text = encoding::to_server(text.as_bytes())?;
    CString::new(text).map_err(|_| Error::new(ErrorKind::InvalidArgument, "a name has a zero byte"))
}

/// `read_parquet(path, server)`: what the planner could not replace.
#[pg_extern(sql = false)]
fn read_parquet(path: &[u8], server: &[u8], fcinfo: pg_sys::FunctionCallInfo) {
    read(path, server, fcinfo).or_raise();
}

/// `read_parquet_as(row, path, server)`: the same.
#[pg_extern(sql = false)]
fn read_parquet_as(
    _row: Option<AnyElement>,
    path: Option<&[u8]>,
    server: Option<&[u8]>,
    fcinfo: pg_sys::FunctionCallInfo,
) {
    if let (Some(path), Some(server)) = (path, server) {
        read(path, server, fcinfo).or_raise();
    } else {
        // SAFETY: as in `read`.
        unsafe { pg_sys::InitMaterializedSRF(fcinfo, pg_sys::MAT_SRF_USE_EXPECTED_DESC) };
    }
}

fn read(path: &[u8], server: &[u8], fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    let (path, server) = (encoding::argument(path)?, encoding::argument(server)?);
    // SAFETY: PostgreSQL calls a function with information about the call, which lives as long as the call. It raises an
    // error where the caller can't take rows.
    let result = unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, pg_sys::MAT_SRF_USE_EXPECTED_DESC);
        &*(*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>()
    };
    let table_oid = table_of(&path, &server, &columns_of(result.setDesc)?)?;
    // SAFETY: a name of a relation that is locked.
    let name = unsafe { list::string(pg_sys::get_rel_name(table_oid)) };
    let text = server_text(&format!("SELECT * FROM pg_temp.{name}"))?;
    // SAFETY: SPI is connected around the cursor, whose rows go into the tuplestore of the call: they have its columns.
    unsafe {
        pg_sys::SPI_connect();
        let (types, values) = (ptr::null_mut(), ptr::null_mut());
        let cursor = pg_sys::SPI_cursor_open_with_args(
            ptr::null(),
            text.as_ptr(),
            0,
            types,
            values,
            ptr::null(),
            true,
            0,
        );
        loop {
            pg_sys::SPI_cursor_fetch(cursor, true, ROWS_AT_ONCE);
            let count = pg_sys::SPI_processed as usize;
            for place in 0..count {
                pg_sys::tuplestore_puttuple(result.setResult, *(*pg_sys::SPI_tuptable).vals.add(place));
            }
            pg_sys::SPI_freetuptable(pg_sys::SPI_tuptable);
            if count == 0 {
                break;
            }
        }
        pg_sys::SPI_cursor_close(cursor);
        pg_sys::SPI_finish();
    }
    Ok(())
}
