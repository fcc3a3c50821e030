//! Loading of a scan's column chunks onto the device: from the cache, from host memory or from
//! files; whole chunks, or only the pages with wanted rows.
//!
//! Where several ranks share a row group, "a whole chunk" means the pages with rows of this rank.
//!
//! Invariants: the cache holds whole chunks only. If one reader loads a chunk, the others wait for
//! it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

use bytes::Bytes;
use pystachio_engine::locking::lock_whole;
use pystachio_files::{FileReader, TableFile, chunk_range, page_locations};
use pystachio_plan::{Error, Result, StoragePath};

use super::{
    chunk_cache::{CachedChunk, ChunkClaim, ChunkForm, ChunkKey, ChunkOrigin, LoadClaim},
    parts::RowGroup,
    source::ScanWork,
};
use crate::{
    decode::{
        ChunkExtent, ChunkReads, ChunkUpload, ColumnSource, DerivedChunk, EncodedBytes, HEADER_READ_BYTES,
        PageMap, ResidentChunk, RowSelection, UploadedChunk, is_decompressed_by_host,
    },
    file_systems::FileWay,
    operation::Queue,
};

/// A chunk is read and cached whole if at least one in this many of its rows is wanted. Otherwise
/// only the pages with wanted rows are read.
const CACHED_PART_MIN: usize = 8;

/// Bytes of files that are read before the reader waits for them. Large enough that waits, launches
/// and library calls cost little beside reading; small enough that the host holds few bytes of
/// chunks that it decompresses.
const BATCH_BYTES_MIN: u64 = 32 << 20;

/// Bytes that the host reads of a chunk between two polls of the stop flag.
const HOST_READ_BYTES: usize = 16 << 20;

/// Columns of a row group, and the wanted rows.
pub(super) struct WantedChunks<'a> {
    pub(super) row_group: &'a RowGroup,
    /// Places of the columns among the scan's.
    pub(super) places: &'a [usize],
    /// The same columns, as `decode` describes them.
    pub(super) sources: Vec<ColumnSource<'a>>,
    pub(super) rows: &'a RowSelection,
}

/// One of the wanted chunks.
#[derive(Clone, Copy)]
struct WantedChunk<'a> {
    wanted: &'a WantedChunks<'a>,
    /// The row group's index among the wanted ones.
    row_group: usize,
    /// The column's index among the row group's wanted columns.
    column: usize,
}

impl<'a> WantedChunk<'a> {
    fn source(&self) -> &'a ColumnSource<'a> {
        &self.wanted.sources[self.column]
    }

    fn place(&self) -> usize {
        self.wanted.places[self.column]
    }

    /// The chunk, of a column that has one value in all rows.
    fn derived(&self) -> Option<&'a DerivedChunk> {
        let row_group = self.wanted.row_group;
        row_group.file.derived(row_group.index, self.place())
    }
}

/// Chunks by row group and column; `None` where not loaded yet.
type FoundChunks = Vec<Vec<Option<Arc<ResidentChunk>>>>;

impl ScanWork {
    /// Loads column chunks of row groups, at least the pages with wanted rows. Returns them by row
    /// group, then by column.
    ///
    /// # Errors
    ///
    /// Errors of the files and of decompression; `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn load(
        &self,
        queue: &Queue,
        wanted: &[&WantedChunks<'_>],
    ) -> Result<Vec<Vec<Arc<ResidentChunk>>>> {
        let mut found: FoundChunks =
            wanted.iter().map(|row_group| vec![None; row_group.places.len()]).collect();
        let chunks = wanted.iter().enumerate().flat_map(|(row_group, wanted)| {
            (0..wanted.places.len()).map(move |column| WantedChunk { wanted, row_group, column })
        });
        let (constant, stored): (Vec<_>, Vec<_>) = chunks.partition(|chunk| chunk.derived().is_some());
        load_derived(queue, &constant, &mut found)?;
        let (whole, pages): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|chunk| self.reads_whole(chunk.wanted));
        self.load_whole(queue, whole, &mut found)?;
        self.load_pages(queue, pages, &mut found)?;
        Ok(found.into_iter().map(|chunks| chunks.into_iter().flatten().collect()).collect())
    }

    /// Whether whole chunks are read. A row group that does not fit as a whole is scanned in
    /// pieces.
    fn reads_whole(&self, wanted: &WantedChunks<'_>) -> bool {
        let row_count = wanted.row_group.assigned.len();
        let part_min = if self.cache.is_some() { CACHED_PART_MIN } else { 1 };
        !wanted.row_group.is_piece() && wanted.rows.decoded_count().saturating_mul(part_min) >= row_count
    }

    /// Loads pages of column chunks that are not whole on the device.
    fn load_pages(&self, queue: &Queue, chunks: Vec<WantedChunk<'_>>, found: &mut FoundChunks) -> Result<()> {
        let find = |chunk: &WantedChunk<'_>| {
            let WantedChunks { row_group, rows, .. } = *chunk.wanted;
            let shared = &row_group.file.shared_pages;
            if let Some(pages) = shared.find(row_group.pages_key(chunk.place()), rows) {
                return Some(pages);
            }
            self.held_whole(chunk).or_else(|| self.held(key(chunk)))
        };
        let mut missing = Vec::new();
        for chunk in chunks {
            match find(&chunk) {
                Some(held) => found[chunk.row_group][chunk.column] = Some(held),
                None => missing.push(chunk),
            }
        }
        self.read_chunks(queue, missing, true, |chunk, loaded| {
            let row_group = chunk.wanted.row_group;
            if row_group.is_piece() {
                row_group.file.shared_pages.keep(row_group.pages_key(chunk.place()), &loaded);
            }
            found[chunk.row_group][chunk.column] = Some(loaded);
        })
    }

    /// Finds a chunk on the device.
    fn held(&self, key: ChunkKey) -> Option<Arc<ResidentChunk>> {
        let held = self.cache.as_ref()?.find(key, self.query)?;
        self.count_cached(&held);
        held.pages().cloned()
    }

    /// A query that rank 0 ran alone may have left the chunk with the rows of other ranks.
    fn held_whole(&self, chunk: &WantedChunk<'_>) -> Option<Arc<ResidentChunk>> {
        let row_group = chunk.wanted.row_group;
        if row_group.is_whole() {
            return None;
        }
        self.held(ChunkKey { rows: (0, row_group.row_count), ..key(chunk) })
    }

    pub(super) fn count_cached(&self, chunk: &CachedChunk) {
        self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes_cached.fetch_add(chunk.bytes(), Ordering::Relaxed);
    }

    /// Loads whole column chunks and puts them into the cache.
    fn load_whole(&self, queue: &Queue, chunks: Vec<WantedChunk<'_>>, found: &mut FoundChunks) -> Result<()> {
        let mut missing = chunks;
        // A chunk may be wanted twice, as two columns: the second request waits for the first.
        while !missing.is_empty() {
            let (mut pinned, mut read) = (Vec::new(), Vec::new());
            let mut claims = HashMap::new();
            let mut elsewhere = Vec::new();
            for chunk in missing {
                if let Some(held) = self.held_whole(&chunk) {
                    found[chunk.row_group][chunk.column] = Some(held);
                    continue;
                }
                match self.cache.as_ref().map(|cache| cache.claim(key(&chunk), self.query)) {
                    Some(ChunkClaim::Held(held)) => {
                        self.count_cached(&held);
                        found[chunk.row_group][chunk.column] = Some(pages_of(&held)?);
                    }
                    Some(ChunkClaim::Mine(claim)) if claim.pinned().is_some() => pinned.push((chunk, claim)),
                    Some(ChunkClaim::Mine(claim)) => {
                        claims.insert((chunk.row_group, chunk.column), claim);
                        read.push(chunk);
                    }
                    Some(ChunkClaim::Busy) => elsewhere.push(chunk),
                    None => read.push(chunk),
                }
            }
            if let (true, true, Some(chunk), Some(cache)) =
                (pinned.is_empty(), read.is_empty(), elsewhere.first(), &self.cache)
            {
                cache.wait_loaded(&key(chunk), &self.stop)?;
            }
            let mut publish =
                |chunk: &WantedChunk<'_>, claim: Option<LoadClaim>, loaded: Arc<ResidentChunk>| {
                    if let Some(claim) = claim {
                        let cached = CachedChunk::Pages(loaded.clone());
                        claim.publish(&cached, origin_of(chunk.source()), self.query, queue.stream());
                    }
                    found[chunk.row_group][chunk.column] = Some(loaded);
                };
            let fetched = self.fetch_chunks(queue, pinned.iter().map(|(_, claim)| claim))?;
            for ((chunk, claim), loaded) in pinned.into_iter().zip(fetched) {
                publish(&chunk, Some(claim), pages_of(&loaded)?);
            }
            self.read_chunks(queue, read, false, |chunk, loaded| {
                publish(chunk, claims.remove(&(chunk.row_group, chunk.column)), loaded);
            })?;
            missing = elsewhere;
        }
        Ok(())
    }

    /// Copies chunks from the host. They are on the device when this returns.
    pub(super) fn fetch_chunks<'a>(
        &self,
        queue: &Queue,
        claims: impl Iterator<Item = &'a LoadClaim>,
    ) -> Result<Vec<CachedChunk>> {
        let mut pinned = claims.filter_map(LoadClaim::pinned).peekable();
        if pinned.peek().is_none() {
            return Ok(Vec::new());
        }
        let fetched: Result<Vec<_>> = pinned
            .map(|pinned| {
                let chunk = pinned.to_device(queue.memory(), queue.stream())?;
                self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
                self.counts.bytes_pinned.fetch_add(chunk.bytes(), Ordering::Relaxed);
                Ok(chunk)
            })
            .collect();
        // From here on the host's bytes may be freed, even if a copy could not be enqueued.
        queue.wait()?;
        fetched
    }

    /// Reads chunks from their files, whole or the pages with wanted rows. A chunk is on the device
    /// when `take` gets it.
    fn read_chunks(
        &self,
        queue: &Queue,
        chunks: Vec<WantedChunk<'_>>,
        reads_pages: bool,
        mut take: impl FnMut(&WantedChunk<'_>, Arc<ResidentChunk>),
    ) -> Result<()> {
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        let mut of_row_group = chunks.chunk_by(|one, next| one.row_group == next.row_group).peekable();
        while let Some(chunks) = of_row_group.next() {
            let mut reads = chunks
                .iter()
                .map(|chunk| ChunkRead::plan(*chunk, reads_pages))
                .collect::<Result<Vec<_>>>()?;
            self.read_row_group(queue, &mut reads)?;
            batch_bytes += reads.iter().map(|read| read.extent.bytes()).sum::<u64>();
            batch.extend(reads);
            if batch_bytes < BATCH_BYTES_MIN && of_row_group.peek().is_some() {
                continue;
            }
            batch_bytes = 0;
            let mut batch: Vec<ChunkRead<'_>> = std::mem::take(&mut batch);
            let encoded = batch.iter_mut().map(|ChunkRead { chunk, extent, host, uploaded, .. }| {
                let bytes = match uploaded.take() {
                    Some(uploaded) => EncodedBytes::Device(uploaded),
                    None => EncodedBytes::Host(host, extent),
                };
                (chunk.source(), bytes)
            });
            let loaded = queue.load_chunks(encoded.collect())?.wait_chunks()?;
            queue.wait()?;
            batch.iter().zip(loaded).for_each(|(read, loaded)| take(&read.chunk, loaded));
        }
        Ok(())
    }

    /// Reads chunks of one row group, to the device or to the host.
    fn read_row_group(&self, queue: &Queue, reads: &mut [ChunkRead<'_>]) -> Result<()> {
        let Some(row_group) = reads.first().map(|read| read.chunk.wanted.row_group) else { return Ok(()) };
        let file = &row_group.file.file;
        let way = row_group
            .file
            .way
            .get_or_init(|| self.file_systems.open(file, self.storage_path, self.own_path()));
        let FileWay { path, device_file } = way.as_ref().map_err(Clone::clone)?;
        let mut reader = FileReader::open(file, *path)?;
        let wanted: Vec<_> = reads.iter().flat_map(ChunkRead::ranges).collect();
        reader.fetch(wanted.iter().copied())?;
        if *path == StoragePath::PageCache
            && self.avoids_page_cache
            && !file.is_decrypted()
            && !reads
                .iter()
                .flat_map(ChunkRead::ranges)
                .all(|(start, bytes)| self.file_systems.is_in_page_cache(reader.handle(), start, bytes))
        {
            // If a file system has no direct reads, the page cache serves the read.
            reader =
                FileReader::open(file, StoragePath::Direct).or_else(|_| FileReader::open(file, *path))?;
            reader.fetch(wanted.iter().copied())?;
        }
        self.paths_taken().insert(if device_file.is_some() { *path } else { reader.path() });
        for read in reads.iter_mut() {
            let metadata = read.chunk.source().metadata;
            read.is_for_host =
                is_decompressed_by_host(metadata, queue.memory(), || read.first_page(file, &reader))?;
        }
        // The host decompresses bytes that came through the page cache.
        let is_announced = |read: &&ChunkRead<'_>| match read.is_for_host {
            true => reader.path() == StoragePath::PageCache,
            false => device_file.is_none(),
        };
        let announced: Vec<_> = reads.iter().filter(is_announced).flat_map(ChunkRead::ranges).collect();
        reader.announce(&announced);
        for read in reads.iter_mut() {
            queue.check_wanted()?;
            self.counts.bytes_read.fetch_add(read.extent.bytes(), Ordering::Relaxed);
            self.meter.note_read(read.extent.bytes());
            self.counts.pages_skipped.fetch_add(read.extent.skipped_pages(), Ordering::Relaxed);
            self.counts.cache_misses.fetch_add(1, Ordering::Relaxed);
            if read.is_for_host {
                read.host = read.read_by_host(queue, file, &reader)?;
                continue;
            }
            let source = read.chunk.source();
            let mut upload = ChunkUpload::new(queue.memory(), source, &read.extent, queue.stream())?;
            for (start, bytes) in read.ranges() {
                file.check_range(start, bytes)?;
                let mut parts = reader.parts(start);
                let reads = match device_file {
                    Some(device_file) => ChunkReads::Device(device_file.as_ref(), start),
                    None => ChunkReads::Host(&mut parts),
                };
                upload.add(bytes, reads)?;
            }
            read.uploaded = Some(upload.finish()?);
        }
        file.check_unchanged(reader.handle())
    }
}

/// Loads chunks of columns that have one value in all rows. They are made anew for each scan: no cache holds them.
fn load_derived(queue: &Queue, chunks: &[WantedChunk<'_>], found: &mut FoundChunks) -> Result<()> {
    let encoded: Vec<_> =
        chunks.iter().filter_map(|chunk| Some((chunk.source(), chunk.derived()?.encoded()))).collect();
    if encoded.is_empty() {
        return Ok(());
    }
    let loaded = queue.load_chunks(encoded)?.wait_chunks()?;
    for (chunk, loaded) in chunks.iter().zip(loaded) {
        found[chunk.row_group][chunk.column] = Some(loaded);
    }
    Ok(())
}

fn pages_of(cached: &CachedChunk) -> Result<Arc<ResidentChunk>> {
    cached.pages().cloned().ok_or_else(|| Error::internal("a segment is cached where pages were"))
}

/// The origin of a chunk, for the view of the cache.
pub(super) fn origin_of(source: &ColumnSource<'_>) -> ChunkOrigin {
    ChunkOrigin { path: source.path.to_owned(), column: source.metadata.column_path().string() }
}

/// The cache's key of a chunk.
fn key(chunk: &WantedChunk<'_>) -> ChunkKey {
    chunk_key(chunk.wanted.row_group, chunk.place())
}

/// The key of the pages of a row group's column, which is given by its place in the scan.
pub(super) fn chunk_key(row_group: &RowGroup, place: usize) -> ChunkKey {
    ChunkKey {
        file: row_group.file.file.footer.identity,
        row_group: row_group.index,
        leaf: row_group.file.leaf(place),
        rows: (row_group.assigned.start, row_group.assigned.end),
        form: ChunkForm::Pages,
    }
}

/// The ranges to read of a chunk, and where they lie afterwards.
struct ChunkRead<'a> {
    chunk: WantedChunk<'a>,
    /// Where the chunk starts in the file.
    start: u64,
    extent: ChunkExtent,
    /// Whether the host decompresses it.
    is_for_host: bool,
    /// The bytes, if it does.
    host: Vec<u8>,
    uploaded: Option<UploadedChunk>,
}

impl<'a> ChunkRead<'a> {
    fn plan(chunk: WantedChunk<'a>, reads_pages: bool) -> Result<Self> {
        let (WantedChunks { row_group, rows, .. }, source) = (chunk.wanted, chunk.source());
        let range = chunk_range(source.metadata);
        let (start, bytes) = range.ok_or_else(|| row_group.file.file.footer.changed())?;
        let extent = match reads_pages {
            true => page_map(row_group, chunk.place(), source, (start, bytes))?.extent(rows),
            false if row_group.is_whole() => ChunkExtent::whole(bytes, row_group.row_count),
            false => {
                let assigned = RowSelection::range(row_group.assigned.clone());
                page_map(row_group, chunk.place(), source, (start, bytes))?.extent(&assigned)
            }
        };
        Ok(Self { chunk, start, extent, is_for_host: false, host: Vec::new(), uploaded: None })
    }

    /// Ranges of the file: the first byte of each, and its byte count.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.extent.ranges().iter().map(|range| (self.start + range.start, range.end - range.start))
    }

    /// The start of the first page.
    fn first_page(&self, file: &TableFile, reader: &FileReader<'_>) -> Result<Bytes> {
        let Some((start, bytes)) = self.ranges().next() else { return Ok(Bytes::new()) };
        file.read_range(reader.handle(), start, HEADER_READ_BYTES.min(bytes as usize))
    }

    fn read_by_host(&self, queue: &Queue, file: &TableFile, reader: &FileReader<'_>) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        for (start, bytes) in self.ranges() {
            for first in (0..bytes).step_by(HOST_READ_BYTES) {
                queue.check_wanted()?;
                let piece = HOST_READ_BYTES.min((bytes - first) as usize);
                read.extend_from_slice(&file.read_range(reader.handle(), start + first, piece)?);
            }
        }
        Ok(read)
    }
}

/// Pages of a row group that its next piece may need too: of each column, the last loaded ones. A
/// reader that uses them waits for its device work before it drops them.
#[derive(Default)]
pub(super) struct SharedPages {
    last: Mutex<HashMap<usize, (usize, Arc<ResidentChunk>)>>,
}

/// A column of a row group of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagesKey {
    pub(super) row_group: usize,
    pub(super) leaf: usize,
}

impl SharedPages {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, (usize, Arc<ResidentChunk>)>> {
        lock_whole(&self.last)
    }

    /// The pages of a column, if they contain all wanted rows.
    fn find(&self, key: PagesKey, rows: &RowSelection) -> Option<Arc<ResidentChunk>> {
        let last = self.lock();
        let (row_group, pages) = last.get(&key.leaf)?;
        (*row_group == key.row_group && pages.has_rows(rows)).then(|| pages.clone())
    }

    fn keep(&self, key: PagesKey, pages: &Arc<ResidentChunk>) {
        self.lock().insert(key.leaf, (key.row_group, pages.clone()));
    }

    /// Drops all of them.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// Locations of a chunk's pages by its offset index, if there is one. Read once while readers work
/// on the row group.
fn indexed_pages(row_group: &RowGroup, leaf: usize) -> Option<Arc<PageMap>> {
    let scanned = &row_group.file;
    let key = (row_group.index, leaf);
    let lock = || lock_whole(&scanned.page_maps);
    if let Some(map) = lock().get(&key) {
        return Some(map.clone());
    }
    let map = Arc::new(read_indexed_pages(row_group, leaf)?);
    lock().insert(key, map.clone());
    Some(map)
}

/// The same, without keeping the result.
pub(super) fn read_indexed_pages(row_group: &RowGroup, leaf: usize) -> Option<PageMap> {
    let scanned = &row_group.file;
    let metadata = scanned.file.footer.metadata().row_group(row_group.index).column(leaf);
    let (start, bytes) = chunk_range(metadata)?;
    let pages = page_locations(&scanned.file, row_group.index, leaf)?;
    let places =
        pages.iter().map(|page| Some((page.offset.checked_sub(start)?, page.page_bytes, page.first_row)));
    PageMap::of_places(places.collect::<Option<Vec<_>>>()?, bytes, row_group.row_count)
}

/// Locations of a chunk's pages: by its offset index, or else by the page headers.
fn page_map(
    row_group: &RowGroup,
    place: usize,
    source: &ColumnSource<'_>,
    (start, bytes): (u64, u64),
) -> Result<Arc<PageMap>> {
    let scanned = &row_group.file;
    let leaf = scanned.leaf(place);
    if let Some(map) = indexed_pages(row_group, leaf) {
        return Ok(map);
    }
    let (file, row_count) = (&scanned.file, row_group.row_count);
    let handle = file.handle()?;
    let mut read = |place: u64, length| file.read_range(&handle, start + place, length);
    let map = Arc::new(PageMap::walk(source, (bytes, row_count), &mut read)?);
    let mut maps = lock_whole(&scanned.page_maps);
    maps.insert((row_group.index, leaf), map.clone());
    Ok(map)
}
