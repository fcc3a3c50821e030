//! What a partition of a scan counts.

use crate::datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, Time,
};

pub(super) struct ScanMetrics {
    pub(super) baseline: BaselineMetrics,
    pub(super) bytes_read: Count,
    pub(super) row_groups_pruned: Count,
    pub(super) cache_hits: Count,
    /// Chunks that were not there, and were decoded for the cache.
    pub(super) cache_misses: Count,
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

    /// The time that computing took.
    pub(super) fn elapsed(&self) -> Time {
        self.baseline.elapsed_compute().clone()
    }
}
