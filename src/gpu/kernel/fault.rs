//! What kernels of operations report, as errors.

use pystachio_plan::Result;

use super::{KernelDevice, abi::Status};
use crate::{device::Buffer, program::status_error};

/// A status word on the device: an operation's own, or the one that a query looks at later.
pub(super) struct StatusCell {
    address: u64,
    /// Absent for the query's.
    own: Option<Buffer>,
}

impl StatusCell {
    /// A status for an operation.
    pub(super) fn new(device: &KernelDevice) -> Result<Self> {
        if let Some(address) = device.deferred_status()? {
            return Ok(Self { address, own: None });
        }
        let own = device.allocate_filled::<Status>(1, 0)?;
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
    pub(super) fn check(&self, device: &KernelDevice) -> Result<()> {
        match &self.own {
            Some(own) => check(device.download::<Status>(own, 1)?.first()),
            None => Ok(()),
        }
    }
}

/// A status as an error.
pub(super) fn check(status: Option<&Status>) -> Result<()> {
    status_error(status.copied().unwrap_or_default()).map_or(Ok(()), Err)
}
