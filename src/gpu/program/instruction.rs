//! Instructions and limits of programs, laid out as in kernels/abi/program.h.

use bytemuck::{Pod, Zeroable};

/// Registers of a program.
pub(crate) const PROGRAM_REGISTERS: usize = 64;
/// Registers of a program that the kernel for small programs runs.
pub(crate) const PROGRAM_REGISTERS_SMALL: usize = 16;
/// Registers of a program that the kernel with pairs of cells runs.
pub(crate) const PROGRAM_REGISTERS_INT256: usize = 32;
/// Input columns that a program may load.
pub(crate) const PROGRAM_COLUMNS_MAX: usize = 96;
/// Output columns of a program.
pub(crate) const PROGRAM_OUTPUTS_MAX: usize = 64;
/// Nested activities.
pub(crate) const PROGRAM_DEPTH_MAX: usize = 64;
/// Marks an operand that is the number of a constant.
pub(crate) const OPERAND_CONSTANT: u16 = 0x8000;

/// `Instruction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(super) opcode: u16,
    pub(super) target: u16,
    pub(super) a: u16,
    pub(super) b: u16,
    pub(super) c: u16,
    pub(super) mode: u16,
    pub(super) detail: u32,
}
const _: () = assert!(size_of::<Instruction>() == 16);
