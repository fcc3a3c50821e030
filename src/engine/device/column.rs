//! Columns and chunks in a device's memory.

use bytemuck::{Pod, Zeroable};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{Buffer, Stream};

/// What a cell is: `CellType` of kernels/abi/column.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CellType {
    /// One byte, 0 or 1.
    Bool = 0,
    /// `i16`.
    Int16 = 1,
    /// `i32`; dates.
    Int32 = 2,
    /// `i64`; times, timestamps, decimals of at most 18 digits.
    Int64 = 3,
    /// `i128`: decimals of 19 to 38 digits.
    Int128 = 4,
    /// `f32`.
    Float32 = 5,
    /// `f64`.
    Float64 = 6,
    /// [`StringCell`]: text and bytea.
    String = 7,
    /// 16 bytes in order: uuid.
    Bytes16 = 8,
    /// Microseconds, days, months.
    Interval = 9,
    /// 256 bits, little end first: decimals of 39 to 76 digits.
    Int256 = 10,
}

/// Decimals of at most this many digits are held in 64 bits.
pub const DECIMAL64_DIGITS_MAX: u8 = 18;
/// Decimals of at most this many digits are held in 128 bits.
pub const DECIMAL128_DIGITS_MAX: u8 = 38;
/// Decimals of at most this many digits are held in 256 bits.
pub const DECIMAL256_DIGITS_MAX: u8 = 76;

impl CellType {
    /// How values of a type are held.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types that no kernel has: arrays and decimals of more than 76 digits.
    pub fn of(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Bool => Self::Bool,
            DataType::Int16 => Self::Int16,
            DataType::Int32 | DataType::Date => Self::Int32,
            DataType::Int64 | DataType::Time | DataType::Timestamp | DataType::TimestampTz => Self::Int64,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal { precision, .. } if *precision <= DECIMAL64_DIGITS_MAX => Self::Int64,
            DataType::Decimal { precision, .. } if *precision <= DECIMAL128_DIGITS_MAX => Self::Int128,
            DataType::Decimal { precision, .. } if *precision <= DECIMAL256_DIGITS_MAX => Self::Int256,
            DataType::Text | DataType::Bytea => Self::String,
            DataType::Uuid => Self::Bytes16,
            DataType::Interval => Self::Interval,
            DataType::Decimal { .. } | DataType::Numeric | DataType::List(_) => {
                let message = format!("no kernel handles values of type {data_type}");
                return Err(Error::new(ErrorKind::NotSupported, message));
            }
        })
    }

    /// The most digits of a decimal that is held so; 0 for what is no decimal.
    pub fn decimal_digits_max(self) -> u8 {
        match self {
            Self::Int64 => DECIMAL64_DIGITS_MAX,
            Self::Int128 => DECIMAL128_DIGITS_MAX,
            Self::Int256 => DECIMAL256_DIGITS_MAX,
            _ => 0,
        }
    }

    /// Bytes of a cell.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bool => 1,
            Self::Int16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
            Self::Int128 | Self::String | Self::Bytes16 | Self::Interval => 16,
            Self::Int256 => 32,
        }
    }
}

/// Text or bytes that lie elsewhere: `StringCell` of kernels/abi/column.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StringCell {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<StringCell>() == 16);

/// A column of a chunk. Cheap to clone: the memory is shared.
#[derive(Clone, Debug)]
pub struct Column {
    /// The type of its values.
    pub data_type: DataType,
    /// How they are held.
    pub cell_type: CellType,
    /// One cell a row.
    pub values: Buffer,
    /// One byte a row, 0 for NULL; absent if no row is NULL.
    pub validity: Option<Buffer>,
    /// Memory that string cells point into.
    pub strings: Vec<Buffer>,
}

/// A column as places in the dictionary that its values come from.
#[derive(Clone, Debug)]
pub struct CodedColumn {
    /// The dictionary's entries and, behind them, one more for rows that are NULL.
    pub entries: Column,
    /// How many that are, the last included.
    pub entry_count: usize,
    /// A `u32` a row: which entry it has.
    pub codes: Buffer,
}

impl Chunk {
    /// Bytes of cells and validity.
    pub fn cell_bytes(&self) -> u64 {
        let bytes_of =
            |column: &Column| u64::from(column.cell_type.bytes()) + u64::from(column.validity.is_some());
        self.row_count as u64 * self.columns.iter().map(bytes_of).sum::<u64>()
    }

    /// Bytes that are not freed as long as the chunk is held: those that text lies in too, which may hold far
    /// more than the chunk's own.
    pub fn held_bytes(&self) -> u64 {
        let mut known = std::collections::HashSet::new();
        let buffers = self
            .columns
            .iter()
            .flat_map(|column| column.strings.iter().chain(&column.validity).chain([&column.values]));
        buffers.filter(|buffer| known.insert(buffer.address())).map(Buffer::bytes).sum()
    }

    /// Says that from now on another stream uses the chunk; see [`Buffer::adopt`].
    pub fn adopt(&self, stream: Stream) {
        for column in &self.columns {
            let buffers = column.strings.iter().chain(&column.validity).chain([&column.values]);
            buffers.for_each(|buffer| buffer.adopt(stream));
        }
    }
}

/// Columns of equal length: the unit that flows through a pipeline.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Rows of every column.
    pub row_count: usize,
    /// The columns, in the order that the operator above knows.
    pub columns: Vec<Column>,
}
