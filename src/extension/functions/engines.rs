//! Looking at engines and their caches.

use pgrx::{pg_sys, prelude::*};

use crate::{
    client,
    error::OrRaise,
    options, privileges,
    supervisor::{EngineHome, EnginePhase},
};

/// The version of the extension.
#[pg_extern(sql = false)]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// One row: how the engine of a server is. Starts nothing. Paths are for those who may read all statistics, and so is the
/// last error, but for the role whose query it was.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the view")]
fn engine_status(
    server: pg_sys::Oid,
) -> TableIterator<
    'static,
    (
        name!(rank, i32),
        name!(device, String),
        name!(pid, Option<i32>),
        name!(state, String),
        name!(since, Option<f64>),
        name!(memory, Option<i64>),
        name!(device_memory, Option<i64>),
        name!(device_memory_used, Option<i64>),
        name!(device_memory_peak, Option<i64>),
        name!(device_memory_fragmented, Option<i64>),
        name!(queries_running, Option<i64>),
        name!(queries_waiting, Option<i64>),
        name!(queries_run, Option<i64>),
        name!(restarts, Option<i64>),
        name!(storage_paths, Option<Vec<String>>),
        name!(libraries, Option<Vec<String>>),
        name!(last_error, Option<String>),
    ),
> {
    if !options::may_use_server(server) {
        return TableIterator::empty();
    }
    let home = EngineHome::of(server);
    let state = home.read_state().filter(|_| home.is_supervised());
    // An engine answers before its supervisor has looked at it and noted that it runs.
    let may_answer = state.as_ref().is_some_and(|state| state.phase != EnginePhase::Waiting);
    let status = if may_answer { client::status(server).or_raise() } else { None };
    let device = match &status {
        Some(status) => status.device.clone(),
        None => home.options.device.to_string(),
    };
    let phase = match state.as_ref().map(|state| state.phase) {
        Some(EnginePhase::Starting) if status.is_none() => "starting",
        Some(EnginePhase::Starting | EnginePhase::Running) => "running",
        Some(EnginePhase::Waiting) => "waiting to restart",
        None => "stopped",
    };
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let device_memory = status.as_ref().and_then(|status| status.device_memory);
    let sees_all = privileges::reads_all_statistics();
    let for_all = status.as_ref().filter(|_| sees_all);
    let own_error = status.as_ref().filter(|status| privileges::may_see(status.last_error_role));
    let last_query_error = own_error.and_then(|status| status.last_error.clone());
    let last_exit = state.as_ref().filter(|_| sees_all).and_then(|state| state.last_error.clone());
    TableIterator::once((
        0,
        device,
        state.as_ref().and_then(|state| state.engine_pid).and_then(|pid| i32::try_from(pid).ok()),
        phase.to_string(),
        state.as_ref().map(|state| state.since),
        status.as_ref().map(|status| count(status.resident_bytes)),
        device_memory.map(|memory| count(memory.max_bytes)),
        device_memory.map(|memory| count(memory.used_bytes)),
        device_memory.map(|memory| count(memory.peak_bytes)),
        device_memory.map(|memory| count(memory.fragmented_bytes)),
        status.as_ref().map(|status| count(status.queries_running)),
        status.as_ref().map(|status| count(status.queries_waiting)),
        status.as_ref().map(|status| count(status.queries_run)),
        state.as_ref().map(|state| count(state.restarts)),
        for_all.map(|status| status.storage_paths.clone()),
        for_all.map(|status| status.libraries.clone()),
        last_exit.map(|reason| format!("engine process {reason}")).or(last_query_error),
    ))
}

/// What the column caches of a server's engine hold, in each memory space. Starts nothing. Which columns these are, and
/// how they are used, is for those who may read all statistics.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the view")]
fn cache_entries(
    server: pg_sys::Oid,
) -> TableIterator<
    'static,
    (
        name!(path, Option<String>),
        name!(column, Option<String>),
        name!(tier, String),
        name!(row_groups, Option<i64>),
        name!(memory, i64),
        name!(hits, Option<i64>),
        name!(misses, Option<i64>),
    ),
> {
    if !options::may_use_server(server) {
        return TableIterator::empty();
    }
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let sees_all = privileges::reads_all_statistics();
    let entries = client::cache(server).or_raise().into_iter().map(move |entry| {
        let (memory, tier) = (count(entry.memory_bytes), entry.space.to_string());
        if !sees_all {
            return (None, None, tier, None, memory, None, None);
        }
        let row_groups = Some(i64::from(entry.row_group_count));
        let (hits, misses) = (Some(count(entry.hits)), Some(count(entry.misses)));
        (Some(entry.path), Some(entry.column), tier, row_groups, memory, hits, misses)
    });
    TableIterator::new(entries.collect::<Vec<_>>())
}
