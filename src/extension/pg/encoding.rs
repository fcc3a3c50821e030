//! The database's encoding. Engines have text in UTF-8.
//!
//! Invariants: bytes of PostgreSQL pass [`to_utf8`] before an engine sees them, and text of an engine passes
//! [`to_server`] before PostgreSQL sees it. [`text_form`] says what may be computed on the engine's side.
#![expect(unsafe_code, reason = "converts encodings with PostgreSQL's functions")]

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    fmt::Write,
};

use pgrx::pg_sys;
use pystachio_lower::TextForm;
use pystachio_plan::{Error, ErrorKind, Result};

use super::list;

const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;
/// PostgreSQL's own bound: how many bytes a conversion may make of one.
const GROWTH_MAX: usize = 4;

/// The form of the database's text.
pub fn text_form() -> TextForm {
    match server_encoding() as u32 {
        pg_sys::pg_enc::PG_UTF8 => TextForm::Utf8,
        pg_sys::pg_enc::PG_SQL_ASCII => TextForm::Bytes,
        // SAFETY: looks into a table by the database's encoding.
        encoding => match unsafe { pg_sys::pg_database_encoding_max_length() } {
            1 => TextForm::OneByte { is_ordered: encoding == pg_sys::pg_enc::PG_LATIN1 },
            _ => TextForm::Other,
        },
    }
}

/// PostgreSQL's name of the database's encoding.
pub fn encoding_name() -> String {
    // SAFETY: a C string that lives for ever.
    unsafe { list::string(pg_sys::GetDatabaseEncodingName()) }
}

/// Text of the database in UTF-8; `None` if UTF-8 has no equivalent of it.
pub fn to_utf8(text: &[u8]) -> Option<String> {
    if text.is_ascii() || has_same_bytes() {
        return std::str::from_utf8(text).ok().map(str::to_owned);
    }
    String::from_utf8(convert(text, server_encoding(), UTF8)?).ok()
}

/// As [`to_utf8`], without a copy where the bytes are the same.
pub fn as_utf8(text: &[u8]) -> Option<Cow<'_, str>> {
    match has_same_bytes() {
        true => std::str::from_utf8(text).ok().map(Cow::Borrowed),
        false => to_utf8(text).map(Cow::Owned),
    }
}

/// An argument of a function, of type `text`: pgrx has only UTF-8 as text, and reads others as their bytes.
///
/// # Errors
///
/// `InvalidArgument` if UTF-8 has no equivalent.
pub fn argument(text: &[u8]) -> Result<String> {
    to_utf8(text).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "an argument is not valid in UTF-8"))
}

/// Text in the database's encoding. Raises an ERROR for a character that the encoding lacks.
pub fn to_server(text: &[u8]) -> Result<Cow<'_, [u8]>> {
    if has_same_bytes() || text.is_ascii() {
        return Ok(Cow::Borrowed(text));
    }
    let length = i32::try_from(text.len()).map_err(|_| Error::internal("text of more than 2 GB"))?;
    // SAFETY: the text has that length; the result is the same pointer or a C string of its own.
    unsafe {
        let converted = pg_sys::pg_any_to_server(text.as_ptr().cast(), length, UTF8);
        if converted.cast_const().cast() == text.as_ptr() {
            return Ok(Cow::Borrowed(text));
        }
        let owned = CStr::from_ptr(converted).to_bytes().to_vec();
        pg_sys::pfree(converted.cast());
        Ok(Cow::Owned(owned))
    }
}

/// Text for people, in the database's encoding and without zero bytes: a character that the encoding lacks is shown as
/// PostgreSQL's string constants write it.
pub fn to_shown(text: &str) -> CString {
    let text = text.replace('\0', "");
    let in_server = |character: char| {
        let in_utf8 = character.to_string().into_bytes();
        if character.is_ascii() {
            return in_utf8;
        }
        convert(&in_utf8, UTF8, server_encoding()).unwrap_or_else(|| escaped(character).into_bytes())
    };
    let bytes = match has_same_bytes() || text.is_ascii() {
        true => text.into_bytes(),
        false => text.chars().flat_map(in_server).collect(),
    };
    CString::new(bytes).unwrap_or_default()
}

/// A message for a reader whose text is that of the database. pgrx has messages as UTF-8, which PostgreSQL takes for the
/// database's encoding: what may differ is escaped.
pub fn to_message(text: String) -> String {
    match has_same_bytes() || text.is_ascii() {
        true => text,
        false => text.chars().map(escaped).collect(),
    }
}

/// An ASCII character, or the escape of another.
fn escaped(character: char) -> String {
    let mut text = String::new();
    let code = u32::from(character);
    // Writing into a String never fails.
    let _ = match code {
        0..=0x7f => write!(text, "{character}"),
        0x80..=0xffff => write!(text, "\\u{code:04X}"),
        _ => write!(text, "\\U{code:08X}"),
    };
    text
}

/// Text in another encoding; `None` if that has no equivalent. Raises no ERROR for what the text is.
fn convert(text: &[u8], from: i32, to: i32) -> Option<Vec<u8>> {
    let length = i32::try_from(text.len()).ok()?;
    let mut target = vec![0; text.len().checked_mul(GROWTH_MAX)?.checked_add(1)?];
    let target_length = i32::try_from(target.len()).ok()?;
    // SAFETY: both buffers have the lengths given, and the text is only read.
    let read = unsafe {
        let procedure = pg_sys::FindDefaultConversionProc(from, to);
        if procedure == pg_sys::InvalidOid {
            return None;
        }
        pg_sys::pg_do_encoding_conversion_buf(
            procedure,
            from,
            to,
            text.as_ptr().cast_mut(),
            length,
            target.as_mut_ptr(),
            target_length,
            true,
        )
    };
    // The result ends with a zero byte, which no text has.
    let end = target.iter().position(|byte| *byte == 0)?;
    target.truncate(end);
    (read == length).then_some(target)
}

/// Whether text of the database has the bytes of the same text in UTF-8.
pub fn has_same_bytes() -> bool {
    matches!(server_encoding() as u32, pg_sys::pg_enc::PG_UTF8 | pg_sys::pg_enc::PG_SQL_ASCII)
}

fn server_encoding() -> i32 {
    // SAFETY: reads a global that is set before any query runs.
    unsafe { pg_sys::GetDatabaseEncoding() }
}
