//! How fast the link to other ranks is, from what ranks move when they are connected and queries after that.
//!
//! ```text
//! transfers of 16 MB and more: bytes, time ─┬─► window: 64 MB and 5 ms at least ─┐
//!                                           └─► window …                         ├─► the fastest of all
//!                                                                                ┘
//! ```
//!
//! Of small transfers the time is that of their beginning and of a look, which says nothing of the link.
//! A rank that waits for others makes a window slow, and so does what a GPU does for the first time; nothing makes one faster than the link is by
//! more than a look's interval. So the fastest window counts, and none is believed before there are some.
//!
//! Where ranks are on several hosts, what moves between hosts counts alone: that link is the slower one.
//!
//! Deliberately absent: what moves when ranks are connected (`warm_up.rs`). A link of which nothing is known is not slow.

use std::{sync::Mutex, time::Duration};

use pystachio_engine::locking::lock_whole;

/// Transfers that count have so many bytes: 64 µs of the fastest links, and as much as it takes to begin them and to find them over.
const TRANSFER_BYTES_MIN: u64 = 16 << 20;
/// What a window has at least: some groups of transfers.
const WINDOW_BYTES_MIN: u64 = 64 << 20;
/// And takes at least: five times the longest pause between looks, so that it is measured to a fifth.
const WINDOW_TIME_MIN: Duration = Duration::from_millis(5);
/// So many windows are measured before the fastest is believed: half a gigabyte.
const WINDOWS_MIN: u32 = 8;
/// A link that moves fewer bytes a second each way is slow.
///
/// To pack a cell of 8 bytes to 4 it is read three times and written once here, and 4 bytes are read and 8 written there: with what is packed some
/// 48 bytes of a GPU's memory, where 32 are moved as they are. At 2 TB/s those 16 more are 8 ps, and the passes of their own at worst 24 ps. A link saves
/// 4 bytes: 16 ps at 250 GB/s, where nothing is gained, and 80 at 50 GB/s, three times what it costs. Links between GPUs of one host measured
/// 160 to 360 GB/s, those through memory of the host and networks of 200 Gbit/s 23: none lies near.
const SLOW_BYTES_PER_S: f64 = 50e9;
/// A link that moves fewer bytes a second each way is so slow that texts are compressed for it.
///
/// A warp compresses a piece of 64 KB by itself, some ten bytes in a few hundred cycles: of all multiprocessors together 20 to 50 GB/s, and as
/// much to decompress. Text becomes half of what it was, so that a link of 10 GB/s saves 50 ps a byte, what compressing it takes at 20 GB/s. It was
/// not measured on a GPU yet.
const VERY_SLOW_BYTES_PER_S: f64 = 10e9;

/// A rank's measurements since it was connected.
#[derive(Debug, Default)]
pub struct LinkMeter {
    /// Whole wherever a panic leaves it: numbers.
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
    /// Notes that so many bytes went to other ranks, or came from them, whichever is more, in a time in which transfers were on their way.
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

    /// Takes it that the link moves at least so many bytes a second each way.
    pub fn know(&self, bytes_per_s: f64) {
        let mut state = lock_whole(&self.state);
        state.fastest_bytes_per_s = state.fastest_bytes_per_s.max(bytes_per_s);
        state.window_count = state.window_count.max(WINDOWS_MIN);
    }

    /// Bytes a second that the link moves each way, once that is known.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let state = lock_whole(&self.state);
        (state.window_count >= WINDOWS_MIN).then_some(state.fastest_bytes_per_s)
    }

    /// Whether the link is known to be slow.
    pub fn is_slow(&self) -> bool {
        self.is_below(SLOW_BYTES_PER_S)
    }

    /// Whether it is known to be so slow that texts are worth compressing.
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
        // A rank that waits for others is no slow link.
        (0..5).for_each(|_| meter.note(200_000_000, MS));
        (0..100).for_each(|_| meter.note(64 << 20, 1000 * MS));
        assert!((meter.bytes_per_s().unwrap() / 200e9 - 1.0).abs() < 1e-6 && !meter.is_slow());
    }

    #[test]
    fn little_that_moves_tells_nothing() {
        let meter = LinkMeter::default();
        // However many there are of them, and however long they take.
        (0..10_000).for_each(|_| meter.note(1 << 20, MS));
        assert_eq!((meter.bytes_per_s(), meter.is_slow()), (None, false));
        // Large ones, of which some were found over at once.
        (0..100).for_each(|_| meter.note(1 << 30, MS / 1000));
        assert_eq!((meter.bytes_per_s(), meter.is_slow()), (None, false));
    }
}
