//! Partitioning of rows by owner, for a shuffle.
//!
//! ```text
//! keys ──► owner of each row, rows of each tile and owner ──► where each goes in the order of owners
//! columns ──────────────────────────────────────────────────► one pass: every cell to its place in the memory of its owner
//! ```
//!
//! Invariants: a row has the owner that [`Queue::partition`] by the same hash gives it. Rows of an
//! owner stay in their order.

use std::ops::Range;

use pystachio_plan::Result;

use super::{
    HashPartitioning, PARTITIONS_MAX, Queue,
    abi::{
        AssignOwners, SCATTER_BLOCKS_MAX, SCATTER_COLUMNS_MAX, SCATTER_PART_ALIGNMENT, SCATTER_TILE_ROWS,
        ScatterBlock, ScatterPart, ScatterRows,
    },
    join::key_columns,
};
use crate::device::{Buffer, Column, Kernel};

/// Blocks of memory that one launch fills.
pub const SCATTER_TARGETS_MAX: usize = SCATTER_BLOCKS_MAX;

/// The owners of a chunk's rows.
#[derive(Clone, Debug)]
pub struct RowOwners {
    /// A byte a row.
    pub(super) owners: Buffer,
    /// The positions of the rows of each owner and tile: a `u64`, owner by owner.
    offsets: Buffer,
    tiles: u64,
    row_count: usize,
    /// The first position of each owner's rows, and the last one's end.
    pub bounds: Vec<usize>,
}

/// Rows with a fixed owner, whatever their keys.
#[derive(Clone, Copy, Debug)]
pub struct StayingRows<'a> {
    /// A byte a row, not 0 for these.
    pub flags: &'a Buffer,
    /// The owner.
    pub owner: usize,
}

/// Memory for some rows, by their positions in the order of owners.
#[derive(Clone, Debug)]
pub struct ScatterTarget {
    /// The positions.
    pub rows: Range<usize>,
    /// Its address.
    pub address: u64,
    /// The offset of the cells of each column in it, and of their validity, if any; multiples of
    /// 64.
    pub parts: Vec<ScatterTargetPart>,
}

/// The offsets of a column, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScatterTargetPart {
    /// Cells.
    pub values_offset_bytes: u64,
    /// A byte a row; ignored for columns without validity.
    pub validity_offset_bytes: u64,
}

impl ScatterTargetPart {
    fn part(&self) -> ScatterPart {
        let multiple = |offset_bytes: u64| {
            assert!(offset_bytes.is_multiple_of(SCATTER_PART_ALIGNMENT), "where a part of a block begins");
            let multiple = u32::try_from(offset_bytes / SCATTER_PART_ALIGNMENT);
            assert!(multiple.is_ok(), "where a part of a block begins: {offset_bytes}");
            multiple.unwrap_or_default()
        };
        ScatterPart {
            values: multiple(self.values_offset_bytes),
            validity: multiple(self.validity_offset_bytes),
        }
    }
}

impl Queue {
    /// Finds the owner of each row by the hash of its keys, unless it is fixed; waits for the
    /// number of rows of each owner.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::partition`].
    ///
    /// # Panics
    ///
    /// As [`Queue::partition`]; if the fixed owner is none of the owners.
    pub fn assign_owners(
        &self,
        keys: &[Column],
        row_count: usize,
        by: HashPartitioning,
        staying: Option<StayingRows<'_>>,
    ) -> Result<RowOwners> {
        let HashPartitioning { partition_count, level, nulls_match } = by;
        assert!((1..=PARTITIONS_MAX).contains(&partition_count), "owners of a launch");
        assert!(
            staying.is_none_or(|staying| staying.owner < partition_count),
            "the fixed owner is one of the owners"
        );
        let tiles = (row_count as u64).div_ceil(SCATTER_TILE_ROWS);
        let owners = self.allocate::<u8>(row_count as u64)?;
        let counts = self.allocate::<u32>(partition_count as u64 * tiles)?;
        let arguments = AssignOwners {
            keys: key_columns(keys)?,
            owners: owners.address(),
            counts: counts.address(),
            row_count: row_count as u64,
            owner_count: partition_count as u32,
            level,
            nulls_match: nulls_match.into(),
            tiles: tiles as u32,
            staying: staying.map_or(0, |staying| staying.flags.address()),
            stay_owner: staying.map_or(0, |staying| staying.owner as u32),
            reserved: 0,
        };
        self.launch(Kernel::AssignOwners, tiles, &arguments)?;
        let offsets = self.offsets_alone(&counts, 4, partition_count * tiles as usize)?;
        let firsts = (0..partition_count as u32).map(|owner| owner * tiles as u32);
        let starts = match row_count {
            0 => vec![0; partition_count],
            _ => self.pick(&offsets, &firsts.collect::<Vec<_>>())?,
        };
        let bounds = starts.into_iter().map(|start| start as usize).chain([row_count]).collect();
        Ok(RowOwners { owners, offsets, tiles, row_count, bounds })
    }

    /// Copies the cells of all rows inside a target's positions, every column in one pass over the
    /// rows. A NULL's cell is zeros. Text stays in place: only its cells are copied.
    ///
    /// # Panics
    ///
    /// If targets are not in the order of their rows, or lack a part for a column.
    pub fn scatter_rows(
        &self,
        owners: &RowOwners,
        columns: &[&Column],
        targets: &[ScatterTarget],
    ) -> Result<()> {
        assert!(targets.iter().all(|target| target.parts.len() == columns.len()), "a part for each column");
        assert!(
            targets.is_sorted_by(|a, b| a.rows.end <= b.rows.start),
            "targets in the order of their rows"
        );
        for targets in targets.chunks(SCATTER_BLOCKS_MAX) {
            for (turn, columns) in columns.chunks(SCATTER_COLUMNS_MAX).enumerate() {
                let arguments = owners.scatter_arguments(columns, targets, turn * SCATTER_COLUMNS_MAX);
                self.launch(Kernel::ScatterRows, owners.tiles, &arguments)?;
            }
        }
        Ok(())
    }
}

impl RowOwners {
    /// A launch for some columns, the first of which has a given place among all, into some
    /// targets.
    fn scatter_arguments(
        &self,
        columns: &[&Column],
        targets: &[ScatterTarget],
        first_column: usize,
    ) -> ScatterRows {
        let mut arguments = ScatterRows {
            owners: self.owners.address(),
            offsets: self.offsets.address(),
            row_count: self.row_count as u64,
            owner_count: self.bounds.len().saturating_sub(1) as u32,
            tiles: self.tiles as u32,
            column_count: columns.len() as u32,
            block_count: targets.len() as u32,
            ..ScatterRows::default()
        };
        for (view, column) in arguments.columns.iter_mut().zip(columns) {
            *view = column.view();
        }
        for (block, target) in arguments.blocks.iter_mut().zip(targets) {
            let ScatterTarget { rows, address, parts } = target;
            *block = ScatterBlock {
                first_row: rows.start as u64,
                end_row: rows.end as u64,
                address: *address,
                ..ScatterBlock::default()
            };
            for (part, target) in block.parts.iter_mut().zip(parts.iter().skip(first_column)) {
                *part = target.part();
            }
        }
        arguments
    }
}
