//! Rows of columns: which there are, and copies of some.

use pystachio_plan::{DataType, Result};

use super::{
    Queue,
    abi::{CombineFlags, GatherCells, MarkRows, ScanCounts, ScanTotals, TILE_ROWS},
};
use crate::device::{Buffer, CellType, Column, Kernel, Readback};

/// No row: what NULL is gathered for.
pub const NO_ROW: u32 = u32::MAX;
/// Rows of a tile of [`SelectedTiles`].
pub const SELECTED_TILE_ROWS: usize = 4096;

/// Numbers of rows on the device.
#[derive(Clone, Debug)]
pub struct RowNumbers {
    /// `u32`, `count` of them, and maybe room for more.
    pub rows: Buffer,
    /// How many.
    pub count: usize,
    /// Whether some may be [`NO_ROW`], for which NULL is gathered.
    pub may_miss: bool,
    /// Whether they are all rows that there are, in order: what is gathered by them is there already.
    pub is_every_row: bool,
}

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
    fn post(&self, queue: &Queue) -> Result<Readback> {
        queue.memory().post::<u64>(self.total_address(), 1, queue.stream())
    }
}

fn one(values: Vec<u64>) -> u64 {
    values.first().copied().unwrap_or_default()
}

/// Selecting rows and copying them.
impl Queue {
    /// The numbers of the rows whose flag is not 0, in order. Waits for their count.
    pub fn select(&self, flags: &Buffer, row_count: usize) -> Result<RowNumbers> {
        let Some(sums) = self.sum_tiles(flags, 1, row_count)? else { return self.no_rows() };
        let total = sums.post(self)?;
        self.write_selected(sums, &total)
    }

    /// The numbers of the rows whose flag is not 0, as of [`Queue::select`], and the tiles that they are in.
    /// Waits as often.
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

    /// One flag a row: whether a boolean is true, or with `invert` whether it is false or NULL.
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

    /// The cells of some rows: `rows.count` of them, with NULL for [`NO_ROW`]. Text is not copied: it stays where it
    /// is, and the result keeps it.
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
        let gathered = Column { values, validity, ..column.clone() };
        self.spoil_nulls(&gathered, count as usize);
        Ok(gathered)
    }

    /// The cells of `row_count` rows from `first_row` on. Text stays where it is.
    pub fn slice_column(&self, column: &Column, first_row: usize, row_count: usize) -> Result<Column> {
        let count = row_count as u64;
        let values = self.memory().allocate(count * u64::from(column.cell_type.bytes()), self.stream())?;
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
        let gathered = Column { values, validity, ..column.clone() };
        self.spoil_nulls(&gathered, count as usize);
        Ok(gathered)
    }

    /// Some of a buffer's `u64` values; waits.
    pub fn pick(&self, values: &Buffer, places: &[u32]) -> Result<Vec<u64>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let column = Column {
            data_type: DataType::Int64,
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
    fn write_selected(&self, mut sums: TileSums, total: &Readback) -> Result<RowNumbers> {
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
}
