//! Outgoing blocks of one exchange on a rank.
//!
//! ```text
//! producers ── reserve, pack, push ──► packing: until the device has written them ──► a queue a destination ──► rounds
//! ```
//!
//! Invariants: blocks of all queues together have no more memory than the outbox's extent; a
//! producer waits for room. A block for all ranks is stored once. Blocks written on one stream for
//! one destination leave in the order of their push.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use pystachio_engine::locking::{account, lock};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    Narrowing, Rank, ReachedRanks,
    announcement::NOT_ANNOUNCED,
    message::BLOCKS_A_DESTINATION_MAX,
    query::{RankExchange, STOP_INTERVAL},
    region::{RegionBlock, RegionExtent},
};
use crate::device::Stream;

/// The receivers of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One rank, which may be this one.
    Rank(Rank),
    /// Every reachable rank, this one included.
    All,
    /// Every reachable rank but this one.
    Others,
}

/// When a round for blocks pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GatherLimits {
    /// When there are this many bytes for one destination.
    pub(super) bytes_min: u64,
    /// Fewer bytes after this time.
    pub(super) age_max: Duration,
    /// Limit of bytes in one round, unless one block has more.
    pub(super) bytes_max: u64,
    /// The limit of a block's bytes.
    pub(super) block_bytes_max: u64,
}

/// Outgoing blocks.
pub(super) struct Outbox {
    extent: Arc<RegionExtent>,
    limits: GatherLimits,
    /// This rank.
    rank: Rank,
    /// The ranks that blocks may go to.
    reached: ReachedRanks,
    state: Mutex<OutboxState>,
    pub(super) changed: Condvar,
}

struct OutboxState {
    /// Blocks that the device may still be writing, in the order of their push.
    packing: Vec<PushedBlock>,
    destinations: Vec<DestinationQueue>,
    /// Producers that have not finished.
    producer_count: usize,
    /// Of them, those that wait for room.
    waiting_count: usize,
}

struct PushedBlock {
    block: PackedBlock,
    destination: Destination,
    /// The stream that writes it.
    stream: Stream,
}

/// An outgoing block.
pub(super) struct PackedBlock {
    pub(super) memory: RegionBlock,
    /// Its bytes without packing.
    pub(super) wide_bytes: u64,
}

impl PackedBlock {
    /// Its bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

#[derive(Default)]
struct DestinationQueue {
    blocks: VecDeque<(Instant, Arc<PackedBlock>)>,
    bytes: u64,
    /// It wants no more blocks.
    is_closed: bool,
}

impl DestinationQueue {
    fn push(&mut self, now: Instant, block: Arc<PackedBlock>) {
        if !self.is_closed {
            self.bytes += block.bytes();
            self.blocks.push_back((now, block));
        }
    }
}

impl Outbox {
    /// An outbox of one of so many ranks that reaches some, with one producer.
    pub(super) fn new(
        extent: Arc<RegionExtent>,
        (rank, rank_count, reached): (Rank, usize, ReachedRanks),
        limits: GatherLimits,
    ) -> Self {
        // A rank that nothing may go to wants nothing.
        let destination = |rank| DestinationQueue {
            is_closed: !reached.contains(Rank(rank)),
            ..DestinationQueue::default()
        };
        let state = OutboxState {
            packing: Vec::new(),
            destinations: (0..rank_count as u16).map(destination).collect(),
            producer_count: 1,
            waiting_count: 0,
        };
        Self { extent, limits, rank, reached, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        lock(&self.state)
    }

    /// Polls which blocks the device has written, and which memory is free again. Returns whether
    /// there is more to poll.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn settle(&self, now: Instant) -> Result<bool> {
        let has_more_room = self.extent.settle()?;
        let mut state = self.lock();
        let mut packing: Vec<PushedBlock> = Vec::new();
        for pushed in std::mem::take(&mut state.packing) {
            // In order: a later block may be found written although the one before it was not yet.
            let is_behind = packing.iter().any(|earlier| earlier.stream == pushed.stream);
            if is_behind || !pushed.block.memory.is_settled()? {
                packing.push(pushed);
                continue;
            }
            let block = Arc::new(pushed.block);
            let is_meant = |rank: usize| match pushed.destination {
                Destination::Rank(destination) => destination.place() == rank,
                Destination::All => true,
                Destination::Others => self.rank.place() != rank,
            };
            let destinations = state.destinations.iter_mut().enumerate();
            for (_, queue) in destinations.filter(|(rank, _)| is_meant(*rank)) {
                queue.push(now, block.clone());
            }
        }
        state.packing = packing;
        if has_more_room && state.waiting_count > 0 {
            self.changed.notify_all();
        }
        Ok(!state.packing.is_empty() || self.extent.is_settling())
    }

    /// The bytes of the next blocks for each destination for which a round pays, of at most so many
    /// blocks.
    pub(super) fn offer(&self, blocks_max: &mut usize, now: Instant) -> Vec<Vec<u64>> {
        let state = self.lock();
        // No more blocks come, or none can come before some leave.
        let is_pressed = state.producer_count == 0 || state.waiting_count > 0;
        let offer = |queue: &DestinationQueue| {
            let is_old = queue
                .blocks
                .front()
                .is_some_and(|(pushed, _)| now.saturating_duration_since(*pushed) >= self.limits.age_max);
            if !(is_pressed || is_old || queue.bytes >= self.limits.bytes_min) {
                return Vec::new();
            }
            let mut bytes = 0;
            let mut offered = Vec::new();
            for (_, block) in queue.blocks.iter().take(BLOCKS_A_DESTINATION_MAX.min(*blocks_max)) {
                bytes += block.bytes();
                if bytes > self.limits.bytes_max && !offered.is_empty() {
                    break;
                }
                offered.push(block.bytes());
            }
            *blocks_max -= offered.len();
            offered
        };
        state.destinations.iter().map(offer).collect()
    }

    /// Takes the offered blocks for a destination.
    pub(super) fn take(&self, destination: Rank, count: usize) -> Vec<Arc<PackedBlock>> {
        let mut state = self.lock();
        let Some(queue) = state.destinations.get_mut(destination.place()) else { return Vec::new() };
        let taken: Vec<Arc<PackedBlock>> = queue.blocks.drain(..count).map(|(_, block)| block).collect();
        queue.bytes -= taken.iter().map(|block| block.bytes()).sum::<u64>();
        taken
    }

    /// Records that taken blocks were sent and dropped.
    pub(super) fn note_sent(&self) {
        if self.lock().waiting_count > 0 {
            self.changed.notify_all();
        }
    }

    /// Records that a destination wants no more blocks.
    pub(super) fn close(&self, destination: Rank) {
        let mut state = self.lock();
        let Some(queue) = state.destinations.get_mut(destination.place()) else { return };
        if !queue.is_closed {
            *queue = DestinationQueue { is_closed: true, ..DestinationQueue::default() };
            self.changed.notify_all();
        }
    }

    /// This rank.
    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    /// The limit of a block's bytes.
    pub(super) fn block_bytes_max(&self) -> u64 {
        self.limits.block_bytes_max
    }

    /// Whether all pushed blocks have been taken, and no more come.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.lock();
        state.producer_count == 0
            && state.packing.is_empty()
            && state.destinations.iter().all(|queue| queue.blocks.is_empty())
    }
}

/// Sends the rows of one exchange. A clone is one more producer; the exchange ends when all of them
/// have finished.
pub struct OutboxProducer {
    exchange: Arc<RankExchange>,
    is_finished: bool,
}

impl OutboxProducer {
    /// The first producer of an outbox.
    pub(super) fn first(exchange: Arc<RankExchange>) -> Self {
        Self { exchange, is_finished: false }
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.exchange.outbox.rank
    }

    /// The ranks that blocks may go to.
    pub fn reached(&self) -> ReachedRanks {
        self.exchange.outbox.reached
    }

    /// No block may be larger.
    pub fn block_bytes_max(&self) -> u64 {
        self.exchange.outbox.block_bytes_max()
    }

    /// When to pack outgoing blocks.
    pub(super) fn narrowing(&self) -> Narrowing {
        self.exchange.narrowing
    }

    /// Whether the link to other ranks is known to be slow.
    pub(super) fn link_is_slow(&self) -> bool {
        self.exchange.link.is_slow()
    }

    /// Whether it is known to be slow enough for compressing texts.
    pub(super) fn link_is_very_slow(&self) -> bool {
        self.exchange.link.is_very_slow()
    }

    /// Whether any reachable rank wants more. Rows pushed otherwise are dropped.
    pub fn is_wanted(&self) -> bool {
        self.exchange.outbox.lock().destinations.iter().any(|queue| !queue.is_closed)
    }

    /// Memory for a block, into which a stream writes. Waits for room as long as the query runs.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more bytes than a block has; the failure of the query, `Cancelled`, and
    /// faults of the device.
    pub fn reserve(&self, bytes: u64, stream: Stream) -> Result<OutgoingBlock> {
        let RankExchange { outbox, health, counters, .. } = &*self.exchange;
        self.check_block(bytes)?;
        outbox.extent.region().use_on(stream)?;
        let mut begun = None;
        let mut state = outbox.lock();
        let block = loop {
            if let Err(error) = health.check() {
                break Err(error);
            }
            if let Some(block) = outbox.extent.allocate(bytes.max(1)) {
                break Ok(block);
            }
            if begun.is_none() {
                begun = Some(Instant::now());
                state.waiting_count += 1;
                health.waker.wake();
            }
            state = account(outbox.changed.wait_timeout(state, STOP_INTERVAL)).0;
        };
        if let Some(begun) = begun {
            state.waiting_count -= 1;
            counters.note_producer_waited(begun);
        }
        drop(state);
        Ok(OutgoingBlock::new(block?, self.exchange.clone(), stream))
    }

    /// Like [`OutboxProducer::reserve`] without a wait: `None` if there is no room, or other
    /// producers wait for it. A producer that holds an unpushed block must use this for more, or
    /// producers would wait for each other.
    ///
    /// # Errors
    ///
    /// Errors of [`OutboxProducer::reserve`].
    pub fn try_reserve(&self, bytes: u64, stream: Stream) -> Result<Option<OutgoingBlock>> {
        let RankExchange { outbox, health, .. } = &*self.exchange;
        self.check_block(bytes)?;
        health.check()?;
        outbox.extent.region().use_on(stream)?;
        let state = outbox.lock();
        let block = match state.waiting_count {
            0 => outbox.extent.allocate(bytes.max(1)),
            _ => None,
        };
        drop(state);
        Ok(block.map(|block| OutgoingBlock::new(block, self.exchange.clone(), stream)))
    }

    fn check_block(&self, bytes: u64) -> Result<()> {
        let bytes_max = self.block_bytes_max();
        if bytes <= bytes_max {
            return Ok(());
        }
        let message = format!(
            "{} would send a block that is too large: block_bytes={bytes}, block_bytes_max={bytes_max}",
            self.exchange.key
        );
        Err(Error::new(ErrorKind::NotSupported, message))
    }

    /// Finishes this producer: it pushes no more blocks.
    pub fn finish(mut self) {
        self.is_finished = true;
    }

    /// Reports a failure of this producer: the query ends with it on this rank, and with this
    /// rank's name on the others. A producer that is dropped without it reports no better reason
    /// than that.
    pub fn fail(self, error: &Error) {
        self.exchange.health.fail(error.clone(), true);
    }
}

impl Clone for OutboxProducer {
    fn clone(&self) -> Self {
        self.exchange.outbox.lock().producer_count += 1;
        Self { exchange: self.exchange.clone(), is_finished: false }
    }
}

impl Drop for OutboxProducer {
    fn drop(&mut self) {
        let RankExchange { outbox, health, key, announcement, .. } = &*self.exchange;
        if !self.is_finished {
            let early = || Error::internal(format!("a producer of {key} ended before it had sent all"));
            // If the query failed or was cancelled, that is the reason.
            health.fail(health.check().err().unwrap_or_else(early), true);
        }
        let mut state = outbox.lock();
        if state.producer_count == 1 {
            // Before another thread can see that it has ended.
            announcement.say(NOT_ANNOUNCED);
        }
        state.producer_count -= 1;
        drop(state);
        health.waker.wake();
    }
}

/// A block that is being written. If dropped, it is not sent.
pub struct OutgoingBlock {
    /// Absent after the push.
    block: Option<PackedBlock>,
    exchange: Arc<RankExchange>,
    stream: Stream,
}

impl OutgoingBlock {
    fn new(memory: RegionBlock, exchange: Arc<RankExchange>, stream: Stream) -> Self {
        let wide_bytes = memory.bytes();
        Self { block: Some(PackedBlock { memory, wide_bytes }), exchange, stream }
    }

    /// The same. `bytes`: the size of its content if nothing in it were packed; otherwise its own
    /// size.
    pub fn of_wide_bytes(mut self, wide_bytes: u64) -> Self {
        if let Some(block) = &mut self.block {
            block.wide_bytes = wide_bytes;
        }
        self
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.memory.address())
    }

    /// Its bytes: the requested size, rounded up to a multiple of [`super::BLOCK_ALIGNMENT`].
    pub fn bytes(&self) -> u64 {
        self.block.as_ref().map_or(0, PackedBlock::bytes)
    }

    /// Sends it once the work enqueued on its stream has happened.
    ///
    /// # Errors
    ///
    /// `Internal` for a rank that is not reachable, and faults of the device.
    pub fn push(mut self, destination: Destination) -> Result<()> {
        let RankExchange { outbox, health, key, .. } = &*self.exchange;
        if let Destination::Rank(rank) = destination
            && !outbox.reached.contains(rank)
        {
            return Err(Error::internal(format!(
                "{key} does not go from rank {} to rank {rank}",
                outbox.rank
            )));
        }
        let Some(block) = self.block.take() else { return Ok(()) };
        block.memory.use_until_now(self.stream)?;
        outbox.lock().packing.push(PushedBlock { block, destination, stream: self.stream });
        health.waker.wake();
        Ok(())
    }
}

impl Drop for OutgoingBlock {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            keep_until_used(block.memory, self.stream);
        }
    }
}

/// Drops a block that a stream may still use.
pub(super) fn keep_until_used(block: RegionBlock, stream: Stream) {
    if let Err(error) = block.use_until_now(stream) {
        // The device is lost, and the process with it: the memory must not be reused.
        tracing::error!("{error}");
        std::mem::forget(block);
    }
}
