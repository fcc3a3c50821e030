//! Joins and sets of keys: kernels/abi/join.h and filter.h.

use bytemuck::{Pod, Zeroable};

use super::{ColumnView, KeyColumns};

/// Arguments of `hash_keys`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct HashKeys {
    /// The columns to hash.
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
    /// Pairs of each probe row; those that are not written yet.
    pub counts: u64,
    /// Where the next of its pairs goes.
    pub offsets: u64,
    /// Pairs' probe rows.
    pub probe_rows: u64,
    /// Pairs' build rows.
    pub build_rows: u64,
    /// The build row with which a launch that resumes goes on; 0 if none has to.
    pub cursors: u64,
    /// The probe rows with which the next launch goes on are added.
    pub unfinished: u64,
    /// [`SLOTS_BY_HASH`] or [`SLOTS_BY_KEY`].
    pub slots: u32,
    /// Along a chain.
    pub steps_max: u32,
    /// Whether chains are gone on with.
    pub resumes: u32,
    /// Whether a row without a match is a pair too.
    pub keep_unmatched: u32,
}
const _: () = assert!(size_of::<ProbeRows>() == 912);

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
    /// The keys to insert.
    pub keys: KeyColumns,
    /// Their set.
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
    /// The keys to look up.
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
