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

    /// The cells of some rows.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::look_up_codes`]; `Internal` for codes of rows that may be
    /// [`super::NO_ROW`].
    pub fn gather_cells(&self, column: &AnyColumn, rows: &RowNumbers) -> Result<Column> {
        match column {
            AnyColumn::Cells(cells) => self.gather(cells, rows),
            AnyColumn::Codes(_) if rows.may_miss => Err(Error::internal("a row that is missing has no code")),
            AnyColumn::Codes(coded) => {
                let codes = self.gather(&coded.code_column(), rows)?;
                self.look_up_codes(&coded.entries, &codes.values, rows.count)
            }
        }
    }

    /// Some rows of columns, which stay codes if that pays.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::gather_cells`].
    pub fn gather_columns(&self, columns: &[&AnyColumn], rows: &RowNumbers) -> Result<Vec<AnyColumn>> {
        if rows.may_miss && columns.iter().any(|column| matches!(column, AnyColumn::Codes(_))) {
            return Err(Error::internal("a row that is missing has no code"));
        }
        let cells_or_codes = |column: &&AnyColumn| match column {
            AnyColumn::Cells(cells) => cells.clone(),
            AnyColumn::Codes(coded) => coded.code_column(),
        };
        let sources: Vec<Column> = columns.iter().map(cells_or_codes).collect();
        let gathered = self.gather_all(&sources.iter().collect::<Vec<_>>(), rows)?;
        let finish = |(column, gathered): (&&AnyColumn, Column)| match column {
            AnyColumn::Cells(_) => Ok(AnyColumn::Cells(gathered)),
            AnyColumn::Codes(coded) if rows.count >= coded.entry_count => {
                Ok(AnyColumn::Codes(CodedColumn { codes: gathered.values, ..coded.clone() }))
            }
            AnyColumn::Codes(coded) => {
                self.look_up_codes(&coded.entries, &gathered.values, rows.count).map(AnyColumn::Cells)
            }
        };
        columns.iter().zip(gathered).map(finish).collect()
    }

    /// Some rows.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::gather_cells`].
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
        let slice = |column: &AnyColumn| match column {
            AnyColumn::Cells(cells) => Ok(AnyColumn::Cells(self.slice_of(cells, first_row, row_count)?)),
            AnyColumn::Codes(coded) => {
                let codes = self.slice_of(&coded.code_column(), first_row, row_count)?.values;
                if row_count >= coded.entry_count {
                    return Ok(AnyColumn::Codes(CodedColumn { codes, ..coded.clone() }));
                }
                self.look_up_codes(&coded.entries, &codes, row_count).map(AnyColumn::Cells)
            }
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
