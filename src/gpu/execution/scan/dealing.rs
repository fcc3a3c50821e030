//! Which row groups of a table each rank scans.
//!
//! ```text
//! row groups, in the order of files:  0   1   2   3   4   5   6      each to the rank that has the fewest bytes so far
//! ranks:                              0   1   2   0   1   2   0
//! ```
//!
//! All row groups are dealt, also those that a query's conditions rule out, by what they have in all of their columns: a rank has
//! the same ones in every query, so that what its device's cache keeps of one is there for the next. Row groups side by side go to
//! different ranks, so that what conditions leave of a sorted table is spread too.
//!
//! Invariants: a pure function of the footers and the number of ranks. Each row group is dealt to one rank, and no rank has more
//! than the largest row group more than another.
//!
//! Deliberately absent: parts of row groups; a table of fewer row groups than ranks leaves some without rows.

use crate::exchange::Rank;

/// The ranks that row groups of these sizes are dealt to, in order.
///
/// # Panics
///
/// If there are no ranks.
pub(super) fn deal(row_group_bytes: impl IntoIterator<Item = u64>, rank_count: usize) -> Vec<Rank> {
    assert!((1..=usize::from(u16::MAX)).contains(&rank_count), "ranks of a query");
    let mut dealt_bytes = vec![0u64; rank_count];
    let mut next = |bytes: u64| {
        let least = dealt_bytes.iter().enumerate().min_by_key(|(_, bytes)| **bytes);
        let place = least.map_or(0, |(place, _)| place);
        // What has no bytes is dealt all the same, in turn.
        dealt_bytes[place] = dealt_bytes[place].saturating_add(bytes.max(1));
        Rank(place as u16)
    };
    row_group_bytes.into_iter().map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(sizes: &[u64], rank_count: usize) -> Vec<u16> {
        deal(sizes.iter().copied(), rank_count).into_iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn row_groups_of_one_size_are_dealt_in_turn() {
        assert_eq!(dealt(&[7; 7], 3), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(dealt(&[0; 4], 2), [0, 1, 0, 1]);
        assert_eq!(dealt(&[5; 3], 1), [0; 3]);
        assert_eq!(dealt(&[5, 5], 4), [0, 1]);
        assert!(dealt(&[], 4).is_empty());
    }

    #[test]
    fn a_large_row_group_leaves_small_ones_to_others() {
        assert_eq!(dealt(&[10, 4, 4, 4, 1], 2), [0, 1, 1, 1, 0]);
        assert_eq!(dealt(&[u64::MAX, u64::MAX, 1], 2), [0, 1, 0]);
    }

    #[test]
    fn no_rank_has_more_than_the_largest_row_group_more_than_another() {
        let mut random = 0x5eed_u64;
        for rank_count in 1..9 {
            let sizes: Vec<u64> = (0..200)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    1 + (random >> 33) % 1000
                })
                .collect();
            let mut bytes = vec![0; rank_count];
            for (rank, size) in deal(sizes.iter().copied(), rank_count).into_iter().zip(&sizes) {
                bytes[rank.place()] += size;
            }
            let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
            assert!(most - least <= *sizes.iter().max().unwrap(), "{rank_count} ranks: {bytes:?}");
            assert_eq!(bytes.iter().sum::<u64>(), sizes.iter().sum::<u64>());
        }
    }
}
