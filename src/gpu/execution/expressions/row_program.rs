//! Expressions and conditions over rows. Columns stay codes where an expression is only the column;
//! otherwise parts are evaluated once an entry where possible (`coded.rs`).
//!
//! Invariants: which columns come as codes may differ from chunk to chunk; the values do not.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{ColumnId, DataType, Error, Expression, Literal, Result};

use super::coded::{CodedCondition, CodedProgram};
use crate::{
    device::{AnyColumn, Buffer, Column, Rows},
    execution::Columns,
    operation::Queue,
    program::Comparison,
    segment::TextSearch,
};

/// Compiled variants, by the columns that come as codes. There are as few of these sets as ways in
/// which files are written.
struct Variants<T> {
    /// For columns that all come as cells.
    of_cells: Arc<T>,
    of_codes: Mutex<HashMap<BTreeSet<ColumnId>, Arc<T>>>,
}

impl<T> Variants<T> {
    fn new(of_cells: T) -> Self {
        Self { of_cells: Arc::new(of_cells), of_codes: Mutex::default() }
    }

    /// The variant for these codes. `compile` makes it; without its result the cells are looked up.
    fn of(
        &self,
        coded: BTreeSet<ColumnId>,
        compile: impl FnOnce(&BTreeSet<ColumnId>) -> Option<T>,
    ) -> Arc<T> {
        if coded.is_empty() {
            return self.of_cells.clone();
        }
        let compiled = |coded: &_| compile(coded).map_or_else(|| self.of_cells.clone(), Arc::new);
        lock_whole(&self.of_codes).entry(coded).or_insert_with_key(compiled).clone()
    }
}

/// The columns at some places that are codes.
fn coded_among<'a>(
    places: &[usize],
    input: &Columns,
    column: &impl Fn(usize) -> Result<&'a AnyColumn>,
) -> Result<BTreeSet<ColumnId>> {
    let mut coded = BTreeSet::new();
    for place in places {
        if column(*place)?.codes().is_some() {
            coded.insert(input[*place].0);
        }
    }
    Ok(coded)
}

/// Places of the columns of these ids.
pub(in crate::execution) fn places_of(
    read: &BTreeSet<ColumnId>,
    input: &[(ColumnId, DataType)],
) -> Vec<usize> {
    (0..input.len()).filter(|place| read.contains(&input[*place].0)).collect()
}

/// A condition on rows.
pub(in crate::execution) struct RowCondition {
    condition: Expression,
    input: Columns,
    parameters: Vec<Literal>,
    variants: Variants<CodedCondition>,
}

impl RowCondition {
    /// A condition over columns of these ids and types, in the order of the rows' columns.
    ///
    /// # Errors
    ///
    /// Errors of [`crate::program::Filter::compile`].
    pub(in crate::execution) fn compile(
        condition: &Expression,
        input: &[(ColumnId, DataType)],
        parameters: &[Literal],
    ) -> Result<Self> {
        let of_cells = CodedCondition::compile(condition, &BTreeSet::new(), input, parameters)?;
        Ok(Self {
            condition: condition.clone(),
            input: input.to_vec(),
            parameters: parameters.to_vec(),
            variants: Variants::new(of_cells),
        })
    }

    /// Places of the columns that it reads.
    pub(in crate::execution) fn places(&self) -> &[usize] {
        self.variants.of_cells.cell_places()
    }

    /// The comparisons of integers that it consists of, by place of their columns; `None` if it is anything else.
    pub(in crate::execution) fn comparisons(&self) -> Option<Vec<Comparison>> {
        let (mut comparisons, places) = (self.variants.of_cells.comparisons()?, self.places());
        for comparison in &mut comparisons {
            match comparison {
                Comparison::Within { column, .. } => *column = places[*column],
                Comparison::Ordered { column, other, .. } => {
                    (*column, *other) = (places[*column], places[*other]);
                }
            }
        }
        Some(comparisons)
    }

    /// The search that it is, of text of one column.
    pub(in crate::execution) fn search(&self) -> Option<TextSearch> {
        TextSearch::of(&self.condition, &self.parameters)
    }

    /// Places of the columns whose cells it does not need if they come as codes.
    pub(in crate::execution) fn places_without_cells(&self) -> Vec<usize> {
        let without_cells = CodedCondition::columns_without_cells(&self.condition, &self.input);
        self.places().iter().copied().filter(|place| without_cells.contains(&self.input[*place].0)).collect()
    }

    /// A flag a row: whether it is true. `column` returns the columns by place.
    ///
    /// # Errors
    ///
    /// Errors of the condition's functions; `OutOfMemory`, `Device`.
    pub(in crate::execution) fn flags<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Buffer> {
        let coded = coded_among(self.places(), &self.input, &column)?;
        let compile = |coded: &BTreeSet<ColumnId>| {
            CodedCondition::compile(&self.condition, coded, &self.input, &self.parameters).ok()
        };
        self.variants.of(coded, compile).flags(queue, row_count, column)
    }
}

/// Expressions over rows.
pub(in crate::execution) struct RowProgram {
    outputs: Vec<RowOutput>,
    /// Those that are not columns by themselves.
    expressions: Vec<Expression>,
    input: Columns,
    parameters: Vec<Literal>,
    variants: Variants<CodedProgram>,
}

/// The origin of an output.
enum RowOutput {
    /// A column of the input, by place.
    Input(usize),
    /// The next computed value.
    Computed,
}

impl RowProgram {
    /// Expressions over columns of these ids and types, in the order of the rows' columns.
    ///
    /// # Errors
    ///
    /// Errors of [`crate::program::Program::compile`].
    pub(in crate::execution) fn compile(
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
        let of_cells = CodedProgram::compile(&expressions, &BTreeSet::new(), input, parameters)?;
        Ok(Self {
            outputs,
            expressions,
            input: input.to_vec(),
            parameters: parameters.to_vec(),
            variants: Variants::new(of_cells),
        })
    }

    /// How many of the values are computed; the others are the rows' own.
    pub(in crate::execution) fn computed_count(&self) -> usize {
        self.expressions.len()
    }

    /// The expressions' values. Those that are columns are the rows' own.
    ///
    /// Waits as [`crate::program::Program::evaluate`] does.
    ///
    /// # Errors
    ///
    /// Errors of the functions; `OutOfMemory`, `Device`.
    pub(in crate::execution) fn evaluate(&self, queue: &Queue, rows: &Rows) -> Result<Vec<AnyColumn>> {
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
    /// Errors of [`RowProgram::evaluate`].
    pub(in crate::execution) fn evaluate_cells(&self, queue: &Queue, rows: &Rows) -> Result<Vec<Column>> {
        let values = self.evaluate(queue, rows)?;
        values.iter().map(|values| queue.cells_of(values, rows.row_count)).collect()
    }

    fn compute<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a AnyColumn>,
    ) -> Result<Vec<AnyColumn>> {
        let coded = coded_among(self.variants.of_cells.cell_places(), &self.input, &column)?;
        let compile = |coded: &BTreeSet<ColumnId>| {
            let (expressions, input) = (&self.expressions, &self.input);
            CodedProgram::compile(expressions, coded, input, &self.parameters).ok()
        };
        self.variants.of(coded, compile).evaluate(queue, row_count, column)
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{CaseBranch, Ctype, Function, Value};

    use super::*;
    use crate::device::{CellType, Chunk, CodedColumn, DeviceMemory, EmulatedPlatform, StringCell};

    const TEXT: ColumnId = ColumnId(1);
    const NUMBER: ColumnId = ColumnId(2);
    /// Two are equal, as they may be where blanks were cut off; the last one is for rows that are NULL.
    const ENTRIES: [Option<&str>; 5] = [Some("ab"), Some(""), Some("ab"), Some("Xyz"), None];
    const CODES: [u32; 12] = [3, 0, 4, 1, 2, 2, 4, 0, 3, 1, 1, 0];

    fn text_column(queue: &Queue, values: &[Option<&str>]) -> Column {
        let bytes = queue
            .upload(values.iter().map(|value| value.unwrap_or("")).collect::<String>().as_bytes())
            .unwrap();
        let mut address = bytes.address();
        let mut cells = Vec::new();
        for value in values {
            let length = value.unwrap_or("").len() as u32;
            cells.push(StringCell { address, length, reserved: 0 });
            address += u64::from(length);
        }
        let validity: Vec<u8> = values.iter().map(|value| value.is_some().into()).collect();
        Column {
            data_type: DataType::Text,
            cell_type: CellType::String,
            values: queue.upload(&cells).unwrap(),
            validity: Some(queue.upload(&validity).unwrap()),
            strings: vec![bytes],
        }
    }

    fn rows(queue: &Queue, as_codes: bool) -> Rows {
        let codes = queue.upload(&CODES).unwrap();
        let coded = CodedColumn { entries: text_column(queue, &ENTRIES), entry_count: ENTRIES.len(), codes };
        let coded = AnyColumn::Codes(coded);
        let text = match as_codes {
            true => coded,
            false => AnyColumn::Cells(queue.cells_of(&coded, CODES.len()).unwrap()),
        };
        let numbers: Vec<i32> = (0..CODES.len() as i32).collect();
        let number = Column {
            data_type: DataType::Int32,
            cell_type: CellType::Int32,
            values: queue.upload(&numbers).unwrap(),
            validity: None,
            strings: Vec::new(),
        };
        Rows { row_count: CODES.len(), columns: vec![text, AnyColumn::Cells(number)] }
    }

    fn input() -> Columns {
        vec![(TEXT, DataType::Text), (NUMBER, DataType::Int32)]
    }

    fn text() -> Expression {
        Expression::column(TEXT, DataType::Text)
    }

    fn number() -> Expression {
        Expression::column(NUMBER, DataType::Int32)
    }

    fn upper() -> Expression {
        Expression::call(Function::Upper(Ctype::Ascii), vec![text()], DataType::Text)
    }

    fn is_like(pattern: &str) -> Expression {
        let pattern = Expression::literal(Value::Text(pattern.to_owned()), DataType::Text);
        Expression::predicate(Function::Like, vec![text(), pattern])
    }

    fn expressions() -> Vec<Expression> {
        let branch = |condition, result| CaseBranch { condition, result };
        let length = Expression::call(Function::Length, vec![upper()], DataType::Int32);
        let case = Expression::Case {
            branches: vec![branch(is_like("%y%"), Expression::int32(-1)), branch(is_like("a%"), number())],
            otherwise: None,
            data_type: DataType::Int32,
        };
        let pair = Expression::call(Function::Coalesce, vec![upper(), text()], DataType::Text);
        vec![upper(), number(), length, text(), case, pair, Expression::int32(7)]
    }

    fn shown(queue: &Queue, columns: &[Column]) -> Vec<Vec<String>> {
        let types: Vec<DataType> = columns.iter().map(|column| column.data_type.clone()).collect();
        let schema = crate::operation::column_schema(&types);
        let chunk = Chunk { row_count: CODES.len(), columns: columns.to_vec() };
        let batch = crate::operation::to_arrow(queue, &chunk, &schema).unwrap();
        let shown = |array: &arrow::array::ArrayRef| {
            let value = |row| arrow::util::display::array_value_to_string(array, row).unwrap();
            (0..batch.num_rows()).map(value).collect()
        };
        batch.columns().iter().map(shown).collect()
    }

    #[test]
    fn text_that_is_made_of_codes_is_codes_and_has_the_same_cells() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1 << 30).open_account();
        let queue = Queue::new(&memory).unwrap();
        let program = RowProgram::compile(&expressions(), &input(), &[]).unwrap();
        let coded = rows(&queue, true);
        let AnyColumn::Codes(CodedColumn { codes, .. }) = &coded.columns[0] else { panic!("no codes") };
        let columns = program.evaluate(&queue, &coded).unwrap();
        let of_the_same_codes = |column: &AnyColumn| match column {
            AnyColumn::Codes(made) => made.codes.address() == codes.address(),
            AnyColumn::Cells(_) => false,
        };
        let are_codes: Vec<bool> = columns.iter().map(of_the_same_codes).collect();
        assert_eq!(are_codes, [true, false, false, true, false, true, false]);
        let with = program.evaluate_cells(&queue, &coded).unwrap();
        let without = program.evaluate_cells(&queue, &rows(&queue, false)).unwrap();
        let with = shown(&queue, &with);
        assert_eq!(with, shown(&queue, &without));
        assert_eq!(with[0], ["XYZ", "AB", "", "", "AB", "AB", "", "AB", "XYZ", "", "", "AB"]);
        assert_eq!(with[4], ["-1", "1", "", "", "4", "5", "", "7", "-1", "", "", "11"]);
    }

    #[test]
    fn conditions_are_true_of_the_same_rows_with_codes_and_with_cells() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1 << 30).open_account();
        let queue = Queue::new(&memory).unwrap();
        let even = Expression::predicate(Function::Less, vec![number(), Expression::int32(6)]);
        let is_null = Expression::predicate(Function::IsNull, vec![text()]);
        let condition = Expression::predicate(
            Function::And,
            vec![even, Expression::predicate(Function::Or, vec![is_like("a%"), is_null])],
        );
        let condition = RowCondition::compile(&condition, &input(), &[]).unwrap();
        assert_eq!((condition.places(), condition.places_without_cells()), (&[0, 1][..], vec![0]));
        for as_codes in [true, false] {
            let rows = rows(&queue, as_codes);
            let flags = condition.flags(&queue, CODES.len(), |place| Ok(&rows.columns[place])).unwrap();
            let flags: Vec<u8> = queue.download(&flags, CODES.len()).unwrap();
            assert_eq!(flags, [0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
        }
    }
}
