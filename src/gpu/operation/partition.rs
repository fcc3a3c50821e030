//! Rows by partition: what spilling, sorting and exchanges move.
//!
//! Partitions by hash put equal keys together, on either side of a join and at every rank. Partitions by range
//! are in the order of keys one after another.

use pystachio_plan::Result;

use super::{Queue, RowNumbers, SortColumn};
use crate::device::Column;

/// Partitions that rows are spread over at once.
pub const PARTITIONS_MAX: usize = 256;
/// Splitters that rows are put between at once: partitions of rows between them and of rows equal to them.
pub const SPLITTERS_MAX: usize = (PARTITIONS_MAX - 1) / 2;

/// How rows are spread by hash.
#[derive(Clone, Copy, Debug)]
pub struct HashPartitioning {
    /// At least 1, at most [`PARTITIONS_MAX`].
    pub partition_count: usize,
    /// Rows that share a partition at one level are spread over all at the next.
    pub level: u32,
    /// Whether rows with a NULL key are put together by their other keys; otherwise they match nothing, and are
    /// spread by number.
    pub nulls_match: bool,
}

/// The rows of a chunk, partition by partition; within each in their order.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// All rows.
    pub rows: RowNumbers,
    /// Where each partition's rows start, and where the last one's end.
    pub bounds: Vec<usize>,
}

/// Spreading rows. See [`super::Device`] for what every operation has in common.
pub trait PartitionOperations {
    /// Spreads rows over partitions by the hash of their keys; waits.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`super::KEYS_MAX`] keys.
    ///
    /// # Panics
    ///
    /// If the partitions are none, or more than [`PARTITIONS_MAX`].
    fn partition(&self, keys: &[Column], row_count: usize, by: HashPartitioning) -> Result<Partitioned>;

    /// Spreads rows over ranges of their keys; waits. With splitters s0 < s1 < … the partitions are the rows
    /// before s0, those equal to s0, those between s0 and s1, and so on: one more than twice the splitters.
    ///
    /// # Errors
    ///
    /// As of [`PartitionOperations::partition`].
    ///
    /// # Panics
    ///
    /// If there are more than [`SPLITTERS_MAX`] splitters, or they have another number of columns than the keys.
    fn partition_by_range(
        &self,
        keys: &[SortColumn],
        row_count: usize,
        splitters: &[Column],
        splitter_count: usize,
    ) -> Result<Partitioned>;
}

impl Queue {
    /// The rows that come before another row in the order of their keys.
    ///
    /// # Errors
    ///
    /// As of [`PartitionOperations::partition`].
    pub fn select_before(
        &self,
        keys: &[SortColumn],
        row_count: usize,
        splitter: &[Column],
    ) -> Result<RowNumbers> {
        let mut partitioned = self.partition_by_range(keys, row_count, splitter, 1)?;
        partitioned.rows.count = partitioned.bounds.get(1).copied().unwrap_or_default();
        Ok(partitioned.rows)
    }
}
