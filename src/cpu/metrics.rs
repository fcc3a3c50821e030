//! What a query cost, from the metrics of its operators.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
    physical_plan::{ExecutionPlan, displayable, metrics::MetricValue},
};
use pystachio_engine::StopFlag;
use pystachio_plan::{OperatorMetrics, QueryMetrics};

use crate::{cache::ColumnCache, stopping};

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
        operator.description = displayable(plan.as_ref()).one_line().to_string().trim_end().to_owned();
        metrics.operators.push(operator);
    }
    if depth < DEPTH_MAX {
        for child in plan.children() {
            visit(child, depth + 1, with_operators, metrics);
        }
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

/// The engine's memory pool as one query sees it: what the query reserves is counted. A query that is not
/// wanted any more gets nothing: operators that work for long within one poll, such as a sort that spills,
/// ask for memory again and again. What the pool does not have is taken from the column cache.
#[derive(Debug)]
pub(crate) struct QueryPool {
    engine: Arc<dyn MemoryPool>,
    cache: Arc<ColumnCache>,
    stop: StopFlag,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl QueryPool {
    pub(crate) fn new(engine: Arc<dyn MemoryPool>, cache: Arc<ColumnCache>, stop: StopFlag) -> Self {
        Self { engine, cache, stop, used_bytes: AtomicUsize::new(0), peak_bytes: AtomicUsize::new(0) }
    }

    /// The most that was reserved at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed) as u64
    }

    fn count(&self, additional: usize) {
        let used = self.used_bytes.fetch_add(additional, Ordering::Relaxed) + additional;
        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
    }
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
        self.engine.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.engine.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.engine.grow(reservation, additional);
        self.count(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.engine.shrink(reservation, shrink);
        self.used_bytes.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        stopping::check(&self.stop)?;
        let mut grown = self.engine.try_grow(reservation, additional);
        while grown.is_err() && self.cache.give_back(additional.max(CACHE_STEP_BYTES)) {
            grown = self.engine.try_grow(reservation, additional);
        }
        grown?;
        self.count(additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.engine.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.engine.memory_limit()
    }
}
