//! Storage of a query's spilled bytes.

use std::sync::Arc;

#[cfg(test)]
use pystachio_engine::spill::SpillFile;
use pystachio_engine::spill::{Extent, QuerySpill, SpillSpace};
use pystachio_plan::Result;

use crate::{
    device::{HostBytes, HostMemory},
    operation::Queue,
};

/// Bytes that are written to or read from a file at once.
const FILE_PIECE_BYTES: usize = 4 << 20;

/// The spill storage of one query. Cheap to clone.
#[derive(Clone)]
pub struct SpillStore {
    shared: Arc<SpillStoreInner>,
}

struct SpillStoreInner {
    /// Page-locked memory, which all queries share.
    host: HostMemory,
    /// For bytes that do not fit there.
    space: Arc<SpillSpace>,
}

/// Bytes off the device.
pub(super) enum Stored {
    Host(HostBytes),
    File(Extent),
}

/// Bytes on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl SpillStore {
    /// An empty store: in page-locked memory, which all queries share, and in a file of the query.
    pub fn new(host: HostMemory, spill: QuerySpill) -> Self {
        Self { shared: Arc::new(SpillStoreInner { host, space: SpillSpace::new(spill) }) }
    }

    /// A store whose file is open already.
    #[cfg(test)]
    pub(super) fn over(host: HostMemory, file: Arc<SpillFile>) -> Self {
        Self { shared: Arc::new(SpillStoreInner { host, space: SpillSpace::over(file) }) }
    }

    /// All that was ever written.
    pub fn written_bytes(&self) -> u64 {
        self.shared.space.written_bytes()
    }

    /// Counts the host bytes that it writes.
    pub fn space(&self) -> &Arc<SpillSpace> {
        &self.shared.space
    }

    /// Copies segments off the device, one after another, and waits for that.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory; `SpillLimit`; faults of the device.
    pub(super) fn write(&self, queue: &Queue, segments: &[Segment]) -> Result<Stored> {
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
                    let source = (segment.address, segment.bytes);
                    host.download(queue.memory(), offset - segment.bytes, source, queue.stream())
                }
                Stored::File(extent) => write_file(queue, extent, offset - segment.bytes, *segment),
            }
        });
        // Before slabs are given back, even if a copy could not be enqueued.
        queue.wait()?;
        copied?;
        self.shared.space.note_written(total);
        Ok(stored)
    }

    /// Copies bytes back to the device. They stay in the store until the copy has happened.
    ///
    /// # Errors
    ///
    /// Errors of [`SpillStore::write`].
    pub(super) fn read(&self, queue: &Queue, stored: &Stored, offset: u64, target: Segment) -> Result<()> {
        match stored {
            Stored::Host(host) => {
                host.upload(queue.memory(), offset, (target.address, target.bytes), queue.stream())
            }
            Stored::File(extent) => {
                let mut piece = vec![0; FILE_PIECE_BYTES.min(target.bytes as usize)];
                for first in (0..target.bytes).step_by(FILE_PIECE_BYTES) {
                    let bytes = FILE_PIECE_BYTES.min((target.bytes - first) as usize);
                    extent.read(offset + first, &mut piece[..bytes])?;
                    queue.memory().upload_to(&piece[..bytes], target.address + first, queue.stream())?;
                }
                Ok(())
            }
        }
    }
}

fn write_file(queue: &Queue, extent: &Extent, offset: u64, source: Segment) -> Result<()> {
    for first in (0..source.bytes).step_by(FILE_PIECE_BYTES) {
        let bytes = FILE_PIECE_BYTES.min((source.bytes - first) as usize);
        let piece: Vec<u8> = queue.memory().download_from(source.address + first, bytes, queue.stream())?;
        extent.write(offset + first, &piece)?;
    }
    Ok(())
}
