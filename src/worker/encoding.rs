//! Record batches as frames, and rows of frames as record batches.
//!
//! Invariants: no dictionaries on the wire. A frame holds about [`BATCH_BYTES_MAX`] bytes at most, unless
//! one row alone is larger. Buffers are shared with the batch, not copied, where Arrow allows it.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryViewArray, ListArray, RecordBatch, RecordBatchOptions,
        StringViewArray, StructArray,
    },
    buffer::Buffer,
    compute::cast,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
    ipc::reader::StreamDecoder,
    ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, StreamEncoder, write_message},
};
use pystachio_plan::{Error, ErrorKind, FrameKind, Result};

use crate::Frame;

/// Batches that take more than this are split: a reader holds a whole frame in memory, and a cancelled
/// one has to be drained.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Turns the batches of one result into frames.
pub struct BatchEncoder {
    schema: SchemaRef,
    encoder: StreamEncoder,
}

impl BatchEncoder {
    /// An encoder for batches of this schema, and the frame that tells the reader about it.
    ///
    /// # Errors
    ///
    /// [`pystachio_plan::ErrorKind::Internal`] if Arrow IPC has no form for the schema.
    pub fn try_new(schema: &Schema) -> Result<(Self, Frame)> {
        let schema = Arc::new(plain_schema(schema));
        let mut encoder = StreamEncoder::try_new(&schema).map_err(encoding_failed)?;
        // The first batch carries the schema, which has a frame of its own here: spend it on no rows.
        encoder.encode(&RecordBatch::new_empty(schema.clone())).map_err(encoding_failed)?;
        let frame = schema_frame(&schema)?;
        Ok((Self { schema, encoder }, frame))
    }

    /// A batch as one frame, or as several if it is large.
    ///
    /// # Errors
    ///
    /// [`pystachio_plan::ErrorKind::Internal`] if the batch is not of the schema;
    /// [`pystachio_plan::ErrorKind::Protocol`] if a row is larger than a frame can be.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<Frame>> {
        let mut frames = Vec::with_capacity(1);
        self.encode_parts(batch, &mut frames)?;
        Ok(frames)
    }

    fn encode_parts(&mut self, batch: &RecordBatch, frames: &mut Vec<Frame>) -> Result<()> {
        let plain = self.plain_batch(batch)?;
        let bytes: usize = plain.columns().iter().map(wire_bytes).sum();
        if bytes > BATCH_BYTES_MAX && batch.num_rows() > 1 {
            let parts = bytes.div_ceil(BATCH_BYTES_MAX).min(batch.num_rows());
            let part_rows = batch.num_rows().div_ceil(parts);
            for start in (0..batch.num_rows()).step_by(part_rows) {
                let part = batch.slice(start, part_rows.min(batch.num_rows() - start));
                self.encode_parts(&part, frames)?;
            }
            return Ok(());
        }
        let body = self.encoder.encode(&plain).map_err(encoding_failed)?;
        frames.push(Frame::new(FrameKind::Batch, body)?);
        Ok(())
    }

    fn plain_batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(column, field)| plain_column(column, field.data_type()))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(encoding_failed)?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(encoding_failed)
    }
}

/// Turns the frames of rows that a client sends into batches. Together, their bodies are an Arrow IPC stream.
#[derive(Default)]
pub struct BatchDecoder(StreamDecoder);

impl BatchDecoder {
    /// The batches of one frame.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for bytes that are no such stream.
    pub fn decode(&mut self, body: Vec<u8>) -> Result<Vec<RecordBatch>> {
        let failed = |error| Error::new(ErrorKind::Protocol, format!("rows can't be decoded: {error}"));
        let mut rest = Buffer::from(body);
        let mut batches = Vec::with_capacity(1);
        while !rest.is_empty() {
            batches.extend(self.0.decode(&mut rest).map_err(failed)?);
        }
        Ok(batches)
    }
}

fn schema_frame(schema: &Schema) -> Result<Frame> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let encoded =
        IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    let mut body = Vec::new();
    write_message(&mut body, encoded, &options).map_err(encoding_failed)?;
    Frame::new(FrameKind::Schema, vec![Buffer::from(body)])
}

fn plain_schema(schema: &Schema) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), plain_type(field.data_type()), field.is_nullable()))
        .collect();
    Schema::new(fields)
}

/// The type without dictionaries.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::List(item) => DataType::List(Arc::new(Field::new(
            item.name(),
            plain_type(item.data_type()),
            item.is_nullable(),
        ))),
        DataType::Struct(fields) => DataType::Struct(plain_schema(&Schema::new(fields.clone())).fields),
        other => other.clone(),
    }
}

fn plain_column(column: &ArrayRef, data_type: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    let column = if column.data_type() == data_type { column.clone() } else { cast(column, data_type)? };
    Ok(match data_type {
        DataType::Utf8View => {
            compact_text(column.as_string_view()).map_or(column, |compact| Arc::new(compact))
        }
        DataType::BinaryView => {
            compact_bytes(column.as_binary_view()).map_or(column, |compact| Arc::new(compact))
        }
        DataType::Struct(fields) => {
            let record = column.as_struct();
            let parts = record.columns().iter().zip(fields);
            let parts = parts.map(|(part, field)| plain_column(part, field.data_type()));
            let parts = parts.collect::<std::result::Result<Vec<_>, _>>()?;
            let nulls = record.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(fields.clone(), parts, nulls, record.len())?)
        }
        DataType::List(item) => {
            let list = column.as_list::<i32>();
            let items = plain_column(list.values(), item.data_type())?;
            Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), items, list.nulls().cloned())?)
        }
        _ => column,
    })
}

/// Views carry their whole buffers onto the wire. Where the views use less than half of them, copying the
/// used part is cheaper than shipping the rest.
fn compact_text(views: &StringViewArray) -> Option<StringViewArray> {
    is_sparse(views.data_buffers(), || views.total_buffer_bytes_used()).then(|| views.gc())
}

fn compact_bytes(views: &BinaryViewArray) -> Option<BinaryViewArray> {
    is_sparse(views.data_buffers(), || views.total_buffer_bytes_used()).then(|| views.gc())
}

fn is_sparse(buffers: &[Buffer], used_bytes: impl Fn() -> usize) -> bool {
    let buffer_bytes: usize = buffers.iter().map(Buffer::len).sum();
    buffer_bytes > 0 && buffer_bytes / 2 > used_bytes()
}

fn wire_bytes(column: &ArrayRef) -> usize {
    let views = |buffers: &[Buffer]| 16 * column.len() + buffers.iter().map(Buffer::len).sum::<usize>();
    match column.data_type() {
        DataType::Utf8View => views(column.as_string_view().data_buffers()),
        DataType::BinaryView => views(column.as_binary_view().data_buffers()),
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}

fn encoding_failed(error: ArrowError) -> Error {
    Error::internal(format!("result can't be encoded: {error}"))
}
