//! The row groups of a scan, and the partitions that read them.
//!
//! ```text
//! row groups ─► claimed one by one ─► read ─► the next one
//!      ▲                               │
//!      └── the rest of it ◄── no memory, and others read: this partition ends, they have what it holds
//! ```
//!
//! Row groups of objects are announced some time before they are claimed, so that their bytes can be fetched meanwhile.
//!
//! Invariants: a partition that finds nothing to claim has ended, in the same step. A partition that still reads when a row group
//! is given back claims once more, so no row group is lost. The last reader gets nothing given back and gives nothing back.
//!
//! Deliberately absent: waiting. A partition that waited for another might be what that one's reader waits for.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use pystachio_engine::locking::lock;
use pystachio_files::Pin;
use tokio::task::JoinHandle;

/// A row group of a scan, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanUnit {
    pub(super) file: usize,
    pub(super) row_group: usize,
    /// The rows before it were handed on.
    pub(super) first_row: usize,
    /// Bytes that the columns of the whole row group have in the file.
    pub(super) bytes: u64,
}

/// What the partitions of a scan share.
#[derive(Debug)]
pub(super) struct ScanQueue {
    state: Mutex<QueueState>,
    rows_left: Option<AtomicUsize>,
    /// Of column chunks, as they are in files: those of its row groups, and of these those that partitions are through with.
    bytes_expected: u64,
    bytes_done: AtomicU64,
}

#[derive(Debug)]
struct QueueState {
    units: VecDeque<ScanUnit>,
    /// Partitions that have claimed a row group and have not ended.
    readers: usize,
    /// Partitions that have ended, of those.
    ended: usize,
    /// How many of the first units were announced, and the fetches that partitions began for them.
    announced: usize,
    fetches: Vec<(ScanUnit, JoinHandle<Option<Pin>>)>,
}

impl ScanQueue {
    /// A queue of row groups, the first to be read first, for a scan that may give `fetch` rows.
    pub(super) fn new(units: Vec<ScanUnit>, fetch: Option<usize>) -> Self {
        let bytes_expected = units.iter().map(|unit| unit.bytes).sum();
        let units = units.into();
        let state = QueueState { units, readers: 0, ended: 0, announced: 0, fetches: Vec::new() };
        let (rows_left, bytes_done) = (fetch.map(AtomicUsize::new), AtomicU64::new(0));
        Self { state: Mutex::new(state), rows_left, bytes_expected, bytes_done }
    }

    /// Bytes that the column chunks of its row groups have in files, and those of them that partitions are through with.
    pub(super) fn bytes(&self) -> (u64, u64) {
        match self.is_exhausted() {
            true => (self.bytes_expected, self.bytes_expected),
            false => (self.bytes_expected, self.bytes_done.load(Ordering::Relaxed).min(self.bytes_expected)),
        }
    }

    /// A partition is through with the rows of a unit up to `row_end`, where the row group has `row_count`.
    pub(super) fn note_done(&self, unit: ScanUnit, row_end: usize, row_count: usize) {
        let before = |row: usize| {
            let part = u128::from(unit.bytes) * row.min(row_count) as u128 / row_count.max(1) as u128;
            u64::try_from(part).unwrap_or(unit.bytes)
        };
        self.bytes_done.fetch_add(before(row_end).saturating_sub(before(unit.first_row)), Ordering::Relaxed);
    }

    /// The next units that were not announced, as many as have so many bytes together with those that were, and at least one.
    pub(super) fn announce(&self, bytes_max: u64) -> Vec<ScanUnit> {
        let mut state = self.lock();
        let mut bytes: u64 = state.units.iter().take(state.announced).map(|unit| unit.bytes).sum();
        let before = state.announced;
        while let Some(unit) = state.units.get(state.announced)
            && (state.announced == 0 || bytes + unit.bytes <= bytes_max)
        {
            bytes += unit.bytes;
            state.announced += 1;
        }
        state.units.range(before..state.announced).copied().collect()
    }

    /// Keeps the bytes that a fetch brings for an announced unit until [`Self::forget_fetch`].
    pub(super) fn keep_fetch(&self, unit: ScanUnit, fetch: JoinHandle<Option<Pin>>) {
        self.lock().fetches.push((unit, fetch));
    }

    /// The unit is open, or not wanted.
    pub(super) fn forget_fetch(&self, unit: ScanUnit) {
        self.lock().fetches.retain(|(known, _)| (known.file, known.row_group) != (unit.file, unit.row_group));
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }

    /// Takes rows out of what the scan may still give; how many of `wanted` it may.
    pub(super) fn take_rows(&self, wanted: usize) -> usize {
        let Some(rows_left) = &self.rows_left else { return wanted };
        let before = rows_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)))
            .unwrap_or(0);
        wanted.min(before)
    }

    /// Whether the scan has given all the rows that it may.
    pub(super) fn is_exhausted(&self) -> bool {
        self.rows_left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }
}

/// A partition's place among the readers of a queue. Dropping it ends the partition's reading.
#[derive(Debug)]
pub(super) struct QueueReader {
    queue: Arc<ScanQueue>,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing is claimed; others do not count on it.
    Waiting,
    /// It has claimed a row group, and will claim until there is none.
    Reading,
    /// It claims nothing any more.
    Ended,
}

/// The readers that have ended before an attempt to get memory. After it, tells whether one more has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Company {
    ended: usize,
    pub(super) is_alone: bool,
}

/// What is to come of a row group for which there was no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is others' now, and the partition has ended.
    GivenBack,
    /// Others have ended since, and what they held is free.
    TryAgain,
    /// No other partition reads.
    Alone,
}

impl QueueReader {
    pub(super) fn new(queue: Arc<ScanQueue>) -> Self {
        Self { queue, progress: Progress::Waiting }
    }

    /// Claims the next row group; `None` ends the partition.
    pub(super) fn claim(&mut self) -> Option<ScanUnit> {
        if self.progress == Progress::Ended {
            return None;
        }
        let mut state = self.queue.lock();
        let unit = state.units.pop_front();
        state.announced = state.announced.saturating_sub(1);
        match unit {
            Some(_) if self.progress == Progress::Waiting => {
                state.readers += 1;
                self.progress = Progress::Reading;
            }
            Some(_) => {}
            None => Self::end(&mut state, &mut self.progress),
        }
        unit
    }

    /// The current readers. Call this before asking for memory.
    pub(super) fn company(&self) -> Company {
        let state = self.queue.lock();
        Company { ended: state.ended, is_alone: state.readers <= 1 }
    }

    /// Leaves what was refused memory to the others that read, if there are any. The partition holds no memory when this
    /// is called: `before` is what [`Self::company`] gave before it was refused.
    pub(super) fn give_back(&mut self, unit: ScanUnit, before: Company) -> Refused {
        let mut state = self.queue.lock();
        if state.readers > 1 {
            state.units.push_front(unit);
            // Its bytes were fetched.
            state.announced += 1;
            Self::end(&mut state, &mut self.progress);
            return Refused::GivenBack;
        }
        if state.ended == before.ended { Refused::Alone } else { Refused::TryAgain }
    }

    fn end(state: &mut QueueState, progress: &mut Progress) {
        if *progress == Progress::Reading {
            state.readers -= 1;
            state.ended += 1;
        }
        *progress = Progress::Ended;
    }
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        Self::end(&mut self.queue.lock(), &mut self.progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(row_group: usize) -> ScanUnit {
        ScanUnit { file: 0, row_group, first_row: 0, bytes: 0 }
    }

    /// Readers of a queue of two row groups.
    fn readers() -> [QueueReader; 3] {
        let queue = Arc::new(ScanQueue::new(vec![unit(0), unit(1)], None));
        [0; 3].map(|_| QueueReader::new(queue.clone()))
    }

    #[test]
    fn units_are_announced_once_and_within_bytes() {
        let units: Vec<_> = (0..4).map(|row_group| ScanUnit { bytes: 10, ..unit(row_group) }).collect();
        let queue = Arc::new(ScanQueue::new(units.clone(), None));
        let mut reader = QueueReader::new(queue.clone());
        assert_eq!(queue.announce(5), units[..1]);
        assert_eq!(queue.announce(25), units[1..2]);
        assert_eq!(queue.announce(25), []);
        assert_eq!(reader.claim(), Some(units[0]));
        assert_eq!(queue.announce(25), units[2..3]);
        // A unit that is given back is announced already.
        let _other = QueueReader::new(queue.clone()).claim();
        let mut third = QueueReader::new(queue.clone());
        let claimed = third.claim().unwrap();
        assert_eq!(third.give_back(claimed, third.company()), Refused::GivenBack);
        assert_eq!(queue.announce(100), units[3..]);
        assert_eq!(queue.announce(100), []);
    }

    #[test]
    fn who_reads_gets_what_is_given_back() {
        let [mut one, mut two, mut late] = readers();
        assert_eq!((one.claim(), two.claim()), (Some(unit(0)), Some(unit(1))));
        let rest = ScanUnit { first_row: 5, ..unit(1) };
        assert_eq!(two.give_back(rest, two.company()), Refused::GivenBack);
        assert_eq!((two.claim(), one.claim(), one.claim(), late.claim()), (None, Some(rest), None, None));
    }

    #[test]
    fn nobody_gives_back_to_who_has_ended_or_has_not_begun() {
        let [mut one, mut two, _late] = readers();
        assert_eq!(one.claim(), Some(unit(0)));
        assert!(one.company().is_alone);
        assert_eq!(one.give_back(unit(0), one.company()), Refused::Alone);
        assert_eq!(two.claim(), Some(unit(1)));
        let before = one.company();
        assert!(!before.is_alone);
        drop(two);
        assert_eq!(one.give_back(unit(0), before), Refused::TryAgain);
        assert_eq!(one.give_back(unit(0), one.company()), Refused::Alone);
    }

    #[test]
    fn one_of_two_that_are_refused_at_once_goes_on() {
        let [mut one, mut two, _late] = readers();
        let claimed = (one.claim(), two.claim());
        let before = (one.company(), two.company());
        assert_eq!(one.give_back(unit(0), before.0), Refused::GivenBack);
        assert_eq!(two.give_back(unit(1), before.1), Refused::TryAgain);
        assert_eq!((claimed, two.claim()), ((Some(unit(0)), Some(unit(1))), Some(unit(0))));
    }
}
