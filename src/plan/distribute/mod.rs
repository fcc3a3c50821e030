//! A plan becomes one that all ranks run: exchanges are put where rows have to meet, by cost.
//!
//! ```text
//! Plan, footers' figures, costs ─► distribute ─► the plan for all ranks, or as it was for one
//!                                                and why; what is exchanged, and why
//! ```
//!
//! - `distribution.rs`: on which ranks a relation's rows are, and what operators ask of that
//! - `placement.rs`: operator by operator, which exchanges there may be
//! - `joins.rs`, `aggregates.rs`: those of joins and of aggregates
//! - `levels.rs`: exchanges that are made of two, between hosts and within each
//! - `ranges.rs`: tables that are partitioned by ranges of a column
//! - `run_time.rs`: joins whose exchanges choose when the query runs
//! - `heavy.rs`: keys that too many rows have for one rank
//! - `alternatives.rs`: ways to compute a relation, of which few are kept
//! - `cost.rs`: what moving and computing cost
//! - `reason.rs`: why an exchange is there, in words
//! - `runtime_filters.rs`: how far a join's filter of keys may go
//! - `tests/`: hand-made plans; and plans at random, run by an interpreter on one rank and on several
//!
//! Invariants: the distributed plan gives the rows that the plan gives, on rank 0, in its order; [`Distribution::of`]
//! accepts it. The same plan, figures and costs give the same distributed plan, so that every rank could make it for itself.
//! Conditions stay in the order in which they were, so what could fail is still not evaluated for rows that others drop.
//!
//! Deliberately absent: which row groups a rank gets if ranges do not decide, how rows travel.

mod aggregates;
mod alternatives;
mod cost;
mod distribution;
mod heavy;
mod joins;
mod levels;
mod placement;
mod ranges;
mod reason;
mod run_time;
mod runtime_filters;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use self::placement::Placement;
use crate::{
    ColumnId, ExchangeId, Operator, Plan, RELATION_DEPTH_MAX, Relation, Result, ScanExtent, TwoLevelExchange,
    prune_columns,
};

pub use self::{
    cost::{ExchangeCosts, ScanFigures, row_bytes},
    distribution::{Distribution, EqualExpressions, Partitioning},
    heavy::{heavy_key_columns, with_common_values},
    ranges::{ColumnRanges, KeyRange, range_columns},
    reason::{ExchangeReason, OneRankReason},
    runtime_filters::{FilterScope, filter_scope},
};

/// What the distribution of a plan goes by.
#[derive(Clone, Copy, Debug)]
pub struct DistributeRequest<'a> {
    /// What is measured of the ranks, and how many there are.
    pub costs: &'a ExchangeCosts,
    /// The figures of the plan's scans, from left to right ([`Relation::scans`]). Those that are missing count as empty.
    pub scans: &'a [ScanFigures],
    /// Whether one rank may run it.
    pub policy: RankPolicy,
    /// What joins may decide when the query runs.
    pub choices: RunTimeChoices,
    /// When exchanges have two levels.
    pub two_level: TwoLevelExchange,
}

/// What joins of shuffled sides may decide when the query runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimeChoices {
    /// To broadcast a build side that turns out small.
    pub broadcast: bool,
    /// To leave rows with heavy keys where they are, and to give what they match to all ranks.
    pub heavy_keys: bool,
}

/// On how many ranks a plan may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankPolicy {
    /// On one or on all, whichever is expected to be faster.
    Fastest,
    /// On all, if it can be distributed at all.
    All,
}

/// A plan with the ranks that are to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributed {
    /// What they run. Rank 0 gives the rows of its root to the client; those of others are not wanted.
    pub plan: Plan,
    /// Whether one rank runs it, and why; otherwise all do.
    pub one_rank: Option<OneRankReason>,
    /// The exchanges of the plan, in the order of their ids.
    pub exchanges: Vec<ExchangeFacts>,
    /// Columns of scans without known common values ([`crate::ScanColumn::common`]) by which the plan shuffles both sides of a join. A caller
    /// that learns their common values distributes the plan again.
    pub unknown_keys: BTreeSet<ColumnId>,
    /// Seconds that it is expected to take on one rank.
    pub one_rank_s: f64,
    /// Seconds that it is expected to take on all ranks; infinite if it can't be distributed.
    pub all_ranks_s: f64,
}

/// What is expected of an exchange, and why it is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeFacts {
    /// Which exchange.
    pub id: ExchangeId,
    /// Rows of its input, over all ranks.
    pub rows: f64,
    /// Bytes that go from one rank to another, over all ranks.
    pub bytes: f64,
    /// Why it is there.
    pub reason: ExchangeReason,
}

impl Distributed {
    /// Bytes that all exchanges are expected to move from one rank to another.
    pub fn exchanged_bytes(&self) -> f64 {
        self.exchanges.iter().map(|exchange| exchange.bytes).sum()
    }
}

/// The plan for all ranks, or the plan as it is for one.
///
/// # Shapes
///
/// Ids of columns stay; new ones are above the greatest. Scans keep their order.
///
/// # Errors
///
/// `Internal` for a plan that contradicts itself, or that is distributed already.
pub fn distribute(plan: &Plan, request: DistributeRequest<'_>) -> Result<Distributed> {
    let DistributeRequest { costs, scans, policy, choices, .. } = request;
    let one_rank_s = costs.one_rank_seconds(&plan.root, scans);
    let on_one = |reason, all_ranks_s| Distributed {
        plan: plan.clone(),
        one_rank: Some(reason),
        exchanges: Vec::new(),
        unknown_keys: BTreeSet::new(),
        one_rank_s,
        all_ranks_s,
    };
    if costs.ranks <= 1 {
        return Ok(on_one(OneRankReason::Alone, f64::INFINITY));
    }
    if plan.root.depth() > RELATION_DEPTH_MAX {
        return Ok(on_one(OneRankReason::TooDeep, f64::INFINITY));
    }
    let pruned = prune_columns(plan);
    let (root, exchanges, seconds) = Placement::of(&pruned, request)?;
    let (root, unknown_keys) = run_time::with_choices(root, costs, choices);
    if root.depth() > RELATION_DEPTH_MAX {
        return Ok(on_one(OneRankReason::TooDeep, f64::INFINITY));
    }
    Distribution::of(&root)?;
    let all_ranks_s = costs.query_s + seconds;
    if policy == RankPolicy::Fastest {
        if !is_shared(&root) {
            return Ok(on_one(OneRankReason::SmallTables, all_ranks_s));
        }
        if one_rank_s <= all_ranks_s {
            return Ok(on_one(OneRankReason::Faster, all_ranks_s));
        }
    }
    let plan = Plan { root, outputs: plan.outputs.clone() };
    Ok(Distributed { plan, one_rank: None, exchanges, unknown_keys, one_rank_s, all_ranks_s })
}

/// Whether a rank reads what others don't.
fn is_shared(root: &Arc<Relation>) -> bool {
    root.scans()
        .into_iter()
        .any(|scan| matches!(scan, Operator::Scan { extent, .. } if *extent != ScanExtent::Whole))
}
