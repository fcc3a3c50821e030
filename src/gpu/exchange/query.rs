//! The exchanges of one query on one rank.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pystachio_engine::{
    StopFlag,
    locking::{lock_whole, whole},
};
use pystachio_plan::{ActivityKind, Error, ErrorKind, ExchangeReach, Result};

use super::{
    ExchangeId, ExchangeKey, QueryId, Rank,
    announcement::{Announcement, Announcements},
    inbox::{Inbox, InboxConsumer},
    link_meter::LinkMeter,
    outbox::{Outbox, OutboxProducer, PackedBlock},
    waker::Waker,
};
use crate::device::ActivityLog;

/// How often a driver that waits for an exchange polls whether its query is still wanted. Otherwise
/// an event wakes it.
pub(super) const STOP_INTERVAL: Duration = Duration::from_millis(10);

/// An exchange's limits of a rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeSpec {
    /// Its number.
    pub id: ExchangeId,
    /// For outgoing blocks: twice the bytes of a block let producers pack while others are sent. If
    /// other exchanges have left less, it gets less, but at least one block.
    pub outbox_bytes: u64,
    /// For incoming blocks, and those that consumers hold: the same.
    pub inbox_bytes: u64,
    /// The limit of its blocks, at most [`super::NetworkOptions::block_bytes_max`], which is the
    /// default. The same on all ranks.
    pub block_bytes_max: Option<u64>,
    /// Whether its blocks are held back until a round pays, see
    /// [`super::NetworkOptions::gather_bytes_min`]; otherwise each goes as soon as there is room.
    pub is_gathered: bool,
    /// Limit of the running groups of transfers with its blocks, at least 1, in place of the
    /// network's option ([`super::NetworkOptions::groups_max`]). Ranks may differ.
    pub groups_max: Option<usize>,
    /// The ranks that a rank's rows go to. The same on all ranks.
    pub reach: ExchangeReach,
    /// When this rank packs its blocks. Ranks may differ: each block describes its packing.
    pub narrowing: Narrowing,
}

/// When outgoing blocks are compressed: integers to as few bits as the values of a block, their
/// differences, or their runs need; texts by LZ4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Narrowing {
    /// Never.
    #[default]
    Never,
    /// In chunks that are large enough, if the link to other ranks was measured and is slow
    /// ([`super::LinkMeter`]); texts if it is slower still.
    OverSlowLinks,
    /// In every chunk.
    Always,
}

impl ExchangeSpec {
    /// An exchange of all ranks with this size of either buffer, whose blocks follow the network's
    /// options, not packed.
    pub fn new(id: ExchangeId, buffer_bytes: u64) -> Self {
        Self {
            id,
            outbox_bytes: buffer_bytes,
            inbox_bytes: buffer_bytes,
            block_bytes_max: None,
            is_gathered: true,
            groups_max: None,
            reach: ExchangeReach::All,
            narrowing: Narrowing::Never,
        }
    }
}

/// Counts of an exchange on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeMetrics {
    /// Bytes of blocks that were sent, once for each destination.
    pub sent_bytes: u64,
    /// The same bytes without packing.
    pub sent_wide_bytes: u64,
    /// The number of those blocks.
    pub sent_blocks: u64,
    /// Ranks that they went to, without this one.
    pub partners: u64,
    /// Bytes of received blocks.
    pub received_bytes: u64,
    /// The number of those blocks.
    pub received_blocks: u64,
    /// Microseconds that producers waited for room, all together.
    pub producers_waited_us: u64,
    /// Microseconds that consumers waited for blocks, all together.
    pub consumers_waited_us: u64,
    /// Microseconds from the first sent or received block to the last.
    pub moving_us: u64,
}

/// Counts of an exchange, which all of its threads add to.
#[derive(Default)]
pub(super) struct Counters {
    sent_bytes: AtomicU64,
    sent_wide_bytes: AtomicU64,
    sent_blocks: AtomicU64,
    /// Numbers, which a panic leaves usable.
    destinations: Mutex<BTreeSet<Rank>>,
    received_bytes: AtomicU64,
    received_blocks: AtomicU64,
    producers_waited_us: AtomicU64,
    consumers_waited_us: AtomicU64,
    /// The times of the first and the last sent or received block.
    moved: Mutex<Option<(Instant, Instant)>>,
    /// The log of movements and their operator; absent if the query is not watched.
    watch: OnceLock<(Arc<ActivityLog>, u32)>,
}

impl Counters {
    pub(super) fn note_sent(&self, to: Rank, block: &PackedBlock) {
        lock_whole(&self.destinations).insert(to);
        self.sent_bytes.fetch_add(block.bytes(), Ordering::Relaxed);
        self.sent_wide_bytes.fetch_add(block.wide_bytes, Ordering::Relaxed);
        self.sent_blocks.fetch_add(1, Ordering::Relaxed);
        self.note_moved();
    }

    pub(super) fn note_received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.received_blocks.fetch_add(1, Ordering::Relaxed);
        self.note_moved();
    }

    /// Records bytes to or from another rank whose transfers have ended.
    pub(super) fn note_transfer(&self, kind: ActivityKind, bytes: u64, begun: Instant) {
        if let Some((log, operator)) = self.watch.get() {
            log.add_moved(*operator, kind, bytes, begun);
        }
    }

    fn note_moved(&self) {
        let now = Instant::now();
        lock_whole(&self.moved).get_or_insert((now, now)).1 = now;
    }

    pub(super) fn note_producer_waited(&self, begun: Instant) {
        self.producers_waited_us.fetch_add(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn note_consumer_waited(&self, begun: Instant) {
        self.consumers_waited_us.fetch_add(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// The counts of a rank.
    fn read(&self, rank: Rank) -> ExchangeMetrics {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ExchangeMetrics {
            sent_bytes: of(&self.sent_bytes),
            sent_wide_bytes: of(&self.sent_wide_bytes),
            sent_blocks: of(&self.sent_blocks),
            partners: lock_whole(&self.destinations).iter().filter(|to| **to != rank).count() as u64,
            received_bytes: of(&self.received_bytes),
            received_blocks: of(&self.received_blocks),
            producers_waited_us: of(&self.producers_waited_us),
            consumers_waited_us: of(&self.consumers_waited_us),
            moving_us: lock_whole(&self.moved).map_or(0, |(first, last)| (last - first).as_micros() as u64),
        }
    }
}

/// Whether a query goes on: shared by all of its threads on this rank.
pub(super) struct QueryHealth {
    pub(super) id: QueryId,
    pub(super) stop: StopFlag,
    pub(super) waker: Waker,
    failure: OnceLock<Failure>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// The reason why a query ends.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether to tell other ranks.
    pub(super) is_ours: bool,
}

impl QueryHealth {
    pub(super) fn new(id: QueryId, stop: StopFlag, waker: Waker) -> Self {
        let (failure, has_ended, ended) = Default::default();
        Self { id, stop, waker, failure, has_ended, ended }
    }

    /// # Errors
    ///
    /// The query's failure; `Cancelled` if it is no longer wanted.
    pub(super) fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(failure.error.clone()),
            None => self.stop.check(),
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Ends the query. The first reason counts.
    pub(super) fn fail(&self, error: Error, is_ours: bool) {
        if self.failure.set(Failure { error, is_ours }).is_ok() {
            self.waker.wake();
            self.ended.notify_all();
        }
    }

    /// Records that all ranks have ended all of its exchanges.
    pub(super) fn end(&self) {
        *lock_whole(&self.has_ended) = true;
        self.ended.notify_all();
    }

    fn has_ended(&self) -> bool {
        *lock_whole(&self.has_ended)
    }

    /// Waits until they have.
    fn wait_ended(&self) -> Result<()> {
        let mut has_ended = lock_whole(&self.has_ended);
        while !*has_ended {
            self.check()?;
            has_ended = whole(self.ended.wait_timeout(has_ended, STOP_INTERVAL)).0;
        }
        Ok(())
    }
}

/// One exchange on this rank.
pub(super) struct RankExchange {
    pub(super) key: ExchangeKey,
    pub(super) health: Arc<QueryHealth>,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) counters: Counters,
    pub(super) announcement: Announcement,
    /// Limit of its running groups.
    pub(super) groups_max: usize,
    pub(super) narrowing: Narrowing,
    pub(super) link: Arc<LinkMeter>,
}

impl RankExchange {
    /// Wakes all drivers that wait for it, so that they check the query's health.
    pub(super) fn wake_drivers(&self) {
        self.outbox.changed.notify_all();
        self.inbox.changed.notify_all();
        self.announcement.changed.notify_all();
    }
}

/// Access of a query to its exchanges on one rank.
///
/// Each outbox and inbox is taken once and given to drivers, which may clone it for further
/// threads. When they have ended, [`QueryExchanges::finish`] waits for the other ranks. Dropping
/// this before gives the query up on all ranks.
///
/// # Ordering
///
/// An exchange that a rank does not consume stops its producers on all ranks, once buffers are
/// full. So that some exchange always moves, all ranks must consume those of one query in
/// compatible orders: if one takes all of A before B, and another one all of B before A, each may
/// wait for the other's consumer for ever. If the data decide what a driver needs first (the build
/// side of a join), the ranks agree on that before, or a thread takes the blocks of the other
/// exchange meanwhile and spills their rows.
pub struct QueryExchanges {
    pub(super) health: Arc<QueryHealth>,
    pub(super) ends: BTreeMap<ExchangeId, Ends>,
}

/// The two ends of an exchange, until they are taken.
pub(super) struct Ends {
    pub(super) exchange: Arc<RankExchange>,
    pub(super) producer: Option<OutboxProducer>,
    pub(super) consumer: Option<InboxConsumer>,
}

impl QueryExchanges {
    /// The sender of an exchange's rows.
    ///
    /// # Errors
    ///
    /// `Internal` if there is no such exchange, or it was taken already.
    pub fn take_outbox(&mut self, id: ExchangeId) -> Result<OutboxProducer> {
        let taken = self.ends.get_mut(&id).and_then(|ends| ends.producer.take());
        taken.ok_or_else(|| self.not_there("outbox", id))
    }

    /// The receiver of an exchange's rows.
    ///
    /// # Errors
    ///
    /// Errors of [`QueryExchanges::take_outbox`].
    pub fn take_inbox(&mut self, id: ExchangeId) -> Result<InboxConsumer> {
        let taken = self.ends.get_mut(&id).and_then(|ends| ends.consumer.take());
        taken.ok_or_else(|| self.not_there("inbox", id))
    }

    /// The announcements of an exchange, if it exists.
    pub fn announcements(&self, id: ExchangeId) -> Option<Announcements> {
        self.ends.get(&id).map(|ends| Announcements { exchange: ends.exchange.clone() })
    }

    fn not_there(&self, end: &str, id: ExchangeId) -> Error {
        Error::internal(format!("query {} has no {end} of exchange {} left", self.health.id.0, id.0))
    }

    /// Records an exchange's movements from now on in a log, for an operator.
    pub fn watch(&self, id: ExchangeId, log: Arc<ActivityLog>, operator: u32) {
        if let Some(ends) = self.ends.get(&id) {
            // The first log stays.
            let _ = ends.exchange.counters.watch.set((log, operator));
        }
    }

    /// The counts of an exchange so far.
    pub fn metrics(&self, id: ExchangeId) -> Option<ExchangeMetrics> {
        self.ends.get(&id).map(|ends| ends.exchange.counters.read(ends.exchange.outbox.rank()))
    }

    /// Gives the query up on all ranks: each fails with an error that names this rank and has the
    /// reason. `Cancelled` stays `Cancelled`.
    pub fn abort(&self, error: &Error) {
        self.health.fail(error.clone(), true);
    }

    /// Waits until all ranks have ended all exchanges. Outboxes that were not taken send nothing,
    /// and inboxes that were not taken want nothing. The counts are final then.
    ///
    /// # Errors
    ///
    /// The query's failure, here or as `Peer` on another rank; `Cancelled` if it is no longer
    /// wanted.
    pub fn finish(&mut self) -> Result<()> {
        for ends in self.ends.values_mut() {
            drop(ends.consumer.take());
            if let Some(producer) = ends.producer.take() {
                producer.finish();
            }
        }
        self.health.wait_ended()
    }
}

impl Drop for QueryExchanges {
    fn drop(&mut self) {
        if !self.health.has_ended() {
            self.health.fail(Error::new(ErrorKind::Cancelled, "the query was given up"), true);
        }
    }
}
