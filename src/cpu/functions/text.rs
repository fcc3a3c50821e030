//! Text functions. Positions and lengths count characters.
//!
//! Source: PostgreSQL 15, `varlena.c` (`text_substring`, `text_position`, `replace_text`, `text_left`,
//! `text_right`) and `oracle_compat.c` (`dotrim`).

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::{
        ArrayRef, AsArray, BinaryViewBuilder, BooleanArray, Int32Array, StringViewArray, StringViewBuilder,
    },
    datatypes::{DataType as ArrowType, Int32Type},
};
use memchr::memmem;
use pystachio_engine::{
    CaseMap,
    text_order::{Scratch, TextOrder, text_of_key},
};
use pystachio_plan::{Error, ErrorKind, Result, TrimSide};

use super::{invocation::Invocation, lanes::TextLanes};

/// `upper` or `lower`, whichever the table is of.
///
/// # Errors
///
/// `Internal` for an argument that is no text.
pub(super) fn change_case(map: &CaseMap, call: &Invocation<'_>) -> Result<ArrayRef> {
    let text = call.text(0)?;
    let mut changed = String::new();
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        match text.get(row) {
            Some(text) => {
                changed.clear();
                map.append(text, &mut changed);
                builder.append_value(&changed);
            }
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The key of a text in an order.
///
/// # Errors
///
/// `Internal` for an argument that is no text, and if there is no memory for a key.
pub(super) fn sort_key(order: &TextOrder, call: &Invocation<'_>) -> Result<ArrayRef> {
    let text = call.text(0)?;
    let (mut scratch, mut key) = (Scratch::default(), Vec::new());
    let mut builder = BinaryViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        match text.get(row) {
            Some(text) => {
                key.clear();
                order.append_key(text, &mut scratch, &mut key)?;
                builder.append_value(&key);
            }
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The text of such a key.
///
/// # Errors
///
/// `Internal` for bytes that are no key.
pub(super) fn text_of_sort_key(call: &Invocation<'_>) -> Result<ArrayRef> {
    let keys = call.bytes(0)?;
    let texts = (0..call.rows).map(|row| keys.get(row).map(text_of_key).transpose());
    Ok(Arc::new(texts.collect::<Result<StringViewArray>>()?))
}

fn map(call: &Invocation<'_>, convert: impl for<'t> Fn(&'t str) -> Cow<'t, str>) -> Result<ArrayRef> {
    let text = call.text(0)?;
    let rows = (0..call.rows).map(|row| text.get(row).map(&convert));
    Ok(Arc::new(collect(call.rows, rows)))
}

fn zip(
    call: &Invocation<'_>,
    convert: impl for<'t> Fn(&'t str, &'t str) -> Cow<'t, str>,
) -> Result<ArrayRef> {
    let (a, b) = (call.text(0)?, call.text(1)?);
    let rows = (0..call.rows).map(|row| Some(convert(a.get(row)?, b.get(row)?)));
    Ok(Arc::new(collect(call.rows, rows)))
}

fn slice(call: &Invocation<'_>, convert: impl for<'t> Fn(&'t str, i32) -> &'t str) -> Result<ArrayRef> {
    let (text, counts) = (call.text(0)?, call.lanes::<Int32Type>(1)?);
    let rows = (0..call.rows).map(|row| Some(Cow::Borrowed(convert(text.get(row)?, counts.get(row)?))));
    Ok(Arc::new(collect(call.rows, rows)))
}

fn collect<'t>(row_count: usize, rows: impl Iterator<Item = Option<Cow<'t, str>>>) -> StringViewArray {
    let mut builder = StringViewBuilder::with_capacity(row_count);
    for row in rows {
        builder.append_option(row);
    }
    builder.finish()
}

fn measure(call: &Invocation<'_>, length: impl Fn(&str) -> usize) -> Result<ArrayRef> {
    // No value has more than 2^31 - 1 bytes: Arrow's views could not hold it.
    let count = |length: usize| length as i32;
    let lengths: Int32Array = match call.arrow_type(0)? {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => {
            let text = call.text(0)?;
            (0..call.rows).map(|row| text.get(row).map(|text| count(length(text)))).collect()
        }
        _ => {
            let array = arrow::compute::cast(&call.array(0)?, &ArrowType::BinaryView)
                .map_err(|error| crate::error::from_arrow(&error))?;
            let array = array.as_binary_view_opt().ok_or_else(|| call.not_supported("length"))?;
            array.iter().map(|bytes| bytes.map(|bytes| count(bytes.len()))).collect()
        }
    };
    Ok(Arc::new(lengths))
}

/// `substring`.
///
/// # Errors
///
/// `SubstringLength` for a negative count.
pub(super) fn substring(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, starts) = (call.text(0)?, call.lanes::<Int32Type>(1)?);
    let counts = if call.arguments().len() > 2 { Some(call.lanes::<Int32Type>(2)?) } else { None };
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        let count = counts.as_ref().map(|counts| counts.get(row));
        let (Some(text), Some(start)) = (text.get(row), starts.get(row)) else {
            builder.append_null();
            continue;
        };
        match count {
            Some(None) => builder.append_null(),
            Some(Some(count)) if count < 0 => {
                return Err(Error::new(ErrorKind::SubstringLength, "negative substring length not allowed"));
            }
            Some(Some(count)) => builder.append_value(character_range(text, start, Some(count))),
            None => builder.append_value(character_range(text, start, None)),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The characters from `start`, which counts from 1 and may be less, up to `start + count`.
pub(super) fn character_range(text: &str, start: i32, count: Option<i32>) -> &str {
    let skipped = usize::try_from(i64::from(start) - 1).unwrap_or(0);
    let rest = text.get(character_offset(text, skipped)..).unwrap_or_default();
    let Some(count) = count else { return rest };
    let end = i64::from(start) + i64::from(count);
    let kept = usize::try_from(end - i64::from(start).max(1)).unwrap_or(0);
    rest.get(..character_offset(rest, kept)).unwrap_or_default()
}

/// The byte at which the character of this index starts, or the length.
pub(super) fn character_offset(text: &str, index: usize) -> usize {
    if index >= text.len() {
        return text.len();
    }
    // In a prefix of ASCII every character is a byte.
    if text.as_bytes().get(..index).is_some_and(<[u8]>::is_ascii) {
        return index;
    }
    text.char_indices().nth(index).map_or(text.len(), |(offset, _)| offset)
}

/// `length`: characters, or bytes of a bytea.
pub(super) fn length(call: &Invocation<'_>) -> Result<ArrayRef> {
    measure(call, |text| text.chars().count())
}

/// `octet_length`.
pub(super) fn octet_length(call: &Invocation<'_>) -> Result<ArrayRef> {
    measure(call, str::len)
}

/// `trim`, of the characters of the second text.
pub(super) fn trim(side: TrimSide, call: &Invocation<'_>) -> Result<ArrayRef> {
    zip(call, |text, characters| Cow::Borrowed(trimmed(text, characters, side)))
}

/// Without the blanks at the end.
pub(super) fn trim_blanks(call: &Invocation<'_>) -> Result<ArrayRef> {
    map(call, |text| Cow::Borrowed(text.trim_end_matches(' ')))
}

/// `left`.
pub(super) fn left(call: &Invocation<'_>) -> Result<ArrayRef> {
    slice(call, first_characters)
}

/// `right`.
pub(super) fn right(call: &Invocation<'_>) -> Result<ArrayRef> {
    slice(call, last_characters)
}

fn first_characters(text: &str, count: i32) -> &str {
    let kept = match usize::try_from(count) {
        Ok(count) => count,
        Err(_) => text.chars().count().saturating_sub(count.unsigned_abs() as usize),
    };
    text.get(..character_offset(text, kept)).unwrap_or_default()
}

fn last_characters(text: &str, count: i32) -> &str {
    let skipped = match usize::try_from(count) {
        Ok(count) => text.chars().count().saturating_sub(count),
        Err(_) => count.unsigned_abs() as usize,
    };
    text.get(character_offset(text, skipped)..).unwrap_or_default()
}

fn trimmed<'t>(text: &'t str, characters: &str, side: TrimSide) -> &'t str {
    let is_trimmed = |character: char| characters.contains(character);
    match side {
        TrimSide::Both => text.trim_matches(is_trimmed),
        TrimSide::Leading => text.trim_start_matches(is_trimmed),
        TrimSide::Trailing => text.trim_end_matches(is_trimmed),
    }
}

/// `position`, from 1; 0 where the part is not there.
pub(super) fn position(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, part) = (call.text(0)?, call.text(1)?);
    let positions: Int32Array = (0..call.rows)
        .map(|row| {
            let (text, part) = (text.get(row)?, part.get(row)?);
            let before = memmem::find(text.as_bytes(), part.as_bytes()).and_then(|offset| text.get(..offset));
            Some(before.map_or(0, |before| before.chars().count() as i32 + 1))
        })
        .collect();
    Ok(Arc::new(positions))
}

/// `replace`.
pub(super) fn replace(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, from, to) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let rows = (0..call.rows).map(|row| {
        let (text, from, to) = (text.get(row)?, from.get(row)?, to.get(row)?);
        if from.is_empty() || memmem::find(text.as_bytes(), from.as_bytes()).is_none() {
            return Some(Cow::Borrowed(text));
        }
        Some(Cow::Owned(text.replace(from, to)))
    });
    Ok(Arc::new(collect(call.rows, rows)))
}

/// `starts_with`.
pub(super) fn starts_with(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, prefix) = (call.text(0)?, call.text(1)?);
    let matches: BooleanArray =
        (0..call.rows).map(|row| Some(text.get(row)?.starts_with(prefix.get(row)?))).collect();
    Ok(Arc::new(matches))
}

/// Blanks appended up to a count of characters.
pub(super) fn pad_blanks(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, widths) = (call.text(0)?, call.lanes::<Int32Type>(1)?);
    let mut blanks = String::new();
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        let (Some(text), Some(width)) = (text.get(row), widths.get(row)) else {
            builder.append_null();
            continue;
        };
        let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
        if missing == 0 {
            builder.append_value(text);
        } else {
            blanks.clear();
            blanks.push_str(text);
            blanks.extend(std::iter::repeat_n(' ', missing));
            builder.append_value(&blanks);
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// `||`, or `concat`, which skips NULLs.
pub(super) fn concat(call: &Invocation<'_>, skip_nulls: bool) -> Result<ArrayRef> {
    let parts =
        (0..call.arguments().len()).map(|index| call.text(index)).collect::<Result<Vec<TextLanes>>>()?;
    let mut joined = String::new();
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        joined.clear();
        let complete = parts.iter().all(|part| match part.get(row) {
            Some(text) => {
                joined.push_str(text);
                true
            }
            None => skip_nulls,
        });
        builder.append_option(complete.then_some(joined.as_str()));
    }
    Ok(Arc::new(builder.finish()))
}
