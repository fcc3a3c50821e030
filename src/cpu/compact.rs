//! Batches that hold no more memory than their rows take.
//!
//! A batch may be a small part of buffers that it keeps alive: of a whole row group, of all rows of a sorted run. An operator that
//! keeps batches reserves all of that, for every one of them, and one that spills never has enough.

use std::{fmt, sync::Arc};

use crate::datafusion::{
    error::{DataFusionError, Result as DataFusionResult},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, UInt32Array},
    buffer::OffsetBuffer,
    compute::take,
    datatypes::DataType,
};
use futures::StreamExt;

use crate::inputs::{with_one_input, without_expressions};

/// What a batch takes at most, if it has more than one row: some of them are held for each file that a merge reads.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// A cell of text or bytes, which points to what it has no room for.
const VIEW_BYTES: usize = 16;

/// What a batch's rows take of its buffers.
pub(crate) fn used_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| used_bytes_of(column.as_ref())).sum()
}

fn used_bytes_of(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used() + VIEW_BYTES * column.len(),
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used() + VIEW_BYTES * column.len(),
        // A part of a column of arrays has the elements of all its rows below it.
        DataType::List(_) => {
            let (items, _) = own_items(column.as_list());
            used_bytes_of(items.as_ref()) + size_of::<i32>() * (column.len() + 1)
        }
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}

/// Whether most of what the array's buffers hold is not the array's.
fn is_wasteful(column: &dyn Array) -> bool {
    column.get_buffer_memory_size() > 2 * used_bytes_of(column)
}

/// The elements of an array's rows alone, and the offsets in them.
fn own_items(lists: &ListArray) -> (ArrayRef, OffsetBuffer<i32>) {
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0], offsets[lists.len()]);
    let own = offsets.iter().map(|offset| offset - first).collect();
    (lists.values().slice(first as usize, (last - first) as usize), OffsetBuffer::new(own))
}

/// Text and bytes without the parts of buffers that they do not use, in arrays too. Other columns stay as they are.
pub(crate) fn without_unused_text(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View if is_wasteful(column.as_ref()) => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView if is_wasteful(column.as_ref()) => Arc::new(column.as_binary_view().gc()),
        DataType::List(field) if is_wasteful(column.as_ref()) => {
            let (items, offsets) = own_items(column.as_list());
            let items = without_unused_text(items);
            Arc::new(ListArray::new(field.clone(), offsets, items, column.nulls().cloned()))
        }
        _ => column,
    }
}

/// The column without the parts of buffers that it does not use.
pub(crate) fn compact_column(column: &ArrayRef) -> DataFusionResult<ArrayRef> {
    if !is_wasteful(column.as_ref()) {
        return Ok(column.clone());
    }
    let rows =
        u32::try_from(column.len()).map_err(|_| DataFusionError::Internal("a batch is too long".into()))?;
    Ok(without_unused_text(take(column, &UInt32Array::from_iter_values(0..rows), None)?))
}

/// The rows in batches of so many at most, and of [`BATCH_BYTES_MAX`], that hold nothing else.
fn compact(
    batch: RecordBatch,
    rows_max: usize,
) -> impl Iterator<Item = DataFusionResult<RecordBatch>> + Send {
    let row_count = batch.num_rows();
    let row_bytes = used_bytes(&batch) / row_count.max(1);
    let rows_max = (BATCH_BYTES_MAX / row_bytes.max(1)).clamp(1, rows_max.max(1));
    (0..row_count).step_by(rows_max).map(move |start| {
        let part = batch.slice(start, rows_max.min(row_count - start));
        let columns = part.columns().iter().map(compact_column).collect::<DataFusionResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(part.num_rows()));
        Ok(RecordBatch::try_new_with_options(part.schema(), columns, &options)?)
    })
}

/// An operator's output in small batches that hold nothing but their rows.
#[derive(Debug)]
pub(crate) struct CompactExec {
    input: Arc<dyn ExecutionPlan>,
}

impl CompactExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }

    /// The same over another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Ok(Self::new(input))
    }
}

impl DisplayAs for CompactExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CompactExec")
    }
}

impl ExecutionPlan for CompactExec {
    fn name(&self) -> &'static str {
        "CompactExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    with_one_input!();

    without_expressions!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let rows_max = context.session_config().batch_size();
        let input = self.input.execute(partition, context)?;
        let schema = input.schema();
        let batches = input.flat_map(move |batch| {
            let (batch, error) = match batch {
                Ok(batch) => (Some(batch), None),
                Err(error) => (None, Some(Err(error))),
            };
            futures::stream::iter(
                batch.into_iter().flat_map(move |batch| compact(batch, rows_max)).chain(error),
            )
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringViewArray};

    #[test]
    fn a_part_of_a_batch_holds_its_rows_alone() {
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter((0..100_000).map(|n| (n % 7 != 0).then_some(n))));
        let words = (0..100_000).map(|n| (n % 5 != 0).then(|| format!("a word that is not inlined, {n}")));
        let words: ArrayRef = Arc::new(StringViewArray::from_iter(words));
        let batch =
            RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("w", words, true)]).unwrap();
        let part = batch.slice(50_000, 5000);
        assert!(part.get_array_memory_size() > 1 << 20);
        let batches: Vec<RecordBatch> = compact(part.clone(), 1000).collect::<DataFusionResult<_>>().unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [1000; 5]);
        for (number, batch) in batches.iter().enumerate() {
            assert_eq!(*batch, part.slice(number * 1000, 1000));
            assert!(batch.get_array_memory_size() < 200_000, "{}", batch.get_array_memory_size());
        }
        // Wide rows come in fewer, and one that is wider than all comes alone.
        let wide: ArrayRef =
            Arc::new(StringViewArray::from_iter_values((0..4).map(|n: usize| n.to_string().repeat(100_000))));
        let wide = RecordBatch::try_from_iter([("w", wide)]).unwrap();
        assert_eq!(compact(wide, 1000).count(), 4);
        // What wastes nothing is not copied.
        let whole = batch.slice(0, 500);
        let compacted = compact(whole, 1000).next().unwrap().unwrap();
        let again = compact(compacted.clone(), 1000).next().unwrap().unwrap();
        let address = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr();
        assert_eq!(address(&compacted), address(&again));
    }
}
