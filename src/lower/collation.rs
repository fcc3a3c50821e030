//! What a collation lets an engine do, which compares text byte by byte.

use std::fmt;

use pystachio_plan::Ctype;

use crate::{Refusal, Server, SourceType, TextForm};

/// A collation. Text without one is compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    /// PostgreSQL's name of it.
    pub name: String,
    /// Equal text has equal bytes.
    pub is_deterministic: bool,
    /// Text is ordered byte by byte.
    pub is_byte_order: bool,
    /// The letters that have an upper and a lower case, if an engine knows them.
    pub ctype: Result<Ctype, UnknownLetters>,
}

/// Why an engine does not know the letters of a collation, in words that fit behind a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownLetters {
    /// There is no collation.
    NoCollation,
    /// PostgreSQL does not ask libc.
    NotLibc,
    /// Text of the database is not UTF-8.
    NotUtf8Database,
    /// libc has no UTF-8 locale of the name.
    NotUtf8Locale,
}

impl fmt::Display for UnknownLetters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoCollation => "without a collation",
            Self::NotLibc => "under a collation that libc does not provide",
            Self::NotUtf8Database => "in a database whose encoding is not UTF8",
            Self::NotUtf8Locale => "under a collation whose locale is no UTF-8 locale of this host",
        })
    }
}

/// Whether equal text has equal bytes.
pub(crate) fn is_deterministic(collation: Option<&Collation>) -> bool {
    collation.is_none_or(|collation| collation.is_deterministic)
}

/// Whether an engine orders text as the collation does: by the bytes of UTF-8.
pub(crate) fn is_engine_order(collation: Option<&Collation>, server: &dyn Server) -> bool {
    collation.is_none_or(|collation| collation.is_byte_order && server.text_form().keeps_byte_order())
}

/// Whether text has a collation. It has none where operands of several collations meet: to compare it is then an error, which
/// PostgreSQL raises with its first row.
pub(crate) fn check_determined(
    of: &SourceType,
    collation: Option<&Collation>,
    server: &dyn Server,
) -> Result<(), Refusal> {
    if of.is_collated_text() && collation.is_none() {
        return Err(Refusal::SeveralCollations);
    }
    if of.is_collated_text() && server.text_form() == TextForm::Other {
        return Err(Refusal::ComparisonByEncoding(server.encoding_name()));
    }
    Ok(())
}

/// Whether an engine orders values of the type as PostgreSQL does.
///
/// # Errors
///
/// If it does not.
pub fn check_order(
    of: &SourceType,
    collation: Option<&Collation>,
    server: &dyn Server,
) -> Result<(), Refusal> {
    check_determined(of, collation, server)?;
    match (of, collation) {
        (SourceType::Interval, _) => Err(Refusal::OrderOfIntervals),
        (SourceType::Json | SourceType::FromText(_), _) => Err(Refusal::Order(of.name().to_owned())),
        (text, Some(collation)) if text.is_collated_text() && !collation.is_byte_order => {
            Err(Refusal::OrderByCollation(collation.name.clone()))
        }
        (text, Some(_)) if text.is_collated_text() && !server.text_form().keeps_byte_order() => {
            Err(Refusal::OrderByEncoding(server.encoding_name()))
        }
        _ => Ok(()),
    }
}

/// Whether equality of values of the type is that of their bytes. Text of two collations has none: PostgreSQL raises an
/// error when it compares the first row.
///
/// # Errors
///
/// If it is not.
pub fn check_equality(
    of: &SourceType,
    collation: Option<&Collation>,
    server: &dyn Server,
) -> Result<(), Refusal> {
    check_determined(of, collation, server)?;
    if let Some(collation) = collation
        && !collation.is_deterministic
    {
        return Err(Refusal::EqualityByCollation(collation.name.clone()));
    }
    if matches!(of, SourceType::Interval | SourceType::Json | SourceType::FromText(_))
        || of.scalar_data_type().is_none()
    {
        return Err(Refusal::Equality(of.name().to_owned()));
    }
    Ok(())
}
