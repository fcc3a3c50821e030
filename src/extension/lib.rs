//! The extension: the only code that knows PostgreSQL.
//!
//! ```text
//! backend:   planner ──► scan_private ──► execution ──► client ══► engine process
//! worker:    supervisor ──────────────────────────────── spawns ──►
//! ```
//!
//! - `planner/`: from PostgreSQL's trees to a plan; `scan_private.rs`: what it leaves for the executor
//! - `execution/`: the scan node; `types/`: Arrow to datums, datums to literals and to Arrow
//! - `writing/`: INSERT, COPY FROM, and queries whose rows are written
//! - `client/`: the connection to an engine; `supervisor/`: the worker that keeps engines running
//! - `options.rs`, `settings.rs`, `fdw.rs`: the wrapper, its options and its settings
//! - `file_tables.rs`: files as tables of a session; `functions/`: what SQL can call; `import.rs`: IMPORT FOREIGN SCHEMA, `composites.rs`: the types that it makes
//! - `known_files.rs`: what the session knows of tables' files
//! - `privileges.rs`: which records and counters of engines a role may see
//! - `pg/`: narrow wrappers over `pg_sys`; `pg/compat.rs`: everything that differs between versions
//!
//! Invariants: an error of the engine becomes an ERROR with SQLSTATE, detail and hint (`error.rs`). No
//! code here reads a Parquet file.
//!
//! Functions of C are called through pgrx, or inside a guard. Otherwise an ERROR would jump over
//! frames of Rust, and skip their drops.
//!
//! Deliberately absent: Parquet, DataFusion, CUDA.
#![deny(ffi_unwind_calls)]

use pgrx::prelude::*;

mod client;
mod composites;
mod error;
mod execution;
mod fdw;
mod file_tables;
mod functions;
mod gpu_disable;
mod hosts;
mod import;
mod known_files;
mod options;
mod pg;
mod planner;
mod privileges;
mod scan_private;
mod settings;
mod stores;
mod supervisor;
mod types;
mod utility;
mod writing;

pgrx::pg_module_magic!();

/// Called by PostgreSQL when it loads the library.
#[pg_guard]
extern "C-unwind" fn _PG_init() {
    error::without_backtraces();
    settings::define();
    execution::register_nodes();
    execution::register_callback();
    planner::install_hooks();
    writing::register_callbacks();
    utility::install_hook();
    supervisor::install_hooks();
    supervisor::register_supervisor();
}
