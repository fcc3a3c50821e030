//! The hooks of the planner.

use pgrx::{pg_sys, prelude::*};

use super::{
    base,
    descriptions::{describe_named, share_named},
    file_calls::replace_calls,
    finish::{self, append_refusals},
    join, keyed_join, label, leftover,
    planning::{PlanningGuard, with_planning},
    relation_info::{RelationInfo, is_ours_oid, names_our_table},
    replan, rewrite, sent_rows, statistics, upper,
};
use crate::{
    pg::{
        compat,
        tree::{
            self, Callbacks, ChosenCustomPath, CustomKind, CustomScan, ForeignScan, JoinPair, List, Plan,
            PlannerCall, Query, Root, Statement,
        },
    },
    settings::{self, RewriteMode},
};

/// Puts our hooks before those that are there. Called once, when the library is loaded.
pub fn install_hooks() {
    tree::install(Callbacks {
        estimate_table: base::estimate_table,
        offer_scans: base::offer_scans,
        offer_joins: join::offer_joins,
        offer_stage: upper::offer_stage,
        plan_scan: finish::plan_scan,
        plan_custom,
        plan_query,
        relation_has_paths: label::label_relation,
        join_has_paths,
        hides_pseudo_constants,
        column_statistics: statistics::column_statistics,
    });
    replan::install_hook();
}

/// Makes the plan of a path of our own kinds.
fn plan_custom<'p>(chosen: &ChosenCustomPath<'p>) -> CustomScan<'p> {
    match chosen.kind {
        CustomKind::SendRows => sent_rows::plan_sending(chosen),
        CustomKind::KeyedJoin | CustomKind::JoinKeys => keyed_join::plan_custom(chosen),
    }
}

/// Offers what joins a relation of ours with one of PostgreSQL's.
fn join_has_paths(pair: &JoinPair<'_>) {
    sent_rows::offer_mixed_joins(pair);
    keyed_join::add_paths(pair);
}

/// A call of the planner, and the query if its plan may have to be made again.
#[derive(Clone, Copy)]
struct Call<'p> {
    planner: PlannerCall<'p>,
    original: Option<Query<'p>>,
}

fn plan_query<'p>(planner: PlannerCall<'p>, query: Query<'p>) -> Statement<'p> {
    replace_calls(query, planner);
    let original = replan::copy_for_later(query);
    let call = Call { planner, original };
    // Descriptions of tables are asked for once, however often the query is planned.
    let _guard = PlanningGuard::push();
    if original.is_some() {
        // A DELETE holds the lock of its table's files alone, and must not share it before.
        let deletes = query.command() == pg_sys::CmdType::CMD_DELETE || query.has_modifying_with();
        if !deletes {
            share_named(query);
        }
        describe_named(query);
    }
    let mut planned = plan_best(query, call);
    if let Some(original) = original
        && settings::strict()
        && !planned.is_whole
        && planned.is_outdated
    {
        planned = plan_best(original.deep_copy(), call);
    }
    let Planned { statement, is_whole, reasons, lost_parameter, .. } = planned;
    if settings::strict() && !is_whole {
        raise_strict(&reasons);
    }
    if !is_whole
        && lost_parameter
        && !planner.has_values()
        && let Some(plan) = statement.plan()
    {
        plan.set_total_cost(plan.total_cost() + LOST_PARAMETER_COST);
    }
    statement
}

fn plan_best<'p>(query: Query<'p>, call: Call<'p>) -> Planned<'p> {
    let is_rewritten = settings::rewrite() != RewriteMode::Off && settings::pushdown();
    let inlined = if is_rewritten { rewrite::sql_function::inline(query) } else { None };
    let query = inlined.as_ref().map_or(query, |inlined| inlined.query);
    let planned = match rewritten(query, false) {
        None => plan_one(query, call),
        Some(rewritten) => choose(query, rewritten, call),
    };
    for function_oid in inlined.into_iter().flat_map(|inlined| inlined.functions) {
        planned.statement.depend_on_function(function_oid);
    }
    planned
}

/// What a generic plan costs more where a custom plan, which has constants for parameters, might leave less to PostgreSQL. As
/// core's settings `enable_*`, it is more than any plan costs: PostgreSQL goes on making custom plans.
const LOST_PARAMETER_COST: f64 = 1e10;

/// A planned statement.
struct Planned<'p> {
    statement: Statement<'p>,
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
fn rewritten(query: Query<'_>, only_hashed: bool) -> Option<Query<'_>> {
    let mode = settings::rewrite();
    if mode == RewriteMode::Off || !settings::pushdown() || !rewrite::has_candidates(query) {
        return None;
    }
    let any_table = mode == RewriteMode::Force;
    if !any_table && !names_our_table(query) {
        return None;
    }
    let copy = query.deep_copy();
    rewrite::rewrite_query(copy, rewrite::Extent { any_table, only_hashed }).then_some(copy)
}

/// The rewritten query if it becomes one scan (or if rewriting is forced). Otherwise the cheapest of three, which all give the
/// same rows: everything rewritten, only that which PostgreSQL joins by hash, and nothing.
fn choose<'p>(query: Query<'p>, whole: Query<'p>, call: Call<'p>) -> Planned<'p> {
    // The planner scribbles on its input: each try has its own copy.
    let first = plan_one(whole, call);
    if first.is_whole || settings::rewrite() == RewriteMode::Force {
        return first;
    }
    let is_other = |hashed: &Query<'p>| rewritten(query, false).is_none_or(|whole| !whole.equals(*hashed));
    let second = rewritten(query, true).filter(is_other).map(|hashed| plan_one(hashed, call));
    let third = plan_one(query, call);
    let cost = |planned: &Planned<'p>| planned.statement.plan().map_or(f64::INFINITY, Plan::total_cost);
    let cheaper = |a: Planned<'p>, b: Planned<'p>| if cost(&b) < cost(&a) { b } else { a };
    let best = match second {
        Some(second) => cheaper(first, second),
        None => first,
    };
    cheaper(best, third)
}

fn plan_one<'p>(query: Query<'p>, call: Call<'p>) -> Planned<'p> {
    let _guard = PlanningGuard::push();
    let statement = call.planner.plan(query);
    for subquery in with_planning(|planning| planning.take_absorbed()) {
        statement.append_range_table(call.planner.kept(subquery).parse());
    }
    let (met_table, lost_parameter, said) = with_planning(|planning| {
        (planning.met_table(), planning.lost_parameter(), planning.refusals().to_vec())
    });
    if met_table {
        leftover::for_each_scan(statement, &mut ForeignScan::show_windows_as_calls);
    }
    let mut reasons = Vec::new();
    let is_whole = !met_table || is_whole(statement);
    if !is_whole {
        reasons = leftover::reasons(statement, &said);
        leftover::for_each_scan(statement, &mut |scan| append_refusals(scan, &reasons));
    }
    if let Some(original) = call.original {
        let PlannerCall { cursor_options, .. } = call.planner;
        replan::attach_origin(statement, original, cursor_options, call.planner.has_values());
    }
    let is_outdated = settings::strict() && !is_whole && replan::forget_changed_tables();
    Planned { statement, is_whole, reasons, lost_parameter, is_outdated }
}

/// Whether the statement is one foreign scan of ours, and so are its InitPlans.
fn is_whole(statement: Statement<'_>) -> bool {
    let is_scan = |plan: Plan<'_>| match plan.downcast::<pg_sys::ForeignScan>() {
        Some(scan) => is_ours_oid(scan.server_oid()) && plan.conditions().is_nil() && plan.left().is_none(),
        // Nothing is read to insert rows or to return a constant.
        None => plan.is::<pg_sys::Result>() && plan.left().is_none(),
    };
    statement.subplans().iter().chain(statement.plan()).all(is_scan)
        && leftover::repeated_subplans(statement).is_empty()
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

/// Before version 17, core offers no joins with pseudoconstant clauses (`$1 > 5`) to foreign-data wrappers.
/// For us they are conditions like any other, so they are hidden while only our relations are joined.
fn hides_pseudo_constants<'p>(root: Root<'p>, relations: List<'p, pg_sys::RelOptInfo>) -> bool {
    compat::HIDES_PSEUDOCONSTANT_JOINS
        && root.has_pseudo_constant_quals()
        && relations.iter().all(|relation| RelationInfo::complete_of(relation).is_some())
}
