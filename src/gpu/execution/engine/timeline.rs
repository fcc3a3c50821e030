//! What the device did for the last queries.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_engine::locking::lock_whole;

use pystachio_plan::QueryTimeline;

/// Queries that read less say nothing about storage.
const READ_BYTES_MIN: u64 = 64 << 20;
/// Queries that are remembered.
const QUERIES_MAX: usize = 16;

/// The timelines of the last queries. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Timelines {
    queries: Arc<Mutex<VecDeque<QueryTimeline>>>,
    /// The highest rate of reading that a query had, in bytes a second.
    read_rate_max: Arc<AtomicU64>,
}

impl Timelines {
    /// Adds a query that has just ended.
    pub(super) fn add(&self, timeline: QueryTimeline) {
        let mut queries = self.lock();
        if queries.len() == QUERIES_MAX {
            queries.pop_front();
        }
        queries.push_back(timeline);
    }

    /// Notes how fast a query has read, and says how fast any has.
    pub(super) fn note_reading(&self, bytes: u64, read_us: u64) -> u64 {
        if bytes < READ_BYTES_MIN || read_us == 0 {
            return self.read_rate_max.load(Ordering::Relaxed);
        }
        let rate = (bytes as f64 / (read_us as f64 / 1e6)) as u64;
        self.read_rate_max.fetch_max(rate, Ordering::Relaxed).max(rate)
    }

    /// The last queries, the last one last.
    pub(super) fn last(&self) -> Vec<QueryTimeline> {
        self.lock().iter().cloned().collect()
    }

    /// That of a query by the number that all ranks know it by.
    pub(super) fn of_shared(&self, query: u64) -> Option<QueryTimeline> {
        self.lock().iter().find(|timeline| timeline.shared == Some(query)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<QueryTimeline>> {
        lock_whole(&self.queries)
    }
}
