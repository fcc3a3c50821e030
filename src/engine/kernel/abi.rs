//! What kernels are given, laid out as in kernels/abi. Sizes are asserted on both sides.

use bytemuck::{Pod, Zeroable};

use crate::{
    device::{Buffer, Column},
    operation::{KEYS_MAX, PARTITIONS_MAX, SELECTED_TILE_ROWS, SLOT_INPUTS_MAX, SLOT_OUTPUTS_MAX},
    program::{PROGRAM_COLUMNS_MAX, PROGRAM_OUTPUTS_MAX},
};

/// Rows that a block of a tiled kernel handles.
pub const TILE_ROWS: u64 = 4096;
/// Groups of which every thread of a block keeps a sum of its own.
pub const PRIVATE_GROUPS_MAX: u64 = 8;
/// Words of a sum that 128 bits might not hold.
pub const LARGE_SUM_WORDS: usize = 5;
/// [`PRIVATE_GROUPS_MAX`] for such sums.
pub const LARGE_PRIVATE_GROUPS_MAX: u64 = 4;
/// Values of a digit of a sort.
pub const DIGIT_VALUES: u64 = 256;
/// Rows that a block of a sort ranks.
pub const SORT_TILE_ROWS: u64 = 2048;
/// Which word of a sort key: 0 for NULLs, 1 for others.
pub const SORT_WORD_NULL: u32 = 0xffff_ffff;
/// Which word of a sort key: the length of strings.
pub const SORT_WORD_LENGTH: u32 = 0xffff_fffe;

// A partition is a digit, and which tiles have rows is told of the tiles that kernels sum up.
const _: () = assert!(PARTITIONS_MAX as u64 <= DIGIT_VALUES && SELECTED_TILE_ROWS as u64 == TILE_ROWS);

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
    /// The column as kernels are given it.
    pub(super) fn view(&self) -> ColumnView {
        ColumnView {
            values: self.values.address(),
            validity: self.validity.as_ref().map_or(0, Buffer::address),
            cell_type: self.cell_type as u32,
            cell_bytes: self.cell_type.bytes(),
        }
    }
}

/// What went wrong in a kernel: `Status` of kernels/abi/status.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Status {
    /// `ErrorCode`; 0 if nothing.
    pub code: u32,
    /// What the code says it is.
    pub detail: u32,
}

/// Arguments of `sum_tiles`, `write_offsets` and `select_rows`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ScanCounts {
    /// One or four bytes a row.
    pub counts: u64,
    /// Totals of tiles, or their exclusive sums.
    pub tile_totals: u64,
    /// Offsets, or numbers of counted rows.
    pub target: u64,
    /// Rows.
    pub row_count: u64,
    /// 1 or 4.
    pub count_bytes: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<ScanCounts>() == 40);

/// Arguments of `scan_totals`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ScanTotals {
    /// Turned into exclusive sums in place.
    pub totals: u64,
    /// Where the sum of all goes.
    pub total: u64,
    /// Totals.
    pub count: u64,
}
const _: () = assert!(size_of::<ScanTotals>() == 24);

/// Arguments of `gather_cells`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct GatherCells {
    /// What is gathered from.
    pub source: ColumnView,
    /// Row numbers, or 0 for rows in order.
    pub rows: u64,
    /// Target cells.
    pub values: u64,
    /// Target validity, or 0.
    pub validity: u64,
    /// Rows written.
    pub row_count: u64,
    /// Added to every row number.
    pub first_row: u64,
}
const _: () = assert!(size_of::<GatherCells>() == 64);

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
    /// Cells that point into it, or 0.
    pub cells: u64,
    /// Rows.
    pub row_count: u64,
}
const _: () = assert!(size_of::<CopyStrings>() == 64);

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

/// Arguments of `hash_keys`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct HashKeys {
    /// What is hashed.
    pub keys: KeyColumns,
    /// One a row.
    pub hashes: u64,
    /// Rows.
    pub row_count: u64,
    /// Whether NULL is a value.
    pub nulls_match: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<HashKeys>() == 416);

/// Arguments of `insert_build_rows`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct InsertBuildRows {
    /// The key, if slots are found by it.
    pub key: ColumnView,
    /// One a row, if slots are found by hash.
    pub hashes: u64,
    /// The last row of each chain.
    pub heads: u64,
    /// The next row in the chain.
    pub next_rows: u64,
    /// Rows.
    pub row_count: u64,
    /// Chains.
    pub slot_count: u64,
    /// The key of the first slot.
    pub least: i64,
    /// Set if two rows have one slot.
    pub shared: u64,
    /// [`SLOTS_BY_HASH`] or [`SLOTS_BY_KEY`].
    pub slots: u32,
    /// Nothing.
    pub reserved: u32,
}
const _: () = assert!(size_of::<InsertBuildRows>() == 88);

/// A key's slot is told by its hash; there is a power of two of them.
pub const SLOTS_BY_HASH: u32 = 0;
/// A key's slot is told by the key itself.
pub const SLOTS_BY_KEY: u32 = 1;

/// Arguments of `measure_keys`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct MeasureKeys {
    /// Integers.
    pub keys: ColumnView,
    /// Rows.
    pub row_count: u64,
    /// A [`crate::operation::KeyRange`].
    pub range: u64,
}
const _: () = assert!(size_of::<MeasureKeys>() == 40);

/// Arguments of `find_equal_keys`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct FindEqualKeys {
    /// Of the build side.
    pub keys: KeyColumns,
    /// One a row.
    pub hashes: u64,
    /// The next row in the chain.
    pub next_rows: u64,
    /// Rows.
    pub row_count: u64,
    /// Set if two rows have equal keys.
    pub found: u64,
}
const _: () = assert!(size_of::<FindEqualKeys>() == 424);

/// Arguments of `match_rows`, `count_matches` and `write_matches`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ProbeRows {
    /// Of the build side.
    pub build_keys: KeyColumns,
    /// Of the probe side.
    pub probe_keys: KeyColumns,
    /// One a build row.
    pub build_hashes: u64,
    /// The last row of each chain.
    pub heads: u64,
    /// The next row in the chain.
    pub next_rows: u64,
    /// Chains.
    pub slot_count: u64,
    /// The key of the first slot.
    pub least: i64,
    /// One a probe row.
    pub probe_hashes: u64,
    /// Probe rows.
    pub probe_row_count: u64,
    /// Whether a row has a match.
    pub flags: u64,
    /// Pairs of each probe row.
    pub counts: u64,
    /// Where its pairs go.
    pub offsets: u64,
    /// Pairs' probe rows.
    pub probe_rows: u64,
    /// Pairs' build rows.
    pub build_rows: u64,
    /// [`SLOTS_BY_HASH`] or [`SLOTS_BY_KEY`].
    pub slots: u32,
    /// Nothing.
    pub reserved: u32,
    /// Whether one match is enough.
    pub first_only: u32,
    /// Whether a row without a match is a pair too.
    pub keep_unmatched: u32,
}
const _: () = assert!(size_of::<ProbeRows>() == 896);

/// A set of keys.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct KeyFilterView {
    /// Words of 32 bits.
    pub words: u64,
    /// Bits of a bitmap, blocks of a Bloom filter.
    pub slot_count: u64,
    /// The key of a bitmap's first bit.
    pub least: i64,
}
const _: () = assert!(size_of::<KeyFilterView>() == 24);

/// Arguments of `insert_bitmap_keys` and `insert_bloom_keys`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct InsertFilterKeys {
    /// What is inserted.
    pub keys: KeyColumns,
    /// What they are inserted into.
    pub filter: KeyFilterView,
    /// Rows.
    pub row_count: u64,
    /// Set if two rows have one key of a bitmap.
    pub repeated: u64,
}
const _: () = assert!(size_of::<InsertFilterKeys>() == 432);

/// Arguments of `test_bitmap_keys` and `test_bloom_keys`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct TestFilterKeys {
    /// What is looked up.
    pub keys: KeyColumns,
    /// Where.
    pub filter: KeyFilterView,
    /// Rows.
    pub row_count: u64,
    /// A byte a row: whether it is asked about; 0: all are.
    pub asked: u64,
    /// A byte a row: whether it passes. May be `asked`.
    pub flags: u64,
    /// A [`crate::operation::FilterCounts`] that is added to, or 0.
    pub counts: u64,
}
const _: () = assert!(size_of::<TestFilterKeys>() == 448);

/// Arguments of `write_pairs`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct WritePairs {
    /// Pairs' probe rows.
    pub probe_rows: u64,
    /// Pairs' build rows.
    pub build_rows: u64,
    /// The first pair's number.
    pub first_pair: u64,
    /// Pairs.
    pub pair_count: u64,
    /// Build rows.
    pub build_row_count: u64,
}
const _: () = assert!(size_of::<WritePairs>() == 40);

/// Arguments of `assign_groups` and `number_groups`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AssignGroups {
    /// What is grouped by.
    pub keys: KeyColumns,
    /// One a row.
    pub hashes: u64,
    /// The row that stands for a group.
    pub slots: u64,
    /// The row that stands for a row's group.
    pub leaders: u64,
    /// 1 for a row that stands for its group.
    pub leader_flags: u64,
    /// Sums of the flags.
    pub offsets: u64,
    /// Group numbers.
    pub groups: u64,
    /// Rows.
    pub row_count: u64,
    /// A power of two.
    pub slot_count: u64,
    /// A `Status`.
    pub status: u64,
}
const _: () = assert!(size_of::<AssignGroups>() == 464);

/// Arguments of `accumulate_groups`, `accumulate_large_sums` and their kin for few groups.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AccumulateGroups {
    /// What is added, or nothing.
    pub input: ColumnView,
    /// Group numbers, or 0 for one group.
    pub groups: u64,
    /// Rows.
    pub row_count: u64,
    /// Rows that are not NULL, a group.
    pub counts: u64,
    /// Two words a group, or [`LARGE_SUM_WORDS`].
    pub sums: u64,
    /// Rows that hold a group's value.
    pub rows: u64,
    /// A `Status`.
    pub status: u64,
    /// Groups.
    pub group_count: u32,
    /// `AccumulatorKind`.
    pub kind: u32,
}
const _: () = assert!(size_of::<AccumulateGroups>() == 80);

/// Arguments of `finish_sums` and `finish_large_sums`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct FinishSums {
    /// Rows that are not NULL, a group.
    pub counts: u64,
    /// Two words a group, or [`LARGE_SUM_WORDS`].
    pub sums: u64,
    /// Target cells.
    pub values: u64,
    /// Target validity.
    pub validity: u64,
    /// Groups.
    pub group_count: u64,
    /// A `Status`.
    pub status: u64,
    /// 8, 16 or 32.
    pub cell_bytes: u32,
    /// The error of a sum that does not fit.
    pub overflow_code: u32,
    /// What goes with the error: the most digits that the cell has.
    pub overflow_detail: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<FinishSums>() == 64);

/// An input of aggregates that slots hold.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SlotInput {
    /// What is added.
    pub input: ColumnView,
    /// Word of the count of rows whose input is not NULL.
    pub count_word: u32,
    /// First word of the sum; 0 if none is wanted.
    pub sum_word: u32,
}
const _: () = assert!(size_of::<SlotInput>() == 32);

/// Arguments of `accumulate_slots`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AccumulateSlots {
    /// Integers.
    pub key: ColumnView,
    /// Words of all slots; the last slot is that of NULL.
    pub slots: u64,
    /// Rows.
    pub row_count: u64,
    /// The key of the first slot.
    pub least: i64,
    /// Slots without that of NULL.
    pub slot_count: u64,
    /// Words of a slot.
    pub slot_words: u32,
    /// How many inputs.
    pub input_count: u32,
    /// Inputs.
    pub inputs: [SlotInput; SLOT_INPUTS_MAX],
}
const _: () = assert!(size_of::<AccumulateSlots>() == 320);

/// What is taken of a slot.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SlotOutput {
    /// Where the words go, slot after slot.
    pub target: u64,
    /// The first word.
    pub word: u32,
    /// 1 or 2.
    pub words: u32,
}
const _: () = assert!(size_of::<SlotOutput>() == 16);

/// Arguments of `flag_slots` and `take_slots`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct TakeSlots {
    /// Words of all slots.
    pub slots: u64,
    /// 1 for a slot that has rows.
    pub flags: u64,
    /// Which slots are taken.
    pub numbers: u64,
    /// How many are taken.
    pub row_count: u64,
    /// Cells of the key.
    pub keys: u64,
    /// Validity of the key, or 0.
    pub validity: u64,
    /// The key of the first slot.
    pub least: i64,
    /// Slots without that of NULL.
    pub slot_count: u64,
    /// Words of a slot.
    pub slot_words: u32,
    /// Bytes of a key: 2, 4 or 8.
    pub key_bytes: u32,
    /// How many outputs.
    pub output_count: u32,
    /// 0.
    pub reserved: u32,
    /// Outputs.
    pub outputs: [SlotOutput; SLOT_OUTPUTS_MAX],
}
const _: () = assert!(size_of::<TakeSlots>() == 464);

/// What a word of a sort key is like in the rows that are not NULL. All 0 before.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SortWordBits {
    /// Bits that are 1 in a row.
    pub ones: u64,
    /// Bits that are 0 in a row.
    pub zeros: u64,
    /// Of the words.
    pub greatest: u64,
}
const _: () = assert!(size_of::<SortWordBits>() == 24);

/// Arguments of `measure_sort_words`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct MeasureSortWords {
    /// The key.
    pub column: ColumnView,
    /// A [`SortWordBits`].
    pub bits: u64,
    /// Rows.
    pub row_count: u64,
    /// Which 64 bits of the key.
    pub word: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<MeasureSortWords>() == 48);

/// Arguments of `encode_sort_words`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct EncodeSortWords {
    /// The key.
    pub column: ColumnView,
    /// The order so far.
    pub rows: u64,
    /// What is sorted by.
    pub words: u64,
    /// Rows.
    pub row_count: u64,
    /// Which 64 bits of the key.
    pub word: u32,
    /// 1: greatest first.
    pub descending: u32,
}
const _: () = assert!(size_of::<EncodeSortWords>() == 56);

/// Arguments of `count_digits` and `scatter_digits`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SortDigits {
    /// What is sorted by.
    pub words: u64,
    /// Row numbers.
    pub rows: u64,
    /// Counts by digit and tile.
    pub digit_counts: u64,
    /// Their exclusive sums.
    pub digit_offsets: u64,
    /// Words in order.
    pub target_words: u64,
    /// Row numbers in order.
    pub target_rows: u64,
    /// Rows.
    pub row_count: u64,
    /// The digit's lowest bit.
    pub shift: u32,
    /// Blocks.
    pub tiles: u32,
}
const _: () = assert!(size_of::<SortDigits>() == 64);

/// Arguments of `assign_hash_partitions`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AssignHashPartitions {
    /// One a row.
    pub hashes: u64,
    /// The partition of each row.
    pub words: u64,
    /// The row's own number.
    pub rows: u64,
    /// Rows.
    pub row_count: u64,
    /// At most [`PARTITIONS_MAX`].
    pub partition_count: u32,
    /// Rows that share a partition at one level are spread at the next.
    pub level: u32,
}
const _: () = assert!(size_of::<AssignHashPartitions>() == 40);

/// Arguments of `assign_range_partitions`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AssignRangePartitions {
    /// The rows' keys.
    pub keys: KeyColumns,
    /// In order, no two equal.
    pub splitters: KeyColumns,
    /// Twice the splitters before the row, and one more if the next is equal.
    pub words: u64,
    /// The row's own number.
    pub rows: u64,
    /// Rows.
    pub row_count: u64,
    /// Splitters.
    pub splitter_count: u32,
    /// A bit a key: greatest first.
    pub descending: u32,
    /// A bit a key: NULLs come first.
    pub nulls_first: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<AssignRangePartitions>() == 824);

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

/// `ProgramColumn`: addresses of cells and of validity bytes, 0 if there are none.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ProgramColumn {
    pub values: u64,
    pub validity: u64,
}

/// Arguments of `evaluate_program`, `evaluate_small_program` and `evaluate_int256_program`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct EvaluateProgram {
    pub instructions: u64,
    pub constants: u64,
    pub row_count: u64,
    pub status: u64,
    pub text: u64,
    pub text_bytes_max: u64,
    pub text_bytes: u64,
    pub instruction_count: u32,
    pub reserved: u32,
    pub columns: [ProgramColumn; PROGRAM_COLUMNS_MAX],
    pub outputs: [ProgramColumn; PROGRAM_OUTPUTS_MAX],
}
const _: () = assert!(size_of::<EvaluateProgram>() == 64 + 16 * (PROGRAM_COLUMNS_MAX + PROGRAM_OUTPUTS_MAX));

/// What a launch leaves: `Status`, and the bytes of text that it wanted.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Outcome {
    pub status: Status,
    pub text_bytes: u64,
}
const _: () = assert!(size_of::<Outcome>() == 16);
