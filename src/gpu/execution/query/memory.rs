//! A query's use of device memory, and the limits of its operators.
//!
//! ```text
//! minimum of a query: a part of the arena, reserved before the first chunk
//!   half: claims of joins, aggregates and sorts, evenly; what they hold from chunk to chunk
//!   half: chunks on their way: what scans decode ahead, and what operators make of a chunk
//! ```
//!
//! Beyond its minimum a query uses memory that no other query has reserved. Chunk sizes follow the
//! free memory, so that a query that runs alone has large ones. Concurrent drivers share the memory
//! for chunks, and a driver begins only if there is enough for it.
//!
//! Invariants: an operator has a claim for the rows that it holds, and spills the rows for which it
//! gets none.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::StopFlag;
use pystachio_plan::{Error, Result};

use crate::{
    device::{ActivityLog, Claim, DeviceMemory},
    operation::{EXCHANGE_LEVEL, Queue},
    spill::SpillStore,
};

/// Queries with guaranteed memory at once; the next one waits.
pub(in crate::execution) const QUERIES_MAX: u64 = 4;
/// The part of a query's minimum that operators hold.
const HELD_PART: u64 = 2;
/// The part of the available memory for chunks decoded ahead.
const AHEAD_PART: u64 = 4;
/// The part of a query's minimum for one chunk: nested operators hold several at once, and make
/// several times as much of one.
const CHUNK_PART_OF_MINIMUM: u64 = 128;
/// The part of all available memory for one chunk.
const CHUNK_PART_OF_AVAILABLE: u64 = 24;
/// The part of all available memory that leaves the device at once: making a block takes some times
/// as much.
const BLOCK_PART_OF_AVAILABLE: u64 = 10;
/// The part of a query's minimum that always suffices.
const BLOCK_PART_OF_MINIMUM: u64 = 32;
/// The part of a query's minimum that must be free for every driver before another one begins.
const DRIVER_PART_OF_MINIMUM: u64 = 2;
/// And at least this many parts of a scan: one being decoded, one that the driver has, and the
/// output that its operators make of it.
const PARTS_OF_DRIVER: u64 = 4;
/// Partitions of one spilling: a copy back has the block's bytes of one column and one partition.
pub(in crate::execution) const PARTITIONS: usize = 32;
/// How often rows that are too many for memory are partitioned again.
pub(in crate::execution) const PARTITION_LEVELS_MAX: u32 = 6;
const _: () = assert!(PARTITION_LEVELS_MAX < EXCHANGE_LEVEL);
/// Rows that an operator holds in one piece: they are numbered with 32 bits.
pub(in crate::execution) const ROWS_MAX: usize = 1 << 31;

/// A query's memory. Cheap to clone.
#[derive(Clone)]
pub(in crate::execution) struct QueryMemory {
    memory: DeviceMemory,
    /// The store for spilled rows.
    pub(in crate::execution) store: SpillStore,
    /// Operators that hold rows.
    holder_count: u64,
    /// Drivers that work.
    driver_count: Arc<AtomicU64>,
}

/// A working driver, as long as this lives.
pub(in crate::execution) struct WorkingDriver {
    driver_count: Arc<AtomicU64>,
}

impl Drop for WorkingDriver {
    fn drop(&mut self) {
        self.driver_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QueryMemory {
    /// The timeline of the query, if it has one.
    pub(in crate::execution) fn log(&self) -> Option<Arc<ActivityLog>> {
        self.memory.log()
    }

    /// A query whose memory has an account, before its operators are known.
    pub(in crate::execution) fn new(memory: DeviceMemory, store: SpillStore) -> Self {
        Self { memory, store, holder_count: 0, driver_count: Arc::default() }
    }

    /// Counts one more driver that works.
    pub(in crate::execution) fn enter(&self) -> WorkingDriver {
        self.driver_count.fetch_add(1, Ordering::Relaxed);
        WorkingDriver { driver_count: self.driver_count.clone() }
    }

    /// Drivers that work; at least one.
    pub(in crate::execution) fn driver_count(&self) -> u64 {
        self.driver_count.load(Ordering::Relaxed).max(1)
    }

    /// Whether there is memory now for the chunks of one more driver. `part_bytes`: memory to
    /// decode one part of a scan.
    pub(in crate::execution) fn has_room_for_driver(&self, part_bytes: u64) -> bool {
        let driver_bytes = part_bytes.saturating_mul(PARTS_OF_DRIVER);
        let driver_bytes = driver_bytes.max(self.minimum_bytes() / DRIVER_PART_OF_MINIMUM);
        self.memory.available_bytes() / (self.driver_count() + 1) >= driver_bytes
    }

    /// A stream for a driver, whose work ends when `stop` is set.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::new`].
    pub(in crate::execution) fn open_queue(&self, stop: StopFlag) -> Result<Queue> {
        Ok(Queue::for_driver(&self.memory.until(stop))?.with_deferred_faults())
    }

    /// The number of readers for a query on this device.
    pub(in crate::execution) fn reader_count(&self) -> usize {
        self.memory.platform().reader_count()
    }

    /// Counts one more operator that will hold rows. Before the first claim.
    pub(in crate::execution) fn add_holder(&mut self) {
        self.holder_count += 1;
    }

    fn minimum_bytes(&self) -> u64 {
        self.memory.bytes_max() / QUERIES_MAX
    }

    /// Waits for the query's minimum.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and `OutOfMemory` if too many queries wait.
    pub(in crate::execution) fn admit(&self, stop: &StopFlag) -> Result<()> {
        self.memory.admit(self.minimum_bytes(), stop)
    }

    /// Whether a query whose client has stopped reading goes on into the spool, so that others get
    /// its memory.
    pub(in crate::execution) fn yields_memory(&self) -> bool {
        self.memory.yields_memory()
    }

    /// The limit of one operator's held rows.
    pub(in crate::execution) fn claim(&self) -> Result<Claim> {
        let guaranteed = self.minimum_bytes() / HELD_PART / self.holder_count.max(1);
        self.memory.claim(guaranteed).ok_or_else(|| Error::internal("a query without an account of memory"))
    }

    /// The target size of a chunk's cells, as of now.
    pub(in crate::execution) fn chunk_bytes(&self) -> u64 {
        self.bytes_within(CHUNK_PART_OF_AVAILABLE, CHUNK_PART_OF_MINIMUM)
    }

    /// The bytes that leave the device at once, or come back to be partitioned again, as of now.
    pub(in crate::execution) fn block_bytes(&self) -> u64 {
        self.bytes_within(BLOCK_PART_OF_AVAILABLE, BLOCK_PART_OF_MINIMUM)
    }

    /// A driver's share of a part of the available memory, or of the minimum if that is more.
    fn bytes_within(&self, part_of_available: u64, part_of_minimum: u64) -> u64 {
        let available = self.memory.available_bytes() / part_of_available;
        (available.max(self.minimum_bytes() / part_of_minimum) / self.driver_count()).max(1)
    }

    /// The limit of a scan's bytes decoded ahead, as of now.
    pub(in crate::execution) fn ahead_bytes(&self) -> u64 {
        (self.memory.available_bytes() / AHEAD_PART).max(self.minimum_bytes() / AHEAD_PART)
    }
}
