//! The hooks of the planner.

use std::ffi::{c_char, c_int};

use pgrx::{pg_sys, prelude::*};

use super::{
    descriptions::describe_named,
    finish::append_refusals,
    keyed_join, label, leftover,
    nodes::{elements, node_as, tag_of},
    planning::{PlanningGuard, with_planning},
    relation_info::{RelationInfo, is_ours_oid, names_our_table},
    replan, rewrite, statistics,
};
use crate::{
    pg::{
        compat, hooks,
        tree::{Query, Ref},
    },
    settings::{self, RewriteMode},
};

static mut NEXT_PLANNER: pg_sys::planner_hook_type = None;
static mut NEXT_SET_REL_PATHLIST: pg_sys::set_rel_pathlist_hook_type = None;
static mut NEXT_SET_JOIN_PATHLIST: pg_sys::set_join_pathlist_hook_type = None;
static mut NEXT_JOIN_SEARCH: pg_sys::join_search_hook_type = None;

/// Puts our hooks before those that are there. Called once, when the library is loaded.
pub fn install_hooks() {
    unsafe {
        NEXT_PLANNER = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(plan_query);
        NEXT_SET_REL_PATHLIST = pg_sys::set_rel_pathlist_hook;
        pg_sys::set_rel_pathlist_hook = Some(set_rel_pathlist);
        NEXT_SET_JOIN_PATHLIST = pg_sys::set_join_pathlist_hook;
        pg_sys::set_join_pathlist_hook = Some(set_join_pathlist);
        NEXT_JOIN_SEARCH = pg_sys::join_search_hook;
        pg_sys::join_search_hook = Some(search_joins);
        statistics::install_hook();
        replan::install_hook();
    }
}

/// What planner_hook is called with.
#[derive(Clone, Copy)]
struct PlannerCall {
    query_text: *const c_char,
    cursor_options: c_int,
    parameters: pg_sys::ParamListInfo,
    /// The query, if its plan may have to be made again.
    original: Option<*mut pg_sys::Query>,
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_query(
    query: *mut pg_sys::Query,
    query_text: *const c_char,
    cursor_options: c_int,
    parameters: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    unsafe {
        let original = replan::copy_for_later(Ref::known(query)).map(Ref::pointer);
        let call = PlannerCall { query_text, cursor_options, parameters, original };
        // Descriptions of tables are asked for once, however often the query is planned.
        let _guard = PlanningGuard::push();
        if original.is_some() {
            describe_named(query);
        }
        let mut planned = plan_best(query, call);
        if let Some(original) = original
            && settings::strict()
            && !planned.is_whole
            && planned.is_outdated
        {
            let copy = pg_sys::copyObjectImpl(original.cast()).cast();
            planned = plan_best(copy, call);
        }
        let Planned { statement, is_whole, reasons, lost_parameter, .. } = planned;
        if settings::strict() && !is_whole {
            raise_strict(&reasons);
        }
        if !is_whole && lost_parameter && parameters.is_null() {
            (*(*statement).planTree).total_cost += LOST_PARAMETER_COST;
        }
        statement
    }
}

unsafe fn plan_best(query: *mut pg_sys::Query, call: PlannerCall) -> Planned {
    unsafe {
        let is_rewritten = settings::rewrite() != RewriteMode::Off && settings::pushdown();
        let inlined = if is_rewritten { rewrite::sql_function::inline(Query::known(query)) } else { None };
        let query = inlined.as_ref().map_or(query, |inlined| inlined.query.pointer());
        let planned = match rewritten(query, false) {
            None => plan_one(query, call),
            Some(rewritten) => choose(query, rewritten, call),
        };
        for function_oid in inlined.into_iter().flat_map(|inlined| inlined.functions) {
            compat::depend_on_function(planned.statement, function_oid);
        }
        planned
    }
}

/// What a generic plan costs more where a custom plan, which has constants for parameters, might leave less to PostgreSQL. As
/// core's settings `enable_*`, it is more than any plan costs: PostgreSQL goes on making custom plans.
const LOST_PARAMETER_COST: f64 = 1e10;

/// A planned statement.
struct Planned {
    statement: *mut pg_sys::PlannedStmt,
    /// Nothing but foreign scans of ours is in it.
    is_whole: bool,
    /// Why it is not.
    reasons: Vec<String>,
    /// Something with a parameter was not pushed down.
    lost_parameter: bool,
    /// It must be whole and is not, and the files are others than the session knew. It knows now.
    is_outdated: bool,
}

/// A copy of the query with its subqueries rewritten as far as is asked for; `None` if nothing is to be rewritten.
unsafe fn rewritten(query: *mut pg_sys::Query, only_hashed: bool) -> Option<*mut pg_sys::Query> {
    unsafe {
        let mode = settings::rewrite();
        if mode == RewriteMode::Off || !settings::pushdown() || !rewrite::has_candidates(Query::known(query))
        {
            return None;
        }
        let any_table = mode == RewriteMode::Force;
        if !any_table && !names_our_table(Query::known(query)) {
            return None;
        }
        let copy = Query::known(query).deep_copy();
        rewrite::rewrite_query(copy, rewrite::Extent { any_table, only_hashed }).then_some(copy.pointer())
    }
}

/// The rewritten query if it becomes one scan (or if rewriting is forced). Otherwise the cheapest of three, which all give the
/// same rows: everything rewritten, only that which PostgreSQL joins by hash, and nothing.
unsafe fn choose(query: *mut pg_sys::Query, whole: *mut pg_sys::Query, call: PlannerCall) -> Planned {
    unsafe {
        // The planner scribbles on its input: each try has its own copy.
        let first = plan_one(whole, call);
        if first.is_whole || settings::rewrite() == RewriteMode::Force {
            return first;
        }
        let is_other = |hashed: &*mut pg_sys::Query| {
            rewritten(query, false).is_none_or(|whole| !pg_sys::equal(whole.cast(), (*hashed).cast()))
        };
        let second = rewritten(query, true).filter(is_other).map(|hashed| plan_one(hashed, call));
        let third = plan_one(query, call);
        let cost = |planned: &Planned| (*(*planned.statement).planTree).total_cost;
        let cheaper = |a: Planned, b: Planned| if cost(&b) < cost(&a) { b } else { a };
        let best = match second {
            Some(second) => cheaper(first, second),
            None => first,
        };
        cheaper(best, third)
    }
}

unsafe fn plan_one(query: *mut pg_sys::Query, call: PlannerCall) -> Planned {
    unsafe {
        let _guard = PlanningGuard::push();
        let statement =
            hooks::plan(NEXT_PLANNER, query, call.query_text, call.cursor_options, call.parameters);
        let absorbed = with_planning(|planning| planning.take_absorbed());
        for subquery in absorbed {
            compat::append_range_table(statement, (*subquery).parse);
        }
        let (met_table, lost_parameter, said) = with_planning(|planning| {
            (planning.met_table(), planning.lost_parameter(), planning.refusals().to_vec())
        });
        let mut reasons = Vec::new();
        let is_whole = !met_table || is_whole(statement);
        if !is_whole {
            reasons = leftover::reasons(Ref::known(statement), &said);
            leftover::for_each_scan(Ref::known(statement), &mut |scan| {
                append_refusals(scan.pointer(), &reasons);
            });
        }
        if let Some(original) = call.original {
            replan::attach_origin(
                Ref::known(statement),
                Ref::known(original),
                call.cursor_options,
                !call.parameters.is_null(),
            );
        }
        let is_outdated = settings::strict() && !is_whole && replan::forget_changed_tables();
        Planned { statement, is_whole, reasons, lost_parameter, is_outdated }
    }
}

/// Whether the statement is one foreign scan of ours, and so are its InitPlans.
unsafe fn is_whole(statement: *mut pg_sys::PlannedStmt) -> bool {
    unsafe {
        let trees = elements::<pg_sys::Plan>((*statement).subplans).chain([(*statement).planTree]);
        let mut trees = trees.filter(|tree| !tree.is_null());
        let is_scan = trees.all(|tree| {
            match node_as::<pg_sys::ForeignScan>(tree.cast(), pg_sys::NodeTag::T_ForeignScan) {
                Some(scan) => is_ours_oid(scan.fs_server) && (*tree).qual.is_null(),
                // Nothing is read to insert rows or to return a constant.
                None => {
                    matches!(tag_of(tree.cast::<pg_sys::Node>()), pg_sys::NodeTag::T_Result)
                        && (*tree).lefttree.is_null()
                }
            }
        });
        is_scan && leftover::repeated_subplans(Ref::known(statement)).is_empty()
    }
}

fn raise_strict(reasons: &[String]) {
    let detail = format!("Not pushed down: {}.", reasons.join("; "));
    pg_sys::panic::ErrorReport::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        "query can't be pushed down whole, and pystachio.strict is on",
        "strict pushdown",
    )
    .set_detail(detail)
    .set_hint("EXPLAIN (VERBOSE) with pystachio.strict off shows what is pushed down.")
    .report(PgLogLevel::ERROR);
}

#[pg_guard]
unsafe extern "C-unwind" fn set_rel_pathlist(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    index: pg_sys::Index,
    entry: *mut pg_sys::RangeTblEntry,
) {
    unsafe {
        hooks::set_rel_pathlist(NEXT_SET_REL_PATHLIST, root, relation, index, entry);
        label::label_relation(root, relation, entry);
    }
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
    unsafe {
        hooks::set_join_pathlist(NEXT_SET_JOIN_PATHLIST, root, joined, outer, inner, join_type, extra);
        keyed_join::add_paths(root, joined, outer, inner, join_type, extra);
    }
}

/// Before version 17, core offers no joins with pseudoconstant clauses (`$1 > 5`) to foreign-data wrappers.
/// For us they are conditions like any other, so they are hidden while only our relations are joined.
#[pg_guard]
unsafe extern "C-unwind" fn search_joins(
    root: *mut pg_sys::PlannerInfo,
    levels_needed: c_int,
    initial: *mut pg_sys::List,
) -> *mut pg_sys::RelOptInfo {
    unsafe {
        let is_ours = elements::<pg_sys::RelOptInfo>(initial)
            .all(|relation| RelationInfo::complete_of(relation).is_some());
        let hidden = compat::HIDES_PSEUDOCONSTANT_JOINS && is_ours && (*root).hasPseudoConstantQuals;
        if hidden {
            (*root).hasPseudoConstantQuals = false;
        }
        let joined = match hooks::search_joins(NEXT_JOIN_SEARCH, root, levels_needed, initial) {
            Some(joined) => joined,
            None if pg_sys::enable_geqo && levels_needed >= pg_sys::geqo_threshold => {
                compat::geqo(root, levels_needed, initial)
            }
            None => pg_sys::standard_join_search(root, levels_needed, initial),
        };
        if hidden {
            (*root).hasPseudoConstantQuals = true;
        }
        joined
    }
}
