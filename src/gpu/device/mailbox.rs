//! Readbacks: a few bytes from the device, which the host reads later.
//!
//! ```text
//! device ── copy ──► slot of page-locked memory ── event ──► Readback::wait, at any time later
//! ```
//!
//! Work enqueued after a readback goes on while the host waits for it: the device never rests
//! because of a count.
//!
//! Invariants: a slot is lent to one readback at a time, and is free again only after its copy has
//! happened. A readback that is dropped early leaves its slot and its event behind; later requests
//! take such slots once their copies have happened, so no drop waits for the device. Slots are
//! page-locked once and kept; there are never more than were in use at once.
//!
//! Source: PystachIO (arXiv 2512.02862), section 3.3 (deferred synchronisation).
#![expect(unsafe_code, reason = "page-locked memory is known by its address")]

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use bytemuck::Pod;
use pystachio_engine::locking::lock;
use pystachio_plan::Result;

use super::{Event, Platform, Stream};

/// Limit of a readback's bytes.
pub(super) const READBACK_BYTES_MAX: usize = 64;
/// Slots that are page-locked together.
const SLOTS_PER_PAGE: usize = 64;
const PAGE_BYTES: usize = SLOTS_PER_PAGE * READBACK_BYTES_MAX;
/// How many slots of readbacks that were dropped early are tested for one whose copy has happened.
const LOOKED_AT_MAX: usize = 8;

/// Page-locked slots for readbacks.
pub(super) struct Mailbox {
    platform: Arc<dyn Platform>,
    slots: Mutex<ReadbackSlots>,
}

#[derive(Default)]
struct ReadbackSlots {
    pages: Vec<u64>,
    idle: Vec<u64>,
    /// Slots of dropped readbacks whose copies may still run. The oldest first.
    unsettled: VecDeque<(u64, Event)>,
}

/// Values on their way from the device.
pub struct Readback {
    mailbox: Arc<Mailbox>,
    slot: u64,
    bytes: usize,
    event: Event,
    /// Whether the copy is known to have happened.
    is_here: AtomicBool,
}

impl Mailbox {
    pub(super) fn new(platform: Arc<dyn Platform>) -> Self {
        Self { platform, slots: Mutex::default() }
    }

    /// Enqueues the copy of a few bytes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host has no page-locked memory left, and faults of the device.
    pub(super) fn send(self: &Arc<Self>, source: u64, bytes: usize, stream: Stream) -> Result<Readback> {
        assert!(bytes <= READBACK_BYTES_MAX, "bytes of a readback");
        let slot = self.slot()?;
        let sent = self
            .platform
            .download_in_place(source, slot, bytes, stream)
            .and_then(|()| self.platform.record_event(stream));
        // A slot whose copy may be enqueued without an event is not reused.
        let event = sent?;
        Ok(Readback { mailbox: self.clone(), slot, bytes, event, is_here: AtomicBool::new(false) })
    }

    fn slot(&self) -> Result<u64> {
        let mut slots = self.lock();
        if let Some(slot) = slots.idle.pop() {
            return Ok(slot);
        }
        for place in 0..slots.unsettled.len().min(LOOKED_AT_MAX) {
            if self.platform.has_reached(slots.unsettled[place].1)?
                && let Some((slot, event)) = slots.unsettled.remove(place)
            {
                self.platform.release_event(event);
                return Ok(slot);
            }
        }
        let page = self.platform.allocate_host(PAGE_BYTES)?;
        slots.pages.push(page);
        slots.idle.extend((1..SLOTS_PER_PAGE).map(|place| page + (place * READBACK_BYTES_MAX) as u64));
        Ok(page)
    }

    fn lock(&self) -> MutexGuard<'_, ReadbackSlots> {
        lock(&self.slots)
    }
}

impl Drop for Mailbox {
    /// Waits for copies of dropped readbacks: their slots are freed with the mailbox.
    fn drop(&mut self) {
        let mut slots = self.lock();
        let ReadbackSlots { pages, unsettled, .. } = &mut *slots;
        for (_, event) in unsettled.drain(..) {
            let happened = self.platform.wait_event(event);
            self.platform.release_event(event);
            if let Err(error) = happened {
                // The device is lost, and may still write.
                tracing::error!("{error}");
                return;
            }
        }
        for page in pages.drain(..) {
            self.platform.release_host(page, PAGE_BYTES);
        }
    }
}

impl Readback {
    /// Waits for the values.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If the readback has another length.
    pub fn wait<T: Pod>(&self, count: usize) -> Result<Vec<T>> {
        let mut target = vec![T::zeroed(); count];
        let target_bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut target);
        assert_eq!(target_bytes.len(), self.bytes, "bytes of a readback");
        if !self.is_here.load(Ordering::Relaxed) {
            self.mailbox.platform.wait_event(self.event)?;
            self.is_here.store(true, Ordering::Relaxed);
        }
        // SAFETY: the slot has this many bytes and belongs to this readback; its copy has happened.
        let values = unsafe { std::slice::from_raw_parts(self.slot as *const u8, self.bytes) };
        target_bytes.copy_from_slice(values);
        Ok(target)
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        let mut slots = self.mailbox.lock();
        if self.is_here.load(Ordering::Relaxed) {
            slots.idle.push(self.slot);
            self.mailbox.platform.release_event(self.event);
        } else {
            slots.unsettled.push_back((self.slot, self.event));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pystachio_engine::StopFlag;

    use crate::device::EmulatedPlatform;

    #[test]
    fn readbacks_keep_what_was_sent_and_slots_are_used_again() {
        let platform = Arc::new(EmulatedPlatform::new());
        let mailbox = Arc::new(Mailbox::new(platform.clone()));
        let source = platform.reserve(platform.commit_bytes()).unwrap();
        platform.commit(source, platform.commit_bytes()).unwrap();
        platform.note_lent(source, 16, Stream(0)).unwrap();
        for round in 0..3u64 {
            let readbacks: Vec<Readback> = (0..100u64)
                .map(|number| {
                    let values = [number, round];
                    let bytes = bytemuck::bytes_of(&values);
                    platform.upload(bytes, source, Stream(0), &StopFlag::default()).unwrap();
                    mailbox.send(source, 16, Stream(0)).unwrap()
                })
                .collect();
            for (number, readback) in (0..).zip(&readbacks) {
                assert_eq!(readback.wait::<u64>(2).unwrap(), [number, round]);
            }
        }
        assert_eq!(mailbox.lock().pages.len(), 2);
        assert_eq!(mailbox.lock().idle.len(), 128);
        platform.note_returned(source, 16, &[Stream(0)]);
    }

    #[test]
    fn a_readback_that_is_dropped_early_leaves_its_slot_until_the_copy_has_happened() {
        let platform = Arc::new(EmulatedPlatform::with_seed(3));
        let mailbox = Arc::new(Mailbox::new(platform.clone()));
        let source = platform.reserve(platform.commit_bytes()).unwrap();
        platform.commit(source, platform.commit_bytes()).unwrap();
        platform.note_lent(source, 16, Stream(0)).unwrap();
        platform.upload(&[7; 16], source, Stream(0), &StopFlag::default()).unwrap();
        drop(mailbox.send(source, 16, Stream(0)).unwrap());
        let unsettled = || mailbox.lock().unsettled.len();
        assert_eq!((unsettled(), mailbox.lock().idle.len()), (1, SLOTS_PER_PAGE - 1));
        platform.wait(Stream(0)).unwrap();
        mailbox.lock().idle.clear();
        let readback = mailbox.send(source, 16, Stream(0)).unwrap();
        assert_eq!((unsettled(), mailbox.lock().pages.len()), (0, 1), "the slot was used again");
        assert_eq!(readback.wait::<u8>(16).unwrap(), [7; 16]);
        platform.note_returned(source, 16, &[Stream(0)]);
    }
}
