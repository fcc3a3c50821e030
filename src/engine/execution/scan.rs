//! Scans: row groups of Parquet files, read, decoded and filtered by the query's readers.
//!
//! A row group's column chunks come from the device's cache, or are read into page-locked memory, copied and
//! decompressed. Then they are decoded and filtered in one go. While joins above have not said what they can match,
//! column chunks are loaded ahead and nothing is decoded. A chunk belongs to the query's queue when it is handed over.
//!
//! Invariants: chunks come in the order of files and row groups, and have some row groups each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use parquet::file::metadata::RowGroupMetaData;
use pystachio_plan::{DataType, Error, ErrorKind, Expression, FileSet, Result, ScanColumn, StoragePath};

use super::{
    Columns, QueryContext, Source,
    chunk_cache::{ChunkCache, ChunkKey, ChunkOrigin, Claim, LoadClaim},
    filter_route::FilterRoute,
    readers::{ReadParts, ScanNumber},
    scan_filter::ScanFilter,
};
use crate::{
    StopFlag,
    decode::{
        ChunkReads, ColumnSource, EncodedBytes, PendingRowGroup, ResidentChunk, UploadedChunk, check_column,
        chunk_range, is_decompressed_by_host, load_chunks,
    },
    device::{CellType, Chunk},
    operation::Queue,
    program::Filter,
    storage::{
        FileReader, FileSystems, FileWay, RowGroupBounds, TableFile, is_in_page_cache, memory_available,
        refutes,
    },
};

/// Rows that a chunk has at least, where a table has them: what an operator costs a chunk, whatever its size,
/// is then small against what it costs a row.
const CHUNK_ROWS_MIN: usize = 4 << 20;
/// Chunks that every reader has at least, where a table has them.
const CHUNKS_PER_READER: usize = 2;

/// A scan of this part of the device's cache is taken to stay there; pages are larger decompressed.
const CACHE_PART_OF_SCAN: u64 = 2;

/// The row groups of a table, some of them a chunk.
pub(super) struct ScanSource {
    work: Arc<ScanWork>,
    number: ScanNumber,
}

/// Where a scan stands among the operators of its query.
pub(super) struct ScanPlace {
    /// In [`pystachio_plan::QueryMetrics::operators`].
    pub(super) operator: usize,
    /// In the order in which the query wants its scans.
    pub(super) rank: usize,
    /// What joins above will know of its rows.
    pub(super) route: FilterRoute,
}

/// Column chunks of a part's row groups that were loaded ahead, by the row group's place in the part.
#[derive(Debug, Default)]
pub(super) struct LoadedPart(BTreeMap<usize, Vec<Arc<ResidentChunk>>>);

/// What readers share.
struct ScanWork {
    table: String,
    columns: Vec<ScanColumn>,
    filter: ScanFilter,
    parts: Vec<Vec<RowGroup>>,
    /// Absent if the query does without it.
    cache: Option<ChunkCache>,
    file_systems: Arc<FileSystems>,
    /// How files are to be read, and how they are where the user leaves it open and there is no GPUDirect.
    storage_path: StoragePath,
    own_path: StoragePath,
    /// Whether what the page cache does not hold is read past it: the device's cache keeps it, and storage is read
    /// faster so.
    avoids_page_cache: bool,
    /// The ways in which files were read.
    paths_taken: Mutex<BTreeSet<StoragePath>>,
    query: u64,
    operator: usize,
    stop: StopFlag,
    counts: ScanCounts,
}

/// What readers have counted since the query last looked.
#[derive(Default)]
struct ScanCounts {
    bytes_read: AtomicU64,
    bytes_cached: AtomicU64,
    bytes_pinned: AtomicU64,
    bytes_decoded: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
}

/// A row group of a file.
#[derive(Clone)]
struct RowGroup {
    file: Arc<ScanFile>,
    index: usize,
    row_count: usize,
    /// About what decoding it takes on the device.
    bytes: u64,
}

impl RowGroup {
    /// Bytes of the columns that are read.
    fn encoded_bytes(&self) -> u64 {
        let metadata = self.file.file.footer.metadata().row_group(self.index);
        let chunks = self.file.leaves.iter().map(|leaf| metadata.column(*leaf));
        chunks.map(|chunk| u64::try_from(chunk.compressed_size()).unwrap_or(0)).sum()
    }
}

/// A file and where the columns that are read are in it.
struct ScanFile {
    file: TableFile,
    leaves: Vec<usize>,
    /// How it is read, once a reader has wanted it.
    way: OnceLock<Result<FileWay>>,
}

impl ScanSource {
    /// Opens the files, matches their columns and rules out row groups by statistics.
    ///
    /// # Errors
    ///
    /// Those of the files; `NotSupported` for columns that no kernel decodes.
    pub(super) fn open(
        table: &str,
        files: &FileSet,
        columns: &[ScanColumn],
        filters: &[Expression],
        place: ScanPlace,
        context: &mut QueryContext,
    ) -> Result<Self> {
        let mut row_groups = Vec::new();
        for file in context.catalog.open_all(files)? {
            let leaves = columns.iter().map(|column| leaf_of(table, &file, column)).collect::<Result<_>>()?;
            let file = Arc::new(ScanFile { file, leaves, way: OnceLock::new() });
            let count = file.file.footer.metadata().num_row_groups();
            context.metrics.files_total += 1;
            context.metrics.row_groups_total += count as u64;
            let before = row_groups.len();
            for index in 0..count {
                let row_group = file.file.footer.metadata().row_group(index);
                let bounds = RowGroupBounds::new(&file.file.footer, row_group, columns, &file.leaves);
                if refutes(filters, &bounds, &context.parameters) {
                    context.metrics.row_groups_pruned += 1;
                } else if row_group.num_rows() > 0 {
                    let row_count = usize::try_from(row_group.num_rows()).unwrap_or(usize::MAX);
                    let bytes = decoding_bytes(row_group, columns, &file.leaves)?;
                    row_groups.push(RowGroup { file: file.clone(), index, row_count, bytes });
                }
            }
            if row_groups.len() == before && count > 0 {
                context.metrics.files_pruned += 1;
            }
        }
        let known: Columns = columns.iter().map(|column| (column.id, column.data_type.clone())).collect();
        check_types(&known)?;
        let condition = match Expression::all_of(filters.to_vec()) {
            None => None,
            Some(condition) => Some(Filter::compile(&condition, &known, &context.parameters)?),
        };
        let row_count: usize = row_groups.iter().map(|row_group| row_group.row_count).sum();
        let runtime = place.route.arrive(columns, row_count as u64, &mut context.reduced);
        let bytes_to_read: u64 = row_groups.iter().map(RowGroup::encoded_bytes).sum();
        let reader_count = context.queue.memory().platform().reader_count();
        let part_size = match context.settings.chunking {
            true => PartSize {
                rows_min: CHUNK_ROWS_MIN,
                bytes_max: context.memory.ahead_bytes() / (reader_count * CHUNKS_PER_READER) as u64,
                count_min: reader_count * CHUNKS_PER_READER,
            },
            false => PartSize { rows_min: usize::MAX, bytes_max: u64::MAX, count_min: 1 },
        };
        let work = Arc::new(ScanWork {
            table: table.to_owned(),
            columns: columns.to_vec(),
            filter: ScanFilter::new(condition, runtime),
            parts: parts(row_groups, part_size),
            cache: context.settings.cache.then(|| context.cache.clone()),
            file_systems: context.file_systems.clone(),
            storage_path: context.settings.storage,
            own_path: context.settings.storage.resolve(bytes_to_read, memory_available()),
            avoids_page_cache: context.settings.storage == StoragePath::Auto
                && context.settings.cache
                && bytes_to_read <= context.cache.bytes().1 / CACHE_PART_OF_SCAN,
            paths_taken: Mutex::default(),
            query: context.number,
            operator: place.operator,
            stop: context.stop.clone(),
            counts: ScanCounts::default(),
        });
        let number = context.readers.add(work.clone(), place.rank);
        Ok(Self { work, number })
    }
}

impl Source for ScanSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        context.hear_faults()?;
        let chunk = context.readers.next_part(self.number)?;
        let (counts, metrics) = (&self.work.counts, &mut context.metrics);
        let bytes_read = counts.bytes_read.swap(0, Ordering::Relaxed);
        let paths = std::mem::take(&mut *self.work.paths_taken());
        paths.into_iter().for_each(|path| metrics.add_storage_path(path));
        metrics.bytes_read += bytes_read;
        if let Some(operator) = metrics.operators.get_mut(self.work.operator) {
            operator.count("bytes_read", bytes_read);
            operator.count("bytes_cached", counts.bytes_cached.swap(0, Ordering::Relaxed));
            operator.count("bytes_pinned", counts.bytes_pinned.swap(0, Ordering::Relaxed));
            operator.count("bytes_decoded", counts.bytes_decoded.swap(0, Ordering::Relaxed));
            self.work.filter.show(operator);
        }
        metrics.cache_hits += counts.cache_hits.swap(0, Ordering::Relaxed);
        metrics.cache_misses += counts.cache_misses.swap(0, Ordering::Relaxed);
        match &chunk {
            Some(chunk) => chunk.adopt(context.queue.stream()),
            None => context.readers.finish(self.number),
        }
        Ok(chunk)
    }
}

/// How large parts are made.
#[derive(Clone, Copy, Debug)]
struct PartSize {
    /// Rows of a part at least, where there are enough row groups.
    rows_min: usize,
    /// Bytes of a part at most, where it has several row groups.
    bytes_max: u64,
    /// Parts at least, where there are as many row groups.
    count_min: usize,
}

/// About what decoding a row group takes on the device: its bytes, compressed and not, and twice its cells.
fn decoding_bytes(row_group: &RowGroupMetaData, columns: &[ScanColumn], leaves: &[usize]) -> Result<u64> {
    let rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
    let mut bytes = 0u64;
    for (column, leaf) in columns.iter().zip(leaves) {
        let chunk = row_group.column(*leaf);
        let encoded = chunk.compressed_size().max(0) as u64 + chunk.uncompressed_size().max(0) as u64;
        let cell_bytes = u64::from(CellType::of(&column.data_type)?.bytes()) + 1;
        bytes = bytes.saturating_add(encoded).saturating_add(2 * rows * cell_bytes);
    }
    Ok(bytes)
}

/// Row groups in parts that become a chunk each: large enough, small enough for what may be decoded ahead, and
/// enough of them to keep all readers busy.
fn parts(row_groups: Vec<RowGroup>, size: PartSize) -> Vec<Vec<RowGroup>> {
    let length_max = (row_groups.len() / size.count_min).max(1);
    let mut parts: Vec<Vec<RowGroup>> = Vec::new();
    let (mut row_count, mut bytes) = (0, 0u64);
    for row_group in row_groups {
        let is_full = row_count >= size.rows_min
            || parts.last().is_none_or(|part| part.len() >= length_max)
            || bytes.saturating_add(row_group.bytes) > size.bytes_max;
        row_count = if is_full { row_group.row_count } else { row_count + row_group.row_count };
        bytes = if is_full { row_group.bytes } else { bytes + row_group.bytes };
        match parts.last_mut() {
            Some(part) if !is_full => part.push(row_group),
            _ => parts.push(vec![row_group]),
        }
    }
    parts
}

impl ReadParts for ScanWork {
    fn part_count(&self) -> usize {
        self.parts.len()
    }

    fn part_bytes(&self, part: usize) -> u64 {
        let row_groups = self.parts.get(part).map_or(&[][..], Vec::as_slice);
        row_groups.iter().map(|row_group| row_group.bytes).sum()
    }

    fn is_ready(&self) -> bool {
        self.filter.is_settled()
    }

    fn load_part(&self, part: usize, queue: &Queue) -> Result<LoadedPart> {
        queue.memory().attribute(self.operator as u32);
        let mut loaded = BTreeMap::new();
        for (place, row_group) in self.row_groups(part)?.iter().enumerate() {
            if !self.is_refuted(row_group) {
                let sources = self.sources(row_group);
                loaded.insert(place, self.load(queue, row_group, &sources)?);
            }
        }
        Ok(LoadedPart(loaded))
    }

    fn read_part(&self, part: usize, loaded: Option<LoadedPart>, queue: &Queue) -> Result<Chunk> {
        queue.memory().attribute(self.operator as u32);
        let mut loaded = loaded.unwrap_or_default();
        let mut chunks = Vec::new();
        for (place, row_group) in self.row_groups(part)?.iter().enumerate() {
            if self.is_refuted(row_group) {
                self.filter.note_pruned();
            } else {
                chunks.push(self.read(queue, row_group, loaded.0.remove(&place))?);
            }
        }
        if chunks.is_empty() {
            let types: Vec<DataType> = self.columns.iter().map(|column| column.data_type.clone()).collect();
            return queue.empty(&types);
        }
        let chunk = queue.concat(&chunks)?;
        queue.wait()?;
        Ok(chunk)
    }
}

impl ScanWork {
    fn paths_taken(&self) -> MutexGuard<'_, BTreeSet<StoragePath>> {
        self.paths_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row_groups(&self, part: usize) -> Result<&[RowGroup]> {
        self.parts.get(part).map(Vec::as_slice).ok_or_else(|| Error::internal("a part that is not there"))
    }

    /// Whether joins above say that they match no row of a row group.
    fn is_refuted(&self, row_group: &RowGroup) -> bool {
        if !self.filter.may_prune() {
            return false;
        }
        let ScanFile { file, leaves, .. } = &*row_group.file;
        let metadata = file.footer.metadata().row_group(row_group.index);
        self.filter.refutes(&RowGroupBounds::new(&file.footer, metadata, &self.columns, leaves))
    }

    /// The columns of a row group in its file.
    fn sources<'a>(&'a self, row_group: &'a RowGroup) -> Vec<ColumnSource<'a>> {
        let footer = &row_group.file.file.footer;
        let metadata = footer.metadata().row_group(row_group.index);
        let columns = self.columns.iter().zip(&row_group.file.leaves);
        let source = |(column, leaf): (&'a ScanColumn, &usize)| ColumnSource {
            metadata: metadata.column(*leaf),
            column,
            table: &self.table,
            path: &footer.path,
        };
        columns.map(source).collect()
    }

    /// The rows of a row group that meet the filter. `loaded`: its column chunks, if they were loaded ahead.
    fn read(
        &self,
        queue: &Queue,
        row_group: &RowGroup,
        loaded: Option<Vec<Arc<ResidentChunk>>>,
    ) -> Result<Chunk> {
        if self.stop.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        let sources = self.sources(row_group);
        let resident = match loaded {
            Some(loaded) => loaded,
            None => self.load(queue, row_group, &sources)?,
        };
        // They may come from another reader.
        resident.iter().flat_map(|chunk| chunk.buffers()).for_each(|buffer| buffer.adopt(queue.stream()));
        let requests: Vec<_> = sources.iter().zip(&resident).map(|(s, chunk)| (s, chunk.as_ref())).collect();
        let decoded = PendingRowGroup::start(queue.memory(), &requests, row_group.row_count, queue.stream())?;
        let chunk = Chunk { row_count: row_group.row_count, columns: decoded.wait_columns()? };
        self.counts.bytes_decoded.fetch_add(chunk.cell_bytes(), Ordering::Relaxed);
        self.filter.apply(queue, chunk)
    }

    /// The column chunks of a row group on the device, from the cache or from the file.
    fn load(
        &self,
        queue: &Queue,
        row_group: &RowGroup,
        sources: &[ColumnSource<'_>],
    ) -> Result<Vec<Arc<ResidentChunk>>> {
        let row_count =
            u32::try_from(row_group.row_count).ok().filter(|rows| *rows < u32::MAX).ok_or_else(|| {
                Error::new(ErrorKind::NotSupported, "a row group has more rows than a chunk may have")
            })?;
        let mut chunks: Vec<Option<Arc<ResidentChunk>>> = vec![None; sources.len()];
        // A chunk may be wanted twice, as two columns: whoever is not first waits for the first.
        while chunks.iter().any(Option::is_none) {
            let mut claims = Vec::new();
            let mut elsewhere = None;
            for (place, chunk) in chunks.iter_mut().enumerate().filter(|(_, chunk)| chunk.is_none()) {
                let key = self.key(row_group, place);
                match self.cache.as_ref().map(|cache| cache.claim(key, self.query)) {
                    Some(Claim::Held(held)) => {
                        self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
                        self.counts.bytes_cached.fetch_add(held.bytes(), Ordering::Relaxed);
                        *chunk = Some(held);
                    }
                    Some(Claim::Mine(claim)) => claims.push((place, Some(claim))),
                    Some(Claim::Busy) => elsewhere = Some(key),
                    None => claims.push((place, None)),
                }
            }
            if claims.is_empty() {
                if let (Some(cache), Some(key)) = (&self.cache, &elsewhere) {
                    cache.wait_loaded(key);
                }
                if self.stop.is_stopped() {
                    return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
                }
                continue;
            }
            let is_pinned =
                |claim: &Option<LoadClaim>| claim.as_ref().is_some_and(|claim| claim.pinned().is_some());
            let (pinned, read): (Vec<_>, Vec<_>) =
                claims.into_iter().partition(|(_, claim)| is_pinned(claim));
            let fetched = self.fetch_chunks(queue, &pinned)?;
            let places: Vec<usize> = read.iter().map(|(place, _)| *place).collect();
            let loaded = match places.is_empty() {
                true => Vec::new(),
                false => self.read_chunks(queue, row_group, sources, &places, row_count)?,
            };
            for ((place, claim), loaded) in
                pinned.into_iter().zip(fetched).chain(read.into_iter().zip(loaded))
            {
                if let Some(claim) = claim {
                    let column = sources[place].metadata.column_path().string();
                    let origin = ChunkOrigin { path: sources[place].path.to_owned(), column };
                    claim.publish(&loaded, origin, self.query, queue.stream());
                }
                chunks[place] = Some(loaded);
            }
        }
        Ok(chunks.into_iter().flatten().collect())
    }

    fn key(&self, row_group: &RowGroup, place: usize) -> ChunkKey {
        let leaf = row_group.file.leaves.get(place).copied().unwrap_or(usize::MAX);
        ChunkKey { file: row_group.file.file.footer.identity, row_group: row_group.index, leaf }
    }

    /// Copies chunks that are on the host; they are on the device when this returns.
    fn fetch_chunks(
        &self,
        queue: &Queue,
        claims: &[(usize, Option<LoadClaim>)],
    ) -> Result<Vec<Arc<ResidentChunk>>> {
        let pinned = claims.iter().filter_map(|(_, claim)| claim.as_ref()?.pinned());
        let fetched: Result<Vec<_>> = pinned
            .map(|pinned| {
                let chunk = pinned.to_device(queue.memory(), queue.stream())?;
                self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
                self.counts.bytes_pinned.fetch_add(chunk.bytes(), Ordering::Relaxed);
                Ok(Arc::new(chunk))
            })
            .collect();
        // What is on the host may be given up from now on, also where a copy could not be enqueued.
        if !claims.is_empty() {
            queue.wait()?;
        }
        fetched
    }

    /// Reads some columns of a row group from its file; they are on the device when this returns.
    fn read_chunks(
        &self,
        queue: &Queue,
        row_group: &RowGroup,
        sources: &[ColumnSource<'_>],
        places: &[usize],
        row_count: u32,
    ) -> Result<Vec<Arc<ResidentChunk>>> {
        let file = &row_group.file.file;
        let way =
            row_group.file.way.get_or_init(|| self.file_systems.open(file, self.storage_path, self.own_path));
        let FileWay { path, device_file } = way.as_ref().map_err(Clone::clone)?;
        let ranges = || places.iter().filter_map(|place| chunk_range(sources[*place].metadata));
        let mut reader = FileReader::open(file, *path)?;
        if *path == StoragePath::PageCache
            && self.avoids_page_cache
            && !ranges().all(|(start, bytes)| is_in_page_cache(reader.handle(), start, bytes))
        {
            // A file system without direct reads is read through the page cache all the same.
            reader =
                FileReader::open(file, StoragePath::Direct).or_else(|_| FileReader::open(file, *path))?;
        }
        self.paths_taken().insert(if device_file.is_some() { *path } else { reader.path() });
        for place in places {
            let is_read_by_host = device_file.is_none() || is_decompressed_by_host(sources[*place].metadata);
            if let Some((start, bytes)) = chunk_range(sources[*place].metadata).filter(|_| is_read_by_host) {
                reader.announce(start, bytes);
            }
        }
        let mut host = Vec::new();
        let mut device = Vec::new();
        for place in places {
            let source = &sources[*place];
            let (start, bytes) = chunk_range(source.metadata).ok_or_else(|| file.footer.changed())?;
            self.counts.bytes_read.fetch_add(bytes, Ordering::Relaxed);
            self.counts.cache_misses.fetch_add(1, Ordering::Relaxed);
            if is_decompressed_by_host(source.metadata) {
                host.push(file.read_range(reader.handle(), start, bytes as usize)?);
                device.push(None);
            } else {
                file.check_range(start, bytes)?;
                let mut parts = reader.parts(start);
                let reads = match device_file {
                    Some(device_file) => ChunkReads::Device(device_file.as_ref(), start),
                    None => ChunkReads::Host(&mut parts),
                };
                let (memory, stream) = (queue.memory(), queue.stream());
                device.push(Some(UploadedChunk::read(memory, source, (bytes, row_count), stream, reads)?));
            }
        }
        file.check_unchanged(reader.handle())?;
        let mut host = host.iter();
        let encoded = places
            .iter()
            .zip(device)
            .map(|(place, uploaded)| {
                let bytes = match uploaded {
                    Some(uploaded) => EncodedBytes::Device(uploaded),
                    None => EncodedBytes::Host(host.next().map_or(&[], |bytes| bytes.as_ref())),
                };
                (&sources[*place], bytes)
            })
            .collect();
        let chunks = load_chunks(queue.memory(), encoded, row_count, queue.stream())?.wait_chunks()?;
        queue.wait()?;
        Ok(chunks)
    }
}

/// The leaf column of a file that a declared column reads: matched exactly first and then without regard
/// to case.
fn leaf_of(table: &str, file: &TableFile, column: &ScanColumn) -> Result<usize> {
    let footer = &file.footer;
    let schema = footer.metadata().file_metadata().schema_descr();
    let roots = schema.root_schema().get_fields();
    let exact = roots.iter().position(|field| field.name() == column.name);
    let root = exact
        .or_else(|| roots.iter().position(|field| field.name().to_lowercase() == column.name.to_lowercase()));
    let Some(root) = root else {
        return Err(Error::new(
            ErrorKind::SchemaMismatch,
            format!(
                "file \"{}\" has no column \"{}\", which foreign table \"{table}\" declares",
                footer.path.display(),
                column.name
            ),
        )
        .with_hint(
            "Drop the column from the foreign table, or name the file's column by the option \"column_name\".",
        ));
    };
    let mut leaves = (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root);
    match (leaves.next(), leaves.next()) {
        (Some(leaf), None) if schema.column(leaf).max_rep_level() == 0 => {
            check_column(&schema.column(leaf), column)?;
            Ok(leaf)
        }
        _ => {
            let message = format!("no kernel decodes column \"{}\": it is nested", column.name);
            Err(Error::new(ErrorKind::NotSupported, message))
        }
    }
}

fn check_types(columns: &[(pystachio_plan::ColumnId, DataType)]) -> Result<()> {
    for (_, data_type) in columns {
        CellType::of(data_type)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::FileCatalog;

    fn lengths(row_counts: &[usize], count_min: usize, bytes_max: u64) -> Vec<usize> {
        let catalog = FileCatalog::default();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../regress/data/t1.parquet");
        let file = catalog.open_all(&FileSet { paths: vec![path.to_owned()] }).unwrap().remove(0);
        let file = Arc::new(ScanFile { file, leaves: Vec::new(), way: OnceLock::new() });
        let row_group = |(index, row_count): (usize, &usize)| RowGroup {
            file: file.clone(),
            index,
            row_count: *row_count,
            bytes: *row_count as u64 * 10,
        };
        let row_groups = row_counts.iter().enumerate().map(row_group).collect();
        let found = parts(row_groups, PartSize { rows_min: CHUNK_ROWS_MIN, bytes_max, count_min });
        let order: Vec<usize> = found.iter().flatten().map(|row_group| row_group.index).collect();
        assert_eq!(order, (0..row_counts.len()).collect::<Vec<_>>());
        found.iter().map(Vec::len).collect()
    }

    #[test]
    fn small_row_groups_share_a_chunk_and_large_ones_have_their_own() {
        assert_eq!(lengths(&[500_000; 40], 4, u64::MAX), [9, 9, 9, 9, 4]);
        assert_eq!(lengths(&[8_000_000; 5], 2, u64::MAX), [1; 5]);
        assert_eq!(lengths(&[500_000; 8], 24, u64::MAX), [1; 8]);
        assert_eq!(lengths(&[500_000; 40], 4, 20_000_000), [4; 10]);
        assert_eq!(lengths(&[500_000; 40], 4, 1), [1; 40]);
        assert_eq!(lengths(&[], 24, u64::MAX), [0; 0]);
    }
}
