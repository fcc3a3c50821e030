//! Code that all our own nodes of PostgreSQL's executor share.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use pgrx::{pg_sys, pg_sys::NodeTag};

/// Methods of a node, none of which are there.
pub const NO_METHODS: pg_sys::CustomExecMethods = pg_sys::CustomExecMethods {
    CustomName: std::ptr::null(),
    BeginCustomScan: None,
    ExecCustomScan: None,
    EndCustomScan: None,
    ReScanCustomScan: None,
    MarkPosCustomScan: None,
    RestrPosCustomScan: None,
    EstimateDSMCustomScan: None,
    InitializeDSMCustomScan: None,
    ReInitializeDSMCustomScan: None,
    InitializeWorkerCustomScan: None,
    ShutdownCustomScan: None,
    ExplainCustomScan: None,
};

/// The state of a node: PostgreSQL's comes first.
#[repr(C)]
pub struct NodeState<T> {
    custom: pg_sys::CustomScanState,
    /// Set when the node begins; dropped with the query's memory context.
    pub own: *mut T,
}

/// A node's state before it begins.
///
/// # Safety
///
/// Called by the executor.
pub unsafe fn create_node<T>(methods: *const pg_sys::CustomExecMethods) -> *mut pg_sys::Node {
    // SAFETY: zeroes are a valid state.
    unsafe {
        let state = pg_sys::palloc0(size_of::<NodeState<T>>()).cast::<NodeState<T>>();
        (*state).custom.ss.ps.type_ = NodeTag::T_CustomScanState;
        (*state).custom.methods = methods;
        state.cast()
    }
}

/// What we keep of a node.
///
/// # Safety
///
/// [`create_node`] has made the node with this type, it has begun, and no one else has a reference to it.
pub unsafe fn own<'a, T>(node: *mut pg_sys::CustomScanState) -> &'a mut T {
    // SAFETY: the node was made by `create_node` with the type, and has begun.
    unsafe { &mut *(*node.cast::<NodeState<T>>()).own }
}

/// Whether a slot has no row.
///
/// # Safety
///
/// A slot of the executor, or NULL.
pub unsafe fn is_empty(slot: *mut pg_sys::TupleTableSlot) -> bool {
    // SAFETY: a slot of the executor, or NULL.
    unsafe { slot.is_null() || u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_EMPTY != 0 }
}
