//! Column chunks of a scan on their way to the device: from the cache, from the host, from files; whole, or the pages
//! that have rows that are wanted.
//!
//! Invariants: only whole chunks are put into the cache. What one reader loads others wait for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

use bytes::Bytes;
use pystachio_engine::locking::lock_whole;
use pystachio_files::{FileReader, TableFile, chunk_range, page_locations};
use pystachio_plan::{Error, ErrorKind, Result, StoragePath};

use super::{
    chunk_cache::{ChunkKey, ChunkOrigin, Claim, LoadClaim},
    parts::RowGroup,
    source::ScanWork,
};
use crate::{
    decode::{
        ChunkExtent, ChunkReads, ChunkUpload, ColumnSource, EncodedBytes, HEADER_READ_BYTES, PageMap,
        ResidentChunk, RowSelection, UploadedChunk, is_decompressed_by_host,
    },
    file_systems::FileWay,
    operation::Queue,
};

/// Chunks are read and cached as wholes if at least one of so many rows is wanted; otherwise the pages are read that
/// have such rows.
const CACHED_PART_MIN: usize = 8;

/// Columns of a row group, and which of its rows are wanted.
pub(super) struct WantedChunks<'a> {
    pub(super) row_group: &'a RowGroup,
    /// Places of the columns among the scan's.
    pub(super) places: &'a [usize],
    /// The same columns, as decoding knows them.
    pub(super) sources: &'a [ColumnSource<'a>],
    pub(super) rows: &'a RowSelection,
}

impl ScanWork {
    /// Column chunks of a row group on the device, with the pages at least that have rows that are wanted.
    ///
    /// # Errors
    ///
    /// Those of the file and of decompression; `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn load(&self, queue: &Queue, wanted: &WantedChunks<'_>) -> Result<Vec<Arc<ResidentChunk>>> {
        if wanted.places.is_empty() {
            return Ok(Vec::new());
        }
        if self.reads_whole(wanted) { self.load_whole(queue, wanted) } else { self.load_pages(queue, wanted) }
    }

    /// Whether whole chunks are read. A row group is scanned in pieces where it does not fit as a whole.
    fn reads_whole(&self, wanted: &WantedChunks<'_>) -> bool {
        let row_count = &wanted.row_group.row_count;
        let part_min = if self.cache.is_some() { CACHED_PART_MIN } else { 1 };
        !wanted.row_group.is_piece()
            && wanted.rows.decoded_count().saturating_mul(part_min) >= *row_count as usize
    }

    /// Pages of column chunks, where the device has not the whole chunk.
    fn load_pages(&self, queue: &Queue, wanted: &WantedChunks<'_>) -> Result<Vec<Arc<ResidentChunk>>> {
        let row_group = wanted.row_group;
        let shared = &row_group.file.shared_pages;
        let find = |place: &usize| {
            if let Some(pages) = shared.find(row_group.pages_key(*place), wanted.rows) {
                return Some(pages);
            }
            let found = self.cache.as_ref()?.find(self.key(row_group, *place), self.query)?;
            self.count_cached(&found);
            Some(found)
        };
        let mut chunks: Vec<Option<Arc<ResidentChunk>>> = wanted.places.iter().map(find).collect();
        let missing: Vec<usize> = (0..chunks.len()).filter(|number| chunks[*number].is_none()).collect();
        let loaded = self.read_chunks(queue, wanted, &missing, true)?;
        for (number, loaded) in missing.into_iter().zip(loaded) {
            if row_group.is_piece() {
                shared.keep(row_group.pages_key(wanted.places[number]), &loaded);
            }
            chunks[number] = Some(loaded);
        }
        Ok(chunks.into_iter().flatten().collect())
    }

    fn count_cached(&self, chunk: &ResidentChunk) {
        self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes_cached.fetch_add(chunk.bytes(), Ordering::Relaxed);
    }

    /// Whole column chunks, which go into the cache.
    fn load_whole(&self, queue: &Queue, wanted: &WantedChunks<'_>) -> Result<Vec<Arc<ResidentChunk>>> {
        let WantedChunks { row_group, places, sources, .. } = *wanted;
        let mut chunks: Vec<Option<Arc<ResidentChunk>>> = vec![None; sources.len()];
        // A chunk may be wanted twice, as two columns: whoever is not first waits for the first.
        while chunks.iter().any(Option::is_none) {
            let mut claims = Vec::new();
            let mut elsewhere = None;
            for (place, chunk) in chunks.iter_mut().enumerate().filter(|(_, chunk)| chunk.is_none()) {
                let key = self.key(row_group, places[place]);
                match self.cache.as_ref().map(|cache| cache.claim(key, self.query)) {
                    Some(Claim::Held(held)) => {
                        self.count_cached(&held);
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
            let numbers: Vec<usize> = read.iter().map(|(number, _)| *number).collect();
            let loaded = self.read_chunks(queue, wanted, &numbers, false)?;
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

    /// Reads those of the columns with some numbers from their file, whole or the pages that have rows that are wanted;
    /// they are on the device when this returns.
    fn read_chunks(
        &self,
        queue: &Queue,
        wanted: &WantedChunks<'_>,
        numbers: &[usize],
        reads_pages: bool,
    ) -> Result<Vec<Arc<ResidentChunk>>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let WantedChunks { row_group, sources, .. } = *wanted;
        let file = &row_group.file.file;
        let way =
            row_group.file.way.get_or_init(|| self.file_systems.open(file, self.storage_path, self.own_path));
        let FileWay { path, device_file } = way.as_ref().map_err(Clone::clone)?;
        let mut reads = numbers
            .iter()
            .map(|number| ChunkRead::plan(wanted, *number, reads_pages))
            .collect::<Result<Vec<_>>>()?;
        let mut reader = FileReader::open(file, *path)?;
        if *path == StoragePath::PageCache
            && self.avoids_page_cache
            && !reads
                .iter()
                .flat_map(ChunkRead::ranges)
                .all(|(start, bytes)| self.file_systems.is_in_page_cache(reader.handle(), start, bytes))
        {
            // A file system without direct reads is read through the page cache all the same.
            reader =
                FileReader::open(file, StoragePath::Direct).or_else(|_| FileReader::open(file, *path))?;
        }
        self.paths_taken().insert(if device_file.is_some() { *path } else { reader.path() });
        for read in &mut reads {
            let metadata = sources[read.number].metadata;
            read.is_for_host =
                is_decompressed_by_host(metadata, queue.memory(), || read.first_page(file, &reader))?;
        }
        // The host decompresses what comes by way of the page cache.
        let is_announced = |read: &&ChunkRead| match read.is_for_host {
            true => reader.path() == StoragePath::PageCache,
            false => device_file.is_none(),
        };
        let announced: Vec<_> = reads.iter().filter(is_announced).flat_map(ChunkRead::ranges).collect();
        reader.announce(&announced);
        for read in &mut reads {
            let source = &sources[read.number];
            self.counts.bytes_read.fetch_add(read.extent.bytes(), Ordering::Relaxed);
            self.counts.pages_skipped.fetch_add(read.extent.skipped_pages(), Ordering::Relaxed);
            self.counts.cache_misses.fetch_add(1, Ordering::Relaxed);
            if read.is_for_host {
                read.host = read.read_by_host(file, &reader)?;
                continue;
            }
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
        file.check_unchanged(reader.handle())?;
        let chunks = reads
            .iter_mut()
            .map(|ChunkRead { number, extent, host, uploaded, .. }| {
                let bytes = match uploaded.take() {
                    Some(uploaded) => EncodedBytes::Device(uploaded),
                    None => EncodedBytes::Host(host, extent),
                };
                (&sources[*number], bytes)
            })
            .collect();
        let chunks = queue.load_chunks(chunks)?.wait_chunks()?;
        queue.wait()?;
        Ok(chunks)
    }
}

/// What is read of a chunk, and where it is then.
struct ChunkRead {
    /// The column's number among those that are wanted.
    number: usize,
    /// Where the chunk starts in the file.
    start: u64,
    extent: ChunkExtent,
    /// The host decompresses it.
    is_for_host: bool,
    /// The bytes, if so.
    host: Vec<u8>,
    uploaded: Option<UploadedChunk>,
}

impl ChunkRead {
    fn plan(wanted: &WantedChunks<'_>, number: usize, reads_pages: bool) -> Result<Self> {
        let (row_group, source) = (wanted.row_group, &wanted.sources[number]);
        let range = chunk_range(source.metadata);
        let (start, bytes) = range.ok_or_else(|| row_group.file.file.footer.changed())?;
        let extent = match reads_pages {
            true => page_map(row_group, wanted.places[number], source, (start, bytes))?.extent(wanted.rows),
            false => ChunkExtent::whole(bytes, row_group.row_count),
        };
        Ok(Self { number, start, extent, is_for_host: false, host: Vec::new(), uploaded: None })
    }

    /// Ranges of the file: the first byte of each, and how many they are.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.extent.ranges().iter().map(|range| (self.start + range.start, range.end - range.start))
    }

    /// The start of the first page.
    fn first_page(&self, file: &TableFile, reader: &FileReader<'_>) -> Result<Bytes> {
        let Some((start, bytes)) = self.ranges().next() else { return Ok(Bytes::new()) };
        file.read_range(reader.handle(), start, HEADER_READ_BYTES.min(bytes as usize))
    }

    fn read_by_host(&self, file: &TableFile, reader: &FileReader<'_>) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        for (start, bytes) in self.ranges() {
            read.extend_from_slice(&file.read_range(reader.handle(), start, bytes as usize)?);
        }
        Ok(read)
    }
}

/// Pages of a row group that the next of its pieces may want too: those of each column that were loaded last. Whoever
/// uses them waits for his work before he lets go of them.
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

    /// The pages of a column, if they have all of the rows that are wanted.
    fn find(&self, key: PagesKey, rows: &RowSelection) -> Option<Arc<ResidentChunk>> {
        let last = self.lock();
        let (row_group, pages) = last.get(&key.leaf)?;
        (*row_group == key.row_group && pages.has_rows(rows)).then(|| pages.clone())
    }

    fn keep(&self, key: PagesKey, pages: &Arc<ResidentChunk>) {
        self.lock().insert(key.leaf, (key.row_group, pages.clone()));
    }

    /// Gives all of them up.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// Where the pages of a chunk are, by its offset index, if there is one. Found out once for a scan.
pub(super) fn indexed_pages(row_group: &RowGroup, leaf: usize) -> Option<Arc<PageMap>> {
    let scanned = &row_group.file;
    let key = (row_group.index, leaf);
    let lock = || lock_whole(&scanned.page_maps);
    if let Some(map) = lock().get(&key) {
        return Some(map.clone());
    }
    let metadata = scanned.file.footer.metadata().row_group(row_group.index).column(leaf);
    let (start, bytes) = chunk_range(metadata)?;
    let pages = page_locations(&scanned.file, metadata)?;
    let places =
        pages.iter().map(|page| Some((page.offset.checked_sub(start)?, page.page_bytes, page.first_row)));
    let map = PageMap::of_places(places.collect::<Option<Vec<_>>>()?, bytes, row_group.row_count)?;
    let map = Arc::new(map);
    lock().insert(key, map.clone());
    Some(map)
}

/// Where the pages of a chunk are: by its offset index, or else by their headers.
fn page_map(
    row_group: &RowGroup,
    place: usize,
    source: &ColumnSource<'_>,
    (start, bytes): (u64, u64),
) -> Result<Arc<PageMap>> {
    let scanned = &row_group.file;
    let leaf = scanned.leaves[place];
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
