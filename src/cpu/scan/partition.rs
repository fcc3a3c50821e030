//! One partition's stream of batches.
//!
//! Without memory a row group is read batch by batch, where it was to be decoded whole for the cache; and where that is refused
//! too, it is left to the partitions that read beside this one, which ends. So as many partitions read as there is memory for.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::datafusion::{
    error::{DataFusionError, Result as DataFusionResult},
    execution::TaskContext,
    physical_plan::ExecutionPlan,
};
use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::{BatchCoalescer, FilterBuilder},
    datatypes::SchemaRef,
};
use pystachio_engine::StopFlag;
use pystachio_plan::ErrorKind;

use super::{
    BATCH_ROWS,
    exec::RowGroupScanExec,
    filter::{DynamicCondition, JudgedCondition, ScanCondition},
    metrics::ScanMetrics,
    pruning::RowGroupPruner,
    queue::{Company, QueueReader, Refused, ScanQueue, ScanUnit},
    row_group::{ReadWay, RowGroup, RowGroupSource},
    selected_rows::SelectedRows,
    table::ScanTable,
};
use crate::{error::from_datafusion, stopping};

/// Bytes of row groups that are fetched from a store before a partition of the scan claims them.
const AHEAD_BYTES: u64 = 32 << 20;

/// The state of one partition.
pub(super) struct PartitionScan {
    table: Arc<ScanTable>,
    projection: Vec<usize>,
    schema: SchemaRef,
    conditions: Vec<ScanCondition>,
    dynamic: Vec<DynamicCondition>,
    /// The dynamic conditions for pruning, and what they say about each file's row groups.
    pruner: Option<RowGroupPruner>,
    pruned: HashMap<usize, Vec<bool>>,
    queue: Arc<ScanQueue>,
    coalescer: Option<BatchCoalescer>,
    ready: VecDeque<RecordBatch>,
    metrics: Arc<ScanMetrics>,
    /// Set when the query is not wanted any more.
    stop: StopFlag,
    /// Whether a file of the table is an object.
    has_objects: bool,
    /// Whether no chunk for the cache was refused so far. Where one was there is none for the next.
    has_room: bool,
    /// Whether the row group before this one was read beyond the columns of the first condition.
    has_late_columns: bool,
    current: Option<RowGroup>,
    source: RowGroupSource,
    /// The last field: others may count on memory as soon as this is dropped.
    reader: QueueReader,
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
            .map(|filter| ScanCondition::try_new(filter, &table.schema))
            .collect::<DataFusionResult<_>>()?;
        let schema = exec.schema();
        let metrics = Arc::new(metrics);
        let cache = (exec.cache.clone(), exec.began());
        // Rows without columns are counted, not copied.
        let coalescer =
            (!schema.fields().is_empty()).then(|| BatchCoalescer::new(schema.clone(), BATCH_ROWS));
        Ok(Self {
            projection: exec.projection.clone(),
            schema,
            conditions,
            dynamic: exec.dynamic_filters.iter().cloned().map(DynamicCondition::new).collect(),
            pruner: None,
            pruned: HashMap::new(),
            coalescer,
            ready: VecDeque::new(),
            stop: stopping::flag_of(context),
            has_objects: table.files.iter().any(|file| file.file.is_in_store()),
            has_room: true,
            has_late_columns: true,
            current: None,
            source: RowGroupSource::new(table.clone(), cache, metrics.clone(), context),
            metrics,
            table,
            reader: QueueReader::new(queue.clone()),
            queue,
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
            self.read_next().await?;
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

    /// Opens the next row group that may have rows; false after the last, or if others read what is left.
    fn open_next(&mut self) -> DataFusionResult<bool> {
        let elapsed = self.metrics.elapsed();
        let _timer = elapsed.timer();
        while let Some(unit) = self.reader.claim() {
            if self.may_match(unit)? {
                let selected = Arc::new(self.source.selected_rows(unit));
                if selected.count() > 0 {
                    return self.open(unit, &selected);
                }
            }
            // What is left of a row group was counted before.
            self.metrics.row_groups_pruned.add(usize::from(unit.first_row == 0));
            self.queue.forget_fetch(unit);
            let row_count = self.row_count(unit);
            self.queue.note_done(unit, row_count, row_count);
        }
        self.source.release();
        Ok(false)
    }

    /// Rows of a row group, those before its first row too.
    fn row_count(&self, unit: ScanUnit) -> usize {
        let row_group = self.table.files[unit.file].footer().metadata().row_group(unit.row_group);
        usize::try_from(row_group.num_rows()).unwrap_or(0)
    }

    /// Opens a row group, or leaves it to others; false if so.
    fn open(&mut self, unit: ScanUnit, selected: &Arc<SelectedRows>) -> DataFusionResult<bool> {
        // Before it is waited for.
        self.read_ahead();
        loop {
            let way = if self.has_room { self.source.best_way(unit, selected) } else { ReadWay::Batches };
            let before = self.reader.company();
            let conditions = self.inputs_of_conditions();
            match self.source.open((unit, selected.clone()), way, &conditions, !before.is_alone) {
                Ok(row_group) => {
                    self.current = Some(row_group);
                    self.queue.forget_fetch(unit);
                    return Ok(true);
                }
                Err(error) => {
                    if !self.tries_again(unit, before, error)? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// The columns that each condition needs, as the conditions are now.
    fn inputs_of_conditions(&self) -> Vec<Vec<usize>> {
        let fixed = self.conditions.iter().map(|condition| condition.inputs.clone());
        let parts = self.dynamic.iter().flat_map(|condition| condition.parts());
        fixed.chain(parts.filter_map(JudgedCondition::worthwhile_inputs)).collect()
    }

    /// Begins to fetch the row groups that come next, where they are objects'.
    fn read_ahead(&self) {
        if !self.has_objects {
            return;
        }
        let first = self.conditions.first().map(|condition| condition.inputs.as_slice());
        for unit in self.queue.announce(AHEAD_BYTES) {
            let reads_all = !self.source.keeps_chunks(unit) && self.has_late_columns;
            let first = first.filter(|_| !reads_all);
            if let Some(fetch) = self.source.fetch_ahead(unit, first) {
                self.queue.keep_fetch(unit, fetch);
            }
        }
    }

    /// What comes of an open row group's rest after an error: without memory it is others', or there is memory now, which is
    /// true. `before` are the readers before the error.
    fn tries_again(
        &mut self,
        unit: ScanUnit,
        before: Company,
        error: DataFusionError,
    ) -> DataFusionResult<bool> {
        if from_datafusion(&error).kind != ErrorKind::OutOfMemory {
            return Err(error);
        }
        self.current = None;
        self.source.release();
        match self.reader.give_back(unit, before) {
            Refused::GivenBack => Ok(false),
            Refused::TryAgain => Ok(true),
            Refused::Alone => Err(error),
        }
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
            self.pruned.clear();
        }
        let Some(pruner) = &self.pruner else { return Ok(true) };
        let of_file = || pruner.may_match(&self.table, &self.table.files[unit.file]);
        let kept = self.pruned.entry(unit.file).or_insert_with(of_file).get(unit.row_group);
        Ok(kept.copied().unwrap_or(true))
    }

    /// Hands on the next rows of the current row group, unless there is no memory for them.
    async fn read_next(&mut self) -> DataFusionResult<()> {
        let Some(mut row_group) = self.current.take() else { return Ok(()) };
        let before = self.reader.company();
        let Err(error) = self.read_slice(&mut row_group).await else {
            self.current = (!row_group.is_read()).then_some(row_group);
            return Ok(());
        };
        let (unit, selected, way) = (row_group.unit, row_group.selected.clone(), row_group.way());
        drop(row_group);
        if way == ReadWay::Chunks && from_datafusion(&error).kind == ErrorKind::OutOfMemory {
            self.has_room = false;
            self.open(unit, &selected)?;
        } else if self.tries_again(unit, before, error)? {
            self.open(unit, &selected)?;
        }
        Ok(())
    }

    /// Evaluates the conditions on the next rows and hands on what they keep.
    async fn read_slice(&mut self, row_group: &mut RowGroup) -> DataFusionResult<()> {
        let Some(mut slice) = self.source.next_slice(row_group) else {
            self.queue.note_done(row_group.unit, row_group.row_count, row_group.row_count);
            row_group.unit.first_row = row_group.row_count;
            return Ok(());
        };
        // No condition sees a row that the table does not have.
        let mut selection = row_group.kept_rows(&slice, &self.table);
        let mut rows_kept = selection.as_ref().map_or(slice.row_count, BooleanArray::true_count);
        if ScanCondition::refute(&self.conditions, |bound| row_group.refutes(&slice, bound)) {
            rows_kept = 0;
        }
        for index in 0..self.conditions.len() {
            if rows_kept == 0 {
                break;
            }
            let inputs = self.conditions[index].inputs.clone();
            let columns = self.source.columns(row_group, &mut slice, &inputs).await?;
            let timer = self.metrics.baseline.elapsed_compute().timer();
            let kept = self.conditions[index].evaluate(columns, slice.row_count, selection.as_ref())?;
            timer.done();
            rows_kept = kept.true_count();
            selection = Some(kept);
        }
        for (index, part) in self.dynamic_parts() {
            let Some(inputs) = self.dynamic[index].parts()[part].worthwhile_inputs() else { continue };
            if rows_kept == 0 {
                break;
            }
            let columns = self.source.columns(row_group, &mut slice, &inputs).await?;
            let timer = self.metrics.baseline.elapsed_compute().timer();
            let condition = &mut self.dynamic[index].parts_mut()[part];
            let kept = condition.evaluate(columns, slice.row_count, selection.as_ref())?;
            timer.done();
            rows_kept = kept.true_count();
            selection = Some(kept);
        }
        if rows_kept > 0 {
            let projection = self.projection.clone();
            let columns = self.source.columns(row_group, &mut slice, &projection).await?;
            let elapsed = self.metrics.baseline.elapsed_compute().clone();
            let timer = elapsed.timer();
            self.emit(columns, slice.row_count, rows_kept, selection.as_ref())?;
            timer.done();
        }
        let read = row_group.unit;
        row_group.hand_on(&slice);
        self.queue.note_done(read, row_group.unit.first_row, row_group.row_count);
        if row_group.is_read() {
            self.source.finish(row_group)?;
            self.has_late_columns = row_group.has_late_columns();
            self.hand_on_few_rows()?;
        }
        Ok(())
    }

    /// Hands on what a row group gave, however few rows, where they may narrow the dynamic conditions: those of first rows do, and
    /// spare the scan the row groups behind them.
    fn hand_on_few_rows(&mut self) -> DataFusionResult<()> {
        if !self.dynamic.is_empty()
            && let Some(batch) = self.flush()?
        {
            self.ready.push_back(batch);
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
        let columns = match selection.filter(|_| rows_kept < row_count) {
            None => columns,
            Some(selection) => {
                // Which rows survive is worked out once for all columns.
                let filter = FilterBuilder::new(selection).optimize().build();
                let filtered = columns.iter().map(|column| filter.filter(column.as_ref()));
                filtered.collect::<std::result::Result<_, _>>()?
            }
        };
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        // Copying once more would cost more than a batch that is a little short, or a short one before it.
        if rows_kept >= BATCH_ROWS / 2 || (rows_kept == row_count && coalescer.is_empty()) {
            coalescer.finish_buffered_batch()?;
            while let Some(before) = coalescer.next_completed_batch() {
                self.ready.push_back(before);
            }
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
}
