//! The memory of the emulated device and the page-locked memory of its host, with checks as strict
//! as a driver's, and stricter.
//!
//! ```text
//! device        | live | guard | live | guard | freed |   a copy stays within one live buffer, announced for its stream; no
//!                                                         kernel gets an address outside of live buffers
//! page-locked   … | third |second|    first   |           allocations lie side by side, each below the one before, as a
//!                                                         process often has them; a copy stays within one of them
//! ```
//!
//! Invariants: lent memory and returned memory is overwritten, in the order of the streams that use
//! it. So is the guard behind a buffer, which must be unwritten when the buffer is returned. Freed
//! page-locked memory can no longer be touched.
//!
//! Deliberately absent: addresses inside memory that kernels read. They are not checked.
#![expect(unsafe_code, reason = "memory is handed out by its address")]

use std::{
    collections::{BTreeMap, HashSet},
    ffi::c_void,
    sync::{Mutex, MutexGuard},
};

use pystachio_engine::locking::lock;
use pystachio_plan::{Error, ErrorKind, Result};

use crate::device::Stream;

/// Guard bytes behind every buffer that no kernel or copy may write.
pub(super) const GUARD_BYTES: u64 = 256;
/// The granularity of committed memory.
pub(super) const COMMIT_BYTES: u64 = 64 << 10;
/// Address space for page-locked memory; little of it is committed.
const WINDOW_BYTES: u64 = 64 << 30;
const PAGE_BYTES: u64 = 4096;
/// How much of a buffer is overwritten. An engine with ranks takes a share of the host's memory for exchanges when it starts: to overwrite
/// all of it would take seconds, and commit it.
const OVERWRITTEN_BYTES_MAX: u64 = 64 << 20;

unsafe extern "C" {
    /// Tells a sanitizer whether memory may be touched. Returns whether there is a sanitizer.
    fn pystachio_emulate_guard(address: u64, bytes: u64, is_guarded: i32) -> i32;
}

/// Allocations: the start of each, and its bytes.
type AllocatedRanges = BTreeMap<u64, u64>;

/// Whether one of some ranges contains another one completely.
fn one_holds(ranges: &AllocatedRanges, address: u64, bytes: u64) -> bool {
    let found = ranges.range(..=address).next_back();
    found.is_some_and(|(start, length)| address - start <= *length && bytes <= length - (address - start))
}

/// A driver's error for a range that is in no allocation of device or page-locked memory.
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
    /// Reserved device addresses.
    reserved: AllocatedRanges,
    live: BTreeMap<u64, LiveBuffer>,
}

/// A lent buffer.
struct LiveBuffer {
    bytes: u64,
    /// The streams that may use it.
    streams: HashSet<Stream>,
}

/// Overwrites unused memory, of a large buffer the first [`OVERWRITTEN_BYTES_MAX`].
///
/// # Safety
///
/// There are this many bytes at the address, and only the caller uses them.
unsafe fn overwrite(address: u64, bytes: u64, pattern: u8) {
    // SAFETY: the caller owns them.
    unsafe { (address as *mut u8).write_bytes(pattern, bytes.min(OVERWRITTEN_BYTES_MAX) as usize) };
}

/// Overwrites a buffer that is being lent, and its guard.
pub(super) fn open_buffer(address: u64, bytes: u64, pattern: u8) {
    // SAFETY: committed memory, which no other code uses until this has ended.
    let is_sanitized = unsafe { pystachio_emulate_guard(address, bytes, 0) } != 0;
    let guard = if is_sanitized { 0 } else { GUARD_BYTES };
    // SAFETY: as above; the pool keeps the guard behind every buffer.
    unsafe {
        overwrite(address, bytes, pattern);
        overwrite(address + bytes, guard, pattern);
    }
}

/// Overwrites a returned buffer.
///
/// # Errors
///
/// If a byte behind it was written.
pub(super) fn close_buffer(address: u64, bytes: u64, pattern: u8) -> Result<()> {
    // SAFETY: the buffer is unused, and its guard was never lent.
    let (guard, is_sanitized) = unsafe {
        overwrite(address, bytes, pattern);
        let is_sanitized = pystachio_emulate_guard(address, bytes, 1) != 0;
        (std::slice::from_raw_parts((address + bytes) as *const u8, GUARD_BYTES as usize), is_sanitized)
    };
    match is_sanitized || guard.iter().all(|byte| *byte == pattern) {
        true => Ok(()),
        false => Err(Error::internal(format!(
            "a buffer of the emulated device was written past its end: address={address:#x}, bytes={bytes}"
        ))),
    }
}

impl EmulatedMemory {
    fn lock(&self) -> MutexGuard<'_, DeviceState> {
        lock(&self.state)
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<u64> {
        let address = map(0, bytes, libc::PROT_NONE).ok_or_else(|| used_up(bytes))?;
        self.lock().reserved.insert(address, bytes);
        Ok(address)
    }

    /// Returns reserved addresses.
    ///
    /// # Panics
    ///
    /// If a buffer lies there.
    pub(super) fn unreserve(&self, address: u64, bytes: u64) {
        let mut state = self.lock();
        assert_eq!(
            state.reserved.remove(&address),
            Some(bytes),
            "addresses of the device that are given back"
        );
        // Tests that fail leave buffers behind.
        let is_free = std::thread::panicking() || state.live.range(address..address + bytes).next().is_none();
        assert!(is_free, "a buffer lies in the returned addresses");
        // SAFETY: `reserve` mapped it, and it is no longer used.
        unsafe {
            pystachio_emulate_guard(address, bytes, 0);
            libc::munmap(address as *mut c_void, bytes as usize);
        }
    }

    pub(super) fn commit(&self, address: u64, bytes: u64) -> Result<()> {
        map(address, bytes, libc::PROT_READ | libc::PROT_WRITE).ok_or_else(|| used_up(bytes))?;
        // SAFETY: it has just been mapped.
        unsafe { pystachio_emulate_guard(address, bytes, 1) };
        Ok(())
    }

    pub(super) fn decommit(&self, address: u64, bytes: u64) {
        // A later access ends the process.
        let _ = map(address, bytes, libc::PROT_NONE);
    }

    /// Records a lent buffer.
    pub(super) fn add(&self, address: u64, bytes: u64, stream: Stream) {
        let buffer = LiveBuffer { bytes: bytes.max(1), streams: HashSet::from([stream]) };
        self.lock().live.insert(address, buffer);
    }

    /// Records that one more stream may use it.
    pub(super) fn allow(&self, address: u64, stream: Stream) {
        if let Some(buffer) = self.lock().live.get_mut(&address) {
            buffer.streams.insert(stream);
        }
    }

    /// Records its return.
    ///
    /// # Panics
    ///
    /// If it was not lent.
    pub(super) fn remove(&self, address: u64, bytes: u64) {
        let removed = self.lock().live.remove(&address);
        assert_eq!(
            removed.map(|buffer| buffer.bytes),
            Some(bytes.max(1)),
            "memory of the device that is freed"
        );
    }

    /// Refuses a range that no live buffer contains, or whose buffer was not announced for the
    /// stream. `action` names the access.
    pub(super) fn check(&self, action: &str, address: u64, bytes: u64, stream: Option<Stream>) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let state = self.lock();
        match state.live.range(..=address).next_back() {
            Some((start, buffer)) if address - start + bytes <= buffer.bytes => match stream {
                Some(stream) if !buffer.streams.contains(&stream) => Err(not_told(action, address, stream)),
                _ => Ok(()),
            },
            _ => Err(refused(action, "device", address, bytes)),
        }
    }

    /// Refuses the arguments of a kernel if one of them is an address that no live buffer contains,
    /// or one of a buffer that was not announced for the stream.
    pub(super) fn check_arguments(&self, kernel: &str, words: &[u64], stream: Stream) -> Result<()> {
        let state = self.lock();
        for word in words {
            let is_ours = state
                .reserved
                .range(..=*word)
                .next_back()
                .is_some_and(|(start, bytes)| word - start < *bytes);
            if !is_ours {
                continue;
            }
            // An end may be an argument too.
            match state.live.range(..=*word).next_back() {
                Some((start, buffer)) if word - start <= buffer.bytes => {
                    if !buffer.streams.contains(&stream) {
                        return Err(not_told(&format!("launch {kernel}"), *word, stream));
                    }
                }
                _ => {
                    return Err(Error::internal(format!(
                        "the emulated device could not launch {kernel}: an argument is an address that no buffer has: \
                         address={word:#x}"
                    )));
                }
            }
        }
        Ok(())
    }
}

fn not_told(action: &str, address: u64, stream: Stream) -> Error {
    Error::internal(format!(
        "the emulated device could not {action}: the stream was not announced for the buffer: \
         address={address:#x}, stream={}",
        stream.0
    ))
}

/// The page-locked memory of an emulated device's host.
#[derive(Default)]
pub(super) struct LockedMemory {
    state: Mutex<LockedState>,
}

#[derive(Default)]
struct LockedState {
    /// The start of its address space, if it is reserved, and the end of the next allocation.
    window: Option<(u64, u64)>,
    live: AllocatedRanges,
}

impl LockedMemory {
    fn lock(&self) -> MutexGuard<'_, LockedState> {
        lock(&self.state)
    }

    /// Whether an address is one of page-locked memory, live or not.
    pub(super) fn is_within(&self, address: u64) -> bool {
        let window = self.lock().window;
        window.is_some_and(|(start, _)| (start..start + WINDOW_BYTES).contains(&address))
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
        // SAFETY: it was just mapped, and no other code has the address.
        unsafe { overwrite(address, length, pattern) };
        state.window = Some((start, address));
        state.live.insert(address, bytes);
        Ok(address)
    }

    /// Frees memory.
    ///
    /// # Panics
    ///
    /// If it is not allocated, or has another size.
    pub(super) fn release(&self, address: u64, bytes: u64) {
        let mut state = self.lock();
        assert_eq!(state.live.remove(&address), Some(bytes), "page-locked memory that is freed");
        // A later access ends the process.
        let _ = map(address, bytes.max(1).next_multiple_of(PAGE_BYTES), libc::PROT_NONE);
    }

    /// Refuses a range that no live allocation contains. `action` names the access.
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
            // SAFETY: this state owns the window, and its memory is no longer used.
            unsafe { libc::munmap(start as *mut c_void, WINDOW_BYTES as usize) };
        }
    }
}

/// Maps fresh memory: at an address inside the caller's own memory, or anywhere if that is 0.
/// `None` if there is none.
fn map(address: u64, bytes: u64, protection: i32) -> Option<u64> {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: the new mapping is unused memory, or replaces the caller's own.
    let mapped = unsafe { libc::mmap(address as *mut c_void, bytes as usize, protection, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_must_lie_within_one_live_buffer_that_the_stream_was_told_of() {
        let memory = EmulatedMemory::default();
        let base = memory.reserve(COMMIT_BYTES).unwrap();
        memory.commit(base, COMMIT_BYTES).unwrap();
        let first = base + 512;
        memory.add(first, 1000, Stream(3));
        open_buffer(first, 1000, 0xa5);
        for (start, bytes, holds) in
            [(0, 1000, true), (999, 1, true), (1000, 0, true), (999, 2, false), (0, 1001, false)]
        {
            let checked = memory.check("copy memory", first + start, bytes, Some(Stream(3)));
            assert_eq!(checked.is_ok(), holds, "{start} {bytes}");
        }
        assert!(memory.check_arguments("fill", &[first, first + 1000, 17], Stream(3)).is_ok());
        let error = memory.check_arguments("fill", &[first], Stream(4)).unwrap_err();
        assert!(error.message.contains("could not launch fill: the stream was not announced"), "{error}");
        memory.allow(first, Stream(4));
        assert!(memory.check("copy memory", first, 8, Some(Stream(4))).is_ok());
        let error = memory.check_arguments("fill", &[17, first + 1001], Stream(3)).unwrap_err();
        assert!(error.message.contains("could not launch fill: an argument"), "{error}");
        memory.remove(first, 1000);
        close_buffer(first, 1000, 0xa5).unwrap();
        let error = memory.check("copy memory", first, 8, None).unwrap_err();
        assert!(error.message.contains("could not copy memory: no single device allocation"), "{error}");
        memory.decommit(base, COMMIT_BYTES);
        memory.unreserve(base, COMMIT_BYTES);
    }

    #[test]
    fn what_is_written_behind_a_buffer_is_found_when_it_is_given_back() {
        let memory = EmulatedMemory::default();
        let base = memory.reserve(COMMIT_BYTES).unwrap();
        memory.commit(base, COMMIT_BYTES).unwrap();
        open_buffer(base, 100, 0xa5);
        // SAFETY: committed above.
        unsafe { *((base + 100 + GUARD_BYTES - 1) as *mut u8) = 1 };
        let error = close_buffer(base, 100, 0xa5).unwrap_err();
        assert!(error.message.contains("was written past its end"), "{error}");
        memory.unreserve(base, COMMIT_BYTES);
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
