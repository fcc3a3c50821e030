//! What a collation lets an engine do, which compares text byte by byte.
//!
//! ```text
//! x < y, ORDER BY x      ─►  sort_key(x) < sort_key(y), ORDER BY sort_key(x)
//! min(x)                 ─►  text_of_sort_key(min(sort_key(x)))
//! ```
//!
//! under a collation of libc or ICU, whose keys an engine has of the libraries that the server uses. Equality is that of bytes.

use std::fmt;

use pystachio_plan::{Collator, Ctype, DataType, Expression, Function};

use crate::{Refusal, Server, SourceType, TextForm};

/// A collation. Text without one is compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    /// PostgreSQL's name of it.
    pub name: String,
    /// Equal text has equal bytes.
    pub is_deterministic: bool,
    /// How text is ordered.
    pub order: TextOrder,
    /// The letters that have an upper and a lower case, if an engine knows them.
    pub ctype: Result<Ctype, UnknownLetters>,
}

/// The order of text under a collation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOrder {
    /// Byte by byte.
    Bytes,
    /// By a library, which an engine has too.
    Collated(Collator),
    /// No engine knows it.
    Unknown,
}

/// The key that an engine compares to order values as PostgreSQL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKey {
    /// The value.
    Value,
    /// The key of a text.
    Collated(Collator),
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

/// The key by which an engine orders values of the type as PostgreSQL does.
///
/// # Errors
///
/// If it has none.
pub fn order_key(
    of: &SourceType,
    collation: Option<&Collation>,
    server: &dyn Server,
) -> Result<OrderKey, Refusal> {
    check_determined(of, collation, server)?;
    match (of, collation) {
        (SourceType::Interval, _) => Err(Refusal::OrderOfIntervals),
        (SourceType::Json | SourceType::FromText(_), _) => Err(Refusal::Order(of.name().to_owned())),
        (text, Some(collation)) if text.is_collated_text() => match collation.order {
            TextOrder::Unknown => Err(Refusal::OrderByCollation(collation.name.clone())),
            TextOrder::Bytes if server.text_form().keeps_byte_order() => Ok(OrderKey::Value),
            TextOrder::Collated(collator) if server.text_form() == TextForm::Utf8 => {
                Ok(OrderKey::Collated(collator))
            }
            TextOrder::Bytes | TextOrder::Collated(_) => {
                Err(Refusal::OrderByEncoding(server.encoding_name()))
            }
        },
        _ => Ok(OrderKey::Value),
    }
}

impl OrderKey {
    /// The key of a value.
    pub fn of(self, value: Expression) -> Expression {
        match self {
            Self::Value => value,
            Self::Collated(collator) => {
                Expression::call(Function::SortKey(collator), vec![value], DataType::Bytea)
            }
        }
    }

    /// The value of a key.
    pub(crate) fn value(self, key: Expression) -> Expression {
        match self {
            Self::Value => key,
            Self::Collated(_) => Expression::call(Function::TextOfSortKey, vec![key], DataType::Text),
        }
    }

    /// The type of the keys of values of a type.
    pub(crate) fn data_type(self, of: &DataType) -> DataType {
        match self {
            Self::Value => of.clone(),
            Self::Collated(_) => DataType::Bytea,
        }
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
