//! Rows ruled out before any of a row group is read: conditions of a plan against the bounds of pages, and against Bloom
//! filters (`bloom_filter.rs`).
//!
//! ```text
//! column a   |  page 0  |    page 1    | page 2 |
//! column b   |    page 0    |  page 1  | page 2 |
//! rows       | 1 | 2    | 3 |    4     |   5    |      one check each of a condition over both columns
//! ```
//!
//! Invariants: rows are ruled out only if none of them can make the conditions true. An index that is absent, or can't
//! be one of its chunk, rules out nothing. Where pages are and which rows they have is compared with every page's header,
//! once for a file; of an object in a store, where that would fetch all that is to be left out, the pages must lie side by side,
//! and readers compare those that they read.
//!
//! Source: Parquet's PageIndex.md; parquet.thrift, ColumnIndex and OffsetIndex.

use std::{
    collections::HashMap,
    fs::File,
    ops::Range,
    sync::{Arc, Mutex},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{ColumnId, Expression, Literal, ScanColumn};

use crate::{
    PageHeader, TableFile, bloom_filter, chunk_range,
    column_place::{ColumnPlace, reads},
    compact_protocol::{CompactWalk, Kind, TOO_LONG},
    pruning::{Bounds, refutes_within, with_statistics},
    statistics::ChunkStatistics,
};

/// Indexes of a file that are kept; a file has one for every column of every row group.
const INDEXES_MAX: usize = 4096;
const INTEGER_DEPTH: usize = 1;
/// Bytes that are read for a page's header: more than one usually has, and more than one has that is not corrupt.
const HEADER_BYTES: usize = 512;
const HEADER_BYTES_MAX: usize = 1 << 20;

/// Where a data page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLocation {
    /// In the file.
    pub offset: u64,
    /// With its header.
    pub page_bytes: u64,
    /// The first of its rows in the row group.
    pub first_row: u64,
}

/// The pages of a column chunk, with their bounds.
#[derive(Debug)]
struct PageBounds {
    /// The row that follows each page.
    ends: Vec<u32>,
    bounds: Vec<Bounds>,
}

/// By row group and leaf.
type KnownIndexes = HashMap<(usize, usize), Option<Arc<PageBounds>>>;

/// By row group and leaf.
type KnownLocations = HashMap<(usize, usize), Option<Arc<[PageLocation]>>>;

/// Bounds of pages of one file, as far as they were requested. An unusable index is kept as such.
#[derive(Debug, Default)]
pub(super) struct PageIndexes {
    known: Mutex<KnownIndexes>,
    locations: Mutex<KnownLocations>,
}

/// A row group of a file, and what a scan reads of it.
#[derive(Clone, Copy, Debug)]
pub struct IndexedRowGroup<'a> {
    /// The file.
    pub file: &'a TableFile,
    /// The row group's number.
    pub row_group: usize,
    /// The scan's columns.
    pub columns: &'a [ScanColumn],
    /// Their places in the file.
    pub places: &'a [ColumnPlace],
}

/// The offset index of a chunk of a column that is not nested: where its data pages are, ascending, from row 0 on. `None` if
/// there is none that can be read, or that the pages contradict. Blocks, once for a file.
pub fn page_locations(file: &TableFile, row_group: usize, leaf: usize) -> Option<Arc<[PageLocation]>> {
    let lock = || lock_whole(&file.footer.page_indexes.locations);
    if let Some(known) = lock().get(&(row_group, leaf)) {
        return known.clone();
    }
    let locations = read_locations(file, row_group, leaf).map(Arc::from);
    let mut known = lock();
    if known.len() >= INDEXES_MAX {
        known.clear();
    }
    known.insert((row_group, leaf), locations.clone());
    locations
}

fn read_locations(file: &TableFile, row_group: usize, leaf: usize) -> Option<Vec<PageLocation>> {
    let metadata = file.footer.metadata().row_groups().get(row_group)?;
    let chunk = metadata.columns().get(leaf)?;
    if chunk.column_descr().max_rep_level() > 0 {
        return None;
    }
    let bytes = index_bytes(file, chunk.offset_index_offset()?, chunk.offset_index_length()?)?;
    let locations = decode_locations(&bytes).ok()?;
    let ends = locations.iter().skip(1).map(|location| location.first_row);
    let mut ends = ends.chain([u64::try_from(metadata.num_rows()).ok()?]);
    let handle = file.handle().ok()?;
    let (start, chunk_bytes) = chunk_range(chunk)?;
    let end = start.checked_add(chunk_bytes)?;
    let mut place = locations.first().filter(|first| first.first_row == 0 && first.offset >= start)?.offset;
    for location in &locations {
        let rows = ends.next()?.checked_sub(location.first_row)?;
        if file.is_in_store() {
            if location.offset != place {
                return None;
            }
            place = place.checked_add(location.page_bytes).filter(|place| *place <= end)?;
            continue;
        }
        let (header, header_bytes) = page_header(file, &handle, location)?;
        let page_bytes = header_bytes as u64 + u64::from(header.compressed_bytes);
        if header.value_count().map(u64::from) != Some(rows) || page_bytes != location.page_bytes {
            return None;
        }
    }
    Some(locations)
}

/// The header of a page, and how long it is.
fn page_header(file: &TableFile, handle: &File, location: &PageLocation) -> Option<(PageHeader, usize)> {
    let page_bytes = usize::try_from(location.page_bytes).ok()?;
    let parse = |bytes: usize| {
        let bytes = file.read_range(handle, location.offset, bytes.min(page_bytes)).ok()?;
        PageHeader::parse(&bytes).ok()
    };
    parse(HEADER_BYTES).or_else(|| if page_bytes > HEADER_BYTES { parse(HEADER_BYTES_MAX) } else { None })
}

fn index_bytes(file: &TableFile, offset: i64, length: i32) -> Option<bytes::Bytes> {
    let handle = file.handle().ok()?;
    file.read_range(&handle, u64::try_from(offset).ok()?, usize::try_from(length).ok()?).ok()
}

fn decode_locations(bytes: &[u8]) -> Result<Vec<PageLocation>, &'static str> {
    let mut locations = Vec::new();
    CompactWalk { rest: bytes }.fields(0, &mut |walk, field, kind| {
        if field != 1 || kind != Kind::List {
            return walk.skip(kind, INTEGER_DEPTH);
        }
        locations = walk.list(Kind::Struct, |walk| {
            let mut integers = [None; 4];
            walk.fields(1, &mut |walk, field, kind| {
                match usize::try_from(field).ok().and_then(|field| integers.get_mut(field)) {
                    Some(slot) if kind == Kind::Integer => *slot = u64::try_from(walk.signed()?).ok(),
                    _ => walk.skip(kind, 2)?,
                }
                Ok(())
            })?;
            match integers {
                [_, Some(offset), Some(page_bytes), Some(first_row)] => {
                    Ok(PageLocation { offset, page_bytes, first_row })
                }
                _ => Err("it lacks a field"),
            }
        })?;
        Ok(())
    })?;
    Ok(locations)
}

/// A column index as it is in the file.
#[derive(Debug, Default)]
struct ColumnIndex<'a> {
    null_pages: Vec<bool>,
    least: Vec<&'a [u8]>,
    greatest: Vec<&'a [u8]>,
    null_counts: Option<Vec<u64>>,
}

fn decode_column_index(bytes: &[u8]) -> Result<ColumnIndex<'_>, &'static str> {
    let mut index = ColumnIndex::default();
    CompactWalk { rest: bytes }.fields(0, &mut |walk, field, kind| {
        match (field, kind) {
            (1, Kind::List) => {
                index.null_pages = walk.list(Kind::Bool(true), |walk| Ok(walk.byte()? == 1))?
            }
            (2, Kind::List) => index.least = walk.list(Kind::Binary, CompactWalk::binary)?,
            (3, Kind::List) => index.greatest = walk.list(Kind::Binary, CompactWalk::binary)?,
            (5, Kind::List) => {
                let count = |walk: &mut CompactWalk<'_>| u64::try_from(walk.signed()?).map_err(|_| TOO_LONG);
                index.null_counts = Some(walk.list(Kind::Integer, count)?);
            }
            _ => walk.skip(kind, INTEGER_DEPTH)?,
        }
        Ok(())
    })?;
    Ok(index)
}

impl PageBounds {
    /// The bounds of a chunk's pages; `None` if its indexes can't be of it.
    fn read(file: &TableFile, (row_group, leaf): (usize, usize), part: &ChunkStatistics<'_>) -> Option<Self> {
        let chunk = part.chunk;
        let bytes = index_bytes(file, chunk.column_index_offset()?, chunk.column_index_length()?)?;
        let index = decode_column_index(&bytes).ok()?;
        Self::of(&index, &page_locations(file, row_group, leaf)?, part)
    }

    fn of(index: &ColumnIndex<'_>, locations: &[PageLocation], part: &ChunkStatistics<'_>) -> Option<Self> {
        let count = locations.len();
        let ColumnIndex { null_pages, least, greatest, null_counts } = index;
        let counts_fit = null_counts.as_ref().is_none_or(|counts| counts.len() == count);
        if [null_pages.len(), least.len(), greatest.len()] != [count; 3] || !counts_fit {
            return None;
        }
        let firsts = locations.iter().map(|location| location.first_row);
        let row_count = u32::try_from(part.row_count).ok()?;
        if firsts.clone().next() != Some(0) {
            return None;
        }
        let ends = firsts.skip(1).chain([part.row_count]).map(|end| u32::try_from(end).ok());
        let ends: Vec<u32> = ends.collect::<Option<_>>()?;
        let mut bounds = Vec::with_capacity(count);
        let mut first = 0;
        for (page, end) in ends.iter().enumerate() {
            let rows = u64::from(end.checked_sub(first).filter(|_| *end <= row_count)?);
            first = *end;
            let is_null = null_pages[page];
            let stated = null_counts.as_ref().map(|counts| counts[page]);
            // What an index says twice must be the same.
            if is_null && (part.required || stated.is_some_and(|count| count != rows)) {
                return None;
            }
            let null_count = match stated {
                _ if part.required => Some(0),
                _ if is_null => part.page_null_count(rows, rows),
                Some(count) => part.page_null_count(count, rows),
                None => None,
            };
            let (minimum, maximum) = match is_null {
                true => (None, None),
                false => part.page_bounds(least[page], greatest[page]),
            };
            let data_type = part.file_type.data_type.clone()?;
            bounds.push(Bounds { data_type, minimum, maximum, null_count, row_count: rows, members: None });
        }
        Some(Self { ends, bounds })
    }

    /// The page that has a row, from a page before it on.
    fn page_of(&self, row: u32, from: usize) -> usize {
        (from..self.ends.len()).find(|page| row < self.ends[*page]).unwrap_or(self.ends.len())
    }
}

impl PageIndexes {
    /// The bounds of a column's pages, if bounds in the file are bounds of the column as it is declared.
    fn bounds(&self, place: &IndexedRowGroup<'_>, column: usize) -> Option<Arc<PageBounds>> {
        let IndexedRowGroup { file, row_group, columns, places } = *place;
        let leaf = file.footer.value_leaf(places.get(column)?.stored()?)?;
        let declared = columns.get(column)?;
        let metadata = file.footer.metadata().row_group(row_group);
        with_statistics(&file.footer, metadata, declared, leaf, |part| {
            let lock = || lock_whole(&self.known);
            if let Some(known) = lock().get(&(row_group, leaf)) {
                return known.clone();
            }
            let bounds = PageBounds::read(file, (row_group, leaf), part).map(Arc::new);
            let mut known = lock();
            if known.len() >= INDEXES_MAX {
                known.clear();
            }
            known.insert((row_group, leaf), bounds.clone());
            bounds
        })?
    }
}

/// The rows of a row group that page indexes and Bloom filters leave, as sorted and disjoint ranges; `None` if they rule out
/// nothing. Reads the indexes of the columns in conditions, once for a file, and their filters. Blocks.
pub fn rows_left(
    place: &IndexedRowGroup<'_>,
    conditions: &[Expression],
    parameters: &[Literal],
) -> Option<Vec<Range<u32>>> {
    let metadata = place.file.footer.metadata().row_group(place.row_group);
    let all = 0..u32::try_from(metadata.num_rows()).ok()?;
    let mut left = vec![all.clone()];
    // One after another, each over the pages of its own columns alone.
    for condition in conditions {
        let columns = bounds_of(place, condition);
        if !columns.is_empty() {
            left = intersection(&left, &left_by(condition, &columns, all.end, parameters));
        }
    }
    if !left.is_empty() && bloom_filter::refuted(place, conditions, parameters) {
        left.clear();
    }
    (left != [all]).then_some(left)
}

/// The bounds of the pages of a condition's columns.
fn bounds_of(place: &IndexedRowGroup<'_>, condition: &Expression) -> Vec<(ColumnId, Arc<PageBounds>)> {
    let indexes = &place.file.footer.page_indexes;
    let read = place.columns.iter().enumerate().filter(|(_, column)| reads(condition, column.id));
    read.filter_map(|(number, column)| Some((column.id, indexes.bounds(place, number)?))).collect()
}

/// The rows that one condition leaves.
fn left_by(
    condition: &Expression,
    columns: &[(ColumnId, Arc<PageBounds>)],
    row_count: u32,
    parameters: &[Literal],
) -> Vec<Range<u32>> {
    let mut left: Vec<Range<u32>> = Vec::new();
    let mut pages = vec![0; columns.len()];
    let mut row = 0;
    while row < row_count {
        let mut end = row_count;
        for (page, (_, column)) in pages.iter_mut().zip(columns) {
            *page = column.page_of(row, *page);
            end = end.min(column.ends.get(*page).copied().unwrap_or(row_count));
        }
        let bounds_of = |id| {
            let place = columns.iter().position(|(known, _)| *known == id)?;
            columns[place].1.bounds.get(pages[place])
        };
        if !refutes_within(std::slice::from_ref(condition), &bounds_of, parameters) {
            match left.last_mut() {
                Some(last) if last.end == row => last.end = end,
                _ => left.push(row..end),
            }
        }
        row = end;
    }
    left
}

/// The rows that are in both.
fn intersection(first: &[Range<u32>], second: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut both = Vec::new();
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    while let (Some(one), Some(other)) = (first.peek(), second.peek()) {
        let (start, end) = (one.start.max(other.start), one.end.min(other.end));
        if start < end {
            both.push(start..end);
        }
        if one.end <= other.end {
            first.next();
        } else {
            second.next();
        }
    }
    both
}

#[cfg(test)]
pub(crate) mod tests;
