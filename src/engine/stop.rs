//! Saying that work is no longer wanted to whoever is busy with it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use pystachio_plan::{Error, ErrorKind, Result};

/// Whether a request is still wanted. Clones share the answer.
///
/// Dropping a stream stops its query where it waits, and that needs a thread of the engine's to find it
/// waiting. Code that computes for long without waiting looks here.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Says that the work is not wanted any more.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// `Cancelled` if somebody has said so.
    ///
    /// # Errors
    ///
    /// That one.
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::new(ErrorKind::Cancelled, "the query was cancelled")),
            false => Ok(()),
        }
    }

    /// Whether somebody has said so.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
