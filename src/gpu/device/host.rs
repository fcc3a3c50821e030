//! Page-locked host memory, for data that does not fit on the device.
//!
//! ```text
//! budget ── extents, page-locked one after another as they are needed, and kept
//!             └ slabs of one size: idle, or lent for a piece of bytes
//! ```
//!
//! Page-locking is slow, so many slabs are locked at once, and returned slabs are kept for reuse.
//!
//! Invariants: at most `bytes_max` are page-locked. A slab is returned after the copies from and to
//! it. One copy stays within one extent: extents are often adjacent, and a driver refuses a range
//! that two of them hold.
#![expect(unsafe_code, reason = "page-locked memory is known by its address")]

use std::sync::{Arc, Mutex, MutexGuard};

use pystachio_engine::locking::lock;
use pystachio_plan::{ErrorKind, Result};

use super::{DeviceMemory, Platform, Stream};

/// Slabs that divide a budget, unless they would be larger than `SLAB_BYTES_MAX`.
const SLABS_MIN: u64 = 4096;
/// Small enough that the last one of a chunk wastes little. One copy covers adjacent slabs.
const SLAB_BYTES_MAX: u64 = 256 << 10;
/// Slabs are no smaller.
const SLAB_BYTES_MIN: u64 = 4 << 10;
/// Bytes that are page-locked at once, or less if that would be most of the budget.
const EXTENT_BYTES_MAX: u64 = 64 << 20;
/// Extents that divide a budget, unless they would be larger than `EXTENT_BYTES_MAX`.
const EXTENTS_MIN: u64 = 256;

/// Page-locked memory up to a budget. Cheap to clone.
#[derive(Clone)]
pub struct HostMemory {
    shared: Arc<HostMemoryInner>,
}

struct HostMemoryInner {
    platform: Arc<dyn Platform>,
    slab_bytes: usize,
    slabs_max: usize,
    slabs_per_extent: usize,
    state: Mutex<HostMemoryState>,
}

#[derive(Default)]
struct HostMemoryState {
    /// The start of each, and its slabs.
    extents: Vec<(u64, usize)>,
    /// Slabs of all extents.
    slab_count: usize,
    /// Unused slabs.
    idle: Vec<Slab>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slab {
    address: u64,
    /// The number of its extent.
    extent: usize,
}

impl Slab {
    /// Whether the other one follows it in the same extent, so that one copy may cover both.
    fn is_followed_by(self, other: Self, slab_bytes: u64) -> bool {
        self.extent == other.extent && self.address + slab_bytes == other.address
    }
}

impl HostMemory {
    /// Page-locks at most `bytes_max`, nothing before it is needed.
    pub fn new(platform: Arc<dyn Platform>, bytes_max: u64) -> Self {
        let slab_bytes = (bytes_max / SLABS_MIN).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
        let extent_bytes = (bytes_max / EXTENTS_MIN).min(EXTENT_BYTES_MAX);
        Self::of_slabs(platform, bytes_max, slab_bytes, (extent_bytes / slab_bytes).max(1))
    }

    /// Memory of slabs of one size, so many of which are locked at once.
    fn of_slabs(platform: Arc<dyn Platform>, bytes_max: u64, slab_bytes: u64, slabs_per_extent: u64) -> Self {
        let shared = HostMemoryInner {
            platform,
            slab_bytes: slab_bytes as usize,
            slabs_max: (bytes_max / slab_bytes) as usize,
            slabs_per_extent: slabs_per_extent as usize,
            state: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The limit of page-locked memory.
    pub fn bytes_max(&self) -> u64 {
        (self.shared.slabs_max * self.shared.slab_bytes) as u64
    }

    /// Memory for `bytes`, or `None` if the budget or the host lacks it.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Option<HostBytes>> {
        let shared = &self.shared;
        let count = usize::try_from(bytes.div_ceil(shared.slab_bytes as u64)).unwrap_or(usize::MAX);
        let mut state = shared.lock();
        if count > shared.slabs_max - (state.slab_count - state.idle.len()) {
            return Ok(None);
        }
        while state.idle.len() < count {
            let slabs = shared.slabs_per_extent.min(shared.slabs_max - state.slab_count);
            match shared.platform.allocate_host(slabs * shared.slab_bytes) {
                Ok(start) => {
                    let extent = state.extents.len();
                    state.extents.push((start, slabs));
                    state.slab_count += slabs;
                    let address = |slab| start + (slab * shared.slab_bytes) as u64;
                    state.idle.extend((0..slabs).rev().map(|slab| Slab { address: address(slab), extent }));
                }
                Err(error) if error.kind == ErrorKind::OutOfMemory => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let first = state.idle.len() - count;
        // In the order of their addresses, adjacent where possible.
        let slabs = state.idle.drain(first..).rev().collect();
        Ok(Some(HostBytes { memory: self.clone(), slabs, bytes }))
    }
}

impl HostMemoryInner {
    fn lock(&self) -> MutexGuard<'_, HostMemoryState> {
        lock(&self.state)
    }
}

impl Drop for HostMemoryInner {
    fn drop(&mut self) {
        let extents = std::mem::take(&mut self.lock().extents);
        for (address, slabs) in extents {
            self.platform.release_host(address, slabs * self.slab_bytes);
        }
    }
}

/// Bytes in page-locked memory, slab by slab.
pub struct HostBytes {
    memory: HostMemory,
    slabs: Vec<Slab>,
    bytes: u64,
}

impl HostBytes {
    /// The capacity in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its page-locked memory.
    pub fn locked_bytes(&self) -> u64 {
        (self.slabs.len() * self.memory.shared.slab_bytes) as u64
    }

    /// Copies device bytes to `offset`; they arrive once the stream has done so.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If they exceed the capacity.
    pub fn download(
        &self,
        memory: &DeviceMemory,
        offset: u64,
        (source, bytes): (u64, u64),
        stream: Stream,
    ) -> Result<()> {
        self.pieces(offset, bytes, |host, place, bytes| {
            memory.download_pinned(source + place, host, bytes, stream)
        })
    }

    /// Copies bytes from `offset` on to the device. They must stay until the stream has done so.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    pub fn upload(
        &self,
        memory: &DeviceMemory,
        offset: u64,
        (target, bytes): (u64, u64),
        stream: Stream,
    ) -> Result<()> {
        self.pieces(offset, bytes, |host, place, bytes| {
            memory.upload_pinned(host, target + place, bytes, stream)
        })
    }

    /// Copies bytes out. The copy that wrote them must have happened.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    pub fn read(&self, offset: u64, target: &mut [u8]) {
        let read = self.pieces(offset, target.len() as u64, |host, place, bytes| {
            // SAFETY: the piece lies in a slab that only this owner has.
            let source = unsafe { std::slice::from_raw_parts(host as *const u8, bytes) };
            target[place as usize..place as usize + bytes].copy_from_slice(source);
            Ok(())
        });
        debug_assert!(read.is_ok());
    }

    /// Calls `copy` for every part of a range that is contiguous in one extent: its address, its
    /// place in the range, its bytes.
    fn pieces(
        &self,
        offset: u64,
        bytes: u64,
        mut copy: impl FnMut(u64, u64, usize) -> Result<()>,
    ) -> Result<()> {
        assert!(offset + bytes <= self.bytes, "bytes of page-locked memory");
        let slab_bytes = self.memory.shared.slab_bytes as u64;
        let mut done = 0;
        while done < bytes {
            let start = offset + done;
            let first = (start / slab_bytes) as usize;
            let mut last = first;
            let end_of = |slab: usize| (slab as u64 + 1) * slab_bytes;
            while end_of(last) < offset + bytes
                && self.slabs[last].is_followed_by(self.slabs[last + 1], slab_bytes)
            {
                last += 1;
            }
            let piece = end_of(last).min(offset + bytes) - start;
            copy(self.slabs[first].address + start % slab_bytes, done, piece as usize)?;
            done += piece;
        }
        Ok(())
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        let slabs = self.slabs.drain(..).rev();
        self.memory.shared.lock().idle.extend(slabs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::EmulatedPlatform;

    #[test]
    fn bytes_come_back_whatever_slabs_they_cross() {
        let platform = Arc::new(EmulatedPlatform::new());
        let memory = DeviceMemory::new(platform.clone(), 1 << 20);
        let host = HostMemory::of_slabs(platform, 64 * SLAB_BYTES_MIN, SLAB_BYTES_MIN, 64);
        let values: Vec<u8> = (0..20_000u32).map(|number| (number * 7 % 251) as u8).collect();
        let source = memory.upload(&values, Stream(0)).unwrap();
        // Adjacent slabs, and slabs that are not.
        let mut others: Vec<HostBytes> = (0..5).map(|_| host.allocate(1).unwrap().unwrap()).collect();
        let whole = host.allocate(30_000).unwrap().unwrap();
        others.remove(3);
        others.remove(1);
        let scattered = host.allocate(30_000).unwrap().unwrap();
        let copies = |kept: &HostBytes| {
            let mut count = 0;
            kept.pieces(0, kept.bytes(), |_, _, _| {
                count += 1;
                Ok(())
            })
            .unwrap();
            count
        };
        assert_eq!((copies(&whole), copies(&scattered)), (1, 3));
        for kept in [whole, scattered] {
            come_back(&memory, &kept, &values, &source);
        }
    }

    fn come_back(memory: &DeviceMemory, kept: &HostBytes, values: &[u8], source: &crate::device::Buffer) {
        assert_eq!((kept.bytes(), kept.locked_bytes()), (30_000, 32_768));
        kept.download(memory, 5000, (source.address(), 20_000), Stream(0)).unwrap();
        memory.platform().wait(Stream(0)).unwrap();
        let mut read = vec![0; 12_345];
        kept.read(6000, &mut read);
        assert_eq!(read, values[1000..13_345]);
        let target = memory.allocate(9000, Stream(0)).unwrap();
        kept.upload(memory, 5000 + 10_000, (target.address(), 9000), Stream(0)).unwrap();
        assert_eq!(memory.download::<u8>(&target, 9000, Stream(0)).unwrap(), values[10_000..19_000]);
    }

    #[test]
    fn one_copy_stays_within_one_extent_though_the_next_one_lies_beside_it() {
        let platform = Arc::new(EmulatedPlatform::new());
        let memory = DeviceMemory::new(platform.clone(), 1 << 20);
        let host = HostMemory::of_slabs(platform, 64 * SLAB_BYTES_MIN, SLAB_BYTES_MIN, 4);
        let bytes = 9 * SLAB_BYTES_MIN + 123;
        let kept = host.allocate(bytes).unwrap().unwrap();
        let starts: Vec<u64> = host.shared.lock().extents.iter().map(|(start, _)| *start).collect();
        let is_beside = |pair: &[u64]| pair[0].abs_diff(pair[1]) == 4 * SLAB_BYTES_MIN;
        assert!(starts.len() == 3 && starts.windows(2).all(is_beside), "not side by side: {starts:x?}");
        let values: Vec<u8> = (0..bytes).map(|place| (place % 251) as u8).collect();
        let source = memory.upload(&values, Stream(0)).unwrap();
        kept.download(&memory, 0, (source.address(), bytes), Stream(0)).unwrap();
        memory.platform().wait(Stream(0)).unwrap();
        let mut read = vec![0; bytes as usize];
        kept.read(0, &mut read);
        assert!(read == values);
        let target = memory.allocate(bytes, Stream(0)).unwrap();
        kept.upload(&memory, 0, (target.address(), bytes), Stream(0)).unwrap();
        assert!(memory.download::<u8>(&target, bytes as usize, Stream(0)).unwrap() == values);
    }

    #[test]
    fn no_more_than_the_budget_is_locked_and_slabs_are_used_again() {
        let host = HostMemory::new(Arc::new(EmulatedPlatform::new()), 64 * SLAB_BYTES_MIN);
        let first = host.allocate(40 * SLAB_BYTES_MIN).unwrap().unwrap();
        assert!(host.allocate(25 * SLAB_BYTES_MIN).unwrap().is_none());
        let second = host.allocate(24 * SLAB_BYTES_MIN).unwrap().unwrap();
        assert!(host.allocate(1).unwrap().is_none());
        drop(first);
        assert!(host.allocate(40 * SLAB_BYTES_MIN).unwrap().is_some());
        drop(second);
        assert_eq!(host.shared.lock().slab_count, 64);
        assert_eq!(host.shared.lock().idle.len(), 64);
        assert!(HostMemory::new(Arc::new(EmulatedPlatform::new()), 0).allocate(1).unwrap().is_none());
    }
}
