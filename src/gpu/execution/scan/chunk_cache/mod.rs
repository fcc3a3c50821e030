//! Column chunks that stay between queries, in the form in which decoding starts: on the device, and in page-locked
//! memory of the host when they leave it.
//!
//! ```text
//! absent ──claim──► Reading ──publish──► on the device ──room is needed──► Moving ──► off the device
//!                      │ no room there      ▲                                             │
//!                      └──► Moving ──► off the device ──claim──► Moving ──publish─────────┘
//! ```
//!
//! - `state.rs`: what is kept where, and what goes first; `use_order.rs`: the order of last uses
//!
//! A reader claims the chunks of a row group; what another one is loading it waits for, when it has published
//! all that it loads itself: so readers never wait in a circle, and a chunk that several scans want at once is
//! read once. A chunk that comes back to the device keeps its copy on the host until the room is needed, so leaving
//! again costs nothing.
//!
//! Pages are described on the host, some hundred bytes each, which small pages make many: the oldest chunks are forgotten where these are too
//! much.
//!
//! Invariants: a chunk belongs to the identity of its file, so a changed file is never served. Chunks that the
//! same query has used are not evicted for it: a table that is larger than the cache keeps the part that it
//! has there, instead of driving itself out, and the rest of it is kept on the host. What comes back from the host
//! takes the place of what was used less recently only, so that the two do not change places in every query.

mod state;
#[cfg(test)]
mod tests;
mod use_order;

use std::{
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use pystachio_engine::{
    StopFlag,
    locking::{account, lock},
};
use pystachio_files::FileIdentity;
use pystachio_plan::{CacheEntry, Result};

use self::state::{ChunkCacheState, ChunkEntry, OnDevice};
use crate::{
    decode::{PinnedChunk, ResidentChunk},
    device::{Buffer, DeviceMemory, HostMemory, Reclaim, Stream, StreamLease, StreamPriority},
};

/// How often a reader that waits for another one looks whether it is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(20);

/// A column of a row group of a file, or of the rows of one that a rank has: the first, and the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkKey {
    pub(super) file: FileIdentity,
    pub(super) row_group: usize,
    pub(super) leaf: usize,
    pub(super) rows: (u32, u32),
}

/// Where a chunk is from, for the view.
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
    bytes_max: u64,
    /// The most that the host may keep to describe the pages of chunks.
    host_bytes_max: u64,
}

/// What a reader is told of a chunk.
pub(super) enum ChunkClaim {
    /// It is here.
    Held(Arc<ResidentChunk>),
    /// The reader must load it.
    Mine(LoadClaim),
    /// Another reader loads it, or it is on its way to the host.
    Busy,
}

/// The duty to load a chunk. Dropped without [`LoadClaim::publish`], others may claim it.
pub(super) struct LoadClaim {
    cache: ChunkCache,
    key: ChunkKey,
    /// The chunk, if it is on the host: otherwise it is read from its file.
    pinned: Option<Arc<PinnedChunk>>,
    /// Chunks on the device give way to it that no query from this one on has used.
    evicts_before: u64,
    is_published: bool,
}

/// Chunks that were on the device, with the query that used them last: to be copied to the host, or given up.
type Evicted = Vec<(ChunkKey, Arc<ResidentChunk>, u64)>;

impl ChunkCache {
    /// A cache of at most so many bytes of device memory, and of what `host` has, whose chunks' pages take at most so much of the host's
    /// memory to describe.
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
            bytes_max,
            host_bytes_max,
        };
        let shared = Arc::new(shared);
        let reclaim: Arc<dyn Reclaim> = shared.clone();
        memory.add_reclaimer(Arc::downgrade(&reclaim));
        Self { shared }
    }

    /// Finds a chunk that is on the device.
    pub(super) fn find(&self, key: ChunkKey, query: u64) -> Option<Arc<ResidentChunk>> {
        let mut state = self.shared.lock();
        state.change(&key, |kept| {
            let OnDevice::Here(chunk) = &kept.device else { return None };
            let found = chunk.clone();
            kept.touch(query);
            kept.uses.device += 1;
            Some(found)
        })?
    }

    /// Finds a chunk for a query, or gives the reader the duty to load it.
    pub(super) fn claim(&self, key: ChunkKey, query: u64) -> ChunkClaim {
        let mut state = self.shared.lock();
        // What is read from its file may take the place of all that this query has not used.
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

    /// Waits until no reader loads a chunk.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` says so, however long the other reader takes.
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

    /// Bytes held on the device, and the most that may be.
    pub(in crate::execution) fn bytes(&self) -> (u64, u64) {
        (self.shared.lock().on_device.bytes(), self.shared.bytes_max)
    }

    /// Of the bytes that are held on the device, those that are set aside for what chunks may come to take.
    #[cfg(test)]
    pub(in crate::execution) fn unused_bytes(&self) -> u64 {
        self.shared.lock().device_chunks().map(|chunk| chunk.unused_bytes()).sum()
    }

    /// What is held, by file, column and memory space.
    pub(in crate::execution) fn entries(&self) -> Vec<CacheEntry> {
        self.shared.lock().cache_entries()
    }
}

impl ChunkCacheInner {
    fn lock(&self) -> MutexGuard<'_, ChunkCacheState> {
        lock(&self.state)
    }

    /// Gives chunks up on the device, and moves them to the host on a stream, if there is one, as far as there is room
    /// for them. Without the lock: copies and freeing wait for the device.
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

    /// A copy on the host, if there is room among what was used less recently.
    fn pin(&self, chunk: &ResidentChunk, last_query: u64, stream: Stream) -> Option<PinnedChunk> {
        if chunk.bytes() > self.host.bytes_max() {
            return None;
        }
        loop {
            // A fault of the device is the query's to find.
            match PinnedChunk::copy(chunk, &self.host, &self.memory, stream).ok()? {
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
    /// Chunks that were not used for long go first.
    fn reclaim(&self, bytes: u64) {
        let evicted = self.lock().take_victims(bytes, u64::MAX, true).unwrap_or_default();
        if !evicted.is_empty() {
            let lease = self.memory.lease_stream(StreamPriority::Low).ok();
            self.evict(evicted, lease.as_ref().map(StreamLease::stream));
        }
    }
}

impl LoadClaim {
    /// The chunk, if it is on the host.
    pub(super) fn pinned(&self) -> Option<&Arc<PinnedChunk>> {
        self.pinned.as_ref()
    }

    /// Puts the chunk into the cache: on the device if there is room for it, otherwise on the host. Nothing is left
    /// to do for it on any stream; a copy is made on `stream`.
    pub(super) fn publish(
        mut self,
        chunk: &Arc<ResidentChunk>,
        origin: ChunkOrigin,
        query: u64,
        stream: Stream,
    ) {
        self.is_published = true;
        let (shared, bytes) = (&self.cache.shared, chunk.bytes());
        let is_described = self.make_host_room(chunk.host_bytes());
        let stream = is_described.then_some(stream);
        let has_room =
            is_described && self.make_room(bytes, stream) && chunk.buffers().all(Buffer::try_detach);
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

    /// Makes chunks give way to one whose pages take so many bytes of the host's memory to describe; says whether there is room then.
    fn make_host_room(&self, bytes: u64) -> bool {
        let shared = &self.cache.shared;
        let mut state = shared.lock();
        let missing = (state.host_bytes() + bytes).saturating_sub(shared.host_bytes_max);
        let forgotten = state.forget_oldest(missing, self.evicts_before);
        drop(state);
        // Without the lock: freeing may wait.
        forgotten.is_some()
    }

    /// Makes chunks on the device give way to one of so many bytes; says whether there is room then, as far as these are
    /// not in use.
    fn make_room(&self, bytes: u64, stream: Option<Stream>) -> bool {
        let shared = &self.cache.shared;
        let mut state = shared.lock();
        let room = shared.bytes_max.saturating_sub(state.on_device.bytes()).min(shared.memory.cache_room());
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
