//! Hash tables over rows, and the pairs that match.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{Queue, RowNumbers};
use crate::device::{
    Buffer, CellType, Column, Kernel,
    abi::{HashKeys, InsertBuildRows, KEYS_MAX, KeyColumns, ProbeRows, WritePairs},
};

/// The build side of a hash join.
pub struct JoinTable {
    keys: Vec<Column>,
    row_count: usize,
    hashes: Buffer,
    heads: Buffer,
    next_rows: Buffer,
    slot_count: u64,
}

/// Which pairs a probe gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Every match.
    Matches,
    /// Every match, and a pair with no build row for a probe row without one.
    MatchesOrMiss,
    /// The first match only.
    First,
}

/// Rows of both sides, pair by pair.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The probe side's.
    pub probe: RowNumbers,
    /// The build side's.
    pub build: RowNumbers,
}

/// The key columns as kernels are given them.
///
/// # Errors
///
/// `NotSupported` for more keys than kernels take.
pub(super) fn key_columns(keys: &[Column]) -> Result<KeyColumns> {
    if keys.len() > KEYS_MAX {
        let message = format!("more keys than a kernel takes: keys={}, keys_max={KEYS_MAX}", keys.len());
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    let mut columns = KeyColumns { count: keys.len() as u32, ..KeyColumns::default() };
    for (target, key) in columns.columns.iter_mut().zip(keys) {
        *target = key.view();
    }
    Ok(columns)
}

impl Queue {
    /// One hash a row. A row with a NULL key matches nothing unless `nulls_match`.
    pub(super) fn hash(&self, keys: &[Column], row_count: usize, nulls_match: bool) -> Result<Buffer> {
        let hashes = self.allocate::<u64>(row_count as u64)?;
        let arguments = HashKeys {
            keys: key_columns(keys)?,
            hashes: hashes.address(),
            row_count: row_count as u64,
            nulls_match: nulls_match.into(),
            reserved: 0,
        };
        self.launch_strided(Kernel::HashKeys, row_count as u64, &arguments)?;
        Ok(hashes)
    }

    /// Builds a hash table over rows.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `NotSupported` for too many keys, and faults of the device.
    pub fn build(&self, keys: Vec<Column>, row_count: usize) -> Result<JoinTable> {
        let hashes = self.hash(&keys, row_count, false)?;
        let slot_count = (row_count as u64).saturating_mul(2).max(2).next_power_of_two();
        let heads = self.allocate_filled::<u32>(slot_count, 0xff)?;
        let next_rows = self.allocate::<u32>(row_count as u64)?;
        let arguments = InsertBuildRows {
            hashes: hashes.address(),
            heads: heads.address(),
            next_rows: next_rows.address(),
            row_count: row_count as u64,
            slot_count,
        };
        self.launch_strided(Kernel::InsertBuildRows, row_count as u64, &arguments)?;
        Ok(JoinTable { keys, row_count, hashes, heads, next_rows, slot_count })
    }

    /// The pairs of rows whose keys are equal, in probe order, or `None` if there are more than `pairs_max`.
    /// `keys` have the build keys' types.
    ///
    /// # Errors
    ///
    /// As of [`Queue::build`].
    pub fn probe(
        &self,
        table: &JoinTable,
        keys: &[Column],
        row_count: usize,
        mode: ProbeMode,
        pairs_max: u64,
    ) -> Result<Option<Pairs>> {
        debug_assert!(table.keys.iter().zip(keys).all(|(a, b)| a.cell_type == b.cell_type));
        let hashes = self.hash(keys, row_count, false)?;
        let counts = self.allocate::<u32>(row_count as u64)?;
        let mut arguments = ProbeRows {
            build_keys: key_columns(&table.keys)?,
            probe_keys: key_columns(keys)?,
            build_hashes: table.hashes.address(),
            heads: table.heads.address(),
            next_rows: table.next_rows.address(),
            slot_count: table.slot_count,
            probe_hashes: hashes.address(),
            probe_row_count: row_count as u64,
            counts: counts.address(),
            first_only: (mode == ProbeMode::First).into(),
            keep_unmatched: (mode == ProbeMode::MatchesOrMiss).into(),
            ..ProbeRows::default()
        };
        self.launch_strided(Kernel::CountMatches, row_count as u64, &arguments)?;
        let (offsets, total) = self.offsets(&counts, 4, row_count)?;
        if total > pairs_max {
            return Ok(None);
        }
        let total = check_pairs(total)?;
        let probe_rows = self.allocate::<u32>(total as u64)?;
        let build_rows = self.allocate::<u32>(total as u64)?;
        arguments.offsets = offsets.address();
        arguments.probe_rows = probe_rows.address();
        arguments.build_rows = build_rows.address();
        if total > 0 {
            self.launch_strided(Kernel::WriteMatches, row_count as u64, &arguments)?;
        }
        Ok(Some(Pairs {
            probe: RowNumbers { rows: probe_rows, count: total, may_miss: false },
            build: RowNumbers { rows: build_rows, count: total, may_miss: mode == ProbeMode::MatchesOrMiss },
        }))
    }

    /// Some pairs of a join without keys: `count` of them from pair `first` on, where pairs are numbered
    /// probe row by probe row.
    ///
    /// # Errors
    ///
    /// As of [`Queue::build`].
    pub fn cross(&self, first: u64, count: usize, build_row_count: usize) -> Result<Pairs> {
        let probe_rows = self.allocate::<u32>(count as u64)?;
        let build_rows = self.allocate::<u32>(count as u64)?;
        let arguments = WritePairs {
            probe_rows: probe_rows.address(),
            build_rows: build_rows.address(),
            first_pair: first,
            pair_count: count as u64,
            build_row_count: build_row_count as u64,
        };
        self.launch_strided(Kernel::WritePairs, count as u64, &arguments)?;
        Ok(Pairs {
            probe: RowNumbers { rows: probe_rows, count, may_miss: false },
            build: RowNumbers { rows: build_rows, count, may_miss: false },
        })
    }

    /// Some of the pairs.
    ///
    /// # Errors
    ///
    /// As of [`Queue::build`].
    pub fn select_pairs(&self, pairs: &Pairs, kept: &RowNumbers) -> Result<Pairs> {
        let numbers = |rows: &RowNumbers| Column {
            data_type: DataType::Int32,
            cell_type: CellType::Int32,
            values: rows.rows.clone(),
            validity: None,
            strings: Vec::new(),
        };
        let select = |rows: &RowNumbers| {
            let selected = self.gather(&numbers(rows), kept)?;
            Ok(RowNumbers { rows: selected.values, count: kept.count, may_miss: rows.may_miss })
        };
        Ok(Pairs { probe: select(&pairs.probe)?, build: select(&pairs.build)? })
    }
}

impl JoinTable {
    /// Rows of the build side.
    pub fn row_count(&self) -> usize {
        self.row_count
    }
}

/// Pairs are numbered with 32 bits.
fn check_pairs(total: u64) -> Result<usize> {
    if total >= u64::from(u32::MAX) {
        let message = format!("a chunk of a join has more rows than a chunk may have: rows={total}");
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    Ok(total as usize)
}
