//! Rows that belong together: ranges of many spilled chunks.

use std::{ops::Range, sync::Arc};

use pystachio_plan::Result;

use super::SpilledChunk;
use crate::{device::Chunk, operation::Queue};

/// Partitions that chunks are added to, each chunk in the order of its partitions.
pub struct SpilledPartitions {
    chunks: Vec<Arc<SpilledChunk>>,
    sizes: Vec<SpilledSize>,
}

/// The size of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpilledSize {
    /// Rows.
    pub row_count: usize,
    /// Bytes that they take on the device.
    pub bytes: u64,
}

/// Rows off the device, in the order in which they were spilled.
#[derive(Clone, Default)]
pub struct SpilledPart {
    ranges: Vec<SpilledRange>,
    size: SpilledSize,
}

#[derive(Clone)]
struct SpilledRange {
    chunk: Arc<SpilledChunk>,
    range: usize,
}

impl SpilledSize {
    fn add(&mut self, other: Self) {
        self.row_count += other.row_count;
        self.bytes += other.bytes;
    }

    fn take(&mut self, other: Self) {
        self.row_count -= other.row_count;
        self.bytes -= other.bytes;
    }
}

impl SpilledPartitions {
    /// So many partitions without rows.
    pub fn new(count: usize) -> Self {
        Self { chunks: Vec::new(), sizes: vec![SpilledSize::default(); count] }
    }

    /// Adds a chunk that has as many partitions.
    ///
    /// # Panics
    ///
    /// If it has another number of them.
    pub fn push(&mut self, chunk: SpilledChunk) {
        assert_eq!(chunk.partition_count(), self.sizes.len(), "partitions of a chunk");
        for (partition, size) in self.sizes.iter_mut().enumerate() {
            size.add(size_of_ranges(&chunk, &chunk.ranges(partition..partition + 1)));
        }
        self.chunks.push(Arc::new(chunk));
    }

    /// The partitions' sizes, in order.
    pub fn sizes(&self) -> &[SpilledSize] {
        &self.sizes
    }

    /// All rows; the part keeps them.
    pub fn whole(&self) -> SpilledPart {
        self.part(&(0..self.sizes.len()))
    }

    /// The partitions, in order.
    pub fn into_parts(self) -> Vec<SpilledPart> {
        let each: Vec<Range<usize>> = (0..self.sizes.len()).map(|place| place..place + 1).collect();
        self.into_groups(&each)
    }

    /// Partitions side by side as one part each.
    pub fn into_groups(self, groups: &[Range<usize>]) -> Vec<SpilledPart> {
        groups.iter().map(|group| self.part(group)).collect()
    }

    fn part(&self, group: &Range<usize>) -> SpilledPart {
        let mut part = SpilledPart::default();
        for chunk in &self.chunks {
            for range in chunk.ranges(group.clone()) {
                let size = size_of_ranges(chunk, &(range..range + 1));
                if size.row_count > 0 {
                    part.size.add(size);
                    part.ranges.push(SpilledRange { chunk: chunk.clone(), range });
                }
            }
        }
        part
    }
}

fn size_of_ranges(chunk: &SpilledChunk, ranges: &Range<usize>) -> SpilledSize {
    SpilledSize { row_count: chunk.rows(ranges).len(), bytes: chunk.bytes(ranges) }
}

impl SpilledPart {
    /// Rows.
    pub fn row_count(&self) -> usize {
        self.size.row_count
    }

    /// Bytes that the rows take on the device.
    pub fn bytes(&self) -> u64 {
        self.size.bytes
    }

    /// Ranges of rows that are read back together: as many ranges as take at most `bytes_max`, and
    /// at least one.
    pub fn batches(&self, bytes_max: u64) -> Vec<Range<usize>> {
        let mut batches: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for (place, range) in self.ranges.iter().enumerate() {
            bytes += range.size().bytes;
            match batches.last_mut() {
                Some(batch) if bytes <= bytes_max => batch.end = place + 1,
                _ => {
                    bytes = range.size().bytes;
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
            bytes += range.size().bytes;
            bytes > bytes_max
        };
        let count = self.ranges.iter().position(is_beyond).unwrap_or(self.ranges.len());
        (!self.ranges.is_empty()).then(|| 0..count.max(1))
    }

    /// Some ranges on the device as one chunk; waits. One copy a column reads adjacent ranges.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `FileAccess`, and faults of the device.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn read(&self, queue: &Queue, batch: Range<usize>) -> Result<Chunk> {
        let mut parts: Vec<(&SpilledChunk, Range<usize>)> = Vec::new();
        for SpilledRange { chunk, range } in &self.ranges[batch] {
            match parts.last_mut() {
                // Ranges between them, if any, have no rows.
                Some((last, ranges))
                    if std::ptr::eq(*last, &**chunk)
                        && chunk.rows(ranges).end == chunk.rows(&(*range..range + 1)).start =>
                {
                    ranges.end = range + 1;
                }
                _ => parts.push((chunk, *range..range + 1)),
            }
        }
        let chunk = SpilledChunk::read(queue, &parts);
        // From here on the read bytes may be freed.
        queue.wait()?;
        chunk
    }

    /// Frees the ranges before `end`.
    pub fn forget(&mut self, end: usize) {
        for range in self.ranges.drain(..end) {
            self.size.take(range.size());
        }
    }
}

impl SpilledRange {
    fn size(&self) -> SpilledSize {
        size_of_ranges(&self.chunk, &(self.range..self.range + 1))
    }
}
