//! Starting engines with the server, and stopping those whose server is gone.
//!
//! The launcher runs once when the server starts, if the library is in `shared_preload_libraries`. For
//! each database it starts a short-lived worker, the checker, which reads the catalogs there: it starts
//! the engines of the database's servers, and stops engines without a server. Supervisors start a checker
//! too, every `pystachio.check_interval`: a session that drops a server need not have pystachio loaded.
#![expect(unsafe_code, reason = "reads a catalog without a connection to a database")]

use std::{collections::HashSet, time::Duration};

use pgrx::{
    bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags},
    pg_sys,
    prelude::*,
};

use super::{
    EngineHome,
    home::{self, ENGINES_DIRECTORY},
    start,
};
use crate::settings;

/// A checker that starts engines has this bit in its argument, above the database's oid.
const START_BIT: u64 = 1 << 32;

/// How long the launcher waits for a slot for the next checker.
const SLOT_WAIT: Duration = Duration::from_millis(200);
const SLOT_TRIES_MAX: usize = 50;

/// Makes the launcher start with the server. Does nothing unless the server is just starting.
pub fn register_launcher() {
    // SAFETY: a global that is set when a process starts.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        BackgroundWorkerBuilder::new("pystachio launcher")
            .set_library("pystachio")
            .set_function("pystachio_launcher_main")
            .enable_spi_access()
            .load();
    }
}

/// Starts a checker for a database; `false` if there is no slot for it.
pub fn start_check(database_oid: u32, start_engines: bool) -> bool {
    let argument = u64::from(database_oid) | if start_engines { START_BIT } else { 0 };
    BackgroundWorkerBuilder::new("pystachio checker")
        .set_library("pystachio")
        .set_function("pystachio_checker_main")
        .set_argument(Some(pg_sys::Datum::from(argument)))
        .enable_spi_access()
        // Also on a standby, where one that waited for the end of recovery would keep its slot for as long.
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .load_dynamic()
        .is_ok()
}

/// The launcher's main function.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pystachio_launcher_main(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGTERM);
    BackgroundWorker::connect_worker_to_spi(None, None);
    let databases = BackgroundWorker::transaction(databases);
    for name in home::directory_names() {
        let database_oid = home::parse_directory_name(&name).map(|(database_oid, _)| database_oid);
        if !database_oid.is_some_and(|oid| databases.contains(&oid)) {
            home::stop(&name);
        }
    }
    for database_oid in databases {
        for _ in 0..SLOT_TRIES_MAX {
            if start_check(database_oid, true) || !BackgroundWorker::wait_latch(Some(SLOT_WAIT)) {
                break;
            }
        }
    }
}

/// The checker's main function.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pystachio_checker_main(argument: pg_sys::Datum) {
    let argument = argument.value() as u64;
    let database_oid = argument as u32;
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGTERM);
    // The database may have been dropped meanwhile. Then there is nothing to check.
    if !std::fs::exists(format!("base/{database_oid}")).unwrap_or(true) && argument & START_BIT == 0 {
        return;
    }
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(pg_sys::Oid::from(database_oid)), None);
    let homes: Vec<EngineHome> =
        BackgroundWorker::transaction(|| servers().into_iter().map(EngineHome::of).collect());
    let wanted: HashSet<String> = homes.iter().map(EngineHome::directory_name).collect();
    for name in home::directory_names() {
        let is_ours = home::parse_directory_name(&name).is_some_and(|(oid, _)| oid == database_oid);
        if is_ours && !wanted.contains(&name) && is_settled(&name) {
            home::stop(&name);
        }
    }
    if argument & START_BIT != 0 {
        for home in homes.iter().filter(|home| !home.is_supervised()) {
            if let Err(error) = start::start_supervisor(home) {
                log!("pystachio: {error}");
            }
        }
    }
}

/// Whether an engine is old enough for its server to be committed: a transaction may use a server that
/// it has just made or altered, and other sessions don't see it yet.
fn is_settled(directory_name: &str) -> bool {
    let path = std::path::Path::new(ENGINES_DIRECTORY).join(directory_name).join("options.json");
    let age =
        std::fs::metadata(path).and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_none_or(|age| age.as_secs() >= settings::check_interval_s())
        || !home::is_supervised(directory_name)
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
