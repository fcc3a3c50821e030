//! Where PostgreSQL calls us: the functions of the foreign-data wrapper, and the planner's hooks.
//!
//! Each call is guarded, so that a panic becomes an ERROR, and gets handles that end with it. The planner's functions are in
//! [`Callbacks`]. Hooks of other libraries are called before ours, or in it.

use std::{
    cell::Cell,
    ffi::{c_char, c_int, c_void},
    marker::PhantomData,
    sync::OnceLock,
};

use pgrx::{pg_sys, prelude::*};

use super::{
    ChosenCustomPath, ColumnStatistics, CustomScan, ForeignPath, ForeignScan, GroupExtra, JoinExtra, List,
    Node, Plan, Query, RangeEntry, Ref, Rel, Root, Routine, Statement,
};
use crate::pg::{compat, hooks, list};

/// The functions of the planner that PostgreSQL's calls end in.
pub struct Callbacks {
    /// Estimates a foreign table.
    pub estimate_table: for<'p> fn(Root<'p>, Rel<'p>, pg_sys::Oid),
    /// Offers paths of a foreign table.
    pub offer_scans: for<'p> fn(Root<'p>, Rel<'p>),
    /// Offers paths of a join of relations that are ours.
    pub offer_joins: for<'p> fn(&JoinPair<'p>),
    /// Offers paths of a stage above the joins.
    pub offer_stage: for<'p> fn(&Stage<'p>),
    /// Makes the plan of a path that is ours.
    pub plan_scan: for<'p> fn(&ChosenPath<'p>) -> ForeignScan<'p>,
    /// Makes the plan of a path of one of our own kinds.
    pub plan_custom: for<'p> fn(&ChosenCustomPath<'p>) -> CustomScan<'p>,
    /// Plans a query.
    pub plan_query: for<'p> fn(PlannerCall<'p>, Query<'p>) -> Statement<'p>,
    /// After the paths of a relation of the range table have been made.
    pub relation_has_paths: for<'p> fn(Root<'p>, Rel<'p>, RangeEntry<'p>),
    /// After the paths of a join of any two relations have been made.
    pub join_has_paths: for<'p> fn(&JoinPair<'p>),
    /// Before the join search of a query. Whether pseudoconstant conditions are hidden meanwhile.
    pub hides_pseudo_constants: for<'p> fn(Root<'p>, List<'p, pg_sys::RelOptInfo>) -> bool,
    /// Statistics of a column for which no one else has any.
    pub column_statistics: for<'p> fn(Root<'p>, RangeEntry<'p>, i16) -> Option<ColumnStatistics>,
}

/// Two relations that are joined in one way.
#[derive(Clone, Copy)]
pub struct JoinPair<'p> {
    /// The planning.
    pub root: Root<'p>,
    /// What both together are.
    pub joined: Rel<'p>,
    /// The outer side.
    pub outer: Rel<'p>,
    /// The inner side.
    pub inner: Rel<'p>,
    /// How they are joined.
    pub join_type: pg_sys::JoinType::Type,
    /// What else PostgreSQL knows.
    pub extra: JoinExtra<'p>,
}

/// A stage above the joins.
#[derive(Clone, Copy)]
pub struct Stage<'p> {
    /// The planning.
    pub root: Root<'p>,
    /// Which one.
    pub kind: pg_sys::UpperRelationKind::Type,
    /// What it reads.
    pub input: Rel<'p>,
    /// What it gives.
    pub output: Rel<'p>,
    /// Of groups: their condition.
    pub groups: Option<GroupExtra<'p>>,
}

/// A path of which a plan is made.
#[derive(Clone, Copy)]
pub struct ChosenPath<'p> {
    /// The planning.
    pub root: Root<'p>,
    /// What it computes.
    pub relation: Rel<'p>,
    /// The foreign table, if the relation is one.
    pub table_oid: Option<pg_sys::Oid>,
    /// The path.
    pub path: ForeignPath<'p>,
    /// What the scan returns.
    pub targets: List<'p, pg_sys::TargetEntry>,
    /// What must be true of its rows.
    pub clauses: List<'p, pg_sys::RestrictInfo>,
    /// A plan for rows that are checked again.
    pub outer: Option<Plan<'p>>,
}

/// What the planner was called with.
#[derive(Clone, Copy)]
pub struct PlannerCall<'p> {
    number: u64,
    text: *const c_char,
    /// Options of a cursor.
    pub cursor_options: i32,
    parameters: pg_sys::ParamListInfo,
    call: PhantomData<&'p ()>,
}

impl<'p> PlannerCall<'p> {
    /// Whether values of parameters were given, so that the plan is for them alone.
    pub fn has_values(self) -> bool {
        !self.parameters.is_null()
    }

    /// What was kept in this call, of one within it.
    pub fn kept<T>(self, kept: OfPlanning<T>) -> Ref<'p, T> {
        if kept.number != self.number {
            pgrx::error!("a structure of another call of the planner was asked for");
        }
        // SAFETY: kept in a call within this one. What the planner makes is there until it returns, but for join relations and their
        // paths in the genetic search, which no one keeps.
        unsafe { Ref::known(kept.structure) }
    }

    /// The value of an expression of type `text`, with the parameters' values where they were given; `None` if it is not known or NULL.
    pub fn text_of(self, expression: Node<'_>) -> Option<String> {
        // SAFETY: PostgreSQL's evaluation reads the fields that are set here alone, and copies the expression.
        unsafe {
            let mut global: pg_sys::PlannerGlobal = std::mem::zeroed();
            global.type_ = pg_sys::NodeTag::T_PlannerGlobal;
            global.boundParams = self.parameters;
            let mut root: pg_sys::PlannerInfo = std::mem::zeroed();
            root.type_ = pg_sys::NodeTag::T_PlannerInfo;
            root.glob = &raw mut global;
            let value = pg_sys::eval_const_expressions(&raw mut root, expression.pointer());
            let value = Ref::<pg_sys::Node>::at(value)?.downcast::<pg_sys::Const>()?.pointer();
            if (*value).constisnull || (*value).consttype != pg_sys::TEXTOID {
                return None;
            }
            Some(list::string(pg_sys::text_to_cstring((*value).constvalue.cast_mut_ptr())))
        }
    }

    /// Plans a query with the other libraries and PostgreSQL. The query is used up.
    pub fn plan(self, query: Query<'p>) -> Statement<'p> {
        // SAFETY: what planner_hook was called with, and a query like the one of that call.
        unsafe {
            Ref::known(hooks::plan(
                NEXT_PLANNER,
                query.pointer(),
                self.text,
                self.cursor_options,
                self.parameters,
            ))
        }
    }
}

/// A planning that outlives the call of ours that found it, until the planner itself returns.
pub struct OfPlanning<T> {
    number: u64,
    structure: *mut T,
}

impl OfPlanning<pg_sys::PlannerInfo> {
    /// Keeps the planning of a subquery.
    pub fn keep(root: Root<'_>) -> Self {
        Self { number: PLANNER_CALL.get(), structure: root.pointer() }
    }

    /// Whether it is the planning of this subquery.
    pub fn is(&self, root: Root<'_>) -> bool {
        self.structure == root.pointer()
    }
}

thread_local! {
    /// How often the planner was called.
    static PLANNER_CALLS: Cell<u64> = const { Cell::new(0) };
    /// The call that runs, of which there may be others around.
    static PLANNER_CALL: Cell<u64> = const { Cell::new(0) };
}

/// Ends a call of the planner.
struct CallGuard {
    outer: u64,
}

impl CallGuard {
    fn begin() -> (Self, u64) {
        let number = PLANNER_CALLS.get() + 1;
        PLANNER_CALLS.set(number);
        (Self { outer: PLANNER_CALL.replace(number) }, number)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        PLANNER_CALL.set(self.outer);
    }
}

static CALLBACKS: OnceLock<Callbacks> = OnceLock::new();

pub(super) fn callbacks() -> &'static Callbacks {
    match CALLBACKS.get() {
        Some(callbacks) => callbacks,
        None => pgrx::error!("pystachio's planner was called before it was installed"),
    }
}

static mut NEXT_PLANNER: pg_sys::planner_hook_type = None;
static mut NEXT_SET_REL_PATHLIST: pg_sys::set_rel_pathlist_hook_type = None;
static mut NEXT_SET_JOIN_PATHLIST: pg_sys::set_join_pathlist_hook_type = None;
static mut NEXT_JOIN_SEARCH: pg_sys::join_search_hook_type = None;
static mut NEXT_RELATION_STATS: pg_sys::get_relation_stats_hook_type = None;

/// Puts our hooks before those that are there. Called once, when the library is loaded.
pub fn install(callbacks: Callbacks) {
    if CALLBACKS.set(callbacks).is_err() {
        return;
    }
    // SAFETY: PostgreSQL reads and writes these on the one thread of the process, on which this runs.
    unsafe {
        NEXT_PLANNER = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(plan_query);
        NEXT_SET_REL_PATHLIST = pg_sys::set_rel_pathlist_hook;
        pg_sys::set_rel_pathlist_hook = Some(set_rel_pathlist);
        NEXT_SET_JOIN_PATHLIST = pg_sys::set_join_pathlist_hook;
        pg_sys::set_join_pathlist_hook = Some(set_join_pathlist);
        NEXT_JOIN_SEARCH = pg_sys::join_search_hook;
        pg_sys::join_search_hook = Some(search_joins);
        NEXT_RELATION_STATS = pg_sys::get_relation_stats_hook;
        pg_sys::get_relation_stats_hook = Some(relation_stats);
    }
}

/// Fills the planning functions of the wrapper's routine table.
pub fn fill_routine(routine: &mut pg_sys::FdwRoutine) {
    routine.GetForeignRelSize = Some(get_foreign_rel_size);
    routine.GetForeignPaths = Some(get_foreign_paths);
    routine.GetForeignPlan = Some(get_foreign_plan);
    routine.GetForeignJoinPaths = Some(get_foreign_join_paths);
    routine.GetForeignUpperPaths = Some(get_foreign_upper_paths);
}

type SizeFunction =
    unsafe extern "C-unwind" fn(*mut pg_sys::PlannerInfo, *mut pg_sys::RelOptInfo, pg_sys::Oid);

/// Whether a routine table is the one that [`fill_routine`] filled.
pub fn is_ours(routine: Routine<'_>) -> bool {
    // SAFETY: a field of a valid structure.
    let function = unsafe { (*routine.pointer()).GetForeignRelSize };
    function.is_some_and(|function| std::ptr::fn_addr_eq(function, get_foreign_rel_size as SizeFunction))
}

#[pg_guard]
unsafe extern "C-unwind" fn get_foreign_rel_size(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table_oid: pg_sys::Oid,
) {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let (root, relation) = unsafe { (Ref::known(root), Ref::known(relation)) };
    (callbacks().estimate_table)(root, relation, table_oid);
}

#[pg_guard]
unsafe extern "C-unwind" fn get_foreign_paths(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    _table_oid: pg_sys::Oid,
) {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let (root, relation) = unsafe { (Ref::known(root), Ref::known(relation)) };
    (callbacks().offer_scans)(root, relation);
}

#[pg_guard]
unsafe extern "C-unwind" fn get_foreign_plan(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table_oid: pg_sys::Oid,
    path: *mut pg_sys::ForeignPath,
    targets: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    outer: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let chosen = unsafe {
        ChosenPath {
            root: Ref::known(root),
            relation: Ref::known(relation),
            table_oid: (table_oid != pg_sys::InvalidOid).then_some(table_oid),
            path: Ref::known(path),
            targets: List::new(targets),
            clauses: List::new(clauses),
            outer: Ref::at(outer),
        }
    };
    (callbacks().plan_scan)(&chosen).pointer()
}

/// # Safety
///
/// The arguments are PostgreSQL's, for the time of the call.
unsafe fn pair<'p>(
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) -> JoinPair<'p> {
    // SAFETY: as the caller says.
    unsafe {
        JoinPair {
            root: Ref::known(root),
            joined: Ref::known(joined),
            outer: Ref::known(outer),
            inner: Ref::known(inner),
            join_type,
            extra: Ref::known(extra),
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn get_foreign_join_paths(
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let pair = unsafe { pair(root, joined, outer, inner, join_type, extra) };
    (callbacks().offer_joins)(&pair);
}

#[pg_guard]
unsafe extern "C-unwind" fn get_foreign_upper_paths(
    root: *mut pg_sys::PlannerInfo,
    kind: pg_sys::UpperRelationKind::Type,
    input: *mut pg_sys::RelOptInfo,
    output: *mut pg_sys::RelOptInfo,
    extra: *mut c_void,
) {
    let is_of_groups = kind == pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG;
    // SAFETY: PostgreSQL's arguments, for the time of this call; the last is of that type for groups.
    let stage = unsafe {
        Stage {
            root: Ref::known(root),
            kind,
            input: Ref::known(input),
            output: Ref::known(output),
            groups: if is_of_groups { Ref::at(extra.cast()) } else { None },
        }
    };
    (callbacks().offer_stage)(&stage);
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_query(
    query: *mut pg_sys::Query,
    text: *const c_char,
    cursor_options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    let (_guard, number) = CallGuard::begin();
    let call = PlannerCall { number, text, cursor_options, parameters, call: PhantomData };
    // SAFETY: PostgreSQL's argument, for the time of this call.
    let query = unsafe { Ref::known(query) };
    (callbacks().plan_query)(call, query).pointer()
}

#[pg_guard]
unsafe extern "C-unwind" fn set_rel_pathlist(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    index: pg_sys::Index,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let (root, relation, entry) = unsafe {
        hooks::set_rel_pathlist(NEXT_SET_REL_PATHLIST, root, relation, index, entry);
        (Ref::known(root), Ref::known(relation), Ref::known(entry))
    };
    (callbacks().relation_has_paths)(root, relation, entry);
}

#[pg_guard]
unsafe extern "C-unwind" fn set_join_pathlist(
    root: *mut pg_sys::PlannerInfo,
    joined: *mut pg_sys::RelOptInfo,
    outer: *mut pg_sys::RelOptInfo,
    inner: *mut pg_sys::RelOptInfo,
    join_type: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let pair = unsafe {
        hooks::set_join_pathlist(NEXT_SET_JOIN_PATHLIST, root, joined, outer, inner, join_type, extra);
        pair(root, joined, outer, inner, join_type, extra)
    };
    (callbacks().join_has_paths)(&pair);
}

#[pg_guard]
unsafe extern "C-unwind" fn search_joins(
    root: *mut pg_sys::PlannerInfo,
    levels: c_int,
    initial: *mut pg_sys::List,
) -> *mut pg_sys::RelOptInfo {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let (planning, relations) = unsafe { (Root::known(root), List::new(initial)) };
    let is_hidden = (callbacks().hides_pseudo_constants)(planning, relations);
    if is_hidden {
        planning.set_has_pseudo_constant_quals(false);
    }
    // SAFETY: as above.
    let joined = unsafe {
        match hooks::search_joins(NEXT_JOIN_SEARCH, root, levels, initial) {
            Some(joined) => joined,
            None if pg_sys::enable_geqo && levels >= pg_sys::geqo_threshold => {
                compat::geqo(root, levels, initial)
            }
            None => pg_sys::standard_join_search(root, levels, initial),
        }
    };
    if is_hidden {
        planning.set_has_pseudo_constant_quals(true);
    }
    joined
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_stats(
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute_number: pg_sys::AttrNumber,
    variable: *mut pg_sys::VariableStatData,
) -> bool {
    // SAFETY: PostgreSQL's arguments, for the time of this call; the last is written to.
    unsafe {
        if hooks::relation_stats(NEXT_RELATION_STATS, root, entry, attribute_number, variable) {
            return true;
        }
        let (root, entry) = (Ref::known(root), Ref::known(entry));
        match (callbacks().column_statistics)(root, entry, attribute_number) {
            Some(statistics) => {
                statistics.write(entry, attribute_number, variable);
                true
            }
            None => false,
        }
    }
}
