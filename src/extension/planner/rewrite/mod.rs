//! Queries that PostgreSQL can't flatten, made flat before it plans them.
//!
//! - `membership.rs`: IN, ANY, ALL and their negations become EXISTS, which core turns into semi and anti joins
//! - `scalar_aggregate.rs`: a correlated scalar aggregate becomes a join with a grouped subquery
//! - `lateral.rs`: LATERAL subqueries with aggregates or groups become joins with grouped subqueries
//! - `first_row.rs`: what reads the first row of each key becomes a join with DISTINCT ON
//! - `mark.rs`: EXISTS and IN that are no conjuncts become left joins with a grouped subquery
//! - `set_operation.rs`: UNION, INTERSECT and EXCEPT become groups over UNION ALL
//! - `sql_function.rs`: calls of SQL functions that read tables of ours become subqueries
//! - `target_sets.rs`: `unnest` of columns in a target list becomes a function in FROM
//! - `whole_row.rs`: rows that are named whole become rows of columns
//! - `correlation.rs`, `derived.rs`, `never_null.rs`: what these share; `distinct_rows.rs`, `scale.rs`: what is known of rows and of
//!   digits
//! - CTEs that are used more than once are inlined, here
//!
//! Invariants: a rewritten query gives the same rows as the original on any tables. That makes the
//! rewrites testable on heap tables (`pystachio.rewrite = force`).
//!
//! Deliberately absent: choosing. The hook plans the rewritten query, and others too if the rewritten one does not become one
//! scan: see `hooks.rs` and the section Subqueries of the crate's README.

mod correlation;
mod derived;
mod distinct_rows;
mod first_row;
mod lateral;
mod mark;
mod membership;
mod never_null;
mod scalar_aggregate;
mod scale;
mod set_operation;
pub mod sql_function;
mod target_sets;
mod whole_row;

use pgrx::pg_sys;

use super::relation_info::{is_our_table, names_our_table};
use crate::pg::tree::{List, Logic, Node, Query, SubLink, check_stack_depth};

/// Whether a query has anything that could be rewritten; cheap, and false for most queries.
pub fn has_candidates(query: Query<'_>) -> bool {
    check_stack_depth();
    let is_read = matches!(query.command(), pg_sys::CmdType::CMD_SELECT | pg_sys::CmdType::CMD_INSERT);
    is_read
        && (query.has_sub_links()
            || !query.with().is_nil()
            || query.set_operations().is_some()
            || whole_row::is_candidate(query)
            || target_sets::is_candidate(query)
            || lateral::is_candidate(query)
            || query.range_table().iter().any(|entry| entry.subquery().is_some_and(has_candidates)))
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
    fn contain(self, link: SubLink<'_>) -> bool {
        self.whole || is_ours(link.query())
    }
}

/// Whether a subquery reads tables of ours, and nothing else.
fn is_ours(subquery: Query<'_>) -> bool {
    reads_only_ours(subquery) && names_our_table(subquery)
}

/// A query, and those around it, where the queries of WITH are that it reads.
#[derive(Clone, Copy)]
struct Level<'a, 'p> {
    query: Query<'p>,
    around: Option<&'a Level<'a, 'p>>,
}

impl<'a, 'p> Level<'a, 'p> {
    /// A query in the range table of this one, or in one of its expressions.
    fn inner(&'a self, query: Query<'p>) -> Self {
        Self { query, around: Some(self) }
    }

    /// The subquery or query of WITH that an entry of the range table is.
    fn below(&'a self, index: i32) -> Option<Self> {
        let entry = self.query.entry(usize::try_from(index).ok()?)?;
        if entry.kind() != pg_sys::RTEKind::RTE_CTE {
            return entry.subquery().map(|subquery| self.inner(subquery));
        }
        let mut owner = self;
        for _ in 0..entry.with_levels_up() {
            owner = owner.around?;
        }
        let name = entry.with_name();
        let cte = owner.query.with().iter().find(|cte| cte.name() == name)?;
        cte.query().filter(|_| !cte.is_recursive()).map(|query| owner.inner(query))
    }
}

/// Rewrites a query in place, innermost queries first. Returns whether anything changed. The caller has found a table of
/// ours in it.
pub fn rewrite_query(query: Query<'_>, extent: Extent) -> bool {
    rewrite_level(Level { query, around: None }, extent)
}

fn rewrite_level(level: Level<'_, '_>, extent: Extent) -> bool {
    check_stack_depth();
    let query = level.query;
    let mut changed = false;
    for cte in query.with().iter() {
        // The working table of a recursive one is an operand of its UNION.
        if let Some(subquery) = cte.query()
            && !cte.is_recursive()
        {
            changed |= rewrite_level(level.inner(subquery), extent);
        }
    }
    for entry in query.range_table().iter() {
        if let Some(subquery) = entry.subquery() {
            changed |= rewrite_level(level.inner(subquery), extent);
        }
    }
    let links = sub_links(query);
    for link in &links {
        changed |= rewrite_level(level.inner(link.query()), extent);
    }
    let whole = extent.any_table || reads_only_ours(query);
    if !whole {
        // Rows of tables of PostgreSQL's that are locked are read again by themselves.
        let is_any_ours = links.iter().any(|link| is_ours(link.query()));
        let is_read = query.command() == pg_sys::CmdType::CMD_SELECT && query.row_marks().is_nil();
        if !is_read || !(is_any_ours || lateral::is_candidate(query)) {
            return changed;
        }
    }
    // Of grouping sets it says which keys may be NULL.
    if query.grouping_sets().is_nil() {
        query.replace_with(query.without_group_entry());
    }
    if whole {
        changed |= !extent.only_hashed && inline_ctes(query);
        changed |= whole_row::rewrite(query);
        changed |= target_sets::rewrite(query);
    }
    changed |= lateral::rewrite(query, whole);
    if query.has_sub_links() {
        let links = extent.of_links(whole);
        changed |= membership::rewrite(query, links);
        changed |= scalar_aggregate::rewrite(query, links);
        changed |= mark::rewrite(query, links);
    }
    if whole {
        changed |= set_operation::rewrite(level);
    }
    changed
}

/// Every SubLink of this level's expressions. Those inside other SubLinks' queries belong to these.
pub(super) fn sub_links(query: Query<'_>) -> Vec<SubLink<'_>> {
    let mut links = Vec::new();
    if !query.has_sub_links() {
        return links;
    }
    let parts = [query.targets().node(), query.join_tree().map(|tree| tree.node()), query.having()];
    for part in parts.into_iter().flatten() {
        part.walk(&mut |node| {
            let link = node.downcast::<pg_sys::SubLink>();
            links.extend(link);
            link.is_none() && !node.is::<pg_sys::Query>()
        });
    }
    links
}

/// Whether every table of a query and of its subqueries is a foreign table of ours.
fn reads_only_ours(query: Query<'_>) -> bool {
    check_stack_depth();
    let entries_are_ours = query.range_table().iter().all(|entry| match entry.kind() {
        pg_sys::RTEKind::RTE_RELATION => {
            let kind = entry.relation_kind();
            // A view's own entry stays in the range table; its query is what counts.
            kind == b'v' || (kind == b'f' && is_our_table(entry.table_oid()))
        }
        pg_sys::RTEKind::RTE_SUBQUERY => entry.subquery().is_some_and(reads_only_ours),
        pg_sys::RTEKind::RTE_FUNCTION
        | pg_sys::RTEKind::RTE_TABLEFUNC
        | pg_sys::RTEKind::RTE_VALUES
        | pg_sys::RTEKind::RTE_NAMEDTUPLESTORE => false,
        _ => true,
    });
    entries_are_ours
        && query.with().iter().all(|cte| cte.query().is_some_and(reads_only_ours))
        && sub_links(query).into_iter().all(|link| reads_only_ours(link.query()))
}

/// Inlines CTEs however often they are used: engines compute equal groups once (`RepeatedParts`). `OFFSET 0` keeps a MATERIALIZED one
/// apart from the conditions around it. PostgreSQL keeps a MATERIALIZED one that has no groups and several readers, and recursive,
/// volatile and data-modifying ones.
fn inline_ctes(query: Query<'_>) -> bool {
    let mut changed = false;
    for cte in query.with().iter() {
        let Some(subquery) = cte.query() else { continue };
        let is_read_once = cte.reference_count() == 1;
        let inlined = match cte.materialized() {
            pg_sys::CTEMaterialize::CTEMaterializeDefault => !is_read_once,
            pg_sys::CTEMaterialize::CTEMaterializeAlways => is_read_once || computes_groups(subquery),
            _ => false,
        };
        if !inlined || cte.is_recursive() {
            continue;
        }
        if cte.materialized() == pg_sys::CTEMaterialize::CTEMaterializeAlways
            && subquery.limit_offset().is_none()
        {
            subquery.set_limit_offset(Some(query.memory().bigint(0).node()));
        }
        cte.set_materialized(pg_sys::CTEMaterialize::CTEMaterializeNever);
        changed = true;
    }
    changed
}

/// Whether a query's rows are groups.
fn computes_groups(query: Query<'_>) -> bool {
    query.has_aggregates() || !query.groups().is_nil() || !query.distinct().is_nil()
}

/// The conjuncts of a condition, those of a negated disjunction too.
fn conjuncts(condition: Option<Node<'_>>) -> Vec<Node<'_>> {
    check_stack_depth();
    let Some(condition) = condition else { return Vec::new() };
    if let Some(both) = condition.downcast::<pg_sys::BoolExpr>()
        && both.operation() == pg_sys::BoolExprType::AND_EXPR
    {
        return conjuncts_of(both.arguments());
    }
    if let Some(inner) = membership::negated(condition)
        && let Some(either) = inner.downcast::<pg_sys::BoolExpr>()
    {
        return match either.operation() {
            pg_sys::BoolExprType::OR_EXPR => {
                either.arguments().iter().flat_map(|part| conjuncts(Some(membership::not(part)))).collect()
            }
            pg_sys::BoolExprType::NOT_EXPR => conjuncts_of(either.arguments()),
            _ => vec![condition],
        };
    }
    if let Some(list) = condition.as_list() {
        return conjuncts_of(list);
    }
    vec![condition]
}

/// The conjuncts of conditions of which each must be true.
fn conjuncts_of(conditions: List<'_, pg_sys::Node>) -> Vec<Node<'_>> {
    conditions.iter().flat_map(|part| conjuncts(Some(part))).collect()
}

/// The conjunction of conditions.
fn conjunction<'p>(conditions: &[Node<'p>]) -> Option<Node<'p>> {
    match conditions {
        [] => None,
        [one] => Some(*one),
        many => Some(Logic::new(pg_sys::BoolExprType::AND_EXPR, List::of(many.iter().copied()))),
    }
}
