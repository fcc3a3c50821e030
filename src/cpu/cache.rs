//! The column cache: decoded columns of row groups, kept between queries.
//!
//! Invariants: an entry is found only by the identity of the file it was read from, so a changed file
//! never meets old data. What is held is at most `bytes_max`, counted by unique Arrow buffers. Entries
//! are immutable and shared; evicting one does not disturb a query that reads it. A chunk's memory is
//! reserved in the engine's pool once, by the scan that decodes it, for as long as anyone holds the chunk;
//! queries that need memory get that of chunks that only the cache holds. A scan evicts no chunk that was used since it began.
//! So of a table larger than the cache the first row groups stay. If its last ones stayed, the next scan of it would evict each
//! before it came to it.
//!
//! Deliberately absent: decoding, which `scan` does; two scans that miss the same column both decode it,
//! and one result is kept.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use crate::datafusion::{error::Result as DataFusionResult, execution::memory_pool::MemoryReservation};
use arrow::array::{Array, ArrayData, ArrayRef};
use pystachio_plan::{CacheEntry, MemorySpace};

use pystachio_engine::{HeldCounts, Tally, locking::lock};
use pystachio_files::{ColumnVariant, FieldPlace, FileIdentity};

use crate::scan::Zones;

/// Row groups of which it is known how much was read of them.
const ROW_GROUPS_MAX: usize = 4096;

/// One column of one row group, as one kind of scan column reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkKey {
    pub(crate) identity: FileIdentity,
    pub(crate) row_group: usize,
    /// The field of the file.
    pub(crate) column: FieldPlace,
    pub(crate) variant: Arc<ColumnVariant>,
}

/// A column of a row group.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Arrays that all columns of the row group cut at the same rows.
    pub(crate) pieces: Vec<ArrayRef>,
    /// Bounds of its parts, once they were asked for. They take some hundred bytes.
    zones: OnceLock<Option<Zones>>,
    /// The memory of the arrays.
    reservation: MemoryReservation,
}

/// Where a chunk comes from, for `pystachio.cache`.
#[derive(Clone, Debug)]
pub(crate) struct ChunkSource {
    pub(crate) path: Arc<Path>,
    pub(crate) column: Arc<str>,
}

/// The cache. Shared by all queries of an engine.
#[derive(Debug)]
pub(crate) struct ColumnCache {
    bytes_max: usize,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    entries: HashMap<ChunkKey, Entry>,
    /// Keys by last use, least recent first.
    by_use: BTreeMap<u64, ChunkKey>,
    identities: HashMap<PathBuf, FileIdentity>,
    clock: u64,
    used_bytes: Tally,
    /// How many row groups' chunks of each column of a file are held.
    held: HeldCounts<(FileIdentity, usize)>,
    /// Rows that were read of row groups without being kept.
    rows_read: HashMap<(FileIdentity, usize), usize>,
}

#[derive(Debug)]
struct Entry {
    chunk: Arc<Chunk>,
    source: ChunkSource,
    last_use: u64,
    hits: u64,
}

/// A column that is being decoded.
pub(crate) struct ChunkBuilder {
    pieces: Vec<ArrayRef>,
    /// Buffers that are counted.
    seen: HashSet<usize>,
    reservation: MemoryReservation,
}

impl ChunkBuilder {
    /// A column without rows. Its memory is taken out of `reservation`, which is empty.
    pub(crate) fn new(reservation: MemoryReservation) -> Self {
        Self { pieces: Vec::new(), seen: HashSet::new(), reservation }
    }

    /// Rows of the last piece.
    pub(crate) fn last_rows(&self) -> Option<usize> {
        self.pieces.last().map(|piece| piece.len())
    }

    /// Adds rows.
    ///
    /// # Errors
    ///
    /// The pool's, if there is no memory for what they have of their own.
    pub(crate) fn push(&mut self, piece: ArrayRef) -> DataFusionResult<()> {
        let bytes = data_bytes(&piece.to_data(), &mut self.seen) + size_of::<ArrayData>();
        self.reservation.try_grow(bytes)?;
        self.pieces.push(piece);
        Ok(())
    }

    /// The whole column.
    pub(crate) fn finish(self) -> Chunk {
        Chunk { pieces: self.pieces, zones: OnceLock::new(), reservation: self.reservation }
    }
}

impl Chunk {
    /// Bounds of its parts, if its values have any.
    pub(crate) fn zones(&self) -> Option<&Zones> {
        self.zones.get_or_init(|| Zones::of(&self.pieces)).as_ref()
    }

    fn memory_bytes(&self) -> usize {
        self.reservation.size()
    }
}

impl ColumnCache {
    /// An empty cache. With `bytes_max` 0 it stays empty.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.bytes_max > 0
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.lock().used_bytes.get()
    }

    /// Whether a chunk is held.
    pub(crate) fn has(&self, key: &ChunkKey) -> bool {
        self.lock().entries.contains_key(key)
    }

    /// Of how many row groups of a file a column is held.
    pub(crate) fn held(&self, identity: FileIdentity, column: usize) -> usize {
        self.lock().held.of(&(identity, column))
    }

    /// Notes that some rows of a row group are about to be read. Whether with them more rows were read, one time with another, than
    /// it has: decoding and keeping all of it would have cost no more.
    pub(crate) fn is_read_often(
        &self,
        (identity, row_group): (FileIdentity, usize),
        (rows, row_count): (usize, usize),
    ) -> bool {
        let mut state = self.lock();
        if state.rows_read.len() >= ROW_GROUPS_MAX {
            state.rows_read.clear();
        }
        let read = state.rows_read.entry((identity, row_group)).or_default();
        *read = read.saturating_add(rows);
        *read > row_count
    }

    /// The chunk, if it is held; this counts as a use.
    pub(crate) fn get(&self, key: &ChunkKey) -> Option<Arc<Chunk>> {
        let mut state = self.lock();
        let state = &mut *state;
        let entry = state.entries.get_mut(key)?;
        state.clock += 1;
        if let Some(key) = state.by_use.remove(&entry.last_use) {
            state.by_use.insert(state.clock, key);
        }
        entry.last_use = state.clock;
        entry.hits += 1;
        Some(entry.chunk.clone())
    }

    /// The number of the last use, by which a scan knows later what was used since.
    pub(crate) fn last_use(&self) -> u64 {
        self.lock().clock
    }

    /// Keeps a chunk, if need be in place of those used least recently, but of none that was used after the use `scan_began`. A
    /// chunk larger than the cache is not kept.
    pub(crate) fn insert(&self, key: ChunkKey, chunk: &Arc<Chunk>, source: ChunkSource, scan_began: u64) {
        let memory_bytes = chunk.memory_bytes();
        if memory_bytes > self.bytes_max {
            return;
        }
        let mut state = self.lock();
        // A file may have changed since the scan began.
        if state.entries.contains_key(&key) || state.identities.get(&*source.path) != Some(&key.identity) {
            return;
        }
        // The chunk alone fits.
        while state.used_bytes.get() > self.bytes_max - memory_bytes {
            let Some((last_use, oldest)) = state.by_use.first_key_value() else { break };
            if *last_use > scan_began {
                return;
            }
            let oldest = oldest.clone();
            state.remove(&oldest);
        }
        state.clock += 1;
        let last_use = state.clock;
        state.used_bytes.add(memory_bytes);
        state.by_use.insert(last_use, key.clone());
        state.held.add((key.identity, key.column.column));
        state.entries.insert(key, Entry { chunk: chunk.clone(), source, last_use, hits: 0 });
    }

    /// Gives back at least so many bytes, of what was used least recently; false if there was nothing to
    /// give. Chunks that a scan holds too stay: dropping them would free nothing.
    pub(crate) fn give_back(&self, bytes: usize) -> bool {
        let mut freed_bytes = 0;
        let mut dropped = Vec::new();
        let mut state = self.lock();
        let by_use: Vec<ChunkKey> = state.by_use.values().cloned().collect();
        for key in by_use {
            if freed_bytes >= bytes {
                break;
            }
            let unused = state.entries.get(&key).is_some_and(|entry| Arc::strong_count(&entry.chunk) == 1);
            if unused && let Some(entry) = state.remove(&key) {
                freed_bytes += entry.chunk.memory_bytes();
                dropped.push(entry);
            }
        }
        drop(state);
        freed_bytes > 0
    }

    /// Says which content a path has now; what is held of another is dropped.
    pub(crate) fn observe(&self, path: &Path, identity: FileIdentity) {
        if !self.is_enabled() {
            return;
        }
        let mut state = self.lock();
        match state.identities.get(path) {
            Some(known) if known.is_same_content(&identity) => return,
            None => {}
            Some(_) => {
                let stale: Vec<ChunkKey> = state
                    .entries
                    .iter()
                    .filter(|(key, entry)| {
                        &*entry.source.path == path && !key.identity.is_same_content(&identity)
                    })
                    .map(|(key, _)| key.clone())
                    .collect();
                stale.iter().for_each(|key| drop(state.remove(key)));
            }
        }
        state.identities.insert(path.to_owned(), identity);
    }

    /// What is held, a row a file's column, sorted by path and column.
    pub(crate) fn entries(&self) -> Vec<CacheEntry> {
        let state = self.lock();
        let mut rows: BTreeMap<(&Path, &str), CacheEntry> = BTreeMap::new();
        for entry in state.entries.values() {
            let row = rows.entry((&entry.source.path, &entry.source.column)).or_insert_with(|| CacheEntry {
                rank: 0,
                path: entry.source.path.display().to_string(),
                column: entry.source.column.to_string(),
                space: MemorySpace::Host,
                row_group_count: 0,
                memory_bytes: 0,
                unpacked_bytes: 0,
                hits: 0,
                misses: 0,
            });
            row.row_group_count += 1;
            row.memory_bytes += entry.chunk.memory_bytes() as u64;
            row.unpacked_bytes += entry.chunk.memory_bytes() as u64;
            row.hits += entry.hits;
            // What is held was read once.
            row.misses += 1;
        }
        rows.into_values().collect()
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        lock(&self.state)
    }
}

impl CacheState {
    fn remove(&mut self, key: &ChunkKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.used_bytes.take(entry.chunk.memory_bytes());
        self.by_use.remove(&entry.last_use);
        self.held.take((key.identity, key.column.column));
        Some(entry)
    }
}

/// The memory of an array's buffers that were not seen yet.
fn data_bytes(data: &ArrayData, seen: &mut HashSet<usize>) -> usize {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    let own: usize = data
        .buffers()
        .iter()
        .chain(nulls)
        .filter(|buffer| seen.insert(buffer.data_ptr().as_ptr() as usize))
        .map(|buffer| buffer.capacity().max(buffer.len()))
        .sum();
    own + data.child_data().iter().map(|child| data_bytes(child, seen)).sum::<usize>()
}
