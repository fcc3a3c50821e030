//! Rows that an operator holds from one chunk to the next, and rows that it moves off the device.

use std::ops::Range;

use pystachio_plan::Result;

use super::{driver::Driver, memory::ROWS_MAX};
use crate::{
    device::{Chunk, Claim, HeldMemory},
    operation::{Partitioned, Queue},
    spill::{SpilledChunk, SpilledPart, SpilledPartitions},
};

/// Chunks that are held.
#[derive(Default)]
pub(in crate::execution) struct Held {
    chunks: Vec<Chunk>,
    row_count: usize,
    memory: HeldMemory,
    /// Chunks, from the first on, whose memory holds only their own rows.
    compact_count: usize,
}

impl Held {
    /// Rows of all chunks.
    pub(in crate::execution) fn row_count(&self) -> usize {
        self.row_count
    }

    /// Bytes of memory that the chunks keep alive; memory that several share counts once. It may
    /// exceed the size of their own rows before [`Held::compact`].
    pub(in crate::execution) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The chunks in order.
    pub(in crate::execution) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    pub(in crate::execution) fn push(&mut self, chunk: Chunk) {
        self.row_count += chunk.row_count;
        self.memory.add(&chunk);
        self.chunks.push(chunk);
    }

    /// Moves the chunks out.
    pub(in crate::execution) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(self).chunks
    }

    /// Claims the `cost` of the held bytes and rows. Before the claim is refused, chunks are
    /// compacted.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(in crate::execution) fn try_claim(
        &mut self,
        queue: &Queue,
        claim: &mut Claim,
        cost: impl Fn(u64, usize) -> u64,
    ) -> Result<bool> {
        if self.row_count > ROWS_MAX {
            return Ok(false);
        }
        if self.fits(claim, &cost) {
            return Ok(true);
        }
        self.compact(queue)?;
        Ok(self.fits(claim, &cost))
    }

    /// The same, for the held rows as they are.
    pub(in crate::execution) fn fits(&self, claim: &mut Claim, cost: impl Fn(u64, usize) -> u64) -> bool {
        claim.try_resize(cost(self.memory.bytes(), self.row_count))
    }

    /// Compacts chunks, so that they keep only their own rows in memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(in crate::execution) fn compact(&mut self, queue: &Queue) -> Result<()> {
        for chunk in &mut self.chunks[self.compact_count..] {
            if chunk.held_bytes() > chunk.cell_bytes() {
                *chunk = queue.compact(chunk)?;
            }
        }
        self.compact_count = self.chunks.len();
        self.memory = HeldMemory::default();
        self.chunks.iter().for_each(|chunk| self.memory.add(chunk));
        Ok(())
    }
}

/// Rows on their way into the spill store, collected into blocks: the waits and copies of a block cost
/// the same, whatever its size.
pub(in crate::execution) struct Spilling<'a> {
    held: Held,
    partitions: SpilledPartitions,
    divide: Divide<'a>,
    /// Whether blocks stay on the device while it has room.
    keeps: bool,
}

/// How to partition a block's rows; `None`: they keep their order, as one partition.
pub(super) type Divide<'a> = Box<dyn Fn(&Queue, &Chunk) -> Result<Option<Partitioned>> + Send + 'a>;

/// Bytes for each row to make a block, besides the rows in order and by partition: hashes, words
/// and row numbers, both twice.
const BLOCK_ROW_BYTES: u64 = 40;

fn block_cost(bytes: u64, row_count: usize) -> u64 {
    3 * bytes + BLOCK_ROW_BYTES * row_count as u64
}

impl<'a> Spilling<'a> {
    /// Empty, for so many partitions.
    pub(in crate::execution) fn new(
        partition_count: usize,
        divide: impl Fn(&Queue, &Chunk) -> Result<Option<Partitioned>> + Send + 'a,
    ) -> Self {
        let partitions = SpilledPartitions::new(partition_count);
        Self { held: Held::default(), partitions, divide: Box::new(divide), keeps: false }
    }

    /// The same, where blocks stay on the device while it has room.
    pub(in crate::execution) fn keeping(self) -> Self {
        Self { keeps: true, ..self }
    }

    /// Empty, for rows that keep their order.
    pub(in crate::execution) fn in_order() -> Self {
        Self::new(1, |_, _| Ok(None))
    }

    /// Adds a chunk, whose rows are held until they fill a block.
    ///
    /// # Errors
    ///
    /// Errors of the spill store and of partitioning; `Cancelled`, and faults of the device.
    pub(in crate::execution) fn push(
        &mut self,
        driver: &Driver,
        claim: &mut Claim,
        chunk: Chunk,
    ) -> Result<()> {
        driver.check_cancelled()?;
        if chunk.row_count == 0 {
            return Ok(());
        }
        let bytes_max = driver.query.memory.block_bytes();
        if self.held.memory.bytes() + chunk.held_bytes() > bytes_max {
            self.held.compact(&driver.queue)?;
        }
        if self.held.memory.bytes() + chunk.held_bytes() > bytes_max {
            self.flush(driver, claim)?;
        }
        self.held.push(chunk);
        let cost = block_cost(self.held.memory.bytes(), self.held.row_count);
        let has_room = claim.bytes() >= cost || claim.try_resize(cost);
        if has_room { Ok(()) } else { self.flush(driver, claim) }
    }

    /// The partitions, after the last chunk.
    ///
    /// # Errors
    ///
    /// Errors of [`Spilling::push`].
    pub(in crate::execution) fn finish(
        mut self,
        driver: &Driver,
        claim: &mut Claim,
    ) -> Result<SpilledPartitions> {
        self.flush(driver, claim)?;
        Ok(self.partitions)
    }

    /// Stores the held rows as a block. One that stays on the device has a claim of its own, so what was claimed for the held
    /// rows is given back.
    ///
    /// # Errors
    ///
    /// Errors of [`Spilling::push`].
    pub(in crate::execution) fn flush(&mut self, driver: &Driver, claim: &mut Claim) -> Result<()> {
        if self.held.row_count == 0 {
            return Ok(());
        }
        let (queue, store) = (&driver.queue, &driver.query.memory.store);
        let keeping = self.keeps.then(|| store.keeping());
        let store = keeping.as_ref().unwrap_or(store);
        let block = queue.concat_taken(self.held.take())?;
        let (rows, bounds) = match (self.divide)(queue, &block)? {
            None => {
                let bounds = vec![0, block.row_count];
                (block, bounds)
            }
            Some(partitioned) => {
                let rows = queue.gather_chunk(&block, &partitioned.rows)?;
                drop(block);
                (rows, partitioned.bounds)
            }
        };
        if self.keeps {
            claim.try_resize(0);
        }
        self.partitions.push(SpilledChunk::write(queue, store, &rows, bounds)?);
        Ok(())
    }
}

/// Groups adjacent partitions into parts that cost at most `cost_max` together, at least one
/// partition each.
pub(in crate::execution) fn groups_within(
    costs: impl IntoIterator<Item = u64>,
    cost_max: u64,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut sum = 0u64;
    for (place, cost) in costs.into_iter().enumerate() {
        sum = sum.saturating_add(cost);
        match groups.last_mut() {
            Some(group) if sum <= cost_max => group.end = place + 1,
            _ => {
                sum = cost;
                groups.push(place..place + 1);
            }
        }
    }
    groups
}

/// Reads spilled rows back, a block's bytes at once, and frees them.
///
/// # Errors
///
/// Errors of the spill store and of `work`; `Cancelled`, and faults of the device.
pub(in crate::execution) fn for_each_block(
    driver: &Driver,
    mut part: SpilledPart,
    mut work: impl FnMut(Chunk) -> Result<()>,
) -> Result<()> {
    while let Some(batch) = part.first_batch(driver.query.memory.block_bytes()) {
        driver.check_cancelled()?;
        let end = batch.end;
        let chunk = part.read(&driver.queue, batch)?;
        part.forget(end);
        work(chunk)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_side_by_side_are_one_part_as_far_as_they_fit() {
        assert_eq!(groups_within([1, 2, 3, 9, 1, 0], 6), [0..3, 3..4, 4..6]);
        assert!(groups_within([], 6).is_empty());
        assert_eq!(groups_within([7, u64::MAX, 7], 6), [0..1, 1..2, 2..3]);
    }
}
