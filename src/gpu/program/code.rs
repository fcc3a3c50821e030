//! Byte-code: the compiled form of a program, the same for every device.

use std::{collections::HashMap, sync::Mutex};

use pystachio_plan::DataType;

use super::{abi::Instruction, constants::ConstantImage, registers::RegisterAllocation};
use crate::device::{Buffer, Stream};

/// Requirements of a program.
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
    /// Whether it runs the same steps in every row, by frequent and small instructions.
    pub(crate) is_uniform: bool,
    /// Whether it does so, and its values have at most 64 bits.
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
    /// Copies in a device's memory, if it reads them there: one a stream, so that each is freed in
    /// the order of the stream that reads it.
    pub(crate) copies: Mutex<HashMap<Stream, Buffer>>,
}

impl Code {
    pub(super) fn new(
        allocation: RegisterAllocation,
        constants: ConstantImage,
        loaded: Vec<(usize, DataType)>,
        needs: Needs,
    ) -> Self {
        let RegisterAllocation { instructions, register_count } = allocation;
        Self { instructions, constants, loaded, needs, register_count, copies: Mutex::default() }
    }
}
