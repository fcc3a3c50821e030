//! How fast this machine is beside the one that the rates of `choice.rs` were measured on: the 16 processors beside one H200.
//!
//! The estimates of a query count rows, values, bytes and launches. What each costs was measured on that machine. On another one a thread,
//! the device's memory, its launches and its bus differ by a factor each, which is measured when the engine starts. An emulated device is
//! measured neither, nor are the threads beside it: what it runs is the same on every machine.

use std::{hint::black_box, time::Instant};

use pystachio_gpu::device::{DeviceMemory, DeviceSpeed};

/// What [`thread_ns`] and [`DeviceSpeed`] were on that machine.
const REFERENCE_THREAD_NS: f64 = 2.63;
const REFERENCE: DeviceSpeed =
    DeviceSpeed { wait_ns: 10_500.0, memory_byte_ns: 0.000_234, bus_byte_ns: 0.018 };

/// Slots of the table that threads are measured with, 4 MB: as many as a cache of the second level does not hold.
const SLOTS: usize = 1 << 19;
const LOOKUPS: usize = 1 << 20;
const TRIES: usize = 3;

/// The times of this machine as multiples of that one's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineTimes {
    /// Work of a thread.
    pub thread: f64,
    /// Launches, and waits for the device.
    pub launch: f64,
    /// Bytes that the device's memory reads and writes.
    pub memory: f64,
    /// Bytes from the host to the device.
    pub bus: f64,
}

impl MachineTimes {
    /// Those of the machine that the rates were measured on.
    pub const REFERENCE: Self = Self { thread: 1.0, launch: 1.0, memory: 1.0, bus: 1.0 };

    /// Measures the machine that has a device. A device that can't be measured, as one of which others leave little memory, counts as
    /// the one that the rates were measured on.
    pub fn measure(memory: &DeviceMemory) -> Self {
        let thread = thread_ns();
        let device = DeviceSpeed::measure(memory).unwrap_or_else(|error| {
            tracing::warn!("the device's speed is not known: {error}");
            REFERENCE
        });
        let times = Self {
            thread: thread / REFERENCE_THREAD_NS,
            launch: device.wait_ns / REFERENCE.wait_ns,
            memory: device.memory_byte_ns / REFERENCE.memory_byte_ns,
            bus: device.bus_byte_ns / REFERENCE.bus_byte_ns,
        };
        tracing::info!(
            "speed: a thread looks a key up in {thread:.2} ns, {:.1} us for a wait for the device, {:.0} GB/s in its memory, {:.1} GB/s to it",
            device.wait_ns / 1e3,
            1.0 / device.memory_byte_ns,
            1.0 / device.bus_byte_ns,
        );
        times
    }
}

/// Nanoseconds in which a thread looks a key up in a hash table: arithmetic, and reads of memory that no cache near it holds.
fn thread_ns() -> f64 {
    let slot_of = |key: u64| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 45) as usize % SLOTS;
    let mut table = vec![0_u64; SLOTS];
    for key in 0..SLOTS as u64 / 2 {
        table[slot_of(key)] = key;
    }
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let begin = Instant::now();
        let found = (0..LOOKUPS as u64).filter(|key| table[slot_of(black_box(*key))] == *key).count();
        black_box(found);
        least = least.min(begin.elapsed().as_nanos() as f64);
    }
    least / LOOKUPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_takes_time() {
        let nanoseconds = thread_ns();
        assert!(nanoseconds > 0.0 && nanoseconds.is_finite(), "{nanoseconds}");
    }
}
