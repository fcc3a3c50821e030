//! Values of `VARIANT` as JSON text, shredded ones too.
//!
//! | in the file | in JSON |
//! |---|---|
//! | null, boolean, object, array | the same |
//! | number | number, with the digits after the point of a decimal; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | string | text |
//! | date, time, timestamp, uuid, binary | text, as of columns of these types (`json.rs`) |
//!
//! A shredded value is in `typed_value`, with what does not fit there in `value`.
//!
//! Invariants: bytes are read within their bounds. Values nest no deeper than [`DEPTH_MAX`], and no byte is read as part of two values, so
//! that a text takes time in proportion to its bytes.
//!
//! Deliberately absent: the crate parquet-variant, which follows values as deep as bytes say.
//!
//! Source: the specification of Variant and of its shredding, in the repository apache/parquet-format.

use std::{fmt::Write, ops::Range, sync::Arc, vec};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    buffer::{NullBuffer, OffsetBuffer},
    datatypes::{DataType as ArrowType, Fields},
};
use pystachio_files::{DAY_US, FileType, ValuePlace, corrupt_file};
use pystachio_plan::{Error, ErrorKind, Result};

use super::json::{
    JsonShape, JsonValues, JsonWriter, Moment, items_of, write_bytes, write_decimal, write_double,
    write_moment, write_quoted_uuid, write_real, write_text,
};

/// Values within values.
const DEPTH_MAX: usize = 200;
/// Digits after the point of a decimal.
const DECIMAL_SCALE_MAX: u8 = 38;
/// The version of the encoding.
const VERSION: u8 = 1;
const METADATA: &str = "metadata";
const VALUE: &str = "value";
const TYPED_VALUE: &str = "typed_value";

/// How a group of a file becomes JSON.
#[derive(Clone, Debug)]
pub(super) struct VariantShape {
    /// Where the names of fields are.
    metadata: (usize, JsonShape),
    group: GroupShape,
}

#[derive(Clone, Debug)]
struct GroupShape {
    value: Option<(usize, JsonShape)>,
    typed: Option<(usize, TypedShape)>,
}

#[derive(Clone, Debug)]
enum TypedShape {
    Leaf(JsonShape),
    List(Box<GroupShape>),
    Object(Vec<(Arc<str>, GroupShape)>),
}

/// Values of a batch.
pub(super) struct VariantValues {
    nulls: Option<NullBuffer>,
    metadata: ArrayRef,
    group: GroupValues,
}

struct GroupValues {
    value: Option<ArrayRef>,
    typed: Option<TypedValues>,
}

enum TypedValues {
    Leaf(JsonValues),
    List { offsets: OffsetBuffer<i32>, nulls: Option<NullBuffer>, items: Box<GroupValues> },
    Object { nulls: Option<NullBuffer>, fields: Vec<(Arc<str>, GroupValues)> },
}

impl VariantShape {
    /// The shape of a column. `leaves`: the types of its leaves in their order. `None` if it is no variant.
    pub(super) fn plan(file: &ArrowType, leaves: Vec<FileType>) -> Option<Self> {
        let ArrowType::Struct(fields) = file else { return None };
        let mut metadata = None;
        let group = GroupShape::of(fields, &mut leaves.into_iter(), &mut |place, shape| {
            metadata = Some((place, shape));
        })?;
        Some(Self { metadata: metadata?, group })
    }

    pub(super) fn convert(&self, array: &ArrayRef, place: ValuePlace<'_>) -> Result<VariantValues> {
        let record = array.as_struct();
        let (at, metadata) = &self.metadata;
        let metadata = metadata.convert(record.column(*at), place)?;
        Ok(VariantValues {
            nulls: record.nulls().cloned(),
            metadata: metadata.into_leaf()?,
            group: self.group.convert(record.columns(), place)?,
        })
    }
}

impl GroupShape {
    fn of(
        fields: &Fields,
        leaves: &mut vec::IntoIter<FileType>,
        metadata: &mut dyn FnMut(usize, JsonShape),
    ) -> Option<Self> {
        let mut group = Self { value: None, typed: None };
        for (place, field) in fields.iter().enumerate() {
            match field.name().as_str() {
                METADATA => metadata(place, JsonShape::of_bytes(field.data_type(), leaves)?),
                VALUE => group.value = Some((place, JsonShape::of_bytes(field.data_type(), leaves)?)),
                TYPED_VALUE => group.typed = Some((place, TypedShape::of(field.data_type(), leaves)?)),
                _ => return None,
            }
        }
        Some(group)
    }

    fn convert(&self, columns: &[ArrayRef], place: ValuePlace<'_>) -> Result<GroupValues> {
        let column = |at: usize| columns.get(at).ok_or_else(|| Error::internal("a variant lacks a field"));
        let value = self.value.as_ref().map(|(at, shape)| shape.convert(column(*at)?, place)?.into_leaf());
        let typed = self.typed.as_ref().map(|(at, shape)| shape.convert(column(*at)?, place));
        Ok(GroupValues { value: value.transpose()?, typed: typed.transpose()? })
    }
}

impl TypedShape {
    fn of(file: &ArrowType, leaves: &mut vec::IntoIter<FileType>) -> Option<Self> {
        let group = |data_type: &ArrowType, leaves: &mut vec::IntoIter<FileType>| match data_type {
            ArrowType::Struct(fields) => GroupShape::of(fields, leaves, &mut |_, _| {}),
            _ => None,
        };
        Some(match file {
            ArrowType::List(item) => Self::List(Box::new(group(item.data_type(), leaves)?)),
            ArrowType::Struct(fields) => {
                let field = |field: &arrow::datatypes::FieldRef| {
                    Some((field.name().as_str().into(), group(field.data_type(), leaves)?))
                };
                Self::Object(fields.iter().map(field).collect::<Option<_>>()?)
            }
            leaf if !leaf.is_nested() => Self::Leaf(JsonShape::of(leaf, None, leaves)?),
            _ => return None,
        })
    }

    fn convert(&self, array: &ArrayRef, place: ValuePlace<'_>) -> Result<TypedValues> {
        let of_item = |group: &GroupShape, items: &ArrayRef| {
            let record = items.as_struct_opt().ok_or_else(|| Error::internal("a variant is no struct"))?;
            group.convert(record.columns(), place)
        };
        Ok(match self {
            Self::Leaf(shape) => TypedValues::Leaf(shape.convert(array, place)?),
            Self::List(item) => {
                let list = array.as_list::<i32>();
                TypedValues::List {
                    offsets: list.offsets().clone(),
                    nulls: list.nulls().cloned(),
                    items: Box::new(of_item(item, list.values())?),
                }
            }
            Self::Object(fields) => {
                let record = array.as_struct();
                let field = |((name, group), column): (&(Arc<str>, GroupShape), &ArrayRef)| {
                    Ok((name.clone(), of_item(group, column)?))
                };
                TypedValues::Object {
                    nulls: record.nulls().cloned(),
                    fields: fields.iter().zip(record.columns()).map(field).collect::<Result<_>>()?,
                }
            }
        })
    }
}

impl VariantValues {
    pub(super) fn is_null(&self, row: usize) -> bool {
        is_null(self.nulls.as_ref(), row)
    }

    /// Writes the value of a row that is not NULL.
    pub(super) fn write(&self, writer: &mut JsonWriter<'_>, row: usize) -> Result<()> {
        let mut text = VariantWriter { writer, metadata: self.metadata.as_binary_view().value(row) };
        if !text.group(&self.group, row, 0)? {
            text.writer.text.push_str("null");
        }
        Ok(())
    }
}

impl GroupValues {
    fn value(&self, row: usize) -> Option<&[u8]> {
        let value = self.value.as_ref()?;
        value.is_valid(row).then(|| value.as_binary_view().value(row))
    }

    fn typed(&self, row: usize) -> Option<&TypedValues> {
        self.typed.as_ref().filter(|typed| match typed {
            TypedValues::Leaf(values) => !values.is_null(row),
            TypedValues::List { nulls, .. } | TypedValues::Object { nulls, .. } => {
                !is_null(nulls.as_ref(), row)
            }
        })
    }

    fn is_present(&self, row: usize) -> bool {
        self.value(row).is_some() || self.typed(row).is_some()
    }
}

fn is_null(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_some_and(|nulls| nulls.is_null(row))
}

struct VariantWriter<'m, 'a, 'w> {
    writer: &'a mut JsonWriter<'w>,
    /// The names of the fields.
    metadata: &'m [u8],
}

/// The fields of an object, or the items of an array: where each value is.
struct Members<'v> {
    /// The numbers of the fields' names; none of an array.
    names: Vec<usize>,
    values: Vec<&'v [u8]>,
}

impl<'m> VariantWriter<'m, '_, '_> {
    /// Writes the value of a group. False if it is absent.
    fn group(&mut self, group: &GroupValues, row: usize, depth: usize) -> Result<bool> {
        self.enter(depth)?;
        match (group.typed(row), group.value(row)) {
            (None, None) => return Ok(false),
            (None, Some(value)) => self.value(value, depth)?,
            (Some(TypedValues::Leaf(values)), None) => self.writer.write(values, row)?,
            (Some(TypedValues::List { offsets, items, .. }), None) => {
                self.all('[', ']', items_of(offsets, row), |text, item| {
                    if !text.group(items, item, depth + 1)? {
                        text.writer.text.push_str("null");
                    }
                    Ok(())
                })?;
            }
            (Some(TypedValues::Object { fields, .. }), rest) => {
                let rest = rest.map(|rest| self.object_of(rest)).transpose()?;
                let typed = fields.iter().filter(|(_, group)| group.is_present(row));
                let mut members: Vec<Member<'_>> =
                    typed.map(|(name, group)| Member::Typed(name, group)).collect();
                for (name, value) in rest.into_iter().flatten() {
                    // Those have the values of such names.
                    if !fields.iter().any(|(known, _)| **known == *name) {
                        members.push(Member::Value(name, value));
                    }
                }
                self.all('{', '}', members.into_iter(), |text, member| match member {
                    Member::Typed(name, group) => {
                        text.key(name)?;
                        text.group(group, row, depth + 1).map(drop)
                    }
                    Member::Value(name, value) => {
                        text.key(name)?;
                        text.value(value, depth + 1)
                    }
                })?;
            }
            (Some(_), Some(_)) => return Err(self.corrupt()),
        }
        Ok(true)
    }

    /// Writes a value in the encoding of its own.
    fn value(&mut self, bytes: &[u8], depth: usize) -> Result<()> {
        self.enter(depth)?;
        let (header, rest) = bytes.split_first().ok_or_else(|| self.corrupt())?;
        match (header & 3, header >> 2) {
            (0, kind) => self.primitive(kind, rest),
            (1, length) => self.text(rest, usize::from(length)),
            (2, _) => {
                let fields = self.object_of(bytes)?;
                self.all('{', '}', fields.into_iter(), |text, (name, value)| {
                    text.key(name)?;
                    text.value(value, depth + 1)
                })
            }
            (_, header) => {
                let items =
                    members(rest, header & 3, None, header >> 2 & 1 == 1).ok_or_else(|| self.corrupt())?;
                self.all('[', ']', items.values.into_iter(), |text, value| text.value(value, depth + 1))
            }
        }
    }

    /// The names and values of an object.
    fn object_of<'v>(&self, bytes: &'v [u8]) -> Result<Vec<(&'m str, &'v [u8])>> {
        let fields =
            bytes.split_first().filter(|(header, _)| **header & 3 == 2).and_then(|(header, rest)| {
                let header = header >> 2;
                members(rest, header & 3, Some(header >> 2 & 3), header >> 4 & 1 == 1)
            });
        let Members { names, values } = fields.ok_or_else(|| self.corrupt())?;
        let named = names.into_iter().zip(values);
        named
            .map(|(name, value)| Ok((name_of(self.metadata, name).ok_or_else(|| self.corrupt())?, value)))
            .collect()
    }

    fn primitive(&mut self, kind: u8, bytes: &[u8]) -> Result<()> {
        let corrupt = self.corrupt();
        let length = match kind {
            0..=2 => 0,
            3 => 1,
            4 => 2,
            5 | 11 | 14 => 4,
            6 | 7 | 12 | 13 | 17..=19 => 8,
            8 => 5,
            9 => 9,
            10 => 17,
            20 => 16,
            15 | 16 => {
                let length = number(bytes, 0, 4).ok_or_else(|| self.corrupt())?;
                return match kind {
                    15 => {
                        let bytes = bytes.get(4..).and_then(|bytes| bytes.get(..length)).ok_or(corrupt)?;
                        self.writer.push(|text| write_bytes(text, bytes))
                    }
                    _ => self.text(&bytes[4..], length),
                };
            }
            _ => return Err(corrupt),
        };
        let bytes = bytes.get(..length).ok_or(corrupt)?;
        let writer = &mut *self.writer;
        let number = || signed(bytes) as i64;
        match kind {
            0 => writer.push(|text| text.write_str("null")),
            1 => writer.push(|text| text.write_str("true")),
            2 => writer.push(|text| text.write_str("false")),
            3..=6 => writer.push(|text| write!(text, "{}", number())),
            7 => writer.push(|text| write_double(text, f64::from_bits(number() as u64))),
            14 => writer.push(|text| write_real(text, f32::from_bits(number() as u32))),
            8..=10 if bytes[0] <= DECIMAL_SCALE_MAX => {
                writer.push(|text| write_decimal(text, signed(&bytes[1..]), bytes[0].into()))
            }
            11 => writer.push(|text| write_moment(text, Moment::Date, number())),
            12 => writer.push(|text| write_moment(text, Moment::TimestampTz, number())),
            13 => writer.push(|text| write_moment(text, Moment::Timestamp, number())),
            18 => writer.push(|text| write_moment(text, Moment::TimestampTz, number().div_euclid(1000))),
            19 => writer.push(|text| write_moment(text, Moment::Timestamp, number().div_euclid(1000))),
            17 if (0..=DAY_US).contains(&number()) => {
                writer.push(|text| write_moment(text, Moment::Time, number()))
            }
            20 => writer.push(|text| write_quoted_uuid(text, bytes)),
            _ => Err(self.corrupt()),
        }
    }

    fn text(&mut self, bytes: &[u8], length: usize) -> Result<()> {
        let text = bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| self.corrupt())?;
        self.writer.push(|target| write_text(target, text))
    }

    fn key(&mut self, name: &str) -> Result<()> {
        self.writer.push(|text| {
            write_text(text, name)?;
            text.write_char(':')
        })
    }

    fn all<T>(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        self.writer.text.push(open);
        for (place, item) in items.enumerate() {
            if place > 0 {
                self.writer.text.push(',');
            }
            write(self, item)?;
        }
        self.writer.text.push(close);
        Ok(())
    }

    fn enter(&mut self, depth: usize) -> Result<()> {
        self.writer.check_length()?;
        if depth <= DEPTH_MAX {
            return Ok(());
        }
        let ValuePlace { table, column, file } = self.writer.place;
        let message = format!(
            "column \"{column}\" of foreign table \"{table}\" has a variant nested more than {DEPTH_MAX} deep, in file \"{}\"",
            file.display()
        );
        Err(Error::new(ErrorKind::NotSupported, message))
    }

    fn corrupt(&self) -> Error {
        let ValuePlace { column, file, .. } = self.writer.place;
        corrupt_file(file, &format!("column \"{column}\": a variant can't be decoded"))
    }
}

enum Member<'a> {
    Typed(&'a str, &'a GroupValues),
    Value(&'a str, &'a [u8]),
}

/// The members of an object or array, whose header's sizes are given, less one: of offsets, and of the numbers of names.
fn members(bytes: &[u8], offset_size: u8, name_size: Option<u8>, is_large: bool) -> Option<Members<'_>> {
    let offset_size = usize::from(offset_size) + 1;
    let count_size = if is_large { 4 } else { 1 };
    let count = number(bytes, 0, count_size)?;
    let name_size = name_size.map_or(0, |size| usize::from(size) + 1);
    let offsets_at = count_size.checked_add(count.checked_mul(name_size)?)?;
    let values_at = offsets_at.checked_add(count.checked_add(1)?.checked_mul(offset_size)?)?;
    let values = bytes.get(values_at..)?;
    let names: Vec<usize> = match name_size {
        0 => Vec::new(),
        size => {
            (0..count).map(|place| number(bytes, count_size + place * size, size)).collect::<Option<_>>()?
        }
    };
    let starts = (0..=count).map(|place| number(bytes, offsets_at + place * offset_size, offset_size));
    let mut starts: Vec<usize> = starts.collect::<Option<_>>()?;
    let end = starts.pop()?;
    // Values of an object come in any order; each ends where the next one begins.
    let mut sorted: Vec<usize> = starts.clone();
    sorted.push(end);
    sorted.sort_unstable();
    let is_disjoint = sorted.windows(2).all(|pair| pair[0] < pair[1]) && sorted.last() == Some(&end);
    if count > 0 && !is_disjoint {
        return None;
    }
    let range = |start: usize| -> Option<Range<usize>> {
        let next = sorted.partition_point(|known| *known <= start);
        Some(start..*sorted.get(next)?)
    };
    let values = starts.into_iter().map(|start| values.get(range(start)?)).collect::<Option<_>>()?;
    Some(Members { names, values })
}

/// A name of the metadata.
fn name_of(metadata: &[u8], name: usize) -> Option<&str> {
    let header = *metadata.first()?;
    let size = usize::from(header >> 6) + 1;
    let count = number(metadata, 1, size)?;
    if header & 0xf != VERSION || name >= count {
        return None;
    }
    let offset = |place: usize| number(metadata, (1 + size).checked_add(place.checked_mul(size)?)?, size);
    let names_at = (1 + size).checked_add(count.checked_add(1)?.checked_mul(size)?)?;
    let (start, end) = (offset(name)?, offset(name + 1)?);
    let names = metadata.get(names_at..)?;
    std::str::from_utf8(names.get(start..end)?).ok()
}

/// An unsigned number, its least byte first.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// A signed number of up to sixteen bytes, its least byte first.
fn signed(bytes: &[u8]) -> i128 {
    let fill = if bytes.last().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let mut number = [fill; 16];
    number[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_objects_come_in_any_order_and_share_no_byte() {
        // Two fields, numbers 1 and 0, at 2 and 0, of four bytes.
        let bytes = [2, 1, 0, 2, 0, 4, 10, 11, 12, 13];
        let found = members(&bytes, 0, Some(0), false).unwrap();
        assert_eq!((found.names, found.values), (vec![1, 0], vec![&[12u8, 13][..], &[10, 11]]));
        for shared in
            [[2, 1, 0, 0, 0, 4, 1, 1, 1, 1], [2, 1, 0, 2, 0, 1, 1, 1, 1, 1], [2, 1, 0, 2, 0, 9, 1, 1, 1, 1]]
        {
            assert!(members(&shared, 0, Some(0), false).is_none());
        }
        assert!(members(&[255, 255, 255, 255], 3, Some(3), true).is_none());
    }

    #[test]
    fn names_are_within_their_metadata() {
        let metadata = [1, 2, 0, 1, 3, b'a', b'b', b'c'];
        assert_eq!((name_of(&metadata, 0), name_of(&metadata, 1)), (Some("a"), Some("bc")));
        assert_eq!(name_of(&metadata, 2), None);
        assert_eq!(name_of(&[2, 1, 0, 1, b'a'], 0), None);
        assert_eq!(name_of(&[1, 200], 0), None);
    }

    #[test]
    fn numbers_have_the_sign_of_their_greatest_byte() {
        assert_eq!((signed(&[0xff]), signed(&[0x7f]), signed(&[0, 0x80])), (-1, 127, -32768));
    }
}
