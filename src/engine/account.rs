//! The progress of a running query, for monitoring.
//!
//! A host reads the progress when it wants to. Engines only register a [`Meter`], so a query that is not watched costs
//! nothing.
//!
//! Invariants: an account keeps no part of a query alive. The last reading stays after the query has ended.
//!
//! Deliberately absent: the role and the start time of the query. The host knows them.

use std::sync::{
    Mutex, OnceLock, Weak,
    atomic::{AtomicBool, Ordering},
};

use pystachio_plan::{QueryEngine, QueryProgress};

use crate::locking::lock_whole;

/// A source of a query's progress.
pub trait Meter: Send + Sync {
    /// The current progress. Does not wait for the query.
    fn progress(&self) -> QueryProgress;

    /// [`QueryProgress::temp_file_bytes`] alone, which hosts ask for often.
    fn temp_file_bytes(&self) -> u64 {
        self.progress().temp_file_bytes
    }
}

/// Which engine runs a query, and on how many ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPlace {
    /// The engine.
    pub engine: QueryEngine,
    /// Ranks that run a part of it.
    pub rank_count: u32,
}

/// The account of one query.
#[derive(Default)]
pub struct QueryAccount {
    number: OnceLock<u64>,
    is_refused: AtomicBool,
    has_enough: AtomicBool,
    has_changed_files: AtomicBool,
    state: Mutex<AccountState>,
}

#[derive(Default)]
struct AccountState {
    place: Option<QueryPlace>,
    /// One meter for each rank of this process, with its last reading.
    meters: Vec<(Weak<dyn Meter>, QueryProgress)>,
}

impl std::fmt::Debug for QueryAccount {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QueryAccount").field("number", &self.number.get()).finish_non_exhaustive()
    }
}

impl QueryAccount {
    /// Sets the host's number for the query. Only the first call counts.
    pub fn set_number(&self, number: u64) {
        let _ = self.number.set(number);
    }

    /// The host's number for the query.
    pub fn number(&self) -> Option<u64> {
        self.number.get().copied()
    }

    /// Notes that an engine begins to run the query, perhaps again. Earlier meters are dropped.
    pub fn begin(&self, place: QueryPlace) {
        let mut state = lock_whole(&self.state);
        *state = AccountState { place: Some(place), ..AccountState::default() };
    }

    /// Notes that another engine begins to run a part of the query. Meters stay.
    pub(crate) fn join(&self, place: QueryPlace) {
        lock_whole(&self.state).place = Some(place);
    }

    /// Registers a meter of the prepared query. The account reads it for as long as it exists.
    pub fn measure(&self, meter: Weak<dyn Meter>) {
        lock_whole(&self.state).meters.push((meter, QueryProgress::default()));
    }

    /// Replaces all meters after a change of operators.
    pub fn measure_anew(&self, meter: Weak<dyn Meter>) {
        lock_whole(&self.state).meters = vec![(meter, QueryProgress::default())];
    }

    /// Notes that the device's engine has refused the query and another engine runs it.
    pub fn note_refusal(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Whether the device's engine has refused the query.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Notes that the client has all rows that it wanted.
    pub fn note_enough(&self) {
        self.has_enough.store(true, Ordering::Relaxed);
    }

    /// Whether the client has all rows that it wanted.
    pub fn has_enough(&self) -> bool {
        self.has_enough.load(Ordering::Relaxed)
    }

    /// Notes that files are not those that the query was planned for. The plan holds for them all the same.
    pub fn note_changed_files(&self) {
        self.has_changed_files.store(true, Ordering::Relaxed);
    }

    /// Whether files are not those that the query was planned for.
    pub fn has_changed_files(&self) -> bool {
        self.has_changed_files.load(Ordering::Relaxed)
    }

    /// Which engine runs it, once one does.
    pub fn place(&self) -> Option<QueryPlace> {
        lock_whole(&self.state).place
    }

    /// Whether the query was prepared, and runs.
    pub fn is_measured(&self) -> bool {
        !lock_whole(&self.state).meters.is_empty()
    }

    /// The query's progress. A query that has ended keeps its last reading, without memory.
    pub fn progress(&self) -> QueryProgress {
        self.read(
            |meter| meter.progress(),
            |last, seen| {
                *last = seen.unwrap_or(QueryProgress { memory_bytes: 0, ..*last });
            },
        )
    }

    /// [`QueryProgress::temp_file_bytes`] of the query's progress.
    pub fn temp_file_bytes(&self) -> u64 {
        let keep = |last: &mut QueryProgress, seen: Option<u64>| {
            last.temp_file_bytes = seen.unwrap_or(last.temp_file_bytes);
        };
        self.read(|meter| meter.temp_file_bytes(), keep).temp_file_bytes
    }

    /// Asks the meters that exist, and keeps what they say in their last readings. Returns the sum of these.
    fn read<T>(
        &self,
        ask: impl Fn(&dyn Meter) -> T,
        keep: impl Fn(&mut QueryProgress, Option<T>),
    ) -> QueryProgress {
        let meters: Vec<Weak<dyn Meter>> =
            lock_whole(&self.state).meters.iter().map(|(meter, _)| meter.clone()).collect();
        // Without the lock: a meter may be dropped here, and with it what ends with the query.
        let seen: Vec<Option<T>> =
            meters.iter().map(|meter| meter.upgrade().map(|meter| ask(meter.as_ref()))).collect();
        let mut state = lock_whole(&self.state);
        for ((meter, last), (asked, seen)) in state.meters.iter_mut().zip(meters.iter().zip(seen)) {
            if meter.ptr_eq(asked) {
                keep(last, seen);
            }
        }
        state.meters.iter().fold(QueryProgress::default(), |sum, (_, last)| sum.and(*last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::StopFlag;

    struct Read(u64);

    impl Meter for Read {
        fn progress(&self) -> QueryProgress {
            QueryProgress { bytes_read: self.0, temp_file_bytes: self.0, ..QueryProgress::default() }
        }
    }

    fn weak(meter: &Arc<Read>) -> Weak<dyn Meter> {
        let meter: Arc<dyn Meter> = meter.clone();
        Arc::downgrade(&meter)
    }

    #[test]
    fn what_was_seen_last_stays_when_the_query_has_ended() {
        let flag = StopFlag::default();
        let account = flag.account();
        account.begin(QueryPlace { engine: QueryEngine::Gpu, rank_count: 2 });
        let ranks = [Arc::new(Read(3)), Arc::new(Read(4))];
        ranks.iter().for_each(|rank| flag.of_part().account().measure(weak(rank)));
        assert_eq!((account.temp_file_bytes(), account.progress().bytes_read), (7, 7));
        drop(ranks);
        assert_eq!((account.temp_file_bytes(), account.progress().bytes_read), (7, 7));
        account.begin(QueryPlace { engine: QueryEngine::Cpu, rank_count: 1 });
        assert!(!account.is_measured());
        assert_eq!(account.progress(), QueryProgress::default());
    }
}
