//! What declarations prove about NULL.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use crate::{
    pg::compat,
    planner::nodes::{elements, node_as, tag_of, walk_expression},
};

/// Whether an expression over the query's FROM is never NULL, as far as declarations prove it.
pub unsafe fn is_never_null(query: *mut pg_sys::Query, node: *mut pg_sys::Node) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        match tag_of(node) {
            NodeTag::T_Const => !(*node.cast::<pg_sys::Const>()).constisnull,
            NodeTag::T_RelabelType => is_never_null(query, (*node.cast::<pg_sys::RelabelType>()).arg.cast()),
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
                    .is_some_and(|target| is_never_null(subquery, (*target).expr.cast()))
            }
            _ => false,
        }
    }
}

/// Whether a column is declared NOT NULL.
pub unsafe fn column_is_not_null(table_oid: pg_sys::Oid, attribute_number: i16) -> bool {
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::ATTNUM as i32;
        let tuple = pg_sys::SearchSysCache2(cache, table_oid.into(), pg_sys::Datum::from(attribute_number));
        if tuple.is_null() {
            return false;
        }
        let attribute = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_attribute>();
        let is_not_null = compat::is_not_null(table_oid, &*attribute);
        pg_sys::ReleaseSysCache(tuple);
        is_not_null
    }
}

/// The relations on the sides of outer joins that may be NULL.
pub unsafe fn nullable_relations(query: *mut pg_sys::Query) -> Vec<i32> {
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

/// The relations and joins that a part of FROM consists of.
pub unsafe fn collect_relations(node: *mut pg_sys::Node, found: &mut Vec<i32>) {
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
