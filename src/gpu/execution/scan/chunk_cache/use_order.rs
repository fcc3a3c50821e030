//! Chunks in the order of their last use.

use std::{collections::BTreeMap, ops::Bound};

use super::ChunkKey;

/// The last use of a chunk: the query, then the position among the chunks of that query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LastUse {
    pub(super) query: u64,
    /// The entry's own unique number.
    pub(super) number: u64,
}

/// Chunks by their last use, and their bytes. Adding, removing and finding the oldest take
/// logarithmic time.
#[derive(Debug, Default)]
pub(super) struct UseOrder {
    chunks: BTreeMap<LastUse, (ChunkKey, u64)>,
    bytes: u64,
    /// Chunks visited.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

impl UseOrder {
    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a chunk.
    ///
    /// # Panics
    ///
    /// If there is one with the same last use.
    pub(super) fn add(&mut self, last_use: LastUse, key: ChunkKey, bytes: u64) {
        let before = self.chunks.insert(last_use, (key, bytes));
        assert!(before.is_none(), "two chunks of one last use");
        self.bytes += bytes;
    }

    /// Removes a chunk, if it is there.
    pub(super) fn remove(&mut self, last_use: LastUse) {
        if let Some((_, bytes)) = self.chunks.remove(&last_use) {
            self.bytes -= bytes;
        }
    }

    /// The first chunk, or the first one behind a place, with its own place and its bytes.
    pub(super) fn behind(&self, place: Option<LastUse>) -> Option<(LastUse, ChunkKey, u64)> {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        let start = place.map_or(Bound::Unbounded, Bound::Excluded);
        let (place, (key, bytes)) = self.chunks.range((start, Bound::Unbounded)).next()?;
        Some((*place, *key, *bytes))
    }
}
