//! Which servers are ours. To find out, PostgreSQL calls the handler of the server's wrapper, which makes a table of callbacks;
//! the planner wants to know it of each table several times.
//!
//! Invariant: nothing is known of a server any more once a server or a wrapper has changed.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use pgrx::{pg_sys, prelude::*};

thread_local! {
    /// `None` until PostgreSQL was asked to tell of changes.
    static KNOWN: RefCell<Option<HashMap<pg_sys::Oid, bool>>> = const { RefCell::new(None) };
    /// How many changes of servers and wrappers this session has been told of.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Whether a server is ours: what `find` said, or says.
pub unsafe fn is_ours(server_oid: pg_sys::Oid, find: impl FnOnce() -> bool) -> bool {
    let is_watched = KNOWN.with_borrow(Option::is_some);
    if !is_watched {
        for cache in
            [pg_sys::SysCacheIdentifier::FOREIGNSERVEROID, pg_sys::SysCacheIdentifier::FOREIGNDATAWRAPPEROID]
        {
            unsafe {
                pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(forget), pg_sys::Datum::from(0))
            };
        }
        KNOWN.set(Some(HashMap::new()));
    }
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

#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    CHANGES.set(CHANGES.get() + 1);
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known {
            known.clear();
        }
    });
}
