//! Rows partitioned by owner, and integers packed for exchanges: kernels/abi/exchange.h.

use bytemuck::{Pod, Zeroable};

use super::{ColumnView, KeyColumns};

/// Rows that a block of `scatter_rows` handles.
pub const SCATTER_TILE_ROWS: u64 = 4096;
/// Columns of one launch.
pub const SCATTER_COLUMNS_MAX: usize = 8;
/// Blocks of memory that one launch fills.
pub const SCATTER_BLOCKS_MAX: usize = 32;
/// Parts of such a block begin at multiples of so many bytes.
pub const SCATTER_PART_ALIGNMENT: u64 = 64;

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
    /// See `assign_hash_partitions`.
    pub level: u32,
    /// 0: rows with a NULL key are spread by number.
    pub nulls_match: u32,
    /// Tiles of [`SCATTER_TILE_ROWS`] rows.
    pub tiles: u32,
    /// A byte a row, not 0 if `stay_owner` owns it whatever its keys; or 0: no such rows.
    pub staying: u64,
    /// Below `owner_count`.
    pub stay_owner: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<AssignOwners>() == 448);

/// The offsets of a column in a block of memory, in multiples of [`SCATTER_PART_ALIGNMENT`].
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ScatterPart {
    /// Cells.
    pub values: u32,
    /// Validity, where the column has one.
    pub validity: u32,
}

/// A block of memory for some of the rows, by their places in the order of owners.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ScatterBlock {
    /// The first one's place.
    pub first_row: u64,
    /// The place after the last one.
    pub end_row: u64,
    /// The address of the block.
    pub address: u64,
    /// Of each column of the launch.
    pub parts: [ScatterPart; SCATTER_COLUMNS_MAX],
}
const _: () = assert!(size_of::<ScatterBlock>() == 88);

/// Arguments of `scatter_rows`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ScatterRows {
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
    /// The columns.
    pub columns: [ColumnView; SCATTER_COLUMNS_MAX],
    /// In the order of their rows; rows of none are not copied.
    pub blocks: [ScatterBlock; SCATTER_BLOCKS_MAX],
}
const _: () = assert!(size_of::<ScatterRows>() == 3048);

/// Rows that a block of `measure_ranges`, `pack_cells` and `unpack_cells` handles.
pub const PACK_TILE_ROWS: u64 = 1024;
/// Rows that a warp of them handles.
pub const MINIBLOCK_ROWS: u64 = 128;
/// Ranges of one launch of them.
pub const PACKED_RANGES_MAX: usize = 48;
/// How the values of a range are packed: as distances from a base.
pub const FORM_DISTANCES: u32 = 1;
/// As distances from the value before, less a base.
pub const FORM_DELTAS: u32 = 2;
/// As distances of the values of runs from a base, with the row that each starts with.
pub const FORM_RUNS: u32 = 3;

/// Rows of a column of bool or integers that follow one another.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CellRangeView {
    /// Cells.
    pub cells: u64,
    /// A byte a row, or 0 if no row is NULL.
    pub validity: u64,
    /// Rows, more than 0.
    pub row_count: u64,
    /// Tiles of the ranges before.
    pub first_tile: u64,
    /// Bytes of a cell.
    pub cell_bytes: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<CellRangeView>() == 40);

/// The bounds of a range's values, written by `measure_ranges`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RangeBounds {
    /// `i64::MAX` of no value.
    pub least: i64,
    /// `i64::MIN` of no value.
    pub greatest: i64,
    /// The same for differences between a value and the one before it in its miniblock.
    pub least_delta: i64,
    /// The same.
    pub greatest_delta: i64,
    /// 1 if a value has more than 64 bits; then the others have no meaning.
    pub beyond: u64,
    /// Runs, as of `count_runs`.
    pub run_count: u64,
}
const _: () = assert!(size_of::<RangeBounds>() == 48);

impl RangeBounds {
    /// Of no value.
    pub const NONE: Self = Self {
        least: i64::MAX,
        greatest: i64::MIN,
        least_delta: i64::MAX,
        greatest_delta: i64::MIN,
        beyond: 0,
        run_count: 0,
    };
}

/// Arguments of `measure_ranges`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MeasureRanges {
    /// A [`RangeBounds`] a range, of no value before.
    pub bounds: u64,
    /// Ranges.
    pub range_count: u32,
    /// 0.
    pub reserved: u32,
    /// The ranges.
    pub ranges: [CellRangeView; PACKED_RANGES_MAX],
}
const _: () = assert!(size_of::<MeasureRanges>() == 1936);

/// A range of which each value, or delta, is at least a base, and less than 2 ^ width more.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PackedRange {
    /// The cells.
    pub source: CellRangeView,
    /// `u32` words of distances, one after another.
    pub bits: u64,
    /// Of deltas, the `i64` values with which miniblocks begin.
    pub firsts: u64,
    /// The base of distances.
    pub base: i64,
    /// Bits of a distance, 0 to 64.
    pub width: u32,
    /// [`FORM_DISTANCES`] or [`FORM_DELTAS`].
    pub form: u32,
}
const _: () = assert!(size_of::<PackedRange>() == 72);

/// Arguments of `pack_cells`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PackCells {
    /// Ranges.
    pub range_count: u32,
    /// 0.
    pub reserved: u32,
    /// The ranges.
    pub ranges: [PackedRange; PACKED_RANGES_MAX],
}
const _: () = assert!(size_of::<PackCells>() == 3464);

/// A range as runs: rows that follow one another in a tile and have one value. A NULL is in the run before it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct RunRange {
    /// The rows.
    pub source: CellRangeView,
    /// The `i64` value of each run.
    pub values: u64,
    /// The first row of each, a `u64`.
    pub starts: u64,
    /// The value of a run of NULLs alone.
    pub base: i64,
}
const _: () = assert!(size_of::<RunRange>() == 64);

/// Arguments of `count_runs` and `collect_runs`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CollectRuns {
    /// `u32` runs of each tile, written by `count_runs`.
    pub counts: u64,
    /// Their exclusive sums, `u64`, read by `collect_runs`.
    pub offsets: u64,
    /// Ranges.
    pub range_count: u32,
    /// 0.
    pub reserved: u32,
    /// The ranges.
    pub ranges: [RunRange; PACKED_RANGES_MAX],
}
const _: () = assert!(size_of::<CollectRuns>() == 3096);

/// Rows to be unpacked from the output of `pack_cells`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UnpackedRange {
    /// `u32` words of distances.
    pub bits: u64,
    /// Of deltas, the `i64` values with which miniblocks begin; of runs, the packed numbers of the rows that they start with.
    pub marks: u64,
    /// Cells.
    pub cells: u64,
    /// Rows, more than 0.
    pub row_count: u64,
    /// Tiles of the ranges before.
    pub first_tile: u64,
    /// The base of distances.
    pub base: i64,
    /// Bits of a distance, 0 to 64.
    pub width: u32,
    /// Bytes of a cell.
    pub cell_bytes: u32,
    /// [`FORM_DISTANCES`], [`FORM_DELTAS`] or [`FORM_RUNS`].
    pub form: u16,
    /// Bits of the number of a run's first row.
    pub start_width: u16,
    /// Of runs, more than 0.
    pub run_count: u32,
}
const _: () = assert!(size_of::<UnpackedRange>() == 64);

/// Arguments of `unpack_cells`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UnpackCells {
    /// Ranges.
    pub range_count: u32,
    /// 0.
    pub reserved: u32,
    /// The ranges.
    pub ranges: [UnpackedRange; PACKED_RANGES_MAX],
}
const _: () = assert!(size_of::<UnpackCells>() == 3080);

/// Bytes of text that are compressed by themselves: a piece.
pub const TEXT_PIECE_BYTES: u64 = 65536;
/// Texts of one launch.
pub const COMPRESSED_TEXTS_MAX: usize = 64;

/// Text to be compressed.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TextRange {
    /// The text, at a multiple of 4.
    pub text: u64,
    /// Its bytes, more than 0.
    pub bytes: u64,
    /// [`TEXT_PIECE_BYTES`] for the LZ4 block of each piece.
    pub slots: u64,
    /// The bytes of each, `u32`: as many as the piece has if it is not shorter, and then the slot
    /// has no meaning.
    pub sizes: u64,
    /// Pieces of the texts before.
    pub first_piece: u64,
}
const _: () = assert!(size_of::<TextRange>() == 40);

/// Arguments of `compress_texts`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CompressTexts {
    /// Texts.
    pub text_count: u32,
    /// 0.
    pub reserved: u32,
    /// The texts.
    pub texts: [TextRange; COMPRESSED_TEXTS_MAX],
}
const _: () = assert!(size_of::<CompressTexts>() == 2568);

/// A compressed text: the end of each piece behind these numbers, and the pieces.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CompressedTextView {
    /// `u32` ends, then bytes.
    pub source: u64,
    /// Bytes of both, those of the ends at least.
    pub source_bytes: u64,
    /// The address of the text.
    pub target: u64,
    /// Its bytes, more than 0.
    pub bytes: u64,
    /// Pieces of the texts before.
    pub first_piece: u64,
}
const _: () = assert!(size_of::<CompressedTextView>() == 40);

/// Arguments of `decompress_texts`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct DecompressTexts {
    /// A `u32` that is set to 1 if a piece is invalid.
    pub refused: u64,
    /// Texts.
    pub text_count: u32,
    /// 0.
    pub reserved: u32,
    /// The texts.
    pub texts: [CompressedTextView; COMPRESSED_TEXTS_MAX],
}
const _: () = assert!(size_of::<DecompressTexts>() == 2576);
