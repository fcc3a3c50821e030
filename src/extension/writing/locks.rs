//! Locks on the files of tables that rows are deleted from.
//!
//! A DELETE of whole partitions must keep out sessions that read the table until its transaction
//! ends. Before the executor starts, PostgreSQL locks the table in a mode that two DELETEs can hold
//! at once. If both then locked the table as TRUNCATE does, each would wait for the other. So the
//! files have a lock of their own. Readers and INSERTs share it. A DELETE reads no row: it takes
//! the lock alone, without having shared it before, and holds it until its transaction ends.
//!
//! A transaction that has read the table and then deletes already shares the lock that it needs
//! alone. No read shows whether a DELETE will follow. So two such transactions wait for each other,
//! and PostgreSQL's deadlock detector ends one.
//!
//! `pg_locks` shows it as a lock on an object of `pg_class`. PostgreSQL itself has no lock of this kind on tables.
//!
//! Invariant: a session has locked a table before it locks the table's files.
#![expect(unsafe_code, reason = "takes locks of PostgreSQL's, and reads a statement")]

use pgrx::pg_sys;
use pystachio_plan::{Operator, Plan};

use crate::{options, pg::list, planner::is_our_table};

/// Keeps a DELETE out until the transaction ends.
pub fn share(table_oid: pg_sys::Oid) {
    lock(table_oid, pg_sys::AccessShareLock);
}

/// Waits for sessions that share the lock or hold it, and keeps them out until the transaction ends.
pub fn hold_alone(table_oid: pg_sys::Oid) {
    lock(table_oid, pg_sys::AccessExclusiveLock);
}

/// Shares the locks of those tables of a statement that a scan reads and that rows can be deleted from.
///
/// # Safety
///
/// The statement is one that the executor has started.
pub unsafe fn share_read(statement: *mut pg_sys::PlannedStmt, plan: &Plan) {
    // SAFETY: as the caller says.
    for table_oid in unsafe { list::oids((*statement).relationOids) } {
        // SAFETY: a catalog lookup.
        let kind = unsafe { pg_sys::get_rel_relkind(table_oid) };
        if kind as u8 != pg_sys::RELKIND_FOREIGN_TABLE || !is_our_table(table_oid) {
            continue;
        }
        let table = options::table_options(table_oid);
        let is_read = |scan: &&Operator| matches!(scan, Operator::Scan { files, .. } if files.paths == table.files.paths);
        if table.writable && plan.root.scans().iter().any(is_read) {
            share(table_oid);
        }
    }
}

fn lock(table_oid: pg_sys::Oid, mode: u32) {
    // SAFETY: takes a lock, or raises an ERROR.
    unsafe { pg_sys::LockDatabaseObject(pg_sys::RelationRelationId, table_oid, 0, mode as i32) };
}
