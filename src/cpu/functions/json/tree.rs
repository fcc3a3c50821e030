//! A document of `jsonb` as a value.
//!
//! Source: PostgreSQL 15, `jsonb.c` (`JsonbToCString`), `jsonb_util.c` (`uniqueifyJsonbObject`, `JsonbDeepContains`), `jsonb_op.c`.

use std::borrow::Cow;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    super::{decimal_text, format::write_json_string},
    reader::{Form, Reader, Token, decoded},
};

/// Levels of the deepest document. PostgreSQL's bound is its stack.
const DEPTH_MAX: usize = 2000;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree<'a> {
    Null,
    Bool(bool),
    /// As PostgreSQL prints it.
    Number(String),
    Text(Cow<'a, str>),
    Array(Vec<Tree<'a>>),
    /// Names once each, shorter ones first and then by their bytes.
    Object(Vec<(Cow<'a, str>, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// The value of a document.
    ///
    /// # Errors
    ///
    /// PostgreSQL's of a text that is no value of `jsonb`; `LimitExceeded` if it is too deep.
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        let mut reader = Reader::new(text, Form::Jsonb);
        let first = reader.next()?;
        let tree = Self::read(&mut reader, first, 0)?;
        reader.end()?;
        Ok(tree)
    }

    /// Reads a value, whose first token was read.
    pub(super) fn read(reader: &mut Reader<'a>, first: Token, depth: usize) -> Result<Self> {
        if depth > DEPTH_MAX {
            let message = format!("a JSON document has more than {DEPTH_MAX} levels");
            return Err(Error::new(ErrorKind::LimitExceeded, message)
                .with_hint("SET pystachio.pushdown = off lets PostgreSQL read it."));
        }
        Ok(match first {
            Token::Null => Self::Null,
            Token::True => Self::Bool(true),
            Token::False => Self::Bool(false),
            Token::Text { .. } => Self::Text(decoded(reader.token_text())?),
            Token::Number => {
                let mut text = String::new();
                decimal_text::write(reader.token_text(), &mut text)?;
                Self::Number(text)
            }
            Token::ArrayStart => {
                let mut items = Vec::new();
                reader.elements(|reader, item| {
                    items.push(Self::read(reader, item, depth + 1)?);
                    Ok(())
                })?;
                Self::Array(items)
            }
            Token::ObjectStart => {
                let mut fields = Vec::new();
                reader.fields(|reader, name, value| {
                    fields.push((name.decoded()?, Self::read(reader, value, depth + 1)?));
                    Ok(())
                })?;
                Self::Object(unique(fields))
            }
            // `skip` returns the error of a token that starts no value.
            other => {
                reader.skip(other)?;
                Self::Null
            }
        })
    }

    /// Writes the value as PostgreSQL prints it.
    pub(super) fn write(&self, target: &mut String) {
        match self {
            Self::Null => target.push_str("null"),
            Self::Bool(value) => target.push_str(if *value { "true" } else { "false" }),
            Self::Number(text) => target.push_str(text),
            Self::Text(text) => write_json_string(target, text),
            Self::Array(items) => {
                target.push('[');
                for (place, item) in items.iter().enumerate() {
                    target.push_str(if place > 0 { ", " } else { "" });
                    item.write(target);
                }
                target.push(']');
            }
            Self::Object(fields) => {
                target.push('{');
                for (place, (name, value)) in fields.iter().enumerate() {
                    target.push_str(if place > 0 { ", " } else { "" });
                    write_json_string(target, name);
                    target.push_str(": ");
                    value.write(target);
                }
                target.push('}');
            }
        }
    }

    /// Whether a document has all that this value has. An array has a value that is an element of it, which is said of whole documents
    /// alone.
    ///
    /// # Errors
    ///
    /// As of [`Tree::parse`].
    pub(super) fn is_in(&self, text: &str) -> Result<bool> {
        let mut reader = Reader::new(text, Form::Jsonb);
        let first = reader.next()?;
        let is_in = match (first, self.is_scalar()) {
            (Token::ArrayStart, true) => {
                let mut is_element = false;
                reader.elements(|reader, item| {
                    is_element |= self.is_in_value(reader, item)?;
                    Ok(())
                })?;
                is_element
            }
            _ => self.is_in_value(&mut reader, first)?,
        };
        reader.end()?;
        Ok(is_in)
    }

    /// Whether a value, whose first token was read and which is read to its end, has all that this one has.
    fn is_in_value(&self, reader: &mut Reader<'_>, first: Token) -> Result<bool> {
        match (self, first) {
            (Self::Object(wanted), Token::ObjectStart) => {
                // Of equal names the last one counts.
                let mut found = vec![false; wanted.len()];
                reader.fields(|reader, name, value| {
                    for (place, (own, wanted)) in wanted.iter().enumerate() {
                        if name.is(own)? {
                            found[place] = wanted.is_in_value(reader, value)?;
                            return Ok(());
                        }
                    }
                    reader.skip(value)
                })?;
                Ok(found.into_iter().all(|found| found))
            }
            (Self::Array(wanted), Token::ArrayStart) => {
                let mut found = vec![false; wanted.len()];
                reader.elements(|reader, item| {
                    let item = Tree::read(reader, item, 0)?;
                    for (found, wanted) in found.iter_mut().zip(wanted) {
                        *found |= match wanted.is_scalar() {
                            true => item.is_same(wanted),
                            false => item.contains_deeply(wanted),
                        };
                    }
                    Ok(())
                })?;
                Ok(found.into_iter().all(|found| found))
            }
            (_, Token::ObjectStart | Token::ArrayStart) => reader.skip(first).map(|()| false),
            (scalar, _) => Ok(Tree::read(reader, first, 0)?.is_same(scalar)),
        }
    }

    fn contains_deeply(&self, other: &Tree<'_>) -> bool {
        match (self, other) {
            (Self::Object(own), Tree::Object(other)) => {
                own.len() >= other.len()
                    && other.iter().all(|(name, wanted)| {
                        own.iter().find(|(own, _)| own == name).is_some_and(|(_, value)| {
                            match wanted.is_scalar() {
                                true => value.is_same(wanted),
                                false => value.contains_deeply(wanted),
                            }
                        })
                    })
            }
            (Self::Array(own), Tree::Array(other)) => other.iter().all(|wanted| {
                own.iter().any(|item| match wanted.is_scalar() {
                    true => item.is_same(wanted),
                    false => item.contains_deeply(wanted),
                })
            }),
            _ => false,
        }
    }

    fn is_scalar(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Object(_))
    }

    /// Whether two scalars are equal: numbers by their values.
    fn is_same(&self, other: &Tree<'_>) -> bool {
        match (self, other) {
            (Self::Number(own), Tree::Number(other)) => value_of(own) == value_of(other),
            (Self::Null, Tree::Null) => true,
            (Self::Bool(own), Tree::Bool(other)) => own == other,
            (Self::Text(own), Tree::Text(other)) => own == other,
            _ => false,
        }
    }
}

/// A number without zeros at its end.
fn value_of(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Fields in the order of `jsonb`, the last of equal names alone.
fn unique<'a>(mut fields: Vec<(Cow<'a, str>, Tree<'a>)>) -> Vec<(Cow<'a, str>, Tree<'a>)> {
    // The order of equal names stays.
    fields.sort_by(|(own, _), (other, _)| own.len().cmp(&other.len()).then_with(|| own.cmp(other)));
    let mut kept: Vec<(Cow<'a, str>, Tree<'a>)> = Vec::with_capacity(fields.len());
    for field in fields {
        match kept.last_mut() {
            Some(last) if last.0 == field.0 => *last = field,
            _ => kept.push(field),
        }
    }
    kept
}
