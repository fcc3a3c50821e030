//! The keys of a join's build side from all ranks: a filter of them may pass exchanges.
//!
//! ```text
//! rank 0: build side ── keys, then an end mark ─┐                      ┌─► rank 0: as many end marks as ranks: JoinFilters
//! rank 1: build side ── keys, then an end mark ─┴─ broadcast exchange ─┴─► rank 1: the same
//! ```
//!
//! The reader of a build side sends its keys to all ranks. Each rank makes a filter of all keys, as
//! one rank alone does of its own (`JoinFilters::publish`). If a rank never reads its build side,
//! it sends no end mark, and no rank has the filter.
//!
//! Invariants: a filter covers the keys of all ranks, or there is none. A query works without
//! filters: if memory is short, there is none.
//!
//! Source: the union of all ranks' shares as in runtime filters of distributed engines. We differ:
//! ranks send the keys themselves, not filters of them. Every rank then knows their number and
//! range before it chooses the filter's form.

use std::sync::{Arc, Mutex, MutexGuard};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{DataType, Result};

use crate::{
    device::{CellType, Chunk, Claim, Column, HeldMemory},
    exchange::{InboxConsumer, OutboxProducer, ReceivedBlock, Routing},
    execution::{
        Driver,
        query::QueryContext,
        runtime_filter::{JoinFilters, MeasuredKeys},
    },
    operation::Queue,
};

/// Limit of the keys that a rank sends: a few hundred megabytes to each other rank, for a filter of
/// at most as many bits as these have bytes. The planner's estimate of a build side is too rough
/// for this.
const GIVEN_ROWS_MAX: usize = 1 << 25;

/// The keys of a join's build side that ranks share.
pub(in crate::execution) struct SharedKeys {
    /// For scans below exchanges of the probe side.
    pub(in crate::execution) filters: Arc<JoinFilters>,
    /// Of the keys, and of the end mark behind them.
    types: Vec<DataType>,
    giving: Mutex<Giving>,
}

/// The state of this rank's own keys.
enum Giving {
    /// The exchange has not begun.
    Waiting,
    Open(OutboxProducer),
    /// They were sent, or never will be.
    Over,
}

/// Sends a rank's keys. Keys not sent when it is dropped are never sent.
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

    /// Takes the outgoing side.
    pub(super) fn begin(&self, outbox: OutboxProducer) {
        let mut giving = self.lock();
        match *giving {
            Giving::Waiting => *giving = Giving::Open(outbox),
            Giving::Open(_) | Giving::Over => outbox.finish(),
        }
    }

    /// Ends this rank's keys.
    pub(super) fn give_up(&self) {
        if let Giving::Open(outbox) = std::mem::replace(&mut *self.lock(), Giving::Over) {
            outbox.finish();
        }
    }

    /// Sends this rank's keys to all ranks, unless they are too many. `give_keys` passes on the
    /// keys of all rows, in any number of pieces.
    ///
    /// # Errors
    ///
    /// Errors of `give_keys` and of sending.
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

    /// Receives the keys of all ranks by a driver of its own, and makes filters of them. Returns the
    /// filters' claim, which lasts until the query ends. `operator`: the join's place in the metrics.
    ///
    /// # Errors
    ///
    /// The query's failure, here or on another rank; faults of the device.
    pub(super) fn receive(
        &self,
        query: &Arc<QueryContext>,
        inbox: InboxConsumer,
        (operator, rank_count): (usize, usize),
    ) -> Result<Option<Claim>> {
        let queue = query.memory.open_queue(query.stop.clone())?;
        let mut driver = Driver::new(query.clone(), queue, query.stop.clone(), operator);
        let received = self.receive_keys(&mut driver, &inbox, rank_count);
        drop(inbox);
        driver.merge_metrics();
        // After a failure too: no scan waits for a filter that does not come.
        self.filters.give_up();
        received
    }

    fn receive_keys(
        &self,
        driver: &mut Driver,
        inbox: &InboxConsumer,
        rank_count: usize,
    ) -> Result<Option<Claim>> {
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
        let Some(chunks) = held.filter(|_| end_count == rank_count) else { return Ok(None) };
        let queue = &driver.queue;
        self.filters.publish(queue, &measured, &mut claim, |insert| {
            chunks.iter().try_for_each(|chunk| {
                let (_, keys) = chunk.columns.split_last().ok_or_else(no_mark)?;
                insert(keys, chunk.row_count)
            })
        })?;
        Ok(Some(claim))
    }
}

fn no_mark() -> pystachio_plan::Error {
    pystachio_plan::Error::internal("keys without an end mark")
}
