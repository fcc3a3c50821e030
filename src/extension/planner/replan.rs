//! Plans that are older than the files that they read.
//!
//! A plan depends on footers: the digits of a bare `numeric` column, the width of a product, costs.
//! PostgreSQL keeps plans of prepared statements and functions until a catalog changes, and no
//! catalog changes with files. The session keeps descriptions of tables (`known_files.rs`) and
//! makes new plans of them. So a statement whose files may have changed since then carries its
//! [`Origin`] and a copy of its query.
//!
//! - A statement that is one scan is run as it is. The engine knows by [`pystachio_plan::PlannedFiles`] whether its plan holds.
//!   If the run fails before its first row, not for want of an engine, and files have changed, the query is planned anew and run again. If the plan holds for
//!   changed files, the rows are right, and the next run plans anew (`known_files::forget_plans`). A plan that was made just now is no
//!   exception: another session may write between the two.
//! - For other statements, cursors and EXPLAIN the engine is asked what the files are now, before the executor starts. So it is for
//!   statements over the last version of a table with versions: their plans name the version that they were made for.
//!
//! The query is planned again in the same way if `pystachio.pushdown` was switched, as hints of our
//! errors advise.
//!
//! Invariant: the engine notices files that change between these checks and the reading
//! (`ErrorKind::FilesChanged`).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::{Duration, Instant},
};

use pgrx::pg_sys;
use pystachio_plan::{ErrorKind, FileSet};

use super::{
    leftover::{for_each_scan, our_scan},
    planning::with_planning,
    relation_info::is_our_table,
};
use crate::{
    client,
    error::OrRaise,
    execution, known_files,
    pg::{
        compat::has_subclass,
        tree::{
            Execution, ExecutorCall, Plan, Query, RangeEntry, Statement, install_executor_start,
            is_parallel_worker,
        },
    },
    scan_private::{Origin, encode_refusals, place},
    settings,
};

/// Of a statement that is started for the first time this soon after it was planned, the engine is not asked before.
const FRESH_MAX: Duration = Duration::from_secs(1);
/// Statements that were planned and not yet started, of which is known when they were planned.
const FRESH_PLANS_MAX: usize = 64;

thread_local! {
    /// How many statements with an origin this session has planned.
    static PLANNINGS: Cell<u64> = const { Cell::new(0) };
    /// Those that were not yet started, and when they were planned.
    static FRESH: RefCell<VecDeque<(u64, Instant)>> = const { RefCell::new(VecDeque::new()) };
    /// Whether the statement that starts is one whose rows the engine may write to files itself.
    static IS_WRITTEN: Cell<bool> = const { Cell::new(false) };
}

/// Starts the executor of a statement whose scan must not have run then.
pub fn start_written<T>(start: impl FnOnce() -> T) -> T {
    struct Written;
    impl Drop for Written {
        fn drop(&mut self) {
            IS_WRITTEN.set(false);
        }
    }
    IS_WRITTEN.set(true);
    let _written = Written;
    start()
}

/// Puts our hook before those that are there. Called once, when the library is loaded.
pub fn install_hook() {
    install_executor_start(start_executor);
}

/// A copy of a query from which it can be planned again, if it may read files of ours. The planner scribbles on the original.
pub fn copy_for_later(query: Query<'_>) -> Option<Query<'_>> {
    query.any_entry(&mut may_be_ours).then(|| query.deep_copy())
}

/// Leaves in the first scan of a statement what it was planned from. For the end of a run of the planner.
pub fn attach_origin(statement: Statement<'_>, query: Query<'_>, cursor_options: i32, has_values: bool) {
    let (tables, is_old) = with_planning(|planning| (planning.described(), planning.uses_old_descriptions()));
    let mut first = None;
    for_each_scan(statement, &mut |scan| first = first.or(Some(scan)));
    let Some(scan) = first.filter(|_| !tables.is_empty()) else { return };
    let planning = PLANNINGS.get() + 1;
    PLANNINGS.set(planning);
    if !is_old {
        FRESH.with_borrow_mut(|fresh| {
            fresh.truncate(FRESH_PLANS_MAX - 1);
            fresh.push_front((planning, Instant::now()));
        });
    }
    let pushdown = settings::pushdown();
    let origin = Origin { planning, cursor_options, pushdown, has_values, is_old, tables };
    let constant = |bytes: pystachio_plan::Result<Vec<u8>>| scan.memory().bytes(bytes.or_raise()).node();
    let mut private = scan.private();
    while private.len() < place::ORIGIN {
        private = private.with(constant(encode_refusals(&[])));
    }
    scan.set_private(private.with(constant(origin.encode())).with(query.node()));
}

/// In the place of the executor's start.
fn start_executor(call: &ExecutorCall<'_>) {
    match doubt(call) {
        Doubt::None => {}
        Doubt::Certain(origin, original) => plan_again(call.execution, &origin, original),
        Doubt::UntilRun(origin, original) => {
            let started = call.start();
            let Err(error) = execution::run_early(&started) else { return };
            if !may_be_of_files(error.kind) || !forget_changed(&origin) {
                crate::error::raise(error);
            }
            // Other libraries, which count what ends, see one run.
            started.end_without_hooks();
            plan_again(call.execution, &origin, original);
        }
    }
    execution::link_scans(&call.start());
}

/// Whether a statement has to be planned again.
enum Doubt<'p> {
    /// It need not be.
    None,
    /// It must: its files have changed, or the setting has.
    Certain(Origin, Query<'p>),
    /// The engine will tell.
    UntilRun(Origin, Query<'p>),
}

fn doubt<'p>(call: &ExecutorCall<'p>) -> Doubt<'p> {
    // A parallel worker runs a part of what its leader has looked at.
    if PLANNINGS.get() == 0 || is_parallel_worker() {
        return Doubt::None;
    }
    let statement = call.execution.statement();
    let Some((origin, original)) = read_origin(statement) else { return Doubt::None };
    if origin.pushdown != settings::pushdown() {
        return Doubt::Certain(origin, original);
    }
    let is_fresh = is_fresh(origin.planning);
    let is_explained =
        call.flags as u32 & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 || call.execution.instrument_options() != 0;
    let is_cursor = origin.cursor_options as u32 & pg_sys::CURSOR_OPT_FAST_PLAN != 0;
    // A plan for a version of a table runs, whatever versions came since.
    let has_versions = origin.tables.iter().any(|(_, files, _)| files.format.is_latest());
    if !is_explained && !is_cursor && !has_versions && !IS_WRITTEN.get() && is_one_scan(statement) {
        return Doubt::UntilRun(origin, original);
    }
    match !is_fresh && forget_changed(&origin) {
        true => Doubt::Certain(origin, original),
        false => Doubt::None,
    }
}

/// Whether a statement reads rows by one scan, and does nothing else.
fn is_one_scan(statement: Statement<'_>) -> bool {
    statement.command() == pg_sys::CmdType::CMD_SELECT
        && statement.subplans().is_nil()
        && !statement.has_modifying_with()
        && statement.plan().and_then(our_scan).is_some()
}

fn read_origin(statement: Statement<'_>) -> Option<(Origin, Query<'_>)> {
    if statement.command() == pg_sys::CmdType::CMD_UTILITY {
        return None;
    }
    let mut found = None;
    for_each_scan(statement, &mut |scan| {
        let mut private = scan.private().iter().skip(place::ORIGIN);
        if let (Some(origin), Some(query), None) = (private.next(), private.next(), found) {
            found = Some((origin, query));
        }
    });
    let (origin, query) = found?;
    let bytes = origin.downcast::<pg_sys::Const>()?.bytes()?;
    Some((Origin::decode(&bytes).or_raise(), query.downcast()?))
}

/// Whether a statement was planned just now, for the run that starts.
fn is_fresh(planning: u64) -> bool {
    FRESH.with_borrow_mut(|fresh| {
        let place = fresh.iter().position(|(known, _)| *known == planning);
        let planned = place.and_then(|place| fresh.remove(place));
        planned.is_some_and(|(_, planned)| planned.elapsed() < FRESH_MAX)
    })
}

/// Whether files that have changed may be why a query has failed. They are not where the engine or a rank is lost: to ask about
/// them would be to wait for the next engine.
fn may_be_of_files(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Unavailable
            | ErrorKind::Retired
            | ErrorKind::Device
            | ErrorKind::Peer
            | ErrorKind::Cancelled
            | ErrorKind::Protocol
    )
}

/// Whether a table's files are others than those that the plan was made for. The session then forgets what it knew of them.
/// What can't be told is left for the run to report.
fn forget_changed(origin: &Origin) -> bool {
    let mut servers: Vec<u32> = origin.tables.iter().map(|(server, ..)| *server).collect();
    servers.sort_unstable();
    servers.dedup();
    let mut has_changed = false;
    for server in servers {
        let of_server = origin.tables.iter().filter(|(of, ..)| *of == server);
        let (files, then): (Vec<FileSet>, Vec<u64>) =
            of_server.map(|(_, files, identity)| (files.clone(), *identity)).unzip();
        let now = client::identify(pg_sys::Oid::from(server), &files).unwrap_or_default();
        for ((files, now), then) in files.into_iter().zip(now).zip(then) {
            if now != Ok(then) {
                known_files::forget(&(server, files));
                has_changed = has_changed || now.is_ok();
            }
        }
    }
    has_changed
}

/// Whether files of tables have changed since the session learned of them, in the current run of the planner.
pub fn forget_changed_tables() -> bool {
    let (tables, is_old) = with_planning(|planning| (planning.described(), planning.uses_old_descriptions()));
    let pushdown = settings::pushdown();
    is_old
        && forget_changed(&Origin {
            planning: 0,
            cursor_options: 0,
            pushdown,
            has_values: false,
            is_old,
            tables,
        })
}

fn plan_again<'p>(execution: Execution<'p>, origin: &Origin, original: Query<'p>) {
    known_files::forget_plans(execution.statement());
    execution.set_statement(new_plan(execution, origin, original));
}

fn new_plan<'p>(execution: Execution<'p>, origin: &Origin, original: Query<'p>) -> Statement<'p> {
    let statement = execution.plan(original.deep_copy(), origin.cursor_options, origin.has_values);
    // A cursor may have been promised to go back.
    if execution.statement().plan().is_some_and(Plan::reads_backward)
        && let Some(plan) = statement.plan()
        && !plan.reads_backward()
    {
        statement.set_plan(plan.materialized());
    }
    statement
}

/// Whether an entry of a range table is a foreign table of ours, or may have some as partitions or children.
fn may_be_ours(entry: RangeEntry<'_>) -> bool {
    entry.kind() == pg_sys::RTEKind::RTE_RELATION
        && match entry.relation_kind() {
            pg_sys::RELKIND_FOREIGN_TABLE => is_our_table(entry.table_oid()),
            pg_sys::RELKIND_PARTITIONED_TABLE => true,
            pg_sys::RELKIND_RELATION => entry.has_members() && has_subclass(entry.table_oid()),
            _ => false,
        }
}
