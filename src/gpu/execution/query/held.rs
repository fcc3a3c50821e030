//! Rows that an operator holds from one chunk to the next, and their way off the device.

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
    /// Chunks, from the first on, that keep nothing but their own.
    compact_count: usize,
}

impl Held {
    /// Rows of all chunks.
    pub(in crate::execution) fn row_count(&self) -> usize {
        self.row_count
    }

    /// Bytes that the chunks keep, what several of them share once. It is more than their own before [`Held::compact`].
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

    /// The chunks, which are not held any more.
    pub(in crate::execution) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(self).chunks
    }

    /// Claims what `cost` says of the bytes and rows that are held. Before that is refused, chunks let go of what is
    /// not theirs.
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

    /// The same, of what is held as it is.
    pub(in crate::execution) fn fits(&self, claim: &mut Claim, cost: impl Fn(u64, usize) -> u64) -> bool {
        claim.try_resize(cost(self.memory.bytes(), self.row_count))
    }

    /// Lets go of what is not the chunks' own.
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

/// Rows on their way off the device, collected until they make a block: a block costs the same waits and copies,
/// whatever its size.
pub(in crate::execution) struct Spilling<'a> {
    held: Held,
    partitions: SpilledPartitions,
    divide: Divide<'a>,
}

/// Which of a block's rows go where; `None`: they keep their order, as one partition.
pub(super) type Divide<'a> = Box<dyn Fn(&Queue, &Chunk) -> Result<Option<Partitioned>> + Send + 'a>;

/// What making a block takes for every row besides the rows themselves, one after another, and by partition: hashes,
/// words and row numbers, both twice.
const BLOCK_ROW_BYTES: u64 = 40;

fn block_cost(bytes: u64, row_count: usize) -> u64 {
    3 * bytes + BLOCK_ROW_BYTES * row_count as u64
}

impl<'a> Spilling<'a> {
    /// Nothing yet, for so many partitions.
    pub(in crate::execution) fn new(
        partition_count: usize,
        divide: impl Fn(&Queue, &Chunk) -> Result<Option<Partitioned>> + Send + 'a,
    ) -> Self {
        let partitions = SpilledPartitions::new(partition_count);
        Self { held: Held::default(), partitions, divide: Box::new(divide) }
    }

    /// Nothing yet, for rows that keep their order.
    pub(in crate::execution) fn in_order() -> Self {
        Self::new(1, |_, _| Ok(None))
    }

    /// Adds a chunk, whose rows are held until there is a block of them.
    ///
    /// # Errors
    ///
    /// Those of the spill store and of dividing; `Cancelled`, and faults of the device.
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
            self.flush(driver)?;
        }
        self.held.push(chunk);
        let cost = block_cost(self.held.memory.bytes(), self.held.row_count);
        let has_room = claim.bytes() >= cost || claim.try_resize(cost);
        if has_room { Ok(()) } else { self.flush(driver) }
    }

    /// The partitions, when every chunk was added.
    ///
    /// # Errors
    ///
    /// As of [`Spilling::push`].
    pub(in crate::execution) fn finish(mut self, driver: &Driver) -> Result<SpilledPartitions> {
        self.flush(driver)?;
        Ok(self.partitions)
    }

    /// Writes what is held as a block.
    ///
    /// # Errors
    ///
    /// As of [`Spilling::push`].
    pub(in crate::execution) fn flush(&mut self, driver: &Driver) -> Result<()> {
        if self.held.row_count == 0 {
            return Ok(());
        }
        let (queue, store) = (&driver.queue, &driver.query.memory.store);
        let block = queue.concat_taken(self.held.take())?;
        let written = match (self.divide)(queue, &block)? {
            None => SpilledChunk::write(queue, store, &block, vec![0, block.row_count])?,
            Some(partitioned) => {
                let rows = queue.gather_chunk(&block, &partitioned.rows)?;
                drop(block);
                SpilledChunk::write(queue, store, &rows, partitioned.bounds)?
            }
        };
        self.partitions.push(written);
        Ok(())
    }
}

/// Partitions side by side that make a part each: as many as cost at most `cost_max` together, at least one.
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

/// Reads spilled rows back, a block's bytes at once, and gives them up.
///
/// # Errors
///
/// Those of the spill store and of `work`; `Cancelled`, and faults of the device.
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
