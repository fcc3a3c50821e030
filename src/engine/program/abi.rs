//! What `evaluate_program` is given, laid out as in kernels/abi/program.h.

use bytemuck::{Pod, Zeroable};

/// Registers of a program.
pub(super) const PROGRAM_REGISTERS: usize = 64;
/// Registers of a program that the kernel for small programs runs.
pub(super) const PROGRAM_REGISTERS_SMALL: usize = 16;
/// Registers of a program that the kernel with pairs of cells runs.
pub(super) const PROGRAM_REGISTERS_INT256: usize = 32;
/// Input columns that a program may load.
pub(super) const PROGRAM_COLUMNS_MAX: usize = 96;
/// Output columns of a program.
pub(super) const PROGRAM_OUTPUTS_MAX: usize = 64;
/// Nested activities.
pub(super) const PROGRAM_DEPTH_MAX: usize = 64;
/// Marks an operand that is the number of a constant.
pub(super) const OPERAND_CONSTANT: u16 = 0x8000;

/// `Instruction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Instruction {
    pub(super) opcode: u16,
    pub(super) target: u16,
    pub(super) a: u16,
    pub(super) b: u16,
    pub(super) c: u16,
    pub(super) mode: u16,
    pub(super) detail: u32,
}
const _: () = assert!(size_of::<Instruction>() == 16);

/// `ProgramColumn`: addresses of cells and of validity bytes, 0 if there are none.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ProgramColumn {
    pub(super) values: u64,
    pub(super) validity: u64,
}

/// Arguments of `evaluate_program`, `evaluate_small_program` and `evaluate_int256_program`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct EvaluateProgram {
    pub(super) instructions: u64,
    pub(super) constants: u64,
    pub(super) row_count: u64,
    pub(super) status: u64,
    pub(super) text: u64,
    pub(super) text_bytes_max: u64,
    pub(super) text_bytes: u64,
    pub(super) instruction_count: u32,
    pub(super) reserved: u32,
    pub(super) columns: [ProgramColumn; PROGRAM_COLUMNS_MAX],
    pub(super) outputs: [ProgramColumn; PROGRAM_OUTPUTS_MAX],
}
const _: () = assert!(size_of::<EvaluateProgram>() == 64 + 16 * (PROGRAM_COLUMNS_MAX + PROGRAM_OUTPUTS_MAX));

/// What a launch leaves: `Status`, and the bytes of text that it wanted.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Outcome {
    pub(super) status: crate::device::abi::Status,
    pub(super) text_bytes: u64,
}
const _: () = assert!(size_of::<Outcome>() == 16);
