//! Column chunks that no file holds: of a column with one value in all rows of a row group, and of rows' numbers.
//!
//! A folder's key gives such a value, and a file without the column has NULL. The chunk has the form that a writer gives such a
//! column: a dictionary of one entry, and runs. Numbers are differences of 1. So kernels decode it as any other, also beside chunks of files that have the column.

use std::sync::Arc;

use parquet::{
    basic::{CompressionCodec, LogicalType, Repetition, TimeUnit, Type as PhysicalType},
    file::metadata::ColumnChunkMetaData,
    schema::types::{ColumnDescriptor, ColumnPath, Type},
};
use pystachio_plan::{DataType, Error, ErrorKind, Result, ScanColumn, Value};

use super::{load::EncodedBytes, page_map::ChunkExtent};

/// Rows of a page at most: many threads decode a chunk of several.
const PAGE_ROWS: u32 = 1 << 20;
/// Numbers of a block of differences, and of its parts, each of which says how many bits its numbers have.
const BLOCK_ROWS: u32 = 128;
const BLOCK_PARTS: u32 = 4;
/// Digits of a decimal in 16 bytes.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// Numbers of Parquet's format.
mod format {
    pub(super) const DATA_PAGE: u64 = 0;
    pub(super) const DICTIONARY_PAGE: u64 = 2;
    pub(super) const PLAIN: u64 = 0;
    pub(super) const RLE: u64 = 3;
    pub(super) const DELTA_BINARY_PACKED: u64 = 5;
    pub(super) const RLE_DICTIONARY: u64 = 8;
}

/// The column chunk of a constant, or of numbers.
pub struct DerivedChunk {
    metadata: ColumnChunkMetaData,
    bytes: Vec<u8>,
    extent: ChunkExtent,
}

impl DerivedChunk {
    /// A chunk of so many rows that have `value`, which is of the column's type.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types that no kernel decodes.
    pub fn new(column: &ScanColumn, value: &Value, row_count: u32) -> Result<Self> {
        let bytes = match value {
            Value::Null => null_pages(row_count),
            Value::Bool(value) => pages(row_count, format::RLE, |rows| sized(run(rows, (*value).into()))),
            value => {
                let mut bytes = dictionary_page(&plain(value, &column.data_type)?);
                bytes.extend(pages(row_count, format::RLE_DICTIONARY, |rows| {
                    let mut body = vec![1];
                    body.extend(run(rows, 0));
                    body
                }));
                bytes
            }
        };
        Self::of_pages(bytes, descriptor(column, *value == Value::Null)?, row_count)
    }

    /// A chunk of so many rows that have the numbers from `first` on, of a column of type `bigint`.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types that no kernel decodes.
    pub fn of_numbers(column: &ScanColumn, first: i64, row_count: u32) -> Result<Self> {
        let mut next = first;
        let mut bytes = Vec::new();
        for first_row in (0..row_count).step_by(PAGE_ROWS as usize) {
            let rows = PAGE_ROWS.min(row_count - first_row);
            bytes.extend(data_page(rows, format::DELTA_BINARY_PACKED, &numbers(next, rows)));
            next += i64::from(rows);
        }
        Self::of_pages(bytes, descriptor(column, false)?, row_count)
    }

    fn of_pages(bytes: Vec<u8>, descriptor: ColumnDescriptor, row_count: u32) -> Result<Self> {
        let metadata = ColumnChunkMetaData::builder(Arc::new(descriptor))
            .set_compression_codec(CompressionCodec::UNCOMPRESSED)
            .set_data_page_offset(0)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(bytes.len() as i64)
            .set_num_values(row_count.into())
            .build()
            .map_err(|error| Error::internal(format!("a constant column has no metadata: {error}")))?;
        let extent = ChunkExtent::whole(bytes.len() as u64, row_count);
        Ok(Self { metadata, bytes, extent })
    }

    /// What a footer would say of it.
    pub fn metadata(&self) -> &ColumnChunkMetaData {
        &self.metadata
    }

    /// Its pages.
    pub fn encoded(&self) -> EncodedBytes<'_> {
        EncodedBytes::Host(&self.bytes, &self.extent)
    }
}

fn descriptor(column: &ScanColumn, is_null: bool) -> Result<ColumnDescriptor> {
    let refused = || {
        let message = format!("no kernel decodes column \"{}\" of type {}", column.name, column.data_type);
        Error::new(ErrorKind::NotSupported, message)
    };
    let (physical, logical, length) = stored_form(&column.data_type).ok_or_else(refused)?;
    let decimal = match &logical {
        Some(LogicalType::Decimal(decimal)) => (decimal.precision, decimal.scale),
        _ => (-1, -1),
    };
    let repetition = if is_null { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .with_length(length)
        .with_precision(decimal.0)
        .with_scale(decimal.1)
        .build()
        .map_err(|error| Error::internal(format!("a constant column has no type: {error}")))?;
    let path = ColumnPath::new(vec![column.name.clone()]);
    Ok(ColumnDescriptor::new(Arc::new(field), is_null.into(), 0, path))
}

/// The Parquet type that holds the values of a type as they are.
fn stored_form(data_type: &DataType) -> Option<(PhysicalType, Option<LogicalType>, i32)> {
    use PhysicalType::{BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED_LEN_BYTE_ARRAY, FLOAT, INT32, INT64};
    let timestamp = |is_utc| LogicalType::timestamp(is_utc, TimeUnit::MICROS);
    Some(match data_type {
        DataType::Bool => (BOOLEAN, None, -1),
        DataType::Int16 => (INT32, Some(LogicalType::integer(16, true)), -1),
        DataType::Int32 => (INT32, None, -1),
        DataType::Int64 => (INT64, None, -1),
        DataType::Float32 => (FLOAT, None, -1),
        DataType::Float64 => (DOUBLE, None, -1),
        DataType::Date => (INT32, Some(LogicalType::Date), -1),
        DataType::Time => (INT64, Some(LogicalType::time(false, TimeUnit::MICROS)), -1),
        DataType::Timestamp => (INT64, Some(timestamp(false)), -1),
        DataType::TimestampTz => (INT64, Some(timestamp(true)), -1),
        DataType::Text => (BYTE_ARRAY, Some(LogicalType::String), -1),
        DataType::Bytea => (BYTE_ARRAY, None, -1),
        DataType::Uuid => (FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), 16),
        DataType::Decimal { precision, scale } if *precision <= DECIMAL_DIGITS_MAX => {
            let logical = LogicalType::decimal((*scale).into(), (*precision).into());
            (FIXED_LEN_BYTE_ARRAY, Some(logical), 16)
        }
        DataType::Decimal { .. }
        | DataType::Numeric
        | DataType::Interval
        | DataType::List(_)
        | DataType::Record(_) => return None,
    })
}

/// A value in the encoding PLAIN.
fn plain(value: &Value, data_type: &DataType) -> Result<Vec<u8>> {
    let narrow = |value: i64| i32::try_from(value).ok().map(|value| value.to_le_bytes().to_vec());
    let bytes = match (value, data_type) {
        (Value::Int(value), DataType::Int16 | DataType::Int32 | DataType::Date) => narrow(*value),
        (Value::Int(value), _) => Some(value.to_le_bytes().to_vec()),
        (Value::Float(value), DataType::Float32) => Some((*value as f32).to_le_bytes().to_vec()),
        (Value::Float(value), _) => Some(value.to_le_bytes().to_vec()),
        (Value::Decimal(value), _) => Some(value.to_be_bytes().to_vec()),
        (Value::Bytes(value), DataType::Uuid) => Some(value.clone()),
        (Value::Text(value), _) => Some(sized(value.clone().into_bytes())),
        (Value::Bytes(value), _) => Some(sized(value.clone())),
        _ => None,
    };
    bytes.ok_or_else(|| Error::internal(format!("{value:?} is not a value of type {data_type}")))
}

/// Bytes behind their number.
fn sized(bytes: Vec<u8>) -> Vec<u8> {
    let mut sized = (bytes.len() as u32).to_le_bytes().to_vec();
    sized.extend(bytes);
    sized
}

/// Consecutive numbers as differences.
fn numbers(first: i64, count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [BLOCK_ROWS, BLOCK_PARTS, count] {
        varint(&mut bytes, number.into());
    }
    varint(&mut bytes, zigzag(first));
    for _ in (1..count).step_by(BLOCK_ROWS as usize) {
        varint(&mut bytes, zigzag(1));
        bytes.extend([0; BLOCK_PARTS as usize]);
    }
    bytes
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// A run of values of one bit.
fn run(rows: u32, value: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(&mut bytes, u64::from(rows) << 1);
    bytes.push(value);
    bytes
}

/// Data pages of all rows, whose values `body` encodes.
fn pages(row_count: u32, encoding: u64, body: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let firsts = (0..row_count).step_by(PAGE_ROWS as usize);
    let rows = firsts.map(|first| PAGE_ROWS.min(row_count - first));
    rows.flat_map(|rows| data_page(rows, encoding, &body(rows))).collect()
}

/// Pages whose rows are all NULL: levels, and no values.
fn null_pages(row_count: u32) -> Vec<u8> {
    pages(row_count, format::PLAIN, |rows| sized(run(rows, 0)))
}

/// A data page of version 1.
fn data_page(row_count: u32, encoding: u64, body: &[u8]) -> Vec<u8> {
    let mut page = header(format::DATA_PAGE, body);
    page.push(0x2c);
    for number in [row_count.into(), encoding, format::RLE, format::RLE] {
        integer(&mut page, number);
    }
    page.extend([0, 0]);
    page.extend(body);
    page
}

/// A dictionary page of one value.
fn dictionary_page(value: &[u8]) -> Vec<u8> {
    let mut page = header(format::DICTIONARY_PAGE, value);
    page.push(0x4c);
    for number in [1, format::PLAIN] {
        integer(&mut page, number);
    }
    page.extend([0, 0]);
    page.extend(value);
    page
}

/// The fields of a page's header that all kinds have.
fn header(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut page = Vec::new();
    for number in [kind, body.len() as u64, body.len() as u64] {
        integer(&mut page, number);
    }
    page
}

/// A field of a Thrift structure in the compact protocol whose number is one above the last: an integer.
fn integer(bytes: &mut Vec<u8>, value: u64) {
    bytes.push(0x15);
    varint(bytes, value << 1);
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
