//! One partition's stream of batches.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_plan::{
        ExecutionPlan,
        metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder},
    },
};
use arrow::{
    array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::{BatchCoalescer, FilterBuilder},
    datatypes::SchemaRef,
};
use pystachio_engine::{StopFlag, locking::whole};
use pystachio_plan::{Error, ErrorKind};

use super::{
    BATCH_ROWS, PIECE_ROWS,
    decode::ColumnReader,
    exec::{RowGroupScanExec, ScanQueue, ScanUnit},
    filter::{Condition, DynamicCondition},
    pruning::RowGroupPruner,
    table::{ScanFile, ScanTable},
};
use crate::{
    cache::{Chunk, ChunkKey, ColumnCache},
    error::to_datafusion,
    pool::{CHUNK_CONSUMER, SCAN_CONSUMER},
    stopping,
};

/// What a decoded value takes, roughly: a decimal, or the view of a text.
const DECODED_BYTES: usize = 16;

/// What a scan counts.
pub(super) struct ScanMetrics {
    baseline: BaselineMetrics,
    bytes_read: Count,
    row_groups_pruned: Count,
    cache_hits: Count,
    cache_misses: Count,
}

impl ScanMetrics {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            bytes_read: counter("bytes_read"),
            row_groups_pruned: counter("row_groups_pruned"),
            cache_hits: counter("cache_hits"),
            cache_misses: counter("cache_misses"),
        }
    }
}

/// The state of one partition.
pub(super) struct PartitionScan {
    table: Arc<ScanTable>,
    cache: Arc<ColumnCache>,
    projection: Vec<usize>,
    schema: SchemaRef,
    conditions: Vec<Condition>,
    dynamic: Vec<DynamicCondition>,
    /// The dynamic conditions for pruning, and what they say about each file's row groups.
    pruner: Option<RowGroupPruner>,
    pruned: Option<(usize, Vec<bool>)>,
    queue: Arc<ScanQueue>,
    current: Option<RowGroup>,
    coalescer: Option<BatchCoalescer>,
    ready: VecDeque<RecordBatch>,
    metrics: ScanMetrics,
    /// Set when the query is not wanted any more.
    stop: StopFlag,
    /// From which memory for chunks is reserved.
    chunks: MemoryReservation,
    /// What readers of row groups hold, and their last batch.
    reading: HighWater,
}

/// The row group that is being read.
struct RowGroup {
    unit: ScanUnit,
    row_count: usize,
    position: usize,
    source: RowGroupSource,
}

enum RowGroupSource {
    /// Decoded chunks of the columns that were needed so far.
    Chunks(Vec<Option<Arc<Chunk>>>),
    /// A reader of all columns.
    Reader(RowGroupReader),
}

/// The most that was needed so far, which stays reserved: what comes next needs as much, and operators that
/// can spill see from the beginning what is left for them.
struct HighWater(MemoryReservation);

impl HighWater {
    fn keep(&self, bytes: usize) -> DataFusionResult<()> {
        self.0.try_grow(bytes.saturating_sub(self.0.size()))
    }
}

struct RowGroupReader {
    /// The lock is never contended: it lets references to the state cross threads, for the reader itself
    /// may only move.
    reader: Mutex<ColumnReader>,
    bytes_held: usize,
}

/// Rows of the current row group that filters are evaluated on.
struct Slice {
    start: usize,
    row_count: usize,
    /// Columns of the table, where the source has them at hand.
    columns: Vec<Option<ArrayRef>>,
}

impl PartitionScan {
    pub(super) fn try_new(
        exec: &RowGroupScanExec,
        queue: Arc<ScanQueue>,
        metrics: ScanMetrics,
        context: &TaskContext,
    ) -> DataFusionResult<Self> {
        let table = exec.table.clone();
        let conditions = exec
            .filters
            .iter()
            .map(|filter| Condition::try_new(filter, &table.schema))
            .collect::<DataFusionResult<_>>()?;
        let schema = exec.schema();
        let consumer = |name: &str| MemoryConsumer::new(name).register(context.memory_pool());
        // Rows without columns are counted, not copied.
        let coalescer =
            (!schema.fields().is_empty()).then(|| BatchCoalescer::new(schema.clone(), BATCH_ROWS));
        Ok(Self {
            cache: exec.cache.clone(),
            projection: exec.projection.clone(),
            schema,
            conditions,
            dynamic: exec.dynamic_filters.iter().cloned().map(DynamicCondition::new).collect(),
            pruner: None,
            pruned: None,
            queue,
            current: None,
            coalescer,
            ready: VecDeque::new(),
            metrics,
            stop: stopping::flag_of(context),
            reading: HighWater(consumer(SCAN_CONSUMER)),
            chunks: consumer(CHUNK_CONSUMER),
            table,
        })
    }

    /// The next batch, or `None` after the last.
    pub(super) async fn next_batch(&mut self) -> DataFusionResult<Option<RecordBatch>> {
        loop {
            stopping::check(&self.stop)?;
            if let Some(batch) = self.take_ready() {
                return Ok(self.limited(batch));
            }
            if self.queue.is_exhausted() {
                return Ok(None);
            }
            if self.current.is_none() && !self.open_next()? {
                return Ok(self.flush()?.and_then(|batch| self.limited(batch)));
            }
            self.read_slice().await?;
        }
    }

    fn take_ready(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front().or_else(|| self.coalescer.as_mut()?.next_completed_batch())
    }

    fn flush(&mut self) -> DataFusionResult<Option<RecordBatch>> {
        let Some(coalescer) = &mut self.coalescer else { return Ok(None) };
        coalescer.finish_buffered_batch()?;
        Ok(coalescer.next_completed_batch())
    }

    fn limited(&self, batch: RecordBatch) -> Option<RecordBatch> {
        let row_count = self.queue.take_rows(batch.num_rows());
        if row_count == 0 {
            return None;
        }
        self.metrics.baseline.record_output(row_count);
        Some(if row_count < batch.num_rows() { batch.slice(0, row_count) } else { batch })
    }

    /// Claims the next row group that may have rows; false after the last.
    fn open_next(&mut self) -> DataFusionResult<bool> {
        let elapsed = self.metrics.baseline.elapsed_compute().clone();
        let _timer = elapsed.timer();
        while let Some(unit) = self.queue.claim() {
            if !self.may_match(unit)? {
                self.metrics.row_groups_pruned.add(1);
                continue;
            }
            let file = &self.table.files[unit.file];
            let row_count = file.footer().metadata().row_group(unit.row_group).num_rows();
            let source = if self.fits_cache(row_count) {
                RowGroupSource::Chunks(vec![None; self.table.columns.len()])
            } else {
                let columns: Vec<usize> = (0..self.table.columns.len()).collect();
                let bytes_held = ColumnReader::bytes_to_read(file, unit.row_group, &columns);
                self.reading.keep(bytes_held)?;
                let pages = self.reading.0.new_empty();
                let reader = ColumnReader::try_new(file, unit.row_group, &columns, BATCH_ROWS, pages)
                    .map_err(to_datafusion)?;
                self.metrics.bytes_read.add(reader.bytes_read);
                RowGroupSource::Reader(RowGroupReader { reader: Mutex::new(reader), bytes_held })
            };
            self.current = Some(RowGroup {
                unit,
                row_count: usize::try_from(row_count).unwrap_or(0),
                position: 0,
                source,
            });
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether the cache is on and could hold the scan's columns of a row group of so many rows. Larger ones
    /// would be decoded whole only to be dropped.
    fn fits_cache(&self, row_count: i64) -> bool {
        let row_bytes = DECODED_BYTES * self.table.columns.len().max(1);
        let row_count = usize::try_from(row_count).unwrap_or(usize::MAX);
        self.cache.is_enabled() && row_count.saturating_mul(row_bytes) <= self.cache.bytes_max() / 2
    }

    /// Whether the dynamic conditions, as they are now, leave the row group any rows.
    fn may_match(&mut self, unit: ScanUnit) -> DataFusionResult<bool> {
        let mut changed = false;
        for condition in &mut self.dynamic {
            changed |= condition.refresh(&self.table.schema)?;
        }
        if changed {
            let snapshots = self.dynamic.iter().map(|condition| condition.snapshot(&self.table.schema));
            let snapshots = snapshots.collect::<DataFusionResult<Vec<_>>>()?;
            self.pruner = RowGroupPruner::try_new(&snapshots, &self.table.schema);
            self.pruned = None;
        }
        let Some(pruner) = &self.pruner else { return Ok(true) };
        if self.pruned.as_ref().is_none_or(|(file, _)| *file != unit.file) {
            self.pruned = Some((unit.file, pruner.may_match(&self.table, &self.table.files[unit.file])));
        }
        let kept = self.pruned.as_ref().and_then(|(_, kept)| kept.get(unit.row_group));
        Ok(kept.copied().unwrap_or(true))
    }

    /// Evaluates the conditions on the next rows of the current row group and hands on what they keep.
    async fn read_slice(&mut self) -> DataFusionResult<()> {
        let Some(mut row_group) = self.current.take() else { return Ok(()) };
        let Some(mut slice) = self.next_slice(&mut row_group)? else { return Ok(()) };
        let mut selection: Option<BooleanArray> = None;
        let mut rows_kept = slice.row_count;
        for index in 0..self.conditions.len() {
            let inputs = self.conditions[index].inputs.clone();
            let columns = self.columns(&mut row_group, &mut slice, &inputs).await?;
            let timer = self.metrics.baseline.elapsed_compute().timer();
            let kept = self.conditions[index].evaluate(columns, slice.row_count, selection.as_ref())?;
            timer.done();
            rows_kept = kept.true_count();
            selection = Some(kept);
            if rows_kept == 0 {
                break;
            }
        }
        for (index, part) in self.dynamic_parts() {
            let Some(inputs) = self.dynamic[index].parts()[part].worthwhile_inputs() else { continue };
            if rows_kept == 0 {
                break;
            }
            let columns = self.columns(&mut row_group, &mut slice, &inputs).await?;
            let timer = self.metrics.baseline.elapsed_compute().timer();
            let condition = &mut self.dynamic[index].parts_mut()[part];
            let kept = condition.evaluate(columns, slice.row_count, selection.as_ref())?;
            timer.done();
            rows_kept = kept.true_count();
            selection = Some(kept);
        }
        if rows_kept > 0 {
            let projection = self.projection.clone();
            let columns = self.columns(&mut row_group, &mut slice, &projection).await?;
            let elapsed = self.metrics.baseline.elapsed_compute().clone();
            let timer = elapsed.timer();
            self.emit(columns, slice.row_count, rows_kept, selection.as_ref())?;
            timer.done();
        }
        if row_group.position < row_group.row_count {
            self.current = Some(row_group);
        } else if let RowGroupSource::Reader(reader) = &mut row_group.source {
            // The reader must agree that there are no more rows.
            let file = &self.table.files[row_group.unit.file];
            reader.next(&self.table, file, &self.reading)?;
        }
        Ok(())
    }

    fn emit(
        &mut self,
        columns: Vec<ArrayRef>,
        row_count: usize,
        rows_kept: usize,
        selection: Option<&BooleanArray>,
    ) -> DataFusionResult<()> {
        let Some(coalescer) = &mut self.coalescer else {
            let options = RecordBatchOptions::new().with_row_count(Some(rows_kept));
            self.ready.push_back(RecordBatch::try_new_with_options(
                self.schema.clone(),
                Vec::new(),
                &options,
            )?);
            return Ok(());
        };
        let Some(selection) = selection.filter(|_| rows_kept < row_count) else {
            let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
            if coalescer.is_empty() {
                self.ready.push_back(batch);
            } else {
                coalescer.push_batch(batch)?;
            }
            return Ok(());
        };
        // Which rows survive is worked out once for all columns.
        let filter = FilterBuilder::new(selection).optimize().build();
        let columns = columns
            .iter()
            .map(|column| filter.filter(column.as_ref()))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        // Copying once more would cost more than a batch that is a little short.
        if rows_kept >= BATCH_ROWS / 2 && coalescer.is_empty() {
            self.ready.push_back(batch);
        } else {
            coalescer.push_batch(batch)?;
        }
        Ok(())
    }

    /// Every part of every dynamic condition, as places in `dynamic` and in its parts.
    fn dynamic_parts(&self) -> Vec<(usize, usize)> {
        let parts = self.dynamic.iter().enumerate();
        parts
            .flat_map(|(index, condition)| (0..condition.parts().len()).map(move |part| (index, part)))
            .collect()
    }

    fn next_slice(&self, row_group: &mut RowGroup) -> DataFusionResult<Option<Slice>> {
        let file = &self.table.files[row_group.unit.file];
        let start = row_group.position;
        match &mut row_group.source {
            RowGroupSource::Chunks(_) => {
                let row_count = BATCH_ROWS.min(row_group.row_count - start);
                row_group.position += row_count;
                Ok(Some(Slice { start, row_count, columns: vec![None; self.table.columns.len()] }))
            }
            RowGroupSource::Reader(reader) => {
                let timer = self.metrics.baseline.elapsed_compute().timer();
                let batch = reader.next(&self.table, file, &self.reading)?;
                timer.done();
                Ok(batch.map(|(row_count, columns)| {
                    row_group.position += row_count;
                    Slice { start, row_count, columns: columns.into_iter().map(Some).collect() }
                }))
            }
        }
    }

    /// Some of the table's columns for a slice; chunks that are not at hand are read.
    async fn columns(
        &self,
        row_group: &mut RowGroup,
        slice: &mut Slice,
        wanted: &[usize],
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let mut arrays = Vec::with_capacity(wanted.len());
        for column in wanted {
            if slice.columns[*column].is_none() {
                let array = self.chunk_slice(row_group, slice, *column).await?;
                slice.columns[*column] = Some(array);
            }
            arrays.extend(slice.columns[*column].clone());
        }
        Ok(arrays)
    }

    async fn chunk_slice(
        &self,
        row_group: &mut RowGroup,
        slice: &Slice,
        column: usize,
    ) -> DataFusionResult<ArrayRef> {
        let unit = row_group.unit;
        let RowGroupSource::Chunks(chunks) = &mut row_group.source else {
            return Err(to_datafusion(Error::internal("a reader's batch lacks a column")));
        };
        let chunk = match &chunks[column] {
            Some(chunk) => chunk,
            None => {
                let chunk = self.chunk(unit, column).await?;
                chunks[column].insert(chunk)
            }
        };
        let piece = chunk
            .pieces
            .get(slice.start / PIECE_ROWS)
            .filter(|piece| slice.start % PIECE_ROWS + slice.row_count <= piece.len());
        let Some(piece) = piece else {
            return Err(to_datafusion(Error::internal("a chunk is shorter than its row group")));
        };
        Ok(piece.slice(slice.start % PIECE_ROWS, slice.row_count))
    }

    /// A column of a row group, from the cache or from the file.
    async fn chunk(&self, unit: ScanUnit, column: usize) -> DataFusionResult<Arc<Chunk>> {
        let file = &self.table.files[unit.file];
        let key = ChunkKey {
            identity: file.footer().identity,
            row_group: unit.row_group,
            column: file.columns[column].index,
            variant: self.table.columns[column].variant.clone(),
        };
        if let Some(chunk) = self.cache.get(&key) {
            self.metrics.cache_hits.add(1);
            return Ok(chunk);
        }
        self.metrics.cache_misses.add(1);
        let chunk = Arc::new(self.decode(file, unit, column).await?);
        self.cache.insert(key, &chunk, file.columns[column].source.clone());
        Ok(chunk)
    }

    async fn decode(&self, file: &ScanFile, unit: ScanUnit, column: usize) -> DataFusionResult<Chunk> {
        let reservation = self.chunks.new_empty();
        reservation.try_grow(ColumnReader::bytes_to_read(file, unit.row_group, &[column]))?;
        let timer = self.metrics.baseline.elapsed_compute().timer();
        let pages = self.chunks.new_empty();
        let mut reader = ColumnReader::try_new(file, unit.row_group, &[column], PIECE_ROWS, pages)
            .map_err(to_datafusion)?;
        timer.done();
        self.metrics.bytes_read.add(reader.bytes_read);
        let mut pieces = Vec::new();
        loop {
            let timer = self.metrics.baseline.elapsed_compute().timer();
            let batch = reader.next(&self.table, file).map_err(to_datafusion)?;
            timer.done();
            let Some((row_count, arrays)) = batch else { break };
            // Slices are cut at multiples of a batch, so every piece but the last must be whole.
            if pieces.last().is_some_and(|last: &ArrayRef| last.len() != PIECE_ROWS) || row_count > PIECE_ROWS
            {
                return Err(to_datafusion(Error::new(
                    ErrorKind::Internal,
                    format!("the Parquet reader cut file \"{}\" unevenly", file.path.display()),
                )));
            }
            for array in arrays {
                reservation.try_grow(array.get_array_memory_size())?;
                pieces.push(array);
            }
            // Gives a cancellation the chance to arrive between pieces.
            tokio::task::yield_now().await;
        }
        drop(reader);
        Ok(Chunk::new(pieces, reservation))
    }
}

impl RowGroupReader {
    /// As [`ColumnReader::next`]; the batch before is given back.
    fn next(
        &mut self,
        table: &ScanTable,
        file: &ScanFile,
        reading: &HighWater,
    ) -> DataFusionResult<Option<(usize, Vec<ArrayRef>)>> {
        let reader = whole(self.reader.get_mut());
        let batch = reader.next(table, file).map_err(to_datafusion)?;
        let arrays = batch.iter().flat_map(|(_, arrays)| arrays);
        let batch_bytes: usize = arrays.map(|array| array.get_array_memory_size()).sum();
        reading.keep(self.bytes_held + batch_bytes)?;
        Ok(batch)
    }
}
