//! Aggregates that a scan computes over segments: sums of products, and counts, by columns.
//!
//! ```text
//! sum(price * (1 - discount)) GROUP BY flag     key: flag     addend: price * (100 - 1 * discount), in units of the sum's scale
//! ```
//!
//! Invariants: the partial results equal those that the operator computes of the same rows. No part
//! of an addend can fail.

use pystachio_plan::{ColumnId, DataType, Expression, Function, Literal, NamedExpression, Value};

use crate::{device::CellType, operation::SlotLayout};

/// What a scan aggregates.
#[derive(Debug)]
pub(super) struct ScanFold {
    pub(super) keys: Vec<ColumnId>,
    /// Types of the keys in slots: codes for text.
    pub(super) key_types: Vec<DataType>,
    /// Of each argument, the factors of its product.
    pub(super) arguments: Vec<Vec<FoldedColumn>>,
    pub(super) layout: SlotLayout,
    pub(super) partial_types: Vec<DataType>,
}

/// `constant + coefficient * column`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoldedColumn {
    pub(super) constant: i64,
    pub(super) coefficient: i64,
    pub(super) column: ColumnId,
}

/// A product of factors and a constant, in units of 10^-scale.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Product {
    factors: Vec<FoldedColumn>,
    /// Without factors the value itself, otherwise 1.
    constant: i64,
    scale: u8,
}

impl ScanFold {
    /// The fold of aggregates with these arguments; `None` if a scan can't compute them.
    pub(super) fn of(
        groups: &[NamedExpression],
        arguments: &[Expression],
        (layout, partial_types): (SlotLayout, Vec<DataType>),
        parameters: &[Literal],
    ) -> Option<Self> {
        let mut keys = Vec::with_capacity(groups.len());
        let mut key_types = Vec::with_capacity(groups.len());
        for group in groups {
            let Expression::Column { id, data_type } = &group.expression else { return None };
            keys.push(*id);
            key_types.push(match CellType::of(data_type).ok()? {
                CellType::String => DataType::Int32,
                CellType::Int16 | CellType::Int32 | CellType::Int64 => data_type.clone(),
                _ => return None,
            });
        }
        let argument = |argument: &Expression| {
            let product = Product::of(argument, parameters)?;
            let is_exact = product.scale == scale_of(argument.data_type())? && !product.factors.is_empty();
            is_exact.then_some(product.factors)
        };
        let arguments = arguments.iter().map(argument).collect::<Option<Vec<_>>>()?;
        Some(Self { keys, key_types, arguments, layout, partial_types })
    }
}

impl Product {
    fn of(expression: &Expression, parameters: &[Literal]) -> Option<Self> {
        match expression {
            Expression::Column { id, data_type } => {
                let factor = FoldedColumn { constant: 0, coefficient: 1, column: *id };
                Some(Self { factors: vec![factor], constant: 1, scale: scale_of(data_type)? })
            }
            Expression::Literal(literal) => Self::of_literal(literal),
            Expression::Parameter { index, .. } => Self::of_literal(parameters.get(*index as usize)?),
            Expression::Call { function, arguments, data_type: data_type @ DataType::Decimal { .. } } => {
                let [a, b] = arguments.as_slice() else { return None };
                let (a, b) = (Self::of(a, parameters)?, Self::of(b, parameters)?);
                let scale = scale_of(data_type)?;
                match function {
                    Function::Multiply => a.times(b).filter(|product| product.scale == scale),
                    Function::Add => a.scaled(scale)?.plus(b.scaled(scale)?, 1),
                    Function::Subtract => a.scaled(scale)?.plus(b.scaled(scale)?, -1),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn of_literal(literal: &Literal) -> Option<Self> {
        let constant = match &literal.value {
            Value::Int(value) => *value,
            Value::Decimal(value) => i64::try_from(*value).ok()?,
            _ => return None,
        };
        Some(Self { factors: Vec::new(), constant, scale: scale_of(&literal.data_type)? })
    }

    fn times(mut self, other: Self) -> Option<Self> {
        let scale = self.scale.checked_add(other.scale)?;
        match (self.factors.first_mut(), other.factors.is_empty()) {
            (Some(first), true) => *first = first.times(other.constant)?,
            (None, true) => self.constant = self.constant.checked_mul(other.constant)?,
            (None, false) => return Self { scale: other.scale, ..other }.times(self),
            (Some(_), false) => self.factors.extend(other.factors),
        }
        Some(Self { scale, ..self })
    }

    /// The same value in units of another scale, which is no smaller.
    fn scaled(self, scale: u8) -> Option<Self> {
        let unit = 10i64.checked_pow(u32::from(scale.checked_sub(self.scale)?))?;
        let one = Self { factors: Vec::new(), constant: unit, scale: 0 };
        Some(Self { scale, ..self.times(one)? })
    }

    /// The sum with another value times a sign, in the same units: of one column at most.
    fn plus(self, other: Self, sign: i64) -> Option<Self> {
        let other = other.times(Self { factors: Vec::new(), constant: sign, scale: 0 })?;
        let scale = self.scale;
        match (self.factors.as_slice(), other.factors.as_slice()) {
            ([], []) => Some(Self { constant: self.constant.checked_add(other.constant)?, ..self }),
            ([factor], []) | ([], [factor]) => {
                let added = if self.factors.is_empty() { self.constant } else { other.constant };
                let constant = factor.constant.checked_add(added)?;
                Some(Self { factors: vec![FoldedColumn { constant, ..*factor }], constant: 1, scale })
            }
            _ => None,
        }
    }
}

impl FoldedColumn {
    fn times(self, value: i64) -> Option<Self> {
        let constant = self.constant.checked_mul(value)?;
        Some(Self { constant, coefficient: self.coefficient.checked_mul(value)?, ..self })
    }
}

/// Digits behind the point of a type whose values are summed as integers.
fn scale_of(data_type: &DataType) -> Option<u8> {
    match data_type {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(0),
        DataType::Decimal { scale, .. } => Some(*scale),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(precision: u8, scale: u8) -> DataType {
        DataType::Decimal { precision, scale }
    }

    fn money(id: u32) -> Expression {
        Expression::column(ColumnId(id), decimal(15, 2))
    }

    fn number(value: i128, scale: u8) -> Expression {
        Expression::literal(Value::Decimal(value), decimal(12, scale))
    }

    fn call(function: Function, a: Expression, b: Expression, scale: u8) -> Expression {
        Expression::call(function, vec![a, b], decimal(30, scale))
    }

    fn folded(constant: i64, coefficient: i64, id: u32) -> FoldedColumn {
        FoldedColumn { constant, coefficient, column: ColumnId(id) }
    }

    fn factors(expression: &Expression) -> Option<(Vec<FoldedColumn>, u8)> {
        Product::of(expression, &[]).map(|product| (product.factors, product.scale))
    }

    #[test]
    fn products_of_sums_of_one_column_are_factors() {
        let kept = call(Function::Subtract, number(1, 0), money(1), 2);
        let revenue = call(Function::Multiply, money(0), kept, 4);
        let two = vec![folded(0, 1, 0), folded(100, -1, 1)];
        assert_eq!(factors(&revenue), Some((two.clone(), 4)));
        let taxed = call(Function::Add, money(2), number(1, 0), 2);
        let three = [two, vec![folded(100, 1, 2)]].concat();
        assert_eq!(factors(&call(Function::Multiply, revenue, taxed, 6)), Some((three, 6)));
        let fifth = call(Function::Multiply, number(2, 1), money(0), 3);
        assert_eq!(factors(&fifth), Some((vec![folded(0, 2, 0)], 3)));
        let more = call(Function::Add, fifth, number(5, 0), 3);
        assert_eq!(factors(&more), Some((vec![folded(5000, 2, 0)], 3)));
    }

    #[test]
    fn other_expressions_are_no_products() {
        assert_eq!(factors(&call(Function::Add, money(0), money(1), 2)), None);
        assert_eq!(factors(&call(Function::Multiply, money(0), money(1), 3)), None);
        assert_eq!(factors(&Expression::column(ColumnId(0), DataType::Float64)), None);
        let integers = vec![Expression::column(ColumnId(0), DataType::Int32), Expression::int32(2)];
        assert_eq!(factors(&Expression::call(Function::Multiply, integers, DataType::Int32)), None);
        let large = call(Function::Multiply, number(i128::from(i64::MAX), 0), money(0), 2);
        assert_eq!(
            factors(&call(Function::Add, large, number(1, 0), 2)).map(|(factors, _)| factors.len()),
            Some(1)
        );
    }
}
