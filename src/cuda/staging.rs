//! Page-locked memory that every copy from and to the host passes through.
//!
//! A copy of memory that is not page-locked waits for the whole device, even for four bytes. Small copies have small
//! slots of their own, so they never wait for a slot that a file read holds.
//!
//! Invariants: a slot has one user at a time. It is lent again only after the copy from it has finished: the slot's event says so. If
//! no event could be recorded, the stream must be idle instead. A slot for which neither is known is not lent any more.
#![expect(unsafe_code, reason = "page-locked memory and events are the driver's")]

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use cudarc::driver::{
    result::{event, free_host, malloc_host, stream::synchronize},
    sys::{CUevent, CUevent_flags, CUresult, CUstream},
};
use pystachio_engine::{
    StopFlag,
    locking::{account, lock},
};
use pystachio_files::Slot;
use pystachio_gpu::device::CallWatch;
use pystachio_plan::{Error, ErrorKind, Result};

use crate::fault::from_driver;

/// Bytes of a slot: large enough that a copy runs at the bus's speed.
pub(crate) const SLOT_BYTES: usize = 4 << 20;
/// Slots: as many copies and reads may be under way.
const SLOTS: usize = 64;
/// Bytes of a small slot: descriptions of pages, programs, tables of constants.
const SMALL_SLOT_BYTES: usize = 64 << 10;
/// Small slots: several for every stream of some queries.
const SMALL_SLOTS: usize = 256;
/// A wait for a slot polls the cancel flag at this interval: reads of a disk that hangs may hold the slots.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many idle slots are looked at for one whose copy has happened.
const LOOKED_AT_MAX: usize = 8;
/// Readable and writable by every context, and cached for the CPU's reads.
pub(crate) const PORTABLE: u32 = 1;

/// Page-locked slots of both sizes.
pub(crate) struct Staging {
    large: SlotPool,
    small: SlotPool,
}

/// Page-locked slots of one size, lent in the order in which they came back, as far as their copies have happened.
struct SlotPool {
    slot_bytes: usize,
    slots: Vec<SlotMemory>,
    idle: Mutex<VecDeque<IdleSlot>>,
    returned: Condvar,
    calls: Arc<CallWatch>,
}

struct SlotMemory {
    address: *mut u8,
    event: CUevent,
}

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for SlotMemory {}
// SAFETY: a slot has one user at a time.
unsafe impl Sync for SlotMemory {}

#[derive(Debug, PartialEq, Eq)]
struct IdleSlot {
    number: usize,
    /// Whether a copy may still read it, until its event.
    is_copied: bool,
}

impl Staging {
    /// Slots in the current context.
    pub(crate) fn new(calls: Arc<CallWatch>) -> Result<Self> {
        let large = SlotPool::new(SLOTS, SLOT_BYTES, calls.clone())?;
        Ok(Self { large, small: SlotPool::new(SMALL_SLOTS, SMALL_SLOT_BYTES, calls)? })
    }

    /// Lends a large slot, or returns `None` if all are lent. With `stop` it waits for a slot until the flag cancels the wait.
    pub(crate) fn lend(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>> {
        self.large.lend(stop)
    }

    /// Takes a large slot back that nothing touches.
    pub(crate) fn give_back(&self, slot: Slot) {
        self.large.give_back(slot);
    }

    /// Takes a large slot back that copies read which are enqueued on a stream.
    pub(crate) fn give_back_after(&self, slot: Slot, stream: CUstream) -> Result<()> {
        self.large.give_back_after(slot, stream)
    }

    /// Lends a slot for at most [`SLOT_BYTES`] to `work`, which enqueues copies on `stream`.
    pub(crate) fn with_slot<T>(
        &self,
        bytes: usize,
        stream: CUstream,
        stop: &StopFlag,
        work: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<T> {
        let slots = if bytes <= SMALL_SLOT_BYTES { &self.small } else { &self.large };
        slots.with_slot(stream, stop, work)
    }
}

impl SlotPool {
    fn new(count: usize, slot_bytes: usize, calls: Arc<CallWatch>) -> Result<Self> {
        let mut slots = Vec::with_capacity(count);
        for _ in 0..count {
            // SAFETY: a context is current.
            let address = unsafe { malloc_host(slot_bytes, PORTABLE) }
                .map_err(|error| from_driver("allocate page-locked memory", error))?;
            let event = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map_err(|error| from_driver("create an event", error))?;
            slots.push(SlotMemory { address: address.cast(), event });
        }
        let idle = (0..count).map(|number| IdleSlot { number, is_copied: false }).collect();
        Ok(Self { slot_bytes, slots, idle: Mutex::new(idle), returned: Condvar::new(), calls })
    }

    /// Lends the longest idle slot whose copy has finished, else the longest idle slot after waiting for its copy. Returns `None`
    /// if all are lent. With `stop` it waits for a slot until the flag cancels the wait.
    fn lend(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>> {
        let mut idle = self.idle();
        let slot = loop {
            // A copy waits behind all that its stream has to do, which may be another query's.
            let is_ready = |slot: &IdleSlot| !slot.is_copied || self.has_happened(slot.number);
            let place = idle.iter().take(LOOKED_AT_MAX).position(is_ready).unwrap_or(0);
            match idle.remove(place) {
                Some(slot) => break slot,
                None => match stop {
                    None => return Ok(None),
                    Some(stop) if stop.is_stopped() => {
                        return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
                    }
                    Some(_) => {
                        let waited = self.returned.wait_timeout(idle, STOP_POLL_INTERVAL);
                        idle = account(waited).0;
                    }
                },
            }
        };
        drop(idle);
        let memory = &self.slots[slot.number];
        if slot.is_copied {
            // Waiting for a slot is no driver call: its user may wait for a file.
            let _call = self.calls.enter();
            // SAFETY: the event lives as long as the slot.
            unsafe { event::synchronize(memory.event) }
                .map_err(|error| from_driver("wait for a copy", error))?;
        }
        Ok(Some(Slot { number: slot.number, address: memory.address as u64, bytes: self.slot_bytes }))
    }

    /// Whether the last enqueued copy has finished. A later wait reports a fault.
    fn has_happened(&self, number: usize) -> bool {
        // SAFETY: the event lives as long as the slot, and was recorded.
        let asked = unsafe { event::query(self.slots[number].event) };
        asked.map_or_else(|error| error.0 != CUresult::CUDA_ERROR_NOT_READY, |()| true)
    }

    fn give_back(&self, slot: Slot) {
        self.put(IdleSlot { number: slot.number, is_copied: false });
    }

    fn give_back_after(&self, slot: Slot, stream: CUstream) -> Result<()> {
        // SAFETY: the stream lives as long as the platform.
        let recorded = unsafe { event::record(self.slots[slot.number].event, stream) };
        let idle = idle_after_copy(slot.number, recorded.is_ok(), || {
            let _call = self.calls.enter();
            // SAFETY: as above.
            unsafe { synchronize(stream) }.is_ok()
        });
        if let Some(idle) = idle {
            self.put(idle);
        }
        recorded.map_err(|error| from_driver("record an event", error))
    }

    fn with_slot<T>(
        &self,
        stream: CUstream,
        stop: &StopFlag,
        work: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<T> {
        let Some(mut slot) = self.lend(Some(stop))? else {
            return Err(Error::internal("no page-locked slot was lent"));
        };
        // SAFETY: it has just been lent.
        let result = work(unsafe { slot.memory() });
        let returned = self.give_back_after(slot, stream);
        let result = result?;
        returned?;
        Ok(result)
    }

    fn put(&self, slot: IdleSlot) {
        self.idle().push_back(slot);
        self.returned.notify_one();
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<IdleSlot>> {
        lock(&self.idle)
    }
}

/// A slot that a copy may still read. Without an event that tells of the copy its stream is waited for; `None` where that fails too, as on a
/// device that is lost.
fn idle_after_copy(number: usize, is_recorded: bool, wait_stream: impl FnOnce() -> bool) -> Option<IdleSlot> {
    match is_recorded {
        true => Some(IdleSlot { number, is_copied: true }),
        false => wait_stream().then_some(IdleSlot { number, is_copied: false }),
    }
}

impl Drop for SlotMemory {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no copy is under way when the platform goes.
        unsafe {
            let _ = free_host(self.address.cast());
            let _ = event::destroy(self.event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_whose_copy_has_no_event_is_idle_only_when_its_stream_is() {
        let waits = |is_idle: bool| move || is_idle;
        let never = || panic!("a stream is waited for although there is an event");
        assert_eq!(idle_after_copy(3, true, never), Some(IdleSlot { number: 3, is_copied: true }));
        assert_eq!(idle_after_copy(3, false, waits(true)), Some(IdleSlot { number: 3, is_copied: false }));
        assert_eq!(idle_after_copy(3, false, waits(false)), None);
    }
}
