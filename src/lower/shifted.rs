//! The sum of a value and a constant, from the sum of the value: `sum(x + c)` is `sum(x) + c * count(x)`.
//!
//! Many such sums are one sum and one count then. Both are exact, and so is what is made of them; the sum is rewritten only if `x + c`
//! is known to overflow in no row.

use pystachio_plan::{DataType, Expression, Function, Literal, Value};

use crate::{
    Lowered, Scale,
    numeric::{decimal_type, type_magnitude},
};

/// A value plus a constant.
pub(crate) struct Shifted {
    /// The value, an integer or a decimal.
    pub(crate) value: Lowered,
    /// The constant, a decimal.
    pub(crate) constant: Lowered,
}

impl Shifted {
    /// An expression as such, if it is one that can't fail and that has one display scale.
    pub(crate) fn of(sum: &Lowered) -> Option<Self> {
        let is_bounded = match sum.data_type() {
            DataType::Decimal { .. } => matches!(sum.scale, Scale::Fixed(_)),
            data_type => data_type.is_integer() && sum.magnitude < type_magnitude(data_type),
        };
        let (value, literal, is_subtracted) = is_bounded.then(|| operands(&sum.expression))??;
        let value = as_stored(value);
        let constant = constant(&literal, is_subtracted)?;
        let magnitude = (sum.magnitude + constant.magnitude).min(type_magnitude(value.data_type()));
        let scale = match value.data_type() {
            DataType::Decimal { scale, .. } => Scale::Fixed(i32::from(*scale)),
            _ => Scale::None,
        };
        let value = Lowered { not_null: sum.is_never_null(), ..Lowered::number(value, scale, magnitude) };
        Some(Self { value, constant })
    }
}

/// An integer before it was made a wider one.
fn as_stored(value: Expression) -> Expression {
    match value {
        Expression::Call { function: Function::Cast, mut arguments, data_type }
            if data_type.is_integer() && arguments.iter().all(|inner| inner.data_type().is_integer()) =>
        {
            let is_wider =
                |inner: &Expression| type_magnitude(inner.data_type()) <= type_magnitude(&data_type);
            match arguments.pop() {
                Some(inner) if is_wider(&inner) => as_stored(inner),
                inner => Expression::Call {
                    function: Function::Cast,
                    arguments: inner.into_iter().collect(),
                    data_type,
                },
            }
        }
        other => other,
    }
}

/// The operands of a sum with a constant, and whether the constant is subtracted.
fn operands(expression: &Expression) -> Option<(Expression, Literal, bool)> {
    let Expression::Call { function, arguments, .. } = expression else { return None };
    match (function, arguments.as_slice()) {
        (Function::Add, [Expression::Literal(literal), value]) => {
            Some((value.clone(), literal.clone(), false))
        }
        (Function::Add | Function::Subtract, [value, Expression::Literal(literal)]) => {
            Some((value.clone(), literal.clone(), *function == Function::Subtract))
        }
        _ => None,
    }
}

fn constant(literal: &Literal, is_negated: bool) -> Option<Lowered> {
    let (value, scale) = match (&literal.value, &literal.data_type) {
        (Value::Int(value), data_type) if data_type.is_integer() => (i128::from(*value), 0),
        (Value::Decimal(value), DataType::Decimal { scale, .. }) => (*value, i32::from(*scale)),
        _ => return None,
    };
    let value = if is_negated { value.checked_neg()? } else { value };
    let magnitude = value.unsigned_abs() as f64 / 10_f64.powi(scale);
    let data_type = decimal_type(magnitude, scale).ok()?;
    let expression = Expression::literal(Value::Decimal(value), data_type);
    Some(Lowered::number(expression, Scale::Fixed(scale), magnitude))
}
