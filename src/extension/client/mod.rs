//! The connection from a backend to its engine.

use pgrx::pg_sys;
use pystachio_plan::{Error, ErrorKind, FileSet, Result, TableDescription};

/// Describes tables from the footers of their files.
///
/// # Errors
///
/// Those of reaching the engine; inside, those of each table.
pub fn describe(server_oid: pg_sys::Oid, tables: &[FileSet]) -> Result<Vec<Result<TableDescription>>> {
    let message = format!("engine of server {server_oid} is not running: tables={}", tables.len());
    Err(Error::new(ErrorKind::Unavailable, message))
}
