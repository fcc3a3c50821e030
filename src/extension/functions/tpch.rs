//! TPC-H: the data, and the 22 queries.

use pgrx::prelude::*;
use pystachio_plan::{Error, ErrorKind, FileLayout, GenerateRequest, Request, Response, Result};

use super::{
    text_argument,
    writing::{check_compression, check_path, invalid, write},
};
use crate::{client, error::OrRaise, options};

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
#[pg_extern(sql = false)]
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
#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments, reason = "SQL names them")]
fn tpch_generate(
    directory: &[u8],
    scale_factor: f64,
    tables: Array<'_, &[u8]>,
    overwrite: bool,
    row_group_rows: i64,
    compression: &[u8],
    server: &[u8],
    layout: &[u8],
) -> TableIterator<'static, (name!(table_name, String), name!(row_count, i64))> {
    options::require_write_server_files("generate TPC-H data");
    let request = GenerateRequest {
        directory: text_argument(directory),
        scale_factor,
        tables: tables.iter().flatten().map(text_argument).collect(),
        overwrite,
        row_group_rows: u64::try_from(row_group_rows).unwrap_or(0),
        compression: text_argument(compression),
        layout: layout_of(&text_argument(layout)).or_raise(),
    };
    check(&request, row_group_rows).or_raise();
    let server_oid = options::usable_server(&text_argument(server));
    let answer = write(server_oid, &Request::Generate(request), "tables").or_raise();
    let tables = match answer {
        Response::Generated { tables } => Ok(tables),
        other => Err(client::unexpected(&other)),
    };
    let rows = tables.or_raise().into_iter();
    let rows = rows.map(|(name, rows)| (name, i64::try_from(rows).unwrap_or(i64::MAX)));
    TableIterator::new(rows.collect::<Vec<_>>())
}

fn layout_of(layout: &str) -> Result<FileLayout> {
    match layout {
        "default" => Ok(FileLayout::Default),
        "gpu" => Ok(FileLayout::Gpu),
        _ => invalid(format!("invalid layout: \"{layout}\""), "Valid: default, gpu."),
    }
}

fn check(request: &GenerateRequest, row_group_rows: i64) -> Result<()> {
    check_path(&request.directory)?;
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
    check_compression(&request.compression)
}
