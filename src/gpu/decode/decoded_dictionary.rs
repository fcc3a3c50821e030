//! A dictionary's values as cells, which stay with the chunk: data pages that are decoded again look them up and need no launch
//! for the dictionary.
//!
//! Invariants: only of chunks that are known to be good, so that no entry has a fault. Behind the entries there is one for NULL, all
//! zeroes, as codes want it.

use pystachio_files::ColumnVariant;
use pystachio_plan::{ErrorKind, Result};

use super::{chunk_plan::ChunkPlan, load::ResidentChunk};
use crate::{
    device::{Buffer, Lifetime},
    operation::Queue,
};

/// Bytes of an entry that are set aside: a cell of 128 bits and its flag. Larger cells are decoded each time.
const ENTRY_BYTES: u64 = 17;
/// The part of a chunk's own bytes that its dictionary may take in addition.
const PART_OF_CHUNK: u64 = 4;

/// The entries of one chunk, as one kind of column.
#[derive(Debug)]
pub(super) struct DecodedDictionary {
    variant: ColumnVariant,
    /// Cells, the one for NULL last.
    pub(super) entries: Buffer,
    /// Their flags, if rows may be NULL.
    pub(super) flags: Option<Buffer>,
}

/// Where a chunk's entries are, or are decoded into.
pub(super) enum DictionaryPlace<'a> {
    /// They are there.
    Decoded(&'a DecodedDictionary),
    /// They are about to be, and stay then.
    New(DecodedDictionary),
}

/// What a chunk of so many bytes of its own may take for so many entries: nothing where that were too much.
pub(super) fn dictionary_bytes_max(chunk_bytes: u64, entry_count: u64) -> u64 {
    let bytes = (entry_count + 1) * ENTRY_BYTES;
    if bytes <= chunk_bytes / PART_OF_CHUNK { bytes } else { 0 }
}

impl<'a> DictionaryPlace<'a> {
    /// The place of the entries of a chunk that is known to be good; `None` where they do not stay.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn of(queue: &Queue, plan: &ChunkPlan<'a>) -> Result<Option<Self>> {
        let entry_count = plan.entry_count();
        if entry_count == 0 {
            return Ok(None);
        }
        let variant = ColumnVariant::of(plan.source.column);
        if let Some(decoded) = plan.chunk.dictionary.get() {
            if decoded.variant != variant {
                return Ok(None);
            }
            Buffer::use_all_on(decoded.buffers(), queue.stream())?;
            return Ok(Some(Self::Decoded(decoded)));
        }
        let cell_bytes = u64::from(plan.conversion.cell_type.bytes());
        let row_bytes = cell_bytes + u64::from(plan.is_optional);
        let bytes = (entry_count + 1) * row_bytes;
        let memory = queue.memory();
        if bytes > plan.chunk.dictionary_bytes() || bytes > memory.cache_room() {
            return Ok(None);
        }
        let allocate = |bytes: u64| memory.allocate_for(Lifetime::Long, bytes, queue.stream());
        let made = allocate((entry_count + 1) * cell_bytes).and_then(|entries| {
            let flags = plan.is_optional.then(|| allocate(entry_count + 1)).transpose()?;
            Ok(DecodedDictionary { variant, entries, flags })
        });
        let made = match made {
            Err(error) if error.kind == ErrorKind::OutOfMemory => return Ok(None),
            made => made?,
        };
        let end = entry_count * cell_bytes;
        memory.fill_range(&made.entries, end..end + cell_bytes, 0, queue.stream())?;
        if let Some(flags) = &made.flags {
            memory.fill_range(flags, entry_count..entry_count + 1, 0, queue.stream())?;
        }
        Ok(Some(Self::New(made)))
    }

    /// The entries.
    pub(super) fn dictionary(&self) -> &DecodedDictionary {
        match self {
            Self::Decoded(decoded) => decoded,
            Self::New(made) => made,
        }
    }

    /// Lets entries stay with their chunk, whose decoding is enqueued; unless somebody else was faster, or the device has no room
    /// for what is nobody's.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn keep(self, queue: &Queue, chunk: &ResidentChunk) -> Result<()> {
        let Self::New(made) = self else { return Ok(()) };
        queue.memory().publish(made.buffers(), queue.stream())?;
        if made.buffers().all(Buffer::try_disown) {
            let _ = chunk.dictionary.set(made);
        }
        Ok(())
    }
}

impl DecodedDictionary {
    /// Device memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.buffers().map(Buffer::bytes).sum()
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        [&self.entries].into_iter().chain(&self.flags)
    }
}
