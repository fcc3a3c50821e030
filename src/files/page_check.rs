//! The pages of a column chunk for the CPU engine's reader, which takes numbers from them that can't be true, reads other
//! bytes by them than the page's, reserves whatever they announce, and reads some forms otherwise than the format says.
//!
//! Invariants: what a page gives, or the error, is the GPU engine's, whose kernels check their own reads.
//!
//! Source: Parquet's Encodings.md; PARQUET-246 (beginnings that are longer than the text before).

use std::{borrow::Cow, io::Read, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::{CompressionCodec, Encoding, Type as PhysicalType},
    column::page::{Page, PageMetadata, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::{metadata::ColumnChunkMetaData, reader::ChunkReader, serialized_reader::SerializedPageReader},
    schema::types::ColumnDescPtr,
};

use crate::{
    PageLocation,
    deltas::{NOT_ITS_BYTES, after_deltas, check_prefixes, delta_count, read_deltas},
    levels::{count_values, level_bits, packed_as_runs},
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

/// Pages of a chunk as the CPU engine's reader can take them apart: it gives other values than the page's for some of
/// what the format allows, and any values for some of what it does not.
///
/// - What is wrong with values or levels that the reader does not look at is an error.
/// - Packed levels become runs, differences of more than 32 bits of an INT32 plain values, and a page without a value's byte
///   a plain one.
/// - Nanoseconds of an INT96 below zero become microseconds that are rounded down, as nanoseconds of other types are.
/// - LZ4 of several frames is decompressed here.
pub struct CheckedPages<R: ChunkReader> {
    pages: SerializedPageReader<R>,
    column: ColumnDescPtr,
    /// What pages take when they are decompressed here.
    decompressed_bytes: Option<std::vec::IntoIter<u32>>,
}

impl<R: ChunkReader> CheckedPages<R> {
    /// The pages of a chunk of a row group of so many rows. LZ4 is decompressed here where it is known what [`check_pages`]
    /// has found, and by the reader where it is not. Where the places of data pages are known, pages that are skipped need
    /// not be there.
    ///
    /// # Errors
    ///
    /// Those of the reader.
    pub fn new(
        chunk: Arc<R>,
        metadata: &ColumnChunkMetaData,
        row_count: usize,
        known: Option<(&[PageSize], Option<&[PageLocation]>)>,
    ) -> ParquetResult<Self> {
        let column = metadata.column_descr_ptr();
        let location = |page: &PageLocation| {
            Ok(parquet::file::page_index::offset_index::PageLocation {
                offset: i64::try_from(page.offset)?,
                compressed_page_size: i32::try_from(page.page_bytes)?,
                first_row_index: i64::try_from(page.first_row)?,
            })
        };
        let locations = known.and_then(|(_, locations)| locations);
        let locations = locations.map(|pages| pages.iter().map(location).collect::<ParquetResult<Vec<_>>>());
        let locations = locations.transpose()?;
        let is_lz4 = metadata.compression_codec() == CompressionCodec::LZ4;
        let Some((pages, _)) = known.filter(|_| is_lz4) else {
            let pages = SerializedPageReader::new(chunk, metadata, row_count, locations)?;
            return Ok(Self { pages, column, decompressed_bytes: None });
        };
        let encoded = metadata.clone().into_builder();
        let encoded = encoded.set_compression_codec(CompressionCodec::UNCOMPRESSED).build()?;
        let decompressed_bytes: Vec<u32> = pages.iter().map(|page| page.decompressed_bytes).collect();
        let pages = SerializedPageReader::new(chunk, &encoded, row_count, locations)?;
        Ok(Self { pages, column, decompressed_bytes: Some(decompressed_bytes.into_iter()) })
    }

    fn checked(&self, page: Page) -> Result<Page, &'static str> {
        let column = CheckedColumn {
            physical: self.column.physical_type(),
            length: usize::try_from(self.column.type_length()).unwrap_or(0),
            definition_max: self.column.max_def_level(),
            repetition_max: self.column.max_rep_level(),
        };
        match page {
            Page::DictionaryPage { buf, num_values, encoding, is_sorted } => {
                let buf = column.rounded_down(&buf).map_or(buf, Bytes::from);
                Ok(Page::DictionaryPage { buf, num_values, encoding, is_sorted })
            }
            Page::DataPage { .. } => column.checked_v1(page),
            Page::DataPageV2 { .. } => column.checked_v2(page),
        }
    }

    /// A page as its header says it is, if it is decompressed here.
    fn decompressed(&mut self, page: Page) -> Result<Page, &'static str> {
        let Some(sizes) = &mut self.decompressed_bytes else { return Ok(page) };
        let page_bytes = sizes.next().ok_or("it was not announced")? as usize;
        match page {
            Page::DictionaryPage { buf, num_values, encoding, is_sorted } => {
                let buf = decompress_lz4(&buf, page_bytes)?.into();
                Ok(Page::DictionaryPage { buf, num_values, encoding, is_sorted })
            }
            Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding,
                rep_level_encoding,
                statistics,
            } => {
                let buf = decompress_lz4(&buf, page_bytes)?.into();
                Ok(Page::DataPage {
                    buf,
                    num_values,
                    encoding,
                    def_level_encoding,
                    rep_level_encoding,
                    statistics,
                })
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls,
                num_rows,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                statistics,
            } => {
                let levels_bytes = def_levels_byte_len as usize + rep_levels_byte_len as usize;
                let buf = match is_compressed {
                    false => buf,
                    true => {
                        let (levels, values) = buf.split_at_checked(levels_bytes).ok_or(LEVELS_TOO_LONG)?;
                        let values_bytes = page_bytes.checked_sub(levels_bytes).ok_or(LEVELS_TOO_LONG)?;
                        [levels, &decompress_lz4(values, values_bytes)?].concat().into()
                    }
                };
                Ok(Page::DataPageV2 {
                    buf,
                    num_values,
                    encoding,
                    num_nulls,
                    num_rows,
                    def_levels_byte_len,
                    rep_levels_byte_len,
                    is_compressed: false,
                    statistics,
                })
            }
        }
    }
}

const LEVELS_TOO_LONG: &str = "its levels are longer than the page";

/// What must be known of a column to check its pages.
#[derive(Clone, Copy)]
struct CheckedColumn {
    physical: PhysicalType,
    /// Bytes of a value of `FIXED_LEN_BYTE_ARRAY`.
    length: usize,
    definition_max: i16,
    repetition_max: i16,
}

/// What a page's values become.
enum CheckedValues {
    /// They stay.
    Same,
    /// They are plain, and others or none.
    Plain(Vec<u8>),
}

impl CheckedColumn {
    #[expect(deprecated, reason = "older files have packed levels")]
    fn checked_v1(self, page: Page) -> Result<Page, &'static str> {
        let Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics } =
            page
        else {
            return Ok(page);
        };
        let kinds = [(self.repetition_max, rep_level_encoding), (self.definition_max, def_level_encoding)];
        let mut levels = Vec::new();
        let (mut rest, mut is_packed) = (&buf[..], false);
        for (level_max, encoding) in kinds {
            let after = after_levels(rest, level_max, encoding, num_values).ok_or(LEVELS_TOO_LONG)?;
            let own = &rest[..rest.len() - after.len()];
            rest = after;
            if level_max > 0 && encoding == Encoding::BIT_PACKED {
                is_packed = true;
                let runs = packed_as_runs(own, level_bits(level_max), num_values).ok_or(NOT_ITS_BYTES)?;
                levels.push(Cow::Owned(runs));
            } else {
                levels.push(Cow::Borrowed(own));
            }
        }
        let definitions = levels.last().and_then(|levels| levels.get(4..)).unwrap_or_default();
        let values = self.check_values(rest, encoding, (num_values, definitions))?;
        let (encoding, values) = match values {
            CheckedValues::Same => (encoding, None),
            CheckedValues::Plain(values) => (Encoding::PLAIN, Some(values)),
        };
        let buf = match (is_packed, &values) {
            (false, None) => buf.clone(),
            _ => [levels.concat().as_slice(), values.as_deref().unwrap_or(rest)].concat().into(),
        };
        let of_runs = |encoding| if encoding == Encoding::BIT_PACKED { Encoding::RLE } else { encoding };
        Ok(Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding: of_runs(def_level_encoding),
            rep_level_encoding: of_runs(rep_level_encoding),
            statistics,
        })
    }

    fn checked_v2(self, mut page: Page) -> Result<Page, &'static str> {
        let Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            def_levels_byte_len,
            rep_levels_byte_len,
            is_compressed,
            ..
        } = &mut page
        else {
            return Ok(page);
        };
        let repetition_bytes = *rep_levels_byte_len as usize;
        let levels_bytes = *def_levels_byte_len as usize + repetition_bytes;
        let (levels, values) = buf.split_at_checked(levels_bytes).ok_or(LEVELS_TOO_LONG)?;
        let definitions = &levels[repetition_bytes..];
        if let CheckedValues::Plain(plain) =
            self.check_values(values, *encoding, (*num_values, definitions))?
        {
            let mended = [levels, &plain].concat();
            (*buf, *encoding, *is_compressed) = (mended.into(), Encoding::PLAIN, false);
        }
        Ok(page)
    }

    /// Checks the values of a page of so many levels, and the runs of its definition levels.
    fn check_values(
        self,
        values: &[u8],
        encoding: Encoding,
        (level_count, definitions): (u32, &[u8]),
    ) -> Result<CheckedValues, &'static str> {
        use PhysicalType::{FIXED_LEN_BYTE_ARRAY, INT32, INT64};
        if values.is_empty() && encoding != Encoding::PLAIN {
            // All of them are NULL, and of indexes not even the width is there.
            return Ok(CheckedValues::Plain(Vec::new()));
        }
        let value_count = || match self.definition_max {
            0 => Some(level_count),
            level_max => count_values(definitions, level_max, level_count),
        };
        match (encoding, self.physical) {
            (Encoding::PLAIN, PhysicalType::INT96) => {
                Ok(self.rounded_down(values).map_or(CheckedValues::Same, CheckedValues::Plain))
            }
            (Encoding::BYTE_STREAM_SPLIT, physical) => {
                let value_bytes = match physical {
                    INT64 | PhysicalType::DOUBLE => 8,
                    FIXED_LEN_BYTE_ARRAY => self.length.max(1),
                    _ => 4,
                };
                let has_all = |wanted: u32| wanted as usize <= values.len() / value_bytes;
                is_or(values.len().is_multiple_of(value_bytes) && value_count().is_none_or(has_all))
            }
            (Encoding::DELTA_BINARY_PACKED, physical) => {
                let (count, is_narrow) = delta_count(values, level_count)?;
                if value_count().is_some_and(|wanted| u64::from(wanted) != count && wanted > 0) {
                    return Err(NOT_ITS_BYTES);
                }
                if is_narrow || physical != INT32 {
                    return Ok(CheckedValues::Same);
                }
                let (values, _) = read_deltas(values, level_count)?;
                Ok(CheckedValues::Plain(
                    values.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect(),
                ))
            }
            (Encoding::DELTA_LENGTH_BYTE_ARRAY, _) => {
                let (count, _) = delta_count(values, level_count)?;
                is_or(value_count().is_none_or(|wanted| u64::from(wanted) == count || wanted == 0))
            }
            (Encoding::DELTA_BYTE_ARRAY, _) => match value_count() {
                Some(0) => Ok(CheckedValues::Same),
                Some(wanted) => check_prefixes(values, wanted).map(|()| CheckedValues::Same),
                // The reader says what is wrong with the levels.
                None => after_deltas(values, level_count)
                    .and_then(|rest| after_deltas(rest, level_count))
                    .map(|_| CheckedValues::Same),
            },
            _ => Ok(CheckedValues::Same),
        }
    }

    /// Plain values of INT96 whose nanoseconds are whole microseconds where they are below zero: the reader rounds towards
    /// zero. `None` if they are so already.
    fn rounded_down(self, values: &[u8]) -> Option<Vec<u8>> {
        const VALUE_BYTES: usize = 12;
        let nanoseconds = |value: &[u8]| value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let is_changed = |value: &[u8]| nanoseconds(value) < 0 && nanoseconds(value) % 1000 != 0;
        if self.physical != PhysicalType::INT96 || !values.chunks_exact(VALUE_BYTES).any(is_changed) {
            return None;
        }
        let mut rounded = values.to_vec();
        for value in rounded.chunks_exact_mut(VALUE_BYTES).filter(|value| is_changed(value)) {
            let microseconds = nanoseconds(value).div_euclid(1000);
            // The least number of 64 bits is no whole microsecond, and no moment of any calendar.
            let whole = microseconds.checked_mul(1000).unwrap_or(i64::MIN);
            value[..size_of::<i64>()].copy_from_slice(&whole.to_le_bytes());
        }
        Some(rounded)
    }
}

fn is_or(fits: bool) -> Result<CheckedValues, &'static str> {
    if fits { Ok(CheckedValues::Same) } else { Err(NOT_ITS_BYTES) }
}

/// LZ4 as Hadoop frames it, else as LZ4 does, else without a frame, as other readers try.
fn decompress_lz4(bytes: &[u8], decompressed_bytes: usize) -> Result<Vec<u8>, &'static str> {
    if decompressed_bytes == 0 {
        return Ok(Vec::new());
    }
    let as_frame = || {
        let mut target = Vec::new();
        let mut source = lz4_flex::frame::FrameDecoder::new(bytes).take(decompressed_bytes as u64 + 1);
        source.read_to_end(&mut target).ok().map(|_| target)
    };
    let as_block = || lz4_flex::block::decompress(bytes, decompressed_bytes).ok();
    let candidates: [&dyn Fn() -> Option<Vec<u8>>; 3] =
        [&|| decompress_frames(bytes, decompressed_bytes), &as_frame, &as_block];
    let found = candidates
        .iter()
        .find_map(|decompress| decompress().filter(|target| target.len() == decompressed_bytes));
    found.ok_or("it does not decompress")
}

/// Frames of Hadoop's: each after what it decompresses to and how long it is. `None` if they are none.
fn decompress_frames(bytes: &[u8], decompressed_bytes: usize) -> Option<Vec<u8>> {
    let (mut rest, mut target) = (bytes, vec![0; decompressed_bytes]);
    let mut done = 0_usize;
    while !rest.is_empty() {
        let (lengths, frame) = rest.split_at_checked(8)?;
        let length = |place: usize| {
            lengths[place..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)) as usize
        };
        let (frame, after) = frame.split_at_checked(length(4))?;
        let part = target.get_mut(done..done.checked_add(length(0))?)?;
        if lz4_flex::block::decompress_into(frame, part).ok()? != part.len() {
            return None;
        }
        done += length(0);
        rest = after;
    }
    (done == decompressed_bytes).then_some(target)
}

impl<R: ChunkReader> PageReader for CheckedPages<R> {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        let checked = self.decompressed(page).and_then(|page| self.checked(page));
        checked.map(Some).map_err(|reason| ParquetError::General(reason.to_owned()))
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        if let Some(sizes) = &mut self.decompressed_bytes {
            sizes.next();
        }
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}

impl<R: ChunkReader> Iterator for CheckedPages<R> {
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
    let levels_bytes = match encoding {
        Encoding::BIT_PACKED => (u64::from(value_count) * u64::from(level_bits(level_max))).div_ceil(8),
        _ => 4 + u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
    };
    bytes.get(usize::try_from(levels_bytes).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Vec<u8> {
        let block = lz4_flex::block::compress(bytes);
        let lengths = [bytes.len(), block.len()].map(|length| (length as u32).to_be_bytes()).concat();
        [lengths, block].concat()
    }

    #[test]
    fn frames_of_any_number_and_size_are_decompressed() {
        let noise: Vec<u8> = (0..400_u32).map(|place| (place * place % 251) as u8).collect();
        let (small, large) = (&noise[..20], &noise[20..]);
        for parts in [vec![&noise[..]], vec![small, large], vec![large, small], vec![small, large, small]] {
            let (whole, frames) =
                (parts.concat(), parts.iter().flat_map(|part| frame(part)).collect::<Vec<u8>>());
            assert_eq!(decompress_lz4(&frames, whole.len()), Ok(whole.clone()));
            assert!(decompress_lz4(&frames[..frames.len() - 1], whole.len()).is_err());
            assert!(decompress_lz4(&frames, whole.len() - 1).is_err());
        }
        // Without frames, as older releases of Arrow wrote it.
        assert_eq!(decompress_lz4(&lz4_flex::block::compress(&noise), noise.len()), Ok(noise));
    }

    #[test]
    fn moments_before_a_day_are_rounded_down() {
        let column = |physical| CheckedColumn { physical, length: 0, definition_max: 0, repetition_max: 0 };
        let value = |nanoseconds: i64| [&nanoseconds.to_le_bytes()[..], &7_u32.to_le_bytes()].concat();
        let stored = [-1, -1000, -1001, 1, i64::MIN + 808].map(value).concat();
        let rounded = [-1000, -1000, -2000, 1, i64::MIN + 808].map(value).concat();
        assert_eq!(column(PhysicalType::INT96).rounded_down(&stored), Some(rounded.clone()));
        assert_eq!(column(PhysicalType::INT96).rounded_down(&rounded), None);
        assert_eq!(column(PhysicalType::INT64).rounded_down(&stored), None);
    }
}
