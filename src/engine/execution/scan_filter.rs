//! The rows of a scan that are wanted: those that meet its own condition, of them those whose keys joins above may
//! match.
//!
//! Deliberately absent: decoding. Flags need the columns of the condition and the joins' keys.

use std::sync::atomic::{AtomicU64, Ordering};

use pystachio_plan::{OperatorMetrics, Result};

use super::{rows::keep_flagged, runtime_filter::ScanRuntimeFilter};
use crate::{
    device::{Buffer, Chunk},
    operation::Queue,
    program::Filter,
    storage::RowGroupBounds,
};

/// What a scan asks of a row.
pub(super) struct ScanFilter {
    condition: Option<Filter>,
    runtime: Vec<ScanRuntimeFilter>,
    row_groups_pruned: AtomicU64,
}

impl ScanFilter {
    /// A scan's own condition, and the filters of joins above.
    pub(super) fn new(condition: Option<Filter>, runtime: Vec<ScanRuntimeFilter>) -> Self {
        Self { condition, runtime, row_groups_pruned: AtomicU64::new(0) }
    }

    /// Whether all that joins will say is known.
    pub(super) fn is_settled(&self) -> bool {
        self.runtime.iter().all(ScanRuntimeFilter::is_settled)
    }

    /// Whether joins say anything that bounds of a row group can contradict.
    pub(super) fn may_prune(&self) -> bool {
        self.runtime.iter().any(|filter| filter.filter().is_used())
    }

    /// Whether joins say that no row within the bounds is wanted.
    pub(super) fn refutes(&self, bounds: &RowGroupBounds) -> bool {
        self.runtime.iter().any(|filter| filter.refutes(bounds))
    }

    /// Counts a row group that was not decoded.
    pub(super) fn note_pruned(&self) {
        self.row_groups_pruned.fetch_add(1, Ordering::Relaxed);
    }

    /// One flag a row of a chunk: whether it is wanted. `None` if all are.
    ///
    /// Waits where a filter of a join is asked.
    ///
    /// # Errors
    ///
    /// Those of the condition; `OutOfMemory`, `Device`.
    pub(super) fn flags(&self, queue: &Queue, chunk: &Chunk) -> Result<Option<Buffer>> {
        let mut flags = match &self.condition {
            Some(condition) => Some(condition.evaluate(queue.memory(), chunk, queue.stream())?.values),
            None => None,
        };
        for filter in self.runtime.iter().filter(|filter| filter.is_worth_testing()) {
            flags = Some(filter.test(queue, chunk, flags.as_ref())?);
        }
        Ok(flags)
    }

    /// The rows of a chunk that are wanted.
    ///
    /// # Errors
    ///
    /// As of [`ScanFilter::flags`].
    pub(super) fn apply(&self, queue: &Queue, chunk: Chunk) -> Result<Chunk> {
        if chunk.row_count == 0 {
            return Ok(chunk);
        }
        match self.flags(queue, &chunk)? {
            Some(flags) => keep_flagged(queue, chunk, &flags),
            None => Ok(chunk),
        }
    }

    /// Adds what was counted since the last time to an operator.
    pub(super) fn show(&self, operator: &mut OperatorMetrics) {
        operator.count("row_groups_pruned_by_joins", self.row_groups_pruned.swap(0, Ordering::Relaxed));
        self.runtime.iter().for_each(|filter| filter.show(operator));
    }
}
