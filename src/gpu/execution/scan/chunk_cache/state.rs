//! What is kept where, and what goes first.
//!
//! Invariants: a chunk that is kept is on the device, on the host, on both, or on its way between them.

use std::{collections::HashMap, sync::Arc};

use pystachio_plan::{CacheEntry, MemorySpace};

use super::{ChunkKey, ChunkOrigin, Leaving};
use crate::decode::{PinnedChunk, ResidentChunk};

pub(super) enum Entry {
    /// A reader reads it from its file.
    Reading,
    Kept(Kept),
}

pub(super) struct Kept {
    pub(super) origin: ChunkOrigin,
    pub(super) device: OnDevice,
    pub(super) pinned: Option<Arc<PinnedChunk>>,
    /// The number of the last query that used it.
    pub(super) last_query: u64,
    pub(super) uses: Uses,
}

pub(super) enum OnDevice {
    Here(Arc<ResidentChunk>),
    /// Whoever moves it says where it is then.
    Moving,
    Away,
}

/// Where a chunk was found when it was used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    pub(super) device: u64,
    pub(super) pinned: u64,
    pub(super) file: u64,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) entries: HashMap<ChunkKey, Entry>,
    pub(super) device_bytes: u64,
}

impl Entry {
    /// Whether somebody is at work on it.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Reading | Self::Kept(Kept { device: OnDevice::Moving, .. }))
    }
}

impl State {
    pub(super) fn kept(&self, key: &ChunkKey) -> Option<&Kept> {
        match self.entries.get(key) {
            Some(Entry::Kept(kept)) => Some(kept),
            _ => None,
        }
    }

    /// Says that a chunk is not on the device, nor on its way, and that this is its copy on the host if it has none.
    /// Without one it is forgotten.
    pub(super) fn leave(&mut self, key: &ChunkKey, copy: Option<Arc<PinnedChunk>>) {
        let is_forgotten = match self.entries.get_mut(key) {
            Some(Entry::Kept(kept)) => {
                kept.device = OnDevice::Away;
                kept.pinned = kept.pinned.take().or(copy);
                kept.pinned.is_none()
            }
            _ => true,
        };
        if is_forgotten {
            self.entries.remove(key);
        }
    }

    /// Those on the device.
    #[cfg(test)]
    pub(super) fn device_chunks(&self) -> impl Iterator<Item = &Arc<ResidentChunk>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Kept(Kept { device: OnDevice::Here(chunk), .. }) => Some(chunk),
            _ => None,
        })
    }

    /// Bytes that [`State::take_victims`] would give.
    pub(super) fn victim_bytes(&self, bytes: u64, query: u64) -> u64 {
        self.victims(bytes, query).iter().map(|(_, bytes)| bytes).sum()
    }

    /// Takes chunks of so many bytes together off the device, or all that there are, that no query from `query` on
    /// has used; those of the oldest query first. They are moving then.
    pub(super) fn take_victims(&mut self, bytes: u64, query: u64) -> Leaving {
        let mut leaving = Leaving::new();
        for (key, chunk_bytes) in self.victims(bytes, query) {
            let Some(Entry::Kept(kept)) = self.entries.get_mut(&key) else { continue };
            if let OnDevice::Here(chunk) = std::mem::replace(&mut kept.device, OnDevice::Moving) {
                self.device_bytes -= chunk_bytes;
                leaving.push((key, chunk, kept.last_query));
            }
        }
        leaving
    }

    /// Those that nobody uses at the moment go first: only their memory is free at once.
    fn victims(&self, bytes: u64, query: u64) -> Vec<(ChunkKey, u64)> {
        if bytes == 0 {
            return Vec::new();
        }
        let mut candidates: Vec<((bool, u64), u64, ChunkKey)> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| match entry {
                Entry::Kept(Kept { device: OnDevice::Here(chunk), last_query, .. })
                    if *last_query < query =>
                {
                    Some(((Arc::strong_count(chunk) > 1, *last_query), chunk.bytes(), *key))
                }
                _ => None,
            })
            .collect();
        candidates.sort_unstable_by_key(|(rank, ..)| *rank);
        let candidates = candidates.into_iter().map(|(_, chunk_bytes, key)| (key, chunk_bytes));
        as_many(candidates, bytes)
    }

    /// Gives up copies on the host of so many bytes together, or all that there are: first those of chunks that are
    /// on the device too, then those that no query from `query` on has used, those of the oldest query first.
    pub(super) fn give_up_pinned(&mut self, bytes: u64, query: u64) -> Vec<Arc<PinnedChunk>> {
        let mut candidates: Vec<((bool, u64), u64, ChunkKey)> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| {
                let Entry::Kept(Kept { device, pinned: Some(pinned), last_query, .. }) = entry else {
                    return None;
                };
                let is_only_copy = match device {
                    OnDevice::Here(_) => false,
                    OnDevice::Moving => return None,
                    OnDevice::Away => true,
                };
                let may_go = !is_only_copy || *last_query < query;
                may_go.then(|| ((is_only_copy, *last_query), pinned.locked_bytes(), *key))
            })
            .collect();
        candidates.sort_unstable_by_key(|(rank, ..)| *rank);
        let candidates = candidates.into_iter().map(|(_, locked_bytes, key)| (key, locked_bytes));
        let mut given_up = Vec::new();
        for (key, _) in as_many(candidates, bytes) {
            let Some(Entry::Kept(kept)) = self.entries.get_mut(&key) else { continue };
            given_up.extend(kept.pinned.take());
            if matches!(kept.device, OnDevice::Away) {
                self.entries.remove(&key);
            }
        }
        given_up
    }

    /// What is held, by file, column and memory space.
    pub(super) fn cache_entries(&self) -> Vec<CacheEntry> {
        let mut columns: HashMap<(&ChunkOrigin, MemorySpace), CacheEntry> = HashMap::new();
        for entry in self.entries.values() {
            let Entry::Kept(Kept { origin, device, pinned, uses, .. }) = entry else { continue };
            let mut add = |space, memory_bytes, hits, misses| {
                let column = columns.entry((origin, space)).or_insert_with(|| CacheEntry {
                    rank: 0,
                    path: origin.path.display().to_string(),
                    column: origin.column.clone(),
                    space,
                    row_group_count: 0,
                    memory_bytes: 0,
                    hits: 0,
                    misses: 0,
                });
                column.row_group_count += 1;
                column.memory_bytes += memory_bytes;
                column.hits += hits;
                column.misses += misses;
            };
            if let OnDevice::Here(chunk) = device {
                add(MemorySpace::Device, chunk.bytes(), uses.device, uses.pinned + uses.file);
            }
            if let Some(pinned) = pinned {
                add(MemorySpace::Pinned, pinned.locked_bytes(), uses.pinned, uses.file);
            }
        }
        let mut entries: Vec<CacheEntry> = columns.into_values().collect();
        entries.sort_by(|a, b| (&a.path, &a.column, a.space).cmp(&(&b.path, &b.column, b.space)));
        entries
    }
}

/// The first candidates that have so many bytes together, or all of them.
fn as_many(candidates: impl Iterator<Item = (ChunkKey, u64)>, bytes: u64) -> Vec<(ChunkKey, u64)> {
    let mut found = 0u64;
    let needed = candidates.take_while(|(_, candidate_bytes)| {
        let is_needed = found < bytes;
        found += candidate_bytes;
        is_needed
    });
    needed.collect()
}
