//! The nodes of a join in which keys of the one side filter a scan of the other: see `planner/keyed_join.rs`.
//!
//! - `Keyed Join`, above the join: passes its rows on, and forgets the keys before anything below is started again for
//!   another small side
//! - `Join Keys`, above the small side: reads it to its end, notes its keys, and then gives its rows
//! - [`Keys`]: what the two and the scan share, in an executor parameter
//!
//! Invariants: while a small side's keys are known they do not change. A small side that is started again with nothing
//! changed gives the same rows, even if it is volatile, as long as all its rows are kept. Kept rows
//! take `work_mem`, then temporary files, and are `pystachio.join_keys` at most. The keys take `work_mem` at most.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use std::{
    cell::{Cell, RefCell},
    ptr::null_mut,
};

use pgrx::{PgMemoryContexts, pg_sys, pg_sys::NodeTag, prelude::*};

use super::{
    custom_node::{NO_METHODS, NodeState, create_node, is_empty, own},
    explain::Writer,
};
use crate::{
    pg::{compat::Shared, list},
    settings,
};

/// Makes the node that is above the join.
pub static KEYED_JOIN_SCAN: Shared<pg_sys::CustomScanMethods> = Shared(pg_sys::CustomScanMethods {
    CustomName: c"Keyed Join".as_ptr(),
    CreateCustomScanState: Some(create_keyed_join),
});

/// Makes the node that is above the small side.
pub static JOIN_KEYS_SCAN: Shared<pg_sys::CustomScanMethods> = Shared(pg_sys::CustomScanMethods {
    CustomName: c"Join Keys".as_ptr(),
    CreateCustomScanState: Some(create_join_keys),
});

static KEYED_JOIN: Shared<pg_sys::CustomExecMethods> = Shared(pg_sys::CustomExecMethods {
    CustomName: c"Keyed Join".as_ptr(),
    BeginCustomScan: Some(begin_keyed_join),
    ExecCustomScan: Some(next_joined),
    EndCustomScan: Some(end_keyed_join),
    ReScanCustomScan: Some(rescan_keyed_join),
    ..NO_METHODS
});

static JOIN_KEYS: Shared<pg_sys::CustomExecMethods> = Shared(pg_sys::CustomExecMethods {
    CustomName: c"Join Keys".as_ptr(),
    BeginCustomScan: Some(begin_join_keys),
    ExecCustomScan: Some(next_small),
    EndCustomScan: Some(end_join_keys),
    ReScanCustomScan: Some(rescan_join_keys),
    ExplainCustomScan: Some(explain_join_keys),
    ..NO_METHODS
});

/// The keys of a small side.
pub struct Keys {
    state: RefCell<KeysState>,
    /// Counts how often known keys were forgotten: what was filtered by them is out of date.
    generation: Cell<u64>,
    /// The executor's parameters that the small side reads.
    reads: Cell<*mut pg_sys::Bitmapset>,
}

#[derive(Default)]
enum KeysState {
    /// The small side was not read, or something that it depends on has changed.
    #[default]
    Unknown,
    /// The small side has more rows than are kept.
    TooMany,
    /// For each key an array of its values, without NULLs.
    Known(Vec<pg_sys::Datum>),
}

impl Keys {
    fn new() -> Self {
        Self { state: RefCell::default(), generation: Cell::new(0), reads: Cell::new(null_mut()) }
    }

    /// The array of a key's values, if they are known.
    pub fn array(&self, key: u32) -> Option<pg_sys::Datum> {
        match &*self.state.borrow() {
            KeysState::Known(arrays) => arrays.get(key as usize).copied(),
            KeysState::Unknown | KeysState::TooMany => None,
        }
    }

    /// A number that changes when rows that were filtered by the keys are out of date.
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Forgets the keys. Returns whether something may have been filtered by them.
    fn forget(&self) -> bool {
        let were_known = matches!(self.state.take(), KeysState::Known(_));
        self.generation.set(self.generation.get() + u64::from(were_known));
        were_known
    }
}

/// The keys that the parts of a join share by an executor parameter.
///
/// # Safety
///
/// A keyed join with this parameter has begun in the executor's state, and outlives the result.
pub unsafe fn shared_keys<'a>(estate: *mut pg_sys::EState, place: i32) -> &'a Keys {
    // SAFETY: as the caller says; the join has put them there.
    unsafe { &*(*(*estate).es_param_exec_vals.add(place as usize)).value.cast_mut_ptr::<Keys>() }
}

/// Starts the only child of a node, whose rows the node passes on.
unsafe fn begin_child(
    node: *mut pg_sys::CustomScanState,
    estate: *mut pg_sys::EState,
    flags: i32,
) -> *mut pg_sys::PlanState {
    // SAFETY: called by the executor with a node that it has set up; it has one child.
    unsafe {
        let scan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        let Some(plan) = list::pointers::<pg_sys::Plan>((*scan).custom_plans).next() else {
            pgrx::error!("a node of a keyed join has no child");
        };
        let child = pg_sys::ExecInitNode(plan, estate, flags);
        (*node).custom_ps = pg_sys::lappend(null_mut(), child.cast());
        // The rows are in slots of the child's kind, and not in the node's own.
        (*node).ss.ps.scanopsset = true;
        (*node).ss.ps.scanopsfixed = false;
        pg_sys::ExecAssignScanProjectionInfoWithVarno(&raw mut (*node).ss, pg_sys::INDEX_VAR);
        child
    }
}

unsafe fn child(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::PlanState {
    // SAFETY: as of `begin_child`, which has put it there.
    unsafe { list::pointers::<pg_sys::PlanState>((*node).custom_ps).next().unwrap_or(null_mut()) }
}

unsafe fn place(node: *mut pg_sys::CustomScanState) -> i32 {
    // SAFETY: the planner has left one integer.
    unsafe {
        let scan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        let place = list::pointers::<pg_sys::Integer>((*scan).custom_private).next();
        place.map_or(0, |place| (*place).ival)
    }
}

/// The row as the node's target wants it.
unsafe fn projected(
    node: *mut pg_sys::CustomScanState,
    slot: *mut pg_sys::TupleTableSlot,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor with a node that it has set up.
    unsafe {
        let projection = (*node).ss.ps.ps_ProjInfo;
        if is_empty(slot) || projection.is_null() {
            return slot;
        }
        let context = (*node).ss.ps.ps_ExprContext;
        pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
        (*context).ecxt_scantuple = slot;
        pg_sys::ExecProject(projection)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn create_keyed_join(_scan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: called by the executor.
    unsafe { create_node::<Keys>(&raw const KEYED_JOIN.0) }
}

#[pg_guard]
unsafe extern "C-unwind" fn begin_keyed_join(
    node: *mut pg_sys::CustomScanState,
    estate: *mut pg_sys::EState,
    flags: i32,
) {
    // SAFETY: called by the executor with a node that it has set up, and with room for all parameters of the plan.
    unsafe {
        let keys = PgMemoryContexts::For((*estate).es_query_cxt).leak_and_drop_on_delete(Keys::new());
        (*node.cast::<NodeState<Keys>>()).own = keys;
        let parameter = (*estate).es_param_exec_vals.add(place(node) as usize);
        (*parameter).value = pg_sys::Datum::from(keys);
        (*parameter).isnull = false;
        begin_child(node, estate, flags);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn next_joined(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor after `begin_keyed_join`.
    unsafe { projected(node, pg_sys::ExecProcNode(child(node))) }
}

#[pg_guard]
unsafe extern "C-unwind" fn rescan_keyed_join(node: *mut pg_sys::CustomScanState) {
    // SAFETY: as of `next_joined`; a join has two children, and a condition without columns may be above it.
    unsafe {
        let keys: &Keys = own(node);
        let join = child(node);
        let changed = (*node).ss.ps.chgParam;
        if pg_sys::bms_overlap(changed, keys.reads.get()) {
            let were_known = keys.forget();
            let mut joining = join;
            while (*joining).righttree.is_null() && !(*joining).lefttree.is_null() {
                joining = (*joining).lefttree;
            }
            // The scan depends on what the small side does, which PostgreSQL does not know: a hash table of its rows must go.
            if let (Some(built), true) = ((*joining).righttree.as_mut(), were_known) {
                built.chgParam = pg_sys::bms_add_member(built.chgParam, place(node));
            }
            // A join that knows of outer rows would read the inner side first. Whether there are any is not known again.
            if (*joining).type_ == NodeTag::T_HashJoinState {
                (*joining.cast::<pg_sys::HashJoinState>()).hj_OuterNotEmpty = false;
            }
        }
        if !changed.is_null() {
            pg_sys::UpdateChangedParamSet(join, changed);
        }
        if (*join).chgParam.is_null() {
            pg_sys::ExecReScan(join);
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_keyed_join(node: *mut pg_sys::CustomScanState) {
    // SAFETY: as of `next_joined`.
    unsafe { pg_sys::ExecEndNode(child(node)) }
}

/// The small side's rows, and how far they were read.
struct SmallSide {
    keys: &'static Keys,
    /// The key columns, whose values are noted for each row.
    operands: Vec<Operand>,
    phase: Phase,
    /// The rows that were read; NULL while there are none.
    store: *mut pg_sys::Tuplestorestate,
    /// Holds the row that was read last from the store.
    slot: *mut pg_sys::TupleTableSlot,
    /// The arrays of keys.
    memory: pg_sys::MemoryContext,
    row_count: u64,
}

struct Operand {
    state: *mut pg_sys::ExprState,
    /// The array's element type.
    type_oid: pg_sys::Oid,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was read.
    Waiting,
    /// All rows are in the store.
    Kept,
    /// The first rows are in the store, and the others are still to be read.
    Passing,
}

#[pg_guard]
unsafe extern "C-unwind" fn create_join_keys(_scan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: called by the executor.
    unsafe { create_node::<SmallSide>(&raw const JOIN_KEYS.0) }
}

#[pg_guard]
unsafe extern "C-unwind" fn begin_join_keys(
    node: *mut pg_sys::CustomScanState,
    estate: *mut pg_sys::EState,
    flags: i32,
) {
    // SAFETY: called by the executor with a node that it has set up, below a keyed join that has begun.
    unsafe {
        let scan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        let keys = shared_keys(estate, place(node));
        keys.reads.set((*scan).scan.plan.allParam);
        let child = begin_child(node, estate, flags);
        let operands = list::pointers::<pg_sys::Node>((*scan).custom_exprs).map(|operand| Operand {
            state: pg_sys::ExecInitExpr(operand.cast(), node.cast()),
            type_oid: pg_sys::getBaseType(pg_sys::exprType(operand)),
        });
        let memory = pg_sys::AllocSetContextCreateExtended(
            (*estate).es_query_cxt,
            c"pystachio join keys".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let descriptor = pg_sys::ExecGetResultType(child);
        let small = SmallSide {
            keys,
            operands: operands.collect(),
            phase: Phase::Waiting,
            store: null_mut(),
            slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
            memory,
            row_count: 0,
        };
        (*node.cast::<NodeState<SmallSide>>()).own =
            PgMemoryContexts::For((*estate).es_query_cxt).leak_and_drop_on_delete(small);
    }
}

impl SmallSide {
    /// Reads the rows, as far as they are kept, and notes their keys.
    unsafe fn read(&mut self, node: *mut pg_sys::CustomScanState) {
        // SAFETY: called while the executor asks for a row of the node.
        unsafe {
            let rows_max = u64::from(settings::join_keys());
            let bytes_max = keys_bytes_max();
            let former = pg_sys::MemoryContextSwitchTo((*(*node).ss.ps.state).es_query_cxt);
            self.store = pg_sys::tuplestore_begin_heap(false, false, pg_sys::work_mem);
            pg_sys::MemoryContextSwitchTo(former);
            let context = (*node).ss.ps.ps_ExprContext;
            let new_array = |operand: &Operand| pg_sys::initArrayResult(operand.type_oid, self.memory, false);
            let mut arrays: Vec<_> = self.operands.iter().map(new_array).collect();
            self.row_count = 0;
            loop {
                let slot = pg_sys::ExecProcNode(child(node));
                if is_empty(slot) {
                    break;
                }
                pg_sys::tuplestore_puttupleslot(self.store, slot);
                self.row_count += 1;
                if self.row_count > rows_max
                    || pg_sys::MemoryContextMemAllocated(self.memory, false) > bytes_max
                {
                    self.phase = Phase::Passing;
                    self.keys.state.replace(KeysState::TooMany);
                    pg_sys::MemoryContextReset(self.memory);
                    return;
                }
                pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
                (*context).ecxt_scantuple = slot;
                for (operand, array) in self.operands.iter().zip(&mut arrays) {
                    let mut is_null = false;
                    let value = pg_sys::ExecEvalExprSwitchContext(operand.state, context, &raw mut is_null);
                    // NULL equals nothing.
                    if !is_null {
                        *array =
                            pg_sys::accumArrayResult(*array, value, false, operand.type_oid, self.memory);
                    }
                }
            }
            self.phase = Phase::Kept;
            let arrays = arrays.into_iter().map(|array| pg_sys::makeArrayResult(array, self.memory));
            self.keys.state.replace(KeysState::Known(arrays.collect()));
        }
    }

    /// The next kept row; `None` after the last.
    unsafe fn next_kept(&mut self) -> Option<*mut pg_sys::TupleTableSlot> {
        // SAFETY: the slot has the attributes of the rows.
        unsafe {
            let is_found =
                !self.store.is_null() && pg_sys::tuplestore_gettupleslot(self.store, true, false, self.slot);
            is_found.then_some(self.slot)
        }
    }

    unsafe fn drop_kept(&mut self) {
        // SAFETY: the slot may hold a row of the store.
        unsafe {
            pg_sys::ExecClearTuple(self.slot);
            if !self.store.is_null() {
                pg_sys::tuplestore_end(self.store);
                self.store = null_mut();
            }
            self.phase = Phase::Waiting;
        }
    }
}

/// What the arrays of keys may take, which have to be sent to an engine: `work_mem`, and not more than a value of PostgreSQL.
fn keys_bytes_max() -> usize {
    const VALUE_BYTES_MAX: usize = 256 << 20;
    // SAFETY: a setting of this backend.
    let kilobytes = unsafe { pg_sys::work_mem };
    (kilobytes.unsigned_abs() as usize * 1024).min(VALUE_BYTES_MAX)
}

#[pg_guard]
unsafe extern "C-unwind" fn next_small(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor after `begin_join_keys`.
    unsafe {
        let small: &mut SmallSide = own(node);
        if small.phase == Phase::Waiting {
            small.read(node);
        }
        let slot = match small.next_kept() {
            Some(slot) => slot,
            None if small.phase == Phase::Passing => {
                if !small.store.is_null() {
                    pg_sys::ExecClearTuple(small.slot);
                    pg_sys::tuplestore_end(small.store);
                    small.store = null_mut();
                }
                pg_sys::ExecProcNode(child(node))
            }
            None => return pg_sys::ExecClearTuple(small.slot),
        };
        projected(node, slot)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn rescan_join_keys(node: *mut pg_sys::CustomScanState) {
    // SAFETY: as of `next_small`.
    unsafe {
        let small: &mut SmallSide = own(node);
        let changed = (*node).ss.ps.chgParam;
        if changed.is_null() && small.phase == Phase::Kept {
            pg_sys::ExecClearTuple(small.slot);
            pg_sys::tuplestore_rescan(small.store);
            return;
        }
        small.drop_kept();
        small.keys.forget();
        pg_sys::MemoryContextReset(small.memory);
        let below = child(node);
        if !changed.is_null() {
            pg_sys::UpdateChangedParamSet(below, changed);
        }
        if (*below).chgParam.is_null() {
            pg_sys::ExecReScan(below);
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_join_keys(node: *mut pg_sys::CustomScanState) {
    // SAFETY: as of `next_small`.
    unsafe {
        let small: &mut SmallSide = own(node);
        small.drop_kept();
        pg_sys::ExecDropSingleTupleTableSlot(small.slot);
        pg_sys::ExecEndNode(child(node));
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn explain_join_keys(
    node: *mut pg_sys::CustomScanState,
    ancestors: *mut pg_sys::List,
    explain: *mut pg_sys::ExplainState,
) {
    // SAFETY: called by EXPLAIN with a node that has begun.
    unsafe {
        let small: &SmallSide = own(node);
        let scan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        let context = pg_sys::set_deparse_context_plan((*explain).deparse_cxt, (*node).ss.ps.plan, ancestors);
        let has_many = (*explain).verbose || !(*explain).rtable.is_null() && (*(*explain).rtable).length > 1;
        let operands = list::pointers::<pg_sys::Node>((*scan).custom_exprs)
            .map(|operand| list::string(pg_sys::deparse_expression(operand, context, has_many, false)));
        let writer = Writer::new(explain);
        writer.text("Keys", &operands.collect::<Vec<_>>().join(", "));
        if (*explain).analyze {
            writer.text("Filter by Keys", &small.outcome());
        }
    }
}

impl SmallSide {
    /// Whether the keys were used, and why not, for EXPLAIN.
    fn outcome(&self) -> String {
        match (self.phase, self.row_count) {
            (Phase::Waiting, _) => "not used, as no row was read".into(),
            (Phase::Passing, rows) => format!("not used, as there were too many rows ({rows})"),
            (Phase::Kept, rows) => format!("of {rows} rows"),
        }
    }
}
