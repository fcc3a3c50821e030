//! Where work is enqueued.

use std::sync::Arc;

use bytemuck::Pod;
use pystachio_plan::Result;

use crate::device::{Buffer, DeviceMemory, Kernel, Stream, StreamLease};

/// Blocks of a kernel whose threads stride over rows: enough to fill the largest GPU several times.
const STRIDED_BLOCKS_MAX: u64 = 4096;

/// The memory of a device and one stream on it. Cheap to clone; the last clone gives the stream back for the
/// next queue, which is ordered after all that this one enqueued.
#[derive(Clone)]
pub struct Queue {
    memory: DeviceMemory,
    lease: Arc<StreamLease>,
}

impl Queue {
    /// A queue on a stream of its own.
    ///
    /// # Errors
    ///
    /// Those of [`crate::device::Platform`].
    pub fn new(memory: &DeviceMemory) -> Result<Self> {
        Ok(Self { memory: memory.separated(), lease: Arc::new(memory.lease_stream()?) })
    }

    /// The same queue, whose faults are looked at later by [`Queue::report_faults`], if the query defers.
    pub fn with_deferred_faults(&self) -> Self {
        Self { memory: self.memory.with_deferred_faults(), lease: self.lease.clone() }
    }

    /// The device's memory.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.lease.stream()
    }

    /// Waits for all that was enqueued.
    pub fn wait(&self) -> Result<()> {
        self.memory.platform().wait(self.stream())
    }

    pub(crate) fn allocate<T>(&self, count: u64) -> Result<Buffer> {
        self.memory.allocate(count * size_of::<T>() as u64, self.stream())
    }

    pub(crate) fn allocate_filled<T>(&self, count: u64, byte: u8) -> Result<Buffer> {
        let buffer = self.allocate::<T>(count)?;
        self.memory.fill(&buffer, byte, self.stream())?;
        Ok(buffer)
    }

    pub(crate) fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer> {
        self.memory.upload(values, self.stream())
    }

    pub(crate) fn download<T: Pod>(&self, buffer: &Buffer, count: usize) -> Result<Vec<T>> {
        self.memory.download(buffer, count, self.stream())
    }

    pub(crate) fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.memory.copy(source, target, bytes, self.stream())
    }

    pub(crate) fn launch<T: Pod>(&self, kernel: Kernel, blocks: u64, arguments: &T) -> Result<()> {
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.memory.launch(kernel, grid, arguments, self.stream())
    }

    /// Runs a kernel whose threads stride over `count` rows.
    pub(crate) fn launch_strided<T: Pod>(&self, kernel: Kernel, count: u64, arguments: &T) -> Result<()> {
        let blocks = count.div_ceil(u64::from(kernel.block_threads())).min(STRIDED_BLOCKS_MAX);
        self.launch(kernel, blocks, arguments)
    }
}
