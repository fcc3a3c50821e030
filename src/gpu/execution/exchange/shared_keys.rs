//! The keys of a join's build side, of all ranks together: of them comes a filter that may pass exchanges.
//!
//! ```text
//! rank 0: build side ── keys, then an end mark ─┐                      ┌─► rank 0: as many end marks as ranks: JoinFilters
//! rank 1: build side ── keys, then an end mark ─┴─ broadcast exchange ─┴─► rank 1: the same
//! ```
//!
//! Whoever reads a build side gives its keys to all ranks; each rank makes of all keys what one rank alone makes of its own
//! (`JoinFilters::publish`). A rank that never reads its build side gives no end mark, and then there is no filter on any rank.
//!
//! Invariants: a filter is of the keys of all ranks, or there is none. A query needs no filter: what there is no memory for is left out.
//!
//! Source: the union of all ranks' shares as in runtime filters of distributed engines. We differ: what travels are the keys, once for each
//! rank, and not what each rank has made of them: every rank then knows their number and range before it chooses the filter's form.

use std::sync::{Arc, Mutex, MutexGuard};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{DataType, Result};

use crate::{
    device::{CellType, Chunk, Column, HeldMemory},
    exchange::{InboxConsumer, OutboxProducer, ReceivedBlock, Routing},
    execution::{
        Driver,
        query::Query,
        runtime_filter::{JoinFilters, MeasuredKeys},
    },
    operation::Queue,
};

/// Keys that a rank gives at most: a few hundred megabytes to each other one, for a filter of at most as many bits as these have bytes. What
/// a plan expects of a build side says little of it.
const GIVEN_ROWS_MAX: usize = 1 << 25;

/// What ranks know together of the keys of a join's build side.
pub(in crate::execution) struct SharedKeys {
    /// For scans below exchanges of the probe side.
    pub(in crate::execution) filters: Arc<JoinFilters>,
    /// Of the keys, and of the end mark behind them.
    types: Vec<DataType>,
    giving: Mutex<Giving>,
}

/// How far this rank's own keys are.
enum Giving {
    /// The exchange has not begun.
    Waiting,
    Open(OutboxProducer),
    /// They were given, or never will be.
    Over,
}

/// Who gives a rank's keys; what it has not given when it is dropped is never given.
pub(in crate::execution) struct KeyGiver(pub(in crate::execution) Arc<SharedKeys>);

impl Drop for KeyGiver {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl SharedKeys {
    /// For keys of these types.
    pub(in crate::execution) fn new(mut types: Vec<DataType>) -> Arc<Self> {
        types.push(DataType::Bool);
        Arc::new(Self { filters: Arc::default(), types, giving: Mutex::new(Giving::Waiting) })
    }

    fn lock(&self) -> MutexGuard<'_, Giving> {
        lock_whole(&self.giving)
    }

    /// Takes the way out.
    pub(super) fn begin(&self, outbox: OutboxProducer) {
        let mut giving = self.lock();
        match *giving {
            Giving::Waiting => *giving = Giving::Open(outbox),
            Giving::Open(_) | Giving::Over => outbox.finish(),
        }
    }

    /// Says that this rank gives nothing more.
    pub(super) fn give_up(&self) {
        if let Giving::Open(outbox) = std::mem::replace(&mut *self.lock(), Giving::Over) {
            outbox.finish();
        }
    }

    /// Gives this rank's keys to all ranks, unless they are too many: `give_keys` passes those of all rows on, in as many pieces as it
    /// likes.
    ///
    /// # Errors
    ///
    /// Those of `give_keys` and of sending.
    pub(in crate::execution) fn give(
        &self,
        queue: &Queue,
        row_count: usize,
        give_keys: impl FnOnce(&mut dyn FnMut(&[Column], usize) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let Giving::Open(outbox) = std::mem::replace(&mut *self.lock(), Giving::Over) else { return Ok(()) };
        if row_count > GIVEN_ROWS_MAX {
            outbox.finish();
            return Ok(());
        }
        let send = |keys: &[Column], row_count: usize, is_end: u8| {
            let mark = Column {
                data_type: DataType::Bool,
                cell_type: CellType::of(&DataType::Bool)?,
                values: queue.allocate_filled::<u8>(row_count as u64, is_end)?,
                validity: None,
                strings: Vec::new(),
            };
            let columns = keys.iter().cloned().chain([mark]).collect();
            outbox.send(queue, &Chunk { row_count, columns }, &Routing::Broadcast)
        };
        give_keys(&mut |keys, row_count| send(keys, row_count, 0))?;
        let key_types = &self.types[..self.types.len() - 1];
        let nulls =
            key_types.iter().map(|data_type| queue.nulls(data_type, 1)).collect::<Result<Vec<_>>>()?;
        send(&nulls, 1, 1)?;
        outbox.finish();
        Ok(())
    }

    /// Takes the keys of all ranks by a driver of its own, and makes filters of them.
    ///
    /// # Errors
    ///
    /// What the query fails with, here or on another rank; faults of the device.
    pub(super) fn receive(&self, query: &Arc<Query>, inbox: InboxConsumer, operator: usize) -> Result<()> {
        let queue = query.memory.open_queue(query.stop.clone())?;
        let mut driver = Driver::new(query.clone(), queue, query.stop.clone(), operator);
        let received = self.receive_keys(&mut driver, &inbox);
        drop(inbox);
        driver.merge_metrics();
        // Also where it failed: nobody waits for a filter that does not come.
        self.filters.give_up();
        received
    }

    fn receive_keys(&self, driver: &mut Driver, inbox: &InboxConsumer) -> Result<()> {
        let rank_count = driver.query.exchanges.place().map_or(1, |place| place.rank_count);
        let mut claim = driver.query.memory.claim()?;
        let mut measured = MeasuredKeys::default();
        let mut held: Option<Vec<Chunk>> = Some(Vec::new());
        let mut held_memory = HeldMemory::default();
        let mut end_count = 0;
        loop {
            let blocks = driver.while_waiting(|driver| inbox.take_all(driver.queue.stream()))?;
            if blocks.is_empty() {
                break;
            }
            let queue = &driver.queue;
            for chunk in ReceivedBlock::unpack(blocks, queue, &self.types)? {
                let Some(chunks) = &mut held else { break };
                let chunk = chunk?;
                let (mark, keys) = chunk.columns.split_last().ok_or_else(no_mark)?;
                end_count += queue.select(&mark.values, chunk.row_count)?.count;
                measured.add(queue, keys, chunk.row_count)?;
                held_memory.add(&chunk);
                match claim.try_resize(held_memory.bytes()) {
                    true => chunks.push(chunk),
                    false => held = None,
                }
            }
        }
        let Some(chunks) = held.filter(|_| end_count == rank_count) else { return Ok(()) };
        let queue = &driver.queue;
        self.filters.publish(queue, &measured, &mut claim, |insert| {
            chunks.iter().try_for_each(|chunk| {
                let (_, keys) = chunk.columns.split_last().ok_or_else(no_mark)?;
                insert(keys, chunk.row_count)
            })
        })?;
        drop(chunks);
        // The filters keep what they have of it until the query ends.
        driver.query.exchanges.keep_claim(claim);
        Ok(())
    }
}

fn no_mark() -> pystachio_plan::Error {
    pystachio_plan::Error::internal("keys without an end mark")
}
