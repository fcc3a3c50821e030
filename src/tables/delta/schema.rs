//! Columns from the schema of a table's metadata.

use std::path::Path;

use pystachio_plan::{DataType, Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{action::Metadata, corrupt};
use crate::{NestedField, NestedType, StoredName, TableColumn};

/// Property of tables whose files have other names for columns than the table, and of fields those names.
const MAPPING_MODE: &str = "delta.columnMapping.mode";
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";
const FIELD_ID: &str = "delta.columnMapping.id";

/// How files are told a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapping {
    /// By its name in the table.
    None,
    /// By a name that the schema gives.
    Name,
    /// By an id that the schema gives.
    Id,
}

#[derive(Deserialize)]
struct StructType {
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    #[serde(rename = "type")]
    data_type: Value,
    #[serde(default = "is_nullable")]
    nullable: bool,
    #[serde(default)]
    metadata: Map<String, Value>,
}

fn is_nullable() -> bool {
    true
}

/// The columns of a table.
pub(super) fn columns(root: &Path, metadata: &Metadata) -> Result<Vec<TableColumn>> {
    let mapping = match metadata.property(MAPPING_MODE) {
        None | Some("none") => Mapping::None,
        Some("name") => Mapping::Name,
        Some("id") => Mapping::Id,
        Some(other) => {
            let message =
                format!("Delta table \"{}\" has the unknown column mapping \"{other}\"", root.display());
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
    };
    let invalid = |reason: &str| corrupt(root, &format!("the schema {reason}"));
    let schema: StructType = serde_json::from_str(&metadata.schema_string)
        .map_err(|error| invalid(&format!("can't be read: {error}")))?;
    let mut columns = fields(schema, mapping).map_err(|reason| invalid(&reason))?;
    for partition in &metadata.partition_columns {
        let column = columns.iter_mut().find(|column| column.name == *partition);
        let column = column.ok_or_else(|| invalid(&format!("lacks the partition column \"{partition}\"")))?;
        column.is_partition = true;
    }
    Ok(columns)
}

type Parsed<T> = std::result::Result<T, String>;

fn fields(schema: StructType, mapping: Mapping) -> Parsed<Vec<TableColumn>> {
    schema.fields.into_iter().map(|field| column(field, mapping)).collect()
}

fn column(field: Field, mapping: Mapping) -> Parsed<TableColumn> {
    let Field { name, data_type, nullable, metadata } = field;
    let missing = |what: &str| format!("has no {what} for column \"{name}\"");
    let stored_name = match (mapping, metadata.get(PHYSICAL_NAME).and_then(Value::as_str)) {
        (Mapping::None, _) => name.clone(),
        (_, stored) => stored.ok_or_else(|| missing("physical name"))?.to_owned(),
    };
    let id = match mapping {
        Mapping::None | Mapping::Name => None,
        Mapping::Id => {
            let id = metadata.get(FIELD_ID).and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
            Some(id.ok_or_else(|| missing("id"))?)
        }
    };
    let (fields, nested) = match data_type.get("type").and_then(Value::as_str) {
        Some("struct") => {
            let fields = struct_fields(&data_type, mapping)?;
            let nested = NestedType::Struct(nested_fields(&fields));
            (fields, nested)
        }
        _ => (Vec::new(), nested(&data_type, mapping)?),
    };
    let (declared, is_json) = declared_type(&data_type);
    Ok(TableColumn {
        name,
        stored: StoredName { name: stored_name, id, names_without_ids: Vec::new() },
        has_renamed_fields: mapping != Mapping::None && has_renamed_fields(&data_type),
        data_type: declared,
        is_json,
        type_words: format!("Delta's type {}", words(&data_type)),
        not_null: !nullable,
        is_partition: false,
        nested,
        default: None,
        fields,
    })
}

/// Whether a field within a type has another name in files. Parsing JSON has bounded how deep it is.
fn has_renamed_fields(data_type: &Value) -> bool {
    let of_field = |field: &Value| {
        let stored = field.get("metadata").and_then(|metadata| metadata.get(PHYSICAL_NAME));
        stored != field.get("name") || field.get("type").is_some_and(has_renamed_fields)
    };
    let fields = data_type.get("fields").and_then(Value::as_array);
    fields.is_some_and(|fields| fields.iter().any(of_field))
        || ["elementType", "keyType", "valueType"]
            .iter()
            .any(|part| data_type.get(part).is_some_and(has_renamed_fields))
}

/// What a type consists of. Single values are of the kinds that files have, which Delta keeps as they were written.
fn nested(data_type: &Value, mapping: Mapping) -> Parsed<NestedType> {
    let part = |name: &str| {
        let part = data_type.get(name).ok_or_else(|| format!("has a type without {name}"))?;
        nested(part, mapping)
    };
    Ok(match data_type.get("type").and_then(Value::as_str) {
        Some("struct") => NestedType::Struct(nested_fields(&struct_fields(data_type, mapping)?)),
        Some("array") => NestedType::List(Box::new(part("elementType")?)),
        Some("map") => NestedType::Map(Box::new((part("keyType")?, part("valueType")?))),
        _ => NestedType::Single(None),
    })
}

fn struct_fields(data_type: &Value, mapping: Mapping) -> Parsed<Vec<TableColumn>> {
    let nested: StructType = serde_json::from_value(data_type.clone()).map_err(|error| error.to_string())?;
    fields(nested, mapping)
}

fn nested_fields(columns: &[TableColumn]) -> Vec<NestedField> {
    let field = |column: &TableColumn| NestedField {
        name: column.name.clone(),
        stored: column.stored.clone(),
        has_default: false,
        nested: column.nested.clone(),
    };
    columns.iter().map(field).collect()
}

/// The type that a column is declared as, and whether it is nested.
fn declared_type(data_type: &Value) -> (Option<DataType>, bool) {
    if let Some(name) = data_type.as_str() {
        return (primitive_type(name), false);
    }
    let item = data_type.get("elementType").and_then(Value::as_str).and_then(primitive_type);
    match (data_type.get("type").and_then(Value::as_str), item) {
        (Some("array"), Some(item)) => (Some(DataType::List(Box::new(item))), false),
        (Some("array" | "struct" | "map"), _) => (Some(DataType::Text), true),
        _ => (None, false),
    }
}

fn primitive_type(name: &str) -> Option<DataType> {
    Some(match name {
        "string" => DataType::Text,
        "long" => DataType::Int64,
        "integer" => DataType::Int32,
        "short" | "byte" => DataType::Int16,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Bool,
        "binary" => DataType::Bytea,
        "date" => DataType::Date,
        "timestamp" => DataType::TimestampTz,
        "timestamp_ntz" => DataType::Timestamp,
        _ => {
            let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
            let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
            ((1..=38).contains(&precision) && scale <= precision)
                .then_some(DataType::Decimal { precision, scale })?
        }
    })
}

fn words(data_type: &Value) -> &str {
    data_type.as_str().or_else(|| data_type.get("type")?.as_str()).unwrap_or("unknown")
}
