//! Dates and timestamps that are read from text by a format.
//!
//! Source: PostgreSQL 15, `formatting.c` (`DCH_from_char`, `from_char_parse_int_len`, `do_to_timestamp`, `to_date`) and `datetime.c`
//! (`ValidateDate`).

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, TimestampMicrosecondArray};
use pystachio_plan::{
    Error, ErrorKind, MomentReading, ReadingField, ReadingPart, Result, is_blank, is_separator,
};

use super::{
    calendar::{
        CivilDate, HOUR_MICROSECONDS, MINUTE_MICROSECONDS, SECOND_MICROSECONDS, is_date, timestamp,
        timestamp_out_of_range,
    },
    invocation::Invocation,
};

/// `to_date(text, format)`.
///
/// # Errors
///
/// PostgreSQL's of texts that are no date.
pub(super) fn read_date(call: &Invocation<'_>) -> Result<ArrayRef> {
    let days = read_all(call, |text, fields| {
        let date = fields.date();
        let days = Some(date).filter(|date| date.is_counted()).map(CivilDate::to_days);
        let days = days.filter(|days| is_date(*days)).and_then(|days| i32::try_from(days).ok());
        days.ok_or_else(|| out_of_range(format!("date out of range: \"{text}\"")))
    })?;
    Ok(Arc::new(days.into_iter().collect::<Date32Array>()))
}

/// The local time of `to_timestamp(text, format)`.
///
/// # Errors
///
/// PostgreSQL's of texts that are no moment.
pub(super) fn read_timestamp(call: &Invocation<'_>) -> Result<ArrayRef> {
    let moments = read_all(call, |_, fields| {
        let date = fields.date();
        let days = Some(date).filter(|date| date.is_counted()).map(CivilDate::to_days);
        let time = i64::from(fields.get(ReadingField::Hour)) * HOUR_MICROSECONDS
            + i64::from(fields.get(ReadingField::Minute)) * MINUTE_MICROSECONDS
            + i64::from(fields.get(ReadingField::Second)) * SECOND_MICROSECONDS;
        days.and_then(|days| timestamp(days, time)).ok_or_else(timestamp_out_of_range)
    })?;
    Ok(Arc::new(moments.into_iter().collect::<TimestampMicrosecondArray>()))
}

fn read_all<T>(call: &Invocation<'_>, value: impl Fn(&str, &Fields) -> Result<T>) -> Result<Vec<Option<T>>> {
    let (texts, formats) = (call.text(0)?, call.text(1)?);
    let mut known: Option<(String, MomentReading)> = None;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let (Some(text), Some(format)) = (texts.get(row), formats.get(row)) else {
            values.push(None);
            continue;
        };
        if known.as_ref().is_none_or(|(known, _)| known != format) {
            known = Some((format.to_owned(), MomentReading::parse(format)?));
        }
        let fields = match &known {
            Some((_, reading)) => Fields::read(reading, text)?,
            None => Fields::default(),
        };
        fields.check(text)?;
        values.push(Some(value(text, &fields)?));
    }
    Ok(values)
}

/// The numbers of a text; 0 of those that it does not have.
#[derive(Default)]
struct Fields([i32; ReadingField::ALL.len()]);

impl Fields {
    fn get(&self, field: ReadingField) -> i32 {
        self.0.get(field as usize).copied().unwrap_or(0)
    }

    fn read(reading: &MomentReading, text: &str) -> Result<Self> {
        let mut fields = Self::default();
        let mut rest = text;
        // Blanks of the text that stand for characters of the format.
        let mut skipped: i64 = 0;
        for (place, part) in reading.parts.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            if place == 0 || matches!(part, ReadingPart::Field { .. }) {
                skip_blanks(&mut rest, &mut skipped);
            }
            match part {
                ReadingPart::Separator => {
                    skipped -= 1;
                    if let Some(after) = rest.strip_prefix(|next| is_blank(next) || is_separator(next)) {
                        rest = after;
                        skipped += 1;
                    }
                }
                ReadingPart::Character(_) if skipped > 0 => skipped -= 1,
                ReadingPart::Character(_) => {
                    let mut characters = rest.chars();
                    characters.next();
                    rest = characters.as_str();
                }
                ReadingPart::Field { field, word, is_open } => {
                    let number = read_number(&mut rest, *field, word, *is_open)?;
                    if let Some(known) = fields.0.get_mut(*field as usize) {
                        *known = number;
                    }
                    skipped = 0;
                    skip_blanks(&mut rest, &mut skipped);
                }
            }
        }
        Ok(fields)
    }

    /// The date, in which the year 1 before Christ is 0.
    fn date(&self) -> CivilDate {
        let or_first = |field| i64::from(self.get(field).max(1));
        let year = i64::from(self.get(ReadingField::Year));
        CivilDate {
            year: if year < 0 { year + 1 } else { year },
            month: or_first(ReadingField::Month),
            day: or_first(ReadingField::Day),
        }
    }

    /// Whether the numbers are those of a date and a time. A number 0 is as none, and a day is compared with its month's length
    /// only if all three are given.
    fn check(&self, text: &str) -> Result<()> {
        let [year, month, day, hour, minute, second] = self.0;
        let is_whole = year != 0 && month != 0 && day != 0;
        let is_date = (0..=12).contains(&month)
            && (0..=31).contains(&day)
            && (!is_whole || i64::from(day) <= self.date().month_length());
        let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
        match is_date && is_time {
            true => Ok(()),
            false => Err(out_of_range(format!("date/time field value out of range: \"{text}\""))),
        }
    }
}

fn skip_blanks(rest: &mut &str, skipped: &mut i64) {
    while let Some(after) = rest.strip_prefix(is_blank) {
        *rest = after;
        *skipped += 1;
    }
}

/// The number that a text begins with, which is left.
fn read_number(rest: &mut &str, field: ReadingField, word: &str, is_open: bool) -> Result<i32> {
    let width = field.width();
    // PostgreSQL counts bytes.
    let fixed = rest.as_bytes().get(..width).unwrap_or(rest.as_bytes());
    let shown = || String::from_utf8_lossy(fixed).into_owned();
    let invalid = |detail: String| {
        let message = format!("invalid value \"{}\" for \"{word}\"", shown());
        Error::new(ErrorKind::InvalidDatetime, message).with_detail(detail)
    };
    let hint = "If your source string is not fixed-width, try using the \"FM\" modifier.";
    if !is_open && rest.len() < width {
        let message = format!("source string too short for \"{word}\" formatting field");
        let detail = format!("Field requires {width} characters, but only {} remain.", rest.len());
        return Err(Error::new(ErrorKind::InvalidDatetime, message).with_detail(detail).with_hint(hint));
    }
    let digits = if is_open { rest.as_bytes() } else { fixed };
    let (number, used) = integer(digits);
    if used == 0 {
        return Err(invalid("Value must be an integer.".to_owned()));
    }
    if !is_open && used < width {
        let detail = format!("Field requires {width} characters, but only {used} could be parsed.");
        return Err(invalid(detail).with_hint(hint));
    }
    // What was read is ASCII.
    *rest = rest.get(used..).unwrap_or_default();
    number.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| {
        let message = format!("value for \"{word}\" in source string is out of range");
        let detail = format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX);
        out_of_range(message).with_detail(detail)
    })
}

/// A number with its sign as C reads it, `None` if 64 bits do not hold it, and how many bytes it has; none where there is no digit.
fn integer(text: &[u8]) -> (Option<i64>, usize) {
    let has_sign = matches!(text.first(), Some(b'+' | b'-'));
    let digits = text.iter().skip(usize::from(has_sign)).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return (Some(0), 0);
    }
    let end = usize::from(has_sign) + digits;
    let number = text.get(..end).and_then(|number| std::str::from_utf8(number).ok());
    (number.and_then(|number| number.parse().ok()), end)
}

fn out_of_range(message: String) -> Error {
    Error::new(ErrorKind::DatetimeOutOfRange, message)
}
