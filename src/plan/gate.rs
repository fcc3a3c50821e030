//! Conditions without columns: PostgreSQL tests them once, before it reads a row of what they stand above
//! (a One-Time Filter), so nothing below one that is not true may be computed, or fail.

use std::{collections::BTreeSet, sync::Arc};

use crate::{DataType, Expression, Function, JoinKind, Literal, Operator, Relation, Value};

/// The same tree in which nothing is read below a condition without columns that is not true.
///
/// # Shapes
///
/// Operators stay where they are; scans below a closed gate have one condition, which is false.
pub fn close_gates(relation: &Arc<Relation>, parameters: &[Literal]) -> Arc<Relation> {
    let is_gate = match &relation.operator {
        Operator::Filter { .. } | Operator::Scan { .. } => true,
        // What an outer join's condition keeps apart is still there.
        Operator::Join { kind, .. } => matches!(kind, JoinKind::Inner | JoinKind::Semi),
        _ => false,
    };
    let conditions = match &relation.operator {
        Operator::Filter { predicate, .. } => vec![predicate],
        Operator::Scan { filters, .. } => filters.iter().collect(),
        Operator::Join { residual, .. } => residual.iter().collect(),
        _ => Vec::new(),
    };
    if is_gate && conditions.into_iter().any(|condition| is_closed(condition, parameters)) {
        return without_rows(relation);
    }
    if !has_gates(relation) {
        return relation.clone();
    }
    relation.map_inputs(&mut |input| close_gates(input, parameters))
}

/// The parameters that are conditions without columns, which tell whether others are needed.
pub fn gate_parameters(relation: &Relation) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    visit(relation, &mut |expression| {
        if let Expression::Parameter { index, data_type: DataType::Bool } = expression {
            found.insert(*index);
        }
    });
    found
}

/// The parameters that a tree reads.
pub fn parameters_of(relation: &Relation) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    visit(relation, &mut |expression| {
        expression.walk(&mut |part| {
            if let Expression::Parameter { index, .. } = part {
                found.insert(*index);
            }
        });
    });
    found
}

/// Visits the expressions of all operators, conjuncts one by one.
fn visit(relation: &Relation, visitor: &mut dyn FnMut(&Expression)) {
    let mut waiting = relation.expressions();
    while let Some(expression) = waiting.pop() {
        match expression {
            Expression::Call { function: Function::And, arguments, .. } => waiting.extend(arguments),
            other => visitor(other),
        }
    }
    relation.inputs().into_iter().for_each(|input| visit(input, visitor));
}

/// Whether there could be a gate below, so that trees without one, which are most, are not copied.
fn has_gates(relation: &Relation) -> bool {
    relation
        .inputs()
        .into_iter()
        .any(|input| input.expressions().into_iter().any(has_constant_condition) || has_gates(input))
}

fn has_constant_condition(expression: &Expression) -> bool {
    match expression {
        Expression::Literal(_) | Expression::Parameter { .. } => *expression.data_type() == DataType::Bool,
        Expression::Call { function: Function::And, arguments, .. } => {
            arguments.iter().any(has_constant_condition)
        }
        _ => false,
    }
}

/// Whether a condition is not true for any row, because a part of it without columns is not.
fn is_closed(condition: &Expression, parameters: &[Literal]) -> bool {
    match condition {
        Expression::Literal(literal) => literal.value != Value::Bool(true),
        Expression::Parameter { index, .. } => {
            parameters.get(*index as usize).is_some_and(|literal| literal.value != Value::Bool(true))
        }
        Expression::Call { function: Function::And, arguments, .. } => {
            arguments.iter().any(|argument| is_closed(argument, parameters))
        }
        _ => false,
    }
}

/// The tree over scans that give no row.
fn without_rows(relation: &Arc<Relation>) -> Arc<Relation> {
    let mut empty = relation.map_inputs(&mut without_rows);
    if let Operator::Scan { filters, .. } = &mut Arc::make_mut(&mut empty).operator {
        *filters = vec![Expression::literal(Value::Bool(false), DataType::Bool)];
    }
    empty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnContent, ColumnId, FileSet, ScanColumn, ScanExtent};

    fn scan(filters: Vec<Expression>) -> Arc<Relation> {
        let column = ScanColumn {
            id: ColumnId(1),
            name: "a".into(),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        let files = FileSet::parquet(Vec::new());
        let (columns, extent) = (vec![column], ScanExtent::Whole);
        Relation::new(Operator::Scan { table: "t".into(), files, columns, filters, extent }, 1.0)
    }

    fn parameter() -> Expression {
        Expression::Parameter { index: 0, data_type: DataType::Bool }
    }

    fn failing() -> Expression {
        let column = Expression::column(ColumnId(1), DataType::Int32);
        let quotient =
            Expression::call(Function::Divide, vec![Expression::int32(1), column], DataType::Int32);
        Expression::predicate(Function::Less, vec![Expression::int32(0), quotient])
    }

    fn bool_of(value: Value) -> [Literal; 1] {
        [Literal::new(value, DataType::Bool)]
    }

    fn filters_of(relation: &Relation) -> Vec<Expression> {
        let scans = relation.scans();
        let Some(Operator::Scan { filters, .. }) = scans.first() else { return Vec::new() };
        filters.clone()
    }

    #[test]
    fn nothing_is_tested_below_a_closed_gate() {
        let closed = vec![Expression::literal(Value::Bool(false), DataType::Bool)];
        let tree =
            Relation::new(Operator::Filter { input: scan(vec![failing()]), predicate: parameter() }, 1.0);
        for value in [Value::Bool(false), Value::Null] {
            assert_eq!(filters_of(&close_gates(&tree, &bool_of(value.clone()))), closed);
            let own = scan(vec![failing(), parameter()]);
            assert_eq!(filters_of(&close_gates(&own, &bool_of(value))), closed);
        }
        let own = scan(vec![failing(), Expression::literal(Value::Null, DataType::Bool)]);
        let above = Relation::new(Operator::Limit { input: own, offset: None, count: None }, 1.0);
        assert_eq!(filters_of(&close_gates(&above, &[])), closed);
    }

    #[test]
    fn what_only_a_closed_part_reads_is_not_needed() {
        let other = Expression::Parameter { index: 1, data_type: DataType::Int32 };
        let condition = Expression::predicate(Function::Less, vec![other, Expression::int32(1)]);
        let tree = scan(vec![condition, parameter()]);
        assert_eq!(gate_parameters(&tree), [0].into());
        assert_eq!(parameters_of(&tree), [0, 1].into());
        assert!(parameters_of(&close_gates(&tree, &bool_of(Value::Null))).is_empty());
    }

    #[test]
    fn an_open_gate_changes_nothing() {
        let tree =
            Relation::new(Operator::Filter { input: scan(vec![failing()]), predicate: parameter() }, 1.0);
        assert_eq!(close_gates(&tree, &bool_of(Value::Bool(true))), tree);
        let plain = scan(vec![failing()]);
        assert!(Arc::ptr_eq(&close_gates(&plain, &[]), &plain));
    }
}
