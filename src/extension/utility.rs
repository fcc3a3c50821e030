//! The hook of utility commands.
//!
//! - COPY to a Parquet file runs here, instead of in PostgreSQL (`writing/copy.rs`).
//! - After ANALYZE its count of distinct values is stored (`execution/analyze.rs`).
#![expect(unsafe_code, reason = "installs a hook of PostgreSQL's")]

use std::ffi::c_char;

use pgrx::{pg_sys, prelude::*};

use crate::{execution, pg::hooks, writing};

static mut NEXT_UTILITY: pg_sys::ProcessUtility_hook_type = None;

/// Installs the hook. Called once, when the library is loaded.
pub fn install_hook() {
    // SAFETY: the library is loaded once in a process, before any hook of ours runs.
    unsafe {
        NEXT_UTILITY = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

#[pg_guard]
#[allow(clippy::too_many_arguments, reason = "PostgreSQL's own")]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    is_read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: PostgreSQL's own arguments, handed on; the hook was set before this one.
    unsafe {
        if let Some(row_count) = writing::run_copy(statement, text) {
            if let Some(completion) = completion.as_mut() {
                completion.commandTag = pg_sys::CommandTag::CMDTAG_COPY;
                completion.nprocessed = row_count;
            }
            return;
        }
        let is_analyze = (*(*statement).utilityStmt).type_ == pg_sys::NodeTag::T_VacuumStmt;
        hooks::process_utility(
            NEXT_UTILITY,
            statement,
            text,
            is_read_only,
            context,
            parameters,
            environment,
            receiver,
            completion,
        );
        // Commands within an ANALYZE come before it has written anything.
        if is_analyze {
            execution::store_measured();
        }
    }
}
