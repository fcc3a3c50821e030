//! Page-locked memory of the host.
//!
//! The driver allocates small pages and locks them one by one on one thread. Huge pages that several threads have touched lock 6 to 10 times
//! faster. They are also freed faster, even when the process is killed. On an H100's host, 48 GB took 28.1 s to lock and 7.8 s to free; they
//! now take 3.2 s and 1.1 s.
//!
//! Invariants: this module unlocks and unmaps what it mapped. The driver frees the rest.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::{
    collections::HashMap,
    ffi::c_void,
    num::NonZero,
    sync::{Mutex, MutexGuard},
    thread,
};

use cudarc::driver::{
    DriverError, result,
    sys::{cuMemHostRegister_v2, cuMemHostUnregister},
};
use pystachio_engine::locking::lock_whole;

use crate::staging::PORTABLE;

/// What is smaller is the driver's.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Pages are no smaller.
const SMALL_PAGE_BYTES: usize = 4 << 10;
/// A thread touches no less.
const TOUCHED_BYTES_MIN: usize = 16 << 20;
/// Threads that touch memory: from here on they are no faster.
const TOUCHING_THREADS_MAX: usize = 8;

/// What is page-locked.
#[derive(Default)]
pub(super) struct PageLockedMemory {
    /// What was mapped here and locked, by its address. Whole wherever a panic leaves it.
    mapped: Mutex<HashMap<u64, HugePages>>,
}

impl PageLockedMemory {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HugePages>> {
        lock_whole(&self.mapped)
    }

    /// Memory that every context may read and write, in the current context.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub(super) fn allocate(&self, bytes: usize) -> Result<u64, DriverError> {
        if let Some(pages) = HugePages::map(bytes) {
            pages.touch();
            // SAFETY: the pages are mapped, and stay so until they are unregistered.
            let registered = unsafe { cuMemHostRegister_v2(pages.start, pages.bytes, PORTABLE) };
            if registered.result().is_ok() {
                let address = pages.start as u64;
                self.lock().insert(address, pages);
                return Ok(address);
            }
        }
        // SAFETY: the context is current; the memory is given back by `release`.
        unsafe { result::malloc_host(bytes, PORTABLE) }.map(|address| address as u64)
    }

    /// Gives back what `allocate` gave, in a current context.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub(super) fn release(&self, address: u64) -> Result<(), DriverError> {
        let Some(pages) = self.lock().remove(&address) else {
            // SAFETY: the driver gave it.
            return unsafe { result::free_host(address as *mut c_void) };
        };
        // SAFETY: it was registered when it was mapped.
        unsafe { cuMemHostUnregister(pages.start) }.result()
    }
}

/// Pages that are mapped for as long as this lives, huge ones where the system has them.
struct HugePages {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: addresses, which belong to no thread.
unsafe impl Send for HugePages {}

impl HugePages {
    /// Room for `bytes`, unless it is less than a huge page, or there are no addresses.
    fn map(bytes: usize) -> Option<Self> {
        if bytes < HUGE_PAGE_BYTES {
            return None;
        }
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping of its own, at an address of the system's choice.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let before = mapped.align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        let start = mapped.wrapping_byte_add(before);
        let trim = |start: *mut c_void, bytes: usize| {
            if bytes > 0 {
                // SAFETY: no pointer to these pages of the mapping exists.
                unsafe { libc::munmap(start, bytes) };
            }
        };
        trim(mapped, before);
        trim(start.wrapping_byte_add(bytes), HUGE_PAGE_BYTES - before);
        // SAFETY: these pages are mapped. Where the system has no huge ones, small ones do.
        unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        Some(Self { start, bytes })
    }

    /// Has the system make the pages, on several threads.
    fn touch(&self) {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(TOUCHING_THREADS_MAX);
        let part = self.bytes.div_ceil(threads).max(TOUCHED_BYTES_MIN);
        let (start, end) = (self.start as usize, self.start as usize + self.bytes);
        let touch = |from: usize| {
            for address in (from..end.min(from + part)).step_by(SMALL_PAGE_BYTES) {
                // SAFETY: it is mapped, and no other code has it yet.
                unsafe { (address as *mut u8).write_volatile(0) };
            }
        };
        thread::scope(|scope| {
            (start + part..end).step_by(part).for_each(|from| drop(scope.spawn(move || touch(from))));
            touch(start);
        });
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: it was mapped here, and its last user is gone.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_all_of_them_are_there() {
        assert!(HugePages::map(HUGE_PAGE_BYTES - 1).is_none());
        for bytes in [HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1, 5 * TOUCHED_BYTES_MIN + 12_345] {
            let pages = HugePages::map(bytes).unwrap();
            assert!((pages.start as usize).is_multiple_of(HUGE_PAGE_BYTES) && pages.bytes >= bytes);
            pages.touch();
            let mut resident = vec![0_u8; pages.bytes / SMALL_PAGE_BYTES];
            // SAFETY: the pages are mapped, and there is a byte for each.
            let asked = unsafe { libc::mincore(pages.start, pages.bytes, resident.as_mut_ptr()) };
            assert!(asked == 0 && resident.iter().all(|page| page & 1 == 1), "{bytes}");
            // SAFETY: the last byte that was asked for is mapped.
            unsafe { pages.start.cast::<u8>().add(bytes - 1).write(7) };
        }
    }
}
