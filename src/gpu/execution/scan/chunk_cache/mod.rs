//! A cache of column chunks between queries: as pages, the form in which decoding starts, or as segments, which are not
//! decoded any more. They are on the device, and in page-locked host memory when they leave it.
//!
//! ```text
//! absent ──claim──► Reading ──publish──► on the device ──room is needed──► Moving ──► off the device
//!                      │ no room there      ▲                                             │
//!                      └──► Moving ──► off the device ──claim──► Moving ──publish─────────┘
//! ```
//!
//! - `contents.rs`: the two forms of a cached chunk
//! - `state.rs`: where chunks are, and the eviction order; `use_order.rs`: the order of last uses
//!
//! A reader claims the chunks of a row group. If another reader loads a chunk, the first one waits
//! for it after it has published all of its own. So readers never wait in a circle, and a chunk
//! that several scans want is read once. A chunk that returns to the device keeps its copy on the
//! host until the room is needed, so moving it to the host again costs nothing.
//!
//! The host holds some hundred bytes for each page of a chunk, which add up for small pages: the
//! oldest chunks are evicted if these descriptions exceed their limit.
//!
//! Invariants: the key of a chunk includes the identity of its file, so a changed file is never
//! served. A query does not evict chunks that it has used itself. So a table larger than the cache
//! keeps the part that it has on the device, and the rest stays on the host. A chunk that returns
//! from the host replaces only chunks whose last use is older, so that the two do not change places
//! in every query.

mod contents;
mod state;
#[cfg(test)]
mod tests;
mod use_order;

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    ops::Range,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, Weak},
    time::Duration,
};

use pystachio_engine::{
    StopFlag,
    locking::{account, lock, lock_whole},
};
use pystachio_files::FileIdentity;
use pystachio_plan::{CacheEntry, DataType, Result};

pub(super) use self::contents::{CachedChunk, PinnedCopy};
use self::state::{ChunkCacheState, ChunkEntry, OnDevice};
use crate::{
    device::{DeviceMemory, HostMemory, Reclaim, Stream, StreamLease, StreamPriority},
    segment::{Segment, TableDictionary},
};

/// How often a reader that waits for another one polls whether it is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(20);

/// A column of a row group of a file, or of a rank's rows of one: the first row, and the one behind
/// the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkKey {
    pub(super) file: FileIdentity,
    pub(super) row_group: usize,
    pub(super) leaf: usize,
    pub(super) rows: (u32, u32),
    pub(super) form: ChunkForm,
}

/// Hot queries look up thousands of keys, which a few words tell apart.
impl Hash for ChunkKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let form = match self.form {
            ChunkForm::Pages => 0,
            ChunkForm::Segment(declaration) => u64::from(declaration) + 1,
        };
        state.write_u64(self.file.word());
        state.write_u64((self.row_group as u64) << 32 ^ self.leaf as u64);
        state.write_u64(form << 32 ^ u64::from(self.rows.0));
    }
}

/// The form of a cached chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ChunkForm {
    /// Pages, which depend on the file alone.
    Pages,
    /// A segment, by the number of the column's declaration.
    Segment(u32),
}

/// The segments of a leaf of a file, by the number of the column's declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafKey {
    pub(super) file: FileIdentity,
    pub(super) leaf: usize,
    pub(super) declaration: u32,
}

impl LeafKey {
    /// The leaf of a segment.
    fn of(key: &ChunkKey) -> Option<Self> {
        match key.form {
            ChunkForm::Pages => None,
            ChunkForm::Segment(declaration) => Some(Self { file: key.file, leaf: key.leaf, declaration }),
        }
    }

    /// The segment of some rows of a row group.
    pub(super) fn chunk(&self, row_group: usize, rows: (u32, u32)) -> ChunkKey {
        let Self { file, leaf, declaration } = *self;
        ChunkKey { file, row_group, leaf, rows, form: ChunkForm::Segment(declaration) }
    }
}

impl Hash for LeafKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.file.word());
        state.write_u64(u64::from(self.declaration) << 32 ^ self.leaf as u64);
    }
}

/// A text column of a table, as it is declared: its segments share a dictionary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DictionaryKey {
    pub(super) table: String,
    pub(super) column: String,
    pub(super) declaration: u32,
}

/// The origin of a chunk, for the view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkOrigin {
    pub(super) path: PathBuf,
    pub(super) column: String,
}

/// The cache of one device. Cheap to clone.
#[derive(Clone)]
pub(in crate::execution) struct ChunkCache {
    shared: Arc<ChunkCacheInner>,
}

struct ChunkCacheInner {
    memory: DeviceMemory,
    host: HostMemory,
    state: Mutex<ChunkCacheState>,
    changed: Condvar,
    /// Of the segments that have codes.
    dictionaries: Mutex<HashMap<DictionaryKey, Weak<TableDictionary>>>,
    bytes_max: u64,
    /// The limit of host memory for descriptions of pages.
    host_bytes_max: u64,
}

/// The answer to a reader's request for a chunk.
pub(super) enum ChunkClaim {
    /// It is here.
    Held(CachedChunk),
    /// The reader must load it.
    Mine(LoadClaim),
    /// Another reader loads it, or it is moving to the host.
    Busy,
}

/// The duty to load a chunk. If dropped without [`LoadClaim::publish`], another reader may claim
/// it.
pub(super) struct LoadClaim {
    cache: ChunkCache,
    key: ChunkKey,
    /// The chunk, if it is on the host: otherwise it is read from its file.
    pinned: Option<Arc<PinnedCopy>>,
    /// It may replace chunks on the device that no query from this one on has used.
    evicts_before: u64,
    is_published: bool,
}

/// Chunks evicted from the device, with the query that used them last: to be copied to the host, or
/// dropped.
type Evicted = Vec<(ChunkKey, CachedChunk, u64)>;

impl ChunkCache {
    /// A cache of at most this many bytes of device memory and of `host`'s memory. Host
    /// descriptions of pages are limited too.
    pub(in crate::execution) fn new(
        memory: &DeviceMemory,
        host: HostMemory,
        bytes_max: u64,
        host_bytes_max: u64,
    ) -> Self {
        let shared = ChunkCacheInner {
            memory: memory.clone(),
            host,
            state: Mutex::default(),
            changed: Condvar::new(),
            dictionaries: Mutex::default(),
            bytes_max,
            host_bytes_max,
        };
        let shared = Arc::new(shared);
        let reclaim: Arc<dyn Reclaim> = shared.clone();
        memory.add_reclaimer(Arc::downgrade(&reclaim));
        Self { shared }
    }

    /// Finds a chunk that is on the device.
    pub(super) fn find(&self, key: ChunkKey, query: u64) -> Option<CachedChunk> {
        self.find_all([key], query).pop()?
    }

    /// Finds the chunks of some that are on the device.
    pub(super) fn find_all(
        &self,
        keys: impl IntoIterator<Item = ChunkKey>,
        query: u64,
    ) -> Vec<Option<CachedChunk>> {
        let mut state = self.shared.lock();
        keys.into_iter().map(|key| state.use_here(&key, query)).collect()
    }

    /// The segments of a leaf in some row groups, of each the rows that the rank has, if every chunk is here or on the host and none is moving.
    /// Of a chunk on the host there is no segment.
    pub(super) fn find_segments(
        &self,
        leaf: &LeafKey,
        row_groups: &[(usize, (u32, u32))],
        query: u64,
    ) -> Option<Vec<Weak<Segment>>> {
        let mut state = self.shared.lock();
        if let Some(all) = state.use_leaf(leaf, row_groups, query) {
            return Some(all);
        }
        let mut find = |key: ChunkKey| match state.use_here(&key, query) {
            Some(chunk) => Some(chunk.segment().map(Arc::downgrade).unwrap_or_default()),
            None => state.entry(&key).is_some_and(|entry| !entry.is_busy()).then(Weak::new),
        };
        row_groups.iter().map(|(row_group, rows)| find(leaf.chunk(*row_group, *rows))).collect()
    }

    /// Finds a chunk for a query, or gives the reader the duty to load it.
    pub(super) fn claim(&self, key: ChunkKey, query: u64) -> ChunkClaim {
        let mut state = self.shared.lock();
        // A chunk read from its file may replace every chunk that this query has not used.
        let mut evicts_before = query;
        if state.entry(&key).is_some_and(ChunkEntry::is_busy) {
            return ChunkClaim::Busy;
        }
        let found = state.change(&key, |kept| {
            let last_query = kept.last_use.query;
            kept.touch(query);
            match &kept.device {
                OnDevice::Here(chunk) => {
                    kept.uses.device += 1;
                    Ok(chunk.clone())
                }
                OnDevice::Moving | OnDevice::Away => {
                    kept.device = OnDevice::Moving;
                    Err((kept.pinned.clone(), last_query))
                }
            }
        });
        let pinned = match found {
            Some(Ok(chunk)) => return ChunkClaim::Held(chunk),
            Some(Err((pinned, last_query))) => {
                evicts_before = last_query;
                pinned
            }
            None => {
                state.begin_reading(key);
                None
            }
        };
        drop(state);
        ChunkClaim::Mine(LoadClaim { cache: self.clone(), key, pinned, evicts_before, is_published: false })
    }

    /// Whether a chunk is here or on the host, and not moving.
    pub(super) fn has(&self, key: &ChunkKey) -> bool {
        self.has_all([*key])
    }

    /// Whether all of some are.
    pub(super) fn has_all(&self, keys: impl IntoIterator<Item = ChunkKey>) -> bool {
        let state = self.shared.lock();
        keys.into_iter().all(|key| state.entry(&key).is_some_and(|entry| !entry.is_busy()))
    }

    /// Forgets a chunk, unless a reader loads or moves it.
    pub(super) fn forget(&self, key: &ChunkKey) {
        let forgotten = self.shared.lock().forget(key);
        // Without the lock: a free may wait.
        drop(forgotten);
    }

    /// The dictionary of a text column.
    pub(super) fn dictionary(&self, key: DictionaryKey, data_type: &DataType) -> Arc<TableDictionary> {
        let mut known = lock_whole(&self.shared.dictionaries);
        if let Some(dictionary) = known.get(&key).and_then(Weak::upgrade) {
            return dictionary;
        }
        known.retain(|_, dictionary| dictionary.strong_count() > 0);
        let dictionary = Arc::new(TableDictionary::new(data_type.clone()));
        known.insert(key, Arc::downgrade(&dictionary));
        dictionary
    }

    /// Waits until no reader loads a chunk.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` is set, however long the other reader takes.
    pub(super) fn wait_loaded(&self, key: &ChunkKey, stop: &StopFlag) -> Result<()> {
        let mut state = self.shared.lock();
        loop {
            stop.check()?;
            if !state.entry(key).is_some_and(ChunkEntry::is_busy) {
                return Ok(());
            }
            state = account(self.shared.changed.wait_timeout(state, WAIT_INTERVAL)).0;
        }
    }

    /// How many chunks of a leaf of a file are on the device.
    pub(in crate::execution) fn held(&self, file: &FileIdentity, leaf: usize) -> usize {
        self.shared.lock().held(file, leaf)
    }

    /// Bytes held on the device, and the most that may be.
    pub(in crate::execution) fn bytes(&self) -> (u64, u64) {
        (self.shared.lock().on_device.bytes() + self.shared.dictionary_bytes(), self.shared.bytes_max)
    }

    /// The contents, by file, column and memory space.
    pub(in crate::execution) fn entries(&self) -> Vec<CacheEntry> {
        self.shared.lock().cache_entries()
    }
}

impl ChunkCacheInner {
    fn lock(&self) -> MutexGuard<'_, ChunkCacheState> {
        lock(&self.state)
    }

    /// Bytes of the dictionaries that segments have codes of: they go with the last of these.
    fn dictionary_bytes(&self) -> u64 {
        let known = lock_whole(&self.dictionaries);
        known.values().filter_map(Weak::upgrade).map(|dictionary| dictionary.bytes()).sum()
    }

    /// Evicts chunks from the device, and moves them to the host on a stream, if there is one, as
    /// far as the host has room. Runs without the lock: copies and frees wait for the device.
    fn evict(&self, evicted: Evicted, stream: Option<Stream>) {
        for (key, chunk, last_query) in evicted {
            let is_pinned = self.lock().kept(&key).is_some_and(|kept| kept.pinned.is_some());
            let copy = match stream {
                Some(stream) if !is_pinned => self.pin(&chunk, last_query, stream),
                _ => None,
            };
            self.lock().leave(&key, copy.map(Arc::new));
            self.changed.notify_all();
            drop(chunk);
        }
    }

    /// Evicts chunks for a thread that has no stream for their copies.
    fn evict_for_others(&self, evicted: Evicted) {
        if !evicted.is_empty() {
            let lease = self.memory.lease_stream(StreamPriority::Low).ok();
            self.evict(evicted, lease.as_ref().map(StreamLease::stream));
        }
    }

    /// A copy on the host, if replacing less recently used ones makes room.
    fn pin(&self, chunk: &CachedChunk, last_query: u64, stream: Stream) -> Option<PinnedCopy> {
        if chunk.bytes() > self.host.bytes_max() {
            return None;
        }
        loop {
            // A later query reports a fault of the device.
            match chunk.pin(&self.host, &self.memory, stream).ok()? {
                Some(copy) => return Some(copy),
                None => {
                    let given_up = self.lock().give_up_pinned(chunk.bytes(), last_query);
                    if given_up.is_empty() {
                        return None;
                    }
                }
            }
        }
    }
}

impl Reclaim for ChunkCacheInner {
    /// The least recently used chunks are evicted first.
    fn reclaim(&self, bytes: u64) {
        let evicted = self.lock().take_victims(bytes, u64::MAX, true).unwrap_or_default();
        self.evict_for_others(evicted);
    }

    fn idle_buffers(&self) -> Vec<(u64, u64)> {
        self.lock().idle_buffers()
    }

    /// Chunks are evicted whole.
    fn reclaim_ranges(&self, ranges: &[Range<u64>]) {
        let evicted = self.lock().take_within(ranges);
        self.evict_for_others(evicted);
    }
}

impl LoadClaim {
    /// The chunk, if it is on the host.
    pub(super) fn pinned(&self) -> Option<&Arc<PinnedCopy>> {
        self.pinned.as_ref()
    }

    /// Puts the chunk into the cache: on the device if there is room for it, otherwise on the host.
    /// No work on any stream may still use it; a copy runs on `stream`.
    pub(super) fn publish(mut self, chunk: &CachedChunk, origin: ChunkOrigin, query: u64, stream: Stream) {
        self.is_published = true;
        let (shared, bytes) = (&self.cache.shared, chunk.bytes());
        let is_described = self.make_host_room(chunk.host_bytes());
        let stream = is_described.then_some(stream);
        let has_room = is_described && self.make_room(bytes, stream) && chunk.try_detach();
        let mut state = shared.lock();
        if state.kept(&self.key).is_none() {
            state.keep(self.key, origin, query);
        }
        // Another reader may have taken the room.
        let has_room = has_room && state.on_device.bytes() + bytes <= shared.bytes_max;
        let last_query = state.change(&self.key, |kept| {
            match self.pinned {
                Some(_) => kept.uses.pinned += 1,
                None => kept.uses.file += 1,
            }
            if has_room {
                kept.device = OnDevice::Here(chunk.clone());
            }
            kept.last_use.query
        });
        let evicted = match (has_room, last_query) {
            (false, Some(last_query)) => vec![(self.key, chunk.clone(), last_query)],
            _ => Evicted::new(),
        };
        drop(state);
        shared.changed.notify_all();
        shared.evict(evicted, stream);
    }

    /// Evicts chunks to make room for a chunk whose pages need this many bytes of descriptions.
    /// Returns whether there is room.
    fn make_host_room(&self, bytes: u64) -> bool {
        let shared = &self.cache.shared;
        let mut state = shared.lock();
        let missing = (state.host_bytes() + bytes).saturating_sub(shared.host_bytes_max);
        let forgotten = state.forget_oldest(missing, self.evicts_before);
        drop(state);
        // Without the lock: a free may wait.
        forgotten.is_some()
    }

    /// Evicts chunks from the device to make room for this many bytes. Returns whether there is
    /// room; chunks in use stay.
    fn make_room(&self, bytes: u64, stream: Option<Stream>) -> bool {
        let shared = &self.cache.shared;
        let dictionary_bytes = shared.dictionary_bytes();
        let mut state = shared.lock();
        let room = shared.bytes_max.saturating_sub(state.on_device.bytes() + dictionary_bytes);
        let room = room.min(shared.memory.cache_room());
        let missing = bytes.saturating_sub(room);
        let Some(victims) = state.take_victims(missing, self.evicts_before, false) else { return false };
        drop(state);
        shared.evict(victims, stream);
        true
    }
}

impl Drop for LoadClaim {
    fn drop(&mut self) {
        if !self.is_published {
            self.cache.shared.lock().leave(&self.key, None);
            self.cache.shared.changed.notify_all();
        }
    }
}
