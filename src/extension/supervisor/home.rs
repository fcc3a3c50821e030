//! An engine's folder in the data directory.
//!
//! Paths are relative to the data directory, which is the working directory of every backend and worker:
//! a socket's path may have 107 bytes at most, and a data directory's may have more.
//!
//! Invariants: the folder's name depends on declared options alone, and is the same in every build of a release. A reader of a
//! file sees the old content or the new. A folder is removed by renaming it first, so that no file of a new request goes with it.
#![expect(unsafe_code, reason = "reading a global of PostgreSQL")]

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use pgrx::pg_sys;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{budget::Refusal, child, lock};
use crate::{
    options::{self, ServerOptions},
    pg::wait::{WaitEvent, wait_time},
};

/// The folder of all engines, in the data directory.
pub const ENGINES_DIRECTORY: &str = "pystachio";

/// How often a wait for the supervisor's note looks.
const NOTE_POLL_INTERVAL: Duration = Duration::from_millis(10);
const REQUEST_FILE: &str = "request.json";
const STATE_FILE: &str = "state.json";
/// The file whose time of change says when the engine last had a request (`USED_FILE` of the worker).
const USED_FILE: &str = "used";

/// Where an engine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnginePhase {
    /// The process runs, and does not yet answer.
    Starting,
    /// The process answers.
    Running,
    /// The process ended, and is started again after a while.
    Waiting,
    /// No process is wanted. Those that are left run their last requests.
    Retired,
}

/// A process that runs its last requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetiringProcess {
    /// Its number.
    pub pid: u32,
    /// Since when: seconds since 1970.
    pub since: f64,
    /// What it may take until it ends.
    pub promise: Promise,
}

/// What the supervisor notes about an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineState {
    /// Where the engine is in its life.
    pub phase: EnginePhase,
    /// The supervisor's process.
    pub supervisor_pid: u32,
    /// The engine's process, if it has one.
    pub engine_pid: Option<u32>,
    /// When it got into this phase: seconds since 1970.
    pub since: f64,
    /// How often the process was started again.
    pub restarts: u64,
    /// How often in a row it ended before it had run for a while.
    pub failures: u32,
    /// How often in a row it ended before it answered, or could not be started at all.
    pub start_failures: u32,
    /// The process that ended last.
    pub exited_pid: Option<u32>,
    /// Why: `was killed by signal 9 (SIGKILL)`, or why it could not be started.
    pub last_error: Option<String>,
    /// Former processes that run their last requests.
    pub retiring: Vec<RetiringProcess>,
    /// Why it is not started.
    pub refusal: Option<Refusal>,
    /// What the process may take.
    pub promise: Option<Promise>,
}

/// What a process may take of the cluster's memory and GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Bytes of `pystachio.memory`.
    pub memory_bytes: u64,
    /// GPUs, each with the hundredths of its memory; 0 if the server's options say bytes.
    pub gpus: Vec<(u32, u32)>,
}

/// A generation of a server's engine: its folder, and the options that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineHome {
    /// The database's oid.
    pub database_oid: u32,
    /// The server's oid.
    pub server_oid: u32,
    /// The server's name, for messages. No part of the identity.
    pub server_name: String,
    /// The server's options.
    pub options: ServerOptions,
    directory_name: String,
}

/// The content of `request.json`.
#[derive(Serialize, Deserialize)]
struct Request {
    server_name: String,
    options: ServerOptions,
}

impl EngineHome {
    /// The engine of a server of this database. Raises an ERROR if there is no such server.
    pub fn of(server_oid: pg_sys::Oid) -> Self {
        // SAFETY: a global that is set when a backend starts.
        let database_oid = unsafe { pg_sys::MyDatabaseId }.to_u32();
        let (server_name, options) = options::server_options(server_oid);
        let server_oid = server_oid.to_u32();
        let directory_name = format!("{database_oid}-{server_oid}-{:016x}", digest(&options));
        Self { database_oid, server_oid, server_name, options, directory_name }
    }

    /// The same server's engine by what the catalog says now, other sessions' commits included. Raises an ERROR if the server is
    /// gone.
    pub fn again(&self) -> Self {
        // SAFETY: PostgreSQL does this whenever it takes a lock.
        unsafe { pg_sys::AcceptInvalidationMessages() };
        Self::of(pg_sys::Oid::from(self.server_oid))
    }

    /// The engine whose folder has this name.
    ///
    /// # Errors
    ///
    /// Reading the request fails, because the engine is not wanted any more.
    pub fn read(directory_name: &str) -> io::Result<Self> {
        let (database_oid, server_oid) = parse_directory_name(directory_name)
            .ok_or_else(|| io::Error::other(format!("not an engine's folder: {directory_name}")))?;
        let Request { server_name, options } = read_json(&directory(directory_name).join(REQUEST_FILE))?;
        Ok(Self { database_oid, server_oid, server_name, options, directory_name: directory_name.to_owned() })
    }

    /// The folder's name.
    pub fn directory_name(&self) -> String {
        self.directory_name.clone()
    }

    /// Whether a folder of this name is of the same server, whatever its options.
    pub fn is_of_same_server(&self, directory_name: &str) -> bool {
        parse_directory_name(directory_name) == Some((self.database_oid, self.server_oid))
    }

    /// The folder.
    pub fn directory(&self) -> PathBuf {
        directory(&self.directory_name)
    }

    /// The engine's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory().join("socket")
    }

    /// Requests the engine, by writing its options.
    ///
    /// # Errors
    ///
    /// Writing fails. `NotFound` if the supervisor has just removed the folder: another try may succeed.
    pub fn request(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.directory())?;
        let request = Request { server_name: self.server_name.clone(), options: self.options.clone() };
        write_json(&self.directory(), REQUEST_FILE, &request)
    }

    /// Whether the engine is wanted.
    pub fn is_requested(&self) -> bool {
        is_requested(&self.directory_name)
    }

    /// What the supervisor noted last, if it lives.
    pub fn read_state(&self) -> Option<EngineState> {
        read_state(&self.directory_name).filter(|state| Some(state.supervisor_pid) == lock::holder())
    }

    /// Notes how the engine is.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn write_state(&self, state: &EngineState) -> io::Result<()> {
        write_json(&self.directory(), STATE_FILE, state)
    }

    /// How long the engine has had no request, as far as it has noted.
    pub fn unused_for(&self) -> Option<Duration> {
        self.last_used()?.elapsed().ok()
    }

    /// When the engine last had a request, as far as it has noted.
    pub fn last_used(&self) -> Option<SystemTime> {
        fs::metadata(self.directory().join(USED_FILE)).ok()?.modified().ok()
    }

    /// Why this process of the engine ended or ends, once the supervisor has noted it or the kernel shows it. The kernel takes seconds
    /// to end a process with a GPU, whose connections it has closed before.
    pub fn wait_exit_reason(&self, engine_pid: u32, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let state = self.read_state();
            if let Some(state) = state.filter(|state| state.exited_pid == Some(engine_pid)) {
                return state.last_error;
            }
            // No other process has its number before the supervisor has waited for it.
            let reason = child::ending_reason(engine_pid);
            if reason.is_some() || Instant::now() >= deadline {
                return reason;
            }
            wait_time(NOTE_POLL_INTERVAL, WaitEvent::Other);
        }
    }
}

/// The processes of former generations of a server that run their last requests.
pub fn retiring(home: &EngineHome) -> Vec<RetiringProcess> {
    let Some(supervisor_pid) = lock::holder() else { return Vec::new() };
    let names = directory_names().into_iter().filter(|name| home.is_of_same_server(name));
    let states = names.filter_map(|name| read_state(&name));
    states.filter(|state| state.supervisor_pid == supervisor_pid).flat_map(|state| state.retiring).collect()
}

/// The database and the server that a folder's name tells.
pub fn parse_directory_name(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.splitn(3, '-');
    let oids = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().filter(|digest| digest.len() == 16)?;
    Some(oids)
}

/// The names of all engines' folders.
pub fn directory_names() -> Vec<String> {
    let entries = fs::read_dir(ENGINES_DIRECTORY).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| parse_directory_name(name).is_some())
        .collect()
}

/// Whether the engine of the folder is wanted.
pub fn is_requested(directory_name: &str) -> bool {
    directory(directory_name).join(REQUEST_FILE).exists()
}

/// How long the engine of the folder has been wanted.
pub fn requested_for(directory_name: &str) -> Option<Duration> {
    fs::metadata(directory(directory_name).join(REQUEST_FILE)).ok()?.modified().ok()?.elapsed().ok()
}

/// Makes the engine of the folder not wanted any more. The supervisor retires it.
pub fn withdraw(directory_name: &str) {
    let _ = fs::remove_file(directory(directory_name).join(REQUEST_FILE));
}

/// Makes the engine of the folder not wanted any more, and tells the supervisor.
pub fn retire(directory_name: &str) {
    withdraw(directory_name);
    match lock::holder() {
        Some(supervisor_pid) => lock::wake(supervisor_pid),
        None => remove(directory_name),
    }
}

/// Removes the folder. A backend that has just requested the engine notices, and requests it again.
pub fn remove(directory_name: &str) {
    let removed = Path::new(ENGINES_DIRECTORY).join(format!("removed-{}", std::process::id()));
    let _ = fs::remove_dir_all(&removed);
    if fs::rename(directory(directory_name), &removed).is_ok() {
        let _ = fs::remove_dir_all(&removed);
    }
}

/// Removes what a former supervisor has noted, and leaves the request.
pub fn forget_state(directory_name: &str) {
    let _ = fs::remove_file(directory(directory_name).join(STATE_FILE));
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn directory(directory_name: &str) -> PathBuf {
    Path::new(ENGINES_DIRECTORY).join(directory_name)
}

fn read_state(directory_name: &str) -> Option<EngineState> {
    read_json(&directory(directory_name).join(STATE_FILE)).ok()
}

/// A digest that is the same in every process and build: 64-bit FNV-1a of the options as JSON.
fn digest(options: &ServerOptions) -> u64 {
    let text = serde_json::to_vec(options).unwrap_or_default();
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)
}

/// Readers see the old content or the new, never a part.
fn write_json<T: Serialize>(directory: &Path, name: &str, value: &T) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.{}", std::process::id()));
    let mut file =
        fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(value).map_err(io::Error::other)?)?;
    fs::rename(temporary, directory.join(name))
}
