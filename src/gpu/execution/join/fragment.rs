//! Fragments: build sides of joins that drivers of their own read, on threads of their own, beside one another and beside
//! what the query's driver does.
//!
//! ```text
//!            begin: filters into its scans are settled,            its driver ends
//!            there are a thread and memory                         (rows, error or panic)
//!   Waiting ──────────────────────────────► Starting ─► Running ───────────────────────► Ended
//!      │ the join asks: its own driver reads it            │ the join asks: it waits       │ the join asks
//!      └───────────────────────► Taken ◄───────────────────┴───────────────────────────────┘
//! ```
//!
//! Fragments begin in the order in which the query would ask for them: when it is admitted, when a join has settled its
//! filters, and when another fragment has ended. A join that asks for one that has not begun reads it by its own driver, as
//! it does for all of them where there is no room; so nobody ever waits for a thread. A query that memory is refused after a
//! fragment has begun runs again without fragments of their own (`engine/device_engine.rs`).
//!
//! Invariants: a fragment begins after the filters that come from outside of it are settled: its scans drop no fewer
//! rows than they would without it. What a fragment fails with is told to the join that asks for it, and to nobody if none
//! does. A fragment whose join is dropped is stopped. A query ends after its fragments' threads. Who waits for a fragment
//! waits for one beneath it in the plan, so none wait for each other.
//!
//! Deliberately absent: fragments that give rows while they run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pystachio_engine::{
    StopFlag,
    locking::{lock_whole, whole},
};
use pystachio_plan::{Error, Result};

use super::build::{ReadBuild, UnreadBuild};
use crate::execution::{
    query::{Driver, NO_OPERATOR, Query, StartedWork, failure_of_panic},
    runtime_filter::RuntimeFilter,
};

/// Fragments of a query that run at once, each with a thread, a stream and chunks on their way. As many build sides as
/// most queries have whose filters do not depend on one another; further ones begin when others have ended.
pub(in crate::execution) const RUNNING_MAX: usize = 4;
/// What their threads are called.
pub(in crate::execution) const THREAD_NAME: &str = "pystachio-build";
/// How often whoever waits for a fragment looks whether it is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(10);

/// The fragments of one query.
#[derive(Default)]
pub(in crate::execution) struct Fragments {
    /// Whole enough wherever a panic leaves it: what does not begin is read by its join.
    state: Mutex<FragmentsState>,
    /// Whether one has begun, also after the query's end.
    has_begun: Arc<AtomicBool>,
}

#[derive(Default)]
struct FragmentsState {
    /// Those that have not begun, in the order in which the query would ask for them.
    waiting: Vec<Arc<Fragment>>,
    running_count: usize,
    /// Those that have begun, and their threads' work.
    begun: Vec<(Arc<Fragment>, StartedWork)>,
    /// Whether none begins any more.
    is_ended: bool,
}

/// Where a fragment is in its plan.
pub(in crate::execution) struct FragmentPlace {
    /// The join's place in the metrics: reading the fragment is its work.
    pub(in crate::execution) join: usize,
    /// The place in which the query wants the last of its scans.
    pub(in crate::execution) rank: usize,
    /// The filters from outside of it that its scans wait for.
    pub(in crate::execution) filters: Vec<Arc<RuntimeFilter>>,
}

struct Fragment {
    place: FragmentPlace,
    /// Says when nobody wants it any more.
    stop: StopFlag,
    /// A whole: replaced in one step.
    progress: Mutex<Progress>,
    ended: Condvar,
}

/// How far a fragment is.
enum Progress {
    /// Nobody has begun: whoever does takes what is to be read.
    Waiting(UnreadBuild),
    /// Its thread is on its way, and takes what is to be read.
    Starting(UnreadBuild),
    /// A driver of its own reads it.
    Running,
    /// That driver has ended.
    Ended(Result<ReadBuild>),
    /// The join has it, or began to read it itself.
    Taken,
}

/// A build side as its join has it until it asks. Dropping it stops the fragment.
pub(in crate::execution) struct BuildFragment(Arc<Fragment>);

impl Drop for BuildFragment {
    fn drop(&mut self) {
        let Self(fragment) = self;
        fragment.stop.stop();
        let mut progress = fragment.lock();
        // A driver that runs gives up what it has.
        let given_up = match &*progress {
            Progress::Running | Progress::Taken => None,
            Progress::Waiting(_) | Progress::Starting(_) | Progress::Ended(_) => {
                Some(std::mem::replace(&mut *progress, Progress::Taken))
            }
        };
        drop(progress);
        drop(given_up);
    }
}

impl BuildFragment {
    /// What came of the fragment, on the stream of the join's driver: read by it if nobody has begun, otherwise waited for.
    ///
    /// # Errors
    ///
    /// What reading the build side failed with; `Cancelled`.
    pub(super) fn take(self, driver: &mut Driver) -> Result<ReadBuild> {
        let Self(fragment) = &self;
        let before = {
            let mut progress = fragment.lock();
            match &*progress {
                Progress::Starting(_) | Progress::Running => None,
                _ => Some(std::mem::replace(&mut *progress, Progress::Taken)),
            }
        };
        let read = match before {
            Some(Progress::Waiting(unread)) => return unread.read(driver),
            Some(Progress::Ended(read)) => read,
            Some(Progress::Starting(_) | Progress::Running | Progress::Taken) => {
                Err(Error::internal("a build side is asked for twice"))
            }
            None => driver.while_waiting(|driver| fragment.wait_ended(driver)),
        }?;
        read.use_on(&driver.queue)?;
        Ok(read)
    }
}

impl Fragment {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock_whole(&self.progress)
    }

    /// Whether nobody has begun.
    fn is_waiting(&self) -> bool {
        matches!(*self.lock(), Progress::Waiting(_))
    }

    /// Says that a thread is about to begin; false where the join was faster.
    fn start(&self) -> bool {
        self.replace(|progress| match progress {
            Progress::Waiting(unread) => Progress::Starting(unread),
            other => other,
        });
        matches!(*self.lock(), Progress::Starting(_))
    }

    /// Says that there is no thread after all.
    fn stay(&self) {
        self.replace(|progress| match progress {
            Progress::Starting(unread) => Progress::Waiting(unread),
            other => other,
        });
    }

    fn replace(&self, next: impl FnOnce(Progress) -> Progress) {
        let mut progress = self.lock();
        *progress = next(std::mem::replace(&mut *progress, Progress::Taken));
    }

    /// Whether all is known that its scans wait for.
    fn is_ready(&self) -> bool {
        self.place.filters.iter().all(|filter| filter.is_settled())
    }

    /// Waits for its driver's end.
    fn wait_ended(&self, driver: &Driver) -> Result<ReadBuild> {
        let mut progress = self.lock();
        loop {
            match std::mem::replace(&mut *progress, Progress::Taken) {
                Progress::Ended(read) => return read,
                running @ (Progress::Starting(_) | Progress::Running) => *progress = running,
                Progress::Waiting(_) | Progress::Taken => {
                    driver.check_cancelled()?;
                    return Err(Error::internal("a build side has gone"));
                }
            }
            driver.check_cancelled()?;
            progress = whole(self.ended.wait_timeout(progress, WAIT_INTERVAL)).0;
        }
    }

    /// Its thread's work.
    fn run(&self, query: &Arc<Query>) {
        let mut progress = self.lock();
        let unread = match std::mem::replace(&mut *progress, Progress::Running) {
            Progress::Starting(unread) => unread,
            // Its join does not want it any more.
            before => {
                *progress = before;
                return;
            }
        };
        drop(progress);
        // A panic ends the query, not the process.
        let work = AssertUnwindSafe(|| self.read(query, unread));
        let read = catch_unwind(work).unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
        let mut progress = self.lock();
        // Nobody takes what nobody wants.
        let (ended, given_up) = match self.stop.is_stopped() {
            false => (Progress::Ended(read), None),
            true => (Progress::Taken, Some(read)),
        };
        *progress = ended;
        drop(progress);
        self.ended.notify_all();
        drop(given_up);
    }

    /// Reads the build side by a driver of its own, and makes the table, ready for the join's stream.
    fn read(&self, query: &Arc<Query>, unread: UnreadBuild) -> Result<ReadBuild> {
        let queue = query.memory.open_queue(self.stop.clone())?;
        let mut driver = Driver::new(query.clone(), queue, self.stop.clone(), self.place.join);
        let read = unread.read(&mut driver).and_then(|read| read.with_table(&driver.queue));
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
    /// Adds a build side of a query that is compiled. It never begins by itself if it has no place: then its join's driver
    /// reads it.
    pub(in crate::execution) fn add(
        &self,
        unread: UnreadBuild,
        place: Option<FragmentPlace>,
        stop: &StopFlag,
    ) -> BuildFragment {
        let begins = place.is_some();
        let nowhere = || FragmentPlace { join: NO_OPERATOR, rank: usize::MAX, filters: Vec::new() };
        let fragment = Arc::new(Fragment {
            place: place.unwrap_or_else(nowhere),
            stop: stop.of_part(),
            progress: Mutex::new(Progress::Waiting(unread)),
            ended: Condvar::new(),
        });
        if begins {
            let waiting = &mut lock_whole(&self.state).waiting;
            let place = waiting.partition_point(|known| known.place.rank <= fragment.place.rank);
            waiting.insert(place, fragment.clone());
        }
        BuildFragment(fragment)
    }

    /// Begins the fragments of a query that was admitted, as far as filters are settled and there are threads and memory.
    pub(in crate::execution) fn begin(&self, query: &Arc<Query>) {
        let mut state = lock_whole(&self.state);
        state.waiting.retain(|fragment| fragment.is_waiting());
        let mut place = 0;
        while !state.is_ended && state.running_count < RUNNING_MAX && place < state.waiting.len() {
            if !state.waiting[place].is_ready() {
                place += 1;
                continue;
            }
            if !query.memory.has_room_for_driver(query.readers.part_bytes_max()) {
                break;
            }
            let fragment = state.waiting.remove(place);
            if !fragment.start() {
                continue;
            }
            // Before it is there, or fragments that begin one after another would all find the same room.
            let working = query.memory.enter();
            let (of_query, begun) = (query.clone(), fragment.clone());
            let started = query.threads.start(THREAD_NAME, move || {
                drop(working);
                begun.run(&of_query);
                of_query.fragments.note_ended();
                of_query.fragments.begin(&of_query);
            });
            match started {
                Ok(work) => {
                    self.has_begun.store(true, Ordering::Relaxed);
                    state.running_count += 1;
                    state.begun.push((fragment, work));
                }
                // Joins read by themselves what has not begun.
                Err(error) => {
                    tracing::warn!("{error}");
                    fragment.stay();
                    break;
                }
            }
        }
    }

    /// Says whether a fragment has begun to be read by a driver of its own, also when the query has ended.
    pub(in crate::execution) fn has_begun(&self) -> Arc<AtomicBool> {
        self.has_begun.clone()
    }

    fn note_ended(&self) {
        lock_whole(&self.state).running_count -= 1;
    }

    /// Stops what runs, and waits for its threads. None begins any more.
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
