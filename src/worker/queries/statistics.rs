//! Totals of queries by role, statement and engine.
//!
//! Invariants: at most [`STATISTICS_MAX`] entries. The entry whose last query ended first is dropped first.

use std::collections::HashMap;

use pystachio_plan::{QueryEngine, QueryEntry, QueryState, StatisticsEntry};

use super::unix_us;

/// As many as pg_stat_statements keeps unless it is set otherwise. Some hundred bytes each.
const STATISTICS_MAX: usize = 5000;

/// What a query that ended has cost, beside what its entry says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueryCost {
    pub(super) cache_hits: u64,
    pub(super) cache_misses: u64,
    /// The device's engine had refused it.
    pub(super) is_fallback: bool,
}

/// What queries are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StatisticsKey {
    role: u32,
    query_id: i64,
    engine: Option<QueryEngine>,
}

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// With when it was counted last.
    counted: HashMap<StatisticsKey, (StatisticsEntry, u64)>,
    /// Queries that were counted.
    count: u64,
}

impl Statistics {
    /// Counts a query that has ended.
    pub(super) fn add(&mut self, query: &QueryEntry, cost: &QueryCost) {
        let key = StatisticsKey { role: query.role, query_id: query.origin.query_id, engine: query.engine };
        if self.counted.len() >= STATISTICS_MAX && !self.counted.contains_key(&key) {
            self.forget_one();
        }
        self.count += 1;
        let (entry, used) = self.counted.entry(key).or_insert_with(|| (empty(key), 0));
        *used = self.count;
        entry.hides_counts |= query.origin.hides_counts;
        entry.calls += 1;
        entry.failures += u64::from(query.state == QueryState::Failed);
        entry.cancellations += u64::from(query.state == QueryState::Cancelled);
        entry.fallbacks += u64::from(cost.is_fallback);
        entry.row_count += query.row_count;
        entry.bytes_read += query.bytes_read;
        entry.spilled_bytes += query.spilled_bytes;
        entry.cache_hits += cost.cache_hits;
        entry.cache_misses += cost.cache_misses;
        entry.total_us += query.elapsed_us;
        entry.min_us = entry.min_us.min(query.elapsed_us);
        entry.max_us = entry.max_us.max(query.elapsed_us);
        entry.rank_count_max = entry.rank_count_max.max(query.rank_count);
    }

    /// What was counted, in no order.
    pub(super) fn entries(&self) -> Vec<StatisticsEntry> {
        self.counted.values().map(|(entry, _)| entry.clone()).collect()
    }

    fn forget_one(&mut self) {
        let oldest = self.counted.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            self.counted.remove(&oldest);
        }
    }
}

fn empty(key: StatisticsKey) -> StatisticsEntry {
    StatisticsEntry {
        role: key.role,
        query_id: key.query_id,
        hides_counts: false,
        engine: key.engine,
        calls: 0,
        failures: 0,
        cancellations: 0,
        fallbacks: 0,
        row_count: 0,
        bytes_read: 0,
        spilled_bytes: 0,
        cache_hits: 0,
        cache_misses: 0,
        total_us: 0,
        min_us: u64::MAX,
        max_us: 0,
        rank_count_max: 0,
        since_unix_us: unix_us(),
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::QueryOrigin;

    use super::*;

    fn query(role: u32, query_id: i64, elapsed_us: u64) -> QueryEntry {
        QueryEntry {
            query: 1,
            backend_pid: 1,
            role,
            origin: QueryOrigin { query_id, hides_counts: query_id < 0 },
            engine: Some(QueryEngine::Cpu),
            rank_count: 1,
            state: QueryState::Finished,
            waits_for: None,
            started_unix_us: 0,
            elapsed_us,
            row_count: 2,
            bytes_read: 5,
            bytes_expected: 5,
            bytes_done: 5,
            memory_bytes: 0,
            spilled_bytes: 3,
            error: None,
        }
    }

    #[test]
    fn queries_of_one_statement_and_role_are_one_entry() {
        let mut statistics = Statistics::default();
        let cost = QueryCost { cache_hits: 1, cache_misses: 2, is_fallback: true };
        for elapsed_us in [30, 10, 20] {
            statistics.add(&query(1, 9, elapsed_us), &cost);
        }
        statistics.add(&query(2, -9, 1), &QueryCost::default());
        let mut entries = statistics.entries();
        entries.sort_by_key(|entry| entry.role);
        let StatisticsEntry { calls, row_count, bytes_read, spilled_bytes, .. } = entries[0];
        assert_eq!((calls, row_count, bytes_read, spilled_bytes), (3, 6, 15, 9));
        let StatisticsEntry { total_us, min_us, max_us, cache_misses, fallbacks, .. } = entries[0];
        assert_eq!((total_us, min_us, max_us, cache_misses, fallbacks), (60, 10, 30, 6, 3));
        assert_eq!((entries[0].hides_counts, entries[1].hides_counts), (false, true));
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_first() {
        let mut statistics = Statistics::default();
        for query_id in 0..STATISTICS_MAX as i64 {
            statistics.add(&query(1, query_id, 1), &QueryCost::default());
        }
        statistics.add(&query(1, 0, 1), &QueryCost::default());
        statistics.add(&query(1, i64::MAX, 1), &QueryCost::default());
        let entries = statistics.entries();
        let has = |query_id| entries.iter().any(|entry| entry.query_id == query_id);
        assert_eq!(
            (entries.len(), has(0), has(1), has(2), has(i64::MAX)),
            (STATISTICS_MAX, true, false, true, true)
        );
    }
}
