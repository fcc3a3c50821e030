//! Scans in the order that a node above needs: a merge join, a window, DISTINCT ON, grouping by
//! sorting.
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

use pgrx::pg_sys;
use pystachio_plan::{DataType, Expression, Operator, Relation, SortKey, Value, could_fail};

use super::{
    cost,
    join::may_push,
    lowering::{Lowering, check_equality, order_key},
    planning::with_planning,
    relation_info::RelationInfo,
};
use crate::pg::tree::{ClassMember, ForeignPath, List, Node, Path, Rel, Root};

/// A scan in an order, and with a limit if only the first rows are read.
pub struct SortedScan<'p> {
    pathkeys: List<'p, pg_sys::PathKey>,
    limit: Option<i64>,
}

impl<'p> SortedScan<'p> {
    /// The orders in which rows of a base relation or a join are wanted above, as far as the engine can give them.
    pub fn wanted_of(root: Root<'p>, relation: Rel<'p>, info: &RelationInfo<'p>) -> Vec<Self> {
        let of_query = Self::wanted_of_query(root, relation, info);
        let of_joins = Self::wanted_of_joins(root, relation, info);
        of_query.into_iter().chain(of_joins).collect()
    }

    /// The orders by one key in which a merge join of PostgreSQL's reads the rows.
    fn wanted_of_joins(root: Root<'p>, relation: Rel<'p>, info: &RelationInfo<'p>) -> Vec<Self> {
        if !may_push(root) || !has_others(root) {
            return Vec::new();
        }
        let is_given = |pathkeys: &List<'p, pg_sys::PathKey>| {
            let keys = sort_keys(relation, info, *pathkeys);
            keys.is_some_and(|keys| !keys.iter().any(|key| could_fail(&key.expression, &|_| false)))
        };
        let orders = root.merge_orders(relation).into_iter().map(|pathkey| List::of([pathkey]));
        orders.filter(is_given).map(|pathkeys| Self { pathkeys, limit: None }).collect()
    }

    fn wanted_of_query(root: Root<'p>, relation: Rel<'p>, info: &RelationInfo<'p>) -> Option<Self> {
        let pathkeys = root.query_pathkeys();
        let is_top = relation.relids() == root.all_relids();
        // Below the top, order is of use to joins of PostgreSQL's own only.
        if pathkeys.is_nil() || !may_push(root) || !(is_top || has_others(root)) || is_of_minimum(root) {
            return None;
        }
        let is_whole = is_top && info.is_complete();
        // A join search comes to the top by many ways, which all give the same columns.
        let is_given =
            with_planning(|planning| planning.is_ordered(root)).filter(|_| is_whole).unwrap_or_else(|| {
                let keys = sort_keys(relation, info, pathkeys);
                // Where rows are dropped above, by a policy or a join, a key that fails for one of them would be an error, or tell of it.
                let fails = |keys: &[SortKey]| keys.iter().any(|key| could_fail(&key.expression, &|_| false));
                let is_given = keys.is_some_and(|keys| is_whole || !fails(&keys));
                if is_whole {
                    with_planning(|planning| planning.note_ordered(root, is_given));
                }
                is_given
            });
        if !is_given {
            return None;
        }
        let limit = if is_whole { known_limit(root, pathkeys) } else { None };
        Some(Self { pathkeys, limit })
    }

    /// The order in which the groups of a query are wanted by the stages above that no engine has.
    pub fn wanted_of_groups(root: Root<'p>, groups: Rel<'p>, info: &RelationInfo<'p>) -> Option<Self> {
        let (distinct, order) = (root.distinct_pathkeys(), root.sort_pathkeys());
        let pathkeys = if !root.window_pathkeys().is_nil() {
            root.window_pathkeys()
        } else if root.parse().has_distinct_on() && distinct.len() > order.len() {
            distinct
        } else if root.parse().has_distinct_on() {
            order
        } else {
            return None;
        };
        let keys = sort_keys(groups, info, pathkeys)?;
        if !info.is_complete() && keys.iter().any(|key| could_fail(&key.expression, &|_| false)) {
            return None;
        }
        Some(Self { pathkeys, limit: None })
    }

    /// Rows, and startup and total cost, for a relation of so many rows.
    pub fn costs(
        &self,
        root: Root<'p>,
        relation: Rel<'p>,
        info: &RelationInfo<'p>,
        rows: f64,
    ) -> (f64, (f64, f64)) {
        let limited = |rows: f64| self.limit.map_or(rows, |limit| rows.min(cost::clamp_rows(limit as f64)));
        let returned = limited(info.rows);
        let (startup, total) = cost::path_costs(info.cost + cost::sort(info.rows, returned), returned);
        // The first row comes when the last is sorted.
        let costs = (startup.max(total - cost::return_cost(returned)), total);
        (limited(rows), info.path_costs(root, relation, costs))
    }

    /// Makes the path one of this scan, of so many rows.
    pub fn marked(&self, path: ForeignPath<'p>, rows: f64) -> Path<'p> {
        if let Some(limit) = self.limit {
            path.set_private(List::of([path.memory().bigint(limit).node()]));
        }
        let path = path.path();
        path.set_rows(rows);
        path.set_pathkeys(self.pathkeys);
        path
    }
}

/// The relation as the path of a scan orders it; `None` for a path without an order of this kind.
pub fn ordered<'p>(
    relation: Rel<'p>,
    path: ForeignPath<'p>,
    info: &RelationInfo<'p>,
) -> Option<RelationInfo<'p>> {
    let pathkeys = path.path().pathkeys();
    if info.is_sorted || pathkeys.is_nil() {
        return None;
    }
    let Some(keys) = sort_keys(relation, info, pathkeys) else {
        pgrx::error!("an order that was checked can't be planned");
    };
    let mut plan = info.relation().clone();
    if !keys.is_empty() {
        plan = Relation::new(Operator::Sort { input: plan, keys }, info.rows);
    }
    if let Some(limit) = path.private().first().and_then(limit_of) {
        let count = Some(Expression::literal(Value::Int(limit), DataType::Int64));
        plan = Relation::new(Operator::Limit { input: plan, offset: None, count }, path.path().rows());
    }
    Some(info.clone().with_relation(plan))
}

/// Whether a query is the one by which PostgreSQL looks for a minimum or maximum at the end of an index. An engine would sort for it
/// what it reads once for the aggregate.
fn is_of_minimum(root: Root<'_>) -> bool {
    let targets = root.parse().targets();
    targets.len() == 1
        && root.parent_root().is_some()
        && targets.first().is_some_and(|target| target.name() == "agg_target")
}

/// Whether the query has relations that no engine computes whole.
fn has_others(root: Root<'_>) -> bool {
    root.relations().any(|relation| {
        relation.kind() == pg_sys::RelOptKind::RELOPT_BASEREL && RelationInfo::complete_of(relation).is_none()
    })
}

/// How the engine orders by pathkeys; `None` if it can't.
fn sort_keys<'p>(
    relation: Rel<'p>,
    info: &RelationInfo<'p>,
    pathkeys: List<'p, pg_sys::PathKey>,
) -> Option<Vec<SortKey>> {
    let mut keys = Vec::new();
    for pathkey in pathkeys.iter() {
        let class = pathkey.class();
        // Families that initdb made; see `sort_descends`.
        if class.is_volatile() || u32::from(pathkey.family()) >= pg_sys::FirstNormalObjectId {
            return None;
        }
        let expression = class.members().iter().find_map(|member| member_of(relation, info, member))?;
        // A runtime value is the same in every row.
        if *expression.data_type() != DataType::Numeric {
            let (descending, nulls_first) = pathkey.direction();
            keys.push(SortKey { expression, descending, nulls_first });
        }
    }
    Some(keys)
}

/// The key by which an engine orders a member of an equivalence class, over the relation's columns.
fn member_of<'p>(relation: Rel<'p>, info: &RelationInfo<'p>, member: ClassMember<'p>) -> Option<Expression> {
    let is_upper = relation.kind() == pg_sys::RelOptKind::RELOPT_UPPER_REL;
    let is_own = is_upper || (!member.relids().is_empty() && member.relids().is_subset(relation.relids()));
    if member.is_constant() || !is_own {
        return None;
    }
    let node = member.expression();
    let order = order_key(node).ok()?;
    check_equality(node).ok()?;
    Lowering::new(info.scope()).lower(node).ok().map(|lowered| order.of(lowered.expression))
}

/// How many rows are read of the topmost relation of a query, if that is certain.
fn known_limit<'p>(root: Root<'p>, pathkeys: List<'p, pg_sys::PathKey>) -> Option<i64> {
    let parse = root.parse();
    let is_last = pathkeys == root.sort_pathkeys()
        && root.limit_tuples() > 0.0
        && parse.limit_option() != pg_sys::LimitOption::LIMIT_OPTION_WITH_TIES
        && !parse.has_sets_in_target();
    if !is_last {
        return None;
    }
    let offset = match parse.limit_offset() {
        Some(offset) => limit_of(offset)?,
        None => 0,
    };
    limit_of(parse.limit_count()?)?.checked_add(offset).filter(|limit| *limit > 0)
}

/// The value of a bigint that is written.
fn limit_of(node: Node<'_>) -> Option<i64> {
    let constant = node.downcast::<pg_sys::Const>()?;
    let is_number = constant.type_oid() == pg_sys::INT8OID && !constant.is_null();
    is_number.then(|| constant.value().value() as i64)
}
