//! The formats of `to_date` and `to_timestamp`: how a text is read as a date and a time.
//!
//! Invariants: a format means the same to the planner, which refuses others, and to engines.
//!
//! Deliberately absent: names of months and days, years of fewer digits, eras, halves of days, fractions of seconds, zones, `FX`, and a
//! field that comes twice.
//!
//! Source: PostgreSQL 15, `formatting.c` (`parse_format`, `DCH_from_char`, `is_next_separator`).

use crate::{
    Error, ErrorKind, Pattern, Result,
    moment_format::{pattern_of, strip},
};

/// How a text is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MomentReading {
    /// In order.
    pub parts: Vec<ReadingPart>,
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadingPart {
    /// A number.
    Field {
        /// Which.
        field: ReadingField,
        /// Its word in the format, for errors.
        word: String,
        /// It ends where its digits do, and not after a fixed number of characters.
        is_open: bool,
    },
    /// A blank, or a sign that is neither letter nor digit: one of the text's, or none.
    Separator,
    /// Any character of the text.
    Character(char),
}

/// A number of a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of fields of dates and times")]
pub enum ReadingField {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

impl ReadingField {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Year, Self::Month, Self::Day, Self::Hour, Self::Minute, Self::Second];

    fn of(pattern: Pattern) -> Option<Self> {
        Some(match pattern {
            Pattern::Year(4) => Self::Year,
            Pattern::Month => Self::Month,
            Pattern::DayOfMonth => Self::Day,
            Pattern::Hour24 => Self::Hour,
            Pattern::Minute => Self::Minute,
            Pattern::Second => Self::Second,
            _ => return None,
        })
    }

    /// How many characters it has where its digits do not end it.
    pub fn width(self) -> usize {
        if self == Self::Year { 4 } else { 2 }
    }
}

impl MomentReading {
    /// Reads a format.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a pattern that engines do not read, whose word is the message.
    pub fn parse(format: &str) -> Result<Self> {
        let refused = |word: &str| Err(Error::new(ErrorKind::NotSupported, word));
        let mut parts: Vec<ReadingPart> = Vec::new();
        let mut rest = format;
        while !rest.is_empty() {
            let mut is_compact = false;
            if let Some(after) = strip(rest, &["FM", "fm"]) {
                (is_compact, rest) = (true, after);
            } else if strip(rest, &["TM", "tm"]).is_some() {
                return refused("TM");
            }
            if let Some((pattern, after)) = pattern_of(rest) {
                let word = rest.get(..rest.len() - after.len()).unwrap_or_default();
                let Some(field) = ReadingField::of(pattern) else { return refused(word) };
                let is_known = |part: &ReadingPart| matches!(part, ReadingPart::Field { field: known, .. } if *known == field);
                if parts.iter().any(is_known) || strip(after, &["TH", "th", "SP"]).is_some() {
                    return refused(word);
                }
                parts.push(ReadingPart::Field { field, word: word.to_owned(), is_open: is_compact });
                rest = after;
            } else if let Some(quoted) = rest.strip_prefix('"') {
                let mut characters = quoted.chars();
                while let Some(character) = characters.next().filter(|character| *character != '"') {
                    let character =
                        if character == '\\' { characters.next().unwrap_or('\\') } else { character };
                    parts.push(ReadingPart::Character(character));
                }
                rest = characters.as_str();
            } else {
                // A backslash counts only before a quote.
                if rest.starts_with("\\\"") {
                    rest = rest.get(1..).unwrap_or_default();
                }
                let mut characters = rest.chars();
                parts.extend(characters.next().map(|character| match character {
                    separator if is_separator(separator) || is_blank(separator) => ReadingPart::Separator,
                    other => ReadingPart::Character(other),
                }));
                rest = characters.as_str();
            }
        }
        for place in 0..parts.len() {
            let ends_itself = match parts.get(place + 1) {
                Some(ReadingPart::Field { .. }) => false,
                Some(ReadingPart::Character(next)) => !next.is_ascii_digit(),
                Some(ReadingPart::Separator) | None => true,
            };
            if let Some(ReadingPart::Field { is_open, .. }) = parts.get_mut(place) {
                *is_open |= ends_itself;
            }
        }
        Ok(Self { parts })
    }
}

/// Whether a character is a sign of ASCII: no letter, digit or blank.
pub fn is_separator(character: char) -> bool {
    character.is_ascii_graphic() && !character.is_ascii_alphanumeric()
}

/// Whether a character is a blank of C.
pub fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_open_before_what_is_no_digit() {
        let shown = |format: &str| {
            let parts = MomentReading::parse(format).expect("a format").parts;
            let part = |part: &ReadingPart| match part {
                ReadingPart::Field { word, is_open, .. } => {
                    format!("{word}{}", if *is_open { "*" } else { "" })
                }
                ReadingPart::Separator => "-".to_owned(),
                ReadingPart::Character(character) => character.to_string(),
            };
            parts.iter().map(part).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("YYYYMMDD"), "YYYY MM DD*");
        assert_eq!(shown("yyyy-mm-dd"), "yyyy* - mm* - dd*");
        assert_eq!(shown("DD\"1-T\"FMMMxHH24"), "DD 1 - T MM* x HH24*");
    }

    #[test]
    fn other_patterns_are_named() {
        for (format, word) in [
            ("YYYY-Mon", "Mon"),
            ("YY", "YY"),
            ("HH12:MI", "HH12"),
            ("FXYYYY", "FX"),
            ("MMMM", "MM"),
            ("DDTH", "DD"),
        ] {
            let error = MomentReading::parse(format).expect_err("refused");
            assert_eq!(error.message, word);
        }
    }
}
