//! The schema that the Arrow reader is given: some columns without their annotation.
//!
//! The reader cuts numbers off that are beyond a column's annotation (300 becomes 44 in eight bits), and can't hold
//! decimals of more than 16 bytes, which some writers make of few digits. It makes 16 bytes of each decimal in 4 or 8, which are
//! checked faster as they are. Such columns are read as they are stored. What their annotation says of the values is for the
//! engine to apply.

use std::sync::Arc;

use parquet::{
    basic::{LogicalType, Type as PhysicalType},
    errors::Result,
    schema::types::{Type, TypePtr},
};

use crate::{file_type::annotation, value_range::annotated_range};

/// A schema whose columns have no annotation by which the reader changes values; `None` if it is the same.
///
/// # Errors
///
/// If that is no schema.
pub(super) fn as_stored(root: &Type) -> Result<Option<Type>> {
    let fields = root.get_fields();
    let stored = fields.iter().map(stored_field).collect::<Result<Vec<_>>>()?;
    if stored.iter().zip(fields).all(|(stored, field)| Arc::ptr_eq(stored, field)) {
        return Ok(None);
    }
    Type::group_type_builder(root.name()).with_fields(stored).build().map(Some)
}

fn stored_field(field: &TypePtr) -> Result<TypePtr> {
    let info = field.get_basic_info();
    let id = info.has_id().then(|| info.id());
    if let Type::PrimitiveType { physical_type, scale, precision, .. } = &**field {
        let logical = annotation(info, *precision, *scale);
        let is_changed = match (physical_type, logical) {
            (PhysicalType::INT32, Some(LogicalType::Integer(integer))) => integer.bit_width < 32,
            (
                PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::BYTE_ARRAY,
                Some(LogicalType::Decimal(_)),
            ) => annotated_range(field).is_some(),
            _ => false,
        };
        if !is_changed {
            return Ok(field.clone());
        }
        let plain = Type::primitive_type_builder(field.name(), *physical_type)
            .with_repetition(info.repetition())
            .with_id(id);
        return plain.build().map(Arc::new);
    }
    let fields = field.get_fields();
    let stored = fields.iter().map(stored_field).collect::<Result<Vec<_>>>()?;
    if stored.iter().zip(fields).all(|(stored, field)| Arc::ptr_eq(stored, field)) {
        return Ok(field.clone());
    }
    Type::group_type_builder(field.name())
        .with_repetition(info.repetition())
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_id(id)
        .with_fields(stored)
        .build()
        .map(Arc::new)
}

#[cfg(test)]
mod tests {
    use parquet::{basic::ConvertedType, schema::parser::parse_message_type};

    use super::*;

    #[test]
    fn only_columns_that_the_reader_would_change_lose_their_annotation() {
        let text = "message schema { optional int32 a (INT_8); required fixed_len_byte_array(2) b (DECIMAL(3,1)); required int32 c (DATE);
            optional group d (LIST) { repeated group list { optional int32 element (UINT_16); } }
            required binary e (DECIMAL(9,2)); required binary f (UTF8); required int32 g (UINT_32);
            required int32 h (DECIMAL(3,1)); required int64 i (DECIMAL(15,2)); }";
        let root = parse_message_type(text).unwrap();
        let stored = as_stored(&root).unwrap().unwrap();
        let converted = |place: usize| stored.get_fields()[place].get_basic_info().converted_type();
        assert_eq!([0, 4, 7, 8].map(converted), [ConvertedType::NONE; 4]);
        for place in [1, 2, 3, 5, 6] {
            let before = root.get_fields()[place].get_basic_info().converted_type();
            assert_eq!(converted(place), before, "{place}");
        }
        let item = &stored.get_fields()[3].get_fields()[0].get_fields()[0];
        assert_eq!((item.name(), item.get_basic_info().converted_type()), ("element", ConvertedType::NONE));
        assert!(
            as_stored(&parse_message_type("message schema { required int64 a; }").unwrap())
                .unwrap()
                .is_none()
        );
    }
}
