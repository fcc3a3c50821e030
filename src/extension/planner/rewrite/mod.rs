//! Queries that PostgreSQL can't flatten, made flat before it plans them.
//!
//! - `membership.rs`: IN, ANY, ALL and their negations become EXISTS, which core turns into semi and anti joins
//! - `scalar_aggregate.rs`: a correlated scalar aggregate becomes a join with a grouped subquery
//! - `lateral.rs`: LATERAL subqueries with aggregates or groups become joins with grouped subqueries
//! - `mark.rs`: EXISTS and IN that are no conjuncts become left joins with a grouped subquery
//! - `set_operation.rs`: UNION, INTERSECT and EXCEPT become groups over UNION ALL
//! - `grouping_sets.rs`: GROUPING SETS, ROLLUP and CUBE become UNION ALL of groups
//! - `sql_function.rs`: calls of SQL functions that read tables of ours become subqueries
//! - `whole_row.rs`: rows that are named whole become rows of columns
//! - `correlation.rs`, `derived.rs`, `never_null.rs`: what these share
//! - CTEs that are used more than once are inlined, here
//!
//! Invariants: a rewritten query gives the same rows as the original on any tables. That makes the
//! rewrites testable on heap tables (`pystachio.rewrite = force`).
//!
//! Deliberately absent: choosing. The hook plans the rewritten query, and others too if the rewritten one does not become one
//! scan: see `hooks.rs` and the section Subqueries of the crate's README.

mod correlation;
mod derived;
mod grouping_sets;
mod lateral;
mod mark;
mod membership;
mod never_null;
mod scalar_aggregate;
mod set_operation;
pub mod sql_function;
mod whole_row;

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    nodes::{elements, node_as, tag_of, walk_expression},
    relation_info::{is_our_table, names_our_table},
};
use crate::pg::compat;

/// Whether a query has anything that could be rewritten; cheap, and false for most queries.
pub unsafe fn has_candidates(query: *mut pg_sys::Query) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        if (*query).commandType != pg_sys::CmdType::CMD_SELECT
            && (*query).commandType != pg_sys::CmdType::CMD_INSERT
        {
            return false;
        }
        if (*query).hasSubLinks
            || !(*query).cteList.is_null()
            || !(*query).setOperations.is_null()
            || !(*query).groupingSets.is_null()
            || whole_row::is_candidate(query)
            || lateral::is_candidate(query)
        {
            return true;
        }
        elements::<pg_sys::RangeTblEntry>((*query).rtable)
            .any(|entry| !(*entry).subquery.is_null() && has_candidates((*entry).subquery))
    }
}

/// What of a query is rewritten.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Also what reads tables that are not ours.
    pub any_table: bool,
    /// Only what PostgreSQL can run as well as the original where it is not pushed down: joins by equality. Without it, NOT IN
    /// becomes a join that PostgreSQL runs as a nested loop, and a CTE is inlined wherever it is used.
    pub only_hashed: bool,
}

impl Extent {
    /// The subqueries in a query's expressions that are rewritten. The query is `whole` if all of it is.
    fn of_links(self, whole: bool) -> Links {
        Links { whole, only_hashed: self.only_hashed }
    }
}

/// Which subqueries in the expressions of one query are rewritten.
#[derive(Clone, Copy)]
pub struct Links {
    whole: bool,
    only_hashed: bool,
}

impl Links {
    /// Whether the subquery of a link is rewritten: one that reads nothing but tables of ours, whatever is around it.
    unsafe fn contain(self, link: &pg_sys::SubLink) -> bool {
        unsafe { self.whole || is_ours(link.subselect.cast()) }
    }
}

/// Whether a subquery reads tables of ours, and nothing else.
unsafe fn is_ours(subquery: *mut pg_sys::Query) -> bool {
    unsafe { reads_only_ours(subquery) && names_our_table(subquery) }
}

/// Rewrites a query in place, innermost queries first. Returns whether anything changed. The caller has found a table of
/// ours in it.
pub unsafe fn rewrite_query(query: *mut pg_sys::Query, extent: Extent) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        let mut changed = false;
        for cte in elements::<pg_sys::CommonTableExpr>((*query).cteList) {
            // The working table of a recursive one is an operand of its UNION.
            if tag_of((*cte).ctequery) == NodeTag::T_Query && !(*cte).cterecursive {
                changed |= rewrite_query((*cte).ctequery.cast(), extent);
            }
        }
        for entry in elements::<pg_sys::RangeTblEntry>((*query).rtable) {
            if !(*entry).subquery.is_null() {
                changed |= rewrite_query((*entry).subquery, extent);
            }
        }
        let links = sub_links(query);
        for link in &links {
            changed |= rewrite_query((**link).subselect.cast(), extent);
        }
        let whole = extent.any_table || reads_only_ours(query);
        if !whole {
            // Rows of tables of PostgreSQL's that are locked are read again by themselves.
            let is_any_ours = links.iter().any(|link| is_ours((**link).subselect.cast()));
            let is_read = (*query).commandType == pg_sys::CmdType::CMD_SELECT && (*query).rowMarks.is_null();
            if !is_read || !(is_any_ours || lateral::is_candidate(query)) {
                return changed;
            }
        }
        // Grouping sets have their own way with it.
        if (*query).groupingSets.is_null() {
            let parsed = compat::without_group_entry(query);
            std::ptr::copy(parsed, query, 1);
        }
        if whole {
            changed |= !extent.only_hashed && inline_ctes(query);
            changed |= whole_row::rewrite(query);
        }
        changed |= lateral::rewrite(query, whole);
        if (*query).hasSubLinks {
            let links = extent.of_links(whole);
            changed |= membership::rewrite(query, links);
            changed |= scalar_aggregate::rewrite(query, links);
            changed |= mark::rewrite(query, links);
        }
        if whole {
            changed |= set_operation::rewrite(query);
            changed |= grouping_sets::rewrite(query);
        }
        changed
    }
}

/// Every SubLink of this level's expressions. Those inside other SubLinks' queries belong to these.
unsafe fn sub_links(query: *mut pg_sys::Query) -> Vec<*mut pg_sys::SubLink> {
    let mut links = Vec::new();
    unsafe {
        if !(*query).hasSubLinks {
            return links;
        }
        let mut collect = |node: *mut pg_sys::Node| match tag_of(node) {
            NodeTag::T_SubLink => {
                let link = node.cast::<pg_sys::SubLink>();
                links.push(link);
                false
            }
            NodeTag::T_Query => false,
            _ => true,
        };
        walk_expression((*query).targetList.cast(), &mut collect);
        walk_expression((*query).jointree.cast(), &mut collect);
        walk_expression((*query).havingQual, &mut collect);
    }
    links
}

/// Whether every table of a query and of its subqueries is a foreign table of ours.
unsafe fn reads_only_ours(query: *mut pg_sys::Query) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        let entries_are_ours = elements::<pg_sys::RangeTblEntry>((*query).rtable).all(|entry| {
            match (*entry).rtekind {
                pg_sys::RTEKind::RTE_RELATION => {
                    let kind = (*entry).relkind as u8;
                    // A view's own entry stays in the range table; its query is what counts.
                    kind == b'v' || (kind == b'f' && is_our_table((*entry).relid))
                }
                pg_sys::RTEKind::RTE_SUBQUERY => reads_only_ours((*entry).subquery),
                pg_sys::RTEKind::RTE_FUNCTION
                | pg_sys::RTEKind::RTE_TABLEFUNC
                | pg_sys::RTEKind::RTE_VALUES
                | pg_sys::RTEKind::RTE_NAMEDTUPLESTORE => false,
                _ => true,
            }
        });
        entries_are_ours
            && elements::<pg_sys::CommonTableExpr>((*query).cteList).all(|cte| {
                tag_of((*cte).ctequery) == NodeTag::T_Query && reads_only_ours((*cte).ctequery.cast())
            })
            && sub_links(query).into_iter().all(|link| reads_only_ours((*link).subselect.cast()))
    }
}

/// CTEs without MATERIALIZED are inlined however often they are used. Core still keeps
/// recursive, volatile and data-modifying ones.
unsafe fn inline_ctes(query: *mut pg_sys::Query) -> bool {
    let mut changed = false;
    unsafe {
        for cte in elements::<pg_sys::CommonTableExpr>((*query).cteList) {
            let is_default = (*cte).ctematerialized == pg_sys::CTEMaterialize::CTEMaterializeDefault;
            if is_default && !(*cte).cterecursive && (*cte).cterefcount > 1 {
                (*cte).ctematerialized = pg_sys::CTEMaterialize::CTEMaterializeNever;
                changed = true;
            }
        }
    }
    changed
}

/// A deep copy of a node, its tag first.
unsafe fn copy_of<T>(node: *mut T) -> *mut T {
    unsafe { pg_sys::copyObjectImpl(node.cast()).cast() }
}

/// The conjuncts of a condition, those of a negated disjunction too.
unsafe fn conjuncts(condition: *mut pg_sys::Node) -> Vec<*mut pg_sys::Node> {
    unsafe {
        pg_sys::check_stack_depth();
        if condition.is_null() {
            return Vec::new();
        }
        if let Some(both) = node_as::<pg_sys::BoolExpr>(condition, NodeTag::T_BoolExpr)
            && both.boolop == pg_sys::BoolExprType::AND_EXPR
        {
            return elements::<pg_sys::Node>(both.args).flat_map(|part| conjuncts(part)).collect();
        }
        if let Some(inner) = membership::negated(condition)
            && let Some(either) = node_as::<pg_sys::BoolExpr>(inner, NodeTag::T_BoolExpr)
        {
            let arguments = elements::<pg_sys::Node>(either.args);
            return match either.boolop {
                pg_sys::BoolExprType::OR_EXPR => {
                    arguments.flat_map(|part| conjuncts(membership::not(part))).collect()
                }
                pg_sys::BoolExprType::NOT_EXPR => arguments.flat_map(|part| conjuncts(part)).collect(),
                _ => vec![condition],
            };
        }
        if let Some(list) = node_as::<pg_sys::List>(condition, NodeTag::T_List) {
            let list: *const pg_sys::List = list;
            return elements::<pg_sys::Node>(list.cast_mut()).flat_map(|part| conjuncts(part)).collect();
        }
        vec![condition]
    }
}

/// The conjunction of conditions; NULL of none.
unsafe fn conjunction(conditions: &[*mut pg_sys::Node]) -> *mut pg_sys::Node {
    unsafe {
        match conditions {
            [] => std::ptr::null_mut(),
            [one] => *one,
            many => {
                let list = super::nodes::list_of(many.iter().copied());
                pg_sys::makeBoolExpr(pg_sys::BoolExprType::AND_EXPR, list, -1).cast()
            }
        }
    }
}
