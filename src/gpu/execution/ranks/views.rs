//! The state of all ranks for views: the contents of their caches, and their timelines of the last
//! queries, on one clock.
//!
//! ```text
//! rank 0   ├──── read ────┤├─ kernel ─┤                      since the query's start there
//! rank 1      ├─ read ─┤├─ kernel ─┤                         since its own, which is so much later on the clock of the hosts
//! ```
//!
//! A rank that is not connected, or does not answer soon, is left out: views show the others. If
//! hosts' clocks differ, timelines are shifted by the difference.

use pystachio_plan::{Activity, CacheEntry, Error, QueryTimeline};

use super::{peer::RankPeer, ranked_engine::RankedEngine};
use crate::exchange::{QueryId, Rank};

impl RankedEngine {
    /// The contents of the caches of all ranks, rank after rank.
    pub async fn cache_entries(&self) -> Vec<CacheEntry> {
        let mut entries = self.first().cache_entries();
        for peer in self.peers() {
            match peer.cache_entries().await {
                Ok(of_rank) => {
                    let rank = u32::from(peer.rank().0);
                    entries.extend(of_rank.into_iter().map(|entry| CacheEntry { rank, ..entry }));
                }
                Err(error) => leave_out(&*peer, &error),
            }
        }
        entries
    }

    /// The timelines of all ranks for rank 0's last queries that asked for one, the newest last.
    pub async fn timelines(&self) -> Vec<QueryTimeline> {
        let mut timelines = self.first().timelines();
        for peer in self.peers() {
            for timeline in &mut timelines {
                let Some(query) = timeline.shared else { continue };
                match peer.timeline(QueryId(query)).await {
                    Ok(part) => part.into_iter().for_each(|part| add_rank(timeline, peer.rank(), part)),
                    Err(error) => {
                        leave_out(&*peer, &error);
                        break;
                    }
                }
            }
        }
        for timeline in &mut timelines {
            timeline.activities.sort_by_key(|activity| activity.started_us);
        }
        timelines
    }
}

fn leave_out(peer: &dyn RankPeer, error: &Error) {
    tracing::warn!(rank = peer.rank().0, %error, "a rank is left out of a view");
}

/// Adds another rank's timeline. Its query begins after rank 0's.
fn add_rank(timeline: &mut QueryTimeline, rank: Rank, part: QueryTimeline) {
    let later_us = part.started_unix_us.saturating_sub(timeline.started_unix_us);
    let of_rank = part.activities.into_iter().map(|activity| Activity {
        rank: u32::from(rank.0),
        started_us: activity.started_us.saturating_add(later_us),
        ..activity
    });
    timeline.activities.extend(of_rank);
}

#[cfg(test)]
mod tests {
    use pystachio_plan::ActivityKind;

    use super::*;

    fn timeline(started_unix_us: u64, starts: &[u64]) -> QueryTimeline {
        let activity = |started_us: &u64| Activity {
            rank: 0,
            kind: ActivityKind::Read,
            name: "read".to_owned(),
            lane: 0,
            started_us: *started_us,
            elapsed_us: 1,
            bytes: 0,
        };
        let activities = starts.iter().map(activity).collect();
        QueryTimeline { query: 1, shared: Some(1), role: 0, started_unix_us, elapsed_us: 100, activities }
    }

    #[test]
    fn what_other_ranks_did_is_as_late_as_it_was() {
        let mut all = timeline(5000, &[3, 40]);
        add_rank(&mut all, Rank(2), timeline(5030, &[0, 4]));
        // A clock that is late by more than that.
        add_rank(&mut all, Rank(3), timeline(4000, &[7]));
        let starts: Vec<_> =
            all.activities.iter().map(|activity| (activity.rank, activity.started_us)).collect();
        assert_eq!(starts, [(0, 3), (0, 40), (2, 30), (2, 34), (3, 7)]);
    }
}
