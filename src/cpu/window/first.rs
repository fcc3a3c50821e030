//! Drops rows that are not among the first of their window's partition, before all are sorted.
//!
//! ```text
//! SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM t) q WHERE n <= 3
//!
//! Filter: n <= 3              Filter: n <= 3
//!   WindowExec                  WindowExec
//!     Sort           ─►           Sort
//!       Scan                        FirstOfPartitionsExec: RowNumber <= 3
//!                                     Scan
//! ```
//!
//! Rows are held until there are thrice as many as were kept the last time. Then they are sorted by partition and key, those behind the last
//! that is wanted go, and its key is remembered: later rows of the partition that come behind it are dropped as they come. Each input
//! partition does so for itself, before rows are exchanged.
//!
//! Where hardly any row goes, and where memory is short, the rows that are held are handed on, and all that follow.
//!
//! Invariants: no row goes that the condition above keeps: as many rows as are wanted come before it.

use std::{fmt, sync::Arc};

use crate::datafusion::{
    common::tree_node::TreeNodeRecursion,
    error::Result as DataFusionResult,
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        aggregates::{
            group_values::{GroupValues, new_group_values},
            order::GroupOrdering,
        },
        execution_plan::{EmissionType, apply_expression_roots},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{BooleanArray, RecordBatch, UInt32Array},
    compute::{concat_batches, filter_record_batch, take_record_batch},
    datatypes::{Field, Schema},
    row::{OwnedRow, RowConverter, Rows, SortField},
};
use futures::StreamExt;
use pystachio_plan::WindowFunction;

use super::{Order, evaluate};
use crate::{compact::used_bytes, inputs::with_one_input, pool::WINDOW_CONSUMER, scan::BATCH_ROWS};

/// Fewer rows are not looked through. Of those that are at least half must go: a row that is kept costs more than sorting it.
const HELD_ROWS_MIN: usize = 16 * BATCH_ROWS;

/// Gives at least the rows whose number in their partition is at most `count`.
#[derive(Debug)]
pub(crate) struct FirstOfPartitionsExec {
    input: Arc<dyn ExecutionPlan>,
    order: Arc<Order>,
    /// The function that numbers the rows: `RowNumber`, `Rank` or `DenseRank`.
    number: WindowFunction,
    count: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FirstOfPartitionsExec {
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        order: Arc<Order>,
        number: WindowFunction,
        count: usize,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            EmissionType::Both,
            input.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Self { input, order, number, count, properties, metrics }
    }

    /// The same over another input.
    #[expect(clippy::unnecessary_wraps, reason = "as of the other operators")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Ok(Self::new(input, self.order.clone(), self.number, self.count))
    }
}

impl DisplayAs for FirstOfPartitionsExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FirstOfPartitionsExec: {:?} <= {}", self.number, self.count)
    }
}

impl ExecutionPlan for FirstOfPartitionsExec {
    fn name(&self) -> &'static str {
        "FirstOfPartitionsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    with_one_input!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        apply_expression_roots(self.order.all().map(|key| &key.expr), visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let memory = MemoryConsumer::new(WINDOW_CONSUMER).register(context.memory_pool());
        let candidates = Candidates::new(self, memory)?;
        let state = (self.input.execute(partition, context)?, Some(candidates), Vec::new());
        let rows = futures::stream::try_unfold(state, move |(mut input, mut candidates, mut ready)| {
            let metrics = metrics.clone();
            async move {
                loop {
                    if let Some(batch) = ready.pop() {
                        metrics.record_output(RecordBatch::num_rows(&batch));
                        return Ok(Some((batch, (input, candidates, ready))));
                    }
                    let next = input.next().await.transpose()?;
                    let elapsed = metrics.elapsed_compute().clone();
                    let _timer = elapsed.timer();
                    match (next, candidates.take()) {
                        (Some(batch), None) => ready.push(batch),
                        (Some(batch), Some(mut looked)) => match looked.add(&batch)? {
                            true => candidates = Some(looked),
                            false => ready = looked.batches,
                        },
                        (None, Some(mut looked)) => {
                            looked.keep_first()?;
                            ready = looked.batches;
                        }
                        (None, None) => return Ok(None),
                    }
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The rows that may be wanted.
struct Candidates {
    order: Arc<Order>,
    number: WindowFunction,
    count: usize,
    /// Numbers of the partitions; `None` if there is one.
    partitions: Option<Box<dyn GroupValues>>,
    converter: RowConverter,
    /// By partition, the key of the last row that is wanted, once there are so many.
    last: Vec<Option<OwnedRow>>,
    batches: Vec<RecordBatch>,
    /// The partition of each row that is held.
    of_rows: Vec<usize>,
    /// Rows that were kept when they were last looked through.
    kept: usize,
    memory: MemoryReservation,
}

impl Candidates {
    fn new(exec: &FirstOfPartitionsExec, memory: MemoryReservation) -> DataFusionResult<Self> {
        let (order, schema) = (exec.order.clone(), exec.input.schema());
        let data_type = |key: &Arc<dyn PhysicalExpr>| key.data_type(&schema);
        let fields = order.partition.iter().map(|key| Ok(Field::new("key", data_type(&key.expr)?, true)));
        let fields = fields.collect::<DataFusionResult<Vec<_>>>()?;
        let partitions = match fields.is_empty() {
            true => None,
            false => Some(new_group_values(Arc::new(Schema::new(fields)), &GroupOrdering::None)?),
        };
        let keys =
            order.keys.iter().map(|key| Ok(SortField::new_with_options(data_type(&key.expr)?, key.options)));
        let converter = RowConverter::new(keys.collect::<DataFusionResult<_>>()?)?;
        Ok(Self {
            order,
            number: exec.number,
            count: exec.count,
            partitions,
            converter,
            last: Vec::new(),
            batches: Vec::new(),
            of_rows: Vec::new(),
            kept: 0,
            memory,
        })
    }

    /// Adds rows. False if looking through them does not pay, or there is no memory for it: then those that are held are to be handed on.
    fn add(&mut self, batch: &RecordBatch) -> DataFusionResult<bool> {
        let mut partitions = Vec::with_capacity(batch.num_rows());
        match &mut self.partitions {
            Some(values) => {
                let columns = evaluate(self.order.partition.iter().map(|key| &key.expr), batch)?;
                values.intern(&columns, &mut partitions)?;
            }
            None => partitions.resize(batch.num_rows(), 0),
        }
        let keys = self.keys(batch)?;
        let passes = partitions.iter().enumerate().map(|(row, partition)| {
            match self.last.get(*partition).and_then(Option::as_ref) {
                None => true,
                Some(last) if self.number == WindowFunction::RowNumber => keys.row(row) < last.row(),
                Some(last) => keys.row(row) <= last.row(),
            }
        });
        let passes: BooleanArray = passes.map(Some).collect();
        let passing = passes.true_count();
        if passing > 0 {
            let candidates = match passing == batch.num_rows() {
                true => batch.clone(),
                false => filter_record_batch(batch, &passes)?,
            };
            let partitions = partitions.into_iter().zip(passes.values());
            self.of_rows.extend(partitions.filter(|(_, passes)| *passes).map(|(partition, _)| partition));
            let fits = self.memory.try_grow(3 * used_bytes(&candidates)).is_ok();
            self.batches.push(candidates);
            if !fits {
                return Ok(false);
            }
        }
        let held = self.of_rows.len();
        if held < HELD_ROWS_MIN.max(3 * self.kept) {
            return Ok(true);
        }
        self.keep_first()?;
        Ok(2 * self.kept <= held)
    }

    fn keys(&self, batch: &RecordBatch) -> DataFusionResult<Rows> {
        let columns = evaluate(self.order.keys.iter().map(|key| &key.expr), batch)?;
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// Keeps the first rows of each partition.
    fn keep_first(&mut self) -> DataFusionResult<()> {
        let Some(schema) = self.batches.first().map(RecordBatch::schema) else { return Ok(()) };
        let rows = concat_batches(&schema, &self.batches)?;
        let keys = self.keys(&rows)?;
        let of_rows = &self.of_rows;
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        let compare = |row: &u32| (of_rows[*row as usize], keys.row(*row as usize), *row);
        order.sort_unstable_by(|one, other| compare(one).cmp(&compare(other)));
        let mut kept = Vec::with_capacity(order.len());
        for partition in order.chunk_by(|one, other| of_rows[*one as usize] == of_rows[*other as usize]) {
            let (mut number, mut rank, mut dense) = (0, 0, 0);
            let mut previous: Option<u32> = None;
            for row in partition {
                number += 1;
                let key = |row: u32| keys.row(row as usize);
                if previous.is_none_or(|previous| key(previous) != key(*row)) {
                    (rank, dense) = (number, dense + 1);
                }
                let place = match self.number {
                    WindowFunction::Rank => rank,
                    WindowFunction::DenseRank => dense,
                    _ => number,
                };
                if place > self.count {
                    break;
                }
                kept.push(*row);
                previous = Some(*row);
            }
            let last = previous.filter(|_| match self.number {
                WindowFunction::DenseRank => dense >= self.count,
                _ => number >= self.count,
            });
            if let (Some(last), Some(first)) = (last, partition.first()) {
                let of = of_rows[*first as usize];
                if self.last.len() <= of {
                    self.last.resize(of + 1, None);
                }
                self.last[of] = Some(keys.row(last as usize).owned());
            }
        }
        self.of_rows = kept.iter().map(|row| self.of_rows[*row as usize]).collect();
        self.kept = kept.len();
        let rows = take_record_batch(&rows, &UInt32Array::from(kept))?;
        self.memory.free();
        // The rows are no more than before, and these fitted.
        self.memory.grow(3 * used_bytes(&rows));
        self.batches = vec![rows];
        Ok(())
    }
}
