//! LIKE and ILIKE with backslash as the escape character. ILIKE is LIKE of both operands in lower case.
//!
//! A pattern without `_` is a sequence of literal pieces between `%`: the first and the last are anchored,
//! the others are searched for from left to right. Every other pattern is matched byte by byte, going back
//! to the last `%` on a mismatch, in the same order of attempts as PostgreSQL, because a pattern that ends
//! with the escape character is an error only if an attempt gets that far.
//!
//! Source: PostgreSQL 15, `like_match.c`, `MatchText`, and `like.c`, `Generic_Text_IC_like`. We differ: no recursion, so that no pattern can
//! exhaust the stack.

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BooleanArray},
    buffer::BooleanBuffer,
};
use memchr::memmem::Finder;
use pystachio_engine::CaseMap;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{invocation::Invocation, lanes::TextLanes};

/// `text LIKE pattern`, or ILIKE with the table of lower case.
///
/// # Errors
///
/// `EscapeSequence` where PostgreSQL reaches an escape character at the end of the pattern.
pub(super) fn like(lower: Option<&CaseMap>, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (text, pattern) = (call.text(0)?, call.text(1)?);
    let matches = match (&text, &pattern) {
        (TextLanes::Column(text), TextLanes::Constant(Some(pattern))) => {
            let pattern = Pattern::new(&lower_case(lower, pattern));
            let mut lowered = String::new();
            let mut dangling = false;
            let values = BooleanBuffer::collect_bool(text.len(), |row| {
                if text.is_null(row) {
                    return false;
                }
                let mut value = text.value(row);
                if let Some(lower) = lower {
                    lowered.clear();
                    lower.append(value, &mut lowered);
                    value = &lowered;
                }
                pattern.matches(value).unwrap_or_else(|DanglingEscape| {
                    dangling = true;
                    false
                })
            });
            if dangling {
                return Err(dangling_escape());
            }
            BooleanArray::new(values, text.nulls().cloned())
        }
        _ => match_rows(lower, &text, &pattern, call.rows)?,
    };
    Ok(Arc::new(matches))
}

/// Whether Arrow's own LIKE has PostgreSQL's result for this pattern and is as fast: a literal with `%` at
/// its ends only.
pub(super) fn is_simple_pattern(pattern: &str) -> bool {
    let trimmed = pattern.strip_prefix('%').unwrap_or(pattern);
    let trimmed = trimmed.strip_suffix('%').unwrap_or(trimmed);
    !trimmed.contains(['%', '_', '\\'])
}

fn lower_case<'t>(lower: Option<&CaseMap>, text: &'t str) -> Cow<'t, str> {
    lower.map_or(Cow::Borrowed(text), |lower| Cow::Owned(lower.convert(text)))
}

fn match_rows(
    lower: Option<&CaseMap>,
    text: &TextLanes,
    pattern: &TextLanes,
    rows: usize,
) -> Result<BooleanArray> {
    (0..rows)
        .map(|row| {
            let (Some(text), Some(pattern)) = (text.get(row), pattern.get(row)) else { return Ok(None) };
            let (text, pattern) = (lower_case(lower, text), lower_case(lower, pattern));
            match_bytes(text.as_bytes(), pattern.as_bytes())
                .map(Some)
                .map_err(|DanglingEscape| dangling_escape())
        })
        .collect()
}

/// An attempt reached an escape character at the end of the pattern.
#[derive(Debug, PartialEq, Eq)]
struct DanglingEscape;

fn dangling_escape() -> Error {
    Error::new(ErrorKind::EscapeSequence, "LIKE pattern must not end with escape character")
}

/// A pattern made ready for many texts.
enum Pattern {
    /// No `%` and no `_`.
    Literal(Vec<u8>),
    /// Pieces between `%`.
    Pieces { first: Vec<u8>, middle: Vec<Finder<'static>>, last: Vec<u8> },
    /// Everything else.
    General(Vec<u8>),
}

impl Pattern {
    fn new(pattern: &str) -> Self {
        let Some(mut pieces) = split_pieces(pattern.as_bytes()) else {
            return Self::General(pattern.as_bytes().to_vec());
        };
        let Some(last) = pieces.pop() else { return Self::Literal(Vec::new()) };
        if pieces.is_empty() {
            return Self::Literal(last);
        }
        let first = pieces.remove(0);
        let middle = pieces
            .iter()
            .filter(|piece| !piece.is_empty())
            .map(|piece| Finder::new(piece).into_owned())
            .collect();
        Self::Pieces { first, middle, last }
    }

    fn matches(&self, text: &str) -> std::result::Result<bool, DanglingEscape> {
        let text = text.as_bytes();
        match self {
            Self::Literal(literal) => Ok(text == literal),
            Self::Pieces { first, middle, last } => {
                let Some(rest) = text.strip_prefix(first.as_slice()) else { return Ok(false) };
                let Some(mut rest) = rest.strip_suffix(last.as_slice()) else { return Ok(false) };
                for finder in middle {
                    let Some(found) = finder.find(rest) else { return Ok(false) };
                    rest = rest.get(found + finder.needle().len()..).unwrap_or_default();
                }
                Ok(true)
            }
            Self::General(pattern) => match_bytes(text, pattern),
        }
    }
}

/// The literals between `%`, unescaped; `None` if there is a `_` or an escape character at the end.
fn split_pieces(pattern: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => piece.push(*bytes.next()?),
            b'_' => return None,
            b'%' => pieces.push(std::mem::take(&mut piece)),
            _ => piece.push(*byte),
        }
    }
    pieces.push(piece);
    Some(pieces)
}

/// Where to go on after a mismatch: the pattern after the last `%`, its first literal byte, and the next
/// place in the text to try.
struct Retry {
    pattern_index: usize,
    first: u8,
    text_index: usize,
}

fn match_bytes(text: &[u8], pattern: &[u8]) -> std::result::Result<bool, DanglingEscape> {
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<Retry> = None;
    loop {
        let matched = match (text.get(t), pattern.get(p)) {
            (None, _) => return Ok(pattern.iter().skip(p).all(|byte| *byte == b'%')),
            (Some(_), None) => false,
            (Some(_), Some(b'%')) => {
                let Some(found) = skip_wildcards(text, &mut t, pattern, p)? else { return Ok(false) };
                let Some(next) = found else { return Ok(true) };
                p = next.pattern_index;
                retry = Some(next);
                // The first attempt is chosen like every later one.
                false
            }
            (Some(_), Some(b'_')) => {
                t = next_character(text, t);
                p += 1;
                continue;
            }
            (Some(byte), Some(b'\\')) => {
                p += 1;
                byte == pattern.get(p).ok_or(DanglingEscape)?
            }
            (Some(byte), Some(literal)) => byte == literal,
        };
        if matched {
            t += 1;
            p += 1;
            continue;
        }
        let Some(retry) = retry.as_mut() else { return Ok(false) };
        let Some(start) = find_start(text, retry) else { return Ok(false) };
        t = start;
        p = retry.pattern_index;
        retry.text_index = next_character(text, start);
    }
}

/// From a `%` on: skips the wildcards that follow it, each `_` with a character of the text. `None` if the
/// text is too short, `Some(None)` if the pattern ends here and so matches.
fn skip_wildcards(
    text: &[u8],
    t: &mut usize,
    pattern: &[u8],
    mut p: usize,
) -> std::result::Result<Option<Option<Retry>>, DanglingEscape> {
    loop {
        match pattern.get(p) {
            None => return Ok(Some(None)),
            Some(b'%') => p += 1,
            Some(b'_') => {
                if *t >= text.len() {
                    return Ok(None);
                }
                *t = next_character(text, *t);
                p += 1;
            }
            Some(b'\\') => {
                let first = *pattern.get(p + 1).ok_or(DanglingEscape)?;
                return Ok(Some(Some(Retry { pattern_index: p, first, text_index: *t })));
            }
            Some(first) => {
                return Ok(Some(Some(Retry { pattern_index: p, first: *first, text_index: *t })));
            }
        }
    }
}

/// The next place at which the first byte after the `%` is. The bytes of a character after its first one
/// never equal a pattern's first byte, so characters need not be told apart.
fn find_start(text: &[u8], retry: &Retry) -> Option<usize> {
    let rest = text.get(retry.text_index..)?;
    memchr::memchr(retry.first, rest).map(|offset| retry.text_index + offset)
}

fn next_character(text: &[u8], mut index: usize) -> usize {
    index += 1;
    while text.get(index).is_some_and(|byte| byte & 0xc0 == 0x80) {
        index += 1;
    }
    index
}
