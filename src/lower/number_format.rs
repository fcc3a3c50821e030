//! `to_char` of numbers, and `to_number`.

use pystachio_plan::{DataType, Expression, Function, NumberFormat, NumberFormatRefusal, Value};

use crate::{FunctionRefusal, Lowered, LoweredResult, Refusal, Scale, call::CallSite, numeric::type_scale};

/// Digits of the longest format of `to_number`.
const READ_DIGITS_MAX: usize = 38;

impl CallSite<'_> {
    /// `to_char` of a number, by a constant format.
    pub(crate) fn format_number(&self, value: Lowered, format: Lowered) -> LoweredResult {
        let parsed = self.number_format(&format)?;
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

    /// `to_number` by a constant format of digits, a point, commas and texts. The number shows as many digits behind the point as it has
    /// in the text.
    pub(crate) fn read_number(&self, arguments: Vec<Lowered>) -> LoweredResult {
        self.check_texts(&arguments, 2)?;
        let [text, format] = self.two(arguments)?;
        let parsed = self.number_format(&format)?;
        let has_sign = parsed.has_minus || parsed.has_plus || parsed.has_brackets;
        let digits = parsed.whole_digits + parsed.fraction_digits;
        if has_sign || parsed.has_ordinal() || !(1..=READ_DIGITS_MAX).contains(&digits) {
            return Err(self.refuse(FunctionRefusal::ReadFormat));
        }
        let data_type = DataType::Decimal { precision: digits as u8, scale: parsed.fraction_digits as u8 };
        let arguments = vec![text.expression, format.expression];
        let scale = match parsed.fraction_digits {
            0 => Scale::Fixed(0),
            _ => {
                let scale = Expression::call(Function::ReadNumberScale, arguments.clone(), DataType::Int32);
                Scale::Varies(Box::new(scale))
            }
        };
        let magnitude = 10f64.powi(parsed.whole_digits as i32);
        Ok(Lowered::number(Expression::call(Function::ReadNumber, arguments, data_type), scale, magnitude))
    }

    fn number_format(&self, format: &Lowered) -> Result<NumberFormat, Refusal> {
        let Some(Value::Text(text)) = format.literal().map(|literal| &literal.value) else {
            return Err(self.refuse(FunctionRefusal::VaryingFormat));
        };
        NumberFormat::parse(text).map_err(|why| {
            self.refuse(match why {
                NumberFormatRefusal::Pattern(pattern) => FunctionRefusal::Pattern(pattern.to_owned()),
                NumberFormatRefusal::Together => FunctionRefusal::Patterns,
            })
        })
    }
}
