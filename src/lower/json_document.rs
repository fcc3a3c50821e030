//! Parts of JSON documents that columns or casts give: `->`, `->>`, `#>`, `#>>` and subscripts with constant steps, `?`, `?|`, `?&`, `@>`,
//! `<@`, types and lengths; casts between text and JSON.
//!
//! Several steps become one call with one path.
//!
//! Deliberately absent: steps that are not constants, `@?` and `@@`, changes of documents, equality and order.

use pystachio_plan::{DataType, Expression, Function, JsonPath, JsonStep, Value};

use crate::{
    Call, Constant, FunctionRefusal, JSON_SUBSCRIPT, Lowered, LoweredResult, Lowering, Part, Refusal, Source,
    SourceType, TextForm,
};

/// Steps of the longest path.
const STEPS_MAX: usize = 100;

impl SourceType {
    /// Whether it is `jsonb`.
    fn is_jsonb(&self) -> bool {
        matches!(self, Self::FromText(other) if other.name == "jsonb")
    }

    fn is_document(&self) -> bool {
        *self == Self::Json || self.is_jsonb()
    }
}

impl Lowering<'_> {
    /// A function of a JSON document; `None` for other calls.
    pub(crate) fn lower_json_function(&self, call: &Call) -> Option<LoweredResult> {
        let document = call.arguments.first().filter(|first| first.of.is_document())?;
        let is_jsonb = document.of.is_jsonb();
        let of = |json, jsonb| if is_jsonb { jsonb } else { json };
        let name = call.function.name.as_str();
        if !call.function.is_builtin {
            return None;
        }
        if is_step(name) {
            return Some(self.lower_document_part(call, of(Function::JsonPart, Function::JsonbPart)));
        }
        if name.strip_suffix("_text").is_some_and(is_step) {
            return Some(self.lower_document_part(call, of(Function::JsonPartText, Function::JsonbPartText)));
        }
        let plain = |function, result| self.lower_documents(call, function, result);
        match name {
            "json_typeof" => Some(plain(Function::JsonType, DataType::Text)),
            "jsonb_typeof" => Some(plain(Function::JsonbType, DataType::Text)),
            "json_array_length" => Some(plain(Function::JsonLength, DataType::Int32)),
            "jsonb_array_length" => Some(plain(Function::JsonbLength, DataType::Int32)),
            "jsonb_contains" | "jsonb_contained" => Some(plain(Function::JsonbContains, DataType::Bool)),
            "jsonb_exists" => Some(self.lower_exists(call, Function::Or)),
            "jsonb_exists_any" => Some(self.lower_exists(call, Function::Or)),
            "jsonb_exists_all" => Some(self.lower_exists(call, Function::And)),
            _ => None,
        }
    }

    /// A cast between text and JSON, or among the types of JSON; `None` for other casts.
    pub(crate) fn lower_json_cast(&self, argument: &Source, to: &SourceType) -> Option<LoweredResult> {
        let from = &argument.of;
        let function = match (from.is_document(), to.is_document()) {
            (true, false) if to.is_unpadded_text() && !from.is_jsonb() => None,
            (true, false) if to.is_unpadded_text() => Some(Function::JsonbText),
            (true, true) if from.is_jsonb() => Some(Function::JsonbText),
            (true, true) => Some(Function::JsonbCast),
            (false, true) if from.is_collated_text() && to.is_jsonb() => Some(Function::JsonbCast),
            (false, true) if from.is_collated_text() => Some(Function::JsonCast),
            _ => return None,
        };
        Some(self.lower(argument).and_then(|text| match function {
            None => Ok(text),
            Some(function) => {
                self.check_utf8(to.name())?;
                Ok(Lowered::plain(Expression::call(function, vec![text.expression], DataType::Text)))
            }
        }))
    }

    fn lower_document_part(&self, call: &Call, function: Function) -> LoweredResult {
        let refused = |why| Refusal::FunctionUse { name: call.function.name.clone(), why };
        let mut steps = Vec::new();
        let mut outermost = call;
        let document = loop {
            let [document, step] = outermost.arguments.as_slice() else {
                return Err(refused(FunctionRefusal::Arguments));
            };
            // The outer call goes further inwards.
            let mut own = steps_of(&outermost.function.name, step).map_err(refused)?;
            own.append(&mut steps);
            steps = own;
            match &document.part {
                Part::Call(inner) if is_joined(inner, outermost) => outermost = inner,
                _ => break document,
            }
        };
        if steps.len() > STEPS_MAX {
            return Err(refused(FunctionRefusal::Arguments));
        }
        self.check_utf8(&call.function.name)?;
        let document = self.lower(document)?;
        let path = Expression::literal(Value::Text(JsonPath { steps }.to_string()), DataType::Text);
        let arguments = vec![document.expression, path];
        Ok(Lowered::plain(Expression::call(function, arguments, DataType::Text)))
    }

    /// A function of documents alone.
    fn lower_documents(&self, call: &Call, function: Function, result: DataType) -> LoweredResult {
        self.check_utf8(&call.function.name)?;
        let arguments = call.arguments.iter().map(|document| Ok(self.lower(document)?.expression));
        let mut arguments = arguments.collect::<Result<Vec<Expression>, Refusal>>()?;
        if call.function.name == "jsonb_contained" {
            arguments.reverse();
        }
        Ok(Lowered::plain(Expression::call(function, arguments, result)))
    }

    /// `?`, and `?|` and `?&` with a constant array.
    fn lower_exists(&self, call: &Call, joint: Function) -> LoweredResult {
        let refused = |why| Refusal::FunctionUse { name: call.function.name.clone(), why };
        self.check_utf8(&call.function.name)?;
        let [document, keys] = call.arguments.as_slice() else {
            return Err(refused(FunctionRefusal::Arguments));
        };
        let document = self.lower(document)?.expression;
        let exists =
            |key| Expression::call(Function::JsonbExists, vec![document.clone(), key], DataType::Bool);
        let Part::Constant(Constant::Array(keys)) = &keys.part else {
            return match keys.of.is_collated_text() {
                true => Ok(Lowered::plain(exists(self.lower(keys)?.expression))),
                false => Err(refused(FunctionRefusal::VaryingPath)),
            };
        };
        // PostgreSQL skips NULL.
        let keys = keys.iter().filter_map(|key| match key {
            Constant::Value(key @ Value::Text(_)) => Some(Expression::literal(key.clone(), DataType::Text)),
            _ => None,
        });
        let mut found: Vec<Expression> = keys.map(exists).collect();
        match found.len() {
            0 => Err(refused(FunctionRefusal::Arguments)),
            1 => Ok(Lowered::plain(found.remove(0))),
            _ => Ok(Lowered::plain(Expression::predicate(joint, found))),
        }
    }

    fn check_utf8(&self, name: &str) -> Result<(), Refusal> {
        match self.server.text_form() {
            TextForm::Utf8 => Ok(()),
            _ => {
                let why = FunctionRefusal::Encoding(self.server.encoding_name());
                Err(Refusal::FunctionUse { name: name.to_owned(), why })
            }
        }
    }
}

/// Whether a function of PostgreSQL's gives a part of a document as JSON.
fn is_step(name: &str) -> bool {
    let own = name.strip_prefix("jsonb_").or_else(|| name.strip_prefix("json_"));
    name == JSON_SUBSCRIPT
        || own.is_some_and(|own| matches!(own, "object_field" | "array_element" | "extract_path"))
}

/// Whether the steps of a call and those of the one above it are one path. Those of `#>` over `json` are not: where a document names a
/// field twice, `#>` looks into both, and `->` into the last one.
fn is_joined(inner: &Call, above: &Call) -> bool {
    let is_path = |call: &Call| call.function.name.starts_with("json_extract_path");
    inner.function.is_builtin && is_step(&inner.function.name) && !is_path(inner) && !is_path(above)
}

/// The steps that a call of such a function, or one that gives text, takes.
fn steps_of(name: &str, step: &Source) -> Result<Vec<JsonStep>, FunctionRefusal> {
    let Part::Constant(constant) = &step.part else { return Err(FunctionRefusal::VaryingPath) };
    match constant {
        Constant::Value(Value::Int(number)) => {
            let number = i32::try_from(*number).map_err(|_| FunctionRefusal::Arguments)?;
            Ok(vec![match name == JSON_SUBSCRIPT {
                true => JsonStep::Either(number.to_string()),
                false => JsonStep::Element(number),
            }])
        }
        Constant::Value(Value::Text(field)) => Ok(vec![match name == JSON_SUBSCRIPT {
            true => JsonStep::Either(field.clone()),
            false => JsonStep::Field(field.clone()),
        }]),
        Constant::Array(steps) => steps
            .iter()
            .map(|step| match step {
                Constant::Value(Value::Text(step)) => Ok(JsonStep::Either(step.clone())),
                _ => Err(FunctionRefusal::Arguments),
            })
            .collect(),
        _ => Err(FunctionRefusal::Arguments),
    }
}
