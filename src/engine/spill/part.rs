//! Rows that belong together: ranges of many spilled chunks.

use std::{ops::Range, sync::Arc};

use pystachio_plan::Result;

use super::SpilledChunk;
use crate::{device::Chunk, operation::Queue};

/// Partitions that chunks are added to, each chunk in the order of its partitions.
pub struct SpilledPartitions {
    parts: Vec<SpilledPart>,
}

/// Rows off the device, in the order in which they were spilled.
#[derive(Clone, Default)]
pub struct SpilledPart {
    ranges: Vec<SpilledRange>,
    row_count: usize,
    bytes: u64,
}

#[derive(Clone)]
struct SpilledRange {
    chunk: Arc<SpilledChunk>,
    range: usize,
}

impl SpilledPartitions {
    /// So many partitions without rows.
    pub fn new(count: usize) -> Self {
        Self { parts: vec![SpilledPart::default(); count] }
    }

    /// Adds a chunk with a range a partition.
    ///
    /// # Panics
    ///
    /// If it has another number of ranges.
    pub fn push(&mut self, chunk: SpilledChunk) {
        assert_eq!(chunk.range_count(), self.parts.len(), "ranges of a chunk");
        let chunk = Arc::new(chunk);
        for (range, part) in self.parts.iter_mut().enumerate() {
            let rows = chunk.rows(range).len();
            if rows > 0 {
                part.row_count += rows;
                part.bytes += chunk.range_bytes(range);
                part.ranges.push(SpilledRange { chunk: chunk.clone(), range });
            }
        }
    }

    /// The partitions, in order.
    pub fn into_parts(self) -> Vec<SpilledPart> {
        self.parts
    }
}

impl SpilledPart {
    /// Rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Bytes that the rows take on the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ranges of rows that come back together: as many ranges as take at most `bytes_max`, and at least one.
    pub fn batches(&self, bytes_max: u64) -> Vec<Range<usize>> {
        let mut batches: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for (place, range) in self.ranges.iter().enumerate() {
            bytes += range.bytes();
            match batches.last_mut() {
                Some(batch) if bytes <= bytes_max => batch.end = place + 1,
                _ => {
                    bytes = range.bytes();
                    batches.push(place..place + 1);
                }
            }
        }
        batches
    }

    /// The first of [`SpilledPart::batches`], or `None` without rows.
    pub fn first_batch(&self, bytes_max: u64) -> Option<Range<usize>> {
        let mut bytes = 0;
        let is_beyond = |range: &SpilledRange| {
            bytes += range.bytes();
            bytes > bytes_max
        };
        let count = self.ranges.iter().position(is_beyond).unwrap_or(self.ranges.len());
        (!self.ranges.is_empty()).then(|| 0..count.max(1))
    }

    /// Some ranges on the device as one chunk; waits.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `FileAccess`, and faults of the device.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn read(&self, queue: &Queue, batch: Range<usize>) -> Result<Chunk> {
        let chunks = self.ranges[batch].iter().map(|range| range.chunk.read(queue, range.range));
        let chunk = chunks.collect::<Result<Vec<_>>>().and_then(|chunks| queue.concat_taken(chunks));
        // What was read may be given up from now on.
        queue.wait()?;
        chunk
    }

    /// Gives up the ranges before `end`.
    pub fn forget(&mut self, end: usize) {
        for range in self.ranges.drain(..end) {
            self.row_count -= range.chunk.rows(range.range).len();
            self.bytes -= range.bytes();
        }
    }
}

impl SpilledRange {
    fn bytes(&self) -> u64 {
        self.chunk.range_bytes(self.range)
    }
}
