//! Scalar expressions on a device: compiled to a byte-code that the device runs over chunks.
//!
//! ```text
//! Expression ── compile/ ──► builder (values) ── registers ──► Code: Instruction[], constants
//!                                                               │
//! Chunk ──────────────────── evaluate ───────────────► Queue::run ──► Columns
//! ```
//!
//! - `compile/`: the instructions of every function; `laziness.rs`: parts that are evaluated only
//!   where needed
//! - `builder.rs`: instructions over values, equal ones shared; `registers.rs`: registers for values
//! - `code.rs`: byte-code; `constants.rs`: constants in it; `opcode.rs`: what the host knows of
//!   opcodes
//! - `ranges.rs`: conditions that are comparisons only, for which there is a kernel of its own
//! - `nullability.rs`: which results need validity; `evaluate.rs`: launches
//! - `automaton.rs`, `moment_pieces.rs`: tables of regular expressions and of formats of timestamps
//! - `host_calls.rs`: functions that the host computes
//!
//! Invariants: a program gives PostgreSQL's value or PostgreSQL's error for every row. Otherwise
//! its compilation is refused with `NotSupported`, and the plan runs on the CPU. An expression that
//! could fail is evaluated only for rows for which PostgreSQL evaluates it.
//!
//! Decimals of more than 38 digits take two cells, for which there is a kernel of its own: programs without
//! them do not pay for it.
//!
//! Deliberately absent: aggregates, compilation to machine code.

mod automaton;
mod builder;
mod code;
mod compile;
mod constants;
mod evaluate;
mod host_calls;
mod laziness;
mod moment_pieces;
mod nullability;
mod opcode;
mod ranges;
mod registers;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use pystachio_plan::{ColumnId, DataType, Error, ErrorKind, Expression, Literal, Result};

use crate::{
    abi::{self, PROGRAM_REGISTERS, PROGRAM_REGISTERS_INT256},
    device::{Chunk, Column},
    operation::Queue,
};

pub use code::Code;

use self::{
    code::Needs,
    compile::Compiler,
    host_calls::{Extracted, HostCalls},
    nullability::{Nullability, nullability},
    ranges::{Term, terms_of},
    registers::allocate_registers,
};

/// Expressions that are evaluated together over chunks of one layout.
pub struct Program {
    /// Calls that the host computes first, if there are any.
    host_calls: Option<Box<HostCalls>>,
    outputs: Vec<Output>,
    /// Absent if every output is a column of the input.
    code: Option<Code>,
}

/// A condition that is evaluated over chunks of one layout.
pub struct Filter {
    host_calls: Option<Box<HostCalls>>,
    code: Code,
    /// The terms of the condition, if it is a conjunction of comparisons.
    terms: Option<Vec<Term>>,
}

/// A comparison of integers. It does not hold for NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// A column with constants.
    Within {
        /// Its place in the chunk.
        column: usize,
        /// The values that pass.
        range: RangeInclusive<i64>,
    },
    /// Two columns.
    Ordered {
        /// The place of the first.
        column: usize,
        /// The place of the second.
        other: usize,
        /// Bits of the orderings less, equal and greater, from the lowest on.
        orderings: u32,
    },
}

/// The origin of an output.
enum Output {
    /// A column of the input, by place.
    Input(usize),
    /// The next output of the code.
    Computed(Computed),
}

/// An output that byte-code computes.
pub struct Computed {
    pub(crate) data_type: DataType,
    /// Places of the columns whose NULLs make it NULL; `None` if it can be NULL without any.
    pub(crate) null_sources: Option<Vec<usize>>,
}

impl Program {
    /// Compiles expressions over columns of these ids and types, in the order of the chunk's columns.
    ///
    /// # Errors
    ///
    /// `NotSupported` for functions without an exact kernel, and for more columns, registers or
    /// outputs than a program can have. `Internal` for a plan that contradicts itself.
    pub fn compile(
        expressions: &[Expression],
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
    ) -> Result<Self> {
        let Some(extracted) = HostCalls::extract(expressions, input, parameters)? else {
            return compile_sharing(|shares| Self::compile_once(expressions, input, parameters, shares));
        };
        let Extracted { expressions, input, calls } = extracted;
        let program = compile_sharing(|shares| Self::compile_once(&expressions, &input, parameters, shares))?;
        Ok(Self { host_calls: Some(Box::new(calls)), ..program })
    }

    /// Evaluates the expressions. Columns that are expressions are the chunk's own.
    ///
    /// Waits if an expression can fail, makes text, or is a variance.
    ///
    /// # Shapes
    ///
    /// One column per expression, each of the chunk's rows.
    ///
    /// # Errors
    ///
    /// Errors of the functions, with PostgreSQL's messages; `OutOfMemory`, `Device`.
    ///
    /// # Panics
    ///
    /// If the chunk's columns are not of the types that the program was compiled for.
    pub fn evaluate(&self, queue: &Queue, chunk: &Chunk) -> Result<Vec<Column>> {
        if let Some(calls) = &self.host_calls {
            return self.evaluate_code(queue, &calls.evaluate(queue, chunk)?);
        }
        self.evaluate_code(queue, chunk)
    }

    fn evaluate_code(&self, queue: &Queue, chunk: &Chunk) -> Result<Vec<Column>> {
        let computed: Vec<&Computed> = self
            .outputs
            .iter()
            .filter_map(|output| match output {
                Output::Computed(computed) => Some(computed),
                Output::Input(_) => None,
            })
            .collect();
        let mut computed = match &self.code {
            Some(code) => queue.run(code, &computed, chunk)?.into_iter(),
            None => Vec::new().into_iter(),
        };
        self.outputs
            .iter()
            .map(|output| match output {
                Output::Input(place) => chunk.columns.get(*place).cloned(),
                Output::Computed(_) => computed.next(),
            })
            .map(|column| column.ok_or_else(|| Error::internal("a chunk lacks a column of its program")))
            .collect()
    }

    fn compile_once(
        expressions: &[Expression],
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
        shares: bool,
    ) -> Result<Self> {
        let mut compiler = Compiler::new(input, parameters, shares);
        let mut outputs = Vec::with_capacity(expressions.len());
        let mut computed_count = 0;
        for expression in expressions {
            if let Expression::Column { id, .. } = expression {
                outputs.push(Output::Input(compiler.place(*id)?));
                continue;
            }
            compiler.output(expression, computed_count)?;
            computed_count += 1;
            let null_sources = match nullability(expression, parameters) {
                Nullability::Always => None,
                Nullability::WithColumns(columns) => {
                    Some(columns.into_iter().map(|id| compiler.place(id)).collect::<Result<Vec<usize>>>()?)
                }
            };
            let data_type = expression.data_type().clone();
            outputs.push(Output::Computed(Computed { data_type, null_sources }));
        }
        let code = if computed_count == 0 { None } else { Some(finish(compiler, input)?) };
        Ok(Self { host_calls: None, outputs, code })
    }
}

impl Filter {
    /// Compiles a condition over columns of these ids and types, in the order of the chunk's columns.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::compile`].
    pub fn compile(
        condition: &Expression,
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
    ) -> Result<Self> {
        let compile = |condition: &Expression, input: &[(ColumnId, DataType)]| {
            compile_sharing(|shares| {
                let mut compiler = Compiler::new(input, parameters, shares);
                compiler.filter(condition, 0)?;
                finish(compiler, input)
            })
        };
        let (host_calls, code) = match HostCalls::extract(std::slice::from_ref(condition), input, parameters)?
        {
            None => (None, compile(condition, input)?),
            Some(Extracted { expressions, input, calls }) => {
                let condition = expressions.first().unwrap_or(condition);
                (Some(Box::new(calls)), compile(condition, &input)?)
            }
        };
        let terms = terms_of(&code.instructions, &code.constants);
        Ok(Self { host_calls, code, terms })
    }

    /// The comparisons of integers that the condition consists of, all of which must hold; `None` if it is anything else.
    pub fn comparisons(&self) -> Option<Vec<Comparison>> {
        let terms = self.terms.as_ref().filter(|_| self.host_calls.is_none())?;
        let place = |column: u16| self.code.loaded.get(usize::from(column)).map(|(place, _)| *place);
        let comparison = |term: &Term| {
            Some(match term {
                Term::Within { column, range } => {
                    Comparison::Within { column: place(*column)?, range: range.clone() }
                }
                Term::Ordered { column, other, orderings } => Comparison::Ordered {
                    column: place(*column)?,
                    other: place(*other)?,
                    orderings: (*orderings).into(),
                },
            })
        };
        terms.iter().map(comparison).collect()
    }

    /// A `boolean` column without NULL: 1 where the condition is true, 0 where it is false or NULL.
    ///
    /// Waits if the condition can fail or makes text.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::evaluate`].
    ///
    /// # Panics
    ///
    /// See [`Program::evaluate`].
    pub fn evaluate(&self, queue: &Queue, chunk: &Chunk) -> Result<Column> {
        match &self.host_calls {
            None => self.evaluate_code(queue, chunk),
            Some(calls) => self.evaluate_code(queue, &calls.evaluate(queue, chunk)?),
        }
    }

    fn evaluate_code(&self, queue: &Queue, chunk: &Chunk) -> Result<Column> {
        let flags = Computed { data_type: DataType::Bool, null_sources: Some(Vec::new()) };
        if let Some(terms) = &self.terms {
            return queue.test_terms(&self.code, terms, &flags, chunk);
        }
        let mut columns = queue.run(&self.code, &[&flags], chunk)?;
        columns.pop().ok_or_else(|| Error::internal("a condition without a result"))
    }
}

/// Compiles with equal parts shared, and without if that takes too many registers.
fn compile_sharing<T>(compile: impl Fn(bool) -> Result<T>) -> Result<T> {
    match compile(true) {
        Err(error) if error.kind == ErrorKind::NotSupported => compile(false).map_err(|_| error),
        compiled => compiled,
    }
}

fn finish(compiler: Compiler<'_>, input: &[(ColumnId, DataType)]) -> Result<Code> {
    let Compiler { builder, loaded, .. } = compiler;
    let (steps, constants) = builder.finish();
    let needs_int256 = steps.iter().any(|placed| placed.step.opcode.needs_int256());
    let (registers_max, cells_each) =
        if needs_int256 { (PROGRAM_REGISTERS_INT256, 2) } else { (PROGRAM_REGISTERS, 1) };
    let allocation = allocate_registers(&steps, registers_max)?;
    let makes_text = steps.iter().filter(|placed| placed.step.opcode.makes_text()).count();
    let may_fault = steps.iter().any(|placed| placed.step.opcode.may_fault(placed.step.detail));
    let needs_text = steps.iter().any(|placed| placed.step.opcode.needs_text());
    let is_uniform = steps.iter().all(|placed| placed.step.opcode.is_uniform());
    let is_narrow = steps.iter().all(|placed| placed.step.opcode.is_narrow());
    let loaded_types = loaded
        .iter()
        .map(|place| match input.get(*place) {
            Some((_, data_type)) => Ok((*place, data_type.clone())),
            None => Err(Error::internal("a program loads a column that its input lacks")),
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Code::new(
        allocation,
        constants.image(cells_each),
        loaded_types,
        Needs { makes_text, may_fault, needs_text, needs_int256, is_uniform, is_narrow },
    ))
}
