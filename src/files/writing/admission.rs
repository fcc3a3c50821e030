//! Memory for work that many threads do, piece by piece: a piece waits until there is memory for it.
//!
//! Invariants: a piece that runs never waits here, so that what it holds comes back. The pieces of one caller
//! that need one another's results are admitted in their order.
//!
//! Deliberately absent: waiting for what queries hold. A piece that is refused while no other runs is an error.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use pystachio_engine::locking::{account, lock};
use pystachio_plan::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::FileMemory;

/// How often one that waits looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(50);

/// Admits pieces of work as far as an engine's memory goes.
pub struct Admission {
    memory: Arc<dyn FileMemory>,
    admitted: Arc<Admitted>,
}

#[derive(Debug, Default)]
struct Admitted {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Memory of a piece of work, until it is dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    memory: Arc<dyn FileMemory>,
    bytes: u64,
    admitted: Arc<Admitted>,
}

impl Admission {
    /// Admits as much as this memory allows.
    pub fn new(memory: Arc<dyn FileMemory>) -> Self {
        Self { memory, admitted: Arc::default() }
    }

    /// Another one over the same memory, for work of its own: neither waits for the other's pieces.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.memory.clone())
    }

    /// The total, free or not.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.memory.bytes_max()
    }

    /// Waits for memory; `None` if it is not wanted any more. Blocks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if there is not enough, although no other piece is admitted.
    pub(crate) fn admit(&self, bytes: u64, stop: &CancellationToken) -> Result<Option<Grant>> {
        let mut count = lock(&self.admitted.count);
        loop {
            if stop.is_cancelled() {
                return Ok(None);
            }
            if self.memory.try_take(bytes) {
                break;
            }
            if *count == 0 {
                return Err(refused(self.memory.as_ref(), bytes));
            }
            let waited = self.admitted.changed.wait_timeout(count, WAIT);
            count = account(waited).0;
        }
        *count += 1;
        Ok(Some(Grant { memory: self.memory.clone(), bytes, admitted: self.admitted.clone() }))
    }
}

impl Grant {
    /// Makes the grant as large as `bytes` if it is smaller.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<()> {
        let missing = (bytes as u64).saturating_sub(self.bytes);
        if !self.memory.try_take(missing) {
            return Err(refused(self.memory.as_ref(), missing));
        }
        self.bytes += missing;
        Ok(())
    }

    /// Gives back what is more than `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let excess = self.bytes.saturating_sub(bytes as u64);
        if excess > 0 {
            self.memory.give_back(excess);
            self.bytes -= excess;
            self.admitted.changed.notify_all();
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // Before the count changes: a thread that sees no other piece must see its memory.
        self.memory.give_back(self.bytes);
        let mut count = lock(&self.admitted.count);
        *count = count.saturating_sub(1);
        self.admitted.changed.notify_all();
    }
}

/// The error of work that gets no more memory.
fn refused(memory: &dyn FileMemory, requested_bytes: u64) -> Error {
    let message = "the query needs more memory than the server's option \"memory\" allows";
    let limit_bytes = memory.bytes_max();
    Error::new(ErrorKind::OutOfMemory, message)
        .with_detail(format!(
            "There is no memory for a file writer: requested_bytes={requested_bytes}, limit_bytes={limit_bytes}."
        ))
        .with_hint("Increase the option \"memory\" of the foreign server, or run fewer queries at once.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_memory::tests::CountedMemory;

    fn admission() -> Admission {
        Admission::new(Arc::new(CountedMemory::new(1000)))
    }

    #[test]
    fn a_piece_waits_for_the_one_before_it() {
        let memory = Arc::new(CountedMemory::new(1000));
        let (admission, stop) = (Admission::new(memory.clone()), CancellationToken::new());
        let mut first = admission.admit(700, &stop).unwrap().unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| admission.admit(600, &stop).unwrap().unwrap());
            first.shrink_to(500);
            assert!(first.cover(1001).is_err());
            drop(first);
            assert_eq!(second.join().unwrap().bytes, 600);
        });
        assert_eq!(memory.left(), 1000);
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
