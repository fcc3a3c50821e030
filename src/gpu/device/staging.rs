//! One piece of page-locked memory for copies in passing, which the host reads and writes between
//! them.
//!
//! Invariants: callers touch the bytes only while no copy from or to them is running.
#![expect(unsafe_code, reason = "page-locked memory is known by its address")]

use std::sync::Arc;

use pystachio_plan::Result;

use super::{DeviceMemory, Platform, Stream};

/// Page-locked memory of one size. Dropped while no copy from or to it is running.
pub struct StagingBuffer {
    platform: Arc<dyn Platform>,
    address: u64,
    bytes: usize,
}

impl StagingBuffer {
    /// Memory whose content has no meaning until it is written.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host lacks it, and faults of the device.
    pub fn new(platform: Arc<dyn Platform>, bytes: usize) -> Result<Self> {
        let address = platform.allocate_host(bytes)?;
        let buffer = Self { platform, address, bytes };
        // SAFETY: this owner's memory, of as many bytes, which have no meaning yet.
        unsafe { std::ptr::write_bytes(buffer.address as *mut u8, 0, bytes) };
        Ok(buffer)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this owner's memory, of as many bytes, all of which were written when it was
        // made.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: see `bytes`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }

    /// Copies device bytes to its beginning; they arrive once the stream has done so.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If they exceed its size.
    pub fn download(&self, memory: &DeviceMemory, source: u64, bytes: usize, stream: Stream) -> Result<()> {
        assert!(bytes <= self.bytes, "bytes of a staging buffer");
        memory.download_pinned(source, self.address, bytes, stream)
    }

    /// Copies bytes from its beginning to the device. They must stay until the stream has done so.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    pub fn upload(&self, memory: &DeviceMemory, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        assert!(bytes <= self.bytes, "bytes of a staging buffer");
        memory.upload_pinned(self.address, target, bytes, stream)
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        self.platform.release_host(self.address, self.bytes);
    }
}
