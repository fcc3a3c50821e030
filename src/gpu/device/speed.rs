//! How fast a device is: a wait for it, a copy within it, and a copy to it.
//!
//! Measured once, before queries run: what else uses the device then makes it seem slower, so the best of some tries counts.

use std::time::Instant;

use pystachio_plan::Result;

use super::{DeviceMemory, StagingBuffer, Stream, StreamPriority};

/// Beyond what caches of a device hold.
const COPY_BYTES: u64 = 128 << 20;
const UPLOAD_BYTES: usize = 32 << 20;
const TRIES: usize = 5;

/// Times of a device, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSpeed {
    /// From a task on an idle stream until the host knows that it is done.
    pub wait_ns: f64,
    /// A byte that the device's memory reads or writes.
    pub memory_byte_ns: f64,
    /// A byte from page-locked memory of the host to the device.
    pub bus_byte_ns: f64,
}

impl DeviceSpeed {
    /// Measures a device. Takes some milliseconds, twice [`COPY_BYTES`] of its memory and [`UPLOAD_BYTES`] of page-locked memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn measure(memory: &DeviceMemory) -> Result<Self> {
        let lease = memory.lease_stream(StreamPriority::High)?;
        let stream = lease.stream();
        let [source, target] = [memory.allocate(COPY_BYTES, stream)?, memory.allocate(COPY_BYTES, stream)?];
        let mut staging = StagingBuffer::new(memory.platform().clone(), UPLOAD_BYTES)?;
        staging.bytes_mut().fill(1);
        memory.fill(&source, 1, stream)?;
        let wait_ns =
            least_ns(memory, stream, || memory.copy(source.address(), target.address(), 1, stream))?;
        let copy_ns =
            least_ns(memory, stream, || memory.copy(source.address(), target.address(), COPY_BYTES, stream))?;
        let upload_ns =
            least_ns(memory, stream, || staging.upload(memory, target.address(), UPLOAD_BYTES, stream))?;
        let byte_ns = |all_ns: f64, bytes: u64| (all_ns - wait_ns).max(1.0) / bytes as f64;
        Ok(Self {
            wait_ns,
            memory_byte_ns: byte_ns(copy_ns, 2 * COPY_BYTES),
            bus_byte_ns: byte_ns(upload_ns, UPLOAD_BYTES as u64),
        })
    }
}

/// The least time of a task with the wait for it.
fn least_ns(memory: &DeviceMemory, stream: Stream, task: impl Fn() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let begin = Instant::now();
        task()?;
        memory.platform().wait(stream)?;
        least = least.min(begin.elapsed().as_nanos() as f64);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::EmulatedPlatform;

    #[test]
    fn a_device_has_times_of_its_own_and_keeps_no_memory_for_them() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 512 << 20);
        let speed = DeviceSpeed::measure(&memory).unwrap();
        for time in [speed.wait_ns, speed.memory_byte_ns, speed.bus_byte_ns] {
            assert!(time > 0.0 && time.is_finite(), "{speed:?}");
        }
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn a_device_with_little_memory_is_not_measured() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 64 << 20);
        assert_eq!(DeviceSpeed::measure(&memory).unwrap_err().kind, pystachio_plan::ErrorKind::OutOfMemory);
    }
}
