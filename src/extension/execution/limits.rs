//! Errors of negative LIMIT and OFFSET, which SQL raises with texts of their own.

use pgrx::prelude::*;
use pystachio_plan::{Expression, Literal, Operator, Relation, Value};

/// Ends the statement with PostgreSQL's error if LIMIT or OFFSET is negative anywhere in a plan.
pub fn check_limits(root: &Relation, parameters: &[Literal]) {
    let mut waiting = vec![root];
    while let Some(relation) = waiting.pop() {
        if let Operator::Limit { offset, count, .. } = &relation.operator {
            // In PostgreSQL's order.
            if is_negative(offset.as_ref(), parameters) {
                ereport!(
                    ERROR,
                    PgSqlErrorCode::ERRCODE_INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE,
                    "OFFSET must not be negative"
                );
            }
            if is_negative(count.as_ref(), parameters) {
                ereport!(
                    ERROR,
                    PgSqlErrorCode::ERRCODE_INVALID_ROW_COUNT_IN_LIMIT_CLAUSE,
                    "LIMIT must not be negative"
                );
            }
        }
        waiting.extend(relation.inputs().into_iter().map(|input| &**input));
    }
}

fn is_negative(expression: Option<&Expression>, parameters: &[Literal]) -> bool {
    let literal = match expression {
        Some(Expression::Literal(literal)) => Some(literal),
        Some(Expression::Parameter { index, .. }) => parameters.get(*index as usize),
        _ => None,
    };
    literal.is_some_and(|literal| matches!(literal.value, Value::Int(..0)))
}
