//! Reading a database's servers, for the supervisor, which is connected to none.
//!
//! A short-lived worker, the checker, connects to the database. It retires engines whose server is
//! gone or has other options. The session that drops or alters a server need not have loaded
//! pystachio, or may be on the primary of a standby. With `pystachio.start_engines =
//! 'server_start'` the checker also requests the engines of all servers, once.
//!
//! Invariants: one checker runs at a time, so checks take one worker slot for any number of
//! databases.
#![expect(unsafe_code, reason = "reads a catalog without a connection to a database")]

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

use pgrx::{
    bgworkers::{
        BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime,
        DynamicBackgroundWorker, SignalWakeFlags,
    },
    pg_sys,
    prelude::*,
};

use super::{EngineHome, home, lock};
use crate::settings;

/// A checker that starts engines has this bit in its argument, above the database's oid.
const START_BIT: u64 = 1 << 32;

/// How often a checker is looked at, and asked for again if there is no slot.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The checkers that are to run.
pub struct Checks {
    /// Databases, and whether their engines are to be started.
    waiting: VecDeque<(u32, bool)>,
    running: Option<DynamicBackgroundWorker>,
    due: Instant,
}

impl Checks {
    /// None are to run before `pystachio.check_interval`.
    pub fn new() -> Self {
        Self { waiting: VecDeque::new(), running: None, due: Instant::now() + interval() }
    }

    /// Whether all databases with engines are to be checked again.
    pub fn are_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Checks these databases.
    pub fn add_all(&mut self, databases: impl Iterator<Item = u32>) {
        self.due = Instant::now() + interval();
        databases.for_each(|database_oid| self.add(database_oid));
    }

    /// Checks a database.
    pub fn add(&mut self, database_oid: u32) {
        if !self.waiting.iter().any(|(waiting, _)| *waiting == database_oid) {
            self.waiting.push_back((database_oid, false));
        }
    }

    /// Starts the engines of all databases.
    pub fn start_engines(&mut self) {
        let databases = BackgroundWorker::transaction(databases);
        self.waiting = databases.into_iter().map(|database_oid| (database_oid, true)).collect();
    }

    /// Starts the next checker when the last has ended.
    pub fn go_on(&mut self) {
        if self.running.as_ref().is_some_and(is_running) {
            return;
        }
        self.running = None;
        if let Some((database_oid, starts_engines)) = self.waiting.front() {
            self.running = start_checker(*database_oid, *starts_engines);
            if self.running.is_some() {
                self.waiting.pop_front();
            }
        }
    }

    /// How long they can do without [`Checks::go_on`]; `None` if no checker is to run.
    pub fn wait_duration(&self) -> Option<Duration> {
        (self.running.is_some() || !self.waiting.is_empty()).then_some(POLL_INTERVAL)
    }
}

fn interval() -> Duration {
    Duration::from_secs(settings::check_interval_s())
}

fn is_running(worker: &DynamicBackgroundWorker) -> bool {
    matches!(worker.pid(), Ok(_) | Err(BackgroundWorkerStatus::NotYetStarted))
}

/// Starts a checker for a database; `None` if there is no slot for it. The supervisor is woken when it ends.
fn start_checker(database_oid: u32, starts_engines: bool) -> Option<DynamicBackgroundWorker> {
    let argument = u64::from(database_oid) | if starts_engines { START_BIT } else { 0 };
    BackgroundWorkerBuilder::new("pystachio checker")
        .set_library("pystachio")
        .set_function("pystachio_checker_main")
        .set_argument(Some(pg_sys::Datum::from(argument)))
        .enable_spi_access()
        // Also on a standby, where one that waited for the end of recovery would keep its slot for as long.
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .set_notify_pid(std::process::id() as pg_sys::pid_t)
        .load_dynamic()
        .ok()
}

/// The checker's main function. The supervisor has just found the database; it may have been dropped meanwhile, which ends this.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pystachio_checker_main(argument: pg_sys::Datum) {
    let argument = argument.value() as u64;
    let database_oid = argument as u32;
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGTERM);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(pg_sys::Oid::from(database_oid)), None);
    let homes: Vec<EngineHome> =
        BackgroundWorker::transaction(|| servers().into_iter().map(EngineHome::of).collect());
    let wanted: HashSet<String> = homes.iter().map(EngineHome::directory_name).collect();
    for name in home::directory_names() {
        let is_ours = home::parse_directory_name(&name).is_some_and(|(oid, _)| oid == database_oid);
        if is_ours && !wanted.contains(&name) && is_settled(&name) {
            home::retire(&name);
        }
    }
    if argument & START_BIT != 0 {
        for home in homes.iter().filter(|home| !home.is_requested()) {
            if let Err(error) = home.request() {
                log!("pystachio can't write to \"{}\": {error}", home.directory().display());
            }
        }
        lock::holder().into_iter().for_each(lock::wake);
    }
}

/// Whether an engine is old enough for its server to be committed: a transaction may use a server that
/// it has just made or altered, and other sessions don't see it yet.
fn is_settled(directory_name: &str) -> bool {
    home::requested_for(directory_name).is_none_or(|age| age >= interval())
}

/// The servers of this database whose wrapper is ours.
fn servers() -> Vec<pg_sys::Oid> {
    let query = "SELECT server.oid
        FROM pg_catalog.pg_foreign_server server
        JOIN pg_catalog.pg_foreign_data_wrapper wrapper ON wrapper.oid = server.srvfdw
        JOIN pg_catalog.pg_proc handler ON handler.oid = wrapper.fdwhandler
        WHERE handler.prosrc = 'pystachio_handler'";
    let found = Spi::connect(|client| {
        let rows = client.select(query, None, &[])?;
        rows.map(|row| row.get::<pg_sys::Oid>(1)).collect::<Result<Vec<_>, _>>()
    });
    match found {
        Ok(oids) => oids.into_iter().flatten().collect(),
        Err(error) => {
            log!("pystachio can't read the foreign servers: {error}");
            Vec::new()
        }
    }
}

/// The databases that can be connected to. Without a database there is no SPI: this reads the shared
/// catalog itself, as the autovacuum launcher does.
fn databases() -> Vec<u32> {
    let mut oids = Vec::new();
    // SAFETY: in a transaction; the relation is locked and the scan ended before it is closed.
    unsafe {
        let relation =
            pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let database = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            if database.datallowconn {
                oids.push(database.oid.to_u32());
            }
        }
        pg_sys::table_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
    }
    oids
}
