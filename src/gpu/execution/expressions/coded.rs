//! Expressions over columns of which some come as codes. A part of an expression that reads only
//! one such column is evaluated once for every entry of its dictionary, and a row gets its entry's
//! value.
//!
//! ```text
//! a LIKE 'x%' AND (b = 'y' OR c < d)     a LIKE 'x%'  over the entries of a ─► p ─┐ by the rows' codes
//!                                        b = 'y'      over the entries of b ─► q ─┤
//!                                                                   p AND (q OR c < d)  over the rows
//! ```
//!
//! Invariants: NULL is an entry, so a part has its own value for it. A part can't fail: an entry
//! without rows causes no error. Parts keep their position in the expression, and the rest is
//! evaluated in the same order.
//!
//! Deliberately absent: columns of fixed width. To compute with such a cell costs no more than to
//! look up its code.
//!
//! Source: predicates on dictionaries, Abadi, Madden, Ferreira, "Integrating Compression and Execution in
//! Column-Oriented Database Systems", SIGMOD 2006, section 4. We differ: any expression, not only comparisons.

mod split;

use std::collections::BTreeSet;

use pystachio_plan::{ColumnId, DataType, Error, Expression, Literal, Result};

use self::split::{Part, Split};

use crate::{
    device::{AnyColumn, Buffer, Chunk, CodedColumn, Column},
    operation::Queue,
    program::{Comparison, Filter, Program},
};

/// Columns by id, in the order in which they are given.
type Input = [(ColumnId, DataType)];

/// A condition over columns of which some, or none, come as codes.
pub(super) struct CodedCondition {
    parts: CodedParts,
    /// Over the cells and the parts' values; absent if it is a single part, which is never NULL.
    rest: Option<Filter>,
}

/// Expressions over columns of which some, or none, come as codes.
pub(super) struct CodedProgram {
    parts: CodedParts,
    outputs: Vec<CodedOutput>,
    /// Over the cells and the parts' values.
    rest: Program,
}

/// The parts evaluated once an entry, and the columns that the rest reads.
struct CodedParts {
    columns: Vec<EntryExpressions>,
    /// Places of the columns whose cells the rest reads, among the input's.
    cell_places: Vec<usize>,
}

/// The parts that read one column.
struct EntryExpressions {
    place: usize,
    parts: Program,
    /// The column that stands for each part, and whether the rest reads it.
    results: Vec<(ColumnId, bool)>,
}

/// The origin of an output.
enum CodedOutput {
    /// A part itself: the numbers of its column and of the part.
    Part(usize, usize),
    /// The next output of the rest.
    Computed,
}

impl CodedParts {
    /// Compiles the parts. Returns the inputs of the rest too: cells, and then the parts' values.
    fn compile(
        split: &Split<'_>,
        rest: &[&Expression],
        input: &Input,
        parameters: &[Literal],
    ) -> Result<(Self, Vec<(ColumnId, DataType)>)> {
        let read: BTreeSet<ColumnId> = rest.iter().flat_map(|rest| columns_of(rest)).collect();
        let cell_places: Vec<usize> =
            (0..input.len()).filter(|place| read.contains(&input[*place].0)).collect();
        let mut known: Vec<_> = cell_places.iter().map(|place| input[*place].clone()).collect();
        let mut columns = Vec::new();
        for place in (0..input.len()).filter(|place| split.coded.contains(&input[*place].0)) {
            let own: Vec<&Part> = split.parts.iter().filter(|part| part.column == input[place].0).collect();
            let results = own.iter().map(|part| (part.result, read.contains(&part.result))).collect();
            let types = own.iter().map(|part| (part.result, part.expression.data_type().clone()));
            known.extend(types.filter(|(id, _)| read.contains(id)));
            let expressions: Vec<Expression> = own.iter().map(|part| part.expression.clone()).collect();
            let parts = Program::compile(&expressions, &input[place..=place], parameters)?;
            columns.push(EntryExpressions { place, parts, results });
        }
        Ok((Self { columns, cell_places }, known))
    }

    /// The part that a column stands for.
    fn find(&self, id: ColumnId) -> Option<CodedOutput> {
        let part_of = |own: &EntryExpressions| own.results.iter().position(|(known, _)| *known == id);
        let mut numbered = self.columns.iter().enumerate();
        numbered.find_map(|(column, own)| Some(CodedOutput::Part(column, part_of(own)?)))
    }

    /// Each part's value of every entry, column by column.
    fn evaluate<'a>(
        &self,
        queue: &Queue,
        column: &impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Vec<(&'a CodedColumn, Vec<Column>)>> {
        let values = |own: &EntryExpressions| {
            let lacks = || Error::internal("an expression reads codes of cells");
            let coded = column(own.place)?.codes().ok_or_else(lacks)?;
            let entries = Chunk { row_count: coded.entry_count, columns: vec![coded.entries.clone()] };
            Ok((coded, own.parts.evaluate(queue, &entries)?))
        };
        self.columns.iter().map(values).collect()
    }

    /// The inputs of the rest.
    fn read<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: &impl Fn(usize) -> Result<&'a AnyColumn>,
        values: &[(&CodedColumn, Vec<Column>)],
    ) -> Result<Chunk> {
        let cells = |place: &usize| queue.cells_of(column(*place)?, row_count);
        let mut columns: Vec<Column> = self.cell_places.iter().map(cells).collect::<Result<_>>()?;
        for (own, (coded, values)) in self.columns.iter().zip(values) {
            for (values, _) in values.iter().zip(&own.results).filter(|(_, (_, is_read))| *is_read) {
                columns.push(queue.look_up_codes(values, &coded.codes, row_count)?);
            }
        }
        Ok(Chunk { row_count, columns })
    }
}

impl CodedCondition {
    /// The columns that may come as codes: text that only parts of the condition read.
    pub(super) fn columns_without_cells(condition: &Expression, input: &Input) -> BTreeSet<ColumnId> {
        let texts = input.iter().filter(|(_, data_type)| is_text(data_type));
        let candidates: BTreeSet<ColumnId> = texts.map(|(id, _)| *id).collect();
        let mut rest = condition.clone();
        let mut split = Split::new(&candidates, input);
        split.take(&mut rest, true);
        let read = columns_of(&rest);
        let parts = split.parts;
        let has_part = |id: &ColumnId| parts.iter().any(|part| part.column == *id);
        candidates.iter().copied().filter(|id| has_part(id) && !read.contains(id)).collect()
    }

    /// The condition over the input, of which these columns come as codes.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more parts than a program has outputs or inputs for.
    pub(super) fn compile(
        condition: &Expression,
        coded: &BTreeSet<ColumnId>,
        input: &Input,
        parameters: &[Literal],
    ) -> Result<Self> {
        let mut rest = condition.clone();
        let mut split = Split::new(coded, input);
        split.take(&mut rest, true);
        let (parts, known) = CodedParts::compile(&split, &[&rest], input, parameters)?;
        let rest = match (&rest, split.parts.as_slice()) {
            (Expression::Column { .. }, [_]) => None,
            (rest, _) => Some(Filter::compile(rest, &known, parameters)?),
        };
        Ok(Self { parts, rest })
    }

    /// Places of the columns whose cells it reads.
    pub(super) fn cell_places(&self) -> &[usize] {
        &self.parts.cell_places
    }

    /// The comparisons of integers that it consists of, by their places among the columns whose cells it
    /// reads; `None` if it is anything else.
    pub(super) fn comparisons(&self) -> Option<Vec<Comparison>> {
        self.rest.as_ref()?.comparisons()
    }

    /// A flag a row: whether the condition is true. `column` returns the input's columns by place.
    ///
    /// # Errors
    ///
    /// Errors of the condition's functions; `OutOfMemory`, `Device`.
    pub(super) fn flags<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Buffer> {
        let values = self.parts.evaluate(queue, &column)?;
        let mut read = self.parts.read(queue, row_count, &column, &values)?;
        let flags = match &self.rest {
            None => read.columns.pop(),
            Some(filter) => Some(filter.evaluate(queue, &read)?),
        };
        flags.map(|flags| flags.values).ok_or_else(|| Error::internal("a condition without a part"))
    }
}

impl CodedProgram {
    /// Places of the columns whose cells it reads.
    pub(super) fn cell_places(&self) -> &[usize] {
        &self.parts.cell_places
    }

    /// The expressions over the input, of which these columns come as codes. None is a column by itself.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more parts than a program has outputs or inputs for.
    pub(super) fn compile(
        expressions: &[Expression],
        coded: &BTreeSet<ColumnId>,
        input: &Input,
        parameters: &[Literal],
    ) -> Result<Self> {
        let mut rest = expressions.to_vec();
        let mut split = Split::new(coded, input);
        rest.iter_mut().for_each(|expression| split.take(expression, false));
        let is_computed = |rest: &&Expression| !matches!(rest, Expression::Column { .. });
        let computed: Vec<&Expression> = rest.iter().filter(is_computed).collect();
        let (parts, known) = CodedParts::compile(&split, &computed, input, parameters)?;
        let computed: Vec<Expression> = computed.into_iter().cloned().collect();
        let output = |rest: &Expression| match rest {
            Expression::Column { id, .. } => {
                parts.find(*id).ok_or_else(|| Error::internal("a column that no part stands for"))
            }
            _ => Ok(CodedOutput::Computed),
        };
        let outputs = rest.iter().map(output).collect::<Result<_>>()?;
        let rest = Program::compile(&computed, &known, parameters)?;
        Ok(Self { parts, outputs, rest })
    }

    /// The expressions' values. Text made by a part comes as codes of the entries' values.
    ///
    /// # Errors
    ///
    /// Errors of the functions; `OutOfMemory`, `Device`.
    pub(super) fn evaluate<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Vec<AnyColumn>> {
        let values = self.parts.evaluate(queue, &column)?;
        let read = self.parts.read(queue, row_count, &column, &values)?;
        let mut computed = self.rest.evaluate(queue, &read)?.into_iter();
        let lacks = || Error::internal("a program lacks an output");
        let output = |output: &CodedOutput| match output {
            CodedOutput::Computed => computed.next().map(AnyColumn::Cells).ok_or_else(lacks),
            CodedOutput::Part(column, part) => {
                let (coded, values) = values.get(*column).ok_or_else(lacks)?;
                let entries = values.get(*part).ok_or_else(lacks)?;
                match is_text(&entries.data_type) {
                    true => {
                        Ok(AnyColumn::Codes(CodedColumn { entries: entries.clone(), ..(*coded).clone() }))
                    }
                    false => queue.look_up_codes(entries, &coded.codes, row_count).map(AnyColumn::Cells),
                }
            }
        };
        self.outputs.iter().map(output).collect()
    }
}

/// Whether a column may come as codes. Those of fixed width may not: see the module.
pub(in crate::execution) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Text | DataType::Bytea)
}

/// The columns that an expression reads.
pub(in crate::execution) fn columns_of(expression: &Expression) -> BTreeSet<ColumnId> {
    let mut columns = BTreeSet::new();
    expression.walk(&mut |part| {
        if let Expression::Column { id, .. } = part {
            columns.insert(*id);
        }
    });
    columns
}
