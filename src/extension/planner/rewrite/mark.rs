//! EXISTS and IN that are no conjuncts become left joins.
//!
//! ```text
//! WHERE x > 1 OR EXISTS (SELECT 1 FROM s WHERE s.k = o.k AND …)
//! ─►  FROM o LEFT JOIN (SELECT s.k FROM s WHERE … GROUP BY s.k) m ON m.k = o.k  WHERE x > 1 OR m.k IS NOT NULL
//! ```
//!
//! Where they are conjuncts, core makes semi and anti joins of them, which is better.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    Links, conjunction, conjuncts, copy_of,
    correlation::{group_by_keys, join_clauses, take_keys},
    derived::{has_links_by_row, is_simple, left_join, null_test, nullable_column},
    membership::{Kept, Membership, negated, not},
};
use crate::planner::nodes::{element_count, elements, list_of, node_as, substitute};

/// Rewrites what it can of the query's WHERE and columns. Returns whether it rewrote anything.
pub unsafe fn rewrite(query: *mut pg_sys::Query, links: Links) -> bool {
    unsafe {
        if !(*query).rowMarks.is_null() {
            return false;
        }
        let mut marks = Marks { query, links, changed: false };
        let mut conditions = conjuncts((*(*query).jointree).quals);
        for condition in &mut conditions {
            let inner = negated(*condition).unwrap_or(*condition);
            if node_as::<pg_sys::SubLink>(inner, NodeTag::T_SubLink).is_none() {
                *condition = marks.condition(*condition, Kept::Truth);
            }
        }
        if has_links_by_row(query) {
            (*query).targetList = marks.expression((*query).targetList.cast()).cast();
        }
        if marks.changed {
            (*(*query).jointree).quals = conjunction(&conditions);
        }
        marks.changed
    }
}

struct Marks {
    query: *mut pg_sys::Query,
    links: Links,
    changed: bool,
}

impl Marks {
    /// A condition of which only truth, or only falsity, must be kept.
    unsafe fn condition(&mut self, node: *mut pg_sys::Node, kept: Kept) -> *mut pg_sys::Node {
        unsafe {
            pg_sys::check_stack_depth();
            if let Some(expression) = node_as::<pg_sys::BoolExpr>(node, NodeTag::T_BoolExpr) {
                let is_negation = expression.boolop == pg_sys::BoolExprType::NOT_EXPR;
                let kept = if is_negation { kept.flipped() } else { kept };
                let arguments: Vec<_> = elements::<pg_sys::Node>(expression.args).collect();
                let arguments: Vec<_> =
                    arguments.into_iter().map(|argument| self.condition(argument, kept)).collect();
                return pg_sys::makeBoolExpr(expression.boolop, list_of(arguments), -1).cast();
            }
            match node_as::<pg_sys::SubLink>(node, NodeTag::T_SubLink) {
                Some(link) => self.link(link, Some(kept)).unwrap_or(node),
                None => self.expression(node),
            }
        }
    }

    /// An expression whose value must be kept.
    unsafe fn expression(&mut self, node: *mut pg_sys::Node) -> *mut pg_sys::Node {
        unsafe {
            substitute(node, &mut |part| {
                let link = node_as::<pg_sys::SubLink>(part, NodeTag::T_SubLink)?;
                self.link(link, None)
            })
        }
    }

    /// A condition over a left join's column in the place of an EXISTS or a membership. `kept` is `None` where NULL must
    /// stay NULL.
    unsafe fn link(&mut self, link: &pg_sys::SubLink, kept: Option<Kept>) -> Option<*mut pg_sys::Node> {
        unsafe {
            if !self.links.contain(link) {
                return None;
            }
            if link.subLinkType == pg_sys::SubLinkType::EXISTS_SUBLINK {
                return self.mark(copy_of(link.subselect.cast()));
            }
            let node: *const pg_sys::SubLink = link;
            let membership = Membership::of(node.cast_mut().cast(), self.links)?;
            let of_any = kept.map(|kept| if membership.is_negated { kept.flipped() } else { kept });
            if of_any != Some(Kept::Truth) && !membership.is_never_null(self.query) {
                return None;
            }
            let (exists, _) = membership.to_exists(self.query, Kept::Truth)?;
            let exists = node_as::<pg_sys::SubLink>(exists, NodeTag::T_SubLink)?;
            let mark = self.mark(exists.subselect.cast())?;
            Some(if membership.is_negated { not(mark) } else { mark })
        }
    }

    /// Whether the subquery has rows, as a condition over a column of a left join.
    unsafe fn mark(&mut self, subquery: *mut pg_sys::Query) -> Option<*mut pg_sys::Node> {
        unsafe {
            if !is_simple(subquery) {
                return None;
            }
            (*subquery).targetList = std::ptr::null_mut();
            (*subquery).distinctClause = std::ptr::null_mut();
            (*subquery).sortClause = std::ptr::null_mut();
            let keys = take_keys(subquery)?;
            let first = group_by_keys(subquery, &keys);
            let relation_index = element_count((*self.query).rtable) as i32 + 1;
            let clauses = join_clauses(&keys, relation_index, subquery, first);
            left_join(self.query, subquery, &clauses);
            self.changed = true;
            let key = elements::<pg_sys::TargetEntry>((*subquery).targetList).next()?;
            Some(null_test(nullable_column(relation_index, key), pg_sys::NullTestType::IS_NOT_NULL))
        }
    }
}
