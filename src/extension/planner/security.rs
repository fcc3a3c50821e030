//! The order in which a table's conditions may be evaluated, and what EXPLAIN may count: no
//! expression of a user sees a row that a row-security policy or a security barrier hides.
//!
//! PostgreSQL gives every condition a level: policies come first, conditions of the user last. A condition of a higher
//! level that could fail is evaluated only for rows that those of lower levels let through, since its error would show
//! a hidden row's values. In a plan the lowest level and whatever can't fail are the scan's own conditions, and each
//! further level is a filter above. Where a policy stays in PostgreSQL, conditions above it stay there too, but for
//! those that PostgreSQL itself would look up in an index (leakproof ones).
//!
//! Deliberately absent: security barriers over subqueries. Core pushes no leaky condition into one, and `label.rs`
//! takes none that could fail above one.

use std::collections::BTreeMap;

use pystachio_lower::{Refusal, Scope, has_parameter};
use pystachio_plan::{Expression, could_fail};

use super::{clauses::in_order, lowering::Lowering, planning::with_planning, relation_info::RelationInfo};
use crate::{
    pg::tree::{RangeEntry, Rel, Root},
    settings,
};

/// The conditions of a base relation.
pub struct LeveledConditions {
    /// Those of the scan itself.
    pub scan: Vec<Expression>,
    /// One predicate a level above it, the lowest first.
    pub above: Vec<Expression>,
    /// Those that PostgreSQL checks: their places in the relation's `baserestrictinfo`.
    pub local: Vec<usize>,
}

/// Lowers the conditions of a table, whose columns `scope` has, as far as they may leave PostgreSQL. The planning notes why others may not.
pub fn leveled_conditions<'p>(
    root: Root<'p>,
    relation: Rel<'p>,
    scope: &Scope,
    table: &str,
) -> LeveledConditions {
    let refuse = |refusal: Refusal| {
        with_planning(|planning| planning.refuse(format!("filter on {table}: {refusal}")));
    };
    let mut local = Vec::new();
    let mut lowered = Vec::new();
    let mut lowest = u32::MAX;
    for clause in in_order(root, relation.clauses()) {
        lowest = lowest.min(clause.security_level());
        match Lowering::new(scope).lower_clause(root, clause) {
            // A value that engines don't have makes such a condition fail, and the way out is this setting.
            Ok(condition) if !settings::pushdown() && has_parameter(&condition, |_| true) => {
                local.push(clause);
            }
            // A condition guards those that PostgreSQL tests after it.
            Ok(condition) if !local.is_empty() && could_fail(&condition, &|_| false) => {
                refuse(Refusal::CouldFailAfterLocal);
                local.push(clause);
            }
            Ok(condition) => lowered.push((clause, condition)),
            Err(refusal) => {
                refuse(refusal);
                local.push(clause);
            }
        }
    }
    let lowest_local = local.iter().map(|clause| clause.security_level()).min().unwrap_or(u32::MAX);
    let mut scan = Vec::new();
    let mut levels: BTreeMap<u32, Vec<Expression>> = BTreeMap::new();
    for (clause, condition) in lowered {
        let level = clause.security_level();
        let is_silent = !could_fail(&condition, &|_| false);
        if level > lowest_local && !(is_silent && clause.is_leakproof()) {
            refuse(Refusal::HiddenByPolicy);
            local.push(clause);
        } else if level > lowest && !is_silent {
            levels.entry(level).or_default().push(condition);
        } else {
            scan.push(condition);
        }
    }
    let above = levels.into_values().filter_map(Expression::all_of).collect();
    let own = relation.clauses().iter();
    let local =
        own.enumerate().filter(|(_, clause)| local.contains(clause)).map(|(place, _)| place).collect();
    LeveledConditions { scan, above, local }
}

/// Whether something hides rows of what a scan reads, so that what the engine counts would tell of hidden rows: how
/// many there are, and, by what statistics rule out, their values.
pub fn hides_rows<'p>(root: Root<'p>, info: &RelationInfo<'p>) -> bool {
    let within = [root].into_iter().chain(info.absorbed.iter().copied());
    let mut entries = within.flat_map(|root| root.parse().range_table().iter());
    entries.any(hides) || is_below_barrier(root)
}

fn hides(entry: RangeEntry<'_>) -> bool {
    entry.is_security_barrier() || !entry.security_conditions().is_nil()
}

/// Whether the query is a subquery with a barrier, or part of one.
fn is_below_barrier(root: Root<'_>) -> bool {
    let mut own = root;
    while let Some(parent) = own.parent_root() {
        let is_own =
            |index: &usize| parent.relation(*index).is_some_and(|relation| relation.subroot() == Some(own));
        if parent.indexes().filter(is_own).any(|index| parent.entry(index).is_some_and(hides)) {
            return true;
        }
        own = parent;
    }
    false
}
