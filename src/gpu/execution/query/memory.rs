//! A query's use of device memory, and the limits of its operators.
//!
//! ```text
//! minimum of a query: reserved before the first chunk, by what its plan says
//!   held: claims of joins, aggregates and sorts; what they hold from chunk to chunk
//!     half: guarantees, the same for each operator
//!     half: a pool that the operators share, first come, first served
//!   working: chunks on their way: what scans decode ahead, and what operators make of a chunk
//! ```
//!
//! The minimum follows from the compiled plan (`QueryNeed`):
//!
//! - working: the largest part of any scan, with all of its rows, [`PARTS_OF_DRIVER`] times. A part whose
//!   column chunks are segments on the device takes its cells only, and one that is aggregated in the
//!   scan takes row numbers.
//! - held: for each operator the planner's rows times the width of their columns, and the copies that
//!   joining, sorting or grouping makes of them.
//!
//! Both have a floor and a cap. With the cap, a quarter of the arena in all, [`LARGE_QUERIES`] large queries run
//! at once. An estimate may be wrong. Operators spill what they get no claim for, and scans read a
//! part that does not fit by halves, so a query ends with the floor too, if more slowly. If it finds
//! no memory nevertheless, and none of its rows has left, the engine runs it again with the cap.
//!
//! Beyond its minimum a query uses memory that no other query has reserved. Chunk sizes follow the
//! free memory: a query that runs alone has large chunks, and each of many queries plans with a
//! share of the free memory. Concurrent drivers share the memory for chunks, and a driver begins
//! only if there is enough for it.
//!
//! A query on several ranks reserves the same share of each rank's memory ([`MemoryShare`]). Rank 0
//! decides the share, because it admits the query for all ranks: the others must have room for
//! every query that rank 0 has admitted. While the query runs, its exchanges hold the same share of
//! the rank's memory for blocks, and at least a fixed number of blocks of full size
//! (`exchange/buffers.rs`).
//!
//! Invariants: an operator has a claim for the rows that it holds, and spills the rows for which it
//! gets none. The minimum grows with the plan's rows, and never exceeds the cap.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::StopFlag;
use pystachio_plan::{ColumnId, DataType, Error, Result, row_bytes};

use crate::{
    device::{ActivityLog, Claim, DeviceMemory, Reservation},
    operation::{EXCHANGE_LEVEL, Queue},
    spill::SpillStore,
};

/// Queries that run at once even if each needs more than there is: the least number at which one
/// can read, one compute, one wait for its reader and one spill.
pub(in crate::execution) const LARGE_QUERIES: u64 = 4;
/// Queries that run at once at most. A device runs up to 128 kernels at once, and a query has at
/// least two streams, its driver's and a reader's: more queries would wait in the device's queues,
/// with memory reserved.
const QUERIES_MAX: u64 = 64;
/// Shares of the cap: a query on several ranks reserves some of them.
pub(in crate::execution) const SHARES_OF_CAP: u64 = QUERIES_MAX / LARGE_QUERIES;
/// The part of the cap for what operators hold, and the part for chunks: neither is known to need
/// more.
const CAP_PARTS: u64 = 2;
/// The part of the available memory for chunks decoded ahead: as much is left for each of the three
/// others that a driver needs ([`PARTS_OF_DRIVER`]).
const AHEAD_PART: u64 = 4;
/// The part of a query's working memory for chunks decoded ahead: half of [`PARTS_OF_DRIVER`].
const AHEAD_PART_OF_WORKING: u64 = 2;
/// The part of a query's working memory for one chunk: nested operators hold several at once, and
/// make several times as much of one. Eight of them with eight copies have room.
const CHUNK_PART_OF_WORKING: u64 = 64;
/// The part of all available memory for one chunk: an operator's input and output, and four times as
/// much on the way, for each of [`AHEAD_PART`].
const CHUNK_PART_OF_AVAILABLE: u64 = 24;
/// The part of all available memory that leaves the device at once: making a block takes three
/// times its bytes and [`HELD_ROW_BYTES`] a row (`held.rs`), which of narrow rows is as much again.
const BLOCK_PART_OF_AVAILABLE: u64 = 10;
/// The part of a query's working memory that always suffices: four chunks.
const BLOCK_PART_OF_WORKING: u64 = 16;
/// At least this many parts of a scan for every driver: one being decoded, one that the driver has,
/// and the output that its operators make of it, before and after a join.
const PARTS_OF_DRIVER: u64 = 4;
/// Working memory at least, so that a chunk has a megabyte: kernels take longer to launch than to
/// compute smaller ones.
const WORKING_BYTES_MIN: u64 = CHUNK_PART_OF_WORKING << 20;
/// Memory for an operator's rows at least: four blocks of that least working memory, of which one is
/// filled while another one leaves the device, each with its copy by partition.
const HOLDER_BYTES_MIN: u64 = 4 * WORKING_BYTES_MIN / BLOCK_PART_OF_WORKING;
/// The part of the held memory that operators have guarantees of.
const GUARANTEED_PART: u64 = 2;
/// Readers of a query at least.
const READERS_MIN: usize = 2;
/// Copies of an operator's rows while it joins, sorts or groups them: as they came, in one piece,
/// and in their new order.
const HELD_COPIES: f64 = 3.0;
/// Bytes for each of its rows besides: hashes, words and row numbers, both twice.
const HELD_ROW_BYTES: f64 = 40.0;
/// Partitions of one spilling: a copy back has the block's bytes of one column and one partition.
pub(in crate::execution) const PARTITIONS: usize = 32;
/// How often rows that are too many for memory are partitioned again.
pub(in crate::execution) const PARTITION_LEVELS_MAX: u32 = 6;
const _: () = assert!(PARTITION_LEVELS_MAX < EXCHANGE_LEVEL);
/// Rows that an operator holds in one piece: they are numbered with 32 bits.
pub(in crate::execution) const ROWS_MAX: usize = 1 << 31;

/// What a compiled plan says of its memory.
#[derive(Clone, Copy, Debug, Default)]
struct QueryNeed {
    /// Operators that hold rows.
    holder_count: u64,
    /// What they are expected to hold, all together.
    held_bytes: u64,
    /// Memory to decode one part of any scan, at most.
    part_bytes: u64,
}

impl QueryNeed {
    /// What a driver has at least for chunks.
    fn driver_bytes(&self) -> u64 {
        self.part_bytes.saturating_mul(PARTS_OF_DRIVER)
    }
}

/// The parts of a query's minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MinimumParts {
    held_bytes: u64,
    working_bytes: u64,
}

impl MinimumParts {
    /// The most that a query reserves.
    fn cap(arena_bytes: u64) -> Self {
        let bytes = arena_bytes / LARGE_QUERIES / CAP_PARTS;
        Self { held_bytes: bytes, working_bytes: bytes }
    }

    /// What a plan needs, between the floor and the cap.
    fn of(need: QueryNeed, arena_bytes: u64) -> Self {
        let cap = Self::cap(arena_bytes);
        // Evenly, so that there are never too many queries.
        let least = arena_bytes / QUERIES_MAX / CAP_PARTS;
        let held_min = need.holder_count.saturating_mul(HOLDER_BYTES_MIN);
        let held = need.held_bytes.max(held_min).max(least);
        let working = need.driver_bytes().max(WORKING_BYTES_MIN).max(least);
        Self { held_bytes: held.min(cap.held_bytes), working_bytes: working.min(cap.working_bytes) }
    }

    /// Some shares of the cap.
    fn of_share(share: MemoryShare, arena_bytes: u64) -> Self {
        let cap = Self::cap(arena_bytes);
        let part = |bytes: u64| (u128::from(bytes) * u128::from(share.0) / u128::from(SHARES_OF_CAP)) as u64;
        Self { held_bytes: part(cap.held_bytes), working_bytes: part(cap.working_bytes) }
    }

    /// The least share that has both parts.
    fn share(&self, arena_bytes: u64) -> MemoryShare {
        let cap = Self::cap(arena_bytes).working_bytes.max(1);
        let bytes = self.held_bytes.max(self.working_bytes);
        let shares = (u128::from(bytes) * u128::from(SHARES_OF_CAP)).div_ceil(u128::from(cap));
        MemoryShare::new(shares.try_into().unwrap_or(u16::MAX))
    }

    /// What every operator that holds rows has for itself.
    fn guaranteed_bytes(&self, holder_count: u64) -> u64 {
        let holder_count = holder_count.max(1);
        let least = self.held_bytes.min(holder_count.saturating_mul(HOLDER_BYTES_MIN));
        least.max(self.held_bytes / GUARANTEED_PART) / holder_count
    }

    fn bytes(&self) -> u64 {
        self.held_bytes + self.working_bytes
    }

    fn reservation(&self, holder_count: u64, arena_bytes: u64) -> Reservation {
        let guaranteed = self.guaranteed_bytes(holder_count) * holder_count.max(1);
        Reservation {
            minimum_bytes: self.bytes(),
            pool_bytes: self.held_bytes - guaranteed,
            growth_bytes: Self::cap(arena_bytes).bytes(),
        }
    }
}

/// How many [`SHARES_OF_CAP`] of a rank's memory a query has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::execution) struct MemoryShare(u16);

impl MemoryShare {
    /// The whole cap.
    pub(in crate::execution) const CAP: Self = Self(SHARES_OF_CAP as u16);

    /// So many shares; at least one, and at most the cap.
    pub(in crate::execution) fn new(number: u16) -> Self {
        Self(number.clamp(1, Self::CAP.0))
    }

    /// How many.
    pub(in crate::execution) fn number(self) -> u16 {
        self.0
    }
}

/// How a query's minimum is found.
#[derive(Clone, Copy, Debug)]
pub(in crate::execution) enum WantedMinimum {
    /// By what the plan says.
    OfPlan {
        /// The number of exchanges with other ranks, if there are other ranks.
        exchange_count: Option<usize>,
    },
    /// As on rank 0.
    Share(MemoryShare),
    /// As much as a query may reserve.
    Cap,
}

/// The minimum of a query, which its readers know too: the cap until it is admitted.
#[derive(Debug)]
pub(in crate::execution) struct QueryMinimum {
    held_bytes: AtomicU64,
    working_bytes: AtomicU64,
    cap: MinimumParts,
}

impl QueryMinimum {
    fn new(arena_bytes: u64) -> Self {
        let cap = MinimumParts::cap(arena_bytes);
        let (held_bytes, working_bytes) = (cap.held_bytes.into(), cap.working_bytes.into());
        Self { held_bytes, working_bytes, cap }
    }

    fn set(&self, parts: MinimumParts) {
        self.held_bytes.store(parts.held_bytes, Ordering::Relaxed);
        self.working_bytes.store(parts.working_bytes, Ordering::Relaxed);
    }

    fn parts(&self) -> MinimumParts {
        MinimumParts {
            held_bytes: self.held_bytes.load(Ordering::Relaxed),
            working_bytes: self.working_bytes.load(Ordering::Relaxed),
        }
    }

    /// Whether a query with this minimum could have had more.
    pub(in crate::execution) fn is_below_cap(&self) -> bool {
        self.parts() != self.cap
    }
}

/// A query's memory. Cheap to clone.
#[derive(Clone)]
pub(in crate::execution) struct QueryMemory {
    memory: DeviceMemory,
    /// The store for spilled rows.
    pub(in crate::execution) store: SpillStore,
    need: QueryNeed,
    minimum: Arc<QueryMinimum>,
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
        let minimum = Arc::new(QueryMinimum::new(memory.bytes_max()));
        Self { memory, store, need: QueryNeed::default(), minimum, driver_count: Arc::default() }
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

    /// Whether there is memory now for the chunks of one more driver.
    pub(in crate::execution) fn has_room_for_driver(&self) -> bool {
        let driver_bytes = self.need.driver_bytes().max(self.working_bytes());
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

    /// The number of readers for a query that has the device for itself.
    pub(in crate::execution) fn reader_count(&self) -> usize {
        self.memory.platform().reader_count()
    }

    /// The share of them that a query starts while others run: more would only take turns on the
    /// host's processors. Two at least: one decodes while the other one reads.
    pub(in crate::execution) fn reader_share(&self) -> usize {
        let reader_count = self.reader_count();
        let running = usize::try_from(self.memory.admitted_count()).unwrap_or(usize::MAX);
        (reader_count / running.max(1)).clamp(reader_count.min(READERS_MIN), reader_count)
    }

    /// Counts one more operator that will hold rows: as many as the planner expects, with these
    /// columns. Before the first claim.
    pub(in crate::execution) fn add_holder(&mut self, rows: f64, columns: &[(ColumnId, DataType)]) {
        self.need.holder_count += 1;
        // A cell's validity is a byte.
        let width = row_bytes(columns) + columns.len() as f64;
        // Casts of too large numbers saturate, and those of no numbers are 0.
        let held_bytes = (rows.max(0.0) * (HELD_COPIES * width + HELD_ROW_BYTES)) as u64;
        self.need.held_bytes = self.need.held_bytes.saturating_add(held_bytes);
    }

    /// Counts one more operator that holds rows only while it has nothing better to do.
    pub(in crate::execution) fn add_small_holder(&mut self) {
        self.add_holder(0.0, &[]);
    }

    /// Sets the memory to decode one part of any scan, at most.
    pub(in crate::execution) fn expect_parts(&mut self, part_bytes: u64) {
        self.need.part_bytes = part_bytes;
    }

    fn working_bytes(&self) -> u64 {
        self.minimum.parts().working_bytes
    }

    /// The query's minimum, which does not keep its memory.
    pub(in crate::execution) fn minimum(&self) -> Arc<QueryMinimum> {
        self.minimum.clone()
    }

    /// The share of the device's memory that holds the query's minimum.
    pub(in crate::execution) fn share(&self) -> MemoryShare {
        self.minimum.parts().share(self.memory.bytes_max())
    }

    /// Waits for the query's minimum.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and `OutOfMemory` if too many queries wait.
    pub(in crate::execution) fn admit(&self, wanted: WantedMinimum, stop: &StopFlag) -> Result<()> {
        let arena_bytes = self.memory.bytes_max();
        let parts = match wanted {
            WantedMinimum::OfPlan { exchange_count } => {
                let parts = MinimumParts::of(self.need, arena_bytes);
                match exchange_count {
                    None => parts,
                    Some(exchanges) => {
                        let shares = MemoryShare::new(exchanges.try_into().unwrap_or(u16::MAX));
                        MinimumParts::of_share(shares.max(parts.share(arena_bytes)), arena_bytes)
                    }
                }
            }
            WantedMinimum::Share(share) => MinimumParts::of_share(share, arena_bytes),
            WantedMinimum::Cap => MinimumParts::cap(arena_bytes),
        };
        self.memory.admit(parts.reservation(self.need.holder_count, arena_bytes), stop)?;
        self.minimum.set(parts);
        Ok(())
    }

    /// Whether a query whose client has stopped reading goes on into the spool, so that others get
    /// its memory.
    pub(in crate::execution) fn yields_memory(&self) -> bool {
        self.memory.yields_memory()
    }

    /// The limit of one operator's held rows.
    pub(in crate::execution) fn claim(&self) -> Result<Claim> {
        let guaranteed = self.minimum.parts().guaranteed_bytes(self.need.holder_count);
        self.memory.claim(guaranteed).ok_or_else(|| Error::internal("a query without an account of memory"))
    }

    /// The target size of a chunk's cells, as of now.
    pub(in crate::execution) fn chunk_bytes(&self) -> u64 {
        self.bytes_within(CHUNK_PART_OF_AVAILABLE, CHUNK_PART_OF_WORKING)
    }

    /// The bytes that leave the device at once, or come back to be partitioned again, as of now.
    pub(in crate::execution) fn block_bytes(&self) -> u64 {
        self.bytes_within(BLOCK_PART_OF_AVAILABLE, BLOCK_PART_OF_WORKING)
    }

    /// A driver's share of a part of the available memory, or of the working memory if that is more.
    fn bytes_within(&self, part_of_available: u64, part_of_working: u64) -> u64 {
        let available = self.memory.available_bytes() / part_of_available;
        (available.max(self.working_bytes() / part_of_working) / self.driver_count()).max(1)
    }

    /// The limit of a scan's bytes decoded ahead, as of now.
    pub(in crate::execution) fn ahead_bytes(&self) -> u64 {
        (self.memory.available_bytes() / AHEAD_PART).max(self.working_bytes() / AHEAD_PART_OF_WORKING)
    }
}

#[cfg(test)]
mod tests;
