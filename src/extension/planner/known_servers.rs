//! Which servers are ours. To find out, PostgreSQL calls the handler of the server's wrapper, which makes a table of callbacks;
//! the planner wants to know it of each table several times.
//!
//! Invariant: nothing is known of a server any more once a server or a wrapper has changed.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ffi::CStr,
};

use pgrx::{pg_sys, prelude::*};

thread_local! {
    /// `None` until PostgreSQL was asked to tell of changes.
    static KNOWN: RefCell<Option<HashMap<pg_sys::Oid, bool>>> = const { RefCell::new(None) };
    /// Whether any server is ours; `None` until it was looked for.
    static ANY: Cell<Option<bool>> = const { Cell::new(None) };
    /// How many changes of servers and wrappers this session has been told of.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Whether a server is ours: what `find` said, or says.
pub unsafe fn is_ours(server_oid: pg_sys::Oid, find: impl FnOnce() -> bool) -> bool {
    unsafe { watch() };
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
    unsafe { watch() };
    ANY.get().unwrap_or_else(|| {
        let changes = CHANGES.get();
        let is_any = unsafe { wrappers() }.into_iter().any(|wrapper_oid| unsafe {
            let wrapper = pg_sys::GetForeignDataWrapper(wrapper_oid);
            library_of((*wrapper).fdwhandler).is_some_and(|library| library.ends_with("pystachio"))
        });
        if changes == CHANGES.get() {
            ANY.set(Some(is_any));
        }
        is_any
    })
}

/// The wrappers of the database's servers.
unsafe fn wrappers() -> Vec<pg_sys::Oid> {
    let mut found = Vec::new();
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::ForeignServerRelationId, pg_sys::AccessShareLock as i32);
        let (snapshot, keys) = (std::ptr::null_mut(), std::ptr::null_mut());
        let scan = pg_sys::systable_beginscan(catalog, pg_sys::InvalidOid, false, snapshot, 0, keys);
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            found.push((*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_foreign_server>()).srvfdw);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as i32);
    }
    found
}

/// The library of a function in C.
unsafe fn library_of(function_oid: pg_sys::Oid) -> Option<String> {
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let row = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function_oid));
        if row.is_null() {
            return None;
        }
        let mut is_null = false;
        let library = pg_sys::SysCacheGetAttr(cache, row, pg_sys::Anum_pg_proc_probin as _, &mut is_null);
        let library = (!is_null).then(|| {
            CStr::from_ptr(pg_sys::text_to_cstring(library.cast_mut_ptr())).to_string_lossy().into_owned()
        });
        pg_sys::ReleaseSysCache(row);
        library
    }
}

/// Has PostgreSQL tell of changes, from now on.
unsafe fn watch() {
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
}

#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    CHANGES.set(CHANGES.get() + 1);
    ANY.set(None);
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known {
            known.clear();
        }
    });
}
