//! The next parameters of a scan, where these are columns of another scan of ours that has read its
//! next rows already.
//!
//! ```text
//! Nested Loop                            x gives row after row, and has a block of them;
//!   Foreign Scan x                       y is started for each, with $0 = x.k
//!   Foreign Scan y [y.k = $0]
//! ```
//!
//! When the executor has started a statement, this module searches its nodes for nested loops and
//! SubPlans whose inner scans are ours, and whose parameters are columns that a scan of ours
//! returns. The inner scan then reads the rows of several keys at once ([`super::lookup`]). If a
//! sort or a hash table is between the two, the other scan has returned its last row when the inner
//! one starts. Then its last block of rows is known.
//!
//! Invariants: the values are a hint. A value that is never used, or not the next one, changes
//! which rows are read, and no result.
//!
//! Deliberately absent: computed keys, keys of PostgreSQL's tables, and unions.
#![expect(unsafe_code, reason = "PostgreSQL's executor structures are C structures")]

use std::cell::Cell;

use pgrx::{pg_sys, pg_sys::NodeTag};

use super::{
    keyed_join::{JOIN_KEYS_SCAN, KEYED_JOIN_SCAN},
    scan::{self, ScanState},
};
use crate::pg::{list, tree::Started};

/// A parameter of a scan, which is a column of another.
pub struct ComingValue {
    /// Its index among the scan's parameters.
    pub parameter: u32,
    /// The scan that has the column.
    pub source: *const ScanState,
    /// The column's place in the tuples of that scan.
    pub attribute: usize,
}

thread_local! {
    /// Whether a scan that reads parameters of the executor has begun since scans were linked.
    static HAS_READER: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a scan that reads parameters of the executor has begun.
pub fn note_reader() {
    HAS_READER.set(true);
}

/// Links the scans of a statement whose executor has started.
pub fn link_scans(started: &Started<'_>) {
    if !HAS_READER.take() {
        return;
    }
    // SAFETY: the states are those of the query, which the executor has set up.
    unsafe {
        let query = started.pointer();
        let estate = (*query).estate;
        if estate.is_null() || (*query).planstate.is_null() {
            return;
        }
        for_each_node((*query).planstate, &mut |node| link_inner_scans(node));
        for tree in list::pointers::<pg_sys::PlanState>((*estate).es_subplanstates) {
            for_each_node(tree, &mut |node| link_inner_scans(node));
        }
    }
}

/// Calls `visit` on a node and on those below, without the trees of SubPlans.
unsafe fn for_each_node(node: *mut pg_sys::PlanState, visit: &mut dyn FnMut(*mut pg_sys::PlanState)) {
    // SAFETY: a node that the executor has set up, or NULL.
    unsafe {
        if node.is_null() {
            return;
        }
        pg_sys::check_stack_depth();
        visit(node);
        for child in children(node) {
            for_each_node(child, visit);
        }
    }
}

unsafe fn children(node: *mut pg_sys::PlanState) -> Vec<*mut pg_sys::PlanState> {
    // SAFETY: as of `for_each_node`; each kind of node is the structure of its tag.
    unsafe {
        let array = |first: *mut *mut pg_sys::PlanState, count: i32| match first.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(first, usize::try_from(count).unwrap_or(0)).to_vec(),
        };
        let mut found = match (*node).type_ {
            NodeTag::T_AppendState => {
                let append = node.cast::<pg_sys::AppendState>();
                array((*append).appendplans, (*append).as_nplans)
            }
            NodeTag::T_MergeAppendState => {
                let append = node.cast::<pg_sys::MergeAppendState>();
                array((*append).mergeplans, (*append).ms_nplans)
            }
            NodeTag::T_SubqueryScanState => vec![(*node.cast::<pg_sys::SubqueryScanState>()).subplan],
            NodeTag::T_CustomScanState => {
                list::pointers((*node.cast::<pg_sys::CustomScanState>()).custom_ps).collect()
            }
            _ => Vec::new(),
        };
        found.extend([(*node).lefttree, (*node).righttree]);
        found
    }
}

/// Links the scans that a node starts for each of its rows, or of its outer rows.
unsafe fn link_inner_scans(node: *mut pg_sys::PlanState) {
    // SAFETY: as of `for_each_node`; the plan of a state is of its kind.
    unsafe {
        for link in list::pointers::<pg_sys::SubPlanState>((*node).subPlan) {
            let subplan = (*link).subplan;
            let numbers = list::integers((*subplan).parParam);
            for (number, value) in numbers.zip(list::pointers::<pg_sys::Node>((*subplan).args)) {
                if let Some((source, attribute)) = column(node, value) {
                    link_scans_below((*link).planstate, number, source, attribute);
                }
            }
        }
        if (*node).type_ == NodeTag::T_NestLoopState {
            let join = (*node).plan.cast::<pg_sys::NestLoop>();
            for parameter in list::pointers::<pg_sys::NestLoopParam>((*join).nestParams) {
                if let Some((source, attribute)) = column(node, (*parameter).paramval.cast()) {
                    link_scans_below((*node).righttree, (*parameter).paramno, source, attribute);
                }
            }
        }
    }
}

/// Links the scans of a tree that read a parameter of the executor.
unsafe fn link_scans_below(
    tree: *mut pg_sys::PlanState,
    number: i32,
    source: *const ScanState,
    attribute: usize,
) {
    // SAFETY: as of `for_each_node`; a scan of ours that has begun has its state.
    unsafe {
        for_each_node(tree, &mut |node| {
            for nested in list::pointers::<pg_sys::SubPlanState>((*node).subPlan) {
                link_scans_below((*nested).planstate, number, source, attribute);
            }
            let Some(state) = state_of(node) else { return };
            let scan = (*node).plan.cast::<pg_sys::ForeignScan>();
            for (index, expression) in (0..).zip(list::pointers::<pg_sys::Node>((*scan).fdw_exprs)) {
                if is_parameter(expression, number) && !std::ptr::eq(state, source) {
                    // The last one found is of the innermost loop, whose values change most often.
                    let coming = &mut (*state).coming;
                    coming.retain(|known| known.source == source && known.parameter != index);
                    coming.push(ComingValue { parameter: index, source, attribute });
                    coming.sort_by_key(|known| known.parameter);
                }
            }
        });
    }
}

unsafe fn is_parameter(expression: *mut pg_sys::Node, number: i32) -> bool {
    // SAFETY: a valid node.
    unsafe {
        (*expression).type_ == NodeTag::T_Param
            && (*expression.cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_EXEC
            && (*expression.cast::<pg_sys::Param>()).paramid == number
    }
}

/// The scan of ours that a value which a node computes is a column of, and the column's place.
unsafe fn column(
    node: *mut pg_sys::PlanState,
    value: *mut pg_sys::Node,
) -> Option<(*const ScanState, usize)> {
    // SAFETY: as of `for_each_node`; the value is an expression of the node's plan.
    unsafe {
        pg_sys::check_stack_depth();
        if node.is_null() || value.is_null() {
            return None;
        }
        match (*value).type_ {
            NodeTag::T_RelabelType => {
                return column(node, (*value.cast::<pg_sys::RelabelType>()).arg.cast());
            }
            NodeTag::T_Var => {}
            _ => return None,
        }
        let var = &*value.cast::<pg_sys::Var>();
        let place = usize::try_from(i32::from(var.varattno) - 1).ok()?;
        if let Some(state) = state_of(node) {
            let attributes = &(*state).private.attributes;
            let is_read = attributes.get(place)?.output_index.is_some();
            return is_read.then_some((state.cast_const(), place));
        }
        let input = match (*node).type_ {
            NodeTag::T_SubqueryScanState => (*node.cast::<pg_sys::SubqueryScanState>()).subplan,
            NodeTag::T_CustomScanState if is_part_of_keyed_join(node) && var.varno == pg_sys::INDEX_VAR => {
                children(node).into_iter().next()?
            }
            _ if var.varno == pg_sys::OUTER_VAR => (*node).lefttree,
            _ if var.varno == pg_sys::INNER_VAR => (*node).righttree,
            _ => return None,
        };
        if input.is_null() {
            return None;
        }
        let target = list::pointers::<pg_sys::TargetEntry>((*(*input).plan).targetlist).nth(place)?;
        column(input, (*target).expr.cast())
    }
}

/// Whether a node gives the rows of its only child.
unsafe fn is_part_of_keyed_join(node: *mut pg_sys::PlanState) -> bool {
    // SAFETY: a custom scan's state has a custom scan as its plan.
    unsafe {
        let methods = (*(*node).plan.cast::<pg_sys::CustomScan>()).methods;
        methods == &raw const KEYED_JOIN_SCAN.0 || methods == &raw const JOIN_KEYS_SCAN.0
    }
}

/// The state of a scan of ours.
pub(super) unsafe fn state_of(node: *mut pg_sys::PlanState) -> Option<*mut ScanState> {
    // SAFETY: as of `for_each_node`.
    unsafe {
        if (*node).type_ != NodeTag::T_ForeignScanState {
            return None;
        }
        let scan = node.cast::<pg_sys::ForeignScanState>();
        let ours: unsafe extern "C-unwind" fn(*mut pg_sys::ForeignScanState) = scan::end_foreign_scan;
        let is_ours = (*(*scan).fdwroutine).EndForeignScan.is_some_and(|end| std::ptr::fn_addr_eq(end, ours));
        let state = (*scan).fdw_state.cast::<ScanState>();
        // A DELETE of whole partitions has a state of its own.
        let is_read =
            (*(*scan).ss.ps.plan.cast::<pg_sys::ForeignScan>()).operation == pg_sys::CmdType::CMD_SELECT;
        (is_ours && is_read && !state.is_null()).then_some(state)
    }
}
