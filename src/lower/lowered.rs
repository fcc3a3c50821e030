//! What an expression is lowered to.

use pystachio_plan::{DataType, Expression, ExpressionSize, Literal, Value, could_fail};

use crate::type_magnitude;

/// A plan expression, and what PostgreSQL must know to print its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Lowered {
    /// The value.
    pub expression: Expression,
    /// Its display scale, if it is a numeric.
    pub scale: Scale,
    /// A bound on the absolute value of a number, or on the microseconds of a timestamp; infinite if none
    /// is known.
    pub magnitude: f64,
    /// The least absolute value of a number other than zero; 0 if nothing but its digits says so.
    pub least_magnitude: f64,
    /// A bound on the absolute value of its sum over all rows; infinite if none but that of each row is known. Of a grouping's sums
    /// and counts it is what one group could have.
    pub total_magnitude: f64,
    /// The value is never NULL: made of columns that are declared NOT NULL, with no outer join between.
    pub not_null: bool,
    /// The type modifier of a `character` value, which says how far it is padded; -1 if unknown.
    pub modifier: i32,
}

/// How many digits a numeric prints after the point.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Not a numeric.
    None,
    /// The same in every row.
    Fixed(i32),
    /// An Int32.
    Varies(Box<Expression>),
}

impl Lowered {
    /// A number.
    pub fn number(expression: Expression, scale: Scale, magnitude: f64) -> Self {
        Self {
            expression,
            scale,
            magnitude,
            least_magnitude: 0.0,
            total_magnitude: f64::INFINITY,
            not_null: false,
            modifier: -1,
        }
    }

    /// A value that is no number.
    pub fn plain(expression: Expression) -> Self {
        Self::number(expression, Scale::None, f64::INFINITY)
    }

    /// A value of which nothing but its type is known: that of a column, or a part of it. Decimals print with all digits of the type.
    pub fn of_type(expression: Expression) -> Self {
        let scale = match expression.data_type() {
            DataType::Decimal { scale, .. } => Scale::Fixed(i32::from(*scale)),
            _ => Scale::None,
        };
        let magnitude = type_magnitude(expression.data_type());
        Self::number(expression, scale, magnitude)
    }

    /// The type of the value.
    pub fn data_type(&self) -> &DataType {
        self.expression.data_type()
    }

    /// Whether the value is NULL in no row, for all that is known.
    pub fn is_never_null(&self) -> bool {
        self.not_null || self.literal().is_some_and(|literal| literal.value != Value::Null)
    }

    /// The constant that it is, if it is one.
    pub(crate) fn literal(&self) -> Option<&Literal> {
        match &self.expression {
            Expression::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// How large the value and its scale are.
    pub fn size(&self) -> ExpressionSize {
        let value = self.expression.size();
        match &self.scale {
            Scale::Varies(scale) => {
                let scale = scale.size();
                ExpressionSize { depth: value.depth.max(scale.depth), parts: value.parts + scale.parts }
            }
            _ => value,
        }
    }

    /// Whether computing the value, or its scale, could fail for some row.
    pub fn could_fail(&self) -> bool {
        let fails = |expression| could_fail(expression, &|_| false);
        fails(&self.expression) || matches!(&self.scale, Scale::Varies(scale) if fails(scale))
    }

    /// The same with its expressions (the value, and the scale if that varies) changed.
    pub fn map_expressions(self, change: &mut dyn FnMut(Expression) -> Expression) -> Self {
        Self {
            expression: change(self.expression),
            scale: match self.scale {
                Scale::Varies(scale) => Scale::Varies(Box::new(change(*scale))),
                other => other,
            },
            magnitude: self.magnitude,
            least_magnitude: self.least_magnitude,
            total_magnitude: self.total_magnitude,
            not_null: self.not_null,
            modifier: self.modifier,
        }
    }
}
