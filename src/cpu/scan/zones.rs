//! Bounds of the parts of a cached column: the rows that a condition is evaluated on at once are left out where the condition
//! can't be true of them. A row by key then costs a comparison with each part of its row group, and with the rows of one.
//!
//! Invariant: only conditions that can't fail leave rows out, and only such stand before them.

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType, AsArray},
    compute::{max, min},
    datatypes::{DataType, Date32Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType},
};

use super::BATCH_ROWS;
use crate::datafusion::{
    common::ScalarValue,
    logical_expr::Operator,
    physical_expr::{
        PhysicalExpr,
        expressions::{BinaryExpr, Column, Literal},
    },
};

/// Least and greatest value of each part of a column; none where all are NULL.
#[derive(Debug)]
pub(crate) struct Zones(Vec<Option<(i64, i64)>>);

/// What the values of a column must lie between, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// The column among those of the condition's schema.
    pub(super) column: usize,
    low: i64,
    high: i64,
}

impl Zones {
    /// The bounds of a column of whole numbers, dates or timestamps; `None` for others.
    pub(crate) fn of(pieces: &[ArrayRef]) -> Option<Self> {
        let mut zones = Vec::new();
        for piece in pieces {
            match piece.data_type() {
                DataType::Int16 => add::<Int16Type>(&mut zones, piece),
                DataType::Int32 => add::<Int32Type>(&mut zones, piece),
                DataType::Int64 => add::<Int64Type>(&mut zones, piece),
                DataType::Date32 => add::<Date32Type>(&mut zones, piece),
                DataType::Timestamp(TimeUnit::Microsecond, _) => {
                    add::<TimestampMicrosecondType>(&mut zones, piece);
                }
                _ => return None,
            }
        }
        Some(Self(zones))
    }

    /// Whether no row of a part is within the bound.
    pub(super) fn refute(&self, part: usize, bound: &Bound) -> bool {
        match self.0.get(part) {
            None => false,
            Some(None) => true,
            Some(Some((least, greatest))) => *greatest < bound.low || *least > bound.high,
        }
    }
}

fn add<T: ArrowPrimitiveType>(zones: &mut Vec<Option<(i64, i64)>>, piece: &ArrayRef)
where
    T::Native: Into<i64>,
{
    let values = piece.as_primitive::<T>();
    for first_row in (0..values.len()).step_by(BATCH_ROWS) {
        let part = values.slice(first_row, BATCH_ROWS.min(values.len() - first_row));
        zones.push(min(&part).zip(max(&part)).map(|(least, greatest)| (least.into(), greatest.into())));
    }
}

/// What a condition demands of single columns. More may be demanded.
pub(super) fn bounds_of(condition: &dyn PhysicalExpr) -> Vec<Bound> {
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Vec::new() };
    if *binary.op() == Operator::And {
        let mut bounds = bounds_of(binary.left().as_ref());
        bounds.extend(bounds_of(binary.right().as_ref()));
        return bounds;
    }
    let (left, right) = (binary.left().as_ref(), binary.right().as_ref());
    let bound = match (left.downcast_ref::<Column>(), right.downcast_ref::<Literal>()) {
        (Some(column), Some(literal)) => bound(column, *binary.op(), literal),
        _ => match (left.downcast_ref::<Literal>(), right.downcast_ref::<Column>()) {
            (Some(literal), Some(column)) => {
                binary.op().swap().and_then(|operator| bound(column, operator, literal))
            }
            _ => None,
        },
    };
    bound.into_iter().collect()
}

fn bound(column: &Column, operator: Operator, literal: &Literal) -> Option<Bound> {
    let value = match literal.value() {
        ScalarValue::Int16(Some(value)) => i64::from(*value),
        ScalarValue::Int32(Some(value)) | ScalarValue::Date32(Some(value)) => i64::from(*value),
        ScalarValue::Int64(Some(value)) | ScalarValue::TimestampMicrosecond(Some(value), _) => *value,
        _ => return None,
    };
    let (low, high) = match operator {
        Operator::Eq => (value, value),
        Operator::LtEq => (i64::MIN, value),
        Operator::GtEq => (value, i64::MAX),
        Operator::Lt => (i64::MIN, value.checked_sub(1)?),
        Operator::Gt => (value.checked_add(1)?, i64::MAX),
        _ => return None,
    };
    Some(Bound { column: column.index(), low, high })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Float64Array, Int64Array};

    use super::*;

    fn condition(operator: Operator, value: i64) -> Bound {
        bound(&Column::new("c", 3), operator, &Literal::new(ScalarValue::Int64(Some(value)))).unwrap()
    }

    #[test]
    fn parts_are_left_out_only_without_a_row() {
        let rows = BATCH_ROWS as i64;
        let pieces: [ArrayRef; 2] = [
            Arc::new(Int64Array::from_iter((0..2 * rows).map(|row| (row % 7 != 0).then_some(row)))),
            Arc::new(Int64Array::from(vec![None, None])),
        ];
        let zones = Zones::of(&pieces).unwrap();
        let refuted = |bound| [0, 1, 2, 3].map(|part| zones.refute(part, &bound));
        assert_eq!(refuted(condition(Operator::Eq, 5)), [false, true, true, false]);
        assert_eq!(refuted(condition(Operator::GtEq, rows)), [true, false, true, false]);
        assert_eq!(refuted(condition(Operator::Gt, 2 * rows - 1)), [true, true, true, false]);
        assert_eq!(refuted(condition(Operator::Lt, 1)), [true, true, true, false]);
        assert_eq!(refuted(condition(Operator::LtEq, rows)), [false, false, true, false]);
        assert_eq!(condition(Operator::Lt, 1).column, 3);
    }

    #[test]
    fn what_has_no_order_of_whole_numbers_has_no_bounds() {
        assert!(Zones::of(&[Arc::new(Float64Array::from(vec![1.0])) as ArrayRef]).is_none());
        assert!(Zones::of(&[Arc::new(Date32Array::from(vec![1])) as ArrayRef]).is_some());
        let literal = Literal::new(ScalarValue::Int64(Some(i64::MIN)));
        assert_eq!(bound(&Column::new("c", 0), Operator::Lt, &literal), None);
        assert_eq!(bound(&Column::new("c", 0), Operator::NotEq, &literal), None);
    }
}
