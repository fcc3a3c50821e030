//! Connections that wait for the next query, one pool a backend.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

use pgrx::pg_sys;
use pystachio_plan::{ErrorKind, Request, Response, Result};

use super::Connection;
use crate::{
    pg::wait::{WaitEvent, wait_time},
    settings,
    supervisor::{self, EngineHome},
    writing,
};

/// Idle connections kept for each engine. Each takes a descriptor of an engine that serves all sessions; a backend that reads
/// several scans at once opens new ones.
const IDLE_CONNECTIONS_MAX: usize = 1;
/// How long to wait before connecting again to an engine that did not answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

thread_local! {
    static IDLE: RefCell<HashMap<String, Vec<Connection>>> = RefCell::default();
}

/// A connection in use. Dropped, it is closed; [`PooledConnection::give_back`] keeps it for the next query.
pub struct PooledConnection {
    connection: Connection,
    is_from_pool: bool,
}

impl PooledConnection {
    /// Whether an earlier request has used this connection, so that it may be dead without our knowing.
    pub fn is_from_pool(&self) -> bool {
        self.is_from_pool
    }

    /// Keeps the connection for the next query. The last answer must be complete.
    pub fn give_back(self) {
        let directory = self.connection.home().directory_name();
        IDLE.with_borrow_mut(|idle| {
            let connections = idle.entry(directory).or_default();
            if connections.len() < IDLE_CONNECTIONS_MAX {
                connections.push(self.connection);
            }
        });
    }
}

impl Deref for PooledConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// A connection to the server's engine, which is started if need be.
///
/// # Errors
///
/// Those of starting and greeting the engine.
pub fn acquire(server_oid: pg_sys::Oid) -> Result<PooledConnection> {
    writing::recover();
    let home = EngineHome::of(server_oid);
    match take_idle(&home) {
        Some(connection) => Ok(PooledConnection { connection, is_from_pool: true }),
        None => open(home),
    }
}

/// As [`acquire`], and the connection is known to be alive: a request sent on it is not lost because the
/// engine ended some time before.
///
/// # Errors
///
/// As of [`acquire`].
pub fn acquire_checked(server_oid: pg_sys::Oid) -> Result<PooledConnection> {
    writing::recover();
    let home = EngineHome::of(server_oid);
    while let Some(mut connection) = take_idle(&home) {
        if matches!(connection.ask(&Request::Status), Ok(Response::Status(_))) {
            return Ok(PooledConnection { connection, is_from_pool: true });
        }
    }
    open(home)
}

/// A connection to the server's engine if it is running. One that is just ending is not.
///
/// # Errors
///
/// `Protocol` if the engine is of another version.
pub fn acquire_if_running(server_oid: pg_sys::Oid) -> Result<Option<PooledConnection>> {
    let home = EngineHome::of(server_oid);
    if let Some(connection) = take_idle(&home) {
        return Ok(Some(PooledConnection { connection, is_from_pool: true }));
    }
    let Some(socket) = supervisor::connect_if_running(&home) else { return Ok(None) };
    match Connection::open(socket, home) {
        Ok(connection) => Ok(Some(PooledConnection { connection, is_from_pool: false })),
        Err(error) if error.kind == ErrorKind::Unavailable => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(home: EngineHome) -> Result<PooledConnection> {
    // Connections to an engine that ran with the server's former options are of no use any more.
    IDLE.with_borrow_mut(|idle| {
        idle.retain(|directory, _| !home.is_of_same_server(directory) || *directory == home.directory_name());
    });
    // An engine that is just ending may still take a connection, and never answers it.
    let deadline = Instant::now() + Duration::from_millis(settings::connect_timeout_ms());
    loop {
        let (socket, home) = supervisor::connect(home.clone())?;
        match Connection::open(socket, home) {
            Ok(connection) => return Ok(PooledConnection { connection, is_from_pool: false }),
            Err(error) if error.kind != ErrorKind::Unavailable || Instant::now() >= deadline => {
                return Err(error);
            }
            Err(_) => wait_time(RETRY_INTERVAL, WaitEvent::Connect),
        }
    }
}

fn take_idle(home: &EngineHome) -> Option<Connection> {
    IDLE.with_borrow_mut(|idle| {
        let connections = idle.get_mut(&home.directory_name())?;
        while let Some(connection) = connections.pop() {
            if connection.is_idle() {
                return Some(connection);
            }
        }
        None
    })
}
