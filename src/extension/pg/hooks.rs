//! Calls of the hooks that other libraries set before ours.
//!
//! Invariant: every call is inside a guard. An ERROR of the other hook, or of what it calls, becomes a panic there, so that
//! the frames of Rust above it are dropped. Without the guard PostgreSQL would jump over them.
#![expect(unsafe_code, reason = "calls PostgreSQL's function pointers")]
#![expect(ffi_unwind_calls, reason = "every call is inside a guard")]

use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys::{self, ffi::pg_guard_ffi_boundary};

/// Plans a query by the next hook, or by PostgreSQL itself.
///
/// # Safety
///
/// The arguments are those of planner_hook.
pub unsafe fn plan(
    next: pg_sys::planner_hook_type,
    query: *mut pg_sys::Query,
    query_text: *const c_char,
    cursor_options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as the caller says.
    unsafe {
        match next {
            Some(next) => pg_guard_ffi_boundary(|| next(query, query_text, cursor_options, parameters)),
            None => pg_sys::standard_planner(query, query_text, cursor_options, parameters),
        }
    }
}

/// Calls the next set_rel_pathlist_hook, if there is one.
///
/// # Safety
///
/// The arguments are those of set_rel_pathlist_hook.
pub unsafe fn set_rel_pathlist(
    next: pg_sys::set_rel_pathlist_hook_type,
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    index: pg_sys::Index,
    entry: *mut pg_sys::RangeTblEntry,
) {
    if let Some(next) = next {
        // SAFETY: as the caller says.
        unsafe { pg_guard_ffi_boundary(|| next(root, relation, index, entry)) }
    }
}

/// Calls the next set_join_pathlist_hook, if there is one.
///
/// # Safety
///
/// The arguments are those of set_join_pathlist_hook.
pub unsafe fn set_join_pathlist(
    next: pg_sys::set_join_pathlist_hook_type,
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) {
    if let Some(next) = next {
        // SAFETY: as the caller says.
        unsafe { pg_guard_ffi_boundary(|| next(root, joined, outer, inner, join_type, extra)) }
    }
}

/// Calls the next join_search_hook; `None` if there is none.
///
/// # Safety
///
/// The arguments are those of join_search_hook.
pub unsafe fn search_joins(
    next: pg_sys::join_search_hook_type,
    root: *mut pg_sys::PlannerInfo,
    levels_needed: c_int,
    initial: *mut pg_sys::List,
) -> Option<*mut pg_sys::RelOptInfo> {
    // SAFETY: as the caller says.
    next.map(|next| unsafe { pg_guard_ffi_boundary(|| next(root, levels_needed, initial)) })
}

/// Calls the next get_relation_stats_hook; false if there is none.
///
/// # Safety
///
/// The arguments are those of get_relation_stats_hook.
pub unsafe fn relation_stats(
    next: pg_sys::get_relation_stats_hook_type,
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute_number: pg_sys::AttrNumber,
    variable: *mut pg_sys::VariableStatData,
) -> bool {
    // SAFETY: as the caller says.
    next.is_some_and(|next| unsafe {
        pg_guard_ffi_boundary(|| next(root, entry, attribute_number, variable))
    })
}

/// Starts the executor by the next hook, or by PostgreSQL itself.
///
/// # Safety
///
/// The arguments are those of ExecutorStart_hook.
pub unsafe fn start_executor(
    next: pg_sys::ExecutorStart_hook_type,
    query: *mut pg_sys::QueryDesc,
    flags: c_int,
) {
    // SAFETY: as the caller says.
    unsafe {
        match next {
            Some(next) => pg_guard_ffi_boundary(|| next(query, flags)),
            None => pg_sys::standard_ExecutorStart(query, flags),
        }
    }
}

/// Runs a utility command by the next hook, or by PostgreSQL itself.
///
/// # Safety
///
/// The arguments are those of ProcessUtility_hook.
#[expect(clippy::too_many_arguments, reason = "PostgreSQL's own")]
pub unsafe fn process_utility(
    next: pg_sys::ProcessUtility_hook_type,
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    is_read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: as the caller says.
    unsafe {
        match next {
            Some(next) => pg_guard_ffi_boundary(|| {
                next(statement, text, is_read_only, context, parameters, environment, receiver, completion)
            }),
            None => pg_sys::standard_ProcessUtility(
                statement,
                text,
                is_read_only,
                context,
                parameters,
                environment,
                receiver,
                completion,
            ),
        }
    }
}

/// Calls the next object_access_hook, if there is one.
///
/// # Safety
///
/// The arguments are those of object_access_hook.
pub unsafe fn access_object(
    next: pg_sys::object_access_hook_type,
    access: pg_sys::ObjectAccessType::Type,
    class_oid: pg_sys::Oid,
    object_oid: pg_sys::Oid,
    column: c_int,
    argument: *mut c_void,
) {
    if let Some(next) = next {
        // SAFETY: as the caller says.
        unsafe { pg_guard_ffi_boundary(|| next(access, class_oid, object_oid, column, argument)) }
    }
}
