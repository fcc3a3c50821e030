//! A rank on another host. For the coordinator it takes the place of a child process.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
};

use pystachio_engine::locking::lock_whole;
use pystachio_gpu::exchange::Rank;
use tokio::{sync::mpsc, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};

use super::{
    CONNECT_MAX, Hosts, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, relay,
    service::{self, ToHost},
};
use crate::options::host_name;

/// Messages that have not been sent.
const UNSENT_MAX: usize = 16;

/// A rank's process on another host, as far as it is known here. Dropped, its call ends, and so does the process.
pub(in crate::ranks) struct HostRank {
    host: String,
    state: Arc<Mutex<HostRankState>>,
    call: JoinHandle<()>,
}

#[derive(Default)]
struct HostRankState {
    process: Option<u32>,
    ended: Option<String>,
}

impl HostRank {
    /// Asks a rank's host for it. The control connection is that of a process on this host. Called within a runtime.
    ///
    /// # Errors
    ///
    /// The system refuses sockets.
    pub(in crate::ranks) fn start(hosts: &Hosts, rank: Rank) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        let theirs = tokio::net::UnixStream::from_std(theirs)?;
        let state: Arc<Mutex<HostRankState>> = Arc::default();
        let (host, noted, hosts) = (hosts.host_of(rank).to_owned(), state.clone(), hosts.clone());
        let call = tokio::spawn({
            let host = host.clone();
            async move {
                let ended = run(&hosts, &host, rank, theirs, &noted).await;
                lock_whole(&noted).ended.get_or_insert(ended);
            }
        });
        Ok((Self { host, state, call }, ours))
    }

    /// Where it is.
    pub(in crate::ranks) fn host(&self) -> &str {
        &self.host
    }

    /// Its process there, once it has one.
    pub(in crate::ranks) fn pid(&self) -> Option<u32> {
        lock_whole(&self.state).process
    }

    /// Why it is there no more, or can't be.
    pub(in crate::ranks) fn end_reason(&self) -> Option<String> {
        lock_whole(&self.state).ended.clone()
    }

    /// Ends the call.
    pub(in crate::ranks) fn end(&self) {
        self.call.abort();
        lock_whole(&self.state).ended.get_or_insert_with(|| "was ended".to_owned());
    }
}

impl Drop for HostRank {
    fn drop(&mut self) {
        self.end();
    }
}

/// Connects to a host.
///
/// # Errors
///
/// Why that can't be done.
async fn connect(hosts: &Hosts, host: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("https://{host}"))
        .and_then(|endpoint| endpoint.tls_config(hosts.identity.client(host_name(host))))
        .map_err(|error| service::reasons(&error))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_MAX)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    match tokio::time::timeout(CONNECT_MAX, endpoint.connect()).await {
        Ok(connected) => connected.map_err(|error| service::reasons(&error)),
        Err(_) => Err(format!("no answer within {CONNECT_MAX:?}")),
    }
}

/// Carries a rank's control connection to its end: why that came.
async fn run(
    hosts: &Hosts,
    host: &str,
    rank: Rank,
    socket: tokio::net::UnixStream,
    state: &Mutex<HostRankState>,
) -> String {
    let unreachable = |reason: String| {
        format!(
            "can't be reached: {reason}; check that its engine runs, and the server options hosts, tls_certificate, \
             tls_key and tls_ca on both hosts"
        )
    };
    let channel = match connect(hosts, host).await {
        Ok(channel) => channel,
        Err(reason) => return unreachable(reason),
    };
    let (messages, unsent) = mpsc::channel(UNSENT_MAX);
    // There is room for the first one.
    let _ = messages.try_send(ToHost { open: Some(hosts.open(rank)), control: Vec::new() });
    let mut answers = match tokio::time::timeout(CONNECT_MAX, service::call(channel, unsent)).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(reason)) => return unreachable(reason),
        Err(_) => return unreachable(format!("no answer within {CONNECT_MAX:?}")),
    };
    let (reader, writer) = socket.into_split();
    let mut ended = None;
    let receive = relay::receive(&mut answers, writer, |answer| {
        if answer.process != 0 {
            lock_whole(state).process = Some(answer.process);
        }
        if answer.ended.is_empty() {
            return Some(answer.control);
        }
        ended = Some(answer.ended);
        None
    });
    let received = tokio::select! {
        received = receive => received,
        // It ends when this process has no more to say.
        () = relay::send(reader, &messages, |control| ToHost { open: None, control }) => Ok(()),
    };
    match (ended, received) {
        (Some(ended), _) => ended,
        (None, Err(status)) => format!("is cut off: {}", service::status_text(&status)),
        (None, Ok(())) => "is cut off: the connection was closed".to_owned(),
    }
}
