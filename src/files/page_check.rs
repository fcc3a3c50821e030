//! Checks the pages of a column chunk before the parquet crate decodes them. The crate believes impossible numbers in them,
//! reads bytes outside of the page by them, and reserves as much memory as they announce.
//!
//! Source: Parquet's Encodings.md, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY.

use parquet::{
    basic::Encoding,
    column::page::{Page, PageMetadata, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::metadata::ColumnChunkMetaData,
    schema::types::ColumnDescPtr,
};

use crate::{
    compact_protocol::CompactWalk,
    page_header::{PageHeader, PageKind},
    page_list::{ENDS_AFTER_CHUNK, PageFault, TOO_MANY_VALUES},
};

/// A page with values, or a dictionary, before it is decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Its place among the chunk's pages.
    pub number: usize,
    /// Whether it stays for the pages that follow.
    pub is_dictionary: bool,
    /// What decompressing it takes; 0 if it is not compressed.
    pub decompressed_bytes: u32,
}

/// Checks the headers of a chunk's pages up to the last that has values, and says what these pages take. `bytes` are those
/// of the whole chunk, `row_count` the rows of its row group.
///
/// # Errors
///
/// The number of a page, the dictionary counted, and what is wrong with it, in words. Too few pages are none of them.
pub fn check_pages(
    bytes: &[u8],
    chunk: &ColumnChunkMetaData,
    row_count: u64,
) -> Result<Vec<PageSize>, PageFault> {
    let is_flat = chunk.column_descr().max_rep_level() == 0;
    let value_count = match is_flat {
        true => row_count,
        false => u64::try_from(chunk.num_values()).unwrap_or(0),
    };
    let (mut rest, mut values, mut number) = (bytes, 0_u64, 0);
    let mut pages = Vec::new();
    while values < value_count && !rest.is_empty() {
        let (header, header_bytes) = PageHeader::parse(rest).map_err(|reason| (number, reason))?;
        let page_bytes = header_bytes + header.compressed_bytes as usize;
        rest = rest.get(page_bytes..).ok_or((number, ENDS_AFTER_CHUNK))?;
        values += u64::from(header.value_count().unwrap_or(0));
        if values > value_count {
            return Err((number, TOO_MANY_VALUES));
        }
        header.check_sizes(chunk).map_err(|reason| (number, reason))?;
        if header.kind != PageKind::Index {
            let is_dictionary = matches!(header.kind, PageKind::Dictionary { .. });
            pages.push(PageSize {
                number,
                is_dictionary,
                decompressed_bytes: header.decompressed_bytes(chunk),
            });
        }
        number += 1;
    }
    Ok(pages)
}

/// Pages, of which a reader takes apart only what they have.
pub struct CheckedPages<P> {
    pages: P,
    column: ColumnDescPtr,
}

impl<P: PageReader> CheckedPages<P> {
    /// The pages of a column's chunk.
    pub fn new(pages: P, column: ColumnDescPtr) -> Self {
        Self { pages, column }
    }

    fn check(&self, page: &Page) -> Result<(), &'static str> {
        let (values, value_count, encoding) = match page {
            Page::DictionaryPage { .. } => return Ok(()),
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                let levels = [
                    (self.column.max_rep_level(), *rep_level_encoding),
                    (self.column.max_def_level(), *def_level_encoding),
                ];
                let values = levels.into_iter().try_fold(&buf[..], |rest, (level_max, encoding)| {
                    after_levels(rest, level_max, encoding, *num_values)
                });
                (values, *num_values, *encoding)
            }
            Page::DataPageV2 {
                buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let levels_bytes = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                (buf.get(levels_bytes..), *num_values, *encoding)
            }
        };
        let values = values.ok_or("its levels are longer than the page")?;
        match encoding {
            // All of them are NULL.
            _ if values.is_empty() => Ok(()),
            Encoding::DELTA_LENGTH_BYTE_ARRAY => after_deltas(values, value_count).map(|_| ()),
            Encoding::DELTA_BYTE_ARRAY => {
                after_deltas(values, value_count).and_then(|rest| after_deltas(rest, value_count)).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

impl<P: PageReader> PageReader for CheckedPages<P> {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.get_next_page()?;
        let check = page.iter().try_for_each(|page| self.check(page));
        check.map_err(|reason| ParquetError::General(reason.to_owned()))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}

impl<P: PageReader> Iterator for CheckedPages<P> {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// What follows the levels of one kind in a page V1; `None` if they are longer than it.
#[expect(deprecated, reason = "older files have packed levels")]
fn after_levels(bytes: &[u8], level_max: i16, encoding: Encoding, value_count: u32) -> Option<&[u8]> {
    if level_max == 0 {
        return Some(bytes);
    }
    let level_bits = i16::BITS - level_max.leading_zeros();
    let levels_bytes = match encoding {
        Encoding::BIT_PACKED => (u64::from(value_count) * u64::from(level_bits)).div_ceil(8),
        _ => 4 + u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
    };
    bytes.get(usize::try_from(levels_bytes).ok()?..)
}

/// What follows differences, of which there may be as many as a page has values.
fn after_deltas(bytes: &[u8], value_count: u32) -> Result<&[u8], &'static str> {
    let mut walk = CompactWalk { rest: bytes };
    let [block_values, block_parts, delta_count, _first] =
        [walk.unsigned()?, walk.unsigned()?, walk.unsigned()?, walk.unsigned()?];
    if delta_count > u64::from(value_count) {
        return Err("it announces more values than it has");
    }
    let part_values = block_values.checked_div(block_parts).filter(|values| *values > 0);
    let part_values = part_values.ok_or("it has blocks without values")?;
    let mut left = delta_count.saturating_sub(1);
    while left > 0 {
        let _least = walk.unsigned()?;
        let widths = walk.take(block_parts)?;
        for width in widths.iter().take(usize::try_from(left.div_ceil(part_values)).unwrap_or(usize::MAX)) {
            walk.take(part_values.saturating_mul(u64::from(*width)).div_ceil(8))?;
            left = left.saturating_sub(part_values);
        }
    }
    Ok(walk.rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    /// Differences in blocks of 128 with four parts; all differences of a part take `width` bits.
    fn deltas(delta_count: u64, width: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        [128, 4, delta_count, 7].into_iter().for_each(|value| number(&mut bytes, value));
        let mut left = delta_count.saturating_sub(1);
        while left > 0 {
            bytes.extend([2, width, width, width, width]);
            for _ in 0..left.div_ceil(32).min(4) {
                bytes.extend(vec![0xa5; usize::from(width) * 4]);
                left = left.saturating_sub(32);
            }
        }
        bytes
    }

    #[test]
    fn differences_end_where_their_last_part_does() {
        for delta_count in [0, 1, 2, 33, 34, 128, 129, 130, 500] {
            for width in [0, 1, 7, 32] {
                let bytes = [deltas(delta_count, width), vec![1, 2, 3]].concat();
                assert_eq!(after_deltas(&bytes, 500), Ok(&[1, 2, 3][..]), "{delta_count} of {width} bits");
                for end in 0..bytes.len() - 3 {
                    assert!(after_deltas(&bytes[..end], 500).is_err(), "{delta_count} of {width}: {end}");
                }
            }
        }
    }

    #[test]
    fn differences_that_announce_more_than_the_page_are_refused() {
        assert!(after_deltas(&deltas(100, 3), 100).is_ok());
        assert_eq!(after_deltas(&deltas(101, 3), 100), Err("it announces more values than it has"));
        let mut bytes = Vec::new();
        [128, 4, 1 << 40, 7].into_iter().for_each(|value| number(&mut bytes, value));
        assert_eq!(after_deltas(&bytes, 100), Err("it announces more values than it has"));
        for blocks in [[128, 0], [0, 4], [3, 4]] {
            let mut bytes = Vec::new();
            [blocks[0], blocks[1], 2, 7].into_iter().for_each(|value| number(&mut bytes, value));
            assert_eq!(after_deltas(&bytes, 100), Err("it has blocks without values"), "{blocks:?}");
        }
    }
}
