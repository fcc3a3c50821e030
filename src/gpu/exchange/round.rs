//! Which blocks move in a round: the same answer on every rank, from the reports of all ranks.
//!
//! Every receiver reports its longest free range, and the sender whose blocks it takes first. It
//! takes the blocks of each sender in order as long as they fit. If the first sender's first block
//! does not fit, it takes no blocks of others either, so that room is left for it: otherwise small
//! blocks of others could keep it out for ever.
//!
//! Invariants: pure. Only the reports decide, so sender and receiver agree without further
//! messages.

use super::{ExchangeKey, Rank, message::ControlBlock};

/// The number of each sender's blocks that a receiver takes in an exchange.
pub(super) fn taken_blocks(table: &[ControlBlock], key: ExchangeKey, receiver: Rank) -> Vec<usize> {
    let mut taken = vec![0; table.len()];
    let Some(entry) = table.get(receiver.place()).and_then(|block| block.exchange(key)) else { return taken };
    if entry.is_closed {
        return taken;
    }
    let mut room = entry.room_bytes;
    for turn in 0..table.len() {
        let sender = (entry.first_sender.place() + turn) % table.len();
        let blocks = blocks_of(table, key, sender, receiver);
        for bytes in blocks {
            let Some(left) = room.checked_sub(*bytes) else { break };
            room = left;
            taken[sender] += 1;
        }
        if turn == 0 && taken[sender] == 0 && !blocks.is_empty() {
            break;
        }
    }
    taken
}

/// The sender that a receiver takes first in the next round: the same one as long as its blocks do
/// not fit.
pub(super) fn next_first_sender(
    table: &[ControlBlock],
    key: ExchangeKey,
    receiver: Rank,
    first: Rank,
) -> Rank {
    let waits = !blocks_of(table, key, first.place(), receiver).is_empty()
        && taken_blocks(table, key, receiver).get(first.place()) == Some(&0);
    match waits {
        true => first,
        false => Rank(((first.place() + 1) % table.len().max(1)) as u16),
    }
}

/// Blocks that a sender has for a receiver.
pub(super) fn blocks_of(table: &[ControlBlock], key: ExchangeKey, sender: usize, receiver: Rank) -> &[u64] {
    let entry = table.get(sender).and_then(|block| block.exchange(key));
    entry.and_then(|entry| entry.blocks.get(receiver.place())).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{ExchangeId, QueryId, message::ExchangeEntry};

    const KEY: ExchangeKey = ExchangeKey { query: QueryId(1), exchange: ExchangeId(2) };

    /// The reports of three ranks on blocks for rank 0, which has some room.
    fn table(room_bytes: u64, first_sender: u16, blocks: [&[u64]; 3]) -> Vec<ControlBlock> {
        let block = |blocks: &[u64]| {
            let entry = ExchangeEntry {
                key: KEY,
                is_ended: false,
                is_closed: false,
                first_sender: Rank(first_sender),
                room_bytes,
                announced: None,
                blocks: vec![blocks.to_vec(), vec![64], Vec::new()],
            };
            ControlBlock { exchanges: vec![entry], ..ControlBlock::default() }
        };
        blocks.into_iter().map(block).collect()
    }

    #[test]
    fn blocks_are_taken_in_turn_as_far_as_they_fit() {
        let blocks: [&[u64]; 3] = [&[64, 64], &[128, 64], &[64]];
        let taken = |room, first| taken_blocks(&table(room, first, blocks), KEY, Rank(0));
        assert_eq!(taken(1000, 0), [2, 2, 1]);
        assert_eq!(taken(192, 0), [2, 0, 1]);
        assert_eq!(taken(192, 1), [0, 2, 0]);
        assert_eq!(taken(64, 2), [0, 0, 1]);
        assert_eq!(taken(0, 2), [0, 0, 0]);
    }

    #[test]
    fn a_large_block_is_not_kept_out_by_small_ones() {
        let blocks: [&[u64]; 3] = [&[64], &[640], &[64]];
        let table_of = |room, first| table(room, first, blocks);
        assert_eq!(taken_blocks(&table_of(512, 1), KEY, Rank(0)), [0, 0, 0]);
        let next = |room, first| next_first_sender(&table_of(room, first), KEY, Rank(0), Rank(first));
        assert_eq!([next(512, 0), next(512, 1), next(640, 1), next(512, 2)], [1, 1, 2, 0].map(Rank));
    }

    #[test]
    fn who_is_closed_or_has_not_begun_gets_nothing() {
        let mut table = table(1000, 0, [&[64], &[64], &[64]]);
        table[0].exchanges[0].is_closed = true;
        table[2].exchanges.clear();
        assert_eq!(taken_blocks(&table, KEY, Rank(0)), [0, 0, 0]);
        assert_eq!(taken_blocks(&table, KEY, Rank(2)), [0, 0, 0]);
        assert_eq!(taken_blocks(&table, KEY, Rank(1)), [1, 1, 0]);
    }
}
