//! Rows of an order from one place to another, without sorting what is before and behind them.
//!
//! ```text
//! SELECT … ORDER BY a DESC, b LIMIT 50 OFFSET 500000
//!
//! GlobalLimitExec: skip=500000, fetch=50              FirstRowsExec: skip=500000, fetch=50
//!   SortPreservingMergeExec: fetch=500050       ─►      Scan: dynamic_filters=1
//!     SortExec: TopK(fetch=500050)
//!       Scan
//! ```
//!
//! Partitions gather rows. When there are twice as many as are wanted, the last that is wanted is looked for, in linear
//! time; those behind it go, and from then on partitions and scans drop what is not before it. At the end the rows before
//! OFFSET go in the same way, and what is left is sorted. DataFusion's heap of first rows allocates for each of them, and
//! copies each key whole, however long it is.
//!
//! Invariants: rows that are wanted are never dropped: as many rows as are wanted are before each that is dropped, or
//! equal to it. One partition at a time looks for the last row, so each is before the one that was found before.
//!
//! Deliberately absent: spilling. Rows that take too much memory are all sorted (`lowering/rules.rs`).

use std::{
    cmp::Ordering,
    fmt,
    sync::{Arc, Mutex},
};

use crate::datafusion::{
    common::{ScalarValue, tree_node::TreeNodeRecursion},
    config::ConfigOptions,
    error::{DataFusionError, Result as DataFusionResult},
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    logical_expr::{ColumnarValue, Operator},
    physical_expr::{
        EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
        expressions::{BinaryExpr, DynamicFilterPhysicalExpr, is_not_null, is_null, lit},
    },
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        execution_plan::{EmissionType, apply_expression_roots},
        filter_pushdown::{
            ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
            FilterPushdownPropagation,
        },
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions},
    compute::{
        LexicographicalComparator, SortColumn, concat, filter_record_batch, interleave_record_batch,
        prep_null_mask_filter,
    },
    datatypes::DataType,
    row::{RowConverter, Rows, SortField},
};
use futures::{StreamExt, TryStreamExt, stream};
use pystachio_engine::{
    Tally,
    locking::{lock, lock_whole},
};
use pystachio_plan::Error;
use tokio::task::JoinSet;

use crate::{
    compact::{used_bytes, without_unused_text},
    error::to_datafusion,
    inputs::with_one_input,
    pool::FIRST_ROWS_CONSUMER,
    scan::BATCH_ROWS,
};

/// Rows are looked through only if there are more than this, or they take much memory.
const LOOKED_ROWS_MIN: usize = BATCH_ROWS;

/// Gives the rows of an order from `skip` to `skip + fetch`, in order.
#[derive(Debug)]
pub(crate) struct FirstRowsExec {
    input: Arc<dyn ExecutionPlan>,
    ordering: LexOrdering,
    skip: usize,
    fetch: usize,
    /// Fewer rows than [`LOOKED_ROWS_MIN`] are looked through if they take more bytes.
    bytes_max: usize,
    filter: Arc<DynamicFilterPhysicalExpr>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FirstRowsExec {
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        ordering: LexOrdering,
        skip: usize,
        fetch: usize,
        bytes_max: usize,
    ) -> Self {
        let keys = ordering.iter().map(|key| key.expr.clone()).collect();
        let filter = Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true)));
        let equivalences = EquivalenceProperties::new_with_orderings(input.schema(), [ordering.clone()]);
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            input.boundedness(),
        );
        Self {
            input,
            ordering,
            skip,
            fetch,
            bytes_max,
            filter,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// What rows are ordered by.
    pub(crate) fn ordering(&self) -> &LexOrdering {
        &self.ordering
    }

    /// The rows that a limit of these rows leaves; `None` if it is none of first rows.
    pub(crate) fn limited(&self, skip: usize, fetch: Option<usize>) -> Option<Self> {
        if self.skip > 0 {
            return None;
        }
        let fetch = fetch.unwrap_or(usize::MAX).min(self.fetch.saturating_sub(skip));
        Some(Self::new(self.input.clone(), self.ordering.clone(), skip, fetch, self.bytes_max))
    }

    /// The same over another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Ok(Self {
            input,
            ordering: self.ordering.clone(),
            skip: self.skip,
            fetch: self.fetch,
            bytes_max: self.bytes_max,
            filter: self.filter.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for FirstRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "FirstRowsExec: skip={}, fetch={}, order=[{}]",
            self.skip, self.fetch, self.ordering
        )
    }
}

impl ExecutionPlan for FirstRowsExec {
    fn name(&self) -> &'static str {
        "FirstRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    with_one_input!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        let filter = self.filter.clone() as Arc<dyn PhysicalExpr>;
        apply_expression_roots(self.ordering.iter().map(|key| &key.expr).chain([&filter]), visit)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        vec![self.filter.clone()]
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> DataFusionResult<FilterDescription> {
        // A filter above counts rows that the limit keeps.
        let mut child = ChildFilterDescription::all_unsupported(&parent_filters);
        if phase == FilterPushdownPhase::Post {
            child = child.with_self_filter(self.filter.clone());
        }
        Ok(FilterDescription::new().with_child(child))
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DataFusionResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(child_pushdown_result))
    }

    fn execute(
        &self,
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let reservation = MemoryConsumer::new(FIRST_ROWS_CONSUMER).register(context.memory_pool());
        let candidates = Arc::new(Candidates {
            ordering: self.ordering.clone(),
            count: self.skip.saturating_add(self.fetch),
            bytes_max: self.bytes_max,
            filter: self.filter.clone(),
            held: Mutex::default(),
            looking: Mutex::default(),
            reservation,
        });
        let mut readers = JoinSet::new();
        for partition in 0..self.input.output_partitioning().partition_count() {
            let input = self.input.execute(partition, context.clone())?;
            readers.spawn(candidates.clone().gather(input));
        }
        let (skip, batch_rows) = (self.skip, context.session_config().batch_size());
        let metrics = BaselineMetrics::new(&self.metrics, 0);
        let rows = async move {
            while let Some(ended) = readers.join_next().await {
                match ended {
                    Ok(result) => result?,
                    Err(failure) => match failure.try_into_panic() {
                        Ok(payload) => std::panic::resume_unwind(payload),
                        Err(_) => return Err(to_datafusion(Error::internal("a partition was cancelled"))),
                    },
                }
            }
            let rows = candidates.ordered(skip)?;
            Ok(stream::iter(rows.batches(batch_rows, candidates)).inspect(move |batch| {
                metrics.record_output(batch.as_ref().map_or(0, RecordBatch::num_rows));
            }))
        };
        let rows = stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn fetch(&self) -> Option<usize> {
        Some(self.fetch)
    }
}

/// The rows that may be wanted.
struct Candidates {
    ordering: LexOrdering,
    /// Rows that are wanted, and those before them.
    count: usize,
    bytes_max: usize,
    filter: Arc<DynamicFilterPhysicalExpr>,
    held: Mutex<Held>,
    /// Taken by the partition that looks for the last row.
    looking: Mutex<()>,
    reservation: MemoryReservation,
}

#[derive(Default)]
struct Held {
    batches: Vec<RecordBatch>,
    rows: Tally,
    bytes: Tally,
}

impl Candidates {
    async fn gather(self: Arc<Self>, mut input: SendableRecordBatchStream) -> DataFusionResult<()> {
        while let Some(batch) = input.next().await {
            if let Some(batch) = self.passing(batch?)? {
                self.hold(batch)?;
            }
        }
        Ok(())
    }

    /// The rows that may be wanted, as far as that is known.
    fn passing(&self, batch: RecordBatch) -> DataFusionResult<Option<RecordBatch>> {
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        let mask = match self.filter.current()?.evaluate(&batch)? {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => return Ok(Some(batch)),
            value => value.into_array(batch.num_rows())?,
        };
        let mask = mask.as_boolean();
        let mask = if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
        match mask.true_count() {
            0 => Ok(None),
            count if count == batch.num_rows() => Ok(Some(batch)),
            _ => Ok(Some(without_unused(&filter_record_batch(&batch, &mask)?)?)),
        }
    }

    fn hold(&self, batch: RecordBatch) -> DataFusionResult<()> {
        self.add(batch)?;
        // Rows that pile up while another partition looks must not take what the query has.
        let is_far = lock(&self.held).bytes.get() >= 2 * self.bytes_max;
        let looking = match is_far {
            true => Some(lock_whole(&self.looking)),
            false => self.looking.try_lock().ok(),
        };
        let Some(_looking) = looking else { return Ok(()) };
        let taken = {
            let mut held = lock(&self.held);
            let is_much = held.rows.get() >= LOOKED_ROWS_MIN || held.bytes.get() >= self.bytes_max;
            if held.rows.get() / 2 < self.count.max(1) || !is_much {
                return Ok(());
            }
            std::mem::take(&mut *held)
        };
        let looked = Looked::new(taken.batches, &self.ordering, &self.reservation)?;
        let kept = looked.first(self.count)?;
        self.add(kept.rows)?;
        self.reservation.shrink(taken.bytes.get());
        self.filter.update(before(&self.ordering, &kept.last_keys)?)
    }

    fn add(&self, batch: RecordBatch) -> DataFusionResult<()> {
        let bytes = used_bytes(&batch);
        self.reservation.try_grow(bytes)?;
        let mut held = lock(&self.held);
        held.rows.add(batch.num_rows());
        held.bytes.add(bytes);
        held.batches.push(batch);
        Ok(())
    }

    /// The rows that are wanted, when all were gathered.
    fn ordered(&self, skip: usize) -> DataFusionResult<OrderedRows> {
        let held = std::mem::take(&mut *lock_whole(&self.held));
        if held.rows.get() <= skip {
            return Ok(OrderedRows { batches: Vec::new(), places: Vec::new() });
        }
        Looked::new(held.batches, &self.ordering, &self.reservation)?.range(skip, self.count)
    }
}

fn without_unused(batch: &RecordBatch) -> DataFusionResult<RecordBatch> {
    let columns = batch.columns().iter().cloned().map(without_unused_text).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

/// Rows and the order of their keys.
struct Looked {
    batches: Vec<RecordBatch>,
    keys: Vec<ArrayRef>,
    order: KeyOrder,
    /// Of keys and places.
    _memory: MemoryReservation,
}

enum KeyOrder {
    /// Keys of a fixed width, in a form that compares byte by byte.
    Rows(Rows),
    Columns(LexicographicalComparator),
}

/// The first rows.
struct Kept {
    /// In no order.
    rows: RecordBatch,
    last_keys: Vec<ScalarValue>,
}

/// Places of rows, in the order of the rows.
struct OrderedRows {
    batches: Vec<RecordBatch>,
    places: Vec<(usize, usize)>,
}

impl Looked {
    fn new(
        batches: Vec<RecordBatch>,
        ordering: &LexOrdering,
        reservation: &MemoryReservation,
    ) -> DataFusionResult<Self> {
        let memory = reservation.new_empty();
        let mut keys = Vec::new();
        for key in ordering {
            let of_batch = |batch: &RecordBatch| key.expr.evaluate(batch)?.into_array(batch.num_rows());
            let parts = batches.iter().map(of_batch).collect::<DataFusionResult<Vec<_>>>()?;
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            // Texts are pointed to, whatever they take.
            memory.try_grow(parts.iter().map(|part| part.len() * 16).sum())?;
            keys.push(concat(&parts)?);
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let is_fixed = |key: &ArrayRef| {
            let data_type = key.data_type();
            data_type.is_primitive() || matches!(data_type, DataType::Boolean | DataType::FixedSizeBinary(_))
        };
        memory.try_grow(rows.saturating_mul(size_of::<u32>() + size_of::<(usize, usize)>()))?;
        let order = if keys.iter().all(is_fixed) {
            let fields = keys.iter().zip(ordering);
            let fields = fields
                .map(|(column, key)| SortField::new_with_options(column.data_type().clone(), key.options));
            let rows = RowConverter::new(fields.collect())?.convert_columns(&keys)?;
            memory.try_grow(rows.size())?;
            KeyOrder::Rows(rows)
        } else {
            let columns = keys.iter().zip(ordering);
            let columns = columns
                .map(|(column, key)| SortColumn { values: column.clone(), options: Some(key.options) });
            KeyOrder::Columns(LexicographicalComparator::try_new(&columns.collect::<Vec<_>>())?)
        };
        Ok(Self { batches, keys, order, _memory: memory })
    }

    fn numbers(&self) -> DataFusionResult<Vec<u32>> {
        let rows: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        let rows = u32::try_from(rows)
            .map_err(|_| DataFusionError::ResourcesExhausted("more rows than can be ordered".to_owned()))?;
        Ok((0..rows).collect())
    }

    fn compare(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (one as usize, other as usize);
        match &self.order {
            KeyOrder::Rows(rows) => rows.row(one).cmp(&rows.row(other)),
            KeyOrder::Columns(columns) => columns.compare(one, other),
        }
    }

    /// Where rows are, by their numbers.
    fn places(&self, numbers: &[u32]) -> Vec<(usize, usize)> {
        let mut ends = Vec::with_capacity(self.batches.len());
        let mut end = 0;
        for batch in &self.batches {
            end += batch.num_rows();
            ends.push(end);
        }
        let place = |number: &u32| {
            let number = *number as usize;
            let batch = ends.partition_point(|end| *end <= number);
            (batch, number - (ends[batch] - self.batches[batch].num_rows()))
        };
        numbers.iter().map(place).collect()
    }

    /// The first rows; there are at least `count`, which is not 0.
    fn first(self, count: usize) -> DataFusionResult<Kept> {
        let mut numbers = self.numbers()?;
        let last = *numbers.select_nth_unstable_by(count - 1, |one, other| self.compare(*one, *other)).1;
        numbers.truncate(count);
        // Rows are copied batch by batch.
        numbers.sort_unstable();
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let rows = without_unused(&interleave_record_batch(&batches, &self.places(&numbers))?)?;
        let last_keys = self.keys.iter().map(|key| ScalarValue::try_from_array(key, last as usize));
        Ok(Kept { rows, last_keys: last_keys.collect::<DataFusionResult<_>>()? })
    }

    /// The rows from `skip`, which is less than there are, to `end`, in order.
    fn range(self, skip: usize, end: usize) -> DataFusionResult<OrderedRows> {
        let mut numbers = self.numbers()?;
        if end < numbers.len() {
            numbers.select_nth_unstable_by(end, |one, other| self.compare(*one, *other));
            numbers.truncate(end);
        }
        if skip > 0 && skip < numbers.len() {
            numbers.select_nth_unstable_by(skip, |one, other| self.compare(*one, *other));
        }
        let numbers = numbers.get_mut(skip..).unwrap_or_default();
        numbers.sort_unstable_by(|one, other| self.compare(*one, *other));
        let places = self.places(numbers);
        Ok(OrderedRows { batches: self.batches, places })
    }
}

impl OrderedRows {
    /// The rows in batches. What they take stays reserved until the last is made.
    fn batches(
        self,
        batch_rows: usize,
        memory: Arc<Candidates>,
    ) -> impl Iterator<Item = DataFusionResult<RecordBatch>> + Send {
        let batch_rows = batch_rows.max(1);
        (0..self.places.len()).step_by(batch_rows).map(move |start| {
            let _memory = &memory;
            let batches: Vec<&RecordBatch> = self.batches.iter().collect();
            let end = self.places.len().min(start + batch_rows);
            Ok(interleave_record_batch(&batches, &self.places[start..end])?)
        })
    }
}

/// Whether a row is before one with these keys.
///
/// Source: DataFusion's `TopK::build_filter_expression`.
fn before(ordering: &LexOrdering, keys: &[ScalarValue]) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
    let both =
        |one, operator, other| Arc::new(BinaryExpr::new(one, operator, other)) as Arc<dyn PhysicalExpr>;
    let mut is_before: Option<Arc<dyn PhysicalExpr>> = None;
    for (key, value) in ordering.iter().zip(keys).rev() {
        let PhysicalSortExpr { expr, options } = key;
        let operator = if options.descending { Operator::Gt } else { Operator::Lt };
        let compared = || both(expr.clone(), operator, lit(value.clone()));
        let own = match (options.nulls_first, value.is_null()) {
            (true, true) => lit(false),
            (true, false) => both(is_null(expr.clone())?, Operator::Or, compared()),
            (false, true) => is_not_null(expr.clone())?,
            (false, false) => compared(),
        };
        is_before = Some(match is_before {
            None => own,
            Some(later) => {
                let equal = match value.is_null() {
                    true => is_null(expr.clone())?,
                    false => both(expr.clone(), Operator::Eq, lit(value.clone())),
                };
                both(own, Operator::Or, both(equal, Operator::And, later))
            }
        });
    }
    Ok(is_before.unwrap_or_else(|| lit(false)))
}
