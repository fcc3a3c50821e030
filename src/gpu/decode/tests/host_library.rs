//! A library for the emulated device that decompresses as the host does, or fails on purpose.

#![expect(unsafe_code, reason = "device addresses are host pointers here")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parquet::basic::{CompressionCodec, Type as PhysicalType};
use pystachio_plan::Result;

use super::{
    super::{
        frame_batches::stand_in,
        host_codec::{HostPage, PageFormat, decompress_pages},
    },
    handmade::{compressed_chunk_metadata, integer},
};
use crate::device::{BatchSize, Decompressor, FrameBatch, FrameFormat, HostThreads, Stream};

/// The fault of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LibraryFault {
    None,
    /// It reports a fault in every other frame, and writes nothing.
    FindsFaults,
    /// It reports a shorter length for every other frame, and leaves the end out.
    StopsEarly,
    /// It accepts corrupt frames, and writes anything.
    IsBlind,
    /// It refuses every batch.
    TakesNothing,
    /// It does nothing when it is called.
    DoesNothing,
}

/// A library on the host.
pub(crate) struct HostLibrary {
    fault: LibraryFault,
    /// Frames that it got, without those in place of other pages.
    frames: Arc<AtomicUsize>,
}

impl HostLibrary {
    /// A library, and its count of frames.
    pub(crate) fn new(fault: LibraryFault) -> (Self, Arc<AtomicUsize>) {
        let frames = Arc::default();
        (Self { fault, frames: Arc::clone(&frames) }, frames)
    }

    fn decompress_frame(&self, format: FrameFormat, source: &[u8], target: &mut [u8]) -> (usize, i32) {
        let number = if source == stand_in(format) { 0 } else { self.frames.fetch_add(1, Ordering::Relaxed) };
        let is_chosen = number % 2 == 1;
        match (decompress(format, source, target.len()), self.fault) {
            (Some(_), LibraryFault::FindsFaults) if is_chosen => (0, 12),
            (Some(bytes), LibraryFault::StopsEarly) if is_chosen => {
                let length = bytes.len() - 1;
                target[..length].copy_from_slice(&bytes[..length]);
                (length, 0)
            }
            (Some(bytes), _) => {
                target[..bytes.len()].copy_from_slice(&bytes);
                (bytes.len(), 0)
            }
            (None, LibraryFault::IsBlind) => {
                target.fill(7);
                (target.len(), 0)
            }
            (None, _) => (0, 12),
        }
    }
}

/// A frame's content, as the `parquet` crate has it; `None` if it is corrupt or has another length.
fn decompress(format: FrameFormat, source: &[u8], target_bytes: usize) -> Option<Vec<u8>> {
    let codec = match format {
        FrameFormat::Zstd => CompressionCodec::ZSTD,
        FrameFormat::Gzip => CompressionCodec::GZIP,
    };
    // A stand-in has one byte, wherever it is.
    let target_bytes = if source == stand_in(format) { 1 } else { target_bytes };
    let mut page = Vec::new();
    integer(&mut page, 2);
    integer(&mut page, target_bytes as u64);
    integer(&mut page, source.len() as u64);
    page.push(0x4c);
    integer(&mut page, 1);
    integer(&mut page, 0);
    page.extend([0, 0]);
    page.extend(source);
    let metadata = compressed_chunk_metadata(PhysicalType::INT32, false, page.len(), codec);
    let format = PageFormat::of(&metadata);
    let page = HostPage { format: &format, bytes: &page };
    decompress_pages(&HostThreads::of_host(), &[page]).remove(0).ok().map(|bytes| bytes.to_vec())
}

impl Decompressor for HostLibrary {
    fn name(&self, format: FrameFormat) -> &'static str {
        match format {
            FrameFormat::Zstd => "library zstd",
            FrameFormat::Gzip => "library gzip",
        }
    }

    fn scratch_bytes(&self, format: FrameFormat, size: BatchSize, _stream: Stream) -> Option<u64> {
        let needs_scratch = format == FrameFormat::Zstd;
        let bytes = if needs_scratch { 3 * size.target_bytes_total } else { 0 };
        (self.fault != LibraryFault::TakesNothing).then_some(bytes)
    }

    fn decompress(&self, batch: &FrameBatch, scratch: Option<(u64, u64)>, _stream: Stream) -> Result<()> {
        if self.fault == LibraryFault::DoesNothing {
            return Ok(());
        }
        assert_eq!(scratch.is_some(), batch.format == FrameFormat::Zstd);
        for place in 0..batch.frame_count {
            // SAFETY: the arrays have as many elements, and what they point to is live memory of this device.
            unsafe {
                let number = |array: u64| (array as *const u64).add(place).read();
                let (source, target) = (number(batch.sources), number(batch.targets));
                assert_eq!(target % 16, 0, "an output that is not aligned");
                let source =
                    std::slice::from_raw_parts(source as *const u8, number(batch.source_bytes) as usize);
                let target =
                    std::slice::from_raw_parts_mut(target as *mut u8, number(batch.target_bytes) as usize);
                let (produced, status) = self.decompress_frame(batch.format, source, target);
                (batch.produced_bytes as *mut u64).add(place).write(produced as u64);
                (batch.statuses as *mut i32).add(place).write(status);
            }
        }
        Ok(())
    }
}
