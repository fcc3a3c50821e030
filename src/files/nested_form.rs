//! What a nested column of a file consists of, with the names of its table.
//!
//! A table format tells fields within structs by ids or by names of its own. A file may have other names for them, fields that the table has
//! no more, and lack others. The form says which is which; JSON has the table's names, and `null` for what a file lacks.
//!
//! Invariant: the parts of a form are those that the reader gives: groups without a leaf are left out.

use parquet::schema::types::{Type, TypePtr};
use pystachio_plan::DataType;
use pystachio_tables::NestedType;

use crate::{
    field_place::stored_position,
    file_type::{Storage, is_map, is_null_type, is_repeated, is_variant, leaf_type, list_item},
    leafless::has_leaf,
};

/// A nested column of a file, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NestedForm {
    /// Single values.
    Single,
    /// A variant.
    Variant,
    /// A list of items.
    List(Box<NestedForm>),
    /// A map of keys and values.
    Map(Box<(NestedForm, NestedForm)>),
    /// A struct.
    Struct {
        /// Its fields in the file, in their order.
        fields: Vec<FormField>,
        /// Names of fields that the table has and the file lacks.
        missing: Vec<String>,
    },
}

/// A field of a struct in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FormField {
    /// Its name in the file.
    pub stored: String,
    /// Its name in the table, if that has it.
    pub name: Option<String>,
    /// What it consists of.
    pub form: NestedForm,
}

impl NestedForm {
    /// The form of a field. `table`: what its table says of it, if one does; `None` if the file's values are of other kinds than the table's, or lack a field
    /// that has a default.
    /// `has_ids`: fields of the file have ids.
    pub(crate) fn of(field: &Type, table: Option<&NestedType>, has_ids: bool) -> Option<Self> {
        match (is_repeated(field), table) {
            (false, _) => Self::of_one(field, table, has_ids),
            // A list of old writers.
            (true, None) => Some(Self::List(Box::new(Self::of_one(field, None, has_ids)?))),
            (true, Some(NestedType::List(item))) => {
                Some(Self::List(Box::new(Self::of_one(field, Some(item), has_ids)?)))
            }
            (true, Some(_)) => None,
        }
    }

    /// The form of one value of a field that may be repeated.
    fn of_one(field: &Type, table: Option<&NestedType>, has_ids: bool) -> Option<Self> {
        if field.is_primitive() {
            return match table {
                Some(NestedType::Single(Some(of_table))) => {
                    (is_null_type(field) || kind(field) == *of_table).then_some(Self::Single)
                }
                Some(NestedType::Single(None)) | None => Some(Self::Single),
                Some(_) => None,
            };
        }
        if is_variant(field) {
            return matches!(table, Some(NestedType::Single(_)) | None).then_some(Self::Variant);
        }
        if let Some(item) = list_item(field) {
            let of_table = match table {
                Some(NestedType::List(of_table)) => Some(&**of_table),
                Some(_) => return None,
                None => None,
            };
            // The repeated group is the item itself in some old files.
            return Some(Self::List(Box::new(Self::of_one(item, of_table, has_ids)?)));
        }
        if is_map(field) {
            let (of_key, of_value) = match table {
                Some(NestedType::Map(of_table)) => (Some(&of_table.0), Some(&of_table.1)),
                Some(_) => return None,
                None => (None, None),
            };
            let [entries] = field.get_fields() else { return None };
            let [key, value] = entries.is_group().then(|| entries.get_fields())? else { return None };
            let key = Self::of(key, of_key, has_ids)?;
            return Some(Self::Map(Box::new((key, Self::of(value, of_value, has_ids)?))));
        }
        Self::of_struct(field.get_fields(), table, has_ids)
    }

    fn of_struct(stored: &[TypePtr], table: Option<&NestedType>, has_ids: bool) -> Option<Self> {
        let mut found: Vec<Option<(&str, Option<&NestedType>)>> = vec![None; stored.len()];
        let mut missing = Vec::new();
        match table {
            None => {
                let own = stored.iter().map(|field| Some((field.name(), None)));
                found = own.collect();
            }
            Some(NestedType::Struct(fields)) => {
                for field in fields {
                    let place = stored_position(stored, &field.stored, has_ids);
                    match place.filter(|place| has_leaf(&stored[*place]) && found[*place].is_none()) {
                        Some(place) => found[place] = Some((&field.name, Some(&field.nested))),
                        None if field.has_default => return None,
                        None => missing.push(field.name.clone()),
                    }
                }
            }
            Some(_) => return None,
        }
        let fields = stored.iter().zip(found).filter(|(field, _)| has_leaf(field)).map(|(field, found)| {
            let form = match found {
                Some((_, of_table)) => Self::of(field, of_table, has_ids)?,
                None => Self::Single,
            };
            let name = found.map(|(name, _)| name.to_owned());
            Some(FormField { stored: field.name().to_owned(), name, form })
        });
        Some(Self::Struct { fields: fields.collect::<Option<_>>()?, missing })
    }

    /// Whether the table's fields have the file's names, where the file has them.
    pub(crate) fn keeps_names(&self) -> bool {
        match self {
            Self::Single | Self::Variant => true,
            Self::List(item) => item.keeps_names(),
            Self::Map(parts) => parts.0.keeps_names() && parts.1.keeps_names(),
            Self::Struct { fields, missing } => fields.iter().all(|field| match &field.name {
                Some(name) => *name == field.stored && field.form.keeps_names(),
                None => !missing.contains(&field.stored),
            }),
        }
    }
}

/// Whether a field is a variant, or one is within it.
pub(crate) fn has_variant(field: &Type) -> bool {
    is_variant(field) || field.is_group() && field.get_fields().iter().any(|field| has_variant(field))
}

/// The kind of single values, in the words of `pystachio_tables`: kinds that print alike in JSON have one name.
fn kind(field: &Type) -> String {
    let leaf = leaf_type(field);
    let unit = if leaf.storage == Some(Storage::Nanoseconds) { "_ns" } else { "" };
    match leaf.data_type {
        Some(DataType::Bool) => "boolean".to_owned(),
        Some(DataType::Int16 | DataType::Int32 | DataType::Int64) => "integer".to_owned(),
        Some(DataType::Float32) => "float".to_owned(),
        Some(DataType::Float64) => "double".to_owned(),
        Some(DataType::Decimal { scale, .. }) => format!("decimal {scale}"),
        Some(DataType::Date) => "date".to_owned(),
        Some(DataType::Time) => "time".to_owned(),
        Some(DataType::Timestamp) => format!("timestamp{unit}"),
        Some(DataType::TimestampTz) => format!("timestamptz{unit}"),
        Some(DataType::Text) => "string".to_owned(),
        Some(DataType::Uuid) => "uuid".to_owned(),
        Some(DataType::Bytea) => "binary".to_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;
    use pystachio_tables::{NestedField, StoredName};

    use super::*;

    fn field(text: &str) -> TypePtr {
        parse_message_type(&format!("message m {{ {text} }}")).unwrap().get_fields()[0].clone()
    }

    fn of_table(name: &str, id: i32, nested: NestedType) -> NestedField {
        let stored = StoredName {
            name: name.to_owned(),
            id: Some(id),
            names_without_ids: vec![format!("old_{name}")],
        };
        NestedField { name: name.to_owned(), stored, has_default: false, nested }
    }

    fn single(kind: &str) -> NestedType {
        NestedType::Single(Some(kind.to_owned()))
    }

    #[test]
    fn fields_are_found_by_ids_or_by_names_that_the_table_has_for_them() {
        let inner = NestedType::Struct(vec![
            of_table("x", 5, single("integer")),
            of_table("new", 9, single("string")),
        ]);
        let table = NestedType::Struct(vec![
            of_table("list", 2, NestedType::List(Box::new(inner))),
            of_table("map", 3, NestedType::Map(Box::new((single("string"), single("date"))))),
        ]);
        let with_ids = field(
            "optional group s { optional int32 gone = 1; optional group a (LIST) = 2 { repeated group list { optional group element {
            optional int64 b = 5; optional group empty {} } } } optional group m (MAP) = 3 { repeated group key_value {
            required binary key (UTF8); optional int32 value (DATE); } } }",
        );
        let names = |form: &NestedForm| match form {
            NestedForm::Struct { fields, missing } => {
                let fields = fields.iter().map(|field| (field.stored.clone(), field.name.clone()));
                (fields.collect::<Vec<_>>(), missing.clone())
            }
            other => panic!("{other:?}"),
        };
        let named = |stored: &str, name: Option<&str>| (stored.to_owned(), name.map(str::to_owned));
        let form = NestedForm::of(&with_ids, Some(&table), true).unwrap();
        let expected = vec![named("gone", None), named("a", Some("list")), named("m", Some("map"))];
        assert_eq!(names(&form), (expected, Vec::new()));
        assert!(!form.keeps_names());
        let NestedForm::Struct { fields, .. } = &form else { panic!("a struct") };
        let NestedForm::List(item) = &fields[1].form else { panic!("a list") };
        assert_eq!(names(item), (vec![named("b", Some("x"))], vec!["new".to_owned()]));
        // Without ids by the names that the table has for them.
        let without = NestedForm::of(
            &field(
                "optional group s { optional group old_list (LIST) { repeated group list {
            optional group element { optional int32 old_x; } } } }",
            ),
            Some(&table),
            false,
        );
        assert_eq!(names(&without.unwrap()), (vec![named("old_list", Some("list"))], vec!["map".to_owned()]));
        // Of another kind.
        for text in [
            "optional group s { optional group a (LIST) = 2 { repeated group list { optional int32 element; } } }",
            "optional group s { optional group m (MAP) = 3 { repeated group key_value { required int32 key; optional int32 value (DATE); } } }",
            "optional int32 s;",
        ] {
            assert_eq!(NestedForm::of(&field(text), Some(&table), true), None, "{text}");
        }
        assert!(NestedForm::of(&with_ids, None, true).unwrap().keeps_names());
    }

    #[test]
    fn a_default_is_not_null() {
        let mut field_of_table = of_table("x", 7, single("integer"));
        field_of_table.has_default = true;
        let table = NestedType::Struct(vec![field_of_table]);
        for (id, is_some) in [(7, true), (8, false)] {
            let stored = field(&format!("optional group s {{ optional int32 x = {id}; }}"));
            assert_eq!(NestedForm::of(&stored, Some(&table), true).is_some(), is_some, "{id}");
        }
    }

    #[test]
    fn a_name_that_another_field_has_now_is_not_kept() {
        let table = NestedType::Struct(vec![of_table("x", 7, single("integer"))]);
        let form = NestedForm::of(&field("optional group s { optional int32 x = 5; }"), Some(&table), true);
        assert!(!form.unwrap().keeps_names());
    }
}
