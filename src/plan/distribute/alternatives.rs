//! Ways to compute a relation that leave its rows on other ranks.
//!
//! The cheapest is not always the best below what is above: a shuffle of both sides of a join may cost more than a
//! broadcast of one, and spare the shuffle of an aggregate above. So of every relation the cheapest way is kept for each
//! distribution, and at the root the cheapest of all.
//!
//! Invariants: there is at least one. The same plan and costs keep the same ones, in the same order.
//!
//! Source: interesting orders, Selinger et al., "Access path selection in a relational database management system", SIGMOD
//! 1979, section 5. We differ: distributions instead of orders, and few of them.

use std::{cmp::Ordering, sync::Arc};

use super::{ExchangeFacts, cost::row_bytes, distribution::Distribution};
use crate::{Relation, SortKey, prune::Required};

/// Ways that are kept of a relation.
const ALTERNATIVES_MAX: usize = 5;

/// A way to compute a relation on all ranks.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) relation: Arc<Relation>,
    pub(super) distribution: Distribution,
    /// The order in which each rank has its rows, where the rows are on several ranks and the order is wanted of all.
    pub(super) owed_order: Option<Vec<SortKey>>,
    /// On how many ranks the rows are; one for rows that every rank has, each all of them.
    pub(super) spread: f64,
    /// What it costs.
    pub(super) price: Price,
    /// The exchanges of the tree, inputs' before those above, the left's before the right's. Their ids come later.
    pub(super) exchanges: Vec<ExchangeFacts>,
}

/// What something costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Price {
    /// How long it takes on the busiest rank.
    pub(super) seconds: f64,
    /// Bytes that are exchanged.
    pub(super) bytes: f64,
}

impl Price {
    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        Self { seconds: self.seconds + other.seconds, bytes: self.bytes + other.bytes }
    }

    /// First by time. Estimates may be any number.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.seconds.total_cmp(&other.seconds).then(self.bytes.total_cmp(&other.bytes))
    }
}

impl Placed {
    /// Estimated rows, over all ranks; of rows that every rank has, one rank's.
    pub(super) fn rows(&self) -> f64 {
        self.relation.estimate.rows.max(0.0)
    }

    /// Those of them that a rank has.
    pub(super) fn local_rows(&self) -> f64 {
        self.rows() / self.spread
    }

    /// Bytes of a row of what is wanted of it.
    pub(super) fn row_bytes(&self, required: &Required) -> f64 {
        let mut columns = self.relation.columns();
        columns.retain(|(id, _)| required.contains(id));
        row_bytes(&columns)
    }

    /// Without regard to the order in which the ranks have their rows.
    pub(super) fn unordered(self) -> Self {
        Self { owed_order: None, ..self }
    }
}

/// On how many ranks rows are that are distributed so, if the ranks that share them are `ranks`.
pub(super) fn spread_of(distribution: &Distribution, ranks: f64) -> f64 {
    match distribution {
        Distribution::Arbitrary
        | Distribution::Partitioned { .. }
        | Distribution::Chosen { .. }
        | Distribution::Halfway(_) => ranks.max(1.0),
        Distribution::Replicated | Distribution::Single => 1.0,
    }
}

/// The cheapest for each distribution, of these the cheapest, which come first.
pub(super) fn keep_cheapest<T>(
    mut ways: Vec<T>,
    price: impl Fn(&T) -> Price,
    distribution: impl Fn(&T) -> &Distribution,
) -> Vec<T> {
    ways.sort_by(|one, other| price(one).compare(&price(other)));
    let mut kept: Vec<T> = Vec::new();
    for way in ways {
        if kept.len() < ALTERNATIVES_MAX && kept.iter().all(|known| distribution(known) != distribution(&way))
        {
            kept.push(way);
        }
    }
    kept
}
