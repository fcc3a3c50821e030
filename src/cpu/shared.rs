//! Parts of a plan that are computed once for several readers.
//!
//! ```text
//! part ─► rows in memory ─┬─► SharedExec of one reader
//!                         └─► SharedExec of another, under its own names
//! ```
//!
//! Which parts are shared says [`pystachio_plan::RepeatedParts`]. The first reader that runs computes all rows before it gives one.
//! If it ends early, the next one goes on where it was.
//!
//! Invariants: no reader waits for another. The rows are reserved until the query ends; where there is no memory for them, the query
//! runs again with operators that spill, and nothing is shared.
//!
//! Deliberately absent: conditions. Operators above a reader filter its rows; the part itself is computed whole.

use std::{collections::HashSet, fmt, sync::Arc};

use crate::datafusion::{
    common::{Statistics, stats::Precision},
    error::{DataFusionError, Result as DataFusionResult},
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_expr::EquivalenceProperties,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
        execution_plan::{Boundedness, EmissionType},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{ArrayData, RecordBatch, RecordBatchOptions},
    buffer::{Buffer, NullBuffer},
    datatypes::{Schema, SchemaRef},
};
use futures::{
    FutureExt, StreamExt, TryFutureExt, TryStreamExt,
    future::{BoxFuture, Shared},
};
use pystachio_engine::locking::lock_whole;

use crate::{
    inputs::{without_expressions, without_inputs},
    pool::SHARED_CONSUMER,
};

/// A part, and its rows once there are any.
pub(crate) struct SharedPart {
    /// Gives one partition.
    plan: Arc<dyn ExecutionPlan>,
    estimate_rows: f64,
    rows: std::sync::Mutex<Option<SharedRows>>,
}

/// The rows, or the work that makes them. The reader that waits for the work does it.
type SharedRows = Shared<BoxFuture<'static, Result<Arc<KeptRows>, Arc<DataFusionError>>>>;

struct KeptRows {
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

impl SharedPart {
    /// A part whose `plan` gives one partition.
    pub(crate) fn new(plan: Arc<dyn ExecutionPlan>, estimate_rows: f64) -> Arc<Self> {
        Arc::new(Self { plan, estimate_rows, rows: std::sync::Mutex::default() })
    }

    fn rows(&self, context: &Arc<TaskContext>) -> SharedRows {
        let mut rows = lock_whole(&self.rows);
        rows.get_or_insert_with(|| {
            compute(self.plan.clone(), context.clone()).map_err(Arc::new).boxed().shared()
        })
        .clone()
    }
}

impl fmt::Debug for SharedPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedPart").field("plan", &self.plan).finish_non_exhaustive()
    }
}

async fn compute(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> DataFusionResult<Arc<KeptRows>> {
    let memory = MemoryConsumer::new(SHARED_CONSUMER).register(context.memory_pool());
    let mut stream = plan.execute(0, context)?;
    let (mut batches, mut seen) = (Vec::new(), HashSet::new());
    while let Some(batch) = stream.try_next().await? {
        memory
            .try_grow(batch.columns().iter().map(|column| new_bytes(&column.to_data(), &mut seen)).sum())?;
        batches.push(batch);
    }
    Ok(Arc::new(KeptRows { batches, _memory: memory }))
}

/// Bytes of an array's buffers that were not seen before: the batches of an aggregate are slices of one.
fn new_bytes(data: &ArrayData, seen: &mut HashSet<usize>) -> usize {
    let nulls = data.nulls().map(NullBuffer::buffer);
    let buffers = data.buffers().iter().chain(nulls);
    let own = buffers.filter(|buffer| seen.insert(buffer.data_ptr().as_ptr().addr())).map(Buffer::capacity);
    own.sum::<usize>() + data.child_data().iter().map(|child| new_bytes(child, seen)).sum::<usize>()
}

/// The rows of a part, for one reader.
#[derive(Debug)]
pub(crate) struct SharedExec {
    part: Arc<SharedPart>,
    /// Whether this is the reader below which the part is shown and counted.
    is_first: bool,
    /// Where the part has each column.
    places: Vec<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedExec {
    /// A reader of some of the part's columns, each with the name that it has here.
    pub(crate) fn new(part: Arc<SharedPart>, is_first: bool, columns: &[(usize, String)]) -> Self {
        let below = part.plan.schema();
        let field = |(place, name): &(usize, String)| below.field(*place).clone().with_name(name);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let places = columns.iter().map(|(place, _)| *place).collect();
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Self { part, is_first, places, properties, metrics }
    }

    /// The part's own operators, below the first of its readers.
    pub(crate) fn part(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        self.is_first.then_some(&self.part.plan)
    }
}

/// The operators below an operator. The first reader of a shared part has the part's.
pub(crate) fn inputs(plan: &Arc<dyn ExecutionPlan>) -> Vec<&Arc<dyn ExecutionPlan>> {
    let part = plan.downcast_ref::<SharedExec>().and_then(SharedExec::part);
    plan.children().into_iter().chain(part).collect()
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedExec")
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &'static str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    // A rule that changes the part below one reader would change it for the others.
    without_inputs!();

    without_expressions!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (schema, places) = (self.schema(), self.places.clone());
        let rows = self.part.rows(&context);
        let batches = async move {
            let rows = rows.await.map_err(DataFusionError::Shared)?;
            let batch = move |place: usize| {
                let batch = rows.batches.get(place)?;
                metrics.record_output(batch.num_rows());
                Some((renamed(batch, &schema, &places), place + 1))
            };
            let next = move |place| futures::future::ready(batch(place));
            Ok::<_, DataFusionError>(futures::stream::unfold(0, next))
        };
        let batches = futures::stream::once(batches).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = Precision::Inexact(self.part.estimate_rows.max(0.0) as usize);
        Ok(Arc::new(statistics))
    }
}

/// A batch under a reader's names.
fn renamed(batch: &RecordBatch, schema: &SchemaRef, places: &[usize]) -> DataFusionResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = places.iter().map(|place| batch.column(*place).clone()).collect();
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
