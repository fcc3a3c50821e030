//! Text laid one after another, to leave the device or to drop its pages.

use std::ops::Range;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    Queue,
    abi::{CopyStrings, MoveStrings, PlaceStrings},
};
use crate::device::{Buffer, CellType, Chunk, Column, Kernel, StringCell};

/// The packed layout of a column's strings.
pub struct MeasuredText {
    /// The length of each row's text: a `u32` a row.
    pub lengths: Buffer,
    /// Where each row's text starts: a `u64` a row.
    pub offsets: Buffer,
    /// Bytes of the text.
    pub total_bytes: u64,
}

/// The strings of a column one after another.
pub struct PackedText {
    /// The text.
    pub bytes: Buffer,
    /// Where each row's text starts: a `u64` a row.
    pub offsets: Buffer,
    /// Bytes of the text.
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

impl Queue {
    /// A text column with its text packed.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn pack_column(&self, column: &Column, row_count: usize) -> Result<PackedColumn> {
        let cells = self.allocate::<StringCell>(row_count as u64)?;
        let measured = self.measure_text(column, row_count)?;
        let text = self.copy_text(column, row_count, measured, Some(&cells))?;
        let column = Column { values: cells, strings: vec![text.bytes.clone()], ..column.clone() };
        Ok(PackedColumn { column, text, row_count })
    }

    /// A chunk that keeps only its own cells and text.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
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
    /// See [`PackedText::bounds`].
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn bounds(&self, queue: &Queue, rows: &[usize]) -> Result<Vec<u64>> {
        self.text.bounds(queue, rows, self.row_count)
    }
}

impl PackedText {
    /// The offsets of some rows' text; for the row after the last, the end of the text. Waits.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn bounds(&self, queue: &Queue, rows: &[usize], row_count: usize) -> Result<Vec<u64>> {
        queue.text_bounds((&self.offsets, self.total_bytes), rows, row_count)
    }
}

impl MeasuredText {
    /// See [`PackedText::bounds`].
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn bounds(&self, queue: &Queue, rows: &[usize], row_count: usize) -> Result<Vec<u64>> {
        queue.text_bounds((&self.offsets, self.total_bytes), rows, row_count)
    }
}

impl Queue {
    fn text_bounds(
        &self,
        (offsets, total_bytes): (&Buffer, u64),
        rows: &[usize],
        row_count: usize,
    ) -> Result<Vec<u64>> {
        let inside: Vec<u32> = rows.iter().filter(|row| **row < row_count).map(|row| *row as u32).collect();
        let mut offsets = self.pick(offsets, &inside)?.into_iter();
        let bound = |row: &usize| match *row < row_count {
            true => offsets.next().unwrap_or(total_bytes),
            false => total_bytes,
        };
        Ok(rows.iter().map(bound).collect())
    }
}

/// Copying text.
impl Queue {
    /// Lengths of a text column's strings. Waits for the count of bytes.
    pub fn measure_text(&self, column: &Column, row_count: usize) -> Result<MeasuredText> {
        let mut measured = self.measure_texts(&[column], row_count)?;
        measured.pop().ok_or_else(|| Error::internal("a text that was not measured"))
    }

    /// The same of several columns, for which it waits once.
    pub fn measure_texts(&self, columns: &[&Column], row_count: usize) -> Result<Vec<MeasuredText>> {
        let measured = columns.iter().map(|column| {
            let lengths = self.allocate::<u32>(row_count as u64)?;
            let arguments = CopyStrings {
                source: column.view(),
                lengths: lengths.address(),
                row_count: row_count as u64,
                ..CopyStrings::default()
            };
            self.launch_strided(Kernel::MeasureStrings, row_count as u64, &arguments)?;
            let (offsets, total) = self.offsets_posted(&lengths, 4, row_count)?;
            Ok((lengths, offsets, total))
        });
        let measured = measured.collect::<Result<Vec<_>>>()?;
        let waited = measured.into_iter().map(|(lengths, offsets, total)| {
            let total = total.map(|total| total.wait::<u64>(1)).transpose()?;
            let total_bytes = total.and_then(|total| total.first().copied()).unwrap_or(0);
            Ok(MeasuredText { lengths, offsets, total_bytes })
        });
        waited.collect()
    }

    /// Copies a text column's strings one after another, in the order of rows, to their measured
    /// offsets. `cells` gets a [`crate::device::StringCell`] a row that points to the copy.
    pub fn copy_text(
        &self,
        column: &Column,
        row_count: usize,
        measured: MeasuredText,
        cells: Option<&Buffer>,
    ) -> Result<PackedText> {
        let MeasuredText { lengths, offsets, total_bytes } = measured;
        let bytes = self.allocate::<u8>(total_bytes)?;
        let arguments = CopyStrings {
            source: column.view(),
            lengths: lengths.address(),
            offsets: offsets.address(),
            bytes: bytes.address(),
            first_offset: 0,
            cells: cells.map_or(0, Buffer::address),
            row_count: row_count as u64,
        };
        // A warp a string.
        self.launch_strided(Kernel::CopyStrings, row_count as u64 * 32, &arguments)?;
        Ok(PackedText { bytes, offsets, total_bytes })
    }

    /// Copies the text of some rows, measured with all others of its column, one after another to
    /// an address with room for it. `first_byte`: the offset of the first of these rows' text.
    pub fn copy_text_of(
        &self,
        column: &Column,
        measured: &MeasuredText,
        rows: Range<usize>,
        first_byte: u64,
        target: u64,
    ) -> Result<()> {
        let first = rows.start as u64;
        let mut source = column.view();
        // A NULL has no length.
        source.validity = 0;
        source.values += first * size_of::<StringCell>() as u64;
        let arguments = CopyStrings {
            source,
            lengths: measured.lengths.address() + first * size_of::<u32>() as u64,
            offsets: measured.offsets.address() + first * size_of::<u64>() as u64,
            bytes: target,
            first_offset: first_byte,
            cells: 0,
            row_count: rows.len() as u64,
        };
        self.launch_strided(Kernel::CopyStrings, rows.len() as u64 * 32, &arguments)
    }

    /// Redirects the cells of some rows from text at one address to its copy at another.
    pub fn move_strings(&self, cells: &Buffer, rows: Range<usize>, from: u64, to: u64) -> Result<()> {
        let row_count = rows.len() as u64;
        let first = cells.address() + (rows.start * size_of::<StringCell>()) as u64;
        let arguments = MoveStrings { cells: first, row_count, distance: to.wrapping_sub(from) };
        self.launch_strided(Kernel::MoveStrings, row_count, &arguments)
    }

    /// The cells of texts that lie one after another, by their lengths, a `u32` a row. Waits for the sum of those.
    ///
    /// # Errors
    ///
    /// `Protocol` if the lengths are not those of the text.
    pub fn place_text(&self, lengths: &Buffer, text: &Buffer, row_count: usize) -> Result<Buffer> {
        let (offsets, total_bytes) = self.offsets(lengths, 4, row_count)?;
        if total_bytes != text.bytes() {
            let message = format!(
                "texts have other lengths together: bytes={total_bytes}, text_bytes={}",
                text.bytes()
            );
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        let cells = self.allocate::<StringCell>(row_count as u64)?;
        let arguments = PlaceStrings {
            lengths: lengths.address(),
            offsets: offsets.address(),
            bytes: text.address(),
            cells: cells.address(),
            row_count: row_count as u64,
        };
        self.launch_strided(Kernel::PlaceStrings, row_count as u64, &arguments)?;
        Ok(cells)
    }
}
