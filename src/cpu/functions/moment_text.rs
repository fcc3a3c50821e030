//! Texts of dates and timestamps: those of a DateStyle, and those of `to_char`.
//!
//! Source: PostgreSQL 15, `datetime.c` (`EncodeDateOnly`, `EncodeDateTime`, `EncodeTimezone`) and `formatting.c` (`DCH_to_char`,
//! `str_numth`).

use std::fmt::{self, Write};

use arrow::{
    array::ArrayRef,
    datatypes::{DataType as ArrowType, Date32Type, TimestampMicrosecondType},
};
use pystachio_plan::{Error, ErrorKind, FormatPart, LetterCase, MomentFormat, Pattern, Result};

use super::{
    calendar::{
        CivilDate, DAY_MICROSECONDS, HOUR_MICROSECONDS, MINUTE_MICROSECONDS, SECOND_MICROSECONDS,
        day_of_week, is_infinite_date, is_infinite_timestamp, iso_week, week_start,
    },
    format::{InstantWriter, infinity, write_date, write_time, write_timestamp},
    invocation::Invocation,
};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];
/// Letters of a short name.
const SHORT: usize = 3;
/// Characters of the longest name of a month, and of a day, and of a Roman number.
const NAME_WIDTH: usize = 9;
const ROMAN_WIDTH: usize = 4;
/// Days from Julian day 0 to 1970-01-01.
const JULIAN_EPOCH: i64 = 2_440_588;

/// A style of dates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Iso,
    German,
    Sql { is_day_first: bool },
    Postgres { is_day_first: bool },
}

impl Style {
    /// The style of the setting DateStyle, as it is shown.
    fn of(setting: &str) -> Result<Self> {
        let is_day_first = setting.contains("DMY");
        match setting.split(',').next() {
            Some("ISO") => Ok(Self::Iso),
            Some("German") => Ok(Self::German),
            Some("SQL") => Ok(Self::Sql { is_day_first }),
            Some("Postgres") => Ok(Self::Postgres { is_day_first }),
            _ => Err(Error::internal(format!("{setting} is no style of dates"))),
        }
    }
}

fn failed(error: fmt::Error) -> Error {
    Error::internal(error.to_string())
}

/// A date or timestamp in a DateStyle.
pub(super) fn moment_text(call: &Invocation<'_>) -> Result<ArrayRef> {
    let styles = call.text(1)?;
    match call.arrow_type(0)? {
        ArrowType::Date32 => {
            let days = call.lanes::<Date32Type>(0)?;
            call.write_texts(|row, target| {
                let (Some(days), Some(style)) = (days.get(row), styles.get(row)) else { return Ok(false) };
                match is_infinite_date(days) {
                    true => target.push_str(infinity(days < 0)),
                    false => write_styled_date(target, days.into(), Style::of(style)?).map_err(failed)?,
                }
                Ok(true)
            })
        }
        ArrowType::Timestamp(..) => {
            let moments = call.lanes::<TimestampMicrosecondType>(0)?;
            call.write_texts(|row, target| {
                let (Some(moment), Some(style)) = (moments.get(row), styles.get(row)) else {
                    return Ok(false);
                };
                match is_infinite_timestamp(moment) {
                    true => target.push_str(infinity(moment < 0)),
                    false => write_styled_timestamp(target, moment, Style::of(style)?).map_err(failed)?,
                }
                Ok(true)
            })
        }
        _ => Err(call.not_supported("a text of a style")),
    }
}

/// Four digits at least; that of 1 BC is 1.
fn shown_year(date: CivilDate) -> i64 {
    if date.year > 0 { date.year } else { 1 - date.year }
}

fn era(date: CivilDate) -> &'static str {
    if date.year > 0 { "" } else { " BC" }
}

fn write_styled_date(target: &mut String, days: i64, style: Style) -> fmt::Result {
    let date = CivilDate::from_days(days);
    let CivilDate { month, day, .. } = date;
    let (year, era) = (shown_year(date), era(date));
    match style {
        Style::Iso => write_date(target, days),
        Style::German => write!(target, "{day:02}.{month:02}.{year:04}{era}"),
        Style::Sql { is_day_first: true } => write!(target, "{day:02}/{month:02}/{year:04}{era}"),
        Style::Sql { is_day_first: false } => write!(target, "{month:02}/{day:02}/{year:04}{era}"),
        Style::Postgres { is_day_first: true } => write!(target, "{day:02}-{month:02}-{year:04}{era}"),
        Style::Postgres { is_day_first: false } => write!(target, "{month:02}-{day:02}-{year:04}{era}"),
    }
}

fn write_styled_timestamp(target: &mut String, moment: i64, style: Style) -> fmt::Result {
    let days = moment.div_euclid(DAY_MICROSECONDS);
    let date = CivilDate::from_days(days);
    let CivilDate { month, day, .. } = date;
    let (year, era) = (shown_year(date), era(date));
    match style {
        Style::Iso => return write_timestamp(target, moment, ' ', ""),
        Style::German => write!(target, "{day:02}.{month:02}.{year:04} ")?,
        Style::Sql { is_day_first: true } => write!(target, "{day:02}/{month:02}/{year:04} ")?,
        Style::Sql { is_day_first: false } => write!(target, "{month:02}/{day:02}/{year:04} ")?,
        Style::Postgres { is_day_first } => {
            let (weekday, month) = (short(day_name(days)), short(month_name(month)));
            match is_day_first {
                true => write!(target, "{weekday} {day:02} {month} ")?,
                false => write!(target, "{weekday} {month} {day:02} ")?,
            }
        }
    }
    write_time(target, moment.rem_euclid(DAY_MICROSECONDS))?;
    if matches!(style, Style::Postgres { .. }) {
        write!(target, " {year:04}")?;
    }
    target.write_str(era)
}

/// A timestamp with time zone in ISO style.
///
/// # Errors
///
/// `NotSupported` for another style, which would show the abbreviation of the zone.
pub(super) fn instant_text(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (moments, zones) = (call.lanes::<TimestampMicrosecondType>(0)?, call.bytes(1)?);
    let styles = call.text(2)?;
    let mut writer = InstantWriter::new(' ', false);
    call.write_texts(|row, target| {
        let (Some(moment), Some(zone), Some(style)) = (moments.get(row), zones.get(row), styles.get(row))
        else {
            return Ok(false);
        };
        if Style::of(style)? != Style::Iso {
            let message = "text of timestamps with time zone is not supported with this DateStyle";
            return Err(Error::new(ErrorKind::NotSupported, message)
                .with_hint("SET pystachio.pushdown = off lets PostgreSQL compute them."));
        }
        writer.write(target, moment, zone)?;
        Ok(true)
    })
}

/// `to_char` of timestamps.
///
/// # Errors
///
/// `NotSupported` for a format that [`MomentFormat`] does not read.
pub(super) fn format_moment(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (moments, formats) = (call.lanes::<TimestampMicrosecondType>(0)?, call.text(1)?);
    let mut known: Option<(String, MomentFormat)> = None;
    call.write_texts(|row, target| {
        let (Some(moment), Some(format)) = (moments.get(row), formats.get(row)) else { return Ok(false) };
        if format.is_empty() || is_infinite_timestamp(moment) {
            return Ok(false);
        }
        if known.as_ref().is_none_or(|(text, _)| text != format) {
            known = Some((format.to_owned(), MomentFormat::parse(format)?));
        }
        let Some((_, format)) = &known else { return Ok(false) };
        let fields = Fields::of(moment);
        for part in &format.parts {
            match part {
                FormatPart::Character(character) => target.push(*character),
                FormatPart::Pattern { pattern, is_filled, ordinal } => {
                    let begin = target.len();
                    let is_number = fields.write(target, *pattern, *is_filled).map_err(failed)?;
                    if let (Some(case), true) = (ordinal, is_number) {
                        let ending = ordinal_ending(target.get(begin..).unwrap_or_default());
                        match case {
                            LetterCase::Upper => target.push_str(&ending.to_ascii_uppercase()),
                            LetterCase::Capital | LetterCase::Lower => target.push_str(ending),
                        }
                    }
                }
            }
        }
        Ok(true)
    })
}

/// The ending of an ordinal number by its last digits.
fn ordinal_ending(number: &str) -> &'static str {
    let mut digits = number.bytes().rev();
    let (last, before) = (digits.next(), digits.next());
    match last {
        _ if before == Some(b'1') => "th",
        Some(b'1') => "st",
        Some(b'2') => "nd",
        Some(b'3') => "rd",
        _ => "th",
    }
}

fn month_name(month: i64) -> &'static str {
    usize::try_from(month - 1).ok().and_then(|place| MONTHS.get(place)).copied().unwrap_or_default()
}

fn day_name(days: i64) -> &'static str {
    usize::try_from(day_of_week(days)).ok().and_then(|place| DAYS.get(place)).copied().unwrap_or_default()
}

fn short(name: &str) -> &str {
    name.get(..SHORT).unwrap_or(name)
}

/// What a timestamp consists of.
struct Fields {
    days: i64,
    date: CivilDate,
    time: i64,
}

impl Fields {
    fn of(moment: i64) -> Self {
        let days = moment.div_euclid(DAY_MICROSECONDS);
        Self { days, date: CivilDate::from_days(days), time: moment.rem_euclid(DAY_MICROSECONDS) }
    }

    fn day_of_year(&self) -> i64 {
        self.days - CivilDate { month: 1, day: 1, ..self.date }.to_days() + 1
    }

    /// Appends what a pattern stands for; returns whether it is a number that may be an ordinal one.
    fn write(
        &self,
        target: &mut String,
        pattern: Pattern,
        is_filled: bool,
    ) -> std::result::Result<bool, fmt::Error> {
        let number = |target: &mut String, number: i64, width: usize| {
            let width = if is_filled { width } else { 0 };
            write!(target, "{number:0width$}").map(|()| true)
        };
        let hour = self.time / HOUR_MICROSECONDS;
        match pattern {
            Pattern::Century => number(target, century(self.date.year), 2 + usize::from(self.date.year <= 0)),
            Pattern::DayOfYear => number(target, self.day_of_year(), 3),
            Pattern::DayOfMonth => number(target, self.date.day, 2),
            Pattern::DayOfWeek => number(target, day_of_week(self.days) + 1, 0),
            Pattern::Fraction(digits) => {
                let unit = 10_i64.pow(6_u32.saturating_sub(digits));
                let fraction = self.time % SECOND_MICROSECONDS / unit;
                write!(target, "{fraction:0width$}", width = digits as usize).map(|()| true)
            }
            Pattern::Hour24 => number(target, hour, 2),
            Pattern::Hour12 => number(target, if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
            Pattern::IsoDayOfYear => number(target, self.iso_day_of_year(), 3),
            Pattern::IsoDayOfWeek => number(target, (day_of_week(self.days) + 6) % 7 + 1, 0),
            Pattern::IsoWeek => number(target, iso_week(self.days).1, 2),
            Pattern::IsoYear(digits) => {
                let (year, _) = iso_week(self.days);
                number(target, last_digits(counted_year(year), digits), digits as usize)
            }
            Pattern::JulianDay => number(target, self.days + JULIAN_EPOCH, 0),
            Pattern::Minute => number(target, self.time / MINUTE_MICROSECONDS % 60, 2),
            Pattern::Month => number(target, self.date.month, 2),
            Pattern::Quarter => number(target, (self.date.month - 1) / 3 + 1, 0),
            Pattern::SecondOfDay => number(target, self.time / SECOND_MICROSECONDS, 0),
            Pattern::Second => number(target, self.time / SECOND_MICROSECONDS % 60, 2),
            Pattern::Week => number(target, (self.day_of_year() - 1) / 7 + 1, 2),
            Pattern::WeekOfMonth => number(target, (self.date.day - 1) / 7 + 1, 0),
            Pattern::YearWithComma => {
                let year = counted_year(self.date.year);
                write!(target, "{},{:03}", year / 1_000, year % 1_000).map(|()| true)
            }
            Pattern::Year(digits) => {
                number(target, last_digits(counted_year(self.date.year), digits), digits as usize)
            }
            _ => self.write_word(target, pattern, is_filled).map(|()| false),
        }
    }

    fn write_word(&self, target: &mut String, pattern: Pattern, is_filled: bool) -> fmt::Result {
        let filled = |target: &mut String, word: &str, width: usize| {
            let width = if is_filled { width } else { 0 };
            write!(target, "{word:width$}")
        };
        match pattern {
            Pattern::Era { is_lower, has_points } => {
                let words = if self.date.year <= 0 { ["BC", "B.C."] } else { ["AD", "A.D."] };
                push_abbreviation(target, words, is_lower, has_points);
                Ok(())
            }
            Pattern::HalfDay { is_lower, has_points } => {
                let is_late = self.time / HOUR_MICROSECONDS >= 12;
                let words = if is_late { ["PM", "P.M."] } else { ["AM", "A.M."] };
                push_abbreviation(target, words, is_lower, has_points);
                Ok(())
            }
            Pattern::DayName(case) => filled(target, &cased(day_name(self.days), case), NAME_WIDTH),
            Pattern::ShortDayName(case) => target.write_str(&cased(short(day_name(self.days)), case)),
            Pattern::MonthName(case) => filled(target, &cased(month_name(self.date.month), case), NAME_WIDTH),
            Pattern::ShortMonthName(case) => {
                target.write_str(&cased(short(month_name(self.date.month)), case))
            }
            Pattern::RomanMonth { is_lower } => {
                let place = usize::try_from(self.date.month - 1).unwrap_or(0);
                let word = ROMAN.get(place).copied().unwrap_or_default();
                let case = if is_lower { LetterCase::Lower } else { LetterCase::Upper };
                filled(target, &cased(word, case), ROMAN_WIDTH)
            }
            // Without a time zone.
            Pattern::Offset if !is_filled => target.write_str("+0"),
            Pattern::Offset | Pattern::OffsetHours => target.write_str("+00"),
            Pattern::OffsetMinutes => target.write_str("00"),
            _ => Ok(()),
        }
    }

    /// The day since the Monday of the ISO year's first week.
    fn iso_day_of_year(&self) -> i64 {
        let (_, week) = iso_week(self.days);
        (week - 1) * 7 + self.days - week_start(self.days) + 1
    }
}

fn push_abbreviation(target: &mut String, words: [&str; 2], is_lower: bool, has_points: bool) {
    let [plain, with_points] = words;
    let word = if has_points { with_points } else { plain };
    match is_lower {
        true => target.push_str(&word.to_ascii_lowercase()),
        false => target.push_str(word),
    }
}

fn cased(name: &str, case: LetterCase) -> String {
    match case {
        LetterCase::Upper => name.to_ascii_uppercase(),
        LetterCase::Capital => name.to_owned(),
        LetterCase::Lower => name.to_ascii_lowercase(),
    }
}

/// The number of a year in its era.
fn counted_year(year: i64) -> i64 {
    if year > 0 { year } else { 1 - year }
}

fn last_digits(year: i64, digits: u32) -> i64 {
    if digits >= 4 { year } else { year % 10_i64.pow(digits) }
}

fn century(year: i64) -> i64 {
    if year > 0 { (year - 1) / 100 + 1 } else { year / 100 - 1 }
}
