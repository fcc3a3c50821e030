//! Prefix sums, selection by flags, gathering and concatenation.

use pystachio_plan::{DataType, Error, Result};

use super::Queue;
use crate::device::{
    Buffer, CellType, Chunk, Column, Kernel,
    abi::{CombineFlags, GatherCells, MarkRows, ScanCounts, ScanTotals, TILE_ROWS},
};

/// Numbers of rows on the device.
#[derive(Clone, Debug)]
pub struct RowNumbers {
    /// `u32`, `count` of them.
    pub rows: Buffer,
    /// How many.
    pub count: usize,
    /// Whether some may be `NO_ROW`, for which NULL is gathered.
    pub may_miss: bool,
}

impl Queue {
    /// Exclusive sums of counts and their total. `count_bytes` is 1 or 4.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn offsets(&self, counts: &Buffer, count_bytes: u32, row_count: usize) -> Result<(Buffer, u64)> {
        let target = self.allocate::<u64>(row_count as u64)?;
        let total =
            self.scan(Kernel::WriteOffsets, counts, count_bytes, row_count, |_| Ok(target.clone()))?;
        Ok((target, total))
    }

    /// The numbers of the rows whose flag is 1, in order.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn select(&self, flags: &Buffer, row_count: usize) -> Result<RowNumbers> {
        let mut rows = None;
        let total = self.scan(Kernel::SelectRows, flags, 1, row_count, |total| {
            let buffer = self.allocate::<u32>(total)?;
            rows = Some(buffer.clone());
            Ok(buffer)
        })?;
        let rows = match rows {
            Some(rows) => rows,
            None => self.allocate::<u32>(0)?,
        };
        Ok(RowNumbers { rows, count: total as usize, may_miss: false })
    }

    fn scan(
        &self,
        last: Kernel,
        counts: &Buffer,
        count_bytes: u32,
        row_count: usize,
        target: impl FnOnce(u64) -> Result<Buffer>,
    ) -> Result<u64> {
        if row_count == 0 {
            return Ok(0);
        }
        let tiles = (row_count as u64).div_ceil(TILE_ROWS);
        // One more for the total of all.
        let totals = self.allocate::<u64>(tiles + 1)?;
        let total_address = totals.address() + tiles * 8;
        let mut scan = ScanCounts {
            counts: counts.address(),
            tile_totals: totals.address(),
            row_count: row_count as u64,
            count_bytes,
            ..ScanCounts::default()
        };
        self.launch(Kernel::SumTiles, tiles, &scan)?;
        let scan_totals = ScanTotals { totals: totals.address(), total: total_address, count: tiles };
        self.launch(Kernel::ScanTotals, 1, &scan_totals)?;
        let total: Vec<u64> = self.memory().download_from(total_address, 1, self.stream())?;
        let total = total.first().copied().unwrap_or_default();
        if total > 0 || last == Kernel::WriteOffsets {
            scan.target = target(total)?.address();
            self.launch(last, tiles, &scan)?;
        }
        Ok(total)
    }

    /// One flag a row: whether a boolean is true, or with `invert` whether it is false or NULL.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn flags(&self, column: &Column, row_count: usize, invert: bool) -> Result<Buffer> {
        debug_assert_eq!(column.cell_type, CellType::Bool);
        let flags = self.allocate::<u8>(row_count as u64)?;
        let view = column.view();
        let arguments = CombineFlags {
            values: view.values,
            validity: view.validity,
            flags: flags.address(),
            row_count: row_count as u64,
            invert: invert.into(),
            reserved: 0,
        };
        self.launch_strided(Kernel::CombineFlags, row_count as u64, &arguments)?;
        Ok(flags)
    }

    /// Marks rows, all of them or those with a flag, in one byte a row; row 0 is `first_row` of the marks.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn mark(
        &self,
        rows: &RowNumbers,
        flags: Option<&Buffer>,
        marks: &Buffer,
        first_row: usize,
    ) -> Result<()> {
        let arguments = MarkRows {
            rows: rows.rows.address(),
            flags: flags.map_or(0, Buffer::address),
            marks: marks.address() + first_row as u64,
            count: rows.count as u64,
        };
        self.launch_strided(Kernel::MarkRows, rows.count as u64, &arguments)
    }

    /// The cells of some rows.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn gather(&self, column: &Column, rows: &RowNumbers) -> Result<Column> {
        let count = rows.count as u64;
        let values = self.memory().allocate(count * u64::from(column.cell_type.bytes()), self.stream())?;
        let is_nullable = column.validity.is_some() || rows.may_miss;
        let validity = if is_nullable { Some(self.allocate::<u8>(count)?) } else { None };
        let arguments = GatherCells {
            source: column.view(),
            rows: rows.rows.address(),
            values: values.address(),
            validity: validity.as_ref().map_or(0, Buffer::address),
            row_count: count,
            first_row: 0,
        };
        self.launch_strided(Kernel::GatherCells, count, &arguments)?;
        Ok(Column { values, validity, ..column.clone() })
    }

    /// Some rows of a chunk.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn gather_chunk(&self, chunk: &Chunk, rows: &RowNumbers) -> Result<Chunk> {
        let columns = chunk.columns.iter().map(|column| self.gather(column, rows)).collect::<Result<_>>()?;
        Ok(Chunk { row_count: rows.count, columns })
    }

    /// Chunks of the same columns, one after another. At least one.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn concat(&self, chunks: &[Chunk]) -> Result<Chunk> {
        let Some(first) = chunks.first() else { return Err(Error::internal("no chunks to join")) };
        if chunks.len() == 1 {
            return Ok(first.clone());
        }
        let row_count: usize = chunks.iter().map(|chunk| chunk.row_count).sum();
        let columns = (0..first.columns.len())
            .map(|index| {
                let parts: Vec<(&Column, usize)> = chunks
                    .iter()
                    .filter_map(|chunk| Some((chunk.columns.get(index)?, chunk.row_count)))
                    .collect();
                self.concat_column(&parts, row_count)
            })
            .collect::<Result<_>>()?;
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
        for (column, rows) in parts {
            let rows = *rows as u64;
            self.copy(column.values.address(), values.address() + first_row * cell_bytes, rows * cell_bytes)?;
            if let (Some(target), Some(source)) = (&validity, &column.validity) {
                self.copy(source.address(), target.address() + first_row, rows)?;
            }
            for buffer in &column.strings {
                if !strings.iter().any(|known: &Buffer| known.address() == buffer.address()) {
                    strings.push(buffer.clone());
                }
            }
            first_row += rows;
        }
        Ok(Column {
            data_type: first.data_type.clone(),
            cell_type: first.cell_type,
            values,
            validity,
            strings,
        })
    }
}

impl Queue {
    /// Some consecutive rows of a chunk.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn slice(&self, chunk: &Chunk, first_row: usize, row_count: usize) -> Result<Chunk> {
        debug_assert!(first_row + row_count <= chunk.row_count);
        if row_count == chunk.row_count {
            return Ok(chunk.clone());
        }
        let count = row_count as u64;
        let slice = |column: &Column| {
            let values =
                self.memory().allocate(count * u64::from(column.cell_type.bytes()), self.stream())?;
            let validity = match column.validity {
                Some(_) => Some(self.allocate::<u8>(count)?),
                None => None,
            };
            let arguments = GatherCells {
                source: column.view(),
                rows: 0,
                values: values.address(),
                validity: validity.as_ref().map_or(0, Buffer::address),
                row_count: count,
                first_row: first_row as u64,
            };
            self.launch_strided(Kernel::GatherCells, count, &arguments)?;
            Ok(Column { values, validity, ..column.clone() })
        };
        let columns = chunk.columns.iter().map(slice).collect::<Result<_>>()?;
        Ok(Chunk { row_count, columns })
    }

    /// A chunk without rows.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`]; `NotSupported` for types that no kernel has.
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
    /// As of [`Queue::empty`].
    pub fn nulls(&self, data_type: &DataType, row_count: usize) -> Result<Column> {
        let cell_type = CellType::of(data_type)?;
        Ok(Column {
            data_type: data_type.clone(),
            cell_type,
            values: self.allocate_filled::<u8>(row_count as u64 * u64::from(cell_type.bytes()), 0)?,
            validity: Some(self.allocate_filled::<u8>(row_count as u64, 0)?),
            strings: Vec::new(),
        })
    }

    /// Whether a row of the column is NULL; waits.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn has_null(&self, column: &Column, row_count: usize) -> Result<bool> {
        match &column.validity {
            None => Ok(false),
            Some(validity) => Ok(self.download::<u8>(validity, row_count)?.contains(&0)),
        }
    }
}
