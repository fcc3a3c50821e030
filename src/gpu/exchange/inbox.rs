//! Received blocks of one exchange on a rank.
//!
//! Invariants: received blocks, expected ones and those that consumers hold have no more memory
//! than the inbox's extent. Blocks of one sender arrive in the order in which it sent them.
//!
//! Deliberately absent: spilling. A consumer that waits for another exchange still takes blocks, on
//! a thread of its own, and spills their rows as operators do (`crate::spill`).

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
    query::{RankExchange, STOP_INTERVAL},
    region::{RegionBlock, RegionExtent},
};
use crate::device::Stream;

/// Limit of the blocks taken at once: unpacking needs as much memory again.
const BLOCKS_AT_ONCE_MAX: usize = 32;

/// Received blocks.
pub(super) struct Inbox {
    extent: Arc<RegionExtent>,
    state: Mutex<InboxState>,
    pub(super) changed: Condvar,
}

struct InboxState {
    blocks: VecDeque<(Rank, RegionBlock)>,
    /// Expected blocks.
    incoming_count: usize,
    /// Whether all senders have ended; expected blocks still arrive.
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

    /// Polls which memory is free again. Returns whether there is more to poll.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn settle(&self) -> Result<bool> {
        self.extent.settle()?;
        Ok(self.extent.is_settling())
    }

    /// The size of its memory.
    pub(super) fn bytes(&self) -> u64 {
        self.extent.bytes()
    }

    /// The longest free range.
    pub(super) fn room(&self) -> u64 {
        self.extent.room()
    }

    /// Whether its blocks are no longer wanted.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().consumer_count == 0
    }

    /// Memory for an expected block, within the announced room.
    pub(super) fn expect(&self, bytes: u64) -> Option<RegionBlock> {
        let block = self.extent.allocate_in_longest(bytes)?;
        self.lock().incoming_count += 1;
        Some(block)
    }

    /// Adds a block that has arrived.
    pub(super) fn deliver(&self, from: Rank, block: RegionBlock) {
        let mut state = self.lock();
        state.incoming_count -= 1;
        if state.consumer_count > 0 {
            state.blocks.push_back((from, block));
        }
        self.changed.notify_all();
    }

    /// Marks that all senders have ended.
    pub(super) fn end(&self) {
        self.lock().have_senders_ended = true;
        self.changed.notify_all();
    }
}

/// Receives the rows of one exchange. Clones share its blocks. Dropping the last one tells senders
/// that no more are wanted.
pub struct InboxConsumer {
    exchange: Arc<RankExchange>,
}

impl InboxConsumer {
    /// The first consumer of an inbox.
    pub(super) fn first(exchange: Arc<RankExchange>) -> Self {
        Self { exchange }
    }

    /// The next block, for use on a stream; `None` when all senders have ended and all blocks were
    /// taken. Waits as long as the query runs.
    ///
    /// # Errors
    ///
    /// The failure of the query, `Cancelled`, and faults of the device.
    pub fn take(&self, stream: Stream) -> Result<Option<ReceivedBlock>> {
        Ok(self.take_some(stream, 1)?.pop())
    }

    /// All blocks that have arrived, at least one until all senders have ended; otherwise like
    /// [`InboxConsumer::take`].
    ///
    /// # Errors
    ///
    /// Errors of [`InboxConsumer::take`].
    pub fn take_all(&self, stream: Stream) -> Result<Vec<ReceivedBlock>> {
        self.take_some(stream, BLOCKS_AT_ONCE_MAX)
    }

    fn take_some(&self, stream: Stream, count_max: usize) -> Result<Vec<ReceivedBlock>> {
        let RankExchange { inbox, health, counters, .. } = &*self.exchange;
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
        // If marking the use fails, nothing on the stream uses the blocks.
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
        let RankExchange { inbox, health, .. } = &*self.exchange;
        let mut state = inbox.lock();
        state.consumer_count -= 1;
        if state.consumer_count == 0 {
            state.blocks.clear();
            drop(state);
            health.waker.wake();
        }
    }
}

/// A received block. Dropping it frees its room once the work enqueued on its stream has happened:
/// a consumer that waits for another block must hold none.
pub struct ReceivedBlock {
    from: Rank,
    /// Present until the drop.
    block: Option<RegionBlock>,
    exchange: Arc<RankExchange>,
    stream: Stream,
}

impl ReceivedBlock {
    /// The sender.
    pub fn from(&self) -> Rank {
        self.from
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, RegionBlock::address)
    }

    /// The stream that it was taken for.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Limit of the memory of this rank for received blocks of its exchange.
    pub(super) fn inbox_bytes(&self) -> u64 {
        self.exchange.inbox.bytes()
    }

    /// The limit of a block's bytes.
    pub(super) fn block_bytes_max(&self) -> u64 {
        self.exchange.outbox.block_bytes_max()
    }

    /// Its bytes, padding included.
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
