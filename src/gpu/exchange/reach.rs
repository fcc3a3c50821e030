//! The ranks that one rank's rows go to by an exchange: all of them, or one level of two.
//!
//! ```text
//! 3 hosts of 2 ranks, as rank 3 sees them       0 1 │ 2 3 │ 4 5
//! all                                           ● ●   ● ●   ● ●
//! between hosts                                   ●     ●     ●     ranks of its place
//! within its host                                     ● ●
//! ```
//!
//! Hashes are divided into as many equal parts in ascending order as there are ranks; the owner of
//! a key is the number of its hash's part (`kernels/exchange/partition.cuh`). Ranks are numbered
//! host by host, so the owner's host is the part among as many parts as there are hosts: each of
//! those consists of whole parts of ranks. So between hosts rows are partitioned into as many parts
//! as hosts. Within a host they are partitioned into as many as ranks, of which only those of this
//! host have rows.
//!
//! Invariants: the rank itself is reachable. No block goes to an unreachable one.
//!
//! Deliberately absent: why an exchange has levels (`pystachio_plan`'s `distribute/levels.rs`).

use pystachio_plan::{Error, ExchangeReach, Result};

use super::Rank;

/// Ranks on hosts, with as many ranks on each, numbered host by host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankLayout {
    rank_count: usize,
    host_count: usize,
}

impl RankLayout {
    /// So many ranks on so many hosts.
    ///
    /// # Panics
    ///
    /// If there are none, or hosts differ in their number of ranks.
    pub fn new(rank_count: usize, host_count: usize) -> Self {
        assert!(host_count > 0 && rank_count >= host_count, "ranks on hosts");
        assert!(rank_count.is_multiple_of(host_count), "as many ranks on each host");
        Self { rank_count, host_count }
    }

    /// How many ranks there are.
    pub fn rank_count(&self) -> usize {
        self.rank_count
    }

    /// The number of hosts.
    pub fn host_count(&self) -> usize {
        self.host_count
    }

    /// The number of ranks on each.
    pub fn ranks_of_host(&self) -> usize {
        self.rank_count / self.host_count
    }

    /// Whether two ranks are on one host.
    pub fn are_near(&self, one: Rank, other: Rank) -> bool {
        one.place() / self.ranks_of_host() == other.place() / self.ranks_of_host()
    }

    /// The reachable ranks of a rank.
    pub fn reached(&self, rank: Rank, reach: ExchangeReach) -> ReachedRanks {
        let of_host = self.ranks_of_host();
        let (first, step, count, partition_count) = match reach {
            ExchangeReach::All => (0, 1, self.rank_count, self.rank_count),
            ExchangeReach::BetweenHosts => {
                (rank.place() % of_host, of_host, self.host_count, self.host_count)
            }
            ExchangeReach::WithinHost => (rank.place() / of_host * of_host, 1, of_host, self.rank_count),
        };
        ReachedRanks { first, step, count, partition_count }
    }
}

/// Ranks at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedRanks {
    first: usize,
    step: usize,
    count: usize,
    /// The number of parts of hashes that rows are partitioned into.
    partition_count: usize,
}

impl ReachedRanks {
    /// Their number, this one included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The one that gets all rows of a gather.
    pub fn first(&self) -> Rank {
        Rank(self.first as u16)
    }

    /// Whether this one is among them.
    pub fn contains(&self, rank: Rank) -> bool {
        let distance = rank.place().checked_sub(self.first);
        distance
            .is_some_and(|distance| distance.is_multiple_of(self.step) && distance / self.step < self.count)
    }

    /// The number of parts of hashes that rows are partitioned into.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The rank that gets the rows of a part.
    ///
    /// # Errors
    ///
    /// `Internal` for rows that should have gone to another host before.
    pub fn owner(&self, partition: usize) -> Result<Rank> {
        let rank = match self.partition_count == self.count {
            true => self.first + partition * self.step,
            false => partition,
        };
        let rank = Rank(rank as u16);
        match self.contains(rank) {
            true => Ok(rank),
            false => Err(Error::internal(format!(
                "rows of rank {rank} are on another host, and are to move within that: first_rank={}, ranks={}",
                self.first, self.count
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's function.
    fn partition(hash: u64, count: usize) -> usize {
        (((hash >> 32) * count as u64) >> 32) as usize
    }

    fn numbers(layout: RankLayout, rank: u16, reach: ExchangeReach) -> Vec<usize> {
        let reached = layout.reached(Rank(rank), reach);
        let ranks = (0..layout.rank_count()).filter(|other| reached.contains(Rank(*other as u16)));
        let ranks: Vec<usize> = ranks.collect();
        assert_eq!((ranks.len(), ranks[0]), (reached.count(), reached.first().place()));
        ranks
    }

    #[test]
    fn a_rank_reaches_its_host_and_its_place_on_others() {
        let layout = RankLayout::new(6, 3);
        assert_eq!(numbers(layout, 3, ExchangeReach::All), [0, 1, 2, 3, 4, 5]);
        assert_eq!(numbers(layout, 3, ExchangeReach::BetweenHosts), [1, 3, 5]);
        assert_eq!(numbers(layout, 3, ExchangeReach::WithinHost), [2, 3]);
        let alone = RankLayout::new(2, 2);
        assert_eq!(numbers(alone, 1, ExchangeReach::WithinHost), [1]);
        assert_eq!(numbers(RankLayout::new(2, 1), 1, ExchangeReach::BetweenHosts), [1]);
        assert!(layout.are_near(Rank(2), Rank(3)) && !layout.are_near(Rank(1), Rank(2)));
    }

    #[test]
    fn two_levels_lead_to_the_owner_among_all_ranks() {
        let mut hash = 0x9e37_79b9_7f4a_7c15u64;
        for (rank_count, host_count) in [(4, 2), (6, 3), (6, 2), (15, 5), (256, 32), (64, 64), (7, 1)] {
            let layout = RankLayout::new(rank_count, host_count);
            for number in 0..10_000u64 {
                hash = hash.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(number);
                // Also the last hash before the first one of a part, and that.
                let edge = ((number % rank_count as u64) << 32).div_ceil(rank_count as u64);
                for hash in [hash, edge << 32, edge.wrapping_sub(1) << 32, u64::MAX] {
                    let begin = Rank((number % rank_count as u64) as u16);
                    let step = |rank, reach| {
                        let reached: ReachedRanks = layout.reached(rank, reach);
                        reached.owner(partition(hash, reached.partition_count())).unwrap()
                    };
                    let halfway = step(begin, ExchangeReach::BetweenHosts);
                    let owner = step(halfway, ExchangeReach::WithinHost);
                    assert_eq!(owner, step(begin, ExchangeReach::All), "{hash:x}, {layout:?}");
                }
            }
        }
    }

    #[test]
    fn rows_on_the_wrong_host_are_an_error() {
        let reached = RankLayout::new(4, 2).reached(Rank(3), ExchangeReach::WithinHost);
        let error = reached.owner(1).unwrap_err();
        assert_eq!(error.kind, pystachio_plan::ErrorKind::Internal);
    }
}
