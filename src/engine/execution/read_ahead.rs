//! How far the readers of a scan may be ahead of the query.
//!
//! Invariants: parts are taken in order, and given back when the query has their chunk. The first part that is
//! not given back may always be read, so that a query goes on however little memory there is.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::memory::QueryMemory;

/// How often a reader that waits looks how much memory there is, and whether it is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What readers have taken and the query has not.
pub(super) struct ReadAhead {
    memory: QueryMemory,
    /// Parts that are ahead at once.
    parts_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: usize,
    /// Bytes of parts that are ahead, by place.
    ahead: BTreeMap<usize, u64>,
}

impl ReadAhead {
    pub(super) fn new(memory: QueryMemory, parts_max: usize) -> Self {
        Self { memory, parts_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, POLL_INTERVAL);
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
    }

    /// The next part, when there is memory for it. `bytes_of` gives what a part takes, or `None` after the last.
    /// `None` at the end, and when `is_stopped`.
    pub(super) fn take(
        &self,
        bytes_of: impl Fn(usize) -> Option<u64>,
        is_stopped: impl Fn() -> bool,
    ) -> Option<usize> {
        let mut state = self.lock();
        loop {
            let place = state.next;
            let bytes = bytes_of(place)?;
            let ahead: u64 = state.ahead.values().sum();
            let is_small = || ahead + bytes <= self.memory.ahead_bytes();
            if state.ahead.is_empty() || (state.ahead.len() < self.parts_max && is_small()) {
                state.next += 1;
                state.ahead.insert(place, bytes);
                return Some(place);
            }
            if is_stopped() {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Waits until the query has all parts before this one; says whether there were some.
    pub(super) fn wait_first(&self, place: usize, is_stopped: impl Fn() -> bool) -> bool {
        let mut has_waited = false;
        let mut state = self.lock();
        while state.ahead.keys().next().is_some_and(|first| *first < place) && !is_stopped() {
            has_waited = true;
            state = self.wait(state);
        }
        has_waited
    }

    /// Says that the query has a part.
    pub(super) fn give_back(&self, place: usize) {
        self.lock().ahead.remove(&place);
        self.changed.notify_all();
    }
}
