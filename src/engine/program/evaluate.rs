//! Launches of programs.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bytemuck::{Zeroable, cast_slice};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    Computed,
    abi::{
        EvaluateProgram, Instruction, Outcome, PROGRAM_COLUMNS_MAX, PROGRAM_OUTPUTS_MAX,
        PROGRAM_REGISTERS_SMALL, ProgramColumn,
    },
    constants::ConstantImage,
    registers::Allocation,
    status::status_error,
};
use crate::device::{Buffer, CellType, Chunk, Column, DeviceMemory, Kernel, Stream};

/// The most blocks of a launch; threads stride over the rows.
const GRID_MAX: u64 = 4096;
/// Space that the first launch has for every text that a row makes.
const TEXT_BYTES_A_ROW: u64 = 32;
/// Launches with ever more space for text. A launch wants all that it got to know of, so that every nesting
/// of functions that make text takes at most one more.
const TEXT_LAUNCHES_MAX: usize = 64;
const CELL_BYTES: usize = 16;

/// What a program asks of its launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Instructions that make text.
    pub(super) makes_text: usize,
    /// Whether a row can fail.
    pub(super) may_fault: bool,
    /// Whether it reads text.
    pub(super) needs_text: bool,
    /// Whether it has decimals of more than 38 digits.
    pub(super) needs_int256: bool,
}

/// The rows of a launch.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Bytes of a row in all columns.
    row_bytes: u64,
    /// Whether outputs are text.
    gives_text: bool,
}

/// Instructions and constants, and their copies on devices.
pub(super) struct Code {
    instructions: Vec<Instruction>,
    constants: ConstantImage,
    /// The columns that it loads: place in the chunk and type.
    loaded: Vec<(usize, DataType)>,
    needs: Needs,
    kernel: Kernel,
    /// A copy a stream, so that each is freed in the order of the stream that reads it.
    copies: Mutex<HashMap<Stream, Buffer>>,
}

impl Code {
    pub(super) fn new(
        allocation: Allocation,
        constants: ConstantImage,
        loaded: Vec<(usize, DataType)>,
        needs: Needs,
    ) -> Self {
        let is_small = allocation.register_count <= PROGRAM_REGISTERS_SMALL && !needs.needs_text;
        let kernel = match (needs.needs_int256, is_small) {
            (true, _) => Kernel::EvaluateInt256Program,
            (false, true) => Kernel::EvaluateSmallProgram,
            (false, false) => Kernel::EvaluateProgram,
        };
        let instructions = allocation.instructions;
        Self { instructions, constants, loaded, needs, kernel, copies: Mutex::default() }
    }

    /// The outputs over a chunk; see [`super::Program::evaluate`].
    pub(super) fn evaluate(
        &self,
        outputs: &[&Computed],
        memory: &DeviceMemory,
        chunk: &Chunk,
        stream: Stream,
    ) -> Result<Vec<Column>> {
        assert!(outputs.len() <= PROGRAM_OUTPUTS_MAX, "outputs of a program");
        let copy = self.copy(memory, stream)?;
        let columns = self.columns(chunk)?;
        let mut results = outputs
            .iter()
            .map(|computed| allocate_output(computed, memory, chunk, stream))
            .collect::<Result<Vec<Column>>>()?;
        let mut arguments = EvaluateProgram {
            instructions: copy.address(),
            constants: copy.address() + (self.instructions.len() * size_of::<Instruction>()) as u64,
            row_count: chunk.row_count as u64,
            instruction_count: self.instructions.len() as u32,
            ..EvaluateProgram::zeroed()
        };
        for (place, column) in arguments.columns.iter_mut().zip(&columns) {
            *place = address_of(column);
        }
        for (place, column) in arguments.outputs.iter_mut().zip(&results) {
            *place = address_of(column);
        }
        let row_bytes = columns.iter().copied().chain(&results).map(row_bytes).sum();
        let gives_text = results.iter().any(|column| column.cell_type == CellType::String);
        let text = self.launch(&mut arguments, Rows { row_bytes, gives_text }, memory, stream)?;
        // Text may lie in the input, among the constants, or where the launch put it.
        let texts = columns.iter().flat_map(|column| &column.strings).chain([&copy]).chain(&text);
        let texts: Vec<Buffer> = texts.cloned().collect();
        for column in results.iter_mut().filter(|column| column.cell_type == CellType::String) {
            column.strings.clone_from(&texts);
        }
        Ok(results)
    }

    /// Launches until there is space for all text; gives the space. Where faults are looked at later, a row that
    /// failed has values without a meaning until then: numbers, never addresses of text.
    fn launch(
        &self,
        arguments: &mut EvaluateProgram,
        rows: Rows,
        memory: &DeviceMemory,
        stream: Stream,
    ) -> Result<Option<Buffer>> {
        let grid = arguments.row_count.div_ceil(u64::from(self.kernel.block_threads())).min(GRID_MAX) as u32;
        let bytes = arguments.row_count * rows.row_bytes;
        if grid == 0 || !(self.needs.may_fault || self.needs.makes_text > 0) {
            memory.launch_moving(self.kernel, grid, arguments, stream, || bytes)?;
            return Ok(None);
        }
        if self.needs.makes_text == 0
            && !rows.gives_text
            && let Some(status) = memory.deferred_status(stream)?
        {
            arguments.status = status;
            memory.launch_moving(self.kernel, grid, &*arguments, stream, || bytes)?;
            return Ok(None);
        }
        let mut text_bytes = TEXT_BYTES_A_ROW * arguments.row_count * self.needs.makes_text as u64;
        for _ in 0..TEXT_LAUNCHES_MAX {
            let outcome = memory.allocate_zeroed(size_of::<Outcome>() as u64, stream)?;
            let text = match text_bytes {
                0 => None,
                _ => Some(memory.allocate(text_bytes, stream)?),
            };
            arguments.status = outcome.address();
            arguments.text = text.as_ref().map_or(0, Buffer::address);
            arguments.text_bytes = outcome.address() + size_of::<crate::device::abi::Status>() as u64;
            arguments.text_bytes_max = text_bytes;
            memory.launch_moving(self.kernel, grid, &*arguments, stream, || bytes)?;
            let outcomes: Vec<Outcome> = memory.download(&outcome, 1, stream)?;
            let outcome = outcomes.first().copied().unwrap_or_default();
            if let Some(error) = status_error(outcome.status) {
                return Err(error);
            }
            if outcome.text_bytes <= text_bytes {
                return Ok(text);
            }
            text_bytes = outcome.text_bytes;
        }
        Err(Error::new(ErrorKind::NotSupported, "texts nest too deep for the GPU"))
    }

    /// The columns that the program loads.
    fn columns<'c>(&self, chunk: &'c Chunk) -> Result<Vec<&'c Column>> {
        assert!(self.loaded.len() <= PROGRAM_COLUMNS_MAX, "columns of a program");
        self.loaded
            .iter()
            .map(|(place, data_type)| {
                let column = chunk.columns.get(*place);
                let column =
                    column.ok_or_else(|| Error::internal("a chunk lacks a column of its program"))?;
                assert_eq!(column.cell_type, CellType::of(data_type)?, "the type of column {place}");
                assert!(
                    column.values.bytes() >= chunk.row_count as u64 * u64::from(column.cell_type.bytes()),
                    "cells of column {place}"
                );
                Ok(column)
            })
            .collect()
    }

    /// The program on the device.
    fn copy(&self, memory: &DeviceMemory, stream: Stream) -> Result<Buffer> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copies.get(&stream) {
            return Ok(copy.clone());
        }
        let cells_offset = self.instructions.len() * size_of::<Instruction>();
        let bytes_offset = cells_offset + self.constants.cells.len() * CELL_BYTES;
        let bytes = (bytes_offset + self.constants.bytes.len()) as u64;
        let buffer = memory.allocate(bytes, stream)?;
        let mut cells = self.constants.cells.clone();
        for text in &self.constants.texts {
            if let Some(cell) = cells.get_mut(*text) {
                cell[0] += buffer.address() + bytes_offset as u64;
            }
        }
        let mut image: Vec<u8> = Vec::with_capacity(bytes as usize);
        image.extend_from_slice(cast_slice(&self.instructions));
        image.extend_from_slice(cast_slice(&cells));
        image.extend_from_slice(&self.constants.bytes);
        assert_eq!(image.len() as u64, bytes, "bytes of a program");
        memory.upload_to(&image, buffer.address(), stream)?;
        copies.insert(stream, buffer.clone());
        Ok(buffer)
    }
}

fn allocate_output(
    computed: &Computed,
    memory: &DeviceMemory,
    chunk: &Chunk,
    stream: Stream,
) -> Result<Column> {
    let cell_type = CellType::of(&computed.data_type)?;
    let rows = chunk.row_count as u64;
    let has_validity =
        |place: &usize| chunk.columns.get(*place).is_some_and(|column| column.validity.is_some());
    let can_be_null = computed.null_sources.as_ref().is_none_or(|places| places.iter().any(has_validity));
    Ok(Column {
        data_type: computed.data_type.clone(),
        cell_type,
        values: memory.allocate((rows * u64::from(cell_type.bytes())).max(1), stream)?,
        validity: if can_be_null { Some(memory.allocate(rows.max(1), stream)?) } else { None },
        strings: Vec::new(),
    })
}

/// A cell and its validity. Text that cells point to is left out.
fn row_bytes(column: &Column) -> u64 {
    u64::from(column.cell_type.bytes()) + u64::from(column.validity.is_some())
}

fn address_of(column: &Column) -> ProgramColumn {
    let validity = column.validity.as_ref().map_or(0, Buffer::address);
    ProgramColumn { values: column.values.address(), validity }
}
