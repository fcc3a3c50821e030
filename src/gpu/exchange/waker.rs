//! How the network thread sleeps, and who wakes it: drivers of this rank, and what other ranks tell.
//!
//! Invariants: a wake is never lost: the next sleep after one ends at once. A sleep that ends for nothing does no harm.
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

/// What the system may add to a pause, in nanoseconds, where it would add fifty times as much.
const TIMER_SLACK_NS: libc::c_ulong = 1000;

/// Wakes the network thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct Waker(Arc<Bell>);

/// Where the network thread sleeps.
pub(super) struct Sleeper(Arc<Bell>);

struct Bell {
    event: File,
    /// Whether it rings already: the call is spared then.
    is_rung: AtomicBool,
}

impl Waker {
    /// One, and where it is heard.
    ///
    /// # Errors
    ///
    /// `Internal` if the process has no descriptor left.
    pub(super) fn new() -> Result<(Self, Sleeper)> {
        // SAFETY: it takes numbers alone.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            let error = std::io::Error::last_os_error();
            let message = format!("no descriptor to wake the thread of exchanges by: {error}");
            return Err(Error::internal(message));
        }
        // SAFETY: it is new, and nobody else's.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let bell = Arc::new(Bell { event, is_rung: AtomicBool::new(false) });
        Ok((Self(bell.clone()), Sleeper(bell)))
    }

    pub(super) fn wake(&self) {
        if !self.0.is_rung.swap(true, Ordering::AcqRel) {
            // It can't be full: nobody else writes it.
            let _ = (&self.0.event).write(&1u64.to_ne_bytes());
        }
    }
}

impl Sleeper {
    /// Lets the sleeps of the calling thread be as short as they are asked to be, as far as the system does.
    pub(super) fn sleep_exactly() {
        // SAFETY: it takes numbers alone, and concerns this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS) };
    }

    /// Sleeps for no longer than that, and until somebody wakes it or there is something to read of one of these.
    pub(super) fn sleep(&self, time: Duration, others: &[BorrowedFd<'_>]) {
        let own = [self.0.event.as_raw_fd()].into_iter();
        let descriptors = own.chain(others.iter().map(AsRawFd::as_raw_fd));
        let mut polled: Vec<libc::pollfd> =
            descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        let timeout = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos() as libc::c_long,
        };
        // SAFETY: as many entries as are there, all alive. Interrupted or not: the next look finds what there is.
        unsafe {
            libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &raw const timeout, ptr::null())
        };
        if polled.first().is_some_and(|own| own.revents != 0) {
            let _ = (&self.0.event).read(&mut [0; 8]);
        }
        // Who wakes it before this is heard by the look that follows; who does so after it writes again.
        self.0.is_rung.swap(false, Ordering::AcqRel);
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
