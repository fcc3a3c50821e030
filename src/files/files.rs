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
//! Deliberately absent: column data (`scan`, `cache`), requests to stores (`stores`).

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs::{self, File},
    hash::{DefaultHasher, Hasher},
    io,
    ops::{Range, RangeInclusive},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
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
    schema::types::{SchemaDescriptor, TypePtr},
};
use pystachio_engine::{
    StopFlag,
    descriptors::KeptDescriptor,
    locking::{lock, lock_whole, whole},
};
use pystachio_plan::{
    DataType as PlanType, Error, ErrorKind, FileKeys, FileSet, Result, ScanColumn, StoreAccess,
};
use pystachio_tables::{DeletedRows, TableState};
use rustix::{buffer::spare_capacity, io::pread};

use crate::{
    chunk_facts::{ChunkBounds, ChunkSizes, LeafFacts},
    column_place::ScanConditions,
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    describe::Descriptions,
    encryption::{
        DecryptedFile, DecryptedPin, EncryptedLayout, FileHandle, KeyDigest, RoleKeys, open_footer,
    },
    error::{corrupt_file, from_io, from_parquet},
    exact_bounds::ExactBounds,
    field_place::FieldPlace,
    file_memory::{FileMemory, MemoryShare, UnlimitedMemory},
    file_set::{FoundFile, expand},
    file_type::{FileType, file_type, is_null_type, leaf_type},
    footer_check::{check_decoded, check_encoded, is_of_encrypted_file},
    footer_decode::{decode_footer, decode_with, reason},
    footer_memory::{LEAF_TYPE_BYTES, decoded_bytes, footer_refused},
    leafless::{with_leafless, without_leafless},
    listings::Listings,
    page_index::PageIndexes,
    row_deletes::KeptRowDeletes,
    sampled_values::SampledValues,
    statistics::ChunkStatistics,
    stored_schema::as_stored,
    stores::{Fetcher, ObjectPin, StoreSession, Stores},
    table_files::{FileOfTable, TableStates, files_of, table_state},
    writer::Writer,
};

/// Footers kept at most, in bytes of their decoded form.
const FOOTER_BYTES_MAX: u64 = 256 << 20;
/// The part of an engine's memory that footers are kept in.
const FOOTER_MEMORY_PART: u64 = 4;
/// Handles that one table keeps open from the start, if the process has descriptors for them; other files are opened
/// when they are read.
const OPEN_FILES_MAX: usize = 256;
/// Threads that open objects of a table.
const OPENERS_MAX: usize = 16;
/// Bytes at an object's end that are read for its footer.
const FOOTER_READ_BYTES: u64 = 64 << 10;

/// What makes a file the same file with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Which version of which file it is.
    pub version: FileVersion,
    /// Its size.
    pub file_bytes: u64,
    /// Of an encrypted file, which keys it is read with: what is kept of it is not found with others.
    pub keys: KeyDigest,
}

/// A version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileVersion {
    /// A file of this host.
    Local {
        /// The file system's device number.
        device: u64,
        /// The file's number there.
        inode: u64,
        /// When its content was changed, in nanoseconds since 1970.
        modified_ns: i128,
    },
    /// An object of a store: a digest of store, key, version and size. Its local file changes as bytes come.
    Object([u8; 16]),
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
    /// The same one as of other files with the same columns.
    schema: SchemaRef,
    /// Where the leaves of each column start, and where the last one's end.
    leaf_starts: Vec<usize>,
    /// Of its bytes: equal for copies of a file, wherever they are.
    pub digest: u64,
    writer: Writer,
    exact_bounds: ExactBounds,
    /// The types of leaves, as far as they were asked for.
    leaf_types: Vec<OnceLock<Option<Box<FileType>>>>,
    /// Facts of the chunks of leaves, as far as they were asked for.
    leaf_facts: Vec<LeafFacts>,
    pub(super) page_indexes: PageIndexes,
    /// How the file is encrypted, if it is.
    encrypted: Option<EncryptedLayout>,
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
    encrypted: Option<EncryptedLayout>,
    share: MemoryShare,
}

/// A file that a query reads.
#[derive(Clone, Debug)]
pub struct TableFile {
    /// Its footer.
    pub footer: Arc<FileFooter>,
    /// The rank whose own it is; absent where every rank sees it.
    pub rank: Option<u16>,
    /// What the log of its table says of it.
    pub of_table: Option<FileOfTable>,
    /// Rows of it that the table does not have.
    pub deleted: Option<Arc<DeletedRows>>,
    handle: Option<Arc<KeptFile>>,
    /// Where the bytes of an object come from.
    fetcher: Option<Fetcher>,
    /// Its plain bytes, if it is encrypted.
    decrypted: Option<Arc<DecryptedFile>>,
}

/// Keeps ranges of a file readable until it is dropped. Of a local file that is not encrypted it keeps nothing.
#[derive(Debug, Default)]
pub struct Pin {
    _object: ObjectPin,
    _decrypted: Option<DecryptedPin>,
}

/// The files that a scan reads of a table.
#[derive(Clone, Debug)]
pub struct OpenedFiles {
    /// In the order in which they are read.
    pub files: Vec<TableFile>,
    /// Files of the table that the scan's conditions rule out by folders' keys, or by the table's log: they were not opened.
    pub left_out: usize,
}

/// The files of a set that exist.
#[derive(Clone, Debug)]
pub(super) struct FoundSet {
    /// In the order in which they are read.
    pub(super) files: Vec<FoundFile>,
    /// Whose files they are, if a log says so.
    pub(super) table: Option<Arc<TableState>>,
}

/// A file that stays open until its query ends.
#[derive(Debug)]
struct KeptFile {
    file: Arc<File>,
    _descriptor: KeptDescriptor,
}

/// Footers by the paths of their files and the keys that these are read with, those used least recently first to go.
#[derive(Debug, Default)]
struct KeptFooters {
    /// Of each path, one for each set of keys.
    by_path: HashMap<OsString, Vec<KeptFooter>>,
    /// Paths by last use.
    by_use: BTreeMap<u64, FooterKey>,
    clock: u64,
    held_bytes: u64,
}

type FooterKey = (OsString, KeyDigest);

/// A file, and what it was if it was looked at just now.
pub(super) type KnownFile<'f> = (&'f FoundFile, Option<FileIdentity>);

fn not_looked_at<'f>(files: impl IntoIterator<Item = &'f FoundFile>) -> Vec<KnownFile<'f>> {
    files.into_iter().map(|file| (file, None)).collect()
}

/// A footer, the file if it was opened, and where the bytes of an object come from.
type OpenedFile = (Arc<FileFooter>, Option<Arc<File>>, Option<Fetcher>);

#[derive(Debug)]
struct KeptFooter {
    footer: Arc<FileFooter>,
    last_use: u64,
}

/// The schemas of footers, Parquet's and Arrow's: files with the same columns share one.
#[derive(Debug, Default)]
struct KnownSchemas(Vec<(TypePtr, Weak<Schema>)>);

/// Schemas that are compared with a footer's at most.
const KNOWN_SCHEMAS_MAX: usize = 64;

impl KnownSchemas {
    /// The schema of the files that have these columns.
    fn of(&mut self, root: &TypePtr, schema: SchemaRef) -> SchemaRef {
        self.0.retain(|(_, schema)| schema.strong_count() > 0);
        let mut known =
            self.0.iter().filter(|(known, _)| known == root).filter_map(|(_, schema)| schema.upgrade());
        if let Some(known) = known.find(|known| *known == schema) {
            return known;
        }
        if self.0.len() < KNOWN_SCHEMAS_MAX {
            self.0.push((root.clone(), Arc::downgrade(&schema)));
        }
        schema
    }
}

/// Opens files and keeps their footers.
#[derive(Clone, Debug)]
pub struct FileCatalog {
    footers: Arc<Mutex<KeptFooters>>,
    schemas: Arc<Mutex<KnownSchemas>>,
    listings: Arc<Listings>,
    pub(super) memory: Arc<dyn FileMemory>,
    /// The most bytes that the kept footers take.
    kept_bytes_max: u64,
    /// How many ranks have files of their own, where tables say that ranks do.
    rank_count: u16,
    /// What logs say of tables.
    pub(super) tables: Arc<TableStates>,
    /// Rows that delete files name.
    pub(super) row_deletes: Arc<KeptRowDeletes>,
    /// What footers together say about a table.
    pub(super) descriptions: Arc<Descriptions>,
    /// What some rows say of columns.
    pub(super) sampled: Arc<SampledValues>,
    /// Where objects are, in an engine that reads any.
    stores: Arc<OnceLock<Arc<Stores>>>,
    /// The stores as the request may use them whose view of the catalog this is.
    session: Option<StoreSession>,
    /// The keys that it may open files with, by role.
    keys: Arc<[(u32, Arc<RoleKeys>)]>,
    /// Whether it is cancelled.
    stop: StopFlag,
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
            footers: Arc::default(),
            schemas: Arc::default(),
            listings: Arc::default(),
            memory,
            kept_bytes_max: FOOTER_BYTES_MAX.min(memory_bytes / FOOTER_MEMORY_PART),
            rank_count: 1,
            tables: Arc::default(),
            row_deletes: Arc::default(),
            descriptions: Arc::default(),
            sampled: Arc::default(),
            stores: Arc::default(),
            session: None,
            keys: Arc::default(),
            stop: StopFlag::default(),
        }
    }

    /// The same catalog for an engine of so many ranks: an opened table has the files of all of them.
    #[must_use]
    pub fn with_ranks(self, rank_count: usize) -> Self {
        Self { rank_count: u16::try_from(rank_count).unwrap_or(u16::MAX), ..self }
    }

    /// Says where objects are read from, once.
    pub fn set_stores(&self, stores: Arc<Stores>) {
        // A second call changes nothing.
        let _ = self.stores.set(stores);
    }

    /// The stores that it reads.
    pub fn stores(&self) -> Option<&Arc<Stores>> {
        self.stores.get()
    }

    /// The same catalog as a request sees it that may reach stores and open files by `access`, and that `stop` ends.
    #[must_use]
    pub fn for_request(self: &Arc<Self>, access: &StoreAccess, stop: &StopFlag) -> Arc<Self> {
        let session = self.stores.get().filter(|_| access.options.is_some());
        let session = session.map(|stores| StoreSession::new(stores.clone(), access.clone(), stop.clone()));
        let keys: Arc<[_]> = access
            .mappings
            .iter()
            .filter_map(|(role, options)| {
                let options = options.iter().map(|(name, value)| (name.as_str(), value.reveal()));
                // What is not valid was refused when the mapping was made.
                let keys = FileKeys::parse(options).ok().flatten()?;
                Some((*role, Arc::new(RoleKeys::new(keys))))
            })
            .collect();
        if session.is_none() && keys.is_empty() {
            return self.clone();
        }
        Arc::new(Self { session, keys, stop: stop.clone(), ..Self::clone(self) })
    }

    /// The keys that a role may open files with.
    fn keys_of(&self, role: u32) -> Option<&Arc<RoleKeys>> {
        self.keys.iter().find(|(of, _)| *of == role).map(|(_, keys)| keys)
    }

    /// The stores as the request may use them.
    ///
    /// # Errors
    ///
    /// `Internal` for a request that may use none.
    pub fn session(&self) -> Result<&StoreSession> {
        self.session
            .as_ref()
            .ok_or_else(|| Error::internal("the request does not say how it may reach stores"))
    }

    /// The files of a set. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` for a path that matches nothing, `FilePermission`, `InvalidArgument`; those of the table's log; for paths in
    /// stores those of reaching them.
    pub(super) fn find(&self, files: &FileSet) -> Result<FoundSet> {
        let mut found = match table_state(self, files)? {
            None => {
                let in_store = |paths: &[&str]| self.session()?.expand(paths, files.role);
                let found = expand(&self.listings, files, self.rank_count, &in_store)?;
                FoundSet { files: found, table: None }
            }
            Some(table) => FoundSet { files: files_of(self, &table, files.role)?, table: Some(table.0) },
        };
        if let Some(keys) = self.keys_of(files.role) {
            found.files.iter_mut().for_each(|file| file.keys = Some(keys.clone()));
        }
        Ok(found)
    }

    /// Whether the footers of these files were read before, so that opening them again reads nothing: of plain paths. They may
    /// have changed since.
    pub fn has_footers(&self, files: &FileSet) -> bool {
        // To find out which versions objects have is to ask their store.
        if files.is_in_store() {
            return false;
        }
        let keys = self.keys_of(files.role).map(|keys| keys.digest);
        let footers = self.lock();
        let has = |path: &str, keys: KeyDigest| footers.kept(&(path.into(), keys)).is_some();
        files
            .paths
            .iter()
            .all(|path| has(path, KeyDigest::default()) || keys.is_some_and(|keys| has(path, keys)))
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
        self.open_each(found.files.iter())
    }

    /// The files of a table that the conditions of a scan leave, as far as folders' keys tell; not kept open.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open_all`], and of values of folders that can't be read as declared.
    pub fn open_left(
        &self,
        table: &str,
        files: &FileSet,
        conditions: &ScanConditions<'_>,
    ) -> Result<OpenedFiles> {
        let found = self.find(files)?.files;
        let left = conditions.leave(table, found.iter())?;
        let found_count = found.len();
        let left: Vec<FoundFile> =
            found.into_iter().zip(left).filter(|(_, is_left)| *is_left).map(|(file, _)| file).collect();
        let files = Self::each(&not_looked_at(&left), &|file, known| self.open_as(file, known, false))?;
        Ok(OpenedFiles { left_out: found_count - files.len(), files })
    }

    /// Files, opened, in their order.
    pub(super) fn open_each<'f>(
        &self,
        files: impl IntoIterator<Item = &'f FoundFile>,
    ) -> Result<Vec<TableFile>> {
        self.open_known(&not_looked_at(files))
    }

    /// The same for files of which some were looked at just now: what they were then.
    pub(super) fn open_known(&self, files: &[KnownFile<'_>]) -> Result<Vec<TableFile>> {
        let keep_open = files.len() <= OPEN_FILES_MAX;
        Self::each(files, &|file, known| self.open_as(file, known, keep_open))
    }

    /// The footers of files. Blocks.
    pub(super) fn open_footers(&self, files: &[&FoundFile]) -> Result<Vec<Arc<FileFooter>>> {
        let files = not_looked_at(files.iter().copied());
        Self::each(&files, &|file, known| self.open_found(file, known, false).map(|(footer, ..)| footer))
    }

    /// What is made of each of some files: with threads that each wait for a store, where files are objects.
    fn each<T: Send>(
        files: &[KnownFile<'_>],
        make: &(dyn Fn(&FoundFile, Option<FileIdentity>) -> Result<T> + Sync),
    ) -> Result<Vec<T>> {
        let threads = match files.iter().filter(|(file, _)| file.object.is_some()).count() {
            0 | 1 => return files.iter().map(|(file, known)| make(file, *known)).collect(),
            objects => objects.min(OPENERS_MAX),
        };
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let made: Mutex<Vec<(usize, Result<T>)>> = Mutex::default();
        let run = || {
            while !has_failed.load(Ordering::Relaxed)
                && let place = next.fetch_add(1, Ordering::Relaxed)
                && let Some((file, known)) = files.get(place)
            {
                let one = make(file, *known);
                has_failed.fetch_or(one.is_err(), Ordering::Relaxed);
                lock_whole(&made).push((place, one));
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(run);
            }
            run();
        });
        let mut made = whole(made.into_inner());
        made.sort_by_key(|(place, _)| *place);
        made.into_iter().map(|(_, one)| one).collect()
    }

    /// The footer of a file, and the file, if it is wanted or had to be opened for its footer.
    fn open_found(
        &self,
        found: &FoundFile,
        known: Option<FileIdentity>,
        is_wanted: bool,
    ) -> Result<OpenedFile> {
        let path = &found.path;
        let keys = found.keys.as_deref();
        if !is_wanted && found.object.is_none() {
            let identity = match known {
                Some(known) => FileIdentity { keys: KeyDigest::default(), ..known },
                None => FileIdentity::at(path)?,
            };
            if let Some(footer) = self.kept_footer(path, identity, keys) {
                return Ok((footer, None, None));
            }
        }
        let fetcher = found.object.as_ref().map(Fetcher::open).transpose()?;
        let (file, identity) = match &fetcher {
            Some(fetcher) => (fetcher.handle()?, fetcher.object().identity),
            None => open_file(path)?,
        };
        let handle = Arc::new(file);
        let source = FooterSource { path, handle: &handle, fetcher: fetcher.as_ref(), keys };
        let footer = self.footer(&source, identity)?;
        Ok((footer, Some(handle), fetcher))
    }

    /// A file, opened; for as long as it is used, or each time that it is read. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::open_all`].
    pub(crate) fn open(&self, found: &FoundFile, keep_open: bool) -> Result<TableFile> {
        self.open_as(found, None, keep_open)
    }

    fn open_as(&self, found: &FoundFile, known: Option<FileIdentity>, keep_open: bool) -> Result<TableFile> {
        let FoundFile { rank, of_table, .. } = found;
        let (footer, handle, fetcher) = self.open_found(found, known, keep_open)?;
        let descriptor = if keep_open { KeptDescriptor::take() } else { None };
        let kept = handle.zip(descriptor);
        let kept = kept.map(|(file, _descriptor)| Arc::new(KeptFile { file, _descriptor }));
        let of_table = of_table.clone();
        let decrypted = footer
            .encrypted
            .is_some()
            .then(|| Arc::new(DecryptedFile::new(self.memory.clone(), self.stop.clone())));
        let mut file =
            TableFile { footer, rank: *rank, of_table, deleted: None, handle: kept, fetcher, decrypted };
        if let Some(of_table) = &file.of_table {
            of_table.check_columns(&file.footer)?;
            file.deleted = of_table.read_deleted(self, &file)?;
        }
        Ok(file)
    }

    /// The footer of a file, if it is kept.
    fn kept_footer(
        &self,
        path: &Path,
        identity: FileIdentity,
        keys: Option<&RoleKeys>,
    ) -> Option<Arc<FileFooter>> {
        let with_keys = keys.map(|keys| FileIdentity { keys: keys.digest, ..identity });
        [with_keys, Some(identity)].into_iter().flatten().find_map(|known| {
            let footer = self.lock().get(path, known)?;
            // What was read of an encrypted file without keys is for requests that have none.
            let is_for_keys = footer.encrypted.is_none() || with_keys.is_none_or(|own| own == known);
            is_for_keys.then_some(footer)
        })
    }

    fn footer(&self, source: &FooterSource<'_>, identity: FileIdentity) -> Result<Arc<FileFooter>> {
        let path = source.path;
        if let Some(footer) = self.kept_footer(path, identity, source.keys) {
            return Ok(footer);
        }
        let with_keys = source.keys.map(|keys| FileIdentity { keys: keys.digest, ..identity });
        let ReadFooter { metadata, for_reader, annotated, exact_bounds, digest, encrypted, mut share } =
            self.read_footer(source, identity.file_bytes)?;
        let identity = with_keys.filter(|_| encrypted.is_some()).unwrap_or(identity);
        let layout_bytes = encrypted.as_ref().map_or(0, EncryptedLayout::memory_bytes);
        let leaf_count = metadata.file_metadata().schema_descr().num_columns();
        let type_bytes = leaf_count as u64 * LEAF_TYPE_BYTES;
        let fact_bytes = (leaf_count * metadata.num_row_groups() * LeafFacts::CHUNK_BYTES) as u64;
        share.shrink_to(memory_bytes(&metadata, &for_reader) + type_bytes + fact_bytes + layout_bytes);
        let reader = decode_guarded(|| reader_metadata(for_reader));
        let reader = reader.ok_or_else(|| corrupt_footer(path, NOT_DECODABLE))?;
        let reader = reader.map_err(|error| from_parquet(path, &error))?;
        let root = metadata.file_metadata().schema_descr().root_schema();
        let schema = with_leafless(root, annotated.as_ref().unwrap_or(reader.schema())).ok_or_else(|| {
            let message = format!("the columns of Parquet file \"{}\" can't be told apart", path.display());
            Error::new(ErrorKind::NotSupported, message)
        })?;
        let root = metadata.file_metadata().schema_descr().root_schema_ptr();
        let schema = lock_whole(&self.schemas).of(&root, schema);
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
            leaf_types: std::iter::repeat_with(OnceLock::new).take(leaf_count).collect(),
            leaf_facts: std::iter::repeat_with(LeafFacts::default).take(leaf_count).collect(),
            page_indexes: PageIndexes::default(),
            encrypted,
            share,
        });
        let mut footers = self.lock();
        footers.insert(&footer);
        footers.evict(self.kept_bytes_max);
        Ok(footer)
    }

    /// Reads a footer, in memory that is taken for it first.
    fn read_footer(&self, source: &FooterSource<'_>, file_bytes: u64) -> Result<ReadFooter> {
        let FooterSource { path, handle, fetcher, keys } = source;
        // One request for most footers.
        let tail = file_bytes.saturating_sub(FOOTER_READ_BYTES);
        let _tail = fetcher.map(|fetcher| fetcher.fetch([(tail, FOOTER_READ_BYTES)])).transpose()?;
        let FooterPlace { place, is_encrypted } = footer_place(source, file_bytes)?;
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
        let _whole = fetcher.map(|fetcher| fetcher.fetch([(place.start, footer_bytes)])).transpose()?;
        let mut footer = vec![0; footer_bytes as usize];
        handle.read_exact_at(&mut footer, place.start).map_err(|error| from_io(path, "read", &error))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&footer);
        let invalid = |reason: &str| corrupt_footer(path, reason);
        let mut encrypted = None;
        if is_encrypted || is_of_encrypted_file(&footer).map_err(invalid)? {
            // The plain one, beside this.
            take(footer_bytes)?;
            let opened = open_footer(path, &footer, is_encrypted, *keys)?;
            if opened.layout.end() > place.start {
                return Err(invalid("it points outside of the file's data"));
            }
            (footer, encrypted) = (opened.bytes, Some(opened.layout));
        }
        take(decoded_bytes(&footer).map_err(invalid)?)?;
        let exact_bounds = check_encoded(&footer).map_err(invalid)?;
        let metadata = decode_footer(&footer).map_err(|reason| invalid(&reason))?;
        check_decoded(&metadata, place.start).map_err(invalid)?;
        let metadata = Arc::new(metadata);
        let (for_reader, annotated) =
            metadata_for_reader(&metadata, &footer).map_err(|reason| invalid(&reason))?;
        let digest = hasher.finish();
        Ok(ReadFooter { metadata, for_reader, annotated, exact_bounds, digest, encrypted, share })
    }

    fn lock(&self) -> MutexGuard<'_, KeptFooters> {
        lock(&self.footers)
    }
}

impl KeptFooters {
    /// The footer of a path, if its file is the same; this counts as a use.
    fn get(&mut self, path: &Path, identity: FileIdentity) -> Option<Arc<FileFooter>> {
        let of_path = self.by_path.get_mut(path.as_os_str())?;
        let kept = of_path.iter_mut().find(|kept| kept.footer.identity == identity)?;
        self.clock += 1;
        if let Some(key) = self.by_use.remove(&kept.last_use) {
            self.by_use.insert(self.clock, key);
        }
        kept.last_use = self.clock;
        Some(kept.footer.clone())
    }

    /// Keeps a footer in place of what its path had.
    fn insert(&mut self, footer: &Arc<FileFooter>) {
        let key = (footer.path.clone().into_os_string(), footer.identity.keys);
        self.remove(&key);
        self.clock += 1;
        self.held_bytes += footer.share.bytes();
        self.by_use.insert(self.clock, key.clone());
        let kept = KeptFooter { footer: footer.clone(), last_use: self.clock };
        self.by_path.entry(key.0).or_default().push(kept);
    }

    fn kept(&self, (path, keys): &FooterKey) -> Option<&KeptFooter> {
        self.by_path.get(path)?.iter().find(|kept| kept.footer.identity.keys == *keys)
    }

    fn remove(&mut self, (path, keys): &FooterKey) -> Option<Arc<FileFooter>> {
        let of_path = self.by_path.get_mut(path)?;
        let place = of_path.iter().position(|kept| kept.footer.identity.keys == *keys)?;
        let kept = of_path.swap_remove(place);
        if of_path.is_empty() {
            self.by_path.remove(path);
        }
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
        if let Some(newest) = self.by_use.last_key_value().map(|(_, key)| key.clone())
            && self.kept(&newest).is_some_and(|kept| kept.footer.share.bytes() > bytes_max)
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

    /// Whether another file has the same columns, names and types, and any request may read all of both. Where it can't be said at
    /// once, the answer is no.
    pub fn has_columns_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.schema, &other.schema) && self.encrypted.is_none() && other.encrypted.is_none()
    }

    /// Whether the file, or a column of it, is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted.is_some()
    }

    /// The leaves of a column, given by its place among the file's.
    pub fn leaves(&self, column: usize) -> Range<usize> {
        match self.leaf_starts.get(column..column + 2) {
            Some(&[start, end]) => start..end,
            _ => 0..0,
        }
    }

    /// The type of a leaf of single values, where one can be read.
    pub(super) fn type_of_leaf(&self, leaf: usize) -> Option<&FileType> {
        let of_schema = || {
            let descriptor = self.metadata.file_metadata().schema_descr().column(leaf);
            let file_type = leaf_type(descriptor.self_type());
            (descriptor.max_rep_level() == 0 && file_type.storage.is_some()).then(|| Box::new(file_type))
        };
        self.leaf_types.get(leaf)?.get_or_init(of_schema).as_deref()
    }

    /// The sizes of the chunks of a leaf, by row group.
    pub fn chunk_sizes(&self, leaf: usize) -> &[ChunkSizes] {
        self.leaf_facts.get(leaf).map_or(&[], |facts| facts.sizes(self, leaf))
    }

    /// The bounds of a chunk of a leaf.
    pub(crate) fn chunk_bounds(&self, leaf: usize, row_group: usize) -> Option<ChunkBounds> {
        self.leaf_facts.get(leaf)?.bounds(self, leaf, row_group)
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

    /// The numbers of a row group's rows in the file, from 0 on.
    pub fn row_numbers(&self, row_group: &RowGroupMetaData) -> Range<i64> {
        let is_before = |before: &&RowGroupMetaData| !std::ptr::eq(*before, row_group);
        let before = self.metadata.row_groups().iter().take_while(is_before);
        let first = before.fold(0_i64, |sum, before| sum.saturating_add(before.num_rows()));
        first..first.saturating_add(row_group.num_rows())
    }

    /// All rows.
    pub fn row_count(&self) -> usize {
        self.metadata().row_groups().iter().map(|group| usize::try_from(group.num_rows()).unwrap_or(0)).sum()
    }

    /// The Parquet type of a field in words, for messages: `INT64 Decimal(15,2)`.
    pub fn field_words(&self, place: FieldPlace) -> String {
        self.parquet_field(place).map_or_else(|| "unknown".to_owned(), |field| file_type(field).words)
    }

    /// The types of a field's leaves, in their order.
    pub fn leaf_types(&self, place: FieldPlace) -> Vec<FileType> {
        let schema = self.metadata().file_metadata().schema_descr();
        self.leaves_of(place).map(|leaf| leaf_type(schema.column(leaf).self_type())).collect()
    }

    /// The stored numbers that a field's annotation allows; `None` where it allows all.
    pub fn allowed(&self, place: FieldPlace) -> Option<RangeInclusive<i128>> {
        self.parquet_field(place).and_then(|field| file_type(field).allowed)
    }

    /// How the file is encrypted, if it is.
    pub(crate) fn encrypted_layout(&self) -> Option<&EncryptedLayout> {
        self.encrypted.as_ref()
    }

    /// Whether a leaf is encrypted with a key that the request does not have.
    pub fn is_locked(&self, leaf: usize) -> bool {
        self.encrypted.as_ref().is_some_and(|layout| layout.is_locked(leaf))
    }

    /// Checks that the request has the keys for all of a field.
    ///
    /// # Errors
    ///
    /// `FilePermission` if it lacks one, `FileCorrupt` if it has a wrong one, naming file and column.
    pub(crate) fn check_unlocked(&self, place: FieldPlace) -> Result<()> {
        let Some(layout) = &self.encrypted else { return Ok(()) };
        match self.leaves_of(place).into_iter().find_map(|leaf| layout.refusal(&self.path, leaf)) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
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
    /// The field that a scan reads as a column: as the log of its table says, or the file alone.
    pub(crate) fn field_of(&self, column: &ScanColumn) -> Option<FieldPlace> {
        self.footer.field_below(self.whole_field_of(column)?, &column.within)
    }

    fn whole_field_of(&self, column: &ScanColumn) -> Option<FieldPlace> {
        match &self.of_table {
            Some(of_table) => of_table.find_field(&self.footer, &column.name),
            None => self.footer.field_of(column),
        }
    }

    /// Whether a column is a field of a struct, and the file has something else than a struct on the way to it.
    pub(crate) fn lacks_struct(&self, column: &ScanColumn, place: FieldPlace) -> bool {
        let is_list = matches!(column.data_type, PlanType::List(_));
        let is_null = || self.footer.parquet_field(place).is_some_and(|field| is_null_type(field));
        let whole = self.whole_field_of(column);
        !is_list && whole.is_some_and(|whole| !place.is_below(whole, column.within.len())) && !is_null()
    }

    /// Rows that the table has of the file.
    pub fn row_count(&self) -> usize {
        let deleted = self.deleted.as_ref().map_or(0, |deleted| deleted.count() as usize);
        self.footer.row_count().saturating_sub(deleted)
    }

    /// The rows that the table has of some rows of a row group, in ranges: sorted, disjoint and not empty. `None` if it has all
    /// of them.
    pub fn kept_rows(&self, row_group: usize, rows: Range<u64>) -> Option<Vec<Range<u64>>> {
        let deleted = self.deleted.as_ref()?;
        let row_group = self.footer.metadata().row_groups().get(row_group)?;
        let first = u64::try_from(self.footer.row_numbers(row_group).start).ok()?;
        let in_file = first.checked_add(rows.start)?..first.checked_add(rows.end)?;
        if deleted.count_within(in_file.clone()) == 0 {
            return None;
        }
        let kept = deleted.kept(in_file).into_iter();
        Some(kept.map(|kept| kept.start - first..kept.end - first).collect())
    }

    /// The open file, which has the footer's identity. Of an encrypted one, its plain bytes where they were fetched.
    ///
    /// # Errors
    ///
    /// `FileAccess` if it has changed since its footer was read; those of opening it.
    pub fn handle(&self) -> Result<FileHandle> {
        match &self.decrypted {
            Some(decrypted) => decrypted.handle(&self.footer),
            None => self.stored_handle().map(FileHandle::stored),
        }
    }

    /// The open file with its bytes as they are stored.
    ///
    /// # Errors
    ///
    /// As of [`Self::handle`].
    pub(crate) fn stored_handle(&self) -> Result<Arc<File>> {
        if let Some(kept) = &self.handle {
            self.check_stored(&kept.file)?;
            return Ok(kept.file.clone());
        }
        if let Some(fetcher) = &self.fetcher {
            return fetcher.handle().map(Arc::new);
        }
        let (file, identity) = open_file(&self.footer.path)?;
        if !identity.is_same_content(&self.footer.identity) {
            return Err(self.footer.changed());
        }
        Ok(Arc::new(file))
    }

    /// The device number of the file system that its bytes are read from.
    ///
    /// # Errors
    ///
    /// Those of [`TableFile::handle`].
    pub fn device(&self) -> Result<u64> {
        match self.footer.identity.version {
            FileVersion::Local { device, .. } => Ok(device),
            FileVersion::Object(_) => {
                let metadata = self.handle()?.metadata();
                metadata
                    .map(|metadata| metadata.dev())
                    .map_err(|error| from_io(&self.footer.path, "read", &error))
            }
        }
    }

    /// Whether the file's content is still what the footer describes.
    ///
    /// # Errors
    ///
    /// `FileAccess` if not.
    pub fn check_unchanged(&self, handle: &File) -> Result<()> {
        // Plain bytes were checked when they were decrypted.
        if self.decrypted.is_some() { Ok(()) } else { self.check_stored(handle) }
    }

    /// The same by a handle of the file as it is stored.
    ///
    /// # Errors
    ///
    /// `FileAccess` if not.
    pub(crate) fn check_stored(&self, handle: &File) -> Result<()> {
        if self.fetcher.is_some() {
            // Its bytes were those of this version when they came.
            return Ok(());
        }
        let metadata = handle.metadata().map_err(|error| from_io(&self.footer.path, "read", &error))?;
        match FileIdentity::of(&metadata).is_same_content(&self.footer.identity) {
            true => Ok(()),
            false => Err(self.footer.changed()),
        }
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

    /// Makes ranges of the file readable from its handle, for as long as the pin lives: each one's first byte, and how many they are.
    /// Of a local file they always are, unless it is encrypted: then the whole column chunk that a range begins in is decrypted. Blocks.
    ///
    /// # Errors
    ///
    /// `FileAccess` if an object has another version by now, or its store fails; `FilePermission`, `FileNotFound`, `Cancelled`;
    /// `FileCorrupt` and `OutOfMemory` of encrypted files.
    pub fn fetch(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<Pin> {
        match &self.decrypted {
            Some(decrypted) => Ok(Pin { _decrypted: Some(decrypted.fetch(self, ranges)?), ..Pin::default() }),
            None => self.fetch_ahead(ranges),
        }
    }

    /// The same for bytes as they are stored.
    ///
    /// # Errors
    ///
    /// As of [`Self::fetch`].
    pub(crate) fn fetch_stored(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<ObjectPin> {
        self.fetcher.as_ref().map_or_else(|| Ok(ObjectPin::default()), |fetcher| fetcher.fetch(ranges))
    }

    /// Makes ranges of an object present that [`Self::fetch`] will want. An encrypted one is not decrypted for it. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::fetch`].
    pub fn fetch_ahead(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<Pin> {
        Ok(Pin { _object: self.fetch_stored(ranges)?, ..Pin::default() })
    }

    /// Whether its bytes are decrypted by the host.
    pub fn is_decrypted(&self) -> bool {
        self.decrypted.is_some()
    }

    /// Whether its bytes come from a store.
    pub fn is_in_store(&self) -> bool {
        self.fetcher.is_some()
    }

    /// Reads a range of the file. Blocks.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if the file ends before the range does, `FileAccess`.
    pub fn read_range(&self, handle: &File, offset: u64, range_bytes: usize) -> Result<Bytes> {
        self.check_range(offset, range_bytes as u64)?;
        let _pin = self.fetch([(offset, range_bytes as u64)])?;
        let mut buffer = Vec::with_capacity(range_bytes);
        while buffer.len() < range_bytes {
            let place = offset + buffer.len() as u64;
            match rustix::io::retry_on_intr(|| pread(handle, spare_capacity(&mut buffer), place)) {
                Ok(0) => {
                    return Err(from_io(&self.footer.path, "read", &io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(_) => {}
                Err(error) => return Err(from_io(&self.footer.path, "read", &error.into())),
            }
        }
        // There may be room for more.
        buffer.truncate(range_bytes);
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
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let version = FileVersion::Local { device: metadata.dev(), inode: metadata.ino(), modified_ns };
        Self { version, file_bytes: metadata.size(), keys: KeyDigest::default() }
    }

    /// A word of it that tells most files apart, for tables in which a query looks up many keys.
    pub fn word(&self) -> u64 {
        match self.version {
            FileVersion::Local { inode, modified_ns, .. } => inode.rotate_left(32) ^ modified_ns as u64,
            FileVersion::Object(digest) => (u128::from_ne_bytes(digest) >> 64) as u64,
        }
    }

    /// Whether the bytes of both are the same, with whatever keys they are read.
    pub fn is_same_content(&self, other: &Self) -> bool {
        (self.version, self.file_bytes) == (other.version, other.file_bytes)
    }

    /// That of an object of a store, by a digest of what tells it apart.
    pub(crate) fn of_object(digest: [u8; 16], file_bytes: u64) -> Self {
        Self { version: FileVersion::Object(digest), file_bytes, keys: KeyDigest::default() }
    }

    /// A name for the local file of an object.
    pub(crate) fn name(&self) -> String {
        match self.version {
            FileVersion::Object(digest) => digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            FileVersion::Local { device, inode, .. } => format!("{device:x}-{inode:x}"),
        }
    }
}

/// Opens a regular file.
pub(super) fn open_file(path: &Path) -> Result<(File, FileIdentity)> {
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

/// A file whose footer is read.
struct FooterSource<'a> {
    path: &'a Path,
    handle: &'a File,
    fetcher: Option<&'a Fetcher>,
    /// What the request may open it with, if it is encrypted.
    keys: Option<&'a RoleKeys>,
}

/// Where a footer is, and whether it is encrypted.
struct FooterPlace {
    place: Range<u64>,
    is_encrypted: bool,
}

/// Where a file's encoded footer is. Of an object only the end is looked at.
fn footer_place(source: &FooterSource<'_>, file_bytes: u64) -> Result<FooterPlace> {
    let FooterSource { path, handle, fetcher, .. } = source;
    let corrupt = |reason: &str| corrupt_file(path, reason);
    if file_bytes == 0 {
        return Err(corrupt("the file is empty"));
    }
    if file_bytes < 12 {
        return Err(corrupt("the file is too short to be Parquet"));
    }
    let mut magic = [None, Some([0; 4])];
    if fetcher.is_none() {
        magic[0] = Some([0; 4]);
    }
    for (magic, offset) in magic.iter_mut().zip([0, file_bytes - 4]) {
        if let Some(magic) = magic {
            handle.read_exact_at(magic, offset).map_err(|error| from_io(path, "read", &error))?;
        }
    }
    let [first, last] = magic;
    let last = last.unwrap_or_default();
    let is_encrypted = match (first.unwrap_or(last), last) {
        ([b'P', b'A', b'R', b'E'], [b'P', b'A', b'R', b'E']) => true,
        ([b'P', b'A', b'R', b'1'], [b'P', b'A', b'R', b'1']) => false,
        ([b'P', b'A', b'R', b'1'], [b'P', b'A', b'R', b'E']) => {
            return Err(corrupt("it begins as a plain file, and ends as an encrypted one"));
        }
        ([b'P', b'A', b'R', b'1' | b'E'], _) => {
            return Err(corrupt("the file is truncated: the footer at its end is missing"));
        }
        _ => return Err(corrupt("the file is not Parquet: it does not start with \"PAR1\"")),
    };
    let mut length = [0; 4];
    handle.read_exact_at(&mut length, file_bytes - 8).map_err(|error| from_io(path, "read", &error))?;
    let footer_bytes = u64::from(u32::from_le_bytes(length));
    let Some(footer_start) = (file_bytes - 8).checked_sub(footer_bytes).filter(|start| *start >= 4) else {
        return Err(corrupt(&format!(
            "the footer is corrupt: it is said to have {footer_bytes} bytes, and the file has {file_bytes}"
        )));
    };
    Ok(FooterPlace { place: footer_start..footer_start + footer_bytes, is_encrypted })
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
    let plain = parquet_to_arrow_schema(leaves, None)?;
    let mut types = leaves.columns().iter().map(|leaf| leaf.physical_type());
    let fields = plain.fields().iter().map(|field| with_decoded_type(field, &mut types));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>())))
}

/// A field as it is decoded. `types`: of the leaves from its first one on, of which its own are taken.
fn with_decoded_type(field: &FieldRef, types: &mut impl Iterator<Item = PhysicalType>) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::List(item) => DataType::List(with_decoded_type(item, types)),
        DataType::Map(entries, is_sorted) => DataType::Map(with_decoded_type(entries, types), *is_sorted),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| with_decoded_type(field, types)).collect())
        }
        leaf => {
            let is_int96 = types.next() == Some(PhysicalType::INT96);
            match leaf {
                DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
                DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
                DataType::Timestamp(_, zone) if is_int96 => {
                    DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
                }
                _ => return field.clone(),
            }
        }
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
        FileSet::parquet(vec![path.display().to_string()])
    }

    fn open(catalog: &FileCatalog, files: &FileSet) -> Arc<FileFooter> {
        catalog.open_all(files).unwrap().remove(0).footer
    }

    /// What is kept, by last use.
    fn kept(catalog: &FileCatalog) -> Vec<FileIdentity> {
        let footers = catalog.lock();
        assert_eq!(footers.by_use.len(), footers.by_path.values().map(Vec::len).sum::<usize>());
        footers.by_use.values().map(|key| footers.kept(key).unwrap().footer.identity).collect()
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
