//! NOT IN becomes NOT EXISTS, which core turns into an anti join.
//!
//! ```text
//! x NOT IN (SELECT c …)  ─►  NOT EXISTS (SELECT 1 FROM (SELECT c …) s WHERE x = s.c)
//! ```
//!
//! Where x or c may be NULL the condition is `(x = s.c) IS NOT FALSE`, which is exact: a NULL on either side
//! makes NOT IN not true for every pair. The join recognises it as null-aware.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{conjunction, conjuncts, scalar_aggregate::append_subquery};
use crate::planner::nodes::{contains, elements, list_of, make_node, node_as, tag_of, walk_expression};

/// Rewrites every NOT IN among the conjuncts of the query's WHERE; says whether there was one.
pub unsafe fn rewrite(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let mut conditions = conjuncts((*(*query).jointree).quals);
        let mut changed = false;
        for condition in &mut conditions {
            if let Some(membership) = as_not_in(*condition) {
                *condition = not_exists(query, &membership);
                changed = true;
            }
        }
        if changed {
            (*(*query).jointree).quals = conjunction(&conditions);
        }
        changed
    }
}

/// `scalar NOT IN (subquery)`.
struct NotIn {
    equality: *mut pg_sys::OpExpr,
    scalar: *mut pg_sys::Node,
    subquery: *mut pg_sys::Query,
}

unsafe fn as_not_in(condition: *mut pg_sys::Node) -> Option<NotIn> {
    unsafe {
        let negation = node_as::<pg_sys::BoolExpr>(condition, NodeTag::T_BoolExpr)?;
        if negation.boolop != pg_sys::BoolExprType::NOT_EXPR {
            return None;
        }
        let argument = elements::<pg_sys::Node>(negation.args).next()?;
        let link = node_as::<pg_sys::SubLink>(argument, NodeTag::T_SubLink)?;
        if link.subLinkType != pg_sys::SubLinkType::ANY_SUBLINK {
            return None;
        }
        node_as::<pg_sys::OpExpr>(link.testexpr, NodeTag::T_OpExpr)?;
        let equality = link.testexpr.cast::<pg_sys::OpExpr>();
        let operands: Vec<_> = elements::<pg_sys::Node>((*equality).args).collect();
        let [scalar, parameter] = operands.as_slice() else { return None };
        let subquery: *mut pg_sys::Query = link.subselect.cast();
        let is_plain = pg_sys::op_mergejoinable((*equality).opno, pg_sys::exprType(*scalar))
            && is_link_parameter(*parameter)
            && !contains(*scalar, &|node| tag_of(node) == NodeTag::T_SubLink)
            && !pg_sys::contain_volatile_functions(*scalar)
            // Correlated ones stay: core converts only subqueries whose inside does not look out.
            && !pg_sys::contain_vars_of_level(subquery.cast(), 1);
        is_plain.then_some(NotIn { equality, scalar: *scalar, subquery })
    }
}

/// The subquery's column in a test expression, perhaps cast.
unsafe fn is_link_parameter(node: *mut pg_sys::Node) -> bool {
    unsafe {
        contains(node, &|part| {
            node_as::<pg_sys::Param>(part, NodeTag::T_Param)
                .is_some_and(|parameter| parameter.paramkind == pg_sys::ParamKind::PARAM_SUBLINK)
        }) && matches!(tag_of(node), NodeTag::T_Param | NodeTag::T_RelabelType)
    }
}

unsafe fn not_exists(query: *mut pg_sys::Query, membership: &NotIn) -> *mut pg_sys::Node {
    unsafe {
        let target = elements::<pg_sys::TargetEntry>((*membership.subquery).targetList).next();
        let never_null = target.is_some_and(|target| {
            is_not_null(query, membership.scalar) && is_not_null(membership.subquery, (*target).expr.cast())
        });
        let exists = make_node::<pg_sys::Query>(NodeTag::T_Query);
        (*exists).commandType = pg_sys::CmdType::CMD_SELECT;
        (*exists).canSetTag = true;
        (*exists).jointree = make_node(NodeTag::T_FromExpr);
        let one = pg_sys::makeConst(
            pg_sys::INT4OID,
            -1,
            pg_sys::InvalidOid,
            4,
            pg_sys::Datum::from(1),
            false,
            true,
        );
        let entry = pg_sys::makeTargetEntry(one.cast(), 1, c"one".as_ptr().cast_mut(), false);
        (*exists).targetList = list_of([entry]);
        pg_sys::IncrementVarSublevelsUp(membership.subquery.cast(), 1, 1);
        append_subquery(exists, membership.subquery, &[c"value"]);
        let test = membership.equality;
        pg_sys::IncrementVarSublevelsUp(membership.scalar, 1, 0);
        if let Some(target) = target {
            let var = pg_sys::makeVarFromTargetEntry(1, target);
            (*var).varno = 1 as _;
            replace_parameter(test, var.cast());
        }
        let test: *mut pg_sys::Node = if never_null {
            test.cast()
        } else {
            let not_false = make_node::<pg_sys::BooleanTest>(NodeTag::T_BooleanTest);
            (*not_false).arg = test.cast();
            (*not_false).booltesttype = pg_sys::BoolTestType::IS_NOT_FALSE;
            (*not_false).location = -1;
            not_false.cast()
        };
        (*(*exists).jointree).quals = test;
        let link = make_node::<pg_sys::SubLink>(NodeTag::T_SubLink);
        (*link).subLinkType = pg_sys::SubLinkType::EXISTS_SUBLINK;
        (*link).subselect = exists.cast();
        (*link).location = -1;
        pg_sys::makeBoolExpr(pg_sys::BoolExprType::NOT_EXPR, list_of([link]), -1).cast()
    }
}

/// Puts a Var in the place of the subquery's column, the second operand.
unsafe fn replace_parameter(test: *mut pg_sys::OpExpr, var: *mut pg_sys::Node) {
    unsafe {
        let cell = (*(*test).args).elements.add(1);
        let operand: *mut pg_sys::Node = (*cell).ptr_value.cast();
        if tag_of(operand) == NodeTag::T_RelabelType {
            (*operand.cast::<pg_sys::RelabelType>()).arg = var.cast();
        } else {
            (*cell).ptr_value = var.cast();
        }
    }
}

/// Whether an expression over the query's FROM is never NULL, as far as declarations prove it.
unsafe fn is_not_null(query: *mut pg_sys::Query, node: *mut pg_sys::Node) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        match tag_of(node) {
            NodeTag::T_Const => !(*node.cast::<pg_sys::Const>()).constisnull,
            NodeTag::T_RelabelType => is_not_null(query, (*node.cast::<pg_sys::RelabelType>()).arg.cast()),
            NodeTag::T_Var => var_is_not_null(query, &*node.cast()),
            _ => false,
        }
    }
}

unsafe fn var_is_not_null(query: *mut pg_sys::Query, var: &pg_sys::Var) -> bool {
    unsafe {
        let index = var.varno as usize;
        if var.varlevelsup != 0
            || var.varattno <= 0
            || index == 0
            || !(*query).groupingSets.is_null()
            || !(*query).setOperations.is_null()
            || nullable_relations(query).contains(&(index as i32))
        {
            return false;
        }
        let Some(entry) = elements::<pg_sys::RangeTblEntry>((*query).rtable).nth(index - 1) else {
            return false;
        };
        match (*entry).rtekind {
            pg_sys::RTEKind::RTE_RELATION => column_is_not_null((*entry).relid, var.varattno),
            pg_sys::RTEKind::RTE_SUBQUERY => {
                let subquery = (*entry).subquery;
                elements::<pg_sys::TargetEntry>((*subquery).targetList)
                    .find(|target| (**target).resno == var.varattno)
                    .is_some_and(|target| is_not_null(subquery, (*target).expr.cast()))
            }
            _ => false,
        }
    }
}

unsafe fn column_is_not_null(table_oid: pg_sys::Oid, attribute_number: i16) -> bool {
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::ATTNUM as i32;
        let tuple = pg_sys::SearchSysCache2(cache, table_oid.into(), pg_sys::Datum::from(attribute_number));
        if tuple.is_null() {
            return false;
        }
        let attribute = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_attribute>();
        let is_not_null = (*attribute).attnotnull;
        pg_sys::ReleaseSysCache(tuple);
        is_not_null
    }
}

/// The relations on the sides of outer joins that may be NULL.
unsafe fn nullable_relations(query: *mut pg_sys::Query) -> Vec<i32> {
    let mut found = Vec::new();
    unsafe {
        walk_expression((*query).jointree.cast(), &mut |node| {
            if let Some(join) = node_as::<pg_sys::JoinExpr>(node, NodeTag::T_JoinExpr) {
                let sides: &[*mut pg_sys::Node] = match join.jointype {
                    pg_sys::JoinType::JOIN_LEFT => &[join.rarg],
                    pg_sys::JoinType::JOIN_RIGHT => &[join.larg],
                    pg_sys::JoinType::JOIN_FULL => &[join.larg, join.rarg],
                    _ => &[],
                };
                for side in sides {
                    collect_relations(*side, &mut found);
                }
            }
            true
        });
    }
    found
}

unsafe fn collect_relations(node: *mut pg_sys::Node, found: &mut Vec<i32>) {
    unsafe {
        walk_expression(node, &mut |part| {
            if let Some(reference) = node_as::<pg_sys::RangeTblRef>(part, NodeTag::T_RangeTblRef) {
                found.push(reference.rtindex);
            }
            if let Some(join) = node_as::<pg_sys::JoinExpr>(part, NodeTag::T_JoinExpr) {
                found.push(join.rtindex);
            }
            true
        });
    }
}
