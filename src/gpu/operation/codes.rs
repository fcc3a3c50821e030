//! Columns that come as codes: indices into a dictionary.
//!
//! Codes are kept as long as there are at least as many rows as the dictionary has entries:
//! evaluating entries then never costs more than evaluating rows.

use pystachio_plan::{Error, Result};

use super::{Queue, RowNumbers};
use crate::device::{AnyColumn, Buffer, Chunk, CodedColumn, Column, Rows};

impl Queue {
    /// Looks up every row's entry in `values`, a column of as many rows as there are entries.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn look_up_codes(&self, values: &Column, codes: &Buffer, row_count: usize) -> Result<Column> {
        let entries =
            RowNumbers { rows: codes.clone(), count: row_count, may_miss: false, is_every_row: false };
        self.gather(values, &entries)
    }

    /// The cells of every row.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::look_up_codes`].
    pub fn cells_of(&self, column: &AnyColumn, row_count: usize) -> Result<Column> {
        match column {
            AnyColumn::Cells(cells) => Ok(cells.clone()),
            AnyColumn::Codes(coded) => self.look_up_codes(&coded.entries, &coded.codes, row_count),
        }
    }

    /// Some rows of columns, which stay codes if that pays.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::look_up_codes`]; `Internal` for codes of rows that may be
    /// [`super::NO_ROW`].
    pub fn gather_columns(&self, columns: &[&AnyColumn], rows: &RowNumbers) -> Result<Vec<AnyColumn>> {
        if rows.may_miss && columns.iter().any(|column| column.codes().is_some()) {
            return Err(Error::internal("a row that is missing has no code"));
        }
        let sources: Vec<Column> = columns.iter().map(|column| column.cells_or_codes()).collect();
        let gathered = self.gather_all(&sources.iter().collect::<Vec<_>>(), rows)?;
        let parts = columns.iter().zip(gathered);
        parts.map(|(column, gathered)| self.part_of(column, gathered, rows.count)).collect()
    }

    /// Some rows of a column, of its cells or codes there: cells if the codes are too few.
    fn part_of(&self, column: &AnyColumn, cells_or_codes: Column, row_count: usize) -> Result<AnyColumn> {
        let Some(coded) = column.codes() else { return Ok(AnyColumn::Cells(cells_or_codes)) };
        let codes = cells_or_codes.values;
        match row_count >= coded.entry_count {
            true => Ok(AnyColumn::Codes(CodedColumn { codes, ..coded.clone() })),
            false => self.look_up_codes(&coded.entries, &codes, row_count).map(AnyColumn::Cells),
        }
    }

    /// Some rows.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::gather_columns`].
    pub fn gather_rows(&self, rows: &Rows, numbers: &RowNumbers) -> Result<Rows> {
        let columns: Vec<&AnyColumn> = rows.columns.iter().collect();
        Ok(Rows { row_count: numbers.count, columns: self.gather_columns(&columns, numbers)? })
    }

    /// Some consecutive rows, which may keep all of them.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::look_up_codes`].
    pub fn slice_rows(&self, rows: &Rows, first_row: usize, row_count: usize) -> Result<Rows> {
        debug_assert!(first_row + row_count <= rows.row_count);
        if row_count == rows.row_count {
            return Ok(rows.clone());
        }
        let slice = |column: &AnyColumn| {
            let slice = self.slice_of(&column.cells_or_codes(), first_row, row_count)?;
            self.part_of(column, slice, row_count)
        };
        Ok(Rows { row_count, columns: rows.columns.iter().map(slice).collect::<Result<_>>()? })
    }

    /// The cells of all columns.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::look_up_codes`].
    pub fn chunk_of(&self, rows: &Rows) -> Result<Chunk> {
        let columns = rows.columns.iter().map(|column| self.cells_of(column, rows.row_count));
        Ok(Chunk { row_count: rows.row_count, columns: columns.collect::<Result<_>>()? })
    }

    /// Rows of the same columns, one after another; at least one of these. Dictionaries are not
    /// merged.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::look_up_codes`].
    pub fn concat_rows(&self, mut parts: Vec<Rows>) -> Result<Rows> {
        if parts.len() <= 1 {
            return parts.pop().ok_or_else(|| Error::internal("no rows to join"));
        }
        let chunks = parts.iter().map(|rows| self.chunk_of(rows)).collect::<Result<_>>()?;
        drop(parts);
        self.concat_taken(chunks).map(Rows::from)
    }
}
