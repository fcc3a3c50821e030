//! One piece of page-locked memory that copies go through, and that the host reads and writes between them.
//!
//! Invariants: whoever asks for the bytes has seen that no copy from or to them is under way.
#![expect(unsafe_code, reason = "page-locked memory is known by its address")]

use std::sync::Arc;

use pystachio_plan::Result;

use super::{DeviceMemory, Platform, Stream};

/// Page-locked memory of one size. Dropped when no copy from or to it is under way.
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
    /// `OutOfMemory` if the host has not enough of it, and faults of the device.
    pub fn new(platform: Arc<dyn Platform>, bytes: usize) -> Result<Self> {
        let address = platform.allocate_host(bytes)?;
        let buffer = Self { platform, address, bytes };
        // SAFETY: the memory is this owner's, for as many bytes; what is there is no value before this.
        unsafe { std::ptr::write_bytes(buffer.address as *mut u8, 0, bytes) };
        Ok(buffer)
    }

    /// What is there.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is this owner's, for as many bytes, all of which were written when it was made.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    /// What is there, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as of `bytes`, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }

    /// Copies device bytes to its beginning; they are there once the stream has done so.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If there is not room for them.
    pub fn download(&self, memory: &DeviceMemory, source: u64, bytes: usize, stream: Stream) -> Result<()> {
        assert!(bytes <= self.bytes, "bytes of a staging buffer");
        memory.download_pinned(source, self.address, bytes, stream)
    }

    /// Copies bytes from its beginning to the device. They stay as they are until the stream has done so.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If there are not as many.
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
