//! Whether declarations prove that an expression is never NULL.

use pgrx::pg_sys;

use crate::pg::tree::{Node, Query, Var, check_stack_depth, column_is_not_null};

/// Whether an expression over the query's FROM is never NULL, as far as declarations prove it.
pub fn is_never_null(query: Query<'_>, node: Node<'_>) -> bool {
    check_stack_depth();
    if let Some(constant) = node.downcast::<pg_sys::Const>() {
        !constant.is_null()
    } else if let Some(relabeled) = node.downcast::<pg_sys::RelabelType>() {
        is_never_null(query, relabeled.argument())
    } else if let Some(var) = node.downcast::<pg_sys::Var>() {
        var_is_not_null(query, var)
    } else {
        false
    }
}

fn var_is_not_null(query: Query<'_>, var: Var<'_>) -> bool {
    if var.levels_up() != 0
        || var.attribute() <= 0
        || !query.grouping_sets().is_nil()
        || query.set_operations().is_some()
        || nullable_relations(query).contains(&var.relation())
    {
        return false;
    }
    let index = usize::try_from(var.relation()).ok();
    let Some(entry) = index.and_then(|index| query.entry(index)) else { return false };
    match entry.kind() {
        pg_sys::RTEKind::RTE_RELATION => column_is_not_null(entry.table_oid(), var.attribute()),
        pg_sys::RTEKind::RTE_SUBQUERY => entry.subquery().is_some_and(|subquery| {
            let target = subquery.targets().iter().find(|target| target.number() == var.attribute());
            target.is_some_and(|target| is_never_null(subquery, target.expression()))
        }),
        _ => false,
    }
}

/// The relations on the sides of outer joins that may be NULL.
pub fn nullable_relations(query: Query<'_>) -> Vec<i32> {
    let mut found = Vec::new();
    if let Some(tree) = query.join_tree() {
        tree.walk(&mut |node| {
            if let Some(join) = node.downcast::<pg_sys::JoinExpr>() {
                let sides: &[Node<'_>] = match join.join_type() {
                    pg_sys::JoinType::JOIN_LEFT => &[join.right()],
                    pg_sys::JoinType::JOIN_RIGHT => &[join.left()],
                    pg_sys::JoinType::JOIN_FULL => &[join.left(), join.right()],
                    _ => &[],
                };
                sides.iter().for_each(|side| collect_relations(*side, &mut found));
            }
            true
        });
    }
    found
}

/// The relations and joins that a part of FROM consists of.
pub fn collect_relations(node: Node<'_>, found: &mut Vec<i32>) {
    node.walk(&mut |part| {
        if let Some(reference) = part.downcast::<pg_sys::RangeTblRef>() {
            found.push(reference.index());
        }
        if let Some(join) = part.downcast::<pg_sys::JoinExpr>() {
            found.push(join.index());
        }
        true
    });
}
