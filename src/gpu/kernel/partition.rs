//! Rows by partition.

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    Kernel, KernelDevice,
    abi::{AssignHashPartitions, AssignRangePartitions},
    join::key_columns,
};
use crate::{
    device::{Buffer, Column},
    operation::{
        HashPartitioning, KEYS_MAX, PARTITIONS_MAX, PartitionOperations, Partitioned, RowNumbers,
        RowOperations, SPLITTERS_MAX, SortColumn,
    },
};

impl PartitionOperations for KernelDevice {
    fn partition(&self, keys: &[Column], row_count: usize, by: HashPartitioning) -> Result<Partitioned> {
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

    fn partition_by_range(
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

impl KernelDevice {
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
