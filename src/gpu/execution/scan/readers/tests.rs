//! Readers over parts that are numbers.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use pystachio_engine::spill::Spilling;
use pystachio_plan::SpillRequest;

use super::*;
use crate::{
    device::{EmulatedPlatform, HostMemory},
    spill::SpillStore,
};

/// Parts of no columns, each with its number as its row count.
struct Numbers {
    count: usize,
    bytes: u64,
    read: AtomicUsize,
    fails_at: usize,
    is_ready: AtomicBool,
    /// How often a reader polled.
    looks: AtomicUsize,
    loaded: AtomicUsize,
    /// Parts that were read after they had been loaded.
    used: AtomicUsize,
    /// How often there is no memory for a part.
    lacks: AtomicUsize,
    stop: StopFlag,
    /// The first part whose reading lasts until the scan is no longer wanted.
    hangs_from: usize,
    /// Parts whose reading hangs.
    hanging: AtomicUsize,
}

/// No test takes as long.
const HANG: Duration = Duration::from_secs(60);

impl Numbers {
    fn new(count: usize, bytes: u64, fails_at: usize) -> Arc<Self> {
        Self::hanging(count, bytes, fails_at, usize::MAX)
    }

    fn hanging(count: usize, bytes: u64, fails_at: usize, hangs_from: usize) -> Arc<Self> {
        Arc::new(Self {
            count,
            bytes,
            read: AtomicUsize::new(0),
            fails_at,
            is_ready: AtomicBool::new(true),
            looks: AtomicUsize::new(0),
            loaded: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            lacks: AtomicUsize::new(0),
            stop: StopFlag::default(),
            hangs_from,
            hanging: AtomicUsize::new(0),
        })
    }
}

impl ScanParts for Numbers {
    fn part_count(&self) -> usize {
        self.count
    }

    fn part_bytes(&self, _part: usize) -> u64 {
        self.bytes
    }

    fn is_ready(&self) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.is_ready.load(Ordering::SeqCst)
    }

    fn stop(&self) -> &StopFlag {
        &self.stop
    }

    fn load_part(&self, _part: usize, _queue: &Queue) -> Result<LoadedPart> {
        assert_eq!(self.read.load(Ordering::SeqCst), 0, "a part was loaded after another was read");
        self.loaded.fetch_add(1, Ordering::SeqCst);
        Ok(LoadedPart::default())
    }

    fn read_part(&self, part: usize, loaded: Option<LoadedPart>, queue: &Queue) -> Result<PartRows> {
        if part >= self.hangs_from {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            wait_until(|| queue.check_wanted().is_err());
            self.hanging.fetch_sub(1, Ordering::SeqCst);
            queue.check_wanted()?;
        }
        self.used.fetch_add(usize::from(loaded.is_some()), Ordering::SeqCst);
        let less = |lacks: usize| lacks.checked_sub(1);
        if self.lacks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Error::new(ErrorKind::OutOfMemory, "no memory for a part"));
        }
        self.read.fetch_add(1, Ordering::SeqCst);
        assert!(part != self.fails_at || self.bytes != 13, "a defect");
        if part == self.fails_at {
            return Err(Error::internal("no such part"));
        }
        Ok(PartRows { rows: crate::device::Rows { row_count: part, columns: Vec::new() }, folded: None })
    }
}

/// Waits for a state; fails if it does not come.
fn wait_until(is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "waited in vain");
        std::thread::yield_now();
    }
}

fn pool(combines: bool) -> (ReaderPool, StopFlag) {
    let platform = Arc::new(EmulatedPlatform::new());
    let memory = DeviceMemory::new(platform.clone(), 600).open_account();
    let spill = Spilling::to(Path::new("/nowhere/at/all")).of_query(&SpillRequest::default());
    let store = SpillStore::new(HostMemory::new(platform, 0), spill);
    let budget = QueryMemory::new(memory.clone(), store);
    let stop = StopFlag::default();
    let settings = DeviceSettings { reader_combining: combines, ..DeviceSettings::default() };
    (ReaderPool::new(&memory, &budget, ReaderPlace::default(), stop.clone(), settings), stop)
}

fn drain(scan: &WantedScan) -> Vec<usize> {
    std::iter::from_fn(|| scan.next_part(&StopFlag::default()).unwrap())
        .map(|chunk| chunk.rows.row_count)
        .collect()
}

#[test]
fn parts_come_in_order_whatever_scan_is_asked_first() {
    for combines in [true, false] {
        let (pool, _) = pool(combines);
        let scans = [40, 0, 7].map(|count| pool.add(Numbers::new(count, 1, usize::MAX), count));
        assert_eq!(drain(&scans[2]), (0..7).collect::<Vec<_>>());
        assert_eq!(drain(&scans[1]), Vec::<usize>::new());
        assert_eq!(drain(&scans[0]), (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn parts_larger_than_all_memory_still_come() {
    let (pool, _) = pool(true);
    let scans = [0, 1].map(|rank| pool.add(Numbers::new(9, 1000, usize::MAX), rank));
    for scan in &scans {
        assert_eq!(drain(scan).len(), 9);
    }
}

#[test]
fn an_error_or_a_panic_comes_at_its_place() {
    for bytes in [1, 13] {
        let (pool, _) = pool(true);
        let scan = pool.add(Numbers::new(9, bytes, 3), 0);
        for part in 0..3 {
            assert_eq!(
                scan.next_part(&StopFlag::default()).unwrap().map(|chunk| chunk.rows.row_count),
                Some(part)
            );
        }
        scan.next_part(&StopFlag::default()).unwrap_err();
    }
}

#[test]
fn a_query_that_is_stopped_is_not_waited_for() {
    let (pool, stop) = pool(true);
    let scan = pool.add(Numbers::new(9, 1, usize::MAX), 0);
    scan.next_part(&StopFlag::default()).unwrap();
    stop.stop();
    let rest: Result<Vec<_>> = (0..9).map(|_| scan.next_part(&stop)).collect();
    // Parts read before may still come.
    assert!(rest.is_err() || rest.unwrap().iter().flatten().count() <= 8);
}

#[test]
fn a_scan_that_is_finished_is_not_read_further() {
    let (pool, _) = pool(true);
    let work = Numbers::new(1000, 1, usize::MAX);
    let scan = pool.add(work.clone(), 0);
    scan.next_part(&StopFlag::default()).unwrap();
    scan.finish();
    drop(pool);
    assert!(work.read.load(Ordering::SeqCst) < 20);
}

/// A met LIMIT, or a join without build rows, wants no more rows of these scans.
#[test]
fn the_end_of_a_scan_ends_the_parts_that_readers_are_at() {
    let (pool, _) = pool(true);
    let hanging = Numbers::hanging(1000, 1, usize::MAX, 1);
    let scans = [pool.add(hanging.clone(), 0), pool.add(Numbers::new(9, 1, usize::MAX), 1)];
    assert!(scans[0].next_part(&StopFlag::default()).unwrap().is_some());
    wait_until(|| hanging.hanging.load(Ordering::SeqCst) == pool.shared.reader_count);
    let [hanging_scan, other] = scans;
    drop(hanging_scan);
    assert_eq!(drain(&other), (0..9).collect::<Vec<_>>(), "another scan of the query goes on");
    assert_eq!(hanging.read.load(Ordering::SeqCst), 1);
    wait_until(|| hanging.hanging.load(Ordering::SeqCst) == 0);
}

#[test]
fn the_end_of_a_query_ends_the_parts_that_readers_are_at() {
    let (pool, _) = pool(true);
    let hanging = Numbers::hanging(1000, 1, usize::MAX, 1);
    let scan = pool.add(hanging.clone(), 0);
    assert!(scan.next_part(&StopFlag::default()).unwrap().is_some());
    wait_until(|| hanging.hanging.load(Ordering::SeqCst) > 0);
    drop(pool);
    assert_eq!((hanging.read.load(Ordering::SeqCst), hanging.hanging.load(Ordering::SeqCst)), (1, 0));
}

/// While the query computes, readers that may not read ahead poll from time to time, and do not
/// wake one another.
#[test]
fn readers_without_work_rest() {
    let (pool, _) = pool(true);
    let work = Numbers::new(9, 1000, usize::MAX);
    let scan = pool.add(work.clone(), 0);
    scan.next_part(&StopFlag::default()).unwrap();
    let (began, before) = (std::time::Instant::now(), work.looks.load(Ordering::SeqCst));
    while began.elapsed() < Duration::from_millis(200) || work.looks.load(Ordering::SeqCst) == before {
        std::thread::sleep(Duration::from_millis(10));
    }
    let looks = work.looks.load(Ordering::SeqCst) - before;
    let intervals = began.elapsed().as_millis() / LOOK_INTERVAL.as_millis();
    let thread_count = lock_whole(&pool.shared.started).len();
    assert!(thread_count > 1 && looks > 0);
    assert!(looks as u128 <= (intervals + 2) * thread_count as u128, "{looks}");
    assert_eq!(work.read.load(Ordering::SeqCst), 1);
}

/// A scan that waits for a join, beside one that is read meanwhile.
fn unready(pool: &ReaderPool, count: usize, bytes: u64) -> (WantedScan, WantedScan, Arc<Numbers>) {
    let build = pool.add(Numbers::new(5, 1, usize::MAX), 0);
    let work = Numbers::new(count, bytes, usize::MAX);
    work.is_ready.store(false, Ordering::SeqCst);
    (build, pool.add(work.clone(), 1), work)
}

#[test]
fn parts_of_a_scan_that_waits_for_a_join_are_only_loaded() {
    let (pool, _) = pool(true);
    let (build, probe, work) = unready(&pool, 50, 1);
    assert_eq!(drain(&build).len(), 5);
    let ahead_max = pool.shared.reader_count * PARTS_AHEAD_PER_READER;
    while work.loaded.load(Ordering::SeqCst) < ahead_max || !pool.shared.lock().scans[1].loading.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(work.read.load(Ordering::SeqCst), 0);
    work.is_ready.store(true, Ordering::SeqCst);
    assert_eq!(drain(&probe), (0..50).collect::<Vec<_>>());
    assert_eq!(work.loaded.load(Ordering::SeqCst), ahead_max);
    assert_eq!(work.used.load(Ordering::SeqCst), ahead_max);
    assert_eq!(pool.shared.lock().ahead_bytes, 0);
}

#[test]
fn what_the_query_waits_for_is_read_even_if_nobody_said_what_is_wanted_of_it() {
    for combines in [true, false] {
        let (pool, _) = pool(combines);
        // Parts larger than the ahead limit are not loaded.
        let (_, probe, work) = unready(&pool, 7, 1000);
        assert_eq!(drain(&probe), (0..7).collect::<Vec<_>>());
        assert_eq!(work.loaded.load(Ordering::SeqCst), 0);
    }
}

/// Readers read the parts that two drivers wait for before the parts after either.
#[test]
fn drivers_that_wait_at_once_get_their_parts_in_turn() {
    let (pool, _) = pool(true);
    let scans = [0, 1].map(|rank| pool.add(Numbers::new(9, 1, usize::MAX), rank));
    let mut state = pool.shared.lock();
    state.waited.extend(scans.each_ref().map(|scan| scan.number));
    let mut read = Vec::new();
    for _ in 0..4 {
        let Some(ReaderStep::Read(scan)) = pool.shared.choose(&state) else { panic!("nothing is read") };
        state.scans[scan].unread += 1;
        read.push(scan);
    }
    assert_eq!(read, [0, 1, 0, 1]);
    // A driver that has taken its part comes before one with parts ahead.
    state.scans[1].wanted = 2;
    assert!(matches!(pool.shared.choose(&state), Some(ReaderStep::Read(1))));
}

#[test]
fn one_part_at_a_time_is_read_beyond_what_may_be_ahead() {
    let (pool, _) = pool(true);
    let scans = [0, 1].map(|rank| pool.add(Numbers::new(9, 1000, usize::MAX), rank));
    let mut state = pool.shared.lock();
    state.waited.extend(scans.each_ref().map(|scan| scan.number));
    assert!(matches!(pool.shared.choose(&state), Some(ReaderStep::Read(0))));
    state.scans[0].unread += 1;
    state.ahead_bytes += 1000;
    assert!(pool.shared.choose(&state).is_none());
    // Its driver has it.
    state.waited.remove(&scans[0].number);
    assert!(matches!(pool.shared.choose(&state), Some(ReaderStep::Read(1))));
}

#[test]
fn drivers_at_once_get_all_parts_of_their_scans() {
    let (pool, _) = pool(true);
    let scans = [0, 1, 2].map(|rank| pool.add(Numbers::new(40, 100, usize::MAX), rank));
    std::thread::scope(|scope| {
        let drained = scans.each_ref().map(|scan| scope.spawn(move || drain(scan)));
        for parts in drained {
            assert_eq!(parts.join().unwrap(), (0..40).collect::<Vec<_>>());
        }
    });
    assert_eq!(pool.shared.lock().ahead_bytes, 0);
}

/// A reader that found no memory for a part that no driver waits for reads an awaited part.
#[test]
fn parts_without_memory_are_read_again_when_they_are_waited_for() {
    let (mut pool, _) = pool(true);
    Arc::get_mut(&mut pool.shared).unwrap().reader_count = 1;
    let later = Numbers::new(9, 1, usize::MAX);
    later.lacks.store(1, Ordering::SeqCst);
    let scans = [pool.add(Numbers::new(200, 1, usize::MAX), 0), pool.add(later.clone(), 1)];
    let first = scans[0].next_part(&StopFlag::default()).unwrap();
    while later.lacks.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    assert_eq!(drain(&scans[0]).len() + first.iter().count(), 200);
    assert_eq!(drain(&scans[1]), (0..9).collect::<Vec<_>>());
    assert_eq!(pool.shared.lock().ahead_bytes, 0);
}

#[test]
fn a_part_that_there_is_never_memory_for_is_an_error() {
    let (pool, _) = pool(true);
    let work = Numbers::new(3, 1, usize::MAX);
    work.lacks.store(usize::MAX, Ordering::SeqCst);
    let scan = pool.add(work, 0);
    assert_eq!(scan.next_part(&StopFlag::default()).unwrap_err().kind, ErrorKind::OutOfMemory);
}
