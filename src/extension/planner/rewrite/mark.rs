//! EXISTS and IN that are no conjuncts become left joins.
//!
//! ```text
//! WHERE x > 1 OR EXISTS (SELECT 1 FROM s WHERE s.k = o.k AND …)
//! ─►  FROM o LEFT JOIN (SELECT s.k FROM s WHERE … GROUP BY s.k) m ON m.k = o.k  WHERE x > 1 OR m.k IS NOT NULL
//! ```
//!
//! Where they are conjuncts, core makes semi and anti joins of them, which is better.

use pgrx::pg_sys;

use super::{
    Links, conjunction, conjuncts,
    correlation::{group_by_keys, join_clauses, take_keys},
    derived::{has_links_by_row, is_simple, left_join, null_test, nullable_column},
    membership::{Kept, Membership, negated, not},
};
use crate::pg::tree::{List, Logic, Node, Query, SubLink, check_stack_depth};

/// Rewrites what it can of the query's WHERE and columns. Returns whether it rewrote anything.
pub fn rewrite(query: Query<'_>, links: Links) -> bool {
    if !query.row_marks().is_nil() {
        return false;
    }
    let mut marks = Marks { query, links, changed: false };
    let mut conditions = conjuncts(query.condition());
    for condition in &mut conditions {
        let inner = negated(*condition).unwrap_or(*condition);
        if !inner.is::<pg_sys::SubLink>() {
            *condition = marks.condition(*condition, Kept::Truth);
        }
    }
    if has_links_by_row(query) {
        query.set_targets(query.targets().substitute(&mut |part| marks.value(part)));
    }
    if marks.changed {
        query.set_condition(conjunction(&conditions));
    }
    marks.changed
}

struct Marks<'p> {
    query: Query<'p>,
    links: Links,
    changed: bool,
}

impl<'p> Marks<'p> {
    /// A condition of which only truth, or only falsity, must be kept.
    fn condition(&mut self, node: Node<'p>, kept: Kept) -> Node<'p> {
        check_stack_depth();
        if let Some(expression) = node.downcast::<pg_sys::BoolExpr>() {
            let is_negation = expression.operation() == pg_sys::BoolExprType::NOT_EXPR;
            let kept = if is_negation { kept.flipped() } else { kept };
            let arguments = expression.arguments().iter().map(|argument| self.condition(argument, kept));
            return Logic::new(expression.operation(), List::of(arguments));
        }
        match node.downcast::<pg_sys::SubLink>() {
            Some(link) => self.link(link, Some(kept)).unwrap_or(node),
            None => node.substitute(&mut |part| self.value(part)),
        }
    }

    /// A condition in the place of an EXISTS or a membership whose value must be kept.
    fn value(&mut self, part: Node<'p>) -> Option<Node<'p>> {
        self.link(part.downcast()?, None)
    }

    /// A condition over a left join's column in the place of an EXISTS or a membership. `kept` is `None` where NULL must
    /// stay NULL.
    fn link(&mut self, link: SubLink<'p>, kept: Option<Kept>) -> Option<Node<'p>> {
        if !self.links.contain(link) {
            return None;
        }
        if link.kind() == pg_sys::SubLinkType::EXISTS_SUBLINK {
            return self.mark(link.query().deep_copy());
        }
        let membership = Membership::of(link.node(), self.links)?;
        let of_any = kept.map(|kept| if membership.is_negated { kept.flipped() } else { kept });
        if of_any != Some(Kept::Truth) && !membership.is_never_null(self.query) {
            return None;
        }
        let (exists, _) = membership.to_exists(self.query, Kept::Truth)?;
        let mark = self.mark(exists.query())?;
        Some(if membership.is_negated { not(mark) } else { mark })
    }

    /// Whether the subquery has rows, as a condition over a column of a left join.
    fn mark(&mut self, subquery: Query<'p>) -> Option<Node<'p>> {
        if !is_simple(subquery) {
            return None;
        }
        subquery.set_targets(List::nil());
        subquery.set_distinct(List::nil());
        subquery.set_order(List::nil());
        let keys = take_keys(subquery)?;
        let first = group_by_keys(subquery, &keys);
        let relation_index = self.query.next_index();
        let clauses = join_clauses(&keys, relation_index, subquery, first);
        left_join(self.query, subquery, &clauses);
        self.changed = true;
        let key = nullable_column(relation_index, subquery.targets().first()?);
        Some(null_test(key.node(), pg_sys::NullTestType::IS_NOT_NULL).node())
    }
}
