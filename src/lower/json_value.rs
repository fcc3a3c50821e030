//! JSON that is made of values: `json_agg`, `json_build_object`, `to_json` and their kin, and those of `jsonb`, whose text PostgreSQL
//! reads.
//!
//! ```text
//! json_agg(x ORDER BY y)         ─►  '[' || join_texts(array(json_text(x) ORDER BY y), ', ') || ']'
//! json_object_agg(k, x)          ─►  '{ ' || join_texts(array(json_text(k) || ' : ' || json_text(x)), ', ') || ' }'
//! json_build_object('k', x)      ─►  '{' || json_text('k') || ' : ' || json_text(x) || '}'
//! to_json(ROW(x, y))             ─►  '{' || json_text('f1') || ':' || json_text(x) || ',' || json_text('f2') || ':' || json_text(y) || '}'
//! ```
//!
//! Deliberately absent: `jsonb` in `json`, which shows PostgreSQL's form of it; intervals and `bytea`, whose text the session decides;
//! keys that may be NULL, of which each version of PostgreSQL raises another error.

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Value};

use crate::{
    AggregateRefusal, AggregateSource, Call, Constant, FunctionRefusal, Lowered, LoweredAggregate,
    LoweredResult, Lowering, Part, Refusal, Source, SourceType, TextForm, character_length,
    number_text::{float_digits, shown_number},
    numeric::{cast_to, is_null},
    ordered_aggregate::{refuse, result},
    zone::session_zone,
};

/// PostgreSQL's name of the type whose text PostgreSQL reads anew.
const JSONB: &str = "jsonb";

/// The kind of JSON that the function makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `json`, whose text is shown.
    Json,
    /// `jsonb`, of whose text PostgreSQL makes another one.
    Jsonb,
}

impl Form {
    /// What a function makes.
    fn of(name: &str) -> Self {
        if name.contains(JSONB) { Self::Jsonb } else { Self::Json }
    }
}

impl Lowering<'_> {
    /// `json_agg` and `jsonb_agg`.
    pub(crate) fn lower_json_agg(
        &self,
        aggregate: &AggregateSource,
        value: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        let form = Form::of(&aggregate.function.name);
        let element = self.lower_json_value(value, form)?;
        let delimiter = match form {
            Form::Json => self.lower_json_delimiter(value)?,
            Form::Jsonb => text(", "),
        };
        self.join_json(aggregate, element, ["[", "]"], delimiter)
    }

    /// What `json_agg` puts before each element but the first: a line feed before arrays and rows, but not before `null`.
    ///
    /// Source: PostgreSQL 15, `json.c`, `json_agg_transfn`.
    fn lower_json_delimiter(&self, value: &Source) -> Result<Expression, Refusal> {
        let (plain, feed) = (text(", "), text(", \n "));
        let choice = |branches, otherwise: Expression| Expression::Case {
            branches,
            otherwise: Some(Box::new(otherwise)),
            data_type: DataType::Text,
        };
        Ok(match &value.part {
            Part::Row { .. } | Part::Array { .. } => feed,
            Part::Case { operand: None, branches, otherwise } if is_choice_of_rows(branches) => {
                let lower = |(condition, result): &(Source, Source)| {
                    let condition = self.lower_condition(condition)?;
                    Ok(CaseBranch { condition, result: self.lower_json_delimiter(result)? })
                };
                let lowered = branches.iter().map(lower).collect::<Result<Vec<_>, Refusal>>()?;
                let otherwise =
                    otherwise.as_ref().map(|value| self.lower_json_delimiter(value)).transpose()?;
                choice(lowered, otherwise.unwrap_or(plain))
            }
            _ if matches!(value.of, SourceType::Array(_)) => {
                let lowered = self.lower(value)?;
                let condition = Expression::predicate(Function::IsNull, vec![lowered.expression.clone()]);
                match lowered.is_never_null() {
                    true => feed,
                    false => choice(vec![CaseBranch { condition, result: plain }], feed),
                }
            }
            _ => plain,
        })
    }

    /// `json_object_agg` and `jsonb_object_agg`.
    pub(crate) fn lower_json_object_agg(
        &self,
        aggregate: &AggregateSource,
        key: &Source,
        value: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        let key = self.lower_json_key(key)?.ok_or_else(|| refuse(aggregate, AggregateRefusal::NullKey))?;
        let value = self.lower_json_value(value, Form::of(&aggregate.function.name))?;
        let element = joined(vec![key, text(" : "), value]);
        self.join_json(aggregate, element, ["{ ", " }"], text(", "))
    }

    /// The JSON of the elements of a group, which are texts that are never NULL.
    fn join_json(
        &self,
        aggregate: &AggregateSource,
        element: Expression,
        [open, close]: [&str; 2],
        delimiter: Expression,
    ) -> Result<LoweredAggregate, Refusal> {
        if aggregate.is_distinct {
            return Err(refuse(aggregate, AggregateRefusal::DistinctJson));
        }
        let mut calls = vec![self.array_call(aggregate, element)?];
        let delimiter = match delimiter {
            constant @ Expression::Literal(_) => constant,
            of_row => {
                let call = self.array_call(aggregate, of_row)?;
                let delimiters = result(&call);
                calls.push(call);
                delimiters
            }
        };
        let elements = calls.iter().take(1).map(result).chain([delimiter]).collect();
        let elements = Expression::call(Function::JoinTexts, elements, DataType::Text);
        let value = Lowered::plain(joined(vec![text(open), elements, text(close)]));
        Ok(LoweredAggregate { calls, value })
    }

    /// `json_build_object`, `json_build_array`, `to_json`, `row_to_json` and their kin; `None` for other calls.
    pub(crate) fn lower_json_call(&self, call: &Call) -> Option<LoweredResult> {
        if !call.function.is_builtin {
            return None;
        }
        Some(match call.function.name.as_str() {
            "json_build_array" | "jsonb_build_array" => self.lower_json_array(call),
            "json_build_object" | "jsonb_build_object" => self.lower_json_object(call),
            "to_json" | "to_jsonb" | "array_to_json" | "row_to_json" => self.lower_to_json(call),
            _ => return None,
        })
    }

    fn lower_json_array(&self, call: &Call) -> LoweredResult {
        let mut parts = vec![text("[")];
        for (place, value) in call.arguments.iter().enumerate() {
            parts.extend((place > 0).then(|| text(", ")));
            parts.push(self.lower_json_value(value, Form::of(&call.function.name))?);
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
            parts.push(self.lower_json_value(value, Form::of(&call.function.name))?);
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
        let form = Form::of(&call.function.name);
        if let (Part::Row { .. } | Part::Array { .. }, Some(parts)) =
            (&value.part, self.lower_json_parts(value, form)?)
        {
            return Ok(Lowered { not_null: true, ..Lowered::plain(parts) });
        }
        let lowered = self.lower(value)?;
        let result = self.lower_json_value(value, form)?;
        if lowered.is_never_null() {
            return Ok(Lowered { not_null: true, ..Lowered::plain(result) });
        }
        let condition = Expression::predicate(Function::IsNotNull, vec![lowered.expression]);
        let branches = vec![CaseBranch { condition, result }];
        Ok(Lowered::plain(Expression::Case { branches, otherwise: None, data_type: DataType::Text }))
    }

    /// A value as JSON, `null` of NULL.
    fn lower_json_value(&self, value: &Source, form: Form) -> Result<Expression, Refusal> {
        let refused = || Refusal::JsonOf(value.of.name().to_owned());
        if let Part::Constant(Constant::Null) = &value.part {
            return Ok(text("null"));
        }
        if let Some(parts) = self.lower_json_parts(value, form)? {
            return Ok(parts);
        }
        let lowered = self.lower(value)?;
        if is_null(&lowered.expression) {
            return Ok(text("null"));
        }
        let arguments = match &value.of {
            of if is_json(of, form) => {
                let arguments = vec![lowered.expression.clone(), text("null")];
                return Ok(match lowered.is_never_null() {
                    true => lowered.expression,
                    false => Expression::call(Function::Coalesce, arguments, DataType::Text),
                });
            }
            SourceType::FromText(other) if other.name == JSONB => return Err(refused()),
            SourceType::Real | SourceType::Double | SourceType::Numeric => shown_number(self.notes, lowered)?,
            SourceType::Character if self.has_plain_text() => {
                let length = character_length(value.modifier).ok_or_else(refused)?;
                let arguments = vec![lowered.expression, Expression::int32(length)];
                vec![Expression::call(Function::PadBlanks, arguments, DataType::Text)]
            }
            // Elements are those of the files, whose numerics have one scale.
            SourceType::Array(array) => match lowered.data_type() {
                DataType::List(item) if !item.is_nested() && **item != DataType::Numeric => {
                    self.json_arguments(&array.item, lowered.expression).ok_or_else(refused)?
                }
                _ => return Err(refused()),
            },
            of => self.json_arguments(of, lowered.expression).ok_or_else(refused)?,
        };
        Ok(Expression::call(Function::JsonText, arguments, DataType::Text))
    }

    /// A value, or an array of values, of a type, and what its JSON depends on besides; `None` if that is not known.
    fn json_arguments(&self, of: &SourceType, value: Expression) -> Option<Vec<Expression>> {
        Some(match of {
            SourceType::Bool
            | SourceType::SmallInt
            | SourceType::Integer
            | SourceType::BigInt
            | SourceType::Numeric
            | SourceType::Date
            | SourceType::Time
            | SourceType::Timestamp
            | SourceType::Uuid => vec![value],
            SourceType::Real | SourceType::Double => vec![value, float_digits(self.notes)],
            SourceType::TimestampTz => vec![value, session_zone(self.notes)],
            SourceType::Text | SourceType::Varchar if self.has_plain_text() => vec![value],
            // An enum.
            SourceType::FromText(other) if other.name != JSONB && self.has_plain_text() => vec![value],
            _ => return None,
        })
    }

    /// `ROW(…)` and `ARRAY[…]` as JSON, and a choice of a row or NULL; `None` of other values.
    fn lower_json_parts(&self, value: &Source, form: Form) -> Result<Option<Expression>, Refusal> {
        let refused = || Refusal::JsonOf(value.of.name().to_owned());
        match &value.part {
            Part::Row { fields, names } => {
                if names.len() != fields.len() || !self.has_plain_text() {
                    return Err(refused());
                }
                let mut parts = vec![text("{")];
                for (place, (name, field)) in names.iter().zip(fields).enumerate() {
                    parts.extend((place > 0).then(|| text(",")));
                    parts.push(Expression::call(Function::JsonText, vec![text(name)], DataType::Text));
                    parts.push(text(":"));
                    parts.push(self.lower_json_value(field, form)?);
                }
                parts.push(text("}"));
                Ok(Some(joined(parts)))
            }
            Part::Array { items, is_nested: false } => {
                let mut parts = vec![text("[")];
                for (place, item) in items.iter().enumerate() {
                    parts.extend((place > 0).then(|| text(",")));
                    parts.push(self.lower_json_value(item, form)?);
                }
                parts.push(text("]"));
                Ok(Some(joined(parts)))
            }
            Part::Case { operand: None, branches, otherwise } if is_choice_of_rows(branches) => {
                let lower = |(condition, result): &(Source, Source)| {
                    let condition = self.lower_condition(condition)?;
                    Ok(CaseBranch { condition, result: self.lower_json_value(result, form)? })
                };
                let outside = self.conditional.replace(true);
                let lowered = branches.iter().map(lower).collect::<Result<Vec<_>, Refusal>>();
                let otherwise =
                    otherwise.as_ref().map_or(Ok(text("null")), |value| self.lower_json_value(value, form));
                self.conditional.set(outside);
                let (branches, otherwise) = (lowered?, Some(Box::new(otherwise?)));
                Ok(Some(Expression::Case { branches, otherwise, data_type: DataType::Text }))
            }
            _ => Ok(None),
        }
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

/// Whether a CASE gives rows.
fn is_choice_of_rows(branches: &[(Source, Source)]) -> bool {
    branches.iter().any(|(_, result)| matches!(result.part, Part::Row { .. }))
}

/// Whether the text of a type's values is JSON as it is.
fn is_json(of: &SourceType, form: Form) -> bool {
    match of {
        SourceType::Json => true,
        SourceType::FromText(other) => form == Form::Jsonb && other.name == JSONB,
        _ => false,
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
