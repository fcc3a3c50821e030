//! Rows and text: kernels/abi/column_operations.h, and the text parts of exchange.h.

use bytemuck::{Pod, Zeroable};

use super::ColumnView;
use crate::operation::SELECTED_TILE_ROWS;

/// Rows that a block of a tiled kernel handles.
pub const TILE_ROWS: u64 = 4096;

// The tiles of a selection are the tiles of a scan.
const _: () = assert!(SELECTED_TILE_ROWS as u64 == TILE_ROWS);

/// Words before those of the tiles in the state of a [`ScanCounts`].
pub const SCAN_STATE_WORDS: u64 = 2;

/// Arguments of `write_offsets` and `select_rows`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ScanCounts {
    /// One or four bytes a row.
    pub counts: u64,
    /// [`SCAN_STATE_WORDS`] and a word a tile, zeros before and after.
    pub state: u64,
    /// The sum before each tile, and that of all.
    pub tile_sums: u64,
    /// Offsets, or numbers of counted rows.
    pub target: u64,
    /// Rows.
    pub row_count: u64,
    /// 1 or 4.
    pub count_bytes: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<ScanCounts>() == 48);

/// Bytes that a block of `copy_ranges` copies.
pub const COPY_TILE_BYTES: u64 = 32 << 10;
/// Ranges of one launch of `copy_ranges`.
pub const COPIED_RANGES_MAX: usize = 64;

/// A range of `copy_ranges`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CopiedRange {
    /// The source address.
    pub source: u64,
    /// The target address.
    pub target: u64,
    /// How many; more than 0.
    pub bytes: u64,
    /// Tiles of the ranges before.
    pub first_tile: u64,
}
const _: () = assert!(size_of::<CopiedRange>() == 32);

/// Arguments of `copy_ranges`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CopyRanges {
    /// Ranges that are copied.
    pub range_count: u32,
    /// Unused.
    pub reserved: u32,
    /// The ranges.
    pub ranges: [CopiedRange; COPIED_RANGES_MAX],
}
const _: () = assert!(size_of::<CopyRanges>() == 2056);

/// Columns of one launch of `gather_cells`.
pub const GATHERED_COLUMNS_MAX: usize = 8;

/// A column of `gather_cells`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct GatheredColumn {
    /// The source column.
    pub source: ColumnView,
    /// Target cells.
    pub values: u64,
    /// Target validity, or 0.
    pub validity: u64,
}
const _: () = assert!(size_of::<GatheredColumn>() == 40);

/// Arguments of `gather_cells`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct GatherCells {
    /// Row numbers, or 0 for rows in order.
    pub rows: u64,
    /// Rows written.
    pub row_count: u64,
    /// Added to every row number.
    pub first_row: u64,
    /// Columns that are gathered.
    pub column_count: u32,
    /// Unused.
    pub reserved: u32,
    /// The columns.
    pub columns: [GatheredColumn; GATHERED_COLUMNS_MAX],
}
const _: () = assert!(size_of::<GatherCells>() == 352);

/// Arguments of `mark_rows`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct MarkRows {
    /// Row numbers.
    pub rows: u64,
    /// Which of them count, or 0 for all.
    pub flags: u64,
    /// Set to 1 at the row numbers.
    pub marks: u64,
    /// Row numbers.
    pub count: u64,
}
const _: () = assert!(size_of::<MarkRows>() == 32);

/// Arguments of `combine_flags`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CombineFlags {
    /// Cells of a boolean column.
    pub values: u64,
    /// Its validity, or 0.
    pub validity: u64,
    /// 1 where the value is true.
    pub flags: u64,
    /// Rows.
    pub row_count: u64,
    /// 1: the flags' opposites.
    pub invert: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<CombineFlags>() == 40);

/// Arguments of `measure_strings` and `copy_strings`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CopyStrings {
    /// String cells.
    pub source: ColumnView,
    /// Bytes of each row.
    pub lengths: u64,
    /// Where each row's bytes go.
    pub offsets: u64,
    /// The text, one after another.
    pub bytes: u64,
    /// Of the first of those bytes, among the offsets.
    pub first_offset: u64,
    /// Cells that point into it, or 0.
    pub cells: u64,
    /// Rows.
    pub row_count: u64,
}
const _: () = assert!(size_of::<CopyStrings>() == 72);

/// Arguments of `move_strings`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct MoveStrings {
    /// String cells.
    pub cells: u64,
    /// Rows.
    pub row_count: u64,
    /// Added to every address.
    pub distance: u64,
}
const _: () = assert!(size_of::<MoveStrings>() == 24);

/// Arguments of `place_strings`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct PlaceStrings {
    /// Bytes of each row's text.
    pub lengths: u64,
    /// Where each row's text begins.
    pub offsets: u64,
    /// The text.
    pub bytes: u64,
    /// String cells.
    pub cells: u64,
    /// Rows.
    pub row_count: u64,
}
const _: () = assert!(size_of::<PlaceStrings>() == 40);
