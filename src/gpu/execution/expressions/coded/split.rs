//! Finds the parts of expressions that read only one coded column.

use std::collections::BTreeSet;

use pystachio_plan::{ColumnId, Expression, Function, could_fail};

use super::{Input, columns_of};

/// A part of an expression, over one column.
pub(super) struct Part {
    pub(super) column: ColumnId,
    /// The column that stands for it in the rest.
    pub(super) result: ColumnId,
    pub(super) expression: Expression,
}

/// The parts taken out of expressions.
pub(super) struct Split<'a> {
    pub(super) coded: &'a BTreeSet<ColumnId>,
    pub(super) parts: Vec<Part>,
    /// Ids from this on stand for the parts.
    next_id: u32,
}

impl<'a> Split<'a> {
    pub(super) fn new(coded: &'a BTreeSet<ColumnId>, input: &Input) -> Self {
        let next_id = input.iter().map(|(id, _)| id.0 + 1).max().unwrap_or(0);
        Self { coded, parts: Vec::new(), next_id }
    }

    /// Takes the parts out of an expression; a conjunct of a condition only has to be true for the
    /// same rows.
    pub(super) fn take(&mut self, expression: &mut Expression, is_conjunct: bool) {
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

    /// Merges arguments of AND or OR that are parts of one column. Not if an argument could fail:
    /// the order decides whether it is evaluated.
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

/// Whether text could exceed PostgreSQL's limit, however short the column's text is.
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

#[cfg(test)]
mod tests {
    use pystachio_plan::{DataType, Value};

    use super::*;
    use crate::execution::expressions::coded::CodedCondition;

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
    fn parts_are_of_any_type() {
        let length = |id| Expression::call(Function::Length, vec![text(id)], DataType::Int32);
        let sum = |a, b| Expression::call(Function::Coalesce, vec![a, b], DataType::Int32);
        let column = |id| Expression::column(ColumnId(id), DataType::Int32);
        let (parts, rest) = split(test(Function::Less, sum(length(1), length(2)), sum(column(3), length(1))));
        assert_eq!(parts, vec![(1, length(1)), (2, length(2))]);
        assert_eq!(rest, test(Function::Less, sum(column(100), column(101)), sum(column(3), column(100))));
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
