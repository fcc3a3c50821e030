//! A query's rows written to files.

use std::ffi::CString;

use pgrx::prelude::*;
use pystachio_plan::WriteForm;

use super::{count, text_argument, text_result};
use crate::{
    error::OrRaise,
    options,
    writing::{self, RowQuery, RowTarget},
};

/// Runs a query and writes its rows as a Parquet file of the server's host, or as files of a folder, by a server's engine. One row a
/// file. Files get their names when the transaction commits.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "a row of the result")]
#[allow(clippy::too_many_arguments, reason = "SQL's")]
fn write_parquet(
    query: &[u8],
    path: &[u8],
    overwrite: bool,
    compression: &[u8],
    row_group_rows: i64,
    server: &[u8],
    layout: &[u8],
    file_size: &[u8],
    partition_by: Array<'_, &[u8]>,
    sort_by: &[u8],
) -> TableIterator<'static, (name!(file, Vec<u8>), name!(row_count, i64), name!(bytes, i64))> {
    options::require_write_server_files("write Parquet files");
    let mut form = WriteForm::default();
    for (name, value) in [
        ("compression", text_argument(compression)),
        ("row_group_rows", row_group_rows.to_string()),
        ("layout", text_argument(layout)),
        ("file_size", text_argument(file_size)),
        ("sort_by", text_argument(sort_by)),
    ] {
        options::set_form_option(&mut form, name, &value).or_raise();
    }
    form.partition_by = partition_by.iter().flatten().map(text_argument).collect();
    let target = RowTarget { path: text_argument(path), overwrite, form, server_name: text_argument(server) };
    // SQL's text has no zero bytes.
    let text = CString::new(query).unwrap_or_default();
    let query = RowQuery::of_text(&text).or_raise();
    let files = writing::write_rows(&query, target).or_raise().into_iter();
    let rows = files.map(|file| (text_result(&file.path), count(file.row_count), count(file.bytes)));
    TableIterator::new(rows.collect::<Vec<_>>())
}
