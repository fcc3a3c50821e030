//! A backend's side: connecting to an engine, requesting it, and starting a supervisor where there is none.

use std::{
    io,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{EngineHome, EnginePhase, budget::Refusal, home, lock, watch, worker};
use crate::{
    options::{Device, ServerOptions},
    pg::wait::{WaitEvent, wait_time},
    settings,
};

/// How often a backend that waits for its engine tries to connect.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a supervisor may take to lock its file before another one is started, and how long a worker slot is waited for.
const SUPERVISOR_START_TIME: Duration = Duration::from_secs(2);
/// An engine that ends this often before it answers is not waited for.
const START_FAILURES_MAX: u32 = 3;

/// A connection to the engine, which is started if need be, and the engine. That is of the options that the server has then.
///
/// # Errors
///
/// `NotSupported` for a device that this build does not have; `Unavailable` if the engine does not start
/// within `pystachio.connect_timeout`, or there is no room for the supervisor; `FileAccess` if the engine's folder can't be
/// written.
pub fn connect(mut home: EngineHome) -> Result<(UnixStream, EngineHome)> {
    check_supported(&home)?;
    let deadline = Instant::now() + Duration::from_millis(settings::connect_timeout_ms());
    let mut supervisor = SupervisorStart::default();
    loop {
        if let Some(socket) = connect_if_running(&home) {
            return Ok((socket, home));
        }
        let is_new = !home.is_requested();
        if is_new {
            // The server may have been altered by another session, which has retired the engine of the former options.
            home = home.again();
            check_supported(&home)?;
            request(&home)?;
        }
        match lock::holder() {
            Some(supervisor_pid) => {
                supervisor = SupervisorStart::default();
                if is_new {
                    lock::wake(supervisor_pid);
                }
            }
            None => supervisor.go_on()?,
        }
        let state = home.read_state();
        let is_late = Instant::now() > deadline;
        let refusal = state.as_ref().and_then(|state| state.refusal.as_ref());
        if let Some(refusal) = refusal.filter(|refusal| is_late || refusal.is_final) {
            // Others that wait for it request it again.
            home::retire(&home.directory_name());
            return Err(refused(refusal));
        }
        if state.is_some_and(|state| {
            state.phase == EnginePhase::Waiting && state.start_failures >= START_FAILURES_MAX
        }) {
            return Err(not_started(&home, "can't be started"));
        }
        if is_late {
            return Err(not_started(&home, "did not start in time"));
        }
        wait_time(CONNECT_POLL_INTERVAL, WaitEvent::Connect);
    }
}

/// The start of a supervisor by this backend.
#[derive(Default)]
struct SupervisorStart {
    /// When another one is started.
    again_at: Option<Instant>,
    /// When a slot is not waited for any more.
    slot_deadline: Option<Instant>,
}

impl SupervisorStart {
    fn go_on(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.again_at.is_some_and(|again_at| now < again_at) {
            return Ok(());
        }
        if worker::start_supervisor() {
            *self = Self { again_at: Some(now + SUPERVISOR_START_TIME), slot_deadline: None };
            return Ok(());
        }
        match now > *self.slot_deadline.get_or_insert(now + SUPERVISOR_START_TIME) {
            true => {
                Err(Error::new(ErrorKind::Unavailable, "no background worker for the supervisor of engines")
                    .with_detail("All max_worker_processes are in use.")
                    .with_hint(
                        "Add pystachio to shared_preload_libraries, which keeps a worker for it, or raise \
                     max_worker_processes; restart the server.",
                    ))
            }
            false => Ok(()),
        }
    }
}

/// A connection to the engine if it is running.
pub fn connect_if_running(home: &EngineHome) -> Option<UnixStream> {
    UnixStream::connect(home.socket()).ok()
}

/// Requests the engine. What a transaction requests for a server that it has made or altered goes with a rollback.
fn request(home: &EngineHome) -> Result<()> {
    watch::note_request(home);
    match home.request() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let directory = home.directory();
            Err(Error::new(
                ErrorKind::FileAccess,
                format!("can't write \"{}\": {error}", directory.display()),
            )
            .with_hint("Make the folder, which is in the data directory, writable for the server's user."))
        }
        // Where the supervisor has removed the folder meanwhile, the next try makes it anew.
        _ => Ok(()),
    }
}

fn check_supported(home: &EngineHome) -> Result<()> {
    let (server_name, ServerOptions { device, rank_processes, .. }) = (&home.server_name, &home.options);
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

fn refused(refusal: &Refusal) -> Error {
    let error = Error::new(ErrorKind::OutOfMemory, refusal.message.clone()).with_hint(refusal.hint.clone());
    match &refusal.detail {
        Some(detail) => error.with_detail(detail.clone()),
        None => error,
    }
}

fn not_started(home: &EngineHome, what: &str) -> Error {
    let name = &home.server_name;
    let error = Error::new(ErrorKind::Unavailable, format!("engine of server \"{name}\" {what}"))
        .with_hint("Look at pystachio.engines and into the server log.");
    match home.read_state().and_then(|state| state.last_error) {
        Some(reason) => error.with_detail(format!("The engine process {reason}.")),
        None => error,
    }
}
