//! Storage of a query's spilled bytes.

use std::sync::Arc;

#[cfg(test)]
use pystachio_engine::spill::SpillFile;
use pystachio_engine::spill::{Extent, QuerySpill, SpillSpace};
use pystachio_plan::Result;

use crate::{
    device::{Buffer, Claim, HostBytes, HostMemory, held_bytes},
    operation::Queue,
};

/// Room for claims, as a multiple of bytes that stay on the device.
const KEPT_ROOM: u64 = 4;
/// Bytes that are written to or read from a file at once.
const FILE_PIECE_BYTES: usize = 4 << 20;

/// The spill storage of one query. Cheap to clone.
#[derive(Clone)]
pub struct SpillStore {
    shared: Arc<SpillStoreInner>,
    /// Whether bytes stay on the device while it has room.
    keeps: bool,
}

struct SpillStoreInner {
    /// Page-locked memory, which all queries share.
    host: HostMemory,
    /// For bytes that do not fit there.
    space: Arc<SpillSpace>,
}

/// Stored bytes.
pub(super) enum Stored {
    Device(DeviceBytes),
    Host(HostBytes),
    File(Extent),
}

/// Bytes that stay on the device.
pub(super) struct DeviceBytes {
    /// Where each segment begins, and its memory.
    segments: Vec<(u64, Buffer)>,
    _claim: Claim,
}

/// Bytes to store: the first ones of a buffer.
pub(super) struct Segment {
    pub(super) buffer: Buffer,
    pub(super) bytes: u64,
}

impl SpillStore {
    /// An empty store: in page-locked memory, which all queries share, and in a file of the query.
    pub fn new(host: HostMemory, spill: QuerySpill) -> Self {
        Self { shared: Arc::new(SpillStoreInner { host, space: SpillSpace::new(spill) }), keeps: false }
    }

    /// A store whose file is open already.
    #[cfg(test)]
    pub(super) fn over(host: HostMemory, file: Arc<SpillFile>) -> Self {
        Self { shared: Arc::new(SpillStoreInner { host, space: SpillSpace::over(file) }), keeps: false }
    }

    /// The same store, where bytes stay on the device while it has room.
    pub fn keeping(&self) -> Self {
        Self { keeps: true, ..self.clone() }
    }

    /// All that ever left the device.
    pub fn written_bytes(&self) -> u64 {
        self.shared.space.written_bytes()
    }

    /// Counts the host bytes that it writes.
    pub fn space(&self) -> &Arc<SpillSpace> {
        &self.shared.space
    }

    /// Stores segments, one after another, and waits for that.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `FileAccess`, naming the directory; `SpillLimit`; faults of the device.
    pub(super) fn write(&self, queue: &Queue, segments: &[Segment]) -> Result<Stored> {
        if self.keeps
            && let Some(kept) = DeviceBytes::keep(queue, segments)?
        {
            queue.wait()?;
            return Ok(Stored::Device(kept));
        }
        let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let stored = match self.shared.host.allocate(total)? {
            Some(host) => Stored::Host(host),
            None => Stored::File(self.shared.space.file()?.extent(total)?),
        };
        let mut offset = 0;
        let copied = segments.iter().try_for_each(|segment| {
            offset += segment.bytes;
            match &stored {
                Stored::Host(host) => {
                    let source = (segment.buffer.address(), segment.bytes);
                    host.download(queue.memory(), offset - segment.bytes, source, queue.stream())
                }
                Stored::File(extent) => write_file(queue, extent, offset - segment.bytes, segment),
                Stored::Device(_) => Ok(()),
            }
        });
        // Before slabs are given back, even if a copy could not be enqueued.
        queue.wait()?;
        copied?;
        self.shared.space.note_written(total);
        Ok(stored)
    }

    /// Copies bytes of one segment to an address of the device. They stay in the store until the copy has happened.
    ///
    /// # Errors
    ///
    /// Errors of [`SpillStore::write`].
    pub(super) fn read(&self, queue: &Queue, stored: &Stored, offset: u64, target: (u64, u64)) -> Result<()> {
        let (address, target_bytes) = target;
        match stored {
            Stored::Device(kept) => kept.read(queue, offset, target),
            Stored::Host(host) => host.upload(queue.memory(), offset, target, queue.stream()),
            Stored::File(extent) => {
                let mut piece = vec![0; FILE_PIECE_BYTES.min(target_bytes as usize)];
                for first in (0..target_bytes).step_by(FILE_PIECE_BYTES) {
                    let bytes = FILE_PIECE_BYTES.min((target_bytes - first) as usize);
                    extent.read(offset + first, &mut piece[..bytes])?;
                    queue.memory().upload_to(&piece[..bytes], address + first, queue.stream())?;
                }
                Ok(())
            }
        }
    }
}

impl DeviceBytes {
    /// Keeps segments on the device if there is room for several times as much: to read rows back takes some, and so do the
    /// next chunks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    fn keep(queue: &Queue, segments: &[Segment]) -> Result<Option<Self>> {
        let Some(mut claim) = queue.memory().claim(0) else { return Ok(None) };
        let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let held = held_bytes(segments.iter().map(|segment| &segment.buffer));
        // Memory of which the segments are a small part would be kept whole.
        let is_copied = held > 2 * total;
        let bytes = if is_copied { total } else { held };
        if !claim.has_room(bytes.saturating_mul(KEPT_ROOM)) || !claim.try_resize(bytes) {
            return Ok(None);
        }
        let mut offset = 0;
        let mut kept = Vec::with_capacity(segments.len());
        for segment in segments {
            let buffer = match is_copied {
                true => {
                    let copy = queue.memory().allocate(segment.bytes, queue.stream())?;
                    queue.copy(segment.buffer.address(), copy.address(), segment.bytes)?;
                    copy
                }
                false => segment.buffer.clone(),
            };
            kept.push((offset, buffer));
            offset += segment.bytes;
        }
        Ok(Some(Self { segments: kept, _claim: claim }))
    }

    /// Copies bytes of one segment to an address and so many bytes from there.
    fn read(&self, queue: &Queue, offset: u64, (address, bytes): (u64, u64)) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // Segments without bytes begin where the next one does.
        let place = self.segments.partition_point(|(first, _)| *first <= offset);
        let (first, buffer) = &self.segments[place - 1];
        buffer.use_on(queue.stream())?;
        queue.copy(buffer.address() + (offset - first), address, bytes)
    }
}

fn write_file(queue: &Queue, extent: &Extent, offset: u64, source: &Segment) -> Result<()> {
    let address = source.buffer.address();
    for first in (0..source.bytes).step_by(FILE_PIECE_BYTES) {
        let bytes = FILE_PIECE_BYTES.min((source.bytes - first) as usize);
        let piece: Vec<u8> = queue.memory().download_from(address + first, bytes, queue.stream())?;
        extent.write(offset + first, &piece)?;
    }
    Ok(())
}
