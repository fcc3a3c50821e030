//! The connection from a backend to its engine.
//!
//! - `connection.rs`: one connection: frames in and out, and what its end means
//! - `pool.rs`: connections that wait for the next query
//!
//! Invariants: a connection answers one request at a time. One that goes back to the pool has given the
//! whole of its last answer; every other one is closed, which stops its work in the engine.
//!
//! Deliberately absent: what the answers mean for a scan (`execution/`), starting engines
//! (`supervisor/`).

mod connection;
mod pool;

use pgrx::pg_sys;
use pystachio_plan::{
    CacheEntry, CatalogView, DescribeExtent, EngineStatus, Error, ErrorKind, FileSet, FrameKind, QueryEntry,
    QueryMetrics, QueryRequest, QueryTimeline, Request, Response, Result, StatisticsEntry, StoreAccess,
    StoreName, TableDescription, decode_message,
};

use crate::stores::{self, ServerUser};

pub use connection::{Connection, Frame};
pub use pool::{PooledConnection, acquire, acquire_checked, acquire_if_running};

/// Describes tables from the footers of their files.
///
/// # Errors
///
/// Those of reaching the engine; inside, those of each table.
pub fn describe(
    server_oid: pg_sys::Oid,
    tables: &[FileSet],
    extent: DescribeExtent,
) -> Result<Vec<Result<TableDescription>>> {
    describe_by(server_oid, tables, extent, stores::access(server_oid, tables)?)
}

/// The same of the objects that stores have now, whatever the server's option `listing_age` says.
///
/// # Errors
///
/// As of [`describe`].
pub fn describe_newest(
    user: ServerUser,
    tables: &[FileSet],
    extent: DescribeExtent,
) -> Result<Vec<Result<TableDescription>>> {
    let mut access = stores::access(user, tables)?;
    if let Some(options) = &mut access.options {
        options.listing_age_ms = 0;
    }
    describe_by(user.server_oid, tables, extent, access)
}

fn describe_by(
    server_oid: pg_sys::Oid,
    tables: &[FileSet],
    extent: DescribeExtent,
    access: StoreAccess,
) -> Result<Vec<Result<TableDescription>>> {
    let request = Request::Describe { tables: tables.to_vec(), extent, access };
    match ask_again(server_oid, &request)? {
        Response::Described(descriptions) if descriptions.len() == tables.len() => Ok(descriptions),
        other => Err(unexpected(&other)),
    }
}

/// What the identities of tables are now.
///
/// # Errors
///
/// Those of reaching the engine; inside, those of each table.
pub fn identify(server_oid: pg_sys::Oid, tables: &[FileSet]) -> Result<Vec<Result<u64>>> {
    let access = stores::access(server_oid, tables)?;
    match ask_again(server_oid, &Request::Identify { tables: tables.to_vec(), access })? {
        Response::Identified(identities) if identities.len() == tables.len() => Ok(identities),
        other => Err(unexpected(&other)),
    }
}

/// The names in a folder of a store.
///
/// # Errors
///
/// Those of reaching the engine and the store.
pub fn names(server_oid: pg_sys::Oid, folder: &str) -> Result<Vec<StoreName>> {
    let access = stores::access(server_oid, [&FileSet::parquet(vec![folder.to_owned()])])?;
    match ask_again(server_oid, &Request::Names { folder: folder.to_owned(), access })? {
        Response::Names(names) => Ok(names),
        other => Err(unexpected(&other)),
    }
}

/// The views of a namespace of the server's catalog, which a path stands for; with their texts if these are wanted.
///
/// # Errors
///
/// Those of reaching the engine and the catalog.
pub fn views(server_oid: pg_sys::Oid, folder: &str, wants_texts: bool) -> Result<Vec<CatalogView>> {
    let access = stores::access(server_oid, [&FileSet::parquet(vec![folder.to_owned()])])?;
    let request = Request::Views { folder: folder.to_owned(), wants_texts, access };
    match ask_again(server_oid, &request)? {
        Response::Views(views) => Ok(views),
        other => Err(unexpected(&other)),
    }
}

/// What a query would read.
///
/// # Errors
///
/// Those of reaching the engine and of the plan's files.
pub fn preview(server_oid: pg_sys::Oid, request: QueryRequest) -> Result<QueryMetrics> {
    match ask_again(server_oid, &Request::Preview(Box::new(request)))? {
        Response::Finished(metrics) => Ok(*metrics),
        other => Err(unexpected(&other)),
    }
}

/// How the server's engine is, or `None` if it is not running. Starts nothing.
///
/// # Errors
///
/// Those of the engine's answer.
pub fn status(server_oid: pg_sys::Oid) -> Result<Option<EngineStatus>> {
    match ask_if_running(server_oid, &Request::Status)? {
        Some(Response::Status(status)) => Ok(Some(status)),
        Some(other) => Err(unexpected(&other)),
        None => Ok(None),
    }
}

/// What the column cache of the server's engine holds; nothing if it is not running.
///
/// # Errors
///
/// Those of the engine's answer.
pub fn cache(server_oid: pg_sys::Oid) -> Result<Vec<CacheEntry>> {
    match ask_if_running(server_oid, &Request::Cache)? {
        Some(Response::Cache(entries)) => Ok(entries),
        Some(other) => Err(unexpected(&other)),
        None => Ok(Vec::new()),
    }
}

/// What the device of the server's engine did for the last queries; nothing if the engine is not running.
///
/// # Errors
///
/// Those of the engine's answer.
pub fn timelines(server_oid: pg_sys::Oid) -> Result<Vec<QueryTimeline>> {
    match ask_if_running(server_oid, &Request::Timeline)? {
        Some(Response::Timeline(timelines)) => Ok(timelines),
        Some(other) => Err(unexpected(&other)),
        None => Ok(Vec::new()),
    }
}

/// The queries that run on the server's engine and those that ended last; nothing if the engine is not running.
///
/// # Errors
///
/// Those of the engine's answer.
pub fn queries(server_oid: pg_sys::Oid) -> Result<Vec<QueryEntry>> {
    match ask_if_running(server_oid, &Request::Queries)? {
        Some(Response::Queries(entries)) => Ok(entries),
        Some(other) => Err(unexpected(&other)),
        None => Ok(Vec::new()),
    }
}

/// What the queries of the server's engine have cost; nothing if it is not running.
///
/// # Errors
///
/// Those of the engine's answer.
pub fn statistics(server_oid: pg_sys::Oid) -> Result<Vec<StatisticsEntry>> {
    ask_statistics(server_oid, &Request::Statistics)
}

/// Makes the server's engine forget what queries have cost, if it is running.
///
/// # Errors
///
/// Those of the engine's answer.
pub fn reset_statistics(server_oid: pg_sys::Oid) -> Result<()> {
    ask_statistics(server_oid, &Request::ResetStatistics).map(drop)
}

fn ask_statistics(server_oid: pg_sys::Oid, request: &Request) -> Result<Vec<StatisticsEntry>> {
    match ask_if_running(server_oid, request)? {
        Some(Response::Statistics(entries)) => Ok(entries),
        Some(other) => Err(unexpected(&other)),
        None => Ok(Vec::new()),
    }
}

/// The message in a frame.
///
/// # Errors
///
/// `Protocol` if the frame is no message; the engine's own error if it is `Failed`.
pub fn message(frame: &Frame) -> Result<Response> {
    if frame.kind != FrameKind::Message {
        return Err(Error::new(ErrorKind::Protocol, format!("expected a message, got {:?}", frame.kind)));
    }
    match decode_message(frame.body.as_slice())? {
        Response::Failed(error) => Err(error),
        response => Ok(response),
    }
}

/// The error of an answer that does not belong to the request.
pub fn unexpected(response: &Response) -> Error {
    let text = format!("{response:?}");
    let name: String = text.chars().take_while(|letter| letter.is_alphanumeric()).collect();
    Error::new(ErrorKind::Protocol, format!("unexpected answer from the engine: {name}"))
        .with_hint("Restart the server if pystachio was updated while it ran.")
}

/// Sends an encoded request to the server's engine. The answer may still be that the engine has not begun the request
/// ([`Connection::has_not_begun`]): then it may be sent again.
///
/// # Errors
///
/// Those of reaching the engine.
pub fn send(server_oid: pg_sys::Oid, frame: &[u8]) -> Result<PooledConnection> {
    let mut connection = acquire(server_oid)?;
    loop {
        match connection.send_frame(frame) {
            Ok(()) => return Ok(connection),
            // Each turn needs another engine that has ended just now.
            Err(error) if connection.has_not_begun(&error) => connection = acquire_checked(server_oid)?,
            Err(error) => return Err(error),
        }
    }
}

/// One question, one answer. The question has no effects, so that it may be asked twice where a pooled
/// connection turns out to be dead.
fn ask_again(server_oid: pg_sys::Oid, request: &Request) -> Result<Response> {
    let connection = acquire(server_oid)?;
    let from_pool = connection.is_from_pool();
    match ask(connection, request) {
        Err(error)
            if error.kind == ErrorKind::Retired || from_pool && error.kind == ErrorKind::Unavailable =>
        {
            ask(acquire_checked(server_oid)?, request)
        }
        answer => answer,
    }
}

fn ask_if_running(server_oid: pg_sys::Oid, request: &Request) -> Result<Option<Response>> {
    let Some(connection) = acquire_if_running(server_oid)? else { return Ok(None) };
    match ask(connection, request) {
        Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Retired) => Ok(None),
        answer => answer.map(Some),
    }
}

fn ask(mut connection: PooledConnection, request: &Request) -> Result<Response> {
    let response = connection.ask(request)?;
    connection.give_back();
    Ok(response)
}
