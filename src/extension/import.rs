//! IMPORT FOREIGN SCHEMA: a table for each Parquet file or folder of a directory.
//!
//! The directory is the schema's name, or the option `path` where there is one: PostgreSQL cuts a name off after 63 bytes. Of one
//! with `{rank}` the files and folders of rank 0 say which tables there are, and the tables are of those of all ranks.
#![expect(unsafe_code, reason = "reads the statement and builds PostgreSQL's list")]

use std::{
    collections::{BTreeMap, HashSet},
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    ColumnDescription, Error, ErrorKind, FileSet, RANK_PLACEHOLDER, Result, TableDescription,
    check_not_of_other_format, system_reason,
};

use crate::{
    client,
    error::OrRaise,
    options,
    pg::{encoding, list},
};

/// The bytes that PostgreSQL keeps of a name.
const NAME_BYTES_MAX: usize = pg_sys::NAMEDATALEN as usize - 1;
/// The directory, where it is not the schema's name.
const PATH_OPTION: &str = "path";
/// How deep a folder is searched for Parquet files.
const DEPTH_MAX: usize = 16;

/// The statements that make the tables.
#[pg_guard]
pub unsafe extern "C-unwind" fn import_foreign_schema(
    statement: *mut pg_sys::ImportForeignSchemaStmt,
    server_oid: pg_sys::Oid,
) -> *mut pg_sys::List {
    // SAFETY: called by PostgreSQL with a valid statement.
    let request = unsafe { ImportRequest::read(statement) };
    options::require_read_server_files("import tables from files");
    let statements = import(&request, server_oid).or_raise();
    statements.into_iter().fold(std::ptr::null_mut(), |statements, text| {
        let text = CString::new(encoding::to_server(text.as_bytes()).or_raise()).unwrap_or_default();
        // SAFETY: the string is copied.
        unsafe { pg_sys::lappend(statements, pg_sys::pstrdup(text.as_ptr()).cast()) }
    })
}

struct ImportRequest {
    directory: PathBuf,
    server: String,
    filter: TableFilter,
}

enum TableFilter {
    All,
    LimitTo(HashSet<String>),
    Except(HashSet<String>),
}

impl ImportRequest {
    unsafe fn read(statement: *mut pg_sys::ImportForeignSchemaStmt) -> Self {
        // SAFETY: a valid statement, whose table list has RangeVar nodes.
        unsafe {
            let statement = &*statement;
            let names = || {
                list::pointers::<pg_sys::RangeVar>(statement.table_list)
                    .map(|table| list::string((*table).relname))
                    .collect()
            };
            let filter = match statement.list_type {
                pg_sys::ImportForeignSchemaType::FDW_IMPORT_SCHEMA_LIMIT_TO => TableFilter::LimitTo(names()),
                pg_sys::ImportForeignSchemaType::FDW_IMPORT_SCHEMA_EXCEPT => TableFilter::Except(names()),
                _ => TableFilter::All,
            };
            let mut directory = list::string(statement.remote_schema);
            for (name, value) in list::options(statement.options) {
                if name != PATH_OPTION {
                    let message = format!("import option \"{name}\" does not exist");
                    let hint = format!("The valid option is {PATH_OPTION}.");
                    crate::error::raise(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
                }
                directory = value;
            }
            Self { directory: directory.into(), server: list::string(statement.server_name), filter }
        }
    }

    fn wants(&self, table: &str) -> bool {
        match &self.filter {
            TableFilter::All => true,
            TableFilter::LimitTo(names) => names.contains(table),
            TableFilter::Except(names) => !names.contains(table),
        }
    }
}

fn import(request: &ImportRequest, server_oid: pg_sys::Oid) -> Result<Vec<String>> {
    let tables: Vec<(String, FileSet)> = find_tables(request)?.into_iter().collect();
    if let TableFilter::LimitTo(names) = &request.filter
        && let Some(missing) = names.iter().find(|name| !tables.iter().any(|(found, _)| found == *name))
    {
        let directory = request.directory.display();
        return Err(Error::new(
            ErrorKind::FileNotFound,
            format!("no file or folder for table \"{missing}\" in \"{directory}\""),
        )
        .with_hint("A table has the name of its file, without .parquet, or of its folder."));
    }
    let file_sets: Vec<FileSet> = tables.iter().map(|(_, files)| files.clone()).collect();
    let descriptions = client::describe(server_oid, &file_sets)?;
    tables
        .iter()
        .zip(descriptions)
        .map(|((name, files), description)| create_table(&request.server, name, files, &description?))
        .collect()
}

/// The Parquet files of the wanted tables, and the folders that contain such, by the name of their table.
fn find_tables(request: &ImportRequest) -> Result<BTreeMap<String, FileSet>> {
    let directory = request.directory.as_path();
    if !directory.is_absolute() {
        let message = format!("\"{}\" is not an absolute path", directory.display());
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(
            "Name a folder on the server's host by its absolute path, as the schema or as the option path.",
        ));
    }
    let listed = PathBuf::from(directory.display().to_string().replace(RANK_PLACEHOLDER, "0"));
    let entries = fs::read_dir(&listed).map_err(|error| {
        let unreadable = unreadable(&listed, &error);
        match directory.as_os_str().len() {
            NAME_BYTES_MAX => unreadable.with_hint(format!(
                "PostgreSQL cuts names off after {NAME_BYTES_MAX} bytes. Give a longer path by OPTIONS ({PATH_OPTION} '/folder')."
            )),
            _ => unreadable,
        }
    })?;
    // Its files would each be a table.
    check_not_of_other_format(&listed)?;
    let mut tables: BTreeMap<String, FileSet> = BTreeMap::new();
    let mut is_empty = true;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(&listed, &error))?;
        let Some(table) = table_name(&entry.path())? else { continue };
        if !request.wants(&table) {
            is_empty = false;
            continue;
        }
        if entry.path().is_dir() && !has_parquet(&entry.path(), DEPTH_MAX)? {
            continue;
        }
        is_empty = false;
        let path = directory.join(entry.file_name());
        let text = path.to_str().ok_or_else(|| not_utf8(&path))?.to_string();
        if let Some(other) = tables.get(&table) {
            let mut paths = [other.paths.concat(), text];
            paths.sort();
            let message = format!("two tables would be named \"{table}\": \"{}\"", paths.join("\" and \""));
            let hint = "Leave the name out by EXCEPT, and use CREATE FOREIGN TABLE for each of the two.";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        }
        tables.insert(table, FileSet { paths: vec![text] });
    }
    if is_empty {
        let message = format!("no Parquet files in \"{}\"", listed.display());
        return Err(Error::new(ErrorKind::FileNotFound, message)
            .with_hint("The names of files must end in .parquet, and folders must contain such files."));
    }
    Ok(tables)
}

/// The name of the table that a directory's entry may be.
fn table_name(path: &Path) -> Result<Option<String>> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| not_utf8(path))?;
    if name.starts_with(['.', '_']) {
        return Ok(None);
    }
    if path.is_dir() {
        return Ok(Some(shorten(name)));
    }
    Ok(name.strip_suffix(".parquet").filter(|stem| !stem.is_empty()).map(shorten))
}

fn has_parquet(directory: &Path, depth_left: usize) -> Result<bool> {
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let path = entry.map_err(|error| unreadable(directory, &error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(['.', '_']) {
            continue;
        }
        let found = match path.is_dir() {
            true => depth_left > 0 && has_parquet(&path, depth_left - 1)?,
            false => name.ends_with(".parquet"),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn create_table(
    server: &str,
    table: &str,
    files: &FileSet,
    description: &TableDescription,
) -> Result<String> {
    let mut columns = Vec::new();
    let mut names = HashSet::new();
    for column in &description.columns {
        if column.data_type.is_none() {
            let (name, file_type) = (&column.name, &column.file_type);
            let notice = format!(
                "table \"{table}\": column \"{name}\" is left out: no PostgreSQL type holds {file_type}"
            );
            notice!("{}", encoding::to_message(notice));
            continue;
        }
        let name = shorten(&column.name);
        if !names.insert(name.clone()) {
            let message = format!("table \"{table}\" has two columns named \"{name}\"");
            return Err(Error::new(ErrorKind::SchemaMismatch, message)
                .with_hint("Use CREATE FOREIGN TABLE with the column option column_name."));
        }
        columns.push(column_definition(&name, column));
    }
    let path = files.paths.first().map_or("", String::as_str);
    Ok(format!(
        "CREATE FOREIGN TABLE {} (\n  {}\n) SERVER {} OPTIONS (path {})",
        quote_identifier(table),
        columns.join(",\n  "),
        quote_identifier(server),
        quote_literal(path)
    ))
}

fn column_definition(name: &str, column: &ColumnDescription) -> String {
    let options = match name == column.name {
        true => String::new(),
        false => format!(" OPTIONS (column_name {})", quote_literal(&column.name)),
    };
    let not_null = if column.required { " NOT NULL" } else { "" };
    format!("{} {}{options}{not_null}", quote_identifier(name), column.sql_type)
}

/// A name as PostgreSQL would cut it, which counts bytes of the database's encoding.
fn shorten(name: &str) -> String {
    let mut bytes = 0;
    let fits = |character: &char| {
        bytes += encoding::to_shown(&character.to_string()).as_bytes().len();
        bytes <= NAME_BYTES_MAX
    };
    name.chars().take_while(fits).collect()
}

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match quoted.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}

/// Why a folder could not be listed, and the way out.
fn unreadable(folder: &Path, error: &io::Error) -> Error {
    let name = folder.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::FileNotFound, format!("folder \"{name}\" does not exist"))
        }
        io::ErrorKind::PermissionDenied => {
            Error::new(ErrorKind::FilePermission, format!("could not list folder \"{name}\": permission denied"))
                .with_hint(
                    "Give the operating system user of the PostgreSQL server access to the folder and to each folder above it, or leave the folder out by EXCEPT.",
                )
        }
        io::ErrorKind::NotADirectory => {
            Error::new(ErrorKind::FileAccess, format!("\"{name}\" is not a folder"))
                .with_hint("Use CREATE FOREIGN TABLE for a single file.")
        }
        _ => {
            let reason = system_reason(error);
            Error::new(ErrorKind::FileAccess, format!("could not list folder \"{name}\": {reason}"))
        }
    }
}

fn not_utf8(path: &Path) -> Error {
    Error::new(ErrorKind::FileAccess, format!("the name of \"{}\" is not UTF-8", path.display()))
        .with_hint("Rename the file, or keep it out of the directory.")
}
