//! Faults in values that operations find: reported at once, or later than the operations that find
//! them.

use pystachio_plan::Result;

use super::{Queue, Status, status_error};
use crate::device::Buffer;

/// Waits, and returns the result.
type Wait = Box<dyn Fn() -> Result<()> + Send>;

/// A pending check for faults of operations; see [`Queue::report_faults`].
pub struct FaultReport {
    /// Absent if no fault is possible.
    wait: Option<Wait>,
}

impl FaultReport {
    /// Nothing was found.
    pub fn none() -> Self {
        Self { wait: None }
    }

    /// A check whose result is on its way: `wait` waits for it.
    pub fn pending(wait: impl Fn() -> Result<()> + Send + 'static) -> Self {
        Self { wait: Some(Box::new(wait)) }
    }

    /// Waits.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn wait(&self) -> Result<()> {
        self.wait.as_ref().map_or(Ok(()), |wait| wait())
    }
}

/// A status word on the device: an operation's own, or the query's, which is checked later.
pub(super) struct StatusCell {
    address: u64,
    /// Absent for the query's.
    own: Option<Buffer>,
}

impl StatusCell {
    /// A status for an operation.
    pub(super) fn new(queue: &Queue) -> Result<Self> {
        if let Some(address) = queue.deferred_status()? {
            return Ok(Self { address, own: None });
        }
        let own = queue.zeros::<Status>(1)?;
        Ok(Self { address: own.address(), own: Some(own) })
    }

    /// The address for kernels.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Waits, and turns a report into an error; unless the query checks it later.
    ///
    /// # Errors
    ///
    /// The error of the first report.
    pub(super) fn check(&self, queue: &Queue) -> Result<()> {
        match &self.own {
            Some(own) => check(queue.download::<Status>(own, 1)?.first()),
            None => Ok(()),
        }
    }
}

/// A status as an error.
pub(super) fn check(status: Option<&Status>) -> Result<()> {
    status_error(status.copied().unwrap_or_default()).map_or(Ok(()), Err)
}
