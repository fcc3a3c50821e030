//! Columns as Arrow arrays on the host.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray, Float32Array,
        Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, RecordBatch,
        RecordBatchOptions, make_array,
    },
    buffer::{Buffer as ArrowBuffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::cast,
    datatypes::{DataType as ArrowType, Field, IntervalMonthDayNano, Schema, SchemaRef, i256},
};
use bytemuck::{Pod, Zeroable};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{PackedText, Queue};
use crate::device::{CellType, Chunk, Column};

/// `IntervalCell` of kernels/abi/column.h.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct IntervalCell {
    microseconds: i64,
    days: i32,
    months: i32,
}

/// The schema of chunks with columns of these types, laid out as [`DataType::to_arrow`] says, except that
/// text and bytes have offsets.
pub fn column_schema(types: &[DataType]) -> SchemaRef {
    let field = |(index, data_type): (usize, &DataType)| {
        let layout = match data_type {
            DataType::Text => ArrowType::Utf8,
            DataType::Bytea => ArrowType::Binary,
            other => other.to_arrow(),
        };
        Field::new(format!("c{index}"), layout, true)
    };
    Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// Copies a chunk to the host.
///
/// # Errors
///
/// `OutOfMemory`, `NotSupported` for more than 2 GiB of text in a column, and faults of the device.
pub fn to_arrow(queue: &Queue, chunk: &Chunk, schema: &SchemaRef) -> Result<RecordBatch> {
    let arrays = chunk
        .columns
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| queue.to_array(column, chunk.row_count, field.data_type()))
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(chunk.row_count));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|error| from_arrow(&error))
}

fn from_arrow(error: &arrow::error::ArrowError) -> Error {
    Error::internal(format!("a chunk is no record batch: {error}"))
}

impl Queue {
    fn to_array(&self, column: &Column, row_count: usize, layout: &ArrowType) -> Result<ArrayRef> {
        let nulls = match &column.validity {
            None => None,
            Some(validity) => {
                let flags: Vec<u8> = self.download(validity, row_count)?;
                Some(NullBuffer::from_iter(flags.iter().map(|flag| *flag != 0)))
            }
        };
        Ok(match column.cell_type {
            CellType::Bool => {
                let cells: Vec<u8> = self.download(&column.values, row_count)?;
                let values = arrow::buffer::BooleanBuffer::collect_bool(row_count, |row| cells[row] != 0);
                Arc::new(BooleanArray::new(values, nulls))
            }
            CellType::Int16 => Arc::new(Int16Array::new(self.cells(column, row_count)?, nulls)),
            CellType::Int32 => {
                with_layout(Arc::new(Int32Array::new(self.cells(column, row_count)?, nulls)), layout)?
            }
            CellType::Int64 => match layout {
                ArrowType::Decimal128(..) => {
                    let cells: Vec<i64> = self.download(&column.values, row_count)?;
                    let values: ScalarBuffer<i128> = cells.into_iter().map(i128::from).collect();
                    with_layout(Arc::new(Decimal128Array::new(values, nulls)), layout)?
                }
                _ => with_layout(Arc::new(Int64Array::new(self.cells(column, row_count)?, nulls)), layout)?,
            },
            CellType::Int128 => {
                let cells: Vec<[u64; 2]> = self.download(&column.values, row_count)?;
                let wide = |[low, high]: [u64; 2]| ((u128::from(high) << 64) | u128::from(low)) as i128;
                let values: ScalarBuffer<i128> = cells.into_iter().map(wide).collect();
                with_layout(Arc::new(Decimal128Array::new(values, nulls)), layout)?
            }
            CellType::Int256 => {
                let cells: Vec<[u8; 32]> = self.download(&column.values, row_count)?;
                let values: ScalarBuffer<i256> = cells.into_iter().map(i256::from_le_bytes).collect();
                with_layout(Arc::new(Decimal256Array::new(values, nulls)), layout)?
            }
            CellType::Float32 => Arc::new(Float32Array::new(self.cells(column, row_count)?, nulls)),
            CellType::Float64 => Arc::new(Float64Array::new(self.cells(column, row_count)?, nulls)),
            CellType::Bytes16 => {
                let cells: Vec<[u8; 16]> = self.download(&column.values, row_count)?;
                let bytes: ArrowBuffer = cells.concat().into();
                Arc::new(FixedSizeBinaryArray::try_new(16, bytes, nulls).map_err(|error| from_arrow(&error))?)
            }
            CellType::Interval => {
                let cells: Vec<IntervalCell> = self.download(&column.values, row_count)?;
                let is_null = |row| nulls.as_ref().is_some_and(|nulls: &NullBuffer| nulls.is_null(row));
                let values = cells.iter().enumerate().map(|(row, cell)| match is_null(row) {
                    true => Ok(IntervalMonthDayNano::ZERO),
                    false => interval(cell),
                });
                let values = values.collect::<Result<ScalarBuffer<_>>>()?;
                Arc::new(IntervalMonthDayNanoArray::new(values, nulls))
            }
            CellType::String => self.to_strings(column, row_count, nulls, layout)?,
        })
    }

    fn cells<T: Pod + arrow::datatypes::ArrowNativeType>(
        &self,
        column: &Column,
        row_count: usize,
    ) -> Result<ScalarBuffer<T>> {
        Ok(self.download::<T>(&column.values, row_count)?.into())
    }

    fn to_strings(
        &self,
        column: &Column,
        row_count: usize,
        nulls: Option<NullBuffer>,
        layout: &ArrowType,
    ) -> Result<ArrayRef> {
        let PackedText { bytes, offsets, total_bytes: total } = self.pack(column, row_count, None)?;
        let bytes: Vec<u8> = self.download(&bytes, total as usize)?;
        let mut ends = Vec::with_capacity(row_count + 1);
        for offset in self.download::<u64>(&offsets, row_count)?.into_iter().chain([total]) {
            ends.push(i32::try_from(offset).map_err(|_| {
                let message = format!("a chunk has more text than a batch takes: bytes={total}");
                Error::new(ErrorKind::NotSupported, message)
            })?);
        }
        let data = arrow::array::ArrayData::builder(layout.clone())
            .len(row_count)
            .nulls(nulls)
            .add_buffer(OffsetBuffer::new(ends.into()).into_inner().into_inner())
            .add_buffer(bytes.into())
            .build()
            .map_err(|error| from_arrow(&error))?;
        Ok(make_array(data))
    }
}

fn interval(cell: &IntervalCell) -> Result<IntervalMonthDayNano> {
    let nanoseconds = cell.microseconds.checked_mul(1000).ok_or_else(|| {
        Error::new(ErrorKind::DatetimeOutOfRange, format!("interval out of range: us={}", cell.microseconds))
    })?;
    Ok(IntervalMonthDayNano::new(cell.months, cell.days, nanoseconds))
}

/// The same bits under another name: dates, times, decimals of some precision.
fn with_layout(array: ArrayRef, layout: &ArrowType) -> Result<ArrayRef> {
    if array.data_type() == layout {
        return Ok(array);
    }
    if let (ArrowType::Decimal128(precision, scale), Some(decimals)) =
        (layout, array.as_any().downcast_ref::<Decimal128Array>())
    {
        let retyped = decimals.clone().with_precision_and_scale(*precision, *scale);
        return Ok(Arc::new(retyped.map_err(|error| from_arrow(&error))?));
    }
    if let (ArrowType::Decimal256(precision, scale), Some(decimals)) =
        (layout, array.as_any().downcast_ref::<Decimal256Array>())
    {
        let retyped = decimals.clone().with_precision_and_scale(*precision, *scale);
        return Ok(Arc::new(retyped.map_err(|error| from_arrow(&error))?));
    }
    cast(&array, layout).map_err(|error| from_arrow(&error))
}
