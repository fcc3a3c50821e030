//! What one run of the planner keeps: column ids, runtime parameters, table descriptions, refusals, and
//! the range-table entries of absorbed subqueries.
//!
//! Invariant: it keeps no node of another's memory. The current memory context may be one that is freed before planning ends.
//!
//! Planning nests (a SQL function may be folded while its caller is planned), so there is a stack. If the
//! library was loaded in mid-planning, the hook has not pushed an entry; an implicit one serves then, and
//! subqueries are not absorbed, because their permissions would not be checked.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_plan::{ColumnId, DataType, FileSet, TableDescription};

use crate::known_files::TableKey;

/// What is known of a table's files.
#[derive(Clone)]
struct Description {
    table: Rc<TableDescription>,
    /// The engine gave it to an earlier query of the session.
    is_old: bool,
    /// This run has planned with it.
    is_used: bool,
}

/// The state of one run of the planner.
pub struct Planning {
    next_column_id: u32,
    /// The tables and attributes that columns of scans are.
    scanned: HashMap<ColumnId, (pg_sys::Oid, i16)>,
    /// Expressions that PostgreSQL evaluates when the query starts, with the type that the engine wants. They are copies in
    /// `memory`.
    parameters: Vec<(*mut pg_sys::Node, DataType)>,
    /// Where nodes are that this keeps: the memory context in which the run began.
    memory: pg_sys::MemoryContext,
    descriptions: HashMap<TableKey, Description>,
    /// Whether a clause over plain relations can be lowered. The clauses live as long as this run.
    lowered: HashMap<*const pg_sys::RestrictInfo, bool>,
    refusals: Vec<String>,
    /// Subqueries that became part of a foreign scan.
    absorbed: Vec<*mut pg_sys::PlannerInfo>,
    /// Whether planner_hook pushed this entry.
    hooked: bool,
    /// A foreign table of ours is in the query.
    met_table: bool,
    /// A constant of the query is an infinite date or timestamp.
    met_infinity: bool,
    /// What was not pushed down has a parameter of the statement.
    lost_parameter: bool,
}

thread_local! {
    static STACK: RefCell<Vec<Planning>> = const { RefCell::new(Vec::new()) };
    // Nothing tells when its query has ended, so it keeps nodes where they stay. It serves once a session.
    // SAFETY: a global that is set whenever PostgreSQL runs.
    static IMPLICIT: RefCell<Planning> = RefCell::new(Planning::new(unsafe { pg_sys::TopMemoryContext }));
}

/// Pops its entry when planning ends, well or not.
pub struct PlanningGuard;

impl PlanningGuard {
    /// Starts a run of the planner.
    pub fn push() -> Self {
        // SAFETY: a global that is set whenever PostgreSQL runs.
        let memory = unsafe { pg_sys::CurrentMemoryContext };
        STACK.with_borrow_mut(|stack| {
            let mut planning = Planning { hooked: true, ..Planning::new(memory) };
            if let Some(outer) = stack.last() {
                planning.descriptions.clone_from(&outer.descriptions);
                planning.descriptions.values_mut().for_each(|description| description.is_used = false);
            }
            stack.push(planning);
        });
        Self
    }
}

impl Drop for PlanningGuard {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|stack| {
            // What the engine was asked for now, a second run need not ask for.
            if let (Some(ended), Some(outer)) = (stack.pop(), stack.last_mut()) {
                for (table, description) in ended.descriptions {
                    let unused = Description { is_used: false, ..description };
                    outer.descriptions.entry(table).or_insert(unused);
                }
            }
        });
    }
}

/// The current run of the planner.
///
/// # Panics
///
/// If `work` calls it again.
pub fn with_planning<T>(work: impl FnOnce(&mut Planning) -> T) -> T {
    STACK.with_borrow_mut(|stack| match stack.last_mut() {
        Some(planning) => work(planning),
        None => IMPLICIT.with_borrow_mut(work),
    })
}

impl Planning {
    fn new(memory: pg_sys::MemoryContext) -> Self {
        Self {
            next_column_id: 0,
            scanned: HashMap::new(),
            parameters: Vec::new(),
            memory,
            descriptions: HashMap::new(),
            lowered: HashMap::new(),
            refusals: Vec::new(),
            absorbed: Vec::new(),
            hooked: false,
            met_table: false,
            met_infinity: false,
            lost_parameter: false,
        }
    }

    /// An id that no other column of this run has.
    pub fn new_column(&mut self) -> ColumnId {
        self.next_column_id += 1;
        ColumnId(self.next_column_id)
    }

    /// Notes which attribute of a table a column is.
    pub fn scan_column(&mut self, id: ColumnId, table_oid: pg_sys::Oid, attribute_number: i16) {
        // Without the hook the entry outlives its query.
        if self.hooked {
            self.scanned.insert(id, (table_oid, attribute_number));
        }
    }

    /// The table and the attribute that a column of a scan is.
    pub fn column_of_table(&self, id: ColumnId) -> Option<(pg_sys::Oid, i16)> {
        self.scanned.get(&id).copied()
    }

    /// The index of a value that PostgreSQL evaluates when the query starts.
    pub unsafe fn parameter(&mut self, node: *mut pg_sys::Node, data_type: DataType) -> u32 {
        let known = self.parameters.iter().position(|(known, known_type)| {
            *known_type == data_type && unsafe { pg_sys::equal((*known).cast(), node.cast()) }
        });
        let index = known.unwrap_or_else(|| {
            self.parameters.push((unsafe { self.kept(node) }, data_type));
            self.parameters.len() - 1
        });
        index as u32
    }

    /// A copy of a node that lives as long as this run. The node itself may not: the genetic join search frees what was made
    /// for one join order before it tries the next.
    unsafe fn kept(&self, node: *mut pg_sys::Node) -> *mut pg_sys::Node {
        unsafe {
            let former = pg_sys::MemoryContextSwitchTo(self.memory);
            let copy = pg_sys::copyObjectImpl(node.cast()).cast();
            pg_sys::MemoryContextSwitchTo(former);
            copy
        }
    }

    /// The expression and type of a parameter.
    pub fn parameter_at(&self, index: u32) -> Option<(*mut pg_sys::Node, DataType)> {
        self.parameters.get(index as usize).cloned()
    }

    /// Whether a clause over plain relations can be lowered, if that is known.
    pub fn is_lowered(&self, clause: *const pg_sys::RestrictInfo) -> Option<bool> {
        self.lowered.get(&clause).copied()
    }

    /// Notes whether a clause over plain relations can be lowered.
    pub fn note_lowered(&mut self, clause: *const pg_sys::RestrictInfo, is_lowered: bool) {
        // Without the hook the entry outlives the clause.
        if self.hooked {
            self.lowered.insert(clause, is_lowered);
        }
    }

    /// Notes why something was not pushed down; said once.
    pub fn refuse(&mut self, reason: String) {
        if !self.refusals.contains(&reason) {
            self.refusals.push(reason);
        }
    }

    /// All that was not pushed down, and why.
    pub fn refusals(&self) -> &[String] {
        &self.refusals
    }

    /// Notes a subquery that became part of a foreign scan.
    pub fn absorb(&mut self, root: *mut pg_sys::PlannerInfo) {
        if !self.absorbed.contains(&root) {
            self.absorbed.push(root);
        }
    }

    /// The subqueries noted so far, which are then forgotten.
    pub fn take_absorbed(&mut self) -> Vec<*mut pg_sys::PlannerInfo> {
        std::mem::take(&mut self.absorbed)
    }

    /// Whether planner_hook runs around this planning.
    pub fn is_hooked(&self) -> bool {
        self.hooked
    }

    /// Whether a foreign table of ours was planned.
    pub fn met_table(&self) -> bool {
        self.met_table
    }

    /// Notes a foreign table of ours.
    pub fn meet_table(&mut self) {
        self.met_table = true;
    }

    /// Whether an infinite date or timestamp was lowered, so that values of the engine may be infinite.
    pub fn met_infinity(&self) -> bool {
        self.met_infinity
    }

    /// Notes an infinite date or timestamp.
    pub fn meet_infinity(&mut self) {
        self.met_infinity = true;
    }

    /// Whether something with a parameter of the statement was not pushed down: with a constant in its place it might be.
    pub fn lost_parameter(&self) -> bool {
        self.lost_parameter
    }

    /// Notes that something with a parameter of the statement was not pushed down.
    pub fn lose_parameter(&mut self) {
        self.lost_parameter = true;
    }

    /// What this run knows of a table, which it plans with.
    pub fn description(&mut self, table: &TableKey) -> Option<Rc<TableDescription>> {
        // Without the hook the entry outlives its query, and files may have changed since.
        if !self.hooked {
            return None;
        }
        let description = self.descriptions.get_mut(table)?;
        description.is_used = true;
        Some(description.table.clone())
    }

    /// Whether this run knows a table.
    pub fn knows(&self, table: &TableKey) -> bool {
        self.descriptions.contains_key(table)
    }

    /// The tables that this run has planned with: their servers, files and identities.
    pub fn described(&self) -> Vec<(u32, FileSet, u64)> {
        let used = self.descriptions.iter().filter(|(_, description)| description.is_used);
        used.map(|((server, files), known)| (*server, files.clone(), known.table.identity)).collect()
    }

    /// Whether one of these descriptions is of an earlier query.
    pub fn uses_old_descriptions(&self) -> bool {
        self.descriptions.values().any(|description| description.is_used && description.is_old)
    }

    /// Notes what the engine says now, or said to an earlier query of the session.
    pub fn keep_description(&mut self, table: TableKey, description: Rc<TableDescription>, is_old: bool) {
        if self.hooked {
            self.descriptions.insert(table, Description { table: description, is_old, is_used: false });
        }
    }
}
