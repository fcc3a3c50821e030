//! Exchanges between ranks of several hosts that are made of two: between hosts first, then within each.
//!
//! ```text
//! H hosts of G ranks                   messages of a rank       of its rows in each   between hosts go
//! direct         to ranks of hosts     (H − 1) × G              1 / (H × G)           rows of a broadcast: H − 1 times G
//! two levels     between hosts         H − 1                    1 / H                                      H − 1 times
//!                within the host       G − 1                    1 / G
//! ```
//!
//! Each row moves once more, which the links within a host are for. Rows of a gather come to rank 0's host by the links of all its ranks.
//!
//! Invariants: both are of one kind, with the same keys, and nothing is between them: [`Distribution::Halfway`]. A rank forwards no other one's
//! blocks: the second is an exchange as others, of rows that are its input.
//!
//! Deliberately absent: exchanges that choose when the query runs, which have one level.
//!
//! Source: hierarchical all-to-all, Rajbhandari et al., "DeepSpeed-MoE", ICML 2022, which goes within hosts first. We differ: rows go between hosts
//! first, so that a shuffle's first step partitions them by the owner's host alone, and a gather uses the links of all ranks of the host that gets it.

use super::{
    cost::{ExchangeCosts, LinkLoad, Load, Movement, RankLoad},
    distribution::{self, Distribution, misplaced},
};
use crate::{ExchangeId, ExchangeKind, ExchangeReach, Result, TwoLevelExchange};

/// One of the exchanges that make one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) reach: ExchangeReach,
    pub(super) movement: Movement,
}

/// Whether an exchange of this kind may have two levels.
fn may_have_two(kind: &ExchangeKind) -> bool {
    match kind {
        ExchangeKind::Hash { .. }
        | ExchangeKind::Broadcast
        | ExchangeKind::Gather
        | ExchangeKind::Merge { .. } => true,
        ExchangeKind::HashOrBroadcast { .. } | ExchangeKind::HashOrStay { .. } | ExchangeKind::Own { .. } => {
            false
        }
    }
}

/// Where rows are after an exchange, whole or one of two.
pub(super) fn exchanged(
    (kind, reach): (&ExchangeKind, ExchangeReach),
    id: ExchangeId,
    input: &Distribution,
) -> Result<Distribution> {
    match (reach, input) {
        (ExchangeReach::WithinHost, Distribution::Halfway(first)) if first == kind => {
            distribution::exchanged(kind, id, &Distribution::Arbitrary)
        }
        (ExchangeReach::WithinHost, _) | (_, Distribution::Halfway(_)) => {
            Err(misplaced("of an exchange of two levels one does not follow the other"))
        }
        (ExchangeReach::All, input) => distribution::exchanged(kind, id, input),
        (ExchangeReach::BetweenHosts, input) => {
            distribution::exchanged(kind, id, input)?;
            match may_have_two(kind) {
                true => Ok(Distribution::Halfway(kind.clone())),
                false => Err(misplaced("an exchange of this kind has one level")),
            }
        }
    }
}

impl ExchangeCosts {
    /// Whether there are several hosts, of several ranks each.
    pub(super) fn has_levels(&self) -> bool {
        let hosts = self.host_count();
        hosts > 1.0 && hosts < self.rank_count()
    }

    /// The exchanges that make one: itself, or two.
    pub(super) fn steps(&self, kind: &ExchangeKind, load: Load, two_level: TwoLevelExchange) -> Vec<Step> {
        let direct = Step { reach: ExchangeReach::All, movement: self.movement(kind, load) };
        if two_level == TwoLevelExchange::Off || !self.has_levels() || !may_have_two(kind) {
            return vec![direct];
        }
        let [between, within] = self.two_levels(kind, load);
        match two_level == TwoLevelExchange::On || between.and(within).seconds < direct.movement.seconds {
            true => vec![
                Step { reach: ExchangeReach::BetweenHosts, movement: between },
                Step { reach: ExchangeReach::WithinHost, movement: within },
            ],
            false => vec![direct],
        }
    }

    /// What an exchange costs between hosts, and then within each.
    fn two_levels(&self, kind: &ExchangeKind, load: Load) -> [Movement; 2] {
        let (ranks, hosts) = (self.rank_count(), self.host_count());
        let of_host = ranks / hosts;
        let whole = load.rows * load.row_bytes;
        let (senders, owners) = (load.senders.clamp(1.0, ranks), load.shuffle.owners.clamp(1.0, ranks));
        // Rows stay at the places within hosts at which they are until they have come to their hosts.
        let places = senders.min(of_host);
        let (out, about) = (whole * (hosts - 1.0) / hosts, whole * (of_host - 1.0) / of_host);
        // Of each level what moves, what the busiest rank sends or gets of it, and what one packs or unpacks.
        let (between, within) = match kind {
            ExchangeKind::Broadcast => {
                let (out_bytes, about_bytes) = (whole * (hosts - 1.0), about * of_host * hosts);
                let copied = about * of_host / places;
                (
                    (out_bytes, (out / places).max(out_bytes / senders), whole / places),
                    (about_bytes, about.max(copied), whole),
                )
            }
            ExchangeKind::Gather | ExchangeKind::Merge { .. } => {
                ((out, out / places, whole / places), (about, about, whole))
            }
            _ => {
                let halfway = owners.min(hosts) * places;
                let (first, second) = (senders.min(halfway), halfway.min(owners));
                ((out, out / first, whole / first), (about, about / second, whole / second))
            }
        };
        let far = |(bytes, busiest, handled_bytes): (f64, f64, f64)| {
            let far = LinkLoad { bytes: busiest, partners: hosts - 1.0 };
            let load = RankLoad { far, handled_bytes, ..RankLoad::default() };
            Movement { bytes, seconds: self.exchange_seconds(load) }
        };
        let near = |(bytes, busiest, handled_bytes): (f64, f64, f64)| {
            let near = LinkLoad { bytes: busiest, partners: of_host - 1.0 };
            let load = RankLoad { near, handled_bytes, ..RankLoad::default() };
            Movement { bytes, seconds: self.exchange_seconds(load) }
        };
        [far(between), near(within)]
    }
}
