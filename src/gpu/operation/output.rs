//! Columns as Arrow arrays on the host.
//!
//! Invariants: a batch has at most [`BATCH_TEXT_BYTES`] of text, unless one row alone has more.

use std::{collections::HashMap, ops::Range, sync::Arc};

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
use bytemuck::Pod;
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{ByteRange, MeasuredText, PackedText, Queue};
use crate::{
    abi::IntervalCell,
    device::{Buffer, CellType, Chunk, Column},
};

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

/// Text of a batch, all columns together: far less than what an offset of 32 bits reaches, and little enough that host and
/// device have room for a copy.
const BATCH_TEXT_BYTES: u64 = 64 << 20;

/// Buffers of a batch that are copied to the host together. More take longer to put together than a wait for each.
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Where each of them begins.
const PART_ALIGNMENT: usize = 16;

/// The batches of a chunk on the host.
pub struct ArrowBatches {
    /// `None` after the last one.
    chunk: Option<Chunk>,
    schema: SchemaRef,
    /// Where each batch ends, the last first.
    ends: Vec<usize>,
    first_row: usize,
    /// The text of the whole chunk, column by column, if it is one batch.
    measured: Vec<Option<MeasuredText>>,
}

impl ArrowBatches {
    /// Computes the batches of a chunk. Waits if it has text.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn new(queue: &Queue, chunk: Chunk, schema: &SchemaRef) -> Result<Self> {
        Self::of(queue, chunk, schema, BATCH_TEXT_BYTES)
    }

    fn of(queue: &Queue, chunk: Chunk, schema: &SchemaRef, text_bytes_max: u64) -> Result<Self> {
        let mut measured = measured_texts(queue, &chunk)?;
        let total: u64 = measured.iter().flatten().map(|text| text.total_bytes).sum();
        let ends = if total <= text_bytes_max {
            vec![chunk.row_count]
        } else {
            let mut before = vec![0_u64; chunk.row_count + 1];
            for MeasuredText { offsets, total_bytes, .. } in
                std::mem::take(&mut measured).into_iter().flatten()
            {
                let offsets = queue.download::<u64>(&offsets, chunk.row_count)?;
                before
                    .iter_mut()
                    .zip(offsets.into_iter().chain([total_bytes]))
                    .for_each(|(sum, one)| *sum += one);
            }
            ends_within(&before, text_bytes_max)
        };
        Ok(Self { chunk: Some(chunk), schema: schema.clone(), ends, first_row: 0, measured })
    }

    /// The next batch. The chunk is dropped with the last.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device; `DatetimeOutOfRange` for an interval that Arrow
    /// can't hold.
    pub fn next(&mut self, queue: &Queue) -> Result<Option<RecordBatch>> {
        let Some(chunk) = &self.chunk else { return Ok(None) };
        let Some(end) = self.ends.pop() else { return Ok(None) };
        let part = queue.slice(chunk, self.first_row, end - self.first_row)?;
        self.first_row = end;
        if self.ends.is_empty() {
            self.chunk = None;
        }
        batch_of(queue, &part, std::mem::take(&mut self.measured), &self.schema).map(Some)
    }
}

/// The text of each column that has some.
fn measured_texts(queue: &Queue, chunk: &Chunk) -> Result<Vec<Option<MeasuredText>>> {
    let is_text = |column: &&Column| column.cell_type == CellType::String;
    let texts: Vec<&Column> = chunk.columns.iter().filter(is_text).collect();
    let mut measured = queue.measure_texts(&texts, chunk.row_count)?.into_iter();
    let of_column = |column: &Column| is_text(&column).then(|| measured.next()).flatten();
    Ok(chunk.columns.iter().map(of_column).collect())
}

/// The ends of parts with so many bytes of text; the last end first.
fn ends_within(before: &[u64], text_bytes_max: u64) -> Vec<usize> {
    let row_count = before.len() - 1;
    let (mut ends, mut first) = (Vec::new(), 0);
    while first < row_count {
        let within = before[first..].partition_point(|bytes| bytes - before[first] <= text_bytes_max);
        // `within` counts at least the first row.
        first += (within - 1).max(1);
        ends.push(first);
    }
    ends.reverse();
    ends
}

/// Copies a chunk to the host whose text fits into one batch.
///
/// # Errors
///
/// Errors of [`ArrowBatches::next`]; `NotSupported` for more text than fits into a batch.
pub fn to_arrow(queue: &Queue, chunk: &Chunk, schema: &SchemaRef) -> Result<RecordBatch> {
    batch_of(queue, chunk, Vec::new(), schema)
}

/// The batch of a chunk. `measured`: the text of each column; of none if it is not known.
fn batch_of(
    queue: &Queue,
    chunk: &Chunk,
    mut measured: Vec<Option<MeasuredText>>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    if measured.is_empty() {
        measured = measured_texts(queue, chunk)?;
    }
    let packed = chunk.columns.iter().zip(measured).map(|(column, measured)| {
        measured.map(|measured| queue.copy_text(column, chunk.row_count, measured, None)).transpose()
    });
    let packed = packed.collect::<Result<Vec<_>>>()?;
    let mut buffers = Vec::new();
    for (column, packed) in chunk.columns.iter().zip(&packed) {
        buffers.extend(column.validity.as_ref().map(|validity| (validity, chunk.row_count)));
        match packed {
            Some(PackedText { bytes, offsets, total_bytes }) => {
                buffers.push((bytes, *total_bytes as usize));
                buffers.push((offsets, chunk.row_count * size_of::<u64>()));
            }
            None => buffers.push((&column.values, chunk.row_count * column.cell_type.bytes() as usize)),
        }
    }
    let fetched = Fetched::of(queue, &buffers)?;
    let columns = chunk.columns.iter().zip(packed).zip(schema.fields());
    let arrays = columns
        .map(|((column, packed), field)| {
            fetched.array(column, chunk.row_count, packed.as_ref(), field.data_type())
        })
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(chunk.row_count));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|error| from_arrow(&error))
}

/// Buffers of the device on the host: those of a small batch came in one copy, and others come when they are asked for.
struct Fetched<'a> {
    queue: &'a Queue,
    /// By address.
    parts: HashMap<u64, Range<usize>>,
    bytes: Vec<u8>,
}

impl<'a> Fetched<'a> {
    /// Copies the first bytes of each buffer if all are few.
    fn of(queue: &'a Queue, buffers: &[(&Buffer, usize)]) -> Result<Self> {
        let mut end = 0;
        let mut parts = HashMap::new();
        let mut ranges = Vec::with_capacity(buffers.len());
        for (buffer, bytes) in buffers {
            parts.insert(buffer.address(), end..end + bytes);
            ranges.push((buffer.address(), end as u64, *bytes as u64));
            end = (end + bytes).next_multiple_of(PART_ALIGNMENT);
        }
        if buffers.len() < 2 || end > TOGETHER_BYTES_MAX {
            return Ok(Self { queue, parts: HashMap::new(), bytes: Vec::new() });
        }
        let together = queue.allocate::<u8>(end as u64)?;
        let ranges = ranges.into_iter().map(|(source, place, bytes)| ByteRange {
            source,
            target: together.address() + place,
            bytes,
        });
        queue.copy_ranges(&ranges.collect::<Vec<_>>())?;
        Ok(Self { queue, parts, bytes: queue.download(&together, end)? })
    }

    fn get<T: Pod>(&self, buffer: &Buffer, count: usize) -> Result<Vec<T>> {
        match self.parts.get(&buffer.address()) {
            Some(part) if part.len() == count * size_of::<T>() => {
                let mut values = vec![T::zeroed(); count];
                bytemuck::cast_slice_mut(&mut values).copy_from_slice(&self.bytes[part.clone()]);
                Ok(values)
            }
            _ => self.queue.download(buffer, count),
        }
    }
}

fn from_arrow(error: &arrow::error::ArrowError) -> Error {
    Error::internal(format!("a chunk is no record batch: {error}"))
}

impl Fetched<'_> {
    fn array(
        &self,
        column: &Column,
        row_count: usize,
        packed: Option<&PackedText>,
        layout: &ArrowType,
    ) -> Result<ArrayRef> {
        let nulls = match &column.validity {
            None => None,
            Some(validity) => {
                let flags: Vec<u8> = self.get(validity, row_count)?;
                Some(NullBuffer::from_iter(flags.iter().map(|flag| *flag != 0)))
            }
        };
        Ok(match column.cell_type {
            CellType::Bool => {
                let cells: Vec<u8> = self.get(&column.values, row_count)?;
                let values = arrow::buffer::BooleanBuffer::collect_bool(row_count, |row| cells[row] != 0);
                Arc::new(BooleanArray::new(values, nulls))
            }
            CellType::Int16 => Arc::new(Int16Array::new(self.cells(column, row_count)?, nulls)),
            CellType::Int32 => {
                with_layout(Arc::new(Int32Array::new(self.cells(column, row_count)?, nulls)), layout)?
            }
            CellType::Int64 => match layout {
                ArrowType::Decimal128(..) => {
                    let cells: Vec<i64> = self.get(&column.values, row_count)?;
                    let values: ScalarBuffer<i128> = cells.into_iter().map(i128::from).collect();
                    with_layout(Arc::new(Decimal128Array::new(values, nulls)), layout)?
                }
                _ => with_layout(Arc::new(Int64Array::new(self.cells(column, row_count)?, nulls)), layout)?,
            },
            CellType::Int128 => {
                let cells: Vec<[u64; 2]> = self.get(&column.values, row_count)?;
                let wide = |[low, high]: [u64; 2]| ((u128::from(high) << 64) | u128::from(low)) as i128;
                let values: ScalarBuffer<i128> = cells.into_iter().map(wide).collect();
                with_layout(Arc::new(Decimal128Array::new(values, nulls)), layout)?
            }
            CellType::Int256 => {
                let cells: Vec<[u8; 32]> = self.get(&column.values, row_count)?;
                let values: ScalarBuffer<i256> = cells.into_iter().map(i256::from_le_bytes).collect();
                with_layout(Arc::new(Decimal256Array::new(values, nulls)), layout)?
            }
            CellType::Float32 => Arc::new(Float32Array::new(self.cells(column, row_count)?, nulls)),
            CellType::Float64 => Arc::new(Float64Array::new(self.cells(column, row_count)?, nulls)),
            CellType::Bytes16 => {
                let cells: Vec<[u8; 16]> = self.get(&column.values, row_count)?;
                let bytes: ArrowBuffer = cells.concat().into();
                Arc::new(FixedSizeBinaryArray::try_new(16, bytes, nulls).map_err(|error| from_arrow(&error))?)
            }
            CellType::Interval => {
                let cells: Vec<IntervalCell> = self.get(&column.values, row_count)?;
                let is_null = |row| nulls.as_ref().is_some_and(|nulls: &NullBuffer| nulls.is_null(row));
                let values = cells.iter().enumerate().map(|(row, cell)| match is_null(row) {
                    true => Ok(IntervalMonthDayNano::ZERO),
                    false => interval(cell),
                });
                let values = values.collect::<Result<ScalarBuffer<_>>>()?;
                Arc::new(IntervalMonthDayNanoArray::new(values, nulls))
            }
            CellType::String => {
                let packed = packed.ok_or_else(|| Error::internal("text that was not packed"))?;
                self.strings(packed, row_count, nulls, layout)?
            }
        })
    }

    fn cells<T: Pod + arrow::datatypes::ArrowNativeType>(
        &self,
        column: &Column,
        row_count: usize,
    ) -> Result<ScalarBuffer<T>> {
        Ok(self.get::<T>(&column.values, row_count)?.into())
    }

    fn strings(
        &self,
        PackedText { bytes, offsets, total_bytes }: &PackedText,
        row_count: usize,
        nulls: Option<NullBuffer>,
        layout: &ArrowType,
    ) -> Result<ArrayRef> {
        let total = *total_bytes;
        let bytes: Vec<u8> = self.get(bytes, total as usize)?;
        let mut ends = Vec::with_capacity(row_count + 1);
        for offset in self.get::<u64>(offsets, row_count)?.into_iter().chain([total]) {
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

#[cfg(test)]
mod tests {
    use super::ends_within;

    #[test]
    fn parts_have_as_much_text_as_they_may_or_one_row() {
        let ends = |lengths: &[u64], most: u64| {
            let mut before = vec![0];
            before.extend(lengths.iter().scan(0, |sum, length| {
                *sum += length;
                Some(*sum)
            }));
            let mut ends = ends_within(&before, most);
            ends.reverse();
            ends
        };
        assert_eq!(ends(&[1, 1, 1, 1], 10), [4]);
        assert_eq!(ends(&[5, 5, 5, 5], 10), [2, 4]);
        assert_eq!(ends(&[5, 6, 5, 5], 10), [1, 2, 4]);
        assert_eq!(ends(&[0, 40, 0, 0, 11, 0], 10), [1, 2, 4, 5, 6]);
        assert_eq!(ends(&[], 10), [0; 0]);
    }
}
