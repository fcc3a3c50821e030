//! GROUPING SETS, ROLLUP and CUBE become the groups of one set after the other.
//!
//! ```text
//! SELECT a, b, sum(x) FROM t GROUP BY GROUPING SETS ((a), (b)) ORDER BY …
//!   ─►  SELECT … FROM (SELECT a, NULL, sum(x) FROM t GROUP BY a
//!                      UNION ALL SELECT NULL, b, sum(x) FROM t GROUP BY b) s ORDER BY …
//! ```
//!
//! What a set does not group by is NULL in its rows, but not in the arguments of its aggregates; GROUPING is a constant. Window functions
//! are above the groups of all sets: the groups become a subquery of their own first.
//!
//! Left alone: volatile functions, which would be called for every set; subqueries among columns and in HAVING;
//! keys without columns; more than [`SETS_MAX`] sets.

use pgrx::pg_sys;

use super::{
    conjunction,
    derived::{append_subquery, column_named_as, empty_select, limit_reads_ctes, null_test, select_as},
};
use crate::pg::tree::{
    AggregateCall, IntegerList, List, Memory, Node, OidList, Query, Ref, TargetEntry, Var,
};

/// Each is a query of its own, with its scans and joins.
const SETS_MAX: i32 = 32;

/// Rewrites a query with grouping sets. Returns whether it has some and can be rewritten.
pub fn rewrite(query: Query<'_>) -> bool {
    let is_plain = !query.grouping_sets().is_nil()
        && query.command() == pg_sys::CmdType::CMD_SELECT
        && query.row_marks().is_nil()
        && query.constraint_dependencies().is_nil()
        && !query.has_sets_in_target()
        && !query.has_modifying_with()
        && !limit_reads_ctes(query)
        && !query.node().is_volatile();
    if !is_plain {
        return false;
    }
    let parsed = query.without_group_entry();
    if parsed.has_windows() {
        return match below_windows(parsed) {
            Some((groups, outer)) if rewrite(groups) => {
                query.replace_with(outer(groups));
                true
            }
            _ => false,
        };
    }
    // A constant could be another one that only looks like it.
    let mut keys = parsed.groups().iter().map(|clause| clause.target(parsed.targets()).expression());
    if !keys.all(|key| key.has_columns_of_level(0)) {
        return false;
    }
    let sets = parsed.expanded_grouping_sets(SETS_MAX);
    let leaves: Option<Vec<_>> = sets.iter().map(|set| Groups::new(parsed, set).query(parsed)).collect();
    let Some(mut leaves) = leaves else { return false };
    if leaves.iter().any(|leaf| !has_no_rows(*leaf)) {
        leaves.retain(|leaf| !has_no_rows(*leaf));
    }
    let inner = match leaves.as_slice() {
        [] => return false,
        [one] => *one,
        [first, ..] => union_all(*first, &leaves),
    };
    query.replace_with(select_as(parsed, inner, &columns_above(parsed)));
    true
}

/// The groups of a query with window functions as a query of their own, and what makes the query above it.
fn below_windows<'p>(query: Query<'p>) -> Option<(Query<'p>, impl FnOnce(Query<'p>) -> Query<'p>)> {
    let keys: Vec<_> = query.groups().iter().map(|clause| clause.target(query.targets())).collect();
    let mut columns: Vec<TargetEntry<'p>> = Vec::new();
    let mut is_known = true;
    let mut add = |node: Node<'p>, of: Option<TargetEntry<'p>>, is_hidden: bool| {
        let known = columns.iter().find(|column| column.expression().equals(node));
        if let Some(known) = known.filter(|known| of.is_none_or(|of| known.reference() == of.reference())) {
            return *known;
        }
        let column = node.as_target(columns.len() as i16 + 1, Some(c"part"), is_hidden);
        if let Some(of) = of {
            column.set_reference(of.reference());
        }
        columns.push(column);
        column
    };
    let targets = query.targets().substitute(&mut |node| {
        let key = keys.iter().find(|key| key.expression().equals(node)).copied();
        let is_part = key.is_some()
            || node.downcast::<pg_sys::Aggref>().is_some_and(|aggregate| aggregate.levels_up() == 0)
            || node.downcast::<pg_sys::GroupingFunc>().is_some_and(|grouping| grouping.levels_up() == 0);
        if is_part {
            return Some(Var::of_target(1, add(node, key, false)).node());
        }
        // Neither grouped by in this form nor aggregated, or out of sight.
        let is_own_column = node.downcast::<pg_sys::Var>().is_some_and(|var| var.levels_up() == 0);
        is_known = is_known && !is_own_column && !node.is::<pg_sys::SubLink>();
        None
    });
    for key in &keys {
        add(key.expression(), Some(*key), true);
    }
    let groups = query.deep_copy();
    groups.set_targets(List::of(columns));
    groups.set_has_windows(false);
    groups.set_windows(List::nil());
    groups.set_order(List::nil());
    groups.set_distinct(List::nil());
    groups.set_has_distinct_on(false);
    groups.set_limit_offset(None);
    groups.set_limit_count(None);
    let outer = move |groups| {
        let outer = select_as(query, groups, &[]);
        outer.set_has_windows(true);
        outer.set_windows(query.windows());
        outer.set_targets(targets);
        outer
    };
    is_known.then_some((groups, outer))
}

/// The columns that ORDER BY, DISTINCT and the enclosing query read, in their order.
fn columns_above(query: Query<'_>) -> Vec<TargetEntry<'_>> {
    let clauses = query.order().iter().chain(query.distinct().iter());
    let wanted: Vec<u32> = clauses.map(|clause| clause.reference()).collect();
    let is_wanted = |entry: &TargetEntry<'_>| !entry.is_hidden() || wanted.contains(&entry.reference());
    query.targets().iter().filter(is_wanted).collect()
}

/// The groups of one set.
struct Groups<'p> {
    set: Vec<u32>,
    /// What is grouped by, here and in other sets.
    present: Vec<Node<'p>>,
    absent: Vec<Node<'p>>,
}

impl<'p> Groups<'p> {
    fn new(query: Query<'p>, set: &[u32]) -> Self {
        let mut groups = Self { set: set.to_vec(), present: Vec::new(), absent: Vec::new() };
        for clause in query.groups().iter() {
            let list = match groups.has(clause.reference()) {
                true => &mut groups.present,
                false => &mut groups.absent,
            };
            list.push(clause.target(query.targets()).expression());
        }
        groups
    }

    fn has(&self, reference: u32) -> bool {
        self.set.contains(&reference)
    }

    /// The query of these groups alone, without ORDER BY, DISTINCT and LIMIT; nothing if it has what can't be told apart.
    fn query(&self, query: Query<'p>) -> Option<Query<'p>> {
        let own = query.deep_copy();
        let above = columns_above(own);
        own.set_grouping_sets(List::nil());
        own.set_group_distinct(false);
        own.set_order(List::nil());
        own.set_distinct(List::nil());
        own.set_has_distinct_on(false);
        own.set_limit_offset(None);
        own.set_limit_count(None);
        own.set_groups(List::of(own.groups().iter().filter(|clause| self.has(clause.reference()))));
        // Those that only GROUP BY looks at come last.
        let grouped_by: Vec<_> = own
            .targets()
            .iter()
            .filter(|entry| self.has(entry.reference()) && !above.contains(entry))
            .collect();
        let mut columns = Vec::new();
        for (place, entry) in above.iter().copied().chain(grouped_by).enumerate() {
            let value = self.seen_from(entry.expression())?;
            let is_above = place < above.len();
            let column = column_named_as(entry, value, place as i16 + 1, !is_above);
            if self.has(entry.reference()) {
                column.set_reference(entry.reference());
            }
            columns.push(column);
        }
        own.set_targets(List::of(columns));
        if let Some(having) = own.having() {
            own.set_having(Some(self.seen_from(having)?));
        }
        let aggregates = [own.targets().node(), own.having()];
        if self.set.is_empty() && !aggregates.into_iter().flatten().any(Node::has_aggregates) {
            // One row, even of nothing: that takes an aggregate.
            let count = count_rows(own.memory()).node();
            let is_there = null_test(count, pg_sys::NullTestType::IS_NOT_NULL).node();
            let conditions: Vec<_> = own.having().into_iter().chain([is_there]).collect();
            own.set_having(conjunction(&conditions));
            own.set_has_aggregates(true);
        }
        Some(own)
    }

    /// A column or condition over all sets as it is in the rows of this one.
    fn seen_from(&self, node: Node<'p>) -> Option<Node<'p>> {
        let mut is_known = true;
        let seen = node.substitute(&mut |node| {
            let is_one_of = |list: &[Node<'_>]| list.iter().any(|expression| expression.equals(node));
            if is_one_of(&self.present) {
                return Some(node);
            }
            if is_one_of(&self.absent) {
                return Some(node.null_of_type().node());
            }
            if let Some(aggregate) = node.downcast::<pg_sys::Aggref>() {
                // Direct arguments are seen from the groups.
                let reads_groups =
                    |node: Node<'p>| node.has_columns_of_level(0) || node.contains_kind::<pg_sys::SubLink>();
                let is_constant = !aggregate.direct().iter().any(reads_groups);
                is_known = is_known && aggregate.levels_up() == 0 && is_constant;
                return Some(node);
            }
            if let Some(grouping) = node.downcast::<pg_sys::GroupingFunc>() {
                is_known = is_known && grouping.levels_up() == 0;
                return Some(self.grouping(grouping));
            }
            // Neither grouped by in this form nor aggregated, or out of sight.
            let is_own_column = node.downcast::<pg_sys::Var>().is_some_and(|var| var.levels_up() == 0);
            if is_own_column || node.is::<pg_sys::SubLink>() {
                is_known = false;
                return Some(node);
            }
            None
        });
        is_known.then_some(seen)
    }

    /// GROUPING: a bit for each argument, the last one's the lowest, set where it is not grouped by.
    fn grouping(&self, grouping: Ref<'p, pg_sys::GroupingFunc>) -> Node<'p> {
        let references = grouping.references().iter();
        let bits = references.fold(0, |bits, reference| bits << 1 | i32::from(!self.has(reference as u32)));
        grouping.memory().integer(bits).node()
    }
}

/// Whether HAVING is never true, as of GROUPING(a) = 0 where the set is without a.
fn has_no_rows(query: Query<'_>) -> bool {
    let having = query.having().map(Node::folded);
    having
        .and_then(|having| having.downcast::<pg_sys::Const>())
        .is_some_and(|having| having.is_null() || having.value().value() == 0)
}

/// UNION ALL of queries with the same columns as the first of them.
fn union_all<'p>(first: Query<'p>, leaves: &[Query<'p>]) -> Query<'p> {
    let query = empty_select(first.memory());
    for leaf in leaves {
        leaf.node().move_levels(1, 1);
        append_subquery(query, *leaf);
    }
    query.range_table().iter().for_each(|entry| entry.set_is_in_from(false));
    let references = query.sources();
    query.set_sources(List::nil());
    let types = column_types(leaves);
    let tree = references.iter().reduce(|left, right| union_of(left, right, &types));
    query.set_set_operations(tree);
    for (entry, column_type) in first.columns().zip(&types) {
        let var = Var::of_target(1, entry);
        var.set_modifier(column_type.modifier);
        let column = column_named_as(entry, var.node(), entry.number(), false);
        query.set_targets(query.targets().with(column));
    }
    query
}

/// One UNION ALL.
fn union_of<'p>(left: Node<'p>, right: Node<'p>, types: &[ColumnType]) -> Node<'p> {
    let memory = left.memory();
    let operation = memory.make::<pg_sys::SetOperationStmt>();
    operation.set_operation(pg_sys::SetOperation::SETOP_UNION);
    operation.set_all(true);
    operation.set_left(left);
    operation.set_right(right);
    operation.set_column_types(OidList::of(memory, types.iter().map(|column| column.type_oid)));
    operation.set_column_modifiers(IntegerList::of(memory, types.iter().map(|column| column.modifier)));
    operation.set_column_collations(OidList::of(memory, types.iter().map(|column| column.collation)));
    operation.node()
}

/// What a column of all leaves is.
struct ColumnType {
    type_oid: pg_sys::Oid,
    modifier: i32,
    collation: pg_sys::Oid,
}

/// The leaves' columns; a modifier that is not all leaves' is none.
fn column_types(leaves: &[Query<'_>]) -> Vec<ColumnType> {
    let mut types: Vec<ColumnType> = Vec::new();
    for leaf in leaves {
        for (place, entry) in leaf.columns().enumerate() {
            let value = entry.expression();
            let modifier = value.modifier();
            match types.get_mut(place) {
                None => types.push(ColumnType {
                    type_oid: value.type_oid(),
                    modifier,
                    collation: value.collation(),
                }),
                Some(known) if known.modifier != modifier => known.modifier = -1,
                Some(_) => {}
            }
        }
    }
    types
}

/// `count(*)`.
fn count_rows(memory: Memory<'_>) -> AggregateCall<'_> {
    let count = AggregateCall::new(memory, pg_sys::F_COUNT_, pg_sys::INT8OID);
    count.set_is_star(true);
    count
}
