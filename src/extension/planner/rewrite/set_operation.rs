//! Set operations become groups over UNION ALL, which core flattens.
//!
//! ```text
//! a UNION b      ─►  SELECT DISTINCT … FROM (a UNION ALL b) s, without DISTINCT if no two rows can be equal
//! a INTERSECT b  ─►  SELECT … FROM (a, 0 UNION ALL b, 1) s GROUP BY … HAVING min(side) < max(side)
//! a EXCEPT b     ─►  SELECT … FROM (a, 0 UNION ALL b, 1) s GROUP BY … HAVING max(side) = 0
//!
//! a EXCEPT ALL b     ─►  SELECT … FROM (SELECT …, count(*) FILTER (WHERE side = 0) AS own, count(*) FILTER (WHERE side = 1) AS others
//!                                       FROM (a, 0 UNION ALL b, 1) s GROUP BY …) g, generate_series(1, own) AS number
//!                        WHERE others < number
//! a INTERSECT ALL b  ─►  the same WHERE NOT others < number
//! ```
//!
//! So each row comes as often as its group has such numbers.
//!
//! An operand that is another operation becomes a subquery first: in `(a INTERSECT b) UNION c` the INTERSECT does.
//!
//! Equal values must print alike: which of them PostgreSQL gives depends on its plan. So all numbers of a column must show as
//! many digits after the point.

use pgrx::pg_sys;

use super::{
    Level,
    derived::{
        append_entry, append_functions, column_named_as, empty_select, limit_reads_ctes, select_as,
        select_from,
    },
    distinct_rows::are_distinct,
    scale::fixed_scale,
};
use crate::pg::tree::{
    AggregateCall, FunctionCall, List, Logic, Memory, Node, OidList, OperatorCall, Query, RangeEntry, Ref,
    SetOperation, SortGroupClause, TargetEntry, Var, check_stack_depth, is_deterministic,
};

/// Rewrites a query that is a set operation. Returns whether it changed anything.
pub fn rewrite(level: Level<'_, '_>) -> bool {
    let query = level.query;
    if !query.row_marks().is_nil()
        || query.has_recursive()
        || query.has_modifying_with()
        || limit_reads_ctes(query)
    {
        return false;
    }
    let Some(top) = query.set_operations() else { return false };
    let is_nested = nest_operands(level, top);
    let operation = SetOperationTree::of(top).map(|operation| operation.without_duplicates(level));
    match operation
        .filter(|operation| operation.kind == Kind::UnionOfDistinct || operation.is_determined(level))
    {
        Some(operation) => operation.apply(query),
        None => return is_nested,
    }
    true
}

/// Makes subqueries of the operands that are other operations than the one at the top, and rewrites these. Returns whether there
/// were any.
fn nest_operands<'p>(level: Level<'_, 'p>, top: Node<'p>) -> bool {
    let query = level.query;
    let Some(operation) = top.downcast::<pg_sys::SetOperationStmt>() else { return false };
    let count = query.range_table().len();
    nest_below(level, operation, operation, true);
    if query.range_table().len() == count {
        return false;
    }
    // The leaves of the subqueries are theirs now.
    let mut references = Vec::new();
    collect_references(top, &mut references);
    take_leaves(query, query, &references);
    for column in query.targets().iter() {
        if let Some(var) = column.expression().downcast::<pg_sys::Var>() {
            var.set_relation(1);
        }
    }
    true
}

/// The same of the operands of one operation, which is the first of all operands if nothing is to the left of it.
fn nest_below<'p>(level: Level<'_, 'p>, top: SetOperation<'p>, operation: SetOperation<'p>, is_first: bool) {
    check_stack_depth();
    let nested = |operand: Node<'p>, is_first: bool| {
        let Some(inner) = operand.downcast::<pg_sys::SetOperationStmt>() else { return operand };
        let is_union = inner.operation() == pg_sys::SetOperation::SETOP_UNION;
        let is_part = match (top.operation(), top.all()) {
            (pg_sys::SetOperation::SETOP_UNION, true) => is_union && inner.all(),
            (_, true) => false,
            // Rows of which one EXCEPT after the other lets pass what is in none of them.
            (pg_sys::SetOperation::SETOP_EXCEPT, false) if is_first && !is_union => {
                inner.operation() == pg_sys::SetOperation::SETOP_EXCEPT && !inner.all()
            }
            _ => is_union,
        };
        if !is_part {
            return as_subquery(level, inner);
        }
        nest_below(level, top, inner, is_first && !is_union);
        operand
    };
    operation.set_left(nested(operation.left(), is_first));
    operation.set_right(nested(operation.right(), false));
}

/// A set operation as a subquery of FROM.
fn as_subquery<'p>(level: Level<'_, 'p>, operation: SetOperation<'p>) -> Node<'p> {
    let query = level.query;
    let subquery = empty_select(query.memory());
    subquery.set_set_operations(Some(operation.node()));
    let mut references = Vec::new();
    collect_references(operation.node(), &mut references);
    let first = references.first().and_then(|leaf| leaf_entry(query, leaf.index())?.subquery());
    let columns = column_types(operation).zip(operation.column_modifiers().iter());
    for (column, ((column_type, collation), modifier)) in
        first.into_iter().flat_map(Query::columns).zip(columns)
    {
        let var = Var::of_target(1, column);
        var.set_type_oid(column_type);
        var.set_modifier(modifier);
        var.set_collation(collation);
        let target = column_named_as(column, var.node(), column.number(), false);
        subquery.set_targets(subquery.targets().with(target));
    }
    take_leaves(query, subquery, &references);
    for entry in subquery.range_table().iter() {
        if let Some(leaf) = entry.subquery() {
            // One level further from what is around the query.
            leaf.node().move_levels(1, 1);
        }
    }
    rewrite(level.inner(subquery));
    append_entry(query, subquery)
}

/// Makes the leaves that are named the range table of `new`, in the order in which they are named.
fn take_leaves<'p>(query: Query<'p>, new: Query<'p>, references: &[Ref<'p, pg_sys::RangeTblRef>]) {
    let entries: Vec<_> = references.iter().filter_map(|leaf| leaf_entry(query, leaf.index())).collect();
    new.set_range_table(List::of(entries));
    for (index, reference) in (1..).zip(references) {
        reference.set_index(index);
    }
}

/// Adds the leaves of a tree, from left to right.
fn collect_references<'p>(node: Node<'p>, references: &mut Vec<Ref<'p, pg_sys::RangeTblRef>>) {
    check_stack_depth();
    if let Some(operation) = node.downcast::<pg_sys::SetOperationStmt>() {
        collect_references(operation.left(), references);
        collect_references(operation.right(), references);
    }
    references.extend(node.downcast::<pg_sys::RangeTblRef>());
}

/// What the rows of UNION ALL over the leaves go through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Union,
    /// Of rows of which no two are equal.
    UnionOfDistinct,
    Intersect,
    Except,
    IntersectAll,
    ExceptAll,
}

/// A set operation with its leaves' places in the range table, left ones and right ones. Unions have left ones alone.
struct SetOperationTree<'p> {
    kind: Kind,
    tree: SetOperation<'p>,
    left: Vec<i32>,
    right: Vec<i32>,
}

impl<'p> SetOperationTree<'p> {
    fn of(tree: Node<'p>) -> Option<Self> {
        let top = tree.downcast::<pg_sys::SetOperationStmt>()?;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let kind = match (top.operation(), top.all()) {
            (pg_sys::SetOperation::SETOP_UNION, false) => {
                collect_unions(tree, &mut left)?;
                Kind::Union
            }
            (pg_sys::SetOperation::SETOP_INTERSECT, false) => {
                collect_unions(top.left(), &mut left)?;
                collect_unions(top.right(), &mut right)?;
                Kind::Intersect
            }
            (pg_sys::SetOperation::SETOP_EXCEPT, false) => {
                let mut first = tree;
                // Rows of which one EXCEPT after the other lets pass what is in none of them.
                while let Some(except) = first.downcast::<pg_sys::SetOperationStmt>()
                    && except.operation() == pg_sys::SetOperation::SETOP_EXCEPT
                    && !except.all()
                {
                    collect_unions(except.right(), &mut right)?;
                    first = except.left();
                }
                collect_unions(first, &mut left)?;
                Kind::Except
            }
            (
                operation @ (pg_sys::SetOperation::SETOP_INTERSECT | pg_sys::SetOperation::SETOP_EXCEPT),
                true,
            ) => {
                left.push(top.left().downcast::<pg_sys::RangeTblRef>()?.index());
                right.push(top.right().downcast::<pg_sys::RangeTblRef>()?.index());
                match operation {
                    pg_sys::SetOperation::SETOP_INTERSECT => Kind::IntersectAll,
                    _ => Kind::ExceptAll,
                }
            }
            _ => return None,
        };
        Some(Self { kind, tree: top, left, right })
    }

    /// The same, but that a union which has no equal rows need not look for them.
    fn without_duplicates(mut self, level: Level<'_, 'p>) -> Self {
        if self.kind == Kind::Union {
            let leaves: Option<Vec<_>> = self.leaves().map(|leaf| level.below(leaf)).collect();
            let columns: Vec<_> = column_types(self.tree).collect();
            if leaves.is_some_and(|leaves| are_distinct(&leaves, &columns)) {
                self.kind = Kind::UnionOfDistinct;
            }
        }
        self
    }

    fn has_sides(&self) -> bool {
        !matches!(self.kind, Kind::Union | Kind::UnionOfDistinct)
    }

    fn leaves(&self) -> impl Iterator<Item = i32> {
        self.left.iter().chain(&self.right).copied()
    }

    /// Whether equal values of every column print alike: by their type, by one modifier in all leaves, or by one scale.
    fn is_determined(&self, level: Level<'_, 'p>) -> bool {
        let query = level.query;
        column_types(self.tree).enumerate().all(|(place, (column_type, collation))| match column_type {
            pg_sys::BOOLOID
            | pg_sys::INT2OID
            | pg_sys::INT4OID
            | pg_sys::INT8OID
            | pg_sys::OIDOID
            | pg_sys::DATEOID
            | pg_sys::TIMEOID
            | pg_sys::TIMESTAMPOID
            | pg_sys::TIMESTAMPTZOID
            | pg_sys::UUIDOID
            | pg_sys::BYTEAOID => true,
            pg_sys::NUMERICOID => {
                let mut scales = self.leaves().map(|leaf| {
                    let leaf = level.below(leaf)?;
                    fixed_scale(&leaf, leaf.query.targets().get(place)?.expression())
                });
                let first = scales.next().flatten();
                first.is_some() && scales.all(|scale| scale == first)
            }
            pg_sys::TEXTOID | pg_sys::VARCHAROID => {
                collation != pg_sys::InvalidOid && is_deterministic(collation)
            }
            pg_sys::BPCHAROID => {
                let mut modifiers = self.leaves().map(|leaf| {
                    let subquery = leaf_entry(query, leaf)?.subquery()?;
                    let expression = subquery.targets().get(place)?.expression();
                    (expression.type_oid() == column_type)
                        .then(|| expression.modifier())
                        .filter(|modifier| *modifier >= 0)
                });
                let first = modifiers.next().flatten();
                first.is_some() && modifiers.all(|modifier| modifier == first)
            }
            _ => false,
        })
    }

    /// Makes the query one over a subquery that is UNION ALL.
    fn apply(&self, query: Query<'p>) {
        let groups = self.tree.group_clauses().deep_copy();
        let inner = query.shallow_copy();
        inner.set_order(List::nil());
        inner.set_limit_offset(None);
        inner.set_limit_count(None);
        let columns: Vec<_> = inner.targets().iter().collect();
        for leaf in self.leaves() {
            if let Some(entry) = leaf_entry(inner, leaf)
                && let Some(subquery) = entry.subquery()
                && !(has_types_of(self.tree, subquery) && (!self.has_sides() || takes_column(subquery)))
            {
                entry.set_subquery(Some(coerced(self.tree, subquery)));
            }
        }
        if self.has_sides() {
            add_side_type(self.tree);
        }
        make_union_all(self.tree.node(), self.tree);
        if self.has_sides() {
            self.left.iter().for_each(|leaf| add_side(inner, *leaf, 0));
            self.right.iter().for_each(|leaf| add_side(inner, *leaf, 1));
            add_side_column(inner);
        }
        let counts = matches!(self.kind, Kind::IntersectAll | Kind::ExceptAll);
        let inner = if counts { counted(inner, groups) } else { inner };
        let outer = select_as(query, inner, &columns);
        columns.iter().for_each(|column| column.set_reference(0));
        match self.kind {
            Kind::IntersectAll | Kind::ExceptAll => {
                self.repeat_rows(outer, inner, columns.len());
            }
            Kind::Union => outer.set_distinct(grouping_clauses(outer, groups)),
            Kind::UnionOfDistinct => {}
            Kind::Intersect | Kind::Except => {
                outer.set_groups(grouping_clauses(outer, groups));
                outer.set_has_aggregates(true);
                let side = inner.targets().get(columns.len());
                outer.set_having(side.map(|side| self.having(side)));
            }
        }
        query.replace_with(outer);
    }

    /// Gives each row of `counted` as often as the operation says, by its two counts behind `column_count` columns.
    fn repeat_rows(&self, outer: Query<'p>, counted: Query<'p>, column_count: usize) -> Option<()> {
        let memory = outer.memory();
        let count = |place: usize| {
            counted.targets().get(column_count + place).map(|target| Var::of_target(1, target).node())
        };
        let (own, others) = (count(0)?, count(1)?);
        let numbers = FunctionCall::of_set(
            memory,
            pg_sys::F_GENERATE_SERIES_INT8_INT8,
            pg_sys::INT8OID,
            List::of([memory.bigint(1).node(), own]),
        );
        let series = append_functions(outer, vec![numbers], NUMBER);
        let number = Var::new(memory, series, 1, pg_sys::INT8OID).node();
        let is_beyond = OperatorCall::comparison(pg_sys::Int8LessOperator, others, number);
        let is_kept = match self.kind {
            Kind::ExceptAll => is_beyond,
            _ => Logic::new(pg_sys::BoolExprType::NOT_EXPR, List::of([is_beyond])),
        };
        outer.join_tree()?.set_condition(Some(is_kept));
        Some(())
    }

    /// What must hold for the sides that a group's rows are of.
    fn having(&self, side: TargetEntry<'p>) -> Node<'p> {
        let last = side_aggregate(pg_sys::F_MAX_INT4, side);
        match self.kind {
            Kind::Intersect => {
                let first = side_aggregate(pg_sys::F_MIN_INT4, side);
                OperatorCall::comparison(pg_sys::Int4LessOperator, first, last)
            }
            _ => OperatorCall::comparison(pg_sys::Int4EqualOperator, last, side_constant(side.memory(), 0)),
        }
    }
}

/// The different rows of both sides, and how often each side has them.
fn counted<'p>(inner: Query<'p>, groups: List<'p, pg_sys::SortGroupClause>) -> Query<'p> {
    let memory = inner.memory();
    let query = select_from(inner);
    let place_of_side = inner.targets().len() - 1;
    let mut number = 0;
    for column in inner.columns().take(place_of_side) {
        number += 1;
        let target = column_named_as(column, Var::of_target(1, column).node(), number, false);
        target.set_reference(number as u32);
        query.set_targets(query.targets().with(target));
    }
    for (reference, group) in (1..).zip(groups.iter()) {
        group.set_reference(reference);
    }
    query.set_groups(groups);
    query.set_has_aggregates(true);
    for side in [0, 1] {
        let Some(column) = inner.targets().get(place_of_side) else { return query };
        let call = AggregateCall::new(memory, pg_sys::F_COUNT_, pg_sys::INT8OID);
        call.set_is_star(true);
        call.set_filter(Some(OperatorCall::comparison(
            pg_sys::Int4EqualOperator,
            Var::of_target(1, column).node(),
            side_constant(memory, side),
        )));
        number += 1;
        query.set_targets(query.targets().with(call.node().as_target(number, Some(NUMBER), false)));
    }
    query
}

/// The clauses by which the columns are grouped: those of ORDER BY first, as core has them in DISTINCT.
fn grouping_clauses<'p>(
    outer: Query<'p>,
    groups: List<'p, pg_sys::SortGroupClause>,
) -> List<'p, pg_sys::SortGroupClause> {
    let sorted: Vec<u32> = outer.order().iter().map(SortGroupClause::reference).collect();
    let mut clauses = outer.order().deep_copy();
    let mut next = outer.targets().iter().map(TargetEntry::reference).max().unwrap_or(0);
    for (column, group) in outer.targets().iter().zip(groups.iter()) {
        if column.reference() == 0 {
            next += 1;
            column.set_reference(next);
        }
        if !sorted.contains(&column.reference()) {
            group.set_reference(column.reference());
            clauses = clauses.with(group);
        }
    }
    clauses
}

/// Adds the leaves of a tree that is of unions alone.
fn collect_unions(node: Node<'_>, leaves: &mut Vec<i32>) -> Option<()> {
    check_stack_depth();
    if let Some(leaf) = node.downcast::<pg_sys::RangeTblRef>() {
        leaves.push(leaf.index());
        return Some(());
    }
    let operation = node.downcast::<pg_sys::SetOperationStmt>()?;
    if operation.operation() != pg_sys::SetOperation::SETOP_UNION {
        return None;
    }
    collect_unions(operation.left(), leaves)?;
    collect_unions(operation.right(), leaves)
}

fn leaf_entry(query: Query<'_>, leaf: i32) -> Option<RangeEntry<'_>> {
    query.entry(leaf as usize)
}

/// Whether a constant column more changes nothing of a subquery.
fn takes_column(subquery: Query<'_>) -> bool {
    subquery.set_operations().is_none()
        && subquery.distinct().is_nil()
        && !subquery.targets().iter().any(|entry| entry.is_hidden())
}

/// Type and collation of each column of an operation, to which core casts the leaves' columns where it does not flatten.
fn column_types(top: SetOperation<'_>) -> impl Iterator<Item = (pg_sys::Oid, pg_sys::Oid)> {
    top.column_types().iter().zip(top.column_collations().iter())
}

/// Whether a leaf's columns are of the operation's types.
fn has_types_of(top: SetOperation<'_>, leaf: Query<'_>) -> bool {
    leaf.columns().zip(column_types(top)).all(|(entry, (column_type, collation))| {
        let expression = entry.expression();
        expression.type_oid() == column_type && expression.collation() == collation
    })
}

/// A query that casts a leaf's columns to the operation's types.
fn coerced<'p>(top: SetOperation<'p>, leaf: Query<'p>) -> Query<'p> {
    let query = select_from(leaf);
    for (entry, (column_type, collation)) in leaf.columns().zip(column_types(top)) {
        let mut value = Var::of_target(1, entry).node().coerced(column_type, c"UNION");
        if value.collation() != collation {
            value = value.relabeled(value.type_oid(), value.modifier(), collation);
        }
        let column = column_named_as(entry, value, entry.number(), false);
        query.set_targets(query.targets().with(column));
    }
    query
}

/// Gives an operation the type of the column that tells the side.
fn add_side_type(top: SetOperation<'_>) {
    top.set_column_types(top.column_types().with(pg_sys::INT4OID));
    top.set_column_modifiers(top.column_modifiers().with(-1));
    top.set_column_collations(top.column_collations().with(pg_sys::InvalidOid));
}

/// Makes every operation of the tree a UNION ALL of the types of its top.
fn make_union_all<'p>(node: Node<'p>, top: SetOperation<'p>) {
    check_stack_depth();
    let Some(operation) = node.downcast::<pg_sys::SetOperationStmt>() else { return };
    operation.set_operation(pg_sys::SetOperation::SETOP_UNION);
    operation.set_all(true);
    operation.set_group_clauses(List::nil());
    if operation != top {
        operation.set_column_types(top.column_types().deep_copy());
        operation.set_column_modifiers(top.column_modifiers().deep_copy());
        operation.set_column_collations(top.column_collations().deep_copy());
    }
    make_union_all(operation.left(), top);
    make_union_all(operation.right(), top);
}

/// Gives a leaf the column that tells its side.
fn add_side(query: Query<'_>, leaf: i32, side: i32) {
    let Some(entry) = leaf_entry(query, leaf) else { return };
    if let Some(subquery) = entry.subquery() {
        let value = side_constant(query.memory(), side);
        let column = value.as_target(subquery.targets().len() as i16 + 1, Some(SIDE), false);
        subquery.set_targets(subquery.targets().with(column));
    }
    if let Some(names) = entry.names() {
        names.set_column_names(names.column_names().with(query.memory().name(SIDE)));
    }
}

/// Gives the operation the column of its first leaf that tells the side, as the others are given.
fn add_side_column(query: Query<'_>) {
    let first = query.targets().first().and_then(|column| column.expression().downcast::<pg_sys::Var>());
    let relation = first.map_or(1, |var| var.relation());
    let place = query.targets().len() as i16 + 1;
    let var = Var::new(query.memory(), relation, place, pg_sys::INT4OID);
    query.set_targets(query.targets().with(var.node().as_target(place, Some(SIDE), false)));
}

/// The name of the columns that count and number equal rows.
const NUMBER: &std::ffi::CStr = c"number";

/// The name of the column that tells the side.
const SIDE: &std::ffi::CStr = c"side";

fn side_constant(memory: Memory<'_>, side: i32) -> Node<'_> {
    memory.integer(side).node()
}

/// `min` or `max` of the side.
fn side_aggregate(function: u32, side: TargetEntry<'_>) -> Node<'_> {
    let memory = side.memory();
    let argument = Var::of_target(1, side).node().as_target(1, None, false);
    let call = AggregateCall::new(memory, function, pg_sys::INT4OID);
    call.set_argument_types(OidList::of(memory, [pg_sys::INT4OID]));
    call.set_arguments(List::of([argument]));
    call.node()
}
