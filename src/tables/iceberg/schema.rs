//! Columns from a schema of a table, and the types of fields by their ids.

use std::collections::HashMap;

use pystachio_plan::DataType;
use serde_json::Value as Json;

use super::value::default_text;
use crate::{NestedField, NestedType, StoredName, TableColumn};

/// The kind of a struct in JSON, of which a schema is one.
const STRUCT: &str = "struct";

type Parsed<T> = Result<T, String>;

/// The columns of a schema.
///
/// # Errors
///
/// What is wrong with it, in words.
pub(super) fn columns(schema: &Json, mapping: Option<&Json>) -> Parsed<Vec<TableColumn>> {
    fields_of(schema)?.iter().map(|field| column(field, mapping)).collect()
}

/// Types of fields by their ids, of all schemas: deletes may name a column that the table does not have any more. Of a field in several
/// the last one's counts.
pub(super) fn types<'s>(schemas: impl Iterator<Item = &'s Json>) -> HashMap<i64, DataType> {
    let mut found = HashMap::new();
    for schema in schemas {
        add_types(schema, &mut found);
    }
    found
}

fn add_types(data_type: &Json, found: &mut HashMap<i64, DataType>) {
    for field in data_type.get("fields").and_then(Json::as_array).into_iter().flatten() {
        let (Some(id), Some(inner)) = (field.get("id").and_then(Json::as_i64), field.get("type")) else {
            continue;
        };
        // Of nanoseconds, values are not told apart.
        let primitive = inner.as_str().filter(|name| !name.ends_with("_ns")).and_then(primitive_type);
        match primitive {
            Some(primitive) => drop(found.insert(id, primitive)),
            None => add_types(inner, found),
        }
    }
}

fn fields_of(data_type: &Json) -> Parsed<&Vec<Json>> {
    data_type.get("fields").and_then(Json::as_array).ok_or_else(|| "has no fields".to_owned())
}

fn column(field: &Json, mapping: Option<&Json>) -> Parsed<TableColumn> {
    let name = field.get("name").and_then(Json::as_str).ok_or("has a field without a name")?;
    let missing = |what: &str| format!("has no {what} for field \"{name}\"");
    let id = field.get("id").and_then(Json::as_i64).and_then(|id| i32::try_from(id).ok());
    let id = id.ok_or_else(|| missing("id"))?;
    let data_type = field.get("type").ok_or_else(|| missing("type"))?;
    let mapped = mapping.and_then(Json::as_array).and_then(|entries| {
        entries.iter().find(|entry| entry.get("field-id").and_then(Json::as_i64) == Some(id.into()))
    });
    let names = names_of(mapped);
    let fields = match kind(data_type) {
        STRUCT => {
            let within = mapped.and_then(|entry| entry.get("fields"));
            let fields = fields_of(data_type)?.iter();
            fields.map(|field| column(field, within)).collect::<Parsed<_>>()?
        }
        _ => Vec::new(),
    };
    let (declared, is_json) = declared_type(data_type);
    let default = match (field.get("initial-default"), &declared) {
        (None | Some(Json::Null), _) => None,
        (Some(value), Some(declared)) if !is_json => {
            Some(default_text(value, declared).ok_or_else(|| missing("default that can be read"))?)
        }
        _ => return Err(missing("default that can be read")),
    };
    Ok(TableColumn {
        name: name.to_owned(),
        stored: StoredName { name: name.to_owned(), id: Some(id), names_without_ids: names },
        data_type: declared,
        is_json,
        has_renamed_fields: false,
        type_words: format!("Iceberg's type {}", kind(data_type)),
        not_null: field.get("required").and_then(Json::as_bool).unwrap_or(false),
        is_partition: false,
        nested: nested(data_type, mapped)?,
        default,
        fields,
    })
}

/// What it is called, without what a nested type consists of.
fn kind(data_type: &Json) -> &str {
    data_type.as_str().or_else(|| data_type.get("type")?.as_str()).unwrap_or("unknown")
}

/// The type that a column is declared as, and whether it is nested.
fn declared_type(data_type: &Json) -> (Option<DataType>, bool) {
    if let Some(name) = data_type.as_str() {
        return (primitive_type(name), false);
    }
    let item = data_type.get("element").and_then(Json::as_str).and_then(primitive_type);
    match (kind(data_type), item) {
        ("list", Some(item)) => (Some(DataType::List(Box::new(item))), false),
        ("list" | STRUCT | "map", _) => (Some(DataType::Text), true),
        _ => (None, false),
    }
}

/// The type of a single value; `None` if PostgreSQL has none.
fn primitive_type(name: &str) -> Option<DataType> {
    Some(match name {
        "boolean" => DataType::Bool,
        "int" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "date" => DataType::Date,
        "time" => DataType::Time,
        "timestamp" | "timestamp_ns" => DataType::Timestamp,
        "timestamptz" | "timestamptz_ns" => DataType::TimestampTz,
        "string" => DataType::Text,
        "uuid" => DataType::Uuid,
        "binary" => DataType::Bytea,
        _ if name.starts_with("fixed[") => DataType::Bytea,
        _ => {
            let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
            let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
            ((1..=38).contains(&precision) && scale <= precision)
                .then_some(DataType::Decimal { precision, scale })?
        }
    })
}

/// What a nested type consists of. `mapped`: what the name mapping says of the field that has it.
fn nested(data_type: &Json, mapped: Option<&Json>) -> Parsed<NestedType> {
    let part = |name: &str, id: &str| {
        let part = data_type.get(name).ok_or_else(|| format!("has a type without {name}"))?;
        nested(part, entry_of(mapped, data_type.get(id).and_then(Json::as_i64)))
    };
    Ok(match kind(data_type) {
        STRUCT => {
            let field = |field: &Json| {
                let name = field.get("name").and_then(Json::as_str).ok_or("has a field without a name")?;
                let id = field.get("id").and_then(Json::as_i64);
                let entry = entry_of(mapped, id);
                let inner = field.get("type").ok_or_else(|| format!("has no type for field \"{name}\""))?;
                Ok(NestedField {
                    name: name.to_owned(),
                    stored: StoredName {
                        name: name.to_owned(),
                        id: id.and_then(|id| i32::try_from(id).ok()),
                        names_without_ids: names_of(entry),
                    },
                    has_default: !field.get("initial-default").is_none_or(Json::is_null),
                    nested: nested(inner, entry)?,
                })
            };
            NestedType::Struct(fields_of(data_type)?.iter().map(field).collect::<Parsed<_>>()?)
        }
        "list" => NestedType::List(Box::new(part("element", "element-id")?)),
        "map" => NestedType::Map(Box::new((part("key", "key-id")?, part("value", "value-id")?))),
        "int" | "long" => NestedType::Single(Some("integer".to_owned())),
        name if name.starts_with("fixed[") => NestedType::Single(Some("binary".to_owned())),
        name => NestedType::Single(Some(match primitive_type(name) {
            Some(DataType::Decimal { scale, .. }) => format!("decimal {scale}"),
            _ => name.to_owned(),
        })),
    })
}

/// The entry of a field among those within another one of the name mapping.
fn entry_of(mapped: Option<&Json>, id: Option<i64>) -> Option<&Json> {
    let entries = mapped?.get("fields")?.as_array()?;
    entries.iter().find(|entry| id.is_some() && entry.get("field-id").and_then(Json::as_i64) == id)
}

/// The names that the name mapping has for a field.
fn names_of(entry: Option<&Json>) -> Vec<String> {
    let names = entry.and_then(|entry| entry.get("names")).and_then(Json::as_array);
    names.into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}
