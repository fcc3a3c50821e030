//! Blocks that came to a rank, in one exchange.
//!
//! Invariants: blocks that came, those on their way and those that consumers have not let go of have no more memory than the inbox's
//! extent. Blocks of one sender come in the order in which it sent them.
//!
//! Deliberately absent: spilling. A consumer that can't take blocks as they come while it waits for another exchange takes them all the same,
//! on a thread of its own, and moves their rows off the device as operators do (`crate::spill`).

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Instant,
};

use pystachio_engine::locking::{account, lock};
use pystachio_plan::Result;

use super::{
    Rank,
    outbox::keep_until_used,
    query::{Exchange, STOP_INTERVAL},
    region::{RegionBlock, RegionExtent},
};
use crate::device::Stream;

/// Blocks that somebody takes at once, however many are there: what follows for them is as many again.
const BLOCKS_AT_ONCE_MAX: usize = 32;

/// Blocks that came.
pub(super) struct Inbox {
    extent: Arc<RegionExtent>,
    state: Mutex<InboxState>,
    pub(super) changed: Condvar,
}

struct InboxState {
    blocks: VecDeque<(Rank, RegionBlock)>,
    /// Blocks on their way.
    incoming_count: usize,
    /// Whether all senders have ended; what is on its way comes still.
    have_senders_ended: bool,
    consumer_count: usize,
}

impl Inbox {
    /// An inbox with one consumer.
    pub(super) fn new(extent: Arc<RegionExtent>) -> Self {
        let state = InboxState {
            blocks: VecDeque::new(),
            incoming_count: 0,
            have_senders_ended: false,
            consumer_count: 1,
        };
        Self { extent, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        lock(&self.state)
    }

    /// Looks which memory is free again. Says whether there is more to look at.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn settle(&self) -> Result<bool> {
        self.extent.settle()?;
        Ok(self.extent.is_settling())
    }

    /// All that it may have of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.extent.bytes()
    }

    /// What there is room for in one piece.
    pub(super) fn room(&self) -> u64 {
        self.extent.room()
    }

    /// Whether nobody wants what comes.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().consumer_count == 0
    }

    /// Memory for a block that comes, within the room that was told.
    pub(super) fn expect(&self, bytes: u64) -> Option<RegionBlock> {
        let block = self.extent.allocate_in_longest(bytes)?;
        self.lock().incoming_count += 1;
        Some(block)
    }

    /// A block that was expected has come.
    pub(super) fn deliver(&self, from: Rank, block: RegionBlock) {
        let mut state = self.lock();
        state.incoming_count -= 1;
        if state.consumer_count > 0 {
            state.blocks.push_back((from, block));
        }
        self.changed.notify_all();
    }

    /// Says that all senders have ended.
    pub(super) fn end(&self) {
        self.lock().have_senders_ended = true;
        self.changed.notify_all();
    }
}

/// What receives rows of one exchange. Clones share what comes. When the last one is dropped nothing more is wanted, and senders
/// are told so.
pub struct InboxConsumer {
    exchange: Arc<Exchange>,
}

impl InboxConsumer {
    /// The first consumer of an inbox.
    pub(super) fn first(exchange: Arc<Exchange>) -> Self {
        Self { exchange }
    }

    /// The next block, which a stream will use; `None` when all senders have ended and all blocks were taken. Waits as long as the query
    /// goes on.
    ///
    /// # Errors
    ///
    /// What the query failed with, `Cancelled`, and faults of the device.
    pub fn take(&self, stream: Stream) -> Result<Option<ReceivedBlock>> {
        Ok(self.take_some(stream, 1)?.pop())
    }

    /// All blocks that are there, of which there is one at least until all senders have ended; otherwise as [`InboxConsumer::take`].
    ///
    /// # Errors
    ///
    /// As of [`InboxConsumer::take`].
    pub fn take_all(&self, stream: Stream) -> Result<Vec<ReceivedBlock>> {
        self.take_some(stream, BLOCKS_AT_ONCE_MAX)
    }

    fn take_some(&self, stream: Stream, count_max: usize) -> Result<Vec<ReceivedBlock>> {
        let Exchange { inbox, health, counters, .. } = &*self.exchange;
        let begun = Instant::now();
        let mut state = inbox.lock();
        let taken: Vec<(Rank, RegionBlock)> = loop {
            health.check()?;
            let count = state.blocks.len().min(count_max);
            if count > 0 || (state.have_senders_ended && state.incoming_count == 0) {
                break state.blocks.drain(..count).collect();
            }
            state = account(inbox.changed.wait_timeout(state, STOP_INTERVAL)).0;
        };
        drop(state);
        counters.note_consumer_waited(begun);
        // Before the stream could fail to be told, nothing of it uses the blocks.
        inbox.extent.region().use_on(stream)?;
        let received = |(from, block)| ReceivedBlock {
            from,
            block: Some(block),
            exchange: self.exchange.clone(),
            stream,
        };
        Ok(taken.into_iter().map(received).collect())
    }
}

impl Clone for InboxConsumer {
    fn clone(&self) -> Self {
        self.exchange.inbox.lock().consumer_count += 1;
        Self { exchange: self.exchange.clone() }
    }
}

impl Drop for InboxConsumer {
    fn drop(&mut self) {
        let Exchange { inbox, health, .. } = &*self.exchange;
        let mut state = inbox.lock();
        state.consumer_count -= 1;
        if state.consumer_count == 0 {
            state.blocks.clear();
            drop(state);
            health.waker.wake();
        }
    }
}

/// A block that came. Its room is given again when this is dropped and what its stream was given until then has happened: whoever
/// waits for another block holds none.
pub struct ReceivedBlock {
    from: Rank,
    /// Present until it is dropped.
    block: Option<RegionBlock>,
    exchange: Arc<Exchange>,
    stream: Stream,
}

impl ReceivedBlock {
    /// Who sent it.
    pub fn from(&self) -> Rank {
        self.from
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, RegionBlock::address)
    }

    /// The stream that it was taken for.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// All that blocks of its exchange may have of this rank's memory before somebody takes them.
    pub(super) fn inbox_bytes(&self) -> u64 {
        self.exchange.inbox.bytes()
    }

    /// No block is larger.
    pub(super) fn block_bytes_max(&self) -> u64 {
        self.exchange.outbox.block_bytes_max()
    }

    /// How long it is, what lies behind its content included.
    pub fn bytes(&self) -> u64 {
        self.block.as_ref().map_or(0, RegionBlock::bytes)
    }
}

impl Drop for ReceivedBlock {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            keep_until_used(block, self.stream);
            self.exchange.health.waker.wake();
        }
    }
}
