//! One pool of reader threads for all scans of a query.
//!
//! ```text
//! scan 0: part 0 1 2 3 …   ─┐                         ┌─ read ─ copy ─ decode ─ filter ─┐
//! scan 1: part 0 1 2 …      ├─ the most wanted part ──┤─ read ─ copy ─ decode ─ filter ─┤──► done parts, taken in
//! scan 2: part 0 1          ─┘                        └─ …                              ┘    the order of each scan
//! ```
//!
//! The scans that drivers wait for go first: the parts themselves that are waited for, in the order in which the query
//! wants their scans, and then what comes after them, where least is ahead. While these have enough ahead, readers work for
//! the scan that the query will want next, so storage does not rest while build sides are hashed. What a scan will drop
//! because of a join that has not read its build side is not known yet: until then its parts are only loaded, not decoded.
//!
//! Invariants: what is decoded ahead of the query is bounded by bytes; of the scans that are waited for, the first in the
//! query's order may always have one part. Each reader has a queue of its own; who takes a part is ordered after what the
//! reader has enqueued for it. A scan whose [`WantedScan`] is dropped is not read further: its stop flag ends the parts that
//! readers are at, so that the end of a query does not wait for them.
//!
//! Source: PystachIO (arXiv 2512.02862), sections 5.2 (reader combining) and 5.4 (queues bounded by bytes).

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use pystachio_engine::{
    StopFlag,
    locking::{lock, lock_whole, whole},
};
use pystachio_plan::{DeviceSettings, Error, ErrorKind, Result};

use super::source::LoadedPart;
use crate::{
    affinity::Processors,
    device::{DeviceMemory, Rows},
    execution::query::{QueryMemory, StartedWork, Threads},
    operation::Queue,
};

/// How often whoever waits looks whether the query is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(10);
/// How often a reader without work looks at what nobody tells it: free memory, and what joins have settled.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Parts of one scan that are ahead of the query, for each reader.
const PARTS_AHEAD_PER_READER: usize = 2;

/// How often a part is read that there is no memory for, if nobody else uses memory for a moment.
const TRIES_ALONE_MAX: u32 = 2;
/// And otherwise: for some [`WAIT_INTERVAL`]s.
const TRIES_MAX: u32 = 20;

const READER_FAILED: &str = "a reader failed while it decoded a row group";

/// A scan, as readers see it.
pub(super) trait ReadParts: Send + Sync {
    /// How many parts there are.
    fn part_count(&self) -> usize;

    /// Device memory that a part takes at most when it is decoded.
    fn part_bytes(&self, part: usize) -> u64;

    /// Whether it is known which rows are wanted. Until then parts are loaded ahead, and not read, unless the query
    /// waits for them.
    fn is_ready(&self) -> bool;

    /// Ends the reading of parts that nobody wants any more.
    fn stop(&self) -> &StopFlag;

    /// Brings what a part needs from storage to the device; nothing is left to do on the queue.
    fn load_part(&self, part: usize, queue: &Queue) -> Result<LoadedPart>;

    /// A part's rows, which others may use after what is enqueued.
    fn read_part(&self, part: usize, loaded: Option<LoadedPart>, queue: &Queue) -> Result<Rows>;
}

/// Where readers run.
#[derive(Clone, Default)]
pub(in crate::execution) struct ReaderPlace {
    /// What starts them.
    pub(in crate::execution) threads: Threads,
    /// The processors that they run on; anywhere if absent.
    pub(in crate::execution) processors: Option<Processors>,
}

/// The readers of one query. They start with the first part that is waited for, and end with the pool.
pub(in crate::execution) struct ReaderPool {
    shared: Arc<Shared>,
    threads: Threads,
    started: Mutex<Vec<StartedWork>>,
}

struct Shared {
    memory: DeviceMemory,
    stop: StopFlag,
    reader_count: usize,
    /// How much may be ahead of the query.
    budget: QueryMemory,
    processors: Option<Processors>,
    is_bounded: bool,
    /// Whether readers work for scans that are not waited for.
    combines: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    scans: Vec<Scan>,
    /// The scans that drivers wait for.
    waited: BTreeSet<usize>,
    ahead_bytes: u64,
    is_closed: bool,
}

struct Scan {
    work: Arc<dyn ReadParts>,
    /// The place in which the query will want the scan.
    rank: usize,
    /// The next part that no reader has.
    unread: usize,
    /// The next part that the query wants.
    wanted: usize,
    done: BTreeMap<usize, (Result<Rows>, u64)>,
    /// Parts that there was no memory for, and how often they were tried. They are read again when they are waited for, so
    /// that no reader is kept from other work until then.
    again: BTreeMap<usize, u32>,
    /// The first part that nobody has begun to load ahead.
    unloaded: usize,
    /// Parts that are being loaded ahead.
    loading: BTreeSet<usize>,
    /// Parts that were loaded ahead, and their bytes.
    loaded: BTreeMap<usize, (LoadedPart, u64)>,
    is_dropped: bool,
}

/// What a reader does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Read the next part of a scan.
    Read(usize),
    /// Read the part of a scan that is waited for, and that there was no memory for.
    ReadAgain(usize),
    /// Load a part of a scan ahead.
    Load { scan: usize, part: usize },
}

impl State {
    /// Gives up what was loaded ahead.
    fn drop_loaded(&mut self) {
        for scan in &mut self.scans {
            let loaded = std::mem::take(&mut scan.loaded);
            self.ahead_bytes -= loaded.values().map(|(_, bytes)| bytes).sum::<u64>();
        }
    }
}

/// A scan of a pool, whose parts are wanted until this is dropped.
pub(super) struct WantedScan {
    shared: Arc<Shared>,
    number: usize,
}

impl WantedScan {
    /// Says that no more parts are wanted.
    pub(super) fn finish(&self) {
        self.shared.finish([self.number]);
    }
}

impl Drop for WantedScan {
    fn drop(&mut self) {
        self.finish();
    }
}

impl ReaderPool {
    /// A pool without scans.
    pub(in crate::execution) fn new(
        memory: &DeviceMemory,
        budget: &QueryMemory,
        place: ReaderPlace,
        stop: StopFlag,
        settings: DeviceSettings,
    ) -> Self {
        let ReaderPlace { threads, processors } = place;
        let shared = Shared {
            memory: memory.clone(),
            stop,
            reader_count: memory.platform().reader_count().max(1),
            budget: budget.clone(),
            processors,
            is_bounded: settings.regulation,
            combines: settings.reader_combining,
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self { shared: Arc::new(shared), threads, started: Mutex::default() }
    }

    /// Adds a scan, which the query will want in the order of `rank`.
    pub(super) fn add(&self, work: Arc<dyn ReadParts>, rank: usize) -> WantedScan {
        let mut state = self.shared.lock();
        state.scans.push(Scan {
            work,
            rank,
            unread: 0,
            wanted: 0,
            done: BTreeMap::new(),
            again: BTreeMap::new(),
            unloaded: 0,
            loading: BTreeSet::new(),
            loaded: BTreeMap::new(),
            is_dropped: false,
        });
        WantedScan { shared: self.shared.clone(), number: state.scans.len() - 1 }
    }

    /// How many scans there are.
    pub(in crate::execution) fn scan_count(&self) -> usize {
        self.shared.lock().scans.len()
    }

    /// The last place in which the query wants one of some scans, by the order in which they were added; `None` of none.
    pub(in crate::execution) fn last_rank(&self, scans: &[usize]) -> Option<usize> {
        let state = self.shared.lock();
        scans.iter().filter_map(|number| state.scans.get(*number)).map(|scan| scan.rank).max()
    }

    /// Device memory that decoding a part takes at most, of whatever scan.
    pub(in crate::execution) fn part_bytes_max(&self) -> u64 {
        let state = self.shared.lock();
        let works = state.scans.iter().map(|scan| &scan.work);
        works.flat_map(|work| (0..work.part_count()).map(|part| work.part_bytes(part))).max().unwrap_or(0)
    }

    /// Waits for the next part of a scan; `None` after the last. A scan is waited for by one driver at a time, which
    /// wants the part until `stop` says otherwise.
    ///
    /// # Errors
    ///
    /// What reading the part failed with; `Cancelled`.
    pub(super) fn next_part(&self, scan: &WantedScan, stop: &StopFlag) -> Result<Option<Rows>> {
        self.start()?;
        let (shared, number) = (&self.shared, scan.number);
        let mut state = shared.lock();
        loop {
            let Some(known) = state.scans.get_mut(number) else {
                return Err(Error::internal("a scan that no reader knows"));
            };
            if known.wanted == known.work.part_count() {
                return Ok(None);
            }
            if let Some((chunk, bytes)) = known.done.remove(&known.wanted) {
                known.wanted += 1;
                state.ahead_bytes -= bytes;
                state.waited.remove(&number);
                drop(state);
                shared.changed.notify_all();
                return chunk.map(Some);
            }
            if stop.is_stopped() {
                state.waited.remove(&number);
                return Err(cancelled());
            }
            if state.waited.insert(number) {
                shared.changed.notify_all();
            }
            state = shared.wait(state, WAIT_INTERVAL);
        }
    }

    fn start(&self) -> Result<()> {
        let mut started = lock_whole(&self.started);
        if !started.is_empty() {
            return Ok(());
        }
        let parts: usize = self.shared.lock().scans.iter().map(|scan| scan.work.part_count()).sum();
        for _ in 0..self.shared.reader_count.min(parts).max(1) {
            let shared = self.shared.clone();
            started.push(self.threads.start("pystachio-reader", move || shared.read())?);
        }
        Ok(())
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        let scan_count = {
            let mut state = self.shared.lock();
            state.is_closed = true;
            state.scans.len()
        };
        self.shared.finish(0..scan_count);
        whole(self.started.get_mut()).drain(..).for_each(StartedWork::join);
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the query was cancelled")
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, interval: Duration) -> MutexGuard<'a, State> {
        match self.changed.wait_timeout(state, interval) {
            Ok((state, _)) => state,
            Err(error) => error.into_inner().0,
        }
    }

    /// Says that no more parts of some scans are wanted: those that are read are given up.
    fn finish(&self, numbers: impl IntoIterator<Item = usize>) {
        let mut state = self.lock();
        let mut ahead = Vec::new();
        for number in numbers {
            let Some(known) = state.scans.get_mut(number).filter(|scan| !scan.is_dropped) else { continue };
            known.is_dropped = true;
            known.work.stop().stop();
            ahead.push((std::mem::take(&mut known.done), std::mem::take(&mut known.loaded)));
        }
        for (done, loaded) in &ahead {
            state.ahead_bytes -= done.values().map(|(_, bytes)| bytes).sum::<u64>();
            state.ahead_bytes -= loaded.values().map(|(_, bytes)| bytes).sum::<u64>();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// One reader's work.
    fn read(&self) {
        if let Some(Err(error)) = self.processors.as_ref().map(Processors::bind_thread) {
            tracing::warn!("a reader can't be bound to processors: {error}");
        }
        let mut queues = ReaderQueues { own: Queue::new(&self.memory), of_scans: HashMap::new() };
        let mut state = self.lock();
        while !state.is_closed && !self.stop.is_stopped() {
            let Some(step) = self.choose(&state) else {
                // Nothing has changed: readers that woke one another would never rest.
                state = self.wait(state, LOOK_INTERVAL);
                continue;
            };
            match step {
                Step::Read(scan) => {
                    let part = state.scans[scan].unread;
                    state.scans[scan].unread += 1;
                    self.read_part(state, scan, part, &mut queues);
                }
                Step::ReadAgain(scan) => self.read_again(state, scan, &mut queues),
                Step::Load { scan, part } => self.load(state, scan, part, &mut queues),
            }
            state = self.lock();
            self.changed.notify_all();
        }
    }

    /// Reads a part of a scan that nobody else reads.
    fn read_part(
        &self,
        mut state: MutexGuard<'_, State>,
        number: usize,
        part: usize,
        queues: &mut ReaderQueues,
    ) {
        let scan = &mut state.scans[number];
        let work = scan.work.clone();
        let tries = scan.again.remove(&part).unwrap_or(0);
        let (loaded, loaded_bytes) = scan.loaded.remove(&part).unzip();
        let bytes = work.part_bytes(part);
        state.ahead_bytes = state.ahead_bytes - loaded_bytes.unwrap_or(0) + bytes;
        drop(state);
        let queue = queues.of_scan(number, &*work);
        let chunk = attempt(queue, |queue| work.read_part(part, loaded, queue));
        let lacks_memory = matches!(&chunk, Err(error) if error.kind == ErrorKind::OutOfMemory);
        let kept_bytes = chunk.as_ref().map_or(0, Rows::held_bytes);
        let mut state = self.lock();
        state.ahead_bytes -= bytes;
        let scan = &mut state.scans[number];
        if scan.is_dropped {
            return;
        }
        if lacks_memory && tries + 1 < self.tries_max() {
            // The estimate was too low, or others took memory: what comes before goes on and leaves its own.
            scan.again.insert(part, tries + 1);
            state.drop_loaded();
            return;
        }
        scan.done.insert(part, (chunk, kept_bytes));
        state.ahead_bytes += kept_bytes;
    }

    /// Reads a part once more that there was no memory for: other drivers may have left some meanwhile.
    fn read_again(&self, mut state: MutexGuard<'_, State>, number: usize, queues: &mut ReaderQueues) {
        let scan = &mut state.scans[number];
        let part = scan.wanted;
        let Some(tries) = scan.again.remove(&part) else { return };
        if tries > 1 {
            state = self.wait(state, WAIT_INTERVAL);
        }
        state.scans[number].again.insert(part, tries);
        self.read_part(state, number, part, queues);
    }

    /// How often a part is read that there is no memory for: once more when it is waited for, and more often while drivers
    /// besides the one that waits use memory for a moment.
    fn tries_max(&self) -> u32 {
        if self.budget.driver_count() > 1 { TRIES_MAX } else { TRIES_ALONE_MAX }
    }

    /// Loads a part ahead. What that fails with comes again when the part is read.
    fn load(&self, mut state: MutexGuard<'_, State>, number: usize, part: usize, queues: &mut ReaderQueues) {
        let scan = &mut state.scans[number];
        let work = scan.work.clone();
        scan.unloaded = part + 1;
        scan.loading.insert(part);
        let bytes = work.part_bytes(part);
        state.ahead_bytes += bytes;
        drop(state);
        let queue = queues.of_scan(number, &*work);
        let loaded = attempt(queue, |queue| work.load_part(part, queue));
        let mut state = self.lock();
        let scan = &mut state.scans[number];
        scan.loading.remove(&part);
        match loaded {
            Ok(loaded) if !scan.is_dropped => {
                scan.loaded.insert(part, (loaded, bytes));
            }
            _ => state.ahead_bytes -= bytes,
        }
    }

    /// What is most wanted.
    fn choose(&self, state: &State) -> Option<Step> {
        let ahead_max = self.reader_count * PARTS_AHEAD_PER_READER;
        // The next part to read, or to load where it is not known yet what is wanted of it.
        let step = |number: usize, scan: &Scan| {
            if scan.again.contains_key(&scan.wanted) && !scan.is_dropped {
                return state.waited.contains(&number).then_some((Step::ReadAgain(number), scan.wanted));
            }
            let is_ready = state.waited.contains(&number) || scan.work.is_ready();
            let part = if is_ready { scan.unread } else { scan.unread.max(scan.unloaded) };
            let is_there =
                !scan.is_dropped && part < scan.work.part_count() && part - scan.wanted < ahead_max;
            match (is_there, is_ready) {
                (true, true) if !scan.loading.contains(&part) => Some((Step::Read(number), part)),
                (true, false) => Some((Step::Load { scan: number, part }, part)),
                _ => None,
            }
        };
        let ahead_bytes_max = if self.is_bounded { self.budget.ahead_bytes() } else { u64::MAX };
        // What is not waited for leaves half to what is.
        let fits = |scan: &Scan, part: usize, part_of_all: u64| {
            let ahead_bytes = state.ahead_bytes.saturating_add(scan.work.part_bytes(part));
            ahead_bytes <= ahead_bytes_max / part_of_all
        };
        let waited = || state.waited.iter().filter_map(|number| Some((*number, state.scans.get(*number)?)));
        // What its driver waits for whatever else there is: drivers that wait for others wait for this in the end.
        let first = waited().min_by_key(|(_, scan)| scan.rank).map(|(number, _)| number);
        let next = waited().filter_map(|(number, scan)| {
            let (step, part) = step(number, scan)?;
            let may_read = fits(scan, part, 1) || (first == Some(number) && part == scan.wanted);
            may_read.then_some((part - scan.wanted, scan.rank, step))
        });
        if let Some((.., step)) = next.min_by_key(|(ahead, rank, _)| (*ahead, *rank)) {
            return Some(step);
        }
        let others = state.scans.iter().enumerate().filter(|_| self.combines);
        others
            .filter_map(|(number, scan)| Some((scan, step(number, scan)?)))
            .filter(|(scan, (_, part))| fits(scan, *part, 2))
            .min_by_key(|(scan, _)| scan.rank)
            .map(|(_, (step, _))| step)
    }
}

/// A reader's queue, and for each scan the same queue for as long as that is wanted.
struct ReaderQueues {
    own: Result<Queue>,
    of_scans: HashMap<usize, Queue>,
}

impl ReaderQueues {
    fn of_scan(&mut self, number: usize, work: &dyn ReadParts) -> Result<&Queue> {
        let own = self.own.as_ref().map_err(Error::clone)?;
        Ok(self.of_scans.entry(number).or_insert_with(|| own.until(work.stop().clone())))
    }
}

/// A reader's work on its queue. A panic ends the query, not the process.
fn attempt<T>(queue: Result<&Queue>, work: impl FnOnce(&Queue) -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| work(queue?))).unwrap_or_else(|_| Err(Error::internal(READER_FAILED)))
}
