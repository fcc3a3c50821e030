//! How logs and metadata of tables are read: in local folders, and in stores.
//!
//! Invariant: of a table in a store nothing is read but paths in stores that the foreign server allows. Who may declare such a table need
//! not have the right to read files of the server's host.

use std::{
    fs,
    io::Read,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::Arc,
};

use parquet::{
    file::{
        reader::{ChunkReader, FileReader},
        serialized_reader::SerializedFileReader,
    },
    record::{Field, Row},
    schema::types::Type,
};
use pystachio_plan::{Error, ErrorKind, Result, is_in_store};
use pystachio_tables::{LogEntry, TableStorage};
use serde_json::{Map, Number, Value};

use crate::{
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    error::{corrupt_file, from_io, from_parquet},
    file_set::FoundFile,
    files::{FileCatalog, FileIdentity, TableFile, open_file},
    stores::{Fetcher, FoundObject, StoreSession},
    writing::layout::FileBytes,
};

/// The most bytes that are read of a log's file at once.
const READ_BYTES_MAX: u64 = 1 << 30;

/// The files of a table with a log, and the log.
pub(crate) struct TableFiles<'c> {
    catalog: &'c FileCatalog,
    role: u32,
    is_in_store: bool,
    /// By which stores are reached, if it is not the request's own.
    session: Option<StoreSession>,
}

impl<'c> TableFiles<'c> {
    /// Those of a table at a path, which a role reads.
    pub(crate) fn new(catalog: &'c FileCatalog, role: u32, table: &Path) -> Self {
        Self { catalog, role, is_in_store: in_store(table).is_some(), session: None }
    }

    /// The same by another session.
    pub(crate) fn by(self, session: Option<StoreSession>) -> Self {
        Self { session, ..self }
    }

    fn session(&self) -> Result<&StoreSession> {
        self.session.as_ref().map_or_else(|| self.catalog.session(), Ok)
    }

    /// The object of a path, if the table is in a store.
    fn object(&self, path: &Path) -> Result<Option<Arc<FoundObject>>> {
        Ok(self.objects(&[path])?.pop())
    }

    /// The objects of paths; none if the table is not in a store.
    fn objects(&self, paths: &[&Path]) -> Result<Vec<Arc<FoundObject>>> {
        if !self.is_in_store {
            return Ok(Vec::new());
        }
        let urls = paths.iter().map(|path| self.url(path)).collect::<Result<Vec<_>>>()?;
        self.session()?.objects(&urls, self.role)
    }

    /// A path of a table in a store, which is in one too.
    fn url<'p>(&self, path: &'p Path) -> Result<&'p str> {
        in_store(path).ok_or_else(|| {
            let message =
                format!("a table in a store names a file of the server's host: \"{}\"", path.display());
            Error::new(ErrorKind::FilePermission, message)
                .with_hint("Copy the file into the store, and the table with it.")
        })
    }

    /// Files of the table. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` for one that its store does not have; those of reaching the store.
    pub(crate) fn find(&self, paths: &[&Path]) -> Result<Vec<FoundFile>> {
        let mut objects = self.objects(paths)?.into_iter();
        let found = paths.iter().map(|path| FoundFile {
            path: (*path).to_owned(),
            rank: None,
            of_table: None,
            object: objects.next(),
            keys: None,
        });
        Ok(found.collect())
    }

    /// A file of the table, opened. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::find`], and those of opening it.
    pub(crate) fn open(&self, path: &Path) -> Result<TableFile> {
        let found = self.find(&[path])?.pop();
        self.catalog.open(&found.ok_or_else(|| Error::internal("a file was not found"))?, false)
    }

    /// What files of the table are now. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::find`].
    pub(crate) fn identities(&self, paths: &[&Path]) -> Result<Vec<FileIdentity>> {
        self.find(paths)?.iter().map(FoundFile::identity).collect()
    }
}

/// The URL, if a path is in a store.
fn in_store(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| is_in_store(path))
}

impl TableStorage for TableFiles<'_> {
    fn list(&self, folder: &Path) -> Result<Vec<LogEntry>> {
        match self.is_in_store {
            true => {
                let url = self.url(folder)?;
                self.session()?.entries(url, self.role)
            }
            false => list_local(folder),
        }
    }

    fn entry(&self, path: &Path) -> Result<LogEntry> {
        if let Some(object) = self.object(path)? {
            return object.entry().ok_or_else(|| Error::internal("an object without a name"));
        }
        let metadata = fs::metadata(path).map_err(|error| from_io(path, "read", &error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(LogEntry { name, bytes: metadata.size(), modified_us: modified_us(&metadata) })
    }

    fn read(&self, path: &Path, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        let failed = |error: std::io::Error| from_io(path, "read", &error);
        let object = self.object(path)?;
        let fetcher = object.as_ref().map(Fetcher::open).transpose()?;
        let (file, FileIdentity { file_bytes, .. }) = match &fetcher {
            Some(fetcher) => (fetcher.handle()?, fetcher.object().identity),
            None => open_file(path)?,
        };
        let start = range.as_ref().map_or(0, |range| range.start);
        let length = match &range {
            Some(range) => range.end.saturating_sub(range.start),
            None => file_bytes,
        };
        if length > READ_BYTES_MAX {
            let message = format!(
                "file \"{}\" is larger than what is read of a table's log at once: {length} bytes",
                path.display()
            );
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        if let Some(range) = range.as_ref().filter(|range| range.end > file_bytes) {
            let message = format!(
                "file \"{}\" is truncated: it has {file_bytes} bytes, and is read to byte {}",
                path.display(),
                range.end
            );
            return Err(Error::new(ErrorKind::FileCorrupt, message));
        }
        let _pin = fetcher.as_ref().map(|fetcher| fetcher.fetch([(start, length)])).transpose()?;
        let mut bytes = Vec::new();
        match (range, &fetcher) {
            // Its file in the cache is as long as what was fetched of it.
            (None, None) => drop(file.take(READ_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?),
            _ => {
                bytes.resize(length as usize, 0);
                file.read_exact_at(&mut bytes, start).map_err(failed)?;
            }
        }
        Ok(bytes)
    }

    fn rows(&self, path: &Path, columns: &[&str], visit: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        match self.is_in_store {
            true => {
                let file = self.open(path)?;
                rows_of(path, FileBytes::new(&file, &file.handle()?), columns, visit)
            }
            false => rows_of(path, open_file(path)?.0, columns, visit),
        }
    }
}

fn list_local(folder: &Path) -> Result<Vec<LogEntry>> {
    let failed = |error: std::io::Error| from_io(folder, "list folder", &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A file may be gone since the folder was read; names that are no text are not a log's.
        let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), fs::metadata(entry.path())) else {
            continue;
        };
        if metadata.is_file() {
            entries.push(LogEntry { name, bytes: metadata.size(), modified_us: modified_us(&metadata) });
        }
    }
    Ok(entries)
}

/// Calls `visit` for each row of a Parquet file.
fn rows_of<R: ChunkReader + 'static>(
    path: &Path,
    file: R,
    columns: &[&str],
    visit: &mut dyn FnMut(Value) -> Result<()>,
) -> Result<()> {
    let damaged = || corrupt_file(path, NOT_DECODABLE);
    let rows = || {
        let reader = SerializedFileReader::new(file)?;
        let schema = reader.metadata().file_metadata().schema();
        let fields = schema.get_fields().iter().filter(|field| columns.contains(&field.name())).cloned();
        let projection = Type::group_type_builder(schema.name()).with_fields(fields.collect()).build()?;
        parquet::record::reader::RowIter::from_file_into(Box::new(reader)).project(Some(projection))
    };
    let mut rows = decode_guarded(rows).ok_or_else(damaged)?.map_err(|error| from_parquet(path, &error))?;
    while let Some(row) = decode_guarded(|| rows.next()).ok_or_else(damaged)? {
        visit(json_of_row(&row.map_err(|error| from_parquet(path, &error))?))?;
    }
    Ok(())
}

fn modified_us(metadata: &fs::Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1000)
}

fn json_of_row(row: &Row) -> Value {
    let fields = row.get_column_iter().map(|(name, field)| (name.clone(), json_of(field)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn json_of(field: &Field) -> Value {
    match field {
        Field::Bool(value) => Value::Bool(*value),
        Field::Byte(number) => Value::from(*number),
        Field::Short(number) => Value::from(*number),
        Field::Int(number) | Field::Date(number) | Field::TimeMillis(number) => Value::from(*number),
        Field::Long(number) | Field::TimestampMicros(number) | Field::TimeMicros(number) => {
            Value::from(*number)
        }
        Field::TimestampMillis(number) => Value::from(number.saturating_mul(1000)),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Float(number) => Number::from_f64(f64::from(*number)).map_or(Value::Null, Value::Number),
        Field::Double(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Field::Str(text) => Value::String(text.clone()),
        Field::Group(row) => json_of_row(row),
        Field::ListInternal(list) => list.elements().iter().map(json_of).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter().filter_map(|(key, value)| match key {
                Field::Str(key) => Some((key.clone(), json_of(value))),
                _ => None,
            });
            Value::Object(entries.collect())
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_a_store_reads_no_file_of_the_host() {
        let catalog = FileCatalog::default();
        let files = TableFiles::new(&catalog, 0, Path::new("s3://lake/t"));
        let path = Path::new("/etc/hostname");
        let kinds = [
            files.entry(path).map(drop),
            files.read(path, None).map(drop),
            files.list(path).map(drop),
            files.rows(path, &[], &mut |_| Ok(())),
            files.find(&[path]).map(drop),
            files.open(path).map(drop),
            files.identities(&[path]).map(drop),
        ]
        .map(|outcome| outcome.unwrap_err().kind);
        assert_eq!(kinds, [ErrorKind::FilePermission; 7]);
    }
}
