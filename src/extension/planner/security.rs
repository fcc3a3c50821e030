//! In which order a table's conditions may be evaluated, and what EXPLAIN may count: nothing that a user writes sees a
//! row that a row-security policy or a security barrier hides.
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

use pgrx::pg_sys;
use pystachio_lower::{Refusal, Scope, has_parameter};
use pystachio_plan::{Expression, could_fail};

use super::{
    clauses::in_order, lowering::Lowering, nodes::elements, planning::with_planning,
    relation_info::RelationInfo,
};
use crate::settings;

/// The conditions of a base relation.
pub struct LeveledConditions {
    /// Those of the scan itself.
    pub scan: Vec<Expression>,
    /// One predicate a level above it, the lowest first.
    pub above: Vec<Expression>,
    /// Those that PostgreSQL checks: their places in the relation's `baserestrictinfo`.
    pub local: Vec<usize>,
}

/// Lowers the conditions of a table as far as they may leave PostgreSQL. The planning notes why others may not.
///
/// # Safety
///
/// The relation is the planner's own, and `scope` has its columns.
pub unsafe fn leveled_conditions(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    scope: &Scope,
    table: &str,
) -> LeveledConditions {
    unsafe {
        let refuse = |refusal: Refusal| {
            with_planning(|planning| planning.refuse(format!("filter on {table}: {refusal}")));
        };
        let mut local = Vec::new();
        let mut lowered = Vec::new();
        let mut lowest = u32::MAX;
        for clause in in_order(root, (*relation).baserestrictinfo) {
            lowest = lowest.min((*clause).security_level);
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
        let lowest_local = local.iter().map(|clause| (**clause).security_level).min().unwrap_or(u32::MAX);
        let mut scan = Vec::new();
        let mut levels: BTreeMap<u32, Vec<Expression>> = BTreeMap::new();
        for (clause, condition) in lowered {
            let level = (*clause).security_level;
            let is_silent = !could_fail(&condition, &|_| false);
            if level > lowest_local && !(is_silent && (*clause).leakproof) {
                refuse(Refusal::HiddenByPolicy);
                local.push(clause);
            } else if level > lowest && !is_silent {
                levels.entry(level).or_default().push(condition);
            } else {
                scan.push(condition);
            }
        }
        let above = levels.into_values().filter_map(Expression::all_of).collect();
        let own = elements::<pg_sys::RestrictInfo>((*relation).baserestrictinfo);
        let local =
            own.enumerate().filter(|(_, clause)| local.contains(clause)).map(|(place, _)| place).collect();
        LeveledConditions { scan, above, local }
    }
}

/// Whether something hides rows of what a scan reads, so that what the engine counts would tell of hidden rows: how
/// many there are, and, by what statistics rule out, their values.
///
/// # Safety
///
/// `root` is the planner's own.
pub unsafe fn hides_rows(root: *mut pg_sys::PlannerInfo, info: &RelationInfo) -> bool {
    unsafe {
        let within = [root].into_iter().chain(info.absorbed.iter().copied());
        let mut entries = within.flat_map(|root| elements::<pg_sys::RangeTblEntry>((*(*root).parse).rtable));
        entries.any(|entry| hides(entry)) || is_below_barrier(root)
    }
}

unsafe fn hides(entry: *mut pg_sys::RangeTblEntry) -> bool {
    unsafe { (*entry).security_barrier || !(*entry).securityQuals.is_null() }
}

/// Whether the query is a subquery with a barrier, or part of one.
unsafe fn is_below_barrier(root: *mut pg_sys::PlannerInfo) -> bool {
    unsafe {
        let mut own = root;
        while !(*own).parent_root.is_null() {
            let parent = (*own).parent_root;
            for index in 1..(*parent).simple_rel_array_size as usize {
                let relation = *(*parent).simple_rel_array.add(index);
                let entry = *(*parent).simple_rte_array.add(index);
                if !relation.is_null() && (*relation).subroot == own && !entry.is_null() && hides(entry) {
                    return true;
                }
            }
            own = parent;
        }
        false
    }
}
