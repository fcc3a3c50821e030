//! Threads of queries, which later queries reuse.
//!
//! A query needs a thread for each of its drivers and readers, and may run for only a few
//! milliseconds. Starting and ending a thread takes a part of that: the kernel maps and unmaps a
//! stack, which interrupts every processor that runs another thread of the process, and the
//! device's driver creates and drops its state for the thread.
//!
//! Invariants: a waiting thread holds nothing of its previous work. Threads end some time after
//! their last work, and when the last [`Threads`] is dropped.
//!
//! Deliberately absent: a limit of running threads, and a queue for work: callers know how many
//! threads they need, and some work waits for other work.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{Error, Result};

/// The stack of a thread: code walks plans recursively. Address space, not memory.
const STACK_BYTES: usize = 64 << 20;
/// How long a thread waits for its next work.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Limit of waiting threads of one role: those of some queries at once.
const IDLE_MAX: usize = 128;

type ThreadWork = Box<dyn FnOnce() + Send>;

/// Starts work on threads. Cheap to clone.
#[derive(Clone, Default)]
pub(in crate::execution) struct Threads {
    idle: Arc<IdleThreads>,
}

/// Waiting threads, by role, and the channel to each.
#[derive(Default)]
struct IdleThreads {
    by_role: Mutex<HashMap<&'static str, Vec<IdleThread>>>,
    next_number: AtomicU64,
}

struct IdleThread {
    number: u64,
    sender: SyncSender<ThreadWork>,
}

/// Started work.
pub(in crate::execution) struct StartedWork(Receiver<()>);

impl StartedWork {
    /// Waits until it has ended and has dropped all of its state.
    pub(in crate::execution) fn join(self) {
        // No message is ever sent: the other end is dropped.
        let _ = self.0.recv();
    }
}

impl Threads {
    /// Starts work on a thread named `role`.
    ///
    /// # Errors
    ///
    /// `Internal` if no thread waits and the system can't start one.
    pub(in crate::execution) fn start(
        &self,
        role: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<StartedWork> {
        let (ended, ending) = sync_channel::<()>(0);
        let mut work: ThreadWork = Box::new(move || {
            work();
            drop(ended);
        });
        while let Some(thread) = self.idle.take(role) {
            match thread.sender.send(work) {
                Ok(()) => return Ok(StartedWork(ending)),
                Err(unsent) => work = unsent.0,
            }
        }
        let idle = Arc::downgrade(&self.idle);
        std::thread::Builder::new()
            .name(role.to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || work_on(role, work, &idle))
            .map_err(|error| Error::internal(format!("a thread can't be started: {error}")))?;
        Ok(StartedWork(ending))
    }
}

impl IdleThreads {
    /// The thread that has waited for the shortest time.
    fn take(&self, role: &str) -> Option<IdleThread> {
        lock_whole(&self.by_role).get_mut(role)?.pop()
    }

    /// Registers a waiting thread under a number of its own; `None` if enough threads wait.
    fn put(&self, role: &'static str, sender: SyncSender<ThreadWork>) -> Option<u64> {
        let mut by_role = lock_whole(&self.by_role);
        let waiting = by_role.entry(role).or_default();
        if waiting.len() >= IDLE_MAX {
            return None;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        waiting.push(IdleThread { number, sender });
        Some(number)
    }

    /// Unregisters a waiting thread; false if another thread is about to give it work.
    fn remove(&self, role: &str, number: u64) -> bool {
        let mut by_role = lock_whole(&self.by_role);
        let Some(waiting) = by_role.get_mut(role) else { return false };
        let before = waiting.len();
        waiting.retain(|thread| thread.number != number);
        waiting.len() < before
    }
}

/// A thread's life.
fn work_on(role: &'static str, first: ThreadWork, idle: &Weak<IdleThreads>) {
    let mut work = first;
    loop {
        work();
        let (sender, receiver) = sync_channel(1);
        let Some(number) = idle.upgrade().and_then(|idle| idle.put(role, sender)) else { return };
        work = match receiver.recv_timeout(IDLE_TIME_MAX) {
            Ok(next) => next,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let is_removed = idle.upgrade().is_none_or(|idle| idle.remove(role, number));
                match receiver.recv() {
                    Ok(next) if !is_removed => next,
                    _ => return,
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        thread::{ThreadId, current},
    };

    use super::*;

    fn thread_of(threads: &Threads, role: &'static str) -> (ThreadId, Option<String>) {
        let (sender, receiver) = mpsc::channel();
        let work = move || sender.send((current().id(), current().name().map(str::to_owned))).unwrap();
        threads.start(role, work).unwrap().join();
        receiver.recv().unwrap()
    }

    /// Waits until this many threads wait for work.
    fn wait_idle(threads: &Threads, count: usize) {
        while lock_whole(&threads.idle.by_role).values().map(Vec::len).sum::<usize>() < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn work_of_a_role_is_done_by_the_thread_that_did_the_last_one() {
        let threads = Threads::default();
        let first = thread_of(&threads, "a");
        wait_idle(&threads, 1);
        assert_eq!(thread_of(&threads, "a"), first);
        let other = thread_of(&threads, "b");
        assert_eq!((first.1.as_deref(), other.1.as_deref()), (Some("a"), Some("b")));
        assert_ne!(first.0, other.0);
    }

    #[test]
    fn work_that_waits_for_other_work_is_no_hindrance() {
        let threads = Threads::default();
        let (sender, receiver) = mpsc::channel::<()>();
        let waiting = threads.start("a", move || receiver.recv().unwrap()).unwrap();
        threads.start("a", move || sender.send(()).unwrap()).unwrap().join();
        waiting.join();
    }

    #[test]
    fn who_joins_finds_that_the_work_has_dropped_what_it_had_also_after_a_panic() {
        let threads = Threads::default();
        for panics in [false, true] {
            let held = Arc::new(());
            let inside = held.clone();
            let work = move || {
                let _held = inside;
                assert!(!panics, "on purpose");
            };
            threads.start("a", work).unwrap().join();
            // A panic drops the work's state, and then the other end.
            while Arc::strong_count(&held) > 1 {
                std::thread::yield_now();
            }
        }
        assert_eq!(thread_of(&threads, "a").1.as_deref(), Some("a"));
    }

    #[test]
    fn threads_end_with_whoever_starts_them() {
        let threads = Threads::default();
        thread_of(&threads, "a");
        wait_idle(&threads, 1);
        let idle = Arc::downgrade(&threads.idle);
        drop(threads);
        assert!(idle.upgrade().is_none());
    }
}
