//! Text of values in PostgreSQL's ISO style.
//!
//! Source: PostgreSQL 15, `datetime.c`, `EncodeDateOnly`, `EncodeDateTime` and `EncodeTimeOnly`.

use std::fmt::{self, Write};

use super::calendar::{
    CivilDate, DAY_MICROSECONDS, HOUR_MICROSECONDS, MINUTE_MICROSECONDS, SECOND_MICROSECONDS,
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
