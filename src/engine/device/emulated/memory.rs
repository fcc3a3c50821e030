//! The emulated device's memory and the page-locked memory of its host, as strict as a driver is with them.
//!
//! ```text
//! device        | live |   | live |  | freed |        a copy stays within one live allocation, and no kernel is
//!                                                     given an address of memory that was freed
//! page-locked   … | third |second|    first   |       allocations lie side by side, each below the one before, as a
//!                                                     process often has them; a copy stays within one of them
//! ```
//!
//! Invariants: freed device memory is overwritten, and goes back to the host only when some more has been freed. Freed
//! page-locked memory can't be touched any more.
//!
//! Deliberately absent: what kernels find in memory. Addresses that they read there are not looked at.
#![expect(unsafe_code, reason = "memory is handed out by its address")]

use std::{
    alloc::{Layout, alloc, dealloc},
    collections::{BTreeMap, VecDeque},
    ffi::c_void,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pystachio_plan::{Error, ErrorKind, Result};

const ALIGNMENT_BYTES: usize = 256;
/// Freed memory of the device that is kept from being used again.
const FREED_BYTES_MAX: u64 = 16 << 20;
/// Address space for page-locked memory, of which little is memory.
const WINDOW_BYTES: u64 = 64 << 30;
const PAGE_BYTES: u64 = 4096;

/// What is allocated: where each allocation begins, and its bytes.
type Ranges = BTreeMap<u64, u64>;

/// Whether one of some ranges has all of another.
fn one_holds(ranges: &Ranges, address: u64, bytes: u64) -> bool {
    let found = ranges.range(..=address).next_back();
    found.is_some_and(|(start, length)| address - start <= *length && bytes <= length - (address - start))
}

/// What a driver says to a range that is no allocation's of the device's memory or of what is page-locked.
fn refused(action: &str, memory: &str, address: u64, bytes: u64) -> Error {
    Error::internal(format!(
        "the emulated device could not {action}: no single {memory} allocation holds the range: \
         address={address:#x}, bytes={bytes}"
    ))
}

fn used_up(bytes: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("host memory is used up: bytes={bytes}"))
}

/// The memory of an emulated device.
#[derive(Default)]
pub(super) struct EmulatedMemory {
    state: Mutex<DeviceState>,
}

#[derive(Default)]
struct DeviceState {
    live: Ranges,
    freed: Ranges,
    /// Where freed memory begins, in the order in which it was freed.
    freed_order: VecDeque<u64>,
    freed_bytes: u64,
}

fn layout(bytes: u64) -> Result<Layout> {
    usize::try_from(bytes.max(1))
        .ok()
        .and_then(|bytes| Layout::from_size_align(bytes, ALIGNMENT_BYTES).ok())
        .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, format!("no such amount of memory: bytes={bytes}")))
}

/// Overwrites memory that nobody uses.
///
/// # Safety
///
/// There are this many bytes at the address, and they are the caller's.
unsafe fn overwrite(address: u64, bytes: u64, pattern: u8) {
    // SAFETY: the caller has them.
    unsafe { (address as *mut u8).write_bytes(pattern, bytes as usize) };
}

impl EmulatedMemory {
    fn lock(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that is filled with a pattern.
    pub(super) fn allocate(&self, bytes: u64, pattern: u8) -> Result<u64> {
        let layout = layout(bytes)?;
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(used_up(bytes));
        }
        let address = memory as u64;
        // SAFETY: it has just been allocated with this size.
        unsafe { overwrite(address, layout.size() as u64, pattern) };
        self.lock().live.insert(address, layout.size() as u64);
        Ok(address)
    }

    /// Gives memory back, and overwrites it.
    ///
    /// # Panics
    ///
    /// If it is not allocated, or another number of bytes is.
    pub(super) fn release(&self, address: u64, bytes: u64, pattern: u8) {
        let mut state = self.lock();
        let bytes = bytes.max(1);
        assert_eq!(state.live.remove(&address), Some(bytes), "memory of the device that is freed");
        // SAFETY: it was allocated with this size, and is nobody's any more.
        unsafe { overwrite(address, bytes, pattern) };
        state.freed.insert(address, bytes);
        state.freed_order.push_back(address);
        state.freed_bytes += bytes;
        while state.freed_bytes > FREED_BYTES_MAX {
            state.forget_oldest();
        }
    }

    /// Refuses a range that no live allocation has. `action` says what was tried.
    pub(super) fn check(&self, action: &str, address: u64, bytes: u64) -> Result<()> {
        match bytes == 0 || one_holds(&self.lock().live, address, bytes) {
            true => Ok(()),
            false => Err(refused(action, "device", address, bytes)),
        }
    }

    /// Refuses the arguments of a kernel if one of them is the address of memory that was freed.
    pub(super) fn check_arguments(&self, kernel: &str, words: &[u64]) -> Result<()> {
        let state = self.lock();
        let is_freed = |word: &&u64| {
            state.freed.range(..=**word).next_back().is_some_and(|(start, bytes)| **word - start < *bytes)
        };
        match words.iter().find(is_freed) {
            None => Ok(()),
            Some(address) => Err(Error::internal(format!(
                "the emulated device could not launch {kernel}: an argument is the address of memory that was \
                 freed: address={address:#x}"
            ))),
        }
    }
}

impl DeviceState {
    fn forget_oldest(&mut self) {
        let Some(address) = self.freed_order.pop_front() else { return };
        let Some(bytes) = self.freed.remove(&address) else { return };
        self.freed_bytes -= bytes;
        if let Ok(layout) = layout(bytes) {
            // SAFETY: `EmulatedMemory::allocate` allocated it with this layout, and it was given back.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        while !self.freed_order.is_empty() {
            self.forget_oldest();
        }
    }
}

/// The page-locked memory of an emulated device's host.
#[derive(Default)]
pub(super) struct LockedMemory {
    state: Mutex<LockedState>,
}

#[derive(Default)]
struct LockedState {
    /// Where the address space for it begins, if there is any yet, and where the next allocation ends.
    window: Option<(u64, u64)>,
    live: Ranges,
}

impl LockedMemory {
    fn lock(&self) -> MutexGuard<'_, LockedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory below that of the last call, filled with a pattern.
    pub(super) fn allocate(&self, bytes: u64, pattern: u8) -> Result<u64> {
        let mut state = self.lock();
        let (start, end) = match state.window {
            Some(window) => window,
            None => {
                let start = map(0, WINDOW_BYTES, libc::PROT_NONE).ok_or_else(|| used_up(bytes))?;
                (start, start + WINDOW_BYTES)
            }
        };
        state.window = Some((start, end));
        let length = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let address =
            end.checked_sub(length).filter(|address| *address >= start).ok_or_else(|| used_up(bytes))?;
        map(address, length, libc::PROT_READ | libc::PROT_WRITE).ok_or_else(|| used_up(bytes))?;
        // SAFETY: it has just been mapped, and is nobody else's.
        unsafe { overwrite(address, length, pattern) };
        state.window = Some((start, address));
        state.live.insert(address, bytes);
        Ok(address)
    }

    /// Gives memory back.
    ///
    /// # Panics
    ///
    /// If it is not allocated, or another number of bytes is.
    pub(super) fn release(&self, address: u64, bytes: u64) {
        let mut state = self.lock();
        assert_eq!(state.live.remove(&address), Some(bytes), "page-locked memory that is freed");
        // Whoever touches it from now on ends there.
        let _ = map(address, bytes.max(1).next_multiple_of(PAGE_BYTES), libc::PROT_NONE);
    }

    /// Refuses a range that no live allocation has. `action` says what was tried.
    pub(super) fn check(&self, action: &str, address: u64, bytes: u64) -> Result<()> {
        match bytes == 0 || one_holds(&self.lock().live, address, bytes) {
            true => Ok(()),
            false => Err(refused(action, "page-locked", address, bytes)),
        }
    }
}

impl Drop for LockedState {
    fn drop(&mut self) {
        if let Some((start, _)) = self.window {
            // SAFETY: the window is this state's, and nobody has memory of it any more.
            unsafe { libc::munmap(start as *mut c_void, WINDOW_BYTES as usize) };
        }
    }
}

/// Maps fresh memory: at an address within the caller's own, or anywhere if that is 0. `None` if there is none.
fn map(address: u64, bytes: u64, protection: i32) -> Option<u64> {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: what is mapped anew is nobody's memory, or the caller's own that it gives up.
    let mapped = unsafe { libc::mmap(address as *mut c_void, bytes as usize, protection, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_must_lie_within_one_live_allocation() {
        let memory = EmulatedMemory::default();
        let first = memory.allocate(1000, 0xa5).unwrap();
        for (start, bytes, holds) in
            [(0, 1000, true), (999, 1, true), (1000, 0, true), (999, 2, false), (0, 1001, false)]
        {
            assert_eq!(memory.check("copy memory", first + start, bytes).is_ok(), holds, "{start} {bytes}");
        }
        assert!(memory.check_arguments("fill", &[first, 17]).is_ok());
        memory.release(first, 1000, 0x5a);
        let error = memory.check("copy memory", first, 8).unwrap_err();
        assert!(error.message.contains("could not copy memory: no single device allocation"), "{error}");
        let error = memory.check_arguments("fill", &[17, first + 999]).unwrap_err();
        assert!(error.message.contains("could not launch fill"), "{error}");
        assert!(memory.check_arguments("fill", &[first + 1000]).is_ok());
    }

    #[test]
    fn page_locked_allocations_lie_side_by_side_and_are_not_one() {
        let memory = LockedMemory::default();
        let (first, second) = (memory.allocate(8192, 0xa5).unwrap(), memory.allocate(4096, 0xa5).unwrap());
        assert_eq!(second + 4096, first);
        assert!(memory.check("copy", first, 8192).is_ok() && memory.check("copy", second, 4096).is_ok());
        assert!(
            memory.check("copy", second, 4097).is_err() && memory.check("copy", first + 8000, 200).is_err()
        );
        memory.release(first, 8192);
        assert!(memory.check("copy", first, 1).is_err() && memory.check("copy", second, 1).is_ok());
    }
}
