//! Byte-code: what a program becomes for every device.

use std::{collections::HashMap, sync::Mutex};

use pystachio_plan::DataType;

use super::{constants::ConstantImage, instruction::Instruction, registers::Allocation};
use crate::device::{Buffer, Stream};

/// What a program asks of whoever runs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Instructions that make text.
    pub(crate) makes_text: usize,
    /// Whether a row can fail.
    pub(crate) may_fault: bool,
    /// Whether it reads text.
    pub(crate) needs_text: bool,
    /// Whether it has decimals of more than 38 digits.
    pub(crate) needs_int256: bool,
    /// Whether it does the same in every row, by instructions that are frequent and small.
    pub(crate) is_uniform: bool,
    /// Whether it is such, and its values have at most 64 bits.
    pub(crate) is_narrow: bool,
}

/// Instructions and constants.
pub struct Code {
    pub(crate) instructions: Vec<Instruction>,
    pub(crate) constants: ConstantImage,
    /// The columns that it loads: place in the chunk and type.
    pub(crate) loaded: Vec<(usize, DataType)>,
    pub(crate) needs: Needs,
    pub(crate) register_count: usize,
    /// Copies in a device's memory, if it reads them there: one a stream, so that each is freed in the order of the
    /// stream that reads it.
    pub(crate) copies: Mutex<HashMap<Stream, Buffer>>,
}

impl Code {
    pub(super) fn new(
        allocation: Allocation,
        constants: ConstantImage,
        loaded: Vec<(usize, DataType)>,
        needs: Needs,
    ) -> Self {
        let Allocation { instructions, register_count } = allocation;
        Self { instructions, constants, loaded, needs, register_count, copies: Mutex::default() }
    }
}
