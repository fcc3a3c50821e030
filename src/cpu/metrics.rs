//! What a query cost, from the metrics of its operators.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
    },
    physical_plan::{ExecutionPlan, displayable, metrics::MetricValue},
};
use pystachio_engine::{Meter, StopFlag, locking::lock_whole, spill::QuerySpill};
use pystachio_files::FileCatalog;
use pystachio_plan::{Error, OperatorMetrics, QueryMetrics, QueryProgress, Relation};

use crate::{
    actual_rows, cache::ColumnCache, error::to_datafusion, given_rows::GivenRowsExec, pool::CHUNK_CONSUMER,
    scan, shared::inputs, stopping,
};

/// The least that is taken from the column cache at once. An operator that may spill gets only its share of
/// what is given back.
const CACHE_STEP_BYTES: usize = 16 << 20;
/// Operators nested deeper are left out.
const DEPTH_MAX: u32 = 200;

/// Fills in what the operators below `plan` have counted.
pub(crate) fn collect(plan: &Arc<dyn ExecutionPlan>, with_operators: bool, metrics: &mut QueryMetrics) {
    visit(plan, 0, with_operators, metrics);
}

fn visit(plan: &Arc<dyn ExecutionPlan>, depth: u32, with_operators: bool, metrics: &mut QueryMetrics) {
    let mut operator = OperatorMetrics { depth, ..OperatorMetrics::default() };
    if let Some(found) = plan.metrics() {
        for metric in found.aggregate_by_name().iter() {
            add(metric.value(), metrics, &mut operator);
        }
    }
    if with_operators {
        operator.counters.sort();
        operator.description = shortened(displayable(plan.as_ref()).one_line().to_string().trim_end());
        metrics.operators.push(operator);
    }
    if let Some(cost) = plan.downcast_ref::<GivenRowsExec>().and_then(GivenRowsExec::cost) {
        metrics.add_part(cost, depth + 1);
    }
    if depth < DEPTH_MAX {
        for child in inputs(plan) {
            visit(child, depth + 1, with_operators, metrics);
        }
    }
}

/// A description without the end of a long one: a condition may list a hundred thousand keys.
fn shortened(description: &str) -> String {
    const CHARACTERS_MAX: usize = 1000;
    match description.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &description[..end]),
        None => description.to_owned(),
    }
}

fn add(value: &MetricValue, metrics: &mut QueryMetrics, operator: &mut OperatorMetrics) {
    let number = value.as_usize() as u64;
    match value {
        MetricValue::OutputRows(_) => operator.row_count = Some(number),
        MetricValue::ElapsedCompute(_) => operator.elapsed_us = Some(number / 1000),
        MetricValue::SpilledBytes(_) => {
            metrics.spilled_bytes += number;
            count(operator, "spilled_bytes", number);
        }
        MetricValue::Count { name, .. } => {
            match name.as_ref() {
                "bytes_read" => metrics.bytes_read += number,
                "files_total" => metrics.files_total += number,
                "row_groups_total" => metrics.row_groups_total += number,
                "row_groups_pruned" => metrics.row_groups_pruned += number,
                "files_pruned" => metrics.files_pruned += number,
                "cache_hits" => metrics.cache_hits += number,
                "cache_misses" => metrics.cache_misses += number,
                _ => {}
            }
            count(operator, name, number);
        }
        MetricValue::SpillCount(_) | MetricValue::SpilledRows(_) | MetricValue::Gauge { .. } => {
            count(operator, value.name(), number);
        }
        MetricValue::Time { name, .. } => count(operator, &format!("{name}_us"), number / 1000),
        _ => {}
    }
}

fn count(operator: &mut OperatorMetrics, name: &str, number: u64) {
    if number > 0 {
        operator.counters.push((name.to_owned(), number));
    }
}

/// A plan that runs, or what it has cost. While a plan is there, so is what its operators share, such as the tables of joins.
pub(crate) struct MeasuredPlan {
    state: Mutex<PlanState>,
    /// The query's operators, if what each of them gave is asked for.
    counted: Option<Arc<Relation>>,
}

enum PlanState {
    Running(Arc<dyn ExecutionPlan>),
    /// What was counted, and the bytes that its scans had to go through and went through.
    Ended(Box<QueryMetrics>, (u64, u64)),
}

impl MeasuredPlan {
    pub(crate) fn new(plan: Arc<dyn ExecutionPlan>, counted: Option<Arc<Relation>>) -> Self {
        Self { state: Mutex::new(PlanState::Running(plan)), counted }
    }

    /// Starts the plan; it has not ended.
    pub(crate) fn execute(&self, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let plan = match &*self.lock() {
            PlanState::Running(plan) => plan.clone(),
            PlanState::Ended(..) => return Err(to_datafusion(Error::internal("a plan runs once"))),
        };
        plan.execute(0, context)
    }

    /// Lets go of the plan.
    pub(crate) fn end(&self) {
        let (metrics, bytes) = (self.metrics(), self.scan_bytes());
        *self.lock() = PlanState::Ended(Box::new(metrics), bytes);
    }

    /// What its operators have counted.
    pub(crate) fn metrics(&self) -> QueryMetrics {
        let plan = match &*self.lock() {
            PlanState::Running(plan) => plan.clone(),
            PlanState::Ended(metrics, _) => return QueryMetrics::clone(metrics),
        };
        let mut metrics = QueryMetrics::default();
        collect(&plan, self.counted.is_some(), &mut metrics);
        if let Some(root) = &self.counted {
            metrics.actual_rows = actual_rows::collect(root, &plan);
        }
        metrics
    }

    /// Bytes that its scans have to go through, and those of them that they are through with.
    pub(crate) fn scan_bytes(&self) -> (u64, u64) {
        let plan = match &*self.lock() {
            PlanState::Running(plan) => plan.clone(),
            PlanState::Ended(_, bytes) => return *bytes,
        };
        scan::bytes(&plan)
    }

    /// What they have read and spilled so far.
    fn costs(&self) -> QueryMetrics {
        let plan = match &*self.lock() {
            PlanState::Running(plan) => plan.clone(),
            PlanState::Ended(metrics, _) => return QueryMetrics::clone(metrics),
        };
        let mut metrics = QueryMetrics::default();
        collect(&plan, false, &mut metrics);
        metrics
    }

    fn lock(&self) -> MutexGuard<'_, PlanState> {
        lock_whole(&self.state)
    }
}

/// Where it can be seen how far a plan is that runs in a pool.
pub(crate) struct PlanMeter {
    pub(crate) plan: Arc<MeasuredPlan>,
    pub(crate) pool: Arc<QueryPool>,
    pub(crate) spill: QuerySpill,
}

impl Meter for PlanMeter {
    fn progress(&self) -> QueryProgress {
        let QueryMetrics { bytes_read, spilled_bytes, .. } = self.plan.costs();
        let (bytes_expected, bytes_done) = self.plan.scan_bytes();
        let memory_bytes = self.pool.used_bytes();
        let temp_file_bytes = self.temp_file_bytes();
        QueryProgress { bytes_read, bytes_expected, bytes_done, memory_bytes, spilled_bytes, temp_file_bytes }
    }

    fn temp_file_bytes(&self) -> u64 {
        self.spill.taken_bytes()
    }
}

/// The engine's memory pool as one query sees it: what the query reserves is counted. A query that is not
/// wanted any more gets nothing: operators that work for long within one poll, such as a sort that spills,
/// ask for memory again and again. What the pool does not have is taken from the column cache, and then from kept footers.
#[derive(Debug)]
pub(crate) struct QueryPool {
    engine: Arc<dyn MemoryPool>,
    cache: Arc<ColumnCache>,
    catalog: Arc<FileCatalog>,
    stop: StopFlag,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    /// What is used but for chunks.
    held_bytes: AtomicUsize,
    /// Those that have not ended, but for chunks, which stay in the column cache.
    consumers: AtomicUsize,
}

impl QueryPool {
    pub(crate) fn new(
        engine: Arc<dyn MemoryPool>,
        cache: Arc<ColumnCache>,
        catalog: Arc<FileCatalog>,
        stop: StopFlag,
    ) -> Self {
        Self {
            engine,
            cache,
            catalog,
            stop,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            consumers: AtomicUsize::new(0),
        }
    }

    /// Whether an operator of the query may hold memory.
    pub(crate) fn is_used(&self) -> bool {
        self.consumers.load(Ordering::Relaxed) > 0
    }

    /// The most that was reserved at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed) as u64
    }

    /// What is reserved now.
    fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed) as u64
    }

    /// What the query's operators hold, without what may stay in the column cache.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed) as u64
    }

    fn count(&self, reservation: &MemoryReservation, additional: usize) {
        let used = self.used_bytes.fetch_add(additional, Ordering::Relaxed) + additional;
        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
        if !is_cached(reservation.consumer()) {
            self.held_bytes.fetch_add(additional, Ordering::Relaxed);
        }
    }
}

/// Whether its memory may stay in the column cache.
fn is_cached(consumer: &MemoryConsumer) -> bool {
    consumer.name() == CHUNK_CONSUMER
}

impl fmt::Display for QueryPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "query of {}", self.engine)
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.consumers.fetch_add(usize::from(!is_cached(consumer)), Ordering::Relaxed);
        self.engine.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.consumers.fetch_sub(usize::from(!is_cached(consumer)), Ordering::Relaxed);
        self.engine.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.engine.grow(reservation, additional);
        self.count(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.engine.shrink(reservation, shrink);
        self.used_bytes.fetch_sub(shrink, Ordering::Relaxed);
        if !is_cached(reservation.consumer()) {
            self.held_bytes.fetch_sub(shrink, Ordering::Relaxed);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        stopping::check(&self.stop)?;
        let mut grown = self.engine.try_grow(reservation, additional);
        while grown.is_err()
            && (self.cache.give_back(additional.max(CACHE_STEP_BYTES))
                || self.catalog.give_back(additional as u64))
        {
            grown = self.engine.try_grow(reservation, additional);
        }
        grown?;
        self.count(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.engine.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.engine.memory_limit()
    }
}
