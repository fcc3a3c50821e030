//! Rows that an operator holds from one chunk to the next, and their way off the device.

use pystachio_plan::Result;

use super::{QueryContext, memory::ROWS_MAX};
use crate::{
    device::{Chunk, Claim, Column},
    operation::{HashPartitioning, Queue},
    spill::{SpilledChunk, SpilledPart, SpilledPartitions},
};

/// Chunks that are held.
#[derive(Default)]
pub(super) struct Held {
    chunks: Vec<Chunk>,
    row_count: usize,
    bytes: u64,
    /// Chunks, from the first on, that keep no text but their own.
    compact_count: usize,
}

impl Held {
    /// Rows of all chunks.
    pub(super) fn row_count(&self) -> usize {
        self.row_count
    }

    /// The chunks in order.
    pub(super) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    pub(super) fn push(&mut self, chunk: Chunk) {
        self.row_count += chunk.row_count;
        self.bytes += chunk.held_bytes();
        self.chunks.push(chunk);
    }

    /// The chunks, which are not held any more.
    pub(super) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(self).chunks
    }

    /// Claims what `cost` says of the bytes and rows that are held. Before that is refused, chunks let go of the
    /// text that is not theirs.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(super) fn try_claim(
        &mut self,
        queue: &Queue,
        claim: &mut Claim,
        cost: impl Fn(u64, usize) -> u64,
    ) -> Result<bool> {
        if self.row_count > ROWS_MAX {
            return Ok(false);
        }
        if claim.try_resize(cost(self.bytes, self.row_count)) {
            return Ok(true);
        }
        for chunk in &mut self.chunks[self.compact_count..] {
            let before = chunk.held_bytes();
            if before > chunk.cell_bytes() {
                *chunk = queue.compact(chunk)?;
            }
            self.bytes = self.bytes - before + chunk.held_bytes();
        }
        self.compact_count = self.chunks.len();
        Ok(claim.try_resize(cost(self.bytes, self.row_count)))
    }
}

/// Spills a chunk by the hash of its keys, or as one partition without keys.
///
/// # Errors
///
/// Those of the spill store, and faults of the device.
pub(super) fn spill(
    context: &QueryContext,
    chunk: &Chunk,
    keys: &[Column],
    by: HashPartitioning,
    partitions: &mut SpilledPartitions,
) -> Result<()> {
    context.check_cancelled()?;
    if chunk.row_count == 0 {
        return Ok(());
    }
    let (queue, store) = (&context.queue, &context.memory.store);
    let spilled = if keys.is_empty() {
        SpilledChunk::write(queue, store, chunk, vec![0, chunk.row_count])?
    } else {
        let partitioned = queue.partition(keys, chunk.row_count, by)?;
        let chunk = queue.gather_chunk(chunk, &partitioned.rows)?;
        SpilledChunk::write(queue, store, &chunk, partitioned.bounds)?
    };
    partitions.push(spilled);
    Ok(())
}

/// Reads spilled rows back, as much at once as a chunk may have, and gives them up.
pub(super) fn for_each_batch(
    context: &QueryContext,
    mut part: SpilledPart,
    mut work: impl FnMut(Chunk) -> Result<()>,
) -> Result<()> {
    while let Some(batch) = part.first_batch(context.memory.chunk_bytes()) {
        context.check_cancelled()?;
        let end = batch.end;
        let chunk = part.read(&context.queue, batch)?;
        part.forget(end);
        work(chunk)?;
    }
    Ok(())
}
