//! What the device did for the last queries.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pystachio_engine::locking::lock_whole;

use pystachio_plan::{Activity, QueryTimeline};

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
    /// Adds a role's query that has just ended after it ran for `elapsed`.
    pub(super) fn add(&self, query: u64, role: u32, activities: Vec<Activity>, elapsed: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timeline = QueryTimeline {
            query,
            role,
            started_unix_us: now.saturating_sub(elapsed).as_micros() as u64,
            elapsed_us: elapsed.as_micros() as u64,
            activities,
        };
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

    fn lock(&self) -> MutexGuard<'_, VecDeque<QueryTimeline>> {
        lock_whole(&self.queries)
    }
}
