//! What one run of the planner keeps: column ids, runtime parameters, table descriptions, refusals, and
//! the range-table entries of absorbed subqueries.
//!
//! Invariant: it keeps no node of another's memory ([`Origins`]). The current memory context may be one that is freed before
//! planning ends.
//!
//! Planning nests (a SQL function may be folded while its caller is planned), so there is a stack. If the
//! library was loaded in mid-planning, the hook has not pushed an entry; an implicit one serves then, and
//! subqueries are not absorbed, because their permissions would not be checked.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{Notes, Source};
use pystachio_plan::{ColumnId, DataType, FileSet, TableDescription, TableVersion};

use crate::{
    known_files::TableKey,
    pg::{
        mirror::Origins,
        tree::{Clause, Memory, Node, OfPlanning, Root},
    },
};

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
    notes: Rc<Notes>,
    /// The nodes that PostgreSQL evaluates when the query starts.
    origins: Rc<Origins>,
    /// The tables and attributes that columns of scans are.
    scanned: HashMap<ColumnId, (pg_sys::Oid, i16)>,
    descriptions: HashMap<TableKey, Description>,
    /// Whether a clause over plain relations can be lowered, by its address. The clauses live as long as this run.
    lowered: HashMap<usize, bool>,
    /// Whether an engine can give all rows of a query in the order that is wanted above its joins, by the query's address.
    ordered: HashMap<usize, bool>,
    /// Mirrors of clauses that live as long as this run, by the clauses' addresses.
    mirrors: HashMap<usize, Rc<Source>>,
    refusals: Vec<String>,
    /// Subqueries that became part of a foreign scan.
    absorbed: Vec<OfPlanning<pg_sys::PlannerInfo>>,
    /// Whether planner_hook pushed this entry.
    hooked: bool,
    /// A foreign table of ours is in the query.
    met_table: bool,
    /// The roles whose user mappings count for tables in stores; 0: the current one.
    roles: HashMap<pg_sys::Oid, u32>,
    /// How many inputs of plans there are that PostgreSQL computes.
    inputs: u32,
}

thread_local! {
    static STACK: RefCell<Vec<Planning>> = const { RefCell::new(Vec::new()) };
    // Nothing tells when its query has ended. It serves once a session.
    static IMPLICIT: RefCell<Planning> = RefCell::new(Planning::new());
}

/// Pops its entry when planning ends, well or not.
pub struct PlanningGuard;

impl PlanningGuard {
    /// Starts a run of the planner.
    pub fn push() -> Self {
        STACK.with_borrow_mut(|stack| {
            let mut planning = Planning { hooked: true, ..Planning::new() };
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
    fn new() -> Self {
        Self {
            notes: Rc::default(),
            origins: Rc::default(),
            scanned: HashMap::new(),
            descriptions: HashMap::new(),
            lowered: HashMap::new(),
            ordered: HashMap::new(),
            mirrors: HashMap::new(),
            refusals: Vec::new(),
            absorbed: Vec::new(),
            hooked: false,
            met_table: false,
            roles: HashMap::new(),
            inputs: 0,
        }
    }

    /// An id that no other column of this run has.
    pub fn new_column(&self) -> ColumnId {
        self.notes.new_column()
    }

    /// A number that no other input of this run has.
    pub fn new_input(&mut self) -> u32 {
        self.inputs += 1;
        self.inputs
    }

    /// What lowering notes in this run.
    pub fn notes(&self) -> &Rc<Notes> {
        &self.notes
    }

    /// The nodes that PostgreSQL evaluates when the query starts.
    pub fn origins(&self) -> &Rc<Origins> {
        &self.origins
    }

    /// Notes which attribute of a table a column is.
    pub fn scan_column(&mut self, id: ColumnId, table_oid: pg_sys::Oid, attribute_number: i16) {
        // Without the hook the entry outlives its query.
        if self.hooked {
            self.scanned.insert(id, (table_oid, attribute_number));
        }
    }

    /// An id for a copy of a column.
    pub fn copy_column(&mut self, id: ColumnId) -> ColumnId {
        let copy = self.new_column();
        if let Some(scanned) = self.column_of_table(id) {
            self.scanned.insert(copy, scanned);
        }
        copy
    }

    /// The table and the attribute that a column of a scan is.
    pub fn column_of_table(&self, id: ColumnId) -> Option<(pg_sys::Oid, i16)> {
        self.scanned.get(&id).copied()
    }

    /// A copy of the expression of a parameter, and its type.
    pub fn parameter_at<'p>(&self, index: u32, memory: Memory<'p>) -> Option<(Node<'p>, DataType)> {
        let (value, data_type) = self.notes.parameter_at(index)?;
        Some((self.origins.node_of(&value, memory)?, data_type))
    }

    /// The mirror of a clause, if it is known.
    pub fn mirror_of(&self, clause: Clause<'_>) -> Option<Rc<Source>> {
        self.mirrors.get(&clause.address()).cloned()
    }

    /// Keeps the mirror of a clause that lives as long as this run.
    pub fn keep_mirror(&mut self, clause: Clause<'_>, source: Rc<Source>) {
        // Without the hook the entry outlives the clause.
        if self.hooked {
            self.mirrors.insert(clause.address(), source);
        }
    }

    /// Whether a clause over plain relations can be lowered, if that is known.
    pub fn is_lowered(&self, clause: Clause<'_>) -> Option<bool> {
        self.lowered.get(&clause.address()).copied()
    }

    /// Notes whether a clause over plain relations can be lowered.
    pub fn note_lowered(&mut self, clause: Clause<'_>, is_lowered: bool) {
        // Without the hook the entry outlives the clause.
        if self.hooked {
            self.lowered.insert(clause.address(), is_lowered);
        }
    }

    /// Whether an engine can give all rows of a query in the order that is wanted above its joins, if that is known.
    pub fn is_ordered(&self, root: Root<'_>) -> Option<bool> {
        self.ordered.get(&root.address()).copied()
    }

    /// Notes whether an engine can.
    pub fn note_ordered(&mut self, root: Root<'_>, is_ordered: bool) {
        // Without the hook the entry outlives the query.
        if self.hooked {
            self.ordered.insert(root.address(), is_ordered);
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
    pub fn absorb(&mut self, root: Root<'_>) {
        if !self.absorbed.iter().any(|known| known.is(root)) {
            self.absorbed.push(OfPlanning::keep(root));
        }
    }

    /// The subqueries noted so far, which are then forgotten.
    pub fn take_absorbed(&mut self) -> Vec<OfPlanning<pg_sys::PlannerInfo>> {
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

    /// Notes the role whose user mapping counts for a table.
    pub fn note_role(&mut self, table_oid: pg_sys::Oid, role: pg_sys::Oid) {
        self.roles.insert(table_oid, role.into());
    }

    /// The role whose user mapping counts for a table; 0: the current one.
    pub fn role_of(&self, table_oid: pg_sys::Oid) -> u32 {
        self.roles.get(&table_oid).copied().unwrap_or(0)
    }

    /// Whether something with a parameter of the statement was not pushed down: with a constant in its place it might be.
    pub fn lost_parameter(&self) -> bool {
        self.notes.lost_parameter()
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

    /// What this run has planned a scan with, which may be of one version of its table.
    pub fn description_of_scan(&self, server_oid: u32, files: &FileSet) -> Option<Rc<TableDescription>> {
        // As of `description`.
        if !self.hooked {
            return None;
        }
        let is_of_scan = |server: u32, known: &FileSet, version: Option<&TableVersion>| {
            server == server_oid && known.paths == files.paths && known.at_version(version) == *files
        };
        let mut known = self.descriptions.iter();
        let found = known.find(|((server, known), description)| {
            is_of_scan(*server, known, description.table.version.as_ref())
        });
        found.map(|(_, description)| description.table.clone())
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
