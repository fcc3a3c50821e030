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
pub fn add_paths(
    root: Root<'_>,
    joined: Rel<'_>,
    outer: Rel<'_>,
    inner: Rel<'_>,
    join_type: pg_sys::JoinType::Type,
    extra: JoinExtra<'_>,
) {
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

/// Two inputs of a join, as PostgreSQL's search offers them.
struct Pair {
    root: Root<'_>,
    joined: Rel<'_>,
    outer: Rel<'_>,
    inner: Rel<'_>,
    join_type: pg_sys::JoinType::Type,
    extra: JoinExtra<'_>,
}

/// An equality between the sides.
struct Key {
    clause: Clause<'_>,
    /// `x = ANY (keys)` of the filtered side; the array is a parameter with the key's number below zero.
    membership: Node<'_>,
    /// The small side's operand.
    operand: Node<'_>,
}

impl Pair {
    /// Offers the join in which `filtered` is filtered by keys of `small`.
    fn add_path(&self, filtered: Rel<'_>, small: Rel<'_>) {
        let small_path = small.cheapest_total_path();
        if small_path.is_null()
            || !small_path.param_info().is_null()
            || small_path.rows() > f64::from(settings::join_keys())
            || !filtered.lateral_relids().is_null()
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
            startup_cost: keys_path.total_cost(),
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
        path.path().startup_cost -= filter.startup_cost;
        path.path().total_cost -= filter.startup_cost;
        pg_sys::add_path(self.joined, path.cast());
    }

    /// The equalities by which PostgreSQL can join the two by hash: those that it would take itself.
    fn hash_clauses(&self) -> Vec<Clause<'_>> {
        let is_outer = !matches!(self.join_type, pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_SEMI);
        let (outer, inner) = (self.outer.relids(), self.inner.relids());
        let joins = |clause: &Clause<'_>| {
            let clause = &**clause;
            let is_above = is_outer
                && (clause.is_pushed_down
                    || !pg_sys::bms_is_subset(clause.required_relids, self.joined.relids()));
            let (left, right) = (clause.left_relids, clause.right_relids);
            let is_across = (pg_sys::bms_is_subset(left, outer) && pg_sys::bms_is_subset(right, inner))
                || (pg_sys::bms_is_subset(left, inner) && pg_sys::bms_is_subset(right, outer));
            clause.can_join && !is_above && clause.hashjoinoperator != pg_sys::InvalidOid && is_across
        };
        self.extra.clauses().iter().filter(joins).collect()
    }

    /// Which part of the filtered side's rows has a partner.
    fn matched_share(&self, keys: &[Key], filtered: Rel<'_>, small: Rel<'_>) -> f64 {
        let semi_join = make_node::<pg_sys::SpecialJoinInfo>(NodeTag::T_SpecialJoinInfo);
        (*semi_join).jointype = pg_sys::JoinType::JOIN_SEMI;
        (*semi_join).min_lefthand = filtered.relids();
        (*semi_join).min_righthand = small.relids();
        (*semi_join).syn_lefthand = filtered.relids();
        (*semi_join).syn_righthand = small.relids();
        // Bare clauses: a RestrictInfo would keep this selectivity as that of the join itself.
        let clauses = list_of(keys.iter().map(|key| key.clause.expression()));
        pg_sys::clauselist_selectivity(self.root, clauses, 0, pg_sys::JoinType::JOIN_SEMI, semi_join)
    }

    fn hash_join(&self, outer_path: Path<'_>, inner_path: Path<'_>, clauses: *mut pg_sys::List) -> Path<'_> {
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
            self.extra.clauses(),
            std::ptr::null_mut(),
            clauses,
        );
        path.cast()
    }
}

/// Whether an engine computes a relation, or a partition of it.
fn has_ours(root: Root<'_>, relation: Rel<'_>) -> bool {
    RelationInfo::of(relation).is_some()
        || partitions(root, relation).into_iter().any(|(_, child)| has_ours(root, child))
}

/// The entry of the range table that a relation is; `None` of a join.
fn entry_of<'a>(root: Root<'_>, relation: Rel<'_>) -> Option<&'a pg_sys::RangeTblEntry> {
    let index = relation.index() as usize;
    (index > 0).then(|| &**root.simple_rte_array().add(index))
}

/// The members of a table with partitions or children, or of a UNION ALL.
fn partitions(root: Root<'_>, relation: Rel<'_>) -> Vec<(Member<'_>, Rel<'_>)> {
    check_stack_depth();
    if !entry_of(root, relation).is_some_and(|entry| entry.inh) {
        return Vec::new();
    }
    let members = root
        .append_rel_list()
        .iter()
        .filter(|member| member.parent_index() == relation.index())
        .map(|member| (member, *root.simple_rel_array().add(member.child_index() as usize)));
    // Partitions that the planner has ruled out have no relation, or one without rows.
    members.filter(|(_, child)| !child.is_null() && !child.is_dummy()).collect()
}

/// The keys of a join, as far as they can be written as a condition on the filtered side.
fn keys_of(clauses: &[Clause<'_>], filtered: Rel<'_>) -> Vec<Key> {
    let mut keys = Vec::new();
    for clause in clauses {
        let number = keys.len() as i32;
        keys.extend(key_of(*clause, filtered, number));
    }
    keys
}

fn key_of(clause: Clause<'_>, filtered: Rel<'_>, number: i32) -> Option<Key> {
    let equality = node_as::<pg_sys::OpExpr>(clause.expression().cast(), NodeTag::T_OpExpr)?;
    let operands: Vec<_> = equality.args.iter().collect();
    let [left, right] = operands.as_slice() else { return None };
    let (tested, operand, operator) = match pg_sys::bms_is_subset(clause.left_relids(), filtered.relids()) {
        true => (*left, *right, equality.opno),
        false => (*right, *left, pg_sys::get_commutator(equality.opno)),
    };
    let array_oid = pg_sys::get_array_type(pg_sys::getBaseType(operand.type_oid()));
    if operator == pg_sys::InvalidOid || array_oid == pg_sys::InvalidOid {
        return None;
    }
    let array = make_node::<pg_sys::Param>(NodeTag::T_Param);
    (*array).paramkind = pg_sys::ParamKind::PARAM_EXEC;
    (*array).paramid = -1 - number;
    (*array).paramtype = array_oid;
    (*array).paramtypmod = -1;
    (*array).paramcollid = operand.collation();
    (*array).location = -1;
    let membership = make_node::<pg_sys::ScalarArrayOpExpr>(NodeTag::T_ScalarArrayOpExpr);
    (*membership).opno = operator;
    (*membership).useOr = true;
    (*membership).inputcollid = equality.inputcollid;
    (*membership).args = list_of([tested, array.cast()]);
    (*membership).location = -1;
    Some(Key { clause, membership: membership.cast(), operand })
}

/// The number of the key whose values a node of `key_of` stands for.
pub fn key_number(node: Node<'_>) -> Option<u32> {
    let array = node.downcast::<pg_sys::Param>()?;
    let is_key = array.paramkind == pg_sys::ParamKind::PARAM_EXEC && array.paramid < 0;
    is_key.then(|| (-1 - array.paramid) as u32)
}

/// Stands for an executor parameter that has no number yet: only the path that is taken gets one.
const NO_PLACE: i32 = -1;

/// What the parts of a keyed join share while paths are made.
struct Filter {
    root: Root<'_>,
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
    fn path(&self, relation: Rel<'_>, memberships: Vec<Node<'_>>) -> Option<Path<'_>> {
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
            let of_child = |membership: &Node<'_>| {
                let mut member = member;
                pg_sys::adjust_appendrel_attrs(self.root, *membership, 1, &raw mut member)
            };
            let filtered = self.path(child, memberships.iter().map(of_child).collect());
            is_filtered = is_filtered || filtered.is_some();
            paths.push(filtered.unwrap_or(child.cheapest_total_path()));
        }
        let can_append =
            is_filtered && paths.iter().all(|path| !path.is_null() && path.param_info().is_null());
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

    fn scan_path(
        &self,
        relation: Rel<'_>,
        info: &RelationInfo,
        memberships: Vec<Node<'_>>,
    ) -> Option<Path<'_>> {
        let private = self.private(info, memberships)?;
        let (rows, (startup, total)) = self.estimate(info);
        let path = match relation.index() {
            0 => compat::create_foreign_join_path(self.root, relation, startup, total),
            _ => compat::create_foreign_scan_path(self.root, relation, startup, total),
        };
        path.path().rows = rows;
        (*path).fdw_private = private;
        Some(path.cast())
    }

    /// The path of a subquery whose whole plan is ours: its own last scan, filtered.
    fn subquery_path(&self, relation: Rel<'_>, memberships: &[Node<'_>]) -> Option<Path<'_>> {
        let subroot = relation.subroot();
        let kind = pg_sys::UpperRelationKind::UPPERREL_FINAL;
        let last = pg_sys::fetch_upper_rel(subroot, kind, std::ptr::null_mut());
        let info = RelationInfo::complete_of(last)?;
        let target = subroot.upper_targets()[kind as usize];
        let column_of = |node: Node<'_>| {
            let var = node.downcast::<pg_sys::Var>()?;
            let place = usize::try_from(i32::from(var.varattno) - 1).ok()?;
            let is_own = var.varno as u32 == relation.index();
            is_own.then(|| target.expressions().iter().nth(place)).flatten()
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

    /// What the path of a filtered scan keeps; `None` if no membership can be a condition of its plan.
    fn private(&self, info: &RelationInfo, memberships: Vec<Node<'_>>) -> Option<*mut pg_sys::List> {
        let is_condition = |membership: &Node<'_>| condition(info, *membership).is_some();
        let memberships: Vec<_> = memberships.into_iter().filter(is_condition).collect();
        if memberships.is_empty() {
            return None;
        }
        let memberships: *mut pg_sys::List = list_of(memberships);
        Some(list_of([self.place.cast::<pg_sys::Node>(), memberships.cast()]))
    }

    /// The rows of a filtered scan, and its costs at the first and at the last.
    fn estimate(&self, info: &RelationInfo) -> (f64, (f64, f64)) {
        let rows = cost::clamp_rows(info.rows * self.share);
        let (startup, total) = cost::path_costs(info.cost + cost::EVALUATE_ROW_COST * info.rows, rows);
        (rows, (self.startup_cost + startup, self.startup_cost + total))
    }
}

/// The path of the small side, which notes its keys.
fn keys_path(small: Path<'_>, place: *mut pg_sys::Integer, keys: &[Key]) -> Path<'_> {
    let operands: *mut pg_sys::List = list_of(keys.iter().map(|key| key.operand));
    let private = list_of([place.cast::<pg_sys::Node>(), operands.cast()]);
    let path = custom_path(small, &raw const JOIN_KEYS_PATH.0, private);
    path.path().total_cost += small.rows() * pg_sys::cpu_operator_cost * keys.len() as f64;
    // It gives its first row when it has read the last.
    path.path().startup_cost = path.path().total_cost;
    path.cast()
}

/// A membership as a condition of a plan. It is tested for rows that other conditions drop, so it must not fail.
fn condition(info: &RelationInfo, membership: Node<'_>) -> Option<Expression> {
    let lowered = Lowering::new(info.scope()).lower_condition(membership);
    lowered.ok().filter(|condition| !could_fail(condition, &|_| false))
}

/// A path that gives the rows of another.
fn custom_path(
    child: Path<'_>,
    methods: *const pg_sys::CustomPathMethods,
    private: *mut pg_sys::List,
) -> *mut pg_sys::CustomPath {
    let path = make_node::<pg_sys::CustomPath>(NodeTag::T_CustomPath);
    path.path().pathtype = NodeTag::T_CustomScan;
    path.path().parent = child.parent();
    path.path().pathtarget = child.pathtarget();
    path.path().rows = child.rows();
    path.path().startup_cost = child.startup_cost();
    path.path().total_cost = child.total_cost();
    compat::copy_disabled_nodes(&raw mut path.path(), child);
    (*path).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
    (*path).custom_paths = list_of([child]);
    (*path).custom_private = private;
    (*path).methods = methods;
    path
}

/// The number of the executor parameter that a path's parts share.
fn place_of(root: Root<'_>, private: *mut pg_sys::List) -> i32 {
    let Some(place) = private.iter().next() else {
        pgrx::error!("a path of a keyed join has lost its parameter");
    };
    if place.ival() == NO_PLACE {
        (*place).ival = compat::assign_special_exec_param(root);
    }
    place.ival()
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
    pub fn of(root: Root<'_>, path: ForeignPath<'_>, info: &RelationInfo) -> Option<Self> {
        let private = path.fdw_private();
        let memberships = private.iter().nth(1)?;
        let share = path.path().rows / info.rows.max(1.0);
        let mut info = info.clone();
        for membership in memberships.iter() {
            if let Some(condition) = condition(&info, membership) {
                let narrowed = narrow(info.relation(), &condition, share);
                info = info.with_relation(narrowed);
            }
        }
        Some(Self { info, place: place_of(root, private) })
    }

    /// What the scan's executor must know of the keys among its parameters.
    pub fn join_keys(&self, parameters: Vec<KeyParameter>) -> JoinKeys {
        JoinKeys { place: self.place, parameters }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_keyed_join(
    root: Root<'_>,
    _relation: Rel<'_>,
    path: *mut pg_sys::CustomPath,
    target_list: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> Plan<'_> {
    let place = place_of(root, path.custom_private());
    custom_scan(&raw const KEYED_JOIN_SCAN.0, target_list, children, place)
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_join_keys(
    root: Root<'_>,
    _relation: Rel<'_>,
    path: *mut pg_sys::CustomPath,
    target_list: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> Plan<'_> {
    let private = path.custom_private();
    let plan = custom_scan(&raw const JOIN_KEYS_SCAN.0, target_list, children, place_of(root, private));
    let operands = private.iter().nth(1).unwrap_or(std::ptr::null_mut());
    (*plan.cast::<pg_sys::CustomScan>()).custom_exprs = pg_sys::copyObjectImpl(operands.cast()).cast();
    plan
}

/// A node whose rows are those of its only child, which has applied all clauses.
fn custom_scan(
    methods: *const pg_sys::CustomScanMethods,
    target_list: *mut pg_sys::List,
    children: *mut pg_sys::List,
    place: i32,
) -> Plan<'_> {
    let scan = make_node::<pg_sys::CustomScan>(NodeTag::T_CustomScan);
    scan.scan().plan.targetlist = target_list;
    (*scan).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
    (*scan).custom_plans = children;
    (*scan).custom_private = list_of([pg_sys::makeInteger(place)]);
    if let Some(child) = children.iter().next() {
        (*scan).custom_scan_tlist = pg_sys::copyObjectImpl(child.targetlist().cast()).cast();
    }
    (*scan).methods = methods;
    scan.cast()
}

/// Whether a path is one of a keyed join's own.
pub fn is_our_path(path: *mut pg_sys::CustomPath) -> bool {
    let methods = path.methods();
    methods == &raw const KEYED_JOIN_PATH.0 || methods == &raw const JOIN_KEYS_PATH.0
}

/// Whether a plan node is one of a keyed join's own.
pub fn is_part(plan: Plan<'_>) -> bool {
    if tag_of(plan.cast()) != NodeTag::T_CustomScan {
        return false;
    }
    let methods = (*plan.cast::<pg_sys::CustomScan>()).methods;
    methods == &raw const KEYED_JOIN_SCAN.0 || methods == &raw const JOIN_KEYS_SCAN.0
}
