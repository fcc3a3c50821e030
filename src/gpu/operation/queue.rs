//! Where work is enqueued.

use std::{ops::Deref, sync::Arc};

use bytemuck::Pod;
use pystachio_plan::Result;

use super::Device;
use crate::device::{Buffer, Column, DeviceMemory, NullCells, Rows, Stream, StreamLease};

/// The memory of a device and one stream on it. Cheap to clone; the last clone gives the stream back for the next lane,
/// which is ordered after all that this one enqueued.
#[derive(Clone)]
pub struct Lane {
    memory: DeviceMemory,
    lease: Arc<StreamLease>,
    defers_faults: bool,
}

impl Lane {
    /// The device's memory.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.lease.stream()
    }

    /// Whether faults of values may be said later than by the operation that finds them: by
    /// [`Device::report_faults`].
    pub fn defers_faults(&self) -> bool {
        self.defers_faults
    }

    /// Whether more work is wanted. Whoever enqueues work of many steps asks before each of them, so that a cancel is heard
    /// between any two.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    pub fn check_wanted(&self) -> Result<()> {
        self.memory.stop().check()
    }

    /// Waits for all that was enqueued.
    pub fn wait(&self) -> Result<()> {
        self.memory.platform().wait(self.stream())
    }

    /// Says that what was enqueued until now is all that is written into rows: streams that use them are ordered after it. The
    /// host does not wait.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn publish(&self, rows: &Rows) -> Result<()> {
        self.memory.publish(rows.buffers(), self.stream())
    }

    pub(crate) fn allocate<T>(&self, count: u64) -> Result<Buffer> {
        self.memory.allocate(count * size_of::<T>() as u64, self.stream())
    }

    pub(crate) fn allocate_filled<T>(&self, count: u64, byte: u8) -> Result<Buffer> {
        let buffer = self.allocate::<T>(count)?;
        self.memory.fill(&buffer, byte, self.stream())?;
        Ok(buffer)
    }

    /// Says that cells of a column's NULLs were written; see [`crate::device::Platform::spoil_nulls`].
    pub(crate) fn spoil_nulls(&self, column: &Column, row_count: usize) {
        if let Some(cells) = NullCells::of(column, row_count) {
            self.memory.platform().spoil_nulls(cells, self.stream());
        }
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
}

/// A device on a lane, as operators hold it: its operations are [`Device`]'s. Cheap to clone.
#[derive(Clone)]
pub struct Queue {
    device: Arc<dyn Device>,
}

impl Queue {
    /// A queue on a stream of its own.
    ///
    /// # Errors
    ///
    /// Those of [`crate::device::Platform`].
    pub fn new(memory: &DeviceMemory) -> Result<Self> {
        let lease = Arc::new(memory.lease_stream()?);
        Ok(Self::on(Lane { memory: memory.separated(), lease, defers_faults: false }))
    }

    /// The same queue, whose faults are looked at later by [`Device::report_faults`], if the query defers.
    pub fn with_deferred_faults(&self) -> Self {
        let defers_faults = self.memory().techniques().is_deferred;
        Self::on(Lane { defers_faults, ..self.lane().clone() })
    }

    fn on(lane: Lane) -> Self {
        let platform = lane.memory.platform().clone();
        Self { device: platform.device(lane) }
    }
}

impl Deref for Queue {
    type Target = dyn Device;

    fn deref(&self) -> &dyn Device {
        self.device.as_ref()
    }
}
