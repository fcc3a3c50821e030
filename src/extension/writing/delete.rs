//! DELETE of whole partitions: it removes the files of folders whose values meet the condition. No
//! row is read.
//!
//! PostgreSQL evaluates the condition, once for each folder, over a row that has the values of the folder alone. The files go with the
//! commit (`transaction.rs`): objects of stores right after it.
//!
//! Invariants: a condition reads columns of the table's option `partition_by` alone. Each file with rows has a value of each of them in
//! its path, or the DELETE fails. The statement locks the table's files (`locks.rs`): a session that reads it sees all of the partitions, or none.
#![expect(unsafe_code, reason = "PostgreSQL's planner and executor structures are C structures")]

use std::{
    ffi::CString,
    path::{Path, PathBuf},
};

use pgrx::{PgMemoryContexts, pg_sys, prelude::*};
use pystachio_plan::{DescribeExtent, Error, ErrorKind, FileDescription, FileSet, Result, folder_text};

use super::{
    locks,
    modify::{folder_of_table, require_writable, truncate},
    transaction::{self, remove_at_commit},
};
use crate::{
    client,
    error::{OrRaise, raise},
    execution::ExplainWriter,
    options,
    pg::{compat, encoding, list, tree::table_name},
    stores::ServerUser,
};

/// What a DELETE keeps.
struct DeleteState {
    /// The result relation.
    relation: pg_sys::Relation,
    /// The role whose user mapping counts.
    role: u32,
    /// Attributes that the condition reads: their numbers, and the columns' names in paths.
    keys: Vec<(usize, String)>,
    sets_tag: bool,
    is_done: bool,
}

/// Sets the callbacks.
pub fn fill_routine(routine: &mut pg_sys::FdwRoutine) {
    routine.PlanDirectModify = Some(plan_direct_modify);
    routine.BeginDirectModify = Some(begin_direct_modify);
    routine.IterateDirectModify = Some(iterate_direct_modify);
    routine.EndDirectModify = Some(end_direct_modify);
    routine.ExplainDirectModify = Some(explain_direct_modify);
    // PostgreSQL asks for it before it runs any DELETE.
    routine.ExecForeignDelete = Some(exec_foreign_delete);
}

/// Makes the scan of a DELETE of whole partitions into that DELETE.
#[pg_guard]
unsafe extern "C-unwind" fn plan_direct_modify(
    root: *mut pg_sys::PlannerInfo,
    plan: *mut pg_sys::ModifyTable,
    target: pg_sys::Index,
    _subplan: i32,
) -> bool {
    // SAFETY: called by the planner with its structures. The conditions are the planning's own, and are copied.
    unsafe {
        let (Ok(conditions), Some(scan)) = (whole_partitions(root, plan, target), scan_of(plan, target))
        else {
            return false;
        };
        (*scan).operation = pg_sys::CmdType::CMD_DELETE;
        (*scan).resultRelation = target;
        (*scan).scan.scanrelid = target;
        (*scan).scan.plan.qual = pg_sys::copyObjectImpl(conditions.cast()).cast();
        (*scan).fdw_exprs = std::ptr::null_mut();
        (*scan).fdw_scan_tlist = std::ptr::null_mut();
        (*scan).fdw_recheck_quals = std::ptr::null_mut();
        true
    }
}

/// Raises why rows can't be deleted so, with the way out.
///
/// # Safety
///
/// As of the planner's callbacks.
pub unsafe fn refuse(
    root: *mut pg_sys::PlannerInfo,
    plan: *mut pg_sys::ModifyTable,
    target: pg_sys::Index,
    table_oid: pg_sys::Oid,
) {
    require_writable(table_oid, "delete from");
    // SAFETY: as the caller says.
    let reason = unsafe {
        // `WHERE false` reads nothing.
        let reads_nothing = (*plan)
            .plan
            .lefttree
            .as_ref()
            .is_some_and(|input| input.type_ == pg_sys::NodeTag::T_Result && input.lefttree.is_null());
        match whole_partitions(root, plan, target) {
            _ if reads_nothing => return,
            Err(reason) => reason,
            Ok(_) => "triggers, generated columns or a view's CHECK OPTION need its rows".to_owned(),
        }
    };
    let name = table_name(table_oid);
    let keys = options::table_options(table_oid).form.partition_by;
    let hint = match keys.is_empty() {
        true => format!(
            "Rows are in files, which go as a whole: DELETE FROM \"{name}\" without WHERE, or TRUNCATE. For partitions, set the table's option partition_by."
        ),
        false => format!(
            "Whole partitions can be deleted: write a condition on columns of the table's option partition_by alone ({}), without subqueries, joins and RETURNING.",
            keys.join(", ")
        ),
    };
    let message = format!("cannot delete these rows of foreign table \"{name}\": {reason}");
    raise(Error::new(ErrorKind::NotSupported, message).with_hint(hint));
}

/// The scan that finds the rows, if the statement reads nothing else.
unsafe fn scan_of(plan: *mut pg_sys::ModifyTable, target: pg_sys::Index) -> Option<*mut pg_sys::ForeignScan> {
    // SAFETY: as of `plan_direct_modify`.
    unsafe {
        let input = (*plan).plan.lefttree;
        if input.is_null() || (*input).type_ != pg_sys::NodeTag::T_ForeignScan {
            return None;
        }
        let scan = input.cast::<pg_sys::ForeignScan>();
        let mut scanned = 0;
        let is_one = pg_sys::bms_get_singleton_member((*scan).fs_relids, &raw mut scanned);
        (is_one && u32::try_from(scanned) == Ok(target)).then_some(scan)
    }
}

/// The conditions of a DELETE of whole partitions, or why it is none.
unsafe fn whole_partitions(
    root: *mut pg_sys::PlannerInfo,
    plan: *mut pg_sys::ModifyTable,
    target: pg_sys::Index,
) -> std::result::Result<*mut pg_sys::List, String> {
    // SAFETY: as of `plan_direct_modify`.
    unsafe {
        let entry = *(*root).simple_rte_array.add(target as usize);
        let table_oid = (*entry).relid;
        let table = options::table_options(table_oid);
        if (*plan).operation != pg_sys::CmdType::CMD_DELETE || !table.writable {
            return Err("it is not writable".to_owned());
        }
        if !(*plan).returningLists.is_null() {
            return Err("RETURNING needs its rows".to_owned());
        }
        if !(*entry).securityQuals.is_null() || (*root).qual_security_level > 0 {
            return Err("row security or a security barrier says which rows may be seen".to_owned());
        }
        let Some(_) = scan_of(plan, target) else {
            return Err("the statement reads other tables too, or conditions that need no row".to_owned());
        };
        let relation = *(*root).simple_rel_array.add(target as usize);
        let conditions = pg_sys::extract_actual_clauses((*relation).baserestrictinfo, false);
        if pg_sys::contain_subplans(conditions.cast()) || !pg_sys::pull_paramids(conditions.cast()).is_null()
        {
            return Err("the condition has a subquery".to_owned());
        }
        if pg_sys::contain_volatile_functions(conditions.cast()) {
            return Err("the condition has a volatile function".to_owned());
        }
        for number in attributes_of(conditions, target) {
            if number <= 0 || !table.form.partition_by.contains(&options::column_name(table_oid, number)) {
                let column = match number {
                    0 => "the whole row".to_owned(),
                    number => {
                        format!("column \"{}\"", list::string(pg_sys::get_attname(table_oid, number, false)))
                    }
                };
                return Err(format!("the condition reads {column}, which is not a partition column"));
            }
        }
        Ok(conditions)
    }
}

/// The numbers of the attributes that conditions read; 0 is the whole row.
unsafe fn attributes_of(conditions: *mut pg_sys::List, target: pg_sys::Index) -> Vec<i16> {
    // SAFETY: the caller has conditions of a valid plan.
    unsafe {
        let mut found = std::ptr::null_mut();
        pg_sys::pull_varattnos(conditions.cast(), target, &raw mut found);
        let mut numbers = Vec::new();
        let mut member = pg_sys::bms_next_member(found, -1);
        while member >= 0 {
            numbers.extend(i16::try_from(member + pg_sys::FirstLowInvalidHeapAttributeNumber));
            member = pg_sys::bms_next_member(found, member);
        }
        numbers
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn begin_direct_modify(node: *mut pg_sys::ForeignScanState, flags: i32) {
    // SAFETY: called by the executor with a node that it has set up; the result relation is open.
    unsafe {
        let scan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let executor = (*node).ss.ps.state;
        if flags as u32 & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 {
            return;
        }
        let target = (*node).resultRelInfo;
        let (relation, role) = match target.as_ref() {
            Some(found) => (found.ri_RelationDesc, compat::role_of_target(executor, target)),
            None => ((*node).ss.ss_currentRelation, pg_sys::GetUserId()),
        };
        let table_oid = (*relation).rd_id;
        let attributes = attributes_of((*scan).scan.plan.qual, (*scan).scan.scanrelid);
        let keys = attributes.into_iter().filter_map(|number| {
            Some((usize::try_from(number - 1).ok()?, options::column_name(table_oid, number)))
        });
        let sets_tag = (*(*executor).es_plannedstmt).commandType == pg_sys::CmdType::CMD_DELETE;
        let state =
            DeleteState { relation, role: role.into(), keys: keys.collect(), sets_tag, is_done: false };
        (*node).fdw_state =
            PgMemoryContexts::For((*executor).es_query_cxt).leak_and_drop_on_delete(state).cast();
    }
}

/// Deletes all that is to be deleted, at the first call. No row is returned.
#[pg_guard]
unsafe extern "C-unwind" fn iterate_direct_modify(
    node: *mut pg_sys::ForeignScanState,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor after `begin_direct_modify`.
    unsafe {
        let state = &mut *(*node).fdw_state.cast::<DeleteState>();
        if !state.is_done {
            state.is_done = true;
            let row_count = delete(node, state).or_raise();
            if state.sets_tag {
                (*(*node).ss.ps.state).es_processed += row_count;
            }
        }
        pg_sys::ExecClearTuple((*node).ss.ss_ScanTupleSlot)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_direct_modify(_node: *mut pg_sys::ForeignScanState) {}

#[pg_guard]
unsafe extern "C-unwind" fn explain_direct_modify(
    node: *mut pg_sys::ForeignScanState,
    explain: *mut pg_sys::ExplainState,
) {
    // SAFETY: called by EXPLAIN with a node that began.
    unsafe {
        let relation = (*node).ss.ss_currentRelation;
        let folder = folder_of_table((*relation).rd_id).or_raise();
        let writer = ExplainWriter::new(explain);
        writer.text("Deletes", "whole partitions");
        writer.text("Deletes From", &folder);
    }
}

/// Never called: the planner refuses every DELETE that is not of whole partitions (`refuse`).
#[pg_guard]
unsafe extern "C-unwind" fn exec_foreign_delete(
    _executor: *mut pg_sys::EState,
    _target: *mut pg_sys::ResultRelInfo,
    _slot: *mut pg_sys::TupleTableSlot,
    _plan_slot: *mut pg_sys::TupleTableSlot,
) -> *mut pg_sys::TupleTableSlot {
    raise(Error::internal("a row of a file can't be deleted"))
}

/// Notes the files that go, and returns how many rows they have.
unsafe fn delete(node: *mut pg_sys::ForeignScanState, state: &DeleteState) -> Result<u64> {
    // SAFETY: the relation is open as long as the node.
    let (table_oid, user) = unsafe {
        let table_oid = (*state.relation).rd_id;
        let server_oid = options::table_options(table_oid).server_oid;
        (table_oid, ServerUser { server_oid, role: state.role })
    };
    locks::hold_alone(table_oid);
    let folder = folder_of_table(table_oid)?;
    let there = files_there(user, &folder)?;
    let there = there.into_iter().map(|file| (PathBuf::from(file.path), file.row_count));
    let there: Vec<_> = there.filter(|(path, _)| !transaction::is_removed(path)).collect();
    let own = transaction::own_files(Path::new(&folder));
    let all_count = there.len() + own.len();
    // SAFETY: the node's own slot and conditions.
    let (there, own) = unsafe { (chosen(node, state, there)?, chosen(node, state, own)?) };
    let row_count = there.iter().chain(&own).map(|(_, row_count)| row_count).sum();
    if there.len() + own.len() == all_count && all_count > 0 {
        // A table of which no file is left must have its columns.
        // SAFETY: the relation is open.
        unsafe { truncate(state.relation, state.role)? };
    } else {
        let paths = |files: Vec<(PathBuf, u64)>| files.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        remove_at_commit(user, &folder, paths(there), &paths(own))?;
    }
    Ok(row_count)
}

/// The files of a table's folder; none if it is not there.
///
/// # Errors
///
/// Those of the engine.
pub fn files_there(user: ServerUser, folder: &str) -> Result<Vec<FileDescription>> {
    let files = FileSet::parquet(vec![format!("{folder}/")]);
    match client::describe_newest(user, &[files], DescribeExtent::All)?.pop() {
        Some(Ok(description)) => Ok(description.files),
        Some(Err(error)) if error.kind != ErrorKind::FileNotFound => Err(error),
        _ => Ok(Vec::new()),
    }
}

/// The files whose values of folders meet the conditions.
unsafe fn chosen(
    node: *mut pg_sys::ForeignScanState,
    state: &DeleteState,
    files: Vec<(PathBuf, u64)>,
) -> Result<Vec<(PathBuf, u64)>> {
    // SAFETY: the node and its expressions live; datums are made in the memory of a row.
    unsafe {
        let descriptor = (*state.relation).rd_att;
        let attributes = list::attributes(descriptor);
        // The executor calls in the memory of a row, which is reset for each folder.
        let query = (*(*node).ss.ps.state).es_query_cxt;
        let slot = PgMemoryContexts::For(query)
            .switch_to(|_| pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual));
        let context = (*node).ss.ps.ps_ExprContext;
        let mut chosen = Vec::new();
        let mut last: Option<(PathBuf, bool)> = None;
        for (path, row_count) in files {
            let parent = path.parent().unwrap_or(&path).to_owned();
            let is_chosen = match &last {
                Some((known, is_chosen)) if *known == parent => *is_chosen,
                _ => {
                    pg_sys::check_for_interrupts!();
                    pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
                    let former = pg_sys::MemoryContextSwitchTo((*context).ecxt_per_tuple_memory);
                    let filled = fill(slot, state, &attributes, &path);
                    pg_sys::MemoryContextSwitchTo(former);
                    if !filled? {
                        // One that TRUNCATE leaves has no rows, and is in no partition.
                        if row_count == 0 {
                            continue;
                        }
                        return Err(without_keys(state, &path));
                    }
                    (*context).ecxt_scantuple = slot;
                    let conditions = (*node).ss.ps.qual;
                    conditions.is_null() || pg_sys::ExecQual(conditions, context)
                }
            };
            last = Some((parent, is_chosen));
            if is_chosen {
                chosen.push((path, row_count));
            }
        }
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        Ok(chosen)
    }
}

/// Puts the values of a path's folders into a row; false if the path lacks one.
unsafe fn fill(
    slot: *mut pg_sys::TupleTableSlot,
    state: &DeleteState,
    attributes: &[&pg_sys::FormData_pg_attribute],
    path: &Path,
) -> Result<bool> {
    // SAFETY: the slot has the table's columns, and the datums live as long as the row.
    unsafe {
        pg_sys::ExecClearTuple(slot);
        for place in 0..attributes.len() {
            *(*slot).tts_isnull.add(place) = true;
        }
        for (place, name) in &state.keys {
            let Some(text) = folder_text(path, name) else { return Ok(false) };
            let (Some(text), Some(attribute)) = (text, attributes.get(*place)) else { continue };
            let text = CString::new(encoding::to_server(text.as_bytes())?.into_owned())
                .map_err(|_| Error::internal("a folder's name with a zero byte"))?;
            let (mut input, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
            pg_sys::getTypeInputInfo(attribute.atttypid, &raw mut input, &raw mut parameter);
            let value =
                pg_sys::OidInputFunctionCall(input, text.as_ptr().cast_mut(), parameter, attribute.atttypmod);
            *(*slot).tts_values.add(*place) = value;
            *(*slot).tts_isnull.add(*place) = false;
        }
        pg_sys::ExecStoreVirtualTuple(slot);
    }
    Ok(true)
}

fn without_keys(state: &DeleteState, path: &Path) -> Error {
    let names = state.keys.iter().map(|(_, name)| format!("{name}=…")).collect::<Vec<_>>().join(", ");
    let message = format!("file \"{}\" is not in a folder of a partition: {names}", path.display());
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("Move its rows into partitions: read them from a table over the file, INSERT them, and remove the file.")
}
