//! What kernels of operations report, as errors.

use pystachio_plan::Result;

use super::Queue;
use crate::{
    device::{Buffer, Letter, abi::Status},
    program::status_error,
};

/// A status word on the device: an operation's own, or the one that a query looks at later.
pub struct StatusCell {
    address: u64,
    /// Absent for the query's.
    own: Option<Buffer>,
}

impl StatusCell {
    /// A status for an operation.
    pub fn new(queue: &Queue) -> Result<Self> {
        if let Some(address) = queue.memory().deferred_status(queue.stream())? {
            return Ok(Self { address, own: None });
        }
        let own = queue.memory().allocate_zeroed(size_of::<Status>() as u64, queue.stream())?;
        Ok(Self { address: own.address(), own: Some(own) })
    }

    /// What kernels are given.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Waits, and turns a report into an error; unless the query looks at it later.
    ///
    /// # Errors
    ///
    /// What the first report says.
    pub fn check(&self, queue: &Queue) -> Result<()> {
        match &self.own {
            Some(own) => check(queue.download::<Status>(own, 1)?.first()),
            None => Ok(()),
        }
    }
}

/// A look at a query's deferred status.
pub struct FaultReport {
    letter: Option<Letter>,
}

impl Queue {
    /// Looks at what kernels have reported so far, without waiting.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn report_faults(&self) -> Result<FaultReport> {
        Ok(FaultReport { letter: self.memory().post_deferred_status(self.stream())? })
    }
}

impl FaultReport {
    /// Waits, and turns the first report into an error.
    ///
    /// # Errors
    ///
    /// What the first report says.
    pub fn wait(&self) -> Result<()> {
        match &self.letter {
            Some(letter) => check(letter.wait::<Status>(1)?.first()),
            None => Ok(()),
        }
    }
}

fn check(status: Option<&Status>) -> Result<()> {
    status_error(status.copied().unwrap_or_default()).map_or(Ok(()), Err)
}
