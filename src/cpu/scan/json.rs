//! Nested values as JSON text: what PostgreSQL's `to_json` prints for an equal composite value or array.
//!
//! | in the file | in JSON |
//! |---|---|
//! | struct | object |
//! | list | array |
//! | map with texts as keys | object |
//! | other map | array of `{"key":…,"value":…}` |
//! | number | number, with the digits after the point of its type; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | date, timestamp, time, uuid | text in ISO 8601; `timestamptz` in UTC |
//! | bytes | text, as `bytea` in hexadecimal digits |
//! | variant | what it holds (`variant.rs`) |
//!
//! Leaves are converted and checked as columns of their own types are, and then printed.
//!
//! Invariants: memory for a batch's texts is taken while they are written. No text is longer than PostgreSQL allows.
//!
//! Source: PostgreSQL 15, `json.c`, `datum_to_json`, `JsonEncodeDateTime` and `escape_json`; `float.c`,
//! `float8out_internal`.

use std::{
    fmt::{self, Write},
    ops::RangeInclusive,
    sync::Arc,
    vec,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, StringViewBuilder},
    buffer::{NullBuffer, OffsetBuffer},
    datatypes::{
        DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, FieldRef, Float32Type,
        Float64Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use pystachio_files::{FileType, NestedForm, ValuePlace, corrupt_file};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    conversion::{Step, annotated, leaf_count},
    pages::PageMemory,
    variant::{VariantShape, VariantValues},
};
use crate::functions::{
    is_infinite_date, is_infinite_timestamp, write_date, write_time, write_timestamp, write_uuid,
};

/// The most bytes of a text that PostgreSQL holds.
const TEXT_BYTES_MAX: usize = (1 << 30) - 8;
/// Memory is taken for so many bytes at once.
const MEMORY_STEP_BYTES: usize = 1 << 20;
/// Decimal exponents from which PostgreSQL prints `real` and `double precision` with an exponent.
const REAL_EXPONENT: i32 = 6;
const DOUBLE_EXPONENT: i32 = 15;
/// The least exponent that it prints without.
const FIXED_EXPONENT_MIN: i32 = -4;

/// How a file's column becomes JSON.
#[derive(Clone, Debug)]
pub(super) enum JsonShape {
    /// NULL in all rows.
    Null,
    Leaf(Box<LeafShape>),
    List(Box<JsonShape>),
    Struct(Vec<FieldShape>),
    Map(Box<MapShape>),
    Variant(Box<VariantShape>),
}

#[derive(Clone, Debug)]
pub(super) struct LeafShape {
    file_type: ArrowType,
    allowed: Option<RangeInclusive<i128>>,
    step: Step,
    data_type: DataType,
}

#[derive(Clone, Debug)]
pub(super) struct FieldShape {
    /// The name as a key of an object, with its colon.
    key: Arc<str>,
    /// Its place in the file's struct; none of a field that the file lacks.
    place: Option<usize>,
    shape: JsonShape,
}

#[derive(Clone, Debug)]
pub(super) struct MapShape {
    key: JsonShape,
    value: JsonShape,
    /// Whether keys are texts.
    is_object: bool,
}

/// Values of a batch, converted.
pub(super) enum JsonValues {
    Null,
    Leaf { array: ArrayRef, data_type: DataType },
    List { offsets: OffsetBuffer<i32>, nulls: Option<NullBuffer>, items: Box<JsonValues> },
    Struct { nulls: Option<NullBuffer>, fields: Vec<(Arc<str>, JsonValues)> },
    Map { offsets: OffsetBuffer<i32>, nulls: Option<NullBuffer>, entries: Box<MapValues> },
    Variant(Box<VariantValues>),
}

pub(super) struct MapValues {
    keys: JsonValues,
    values: JsonValues,
    is_object: bool,
}

impl JsonShape {
    /// The shape of a column. `leaves`: the types of its leaves in their order. `None` if there is none, as readers leave out
    /// groups without a leaf, or if one has no type.
    pub(super) fn plan(file: &ArrowType, leaves: Vec<FileType>, form: Option<&NestedForm>) -> Option<Self> {
        if leaves.is_empty() {
            return None;
        }
        Self::of(file, form, &mut leaves.into_iter())
    }

    /// The shape of a part of a column. `form` says what types of Arrow do not tell; without it a struct has the file's names.
    pub(super) fn of(
        file: &ArrowType,
        form: Option<&NestedForm>,
        leaves: &mut vec::IntoIter<FileType>,
    ) -> Option<Self> {
        Some(match (file, form) {
            (_, Some(NestedForm::Variant)) => {
                let own = leaves.by_ref().take(leaf_count(file)).collect();
                Self::Variant(Box::new(VariantShape::plan(file, own)?))
            }
            (ArrowType::List(item), form) => {
                let form = match form {
                    Some(NestedForm::List(form)) => Some(&**form),
                    Some(_) => return None,
                    None => None,
                };
                Self::List(Box::new(Self::of(item.data_type(), form, leaves)?))
            }
            (ArrowType::Struct(fields), Some(NestedForm::Struct { fields: forms, missing })) => {
                if fields.len() != forms.len() {
                    return None;
                }
                let mut found = Vec::new();
                for (place, (field, form)) in fields.iter().zip(forms).enumerate() {
                    match &form.name {
                        Some(name) => {
                            let shape = Self::of(field.data_type(), Some(&form.form), leaves)?;
                            found.push(FieldShape::new(name, Some(place), shape));
                        }
                        None => drop(leaves.by_ref().take(leaf_count(field.data_type())).count()),
                    }
                }
                found.extend(missing.iter().map(|name| FieldShape::new(name, None, Self::Null)));
                Self::Struct(found)
            }
            (ArrowType::Struct(_) | ArrowType::Map(..), Some(NestedForm::Single | NestedForm::List(_))) => {
                return None;
            }
            (ArrowType::Struct(fields), _) => {
                let field = |(place, field): (usize, &FieldRef)| {
                    let shape = Self::of(field.data_type(), None, leaves)?;
                    Some(FieldShape::new(field.name(), Some(place), shape))
                };
                Self::Struct(fields.iter().enumerate().map(field).collect::<Option<_>>()?)
            }
            (ArrowType::Map(entries, _), form) => {
                let ArrowType::Struct(fields) = entries.data_type() else { return None };
                let [key, value] = &fields[..] else { return None };
                let (of_key, of_value) = match form {
                    Some(NestedForm::Map(parts)) => (Some(&parts.0), Some(&parts.1)),
                    _ => (None, None),
                };
                let key = Self::of(key.data_type(), of_key, leaves)?;
                let is_object = matches!(&key, Self::Leaf(leaf) if leaf.data_type == DataType::Text);
                let value = Self::of(value.data_type(), of_value, leaves)?;
                Self::Map(Box::new(MapShape { key, value, is_object }))
            }
            (leaf, _) => {
                let FileType { data_type, allowed, is_null, .. } = leaves.next()?;
                if is_null {
                    return Some(Self::Null);
                }
                let data_type = data_type?;
                let step = Step::plan(leaf, &data_type)?;
                Self::Leaf(Box::new(LeafShape { file_type: leaf.clone(), allowed, step, data_type }))
            }
        })
    }

    /// The shape of a leaf that has bytes.
    pub(super) fn of_bytes(file: &ArrowType, leaves: &mut vec::IntoIter<FileType>) -> Option<Self> {
        let is_bytes = |shape: &Self| matches!(shape, Self::Leaf(leaf) if leaf.data_type == DataType::Bytea);
        Self::of(file, None, leaves).filter(is_bytes)
    }

    /// The texts of a batch's values.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `StringTooLong`, and those of values that do not convert, each naming column and file.
    pub(super) fn texts(
        &self,
        array: &ArrayRef,
        place: ValuePlace<'_>,
        memory: &PageMemory,
    ) -> Result<ArrayRef> {
        let values = self.convert(array, place)?;
        let mut builder = StringViewBuilder::with_capacity(array.len());
        let mut writer = JsonWriter { text: String::new(), counted_bytes: 0, place, memory };
        let mut pending_bytes = 0;
        for row in 0..array.len() {
            if values.is_null(row) {
                builder.append_null();
                continue;
            }
            writer.text.clear();
            writer.write(&values, row)?;
            builder.append_value(&writer.text);
            pending_bytes += writer.text.len();
            if pending_bytes >= MEMORY_STEP_BYTES {
                memory.take_batch(pending_bytes)?;
                pending_bytes = 0;
            }
        }
        Ok(Arc::new(builder.finish()))
    }

    pub(super) fn convert(&self, array: &ArrayRef, place: ValuePlace<'_>) -> Result<JsonValues> {
        Ok(match (self, array.data_type()) {
            (Self::Variant(shape), ArrowType::Struct(_)) => {
                JsonValues::Variant(Box::new(shape.convert(array, place)?))
            }
            (Self::Null, _) => JsonValues::Null,
            (Self::Leaf(leaf), _) => {
                let LeafShape { file_type, allowed, step, data_type } = &**leaf;
                let array = annotated(array, file_type, allowed.as_ref())
                    .and_then(|array| step.apply(&array, data_type))
                    .map_err(|failure| failure.into_error(place, data_type))?;
                JsonValues::Leaf { array, data_type: data_type.clone() }
            }
            (Self::List(item), ArrowType::List(_)) => {
                let list = array.as_list::<i32>();
                JsonValues::List {
                    offsets: list.offsets().clone(),
                    nulls: list.nulls().cloned(),
                    items: Box::new(item.convert(list.values(), place)?),
                }
            }
            (Self::Struct(fields), ArrowType::Struct(_)) => {
                let record = array.as_struct();
                let field = |field: &FieldShape| {
                    let array = field.place.and_then(|place| record.columns().get(place));
                    let values = array.map(|array| field.shape.convert(array, place)).transpose()?;
                    Ok((field.key.clone(), values.unwrap_or(JsonValues::Null)))
                };
                JsonValues::Struct {
                    nulls: record.nulls().cloned(),
                    fields: fields.iter().map(field).collect::<Result<_>>()?,
                }
            }
            (Self::Map(shape), ArrowType::Map(..)) => {
                let map = array.as_map();
                if map.keys().null_count() > 0 {
                    let reason = format!("column \"{}\": a map has a key that is NULL", place.column);
                    return Err(corrupt_file(place.file, &reason));
                }
                JsonValues::Map {
                    offsets: map.offsets().clone(),
                    nulls: map.nulls().cloned(),
                    entries: Box::new(MapValues {
                        keys: shape.key.convert(map.keys(), place)?,
                        values: shape.value.convert(map.values(), place)?,
                        is_object: shape.is_object,
                    }),
                }
            }
            (_, other) => {
                return Err(Error::internal(format!("a nested column is read as {other}")));
            }
        })
    }
}

impl FieldShape {
    fn new(name: &str, place: Option<usize>, shape: JsonShape) -> Self {
        let mut key = String::new();
        // Writing to a string does not fail.
        let _ = write_text(&mut key, name);
        key.push(':');
        Self { key: key.into(), place, shape }
    }
}

impl JsonValues {
    /// The array of a leaf.
    pub(super) fn into_leaf(self) -> Result<ArrayRef> {
        match self {
            Self::Leaf { array, .. } => Ok(array),
            _ => Err(Error::internal("a leaf has parts")),
        }
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Variant(values) => values.is_null(row),
            Self::Leaf { array, .. } => array.is_null(row),
            Self::List { nulls, .. } | Self::Struct { nulls, .. } | Self::Map { nulls, .. } => {
                nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            }
        }
    }
}

/// The text of one row.
pub(super) struct JsonWriter<'a> {
    pub(super) text: String,
    /// The bytes of it that memory is taken for.
    counted_bytes: usize,
    pub(super) place: ValuePlace<'a>,
    memory: &'a PageMemory,
}

impl JsonWriter<'_> {
    pub(super) fn write(&mut self, values: &JsonValues, row: usize) -> Result<()> {
        self.check_length()?;
        if values.is_null(row) {
            self.text.push_str("null");
            return Ok(());
        }
        match values {
            JsonValues::Null => {}
            JsonValues::Variant(values) => values.write(self, row)?,
            JsonValues::Leaf { array, data_type } => {
                write_leaf(&mut self.text, array, data_type, row)
                    .map_err(|_| Error::internal(format!("{data_type} can't be printed as JSON")))?;
            }
            JsonValues::List { offsets, items, .. } => {
                self.write_all('[', ']', items_of(offsets, row), |writer, item| writer.write(items, item))?;
            }
            JsonValues::Struct { fields, .. } => {
                self.write_all('{', '}', fields.iter(), |writer, (key, values)| {
                    writer.text.push_str(key);
                    writer.write(values, row)
                })?;
            }
            JsonValues::Map { offsets, entries, .. } if entries.is_object => {
                self.write_all('{', '}', items_of(offsets, row), |writer, entry| {
                    writer.write(&entries.keys, entry)?;
                    writer.text.push(':');
                    writer.write(&entries.values, entry)
                })?;
            }
            JsonValues::Map { offsets, entries, .. } => {
                self.write_all('[', ']', items_of(offsets, row), |writer, entry| {
                    writer.text.push_str("{\"key\":");
                    writer.write(&entries.keys, entry)?;
                    writer.text.push_str(",\"value\":");
                    writer.write(&entries.values, entry)?;
                    writer.text.push('}');
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn write_all<T>(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        self.text.push(open);
        for (place, item) in items.enumerate() {
            if place > 0 {
                self.text.push(',');
            }
            write(self, item)?;
        }
        self.text.push(close);
        Ok(())
    }

    /// Takes memory for what the longest text so far has, before it grows on.
    pub(super) fn check_length(&mut self) -> Result<()> {
        let length = self.text.len();
        if length < self.counted_bytes + MEMORY_STEP_BYTES {
            return Ok(());
        }
        if length > TEXT_BYTES_MAX {
            let ValuePlace { table, column, file } = self.place;
            let message = format!(
                "value too long for JSON: column \"{column}\" of foreign table \"{table}\" has a value of more than \
                 {TEXT_BYTES_MAX} bytes, in file \"{}\"",
                file.display()
            );
            return Err(Error::new(ErrorKind::StringTooLong, message));
        }
        // A string that grows doubles.
        self.memory.take_batch(2 * (length - self.counted_bytes))?;
        self.counted_bytes = length;
        Ok(())
    }
}

pub(super) fn items_of(offsets: &OffsetBuffer<i32>, row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}

/// What a number of days or microseconds is.
#[derive(Clone, Copy)]
pub(super) enum Moment {
    Date,
    Time,
    Timestamp,
    TimestampTz,
}

impl JsonWriter<'_> {
    /// Writes a single value, by one of the functions below.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut String) -> fmt::Result) -> Result<()> {
        write(&mut self.text).map_err(|_| Error::internal("a value can't be printed as JSON"))
    }
}

pub(super) fn write_real(target: &mut String, value: f32) -> fmt::Result {
    write_float(target, f64::from(value), &format!("{value:e}"), REAL_EXPONENT)
}

pub(super) fn write_double(target: &mut String, value: f64) -> fmt::Result {
    write_float(target, value, &format!("{value:e}"), DOUBLE_EXPONENT)
}

pub(super) fn write_bytes(target: &mut String, bytes: &[u8]) -> fmt::Result {
    target.write_str("\"\\\\x")?;
    bytes.iter().try_for_each(|byte| write!(target, "{byte:02x}"))?;
    target.write_char('"')
}

pub(super) fn write_quoted_uuid(target: &mut String, bytes: &[u8]) -> fmt::Result {
    quoted(target, |target| write_uuid(target, bytes))
}

/// Days since 1970 or microseconds, as text.
pub(super) fn write_moment(target: &mut String, moment: Moment, value: i64) -> fmt::Result {
    let timestamp = |target: &mut String, zone| match is_infinite_timestamp(value) {
        true => write_infinity(target, value < 0),
        false => write_timestamp(target, value, 'T', zone),
    };
    quoted(target, |target| match moment {
        Moment::Date => match i32::try_from(value).is_ok_and(is_infinite_date) {
            true => write_infinity(target, value < 0),
            false => write_date(target, value),
        },
        Moment::Time => write_time(target, value),
        Moment::Timestamp => timestamp(target, ""),
        Moment::TimestampTz => timestamp(target, "+00:00"),
    })
}

fn write_leaf(target: &mut String, array: &ArrayRef, data_type: &DataType, row: usize) -> fmt::Result {
    match data_type {
        DataType::Bool => target.write_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Int16 => write!(target, "{}", array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => write!(target, "{}", array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => write!(target, "{}", array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => write_real(target, array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => write_double(target, array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal { scale, .. } => {
            let scale = usize::from(*scale);
            match array.data_type() {
                ArrowType::Decimal256(..) => {
                    write_decimal(target, array.as_primitive::<Decimal256Type>().value(row), scale)
                }
                _ => write_decimal(target, array.as_primitive::<Decimal128Type>().value(row), scale),
            }
        }
        DataType::Text => write_text(target, array.as_string_view().value(row)),
        DataType::Bytea => write_bytes(target, array.as_binary_view().value(row)),
        DataType::Uuid => write_quoted_uuid(target, array.as_fixed_size_binary().value(row)),
        DataType::Date => {
            write_moment(target, Moment::Date, array.as_primitive::<Date32Type>().value(row).into())
        }
        DataType::Time => {
            write_moment(target, Moment::Time, array.as_primitive::<Time64MicrosecondType>().value(row))
        }
        DataType::Timestamp | DataType::TimestampTz => {
            let moment =
                if *data_type == DataType::TimestampTz { Moment::TimestampTz } else { Moment::Timestamp };
            write_moment(target, moment, array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Numeric | DataType::Interval | DataType::List(_) | DataType::Record(_) => Err(fmt::Error),
    }
}

fn quoted(target: &mut String, write: impl FnOnce(&mut String) -> fmt::Result) -> fmt::Result {
    target.push('"');
    write(target)?;
    target.push('"');
    Ok(())
}

fn write_infinity(target: &mut String, is_negative: bool) -> fmt::Result {
    target.write_str(if is_negative { "-infinity" } else { "infinity" })
}

/// The fewest digits that mean the value. `scientific`: they and the exponent, as Rust prints them.
fn write_float(target: &mut String, value: f64, scientific: &str, exponent_max: i32) -> fmt::Result {
    if value.is_nan() {
        return target.write_str("\"NaN\"");
    }
    if value.is_infinite() {
        return target.write_str(if value < 0.0 { "\"-Infinity\"" } else { "\"Infinity\"" });
    }
    let (mantissa, exponent) = scientific.split_once('e').ok_or(fmt::Error)?;
    let exponent: i32 = exponent.parse().map_err(|_| fmt::Error)?;
    if !(FIXED_EXPONENT_MIN..exponent_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return write!(target, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    // Rust's plain form has the same digits, and never an exponent.
    match exponent_max {
        REAL_EXPONENT => write!(target, "{}", value as f32),
        _ => write!(target, "{value}"),
    }
}

pub(super) fn write_decimal(target: &mut String, value: impl fmt::Display, scale: usize) -> fmt::Result {
    let digits = value.to_string();
    let digits = match digits.strip_prefix('-') {
        Some(digits) => {
            target.push('-');
            digits
        }
        None => &digits,
    };
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    target.push_str(whole);
    if scale > 0 {
        target.push('.');
        target.push_str(fraction);
    }
    Ok(())
}

pub(super) fn write_text(target: &mut String, text: &str) -> fmt::Result {
    target.push('"');
    let mut rest = text;
    while let Some(place) = rest.find(|letter: char| letter < ' ' || matches!(letter, '"' | '\\')) {
        let (plain, special) = rest.split_at(place);
        target.push_str(plain);
        // Those are letters of one byte.
        let (special, after) = special.split_at(1);
        match special {
            "\"" => target.push_str("\\\""),
            "\\" => target.push_str("\\\\"),
            "\u{8}" => target.push_str("\\b"),
            "\u{c}" => target.push_str("\\f"),
            "\n" => target.push_str("\\n"),
            "\r" => target.push_str("\\r"),
            "\t" => target.push_str("\\t"),
            other => other.bytes().try_for_each(|byte| write!(target, "\\u{byte:04x}"))?,
        }
        rest = after;
    }
    target.push_str(rest);
    target.push('"');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
        let mut target = String::new();
        write(&mut target).unwrap();
        target
    }

    /// What `to_json` prints on PostgreSQL 15.
    #[test]
    fn floats_have_an_exponent_where_postgresql_gives_them_one() {
        let double = |value: f64| written(|target| write_float(target, value, &format!("{value:e}"), 15));
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e14, "100000000000000"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (5e-324, "5e-324"),
            (f64::NAN, "\"NaN\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            assert_eq!(double(value), expected);
        }
        let real = |value: f32| written(|target| write_float(target, value.into(), &format!("{value:e}"), 6));
        for (value, expected) in [
            (0.1f32, "0.1"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.234567e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (-1e-5, "-1e-05"),
        ] {
            assert_eq!(real(value), expected);
        }
    }

    #[test]
    fn decimals_keep_their_digits() {
        for (value, scale, expected) in [
            (0, 0, "0"),
            (-5, 2, "-0.05"),
            (1500, 3, "1.500"),
            (i128::MIN, 0, i128::MIN.to_string().as_str()),
        ] {
            assert_eq!(written(|target| write_decimal(target, value, scale)), expected);
        }
    }

    #[test]
    fn texts_are_escaped() {
        let text = "a\"b\\c\n\u{1}\u{8}\u{7f}é\u{0}";
        let expected = "\"a\\\"b\\\\c\\n\\u0001\\b\u{7f}é\\u0000\"";
        assert_eq!(written(|target| write_text(target, text)), expected);
    }
}
