//! Equalities between a subquery and the query around it.

use pgrx::pg_sys;

use super::{conjunction, conjuncts};
use crate::pg::tree::{
    GroupingOperators, List, Node, OperatorCall, Query, TargetEntry, Var, are_compatible_equalities,
    grouping_operators, is_merge_joinable,
};

/// An equality of the subquery that ties it to the outer query.
pub struct Key<'p> {
    clause: OperatorCall<'p>,
    inner: Node<'p>,
    inner_is_first: bool,
    operators: GroupingOperators,
}

/// The equalities by which the subquery is correlated, if nothing else ties it. They are taken out of it.
pub fn take_keys(subquery: Query<'_>) -> Option<Vec<Key<'_>>> {
    let mut keys = Vec::new();
    let mut rest = Vec::new();
    let before = subquery.condition();
    for condition in conjuncts(before).into_iter().flat_map(common_conjuncts) {
        if !condition.has_columns_of_level(1) {
            rest.push(condition);
            continue;
        }
        keys.push(as_key(condition)?);
    }
    if keys.is_empty() || subquery.node().is_volatile() {
        return None;
    }
    subquery.set_condition(conjunction(&rest));
    if subquery.node().has_columns_of_level(1) {
        subquery.set_condition(before);
        return None;
    }
    Some(keys)
}

/// The conjuncts of a condition in which disjuncts share some: `(a AND b) OR (a AND c)` is `a AND (b OR c)`, and so is true for
/// the same rows.
fn common_conjuncts(condition: Node<'_>) -> Vec<Node<'_>> {
    let is_correlated_or = condition
        .downcast::<pg_sys::BoolExpr>()
        .is_some_and(|either| either.operation() == pg_sys::BoolExprType::OR_EXPR)
        && condition.has_columns_of_level(1);
    match is_correlated_or {
        true => conjuncts(Some(condition.deep_copy().canonicalized())),
        false => vec![condition],
    }
}

/// The equality as a key, if it is one: of a type that sorts or hashes, with the subquery on one side alone.
pub fn as_key(condition: Node<'_>) -> Option<Key<'_>> {
    let clause = condition.downcast::<pg_sys::OpExpr>()?;
    let operands: Vec<_> = clause.arguments().iter().collect();
    let [first, second] = *operands.as_slice() else { return None };
    if !is_merge_joinable(clause.operator(), first.type_oid())
        || condition.is_volatile()
        || condition.contains_kind::<pg_sys::SubLink>()
    {
        return None;
    }
    let is_inner = |node: Node<'_>| node.has_columns_of_level(0) && !node.has_columns_of_level(1);
    let is_outer = |node: Node<'_>| node.has_columns_of_level(1) && !node.has_columns_of_level(0);
    let (inner, inner_is_first) = if is_inner(first) && is_outer(second) {
        (first, true)
    } else if is_outer(first) && is_inner(second) {
        (second, false)
    } else {
        return None;
    };
    let operators = grouping_operators(inner.type_oid());
    // Rows of one group must be equal to the same outer rows.
    if operators.equal == pg_sys::InvalidOid || !are_compatible_equalities(clause.operator(), operators.equal)
    {
        return None;
    }
    Some(Key { clause, inner, inner_is_first, operators })
}

impl<'p> Key<'p> {
    /// The side that the outer query has.
    pub fn outer(&self) -> Node<'p> {
        let operands: Vec<_> = self.clause.arguments().iter().collect();
        operands[usize::from(self.inner_is_first)]
    }
}

/// Groups the subquery by the keys, beside what it has of groups, and makes DISTINCT tell them apart. They become its last
/// columns, whose first number is returned.
pub fn group_by_keys<'p>(subquery: Query<'p>, keys: &[Key<'p>]) -> i16 {
    let is_distinct = !subquery.distinct().is_nil();
    let is_grouped = !is_distinct || subquery.has_aggregates() || !subquery.groups().is_nil();
    let (first_column, clauses) = append_keys(subquery, keys);
    if is_grouped {
        subquery.set_groups(List::of(subquery.groups().iter().chain(clauses.iter())));
    }
    if is_distinct {
        subquery.set_distinct(List::of(subquery.distinct().iter().chain(clauses.deep_copy().iter())));
    }
    first_column
}

/// Makes the keys the last columns of the subquery. Returns the number of the first, and what groups or sorts by them.
pub fn append_keys<'p>(subquery: Query<'p>, keys: &[Key<'p>]) -> (i16, List<'p, pg_sys::SortGroupClause>) {
    let targets: Vec<_> = subquery.targets().iter().collect();
    let last_number = targets.iter().map(|target| target.reference()).max().unwrap_or(0);
    let (hidden, mut columns): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| target.is_hidden());
    let first_column = columns.len() as i16 + 1;
    let mut clauses = Vec::new();
    for (number, key) in (last_number + 1..).zip(keys) {
        let entry = key.inner.as_target(0, Some(c"key"), false);
        entry.set_reference(number);
        columns.push(entry);
        let group = subquery.memory().make::<pg_sys::SortGroupClause>();
        group.set_reference(number);
        group.set_equal_operator(key.operators.equal);
        group.set_sort_operator(key.operators.less);
        group.set_is_hashable(key.operators.is_hashable);
        clauses.push(group);
    }
    columns.extend(hidden);
    for (number, target) in (1..).zip(&columns) {
        target.set_number(number);
    }
    subquery.set_targets(List::of(columns));
    (first_column, List::of(clauses))
}

/// The equalities as conditions of the outer query, over the grouped subquery's columns from `first_column` on.
pub fn join_clauses<'p>(
    keys: &[Key<'p>],
    relation_index: i32,
    subquery: Query<'p>,
    first_column: i16,
) -> Vec<Node<'p>> {
    let columns = subquery.targets().iter().skip(first_column as usize - 1);
    keys.iter().zip(columns).map(|(key, entry)| join_clause(key, relation_index, entry)).collect()
}

fn join_clause<'p>(key: &Key<'p>, relation_index: i32, entry: TargetEntry<'p>) -> Node<'p> {
    let var = Var::of_target(relation_index, entry).node();
    let outer = key.outer();
    outer.move_levels(-1, 1);
    let pair = if key.inner_is_first { [var, outer] } else { [outer, var] };
    key.clause.set_arguments(List::of(pair));
    key.clause.node()
}
