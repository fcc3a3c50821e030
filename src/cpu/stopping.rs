//! Stopping queries in the middle of a poll.
//!
//! A dropped query ends when its tasks wait. Operators that take one batch after the other out of a join, and
//! joins that try pair after pair and keep none, wait too seldom: so joins look at the query's flag for each
//! batch that they give, and for each batch of pairs on which they evaluate a condition.
//!
//! Deliberately absent: scans and the memory pool, which look at the flag themselves.

use std::{
    collections::BTreeSet,
    fmt,
    hash::{Hash, Hasher},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use crate::datafusion::{
    common::Statistics,
    error::{DataFusionError, Result as DataFusionResult},
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    logical_expr::ColumnarValue,
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, coop::make_cooperative,
        statistics::StatisticsArgs,
    },
};
use arrow::{
    array::RecordBatch,
    datatypes::{FieldRef, Schema, SchemaRef},
};
use futures::Stream;
use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{Error, ErrorKind};

use crate::{
    error::{out_of_memory, to_datafusion},
    inputs::{with_one_input, without_expressions},
};

/// The flag of the query that a task belongs to.
pub(crate) fn flag_of(context: &TaskContext) -> StopFlag {
    context.session_config().get_extension::<StopFlag>().map(|flag| (*flag).clone()).unwrap_or_default()
}

/// # Errors
///
/// `Cancelled` if the query is not wanted any more.
pub(crate) fn check(flag: &StopFlag) -> DataFusionResult<()> {
    if flag.is_stopped() {
        return Err(to_datafusion(Error::new(ErrorKind::Cancelled, "the query was cancelled")));
    }
    Ok(())
}

/// An operator whose output ends when its query is not wanted any more, and that yields from time to time. It gives
/// that once: a nested loop that has no memory for one of its sides would read that again, of which scans and exchanges have
/// given some rows already.
#[derive(Debug)]
pub(crate) struct StoppableExec {
    input: Arc<dyn ExecutionPlan>,
    /// The partitions that were started.
    started: Mutex<BTreeSet<usize>>,
}

impl StoppableExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, started: Mutex::default() }
    }

    /// The same over another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Ok(Self::new(input))
    }
}

impl DisplayAs for StoppableExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StoppableExec")
    }
}

impl ExecutionPlan for StoppableExec {
    fn name(&self) -> &'static str {
        "StoppableExec"
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
        if !lock_whole(&self.started).insert(partition) {
            return Err(to_datafusion(out_of_memory("a join without keys, for all rows of one side")));
        }
        let flag = flag_of(&context);
        let input = make_cooperative(self.input.execute(partition, context)?);
        Ok(Box::pin(StoppableStream { input, flag }))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let own = inputs.first().cloned();
        Ok(own.unwrap_or_else(|| Arc::new(Statistics::new_unknown(&self.schema()))))
    }
}

struct StoppableStream {
    input: SendableRecordBatchStream,
    flag: StopFlag,
}

impl Stream for StoppableStream {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(error) = check(&self.flag) {
            return Poll::Ready(Some(Err(error)));
        }
        self.input.as_mut().poll_next(context)
    }
}

impl RecordBatchStream for StoppableStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// A condition that fails when its query is not wanted any more.
#[derive(Debug)]
pub(crate) struct StoppableCondition {
    condition: Arc<dyn PhysicalExpr>,
    flag: StopFlag,
}

impl StoppableCondition {
    pub(crate) fn new(condition: Arc<dyn PhysicalExpr>, flag: StopFlag) -> Self {
        Self { condition, flag }
    }
}

impl PhysicalExpr for StoppableCondition {
    fn evaluate(&self, batch: &RecordBatch) -> DataFusionResult<ColumnarValue> {
        check(&self.flag)?;
        self.condition.evaluate(batch)
    }

    fn return_field(&self, input_schema: &Schema) -> DataFusionResult<FieldRef> {
        self.condition.return_field(input_schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(condition) if children.is_empty() => {
                Ok(Arc::new(Self { condition, flag: self.flag.clone() }))
            }
            _ => Err(DataFusionError::Internal("a stoppable condition has one part".to_owned())),
        }
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(formatter)
    }
}

impl fmt::Display for StoppableCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(formatter)
    }
}

impl PartialEq for StoppableCondition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for StoppableCondition {}

impl Hash for StoppableCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}
