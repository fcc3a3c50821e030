//! The queries of an engine: running ones, the last ones that ended, and totals.
//!
//! ```text
//! Run ─► begin: a number ─► runs: read when a view asks ─► ends, or is dropped ─┬─► the last queries: a ring
//!                                                                               └─► statistics, by statement
//! ```
//!
//! - `statistics.rs`: totals by role, statement and engine
//!
//! Invariants: every query that began ends here exactly once. The ring and the statistics are bounded.
//!
//! Deliberately absent: permissions. The extension decides which roles may see a query.

mod statistics;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{
    Error, ErrorKind, QueryEntry, QueryMetrics, QueryOrigin, QueryProgress, QueryState, QueryWait,
    StatisticsEntry,
};
use tokio::sync::watch;

use self::statistics::{QueryCost, Statistics};

/// Queries that are remembered after their end.
const ENDED_MAX: usize = 256;
/// Of an error's text so much is remembered.
const ERROR_BYTES_MAX: usize = 1024;

/// The client of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The backend's process.
    pub backend_pid: u32,
    /// [`pystachio_plan::QueryRequest::role`].
    pub role: u32,
    /// Which statement it belongs to.
    pub origin: QueryOrigin,
}

/// What an engine knows of its queries.
#[derive(Debug, Default)]
pub struct QueryLog {
    begun: AtomicU64,
    running: Mutex<BTreeMap<u64, Arc<QueryWatch>>>,
    /// The last one last.
    ended: Mutex<VecDeque<QueryEntry>>,
    statistics: Mutex<Statistics>,
}

/// A query that runs, as it is looked at.
#[derive(Debug)]
struct QueryWatch {
    number: u64,
    asker: Asker,
    started: Instant,
    started_unix_us: u64,
    stop: StopFlag,
    turn_waits: watch::Receiver<bool>,
    row_count: AtomicU64,
    gives_rows: AtomicBool,
    waits_for_reader: AtomicBool,
}

/// A query that runs as long as this is held.
#[derive(Debug)]
pub struct LoggedQuery {
    log: Arc<QueryLog>,
    watch: Arc<QueryWatch>,
    costs: Mutex<QueryMetrics>,
    failure: Mutex<Option<Error>>,
    is_complete: AtomicBool,
}

impl QueryLog {
    /// Notes a query that begins; dropping the result notes its end, however that comes.
    pub fn begin(self: &Arc<Self>, asker: Asker, stop: &StopFlag) -> LoggedQuery {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        stop.account().set_number(number);
        let watch = Arc::new(QueryWatch {
            number,
            asker,
            started: Instant::now(),
            started_unix_us: unix_us(),
            stop: stop.clone(),
            turn_waits: stop.turn_waits(),
            row_count: AtomicU64::new(0),
            gives_rows: AtomicBool::new(false),
            waits_for_reader: AtomicBool::new(false),
        });
        lock_whole(&self.running).insert(number, watch.clone());
        LoggedQuery {
            log: self.clone(),
            watch,
            costs: Mutex::default(),
            failure: Mutex::default(),
            is_complete: AtomicBool::new(false),
        }
    }

    /// The queries that ended last and those that run, in the order of their start.
    pub fn entries(&self) -> Vec<QueryEntry> {
        // Those that run first, so that one that ends meanwhile is seen twice rather than never.
        let running: Vec<Arc<QueryWatch>> = lock_whole(&self.running).values().cloned().collect();
        let running: Vec<QueryEntry> = running.iter().map(|watch| watch.entry()).collect();
        let ended = lock_whole(&self.ended).clone();
        let has_ended = |number| ended.iter().any(|entry| entry.query == number);
        let running = running.into_iter().filter(|entry| !has_ended(entry.query)).collect::<Vec<_>>();
        let mut entries: Vec<QueryEntry> = ended.into_iter().chain(running).collect();
        entries.sort_by_key(|entry| entry.query);
        entries
    }

    /// What queries have cost.
    pub fn statistics(&self) -> Vec<StatisticsEntry> {
        lock_whole(&self.statistics).entries()
    }

    /// Forgets what queries have cost.
    pub fn reset_statistics(&self) {
        *lock_whole(&self.statistics) = Statistics::default();
    }

    fn end(&self, entry: QueryEntry, cost: &QueryCost) {
        lock_whole(&self.statistics).add(&entry, cost);
        let mut ended = lock_whole(&self.ended);
        if ended.len() == ENDED_MAX {
            ended.pop_front();
        }
        let number = entry.query;
        ended.push_back(entry);
        drop(ended);
        lock_whole(&self.running).remove(&number);
    }
}

impl QueryWatch {
    fn state(&self) -> QueryState {
        if *self.turn_waits.borrow() {
            QueryState::Waiting
        } else if self.gives_rows.load(Ordering::Relaxed) {
            QueryState::Returning
        } else if self.stop.account().is_measured() {
            QueryState::Running
        } else {
            QueryState::Preparing
        }
    }

    fn entry(&self) -> QueryEntry {
        let account = self.stop.account();
        let (state, place) = (self.state(), account.place());
        let QueryProgress { bytes_read, bytes_expected, bytes_done, memory_bytes, spilled_bytes, .. } =
            account.progress();
        let waits_for = match state {
            QueryState::Waiting => Some(QueryWait::Turn),
            _ => self.waits_for_reader.load(Ordering::Relaxed).then_some(QueryWait::Reader),
        };
        QueryEntry {
            query: self.number,
            backend_pid: self.asker.backend_pid,
            role: self.asker.role,
            origin: self.asker.origin,
            engine: place.map(|place| place.engine),
            rank_count: place.map_or(1, |place| place.rank_count),
            state,
            waits_for,
            started_unix_us: self.started_unix_us,
            elapsed_us: self.started.elapsed().as_micros() as u64,
            row_count: self.row_count.load(Ordering::Relaxed),
            bytes_read,
            bytes_expected,
            bytes_done,
            memory_bytes,
            spilled_bytes,
            error: None,
        }
    }
}

impl LoggedQuery {
    /// Rows have left the engine.
    pub fn note_rows(&self, row_count: usize) {
        self.watch.gives_rows.store(true, Ordering::Relaxed);
        self.watch.row_count.fetch_add(row_count as u64, Ordering::Relaxed);
    }

    /// Whether the query waits for its reader.
    pub fn note_reader_wait(&self, waits: bool) {
        self.watch.waits_for_reader.store(waits, Ordering::Relaxed);
    }

    /// What it has cost so far.
    pub fn note_costs(&self, costs: QueryMetrics) {
        // The last reading must be taken before the query ends.
        self.watch.stop.account().progress();
        *lock_whole(&self.costs) = QueryMetrics { operators: Vec::new(), exchanges: Vec::new(), ..costs };
    }

    /// It ended with all rows, or with an error.
    pub fn note_end(&self, failure: Option<&Error>) {
        self.is_complete.store(failure.is_none(), Ordering::Relaxed);
        *lock_whole(&self.failure) = failure.cloned();
    }

    fn end_state(&self, failure: Option<&Error>) -> QueryState {
        let is_cancelled = failure.is_some_and(|error| error.kind == ErrorKind::Cancelled);
        match (self.is_complete.load(Ordering::Relaxed), failure) {
            (true, _) => QueryState::Finished,
            (false, Some(_)) if !is_cancelled => QueryState::Failed,
            _ if self.watch.stop.account().has_enough() => QueryState::Finished,
            _ => QueryState::Cancelled,
        }
    }
}

impl Drop for LoggedQuery {
    fn drop(&mut self) {
        let failure = lock_whole(&self.failure).take();
        let costs = std::mem::take(&mut *lock_whole(&self.costs));
        let state = self.end_state(failure.as_ref());
        let now = self.watch.entry();
        let bytes_expected = now.bytes_expected.max(costs.bytes_expected);
        let error = failure.filter(|_| state == QueryState::Failed).map(|error| cut(error.message));
        let entry = QueryEntry {
            state,
            waits_for: None,
            bytes_read: now.bytes_read.max(costs.bytes_read),
            bytes_expected,
            bytes_done: if state == QueryState::Finished { bytes_expected } else { now.bytes_done },
            memory_bytes: now.memory_bytes.max(costs.memory_peak_bytes),
            spilled_bytes: now.spilled_bytes.max(costs.spilled_bytes),
            error,
            ..now
        };
        let cost = QueryCost {
            cache_hits: costs.cache_hits,
            cache_misses: costs.cache_misses,
            is_fallback: self.watch.stop.account().is_refused(),
        };
        self.log.end(entry, &cost);
    }
}

/// As much of a text as is remembered.
fn cut(mut text: String) -> String {
    if text.len() > ERROR_BYTES_MAX {
        let end = (0..=ERROR_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use pystachio_engine::QueryPlace;
    use pystachio_plan::QueryEngine;

    use super::*;

    fn asker(query_id: i64) -> Asker {
        Asker { backend_pid: 7, role: 10, origin: QueryOrigin { query_id, hides_counts: false } }
    }

    fn states(log: &QueryLog) -> Vec<QueryState> {
        log.entries().into_iter().map(|entry| entry.state).collect()
    }

    #[test]
    fn a_query_is_seen_from_its_wait_to_its_last_row() {
        let (log, stop) = (Arc::new(QueryLog::default()), StopFlag::default());
        let query = log.begin(asker(1), &stop);
        assert_eq!(states(&log), [QueryState::Preparing]);
        let turn = stop.wait_for_turn();
        assert_eq!(log.entries()[0].waits_for, Some(QueryWait::Turn));
        drop(turn);
        query.note_rows(3);
        query.note_reader_wait(true);
        let entry = log.entries().remove(0);
        assert_eq!((entry.state, entry.row_count), (QueryState::Returning, 3));
        assert_eq!(entry.waits_for, Some(QueryWait::Reader));
        query.note_end(None);
        drop(query);
        let entry = log.entries().remove(0);
        assert_eq!((entry.state, entry.waits_for, entry.row_count), (QueryState::Finished, None, 3));
    }

    #[test]
    fn what_is_dropped_was_cancelled_unless_its_reader_had_enough() {
        let log = Arc::new(QueryLog::default());
        drop(log.begin(asker(1), &StopFlag::default()));
        let stop = StopFlag::default();
        let query = log.begin(asker(1), &stop);
        stop.account().note_enough();
        query.note_end(Some(&Error::new(ErrorKind::Cancelled, "the query was cancelled")));
        drop(query);
        let query = log.begin(asker(1), &StopFlag::default());
        query.note_end(Some(&Error::new(ErrorKind::DivisionByZero, "division by zero")));
        drop(query);
        assert_eq!(states(&log), [QueryState::Cancelled, QueryState::Finished, QueryState::Failed]);
        assert_eq!(log.entries()[2].error.as_deref(), Some("division by zero"));
        let counted = log.statistics().remove(0);
        assert_eq!((counted.calls, counted.failures, counted.cancellations), (3, 1, 1));
    }

    #[test]
    fn the_ring_keeps_the_last_queries_and_those_that_run() {
        let log = Arc::new(QueryLog::default());
        let stop = StopFlag::default();
        let running = log.begin(asker(1), &stop);
        stop.account().begin(QueryPlace { engine: QueryEngine::Gpu, rank_count: 2 });
        for _ in 0..ENDED_MAX + 5 {
            drop(log.begin(asker(2), &StopFlag::default()));
        }
        let entries = log.entries();
        assert_eq!(entries.len(), ENDED_MAX + 1);
        assert_eq!((entries[0].query, entries[0].engine), (1, Some(QueryEngine::Gpu)));
        assert_eq!((entries[1].query, entries[0].rank_count), (7, 2));
        drop(running);
        assert_eq!(log.entries().len(), ENDED_MAX);
    }

    #[test]
    fn an_error_of_any_length_is_cut_between_letters() {
        let text = "ä".repeat(ERROR_BYTES_MAX);
        assert!(cut(text).len() <= ERROR_BYTES_MAX + '…'.len_utf8());
        assert_eq!(cut("short".to_owned()), "short");
    }
}
