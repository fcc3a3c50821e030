//! The segments of a scan's chunks: which chunks have one, and how a chunk in the cache becomes
//! one.
//!
//! ```text
//! first query: pages ─► decoded, as far as it needs them    second query: pages ─► decoded whole ─► segment, and the pages go
//! ```
//!
//! A chunk that is used once costs no more than its pages. Its second use makes the segment, which replaces the pages.
//!
//! Invariants: a segment has the column in its declared type, of a chunk that was decoded whole
//! without a fault. A chunk that can't become a segment keeps its pages, so that its rows raise
//! their errors.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak, atomic::Ordering},
};

use pystachio_engine::locking::lock_whole;
use pystachio_files::ColumnVariant;
use pystachio_plan::{Error, ErrorKind, Result, ScanColumn};

use super::{
    chunk_cache::{CachedChunk, ChunkCache, ChunkClaim, ChunkKey, DictionaryKey, LeafKey, LoadClaim},
    chunk_loads::{chunk_key, origin_of},
    filter::ROWS_AN_ENTRY_MIN,
    parts::RowGroup,
    source::ScanWork,
};
use crate::{
    decode::{ChunkRequest, ColumnRequest, ResidentChunk, RowSelection},
    device::{AnyColumn, Buffer},
    execution::expressions::is_text,
    operation::Queue,
    segment::Segment,
};

/// Bytes that a row takes on average while it is decoded and encoded, and the part of the memory that all rows may take at once.
const ROW_BYTES: u64 = 64;
const MEMORY_PART: u64 = 16;

/// Segments of a row group's columns, by place in the scan, as far as they are here.
pub(super) type RowGroupSegments = Vec<Option<Arc<Segment>>>;

/// Numbers for declarations of columns: one for each that this process has seen.
static DECLARATIONS: Mutex<Option<HashMap<ColumnVariant, u32>>> = Mutex::new(None);

/// The number of a column's declaration.
pub(super) fn declaration_of(column: &ScanColumn) -> u32 {
    let mut known = lock_whole(&DECLARATIONS);
    let known = known.get_or_insert_default();
    let next = known.len() as u32;
    *known.entry(ColumnVariant::of(column)).or_insert(next)
}

impl ScanWork {
    /// The segments of wanted columns of row groups, each by place in the scan. Makes those of chunks whose pages are cached, of all row groups
    /// that lack one.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and faults of the device.
    pub(super) fn find_segments(
        &self,
        queue: &Queue,
        row_groups: &[&RowGroup],
        places: &[usize],
    ) -> Result<Vec<RowGroupSegments>> {
        let mut found: Vec<RowGroupSegments> =
            row_groups.iter().map(|_| vec![None; self.columns.len()]).collect();
        let Some(cache) = self.cache.as_ref().filter(|_| self.makes_segments) else { return Ok(found) };
        let mut wanted: Vec<(usize, usize)> = Vec::new();
        let (mut known_count, mut known_bytes) = (0, 0);
        for (number, row_group) in row_groups.iter().enumerate() {
            for place in places.iter().copied().filter(|place| !self.is_derived(row_group, *place)) {
                // What was here when the scan began is here still, as a rule.
                match row_group.segments.get(place).and_then(Weak::upgrade) {
                    Some(segment) => {
                        known_count += 1;
                        known_bytes += segment.bytes();
                        found[number][place] = Some(segment);
                    }
                    None => wanted.push((number, place)),
                }
            }
        }
        self.counts.cache_hits.fetch_add(known_count, Ordering::Relaxed);
        self.counts.bytes_cached.fetch_add(known_bytes, Ordering::Relaxed);
        let key_of = |(number, place): &(usize, usize)| self.segment_key(row_groups[*number], *place);
        let here = cache.find_all(wanted.iter().map(key_of), self.query);
        let mut pinned: Vec<(usize, usize, LoadClaim)> = Vec::new();
        for (at, here) in wanted.into_iter().zip(here) {
            let key = key_of(&at);
            let (number, place) = at;
            let held = match here {
                Some(held) => Some(held),
                None if !cache.has(&key) => None,
                None => match cache.claim(key, self.query) {
                    ChunkClaim::Held(held) => Some(held),
                    ChunkClaim::Mine(claim) if claim.pinned().is_some() => {
                        pinned.push((number, place, claim));
                        None
                    }
                    ChunkClaim::Mine(_) | ChunkClaim::Busy => None,
                },
            };
            if let Some(held) = held {
                self.count_cached(&held);
                found[number][place] = held.segment().cloned();
            }
        }
        let fetched = self.fetch_chunks(queue, pinned.iter().map(|(.., claim)| claim))?;
        for ((number, place, claim), chunk) in pinned.into_iter().zip(fetched) {
            let source = self.source(row_groups[number], place);
            claim.publish(&chunk, origin_of(&source), self.query, queue.stream());
            found[number][place] = chunk.segment().cloned();
        }
        for place in places.iter().copied() {
            self.make_segments(queue, cache, row_groups, place, &mut found)?;
        }
        Ok(found)
    }

    /// Whether a column of a row group is here as a segment.
    pub(super) fn has_segment(&self, row_group: &RowGroup, place: usize) -> bool {
        let key = || self.segment_key(row_group, place);
        self.makes_segments
            && self
                .cache
                .as_ref()
                .is_some_and(|cache| !self.is_derived(row_group, place) && cache.has(&key()))
    }

    /// Whether all columns of a row group that are read from its file are here as segments.
    pub(super) fn has_segments(&self, row_group: &RowGroup) -> bool {
        let places = (0..self.columns.len()).filter(|place| !self.is_derived(row_group, *place));
        let keys = places.map(|place| self.segment_key(row_group, place));
        self.makes_segments && self.cache.as_ref().is_some_and(|cache| cache.has_all(keys))
    }

    /// Notes with row groups which segments they have, if all columns that are read from files are here as segments. Returns whether they
    /// are.
    pub(super) fn note_segments(&self, row_groups: &mut [RowGroup]) -> bool {
        let Some(cache) = self.cache.as_ref().filter(|_| self.makes_segments) else { return false };
        for of_file in row_groups.chunk_by_mut(|one, next| Arc::ptr_eq(&one.file, &next.file)) {
            let file = of_file[0].file.clone();
            let parts: Vec<(usize, (u32, u32))> = of_file.iter().map(RowGroup::assigned_rows).collect();
            of_file.iter_mut().for_each(|row_group| {
                row_group.segments = std::iter::repeat_with(Weak::new).take(self.columns.len()).collect()
            });
            for (place, declaration) in self.declarations.iter().copied().enumerate() {
                let Some(leaf) = file.columns[place].leaf() else { continue };
                let leaf = LeafKey { file: file.file.footer.identity, leaf, declaration };
                let Some(found) = cache.find_segments(&leaf, &parts, self.query) else { return false };
                for (row_group, segment) in of_file.iter_mut().zip(found) {
                    row_group.segments[place] = segment;
                }
            }
        }
        true
    }

    fn is_derived(&self, row_group: &RowGroup, place: usize) -> bool {
        row_group.file.derived(row_group.index, place).is_some()
    }

    fn segment_key(&self, row_group: &RowGroup, place: usize) -> ChunkKey {
        let (row_group_number, rows) = row_group.assigned_rows();
        let file = &row_group.file;
        let (leaf, declaration) = (file.leaf(place), self.declarations[place]);
        LeafKey { file: file.file.footer.identity, leaf, declaration }.chunk(row_group_number, rows)
    }

    /// Makes the segments of a column that some row groups lack, as far as their pages are cached.
    fn make_segments(
        &self,
        queue: &Queue,
        cache: &ChunkCache,
        row_groups: &[&RowGroup],
        place: usize,
        found: &mut [RowGroupSegments],
    ) -> Result<()> {
        let is_kept = |row_group: &RowGroup| {
            self.is_derived(row_group, place) || cache.has(&chunk_key(row_group, place))
        };
        let missing: Vec<usize> = (0..row_groups.len())
            .filter(|number| found[*number][place].is_none() && !row_groups[*number].is_piece())
            .filter(|number| is_kept(row_groups[*number]))
            .collect();
        // Of a column that has one value in all rows, only for others that are segments.
        let is_made = missing.iter().any(|number| !self.is_derived(row_groups[*number], place))
            || found.iter().any(|segments| segments.iter().any(Option::is_some));
        if missing.is_empty() || !is_made {
            return Ok(());
        }
        // A batch has few enough rows that its cells take little of the memory.
        let rows_max = queue.memory().available_bytes() / MEMORY_PART / ROW_BYTES;
        let mut batch: Vec<usize> = Vec::new();
        let mut row_count = 0;
        for number in missing {
            let rows = row_groups[number].assigned.len() as u64;
            if !batch.is_empty() && row_count + rows > rows_max {
                self.make_batch(queue, (cache, row_groups), place, &std::mem::take(&mut batch), found)?;
                row_count = 0;
            }
            batch.push(number);
            row_count += rows;
        }
        self.make_batch(queue, (cache, row_groups), place, &batch, found)
    }

    /// Makes the segments of a column of some row groups, which are given by their numbers.
    fn make_batch(
        &self,
        queue: &Queue,
        (cache, row_groups): (&ChunkCache, &[&RowGroup]),
        place: usize,
        numbers: &[usize],
        found: &mut [RowGroupSegments],
    ) -> Result<()> {
        let chosen: Vec<&RowGroup> = numbers.iter().map(|number| row_groups[*number]).collect();
        let made = match self.encoded(queue, cache, &chosen, place) {
            Ok(made) => made,
            Err(error) if matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Device) => {
                return Err(error);
            }
            // Their pages stay, and the query reports errors of the rows that it reads.
            Err(_) => return queue.wait(),
        };
        for (number, segment) in numbers.iter().copied().zip(made) {
            let segment = Arc::new(segment);
            let row_group = row_groups[number];
            if !self.is_derived(row_group, place)
                && let ChunkClaim::Mine(claim) = cache.claim(self.segment_key(row_group, place), self.query)
            {
                cache.forget(&chunk_key(row_group, place));
                let source = self.source(row_group, place);
                let cached = CachedChunk::Segment(segment.clone());
                claim.publish(&cached, origin_of(&source), self.query, queue.stream());
            }
            found[number][place] = Some(segment);
        }
        Ok(())
    }

    /// Segments of a column of row groups: decoded whole, then encoded.
    fn encoded(
        &self,
        queue: &Queue,
        cache: &ChunkCache,
        row_groups: &[&RowGroup],
        place: usize,
    ) -> Result<Vec<Segment>> {
        let column = &self.columns[place];
        let whole: Vec<RowSelection> =
            row_groups.iter().map(|row_group| RowSelection::range(row_group.assigned.clone())).collect();
        let places = [place];
        let wanted: Vec<_> = row_groups
            .iter()
            .zip(&whole)
            .map(|(row_group, rows)| self.wanted(row_group, &places, rows))
            .collect();
        let loaded = self.load(queue, &wanted.iter().collect::<Vec<_>>())?;
        let chunks: Vec<Arc<ResidentChunk>> = loaded.into_iter().flatten().collect();
        Buffer::use_all_on(chunks.iter().flat_map(|chunk| chunk.buffers()), queue.stream())?;
        let mut parts = Vec::with_capacity(row_groups.len());
        let mut rows = Vec::with_capacity(row_groups.len());
        let mut row_count = 0;
        for selection in &whole {
            let count = selection.row_count();
            parts.push(row_count..row_count + count);
            rows.push(selection.clone().starting_at(row_count as u32));
            row_count += count;
        }
        let dictionary = cache.dictionary(
            DictionaryKey {
                table: self.table.clone(),
                column: column.name.clone(),
                declaration: self.declarations[place],
            },
            &column.data_type,
        );
        let decode = |as_codes| -> Result<AnyColumn> {
            let of_row_group = wanted.iter().zip(&chunks);
            let chunks = of_row_group
                .map(|(wanted, chunk)| ChunkRequest { source: &wanted.sources[0], chunk })
                .collect();
            let request = ColumnRequest { chunks, as_codes };
            let selections: Vec<&RowSelection> = rows.iter().collect();
            let mut columns = queue.decode_columns(&[request], &selections, row_count)?.wait_decoded()?;
            columns.pop().ok_or_else(|| Error::internal("a column that was not decoded"))
        };
        let entries = |chunk: &Arc<ResidentChunk>| chunk.dictionary_entries();
        let entry_count = chunks.iter().map(entries).sum::<Option<usize>>();
        let are_few =
            entry_count.is_some_and(|entries| entries.saturating_mul(ROWS_AN_ENTRY_MIN) <= row_count);
        if is_text(&column.data_type) && are_few {
            let codes = decode(true)?;
            if let Some(segments) = queue.encode_segments(&codes, &parts, &dictionary)? {
                return Ok(segments);
            }
        }
        let cells = decode(false)?;
        let segments = queue.encode_segments(&cells, &parts, &dictionary)?;
        segments.ok_or_else(|| Error::internal("cells that became no segment"))
    }
}
