//! File identity, and footers that are read once.
//!
//! A query opens each of its files once, before it runs, and keeps the handle where there are not too many: such a file
//! is read to its end as it was, even if it is replaced or deleted meanwhile. A file that is changed in place is detected by its
//! identity and is an error.
//!
//! Invariants: a footer belongs to the identity under which it is kept. Identity is taken from the open
//! handle, never from the path. A footer's memory is taken before it is read, and given back with its last user
//! (`footer_memory.rs`); one that is larger than what may be kept is read for each use.
//!
//! Deliberately absent: column data (`scan`, `cache`), remote files.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    hash::{DefaultHasher, Hasher},
    ops::{Range, RangeInclusive},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use parquet::{
    arrow::{
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
        parquet_to_arrow_schema,
    },
    basic::Type as PhysicalType,
    errors::ParquetError,
    file::metadata::{ParquetMetaData, ParquetMetaDataOptions, ParquetStatisticsPolicy, RowGroupMetaData},
    schema::types::SchemaDescriptor,
};
use pystachio_engine::{descriptors::KeptDescriptor, locking::lock};
use pystachio_plan::{Error, ErrorKind, FileSet, Result};

use crate::{
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    describe::Descriptions,
    error::{corrupt_file, from_io, from_parquet},
    exact_bounds::ExactBounds,
    file_memory::{FileMemory, MemoryShare, UnlimitedMemory},
    file_set::{FoundFile, expand},
    file_type::{FileType, file_type},
    footer_check::{check_decoded, check_encoded},
    footer_decode::{decode_footer, decode_with, reason},
    footer_memory::{decoded_bytes, footer_refused},
    leafless::{with_leafless, without_leafless},
    page_index::PageIndexes,
    sampled_values::SampledValues,
    statistics::ChunkStatistics,
    stored_schema::as_stored,
    writer::Writer,
};

/// Footers kept at most, in bytes of their decoded form.
const FOOTER_BYTES_MAX: u64 = 256 << 20;
/// The part of an engine's memory that footers are kept in.
const FOOTER_MEMORY_PART: u64 = 4;
/// Handles that one table keeps open from the start, if the process has descriptors for them; other files are opened
/// when they are read.
const OPEN_FILES_MAX: usize = 256;

/// What makes a file the same file with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The file system's device number.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// Its size.
    pub file_bytes: u64,
    /// When its content was changed, in nanoseconds since 1970.
    pub modified_ns: i128,
}

/// A file's footer and what follows from it. Shared by all queries that see the same identity.
#[derive(Debug)]
pub struct FileFooter {
    /// Absolute path.
    pub path: PathBuf,
    /// The file that this is the footer of.
    pub identity: FileIdentity,
    /// What the Arrow reader is given: the footer with the file's own Arrow types, text and bytes as views, the embedded
    /// Arrow schema ignored. It has the file's leaves, and not its groups without any; some columns are as they are stored
    /// (`stored_schema.rs`).
    pub reader: ArrowReaderMetadata,
    metadata: Arc<ParquetMetaData>,
    schema: SchemaRef,
    /// Where the leaves of each column start, and where the last one's end.
    leaf_starts: Vec<usize>,
    /// Of its bytes: equal for copies of a file, wherever they are.
    pub digest: u64,
    writer: Writer,
    exact_bounds: ExactBounds,
    pub(super) page_indexes: PageIndexes,
    /// What it takes.
    share: MemoryShare,
}

/// A footer as it was read.
struct ReadFooter {
    metadata: Arc<ParquetMetaData>,
    /// The same for the Arrow reader: without groups that have no leaf, and columns as they are stored.
    for_reader: Arc<ParquetMetaData>,
    /// The schema with the columns' annotations, where the reader's has not all of them.
    annotated: Option<SchemaRef>,
    exact_bounds: ExactBounds,
    digest: u64,
    share: MemoryShare,
}

/// A file that a query reads.
#[derive(Clone, Debug)]
pub struct TableFile {
    /// Its footer.
    pub footer: Arc<FileFooter>,
    /// The rank whose own it is; absent where every rank sees it.
    pub rank: Option<u16>,
    handle: Option<Arc<KeptFile>>,
}

/// A file that stays open until its query ends.
#[derive(Debug)]
struct KeptFile {
    file: Arc<File>,
    _descriptor: KeptDescriptor,
}

/// Footers by the paths of their files, those used least recently first to go.
#[derive(Debug, Default)]
struct KeptFooters {
    by_path: HashMap<PathBuf, KeptFooter>,
    /// Paths by last use.
    by_use: BTreeMap<u64, PathBuf>,
    clock: u64,
    held_bytes: u64,
}

#[derive(Debug)]
struct KeptFooter {
    footer: Arc<FileFooter>,
    last_use: u64,
}

/// Opens files and keeps their footers.
#[derive(Debug)]
pub struct FileCatalog {
    footers: Mutex<KeptFooters>,
    pub(super) memory: Arc<dyn FileMemory>,
    /// The most bytes that the kept footers take.
    kept_bytes_max: u64,
    /// How many ranks have files of their own, where tables say that ranks do.
    rank_count: u16,
    /// What footers together say about a table.
    pub(super) descriptions: Descriptions,
    /// What some rows say of columns.
    pub(super) sampled: SampledValues,
}

impl Default for FileCatalog {
    fn default() -> Self {
        Self::new(Arc::new(UnlimitedMemory), u64::MAX)
    }
}

impl FileCatalog {
    /// An empty catalog, whose footers are in `memory`, of which there are so many bytes for all purposes.
    pub fn new(memory: Arc<dyn FileMemory>, memory_bytes: u64) -> Self {
        Self {
            footers: Mutex::default(),
            memory,
            kept_bytes_max: FOOTER_BYTES_MAX.min(memory_bytes / FOOTER_MEMORY_PART),
            rank_count: 1,
            descriptions: Descriptions::default(),
            sampled: SampledValues::default(),
        }
    }

    /// The same catalog for an engine of so many ranks: an opened table has the files of all of them.
    #[must_use]
    pub fn with_ranks(self, rank_count: usize) -> Self {
        Self { rank_count: u16::try_from(rank_count).unwrap_or(u16::MAX), ..self }
    }

    /// The files of a set. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` for a path that matches nothing, `FilePermission`, `InvalidArgument`.
    pub(super) fn find(&self, files: &FileSet) -> Result<Vec<FoundFile>> {
        expand(files, self.rank_count)
    }

    /// Whether the footers of these files were read before, so that opening them again reads nothing: of plain paths. They may
    /// have changed since.
    pub fn has_footers(&self, files: &FileSet) -> bool {
        let footers = self.lock();
        files.paths.iter().all(|path| footers.by_path.contains_key(Path::new(path)))
    }

    /// What the footers take that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.lock().held_bytes
    }

    /// Drops the least recently used footers, of so many bytes. Returns whether there were any. A reader of a file keeps
    /// its footer.
    pub fn give_back(&self, bytes: u64) -> bool {
        let mut given = Vec::new();
        let mut footers = self.lock();
        let before = footers.held_bytes;
        while before - footers.held_bytes < bytes.max(1)
            && let Some(footer) = footers.remove_oldest()
        {
            given.push(footer);
        }
        // Their memory goes back outside the lock.
        drop(footers);
        !given.is_empty()
    }

    /// Every file of the set, opened, with its footer; in the order in which they are read. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, `FileAccess`, `FileCorrupt`, each naming the file.
    pub fn open_all(&self, files: &FileSet) -> Result<Vec<TableFile>> {
        let found = self.find(files)?;
        let keep_open = found.len() <= OPEN_FILES_MAX;
        found.iter().map(|file| self.open(file, keep_open)).collect()
    }

    fn open(&self, FoundFile { path, rank }: &FoundFile, keep_open: bool) -> Result<TableFile> {
        let (file, identity) = open_file(path)?;
        let handle = Arc::new(file);
        let footer = self.footer(path, &handle, identity)?;
        let descriptor = if keep_open { KeptDescriptor::take() } else { None };
        let kept = descriptor.map(|_descriptor| Arc::new(KeptFile { file: handle, _descriptor }));
        Ok(TableFile { footer, rank: *rank, handle: kept })
    }

    fn footer(&self, path: &Path, handle: &File, identity: FileIdentity) -> Result<Arc<FileFooter>> {
        if let Some(footer) = self.lock().get(path, identity) {
            return Ok(footer);
        }
        let ReadFooter { metadata, for_reader, annotated, exact_bounds, digest, mut share } =
            self.read_footer(path, handle, identity.file_bytes)?;
        share.shrink_to(memory_bytes(&metadata, &for_reader));
        let reader = decode_guarded(|| reader_metadata(for_reader));
        let reader = reader.ok_or_else(|| corrupt_footer(path, NOT_DECODABLE))?;
        let reader = reader.map_err(|error| from_parquet(path, &error))?;
        let root = metadata.file_metadata().schema_descr().root_schema();
        let schema = with_leafless(root, annotated.as_ref().unwrap_or(reader.schema())).ok_or_else(|| {
            let message = format!("the columns of Parquet file \"{}\" can't be told apart", path.display());
            Error::new(ErrorKind::NotSupported, message)
        })?;
        let footer = Arc::new(FileFooter {
            path: path.to_owned(),
            identity,
            reader,
            writer: Writer::new(metadata.file_metadata().created_by()),
            leaf_starts: leaf_starts(metadata.file_metadata().schema_descr()),
            metadata,
            schema,
            digest,
            exact_bounds,
            page_indexes: PageIndexes::default(),
            share,
        });
        let mut footers = self.lock();
        footers.insert(&footer);
        footers.evict(self.kept_bytes_max);
        Ok(footer)
    }

    /// Reads a footer, in memory that is taken for it first.
    fn read_footer(&self, path: &Path, handle: &File, file_bytes: u64) -> Result<ReadFooter> {
        let place = footer_place(path, handle, file_bytes)?;
        let footer_bytes = place.end - place.start;
        let mut share = MemoryShare::new(self.memory.clone());
        let mut take = |bytes: u64| {
            while !share.try_grow(bytes) {
                if !self.give_back(bytes) {
                    return Err(footer_refused(path, footer_bytes, share.bytes() + bytes));
                }
            }
            Ok(())
        };
        take(footer_bytes)?;
        let mut footer = vec![0; footer_bytes as usize];
        handle.read_exact_at(&mut footer, place.start).map_err(|error| from_io(path, "read", &error))?;
        let invalid = |reason: &str| corrupt_footer(path, reason);
        take(decoded_bytes(&footer).map_err(invalid)?)?;
        let exact_bounds = check_encoded(&footer).map_err(invalid)?;
        let metadata = decode_footer(&footer).map_err(|reason| invalid(&reason))?;
        check_decoded(&metadata, place.start).map_err(invalid)?;
        let metadata = Arc::new(metadata);
        let (for_reader, annotated) =
            metadata_for_reader(&metadata, &footer).map_err(|reason| invalid(&reason))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&footer);
        Ok(ReadFooter { metadata, for_reader, annotated, exact_bounds, digest: hasher.finish(), share })
    }

    fn lock(&self) -> MutexGuard<'_, KeptFooters> {
        lock(&self.footers)
    }
}

impl KeptFooters {
    /// The footer of a path, if its file is the same; this counts as a use.
    fn get(&mut self, path: &Path, identity: FileIdentity) -> Option<Arc<FileFooter>> {
        let kept = self.by_path.get_mut(path).filter(|kept| kept.footer.identity == identity)?;
        self.clock += 1;
        if let Some(path) = self.by_use.remove(&kept.last_use) {
            self.by_use.insert(self.clock, path);
        }
        kept.last_use = self.clock;
        Some(kept.footer.clone())
    }

    /// Keeps a footer in place of what its path had.
    fn insert(&mut self, footer: &Arc<FileFooter>) {
        self.remove(&footer.path);
        self.clock += 1;
        self.held_bytes += footer.share.bytes();
        self.by_use.insert(self.clock, footer.path.clone());
        let kept = KeptFooter { footer: footer.clone(), last_use: self.clock };
        self.by_path.insert(footer.path.clone(), kept);
    }

    fn remove(&mut self, path: &Path) -> Option<Arc<FileFooter>> {
        let kept = self.by_path.remove(path)?;
        self.by_use.remove(&kept.last_use);
        self.held_bytes -= kept.footer.share.bytes();
        Some(kept.footer)
    }

    /// Gives up the footer used least recently.
    fn remove_oldest(&mut self) -> Option<Arc<FileFooter>> {
        let (_, oldest) = self.by_use.pop_first()?;
        self.remove(&oldest)
    }

    /// Gives up footers until the others take no more than so many bytes. One that is larger is not kept, nor are others
    /// given up for it.
    fn evict(&mut self, bytes_max: u64) {
        if let Some(newest) = self.by_use.last_key_value().map(|(_, path)| path.clone())
            && self.by_path.get(&newest).is_some_and(|kept| kept.footer.share.bytes() > bytes_max)
        {
            self.remove(&newest);
        }
        while self.held_bytes > bytes_max && self.remove_oldest().is_some() {}
    }
}

impl FileFooter {
    /// The decoded footer.
    pub fn metadata(&self) -> &Arc<ParquetMetaData> {
        &self.metadata
    }

    /// The file's columns, in the file's order, with the Arrow types of their annotations. One without a leaf, which the
    /// reader does not give, is an empty group.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The leaves of a column, given by its place among the file's.
    pub fn leaves(&self, column: usize) -> Range<usize> {
        match self.leaf_starts.get(column..column + 2) {
            Some(&[start, end]) => start..end,
            _ => 0..0,
        }
    }

    /// The type of the column that a leaf is of, where one can be read.
    pub(super) fn type_of_leaf(&self, leaf: usize) -> Option<FileType> {
        let schema = self.metadata.file_metadata().schema_descr();
        let field = schema.root_schema().get_fields().get(schema.get_column_root_idx(leaf))?;
        let file_type = file_type(field);
        file_type.storage.is_some().then_some(file_type)
    }

    /// The statistics of a column chunk. `file_type` is the leaf's.
    pub fn statistics_of<'a>(
        &'a self,
        row_group: &'a RowGroupMetaData,
        leaf_index: usize,
        file_type: &'a FileType,
    ) -> Option<ChunkStatistics<'a>> {
        let chunk = row_group.columns().get(leaf_index)?;
        Some(ChunkStatistics {
            writer: &self.writer,
            order: self.metadata.file_metadata().column_order(leaf_index),
            chunk,
            file_type,
            required: chunk.column_descr().max_def_level() == 0,
            row_count: u64::try_from(row_group.num_rows()).ok()?,
        })
    }

    /// Whether the file states that both bounds of a column chunk are values of the column, and can be believed to know.
    pub fn has_exact_bounds(&self, row_group: usize, leaf: usize) -> bool {
        let leaves = self.metadata.file_metadata().schema_descr().columns();
        let is_byte_array =
            leaves.get(leaf).is_some_and(|column| column.physical_type() == PhysicalType::BYTE_ARRAY);
        self.exact_bounds.has(row_group, leaf) && self.writer.knows_exact_bounds(is_byte_array)
    }

    /// All rows.
    pub fn row_count(&self) -> usize {
        self.metadata().row_groups().iter().map(|group| usize::try_from(group.num_rows()).unwrap_or(0)).sum()
    }

    /// The Parquet type of a top-level column in words, for messages: `INT64 Decimal(15,2)`.
    pub fn column_type(&self, column: usize) -> String {
        let root = self.metadata().file_metadata().schema_descr().root_schema();
        root.get_fields().get(column).map_or_else(|| "unknown".to_owned(), |field| file_type(field).words)
    }

    /// The stored numbers that a top-level column's annotation allows; `None` where it allows all.
    pub fn allowed(&self, column: usize) -> Option<RangeInclusive<i128>> {
        let root = self.metadata().file_metadata().schema_descr().root_schema();
        root.get_fields().get(column).and_then(|field| file_type(field).allowed)
    }

    /// The error of a file that is no longer what its footer says.
    pub fn changed(&self) -> Error {
        Error::new(
            ErrorKind::FileAccess,
            format!("file \"{}\" was changed while the query read it", self.path.display()),
        )
        .with_hint("Run the query again; replace files by renaming instead of writing into them.")
    }
}

impl TableFile {
    /// The open file, which has the footer's identity.
    ///
    /// # Errors
    ///
    /// `FileAccess` if it has changed since its footer was read; those of opening it.
    pub fn handle(&self) -> Result<Arc<File>> {
        if let Some(kept) = &self.handle {
            self.check_unchanged(&kept.file)?;
            return Ok(kept.file.clone());
        }
        let (file, identity) = open_file(&self.footer.path)?;
        if identity != self.footer.identity {
            return Err(self.footer.changed());
        }
        Ok(Arc::new(file))
    }

    /// Whether the file's content is still what the footer describes.
    ///
    /// # Errors
    ///
    /// `FileAccess` if not.
    pub fn check_unchanged(&self, handle: &File) -> Result<()> {
        let metadata = handle.metadata().map_err(|error| from_io(&self.footer.path, "read", &error))?;
        if FileIdentity::of(&metadata) == self.footer.identity { Ok(()) } else { Err(self.footer.changed()) }
    }

    /// Whether the file has a range that its footer points to.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if it ends before the range does.
    pub fn check_range(&self, offset: u64, range_bytes: u64) -> Result<()> {
        let end = offset.saturating_add(range_bytes);
        if end <= self.footer.identity.file_bytes {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::FileCorrupt,
            format!(
                "Parquet file \"{}\" is corrupt: its footer points to byte {end}, but it has {} bytes",
                self.footer.path.display(),
                self.footer.identity.file_bytes
            ),
        ))
    }

    /// Reads a range of the file. Blocks.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if the file ends before the range does, `FileAccess`.
    pub fn read_range(&self, handle: &File, offset: u64, range_bytes: usize) -> Result<Bytes> {
        self.check_range(offset, range_bytes as u64)?;
        let mut buffer = vec![0; range_bytes];
        handle
            .read_exact_at(&mut buffer, offset)
            .map_err(|error| from_io(&self.footer.path, "read", &error))?;
        Ok(buffer.into())
    }
}

impl FileIdentity {
    /// That of the file which has a path now.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, `FileAccess`, naming the file.
    pub fn at(path: &Path) -> Result<Self> {
        fs::metadata(path).map(|metadata| Self::of(&metadata)).map_err(|error| from_io(path, "read", &error))
    }

    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            file_bytes: metadata.size(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        }
    }
}

fn open_file(path: &Path) -> Result<(File, FileIdentity)> {
    let metadata = fs::metadata(path).map_err(|error| from_io(path, "read", &error))?;
    // A pipe or device would block the open.
    if !metadata.is_file() {
        let message = format!("\"{}\" is not a regular file", path.display());
        return Err(Error::new(ErrorKind::FileAccess, message));
    }
    let file = File::open(path).map_err(|error| from_io(path, "open", &error))?;
    let metadata = file.metadata().map_err(|error| from_io(path, "read", &error))?;
    Ok((file, FileIdentity::of(&metadata)))
}

fn corrupt_footer(path: &Path, reason: &str) -> Error {
    corrupt_file(path, &format!("the footer is corrupt: {reason}"))
}

/// What a decoded footer takes, with what the reader is given.
fn memory_bytes(metadata: &Arc<ParquetMetaData>, for_reader: &Arc<ParquetMetaData>) -> u64 {
    let own = metadata.memory_size();
    let other = if Arc::ptr_eq(metadata, for_reader) { 0 } else { for_reader.memory_size() };
    (own + other) as u64
}

/// Where a file's encoded footer is.
fn footer_place(path: &Path, handle: &File, file_bytes: u64) -> Result<Range<u64>> {
    let corrupt = |reason: &str| corrupt_file(path, reason);
    if file_bytes == 0 {
        return Err(corrupt("the file is empty"));
    }
    if file_bytes < 12 {
        return Err(corrupt("the file is too short to be Parquet"));
    }
    let mut magic = [[0; 4]; 2];
    for (magic, offset) in magic.iter_mut().zip([0, file_bytes - 4]) {
        handle.read_exact_at(magic, offset).map_err(|error| from_io(path, "read", &error))?;
    }
    match magic {
        [_, [b'P', b'A', b'R', b'E']] => return Err(corrupt("the file is encrypted")),
        [[b'P', b'A', b'R', b'1'], [b'P', b'A', b'R', b'1']] => {}
        [[b'P', b'A', b'R', b'1'], _] => {
            return Err(corrupt("the file is truncated: the footer at its end is missing"));
        }
        _ => return Err(corrupt("the file is not Parquet: it does not start with \"PAR1\"")),
    }
    let mut length = [0; 4];
    handle.read_exact_at(&mut length, file_bytes - 8).map_err(|error| from_io(path, "read", &error))?;
    let footer_bytes = u64::from(u32::from_le_bytes(length));
    let Some(footer_start) = (file_bytes - 8).checked_sub(footer_bytes).filter(|start| *start >= 4) else {
        return Err(corrupt(&format!(
            "the footer is corrupt: it is said to have {footer_bytes} bytes, and the file has {file_bytes}"
        )));
    };
    Ok(footer_start..footer_start + footer_bytes)
}

/// The footer as the Arrow reader is given it, without groups that have no leaf and without annotations by which it changes
/// values; and the schema of the columns with their annotations, where that is another.
fn metadata_for_reader(
    metadata: &Arc<ParquetMetaData>,
    footer: &[u8],
) -> std::result::Result<(Arc<ParquetMetaData>, Option<SchemaRef>), String> {
    let root = metadata.file_metadata().schema_descr().root_schema();
    let given = || {
        let with_leaves = without_leafless(root)?;
        let stored = as_stored(with_leaves.as_ref().unwrap_or(root))?;
        let annotated = match (&stored, &with_leaves) {
            (None, _) => None,
            (Some(_), Some(pruned)) => Some(arrow_schema(&SchemaDescriptor::new(Arc::new(pruned.clone())))?),
            (Some(_), None) => Some(arrow_schema(metadata.file_metadata().schema_descr())?),
        };
        Ok((stored.or(with_leaves), annotated))
    };
    let given = decode_guarded(given).ok_or_else(|| NOT_DECODABLE.to_owned())?;
    let (schema, annotated) = given.map_err(|error: ParquetError| reason(&error))?;
    let Some(schema) = schema else { return Ok((metadata.clone(), None)) };
    let options = ParquetMetaDataOptions::new()
        .with_schema(Arc::new(SchemaDescriptor::new(Arc::new(schema))))
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
    Ok((decode_with(footer, &options).map(Arc::new)?, annotated))
}

/// The footer with the types in which columns are decoded: those of the Parquet schema, whatever the
/// writer's own Arrow schema says, with text and bytes as views and INT96 in microseconds.
fn reader_metadata(metadata: Arc<ParquetMetaData>) -> std::result::Result<ArrowReaderMetadata, ParquetError> {
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::try_new(metadata.clone(), options())?;
    let schema = arrow_schema(metadata.file_metadata().schema_descr())?;
    ArrowReaderMetadata::try_new(metadata, options().with_schema(schema)).or(Ok(plain))
}

/// The types in which columns of a schema are decoded.
fn arrow_schema(leaves: &SchemaDescriptor) -> std::result::Result<SchemaRef, ParquetError> {
    let starts = leaf_starts(leaves);
    let plain = parquet_to_arrow_schema(leaves, None)?;
    let fields = plain.fields().iter().zip(starts.windows(2)).map(|(field, ends)| {
        let mut types = (ends[0]..ends[1]).map(|leaf| leaves.column(leaf).physical_type());
        with_decoded_type(field, types.any(|physical| physical == PhysicalType::INT96))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>())))
}

fn with_decoded_type(field: &FieldRef, is_int96: bool) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Timestamp(_, zone) if is_int96 => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::List(item) => DataType::List(with_decoded_type(item, is_int96)),
        _ => return field.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Where the leaves of each column start, and where the last one's end: those of a column follow one another.
fn leaf_starts(schema: &SchemaDescriptor) -> Vec<usize> {
    let roots: Vec<usize> = (0..schema.num_columns()).map(|leaf| schema.get_column_root_idx(leaf)).collect();
    let columns = schema.root_schema().get_fields().len();
    (0..=columns).map(|column| roots.partition_point(|root| *root < column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_memory::tests::CountedMemory;

    /// A file with the content of one of the SQL tests' files.
    fn place(folder: &tempfile::TempDir, name: &str, content: &str) -> FileSet {
        let path = folder.path().join(name);
        let data = Path::new("../../regress/data");
        fs::copy(data.join(content), &path).unwrap();
        FileSet { paths: vec![path.display().to_string()] }
    }

    fn open(catalog: &FileCatalog, files: &FileSet) -> Arc<FileFooter> {
        catalog.open_all(files).unwrap().remove(0).footer
    }

    /// What is kept, by last use.
    fn kept(catalog: &FileCatalog) -> Vec<FileIdentity> {
        let footers = catalog.lock();
        assert_eq!(footers.by_use.len(), footers.by_path.len());
        footers.by_use.values().map(|path| footers.by_path[path].footer.identity).collect()
    }

    #[test]
    fn leaves_of_a_column_are_those_below_it() {
        let text =
            "message schema { required int32 a; optional group b { optional int64 c; optional group d {}
            required group e { required int32 f; } } optional group g {} required int96 h; }";
        let schema = parquet::schema::parser::parse_message_type(text).unwrap();
        assert_eq!(leaf_starts(&SchemaDescriptor::new(Arc::new(schema))), [0, 1, 3, 3, 4]);
    }

    #[test]
    fn a_footer_is_read_once_while_its_file_is_the_same() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), FileCatalog::default());
        let files = place(&folder, "t.parquet", "edge_int4.parquet");
        let first = open(&catalog, &files);
        assert!(Arc::ptr_eq(&first, &open(&catalog, &files)));
        place(&folder, "t.parquet", "edge_date.parquet");
        let changed = open(&catalog, &files);
        assert_ne!((first.identity, first.schema()), (changed.identity, changed.schema()));
        assert!(Arc::ptr_eq(&changed, &open(&catalog, &files)));
        assert_eq!(kept(&catalog), [changed.identity]);
    }

    #[test]
    fn footers_that_were_not_used_for_longest_give_way() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), FileCatalog::default());
        let [first, second, third] =
            ["1", "2", "3"].map(|name| place(&folder, &format!("{name}.parquet"), "edge_int4.parquet"));
        let footers = [&first, &second, &third, &first].map(|files| open(&catalog, files));
        let bytes: u64 = footers[..3].iter().map(|footer| footer.share.bytes()).sum();
        catalog.lock().evict(bytes);
        assert_eq!(kept(&catalog).len(), 3);
        catalog.lock().evict(bytes - 1);
        assert_eq!(kept(&catalog), [footers[2].identity, footers[0].identity]);
        assert_eq!(catalog.kept_bytes(), footers[2].share.bytes() + footers[0].share.bytes());
        assert!(catalog.give_back(1));
        assert_eq!(kept(&catalog), [footers[0].identity]);
        // What is too large for all of it is not kept.
        catalog.lock().evict(footers[0].share.bytes() - 1);
        assert_eq!((kept(&catalog), catalog.kept_bytes()), (Vec::new(), 0));
        assert!(!catalog.give_back(1));
    }

    #[test]
    fn footers_are_counted_before_they_are_read_and_until_nobody_has_them() {
        const MEMORY_BYTES: u64 = 40_000;
        let folder = tempfile::tempdir().unwrap();
        let memory = Arc::new(CountedMemory::new(MEMORY_BYTES));
        let left = || memory.left();
        let catalog = FileCatalog::new(memory.clone(), 4 * MEMORY_BYTES);
        let files = place(&folder, "t.parquet", "edge_int4.parquet");
        let footer = open(&catalog, &files);
        let footer_bytes = footer.share.bytes();
        assert_eq!((left(), catalog.kept_bytes()), (MEMORY_BYTES - footer_bytes, footer_bytes));
        // What is kept gives way to what is to be read, and its memory comes back with its last user.
        memory.set_left(0);
        let refused = catalog.open_all(&place(&folder, "u.parquet", "edge_int4.parquet")).unwrap_err();
        assert_eq!((refused.kind, catalog.kept_bytes()), (ErrorKind::OutOfMemory, 0));
        assert!(refused.message.contains("u.parquet") && refused.message.contains("\"memory\""), "{refused}");
        assert_eq!(left(), 0);
        drop(footer);
        assert_eq!(left(), footer_bytes);
        // With room for the encoded footer, but not for the decoded one, nothing stays taken either.
        memory.set_left(footer_bytes / 4);
        assert!(catalog.open_all(&files).is_err());
        assert_eq!(left(), footer_bytes / 4);
    }

    #[test]
    fn a_footer_too_large_to_be_kept_is_read_for_each_use() {
        let folder = tempfile::tempdir().unwrap();
        let small = FileCatalog::new(Arc::new(UnlimitedMemory), 400);
        let files = place(&folder, "t.parquet", "edge_int4.parquet");
        let first = open(&small, &files);
        assert!(!Arc::ptr_eq(&first, &open(&small, &files)));
        assert_eq!(small.kept_bytes(), 0);
    }
}
