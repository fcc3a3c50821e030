//! Looking at engines and their caches.

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{DeviceMemoryStatus, RankStatus};

use super::count;
use crate::{
    client,
    error::OrRaise,
    options, privileges,
    supervisor::{self, EngineHome, EnginePhase, RetiringProcess},
};

/// The version of the extension.
#[pg_extern(sql = false)]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// A row of `pystachio.engines`.
type EngineRow = (
    i32,
    Option<String>,
    String,
    Option<i32>,
    String,
    Option<f64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<Vec<String>>,
    Option<Vec<String>>,
    Option<String>,
);

/// A row for each process: the state of a server's engine, and of its other ranks if they have processes. Starts nothing. Paths are shown to
/// roles that may read all statistics. So is the last error, which the role of the failed query sees too.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the view")]
fn engine_status_0_2(
    server: pg_sys::Oid,
) -> TableIterator<
    'static,
    (
        name!(rank, i32),
        name!(host, Option<String>),
        name!(device, String),
        name!(pid, Option<i32>),
        name!(state, String),
        name!(since, Option<f64>),
        name!(generation, Option<i64>),
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
    let state = home.read_state().filter(|state| state.phase != EnginePhase::Retired);
    // An engine answers before the supervisor has looked at it and noted that it runs.
    let may_answer = state.as_ref().is_some_and(|state| state.phase != EnginePhase::Waiting);
    let status = if may_answer { client::status(server).or_raise() } else { None };
    let device = match &status {
        Some(status) => status.device.clone(),
        None => home.options.device.to_string(),
    };
    let refusal = state.as_ref().and_then(|state| state.refusal.as_ref());
    let phase = match state.as_ref().map(|state| state.phase) {
        Some(_) if refusal.is_some() => "waiting for room",
        Some(EnginePhase::Starting) if status.is_none() => "starting",
        Some(EnginePhase::Starting | EnginePhase::Running) => "running",
        Some(EnginePhase::Waiting) => "waiting to restart",
        Some(EnginePhase::Retired) | None => "stopped",
    };
    let [memory_max, memory_used, memory_peak, memory_fragmented] =
        device_memory(status.as_ref().and_then(|status| status.device_memory));
    let sees_all = privileges::reads_all_statistics();
    let for_all = status.as_ref().filter(|_| sees_all);
    let own_error = status.as_ref().filter(|status| privileges::may_see(status.last_error_role));
    let last_query_error = own_error.and_then(|status| status.last_error.clone());
    let last_exit = state.as_ref().filter(|_| sees_all).and_then(|state| state.last_error.clone());
    let last_exit = last_exit.map(|reason| format!("engine process {reason}"));
    let refusal = refusal.filter(|_| sees_all).map(|refusal| refusal.message.clone());
    let generation = status.as_ref().and_then(|status| status.generation);
    let first: EngineRow = (
        0,
        home.options.hosts.as_ref().map(|hosts| hosts.host.clone()),
        device.clone(),
        state.as_ref().and_then(|state| state.engine_pid).and_then(|pid| i32::try_from(pid).ok()),
        phase.to_string(),
        state.as_ref().map(|state| state.since),
        generation.map(count),
        status.as_ref().map(|status| count(status.resident_bytes)),
        memory_max,
        memory_used,
        memory_peak,
        memory_fragmented,
        status.as_ref().map(|status| count(status.queries_running)),
        status.as_ref().map(|status| count(status.queries_waiting)),
        status.as_ref().map(|status| count(status.queries_run)),
        state.as_ref().map(|state| count(state.restarts)),
        for_all.map(|status| status.storage_paths.clone()),
        for_all.map(|status| status.libraries.clone()),
        // What the process that runs now tells of is later than the end of the one before.
        refusal.or(last_query_error).or(last_exit),
    );
    let ranks = status.map(|status| status.ranks).unwrap_or_default();
    let others = ranks.into_iter().map(|rank| rank_row(rank, &device, generation, sees_all));
    let retiring = supervisor::retiring(&home).into_iter().map(|process| retiring_row(&process, &home));
    TableIterator::new(std::iter::once(first).chain(others).chain(retiring).collect::<Vec<_>>())
}

/// The row of a former engine of a server, whose last queries run. It takes no connections, so that nobody can ask it.
fn retiring_row(process: &RetiringProcess, home: &EngineHome) -> EngineRow {
    (
        0,
        home.options.hosts.as_ref().map(|hosts| hosts.host.clone()),
        home.options.device.to_string(),
        i32::try_from(process.pid).ok(),
        "retiring".to_string(),
        Some(process.since),
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
    )
}

/// The row of a rank other than 0.
fn rank_row(status: RankStatus, device: &str, generation: Option<u64>, sees_all: bool) -> EngineRow {
    let has_process = status.pid.is_some();
    let of_process = |value: u64| has_process.then(|| count(value));
    let [memory_max, memory_used, memory_peak, memory_fragmented] =
        device_memory(has_process.then_some(status.device_memory));
    (
        i32::try_from(status.rank).unwrap_or(i32::MAX),
        status.host,
        device.to_owned(),
        status.pid.and_then(|pid| i32::try_from(pid).ok()),
        status.state,
        None,
        generation.map(count),
        of_process(status.resident_bytes),
        memory_max,
        memory_used,
        memory_peak,
        memory_fragmented,
        of_process(status.queries_running),
        None,
        of_process(status.queries_run),
        Some(count(status.restarts)),
        (has_process && sees_all).then_some(status.storage_paths),
        None,
        status.last_error.filter(|_| sees_all).map(|reason| format!("rank {}: {reason}", status.rank)),
    )
}

/// The most, what is used, what was used at most, and what is scattered.
fn device_memory(status: Option<DeviceMemoryStatus>) -> [Option<i64>; 4] {
    let of = |value: fn(DeviceMemoryStatus) -> u64| status.map(value).map(count);
    [
        of(|memory| memory.max_bytes),
        of(|memory| memory.used_bytes),
        of(|memory| memory.peak_bytes),
        of(|memory| memory.fragmented_bytes),
    ]
}

/// The contents of the column caches of a server's engine, on each rank and in each memory space. Starts nothing. Column names and
/// counts of uses are shown to roles that may read all statistics.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the view")]
fn cache_entries_0_2(
    server: pg_sys::Oid,
) -> TableIterator<
    'static,
    (
        name!(rank, i32),
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
    let sees_all = privileges::reads_all_statistics();
    let entries = client::cache(server).or_raise().into_iter().map(move |entry| {
        let (memory, tier) = (count(entry.memory_bytes), entry.space.to_string());
        let rank = i32::try_from(entry.rank).unwrap_or(i32::MAX);
        if !sees_all {
            return (rank, None, None, tier, None, memory, None, None);
        }
        let row_groups = Some(i64::from(entry.row_group_count));
        let (hits, misses) = (Some(count(entry.hits)), Some(count(entry.misses)));
        (rank, Some(entry.path), Some(entry.column), tier, row_groups, memory, hits, misses)
    });
    TableIterator::new(entries.collect::<Vec<_>>())
}
