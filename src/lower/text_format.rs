//! `format` by a constant text, and the arguments of `concat`.

use pystachio_plan::{DataType, Expression, Function, Value};

use crate::{
    Call, FunctionRefusal, Lowered, LoweredResult, Lowering, Refusal, Source, SourceType, TextForm,
    character_length, numeric::cast_to,
};

impl Lowering<'_> {
    /// `format(text, …)` with `%s`, `%L` and `%%`; `None` for other calls.
    pub(crate) fn lower_format(&self, call: &Call) -> Option<LoweredResult> {
        let is_format = call.function.is_builtin && call.function.name == "format";
        is_format.then(|| self.lower_format_of(call))
    }

    fn lower_format_of(&self, call: &Call) -> LoweredResult {
        let refused = |why| Refusal::FunctionUse { name: call.function.name.clone(), why };
        let (format, arguments) =
            call.arguments.split_first().ok_or_else(|| refused(FunctionRefusal::NoArguments))?;
        let format = self.lower(format)?;
        let Some(Value::Text(format)) = format.literal().map(|literal| &literal.value) else {
            return Err(refused(FunctionRefusal::VaryingFormat));
        };
        if self.server.text_form() != TextForm::Utf8 {
            return Err(refused(FunctionRefusal::Encoding(self.server.encoding_name())));
        }
        let mut arguments = arguments.iter();
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            let specifier = match character {
                '%' => characters.next().ok_or_else(|| refused(FunctionRefusal::Arguments))?,
                other => {
                    plain.push(other);
                    continue;
                }
            };
            let no_text = match specifier {
                '%' => {
                    plain.push('%');
                    continue;
                }
                's' => "",
                'L' => "NULL",
                other => return Err(refused(FunctionRefusal::Specifier(other))),
            };
            let argument = arguments.next().ok_or_else(|| refused(FunctionRefusal::Arguments))?;
            let shown = self.lower_shown(argument, call)?;
            let shown = match specifier {
                'L' => Expression::call(Function::QuoteLiteral, vec![shown], DataType::Text),
                _ => shown,
            };
            parts.extend((!plain.is_empty()).then(|| text(std::mem::take(&mut plain))));
            let shown = vec![shown, text(no_text.to_owned())];
            parts.push(Expression::call(Function::Coalesce, shown, DataType::Text));
        }
        // PostgreSQL computes those that it does not show.
        if arguments.next().is_some() {
            return Err(refused(FunctionRefusal::Arguments));
        }
        parts.extend((!plain.is_empty() || parts.is_empty()).then(|| text(plain)));
        let expression = match parts.len() {
            1 => parts.remove(0),
            _ => Expression::call(Function::Concat, parts, DataType::Text),
        };
        Ok(Lowered { not_null: true, ..Lowered::plain(expression) })
    }

    /// A value as its type prints it.
    fn lower_shown(&self, value: &Source, call: &Call) -> Result<Expression, Refusal> {
        let refused = || {
            let name = call.function.name.clone();
            Refusal::FunctionUse { name, why: FunctionRefusal::OfType(value.of.name().to_owned()) }
        };
        let lowered = self.lower(value)?;
        match &value.of {
            SourceType::Text | SourceType::Varchar => Ok(lowered.expression),
            SourceType::Character => {
                let length = character_length(value.modifier).ok_or_else(refused)?;
                let arguments = vec![lowered.expression, Expression::int32(length)];
                Ok(Expression::call(Function::PadBlanks, arguments, DataType::Text))
            }
            SourceType::SmallInt
            | SourceType::Integer
            | SourceType::BigInt
            | SourceType::Time
            | SourceType::Uuid => Ok(cast_to(lowered, &DataType::Text)),
            _ => Err(refused()),
        }
    }
}

fn text(text: String) -> Expression {
    Expression::literal(Value::Text(text), DataType::Text)
}
