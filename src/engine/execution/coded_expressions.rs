//! Expressions over columns of which some come as codes: what reads one such column and nothing else is evaluated once
//! for every entry of its dictionary, and a row has what its entry has.
//!
//! ```text
//! a LIKE 'x%' AND (b = 'y' OR c < d)     a LIKE 'x%'  over the entries of a ─► p ─┐ by the rows' codes
//!                                        b = 'y'      over the entries of b ─► q ─┤
//!                                                                   p AND (q OR c < d)  over the rows
//! ```
//!
//! Invariants: NULL is an entry, so a part has its own value for it. A part can't fail: no error comes from an entry
//! that no row has. Parts stay where they were in the expression, and what is left is evaluated in the same order.
//!
//! Deliberately absent: columns of fixed width. Computing with such a cell costs no more than looking up its code.
//!
//! Source: predicates on dictionaries, Abadi, Madden, Ferreira, "Integrating Compression and Execution in
//! Column-Oriented Database Systems", SIGMOD 2006, section 4. We differ: any expression, not only comparisons.

use std::collections::BTreeSet;

use pystachio_plan::{ColumnId, DataType, Error, Expression, Function, Literal, Result};

use crate::{
    device::{AnyColumn, Buffer, Chunk, CodedColumn, Column},
    operation::Queue,
    program::{Filter, Program, could_fail},
};

/// Columns by id, in the order in which they are given.
type Input = [(ColumnId, DataType)];

/// A condition over columns of which some come as codes.
pub(super) struct CodedCondition {
    parts: CodedParts,
    /// Over the cells, and what the parts gave; absent where it is the only part, which is never NULL.
    rest: Option<Filter>,
}

/// Expressions over columns of which some come as codes.
pub(super) struct CodedProgram {
    parts: CodedParts,
    outputs: Vec<CodedOutput>,
    /// Over the cells, and what the parts gave.
    rest: Program,
}

/// What is evaluated once an entry, and what is left to be read of the rows.
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

/// Where an output comes from.
enum CodedOutput {
    /// It is a part itself: the column's and the part's number.
    Part(usize, usize),
    /// The next output of the rest.
    Computed,
}

impl CodedParts {
    /// Compiles the parts. Gives what the rest reads, too: cells, and then what parts give.
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
            let AnyColumn::Codes(coded) = column(own.place)? else {
                return Err(Error::internal("an expression reads codes of cells"));
            };
            let entries = Chunk { row_count: coded.entry_count, columns: vec![coded.entries.clone()] };
            Ok((coded, own.parts.evaluate(queue, &entries)?))
        };
        self.columns.iter().map(values).collect()
    }

    /// What the rest reads.
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
    /// The columns that may come as codes: text of which the condition reads nothing but parts.
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

    /// A flag a row: whether the condition is true. `column` gives the input's columns by place.
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
    /// Whether anything is evaluated once an entry.
    pub(super) fn has_parts(&self) -> bool {
        self.parts.columns.iter().any(|own| !own.results.is_empty())
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

    /// The expressions' values: text that a part makes comes as codes of what it made of the entries.
    ///
    /// # Errors
    ///
    /// Those of the functions; `OutOfMemory`, `Device`.
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

/// A part of an expression, over one column.
struct Part {
    column: ColumnId,
    /// The column that stands for it in what is left.
    result: ColumnId,
    expression: Expression,
}

/// What is taken out of expressions.
struct Split<'a> {
    coded: &'a BTreeSet<ColumnId>,
    parts: Vec<Part>,
    /// Ids from this on stand for the parts.
    next_id: u32,
}

impl<'a> Split<'a> {
    fn new(coded: &'a BTreeSet<ColumnId>, input: &Input) -> Self {
        let next_id = input.iter().map(|(id, _)| id.0 + 1).max().unwrap_or(0);
        Self { coded, parts: Vec::new(), next_id }
    }

    /// Takes the parts out of an expression; of a conjunct of a condition only whether it is true matters.
    fn take(&mut self, expression: &mut Expression, is_conjunct: bool) {
        if let Some(column) = self.only_column(expression) {
            let part = expression.clone();
            let part = match is_conjunct {
                true => Expression::predicate(Function::IsTrue, vec![part]),
                false => part,
            };
            let data_type = part.data_type().clone();
            *expression = Expression::column(self.part(column, part), data_type);
            return;
        }
        match expression {
            Expression::Call { function, arguments, .. } => {
                let function = *function;
                if matches!(function, Function::And | Function::Or) {
                    self.join_arguments(function, arguments);
                }
                let are_conjuncts = is_conjunct && function == Function::And;
                arguments.iter_mut().for_each(|argument| self.take(argument, are_conjuncts));
            }
            Expression::Case { branches, otherwise, .. } => {
                for branch in branches {
                    self.take(&mut branch.condition, false);
                    self.take(&mut branch.result, false);
                }
                otherwise.iter_mut().for_each(|otherwise| self.take(otherwise, false));
            }
            Expression::Column { .. } | Expression::Literal(_) | Expression::Parameter { .. } => {}
        }
    }

    /// Arguments of AND or OR that are parts of one column become one. Not where an argument could fail: whether it is
    /// evaluated depends on the order.
    fn join_arguments(&self, function: Function, arguments: &mut Vec<Expression>) {
        if arguments.iter().any(fails) {
            return;
        }
        let mut joined: Vec<(Option<ColumnId>, Vec<Expression>)> = Vec::new();
        for argument in arguments.drain(..) {
            let column = self.only_column(&argument);
            match joined.iter_mut().find(|(known, _)| known.is_some() && *known == column) {
                Some((_, same)) => same.push(argument),
                None => joined.push((column, vec![argument])),
            }
        }
        let one = |mut same: Vec<Expression>| match same.len() {
            1 => same.pop(),
            _ => Some(Expression::predicate(function, same)),
        };
        arguments.extend(joined.into_iter().filter_map(|(_, same)| one(same)));
    }

    /// The column of an expression that can be a part: one that computes something, can't fail and reads one column,
    /// which comes as codes.
    fn only_column(&self, expression: &Expression) -> Option<ColumnId> {
        let is_column = matches!(expression, Expression::Column { .. });
        if is_column || fails(expression) || may_make_long_text(expression) {
            return None;
        }
        let read = columns_of(expression);
        let column = *read.first()?;
        (read.len() == 1 && self.coded.contains(&column)).then_some(column)
    }

    /// The column that stands for a part.
    fn part(&mut self, column: ColumnId, expression: Expression) -> ColumnId {
        if let Some(known) = self.parts.iter().find(|part| part.expression == expression) {
            return known.result;
        }
        let result = ColumnId(self.next_id);
        self.next_id += 1;
        self.parts.push(Part { column, result, expression });
        result
    }
}

fn fails(expression: &Expression) -> bool {
    could_fail(expression, &|_| false)
}

/// Whether a column may come as codes. Those of fixed width may not: see the module.
pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Text | DataType::Bytea)
}

/// Whether text could become longer than PostgreSQL's can be, however short the column's is.
fn may_make_long_text(expression: &Expression) -> bool {
    let own = matches!(
        expression,
        Expression::Call {
            function: Function::Concat | Function::ConcatSkippingNulls | Function::Replace,
            ..
        }
    );
    own || expression.children().into_iter().any(may_make_long_text)
}

/// The columns that an expression reads.
pub(super) fn columns_of(expression: &Expression) -> BTreeSet<ColumnId> {
    let mut columns = BTreeSet::new();
    expression.walk(&mut |part| {
        if let Expression::Column { id, .. } = part {
            columns.insert(*id);
        }
    });
    columns
}

#[cfg(test)]
mod tests {
    use pystachio_plan::Value;

    use super::*;

    fn text(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Text)
    }

    fn boolean(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Bool)
    }

    fn literal(value: &str) -> Expression {
        Expression::literal(Value::Text(value.to_owned()), DataType::Text)
    }

    fn test(function: Function, a: Expression, b: Expression) -> Expression {
        Expression::predicate(function, vec![a, b])
    }

    fn is(id: u32, value: &str) -> Expression {
        test(Function::Equal, text(id), literal(value))
    }

    fn is_true(condition: Expression) -> Expression {
        Expression::predicate(Function::IsTrue, vec![condition])
    }

    /// Can fail.
    fn quotient_is_one(id: u32) -> Expression {
        let value = || Expression::column(ColumnId(id), DataType::Int64);
        let quotient = Expression::call(Function::Divide, vec![value(), value()], DataType::Int64);
        let one = Expression::literal(Value::Int(1), DataType::Int64);
        test(Function::Equal, quotient, one)
    }

    /// The parts, with columns 1 and 2 as codes, and the rest, in which they are columns from 100 on.
    fn split(condition: Expression) -> (Vec<(u32, Expression)>, Expression) {
        let coded = BTreeSet::from([ColumnId(1), ColumnId(2)]);
        let anchor = test(Function::Equal, text(99), literal(""));
        let mut rest = test(Function::And, anchor, condition);
        let mut split = Split::new(&coded, &[(ColumnId(99), DataType::Text)]);
        split.take(&mut rest, true);
        let parts = split.parts;
        for (part, id) in parts.iter().zip(100..) {
            assert_eq!(part.result, ColumnId(id));
        }
        let Expression::Call { mut arguments, .. } = rest else { panic!("no AND") };
        (parts.into_iter().map(|part| (part.column.0, part.expression)).collect(), arguments.pop().unwrap())
    }

    #[test]
    fn parts_are_as_large_as_they_can_be() {
        let either = test(Function::Or, is(1, "a"), test(Function::Like, text(1), literal("b%")));
        assert_eq!(split(either.clone()), (vec![(1, is_true(either.clone()))], boolean(100)));
        // Below an OR with others their own value matters, which may be NULL.
        let (parts, rest) = split(test(Function::Or, either.clone(), is(3, "c")));
        assert_eq!((parts, rest), (vec![(1, either)], test(Function::Or, boolean(100), is(3, "c"))));
        let both = test(Function::Less, text(1), text(2));
        assert_eq!(split(both.clone()), (Vec::new(), both));
    }

    #[test]
    fn parts_of_one_column_are_joined_unless_their_order_matters() {
        let or = |arguments| Expression::predicate(Function::Or, arguments);
        let (parts, rest) = split(or(vec![is(1, "a"), is(2, "b"), is(1, "c")]));
        assert_eq!(parts, vec![(1, or(vec![is(1, "a"), is(1, "c")])), (2, is(2, "b"))]);
        assert_eq!(rest, or(vec![boolean(100), boolean(101)]));
        let (parts, rest) = split(or(vec![is(1, "a"), quotient_is_one(4), is(1, "c"), is(1, "a")]));
        assert_eq!(parts, vec![(1, is(1, "a")), (1, is(1, "c"))]);
        assert_eq!(rest, or(vec![boolean(100), quotient_is_one(4), boolean(101), boolean(100)]));
    }

    #[test]
    fn what_could_fail_is_no_part() {
        for condition in [
            test(Function::Like, text(1), literal("a\\")),
            test(Function::Like, text(1), text(2)),
            test(
                Function::Equal,
                Expression::call(Function::Cast, vec![text(1)], DataType::Int32),
                Expression::int32(1),
            ),
            test(
                Function::Equal,
                Expression::call(Function::Concat, vec![text(1), text(1)], DataType::Text),
                literal("aa"),
            ),
        ] {
            assert_eq!(split(condition.clone()), (Vec::new(), condition));
        }
        let escaped = test(Function::Like, text(1), literal("a\\\\"));
        assert_eq!(split(escaped.clone()).0, [(1, is_true(escaped))]);
    }

    #[test]
    fn columns_whose_cells_are_read_do_not_come_as_codes() {
        let column = |id, data_type| (ColumnId(id), data_type);
        let columns = [
            column(1, DataType::Text),
            column(2, DataType::Text),
            column(3, DataType::Text),
            column(4, DataType::Int64),
            column(5, DataType::Text),
        ];
        let condition = Expression::predicate(
            Function::And,
            vec![is(1, "a"), is(2, "b"), test(Function::Less, text(2), text(3)), quotient_is_one(4)],
        );
        let found = CodedCondition::columns_without_cells(&condition, &columns);
        assert_eq!(found, BTreeSet::from([ColumnId(1)]));
    }
}
