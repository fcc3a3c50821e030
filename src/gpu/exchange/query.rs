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

/// How often a driver that waits for an exchange looks whether its query is wanted still. What it waits for wakes it.
pub(super) const STOP_INTERVAL: Duration = Duration::from_millis(10);

/// What an exchange may have of a rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeSpec {
    /// Which one it is.
    pub id: ExchangeId,
    /// For blocks on their way out: twice the bytes of a block let producers pack while others are sent. Where others have left less than
    /// that it has less, but for one block.
    pub outbox_bytes: u64,
    /// For blocks on their way in, and those that consumers have not let go of: the same.
    pub inbox_bytes: u64,
    /// No block of it is larger, nor than [`super::NetworkOptions::block_bytes_max`], which it is where nothing is said. The same on all ranks.
    pub block_bytes_max: Option<u64>,
    /// Whether its blocks are held back until they are worth a round, as [`super::NetworkOptions::gather_bytes_min`] says; otherwise each goes
    /// as soon as there is room.
    pub is_gathered: bool,
    /// Its blocks are in so many groups of transfers on their way at most, at least 1, where the network's options are not to say that
    /// ([`super::NetworkOptions::groups_max`]). Ranks may differ.
    pub groups_max: Option<usize>,
    /// Which ranks a rank's rows go to. The same on all ranks.
    pub reach: ExchangeReach,
    /// When what this rank sends is packed. Ranks may differ: each block says what it is.
    pub narrowing: Narrowing,
}

/// When what leaves is compressed: integers to as few bits as the values of a block, what is between neighbours, or runs need, texts by LZ4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Narrowing {
    /// Never: nothing is done for it.
    #[default]
    Never,
    /// In chunks that are worth it, where the link to other ranks was measured and is slow ([`super::LinkMeter`]); texts where it is slower
    /// still.
    OverSlowLinks,
    /// In every chunk.
    Always,
}

impl ExchangeSpec {
    /// An exchange of all ranks with so much for either box, whose blocks go as the network's options say, not packed.
    pub fn new(id: ExchangeId, box_bytes: u64) -> Self {
        Self {
            id,
            outbox_bytes: box_bytes,
            inbox_bytes: box_bytes,
            block_bytes_max: None,
            is_gathered: true,
            groups_max: None,
            reach: ExchangeReach::All,
            narrowing: Narrowing::Never,
        }
    }
}

/// What an exchange has done so far on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeMetrics {
    /// Bytes of blocks that were sent, once for each destination.
    pub sent_bytes: u64,
    /// As many as those would have been without packing.
    pub sent_wide_bytes: u64,
    /// How many blocks that were.
    pub sent_blocks: u64,
    /// Ranks that they went to, but for this one.
    pub partners: u64,
    /// Bytes of blocks that came.
    pub received_bytes: u64,
    /// How many blocks that were.
    pub received_blocks: u64,
    /// Microseconds that producers waited for room, all together.
    pub producers_waited_us: u64,
    /// Microseconds that consumers waited for blocks, all together.
    pub consumers_waited_us: u64,
    /// Microseconds from the first block that was sent or came to the last.
    pub moving_us: u64,
}

/// Counts of an exchange, which all of its threads add to.
#[derive(Default)]
pub(super) struct Counters {
    sent_bytes: AtomicU64,
    sent_wide_bytes: AtomicU64,
    sent_blocks: AtomicU64,
    /// Whole wherever a panic leaves it: numbers.
    destinations: Mutex<BTreeSet<Rank>>,
    received_bytes: AtomicU64,
    received_blocks: AtomicU64,
    producers_waited_us: AtomicU64,
    consumers_waited_us: AtomicU64,
    /// When the first block was sent or came, and the last.
    moved: Mutex<Option<(Instant, Instant)>>,
    /// Where it is noted what moves, and for which operator; nowhere where nobody watches.
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

    /// Notes when bytes were on their way to another rank, or from one, whose transfers are over now.
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

    /// What a rank has counted.
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

/// Whether a query goes on: what all of its threads on this rank share.
pub(super) struct QueryHealth {
    pub(super) id: QueryId,
    pub(super) stop: StopFlag,
    pub(super) waker: Waker,
    failure: OnceLock<Failure>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Why a query does not go on.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether other ranks are to be told.
    pub(super) is_ours: bool,
}

impl QueryHealth {
    pub(super) fn new(id: QueryId, stop: StopFlag, waker: Waker) -> Self {
        let (failure, has_ended, ended) = Default::default();
        Self { id, stop, waker, failure, has_ended, ended }
    }

    /// # Errors
    ///
    /// What the query failed with; `Cancelled` if nobody wants it.
    pub(super) fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(failure.error.clone()),
            None => self.stop.check(),
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Says that the query does not go on. What was said first counts.
    pub(super) fn fail(&self, error: Error, is_ours: bool) {
        if self.failure.set(Failure { error, is_ours }).is_ok() {
            self.waker.wake();
            self.ended.notify_all();
        }
    }

    /// Says that all ranks have ended all of its exchanges.
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
pub(super) struct Exchange {
    pub(super) key: ExchangeKey,
    pub(super) health: Arc<QueryHealth>,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) counters: Counters,
    pub(super) announcement: Announcement,
    /// Its blocks are in so many groups on their way at most.
    pub(super) groups_max: usize,
    pub(super) narrowing: Narrowing,
    pub(super) link: Arc<LinkMeter>,
}

impl Exchange {
    /// Wakes all drivers that wait for it, so that they look at the query's health.
    pub(super) fn wake_drivers(&self) {
        self.outbox.changed.notify_all();
        self.inbox.changed.notify_all();
        self.announcement.changed.notify_all();
    }
}

/// A query's way to its exchanges on one rank.
///
/// Each outbox and inbox is taken once and given to drivers, which clone it for as many threads as they like. When they have
/// done, [`QueryExchanges::finish`] waits for the other ranks; whoever drops this before gives the query up, on all ranks.
///
/// # Ordering
///
/// An exchange that a rank does not consume stops its producers on all ranks, once boxes are full. So that some exchange always moves, all ranks
/// consume those of one query in orders that do not contradict each other: if one takes all of A before B, and another one all of B before A, each
/// may wait for the other's consumer, until somebody cancels the query. Where a driver finds out by its data what it wants first (the side that a join
/// builds from), the ranks agree on that before, or a thread takes the blocks of the other exchange meanwhile and spills their rows.
pub struct QueryExchanges {
    pub(super) health: Arc<QueryHealth>,
    pub(super) ends: BTreeMap<ExchangeId, Ends>,
}

/// The two ends of an exchange, until somebody takes them.
pub(super) struct Ends {
    pub(super) exchange: Arc<Exchange>,
    pub(super) producer: Option<OutboxProducer>,
    pub(super) consumer: Option<InboxConsumer>,
}

impl QueryExchanges {
    /// What sends an exchange's rows.
    ///
    /// # Errors
    ///
    /// `Internal` if there is no such exchange, or somebody has taken it.
    pub fn take_outbox(&mut self, id: ExchangeId) -> Result<OutboxProducer> {
        let taken = self.ends.get_mut(&id).and_then(|ends| ends.producer.take());
        taken.ok_or_else(|| self.not_there("outbox", id))
    }

    /// What receives an exchange's rows.
    ///
    /// # Errors
    ///
    /// As of [`QueryExchanges::take_outbox`].
    pub fn take_inbox(&mut self, id: ExchangeId) -> Result<InboxConsumer> {
        let taken = self.ends.get_mut(&id).and_then(|ends| ends.consumer.take());
        taken.ok_or_else(|| self.not_there("inbox", id))
    }

    /// What ranks say of an exchange, if there is such a one.
    pub fn announcements(&self, id: ExchangeId) -> Option<Announcements> {
        self.ends.get(&id).map(|ends| Announcements { exchange: ends.exchange.clone() })
    }

    fn not_there(&self, end: &str, id: ExchangeId) -> Error {
        Error::internal(format!("query {} has no {end} of exchange {} left", self.health.id.0, id.0))
    }

    /// Notes in a log what an exchange moves to and from other ranks from now on, for an operator.
    pub fn watch(&self, id: ExchangeId, log: Arc<ActivityLog>, operator: u32) {
        if let Some(ends) = self.ends.get(&id) {
            // Who watches first goes on.
            let _ = ends.exchange.counters.watch.set((log, operator));
        }
    }

    /// What an exchange has done so far.
    pub fn metrics(&self, id: ExchangeId) -> Option<ExchangeMetrics> {
        self.ends.get(&id).map(|ends| ends.exchange.counters.read(ends.exchange.outbox.rank()))
    }

    /// Gives the query up on all ranks: each of them fails with an error that names this rank and has the reason. `Cancelled` stays that.
    pub fn abort(&self, error: &Error) {
        self.health.fail(error.clone(), true);
    }

    /// Waits until all ranks have ended all exchanges. Outboxes that nobody took send nothing, and inboxes that nobody took
    /// want nothing. What was moved is known for good then.
    ///
    /// # Errors
    ///
    /// What the query failed with, here or as `Peer` on another rank; `Cancelled` if nobody wants it.
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
