//! Queries as they are planned, relations, clauses, targets and orders.

use pgrx::pg_sys;

use super::{
    List, Node, Path, Query, RangeEntry, Ref, Relids, SortGroupClause, TargetEntry,
    fields::{fields, kinds},
};
use crate::pg::{compat, list};

/// The planning of one query or subquery.
pub type Root<'p> = Ref<'p, pg_sys::PlannerInfo>;
/// A relation: of the range table, a join, or a stage above the joins.
pub type Rel<'p> = Ref<'p, pg_sys::RelOptInfo>;
/// A condition.
pub type Clause<'p> = Ref<'p, pg_sys::RestrictInfo>;
/// What a relation or path returns.
pub type Target<'p> = Ref<'p, pg_sys::PathTarget>;
/// A routine table of a foreign-data wrapper.
pub type Routine<'p> = Ref<'p, pg_sys::FdwRoutine>;
/// A relation that is a member of another.
pub type Member<'p> = Ref<'p, pg_sys::AppendRelInfo>;
/// What rows are ordered by.
pub type PathKey<'p> = Ref<'p, pg_sys::PathKey>;
/// An expression that is equal to the others of its class.
pub type ClassMember<'p> = Ref<'p, pg_sys::EquivalenceMember>;
/// What joins are offered with.
pub type JoinExtra<'p> = Ref<'p, pg_sys::JoinPathExtraData>;
/// What groups are offered with.
pub type GroupExtra<'p> = Ref<'p, pg_sys::GroupPathExtraData>;

kinds! {
    PlannerInfo = T_PlannerInfo;
    RelOptInfo = T_RelOptInfo;
    RestrictInfo = T_RestrictInfo;
    PathTarget = T_PathTarget;
    AppendRelInfo = T_AppendRelInfo;
    PathKey = T_PathKey;
    EquivalenceClass = T_EquivalenceClass;
    EquivalenceMember = T_EquivalenceMember;
    PlaceHolderInfo = T_PlaceHolderInfo;
    SpecialJoinInfo = T_SpecialJoinInfo;
}

fields! { 'p PlannerInfo {
    parse as parse: Query<'p>;
    parent_root as parent_root: Option<Root<'p>>;
    rowMarks as row_marks: List<'p, pg_sys::PlanRowMark>;
    placeholder_list as placeholder_list: List<'p, pg_sys::PlaceHolderInfo>;
    append_rel_list as append_rel_list: List<'p, pg_sys::AppendRelInfo>;
    processed_tlist as processed_tlist: List<'p, pg_sys::TargetEntry>;
    query_pathkeys as query_pathkeys: List<'p, pg_sys::PathKey>;
    window_pathkeys as window_pathkeys: List<'p, pg_sys::PathKey>;
    distinct_pathkeys as distinct_pathkeys: List<'p, pg_sys::PathKey>;
    sort_pathkeys as sort_pathkeys: List<'p, pg_sys::PathKey>;
    limit_tuples as limit_tuples: f64;
    qual_security_level as highest_security_level: u32;
    hasPseudoConstantQuals as has_pseudo_constant_quals: bool;
    hasPseudoConstantQuals = set_has_pseudo_constant_quals: bool;
} }

fields! { 'p RelOptInfo {
    reloptkind as kind: u32;
    relids as relids: Relids<'p>;
    relid as index: u32;
    rows as rows: f64;
    rows = set_rows: f64;
    tuples as tuples: f64;
    tuples = set_tuples: f64;
    reltarget as target: Target<'p>;
    baserestrictinfo as clauses: List<'p, pg_sys::RestrictInfo>;
    lateral_relids as lateral_relids: Relids<'p>;
    subroot as subroot: Option<Root<'p>>;
    pathlist as paths: List<'p, pg_sys::Path>;
    pathlist = set_paths: List<'p, pg_sys::Path>;
    partial_pathlist as partial_paths: List<'p, pg_sys::Path>;
    partial_pathlist = set_partial_paths: List<'p, pg_sys::Path>;
    cheapest_total_path as cheapest_total_path: Option<Path<'p>>;
    serverid as server_oid: pg_sys::Oid;
    serverid = set_server_oid: pg_sys::Oid;
    userid as user_oid: pg_sys::Oid;
    userid = set_user_oid: pg_sys::Oid;
    useridiscurrent = set_user_is_current: bool;
    fdwroutine as routine: Option<Routine<'p>>;
    fdwroutine = set_routine: Option<Routine<'p>>;
} }

fields! { 'p RestrictInfo {
    clause as expression: Node<'p>;
    is_pushed_down as is_pushed_down: bool;
    can_join as can_join: bool;
    pseudoconstant as is_pseudo_constant: bool;
    leakproof as is_leakproof: bool;
    security_level as security_level: u32;
    clause_relids as relids: Relids<'p>;
    required_relids as required_relids: Relids<'p>;
    left_relids as left_relids: Relids<'p>;
    right_relids as right_relids: Relids<'p>;
    hashjoinoperator as hash_join_operator: pg_sys::Oid;
} }

fields! { 'p PathTarget {
    exprs as expressions: List<'p, pg_sys::Node>;
    width as width: i32;
} }

fields! { 'p AppendRelInfo {
    parent_relid as parent_index: u32;
    child_relid as child_index: u32;
    translated_vars as translated_vars: List<'p, pg_sys::Node>;
} }

fields! { 'p PlaceHolderInfo {
    phid as id: u32;
    ph_lateral as lateral_relids: Relids<'p>;
    ph_eval_at as evaluated_at: Relids<'p>;
} }

fields! { 'p PathKey {
    pk_eclass as class: Ref<'p, pg_sys::EquivalenceClass>;
    pk_opfamily as family: pg_sys::Oid;
} }

fields! { 'p EquivalenceClass {
    ec_has_volatile as is_volatile: bool;
    ec_members as members: List<'p, pg_sys::EquivalenceMember>;
} }

fields! { 'p EquivalenceMember {
    em_expr as expression: Node<'p>;
    em_relids as relids: Relids<'p>;
    em_is_const as is_constant: bool;
} }

fields! { 'p SpecialJoinInfo {
    jointype = set_join_type: u32;
    min_lefthand = set_min_left: Relids<'p>;
    min_righthand = set_min_right: Relids<'p>;
    syn_lefthand = set_written_left: Relids<'p>;
    syn_righthand = set_written_right: Relids<'p>;
} }

fields! { 'p JoinPathExtraData {
    restrictlist as clauses: List<'p, pg_sys::RestrictInfo>;
} }

fields! { 'p GroupPathExtraData {
    havingQual as having: Option<Node<'p>>;
} }

impl<'p> Root<'p> {
    /// The relation with a number in the range table, unless the query has none with it.
    pub fn relation(self, index: usize) -> Option<Rel<'p>> {
        // SAFETY: an array of so many elements; its first is not used.
        unsafe {
            let root = self.pointer();
            let is_there = index > 0 && index < (*root).simple_rel_array_size as usize;
            if is_there { Ref::at(*(*root).simple_rel_array.add(index)) } else { None }
        }
    }

    /// All relations of the range table that the query has.
    pub fn relations(self) -> impl Iterator<Item = Rel<'p>> + use<'p> {
        self.indexes().filter_map(move |index| self.relation(index))
    }

    /// The entry of the range table with a number.
    pub fn entry(self, index: usize) -> Option<RangeEntry<'p>> {
        // SAFETY: an array of so many elements; its first is not used.
        unsafe {
            let root = self.pointer();
            let is_there = index > 0 && index < (*root).simple_rel_array_size as usize;
            if is_there { Ref::at(*(*root).simple_rte_array.add(index)) } else { None }
        }
    }

    /// The numbers of the range table.
    pub fn indexes(self) -> std::ops::Range<usize> {
        // SAFETY: a field of a valid structure.
        1..(unsafe { (*self.pointer()).simple_rel_array_size }.max(1) as usize)
    }

    /// Whether any relation is a member of another.
    pub fn has_members(self) -> bool {
        // SAFETY: a field of a valid structure.
        unsafe { !(*self.pointer()).append_rel_array.is_null() }
    }

    /// What the relation with a number is a member of.
    pub fn membership(self, index: usize) -> Option<Member<'p>> {
        // SAFETY: NULL, or an array of as many elements as there are numbers.
        unsafe {
            let members = (*self.pointer()).append_rel_array;
            if members.is_null() || !self.indexes().contains(&index) {
                return None;
            }
            Ref::at(*members.add(index))
        }
    }

    /// What a stage above the joins returns.
    pub fn upper_target(self, stage: pg_sys::UpperRelationKind::Type) -> Option<Target<'p>> {
        // SAFETY: an array with a place for each stage.
        unsafe { Ref::at((*self.pointer()).upper_targets[stage as usize]) }
    }

    /// The relation of a stage above the joins.
    pub fn upper_relation(self, stage: pg_sys::UpperRelationKind::Type) -> Rel<'p> {
        // SAFETY: a planning, and no particular set of relations.
        unsafe { Ref::known(pg_sys::fetch_upper_rel(self.pointer(), stage, std::ptr::null_mut())) }
    }

    /// All relations that the query joins, its outer joins included where they have numbers.
    pub fn all_relids(self) -> Relids<'p> {
        // SAFETY: a planning.
        unsafe { Relids::new(compat::all_relations(self.pointer())) }
    }

    /// The orders, of one key each, in which a merge join can read the rows of a relation.
    pub fn merge_orders(self, relation: Rel<'p>) -> Vec<PathKey<'p>> {
        let mut orders = Vec::new();
        // SAFETY: a planning, a relation of it, and its classes of equal expressions, each of which has families.
        unsafe {
            let (root, relation) = (self.pointer(), relation.pointer());
            for class in list::pointers::<pg_sys::EquivalenceClass>((*root).eq_classes) {
                if pg_sys::eclass_useful_for_merging(root, class, relation) {
                    orders.push(Ref::known(compat::ascending_pathkey(root, class)));
                }
            }
        }
        orders
    }

    /// Which part of the rows satisfies the conditions: clauses or bare expressions. `of` is the number of the relation that they are
    /// about, or 0.
    pub fn selectivity<T>(
        self,
        conditions: List<'p, T>,
        of: u32,
        join_type: pg_sys::JoinType::Type,
        join: Option<Ref<'p, pg_sys::SpecialJoinInfo>>,
    ) -> f64 {
        let join = join.map_or(std::ptr::null_mut(), Ref::pointer);
        // SAFETY: all are of this planning.
        unsafe {
            pg_sys::clauselist_selectivity(self.pointer(), conditions.pointer(), of as i32, join_type, join)
        }
    }

    /// What it costs to evaluate an expression.
    pub fn cost_of_node(self, node: Node<'p>) -> pg_sys::QualCost {
        let mut cost = pg_sys::QualCost::default();
        // SAFETY: an expression of this planning.
        unsafe { pg_sys::cost_qual_eval_node(&raw mut cost, node.pointer(), self.pointer()) };
        cost
    }

    /// How many groups so many rows make by these expressions.
    pub fn group_count(self, keys: List<'p, pg_sys::Node>, rows: f64) -> f64 {
        let none = std::ptr::null_mut();
        // SAFETY: expressions of this planning.
        unsafe { pg_sys::estimate_num_groups(self.pointer(), keys.pointer(), rows, none, none.cast()) }
    }

    /// An expression over a relation as one over its member.
    pub fn for_member(self, node: Node<'p>, member: Member<'p>) -> Node<'p> {
        let mut members = [member.pointer()];
        // SAFETY: the member is of this planning, and the expression over what it is a member of.
        unsafe {
            Ref::known(pg_sys::adjust_appendrel_attrs(
                self.pointer(),
                node.pointer(),
                1,
                members.as_mut_ptr(),
            ))
        }
    }

    /// Has the plan made anew when a relation changes that it does not read.
    pub fn depend_on_relation(self, relation_oid: pg_sys::Oid) {
        // SAFETY: a planning; what its statement depends on is a list of oids.
        unsafe {
            let global = (*self.pointer()).glob;
            (*global).relationOids = pg_sys::list_append_unique_oid((*global).relationOids, relation_oid);
        }
    }

    /// Moves the InitPlans of an absorbed subquery, which is never planned, to this query.
    pub fn take_init_plans(self, subquery: Root<'p>) {
        // SAFETY: two plannings; their lists are of the same kind.
        unsafe {
            let (own, other) = (self.pointer(), subquery.pointer());
            (*own).init_plans = pg_sys::list_concat((*own).init_plans, (*other).init_plans);
            (*other).init_plans = std::ptr::null_mut();
        }
    }

    /// The target with the reference of a clause of ORDER BY, GROUP BY or DISTINCT.
    pub fn sorted_target(self, clause: SortGroupClause<'p>) -> TargetEntry<'p> {
        clause.target(self.processed_tlist())
    }

    /// Whether a clause lives as long as the planning. The genetic search frees others, and their place may become that of another.
    pub fn keeps(self, clause: Clause<'p>) -> bool {
        // SAFETY: the clause was allocated in a memory context.
        unsafe { pg_sys::GetMemoryChunkContext(clause.pointer().cast()) == (*self.pointer()).planner_cxt }
    }

    /// The number of a new executor parameter that no expression reads.
    pub fn new_parameter(self) -> i32 {
        // SAFETY: a planning.
        unsafe { compat::assign_special_exec_param(self.pointer()) }
    }
}

impl<'p> Rel<'p> {
    /// Whether it is known to have no rows.
    pub fn is_dummy(self) -> bool {
        // SAFETY: a relation.
        unsafe { pg_sys::is_dummy_rel(self.pointer()) }
    }

    /// Marks it as one without rows.
    pub fn mark_dummy(self) {
        // SAFETY: a relation.
        unsafe { pg_sys::mark_dummy_rel(self.pointer()) }
    }

    /// Has PostgreSQL estimate the rows of a table, whose `tuples` are set.
    pub fn estimate_size(self, root: Root<'p>) {
        // SAFETY: a relation of this planning.
        unsafe { pg_sys::set_baserel_size_estimates(root.pointer(), self.pointer()) }
    }

    /// Whether anything is kept with it, by whomever.
    pub fn has_private(self) -> bool {
        // SAFETY: a relation.
        unsafe { !(*self.pointer()).fdw_private.is_null() }
    }

    /// Offers a path. PostgreSQL keeps it if it is cheaper, or better ordered, than others.
    pub fn add_path(self, path: Path<'p>) {
        // SAFETY: a path of this relation.
        unsafe { pg_sys::add_path(self.pointer(), path.pointer()) }
    }
}

impl<'p> Clause<'p> {
    /// The expressions that are equal to an operand of an equality wherever all that they read is joined.
    pub fn equal_expressions(self) -> Vec<Node<'p>> {
        let mut found = Vec::new();
        // SAFETY: a condition of a planning; NULL, or classes of equal expressions of it. One that was merged names the other.
        unsafe {
            let clause = self.pointer();
            for mut class in [(*clause).parent_ec, (*clause).left_ec, (*clause).right_ec] {
                while !class.is_null() && !(*class).ec_merged.is_null() {
                    class = (*class).ec_merged;
                }
                let class: Option<Ref<'p, pg_sys::EquivalenceClass>> = Ref::at(class);
                let members = class.into_iter().flat_map(|class| class.members().iter());
                found.extend(members.map(ClassMember::expression));
            }
        }
        found
    }
}

impl Target<'_> {
    /// The reference by which ORDER BY, GROUP BY or DISTINCT names an expression; 0 if none does.
    pub fn reference(self, place: usize) -> u32 {
        // SAFETY: NULL, or an array with an element for each expression.
        unsafe {
            let references = (*self.pointer()).sortgrouprefs;
            if references.is_null() || place >= self.expressions().len() { 0 } else { *references.add(place) }
        }
    }
}

impl Member<'_> {
    /// The parent's column for one of the member's, both counted from 1. `None` if it has none.
    pub fn parent_column(self, attribute_number: i16) -> Option<i16> {
        let place = usize::try_from(attribute_number - 1).ok()?;
        // SAFETY: an array of so many elements.
        unsafe {
            let member = self.pointer();
            let is_there = place < (*member).num_child_cols as usize;
            let column = if is_there { *(*member).parent_colnos.add(place) } else { 0 };
            (column != 0).then_some(column)
        }
    }
}

impl PathKey<'_> {
    /// Whether it sorts the greatest first, and whether it sorts NULL first.
    pub fn direction(self) -> (bool, bool) {
        // SAFETY: a pathkey, which nothing changes meanwhile.
        compat::direction(unsafe { &*self.pointer() })
    }
}
