//! What operations find wrong with values: at once, or later than the operations that find it.

use pystachio_plan::Result;

use super::{Queue, Status, status_error};
use crate::device::Buffer;

/// Waits, and says what was found.
type Wait = Box<dyn Fn() -> Result<()> + Send>;

/// A look at what operations have found wrong; see [`Queue::report_faults`].
pub struct FaultReport {
    /// Absent if there can be nothing.
    wait: Option<Wait>,
}

impl FaultReport {
    /// Nothing was found.
    pub fn none() -> Self {
        Self { wait: None }
    }

    /// A look whose result is on its way: `wait` waits for it.
    pub fn pending(wait: impl Fn() -> Result<()> + Send + 'static) -> Self {
        Self { wait: Some(Box::new(wait)) }
    }

    /// Waits.
    ///
    /// # Errors
    ///
    /// What was found first.
    pub fn wait(&self) -> Result<()> {
        self.wait.as_ref().map_or(Ok(()), |wait| wait())
    }
}

/// A status word on the device: an operation's own, or the one that a query looks at later.
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

    /// What kernels are given.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Waits, and turns a report into an error; unless the query looks at it later.
    ///
    /// # Errors
    ///
    /// What the first report says.
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
