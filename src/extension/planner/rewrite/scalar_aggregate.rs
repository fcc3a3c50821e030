//! A correlated scalar aggregate becomes a join with a grouped subquery.
//!
//! ```text
//! WHERE x < (SELECT 0.2 * avg(q) FROM l WHERE l.k = p.k)
//! ─►  FROM …, (SELECT 0.2 * avg(q) AS value, l.k FROM l GROUP BY l.k) s  WHERE x < s.value AND s.k = p.k
//!
//! SELECT (SELECT count(*) FROM l WHERE l.k = p.k) FROM p
//! ─►  SELECT CASE WHEN s.k IS NULL THEN 0 ELSE s.value END
//!     FROM p LEFT JOIN (SELECT count(*) AS value, l.k FROM l GROUP BY l.k) s ON s.k = p.k
//! ```
//!
//! The first is right only if the aggregate is NULL over no rows and the condition is not true for NULL: then outer
//! rows without a partner drop out either way. The second is for every other place in WHERE, among the columns of a
//! query without groups, and in the keys and aggregates of one with groups; and for every aggregate of which is known what it
//! gives over no rows.
//!
//! ```text
//! WITH w AS (SELECT … GROUP BY …)  SELECT … FROM w WHERE x = (SELECT max(x) FROM w)
//! ─►  SELECT … FROM w, (SELECT max(x) AS value FROM w) s  WHERE x = s.value
//! ```
//!
//! One that is not correlated, and reads the groups of a CTE that others read too, becomes a join with its one row: in one plan the
//! groups are computed once. PostgreSQL would run it as an InitPlan, with a plan of its own.

use pgrx::pg_sys;

use super::{
    Links, computes_groups, conjunction, conjuncts,
    correlation::{Key, group_by_keys, join_clauses, take_keys},
    derived::{append_subquery, has_links_by_row, is_ungrouped, left_join, null_test, nullable_column},
    first_row,
};
use crate::pg::{
    mirror::function_name,
    tree::{AggregateCall, List, Node, Query, SubLink, Var, check_stack_depth, is_strict},
};

/// Rewrites every correlated scalar aggregate of the query's WHERE and columns. Returns whether there was one.
pub fn rewrite<'p>(query: Query<'p>, links: Links) -> bool {
    let mut conditions = conjuncts(query.condition());
    let mut changed = false;
    let mut added = Vec::new();
    for condition in &mut conditions {
        let mut replace = |node: Node<'p>| {
            let subquery = of_shared_groups(
                query,
                node.downcast::<pg_sys::SubLink>().filter(|link| links.contain(*link))?,
            )?;
            let relation_index = query.next_index();
            append_subquery(query, subquery);
            changed = true;
            Some(Var::of_target(relation_index, subquery.targets().first()?).node())
        };
        *condition = condition.substitute(&mut replace);
        if let Some(link) = strict_link(*condition)
            && links.contain(link)
            && let Some(Aggregate { subquery, keys, over_no_rows: None }) = Aggregate::of(link, true)
        {
            let relation_index = query.next_index();
            append_subquery(query, subquery);
            let value = subquery.targets().first();
            added.extend(join_clauses(&keys, relation_index, subquery, FIRST_KEY));
            *condition = condition.substitute(&mut |node| {
                let value = value.filter(|_| node == link.node());
                value.map(|value| Var::of_target(relation_index, value).node())
            });
            changed = true;
        }
    }
    conditions.extend(added);
    if query.row_marks().is_nil() {
        // The columns of left joins in the place of correlated scalar aggregates, and of first rows.
        let mut replace = |node: Node<'p>| {
            let link = node.downcast::<pg_sys::SubLink>().filter(|link| links.contain(*link))?;
            let value = match Aggregate::of(link, false) {
                Some(aggregate) => Some(aggregate.left_joined(query)),
                None => first_row::left_joined(query, link),
            };
            changed = changed || value.is_some();
            value
        };
        for condition in &mut conditions {
            *condition = condition.substitute(&mut replace);
        }
        if has_links_by_row(query) {
            query.set_targets(query.targets().substitute(&mut replace));
        }
    }
    if changed {
        query.set_condition(conjunction(&conditions));
    }
    changed
}

/// The subquery of an uncorrelated scalar aggregate over a CTE with groups that is read elsewhere too.
fn of_shared_groups<'p>(query: Query<'p>, link: SubLink<'p>) -> Option<Query<'p>> {
    let subquery = link.query();
    let is_shared = is_plain_aggregate(link)
        && !subquery.node().has_columns_of_level(1)
        && !subquery.node().is_volatile()
        && subquery.range_table().iter().any(|entry| {
            entry.kind() == pg_sys::RTEKind::RTE_CTE
                && entry.with_levels_up() == 1
                && query.with().iter().any(|cte| {
                    cte.name() == entry.with_name()
                        && cte.reference_count() > 1
                        && cte.query().is_some_and(computes_groups)
                })
        });
    is_shared.then_some(subquery)
}

/// Whether a subquery's one row is an aggregate.
fn is_plain_aggregate(link: SubLink<'_>) -> bool {
    let subquery = link.query();
    link.kind() == pg_sys::SubLinkType::EXPR_SUBLINK
        && subquery.has_aggregates()
        && is_ungrouped(subquery)
        && subquery.distinct().is_nil()
        && subquery.order().is_nil()
        && subquery.targets().len() == 1
}

/// The grouped subquery's columns: the value, then the keys.
const FIRST_KEY: i16 = 2;

/// A correlated scalar aggregate, grouped by what ties it to the query around it.
struct Aggregate<'p> {
    subquery: Query<'p>,
    keys: Vec<Key<'p>>,
    /// What it is over no rows, if that is not NULL.
    over_no_rows: Option<Node<'p>>,
}

impl<'p> Aggregate<'p> {
    /// Groups the subquery of the link, if it is such an aggregate, and NULL over no rows where that is asked for.
    fn of(link: SubLink<'p>, must_be_null: bool) -> Option<Self> {
        let subquery = link.query();
        if !is_plain_aggregate(link) {
            return None;
        }
        let over_no_rows = over_no_rows(subquery.targets().first()?.expression())?;
        if must_be_null && over_no_rows.is_some() {
            return None;
        }
        let keys = take_keys(subquery)?;
        group_by_keys(subquery, &keys);
        Some(Self { subquery, keys, over_no_rows })
    }

    /// Joins it to all of FROM, and returns its value.
    fn left_joined(&self, query: Query<'p>) -> Node<'p> {
        let relation_index = query.next_index();
        let clauses = join_clauses(&self.keys, relation_index, self.subquery, FIRST_KEY);
        left_join(query, self.subquery, &clauses);
        let columns: Vec<_> = self.subquery.targets().iter().collect();
        let value = nullable_column(relation_index, columns[0]);
        let key = nullable_column(relation_index, columns[1]);
        if let Some(over_no_rows) = self.over_no_rows {
            // It moves out of the subquery.
            over_no_rows.move_levels(-1, 1);
        }
        or_over_no_rows(value, key, self.over_no_rows)
    }
}

/// The value of an aggregate that is joined, and where it has no row, with a key that is NULL, what it is over no rows.
pub fn or_over_no_rows<'p>(value: Var<'p>, key: Var<'p>, over_no_rows: Option<Node<'p>>) -> Node<'p> {
    let Some(over_no_rows) = over_no_rows else { return value.node() };
    let memory = value.memory();
    let when = memory.make::<pg_sys::CaseWhen>();
    when.set_condition(null_test(key.node(), pg_sys::NullTestType::IS_NULL).node());
    when.set_result(over_no_rows);
    when.set_location(-1);
    let case = memory.make::<pg_sys::CaseExpr>();
    case.set_type_oid(value.type_oid());
    case.set_collation(value.collation());
    case.set_branches(List::of([when]));
    case.set_default(Some(value.node()));
    case.set_location(-1);
    case.node()
}

/// What an expression over aggregates is over no rows, `None` inside for NULL; `None` if that is not known.
#[expect(clippy::option_option, reason = "unknown, NULL, or a value")]
pub fn over_no_rows(value: Node<'_>) -> Option<Option<Node<'_>>> {
    if value.contains_kind::<pg_sys::SubLink>() {
        return None;
    }
    let is_null = has_strict_path(value, &|node| {
        node.downcast::<pg_sys::Aggref>()
            .is_some_and(|aggregate| aggregate_of_nothing(aggregate) == Some(OfNothing::Null))
    });
    if is_null {
        return Some(None);
    }
    let mut all_known = true;
    let over_no_rows = value.substitute(&mut |node| {
        let aggregate = node.downcast::<pg_sys::Aggref>()?;
        match aggregate_of_nothing(aggregate) {
            Some(OfNothing::Null) => Some(node.null_of_type().node()),
            Some(OfNothing::Zero) => {
                let zero = pg_sys::Datum::from(0);
                Some(node.memory().plain_constant(aggregate.type_oid(), 8, zero).node())
            }
            None => {
                all_known = false;
                None
            }
        }
    });
    all_known.then_some(Some(over_no_rows))
}

/// An aggregate's value over no rows.
#[derive(PartialEq, Eq)]
enum OfNothing {
    Null,
    Zero,
}

fn aggregate_of_nothing(aggregate: AggregateCall<'_>) -> Option<OfNothing> {
    if aggregate.function().to_u32() >= pg_sys::FirstNormalObjectId || aggregate.levels_up() != 0 {
        return None;
    }
    match function_name(aggregate.function()).as_str() {
        "count" => Some(OfNothing::Zero),
        "sum" | "avg" | "min" | "max" | "bool_and" | "bool_or" | "every" | "stddev" | "stddev_pop"
        | "stddev_samp" | "variance" | "var_pop" | "var_samp" | "bit_and" | "bit_or" | "bit_xor" | "mode"
        | "percentile_cont" | "percentile_disc" => Some(OfNothing::Null),
        // Groups may come in another order than the rows of a key alone.
        "array_agg" | "string_agg" if !aggregate.order().is_nil() || !aggregate.distinct().is_nil() => {
            Some(OfNothing::Null)
        }
        _ => None,
    }
}

/// The scalar subquery in a condition that is not true where the subquery is NULL.
fn strict_link(condition: Node<'_>) -> Option<SubLink<'_>> {
    let mut links = Vec::new();
    condition.walk(&mut |node| {
        let link = node.downcast::<pg_sys::SubLink>();
        links.extend(link);
        link.is_none()
    });
    let [link] = *links.as_slice() else { return None };
    let is_scalar = link.kind() == pg_sys::SubLinkType::EXPR_SUBLINK;
    let is_strict = has_strict_path(condition, &|node| node == link.node());
    (is_scalar && is_strict).then_some(link)
}

/// Whether the expression is NULL where a node that satisfies the test is.
fn has_strict_path<'p>(node: Node<'p>, test: &dyn Fn(Node<'p>) -> bool) -> bool {
    check_stack_depth();
    if test(node) {
        return true;
    }
    let (function, arguments) = if let Some(operator) = node.downcast::<pg_sys::OpExpr>() {
        operator.find_function();
        (operator.function(), operator.arguments())
    } else if let Some(call) = node.downcast::<pg_sys::FuncExpr>() {
        (call.function(), call.arguments())
    } else if let Some(relabeled) = node.downcast::<pg_sys::RelabelType>() {
        return has_strict_path(relabeled.argument(), test);
    } else {
        return false;
    };
    is_strict(function) && arguments.iter().any(|argument| has_strict_path(argument, test))
}
