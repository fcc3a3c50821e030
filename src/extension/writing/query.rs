//! A query whose rows are written to files.
#![expect(unsafe_code, reason = "runs PostgreSQL's executor")]

use std::ffi::CStr;

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{Error, ErrorKind, Request, Result, WriteForm, WriteTarget, WrittenFile, is_in_store};

use super::{
    rows::{RowColumn, RowSink, write_request, written_columns},
    target_of,
};
use crate::{
    error::{OrRaise, raise},
    execution::{self, RunningQuery},
    functions::check_path,
    options,
    pg::{compat, list},
    planner::start_written,
};

/// Where the executor's rows go: a receiver of PostgreSQL's with what it needs behind it.
#[repr(C)]
struct Receiver {
    base: pg_sys::DestReceiver,
    /// Absent before the rows come.
    sink: Option<RowSink>,
    row_count: i64,
}

/// A query, as PostgreSQL's parser leaves it.
pub struct RowQuery<'a> {
    parsed: *mut pg_sys::RawStmt,
    /// What positions in errors refer to.
    text: &'a CStr,
}

impl<'a> RowQuery<'a> {
    /// The only statement of a text.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it is not one.
    pub fn of_text(text: &'a CStr) -> Result<Self> {
        // SAFETY: a C string; what comes back is a list of nodes, in the current memory context.
        let parsed: Vec<*mut pg_sys::RawStmt> =
            unsafe { list::pointers(pg_sys::pg_parse_query(text.as_ptr())).collect() };
        match parsed[..] {
            [parsed] => Ok(Self { parsed, text }),
            _ => Err(not_a_query(&format!("the text has {} statements", parsed.len()))),
        }
    }

    /// A query that is a part of a command, which is somewhere in a text.
    ///
    /// # Safety
    ///
    /// The query is a valid node of the parser's.
    pub unsafe fn of_part(query: *mut pg_sys::Node, text: &'a CStr, location: i32, length: i32) -> Self {
        // SAFETY: as the caller says; analysis scribbles on its input, and the command may be run again.
        let parsed = unsafe {
            let parsed = pg_sys::palloc0(size_of::<pg_sys::RawStmt>()).cast::<pg_sys::RawStmt>();
            (*parsed).type_ = pg_sys::NodeTag::T_RawStmt;
            (*parsed).stmt = pg_sys::copyObjectImpl(query.cast()).cast();
            (*parsed).stmt_location = location;
            (*parsed).stmt_len = length;
            parsed
        };
        Self { parsed, text }
    }

    fn plan(&self) -> Result<*mut pg_sys::PlannedStmt> {
        // SAFETY: what the parser has made, in the current memory context.
        unsafe {
            let queries = pg_sys::pg_analyze_and_rewrite_fixedparams(
                self.parsed,
                self.text.as_ptr(),
                std::ptr::null(),
                0,
                std::ptr::null_mut(),
            );
            let queries: Vec<*mut pg_sys::Query> = list::pointers(queries).collect();
            let [query] = queries[..] else {
                return Err(not_a_query("a rule makes several statements of it"));
            };
            // SELECT INTO and CREATE TABLE AS are utility commands by now.
            if (*query).commandType != pg_sys::CmdType::CMD_SELECT {
                return Err(not_a_query("it is another statement"));
            }
            let parallel = pg_sys::CURSOR_OPT_PARALLEL_OK as i32;
            Ok(pg_sys::pg_plan_query(query, self.text.as_ptr(), parallel, std::ptr::null_mut()))
        }
    }
}

fn not_a_query(found: &str) -> Error {
    let message = format!("a query whose rows are written must be one SELECT, VALUES or TABLE: {found}");
    Error::new(ErrorKind::InvalidArgument, message)
        .with_hint("Write the rows of other statements into a table first.")
}

/// Where and how a query's rows are written.
pub struct RowTarget {
    /// A file of the server's host if it ends with `.parquet`, else a folder that gets files.
    pub path: String,
    /// Whether a file may be replaced.
    pub overwrite: bool,
    /// How the files are laid out.
    pub form: WriteForm,
    /// Whose engine writes.
    pub server_name: String,
}

/// Runs a query and writes its rows. Returns the files, which are the transaction's then. Raises an ERROR if the query fails.
///
/// # Errors
///
/// `InvalidArgument` for a path that no file can have, and for a text that is no query; those of [`RowSink`].
pub fn write_rows(query: &RowQuery<'_>, target: RowTarget) -> Result<Vec<WrittenFile>> {
    // The server says which paths in stores are allowed.
    if !is_in_store(&target.path) {
        check_path(&target.path)?;
    }
    let server_oid = options::usable_server(&target.server_name);
    let statement = query.plan()?;
    let target_path = target_of(target.path, target.overwrite);
    // SAFETY: a plan of the query, whose text outlives it.
    unsafe { run(statement, query.text, server_oid, target_path, target.form) }
}

unsafe fn run(
    statement: *mut pg_sys::PlannedStmt,
    text: &CStr,
    server_oid: pg_sys::Oid,
    target: WriteTarget,
    form: WriteForm,
) -> Result<Vec<WrittenFile>> {
    let mut receiver = Receiver {
        base: pg_sys::DestReceiver {
            receiveSlot: Some(receive_slot),
            rStartup: Some(start),
            rShutdown: Some(end),
            rDestroy: Some(end),
            mydest: pg_sys::CommandDest::DestNone,
        },
        sink: None,
        row_count: 0,
    };
    // SAFETY: the calls are those of PostgreSQL's COPY of a query. After an ERROR, the end of the transaction frees their memory.
    unsafe {
        pg_sys::PushCopiedSnapshot(pg_sys::GetActiveSnapshot());
        // Rows of statements before this one in the same function are seen.
        pg_sys::UpdateActiveSnapshotCommandId();
        let execution = pg_sys::CreateQueryDesc(
            statement,
            text.as_ptr(),
            pg_sys::GetActiveSnapshot(),
            std::ptr::null_mut(),
            (&raw mut receiver).cast(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        );
        start_written(|| pg_sys::ExecutorStart(execution, 0));
        let columns = list::attributes((*execution).tupDesc).into_iter().map(|attribute| RowColumn {
            name: attribute_name(attribute),
            type_oid: attribute.atttypid,
            type_modifier: attribute.atttypmod,
            not_null: false,
        });
        let columns: Vec<RowColumn> = columns.collect();
        let written = written_columns(&columns)?;
        let whole = execution::whole_query((*execution).planstate, server_oid, &written)?;
        let files = match whole {
            Some((request, origin)) => {
                let write = write_request(server_oid, target, form, written)?;
                let request = Request::WriteQuery(write, Box::new(request), origin);
                RunningQuery::start(server_oid, &request)?.written()?
            }
            None => {
                begin_progress();
                receiver.sink = Some(RowSink::begin(server_oid, target, form, &columns)?);
                compat::run_executor(execution);
                let Some(sink) = receiver.sink.take() else {
                    return Err(Error::internal("a query ended without its receiver"));
                };
                let files = sink.finish()?;
                // After an ERROR PostgreSQL does this itself.
                pg_sys::pgstat_progress_end_command();
                files
            }
        };
        pg_sys::ExecutorFinish(execution);
        pg_sys::ExecutorEnd(execution);
        pg_sys::FreeQueryDesc(execution);
        pg_sys::PopActiveSnapshot();
        Ok(files)
    }
}

/// Shows the write in `pg_stat_progress_copy`.
fn begin_progress() {
    let of_copy = |index: u32, value: u32| {
        // SAFETY: writes to the backend's own entry.
        unsafe { pg_sys::pgstat_progress_update_param(index as i32, i64::from(value)) };
    };
    // SAFETY: as above.
    unsafe {
        pg_sys::pgstat_progress_start_command(
            pg_sys::ProgressCommandType::PROGRESS_COMMAND_COPY,
            pg_sys::InvalidOid,
        );
    }
    of_copy(pg_sys::PROGRESS_COPY_COMMAND, pg_sys::PROGRESS_COPY_COMMAND_TO);
    of_copy(pg_sys::PROGRESS_COPY_TYPE, pg_sys::PROGRESS_COPY_TYPE_FILE);
}

/// The name of a result's column, in UTF-8.
fn attribute_name(attribute: &pg_sys::FormData_pg_attribute) -> String {
    // SAFETY: a name is a C string.
    unsafe { list::string(attribute.attname.data.as_ptr()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn receive_slot(
    slot: *mut pg_sys::TupleTableSlot,
    receiver: *mut pg_sys::DestReceiver,
) -> bool {
    // SAFETY: called by the executor with the receiver of `run`, and a row of the query.
    unsafe {
        let receiver = &mut *receiver.cast::<Receiver>();
        let Some(sink) = &mut receiver.sink else { raise(Error::internal("a row before its columns")) };
        pg_sys::slot_getallattrs(slot);
        let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
        let count = (*(*slot).tts_tupleDescriptor).natts.unsigned_abs() as usize;
        let cell = |place: usize| (!*nulls.add(place)).then(|| *values.add(place));
        sink.push((0..count).map(cell)).or_raise();
        receiver.row_count += 1;
        pg_sys::pgstat_progress_update_param(
            pg_sys::PROGRESS_COPY_TUPLES_PROCESSED as i32,
            receiver.row_count,
        );
    }
    true
}

#[pg_guard]
unsafe extern "C-unwind" fn start(
    _receiver: *mut pg_sys::DestReceiver,
    _operation: i32,
    _descriptor: pg_sys::TupleDesc,
) {
}

#[pg_guard]
unsafe extern "C-unwind" fn end(_receiver: *mut pg_sys::DestReceiver) {}
