//! Formats of `to_char` for dates and timestamps as tables of pieces, which kernels/expression/format_moment.cuh writes.
//!
//! A table has the number of pieces and, for each, its kind, flags and argument, all of 2 bytes. A character that stands for itself is a
//! piece a byte.

use pystachio_plan::{Error, ErrorKind, FormatPart, LetterCase, MomentFormat, Pattern, Result};

use crate::abi::{
    MomentPiece, PIECE_FILLED, PIECE_LOWER, PIECE_ORDINAL_LOWER, PIECE_ORDINAL_UPPER, PIECE_UPPER,
};

/// Letters of a short name, and of any.
const SHORT: u16 = 3;
const LONG: u16 = 9;
/// Pieces of a format; one with more is not formatted row by row on a GPU.
const PIECES_MAX: usize = 1 << 12;

/// A piece: kind, flags, argument.
type Piece = (MomentPiece, u64, u16);

/// The table of a format.
///
/// # Errors
///
/// `NotSupported` for a format that [`MomentFormat`] does not read, or that is very long.
pub(super) fn table(format: &str) -> Result<Vec<u8>> {
    let mut pieces: Vec<Piece> = Vec::new();
    for part in MomentFormat::parse(format)?.parts {
        match part {
            FormatPart::Character(character) => {
                let mut bytes = [0; 4];
                let bytes = character.encode_utf8(&mut bytes).bytes();
                pieces.extend(bytes.map(|byte| (MomentPiece::Byte, 0, byte.into())));
            }
            FormatPart::Pattern { pattern, is_filled, ordinal } => {
                let filled = if is_filled { PIECE_FILLED } else { 0 };
                let ordinal = match ordinal {
                    None => 0,
                    Some(LetterCase::Upper) => PIECE_ORDINAL_UPPER,
                    Some(LetterCase::Capital | LetterCase::Lower) => PIECE_ORDINAL_LOWER,
                };
                add_pattern(&mut pieces, pattern, filled, ordinal);
            }
        }
    }
    if pieces.len() > PIECES_MAX {
        let message = format!("a format has more pieces than a kernel writes: pieces_max={PIECES_MAX}");
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    // There are fewer than 2^16, and all flags are lower.
    let numbers = pieces.iter().flat_map(|(kind, flags, argument)| [*kind as u16, *flags as u16, *argument]);
    Ok([pieces.len() as u16].into_iter().chain(numbers).flat_map(u16::to_le_bytes).collect())
}

/// Adds what a pattern stands for. Only numbers are ordinal.
fn add_pattern(pieces: &mut Vec<Piece>, pattern: Pattern, filled: u64, ordinal: u64) {
    use MomentPiece as Kind;
    let word = |kind, is_lower: bool, has_points: bool| {
        (kind, if is_lower { PIECE_LOWER } else { 0 }, u16::from(has_points))
    };
    let name = |kind, case, letters| {
        let flags = match case {
            LetterCase::Upper => PIECE_UPPER,
            LetterCase::Capital => 0,
            LetterCase::Lower => PIECE_LOWER,
        };
        (kind, if letters == LONG { flags | filled } else { flags }, letters)
    };
    let number = |kind, digits: u32| (kind, filled | ordinal, digits as u16);
    let piece = match pattern {
        Pattern::Era { is_lower, has_points } => word(Kind::Era, is_lower, has_points),
        Pattern::HalfDay { is_lower, has_points } => word(Kind::HalfDay, is_lower, has_points),
        Pattern::DayName(case) => name(Kind::DayName, case, LONG),
        Pattern::ShortDayName(case) => name(Kind::DayName, case, SHORT),
        Pattern::MonthName(case) => name(Kind::MonthName, case, LONG),
        Pattern::ShortMonthName(case) => name(Kind::MonthName, case, SHORT),
        Pattern::RomanMonth { is_lower } => {
            let (kind, flags, argument) = word(Kind::RomanMonth, is_lower, false);
            (kind, flags | filled, argument)
        }
        Pattern::Century => number(Kind::Century, 0),
        Pattern::DayOfYear => number(Kind::DayOfYear, 0),
        Pattern::DayOfMonth => number(Kind::DayOfMonth, 0),
        Pattern::DayOfWeek => number(Kind::DayOfWeek, 0),
        Pattern::Fraction(digits) => number(Kind::Fraction, digits),
        Pattern::Hour24 => number(Kind::Hour24, 0),
        Pattern::Hour12 => number(Kind::Hour12, 0),
        Pattern::IsoDayOfYear => number(Kind::IsoDayOfYear, 0),
        Pattern::IsoDayOfWeek => number(Kind::IsoDayOfWeek, 0),
        Pattern::IsoWeek => number(Kind::IsoWeek, 0),
        Pattern::IsoYear(digits) => number(Kind::IsoYear, digits),
        Pattern::JulianDay => number(Kind::JulianDay, 0),
        Pattern::Minute => number(Kind::Minute, 0),
        Pattern::Month => number(Kind::Month, 0),
        Pattern::Quarter => number(Kind::Quarter, 0),
        Pattern::SecondOfDay => number(Kind::SecondOfDay, 0),
        Pattern::Second => number(Kind::Second, 0),
        Pattern::Week => number(Kind::Week, 0),
        Pattern::WeekOfMonth => number(Kind::WeekOfMonth, 0),
        Pattern::Year(digits) => number(Kind::Year, digits),
        Pattern::YearWithComma => number(Kind::YearWithComma, 4),
        // Without a time zone.
        Pattern::Offset if filled == 0 => return add_text(pieces, "+0"),
        Pattern::Offset | Pattern::OffsetHours => return add_text(pieces, "+00"),
        Pattern::OffsetMinutes => return add_text(pieces, "00"),
        Pattern::Exact | Pattern::ZoneName => return,
    };
    pieces.push(piece);
}

fn add_text(pieces: &mut Vec<Piece>, text: &str) {
    pieces.extend(text.bytes().map(|byte| (MomentPiece::Byte, 0, byte.into())));
}
