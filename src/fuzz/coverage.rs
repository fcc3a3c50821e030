//! Which edges of the code have run, where it was compiled to count them (scripts/fuzz.sh: `-Cpasses=sancov-module`, and the
//! kernels by clang): a counter of 8 bits for each.
//!
//! Invariants: counters are only read and set to zero between two inputs. Without them nothing is ever new.
//!
//! Source: Clang's documentation of SanitizerCoverage, "Inline 8bit-counters".

#![expect(unsafe_code, reason = "the compiler gives the counters as two addresses")]

use std::sync::{Mutex, PoisonError};

static REGIONS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called at the start, once for each part of the program that counts.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let region = (start as usize, stop as usize);
    let mut regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if region.0 < region.1 && !regions.contains(&region) {
        regions.push(region);
    }
}

/// Called with the addresses of the edges. Ignored.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(_start: *const usize, _stop: *const usize) {}

/// What has been seen of every edge: classes of how often it ran within one input, a bit each.
#[derive(Default)]
pub struct Coverage {
    seen: Vec<u8>,
}

impl Coverage {
    /// Sets all counters to zero.
    pub fn clear(&self) {
        for_counters(|counters| counters.fill(0));
    }

    /// Takes what has run since, and says how many edges ran as never before.
    pub fn take(&mut self) -> usize {
        let (mut at, mut new) = (0, 0);
        for_counters(|counters| {
            self.seen.resize(self.seen.len().max(at + counters.len()), 0);
            for (seen, counter) in self.seen[at..].iter_mut().zip(counters.iter()) {
                let class = class_of(*counter);
                if class & !*seen != 0 {
                    *seen |= class;
                    new += 1;
                }
            }
            at += counters.len();
        });
        new
    }

    /// How many edges have run, and how many there are.
    pub fn edges(&self) -> (usize, usize) {
        (self.seen.iter().filter(|seen| **seen != 0).count(), self.seen.len())
    }
}

/// 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, and more.
fn class_of(counter: u8) -> u8 {
    match counter {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        _ => 128,
    }
}

fn for_counters(mut visit: impl FnMut(&mut [u8])) {
    for (start, stop) in REGIONS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        // SAFETY: the compiler's own counters, which live as long as the program. Threads that still run count in them without
        // synchronisation, so that a count may be lost: they are a hint and nothing else.
        visit(unsafe { std::slice::from_raw_parts_mut(*start as *mut u8, stop - start) });
    }
}
