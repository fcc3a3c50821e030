//! The proleptic Gregorian calendar, and the ranges of PostgreSQL's dates and timestamps.
//!
//! Units: days and microseconds count from 1970-01-01. A year is astronomical: 0 is 1 BC, -1 is 2 BC.
//!
//! Source: the algorithms of Howard Hinnant, "chrono-compatible low-level date algorithms", 2013, which
//! agree with `date2j` and `j2date` of PostgreSQL's `datetime.c`; for the days that fit it, the one of
//! Neri and Schneider, "Euclidean affine functions and their application to calendar algorithms",
//! Software: Practice and Experience 2023, section 6, which is four times as fast; ranges from
//! PostgreSQL 15, `datatype/timestamp.h`.

use pystachio_plan::{Error, ErrorKind};

/// Microseconds of a day.
pub(super) const DAY_MICROSECONDS: i64 = 86_400 * SECOND_MICROSECONDS;
/// Microseconds of an hour.
pub(super) const HOUR_MICROSECONDS: i64 = 3_600 * SECOND_MICROSECONDS;
/// Microseconds of a minute.
pub(super) const MINUTE_MICROSECONDS: i64 = 60 * SECOND_MICROSECONDS;
/// Microseconds of a second.
pub(super) const SECOND_MICROSECONDS: i64 = 1_000_000;

/// Days from 2000-01-01, where PostgreSQL counts from, to 1970-01-01.
const POSTGRES_EPOCH_DAYS: i64 = 10_957;
/// 4714-11-24 BC, Julian day 0.
const DATE_MIN: i64 = -2_451_545 + POSTGRES_EPOCH_DAYS;
/// The day after 5874897-12-31.
const DATE_END: i64 = 2_147_483_494 - 2_451_545 + POSTGRES_EPOCH_DAYS;
/// Midnight of 4714-11-24 BC. PostgreSQL's latest timestamps, from 294247 on, are beyond 64 bits here.
const TIMESTAMP_MIN: i64 = DATE_MIN * DAY_MICROSECONDS;

const _: () = assert!(TIMESTAMP_MIN == -211_813_488_000_000_000 + POSTGRES_EPOCH_DAYS * DAY_MICROSECONDS);

/// Days in four centuries.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const ERA_EPOCH_DAYS: i64 = 719_468;

/// Years before the year 0 from which the fast algorithm counts: whole cycles of 400.
const FAST_YEARS: i64 = 400 * 82;
/// Days from there to 1970-01-01.
const FAST_EPOCH_DAYS: i64 = ERA_DAYS * 82 + ERA_EPOCH_DAYS;
/// The last day for which four times the days and three fit 32 bits.
const FAST_DAYS_MAX: u32 = (u32::MAX - 3) / 4;

/// A date by year, month 1 to 12 and day 1 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CivilDate {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
}

impl CivilDate {
    /// The date of a day.
    #[inline]
    pub(super) fn from_days(days: i64) -> Self {
        match u32::try_from(days + FAST_EPOCH_DAYS) {
            Ok(shifted) if shifted <= FAST_DAYS_MAX => Self::from_shifted_days(shifted),
            _ => Self::from_any_days(days),
        }
    }

    /// The date of a day counted from 1 March of the year `-FAST_YEARS`.
    #[inline]
    fn from_shifted_days(shifted: u32) -> Self {
        let quarter_days = 4 * shifted + 3;
        let century = quarter_days / ERA_DAYS as u32;
        let day_of_century = quarter_days % ERA_DAYS as u32 / 4;
        let product = 2_939_745 * u64::from(4 * day_of_century + 3);
        let year_of_century = product >> 32;
        let day_of_year = (product & u64::from(u32::MAX)) as u32 / 2_939_745 / 4;
        let scaled_month = 2_141 * day_of_year + 197_913;
        let (month, day) = (i64::from(scaled_month >> 16), i64::from((scaled_month & 0xffff) / 2_141));
        // January and February end the shifted year.
        let next = day_of_year >= 306;
        let year = 100 * i64::from(century) + year_of_century as i64 - FAST_YEARS + i64::from(next);
        Self { year, month: if next { month - 12 } else { month }, day: day + 1 }
    }

    fn from_any_days(days: i64) -> Self {
        let shifted = days + ERA_EPOCH_DAYS;
        let era = shifted.div_euclid(ERA_DAYS);
        let day_of_era = shifted.rem_euclid(ERA_DAYS);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self { year: year_of_era + era * 400 + i64::from(month <= 2), month, day }
    }

    /// The date of these numbers, of which a negative year is before Christ; `None` if no calendar has it.
    pub(super) fn of_numbers(year: i32, month: i32, day: i32) -> Option<Self> {
        let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
        // There is no year 0, and -2147483648 has no positive year.
        if year == 0 || year == i64::from(i32::MIN) {
            return None;
        }
        let year = if year < 0 { year + 1 } else { year };
        let has_day = (1..=12).contains(&month) && (1..=month_length(year, month)).contains(&day);
        has_day.then_some(Self { year, month, day })
    }

    /// Whether PostgreSQL counts the date's day: it may have it or not.
    pub(super) fn is_counted(self) -> bool {
        ((-4_713, 11)..(5_874_898, 6)).contains(&(self.year, self.month))
    }

    /// Days of the date's month.
    pub(super) fn month_length(self) -> i64 {
        month_length(self.year, self.month)
    }

    /// The day of the date.
    pub(super) fn to_days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted_month = (self.month + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * ERA_DAYS + day_of_era - ERA_EPOCH_DAYS
    }

    /// The same day some months later, or the last day of that month if it is shorter.
    pub(super) fn add_months(self, months: i64) -> Self {
        let month_index = self.year * 12 + self.month - 1 + months;
        let (year, month) = (month_index.div_euclid(12), month_index.rem_euclid(12) + 1);
        Self { year, month, day: self.day.min(month_length(year, month)) }
    }
}

/// Days of a month.
fn month_length(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Sunday 0 to Saturday 6.
pub(super) fn day_of_week(days: i64) -> i64 {
    // 1970-01-01 was a Thursday.
    (days + 4).rem_euclid(7)
}

/// The Monday of the day's week.
pub(super) fn week_start(days: i64) -> i64 {
    days - (day_of_week(days) + 6) % 7
}

/// The ISO year and week of a day: those of the week's Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = week_start(days) + 3;
    let year = CivilDate::from_days(thursday).year;
    let january = CivilDate { year, month: 1, day: 1 }.to_days();
    (year, (thursday - january) / 7 + 1)
}

/// Whether PostgreSQL has this date.
pub(super) fn is_date(days: i64) -> bool {
    (DATE_MIN..DATE_END).contains(&days)
}

/// Midnight of a day; `None` if PostgreSQL or 64 bits do not have it.
pub(super) fn midnight(days: i64) -> Option<i64> {
    timestamp(days, 0)
}

/// A day and a time of it; `None` if PostgreSQL or 64 bits do not have it.
pub(super) fn timestamp(days: i64, microseconds: i64) -> Option<i64> {
    let timestamp = i128::from(days) * i128::from(DAY_MICROSECONDS) + i128::from(microseconds);
    i64::try_from(timestamp).ok().filter(|timestamp| is_timestamp(*timestamp))
}

/// Whether PostgreSQL has this timestamp.
pub(super) fn is_timestamp(microseconds: i64) -> bool {
    microseconds >= TIMESTAMP_MIN
}

/// Whether a date is PostgreSQL's `infinity` or `-infinity`, which parameters and constants may be.
pub(crate) fn is_infinite_date(days: i32) -> bool {
    matches!(days, i32::MIN | i32::MAX)
}

/// The same of a timestamp.
pub(crate) fn is_infinite_timestamp(microseconds: i64) -> bool {
    matches!(microseconds, i64::MIN | i64::MAX)
}

/// The error of a field of what is infinite, for which PostgreSQL has NULL or an infinite number.
pub(super) fn infinite_field() -> Error {
    Error::new(ErrorKind::NotSupported, "fields of infinite dates and timestamps are not supported here")
        .with_hint("SET pystachio.pushdown = off lets PostgreSQL compute them.")
}

/// PostgreSQL's error of a date that it does not have.
pub(super) fn date_out_of_range() -> Error {
    Error::new(ErrorKind::DatetimeOutOfRange, "date out of range")
}

/// PostgreSQL's error of a timestamp that it does not have.
pub(super) fn timestamp_out_of_range() -> Error {
    Error::new(ErrorKind::DatetimeOutOfRange, "timestamp out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_algorithms_give_the_same_date_and_it_is_the_day_again() {
        let first = -FAST_EPOCH_DAYS;
        let last = i64::from(FAST_DAYS_MAX) - FAST_EPOCH_DAYS;
        let near = (-800_000..800_000).chain(first..first + 1_000).chain(last - 1_000..=last);
        for days in near.chain((first..last).step_by(9_973)) {
            let date = CivilDate::from_days(days);
            assert_eq!(date, CivilDate::from_any_days(days), "{days}");
            assert_eq!(date.to_days(), days);
        }
        for days in [first - 1, last + 1, DATE_END, i64::from(i32::MIN)] {
            assert_eq!(CivilDate::from_days(days).to_days(), days);
        }
    }
}
