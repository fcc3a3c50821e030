//! What a query may use of a device's memory, and what its operators may hold.
//!
//! ```text
//! minimum of a query: a part of the arena, reserved before the first chunk
//!   half: claims of joins, aggregates and sorts, evenly; what they hold from chunk to chunk
//!   half: chunks on their way: what scans decode ahead, and what operators make of a chunk
//! ```
//!
//! Beyond its minimum a query uses what nobody has reserved. The sizes of chunks follow what there is, so that a
//! query that is alone has large ones.
//!
//! Invariants: an operator that holds rows has a claim for them, and spills what it gets no claim for.

use pystachio_engine::StopFlag;
use pystachio_plan::{Error, Result};

use crate::{
    device::{Claim, DeviceMemory},
    spill::SpillStore,
};

/// Queries that are sure of memory at once; the next one waits.
const QUERIES_MAX: u64 = 4;
/// The part of a query's minimum that operators hold.
const HELD_PART: u64 = 2;
/// The part of what there is that is decoded ahead.
const AHEAD_PART: u64 = 4;
/// The part of a query's minimum that a chunk may have: operators hold some at once, one below the other, and
/// make several times as much of one.
const CHUNK_PART_OF_MINIMUM: u64 = 128;
/// The part of all that there is that a chunk may have.
const CHUNK_PART_OF_AVAILABLE: u64 = 24;
/// The part of all that there is that leaves the device at once: making a block takes some times as much.
const BLOCK_PART_OF_AVAILABLE: u64 = 10;
/// The part of a query's minimum that does in any case.
const BLOCK_PART_OF_MINIMUM: u64 = 32;
/// Partitions of one spilling: a copy back has the block's bytes of one column and one partition.
pub(super) const PARTITIONS: usize = 32;
/// How often rows that are too many for memory are partitioned anew.
pub(super) const PARTITION_LEVELS_MAX: u32 = 6;
/// Rows that an operator holds in one piece: they are numbered with 32 bits.
pub(super) const ROWS_MAX: usize = 1 << 31;

/// A query's memory. Cheap to clone.
#[derive(Clone)]
pub(super) struct QueryMemory {
    memory: DeviceMemory,
    /// Where operators spill to.
    pub(super) store: SpillStore,
    /// Operators that hold rows.
    holder_count: u64,
}

impl QueryMemory {
    /// A query of which nothing is known yet. `memory` has an account.
    pub(super) fn new(memory: DeviceMemory, store: SpillStore) -> Self {
        Self { memory, store, holder_count: 0 }
    }

    /// Says that one more operator will hold rows. Before the first claim.
    pub(super) fn add_holder(&mut self) {
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
    pub(super) fn admit(&self, stop: &StopFlag) -> Result<()> {
        self.memory.admit(self.minimum_bytes(), stop)
    }

    /// Whether a query whose reader has stopped is to go on without it, so that others get its memory.
    pub(super) fn is_to_make_room(&self) -> bool {
        self.memory.is_to_make_room()
    }

    /// What one operator may hold.
    pub(super) fn claim(&self) -> Result<Claim> {
        let guaranteed = self.minimum_bytes() / HELD_PART / self.holder_count.max(1);
        self.memory.claim(guaranteed).ok_or_else(|| Error::internal("a query without an account of memory"))
    }

    /// Bytes of cells that a chunk should have at most, as things are.
    pub(super) fn chunk_bytes(&self) -> u64 {
        let available = self.memory.available_bytes() / CHUNK_PART_OF_AVAILABLE;
        available.max(self.minimum_bytes() / CHUNK_PART_OF_MINIMUM).max(1)
    }

    /// Bytes that leave the device at once, or come back to be partitioned anew, as things are.
    pub(super) fn block_bytes(&self) -> u64 {
        let available = self.memory.available_bytes() / BLOCK_PART_OF_AVAILABLE;
        available.max(self.minimum_bytes() / BLOCK_PART_OF_MINIMUM).max(1)
    }

    /// Bytes that a scan should decode ahead at most, as things are.
    pub(super) fn ahead_bytes(&self) -> u64 {
        (self.memory.available_bytes() / AHEAD_PART).max(self.minimum_bytes() / AHEAD_PART)
    }
}
