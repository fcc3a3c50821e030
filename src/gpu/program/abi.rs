//! Programs: kernels/abi/program.h, as far as `instruction.rs` does not have it.

use bytemuck::{Pod, Zeroable};

use super::instruction::{PROGRAM_COLUMNS_MAX, PROGRAM_OUTPUTS_MAX};
use crate::operation::Status;

/// `ProgramColumn`: addresses of cells and of validity bytes, 0 if there are none.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ProgramColumn {
    pub values: u64,
    pub validity: u64,
}

/// Arguments of the kernels that evaluate programs.
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

/// The results of a launch: `Status`, and the bytes of text that it wanted.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Outcome {
    pub status: Status,
    pub text_bytes: u64,
}
const _: () = assert!(size_of::<Outcome>() == 24);

/// Terms of a condition that `test_ranges` tests.
pub const RANGE_TERMS_MAX: usize = 16;

/// A column of integers, or of booleans.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RangeOperand {
    pub values: u64,
    pub validity: u64,
    /// 1, 2, 4 or 8.
    pub cell_bytes: u32,
    pub reserved: u32,
}

/// A comparison of a column with a range, or with another column.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RangeTerm {
    pub operand: RangeOperand,
    /// All zeros: the range counts.
    pub other: RangeOperand,
    pub least: i64,
    pub greatest: i64,
    /// A set of [`super::opcode::ordering`].
    pub orderings: u32,
    pub reserved: u32,
}

/// Arguments of `test_ranges`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TestRanges {
    pub flags: u64,
    pub row_count: u64,
    pub term_count: u32,
    pub reserved: u32,
    pub terms: [RangeTerm; RANGE_TERMS_MAX],
}
const _: () = assert!(size_of::<TestRanges>() == 1176);
