//! Subqueries in FROM that return no row, whatever the tables have: groups of nothing.
//!
//! PostgreSQL knows that a relation is empty if its condition is constant and false, and so are
//! joins with it. It does not conclude that such a relation has no groups. So a subquery with
//! groups of nothing would be a relation that no engine computes, and would keep the whole union
//! around it in PostgreSQL.
//!
//! An example is a CTE with `'store' AS channel` in one member of its UNION ALL and `'web' AS
//! channel` in the other: each reference of the CTE reads one of the members.

use pgrx::pg_sys;

use super::relation_info::names_our_table;
use crate::pg::tree::{Path, Rel, check_stack_depth};

/// Marks a subquery of FROM as empty if it reads our tables and can't return a row. Says whether it has.
pub fn mark_if_empty(relation: Rel<'_>) -> bool {
    let Some(subroot) = relation.subroot() else { return false };
    let last = subroot.upper_relation(pg_sys::UpperRelationKind::UPPERREL_FINAL);
    let is_empty = !relation.is_dummy()
        && last.cheapest_total_path().is_some_and(has_no_row)
        && names_our_table(subroot.parse());
    if is_empty {
        relation.mark_dummy();
    }
    is_empty
}

/// Whether a path returns no row, in whatever order its rows would come.
fn has_no_row(path: Path<'_>) -> bool {
    check_stack_depth();
    if let Some(append) = path.downcast::<pg_sys::AppendPath>() {
        return append.paths().is_empty();
    }
    if let Some(aggregate) = path.downcast::<pg_sys::AggPath>() {
        // Without keys there is one group of nothing.
        return aggregate.strategy() != pg_sys::AggStrategy::AGG_PLAIN && has_no_row(aggregate.path());
    }
    path.passed_on().is_some_and(has_no_row)
}
