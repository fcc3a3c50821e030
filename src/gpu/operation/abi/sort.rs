//! Orders and partitions: kernels/abi/sort.h and exchange.h.

use bytemuck::{Pod, Zeroable};

use super::{ColumnView, KeyColumns};
use crate::operation::PARTITIONS_MAX;

/// Values of a digit of a sort.
pub const DIGIT_VALUES: u64 = 256;
/// Rows that a block of a sort ranks.
pub const SORT_TILE_ROWS: u64 = 2048;
/// Which word of a sort key: 0 for NULLs, 1 for others.
pub const SORT_WORD_NULL: u32 = 0xffff_ffff;
/// Which word of a sort key: the length of strings.
pub const SORT_WORD_LENGTH: u32 = 0xffff_fffe;

// A partition is a digit.
const _: () = assert!(PARTITIONS_MAX as u64 <= DIGIT_VALUES);

/// A summary of a sort key's word in the rows that are not NULL. All 0 before.
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
    /// The words to sort by.
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
    /// The words to sort by.
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

/// Bytes of a text that a launch of `compare_texts` may compare are fewer.
pub const TEXT_STRETCH_MAX: u64 = 1 << 22;

/// Arguments of `compare_texts`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CompareTexts {
    /// The texts, by row.
    pub cells: u64,
    /// Rows, group by group.
    pub rows: u64,
    /// The place that a place's group is compared with; 0: the middle of a single group.
    pub leaders: u64,
    /// The first place of each place's group.
    pub groups: u64,
    /// Bytes known to be the group's; then those that are the leader's too.
    pub shared: u64,
    /// The group, and where and to which side the text leaves the leader.
    pub group_words: u64,
    /// The bytes from there on.
    pub text_words: u64,
    /// Places.
    pub count: u64,
    /// Compared of a text; less than [`TEXT_STRETCH_MAX`].
    pub bytes_max: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<CompareTexts>() == 72);

/// Arguments of `mark_text_groups`, `rank_text_groups` and `keep_text_groups`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct TextGroups {
    /// See [`CompareTexts`].
    pub rows: u64,
    /// 0: a single group.
    pub groups: u64,
    /// See [`CompareTexts`].
    pub shared: u64,
    /// See [`CompareTexts`].
    pub group_words: u64,
    /// See [`CompareTexts`].
    pub text_words: u64,
    /// Places in their new order.
    pub order: u64,
    /// Whether a group starts there, in the new order as all that follows.
    pub starts: u64,
    /// Exclusive sums of them.
    pub starts_before: u64,
    /// Where groups start.
    pub firsts: u64,
    /// By row: the group's first place is added, less that of the group before.
    pub ranks: u64,
    /// Whether more bytes decide.
    pub kept: u64,
    /// Exclusive sums of them.
    pub kept_before: u64,
    /// The places that are kept.
    pub kept_places: u64,
    /// The next round's rows.
    pub kept_rows: u64,
    /// Its groups.
    pub kept_groups: u64,
    /// Its leaders.
    pub kept_leaders: u64,
    /// The common prefixes of its groups.
    pub kept_shared: u64,
    /// Places.
    pub count: u64,
    /// Groups in the new order.
    pub group_count: u64,
    /// Places of the next round.
    pub kept_count: u64,
}
const _: () = assert!(size_of::<TextGroups>() == 160);

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
