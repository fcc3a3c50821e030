//! Reads bytes of a file part by part, several parts at once, into memory that the caller lends.
//!
//! Invariants: a slot is its owner's again only when neither a read nor a copy touches it any more.
//!
//! Deliberately absent: what becomes of the parts.
#![expect(unsafe_code, reason = "slots are memory that reads under way may still write")]

use std::ops::Range;

use pystachio_plan::Result;

/// Bytes of a slot on the heap, and what every slot is aligned to.
const HEAP_SLOT_BYTES: usize = 4 << 20;
const PAGE_BYTES: usize = 4096;

/// Memory that direct reads may fill.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Memory of the host for one part: lent by the caller, and aligned for direct reads.
#[derive(Debug)]
pub struct Slot {
    /// The lender's number for it.
    pub number: usize,
    /// Where it starts: a multiple of 4096.
    pub address: u64,
    /// How long it is: a multiple of 4096.
    pub bytes: usize,
}

impl Slot {
    /// A slot of its own memory, of some megabytes. [`Slot::free`] gives the memory back.
    pub fn on_heap() -> Self {
        let pages = vec![Page([0; PAGE_BYTES]); HEAP_SLOT_BYTES / PAGE_BYTES].into_boxed_slice();
        Self { number: 0, address: Box::into_raw(pages).cast::<u8>() as u64, bytes: HEAP_SLOT_BYTES }
    }

    /// Its memory.
    ///
    /// # Safety
    ///
    /// No read or copy that touches the slot is under way.
    pub unsafe fn memory(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were lent to the slot's owner alone.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }

    /// Gives the memory of a slot on the heap back.
    ///
    /// # Safety
    ///
    /// [`Slot::on_heap`] made it, and no read or copy that touches it is under way.
    pub unsafe fn free(self) {
        let pages = std::ptr::slice_from_raw_parts_mut(self.address as *mut Page, self.bytes / PAGE_BYTES);
        // SAFETY: the slot was made of a box of so many pages.
        drop(unsafe { Box::from_raw(pages) });
    }
}

/// Bytes that the host reads part by part. Parts follow one another without gaps.
pub trait PartSource {
    /// How many parts may be under way at once, at least 1.
    fn parts_in_flight(&self) -> usize;

    /// Begins to read the part that follows the last one begun: some of the `bytes_left` that are wanted from
    /// `start` on. Says how many. The slot is the read's until [`PartSource::finish`] or [`PartSource::abandon`].
    ///
    /// # Errors
    ///
    /// Those of reading; the slot is not touched then.
    fn begin(&mut self, start: u64, bytes_left: u64, slot: &mut Slot) -> Result<usize>;

    /// Waits for the oldest part that is not finished. Says where in its slot the bytes are.
    ///
    /// # Errors
    ///
    /// Those of reading; the slot is not touched any more.
    fn finish(&mut self, slot: &mut Slot) -> Result<Range<usize>>;

    /// Waits until no part is under way. Returns false if parts are still under way: their slots are lost.
    fn abandon(&mut self) -> bool;
}
