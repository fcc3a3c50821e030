//! Prefix sums, selection by flags, gathering and concatenation.

use pystachio_plan::{DataType, Error, Result};

use super::Queue;
use crate::device::{
    Buffer, CellType, Chunk, Column, Kernel, Letter,
    abi::{CombineFlags, GatherCells, MarkRows, ScanCounts, ScanTotals, TILE_ROWS},
};

/// Numbers of rows on the device.
#[derive(Clone, Debug)]
pub struct RowNumbers {
    /// `u32`, `count` of them, and maybe room for more.
    pub rows: Buffer,
    /// How many.
    pub count: usize,
    /// Whether some may be `NO_ROW`, for which NULL is gathered.
    pub may_miss: bool,
    /// Whether they are all rows that there are, in order: what is gathered by them is there already.
    pub is_every_row: bool,
}

/// Rows of a tile of [`SelectedTiles`].
pub const SELECTED_TILE_ROWS: usize = TILE_ROWS as usize;

/// Rows that were selected, and which tiles of all rows have some.
#[derive(Debug)]
pub struct SelectedTiles {
    /// Their numbers.
    pub rows: RowNumbers,
    /// A flag for every [`SELECTED_TILE_ROWS`] rows.
    pub has_rows: Vec<bool>,
}

/// Counts or flags whose tiles are summed up.
#[derive(Clone)]
struct TileSums {
    scan: ScanCounts,
    tiles: u64,
    totals: Buffer,
}

impl TileSums {
    fn total_address(&self) -> u64 {
        self.totals.address() + self.tiles * 8
    }

    /// Sends the total to the host.
    fn post(&self, queue: &Queue) -> Result<Letter> {
        queue.memory().post::<u64>(self.total_address(), 1, queue.stream())
    }
}

fn one(values: Vec<u64>) -> u64 {
    values.first().copied().unwrap_or_default()
}

impl Queue {
    /// Exclusive sums of counts and their total. `count_bytes` is 1 or 4. Waits for the total.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn offsets(&self, counts: &Buffer, count_bytes: u32, row_count: usize) -> Result<(Buffer, u64)> {
        let Some(sums) = self.sum_tiles(counts, count_bytes, row_count)? else {
            return Ok((self.allocate::<u64>(0)?, 0));
        };
        let total = sums.post(self)?;
        let offsets = self.write_offsets(sums)?;
        Ok((offsets, one(total.wait(1)?)))
    }

    /// [`Queue::offsets`] without the total.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub(super) fn offsets_alone(
        &self,
        counts: &Buffer,
        count_bytes: u32,
        row_count: usize,
    ) -> Result<Buffer> {
        match self.sum_tiles(counts, count_bytes, row_count)? {
            Some(sums) => self.write_offsets(sums),
            None => self.allocate::<u64>(0),
        }
    }

    /// The numbers of the rows whose flag is not 0, in order. Waits for their count.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn select(&self, flags: &Buffer, row_count: usize) -> Result<RowNumbers> {
        let Some(sums) = self.sum_tiles(flags, 1, row_count)? else { return self.no_rows() };
        let total = sums.post(self)?;
        self.write_selected(sums, &total)
    }

    /// The numbers of the rows whose flag is not 0, as of [`Queue::select`], and the tiles that they are in. Waits as
    /// often.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub fn select_tiles(&self, flags: &Buffer, row_count: usize) -> Result<SelectedTiles> {
        let Some(mut sums) = self.sum_tiles(flags, 1, row_count)? else {
            return Ok(SelectedTiles { rows: self.no_rows()?, has_rows: Vec::new() });
        };
        // The total follows the last tile.
        let before: Vec<u64> =
            self.memory().download_from(sums.totals.address(), sums.tiles as usize + 1, self.stream())?;
        let count = before.last().copied().unwrap_or_default() as usize;
        let rows = self.allocate::<u32>(count as u64)?;
        if count > 0 {
            sums.scan.target = rows.address();
            self.launch(Kernel::SelectRows, sums.tiles, &sums.scan)?;
        }
        let rows = RowNumbers { rows, count, may_miss: false, is_every_row: count == row_count };
        Ok(SelectedTiles { rows, has_rows: before.windows(2).map(|pair| pair[0] < pair[1]).collect() })
    }

    /// The numbers of the rows whose flag is not 0, as of [`Queue::select`], and for every row how many they are
    /// before it.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
    pub(super) fn select_numbered(
        &self,
        flags: &Buffer,
        row_count: usize,
        number: impl FnOnce(&Buffer) -> Result<()>,
    ) -> Result<RowNumbers> {
        let Some(sums) = self.sum_tiles(flags, 1, row_count)? else { return self.no_rows() };
        let total = sums.post(self)?;
        let rows = sums.clone();
        number(&self.write_offsets(sums)?)?;
        self.write_selected(rows, &total)
    }

    fn no_rows(&self) -> Result<RowNumbers> {
        Ok(RowNumbers { rows: self.allocate::<u32>(0)?, count: 0, may_miss: false, is_every_row: true })
    }

    /// Enqueues the sums of tiles and what comes before each of them.
    fn sum_tiles(&self, counts: &Buffer, count_bytes: u32, row_count: usize) -> Result<Option<TileSums>> {
        if row_count == 0 {
            return Ok(None);
        }
        let tiles = (row_count as u64).div_ceil(TILE_ROWS);
        // One more for the total of all.
        let totals = self.allocate::<u64>(tiles + 1)?;
        let scan = ScanCounts {
            counts: counts.address(),
            tile_totals: totals.address(),
            row_count: row_count as u64,
            count_bytes,
            ..ScanCounts::default()
        };
        let sums = TileSums { scan, tiles, totals };
        self.launch(Kernel::SumTiles, tiles, &scan)?;
        let arguments = ScanTotals { totals: scan.tile_totals, total: sums.total_address(), count: tiles };
        self.launch(Kernel::ScanTotals, 1, &arguments)?;
        Ok(Some(sums))
    }

    fn write_offsets(&self, mut sums: TileSums) -> Result<Buffer> {
        let target = self.allocate::<u64>(sums.scan.row_count)?;
        sums.scan.target = target.address();
        self.launch(Kernel::WriteOffsets, sums.tiles, &sums.scan)?;
        Ok(target)
    }

    /// The device writes the numbers while their count is on its way, into room for all rows; a query that does not
    /// defer waits first, and has room for as many as there are.
    fn write_selected(&self, mut sums: TileSums, total: &Letter) -> Result<RowNumbers> {
        let row_count = sums.scan.row_count;
        let room = match self.memory().techniques().is_deferred {
            true => row_count,
            false => one(total.wait(1)?),
        };
        let rows = self.allocate::<u32>(room)?;
        if room > 0 {
            sums.scan.target = rows.address();
            self.launch(Kernel::SelectRows, sums.tiles, &sums.scan)?;
        }
        let count = one(total.wait(1)?);
        let is_every_row = count == row_count;
        Ok(RowNumbers { rows, count: count as usize, may_miss: false, is_every_row })
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
        if rows.is_every_row {
            return Ok(column.clone());
        }
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
        self.concat_taken(chunks.to_vec())
    }

    /// [`Queue::concat`] of chunks that nobody else wants: a column's parts are freed before the next column is copied.
    ///
    /// # Errors
    ///
    /// As of [`Queue::offsets`].
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
