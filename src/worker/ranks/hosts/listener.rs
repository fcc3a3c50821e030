//! Starts ranks' processes for the queries of other hosts.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, mpsc as blocking},
    time::Duration,
};

use pystachio_engine::{locking::lock_whole, spill_folder::remove_spill_folders};
use pystachio_gpu::exchange::Rank;
use pystachio_plan::{Error, Result};
use tokio::{
    net::{TcpListener, lookup_host},
    runtime::Handle,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

use super::{
    CONNECT_MAX, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, ListenerSetup, relay,
    service::{self, FromHost, RankService, ServeRank, ToHost},
};
use crate::ranks::process::ChildProcess;

/// An address that can't be listened on is tried again after that.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// How long a process that has closed its connection has to end.
const CLOSE_MAX: Duration = Duration::from_millis(300);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(10);

type StartedProcess = io::Result<(ChildProcess, UnixStream)>;

/// Listens for other hosts, as long as the process lives.
#[derive(Debug)]
pub struct HostListener {
    setup: ListenerSetup,
    /// To the thread that starts processes.
    starts: blocking::Sender<(Rank, oneshot::Sender<StartedProcess>)>,
    /// Ends the last process of a coordinator's rank, by coordinator and rank. A coordinator that asks again has lost the previous one.
    ends: Mutex<HashMap<(String, Rank), CancellationToken>>,
}

impl HostListener {
    /// Begins to listen, on this host's address alone.
    ///
    /// # Errors
    ///
    /// There can be no thread.
    pub fn start(setup: ListenerSetup, runtime: &Handle) -> Result<()> {
        runtime.spawn(Self::new(setup)?.listen());
        Ok(())
    }

    /// With the thread that starts processes.
    pub(super) fn new(setup: ListenerSetup) -> Result<Arc<Self>> {
        let (starts, wanted) = blocking::channel::<(Rank, oneshot::Sender<StartedProcess>)>();
        let command = setup.command.clone();
        // A process ends with the thread that has started it, and a runtime's threads may end.
        std::thread::Builder::new()
            .name("pystachio-hosts".to_owned())
            .spawn(move || {
                for (rank, started) in wanted {
                    // If the caller no longer waits, dropping the process ends it.
                    let _ = started.send(command.start_child(rank));
                }
            })
            .map_err(|error| Error::internal(format!("no thread that starts ranks: {error}")))?;
        Ok(Arc::new(Self { setup, starts, ends: Mutex::default() }))
    }

    async fn listen(self: Arc<Self>) {
        let host = self.setup.hosts.own().to_owned();
        let mut last = String::new();
        loop {
            let reason = match bind(&host).await {
                Ok(listener) => self.clone().serve_on(listener).await,
                Err(error) => error.to_string(),
            };
            if reason != last {
                tracing::error!(host, "other hosts can't be listened for: {reason}");
                last = reason;
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
        }
    }

    /// Serves other hosts: why it can't.
    pub(super) async fn serve_on(self: Arc<Self>, listener: TcpListener) -> String {
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
            .tls_config(self.setup.hosts.identity.server().timeout(CONNECT_MAX));
        let server = match server {
            Ok(server) => server,
            Err(error) => return service::reasons(&error),
        };
        tracing::info!(host = self.setup.hosts.own(), "listens for other hosts");
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        match server.serve_with_incoming(RankService(self.clone()), incoming).await {
            Ok(()) => "it has ended".to_owned(),
            Err(error) => service::reasons(&error),
        }
    }

    /// The rank that is asked for, and what ends it when it is asked for again.
    async fn open(
        &self,
        messages: &mut Streaming<ToHost>,
    ) -> std::result::Result<(Rank, CancellationToken), Status> {
        let first = tokio::time::timeout(CONNECT_MAX, messages.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no rank was asked for"))??;
        let open = first.and_then(|first| first.open);
        let open = open.ok_or_else(|| Status::invalid_argument("the first message asks for no rank"))?;
        let refused = |reason: String| {
            tracing::error!(coordinator = open.coordinator, "a host is refused: {reason}");
            Status::failed_precondition(reason)
        };
        let rank = self.setup.hosts.check(&open).map_err(refused)?;
        let end = CancellationToken::new();
        if let Some(before) = lock_whole(&self.ends).insert((open.coordinator, rank), end.clone()) {
            before.cancel();
        }
        Ok((rank, end))
    }

    async fn start_process(&self, rank: Rank) -> std::result::Result<(ChildProcess, UnixStream), Status> {
        let (answer, started) = oneshot::channel();
        let failed = |reason: String| Status::internal(format!("rank {rank} can't be started: {reason}"));
        self.starts.send((rank, answer)).map_err(|_| failed("the engine ends".to_owned()))?;
        let started = started.await.map_err(|_| failed("the engine ends".to_owned()))?;
        started.map_err(|error| failed(error.to_string()))
    }
}

impl ServeRank for HostListener {
    async fn serve(
        self: Arc<Self>,
        mut messages: Streaming<ToHost>,
        answers: mpsc::Sender<FromHost>,
    ) -> std::result::Result<(), Status> {
        let (rank, end) = self.open(&mut messages).await?;
        let (process, socket) = self.start_process(rank).await?;
        let pid = process.pid();
        let socket = socket.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(socket));
        let socket = socket.map_err(|error| Status::internal(format!("no control connection: {error}")))?;
        tracing::info!(rank = rank.0, process = pid, "a rank of another host's queries starts");
        // There is room for the first one.
        let _ = answers.try_send(FromHost { process: pid, ..FromHost::default() });
        tokio::spawn(carry(messages, answers, (process, socket), end, self));
        Ok(())
    }
}

/// Carries a rank's control connection, and ends its process with it.
async fn carry(
    mut messages: Streaming<ToHost>,
    answers: mpsc::Sender<FromHost>,
    (mut process, socket): (ChildProcess, tokio::net::UnixStream),
    end: CancellationToken,
    host: Arc<HostListener>,
) {
    let (reader, writer) = socket.into_split();
    tokio::select! {
        () = end.cancelled() => {}
        _ = relay::receive(&mut messages, writer, |message| Some(message.control)) => {}
        () = relay::send(reader, &answers, |control| FromHost { control, ..FromHost::default() }) => {
            let ended = end_reason(&mut process).await;
            let _ = answers.send(FromHost { ended, ..FromHost::default() }).await;
        }
    }
    let pid = process.pid();
    // It is waited for.
    let _ = tokio::task::spawn_blocking(move || drop(process)).await;
    remove_spill_folders(&host.setup.spill_directory, pid);
    tracing::info!(process = pid, "a rank of another host's queries has ended");
}

async fn end_reason(process: &mut ChildProcess) -> String {
    let end = async {
        loop {
            match process.end_reason() {
                Some(reason) => return reason,
                None => tokio::time::sleep(CLOSE_POLL_INTERVAL).await,
            }
        }
    };
    let ended = tokio::time::timeout(CLOSE_MAX, end).await;
    ended.unwrap_or_else(|_| "has closed its control connection, and was ended".to_owned())
}

/// Listens on a host's own address.
async fn bind(host: &str) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = lookup_host(host).await?.collect();
    TcpListener::bind(addresses.as_slice()).await
}
