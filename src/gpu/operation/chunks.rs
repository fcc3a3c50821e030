//! Operations on whole chunks.

use pystachio_plan::{DataType, Error, Result};

use super::{ByteRange, Queue, RowNumbers};
use crate::device::{Buffer, CellType, Chunk, Column};

impl Queue {
    /// Some rows of a chunk.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn gather_chunk(&self, chunk: &Chunk, rows: &RowNumbers) -> Result<Chunk> {
        let columns = self.gather_all(&chunk.columns.iter().collect::<Vec<_>>(), rows)?;
        Ok(Chunk { row_count: rows.count, columns })
    }

    /// Some consecutive rows of a column, in place or copied.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub(super) fn slice_of(&self, column: &Column, first_row: usize, row_count: usize) -> Result<Column> {
        match column.slice(first_row, row_count) {
            Some(slice) => Ok(slice),
            None => self.slice_column(column, first_row, row_count),
        }
    }

    /// Some consecutive rows of a chunk, which may keep all of it.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn slice(&self, chunk: &Chunk, first_row: usize, row_count: usize) -> Result<Chunk> {
        debug_assert!(first_row + row_count <= chunk.row_count);
        if row_count == chunk.row_count {
            return Ok(chunk.clone());
        }
        let slice = |column: &Column| self.slice_of(column, first_row, row_count);
        let columns = chunk.columns.iter().map(slice).collect::<Result<_>>()?;
        Ok(Chunk { row_count, columns })
    }

    /// Chunks of the same columns, one after another. At least one.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn concat(&self, chunks: &[Chunk]) -> Result<Chunk> {
        self.concat_taken(chunks.to_vec())
    }

    /// Like [`Queue::concat`] for chunks without other users: a column's parts are freed before the
    /// next column is copied.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn concat_taken(&self, mut chunks: Vec<Chunk>) -> Result<Chunk> {
        if chunks.len() <= 1 {
            return chunks.pop().ok_or_else(|| Error::internal("no chunks to join"));
        }
        let row_count: usize = chunks.iter().map(|chunk| chunk.row_count).sum();
        let mut columns = Vec::new();
        loop {
            let parts: Vec<(Column, usize)> =
                chunks.iter_mut().filter_map(|chunk| Some((chunk.columns.pop()?, chunk.row_count))).collect();
            if parts.is_empty() {
                break;
            }
            let parts: Vec<(&Column, usize)> = parts.iter().map(|(column, rows)| (column, *rows)).collect();
            columns.push(self.concat_column(&parts, row_count)?);
        }
        columns.reverse();
        Ok(Chunk { row_count, columns })
    }

    fn concat_column(&self, parts: &[(&Column, usize)], row_count: usize) -> Result<Column> {
        let Some((first, _)) = parts.first() else { return Err(Error::internal("no columns to join")) };
        let cell_bytes = u64::from(first.cell_type.bytes());
        let values = self.memory().allocate(row_count as u64 * cell_bytes, self.stream())?;
        let is_nullable = parts.iter().any(|(column, _)| column.validity.is_some());
        let validity =
            if is_nullable { Some(self.allocate_filled::<u8>(row_count as u64, 1)?) } else { None };
        let mut strings = Vec::new();
        let mut first_row = 0;
        let mut ranges = Vec::with_capacity(parts.len());
        for (column, rows) in parts {
            let rows = *rows as u64;
            ranges.push(ByteRange {
                source: column.values.address(),
                target: values.address() + first_row * cell_bytes,
                bytes: rows * cell_bytes,
            });
            if let (Some(target), Some(source)) = (&validity, &column.validity) {
                let (source, target) = (source.address(), target.address() + first_row);
                ranges.push(ByteRange { source, target, bytes: rows });
            }
            for buffer in &column.strings {
                if !strings.iter().any(|known: &Buffer| known.address() == buffer.address()) {
                    strings.push(buffer.clone());
                }
            }
            first_row += rows;
        }
        self.copy_ranges(&ranges)?;
        Ok(Column {
            data_type: first.data_type.clone(),
            cell_type: first.cell_type,
            values,
            validity,
            strings,
        })
    }

    /// A chunk without rows.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`]; `NotSupported` for types without a kernel.
    pub fn empty(&self, types: &[DataType]) -> Result<Chunk> {
        let column = |data_type: &DataType| {
            Ok(Column {
                data_type: data_type.clone(),
                cell_type: CellType::of(data_type)?,
                values: self.allocate::<u8>(0)?,
                validity: None,
                strings: Vec::new(),
            })
        };
        Ok(Chunk { row_count: 0, columns: types.iter().map(column).collect::<Result<_>>()? })
    }

    /// A column of NULLs.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::empty`].
    pub fn nulls(&self, data_type: &DataType, row_count: usize) -> Result<Column> {
        let cell_type = CellType::of(data_type)?;
        let nulls = Column {
            data_type: data_type.clone(),
            cell_type,
            values: self.allocate_filled::<u8>(row_count as u64 * u64::from(cell_type.bytes()), 0)?,
            validity: Some(self.allocate_filled::<u8>(row_count as u64, 0)?),
            strings: Vec::new(),
        };
        self.poison_nulls(&nulls, row_count);
        Ok(nulls)
    }

    /// Whether a row of the column is NULL; waits.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn has_null(&self, column: &Column, row_count: usize) -> Result<bool> {
        match &column.validity {
            None => Ok(false),
            Some(validity) => Ok(self.download::<u8>(validity, row_count)?.contains(&0)),
        }
    }
}
