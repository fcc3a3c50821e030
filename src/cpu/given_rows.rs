//! Rows of a part of a plan that another engine computes.
//!
//! ```text
//! another engine ─► batches ─► GivenRowsExec ─► the operators above the part
//! ```
//!
//! Invariants: the rows come in one partition, in the order in which they are given. A plan that runs a second time, for want of
//! memory, starts the part anew.
//!
//! Deliberately absent: which parts another engine computes. The host of both engines says so.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
};

use crate::datafusion::{
    common::{Statistics, stats::Precision},
    error::{DataFusionError, Result as DataFusionResult},
    execution::{SendableRecordBatchStream, TaskContext},
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
    array::{RecordBatch, RecordBatchOptions},
    compute::cast,
    datatypes::{Field, Schema, SchemaRef},
    error::ArrowError,
};
use futures::TryStreamExt;
use pystachio_engine::{GivenPart, ResultStream, locking::lock_whole};
use pystachio_plan::{ActualRows, ColumnId, DataType, QueryMetrics, Relation};

use crate::{
    column_name,
    error::to_datafusion,
    inputs::{without_expressions, without_inputs},
};

/// The rows of a part, as an operator without inputs.
pub(crate) struct GivenRowsExec {
    part: GivenPart,
    /// The part's columns that come out.
    outputs: Vec<ColumnId>,
    /// What the part has cost, once it has ended.
    cost: Arc<Mutex<Option<QueryMetrics>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GivenRowsExec {
    /// The rows of a part, with those of its columns that its reader needs.
    pub(crate) fn new(part: &GivenPart, required: &BTreeSet<ColumnId>) -> Self {
        let columns: Vec<_> =
            part.relation.columns().into_iter().filter(|(id, _)| required.contains(id)).collect();
        let field =
            |(id, data_type): &(ColumnId, DataType)| Field::new(column_name(*id), data_type.to_arrow(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            part: part.clone(),
            outputs: columns.into_iter().map(|(id, _)| id).collect(),
            cost: Arc::default(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Whether it has the rows of this part of the plan.
    pub(crate) fn is_of(&self, relation: &Relation) -> bool {
        std::ptr::eq(&raw const *self.part.relation, relation)
    }

    /// What the part has cost, if it has ended.
    pub(crate) fn cost(&self) -> Option<QueryMetrics> {
        lock_whole(&self.cost).clone()
    }

    /// Rows of each operator of a part of so many, as far as the other engine tells.
    pub(crate) fn actual_rows(&self, operator_count: usize) -> Vec<Option<ActualRows>> {
        let told = self.cost().map(|cost| cost.actual_rows).unwrap_or_default();
        match told.len() == operator_count {
            true => told,
            false => vec![None; operator_count],
        }
    }
}

/// A part that runs. Keeps what it has cost when it ends, however it does.
struct RunningPart {
    stream: Box<dyn ResultStream>,
    cost: Arc<Mutex<Option<QueryMetrics>>>,
}

impl Drop for RunningPart {
    fn drop(&mut self) {
        *lock_whole(&self.cost) = Some(self.stream.metrics());
    }
}

impl fmt::Debug for GivenRowsExec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GivenRowsExec").field("outputs", &self.outputs).finish_non_exhaustive()
    }
}

impl DisplayAs for GivenRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GivenRowsExec")
    }
}

impl ExecutionPlan for GivenRowsExec {
    fn name(&self) -> &'static str {
        "GivenRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    without_inputs!();

    without_expressions!();

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (source, outputs, cost) = (self.part.source.clone(), self.outputs.clone(), self.cost.clone());
        let schema = self.schema();
        let batches = async move {
            let stream = source.start(outputs).await.map_err(to_datafusion)?;
            let running = RunningPart { stream, cost };
            let next = move |mut running: RunningPart| {
                let (metrics, schema) = (metrics.clone(), schema.clone());
                async move {
                    let Some(batch) = running.stream.next_batch().await.map_err(to_datafusion)? else {
                        return Ok(None);
                    };
                    metrics.record_output(batch.num_rows());
                    Ok::<_, DataFusionError>(Some((renamed(&batch, &schema)?, running)))
                }
            };
            Ok::<_, DataFusionError>(futures::stream::try_unfold(running, next))
        };
        let batches = futures::stream::once(batches).try_flatten();
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
        statistics.num_rows = Precision::Inexact(self.part.relation.estimate.rows.max(0.0) as usize);
        Ok(Arc::new(statistics))
    }
}

/// A batch under the names that its columns have in the plan, and with this engine's form of text.
fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> DataFusionResult<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => cast(column, field.data_type()),
    });
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
