//! Memory of the engine's for files: footers and pages that are read, and column chunks that are written.
//!
//! Deliberately absent: other users of the memory, and eviction. The lender handles both.

use std::{fmt, sync::Arc};

/// Where memory comes from. Any thread may ask.
pub trait FileMemory: fmt::Debug + Send + Sync {
    /// The total, free or not.
    fn bytes_max(&self) -> u64;

    /// Takes so many bytes more, or none if there are too few.
    fn try_take(&self, bytes: u64) -> bool;

    /// Gives bytes back.
    fn give_back(&self, bytes: u64);
}

/// As much as the host has.
#[derive(Debug)]
pub(crate) struct UnlimitedMemory;

impl FileMemory for UnlimitedMemory {
    fn bytes_max(&self) -> u64 {
        u64::MAX
    }

    fn try_take(&self, _bytes: u64) -> bool {
        true
    }

    fn give_back(&self, _bytes: u64) {}
}

/// Memory taken from a [`FileMemory`], until it is dropped.
#[derive(Debug)]
pub(super) struct MemoryShare {
    memory: Arc<dyn FileMemory>,
    bytes: u64,
}

impl MemoryShare {
    pub(super) fn new(memory: Arc<dyn FileMemory>) -> Self {
        Self { memory, bytes: 0 }
    }

    /// Takes so many bytes more, or none if there are too few.
    pub(super) fn try_grow(&mut self, bytes: u64) -> bool {
        let is_taken = self.memory.try_take(bytes);
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Gives back what is more than so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let excess = self.bytes.saturating_sub(bytes);
        self.memory.give_back(excess);
        self.bytes -= excess;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::FileMemory;

    /// Memory of which so much is left.
    #[derive(Debug)]
    pub(crate) struct CountedMemory {
        bytes_max: u64,
        left: AtomicU64,
    }

    impl CountedMemory {
        pub(crate) fn new(bytes_max: u64) -> Self {
            Self { bytes_max, left: AtomicU64::new(bytes_max) }
        }

        pub(crate) fn left(&self) -> u64 {
            self.left.load(Ordering::Relaxed)
        }

        pub(crate) fn set_left(&self, bytes: u64) {
            self.left.store(bytes, Ordering::Relaxed);
        }
    }

    impl FileMemory for CountedMemory {
        fn bytes_max(&self) -> u64 {
            self.bytes_max
        }

        fn try_take(&self, bytes: u64) -> bool {
            let take = |left: u64| left.checked_sub(bytes);
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        }

        fn give_back(&self, bytes: u64) {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
