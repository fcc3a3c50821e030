//! Page-locked memory of the host, for what does not fit on the device.
//!
//! Memory comes in slabs of one size, because page-locking is slow: a slab that is given back is kept for the
//! next one.
//!
//! Invariants: no more than `bytes_max` are page-locked. A slab is given back after the copies from and to it.
#![expect(unsafe_code, reason = "page-locked memory is known by its address")]

use std::sync::{Arc, Mutex, PoisonError};

use pystachio_plan::{ErrorKind, Result};

use super::Platform;

/// Slabs that a budget is made of, unless they would be larger than `SLAB_BYTES_MAX`.
const SLABS_MIN: u64 = 64;
/// Large enough that a copy runs at the bus's speed.
const SLAB_BYTES_MAX: u64 = 16 << 20;
/// Slabs are no smaller.
const SLAB_BYTES_MIN: u64 = 4 << 10;

/// Page-locked memory up to a budget. Cheap to clone.
#[derive(Clone)]
pub struct HostMemory {
    shared: Arc<Shared>,
}

struct Shared {
    platform: Arc<dyn Platform>,
    slab_bytes: usize,
    slabs_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Slabs that exist.
    slab_count: usize,
    /// Addresses of those that nobody uses.
    idle: Vec<u64>,
}

impl HostMemory {
    /// Memory of which at most `bytes_max` are page-locked. None is before it is needed.
    pub fn new(platform: Arc<dyn Platform>, bytes_max: u64) -> Self {
        let slab_bytes = (bytes_max / SLABS_MIN).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
        let slabs_max = (bytes_max / slab_bytes) as usize;
        let shared = Shared { platform, slab_bytes: slab_bytes as usize, slabs_max, state: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Bytes of a slab.
    pub fn slab_bytes(&self) -> usize {
        self.shared.slab_bytes
    }

    /// Slabs for `bytes`, or `None` if the budget or the host has not that many.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn slabs(&self, bytes: u64) -> Result<Option<Vec<HostSlab>>> {
        let count = bytes.div_ceil(self.shared.slab_bytes as u64) as usize;
        let mut slabs = Vec::new();
        while slabs.len() < count {
            match self.slab()? {
                Some(slab) => slabs.push(slab),
                None => return Ok(None),
            }
        }
        Ok(Some(slabs))
    }

    fn slab(&self) -> Result<Option<HostSlab>> {
        let shared = &self.shared;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match state.idle.pop() {
            Some(address) => address,
            None if state.slab_count >= shared.slabs_max => return Ok(None),
            None => match shared.platform.allocate_host(shared.slab_bytes) {
                Ok(address) => {
                    state.slab_count += 1;
                    address
                }
                Err(error) if error.kind == ErrorKind::OutOfMemory => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        Ok(Some(HostSlab { memory: self.clone(), address }))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for address in state.idle.drain(..) {
            self.platform.release_host(address, self.slab_bytes);
        }
    }
}

/// A piece of page-locked memory.
pub struct HostSlab {
    memory: HostMemory,
    address: u64,
}

impl HostSlab {
    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies bytes out of it. The copy that wrote them has happened.
    ///
    /// # Panics
    ///
    /// If the bytes are not within the slab.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        assert!(offset + target.len() <= self.memory.slab_bytes(), "bytes of a slab");
        // SAFETY: the platform gave this many bytes, and the slab is this owner's alone.
        let source =
            unsafe { std::slice::from_raw_parts((self.address + offset as u64) as *const u8, target.len()) };
        target.copy_from_slice(source);
    }
}

impl Drop for HostSlab {
    fn drop(&mut self) {
        let mut state = self.memory.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.idle.push(self.address);
    }
}
