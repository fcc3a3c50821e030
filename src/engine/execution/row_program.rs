//! Expressions and conditions over rows: columns stay codes where nothing has to be computed of them, and what is, is
//! computed once an entry where it can be (`coded_expressions.rs`).
//!
//! Invariants: which columns come as codes may differ from rows to rows; the values do not.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use pystachio_plan::{ColumnId, DataType, Error, Expression, Literal, Result};

use super::{
    Columns,
    coded_expressions::{CodedCondition, CodedProgram, columns_of},
};
use crate::{
    device::{AnyColumn, Buffer, Chunk, Column, Rows},
    operation::Queue,
    program::{Filter, Program},
};

/// What was compiled for columns that come as codes; `None` where no program has it. There are as few sets of them as
/// there are ways in which files are written.
type Variants<T> = Mutex<HashMap<BTreeSet<ColumnId>, Option<Arc<T>>>>;

fn variant<T>(
    variants: &Variants<T>,
    coded: BTreeSet<ColumnId>,
    compile: impl FnOnce(&BTreeSet<ColumnId>) -> Option<T>,
) -> Option<Arc<T>> {
    let mut known = variants.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(coded).or_insert_with_key(|coded| compile(coded).map(Arc::new)).clone()
}

/// The columns at some places that are codes.
fn coded_among<'a>(
    places: &[usize],
    input: &Columns,
    column: &impl Fn(usize) -> Result<&'a AnyColumn>,
) -> Result<BTreeSet<ColumnId>> {
    let mut coded = BTreeSet::new();
    for place in places {
        if let AnyColumn::Codes(_) = column(*place)? {
            coded.insert(input[*place].0);
        }
    }
    Ok(coded)
}

/// Places of the columns of these ids.
pub(super) fn places_of(read: &BTreeSet<ColumnId>, input: &[(ColumnId, DataType)]) -> Vec<usize> {
    (0..input.len()).filter(|place| read.contains(&input[*place].0)).collect()
}

/// A condition on rows.
pub(super) struct RowCondition {
    condition: Expression,
    input: Columns,
    parameters: Vec<Literal>,
    /// Places of the columns that it reads.
    places: Vec<usize>,
    /// Over these columns.
    filter: Filter,
    coded: Variants<CodedCondition>,
}

impl RowCondition {
    /// A condition over columns of these ids and types, in the order of the rows' columns.
    ///
    /// # Errors
    ///
    /// As of [`Filter::compile`].
    pub(super) fn compile(
        condition: &Expression,
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
    ) -> Result<Self> {
        let places = places_of(&columns_of(condition), input);
        let known: Columns = places.iter().map(|place| input[*place].clone()).collect();
        let filter = Filter::compile(condition, &known, parameters)?;
        Ok(Self {
            condition: condition.clone(),
            input: input.to_vec(),
            parameters: parameters.to_vec(),
            places,
            filter,
            coded: Mutex::default(),
        })
    }

    /// Places of the columns that it reads.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Places of the columns of which it needs no cells where they come as codes.
    pub(super) fn places_without_cells(&self) -> Vec<usize> {
        let without_cells = CodedCondition::columns_without_cells(&self.condition, &self.input);
        self.places.iter().copied().filter(|place| without_cells.contains(&self.input[*place].0)).collect()
    }

    /// A flag a row: whether it is true. `column` gives the columns by place.
    ///
    /// # Errors
    ///
    /// Those of the condition's functions; `OutOfMemory`, `Device`.
    pub(super) fn flags<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Buffer> {
        let coded = coded_among(&self.places, &self.input, &column)?;
        if !coded.is_empty() {
            let compile = |coded: &BTreeSet<ColumnId>| {
                CodedCondition::compile(&self.condition, coded, &self.input, &self.parameters).ok()
            };
            if let Some(condition) = variant(&self.coded, coded, compile) {
                return condition.flags(queue, row_count, column);
            }
        }
        let cells = |place: &usize| queue.cells_of(column(*place)?, row_count);
        let columns = self.places.iter().map(cells).collect::<Result<_>>()?;
        Ok(self.filter.evaluate(queue, &Chunk { row_count, columns })?.values)
    }
}

/// Expressions over rows.
pub(super) struct RowProgram {
    outputs: Vec<RowOutput>,
    /// Those that are not columns by themselves.
    expressions: Vec<Expression>,
    input: Columns,
    parameters: Vec<Literal>,
    /// Places of the columns that these read.
    places: Vec<usize>,
    /// Over these columns.
    program: Program,
    coded: Variants<CodedProgram>,
}

/// Where an output comes from.
enum RowOutput {
    /// A column of the input, by place.
    Input(usize),
    /// The next value that is computed.
    Computed,
}

impl RowProgram {
    /// Expressions over columns of these ids and types, in the order of the rows' columns.
    ///
    /// # Errors
    ///
    /// As of [`Program::compile`].
    pub(super) fn compile(
        expressions: &[Expression],
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
    ) -> Result<Self> {
        let output = |expression: &Expression| match expression {
            Expression::Column { id, .. } => {
                let place = input.iter().position(|(known, _)| known == id);
                place
                    .map(RowOutput::Input)
                    .ok_or_else(|| Error::internal("a program reads a column that its input lacks"))
            }
            _ => Ok(RowOutput::Computed),
        };
        let outputs = expressions.iter().map(output).collect::<Result<_>>()?;
        let is_computed = |expression: &&Expression| !matches!(expression, Expression::Column { .. });
        let expressions: Vec<Expression> = expressions.iter().filter(is_computed).cloned().collect();
        let read: BTreeSet<ColumnId> = expressions.iter().flat_map(columns_of).collect();
        let places = places_of(&read, input);
        let known: Columns = places.iter().map(|place| input[*place].clone()).collect();
        let program = Program::compile(&expressions, &known, parameters)?;
        Ok(Self {
            outputs,
            expressions,
            input: input.to_vec(),
            parameters: parameters.to_vec(),
            places,
            program,
            coded: Mutex::default(),
        })
    }

    /// The expressions' values. Those that are columns are the rows' own.
    ///
    /// Waits as [`Program::evaluate`] does.
    ///
    /// # Errors
    ///
    /// Those of the functions; `OutOfMemory`, `Device`.
    pub(super) fn evaluate(&self, queue: &Queue, rows: &Rows) -> Result<Vec<AnyColumn>> {
        let lacks = || Error::internal("rows lack a column of their program");
        let column = |place: usize| rows.columns.get(place).ok_or_else(lacks);
        let mut computed = match self.expressions.is_empty() {
            true => Vec::new(),
            false => self.compute(queue, rows.row_count, column)?,
        }
        .into_iter();
        let output = |output: &RowOutput| match output {
            RowOutput::Input(place) => column(*place).cloned(),
            RowOutput::Computed => computed.next().ok_or_else(lacks),
        };
        self.outputs.iter().map(output).collect()
    }

    /// The cells of [`RowProgram::evaluate`].
    ///
    /// # Errors
    ///
    /// As of [`RowProgram::evaluate`].
    pub(super) fn evaluate_cells(&self, queue: &Queue, rows: &Rows) -> Result<Vec<Column>> {
        let values = self.evaluate(queue, rows)?;
        values.iter().map(|values| queue.cells_of(values, rows.row_count)).collect()
    }

    fn compute<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Vec<AnyColumn>> {
        let coded = coded_among(&self.places, &self.input, &column)?;
        if !coded.is_empty() {
            let compile = |coded: &BTreeSet<ColumnId>| {
                let (expressions, input) = (&self.expressions, &self.input);
                let program = CodedProgram::compile(expressions, coded, input, &self.parameters).ok()?;
                program.has_parts().then_some(program)
            };
            if let Some(program) = variant(&self.coded, coded, compile) {
                return program.evaluate(queue, row_count, column);
            }
        }
        let cells = |place: &usize| queue.cells_of(column(*place)?, row_count);
        let columns = self.places.iter().map(cells).collect::<Result<_>>()?;
        let values = self.program.evaluate(queue, &Chunk { row_count, columns })?;
        Ok(values.into_iter().map(AnyColumn::Cells).collect())
    }
}
