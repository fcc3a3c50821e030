//! The supervisor: a background worker with one engine process under it.
//!
//! Restarts: the first at once, then after 0.1 s, 0.2 s and so on: up to a second if the engine has
//! answered before it ended, up to half a minute if it does not even start. An engine that has run for
//! five seconds has its failures forgotten.
#![expect(unsafe_code, reason = "PostgreSQL calls the main function by its name; names of databases")]

use std::{
    ffi::{CStr, CString},
    fs,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use pgrx::{
    bgworkers::{BackgroundWorker, SignalWakeFlags},
    pg_sys,
    prelude::*,
};

use super::{
    EngineHome, EnginePhase, EngineState,
    child::EngineProcess,
    home::{self, HomeLock},
    launcher,
};
use crate::{
    pg::wait::{WaitEvent, wait_readable, wait_time},
    settings,
};

/// The name by which PostgreSQL finds [`pystachio_supervisor_main`].
pub const MAIN_FUNCTION: &str = "pystachio_supervisor_main";

const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const START_POLL_INTERVAL: Duration = Duration::from_millis(5);
const HEALTHY_TIME: Duration = Duration::from_secs(5);
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
const START_BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// The supervisor's main function. Ends with status 0 where the engine is not wanted any more, so that
/// PostgreSQL does not start it again.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pystachio_supervisor_main(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(
        SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM | SignalWakeFlags::SIGCHLD,
    );
    let Ok(home) = EngineHome::read(BackgroundWorker::get_extra()) else { return };
    let Some(lock) = lock(&home) else { return };
    // Of no database, which could not be dropped otherwise. So it is in pg_stat_activity.
    BackgroundWorker::connect_worker_to_spi(None, None);
    let mut supervisor = Supervisor::new(home);
    while supervisor.is_needed() {
        supervisor.look_after();
        supervisor.wait();
    }
    supervisor.end(lock);
}

struct Supervisor {
    home: EngineHome,
    /// Whose engine it is, in the log's words.
    owner: String,
    engine: Option<EngineProcess>,
    state: EngineState,
    noted: Option<EngineState>,
    started: Instant,
    start_at: Instant,
    check_at: Instant,
}

impl Supervisor {
    fn new(home: EngineHome) -> Self {
        let now = Instant::now();
        let state = EngineState {
            phase: EnginePhase::Starting,
            supervisor_pid: std::process::id(),
            engine_pid: None,
            since: home::now(),
            restarts: 0,
            failures: 0,
            start_failures: 0,
            exited_pid: None,
            last_error: None,
        };
        let check_at = now + Duration::from_secs(settings::check_interval_s());
        let owner = owner(&home);
        report_name(&owner);
        Self { home, owner, engine: None, state, noted: None, started: now, start_at: now, check_at }
    }

    fn is_needed(&self) -> bool {
        !BackgroundWorker::sigterm_received()
            && self.home.is_wanted()
            && database_exists(self.home.database_oid)
    }

    /// Waits until something is to be done, and hands on what the engine logs meanwhile.
    fn wait(&mut self) {
        let time = self.wait_duration();
        match self.engine.as_mut().map(EngineProcess::log) {
            Some(log) => match log.descriptor() {
                Some(descriptor) => {
                    wait_readable(descriptor, time, WaitEvent::Supervise);
                    log.relay();
                }
                None => wait_time(time, WaitEvent::Supervise),
            },
            None => wait_time(time, WaitEvent::Supervise),
        }
    }

    fn wait_duration(&self) -> Duration {
        match self.state.phase {
            EnginePhase::Starting => START_POLL_INTERVAL,
            EnginePhase::Running => POLL_INTERVAL,
            EnginePhase::Waiting => {
                POLL_INTERVAL.min(self.start_at.saturating_duration_since(Instant::now()))
            }
        }
    }

    fn look_after(&mut self) {
        if BackgroundWorker::sighup_received() {
            // SAFETY: what a worker does on SIGHUP; it is in no transaction.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            // What kept the engine from starting may be mended.
            self.start_at = Instant::now();
        }
        let reason = self.engine.as_mut().and_then(EngineProcess::exit_reason);
        if let Some(reason) = reason {
            self.note_exit(reason);
        }
        let now = Instant::now();
        if self.engine.is_none() && now >= self.start_at {
            self.start();
        }
        if self.state.phase == EnginePhase::Starting && UnixStream::connect(self.home.socket()).is_ok() {
            self.state.start_failures = 0;
            self.enter(EnginePhase::Running);
        }
        if self.engine.is_some() && now.duration_since(self.started) > HEALTHY_TIME {
            self.state.failures = 0;
        }
        if now >= self.check_at {
            self.check_at = now + Duration::from_secs(settings::check_interval_s());
            launcher::start_check(self.home.database_oid, false);
            // Also hears of what was invalidated since. The database may have another name.
            self.owner = owner(&self.home);
        }
        self.note();
    }

    fn start(&mut self) {
        if self.state.exited_pid.is_some() {
            self.state.restarts += 1;
        }
        self.started = Instant::now();
        match EngineProcess::start(&self.home, &self.owner) {
            Ok(engine) => {
                self.state.engine_pid = Some(engine.pid());
                self.engine = Some(engine);
                self.enter(EnginePhase::Starting);
            }
            Err(error) => self.note_exit(error.to_string()),
        }
    }

    fn note_exit(&mut self, reason: String) {
        let pid = self.engine.take().map(|mut engine| {
            engine.log().finish();
            engine.pid()
        });
        let text = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        log!("{}{text} {reason}", self.owner);
        self.state.exited_pid = pid.or(self.state.exited_pid);
        self.state.engine_pid = None;
        self.state.last_error = Some(reason);
        self.state.failures += 1;
        let back_off_max = match self.state.phase {
            EnginePhase::Running => BACK_OFF_MAX,
            EnginePhase::Starting | EnginePhase::Waiting => {
                self.state.start_failures += 1;
                START_BACK_OFF_MAX
            }
        };
        self.start_at = Instant::now() + back_off(self.state.failures, back_off_max);
        self.enter(EnginePhase::Waiting);
        self.note();
    }

    fn enter(&mut self, phase: EnginePhase) {
        self.state.phase = phase;
        self.state.since = home::now();
    }

    fn note(&mut self) {
        if self.noted.as_ref() != Some(&self.state) {
            match self.home.write_state(&self.state) {
                Ok(()) => self.noted = Some(self.state.clone()),
                Err(error) => {
                    log!("pystachio can't write to \"{}\": {error}", self.home.directory().display())
                }
            }
        }
    }

    fn end(mut self, lock: HomeLock) {
        if let Some(mut engine) = self.engine.take() {
            engine.stop();
        }
        self.home.remove();
        drop(lock);
    }
}

/// Whose engine a folder's is, as log lines and pg_stat_activity name it.
fn owner(home: &EngineHome) -> String {
    let oid = home.database_oid;
    let database = BackgroundWorker::transaction(move || {
        // SAFETY: a lookup in a catalog that all databases share, in a transaction; the name is copied.
        let name = unsafe { pg_sys::get_database_name(pg_sys::Oid::from(oid)) };
        // SAFETY: a C string, or NULL for a database that was dropped meanwhile.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    });
    let database = database.map_or_else(|| format!("database {oid}"), |name| format!("database \"{name}\""));
    format!("pystachio engine of server \"{}\", {database}", home.options.server_name)
}

/// Names this process in pg_stat_activity.
fn report_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // SAFETY: a C string, which is copied and cut if it is too long.
        unsafe { pg_sys::pgstat_report_appname(name.as_ptr()) };
    }
}

/// The folder's lock, unless another supervisor holds it. Backends that look whether there is a supervisor
/// hold it for a moment.
fn lock(home: &EngineHome) -> Option<HomeLock> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match home.lock() {
            Ok(lock) => return Some(lock),
            Err(_) if Instant::now() >= deadline => return None,
            Err(_) => wait_time(LOCK_POLL_INTERVAL, WaitEvent::Supervise),
        }
    }
}

fn back_off(failures: u32, back_off_max: Duration) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => BACK_OFF_MIN.saturating_mul(1 << (more - 2).min(16)).min(back_off_max),
    }
}

/// Whether the database's folder exists, in the default tablespace or another.
fn database_exists(database_oid: u32) -> bool {
    let name = database_oid.to_string();
    if fs::exists(format!("base/{name}")).unwrap_or(true) {
        return true;
    }
    let tablespaces = fs::read_dir("pg_tblspc").into_iter().flatten().flatten();
    let versions = tablespaces.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
    versions.into_iter().any(|version| version.path().join(&name).exists())
}
