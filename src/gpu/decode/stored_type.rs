//! The types of Parquet columns' values, whatever their declaration.
//!
//! The file's own annotations decide. The CPU engine reads all other types, and its messages about
//! them are better.

use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType},
    schema::types::ColumnDescriptor,
};

/// The most digits of a decimal of at most 16 bytes.
const DECIMAL128_DIGITS_MAX: i32 = 38;
const DECIMAL128_BYTES_MAX: i32 = 16;
const FLOAT16_BYTES: i32 = 2;

/// A column's type in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredType {
    Bool,
    Integer {
        bits: u32,
        is_signed: bool,
    },
    Decimal {
        precision: u8,
        scale: u8,
        /// Whether readers hold it in 256 bits.
        is_wide: bool,
    },
    Date,
    Time(StoredTimeUnit),
    Timestamp {
        unit: StoredTimeUnit,
        is_utc: bool,
    },
    Int96,
    Half,
    Float,
    Double,
    /// UTF-8.
    Text,
    Bytes,
    FixedBytes,
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredTimeUnit {
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl StoredTimeUnit {
    fn of(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::MILLIS => Self::Milliseconds,
            TimeUnit::MICROS => Self::Microseconds,
            TimeUnit::NANOS => Self::Nanoseconds,
        }
    }
}

impl StoredType {
    /// The type of a column; `None` if no kernel reads it.
    pub(super) fn of(descriptor: &ColumnDescriptor) -> Option<Self> {
        let logical = descriptor.logical_type_ref();
        if logical == Some(&LogicalType::Unknown) {
            return None;
        }
        Some(match descriptor.physical_type() {
            PhysicalType::BOOLEAN => Self::Bool,
            PhysicalType::INT32 => int32_type(descriptor)?,
            PhysicalType::INT64 => int64_type(descriptor)?,
            PhysicalType::INT96 => Self::Int96,
            PhysicalType::FLOAT => Self::Float,
            PhysicalType::DOUBLE => Self::Double,
            PhysicalType::BYTE_ARRAY => byte_array_type(descriptor)?,
            PhysicalType::FIXED_LEN_BYTE_ARRAY => fixed_type(descriptor)?,
        })
    }
}

fn int32_type(descriptor: &ColumnDescriptor) -> Option<StoredType> {
    Some(match (descriptor.logical_type_ref(), descriptor.converted_type()) {
        (None, ConvertedType::NONE) => StoredType::Integer { bits: 32, is_signed: true },
        (Some(LogicalType::Integer(integer)), _) => integer_type(integer.bit_width, integer.is_signed, 32)?,
        (Some(LogicalType::Decimal(decimal)), _) => decimal_type(decimal.precision, decimal.scale, false)?,
        (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => StoredType::Date,
        (Some(LogicalType::Time(time)), _) if time.unit == TimeUnit::MILLIS => {
            StoredType::Time(StoredTimeUnit::Milliseconds)
        }
        (None, ConvertedType::UINT_8) => integer_type(8, false, 32)?,
        (None, ConvertedType::UINT_16) => integer_type(16, false, 32)?,
        (None, ConvertedType::UINT_32) => integer_type(32, false, 32)?,
        (None, ConvertedType::INT_8) => integer_type(8, true, 32)?,
        (None, ConvertedType::INT_16) => integer_type(16, true, 32)?,
        (None, ConvertedType::INT_32) => integer_type(32, true, 32)?,
        (None, ConvertedType::TIME_MILLIS) => StoredType::Time(StoredTimeUnit::Milliseconds),
        (None, ConvertedType::DECIMAL) => {
            decimal_type(descriptor.type_precision(), descriptor.type_scale(), false)?
        }
        _ => return None,
    })
}

fn int64_type(descriptor: &ColumnDescriptor) -> Option<StoredType> {
    Some(match (descriptor.logical_type_ref(), descriptor.converted_type()) {
        (None, ConvertedType::NONE | ConvertedType::INT_64) => integer_type(64, true, 64)?,
        (None, ConvertedType::UINT_64) => integer_type(64, false, 64)?,
        (Some(LogicalType::Integer(integer)), _) if integer.bit_width == 64 => {
            integer_type(64, integer.is_signed, 64)?
        }
        (Some(LogicalType::Time(time)), _) if time.unit != TimeUnit::MILLIS => {
            StoredType::Time(StoredTimeUnit::of(time.unit))
        }
        (Some(LogicalType::Timestamp(timestamp)), _) => StoredType::Timestamp {
            unit: StoredTimeUnit::of(timestamp.unit),
            is_utc: timestamp.is_adjusted_to_u_t_c,
        },
        (None, ConvertedType::TIME_MICROS) => StoredType::Time(StoredTimeUnit::Microseconds),
        (None, ConvertedType::TIMESTAMP_MILLIS) => {
            StoredType::Timestamp { unit: StoredTimeUnit::Milliseconds, is_utc: true }
        }
        (None, ConvertedType::TIMESTAMP_MICROS) => {
            StoredType::Timestamp { unit: StoredTimeUnit::Microseconds, is_utc: true }
        }
        (Some(LogicalType::Decimal(decimal)), _) => decimal_type(decimal.precision, decimal.scale, false)?,
        (None, ConvertedType::DECIMAL) => {
            decimal_type(descriptor.type_precision(), descriptor.type_scale(), false)?
        }
        _ => return None,
    })
}

fn byte_array_type(descriptor: &ColumnDescriptor) -> Option<StoredType> {
    let decimal = |precision, scale| decimal_type(precision, scale, precision > DECIMAL128_DIGITS_MAX);
    Some(match (descriptor.logical_type_ref(), descriptor.converted_type()) {
        (Some(LogicalType::String | LogicalType::Json), _)
        | (None, ConvertedType::UTF8 | ConvertedType::JSON) => StoredType::Text,
        (
            Some(
                LogicalType::Bson | LogicalType::Enum | LogicalType::Geometry(_) | LogicalType::Geography(_),
            ),
            _,
        )
        | (None, ConvertedType::NONE | ConvertedType::BSON | ConvertedType::ENUM) => StoredType::Bytes,
        (Some(LogicalType::Decimal(annotation)), _) => decimal(annotation.precision, annotation.scale)?,
        (None, ConvertedType::DECIMAL) => decimal(descriptor.type_precision(), descriptor.type_scale())?,
        _ => return None,
    })
}

fn fixed_type(descriptor: &ColumnDescriptor) -> Option<StoredType> {
    let length = descriptor.type_length();
    if length < 1 {
        return None;
    }
    let is_wide = length > DECIMAL128_BYTES_MAX;
    Some(match (descriptor.logical_type_ref(), descriptor.converted_type()) {
        (Some(LogicalType::Decimal(annotation)), _) => {
            decimal_type(annotation.precision, annotation.scale, is_wide)?
        }
        (None, ConvertedType::DECIMAL) => {
            decimal_type(descriptor.type_precision(), descriptor.type_scale(), is_wide)?
        }
        (None, ConvertedType::INTERVAL) => return None,
        (Some(LogicalType::Float16), _) => (length == FLOAT16_BYTES).then_some(StoredType::Half)?,
        _ => StoredType::FixedBytes,
    })
}

fn integer_type(bit_width: i8, is_signed: bool, bits_max: u32) -> Option<StoredType> {
    let bits = u32::try_from(bit_width).ok()?;
    let is_known = matches!(bits, 8 | 16 | 32 | 64) && bits <= bits_max;
    is_known.then_some(StoredType::Integer { bits, is_signed })
}

fn decimal_type(precision: i32, scale: i32, is_wide: bool) -> Option<StoredType> {
    let (precision, scale) = (u8::try_from(precision).ok()?, u8::try_from(scale).ok()?);
    (scale <= precision).then_some(StoredType::Decimal { precision, scale, is_wide })
}
