//! Selecting and copying rows.

use bytemuck::Zeroable;
use pystachio_plan::{DataType, Error, Result};

use super::{
    Queue,
    abi::{
        COPIED_RANGES_MAX, COPY_TILE_BYTES, CombineFlags, CopiedRange, CopyRanges, GATHERED_COLUMNS_MAX,
        GatherCells, GatheredColumn, MarkRows, ScanCounts, TILE_ROWS,
    },
};
use crate::device::{Buffer, CellType, Column, Kernel, Readback};

/// Rows of a tile of [`SelectedTiles`].
pub const SELECTED_TILE_ROWS: usize = TILE_ROWS as usize;

/// Numbers of rows on the device.
#[derive(Clone, Debug)]
pub struct RowNumbers {
    /// `u32`, `count` of them, and perhaps room for more.
    pub rows: Buffer,
    /// How many.
    pub count: usize,
    /// Whether some may be [`super::NO_ROW`], which gathers NULL.
    pub may_miss: bool,
    /// Whether they are all rows, in order: then gathering copies nothing.
    pub is_every_row: bool,
}

/// Selected rows, and the tiles that contain some.
#[derive(Debug)]
pub struct SelectedTiles {
    /// Their numbers.
    pub rows: RowNumbers,
    /// A flag for every [`SELECTED_TILE_ROWS`] rows.
    pub has_rows: Vec<bool>,
}

/// Bytes to be copied within a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Where they are.
    pub source: u64,
    /// Where they go.
    pub target: u64,
    /// How many.
    pub bytes: u64,
}

/// An enqueued scan over counts or flags.
struct PrefixScan {
    /// Offsets or row numbers.
    target: Buffer,
    /// `u64`: the sum before each tile, and that of all.
    sums: Buffer,
    tiles: u64,
}

impl PrefixScan {
    /// Sends the total to the host.
    fn post_total(&self, queue: &Queue) -> Result<Readback> {
        queue.memory().post::<u64>(self.sums.address() + self.tiles * 8, 1, queue.stream())
    }
}

fn one(values: Vec<u64>) -> u64 {
    values.first().copied().unwrap_or_default()
}

/// Selecting rows and copying them.
impl Queue {
    /// The numbers of the rows whose flag is not 0, in order, with room for all rows. Waits for their count.
    pub fn select(&self, flags: &Buffer, row_count: usize) -> Result<RowNumbers> {
        if row_count == 0 {
            return self.no_rows();
        }
        let scan = self.scan::<u32>(Kernel::SelectRows, flags, 1, row_count)?;
        let count = one(scan.post_total(self)?.wait(1)?) as usize;
        Ok(RowNumbers { rows: scan.target, count, may_miss: false, is_every_row: count == row_count })
    }

    /// The numbers of the rows whose flag is not 0, as of [`Queue::select`], and the tiles that they are in.
    /// Waits as often.
    pub fn select_tiles(&self, flags: &Buffer, row_count: usize) -> Result<SelectedTiles> {
        if row_count == 0 {
            return Ok(SelectedTiles { rows: self.no_rows()?, has_rows: Vec::new() });
        }
        let scan = self.scan::<u32>(Kernel::SelectRows, flags, 1, row_count)?;
        // The total follows the sum before the last tile.
        let before: Vec<u64> = self.download(&scan.sums, scan.tiles as usize + 1)?;
        let count = before.last().copied().unwrap_or_default() as usize;
        let rows = RowNumbers { rows: scan.target, count, may_miss: false, is_every_row: count == row_count };
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

    /// The cells of some rows: `rows.count` of them, with NULL for [`super::NO_ROW`]. Text is not copied: it stays where it
    /// is, and the result keeps it.
    pub fn gather(&self, column: &Column, rows: &RowNumbers) -> Result<Column> {
        let mut gathered = self.gather_all(&[column], rows)?;
        gathered.pop().ok_or_else(|| Error::internal("a column that was not gathered"))
    }

    /// [`Queue::gather`] of several columns at once.
    pub fn gather_all(&self, columns: &[&Column], rows: &RowNumbers) -> Result<Vec<Column>> {
        if rows.is_every_row {
            return Ok(columns.iter().map(|column| (*column).clone()).collect());
        }
        let arguments =
            GatherCells { rows: rows.rows.address(), row_count: rows.count as u64, ..GatherCells::default() };
        self.copy_cells(columns, arguments, rows.may_miss)
    }

    /// Copies bytes between places inside live buffers that do not overlap.
    pub fn copy_ranges(&self, ranges: &[ByteRange]) -> Result<()> {
        let ranges: Vec<&ByteRange> = ranges.iter().filter(|range| range.bytes > 0).collect();
        for ranges in ranges.chunks(COPIED_RANGES_MAX) {
            if let [range] = ranges {
                self.copy(range.source, range.target, range.bytes)?;
                continue;
            }
            let mut tiles = 0;
            let mut arguments = CopyRanges { range_count: ranges.len() as u32, ..CopyRanges::zeroed() };
            for (ByteRange { source, target, bytes }, copied) in ranges.iter().zip(&mut arguments.ranges) {
                *copied = CopiedRange { source: *source, target: *target, bytes: *bytes, first_tile: tiles };
                tiles += bytes.div_ceil(COPY_TILE_BYTES);
            }
            self.launch(Kernel::CopyRanges, tiles, &arguments)?;
        }
        Ok(())
    }

    /// The cells of `row_count` rows from `first_row` on. Text stays in place.
    pub fn slice_column(&self, column: &Column, first_row: usize, row_count: usize) -> Result<Column> {
        let arguments = GatherCells {
            row_count: row_count as u64,
            first_row: first_row as u64,
            ..GatherCells::default()
        };
        let mut copied = self.copy_cells(&[column], arguments, false)?;
        copied.pop().ok_or_else(|| Error::internal("a column without a copy"))
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
    /// Copies rows of columns, in launches of as many columns as one supports.
    fn copy_cells(&self, columns: &[&Column], arguments: GatherCells, may_miss: bool) -> Result<Vec<Column>> {
        let count = arguments.row_count;
        let mut copied = Vec::with_capacity(columns.len());
        for columns in columns.chunks(GATHERED_COLUMNS_MAX) {
            let mut arguments = GatherCells { column_count: columns.len() as u32, ..arguments };
            for (column, target) in columns.iter().zip(&mut arguments.columns) {
                let cell_bytes = u64::from(column.cell_type.bytes());
                let values = self.memory().allocate(count * cell_bytes, self.stream())?;
                let is_nullable = column.validity.is_some() || may_miss;
                let validity = if is_nullable { Some(self.allocate::<u8>(count)?) } else { None };
                *target = GatheredColumn {
                    source: column.view(),
                    values: values.address(),
                    validity: validity.as_ref().map_or(0, Buffer::address),
                };
                copied.push(Column { values, validity, ..(*column).clone() });
            }
            self.launch_strided(Kernel::GatherCells, count, &arguments)?;
        }
        copied.iter().for_each(|column| self.poison_nulls(column, count as usize));
        Ok(copied)
    }

    /// Exclusive sums of counts and their total. `count_bytes` is 1 or 4. Waits for the total.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn offsets(&self, counts: &Buffer, count_bytes: u32, row_count: usize) -> Result<(Buffer, u64)> {
        let (offsets, total) = self.offsets_posted(counts, count_bytes, row_count)?;
        Ok((offsets, total.map_or(Ok(0), |total| total.wait(1).map(one))?))
    }

    /// [`Queue::offsets`], whose total is waited for when it is needed; `None` without rows, for 0.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::offsets`].
    pub(super) fn offsets_posted(
        &self,
        counts: &Buffer,
        count_bytes: u32,
        row_count: usize,
    ) -> Result<(Buffer, Option<Readback>)> {
        if row_count == 0 {
            return Ok((self.allocate::<u64>(0)?, None));
        }
        let scan = self.scan::<u64>(Kernel::WriteOffsets, counts, count_bytes, row_count)?;
        let total = scan.post_total(self)?;
        Ok((scan.target, Some(total)))
    }

    /// [`Queue::offsets`] without the total, and without a wait.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::offsets`].
    pub(super) fn offsets_alone(
        &self,
        counts: &Buffer,
        count_bytes: u32,
        row_count: usize,
    ) -> Result<Buffer> {
        match row_count {
            0 => self.allocate::<u64>(0),
            _ => Ok(self.scan::<u64>(Kernel::WriteOffsets, counts, count_bytes, row_count)?.target),
        }
    }

    /// The numbers of the rows whose flag is not 0, see [`Queue::select`]; `number` gets how many
    /// of them are before every row.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::offsets`].
    pub(super) fn select_numbered(
        &self,
        flags: &Buffer,
        row_count: usize,
        number: impl FnOnce(&Buffer) -> Result<()>,
    ) -> Result<RowNumbers> {
        if row_count > 0 {
            number(&self.offsets_alone(flags, 1, row_count)?)?;
        }
        self.select(flags, row_count)
    }

    /// How many of some flags are not 0 before each row, and of all rows: a `u32` a row and one more.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::offsets`].
    pub(super) fn count_before(&self, flags: &Buffer, row_count: usize) -> Result<Buffer> {
        match row_count {
            0 => self.allocate_filled::<u32>(1, 0),
            _ => Ok(self.scan_into::<u32>(Kernel::CountBefore, (flags, 1), row_count, row_count + 1)?.target),
        }
    }

    fn no_rows(&self) -> Result<RowNumbers> {
        Ok(RowNumbers { rows: self.allocate::<u32>(0)?, count: 0, may_miss: false, is_every_row: true })
    }

    /// Enqueues a scan of some counts into a target of `T`, a value a row.
    fn scan<T>(
        &self,
        kernel: Kernel,
        counts: &Buffer,
        count_bytes: u32,
        row_count: usize,
    ) -> Result<PrefixScan> {
        self.scan_into::<T>(kernel, (counts, count_bytes), row_count, row_count)
    }

    /// The same, into so many values.
    fn scan_into<T>(
        &self,
        kernel: Kernel,
        (counts, count_bytes): (&Buffer, u32),
        row_count: usize,
        value_count: usize,
    ) -> Result<PrefixScan> {
        let tiles = (row_count as u64).div_ceil(TILE_ROWS);
        let scan = PrefixScan {
            target: self.allocate::<T>(value_count as u64)?,
            sums: self.allocate::<u64>(tiles + 1)?,
            tiles,
        };
        let arguments = ScanCounts {
            counts: counts.address(),
            state: self.scan_state(tiles)?,
            tile_sums: scan.sums.address(),
            target: scan.target.address(),
            row_count: row_count as u64,
            count_bytes,
            reserved: 0,
        };
        self.launch(kernel, tiles, &arguments)?;
        Ok(scan)
    }
}
