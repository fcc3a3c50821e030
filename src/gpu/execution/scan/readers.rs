//! One pool of reader threads for all scans of a query.
//!
//! ```text
//! scan 0: part 0 1 2 3 …   ─┐                         ┌─ read ─ copy ─ decode ─ filter ─┐
//! scan 1: part 0 1 2 …      ├─ the most wanted part ──┤─ read ─ copy ─ decode ─ filter ─┤──► done parts, taken in
//! scan 2: part 0 1          ─┘                        └─ …                              ┘    the order of each scan
//! ```
//!
//! Readers work first for scans that drivers wait for: first the awaited parts, in the order in
//! which the query wants their scans; then the parts after them, the scan with the least ahead
//! first. When these scans have enough ahead, readers work for the scan that the query wants next,
//! so storage does not rest while drivers hash build sides. As long as a join above has not read
//! its build side, its filter is unknown: until then readers load the scan's parts and do not
//! decode them.
//!
//! Invariants: the bytes decoded ahead of the query are bounded. Of the awaited scans, the first in
//! the query's order may always have one part. Each reader has a stream of its own; a driver that
//! takes a part is ordered after the reader's work for it. If a [`WantedScan`] is dropped, its stop
//! flag ends the parts in progress, so that the end of a query does not wait for them.
//!
//! Source: PystachIO (arXiv 2512.02862), sections 5.2 (reader combining) and 5.4 (queues bounded by bytes).

#[cfg(test)]
mod tests;

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use pystachio_engine::{
    StopFlag,
    locking::{lock, lock_whole},
};
use pystachio_plan::{DeviceSettings, Error, ErrorKind, Result};

use super::source::{LoadedPart, PartRows};
use crate::{
    affinity::Processors,
    device::DeviceMemory,
    execution::query::{QueryMemory, StartedWork, Threads, WAIT_INTERVAL},
    operation::Queue,
};

/// How soon an idle reader polls the conditions that wake no reader: free memory, and settled filters
/// of scans that no driver waits for. The interval doubles with every look in vain: each look takes
/// the pool's lock and the arena's, and with many queries most readers are idle.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(32);
/// Parts of one scan that are ahead of the query, for each reader.
const PARTS_AHEAD_PER_READER: usize = 2;

/// How often a part is retried for lack of memory, if no other driver uses memory for a moment.
const TRIES_ALONE_MAX: u32 = 2;
/// And otherwise: for this many [`WAIT_INTERVAL`]s.
const TRIES_MAX: u32 = 20;

const READER_FAILED: &str = "a reader failed while it decoded a row group";

/// A scan, as readers see it.
pub(super) trait ScanParts: Send + Sync {
    /// How many parts there are.
    fn part_count(&self) -> usize;

    /// An estimate of the device memory that reading a part takes, if all of its rows pass.
    fn part_bytes(&self, part: usize) -> u64;

    /// Whether the filters of joins are settled. Until then readers load parts ahead, and decode
    /// them only if the query waits for them.
    fn is_ready(&self) -> bool;

    /// Ends the reading of parts once the scan is no longer wanted.
    fn stop(&self) -> &StopFlag;

    /// Loads a part's chunks from storage onto the device. All of its work on the stream has ended
    /// on return.
    fn load_part(&self, part: usize, queue: &Queue) -> Result<LoadedPart>;

    /// A part's rows. Other streams may use them after the work enqueued so far.
    fn read_part(&self, part: usize, loaded: Option<LoadedPart>, queue: &Queue) -> Result<PartRows>;
}

/// Where readers run.
#[derive(Clone, Default)]
pub(in crate::execution) struct ReaderPlace {
    /// Starts their threads.
    pub(in crate::execution) threads: Threads,
    /// The processors that they run on; anywhere if absent.
    pub(in crate::execution) processors: Option<Processors>,
}

/// The readers of one query. They start with the first part that is waited for, and end with the pool.
/// No driver waits for a part after that.
pub(in crate::execution) struct ReaderPool {
    shared: Arc<ReaderPoolInner>,
}

struct ReaderPoolInner {
    threads: Threads,
    started: Mutex<Vec<StartedWork>>,
    memory: DeviceMemory,
    stop: StopFlag,
    reader_count: usize,
    /// The bytes that may be ahead of the query.
    budget: QueryMemory,
    processors: Option<Processors>,
    is_bounded: bool,
    /// Whether readers work for scans that no driver waits for.
    combines: bool,
    state: Mutex<ReaderPoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct ReaderPoolState {
    scans: Vec<PoolScan>,
    /// The scans that drivers wait for.
    waited: BTreeSet<usize>,
    ahead_bytes: u64,
    is_closed: bool,
}

struct PoolScan {
    work: Arc<dyn ScanParts>,
    /// The scan's position in the order in which the query wants scans.
    rank: usize,
    /// The next part that no reader has.
    unread: usize,
    /// The next part that the query wants.
    wanted: usize,
    done: BTreeMap<usize, (Result<PartRows>, u64)>,
    /// Parts that found no memory, and how often each was tried. They are retried when a driver
    /// waits for them, so that no reader is kept from other work until then.
    again: BTreeMap<usize, u32>,
    /// The first part whose loading ahead has not begun.
    unloaded: usize,
    /// Parts that are being loaded ahead.
    loading: BTreeSet<usize>,
    /// Loaded parts, and their bytes.
    loaded: BTreeMap<usize, (LoadedPart, u64)>,
    is_dropped: bool,
}

/// A reader's next step.
#[derive(Clone, Copy, Debug)]
enum ReaderStep {
    /// Read the next part of a scan.
    Read(usize),
    /// Retry a part that found no memory and that a driver waits for.
    ReadAgain(usize),
    /// Load a part of a scan ahead.
    Load { scan: usize, part: usize },
}

impl ReaderPoolState {
    /// Drops loaded parts.
    fn drop_loaded(&mut self) {
        for scan in &mut self.scans {
            let loaded = std::mem::take(&mut scan.loaded);
            self.ahead_bytes -= loaded.values().map(|(_, bytes)| bytes).sum::<u64>();
        }
    }
}

/// A scan of a pool, whose parts are wanted until this is dropped.
pub(super) struct WantedScan {
    shared: Arc<ReaderPoolInner>,
    number: usize,
}

impl WantedScan {
    /// Waits for the next part; `None` after the last. One driver at a time waits for a scan, until
    /// `stop` is set.
    ///
    /// # Errors
    ///
    /// The failure of reading the part; `Cancelled`.
    pub(super) fn next_part(&self, stop: &StopFlag) -> Result<Option<PartRows>> {
        let Self { shared, number } = self;
        shared.start()?;
        let mut state = shared.lock();
        loop {
            let Some(known) = state.scans.get_mut(*number) else {
                return Err(Error::internal("a scan that no reader knows"));
            };
            if known.wanted == known.work.part_count() {
                return Ok(None);
            }
            if let Some((chunk, bytes)) = known.done.remove(&known.wanted) {
                known.wanted += 1;
                state.ahead_bytes -= bytes;
                state.waited.remove(number);
                drop(state);
                shared.changed.notify_all();
                return chunk.map(Some);
            }
            if stop.is_stopped() {
                state.waited.remove(number);
                return Err(cancelled());
            }
            if state.waited.insert(*number) {
                shared.changed.notify_all();
            }
            state = shared.wait(state, WAIT_INTERVAL);
        }
    }

    /// Marks the scan as no longer wanted.
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
        let shared = ReaderPoolInner {
            threads,
            started: Mutex::default(),
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
        Self { shared: Arc::new(shared) }
    }

    /// Adds a scan. The query wants scans in the order of `rank`.
    pub(super) fn add(&self, work: Arc<dyn ScanParts>, rank: usize) -> WantedScan {
        let mut state = self.shared.lock();
        state.scans.push(PoolScan {
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

    /// The last position of some scans in the query's order. The scans are given in the order of
    /// their addition; `None` for none.
    pub(in crate::execution) fn last_rank(&self, scans: &[usize]) -> Option<usize> {
        let state = self.shared.lock();
        scans.iter().filter_map(|number| state.scans.get(*number)).map(|scan| scan.rank).max()
    }

    /// Upper bound of the device memory for decoding one part of any scan.
    pub(in crate::execution) fn part_bytes_max(&self) -> u64 {
        let state = self.shared.lock();
        let works = state.scans.iter().map(|scan| &scan.work);
        works.flat_map(|work| (0..work.part_count()).map(|part| work.part_bytes(part))).max().unwrap_or(0)
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
        let started = std::mem::take(&mut *lock_whole(&self.shared.started));
        started.into_iter().for_each(StartedWork::join);
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the query was cancelled")
}

impl ReaderPoolInner {
    fn start(self: &Arc<Self>) -> Result<()> {
        let mut started = lock_whole(&self.started);
        if !started.is_empty() {
            return Ok(());
        }
        let parts: usize = self.lock().scans.iter().map(|scan| scan.work.part_count()).sum();
        for _ in 0..self.budget.reader_share().min(parts).max(1) {
            let shared = self.clone();
            started.push(self.threads.start("pystachio-reader", move || shared.read())?);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ReaderPoolState> {
        lock(&self.state)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, ReaderPoolState>,
        interval: Duration,
    ) -> MutexGuard<'a, ReaderPoolState> {
        match self.changed.wait_timeout(state, interval) {
            Ok((state, _)) => state,
            Err(error) => error.into_inner().0,
        }
    }

    /// Marks scans as no longer wanted: readers stop work on their parts.
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
        let mut look_interval = LOOK_INTERVAL;
        let mut state = self.lock();
        while !state.is_closed && !self.stop.is_stopped() {
            let Some(step) = self.choose(&state) else {
                // Nothing has changed, so no wake-up: readers that woke one another would never
                // rest.
                state = self.wait(state, look_interval);
                look_interval = (2 * look_interval).min(LOOK_INTERVAL_MAX);
                continue;
            };
            look_interval = LOOK_INTERVAL;
            match step {
                ReaderStep::Read(scan) => {
                    let part = state.scans[scan].unread;
                    state.scans[scan].unread += 1;
                    self.read_part(state, scan, part, &mut queues);
                }
                ReaderStep::ReadAgain(scan) => self.read_again(state, scan, &mut queues),
                ReaderStep::Load { scan, part } => self.load(state, scan, part, &mut queues),
            }
            state = self.lock();
            self.changed.notify_all();
        }
    }

    /// Reads a part of a scan that no other reader reads.
    fn read_part(
        &self,
        mut state: MutexGuard<'_, ReaderPoolState>,
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
        let kept_bytes = chunk.as_ref().map_or(0, |part| part.rows.held_bytes());
        let mut state = self.lock();
        state.ahead_bytes -= bytes;
        let scan = &mut state.scans[number];
        if scan.is_dropped {
            return;
        }
        if lacks_memory && tries + 1 < self.tries_max() {
            // The estimate was too low, or other drivers took memory. The driver goes on with the
            // earlier parts, which frees theirs.
            scan.again.insert(part, tries + 1);
            state.drop_loaded();
            return;
        }
        scan.done.insert(part, (chunk, kept_bytes));
        state.ahead_bytes += kept_bytes;
    }

    /// Retries a part that found no memory: other drivers may have freed some.
    fn read_again(
        &self,
        mut state: MutexGuard<'_, ReaderPoolState>,
        number: usize,
        queues: &mut ReaderQueues,
    ) {
        let scan = &mut state.scans[number];
        let part = scan.wanted;
        let Some(tries) = scan.again.remove(&part) else { return };
        if tries > 1 {
            state = self.wait(state, WAIT_INTERVAL);
        }
        state.scans[number].again.insert(part, tries);
        self.read_part(state, number, part, queues);
    }

    /// How often a part is tried that finds no memory: once more when a driver waits for it, and
    /// more often while other drivers use memory for a moment.
    fn tries_max(&self) -> u32 {
        if self.budget.driver_count() > 1 { TRIES_MAX } else { TRIES_ALONE_MAX }
    }

    /// Loads a part ahead. Reading the part later repeats an error.
    fn load(
        &self,
        mut state: MutexGuard<'_, ReaderPoolState>,
        number: usize,
        part: usize,
        queues: &mut ReaderQueues,
    ) {
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

    /// The most urgent step.
    fn choose(&self, state: &ReaderPoolState) -> Option<ReaderStep> {
        let ahead_max = self.reader_count * PARTS_AHEAD_PER_READER;
        // The next part to read; or to load, while the scan's filters are not settled.
        let step = |number: usize, scan: &PoolScan| {
            if scan.again.contains_key(&scan.wanted) && !scan.is_dropped {
                return state
                    .waited
                    .contains(&number)
                    .then_some((ReaderStep::ReadAgain(number), scan.wanted));
            }
            let is_ready = state.waited.contains(&number) || scan.work.is_ready();
            let part = if is_ready { scan.unread } else { scan.unread.max(scan.unloaded) };
            let is_there =
                !scan.is_dropped && part < scan.work.part_count() && part - scan.wanted < ahead_max;
            match (is_there, is_ready) {
                (true, true) if !scan.loading.contains(&part) => Some((ReaderStep::Read(number), part)),
                (true, false) => Some((ReaderStep::Load { scan: number, part }, part)),
                _ => None,
            }
        };
        // It takes the arena's lock, and most looks find no step.
        let ahead_bytes_max =
            LazyCell::new(|| if self.is_bounded { self.budget.ahead_bytes() } else { u64::MAX });
        // Scans that no driver waits for leave half of the room to the others.
        let fits = |scan: &PoolScan, part: usize, part_of_all: u64| {
            let ahead_bytes = state.ahead_bytes.saturating_add(scan.work.part_bytes(part));
            ahead_bytes <= *ahead_bytes_max / part_of_all
        };
        let waited = || state.waited.iter().filter_map(|number| Some((*number, state.scans.get(*number)?)));
        // The part that a driver waits for in any case: drivers that wait for other drivers wait
        // for this one in the end.
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

/// A reader's stream, and a view of it for each scan with the scan's stop flag.
struct ReaderQueues {
    own: Result<Queue>,
    of_scans: HashMap<usize, Queue>,
}

impl ReaderQueues {
    fn of_scan(&mut self, number: usize, work: &dyn ScanParts) -> Result<&Queue> {
        let own = self.own.as_ref().map_err(Error::clone)?;
        Ok(self.of_scans.entry(number).or_insert_with(|| own.until(work.stop().clone())))
    }
}

/// A reader's work on its stream. A panic ends the query, not the process.
fn attempt<T>(queue: Result<&Queue>, work: impl FnOnce(&Queue) -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| work(queue?))).unwrap_or_else(|_| Err(Error::internal(READER_FAILED)))
}
