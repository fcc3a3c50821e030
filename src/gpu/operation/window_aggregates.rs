//! Aggregates of the rows of frames.
//!
//! - Counts and sums of a frame are the difference of what there is before its end and before its first row. Sums wrap, and so does the
//!   difference, so that it is right wherever the sum fits its bits.
//! - Least and greatest values: the best row of the partition so far where all frames begin with their partition, otherwise of a tree of
//!   the best of 2, 4, 8 … rows.

use pystachio_plan::{DataType, Result};

use super::{
    Queue, RowNumbers, SumWidth,
    abi::{ColumnView, CountFrames, FindBest, PairBest, ScanBest, SumFrames, SumRows, TILE_ROWS},
    fault::StatusCell,
    slots::overflow_code,
    window_frames::{Frames, WindowRows},
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// How many rows before each have a value. Cheap to clone.
#[derive(Clone)]
pub struct FilledRows {
    /// A `u32` a row and one more; `None`: all rows have one.
    counts: Option<Buffer>,
}

impl FilledRows {
    fn address(&self) -> u64 {
        self.counts.as_ref().map_or(0, Buffer::address)
    }
}

/// Aggregates of frames. Columns have the rows of the frames, in order.
impl Queue {
    /// The rows in which a column has a value; without a column all rows count.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn filled_rows(&self, column: Option<&Column>, row_count: usize) -> Result<FilledRows> {
        let validity = column.and_then(|column| column.validity.as_ref());
        let counts = validity.map(|validity| self.count_before(validity, row_count)).transpose()?;
        Ok(FilledRows { counts })
    }

    /// How many of a frame's rows count.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn count_frames(&self, frames: &Frames, filled: &FilledRows) -> Result<Column> {
        let values = self.allocate::<i64>(frames.row_count as u64)?;
        let arguments =
            CountFrames { frames: frames.view, filled: filled.address(), target: values.address() };
        self.launch_strided(Kernel::CountFrames, frames.row_count as u64, &arguments)?;
        Ok(Column {
            data_type: DataType::Int64,
            cell_type: CellType::Int64,
            values,
            validity: None,
            strings: Vec::new(),
        })
    }

    /// The sum of a frame's values, NULL if there is none. `filled`: the rows in which the column has one.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types without a kernel; `NumericOutOfRange` for a sum that does not fit its type.
    pub fn sum_frames(
        &self,
        frames: &Frames,
        addends: &Column,
        filled: &FilledRows,
        result: &DataType,
    ) -> Result<Column> {
        let cell_type = CellType::of(result)?;
        let is_large = SumWidth::of(&addends.data_type)? == SumWidth::Large || cell_type == CellType::Int256;
        let rows = frames.row_count as u64;
        let sums = match is_large {
            false => self.sums_before::<[u64; 2]>(addends.view(), rows)?,
            true => self.sums_before::<[u64; 4]>(addends.view(), rows)?,
        };
        let values = self.allocate::<u8>(rows * u64::from(cell_type.bytes()))?;
        let validity = self.allocate::<u8>(rows)?;
        let status = StatusCell::new(self)?;
        let arguments = SumFrames {
            frames: frames.view,
            sums: sums.address(),
            filled: filled.address(),
            values: values.address(),
            validity: validity.address(),
            status: status.address(),
            cell_bytes: cell_type.bytes(),
            overflow_code: overflow_code(result),
            overflow_detail: cell_type.decimal_digits_max().into(),
            reserved: 0,
        };
        let kernel = if is_large { Kernel::SumLargeFrames } else { Kernel::SumFrames };
        self.launch_strided(kernel, rows, &arguments)?;
        status.check(self)?;
        let (data_type, validity) = (result.clone(), Some(validity));
        let sum = Column { data_type, cell_type, values, validity, strings: Vec::new() };
        self.poison_nulls(&sum, frames.row_count);
        Ok(sum)
    }

    /// The row of each frame with the least or the greatest value of a column; of equal ones the last.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn best_of_frames(
        &self,
        rows: &WindowRows,
        frames: &Frames,
        column: &Column,
        greatest: bool,
    ) -> Result<RowNumbers> {
        let count = frames.row_count as u64;
        let scan = ScanBest {
            column: column.view(),
            starts: rows.partitions.flags().map_or(0, Buffer::address),
            count,
            greatest: greatest.into(),
            ..ScanBest::default()
        };
        let (running, tree) = match frames.begin_partitions {
            true => (Some(self.best_so_far::<u32>(scan)?), None),
            false => (None, Some(self.best_tree(scan)?)),
        };
        let found = self.allocate::<u32>(count)?;
        let arguments = FindBest {
            column: column.view(),
            frames: frames.view,
            running: running.as_ref().map_or(0, Buffer::address),
            tree: tree.as_ref().map_or(0, Buffer::address),
            rows: found.address(),
            greatest: greatest.into(),
            reserved: 0,
        };
        self.launch_strided(Kernel::FindBest, count, &arguments)?;
        Ok(RowNumbers { rows: found, count: frames.row_count, may_miss: true, is_every_row: false })
    }
}

impl Queue {
    /// The sums of `Sum`'s bits before each row, and of all.
    fn sums_before<Sum>(&self, addends: ColumnView, row_count: u64) -> Result<Buffer> {
        let (cell_type, tile_kernel, kernel) = match size_of::<Sum>() {
            16 => (CellType::Int128, Kernel::SumTiles, Kernel::WriteSums),
            _ => (CellType::Int256, Kernel::SumLargeTiles, Kernel::WriteLargeSums),
        };
        assert_eq!(size_of::<Sum>(), cell_type.bytes() as usize, "bits of a sum");
        let tiles = row_count.div_ceil(TILE_ROWS);
        let rows = SumRows { addends, row_count, ..SumRows::default() };
        let mut above = None;
        if tiles > 1 {
            let tile_sums = self.allocate::<Sum>(tiles)?;
            self.launch(tile_kernel, tiles, &SumRows { tile_sums: tile_sums.address(), ..rows })?;
            let view = ColumnView {
                values: tile_sums.address(),
                validity: 0,
                cell_type: cell_type as u32,
                cell_bytes: cell_type.bytes(),
            };
            above = Some(self.sums_before::<Sum>(view, tiles)?);
        }
        let sums = self.allocate::<Sum>(row_count + 1)?;
        let sums_above = above.as_ref().map_or(0, Buffer::address);
        self.launch(kernel, tiles, &SumRows { sums_above, sums: sums.address(), ..rows })?;
        Ok(sums)
    }

    /// The best row up to and with each, in its partition; of states the state. A `Target` each.
    fn best_so_far<Target>(&self, scan: ScanBest) -> Result<Buffer> {
        let tiles = scan.count.div_ceil(TILE_ROWS);
        let mut above = None;
        if tiles > 1 {
            let states = self.allocate::<u64>(tiles)?;
            self.launch(Kernel::BestTiles, tiles, &ScanBest { tile_states: states.address(), ..scan })?;
            let of_tiles = ScanBest { states: states.address(), count: tiles, ..scan };
            above = Some(self.best_so_far::<u64>(of_tiles)?);
        }
        let target = self.allocate::<Target>(scan.count)?;
        let states_above = above.as_ref().map_or(0, Buffer::address);
        let arguments = ScanBest { states_above, target: target.address(), ..scan };
        self.launch(Kernel::WriteBest, tiles, &arguments)?;
        Ok(target)
    }

    /// The best of 2 rows, of 4 and so on, one size behind the other.
    fn best_tree(&self, scan: ScanBest) -> Result<Buffer> {
        const NODE_BYTES: u64 = size_of::<u32>() as u64;
        let sizes = std::iter::successors(Some(scan.count), |count| (*count > 1).then(|| count.div_ceil(2)));
        let tree = self.allocate::<u32>(sizes.clone().skip(1).sum())?;
        let (mut source, mut target) = (0, tree.address());
        for (count, pairs) in sizes.clone().zip(sizes.skip(1)) {
            let (column, greatest) = (scan.column, scan.greatest);
            let arguments = PairBest { column, source, target, count, greatest, reserved: 0 };
            self.launch_strided(Kernel::PairBest, pairs, &arguments)?;
            (source, target) = (target, target + pairs * NODE_BYTES);
        }
        Ok(tree)
    }
}
