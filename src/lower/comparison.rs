//! Comparisons of two values, and of rows.

use pystachio_plan::{DataType, Expression, Function, Literal, Value, are_mixed_moments};

use crate::{
    Call, CatalogFunction, Collation, Comparison, Lowered, LoweredResult, Lowering, Notes, Refusal,
    RowColumn, Source, check_equality,
    collation::{OrderKey, is_deterministic, order_key},
    numeric::{cast_to, wider},
    span::compared_seconds,
    zone::in_session_zone,
};

/// The most digits of a decimal.
const COMMON_DIGITS_MAX: f64 = 76.0;
/// The most digits of a number that is sent to an engine, before the point and after it.
const RUNTIME_DIGITS_MAX: f64 = 38.0;

impl Lowering<'_> {
    /// The operands of an operator `=`.
    pub(crate) fn lower_equal_operands(
        &self,
        call: &Call,
        source: &Source,
    ) -> Result<(Expression, Expression), Refusal> {
        let compared = self.lower_call(call, source)?;
        match compared.expression {
            Expression::Call { function: Function::Equal, mut arguments, .. } if arguments.len() == 2 => {
                let b = arguments.remove(1);
                Ok((arguments.remove(0), b))
            }
            _ => Err(Refusal::Operator(call.function.name.clone())),
        }
    }

    /// `(a, b) < (x, y)` as `a <= x AND (a < x OR b < y)`: the first column bounds the rows, and NULL is where PostgreSQL has
    /// it, whose comparison ends at the first columns that differ or of which one is NULL.
    pub(crate) fn lower_row_comparison(
        &self,
        order: Option<Function>,
        columns: &[RowColumn],
    ) -> LoweredResult {
        let own = order.and_then(Comparison::of).ok_or(Refusal::RowOperators)?;
        let (strict, loose) = match own {
            Comparison::Less | Comparison::LessEqual => (Comparison::Less, Comparison::LessEqual),
            Comparison::Greater | Comparison::GreaterEqual => (Comparison::Greater, Comparison::GreaterEqual),
            Comparison::Equal | Comparison::NotEqual => return Err(Refusal::RowOperators),
        };
        let mut pairs = Vec::new();
        for (place, column) in columns.iter().enumerate() {
            let collation = column.collation.as_deref();
            check_equality(&column.left.of, collation, self.server)?;
            let order = order_key(&column.left.of, collation, self.server)?;
            if comparison_of(&column.function, collation)? != own {
                return Err(Refusal::RowOperators);
            }
            let lower = |value| match place {
                0 => self.lower(value),
                _ => self.lower_conditionally(value),
            };
            pairs.push((order, lower(&column.left)?, lower(&column.right)?));
        }
        let (order, a, b) = pairs.pop().ok_or(Refusal::EmptyRows)?;
        let mut compared = compare_in(order, self.notes, own, a, b)?;
        for (order, a, b) in pairs.into_iter().rev() {
            let is_before = compare_in(order, self.notes, strict, a.clone(), b.clone())?;
            let rest = Expression::predicate(Function::Or, vec![is_before, compared]);
            let is_loose = compare_in(order, self.notes, loose, a, b)?;
            compared = Expression::predicate(Function::And, vec![is_loose, rest]);
        }
        Ok(Lowered::plain(compared))
    }
}

/// The comparison that a function is, for operands under the collation.
pub(crate) fn comparison_of(
    function: &CatalogFunction,
    collation: Option<&Collation>,
) -> Result<Comparison, Refusal> {
    let comparison = function.meaning.and_then(|meaning| meaning.comparison());
    let comparison = comparison.ok_or_else(|| Refusal::Function(function.name.clone()))?;
    if !is_deterministic(collation) {
        return Err(Refusal::ComparisonByCollation(function.name.clone()));
    }
    Ok(comparison)
}

/// A comparison of two values in an order.
pub(crate) fn compare_in(
    order: OrderKey,
    notes: &Notes,
    comparison: Comparison,
    a: Lowered,
    b: Lowered,
) -> Result<Expression, Refusal> {
    if order == OrderKey::Value || !comparison.is_ordering() {
        return compare(notes, comparison, a, b);
    }
    let operands = vec![order.of(a.expression), order.of(b.expression)];
    Ok(Expression::predicate(comparison.to_plan(), operands))
}

/// A comparison of two values, brought to one type.
pub(crate) fn compare(
    notes: &Notes,
    comparison: Comparison,
    a: Lowered,
    b: Lowered,
) -> Result<Expression, Refusal> {
    let (type_a, type_b) = (a.data_type().clone(), b.data_type().clone());
    if [&type_a, &type_b] == [&DataType::Interval; 2] {
        return compare(notes, comparison, compared_seconds(&a)?, compared_seconds(&b)?);
    }
    let arguments = if type_a == type_b && type_a != DataType::Numeric {
        vec![a.expression, b.expression]
    } else if type_a.is_decimal() && type_b.is_decimal() {
        if type_a == DataType::Numeric && type_b == DataType::Numeric {
            return Err(Refusal::RuntimeNumerics);
        }
        if !have_common_digits(&a, &b) {
            return Err(Refusal::Comparison(type_a, type_b));
        }
        vec![a.expression, b.expression]
    } else if let Some(common) = wider(&type_a, &type_b) {
        vec![cast_to(a, &common), cast_to(b, &common)]
    } else if are_mixed_moments(&type_a, &type_b) {
        return compare_moments(notes, comparison, a, b);
    } else {
        return Err(Refusal::Comparison(type_a, type_b));
    };
    Ok(Expression::predicate(comparison.to_plan(), arguments))
}

/// Whether one decimal has the digits of both values, before the point and after it.
fn have_common_digits(a: &Lowered, b: &Lowered) -> bool {
    let digits = |value: &Lowered| match value.data_type().digits() {
        Some((whole, scale)) => {
            let used = if value.magnitude < 1.0 { 0.0 } else { value.magnitude.log10().floor() + 1.0 };
            (f64::from(whole).min(used), f64::from(scale))
        }
        // A value that is known when the query starts.
        None => (RUNTIME_DIGITS_MAX, RUNTIME_DIGITS_MAX),
    };
    let ((whole_a, scale_a), (whole_b, scale_b)) = (digits(a), digits(b));
    whole_a.max(whole_b) + scale_a.max(scale_b) <= COMMON_DIGITS_MAX
}

/// A comparison of two types of dates and timestamps. The engine is sent one of the column's type: once the other operand is
/// known, and the session's time zone where one is a `timestamptz` (`settle_moments`).
fn compare_moments(
    notes: &Notes,
    comparison: Comparison,
    a: Lowered,
    b: Lowered,
) -> Result<Expression, Refusal> {
    let known = match (&a.expression, &b.expression) {
        (_, Expression::Literal(moment)) => date_bound(comparison, &a.expression, moment),
        (Expression::Literal(moment), _) => date_bound(comparison.mirrored(), &b.expression, moment),
        _ => None,
    };
    if let Some(known) = known {
        return Ok(known);
    }
    let is_value = |operand: &Lowered| {
        matches!(operand.expression, Expression::Literal(_) | Expression::Parameter { .. })
    };
    let operands = match is_value(&a) || is_value(&b) {
        true => vec![a.expression, b.expression],
        false => moments_of_rows(notes, a, b)?,
    };
    Ok(Expression::predicate(comparison.to_plan(), operands))
}

/// A timestamp and a `timestamptz` of the same row as moments, if none is so far away that it would be out of range.
fn moments_of_rows(notes: &Notes, a: Lowered, b: Lowered) -> Result<Vec<Expression>, Refusal> {
    const MICROSECONDS_MAX: f64 = 9e18;
    let (type_a, type_b) = (a.data_type().clone(), b.data_type().clone());
    let refuse = || Refusal::MomentsOfRow(type_a.clone(), type_b.clone());
    let to_moment = |operand: Lowered| match operand.data_type() {
        DataType::TimestampTz => Ok(operand.expression),
        DataType::Timestamp if operand.magnitude < MICROSECONDS_MAX => {
            Ok(in_session_zone(notes, Function::Instant, operand.expression, DataType::TimestampTz))
        }
        _ => Err(refuse()),
    };
    if ![&type_a, &type_b].contains(&&DataType::TimestampTz) {
        return Err(refuse());
    }
    Ok(vec![to_moment(a)?, to_moment(b)?])
}

/// `date op timestamp` with a constant timestamp, as a comparison of dates: between two midnights, a date is before the
/// moment if and only if it is not after the day's start. `None` where that does not do.
fn date_bound(comparison: Comparison, date: &Expression, moment: &Literal) -> Option<Expression> {
    const DAY_MICROSECONDS: i64 = 86_400_000_000;
    if (date.data_type(), &moment.data_type) != (&DataType::Date, &DataType::Timestamp) {
        return None;
    }
    let (comparison, day) = match moment.value {
        Value::Int(i64::MIN) => (comparison, Value::Int(i64::from(i32::MIN))),
        Value::Int(i64::MAX) => (comparison, Value::Int(i64::from(i32::MAX))),
        Value::Int(microseconds) => {
            let is_midnight = microseconds.rem_euclid(DAY_MICROSECONDS) == 0;
            let comparison = match comparison {
                comparison if is_midnight => comparison,
                Comparison::Less | Comparison::LessEqual => Comparison::LessEqual,
                Comparison::Greater | Comparison::GreaterEqual => Comparison::Greater,
                Comparison::Equal | Comparison::NotEqual => return None,
            };
            (comparison, Value::Int(microseconds.div_euclid(DAY_MICROSECONDS)))
        }
        _ => (comparison, Value::Null),
    };
    let day = Expression::literal(day, DataType::Date);
    Some(Expression::predicate(comparison.to_plan(), vec![date.clone(), day]))
}
