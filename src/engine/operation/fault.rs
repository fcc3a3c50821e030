//! What kernels of operations report, as errors.

use pystachio_plan::Result;

use super::Queue;
use crate::{
    device::{Buffer, abi::Status},
    program::status_error,
};

/// A status word on the device.
pub struct StatusCell {
    buffer: Buffer,
}

impl StatusCell {
    /// A status that says that all is well.
    pub fn new(queue: &Queue) -> Result<Self> {
        Ok(Self { buffer: queue.memory().allocate_zeroed(size_of::<Status>() as u64, queue.stream())? })
    }

    /// What kernels are given.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// Waits, and turns a report into an error.
    ///
    /// # Errors
    ///
    /// What the first report says.
    pub fn check(&self, queue: &Queue) -> Result<()> {
        let status = queue.download::<Status>(&self.buffer, 1)?.first().copied().unwrap_or_default();
        status_error(status).map_or(Ok(()), Err)
    }
}
