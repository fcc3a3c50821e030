//! Some rows of all columns, as a tuple slot wants them.

use std::ops::Range;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::NullBuffer;
use pgrx::pg_sys::Datum;
use pystachio_plan::Result;

use super::ColumnReader;

/// Rows converted at a time: their datums stay in the processor's cache until they are used, and a LIMIT
/// does not pay for a whole batch.
pub const BLOCK_ROWS: usize = 1024;

/// Datums of up to [`BLOCK_ROWS`] rows, row by row.
#[derive(Default)]
pub struct RowBlock {
    values: Vec<Datum>,
    nulls: Vec<bool>,
    width: usize,
    row_count: usize,
    row_index: usize,
}

/// One column of a [`RowBlock`] while it is filled.
pub struct Cells<'a> {
    values: &'a mut [Datum],
    nulls: &'a mut [bool],
    width: usize,
}

impl RowBlock {
    /// The next row's datums and NULL flags, or `None` after the last.
    pub fn next_row(&mut self) -> Option<(&[Datum], &[bool])> {
        if self.row_index == self.row_count {
            return None;
        }
        let cells = self.row_index * self.width..(self.row_index + 1) * self.width;
        self.row_index += 1;
        Some((&self.values[cells.clone()], &self.nulls[cells]))
    }

    /// The datums and NULL flags of all rows, or of the one that was given last and those after it.
    pub fn rows(&self, all: bool) -> impl Iterator<Item = (&[Datum], &[bool])> {
        let first = if all { 0 } else { self.row_index.saturating_sub(1) };
        (first..self.row_count).map(|row| {
            let cells = row * self.width..(row + 1) * self.width;
            (&self.values[cells.clone()], &self.nulls[cells])
        })
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.row_count = 0;
        self.row_index = 0;
    }

    /// Replaces the rows by the first of these rows of a batch, and returns how many they are.
    ///
    /// # Errors
    ///
    /// A value is outside its PostgreSQL type.
    pub fn fill(
        &mut self,
        batch: &RecordBatch,
        rows: Range<usize>,
        columns: &mut [ColumnReader],
    ) -> Result<usize> {
        self.clear();
        let row_count = BLOCK_ROWS.min(rows.len());
        self.width = columns.len();
        self.values.resize(row_count * self.width, Datum::null());
        self.nulls.resize(row_count * self.width, true);
        for (place, column) in columns.iter_mut().enumerate() {
            let mut cells = Cells {
                values: &mut self.values[place..],
                nulls: &mut self.nulls[place..],
                width: self.width,
            };
            column.fill(batch, rows.start..rows.start + row_count, &mut cells)?;
        }
        self.row_count = row_count;
        Ok(row_count)
    }
}

impl<'a> Cells<'a> {
    /// Cells that lie side by side.
    pub fn contiguous(values: &'a mut [Datum], nulls: &'a mut [bool]) -> Self {
        Self { values, nulls, width: 1 }
    }

    /// Cells of one of the columns whose rows lie one behind the other.
    pub fn of_column(values: &'a mut [Datum], nulls: &'a mut [bool], place: usize, width: usize) -> Self {
        let (first_value, first_null) = (place.min(values.len()), place.min(nulls.len()));
        Self { values: &mut values[first_value..], nulls: &mut nulls[first_null..], width }
    }

    /// Sets the cells of these rows of an array; `datum` is not called for NULLs.
    pub fn fill(&mut self, array: &dyn Array, rows: Range<usize>, mut datum: impl FnMut(usize) -> Datum) {
        let values = self.values.iter_mut().step_by(self.width);
        let cells = rows.zip(values.zip(self.nulls.iter_mut().step_by(self.width)));
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => {
                for (row, (value, null)) in cells {
                    *value = datum(row);
                    *null = false;
                }
            }
            Some(nulls) => {
                for (row, (value, null)) in cells {
                    *null = NullBuffer::is_null(nulls, row);
                    *value = if *null { Datum::null() } else { datum(row) };
                }
            }
        }
    }

    /// As [`Cells::fill`], for conversions that can fail.
    pub fn try_fill(
        &mut self,
        array: &dyn Array,
        rows: Range<usize>,
        mut datum: impl FnMut(usize) -> Result<Datum>,
    ) -> Result<()> {
        let mut failure = None;
        self.fill(array, rows, |row| match datum(row) {
            Ok(datum) => datum,
            Err(error) => {
                failure.get_or_insert(error);
                Datum::null()
            }
        });
        failure.map_or(Ok(()), Err)
    }

    /// The first cells' values that are not NULL.
    pub fn values(&self, row_count: usize) -> impl Iterator<Item = Datum> {
        let cells = self.values.iter().step_by(self.width).zip(self.nulls.iter().step_by(self.width));
        cells.take(row_count).filter(|(_, null)| !**null).map(|(value, _)| *value)
    }

    /// Replaces the first cells' values that are not NULL.
    pub fn replace(&mut self, row_count: usize, mut replace: impl FnMut(Datum) -> Datum) {
        let values = self.values.iter_mut().step_by(self.width);
        let cells = values.zip(self.nulls.iter().step_by(self.width));
        for (value, _) in cells.take(row_count).filter(|(_, null)| !**null) {
            *value = replace(*value);
        }
    }

    /// Sets all cells to NULL.
    pub fn fill_null(&mut self, row_count: usize) {
        for null in self.nulls.iter_mut().step_by(self.width).take(row_count) {
            *null = true;
        }
    }
}
