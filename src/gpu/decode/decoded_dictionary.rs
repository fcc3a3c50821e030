//! A dictionary's values as cells, which stay with the chunk. Data pages that are decoded again
//! look them up, without another launch for the dictionary.
//!
//! ```text
//! one chunk        | entry 0 … | NULL |
//! several, joined  | entry 0 … of the first | entry 0 … of the second | NULL |      what codes of a column of both are of
//! ```
//!
//! Invariants: only of chunks decoded without a fault, so no entry has one. Behind the entries
//! there is one for NULL, all zeroes, as codes require.

use std::sync::atomic::{AtomicU64, Ordering};

use pystachio_engine::locking::lock_whole;
use pystachio_files::ColumnVariant;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{chunk_plan::ChunkPlan, load::ResidentChunk};
use crate::{
    device::{Buffer, Lifetime},
    operation::Queue,
};

/// Bytes reserved for an entry: a cell of 128 bits and its flag. Larger cells are decoded each
/// time.
const ENTRY_BYTES: u64 = 17;
/// The part of a chunk's own bytes that each kind of cached data beside its pages may take.
const PART_OF_CHUNK: u64 = 4;
/// And the minimum, whatever the chunk's bytes.
const KEPT_BYTES_MIN: u64 = 4096;
/// Dictionaries with more entries are not joined with others.
const JOINED_ENTRIES_MAX: u64 = 1024;
/// Limit of the number of chunks that are joined, with dictionaries of one size.
const JOINED_CHUNKS_MAX: u64 = 16;

/// The entries of one chunk, as one kind of column.
#[derive(Debug)]
pub(super) struct DecodedDictionary {
    /// Unique.
    number: u64,
    variant: ColumnVariant,
    /// Cells, the one for NULL last.
    pub(super) entries: Buffer,
    /// Their flags, if rows may be NULL.
    pub(super) flags: Option<Buffer>,
}

/// The entries of several chunks, one after another.
#[derive(Debug)]
pub(super) struct JoinedDictionaries {
    /// [`DecodedDictionary::number`] of each.
    members: Vec<u64>,
    entries: CodeEntries,
}

/// Entries that codes are of, the one for NULL last.
#[derive(Clone, Debug)]
pub(super) struct CodeEntries {
    pub(super) entries: Buffer,
    pub(super) flags: Option<Buffer>,
    /// The entry for NULL included.
    pub(super) count: usize,
}

/// A chunk's entries, and how many there are but for that for NULL.
#[derive(Clone, Copy)]
pub(super) struct DictionaryMember<'a> {
    pub(super) chunk: &'a ResidentChunk,
    pub(super) decoded: &'a DecodedDictionary,
    pub(super) entry_count: u64,
}

/// Entries of a chunk: decoded, or to be decoded.
pub(super) enum DictionaryPlace<'a> {
    /// Decoded.
    Decoded(&'a DecodedDictionary),
    /// To be decoded; they stay then.
    New(DecodedDictionary),
}

/// Limit of a chunk's so many bytes for so many entries: 0 if they would exceed it.
pub(super) fn dictionary_bytes_max(chunk_bytes: u64, entry_count: u64) -> u64 {
    part_of_chunk(chunk_bytes, (entry_count + 1) * ENTRY_BYTES)
}

/// The same for its entries together with those of other chunks.
pub(super) fn joined_bytes_max(chunk_bytes: u64, entry_count: u64) -> u64 {
    match entry_count <= JOINED_ENTRIES_MAX {
        true => part_of_chunk(chunk_bytes, (entry_count + 1) * ENTRY_BYTES * JOINED_CHUNKS_MAX),
        false => 0,
    }
}

/// `bytes` if they may stay beside a chunk's own; 0 if they are too many.
pub(super) fn part_of_chunk(chunk_bytes: u64, bytes: u64) -> u64 {
    if bytes <= KEPT_BYTES_MIN.max(chunk_bytes / PART_OF_CHUNK) { bytes } else { 0 }
}

impl<'a> DictionaryPlace<'a> {
    /// The entries of a chunk decoded without a fault; `None` if they do not stay.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn of(queue: &Queue, plan: &ChunkPlan<'a>) -> Result<Option<Self>> {
        let entry_count = plan.entry_count();
        if entry_count == 0 {
            return Ok(None);
        }
        let variant = plan.variant();
        if let Some(decoded) = plan.chunk.kept.dictionary.get() {
            if !decoded.is_as(&variant) {
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
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            Ok(DecodedDictionary { number, variant, entries, flags })
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

    /// Keeps entries with their chunk, whose decoding is enqueued. Not if another reader was
    /// faster, or if the device lacks room for memory without an account.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn keep(self, queue: &Queue, chunk: &ResidentChunk) -> Result<()> {
        let Self::New(made) = self else { return Ok(()) };
        queue.memory().publish(made.buffers(), queue.stream())?;
        if made.buffers().all(Buffer::try_detach) {
            let _ = chunk.kept.dictionary.set(made);
        }
        Ok(())
    }
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl DecodedDictionary {
    /// Whether it has the entries of such a column.
    pub(super) fn is_as(&self, variant: &ColumnVariant) -> bool {
        self.variant == *variant
    }

    /// Device memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.buffers().map(Buffer::bytes).sum()
    }

    /// Its memory.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        [&self.entries].into_iter().chain(&self.flags)
    }
}

impl CodeEntries {
    /// The entries of the chunks of one column, one after another. If they are few, they stay with
    /// the first chunk until it is decoded together with other chunks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(super) fn of(queue: &Queue, members: &[DictionaryMember<'_>], cell_bytes: u64) -> Result<Self> {
        let [first, others @ ..] = members else {
            return Err(Error::internal("codes of no dictionary"));
        };
        if others.is_empty() {
            let DecodedDictionary { entries, flags, .. } = first.decoded;
            let count = first.entry_count as usize + 1;
            return Ok(Self { entries: entries.clone(), flags: flags.clone(), count });
        }
        let numbers: Vec<u64> = members.iter().map(|member| member.decoded.number).collect();
        let kept = lock_whole(&first.chunk.kept.joined)
            .as_ref()
            .filter(|kept| kept.members == numbers)
            .map(|JoinedDictionaries { entries, .. }| entries.clone());
        if let Some(kept) = kept {
            Buffer::use_all_on(kept.buffers(), queue.stream())?;
            return Ok(kept);
        }
        let entry_count: u64 = members.iter().map(|member| member.entry_count).sum();
        let has_flags = members.iter().any(|member| member.decoded.flags.is_some());
        let bytes = (entry_count + 1) * (cell_bytes + u64::from(has_flags));
        let stays = bytes <= first.chunk.joined_bytes() && bytes <= queue.memory().cache_room();
        let lifetime = if stays { Lifetime::Long } else { Lifetime::Short };
        let allocate = |bytes: u64| queue.memory().allocate_for(lifetime, bytes, queue.stream());
        let made = Self {
            entries: allocate((entry_count + 1) * cell_bytes)?,
            flags: has_flags.then(|| allocate(entry_count + 1)).transpose()?,
            count: entry_count as usize + 1,
        };
        made.clear_null(queue, cell_bytes)?;
        let mut place = 0;
        for DictionaryMember { decoded, entry_count, .. } in members {
            let target = made.entries.address() + place * cell_bytes;
            queue.copy(decoded.entries.address(), target, entry_count * cell_bytes)?;
            match (&made.flags, &decoded.flags) {
                (Some(flags), Some(own)) => {
                    queue.copy(own.address(), flags.address() + place, *entry_count)?
                }
                (Some(flags), None) => {
                    queue.memory().fill_range(flags, place..place + entry_count, 1, queue.stream())?;
                }
                (None, _) => {}
            }
            place += entry_count;
        }
        if stays {
            queue.memory().publish(made.buffers(), queue.stream())?;
            if made.buffers().all(Buffer::try_detach) {
                let joined = JoinedDictionaries { members: numbers, entries: made.clone() };
                *lock_whole(&first.chunk.kept.joined) = Some(joined);
            }
        }
        Ok(made)
    }

    /// Sets the last entry, for NULL, to all zeroes.
    pub(super) fn clear_null(&self, queue: &Queue, cell_bytes: u64) -> Result<()> {
        let last = self.count as u64 - 1;
        let range = last * cell_bytes..(last + 1) * cell_bytes;
        queue.memory().fill_range(&self.entries, range, 0, queue.stream())?;
        match &self.flags {
            Some(flags) => queue.memory().fill_range(flags, last..last + 1, 0, queue.stream()),
            None => Ok(()),
        }
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        [&self.entries].into_iter().chain(&self.flags)
    }
}

impl JoinedDictionaries {
    /// Device memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.buffers().map(Buffer::bytes).sum()
    }

    /// Its memory.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.entries.buffers()
    }
}
