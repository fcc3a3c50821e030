//! The engine's memory pool.
//!
//! Operators that can spill share evenly what the others leave, so that one partition of a sort does not
//! starve the other. As long as half of that is free, one may have more than its share: it may have nearly all the rows, and the others
//! none. What scans read and decode comes and goes with every row group and can't be spilled,
//! nor can it wait: it is granted at the cost of those that can spill, which get less the next time that
//! they ask. A part of the pool that these never get makes up for that.
//!
//! Invariants: what can't be spilled never exceeds the pool.
//!
//! Source: DataFusion's `FairSpillPool`, which refuses a scan whatever sorts have filled.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::datafusion::{
    error::{DataFusionError, Result as DataFusionResult},
    execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
};

use crate::{cache::ColumnCache, error::REFUSED};
use pystachio_engine::{Tally, locking::lock};
use pystachio_files::FileMemory;

/// The consumer name of scans.
pub(crate) const SCAN_CONSUMER: &str = "scan";
/// The consumer name of what scans decode for the column cache.
pub(crate) const CHUNK_CONSUMER: &str = "column chunks";
/// The consumer name of rows on their way to readers.
pub(crate) const ROWS_CONSUMER: &str = "rows for readers";
/// The consumer name of the first rows of an order.
pub(crate) const FIRST_ROWS_CONSUMER: &str = "first rows";
/// The consumer name of rows that several readers share.
pub(crate) const SHARED_CONSUMER: &str = "shared rows";
/// The consumer name of the rows of a window's partition.
pub(crate) const WINDOW_CONSUMER: &str = "window partitions";
/// The consumer name of footers.
const FOOTER_CONSUMER: &str = "footers";
/// The consumer name of what is encoded for files.
const WRITER_CONSUMER: &str = "file writer";
/// The part of the pool that operators that can spill never get.
const SPILLERS_NEVER_PART: usize = 8;

/// Memory for all queries of an engine, and for the column cache.
#[derive(Debug)]
pub(crate) struct EnginePool {
    bytes_max: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    spillers: Tally,
    spillable_bytes: Tally,
    fixed_bytes: Tally,
}

impl EnginePool {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    /// How much more a consumer may have.
    fn available(&self, state: &PoolState, reservation: &MemoryReservation) -> usize {
        let consumer = reservation.consumer();
        if consumer.can_spill() {
            let others = self.bytes_max / SPILLERS_NEVER_PART + state.fixed_bytes.get();
            let all = self.bytes_max.saturating_sub(others);
            let share = all / state.spillers.get().max(1);
            let unused_half = (all / 2).saturating_sub(state.spillable_bytes.get());
            return unused_half.max(share.saturating_sub(reservation.size()));
        }
        let taken = if [SCAN_CONSUMER, CHUNK_CONSUMER, FOOTER_CONSUMER].contains(&consumer.name()) {
            state.fixed_bytes.get()
        } else {
            state.bytes()
        };
        self.bytes_max.saturating_sub(taken)
    }
}

/// Memory of a pool for files.
#[derive(Debug)]
pub(crate) struct PoolFiles {
    pool: Arc<dyn MemoryPool>,
    reservation: MemoryReservation,
    /// What gives way, where the pool itself sees to nothing of the kind.
    cache: Option<Arc<ColumnCache>>,
}

impl PoolFiles {
    /// For footers, of an engine's pool. The column cache gives way to them.
    pub(crate) fn footers(pool: &Arc<dyn MemoryPool>, cache: Arc<ColumnCache>) -> Self {
        Self::new(pool, FOOTER_CONSUMER, Some(cache))
    }

    /// For what is encoded, of a query's pool.
    pub(crate) fn writer(pool: &Arc<dyn MemoryPool>) -> Self {
        Self::new(pool, WRITER_CONSUMER, None)
    }

    fn new(pool: &Arc<dyn MemoryPool>, consumer: &str, cache: Option<Arc<ColumnCache>>) -> Self {
        Self { pool: pool.clone(), reservation: MemoryConsumer::new(consumer).register(pool), cache }
    }
}

impl FileMemory for PoolFiles {
    fn bytes_max(&self) -> u64 {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes as u64,
            _ => u64::MAX,
        }
    }

    fn try_take(&self, bytes: u64) -> bool {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let gives_way = || self.cache.as_ref().is_some_and(|cache| cache.give_back(bytes));
        let mut taken = self.reservation.try_grow(bytes);
        while taken.is_err() && gives_way() {
            taken = self.reservation.try_grow(bytes);
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.reservation.shrink(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

/// What a consumer's memory is for, as users know it. Consumers are named by their operators, with a partition's number.
fn purpose(consumer: &str) -> &str {
    let operator = consumer.split('[').next().unwrap_or(consumer);
    match operator {
        SCAN_CONSUMER | CHUNK_CONSUMER => "what a scan reads and decodes",
        "HashJoinInput" => "the table of a hash join",
        "NestedLoopJoinLoad" | "CrossJoinExec" => "a join without keys",
        "TopK" | FIRST_ROWS_CONSUMER => "the first rows of an order, as many as LIMIT and OFFSET together",
        "ExternalSorter" | "ExternalSorterMerge" | "SortPreservingMergeExec" => "a sort",
        "RepartitionExec" => "an exchange",
        _ if operator.contains("Aggregate") => "an aggregate",
        _ => operator,
    }
}

impl PoolState {
    fn bytes(&self) -> usize {
        let mut bytes = self.fixed_bytes;
        bytes.add(self.spillable_bytes.get());
        bytes.get()
    }

    fn bytes_of(&mut self, reservation: &MemoryReservation) -> &mut Tally {
        if reservation.consumer().can_spill() { &mut self.spillable_bytes } else { &mut self.fixed_bytes }
    }
}

impl fmt::Display for EnginePool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "engine pool of {} bytes", self.bytes_max)
    }
}

impl MemoryPool for EnginePool {
    fn name(&self) -> &str {
        "engine"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.lock().spillers.add(usize::from(consumer.can_spill()));
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.lock().spillers.take(usize::from(consumer.can_spill()));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.lock().bytes_of(reservation).add(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.lock().bytes_of(reservation).take(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        let mut state = self.lock();
        let available = self.available(&state, reservation);
        if additional > available {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{REFUSED}{}: requested_bytes={additional}, held_bytes={}, free_bytes={available}, limit_bytes={}",
                purpose(reservation.consumer().name()),
                reservation.size(),
                self.bytes_max
            )));
        }
        state.bytes_of(reservation).add(additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.lock().bytes()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Arc<dyn MemoryPool> {
        Arc::new(EnginePool::new(800))
    }

    fn spiller(pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
        MemoryConsumer::new("sort").with_can_spill(true).register(pool)
    }

    #[test]
    fn spillers_share_evenly_and_leave_a_part() {
        let pool = pool();
        let (one, two) = (spiller(&pool), spiller(&pool));
        one.try_grow(350).unwrap();
        assert!(one.try_grow(1).is_err());
        two.try_grow(350).unwrap();
        assert_eq!(pool.reserved(), 700);
    }

    #[test]
    fn a_spiller_has_what_many_others_do_not_need() {
        let pool = pool();
        let spillers: Vec<_> = (0..70).map(|_| spiller(&pool)).collect();
        spillers[3].try_grow(350).unwrap();
        assert!(spillers[3].try_grow(1).is_err());
        spillers.iter().skip(4).for_each(|other| other.try_grow(10).unwrap());
        assert!(spillers[4].try_grow(1).is_err());
        spillers[3].shrink(350);
        assert!(spillers[4].try_grow(1).is_err());
    }

    #[test]
    fn a_scan_is_granted_at_the_cost_of_spillers() {
        let pool = pool();
        let sort = spiller(&pool);
        sort.try_grow(700).unwrap();
        let join = MemoryConsumer::new("join").register(&pool);
        assert!(join.try_grow(200).is_err());
        let scan = MemoryConsumer::new(SCAN_CONSUMER).register(&pool);
        scan.try_grow(200).unwrap();
        sort.shrink(650);
        assert!(sort.try_grow(451).is_err());
        sort.try_grow(450).unwrap();
        assert!(scan.try_grow(601).is_err());
        scan.free();
        sort.free();
        join.try_grow(800).unwrap();
    }
}
