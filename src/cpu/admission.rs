//! Memory for work that many threads do, piece by piece: a piece waits until there is memory for it.
//!
//! Invariants: a piece that runs never waits here, so that what it holds comes back. The pieces of one caller
//! that need one another's results are admitted in their order.
//!
//! Deliberately absent: waiting for what queries hold. A piece that is refused while no other runs is an error.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use crate::datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use pystachio_engine::locking::{account, lock};
use pystachio_plan::Result;
use tokio_util::sync::CancellationToken;

use crate::error::from_datafusion;

const CONSUMER: &str = "file writer";
/// How often one that waits looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(50);

/// Admits pieces of work into a memory pool.
pub(crate) struct Admission {
    pool: Arc<dyn MemoryPool>,
    admitted: Arc<Admitted>,
}

#[derive(Default)]
struct Admitted {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Memory of a piece of work, until it is dropped.
pub(crate) struct Grant {
    reservation: MemoryReservation,
    admitted: Arc<Admitted>,
}

impl Admission {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self { pool, admitted: Arc::default() }
    }

    /// The pool's size, if it has one.
    pub(crate) fn bytes_max(&self) -> u64 {
        match self.pool.memory_limit() {
            crate::datafusion::execution::memory_pool::MemoryLimit::Finite(bytes) => bytes as u64,
            _ => u64::MAX,
        }
    }

    /// Waits for memory; `None` if it is not wanted any more. Blocks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if there is not enough, although no other piece is admitted.
    pub(crate) fn admit(&self, bytes: u64, stop: &CancellationToken) -> Result<Option<Grant>> {
        let reservation = MemoryConsumer::new(CONSUMER).register(&self.pool);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut count = lock(&self.admitted.count);
        loop {
            if stop.is_cancelled() {
                return Ok(None);
            }
            match reservation.try_grow(bytes) {
                Ok(()) => break,
                Err(error) if *count == 0 => return Err(from_datafusion(&error)),
                Err(_) => {}
            }
            let waited = self.admitted.changed.wait_timeout(count, WAIT);
            count = account(waited).0;
        }
        *count += 1;
        Ok(Some(Grant { reservation, admitted: self.admitted.clone() }))
    }
}

impl Grant {
    /// Makes the grant as large as `bytes` if it is smaller.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(crate) fn cover(&self, bytes: usize) -> Result<()> {
        let missing = bytes.saturating_sub(self.reservation.size());
        self.reservation.try_grow(missing).map_err(|error| from_datafusion(&error))
    }

    /// Gives back what is more than `bytes`.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        let excess = self.reservation.size().saturating_sub(bytes);
        if excess > 0 {
            self.reservation.shrink(excess);
            self.admitted.changed.notify_all();
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // Before the count changes: whoever sees no other piece must see its memory.
        self.reservation.free();
        let mut count = lock(&self.admitted.count);
        *count = count.saturating_sub(1);
        self.admitted.changed.notify_all();
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "grant of {} bytes", self.reservation.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::EnginePool;
    use pystachio_plan::ErrorKind;

    fn admission() -> Admission {
        Admission::new(Arc::new(EnginePool::new(1000)))
    }

    #[test]
    fn a_piece_waits_for_the_one_before_it() {
        let (admission, stop) = (admission(), CancellationToken::new());
        let first = admission.admit(700, &stop).unwrap().unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| admission.admit(600, &stop).unwrap().unwrap());
            first.shrink_to(500);
            assert!(first.cover(1001).is_err());
            drop(first);
            assert_eq!(second.join().unwrap().reservation.size(), 600);
        });
        assert_eq!(admission.pool.reserved(), 0);
    }

    #[test]
    fn a_piece_that_never_fits_is_an_error() {
        let (admission, stop) = (admission(), CancellationToken::new());
        assert_eq!(admission.admit(1001, &stop).unwrap_err().kind, ErrorKind::OutOfMemory);
    }

    #[test]
    fn waiting_ends_when_it_is_not_wanted() {
        let (admission, stop) = (admission(), CancellationToken::new());
        let _first = admission.admit(700, &stop).unwrap().unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| admission.admit(600, &stop).unwrap());
            stop.cancel();
            assert!(second.join().unwrap().is_none());
        });
    }
}
