//! Numbers as their types print them.
//!
//! | type | text |
//! |---|---|
//! | `real`, `double precision` | by the session's `extra_float_digits` |
//! | `numeric` | with its display scale |

use pystachio_plan::{DataType, Expression, Function};

use crate::{
    Lowered, Lowering, Notes, Refusal, RuntimeValue, Scale, Source, SourceType, numeric::shown_decimal,
};

impl Lowering<'_> {
    /// The text of a number that is no integer; `None` of another type.
    pub(crate) fn lower_text_of_number(&self, source: &Source) -> Result<Option<Lowered>, Refusal> {
        if !matches!(source.of, SourceType::Real | SourceType::Double | SourceType::Numeric) {
            return Ok(None);
        }
        let number = self.lower(source)?;
        let not_null = number.is_never_null();
        let text = Expression::call(Function::NumberText, shown_number(self.notes, number)?, DataType::Text);
        Ok(Some(Lowered { not_null, ..Lowered::plain(text) }))
    }
}

/// A number that is no integer, and what its text depends on besides.
pub(crate) fn shown_number(notes: &Notes, number: Lowered) -> Result<Vec<Expression>, Refusal> {
    if number.data_type().is_float() {
        return Ok(vec![number.expression, float_digits(notes)]);
    }
    if let Scale::Varies(scale) = number.scale {
        return Ok(vec![number.expression, *scale]);
    }
    Ok(shown_decimal(number)?.into_iter().collect())
}

/// The session's `extra_float_digits`.
pub(crate) fn float_digits(notes: &Notes) -> Expression {
    let index = notes.parameter(RuntimeValue::FloatDigits, DataType::Text);
    Expression::Parameter { index, data_type: DataType::Text }
}
