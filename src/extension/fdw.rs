//! The foreign data wrapper: its handler, which the install script in `sql/` declares.
#![expect(unsafe_code, reason = "PostgreSQL calls the handler and reads the routine it returns")]

use pgrx::{pg_sys, prelude::*};

use crate::{execution, import, planner, writing};

/// Declares version 1 of the calling convention for the handler.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_pystachio_handler() -> &'static pg_sys::Pg_finfo_record {
    const VERSION: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &VERSION
}

/// `pystachio.handler()`: the callbacks of the wrapper.
///
/// # Safety
///
/// Called by PostgreSQL.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pystachio_handler(_call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: zeroes are a valid FdwRoutine, in the caller's memory context.
    let routine = unsafe {
        let routine = pg_sys::palloc0(size_of::<pg_sys::FdwRoutine>()).cast::<pg_sys::FdwRoutine>();
        (*routine).type_ = pg_sys::NodeTag::T_FdwRoutine;
        &mut *routine
    };
    planner::fill_routine(routine);
    execution::fill_routine(routine);
    writing::fill_routine(routine);
    routine.ImportForeignSchema = Some(import::import_foreign_schema);
    pg_sys::Datum::from(std::ptr::from_mut(routine))
}
