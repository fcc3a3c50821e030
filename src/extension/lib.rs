//! The extension: the only code that knows PostgreSQL.
use pgrx::prelude::*;

mod scan_private;

pgrx::pg_module_magic!();
