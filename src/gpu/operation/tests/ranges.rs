//! Bytes copied between places of any alignment.

use super::*;
use crate::operation::ByteRange;

#[test]
fn ranges_are_copied_whatever_their_places_in_words_are() {
    const SOURCE_BYTES: u64 = 100_000;
    /// Between targets, which nothing is to be written to.
    const GAP: u8 = 0xa5;
    let queue = queue();
    let mut numbers = Numbers(SEED);
    let bytes: Vec<u8> = (0..SOURCE_BYTES).map(|_| numbers.next(256) as u8).collect();
    let source = queue.upload(&bytes).unwrap();
    let mut wanted: Vec<(u64, u64, u64)> = Vec::new();
    for from in 0..9 {
        for to in 0..9 {
            wanted.extend((0..28).map(|length| (from, to, length)));
        }
    }
    // More than a tile, and up to the last byte.
    wanted.extend([
        (1, 2, 70_001),
        (3, 3, 70_000),
        (0, 4, 65_536),
        (8, 24, 40_008),
        (SOURCE_BYTES - 7, 5, 7),
    ]);
    let (mut end, mut ranges) = (0, Vec::new());
    for (from, to, length) in &wanted {
        let target = (end + 16_u64).next_multiple_of(64) + to;
        ranges.push((*from, target, *length));
        end = target + length;
    }
    let target = queue.allocate_filled::<u8>(end + 16, GAP).unwrap();
    let mut expected = vec![GAP; end as usize + 16];
    for (from, to, length) in &ranges {
        let (from, to, length) = (*from as usize, *to as usize, *length as usize);
        expected[to..to + length].copy_from_slice(&bytes[from..from + length]);
    }
    let range = |(from, to, bytes): &(u64, u64, u64)| ByteRange {
        source: source.address() + from,
        target: target.address() + to,
        bytes: *bytes,
    };
    queue.copy_ranges(&ranges.iter().map(range).collect::<Vec<_>>()).unwrap();
    let copied: Vec<u8> = queue.download(&target, expected.len()).unwrap();
    let wrong = copied.iter().zip(&expected).position(|(copied, expected)| copied != expected);
    assert_eq!(wrong, None);
}
