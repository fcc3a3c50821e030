//! The device's activity for the last queries.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_engine::locking::lock_whole;

use pystachio_plan::QueryTimeline;

/// Queries that read less say nothing about the speed of storage.
const READ_BYTES_MIN: u64 = 64 << 20;
/// Limit of the timelines that are kept.
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

    /// Takes a query's rate of reading into account, and returns the highest so far.
    pub(super) fn note_reading(&self, bytes: u64, read_us: u64) -> u64 {
        if bytes < READ_BYTES_MIN || read_us == 0 {
            return self.read_rate_max.load(Ordering::Relaxed);
        }
        let rate = (bytes as f64 / (read_us as f64 / 1e6)) as u64;
        self.read_rate_max.fetch_max(rate, Ordering::Relaxed).max(rate)
    }

    /// The timelines of the last queries, the newest last.
    pub(super) fn last(&self) -> Vec<QueryTimeline> {
        self.lock().iter().cloned().collect()
    }

    /// The timeline of a query by its number among all ranks.
    pub(super) fn of_shared(&self, query: u64) -> Option<QueryTimeline> {
        self.lock().iter().find(|timeline| timeline.shared == Some(query)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<QueryTimeline>> {
        lock_whole(&self.queries)
    }
}
