//! Values of any length: text, varchar, char(n), json and bytea.
//!
//! The values of a block lie in one buffer, each with the length word that PostgreSQL expects: one byte
//! up to 126 bytes of content, four bytes, aligned, above.
#![expect(unsafe_code, reason = "lays values out, and counts characters with PostgreSQL's function")]

use std::{borrow::Cow, ops::Range};

use arrow_array::Array;
use pgrx::pg_sys::{self, Datum};
use pystachio_plan::{Error, ErrorKind, Result};

use super::block::Cells;
use crate::pg::encoding;

/// Content of a value with a length word of one byte.
const SHORT_BYTES_MAX: usize = 126;
const LONG_HEADER_BYTES: usize = 4;
/// The most bytes of a value that PostgreSQL can hold.
const VALUE_BYTES_MAX: usize = (1 << 30) - 1 - LONG_HEADER_BYTES;

/// The memory of a column's values.
#[derive(Default)]
pub struct TextScratch {
    words: Vec<u64>,
}

impl TextScratch {
    /// Room for this many words.
    pub fn words(&mut self, count: usize) -> &mut [u64] {
        if self.words.len() < count {
            self.words.resize(count, 0);
        }
        &mut self.words[..count]
    }

    fn bytes(&mut self, count: usize) -> &mut [u8] {
        let words = self.words(count.div_ceil(8));
        // SAFETY: words are bytes too, eight each.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * words.len()) }
    }
}

/// Text, padded with blanks to `pad_to` characters if that is given.
///
/// # Errors
///
/// `InvalidText` for a zero byte, which PostgreSQL's text can't hold.
pub fn fill_text<'a>(
    array: &dyn Array,
    value: impl Fn(usize) -> &'a [u8],
    pad_to: Option<usize>,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) -> Result<()> {
    if encoding::has_same_bytes() && pad_to.is_none() {
        let (text_bytes, short_only) = fill_plain(array, &value, rows.clone(), cells, scratch)?;
        // In short values no length byte is zero, so one search over all of them is enough.
        let has_zero = if short_only {
            scratch.bytes(text_bytes)[..text_bytes].contains(&0)
        } else {
            rows.into_iter().any(|row| !array.is_null(row) && value(row).contains(&0))
        };
        return if has_zero { Err(zero_byte()) } else { Ok(()) };
    }
    let converted = |row: usize| {
        let mut text = encoding::to_server(value(row))?;
        if let Some(pad_to) = pad_to {
            let length = character_count(&text);
            if length < pad_to {
                let padded_bytes = text.len() + pad_to - length;
                text.to_mut().resize(padded_bytes, b' ');
            }
        }
        if text.contains(&0) { Err(zero_byte()) } else { Ok(text) }
    };
    let start = rows.start;
    let texts: Vec<Cow<'_, [u8]>> = rows
        .clone()
        .map(|row| if array.is_null(row) { Ok(Cow::Borrowed(&[][..])) } else { converted(row) })
        .collect::<Result<_>>()?;
    fill_plain(array, |row| &texts[row - start], rows, cells, scratch)?;
    Ok(())
}

/// Bytes as they are.
///
/// # Errors
///
/// `StringTooLong` for a value of a gigabyte.
pub fn fill_bytes<'a>(
    array: &dyn Array,
    value: impl Fn(usize) -> &'a [u8],
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) -> Result<()> {
    fill_plain(array, value, rows, cells, scratch).map(drop)
}

/// Lays the values out, and returns how many bytes they take and whether all length words have one byte.
fn fill_plain<'a>(
    array: &dyn Array,
    value: impl Fn(usize) -> &'a [u8],
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) -> Result<(usize, bool)> {
    let mut needed_bytes = 0;
    for row in rows.clone() {
        if !array.is_null(row) {
            needed_bytes += value(row).len() + 2 * LONG_HEADER_BYTES;
        }
    }
    let bytes = scratch.bytes(needed_bytes);
    let mut end = 0usize;
    let mut short_only = true;
    cells.try_fill(array, rows, |row| {
        let content = value(row);
        let header_bytes = if content.len() <= SHORT_BYTES_MAX { 1 } else { LONG_HEADER_BYTES };
        if header_bytes == LONG_HEADER_BYTES {
            short_only = false;
            end = end.next_multiple_of(LONG_HEADER_BYTES);
            if content.len() > VALUE_BYTES_MAX {
                let message = format!("value has too many bytes: {}, limit {VALUE_BYTES_MAX}", content.len());
                return Err(Error::new(ErrorKind::StringTooLong, message));
            }
        }
        let target = &mut bytes[end..end + header_bytes + content.len()];
        if header_bytes == 1 {
            target[0] = ((content.len() + 1) << 1) as u8 | 1;
        } else {
            let length = ((content.len() + LONG_HEADER_BYTES) << 2) as u32;
            target[..LONG_HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        }
        target[header_bytes..].copy_from_slice(content);
        end += target.len();
        Ok(Datum::from(target.as_ptr()))
    })?;
    Ok((end, short_only))
}

fn character_count(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    // SAFETY: the text has that length.
    unsafe { pg_sys::pg_mbstrlen_with_len(text.as_ptr().cast(), text.len() as i32) }.unsigned_abs() as usize
}

fn zero_byte() -> Error {
    Error::new(ErrorKind::InvalidText, "invalid byte sequence for encoding \"UTF8\": 0x00")
        .with_detail("A text in the Parquet files has a zero byte, which PostgreSQL's text can't hold.")
        .with_hint("Declare the column as bytea.")
}
