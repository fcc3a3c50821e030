//! Page-locked memory that every copy from and to the host passes through.
//!
//! A copy of memory that is not page-locked waits for the whole device, even for four bytes.
//!
//! Invariants: a slot is reused only after the copy that read it has happened.
#![expect(unsafe_code, reason = "page-locked memory and events are the driver's")]

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use cudarc::driver::{
    result::{event, free_host, malloc_host},
    sys::{CUevent, CUevent_flags, CUstream},
};
use pystachio_plan::Result;

use crate::fault::from_driver;

/// Bytes of a slot: large enough that a copy runs at the bus's speed.
pub(crate) const SLOT_BYTES: usize = 4 << 20;
/// Slots: as many copies may be under way.
const SLOTS: usize = 32;
/// Readable and writable by every context, and cached for the CPU's reads.
pub(crate) const PORTABLE: u32 = 1;

/// A ring of page-locked slots.
pub(crate) struct Staging {
    slots: Vec<Mutex<Slot>>,
    next: AtomicUsize,
}

pub(crate) struct Slot {
    address: *mut u8,
    event: CUevent,
    in_flight: bool,
}

// SAFETY: a slot is only touched under its lock, and the driver's objects belong to no thread.
unsafe impl Send for Slot {}

impl Staging {
    /// A ring in the current context.
    pub(crate) fn new() -> Result<Self> {
        let mut slots = Vec::with_capacity(SLOTS);
        for _ in 0..SLOTS {
            // SAFETY: a context is current.
            let address = unsafe { malloc_host(SLOT_BYTES, PORTABLE) }
                .map_err(|error| from_driver("allocate page-locked memory", error))?;
            let event = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map_err(|error| from_driver("create an event", error))?;
            slots.push(Mutex::new(Slot { address: address.cast(), event, in_flight: false }));
        }
        Ok(Self { slots, next: AtomicUsize::new(0) })
    }

    /// Lends the next free slot to `work`, which enqueues at most one copy on `stream`.
    pub(crate) fn with_slot<T>(
        &self,
        stream: CUstream,
        work: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<T> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[place].lock().unwrap_or_else(PoisonError::into_inner);
        if slot.in_flight {
            // SAFETY: the event lives as long as the slot.
            unsafe { event::synchronize(slot.event) }
                .map_err(|error| from_driver("wait for a copy", error))?;
        }
        // SAFETY: the slot has this many bytes, and it is locked.
        let bytes = unsafe { std::slice::from_raw_parts_mut(slot.address, SLOT_BYTES) };
        let result = work(bytes)?;
        // SAFETY: the stream lives as long as the platform.
        unsafe { event::record(slot.event, stream) }
            .map_err(|error| from_driver("record an event", error))?;
        slot.in_flight = true;
        Ok(result)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no copy is under way when the platform goes.
        unsafe {
            let _ = free_host(self.address.cast());
            let _ = event::destroy(self.event);
        }
    }
}
