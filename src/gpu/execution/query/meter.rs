//! The progress of a query, for monitoring.
//!
//! Deliberately absent: the counts of operators, which drivers report at their end.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::{Meter, StopFlag};
use pystachio_plan::QueryProgress;

use super::QueryMemory;
use crate::{device::DeviceMemory, spill::SpillStore};

/// The done and remaining bytes of a query's scans, and the memory of the query.
pub(in crate::execution) struct QueryMeter {
    memory: DeviceMemory,
    store: SpillStore,
    bytes_read: AtomicU64,
    bytes_expected: AtomicU64,
    bytes_done: AtomicU64,
}

impl QueryMeter {
    /// The meter of a query with this memory.
    pub(in crate::execution) fn new(memory: &DeviceMemory, budget: &QueryMemory) -> Arc<Self> {
        Arc::new(Self {
            memory: memory.clone(),
            store: budget.store.clone(),
            bytes_read: AtomicU64::new(0),
            bytes_expected: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
        })
    }

    /// Shows the progress to holders of the flag, as long as the meter lives.
    pub(in crate::execution) fn show(self: &Arc<Self>, stop: &StopFlag) {
        let meter: Arc<dyn Meter> = self.clone();
        stop.account().measure(Arc::downgrade(&meter));
    }

    /// Adds column chunks of this many bytes to a scan's work.
    pub(in crate::execution) fn expect(&self, bytes: u64) {
        self.bytes_expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds finished bytes of a scan.
    pub(in crate::execution) fn note_done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds read bytes.
    pub(in crate::execution) fn note_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Meter for QueryMeter {
    fn progress(&self) -> QueryProgress {
        QueryProgress {
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_expected: self.bytes_expected.load(Ordering::Relaxed),
            bytes_done: self.bytes_done.load(Ordering::Relaxed),
            memory_bytes: self.memory.held_bytes(),
            spilled_bytes: self.store.written_bytes(),
            temp_file_bytes: self.temp_file_bytes(),
        }
    }

    fn temp_file_bytes(&self) -> u64 {
        self.store.space().spill().taken_bytes()
    }
}
