//! Plans that outlive the files which they were made for.
//!
//! A plan rests on footers: the digits of a bare `numeric` column, how wide a product must be, what is worth doing.
//! PostgreSQL keeps plans (of prepared statements, of functions) until a catalog changes, and hears nothing of files. So a
//! statement that may be kept carries its [`Origin`] and a copy of its query. When it is started again, the engine is asked
//! what the files are now; if they have changed, the query is planned anew for this run, and what the session keeps of such
//! plans is dropped, so that the next run finds a new one. So it is where `pystachio.pushdown` has been switched, which our
//! errors advise.
//!
//! Invariants: a plan with parameters' values is never kept by PostgreSQL and carries nothing. What changes between this
//! look and the engine's own is the engine's to find (`ErrorKind::FilesChanged`).

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
    nodes::{any_entry, element_count},
    planning::with_planning,
    relation_info::is_our_table,
};
use crate::{
    client,
    error::OrRaise,
    execution,
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

/// A copy of a query from which it can be planned again, if PostgreSQL may keep its plan and it may read files of ours.
/// The planner scribbles on the original.
pub unsafe fn copy_for_later(
    query: *mut pg_sys::Query,
    parameters: pg_sys::ParamListInfo,
) -> Option<*mut pg_sys::Query> {
    unsafe {
        let is_wanted = parameters.is_null() && any_entry(query, &mut |entry| may_be_ours(entry));
        is_wanted.then(|| pg_sys::copyObjectImpl(query.cast()).cast())
    }
}

/// Leaves in the first scan of a statement what it was planned from. For the end of a run of the planner.
pub unsafe fn attach_origin(
    statement: *mut pg_sys::PlannedStmt,
    query: *mut pg_sys::Query,
    cursor_options: c_int,
) {
    unsafe {
        let tables = with_planning(|planning| planning.described());
        let mut first = None;
        for_each_scan(statement, &mut |scan| first = first.or(Some(scan)));
        let Some(scan) = first.filter(|_| !tables.is_empty()) else { return };
        let planning = PLANNINGS.get() + 1;
        PLANNINGS.set(planning);
        FRESH.with_borrow_mut(|fresh| {
            fresh.truncate(FRESH_PLANS_MAX - 1);
            fresh.push_front((planning, Instant::now()));
        });
        let origin = Origin { planning, cursor_options, pushdown: settings::pushdown(), tables };
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
        if let Some(statement) = renewed(&*query) {
            (*query).plannedstmt = statement;
        }
        hooks::start_executor(NEXT_EXECUTOR_START, query, flags);
        execution::link_scans(query);
    }
}

/// A statement for the files as they are now, if those for which the given one was made have changed.
unsafe fn renewed(query: &pg_sys::QueryDesc) -> Option<*mut pg_sys::PlannedStmt> {
    unsafe {
        // A parallel worker runs a part of what its leader has looked at.
        if PLANNINGS.get() == 0 || pg_sys::ParallelWorkerNumber >= 0 {
            return None;
        }
        let (origin, original) = read_origin(query.plannedstmt)?;
        let is_fresh = is_fresh(origin.planning);
        if origin.pushdown == settings::pushdown() && (is_fresh || !has_changed(&origin)) {
            return None;
        }
        forget_plans(query.plannedstmt);
        Some(plan_again(query, &origin, original))
    }
}

unsafe fn read_origin(statement: *mut pg_sys::PlannedStmt) -> Option<(Origin, *mut pg_sys::Query)> {
    unsafe {
        if (*statement).commandType == pg_sys::CmdType::CMD_UTILITY {
            return None;
        }
        let mut found = None;
        for_each_scan(statement, &mut |scan| {
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

/// Whether a table's files are others than those that the plan was made for. What can't be told is left for the run to
/// report.
fn has_changed(origin: &Origin) -> bool {
    let mut servers: Vec<u32> = origin.tables.iter().map(|(server, ..)| *server).collect();
    servers.sort_unstable();
    servers.dedup();
    servers.into_iter().any(|server| {
        let of_server = origin.tables.iter().filter(|(of, ..)| *of == server);
        let (files, then): (Vec<FileSet>, Vec<u64>) =
            of_server.map(|(_, files, identity)| (files.clone(), *identity)).unzip();
        let now = client::identify(pg_sys::Oid::from(server), &files).unwrap_or_default();
        now.iter().zip(then).any(|(now, then)| now.as_ref().is_ok_and(|now| *now != then))
    })
}

/// Has this session plan anew what it keeps for the statement's foreign tables.
unsafe fn forget_plans(statement: *mut pg_sys::PlannedStmt) {
    unsafe {
        for table_oid in list::oids((*statement).relationOids) {
            if pg_sys::get_rel_relkind(table_oid) as u8 == pg_sys::RELKIND_FOREIGN_TABLE {
                let mut message = pg_sys::SharedInvalidationMessage {
                    rc: pg_sys::SharedInvalRelcacheMsg {
                        id: pg_sys::SHAREDINVALRELCACHE_ID as i8,
                        dbId: pg_sys::MyDatabaseId,
                        relId: table_oid,
                    },
                };
                pg_sys::LocalExecuteInvalidationMessage(&raw mut message);
            }
        }
    }
}

unsafe fn plan_again(
    query: &pg_sys::QueryDesc,
    origin: &Origin,
    original: *mut pg_sys::Query,
) -> *mut pg_sys::PlannedStmt {
    unsafe {
        let copy = pg_sys::copyObjectImpl(original.cast()).cast();
        let text: *const c_char = query.sourceText;
        // The planner may evaluate stable functions.
        let needs_snapshot = !pg_sys::ActiveSnapshotSet();
        if needs_snapshot {
            pg_sys::PushActiveSnapshot(query.snapshot);
        }
        let statement = pg_sys::planner(copy, text, origin.cursor_options, std::ptr::null_mut());
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
