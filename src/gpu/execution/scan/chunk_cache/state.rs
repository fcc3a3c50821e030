//! Where chunks are, and the eviction order.
//!
//! Invariants: a cached chunk is on the device, on the host, on both, or moving between them. A
//! chunk is in an order as long as it is not moving; only [`ChunkCacheState::change`] changes the values that
//! decide which. Its place there is its last use, or an earlier one: hot queries use thousands of chunks and
//! evict none, so a use does not move the chunk. Eviction does, before it looks at the chunk's place. For the same reason a query
//! that uses all segments of a leaf is noted once, with the leaf ([`LeafSegments`]), and not with each chunk.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Weak},
};

use pystachio_engine::HeldCounts;
use pystachio_files::FileIdentity;
use pystachio_plan::{CacheEntry, MemorySpace};

use super::{
    CachedChunk, ChunkKey, ChunkOrigin, Evicted, LeafKey, PinnedCopy,
    use_order::{LastUse, UseOrder},
};
use crate::segment::Segment;

pub(super) enum ChunkEntry {
    /// A reader reads it from its file.
    Reading,
    Kept(Kept),
}

pub(super) struct Kept {
    pub(super) origin: ChunkOrigin,
    pub(super) device: OnDevice,
    pub(super) pinned: Option<Arc<PinnedCopy>>,
    pub(super) last_use: LastUse,
    /// Its place in the orders.
    placed: LastUse,
    pub(super) uses: ChunkUses,
    /// How many uses of all segments of its leaf are counted in these.
    uses_of_leaf: u64,
}

/// The rows of a segment of a row group, and the segment.
pub(super) type SegmentPlace = Option<((u32, u32), Weak<Segment>)>;

/// The segments of a leaf that are on the device.
#[derive(Default)]
struct LeafSegments {
    /// By row group: the first segment that came.
    segments: Vec<SegmentPlace>,
    count: usize,
    /// The last query that used all of them at once, and how many did.
    last_query: u64,
    uses: u64,
}

/// An order of chunks.
#[derive(Clone, Copy)]
enum Order {
    OnDevice,
    Copies,
    OnHost,
}

pub(super) enum OnDevice {
    Here(CachedChunk),
    /// The reader that moves it sets its place afterwards.
    Moving,
    Away,
}

/// Where a chunk was found when it was used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkUses {
    pub(super) device: u64,
    pub(super) pinned: u64,
    pub(super) file: u64,
}

#[derive(Default)]
pub(super) struct ChunkCacheState {
    entries: HashMap<ChunkKey, ChunkEntry>,
    /// Chunks on the device.
    pub(super) on_device: UseOrder,
    /// Copies on the host of these.
    copies: UseOrder,
    /// Chunks on the host alone.
    on_host: UseOrder,
    /// How many chunks of each leaf of a file are on the device.
    held: HeldCounts<(FileIdentity, usize)>,
    leaves: HashMap<LeafKey, LeafSegments>,
    /// Host memory for the descriptions of the pages of all chunks that are not moving.
    host_bytes: u64,
    next_number: u64,
}

impl ChunkEntry {
    /// Whether a reader loads or moves it.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Reading | Self::Kept(Kept { device: OnDevice::Moving, .. }))
    }
}

impl Kept {
    /// Whether a query uses it on the device.
    fn is_used(&self) -> bool {
        matches!(&self.device, OnDevice::Here(chunk) if chunk.is_used())
    }

    /// Host memory for the descriptions of its pages, by its place.
    fn host_bytes(&self) -> u64 {
        let on_device = match &self.device {
            OnDevice::Here(chunk) => chunk.host_bytes(),
            OnDevice::Moving | OnDevice::Away => 0,
        };
        on_device + self.pinned.as_ref().map_or(0, |pinned| pinned.host_bytes())
    }

    /// Its last use, and how often it was used on the device, with the uses of all segments of its leaf.
    fn uses_with(&self, leaf: Option<&LeafSegments>) -> (LastUse, u64) {
        let (query, uses) = leaf.map_or((0, self.uses_of_leaf), |leaf| (leaf.last_query, leaf.uses));
        let last_use = LastUse { query: self.last_use.query.max(query), ..self.last_use };
        (last_use, self.uses.device + (uses - self.uses_of_leaf))
    }

    /// Notes that a query uses it.
    pub(super) fn touch(&mut self, query: u64) {
        self.last_use.query = self.last_use.query.max(query);
    }
}

impl LeafSegments {
    fn add(&mut self, key: &ChunkKey, segment: &Arc<Segment>) -> bool {
        if self.segments.len() <= key.row_group {
            self.segments.resize(key.row_group + 1, None);
        }
        let place = &mut self.segments[key.row_group];
        let is_free = place.is_none();
        if is_free {
            *place = Some((key.rows, Arc::downgrade(segment)));
            self.count += 1;
        }
        is_free
    }

    fn has(&self, key: &ChunkKey) -> bool {
        matches!(self.segments.get(key.row_group), Some(Some((rows, _))) if *rows == key.rows)
    }

    fn remove(&mut self, key: &ChunkKey) {
        if self.has(key) {
            self.segments[key.row_group] = None;
            self.count -= 1;
        }
    }
}

impl ChunkCacheState {
    /// All segments of a leaf that are on the device, for a query, if they are these: row groups, and the rows of each.
    pub(super) fn use_leaf(
        &mut self,
        key: &LeafKey,
        row_groups: &[(usize, (u32, u32))],
        query: u64,
    ) -> Option<Vec<Weak<Segment>>> {
        let leaf = self.leaves.get_mut(key).filter(|leaf| leaf.count == row_groups.len())?;
        let find = |(row_group, rows): &(usize, (u32, u32))| match leaf.segments.get(*row_group) {
            Some(Some((known, segment))) if known == rows => Some(segment.clone()),
            _ => None,
        };
        let found = row_groups.iter().map(find).collect::<Option<Vec<_>>>()?;
        leaf.last_query = leaf.last_query.max(query);
        leaf.uses += 1;
        Some(found)
    }

    /// The leaf of a chunk, if uses of all of its segments are uses of the chunk.
    fn leaf_of(&self, key: &ChunkKey) -> Option<&LeafSegments> {
        self.leaves.get(&LeafKey::of(key)?).filter(|leaf| leaf.has(key))
    }

    pub(super) fn entry(&self, key: &ChunkKey) -> Option<&ChunkEntry> {
        self.entries.get(key)
    }

    pub(super) fn kept(&self, key: &ChunkKey) -> Option<&Kept> {
        match self.entries.get(key) {
            Some(ChunkEntry::Kept(kept)) => Some(kept),
            _ => None,
        }
    }

    /// How many chunks of a leaf of a file are on the device.
    pub(super) fn held(&self, file: &FileIdentity, leaf: usize) -> usize {
        self.held.of(&(*file, leaf))
    }

    /// Marks a chunk that is not cached as being loaded.
    pub(super) fn begin_reading(&mut self, key: ChunkKey) {
        self.entries.insert(key, ChunkEntry::Reading);
    }

    /// Caches a chunk that was moving; [`ChunkCacheState::change`] puts it into its orders.
    pub(super) fn keep(&mut self, key: ChunkKey, origin: ChunkOrigin, query: u64) {
        let last_use = LastUse { query, number: self.next_number };
        self.next_number += 1;
        let kept = Kept {
            origin,
            device: OnDevice::Moving,
            pinned: None,
            last_use,
            placed: last_use,
            uses: ChunkUses::default(),
            uses_of_leaf: 0,
        };
        self.entries.insert(key, ChunkEntry::Kept(kept));
    }

    /// A chunk that is on the device, for a query.
    pub(super) fn use_here(&mut self, key: &ChunkKey, query: u64) -> Option<CachedChunk> {
        let Some(ChunkEntry::Kept(kept)) = self.entries.get_mut(key) else { return None };
        let OnDevice::Here(chunk) = &kept.device else { return None };
        let chunk = chunk.clone();
        kept.touch(query);
        kept.uses.device += 1;
        Some(chunk)
    }

    /// Changes a cached chunk, and its place in the orders. `None` if it is not cached.
    pub(super) fn change<T>(&mut self, key: &ChunkKey, change: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let Some(ChunkEntry::Kept(kept)) = self.entries.get_mut(key) else { return None };
        let leaf_key = LeafKey::of(key);
        let mut leaf = leaf_key.and_then(|leaf| self.leaves.get_mut(&leaf)).filter(|leaf| leaf.has(key));
        (kept.last_use, kept.uses.device) = kept.uses_with(leaf.as_deref());
        kept.uses_of_leaf = leaf.as_ref().map_or(0, |leaf| leaf.uses);
        for order in [&mut self.on_device, &mut self.copies, &mut self.on_host] {
            order.remove(kept.placed);
        }
        self.host_bytes -= kept.host_bytes();
        let was_here = matches!(kept.device, OnDevice::Here(_));
        let changed = change(kept);
        self.host_bytes += kept.host_bytes();
        kept.placed = kept.last_use;
        match (was_here, &kept.device) {
            (false, OnDevice::Here(chunk)) => {
                self.held.add((key.file, key.leaf));
                if let (Some(leaf_key), Some(segment)) = (leaf_key, chunk.segment()) {
                    let leaf = self.leaves.entry(leaf_key).or_default();
                    let is_noted = leaf.add(key, segment);
                    kept.uses_of_leaf = if is_noted { leaf.uses } else { 0 };
                }
            }
            (true, OnDevice::Moving | OnDevice::Away) => {
                self.held.take((key.file, key.leaf));
                kept.uses_of_leaf = 0;
                let is_last = leaf.as_mut().is_some_and(|leaf| {
                    leaf.remove(key);
                    leaf.count == 0
                });
                if let (true, Some(leaf_key)) = (is_last, leaf_key) {
                    self.leaves.remove(&leaf_key);
                }
            }
            _ => {}
        }
        let locked_bytes = kept.pinned.as_ref().map(|pinned| pinned.locked_bytes());
        match (&kept.device, locked_bytes) {
            (OnDevice::Here(chunk), locked_bytes) => {
                self.on_device.add(kept.placed, *key, chunk.bytes());
                if let Some(bytes) = locked_bytes {
                    self.copies.add(kept.placed, *key, bytes);
                }
            }
            (OnDevice::Away, Some(bytes)) => self.on_host.add(kept.placed, *key, bytes),
            (OnDevice::Away, None) | (OnDevice::Moving, _) => {}
        }
        Some(changed)
    }

    /// Marks a chunk as neither on the device nor moving, with its copy on the host, if any.
    /// Without one it is forgotten.
    pub(super) fn leave(&mut self, key: &ChunkKey, copy: Option<Arc<PinnedCopy>>) {
        let is_kept = self.change(key, |kept| {
            kept.device = OnDevice::Away;
            kept.pinned = kept.pinned.take().or(copy);
            kept.pinned.is_some()
        });
        if is_kept != Some(true) {
            self.entries.remove(key);
        }
    }

    /// The chunk of an order whose last use is the next behind one, and before any by a query from `query` on.
    fn next_before(
        &mut self,
        order: Order,
        last: Option<LastUse>,
        query: u64,
    ) -> Option<(LastUse, ChunkKey, u64)> {
        loop {
            let order = match order {
                Order::OnDevice => &self.on_device,
                Order::Copies => &self.copies,
                Order::OnHost => &self.on_host,
            };
            let next = order.behind(last).filter(|(place, ..)| place.query < query)?;
            let (place, key, _) = next;
            match self.kept(&key) {
                // Uses since then are later: no chunk comes to a place that was passed.
                Some(kept) if kept.uses_with(self.leaf_of(&key)).0 != place => self.change(&key, |_| ()),
                _ => return Some(next),
            };
        }
    }

    /// Chunks visited during eviction.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        [&self.on_device, &self.copies, &self.on_host].into_iter().map(|order| order.steps.get()).sum()
    }

    /// Takes chunks of this many bytes together off the device, those of the oldest query first,
    /// none of them used by a query from `query` on. They are moving then. If there are not as
    /// many, takes none, or all if `takes_fewer` is set.
    pub(super) fn take_victims(&mut self, bytes: u64, query: u64, takes_fewer: bool) -> Option<Evicted> {
        let victims = self.victims(bytes, query, takes_fewer)?;
        Some(self.take_off(victims))
    }

    /// Takes the unused chunks off the device that have an idle buffer in one of these ranges. They
    /// are moving then.
    pub(super) fn take_within(&mut self, ranges: &[Range<u64>]) -> Evicted {
        let is_within = |(start, bytes): (u64, u64)| {
            ranges.iter().any(|range| start < range.end && range.start < start + bytes)
        };
        let chosen = self.idle_chunks().filter(|(_, chunk)| chunk.idle_buffers().into_iter().any(is_within));
        let chosen = chosen.map(|(key, _)| *key).collect();
        self.take_off(chosen)
    }

    fn take_off(&mut self, chosen: Vec<ChunkKey>) -> Evicted {
        let take = |key| {
            let moved =
                |kept: &mut Kept| (std::mem::replace(&mut kept.device, OnDevice::Moving), kept.last_use);
            match self.change(&key, moved)? {
                (OnDevice::Here(chunk), last_use) => Some((key, chunk, last_use.query)),
                (OnDevice::Moving | OnDevice::Away, _) => None,
            }
        };
        chosen.into_iter().filter_map(take).collect()
    }

    /// The buffers on the device that nothing but the cache uses: the start and the bytes of each.
    pub(super) fn idle_buffers(&self) -> Vec<(u64, u64)> {
        self.idle_chunks().flat_map(|(_, chunk)| chunk.idle_buffers()).collect()
    }

    /// Chunks on the device that no query uses.
    fn idle_chunks(&self) -> impl Iterator<Item = (&ChunkKey, &CachedChunk)> {
        self.entries.iter().filter_map(|(key, entry)| match entry {
            ChunkEntry::Kept(kept) if !kept.is_used() => match &kept.device {
                OnDevice::Here(chunk) => Some((key, chunk)),
                OnDevice::Moving | OnDevice::Away => None,
            },
            _ => None,
        })
    }

    /// Unused chunks first: only their memory is free at once. The few chunks in use, which running
    /// queries hold, are skipped.
    fn victims(&mut self, bytes: u64, query: u64, takes_fewer: bool) -> Option<Vec<ChunkKey>> {
        let (mut found, mut victims, mut in_use) = (0, Vec::new(), Vec::new());
        let mut last = None;
        while found < bytes {
            let Some((place, key, chunk_bytes)) = self.next_before(Order::OnDevice, last, query) else {
                break;
            };
            last = Some(place);
            if self.kept(&key).is_some_and(Kept::is_used) {
                in_use.push((key, chunk_bytes));
            } else {
                found += chunk_bytes;
                victims.push(key);
            }
        }
        for (key, chunk_bytes) in in_use {
            if found >= bytes {
                break;
            }
            found += chunk_bytes;
            victims.push(key);
        }
        (found >= bytes || takes_fewer).then_some(victims)
    }

    /// Host memory for the descriptions of the pages of chunks.
    pub(super) fn host_bytes(&self) -> u64 {
        self.host_bytes
    }

    /// Forgets chunks, wherever they are, whose page descriptions take this many bytes together:
    /// those of the oldest query first, none of them used by a query from `query` on. `None`, with
    /// nothing forgotten, if they take less together.
    pub(super) fn forget_oldest(&mut self, bytes: u64, query: u64) -> Option<Vec<Kept>> {
        let (mut found, mut oldest) = (0, Vec::new());
        let (mut last_on_device, mut last_on_host) = (None, None);
        while found < bytes {
            let on_device = self.next_before(Order::OnDevice, last_on_device, query);
            let on_host = self.next_before(Order::OnHost, last_on_host, query);
            let is_on_host_older = match (&on_device, &on_host) {
                (Some((device_use, ..)), Some((host_use, ..))) => host_use < device_use,
                (None, Some(_)) => true,
                (_, None) => false,
            };
            let (place, key, _) = if is_on_host_older { on_host } else { on_device }?;
            let last = if is_on_host_older { &mut last_on_host } else { &mut last_on_device };
            *last = Some(place);
            let kept = self.kept(&key).filter(|kept| !kept.is_used());
            if let Some(kept) = kept {
                found += kept.host_bytes();
                oldest.push(key);
            }
        }
        Some(oldest.into_iter().filter_map(|key| self.take(&key)).collect())
    }

    /// Forgets a chunk, wherever it is, unless a reader loads or moves it.
    pub(super) fn forget(&mut self, key: &ChunkKey) -> Option<Kept> {
        if self.entry(key)?.is_busy() {
            return None;
        }
        self.take(key)
    }

    fn take(&mut self, key: &ChunkKey) -> Option<Kept> {
        // It is in no order then.
        let device = self.change(key, |kept| std::mem::replace(&mut kept.device, OnDevice::Moving))?;
        let Some(ChunkEntry::Kept(kept)) = self.entries.remove(key) else { return None };
        self.host_bytes -= kept.host_bytes();
        Some(Kept { device, ..kept })
    }

    /// Drops copies on the host of this many bytes together, or all there are: first copies of
    /// chunks that are on the device too, then those of the oldest query, none of them used by a
    /// query from `query` on.
    pub(super) fn give_up_pinned(&mut self, bytes: u64, query: u64) -> Vec<Arc<PinnedCopy>> {
        let (mut found, mut keys) = (0, Vec::new());
        for (order, query) in [(Order::Copies, u64::MAX), (Order::OnHost, query)] {
            let mut last = None;
            while found < bytes {
                let Some((place, key, locked_bytes)) = self.next_before(order, last, query) else { break };
                last = Some(place);
                found += locked_bytes;
                keys.push(key);
            }
        }
        let mut given_up = Vec::new();
        for key in keys {
            let is_away = self.change(&key, |kept| {
                given_up.extend(kept.pinned.take());
                matches!(kept.device, OnDevice::Away)
            });
            if is_away == Some(true) {
                self.entries.remove(&key);
            }
        }
        given_up
    }

    /// The contents, by file, column and memory space.
    pub(super) fn cache_entries(&self) -> Vec<CacheEntry> {
        let mut columns: HashMap<(&ChunkOrigin, MemorySpace), CacheEntry> = HashMap::new();
        for (key, entry) in &self.entries {
            let ChunkEntry::Kept(kept) = entry else { continue };
            let Kept { origin, device, pinned, uses, .. } = kept;
            let mut add = |space, (memory_bytes, unpacked_bytes), hits, misses| {
                let column = columns.entry((origin, space)).or_insert_with(|| CacheEntry {
                    rank: 0,
                    path: origin.path.display().to_string(),
                    column: origin.column.clone(),
                    space,
                    row_group_count: 0,
                    memory_bytes: 0,
                    unpacked_bytes: 0,
                    hits: 0,
                    misses: 0,
                });
                column.row_group_count += 1;
                column.memory_bytes += memory_bytes;
                column.unpacked_bytes += unpacked_bytes;
                column.hits += hits;
                column.misses += misses;
            };
            if let OnDevice::Here(chunk) = device {
                let (_, uses_here) = kept.uses_with(self.leaf_of(key));
                let bytes = (chunk.bytes(), chunk.unpacked_bytes());
                add(MemorySpace::Device, bytes, uses_here, uses.pinned + uses.file);
            }
            if let Some(pinned) = pinned {
                let bytes = (pinned.locked_bytes(), pinned.unpacked_bytes());
                add(MemorySpace::Pinned, bytes, uses.pinned, uses.file);
            }
        }
        let mut entries: Vec<CacheEntry> = columns.into_values().collect();
        entries.sort_by(|a, b| (&a.path, &a.column, a.space).cmp(&(&b.path, &b.column, b.space)));
        entries
    }
}
