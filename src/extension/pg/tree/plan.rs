//! Finished plans.

use pgrx::pg_sys;

use super::{
    ChosenPath, List, Node, OidList, Query, RangeEntry, Ref, Relids, TargetEntry,
    fields::{fields, kinds},
    reference::HasTag,
};
use crate::pg::compat;

/// A planned statement.
pub type Statement<'p> = Ref<'p, pg_sys::PlannedStmt>;
/// A node of a plan.
pub type Plan<'p> = Ref<'p, pg_sys::Plan>;
/// A scan by a foreign-data wrapper.
pub type ForeignScan<'p> = Ref<'p, pg_sys::ForeignScan>;

kinds! {
    PlannedStmt = T_PlannedStmt;
    ForeignScan = T_ForeignScan;
    Result = T_Result;
    NestLoop = T_NestLoop;
    Append = T_Append;
    MergeAppend = T_MergeAppend;
    SubqueryScan = T_SubqueryScan;
    FunctionScan = T_FunctionScan;
    CteScan = T_CteScan;
    Agg = T_Agg;
    SetOp = T_SetOp;
    ModifyTable = T_ModifyTable;
}

// SAFETY: every plan begins with a tag.
unsafe impl HasTag for pg_sys::Plan {}

fields! { 'p PlannedStmt {
    commandType as command: u32;
    hasModifyingCTE as has_modifying_with: bool;
    planTree as plan: Option<Plan<'p>>;
    planTree = set_plan: Plan<'p>;
    rtable as range_table: List<'p, pg_sys::RangeTblEntry>;
    subplans as subplans: List<'p, pg_sys::Plan>;
    relationOids as table_oids: OidList<'p>;
} }

fields! { 'p Plan {
    total_cost as total_cost: f64;
    total_cost = set_total_cost: f64;
    qual as conditions: List<'p, pg_sys::Node>;
    targetlist as targets: List<'p, pg_sys::TargetEntry>;
    lefttree as left: Option<Plan<'p>>;
    righttree as right: Option<Plan<'p>>;
    initPlan as init_plans: List<'p, pg_sys::SubPlan>;
} }

fields! { 'p ForeignScan {
    fs_server as server_oid: pg_sys::Oid;
    fdw_private as private: List<'p, pg_sys::Node>;
    fdw_private = set_private: List<'p, pg_sys::Node>;
    fdw_recheck_quals = set_recheck_conditions: List<'p, pg_sys::Node>;
    fdw_scan_tlist as scan_targets: List<'p, pg_sys::TargetEntry>;
} }

fields! { 'p Result { resconstantqual as constant_condition: Option<Node<'p>>; } }
fields! { 'p NestLoop { nestParams as parameters: List<'p, pg_sys::Node>; } }
fields! { 'p Append { appendplans as plans: List<'p, pg_sys::Plan>; apprelids as relids: Relids<'p>; } }
fields! { 'p MergeAppend { mergeplans as plans: List<'p, pg_sys::Plan>; apprelids as relids: Relids<'p>; } }
fields! { 'p SubqueryScan { subplan as plan: Plan<'p>; } }
fields! { 'p FunctionScan { functions as functions: List<'p, pg_sys::RangeTblFunction>; } }
fields! { 'p CteScan { ctePlanId as number: i32; } }
fields! { 'p Agg { numCols as key_count: i32; groupingSets as grouping_sets: List<'p, pg_sys::Node>; } }
fields! { 'p SetOp { cmd as command: u32; } }
fields! { 'p ModifyTable { operation as operation: u32; } }

impl<'p> Statement<'p> {
    /// The entry of the range table with a number.
    pub fn entry(self, index: usize) -> Option<RangeEntry<'p>> {
        self.range_table().get(index.checked_sub(1)?)
    }

    /// Appends the tables and views of an absorbed subquery, so that the executor checks their rights and locks them, and the plan is
    /// made anew when they change.
    pub fn append_range_table(self, query: Query<'_>) {
        // SAFETY: a finished plan, and a query that became part of it.
        unsafe { compat::append_range_table(self.pointer(), query.pointer()) }
    }

    /// Has the plan made anew when a function changes.
    pub fn depend_on_function(self, function_oid: pg_sys::Oid) {
        // SAFETY: a finished plan.
        unsafe { compat::depend_on_function(self.pointer(), function_oid) }
    }
}

impl<'p> ForeignScan<'p> {
    /// The scan of a path that was chosen.
    pub fn of_path(
        chosen: &ChosenPath<'p>,
        conditions: List<'p, pg_sys::Node>,
        expressions: List<'p, pg_sys::Node>,
        private: List<'p, pg_sys::Node>,
        scan_targets: List<'p, pg_sys::TargetEntry>,
    ) -> Self {
        let index = if chosen.table_oid.is_some() { chosen.relation.index() } else { 0 };
        let outer = chosen.outer.map_or(std::ptr::null_mut(), Ref::pointer);
        // SAFETY: all are of this planning.
        unsafe {
            Ref::known(pg_sys::make_foreignscan(
                chosen.targets.pointer(),
                conditions.pointer(),
                index,
                expressions.pointer(),
                private.pointer(),
                scan_targets.pointer(),
                std::ptr::null_mut(),
                outer,
            ))
        }
    }

    /// Has EXPLAIN show window functions that the scan returns as calls without OVER. PostgreSQL 18 looks for the node that computes them,
    /// and fails where there is none. Only of a finished plan, whose targets have been found among those of the scan.
    pub fn show_windows_as_calls(self) {
        let as_call = |node: Node<'p>| {
            let window = node.downcast::<pg_sys::WindowFunc>()?;
            let call = node.memory().make::<pg_sys::FuncExpr>();
            // SAFETY: two structures of this planning.
            unsafe {
                let (new, old) = (call.pointer(), window.pointer());
                (*new).funcid = (*old).winfnoid;
                (*new).funcresulttype = (*old).wintype;
                (*new).funccollid = (*old).wincollid;
                (*new).inputcollid = (*old).inputcollid;
                (*new).args = (*old).args;
                (*new).location = -1;
            }
            Some(call.node())
        };
        for target in self.scan_targets().iter() {
            if target.expression().contains(&|node| node.is::<pg_sys::WindowFunc>()) {
                target.set_expression(target.expression().substitute(&mut |node| as_call(node)));
            }
        }
    }

    /// The number of the relation that it scans; 0 of more than one.
    pub fn scanned(self) -> u32 {
        // SAFETY: it begins with a scan.
        unsafe { (*self.pointer()).scan.scanrelid }
    }
}

impl<'p> Plan<'p> {
    /// Whether its rows can be read backward.
    pub fn reads_backward(self) -> bool {
        // SAFETY: a finished plan.
        unsafe { pg_sys::ExecSupportsBackwardScan(self.pointer()) }
    }

    /// A plan that keeps the rows of this one, which is finished.
    pub fn materialized(self) -> Self {
        // SAFETY: a finished plan.
        unsafe { Ref::known(pg_sys::materialize_finished_plan(self.pointer())) }
    }

    /// The number of the relation that a scan of one relation reads.
    ///
    /// Only of scans: the caller has looked at the tag.
    pub fn scanned(self) -> Option<u32> {
        let is_scan = matches!(
            self.tag(),
            pg_sys::NodeTag::T_SeqScan
                | pg_sys::NodeTag::T_SampleScan
                | pg_sys::NodeTag::T_IndexScan
                | pg_sys::NodeTag::T_IndexOnlyScan
                | pg_sys::NodeTag::T_BitmapHeapScan
                | pg_sys::NodeTag::T_TidScan
                | pg_sys::NodeTag::T_TidRangeScan
                | pg_sys::NodeTag::T_SubqueryScan
                | pg_sys::NodeTag::T_FunctionScan
                | pg_sys::NodeTag::T_ValuesScan
                | pg_sys::NodeTag::T_TableFuncScan
                | pg_sys::NodeTag::T_CteScan
                | pg_sys::NodeTag::T_NamedTuplestoreScan
                | pg_sys::NodeTag::T_WorkTableScan
                | pg_sys::NodeTag::T_ForeignScan
                | pg_sys::NodeTag::T_CustomScan
        );
        // SAFETY: these plans begin with a scan.
        is_scan.then(|| unsafe { (*self.pointer().cast::<pg_sys::Scan>()).scanrelid })
    }
}

/// The targets of a list of expressions, in their order.
pub fn targets_of<'p>(expressions: impl IntoIterator<Item = Node<'p>>) -> List<'p, pg_sys::TargetEntry> {
    let target = |(place, node): (usize, Node<'p>)| -> TargetEntry<'p> {
        node.as_target(place as i16 + 1, None, false)
    };
    List::of(expressions.into_iter().enumerate().map(target))
}
