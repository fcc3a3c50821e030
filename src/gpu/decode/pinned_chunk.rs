//! A resident chunk on the host, and its way back to the device.

use pystachio_files::PageList;
use pystachio_plan::Result;

use super::{
    load::{ResidentChunk, description_bytes},
    page_layout::PageLayout,
};
use crate::device::{Buffer, DeviceMemory, HostBytes, HostMemory, Lifetime, Stream};

/// A column chunk as [`ResidentChunk`] has it, in page-locked memory of the host.
pub struct PinnedChunk {
    pages: PageList,
    layouts: Vec<PageLayout>,
    /// The encoded bytes, then the decompressed ones, then the index, as far as there are any.
    content: HostBytes,
    encoded_bytes: Option<u64>,
    decompressed_bytes: Option<u64>,
    index_bytes: Option<u64>,
}

impl PinnedChunk {
    /// Copies a chunk to the host and waits for it; `None` if there is no room. No work on any
    /// stream may still use the chunk's memory.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn copy(
        chunk: &ResidentChunk,
        host: &HostMemory,
        memory: &DeviceMemory,
        stream: Stream,
    ) -> Result<Option<Self>> {
        let Some(content) = host.allocate(chunk.bytes())? else { return Ok(None) };
        let mut offset = 0;
        let copied = chunk.buffers().try_for_each(|buffer| {
            buffer.use_on(stream)?;
            let start = offset;
            offset += buffer.bytes();
            content.download(memory, start, (buffer.address(), buffer.bytes()), stream)
        });
        // Before the slabs are given back, even if a copy could not be enqueued.
        memory.platform().wait(stream)?;
        copied?;
        Ok(Some(Self {
            pages: chunk.pages.clone(),
            layouts: chunk.layouts.clone(),
            content,
            encoded_bytes: chunk.encoded.as_ref().map(Buffer::bytes),
            decompressed_bytes: chunk.decompressed.as_ref().map(Buffer::bytes),
            index_bytes: chunk.index.as_ref().map(Buffer::bytes),
        }))
    }

    /// Host memory for the descriptions of its pages.
    pub fn host_bytes(&self) -> u64 {
        description_bytes(&self.pages, &self.layouts)
    }

    /// Its page-locked memory.
    pub fn locked_bytes(&self) -> u64 {
        self.content.locked_bytes()
    }

    /// Enqueues the copy back to the device. The chunk stays on the host until the copy has
    /// happened.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn to_device(&self, memory: &DeviceMemory, stream: Stream) -> Result<ResidentChunk> {
        let mut offset = 0;
        let mut part = |bytes: Option<u64>| {
            let Some(bytes) = bytes else { return Ok(None) };
            let buffer = memory.allocate_for(Lifetime::Long, bytes, stream)?;
            self.content.upload(memory, offset, (buffer.address(), bytes), stream)?;
            offset += bytes;
            Ok(Some(buffer))
        };
        Ok(ResidentChunk {
            encoded: part(self.encoded_bytes)?,
            decompressed: part(self.decompressed_bytes)?,
            index: part(self.index_bytes)?,
            pages: self.pages.clone(),
            layouts: self.layouts.clone(),
        })
    }
}
