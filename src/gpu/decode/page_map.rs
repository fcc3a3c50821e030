//! Where the pages of a column chunk are before they are read, and which bytes of a chunk are read.
//!
//! ```text
//! chunk    | dictionary | page 0 | page 1 | page 2 | page 3 |
//! extent   | dictionary |        | page 1 | page 2 |            one after another on the device
//! ```
//!
//! Invariants: each page is checked against its map when it has been read. An extent includes a
//! chunk's dictionary page if there is one.

use std::ops::Range;

use pystachio_files::{ListedPage, PageFault, PageList, PageWalk};
use pystachio_plan::Result;

use super::{column_chunk::ColumnSource, row_selection::RowSelection};

/// Bytes that are read for a page's header: more than one usually has.
pub const HEADER_READ_BYTES: usize = 512;

/// A data page of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PagePlace {
    /// Its number among all pages of the chunk.
    number: usize,
    /// In the chunk.
    bytes: Range<u64>,
    first_row: u32,
    row_count: u32,
}

/// Where the pages of a chunk are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMap {
    /// Bytes before the first data page, if any.
    dictionary: Option<Range<u64>>,
    /// Data pages that have rows.
    pages: Vec<PagePlace>,
}

/// The bytes of a chunk to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkExtent {
    /// In the chunk, sorted and disjoint.
    ranges: Vec<Range<u64>>,
    row_count: u32,
    /// The data pages in these bytes; absent for whole chunks.
    pages: Option<Vec<PagePlace>>,
    skipped_pages: u64,
}

impl PageMap {
    /// The map of a chunk of so many bytes and rows from the positions of its data pages: the first
    /// byte of each, in the chunk, its length and the first of its rows. `None` if they are
    /// impossible.
    pub fn of_places(
        places: impl IntoIterator<Item = (u64, u64, u64)>,
        chunk_bytes: u64,
        row_count: u32,
    ) -> Option<Self> {
        let places: Vec<_> = places.into_iter().collect();
        let (first_start, _, first_row) = *places.first()?;
        if first_row != 0 {
            return None;
        }
        let dictionary = (first_start > 0).then_some(0..first_start);
        let mut pages = Vec::with_capacity(places.len());
        let mut previous_end = first_start;
        for (number, (start, bytes, first_row)) in places.iter().copied().enumerate() {
            let end = start.checked_add(bytes)?;
            let end_row = places.get(number + 1).map_or(u64::from(row_count), |(.., first_row)| *first_row);
            let rows = u32::try_from(end_row.checked_sub(first_row)?).ok()?;
            if start < previous_end || end > chunk_bytes || end_row > u64::from(row_count) {
                return None;
            }
            previous_end = end;
            if rows > 0 {
                let number = number + usize::from(dictionary.is_some());
                let first_row = u32::try_from(first_row).ok()?;
                pages.push(PagePlace { number, bytes: start..end, first_row, row_count: rows });
            }
        }
        Some(Self { dictionary, pages })
    }

    /// The map of a chunk of so many bytes and rows, by reading the header of every page: `read`
    /// fills memory from an offset in the chunk.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`; errors of `read`.
    pub fn walk(
        source: &ColumnSource<'_>,
        (chunk_bytes, row_count): (u64, u32),
        read: &mut dyn FnMut(u64, usize) -> Result<bytes::Bytes>,
    ) -> Result<Self> {
        let corrupt = |(page, reason): PageFault| source.names().corrupt_page(page, reason);
        let mut walk = PageWalk::new(chunk_bytes as usize, row_count);
        while let Some(start) = walk.skip_body() {
            let length = HEADER_READ_BYTES.min(chunk_bytes as usize - start);
            walk.feed(&read(start as u64, length)?).map_err(corrupt)?;
        }
        let list = walk.finish().map_err(corrupt)?;
        let bytes_of = |page: &ListedPage| page.start as u64..page.body.end as u64;
        let pages = list.data.iter().map(|page| PagePlace {
            number: page.number,
            bytes: bytes_of(page),
            first_row: page.first_row,
            row_count: page.row_count,
        });
        Ok(Self { dictionary: list.dictionary.as_ref().map(bytes_of), pages: pages.collect() })
    }

    /// The data pages: the first row of each, and its bytes in the file.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u64)> {
        self.pages.iter().map(|page| (page.first_row, page.bytes.end - page.bytes.start))
    }

    /// Bytes of the dictionary in the file.
    pub fn dictionary_bytes(&self) -> u64 {
        self.dictionary.as_ref().map_or(0, |bytes| bytes.end - bytes.start)
    }

    /// The pages that have rows of a selection.
    pub fn extent(&self, rows: &RowSelection) -> ChunkExtent {
        let is_wanted = |page: &&PagePlace| rows.within(page.first_row, page.row_count).next().is_some();
        let pages: Vec<PagePlace> = self.pages.iter().filter(is_wanted).cloned().collect();
        let mut ranges: Vec<Range<u64>> = self.dictionary.iter().cloned().collect();
        for page in &pages {
            match ranges.last_mut() {
                Some(last) if last.end == page.bytes.start => last.end = page.bytes.end,
                _ => ranges.push(page.bytes.clone()),
            }
        }
        let row_count = pages.iter().map(|page| page.row_count).sum();
        let skipped_pages = (self.pages.len() - pages.len()) as u64;
        ChunkExtent { ranges, row_count, pages: Some(pages), skipped_pages }
    }
}

impl ChunkExtent {
    /// All of a chunk of so many bytes and rows.
    pub fn whole(chunk_bytes: u64, row_count: u32) -> Self {
        let ranges = std::iter::once(0..chunk_bytes).collect();
        Self { ranges, row_count, pages: None, skipped_pages: 0 }
    }

    /// The bytes to read, in the chunk. On the device they lie one after another.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Data pages that are not read.
    pub fn skipped_pages(&self) -> u64 {
        self.skipped_pages
    }

    /// A walk over the pages in these bytes.
    pub(super) fn walk(&self) -> PageWalk {
        PageWalk::new(self.bytes() as usize, self.row_count)
    }

    /// The pages that such a walk has found, with their numbers and rows in the row group.
    ///
    /// # Errors
    ///
    /// A page that is not as its map describes it.
    pub(super) fn place(&self, mut list: PageList) -> std::result::Result<PageList, PageFault> {
        let Some(places) = &self.pages else { return Ok(list) };
        let dictionary_bytes =
            self.bytes() - places.iter().map(|place| place.bytes.end - place.bytes.start).sum::<u64>();
        let mut start = dictionary_bytes;
        for (number, place) in places.iter().enumerate() {
            let end = start + (place.bytes.end - place.bytes.start);
            let found = list.data.get_mut(number).filter(|page| {
                page.start as u64 == start && page.body.end as u64 == end && page.row_count == place.row_count
            });
            let Some(page) = found else {
                return Err((place.number, "the offset index says something else of the page"));
            };
            page.number = place.number;
            page.first_row = place.first_row;
            start = end;
        }
        Ok(list)
    }
}
