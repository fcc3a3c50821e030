//! The supervisor: one background worker of the cluster, with all engine processes under it.
//!
//! The worker sleeps until a backend wakes it, a process ends, or an engine logs; while there are engines, at most for a second.
#![expect(unsafe_code, reason = "PostgreSQL calls the main function by its name; names of databases")]

use std::{
    collections::BTreeMap,
    ffi::CStr,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use pgrx::{
    bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags},
    pg_sys,
    prelude::*,
};

use super::{
    EngineHome,
    budget::{self, Decision},
    checks::Checks,
    engine::Engine,
    executable,
    home::{self, ENGINES_DIRECTORY},
    lock,
    readable::ReadableSet,
};
use crate::{
    pg::wait::{WaitEvent, wait_readable, wait_time},
    settings::{self, EngineStart},
};

/// How long engines may take to end when the supervisor ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A supervisor without engines waits for wake-ups alone.
const REST: Duration = Duration::from_secs(3600);
/// A supervisor that is not preloaded ends when it has had no engine for so long. A backend whose request was among what a former
/// supervisor has left requests its engine again within that time.
const LINGER: Duration = Duration::from_secs(2);
/// After a failure of the supervisor itself.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// The library is in `shared_preload_libraries`: the supervisor has a slot of its own. Set before the first fork.
static IS_PRELOADED: AtomicBool = AtomicBool::new(false);

/// Makes the supervisor start with the server. Does nothing unless the server is just starting, nor for pg_upgrade, which drops and
/// makes databases that no process may use.
pub fn register_supervisor() {
    // SAFETY: globals that are set when a process starts.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress && !pg_sys::IsBinaryUpgrade } {
        IS_PRELOADED.store(true, Ordering::Relaxed);
        executable::keep_open();
        builder().load();
    }
}

/// Starts a supervisor; `false` if there is no slot for one. Where another one is faster, this one ends at once.
pub fn start_supervisor() -> bool {
    builder().load_dynamic().is_ok()
}

fn builder() -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new("pystachio supervisor")
        .set_library("pystachio")
        .set_function("pystachio_supervisor_main")
        .set_argument(Some(pg_sys::Datum::from(IS_PRELOADED.load(Ordering::Relaxed))))
        // To read the names of databases, which all databases share; of no database.
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .set_restart_time(Some(RESTART_INTERVAL))
}

/// The supervisor's main function. Ends with status 0, so that PostgreSQL does not start it again: a backend that needs an engine
/// does.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pystachio_supervisor_main(argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(
        SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM | SignalWakeFlags::SIGCHLD,
    );
    let lock = match lock::take() {
        Ok(Some(lock)) => lock,
        Ok(None) => return,
        Err(error) => {
            error!("pystachio can't lock \"{ENGINES_DIRECTORY}/lock\" in the data directory: {error}")
        }
    };
    executable::keep_open();
    BackgroundWorker::connect_worker_to_spi(None, None);
    let stays = argument.value() != 0;
    let mut supervisor = match ReadableSet::new() {
        Ok(logs) => Supervisor { engines: BTreeMap::new(), checks: Checks::new(), logs },
        Err(error) => error!("pystachio can't wait for engines: {error}"),
    };
    supervisor.begin(stays);
    let mut used = Instant::now();
    while !BackgroundWorker::sigterm_received() {
        supervisor.look_after();
        if !supervisor.engines.is_empty() {
            used = Instant::now();
        } else if !stays && used.elapsed() >= LINGER {
            break;
        }
        supervisor.wait(if stays { REST } else { LINGER });
    }
    supervisor.end();
    drop(lock);
}

struct Supervisor {
    /// By the names of their folders.
    engines: BTreeMap<String, Engine>,
    checks: Checks,
    /// What engines write to their standard errors.
    logs: ReadableSet,
}

impl Supervisor {
    /// Removes what a former supervisor has left. Backends that wait for an engine request it again.
    fn begin(&mut self, stays: bool) {
        for entry in fs::read_dir(ENGINES_DIRECTORY).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("removed-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        for name in home::directory_names() {
            match is_kept(&name) {
                true => home::forget_state(&name),
                false => home::remove(&name),
            }
        }
        if stays && settings::start_engines() == EngineStart::ServerStart {
            self.checks.start_engines();
        }
    }

    /// Waits until something is to be done; without engines, so long at most.
    fn wait(&mut self, rest: Duration) {
        let engines = self.engines.values().map(Engine::wait_duration);
        let time = engines.chain(self.checks.wait_duration()).min().unwrap_or(rest);
        match self.engines.is_empty() {
            true => wait_time(time, WaitEvent::Supervise),
            false => wait_readable(self.logs.descriptor(), time, WaitEvent::Supervise),
        }
    }

    fn look_after(&mut self) {
        if BackgroundWorker::sighup_received() {
            // SAFETY: what a worker does on SIGHUP; it is in no transaction.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            self.engines.values_mut().for_each(Engine::start_soon);
        }
        self.find_requests();
        self.look_at_databases(false);
        self.engines.values_mut().for_each(Engine::look_after);
        self.start_engines();
        self.engines.retain(|name, engine| {
            let is_over = engine.is_over();
            if is_over {
                home::remove(name);
            }
            !is_over
        });
        if self.checks.are_due() {
            // Also hears of names that were changed since.
            self.look_at_databases(true);
            let databases = self.engines.values().map(|engine| engine.home().database_oid);
            self.checks.add_all(databases);
        }
        self.checks.go_on();
    }

    /// Starts the processes that are wanted and that there is room for, and makes room for others.
    fn start_engines(&mut self) {
        let wanting: Vec<String> = self
            .engines
            .iter()
            .filter(|(_, engine)| engine.wants_process())
            .map(|(name, _)| name.clone())
            .collect();
        for name in wanting {
            let Some(engine) = self.engines.get(&name) else { continue };
            let decision = budget::decide(engine, self.engines.iter());
            let others = match &decision {
                Decision::Start(_) => Vec::new(),
                Decision::Wait(_, others) => others.clone(),
            };
            for other in &others {
                if let Some(other) = self.engines.get_mut(other) {
                    other.end_if_idle("another engine needs its memory or its GPU");
                }
            }
            let Some(engine) = self.engines.get_mut(&name) else { continue };
            match decision {
                Decision::Start(share) => engine.start(share, &self.logs),
                Decision::Wait(refusal, _) => engine.refuse(refusal),
            }
        }
        // An engine that runs on the processors for want of a GPU goes back when it is free.
        let returning = self
            .engines
            .iter()
            .find(|(_, engine)| engine.is_displaced() && budget::could_return(engine, self.engines.iter()));
        if let Some(name) = returning.map(|(name, _)| name.clone())
            && let Some(engine) = self.engines.get_mut(&name)
        {
            engine.replace();
        }
    }

    fn find_requests(&mut self) {
        for name in home::directory_names() {
            if self.engines.contains_key(&name) || !home::is_requested(&name) {
                continue;
            }
            match EngineHome::read(&name) {
                Ok(home) => {
                    // The former generation, where there is one, may have been altered where nobody noticed.
                    if self.engines.keys().any(|other| home.is_of_same_server(other)) {
                        self.checks.add(home.database_oid);
                    }
                    let database = database_name(home.database_oid).unwrap_or_default();
                    let path = database_path(home.database_oid);
                    self.engines.insert(name, Engine::new(home, database, path));
                }
                // It was withdrawn meanwhile, or is of another release.
                Err(_) => home::remove(&name),
            }
        }
    }

    /// Retires the engines of databases that are gone: those that are not where they were, or all of them.
    fn look_at_databases(&mut self, all: bool) {
        for (name, engine) in &mut self.engines {
            if all || !engine.has_database() {
                let oid = engine.home().database_oid;
                match database_name(oid) {
                    Some(database) => engine.set_database(database, database_path(oid)),
                    None => home::withdraw(name),
                }
            }
        }
    }

    fn end(mut self) {
        self.engines.values_mut().for_each(Engine::terminate);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.engines.values_mut().all(Engine::has_ended) && Instant::now() < deadline {
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        for (name, engine) in &mut self.engines {
            engine.kill();
            match is_kept(name) {
                true => home::forget_state(name),
                false => home::remove(name),
            }
        }
    }
}

/// Whether an engine is wanted although no backend waits for it: other hosts use that of a server with several hosts. A standby,
/// which may be a copy of this host's data, does not serve them.
fn is_kept(directory_name: &str) -> bool {
    let home = EngineHome::read(directory_name);
    // SAFETY: asks shared memory.
    home.is_ok_and(|home| home.options.hosts.is_some()) && !unsafe { pg_sys::RecoveryInProgress() }
}

/// The name of a database; `None` if it is gone.
fn database_name(oid: u32) -> Option<String> {
    BackgroundWorker::transaction(move || {
        // SAFETY: a lookup in a catalog that all databases share, in a transaction; the name is copied.
        let name = unsafe { pg_sys::get_database_name(pg_sys::Oid::from(oid)) };
        // SAFETY: a C string, or NULL for a database that was dropped.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    })
}

/// The database's folder, in the default tablespace or another.
fn database_path(database_oid: u32) -> Option<PathBuf> {
    let name = database_oid.to_string();
    let default = Path::new("base").join(&name);
    if default.exists() {
        return Some(default);
    }
    let tablespaces = fs::read_dir("pg_tblspc").into_iter().flatten().flatten();
    let versions = tablespaces.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
    versions.map(|version| version.path().join(&name)).find(|path| path.exists())
}
