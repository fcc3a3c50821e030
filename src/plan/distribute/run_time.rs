//! Joins of which it turns out when the query runs whether both sides are shuffled or the smaller one is broadcast.
//!
//! ```text
//! build: fragment ── held until its bytes are known ─┬─ few on all ranks together ──► broadcast, and the probe side stays
//! probe: fragment ── waits for that                  └─ more ──────────────────────► both are shuffled
//! ```
//!
//! What a plan expects of rows behind filters and joins is often wrong by orders of magnitude, and a shuffle moves the probe
//! side too, which is the larger one. So each shuffle of both sides of a join becomes such a choice, unless something above
//! needs the join's rows on the ranks that own its keys. Most probe sides wait for the build side anyway, for its filter.
//!
//! Invariants: the plan is right whatever is chosen ([`Distribution::of`] accepts both). All ranks choose the same.
//!
//! Deliberately absent: broadcasts that turn out to be large. They are planned where little is expected. Shuffles of two levels (`levels.rs`), which
//! would have to choose twice.
//!
//! Source: adaptive query execution, as in Apache Spark's AQE. We differ: fragments run all at once, so what was
//! begun is not planned anew; the build side is held back instead, as long as it is small.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    RunTimeChoices,
    cost::{ExchangeCosts, Load, ShuffleSpread, row_bytes},
    distribution::{Distribution, preserves},
    heavy::{KeyOfSides, estimated_bytes, unknown_columns},
};
use crate::{ColumnId, ExchangeId, ExchangeKind, ExchangeReach, JoinSide, Operator, Relation};

/// More bytes than this, of all ranks, are not held back: while they are, nothing moves.
const HELD_BYTES_MAX: f64 = (256u64 << 20) as f64;
/// Less than this is not worth the choice: what is expected to be shuffled is more.
const HELD_BYTES_MIN: f64 = (64u64 << 10) as f64;
/// Rows at which costs, which grow with them, are measured.
const MANY_ROWS: f64 = 1e9;
/// A broadcast that moves less is not worth knowing of a better way: to count rows of a key takes longer.
const REPLACED_BYTES_MIN: f64 = (256u64 << 20) as f64;

/// A join both of whose sides are shuffled.
struct Candidate {
    build: ExchangeId,
    probe: ExchangeId,
    bytes_max: u64,
}

/// What is found in a tree.
#[derive(Default)]
struct Found {
    candidates: Vec<Candidate>,
    /// See [`unknown_columns`].
    unknown: BTreeSet<ColumnId>,
}

/// An exchange that is a side of a join.
#[derive(Clone, Copy)]
struct ExchangedSide<'a> {
    id: ExchangeId,
    kind: &'a ExchangeKind,
    reach: ExchangeReach,
    input: &'a Relation,
}

impl<'a> ExchangedSide<'a> {
    fn of(relation: &'a Relation) -> Option<Self> {
        match &relation.operator {
            Operator::Exchange { input, id, kind, reach } => {
                Some(Self { id: *id, kind, reach: *reach, input })
            }
            _ => None,
        }
    }

    /// Whether it partitions rows in one step, some or all of them.
    fn is_shuffle(self) -> bool {
        let partitions = matches!(
            self.kind,
            ExchangeKind::Hash { .. }
                | ExchangeKind::HashOrBroadcast { .. }
                | ExchangeKind::HashOrStay { .. }
        );
        partitions && self.reach == ExchangeReach::All
    }
}

/// The tree with choices wherever they are right and may pay; and the columns of scans whose common values would be worth knowing.
pub(super) fn with_choices(
    root: Arc<Relation>,
    costs: &ExchangeCosts,
    choices: RunTimeChoices,
) -> (Arc<Relation>, BTreeSet<ColumnId>) {
    let mut found = Found::default();
    find_candidates(&root, (costs, choices), &mut found);
    let root = found.candidates.into_iter().fold(root, |root, candidate| {
        let chosen = with_choice(&root, &candidate);
        if Distribution::of(&chosen).is_ok() { chosen } else { root }
    });
    (root, found.unknown)
}

fn find_candidates(
    relation: &Relation,
    (costs, choices): (&ExchangeCosts, RunTimeChoices),
    found: &mut Found,
) {
    if let Operator::Join { kind, left, right, keys, build, .. } = &relation.operator
        && !preserves(*kind, *build)
    {
        let (build_input, probe_input) = match build {
            JoinSide::Left => (left, right),
            JoinSide::Right => (right, left),
        };
        // Whether rows with heavy keys might be partitioned better if they were known.
        let is_worth_knowing = match (ExchangedSide::of(build_input), ExchangedSide::of(probe_input)) {
            (Some(build), Some(probe)) if build.is_shuffle() && probe.is_shuffle() => {
                let bytes_max = match choices.broadcast {
                    true => broadcast_bytes_max(costs, build.input, probe.input).min(HELD_BYTES_MAX),
                    false => 0.0,
                };
                if bytes_max >= HELD_BYTES_MIN {
                    let bytes_max = bytes_max as u64;
                    found.candidates.push(Candidate { build: build.id, probe: probe.id, bytes_max });
                }
                true
            }
            (Some(ExchangedSide { kind: ExchangeKind::Broadcast, input, .. }), None) => {
                estimated_bytes(input) * (costs.rank_count() - 1.0) >= REPLACED_BYTES_MIN
            }
            _ => false,
        };
        if choices.heavy_keys
            && is_worth_knowing
            && let Some(keys) = KeyOfSides::of(keys)
        {
            found.unknown.extend(unknown_columns(keys.sides(*build, (left, right))));
        }
    }
    relation.inputs().into_iter().for_each(|input| find_candidates(input, (costs, choices), found));
}

/// The bytes of a build side up to which to broadcast it takes no longer than to shuffle both.
fn broadcast_bytes_max(costs: &ExchangeCosts, build: &Relation, probe: &Relation) -> f64 {
    let ranks = costs.rank_count();
    let load = |relation: &Relation, rows| Load {
        rows,
        row_bytes: row_bytes(&relation.columns()),
        senders: ranks,
        shuffle: ShuffleSpread::among(ranks),
    };
    let shuffle = ExchangeKind::Hash { keys: Vec::new() };
    let probe_seconds = costs.movement(&shuffle, load(probe, probe.estimate.rows.max(0.0))).seconds;
    // How much longer a shuffle of both takes.
    let gain = |rows| {
        let shuffled = costs.movement(&shuffle, load(build, rows)).seconds + rows / ranks * costs.build_row_s;
        let broadcast =
            costs.movement(&ExchangeKind::Broadcast, load(build, rows)).seconds + rows * costs.build_row_s;
        probe_seconds + shuffled - broadcast
    };
    let (first, later) = (gain(0.0), gain(MANY_ROWS));
    let rows = if later < first { first / (first - later) * MANY_ROWS } else { f64::INFINITY };
    rows * row_bytes(&build.columns())
}

fn with_choice(relation: &Relation, candidate: &Candidate) -> Arc<Relation> {
    let mut relation = relation.map_inputs(&mut |input| with_choice(input, candidate));
    let Candidate { build, probe, bytes_max } = *candidate;
    if let Operator::Exchange { id, kind, .. } = &mut Arc::make_mut(&mut relation).operator {
        match kind {
            ExchangeKind::HashOrBroadcast { bytes_max: known, .. } if *id == build => *known = bytes_max,
            ExchangeKind::Hash { keys } if *id == build => {
                let keys = std::mem::take(keys);
                *kind = ExchangeKind::HashOrBroadcast { keys, bytes_max, heavy: Vec::new() };
            }
            ExchangeKind::Hash { keys } if *id == probe => {
                let keys = std::mem::take(keys);
                *kind = ExchangeKind::HashOrStay { keys, partner: build, heavy: Vec::new() };
            }
            _ => {}
        }
    }
    relation
}
