//! The pages of a column chunk, found by walking their headers.
//!
//! Invariants: a page's bytes lie within the chunk; the dictionary page, if there is one, comes first; the
//! pages' rows are those of the row group, without gaps.

use std::ops::Range;

use super::page_header::{PageHeader, PageKind};

/// A page of a chunk.
#[derive(Clone, Debug)]
pub(super) struct ListedPage {
    /// Its place among all pages of the chunk.
    pub(super) number: usize,
    /// Where its header starts in the chunk.
    pub(super) start: usize,
    /// Its bytes after the header, within the chunk.
    pub(super) body: Range<usize>,
    pub(super) header: PageHeader,
    /// The first of its rows; 0 for a dictionary.
    pub(super) first_row: u32,
    /// Its rows, NULLs included, or the entries of a dictionary.
    pub(super) row_count: u32,
}

/// The dictionary and the data pages of a chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct PageList {
    pub(super) dictionary: Option<ListedPage>,
    /// Pages that have rows.
    pub(super) data: Vec<ListedPage>,
}

impl PageList {
    /// Walks the headers of a chunk that has `row_count` rows and is not nested.
    ///
    /// # Errors
    ///
    /// The number of the page and what is wrong with it, in words.
    pub(super) fn read(chunk: &[u8], row_count: u32) -> Result<Self, (usize, &'static str)> {
        let mut list = Self::default();
        if row_count == 0 {
            // Footers of some writers do not say where the pages of such a chunk are.
            return Ok(list);
        }
        let mut start = 0;
        let mut rows = 0_u32;
        let mut page_count = 0;
        for number in 0.. {
            page_count = number;
            let Some(rest) = chunk.get(start..).filter(|rest| !rest.is_empty()) else { break };
            let (header, header_bytes) = PageHeader::parse(rest).map_err(|reason| (number, reason))?;
            let body_start = start + header_bytes;
            let body_end = body_start + header.compressed_bytes as usize;
            if body_end > chunk.len() {
                return Err((number, "a page ends after its column chunk"));
            }
            let body = body_start..body_end;
            let page = ListedPage { number, start, body, header, first_row: rows, row_count: 0 };
            match header.kind {
                PageKind::Dictionary { value_count, .. } => {
                    if number != 0 {
                        return Err((number, "a dictionary page follows other pages"));
                    }
                    list.dictionary = Some(ListedPage { row_count: value_count, ..page });
                }
                PageKind::DataV1 { value_count, .. } | PageKind::DataV2 { value_count, .. } => {
                    if value_count > row_count - rows {
                        return Err((number, "a column has more values than its row group has rows"));
                    }
                    rows += value_count;
                    if value_count > 0 {
                        list.data.push(ListedPage { row_count: value_count, ..page });
                    }
                }
                PageKind::Index => {}
            }
            start = body_end;
        }
        if rows < row_count {
            return Err((page_count, "a column has fewer values than its row group has rows"));
        }
        Ok(list)
    }
}
