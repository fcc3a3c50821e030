//! One generation of a server's engine: the process that serves it, and former ones that run their last requests.
//!
//! Restarts: the first at once, then after 0.1 s, 0.2 s and so on: up to a second if the engine has
//! answered before it ended, up to half a minute if it does not even start. An engine that has run for
//! five seconds has its failures forgotten.
//!
//! Invariants: a generation has one process that accepts connections at most. Its next process starts when the former one has
//! removed its socket.

use std::{
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use pgrx::prelude::*;

use super::{
    budget::{Refusal, Share},
    child::{EngineProcess, Exit},
    home::{self, EngineHome, EnginePhase, EngineState, RetiringProcess},
    readable::ReadableSet,
};
use crate::settings;

/// How often a process that does not answer yet is asked.
const START_POLL_INTERVAL: Duration = Duration::from_millis(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A process that was asked to end, and had a request then, may end later for another reason.
const ASKED_TIME: Duration = Duration::from_secs(3);
const HEALTHY_TIME: Duration = Duration::from_secs(5);
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
const START_BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// A generation of a server's engine.
pub struct Engine {
    home: EngineHome,
    /// The name of its database.
    database: String,
    /// The folder of its database.
    database_path: Option<PathBuf>,
    process: Option<EngineProcess>,
    retiring: Vec<(EngineProcess, f64)>,
    /// When the process was asked to end if it has no requests, and why.
    asked_to_end: Option<(Instant, &'static str)>,
    /// It has ended for want of requests.
    is_idle: bool,
    state: EngineState,
    noted: Option<EngineState>,
    started: Instant,
    start_at: Instant,
}

impl Engine {
    /// An engine that is to be started.
    pub fn new(home: EngineHome, database: String, database_path: Option<PathBuf>) -> Self {
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
            retiring: Vec::new(),
            refusal: None,
            promise: None,
        };
        Self {
            home,
            database,
            database_path,
            process: None,
            retiring: Vec::new(),
            asked_to_end: None,
            is_idle: false,
            state,
            noted: None,
            started: now,
            start_at: now,
        }
    }

    /// Its folder.
    pub fn home(&self) -> &EngineHome {
        &self.home
    }

    /// Notes the name of its database, and its folder.
    pub fn set_database(&mut self, database: String, database_path: Option<PathBuf>) {
        (self.database, self.database_path) = (database, database_path);
    }

    /// Where it belongs, in words that every role may read.
    pub fn place(&self) -> String {
        format!("database \"{}\"", self.database)
    }

    /// Whose engine it is, in the log's words.
    fn owner(&self) -> String {
        format!("pystachio engine of server \"{}\", database \"{}\"", self.home.server_name, self.database)
    }

    /// What its processes have.
    pub fn shares(&self) -> impl Iterator<Item = &Share> {
        self.process.iter().chain(self.retiring.iter().map(|(process, _)| process)).map(EngineProcess::share)
    }

    /// How long it has had no request; `None` if it may have one, or is not to end for that.
    pub fn unused_for(&self) -> Option<Duration> {
        // Other hosts' queries use the engine of a server with several hosts, too.
        let may_end = self.state.phase == EnginePhase::Running
            && self.process.is_some()
            && self.retiring.is_empty()
            && self.home.options.hosts.is_none();
        let since_start = self.started.elapsed();
        may_end.then(|| self.home.unused_for().map_or(Duration::ZERO, |unused| unused.min(since_start)))
    }

    /// Whether it runs on the processors because others have its GPU.
    pub fn is_displaced(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.share().is_displaced)
    }

    /// Whether a process is to be started now.
    pub fn wants_process(&self) -> bool {
        self.process.is_none()
            && !self.is_idle
            && self.state.phase != EnginePhase::Retired
            && Instant::now() >= self.start_at
            && !self.is_socket_taken()
    }

    /// Notes why it is not started.
    pub fn refuse(&mut self, refusal: Refusal) {
        if self.state.refusal.as_ref() != Some(&refusal) {
            self.state.refusal = Some(refusal);
            self.note();
        }
    }

    /// Lets its process end with the requests that it runs. Another one starts.
    pub fn replace(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.retire();
            self.retiring.push((process, home::now()));
            self.start_at = Instant::now();
            self.state.engine_pid = None;
            self.enter(EnginePhase::Starting);
        }
    }

    /// Whether its database is where it was. One that is not was dropped, or has gone to another tablespace.
    pub fn has_database(&self) -> bool {
        self.database_path.as_ref().is_some_and(|path| path.exists())
    }

    /// What kept it from starting may be mended.
    pub fn start_soon(&mut self) {
        self.start_at = Instant::now();
    }

    /// Whether there is nothing left to look after.
    pub fn is_over(&self) -> bool {
        let is_wanted = self.state.phase != EnginePhase::Retired && !self.is_idle;
        self.process.is_none() && self.retiring.is_empty() && !is_wanted
    }

    /// How long it can do without [`Engine::look_after`], if no process ends and no log line comes.
    pub fn wait_duration(&self) -> Duration {
        match self.state.phase {
            EnginePhase::Starting => START_POLL_INTERVAL,
            EnginePhase::Running | EnginePhase::Retired => POLL_INTERVAL,
            EnginePhase::Waiting => {
                let left = self.start_at.saturating_duration_since(Instant::now());
                left.clamp(START_POLL_INTERVAL, POLL_INTERVAL)
            }
        }
    }

    /// Does what is to be done now, but for starting a process.
    pub fn look_after(&mut self) {
        self.relay_logs();
        self.bury_retired();
        if let Some(exit) = self.process.as_mut().and_then(EngineProcess::exit) {
            self.note_exit(exit);
        }
        match self.home.is_requested() {
            true => self.keep_running(),
            false => self.retire(),
        }
        self.note();
    }

    /// Asks its processes to end at once.
    pub fn terminate(&mut self) {
        self.processes().for_each(|process| process.terminate());
    }

    /// Whether no process is left.
    pub fn has_ended(&mut self) -> bool {
        self.relay_logs();
        self.processes().all(|process| process.exit().is_some())
    }

    /// Kills what is left of its processes.
    pub fn kill(&mut self) {
        for mut process in
            self.process.take().into_iter().chain(self.retiring.drain(..).map(|(process, _)| process))
        {
            process.kill();
        }
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut EngineProcess> {
        self.process.iter_mut().chain(self.retiring.iter_mut().map(|(process, _)| process))
    }

    fn relay_logs(&mut self) {
        self.processes().for_each(|process| process.log().relay());
    }

    fn keep_running(&mut self) {
        let now = Instant::now();
        if self.state.phase == EnginePhase::Retired {
            self.start_at = now;
            self.enter(EnginePhase::Starting);
        }
        if self.process.is_some()
            && self.state.phase == EnginePhase::Starting
            && UnixStream::connect(self.home.socket()).is_ok()
        {
            self.state.start_failures = 0;
            self.enter(EnginePhase::Running);
        }
        if self.process.is_some() && now.duration_since(self.started) > HEALTHY_TIME {
            self.state.failures = 0;
        }
        if let Some(timeout) = settings::idle_timeout()
            && self.unused_for() >= Some(timeout)
        {
            self.end_if_idle("it had no query for pystachio.idle_timeout");
        }
    }

    /// Whether a former process has not given its socket up yet.
    fn is_socket_taken(&self) -> bool {
        !self.retiring.is_empty() && self.home.socket().exists()
    }

    /// Starts a process with this.
    pub fn start(&mut self, share: Share, logs: &ReadableSet) {
        if self.state.exited_pid.is_some() {
            self.state.restarts += 1;
        }
        self.started = Instant::now();
        self.asked_to_end = None;
        self.state.refusal = None;
        self.state.promise = Some(share.promise());
        let started = EngineProcess::start(&self.home, share, &self.owner());
        let followed = started.and_then(|mut process| {
            process.log().descriptor().map_or(Ok(()), |descriptor| logs.add(descriptor))?;
            Ok(process)
        });
        match followed {
            Ok(process) => {
                self.state.engine_pid = Some(process.pid());
                self.process = Some(process);
                self.enter(EnginePhase::Starting);
            }
            Err(error) => self.note_exit(Exit { reason: error.to_string(), is_success: false }),
        }
        self.note();
    }

    /// Asks the process to end, for a reason. One that has a request just now goes on.
    pub fn end_if_idle(&mut self, reason: &'static str) {
        let is_asked = self.asked_to_end.is_some_and(|(asked, _)| asked.elapsed() < POLL_INTERVAL);
        if let Some(process) = self.process.as_mut().filter(|_| !is_asked) {
            process.end_if_idle();
            self.asked_to_end = Some((Instant::now(), reason));
        }
    }

    fn retire(&mut self) {
        if let Some(mut process) = self.process.take() {
            log!(
                "{} (process {}) ends with its last query: its server was altered or dropped",
                self.owner(),
                process.pid()
            );
            process.retire();
            self.retiring.push((process, home::now()));
        }
        if self.state.phase != EnginePhase::Retired {
            self.state.engine_pid = None;
            self.enter(EnginePhase::Retired);
        }
    }

    fn bury_retired(&mut self) {
        let owner = self.owner();
        self.retiring.retain_mut(|(process, _)| match process.exit() {
            Some(exit) => {
                process.log().finish();
                // A process that is asked to end before it can hear of it is killed by that.
                if !exit.is_success && !exit.reason.contains("SIGUSR1") {
                    log!("{owner} (process {}) {}", process.pid(), exit.reason);
                }
                false
            }
            None => true,
        });
    }

    fn note_exit(&mut self, exit: Exit) {
        let pid = self.process.take().map(|mut process| {
            process.log().finish();
            process.pid()
        });
        self.state.engine_pid = None;
        self.state.exited_pid = pid.or(self.state.exited_pid);
        let text = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        let asked = self.asked_to_end.take().filter(|(asked, _)| asked.elapsed() < ASKED_TIME);
        if let Some((_, reason)) = asked.filter(|_| exit.is_success) {
            log!("{}{text} ended: {reason}", self.owner());
            self.is_idle = true;
            return;
        }
        log!("{}{text} {}", self.owner(), exit.reason);
        self.state.last_error = Some(exit.reason);
        self.state.failures += 1;
        let back_off_max = match self.state.phase {
            EnginePhase::Running => BACK_OFF_MAX,
            EnginePhase::Starting | EnginePhase::Waiting | EnginePhase::Retired => {
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
        self.state.retiring = self
            .retiring
            .iter()
            .map(|(process, since)| RetiringProcess {
                pid: process.pid(),
                since: *since,
                promise: process.share().promise(),
            })
            .collect();
        if self.noted.as_ref() != Some(&self.state) && !self.is_over() {
            match self.home.write_state(&self.state) {
                Ok(()) => self.noted = Some(self.state.clone()),
                Err(error) => {
                    log!("pystachio can't write to \"{}\": {error}", self.home.directory().display())
                }
            }
        }
    }
}

fn back_off(failures: u32, back_off_max: Duration) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => BACK_OFF_MIN.saturating_mul(1 << (more - 2).min(16)).min(back_off_max),
    }
}
