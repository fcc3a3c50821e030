//! Conditions of a scan on columns that come as codes: what reads one such column and nothing else is evaluated once
//! for every entry of its dictionary, and a row has what its entry has.
//!
//! ```text
//! a LIKE 'x%' AND (b = 'y' OR c < d)     a LIKE 'x%'  over the entries of a ─► p ─┐ by the rows' codes
//!                                        b = 'y'      over the entries of b ─► q ─┤
//!                                                                   p AND (q OR c < d)  over the rows
//! ```
//!
//! Invariants: NULL is an entry, so a part has its own value for it. A part can't fail: no error comes from an entry
//! that no row has. Parts stay where they were in the condition, and what is left is evaluated in the same order.
//!
//! Deliberately absent: columns of fixed width. Comparing such a cell costs no more than looking up its code.
//!
//! Source: predicates on dictionaries, Abadi, Madden, Ferreira, "Integrating Compression and Execution in
//! Column-Oriented Database Systems", SIGMOD 2006, section 4. We differ: any expression, not only comparisons.

use std::collections::BTreeSet;

use pystachio_plan::{ColumnId, DataType, Error, Expression, Function, Literal, Result, ScanColumn};

use super::Columns;
use crate::{
    decode::DecodedColumn,
    device::{Buffer, Chunk, Column},
    operation::Queue,
    program::{Filter, Program, could_fail},
};

/// A condition over columns of which some come as codes.
pub(super) struct CodedConditions {
    columns: Vec<EntryConditions>,
    /// Places of the columns whose cells the rest reads, among the scan's.
    cell_places: Vec<usize>,
    /// Over these cells, and what the parts gave; absent where it is the only part, which is never NULL.
    rest: Option<Filter>,
}

/// The parts that read one column.
struct EntryConditions {
    place: usize,
    parts: Program,
}

impl CodedConditions {
    /// The columns that may come as codes: text of which the condition reads nothing but parts.
    pub(super) fn columns_without_cells(
        condition: &Expression,
        columns: &[ScanColumn],
    ) -> BTreeSet<ColumnId> {
        let candidates: BTreeSet<ColumnId> =
            columns.iter().filter(|column| is_text(&column.data_type)).map(|column| column.id).collect();
        let Split { parts, rest, .. } = Split::of(condition, &candidates, free_id(columns));
        let read = columns_of(&rest);
        let has_part = |id: &ColumnId| parts.iter().any(|part| part.column == *id);
        candidates.into_iter().filter(|id| has_part(id) && !read.contains(id)).collect()
    }

    /// The condition over the scan's columns, of which these come as codes.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more parts than a program has outputs or inputs for.
    pub(super) fn compile(
        condition: &Expression,
        coded: &BTreeSet<ColumnId>,
        columns: &[ScanColumn],
        parameters: &[Literal],
    ) -> Result<Self> {
        let Split { parts, rest, .. } = Split::of(condition, coded, free_id(columns));
        let read = columns_of(&rest);
        let cell_places: Vec<usize> =
            (0..columns.len()).filter(|place| read.contains(&columns[*place].id)).collect();
        let named = |place: &usize| (columns[*place].id, columns[*place].data_type.clone());
        let mut known: Columns = cell_places.iter().map(named).collect();
        let mut by_column = Vec::new();
        for place in (0..columns.len()).filter(|place| coded.contains(&columns[*place].id)) {
            let own = parts.iter().filter(|part| part.column == columns[place].id);
            let (expressions, ids): (Vec<Expression>, Vec<ColumnId>) =
                own.map(|part| (part.expression.clone(), part.result)).unzip();
            known.extend(ids.into_iter().map(|id| (id, DataType::Bool)));
            let parts = Program::compile(&expressions, &[named(&place)], parameters)?;
            by_column.push(EntryConditions { place, parts });
        }
        let rest = match (&rest, parts.as_slice()) {
            (Expression::Column { .. }, [_]) => None,
            (rest, _) => Some(Filter::compile(rest, &known, parameters)?),
        };
        Ok(Self { columns: by_column, cell_places, rest })
    }

    /// A flag a row: whether the condition is true. `column` gives the scan's columns by place.
    ///
    /// # Errors
    ///
    /// Those of the condition's functions; `OutOfMemory`, `Device`.
    pub(super) fn flags<'a>(
        &self,
        queue: &Queue,
        row_count: usize,
        column: impl Fn(usize) -> Result<&'a DecodedColumn>,
    ) -> Result<Buffer> {
        let mut read: Vec<Column> = Vec::new();
        for place in &self.cell_places {
            match column(*place)? {
                DecodedColumn::Cells(cells) => read.push(cells.clone()),
                DecodedColumn::Codes(_) => return Err(Error::internal("a condition reads cells of codes")),
            }
        }
        for EntryConditions { place, parts } in &self.columns {
            let DecodedColumn::Codes(coded) = column(*place)? else {
                return Err(Error::internal("a condition reads codes of cells"));
            };
            let entries = Chunk { row_count: coded.entry_count, columns: vec![coded.entries.clone()] };
            for values in parts.evaluate(queue, &entries)? {
                read.push(queue.look_up_codes(&values, &coded.codes, row_count)?);
            }
        }
        let flags = match &self.rest {
            None => read.pop(),
            Some(filter) => {
                let chunk = Chunk { row_count, columns: read };
                Some(filter.evaluate(queue, &chunk)?)
            }
        };
        flags.map(|flags| flags.values).ok_or_else(|| Error::internal("a condition without a part"))
    }
}

/// A part of a condition, over one column.
struct Part {
    column: ColumnId,
    /// The column that stands for it in what is left.
    result: ColumnId,
    expression: Expression,
}

/// A condition whose parts are taken out.
struct Split<'a> {
    coded: &'a BTreeSet<ColumnId>,
    parts: Vec<Part>,
    rest: Expression,
    next_id: u32,
}

impl<'a> Split<'a> {
    /// Ids from `next_id` on stand for the parts.
    fn of(condition: &Expression, coded: &'a BTreeSet<ColumnId>, next_id: u32) -> Self {
        let mut rest = condition.clone();
        let mut split = Self { coded, parts: Vec::new(), rest: Expression::int32(0), next_id };
        split.take(&mut rest, true);
        Self { rest, ..split }
    }

    /// Takes the parts out of an expression; of a conjunct of the condition only whether it is true matters.
    fn take(&mut self, expression: &mut Expression, is_conjunct: bool) {
        if let Some(column) = self.only_column(expression) {
            let part = expression.clone();
            let part = match is_conjunct {
                true => Expression::predicate(Function::IsTrue, vec![part]),
                false => part,
            };
            *expression = Expression::column(self.part(column, part), DataType::Bool);
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

    /// The column of an expression that can be a part: a boolean that can't fail and reads one column, which comes as
    /// codes.
    fn only_column(&self, expression: &Expression) -> Option<ColumnId> {
        if *expression.data_type() != DataType::Bool || fails(expression) || may_make_long_text(expression) {
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

/// An id above those of the scan's columns.
fn free_id(columns: &[ScanColumn]) -> u32 {
    columns.iter().map(|column| column.id.0 + 1).max().unwrap_or(0)
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
        let Split { parts, rest, .. } = Split::of(&test(Function::And, anchor, condition), &coded, 100);
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
        let column = |id, data_type| ScanColumn {
            id: ColumnId(id),
            name: format!("c{id}"),
            data_type,
            not_null: false,
            length_max: None,
            trim_blanks: false,
        };
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
        let found = CodedConditions::columns_without_cells(&condition, &columns);
        assert_eq!(found, BTreeSet::from([ColumnId(1)]));
    }
}
