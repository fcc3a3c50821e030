//! An engine's folder in the data directory.
//!
//! Paths are relative to the data directory, which is the working directory of every backend and worker:
//! a socket's path may have 107 bytes at most, and a data directory's may have more.
#![expect(unsafe_code, reason = "flock, and reading a global of PostgreSQL")]

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use pgrx::pg_sys;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    options::{self, ServerOptions},
    pg::wait::{WaitEvent, wait_time},
};

/// The folder of all engines, in the data directory.
pub const ENGINES_DIRECTORY: &str = "pystachio";

/// How often a wait for the supervisor's note looks.
const NOTE_POLL_INTERVAL: Duration = Duration::from_millis(10);

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
}

/// What the supervisor notes about its engine.
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
}

/// An engine's folder, and the options that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineHome {
    /// The database's oid.
    pub database_oid: u32,
    /// The server's oid.
    pub server_oid: u32,
    /// The server's options.
    pub options: ServerOptions,
}

/// Proof that this process is the supervisor.
pub struct HomeLock {
    _file: fs::File,
}

impl EngineHome {
    /// The engine of a server of this database. Raises an ERROR if there is no such server.
    pub fn of(server_oid: pg_sys::Oid) -> Self {
        // SAFETY: a global that is set when a backend starts.
        let database_oid = unsafe { pg_sys::MyDatabaseId }.to_u32();
        Self { database_oid, server_oid: server_oid.to_u32(), options: options::server_options(server_oid) }
    }

    /// The engine whose folder has this name.
    ///
    /// # Errors
    ///
    /// Reading the options fails, because the engine is not wanted any more.
    pub fn read(directory_name: &str) -> io::Result<Self> {
        let (database_oid, server_oid) = parse_directory_name(directory_name)
            .ok_or_else(|| io::Error::other(format!("not an engine's folder: {directory_name}")))?;
        let path = Path::new(ENGINES_DIRECTORY).join(directory_name).join("options.json");
        Ok(Self { database_oid, server_oid, options: read_json(&path)? })
    }

    /// The folder's name.
    pub fn directory_name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.options.hash(&mut hasher);
        format!("{}-{}-{:016x}", self.database_oid, self.server_oid, hasher.finish())
    }

    /// Whether a folder of this name is of the same server, whatever its options.
    pub fn is_of_same_server(&self, directory_name: &str) -> bool {
        parse_directory_name(directory_name) == Some((self.database_oid, self.server_oid))
    }

    /// The folder.
    pub fn directory(&self) -> PathBuf {
        Path::new(ENGINES_DIRECTORY).join(self.directory_name())
    }

    /// The engine's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory().join("socket")
    }

    /// Requests the engine, by writing its options.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn write_options(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.directory())?;
        write_json(&self.directory(), "options.json", &self.options)
    }

    /// Whether the engine is still wanted.
    pub fn is_wanted(&self) -> bool {
        self.directory().join("options.json").exists()
    }

    /// Whether there is a supervisor.
    pub fn is_supervised(&self) -> bool {
        is_supervised(&self.directory_name())
    }

    /// What the supervisor noted last.
    pub fn read_state(&self) -> Option<EngineState> {
        read_json(&self.directory().join("state.json")).ok()
    }

    /// Notes how the engine is.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn write_state(&self, state: &EngineState) -> io::Result<()> {
        write_json(&self.directory(), "state.json", state)
    }

    /// Becomes the supervisor, if there is none.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is one.
    pub fn lock(&self) -> io::Result<HomeLock> {
        Ok(HomeLock { _file: flock(&self.directory(), libc::LOCK_EX)? })
    }

    /// Why this process of the engine ended, once the supervisor has noted it.
    pub fn wait_exit_reason(&self, engine_pid: u32, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let state = self.read_state();
            match state.filter(|state| state.exited_pid == Some(engine_pid)) {
                Some(state) => return state.last_error,
                None if Instant::now() >= deadline => return None,
                None => wait_time(NOTE_POLL_INTERVAL, WaitEvent::Other),
            }
        }
    }

    /// Removes the folder. Another process may be making it anew: that one notices and tries again.
    pub fn remove(&self) {
        // What can't be removed now is removed when the launcher finds it without a supervisor.
        let _ = fs::remove_dir_all(self.directory());
    }
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

/// Whether a supervisor holds the folder of this name.
pub fn is_supervised(directory_name: &str) -> bool {
    let directory = Path::new(ENGINES_DIRECTORY).join(directory_name);
    // A shared lock, so that two that look at once don't take each other for the supervisor.
    matches!(flock(&directory, libc::LOCK_SH), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Asks the engine of the folder to stop, or removes the folder where no supervisor holds it.
pub fn stop(directory_name: &str) {
    let directory = Path::new(ENGINES_DIRECTORY).join(directory_name);
    let _ = fs::remove_file(directory.join("options.json"));
    if !is_supervised(directory_name) {
        let _ = fs::remove_dir_all(directory);
        return;
    }
    if let Ok(state) = read_json::<EngineState>(&directory.join("state.json")) {
        // SAFETY: the supervisor is alive, for it holds the lock; SIGHUP only wakes it.
        unsafe { libc::kill(state.supervisor_pid as i32, libc::SIGHUP) };
    }
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn flock(directory: &Path, operation: i32) -> io::Result<fs::File> {
    let path = directory.join("lock");
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    // SAFETY: the file is open.
    match unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
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
