//! The node below a scan that sends rows of PostgreSQL's to the engine: see `planner/sent_rows.rs`.
//!
//! ```text
//! Foreign Scan        asks `Send Rows` for a row before it runs its plan, and gets none
//!   Send Rows         reads each child to its end, and sends its rows
//!     Seq Scan c
//! ```
//!
//! The engine keeps the rows of each child in spill files of the query. The connection that brought them holds them.
//!
//! Invariants: rows are sent once, and again only if something that they depend on has changed. All rows are sent before the plan
//! runs, so neither side waits for the other.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use std::{collections::BTreeMap, ptr::null_mut};

use pgrx::{PgMemoryContexts, pg_sys, prelude::*};
use pystachio_plan::{Error, ErrorKind, Result, WriteForm, WriteTarget};

use super::{
    custom_node::{NO_METHODS, NodeState, create_node, is_empty, own},
    explain::Writer,
    temp_files,
};
use crate::{
    error::OrRaise,
    pg::{compat::Shared, list},
    scan_private::SentRows,
    writing::{RowColumn, RowSink, SpilledRows},
};

/// Makes the node.
pub static SEND_ROWS_SCAN: Shared<pg_sys::CustomScanMethods> = Shared(pg_sys::CustomScanMethods {
    CustomName: c"Send Rows".as_ptr(),
    CreateCustomScanState: Some(create_send_rows),
});

static SEND_ROWS: Shared<pg_sys::CustomExecMethods> = Shared(pg_sys::CustomExecMethods {
    CustomName: c"Send Rows".as_ptr(),
    BeginCustomScan: Some(begin_send_rows),
    ExecCustomScan: Some(send_all),
    EndCustomScan: Some(end_send_rows),
    ReScanCustomScan: Some(rescan_send_rows),
    ExplainCustomScan: Some(explain_send_rows),
    ..NO_METHODS
});

/// The inputs that the node sends, and the rows that the engine holds of them.
struct Sending {
    server_oid: pg_sys::Oid,
    /// One for each child. Empty until the scan above begins.
    inputs: Vec<SentRows>,
    /// What the engine holds of each, once all is sent.
    held: Option<Vec<SpilledRows>>,
    /// Rows and bytes that were sent in all.
    counts: (u64, u64),
}

/// Says what the node below a scan sends, and to which server. Called when the scan begins.
///
/// # Safety
///
/// `node` is NULL or has been set up, below that scan.
pub unsafe fn prepare(node: *mut pg_sys::PlanState, server_oid: pg_sys::Oid, inputs: Vec<SentRows>) {
    // SAFETY: as the caller says.
    unsafe {
        if let Some(sending) = sending_of(node) {
            sending.server_oid = server_oid;
            sending.inputs = inputs;
        }
    }
}

/// Sends the rows, unless the engine has them, and returns the paths of their files by the inputs' numbers.
///
/// # Errors
///
/// `Internal` if the plan has lost the node; a value that files can't hold; those of the engine.
///
/// # Safety
///
/// As of [`prepare`], in a query that runs.
pub unsafe fn sent_files(node: *mut pg_sys::PlanState) -> Result<BTreeMap<u32, Vec<String>>> {
    // SAFETY: as the caller says.
    unsafe {
        if !node.is_null() {
            // A node keeps what it makes at its first row until it ends, and a scan is asked for rows in memory that goes with each.
            let former = pg_sys::MemoryContextSwitchTo((*(*node).state).es_query_cxt);
            pg_sys::ExecProcNode(node);
            pg_sys::MemoryContextSwitchTo(former);
        }
        let lost = || Error::internal("a scan has lost what sends its rows");
        let sending = sending_of(node).ok_or_else(lost)?;
        let held = sending.held.as_ref().ok_or_else(lost)?;
        let files = sending.inputs.iter().zip(held);
        Ok(files.map(|(input, rows)| (input.number, rows.paths().to_vec())).collect())
    }
}

unsafe fn sending_of<'a>(node: *mut pg_sys::PlanState) -> Option<&'a mut Sending> {
    // SAFETY: as the callers say. A custom scan's state has a custom scan as its plan.
    unsafe {
        if node.is_null() || (*node).type_ != pg_sys::NodeTag::T_CustomScanState {
            return None;
        }
        let methods = (*(*node).plan.cast::<pg_sys::CustomScan>()).methods;
        (methods == &raw const SEND_ROWS_SCAN.0).then(|| own(node.cast()))
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn create_send_rows(_scan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: called by the executor.
    unsafe { create_node::<Sending>(&raw const SEND_ROWS.0) }
}

#[pg_guard]
unsafe extern "C-unwind" fn begin_send_rows(
    node: *mut pg_sys::CustomScanState,
    estate: *mut pg_sys::EState,
    flags: i32,
) {
    // SAFETY: called by the executor with a node that it has set up.
    unsafe {
        let sending =
            Sending { server_oid: pg_sys::InvalidOid, inputs: Vec::new(), held: None, counts: (0, 0) };
        (*node.cast::<NodeState<Sending>>()).own =
            PgMemoryContexts::For((*estate).es_query_cxt).leak_and_drop_on_delete(sending);
        let scan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        for plan in list::pointers::<pg_sys::Plan>((*scan).custom_plans) {
            let child = pg_sys::ExecInitNode(plan, estate, flags);
            (*node).custom_ps = pg_sys::lappend((*node).custom_ps, child.cast());
        }
    }
}

/// Sends all rows. The node has none of its own.
#[pg_guard]
unsafe extern "C-unwind" fn send_all(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor after `begin_send_rows`.
    unsafe {
        let sending: &mut Sending = own(node);
        if sending.held.is_none() {
            let children = list::pointers::<pg_sys::PlanState>((*node).custom_ps);
            let mut held = Vec::new();
            for (child, input) in children.zip(&sending.inputs) {
                held.push(send(node, child, sending.server_oid, input).or_raise());
            }
            for rows in &held {
                temp_files::report(rows.bytes());
                sending.counts.0 += rows.row_count();
                sending.counts.1 += rows.bytes();
            }
            sending.held = Some(held);
        }
        null_mut()
    }
}

/// Sends the rows of one child.
unsafe fn send(
    node: *mut pg_sys::CustomScanState,
    child: *mut pg_sys::PlanState,
    server_oid: pg_sys::Oid,
    input: &SentRows,
) -> Result<SpilledRows> {
    // SAFETY: the executor has set up the nodes; a row's attributes have the types of the child's target.
    unsafe {
        let mut columns: Vec<RowColumn> = input
            .columns
            .iter()
            .map(|column| RowColumn {
                name: column.name.clone(),
                type_oid: pg_sys::Oid::from(column.type_oid),
                type_modifier: column.type_modifier,
                not_null: false,
            })
            .collect();
        // Files have a column.
        let only_counts = columns.is_empty();
        if only_counts {
            let (name, type_oid) = ("row".to_owned(), pg_sys::BOOLOID);
            columns.push(RowColumn { name, type_oid, type_modifier: -1, not_null: false });
        }
        let form = WriteForm { compression: "none".to_owned(), ..WriteForm::default() };
        let mut sink = RowSink::begin(server_oid, WriteTarget::Spill, form, &columns)?;
        let memory = (*(*node).ss.ps.ps_ExprContext).ecxt_per_tuple_memory;
        loop {
            let slot = pg_sys::ExecProcNode(child);
            if is_empty(slot) {
                break;
            }
            pg_sys::slot_getallattrs(slot);
            // What values are unpacked to goes with the row.
            pg_sys::MemoryContextReset(memory);
            let former = pg_sys::MemoryContextSwitchTo(memory);
            let pushed = if only_counts {
                sink.push(std::iter::once(None))
            } else {
                sink.push(input.columns.iter().map(|column| {
                    let place = column.place as usize;
                    let is_null = *(*slot).tts_isnull.add(place);
                    (!is_null).then(|| *(*slot).tts_values.add(place))
                }))
            };
            pg_sys::MemoryContextSwitchTo(former);
            pushed.map_err(with_way_out)?;
        }
        sink.finish_spilled()
    }
}

/// A value that engines don't have is one of PostgreSQL's to join.
fn with_way_out(error: Error) -> Error {
    let is_value = matches!(
        error.kind,
        ErrorKind::NotSupported
            | ErrorKind::NumericOutOfRange
            | ErrorKind::DatetimeOutOfRange
            | ErrorKind::InvalidText
    );
    match is_value {
        true => error.with_hint("With SET pystachio.send_rows = off PostgreSQL joins these rows itself."),
        false => error,
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn rescan_send_rows(node: *mut pg_sys::CustomScanState) {
    // SAFETY: as of `send_all`.
    unsafe {
        let changed = (*node).ss.ps.chgParam;
        // With nothing changed the rows are the same.
        if changed.is_null() {
            return;
        }
        own::<Sending>(node).held = None;
        for child in list::pointers::<pg_sys::PlanState>((*node).custom_ps) {
            pg_sys::UpdateChangedParamSet(child, changed);
            if (*child).chgParam.is_null() {
                pg_sys::ExecReScan(child);
            }
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_send_rows(node: *mut pg_sys::CustomScanState) {
    // SAFETY: as of `send_all`; a node that has not begun has nothing of its own.
    unsafe {
        if let Some(sending) = (*node.cast::<NodeState<Sending>>()).own.as_mut() {
            sending.held.take().into_iter().flatten().for_each(SpilledRows::release);
        }
        for child in list::pointers::<pg_sys::PlanState>((*node).custom_ps) {
            pg_sys::ExecEndNode(child);
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn explain_send_rows(
    node: *mut pg_sys::CustomScanState,
    _ancestors: *mut pg_sys::List,
    explain: *mut pg_sys::ExplainState,
) {
    // SAFETY: called by EXPLAIN with a node that has begun.
    unsafe {
        let sending: &Sending = own(node);
        if (*explain).analyze {
            let (rows, bytes) = sending.counts;
            Writer::new(explain).text("Sent", &format!("{rows} rows, {} kB", bytes.div_ceil(1024)));
        }
    }
}
