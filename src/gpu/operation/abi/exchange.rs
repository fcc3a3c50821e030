//! Rows dealt to ranks, and integers narrowed for it: kernels/abi/exchange.h.

use bytemuck::{Pod, Zeroable};

use super::{ColumnView, KeyColumns};

/// Rows that a block of `deal_rows` handles.
pub const DEAL_TILE_ROWS: u64 = 4096;
/// Columns of one launch.
pub const DEALT_COLUMNS_MAX: usize = 8;
/// Blocks of memory that one launch fills.
pub const DEALT_BLOCKS_MAX: usize = 32;
/// Parts of such a block begin at multiples of so many bytes.
pub const DEALT_PART_ALIGNMENT: u64 = 64;

/// Arguments of `assign_owners`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AssignOwners {
    /// The rows' keys.
    pub keys: KeyColumns,
    /// A byte a row: its owner.
    pub owners: u64,
    /// Rows of each tile, owner by owner.
    pub counts: u64,
    /// Rows.
    pub row_count: u64,
    /// At most [`crate::operation::PARTITIONS_MAX`].
    pub owner_count: u32,
    /// As of `assign_hash_partitions`.
    pub level: u32,
    /// 0: rows with a NULL key are spread by number.
    pub nulls_match: u32,
    /// Tiles of [`DEAL_TILE_ROWS`] rows.
    pub tiles: u32,
    /// A byte a row, not 0 where `stay_owner` has it whatever its keys are; or 0: nowhere.
    pub staying: u64,
    /// Below `owner_count`.
    pub stay_owner: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<AssignOwners>() == 448);

/// Where a column goes in a block of memory, in multiples of [`DEALT_PART_ALIGNMENT`].
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct DealtPart {
    /// Cells.
    pub values: u32,
    /// Validity, where the column has one.
    pub validity: u32,
}

/// A block of memory for some of the rows, by their places in the order of owners.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct DealtBlock {
    /// The first one's place.
    pub first_row: u64,
    /// The place after the last one.
    pub end_row: u64,
    /// Where the block begins.
    pub address: u64,
    /// Of each column of the launch.
    pub parts: [DealtPart; DEALT_COLUMNS_MAX],
}
const _: () = assert!(size_of::<DealtBlock>() == 88);

/// Arguments of `deal_rows`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct DealRows {
    /// Of `assign_owners`.
    pub owners: u64,
    /// `u64`: the exclusive sums of its counts.
    pub offsets: u64,
    /// Rows.
    pub row_count: u64,
    /// Owners.
    pub owner_count: u32,
    /// Tiles.
    pub tiles: u32,
    /// Columns.
    pub column_count: u32,
    /// Blocks of memory.
    pub block_count: u32,
    /// What is moved.
    pub columns: [ColumnView; DEALT_COLUMNS_MAX],
    /// In the order of their rows; rows of none stay.
    pub blocks: [DealtBlock; DEALT_BLOCKS_MAX],
}
const _: () = assert!(size_of::<DealRows>() == 3048);

/// Columns of one launch of `measure_bounds`, and of `narrow_cells`.
pub const FRAMED_COLUMNS_MAX: usize = 16;
/// Rows that a block of `widen_cells` handles.
pub const WIDEN_TILE_ROWS: u64 = 4096;
/// Ranges of one launch of `widen_cells`.
pub const WIDENED_RANGES_MAX: usize = 64;

/// Between which values the integers of a column lie, written by `measure_bounds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ValueBounds {
    /// `i64::MAX` of no value.
    pub least: i64,
    /// `i64::MIN` of no value.
    pub greatest: i64,
    /// 1 if a value has more than 64 bits; the others tell nothing then.
    pub beyond: u64,
}
const _: () = assert!(size_of::<ValueBounds>() == 24);

impl ValueBounds {
    /// Of no value.
    pub const NONE: Self = Self { least: i64::MAX, greatest: i64::MIN, beyond: 0 };
}

/// Arguments of `measure_bounds`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct MeasureBounds {
    /// A [`ValueBounds`] a column, of no value before.
    pub bounds: u64,
    /// Rows.
    pub row_count: u64,
    /// Columns.
    pub column_count: u32,
    /// 0.
    pub reserved: u32,
    /// Of bool and integers.
    pub columns: [ColumnView; FRAMED_COLUMNS_MAX],
}
const _: () = assert!(size_of::<MeasureBounds>() == 408);

/// A column of which each value is at least a base, and less than 256 ^ width more.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct NarrowedColumn {
    /// Of bool or integers.
    pub source: ColumnView,
    /// Distances.
    pub values: u64,
    /// What they are from.
    pub base: i64,
    /// Bytes of a distance: 1, 2, 4 or 8.
    pub width: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<NarrowedColumn>() == 48);

/// Arguments of `narrow_cells`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct NarrowCells {
    /// Rows.
    pub row_count: u64,
    /// Columns.
    pub column_count: u32,
    /// 0.
    pub reserved: u32,
    /// What is narrowed.
    pub columns: [NarrowedColumn; FRAMED_COLUMNS_MAX],
}
const _: () = assert!(size_of::<NarrowCells>() == 784);

/// Rows of a column whose cells are made of distances from a base.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct WidenedRange {
    /// Distances.
    pub source: u64,
    /// Cells.
    pub target: u64,
    /// Rows, more than 0.
    pub row_count: u64,
    /// Tiles of the ranges before.
    pub first_tile: u64,
    /// What distances are from.
    pub base: i64,
    /// Bytes of a distance: 0, 1, 2, 4 or 8.
    pub width: u32,
    /// Bytes of a cell.
    pub cell_bytes: u32,
}
const _: () = assert!(size_of::<WidenedRange>() == 48);

/// Arguments of `widen_cells`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct WidenCells {
    /// Ranges.
    pub range_count: u32,
    /// 0.
    pub reserved: u32,
    /// What is widened.
    pub ranges: [WidenedRange; WIDENED_RANGES_MAX],
}
const _: () = assert!(size_of::<WidenCells>() == 3080);
