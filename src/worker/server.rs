//! The Unix socket that backends connect to.
//!
//! Invariants: only this user can open the socket, by its own mode and by its folder's. It appears under its
//! name only when the server accepts connections, and an orderly shutdown removes it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use pystachio_engine::Engine;
use pystachio_plan::{Error, ErrorKind, Result, system_reason};
use tokio::{net::UnixListener, runtime::Handle, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    counters::{Counters, Requests},
    queries::QueryLog,
    session,
};

/// How long the server waits before it accepts again when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that can accept no connection says so once, and again after it could for so long.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// How long requests that run when the device is lost may take to end.
const LOST_DEVICE_WAIT: Duration = Duration::from_secs(10);

/// What all sessions share.
pub struct Host {
    engine: Arc<dyn Engine>,
    compute: Handle,
    counters: Arc<Counters>,
    requests: Arc<Requests>,
    queries: Arc<QueryLog>,
    libraries: Vec<String>,
    device_lost: CancellationToken,
    retired: CancellationToken,
    /// Set when `device_lost` is, if what runs on the device will not end.
    stuck: watch::Sender<Option<Error>>,
}

impl Host {
    /// An engine, the runtime whose threads compute, and a line about each library that the engine would use.
    pub fn new(engine: Arc<dyn Engine>, compute: Handle, libraries: Vec<String>) -> Arc<Self> {
        let (device_lost, retired) = (CancellationToken::new(), CancellationToken::new());
        let stuck = watch::Sender::default();
        let (counters, requests, queries) = (Arc::default(), Arc::default(), Arc::default());
        Arc::new(Self {
            engine,
            compute,
            counters,
            requests,
            queries,
            libraries,
            device_lost,
            retired,
            stuck,
        })
    }

    /// A line about each library that the engine would use.
    pub(crate) fn libraries(&self) -> &[String] {
        &self.libraries
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Where requests run.
    pub(crate) fn compute(&self) -> &Handle {
        &self.compute
    }

    /// Cancelled when a request has failed with [`ErrorKind::Device`]: this process is of no more use.
    pub fn device_lost(&self) -> &CancellationToken {
        &self.device_lost
    }

    /// Cancelled when the process takes no more requests, and ends when those that run have ended.
    pub fn retired(&self) -> &CancellationToken {
        &self.retired
    }

    /// Ends the server when the requests that run have ended. It takes no more connections and requests.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    /// As [`Host::retire`], but only if no request runs. Returns whether the server ends.
    pub fn retire_if_idle(&self) -> bool {
        let is_idle = self.requests.counts().1 == 0;
        if is_idle {
            self.retire();
        }
        is_idle
    }

    /// The requests that take time.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// Ends every running answer with this error, then the server. Called when work on the device will not end.
    pub fn give_up(&self, error: Error) {
        self.counters.record_error(&error, None);
        self.stuck.send_replace(Some(error));
        self.device_lost.cancel();
    }

    /// The error that ended the server, if it was not stopped.
    pub fn why_ended(&self) -> Error {
        let given_up = self.stuck.borrow().clone();
        given_up.unwrap_or_else(|| Error::new(ErrorKind::Device, "the device is lost; the engine ends"))
    }

    /// Waits until the server ends because of an error.
    pub(crate) async fn given_up(&self) -> Error {
        let mut stuck = self.stuck.subscribe();
        let error = stuck.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        error.unwrap_or_else(|| Error::internal("the server ended before its sessions"))
    }

    /// The queries that run, and those that ran.
    pub fn queries(&self) -> &Arc<QueryLog> {
        &self.queries
    }

    /// What is counted.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Makes the socket, and its folder if that is absent. A socket left by an engine that died is
    /// replaced.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::FilePermission`] if others may enter the folder; [`ErrorKind::FileAccess`] if an
    /// engine listens there already, or the socket can't be made.
    pub fn bind(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::new(
                ErrorKind::FileAccess,
                format!("socket can't be made: path={}: {}", path.display(), system_reason(&error)),
            )
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let mode = fs::metadata(folder).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Error::new(
                ErrorKind::FilePermission,
                format!(
                    "folder of the socket is open to others: path={}, mode={:o}",
                    folder.display(),
                    mode & 0o777
                ),
            )
            .with_hint("Make it the server user's alone: mode 700."));
        }
        refuse_second_engine(path).map_err(failed)?;
        let provisional = path.with_extension("new");
        remove_socket(&provisional).map_err(failed)?;
        let listener = UnixListener::bind(&provisional).map_err(failed)?;
        fs::set_permissions(&provisional, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        fs::rename(&provisional, path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves connections until `stop`, until the host is retired, or until the device is lost; then the socket is removed and
    /// every session dropped. Sessions of a retired host, or of one whose device is lost, first end what they are at.
    pub async fn serve(self, host: Arc<Host>, stop: CancellationToken) {
        let mut sessions = JoinSet::new();
        // When a connection could not be accepted last.
        let mut refused: Option<Instant> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = host.device_lost.cancelled() => break,
                () = host.retired.cancelled() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        sessions.spawn(session::serve(stream, host.clone()));
                    }
                    Err(error) => {
                        if refused.replace(Instant::now()).is_none_or(|last| last.elapsed() > REFUSAL_INTERVAL) {
                            let sessions = sessions.len();
                            tracing::warn!(%error, sessions, "connections can't be accepted; clients wait");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = sessions.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "session ended badly");
                    }
                }
            }
        }
        if let Err(error) = remove_socket(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "socket can't be removed");
        }
        // Connections that nobody has accepted yet are closed: their backends find the next engine.
        drop(self.listener);
        let device_lost = async {
            host.device_lost.cancelled().await;
            tokio::time::sleep(LOST_DEVICE_WAIT).await;
        };
        if host.device_lost.is_cancelled() || host.retired.is_cancelled() {
            let ended = async { while sessions.join_next().await.is_some() {} };
            tokio::select! {
                () = stop.cancelled() => {}
                () = ended => {}
                () = device_lost => {}
            }
        }
        sessions.shutdown().await;
    }
}

fn refuse_second_engine(path: &Path) -> io::Result<()> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another engine listens there")),
        Err(_) => remove_socket(path),
    }
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
