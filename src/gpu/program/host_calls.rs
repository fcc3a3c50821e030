//! Functions that the host computes: variances, whose intermediate numbers have any size.
//!
//! ```text
//! expression ─► arguments (kernel) ─► host ─► a column ─► the rest of the expression (kernel)
//! ```
//!
//! There are few rows of them, one a group.
//!
//! Invariants: the host computes only calls that are evaluated for every row. A call that a choice
//! may skip stays in its expression, which then has no kernel.

use std::num::NonZero;

use num_bigint::BigInt;
use pystachio_engine::variance::{Moments, VarianceForm};
use pystachio_plan::{ColumnId, DataType, Error, Expression, Function, Literal, Result};

use super::{Program, compile::DEPTH_MAX};
use crate::{
    device::{CellType, Chunk, Column},
    operation::{Queue, Status, error_code, status_error},
};

/// Arguments of a variance: count, sum, sum of squares, display scale.
const ARGUMENTS: usize = 4;
/// Fewer rows are not worth another thread.
const THREAD_ROWS: usize = 1 << 12;

/// Calls that the host computes, in columns behind those of the input.
pub(super) struct HostCalls {
    calls: Vec<HostCall>,
    /// The arguments of the calls, one call after another.
    arguments: Program,
}

/// Expressions without the calls that the host computes, and their input with those.
pub(super) struct Extracted {
    pub(super) expressions: Vec<Expression>,
    pub(super) input: Vec<(ColumnId, DataType)>,
    pub(super) calls: HostCalls,
}

struct HostCall {
    form: VarianceForm,
    /// Whether the digits after the point are wanted instead of the value.
    is_scale: bool,
    sum_scale: u32,
    squares_scale: u32,
    data_type: DataType,
    cell_type: CellType,
}

/// A column of integers on the host.
struct HostColumn {
    cells: Vec<u8>,
    cell_bytes: usize,
    validity: Option<Vec<u8>>,
}

impl HostCalls {
    /// Takes the calls out of expressions; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::compile`].
    pub(super) fn extract(
        expressions: &[Expression],
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
    ) -> Result<Option<Extracted>> {
        // Compilation refuses deeper nesting.
        if !expressions.iter().all(|expression| is_shallow(expression, DEPTH_MAX)) {
            return Ok(None);
        }
        let mut search =
            Search { next_id: input.iter().map(|(id, _)| id.0 + 1).max().unwrap_or(0), found: Vec::new() };
        let mut expressions = expressions.to_vec();
        expressions.iter_mut().for_each(|expression| search.replace(expression));
        if search.found.is_empty() {
            return Ok(None);
        }
        let mut input = input.to_vec();
        let (mut calls, mut arguments) = (Vec::new(), Vec::new());
        for (id, call) in (search.next_id..).zip(search.found) {
            input.push((ColumnId(id), call.data_type().clone()));
            calls.push(HostCall::new(&call)?);
            arguments.extend(call.children().into_iter().cloned());
        }
        let known = input.len() - calls.len();
        let arguments = Program::compile(&arguments, input.get(..known).unwrap_or_default(), parameters)?;
        Ok(Some(Extracted { expressions, input, calls: Self { calls, arguments } }))
    }

    /// The chunk with a column for each call. Waits.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::evaluate`].
    pub(super) fn evaluate(&self, queue: &Queue, chunk: &Chunk) -> Result<Chunk> {
        let arguments = self.arguments.evaluate(queue, chunk)?;
        let arguments = arguments
            .iter()
            .map(|column| HostColumn::download(queue, column, chunk.row_count))
            .collect::<Result<Vec<HostColumn>>>()?;
        let mut extended = chunk.clone();
        for (call, arguments) in self.calls.iter().zip(arguments.chunks_exact(ARGUMENTS)) {
            let [count, sum, squares, display_scale] = arguments else {
                return Err(Error::internal("a variance does not have four arguments"));
            };
            let computation = Computation { call, count, sum, squares, display_scale };
            let (cells, validity) = computation.run(chunk.row_count)?;
            let column = Column {
                data_type: call.data_type.clone(),
                cell_type: call.cell_type,
                values: queue.upload(&cells)?,
                validity: Some(queue.upload(&validity)?),
                strings: Vec::new(),
            };
            queue.poison_nulls(&column, chunk.row_count);
            extended.columns.push(column);
        }
        Ok(extended)
    }
}

/// Whether an expression nests at most this deep.
fn is_shallow(expression: &Expression, depth_max: u32) -> bool {
    depth_max > 0 && expression.children().into_iter().all(|child| is_shallow(child, depth_max - 1))
}

/// Looks for calls.
struct Search {
    /// The column of the first call.
    next_id: u32,
    /// No two equal.
    found: Vec<Expression>,
}

impl Search {
    /// Puts columns in the place of calls that are evaluated whenever the expression is.
    fn replace(&mut self, expression: &mut Expression) {
        let Expression::Call { function, arguments, data_type } = expression else { return };
        match function {
            Function::Variance { .. } | Function::VarianceScale { .. } => {
                let data_type = data_type.clone();
                let place = self.found.iter().position(|known| known == expression).unwrap_or_else(|| {
                    self.found.push(expression.clone());
                    self.found.len() - 1
                });
                *expression = Expression::column(ColumnId(self.next_id + place as u32), data_type);
            }
            function if function.is_strict() => {
                arguments.iter_mut().for_each(|argument| self.replace(argument));
            }
            Function::IsNull | Function::IsNotNull => {
                arguments.iter_mut().for_each(|argument| self.replace(argument));
            }
            _ => {}
        }
    }
}

impl HostCall {
    fn new(call: &Expression) -> Result<Self> {
        let Expression::Call { function, arguments, data_type } = call else {
            return Err(Error::internal("a call of the host is no call"));
        };
        let scale_of = |place: usize| match arguments.get(place).map(Expression::data_type) {
            Some(DataType::Decimal { scale, .. }) => Ok(u32::from(*scale)),
            _ => Err(Error::internal("a variance is not computed from decimals")),
        };
        let (is_scale, sample, deviation) = match *function {
            Function::Variance { sample, deviation } => (false, sample, deviation),
            Function::VarianceScale { sample, deviation } => (true, sample, deviation),
            other => return Err(Error::internal(format!("the host does not compute {other:?}"))),
        };
        Ok(Self {
            form: VarianceForm { sample, deviation },
            is_scale,
            sum_scale: scale_of(1)?,
            squares_scale: scale_of(2)?,
            data_type: data_type.clone(),
            cell_type: CellType::of(data_type)?,
        })
    }

    fn result_scale(&self) -> u32 {
        match self.data_type {
            DataType::Decimal { scale, .. } => scale.into(),
            _ => 0,
        }
    }
}

/// A call and the columns of its arguments.
struct Computation<'a> {
    call: &'a HostCall,
    count: &'a HostColumn,
    sum: &'a HostColumn,
    squares: &'a HostColumn,
    display_scale: &'a HostColumn,
}

impl Computation<'_> {
    /// Cells and validity of all rows.
    fn run(&self, row_count: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        let cell_bytes = self.call.cell_type.bytes() as usize;
        let (mut cells, mut validity) = (vec![0; row_count * cell_bytes], vec![0; row_count]);
        let threads_max = std::thread::available_parallelism().map_or(1, NonZero::get);
        let part_rows = row_count.div_ceil(threads_max).max(THREAD_ROWS);
        let parts = cells.chunks_mut(part_rows * cell_bytes).zip(validity.chunks_mut(part_rows));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..row_count)
                .step_by(part_rows)
                .zip(parts)
                .map(|(first_row, (cells, validity))| {
                    scope.spawn(move || self.compute(first_row, cells, validity))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::internal("computing a variance has failed")))
            })
        })?;
        Ok((cells, validity))
    }

    /// The rows from `first_row` on that there is space for.
    fn compute(&self, first_row: usize, cells: &mut [u8], validity: &mut [u8]) -> Result<()> {
        let call = self.call;
        let cells = cells.chunks_exact_mut(call.cell_type.bytes() as usize);
        for (row, (cell, validity)) in (first_row..).zip(cells.zip(validity)) {
            let Some(statistic) = self.moments(row).and_then(|moments| moments.statistic(call.form)) else {
                continue;
            };
            let value = match call.is_scale {
                true => BigInt::from(statistic.digits),
                false => statistic.held_at(call.result_scale())?,
            };
            if !write_integer(&value, cell) {
                let digits = call.cell_type.decimal_digits_max().into();
                let status = Status { code: error_code::DECIMAL_RANGE, detail: digits, value: 0 };
                return Err(
                    status_error(status).unwrap_or_else(|| Error::internal("a variance is too large"))
                );
            }
            *validity = 1;
        }
        Ok(())
    }

    fn moments(&self, row: usize) -> Option<Moments> {
        Some(Moments {
            count: i64::try_from(self.count.integer(row)?).ok()?,
            sum: self.sum.integer(row)?,
            sum_scale: self.call.sum_scale,
            squares: self.squares.integer(row)?,
            squares_scale: self.call.squares_scale,
            display_scale: i32::try_from(self.display_scale.integer(row)?).ok()?,
        })
    }
}

impl HostColumn {
    fn download(queue: &Queue, column: &Column, row_count: usize) -> Result<Self> {
        let cell_bytes = column.cell_type.bytes() as usize;
        let validity = column.validity.as_ref();
        let validity = validity.map(|validity| queue.download(validity, row_count)).transpose()?;
        Ok(Self { cells: queue.download(&column.values, row_count * cell_bytes)?, cell_bytes, validity })
    }

    /// `None` for NULL.
    fn integer(&self, row: usize) -> Option<BigInt> {
        if self.validity.as_ref().is_some_and(|validity| validity.get(row) == Some(&0)) {
            return None;
        }
        self.cells.chunks_exact(self.cell_bytes).nth(row).map(BigInt::from_signed_bytes_le)
    }
}

/// Writes an integer to a cell, least byte first; returns false if it does not fit.
fn write_integer(value: &BigInt, cell: &mut [u8]) -> bool {
    let bytes = value.to_signed_bytes_le();
    cell.fill(if value.sign() == num_bigint::Sign::Minus { 0xff } else { 0 });
    match cell.get_mut(..bytes.len()) {
        Some(low) => {
            low.copy_from_slice(&bytes);
            true
        }
        None => false,
    }
}
