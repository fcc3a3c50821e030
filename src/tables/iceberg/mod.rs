//! Iceberg: the state of a table, from its metadata.
//!
//! Goals: each snapshot of tables of versions 1 to 3 is read exactly, or refused by an error that names what can't be read. Files are
//! ruled out by partition values and bounds of manifests. A table that was moved as a whole is read where it is now.
//!
//! What it is not: it commits nothing, and asks no catalog. Whoever asked one gives the metadata file that the catalog names.
//!
//! ```text
//!  metadata/version-hint.text, vN.metadata.json, N-….metadata.json ──► one metadata file ──► snapshot, schema
//!                                                                                              │ manifest list
//!   TableState: columns, files, their deletes ◄── live entries, with what deletes them ◄── manifests
//! ```
//!
//! Invariants
//!
//! - Results: entries of status DELETED are no files. A delete concerns a file as `deletes.rs` says, by sequence numbers alone.
//! - Results: columns are told by ids; in files without ids by the table's name mapping, or not at all.
//! - Results: a file without a column has the value of its identity partition there, else the schema's default, else NULL.
//! - Pruning: bounds that Iceberg does not promise are not believed (`value.rs`).
//! - Failure: what can't be read, as files of ORC, encrypted ones and later versions of the format, is refused by name.
//! - Failure: bytes of metadata cause neither a panic nor a reservation beyond what they can stand for.
//!
//! Why not the crate `iceberg`: 0.10 needs Arrow 58 beside ours, and 65 crates more. Why not `apache-avro`: it follows types within
//! themselves without a bound, so that a small manifest exhausts the stack and ends the engine.
//!
//! - `metadata.rs`: snapshots, schemas, specs; `location.rs`: where paths lead
//! - `manifest.rs`, `avro.rs`: the files of a snapshot
//! - `schema.rs`: columns; `value.rs`: bounds and partition values
//! - `deletes.rs`: rows that are deleted
//!
//! Source: the Iceberg Table Spec, versions 1 to 3, and the Puffin Spec.

mod avro;
mod deletes;
mod location;
mod manifest;
mod metadata;
mod schema;
#[cfg(test)]
mod tests;
mod value;

use std::{
    cmp::Ordering,
    collections::HashMap,
    ffi::OsStr,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use pystachio_plan::{DataType, Error, ErrorKind, Result, TableVersion, is_iceberg_metadata};

pub use self::deletes::{
    DELETED_FILE_ID, DELETED_ROW_ID, EqualityColumn, EqualityDeletes, RowDeletes, VectorPlace,
};
use self::{
    avro::read_limited,
    deletes::{DeleteIndex, partition_value},
    location::Location,
    manifest::{Entry, Manifest, manifests},
    metadata::{Chosen, NO_SNAPSHOT, PartitionField, TableMetadata},
};
use crate::{DataFile, FileDeletes, LogEntry, TableColumn, TableState, TableStorage, ValueBounds};

/// The folder of a table's metadata.
const METADATA_FOLDER: &str = "metadata";
/// The file there that has the number of the newest version.
const VERSION_HINT: &str = "version-hint.text";
/// What follows the number in names of metadata files.
const SUFFIXES: [&str; 3] = [".metadata.json", ".gz.metadata.json", ".metadata.json.gz"];

/// The file that describes a table as it is now.
#[derive(Debug)]
pub struct MetadataFile {
    path: PathBuf,
    /// The table's folder, if the file is where tables have theirs.
    root: Option<PathBuf>,
    entry: LogEntry,
}

impl MetadataFile {
    /// Finds that of a table: the path itself, or the newest one of a folder. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` if there is none; `InvalidArgument` if several may be the newest one; those of reading the folder.
    pub fn find(storage: &dyn TableStorage, path: &Path) -> Result<Self> {
        if path.to_str().is_some_and(is_iceberg_metadata) {
            let folder =
                path.parent().filter(|folder| folder.file_name() == Some(OsStr::new(METADATA_FOLDER)));
            let root = folder.and_then(Path::parent).map(Path::to_owned);
            return Ok(Self { path: path.to_owned(), root, entry: storage.entry(path)? });
        }
        let folder = path.join(METADATA_FOLDER);
        let found = match hinted(storage, &folder)? {
            Some(found) => found,
            None => newest(storage, path, &folder)?,
        };
        let (path, entry) = found;
        Ok(Self { root: folder.parent().map(Path::to_owned), path, entry })
    }

    /// The one that a catalog names. Its table is where the metadata say, wherever the file is. Blocks.
    ///
    /// # Errors
    ///
    /// Those of reaching it.
    pub fn named(storage: &dyn TableStorage, path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), root: None, entry: storage.entry(path)? })
    }

    /// A digest of its name, size and time, and of where its table is: equal if the table has not changed.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.path, &self.root, &self.entry).hash(&mut hasher);
        hasher.finish()
    }

    /// The table at a version. Blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a version that the table does not have (any more), `NotSupported` for what can't be read,
    /// `FileCorrupt` for metadata that are damaged; those of reading them.
    pub fn load(&self, storage: &dyn TableStorage, version: &TableVersion) -> Result<TableState> {
        let metadata = TableMetadata::parse(&self.path, &self.read(storage)?)?;
        let location = Location::new(self.root.clone(), &metadata.location, &self.path)?;
        let Chosen { snapshot, schema_id } = metadata.choose(&location.root, version)?;
        let schema = metadata.schema(schema_id);
        let schema = schema.ok_or_else(|| corrupt(&self.path, &format!("schema {schema_id} is missing")))?;
        let columns = schema::columns(schema, metadata.name_mapping().as_ref())
            .map_err(|reason| corrupt(&self.path, &format!("schema {schema_id} {reason}")))?;
        let types = schema::types(metadata.schemas().chain([schema]));
        let manifests = match snapshot {
            Some(snapshot) => manifests(storage, &location, snapshot)?,
            None => Vec::new(),
        };
        let snapshot = snapshot.map_or(NO_SNAPSHOT, |snapshot| snapshot.snapshot_id);
        let table = Table { metadata, location, columns, types };
        let files = table.files(storage, &manifests)?;
        Ok(TableState {
            root: table.location.root,
            version: TableVersion::Snapshot { snapshot, schema: schema_id },
            columns: table.columns,
            files,
        })
    }

    fn read(&self, storage: &dyn TableStorage) -> Result<Vec<u8>> {
        let held = storage.read(&self.path, None)?;
        let name = self.path.to_string_lossy();
        if !name.ends_with(SUFFIXES[1]) && !name.ends_with(SUFFIXES[2]) {
            return Ok(held);
        }
        let mut bytes = Vec::new();
        read_limited(flate2::read::MultiGzDecoder::new(held.as_slice()), &mut bytes)
            .map_err(|error| corrupt(&self.path, &format!("it can't be decompressed: {error}")))?;
        Ok(bytes)
    }
}

/// A metadata file of a folder.
type Found = (PathBuf, LogEntry);

/// The file that the folder's hint leads to, if it has one: writers may have stopped between the file and the hint, so later ones
/// count too.
fn hinted(storage: &dyn TableStorage, folder: &Path) -> Result<Option<Found>> {
    let hint = match storage.read(&folder.join(VERSION_HINT), None) {
        Ok(hint) => hint,
        Err(error) if error.kind == ErrorKind::FileNotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let number = std::str::from_utf8(&hint).ok().and_then(|hint| hint.trim().parse::<u32>().ok());
    let mut found = None;
    for number in number.into_iter().flat_map(|first| first..=u32::MAX) {
        match numbered(storage, folder, number)? {
            Some(next) => found = Some(next),
            None => break,
        }
    }
    Ok(found)
}

/// The metadata file of a version of a table without a catalog.
fn numbered(storage: &dyn TableStorage, folder: &Path, number: u32) -> Result<Option<Found>> {
    for suffix in SUFFIXES {
        let path = folder.join(format!("v{number}{suffix}"));
        match storage.entry(&path) {
            Ok(entry) => return Ok(Some((path, entry))),
            Err(error) if error.kind == ErrorKind::FileNotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The metadata file of the greatest number.
fn newest(storage: &dyn TableStorage, table: &Path, folder: &Path) -> Result<Found> {
    let none = || {
        let message =
            format!("folder \"{}\" is no Iceberg table: it has no metadata/….metadata.json", table.display());
        Error::new(ErrorKind::FileNotFound, message)
            .with_hint("Set the option \"path\" to the folder of the table, or to its metadata file.")
    };
    let entries = match storage.list(folder) {
        Err(error) if error.kind == ErrorKind::FileNotFound => return Err(none()),
        listed => listed?,
    };
    let mut newest: Option<(u64, LogEntry)> = None;
    let mut second = None;
    for entry in entries {
        let Some(number) = number_of(&entry.name) else { continue };
        match newest.as_ref().map_or(Ordering::Greater, |(known, _)| number.cmp(known)) {
            Ordering::Less => {}
            Ordering::Equal => second = Some(entry),
            Ordering::Greater => (newest, second) = (Some((number, entry)), None),
        }
    }
    let (_, entry) = newest.ok_or_else(none)?;
    if let Some(second) = second {
        let mut names = [entry.name, second.name];
        names.sort();
        let message = format!(
            "Iceberg table \"{}\" has two newest metadata files: \"{}\"",
            table.display(),
            names.join("\" and \"")
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("Set the option \"path\" to the one that the table's catalog names."));
    }
    Ok((folder.join(&entry.name), entry))
}

/// The number of a metadata file: `v3.metadata.json`, or `00003-0a1b….metadata.json`.
fn number_of(name: &str) -> Option<u64> {
    let stem = SUFFIXES.iter().rev().find_map(|suffix| name.strip_suffix(suffix))?;
    match stem.strip_prefix('v') {
        Some(digits) => digits.parse().ok(),
        None => stem.split_once('-')?.0.parse().ok(),
    }
}

/// What files of a table are seen with.
struct Table {
    metadata: TableMetadata,
    location: Location,
    columns: Vec<TableColumn>,
    types: HashMap<i64, DataType>,
}

impl Table {
    /// The live files of rows, in the order of their paths.
    fn files(&self, storage: &dyn TableStorage, manifests: &[Manifest]) -> Result<Vec<DataFile>> {
        let mut index = DeleteIndex::default();
        for manifest in manifests.iter().filter(|manifest| manifest.has_deletes) {
            manifest.read(storage, &self.location, &self.metadata, &mut |entry| {
                let is_partitioned = self.fields(entry)?.iter().any(|field| field.transform != "void");
                index.add(entry, &self.location, &self.types, is_partitioned)
            })?;
        }
        let mut files = Vec::new();
        for manifest in manifests.iter().filter(|manifest| !manifest.has_deletes) {
            manifest.read(storage, &self.location, &self.metadata, &mut |entry| {
                files.push(self.file(entry, &index)?);
                Ok(())
            })?;
        }
        files.sort_by(|one: &DataFile, other| one.path.cmp(&other.path));
        Ok(files)
    }

    /// The partition fields of a file.
    fn fields(&self, entry: &Entry<'_>) -> Result<&[PartitionField]> {
        let spec = self.metadata.spec(entry.spec_id);
        let missing = || entry.corrupt(&format!("has the unknown partition spec {}", entry.spec_id));
        spec.map(|spec| spec.fields.as_slice()).ok_or_else(missing)
    }

    fn file(&self, entry: &Entry<'_>, index: &DeleteIndex) -> Result<DataFile> {
        if !entry.is_of_format("parquet") {
            return Err(of_other_format(&self.location, entry));
        }
        let row_count = entry.row_count();
        let mut bounds: HashMap<usize, ValueBounds> = HashMap::new();
        let mut add = |id: i64, set: &dyn Fn(&mut ValueBounds, &DataType)| {
            if let Some((place, data_type)) = self.single_column(id) {
                set(bounds.entry(place).or_default(), data_type);
            }
        };
        for (id, value) in entry.by_column(125, "lower_bounds") {
            add(id, &|bounds, data_type| {
                bounds.minimum = value.bytes().and_then(|bytes| value::bound(bytes, data_type));
            });
        }
        for (id, value) in entry.by_column(128, "upper_bounds") {
            add(id, &|bounds, data_type| {
                bounds.maximum = value.bytes().and_then(|bytes| value::bound(bytes, data_type));
            });
        }
        for (id, count) in entry.by_column(110, "null_value_counts") {
            add(id, &|bounds, _| {
                bounds.null_count = count.long().and_then(|count| u64::try_from(count).ok())
            });
        }
        let mut partition_values = Vec::new();
        for field in self.fields(entry)? {
            let (Some(source), Some(id)) = (field.source_id, field.field_id) else { continue };
            let Some((place, data_type)) = self.single_column(source) else { continue };
            let Some(datum) = partition_value(entry, id, &field.name) else { continue };
            let own = value::partition_bounds(&field.transform, datum, data_type, row_count);
            let known = bounds.remove(&place).unwrap_or_default();
            bounds.insert(place, value::narrowed(known, own));
            if field.transform == "identity"
                && let Some(text) = value::identity_text(datum, data_type)
            {
                partition_values.push((place, text));
            }
        }
        bounds.retain(|_, bounds| *bounds != ValueBounds::default());
        let mut bounds: Vec<_> = bounds.into_iter().collect();
        bounds.sort_by_key(|(place, _)| *place);
        Ok(DataFile {
            path: self.location.resolve(entry.written_path)?,
            row_count,
            partition_values,
            bounds,
            deletes: index.deletes_of(entry).map(FileDeletes::Files),
        })
    }

    /// The column of an id, with its place, if it has single values of a type whose bounds can be told.
    fn single_column(&self, id: i64) -> Option<(usize, &DataType)> {
        let is_wanted = |column: &TableColumn| column.stored.id.map(i64::from) == Some(id);
        let place = self.columns.iter().position(is_wanted)?;
        let column = &self.columns[place];
        // Its numbers are nanoseconds, and the column's microseconds.
        let is_of_other_unit = column.type_words.ends_with("_ns");
        let data_type = column.data_type.as_ref().filter(|_| !column.is_json && !is_of_other_unit)?;
        Some((place, data_type))
    }
}

fn of_other_format(location: &Location, entry: &Entry<'_>) -> Error {
    let format = entry.file.get(101, "file_format").text().unwrap_or("unknown");
    let message = format!(
        "Iceberg table \"{}\" has the file \"{}\" of format {format}, of which Parquet alone is read",
        location.root.display(),
        entry.written_path
    );
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("Rewrite the table's files as Parquet, with the table's property write.format.default.")
}

/// The error of metadata that are not what the format says.
fn corrupt(path: &Path, reason: &str) -> Error {
    let message = format!("the metadata of an Iceberg table are damaged: \"{}\": {reason}", path.display());
    Error::new(ErrorKind::FileCorrupt, message)
}
