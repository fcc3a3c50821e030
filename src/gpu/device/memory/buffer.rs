//! Handles to a device's memory: buffers and streams, which are returned when they are dropped.

use std::sync::{Arc, Mutex, MutexGuard};

use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::Result;

use super::{DeviceMemory, DeviceMemoryInner};
use crate::device::{Event, Platform, Stream, StreamPriority, arena::Account};

/// A lent stream, returned when this is dropped. Streams are never destroyed: enqueued work stays
/// in order.
pub struct StreamLease {
    pub(super) memory: DeviceMemory,
    pub(super) priority: StreamPriority,
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
        self.memory.idle_streams().push((self.priority, self.stream));
    }
}

/// Device memory that is freed when the last clone, and the last slice, is dropped.
#[derive(Clone)]
pub struct Buffer {
    allocation: Arc<Allocation>,
    /// Its offset in the allocation.
    offset: u64,
    bytes: u64,
}

pub(super) struct Allocation {
    pub(super) shared: Arc<DeviceMemoryInner>,
    /// The account that it counts for; none once it is shared, so that the query's account can end.
    pub(super) account: Mutex<Option<Arc<Account>>>,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) origin: Origin,
    pub(super) uses: Mutex<BufferUses>,
}

/// The origin of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The pool.
    Pool,
    /// A reservation of its own, of so many bytes.
    Own(u64),
}

/// The streams that use a buffer.
pub(super) struct BufferUses {
    /// The stream that allocated and wrote it, first.
    pub(super) streams: Vec<Stream>,
    /// The event after the first one's writes; absent if the host has waited for them, or if no
    /// other stream uses it.
    pub(super) written: Option<Arc<Moment>>,
}

/// An event that is returned when it is no longer needed.
pub(super) struct Moment {
    platform: Arc<dyn Platform>,
    event: Event,
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.platform.release_event(self.event);
    }
}

impl Buffer {
    /// All of an allocation.
    pub(super) fn new(allocation: Allocation) -> Self {
        let bytes = allocation.bytes;
        Self { allocation: Arc::new(allocation), offset: 0, bytes }
    }

    /// A slice, which keeps all of it.
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

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address and the bytes of the memory that it keeps from being freed.
    pub fn held(&self) -> (u64, u64) {
        (self.allocation.address, self.allocation.bytes)
    }

    /// Whether it keeps more than its own bytes.
    pub fn is_part(&self) -> bool {
        self.bytes < self.allocation.bytes
    }

    /// Whether other handles keep its memory too.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.allocation) > 1
    }

    /// [`Buffer::use_all_on`] of one.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn use_on(&self, stream: Stream) -> Result<()> {
        Self::use_all_on([self], stream)
    }

    /// Marks buffers as used by a stream from now on, if its work is enqueued before their last
    /// handles are dropped. Orders the stream after the events that [`DeviceMemory::publish`]
    /// recorded of them, once for all that were recorded together, and keeps the memory until the
    /// stream's work has ended.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn use_all_on<'a>(buffers: impl IntoIterator<Item = &'a Self>, stream: Stream) -> Result<()> {
        let mut ordered: Vec<Arc<Moment>> = Vec::new();
        for Self { allocation, .. } in buffers {
            let mut uses = allocation.uses();
            if uses.streams.contains(&stream) {
                continue;
            }
            let platform = &allocation.shared.platform;
            if let Some(written) = &uses.written
                && !ordered.iter().any(|moment| Arc::ptr_eq(moment, written))
            {
                platform.order_after(stream, written.event)?;
                ordered.push(written.clone());
            }
            platform.note_used(allocation.address, stream);
            uses.streams.push(stream);
        }
        Ok(())
    }

    /// Moves it out of its query's account. Returns whether the arena has room for memory without
    /// an account; nothing changes if not.
    pub fn try_detach(&self) -> bool {
        let Allocation { shared, account, bytes, .. } = &*self.allocation;
        let mut account = lock_whole(account);
        let is_moved = account.as_ref().is_none_or(|account| shared.arena.try_detach(account, *bytes));
        if is_moved {
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

/// Marks the work that one stream has enqueued so far as its last writes into buffers: streams that
/// use them from now on are ordered after it. Buffers of other streams are read only, and stay as
/// they are.
pub(super) fn publish<'a>(
    platform: &Arc<dyn Platform>,
    stream: Stream,
    buffers: impl Iterator<Item = &'a Buffer>,
) -> Result<()> {
    let event = platform.record_event(stream)?;
    let written = Arc::new(Moment { platform: platform.clone(), event });
    for buffer in buffers {
        let mut uses = buffer.allocation.uses();
        if uses.streams.first() == Some(&stream) {
            uses.written = Some(written.clone());
        }
    }
    Ok(())
}

impl Allocation {
    fn uses(&self) -> MutexGuard<'_, BufferUses> {
        lock_whole(&self.uses)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let shared = &self.shared;
        let streams = &whole(self.uses.get_mut()).streams;
        match self.origin {
            Origin::Pool => shared.pool.release(self.address, self.bytes, streams),
            Origin::Own(reserved_bytes) => {
                shared.platform.note_returned(self.address, self.bytes, streams);
                match streams.iter().try_for_each(|stream| shared.platform.wait(*stream)) {
                    Ok(()) => {
                        shared.platform.decommit(self.address, reserved_bytes);
                        shared.platform.unreserve(self.address, reserved_bytes);
                    }
                    // The device is lost, and the process with it.
                    Err(error) => tracing::error!("{error}"),
                }
            }
        }
        let account = whole(self.account.get_mut());
        shared.arena.give_back(account.as_deref(), self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pystachio_engine::StopFlag;

    use crate::device::{EmulatedPlatform, Reservation};

    #[test]
    fn what_is_shared_outlives_the_account_that_it_counted_for() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1000);
        let query = memory.open_account();
        query.admit(Reservation::of_minimum(400), &StopFlag::default()).unwrap();
        let buffer = query.allocate(100, Stream(0)).unwrap();
        assert!(buffer.try_detach() && buffer.try_detach());
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
        query.admit(Reservation::of_minimum(1000), &StopFlag::default()).unwrap();
        let buffers = [query.allocate(500, Stream(0)).unwrap(), query.allocate(1, Stream(0)).unwrap()];
        assert_eq!(buffers.each_ref().map(Buffer::try_detach), [true, false]);
        drop(buffers);
        assert_eq!(query.available_bytes(), 1000);
    }
}
