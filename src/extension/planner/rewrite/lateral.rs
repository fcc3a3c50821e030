//! LATERAL subqueries with aggregates, groups or DISTINCT become joins with grouped subqueries.
//!
//! ```text
//! FROM p CROSS JOIN LATERAL (SELECT count(*) AS n, max(q) AS m FROM l WHERE l.k = p.k) s
//! ─►  FROM p LEFT JOIN (SELECT count(*) AS n, max(q) AS m, l.k FROM l GROUP BY l.k) g ON g.k = p.k
//!     CROSS JOIN LATERAL (SELECT CASE WHEN g.k IS NULL THEN 0 ELSE g.n END AS n, g.m AS m) s
//!
//! FROM p LEFT JOIN LATERAL (SELECT q, count(*) FROM l WHERE l.k = p.k GROUP BY q) s ON true
//! ─►  FROM p LEFT JOIN (SELECT q, count(*), l.k FROM l GROUP BY q, l.k) s ON s.k = p.k
//! ```
//!
//! In the first, the subquery keeps its place and its columns, so nothing that names them changes; core pulls it up, and
//! knows where outer joins make its columns NULL.
//!
//! Left alone: subqueries that core pulls up, those with LIMIT, and those that name relations of another part of FROM than the
//! other side of their join.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    conjunction, copy_of,
    correlation::{group_by_keys, join_clauses, take_keys},
    derived::{append_entry, has_plain_rows, is_ungrouped, nullable_column},
    is_ours,
    never_null::collect_relations,
    scalar_aggregate::{or_over_no_rows, over_no_rows},
};
use crate::planner::nodes::{
    element_count, elements, list_of, make_node, names_row, node_as, tag_of, walk_expression,
};

/// Whether a query has a subquery that could be rewritten.
pub unsafe fn is_candidate(query: *mut pg_sys::Query) -> bool {
    unsafe { elements::<pg_sys::RangeTblEntry>((*query).rtable).any(|entry| is_lateral(entry)) }
}

unsafe fn is_lateral(entry: *mut pg_sys::RangeTblEntry) -> bool {
    unsafe {
        (*entry).lateral && (*entry).rtekind == pg_sys::RTEKind::RTE_SUBQUERY && !(*entry).security_barrier
    }
}

/// Rewrites what it can of the query's FROM: of a query that is `whole` ours, or else subqueries that are. Returns whether it
/// rewrote anything.
pub unsafe fn rewrite(query: *mut pg_sys::Query, whole: bool) -> bool {
    unsafe {
        if !(*query).rowMarks.is_null() {
            return false;
        }
        let mut changed = false;
        // A rewrite appends to the list, which may move it.
        let entries: Vec<_> = elements::<pg_sys::RangeTblEntry>((*query).rtable).enumerate().collect();
        for (place, entry) in entries {
            if is_lateral(entry) && (whole || is_ours((*entry).subquery)) {
                let lateral = Lateral { query, entry, relation_index: place as i32 + 1 };
                changed |= lateral.rewrite().is_some();
            }
        }
        changed
    }
}

/// A LATERAL subquery of a query.
struct Lateral {
    query: *mut pg_sys::Query,
    entry: *mut pg_sys::RangeTblEntry,
    relation_index: i32,
}

/// Where it stands.
enum Position {
    /// The right side of a join.
    Join(*mut pg_sys::JoinExpr),
    /// An item of FROM, with so many before it.
    Item(usize),
}

impl Lateral {
    /// `None` if it is left alone.
    unsafe fn rewrite(&self) -> Option<()> {
        unsafe {
            let subquery = copy_of((*self.entry).subquery);
            let is_aggregate = (*subquery).hasAggs && is_ungrouped(subquery);
            let has_groups = !(*subquery).groupClause.is_null() || !(*subquery).distinctClause.is_null();
            let is_wanted = has_plain_rows(subquery)
                && (is_aggregate || has_groups)
                && !(*subquery).hasDistinctOn
                && (*subquery).groupingSets.is_null();
            if !is_wanted {
                return None;
            }
            let position = self.position()?;
            // In no order that anything could see.
            (*subquery).sortClause = std::ptr::null_mut();
            match is_aggregate {
                true => self.join_aggregate(subquery, &position),
                false => self.join_groups(subquery, &position),
            }
        }
    }

    unsafe fn position(&self) -> Option<Position> {
        unsafe {
            let items = (*(*self.query).jointree).fromlist;
            let is_this = |node: *mut pg_sys::Node| {
                node_as::<pg_sys::RangeTblRef>(node, NodeTag::T_RangeTblRef)
                    .is_some_and(|reference| reference.rtindex == self.relation_index)
            };
            if let Some(place) = elements::<pg_sys::Node>(items).position(is_this) {
                return Some(Position::Item(place));
            }
            let mut found = None;
            walk_expression(items.cast(), &mut |node| {
                if tag_of(node) == NodeTag::T_JoinExpr {
                    let join = node.cast::<pg_sys::JoinExpr>();
                    if is_this((*join).rarg) {
                        found = Some(join);
                    }
                }
                true
            });
            let is_taken = |join: &*mut pg_sys::JoinExpr| {
                matches!((**join).jointype, pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_LEFT)
            };
            found.filter(is_taken).map(Position::Join)
        }
    }

    /// Whether conditions of the join have no other columns than those of its left side and of the subquery.
    unsafe fn are_of_join(&self, clauses: &[*mut pg_sys::Node], position: &Position, other: i32) -> bool {
        unsafe {
            let mut known = vec![other];
            match position {
                Position::Join(join) => collect_relations((**join).larg, &mut known),
                Position::Item(place) => {
                    for item in elements::<pg_sys::Node>((*(*self.query).jointree).fromlist).take(*place) {
                        collect_relations(item, &mut known);
                    }
                }
            }
            let mut all_known = true;
            for clause in clauses {
                walk_expression(*clause, &mut |node| {
                    if let Some(var) = node_as::<pg_sys::Var>(node, NodeTag::T_Var) {
                        all_known = all_known && (var.varlevelsup > 0 || known.contains(&var.varno));
                    }
                    true
                });
            }
            all_known
        }
    }

    /// A subquery with groups is joined by its keys, which its rows as wholes must not have.
    unsafe fn join_groups(&self, subquery: *mut pg_sys::Query, position: &Position) -> Option<()> {
        unsafe {
            if names_row(self.query, self.relation_index) {
                return None;
            }
            let keys = take_keys(subquery)?;
            let first = group_by_keys(subquery, &keys);
            let clauses = join_clauses(&keys, self.relation_index, subquery, first);
            if !self.are_of_join(&clauses, position, self.relation_index) {
                return None;
            }
            for _ in &keys {
                let name = pg_sys::makeString(pg_sys::pstrdup(c"key".as_ptr()));
                let names = &mut (*(*self.entry).eref).colnames;
                *names = pg_sys::lappend(*names, name.cast());
            }
            (*self.entry).subquery = subquery;
            (*self.entry).lateral = false;
            let quals = match position {
                Position::Join(join) => &raw mut (**join).quals,
                Position::Item(_) => &raw mut (*(*self.query).jointree).quals,
            };
            let own = Some(*quals).filter(|quals| !quals.is_null());
            *quals = conjunction(&own.into_iter().chain(clauses).collect::<Vec<_>>());
            Some(())
        }
    }

    /// An aggregate has one row for each row of the other side. The grouped subquery is joined to that, and this one only says
    /// what it gives where that has no row.
    unsafe fn join_aggregate(&self, subquery: *mut pg_sys::Query, position: &Position) -> Option<()> {
        unsafe {
            (*subquery).distinctClause = std::ptr::null_mut();
            let columns: Vec<_> = elements::<pg_sys::TargetEntry>((*subquery).targetList)
                .filter(|column| !(**column).resjunk)
                .collect();
            (*subquery).targetList = list_of(columns.iter().copied());
            let mut defaults = Vec::new();
            for column in &columns {
                defaults.push(over_no_rows((**column).expr.cast())?);
            }
            let keys = take_keys(subquery)?;
            let first = group_by_keys(subquery, &keys);
            let grouped = element_count((*self.query).rtable) as i32 + 1;
            let clauses = join_clauses(&keys, grouped, subquery, first);
            if !self.are_of_join(&clauses, position, grouped) {
                return None;
            }
            self.left_join(subquery, &clauses, position);
            let mut targets = Vec::new();
            let key = elements::<pg_sys::TargetEntry>((*subquery).targetList).nth(first as usize - 1)?;
            for (column, default) in columns.iter().zip(defaults) {
                let value = nullable_column(grouped, *column);
                let key = nullable_column(grouped, key);
                for var in [value, key] {
                    (*var.cast::<pg_sys::Var>()).varlevelsup = 1;
                }
                let value = or_over_no_rows(value, key, default);
                let target =
                    pg_sys::makeTargetEntry(value.cast(), (**column).resno, (**column).resname, false);
                targets.push(target);
            }
            let own = make_node::<pg_sys::Query>(NodeTag::T_Query);
            (*own).commandType = pg_sys::CmdType::CMD_SELECT;
            (*own).canSetTag = true;
            (*own).jointree = make_node(NodeTag::T_FromExpr);
            (*own).targetList = list_of(targets);
            (*self.entry).subquery = own;
            Some(())
        }
    }

    /// Puts a left join with a subquery in the place of all that is left of this one.
    unsafe fn left_join(
        &self,
        subquery: *mut pg_sys::Query,
        clauses: &[*mut pg_sys::Node],
        position: &Position,
    ) {
        unsafe {
            let right = make_node::<pg_sys::RangeTblRef>(NodeTag::T_RangeTblRef);
            (*right).rtindex = append_entry(self.query, subquery);
            let entry = make_node::<pg_sys::RangeTblEntry>(NodeTag::T_RangeTblEntry);
            (*entry).rtekind = pg_sys::RTEKind::RTE_JOIN;
            (*entry).jointype = pg_sys::JoinType::JOIN_LEFT;
            (*entry).eref = pg_sys::makeAlias(c"join".as_ptr(), std::ptr::null_mut());
            (*self.query).rtable = pg_sys::lappend((*self.query).rtable, entry.cast());
            let left_join = make_node::<pg_sys::JoinExpr>(NodeTag::T_JoinExpr);
            (*left_join).jointype = pg_sys::JoinType::JOIN_LEFT;
            (*left_join).rarg = right.cast();
            (*left_join).quals = conjunction(clauses);
            (*left_join).rtindex = element_count((*self.query).rtable) as i32;
            match position {
                Position::Join(join) => {
                    (*left_join).larg = (**join).larg;
                    (**join).larg = left_join.cast();
                }
                Position::Item(place) => {
                    let from = (*self.query).jointree;
                    let items: Vec<_> = elements::<pg_sys::Node>((*from).fromlist).collect();
                    let (before, after) = items.split_at(*place);
                    let left = make_node::<pg_sys::FromExpr>(NodeTag::T_FromExpr);
                    (*left).fromlist = list_of(before.iter().copied());
                    (*left_join).larg = left.cast();
                    (*from).fromlist = list_of(
                        std::iter::once(left_join.cast::<pg_sys::Node>()).chain(after.iter().copied()),
                    );
                }
            }
        }
    }
}
