//! Which servers are ours. PostgreSQL would call the handler of the server's wrapper to find out,
//! which makes a table of callbacks. The planner needs the answer several times for each table, so
//! it keeps it.
//!
//! Invariant: a change of a server or wrapper drops all kept answers.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use pgrx::pg_sys::Oid;

use crate::pg::tree::{handler_of, library_of, watch_servers, wrappers_of_servers};

thread_local! {
    /// `None` until PostgreSQL was asked to tell of changes.
    static KNOWN: RefCell<Option<HashMap<Oid, bool>>> = const { RefCell::new(None) };
    /// Whether any server is ours; `None` until it was looked for.
    static ANY: Cell<Option<bool>> = const { Cell::new(None) };
    /// How many changes of servers and wrappers this session has been told of.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Whether a server is ours: what `find` said, or says.
pub fn is_ours(server_oid: Oid, find: impl FnOnce() -> bool) -> bool {
    watch();
    let known = KNOWN.with_borrow(|known| known.as_ref().and_then(|known| known.get(&server_oid).copied()));
    known.unwrap_or_else(|| {
        let changes = CHANGES.get();
        let is_ours = find();
        if changes == CHANGES.get() {
            KNOWN.with_borrow_mut(|known| known.get_or_insert_default().insert(server_oid, is_ours));
        }
        is_ours
    })
}

/// Whether any server of the database may be ours, by the library of its wrapper's handler. No library is loaded to find out.
pub fn may_be_any() -> bool {
    watch();
    ANY.get().unwrap_or_else(|| {
        let changes = CHANGES.get();
        let is_any = wrappers_of_servers().into_iter().any(|wrapper_oid| {
            library_of(handler_of(wrapper_oid))
                .is_some_and(|library| library.trim_end_matches(".so").ends_with("pystachio"))
        });
        if changes == CHANGES.get() {
            ANY.set(Some(is_any));
        }
        is_any
    })
}

/// Has PostgreSQL tell of changes, from now on.
fn watch() {
    let is_watched = KNOWN.with_borrow(Option::is_some);
    if !is_watched {
        watch_servers(forget);
        KNOWN.set(Some(HashMap::new()));
    }
}

fn forget() {
    CHANGES.set(CHANGES.get() + 1);
    ANY.set(None);
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known {
            known.clear();
        }
    });
}
