//! Subqueries in FROM that return no row, whatever the tables have: groups of nothing.
//!
//! PostgreSQL finds that a relation is empty if its condition is constant and false, and so are joins with it. It does not
//! conclude that there are no groups either. Members of UNION ALL are so for one constant column that tells the members
//! apart: of a CTE with `'store' AS channel` in one and `'web' AS channel` in the other, each use wants one of them. The other
//! one, which is then no relation of ours, would keep the whole union in PostgreSQL.

use pgrx::{pg_sys, pg_sys::NodeTag};

use super::{nodes::tag_of, relation_info::names_our_table};
use crate::pg::tree::Query;

/// Marks a subquery of FROM as empty if it reads our tables and can't return a row. Says whether it has.
pub unsafe fn mark_if_empty(relation: *mut pg_sys::RelOptInfo) -> bool {
    unsafe {
        let Some(subroot) = (*relation).subroot.as_ref() else { return false };
        let kind = pg_sys::UpperRelationKind::UPPERREL_FINAL;
        let last = pg_sys::fetch_upper_rel((*relation).subroot, kind, std::ptr::null_mut());
        let is_empty = !pg_sys::is_dummy_rel(relation)
            && has_no_row((*last).cheapest_total_path)
            && names_our_table(Query::known(subroot.parse));
        if is_empty {
            pg_sys::mark_dummy_rel(relation);
        }
        is_empty
    }
}

/// Whether a path returns no row, in whatever order its rows would come.
unsafe fn has_no_row(path: *mut pg_sys::Path) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        if path.is_null() {
            return false;
        }
        match tag_of(path.cast::<pg_sys::Node>()) {
            NodeTag::T_AppendPath => (*path.cast::<pg_sys::AppendPath>()).subpaths.is_null(),
            NodeTag::T_AggPath => {
                let aggregate = &*path.cast::<pg_sys::AggPath>();
                // Without keys there is one group of nothing.
                aggregate.aggstrategy != pg_sys::AggStrategy::AGG_PLAIN && has_no_row(aggregate.subpath)
            }
            NodeTag::T_GroupPath => has_no_row((*path.cast::<pg_sys::GroupPath>()).subpath),
            NodeTag::T_SortPath => has_no_row((*path.cast::<pg_sys::SortPath>()).subpath),
            NodeTag::T_ProjectionPath => has_no_row((*path.cast::<pg_sys::ProjectionPath>()).subpath),
            NodeTag::T_SubqueryScanPath => has_no_row((*path.cast::<pg_sys::SubqueryScanPath>()).subpath),
            _ => false,
        }
    }
}
