//! Fragments: build sides that drivers of their own read, on threads of their own, in parallel with
//! each other and with the query's driver.
//!
//! ```text
//!            begin: filters into its scans are settled,            its driver ends
//!            there are a thread and memory                         (rows, error or panic)
//!   Waiting ──────────────────────────────► Starting ─► Running ───────────────────────► Ended
//!      │ the join asks: its own driver reads it            │ the join asks: it waits       │ the join asks
//!      └───────────────────────► Taken ◄───────────────────┴───────────────────────────────┘
//! ```
//!
//! Fragments begin in the order in which the query would ask for them: when it is admitted, when a
//! join has settled its filters, and when another fragment has ended. A join that asks for a
//! fragment that has not begun reads it by its own driver. It does so for all fragments if memory
//! is short, so a join never waits for a thread. If the engine refuses memory to a query after a
//! fragment has begun, the query runs again without fragments (`engine/device_engine.rs`).
//!
//! Invariants: a fragment begins after the filters from outside of it are settled, so its scans
//! drop as many rows as without it. A fragment's failure is reported to the join that asks for it,
//! and dropped if none does. If its join is dropped, the fragment is stopped. A query ends after
//! its fragments' threads. A driver waits only for fragments beneath it in the plan, so waits have
//! no cycle.
//!
//! Deliberately absent: fragments that give rows while they run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use pystachio_engine::{
    StopFlag,
    locking::{lock_whole, whole},
};
use pystachio_plan::{Error, Result};

use super::build::{ReadBuild, UnreadBuild};
use crate::execution::{
    query::{Driver, NO_OPERATOR, QueryContext, StartedWork, WAIT_INTERVAL, failure_of_panic},
    runtime_filter::RuntimeFilter,
};

/// Fragments of a query that run at once, each with a thread, a stream and chunks. Most queries
/// have no more build sides whose filters are independent of one another; further ones begin when
/// others have ended.
pub(in crate::execution) const RUNNING_MAX: usize = 4;
/// The name of their threads.
pub(in crate::execution) const THREAD_NAME: &str = "pystachio-build";

/// The fragments of one query.
#[derive(Default)]
pub(in crate::execution) struct Fragments {
    /// A panic leaves it usable: the joins read the fragments that do not begin.
    state: Mutex<FragmentsState>,
    /// Whether one has begun; still known after the query's end.
    has_begun: Arc<AtomicBool>,
}

#[derive(Default)]
struct FragmentsState {
    /// Fragments that have not begun, in the order in which the query would ask for them.
    waiting: Vec<Arc<Fragment>>,
    running_count: usize,
    /// Fragments that have begun, and their threads' work.
    begun: Vec<(Arc<Fragment>, StartedWork)>,
    /// Set when no fragment may begin any more.
    is_ended: bool,
}

/// Where a fragment is in its plan.
pub(in crate::execution) struct FragmentPlace {
    /// The join's place in the metrics: reading the fragment is its work.
    pub(in crate::execution) join: usize,
    /// The last position of its scans in the query's order.
    pub(in crate::execution) rank: usize,
    /// The filters from outside that its scans wait for.
    pub(in crate::execution) filters: Vec<Arc<RuntimeFilter>>,
}

struct Fragment {
    place: FragmentPlace,
    /// Stops the fragment when its join no longer wants it.
    stop: StopFlag,
    /// Replaced as a whole, in one step.
    progress: Mutex<FragmentState>,
    ended: Condvar,
}

/// The state of a fragment.
enum FragmentState {
    /// Not begun: the driver that begins takes the unread build side.
    Waiting(UnreadBuild),
    /// Its thread is starting, and takes the unread build side.
    Starting(UnreadBuild),
    /// A driver of its own reads it.
    Running,
    /// That driver has ended.
    Ended(Result<ReadBuild>),
    /// The join has it, or began to read it itself.
    Taken,
}

/// A build side until its join asks for it. Dropping it stops the fragment.
pub(in crate::execution) struct BuildFragment {
    fragment: Arc<Fragment>,
    /// Those of the query, which may begin once this one's filters are settled.
    all: Arc<Fragments>,
}

impl Drop for BuildFragment {
    fn drop(&mut self) {
        let fragment = &self.fragment;
        fragment.stop.stop();
        let mut progress = fragment.lock();
        // A running driver drops its rows.
        let given_up = match &*progress {
            FragmentState::Running | FragmentState::Taken => None,
            FragmentState::Waiting(_) | FragmentState::Starting(_) | FragmentState::Ended(_) => {
                Some(std::mem::replace(&mut *progress, FragmentState::Taken))
            }
        };
        drop(progress);
        drop(given_up);
    }
}

impl BuildFragment {
    /// The fragment's result, on the stream of the join's driver. Reads it if it has not begun,
    /// otherwise waits for it.
    ///
    /// # Errors
    ///
    /// The failure of reading the build side; `Cancelled`.
    pub(super) fn take(self, driver: &mut Driver) -> Result<ReadBuild> {
        let Self { fragment, all } = &self;
        let before = {
            let mut progress = fragment.lock();
            match &*progress {
                FragmentState::Starting(_) | FragmentState::Running => None,
                _ => Some(std::mem::replace(&mut *progress, FragmentState::Taken)),
            }
        };
        let read = match before {
            Some(FragmentState::Waiting(unread)) => return unread.read(driver, all),
            Some(FragmentState::Ended(read)) => read,
            Some(FragmentState::Starting(_) | FragmentState::Running | FragmentState::Taken) => {
                Err(Error::internal("a build side is asked for twice"))
            }
            None => driver.while_waiting(|driver| fragment.wait_ended(driver)),
        }?;
        read.use_on(&driver.queue)?;
        Ok(read)
    }
}

impl Fragment {
    fn lock(&self) -> MutexGuard<'_, FragmentState> {
        lock_whole(&self.progress)
    }

    /// Whether it has not begun.
    fn is_waiting(&self) -> bool {
        matches!(*self.lock(), FragmentState::Waiting(_))
    }

    /// Reserves it for a thread that is about to start; false if the join was faster.
    fn start(&self) -> bool {
        self.replace(|progress| match progress {
            FragmentState::Waiting(unread) => FragmentState::Starting(unread),
            other => other,
        });
        matches!(*self.lock(), FragmentState::Starting(_))
    }

    /// Returns it if the thread could not start.
    fn stay(&self) {
        self.replace(|progress| match progress {
            FragmentState::Starting(unread) => FragmentState::Waiting(unread),
            other => other,
        });
    }

    fn replace(&self, next: impl FnOnce(FragmentState) -> FragmentState) {
        let mut progress = self.lock();
        *progress = next(std::mem::replace(&mut *progress, FragmentState::Taken));
    }

    /// Whether all filters that its scans wait for are settled.
    fn is_ready(&self) -> bool {
        self.place.filters.iter().all(|filter| filter.is_settled())
    }

    /// Waits for its driver's end.
    fn wait_ended(&self, driver: &Driver) -> Result<ReadBuild> {
        let mut progress = self.lock();
        loop {
            match std::mem::replace(&mut *progress, FragmentState::Taken) {
                FragmentState::Ended(read) => return read,
                running @ (FragmentState::Starting(_) | FragmentState::Running) => *progress = running,
                FragmentState::Waiting(_) | FragmentState::Taken => {
                    driver.check_cancelled()?;
                    return Err(Error::internal("a build side has gone"));
                }
            }
            driver.check_cancelled()?;
            progress = whole(self.ended.wait_timeout(progress, WAIT_INTERVAL)).0;
        }
    }

    /// Its thread's work.
    fn run(&self, query: &Arc<QueryContext>, all: &Arc<Fragments>) {
        let mut progress = self.lock();
        let unread = match std::mem::replace(&mut *progress, FragmentState::Running) {
            FragmentState::Starting(unread) => unread,
            // Its join no longer wants it.
            before => {
                *progress = before;
                return;
            }
        };
        drop(progress);
        // A panic ends the query, not the process.
        let work = AssertUnwindSafe(|| self.read(query, unread, all));
        let read = catch_unwind(work).unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
        let mut progress = self.lock();
        // The join no longer wants the result.
        let (ended, given_up) = match self.stop.is_stopped() {
            false => (FragmentState::Ended(read), None),
            true => (FragmentState::Taken, Some(read)),
        };
        *progress = ended;
        drop(progress);
        self.ended.notify_all();
        drop(given_up);
    }

    /// Reads the build side by a driver of its own, and makes the table, ready for the join's stream.
    fn read(
        &self,
        query: &Arc<QueryContext>,
        unread: UnreadBuild,
        all: &Arc<Fragments>,
    ) -> Result<ReadBuild> {
        let queue = query.memory.open_queue(self.stop.clone())?;
        let mut driver = Driver::new(query.clone(), queue, self.stop.clone(), self.place.join);
        let read = unread.read(&mut driver, all).and_then(|read| read.with_table(&driver.queue));
        let read = driver.first_failure(read).and_then(|read| {
            driver.check_faults()?;
            read.publish(&driver.queue)?;
            Ok(read)
        });
        driver.merge_metrics();
        read
    }
}

impl Fragments {
    /// Adds a build side of a query that is being compiled. Without a place it never begins by
    /// itself: its join's driver reads it.
    pub(in crate::execution) fn add(
        self: &Arc<Self>,
        unread: UnreadBuild,
        place: Option<FragmentPlace>,
        stop: &StopFlag,
    ) -> BuildFragment {
        let begins = place.is_some();
        let nowhere = || FragmentPlace { join: NO_OPERATOR, rank: usize::MAX, filters: Vec::new() };
        let fragment = Arc::new(Fragment {
            place: place.unwrap_or_else(nowhere),
            stop: stop.of_part(),
            progress: Mutex::new(FragmentState::Waiting(unread)),
            ended: Condvar::new(),
        });
        if begins {
            let waiting = &mut lock_whole(&self.state).waiting;
            let place = waiting.partition_point(|known| known.place.rank <= fragment.place.rank);
            waiting.insert(place, fragment.clone());
        }
        BuildFragment { fragment, all: self.clone() }
    }

    /// Begins fragments of an admitted query, as far as filters are settled and there are threads
    /// and memory.
    pub(in crate::execution) fn begin(self: &Arc<Self>, query: &Arc<QueryContext>) {
        let mut state = lock_whole(&self.state);
        state.waiting.retain(|fragment| fragment.is_waiting());
        let mut place = 0;
        while !state.is_ended && state.running_count < RUNNING_MAX && place < state.waiting.len() {
            if !state.waiting[place].is_ready() {
                place += 1;
                continue;
            }
            if !query.memory.has_room_for_driver() {
                break;
            }
            let fragment = state.waiting.remove(place);
            if !fragment.start() {
                continue;
            }
            // Counted before it exists: otherwise fragments that begin one after another would all
            // see the same free memory.
            let working = query.memory.enter();
            let (all, of_query, begun) = (self.clone(), query.clone(), fragment.clone());
            let started = query.threads.start(THREAD_NAME, move || {
                drop(working);
                begun.run(&of_query, &all);
                all.note_ended();
                all.begin(&of_query);
            });
            match started {
                Ok(work) => {
                    self.has_begun.store(true, Ordering::Relaxed);
                    state.running_count += 1;
                    state.begun.push((fragment, work));
                }
                // Joins read the fragments that have not begun.
                Err(error) => {
                    tracing::warn!("{error}");
                    fragment.stay();
                    break;
                }
            }
        }
    }

    /// Whether a driver of its own has begun to read a fragment; still known after the query's end.
    pub(in crate::execution) fn has_begun(&self) -> Arc<AtomicBool> {
        self.has_begun.clone()
    }

    fn note_ended(&self) {
        lock_whole(&self.state).running_count -= 1;
    }

    /// Stops the running fragments, and waits for their threads. None begins any more.
    pub(in crate::execution) fn end(&self) {
        let (waiting, begun) = {
            let mut state = lock_whole(&self.state);
            state.is_ended = true;
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.begun))
        };
        drop(waiting);
        begun.iter().for_each(|(fragment, _)| fragment.stop.stop());
        for (_, work) in begun {
            work.join();
        }
    }
}
