//! TPC-H: the data, and the 22 queries.

use std::time::{Duration, Instant};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{Error, ErrorKind, GenerateRequest, Request, Response, Result};

use crate::{client, error::OrRaise, options};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
const COMPRESSIONS: &[&str] = &["none", "snappy", "lz4", "zstd"];

/// With the parameters by which the specification validates results; "first n rows" is a LIMIT, and the
/// view of query 15 a WITH.
const QUERIES: [&str; 22] = [
    include_str!("tpch/q01.sql"),
    include_str!("tpch/q02.sql"),
    include_str!("tpch/q03.sql"),
    include_str!("tpch/q04.sql"),
    include_str!("tpch/q05.sql"),
    include_str!("tpch/q06.sql"),
    include_str!("tpch/q07.sql"),
    include_str!("tpch/q08.sql"),
    include_str!("tpch/q09.sql"),
    include_str!("tpch/q10.sql"),
    include_str!("tpch/q11.sql"),
    include_str!("tpch/q12.sql"),
    include_str!("tpch/q13.sql"),
    include_str!("tpch/q14.sql"),
    include_str!("tpch/q15.sql"),
    include_str!("tpch/q16.sql"),
    include_str!("tpch/q17.sql"),
    include_str!("tpch/q18.sql"),
    include_str!("tpch/q19.sql"),
    include_str!("tpch/q20.sql"),
    include_str!("tpch/q21.sql"),
    include_str!("tpch/q22.sql"),
];

/// The text of TPC-H query `n`, without a semicolon.
#[pg_extern(immutable, strict, parallel_safe)]
fn tpch_query(n: i32) -> &'static str {
    let query = usize::try_from(n).ok().and_then(|n| QUERIES.get(n.checked_sub(1)?));
    query
        .map(|text| text.trim_end())
        .ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("there is no TPC-H query {n}"))
                .with_hint("The queries are numbered 1 to 22.")
        })
        .or_raise()
}

/// Writes the TPC-H tables as Parquet into a directory of the server's host, by a server's engine.
#[pg_extern(strict)]
#[allow(clippy::too_many_arguments, reason = "SQL names them")]
fn tpch_generate(
    directory: &str,
    scale_factor: default!(f64, 1.0),
    tables: default!(Vec<Option<String>>, "'{}'"),
    overwrite: default!(bool, false),
    row_group_rows: default!(i64, 0),
    compression: default!(&str, "'snappy'"),
    server: default!(&str, "'pystachio'"),
) -> TableIterator<'static, (name!(table_name, String), name!(row_count, i64))> {
    options::require_write_server_files("generate TPC-H data");
    let request = GenerateRequest {
        directory: directory.to_string(),
        scale_factor,
        tables: tables.into_iter().flatten().collect(),
        overwrite,
        row_group_rows: u64::try_from(row_group_rows).unwrap_or(0),
        compression: compression.to_string(),
    };
    check(&request, row_group_rows).or_raise();
    let tables = generate(options::usable_server(server), request).or_raise();
    let rows = tables.into_iter().map(|(name, rows)| (name, i64::try_from(rows).unwrap_or(i64::MAX)));
    TableIterator::new(rows.collect::<Vec<_>>())
}

fn check(request: &GenerateRequest, row_group_rows: i64) -> Result<()> {
    let invalid = |message: String, hint: &str| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint.to_string()))
    };
    if !request.directory.starts_with('/') {
        return invalid(
            format!("\"{}\" is not an absolute path", request.directory),
            "The path is one on the server's host, and begins with /.",
        );
    }
    if !(request.scale_factor > 0.0 && request.scale_factor.is_finite()) {
        let message = format!("invalid scale factor: {}", request.scale_factor);
        return invalid(message, "1 makes about 1 GB of text, 0.3 GB of Parquet.");
    }
    if row_group_rows < 0 {
        return invalid(
            format!("invalid row_group_rows: {row_group_rows}"),
            "0 leaves the choice to the engine.",
        );
    }
    if !COMPRESSIONS.contains(&request.compression.as_str()) {
        let valid = format!("Valid: {}.", COMPRESSIONS.join(", "));
        return invalid(format!("invalid compression: \"{}\"", request.compression), &valid);
    }
    Ok(())
}

fn generate(server_oid: pg_sys::Oid, request: GenerateRequest) -> Result<Vec<(String, u64)>> {
    let mut connection = client::acquire_checked(server_oid)?;
    connection.send(&Request::Generate(request))?;
    let mut shown = Instant::now();
    loop {
        match client::message(&connection.receive()?)? {
            Response::Progress { table, rows_done, rows_total } => {
                if shown.elapsed() >= PROGRESS_INTERVAL {
                    shown = Instant::now();
                    let percent = rows_done * 100 / rows_total.max(1);
                    info!("{table}: {rows_done} of {rows_total} rows of all tables ({percent} %)");
                }
            }
            Response::Generated { tables } => {
                connection.give_back();
                return Ok(tables);
            }
            other => return Err(client::unexpected(&other)),
        }
    }
}
