//! The value types, and how each is laid out in Arrow.

use std::fmt;

use arrow_schema::{DataType as ArrowType, Field, IntervalUnit, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::depth::{DATA_TYPE_DEPTH_MAX, decode_levels};

/// The most digits an Arrow `Decimal128` holds.
pub(crate) const DECIMAL128_DIGITS_MAX: u8 = 38;
/// The most digits an Arrow `Decimal256` holds.
pub(crate) const DECIMAL256_DIGITS_MAX: u8 = 76;

/// The type of a column or an expression.
///
/// PostgreSQL's `varchar`, `char(n)`, `json`, `jsonb` and enums are [`DataType::Text`] here. A `char(n)` value is
/// held without its trailing blanks; the extension pads it where blanks are significant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum DataType {
    /// `boolean`.
    Bool,
    /// `smallint`.
    Int16,
    /// `integer`.
    Int32,
    /// `bigint`.
    Int64,
    /// `real`. NaN equals NaN and is greater than every other value; -0 equals 0.
    Float32,
    /// `double precision`, with the same order as [`DataType::Float32`].
    Float64,
    /// A number with a fixed count of digits after the point. `precision` counts all digits, 1 to 76; it
    /// is a bound that the extension has proved or that the engine checks.
    Decimal {
        /// All digits.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `numeric` whose scale only the value tells. Only the type of a [`crate::Expression::Parameter`]
    /// that is an operand of a comparison; the bound [`crate::Literal`] is a `Decimal`.
    Numeric,
    /// `date`: days since 1970-01-01; the least and the greatest number are the infinities.
    Date,
    /// `time`: microseconds since midnight.
    Time,
    /// `timestamp`: microseconds since 1970-01-01 00:00; infinities as of `date`.
    Timestamp,
    /// `timestamptz`: microseconds since 1970-01-01 00:00 UTC.
    TimestampTz,
    /// `interval`: months, days and microseconds, each on its own.
    Interval,
    /// UTF-8 text, compared byte by byte.
    Text,
    /// `bytea`, compared byte by byte.
    Bytea,
    /// `uuid`: 16 bytes, compared byte by byte.
    Uuid,
    /// An array. Columns of this type are returned as they are; no function takes them.
    List(Box<DataType>),
    /// A composite value. Columns of this type are returned as they are; fields are columns of their own.
    Record(Vec<RecordField>),
}

/// A field of a composite type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordField {
    /// Its name, by which it is found in files as a column is.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// The most characters of its text.
    pub length_max: Option<u32>,
    /// Whether blanks at the end of its text do not count.
    pub trim_blanks: bool,
    /// Whether its text, or that of its elements, is JSON.
    pub is_json: bool,
}

decode_levels!(DataType, DATA_TYPE_DEPTH, DATA_TYPE_DEPTH_MAX, "type");

impl DataType {
    /// How values of this type are laid out in the batches that an engine returns.
    ///
    /// An engine may hold text as `Utf8` and bytes as `Binary` too: readers accept both.
    pub fn to_arrow(&self) -> ArrowType {
        match self {
            Self::Bool => ArrowType::Boolean,
            Self::Int16 => ArrowType::Int16,
            Self::Int32 => ArrowType::Int32,
            Self::Int64 => ArrowType::Int64,
            Self::Float32 => ArrowType::Float32,
            Self::Float64 => ArrowType::Float64,
            Self::Decimal { precision, scale } if *precision <= DECIMAL128_DIGITS_MAX => {
                ArrowType::Decimal128(*precision, *scale as i8)
            }
            Self::Decimal { precision, scale } => ArrowType::Decimal256(*precision, *scale as i8),
            Self::Numeric => ArrowType::Decimal256(DECIMAL256_DIGITS_MAX, DECIMAL128_DIGITS_MAX as i8),
            Self::Date => ArrowType::Date32,
            Self::Time => ArrowType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => ArrowType::Interval(IntervalUnit::MonthDayNano),
            Self::Text => ArrowType::Utf8View,
            Self::Bytea => ArrowType::BinaryView,
            Self::Uuid => ArrowType::FixedSizeBinary(16),
            Self::List(item) => ArrowType::List(Field::new_list_field(item.to_arrow(), true).into()),
            Self::Record(fields) => {
                let field = |field: &RecordField| Field::new(&field.name, field.data_type.to_arrow(), true);
                ArrowType::Struct(fields.iter().map(field).collect())
            }
        }
    }

    /// How values of this type are laid out in batches that are to be written: as [`DataType::to_arrow`] says, but for text and
    /// bytes, which have offsets and no views.
    pub fn to_written_arrow(&self) -> ArrowType {
        match self {
            Self::Text => ArrowType::Utf8,
            Self::Bytea => ArrowType::Binary,
            Self::List(item) => ArrowType::List(Field::new_list_field(item.to_written_arrow(), true).into()),
            Self::Record(fields) => {
                let field =
                    |field: &RecordField| Field::new(&field.name, field.data_type.to_written_arrow(), true);
                ArrowType::Struct(fields.iter().map(field).collect())
            }
            other => other.to_arrow(),
        }
    }

    /// The type that holds the values of both and from which both are told; `None` if a value could change.
    pub fn widened(&self, other: &Self) -> Option<Self> {
        Some(match (self, other) {
            (one, other) if one == other => one.clone(),
            (Self::Int16, Self::Int32) | (Self::Int32, Self::Int16) => Self::Int32,
            (Self::Int16 | Self::Int32, Self::Int64) | (Self::Int64, Self::Int16 | Self::Int32) => {
                Self::Int64
            }
            (Self::Float32, Self::Float64) | (Self::Float64, Self::Float32) => Self::Float64,
            (Self::Date, Self::Timestamp) | (Self::Timestamp, Self::Date) => Self::Timestamp,
            (one, other) if one.is_decimal() || other.is_decimal() => {
                let ((whole, scale), (other_whole, other_scale)) = (one.digits()?, other.digits()?);
                let scale = scale.max(other_scale);
                let precision = whole.max(other_whole) + scale;
                (precision <= DECIMAL256_DIGITS_MAX).then_some(Self::Decimal { precision, scale })?
            }
            _ => return None,
        })
    }

    /// The digits of a number before and after the point, where the type says them.
    pub fn digits(&self) -> Option<(u8, u8)> {
        Some(match self {
            Self::Int16 => (5, 0),
            Self::Int32 => (10, 0),
            Self::Int64 => (19, 0),
            Self::Decimal { precision, scale } => (precision.checked_sub(*scale)?, *scale),
            _ => return None,
        })
    }

    /// The type of an array's elements; of another type itself.
    pub fn item(&self) -> &Self {
        match self {
            Self::List(item) => item,
            other => other,
        }
    }

    /// The fields of a composite type, or of one that an array has.
    pub fn fields(&self) -> Option<&[RecordField]> {
        match self.item() {
            Self::Record(fields) => Some(fields),
            _ => None,
        }
    }

    /// Whether a value has parts of its own: an array or a composite value.
    pub fn is_nested(&self) -> bool {
        matches!(self, Self::List(_) | Self::Record(_))
    }

    /// Whether arithmetic on this type is exact and has a point.
    pub fn is_decimal(&self) -> bool {
        matches!(self, Self::Decimal { .. } | Self::Numeric)
    }

    /// Whether this is one of the three integers.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::Int16 | Self::Int32 | Self::Int64)
    }

    /// Whether this is `real` or `double precision`.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }
}

/// PostgreSQL's name of the type.
impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => formatter.write_str("boolean"),
            Self::Int16 => formatter.write_str("smallint"),
            Self::Int32 => formatter.write_str("integer"),
            Self::Int64 => formatter.write_str("bigint"),
            Self::Float32 => formatter.write_str("real"),
            Self::Float64 => formatter.write_str("double precision"),
            Self::Decimal { precision, scale } => write!(formatter, "numeric({precision},{scale})"),
            Self::Numeric => formatter.write_str("numeric"),
            Self::Date => formatter.write_str("date"),
            Self::Time => formatter.write_str("time without time zone"),
            Self::Timestamp => formatter.write_str("timestamp without time zone"),
            Self::TimestampTz => formatter.write_str("timestamp with time zone"),
            Self::Interval => formatter.write_str("interval"),
            Self::Text => formatter.write_str("text"),
            Self::Bytea => formatter.write_str("bytea"),
            Self::Uuid => formatter.write_str("uuid"),
            Self::List(item) => write!(formatter, "{item}[]"),
            Self::Record(fields) => {
                formatter.write_str("(")?;
                for (place, RecordField { name, data_type, .. }) in fields.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{name} {data_type}")?;
                }
                formatter.write_str(")")
            }
        }
    }
}
