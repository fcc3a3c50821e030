//! A cached column chunk: its pages, or its rows as a segment.

use std::sync::Arc;

use pystachio_plan::Result;

use super::state::SegmentPlace;
use crate::{
    decode::{PinnedChunk, ResidentChunk},
    device::{Buffer, DeviceMemory, HostMemory, Stream},
    segment::{PinnedSegment, Segment},
};

/// A chunk on the device.
#[derive(Clone)]
pub(in crate::execution::scan) enum CachedChunk {
    /// Pages, to be decoded.
    Pages(Arc<ResidentChunk>),
    /// Rows, as the column is declared.
    Segment(Arc<Segment>),
}

/// The same in page-locked memory of the host.
pub(in crate::execution::scan) enum PinnedCopy {
    Pages(PinnedChunk),
    Segment(PinnedSegment),
}

impl CachedChunk {
    /// The pages, unless it is a segment.
    pub(in crate::execution::scan) fn pages(&self) -> Option<&Arc<ResidentChunk>> {
        match self {
            Self::Pages(chunk) => Some(chunk),
            Self::Segment(_) => None,
        }
    }

    /// The segment, unless it has pages.
    pub(in crate::execution::scan) fn segment(&self) -> Option<&Arc<Segment>> {
        match self {
            Self::Pages(_) => None,
            Self::Segment(segment) => Some(segment),
        }
    }

    /// Its device memory.
    pub(in crate::execution::scan) fn bytes(&self) -> u64 {
        match self {
            Self::Pages(chunk) => chunk.bytes(),
            Self::Segment(segment) => segment.bytes(),
        }
    }

    /// What it would take unpacked. Pages count as they are.
    pub(super) fn unpacked_bytes(&self) -> u64 {
        match self {
            Self::Pages(chunk) => chunk.bytes(),
            Self::Segment(segment) => segment.unpacked_bytes(),
        }
    }

    /// Host memory that describes it.
    pub(super) fn host_bytes(&self) -> u64 {
        match self {
            Self::Pages(chunk) => chunk.host_bytes(),
            // The second is its place among those of its leaf.
            Self::Segment(_) => (size_of::<Segment>() + size_of::<SegmentPlace>()) as u64,
        }
    }

    /// Whether others than the cache have it.
    pub(super) fn is_used(&self) -> bool {
        match self {
            Self::Pages(chunk) => Arc::strong_count(chunk) > 1,
            Self::Segment(segment) => Arc::strong_count(segment) > 1,
        }
    }

    /// Moves its memory out of the query's account, if the arena has room for memory without one.
    pub(super) fn try_detach(&self) -> bool {
        match self {
            Self::Pages(chunk) => chunk.buffers().all(Buffer::try_detach),
            Self::Segment(segment) => segment.buffer().try_detach(),
        }
    }

    /// The buffers that are free once it is dropped: the start and the bytes of each.
    pub(super) fn idle_buffers(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Pages(chunk) => chunk.idle_buffers(),
            Self::Segment(segment) => {
                let buffer = segment.buffer();
                if buffer.is_shared() { Vec::new() } else { vec![buffer.held()] }
            }
        }
    }

    /// A copy on the host, which this waits for; `None` if there is no room.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn pin(
        &self,
        host: &HostMemory,
        memory: &DeviceMemory,
        stream: Stream,
    ) -> Result<Option<PinnedCopy>> {
        Ok(match self {
            Self::Pages(chunk) => PinnedChunk::copy(chunk, host, memory, stream)?.map(PinnedCopy::Pages),
            Self::Segment(segment) => {
                PinnedSegment::copy(segment, host, memory, stream)?.map(PinnedCopy::Segment)
            }
        })
    }
}

impl PinnedCopy {
    /// Its page-locked memory.
    pub(super) fn locked_bytes(&self) -> u64 {
        match self {
            Self::Pages(chunk) => chunk.locked_bytes(),
            Self::Segment(segment) => segment.locked_bytes(),
        }
    }

    /// See [`CachedChunk::unpacked_bytes`].
    pub(super) fn unpacked_bytes(&self) -> u64 {
        match self {
            Self::Pages(chunk) => chunk.locked_bytes(),
            Self::Segment(segment) => segment.unpacked_bytes(),
        }
    }

    /// Host memory that describes it.
    pub(super) fn host_bytes(&self) -> u64 {
        match self {
            Self::Pages(chunk) => chunk.host_bytes(),
            Self::Segment(_) => size_of::<PinnedSegment>() as u64,
        }
    }

    /// Enqueues the copy back to the device. It stays on the host until the copy has happened.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(in crate::execution::scan) fn to_device(
        &self,
        memory: &DeviceMemory,
        stream: Stream,
    ) -> Result<CachedChunk> {
        Ok(match self {
            Self::Pages(chunk) => CachedChunk::Pages(Arc::new(chunk.to_device(memory, stream)?)),
            Self::Segment(segment) => CachedChunk::Segment(Arc::new(segment.to_device(memory, stream)?)),
        })
    }
}
