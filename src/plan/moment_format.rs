//! The formats of `to_char` for dates and timestamps.
//!
//! Invariants: a format means the same to the planner, which refuses what depends on more than a local time, and to engines.
//!
//! Deliberately absent: names of days and months in the locale's language (`TM`), the formats of numbers and of intervals.
//!
//! Source: PostgreSQL 15, `formatting.c` (`parse_format`, `DCH_keywords`, `suff_search`).

use crate::{Error, ErrorKind, Result};

/// A format: texts and patterns, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MomentFormat {
    /// In order.
    pub parts: Vec<FormatPart>,
}

/// A part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatPart {
    /// A character that stands for itself.
    Character(char),
    /// A pattern.
    Pattern {
        /// What it stands for.
        pattern: Pattern,
        /// Without `FM`: with the zeros or blanks that make it as wide as others.
        is_filled: bool,
        /// With `TH` or `th`: the ending of an ordinal number.
        ordinal: Option<LetterCase>,
    },
}

/// The letters of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterCase {
    /// `MONTH`.
    Upper,
    /// `Month`.
    Capital,
    /// `month`.
    Lower,
}

/// What a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of fields of dates and times")]
pub enum Pattern {
    /// `BC` or `AD`, with points or without.
    Era {
        is_lower: bool,
        has_points: bool,
    },
    /// `AM` or `PM`, with points or without.
    HalfDay {
        is_lower: bool,
        has_points: bool,
    },
    Century,
    DayName(LetterCase),
    ShortDayName(LetterCase),
    DayOfYear,
    DayOfMonth,
    DayOfWeek,
    /// Of a second: so many digits.
    Fraction(u32),
    /// `FX`, which is nothing here.
    Exact,
    Hour24,
    Hour12,
    IsoDayOfYear,
    IsoDayOfWeek,
    IsoWeek,
    /// The last digits of the ISO year, or all.
    IsoYear(u32),
    JulianDay,
    Minute,
    Month,
    MonthName(LetterCase),
    ShortMonthName(LetterCase),
    Quarter,
    RomanMonth {
        is_lower: bool,
    },
    SecondOfDay,
    Second,
    /// `OF`: hours and minutes ahead of UTC.
    Offset,
    OffsetHours,
    OffsetMinutes,
    /// `TZ`: the zone's abbreviation.
    ZoneName,
    Week,
    WeekOfMonth,
    /// `Y,YYY`.
    YearWithComma,
    /// The last digits of the year, or all.
    Year(u32),
}

/// Patterns by their words. Of two words of which one begins the other the longer one comes first.
const PATTERNS: &[(&str, Pattern)] = &[
    ("A.D.", Pattern::Era { is_lower: false, has_points: true }),
    ("A.M.", Pattern::HalfDay { is_lower: false, has_points: true }),
    ("AD", Pattern::Era { is_lower: false, has_points: false }),
    ("AM", Pattern::HalfDay { is_lower: false, has_points: false }),
    ("B.C.", Pattern::Era { is_lower: false, has_points: true }),
    ("BC", Pattern::Era { is_lower: false, has_points: false }),
    ("CC", Pattern::Century),
    ("DAY", Pattern::DayName(LetterCase::Upper)),
    ("DDD", Pattern::DayOfYear),
    ("DD", Pattern::DayOfMonth),
    ("DY", Pattern::ShortDayName(LetterCase::Upper)),
    ("Day", Pattern::DayName(LetterCase::Capital)),
    ("Dy", Pattern::ShortDayName(LetterCase::Capital)),
    ("D", Pattern::DayOfWeek),
    ("FF1", Pattern::Fraction(1)),
    ("FF2", Pattern::Fraction(2)),
    ("FF3", Pattern::Fraction(3)),
    ("FF4", Pattern::Fraction(4)),
    ("FF5", Pattern::Fraction(5)),
    ("FF6", Pattern::Fraction(6)),
    ("FX", Pattern::Exact),
    ("HH24", Pattern::Hour24),
    ("HH12", Pattern::Hour12),
    ("HH", Pattern::Hour12),
    ("IDDD", Pattern::IsoDayOfYear),
    ("ID", Pattern::IsoDayOfWeek),
    ("IW", Pattern::IsoWeek),
    ("IYYY", Pattern::IsoYear(4)),
    ("IYY", Pattern::IsoYear(3)),
    ("IY", Pattern::IsoYear(2)),
    ("I", Pattern::IsoYear(1)),
    ("J", Pattern::JulianDay),
    ("MI", Pattern::Minute),
    ("MM", Pattern::Month),
    ("MONTH", Pattern::MonthName(LetterCase::Upper)),
    ("MON", Pattern::ShortMonthName(LetterCase::Upper)),
    ("MS", Pattern::Fraction(3)),
    ("Month", Pattern::MonthName(LetterCase::Capital)),
    ("Mon", Pattern::ShortMonthName(LetterCase::Capital)),
    ("OF", Pattern::Offset),
    ("P.M.", Pattern::HalfDay { is_lower: false, has_points: true }),
    ("PM", Pattern::HalfDay { is_lower: false, has_points: false }),
    ("Q", Pattern::Quarter),
    ("RM", Pattern::RomanMonth { is_lower: false }),
    ("SSSSS", Pattern::SecondOfDay),
    ("SSSS", Pattern::SecondOfDay),
    ("SS", Pattern::Second),
    ("TZH", Pattern::OffsetHours),
    ("TZM", Pattern::OffsetMinutes),
    ("TZ", Pattern::ZoneName),
    ("US", Pattern::Fraction(6)),
    ("WW", Pattern::Week),
    ("W", Pattern::WeekOfMonth),
    ("Y,YYY", Pattern::YearWithComma),
    ("YYYY", Pattern::Year(4)),
    ("YYY", Pattern::Year(3)),
    ("YY", Pattern::Year(2)),
    ("Y", Pattern::Year(1)),
    ("a.d.", Pattern::Era { is_lower: true, has_points: true }),
    ("a.m.", Pattern::HalfDay { is_lower: true, has_points: true }),
    ("ad", Pattern::Era { is_lower: true, has_points: false }),
    ("am", Pattern::HalfDay { is_lower: true, has_points: false }),
    ("b.c.", Pattern::Era { is_lower: true, has_points: true }),
    ("bc", Pattern::Era { is_lower: true, has_points: false }),
    ("day", Pattern::DayName(LetterCase::Lower)),
    ("dy", Pattern::ShortDayName(LetterCase::Lower)),
    ("month", Pattern::MonthName(LetterCase::Lower)),
    ("mon", Pattern::ShortMonthName(LetterCase::Lower)),
    ("p.m.", Pattern::HalfDay { is_lower: true, has_points: true }),
    ("pm", Pattern::HalfDay { is_lower: true, has_points: false }),
    ("rm", Pattern::RomanMonth { is_lower: true }),
];

impl Pattern {
    /// Whether it is of the time zone.
    pub fn is_of_zone(self) -> bool {
        matches!(self, Self::Offset | Self::OffsetHours | Self::OffsetMinutes | Self::ZoneName)
    }
}

impl MomentFormat {
    /// Reads a format.
    ///
    /// # Errors
    ///
    /// `NotSupported` for names in the locale's language.
    pub fn parse(format: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut rest = format;
        while !rest.is_empty() {
            let mut is_filled = true;
            if let Some(after) = strip(rest, &["FM", "fm"]) {
                is_filled = false;
                rest = after;
            } else if strip(rest, &["TM", "tm"]).is_some() {
                return Err(Error::new(ErrorKind::NotSupported, "TM in a format"));
            }
            if let Some((pattern, after)) = pattern_of(rest) {
                rest = after;
                let mut ordinal = None;
                if let Some(after) = rest.strip_prefix("TH") {
                    (ordinal, rest) = (Some(LetterCase::Upper), after);
                } else if let Some(after) = rest.strip_prefix("th") {
                    (ordinal, rest) = (Some(LetterCase::Lower), after);
                } else if let Some(after) = rest.strip_prefix("SP") {
                    rest = after;
                }
                parts.push(FormatPart::Pattern { pattern, is_filled, ordinal });
            } else if let Some(quoted) = rest.strip_prefix('"') {
                rest = quoted_text(quoted, |character| parts.push(FormatPart::Character(character)));
            } else {
                // A backslash counts only before a quote.
                if rest.starts_with("\\\"") {
                    rest = rest.get(1..).unwrap_or_default();
                }
                let mut characters = rest.chars();
                parts.extend(characters.next().map(FormatPart::Character));
                rest = characters.as_str();
            }
        }
        Ok(Self { parts })
    }

    /// Whether it depends on the time zone.
    pub fn has_zone(&self) -> bool {
        let is_of_zone =
            |part: &FormatPart| matches!(part, FormatPart::Pattern { pattern, .. } if pattern.is_of_zone());
        self.parts.iter().any(is_of_zone)
    }
}

pub(crate) fn strip<'t>(text: &'t str, prefixes: &[&str]) -> Option<&'t str> {
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))
}

/// The pattern that a text begins with, and what follows. Words in lower case mean the same as those in upper case, where they
/// have no meaning of their own.
pub(crate) fn pattern_of(text: &str) -> Option<(Pattern, &str)> {
    let is_lower = text.starts_with(|first: char| first.is_ascii_lowercase());
    let own = PATTERNS.iter().find_map(|(word, pattern)| Some((*pattern, text.strip_prefix(word)?)));
    if !is_lower {
        return own;
    }
    // The longest word counts: `ddd` is not `d`, nor `day`.
    let folded = PATTERNS.iter().filter(|(word, _)| is_without_own_case(word));
    let folded = folded.filter_map(|(word, pattern)| {
        let begin = text.get(..word.len())?;
        (begin == word.to_ascii_lowercase()).then(|| Some((*pattern, text.get(word.len()..)?)))?
    });
    own.into_iter().chain(folded).min_by_key(|(_, after)| after.len())
}

/// Whether a word's letters do not matter, but that they are of one case.
fn is_without_own_case(word: &str) -> bool {
    let has_lower = word.contains(|character: char| character.is_ascii_lowercase());
    let named = ["DAY", "DY", "MONTH", "MON", "RM", "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "P.M.", "PM"];
    !has_lower && !named.contains(&word)
}

/// Reads up to the quote that ends a text, and returns what follows.
pub(crate) fn quoted_text(text: &str, mut add: impl FnMut(char)) -> &str {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let character = match character {
            '"' => break,
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        add(character);
    }
    characters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(format: &str) -> Vec<Pattern> {
        let parts = MomentFormat::parse(format).expect("a format").parts;
        let pattern = |part: &FormatPart| match part {
            FormatPart::Pattern { pattern, .. } => Some(*pattern),
            FormatPart::Character(_) => None,
        };
        parts.iter().filter_map(pattern).collect()
    }

    #[test]
    fn the_longest_word_counts() {
        assert_eq!(patterns("yyyy-mm-dd"), [Pattern::Year(4), Pattern::Month, Pattern::DayOfMonth]);
        assert_eq!(patterns("DDDDD"), [Pattern::DayOfYear, Pattern::DayOfMonth]);
        assert_eq!(patterns("dddday"), [Pattern::DayOfYear, Pattern::DayName(LetterCase::Lower)]);
        assert_eq!(patterns("iyyyiddd"), [Pattern::IsoYear(4), Pattern::IsoDayOfYear]);
        assert_eq!(patterns("Ddq"), [Pattern::DayOfWeek, Pattern::DayOfWeek, Pattern::Quarter]);
    }

    #[test]
    fn quotes_end_and_backslashes_are_kept_but_before_quotes() {
        let text = |format| {
            let parts = MomentFormat::parse(format).expect("a format").parts;
            let character = |part: &FormatPart| match part {
                FormatPart::Character(character) => *character,
                FormatPart::Pattern { .. } => '#',
            };
            parts.iter().map(character).collect::<String>()
        };
        assert_eq!(text(r##""a\"b\\" \"DD\x"##), r##"a"b\ "#\x"##);
        assert_eq!(text("\"YYYY"), "YYYY");
        assert_eq!(text("FMxTH"), "xTH");
    }

    #[test]
    fn names_of_the_locale_are_refused() {
        assert!(MomentFormat::parse("TMMonth").is_err());
        assert!(MomentFormat::parse("HH24 TZ").is_ok_and(|format| format.has_zone()));
    }
}
