//! Arguments of kernels, laid out as in kernels/abi. Sizes are asserted on both sides.
//!
//! - `rows.rs`, `join.rs`, `group.rs`, `sort.rs`, `exchange.rs`: arguments of kernels by theme

mod exchange;
mod group;
mod join;
mod rows;
mod sort;

use bytemuck::{Pod, Zeroable};

use crate::{
    device::{Buffer, Column},
    operation::KEYS_MAX,
};
pub use exchange::{
    AssignOwners, COMPRESSED_TEXTS_MAX, CellRangeView, CollectRuns, CompressTexts, CompressedTextView,
    DecompressTexts, FORM_DELTAS, FORM_DISTANCES, FORM_RUNS, MINIBLOCK_ROWS, MeasureRanges, PACK_TILE_ROWS,
    PACKED_RANGES_MAX, PackCells, PackedRange, RangeBounds, RunRange, SCATTER_BLOCKS_MAX,
    SCATTER_COLUMNS_MAX, SCATTER_PART_ALIGNMENT, SCATTER_TILE_ROWS, ScatterBlock, ScatterPart, ScatterRows,
    TEXT_PIECE_BYTES, TextRange, UnpackCells, UnpackedRange,
};
pub use group::{
    AccumulateGroups, AccumulateSlots, AssignGroups, BLOCK_SLOTS_MAX, FEW_GROUPS_MAX, FinishSums,
    LARGE_PRIVATE_GROUPS_MAX, LARGE_SUM_WORDS, PRIVATE_SLOT_THREADS, PRIVATE_SLOTS_MAX, SLOT_CELLS_MAX,
    SLOT_ROWS, SlotInput, SlotKeyTarget, SlotKeyView, SlotOutput, TakeSlots,
};
pub use join::{
    FindEqualKeys, HashKeys, InsertBuildRows, InsertFilterKeys, KeyFilterView, MeasureKeys, ProbeRows,
    SLOTS_BY_HASH, SLOTS_BY_KEY, TestFilterKeys, WritePairs,
};
pub use rows::{
    COPIED_RANGES_MAX, COPY_TILE_BYTES, CombineFlags, CopiedRange, CopyRanges, CopyStrings,
    GATHERED_COLUMNS_MAX, GatherCells, GatheredColumn, MarkRows, MoveStrings, PlaceStrings, SCAN_STATE_WORDS,
    ScanCounts, TILE_ROWS,
};
pub use sort::{
    AssignHashPartitions, AssignRangePartitions, CompareTexts, DIGIT_VALUES, EncodeSortWords,
    MeasureSortWords, SORT_TILE_ROWS, SORT_WORD_LENGTH, SORT_WORD_NULL, SortDigits, SortWordBits,
    TEXT_STRETCH_MAX, TextGroups,
};

/// A column as a kernel reads or writes it: `ColumnView` of kernels/abi/column.h.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ColumnView {
    /// Address of the first cell.
    pub values: u64,
    /// Address of the first validity byte, or 0 if no row is NULL.
    pub validity: u64,
    /// [`crate::device::CellType`] as a number.
    pub cell_type: u32,
    /// Bytes of a cell.
    pub cell_bytes: u32,
}
const _: () = assert!(size_of::<ColumnView>() == 24);

impl Column {
    /// The column in the form for kernels.
    pub(super) fn view(&self) -> ColumnView {
        ColumnView {
            values: self.values.address(),
            validity: self.validity.as_ref().map_or(0, Buffer::address),
            cell_type: self.cell_type as u32,
            cell_bytes: self.cell_type.bytes(),
        }
    }
}

/// A kernel's report of a fault: `Status` of kernels/abi/status.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Status {
    /// `ErrorCode`; 0 if nothing.
    pub code: u32,
    /// The detail of the code.
    pub detail: u32,
    /// Of an expression: the bits of what failed.
    pub value: u64,
}

/// Key columns: `KeyColumns` of kernels/abi/join.h.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct KeyColumns {
    /// The first `count` are keys.
    pub columns: [ColumnView; KEYS_MAX],
    /// How many.
    pub count: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<KeyColumns>() == 392);
