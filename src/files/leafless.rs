//! Groups of a schema without any column below them: `optional group extra {}`.
//!
//! The Arrow reader leaves such a group out of its schema and of its batches, and then numbers the columns behind it
//! otherwise than the file does. It is given a schema without them, whose leaves are those of the file; positions in
//! what it gives are turned into the file's own here. Everything else numbers columns as the file does.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use parquet::{
    basic::Repetition,
    errors::Result,
    schema::types::{Type, TypePtr},
};

/// A schema without the groups that have no leaf; `None` if there is none of them.
///
/// # Errors
///
/// If what is left is no schema.
pub(super) fn without_leafless(root: &Type) -> Result<Option<Type>> {
    let fields = root.get_fields();
    let kept = fields.iter().map(pruned).collect::<Result<Vec<_>>>()?;
    if kept.iter().zip(fields).all(|(kept, field)| kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, field)))
    {
        return Ok(None);
    }
    let fields = kept.into_iter().flatten().collect();
    Type::group_type_builder(root.name()).with_fields(fields).build().map(Some)
}

/// A field without the groups in it that have no leaf; `None` if it has none itself.
fn pruned(field: &TypePtr) -> Result<Option<TypePtr>> {
    if field.is_primitive() {
        return Ok(Some(field.clone()));
    }
    let fields = field.get_fields();
    let kept = fields.iter().map(pruned).collect::<Result<Vec<_>>>()?;
    let is_same = |(kept, field): (&Option<TypePtr>, &TypePtr)| {
        kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, field))
    };
    if !fields.is_empty() && kept.iter().zip(fields).all(is_same) {
        return Ok(Some(field.clone()));
    }
    let kept: Vec<TypePtr> = kept.into_iter().flatten().collect();
    if kept.is_empty() {
        return Ok(None);
    }
    let info = field.get_basic_info();
    Type::group_type_builder(field.name())
        .with_repetition(info.repetition())
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_id(info.has_id().then(|| info.id()))
        .with_fields(kept)
        .build()
        .map(|group| Some(Arc::new(group)))
}

/// The Arrow schema with a field for every column of the file: those that the reader leaves out are empty groups.
/// `None` if the reader's fields are not the file's others.
pub(super) fn with_leafless(root: &Type, reader: &SchemaRef) -> Option<SchemaRef> {
    let mut given = reader.fields().iter();
    let fields = root.get_fields().iter().map(|column| {
        if has_leaf(column) {
            return given.next().filter(|field| field.name() == column.name()).cloned();
        }
        let is_optional = column.get_basic_info().repetition() != Repetition::REQUIRED;
        Some(Arc::new(Field::new(column.name(), DataType::Struct(Fields::empty()), is_optional)))
    });
    let fields: Fields = fields.collect::<Option<_>>()?;
    given.next().is_none().then(|| Arc::new(Schema::new(fields)))
}

pub(super) fn has_leaf(field: &TypePtr) -> bool {
    field.is_primitive() || field.get_fields().iter().any(has_leaf)
}

#[cfg(test)]
mod tests {
    use parquet::schema::{parser::parse_message_type, types::SchemaDescriptor};

    use super::*;

    const WITH_EMPTY_GROUPS: &str = "message schema {
        optional group nothing {}
        required int32 a;
        optional group some { optional group empty {} optional int64 b; optional group deep { required group e {} } }
        required group last { optional group empty {} }
    }";

    #[test]
    fn groups_without_leaves_are_left_out_at_every_depth() {
        let root = parse_message_type(WITH_EMPTY_GROUPS).unwrap();
        let left = without_leafless(&root).unwrap().unwrap();
        let names: Vec<&str> = left.get_fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["a", "some"]);
        assert_eq!(left.get_fields()[1].get_fields().len(), 1);
        let leaves = |root: Type| -> Vec<String> {
            let descriptor = SchemaDescriptor::new(Arc::new(root));
            descriptor.columns().iter().map(|column| column.path().string()).collect()
        };
        assert!(without_leafless(&left).unwrap().is_none());
        assert_eq!(leaves(left), ["a", "some.b"]);
        assert_eq!(leaves(root), ["a", "some.b"]);
    }

    #[test]
    fn every_column_of_the_file_has_its_place() {
        let root = parse_message_type(WITH_EMPTY_GROUPS).unwrap();
        let field = |name: &str| Field::new(name, DataType::Int32, false);
        let reader = |names: &[&str]| -> SchemaRef {
            Arc::new(Schema::new(names.iter().map(|name| field(name)).collect::<Vec<_>>()))
        };
        let schema = with_leafless(&root, &reader(&["a", "some"])).unwrap();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["nothing", "a", "some", "last"]);
        for wrong in [&["some", "a"][..], &["a"], &["a", "some", "last"]] {
            assert!(with_leafless(&root, &reader(wrong)).is_none(), "{wrong:?}");
        }
    }
}
