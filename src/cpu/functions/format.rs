//! Text of values in PostgreSQL's ISO style.
//!
//! Source: PostgreSQL 15, `datetime.c`, `EncodeDateOnly`, `EncodeDateTime`, `EncodeTimeOnly` and `EncodeTimezone`.

use std::fmt::{self, Write};

use pystachio_plan::{Error, Result, ZoneTable};

use super::calendar::{
    CivilDate, DAY_MICROSECONDS, HOUR_MICROSECONDS, MINUTE_MICROSECONDS, SECOND_MICROSECONDS,
    is_infinite_timestamp, is_timestamp, timestamp_out_of_range,
};

/// `1992-01-02`, `0044-03-15 BC`.
pub(crate) fn write_date(target: &mut impl Write, days: i64) -> fmt::Result {
    let date = CivilDate::from_days(days);
    write_civil(target, date)?;
    write_era(target, date)
}

/// `1992-01-02 03:04:05.6`, with the separator of date and time; `zone` is written before the era.
pub(crate) fn write_timestamp(
    target: &mut impl Write,
    microseconds: i64,
    separator: char,
    zone: &str,
) -> fmt::Result {
    let date = CivilDate::from_days(microseconds.div_euclid(DAY_MICROSECONDS));
    write_civil(target, date)?;
    target.write_char(separator)?;
    write_time(target, microseconds.rem_euclid(DAY_MICROSECONDS))?;
    target.write_str(zone)?;
    write_era(target, date)
}

/// An infinite date or timestamp.
pub(crate) fn infinity(is_negative: bool) -> &'static str {
    if is_negative { "-infinity" } else { "infinity" }
}

/// Writes moments as local times of a zone with their offsets.
pub(super) struct InstantWriter {
    separator: char,
    /// Offsets always show minutes.
    shows_minutes: bool,
    /// The last zone.
    known: Option<(Vec<u8>, ZoneTable)>,
}

impl InstantWriter {
    pub(super) fn new(separator: char, shows_minutes: bool) -> Self {
        Self { separator, shows_minutes, known: None }
    }

    /// Appends a moment in the zone of a table's bytes.
    ///
    /// # Errors
    ///
    /// `DatetimeOutOfRange` if there is no such local time.
    pub(super) fn write(&mut self, target: &mut String, moment: i64, zone: &[u8]) -> Result<()> {
        if is_infinite_timestamp(moment) {
            target.push_str(infinity(moment < 0));
            return Ok(());
        }
        let table = match &mut self.known {
            Some((bytes, table)) if bytes == zone => table,
            known => &mut known.insert((zone.to_vec(), ZoneTable::decode(zone)?)).1,
        };
        let offset = table.offset(moment);
        let local = moment.checked_add(offset).filter(|local| is_timestamp(*local));
        let local = local.ok_or_else(timestamp_out_of_range)?;
        let mut shown = String::new();
        write_offset(&mut shown, offset / SECOND_MICROSECONDS, self.shows_minutes)
            .map_err(|error| Error::internal(error.to_string()))?;
        write_timestamp(target, local, self.separator, &shown)
            .map_err(|error| Error::internal(error.to_string()))
    }
}

/// Hours, and minutes and seconds unless they are zero.
fn write_offset(target: &mut String, seconds: i64, shows_minutes: bool) -> fmt::Result {
    let sign = if seconds < 0 { '-' } else { '+' };
    let seconds = seconds.abs();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    write!(target, "{sign}{hours:02}")?;
    if shows_minutes || minutes != 0 || seconds != 0 {
        write!(target, ":{minutes:02}")?;
    }
    if seconds != 0 {
        write!(target, ":{seconds:02}")?;
    }
    Ok(())
}

/// `03:04:05.6`.
pub(crate) fn write_time(target: &mut impl Write, time: i64) -> fmt::Result {
    let hour = time / HOUR_MICROSECONDS;
    let minute = time / MINUTE_MICROSECONDS % 60;
    let second = time / SECOND_MICROSECONDS % 60;
    write!(target, "{hour:02}:{minute:02}:{second:02}")?;
    let mut fraction = time % SECOND_MICROSECONDS;
    if fraction == 0 {
        return Ok(());
    }
    let mut width = 6;
    while fraction % 10 == 0 {
        fraction /= 10;
        width -= 1;
    }
    write!(target, ".{fraction:0width$}")
}

/// `00112233-4455-6677-8899-aabbccddeeff`.
pub(crate) fn write_uuid(target: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            target.write_char('-')?;
        }
        write!(target, "{byte:02x}")?;
    }
    Ok(())
}

fn write_civil(target: &mut impl Write, date: CivilDate) -> fmt::Result {
    let year = if date.year > 0 { date.year } else { 1 - date.year };
    write!(target, "{year:04}-{:02}-{:02}", date.month, date.day)
}

fn write_era(target: &mut impl Write, date: CivilDate) -> fmt::Result {
    if date.year > 0 { Ok(()) } else { target.write_str(" BC") }
}

/// A text as a string of JSON, with its quotes.
///
/// Source: PostgreSQL 15, `json.c` (`escape_json`).
pub(super) fn write_json_string(target: &mut String, text: &str) {
    target.push('"');
    for character in text.chars() {
        match character {
            '\u{8}' => target.push_str("\\b"),
            '\u{c}' => target.push_str("\\f"),
            '\n' => target.push_str("\\n"),
            '\r' => target.push_str("\\r"),
            '\t' => target.push_str("\\t"),
            '"' => target.push_str("\\\""),
            '\\' => target.push_str("\\\\"),
            control if control < ' ' => target.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => target.push(other),
        }
    }
    target.push('"');
}
