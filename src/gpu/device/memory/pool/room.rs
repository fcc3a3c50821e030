//! Which buffers of caches have to go so that a range is long enough.
//!
//! ```text
//! free │ idle │ free │ in use │ idle │ idle │ in use │ idle │ free
//! └── a window: adjacent ───┘          └ a piece ┘      └ a piece ┘   pieces move to adjacent addresses
//! ```
//!
//! A window takes the place of adjacent blocks. Whole pieces can lie anywhere, since the pool
//! decommits them and commits as many side by side. A window suits small buffers, which need less
//! than a piece. Pieces suit large ones, which find no window between buffers in use.
//!
//! This runs only when an allocation would fail. It takes time in proportion to the blocks.
//!
//! Deliberately absent: when a cache last used a buffer. The fewest bytes go.

use std::{collections::BTreeMap, ops::Range};

/// Memory that is free, or that a cache can free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) range: Range<u64>,
    /// Whether a cache has it.
    pub(super) is_cached: bool,
}

/// Ranges to empty, and the bytes that caches lose there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) cached_bytes: u64,
}

/// The pieces of a reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl Block {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn cached_bytes(&self) -> u64 {
        if self.is_cached { self.bytes() } else { 0 }
    }
}

/// The cheapest room for so many bytes. `None` if there is none, whatever caches free.
pub(super) fn cheapest_room(mut blocks: Vec<Block>, bytes: u64, pieces: Pieces) -> Option<Room> {
    blocks.sort_unstable_by_key(|block| block.range.start);
    // A cache may just have freed a buffer that it named.
    blocks.dedup_by(|later, earlier| later.range.start < earlier.range.end);
    let (window, scattered) = (cheapest_window(&blocks, bytes), cheapest_pieces(&blocks, bytes, pieces));
    window.into_iter().chain(scattered).min_by_key(|room| room.cached_bytes)
}

/// The adjacent blocks of so many bytes that cost caches least.
fn cheapest_window(blocks: &[Block], bytes: u64) -> Option<Room> {
    let mut cheapest: Option<Room> = None;
    let (mut first, mut found, mut cached_bytes) = (0, 0, 0);
    for (last, block) in blocks.iter().enumerate() {
        if last > first && blocks[last - 1].range.end != block.range.start {
            (first, found, cached_bytes) = (last, 0, 0);
        }
        found += block.bytes();
        cached_bytes += block.cached_bytes();
        while found - blocks[first].bytes() >= bytes {
            found -= blocks[first].bytes();
            cached_bytes -= blocks[first].cached_bytes();
            first += 1;
        }
        if found >= bytes && cheapest.as_ref().is_none_or(|known| cached_bytes < known.cached_bytes) {
            let range = blocks[first].range.start..block.range.end;
            cheapest = Some(Room { ranges: vec![range], cached_bytes });
        }
    }
    cheapest
}

/// The pieces for so many bytes that cost caches least.
fn cheapest_pieces(blocks: &[Block], bytes: u64, pieces: Pieces) -> Option<Room> {
    // Of each piece, the bytes that are free or cached, and the cached ones.
    let mut filled: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for Block { range, is_cached } in blocks {
        let mut start = range.start;
        while start < range.end {
            let number = (start - pieces.base) / pieces.bytes;
            let end = range.end.min(pieces.base + (number + 1) * pieces.bytes);
            let (found, cached) = filled.entry(number).or_default();
            *found += end - start;
            *cached += if *is_cached { end - start } else { 0 };
            start = end;
        }
    }
    let whole = filled.into_iter().filter(|(_, (found, _))| *found == pieces.bytes);
    let mut by_cost: Vec<(u64, u64)> = whole.map(|(number, (_, cached))| (cached, number)).collect();
    by_cost.sort_unstable();
    let chosen = by_cost.get(..usize::try_from(bytes.div_ceil(pieces.bytes)).ok()?)?;
    let range = |number: u64| {
        let start = pieces.base + number * pieces.bytes;
        start..start + pieces.bytes
    };
    Some(Room {
        ranges: chosen.iter().map(|(_, number)| range(*number)).collect(),
        cached_bytes: chosen.iter().map(|(cached, _)| cached).sum(),
    })
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them of one")]
mod tests {
    use super::*;

    /// Blocks from their lengths: free ones, cached ones, and those in use, which are no blocks.
    fn blocks(base: u64, parts: &[(char, u64)]) -> Vec<Block> {
        let mut start = base;
        let mut blocks = Vec::new();
        for (kind, bytes) in parts {
            let range = start..start + bytes;
            start = range.end;
            if *kind != 'u' {
                blocks.push(Block { range, is_cached: *kind == 'c' });
            }
        }
        blocks
    }

    const PIECES: Pieces = Pieces { base: 1000, bytes: 100 };

    fn room(parts: &[(char, u64)], bytes: u64) -> Option<(Vec<Range<u64>>, u64)> {
        let mut blocks = blocks(PIECES.base, parts);
        blocks.reverse();
        cheapest_room(blocks, bytes, PIECES).map(|room| (room.ranges, room.cached_bytes))
    }

    #[test]
    fn the_adjacent_blocks_that_cost_least_are_chosen() {
        let parts = [('c', 40), ('f', 10), ('u', 5), ('f', 30), ('c', 10), ('f', 10), ('u', 5), ('c', 50)];
        assert_eq!(room(&parts, 30), Some((vec![1055..1085], 0)));
        assert_eq!(room(&parts, 45), Some((vec![1055..1105], 10)));
        // Only as many blocks as are needed.
        assert_eq!(room(&parts, 20), Some((vec![1055..1085], 0)));
        assert_eq!(room(&parts, 51), None);
    }

    #[test]
    fn whole_pieces_are_chosen_where_no_window_is_long_enough() {
        // Pieces 0, 2 and 4 can become free; buffers in use lie between them.
        let parts = [('c', 100), ('u', 100), ('f', 90), ('c', 20), ('u', 90), ('f', 60), ('c', 40)];
        assert_eq!(room(&parts, 200), Some((vec![1200..1300, 1400..1500], 50)));
        assert_eq!(room(&parts, 201), Some((vec![1200..1300, 1400..1500, 1000..1100], 150)));
        assert_eq!(room(&parts, 301), None);
    }

    #[test]
    fn a_buffer_that_was_freed_meanwhile_counts_once() {
        let twice = vec![
            Block { range: 1000..1050, is_cached: false },
            Block { range: 1010..1020, is_cached: true },
            Block { range: 1050..1060, is_cached: true },
        ];
        assert_eq!(
            cheapest_room(twice, 60, PIECES),
            Some(Room { ranges: vec![1000..1060], cached_bytes: 10 })
        );
    }
}
