//! The executor's callbacks of a foreign scan.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use pgrx::{PgMemoryContexts, pg_sys, prelude::*};
use pystachio_plan::{Error, QueryRequest, Request, Result};

use super::{
    parameters::Parameters,
    query::{QueryCost, RunningQuery},
};
use crate::{
    error::OrRaise,
    pg::list,
    scan_private::{ScanPrivate, decode_refusals, place},
    settings,
    types::{ColumnReader, ColumnSource, RowBlock},
};

/// What a scan node keeps between its rows. Lives in the query's memory context, and is dropped with it.
pub struct ScanState {
    /// What the planner left.
    pub private: ScanPrivate,
    parameters: Option<Parameters>,
    columns: Vec<ColumnReader>,
    block: RowBlock,
    batch: Option<(arrow_array::RecordBatch, usize)>,
    query: Option<RunningQuery>,
    /// What the queries before the running one have cost: a rescan starts a new one.
    cost: Option<QueryCost>,
    with_metrics: bool,
}

impl ScanState {
    /// What the scan has cost, or `None` if it never ran.
    pub fn cost(&self) -> Option<QueryCost> {
        match (&self.query, &self.cost) {
            (Some(query), Some(before)) => Some(sum_costs(before, query.cost())),
            (Some(query), None) => Some(query.cost()),
            (None, before) => before.clone(),
        }
    }

    fn start(&mut self, context: *mut pg_sys::ExprContext) -> Result<()> {
        let plan = &self.private.plan;
        let (plan, parameters) = match &self.parameters {
            // SAFETY: the context of this scan's node.
            Some(parameters) => unsafe { parameters.bind(plan, context)? },
            None => (plan.clone(), Vec::new()),
        };
        let request = Request::Run(Box::new(QueryRequest {
            plan,
            planned_files: self.private.files.clone(),
            parameters,
            with_metrics: self.with_metrics,
            batch_rows_max: settings::batch_rows(),
            device: settings::device(),
            engine: settings::engine_choice(),
        }));
        self.query = Some(RunningQuery::start(pg_sys::Oid::from(self.private.server_oid), &request)?);
        Ok(())
    }

    /// Fills the block with the next rows; `false` after the last.
    fn fill_block(&mut self) -> Result<bool> {
        // Datums of the last block may point into the batch, so it goes only now.
        loop {
            if let Some((batch, row_offset)) = &mut self.batch
                && *row_offset < batch.num_rows()
            {
                *row_offset += self.block.fill(batch, *row_offset, &mut self.columns)?;
                return Ok(true);
            }
            self.batch = None;
            let Some(query) = &mut self.query else { return Ok(false) };
            match query.next_batch()? {
                Some(batch) => self.batch = Some((batch, 0)),
                None => return Ok(false),
            }
        }
    }

    fn stop(&mut self) {
        self.cost = self.cost();
        self.query = None;
        self.batch = None;
        self.block.clear();
    }
}

/// Reads the plan and prepares the conversion of rows. Starts nothing: EXPLAIN comes here too.
#[pg_guard]
pub unsafe extern "C-unwind" fn begin_foreign_scan(node: *mut pg_sys::ForeignScanState, flags: i32) {
    // SAFETY: called by the executor with a node that it has set up.
    unsafe {
        let scan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let private = read_private(scan).or_raise();
        let explain_only = flags as u32 & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0;
        let columns = if explain_only { Vec::new() } else { columns(node, &private).or_raise() };
        let parameters = (!explain_only).then(|| Parameters::new(node, scan, &private.parameters).or_raise());
        let state = ScanState {
            private,
            parameters,
            columns,
            block: RowBlock::default(),
            batch: None,
            query: None,
            cost: None,
            // The node's own instrument is allocated after this.
            with_metrics: (*(*node).ss.ps.state).es_instrument != 0,
        };
        let context = (*(*node).ss.ps.state).es_query_cxt;
        (*node).fdw_state = PgMemoryContexts::For(context).leak_and_drop_on_delete(state).cast();
    }
}

/// The next row, in the scan's slot.
#[pg_guard]
pub unsafe extern "C-unwind" fn iterate_foreign_scan(
    node: *mut pg_sys::ForeignScanState,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor after `begin_foreign_scan`.
    unsafe {
        let state = &mut *(*node).fdw_state.cast::<ScanState>();
        let slot = (*node).ss.ss_ScanTupleSlot;
        loop {
            if let Some((values, nulls)) = state.block.next_row() {
                store_row(slot, values, nulls);
                return slot;
            }
            if state.query.is_none() {
                state.start((*node).ss.ps.ps_ExprContext).or_raise();
            }
            if !state.fill_block().or_raise() {
                return pg_sys::ExecClearTuple(slot);
            }
        }
    }
}

/// Starts again, perhaps with other parameters.
#[pg_guard]
pub unsafe extern "C-unwind" fn rescan_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: as of `iterate_foreign_scan`.
    unsafe { (*(*node).fdw_state.cast::<ScanState>()).stop() }
}

/// Ends the scan; what the engine still does for it stops.
#[pg_guard]
pub unsafe extern "C-unwind" fn end_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: as of `iterate_foreign_scan`; NULL if the scan never began.
    unsafe {
        if let Some(state) = (*node).fdw_state.cast::<ScanState>().as_mut() {
            state.stop();
        }
    }
}

/// What the planner left in the node.
///
/// # Errors
///
/// `Internal` if it is not what [`ScanPrivate`] says.
///
/// # Safety
///
/// `scan` is a valid plan node.
pub unsafe fn read_private(scan: *mut pg_sys::ForeignScan) -> Result<ScanPrivate> {
    // SAFETY: the caller says so.
    let bytes = unsafe { private_bytes(scan, place::SCAN) };
    let bytes = bytes.ok_or_else(|| Error::internal("foreign scan without a plan"))?;
    ScanPrivate::decode(&bytes)
}

/// Why parts of the scan's query were not pushed down.
///
/// # Errors
///
/// `Internal` if the planner left something else.
///
/// # Safety
///
/// `scan` is a valid plan node.
pub unsafe fn read_refusals(scan: *mut pg_sys::ForeignScan) -> Result<Vec<String>> {
    // SAFETY: the caller says so.
    let bytes = unsafe { private_bytes(scan, place::REFUSALS) };
    bytes.map_or_else(|| Ok(Vec::new()), |bytes| decode_refusals(&bytes))
}

unsafe fn private_bytes(scan: *mut pg_sys::ForeignScan, place: usize) -> Option<Vec<u8>> {
    // SAFETY: a valid plan node, whose list holds bytea constants.
    unsafe {
        let constant = list::pointers::<pg_sys::Const>((*scan).fdw_private).nth(place)?;
        Vec::<u8>::from_datum((*constant).constvalue, (*constant).constisnull)
    }
}

/// One reader for each attribute of the slot, which must be of the type that was planned.
unsafe fn columns(node: *mut pg_sys::ForeignScanState, private: &ScanPrivate) -> Result<Vec<ColumnReader>> {
    // SAFETY: the executor has set the slot up.
    let descriptor = unsafe { list::attributes((*(*node).ss.ss_ScanTupleSlot).tts_tupleDescriptor) };
    if descriptor.len() != private.attributes.len() {
        let (slot, plan) = (descriptor.len(), private.attributes.len());
        return Err(Error::internal(format!("scan has {slot} attributes, its plan {plan}")));
    }
    let mut columns = Vec::with_capacity(descriptor.len());
    for (planned, actual) in private.attributes.iter().zip(descriptor.iter()) {
        let is_read = planned.output_index.is_some();
        if is_read && actual.atttypid.to_u32() != planned.type_oid {
            let (name, planned) = (actual.name(), planned.type_oid);
            let message =
                format!("attribute \"{name}\" is of type {}, planned as {planned}", actual.atttypid);
            return Err(Error::internal(message));
        }
        let mut type_modifier = planned.type_modifier;
        // SAFETY: a catalog lookup that takes and sets a modifier.
        let type_oid = unsafe { pg_sys::getBaseTypeAndTypmod(actual.atttypid, &mut type_modifier) };
        columns.push(ColumnReader::new(ColumnSource {
            output_index: planned.output_index.map(|index| index as usize),
            display_scale: planned.display_scale,
            // What nobody reads is NULL, whatever its type.
            type_oid: if is_read { type_oid } else { pg_sys::BOOLOID },
            type_modifier,
        })?);
    }
    Ok(columns)
}

/// Stores a row as a virtual tuple.
///
/// As ExecClearTuple and ExecStoreVirtualTuple do, without calling them for each row: only a slot that
/// somebody has materialised has something to free.
unsafe fn store_row(slot: *mut pg_sys::TupleTableSlot, values: &[pg_sys::Datum], nulls: &[bool]) {
    // SAFETY: the slot has as many attributes as the plan, which `columns` has checked.
    unsafe {
        if u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_SHOULDFREE != 0 {
            pg_sys::ExecClearTuple(slot);
        }
        std::ptr::copy_nonoverlapping(values.as_ptr(), (*slot).tts_values, values.len());
        std::ptr::copy_nonoverlapping(nulls.as_ptr(), (*slot).tts_isnull, nulls.len());
        (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
        (*slot).tts_nvalid = values.len() as i16;
    }
}

fn sum_costs(before: &QueryCost, now: QueryCost) -> QueryCost {
    let metrics = match (&before.metrics, now.metrics) {
        (Some(before), Some(now)) => Some(super::explain::sum_metrics(before, now)),
        (before, now) => now.or_else(|| before.clone()),
    };
    QueryCost {
        metrics,
        run_count: before.run_count + now.run_count,
        waited: before.waited + now.waited,
        elapsed: before.elapsed + now.elapsed,
    }
}
