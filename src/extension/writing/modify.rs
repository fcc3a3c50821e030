//! The callbacks of INSERT, COPY FROM and TRUNCATE.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use std::path::Path;

use pgrx::{PgMemoryContexts, pg_sys, prelude::*};
use pystachio_plan::{
    ColumnContent, Error, ErrorKind, PATTERN_LETTERS, RANK_PLACEHOLDER, Request, Result, WriteForm,
    WriteTarget,
};

use super::{
    delete::{self, files_there},
    locks,
    rows::{RowColumn, RowSink, write_request, written_columns},
    transaction,
};
use crate::{
    error::{OrRaise, raise},
    execution::{self, ExplainWriter},
    options,
    pg::{
        compat, list,
        tree::{Ref, table_name},
    },
    stores::ServerUser,
};

/// What a target of INSERT or COPY FROM keeps between rows. Lives in the query's memory context, and is dropped with it.
struct InsertState {
    /// Absent before the first row, and at the end.
    sink: Option<RowSink>,
    /// The attributes that are written, in order.
    attributes: Vec<usize>,
    /// The role whose user mapping counts.
    role: u32,
    has_constraints: bool,
    /// Rows come by the table's own name, not by that of the table that it is a partition of.
    checks_partition: bool,
}

/// Sets the callbacks.
pub fn fill_routine(routine: &mut pg_sys::FdwRoutine) {
    delete::fill_routine(routine);
    routine.IsForeignRelUpdatable = Some(is_foreign_rel_updatable);
    routine.PlanForeignModify = Some(plan_foreign_modify);
    routine.BeginForeignModify = Some(begin_foreign_modify);
    routine.ExecForeignInsert = Some(exec_foreign_insert);
    routine.EndForeignModify = Some(end_foreign_insert);
    routine.BeginForeignInsert = Some(begin_foreign_insert);
    routine.EndForeignInsert = Some(end_foreign_insert);
    routine.ExplainForeignModify = Some(explain_foreign_modify);
    routine.ExecForeignTruncate = Some(exec_foreign_truncate);
}

/// What may be done with a table's rows: INSERT, and DELETE of partitions, if the table says so.
#[pg_guard]
unsafe extern "C-unwind" fn is_foreign_rel_updatable(relation: pg_sys::Relation) -> i32 {
    // SAFETY: called by PostgreSQL with an open relation.
    let table = options::table_options(unsafe { (*relation).rd_id });
    if table.writable { (1 << pg_sys::CmdType::CMD_INSERT) | (1 << pg_sys::CmdType::CMD_DELETE) } else { 0 }
}

/// Refuses a statement before it runs, with the way out.
#[pg_guard]
unsafe extern "C-unwind" fn plan_foreign_modify(
    root: *mut pg_sys::PlannerInfo,
    plan: *mut pg_sys::ModifyTable,
    target: pg_sys::Index,
    _subplan: i32,
) -> *mut pg_sys::List {
    // SAFETY: called by the planner with its structures.
    let (planning, operation) = unsafe { (Ref::<pg_sys::PlannerInfo>::known(root), (*plan).operation) };
    if let Some(entry) = planning.entry(target as usize) {
        let table_oid = entry.table_oid();
        match operation {
            pg_sys::CmdType::CMD_INSERT => require_writable(table_oid, "insert into"),
            // SAFETY: as above.
            pg_sys::CmdType::CMD_DELETE => unsafe { delete::refuse(root, plan, target, table_oid) },
            _ => refuse_update(table_oid),
        }
    }
    std::ptr::null_mut()
}

fn refuse_update(table_oid: pg_sys::Oid) {
    let name = table_name(table_oid);
    let message = format!("cannot update foreign table \"{name}\": rows of Parquet files are not changed");
    raise(Error::new(ErrorKind::NotSupported, message).with_hint(
        "INSERT rows, and DELETE whole partitions or TRUNCATE the table: what is inserted and removed in one transaction shows together.",
    ));
}

/// Raises an ERROR unless rows can be written to the table.
pub fn require_writable(table_oid: pg_sys::Oid, action: &str) {
    if !options::table_options(table_oid).writable {
        let name = table_name(table_oid);
        let message = format!("cannot {action} foreign table \"{name}\": it is not writable");
        raise(Error::new(ErrorKind::NotSupported, message).with_hint(format!(
            "Let a role with pg_write_server_files run ALTER FOREIGN TABLE \"{name}\" OPTIONS (ADD writable 'true')."
        )));
    }
}

/// TRUNCATE: all files go with the commit, and one without rows comes, so that the table can be read.
#[pg_guard]
unsafe extern "C-unwind" fn exec_foreign_truncate(
    relations: *mut pg_sys::List,
    _behavior: pg_sys::DropBehavior::Type,
    _restarts_sequences: bool,
) {
    // SAFETY: called by TRUNCATE with relations that it has opened and locked.
    for relation in unsafe { list::pointers::<pg_sys::RelationData>(relations) } {
        // SAFETY: as above.
        let table_oid = unsafe { (*relation).rd_id };
        require_writable(table_oid, "truncate");
        // SAFETY: as above.
        unsafe { truncate(relation, 0).or_raise() };
    }
}

/// Has all files of a table go with the commit, and one without rows come, with what the role's user mapping allows; 0: the current role.
///
/// # Errors
///
/// Those of the engine.
///
/// # Safety
///
/// The relation is open. No other session reads its files or writes to them.
pub unsafe fn truncate(relation: pg_sys::Relation, role: u32) -> Result<()> {
    // SAFETY: the caller has the relation open.
    let attributes = unsafe { written_attributes(relation) };
    // SAFETY: as above.
    let (server_oid, target, form, columns) = unsafe { target_of_table(relation, &attributes)? };
    let WriteTarget::Folder { path: folder, stem } = target else {
        return Err(Error::internal("a table's new files belong to a folder"));
    };
    let user = ServerUser { server_oid, role };
    let there = files_there(user, &folder)?.into_iter().map(|file| file.path.into()).collect();
    let own = transaction::own_files(Path::new(&folder)).into_iter().map(|(path, _)| path);
    transaction::remove_at_commit(user, &folder, there, &own.collect::<Vec<_>>())?;
    let target = WriteTarget::File { path: format!("{folder}/{stem}-0.parquet"), overwrite: false };
    // The file is in no partition's folder, so it has their columns too. Other files lack them.
    let columns = columns.into_iter().map(|column| {
        let not_null = column.not_null && !form.partition_by.contains(&column.name);
        RowColumn { not_null, ..column }
    });
    let columns: Vec<_> = columns.collect();
    RowSink::begin(user, target, WriteForm::default(), &columns)?.finish().map(drop)
}

/// Prepares an INSERT. EXPLAIN comes here too.
#[pg_guard]
unsafe extern "C-unwind" fn begin_foreign_modify(
    node: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
    _private: *mut pg_sys::List,
    _subplan: i32,
    flags: i32,
) {
    // SAFETY: called by the executor with a node that it has set up.
    unsafe {
        begin(node, target);
        if flags as u32 & pg_sys::EXEC_FLAG_EXPLAIN_ONLY == 0 {
            locks::share((*(*target).ri_RelationDesc).rd_id);
            write_whole(node, target).or_raise();
        }
    }
}

/// Has the engine write the rows itself if it computes all of them, and nothing is to be done with a row but to write it.
unsafe fn write_whole(node: *mut pg_sys::ModifyTableState, target: *mut pg_sys::ResultRelInfo) -> Result<()> {
    // SAFETY: as of `begin_foreign_modify`; the node below has been set up before.
    unsafe {
        if !rows_are_only_written(node, target) {
            return Ok(());
        }
        let state = &*(*target).ri_FdwState.cast::<InsertState>();
        let (server_oid, folder, form, columns) =
            target_of_table((*target).ri_RelationDesc, &state.attributes)?;
        let written = written_columns(&columns)?;
        let input = (*node).ps.lefttree;
        if let Some((request, origin)) = execution::whole_query(input, server_oid, &written)? {
            let write = write_request(ServerUser { server_oid, role: state.role }, folder, form, written)?;
            execution::write_instead(input, Request::WriteQuery(write, Box::new(request), origin));
        }
    }
    Ok(())
}

/// Whether nothing is to be done with a row but to write it.
unsafe fn rows_are_only_written(
    node: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
) -> bool {
    // SAFETY: as of `begin_foreign_modify`.
    unsafe {
        let plan = (*node).ps.plan.cast::<pg_sys::ModifyTable>();
        let relation = (*target).ri_RelationDesc;
        let state = &*(*target).ri_FdwState.cast::<InsertState>();
        let constraints = (*(*relation).rd_att).constr.as_ref();
        let checks = constraints.is_some_and(|constraints| {
            constraints.has_not_null || constraints.num_check > 0 || constraints.has_generated_stored
        });
        let rows_are_seen = !(*target).ri_TrigDesc.is_null()
            || !(*plan).returningLists.is_null()
            || !(*plan).withCheckOptionLists.is_null();
        (*plan).operation == pg_sys::CmdType::CMD_INSERT
            && (*plan).canSetTag
            && (*node).mt_nrels == 1
            && !checks
            && !state.checks_partition
            && !rows_are_seen
            && state.attributes.len() == (*(*relation).rd_att).natts.unsigned_abs() as usize
    }
}

/// Shows the writer of the rows, the target and the options.
#[pg_guard]
unsafe extern "C-unwind" fn explain_foreign_modify(
    node: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
    _private: *mut pg_sys::List,
    _subplan: i32,
    explain: *mut pg_sys::ExplainState,
) {
    // SAFETY: called by EXPLAIN with a node that began; a partition that no row has come to has no state.
    unsafe {
        let Some(state) = (*target).ri_FdwState.cast::<InsertState>().as_ref() else { return };
        let (server_oid, folder, form, columns) =
            target_of_table((*target).ri_RelationDesc, &state.attributes).or_raise();
        let input = (*node).ps.lefttree;
        let files = execution::written_files(input);
        let is_whole = match (*explain).analyze {
            true => files.is_some(),
            false => {
                rows_are_only_written(node, target)
                    && execution::is_whole_query(input, server_oid, &written_columns(&columns).or_raise())
            }
        };
        let writer = ExplainWriter::new(explain);
        writer
            .text("Written By", if is_whole { "the engine" } else { "the engine, from rows of PostgreSQL" });
        if let WriteTarget::Folder { path, .. } = folder {
            writer.text("Written To", &path);
        }
        let form = options::form_options(&form).into_iter().map(|(name, value)| format!("{name} '{value}'"));
        let form = form.collect::<Vec<_>>().join(", ");
        if !form.is_empty() {
            writer.text("Options", &form);
        }
        if let Some(files) = files {
            writer.number("Files Written", files.len() as u64);
            writer.bytes("Bytes Written", files.iter().map(|file| file.bytes).sum());
        }
    }
}

/// Prepares a COPY FROM, or a partition for rows that are inserted into the table above it.
#[pg_guard]
unsafe extern "C-unwind" fn begin_foreign_insert(
    node: *mut pg_sys::ModifyTableState,
    target: *mut pg_sys::ResultRelInfo,
) {
    // SAFETY: called by the executor, or by COPY, with a node that it has set up.
    unsafe {
        begin(node, target);
        locks::share((*(*target).ri_RelationDesc).rd_id);
    }
}

unsafe fn begin(node: *mut pg_sys::ModifyTableState, target: *mut pg_sys::ResultRelInfo) {
    // SAFETY: as the callers say; the relation is open.
    unsafe {
        let descriptor = (*(*target).ri_RelationDesc).rd_att;
        let is_partition = (*(*(*target).ri_RelationDesc).rd_rel).relispartition;
        let state = InsertState {
            sink: None,
            attributes: written_attributes((*target).ri_RelationDesc),
            role: compat::role_of_target((*node).ps.state, target).into(),
            has_constraints: !(*descriptor).constr.is_null(),
            checks_partition: is_partition && (*target).ri_RootResultRelInfo.is_null(),
        };
        let context = (*(*node).ps.state).es_query_cxt;
        (*target).ri_FdwState = PgMemoryContexts::For(context).leak_and_drop_on_delete(state).cast();
    }
}

/// The places of the attributes that files hold.
unsafe fn written_attributes(relation: pg_sys::Relation) -> Vec<usize> {
    // SAFETY: the caller has the relation open.
    let attributes = unsafe { list::attributes((*relation).rd_att) };
    let is_written =
        |attribute: &pg_sys::FormData_pg_attribute| !attribute.attisdropped && !compat::is_virtual(attribute);
    (0..attributes.len()).filter(|place| is_written(attributes[*place])).collect()
}

/// Adds a row. It is returned as it was given: RETURNING and triggers see it.
#[pg_guard]
unsafe extern "C-unwind" fn exec_foreign_insert(
    executor: *mut pg_sys::EState,
    target: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    _plan_slot: *mut pg_sys::TupleTableSlot,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor after `begin`, with a row of the table.
    unsafe {
        let state = &mut *(*target).ri_FdwState.cast::<InsertState>();
        // PostgreSQL checks neither of foreign tables.
        if state.has_constraints {
            pg_sys::ExecConstraints(target, slot, executor);
        }
        if state.checks_partition {
            pg_sys::ExecPartitionCheck(target, slot, executor, true);
        }
        // Taken out meanwhile: an ERROR that unwinds from here closes it.
        let mut sink = match state.sink.take() {
            Some(sink) => sink,
            None => sink_of((*target).ri_RelationDesc, state).or_raise(),
        };
        pg_sys::slot_getallattrs(slot);
        let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
        let cell = |place: &usize| (!*nulls.add(*place)).then(|| *values.add(*place));
        sink.push(state.attributes.iter().map(cell)).or_raise();
        state.sink = Some(sink);
    }
    slot
}

/// Completes the files of an INSERT or COPY FROM.
#[pg_guard]
unsafe extern "C-unwind" fn end_foreign_insert(
    _executor: *mut pg_sys::EState,
    target: *mut pg_sys::ResultRelInfo,
) {
    // SAFETY: as of `exec_foreign_insert`; NULL below EXPLAIN.
    let state = unsafe { (*target).ri_FdwState.cast::<InsertState>().as_mut() };
    if let Some(sink) = state.and_then(|state| state.sink.take()) {
        sink.finish().or_raise();
    }
}

/// Begins to write rows of the table.
unsafe fn sink_of(relation: pg_sys::Relation, state: &InsertState) -> Result<RowSink> {
    // SAFETY: the caller has the relation open.
    let (server_oid, target, form, columns) = unsafe { target_of_table(relation, &state.attributes)? };
    RowSink::begin(ServerUser { server_oid, role: state.role }, target, form, &columns)
}

/// The server, the folder, the form and the columns of a table's new files.
unsafe fn target_of_table(
    relation: pg_sys::Relation,
    written: &[usize],
) -> Result<(pg_sys::Oid, WriteTarget, WriteForm, Vec<RowColumn>)> {
    // SAFETY: the relation is open.
    let (table_oid, attributes) = unsafe { ((*relation).rd_id, list::attributes((*relation).rd_att)) };
    let table = options::table_options(table_oid);
    let columns = written.iter().filter_map(|place| attributes.get(*place)).map(|attribute| RowColumn {
        name: options::column_name(table_oid, attribute.attnum),
        type_oid: attribute.atttypid,
        type_modifier: attribute.atttypmod,
        // SAFETY: the statement has locked the table.
        not_null: unsafe { compat::is_not_null(table_oid, attribute) },
    });
    let is_of_files = |place: &&usize| {
        let number = attributes.get(**place).map_or(0, |attribute| attribute.attnum);
        options::column_content(table_oid, number) != ColumnContent::Column
    };
    if let Some(attribute) = written.iter().find(is_of_files).and_then(|place| attributes.get(*place)) {
        // SAFETY: a name is a C string.
        let column = unsafe { list::string(attribute.attname.data.as_ptr()) };
        let message = format!(
            "cannot write to foreign table \"{}\": its column \"{column}\" has the option \"reads\"",
            table_name(table_oid)
        );
        return Err(Error::new(ErrorKind::NotSupported, message)
            .with_hint("Write to a table over the same folder that is without the column."));
    }
    let target = WriteTarget::Folder { path: folder_of_table(table_oid)?, stem: super::stem() };
    Ok((table.server_oid, target, table.form, columns.collect()))
}

/// The folder that a table's new files go to.
///
/// # Errors
///
/// `NotSupported` if it has no such folder.
pub fn folder_of_table(table_oid: pg_sys::Oid) -> Result<String> {
    let refused = |what: &str| {
        let message = format!("cannot write to foreign table \"{}\": {what}", table_name(table_oid));
        Err(Error::new(ErrorKind::NotSupported, message)
            .with_hint("Set the table's option \"path\" to the folder that new files go to."))
    };
    match options::table_options(table_oid).files.paths.as_slice() {
        [path] if path.contains(RANK_PLACEHOLDER) => refused("each rank has files of its own"),
        [path] if path.contains(PATTERN_LETTERS) && !Path::new(path).is_dir() => {
            refused("its path is a pattern")
        }
        [path] => Ok(path.trim_end_matches('/').to_owned()),
        _ => refused("it has several paths"),
    }
}
