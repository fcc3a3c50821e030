//! IMPORT FOREIGN SCHEMA: a table for each Parquet file or folder of a directory, or for each table of a namespace.
//!
//! If a server has a catalog, a schema that is not a path is a namespace of the catalog.
//!
//! The directory is the schema's name, or the option `path`, because PostgreSQL cuts a name off
//! after 63 bytes. If the path has `{rank}`, the files and folders of rank 0 name the tables, and
//! each table has the files of all ranks.
#![expect(unsafe_code, reason = "reads the statement and builds PostgreSQL's list")]

use std::{
    collections::{BTreeMap, HashSet},
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    ColumnDescription, DataType, DescribeExtent, Error, ErrorKind, FileSet, RANK_PLACEHOLDER, RecordField,
    Result, StoreName, TableDescription, TableFormat, catalog_names, catalog_path, check_not_of_other_format,
    format_of_folder, is_in_store, system_reason,
};

use crate::{
    client,
    composites::Composites,
    error::OrRaise,
    options,
    pg::{encoding, list},
    stores,
};

/// The bytes that PostgreSQL keeps of a name.
const NAME_BYTES_MAX: usize = pg_sys::NAMEDATALEN as usize - 1;
/// The directory, where it is not the schema's name.
const PATH_OPTION: &str = "path";
/// By what columns are found in the files.
const MATCH_OPTION: &str = "match_by";
const MATCHES: &[&str] = &["name", "field_id"];
/// Whether structs are composite values, whose types are made.
const COMPOSITE_OPTION: &str = "import_composite";
/// How deep a folder is searched for Parquet files.
const DEPTH_MAX: usize = 16;

/// The statements that make the tables.
#[pg_guard]
pub unsafe extern "C-unwind" fn import_foreign_schema(
    statement: *mut pg_sys::ImportForeignSchemaStmt,
    server_oid: pg_sys::Oid,
) -> *mut pg_sys::List {
    // SAFETY: called by PostgreSQL with a valid statement.
    let mut request = unsafe { ImportRequest::read(statement) };
    request.seek_namespace(server_oid).or_raise();
    // Paths in stores are the server's to allow.
    if request.store_folder().is_none() {
        options::require_read_server_files("import tables from files");
    }
    let statements = import(&request, server_oid).or_raise();
    statements.into_iter().fold(std::ptr::null_mut(), |statements, text| {
        let text = CString::new(encoding::to_server(text.as_bytes()).or_raise()).unwrap_or_default();
        // SAFETY: the string is copied.
        unsafe { pg_sys::lappend(statements, pg_sys::pstrdup(text.as_ptr()).cast()) }
    })
}

struct ImportRequest {
    directory: PathBuf,
    /// The schema of new tables, as a text that names it.
    local_schema: String,
    columns: TableColumns,
    filter: TableFilter,
}

/// What the columns of new tables are declared by.
pub struct TableColumns {
    /// The server of new tables.
    pub server: String,
    /// They are found by their field ids.
    pub by_id: bool,
    /// The schema in which composite types of structs are made, if they are.
    pub composites_in: Option<String>,
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
            let mut by_id = false;
            let mut composites_in = None;
            for (name, value) in list::options(statement.options) {
                match name.as_str() {
                    PATH_OPTION => directory = value,
                    MATCH_OPTION => {
                        by_id = options::parse_choice(&name, &value, MATCHES).or_raise() == "field_id";
                    }
                    COMPOSITE_OPTION => {
                        let schema = || list::string(statement.local_schema);
                        composites_in = (options::parse_choice(&name, &value, &["true", "false"]).or_raise()
                            == "true")
                            .then(schema);
                    }
                    _ => {
                        let message = format!("import option \"{name}\" does not exist");
                        let hint =
                            format!("Valid options: {PATH_OPTION}, {MATCH_OPTION}, {COMPOSITE_OPTION}.");
                        crate::error::raise(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
                    }
                }
            }
            let columns = TableColumns { server: list::string(statement.server_name), by_id, composites_in };
            let local_schema = list::string(pg_sys::quote_identifier(statement.local_schema));
            Self { directory: directory.into(), local_schema, columns, filter }
        }
    }

    /// Has a directory that is no path stand for a namespace of the server's catalog, if it has one.
    fn seek_namespace(&mut self, server_oid: pg_sys::Oid) -> Result<()> {
        let Some(text) = self.directory.to_str() else { return Ok(()) };
        if self.directory.is_absolute() || is_in_store(text) || !stores::has_catalog(server_oid)? {
            return Ok(());
        }
        let names = options::dotted_names(text).ok_or_else(|| not_a_namespace(text))?;
        self.directory = catalog_path(&names).into();
        Ok(())
    }

    /// The directory, if it is a namespace of a catalog.
    fn namespace(&self) -> Option<Vec<String>> {
        self.store_folder().and_then(catalog_names)
    }

    /// Whether a table is left out that has no files: a folder of a store that was not named.
    fn skips_empty(&self, files: &FileSet) -> bool {
        files.is_in_store() && self.namespace().is_none() && !matches!(self.filter, TableFilter::LimitTo(_))
    }

    /// The directory, if it is in a store.
    fn store_folder(&self) -> Option<&str> {
        self.directory.to_str().filter(|folder| is_in_store(folder))
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
    let FoundTables { tables, mut failed } = match (request.store_folder(), request.namespace()) {
        (Some(path), Some(namespace)) => find_in_catalog(request, server_oid, (path, &namespace))?,
        (Some(folder), None) => find_objects(request, server_oid, folder)?,
        (None, _) => find_tables(request)?,
    };
    if let (Some(path), Some(namespace)) = (request.store_folder(), request.namespace()) {
        name_views(request, server_oid, path, &options::dotted_text(&namespace));
    }
    if let TableFilter::LimitTo(names) = &request.filter
        && let Some(missing) = names
            .iter()
            .find(|name| !tables.contains_key(*name) && !failed.iter().any(|(failed, _)| failed == *name))
    {
        if let Some(namespace) = request.namespace() {
            let namespace = options::dotted_text(&namespace);
            let message = format!("no table \"{missing}\" in namespace \"{namespace}\" of the catalog");
            return Err(Error::new(ErrorKind::FileNotFound, message)
                .with_hint("Views are made by pystachio.import_views()."));
        }
        let directory = request.directory.display();
        return Err(Error::new(
            ErrorKind::FileNotFound,
            format!("no file or folder for table \"{missing}\" in \"{directory}\""),
        )
        .with_hint("A table has the name of its file, without .parquet, or of its folder."));
    }
    let file_sets: Vec<FileSet> = tables.values().cloned().collect();
    let descriptions = match file_sets.is_empty() {
        true => Vec::new(),
        false => client::describe(server_oid, &file_sets, DescribeExtent::All)?,
    };
    let mut statements = Vec::new();
    for ((name, files), description) in tables.iter().zip(descriptions) {
        let statement =
            description.and_then(|description| request.columns.create_table(name, files, &description));
        match statement {
            Ok(statement) => statements.push(statement),
            // A folder of a store is known for what it has when it is read.
            Err(error) if error.kind == ErrorKind::FileNotFound && request.skips_empty(files) => {}
            Err(error) => failed.push((name.clone(), error)),
        }
    }
    leave_out(request, &statements, failed)?;
    Ok(statements)
}

/// Says which views a namespace has. IMPORT may make foreign tables alone.
fn name_views(request: &ImportRequest, server_oid: pg_sys::Oid, path: &str, namespace: &str) {
    let views = match client::views(server_oid, path, false) {
        Ok(views) => views,
        // Tables need no right on views.
        Err(error) => {
            let message = format!("the views of namespace \"{namespace}\" are not known: {}", error.message);
            notice!("{}", encoding::to_message(message));
            return;
        }
    };
    let names: Vec<String> = views
        .into_iter()
        .map(|view| view.name)
        .filter(|name| request.wants(&shorten(name)))
        .map(|name| format!("\"{name}\""))
        .collect();
    if names.is_empty() {
        return;
    }
    let message = format!("views of namespace \"{namespace}\" are not imported: {}", names.join(", "));
    let [server, namespace, schema] =
        [request.columns.server.as_str(), namespace, &request.local_schema].map(quote_literal);
    let hint =
        format!("To make them, SELECT * FROM pystachio.import_views({server}, {namespace}, {schema}).");
    ereport!(
        PgLogLevel::NOTICE,
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        encoding::to_message(message),
        encoding::to_message(hint)
    );
}

/// Warns of tables that can't be made, unless they are all of them, or were asked for by name.
fn leave_out(request: &ImportRequest, made: &[String], failed: Vec<(String, Error)>) -> Result<()> {
    let is_named = matches!(request.filter, TableFilter::LimitTo(_));
    for (name, error) in failed {
        if made.is_empty() || is_named {
            return Err(error);
        }
        let message = encoding::to_message(format!("table \"{name}\" is left out: {}", error.message));
        match error.hint.map(encoding::to_message) {
            Some(hint) => ereport!(PgLogLevel::WARNING, PgSqlErrorCode::ERRCODE_FDW_ERROR, message, hint),
            None => ereport!(PgLogLevel::WARNING, PgSqlErrorCode::ERRCODE_FDW_ERROR, message),
        }
    }
    Ok(())
}

/// What there is to import.
#[derive(Default)]
struct FoundTables {
    tables: BTreeMap<String, FileSet>,
    /// Folders that could not be searched.
    failed: Vec<(String, Error)>,
}

/// The Parquet files of the wanted tables, and the folders that contain such, by the name of their table.
fn find_tables(request: &ImportRequest) -> Result<FoundTables> {
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
    let mut found = FoundTables::default();
    let mut is_empty = true;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(&listed, &error))?;
        let Some(table) = table_name(&entry.path())? else { continue };
        if !request.wants(&table) {
            is_empty = false;
            continue;
        }
        let format = format_of_folder(&entry.path()).unwrap_or_default();
        if format == TableFormat::Parquet && entry.path().is_dir() {
            match has_parquet(&entry.path(), DEPTH_MAX) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    found.failed.push((table, error));
                    continue;
                }
            }
        }
        is_empty = false;
        let path = directory.join(entry.file_name());
        let text = path.to_str().ok_or_else(|| not_utf8(&path))?.to_string();
        if let Some(other) = found.tables.get(&table) {
            return Err(named_twice(&table, other, text));
        }
        found.tables.insert(table, FileSet { format, ..FileSet::parquet(vec![text]) });
    }
    if is_empty && found.failed.is_empty() {
        let message = format!("no Parquet files in \"{}\"", listed.display());
        return Err(Error::new(ErrorKind::FileNotFound, message)
            .with_hint("The names of files must end in .parquet, and folders must contain such files."));
    }
    Ok(found)
}

/// The Parquet objects and folders of a folder in a store, by the name of their table.
fn find_objects(request: &ImportRequest, server_oid: pg_sys::Oid, folder: &str) -> Result<FoundTables> {
    let mut found = FoundTables::default();
    let folder = folder.trim_end_matches('/');
    let mut is_empty = true;
    for StoreName { name, is_folder, format } in client::names(server_oid, folder)? {
        let stem = if is_folder { Some(name.as_str()) } else { name.strip_suffix(".parquet") };
        let Some(stem) = stem.filter(|stem| !stem.is_empty() && !name.starts_with(['.', '_'])) else {
            continue;
        };
        is_empty = false;
        let table = shorten(stem);
        if !request.wants(&table) {
            continue;
        }
        // A folder of files is told from an object of the same name.
        let is_files = is_folder && format == TableFormat::Parquet;
        let text = format!("{folder}/{name}{}", if is_files { "/" } else { "" });
        if let Some(other) = found.tables.get(&table) {
            return Err(named_twice(&table, other, text));
        }
        found.tables.insert(table, FileSet { format, ..FileSet::parquet(vec![text]) });
    }
    if is_empty {
        let message = format!("no Parquet files in \"{folder}\"");
        return Err(Error::new(ErrorKind::FileNotFound, message)
            .with_hint("The names of files must end in .parquet, and folders must contain such files."));
    }
    Ok(found)
}

/// The tables of a namespace of a catalog, by the names of new tables.
fn find_in_catalog(
    request: &ImportRequest,
    server_oid: pg_sys::Oid,
    (path, namespace): (&str, &[String]),
) -> Result<FoundTables> {
    let mut found = FoundTables::default();
    let names = client::names(server_oid, path)?;
    if names.is_empty() {
        let namespace = options::dotted_text(namespace);
        let message = format!("no tables in namespace \"{namespace}\" of the catalog");
        return Err(Error::new(ErrorKind::FileNotFound, message)
            .with_hint("Namespaces in it are imported by names of their own, and views are made by pystachio.import_views()."));
    }
    for StoreName { name, format, .. } in names {
        let table = shorten(&name);
        if !request.wants(&table) {
            continue;
        }
        let path = catalog_path(&[namespace, &[name]].concat());
        if let Some(other) = found.tables.get(&table) {
            return Err(named_twice(&table, other, path));
        }
        found.tables.insert(table, FileSet { format, ..FileSet::parquet(vec![path]) });
    }
    Ok(found)
}

/// The error of a text that can't name a namespace.
pub fn not_a_namespace(text: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("\"{text}\" is not the name of a namespace"))
        .with_hint("Name one of the catalog, as sales or sales.eu; names with points are in double quotes.")
}

/// The error of two files or folders that would make tables of one name.
fn named_twice(table: &str, other: &FileSet, text: String) -> Error {
    let mut paths = [other.paths.concat(), text];
    paths.sort();
    let message = format!("two tables would be named \"{table}\": \"{}\"", paths.join("\" and \""));
    let hint = "Leave the name out by EXCEPT, and use CREATE FOREIGN TABLE for each of the two.";
    Error::new(ErrorKind::InvalidArgument, message).with_hint(hint)
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

impl TableColumns {
    /// The statement that makes a table.
    fn create_table(&self, table: &str, files: &FileSet, description: &TableDescription) -> Result<String> {
        let mut columns = self.definitions(table, description, HashSet::new(), &|_| true)?;
        if let Some(schema) = &self.composites_in {
            let mut composites = Composites::new(schema, table);
            for column in &mut columns {
                let record = column.column.record.as_ref().filter(|record| has_short_names(record));
                if let Some(record) = record {
                    column.sql_type = composites.of_column(&column.name, record)?;
                }
            }
            composites.make()?;
        }
        let columns: Vec<String> = columns.iter().map(ColumnDefinition::to_sql).collect();
        let path = files.paths.first().map_or("", String::as_str);
        let options = match (catalog_names(path), &files.format) {
            (Some(names), _) => format!("table {}", quote_literal(&options::dotted_text(&names))),
            (None, TableFormat::Parquet) => format!("path {}", quote_literal(path)),
            (None, format) => format!("path {}, format '{}'", quote_literal(path), format.option()),
        };
        Ok(format!(
            "CREATE FOREIGN TABLE {} (\n  {}\n) SERVER {} OPTIONS ({options})",
            quote_identifier(table),
            columns.join(",\n  "),
            quote_identifier(&self.server),
        ))
    }

    /// The columns of a table, or those of them that are wanted, with names beside those that are taken. Notices name columns that are left out
    /// and how files differ.
    ///
    /// # Errors
    ///
    /// `SchemaMismatch` for two columns of one name, and for files without field ids.
    pub fn definitions<'d>(
        &self,
        table: &str,
        description: &'d TableDescription,
        mut taken: HashSet<String>,
        is_wanted: &dyn Fn(&ColumnDescription) -> bool,
    ) -> Result<Vec<ColumnDefinition<'d>>> {
        let mut columns = Vec::new();
        for column in self.described(table, description)?.into_iter().filter(|column| is_wanted(column)) {
            let say = |what: &str| {
                let notice = format!("table \"{table}\": column \"{}\" {what}", column.name);
                notice!("{}", encoding::to_message(notice));
            };
            if column.data_type.is_none() {
                let (name, file_type) = (&column.name, &column.file_type);
                let notice = match column.is_locked {
                    true => format!(
                        "table \"{table}\": column \"{name}\" is left out: it is encrypted, and the user mapping of the role has no key for it"
                    ),
                    false => format!(
                        "table \"{table}\": column \"{name}\" is left out: no PostgreSQL type holds {file_type}"
                    ),
                };
                notice!("{}", encoding::to_message(notice));
                continue;
            }
            notes(column).iter().for_each(|note| say(note));
            let field_id = column.field_id.filter(|_| self.by_id);
            let mut name = shorten(&column.name);
            if let Some(id) = field_id.filter(|_| taken.contains(&name)) {
                name = shorten(&format!("{id}_{name}"));
                say(&format!("with the field id {id} is named \"{name}\": another column has its name"));
            }
            if !taken.insert(name.clone()) {
                let message = format!("table \"{table}\" has two columns named \"{name}\"");
                return Err(Error::new(ErrorKind::SchemaMismatch, message)
                    .with_hint("Use CREATE FOREIGN TABLE with the column option column_name."));
            }
            let sql_type = column.sql_type.clone();
            columns.push(ColumnDefinition { name, column, field_id, sql_type });
        }
        Ok(columns)
    }

    /// The columns that a table may have.
    fn described<'d>(
        &self,
        table: &str,
        description: &'d TableDescription,
    ) -> Result<Vec<&'d ColumnDescription>> {
        if !self.by_id {
            return Ok(description.columns.iter().collect());
        }
        if !description.by_id.iter().any(|column| column.data_type.is_some()) {
            let message = format!("not all files of table \"{table}\" have columns with field ids");
            return Err(Error::new(ErrorKind::SchemaMismatch, message)
                .with_hint(format!("Import it without the option {MATCH_OPTION}.")));
        }
        let has_id = |name: &str| description.by_id.iter().any(|column| column.name == name);
        let without = description
            .columns
            .iter()
            .filter(|column| !column.is_folder_key() && column.field_id.is_none() && !has_id(&column.name));
        for ColumnDescription { name, .. } in without {
            let notice = format!("table \"{table}\": column \"{name}\" is left out: it has no field id");
            notice!("{}", encoding::to_message(notice));
        }
        let of_folders = description.columns.iter().filter(|column| column.is_folder_key());
        Ok(description.by_id.iter().chain(of_folders).collect())
    }
}

/// Whether PostgreSQL can have all names of fields as they are.
fn has_short_names(data_type: &DataType) -> bool {
    let fields = data_type.fields().unwrap_or_default();
    fields.iter().all(|RecordField { name, data_type, .. }| {
        !name.is_empty() && !name.contains('\0') && shorten(name) == *name && has_short_names(data_type)
    })
}

/// The differences of files in a column, and its loss of digits, in words that follow its name.
fn notes(column: &ColumnDescription) -> Vec<String> {
    let sql_type = &column.sql_type;
    let differences = column
        .differences
        .as_ref()
        .map(|differences| format!("is imported as {sql_type}: it is {differences}"));
    let rounded =
        column.is_rounded.then(|| "is rounded down to microseconds: the files have nanoseconds".to_owned());
    // Many programs mark every time as UTC. Users declare `timetz` where the times are of a zone.
    let of_utc = (column.is_time_of_utc && column.data_type == Some(DataType::Time))
        .then(|| "has times in UTC: declare timetz to read them with their zone".to_owned());
    differences.into_iter().chain(rounded).chain(of_utc).collect()
}

/// A column of a new table.
pub struct ColumnDefinition<'d> {
    /// Its name.
    pub name: String,
    /// What the files have.
    pub column: &'d ColumnDescription,
    /// By which the column is found in the files.
    field_id: Option<i32>,
    /// The type that it is declared with.
    sql_type: String,
}

impl ColumnDefinition<'_> {
    /// As CREATE and ALTER FOREIGN TABLE take it.
    pub fn to_sql(&self) -> String {
        let mut options = Vec::new();
        if self.name != self.column.name {
            options.push(format!("column_name {}", quote_literal(&self.column.name)));
        }
        options.extend(self.field_id.map(|id| format!("field_id '{id}'")));
        let options = match options.is_empty() {
            true => String::new(),
            false => format!(" OPTIONS ({})", options.join(", ")),
        };
        let not_null = if self.column.required { " NOT NULL" } else { "" };
        format!("{} {}{options}{not_null}", quote_identifier(&self.name), self.sql_type)
    }
}

/// A name as PostgreSQL would cut it, which counts bytes of the database's encoding.
pub fn shorten(name: &str) -> String {
    let mut bytes = 0;
    let fits = |character: &char| {
        bytes += encoding::to_shown(&character.to_string()).as_bytes().len();
        bytes <= NAME_BYTES_MAX
    };
    name.chars().take_while(fits).collect()
}

/// A name as SQL writes it.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL writes it.
pub fn quote_literal(text: &str) -> String {
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
