//! Row groups ruled out by statistics: conditions of a plan against bounds of a row group.
//!
//! Invariants: a row group is ruled out only if no row in it can make the conditions true. What is not
//! understood rules out nothing.
//!
//! Deliberately absent: floats, whose NaN has no place in a file's bounds; bounds of a type that is not the
//! declared one.

use std::{cmp::Ordering, ops::RangeInclusive};

use parquet::file::metadata::RowGroupMetaData;
use pystachio_plan::{ColumnId, DataType, Expression, Function, Literal, ScanColumn, Value};

use crate::{
    FileFooter,
    derived_bounds::bounds_of,
    statistics::{ChunkStatistics, ColumnSummary},
};

/// What the statistics of one row group say of a scan's columns.
#[derive(Debug, Default)]
pub struct RowGroupBounds {
    columns: Vec<(ColumnId, Bounds)>,
}

/// Bounds of a column within some rows.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) data_type: DataType,
    pub(super) minimum: Option<Value>,
    pub(super) maximum: Option<Value>,
    pub(super) null_count: Option<u64>,
    pub(super) row_count: u64,
}

impl RowGroupBounds {
    /// The bounds of `columns`, whose leaves in the file are `leaves`.
    pub fn new(
        footer: &FileFooter,
        row_group: &RowGroupMetaData,
        columns: &[ScanColumn],
        leaves: &[usize],
    ) -> Self {
        let bounds = columns.iter().zip(leaves).filter_map(|(column, leaf)| {
            let bounds = with_statistics(footer, row_group, column, *leaf, Bounds::of_chunk)?;
            Some((column.id, bounds?))
        });
        Self { columns: bounds.collect() }
    }

    /// Bounds of a column whose values are integers or counts of days or microseconds; `None` if the file tells none, which it
    /// does not if all are NULL.
    pub fn integers(&self, column: ColumnId) -> Option<RangeInclusive<i64>> {
        let (_, bounds) = self.columns.iter().find(|(known, _)| *known == column)?;
        match (&bounds.minimum, &bounds.maximum) {
            (Some(Value::Int(minimum)), Some(Value::Int(maximum))) => Some(*minimum..=*maximum),
            _ => None,
        }
    }

    /// How many values of a column are NULL, if the file tells it.
    pub fn null_count(&self, column: ColumnId) -> Option<u64> {
        let (_, bounds) = self.columns.iter().find(|(known, _)| *known == column)?;
        bounds.null_count
    }
}

/// Makes something of a column's statistics, if bounds in the file are bounds of the column as it is declared.
pub(super) fn with_statistics<T>(
    footer: &FileFooter,
    row_group: &RowGroupMetaData,
    column: &ScanColumn,
    leaf: usize,
    make: impl FnOnce(&ChunkStatistics<'_>) -> T,
) -> Option<T> {
    let file_type = footer.type_of_leaf(leaf)?;
    if !same_values(file_type.data_type.as_ref()?, &column.data_type) || column.trim_blanks {
        return None;
    }
    Some(make(&footer.statistics_of(row_group, leaf, &file_type)?))
}

impl Bounds {
    fn of_chunk(part: &ChunkStatistics<'_>) -> Option<Self> {
        let mut summary = ColumnSummary::new();
        summary.add(part);
        Some(Self {
            data_type: part.file_type.data_type.clone()?,
            minimum: summary.minimum(),
            maximum: summary.maximum(),
            null_count: summary.null_count(),
            row_count: part.row_count,
        })
    }

    /// Whether there are rows, and all of them are NULL.
    fn is_null(&self) -> bool {
        self.row_count > 0 && self.null_count == Some(self.row_count)
    }
}

/// Whether bounds of one type are bounds of the other.
fn same_values(file: &DataType, declared: &DataType) -> bool {
    match (file, declared) {
        (DataType::Decimal { .. }, DataType::Decimal { .. }) => true,
        (DataType::Float32 | DataType::Float64, _) => false,
        (file, declared) => file == declared || (file.is_integer() && declared.is_integer()),
    }
}

/// Whether no row within the bounds can make all conditions true.
pub fn refutes(conditions: &[Expression], bounds: &RowGroupBounds, parameters: &[Literal]) -> bool {
    let bounds_of = |id| bounds.columns.iter().find(|(known, _)| *known == id).map(|(_, bounds)| bounds);
    refutes_within(conditions, &bounds_of, parameters)
}

/// The same, with the bounds of each column that has some.
pub(super) fn refutes_within<'a>(
    conditions: &[Expression],
    bounds_of: &dyn Fn(ColumnId) -> Option<&'a Bounds>,
    parameters: &[Literal],
) -> bool {
    conditions.iter().any(|condition| refutes_one(condition, bounds_of, parameters))
}

fn refutes_one<'a>(
    condition: &Expression,
    bounds: &dyn Fn(ColumnId) -> Option<&'a Bounds>,
    parameters: &[Literal],
) -> bool {
    let Expression::Call { function, arguments, .. } = condition else { return false };
    match (function, arguments.as_slice()) {
        (Function::And, parts) => parts.iter().any(|part| refutes_one(part, bounds, parameters)),
        (Function::Or, parts) => {
            !parts.is_empty() && parts.iter().all(|part| refutes_one(part, bounds, parameters))
        }
        (Function::IsNull, [Expression::Column { id, .. }]) => {
            bounds(*id).is_some_and(|column| column.null_count == Some(0))
        }
        (Function::IsNotNull, [Expression::Column { id, .. }]) => bounds(*id).is_some_and(Bounds::is_null),
        (Function::In, [Expression::Column { id, .. }, choices @ ..]) => {
            let Some(column) = bounds(*id) else { return false };
            !choices.is_empty()
                && choices.iter().all(|choice| {
                    literal(choice, parameters).is_some_and(|choice| {
                        choice.value == Value::Null || excludes(Function::Equal, column, choice)
                    })
                })
        }
        (function, [a, b]) if mirrored(*function).is_some() => {
            let (function, computed, value) = match (literal(a, parameters), literal(b, parameters)) {
                (None, Some(value)) => (Some(*function), a, value),
                (Some(value), None) => (mirrored(*function), b, value),
                _ => return false,
            };
            let computed = bounds_of(computed, bounds, parameters);
            function.zip(computed).is_some_and(|(function, computed)| excludes(function, &computed, value))
        }
        _ => false,
    }
}

fn mirrored(function: Function) -> Option<Function> {
    match function {
        Function::Equal => Some(Function::Equal),
        Function::Less => Some(Function::Greater),
        Function::LessEqual => Some(Function::GreaterEqual),
        Function::Greater => Some(Function::Less),
        Function::GreaterEqual => Some(Function::LessEqual),
        _ => None,
    }
}

pub(super) fn literal<'a>(expression: &'a Expression, parameters: &'a [Literal]) -> Option<&'a Literal> {
    match expression {
        Expression::Literal(literal) => Some(literal),
        Expression::Parameter { index, .. } => parameters.get(*index as usize),
        _ => None,
    }
}

/// Whether no value within the bounds compares so with `value`.
fn excludes(function: Function, column: &Bounds, value: &Literal) -> bool {
    let against = |bound: &Option<Value>| {
        bound.as_ref().and_then(|bound| order(bound, &column.data_type, &value.value, &value.data_type))
    };
    let (minimum, maximum) = (against(&column.minimum), against(&column.maximum));
    match function {
        // A comparison with NULL is not true.
        Function::Equal
        | Function::Less
        | Function::LessEqual
        | Function::Greater
        | Function::GreaterEqual
            if column.is_null() =>
        {
            true
        }
        Function::Equal => minimum == Some(Ordering::Greater) || maximum == Some(Ordering::Less),
        Function::Less => matches!(minimum, Some(Ordering::Greater | Ordering::Equal)),
        Function::LessEqual => minimum == Some(Ordering::Greater),
        Function::Greater => matches!(maximum, Some(Ordering::Less | Ordering::Equal)),
        Function::GreaterEqual => maximum == Some(Ordering::Less),
        _ => false,
    }
}

/// The order of two values, if it is known.
fn order(left: &Value, left_type: &DataType, right: &Value, right_type: &DataType) -> Option<Ordering> {
    match (left, right) {
        (Value::Decimal(left), Value::Decimal(right)) => {
            let (left_scale, right_scale) = (scale(left_type)?, scale(right_type)?);
            let scale = left_scale.max(right_scale);
            let widen = |value: i128, from: u8| {
                10i128.checked_pow(u32::from(scale - from)).and_then(|factor| value.checked_mul(factor))
            };
            Some(widen(*left, left_scale)?.cmp(&widen(*right, right_scale)?))
        }
        (Value::Int(left), Value::Int(right))
            if left_type == right_type || (left_type.is_integer() && right_type.is_integer()) =>
        {
            Some(left.cmp(right))
        }
        (Value::Text(left), Value::Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn scale(data_type: &DataType) -> Option<u8> {
    match data_type {
        DataType::Decimal { scale, .. } => Some(*scale),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ColumnId = ColumnId(1);

    fn bounds(data_type: DataType, minimum: Value, maximum: Value) -> RowGroupBounds {
        let bounds = Bounds {
            data_type,
            minimum: Some(minimum),
            maximum: Some(maximum),
            null_count: Some(0),
            row_count: 10,
        };
        RowGroupBounds { columns: vec![(ID, bounds)] }
    }

    fn condition(function: Function, data_type: &DataType, values: &[Value]) -> Expression {
        let mut arguments = vec![Expression::column(ID, data_type.clone())];
        arguments.extend(values.iter().map(|value| Expression::literal(value.clone(), data_type.clone())));
        Expression::predicate(function, arguments)
    }

    #[test]
    fn a_row_group_is_ruled_out_only_where_no_value_can_match() {
        let within = bounds(DataType::Int32, Value::Int(10), Value::Int(20));
        let cases = [
            (Function::Equal, 9, true),
            (Function::Equal, 10, false),
            (Function::Equal, 21, true),
            (Function::Less, 10, true),
            (Function::Less, 11, false),
            (Function::LessEqual, 9, true),
            (Function::LessEqual, 10, false),
            (Function::Greater, 20, true),
            (Function::Greater, 19, false),
            (Function::GreaterEqual, 21, true),
            (Function::GreaterEqual, 20, false),
            (Function::NotEqual, 10, false),
        ];
        for (function, value, refuted) in cases {
            let condition = condition(function, &DataType::Int32, &[Value::Int(value)]);
            assert_eq!(refutes(&[condition], &within, &[]), refuted, "{function:?} {value}");
        }
    }

    #[test]
    fn lists_are_ruled_out_as_a_whole_and_alternatives_one_by_one() {
        let within = bounds(DataType::Int32, Value::Int(10), Value::Int(20));
        let outside =
            condition(Function::In, &DataType::Int32, &[Value::Int(1), Value::Null, Value::Int(30)]);
        let inside = condition(Function::In, &DataType::Int32, &[Value::Int(1), Value::Int(15)]);
        assert!(refutes(std::slice::from_ref(&outside), &within, &[]));
        assert!(!refutes(std::slice::from_ref(&inside), &within, &[]));
        let either = Expression::predicate(Function::Or, vec![outside.clone(), inside.clone()]);
        assert!(!refutes(&[either], &within, &[]));
        let both = Expression::predicate(Function::And, vec![outside, inside]);
        assert!(refutes(&[both], &within, &[]));
    }

    #[test]
    fn decimals_of_other_scales_are_compared_by_value() {
        let type_of = |scale| DataType::Decimal { precision: 15, scale };
        let within = bounds(type_of(2), Value::Decimal(100), Value::Decimal(200));
        let less = |value, scale| {
            let column = Expression::column(ID, type_of(2));
            let literal = Expression::literal(Value::Decimal(value), type_of(scale));
            Expression::predicate(Function::Less, vec![column, literal])
        };
        assert!(refutes(&[less(1, 0)], &within, &[]));
        assert!(!refutes(&[less(10001, 4)], &within, &[]));
    }
}
