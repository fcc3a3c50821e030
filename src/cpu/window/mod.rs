//! Functions of the rows around each row.
//!
//! ```text
//! rows in order ─► block: whole partitions ─► where partitions and peer groups begin ─► frames ─► a column a function
//! ```
//!
//! - `first.rs`: rows that a condition above keeps are looked for before all are sorted
//! - `frames.rs`: the rows that a function of a row looks at
//! - `functions.rs`: columns of a block
//!
//! DataFusion's own window operators have no EXCLUDE, take numbers of rows as constants of the plan, keep a state a row, and give sums
//! of frames only for aggregates that can take a value back. Here a frame is two numbers, and a sum the difference of two.
//!
//! Invariants: rows come in the order of partition and keys, each partition in one input partition. A block has whole partitions.
//!
//! Deliberately absent: spilling. The sort below spills; a partition must fit in memory.

mod first;
mod frames;
mod functions;

use std::{fmt, ops::Range, sync::Arc};

use crate::datafusion::{
    common::tree_node::TreeNodeRecursion,
    error::{DataFusionError, Result as DataFusionResult},
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_expr::{
        Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr,
        PhysicalSortExpr,
    },
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
        PlanProperties,
        execution_plan::{EmissionType, apply_expression_roots},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{ArrayRef, RecordBatch},
    compute::{concat, concat_batches, partition},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use futures::StreamExt;
use pystachio_plan::WindowFunction;

pub(crate) use self::{
    first::FirstOfPartitionsExec,
    frames::{Bound, Frame, Unit},
};
use crate::{compact::used_bytes, inputs::with_one_input, pool::WINDOW_CONSUMER, scan::BATCH_ROWS};

/// A function, made physical.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The name of its column.
    pub(crate) name: String,
    /// Which function.
    pub(crate) function: WindowFunction,
    /// What it takes of a row.
    pub(crate) argument: Option<Arc<dyn PhysicalExpr>>,
    /// The argument as least and greatest values are compared.
    pub(crate) key: Option<Arc<dyn PhysicalExpr>>,
    /// The rows that it looks at.
    pub(crate) frame: Frame,
    /// The type of its column.
    pub(crate) data_type: DataType,
}

/// What rows are divided and ordered by.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Equal values are a partition.
    pub(crate) partition: Vec<PhysicalSortExpr>,
    /// The order within one.
    pub(crate) keys: Vec<PhysicalSortExpr>,
}

impl Order {
    fn all(&self) -> impl Iterator<Item = &PhysicalSortExpr> {
        self.partition.iter().chain(&self.keys)
    }
}

/// Gives each row with functions of the rows around it.
#[derive(Debug)]
pub(crate) struct WindowExec {
    input: Arc<dyn ExecutionPlan>,
    order: Arc<Order>,
    calls: Arc<[Call]>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WindowExec {
    /// Columns: the input's, and those of the calls.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, order: Arc<Order>, calls: Arc<[Call]>) -> Self {
        let below = input.schema();
        let own = calls.iter().map(|call| Arc::new(Field::new(&call.name, call.data_type.clone(), true)));
        let fields: Vec<_> = below.fields().iter().cloned().chain(own).collect();
        let orderings = input.output_ordering().cloned();
        let equivalences =
            EquivalenceProperties::new_with_orderings(Arc::new(Schema::new(fields)), orderings);
        let properties = PlanProperties::new(
            equivalences,
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            input.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Self { input, order, calls, properties, metrics }
    }

    /// The same over another input.
    #[expect(clippy::unnecessary_wraps, reason = "as of the other operators")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Ok(Self::new(input, self.order.clone(), self.calls.clone()))
    }
}

impl DisplayAs for WindowExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<_> = self.calls.iter().map(|call| format!("{:?}", call.function)).collect();
        write!(formatter, "WindowExec: {}", calls.join(", "))
    }
}

impl ExecutionPlan for WindowExec {
    fn name(&self) -> &'static str {
        "WindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    with_one_input!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        let keys = self.order.all().map(|key| &key.expr);
        let calls = self.calls.iter().flat_map(|call| call.argument.iter().chain(&call.key));
        let frames = self.calls.iter().flat_map(|call| call.frame.expressions());
        apply_expression_roots(keys.chain(calls).chain(frames), visit)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let keys: Vec<_> = self.order.partition.iter().map(|key| key.expr.clone()).collect();
        let distribution = match keys.is_empty() {
            true => Distribution::SinglePartition,
            false => Distribution::KeyPartitioned(keys),
        };
        InputDistributionRequirements::new(vec![distribution])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![LexOrdering::new(self.order.all().cloned()).map(OrderingRequirements::from)]
    }

    /// The order of the input is one of the output, as its properties say. A rule of DataFusion would take this for leave to put another
    /// sort below.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let memory = MemoryConsumer::new(WINDOW_CONSUMER).register(context.memory_pool());
        let blocks = Blocks {
            order: self.order.clone(),
            calls: self.calls.clone(),
            below: self.input.schema(),
            schema: self.schema(),
            batches: Vec::new(),
            last_keys: None,
            memory,
        };
        let state = (self.input.execute(partition, context)?, blocks, Ready::default());
        let rows = futures::stream::try_unfold(state, move |(mut input, mut blocks, mut ready)| {
            let metrics = metrics.clone();
            async move {
                loop {
                    if let Some(batch) = ready.next_batch() {
                        metrics.record_output(batch.num_rows());
                        return Ok(Some((batch, (input, blocks, ready))));
                    }
                    let next = input.next().await.transpose()?;
                    let elapsed = metrics.elapsed_compute().clone();
                    let _timer = elapsed.timer();
                    let block = match next {
                        Some(batch) => blocks.add(batch)?,
                        None if blocks.batches.is_empty() => return Ok(None),
                        None => Some(blocks.take()?),
                    };
                    if let Some(block) = block {
                        ready = Ready { rows: Some(blocks.computed(&block)?), next: 0 };
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

/// A block on its way out.
#[derive(Default)]
struct Ready {
    rows: Option<RecordBatch>,
    next: usize,
}

impl Ready {
    fn next_batch(&mut self) -> Option<RecordBatch> {
        let rows = self.rows.as_ref()?;
        let count = (rows.num_rows() - self.next).min(BATCH_ROWS);
        if count == 0 {
            self.rows = None;
            return None;
        }
        let batch = rows.slice(self.next, count);
        self.next += count;
        Some(batch)
    }
}

/// Rows until their partitions are whole.
struct Blocks {
    order: Arc<Order>,
    calls: Arc<[Call]>,
    below: SchemaRef,
    schema: SchemaRef,
    /// Rows of which the last partition may go on.
    batches: Vec<RecordBatch>,
    /// The partition of the last row.
    last_keys: Option<Vec<ArrayRef>>,
    memory: MemoryReservation,
}

impl Blocks {
    /// Adds rows; gives those whose partitions are known to be whole.
    fn add(&mut self, batch: RecordBatch) -> DataFusionResult<Option<RecordBatch>> {
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        let keys = evaluate(self.order.partition.iter().map(|key| &key.expr), &batch)?;
        let begin = match ranges(&keys, batch.num_rows())?.last() {
            Some(last) if last.start > 0 => Some(last.start),
            _ => self.begins_partition(&keys)?.then_some(0),
        };
        self.last_keys = Some(keys.iter().map(|key| key.slice(batch.num_rows() - 1, 1)).collect());
        let Some(begin) = begin else {
            self.hold(batch)?;
            return Ok(None);
        };
        let (whole, rest) = (batch.slice(0, begin), batch.slice(begin, batch.num_rows() - begin));
        self.hold(whole)?;
        let block = self.take()?;
        self.hold(rest)?;
        Ok(Some(block))
    }

    /// Whether the first row with such keys is of another partition than the last that was added.
    fn begins_partition(&self, keys: &[ArrayRef]) -> DataFusionResult<bool> {
        let Some(last) = &self.last_keys else { return Ok(false) };
        let pair = |(last, key): (&ArrayRef, &ArrayRef)| concat(&[last.as_ref(), key.slice(0, 1).as_ref()]);
        let pairs = last.iter().zip(keys).map(pair).collect::<Result<Vec<_>, _>>()?;
        Ok(ranges(&pairs, 2)?.len() > 1)
    }

    fn hold(&mut self, batch: RecordBatch) -> DataFusionResult<()> {
        // The rows, and those of a block that is made of them.
        self.memory.try_grow(2 * used_bytes(&batch))?;
        self.batches.push(batch);
        Ok(())
    }

    fn take(&mut self) -> DataFusionResult<RecordBatch> {
        let block = concat_batches(&self.below, &self.batches)?;
        self.batches.clear();
        self.memory.free();
        Ok(block)
    }

    /// The block with the functions' columns.
    fn computed(&self, rows: &RecordBatch) -> DataFusionResult<RecordBatch> {
        let count = rows.num_rows();
        if u32::try_from(count).is_err() {
            return Err(DataFusionError::ResourcesExhausted(format!("a window's partition of {count} rows")));
        }
        let mut keys = evaluate(self.order.partition.iter().map(|key| &key.expr), rows)?;
        let partitions = ranges(&keys, count)?;
        keys.extend(evaluate(self.order.keys.iter().map(|key| &key.expr), rows)?);
        let peers = match self.order.keys.is_empty() {
            true => partitions.clone(),
            false => ranges(&keys, count)?,
        };
        let columns = functions::compute(&self.calls, rows, &partitions, &peers)?;
        let columns = rows.columns().iter().cloned().chain(columns).collect();
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

fn evaluate<'a>(
    expressions: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    rows: &RecordBatch,
) -> DataFusionResult<Vec<ArrayRef>> {
    expressions.map(|expression| expression.evaluate(rows)?.into_array(rows.num_rows())).collect()
}

/// Runs of equal keys; all rows where there are no keys.
fn ranges(keys: &[ArrayRef], count: usize) -> DataFusionResult<Vec<Range<usize>>> {
    if keys.is_empty() {
        return Ok(std::iter::once(0..count).collect());
    }
    Ok(partition(keys)?.ranges())
}
