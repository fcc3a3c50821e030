//! Groups and slots: kernels/abi/aggregate.h.

use bytemuck::{Pod, Zeroable};

use super::{ColumnView, KeyColumns};
use crate::operation::{SLOT_INPUTS_MAX, SLOT_KEYS_MAX, SLOT_OUTPUTS_MAX};

/// Rows that a thread has at once.
pub const SLOT_ROWS: u64 = 4;
/// Cells of 64 bits that a block adds in.
pub const SLOT_CELLS_MAX: u64 = 4608;
/// Threads of a block each of which has cells of its own.
pub const PRIVATE_SLOT_THREADS: u64 = 128;
/// Slots of which every thread of a block keeps cells of its own.
pub const PRIVATE_SLOTS_MAX: u64 = 12;
/// Slots of which a block keeps cells.
pub const BLOCK_SLOTS_MAX: u64 = 1024;
/// Words of a sum that 128 bits might not hold.
pub const LARGE_SUM_WORDS: usize = 5;
/// Groups of which a block finds the rows with the least or greatest value by itself.
pub const FEW_GROUPS_MAX: u64 = 1024;
/// Groups of which every thread of a block keeps such a sum.
pub const LARGE_PRIVATE_GROUPS_MAX: u64 = 4;

/// Arguments of `assign_groups` and `number_groups`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AssignGroups {
    /// The keys.
    pub keys: KeyColumns,
    /// One a row.
    pub hashes: u64,
    /// The leader of a group.
    pub slots: u64,
    /// The leader of a row's group.
    pub leaders: u64,
    /// 1 for the leader of a group.
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
    /// The inputs.
    pub input: ColumnView,
    /// Group numbers, or 0 for one group.
    pub groups: u64,
    /// Rows.
    pub row_count: u64,
    /// Rows that are not NULL, a group.
    pub counts: u64,
    /// [`LARGE_SUM_WORDS`] a group.
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

/// Arguments of `finish_large_sums`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct FinishSums {
    /// Rows that are not NULL, a group.
    pub counts: u64,
    /// [`LARGE_SUM_WORDS`] a group.
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
    /// The detail of the error: the most digits that the cell has.
    pub overflow_detail: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<FinishSums>() == 64);

/// The places of a key.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SlotKeyView {
    /// Integers.
    pub key: ColumnView,
    /// The key of the first place.
    pub least: i64,
    /// Without that of NULL.
    pub place_count: u64,
    /// Slots from one place to the next.
    pub stride: u64,
}
const _: () = assert!(size_of::<SlotKeyView>() == 48);

/// An input of aggregates that slots hold.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SlotInput {
    /// The values.
    pub input: ColumnView,
    /// Word of the count of rows whose input is NULL.
    pub null_word: u32,
    /// First word of the sum; 0 for none.
    pub sum_word: u32,
    /// Which blocks add it.
    pub share: u16,
    /// The share's cell that counts NULLs; 0 if there are none.
    pub null_cell: u16,
    /// The share's cell of the sum; 0 for none.
    pub sum_cell: u16,
    /// 0.
    pub reserved: u16,
}
const _: () = assert!(size_of::<SlotInput>() == 40);

/// Arguments of `accumulate_slots` and its kin for few slots.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AccumulateSlots {
    /// Words of all slots.
    pub slots: u64,
    /// Rows.
    pub row_count: u64,
    /// Slots.
    pub slot_count: u64,
    /// A `Status`.
    pub status: u64,
    /// Words of a slot.
    pub slot_words: u32,
    /// How many keys.
    pub key_count: u32,
    /// How many inputs.
    pub input_count: u32,
    /// Parts of the inputs, of which a block adds one.
    pub share_count: u32,
    /// Keys.
    pub keys: [SlotKeyView; SLOT_KEYS_MAX],
    /// Inputs.
    pub inputs: [SlotInput; SLOT_INPUTS_MAX],
}
const _: () = assert!(size_of::<AccumulateSlots>() == 560);

/// A key of the slots that are taken.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SlotKeyTarget {
    /// Target cells.
    pub target: u64,
    /// Target validity, or 0.
    pub validity: u64,
    /// See [`SlotKeyView`].
    pub least: i64,
    /// See [`SlotKeyView`].
    pub place_count: u64,
    /// See [`SlotKeyView`].
    pub stride: u64,
    /// 2, 4 or 8.
    pub cell_bytes: u32,
    /// 1 if NULL has a place.
    pub null_places: u32,
}
const _: () = assert!(size_of::<SlotKeyTarget>() == 48);

/// A count or a sum that is taken of slots.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct SlotOutput {
    /// Target cells.
    pub target: u64,
    /// Target validity of a sum.
    pub validity: u64,
    /// See [`SlotInput`]; 0 for a count of rows.
    pub null_word: u32,
    /// See [`SlotInput`].
    pub sum_word: u32,
    /// 8, or, of a sum, 16 or 32.
    pub cell_bytes: u32,
    /// The error of a sum that does not fit.
    pub overflow_code: u32,
    /// The detail of the error: the most digits that the cell has.
    pub overflow_detail: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<SlotOutput>() == 40);

/// Arguments of `flag_slots` and `take_slots`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct TakeSlots {
    /// Words of all slots.
    pub slots: u64,
    /// 1 for a slot that has rows.
    pub flags: u64,
    /// Which slots are taken; 0: all.
    pub numbers: u64,
    /// How many are taken.
    pub row_count: u64,
    /// Slots.
    pub slot_count: u64,
    /// A `Status`.
    pub status: u64,
    /// Words of a slot.
    pub slot_words: u32,
    /// How many keys.
    pub key_count: u32,
    /// How many outputs.
    pub output_count: u32,
    /// 0.
    pub reserved: u32,
    /// Keys.
    pub keys: [SlotKeyTarget; SLOT_KEYS_MAX],
    /// Outputs.
    pub outputs: [SlotOutput; SLOT_OUTPUTS_MAX],
}
const _: () = assert!(size_of::<TakeSlots>() == 896);
