//! How the network thread sleeps: drivers of this rank and messages of other ranks wake it.
//!
//! Invariants: a wake-up is never lost: the next sleep after one ends at once. A sleep may end
//! without a reason.
//!
//! Source: eventfd(2), ppoll(2).

#![expect(unsafe_code, reason = "the system's interface is C")]

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pystachio_plan::{Error, Result};

/// The slack that the system may add to a pause, in nanoseconds; its default is fifty times as
/// much.
const TIMER_SLACK_NS: libc::c_ulong = 1000;

/// Wakes the network thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct Waker(Arc<WakeEvent>);

/// The sleeping side of a [`Waker`].
pub(super) struct Sleeper(Arc<WakeEvent>);

struct WakeEvent {
    event: File,
    /// Whether a wake-up is pending already: the system call is spared then.
    is_pending: AtomicBool,
}

impl Waker {
    /// A waker, and its sleeping side.
    ///
    /// # Errors
    ///
    /// `Internal` if the process has no descriptor left.
    pub(super) fn new() -> Result<(Self, Sleeper)> {
        // SAFETY: its arguments are numbers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            let error = std::io::Error::last_os_error();
            let message = format!("no descriptor to wake the thread of exchanges by: {error}");
            return Err(Error::internal(message));
        }
        // SAFETY: the descriptor is new, and no other code has it.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let event = Arc::new(WakeEvent { event, is_pending: AtomicBool::new(false) });
        Ok((Self(event.clone()), Sleeper(event)))
    }

    pub(super) fn wake(&self) {
        if !self.0.is_pending.swap(true, Ordering::AcqRel) {
            // The counter can't overflow: only this code writes it.
            let _ = (&self.0.event).write(&1u64.to_ne_bytes());
        }
    }
}

impl Sleeper {
    /// Makes the sleeps of the calling thread as short as requested, as far as the system allows.
    pub(super) fn sleep_exactly() {
        // SAFETY: its arguments are numbers, and it concerns this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS) };
    }

    /// Sleeps until the time has passed, a waker wakes it, or one of these is readable.
    pub(super) fn sleep(&self, time: Duration, others: &[BorrowedFd<'_>]) {
        let own = [self.0.event.as_raw_fd()].into_iter();
        let descriptors = own.chain(others.iter().map(AsRawFd::as_raw_fd));
        let mut polled: Vec<libc::pollfd> =
            descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        let timeout = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos() as libc::c_long,
        };
        // SAFETY: the array has this many entries, and the descriptors are open. If interrupted,
        // the next poll finds the events.
        unsafe {
            libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &raw const timeout, ptr::null())
        };
        if polled.first().is_some_and(|own| own.revents != 0) {
            let _ = (&self.0.event).read(&mut [0; 8]);
        }
        // Wake-ups before this are covered by the poll that follows; later ones write again.
        self.0.is_pending.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd, os::unix::net::UnixStream, time::Instant};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_was_woken_before_it_slept_wakes_at_once() {
        let (waker, sleeper) = Waker::new().unwrap();
        let begun = Instant::now();
        for _ in 0..3 {
            waker.wake();
            waker.clone().wake();
            sleeper.sleep(LONG, &[]);
        }
        assert!(begun.elapsed() < LONG);
        let begun = Instant::now();
        sleeper.sleep(Duration::from_millis(20), &[]);
        assert!(begun.elapsed() >= Duration::from_millis(20), "one wake ends one sleep");
    }

    #[test]
    fn threads_that_wake_at_any_time_are_heard() {
        let (waker, sleeper) = Waker::new().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            for number in 0..10_000 {
                sender.send(number).unwrap();
                waker.wake();
            }
        });
        let mut heard = 0;
        let begun = Instant::now();
        while heard < 10_000 {
            sleeper.sleep(LONG, &[]);
            heard += receiver.try_iter().count();
            assert!(begun.elapsed() < LONG, "a wake was lost");
        }
        thread.join().unwrap();
    }

    #[test]
    fn what_another_rank_tells_wakes_it() {
        let (_waker, sleeper) = Waker::new().unwrap();
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"told").unwrap();
        let begun = Instant::now();
        sleeper.sleep(LONG, &[other.as_fd()]);
        assert!(begun.elapsed() < LONG);
    }
}
