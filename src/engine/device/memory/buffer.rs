//! What is lent of a device's memory: buffers and streams, which go back when they are dropped.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{DeviceMemory, Shared};
use crate::device::{Stream, arena::Account};

/// A stream, given back when this is dropped. Streams are never destroyed: what was enqueued stays in order.
pub struct StreamLease {
    pub(super) memory: DeviceMemory,
    pub(super) stream: Stream,
}

impl StreamLease {
    /// The stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.memory.idle_streams().push(self.stream);
    }
}

/// Device memory that is given back when the last clone, and the last slice, is dropped.
#[derive(Clone)]
pub struct Buffer {
    allocation: Arc<Allocation>,
    /// Where it starts in the allocation.
    offset: u64,
    bytes: u64,
}

pub(super) struct Allocation {
    pub(super) shared: Arc<Shared>,
    /// Whom it counts for; nobody's query once it is shared, so that the query's account can end.
    pub(super) account: Mutex<Option<Arc<Account>>>,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Whether it came from the platform's pool.
    pub(super) is_pooled: bool,
    /// In whose order it is freed.
    pub(super) stream: AtomicU64,
    /// Whether streams of several queries may read it at once.
    pub(super) is_shared: AtomicBool,
}

impl Buffer {
    /// All of an allocation.
    pub(super) fn new(allocation: Allocation) -> Self {
        let bytes = allocation.bytes;
        Self { allocation: Arc::new(allocation), offset: 0, bytes }
    }

    /// A part of it, which keeps all of it.
    ///
    /// # Panics
    ///
    /// If it has not so many bytes.
    pub fn slice(&self, offset: u64, bytes: u64) -> Self {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "bytes beyond a buffer");
        Self { allocation: self.allocation.clone(), offset: self.offset + offset, bytes }
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.allocation.address + self.offset
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where that starts which it keeps from being freed, and how long that is.
    pub fn held(&self) -> (u64, u64) {
        (self.allocation.address, self.allocation.bytes)
    }

    /// Whether it keeps more than its own bytes.
    pub fn is_part(&self) -> bool {
        self.bytes < self.allocation.bytes
    }

    /// Says that from now on another stream uses it. What the first one enqueued must have happened.
    pub fn adopt(&self, stream: Stream) {
        self.allocation.stream.store(stream.0, Ordering::Relaxed);
    }

    /// Says that from now on several streams may read it, and that it counts for no query. What was enqueued must
    /// have happened. It is freed only when every stream has done what was enqueued until then. Says whether the
    /// arena has room for what is nobody's; nothing changes if not.
    pub fn try_share(&self) -> bool {
        let Allocation { shared, account, bytes, is_shared, .. } = &*self.allocation;
        if is_shared.load(Ordering::Relaxed) {
            return true;
        }
        let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
        let is_moved = account.as_ref().is_none_or(|account| shared.arena.try_disown(account, *bytes));
        if is_moved {
            is_shared.store(true, Ordering::Relaxed);
            *account = None;
        }
        is_moved
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Buffer({:#x}, {} bytes)", self.address(), self.bytes())
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let shared = &self.shared;
        let is_shared = *self.is_shared.get_mut();
        if is_shared && let Err(error) = shared.platform.wait_all() {
            tracing::error!("{error}");
        }
        match self.is_pooled {
            true => {
                shared.platform.release(self.address, self.bytes, Stream(*self.stream.get_mut()));
            }
            false => shared.platform.release_unpooled(self.address, self.bytes),
        }
        let account = self.account.get_mut().unwrap_or_else(PoisonError::into_inner);
        shared.arena.give_back(account.as_deref(), self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StopFlag, device::EmulatedPlatform};

    #[test]
    fn what_is_shared_outlives_the_account_that_it_counted_for() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1000);
        let query = memory.open_account();
        query.admit(400, &StopFlag::default()).unwrap();
        let buffer = query.allocate(100, Stream(0)).unwrap();
        assert!(buffer.try_share() && buffer.try_share());
        drop(query);
        // The account's minimum is free again; the buffer gives way.
        assert_eq!((memory.open_account().available_bytes(), memory.used_bytes()), (1000, 100));
        drop(buffer);
        assert_eq!((memory.open_account().available_bytes(), memory.used_bytes()), (1000, 0));
    }

    #[test]
    fn a_slice_keeps_the_whole() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1000);
        let query = memory.open_account();
        let buffer = query.allocate(100, Stream(0)).unwrap();
        let held = buffer.held();
        let slice = buffer.slice(20, 70).slice(10, 5);
        assert_eq!((slice.address(), slice.bytes(), slice.held()), (buffer.address() + 30, 5, held));
        assert!(slice.is_part() && !buffer.is_part());
        drop(buffer);
        assert_eq!(memory.used_bytes(), 100);
        drop(slice);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "bytes beyond a buffer")]
    fn a_slice_has_no_more_than_there_is() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1000);
        let buffer = memory.open_account().allocate(100, Stream(0)).unwrap();
        let _ = buffer.slice(40, 30).slice(20, 11);
    }

    #[test]
    fn caches_share_half_of_what_queries_have_reserved() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1000);
        let query = memory.open_account();
        query.admit(1000, &StopFlag::default()).unwrap();
        let buffers = [query.allocate(500, Stream(0)).unwrap(), query.allocate(1, Stream(0)).unwrap()];
        assert_eq!(buffers.each_ref().map(Buffer::try_share), [true, false]);
        drop(buffers);
        assert_eq!(query.available_bytes(), 1000);
    }
}
