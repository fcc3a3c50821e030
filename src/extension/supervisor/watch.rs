//! Noticing that a server or a database was dropped or altered, and retiring its engines at commit.
//!
//! A session that has not loaded pystachio is not watched; the checker (`checks.rs`) finds out later.
#![expect(unsafe_code, reason = "installs PostgreSQL's hooks")]

use std::cell::RefCell;

use pgrx::{pg_sys, prelude::*};

use super::{EngineHome, home};
use crate::{options, pg::hooks};

/// What a transaction has dropped or altered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// The engines of this server are retired, but not the one whose options it has now.
    Server { database_oid: u32, server_oid: u32, directory_kept: Option<String> },
    /// All engines of this database are retired.
    Database { database_oid: u32 },
}

thread_local! {
    static CHANGES: RefCell<Vec<Change>> = const { RefCell::new(Vec::new()) };
    /// The folders of engines that this transaction has requested, with their servers.
    static REQUESTED: RefCell<Vec<(u32, String)>> = const { RefCell::new(Vec::new()) };
}

static mut PREVIOUS_HOOK: pg_sys::object_access_hook_type = None;

/// Installs the hooks. Called once, when the library is loaded.
pub fn install_hooks() {
    // SAFETY: the library is loaded once in a process, before any hook of ours runs.
    unsafe {
        PREVIOUS_HOOK = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(note_change);
        pg_sys::RegisterXactCallback(Some(end_transaction), std::ptr::null_mut());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn note_change(
    access: pg_sys::ObjectAccessType::Type,
    class_oid: pg_sys::Oid,
    object_oid: pg_sys::Oid,
    column: i32,
    argument: *mut std::ffi::c_void,
) {
    // SAFETY: PostgreSQL's own arguments, handed on; the hook was set before this one.
    unsafe {
        hooks::access_object(PREVIOUS_HOOK, access, class_oid, object_oid, column, argument);
    }
    if !matches!(
        access,
        pg_sys::ObjectAccessType::OAT_DROP
            | pg_sys::ObjectAccessType::OAT_POST_ALTER
            | pg_sys::ObjectAccessType::OAT_POST_CREATE
    ) {
        return;
    }
    let change = if class_oid == pg_sys::ForeignServerRelationId {
        // SAFETY: a global that is set when a backend starts.
        let database_oid = unsafe { pg_sys::MyDatabaseId }.to_u32();
        Change::Server { database_oid, server_oid: object_oid.to_u32(), directory_kept: None }
    } else if class_oid == pg_sys::DatabaseRelationId && access == pg_sys::ObjectAccessType::OAT_DROP {
        Change::Database { database_oid: object_oid.to_u32() }
    } else {
        return;
    };
    CHANGES.with_borrow_mut(|changes| changes.push(change));
}

#[pg_guard]
unsafe extern "C-unwind" fn end_transaction(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    match event {
        // The last moment at which catalogs can be read.
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT => {
            let changes = CHANGES.take();
            CHANGES.set(changes.into_iter().map(with_kept_directory).collect());
        }
        pg_sys::XactEvent::XACT_EVENT_COMMIT => {
            REQUESTED.with_borrow_mut(Vec::clear);
            let changes = CHANGES.take();
            if !changes.is_empty() {
                retire_engines(&changes);
            }
        }
        pg_sys::XactEvent::XACT_EVENT_ABORT => {
            let changes = CHANGES.take();
            for (server, directory_name) in REQUESTED.take() {
                let is_of_server = |change: &Change| matches!(change, Change::Server { server_oid, .. } if *server_oid == server);
                if changes.iter().any(is_of_server) {
                    home::retire(&directory_name);
                }
            }
        }
        // A prepared transaction that dropped a server is left to the checker.
        pg_sys::XactEvent::XACT_EVENT_PREPARE => {
            CHANGES.with_borrow_mut(Vec::clear);
            REQUESTED.with_borrow_mut(Vec::clear);
        }
        _ => {}
    }
}

fn with_kept_directory(change: Change) -> Change {
    let Change::Server { database_oid, server_oid, .. } = change else { return change };
    let oid = pg_sys::Oid::from(server_oid);
    let directory_kept = options::is_our_server(oid).then(|| EngineHome::of(oid).directory_name());
    Change::Server { database_oid, server_oid, directory_kept }
}

/// Notes that this transaction has requested an engine.
pub fn note_request(home: &EngineHome) {
    REQUESTED.with_borrow_mut(|requested| requested.push((home.server_oid, home.directory_name())));
}

fn retire_engines(changes: &[Change]) {
    for name in home::directory_names() {
        let Some(oids) = home::parse_directory_name(&name) else { continue };
        let is_changed = changes.iter().any(|change| match change {
            Change::Server { database_oid, server_oid, directory_kept } => {
                (*database_oid, *server_oid) == oids && directory_kept.as_ref() != Some(&name)
            }
            Change::Database { database_oid } => *database_oid == oids.0,
        });
        if is_changed {
            home::retire(&name);
        }
    }
}
