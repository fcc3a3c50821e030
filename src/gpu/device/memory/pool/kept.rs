//! Freed blocks kept by size for the next allocation of the same size: most allocations have a size
//! that occurred before.
//!
//! A block used by one stream alone goes to that stream first, which may write into it at once. Any
//! other stream gets it once its users have ended. The pool asks the device about a few blocks
//! only: concurrent queries have many streams, and the pool's lock is held meanwhile.
//!
//! Invariants: blocks are kept up to a number of bytes; the size that was unused for the longest
//! time is dropped first, all blocks of it together.
//!
//! Deliberately absent: the device, and positions. The caller passes the test whether streams have
//! ended their use.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
};

use pystachio_plan::Result;

use crate::device::Stream;

/// How many blocks of several streams are tested for one whose users have ended, and how many
/// streams for one of theirs. Blocks are in the order of their return: if the first is in use, most
/// later ones are too.
const LOOKED_AT_MAX: usize = 4;
/// If too much is kept, it shrinks by this part at once, so that a return of a block seldom has to
/// search for blocks to drop.
const LET_GO_PART: u64 = 8;

/// A stream, and its position up to which it may use a block.
pub(super) type Use = (Stream, u64);

/// Blocks by size.
#[derive(Default)]
pub(super) struct KeptBlocks {
    sizes: HashMap<u64, BlocksOfSize>,
    bytes: u64,
    /// How often blocks were put and taken.
    use_count: u64,
}

/// Blocks of one size.
#[derive(Default)]
struct BlocksOfSize {
    /// Blocks used by one stream alone.
    own: BTreeMap<Stream, VecDeque<(u64, u64)>>,
    /// Blocks used by several.
    shared: VecDeque<(u64, Vec<Use>)>,
    /// The stream that was tested last for one of its blocks.
    looked_at: Option<Stream>,
    /// The time of the last put or take.
    used_at: u64,
    count: u64,
}

/// A dropped block: its start, its size, and the streams that may still use it.
pub(super) struct LetGo {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) uses: Vec<Use>,
}

impl KeptBlocks {
    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps a block that streams have used.
    pub(super) fn put(&mut self, address: u64, bytes: u64, uses: Vec<Use>) {
        self.use_count += 1;
        let blocks = self.sizes.entry(bytes).or_default();
        match uses.as_slice() {
            [(stream, moment)] => blocks.own.entry(*stream).or_default().push_back((address, *moment)),
            _ => blocks.shared.push_back((address, uses)),
        }
        blocks.count += 1;
        blocks.used_at = self.use_count;
        self.bytes += bytes;
    }

    /// A block that a stream may use at once: the last one of its own, or one whose other users
    /// have ended, as `are_done` tells.
    ///
    /// # Errors
    ///
    /// Errors of `are_done`.
    pub(super) fn take(
        &mut self,
        bytes: u64,
        stream: Stream,
        are_done: impl FnMut(&[Use]) -> Result<bool>,
    ) -> Result<Option<u64>> {
        let Some(blocks) = self.sizes.get_mut(&bytes) else { return Ok(None) };
        let found = match blocks.take_own(stream) {
            None => blocks.take_done(are_done)?,
            own => own,
        };
        let Some(address) = found else { return Ok(None) };
        self.use_count += 1;
        blocks.used_at = self.use_count;
        blocks.count -= 1;
        if blocks.count == 0 {
            self.sizes.remove(&bytes);
        }
        self.bytes -= bytes;
        Ok(Some(address))
    }

    /// The blocks in excess of `bytes_max`.
    pub(super) fn take_surplus(&mut self, bytes_max: u64) -> Vec<LetGo> {
        let mut surplus = Vec::new();
        if self.bytes <= bytes_max {
            return surplus;
        }
        let mut by_use: Vec<(u64, u64)> =
            self.sizes.iter().map(|(bytes, blocks)| (blocks.used_at, *bytes)).collect();
        by_use.sort_unstable();
        for (_, bytes) in by_use {
            if self.bytes <= bytes_max - bytes_max / LET_GO_PART {
                break;
            }
            let Some(blocks) = self.sizes.remove(&bytes) else { continue };
            self.bytes -= bytes * blocks.count;
            blocks.let_go(bytes, &mut surplus);
        }
        surplus
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> Vec<LetGo> {
        let mut all = Vec::new();
        self.bytes = 0;
        for (bytes, blocks) in std::mem::take(&mut self.sizes) {
            blocks.let_go(bytes, &mut all);
        }
        all
    }
}

impl BlocksOfSize {
    fn take_own(&mut self, stream: Stream) -> Option<u64> {
        let own = self.own.get_mut(&stream)?;
        let (address, _) = own.pop_back()?;
        if own.is_empty() {
            self.own.remove(&stream);
        }
        Some(address)
    }

    fn take_done(&mut self, mut are_done: impl FnMut(&[Use]) -> Result<bool>) -> Result<Option<u64>> {
        for place in 0..self.shared.len().min(LOOKED_AT_MAX) {
            if are_done(&self.shared[place].1)? {
                return Ok(self.shared.remove(place).map(|(address, _)| address));
            }
        }
        let after = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let until = self.looked_at.map_or(Bound::Excluded(Stream(0)), Bound::Included);
        let in_turn =
            self.own.range((after, Bound::Unbounded)).chain(self.own.range((Bound::Unbounded, until)));
        let first = |(stream, own): (&Stream, &VecDeque<(u64, u64)>)| Some((*stream, own.front()?.1));
        let looked_at: Vec<Use> = in_turn.take(LOOKED_AT_MAX).filter_map(first).collect();
        for of_stream in looked_at {
            self.looked_at = Some(of_stream.0);
            if !are_done(&[of_stream])? {
                continue;
            }
            let own = self.own.get_mut(&of_stream.0);
            let address = own.and_then(|own| own.pop_front()).map(|(address, _)| address);
            if self.own.get(&of_stream.0).is_some_and(VecDeque::is_empty) {
                self.own.remove(&of_stream.0);
            }
            return Ok(address);
        }
        Ok(None)
    }

    fn let_go(self, bytes: u64, target: &mut Vec<LetGo>) {
        for (stream, blocks) in self.own {
            target.extend(blocks.into_iter().map(|(address, moment)| LetGo {
                address,
                bytes,
                uses: vec![(stream, moment)],
            }));
        }
        target.extend(self.shared.into_iter().map(|(address, uses)| LetGo { address, bytes, uses }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody_is_done(_: &[Use]) -> Result<bool> {
        Ok(false)
    }

    #[test]
    fn a_stream_has_its_own_last_block_first_and_those_of_others_when_they_are_done() {
        let mut kept = KeptBlocks::default();
        for (address, stream) in [(1, 7), (2, 7), (3, 8)] {
            kept.put(address, 100, vec![(Stream(stream), address)]);
        }
        kept.put(4, 100, vec![(Stream(7), 9), (Stream(8), 9)]);
        assert_eq!((kept.bytes(), kept.take(200, Stream(7), nobody_is_done).unwrap()), (400, None));
        assert_eq!(kept.take(100, Stream(7), nobody_is_done).unwrap(), Some(2));
        assert_eq!(kept.take(100, Stream(9), nobody_is_done).unwrap(), None);
        // The shared one is in use; the stream whose use has ended gives its first.
        let eight_is_done = |uses: &[Use]| Ok(uses.iter().all(|(stream, _)| *stream == Stream(8)));
        assert_eq!(kept.take(100, Stream(9), eight_is_done).unwrap(), Some(3));
        assert_eq!(kept.take(100, Stream(9), eight_is_done).unwrap(), None);
        assert_eq!(kept.take(100, Stream(9), |_| Ok(true)).unwrap(), Some(4));
        assert_eq!((kept.bytes(), kept.take_all().len()), (100, 1));
    }

    #[test]
    fn streams_are_looked_at_in_turn() {
        let mut kept = KeptBlocks::default();
        (0..10).for_each(|stream| kept.put(stream, 1, vec![(Stream(stream), 1)]));
        let mut looked_at = Vec::new();
        for _ in 0..5 {
            let taken = kept.take(1, Stream(99), |uses| {
                looked_at.push(uses[0].0.0);
                Ok(false)
            });
            assert_eq!(taken.unwrap(), None);
        }
        assert_eq!(looked_at, [(0..10).collect::<Vec<_>>(), (0..10).collect()].concat());
    }

    #[test]
    fn what_was_used_least_lately_is_let_go() {
        let mut kept = KeptBlocks::default();
        for size in [10, 20, 30, 40] {
            kept.put(size, size, vec![(Stream(1), size)]);
        }
        assert!(kept.take_surplus(100).is_empty());
        assert_eq!(kept.take(10, Stream(1), nobody_is_done).unwrap(), Some(10));
        kept.put(10, 10, vec![(Stream(1), 5)]);
        // 99 leave room for 87: those of 20 are not enough.
        let sizes: Vec<u64> = kept.take_surplus(99).iter().map(|block| block.bytes).collect();
        assert_eq!((sizes, kept.bytes()), (vec![20], 80));
        let error = kept.take(30, Stream(2), |_| Err(pystachio_plan::Error::internal("lost")));
        assert!(error.is_err() && kept.bytes() == 80);
    }
}
