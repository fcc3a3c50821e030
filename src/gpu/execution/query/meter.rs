//! How far a query is, for who watches it.
//!
//! Deliberately absent: what its operators have counted, which is theirs until they say so.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::{Meter, StopFlag};
use pystachio_plan::QueryProgress;

use super::QueryMemory;
use crate::{device::DeviceMemory, spill::SpillStore};

/// What a query's scans have done and have to do, and what the query holds.
pub(in crate::execution) struct QueryMeter {
    memory: DeviceMemory,
    store: SpillStore,
    bytes_read: AtomicU64,
    bytes_expected: AtomicU64,
    bytes_done: AtomicU64,
}

impl QueryMeter {
    /// Of a query with this memory.
    pub(in crate::execution) fn new(memory: &DeviceMemory, budget: &QueryMemory) -> Arc<Self> {
        Arc::new(Self {
            memory: memory.clone(),
            store: budget.store.clone(),
            bytes_read: AtomicU64::new(0),
            bytes_expected: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
        })
    }

    /// Lets whoever has the flag see it for as long as it is there.
    pub(in crate::execution) fn show(self: &Arc<Self>, stop: &StopFlag) {
        let meter: Arc<dyn Meter> = self.clone();
        stop.account().measure(Arc::downgrade(&meter));
    }

    /// A scan has these bytes of column chunks to go through.
    pub(in crate::execution) fn expect(&self, bytes: u64) {
        self.bytes_expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A scan is through with these.
    pub(in crate::execution) fn note_done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes were read.
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
        }
    }
}
