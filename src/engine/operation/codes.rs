//! Columns that come as codes: places in a dictionary.

use pystachio_plan::{DataType, Result};

use super::{Queue, RowNumbers};
use crate::device::{Buffer, CellType, CodedColumn, Column};

impl Queue {
    /// What every row's entry has in `values`, a column of as many rows as there are entries.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn look_up_codes(&self, values: &Column, codes: &Buffer, row_count: usize) -> Result<Column> {
        let entries =
            RowNumbers { rows: codes.clone(), count: row_count, may_miss: false, is_every_row: false };
        self.gather(values, &entries)
    }

    /// The values of some rows.
    ///
    /// # Errors
    ///
    /// As of [`Queue::look_up_codes`].
    pub fn gather_coded(&self, column: &CodedColumn, rows: &RowNumbers) -> Result<Column> {
        let codes = Column {
            data_type: DataType::Int32,
            cell_type: CellType::Int32,
            values: column.codes.clone(),
            validity: None,
            strings: Vec::new(),
        };
        let codes = self.gather(&codes, rows)?;
        self.look_up_codes(&column.entries, &codes.values, rows.count)
    }
}
