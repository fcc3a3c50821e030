//! Subqueries that read the first row of each key, where the keys come from tables of PostgreSQL's:
//! they become joins.
//!
//! ```text
//! SELECT (SELECT v FROM l WHERE l.k = h.k ORDER BY o LIMIT 1) FROM h
//! ─►  SELECT s.v FROM h LEFT JOIN (SELECT DISTINCT ON (l.k) v, l.k FROM l ORDER BY l.k, o) s ON s.k = h.k
//! ```
//!
//! LATERAL subqueries become the same (`lateral.rs`). The join reads all rows of `l` in order. So
//! PostgreSQL takes it only if it costs less than a query for each row of `h`. Keys that come from
//! scans of ours stay as they are, because one query reads the rows of many of them
//! (`execution/lookup.rs`).

use pgrx::pg_sys;

use super::{
    correlation::{Key, append_keys, join_clauses, take_keys},
    derived::{has_plain_rows, left_join, nullable_column},
};
use crate::{
    pg::tree::{List, Node, Query, SubLink},
    planner::relation_info::is_our_entry,
};

/// The value of a scalar subquery that is the first row's, from a left join with all of FROM.
pub fn left_joined<'p>(query: Query<'p>, link: SubLink<'p>) -> Option<Node<'p>> {
    let is_scalar = link.kind() == pg_sys::SubLinkType::EXPR_SUBLINK;
    if !is_scalar || !is_first_row(link.query()) {
        return None;
    }
    let subquery = link.query().deep_copy();
    let (keys, first_key) = take_first_rows(query, subquery)?;
    let relation_index = query.next_index();
    left_join(query, subquery, &join_clauses(&keys, relation_index, subquery, first_key));
    subquery.targets().first().map(|value| nullable_column(relation_index, value).node())
}

/// Whether a subquery gives the first of some rows.
pub fn is_first_row(subquery: Query<'_>) -> bool {
    let is_one = |node: Node<'_>| {
        node.folded().downcast::<pg_sys::Const>().is_some_and(|count| {
            count.type_oid() == pg_sys::INT8OID && !count.is_null() && count.value().value() == 1
        })
    };
    subquery.limit_count().is_some_and(is_one)
        && subquery.limit_offset().is_none()
        && subquery.limit_option() != pg_sys::LimitOption::LIMIT_OPTION_WITH_TIES
        && !subquery.has_aggregates()
        && subquery.groups().is_nil()
        && subquery.grouping_sets().is_nil()
        && subquery.having().is_none()
        && subquery.distinct().is_nil()
}

/// Makes a subquery of which [`is_first_row`] is true give the first row of each key, where a key comes from a table of PostgreSQL's.
/// Returns the keys and the number of their first column.
pub fn take_first_rows<'p>(query: Query<'p>, subquery: Query<'p>) -> Option<(Vec<Key<'p>>, i16)> {
    subquery.set_limit_count(None);
    if !has_plain_rows(subquery) {
        return None;
    }
    let keys = take_keys(subquery)?;
    let is_known = keys.iter().all(|key| {
        !key.outer().contains(&|node| {
            node.downcast::<pg_sys::Var>().is_some_and(|var| {
                var.levels_up() == 1 && !query.entry(var.relation() as usize).is_some_and(is_our_entry)
            })
        })
    });
    if is_known {
        return None;
    }
    let (first_key, clauses) = append_keys(subquery, &keys);
    let order = clauses.deep_copy().iter().chain(subquery.order().iter());
    subquery.set_order(List::of(order));
    subquery.set_distinct(clauses);
    subquery.set_has_distinct_on(true);
    Some((keys, first_key))
}
