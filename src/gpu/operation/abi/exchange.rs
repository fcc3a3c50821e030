//! Rows dealt to ranks: kernels/abi/exchange.h.

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
}
const _: () = assert!(size_of::<AssignOwners>() == 432);

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
