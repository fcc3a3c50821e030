//! What the device did for the last queries.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pystachio_plan::QueryTimeline;

use crate::device::ActivityLog;

/// Queries that are remembered.
const QUERIES_MAX: usize = 16;

/// The timelines of the last queries. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Timelines {
    queries: Arc<Mutex<VecDeque<QueryTimeline>>>,
}

impl Timelines {
    /// Adds a query that has just ended after it ran for `elapsed`.
    pub(super) fn add(&self, query: u64, log: &ActivityLog, elapsed: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timeline = QueryTimeline {
            query,
            started_unix_us: now.saturating_sub(elapsed).as_micros() as u64,
            elapsed_us: elapsed.as_micros() as u64,
            activities: log.take(),
        };
        let mut queries = self.lock();
        if queries.len() == QUERIES_MAX {
            queries.pop_front();
        }
        queries.push_back(timeline);
    }

    /// The last queries, the last one last.
    pub(super) fn last(&self) -> Vec<QueryTimeline> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<QueryTimeline>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
