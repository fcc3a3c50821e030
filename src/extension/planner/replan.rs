//! Plans that outlive the files which they were made for.
//!
//! A plan rests on footers: the digits of a bare `numeric` column, how wide a product must be, what is worth doing.
//! PostgreSQL keeps plans (of prepared statements, of functions) until a catalog changes, and hears nothing of files. The
//! session keeps descriptions of tables (`known_files.rs`), of which it makes new plans. So a statement whose files may have
//! changed since carries its [`Origin`] and a copy of its query.
//!
//! - A statement that is one scan is run as it is. The engine knows by [`pystachio_plan::PlannedFiles`] whether its plan holds.
//!   If the run fails before its first row and files have changed, the query is planned anew and run again. If the plan holds for
//!   changed files, the rows are right, and the next run plans anew (`known_files::forget_plans`).
//! - For other statements, cursors and EXPLAIN the engine is asked what the files are now, before the executor starts.
//!
//! So it is where `pystachio.pushdown` has been switched, which our errors advise.
//!
//! Invariant: what changes between these looks and the reading is the engine's to find (`ErrorKind::FilesChanged`).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ffi::{c_char, c_int},
    time::{Duration, Instant},
};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::FileSet;

use super::{
    finish::bytes_constant,
    leftover::for_each_scan,
    nodes::{any_entry, element_count, node_as},
    planning::with_planning,
    relation_info::{is_our_table, is_ours_oid},
};
use crate::{
    client,
    error::OrRaise,
    execution, known_files,
    pg::{compat, hooks, list},
    scan_private::{Origin, encode_refusals, place},
    settings,
};

/// A statement that is started for the first time this soon after it was planned is not looked at.
const FRESH_MAX: Duration = Duration::from_secs(1);
/// Statements that were planned and not yet started, of which is known when they were planned.
const FRESH_PLANS_MAX: usize = 64;

static mut NEXT_EXECUTOR_START: pg_sys::ExecutorStart_hook_type = None;

thread_local! {
    /// How many statements with an origin this session has planned.
    static PLANNINGS: Cell<u64> = const { Cell::new(0) };
    /// Those that were not yet started, and when they were planned.
    static FRESH: RefCell<VecDeque<(u64, Instant)>> = const { RefCell::new(VecDeque::new()) };
}

/// Puts our hook before those that are there. Called once, when the library is loaded.
pub fn install_hook() {
    unsafe {
        NEXT_EXECUTOR_START = pg_sys::ExecutorStart_hook;
        pg_sys::ExecutorStart_hook = Some(start_executor);
    }
}

/// A copy of a query from which it can be planned again, if it may read files of ours. The planner scribbles on the original.
pub unsafe fn copy_for_later(query: *mut pg_sys::Query) -> Option<*mut pg_sys::Query> {
    unsafe {
        let is_wanted = any_entry(query, &mut |entry| may_be_ours(entry));
        is_wanted.then(|| pg_sys::copyObjectImpl(query.cast()).cast())
    }
}

/// Leaves in the first scan of a statement what it was planned from. For the end of a run of the planner.
pub unsafe fn attach_origin(
    statement: *mut pg_sys::PlannedStmt,
    query: *mut pg_sys::Query,
    cursor_options: c_int,
    has_values: bool,
) {
    unsafe {
        let (tables, is_old) =
            with_planning(|planning| (planning.described(), planning.uses_old_descriptions()));
        // PostgreSQL never keeps a plan with values.
        if has_values && !is_old {
            return;
        }
        let mut first = None;
        for_each_scan(crate::pg::tree::Ref::known(statement), &mut |scan| first = first.or(Some(scan)));
        let Some(scan) = first.map(crate::pg::tree::Ref::pointer).filter(|_| !tables.is_empty()) else {
            return;
        };
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
        let mut private = (*scan).fdw_private;
        while element_count(private) < place::ORIGIN {
            private = pg_sys::lappend(private, bytes_constant(encode_refusals(&[]).or_raise()).cast());
        }
        private = pg_sys::lappend(private, bytes_constant(origin.encode().or_raise()).cast());
        (*scan).fdw_private = pg_sys::lappend(private, query.cast());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn start_executor(query: *mut pg_sys::QueryDesc, flags: c_int) {
    unsafe {
        match doubt(&*query, flags) {
            Doubt::None => {}
            Doubt::Certain(origin, original) => plan_again(query, &origin, original),
            Doubt::UntilRun(origin, original) => {
                hooks::start_executor(NEXT_EXECUTOR_START, query, flags);
                let Err(error) = execution::run_early((*query).planstate) else { return };
                if !forget_changed(&origin) {
                    crate::error::raise(error);
                }
                // Other libraries, which count what ends, see one run.
                pg_sys::standard_ExecutorFinish(query);
                pg_sys::standard_ExecutorEnd(query);
                plan_again(query, &origin, original);
            }
        }
        hooks::start_executor(NEXT_EXECUTOR_START, query, flags);
        execution::link_scans(query);
    }
}

/// Whether a statement has to be planned again.
enum Doubt {
    /// It need not be.
    None,
    /// It must: its files have changed, or the setting has.
    Certain(Origin, *mut pg_sys::Query),
    /// The engine will tell.
    UntilRun(Origin, *mut pg_sys::Query),
}

unsafe fn doubt(query: &pg_sys::QueryDesc, flags: c_int) -> Doubt {
    unsafe {
        // A parallel worker runs a part of what its leader has looked at.
        if PLANNINGS.get() == 0 || pg_sys::ParallelWorkerNumber >= 0 {
            return Doubt::None;
        }
        let Some((origin, original)) = read_origin(query.plannedstmt) else { return Doubt::None };
        if origin.pushdown != settings::pushdown() {
            return Doubt::Certain(origin, original);
        }
        if is_fresh(origin.planning) {
            return Doubt::None;
        }
        let is_explained =
            flags as u32 & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 || query.instrument_options != 0;
        let is_cursor = origin.cursor_options as u32 & pg_sys::CURSOR_OPT_FAST_PLAN != 0;
        if !is_explained && !is_cursor && is_one_scan(query.plannedstmt) {
            return Doubt::UntilRun(origin, original);
        }
        match forget_changed(&origin) {
            true => Doubt::Certain(origin, original),
            false => Doubt::None,
        }
    }
}

/// Whether a statement reads rows by one scan, and does nothing else.
unsafe fn is_one_scan(statement: *mut pg_sys::PlannedStmt) -> bool {
    unsafe {
        let statement = &*statement;
        statement.commandType == pg_sys::CmdType::CMD_SELECT
            && statement.subplans.is_null()
            && !statement.hasModifyingCTE
            && node_as::<pg_sys::ForeignScan>(statement.planTree.cast(), pg_sys::NodeTag::T_ForeignScan)
                .is_some_and(|scan| is_ours_oid(scan.fs_server))
    }
}

unsafe fn read_origin(statement: *mut pg_sys::PlannedStmt) -> Option<(Origin, *mut pg_sys::Query)> {
    unsafe {
        if (*statement).commandType == pg_sys::CmdType::CMD_UTILITY {
            return None;
        }
        let mut found = None;
        for_each_scan(crate::pg::tree::Ref::known(statement), &mut |scan| {
            let scan = scan.pointer();
            let mut private = list::pointers::<pg_sys::Node>((*scan).fdw_private).skip(place::ORIGIN);
            if let (Some(origin), Some(query), None) = (private.next(), private.next(), found) {
                found = Some((origin.cast::<pg_sys::Const>(), query.cast::<pg_sys::Query>()));
            }
        });
        let (origin, query) = found?;
        let bytes = Vec::<u8>::from_datum((*origin).constvalue, (*origin).constisnull)?;
        Some((Origin::decode(&bytes).or_raise(), query))
    }
}

/// Whether a statement was planned just now, for the run that starts.
fn is_fresh(planning: u64) -> bool {
    FRESH.with_borrow_mut(|fresh| {
        let place = fresh.iter().position(|(known, _)| *known == planning);
        let planned = place.and_then(|place| fresh.remove(place));
        planned.is_some_and(|(_, planned)| planned.elapsed() < FRESH_MAX)
    })
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

unsafe fn plan_again(query: *mut pg_sys::QueryDesc, origin: &Origin, original: *mut pg_sys::Query) {
    unsafe {
        known_files::forget_plans((*query).plannedstmt);
        (*query).plannedstmt = new_plan(&*query, origin, original);
    }
}

unsafe fn new_plan(
    query: &pg_sys::QueryDesc,
    origin: &Origin,
    original: *mut pg_sys::Query,
) -> *mut pg_sys::PlannedStmt {
    unsafe {
        let copy = pg_sys::copyObjectImpl(original.cast()).cast();
        let values = if origin.has_values { query.params } else { std::ptr::null_mut() };
        let text: *const c_char = query.sourceText;
        // The planner may evaluate stable functions.
        let needs_snapshot = !pg_sys::ActiveSnapshotSet();
        if needs_snapshot {
            pg_sys::PushActiveSnapshot(query.snapshot);
        }
        let statement = pg_sys::planner(copy, text, origin.cursor_options, values);
        if needs_snapshot {
            pg_sys::PopActiveSnapshot();
        }
        // A cursor may have been promised to go back.
        if pg_sys::ExecSupportsBackwardScan((*query.plannedstmt).planTree)
            && !pg_sys::ExecSupportsBackwardScan((*statement).planTree)
        {
            (*statement).planTree = pg_sys::materialize_finished_plan((*statement).planTree);
        }
        statement
    }
}

/// Whether an entry of a range table is a foreign table of ours, or may have some as partitions or children.
unsafe fn may_be_ours(entry: *mut pg_sys::RangeTblEntry) -> bool {
    unsafe {
        (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
            && match (*entry).relkind as u8 {
                pg_sys::RELKIND_FOREIGN_TABLE => is_our_table((*entry).relid),
                pg_sys::RELKIND_PARTITIONED_TABLE => true,
                pg_sys::RELKIND_RELATION => (*entry).inh && compat::has_subclass((*entry).relid),
                _ => false,
            }
    }
}
