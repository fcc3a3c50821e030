//! The number of frames that a library gets at once.
//!
//! Zstandard takes about three times the output as scratch memory. A batch is as large as a bound on that allows, and the
//! same memory serves all batches of a load, one after another.

use std::ops::Range;

use crate::device::{BatchSize, DeviceMemory, FrameFormat};

/// Scratch memory of one load at most: enough for some hundred pages of a megabyte.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;
/// The part of the memory left to the query: several readers load at once, and the rest is for
/// columns.
const SCRATCH_PARTS: u64 = 16;
/// Frames of a batch at most.
const FRAMES_MAX: usize = 1 << 14;

/// Consecutive frames, in batches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FrameBatches {
    /// Places of the frames. A frame that is too large for the bound is in none.
    pub(super) ranges: Vec<Range<usize>>,
    /// Scratch bytes of the largest batch.
    pub(super) scratch_bytes: u64,
}

impl FrameBatches {
    /// Limit of a load's scratch bytes.
    pub(super) fn scratch_limit(memory: &DeviceMemory) -> u64 {
        SCRATCH_BYTES_MAX.min(memory.available_bytes() / SCRATCH_PARTS)
    }

    /// Batches of frames with so many bytes of output each. `needed`: the scratch bytes of a batch,
    /// if it is possible at all; never less for a larger one.
    pub(super) fn plan(
        target_bytes: &[u64],
        scratch_bytes_max: u64,
        needed: impl Fn(BatchSize) -> Option<u64>,
    ) -> Self {
        let mut batches = Self::default();
        let mut first = 0;
        while first < target_bytes.len() {
            let fits = |end: usize| {
                let frames = &target_bytes[first..end];
                let size = BatchSize {
                    frame_count: frames.len(),
                    target_bytes_max: frames.iter().copied().max().unwrap_or_default(),
                    target_bytes_total: frames.iter().sum(),
                };
                needed(size).filter(|bytes| *bytes <= scratch_bytes_max)
            };
            let end_max = target_bytes.len().min(first + FRAMES_MAX);
            let Some(mut scratch_bytes) = fits(first + 1) else {
                first += 1;
                continue;
            };
            // Binary search: `end` frames fit, `beyond` do not.
            let (mut end, mut beyond) = (first + 1, end_max + 1);
            let mut tried = end_max;
            while end < tried {
                match fits(tried) {
                    Some(bytes) => (end, scratch_bytes) = (tried, bytes),
                    None => beyond = tried,
                }
                tried = end + (beyond - end) / 2;
            }
            batches.ranges.push(first..end);
            batches.scratch_bytes = batches.scratch_bytes.max(scratch_bytes);
            first = end;
        }
        batches
    }
}

/// A frame of one byte, which the library decompresses in place of a page that it must not see.
pub(super) fn stand_in(format: FrameFormat) -> &'static [u8] {
    match format {
        // Magic; one segment, whose size is one byte; that size; the last block, plain, of one byte; the byte.
        FrameFormat::Zstd => &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 1, 0x09, 0, 0, 0],
        // Header; the last block, stored, of one byte; its length, and the complement; the byte; checksum; length.
        FrameFormat::Gzip => &[
            0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1, 1, 0, 0xfe, 0xff, 0, 0x8d, 0xef, 0x02, 0xd2, 1, 0, 0, 0,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three bytes of scratch memory a byte of output.
    fn thrice(size: BatchSize) -> Option<u64> {
        Some(3 * size.target_bytes_total)
    }

    #[test]
    fn batches_stay_within_the_bound_and_leave_out_what_exceeds_it_alone() {
        let batches = FrameBatches::plan(&[10, 20, 5, 101, 30, 40, 31], 300, thrice);
        assert_eq!(batches, FrameBatches { ranges: vec![0..3, 4..6, 6..7], scratch_bytes: 210 });
        assert_eq!(FrameBatches::plan(&[101, 102], 300, thrice), FrameBatches::default());
        let none = FrameBatches::plan(&[1, 1], 300, |_| None);
        assert_eq!(none, FrameBatches::default());
    }

    #[test]
    fn a_format_without_scratch_memory_is_bounded_by_its_frames() {
        let batches = FrameBatches::plan(&vec![1 << 20; FRAMES_MAX + 1], 0, |_| Some(0));
        assert_eq!(batches.ranges, [0..FRAMES_MAX, FRAMES_MAX..FRAMES_MAX + 1]);
        assert_eq!(batches.scratch_bytes, 0);
    }
}
