//! A library that decompresses formats without a kernel, many frames at once.
//!
//! Invariants: the library's status of a frame is not sufficient. Corrupt frames may decompress to
//! any bytes, and callers check the output.

use pystachio_plan::{ActivityKind, Result};

use super::{Buffer, DeviceMemory, FrameFormat, Stream};

/// Frames of one format: addresses of arrays on the device, each with an element a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameBatch {
    /// Of all arrays.
    pub format: FrameFormat,
    /// Where the frames are (`u64`).
    pub sources: u64,
    /// Their bytes (`u64`).
    pub source_bytes: u64,
    /// Where the output goes (`u64`), at multiples of 16.
    pub targets: u64,
    /// The capacity of the output (`u64`).
    pub target_bytes: u64,
    /// Written by the library: bytes of the output (`u64`).
    pub produced_bytes: u64,
    /// Written by the library: 0 if it found no fault (`i32`).
    pub statuses: u64,
    /// How many they are.
    pub frame_count: usize,
}

/// The size of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchSize {
    /// Frames.
    pub frame_count: usize,
    /// Bytes of the largest output.
    pub target_bytes_max: u64,
    /// Bytes of all outputs.
    pub target_bytes_total: u64,
}

/// A library that decompresses on the device. Methods enqueue and return.
pub trait Decompressor: Send + Sync {
    /// The name in `pystachio.timeline`.
    fn name(&self, format: FrameFormat) -> &'static str;

    /// Device memory to decompress a batch; `None` if the library refuses such a batch.
    fn scratch_bytes(&self, format: FrameFormat, size: BatchSize, stream: Stream) -> Option<u64>;

    /// Enqueues the decompression of a batch. `scratch` has the requested bytes, aligned to 256 bytes.
    /// If the library refuses, statuses and outputs stay as they are.
    ///
    /// # Errors
    ///
    /// `Device`.
    fn decompress(&self, batch: &FrameBatch, scratch: Option<(u64, u64)>, stream: Stream) -> Result<()>;
}

impl DeviceMemory {
    /// The platform's library for formats that no kernel decompresses, if it has one and the query uses it.
    pub fn decompressor(&self) -> Option<&dyn Decompressor> {
        self.platform().decompressor().filter(|_| self.techniques().has_decompressor)
    }

    /// Enqueues the decompression of a batch. `bytes`: the bytes read and written.
    ///
    /// # Errors
    ///
    /// Errors of [`Decompressor::decompress`].
    pub fn decompress(
        &self,
        decompressor: &dyn Decompressor,
        batch: &FrameBatch,
        scratch: Option<&Buffer>,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let scratch = scratch.map(|buffer| (buffer.address(), buffer.bytes()));
        decompressor.decompress(batch, scratch, stream)?;
        self.note_enqueued(ActivityKind::Kernel, decompressor.name(batch.format), bytes, stream);
        Ok(())
    }
}
