//! Watches the other ranks: starts them, connects all ranks when all are ready, and restarts lost ones.
//!
//! ```text
//!            all ready                  all have joined
//! apart ───────────────► connecting ───────────────────► connected
//!   ▲                        │                               │
//!   └──── a rank is lost, or the network ends, or not all have joined in time
//! ```
//!
//! Invariants: one thread does all of this and lives as long as the process, because the kernel ends a child when the thread that started it
//! ends. The thread waits only for its next event.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use pystachio_engine::{locking::lock_whole, spill_folder::remove_spill_folders};
use pystachio_gpu::{
    exchange::{Deadline, ExchangeNetwork, NetworkOptions, Rank},
    execution::{RankPeer, RankTable},
};
use pystachio_plan::{Error, ErrorKind, RankStatus, Result};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
};
use tokio_util::sync::CancellationToken;

use super::{
    RankSetup,
    message::ToRank,
    process::RankCommand,
    remote_rank::RemotePeer,
    slot::{Slot, SlotPhase, silent},
};

/// How often the ranks are looked at, where none of them has news.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// All ranks have joined a network within that, or it is given up: more than any communicator takes to connect.
const JOIN_MAX: Duration = Duration::from_secs(30);
/// Ranks that could not be connected are connected again after so long, and longer each time.
const CONNECT_AGAIN_MIN: Duration = Duration::from_millis(200);
const CONNECT_AGAIN_MAX: Duration = Duration::from_secs(5);
/// How long ranks have to end when they are asked to.
const END_MAX: Duration = Duration::from_millis(500);
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What ranks are started and connected with.
pub struct WatchSetup {
    /// Rank 0.
    pub rank_0: Arc<RankSetup>,
    /// How others are started.
    pub command: RankCommand,
    /// Learns when the ranks are connected.
    pub table: Arc<RankTable>,
    /// Where ranks have their folders for spill files.
    pub spill_directory: PathBuf,
}

/// What looks after the other ranks. Dropped, it ends them.
pub struct RankWatch {
    shared: Arc<WatchShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct WatchShared {
    stop: CancellationToken,
    is_connected: watch::Sender<bool>,
    statuses: Mutex<(u64, Vec<RankStatus>)>,
}

/// How ranks are connected.
enum Connection {
    /// They are not, and may be from then on.
    Apart(Instant),
    /// They are about to be.
    Connecting(Connecting),
    Connected(u64, Arc<ExchangeNetwork>),
}

struct Connecting {
    generation: u64,
    /// What is to move blocks, for the log.
    carrier: &'static str,
    deadline: Deadline,
    /// Rank 0's own end.
    own: OwnEnd,
}

enum OwnEnd {
    Pending(tokio::task::JoinHandle<Result<Arc<ExchangeNetwork>>>),
    Joined(Arc<ExchangeNetwork>),
}

struct Watcher {
    setup: WatchSetup,
    shared: Arc<WatchShared>,
    runtime: Handle,
    news: Arc<Notify>,
    slots: Vec<Slot>,
    connection: Connection,
    generation: u64,
    failures: NetworkFailures,
}

/// Networks in a row that did not come about, or ended while all of their ranks lived. They choose what connects the ranks next.
///
/// A rank that is lost while it connects counts: connecting may be what ends it.
#[derive(Debug, Default, PartialEq, Eq)]
struct NetworkFailures {
    count: u32,
    /// The last one may turn out to be the end of a rank: connections to it close before its process is known to end.
    is_in_doubt: bool,
}

impl NetworkFailures {
    /// A network did not come about.
    fn note_unconnected(&mut self) {
        *self = Self { count: self.count + 1, is_in_doubt: false };
    }

    /// A network has ended, and no rank is known to be lost.
    fn note_ended(&mut self) {
        *self = Self { count: self.count + 1, is_in_doubt: true };
    }

    /// A rank was lost: that is why the last network has ended, if none was begun since.
    fn note_lost_rank(&mut self) {
        if std::mem::take(&mut self.is_in_doubt) {
            self.count -= 1;
        }
    }

    /// Another network begins, after so many.
    fn begin(&mut self) -> u32 {
        self.is_in_doubt = false;
        self.count
    }

    /// How long to wait before another network begins.
    fn pause(&self) -> Duration {
        let pause = CONNECT_AGAIN_MIN.saturating_mul(1 << self.count.saturating_sub(1).min(16));
        pause.min(CONNECT_AGAIN_MAX)
    }
}

impl RankWatch {
    /// Begins to look after the ranks other than 0.
    ///
    /// # Errors
    ///
    /// There can be no thread.
    pub fn start(setup: WatchSetup, runtime: Handle) -> io::Result<Arc<Self>> {
        let shared = Arc::new(WatchShared {
            stop: CancellationToken::new(),
            is_connected: watch::Sender::new(false),
            statuses: Mutex::default(),
        });
        let (now, rank_count) = (Instant::now(), setup.table.rank_count());
        let watcher = Watcher {
            setup,
            shared: shared.clone(),
            runtime,
            news: Arc::default(),
            slots: (1..rank_count as u16).map(|rank| Slot::new(Rank(rank), now)).collect(),
            connection: Connection::Apart(now),
            generation: 0,
            failures: NetworkFailures::default(),
        };
        let thread =
            std::thread::Builder::new().name("pystachio-ranks".to_owned()).spawn(move || watcher.run())?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Waits until all ranks are connected, or for so long.
    pub async fn wait_connected(&self, wait_max: Duration) -> bool {
        let mut is_connected = self.shared.is_connected.subscribe();
        let connected = is_connected.wait_for(|is_connected| *is_connected);
        matches!(tokio::time::timeout(wait_max, connected).await, Ok(Ok(_)))
    }

    /// How the ranks other than 0 are, and the generation of the network that there was last.
    pub fn statuses(&self) -> (u64, Vec<RankStatus>) {
        lock_whole(&self.shared.statuses).clone()
    }

    /// Ends the ranks, and waits for that; not for long.
    pub fn stop(&self) {
        self.shared.stop.cancel();
        let thread = lock_whole(&self.thread).take();
        if let Some(thread) = thread {
            // Its waits end, and what it panics with it has logged.
            let _ = thread.join();
        }
    }
}

impl Drop for RankWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Watcher {
    fn run(mut self) {
        let (runtime, stop, news) = (self.runtime.clone(), self.shared.stop.clone(), self.news.clone());
        let _runtime = runtime.enter();
        while !stop.is_cancelled() {
            self.look();
            self.note_statuses();
            runtime.block_on(async {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = news.notified() => {}
                    () = tokio::time::sleep(LOOK_INTERVAL) => {}
                }
            });
        }
        self.end();
    }

    fn look(&mut self) {
        let now = Instant::now();
        let mut lost = None;
        for slot in &mut self.slots {
            if let Some(error) = slot.look(now) {
                lost = lost.or(Some((slot.rank, error)));
            }
        }
        if let Some((rank, error)) = lost {
            self.failures.note_lost_rank();
            self.disconnect(named(rank, error), now);
        }
        self.connection = match std::mem::replace(&mut self.connection, Connection::Apart(now)) {
            Connection::Apart(connect_at) => self.look_apart(connect_at, now),
            Connection::Connecting(connecting) => self.look_connecting(connecting, now),
            Connection::Connected(generation, network) => self.look_connected(generation, network, now),
        };
        let WatchSetup { command, rank_0, spill_directory, .. } = &self.setup;
        for slot in &mut self.slots {
            // All have been told by now.
            remove_spill_of(spill_directory, slot.bury());
            slot.start_if_due(command, rank_0.options.silence_max, &self.news);
        }
    }

    /// Begins to connect ranks that are all there.
    fn look_apart(&mut self, connect_at: Instant, now: Instant) -> Connection {
        if now < connect_at || !self.slots.iter().all(Slot::can_join) {
            return Connection::Apart(connect_at);
        }
        self.generation += 1;
        match self.invite(now) {
            Ok(connecting) => Connection::Connecting(connecting),
            Err(error) => {
                tracing::error!(hint = error.hint, "ranks can't be connected: {error}");
                self.connect_later(now)
            }
        }
    }

    fn invite(&mut self, now: Instant) -> Result<Connecting> {
        let generation = self.generation;
        let rank_0 = self.setup.rank_0.clone();
        let theirs = self.slots.iter().filter_map(|slot| slot.news()?.block_bytes_max);
        let block_bytes_max = theirs.fold(rank_0.device.block_bytes_max(), u64::min);
        let options = NetworkOptions { generation, block_bytes_max, ..rank_0.options };
        let (_, rank_count) = rank_0.place;
        let addresses: Vec<_> = self.slots.iter().filter_map(|slot| slot.news()?.link_address).collect();
        let failures = self.failures.begin();
        let mut invitations = rank_0.network.invite(rank_count, failures, &addresses)?.into_iter();
        let own = invitations.next().ok_or_else(|| Error::internal("an invitation for no rank"))?;
        let carrier = own.0.carrier.name();
        for (slot, (invitation, descriptors)) in self.slots.iter().zip(invitations) {
            let join = ToRank::Join { generation, block_bytes_max, invitation };
            // One that is not told is found to be lost, or not to join.
            slot.remote().map(|remote| remote.tell(join, descriptors));
        }
        // It may wait for the others.
        let own = self
            .runtime
            .spawn_blocking(move || rank_0.network.join(rank_0.place, own, &rank_0.device, options));
        let deadline = Deadline::new(JOIN_MAX, now);
        Ok(Connecting { generation, carrier, deadline, own: OwnEnd::Pending(own) })
    }

    fn look_connecting(&mut self, mut connecting: Connecting, now: Instant) -> Connection {
        if let OwnEnd::Pending(own) = &mut connecting.own
            && own.is_finished()
        {
            let joined = self.runtime.block_on(own);
            let joined = joined.unwrap_or_else(|error| Err(Error::internal(format!("it panicked: {error}"))));
            match joined {
                Ok(network) => connecting.own = OwnEnd::Joined(network),
                Err(error) => {
                    tracing::error!(hint = error.hint, "rank 0 can't be connected: {error}");
                    return self.connect_later(now);
                }
            }
        }
        let mut missing = Vec::new();
        let mut failed = None;
        for slot in &self.slots {
            match slot.news().and_then(|news| news.joined) {
                Some((generation, Ok(()))) if generation == connecting.generation => {}
                Some((generation, Err(error))) if generation == connecting.generation => {
                    failed = Some((slot.rank, error));
                }
                _ => missing.push(slot.rank),
            }
        }
        if let Some((rank, error)) = failed {
            tracing::error!(rank = rank.0, hint = error.hint, "a rank can't be connected: {error}");
            self.abandon(connecting, &Error::new(ErrorKind::Peer, format!("rank {rank}: {error}")));
            return self.connect_later(now);
        }
        match connecting.own {
            OwnEnd::Joined(network) if missing.is_empty() => {
                self.connect((connecting.generation, connecting.carrier), network)
            }
            _ if !connecting.deadline.is_over(now) => Connection::Connecting(connecting),
            _ => {
                let reason = format!("has not joined within {JOIN_MAX:?}, and was ended");
                for rank in &missing {
                    self.end_rank(*rank, &reason, now);
                }
                self.abandon(connecting, &Error::new(ErrorKind::Peer, "not all ranks have joined"));
                self.connect_later(now)
            }
        }
    }

    /// All ranks are connected.
    fn connect(&self, (generation, carrier): (u64, &str), network: Arc<ExchangeNetwork>) -> Connection {
        let peer = |slot: &Slot| -> Option<Arc<dyn RankPeer>> {
            Some(Arc::new(RemotePeer { remote: slot.remote()?.clone(), generation }))
        };
        let peers = self.slots.iter().filter_map(peer).collect();
        self.setup.table.connect(network.clone(), peers);
        self.shared.is_connected.send_replace(true);
        tracing::info!(generation, ranks = self.slots.len() + 1, carrier, "ranks are connected");
        Connection::Connected(generation, network)
    }

    fn look_connected(&mut self, generation: u64, network: Arc<ExchangeNetwork>, now: Instant) -> Connection {
        let Some(error) = network.failure() else {
            self.failures = NetworkFailures::default();
            return Connection::Connected(generation, network);
        };
        tracing::error!(generation, "the network of ranks has ended: {error}");
        let quiet: Vec<Rank> =
            self.slots.iter().filter(|slot| slot.is_quiet()).map(|slot| slot.rank).collect();
        self.connection = Connection::Connected(generation, network);
        self.disconnect(error, now);
        self.failures.note_ended();
        let connect_at = now + self.failures.pause();
        let reason = silent(self.setup.rank_0.options.silence_max);
        for rank in quiet {
            self.failures.note_lost_rank();
            self.end_rank(rank, &reason, now);
        }
        Connection::Apart(connect_at)
    }

    /// Ends what connects ranks, for a reason that all of them are told.
    fn disconnect(&mut self, reason: Error, now: Instant) {
        match std::mem::replace(&mut self.connection, Connection::Apart(now)) {
            Connection::Apart(connect_at) => self.connection = Connection::Apart(connect_at),
            Connection::Connecting(connecting) => {
                self.abandon(connecting, &reason);
                self.connection = self.connect_later(now);
            }
            Connection::Connected(generation, network) => {
                self.setup.table.disconnect();
                self.shared.is_connected.send_replace(false);
                self.give_up(generation, network, &reason);
            }
        }
    }

    fn abandon(&self, connecting: Connecting, reason: &Error) {
        match connecting.own {
            OwnEnd::Joined(network) => self.give_up(connecting.generation, network, reason),
            // It ends by itself when it finds that the others do not come.
            OwnEnd::Pending(_) => self.tell_given_up(connecting.generation, reason),
        }
    }

    fn give_up(&self, generation: u64, network: Arc<ExchangeNetwork>, reason: &Error) {
        network.give_up(reason.clone());
        self.tell_given_up(generation, reason);
        // Its end waits for its thread, which may be within a call of the device.
        self.runtime.spawn_blocking(move || drop(network));
    }

    fn tell_given_up(&self, generation: u64, reason: &Error) {
        for remote in self.slots.iter().filter_map(Slot::remote) {
            remote.tell(ToRank::GiveUp { generation, reason: reason.clone() }, Vec::new());
        }
    }

    fn connect_later(&mut self, now: Instant) -> Connection {
        self.failures.note_unconnected();
        Connection::Apart(now + self.failures.pause())
    }

    fn end_rank(&mut self, rank: Rank, reason: &str, now: Instant) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.rank == rank) {
            slot.end(reason, now);
        }
    }

    fn note_statuses(&self) {
        let (state, generation) = match &self.connection {
            Connection::Connected(generation, _) => ("running", *generation),
            Connection::Connecting(connecting) => ("connecting", connecting.generation),
            Connection::Apart(_) => ("ready", self.generation),
        };
        let status = |slot: &Slot| {
            let facts = slot.news().map(|news| news.facts).unwrap_or_default();
            RankStatus {
                rank: u32::from(slot.rank.0),
                pid: slot.pid(),
                host: self.setup.command.hosts.as_ref().map(|hosts| hosts.host_of(slot.rank).to_owned()),
                state: match slot.phase() {
                    SlotPhase::Waiting => "waiting to restart",
                    SlotPhase::Starting => "starting",
                    SlotPhase::Ready => state,
                }
                .to_owned(),
                resident_bytes: facts.resident_bytes,
                device_memory: facts.device_memory,
                queries_run: facts.queries_run,
                queries_running: facts.queries_running,
                restarts: slot.restarts,
                storage_paths: facts.storage_paths,
                last_error: slot.last_error.clone(),
            }
        };
        *lock_whole(&self.shared.statuses) = (generation, self.slots.iter().map(status).collect());
    }

    /// Ends the other ranks.
    fn end(mut self) {
        let now = Instant::now();
        let leaving = Error::new(ErrorKind::Unavailable, "the engine ends");
        self.setup.table.disconnect();
        self.disconnect(leaving, now);
        self.slots.iter().for_each(Slot::ask_to_end);
        while now.elapsed() < END_MAX && !self.slots.iter_mut().all(Slot::has_ended) {
            std::thread::sleep(END_POLL_INTERVAL);
        }
        for slot in &mut self.slots {
            let pid = slot.own_pid();
            // Dropped, it is killed and waited for.
            *slot = Slot::new(slot.rank, now);
            remove_spill_of(&self.setup.spill_directory, pid);
        }
    }
}

/// A rank's error, as others are told of it.
fn named(rank: Rank, error: Error) -> Error {
    Error { kind: ErrorKind::Peer, message: format!("rank {rank} {}", error.message), ..error }
}

fn remove_spill_of(directory: &std::path::Path, pid: Option<u32>) {
    if let Some(pid) = pid {
        remove_spill_folders(directory, pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_ends_with_a_rank_counts_nothing() {
        // The network's end is noticed before that of the process.
        let mut failures = NetworkFailures::default();
        failures.note_ended();
        failures.note_lost_rank();
        assert_eq!(failures.begin(), 0);
        // The process's end is noticed first.
        failures.note_lost_rank();
        assert_eq!(failures.begin(), 0);
        // Two ranks are lost at once.
        failures.note_ended();
        failures.note_lost_rank();
        failures.note_lost_rank();
        assert_eq!(failures.begin(), 0);
    }

    #[test]
    fn what_fails_while_all_ranks_live_counts_until_a_network_lasts() {
        let mut failures = NetworkFailures::default();
        failures.note_ended();
        assert_eq!((failures.begin(), failures.pause()), (1, CONNECT_AGAIN_MIN));
        // A rank that is lost later has not ended the network before.
        failures.note_lost_rank();
        assert_eq!(failures.begin(), 1);
        // Nor has it kept one from coming about.
        failures.note_unconnected();
        failures.note_lost_rank();
        assert_eq!((failures.begin(), failures.pause()), (2, CONNECT_AGAIN_MIN * 2));
        // Of a network that ends after that, the count stays as it was.
        failures.note_ended();
        failures.note_lost_rank();
        assert_eq!(failures.begin(), 2);
        (0..40).for_each(|_| failures.note_unconnected());
        assert_eq!(failures.pause(), CONNECT_AGAIN_MAX);
    }
}
