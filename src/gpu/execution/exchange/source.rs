//! The sources above an exchange.

use std::sync::Arc;

use pystachio_plan::{Error, Result};

use super::received::{Received, ReceivedRows};
use crate::{
    device::Rows,
    exchange::{Rank, RankPlace},
    execution::{CountedSource, Driver, Source, expressions::RowProgram},
    operation::{EXCHANGE_LEVEL, HashPartitioning, RowNumbers},
    spill::SpilledPart,
};

/// The rows that other ranks and this one sent here.
pub(in crate::execution) struct ExchangeSource {
    received: Arc<ReceivedRows>,
    /// The remaining rows after the last one has arrived.
    spilled: Option<SpilledPart>,
}

impl ExchangeSource {
    pub(in crate::execution) fn new(received: Arc<ReceivedRows>) -> Self {
        Self { received, spilled: None }
    }

    fn read_spilled(&mut self, driver: &Driver) -> Result<Option<Rows>> {
        let Some(part) = &mut self.spilled else { return Ok(None) };
        let Some(batch) = part.first_batch(driver.query.memory.block_bytes()) else { return Ok(None) };
        let end = batch.end;
        let chunk = part.read(&driver.queue, batch)?;
        part.forget(end);
        Ok(Some(chunk.into()))
    }
}

impl Source for ExchangeSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        if self.spilled.is_some() {
            return self.read_spilled(driver);
        }
        match driver.while_waiting(|driver| self.received.next(driver))? {
            None => Ok(None),
            Some(Received::Rows(rows)) => {
                rows.use_on(driver.queue.stream())?;
                Ok(Some(rows))
            }
            Some(Received::Spilled(part)) => {
                self.spilled = Some(part);
                self.read_spilled(driver)
            }
        }
    }
}

impl Drop for ExchangeSource {
    fn drop(&mut self) {
        self.received.give_up();
    }
}

/// The rows that this rank owns of rows that every rank has, in their order.
pub(in crate::execution) struct OwnSource {
    pub(in crate::execution) input: CountedSource,
    /// The keys that decide ownership; without them rank 0 owns all.
    pub(in crate::execution) keys: Option<RowProgram>,
    pub(in crate::execution) place: RankPlace,
}

impl Source for OwnSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        let RankPlace { rank, rank_count } = self.place;
        let Some(keys) = &self.keys else {
            return if rank == Rank(0) { self.input.next(driver) } else { Ok(None) };
        };
        let Some(rows) = self.input.next(driver)? else { return Ok(None) };
        if rows.row_count == 0 {
            return Ok(Some(rows));
        }
        let queue = &driver.queue;
        let keys = keys.evaluate_cells(queue, &rows)?;
        let by = HashPartitioning { partition_count: rank_count, level: EXCHANGE_LEVEL, nulls_match: true };
        let partitioned = queue.partition(&keys, rows.row_count, by)?;
        let [first, end] = partitioned.bounds[rank.place()..][..2] else {
            return Err(Error::internal("a rank that owns nothing"));
        };
        let RowNumbers { rows: numbers, .. } = partitioned.rows;
        let number_bytes = size_of::<u32>() as u64;
        let numbers = numbers.slice(first as u64 * number_bytes, (end - first) as u64 * number_bytes);
        let own = RowNumbers { rows: numbers, count: end - first, may_miss: false, is_every_row: false };
        queue.gather_rows(&rows, &own).map(Some)
    }

    fn expect_whole(&mut self) -> bool {
        self.input.expect_whole();
        true
    }
}
