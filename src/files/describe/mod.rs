//! Tables as the planner needs them: columns, exact row counts and statistics, from footers alone.
//!
//! Invariants: every file has the columns of the first, of the same type. A description whose identity is
//! unchanged is not computed again.

#[cfg(test)]
mod tests;

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::{Arc, OnceLock},
};

use parquet::{basic::Repetition, file::metadata::ParquetMetaData, schema::types::Type};
use pystachio_plan::{
    ColumnDescription, Error, ErrorKind, FileDescription, FileSet, FilesState, Result, TableDescription,
};

use super::{
    bounded_map::BoundedMap,
    file_type::{FileType, file_type},
    files::{FileCatalog, FileFooter, FileIdentity, TableFile},
    statistics::ColumnSummary,
};

/// Descriptions kept at most; a description is some kilobytes.
const DESCRIPTIONS_MAX: usize = 1024;

/// Descriptions by the identity of their tables.
pub(super) type Descriptions = BoundedMap<u64, TableDescription, DESCRIPTIONS_MAX>;

/// Describes a table from its files' footers. Blocks.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`]; `SchemaMismatch` if a file lacks a column of the first one or has it
/// with another type, naming both.
pub fn describe(catalog: &FileCatalog, files: &FileSet) -> Result<TableDescription> {
    describe_opened(catalog, &catalog.open_all(files)?)
}

/// Describes a table whose files are open. Blocks.
///
/// # Errors
///
/// `SchemaMismatch` as of [`describe`].
pub fn describe_opened(catalog: &FileCatalog, files: &[TableFile]) -> Result<TableDescription> {
    let identity = opened_identity(files);
    if let Some(known) = catalog.descriptions.get(&identity) {
        return Ok(known);
    }
    let description = describe_files(files, identity)?;
    catalog.descriptions.insert(identity, description.clone());
    Ok(description)
}

/// The identity of a table, from its files alone. Blocks.
///
/// # Errors
///
/// `FileNotFound`, `FilePermission`, `FileAccess`, each naming the file.
pub fn identify(catalog: &FileCatalog, files: &FileSet) -> Result<u64> {
    let found = catalog.find(files)?;
    let files: Result<Vec<_>> =
        found.iter().map(|file| Ok((file.path.as_path(), FileIdentity::at(&file.path)?))).collect();
    Ok(table_identity(files?.into_iter()))
}

/// The identity of a table whose files are open.
pub fn opened_identity(files: &[TableFile]) -> u64 {
    table_identity(files.iter().map(|file| (file.footer.path.as_path(), file.footer.identity)))
}

/// A digest of what the files are: equal if nothing has changed.
fn table_identity<'a>(files: impl Iterator<Item = (&'a Path, FileIdentity)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, identity) in files {
        path.hash(&mut hasher);
        identity.hash(&mut hasher);
    }
    hasher.finish()
}

/// The state of a table whose files are open.
pub fn opened_state(files: &[TableFile]) -> FilesState {
    let (mut places, mut content) = (DefaultHasher::new(), DefaultHasher::new());
    places.write(machine());
    for file in files {
        let FileFooter { path, identity, digest, .. } = &*file.footer;
        identity.device.hash(&mut places);
        (path, identity.file_bytes, digest).hash(&mut content);
    }
    FilesState { places: places.finish(), identity: opened_identity(files), content: content.finish() }
}

/// What this machine is known by until it starts anew, to tell it from others. Where it does not say, all are taken for the same.
fn machine() -> &'static [u8] {
    static MACHINE: OnceLock<Vec<u8>> = OnceLock::new();
    MACHINE.get_or_init(|| fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

fn describe_files(files: &[TableFile], identity: u64) -> Result<TableDescription> {
    let Some(first) = files.first() else {
        return Err(Error::new(ErrorKind::FileNotFound, "a table without files"));
    };
    let mut columns = Vec::new();
    for (column_index, field) in fields(&first.footer).iter().enumerate() {
        let mut column = ColumnParts::new(field);
        column.add_file(&first.footer, column_index);
        for file in &files[1..] {
            let expected =
                ExpectedColumn { first: &first.footer, column_index, field, file_type: &column.file_type };
            let column_index = expected.place_in(&file.footer)?;
            column.add_file(&file.footer, column_index);
        }
        columns.push(column.description(field.name()));
    }
    let files: Vec<FileDescription> = files.iter().map(|file| describe_file(&file.footer)).collect();
    let row_count = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.row_count));
    Ok(TableDescription { files, columns, row_count, identity })
}

fn describe_file(footer: &FileFooter) -> FileDescription {
    let metadata = footer.metadata();
    FileDescription {
        path: footer.path.to_string_lossy().into_owned(),
        file_bytes: footer.identity.file_bytes,
        row_count: metadata.row_groups().iter().map(|group| count(group.num_rows())).sum(),
        row_group_count: metadata.num_row_groups() as u32,
    }
}

/// One column over the files seen so far.
struct ColumnParts {
    file_type: FileType,
    required: bool,
    summary: ColumnSummary,
    compressed_bytes: u64,
    uncompressed_bytes: u64,
}

impl ColumnParts {
    fn new(field: &Type) -> Self {
        let file_type = file_type(field);
        let summary =
            if file_type.storage.is_some() { ColumnSummary::new() } else { ColumnSummary::unknown() };
        Self { file_type, required: true, summary, compressed_bytes: 0, uncompressed_bytes: 0 }
    }

    fn add_file(&mut self, footer: &FileFooter, column_index: usize) {
        let metadata: &ParquetMetaData = footer.metadata();
        let field = &fields(footer)[column_index];
        let required = field.get_basic_info().repetition() == Repetition::REQUIRED;
        self.required &= required;
        // Files may store the same type in different ways.
        let file_type = file_type(field);
        for group in metadata.row_groups() {
            for leaf_index in footer.leaves(column_index) {
                let chunk = group.column(leaf_index);
                // A footer may state any number of bytes.
                let add = |sum: u64, bytes: i64| sum.saturating_add(count(bytes));
                self.compressed_bytes = add(self.compressed_bytes, chunk.compressed_size());
                self.uncompressed_bytes = add(self.uncompressed_bytes, chunk.uncompressed_size());
                if file_type.storage.is_some() {
                    match footer.statistics_of(group, leaf_index, &file_type) {
                        Some(statistics) => self.summary.add(&statistics),
                        None => self.summary = ColumnSummary::unknown(),
                    }
                }
            }
        }
    }

    fn description(self, name: &str) -> ColumnDescription {
        ColumnDescription {
            name: name.to_owned(),
            data_type: self.file_type.data_type,
            file_type: self.file_type.words,
            sql_type: self.file_type.sql_type,
            required: self.required,
            null_count: self.summary.null_count(),
            minimum: self.summary.minimum(),
            maximum: self.summary.maximum(),
            compressed_bytes: self.compressed_bytes,
            uncompressed_bytes: self.uncompressed_bytes,
        }
    }
}

/// A column of the first file, which the others must have too.
struct ExpectedColumn<'a> {
    first: &'a FileFooter,
    column_index: usize,
    field: &'a Type,
    file_type: &'a FileType,
}

impl ExpectedColumn<'_> {
    /// Where a later file has it: by its exact name, mostly at the same place, else without regard to case.
    fn place_in(&self, file: &FileFooter) -> Result<usize> {
        let (columns, name) = (fields(file), self.field.name());
        let is_same = |place: &usize| columns.get(*place).is_some_and(|column| column.name() == name);
        let place = Some(self.column_index).filter(is_same);
        let place = place
            .or_else(|| columns.iter().position(|column| column.name() == name))
            .or_else(|| columns.iter().position(|column| column.name().eq_ignore_ascii_case(name)))
            .ok_or_else(|| self.mismatch(file, "is missing"))?;
        let (found, expected) = (file_type(&columns[place]), self.file_type);
        if found.data_type != expected.data_type || found.sql_type != expected.sql_type {
            return Err(self.mismatch(file, &format!("is {}", found.words)));
        }
        Ok(place)
    }

    fn mismatch(&self, file: &FileFooter, found: &str) -> Error {
        let message = format!(
            "files of one table have different columns: column \"{}\" {found} in \"{}\" and is {} in \"{}\"",
            self.field.name(),
            file.path.display(),
            self.file_type.words,
            self.first.path.display()
        );
        Error::new(ErrorKind::SchemaMismatch, message)
            .with_hint("Give files of different schemas tables of their own.")
    }
}

fn fields(footer: &FileFooter) -> &[Arc<Type>] {
    footer.metadata().file_metadata().schema_descr().root_schema().get_fields()
}

/// A count that a footer gives as a signed number; it has been checked when the footer was read.
fn count(value: i64) -> u64 {
    value.try_into().unwrap_or(0)
}
