//! The executor's callbacks of a foreign scan.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use pgrx::{PgMemoryContexts, pg_sys, prelude::*};
use pystachio_plan::{
    DataType, Error, Literal, Operator, Plan, QueryOrigin, QueryRequest, Relation, Request, Result,
    WrittenColumn, WrittenFile,
};

use super::{
    coming::{self, ComingValue},
    kept_rows::KeptRows,
    keyed_join::{Keys, shared_keys},
    limits::check_limits,
    lookup::{BatchRows, Lookup, LookupTable, QUERIES_MAX, WantedKeys, rows_max},
    parameters::{Parameters, with_settled_moments},
    query::{QueryCost, RunningQuery},
    send_rows::{prepare, sent_files},
    temp_files,
};
use crate::{
    error::OrRaise,
    known_files,
    pg::{
        compat, list,
        tree::{Ref, Started},
    },
    privileges,
    scan_private::{DisplayScale, KeyParameter, ScanPrivate, decode_refusals, place},
    settings,
    stores::{self, ServerUser},
    types::{ColumnReader, ColumnSource, RowBlock, base_type, is_carried},
    writing,
};

/// What a scan node keeps between its rows. Lives in the query's memory context, and is dropped with it.
pub struct ScanState {
    /// What the planner left.
    pub private: ScanPrivate,
    parameters: Option<Parameters>,
    /// The keys of the other side of a join, and which parameters they are.
    join_keys: Option<ScanKeys>,
    /// What sends rows of PostgreSQL's to the engine; NULL where the plan has none.
    sender: *mut pg_sys::PlanState,
    /// The parameters of PostgreSQL's executor that those are computed from.
    reads: *mut pg_sys::Bitmapset,
    columns: Vec<ColumnReader>,
    block: RowBlock,
    /// Whether the block is the last, and all its rows were given.
    is_exhausted: bool,
    /// The rows of a batch that come after the block.
    batch: Option<BatchRows>,
    query: Option<RunningQuery>,
    /// The rows of this and later times, once the scan was started again with nothing changed.
    kept: Option<KeptRows>,
    lookup: Lookup,
    /// The parameters that are columns of another scan. It outlives the use of this one.
    pub coming: Vec<ComingValue>,
    /// What the queries before the running one have cost: a rescan starts a new one.
    cost: Option<QueryCost>,
    with_metrics: bool,
    /// The engine writes the rows of the query, and the scan gives none.
    written: Option<WrittenScan>,
    /// The server's number of the statement; 0 where it computes none.
    query_id: i64,
    /// The role that started the statement. Another one may fetch from its cursor.
    role: u32,
}

/// A query whose rows the engine writes.
enum WrittenScan {
    /// It has not run.
    Waiting(Box<Request>),
    /// It has, and these are its files.
    Done(Vec<WrittenFile>),
}

/// What filters the scan of a keyed join.
struct ScanKeys {
    keys: &'static Keys,
    parameters: Vec<KeyParameter>,
    /// The generation of the keys by which the scan's rows were filtered.
    generation: u64,
}

impl ScanKeys {
    /// The arrays of keys now, by the parameters that stand for them.
    fn arrays(&self) -> BTreeMap<u32, Option<pg_sys::Datum>> {
        self.parameters.iter().map(|parameter| (parameter.index, self.keys.array(parameter.key))).collect()
    }
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

    /// Whether what was counted would tell the current role of rows that are hidden from it.
    pub fn hides_counts(&self) -> bool {
        self.private.hides_rows && !privileges::reads_all_statistics()
    }

    fn start(&mut self, context: *mut pg_sys::ExprContext) -> Result<()> {
        let plan = &self.private.plan;
        let keys = self.join_keys.as_mut().map_or_else(BTreeMap::new, |join_keys| {
            join_keys.generation = join_keys.keys.generation();
            join_keys.arrays()
        });
        let (plan, parameters) = match &self.parameters {
            // SAFETY: the context of this scan's node; the join has arrays of its keys' types.
            Some(parameters) => unsafe { parameters.bind(plan, context, &keys)? },
            None => (Rc::new(plan.clone()), Vec::new()),
        };
        check_limits(&plan.root, &parameters);
        // Rows that are kept come back in the order in which they came first.
        if self.kept.is_none() && self.look_up(&plan, &parameters, context)? {
            return Ok(());
        }
        let plan = match self.private.sent_rows.is_empty() {
            true => plan,
            false => {
                // SAFETY: the scan's own child, which the executor has set up.
                let files = unsafe { sent_files(self.sender)? };
                Rc::new(Plan { root: plan.root.with_sent_files(&files), outputs: plan.outputs.clone() })
            }
        };
        self.query = Some(self.run(&plan, parameters)?);
        Ok(())
    }

    /// Whether what rows of PostgreSQL's depend on has changed since they were sent.
    fn has_old_rows(&self) -> bool {
        // SAFETY: the scan's own child, or NULL.
        unsafe { self.sender.as_ref().is_some_and(|sender| !sender.chgParam.is_null()) }
    }

    /// Starts with rows that were read for several keys, or are read now. False if the scan's own query must run.
    fn look_up(
        &mut self,
        plan: &Plan,
        parameters: &[Literal],
        context: *mut pg_sys::ExprContext,
    ) -> Result<bool> {
        let has_own_input = self.private.join_keys.is_some() || !self.private.sent_rows.is_empty();
        if self.lookup.query_count == 0 || has_own_input {
            return Ok(false);
        }
        if self.seek(plan, parameters)? {
            return Ok(true);
        }
        // The elements of an array are in the plan.
        if self.private.parameters.iter().any(|data_type| matches!(data_type, DataType::List(_))) {
            return Ok(false);
        }
        if self.lookup.query_count >= QUERIES_MAX && !self.lookup.is_whole_unfit {
            self.lookup.is_whole_unfit = true;
            if self.may_read_all(&plan.root) {
                let table = LookupTable::new(plan, &|_| true, None, parameters, hash_memory_bytes());
                if let Some((all, table)) = table
                    && self.load(all, table, parameters).is_ok_and(|is_complete| is_complete)
                {
                    return self.seek(plan, parameters);
                }
            }
        }
        // SAFETY: the context of this scan's node.
        let Some(wanted) = (unsafe { self.wanted_keys(parameters, context) }) else { return Ok(false) };
        let is_key = |index| self.coming.iter().any(|value| value.parameter == index);
        let table = LookupTable::new(plan, &is_key, Some(wanted), parameters, hash_memory_bytes());
        let Some((keyed, mut table)) = table else {
            self.lookup.keys_max = 0;
            return Ok(false);
        };
        if let Some(earlier) = self.lookup.table.take() {
            table.take_over(earlier);
        }
        match self.load(keyed, table, parameters) {
            Ok(true) => self.lookup.grow(),
            Ok(false) => self.lookup.shrink(),
            // A key fails, perhaps one that PostgreSQL would not ask for.
            Err(_) => self.lookup.keys_max = 0,
        }
        self.lookup.query_count += 1;
        self.seek(plan, parameters)
    }

    /// Whether it costs little to find out that the rows of all keys are too many. A scan ends when they are. A sort or an aggregate reads
    /// all rows before it gives the first, so that the table must be small.
    fn may_read_all(&self, relation: &Relation) -> bool {
        match &relation.operator {
            Operator::Scan { .. } => true,
            Operator::Filter { input, .. }
            | Operator::Project { input, .. }
            | Operator::Limit { input, .. } => self.may_read_all(input),
            Operator::Sort { input, .. } | Operator::Aggregate { input, .. } => {
                self.may_read_all(input) && self.is_small(input)
            }
            _ => false,
        }
    }

    /// Whether there is room for as many rows as the tables have.
    fn is_small(&self, relation: &Relation) -> bool {
        let rows_max = rows_max(hash_memory_bytes());
        relation.scans().into_iter().all(|scan| {
            let Operator::Scan { files, .. } = scan else { return false };
            let known = known_files::find(&(self.private.server_oid, files.clone()));
            known.is_some_and(|table| table.row_count <= rows_max)
        })
    }

    /// Starts with rows that are here; false if they are not.
    fn seek(&mut self, plan: &Plan, parameters: &[Literal]) -> Result<bool> {
        let Some(table) = &self.lookup.table else { return Ok(false) };
        let Some(sought) = table.seek(parameters) else { return Ok(false) };
        if table.lacks(&sought) {
            let mut batches = Vec::new();
            self.query = Some(self.run(plan, table.nothing(parameters))?);
            while let Some(query) = &mut self.query
                && let Some(batch) = query.next_batch()?
            {
                batches.push(Rc::new(batch));
            }
            self.stop();
            if let Some(table) = &mut self.lookup.table {
                table.keep_over_nothing(batches);
            }
        }
        self.lookup.sought = Some(sought);
        Ok(true)
    }

    /// The keys that are asked for now and next, as far as their rows are not here; `None` if these are less than two.
    unsafe fn wanted_keys(
        &self,
        parameters: &[Literal],
        context: *mut pg_sys::ExprContext,
    ) -> Option<WantedKeys> {
        let own = self.parameters.as_ref()?;
        let source = self.coming.first()?.source;
        let table = self.lookup.table.as_ref();
        let mut wanted = WantedKeys::default();
        let value_now = |value: &ComingValue| {
            let literal = parameters.get(value.parameter as usize)?;
            Some((value.parameter, literal.value.clone()))
        };
        wanted.add(&self.coming.iter().map(value_now).collect::<Option<Vec<_>>>()?, table);
        // SAFETY: the other scan waits while this one runs, and its rows are valid until it goes on.
        let rows = unsafe { (*source).coming_rows() };
        for (values, nulls) in rows {
            if wanted.count() >= self.lookup.keys_max {
                break;
            }
            let value_of = |value: &ComingValue| {
                let is_null = *nulls.get(value.attribute)?;
                // SAFETY: the column has the parameter's type.
                let literal = unsafe { own.literal(value.parameter, *values.get(value.attribute)?, context) };
                literal.filter(|_| !is_null).map(|literal| (value.parameter, literal.value))
            };
            if let Some(key) = self.coming.iter().map(value_of).collect::<Option<Vec<_>>>() {
                wanted.add(&key, table);
            }
        }
        (wanted.count() > 1).then_some(wanted)
    }

    fn run(&self, plan: &Plan, parameters: Vec<Literal>) -> Result<RunningQuery> {
        let (request, origin) = self.request(plan, parameters)?;
        let request = Request::Run(Box::new(request), origin);
        RunningQuery::start(pg_sys::Oid::from(self.private.server_oid), &request)
    }

    /// The scan's plan with the attributes at these places as the columns `wanted`; `None` if rows need PostgreSQL on the way.
    fn whole_plan(&self, places: &[usize], wanted: &[WrittenColumn]) -> Option<Plan> {
        let private = &self.private;
        if private.join_keys.is_some()
            || !private.sent_rows.is_empty()
            || !self.coming.is_empty()
            || places.len() != wanted.len()
        {
            return None;
        }
        let types = private.plan.root.columns();
        let mut outputs = Vec::with_capacity(wanted.len());
        for (place, column) in places.iter().zip(wanted) {
            let attribute = private.attributes.get(*place)?;
            let type_oid = pg_sys::Oid::from(attribute.type_oid);
            let id = attribute.output_index.and_then(|index| private.plan.outputs.get(index as usize));
            let found = id.and_then(|id| types.iter().find(|(found, _)| found == id));
            match found {
                // Values of domains are checked in PostgreSQL.
                Some((id, data_type))
                    if has_written_scale(attribute.display_scale, &column.data_type)
                        && base_type(type_oid, -1).0 == type_oid
                        && is_written_as(data_type, &column.data_type) =>
                {
                    outputs.push(*id);
                }
                _ => return None,
            }
        }
        Some(Plan { outputs, ..private.plan.clone() })
    }

    /// The request for such a plan.
    fn whole_request(
        &self,
        context: *mut pg_sys::ExprContext,
        plan: Plan,
    ) -> Result<(QueryRequest, QueryOrigin)> {
        let (plan, parameters) = match &self.parameters {
            // SAFETY: the context of this scan's node.
            Some(parameters) => unsafe { parameters.bind(&plan, context, &BTreeMap::new())? },
            None => (Rc::new(plan), Vec::new()),
        };
        check_limits(&plan.root, &parameters);
        self.request(&plan, parameters)
    }

    fn request(&self, plan: &Plan, parameters: Vec<Literal>) -> Result<(QueryRequest, QueryOrigin)> {
        let server_oid = pg_sys::Oid::from(self.private.server_oid);
        let access = stores::access_of_plan(ServerUser { server_oid, role: self.role }, plan)?;
        let request = QueryRequest {
            plan: with_settled_moments(plan, &parameters),
            planned_files: self.private.files.clone(),
            parameters,
            with_metrics: self.with_metrics,
            batch_rows_max: settings::batch_rows(),
            spill: temp_files::request(),
            device: settings::device(),
            engine: settings::engine_choice(),
            role: privileges::current_role(),
            access,
        };
        Ok((request, QueryOrigin { query_id: self.query_id, hides_counts: self.private.hides_rows }))
    }

    /// Reads the rows of several keys; false if they are too many.
    fn load(&mut self, plan: Plan, mut table: LookupTable, parameters: &[Literal]) -> Result<bool> {
        self.query = Some(self.run(&plan, table.nothing(parameters))?);
        let mut is_complete = true;
        while is_complete
            && let Some(query) = &mut self.query
            && let Some(batch) = query.next_batch()?
        {
            is_complete = table.add(batch);
        }
        self.stop();
        if is_complete {
            table.finish();
            self.lookup.table = Some(table);
        }
        Ok(is_complete)
    }

    /// Whether keys by which the scan's rows were filtered are out of date.
    fn has_old_keys(&self) -> bool {
        self.join_keys.as_ref().is_some_and(|join_keys| join_keys.generation != join_keys.keys.generation())
    }

    /// Whether the scan gives rows, or has given all.
    fn has_started(&self) -> bool {
        self.query.is_some() || self.lookup.sought.is_some()
    }

    /// Fills the block with the next rows; `false` after the last.
    fn fill_block(&mut self) -> Result<bool> {
        // Datums of the last block may point into the batch, so it goes only with the next.
        loop {
            if let Some((batch, rows)) = &mut self.batch
                && rows.start < rows.end
            {
                rows.start += self.block.fill(batch, rows.clone(), &mut self.columns)?;
                return Ok(true);
            }
            if !self.fetch_batch()? {
                return Ok(false);
            }
        }
    }

    /// Takes the next batch; `false` after the last.
    fn fetch_batch(&mut self) -> Result<bool> {
        let next = match (&mut self.lookup.sought, &self.lookup.table, &mut self.query) {
            (Some(sought), Some(table), _) => table.next_rows(sought),
            (None, _, Some(query)) => query.next_batch()?.map(|batch| {
                let rows = 0..batch.num_rows();
                (Rc::new(batch), rows)
            }),
            _ => None,
        };
        match next {
            // The rows of the last block stay where they are.
            Some((_, rows)) if rows.is_empty() => {}
            Some(next) => self.batch = Some(next),
            None => {
                self.is_exhausted = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rows that other scans may be started for: the one that was given last and those after it, or the last block.
    fn coming_rows(&self) -> impl Iterator<Item = (&[pg_sys::Datum], &[bool])> {
        self.block.rows(self.is_exhausted)
    }

    /// Forgets what is known of tables whose files are others than the plan was made for, and the plans that were made of it.
    unsafe fn forget_changed_files(&self, statement: *mut pg_sys::PlannedStmt) {
        let cost = self.cost();
        if cost.and_then(|cost| cost.metrics).is_some_and(|metrics| metrics.has_changed_files) {
            for planned in &self.private.files {
                known_files::forget_files(self.private.server_oid, &planned.files);
            }
            // SAFETY: the caller has the statement that it runs.
            known_files::forget_plans(unsafe { Ref::known(statement) });
        }
    }

    fn stop(&mut self) {
        self.cost = self.cost();
        if let Some(query) = self.query.take() {
            query.end();
        }
        self.forget_rows();
    }

    fn forget_rows(&mut self) {
        self.batch = None;
        self.block.clear();
        self.is_exhausted = false;
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
        if !explain_only {
            writing::share_read_files((*(*node).ss.ps.state).es_plannedstmt, &private.plan);
        }
        let columns = if explain_only { Vec::new() } else { columns(node, &private).or_raise() };
        let parameters = (!explain_only)
            .then(|| Parameters::new(node, scan, &private.parameters, &private.plan).or_raise());
        let join_keys = private.join_keys.as_ref().map(|join_keys| ScanKeys {
            keys: shared_keys((*node).ss.ps.state, join_keys.place),
            parameters: join_keys.parameters.clone(),
            generation: 0,
        });
        let server_oid = pg_sys::Oid::from(private.server_oid);
        prepare((*node).ss.ps.lefttree, server_oid, private.sent_rows.clone());
        let state = ScanState {
            private,
            parameters,
            join_keys,
            sender: (*node).ss.ps.lefttree,
            reads: pg_sys::pull_paramids((*scan).fdw_exprs.cast()),
            columns,
            block: RowBlock::default(),
            is_exhausted: false,
            batch: None,
            query: None,
            kept: None,
            lookup: Lookup::default(),
            coming: Vec::new(),
            cost: None,
            // The node's own instrument is allocated after this.
            with_metrics: (*(*node).ss.ps.state).es_instrument != 0,
            written: None,
            query_id: compat::query_id((*(*node).ss.ps.state).es_plannedstmt),
            role: privileges::current_role(),
        };
        if !explain_only && !state.reads.is_null() {
            coming::note_reader();
        }
        let context = (*(*node).ss.ps.state).es_query_cxt;
        (*node).fdw_state = PgMemoryContexts::For(context).leak_and_drop_on_delete(state).cast();
    }
}

/// Runs a scan that has begun until its first rows are here. For the scan at the top of a statement, whose rows are read next.
///
/// # Errors
///
/// Those of the query.
pub fn run_early(started: &Started<'_>) -> Result<()> {
    // SAFETY: the executor has set up its nodes, and no one else has the state of the scan now.
    unsafe {
        let node = (*started.pointer()).planstate;
        let Some(state) = coming::state_of(node) else { return Ok(()) };
        let (context, state) = ((*node).ps_ExprContext, &mut *state);
        let former = pg_sys::MemoryContextSwitchTo((*context).ecxt_per_tuple_memory);
        // Libraries count the time of the executor's run. This is a part of it, and may come before they have made their counter.
        let execution = started.pointer();
        if (*execution).totaltime.is_null() {
            let former = pg_sys::MemoryContextSwitchTo((*(*execution).estate).es_query_cxt);
            (*execution).totaltime =
                pg_sys::InstrAlloc(1, pg_sys::InstrumentOption::INSTRUMENT_ALL as i32, false);
            pg_sys::MemoryContextSwitchTo(former);
        }
        let counted = [(*execution).totaltime, (*node).instrument];
        let counted = || counted.into_iter().filter(|counter| !counter.is_null());
        counted().for_each(|counter| pg_sys::InstrStartNode(counter));
        let started = state.start(context).and_then(|()| state.fetch_batch()).map(drop);
        counted().for_each(|counter| pg_sys::InstrStopNode(counter, 0.0));
        pg_sys::MemoryContextSwitchTo(former);
        started
    }
}

/// A query that is a scan of the server's engine and nothing else, with its attributes as the columns `wanted`. It has begun.
///
/// # Errors
///
/// A parameter that the engine can't take.
///
/// # Safety
///
/// `node` is a node of a statement that has started, and has given no row.
pub unsafe fn whole_query(
    node: *mut pg_sys::PlanState,
    server_oid: pg_sys::Oid,
    wanted: &[WrittenColumn],
) -> Result<Option<(QueryRequest, QueryOrigin)>> {
    // SAFETY: as the caller says.
    unsafe {
        let Some((state, plan)) = whole_scan(node, server_oid, wanted) else { return Ok(None) };
        let context = (*node).ps_ExprContext;
        let former = pg_sys::MemoryContextSwitchTo((*context).ecxt_per_tuple_memory);
        let request = state.whole_request(context, plan);
        pg_sys::MemoryContextSwitchTo(former);
        request.map(Some)
    }
}

/// Whether [`whole_query`] gives a query.
///
/// # Safety
///
/// As of [`whole_query`], but the statement may be one that EXPLAIN has started.
pub unsafe fn is_whole_query(
    node: *mut pg_sys::PlanState,
    server_oid: pg_sys::Oid,
    wanted: &[WrittenColumn],
) -> bool {
    // SAFETY: as the caller says.
    unsafe { whole_scan(node, server_oid, wanted) }.is_some()
}

unsafe fn whole_scan<'a>(
    node: *mut pg_sys::PlanState,
    server_oid: pg_sys::Oid,
    wanted: &[WrittenColumn],
) -> Option<(&'a ScanState, Plan)> {
    // SAFETY: as the callers say. A projection or a condition is PostgreSQL's to evaluate.
    unsafe {
        let state = coming::state_of(node).and_then(|state| state.as_ref())?;
        let targets = list::pointers::<pg_sys::TargetEntry>((*(*node).plan).targetlist);
        let places = targets.map(|target| place_of(target)).collect::<Option<Vec<_>>>()?;
        if !(*node).qual.is_null() || state.has_started() || state.private.server_oid != server_oid.to_u32() {
            return None;
        }
        state.whole_plan(&places, wanted).map(|plan| (state, plan))
    }
}

/// The files that the engine has written of a scan's rows; `None` if it does not write them.
///
/// # Safety
///
/// The node has been set up.
pub unsafe fn written_files<'a>(node: *mut pg_sys::PlanState) -> Option<&'a [WrittenFile]> {
    // SAFETY: as the caller says; the state lives as long as the node.
    match unsafe { coming::state_of(node).and_then(|state| state.as_ref()) }?.written.as_ref()? {
        WrittenScan::Waiting(_) => Some(&[]),
        WrittenScan::Done(files) => Some(files),
    }
}

/// The place of the attribute that a scan's target is; `None` of what PostgreSQL computes.
unsafe fn place_of(target: *mut pg_sys::TargetEntry) -> Option<usize> {
    // SAFETY: the caller has a target of a valid plan.
    unsafe {
        let value = (*target).expr;
        if (*target).resjunk || (*value).type_ != pg_sys::NodeTag::T_Var {
            return None;
        }
        usize::try_from(i32::from((*value.cast::<pg_sys::Var>()).varattno) - 1).ok()
    }
}

/// Whether a number that is shown so has the digits after the point that its column is written with.
fn has_written_scale(display_scale: DisplayScale, written: &DataType) -> bool {
    match (display_scale, written) {
        (DisplayScale::OfType, _) => true,
        (DisplayScale::Fixed(shown), DataType::Decimal { scale, .. }) => shown == u16::from(*scale),
        _ => false,
    }
}

/// Has the engine write the rows of a scan, in the place of the statement, which counts them. The scan gives none then.
///
/// # Safety
///
/// The node is one of which [`whole_query`] has made `request`.
pub unsafe fn write_instead(node: *mut pg_sys::PlanState, request: Request) {
    // SAFETY: as the caller says.
    unsafe {
        if let Some(state) = coming::state_of(node).and_then(|state| state.as_mut()) {
            state.written = Some(WrittenScan::Waiting(Box::new(request)));
        }
    }
}

/// Whether an engine's column can be written as one of this type.
fn is_written_as(found: &DataType, written: &DataType) -> bool {
    match (found, written) {
        (DataType::Decimal { scale: found, .. }, DataType::Decimal { scale: written, .. }) => {
            found == written
        }
        (DataType::List(found), DataType::List(written)) => is_written_as(found, written),
        (found, written) => found == written,
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
        if let Some(written) = &mut state.written {
            if let WrittenScan::Waiting(request) = std::mem::replace(written, WrittenScan::Done(Vec::new())) {
                let server_oid = pg_sys::Oid::from(state.private.server_oid);
                let files =
                    RunningQuery::start(server_oid, &request).and_then(RunningQuery::written).or_raise();
                (*(*node).ss.ps.state).es_processed += files.iter().map(|file| file.row_count).sum::<u64>();
                state.written = Some(WrittenScan::Done(files));
            }
            return pg_sys::ExecClearTuple(slot);
        }
        if let Some(kept) = &mut state.kept
            && let Some((values, nulls)) = kept.next_row()
        {
            store_row(slot, values, nulls);
            return slot;
        }
        loop {
            if let Some((values, nulls)) = state.block.next_row() {
                store_row(slot, values, nulls);
                if let Some(kept) = &mut state.kept {
                    kept.add(values, nulls);
                }
                return slot;
            }
            if !state.has_started() {
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
    // SAFETY: as of `iterate_foreign_scan`; what the slot holds may be a kept row.
    unsafe {
        let state = &mut *(*node).fdw_state.cast::<ScanState>();
        pg_sys::ExecClearTuple((*node).ss.ss_ScanTupleSlot);
        if state.lookup.sought.take().is_some() {
            state.forget_rows();
        } else if pg_sys::bms_overlap((*node).ss.ps.chgParam, state.reads)
            || state.has_old_keys()
            || state.has_old_rows()
        {
            state.lookup.query_count += u32::from(state.query.is_some());
            state.stop();
            if let Some(kept) = state.kept.take() {
                kept.end();
            }
        } else if let Some(kept) = &mut state.kept {
            kept.rewind();
        } else if state.query.is_some() {
            state.stop();
            let former = pg_sys::MemoryContextSwitchTo((*(*node).ss.ps.state).es_query_cxt);
            state.kept = Some(KeptRows::new((*(*node).ss.ss_ScanTupleSlot).tts_tupleDescriptor));
            pg_sys::MemoryContextSwitchTo(former);
        }
    }
}

/// Ends the scan; what the engine still does for it stops.
#[pg_guard]
pub unsafe extern "C-unwind" fn end_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: as of `iterate_foreign_scan`; NULL if the scan never began.
    unsafe {
        if let Some(state) = (*node).fdw_state.cast::<ScanState>().as_mut() {
            state.stop();
            state.forget_changed_files((*(*node).ss.ps.state).es_plannedstmt);
            if let Some(kept) = state.kept.take() {
                pg_sys::ExecClearTuple((*node).ss.ss_ScanTupleSlot);
                kept.end();
            }
        }
    }
}

/// Nothing more is read, and EXPLAIN ANALYZE may come: what PostgreSQL has counted of rows that a policy hides is
/// forgotten where the role may not know.
#[pg_guard]
pub unsafe extern "C-unwind" fn shutdown_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: as of `end_foreign_scan`; a node that is not watched has no instrument.
    unsafe {
        let state = (*node).fdw_state.cast::<ScanState>().as_ref();
        if let (Some(state), Some(instrument)) = (state, (*node).ss.ps.instrument.as_mut())
            && state.hides_counts()
        {
            instrument.nfiltered1 = 0.0;
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
    let output_types: HashMap<_, _> = private.plan.root.columns().into_iter().collect();
    let mut columns = Vec::with_capacity(descriptor.len());
    for (planned, actual) in private.attributes.iter().zip(descriptor.iter()) {
        let is_read = planned.output_index.is_some();
        if is_read && actual.atttypid.to_u32() != planned.type_oid {
            let (name, planned) = (actual.name(), planned.type_oid);
            let message =
                format!("attribute \"{name}\" is of type {}, planned as {planned}", actual.atttypid);
            return Err(Error::internal(message));
        }
        // An unused column is NULL, whatever its type: a dropped one has none.
        let type_oid = if is_read { actual.atttypid } else { pg_sys::BOOLOID };
        let source = ColumnSource {
            output_index: planned.output_index.map(|index| index as usize),
            display_scale: planned.display_scale,
            type_oid,
            type_modifier: planned.type_modifier,
        };
        let output = source.output_index.and_then(|index| private.plan.outputs.get(index));
        let data_type = output.and_then(|id| output_types.get(id));
        let (base_oid, _) = base_type(type_oid, planned.type_modifier);
        columns.push(match data_type.is_some_and(|data_type| is_carried(data_type, base_oid)) {
            true => ColumnReader::of_carried(source),
            false => ColumnReader::new(source)?,
        });
    }
    Ok(columns)
}

/// What PostgreSQL lets a hash table take.
fn hash_memory_bytes() -> usize {
    // SAFETY: settings of this backend.
    let (kilobytes, factor) = unsafe { (pg_sys::work_mem, pg_sys::hash_mem_multiplier) };
    (f64::from(kilobytes) * 1024.0 * factor) as usize
}

/// Stores a row as a virtual tuple.
///
/// As ExecClearTuple and ExecStoreVirtualTuple do, without calling them for each row: only a slot that
/// was materialised has something to free.
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
