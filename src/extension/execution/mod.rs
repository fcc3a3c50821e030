//! The scan node: running a plan in the engine and giving its rows to PostgreSQL.
//!
//! - `scan.rs`: the executor's callbacks; `query.rs`: one running query; `parameters.rs`: its parameters;
//!   `limits.rs`: LIMIT and OFFSET below zero
//! - `kept_rows.rs`: the rows of scans that are read again; `lookup.rs`: those of scans that are asked for key after key
//! - `by_keys.rs`: a plan for one key after another as one for many; `coming.rs`: which keys come next
//! - `keyed_join.rs`: the nodes of joins that filter a scan by the keys of their other side; `send_rows.rs`: the node that sends
//!   rows of PostgreSQL's; `custom_node.rs`: what these have in common
//! - `temp_files.rs`: spill files as the session's temporary files
//! - `explain.rs`: what EXPLAIN shows; `analyze.rs`: sampling for ANALYZE
//!
//! Invariants: a query starts when its first row is wanted, and its connection is closed as soon as its
//! rows are not wanted any more: at the end of the scan, of the transaction, or of the cursor.
//!
//! Deliberately absent: planning. What is run was decided when the plan was made.

mod analyze;
mod by_keys;
mod coming;
mod custom_node;
mod explain;
mod kept_rows;
mod keyed_join;
mod limits;
mod lookup;
mod parameters;
mod query;
mod scan;
mod send_rows;
mod temp_files;

use pgrx::pg_sys;

pub use analyze::{register_callback, store_measured};
pub use coming::link_scans;
pub use explain::Writer as ExplainWriter;
pub use keyed_join::{JOIN_KEYS_SCAN, KEYED_JOIN_SCAN};
pub use query::RunningQuery;
pub use scan::{is_whole_query, run_early, whole_query, write_instead, written_files};
pub use send_rows::SEND_ROWS_SCAN;
pub use temp_files::request as spill_request;

/// Makes our nodes known to PostgreSQL. Called once, when the library is loaded.
#[expect(unsafe_code, reason = "PostgreSQL keeps pointers to methods")]
pub fn register_nodes() {
    for methods in [&KEYED_JOIN_SCAN.0, &JOIN_KEYS_SCAN.0, &SEND_ROWS_SCAN.0] {
        // SAFETY: the structure lives for ever.
        unsafe { pg_sys::RegisterCustomScanMethods(methods) }
    }
}

/// Sets the executor's callbacks.
pub fn fill_routine(routine: &mut pg_sys::FdwRoutine) {
    routine.BeginForeignScan = Some(scan::begin_foreign_scan);
    routine.IterateForeignScan = Some(scan::iterate_foreign_scan);
    routine.ReScanForeignScan = Some(scan::rescan_foreign_scan);
    routine.EndForeignScan = Some(scan::end_foreign_scan);
    routine.ShutdownForeignScan = Some(scan::shutdown_foreign_scan);
    routine.ExplainForeignScan = Some(explain::explain_foreign_scan);
    routine.AnalyzeForeignTable = Some(analyze::analyze_foreign_table);
}

/// Whether the server's wrapper has the callbacks of this library.
#[expect(unsafe_code, reason = "asks a wrapper for its callbacks")]
pub fn is_our_server(server_oid: pg_sys::Oid) -> bool {
    // SAFETY: the routine of a server that exists, or an ERROR if its wrapper has no handler.
    let routine = unsafe { &*pg_sys::GetFdwRoutineByServerId(server_oid) };
    let ours: unsafe extern "C-unwind" fn(*mut pg_sys::ForeignScanState) = scan::end_foreign_scan;
    routine.EndForeignScan.is_some_and(|end| std::ptr::fn_addr_eq(end, ours))
}
