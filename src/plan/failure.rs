//! Which expressions could fail.
//!
//! What can't may be evaluated for any row, and so before conditions that would drop the row; what could, only for
//! rows that reach it: an error that PostgreSQL would not raise is a wrong one, and may tell what a policy hides.
//!
//! Deliberately absent: failures that are not an expression's: memory, files.

use crate::{DataType, Expression, FailureRule, Function};

/// Whether evaluating an expression could fail for some row. `is_safe` knows calls that can't, given their arguments.
pub fn could_fail(expression: &Expression, is_safe: &dyn Fn(&Expression) -> bool) -> bool {
    let own = match expression {
        Expression::Call { function, arguments, data_type } => {
            call_could_fail(*function, arguments, data_type) && !is_safe(expression)
        }
        _ => false,
    };
    own || expression.children().into_iter().any(|child| could_fail(child, is_safe))
}

/// Whether a call could fail for some row, its arguments aside.
pub fn call_could_fail(function: Function, arguments: &[Expression], data_type: &DataType) -> bool {
    match function.entry().failure {
        FailureRule::Never => false,
        FailureRule::Always => true,
        FailureRule::Depends(could_fail) => could_fail(arguments, data_type),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnId, Value};

    fn text() -> Expression {
        Expression::column(ColumnId(1), DataType::Text)
    }

    #[test]
    fn comparisons_and_patterns_that_end_well_never_fail() {
        let pattern = |text: &str| Expression::literal(Value::Text(text.into()), DataType::Text);
        let like = |value| Expression::predicate(Function::Like, vec![text(), value]);
        assert!(!could_fail(&like(pattern("a%")), &|_| false));
        assert!(could_fail(&like(pattern("a\\")), &|_| false));
        assert!(could_fail(&like(text()), &|_| false));
        let equal = Expression::predicate(Function::Equal, vec![text(), pattern("a")]);
        assert!(!could_fail(&equal, &|_| false));
    }

    #[test]
    fn casts_of_text_and_what_is_above_them_could_fail() {
        let number = Expression::call(Function::Cast, vec![text()], DataType::Int32);
        let positive = Expression::predicate(Function::Greater, vec![number, Expression::int32(0)]);
        assert!(could_fail(&positive, &|_| false));
        assert!(!could_fail(&positive, &|part| matches!(
            part,
            Expression::Call { function: Function::Cast, .. }
        )));
    }
}
