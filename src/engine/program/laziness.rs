//! Which expressions must not, or should not, be evaluated for rows that do not need them.

use pystachio_plan::{DataType, Expression, Function, Literal, Value};

/// Whether an expression is to be evaluated only for rows that reach it: it could fail, or takes long.
pub(super) fn is_lazy(expression: &Expression) -> bool {
    let own = match expression {
        Expression::Call { function, arguments, data_type } => {
            is_slow(*function) || may_fail(*function, arguments, data_type)
        }
        _ => false,
    };
    own || expression.children().into_iter().any(is_lazy)
}

/// Whether evaluating an expression could fail for some row. `is_safe` knows calls that can't, given their arguments.
pub(crate) fn could_fail(expression: &Expression, is_safe: &dyn Fn(&Expression) -> bool) -> bool {
    let own = match expression {
        Expression::Call { function, arguments, data_type } => {
            may_fail(*function, arguments, data_type) && !is_safe(expression)
        }
        _ => false,
    };
    own || expression.children().into_iter().any(|child| could_fail(child, is_safe))
}

/// Functions that cost more than the skipping of them.
fn is_slow(function: Function) -> bool {
    matches!(
        function,
        Function::Like
            | Function::ILike(_)
            | Function::Position
            | Function::Replace
            | Function::Concat
            | Function::ConcatSkippingNulls
            | Function::Upper(_)
            | Function::Lower(_)
            | Function::PadBlanks
            | Function::QuotientScale
    )
}

/// Decimal digits of an integer type's values.
fn integer_digits(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 19,
    }
}

/// Whether a function could fail for a row that PostgreSQL would not evaluate it for.
fn may_fail(function: Function, arguments: &[Expression], data_type: &DataType) -> bool {
    match function {
        // The precision of a decimal result is a bound that holds for every row.
        Function::Add | Function::Subtract | Function::Multiply | Function::Negate | Function::Absolute => {
            !data_type.is_decimal()
        }
        Function::Divide
        | Function::Modulo
        | Function::DivideDecimal
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
