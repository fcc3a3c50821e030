//! Descriptions of tables' files that the session keeps from query to query.
//!
//! The planner makes plans of them. When a plan runs, the engine compares its files with the plan's
//! (`PlannedFiles`). If they differ, the session drops the descriptions.
//!
//! Invariants: the session keeps no errors, and a bounded number of descriptions.
#![expect(unsafe_code, reason = "sends a message of invalidation to PostgreSQL's caches")]

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_plan::{FileSet, TableDescription};

use crate::{pg::tree::Statement, privileges, stores};

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

impl Known {
    fn remove(&mut self, key: &TableKey) {
        if let Some(before) = self.descriptions.remove(key) {
            self.file_count -= before.files.len();
        }
    }
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// A table in a store, or one that its role has keys for, as that role sees it: roles do not learn from one another. All roles without
/// keys see the others alike.
fn of_role((server, mut files): TableKey) -> TableKey {
    let role = match files.role {
        0 => privileges::current_role(),
        role => role,
    };
    let reads_by_mapping = files.is_in_store() || stores::has_file_keys(server.into(), role);
    files.role = if reads_by_mapping { role } else { 0 };
    (server, files)
}

/// What is known of a table.
pub fn find(table: &TableKey) -> Option<Rc<TableDescription>> {
    KNOWN.with_borrow(|known| known.descriptions.get(&of_role(table.clone())).cloned())
}

/// Keeps a description. Where there are too many, those before it go.
pub fn keep(table: TableKey, description: &Rc<TableDescription>) {
    let count = description.files.len();
    KNOWN.with_borrow_mut(|known| {
        if known.descriptions.len() >= TABLES_MAX || known.file_count + count > FILES_MAX {
            *known = Known::default();
        }
        if count <= FILES_MAX {
            let before = known.descriptions.insert(of_role(table), description.clone());
            known.file_count += count;
            known.file_count -= before.map_or(0, |before| before.files.len());
        }
    });
}

/// Forgets a table.
pub fn forget(table: &TableKey) {
    let key = of_role(table.clone());
    KNOWN.with_borrow_mut(|known| known.remove(&key));
}

/// Forgets the tables that have files, at whichever version and as whichever role sees them.
pub fn forget_files(server_oid: u32, files: &FileSet) {
    let is_of = |(server, known): &TableKey| *server == server_oid && known.paths == files.paths;
    KNOWN.with_borrow_mut(|known| {
        let keys: Vec<TableKey> = known.descriptions.keys().filter(|key| is_of(key)).cloned().collect();
        keys.iter().for_each(|key| known.remove(key));
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
