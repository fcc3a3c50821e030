//! Which expressions could fail.
//!
//! What can't may be evaluated for any row, and so before conditions that would drop the row; what could, only for
//! rows that reach it: an error that PostgreSQL would not raise is a wrong one, and may tell what a policy hides.
//!
//! Deliberately absent: failures that are not an expression's: memory, files.

use crate::{DataType, Expression, Function, Literal, Value};

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
    match function {
        // The precision of a decimal result is a bound that holds for every row.
        Function::Add | Function::Subtract | Function::Multiply | Function::Negate | Function::Absolute => {
            !data_type.is_decimal()
        }
        Function::Divide
        | Function::Modulo
        | Function::DivideDecimal
        | Function::Variance { .. }
        | Function::SquareRoot
        | Function::DateTrunc(_)
        | Function::AddDays
        | Function::SubtractDays
        | Function::DaysBetween
        | Function::AddInterval
        | Function::TimestampDifference => true,
        // Of what is infinite; a date from a file is not.
        Function::Extract(_) | Function::DatePart(_) => arguments
            .first()
            .is_some_and(|value| !matches!(value.data_type(), DataType::Date | DataType::Time)),
        Function::Round | Function::Truncate | Function::Ceiling | Function::Floor => data_type.is_decimal(),
        Function::Cast => match (arguments.first().map(Expression::data_type), data_type) {
            (Some(from), to) if from == to => false,
            (Some(DataType::Int16), DataType::Int32 | DataType::Int64)
            | (Some(DataType::Int32), DataType::Int64) => false,
            (Some(from), to) if from.is_integer() && to.is_float() => false,
            (Some(from), DataType::Decimal { precision, scale }) if from.is_integer() => {
                i32::from(*precision) - i32::from(*scale) < integer_digits(from)
            }
            _ => true,
        },
        // The pattern's end is looked at only for texts that match up to there.
        Function::Like | Function::ILike(_) => match arguments.get(1) {
            Some(Expression::Literal(Literal { value: Value::Text(pattern), .. })) => {
                pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
            }
            Some(Expression::Literal(Literal { value: Value::Null, .. })) => false,
            _ => true,
        },
        Function::Substring => match arguments.get(2) {
            Some(Expression::Literal(Literal { value: Value::Int(count), .. })) => *count < 0,
            other => other.is_some(),
        },
        _ => false,
    }
}

/// Decimal digits of an integer type's values.
fn integer_digits(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 19,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnId;

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
