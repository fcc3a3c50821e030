//! Text laid one after another, to leave the device or to let go of the pages that it lies in.

use pystachio_plan::Result;

use super::{Queue, RowNumbers};
use crate::device::{
    Buffer, CellType, Chunk, Column, Kernel,
    abi::{CopyStrings, MoveStrings, StringCell},
};

/// A column whose text lies in one buffer, in the order of its rows.
pub struct PackedColumn {
    /// The column; its cells point to `bytes`.
    pub column: Column,
    /// The text.
    pub bytes: Buffer,
    /// How much of it there is.
    pub total_bytes: u64,
    offsets: Buffer,
    row_count: usize,
}

impl Queue {
    /// A text column with its text packed.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn pack_column(&self, column: &Column, row_count: usize) -> Result<PackedColumn> {
        let cells = self.allocate::<StringCell>(row_count as u64)?;
        let (bytes, offsets, total_bytes) = self.pack(column, row_count, Some(&cells))?;
        let column = Column { values: cells, strings: vec![bytes.clone()], ..column.clone() };
        Ok(PackedColumn { column, bytes, total_bytes, offsets, row_count })
    }

    /// A chunk that keeps no text but its own.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn compact(&self, chunk: &Chunk) -> Result<Chunk> {
        let compacted = |column: &Column| {
            if column.cell_type != CellType::String {
                return Ok(column.clone());
            }
            Ok(self.pack_column(column, chunk.row_count)?.column)
        };
        let columns = chunk.columns.iter().map(compacted).collect::<Result<_>>()?;
        Ok(Chunk { row_count: chunk.row_count, columns })
    }

    /// Makes cells that point to text at one address point to its copy at another.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn move_strings(&self, cells: &Buffer, row_count: usize, from: u64, to: u64) -> Result<()> {
        let row_count = row_count as u64;
        let arguments = MoveStrings { cells: cells.address(), row_count, distance: to.wrapping_sub(from) };
        self.launch_strided(Kernel::MoveStrings, row_count, &arguments)
    }

    /// The strings of a column one after another: bytes, offsets and their sum. `cells` gets cells that
    /// point to them.
    pub(super) fn pack(
        &self,
        column: &Column,
        row_count: usize,
        cells: Option<&Buffer>,
    ) -> Result<(Buffer, Buffer, u64)> {
        let lengths = self.allocate::<u32>(row_count as u64)?;
        let mut arguments = CopyStrings {
            source: column.view(),
            lengths: lengths.address(),
            cells: cells.map_or(0, Buffer::address),
            row_count: row_count as u64,
            ..CopyStrings::default()
        };
        self.launch_strided(Kernel::MeasureStrings, row_count as u64, &arguments)?;
        let (offsets, total) = self.offsets(&lengths, 4, row_count)?;
        let bytes = self.allocate::<u8>(total)?;
        arguments.offsets = offsets.address();
        arguments.bytes = bytes.address();
        // A warp a string.
        self.launch_strided(Kernel::CopyStrings, row_count as u64 * 32, &arguments)?;
        Ok((bytes, offsets, total))
    }

    /// Some of a buffer's 64-bit values; waits.
    pub(super) fn pick(&self, values: &Buffer, places: &[u32]) -> Result<Vec<u64>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let column = Column {
            data_type: pystachio_plan::DataType::Int64,
            cell_type: CellType::Int64,
            values: values.clone(),
            validity: None,
            strings: Vec::new(),
        };
        let rows = RowNumbers {
            rows: self.upload(places)?,
            count: places.len(),
            may_miss: false,
            is_every_row: false,
        };
        self.download(&self.gather(&column, &rows)?.values, places.len())
    }
}

impl PackedColumn {
    /// Where the text of some rows starts; of the row after the last, where the text ends. Waits.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn bounds(&self, queue: &Queue, rows: &[usize]) -> Result<Vec<u64>> {
        let inside: Vec<u32> =
            rows.iter().filter(|row| **row < self.row_count).map(|row| *row as u32).collect();
        let mut offsets = queue.pick(&self.offsets, &inside)?.into_iter();
        let bound = |row: &usize| {
            if *row < self.row_count { offsets.next().unwrap_or(self.total_bytes) } else { self.total_bytes }
        };
        Ok(rows.iter().map(bound).collect())
    }
}
