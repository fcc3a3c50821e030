//! `pystachio.describe()`, which lists the columns of files, and `pystachio.refresh_table()`, which
//! adds new ones to a table.

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    ColumnContent, ColumnDescription, DataType, DescribeExtent, Error, ErrorKind, FileColumn, FileSet,
    Result, TableDescription,
};

use super::{
    count,
    rows::{cell, return_rows},
    text_argument,
};
use crate::{
    client,
    error::OrRaise,
    file_tables, import, options,
    pg::{
        compat, encoding,
        tree::{Table, column_name, lock_table, qualified_name, type_name},
    },
    types,
};

/// `pystachio.describe(path, server)`: the columns of files, as IMPORT FOREIGN SCHEMA would declare them.
#[pg_extern(sql = false)]
fn describe(path: &[u8], server: &[u8], fcinfo: pg_sys::FunctionCallInfo) {
    options::require_read_server_files("describe Parquet files");
    let files = options::file_set(&text_argument(path)).or_raise();
    let table = description(options::usable_server(&text_argument(server)), files).or_raise();
    let (file_count, row_count) = (count(table.files.len() as u64), count(table.row_count));
    let rows = table.columns.iter().map(|column| {
        vec![
            cell("column_name", column.name.clone()),
            cell("type", column.data_type.is_some().then(|| column.sql_type.clone())),
            cell("not_null", column.required),
            cell("field_id", column.field_id),
            cell("file_type", column.file_type.clone()),
            cell("differences", column.differences.clone()),
            cell("bytes", count(column.compressed_bytes)),
            cell("files", file_count),
            cell("rows", row_count),
        ]
    });
    return_rows(fcinfo, rows);
}

fn description(server_oid: pg_sys::Oid, files: FileSet) -> Result<TableDescription> {
    let described = client::describe(server_oid, &[files], DescribeExtent::All)?.into_iter().next();
    described.unwrap_or_else(|| Err(Error::internal("the engine described no table")))
}

/// `pystachio.refresh_table(table)`: adds the columns that the files of a foreign table have and the table has not, and gives columns
/// the wider types of their files. NOTICEs name each change, and each that is not possible.
#[pg_extern(sql = false)]
fn refresh_table(table_oid: pg_sys::Oid) {
    refresh(table_oid).or_raise();
}

fn refresh(table_oid: pg_sys::Oid) -> Result<()> {
    let table = qualified_name(table_oid);
    if !options::is_our_table(table_oid) {
        let message = format!("{table} is not a foreign table of pystachio");
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("Name a table of a server that was made with FOREIGN DATA WRAPPER pystachio."));
    }
    if !compat::owns_table(table_oid) {
        let message = format!("must be owner of foreign table {table}");
        return Err(
            Error::new(ErrorKind::FilePermission, message).with_hint("Let the owner refresh the table.")
        );
    }
    // As ALTER FOREIGN TABLE does, so that no other session adds the same columns.
    lock_table(table_oid);
    let table_options = options::table_options(table_oid);
    let description = description(table_options.server_oid, table_options.files)?;
    let declared = declared_columns(table_oid);
    let by_id = declared.iter().any(|column| column.in_files.field_id.is_some());
    let mut changes = Vec::new();
    let mut found = Vec::new();
    for column in &declared {
        let Some(described) = description.column(&column.in_files) else {
            // Fields of structs are not described.
            if column.is_of_files && !column.in_files.name.contains('.') {
                notice(format!("column \"{}\" of {table} is in no file", column.name));
            }
            continue;
        };
        if described.data_type.is_none() {
            let (name, file_type) = (&column.name, &described.file_type);
            notice(format!(
                "column \"{name}\" of {table} can't be read: no PostgreSQL type holds {file_type}"
            ));
        }
        found.push((&described.name, described.field_id));
        changes.extend(widening(&table, column, described));
    }
    let gained = import::TableColumns { server: String::new(), by_id, composites_in: None };
    let taken = declared.iter().map(|column| column.name.clone()).collect();
    // A column has its id as a name where columns are found by these.
    let is_gained = |column: &ColumnDescription| {
        !found.iter().any(
            |(name, id)| if by_id && id.is_some() { *id == column.field_id } else { **name == column.name },
        )
    };
    for definition in gained.definitions(&table, &description, taken, &is_gained)? {
        notice(format!("column \"{}\" of {table} is added: {}", definition.name, definition.column.sql_type));
        changes.push(format!("ADD COLUMN {}", definition.to_sql()));
    }
    match changes.is_empty() {
        true => Ok(()),
        false => file_tables::run(&format!("ALTER FOREIGN TABLE {table} {}", changes.join(", "))),
    }
}

fn notice(text: String) {
    pgrx::notice!("{}", encoding::to_message(text));
}

/// A column of a foreign table.
struct DeclaredColumn {
    name: String,
    in_files: FileColumn,
    /// Whether it is one of the files' columns.
    is_of_files: bool,
    /// Its type and modifier.
    sql_type: (pg_sys::Oid, i32),
}

fn declared_columns(table_oid: pg_sys::Oid) -> Vec<DeclaredColumn> {
    let table = Table::open(table_oid);
    let columns =
        table.columns().into_iter().filter(|column| !column.attisdropped && !compat::is_virtual(column));
    let declared = columns.map(|column| {
        let content = options::column_content(table_oid, column.attnum);
        DeclaredColumn {
            name: column_name(table_oid, column.attnum),
            in_files: options::file_column(table_oid, column.attnum),
            is_of_files: matches!(content, ColumnContent::Column | ColumnContent::Json),
            sql_type: (column.atttypid, column.atttypmod),
        }
    });
    declared.collect()
}

/// The change of a column's type to that of its files, if that holds more values than the declared one and all of these.
fn widening(table: &str, column: &DeclaredColumn, described: &ColumnDescription) -> Option<String> {
    let (type_oid, modifier) = column.sql_type;
    // A domain stays one.
    if types::base_type(type_oid, modifier) != column.sql_type {
        return None;
    }
    let declared = types::data_type(type_oid, modifier)?;
    let of_files = described.data_type.as_ref()?;
    if declared == *of_files
        || declared == DataType::Numeric
        || declared.widened(of_files).as_ref() != Some(of_files)
    {
        return None;
    }
    let (name, sql_type) = (&column.name, &described.sql_type);
    let before = type_name(type_oid, modifier);
    notice(format!("column \"{name}\" of {table} is widened from {before} to {sql_type}"));
    Some(format!("ALTER COLUMN {} TYPE {sql_type}", import::quote_identifier(name)))
}
