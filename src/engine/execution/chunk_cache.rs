//! Column chunks that stay on the device between queries, in the form in which decoding starts.
//!
//! ```text
//! absent ──claim──► Loading ──publish──► Held ──evict──► absent
//!                      └──dropped────────────────────────►┘
//! ```
//!
//! A reader claims the chunks of a row group; what another one is loading it waits for, when it has published
//! all that it loads itself: so readers never wait in a circle, and a chunk that several scans want at once is
//! read once.
//!
//! Invariants: a chunk belongs to the identity of its file, so a changed file is never served. Chunks that the
//! same query has used are not evicted for it: a table that is larger than the cache keeps the part that it
//! has there, instead of driving itself out.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pystachio_plan::CacheEntry;

use crate::{
    decode::ResidentChunk,
    device::{Buffer, DeviceMemory, Reclaim},
    storage::FileIdentity,
};

/// How often a reader that waits for another one looks whether it is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(20);

/// A column of a row group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkKey {
    pub(super) file: FileIdentity,
    pub(super) row_group: usize,
    pub(super) leaf: usize,
}

/// Where a chunk is from, for the view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkOrigin {
    pub(super) path: PathBuf,
    pub(super) column: String,
}

enum Entry {
    Loading,
    Held(Held),
}

struct Held {
    chunk: Arc<ResidentChunk>,
    origin: ChunkOrigin,
    bytes: u64,
    /// The number of the last query that used it.
    last_query: u64,
    hits: u64,
}

#[derive(Default)]
struct State {
    entries: HashMap<ChunkKey, Entry>,
    held_bytes: u64,
}

/// The cache of one device. Cheap to clone.
#[derive(Clone)]
pub(super) struct ChunkCache {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: u64,
}

/// What a reader is told of a chunk.
pub(super) enum Claim {
    /// It is here.
    Held(Arc<ResidentChunk>),
    /// The reader must load it.
    Mine(LoadClaim),
    /// Another reader loads it.
    Busy,
}

/// The duty to load a chunk. Dropped without [`LoadClaim::publish`], others may claim it.
pub(super) struct LoadClaim {
    cache: ChunkCache,
    key: ChunkKey,
    is_published: bool,
}

impl ChunkCache {
    /// A cache of at most so many bytes of device memory.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), bytes_max }) }
    }

    /// Finds a chunk for a query, or gives the reader the duty to load it.
    pub(super) fn claim(&self, key: ChunkKey, query: u64) -> Claim {
        let mut state = self.lock();
        match state.entries.get_mut(&key) {
            Some(Entry::Held(held)) => {
                held.last_query = held.last_query.max(query);
                held.hits += 1;
                Claim::Held(held.chunk.clone())
            }
            Some(Entry::Loading) => Claim::Busy,
            None => {
                state.entries.insert(key, Entry::Loading);
                drop(state);
                Claim::Mine(LoadClaim { cache: self.clone(), key, is_published: false })
            }
        }
    }

    /// Waits until nobody loads a chunk, or for a moment.
    pub(super) fn wait_loaded(&self, key: &ChunkKey) {
        let state = self.lock();
        if matches!(state.entries.get(key), Some(Entry::Loading)) {
            let waited = self.shared.changed.wait_timeout(state, WAIT_INTERVAL);
            drop(waited);
        }
    }

    /// Says that the cache gives memory back when queries need it.
    pub(super) fn give_way(&self, memory: &DeviceMemory) {
        let shared: Arc<dyn Reclaim> = self.shared.clone();
        memory.add_reclaimer(Arc::downgrade(&shared));
    }

    /// Bytes held, and the most that may be.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.lock().held_bytes, self.shared.bytes_max)
    }

    /// What is held, by file and column.
    pub(super) fn entries(&self) -> Vec<CacheEntry> {
        let state = self.lock();
        let mut columns: HashMap<&ChunkOrigin, CacheEntry> = HashMap::new();
        for entry in state.entries.values() {
            let Entry::Held(held) = entry else { continue };
            let column = columns.entry(&held.origin).or_insert_with(|| CacheEntry {
                path: held.origin.path.display().to_string(),
                column: held.origin.column.clone(),
                row_group_count: 0,
                memory_bytes: 0,
                hits: 0,
            });
            column.row_group_count += 1;
            column.memory_bytes += held.bytes;
            column.hits += held.hits;
        }
        let mut entries: Vec<CacheEntry> = columns.into_values().collect();
        entries.sort_by(|a, b| (&a.path, &a.column).cmp(&(&b.path, &b.column)));
        entries
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reclaim for Shared {
    /// Chunks that were not used for long go first.
    fn reclaim(&self, bytes: u64) {
        let mut state = self.lock();
        let victims = victims(&state, bytes, u64::MAX);
        let evicted: Vec<Held> = victims.iter().filter_map(|key| remove(&mut state, key)).collect();
        drop(state);
        // Freeing waits for the device: without the lock.
        drop(evicted);
    }
}

impl LoadClaim {
    /// Puts the chunk into the cache, if there is room for it. Nothing is left to do for it on any stream.
    pub(super) fn publish(mut self, chunk: &Arc<ResidentChunk>, origin: ChunkOrigin, query: u64) {
        self.is_published = true;
        let bytes = chunk.bytes();
        let mut state = self.cache.lock();
        let room = self.cache.shared.bytes_max.saturating_sub(state.held_bytes);
        let victims = victims(&state, bytes.saturating_sub(room), query);
        let freed: u64 = victims.iter().filter_map(|key| held(&state, key)).map(|held| held.bytes).sum();
        let has_room = room + freed >= bytes && chunk.buffers().all(Buffer::try_share);
        let evicted = if has_room {
            let evicted = victims.iter().filter_map(|key| remove(&mut state, key)).collect();
            let held = Held { chunk: chunk.clone(), origin, bytes, last_query: query, hits: 0 };
            state.held_bytes += bytes;
            state.entries.insert(self.key, Entry::Held(held));
            evicted
        } else {
            state.entries.remove(&self.key);
            Vec::new()
        };
        drop(state);
        self.cache.shared.changed.notify_all();
        // Freeing waits for the device: without the lock.
        drop::<Vec<Held>>(evicted);
    }
}

impl Drop for LoadClaim {
    fn drop(&mut self) {
        if !self.is_published {
            self.cache.lock().entries.remove(&self.key);
            self.cache.shared.changed.notify_all();
        }
    }
}

fn held<'a>(state: &'a State, key: &ChunkKey) -> Option<&'a Held> {
    match state.entries.get(key) {
        Some(Entry::Held(held)) => Some(held),
        _ => None,
    }
}

fn remove(state: &mut State, key: &ChunkKey) -> Option<Held> {
    held(state, key)?;
    match state.entries.remove(key) {
        Some(Entry::Held(held)) => {
            state.held_bytes -= held.bytes;
            Some(held)
        }
        _ => None,
    }
}

/// Chunks of so many bytes together, or of all that there are, that no query from `query` on has used; those of
/// the oldest query first.
fn victims(state: &State, bytes: u64, query: u64) -> Vec<ChunkKey> {
    if bytes == 0 {
        return Vec::new();
    }
    let mut candidates: Vec<(u64, u64, ChunkKey)> = state
        .entries
        .iter()
        .filter_map(|(key, entry)| match entry {
            Entry::Held(held) if held.last_query < query => Some((held.last_query, held.bytes, *key)),
            _ => None,
        })
        .collect();
    candidates.sort_unstable_by_key(|(last_query, ..)| *last_query);
    let mut found = 0;
    let needed = candidates.iter().take_while(|(_, bytes_held, _)| {
        let is_needed = found < bytes;
        found += bytes_held;
        is_needed
    });
    needed.map(|(.., key)| *key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(row_group: usize) -> ChunkKey {
        let file = FileIdentity { device: 1, inode: 2, file_bytes: 3, modified_ns: 4 };
        ChunkKey { file, row_group, leaf: 0 }
    }

    fn chunk(bytes: u64) -> Arc<ResidentChunk> {
        Arc::new(ResidentChunk::for_tests(bytes))
    }

    fn origin() -> ChunkOrigin {
        ChunkOrigin { path: PathBuf::from("/f.parquet"), column: "a".to_owned() }
    }

    fn load(cache: &ChunkCache, row_group: usize, bytes: u64, query: u64) {
        let Claim::Mine(claim) = cache.claim(key(row_group), query) else { panic!("not to be loaded") };
        claim.publish(&chunk(bytes), origin(), query);
    }

    fn holds(cache: &ChunkCache, row_group: usize, query: u64) -> bool {
        matches!(cache.claim(key(row_group), query), Claim::Held(_))
    }

    #[test]
    fn a_chunk_is_loaded_by_one_reader_at_a_time() {
        let cache = ChunkCache::new(100);
        let claim = cache.claim(key(0), 1);
        assert!(matches!(cache.claim(key(0), 1), Claim::Busy));
        drop(claim);
        assert!(matches!(cache.claim(key(0), 1), Claim::Mine(_)), "a reader that failed leaves it to others");
        load(&cache, 0, 10, 1);
        assert!(holds(&cache, 0, 1));
    }

    #[test]
    fn chunks_of_older_queries_give_way() {
        let cache = ChunkCache::new(100);
        load(&cache, 0, 60, 1);
        load(&cache, 1, 40, 2);
        load(&cache, 2, 50, 3);
        assert!(!holds(&cache, 0, 3) && holds(&cache, 1, 3) && holds(&cache, 2, 3));
        assert_eq!(cache.bytes(), (90, 100));
    }

    #[test]
    fn a_query_does_not_drive_its_own_chunks_out() {
        let cache = ChunkCache::new(100);
        (0..5).for_each(|row_group| load(&cache, row_group, 40, 7));
        assert!(holds(&cache, 0, 7) && holds(&cache, 1, 7) && !holds(&cache, 2, 7));
    }

    #[test]
    fn memory_that_is_asked_for_comes_back() {
        let cache = ChunkCache::new(100);
        load(&cache, 0, 30, 1);
        load(&cache, 1, 30, 2);
        cache.shared.reclaim(10);
        assert!(!holds(&cache, 0, 3) && holds(&cache, 1, 3));
        cache.shared.reclaim(u64::MAX);
        assert_eq!(cache.bytes().0, 0);
    }

    #[test]
    fn the_view_sums_row_groups_of_a_column() {
        let cache = ChunkCache::new(100);
        load(&cache, 0, 30, 1);
        load(&cache, 1, 20, 1);
        assert!(holds(&cache, 1, 2));
        let entries = cache.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].row_group_count, entries[0].memory_bytes, entries[0].hits), (2, 50, 1));
    }
}
