//! What the session knows of tables' files: descriptions that the engine gave it, kept from query to query.
//!
//! The planner makes plans of them. The engine finds out when a plan runs whether the files are still those (`PlannedFiles`),
//! and the session then forgets what it knew.
//!
//! Invariants: errors are not kept. How much is kept is bounded.
#![expect(unsafe_code, reason = "sends a message of invalidation to PostgreSQL's caches")]

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_plan::{FileSet, TableDescription};

use crate::pg::tree::Statement;

/// Tables of which descriptions are kept.
const TABLES_MAX: usize = 256;
/// Files of all these tables.
const FILES_MAX: usize = 10_000;

/// The server and the files of a table.
pub type TableKey = (u32, FileSet);

#[derive(Default)]
struct Known {
    descriptions: HashMap<TableKey, Rc<TableDescription>>,
    file_count: usize,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// What is known of a table.
pub fn find(table: &TableKey) -> Option<Rc<TableDescription>> {
    KNOWN.with_borrow(|known| known.descriptions.get(table).cloned())
}

/// Keeps a description. Where there are too many, those before it go.
pub fn keep(table: TableKey, description: &Rc<TableDescription>) {
    let count = description.files.len();
    KNOWN.with_borrow_mut(|known| {
        if known.descriptions.len() >= TABLES_MAX || known.file_count + count > FILES_MAX {
            *known = Known::default();
        }
        if count <= FILES_MAX {
            let before = known.descriptions.insert(table, description.clone());
            known.file_count += count;
            known.file_count -= before.map_or(0, |before| before.files.len());
        }
    });
}

/// Forgets a table.
pub fn forget(table: &TableKey) {
    KNOWN.with_borrow_mut(|known| {
        if let Some(before) = known.descriptions.remove(table) {
            known.file_count -= before.files.len();
        }
    });
}

/// Has this session plan anew what it keeps for the statement's foreign tables.
pub fn forget_plans(statement: Statement<'_>) {
    for table_oid in statement.table_oids().iter() {
        // SAFETY: a look into a catalog; the message names a table by its number, which need not exist.
        unsafe {
            if pg_sys::get_rel_relkind(table_oid) as u8 == pg_sys::RELKIND_FOREIGN_TABLE {
                let mut message = pg_sys::SharedInvalidationMessage {
                    rc: pg_sys::SharedInvalRelcacheMsg {
                        id: pg_sys::SHAREDINVALRELCACHE_ID as i8,
                        dbId: pg_sys::MyDatabaseId,
                        relId: table_oid,
                    },
                };
                pg_sys::LocalExecuteInvalidationMessage(&raw mut message);
            }
        }
    }
}
