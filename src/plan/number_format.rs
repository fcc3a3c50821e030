//! The formats of `to_char` for numbers.
//!
//! Invariants: a format means the same to the planner, which refuses what depends on the locale, and to engines. A format of which
//! PostgreSQL raises an error is refused, so that PostgreSQL raises it.
//!
//! Deliberately absent: the locale's signs and separators (`S`, `L`, `D`, `G`, `C`), Roman numbers (`RN`), shifts (`V`) and exponents
//! (`EEEE`).
//!
//! Source: PostgreSQL 15, `formatting.c` (`NUM_keywords`, `parse_format`, `NUMDesc_prepare`).

use crate::moment_format::quoted_text;

/// A format: patterns and texts, in order, and what they say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberFormat {
    /// In order.
    pub parts: Vec<NumberPart>,
    /// Digits before the point.
    pub whole_digits: usize,
    /// Digits behind it.
    pub fraction_digits: usize,
    /// The place among the digits of the first `0` before the point.
    pub zeros_from: Option<usize>,
    /// Digits up to the last `0`.
    pub zeros_to: usize,
    /// `FM`: without blanks, and without zeros at the end.
    pub is_compact: bool,
    /// `.`.
    pub has_point: bool,
    /// `MI` or `SG`.
    pub has_minus: bool,
    /// `PL` or `SG`.
    pub has_plus: bool,
    /// `PR`: `<1>` for -1.
    pub has_brackets: bool,
}

/// A part of a format that writes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberPart {
    /// A character that stands for itself.
    Character(char),
    /// `9`.
    Digit,
    /// `0`: a digit, also where the number has none.
    Zero,
    /// `.`.
    Point,
    /// `,`.
    Comma,
    /// `MI`: a minus, or a blank.
    Minus,
    /// `PL`: a plus, or a blank.
    Plus,
    /// `SG`: either sign.
    Sign,
    /// `TH` or `th`: the ending of an ordinal number.
    Ordinal {
        /// `th`.
        is_lower: bool,
    },
}

/// Why a format is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormatRefusal {
    /// A pattern that engines do not have.
    Pattern(&'static str),
    /// Patterns that PostgreSQL does not have together.
    Together,
}

/// A word of a format.
#[derive(Clone, Copy)]
enum Word {
    Part(NumberPart),
    Brackets,
    Compact,
    /// `B` and `SP`, which write nothing.
    Nothing,
    Refused,
}

/// Words in upper case. Of two words of which one begins the other the longer one comes first.
const WORDS: &[(&str, Word)] = &[
    (",", Word::Part(NumberPart::Comma)),
    (".", Word::Part(NumberPart::Point)),
    ("0", Word::Part(NumberPart::Zero)),
    ("9", Word::Part(NumberPart::Digit)),
    ("B", Word::Nothing),
    ("C", Word::Refused),
    ("D", Word::Refused),
    ("EEEE", Word::Refused),
    ("FM", Word::Compact),
    ("G", Word::Refused),
    ("L", Word::Refused),
    ("MI", Word::Part(NumberPart::Minus)),
    ("PL", Word::Part(NumberPart::Plus)),
    ("PR", Word::Brackets),
    ("RN", Word::Refused),
    ("SG", Word::Part(NumberPart::Sign)),
    ("SP", Word::Nothing),
    ("S", Word::Refused),
    ("TH", Word::Part(NumberPart::Ordinal { is_lower: false })),
    ("V", Word::Refused),
];

impl NumberFormat {
    /// Reads a format.
    ///
    /// # Errors
    ///
    /// For patterns that engines do not have, and those that PostgreSQL does not have together.
    pub fn parse(format: &str) -> Result<Self, NumberFormatRefusal> {
        let mut target = Self::default();
        let mut rest = format;
        while !rest.is_empty() {
            if let Some((word, is_lower, after)) = word_of(rest) {
                rest = after;
                target.add(word, is_lower)?;
            } else if let Some(quoted) = rest.strip_prefix('"') {
                rest = quoted_text(quoted, |character| target.parts.push(NumberPart::Character(character)));
            } else {
                // A backslash counts only before a quote.
                if rest.starts_with("\\\"") {
                    rest = rest.get(1..).unwrap_or_default();
                }
                let mut characters = rest.chars();
                target.parts.extend(characters.next().map(NumberPart::Character));
                rest = characters.as_str();
            }
        }
        // The number has no last digit, which decides the ending.
        if target.whole_digits == 0 && target.has_ordinal() {
            return Err(NumberFormatRefusal::Together);
        }
        Ok(target)
    }

    fn add(&mut self, (name, word): (&'static str, Word), is_lower: bool) -> Result<(), NumberFormatRefusal> {
        let part = match word {
            Word::Refused => return Err(NumberFormatRefusal::Pattern(name)),
            Word::Nothing => return Ok(()),
            Word::Compact => {
                self.is_compact = true;
                return Ok(());
            }
            Word::Brackets => {
                if self.has_plus || self.has_minus {
                    return Err(NumberFormatRefusal::Together);
                }
                self.has_brackets = true;
                return Ok(());
            }
            Word::Part(NumberPart::Ordinal { .. }) => NumberPart::Ordinal { is_lower },
            Word::Part(part) => part,
        };
        match part {
            NumberPart::Digit | NumberPart::Zero => {
                if self.has_brackets {
                    return Err(NumberFormatRefusal::Together);
                }
                let is_zero = part == NumberPart::Zero;
                if is_zero && !self.has_point && self.zeros_from.is_none() {
                    self.zeros_from = Some(self.whole_digits);
                }
                let digits = if self.has_point { &mut self.fraction_digits } else { &mut self.whole_digits };
                *digits += 1;
                if is_zero {
                    self.zeros_to = self.whole_digits + self.fraction_digits;
                }
            }
            NumberPart::Point => {
                if self.has_point {
                    return Err(NumberFormatRefusal::Together);
                }
                self.has_point = true;
            }
            NumberPart::Minus => self.has_minus = true,
            NumberPart::Plus => self.has_plus = true,
            NumberPart::Sign => (self.has_minus, self.has_plus) = (true, true),
            NumberPart::Comma | NumberPart::Ordinal { .. } | NumberPart::Character(_) => {}
        }
        self.parts.push(part);
        Ok(())
    }

    /// Whether it has the ending of an ordinal number.
    pub fn has_ordinal(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, NumberPart::Ordinal { .. }))
    }
}

/// The word that a text begins with, whether it is in lower case, and what follows. A word is in one case.
fn word_of(text: &str) -> Option<((&'static str, Word), bool, &str)> {
    WORDS.iter().find_map(|(name, word)| {
        if let Some(after) = text.strip_prefix(name) {
            return Some(((*name, *word), false, after));
        }
        let begin = text.get(..name.len())?;
        let is_lower = begin.eq_ignore_ascii_case(name) && !begin.contains(|c: char| c.is_ascii_uppercase());
        is_lower.then(|| Some(((*name, *word), true, text.get(name.len()..)?)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted_on_both_sides_of_the_point() {
        let format = NumberFormat::parse("FM9,990.0990").expect("a format");
        assert_eq!((format.whole_digits, format.fraction_digits), (4, 4));
        assert_eq!((format.zeros_from, format.zeros_to), (Some(3), 8));
        assert!(format.is_compact && format.has_point);
    }

    #[test]
    fn words_are_in_one_case_and_other_letters_are_texts() {
        let parts = NumberFormat::parse("mi9Mi\"th\\\"\"th").expect("a format").parts;
        let text = |text: &str| text.chars().map(NumberPart::Character).collect::<Vec<_>>();
        let expected = [
            vec![NumberPart::Minus, NumberPart::Digit],
            text("Mith\""),
            vec![NumberPart::Ordinal { is_lower: true }],
        ];
        assert_eq!(parts, expected.concat());
    }

    #[test]
    fn what_the_locale_says_and_what_is_an_error_is_refused() {
        for (format, name) in [("9D9", "D"), ("9g999", "G"), ("S9", "S"), ("9eeee", "EEEE"), ("RN", "RN")] {
            assert_eq!(NumberFormat::parse(format), Err(NumberFormatRefusal::Pattern(name)));
        }
        for format in ["9.9.9", "9PR9", "MI9PR", "th", ".9TH"] {
            assert_eq!(NumberFormat::parse(format), Err(NumberFormatRefusal::Together), "{format}");
        }
    }
}
