//! Where a column chunk is, and its pages, found by walking their headers.
//!
//! Invariants: a page's bytes lie within the chunk; the dictionary page, if there is one, comes first; the
//! pages' rows are those of the row group, without gaps.

use std::ops::Range;

use parquet::file::metadata::ColumnChunkMetaData;

use crate::page_header::{PageHeader, PageKind};

/// Where a chunk's bytes are in the file: the first byte and their count. `None` if the footer says what
/// can't be.
pub fn chunk_range(metadata: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = match metadata.dictionary_page_offset() {
        Some(offset) if offset > 0 => offset.min(metadata.data_page_offset()),
        _ => metadata.data_page_offset(),
    };
    Some((u64::try_from(start).ok()?, u64::try_from(metadata.compressed_size()).ok()?))
}

/// A page of a chunk.
#[derive(Clone, Debug)]
pub struct ListedPage {
    /// Its place among all pages of the chunk.
    pub number: usize,
    /// Where its header starts in the chunk.
    pub start: usize,
    /// Its bytes after the header, within the chunk.
    pub body: Range<usize>,
    /// What its header says.
    pub header: PageHeader,
    /// The first of its rows; 0 for a dictionary.
    pub first_row: u32,
    /// Its rows, NULLs included, or the entries of a dictionary.
    pub row_count: u32,
}

/// The dictionary and the data pages of a chunk.
#[derive(Clone, Debug, Default)]
pub struct PageList {
    /// Where the entries are that indexes mean.
    pub dictionary: Option<ListedPage>,
    /// Pages that have rows.
    pub data: Vec<ListedPage>,
}

/// A header longer than this is taken for corrupt: writers cut the bounds that it may hold.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// What is wrong: the number of a page, and the reason in words.
pub type PageFault = (usize, &'static str);
pub(crate) const ENDS_AFTER_CHUNK: &str = "a page ends after its column chunk";
pub(crate) const TOO_MANY_VALUES: &str = "a column has more values than its row group has rows";

/// Walks the headers of a chunk whose bytes come part after part.
#[derive(Debug)]
pub struct PageWalk {
    list: PageList,
    chunk_bytes: usize,
    row_count: u32,
    /// Bytes that have come.
    fed_bytes: usize,
    /// Where the next header starts.
    next: usize,
    /// The number of the next page.
    number: usize,
    /// Rows of the pages so far.
    rows: u32,
    /// The start of a header whose end has not come.
    carried: Vec<u8>,
}

impl PageWalk {
    /// A walk over a chunk of so many bytes and rows.
    pub fn new(chunk_bytes: usize, row_count: u32) -> Self {
        Self {
            list: PageList::default(),
            chunk_bytes,
            row_count,
            fed_bytes: 0,
            next: 0,
            number: 0,
            rows: 0,
            carried: Vec::new(),
        }
    }

    /// Takes the next bytes of the chunk.
    ///
    /// # Errors
    ///
    /// The number of the page and what is wrong with it, in words.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), PageFault> {
        let first = self.fed_bytes;
        self.fed_bytes += bytes.len();
        if self.row_count == 0 {
            // Footers of some writers do not say where the pages of such a chunk are.
            return Ok(());
        }
        while self.next < self.fed_bytes {
            let joined;
            let rest = if self.carried.is_empty() {
                bytes.get(self.next - first..).unwrap_or_default()
            } else {
                joined = [std::mem::take(&mut self.carried).as_slice(), bytes].concat();
                &joined
            };
            match PageHeader::parse(rest) {
                Ok((header, header_bytes)) => self.add(header, header_bytes)?,
                Err(_) if self.fed_bytes < self.chunk_bytes && rest.len() < HEADER_BYTES_MAX => {
                    self.carried = rest.to_vec();
                    return Ok(());
                }
                Err(reason) => return Err((self.number, reason)),
            }
        }
        Ok(())
    }

    /// Passes over the rest of a page whose header has come. Says where the bytes start that are wanted next;
    /// `None` if all headers have come.
    pub fn skip_body(&mut self) -> Option<usize> {
        self.fed_bytes = self.fed_bytes.max(self.next);
        (self.fed_bytes < self.chunk_bytes && self.row_count > 0).then_some(self.fed_bytes)
    }

    fn add(&mut self, header: PageHeader, header_bytes: usize) -> Result<(), PageFault> {
        let (start, number) = (self.next, self.number);
        let body_start = start + header_bytes;
        let body_end = body_start + header.compressed_bytes as usize;
        if body_end > self.chunk_bytes {
            return Err((number, ENDS_AFTER_CHUNK));
        }
        let body = body_start..body_end;
        let page = ListedPage { number, start, body, header, first_row: self.rows, row_count: 0 };
        match header.kind {
            PageKind::Dictionary { value_count, .. } => {
                if number != 0 {
                    return Err((number, "a dictionary page follows other pages"));
                }
                self.list.dictionary = Some(ListedPage { row_count: value_count, ..page });
            }
            PageKind::DataV1 { value_count, .. } | PageKind::DataV2 { value_count, .. } => {
                if value_count > self.row_count - self.rows {
                    return Err((number, TOO_MANY_VALUES));
                }
                self.rows += value_count;
                if value_count > 0 {
                    self.list.data.push(ListedPage { row_count: value_count, ..page });
                }
            }
            PageKind::Index => {}
        }
        self.next = body_end;
        self.number += 1;
        Ok(())
    }

    /// The pages, when all bytes have come.
    ///
    /// # Errors
    ///
    /// As of [`PageWalk::feed`].
    pub fn finish(self) -> Result<PageList, PageFault> {
        if self.rows < self.row_count {
            return Err((self.number, "a column has fewer values than its row group has rows"));
        }
        Ok(self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page V1 of plain values, without statistics.
    fn page(value_count: u8, body: &[u8]) -> Vec<u8> {
        let zigzag = |value: usize| (value * 2) as u8;
        let length = zigzag(body.len());
        let data = [0x15, zigzag(value_count.into()), 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, 0x00];
        let header = [&[0x15, 0x00, 0x15, length, 0x15, length, 0x2c], data.as_slice(), &[0x00]].concat();
        [header, body.to_vec()].concat()
    }

    fn list(chunk: &[u8], row_count: u32) -> PageList {
        let mut walk = PageWalk::new(chunk.len(), row_count);
        walk.feed(chunk).unwrap();
        walk.finish().unwrap()
    }

    #[test]
    fn parts_of_any_length_give_the_pages_of_the_whole() {
        let chunk = [page(3, &[7; 20]), page(2, &[8; 5]), page(4, &[]), page(1, &[9; 33])].concat();
        let whole = list(&chunk, 10);
        assert_eq!(whole.data.iter().map(|page| page.row_count).collect::<Vec<_>>(), [3, 2, 4, 1]);
        for part_bytes in 1..chunk.len() {
            let mut walk = PageWalk::new(chunk.len(), 10);
            chunk.chunks(part_bytes).for_each(|part| walk.feed(part).unwrap());
            assert_eq!(format!("{:?}", walk.finish().unwrap()), format!("{whole:?}"), "{part_bytes}");
        }
    }

    #[test]
    fn headers_without_bodies_give_the_pages_of_the_whole() {
        let chunk = [page(3, &[7; 20]), page(2, &[8; 5]), page(4, &[]), page(1, &[9; 33])].concat();
        let whole = list(&chunk, 10);
        for read_bytes in 1..chunk.len() {
            let mut walk = PageWalk::new(chunk.len(), 10);
            let mut bytes_read = 0;
            while let Some(start) = walk.skip_body() {
                let part = &chunk[start..(start + read_bytes).min(chunk.len())];
                bytes_read += part.len();
                walk.feed(part).unwrap();
            }
            assert!(read_bytes > 20 || bytes_read < chunk.len(), "{read_bytes}");
            assert_eq!(format!("{:?}", walk.finish().unwrap()), format!("{whole:?}"), "{read_bytes}");
        }
    }

    #[test]
    fn a_header_that_the_chunk_cuts_off_is_corrupt() {
        let chunk = [page(3, &[7; 20]), page(2, &[])].concat();
        let cut = &chunk[..chunk.len() - 1];
        let mut walk = PageWalk::new(cut.len(), 5);
        let fed: Result<(), PageFault> = cut.chunks(4).try_for_each(|part| walk.feed(part));
        assert_eq!(fed.unwrap_err().0, 1);
    }
}
