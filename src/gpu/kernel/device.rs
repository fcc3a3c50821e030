//! A device whose operations are kernels.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use bytemuck::{Pod, bytes_of};
use pystachio_engine::locking::lock_whole;
use pystachio_plan::{ActivityKind, Result};

use super::{Kernel, KernelPlatform, abi::Status, fault, traffic::bytes_moved};
use crate::{
    device::Buffer,
    operation::{Device, FaultReport, Lane},
};

/// Blocks of a kernel whose threads stride over rows: enough to fill the largest GPU several times.
const STRIDED_BLOCKS_MAX: u64 = 4096;

/// Operations by the kernels of a platform, on one lane.
pub struct KernelDevice {
    platform: Arc<dyn KernelPlatform>,
    lane: Lane,
    /// Where kernels report to whose faults are said later. It is allocated when the first one may.
    deferred_status: Mutex<Option<Buffer>>,
}

impl KernelDevice {
    /// Operations on a lane, whose memory is the platform's.
    pub fn new(platform: Arc<dyn KernelPlatform>, lane: Lane) -> Self {
        Self { platform, lane, deferred_status: Mutex::default() }
    }

    /// Runs a kernel on its argument struct, unless the query that it is for was cancelled.
    pub(crate) fn launch<T: Pod>(&self, kernel: Kernel, blocks: u64, arguments: &T) -> Result<()> {
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.launch_moving(kernel, grid, arguments, || bytes_moved(kernel, bytes_of(arguments)))
    }

    /// Runs a kernel whose threads stride over `count` rows.
    pub(crate) fn launch_strided<T: Pod>(&self, kernel: Kernel, count: u64, arguments: &T) -> Result<()> {
        let blocks = count.div_ceil(u64::from(kernel.block_threads())).min(STRIDED_BLOCKS_MAX);
        self.launch(kernel, blocks, arguments)
    }

    /// [`KernelDevice::launch`] of a kernel whose arguments do not tell what it reads and writes: `bytes` says it,
    /// an estimate as [`bytes_moved`] gives them. It is asked only if what is done is noted.
    pub(crate) fn launch_moving<T: Pod>(
        &self,
        kernel: Kernel,
        grid: u32,
        arguments: &T,
        bytes: impl FnOnce() -> u64,
    ) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        self.check_wanted()?;
        let stream = self.stream();
        self.platform.launch(kernel, grid, bytes_of(arguments), stream)?;
        if self.memory().is_watched() {
            self.memory().note_enqueued(ActivityKind::Kernel, kernel.name(), bytes(), stream);
        }
        Ok(())
    }

    /// The address of a status word that is looked at later, by [`Device::report_faults`]: what a kernel reports there
    /// comes before whatever follows from it on the stream. `None` if statuses are looked at at once.
    ///
    /// # Errors
    ///
    /// As of [`crate::device::DeviceMemory::allocate`].
    pub(super) fn deferred_status(&self) -> Result<Option<u64>> {
        if !self.defers_faults() {
            return Ok(None);
        }
        let mut status = lock_whole(&self.deferred_status);
        let buffer = match status.take() {
            Some(buffer) => buffer,
            None => self.allocate_filled::<Status>(1, 0)?,
        };
        let address = buffer.address();
        *status = Some(buffer);
        Ok(Some(address))
    }
}

impl Device for KernelDevice {
    fn lane(&self) -> &Lane {
        &self.lane
    }

    fn report_faults(&self) -> Result<FaultReport> {
        let status = lock_whole(&self.deferred_status);
        let Some(buffer) = status.as_ref() else { return Ok(FaultReport::none()) };
        let letter = self.memory().post::<Status>(buffer.address(), 1, self.stream())?;
        Ok(FaultReport::pending(move || fault::check(letter.wait::<Status>(1)?.first())))
    }
}

/// What is not an operation but memory is the lane's.
impl Deref for KernelDevice {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        &self.lane
    }
}
