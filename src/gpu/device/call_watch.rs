//! Calls of a device's driver that do not return.
//!
//! Work enqueued on a device can't be cancelled. A thread that waits for a stream behind a kernel
//! that never ends waits for ever, and in the end so does everything else on that device. Only
//! ending the process helps. A watchdog thread polls here at regular intervals and ends the
//! process.
//!
//! Invariants: entering and leaving a call write to the thread's own memory only. Time is counted
//! in polls, so a process that was stopped and goes on has not been in a call for all that time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use thread_local::ThreadLocal;

/// Which threads are within a call of a device.
#[derive(Default)]
pub struct CallWatch {
    threads: ThreadLocal<ThreadCalls>,
}

/// The calls of one thread.
#[derive(Default)]
struct ThreadCalls {
    /// Incremented when a call begins or ends: odd within a call.
    changes: AtomicU64,
    /// `changes` at the last poll.
    changes_seen: AtomicU64,
    /// Consecutive polls that found the same call.
    looks: AtomicU32,
}

/// A call that is under way until this is dropped.
#[must_use = "the call is over when this is dropped"]
pub struct CallGuard<'a> {
    /// Absent for a nested call, which counts as part of the outer one.
    thread: Option<&'a ThreadCalls>,
}

impl CallWatch {
    /// Begins a call of this thread.
    pub fn enter(&self) -> CallGuard<'_> {
        let thread = self.threads.get_or_default();
        let changes = thread.changes.load(Ordering::Relaxed);
        if !changes.is_multiple_of(2) {
            return CallGuard { thread: None };
        }
        thread.changes.store(changes + 1, Ordering::Relaxed);
        CallGuard { thread: Some(thread) }
    }

    /// How many consecutive polls, including this one, have found the same call running: the most
    /// of any thread. For one thread that polls at regular intervals.
    pub fn look(&self) -> u32 {
        self.threads.iter().map(ThreadCalls::look).max().unwrap_or(0)
    }
}

impl ThreadCalls {
    fn look(&self) -> u32 {
        let changes = self.changes.load(Ordering::Relaxed);
        let looks = match (changes.is_multiple_of(2), changes == self.changes_seen.load(Ordering::Relaxed)) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => self.looks.load(Ordering::Relaxed).saturating_add(1),
        };
        self.changes_seen.store(changes, Ordering::Relaxed);
        self.looks.store(looks, Ordering::Relaxed);
        looks
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread {
            thread.changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn looks_count_while_a_call_is_under_way() {
        let watch = CallWatch::default();
        assert_eq!(watch.look(), 0);
        let call = watch.enter();
        assert_eq!([watch.look(), watch.look(), watch.look()], [1, 2, 3]);
        drop(call);
        assert_eq!(watch.look(), 0);
    }

    #[test]
    fn another_call_is_not_the_same() {
        let watch = CallWatch::default();
        for _ in 0..3 {
            let _call = watch.enter();
            assert_eq!(watch.look(), 1);
        }
    }

    #[test]
    fn a_call_within_a_call_is_one_with_it() {
        let watch = CallWatch::default();
        let outer = watch.enter();
        assert_eq!(watch.look(), 1);
        drop(watch.enter());
        assert_eq!(watch.look(), 2);
        drop(outer);
        assert_eq!(watch.look(), 0);
    }

    #[test]
    fn one_thread_that_does_not_return_is_seen_among_many() {
        let (watch, stuck, over) = (CallWatch::default(), Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _call = watch.enter();
                stuck.wait();
                over.wait();
            });
            stuck.wait();
            for looks in 1..10 {
                drop(watch.enter());
                assert_eq!(watch.look(), looks);
            }
            over.wait();
        });
        assert_eq!(watch.look(), 0);
    }
}
