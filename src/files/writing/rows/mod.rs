//! Rows that come batch by batch, written as Parquet files.
//!
//! ```text
//! batches ──► row group in memory ──► provisional file ──► synced, left to the client ──► renamed by it at its commit
//! ```
//!
//! - `schema.rs`: types and values as files have them
//! - `partition.rs`: which folder a row goes to
//! - `remote.rs`: files that go into a store
//! - `sorting.rs`: the order of rows, which come sorted
//! - `spilled.rs`: files that only a query's own scans read
//!
//! Invariants: a file of a folder has the columns and types of the files that are there. Files are whole and on disk before the
//! client knows of them. Memory of a row group is taken from the engine's, and bounds the row group.
//!
//! Deliberately absent: when files get their names, and what becomes of them when the client fails. The client's process is part of
//! the provisional names, so that later writes to the folder remove those of processes that are gone.

mod partition;
mod remote;
mod schema;
mod sorting;
mod spilled;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, Repetition},
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
    schema::types::Type,
};
use pystachio_engine::{RowWriter, StopFlag, from_panic, spill::QuerySpill};
use pystachio_plan::{
    Error, ErrorKind, FileLayout, FileSet, PATTERN_LETTERS, Result, WriteForm, WriteRequest, WriteTarget,
    WrittenFile, WrittenRows, check_not_of_other_format,
};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::sorting::sort_places;
use self::{
    partition::Partitioning, remote::Remote, schema::RowSchema, sorting::sorting_columns, spilled::Spilled,
};
use crate::{
    FileCatalog,
    file_type::file_type,
    from_io,
    stores::upload_bytes,
    writing::{
        admission::{Admission, Grant},
        layout::{self, Codecs},
        optimize::{OptimizeMeans, rewrite},
        written_files::{WrittenFiles, remove_abandoned, write_failed},
    },
};

/// Rows of a row group by default.
const ROW_GROUP_ROWS: u64 = 1 << 20;
const ROW_GROUP_ROWS_MIN: u64 = 1024;
const ROW_GROUP_ROWS_MAX: u64 = 100_000_000;
/// Bytes that a row group may have in memory.
const ROW_GROUP_BYTES_MAX: u64 = 128 << 20;
/// The part of the engine's memory that it may have.
const ROW_GROUP_MEMORY_PART: u64 = 16;
/// Files that are open at one time; one that is closed has a successor if rows come.
const OPEN_FILES_MAX: usize = 100;
/// The mode of a named file: its owner writes it, and all users read it.
const FILE_MODE: u32 = 0o644;
/// Memory of a writer before its first row.
const WRITER_BYTES: u64 = 1 << 20;

/// What an engine lends to a write.
pub struct RowMeans {
    /// Footers of the files that are there.
    pub catalog: Arc<FileCatalog>,
    /// Threads that encode in the form for GPUs.
    pub threads: usize,
    /// Memory for row groups.
    pub admission: Admission,
    /// Where files go that are on their way into a store, or that only a query reads.
    pub spill: QuerySpill,
}

/// Starts writing rows.
///
/// # Errors
///
/// As of [`pystachio_engine::Engine::begin_write`].
pub async fn begin_write(request: WriteRequest, means: RowMeans) -> Result<Box<dyn RowWriter>> {
    let stop = CancellationToken::new();
    // Waiting for memory, and rewriting, end when the caller is gone.
    let guard = stop.clone().drop_guard();
    let unwanted = StopOnDrop(StopFlag::default());
    let flag = unwanted.0.clone();
    let begun = spawn_blocking(move || RowFiles::begin(request, means, (stop, flag))).await;
    Ok(Box::new(QueuedWriter {
        files: Some(Box::new(begun.unwrap_or_else(ended)?)),
        writing: None,
        _stop: (guard, unwanted),
    }))
}

/// Writes one batch while the next one comes.
struct QueuedWriter {
    /// Absent while a batch is written, and after an error.
    files: Option<Box<RowFiles>>,
    writing: Option<JoinHandle<Result<Box<RowFiles>>>>,
    _stop: (DropGuard, StopOnDrop),
}

/// Ends requests to stores.
struct StopOnDrop(StopFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl QueuedWriter {
    /// The files, when the last batch is written.
    async fn files(&mut self) -> Result<Box<RowFiles>> {
        if let Some(writing) = self.writing.take() {
            return writing.await.unwrap_or_else(ended);
        }
        self.files.take().ok_or_else(|| Error::internal("rows after a failure to write"))
    }
}

#[async_trait]
impl RowWriter for QueuedWriter {
    async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        let mut files = self.files().await?;
        self.writing = Some(spawn_blocking(move || files.write(&batch).map(|()| files)));
        Ok(())
    }

    async fn finish(&mut self) -> Result<WrittenRows> {
        let mut files = self.files().await?;
        let finished = spawn_blocking(move || files.finish().map(|rows| (files, rows))).await;
        let (files, rows) = finished.unwrap_or_else(ended)?;
        self.files = Some(files);
        Ok(rows)
    }

    async fn complete(&mut self) -> Result<()> {
        let mut files = self.files().await?;
        self.files =
            Some(spawn_blocking(move || files.complete().map(|()| files)).await.unwrap_or_else(ended)?);
        Ok(())
    }

    fn keep(mut self: Box<Self>) {
        if let Some(files) = self.files.take() {
            files.keep();
        }
    }
}

fn ended<T>(failure: JoinError) -> Result<T> {
    Err(match failure.try_into_panic() {
        Ok(panic) => from_panic(panic.as_ref()),
        Err(_) => Error::new(ErrorKind::Cancelled, "the engine is shutting down"),
    })
}

/// The files of one write.
struct RowFiles {
    /// Its target is on the host, also where the files go into a store.
    request: WriteRequest,
    remote: Option<Remote>,
    spilled: Option<Spilled>,
    schema: RowSchema,
    partitioning: Option<Partitioning>,
    properties: WriterProperties,
    /// The file that rows of each folder go to; the folder is relative to the table's, and empty without partitions.
    open: BTreeMap<String, OpenFile>,
    /// Batches so far.
    clock: u64,
    done: Vec<WrittenFile>,
    written: WrittenFiles,
    /// Files that are rewritten for GPUs.
    rewritten: WrittenFiles,
    grant: Grant,
    row_group_bytes_max: u64,
    means: RowMeans,
    stop: CancellationToken,
}

/// A file that rows go to.
struct OpenFile {
    number: usize,
    writer: ArrowWriter<File>,
    row_count: u64,
    /// The batch that wrote to it last.
    used: u64,
}

impl RowFiles {
    fn begin(
        mut request: WriteRequest,
        means: RowMeans,
        (stop, flag): (CancellationToken, StopFlag),
    ) -> Result<Self> {
        check_shape(&request)?;
        let remote = Remote::of(&mut request, &means, &flag)?;
        let spilled = Spilled::of(&mut request, &means.spill)?;
        let partitioning = Partitioning::new(&request.columns, &request.form.partition_by)?;
        let schema = match &partitioning {
            Some(partitioning) => RowSchema::new(&partitioning.kept(&request.columns))?,
            None => RowSchema::new(&request.columns)?,
        };
        let properties = properties(&request.form)?;
        let properties =
            properties.set_sorting_columns(sorting_columns(&schema.parquet, &request.form)).build();
        let overwrite = matches!(request.target, WriteTarget::File { overwrite: true, .. });
        let mut written = WrittenFiles::of_process(request.process, overwrite);
        let folder = match &request.target {
            WriteTarget::Folder { path, .. } => {
                check_folder(path)?;
                PathBuf::from(path)
            }
            WriteTarget::File { path, .. } => Path::new(path).parent().unwrap_or(Path::new("/")).to_owned(),
            WriteTarget::Spill => return Err(Error::internal("spill files have no folder")),
        };
        check_not_of_other_format(&folder)?;
        written.make_folder(&folder)?;
        remove_abandoned(&folder, is_of_rows);
        if matches!(request.target, WriteTarget::Folder { .. }) && spilled.is_none() {
            match &remote {
                Some(remote) => check_columns(&remote.files().1, &schema, remote.files().0)?,
                None => {
                    let files = FileSet::parquet(vec![folder.to_string_lossy().into_owned()]);
                    check_columns(&files, &schema, &means.catalog)?;
                }
            }
        }
        let grant = means.admission.admit(WRITER_BYTES, &stop)?;
        let grant = grant.ok_or_else(cancelled)?;
        let row_group_bytes_max =
            (means.admission.bytes_max() / ROW_GROUP_MEMORY_PART).min(ROW_GROUP_BYTES_MAX);
        let mut files = Self {
            schema,
            partitioning,
            properties,
            open: BTreeMap::new(),
            clock: 0,
            done: Vec::new(),
            rewritten: WrittenFiles::of_process(request.process, overwrite),
            written,
            grant,
            row_group_bytes_max,
            means,
            stop,
            request,
            remote,
            spilled,
        };
        // Whether a file can be made shows before the first row.
        if files.partitioning.is_none() {
            files.open("")?;
        }
        Ok(files)
    }

    /// Begins the next file of a folder.
    fn open(&mut self, folder: &str) -> Result<()> {
        let path = match &self.request.target {
            WriteTarget::File { path, .. } => PathBuf::from(path),
            WriteTarget::Folder { path, stem } => {
                let number = self.written.count();
                Path::new(path).join(folder).join(format!("{stem}-{number}.parquet"))
            }
            WriteTarget::Spill => return Err(Error::internal("spill files have no folder")),
        };
        if !folder.is_empty()
            && let Some(parent) = path.parent()
        {
            self.written.make_folder(parent)?;
            remove_abandoned(parent, is_of_rows);
        }
        let number = self.written.add(path)?;
        let file = self.written.create_file(number)?;
        let options = ArrowWriterOptions::new()
            .with_properties(self.properties.clone())
            .with_skip_arrow_metadata(true)
            .with_parquet_schema(self.schema.parquet.as_ref().clone());
        let writer = ArrowWriter::try_new_with_options(file, self.schema.arrow.clone(), options);
        let writer = writer.map_err(|error| write_failed(self.written.path(number), &error))?;
        self.open.insert(folder.to_owned(), OpenFile { number, writer, row_count: 0, used: self.clock });
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.clock += 1;
        match &self.partitioning {
            None => self.write_to("", batch)?,
            Some(partitioning) => {
                for (folder, rows) in partitioning.split(batch)? {
                    self.write_to(&folder, &rows)?;
                }
            }
        }
        self.grant.shrink_to(self.memory_bytes().max(WRITER_BYTES as usize));
        Ok(())
    }

    fn write_to(&mut self, folder: &str, rows: &RecordBatch) -> Result<()> {
        let stored = self.schema.stored(rows)?;
        if !self.open.contains_key(folder) {
            if self.open.len() >= OPEN_FILES_MAX {
                self.close_oldest()?;
            }
            self.open(folder)?;
        }
        let bytes = stored.get_array_memory_size();
        while self.grant.cover(self.memory_bytes() + bytes).is_err() {
            if !self.flush_largest()? {
                // The error names the memory that is missing.
                self.grant.cover(self.memory_bytes() + bytes)?;
            }
        }
        let Some(open) = self.open.get_mut(folder) else {
            return Err(Error::internal("no file to write to"));
        };
        let path = self.written.path(open.number);
        open.writer.write(&stored).map_err(|error| write_failed(path, &error))?;
        open.row_count += stored.num_rows() as u64;
        open.used = self.clock;
        let file_bytes = (open.writer.bytes_written() + open.writer.in_progress_size()) as u64;
        if let Some(spilled) = &mut self.spilled {
            spilled.note(file_bytes)?;
        }
        if self.request.form.file_bytes > 0 && file_bytes >= self.request.form.file_bytes {
            return self.close(folder);
        }
        while self.memory_bytes() as u64 >= self.row_group_bytes_max && self.flush_largest()? {}
        Ok(())
    }

    /// Memory of all row groups.
    fn memory_bytes(&self) -> usize {
        self.open.values().map(|open| open.writer.memory_size()).sum()
    }

    /// Writes the row group that has most memory; false if none has rows.
    fn flush_largest(&mut self) -> Result<bool> {
        let with_rows = self.open.values_mut().filter(|open| open.writer.in_progress_rows() > 0);
        let Some(open) = with_rows.max_by_key(|open| open.writer.memory_size()) else { return Ok(false) };
        let path = self.written.path(open.number);
        open.writer.flush().map_err(|error| write_failed(path, &error))?;
        Ok(true)
    }

    /// Completes the file that was written to longest ago.
    fn close_oldest(&mut self) -> Result<()> {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.used).map(|(folder, _)| folder.clone());
        oldest.map_or(Ok(()), |folder| self.close(&folder))
    }

    /// Completes a folder's open file.
    fn close(&mut self, folder: &str) -> Result<()> {
        let Some(open) = self.open.remove(folder) else { return Ok(()) };
        let path = self.written.path(open.number).to_owned();
        let mut file = open.writer.into_inner().map_err(|error| write_failed(&path, &error))?;
        let mut provisional_path = self.written.provisional_path(open.number).to_owned();
        if self.request.form.layout == FileLayout::Gpu && open.row_count > 0 {
            (file, provisional_path) = self.rewrite(&path, &provisional_path)?;
        }
        if matches!(self.request.target, WriteTarget::File { .. }) {
            // All may read it, as a file of COPY. The folder of a table is the server's own.
            let opened = file.set_permissions(Permissions::from_mode(FILE_MODE));
            opened.map_err(|error| from_io(&path, "write", &error))?;
        }
        let is_passing = self.remote.is_some() || self.spilled.is_some();
        let synced = if is_passing { Ok(()) } else { file.sync_all() };
        let bytes = synced.and_then(|()| file.metadata());
        let bytes = bytes.map_err(|error| from_io(&path, "write", &error))?.len();
        let (path, provisional_path) = match &mut self.remote {
            None => (path.to_string_lossy().into_owned(), provisional_path.to_string_lossy().into_owned()),
            Some(remote) => {
                let url = remote.url_of(&path)?;
                let held = self.open.values().map(|open| open.writer.memory_size()).sum::<usize>();
                self.grant.cover(held + upload_bytes(bytes) as usize)?;
                remote.upload(&provisional_path, &url)?;
                (url, String::new())
            }
        };
        self.done.push(WrittenFile {
            path,
            provisional_path,
            overwrite: matches!(self.request.target, WriteTarget::File { overwrite: true, .. }),
            row_count: open.row_count,
            bytes,
        });
        Ok(())
    }

    /// Rewrites a file that is complete in the form for GPUs.
    fn rewrite(&mut self, path: &Path, source: &Path) -> Result<(File, PathBuf)> {
        let number = self.rewritten.add(path.to_owned())?;
        let row_group_rows = match self.request.form.row_group_rows {
            0 => layout::ROW_GROUP_ROWS,
            rows => rows,
        };
        let means = OptimizeMeans {
            catalog: self.means.catalog.clone(),
            threads: self.means.threads,
            admission: self.means.admission.again(),
        };
        let codecs = Codecs::parse(&self.request.form.compression)?;
        rewrite(source, (&self.rewritten, number), codecs, row_group_rows, means, self.stop.clone())?;
        fs::remove_file(source).map_err(|error| from_io(source, "remove", &error))?;
        let provisional_path = self.rewritten.provisional_path(number).to_owned();
        let file = File::open(&provisional_path).map_err(|error| from_io(path, "write", &error))?;
        Ok((file, provisional_path))
    }

    fn finish(&mut self) -> Result<WrittenRows> {
        while let Some((folder, open)) = self.open.first_key_value() {
            let (folder, is_empty) = (folder.clone(), open.row_count == 0);
            if is_empty && matches!(self.request.target, WriteTarget::Folder { .. }) {
                // No file of a folder is without rows.
                let path = self.written.provisional_path(open.number);
                fs::remove_file(path).map_err(|error| from_io(path, "remove", &error))?;
                self.open.remove(&folder);
            } else {
                self.close(&folder)?;
            }
        }
        let folders = self.written.made_folders().iter().filter(|_| self.remote.is_none());
        Ok(WrittenRows {
            files: self.done.clone(),
            made_folders: folders.map(|folder| folder.to_string_lossy().into_owned()).collect(),
            is_in_store: self.remote.is_some(),
        })
    }

    /// Makes objects visible.
    fn complete(&mut self) -> Result<()> {
        self.remote.as_mut().map_or(Ok(()), Remote::complete)
    }

    /// Leaves the files to the client, or objects as they are.
    fn keep(mut self) {
        if let Some(remote) = self.remote.take() {
            return remote.keep();
        }
        self.written.keep();
        self.rewritten.keep();
    }
}

/// Whether a file could have been one of a write of rows.
fn is_of_rows(name: &str) -> bool {
    name.ends_with(".parquet")
}

/// Whether the files can be of this form.
fn check_shape(request: &WriteRequest) -> Result<()> {
    match &request.target {
        WriteTarget::File { path, .. }
            if !request.form.partition_by.is_empty() || request.form.file_bytes > 0 =>
        {
            let message = format!("\"{path}\" is one file: partitions and files of a size need a folder");
            Err(invalid(message).with_hint("Name a folder, which does not end with .parquet."))
        }
        _ => Ok(()),
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the request was cancelled")
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

fn properties(form: &WriteForm) -> Result<WriterPropertiesBuilder> {
    let compression = match Codecs::parse(&form.compression)? {
        Codecs::WherePays => Compression::SNAPPY,
        Codecs::Always(codec) => codec,
    };
    let row_group_rows = match form.row_group_rows {
        0 => ROW_GROUP_ROWS,
        rows if (ROW_GROUP_ROWS_MIN..=ROW_GROUP_ROWS_MAX).contains(&rows) => rows,
        rows => {
            let message = format!(
                "row group size of {rows} rows is out of range: \
                 it must be 0 (the engine's choice) or from {ROW_GROUP_ROWS_MIN} to {ROW_GROUP_ROWS_MAX}"
            );
            return Err(invalid(message));
        }
    };
    Ok(WriterProperties::builder()
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(row_group_rows as usize))
        .set_created_by(concat!("pystachio ", env!("CARGO_PKG_VERSION")).to_owned()))
}

/// Whether a path can be that of a folder.
fn check_folder(path: &str) -> Result<()> {
    let message = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => format!("\"{path}\" is a file: rows are added to a folder"),
        Err(_) if path.contains(PATTERN_LETTERS) => {
            format!("\"{path}\" is a pattern: rows are added to a folder")
        }
        // It is made.
        Err(_) => return Ok(()),
    };
    Err(invalid(message)
        .with_hint("Set the table's option \"path\" to a folder: all its files belong to the table then."))
}

/// Checks that a table could have both a folder's first file and one that is written: columns of one name have one type, and a required
/// one is in both.
fn check_columns(files: &FileSet, schema: &RowSchema, catalog: &Arc<FileCatalog>) -> Result<()> {
    let files = match catalog.find(files) {
        Err(error) if error.kind == ErrorKind::FileNotFound => return Ok(()),
        found => found?,
    };
    let Some(first) = files.files.into_iter().next() else { return Ok(()) };
    let path = first.path.to_string_lossy().into_owned();
    let opened = catalog.open_all(&FileSet::parquet(vec![path.clone()]))?;
    let Some(file) = opened.first() else { return Ok(()) };
    let (there, written) = (
        file.footer.metadata().file_metadata().schema_descr().root_schema().get_fields(),
        schema.parquet.root_schema().get_fields(),
    );
    let mismatch = |what: String| {
        let hint = "Declare the table's columns as IMPORT FOREIGN SCHEMA does, or write to another folder.";
        Err(Error::new(ErrorKind::SchemaMismatch, what).with_hint(hint))
    };
    let is_required = |column: &Type| column.get_basic_info().repetition() == Repetition::REQUIRED;
    let named = |columns: &[Arc<Type>], name: &str| {
        columns.iter().find(|column| column.name().eq_ignore_ascii_case(name)).cloned()
    };
    for column in there {
        let name = column.name();
        let Some(own) = named(written, name) else {
            if is_required(column) {
                return mismatch(format!(
                    "column \"{name}\" of file \"{path}\" is required, and would not be written"
                ));
            }
            continue;
        };
        let (found, expected) = (file_type(column), file_type(&own));
        if found.data_type != expected.data_type || found.sql_type != expected.sql_type {
            let (found, expected) = (found.words, expected.words);
            return mismatch(format!(
                "column \"{name}\" of file \"{path}\" is {found}, and would be written as {expected}"
            ));
        }
    }
    match written.iter().find(|own| is_required(own) && named(there, own.name()).is_none()) {
        Some(own) => mismatch(format!("file \"{path}\" has no column \"{}\", which is NOT NULL", own.name())),
        None => Ok(()),
    }
}
