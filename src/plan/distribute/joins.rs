//! Exchanges of joins: of all ways in which both sides can meet, the cheapest.
//!
//! Each side may stay where it is, be broadcast, go to one rank, or be partitioned by join keys: all of them, or those by which
//! the other side is partitioned already; or, both sides, by one key but for rows in which it is heavy. What of these pairs makes a right join, the rules of `distribution.rs` say.
//!
//! Deliberately absent: which side is hashed. The engines see how large the sides turn out to be.

use super::{
    alternatives::{Placed, Price, keep_cheapest, spread_of},
    cost::{Load, ShuffleSpread},
    distribution::{Distribution, exchanged, joined, other, partner_keys, preserves, shuffle_key},
    heavy::{HeavySplit, KeyedSide},
    placement::{Placement, Wanted},
    reason::ExchangeReason,
};
use crate::{
    Error, ExchangeId, ExchangeKind, Expression, JoinKey, JoinKind, JoinSide, Operator, Relation, Result,
    prune::Required,
};

/// What may be done to a side.
#[derive(Clone, Debug, PartialEq)]
enum SideMove {
    Stay,
    Broadcast,
    ToOne,
    Partition(Vec<Expression>),
    /// By the only key, as the heavy split of both sides says.
    Split,
}

/// A way to compute a side, after its move.
struct MovedSide<'a> {
    from: &'a Placed,
    exchange: Option<ExchangeKind>,
    shuffle: ShuffleSpread,
    distribution: Distribution,
    spread: f64,
    /// What the move moves.
    moved_bytes: f64,
    /// Of the side with its move.
    price: Price,
}

impl MovedSide<'_> {
    fn local_rows(&self) -> f64 {
        self.from.rows() / self.spread
    }
}

/// A way in which both sides meet.
struct Meeting<'a> {
    left: &'a MovedSide<'a>,
    right: &'a MovedSide<'a>,
    distribution: Distribution,
    price: Price,
}

impl Meeting<'_> {
    fn has_broadcast(&self) -> bool {
        let is_broadcast = |side: &MovedSide<'_>| side.exchange == Some(ExchangeKind::Broadcast);
        is_broadcast(self.left) || is_broadcast(self.right)
    }
}

impl Placement<'_> {
    /// The ways to compute a join of which, and of whose sides, these columns are read.
    pub(super) fn place_join(&mut self, relation: &Relation, needed: &Required) -> Result<Vec<Placed>> {
        let Operator::Join { kind, left, right, keys, residual, build } = &relation.operator else {
            return Err(Error::internal("a join is something else"));
        };
        let (left, right) = (self.place(left, needed)?, self.place(right, needed)?);
        let rows = relation.estimate.rows;
        let mut sides = Sides { kind: *kind, keys, left: &left, right: &right, rows, needed, split: None };
        if self.splits_heavy_keys && !preserves(*kind, *build) {
            let inputs = sides.left.first().zip(sides.right.first());
            sides.split = inputs.and_then(|(left, right)| {
                HeavySplit::of(self.costs, (keys, *build), (&left.relation, &right.relation))
            });
        }
        let moved = |side| {
            let moved = sides.moved(side, self);
            keep_moved(moved)
        };
        let (left, right) = (moved(JoinSide::Left), moved(JoinSide::Right));
        let (meetings, without_broadcast) = sides.meetings(&left, &right, self);
        let join = |meeting: Meeting<'_>| {
            let side = |own: &MovedSide<'_>, other: &MovedSide<'_>| {
                let placed = own.from.clone().unordered();
                let Some(kind) = own.exchange.clone() else { return Ok(placed) };
                let reason = sides.reason(&kind, other.exchange.as_ref(), without_broadcast);
                self.exchange(placed, Wanted { kind, reason, shuffle: own.shuffle }, needed)
            };
            let (left, right) = (side(meeting.left, meeting.right)?, side(meeting.right, meeting.left)?);
            let operator = Operator::Join {
                kind: *kind,
                left: left.relation.clone(),
                right: right.relation.clone(),
                keys: keys.clone(),
                residual: residual.clone(),
                build: *build,
            };
            self.above(operator, rows, &[&left, &right])
        };
        let ways = meetings.into_iter().map(join).collect::<Result<Vec<_>>>()?;
        if ways.is_empty() { Err(Error::internal("the sides of a join meet nowhere")) } else { Ok(ways) }
    }
}

/// Of moves that lead to the same, the cheapest.
fn keep_moved(mut moved: Vec<MovedSide<'_>>) -> Vec<MovedSide<'_>> {
    moved.sort_by(|one, other| one.price.compare(&other.price));
    let mut kept: Vec<MovedSide<'_>> = Vec::new();
    for side in moved {
        if kept.iter().all(|known| known.distribution != side.distribution) {
            kept.push(side);
        }
    }
    kept
}

/// A join, and the ways to compute its sides.
struct Sides<'a> {
    kind: JoinKind,
    keys: &'a [JoinKey],
    left: &'a [Placed],
    right: &'a [Placed],
    rows: f64,
    needed: &'a Required,
    split: Option<HeavySplit>,
}

impl<'a> Sides<'a> {
    /// The cheapest ways in which the sides meet, and what the cheapest of all without a broadcast would move.
    fn meetings<'m>(
        &self,
        left: &'m [MovedSide<'m>],
        right: &'m [MovedSide<'m>],
        placement: &Placement<'_>,
    ) -> (Vec<Meeting<'m>>, Option<f64>) {
        let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
        let meetings: Vec<_> =
            pairs.filter_map(|(left, right)| self.meeting(left, right, placement)).collect();
        let without_broadcast = meetings
            .iter()
            .filter(|meeting| !self.keys.is_empty() && !meeting.has_broadcast())
            .min_by(|one, other| one.price.compare(&other.price))
            .map(|meeting| meeting.left.moved_bytes + meeting.right.moved_bytes);
        (keep_cheapest(meetings, |way| way.price, |way| &way.distribution), without_broadcast)
    }

    fn side(&self, side: JoinSide) -> &'a [Placed] {
        match side {
            JoinSide::Left => self.left,
            JoinSide::Right => self.right,
        }
    }

    /// What may be done to a side.
    fn moves(&self, side: JoinSide) -> Vec<SideMove> {
        let mut moves = vec![SideMove::Stay, SideMove::Broadcast, SideMove::ToOne];
        let all = self.keys.iter().filter_map(|key| shuffle_key(key, side)).collect();
        let others = self.side(other(side)).iter();
        let partners = others.filter_map(|way| partner_keys(self.keys, other(side), &way.distribution));
        moves.extend(self.split.as_ref().map(|_| SideMove::Split));
        for keys in [all].into_iter().chain(partners).filter(|keys: &Vec<_>| !keys.is_empty()) {
            let step = SideMove::Partition(keys);
            if !moves.contains(&step) {
                moves.push(step);
            }
        }
        moves
    }

    /// All ways to compute a side, after all moves.
    fn moved(&self, side: JoinSide, placement: &Placement<'_>) -> Vec<MovedSide<'a>> {
        let moves = self.moves(side);
        let pairs = self.side(side).iter().flat_map(|way| moves.iter().map(move |step| (way, step)));
        pairs.filter_map(|(way, step)| self.after((side, step), way, placement)).collect()
    }

    /// A side after its move; `None` if the move is none, or senseless.
    fn after(
        &self,
        (side, step): (JoinSide, &SideMove),
        from: &'a Placed,
        placement: &Placement<'_>,
    ) -> Option<MovedSide<'a>> {
        let ranks = placement.costs.rank_count();
        let mut shuffle = ShuffleSpread::among(ranks);
        let exchange = match (step, &from.distribution) {
            (SideMove::Stay, _) => None,
            (SideMove::Broadcast, Distribution::Replicated) => return None,
            (SideMove::Broadcast, _) => Some(ExchangeKind::Broadcast),
            (SideMove::ToOne, Distribution::Single) => return None,
            (SideMove::ToOne, Distribution::Replicated) => Some(ExchangeKind::Own { keys: Vec::new() }),
            (SideMove::ToOne, _) => Some(ExchangeKind::Gather),
            (SideMove::Partition(keys), Distribution::Replicated) => {
                Some(ExchangeKind::Own { keys: keys.clone() })
            }
            (SideMove::Partition(keys), _) => {
                if let [key] = keys.as_slice() {
                    shuffle.owners = KeyedSide { key, input: &from.relation }.owners(ranks);
                }
                Some(ExchangeKind::Hash { keys: keys.clone() })
            }
            (SideMove::Split, Distribution::Replicated) => return None,
            (SideMove::Split, _) => {
                let (kind, split) = self.split.as_ref()?.exchange(side, (from.spread, ranks));
                shuffle = split;
                Some(kind)
            }
        };
        let Some(kind) = &exchange else {
            let distribution = from.distribution.clone();
            let (spread, price) = (from.spread, from.price);
            return Some(MovedSide {
                from,
                exchange,
                shuffle,
                distribution,
                spread,
                moved_bytes: 0.0,
                price,
            });
        };
        let row_bytes = from.row_bytes(self.needed);
        let load = Load { rows: from.rows(), row_bytes, senders: from.spread, shuffle };
        let movement = placement.movement(kind, load);
        let distribution = exchanged(kind, ExchangeId(0), &from.distribution).ok()?;
        let spread = spread_of(&distribution, shuffle.owners);
        let price = from.price.and(Price { seconds: movement.seconds, bytes: movement.bytes });
        Some(MovedSide { from, exchange, shuffle, distribution, spread, moved_bytes: movement.bytes, price })
    }

    fn meeting<'m>(
        &self,
        left: &'m MovedSide<'m>,
        right: &'m MovedSide<'m>,
        placement: &Placement<'_>,
    ) -> Option<Meeting<'m>> {
        let distribution = joined(self.kind, self.keys, &left.distribution, &right.distribution)?;
        let spread = spread_of(&distribution, left.spread.max(right.spread));
        let side_rows = (left.local_rows(), right.local_rows());
        let rows = self.rows.max(0.0) / spread;
        let seconds = placement.costs.join_seconds(!self.keys.is_empty(), side_rows, rows);
        let price = left.price.and(right.price).and(Price { seconds, bytes: 0.0 });
        Some(Meeting { left, right, distribution, price })
    }

    /// Why a side is exchanged.
    fn reason(
        &self,
        own: &ExchangeKind,
        other: Option<&ExchangeKind>,
        instead_bytes: Option<f64>,
    ) -> ExchangeReason {
        match (own, other) {
            (ExchangeKind::Own { .. }, _) => ExchangeReason::CountedOnce,
            (ExchangeKind::Gather | ExchangeKind::Merge { .. }, _) => ExchangeReason::FewRows,
            (ExchangeKind::Broadcast, _) if self.kind == JoinKind::NullAwareAnti => ExchangeReason::NotIn,
            (ExchangeKind::Broadcast, _) if self.keys.is_empty() => ExchangeReason::PairsOfAll,
            (ExchangeKind::Broadcast, _) => ExchangeReason::SmallSide { instead_bytes },
            (_, None) => ExchangeReason::JoinPartner,
            (_, Some(_)) => ExchangeReason::JoinKeys,
        }
    }
}
