//! Joins of relations that an engine computes with relations that stay in PostgreSQL, where the latter are small: the engine
//! returns only rows that have a key of the small side.
//!
//! ```text
//! Hash Join                      Keyed Join
//!   Foreign Scan f        ─►       Hash Join
//!   Hash                             Foreign Scan f  [f.k IN ($1)]
//!     Scan s                         Hash
//!                                      Join Keys
//!                                        Scan s
//! ```
//!
//! `Join Keys` reads the small side to its end before it gives the first row, and notes the keys. The scan asks for them when
//! it starts. If they are too many, or not known by then, it returns all its rows. So the filter changes how many rows come
//! and never the result of the join, whatever was expected of the small side, which is read once. `Keyed Join` tells the scan
//! when keys are out of date. The three share an executor parameter, which PostgreSQL's planner knows nothing of.
//!
//! Invariants: only rows that the join drops without a partner are filtered: those of either side of an inner join, and of
//! the side of other joins that is not preserved. The path competes with PostgreSQL's own by its cost.
//!
//! Deliberately absent: LATERAL, and statements that change or lock rows.

use pgrx::{pg_sys, pg_sys::NodeTag, prelude::*};
use pystachio_plan::{Expression, could_fail, narrow};

use super::{
    cost,
    join::may_push,
    lowering::Lowering,
    nodes::{elements, list_of, make_node, node_as, substitute, tag_of},
    planning::with_planning,
    relation_info::RelationInfo,
};
use crate::{
    execution::{JOIN_KEYS_SCAN, KEYED_JOIN_SCAN},
    pg::compat::{self, Shared},
    scan_private::{JoinKeys, KeyParameter},
    settings,
};

static KEYED_JOIN_PATH: Shared<pg_sys::CustomPathMethods> = Shared(pg_sys::CustomPathMethods {
    CustomName: c"Keyed Join".as_ptr(),
    PlanCustomPath: Some(plan_keyed_join),
    ReparameterizeCustomPathByChild: None,
});

static JOIN_KEYS_PATH: Shared<pg_sys::CustomPathMethods> = Shared(pg_sys::CustomPathMethods {
    CustomName: c"Join Keys".as_ptr(),
    PlanCustomPath: Some(plan_join_keys),
    ReparameterizeCustomPathByChild: None,
});

/// Offers a join with a filtered side for one pair of inputs. For set_join_pathlist_hook.
pub unsafe fn add_paths(
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) {
    unsafe {
        // What an engine joins whole needs no keys from PostgreSQL.
        let is_mixed = with_planning(|planning| planning.met_table()) && RelationInfo::of(joined).is_none();
        if settings::join_keys() == 0 || !is_mixed || !may_push(root) {
            return;
        }
        let pair = Pair { root, joined, outer, inner, join_type, extra };
        if compat::drops_unmatched_outer(join_type) {
            pair.add_path(outer, inner);
        }
        if compat::drops_unmatched_inner(join_type) {
            pair.add_path(inner, outer);
        }
    }
}

/// Two inputs of a join, as PostgreSQL's search offers them.
struct Pair {
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
}

/// An equality between the sides.
struct Key {
    clause: *mut pg_sys::RestrictInfo,
    /// `x = ANY (keys)` of the filtered side; the array is a parameter with the key's number below zero.
    membership: *mut pg_sys::Node,
    /// The small side's operand.
    operand: *mut pg_sys::Node,
}

impl Pair {
    /// Offers the join in which `filtered` is filtered by keys of `small`.
    unsafe fn add_path(&self, filtered: *mut pg_sys::RelOptInfo, small: *mut pg_sys::RelOptInfo) {
        unsafe {
            let small_path = (*small).cheapest_total_path;
            if small_path.is_null()
                || !(*small_path).param_info.is_null()
                || (*small_path).rows > f64::from(settings::join_keys())
                || !(*filtered).lateral_relids.is_null()
                || !has_ours(self.root, filtered)
            {
                return;
            }
            let clauses = self.hash_clauses();
            let keys = keys_of(&clauses, filtered);
            if keys.is_empty() {
                return;
            }
            let place = pg_sys::makeInteger(NO_PLACE);
            let keys_path = keys_path(small_path, place, &keys);
            let filter = Filter {
                root: self.root,
                place,
                share: self.matched_share(&keys, filtered, small),
                startup_cost: (*keys_path).total_cost,
            };
            let memberships = keys.iter().map(|key| key.membership).collect();
            let Some(filtered_path) = filter.path(filtered, memberships) else { return };
            let (outer_path, inner_path) = match filtered == self.outer {
                true => (filtered_path, keys_path),
                false => (keys_path, filtered_path),
            };
            let join = self.hash_join(outer_path, inner_path, list_of(clauses));
            let path = custom_path(join, &raw const KEYED_JOIN_PATH.0, list_of([place]));
            // What the small side costs is in the scan's costs too, and counts once.
            (*path).path.startup_cost -= filter.startup_cost;
            (*path).path.total_cost -= filter.startup_cost;
            pg_sys::add_path(self.joined, path.cast());
        }
    }

    /// The equalities by which PostgreSQL can join the two by hash: those that it would take itself.
    unsafe fn hash_clauses(&self) -> Vec<*mut pg_sys::RestrictInfo> {
        unsafe {
            let is_outer =
                !matches!(self.join_type, pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_SEMI);
            let (outer, inner) = ((*self.outer).relids, (*self.inner).relids);
            let joins = |clause: &*mut pg_sys::RestrictInfo| {
                let clause = &**clause;
                let is_above = is_outer
                    && (clause.is_pushed_down
                        || !pg_sys::bms_is_subset(clause.required_relids, (*self.joined).relids));
                let (left, right) = (clause.left_relids, clause.right_relids);
                let is_across = (pg_sys::bms_is_subset(left, outer) && pg_sys::bms_is_subset(right, inner))
                    || (pg_sys::bms_is_subset(left, inner) && pg_sys::bms_is_subset(right, outer));
                clause.can_join && !is_above && clause.hashjoinoperator != pg_sys::InvalidOid && is_across
            };
            elements::<pg_sys::RestrictInfo>((*self.extra).restrictlist).filter(joins).collect()
        }
    }

    /// Which part of the filtered side's rows has a partner.
    unsafe fn matched_share(
        &self,
        keys: &[Key],
        filtered: *mut pg_sys::RelOptInfo,
        small: *mut pg_sys::RelOptInfo,
    ) -> f64 {
        unsafe {
            let semi_join = make_node::<pg_sys::SpecialJoinInfo>(NodeTag::T_SpecialJoinInfo);
            (*semi_join).jointype = pg_sys::JoinType::JOIN_SEMI;
            (*semi_join).min_lefthand = (*filtered).relids;
            (*semi_join).min_righthand = (*small).relids;
            (*semi_join).syn_lefthand = (*filtered).relids;
            (*semi_join).syn_righthand = (*small).relids;
            // Bare clauses: a RestrictInfo would keep this selectivity as that of the join itself.
            let clauses = list_of(keys.iter().map(|key| (*key.clause).clause));
            pg_sys::clauselist_selectivity(self.root, clauses, 0, pg_sys::JoinType::JOIN_SEMI, semi_join)
        }
    }

    unsafe fn hash_join(
        &self,
        outer_path: *mut pg_sys::Path,
        inner_path: *mut pg_sys::Path,
        clauses: *mut pg_sys::List,
    ) -> *mut pg_sys::Path {
        unsafe {
            let mut workspace = pg_sys::JoinCostWorkspace::default();
            pg_sys::initial_cost_hashjoin(
                self.root,
                &raw mut workspace,
                self.join_type,
                clauses,
                outer_path,
                inner_path,
                self.extra,
                false,
            );
            let path = pg_sys::create_hashjoin_path(
                self.root,
                self.joined,
                self.join_type,
                &raw mut workspace,
                self.extra,
                outer_path,
                inner_path,
                false,
                (*self.extra).restrictlist,
                std::ptr::null_mut(),
                clauses,
            );
            path.cast()
        }
    }
}

/// Whether an engine computes a relation, or a partition of it.
unsafe fn has_ours(root: *mut pg_sys::PlannerInfo, relation: *mut pg_sys::RelOptInfo) -> bool {
    unsafe {
        RelationInfo::of(relation).is_some()
            || partitions(root, relation).into_iter().any(|(_, child)| has_ours(root, child))
    }
}

/// The entry of the range table that a relation is; `None` of a join.
unsafe fn entry_of<'a>(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
) -> Option<&'a pg_sys::RangeTblEntry> {
    unsafe {
        let index = (*relation).relid as usize;
        (index > 0).then(|| &**(*root).simple_rte_array.add(index))
    }
}

/// The members of a table with partitions or children, or of a UNION ALL.
unsafe fn partitions(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
) -> Vec<(*mut pg_sys::AppendRelInfo, *mut pg_sys::RelOptInfo)> {
    unsafe {
        pg_sys::check_stack_depth();
        if !entry_of(root, relation).is_some_and(|entry| entry.inh) {
            return Vec::new();
        }
        let members = elements::<pg_sys::AppendRelInfo>((*root).append_rel_list)
            .filter(|member| (**member).parent_relid == (*relation).relid)
            .map(|member| (member, *(*root).simple_rel_array.add((*member).child_relid as usize)));
        // Partitions that the planner has ruled out have no relation, or one without rows.
        members.filter(|(_, child)| !child.is_null() && !pg_sys::is_dummy_rel(*child)).collect()
    }
}

/// The keys of a join, as far as they can be written as a condition on the filtered side.
unsafe fn keys_of(clauses: &[*mut pg_sys::RestrictInfo], filtered: *mut pg_sys::RelOptInfo) -> Vec<Key> {
    let mut keys = Vec::new();
    for clause in clauses {
        let number = keys.len() as i32;
        keys.extend(unsafe { key_of(*clause, filtered, number) });
    }
    keys
}

unsafe fn key_of(
    clause: *mut pg_sys::RestrictInfo,
    filtered: *mut pg_sys::RelOptInfo,
    number: i32,
) -> Option<Key> {
    unsafe {
        let equality = node_as::<pg_sys::OpExpr>((*clause).clause.cast(), NodeTag::T_OpExpr)?;
        let operands: Vec<_> = elements::<pg_sys::Node>(equality.args).collect();
        let [left, right] = operands.as_slice() else { return None };
        let (tested, operand, operator) =
            match pg_sys::bms_is_subset((*clause).left_relids, (*filtered).relids) {
                true => (*left, *right, equality.opno),
                false => (*right, *left, pg_sys::get_commutator(equality.opno)),
            };
        let array_oid = pg_sys::get_array_type(pg_sys::getBaseType(pg_sys::exprType(operand)));
        if operator == pg_sys::InvalidOid || array_oid == pg_sys::InvalidOid {
            return None;
        }
        let array = make_node::<pg_sys::Param>(NodeTag::T_Param);
        (*array).paramkind = pg_sys::ParamKind::PARAM_EXEC;
        (*array).paramid = -1 - number;
        (*array).paramtype = array_oid;
        (*array).paramtypmod = -1;
        (*array).paramcollid = pg_sys::exprCollation(operand);
        (*array).location = -1;
        let membership = make_node::<pg_sys::ScalarArrayOpExpr>(NodeTag::T_ScalarArrayOpExpr);
        (*membership).opno = operator;
        (*membership).useOr = true;
        (*membership).inputcollid = equality.inputcollid;
        (*membership).args = list_of([tested, array.cast()]);
        (*membership).location = -1;
        Some(Key { clause, membership: membership.cast(), operand })
    }
}

/// The number of the key whose values a node of `key_of` stands for.
pub unsafe fn key_number(node: *mut pg_sys::Node) -> Option<u32> {
    unsafe {
        let array = node_as::<pg_sys::Param>(node, NodeTag::T_Param)?;
        let is_key = array.paramkind == pg_sys::ParamKind::PARAM_EXEC && array.paramid < 0;
        is_key.then(|| (-1 - array.paramid) as u32)
    }
}

/// Stands for an executor parameter that has no number yet: only the path that is taken gets one.
const NO_PLACE: i32 = -1;

/// What the parts of a keyed join share while paths are made.
struct Filter {
    root: *mut pg_sys::PlannerInfo,
    /// An Integer: the number of the executor parameter.
    place: *mut pg_sys::Integer,
    /// Which part of the rows passes.
    share: f64,
    /// What it costs until the keys are known. The scans' costs begin with it: a hash join of PostgreSQL's executor first
    /// reads the side that begins earlier.
    startup_cost: f64,
}

impl Filter {
    /// The path of a relation with a filter by keys; `None` if no filter can be written.
    unsafe fn path(
        &self,
        relation: *mut pg_sys::RelOptInfo,
        memberships: Vec<*mut pg_sys::Node>,
    ) -> Option<*mut pg_sys::Path> {
        unsafe {
            let entry = entry_of(self.root, relation);
            if !entry.is_some_and(|entry| entry.inh) {
                let info = RelationInfo::of(relation)?;
                return match entry {
                    Some(entry) if entry.rtekind == pg_sys::RTEKind::RTE_SUBQUERY => {
                        self.subquery_path(relation, &memberships)
                    }
                    _ => self.scan_path(relation, info, memberships),
                };
            }
            let members = partitions(self.root, relation);
            let mut is_filtered = false;
            let mut paths = Vec::new();
            for (member, child) in members {
                let of_child = |membership: &*mut pg_sys::Node| {
                    let mut member = member;
                    pg_sys::adjust_appendrel_attrs(self.root, *membership, 1, &raw mut member)
                };
                let filtered = self.path(child, memberships.iter().map(of_child).collect());
                is_filtered = is_filtered || filtered.is_some();
                paths.push(filtered.unwrap_or((*child).cheapest_total_path));
            }
            let can_append =
                is_filtered && paths.iter().all(|path| !path.is_null() && (**path).param_info.is_null());
            can_append.then(|| {
                let nothing = std::ptr::null_mut();
                let paths = list_of(paths);
                let path = pg_sys::create_append_path(
                    self.root,
                    relation,
                    paths,
                    nothing,
                    nothing,
                    std::ptr::null_mut(),
                    0,
                    false,
                    -1.0,
                );
                path.cast()
            })
        }
    }

    unsafe fn scan_path(
        &self,
        relation: *mut pg_sys::RelOptInfo,
        info: &RelationInfo,
        memberships: Vec<*mut pg_sys::Node>,
    ) -> Option<*mut pg_sys::Path> {
        unsafe {
            let private = self.private(info, memberships)?;
            let (rows, (startup, total)) = self.estimate(info);
            let path = match (*relation).relid {
                0 => compat::create_foreign_join_path(self.root, relation, startup, total),
                _ => compat::create_foreign_scan_path(self.root, relation, startup, total),
            };
            (*path).path.rows = rows;
            (*path).fdw_private = private;
            Some(path.cast())
        }
    }

    /// The path of a subquery whose whole plan is ours: its own last scan, filtered.
    unsafe fn subquery_path(
        &self,
        relation: *mut pg_sys::RelOptInfo,
        memberships: &[*mut pg_sys::Node],
    ) -> Option<*mut pg_sys::Path> {
        unsafe {
            let subroot = (*relation).subroot;
            let kind = pg_sys::UpperRelationKind::UPPERREL_FINAL;
            let last = pg_sys::fetch_upper_rel(subroot, kind, std::ptr::null_mut());
            let info = RelationInfo::complete_of(last)?;
            let target = (*subroot).upper_targets[kind as usize];
            let column_of = |node: *mut pg_sys::Node| {
                let var = node_as::<pg_sys::Var>(node, NodeTag::T_Var)?;
                let place = usize::try_from(i32::from(var.varattno) - 1).ok()?;
                let is_own = var.varno as u32 == (*relation).relid;
                is_own.then(|| elements::<pg_sys::Node>((*target).exprs).nth(place)).flatten()
            };
            let inside =
                memberships.iter().map(|membership| substitute(*membership, &mut |node| column_of(node)));
            let private = self.private(info, inside.collect())?;
            let (rows, costs) = self.estimate(info);
            let nothing = std::ptr::null_mut();
            let path = compat::create_foreign_upper_path(subroot, last, target, rows, costs, nothing);
            (*path).fdw_private = private;
            Some(compat::create_subquery_scan_path(self.root, relation, path.cast()))
        }
    }

    /// What the path of a filtered scan keeps; `None` if no membership can be a condition of its plan.
    unsafe fn private(
        &self,
        info: &RelationInfo,
        memberships: Vec<*mut pg_sys::Node>,
    ) -> Option<*mut pg_sys::List> {
        unsafe {
            let is_condition = |membership: &*mut pg_sys::Node| condition(info, *membership).is_some();
            let memberships: Vec<_> = memberships.into_iter().filter(is_condition).collect();
            if memberships.is_empty() {
                return None;
            }
            let memberships: *mut pg_sys::List = list_of(memberships);
            Some(list_of([self.place.cast::<pg_sys::Node>(), memberships.cast()]))
        }
    }

    /// The rows of a filtered scan, and its costs at the first and at the last.
    fn estimate(&self, info: &RelationInfo) -> (f64, (f64, f64)) {
        let rows = cost::clamp_rows(info.rows * self.share);
        let (startup, total) = cost::path_costs(info.cost + cost::EVALUATE_ROW_COST * info.rows, rows);
        (rows, (self.startup_cost + startup, self.startup_cost + total))
    }
}

/// The path of the small side, which notes its keys.
unsafe fn keys_path(
    small: *mut pg_sys::Path,
    place: *mut pg_sys::Integer,
    keys: &[Key],
) -> *mut pg_sys::Path {
    unsafe {
        let operands: *mut pg_sys::List = list_of(keys.iter().map(|key| key.operand));
        let private = list_of([place.cast::<pg_sys::Node>(), operands.cast()]);
        let path = custom_path(small, &raw const JOIN_KEYS_PATH.0, private);
        (*path).path.total_cost += (*small).rows * pg_sys::cpu_operator_cost * keys.len() as f64;
        // It gives its first row when it has read the last.
        (*path).path.startup_cost = (*path).path.total_cost;
        path.cast()
    }
}

/// A membership as a condition of a plan. It is tested for rows that other conditions drop, so it must not fail.
unsafe fn condition(info: &RelationInfo, membership: *mut pg_sys::Node) -> Option<Expression> {
    let lowered = unsafe { Lowering::new(info.scope()).lower_condition(membership) };
    lowered.ok().filter(|condition| !could_fail(condition, &|_| false))
}

/// A path that gives the rows of another.
unsafe fn custom_path(
    child: *mut pg_sys::Path,
    methods: *const pg_sys::CustomPathMethods,
    private: *mut pg_sys::List,
) -> *mut pg_sys::CustomPath {
    unsafe {
        let path = make_node::<pg_sys::CustomPath>(NodeTag::T_CustomPath);
        (*path).path.pathtype = NodeTag::T_CustomScan;
        (*path).path.parent = (*child).parent;
        (*path).path.pathtarget = (*child).pathtarget;
        (*path).path.rows = (*child).rows;
        (*path).path.startup_cost = (*child).startup_cost;
        (*path).path.total_cost = (*child).total_cost;
        compat::copy_disabled_nodes(&raw mut (*path).path, child);
        (*path).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        (*path).custom_paths = list_of([child]);
        (*path).custom_private = private;
        (*path).methods = methods;
        path
    }
}

/// The number of the executor parameter that a path's parts share.
unsafe fn place_of(root: *mut pg_sys::PlannerInfo, private: *mut pg_sys::List) -> i32 {
    unsafe {
        let Some(place) = elements::<pg_sys::Integer>(private).next() else {
            pgrx::error!("a path of a keyed join has lost its parameter");
        };
        if (*place).ival == NO_PLACE {
            (*place).ival = compat::assign_special_exec_param(root);
        }
        (*place).ival
    }
}

/// The filter of a scan's path.
pub struct ScanFilter {
    /// What the scan returns.
    pub info: RelationInfo,
    /// The number of the executor parameter.
    place: i32,
}

impl ScanFilter {
    /// The filter that a path has, if it has one.
    pub unsafe fn of(
        root: *mut pg_sys::PlannerInfo,
        path: *mut pg_sys::ForeignPath,
        info: &RelationInfo,
    ) -> Option<Self> {
        unsafe {
            let private = (*path).fdw_private;
            let memberships = elements::<pg_sys::List>(private).nth(1)?;
            let share = (*path).path.rows / info.rows.max(1.0);
            let mut info = info.clone();
            for membership in elements::<pg_sys::Node>(memberships) {
                if let Some(condition) = condition(&info, membership) {
                    let narrowed = narrow(info.relation(), &condition, share);
                    info = info.with_relation(narrowed);
                }
            }
            Some(Self { info, place: place_of(root, private) })
        }
    }

    /// What the scan's executor must know of the keys among its parameters.
    pub fn join_keys(&self, parameters: Vec<KeyParameter>) -> JoinKeys {
        JoinKeys { place: self.place, parameters }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_keyed_join(
    root: *mut pg_sys::PlannerInfo,
    _relation: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    target_list: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    unsafe {
        let place = place_of(root, (*path).custom_private);
        custom_scan(&raw const KEYED_JOIN_SCAN.0, target_list, children, place)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_join_keys(
    root: *mut pg_sys::PlannerInfo,
    _relation: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    target_list: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    unsafe {
        let private = (*path).custom_private;
        let plan = custom_scan(&raw const JOIN_KEYS_SCAN.0, target_list, children, place_of(root, private));
        let operands = elements::<pg_sys::List>(private).nth(1).unwrap_or(std::ptr::null_mut());
        (*plan.cast::<pg_sys::CustomScan>()).custom_exprs = pg_sys::copyObjectImpl(operands.cast()).cast();
        plan
    }
}

/// A node whose rows are those of its only child, which has applied all clauses.
unsafe fn custom_scan(
    methods: *const pg_sys::CustomScanMethods,
    target_list: *mut pg_sys::List,
    children: *mut pg_sys::List,
    place: i32,
) -> *mut pg_sys::Plan {
    unsafe {
        let scan = make_node::<pg_sys::CustomScan>(NodeTag::T_CustomScan);
        (*scan).scan.plan.targetlist = target_list;
        (*scan).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        (*scan).custom_plans = children;
        (*scan).custom_private = list_of([pg_sys::makeInteger(place)]);
        if let Some(child) = elements::<pg_sys::Plan>(children).next() {
            (*scan).custom_scan_tlist = pg_sys::copyObjectImpl((*child).targetlist.cast()).cast();
        }
        (*scan).methods = methods;
        scan.cast()
    }
}

/// Whether a path is one of a keyed join's own.
pub unsafe fn is_our_path(path: *mut pg_sys::CustomPath) -> bool {
    let methods = unsafe { (*path).methods };
    methods == &raw const KEYED_JOIN_PATH.0 || methods == &raw const JOIN_KEYS_PATH.0
}

/// Whether a plan node is one of a keyed join's own.
pub fn is_part(plan: crate::pg::tree::Plan<'_>) -> bool {
    unsafe {
        let plan = plan.pointer();
        if tag_of(plan.cast()) != NodeTag::T_CustomScan {
            return false;
        }
        let methods = (*plan.cast::<pg_sys::CustomScan>()).methods;
        methods == &raw const KEYED_JOIN_SCAN.0 || methods == &raw const JOIN_KEYS_SCAN.0
    }
}
