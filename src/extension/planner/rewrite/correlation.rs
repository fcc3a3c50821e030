//! The equalities that tie a subquery to the query around it.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{conjunction, conjuncts, copy_of};
use crate::planner::nodes::{contains, elements, list_of, make_node, node_as, tag_of};

/// An equality of the subquery that ties it to the outer query.
pub struct Key {
    clause: *mut pg_sys::OpExpr,
    inner: *mut pg_sys::Node,
    inner_is_first: bool,
    equal_operator: pg_sys::Oid,
    less_operator: pg_sys::Oid,
    is_hashable: bool,
}

/// The equalities by which the subquery is correlated, if nothing else ties it. They are taken out of it.
pub unsafe fn take_keys(subquery: *mut pg_sys::Query) -> Option<Vec<Key>> {
    unsafe {
        let mut keys = Vec::new();
        let mut rest = Vec::new();
        let before = (*(*subquery).jointree).quals;
        for condition in conjuncts(before).into_iter().flat_map(|condition| common_conjuncts(condition)) {
            if !pg_sys::contain_vars_of_level(condition, 1) {
                rest.push(condition);
                continue;
            }
            keys.push(as_key(condition)?);
        }
        if keys.is_empty() || pg_sys::contain_volatile_functions(subquery.cast()) {
            return None;
        }
        (*(*subquery).jointree).quals = conjunction(&rest);
        if pg_sys::contain_vars_of_level(subquery.cast(), 1) {
            (*(*subquery).jointree).quals = before;
            return None;
        }
        Some(keys)
    }
}

/// The conjuncts of a condition in which disjuncts share some: `(a AND b) OR (a AND c)` is `a AND (b OR c)`, and so is true for
/// the same rows.
unsafe fn common_conjuncts(condition: *mut pg_sys::Node) -> Vec<*mut pg_sys::Node> {
    unsafe {
        let is_correlated_or = node_as::<pg_sys::BoolExpr>(condition, NodeTag::T_BoolExpr)
            .is_some_and(|either| either.boolop == pg_sys::BoolExprType::OR_EXPR)
            && pg_sys::contain_vars_of_level(condition, 1);
        match is_correlated_or {
            true => conjuncts(pg_sys::canonicalize_qual(copy_of(condition).cast(), false).cast()),
            false => vec![condition],
        }
    }
}

/// The equality as a key, if it is one: of a type that sorts or hashes, with the subquery on one side alone.
pub unsafe fn as_key(condition: *mut pg_sys::Node) -> Option<Key> {
    unsafe {
        let clause = condition.cast::<pg_sys::OpExpr>();
        node_as::<pg_sys::OpExpr>(condition, NodeTag::T_OpExpr)?;
        let operands: Vec<_> = elements::<pg_sys::Node>((*clause).args).collect();
        let [first, second] = operands.as_slice() else { return None };
        if !pg_sys::op_mergejoinable((*clause).opno, pg_sys::exprType(*first))
            || pg_sys::contain_volatile_functions(condition)
            || contains(condition, &|node| tag_of(node) == NodeTag::T_SubLink)
        {
            return None;
        }
        let is_inner =
            |node| pg_sys::contain_vars_of_level(node, 0) && !pg_sys::contain_vars_of_level(node, 1);
        let is_outer =
            |node| pg_sys::contain_vars_of_level(node, 1) && !pg_sys::contain_vars_of_level(node, 0);
        let (inner, inner_is_first) = if is_inner(*first) && is_outer(*second) {
            (*first, true)
        } else if is_outer(*first) && is_inner(*second) {
            (*second, false)
        } else {
            return None;
        };
        let (mut less, mut equal, mut greater) = (pg_sys::InvalidOid, pg_sys::InvalidOid, pg_sys::InvalidOid);
        let mut is_hashable = false;
        pg_sys::get_sort_group_operators(
            pg_sys::exprType(inner),
            false,
            false,
            false,
            &raw mut less,
            &raw mut equal,
            &raw mut greater,
            &raw mut is_hashable,
        );
        // Rows of one group must be equal to the same outer rows.
        if equal == pg_sys::InvalidOid || !pg_sys::equality_ops_are_compatible((*clause).opno, equal) {
            return None;
        }
        let (equal_operator, less_operator) = (equal, less);
        Some(Key { clause, inner, inner_is_first, equal_operator, less_operator, is_hashable })
    }
}

/// Groups the subquery by the keys, beside what it has of groups, and makes DISTINCT tell them apart. They become its last
/// columns, whose first number is returned.
pub unsafe fn group_by_keys(subquery: *mut pg_sys::Query, keys: &[Key]) -> i16 {
    unsafe {
        let targets: Vec<_> = elements::<pg_sys::TargetEntry>((*subquery).targetList).collect();
        let last_number = targets.iter().map(|target| (**target).ressortgroupref).max().unwrap_or(0);
        let (hidden, mut columns): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|target| (**target).resjunk);
        let first_column = columns.len() as i16 + 1;
        let is_distinct = !(*subquery).distinctClause.is_null();
        let is_grouped = !is_distinct || (*subquery).hasAggs || !(*subquery).groupClause.is_null();
        for (number, key) in (last_number + 1..).zip(keys) {
            let name = c"key".as_ptr().cast_mut();
            let entry = pg_sys::makeTargetEntry(key.inner.cast(), 0, name, false);
            (*entry).ressortgroupref = number;
            columns.push(entry);
            let group = make_node::<pg_sys::SortGroupClause>(NodeTag::T_SortGroupClause);
            (*group).tleSortGroupRef = number;
            (*group).eqop = key.equal_operator;
            (*group).sortop = key.less_operator;
            (*group).hashable = key.is_hashable;
            if is_grouped {
                (*subquery).groupClause = pg_sys::lappend((*subquery).groupClause, group.cast());
            }
            if is_distinct {
                (*subquery).distinctClause =
                    pg_sys::lappend((*subquery).distinctClause, copy_of(group).cast());
            }
        }
        for (number, target) in (1..).zip(columns.iter().chain(&hidden)) {
            (**target).resno = number;
        }
        (*subquery).targetList = list_of(columns.into_iter().chain(hidden));
        first_column
    }
}

/// The equalities as conditions of the outer query, over the grouped subquery's columns from `first_column` on.
pub unsafe fn join_clauses(
    keys: &[Key],
    relation_index: i32,
    subquery: *mut pg_sys::Query,
    first_column: i16,
) -> Vec<*mut pg_sys::Node> {
    unsafe {
        let columns = elements::<pg_sys::TargetEntry>((*subquery).targetList).skip(first_column as usize - 1);
        keys.iter().zip(columns).map(|(key, entry)| join_clause(key, relation_index, entry)).collect()
    }
}

unsafe fn join_clause(key: &Key, relation_index: i32, entry: *mut pg_sys::TargetEntry) -> *mut pg_sys::Node {
    unsafe {
        let var: *mut pg_sys::Node = pg_sys::makeVarFromTargetEntry(relation_index, entry).cast();
        let operands: Vec<_> = elements::<pg_sys::Node>((*key.clause).args).collect();
        let outer = operands[usize::from(key.inner_is_first)];
        pg_sys::IncrementVarSublevelsUp(outer, -1, 1);
        let pair = if key.inner_is_first { [var, outer] } else { [outer, var] };
        (*key.clause).args = list_of(pair);
        key.clause.cast()
    }
}
