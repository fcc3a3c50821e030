//! Rows by partition, for spilling, sorting and exchanges.
//!
//! Partitions by hash put equal keys together, on either side of a join and at every rank.
//! Partitions by range follow one another in the order of keys.

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    KEYS_MAX, PARTITIONS_MAX, Queue, RowNumbers, SortColumn,
    abi::{AssignHashPartitions, AssignRangePartitions, DIGIT_VALUES},
    join::key_columns,
};
use crate::device::{Buffer, Column, Kernel};

const _: () = assert!(PARTITIONS_MAX as u64 <= DIGIT_VALUES, "rows go to partitions by one digit");

/// Limit of splitters of one call: there are partitions of rows between them and of rows equal to
/// them.
pub const SPLITTERS_MAX: usize = (PARTITIONS_MAX - 1) / 2;

/// The level of [`HashPartitioning`] that assigns rows to ranks. Operators that spill begin at 0
/// and go up by a few: at the same level, all rows of a rank would be in a few of its partitions.
pub const EXCHANGE_LEVEL: u32 = 1 << 16;

/// How to partition rows by hash.
#[derive(Clone, Copy, Debug)]
pub struct HashPartitioning {
    /// At least 1, at most [`PARTITIONS_MAX`].
    pub partition_count: usize,
    /// Rows that share a partition at one level are spread over all at the next.
    pub level: u32,
    /// Whether rows with a NULL key are put together by their other keys; otherwise they match
    /// nothing, and are spread by number.
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

impl Queue {
    /// The rows that come before another row in the order of their keys.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::partition`].
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

/// Partitioning of rows.
impl Queue {
    /// Partitions rows by the hash of their keys; waits.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`super::KEYS_MAX`] keys.
    ///
    /// # Panics
    ///
    /// If there are no partitions, or more than [`PARTITIONS_MAX`].
    pub fn partition(&self, keys: &[Column], row_count: usize, by: HashPartitioning) -> Result<Partitioned> {
        assert!((1..=PARTITIONS_MAX).contains(&by.partition_count), "partitions of a launch");
        let hashes = self.hash(keys, row_count, by.nulls_match)?;
        let words = self.allocate::<u64>(row_count as u64)?;
        let rows = self.allocate::<u32>(row_count as u64)?;
        let arguments = AssignHashPartitions {
            hashes: hashes.address(),
            words: words.address(),
            rows: rows.address(),
            row_count: row_count as u64,
            partition_count: by.partition_count as u32,
            level: by.level,
        };
        self.launch_strided(Kernel::AssignHashPartitions, row_count as u64, &arguments)?;
        self.scatter(&words, rows, row_count, by.partition_count)
    }

    /// Partitions rows by ranges of their keys; waits. With splitters s0 < s1 < … the partitions
    /// are the rows before s0, those equal to s0, those between s0 and s1, and so on: one more than
    /// twice the splitters.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::partition`].
    ///
    /// # Panics
    ///
    /// If there are more than [`SPLITTERS_MAX`] splitters, or they have another number of columns than the keys.
    pub fn partition_by_range(
        &self,
        keys: &[SortColumn],
        row_count: usize,
        splitters: &[Column],
        splitter_count: usize,
    ) -> Result<Partitioned> {
        let (words, rows) = self.assign_ranges(keys, row_count, splitters, splitter_count)?;
        self.scatter(&words, rows, row_count, 2 * splitter_count + 1)
    }
}

impl Queue {
    fn assign_ranges(
        &self,
        keys: &[SortColumn],
        row_count: usize,
        splitters: &[Column],
        splitter_count: usize,
    ) -> Result<(Buffer, Buffer)> {
        assert!(splitter_count <= SPLITTERS_MAX && keys.len() == splitters.len(), "splitters of a launch");
        if keys.len() > KEYS_MAX {
            let message = format!("more keys than a kernel takes: keys={}, keys_max={KEYS_MAX}", keys.len());
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let columns: Vec<Column> = keys.iter().map(|key| key.column.clone()).collect();
        let bits = |flag: fn(&SortColumn) -> bool| {
            keys.iter().enumerate().fold(0, |bits, (place, key)| bits | u32::from(flag(key)) << place)
        };
        let words = self.allocate::<u64>(row_count as u64)?;
        let rows = self.allocate::<u32>(row_count as u64)?;
        let arguments = AssignRangePartitions {
            keys: key_columns(&columns)?,
            splitters: key_columns(splitters)?,
            words: words.address(),
            rows: rows.address(),
            row_count: row_count as u64,
            splitter_count: splitter_count as u32,
            descending: bits(|key| key.descending),
            nulls_first: bits(|key| key.nulls_first),
            reserved: 0,
        };
        self.launch_strided(Kernel::AssignRangePartitions, row_count as u64, &arguments)?;
        Ok((words, rows))
    }

    /// Gathers row numbers by their words, which are below `partition_count`.
    fn scatter(
        &self,
        words: &Buffer,
        rows: Buffer,
        row_count: usize,
        partition_count: usize,
    ) -> Result<Partitioned> {
        if row_count == 0 {
            let rows = RowNumbers { rows, count: 0, may_miss: false, is_every_row: false };
            return Ok(Partitioned { rows, bounds: vec![0; partition_count + 1] });
        }
        let target_words = self.allocate::<u64>(row_count as u64)?;
        let target_rows = self.allocate::<u32>(row_count as u64)?;
        let digits = self.sort_digit(words, &rows, (&target_words, &target_rows), row_count, 0)?;
        let firsts: Vec<u32> = (0..partition_count as u32).map(|digit| digit * digits.tiles).collect();
        let starts = self.pick(&digits.offsets, &firsts)?;
        let bounds = starts.into_iter().map(|start| start as usize).chain([row_count]).collect();
        Ok(Partitioned {
            rows: RowNumbers { rows: target_rows, count: row_count, may_miss: false, is_every_row: false },
            bounds,
        })
    }
}
