//! `format` by a constant text, names and constants of SQL, and the arguments of `concat`.

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Value};

use crate::{
    Call, FunctionRefusal, Lowered, LoweredResult, Lowering, Refusal, RuntimeValue, Source, SourceType,
    TextForm, character_length, numeric::cast_to,
};

impl Lowering<'_> {
    /// `format(text, …)` with `%s`, `%I`, `%L` and `%%`, `quote_ident` and `quote_nullable`; `None` for other calls.
    pub(crate) fn lower_format(&self, call: &Call) -> Option<LoweredResult> {
        if !call.function.is_builtin {
            return None;
        }
        match call.function.name.as_str() {
            "format" => Some(self.lower_format_of(call)),
            "quote_ident" => Some(self.lower_quoted(call, |text| self.quoted_identifier(text))),
            "quote_nullable" => Some(self.lower_quoted(call, |text| or_null_word(quoted_literal(text)))),
            _ => None,
        }
    }

    /// A text as a part of SQL.
    fn lower_quoted(&self, call: &Call, quote: impl Fn(Expression) -> Expression) -> LoweredResult {
        let refused = |why| Refusal::FunctionUse { name: call.function.name.clone(), why };
        if self.server.text_form() != TextForm::Utf8 {
            return Err(refused(FunctionRefusal::Encoding(self.server.encoding_name())));
        }
        let [text] = call.arguments.as_slice() else { return Err(refused(FunctionRefusal::Arguments)) };
        let lowered = self.lower(text)?;
        if *lowered.data_type() != DataType::Text || text.of == SourceType::Character {
            return Err(refused(FunctionRefusal::Types));
        }
        Ok(Lowered::plain(quote(lowered.expression)))
    }

    fn quoted_identifier(&self, name: Expression) -> Expression {
        let parameter = |value| Expression::Parameter {
            index: self.notes.parameter(value, DataType::Text),
            data_type: DataType::Text,
        };
        let words = parameter(RuntimeValue::ReservedWords);
        let arguments = vec![name, words, parameter(RuntimeValue::QuotesIdentifiers)];
        Expression::call(Function::QuoteIdentifier, arguments, DataType::Text)
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
            let specifier = match specifier {
                '%' => {
                    plain.push('%');
                    continue;
                }
                's' | 'I' | 'L' => specifier,
                other => return Err(refused(FunctionRefusal::Specifier(other))),
            };
            let argument = arguments.next().ok_or_else(|| refused(FunctionRefusal::Arguments))?;
            let shown = self.lower_shown(argument, call)?;
            let shown = match specifier {
                'L' => or_null_word(quoted_literal(shown)),
                // NULL is an error.
                'I' if !self.lower(argument)?.is_never_null() => {
                    return Err(refused(FunctionRefusal::NullName));
                }
                'I' => self.quoted_identifier(shown),
                _ => {
                    let shown = vec![shown, text(String::new())];
                    Expression::call(Function::Coalesce, shown, DataType::Text)
                }
            };
            parts.extend((!plain.is_empty()).then(|| text(std::mem::take(&mut plain))));
            parts.push(shown);
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
            SourceType::Bool => Ok(letter_of(lowered.expression)),
            _ => {
                if let Some(text) = self.lower_text_of_moment(value)? {
                    return Ok(text.expression);
                }
                Ok(self.lower_text_of_number(value)?.ok_or_else(refused)?.expression)
            }
        }
    }

    /// An argument of `concat`, which takes values of any type.
    pub(crate) fn lower_concatenated(&self, value: &Source, call: &Call) -> LoweredResult {
        match &value.of {
            // Their blanks are added with those of other arguments.
            SourceType::Character | SourceType::Json => self.lower(value),
            _ => self.lower_shown(value, call).map(Lowered::plain),
        }
    }
}

fn quoted_literal(text: Expression) -> Expression {
    Expression::call(Function::QuoteLiteral, vec![text], DataType::Text)
}

/// NULL as the word for it.
fn or_null_word(quoted: Expression) -> Expression {
    Expression::call(Function::Coalesce, vec![quoted, text("NULL".to_owned())], DataType::Text)
}

/// `t` or `f`.
fn letter_of(value: Expression) -> Expression {
    let branch = |function, letter: &str| CaseBranch {
        condition: Expression::predicate(function, vec![value.clone()]),
        result: text(letter.to_owned()),
    };
    let branches = vec![branch(Function::IsTrue, "t"), branch(Function::IsFalse, "f")];
    Expression::Case { branches, otherwise: None, data_type: DataType::Text }
}

fn text(text: String) -> Expression {
    Expression::literal(Value::Text(text), DataType::Text)
}
