//! Rows of columns: which there are, and copies of some.

use pystachio_plan::Result;

use crate::device::{Buffer, Column};

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

/// Selecting rows and copying them. See [`super::Device`] for what every operation has in common.
pub trait RowOperations {
    /// The numbers of the rows whose flag is not 0, in order. Waits for their count.
    fn select(&self, flags: &Buffer, row_count: usize) -> Result<RowNumbers>;

    /// The numbers of the rows whose flag is not 0, as of [`RowOperations::select`], and the tiles that they are in.
    /// Waits as often.
    fn select_tiles(&self, flags: &Buffer, row_count: usize) -> Result<SelectedTiles>;

    /// One flag a row: whether a boolean is true, or with `invert` whether it is false or NULL.
    fn flags(&self, column: &Column, row_count: usize, invert: bool) -> Result<Buffer>;

    /// Marks rows, all of them or those with a flag, in one byte a row; row 0 is `first_row` of the marks.
    fn mark(&self, rows: &RowNumbers, flags: Option<&Buffer>, marks: &Buffer, first_row: usize)
    -> Result<()>;

    /// The cells of some rows: `rows.count` of them, with NULL for [`NO_ROW`]. Text is not copied: it stays where it
    /// is, and the result keeps it.
    fn gather(&self, column: &Column, rows: &RowNumbers) -> Result<Column>;

    /// The cells of `row_count` rows from `first_row` on. Text stays where it is.
    fn slice_column(&self, column: &Column, first_row: usize, row_count: usize) -> Result<Column>;

    /// Some of a buffer's `u64` values; waits.
    fn pick(&self, values: &Buffer, places: &[u32]) -> Result<Vec<u64>>;
}
