//! Upload of encoded bytes from files to the device; pages are found on the way.

use pystachio_files::PartSource;
use pystachio_files::{PageFault, PageList, PageWalk};
use pystachio_plan::Result;

use super::{
    abi::PAGE_PADDING_BYTES,
    column_chunk::ColumnSource,
    page_map::{ChunkExtent, HEADER_READ_BYTES},
};
use crate::device::{Buffer, DeviceFile, DeviceMemory, Lifetime, Stream};

/// The encoded bytes of a chunk on the device, and where its pages are in them.
pub struct UploadedChunk {
    pub(super) buffer: Buffer,
    pub(super) pages: PageList,
}

/// Where a chunk's bytes come from.
pub enum ChunkReads<'a> {
    /// The host reads them.
    Host(&'a mut dyn PartSource),
    /// The device reads them by itself, from this offset of a file on.
    Device(&'a dyn DeviceFile, u64),
}

/// A chunk on its way to the device.
pub struct ChunkUpload<'a> {
    memory: &'a DeviceMemory,
    source: &'a ColumnSource<'a>,
    extent: &'a ChunkExtent,
    stream: Stream,
    buffer: Buffer,
    walk: PageWalk,
    /// Bytes that are on the device.
    filled: u64,
}

impl<'a> ChunkUpload<'a> {
    /// Makes room for the bytes of a chunk.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `Device`.
    pub fn new(
        memory: &'a DeviceMemory,
        source: &'a ColumnSource<'a>,
        extent: &'a ChunkExtent,
        stream: Stream,
    ) -> Result<Self> {
        let buffer = allocate_padded(memory, extent.bytes(), stream)?;
        Ok(Self { memory, source, extent, stream, buffer, walk: extent.walk(), filled: 0 })
    }

    /// Brings the next of the extent's ranges to the device.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`, errors of reading, `OutOfMemory`, `Device`.
    pub fn add(&mut self, range_bytes: u64, reads: ChunkReads<'_>) -> Result<()> {
        let corrupt = |(page, reason): PageFault| self.source.names().corrupt_page(page, reason);
        let (walk, memory) = (&mut self.walk, self.memory);
        let end = self.filled + range_bytes;
        assert!(end <= self.extent.bytes(), "a chunk has more bytes than its extent");
        let target = (range_bytes, self.buffer.address() + self.filled);
        match reads {
            ChunkReads::Host(parts) => {
                memory
                    .upload_parts(target, self.stream, parts, &mut |part| walk.feed(part).map_err(corrupt))?;
            }
            ChunkReads::Device(file, offset) => {
                memory.read_file(file, offset, target, self.stream)?;
                // The host has read nothing of it, and needs the headers.
                while let Some(start) = walk.skip_body().filter(|start| (*start as u64) < end) {
                    let length = HEADER_READ_BYTES.min(end as usize - start);
                    let header =
                        memory.download_from(self.buffer.address() + start as u64, length, self.stream)?;
                    walk.feed(&header).map_err(corrupt)?;
                }
            }
        }
        self.filled = end;
        Ok(())
    }

    /// The chunk, after all ranges.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`.
    pub fn finish(self) -> Result<UploadedChunk> {
        let corrupt = |(page, reason): PageFault| self.source.names().corrupt_page(page, reason);
        let pages = self.walk.finish().and_then(|pages| self.extent.place(pages)).map_err(corrupt)?;
        Ok(UploadedChunk { buffer: self.buffer, pages })
    }
}

/// Memory for pages. Kernels load whole words, so some bytes follow.
pub(super) fn allocate_padded(memory: &DeviceMemory, bytes: u64, stream: Stream) -> Result<Buffer> {
    let buffer = memory.allocate_for(Lifetime::Long, bytes + PAGE_PADDING_BYTES, stream)?;
    memory.fill_range(&buffer, bytes..bytes + PAGE_PADDING_BYTES, 0, stream)?;
    Ok(buffer)
}
