//! The files that a run writes.
//!
//! Invariants: files have provisional names until [`Output::commit`]; a name that begins with a point is
//! no part of a table. What an uncommitted output wrote is removed when it is dropped. Row groups are in
//! the file in the order of their parts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{
            ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions,
            compute_leaves,
        },
    },
    basic::Compression,
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::types::ColumnPath,
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{invalid, table::Table};
use pystachio_engine::storage::from_io;

/// Tells the provisional files of one process's runs apart.
static RUN_NUMBER: AtomicU64 = AtomicU64::new(0);

/// How tables are written.
pub(super) struct TableSettings {
    pub(super) scale_factor: f64,
    pub(super) row_group_rows: u64,
    pub(super) compression: Compression,
}

/// All files of a run.
pub(super) struct Output {
    files: Vec<TableFile>,
    overwrite: bool,
    committed: AtomicBool,
    /// Folders that the run made, innermost first.
    made_folders: Vec<PathBuf>,
}

/// One table's file.
pub(super) struct TableFile {
    table: Table,
    path: PathBuf,
    provisional_path: PathBuf,
    schema: SchemaRef,
    part_count: u32,
    row_groups: ArrowRowGroupWriterFactory,
    appended: Mutex<Appended>,
}

/// What is in a file, and what waits for its turn.
struct Appended {
    /// `None` once the footer is written.
    writer: Option<SerializedFileWriter<File>>,
    next_part: u32,
    waiting: BTreeMap<u32, RowGroup>,
    row_count: u64,
}

/// A row group being encoded, in memory.
pub(super) struct RowGroup {
    path: PathBuf,
    schema: SchemaRef,
    columns: Vec<ArrowColumnWriter>,
    row_count: u64,
}

impl Output {
    /// Makes the directory and a provisional file for every table.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a file exists and may not be replaced; those of the file system.
    pub(super) fn create(
        directory: &Path,
        tables: &[Table],
        settings: &TableSettings,
        overwrite: bool,
    ) -> Result<Self> {
        let made_folders = make_folders(directory)?;
        remove_abandoned(directory);
        let run = format!("{}-{}", std::process::id(), RUN_NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut output =
            Self { files: Vec::new(), overwrite, committed: AtomicBool::new(false), made_folders };
        for table in tables {
            let path = directory.join(format!("{}.parquet", table.name()));
            output.check_replaceable(&path)?;
            let provisional_path = directory.join(format!(".{}.parquet.{run}", table.name()));
            output.files.push(TableFile::create(*table, path, provisional_path, settings)?);
        }
        Ok(output)
    }

    /// One a table.
    pub(super) fn files(&self) -> &[TableFile] {
        &self.files
    }

    /// Gives the files their names and returns tables and row counts.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a file has appeared meanwhile and may not be replaced; those of the file
    /// system. Files that already had their names are removed then.
    pub(super) fn commit(&self) -> Result<Vec<(String, u64)>> {
        let mut rows = Vec::new();
        for file in &self.files {
            rows.push((file.table.name().to_owned(), file.finished_rows()?));
        }
        for (done, file) in self.files.iter().enumerate() {
            let renamed = self.check_replaceable(&file.path).and_then(|()| {
                fs::rename(&file.provisional_path, &file.path)
                    .map_err(|error| from_io(&file.path, "write", &error))
            });
            if let Err(error) = renamed {
                self.files[..done].iter().for_each(|file| remove_file(&file.path));
                return Err(error);
            }
        }
        self.committed.store(true, Ordering::Relaxed);
        Ok(rows)
    }

    fn check_replaceable(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(from_io(path, "write", &error)),
            Ok(metadata) if !metadata.is_file() => {
                Err(invalid(format!("\"{}\" exists and is not a regular file", path.display())))
            }
            Ok(_) if self.overwrite => Ok(()),
            Ok(_) => Err(invalid(format!("file \"{}\" already exists", path.display()))
                .with_hint("Pass overwrite => true to replace it, or choose another directory.")),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.committed.load(Ordering::Relaxed) {
            return;
        }
        self.files.iter().for_each(|file| remove_file(&file.provisional_path));
        for folder in &self.made_folders {
            // Someone may have put a file there, which stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

impl TableFile {
    fn create(
        table: Table,
        path: PathBuf,
        provisional_path: PathBuf,
        settings: &TableSettings,
    ) -> Result<Self> {
        let schema = table.schema();
        let file = File::create_new(&provisional_path).map_err(|error| from_io(&path, "write", &error))?;
        let options = ArrowWriterOptions::new()
            .with_properties(writer_properties(table, settings))
            .with_skip_arrow_metadata(true);
        let (writer, row_groups) = ArrowWriter::try_new_with_options(file, schema.clone(), options)
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(|error| {
                remove_file(&provisional_path);
                write_failed(&path, &error)
            })?;
        let appended =
            Appended { writer: Some(writer), next_part: 1, waiting: BTreeMap::new(), row_count: 0 };
        let part_count = table.part_count(settings.scale_factor, settings.row_group_rows);
        Ok(Self {
            table,
            path,
            provisional_path,
            schema,
            part_count,
            row_groups,
            appended: Mutex::new(appended),
        })
    }

    pub(super) fn table(&self) -> Table {
        self.table
    }

    /// Row groups of the file.
    pub(super) fn part_count(&self) -> u32 {
        self.part_count
    }

    /// An empty row group for a part, from 1.
    pub(super) fn start_row_group(&self, part: u32) -> Result<RowGroup> {
        let columns = self
            .row_groups
            .create_column_writers(part as usize - 1)
            .map_err(|error| write_failed(&self.path, &error))?;
        Ok(RowGroup { path: self.path.clone(), schema: self.schema.clone(), columns, row_count: 0 })
    }

    /// Writes the row group as soon as those before it are written; after the last one, the footer.
    pub(super) fn append(&self, part: u32, row_group: RowGroup) -> Result<()> {
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        appended.waiting.insert(part, row_group);
        while let Some(row_group) = {
            let next_part = appended.next_part;
            appended.waiting.remove(&next_part)
        } {
            appended.write(row_group)?;
        }
        if appended.next_part > self.part_count {
            appended.finish(&self.path)?;
        }
        Ok(())
    }

    fn finished_rows(&self) -> Result<u64> {
        let appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        if appended.writer.is_some() {
            return Err(Error::internal(format!("\"{}\" was not written to its end", self.path.display())));
        }
        Ok(appended.row_count)
    }
}

impl Appended {
    fn write(&mut self, row_group: RowGroup) -> Result<()> {
        let RowGroup { path, columns, row_count, .. } = row_group;
        let writer = self.writer.as_mut().ok_or_else(|| Error::internal("a row group after the footer"))?;
        let write = || -> std::result::Result<(), ParquetError> {
            let chunks: Vec<ArrowColumnChunk> =
                columns.into_iter().map(ArrowColumnWriter::close).collect::<std::result::Result<_, _>>()?;
            let mut target = writer.next_row_group()?;
            for chunk in chunks {
                chunk.append_to_row_group(&mut target)?;
            }
            target.close().map(|_| ())
        };
        write().map_err(|error| write_failed(&path, &error))?;
        self.row_count += row_count;
        self.next_part += 1;
        Ok(())
    }

    fn finish(&mut self, path: &Path) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.close().map(|_| ()).map_err(|error| write_failed(path, &error))
    }
}

impl RowGroup {
    /// Encodes the rows of a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut columns = self.columns.iter_mut();
        for (field, array) in self.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, array).map_err(|error| write_failed(&self.path, &error))? {
                let column =
                    columns.next().ok_or_else(|| Error::internal("more columns than the schema has"))?;
                column.write(&leaf).map_err(|error| write_failed(&self.path, &error))?;
            }
        }
        self.row_count += batch.num_rows() as u64;
        Ok(())
    }
}

fn writer_properties(table: Table, settings: &TableSettings) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(settings.compression)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(None)
        .set_created_by(concat!("pystachio ", env!("CARGO_PKG_VERSION")).to_owned());
    for column in table.plain_columns() {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*column), false);
    }
    properties.build()
}

/// Makes a folder and those above it; returns what was made, innermost first.
fn make_folders(directory: &Path) -> Result<Vec<PathBuf>> {
    let missing: Vec<PathBuf> =
        directory.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    if !missing.is_empty() {
        fs::create_dir_all(directory).map_err(|error| folder_failed(directory, &error))?;
    }
    if !directory.is_dir() {
        return Err(invalid(format!("\"{}\" is not a directory", directory.display())));
    }
    Ok(missing)
}

/// Removes provisional files of engines that were killed.
fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(provisional_process);
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            remove_file(&entry.path());
        }
    }
}

/// The process that writes the file, if this is the name of a provisional one.
fn provisional_process(name: &str) -> Option<u32> {
    let (table, run) = name.strip_prefix('.')?.split_once(".parquet.")?;
    let (process, number) = run.split_once('-')?;
    number.parse::<u64>().ok()?;
    Table::ALL.iter().any(|known| known.name() == table).then(|| process.parse().ok())?
}

fn folder_failed(directory: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => {
            invalid(format!("directory \"{}\" can't be made: a file is in its place", directory.display()))
        }
        _ => from_io(directory, "make directory", error),
    }
}

fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "file can't be removed");
        }
        _ => {}
    }
}

fn write_failed(path: &Path, error: &ParquetError) -> Error {
    if let ParquetError::External(source) = error
        && let Some(source) = source.downcast_ref::<io::Error>()
    {
        return from_io(path, "write", source);
    }
    Error::new(ErrorKind::FileAccess, format!("could not write \"{}\": {error}", path.display()))
}
