//! JSON that is made of values: `json_agg`, `json_build_object`, `to_json` and their kin, and those of `jsonb`, whose text PostgreSQL
//! reads.
//!
//! ```text
//! json_agg(x ORDER BY y)         ─►  '[' || join_texts(array(json_text(x) ORDER BY y), ', ') || ']'
//! json_object_agg(k, x)          ─►  '{ ' || join_texts(array(json_text(k) || ' : ' || json_text(x)), ', ') || ' }'
//! json_build_object('k', x)      ─►  '{' || json_text('k') || ' : ' || json_text(x) || '}'
//! ```
//!
//! Deliberately absent: floats, whose text the session decides, values with a time zone, `jsonb` and arrays; keys that may be NULL, of which
//! each version of PostgreSQL raises another error.

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Value};

use crate::{
    AggregateRefusal, AggregateSource, Call, FunctionRefusal, Lowered, LoweredAggregate, LoweredResult,
    Lowering, Refusal, Source, SourceType, TextForm, character_length,
    numeric::{cast_to, is_null, shown_decimal},
    ordered_aggregate::{refuse, result},
};

impl Lowering<'_> {
    /// `json_agg` and `jsonb_agg`.
    pub(crate) fn lower_json_agg(
        &self,
        aggregate: &AggregateSource,
        value: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        let element = self.lower_json_value(value)?;
        self.join_json(aggregate, element, ["[", "]"])
    }

    /// `json_object_agg` and `jsonb_object_agg`.
    pub(crate) fn lower_json_object_agg(
        &self,
        aggregate: &AggregateSource,
        key: &Source,
        value: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        let key = self.lower_json_key(key)?.ok_or_else(|| refuse(aggregate, AggregateRefusal::NullKey))?;
        let element = joined(vec![key, text(" : "), self.lower_json_value(value)?]);
        self.join_json(aggregate, element, ["{ ", " }"])
    }

    /// The JSON of the elements of a group, which are texts that are never NULL.
    fn join_json(
        &self,
        aggregate: &AggregateSource,
        element: Expression,
        [open, close]: [&str; 2],
    ) -> Result<LoweredAggregate, Refusal> {
        if aggregate.is_distinct {
            return Err(refuse(aggregate, AggregateRefusal::DistinctJson));
        }
        let call = self.array_call(aggregate, element)?;
        let elements = vec![result(&call), text(", ")];
        let elements = Expression::call(Function::JoinTexts, elements, DataType::Text);
        let value = Lowered::plain(joined(vec![text(open), elements, text(close)]));
        Ok(LoweredAggregate { calls: vec![call], value })
    }

    /// `json_build_object`, `json_build_array`, `to_json` and their kin; `None` for other calls.
    pub(crate) fn lower_json_call(&self, call: &Call) -> Option<LoweredResult> {
        if !call.function.is_builtin {
            return None;
        }
        Some(match call.function.name.as_str() {
            "json_build_array" | "jsonb_build_array" => self.lower_json_array(call),
            "json_build_object" | "jsonb_build_object" => self.lower_json_object(call),
            "to_json" | "to_jsonb" => self.lower_to_json(call),
            _ => return None,
        })
    }

    fn lower_json_array(&self, call: &Call) -> LoweredResult {
        let mut parts = vec![text("[")];
        for (place, value) in call.arguments.iter().enumerate() {
            parts.extend((place > 0).then(|| text(", ")));
            parts.push(self.lower_json_value(value)?);
        }
        parts.push(text("]"));
        Ok(Lowered { not_null: true, ..Lowered::plain(joined(parts)) })
    }

    fn lower_json_object(&self, call: &Call) -> LoweredResult {
        let refused = |why| Refusal::FunctionUse { name: call.function.name.clone(), why };
        let mut parts = vec![text("{")];
        for (place, pair) in call.arguments.chunks(2).enumerate() {
            let [key, value] = pair else { return Err(refused(FunctionRefusal::Arguments)) };
            parts.extend((place > 0).then(|| text(", ")));
            parts.push(self.lower_json_key(key)?.ok_or_else(|| refused(FunctionRefusal::NullKey))?);
            parts.push(text(" : "));
            parts.push(self.lower_json_value(value)?);
        }
        parts.push(text("}"));
        Ok(Lowered { not_null: true, ..Lowered::plain(joined(parts)) })
    }

    /// `to_json(x)` is NULL of NULL.
    fn lower_to_json(&self, call: &Call) -> LoweredResult {
        let [value] = call.arguments.as_slice() else {
            let why = FunctionRefusal::Arguments;
            return Err(Refusal::FunctionUse { name: call.function.name.clone(), why });
        };
        let lowered = self.lower(value)?;
        let result = self.lower_json_value(value)?;
        if lowered.is_never_null() {
            return Ok(Lowered { not_null: true, ..Lowered::plain(result) });
        }
        let condition = Expression::predicate(Function::IsNotNull, vec![lowered.expression]);
        let branches = vec![CaseBranch { condition, result }];
        Ok(Lowered::plain(Expression::Case { branches, otherwise: None, data_type: DataType::Text }))
    }

    /// A value as JSON, `null` of NULL.
    fn lower_json_value(&self, value: &Source) -> Result<Expression, Refusal> {
        let refused = || Refusal::JsonOf(value.of.name().to_owned());
        let lowered = self.lower(value)?;
        if is_null(&lowered.expression) {
            return Ok(text("null"));
        }
        let expression = match &value.of {
            SourceType::Json if lowered.is_never_null() => return Ok(lowered.expression),
            SourceType::Json => {
                let arguments = vec![lowered.expression, text("null")];
                return Ok(Expression::call(Function::Coalesce, arguments, DataType::Text));
            }
            SourceType::Bool
            | SourceType::SmallInt
            | SourceType::Integer
            | SourceType::BigInt
            | SourceType::Date
            | SourceType::Time
            | SourceType::Timestamp
            | SourceType::Uuid => lowered.expression,
            SourceType::Numeric => shown_decimal(lowered)?.ok_or_else(refused)?,
            SourceType::Text | SourceType::Varchar if self.has_plain_text() => lowered.expression,
            SourceType::Character if self.has_plain_text() => {
                let length = character_length(value.modifier).ok_or_else(refused)?;
                let arguments = vec![lowered.expression, Expression::int32(length)];
                Expression::call(Function::PadBlanks, arguments, DataType::Text)
            }
            _ => return Err(refused()),
        };
        Ok(Expression::call(Function::JsonText, vec![expression], DataType::Text))
    }

    /// A value as the name of a field; `None` if it may be NULL.
    fn lower_json_key(&self, key: &Source) -> Result<Option<Expression>, Refusal> {
        let refused = || Refusal::JsonOf(format!("{} as a key", key.of.name()));
        let lowered = self.lower(key)?;
        if !lowered.is_never_null() {
            return Ok(None);
        }
        let named = match &key.of {
            SourceType::Bool | SourceType::SmallInt | SourceType::Integer | SourceType::BigInt => {
                cast_to(lowered, &DataType::Text)
            }
            SourceType::Date | SourceType::Uuid => lowered.expression,
            SourceType::Text | SourceType::Varchar if self.has_plain_text() => lowered.expression,
            _ => return Err(refused()),
        };
        Ok(Some(Expression::call(Function::JsonText, vec![named], DataType::Text)))
    }

    /// Whether text has the same characters here and in PostgreSQL.
    fn has_plain_text(&self) -> bool {
        self.server.text_form() == TextForm::Utf8
    }
}

fn text(text: &str) -> Expression {
    Expression::literal(Value::Text(text.to_owned()), DataType::Text)
}

/// Texts one behind the other, constants that touch each other as one.
fn joined(parts: Vec<Expression>) -> Expression {
    let mut merged: Vec<Expression> = Vec::with_capacity(parts.len());
    for part in parts {
        if let (Some(Expression::Literal(last)), Expression::Literal(next)) = (merged.last_mut(), &part)
            && let (Value::Text(last), Value::Text(next)) = (&mut last.value, &next.value)
        {
            last.push_str(next);
            continue;
        }
        merged.push(part);
    }
    match merged.len() {
        1 => merged.remove(0),
        _ => Expression::call(Function::Concat, merged, DataType::Text),
    }
}
