//! Text laid one after another, to leave the device or to let go of the pages that it lies in.

use std::ops::Range;

use pystachio_plan::Result;

use super::Queue;
use crate::device::{Buffer, CellType, Chunk, Column, StringCell};

/// Where the strings of a column would lie one after another.
pub struct MeasuredText {
    /// How long each row's text is: a `u32` a row.
    pub lengths: Buffer,
    /// Where each row's text starts: a `u64` a row.
    pub offsets: Buffer,
    /// How much text there is.
    pub total_bytes: u64,
}

/// The strings of a column one after another.
pub struct PackedText {
    /// The text.
    pub bytes: Buffer,
    /// Where each row's text starts: a `u64` a row.
    pub offsets: Buffer,
    /// How much text there is.
    pub total_bytes: u64,
}

/// A column whose text lies in one buffer, in the order of its rows.
pub struct PackedColumn {
    /// The column; its cells point to the text.
    pub column: Column,
    /// The text.
    pub text: PackedText,
    row_count: usize,
}

/// Copying text. See [`super::Device`] for what every operation has in common.
pub trait TextOperations {
    /// How long a text column's strings are. Waits for the count of bytes.
    fn measure_text(&self, column: &Column, row_count: usize) -> Result<MeasuredText>;

    /// A text column's strings copied one after another, in the order of rows, where they were measured to lie. `cells`
    /// gets a [`crate::device::StringCell`] a row that points to the copy.
    fn copy_text(
        &self,
        column: &Column,
        row_count: usize,
        measured: MeasuredText,
        cells: Option<&Buffer>,
    ) -> Result<PackedText>;

    /// Makes the cells of some rows, which point to text at one address, point to its copy at another.
    fn move_strings(&self, cells: &Buffer, rows: Range<usize>, from: u64, to: u64) -> Result<()>;
}

impl Queue {
    /// A text column with its text packed.
    ///
    /// # Errors
    ///
    /// As of [`super::Device`].
    pub fn pack_column(&self, column: &Column, row_count: usize) -> Result<PackedColumn> {
        let cells = self.allocate::<StringCell>(row_count as u64)?;
        let measured = self.measure_text(column, row_count)?;
        let text = self.copy_text(column, row_count, measured, Some(&cells))?;
        let column = Column { values: cells, strings: vec![text.bytes.clone()], ..column.clone() };
        Ok(PackedColumn { column, text, row_count })
    }

    /// A chunk that keeps no cells and no text but its own.
    ///
    /// # Errors
    ///
    /// As of [`super::Device`].
    pub fn compact(&self, chunk: &Chunk) -> Result<Chunk> {
        let compacted = |column: &Column| {
            let column = match column.is_slice() {
                true => self.slice_column(column, 0, chunk.row_count)?,
                false => column.clone(),
            };
            if column.cell_type != CellType::String {
                return Ok(column);
            }
            Ok(self.pack_column(&column, chunk.row_count)?.column)
        };
        let columns = chunk.columns.iter().map(compacted).collect::<Result<_>>()?;
        Ok(Chunk { row_count: chunk.row_count, columns })
    }
}

impl PackedColumn {
    /// Where the text of some rows starts; of the row after the last, where the text ends. Waits.
    ///
    /// # Errors
    ///
    /// As of [`super::Device`].
    pub fn bounds(&self, queue: &Queue, rows: &[usize]) -> Result<Vec<u64>> {
        let inside: Vec<u32> =
            rows.iter().filter(|row| **row < self.row_count).map(|row| *row as u32).collect();
        let mut offsets = queue.pick(&self.text.offsets, &inside)?.into_iter();
        let end = self.text.total_bytes;
        let bound = |row: &usize| if *row < self.row_count { offsets.next().unwrap_or(end) } else { end };
        Ok(rows.iter().map(bound).collect())
    }
}
