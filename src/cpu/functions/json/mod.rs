//! Parts of JSON documents, which are texts.
//!
//! - `reader.rs`: the tokens of a document, and the part of it that a path leads to
//! - `tree.rs`: a document of `jsonb` as a value: its text, what it contains
//!
//! Invariants: every function reads its document to the end, so that one that is no JSON is an error wherever it is wrong. Nothing is
//! recursive but trees, whose depth is bounded.
//!
//! Source: PostgreSQL 15, `jsonfuncs.c`, `jsonb_op.c`, `json.c` (`json_typeof`).

mod reader;
mod tree;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int32Array};
use pystachio_plan::{Error, ErrorKind, JsonPath, Result};

use self::{
    reader::{Form, Reader, Token},
    tree::Tree,
};
use super::{
    decimal_text,
    invocation::Invocation,
    lanes::{TextLanes, text_array},
};

/// `document -> path`, of `jsonb` or `json`.
pub(super) fn part(is_binary: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let form = if is_binary { Form::Jsonb } else { Form::JsonDecoded };
    write_parts(call, |text, path, target| {
        let mut reader = Reader::new(text, form);
        let part = reader.part(&path.steps)?;
        target.push_str(part.map(|part| &text[part]).unwrap_or_default());
        Ok(!target.is_empty())
    })
}

/// `document ->> path`, of `jsonb` or `json`.
pub(super) fn part_text(is_binary: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let form = if is_binary { Form::Jsonb } else { Form::JsonDecoded };
    write_parts(call, |text, path, target| {
        let Some(part) = Reader::new(text, form).part(&path.steps)? else { return Ok(false) };
        let part = &text[part];
        match part.as_bytes().first() {
            Some(b'n') => return Ok(false),
            Some(b'"') => target.push_str(&reader::decoded(part)?),
            Some(b't' | b'f') => target.push_str(part),
            _ if !is_binary => target.push_str(part),
            Some(b'{' | b'[') => Tree::parse(part)?.write(target),
            _ => decimal_text::write(part, target)?,
        }
        Ok(true)
    })
}

/// `json_typeof`, `jsonb_typeof`.
pub(super) fn type_name(is_binary: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let form = if is_binary { Form::Jsonb } else { Form::Json };
    let documents = call.text(0)?;
    call.write_texts(|row, target| {
        let Some(text) = documents.get(row) else { return Ok(false) };
        target.push_str(match Reader::new(text, form).whole()? {
            Token::ObjectStart => "object",
            Token::ArrayStart => "array",
            Token::Text { .. } => "string",
            Token::Number => "number",
            Token::True | Token::False => "boolean",
            _ => "null",
        });
        Ok(true)
    })
}

/// `json_array_length`, `jsonb_array_length`.
pub(super) fn array_length(is_binary: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let form = if is_binary { Form::Jsonb } else { Form::Json };
    let documents = call.text(0)?;
    let length = |row| {
        let Some(text) = documents.get(row) else { return Ok(None) };
        let mut reader = Reader::new(text, form);
        let count = reader.length()?;
        let what = match (count, text.trim_start().as_bytes().first()) {
            (Some(count), _) => return Ok(Some(count)),
            (None, Some(b'{')) => "a non-array",
            _ => "a scalar",
        };
        Err(Error::new(ErrorKind::InvalidArgument, format!("cannot get array length of {what}")))
    };
    let lengths: Result<Int32Array> = (0..call.rows).map(length).collect();
    Ok(Arc::new(lengths?))
}

/// `text::json`, `text::jsonb`.
pub(super) fn cast(is_binary: bool, call: &Invocation<'_>) -> Result<ArrayRef> {
    let form = if is_binary { Form::Jsonb } else { Form::Json };
    let documents = call.text(0)?;
    for row in 0..call.rows {
        if let Some(text) = documents.get(row) {
            Reader::new(text, form).whole()?;
        }
    }
    Ok(Arc::new(text_array(&call.array(0)?)?))
}

/// `jsonb::text`.
pub(super) fn text(call: &Invocation<'_>) -> Result<ArrayRef> {
    let documents = call.text(0)?;
    call.write_texts(|row, target| {
        let Some(text) = documents.get(row) else { return Ok(false) };
        Tree::parse(text)?.write(target);
        Ok(true)
    })
}

/// `jsonb ? key`.
pub(super) fn exists(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (documents, keys) = (call.text(0)?, call.text(1)?);
    let exists = |row| match (documents.get(row), keys.get(row)) {
        (Some(text), Some(key)) => Reader::new(text, Form::Jsonb).has_key(key).map(Some),
        _ => Ok(None),
    };
    let found: Result<BooleanArray> = (0..call.rows).map(exists).collect();
    Ok(Arc::new(found?))
}

/// `jsonb @> jsonb`.
pub(super) fn contains(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (documents, others) = (call.text(0)?, call.text(1)?);
    // The document on the right is a constant most of the time.
    let constant = match &others {
        TextLanes::Constant(Some(text)) => Some(Tree::parse(text)?),
        _ => None,
    };
    let contains = |row| match (documents.get(row), others.get(row), &constant) {
        (Some(text), Some(_), Some(constant)) => constant.is_in(text).map(Some),
        (Some(text), Some(other), None) => Tree::parse(other)?.is_in(text).map(Some),
        _ => Ok(None),
    };
    let found: Result<BooleanArray> = (0..call.rows).map(contains).collect();
    Ok(Arc::new(found?))
}

/// A text for each row with a document and a path.
fn write_parts(
    call: &Invocation<'_>,
    write: impl Fn(&str, &JsonPath, &mut String) -> Result<bool>,
) -> Result<ArrayRef> {
    let (documents, paths) = (call.text(0)?, call.text(1)?);
    let mut known: Option<(String, JsonPath)> = None;
    call.write_texts(|row, target| {
        let (Some(text), Some(path)) = (documents.get(row), paths.get(row)) else { return Ok(false) };
        let path = match &mut known {
            Some((known, parsed)) if known == path => parsed,
            known => {
                let parsed = JsonPath::parse(path);
                let parsed = parsed.ok_or_else(|| Error::internal(format!("\"{path}\" is no path")))?;
                &mut known.insert((path.to_owned(), parsed)).1
            }
        };
        write(text, path, target)
    })
}

#[cfg(test)]
mod tests;
