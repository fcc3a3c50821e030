//! Groups and slots: kernels/abi/aggregate.h.

use bytemuck::{Pod, Zeroable};

use super::{ColumnView, KeyColumns};
use crate::operation::{SLOT_INPUTS_MAX, SLOT_OUTPUTS_MAX};

/// Groups of which every thread of a block keeps a sum of its own.
pub const PRIVATE_GROUPS_MAX: u64 = 8;
/// Words of a sum that 128 bits might not hold.
pub const LARGE_SUM_WORDS: usize = 5;
/// [`PRIVATE_GROUPS_MAX`] for such sums.
pub const LARGE_PRIVATE_GROUPS_MAX: u64 = 4;

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
