//! How many groups pass a condition on an aggregate: `HAVING sum(x) > 300`.
//!
//! PostgreSQL takes a third of the groups for any such comparison. A join above them would then be planned as if most groups
//! passed, where few do.
//!
//! The model: rows fall into groups at random, so a group has one row and a Poisson-distributed number of others. Values are spread
//! evenly between the bounds of their column, whatever the group. Counts and sums follow a logistic distribution of the
//! mean and variance that results: it has longer tails than the normal distribution, as groups of real data do.
//!
//! Deliberately absent: what a condition on a key passes, which PostgreSQL knows; averages, and aggregates with FILTER or DISTINCT.

use crate::{Aggregate, AggregateCall, ColumnId, DataType, Expression, Function, Literal, Value};

/// No fewer groups pass: sizes of groups may differ by orders of magnitude.
const SHARE_MIN: f64 = 1e-4;

/// The share of groups that pass a comparison of an aggregate with a constant; `None` for any other condition, and where the bounds of
/// the argument are not known. `rows_a_group`: on average. `bounds`: the least and the greatest value of a column.
pub fn passing_share(
    condition: &Expression,
    aggregates: &[AggregateCall],
    rows_a_group: f64,
    bounds: &dyn Fn(ColumnId) -> Option<(f64, f64)>,
) -> Option<f64> {
    let Expression::Call { function, arguments, .. } = condition else { return None };
    let [left, right] = arguments.as_slice() else { return None };
    let of = |expression: &Expression| {
        let id = column(expression)?;
        aggregates.iter().find(|call| call.id == id)
    };
    let (call, constant, is_turned) = match (of(left), of(right)) {
        (Some(call), None) => (call, number(right)?, false),
        (None, Some(call)) => (call, number(left)?, true),
        _ => return None,
    };
    let is_above = match function {
        Function::Greater | Function::GreaterEqual => !is_turned,
        Function::Less | Function::LessEqual => is_turned,
        _ => return None,
    };
    let below = share_below(call, constant, rows_a_group.max(1.0), bounds)?;
    let share = if is_above { 1.0 - below } else { below };
    Some(share.clamp(SHARE_MIN, 1.0))
}

/// The share of groups whose aggregate is less than a number.
fn share_below(
    call: &AggregateCall,
    number: f64,
    rows: f64,
    bounds: &dyn Fn(ColumnId) -> Option<(f64, f64)>,
) -> Option<f64> {
    if call.filter.is_some() || call.counts_distinct() {
        return None;
    }
    if call.function == Aggregate::Count {
        return Some(logistic(number, rows, rows - 1.0));
    }
    let (least, greatest) = bounds(column(call.argument.as_ref()?)?)?;
    let width = greatest - least;
    let below =
        if width > 0.0 { ((number - least) / width).clamp(0.0, 1.0) } else { f64::from(number > least) };
    match call.function {
        Aggregate::Sum => {
            let (mean, variance) = (f64::midpoint(least, greatest), width * width / 12.0);
            Some(logistic(number, rows * mean, rows * variance + (rows - 1.0) * mean * mean))
        }
        Aggregate::Min => Some(1.0 - (1.0 - below).powf(rows)),
        Aggregate::Max => Some(below.powf(rows)),
        _ => None,
    }
}

/// The share of a logistic distribution below a number.
fn logistic(number: f64, mean: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return f64::from(number > mean);
    }
    let scale = (3.0 * variance).sqrt() / std::f64::consts::PI;
    1.0 / (1.0 + (-(number - mean) / scale).exp())
}

/// The column that an expression is, whatever its type was made.
fn column(expression: &Expression) -> Option<ColumnId> {
    match expression {
        Expression::Column { id, .. } => Some(*id),
        Expression::Call { function: Function::Cast, arguments, .. } => column(arguments.first()?),
        _ => None,
    }
}

/// The number that an expression is.
fn number(expression: &Expression) -> Option<f64> {
    match expression {
        Expression::Literal(Literal { value, data_type }) => value.number(data_type),
        Expression::Call { function: Function::Cast, arguments, .. } => number(arguments.first()?),
        _ => None,
    }
}

impl Value {
    /// The value as a number, if it is one of this type.
    pub fn number(&self, data_type: &DataType) -> Option<f64> {
        match (self, data_type) {
            (Self::Int(value), data_type) if data_type.is_integer() => Some(*value as f64),
            (Self::Float(value), _) => Some(*value),
            (Self::Decimal(value), DataType::Decimal { scale, .. }) => {
                Some(*value as f64 * 10f64.powi(-i32::from(*scale)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTITY: ColumnId = ColumnId(1);
    const RESULT: ColumnId = ColumnId(2);

    fn quantity() -> DataType {
        DataType::Decimal { precision: 15, scale: 2 }
    }

    fn call(function: Aggregate) -> AggregateCall {
        let argument =
            Some(Expression::column(QUANTITY, quantity())).filter(|_| function != Aggregate::Count);
        AggregateCall {
            id: RESULT,
            function,
            argument,
            distinct: false,
            filter: None,
            data_type: DataType::Decimal { precision: 38, scale: 2 },
            order: Vec::new(),
        }
    }

    fn literal(value: i128) -> Expression {
        Expression::literal(Value::Decimal(value * 100), quantity())
    }

    /// Of groups of `rows` rows, whose values lie between 1 and 50.
    fn share(call: AggregateCall, function: Function, value: i128, rows: f64) -> Option<f64> {
        let result = Expression::column(RESULT, call.data_type.clone());
        let condition = Expression::predicate(function, vec![result, literal(value)]);
        passing_share(&condition, &[call], rows, &|id| (id == QUANTITY).then_some((1.0, 50.0)))
    }

    #[test]
    fn few_groups_are_far_from_the_mean_and_half_are_above_it() {
        let sum = |function, value| share(call(Aggregate::Sum), function, value, 4.0).unwrap();
        assert!(sum(Function::Greater, 300) < 0.01, "{}", sum(Function::Greater, 300));
        assert!((sum(Function::Greater, 102) - 0.5).abs() < 0.01);
        assert!(sum(Function::Less, 300) > 0.99);
        assert_eq!(sum(Function::Greater, 1_000_000), SHARE_MIN);
        let count = |function, value, rows| share(call(Aggregate::Count), function, value, rows).unwrap();
        assert!(count(Function::GreaterEqual, 5, 1.2) < 0.01);
        assert!(count(Function::GreaterEqual, 5, 100.0) > 0.99);
        // One row each.
        assert_eq!(count(Function::Greater, 1, 1.0), 1.0 - f64::from(1.0 > 1.0));
    }

    #[test]
    fn the_most_of_many_values_is_large() {
        let extreme = |function, value, rows| share(call(function), Function::Greater, value, rows).unwrap();
        assert!((extreme(Aggregate::Max, 25, 1.0) - extreme(Aggregate::Min, 25, 1.0)).abs() < 1e-9);
        assert!(extreme(Aggregate::Max, 40, 20.0) > 0.95);
        assert!(extreme(Aggregate::Min, 40, 20.0) < 0.01);
        assert_eq!(extreme(Aggregate::Min, 60, 1.0), SHARE_MIN);
    }

    #[test]
    fn a_constant_may_come_first_and_other_conditions_are_not_judged() {
        let sum = call(Aggregate::Sum);
        let result = Expression::column(RESULT, sum.data_type.clone());
        let turned = Expression::predicate(Function::Less, vec![literal(300), result.clone()]);
        let bounds = |id: ColumnId| (id == QUANTITY).then_some((1.0, 50.0));
        let of =
            |condition: &Expression, call: AggregateCall| passing_share(condition, &[call], 4.0, &bounds);
        assert_eq!(of(&turned, sum.clone()), share(sum.clone(), Function::Greater, 300, 4.0));
        let equal = Expression::predicate(Function::Equal, vec![result.clone(), literal(300)]);
        assert_eq!(of(&equal, sum.clone()), None);
        let itself = Expression::predicate(Function::Less, vec![result.clone(), result]);
        assert_eq!(of(&itself, sum.clone()), None);
        let filtered = AggregateCall { filter: Some(equal), ..sum.clone() };
        assert_eq!(of(&turned, filtered), None);
        assert_eq!(passing_share(&turned, &[sum], 4.0, &|_| None), None);
    }
}
