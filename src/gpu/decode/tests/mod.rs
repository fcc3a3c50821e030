//! Decoding on the emulated device against the `parquet` crate's Arrow reader.

mod checksums;
mod conversions;
mod corrupt;
mod derived;
mod files;
mod frames;
mod handmade;
pub(crate) mod host_library;
mod host_memory;
mod matrix;
mod oracle;
mod ranges;
mod snappy;
mod strings;

use std::{path::Path, sync::Arc};

use arrow::datatypes::i256;
use bytes::Bytes;
use parquet::file::{
    metadata::ParquetMetaData,
    reader::{FileReader, SerializedFileReader},
};
use pystachio_files::chunk_range;
use pystachio_plan::{ColumnContent, ColumnId, DataType, Error, Result, ScanColumn};

use super::{EncodedColumnChunk, decode_row_group};
use crate::{
    device::{CellType, Column, DeviceMemory, EmulatedPlatform, Stream, StringCell},
    operation::Queue,
};

const MEMORY_BYTES_MAX: u64 = 1 << 32;

/// Repeatable numbers: xorshift.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len() as u64) as usize]
    }
}

/// A value of any type, as far as equality goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// Integers, dates, times, decimals.
    Number(i128),
    /// Bits of a float.
    Float(u64),
    Bytes(Vec<u8>),
}

type Values = Vec<Option<Value>>;

/// A decimal of more than 38 digits: its bytes where 128 bits do not hold it.
fn large_number(value: i256) -> Value {
    value.to_i128().map_or_else(|| Value::Bytes(value.to_le_bytes().to_vec()), Value::Number)
}

fn memory() -> DeviceMemory {
    DeviceMemory::new(Arc::new(EmulatedPlatform::new()), MEMORY_BYTES_MAX)
}

fn column(name: &str, data_type: DataType) -> ScanColumn {
    ScanColumn {
        id: ColumnId(1),
        name: name.to_owned(),
        data_type,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    }
}

/// The footer of a file in memory.
fn footer(file: &[u8]) -> ParquetMetaData {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(file)).unwrap();
    reader.metadata().clone()
}

/// Decodes top-level columns of every row group; one list of values a column.
fn decode_columns(
    file: &[u8],
    metadata: &ParquetMetaData,
    columns: &[(usize, ScanColumn)],
) -> Result<Vec<Values>> {
    decode_columns_in(&memory(), file, metadata, columns)
}

fn decode_columns_in(
    memory: &DeviceMemory,
    file: &[u8],
    metadata: &ParquetMetaData,
    columns: &[(usize, ScanColumn)],
) -> Result<Vec<Values>> {
    let mut results = vec![Vec::new(); columns.len()];
    for row_group in metadata.row_groups() {
        let chunks: Vec<EncodedColumnChunk<'_>> = columns
            .iter()
            .map(|(leaf, column)| {
                let metadata = row_group.column(*leaf);
                let (start, bytes) = chunk_range(metadata).unwrap();
                let bytes = &file[start as usize..(start + bytes) as usize];
                EncodedColumnChunk { bytes, metadata, column, table: "t", path: Path::new("f.parquet") }
            })
            .collect();
        let row_count = row_group.num_rows() as usize;
        let decoded = decode_row_group(&Queue::new(memory)?, &chunks, row_count)?;
        for (result, column) in results.iter_mut().zip(&decoded) {
            let values = column_values(memory, column, row_count);
            assert!(column.validity.is_none() || values.contains(&None), "validity without a NULL");
            result.extend(values);
        }
    }
    assert_eq!(memory.used_bytes(), 0, "device memory is left over");
    Ok(results)
}

fn decode_column(file: &[u8], leaf: usize, column: &ScanColumn) -> Result<Values> {
    let mut columns = decode_columns(file, &footer(file), &[(leaf, column.clone())])?;
    columns.pop().ok_or_else(|| Error::internal("no column"))
}

/// A device column on the host.
fn column_values(memory: &DeviceMemory, column: &Column, row_count: usize) -> Values {
    let validity: Vec<u8> = match &column.validity {
        Some(validity) => memory.download(validity, row_count, Stream(0)).unwrap(),
        None => vec![1; row_count],
    };
    assert!(validity.iter().all(|valid| *valid < 2));
    fn cells<T: bytemuck::Pod>(memory: &DeviceMemory, column: &Column, row_count: usize) -> Vec<T> {
        assert_eq!(size_of::<T>(), column.cell_type.bytes() as usize);
        memory.download(&column.values, row_count, Stream(0)).unwrap()
    }
    let number = |value: i128| Value::Number(value);
    let values: Vec<Value> = match column.cell_type {
        CellType::Bool => {
            cells::<u8>(memory, column, row_count).iter().map(|v| number((*v).into())).collect()
        }
        CellType::Int16 => {
            cells::<i16>(memory, column, row_count).iter().map(|v| number((*v).into())).collect()
        }
        CellType::Int32 => {
            cells::<i32>(memory, column, row_count).iter().map(|v| number((*v).into())).collect()
        }
        CellType::Int64 => {
            cells::<i64>(memory, column, row_count).iter().map(|v| number((*v).into())).collect()
        }
        CellType::Int128 => cells::<i128>(memory, column, row_count).iter().map(|v| number(*v)).collect(),
        CellType::Float32 => {
            cells::<u32>(memory, column, row_count).iter().map(|v| Value::Float((*v).into())).collect()
        }
        CellType::Float64 => {
            cells::<u64>(memory, column, row_count).iter().map(|v| Value::Float(*v)).collect()
        }
        CellType::Bytes16 => {
            cells::<[u8; 16]>(memory, column, row_count).iter().map(|v| Value::Bytes(v.to_vec())).collect()
        }
        CellType::String => cells::<StringCell>(memory, column, row_count)
            .iter()
            .zip(&validity)
            .map(|(cell, valid)| {
                if *valid == 0 {
                    return Value::Bytes(Vec::new());
                }
                assert_eq!(cell.reserved, 0);
                let (first, last) = (cell.address, cell.address + u64::from(cell.length));
                let is_kept = |buffer: &crate::device::Buffer| {
                    buffer.address() <= first && last <= buffer.address() + buffer.bytes()
                };
                assert!(column.strings.iter().any(is_kept), "a string lies in no buffer of its column");
                Value::Bytes(memory.download_from(first, cell.length as usize, Stream(0)).unwrap())
            })
            .collect(),
        CellType::Int256 => cells::<[u8; 32]>(memory, column, row_count)
            .iter()
            .map(|cell| large_number(i256::from_le_bytes(*cell)))
            .collect(),
        CellType::Interval => panic!("no file has intervals"),
    };
    validity.iter().zip(values).map(|(valid, value)| (*valid == 1).then_some(value)).collect()
}
