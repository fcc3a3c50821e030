//! Requests that write files, with progress for the user.

use std::time::{Duration, Instant};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    Error, ErrorKind, RANK_PLACEHOLDER, Request, Response, Result, encode_message, is_in_store,
};

use crate::{client, options::COMPRESSIONS};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a request that writes files and returns its last answer. `all` are what progress is over: `tables`.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn write(server_oid: pg_sys::Oid, request: &Request, all: &str) -> Result<Response> {
    let frame = encode_message(request)?;
    let mut connection = client::send(server_oid, &frame)?;
    let mut has_begun = false;
    let (mut shown, mut shown_percent) = (Instant::now(), 0);
    loop {
        let answer = connection.receive().and_then(|frame| client::message(&frame));
        if !has_begun && answer.as_ref().is_err_and(|error| connection.has_not_begun(error)) {
            connection = client::send(server_oid, &frame)?;
            continue;
        }
        has_begun = true;
        match answer? {
            Response::Progress { name, rows_done, rows_total } => {
                let percent = rows_done * 100 / rows_total.max(1);
                // What says nothing new is not said again.
                if shown.elapsed() >= PROGRESS_INTERVAL && percent != shown_percent {
                    (shown, shown_percent) = (Instant::now(), percent);
                    info!("{name}: {rows_done} of {rows_total} rows of all {all} ({percent} %)");
                }
            }
            response => {
                connection.give_back();
                return Ok(response);
            }
        }
    }
}

/// Checks a path that names files of the server's host.
///
/// # Errors
///
/// `InvalidArgument` if it is not absolute, or stands for the files of several ranks.
pub fn check_path(path: &str) -> Result<()> {
    if path.contains(RANK_PLACEHOLDER) {
        return invalid(
            format!("\"{path}\" stands for files of every rank"),
            "Files are rewritten and written for one rank at a time: put its number in for {rank}.",
        );
    }
    if path.starts_with('/') {
        return Ok(());
    }
    if is_in_store(path) {
        return Err(Error::new(
            ErrorKind::NotSupported,
            format!("files in stores are not rewritten, nor are TPC-H tables written there: \"{path}\""),
        )
        .with_hint("Write files into a folder of the server's host, and copy them into the store."));
    }
    invalid(
        format!("\"{path}\" is not an absolute path"),
        "The path is one on the server's host, and begins with /.",
    )
}

/// Checks the argument `compression`.
///
/// # Errors
///
/// `InvalidArgument`.
pub(super) fn check_compression(compression: &str) -> Result<()> {
    if COMPRESSIONS.contains(&compression) {
        return Ok(());
    }
    let valid = format!("Valid: {}.", COMPRESSIONS.join(", "));
    invalid(format!("invalid compression: \"{compression}\""), &valid)
}

/// The error of an argument that makes no sense.
///
/// # Errors
///
/// Always.
pub(super) fn invalid<T>(message: String, hint: &str) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint.to_string()))
}
