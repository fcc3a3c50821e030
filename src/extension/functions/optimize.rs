//! Files rewritten for reading on a GPU.

use pgrx::prelude::*;
use pystachio_plan::{OptimizeRequest, Request, Response, Result};

use super::{
    text_argument, text_result,
    writing::{check_compression, check_path, invalid, write},
};
use crate::{client, error::OrRaise, options, pg::encoding::to_message};

/// Rewrites Parquet files of the server's host for reading on a GPU, by a server's engine: large row groups of
/// many pages, an encoding by trial for every column, and compression where it pays. One row a file and column.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the result")]
fn optimize_parquet(
    source: &[u8],
    target: &[u8],
    overwrite: bool,
    row_group_rows: i64,
    compression: &[u8],
    server: &[u8],
) -> TableIterator<
    'static,
    (
        name!(file, Vec<u8>),
        name!(column_name, Vec<u8>),
        name!(encoding, String),
        name!(compression, String),
        name!(row_groups, i64),
        name!(pages, i64),
        name!(bytes_before, i64),
        name!(bytes_after, i64),
        name!(reason, String),
    ),
> {
    options::require_read_server_files("optimize Parquet files");
    options::require_write_server_files("optimize Parquet files");
    let request = OptimizeRequest {
        source: text_argument(source),
        target: text_argument(target),
        overwrite,
        row_group_rows: u64::try_from(row_group_rows).unwrap_or(0),
        compression: text_argument(compression),
    };
    check(&request, row_group_rows).or_raise();
    let server_oid = options::usable_server(&text_argument(server));
    let answer = write(server_oid, &Request::Optimize(request), "files").or_raise();
    let columns = match answer {
        Response::Optimized(columns) => Ok(columns),
        other => Err(client::unexpected(&other)),
    };
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let rows = columns.or_raise().into_iter().map(move |column| {
        (
            text_result(&column.file),
            text_result(&column.column),
            column.encoding,
            column.compression,
            count(column.row_groups),
            count(column.pages),
            count(column.bytes_before),
            count(column.bytes_after),
            to_message(column.reason),
        )
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}

fn check(request: &OptimizeRequest, row_group_rows: i64) -> Result<()> {
    check_path(&request.source)?;
    check_path(&request.target)?;
    if row_group_rows < 1 {
        let hint = "A GPU reads about 10000000 rows at a time best.";
        return invalid(format!("invalid row_group_rows: {row_group_rows}"), hint);
    }
    check_compression(&request.compression)
}
