//! Functions that give a text another form. Positions and lengths count characters.
//!
//! Source: PostgreSQL 15, `oracle_compat.c` (`lpad`, `rpad`, `translate`, `repeat`), `varlena.c` (`split_part`, `text_overlay`,
//! `text_reverse`, `concat_internal`), `formatting.c` (`str_initcap`), `quote.c` (`quote_literal_internal`), `ruleutils.c` (`quote_identifier`).

use std::collections::HashSet;

use arrow::{array::ArrayRef, datatypes::Int32Type};
use memchr::memmem;
use pystachio_engine::CharacterCase;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    invocation::Invocation,
    lanes::TextLanes,
    text::{character_offset, character_range},
};

/// Bytes that PostgreSQL allows in a value, those of its header included.
const VALUE_BYTES_MAX: u64 = 0x3fff_ffff;
const HEADER_BYTES: u64 = 4;
/// Bytes that PostgreSQL reserves for a character of UTF-8.
const CHARACTER_BYTES_MAX: u64 = 4;

/// One text a row of a strict function of one text.
fn write_texts(call: &Invocation<'_>, write: impl Fn(&str, &mut String)) -> Result<ArrayRef> {
    let text = call.text(0)?;
    call.write_texts(|row, target| {
        let text = text.get(row);
        if let Some(text) = text {
            write(text, target);
        }
        Ok(text.is_some())
    })
}

/// PostgreSQL's error of a value of more than 1 GB.
fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, "requested length too large")
}

/// `lpad`, or `rpad`.
///
/// # Errors
///
/// `LimitExceeded` for a length that PostgreSQL refuses.
pub(super) fn pad(is_left: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, lengths, fill) = (call.text(0)?, call.lanes::<Int32Type>(1)?, call.text(2)?);
    call.write_texts(|row, target| {
        let (Some(text), Some(length), Some(fill)) = (text.get(row), lengths.get(row), fill.get(row)) else {
            return Ok(false);
        };
        let length = u64::try_from(length).unwrap_or(0);
        let present = text.chars().count() as u64;
        // Without anything to fill with, the text is cut at most.
        let reserved = if fill.is_empty() { present.min(length) } else { length };
        if reserved * CHARACTER_BYTES_MAX + HEADER_BYTES > VALUE_BYTES_MAX {
            return Err(too_large());
        }
        let kept = text.get(..character_offset(text, length as usize)).unwrap_or_default();
        let missing = reserved.saturating_sub(present) as usize;
        if is_left {
            target.extend(fill.chars().cycle().take(missing));
            target.push_str(kept);
        } else {
            target.push_str(kept);
            target.extend(fill.chars().cycle().take(missing));
        }
        Ok(true)
    })
}

/// `split_part`.
///
/// # Errors
///
/// `InvalidArgument` for field 0.
pub(super) fn split_part(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, delimiters, numbers) = (call.text(0)?, call.text(1)?, call.lanes::<Int32Type>(2)?);
    call.write_texts(|row, target| {
        let (Some(text), Some(delimiter), Some(number)) =
            (text.get(row), delimiters.get(row), numbers.get(row))
        else {
            return Ok(false);
        };
        if number == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "field position must not be zero"));
        }
        target.push_str(field(text, delimiter, number).unwrap_or_default());
        Ok(true)
    })
}

/// The field of a number that is not 0; `None` if there is none.
fn field<'t>(text: &'t str, delimiter: &str, number: i32) -> Option<&'t str> {
    if delimiter.is_empty() {
        return matches!(number, 1 | -1).then_some(text);
    }
    let place = match usize::try_from(number) {
        Ok(number) => number - 1,
        // Delimiters are looked for from the start, as they may overlap.
        Err(_) => text.split(delimiter).count().checked_sub(number.unsigned_abs() as usize)?,
    };
    text.split(delimiter).nth(place)
}

/// `translate`.
pub(super) fn translate(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, from, to) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let constant = match (&from, &to) {
        (TextLanes::Constant(Some(from)), TextLanes::Constant(Some(to))) => Some(replacements(from, to)),
        _ => None,
    };
    call.write_texts(|row, target| {
        let (Some(text), Some(from), Some(to)) = (text.get(row), from.get(row), to.get(row)) else {
            return Ok(false);
        };
        let own;
        let replaced = match &constant {
            Some(constant) => constant,
            None => {
                own = replacements(from, to);
                &own
            }
        };
        target.extend(text.chars().filter_map(|character| {
            let found = replaced.iter().find(|(from, _)| *from == character);
            found.map_or(Some(character), |(_, to)| *to)
        }));
        Ok(true)
    })
}

/// Each character that is replaced, and by what; `None` if it is dropped. The first of a character counts.
fn replacements(from: &str, to: &str) -> Vec<(char, Option<char>)> {
    let to = to.chars().map(Some).chain(std::iter::repeat(None));
    from.chars().zip(to).collect()
}

/// `reverse`.
pub(super) fn reverse(call: &Invocation<'_>) -> Result<ArrayRef> {
    write_texts(call, |text, target| target.extend(text.chars().rev()))
}

/// `repeat`.
///
/// # Errors
///
/// `LimitExceeded` for a text that PostgreSQL refuses.
pub(super) fn repeat(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, counts) = (call.text(0)?, call.lanes::<Int32Type>(1)?);
    call.write_texts(|row, target| {
        let (Some(text), Some(count)) = (text.get(row), counts.get(row)) else { return Ok(false) };
        let count = u64::try_from(count).unwrap_or(0);
        if text.len() as u64 * count + HEADER_BYTES > VALUE_BYTES_MAX {
            return Err(too_large());
        }
        if !text.is_empty() {
            target.extend(std::iter::repeat_n(text, count as usize));
        }
        Ok(true)
    })
}

/// `initcap`.
pub(super) fn initial_capitals(case: &CharacterCase, call: &Invocation<'_>) -> Result<ArrayRef> {
    write_texts(call, |text, target| {
        let mut is_within = false;
        target.extend(text.chars().map(|character| {
            let map = if is_within { case.lower() } else { case.upper() };
            let converted = map.convert_character(character);
            is_within = case.is_alphanumeric(converted);
            converted
        }));
    })
}

/// `concat_ws`.
pub(super) fn concat_separated(call: &Invocation<'_>) -> Result<ArrayRef> {
    let separators = call.text(0)?;
    let parts =
        (1..call.arguments().len()).map(|index| call.text(index)).collect::<Result<Vec<TextLanes>>>()?;
    call.write_texts(|row, target| {
        let Some(separator) = separators.get(row) else { return Ok(false) };
        for (place, part) in parts.iter().filter_map(|part| part.get(row)).enumerate() {
            if place > 0 {
                target.push_str(separator);
            }
            target.push_str(part);
        }
        Ok(true)
    })
}

/// `overlay`.
///
/// # Errors
///
/// `SubstringLength` for a start below 1; `NumericOutOfRange` for an end beyond the integers.
pub(super) fn overlay(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, new, starts) = (call.text(0)?, call.text(1)?, call.lanes::<Int32Type>(2)?);
    let counts = if call.arguments().len() > 3 { Some(call.lanes::<Int32Type>(3)?) } else { None };
    call.write_texts(|row, target| {
        let (Some(text), Some(new), Some(start)) = (text.get(row), new.get(row), starts.get(row)) else {
            return Ok(false);
        };
        let count = match &counts {
            Some(counts) => counts.get(row),
            // No text has as many characters as an integer counts.
            None => Some(new.chars().count() as i32),
        };
        let Some(count) = count else { return Ok(false) };
        if start <= 0 {
            return Err(Error::new(ErrorKind::SubstringLength, "negative substring length not allowed"));
        }
        let Some(end) = start.checked_add(count) else {
            return Err(Error::new(ErrorKind::NumericOutOfRange, "integer out of range"));
        };
        target.push_str(character_range(text, 1, Some(start - 1)));
        target.push_str(new);
        target.push_str(character_range(text, end, None));
        Ok(true)
    })
}

/// `quote_ident`. A name of lowercase letters, digits and underscores that is no word of SQL stays as it is.
pub(super) fn quote_identifier(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (texts, words, settings) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let mut known: Option<(String, HashSet<String>)> = None;
    call.write_texts(|row, target| {
        let (Some(text), Some(words), Some(setting)) = (texts.get(row), words.get(row), settings.get(row))
        else {
            return Ok(false);
        };
        let reserved = match &mut known {
            Some((list, reserved)) if list == words => reserved,
            known => &mut known.insert((words.to_owned(), words.split(' ').map(str::to_owned).collect())).1,
        };
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let is_plain = text.bytes().next().is_some_and(is_letter)
            && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
            && !reserved.contains(text);
        if is_plain && setting != "on" {
            target.push_str(text);
            return Ok(true);
        }
        target.push('"');
        target.push_str(&text.replace('"', "\"\""));
        target.push('"');
        Ok(true)
    })
}

/// `quote_literal`.
pub(super) fn quote_literal(call: &Invocation<'_>) -> Result<ArrayRef> {
    write_texts(call, |text, target| {
        if memmem::find(text.as_bytes(), b"\\").is_some() {
            target.push('E');
        }
        target.push('\'');
        for character in text.chars() {
            if matches!(character, '\'' | '\\') {
                target.push(character);
            }
            target.push(character);
        }
        target.push('\'');
    })
}
