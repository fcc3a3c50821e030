//! Exchanges of joins: of all ways in which both sides can meet, the cheapest.
//!
//! Each side may stay where it is, be broadcast, go to one rank, or be dealt by join keys: all of them, or those by which
//! the other side is dealt already. What of these pairs makes a right join, the rules of `distribution.rs` say.
//!
//! Deliberately absent: which side is hashed. The engines see how large the sides turn out to be.

use super::{
    cost::Movement,
    distribution::{Distribution, exchanged, joined, other, partner_keys, shuffle_key},
    placement::{Placed, Placement, Wanted},
    reason::ExchangeReason,
};
use crate::{
    Error, ExchangeKind, Expression, JoinKey, JoinKind, JoinSide, Operator, Relation, Result, prune::Required,
};

/// What may be done to a side.
#[derive(Clone, Debug, PartialEq)]
enum SideMove {
    Stay,
    Broadcast,
    ToOne,
    Deal(Vec<Expression>),
}

/// A side after its move.
struct MovedSide {
    exchange: Option<ExchangeKind>,
    distribution: Distribution,
    movement: Movement,
    rows: f64,
}

/// A way in which both sides meet.
struct Candidate {
    left: Option<ExchangeKind>,
    right: Option<ExchangeKind>,
    seconds: f64,
    bytes: f64,
}

impl Placement<'_> {
    /// A join of which, and of whose sides, these columns are read.
    pub(super) fn place_join(&mut self, relation: &Relation, needed: &Required) -> Result<Placed> {
        let Operator::Join { kind, left, right, keys, residual, build } = &relation.operator else {
            return Err(Error::internal("a join is something else"));
        };
        let (left, right) = self.place_sides(left, right, needed)?;
        let rows = relation.estimate.rows;
        let sides = Sides { kind: *kind, keys, left: &left, right: &right, rows, needed };
        let (chosen, without_broadcast) = sides.choose(self)?;
        let reason = |own: &Option<ExchangeKind>, other: &Option<ExchangeKind>| {
            sides.reason(own.as_ref(), other.as_ref(), without_broadcast)
        };
        let (left_reason, right_reason) =
            (reason(&chosen.left, &chosen.right), reason(&chosen.right, &chosen.left));
        let left = self.moved(left.clone(), chosen.left, left_reason, needed)?;
        let right = self.moved(right.clone(), chosen.right, right_reason, needed)?;
        let operator = Operator::Join {
            kind: *kind,
            left: left.relation.clone(),
            right: right.relation.clone(),
            keys: keys.clone(),
            residual: residual.clone(),
            build: *build,
        };
        self.above(operator, rows, &[&left, &right])
    }

    fn moved(
        &mut self,
        side: Placed,
        kind: Option<ExchangeKind>,
        reason: ExchangeReason,
        needed: &Required,
    ) -> Result<Placed> {
        match kind {
            None => Ok(side),
            Some(kind) => {
                let owners = self.costs.rank_count();
                self.exchange(side, Wanted { kind, reason, owners }, needed)
            }
        }
    }
}

/// A join whose sides are placed.
struct Sides<'a> {
    kind: JoinKind,
    keys: &'a [JoinKey],
    left: &'a Placed,
    right: &'a Placed,
    rows: f64,
    needed: &'a Required,
}

impl Sides<'_> {
    /// The cheapest way, and what the cheapest without a broadcast would move.
    fn choose(&self, placement: &Placement<'_>) -> Result<(Candidate, Option<f64>)> {
        let sides = |side| -> Vec<MovedSide> {
            self.moves(side).into_iter().filter_map(|step| self.after(step, side, placement)).collect()
        };
        let (left, right) = (sides(JoinSide::Left), sides(JoinSide::Right));
        let mut best: Option<Candidate> = None;
        let mut dealt: Option<Candidate> = None;
        for left in &left {
            for right in &right {
                let Some(candidate) = self.candidate(left, right, placement) else { continue };
                let is_broadcast =
                    [&candidate.left, &candidate.right].contains(&&Some(ExchangeKind::Broadcast));
                if !is_broadcast && is_cheaper(&candidate, dealt.as_ref()) {
                    let Candidate { seconds, bytes, .. } = candidate;
                    dealt = Some(Candidate { left: None, right: None, seconds, bytes });
                }
                if is_cheaper(&candidate, best.as_ref()) {
                    best = Some(candidate);
                }
            }
        }
        let best = best.ok_or_else(|| Error::internal("the sides of a join meet nowhere"))?;
        let instead = if self.keys.is_empty() { None } else { dealt.map(|candidate| candidate.bytes) };
        Ok((best, instead))
    }

    fn side(&self, side: JoinSide) -> &Placed {
        match side {
            JoinSide::Left => self.left,
            JoinSide::Right => self.right,
        }
    }

    /// What may be done to a side.
    fn moves(&self, side: JoinSide) -> Vec<SideMove> {
        let mut moves = vec![SideMove::Stay, SideMove::Broadcast, SideMove::ToOne];
        let all = self.keys.iter().filter_map(|key| shuffle_key(key, side)).collect();
        let partner = partner_keys(self.keys, other(side), &self.side(other(side)).distribution);
        for keys in [Some(all), partner].into_iter().flatten().filter(|keys: &Vec<_>| !keys.is_empty()) {
            let step = SideMove::Deal(keys);
            if !moves.contains(&step) {
                moves.push(step);
            }
        }
        moves
    }

    /// A side after its move; `None` if the move is none, or senseless.
    fn after(&self, step: SideMove, side: JoinSide, placement: &Placement<'_>) -> Option<MovedSide> {
        let placed = self.side(side);
        let from = &placed.distribution;
        let kind = match (step, from) {
            (SideMove::Stay, _) => None,
            (SideMove::Broadcast, Distribution::Replicated) => return None,
            (SideMove::Broadcast, _) => Some(ExchangeKind::Broadcast),
            (SideMove::ToOne, Distribution::Single) => return None,
            (SideMove::ToOne, Distribution::Replicated) => Some(ExchangeKind::Own { keys: Vec::new() }),
            (SideMove::ToOne, _) => Some(ExchangeKind::Gather),
            (SideMove::Deal(keys), Distribution::Replicated) => Some(ExchangeKind::Own { keys }),
            (SideMove::Deal(keys), _) => Some(ExchangeKind::Hash { keys }),
        };
        let (distribution, movement) = match &kind {
            None => (from.clone(), Movement::default()),
            Some(kind) => {
                let ranks = placement.costs.rank_count();
                let bytes = placed.row_bytes(self.needed);
                let movement = placement.costs.movement(kind, from, placed.rows(), bytes, ranks);
                (exchanged(kind, from).ok()?, movement)
            }
        };
        let rows = distribution.local_rows(placed.rows(), placement.costs.rank_count());
        Some(MovedSide { exchange: kind, distribution, movement, rows })
    }

    fn candidate(&self, left: &MovedSide, right: &MovedSide, placement: &Placement<'_>) -> Option<Candidate> {
        let result = joined(self.kind, self.keys, &left.distribution, &right.distribution)?;
        let rows = result.local_rows(self.rows.max(0.0), placement.costs.rank_count());
        let joining = placement.costs.join_seconds(!self.keys.is_empty(), (left.rows, right.rows), rows);
        Some(Candidate {
            left: left.exchange.clone(),
            right: right.exchange.clone(),
            seconds: left.movement.seconds + right.movement.seconds + joining,
            bytes: left.movement.bytes + right.movement.bytes,
        })
    }

    /// Why a side is exchanged.
    fn reason(
        &self,
        own: Option<&ExchangeKind>,
        other: Option<&ExchangeKind>,
        instead_bytes: Option<f64>,
    ) -> ExchangeReason {
        match (own, other) {
            (Some(ExchangeKind::Own { .. }), _) => ExchangeReason::CountedOnce,
            (Some(ExchangeKind::Gather | ExchangeKind::Merge { .. }), _) => ExchangeReason::FewRows,
            (Some(ExchangeKind::Broadcast), _) if self.kind == JoinKind::NullAwareAnti => {
                ExchangeReason::NotIn
            }
            (Some(ExchangeKind::Broadcast), _) if self.keys.is_empty() => ExchangeReason::PairsOfAll,
            (Some(ExchangeKind::Broadcast), _) => ExchangeReason::SmallSide { instead_bytes },
            (_, None) => ExchangeReason::JoinPartner,
            (_, Some(_)) => ExchangeReason::JoinKeys,
        }
    }
}

/// Faster, or as fast and with fewer bytes.
fn is_cheaper(candidate: &Candidate, than: Option<&Candidate>) -> bool {
    than.is_none_or(|than| {
        let by_time = candidate.seconds.total_cmp(&than.seconds);
        by_time.then(candidate.bytes.total_cmp(&than.bytes)).is_lt()
    })
}
