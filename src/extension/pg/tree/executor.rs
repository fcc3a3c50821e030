//! Statements as the executor runs them, and where PostgreSQL calls us before it starts one.
//!
//! Invariant: nodes of the executor are reached only through [`Started`], which is there between the start and the end.

use std::{ffi::c_int, sync::OnceLock};

use pgrx::{pg_sys, prelude::*};

use super::{Query, Ref, Statement, fields::fields};
use crate::pg::hooks;

/// A statement that is to be run, with what it is run with.
pub type Execution<'p> = Ref<'p, pg_sys::QueryDesc>;

fields! { 'p QueryDesc {
    plannedstmt as statement: Statement<'p>;
    plannedstmt = set_statement: Statement<'p>;
    instrument_options as instrument_options: i32;
} }

/// What ExecutorStart_hook was called with.
pub struct ExecutorCall<'p> {
    /// The statement.
    pub execution: Execution<'p>,
    /// `EXEC_FLAG_…`.
    pub flags: i32,
}

/// A statement whose executor has started, and has not ended.
pub struct Started<'p>(Execution<'p>);

/// Runs in the place of the executor's start, and calls [`ExecutorCall::start`].
pub type StartExecutor = for<'p> fn(&ExecutorCall<'p>);

static START: OnceLock<StartExecutor> = OnceLock::new();
static mut NEXT_EXECUTOR_START: pg_sys::ExecutorStart_hook_type = None;

/// Puts our hook before those that are there. Called once, when the library is loaded.
pub fn install_executor_start(start: StartExecutor) {
    if START.set(start).is_err() {
        return;
    }
    // SAFETY: PostgreSQL reads and writes these on the one thread of the process, on which this runs.
    unsafe {
        NEXT_EXECUTOR_START = pg_sys::ExecutorStart_hook;
        pg_sys::ExecutorStart_hook = Some(start_executor);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn start_executor(query: *mut pg_sys::QueryDesc, flags: c_int) {
    // SAFETY: PostgreSQL's argument, for the time of this call.
    let call = ExecutorCall { execution: unsafe { Ref::known(query) }, flags };
    match START.get() {
        Some(start) => start(&call),
        None => {
            call.start();
        }
    }
}

impl<'p> ExecutorCall<'p> {
    /// Starts the executor with the other libraries and PostgreSQL.
    pub fn start(&self) -> Started<'p> {
        // SAFETY: what ExecutorStart_hook was called with.
        unsafe { hooks::start_executor(NEXT_EXECUTOR_START, self.execution.pointer(), self.flags) };
        Started(self.execution)
    }
}

impl Started<'_> {
    /// The statement, whose executor has set up its nodes.
    pub fn pointer(&self) -> *mut pg_sys::QueryDesc {
        self.0.pointer()
    }

    /// Ends the executor. Hooks of other libraries are not called.
    pub fn end_without_hooks(self) {
        // SAFETY: the executor has started, and no node is used after this.
        unsafe {
            pg_sys::standard_ExecutorFinish(self.0.pointer());
            pg_sys::standard_ExecutorEnd(self.0.pointer());
        }
    }
}

impl<'p> Execution<'p> {
    /// Plans a query of the statement's text, with the values of its parameters if `has_values`. The query is used up.
    pub fn plan(self, query: Query<'p>, cursor_options: i32, has_values: bool) -> Statement<'p> {
        // SAFETY: the text, the values and the snapshot are those that the statement is run with.
        unsafe {
            let execution = self.pointer();
            let values = if has_values { (*execution).params } else { std::ptr::null_mut() };
            // The planner may evaluate stable functions.
            let needs_snapshot = !pg_sys::ActiveSnapshotSet();
            if needs_snapshot {
                pg_sys::PushActiveSnapshot((*execution).snapshot);
            }
            let statement = pg_sys::planner(query.pointer(), (*execution).sourceText, cursor_options, values);
            if needs_snapshot {
                pg_sys::PopActiveSnapshot();
            }
            Ref::known(statement)
        }
    }
}

/// Whether this process runs a part of another backend's statement.
pub fn is_parallel_worker() -> bool {
    // SAFETY: PostgreSQL writes it before the process runs a statement.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}
