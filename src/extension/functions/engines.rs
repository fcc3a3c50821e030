//! The views of engines and their caches.

use std::time::{SystemTime, UNIX_EPOCH};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{DeviceMemoryStatus, MemorySpace, RankStatus};

use super::{
    count,
    rows::{Row, cell, return_rows},
};
use crate::{
    client,
    error::OrRaise,
    options, privileges,
    supervisor::{self, EngineHome, EnginePhase, Promise},
};

/// The version of the extension.
#[pg_extern(sql = false)]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// `pystachio.engine_status()`: a row for each process of a server's engine. Starts nothing. Paths are shown to roles that may read
/// all statistics. So is the last error, which the role of the failed query sees too.
#[pg_extern(sql = false)]
fn engine_status(server: pg_sys::Oid, fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, engine_rows(server));
}

/// The same, as version 0.2 of the extension declares it.
#[pg_extern(sql = false)]
fn engine_status_0_2(server: pg_sys::Oid, fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, engine_rows(server));
}

fn engine_rows(server: pg_sys::Oid) -> Vec<Row> {
    if !options::may_use_server(server) {
        return Vec::new();
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
    let sees_all = privileges::reads_all_statistics();
    let for_all = status.as_ref().filter(|_| sees_all);
    let own_error = status.as_ref().filter(|status| privileges::may_see(status.last_error_role));
    let last_query_error = own_error.and_then(|status| status.last_error.clone());
    let last_exit = state.as_ref().filter(|_| sees_all).and_then(|state| state.last_error.clone());
    let last_exit = last_exit.map(|reason| format!("engine process {reason}"));
    let refusal = refusal.filter(|_| sees_all).map(|refusal| refusal.message.clone());
    let generation = status.as_ref().and_then(|status| status.generation);
    let host = home.options.hosts.as_ref().map(|hosts| hosts.host.clone());
    let mut first = Process {
        host: host.clone(),
        device: device.clone(),
        pid: state.as_ref().and_then(|state| state.engine_pid),
        state: phase.to_string(),
        since: state.as_ref().map(|state| state.since),
        last_used: state.as_ref().and_then(|_| home.last_used()),
        promise: state
            .as_ref()
            .filter(|state| state.engine_pid.is_some())
            .and_then(|state| state.promise.clone()),
        restarts: state.as_ref().map(|state| state.restarts),
        // What the process that runs now tells of is later than the end of the one before.
        last_error: refusal.or(last_query_error).or(last_exit),
        ..Process::default()
    };
    if let Some(status) = &status {
        first.generation = generation;
        first.memory = Some(status.resident_bytes);
        first.device_memory = status.device_memory;
        first.queries_running = Some(status.queries_running);
        first.queries_waiting = Some(status.queries_waiting);
        first.queries_run = Some(status.queries_run);
        first.storage_paths = for_all.map(|status| status.storage_paths.clone());
        first.libraries = for_all.map(|status| status.libraries.clone());
    }
    let ranks = status.map(|status| status.ranks).unwrap_or_default();
    let others = ranks.into_iter().map(|rank| Process::of_rank(rank, &device, generation, sees_all));
    // A former engine of the server takes no connections, so it can't be asked.
    let retiring = supervisor::retiring(&home).into_iter().map(|process| Process {
        host: host.clone(),
        device: home.options.device.to_string(),
        pid: Some(process.pid),
        state: "retiring".to_string(),
        since: Some(process.since),
        promise: Some(process.promise),
        ..Process::default()
    });
    std::iter::once(first).chain(others).chain(retiring).map(Process::into_row).collect()
}

/// A process of an engine, as far as it is known. Memory is in bytes.
#[derive(Default)]
struct Process {
    rank: u32,
    host: Option<String>,
    device: String,
    pid: Option<u32>,
    state: String,
    since: Option<f64>,
    last_used: Option<SystemTime>,
    generation: Option<u64>,
    memory: Option<u64>,
    promise: Option<Promise>,
    device_memory: Option<DeviceMemoryStatus>,
    queries_running: Option<u64>,
    queries_waiting: Option<u64>,
    queries_run: Option<u64>,
    restarts: Option<u64>,
    storage_paths: Option<Vec<String>>,
    libraries: Option<Vec<String>>,
    last_error: Option<String>,
}

impl Process {
    /// The process of a rank other than 0; a rank may have none.
    fn of_rank(status: RankStatus, device: &str, generation: Option<u64>, sees_all: bool) -> Self {
        let has_process = status.pid.is_some();
        let last_error = status.last_error.filter(|_| sees_all);
        Self {
            rank: status.rank,
            host: status.host,
            device: device.to_owned(),
            pid: status.pid,
            state: status.state,
            generation,
            memory: has_process.then_some(status.resident_bytes),
            device_memory: has_process.then_some(status.device_memory),
            queries_running: has_process.then_some(status.queries_running),
            queries_run: has_process.then_some(status.queries_run),
            restarts: Some(status.restarts),
            storage_paths: (has_process && sees_all).then_some(status.storage_paths),
            last_error: last_error.map(|reason| format!("rank {}: {reason}", status.rank)),
            ..Self::default()
        }
    }

    fn into_row(self) -> Row {
        let on_device = |bytes: fn(DeviceMemoryStatus) -> u64| self.device_memory.map(bytes).map(count);
        let gpu = |(gpu, percent): &(u32, u32)| match percent {
            0 => format!("{gpu}"),
            _ => format!("{gpu}: {percent} %"),
        };
        let gpus = self.promise.as_ref().map(|promise| promise.gpus.iter().map(gpu).collect::<Vec<_>>());
        let last_used = self.last_used.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        vec![
            cell("rank", i32::try_from(self.rank).unwrap_or(i32::MAX)),
            cell("host", self.host),
            cell("device", self.device),
            cell("pid", self.pid.and_then(|pid| i32::try_from(pid).ok())),
            cell("state", self.state),
            cell("since", self.since),
            cell("generation", self.generation.map(count)),
            cell("memory", self.memory.map(count)),
            cell("device_memory", on_device(|memory| memory.max_bytes)),
            cell("device_memory_used", on_device(|memory| memory.used_bytes)),
            cell("device_memory_peak", on_device(|memory| memory.peak_bytes)),
            cell("device_memory_fragmented", on_device(|memory| memory.fragmented_bytes)),
            cell("queries_running", self.queries_running.map(count)),
            cell("queries_waiting", self.queries_waiting.map(count)),
            cell("queries_run", self.queries_run.map(count)),
            cell("restarts", self.restarts.map(count)),
            cell("storage_paths", self.storage_paths),
            cell("libraries", self.libraries),
            cell("last_error", self.last_error),
            cell("memory_promised", self.promise.as_ref().map(|promise| count(promise.memory_bytes))),
            cell("gpus", gpus.filter(|gpus| !gpus.is_empty())),
            cell("last_used", last_used.map(|since_epoch| since_epoch.as_secs_f64())),
        ]
    }
}

/// `pystachio.cache_entries()`: the contents of the column caches of a server's engine, on each rank and in each memory space. Starts
/// nothing. Column names and counts of uses are shown to roles that may read all statistics.
#[pg_extern(sql = false)]
fn cache_entries(server: pg_sys::Oid, fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, cache_rows(server));
}

/// The same, as version 0.2 of the extension declares it.
#[pg_extern(sql = false)]
fn cache_entries_0_2(server: pg_sys::Oid, fcinfo: pg_sys::FunctionCallInfo) {
    return_rows(fcinfo, cache_rows(server));
}

fn cache_rows(server: pg_sys::Oid) -> Vec<Row> {
    if !options::may_use_server(server) {
        return Vec::new();
    }
    let sees_all = privileges::reads_all_statistics();
    let entries = client::cache(server).or_raise().into_iter().map(|entry| {
        vec![
            cell("rank", i32::try_from(entry.rank).unwrap_or(i32::MAX)),
            cell("path", sees_all.then_some(entry.path)),
            cell("column", sees_all.then_some(entry.column).filter(|column| !column.is_empty())),
            cell("tier", entry.space.to_string()),
            cell(
                "row_groups",
                (sees_all && entry.space != MemorySpace::Disk).then(|| i64::from(entry.row_group_count)),
            ),
            cell("memory", count(entry.memory_bytes)),
            cell("hits", sees_all.then(|| count(entry.hits))),
            cell("misses", sees_all.then(|| count(entry.misses))),
            cell("unpacked", count(entry.unpacked_bytes)),
        ]
    });
    entries.collect()
}
