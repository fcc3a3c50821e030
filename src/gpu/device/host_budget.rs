//! A budget for host memory that is not page-locked: counted before it is allocated.
//!
//! Invariants: requests are granted in the order of arrival. The holder of a share returns it
//! before it requests another one, so no request waits for ever.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use pystachio_engine::locking::lock;
use pystachio_plan::Result;

/// How often a waiting request polls whether it is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(10);

/// A limit of bytes that all users share. Cheap to clone.
#[derive(Clone)]
pub struct HostBudget {
    shared: Arc<HostBudgetInner>,
}

struct HostBudgetInner {
    bytes_max: u64,
    state: Mutex<HostBudgetState>,
    changed: Condvar,
}

#[derive(Default)]
struct HostBudgetState {
    used_bytes: u64,
    /// The numbers of waiting requests.
    waiting: VecDeque<u64>,
    next_number: u64,
}

/// A share of bytes, returned when it is dropped.
#[must_use = "the bytes are given back when this is dropped"]
pub struct HostShare {
    shared: Arc<HostBudgetInner>,
    bytes: u64,
}

impl HostBudget {
    /// A budget of at most so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let shared = HostBudgetInner { bytes_max, state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// The limit.
    pub fn bytes_max(&self) -> u64 {
        self.shared.bytes_max
    }

    /// Waits for a share; `None` if it exceeds the budget. `check_wanted` fails if the request is
    /// no longer wanted.
    ///
    /// # Errors
    ///
    /// Errors of `check_wanted`.
    pub fn take(&self, bytes: u64, check_wanted: impl Fn() -> Result<()>) -> Result<Option<HostShare>> {
        let shared = &self.shared;
        if bytes > shared.bytes_max {
            return Ok(None);
        }
        let mut state = shared.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.push_back(number);
        while state.waiting.front() != Some(&number) || bytes > shared.bytes_max - state.used_bytes {
            if let Err(error) = check_wanted() {
                state.waiting.retain(|waiting| *waiting != number);
                shared.changed.notify_all();
                return Err(error);
            }
            state = match shared.changed.wait_timeout(state, WAIT_INTERVAL) {
                Ok((state, _)) => state,
                Err(error) => error.into_inner().0,
            };
        }
        state.waiting.pop_front();
        state.used_bytes += bytes;
        // The next one may have room too.
        shared.changed.notify_all();
        Ok(Some(HostShare { shared: shared.clone(), bytes }))
    }
}

#[cfg(test)]
impl HostBudget {
    /// Returns when so many requests wait.
    pub(crate) fn await_waiting(&self, count: usize) {
        while self.shared.lock().waiting.len() != count {
            std::thread::yield_now();
        }
    }
}

impl HostBudgetInner {
    fn lock(&self) -> MutexGuard<'_, HostBudgetState> {
        lock(&self.state)
    }
}

impl Drop for HostShare {
    fn drop(&mut self) {
        self.shared.lock().used_bytes -= self.bytes;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use pystachio_engine::StopFlag;

    #[test]
    fn shares_never_sum_up_to_more_than_there_is() {
        let budget = HostBudget::new(100);
        let (used, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (budget, used, most) = (&budget, &used, &most);
                scope.spawn(move || {
                    for round in 0..50 {
                        let bytes = 1 + (thread * 31 + round * 17) % 100;
                        let share = budget.take(bytes, || Ok(())).unwrap().unwrap();
                        let now = used.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        used.fetch_sub(bytes, Ordering::SeqCst);
                        drop(share);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 100);
        assert!(budget.take(101, || Ok(())).unwrap().is_none());
    }

    #[test]
    fn requests_are_granted_in_order_and_end_when_they_are_cancelled() {
        let budget = HostBudget::new(10);
        let first = budget.take(10, || Ok(())).unwrap();
        let (stop, served) = (StopFlag::default(), Mutex::new(Vec::new()));
        let waiting = |count: usize| budget.await_waiting(count);
        std::thread::scope(|scope| {
            let cancelled = scope.spawn(|| budget.take(10, || stop.check()).map(|_| ()));
            waiting(1);
            for (place, bytes) in [9, 2].into_iter().enumerate() {
                let (budget, served) = (&budget, &served);
                scope.spawn(move || {
                    let _share = budget.take(bytes, || Ok(())).unwrap().unwrap();
                    served.lock().unwrap().push(bytes);
                });
                waiting(2 + place);
            }
            stop.stop();
            assert!(cancelled.join().unwrap().is_err());
            waiting(2);
            assert!(served.lock().unwrap().is_empty());
            drop(first);
        });
        assert_eq!(*served.lock().unwrap(), [9, 2]);
        assert_eq!(budget.shared.lock().used_bytes, 0);
    }
}
