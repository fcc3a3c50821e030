//! The speed of the link to other ranks, measured when ranks are connected and while queries run.
//!
//! ```text
//! transfers of 16 MB and more: bytes, time ─┬─► window: 64 MB and 5 ms at least ─┐
//!                                           └─► window …                         ├─► the fastest of all
//!                                                                                ┘
//! ```
//!
//! The time of a small transfer is mostly its start and a poll's pause, which say nothing about the
//! link. A window is slower if a rank waits for others, or if a GPU does something for the first
//! time; it is never faster than the link by more than a pause between polls. So the fastest window
//! counts, after a minimum number of windows.
//!
//! If ranks are on several hosts, only transfers between hosts count: that link is the slower one.
//!
//! Deliberately absent: the transfers when ranks are connected (`warm_up.rs`). A link that was not
//! measured does not count as slow.

use std::{sync::Mutex, time::Duration};

use pystachio_engine::locking::lock_whole;

/// Smaller transfers do not count: this is 64 µs of the fastest links, as long as starting a
/// transfer and detecting its end.
const TRANSFER_BYTES_MIN: u64 = 16 << 20;
/// The least bytes of a window: some groups of transfers.
const WINDOW_BYTES_MIN: u64 = 64 << 20;
/// The least time of a window: five times the longest pause between polls, so that it is measured
/// to a fifth.
const WINDOW_TIME_MIN: Duration = Duration::from_millis(5);
/// The number of windows before the fastest counts: half a gigabyte.
const WINDOWS_MIN: u32 = 8;
/// A link is slow below this number of bytes a second each way.
///
/// Packing a cell of 8 bytes to 4 reads it three times and writes it once on this side; the other
/// side reads 4 bytes and writes 8. That is 48 bytes of GPU memory traffic, where moving it
/// unpacked takes 32. At 2 TB/s those 16 more are 8 ps, and the additional passes at worst 24 ps.
/// The link saves 4 bytes: 16 ps at 250 GB/s, which gains nothing, and 80 ps at 50 GB/s, three
/// times the cost. Links between GPUs of one host measured 160 to 360 GB/s, those through memory of
/// the host and networks of 200 Gbit/s 23: none is near the limit.
const SLOW_BYTES_PER_S: f64 = 50e9;
/// A link is slow enough to compress texts below this number of bytes a second each way.
///
/// A warp compresses a piece of 64 KB by itself, some ten bytes in a few hundred cycles: all
/// multiprocessors together 20 to 50 GB/s, and as much to decompress. Text shrinks to half, so a
/// link of 10 GB/s saves 50 ps a byte, which is the cost of compression at 20 GB/s. It was not
/// measured on a GPU yet.
const VERY_SLOW_BYTES_PER_S: f64 = 10e9;

/// A rank's measurements since it was connected.
#[derive(Debug, Default)]
pub struct LinkMeter {
    /// Numbers, which a panic leaves usable.
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    window_bytes: u64,
    window_time: Duration,
    window_count: u32,
    fastest_bytes_per_s: f64,
}

impl LinkMeter {
    /// Adds bytes sent to other ranks, or received from them, whichever is more, and the time in
    /// which transfers were running.
    pub fn note(&self, bytes: u64, time: Duration) {
        if bytes < TRANSFER_BYTES_MIN {
            return;
        }
        let mut state = lock_whole(&self.state);
        state.window_bytes += bytes;
        state.window_time += time;
        if state.window_bytes < WINDOW_BYTES_MIN || state.window_time < WINDOW_TIME_MIN {
            return;
        }
        let bytes_per_s = state.window_bytes as f64 / state.window_time.as_secs_f64();
        *state = LinkState {
            window_count: state.window_count.saturating_add(1),
            fastest_bytes_per_s: state.fastest_bytes_per_s.max(bytes_per_s),
            ..LinkState::default()
        };
    }

    /// Sets a lower bound for the link's bytes a second each way.
    pub fn know(&self, bytes_per_s: f64) {
        let mut state = lock_whole(&self.state);
        state.fastest_bytes_per_s = state.fastest_bytes_per_s.max(bytes_per_s);
        state.window_count = state.window_count.max(WINDOWS_MIN);
    }

    /// The link's bytes a second each way, once known.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let state = lock_whole(&self.state);
        (state.window_count >= WINDOWS_MIN).then_some(state.fastest_bytes_per_s)
    }

    /// Whether the link is known to be slow.
    pub fn is_slow(&self) -> bool {
        self.is_below(SLOW_BYTES_PER_S)
    }

    /// Whether it is known to be slow enough for compressing texts.
    pub fn is_very_slow(&self) -> bool {
        self.is_below(VERY_SLOW_BYTES_PER_S)
    }

    fn is_below(&self, bytes_per_s: f64) -> bool {
        self.bytes_per_s().is_some_and(|measured| measured < bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_known_of_a_link_from_the_beginning_counts_at_once() {
        let meter = LinkMeter::default();
        assert!(!meter.is_slow());
        meter.know(5e9);
        assert!(meter.is_slow() && meter.is_very_slow());
        meter.know(20e9);
        assert!(meter.is_slow() && !meter.is_very_slow());
        meter.know(120e9);
        assert_eq!((meter.is_slow(), meter.bytes_per_s()), (false, Some(120e9)));
    }

    #[test]
    fn a_link_is_slow_when_its_fastest_window_is() {
        let meter = LinkMeter::default();
        // 25 GB/s: each window has 125 MB.
        (0..39).for_each(|_| meter.note(25_000_000, MS));
        assert_eq!((meter.bytes_per_s(), meter.is_slow()), (None, false));
        meter.note(25_000_000, MS);
        let measured = meter.bytes_per_s().unwrap();
        assert!((measured / 25e9 - 1.0).abs() < 1e-6 && meter.is_slow(), "{measured}");
        // A rank that waits for others does not make the link slow.
        (0..5).for_each(|_| meter.note(200_000_000, MS));
        (0..100).for_each(|_| meter.note(64 << 20, 1000 * MS));
        assert!((meter.bytes_per_s().unwrap() / 200e9 - 1.0).abs() < 1e-6 && !meter.is_slow());
    }

    #[test]
    fn little_that_moves_tells_nothing() {
        let meter = LinkMeter::default();
        // Regardless of their number and time.
        (0..10_000).for_each(|_| meter.note(1 << 20, MS));
        assert_eq!((meter.bytes_per_s(), meter.is_slow()), (None, false));
        // Large ones, of which some were found to have ended at once.
        (0..100).for_each(|_| meter.note(1 << 30, MS / 1000));
        assert_eq!((meter.bytes_per_s(), meter.is_slow()), (None, false));
    }
}
