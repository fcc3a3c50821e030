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
    pub fn wanted_of(root: Root<'_>, relation: Rel<'_>, info: &RelationInfo) -> Option<Self> {
        let pathkeys = root.query_pathkeys();
        let is_top = pg_sys::bms_equal(relation.relids(), compat::all_relations(root));
        // Below the top, order is of use to joins of PostgreSQL's own only.
        if pathkeys.is_null() || !may_push(root) || !(is_top || has_others(root)) || is_of_minimum(root) {
            return None;
        }
        // Where rows are dropped above, by a policy or a join, a key that fails for one of them would be an error, or tell of it.
        let keys = sort_keys(relation, info, pathkeys)?;
        if !(is_top && info.is_complete()) && keys.iter().any(|key| could_fail(&key.expression, &|_| false)) {
            return None;
        }
        let limit = if is_top && info.is_complete() { known_limit(root, pathkeys) } else { None };
        Some(Self { pathkeys, limit })
    }

    /// The order in which the groups of a query are wanted by the stages above that no engine has.
    pub fn wanted_of_groups(root: Root<'_>, groups: Rel<'_>, info: &RelationInfo) -> Option<Self> {
        let (distinct, order) = (root.distinct_pathkeys(), root.sort_pathkeys());
        let count = |list: *mut pg_sys::List| list.iter().count();
        let pathkeys = if !root.window_pathkeys().is_null() {
            root.window_pathkeys()
        } else if root.parse().has_distinct_on() && count(distinct) > count(order) {
            distinct
        } else if root.parse().has_distinct_on() {
            order
        } else {
            return None;
        };
        sort_keys(groups, info, pathkeys)?;
        Some(Self { pathkeys, limit: None })
    }

    /// Startup and total cost, and rows.
    pub fn costs(&self, info: &RelationInfo, rows: f64) -> (f64, (f64, f64)) {
        let rows = self.limit.map_or(rows, |limit| rows.min(cost::clamp_rows(limit as f64)));
        let (startup, total) = cost::path_costs(info.cost + cost::sort(info.rows, rows), rows);
        // The first row comes when the last is sorted.
        (rows, (startup.max(total - cost::return_cost(rows)), total))
    }

    /// Makes the path one of this scan.
    pub fn mark(&self, path: ForeignPath<'_>) {
        path.path().pathkeys = self.pathkeys;
        if let Some(limit) = self.limit {
            (*path).fdw_private = list_of([limit_constant(limit)]);
        }
    }
}

/// The relation as the path of a scan orders it; `None` for a path without an order of this kind.
pub fn ordered(relation: Rel<'_>, path: ForeignPath<'_>, info: &RelationInfo) -> Option<RelationInfo> {
    if info.is_sorted || path.path().pathkeys.is_null() {
        return None;
    }
    let Some(keys) = sort_keys(relation, info, path.path().pathkeys) else {
        pgrx::error!("an order that was checked can't be planned");
    };
    let mut plan = info.relation().clone();
    if !keys.is_empty() {
        plan = Relation::new(Operator::Sort { input: plan, keys }, info.rows);
    }
    if let Some(limit) = path.fdw_private().iter().next().and_then(|node| limit_of(node)) {
        let count = Some(Expression::literal(Value::Int(limit), DataType::Int64));
        plan = Relation::new(Operator::Limit { input: plan, offset: None, count }, path.path().rows);
    }
    Some(info.clone().with_relation(plan))
}

/// Whether a query is the one by which PostgreSQL looks for a minimum or maximum at the end of an index. An engine would sort for it
/// what it reads once for the aggregate.
fn is_of_minimum(root: Root<'_>) -> bool {
    let targets: Vec<_> = root.parse().targets().iter().collect();
    match targets.as_slice() {
        [target] => {
            let name = target.resname();
            !root.parent_root().is_null() && !name.is_null() && text_of(name) == "agg_target"
        }
        _ => false,
    }
}

/// Whether the query has relations that no engine computes whole.
fn has_others(root: Root<'_>) -> bool {
    (1..root.simple_rel_array_size() as usize).any(|index| {
        let relation = *root.simple_rel_array().add(index);
        !relation.is_null()
            && relation.kind() == pg_sys::RelOptKind::RELOPT_BASEREL
            && RelationInfo::complete_of(relation).is_none()
    })
}

/// How the engine orders by pathkeys; `None` if it can't.
fn sort_keys(relation: Rel<'_>, info: &RelationInfo, pathkeys: *mut pg_sys::List) -> Option<Vec<SortKey>> {
    let mut keys = Vec::new();
    for pathkey in pathkeys.iter() {
        let class = &*pathkey.pk_eclass();
        // Families that initdb made; see `sort_descends`.
        if class.ec_has_volatile || u32::from(pathkey.pk_opfamily()) >= pg_sys::FirstNormalObjectId {
            return None;
        }
        let mut members = class.ec_members.iter();
        let expression = members.find_map(|member| member_of(relation, info, member))?;
        // A runtime value is the same in every row.
        if *expression.data_type() != DataType::Numeric {
            let (descending, nulls_first) = compat::direction(&*pathkey);
            keys.push(SortKey { expression, descending, nulls_first });
        }
    }
    Some(keys)
}

/// A member of an equivalence class as an expression of the relation's columns.
fn member_of(
    relation: Rel<'_>,
    info: &RelationInfo,
    member: *mut pg_sys::EquivalenceMember,
) -> Option<Expression> {
    let member = &*member;
    let is_upper = relation.kind() == pg_sys::RelOptKind::RELOPT_UPPER_REL;
    let is_own = is_upper
        || (!member.em_relids.is_null() && pg_sys::bms_is_subset(member.em_relids, relation.relids()));
    if member.em_is_const || !is_own {
        return None;
    }
    let node: Node<'_> = member.em_expr.cast();
    check_order(node).ok()?;
    check_equality(node).ok()?;
    Lowering::new(info.scope()).lower(node).ok().map(|lowered| lowered.expression)
}

/// How many rows are read of the topmost relation of a query, if that is certain.
fn known_limit(root: Root<'_>, pathkeys: *mut pg_sys::List) -> Option<i64> {
    let parse = &*root.parse();
    let is_last = pathkeys == root.sort_pathkeys()
        && root.limit_tuples() > 0.0
        && parse.limitOption != pg_sys::LimitOption::LIMIT_OPTION_WITH_TIES
        && !parse.hasTargetSRFs;
    if !is_last {
        return None;
    }
    let offset = if parse.limitOffset.is_null() { 0 } else { limit_of(parse.limitOffset)? };
    limit_of(parse.limitCount)?.checked_add(offset).filter(|limit| *limit > 0)
}

/// The value of a bigint that is written.
fn limit_of(node: Node<'_>) -> Option<i64> {
    let constant = node.downcast::<pg_sys::Const>()?;
    let is_number = constant.consttype == pg_sys::INT8OID && !constant.constisnull;
    is_number.then(|| constant.constvalue.value() as i64)
}

fn limit_constant(limit: i64) -> *mut pg_sys::Const {
    let (length, datum) = (size_of::<i64>() as i32, pg_sys::Datum::from(limit));
    pg_sys::makeConst(pg_sys::INT8OID, -1, pg_sys::InvalidOid, length, datum, false, true)
}
