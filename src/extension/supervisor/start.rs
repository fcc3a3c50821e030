//! A backend's side: connecting to an engine, and starting a supervisor where there is none.

use std::{
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{EngineHome, EnginePhase, worker};
use crate::{
    options::{Device, ServerOptions},
    pg::wait::{WaitEvent, wait_time},
    settings,
};

/// How often a backend that waits for its engine tries to connect.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a supervisor may take to get hold of its folder before another one is started.
const SUPERVISOR_START_TIME: Duration = Duration::from_secs(2);
/// An engine that ends this often before it answers is not waited for.
const START_FAILURES_MAX: u32 = 3;

/// A connection to the engine, which is started if need be.
///
/// # Errors
///
/// `NotSupported` for a device that this build does not have; `Unavailable` if the engine does not start
/// within `pystachio.connect_timeout`.
pub fn connect(home: &EngineHome) -> Result<UnixStream> {
    check_supported(home)?;
    let deadline = Instant::now() + Duration::from_millis(settings::connect_timeout_ms());
    let mut supervisor_deadline = None;
    loop {
        if let Some(socket) = connect_if_running(home) {
            return Ok(socket);
        }
        let now = Instant::now();
        if !home.is_supervised() {
            if supervisor_deadline.is_none_or(|deadline| now > deadline) {
                start_supervisor(home)?;
                supervisor_deadline = Some(now + SUPERVISOR_START_TIME);
            }
        } else if home.read_state().is_some_and(|state| {
            state.phase == EnginePhase::Waiting && state.start_failures >= START_FAILURES_MAX
        }) {
            return Err(not_started(home, "can't be started"));
        }
        if now > deadline {
            return Err(not_started(home, "did not start in time"));
        }
        wait_time(CONNECT_POLL_INTERVAL, WaitEvent::Connect);
    }
}

/// A connection to the engine if it is running.
pub fn connect_if_running(home: &EngineHome) -> Option<UnixStream> {
    UnixStream::connect(home.socket()).ok()
}

/// Starts a supervisor for the engine. Where another one is faster, this one ends at once.
///
/// # Errors
///
/// `FileAccess` if the engine's folder can't be written, `Unavailable` if there is no room for another
/// background worker.
pub fn start_supervisor(home: &EngineHome) -> Result<()> {
    home.write_options().map_err(|error| {
        let directory = home.directory();
        Error::new(ErrorKind::FileAccess, format!("can't write \"{}\": {error}", directory.display()))
            .with_hint("Make the folder, which is in the data directory, writable for the server's user.")
    })?;
    BackgroundWorkerBuilder::new(&format!("pystachio engine of {}", home.options.server_name))
        .set_type("pystachio supervisor")
        .set_library("pystachio")
        .set_function(worker::MAIN_FUNCTION)
        .set_extra(&home.directory_name())
        // To be seen in pg_stat_activity; of no database.
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load_dynamic()
        .map(drop)
        .map_err(|_| {
            let name = &home.options.server_name;
            Error::new(
                ErrorKind::Unavailable,
                format!("no background worker for the engine of server \"{name}\""),
            )
            .with_hint("Raise max_worker_processes and restart the server: each engine needs a worker.")
        })
}

fn check_supported(home: &EngineHome) -> Result<()> {
    let ServerOptions { server_name, device, rank_processes, .. } = &home.options;
    let rank_count = home.options.rank_count();
    let hint = format!("ALTER SERVER {server_name} OPTIONS (SET ");
    let refuse = |message: String, way_out: &str| {
        Err(Error::new(ErrorKind::NotSupported, message).with_hint(format!("{hint}{way_out}).")))
    };
    match device {
        _ if rank_count == 1 => Ok(()),
        Device::Cpu if home.options.hosts.is_some() => {
            let message =
                format!("server \"{server_name}\": device 'cpu' has one rank, and hosts names several hosts");
            refuse(message, "device 'auto'")
        }
        _ if home.options.hosts.is_some() && rank_processes == "one" => {
            let message = format!(
                "server \"{server_name}\": ranks on several hosts have a process each, and rank_processes is 'one'"
            );
            refuse(message, "rank_processes 'own'")
        }
        Device::Cpu => {
            let message = format!("server \"{server_name}\": device 'cpu' has one rank, not {rank_count}");
            refuse(message, "ranks '1'")
        }
        Device::Cuda | Device::Auto if rank_processes == "one" => {
            let message = format!(
                "server \"{server_name}\": ranks on GPUs have a process each, and rank_processes is 'one'"
            );
            refuse(message, "rank_processes 'own'")
        }
        Device::Cuda | Device::Auto | Device::Emulated => Ok(()),
    }
}

fn not_started(home: &EngineHome, what: &str) -> Error {
    let name = &home.options.server_name;
    let error = Error::new(ErrorKind::Unavailable, format!("engine of server \"{name}\" {what}"))
        .with_hint("Look at pystachio.engines and into the server log.");
    match home.read_state().and_then(|state| state.last_error) {
        Some(reason) => error.with_detail(format!("The engine process {reason}.")),
        None => error,
    }
}
