//! Launches of programs.

use bytemuck::{Pod, Zeroable, cast_slice};
use pystachio_engine::locking::lock_whole;
use pystachio_plan::{Error, Result};

use super::{
    Code, Computed,
    abi::{
        EvaluateProgram, Instruction, PROGRAM_COLUMNS_MAX, PROGRAM_OUTPUTS_MAX, PROGRAM_REGISTERS_SMALL,
        ProgramColumn, RangeOperand, RangeTerm, TestRanges,
    },
    ranges::Term,
};
use crate::{
    device::{Buffer, CellType, Chunk, Column, Kernel},
    operation::{Queue, Status, status_error},
};

/// The most blocks of a launch; threads stride over the rows.
const GRID_MAX: u64 = 4096;
/// What a launch leaves: `Status`, and the bytes of text that it wanted.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Outcome {
    status: Status,
    text_bytes: u64,
}

/// Space that the first launch has for every text that a row makes.
const TEXT_BYTES_A_ROW: u64 = 32;
const CELL_BYTES: usize = 16;

/// The rows of a launch.
#[derive(Clone, Copy, Debug)]
struct LaunchedRows {
    /// Bytes of a row in all columns.
    row_bytes: u64,
    /// Whether outputs are text.
    gives_text: bool,
}

/// Evaluation of byte-code, for [`super::Program`] and [`super::Filter`].
impl Queue {
    /// The outputs of byte-code over a chunk: one column an output, each of the chunk's rows. Waits
    /// if text is made, or if a row can fail and the queue does not defer faults.
    ///
    /// # Errors
    ///
    /// Errors of the functions, with PostgreSQL's messages.
    ///
    /// # Panics
    ///
    /// If the chunk's columns are not of the types that the byte-code was compiled for.
    pub fn run(&self, code: &Code, outputs: &[&Computed], chunk: &Chunk) -> Result<Vec<Column>> {
        assert!(outputs.len() <= PROGRAM_OUTPUTS_MAX, "outputs of a program");
        let copy = copy_of(code, self)?;
        let columns = loaded_columns(code, chunk)?;
        let mut results = outputs
            .iter()
            .map(|computed| allocate_output(computed, self, chunk))
            .collect::<Result<Vec<Column>>>()?;
        let mut arguments = EvaluateProgram {
            instructions: copy.address(),
            constants: copy.address() + (code.instructions.len() * size_of::<Instruction>()) as u64,
            row_count: chunk.row_count as u64,
            instruction_count: code.instructions.len() as u32,
            ..EvaluateProgram::zeroed()
        };
        for (place, column) in arguments.columns.iter_mut().zip(&columns) {
            *place = address_of(column);
        }
        for (place, column) in arguments.outputs.iter_mut().zip(&results) {
            *place = address_of(column);
        }
        let all = columns.iter().copied().chain(&results);
        // The text itself is left out.
        let row_bytes = all.map(|column| u64::from(column.row_bytes())).sum();
        let gives_text = results.iter().any(|column| column.cell_type == CellType::String);
        let text = self.launch_program(code, &mut arguments, LaunchedRows { row_bytes, gives_text })?;
        // Text may lie in the input, among the constants, or where the launch put it.
        let texts = columns.iter().flat_map(|column| &column.strings).chain([&copy]).chain(&text);
        let texts: Vec<Buffer> = texts.cloned().collect();
        for column in results.iter_mut().filter(|column| column.cell_type == CellType::String) {
            column.strings.clone_from(&texts);
        }
        results.iter().for_each(|column| self.poison_nulls(column, chunk.row_count));
        Ok(results)
    }
}

impl Queue {
    /// The result of [`Queue::run`] for byte-code that is a list of terms.
    ///
    /// # Panics
    ///
    /// Errors of [`Queue::run`].
    pub(super) fn test_terms(
        &self,
        code: &Code,
        terms: &[Term],
        computed: &Computed,
        chunk: &Chunk,
    ) -> Result<Column> {
        let columns = loaded_columns(code, chunk)?;
        let flags = allocate_output(computed, self, chunk)?;
        let operand = |number: u16| {
            let column = columns.get(usize::from(number)).map(|column| {
                let ProgramColumn { values, validity } = address_of(column);
                RangeOperand { values, validity, cell_bytes: column.cell_type.bytes(), reserved: 0 }
            });
            column.ok_or_else(|| Error::internal("a condition compares a column that it does not load"))
        };
        let mut arguments = TestRanges {
            flags: flags.values.address(),
            row_count: chunk.row_count as u64,
            term_count: terms.len() as u32,
            ..TestRanges::zeroed()
        };
        for (term, place) in terms.iter().zip(&mut arguments.terms) {
            *place = match term {
                Term::Within { column, range } => RangeTerm {
                    operand: operand(*column)?,
                    least: *range.start(),
                    greatest: *range.end(),
                    ..RangeTerm::zeroed()
                },
                Term::Ordered { column, other, orderings } => RangeTerm {
                    operand: operand(*column)?,
                    other: operand(*other)?,
                    orderings: u32::from(*orderings),
                    ..RangeTerm::zeroed()
                },
            };
        }
        let kernel = Kernel::TestRanges;
        let grid = arguments.row_count.div_ceil(u64::from(kernel.block_threads())).min(GRID_MAX) as u32;
        let row_bytes = 1 + columns.iter().map(|column| u64::from(column.row_bytes())).sum::<u64>();
        self.launch_moving(kernel, grid, &arguments, || arguments.row_count * row_bytes)?;
        Ok(flags)
    }

    /// Launches with growing space until it suffices for all text; returns the space. If faults are
    /// checked later, a row that failed has values without a meaning until then: numbers, never
    /// addresses of text.
    fn launch_program(
        &self,
        code: &Code,
        arguments: &mut EvaluateProgram,
        rows: LaunchedRows,
    ) -> Result<Option<Buffer>> {
        let (kernel, needs, memory, stream) = (kernel_of(code), code.needs, self.memory(), self.stream());
        let grid = arguments.row_count.div_ceil(u64::from(kernel.block_threads())).min(GRID_MAX) as u32;
        let bytes = arguments.row_count * rows.row_bytes;
        if grid == 0 || !(needs.may_fault || needs.makes_text > 0) {
            self.launch_moving(kernel, grid, arguments, || bytes)?;
            return Ok(None);
        }
        if needs.makes_text == 0
            && !rows.gives_text
            && let Some(status) = self.deferred_status()?
        {
            arguments.status = status;
            self.launch_moving(kernel, grid, &*arguments, || bytes)?;
            return Ok(None);
        }
        let mut text_bytes = TEXT_BYTES_A_ROW * arguments.row_count * needs.makes_text as u64;
        let mut least_bytes = 0;
        loop {
            let outcome = self.zeros::<Outcome>(1)?;
            let text = match text_bytes {
                0 => None,
                _ => Some(memory.allocate(text_bytes, stream)?),
            };
            arguments.status = outcome.address();
            arguments.text = text.as_ref().map_or(0, Buffer::address);
            arguments.text_bytes = outcome.address() + size_of::<Status>() as u64;
            arguments.text_bytes_max = text_bytes;
            self.launch_moving(kernel, grid, &*arguments, || bytes)?;
            let outcomes: Vec<Outcome> = memory.download(&outcome, 1, stream)?;
            let outcome = outcomes.first().copied().unwrap_or_default();
            if let Some(error) = status_error(outcome.status) {
                return Err(error);
            }
            if outcome.text_bytes <= text_bytes {
                return Ok(text);
            }
            // A row that found no space did not compute the texts that depend on that one. So for
            // nested texts the requested space approaches the needed one slowly, in an unknown
            // number of launches.
            text_bytes = outcome.text_bytes.max(least_bytes);
            least_bytes = 2 * text_bytes;
        }
    }
}

fn kernel_of(code: &Code) -> Kernel {
    let is_small = code.register_count <= PROGRAM_REGISTERS_SMALL && !code.needs.needs_text;
    match (code.needs.needs_int256, is_small) {
        (true, _) => Kernel::EvaluateInt256Program,
        (false, true) if code.needs.is_narrow => Kernel::EvaluateNarrowProgram,
        (false, true) if code.needs.is_uniform => Kernel::EvaluateUniformProgram,
        (false, true) => Kernel::EvaluateSmallProgram,
        (false, false) => Kernel::EvaluateProgram,
    }
}

/// The columns that the program loads.
fn loaded_columns<'c>(code: &Code, chunk: &'c Chunk) -> Result<Vec<&'c Column>> {
    assert!(code.loaded.len() <= PROGRAM_COLUMNS_MAX, "columns of a program");
    code.loaded
        .iter()
        .map(|(place, data_type)| {
            let column = chunk.columns.get(*place);
            let column = column.ok_or_else(|| Error::internal("a chunk lacks a column of its program"))?;
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
fn copy_of(code: &Code, queue: &Queue) -> Result<Buffer> {
    let stream = queue.stream();
    let mut copies = lock_whole(&code.copies);
    if let Some(copy) = copies.get(&stream) {
        return Ok(copy.clone());
    }
    let cells_offset = code.instructions.len() * size_of::<Instruction>();
    let bytes_offset = cells_offset + code.constants.cells.len() * CELL_BYTES;
    let bytes = (bytes_offset + code.constants.bytes.len()) as u64;
    let buffer = queue.memory().allocate(bytes, stream)?;
    let mut cells = code.constants.cells.clone();
    for text in &code.constants.texts {
        if let Some(cell) = cells.get_mut(*text) {
            cell[0] += buffer.address() + bytes_offset as u64;
        }
    }
    let mut image: Vec<u8> = Vec::with_capacity(bytes as usize);
    image.extend_from_slice(cast_slice(&code.instructions));
    image.extend_from_slice(cast_slice(&cells));
    image.extend_from_slice(&code.constants.bytes);
    assert_eq!(image.len() as u64, bytes, "bytes of a program");
    queue.memory().upload_to(&image, buffer.address(), stream)?;
    copies.insert(stream, buffer.clone());
    Ok(buffer)
}

fn allocate_output(computed: &Computed, queue: &Queue, chunk: &Chunk) -> Result<Column> {
    let (memory, stream) = (queue.memory(), queue.stream());
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

fn address_of(column: &Column) -> ProgramColumn {
    let validity = column.validity.as_ref().map_or(0, Buffer::address);
    ProgramColumn { values: column.values.address(), validity }
}
