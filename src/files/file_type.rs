//! What a Parquet column is: in words, and as the type that holds every one of its values.
//!
//! The file's own annotations decide; an Arrow schema embedded in the file does not.
//!
//! Deliberately absent: values. `statistics.rs` reads those of footers, `scan` those of pages.

use std::ops::RangeInclusive;

use parquet::{
    basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType},
    schema::types::{BasicTypeInfo, Type},
};
use pystachio_plan::{DataType, RecordField};

use crate::value_range::annotated_range;

/// The most digits of a decimal that engines have.
const DECIMAL_DIGITS_MAX: i32 = 76;
/// The most bytes of a decimal of a fixed length with more digits than 128 bits hold.
const LONG_DECIMAL_BYTES_MAX: i32 = 32;
const DECIMAL128_DIGITS_MAX: i32 = 38;
/// The type in SQL of nested values.
pub(super) const NESTED_SQL_TYPE: &str = "jsonb";
const STRUCT: &str = "struct";
const UUID_BYTES: i32 = 16;
const FLOAT16_BYTES: i32 = 2;

/// A column's type in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileType {
    /// The type that holds every value; `None` if there is none.
    pub data_type: Option<DataType>,
    /// PostgreSQL's name for it, empty if there is none.
    pub sql_type: String,
    /// The Parquet type for messages: `INT64 Decimal(15,2)`.
    pub words: String,
    /// How single values are stored; `None` for lists, groups and what has no type.
    pub storage: Option<Storage>,
    /// The stored numbers that the annotation allows, of a list's items too; `None` where it allows all.
    pub allowed: Option<RangeInclusive<i128>>,
    /// Whether the annotation says that all values are NULL.
    pub is_null: bool,
    /// Whether values have nanoseconds, which are rounded down.
    pub is_rounded: bool,
    /// Whether values are times of day in UTC.
    pub is_time_of_utc: bool,
}

/// How a value is stored, as far as reading one from a footer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// `BOOLEAN`.
    Bool,
    /// A signed integer that is the value: integers, days, microseconds.
    Signed,
    /// Bits of an unsigned integer.
    Unsigned,
    /// Milliseconds for a type in microseconds.
    Milliseconds,
    /// Nanoseconds for a type in microseconds.
    Nanoseconds,
    /// A decimal, as an integer or as big-endian bytes.
    Decimal,
    /// `FLOAT`, `DOUBLE` or two bytes.
    Float,
    /// `INT96`.
    Int96,
    /// UTF-8.
    Text,
    /// Bytes.
    Bytes,
}

/// The type of a column, that is, of a field of the file's root.
pub fn file_type(field: &Type) -> FileType {
    let plain = FileType { is_rounded: has_rounded(field), ..plain_type(field) };
    match plain.data_type {
        None if is_nested(field) && is_json(field) => {
            FileType { data_type: Some(DataType::Text), sql_type: NESTED_SQL_TYPE.to_owned(), ..plain }
        }
        _ => plain,
    }
}

/// The composite type of a field that is a struct, or the array of such of one that is a list of structs; `None` of others, and where
/// a leaf has no type. Maps and lists of lists within are JSON.
pub(super) fn record_type(field: &Type) -> Option<DataType> {
    if is_struct(field) {
        let fields = field.get_fields().iter().filter(|field| !is_null_type(field));
        let fields = fields.map(|field| record_field(field)).collect::<Option<Vec<_>>>()?;
        return (!fields.is_empty()).then_some(DataType::Record(fields));
    }
    let item = list_item(field).filter(|_| !is_repeated(field))?;
    match record_type(item)? {
        record @ DataType::Record(_) => Some(DataType::List(Box::new(record))),
        _ => None,
    }
}

fn record_field(field: &Type) -> Option<RecordField> {
    if is_variant(field) {
        return None;
    }
    let FileType { data_type, sql_type, .. } = file_type(field);
    let is_json = matches!(sql_type.as_str(), "json" | NESTED_SQL_TYPE | "json[]");
    let data_type = record_type(field)
        .map_or_else(|| data_type.map(|data_type| (data_type, is_json)), |record| Some((record, false)));
    let (data_type, is_json) = data_type?;
    Some(RecordField {
        name: field.name().to_owned(),
        data_type,
        length_max: None,
        trim_blanks: false,
        is_json,
    })
}

/// Whether a column has values that JSON holds, and is not a single value.
fn is_nested(field: &Type) -> bool {
    field.is_group() || is_repeated(field)
}

/// Whether a leaf of a field has nanoseconds.
fn has_rounded(field: &Type) -> bool {
    match field.is_primitive() {
        true => leaf_type(field).is_rounded,
        false => field.get_fields().iter().any(|field| has_rounded(field)),
    }
}

/// Whether all leaves of a field have a type. A group without a leaf counts for nothing: readers leave it out.
fn is_json(field: &Type) -> bool {
    let mut leaf_count = 0;
    every_leaf(field, &mut leaf_count) && leaf_count > 0
}

/// Whether a field is a variant.
pub(crate) fn is_variant(field: &Type) -> bool {
    field.is_group() && matches!(field.get_basic_info().logical_type_ref(), Some(LogicalType::Variant(_)))
}

fn every_leaf(field: &Type, leaf_count: &mut usize) -> bool {
    if field.is_primitive() {
        *leaf_count += 1;
        let leaf = leaf_type(field);
        return leaf.data_type.is_some() || leaf.is_null;
    }
    field.get_fields().iter().all(|field| every_leaf(field, leaf_count))
}

/// Whether a field is a struct, of which a row has at most one.
pub(crate) fn is_struct(field: &Type) -> bool {
    field.is_group() && !is_repeated(field) && group_words(field.get_basic_info()) == STRUCT
}

/// Whether a field is a map, also in the form of old writers.
pub(crate) fn is_map(field: &Type) -> bool {
    field.is_group() && group_words(field.get_basic_info()) == "map"
}

pub(crate) fn is_repeated(field: &Type) -> bool {
    let info = field.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// The type of a single value, or of a list of single values.
fn plain_type(field: &Type) -> FileType {
    if is_repeated(field) {
        return list_of(leaf_type(field));
    }
    match list_item(field) {
        Some(item) => list_of(leaf_type(item)),
        None => leaf_type(field),
    }
}

/// Whether a column has the type whose values are all NULL.
pub(crate) fn is_null_type(field: &Type) -> bool {
    field.is_primitive() && field.get_basic_info().logical_type_ref() == Some(&LogicalType::Unknown)
}

fn list_of(item: FileType) -> FileType {
    let words = format!("list of {}", item.words);
    match item {
        // PostgreSQL has no arrays of arrays of different lengths.
        FileType { data_type: Some(data_type), sql_type, storage: Some(_), allowed, .. } => FileType {
            data_type: Some(DataType::List(Box::new(data_type))),
            sql_type: format!("{sql_type}[]"),
            words,
            storage: None,
            allowed,
            is_null: false,
            is_rounded: false,
            is_time_of_utc: false,
        },
        _ => without_type(words),
    }
}

/// The item of a field that is a list, by the rules of the Parquet specification, old forms included.
pub(crate) fn list_item(field: &Type) -> Option<&Type> {
    let info = field.get_basic_info();
    let is_list =
        info.logical_type_ref() == Some(&LogicalType::List) || info.converted_type() == ConvertedType::LIST;
    if field.is_primitive() || !is_list {
        return None;
    }
    let [repeated] = field.get_fields() else { return None };
    if repeated.is_primitive() {
        return Some(repeated);
    }
    match repeated.get_fields() {
        [item] if repeated.name() != "array" && repeated.name() != format!("{}_tuple", field.name()) => {
            Some(item)
        }
        _ => Some(repeated),
    }
}

/// The type of a single value; none of a group.
pub(super) fn leaf_type(field: &Type) -> FileType {
    match field {
        Type::GroupType { basic_info, .. } => without_type(group_words(basic_info).to_owned()),
        Type::PrimitiveType { basic_info, physical_type, type_length, scale, precision } => {
            let primitive = Primitive {
                physical: *physical_type,
                logical: annotation(basic_info, *precision, *scale),
                length: *type_length,
            };
            FileType { is_null: is_null_type(field), ..primitive_type(&primitive, annotated_range(field)) }
        }
    }
}

fn group_words(info: &BasicTypeInfo) -> &'static str {
    match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::List), _) | (_, ConvertedType::LIST) => "list",
        (Some(LogicalType::Map), _) | (_, ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE) => "map",
        (Some(LogicalType::Variant(_)), _) => "variant",
        _ => STRUCT,
    }
}

struct Primitive {
    physical: PhysicalType,
    logical: Option<LogicalType>,
    length: i32,
}

/// The annotation in its newer form.
pub(super) fn annotation(info: &BasicTypeInfo, precision: i32, scale: i32) -> Option<LogicalType> {
    if let Some(logical) = info.logical_type_ref() {
        return Some(logical.clone());
    }
    Some(match info.converted_type() {
        ConvertedType::UTF8 => LogicalType::String,
        ConvertedType::ENUM => LogicalType::Enum,
        ConvertedType::JSON => LogicalType::Json,
        ConvertedType::BSON => LogicalType::Bson,
        ConvertedType::DECIMAL => LogicalType::decimal(scale, precision),
        ConvertedType::DATE => LogicalType::Date,
        ConvertedType::TIME_MILLIS => LogicalType::time(true, TimeUnit::MILLIS),
        ConvertedType::TIME_MICROS => LogicalType::time(true, TimeUnit::MICROS),
        ConvertedType::TIMESTAMP_MILLIS => LogicalType::timestamp(true, TimeUnit::MILLIS),
        ConvertedType::TIMESTAMP_MICROS => LogicalType::timestamp(true, TimeUnit::MICROS),
        ConvertedType::UINT_8 => LogicalType::integer(8, false),
        ConvertedType::UINT_16 => LogicalType::integer(16, false),
        ConvertedType::UINT_32 => LogicalType::integer(32, false),
        ConvertedType::UINT_64 => LogicalType::integer(64, false),
        ConvertedType::INT_8 => LogicalType::integer(8, true),
        ConvertedType::INT_16 => LogicalType::integer(16, true),
        ConvertedType::INT_32 => LogicalType::integer(32, true),
        ConvertedType::INT_64 => LogicalType::integer(64, true),
        // Intervals have no newer form, and no type here.
        ConvertedType::INTERVAL => LogicalType::Unknown,
        _ => return None,
    })
}

fn primitive_type(primitive: &Primitive, allowed: Option<RangeInclusive<i128>>) -> FileType {
    let words = primitive_words(primitive);
    match stored_as(primitive) {
        Some((data_type, storage)) => {
            let sql_type = match primitive.logical {
                Some(LogicalType::Json) => "json".to_owned(),
                _ => data_type.to_string(),
            };
            FileType {
                data_type: Some(data_type),
                sql_type,
                words,
                storage: Some(storage),
                allowed,
                is_null: false,
                is_rounded: storage == Storage::Nanoseconds,
                is_time_of_utc: matches!(&primitive.logical, Some(LogicalType::Time(time)) if time.is_adjusted_to_u_t_c),
            }
        }
        None => without_type(words),
    }
}

fn stored_as(primitive: &Primitive) -> Option<(DataType, Storage)> {
    use PhysicalType::{BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED_LEN_BYTE_ARRAY, FLOAT, INT32, INT64, INT96};
    let Primitive { physical, logical, length } = primitive;
    Some(match (physical, logical) {
        (_, Some(LogicalType::Unknown)) => return None,
        (BOOLEAN, _) => (DataType::Bool, Storage::Bool),
        (FLOAT, _) => (DataType::Float32, Storage::Float),
        (DOUBLE, _) => (DataType::Float64, Storage::Float),
        (INT96, _) => (DataType::Timestamp, Storage::Int96),
        (INT32 | INT64 | BYTE_ARRAY | FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Decimal(decimal))) => {
            let is_long = decimal.precision > DECIMAL128_DIGITS_MAX;
            let holds_long = match physical {
                FIXED_LEN_BYTE_ARRAY => *length <= LONG_DECIMAL_BYTES_MAX,
                other => *other == BYTE_ARRAY,
            };
            if is_long && !holds_long {
                return None;
            }
            (decimal_type(decimal.precision, decimal.scale)?, Storage::Decimal)
        }
        (INT32, None) => (DataType::Int32, Storage::Signed),
        (INT64, None) => (DataType::Int64, Storage::Signed),
        (INT32 | INT64, Some(LogicalType::Integer(integer))) => {
            (integer_type(integer.bit_width, integer.is_signed)?, integer_storage(integer.is_signed))
        }
        (INT32, Some(LogicalType::Date)) => (DataType::Date, Storage::Signed),
        (INT32 | INT64, Some(LogicalType::Time(time))) => (DataType::Time, unit_storage(&time.unit)),
        (INT64, Some(LogicalType::Timestamp(timestamp))) => {
            let data_type =
                if timestamp.is_adjusted_to_u_t_c { DataType::TimestampTz } else { DataType::Timestamp };
            (data_type, unit_storage(&timestamp.unit))
        }
        (BYTE_ARRAY, Some(LogicalType::String | LogicalType::Enum | LogicalType::Json)) => {
            (DataType::Text, Storage::Text)
        }
        (FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)) if *length == UUID_BYTES => {
            (DataType::Uuid, Storage::Bytes)
        }
        (FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16)) if *length == FLOAT16_BYTES => {
            (DataType::Float32, Storage::Float)
        }
        (
            BYTE_ARRAY,
            None | Some(LogicalType::Bson | LogicalType::Geometry(_) | LogicalType::Geography(_)),
        )
        | (FIXED_LEN_BYTE_ARRAY, None) => (DataType::Bytea, Storage::Bytes),
        _ => return None,
    })
}

fn decimal_type(precision: i32, scale: i32) -> Option<DataType> {
    let fits = (1..=DECIMAL_DIGITS_MAX).contains(&precision) && (0..=precision).contains(&scale);
    fits.then_some(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}

fn integer_type(bit_width: i8, is_signed: bool) -> Option<DataType> {
    Some(match (bit_width, is_signed) {
        (8, _) | (16, true) => DataType::Int16,
        (16, false) | (32, true) => DataType::Int32,
        (32, false) | (64, true) => DataType::Int64,
        (64, false) => DataType::Decimal { precision: 20, scale: 0 },
        _ => return None,
    })
}

fn integer_storage(is_signed: bool) -> Storage {
    if is_signed { Storage::Signed } else { Storage::Unsigned }
}

fn unit_storage(unit: &TimeUnit) -> Storage {
    match unit {
        TimeUnit::MILLIS => Storage::Milliseconds,
        TimeUnit::MICROS => Storage::Signed,
        TimeUnit::NANOS => Storage::Nanoseconds,
    }
}

fn primitive_words(primitive: &Primitive) -> String {
    let physical = match primitive.physical {
        PhysicalType::FIXED_LEN_BYTE_ARRAY => format!("FIXED_LEN_BYTE_ARRAY({})", primitive.length),
        other => other.to_string(),
    };
    match primitive.logical.as_ref().and_then(logical_words) {
        Some(logical) => format!("{physical} {logical}"),
        None => physical,
    }
}

fn logical_words(logical: &LogicalType) -> Option<String> {
    let unit = |unit: &TimeUnit, is_utc: bool| {
        let unit = match unit {
            TimeUnit::MILLIS => "ms",
            TimeUnit::MICROS => "us",
            TimeUnit::NANOS => "ns",
        };
        if is_utc { format!("{unit}, UTC") } else { unit.to_owned() }
    };
    Some(match logical {
        LogicalType::Decimal(decimal) => format!("Decimal({},{})", decimal.precision, decimal.scale),
        LogicalType::Integer(integer) => {
            let sign = if integer.is_signed { "signed" } else { "unsigned" };
            format!("Integer({}, {sign})", integer.bit_width)
        }
        LogicalType::Time(time) => format!("Time({})", unit(&time.unit, time.is_adjusted_to_u_t_c)),
        LogicalType::Timestamp(time) => format!("Timestamp({})", unit(&time.unit, time.is_adjusted_to_u_t_c)),
        LogicalType::String => "String".into(),
        LogicalType::Enum => "Enum".into(),
        LogicalType::Json => "Json".into(),
        LogicalType::Bson => "Bson".into(),
        LogicalType::Date => "Date".into(),
        LogicalType::Uuid => "Uuid".into(),
        LogicalType::Float16 => "Float16".into(),
        LogicalType::Geometry(_) => "Geometry".into(),
        LogicalType::Geography(_) => "Geography".into(),
        LogicalType::Unknown => "without a known type".into(),
        _ => return None,
    })
}

fn without_type(words: String) -> FileType {
    FileType {
        data_type: None,
        sql_type: String::new(),
        words,
        storage: None,
        allowed: None,
        is_null: false,
        is_rounded: false,
        is_time_of_utc: false,
    }
}
