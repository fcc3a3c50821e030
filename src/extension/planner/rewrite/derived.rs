//! Subqueries that rewrites put into FROM.

use pgrx::pg_sys;

use super::conjunction;
use crate::pg::tree::{
    Alias, FunctionCall, Join, List, Memory, Node, NullTest, Query, RangeEntry, TargetEntry, Var,
};

/// Whether a subquery is FROM and WHERE and columns of every row: its rows exist, or are members, whatever else it says.
pub fn is_simple(subquery: Query<'_>) -> bool {
    is_ungrouped(subquery) && !subquery.has_aggregates() && !subquery.has_distinct_on()
}

/// Whether a subquery has neither groups nor anything that follows them.
pub fn is_ungrouped(subquery: Query<'_>) -> bool {
    subquery.groups().is_nil()
        && subquery.grouping_sets().is_nil()
        && subquery.having().is_none()
        && has_plain_rows(subquery)
}

/// Whether a subquery is FROM and WHERE, perhaps with groups and DISTINCT: what other rows it reads does not change a group.
pub fn has_plain_rows(subquery: Query<'_>) -> bool {
    subquery.limit_count().is_none()
        && subquery.limit_offset().is_none()
        && subquery.set_operations().is_none()
        && subquery.with().is_nil()
        && subquery.row_marks().is_nil()
        && !subquery.has_windows()
        && !subquery.has_sets_in_target()
        && !subquery.sources().is_empty()
}

/// A query without columns and FROM.
pub fn empty_select(memory: Memory<'_>) -> Query<'_> {
    let query = memory.make::<pg_sys::Query>();
    query.set_command(pg_sys::CmdType::CMD_SELECT);
    query.set_can_set_tag(true);
    query.set_join_tree(Some(memory.make()));
    query
}

/// A query without columns over a subquery, which is its FROM.
pub fn select_from(subquery: Query<'_>) -> Query<'_> {
    let query = empty_select(subquery.memory());
    subquery.node().move_levels(1, 1);
    append_subquery(query, subquery);
    query
}

/// The query over `inner` that stands for `query`, with its ORDER BY, DISTINCT and LIMIT. `columns` are its columns, in the
/// order of those of `inner`.
pub fn select_as<'p>(query: Query<'p>, inner: Query<'p>, columns: &[TargetEntry<'p>]) -> Query<'p> {
    let outer = select_from(inner);
    outer.take_identity(query);
    outer.set_has_sub_links(query.has_sub_links());
    outer.set_has_row_security(query.has_row_security());
    outer.set_distinct(query.distinct());
    outer.set_has_distinct_on(query.has_distinct_on());
    outer.set_order(query.order());
    outer.set_limit_offset(query.limit_offset());
    outer.set_limit_count(query.limit_count());
    outer.set_limit_option(query.limit_option());
    for (value, column) in inner.columns().zip(columns) {
        let var = Var::of_target(1, value);
        let entry = column_named_as(*column, var.node(), value.number(), column.is_hidden());
        entry.set_reference(column.reference());
        outer.set_targets(outer.targets().with(entry));
    }
    outer
}

/// A column of a target list with the name of another.
pub fn column_named_as<'p>(
    other: TargetEntry<'p>,
    value: Node<'p>,
    number: i16,
    is_hidden: bool,
) -> TargetEntry<'p> {
    let column = value.as_target(number, None, is_hidden);
    column.take_name(other);
    column
}

/// Whether LIMIT or OFFSET may read the query's CTEs, which `select_as` takes out of its sight.
pub fn limit_reads_ctes(query: Query<'_>) -> bool {
    let limits = [query.limit_count(), query.limit_offset()];
    !query.with().is_nil()
        && limits.into_iter().flatten().any(|limit| limit.contains_kind::<pg_sys::SubLink>())
}

/// Adds a subquery to FROM.
pub fn append_subquery<'p>(query: Query<'p>, subquery: Query<'p>) {
    let reference = append_entry(query, subquery);
    query.set_sources(query.sources().with(reference));
}

/// Adds a subquery to the range table, and returns what names it in FROM.
pub fn append_entry<'p>(query: Query<'p>, subquery: Query<'p>) -> Node<'p> {
    let memory = query.memory();
    let entry = memory.make::<pg_sys::RangeTblEntry>();
    entry.set_kind(pg_sys::RTEKind::RTE_SUBQUERY);
    entry.set_subquery(Some(subquery));
    entry.set_is_in_from(true);
    let names = subquery.columns().map(|column| column.name_or(c"value"));
    entry.set_names(Some(Alias::new(memory, c"subquery", List::of(names))));
    let reference = memory.make::<pg_sys::RangeTblRef>();
    reference.set_index(append_to_range_table(query, entry));
    reference.node()
}

/// Adds functions that return sets to FROM, side by side, after its other items. Returns their number in the range table.
pub fn append_functions<'p>(
    query: Query<'p>,
    calls: Vec<FunctionCall<'p>>,
    name: &'static std::ffi::CStr,
) -> i32 {
    let memory = query.memory();
    let entry = memory.make::<pg_sys::RangeTblEntry>();
    let names = List::of(calls.iter().map(|_| memory.name(name)));
    let functions = calls.into_iter().map(|call| {
        let function = memory.make::<pg_sys::RangeTblFunction>();
        function.set_call(call.node());
        function.set_column_count(1);
        function
    });
    entry.set_kind(pg_sys::RTEKind::RTE_FUNCTION);
    entry.set_called_functions(List::of(functions));
    entry.set_is_lateral(true);
    entry.set_is_in_from(true);
    entry.set_names(Some(Alias::new(memory, name, names)));
    let index = append_to_range_table(query, entry);
    let reference = memory.make::<pg_sys::RangeTblRef>();
    reference.set_index(index);
    query.set_sources(query.sources().with(reference.node()));
    index
}

/// Adds an entry to the range table, and returns its number.
fn append_to_range_table<'p>(query: Query<'p>, entry: RangeEntry<'p>) -> i32 {
    let index = query.next_index();
    query.set_range_table(query.range_table().with(entry));
    index
}

/// Joins a subquery to all of FROM: its columns are NULL for rows without a match.
pub fn left_join<'p>(query: Query<'p>, subquery: Query<'p>, clauses: &[Node<'p>]) {
    let left = query.memory().make::<pg_sys::FromExpr>();
    left.set_items(query.sources());
    let join = left_join_of(query, left.node(), subquery, clauses);
    query.set_sources(List::of([join.node()]));
}

/// The left join of a part of FROM with a subquery, which it adds to the range table.
pub fn left_join_of<'p>(
    query: Query<'p>,
    left: Node<'p>,
    subquery: Query<'p>,
    clauses: &[Node<'p>],
) -> Join<'p> {
    let memory = query.memory();
    let join = memory.make::<pg_sys::JoinExpr>();
    join.set_join_type(pg_sys::JoinType::JOIN_LEFT);
    join.set_left(left);
    join.set_right(append_entry(query, subquery));
    join.set_condition(conjunction(clauses));
    let entry = memory.make::<pg_sys::RangeTblEntry>();
    entry.set_kind(pg_sys::RTEKind::RTE_JOIN);
    entry.set_join_type(pg_sys::JoinType::JOIN_LEFT);
    entry.set_names(Some(Alias::new(memory, c"join", List::nil())));
    join.set_index(append_to_range_table(query, entry));
    join
}

/// A column of a subquery that `left_join` added: it reads NULL where nothing matched.
pub fn nullable_column<'p>(relation_index: i32, entry: TargetEntry<'p>) -> Var<'p> {
    let var = Var::of_target(relation_index, entry);
    // The join's entry follows the subquery's.
    var.mark_nullable(relation_index + 1);
    var
}

/// Whether a column is NULL, or is not.
pub fn null_test<'p>(column: Node<'p>, kind: pg_sys::NullTestType::Type) -> NullTest<'p> {
    let test = column.memory().make::<pg_sys::NullTest>();
    test.set_argument(column);
    test.set_kind(kind);
    test.set_location(-1);
    test
}

/// Whether every subquery of a query's columns is evaluated for each row of FROM: in a query with groups, in a key or in an
/// aggregate.
pub fn has_links_by_row(query: Query<'_>) -> bool {
    if is_row_wise(query) {
        return true;
    }
    let reads_links = |node: Node<'_>| node.contains_kind::<pg_sys::SubLink>();
    if !query.grouping_sets().is_nil() || query.having().is_some_and(reads_links) {
        return false;
    }
    query.targets().iter().all(|entry| {
        if is_key(query, entry) {
            return true;
        }
        let mut is_by_row = true;
        entry.expression().walk(&mut |part| {
            is_by_row = is_by_row && !part.is::<pg_sys::SubLink>();
            !part.is::<pg_sys::Aggref>()
        });
        is_by_row
    })
}

/// Whether a query groups by a column.
pub fn is_key(query: Query<'_>, entry: TargetEntry<'_>) -> bool {
    entry.reference() != 0 && query.groups().iter().any(|clause| clause.reference() == entry.reference())
}

/// Whether a query's columns are computed of single rows, so that they may name any column of FROM.
fn is_row_wise(query: Query<'_>) -> bool {
    query.groups().is_nil()
        && query.grouping_sets().is_nil()
        && !query.has_aggregates()
        && query.having().is_none()
}
