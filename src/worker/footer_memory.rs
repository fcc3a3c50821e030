//! The footer cache of a rank without a CPU engine. It takes a share of the option `memory` that such a rank does not use otherwise.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pystachio_files::{FileCatalog, FileMemory};

/// Memory for footers, up to a limit.
#[derive(Debug)]
pub struct FooterMemory {
    bytes_max: u64,
    used_bytes: AtomicU64,
}

impl FooterMemory {
    /// An empty catalog of one of so many ranks, whose footers take no more than so many bytes together, read or kept.
    pub fn catalog(bytes_max: u64, rank_count: usize) -> Arc<FileCatalog> {
        let memory = Self { bytes_max, used_bytes: AtomicU64::new(0) };
        Arc::new(FileCatalog::new(Arc::new(memory), bytes_max).with_ranks(rank_count))
    }
}

impl FileMemory for FooterMemory {
    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn try_take(&self, bytes: u64) -> bool {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let memory = FooterMemory { bytes_max: 100, used_bytes: AtomicU64::new(0) };
        assert!(
            memory.try_take(60) && !memory.try_take(41) && !memory.try_take(u64::MAX) && memory.try_take(40)
        );
        memory.give_back(60);
        assert!(memory.try_take(1));
    }
}
