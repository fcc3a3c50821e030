//! `to_char` of numbers.

use pystachio_plan::{DataType, Expression, Function, NumberFormat, NumberFormatRefusal, Value};

use crate::{FunctionRefusal, Lowered, LoweredResult, call::CallSite, numeric::type_scale};

impl CallSite<'_> {
    /// `to_char` of a number, by a constant format.
    pub(crate) fn format_number(&self, value: Lowered, format: Lowered) -> LoweredResult {
        let Some(Value::Text(text)) = format.literal().map(|literal| &literal.value) else {
            return Err(self.refuse(FunctionRefusal::VaryingFormat));
        };
        let parsed = NumberFormat::parse(text).map_err(|why| {
            self.refuse(match why {
                NumberFormatRefusal::Pattern(pattern) => FunctionRefusal::Pattern(pattern.to_owned()),
                NumberFormatRefusal::Together => FunctionRefusal::Patterns,
            })
        })?;
        if value.data_type().is_float() && parsed.has_ordinal() {
            // Of infinity it is an error.
            return Err(self.refuse(FunctionRefusal::Pattern("TH".to_owned())));
        }
        if value.data_type().is_decimal() {
            type_scale(value.data_type())?;
        }
        let arguments = vec![value.expression, format.expression];
        Ok(Lowered::plain(Expression::call(Function::FormatNumber, arguments, DataType::Text)))
    }
}
