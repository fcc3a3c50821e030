//! Scans in an order that something above asks for: a merge join, a window, DISTINCT ON, grouping by sorting.
//!
//! ```text
//! WindowAgg              WindowAgg
//!   Sort            ─►     Foreign Scan  (Sort)
//!     Foreign Scan
//! ```
//!
//! ORDER BY above a whole query has a stage of its own (`upper.rs`). These paths stand beside the unordered ones, and
//! PostgreSQL takes what costs less.
//!
//! Invariants: a path has pathkeys only if the engine orders by each of them as PostgreSQL would. A key that could fail is
//! computed for no row that is dropped above the scan. A path with a limit is only of
//! the topmost relation of a query whose LIMIT is known and which drops no row above.

use pgrx::{pg_sys, pg_sys::NodeTag};
use pystachio_plan::{DataType, Expression, Operator, Relation, SortKey, Value, could_fail};

use super::{
    cost,
    join::may_push,
    lowering::{Lowering, check_equality, check_order},
    nodes::{elements, list_of, node_as, text_of},
    relation_info::RelationInfo,
};
use crate::pg::compat;

/// A scan in an order, and with a limit if only the first rows are read.
pub struct SortedScan {
    pathkeys: *mut pg_sys::List,
    limit: Option<i64>,
}

impl SortedScan {
    /// The order in which rows of a base relation or a join are wanted above, if the engine can give it.
    pub unsafe fn wanted_of(
        root: *mut pg_sys::PlannerInfo,
        relation: *mut pg_sys::RelOptInfo,
        info: &RelationInfo,
    ) -> Option<Self> {
        unsafe {
            let pathkeys = (*root).query_pathkeys;
            let is_top = pg_sys::bms_equal((*relation).relids, compat::all_relations(root));
            // Below the top, order is of use to joins of PostgreSQL's own only.
            if pathkeys.is_null() || !may_push(root) || !(is_top || has_others(root)) || is_of_minimum(root) {
                return None;
            }
            // Where rows are dropped above, by a policy or a join, a key that fails for one of them would be an error, or tell of it.
            let keys = sort_keys(relation, info, pathkeys)?;
            if !(is_top && info.is_complete())
                && keys.iter().any(|key| could_fail(&key.expression, &|_| false))
            {
                return None;
            }
            let limit = if is_top && info.is_complete() { known_limit(root, pathkeys) } else { None };
            Some(Self { pathkeys, limit })
        }
    }

    /// The order in which the groups of a query are wanted by the stages above that no engine has.
    pub unsafe fn wanted_of_groups(
        root: *mut pg_sys::PlannerInfo,
        groups: *mut pg_sys::RelOptInfo,
        info: &RelationInfo,
    ) -> Option<Self> {
        unsafe {
            let (distinct, order) = ((*root).distinct_pathkeys, (*root).sort_pathkeys);
            let count = |list: *mut pg_sys::List| elements::<pg_sys::PathKey>(list).count();
            let pathkeys = if !(*root).window_pathkeys.is_null() {
                (*root).window_pathkeys
            } else if (*(*root).parse).hasDistinctOn && count(distinct) > count(order) {
                distinct
            } else if (*(*root).parse).hasDistinctOn {
                order
            } else {
                return None;
            };
            sort_keys(groups, info, pathkeys)?;
            Some(Self { pathkeys, limit: None })
        }
    }

    /// Startup and total cost, and rows.
    pub fn costs(&self, info: &RelationInfo, rows: f64) -> (f64, (f64, f64)) {
        let rows = self.limit.map_or(rows, |limit| rows.min(cost::clamp_rows(limit as f64)));
        let (startup, total) = cost::path_costs(info.cost + cost::sort(info.rows, rows), rows);
        // The first row comes when the last is sorted.
        (rows, (startup.max(total - cost::return_cost(rows)), total))
    }

    /// Makes the path one of this scan.
    pub unsafe fn mark(&self, path: *mut pg_sys::ForeignPath) {
        unsafe {
            (*path).path.pathkeys = self.pathkeys;
            if let Some(limit) = self.limit {
                (*path).fdw_private = list_of([limit_constant(limit)]);
            }
        }
    }
}

/// The relation as the path of a scan orders it; `None` for a path without an order of this kind.
pub unsafe fn ordered(
    relation: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::ForeignPath,
    info: &RelationInfo,
) -> Option<RelationInfo> {
    unsafe {
        if info.is_sorted || (*path).path.pathkeys.is_null() {
            return None;
        }
        let Some(keys) = sort_keys(relation, info, (*path).path.pathkeys) else {
            pgrx::error!("an order that was checked can't be planned");
        };
        let mut plan = info.relation().clone();
        if !keys.is_empty() {
            plan = Relation::new(Operator::Sort { input: plan, keys }, info.rows);
        }
        if let Some(limit) =
            elements::<pg_sys::Node>((*path).fdw_private).next().and_then(|node| limit_of(node))
        {
            let count = Some(Expression::literal(Value::Int(limit), DataType::Int64));
            plan = Relation::new(Operator::Limit { input: plan, offset: None, count }, (*path).path.rows);
        }
        Some(info.clone().with_relation(plan))
    }
}

/// Whether a query is the one by which PostgreSQL looks for a minimum or maximum at the end of an index. An engine would sort for it
/// what it reads once for the aggregate.
unsafe fn is_of_minimum(root: *mut pg_sys::PlannerInfo) -> bool {
    unsafe {
        let targets: Vec<_> = elements::<pg_sys::TargetEntry>((*(*root).parse).targetList).collect();
        match targets.as_slice() {
            [target] => {
                let name = (**target).resname;
                !(*root).parent_root.is_null() && !name.is_null() && text_of(name) == "agg_target"
            }
            _ => false,
        }
    }
}

/// Whether the query has relations that no engine computes whole.
unsafe fn has_others(root: *mut pg_sys::PlannerInfo) -> bool {
    unsafe {
        (1..(*root).simple_rel_array_size as usize).any(|index| {
            let relation = *(*root).simple_rel_array.add(index);
            !relation.is_null()
                && (*relation).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL
                && RelationInfo::complete_of(relation).is_none()
        })
    }
}

/// How the engine orders by pathkeys; `None` if it can't.
unsafe fn sort_keys(
    relation: *mut pg_sys::RelOptInfo,
    info: &RelationInfo,
    pathkeys: *mut pg_sys::List,
) -> Option<Vec<SortKey>> {
    let mut keys = Vec::new();
    for pathkey in unsafe { elements::<pg_sys::PathKey>(pathkeys) } {
        unsafe {
            let class = &*(*pathkey).pk_eclass;
            // Families that initdb made; see `sort_descends`.
            if class.ec_has_volatile || u32::from((*pathkey).pk_opfamily) >= pg_sys::FirstNormalObjectId {
                return None;
            }
            let mut members = elements::<pg_sys::EquivalenceMember>(class.ec_members);
            let expression = members.find_map(|member| member_of(relation, info, member))?;
            // A runtime value is the same in every row.
            if *expression.data_type() != DataType::Numeric {
                let (descending, nulls_first) = compat::direction(&*pathkey);
                keys.push(SortKey { expression, descending, nulls_first });
            }
        }
    }
    Some(keys)
}

/// A member of an equivalence class as an expression of the relation's columns.
unsafe fn member_of(
    relation: *mut pg_sys::RelOptInfo,
    info: &RelationInfo,
    member: *mut pg_sys::EquivalenceMember,
) -> Option<Expression> {
    unsafe {
        let member = &*member;
        let is_upper = (*relation).reloptkind == pg_sys::RelOptKind::RELOPT_UPPER_REL;
        let is_own = is_upper
            || (!member.em_relids.is_null() && pg_sys::bms_is_subset(member.em_relids, (*relation).relids));
        if member.em_is_const || !is_own {
            return None;
        }
        let node: *mut pg_sys::Node = member.em_expr.cast();
        check_order(node).ok()?;
        check_equality(node).ok()?;
        Lowering::new(info.scope()).lower(node).ok().map(|lowered| lowered.expression)
    }
}

/// How many rows are read of the topmost relation of a query, if that is certain.
unsafe fn known_limit(root: *mut pg_sys::PlannerInfo, pathkeys: *mut pg_sys::List) -> Option<i64> {
    unsafe {
        let parse = &*(*root).parse;
        let is_last = pathkeys == (*root).sort_pathkeys
            && (*root).limit_tuples > 0.0
            && parse.limitOption != pg_sys::LimitOption::LIMIT_OPTION_WITH_TIES
            && !parse.hasTargetSRFs;
        if !is_last {
            return None;
        }
        let offset = if parse.limitOffset.is_null() { 0 } else { limit_of(parse.limitOffset)? };
        limit_of(parse.limitCount)?.checked_add(offset).filter(|limit| *limit > 0)
    }
}

/// The value of a bigint that is written.
unsafe fn limit_of(node: *mut pg_sys::Node) -> Option<i64> {
    let constant = unsafe { node_as::<pg_sys::Const>(node, NodeTag::T_Const) }?;
    let is_number = constant.consttype == pg_sys::INT8OID && !constant.constisnull;
    is_number.then(|| constant.constvalue.value() as i64)
}

unsafe fn limit_constant(limit: i64) -> *mut pg_sys::Const {
    let (length, datum) = (size_of::<i64>() as i32, pg_sys::Datum::from(limit));
    unsafe { pg_sys::makeConst(pg_sys::INT8OID, -1, pg_sys::InvalidOid, length, datum, false, true) }
}
