//! Helper threads of the host for long computations.
//!
//! Invariants: all queries of a device together have at most a fixed number of them. A thread never
//! waits for a helper: if none is idle, it does its work alone.
//!
//! Deliberately absent: the threads themselves. They are started for work of many milliseconds, and
//! end with it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Limit of helper threads of a device. Readers work beside them.
const THREADS_MAX: usize = 16;

/// The number of helper threads that may still start. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostThreads {
    idle_count: Arc<AtomicUsize>,
}

/// Threads that the borrower may start. Dropping this returns them.
#[derive(Debug)]
#[must_use = "the threads are idle again when this is dropped"]
pub struct LentThreads {
    threads: HostThreads,
    count: usize,
}

impl HostThreads {
    /// As many as the host has processors, up to a limit.
    pub fn of_host() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors.min(THREADS_MAX))
    }

    fn new(count: usize) -> Self {
        Self { idle_count: Arc::new(AtomicUsize::new(count)) }
    }

    /// Lends idle threads, at most `most`, perhaps none.
    pub fn lend(&self, most: usize) -> LentThreads {
        let mut count = 0;
        let take = |idle: usize| {
            count = most.min(idle);
            Some(idle - count)
        };
        // It is always granted.
        let _ = self.idle_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        LentThreads { threads: self.clone(), count }
    }
}

impl LentThreads {
    /// The number of lent threads.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for LentThreads {
    fn drop(&mut self) {
        self.threads.idle_count.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrowers_together_have_no_more_threads_than_there_are() {
        let threads = HostThreads::new(5);
        let lent = [threads.lend(3), threads.lend(4), threads.clone().lend(1)];
        assert_eq!(lent.each_ref().map(LentThreads::count), [3, 2, 0]);
        drop(lent);
        assert_eq!(threads.lend(9).count(), 5);
    }

    #[test]
    fn borrowers_at_once_have_no_more_threads_than_there_are() {
        let threads = HostThreads::new(7);
        let (lent, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for borrower in 0..8 {
                let (threads, lent, most) = (&threads, &lent, &most);
                scope.spawn(move || {
                    for round in 0..200 {
                        let some = threads.lend((borrower + round) % 6);
                        let now = lent.fetch_add(some.count(), Ordering::SeqCst) + some.count();
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        lent.fetch_sub(some.count(), Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 7);
        assert_eq!(threads.lend(9).count(), 7);
    }
}
