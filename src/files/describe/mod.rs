//! Tables as the planner needs them: columns, exact row counts and statistics, from footers alone.
//!
//! A table has the columns of all its files, by their names (`columns.rs`), and the keys of their folders (`keys.rs`); or those that
//! its log says (`of_table.rs`). `dictionaries.rs` estimates how many values its columns have.
//!
//! Invariant: a description whose identity is unchanged is not computed again.

mod columns;
mod dictionaries;
mod keys;
mod of_table;
mod struct_fields;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::{Arc, OnceLock},
};

use parquet::schema::types::Type;
use pystachio_plan::{
    ColumnDescription, DescribeExtent, FileDescription, FileSet, FilesState, Result, TableDescription,
};

use self::{
    columns::Columns, dictionaries::Dictionaries, keys::Keys, of_table::describe_table,
    struct_fields::StructFields,
};
use super::{
    bounded_map::BoundedMap,
    file_set::FoundFile,
    files::{FileCatalog, FileFooter, FileIdentity, FileVersion, FoundSet, TableFile},
    table_files::FileOfTable,
};

/// Descriptions kept at most; a description is some kilobytes.
const DESCRIPTIONS_MAX: usize = 1024;

/// Files of which a table of more is described.
const SAMPLED_FILES: usize = 256;

/// Objects whose footers are fetched and held at once while a table is described. Of files one is.
const OPENED_TOGETHER: usize = 64;

/// Descriptions by the identity of their tables.
pub(super) type Descriptions = BoundedMap<u64, TableDescription, DESCRIPTIONS_MAX>;

/// Describes a table from its files' footers. Blocks.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`].
pub fn describe(catalog: &FileCatalog, files: &FileSet, extent: DescribeExtent) -> Result<TableDescription> {
    describe_found(catalog, &catalog.find(files)?, extent)
}

/// Describes a table whose files were found.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`].
pub(crate) fn describe_found(
    catalog: &FileCatalog,
    found: &FoundSet,
    extent: DescribeExtent,
) -> Result<TableDescription> {
    let known = Known::of(found)?;
    let is_sampled = known.files.len() < found.files.len();
    if is_sampled && extent == DescribeExtent::All {
        // Not kept: it rests on other files than those that the table is known by.
        let (mut description, _) = describe_some(catalog, found, found.files.iter())?;
        description.identity = known.identity;
        return Ok(description);
    }
    if let Some(described) = catalog.descriptions.get(&known.identity) {
        return Ok(described);
    }
    let (places, _): (Vec<usize>, Vec<FileIdentity>) = known.files.into_iter().unzip();
    let (mut description, read) =
        describe_some(catalog, found, places.iter().map(|place| &found.files[*place]))?;
    description.identity = Known::new(found, places.into_iter().zip(read).collect()).identity;
    // A log tells how many files and rows there are.
    if is_sampled && found.table.is_none() {
        estimate_whole(&mut description, &found.files);
    }
    catalog.descriptions.insert(description.identity, description.clone());
    Ok(description)
}

/// What a table is known by: which files it has, and what those are that a plan rests on.
pub(crate) struct Known {
    /// A digest of both: equal if nothing has changed.
    pub(crate) identity: u64,
    /// All files, or some of many, by their places.
    pub(crate) files: Vec<(usize, FileIdentity)>,
}

impl Known {
    /// Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, `FileAccess`, each naming the file.
    pub(crate) fn of(found: &FoundSet) -> Result<Self> {
        let files = &found.files;
        let count = files.len().min(SAMPLED_FILES);
        let place = |number: usize| match files.len() <= SAMPLED_FILES {
            true => number,
            false => number * (files.len() - 1) / (SAMPLED_FILES - 1),
        };
        let known = (0..count).map(place).map(|place| Ok((place, files[place].identity()?)));
        Ok(Self::new(found, known.collect::<Result<_>>()?))
    }

    fn new(found: &FoundSet, files: Vec<(usize, FileIdentity)>) -> Self {
        let mut hasher = DefaultHasher::new();
        found.table.as_ref().map(|table| &table.version).hash(&mut hasher);
        for file in &found.files {
            hash_path(&file.path, &mut hasher);
            file.of_table.as_ref().and_then(FileOfTable::deletes).hash(&mut hasher);
        }
        files.hash(&mut hasher);
        Self { identity: hasher.finish(), files }
    }
}

fn folder_of(file: &FoundFile) -> Option<&OsStr> {
    file.path.parent().map(Path::as_os_str)
}

/// In much less time than by the path's parts.
fn hash_path(path: &Path, hasher: &mut impl Hasher) {
    path.as_os_str().hash(hasher);
}

/// Makes of the description of some files one of the table, which has the files `found`. Of the others' columns nothing is known.
fn estimate_whole(description: &mut TableDescription, found: &[FoundFile]) {
    let scale = found.len() as f64 / description.files.len().max(1) as f64;
    let scaled = |count: u64| (count as f64 * scale).round() as u64;
    description.row_count = scaled(description.row_count);
    // As if all files had as many rows.
    let file_rows = description.row_count / found.len().max(1) as u64;
    let mut keys = Keys::default();
    for folder in found.chunk_by(|one, next| folder_of(one) == folder_of(next)) {
        drop(keys.add_file(&folder[0].path, file_rows * folder.len() as u64));
    }
    let table = Table { file_count: 0, row_count: description.row_count };
    description.columns.retain(|column| !column.is_folder_key());
    for column in description.columns.iter_mut().chain(&mut description.by_id) {
        column.required = false;
        (column.null_count, column.minimum, column.maximum) = (None, None, None);
        // A count that grows with the rows is one of them.
        let rows = description.row_count as f64;
        column.distinct_estimate = column
            .distinct_estimate
            .map(|count| if count * scale >= rows * 0.1 { count * scale } else { count });
        column.compressed_bytes = scaled(column.compressed_bytes);
        column.uncompressed_bytes = scaled(column.uncompressed_bytes);
        column.fields.clear();
    }
    let stored: Vec<String> = description.columns.iter().map(|column| column.name.to_lowercase()).collect();
    let keys = keys.0.into_iter().filter(|key| !stored.contains(&key.name.to_lowercase()));
    description.columns.extend(keys.map(|key| key.description(&table)));
}

/// The identity of a table, from its files alone. Blocks.
///
/// # Errors
///
/// `FileNotFound`, `FilePermission`, `FileAccess`, each naming the file.
pub fn identify(catalog: &FileCatalog, files: &FileSet) -> Result<u64> {
    Ok(Known::of(&catalog.find(files)?)?.identity)
}

/// A digest of files that are open: equal if they are the same.
pub fn opened_identity(files: &[TableFile]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_version(files, &mut hasher);
    for TableFile { footer, of_table, .. } in files {
        hash_path(&footer.path, &mut hasher);
        (footer.identity, of_table.as_ref().and_then(FileOfTable::deletes)).hash(&mut hasher);
    }
    hasher.finish()
}

/// What all files of a table have in common.
struct Table {
    file_count: u64,
    row_count: u64,
}

/// The version of the log that names the files, if one does.
fn hash_version(files: &[TableFile], hasher: &mut impl Hasher) {
    let of_table = files.first().and_then(|file| file.of_table.as_ref());
    of_table.map(|of_table| &of_table.table.version).hash(hasher);
}

/// The state of files that are open.
pub fn files_state(files: &[TableFile]) -> FilesState {
    let (mut places, mut content) = (DefaultHasher::new(), DefaultHasher::new());
    places.write(machine());
    hash_version(files, &mut content);
    for TableFile { footer, of_table, .. } in files {
        let FileFooter { path, identity, digest, .. } = &**footer;
        match identity.version {
            FileVersion::Local { device, .. } => device.hash(&mut places),
            // All machines see the same object.
            FileVersion::Object(_) => 0_u64.hash(&mut places),
        }
        hash_path(path, &mut content);
        (identity.file_bytes, digest, of_table.as_ref().and_then(FileOfTable::deletes)).hash(&mut content);
    }
    FilesState { places: places.finish(), identity: opened_identity(files), content: content.finish() }
}

/// What this machine is known by until it starts anew, to tell it from others. Where it does not say, all are taken for the same.
fn machine() -> &'static [u8] {
    static MACHINE: OnceLock<Vec<u8>> = OnceLock::new();
    MACHINE.get_or_init(|| fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

/// Describes a table from some of its files, and says what each of them was.
fn describe_some<'f>(
    catalog: &FileCatalog,
    found: &FoundSet,
    files: impl ExactSizeIterator<Item = &'f FoundFile>,
) -> Result<(TableDescription, Vec<FileIdentity>)> {
    let Some(table) = &found.table else { return describe_files(catalog, files) };
    let files: Vec<&FoundFile> = files.collect();
    let opened = catalog.open_each(files.iter().copied())?;
    let identities =
        files.iter().zip(&opened).map(|(found, file)| found.seen(file.footer.identity)).collect();
    Ok((describe_table(table, &opened, 0), identities))
}

/// Describes files, and says what each of them was. Of its footer only what the description takes is held.
fn describe_files<'f>(
    catalog: &FileCatalog,
    files: impl ExactSizeIterator<Item = &'f FoundFile>,
) -> Result<(TableDescription, Vec<FileIdentity>)> {
    let (mut columns, mut by_id) = (Columns::default(), Columns::default());
    let mut keys = Keys::default();
    let mut dictionaries = Dictionaries::default();
    let mut row_count = 0u64;
    let mut descriptions = Vec::with_capacity(files.len());
    let mut identities = Vec::with_capacity(files.len());
    let files: Vec<&FoundFile> = files.collect();
    let together = if files.iter().any(|file| file.object.is_some()) { OPENED_TOGETHER } else { 1 };
    let looked_at = |number: usize| {
        (0..dictionaries::FILES)
            .any(|of| of * files.len().saturating_sub(1) / (dictionaries::FILES - 1) == number)
    };
    for files in files.chunks(together) {
        for (found, footer) in files.iter().zip(catalog.open_footers(files)?) {
            let described = describe_file(&footer);
            row_count = row_count.saturating_add(described.row_count);
            let of_folders = keys.add_file(&footer.path, described.row_count);
            columns.add_file(&footer, &of_folders);
            if looked_at(descriptions.len()) {
                dictionaries.add_file(&footer);
            }
            by_id.add_file_by_id(&footer);
            descriptions.push(described);
            identities.push(found.seen(footer.identity));
        }
    }
    let table = Table { file_count: descriptions.len() as u64, row_count };
    // Of files without the key, the column is their own.
    let (mixed, keys): (Vec<_>, Vec<_>) = keys.0.into_iter().partition(|key| columns.has(&key.name));
    let (mut described, fields): (Vec<ColumnDescription>, Vec<StructFields>) =
        columns.parts.into_iter().map(|column| column.description(&table, &mixed)).unzip();
    described.extend(keys.into_iter().map(|key| key.description(&table)));
    let names: HashSet<String> = described.iter().map(|column| column.name.to_lowercase()).collect();
    for (column, fields) in described.iter_mut().zip(fields) {
        column.fields = fields.descriptions(&column.name, |name| names.contains(&name.to_lowercase()));
    }
    let by_id = by_id.descriptions_by_id(&table);
    let group_count = descriptions.iter().map(|file: &FileDescription| u64::from(file.row_group_count)).sum();
    dictionaries.estimate(&mut described, row_count, group_count);
    let description = TableDescription {
        files: descriptions,
        columns: described,
        by_id,
        row_count,
        identity: 0,
        version: None,
    };
    Ok((description, identities))
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

fn fields(footer: &FileFooter) -> &[Arc<Type>] {
    footer.metadata().file_metadata().schema_descr().root_schema().get_fields()
}

/// A count that a footer gives as a signed number; it has been checked when the footer was read.
fn count(value: i64) -> u64 {
    value.try_into().unwrap_or(0)
}
