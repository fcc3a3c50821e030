//! Columns and chunks in a device's memory.

use std::collections::HashSet;

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{Buffer, CellType, Stream};

/// Decimals of at most this many digits are held in 64 bits.
pub const DECIMAL64_DIGITS_MAX: u8 = 18;
/// Decimals of at most this many digits are held in 128 bits.
pub const DECIMAL128_DIGITS_MAX: u8 = 38;
/// Decimals of at most this many digits are held in 256 bits.
pub const DECIMAL256_DIGITS_MAX: u8 = 76;

impl CellType {
    /// The representation of a type's values.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types without a kernel: arrays, composite values and decimals of more than 76 digits.
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
            DataType::Decimal { .. } | DataType::Numeric | DataType::List(_) | DataType::Record(_) => {
                let message = format!("no kernel handles values of type {data_type}");
                return Err(Error::new(ErrorKind::NotSupported, message));
            }
        })
    }

    /// The most digits of a decimal with this representation; 0 for other types.
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

/// A column of a chunk. Cheap to clone: the memory is shared.
#[derive(Clone, Debug)]
pub struct Column {
    /// The type of its values.
    pub data_type: DataType,
    /// The representation of its values.
    pub cell_type: CellType,
    /// One cell a row.
    pub values: Buffer,
    /// One byte a row, 0 for NULL; absent if no row is NULL.
    pub validity: Option<Buffer>,
    /// Memory that string cells point into.
    pub strings: Vec<Buffer>,
}

/// A column as indices into a dictionary of its values.
#[derive(Clone, Debug)]
pub struct CodedColumn {
    /// The dictionary's entries and, behind them, one more for rows that are NULL.
    pub entries: Column,
    /// The number of entries, the last included.
    pub entry_count: usize,
    /// A `u32` a row: the index of its entry.
    pub codes: Buffer,
}

/// Kernels read several cells at once, from addresses that are multiples of this at most.
const SLICE_ALIGNMENT: u64 = 64;
/// Bytes of a code.
pub const CODE_BYTES: u32 = 4;

/// A column in either form: operators that need cells make them, the others work on codes.
#[derive(Clone, Debug)]
pub enum AnyColumn {
    /// Its values.
    Cells(Column),
    /// Their dictionary, and indices into it.
    Codes(CodedColumn),
}

/// Columns of equal length, each with a cell a row: the input of device operations.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Rows of every column.
    pub row_count: usize,
    /// The columns, in an order defined by the chunk's producer.
    pub columns: Vec<Column>,
}

/// Columns of equal length, some of which may be codes: the unit that flows through a pipeline.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Rows of every column.
    pub row_count: usize,
    /// The columns, in an order that the operator above knows.
    pub columns: Vec<AnyColumn>,
}

impl Column {
    /// A column of `u32` numbers below 2³¹, none of which is NULL.
    pub fn of_numbers(values: Buffer) -> Self {
        Self {
            data_type: DataType::Int32,
            cell_type: CellType::Int32,
            values,
            validity: None,
            strings: Vec::new(),
        }
    }

    /// Bytes of a row's cell and validity.
    pub fn row_bytes(&self) -> u32 {
        self.cell_type.bytes() + u32::from(self.validity.is_some())
    }

    /// Some consecutive rows in place, if their alignment suits kernels: the slice keeps the whole
    /// column.
    pub fn slice(&self, first_row: usize, row_count: usize) -> Option<Self> {
        let slice = |buffer: &Buffer, bytes: u64| {
            let offset = first_row as u64 * bytes;
            let is_aligned = offset.is_multiple_of(SLICE_ALIGNMENT);
            is_aligned.then(|| buffer.slice(offset, row_count as u64 * bytes))
        };
        let values = slice(&self.values, u64::from(self.cell_type.bytes()))?;
        let validity = match &self.validity {
            Some(validity) => Some(slice(validity, 1)?),
            None => None,
        };
        Some(Self { values, validity, ..self.clone() })
    }

    /// Whether its cells are a slice of larger memory.
    pub fn is_slice(&self) -> bool {
        self.values.is_part() || self.validity.as_ref().is_some_and(Buffer::is_part)
    }

    /// Its memory.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.strings.iter().chain(&self.validity).chain([&self.values])
    }
}

impl CodedColumn {
    /// The codes as a column of numbers, none of which is NULL: rows of equal codes have equal values.
    pub fn code_column(&self) -> Column {
        Column::of_numbers(self.codes.clone())
    }
}

impl AnyColumn {
    /// Bytes that a row takes.
    pub fn row_bytes(&self) -> u32 {
        match self {
            Self::Cells(column) => column.row_bytes(),
            Self::Codes(_) => CODE_BYTES,
        }
    }

    /// The codes, if it comes as codes.
    pub fn codes(&self) -> Option<&CodedColumn> {
        match self {
            Self::Cells(_) => None,
            Self::Codes(coded) => Some(coded),
        }
    }

    /// Its cells, or its codes as a column. Rows that are equal there have equal values.
    pub fn cells_or_codes(&self) -> Column {
        match self {
            Self::Cells(column) => column.clone(),
            Self::Codes(coded) => coded.code_column(),
        }
    }

    /// The column of its values: all rows, or the entries.
    pub fn values_mut(&mut self) -> &mut Column {
        match self {
            Self::Cells(column) => column,
            Self::Codes(coded) => &mut coded.entries,
        }
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let (values, codes) = match self {
            Self::Cells(column) => (column, None),
            Self::Codes(coded) => (&coded.entries, Some(&coded.codes)),
        };
        values.buffers().chain(codes)
    }
}

/// Bytes of memory that some buffers keep from being freed.
#[derive(Debug, Default)]
pub struct HeldMemory {
    known: HashSet<u64>,
    bytes: u64,
}

impl HeldMemory {
    /// Adds the memory of a chunk; memory shared with other chunks counts once.
    pub fn add(&mut self, chunk: &Chunk) {
        self.add_buffers(chunk.columns.iter().flat_map(Column::buffers));
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn add_buffers<'a>(&mut self, buffers: impl Iterator<Item = &'a Buffer>) {
        for (address, bytes) in buffers.map(Buffer::held) {
            if self.known.insert(address) {
                self.bytes += bytes;
            }
        }
    }
}

/// Bytes of memory that buffers keep from being freed; what several share counts once.
pub(crate) fn held_bytes<'a>(buffers: impl Iterator<Item = &'a Buffer>) -> u64 {
    let mut held = HeldMemory::default();
    held.add_buffers(buffers);
    held.bytes
}

impl Chunk {
    /// Bytes of cells and validity.
    pub fn cell_bytes(&self) -> u64 {
        self.row_count as u64 * self.columns.iter().map(|column| u64::from(column.row_bytes())).sum::<u64>()
    }

    /// Bytes of memory that the chunk keeps from being freed: with the pages of its text, and all
    /// of the memory that it is a slice of. They may be far more than the chunk's own.
    pub fn held_bytes(&self) -> u64 {
        held_bytes(self.columns.iter().flat_map(Column::buffers))
    }
}

impl Rows {
    /// Bytes of cells, validity and codes.
    pub fn cell_bytes(&self) -> u64 {
        self.row_count as u64 * self.columns.iter().map(|column| u64::from(column.row_bytes())).sum::<u64>()
    }

    /// See [`Chunk::held_bytes`].
    pub fn held_bytes(&self) -> u64 {
        held_bytes(self.buffers())
    }

    /// Marks the rows as used by a stream from now on; see [`Buffer::use_all_on`].
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn use_on(&self, stream: Stream) -> Result<()> {
        Buffer::use_all_on(self.buffers(), stream)
    }

    /// Their memory.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.columns.iter().flat_map(AnyColumn::buffers)
    }
}

impl From<Chunk> for Rows {
    fn from(chunk: Chunk) -> Self {
        Self {
            row_count: chunk.row_count,
            columns: chunk.columns.into_iter().map(AnyColumn::Cells).collect(),
        }
    }
}
