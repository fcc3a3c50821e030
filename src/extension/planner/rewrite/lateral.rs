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
//! FROM h CROSS JOIN LATERAL (SELECT q FROM l WHERE l.k = h.k ORDER BY q LIMIT 1) s: see `first_row.rs`.
//!
//! Left alone: subqueries that core pulls up, those with another LIMIT, and those that name relations of another part of FROM than the
//! other side of their join.

use pgrx::pg_sys;

use super::{
    conjunction,
    correlation::{Key, group_by_keys, join_clauses, take_keys},
    derived::{column_named_as, empty_select, has_plain_rows, is_ungrouped, left_join_of, nullable_column},
    first_row::{is_first_row, take_first_rows},
    is_ours,
    never_null::collect_relations,
    scalar_aggregate::{or_over_no_rows, over_no_rows},
};
use crate::pg::tree::{Join, List, Node, Query, RangeEntry};

/// Whether a query has a subquery that could be rewritten.
pub fn is_candidate(query: Query<'_>) -> bool {
    query.range_table().iter().any(is_lateral)
}

fn is_lateral(entry: RangeEntry<'_>) -> bool {
    entry.is_lateral() && entry.kind() == pg_sys::RTEKind::RTE_SUBQUERY && !entry.is_security_barrier()
}

/// Rewrites what it can of the query's FROM: of a query that is `whole` ours, or else subqueries that are. Returns whether it
/// rewrote anything.
pub fn rewrite(query: Query<'_>, whole: bool) -> bool {
    if !query.row_marks().is_nil() {
        return false;
    }
    let mut changed = false;
    // A rewrite appends to the list.
    let entries: Vec<_> = query.range_table().iter().collect();
    for (relation_index, entry) in (1..).zip(entries) {
        if is_lateral(entry)
            && let Some(subquery) = entry.subquery()
            && (whole || is_ours(subquery))
        {
            let lateral = Lateral { query, entry, relation_index };
            changed |= lateral.rewrite(subquery.deep_copy()).is_some();
        }
    }
    changed
}

/// A LATERAL subquery of a query.
struct Lateral<'p> {
    query: Query<'p>,
    entry: RangeEntry<'p>,
    relation_index: i32,
}

/// Where it stands.
enum Position<'p> {
    /// The right side of a join.
    Join(Join<'p>),
    /// An item of FROM, with so many before it.
    Item(usize),
}

impl<'p> Lateral<'p> {
    /// Puts what a copy of the subquery becomes in its place. `None` if it is left alone.
    fn rewrite(&self, subquery: Query<'p>) -> Option<()> {
        if is_first_row(subquery) {
            let position = self.position()?;
            let (keys, first) = take_first_rows(self.query, subquery)?;
            return self.join_by_keys(subquery, &keys, first, &position);
        }
        let is_aggregate = subquery.has_aggregates() && is_ungrouped(subquery);
        let has_groups = !subquery.groups().is_nil() || !subquery.distinct().is_nil();
        let is_wanted = has_plain_rows(subquery)
            && (is_aggregate || has_groups)
            && !subquery.has_distinct_on()
            && subquery.grouping_sets().is_nil();
        if !is_wanted {
            return None;
        }
        let position = self.position()?;
        // In no order that anything could see.
        subquery.set_order(List::nil());
        match is_aggregate {
            true => self.join_aggregate(subquery, &position),
            false => self.join_groups(subquery, &position),
        }
    }

    fn position(&self) -> Option<Position<'p>> {
        let items = self.query.sources();
        let is_this = |node: Node<'p>| {
            node.downcast::<pg_sys::RangeTblRef>()
                .is_some_and(|reference| reference.index() == self.relation_index)
        };
        if let Some(place) = items.iter().position(is_this) {
            return Some(Position::Item(place));
        }
        let mut found: Option<Join<'p>> = None;
        items.walk(&mut |node| {
            if let Some(join) = node.downcast::<pg_sys::JoinExpr>()
                && is_this(join.right())
            {
                found = Some(join);
            }
            true
        });
        let is_taken = |join: &Join<'p>| {
            matches!(join.join_type(), pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_LEFT)
        };
        found.filter(is_taken).map(Position::Join)
    }

    /// Whether conditions of the join have no other columns than those of its left side and of the subquery.
    fn are_of_join(&self, clauses: &[Node<'p>], position: &Position<'p>, other: i32) -> bool {
        let mut known = vec![other];
        match position {
            Position::Join(join) => collect_relations(join.left(), &mut known),
            Position::Item(place) => {
                for item in self.query.sources().iter().take(*place) {
                    collect_relations(item, &mut known);
                }
            }
        }
        let is_other = |node: Node<'p>| {
            node.downcast::<pg_sys::Var>()
                .is_some_and(|var| var.levels_up() == 0 && !known.contains(&var.relation()))
        };
        !clauses.iter().any(|clause| clause.contains(&is_other))
    }

    /// A subquery with groups is joined by its keys, which its rows as wholes must not have.
    fn join_groups(&self, subquery: Query<'p>, position: &Position<'p>) -> Option<()> {
        let keys = take_keys(subquery)?;
        let first = group_by_keys(subquery, &keys);
        self.join_by_keys(subquery, &keys, first, position)
    }

    /// Joins the subquery by its keys, whose columns from `first` on it has at its end.
    fn join_by_keys(
        &self,
        subquery: Query<'p>,
        keys: &[Key<'p>],
        first: i16,
        position: &Position<'p>,
    ) -> Option<()> {
        if self.query.names_row(self.relation_index) {
            return None;
        }
        let clauses = join_clauses(keys, self.relation_index, subquery, first);
        if !self.are_of_join(&clauses, position, self.relation_index) {
            return None;
        }
        if let Some(names) = self.entry.names() {
            for _ in keys {
                names.set_column_names(names.column_names().with(self.query.memory().name(c"key")));
            }
        }
        self.entry.set_subquery(Some(subquery));
        self.entry.set_is_lateral(false);
        let own = match position {
            Position::Join(join) => join.condition(),
            Position::Item(_) => self.query.condition(),
        };
        let condition = conjunction(&own.into_iter().chain(clauses).collect::<Vec<_>>());
        match position {
            Position::Join(join) => join.set_condition(condition),
            Position::Item(_) => self.query.set_condition(condition),
        }
        Some(())
    }

    /// An aggregate has one row for each row of the other side. The grouped subquery is joined to that, and this one only says
    /// what it gives where that has no row.
    fn join_aggregate(&self, subquery: Query<'p>, position: &Position<'p>) -> Option<()> {
        subquery.set_distinct(List::nil());
        let columns: Vec<_> = subquery.columns().collect();
        subquery.set_targets(List::of(columns.iter().copied()));
        let mut defaults = Vec::new();
        for column in &columns {
            defaults.push(over_no_rows(column.expression())?);
        }
        let keys = take_keys(subquery)?;
        let first = group_by_keys(subquery, &keys);
        let grouped = self.query.next_index();
        let clauses = join_clauses(&keys, grouped, subquery, first);
        if !self.are_of_join(&clauses, position, grouped) {
            return None;
        }
        self.left_join(subquery, &clauses, position);
        let mut targets = Vec::new();
        let key = subquery.targets().get(first as usize - 1)?;
        for (column, default) in columns.into_iter().zip(defaults) {
            let value = nullable_column(grouped, column);
            let key = nullable_column(grouped, key);
            value.set_levels_up(1);
            key.set_levels_up(1);
            let value = or_over_no_rows(value, key, default);
            targets.push(column_named_as(column, value, column.number(), false));
        }
        let own = empty_select(subquery.memory());
        own.set_targets(List::of(targets));
        self.entry.set_subquery(Some(own));
        Some(())
    }

    /// Puts a left join with a subquery in the place of all that is left of this one.
    fn left_join(&self, subquery: Query<'p>, clauses: &[Node<'p>], position: &Position<'p>) {
        match position {
            Position::Join(join) => {
                let left_join = left_join_of(self.query, join.left(), subquery, clauses);
                join.set_left(left_join.node());
            }
            Position::Item(place) => {
                let items: Vec<_> = self.query.sources().iter().collect();
                let (before, after) = items.split_at(*place);
                let left = self.query.memory().make::<pg_sys::FromExpr>();
                left.set_items(List::of(before.iter().copied()));
                let left_join = left_join_of(self.query, left.node(), subquery, clauses);
                let after = after.iter().copied();
                self.query.set_sources(List::of(std::iter::once(left_join.node()).chain(after)));
            }
        }
    }
}
