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

use pgrx::pg_sys;
use pystachio_plan::{Expression, could_fail, narrow};

use super::{cost, join::may_push, lowering::Lowering, planning::with_planning, relation_info::RelationInfo};
use crate::{
    execution::{JOIN_KEYS_SCAN, KEYED_JOIN_SCAN},
    pg::{
        compat,
        tree::{
            ChosenCustomPath, Clause, CustomKind, CustomPath, CustomScan, ForeignPath, JoinPair, List,
            Member, Node, Path, Plan, RangeEntry, Ref, Rel, Root, append, array_type_of, check_stack_depth,
            commutator_of, hash_join, operator_cost, subquery_scan,
        },
    },
    scan_private::{JoinKeys, KeyParameter},
    settings,
};

/// Offers a join with a filtered side for one pair of inputs. For set_join_pathlist_hook.
pub fn add_paths(pair: &JoinPair<'_>) {
    // What an engine joins whole needs no keys from PostgreSQL.
    let is_whole = RelationInfo::complete_of(pair.joined).is_some_and(|info| info.is_whole());
    let is_mixed = with_planning(|planning| planning.met_table()) && !is_whole;
    if settings::join_keys() == 0 || !is_mixed || !may_push(pair.root) {
        return;
    }
    let keyed = KeyedPair(*pair);
    if compat::drops_unmatched_outer(pair.join_type) {
        keyed.add_path(pair.outer, pair.inner);
    }
    if compat::drops_unmatched_inner(pair.join_type) {
        keyed.add_path(pair.inner, pair.outer);
    }
}

/// Two inputs of a join, as PostgreSQL's search offers them.
struct KeyedPair<'p>(JoinPair<'p>);

/// An equality between the sides.
struct Key<'p> {
    clause: Clause<'p>,
    /// `x = ANY (keys)` of the filtered side; the array is a parameter with the key's number below zero.
    membership: Node<'p>,
    /// The small side's operand.
    operand: Node<'p>,
}

impl<'p> KeyedPair<'p> {
    /// Offers the join in which `filtered` is filtered by keys of `small`.
    fn add_path(&self, filtered: Rel<'p>, small: Rel<'p>) {
        let JoinPair { root, joined, outer, .. } = self.0;
        let is_small = |path: &Path<'p>| {
            path.parameterization().is_none() && path.rows() <= f64::from(settings::join_keys())
        };
        let Some(small_path) = small.cheapest_total_path().filter(is_small) else { return };
        if !filtered.lateral_relids().is_empty() || !has_ours(root, filtered) {
            return;
        }
        let clauses = self.hash_clauses();
        let keys = keys_of(&clauses, filtered);
        if keys.is_empty() {
            return;
        }
        let place = root.memory().number(NO_PLACE);
        let keys_path = keys_path(small_path, place, &keys);
        let filter = Filter {
            root,
            place,
            share: self.matched_share(&keys, filtered, small),
            startup_cost: keys_path.total_cost(),
        };
        let memberships = keys.iter().map(|key| key.membership).collect();
        let Some(filtered_path) = filter.path(filtered, memberships) else { return };
        let (outer_path, inner_path) = match filtered == outer {
            true => (filtered_path, keys_path),
            false => (keys_path, filtered_path),
        };
        let join = hash_join(&self.0, outer_path, inner_path, List::of(clauses));
        let path = CustomPath::over(join, CustomKind::KeyedJoin, List::of([place.node()])).path();
        // What the small side costs is in the scan's costs too, and counts once.
        path.set_startup_cost(path.startup_cost() - filter.startup_cost);
        path.set_total_cost(path.total_cost() - filter.startup_cost);
        joined.add_path(path);
    }

    /// The equalities by which PostgreSQL can join the two by hash: those that it would take itself.
    fn hash_clauses(&self) -> Vec<Clause<'p>> {
        let JoinPair { joined, outer, inner, join_type, extra, .. } = self.0;
        let is_outer = !matches!(join_type, pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_SEMI);
        let (joined, outer, inner) = (joined.relids(), outer.relids(), inner.relids());
        let joins = |clause: &Clause<'p>| {
            let is_above =
                is_outer && (clause.is_pushed_down() || !clause.required_relids().is_subset(joined));
            let (left, right) = (clause.left_relids(), clause.right_relids());
            let is_across = (left.is_subset(outer) && right.is_subset(inner))
                || (left.is_subset(inner) && right.is_subset(outer));
            clause.can_join() && !is_above && clause.hash_join_operator() != pg_sys::InvalidOid && is_across
        };
        extra.clauses().iter().filter(joins).collect()
    }

    /// Which part of the filtered side's rows has a partner.
    fn matched_share(&self, keys: &[Key<'p>], filtered: Rel<'p>, small: Rel<'p>) -> f64 {
        let root = self.0.root;
        let semi_join = root.memory().make::<pg_sys::SpecialJoinInfo>();
        semi_join.set_join_type(pg_sys::JoinType::JOIN_SEMI);
        semi_join.set_min_left(filtered.relids());
        semi_join.set_min_right(small.relids());
        semi_join.set_written_left(filtered.relids());
        semi_join.set_written_right(small.relids());
        // Bare clauses: a RestrictInfo would keep this selectivity as that of the join itself.
        let clauses = List::of(keys.iter().map(|key| key.clause.expression()));
        root.selectivity(clauses, 0, pg_sys::JoinType::JOIN_SEMI, Some(semi_join))
    }
}

/// Whether an engine computes a relation, or a partition of it.
fn has_ours<'p>(root: Root<'p>, relation: Rel<'p>) -> bool {
    RelationInfo::of(relation).is_some()
        || partitions(root, relation).into_iter().any(|(_, child)| has_ours(root, child))
}

/// The entry of the range table that a relation is; `None` of a join.
fn entry_of<'p>(root: Root<'p>, relation: Rel<'p>) -> Option<RangeEntry<'p>> {
    root.entry(relation.index() as usize)
}

/// The members of a table with partitions or children, or of a UNION ALL.
fn partitions<'p>(root: Root<'p>, relation: Rel<'p>) -> Vec<(Member<'p>, Rel<'p>)> {
    check_stack_depth();
    if !entry_of(root, relation).is_some_and(RangeEntry::has_members) {
        return Vec::new();
    }
    let members = root.append_rel_list().iter().filter(|member| member.parent_index() == relation.index());
    // Partitions that the planner has ruled out have no relation, or one without rows.
    let members = members.filter_map(|member| Some((member, root.relation(member.child_index() as usize)?)));
    members.filter(|(_, child)| !child.is_dummy()).collect()
}

/// The keys of a join, as far as they can be written as a condition on the filtered side.
fn keys_of<'p>(clauses: &[Clause<'p>], filtered: Rel<'p>) -> Vec<Key<'p>> {
    let mut keys = Vec::new();
    for clause in clauses {
        let number = keys.len() as i32;
        keys.extend(key_of(*clause, filtered, number));
    }
    keys
}

fn key_of<'p>(clause: Clause<'p>, filtered: Rel<'p>, number: i32) -> Option<Key<'p>> {
    let equality = clause.expression().downcast::<pg_sys::OpExpr>()?;
    let operands: Vec<_> = equality.arguments().iter().collect();
    let [left, right] = operands.as_slice() else { return None };
    let (tested, operand, operator) = match clause.left_relids().is_subset(filtered.relids()) {
        true => (*left, *right, equality.operator()),
        false => (*right, *left, commutator_of(equality.operator())?),
    };
    let array_oid = array_type_of(operand.type_oid())?;
    let array = clause.memory().make::<pg_sys::Param>();
    array.set_kind(pg_sys::ParamKind::PARAM_EXEC);
    array.set_number(-1 - number);
    array.set_type_oid(array_oid);
    array.set_modifier(-1);
    array.set_collation(operand.collation());
    array.set_location(-1);
    let membership = clause.memory().make::<pg_sys::ScalarArrayOpExpr>();
    membership.set_operator(operator);
    membership.set_use_or(true);
    membership.set_input_collation(equality.input_collation());
    membership.set_arguments(List::of([tested, array.node()]));
    membership.set_location(-1);
    Some(Key { clause, membership: membership.node(), operand })
}

/// The number of the key whose values a node of `key_of` stands for.
pub fn key_number(node: Node<'_>) -> Option<u32> {
    let array = node.downcast::<pg_sys::Param>()?;
    let is_key = array.kind() == pg_sys::ParamKind::PARAM_EXEC && array.number() < 0;
    is_key.then(|| (-1 - array.number()) as u32)
}

/// Stands for an executor parameter that has no number yet: only the path that is taken gets one.
const NO_PLACE: i32 = -1;

/// What the parts of a keyed join share while paths are made.
struct Filter<'p> {
    root: Root<'p>,
    /// The number of the executor parameter.
    place: Ref<'p, pg_sys::Integer>,
    /// Which part of the rows passes.
    share: f64,
    /// What it costs until the keys are known. The scans' costs begin with it: a hash join of PostgreSQL's executor first
    /// reads the side that begins earlier.
    startup_cost: f64,
}

impl<'p> Filter<'p> {
    /// The path of a relation with a filter by keys; `None` if no filter can be written.
    fn path(&self, relation: Rel<'p>, memberships: Vec<Node<'p>>) -> Option<Path<'p>> {
        let entry = entry_of(self.root, relation);
        if !entry.is_some_and(RangeEntry::has_members) {
            let info = RelationInfo::of(relation)?;
            return match entry {
                Some(entry) if entry.kind() == pg_sys::RTEKind::RTE_SUBQUERY => {
                    self.subquery_path(relation, &memberships)
                }
                _ => self.scan_path(relation, info, memberships),
            };
        }
        let mut is_filtered = false;
        let mut paths = Vec::new();
        for (member, child) in partitions(self.root, relation) {
            let of_child = |membership: &Node<'p>| self.root.for_member(*membership, member);
            let filtered = self.path(child, memberships.iter().map(of_child).collect());
            is_filtered = is_filtered || filtered.is_some();
            paths.push(filtered.or_else(|| child.cheapest_total_path())?);
        }
        let can_append = is_filtered && paths.iter().all(|path| path.parameterization().is_none());
        can_append.then(|| append(self.root, relation, List::of(paths)))
    }

    fn scan_path(
        &self,
        relation: Rel<'p>,
        info: &RelationInfo<'p>,
        memberships: Vec<Node<'p>>,
    ) -> Option<Path<'p>> {
        let private = self.private(info, memberships)?;
        let (rows, costs) = self.estimate(info);
        let path = match relation.index() {
            0 => info.join_path(self.root, relation, costs),
            _ => ForeignPath::of_scan(self.root, relation, costs),
        };
        path.path().set_rows(rows);
        path.set_private(private);
        Some(path.path())
    }

    /// The path of a subquery whose whole plan is ours: its own last scan, filtered.
    fn subquery_path(&self, relation: Rel<'p>, memberships: &[Node<'p>]) -> Option<Path<'p>> {
        let subroot = relation.subroot()?;
        let kind = pg_sys::UpperRelationKind::UPPERREL_FINAL;
        let last = subroot.upper_relation(kind);
        let info = RelationInfo::complete_of(last)?;
        let target = subroot.upper_target(kind)?;
        let column_of = |node: Node<'p>| {
            let var = node.downcast::<pg_sys::Var>()?;
            let place = usize::try_from(i32::from(var.attribute()) - 1).ok()?;
            let is_own = var.relation() as u32 == relation.index();
            is_own.then(|| target.expressions().get(place)).flatten()
        };
        let inside = memberships.iter().map(|membership| membership.substitute(&mut |node| column_of(node)));
        let private = self.private(info, inside.collect())?;
        let (rows, costs) = self.estimate(info);
        let path = info.stage_path(subroot, (last, target), rows, costs, List::nil());
        path.set_private(private);
        Some(subquery_scan(self.root, relation, path.path()))
    }

    /// What the path of a filtered scan keeps; `None` if no membership can be a condition of its plan.
    fn private(&self, info: &RelationInfo<'p>, memberships: Vec<Node<'p>>) -> Option<List<'p, pg_sys::Node>> {
        let is_condition = |membership: &Node<'p>| condition(info, *membership).is_some();
        let memberships = List::of(memberships.into_iter().filter(is_condition));
        Some(List::of([self.place.node(), memberships.node()?]))
    }

    /// The rows of a filtered scan, and its costs at the first and at the last.
    fn estimate(&self, info: &RelationInfo<'p>) -> (f64, (f64, f64)) {
        let rows = cost::clamp_rows(info.rows * self.share);
        let (startup, total) = cost::path_costs(info.cost + cost::EVALUATE_ROW_COST * info.rows, rows);
        (rows, (self.startup_cost + startup, self.startup_cost + total))
    }
}

/// The path of the small side, which notes its keys.
fn keys_path<'p>(small: Path<'p>, place: Ref<'p, pg_sys::Integer>, keys: &[Key<'p>]) -> Path<'p> {
    let operands = List::of(keys.iter().map(|key| key.operand));
    let private = List::of([place.node()].into_iter().chain(operands.node()));
    let path = CustomPath::over(small, CustomKind::JoinKeys, private).path();
    path.set_total_cost(path.total_cost() + small.rows() * operator_cost() * keys.len() as f64);
    // It gives its first row when it has read the last.
    path.set_startup_cost(path.total_cost());
    path
}

/// A membership as a condition of a plan. It is tested for rows that other conditions drop, so it must not fail.
fn condition(info: &RelationInfo<'_>, membership: Node<'_>) -> Option<Expression> {
    let lowered = Lowering::new(info.scope()).lower_condition(membership);
    lowered.ok().filter(|condition| !could_fail(condition, &|_| false))
}

/// The number of the executor parameter that a path's parts share.
fn place_of<'p>(root: Root<'p>, private: List<'p, pg_sys::Node>) -> i32 {
    let Some(place) = private.first().and_then(|place| place.downcast::<pg_sys::Integer>()) else {
        pgrx::error!("a path of a keyed join has lost its parameter");
    };
    if place.value() == NO_PLACE {
        place.set_value(root.new_parameter());
    }
    place.value()
}

/// The filter of a scan's path.
pub struct ScanFilter<'p> {
    /// What the scan returns.
    pub info: RelationInfo<'p>,
    /// The number of the executor parameter.
    place: i32,
}

impl<'p> ScanFilter<'p> {
    /// The filter that a path has, if it has one.
    pub fn of(root: Root<'p>, path: ForeignPath<'p>, info: &RelationInfo<'p>) -> Option<Self> {
        let private = path.private();
        let memberships = private.get(1)?.as_list()?;
        let share = path.path().rows() / info.rows.max(1.0);
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

/// Makes the plan of a join, or of its small side.
pub fn plan_custom<'p>(chosen: &ChosenCustomPath<'p>) -> CustomScan<'p> {
    let place = chosen.root.memory().number(place_of(chosen.root, chosen.private));
    let private = List::of([place.node()]);
    if chosen.kind == CustomKind::KeyedJoin {
        return CustomScan::over(chosen, &KEYED_JOIN_SCAN.0, private);
    }
    let plan = CustomScan::over(chosen, &JOIN_KEYS_SCAN.0, private);
    let operands = chosen.private.get(1).and_then(Node::as_list);
    plan.set_expressions(operands.map_or(List::nil(), List::deep_copy));
    plan
}

/// Whether a plan node is one of a keyed join's own.
pub fn is_part(plan: Plan<'_>) -> bool {
    plan.has_methods(&[&KEYED_JOIN_SCAN.0, &JOIN_KEYS_SCAN.0])
}
