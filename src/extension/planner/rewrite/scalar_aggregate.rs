//! A correlated scalar aggregate becomes a join with a grouped subquery.
//!
//! ```text
//! WHERE x < (SELECT 0.2 * avg(q) FROM l WHERE l.k = p.k)
//! ─►  FROM …, (SELECT 0.2 * avg(q) AS value, l.k FROM l GROUP BY l.k) s  WHERE x < s.value AND s.k = p.k
//! ```
//!
//! Right only if the aggregate is NULL over no rows and the condition is not true for NULL: then outer rows
//! without a partner drop out either way. `count`, COALESCE and the like are left alone.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{conjunction, conjuncts};
use crate::planner::{
    lower::function_name,
    nodes::{contains, element_count, elements, list_of, make_node, node_as, tag_of},
};

/// Rewrites every such condition of the query's WHERE; says whether there was one.
pub unsafe fn rewrite(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let mut conditions = conjuncts((*(*query).jointree).quals);
        let mut added = Vec::new();
        for condition in &conditions {
            if let Some(link) = strict_link(*condition)
                && let Some(keys) = correlation(link)
            {
                added.extend(join_grouped(query, *condition, link, &keys));
            }
        }
        if added.is_empty() {
            return false;
        }
        conditions.extend(added);
        (*(*query).jointree).quals = conjunction(&conditions);
        true
    }
}

/// The scalar subquery in a condition that is not true where the subquery is NULL.
unsafe fn strict_link(condition: *mut pg_sys::Node) -> Option<*mut pg_sys::SubLink> {
    unsafe {
        let mut links = Vec::new();
        crate::planner::nodes::walk_expression(condition, &mut |node| {
            let is_link = tag_of(node) == NodeTag::T_SubLink;
            if is_link {
                links.push(node.cast::<pg_sys::SubLink>());
            }
            !is_link
        });
        let [link] = links.as_slice() else { return None };
        let is_scalar = (**link).subLinkType == pg_sys::SubLinkType::EXPR_SUBLINK;
        let is_strict = has_strict_path(condition, &|node| std::ptr::addr_eq(node, *link));
        (is_scalar && is_strict).then_some(*link)
    }
}

/// Whether the expression is NULL where a node that satisfies the test is.
unsafe fn has_strict_path(node: *mut pg_sys::Node, test: &dyn Fn(*mut pg_sys::Node) -> bool) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        if test(node) {
            return true;
        }
        let arguments = match tag_of(node) {
            NodeTag::T_OpExpr => {
                let operator = &mut *node.cast::<pg_sys::OpExpr>();
                pg_sys::set_opfuncid(operator);
                if !pg_sys::func_strict(operator.opfuncid) {
                    return false;
                }
                operator.args
            }
            NodeTag::T_FuncExpr => {
                let call = &*node.cast::<pg_sys::FuncExpr>();
                if !pg_sys::func_strict(call.funcid) {
                    return false;
                }
                call.args
            }
            NodeTag::T_RelabelType => {
                return has_strict_path((*node.cast::<pg_sys::RelabelType>()).arg.cast(), test);
            }
            _ => return false,
        };
        elements::<pg_sys::Node>(arguments).any(|argument| has_strict_path(argument, test))
    }
}

/// An equality of the subquery that ties it to the outer query.
struct Key {
    clause: *mut pg_sys::OpExpr,
    inner: *mut pg_sys::Node,
    inner_is_first: bool,
    equal_operator: pg_sys::Oid,
    less_operator: pg_sys::Oid,
    is_hashable: bool,
}

/// The equalities by which the subquery is correlated, if it can be rewritten. They are taken out of it.
unsafe fn correlation(link: *mut pg_sys::SubLink) -> Option<Vec<Key>> {
    unsafe {
        let subquery: *mut pg_sys::Query = (*link).subselect.cast();
        if !is_plain_aggregate(subquery) {
            return None;
        }
        let mut keys = Vec::new();
        let mut rest = Vec::new();
        for condition in conjuncts((*(*subquery).jointree).quals) {
            if !pg_sys::contain_vars_of_level(condition, 1) {
                rest.push(condition);
                continue;
            }
            keys.push(as_key(condition)?);
        }
        if keys.is_empty() {
            return None;
        }
        let before = (*(*subquery).jointree).quals;
        (*(*subquery).jointree).quals = conjunction(&rest);
        if pg_sys::contain_vars_of_level(subquery.cast(), 1) {
            (*(*subquery).jointree).quals = before;
            return None;
        }
        Some(keys)
    }
}

unsafe fn is_plain_aggregate(subquery: *mut pg_sys::Query) -> bool {
    unsafe {
        let query = &*subquery;
        let is_plain = query.hasAggs
            && query.groupClause.is_null()
            && query.groupingSets.is_null()
            && query.havingQual.is_null()
            && query.distinctClause.is_null()
            && query.sortClause.is_null()
            && query.limitCount.is_null()
            && query.limitOffset.is_null()
            && query.setOperations.is_null()
            && query.cteList.is_null()
            && query.rowMarks.is_null()
            && !query.hasWindowFuncs
            && !query.hasTargetSRFs;
        if !is_plain || element_count(query.targetList) != 1 {
            return false;
        }
        let Some(target) = elements::<pg_sys::TargetEntry>(query.targetList).next() else { return false };
        has_strict_path((*target).expr.cast(), &|node| {
            node_as::<pg_sys::Aggref>(node, NodeTag::T_Aggref).is_some_and(|aggregate| {
                u32::from(aggregate.aggfnoid) < pg_sys::FirstNormalObjectId
                    && matches!(function_name(aggregate.aggfnoid).as_str(), "sum" | "avg" | "min" | "max")
            })
        })
    }
}

unsafe fn as_key(condition: *mut pg_sys::Node) -> Option<Key> {
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

/// Turns the subquery into a grouped one in FROM, and returns the conditions that join it.
unsafe fn join_grouped(
    query: *mut pg_sys::Query,
    condition: *mut pg_sys::Node,
    link: *mut pg_sys::SubLink,
    keys: &[Key],
) -> Vec<*mut pg_sys::Node> {
    unsafe {
        let subquery: *mut pg_sys::Query = (*link).subselect.cast();
        let relation_index = element_count((*query).rtable) as i32 + 1;
        let mut names = vec![c"value"];
        for (place, key) in keys.iter().enumerate() {
            let number = place as u32 + 1;
            let entry = pg_sys::makeTargetEntry(
                key.inner.cast(),
                number as i16 + 1,
                c"key".as_ptr().cast_mut(),
                false,
            );
            (*entry).ressortgroupref = number;
            (*subquery).targetList = pg_sys::lappend((*subquery).targetList, entry.cast());
            let group = make_node::<pg_sys::SortGroupClause>(NodeTag::T_SortGroupClause);
            (*group).tleSortGroupRef = number;
            (*group).eqop = key.equal_operator;
            (*group).sortop = key.less_operator;
            (*group).hashable = key.is_hashable;
            (*subquery).groupClause = pg_sys::lappend((*subquery).groupClause, group.cast());
            names.push(c"key");
        }
        append_subquery(query, subquery, &names);
        let value = elements::<pg_sys::TargetEntry>((*subquery).targetList).next();
        if let Some(value) = value {
            let var = pg_sys::makeVarFromTargetEntry(relation_index, value);
            replace_link(condition, link, var.cast());
        }
        let joined = keys.iter().zip(elements::<pg_sys::TargetEntry>((*subquery).targetList).skip(1));
        joined.map(|(key, entry)| join_clause(key, relation_index, entry)).collect()
    }
}

/// The equality as a condition of the outer query.
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

/// Adds a subquery to FROM.
pub unsafe fn append_subquery(query: *mut pg_sys::Query, subquery: *mut pg_sys::Query, names: &[&CStr]) {
    unsafe {
        let entry = make_node::<pg_sys::RangeTblEntry>(NodeTag::T_RangeTblEntry);
        (*entry).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry).subquery = subquery;
        (*entry).inFromCl = true;
        let names = names.iter().map(|name| pg_sys::makeString(pg_sys::pstrdup(name.as_ptr())));
        (*entry).eref = pg_sys::makeAlias(c"subquery".as_ptr(), list_of(names));
        (*query).rtable = pg_sys::lappend((*query).rtable, entry.cast());
        let reference = make_node::<pg_sys::RangeTblRef>(NodeTag::T_RangeTblRef);
        (*reference).rtindex = element_count((*query).rtable) as i32;
        let join_tree = (*query).jointree;
        (*join_tree).fromlist = pg_sys::lappend((*join_tree).fromlist, reference.cast());
    }
}

/// Puts another node in the place of a SubLink, on the path that `has_strict_path` follows.
unsafe fn replace_link(node: *mut pg_sys::Node, link: *mut pg_sys::SubLink, by: *mut pg_sys::Node) {
    unsafe {
        let arguments = match tag_of(node) {
            NodeTag::T_OpExpr => (*node.cast::<pg_sys::OpExpr>()).args,
            NodeTag::T_FuncExpr => (*node.cast::<pg_sys::FuncExpr>()).args,
            NodeTag::T_RelabelType => {
                let relabel = node.cast::<pg_sys::RelabelType>();
                if std::ptr::addr_eq((*relabel).arg, link) {
                    (*relabel).arg = by.cast();
                } else {
                    replace_link((*relabel).arg.cast(), link, by);
                }
                return;
            }
            _ => return,
        };
        for place in 0..element_count(arguments) {
            let cell = (*arguments).elements.add(place);
            if std::ptr::addr_eq((*cell).ptr_value, link) {
                (*cell).ptr_value = by.cast();
            } else {
                replace_link((*cell).ptr_value.cast(), link, by);
            }
        }
    }
}
