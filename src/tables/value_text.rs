//! Values from the texts that logs and the names of folders have.

use pystachio_plan::{DataType, Value};

/// The most digits of a decimal in [`Value::Decimal`].
const DECIMAL_DIGITS_MAX: u8 = 38;
const MICROSECONDS: i64 = 1_000_000;

/// A value from its text; `None` if it is none of the type.
pub fn parse(text: &str, data_type: &DataType) -> Option<Value> {
    let integer = |least: i64, greatest: i64| {
        let value: i64 = text.parse().ok()?;
        (least..=greatest).contains(&value).then_some(Value::Int(value))
    };
    match data_type {
        DataType::Text => Some(Value::Text(text.to_owned())),
        DataType::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => Some(Value::Bool(true)),
            "false" | "f" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        DataType::Int16 => integer(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => integer(i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => integer(i64::MIN, i64::MAX),
        // Parsers of both languages round to the nearest number.
        DataType::Float32 => text.parse::<f32>().ok().map(|number| Value::Float(number.into())),
        DataType::Float64 => text.parse().ok().map(Value::Float),
        DataType::Decimal { precision, scale } => parse_decimal(text, *precision, *scale).map(Value::Decimal),
        DataType::Date => parse_days(text).map(Value::Int),
        DataType::Timestamp => parse_microseconds(text).map(Value::Int),
        DataType::TimestampTz => {
            let utc = ["Z", "+00", "+00:00"].iter().find_map(|zone| text.strip_suffix(zone))?;
            parse_microseconds(utc).map(Value::Int)
        }
        DataType::Time => parse_clock(text).map(Value::Int),
        DataType::Bytea => parse_hex(text.strip_prefix("\\x")?).map(Value::Bytes),
        DataType::Uuid => {
            let digits = text.strip_prefix("\\x").map_or_else(|| text.replace('-', ""), str::to_owned);
            parse_hex(&digits).filter(|bytes| bytes.len() == 16).map(Value::Bytes)
        }
        _ => None,
    }
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(hex_byte).collect()
}

/// The byte of two digits.
fn hex_byte(pair: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    }
}

/// `-12.30` in units of the last of `scale` digits, if no digit is lost.
pub(crate) fn parse_decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    if precision > DECIMAL_DIGITS_MAX {
        return None;
    }
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = part.trim_end_matches('0');
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > scale.into() {
        return None;
    }
    let number: i128 = format!("{whole}{part:0<width$}", width = usize::from(scale)).parse().ok()?;
    (number < 10i128.checked_pow(precision.into())?).then_some(if is_negative { -number } else { number })
}

/// `2024-05-01` as days since 1970.
pub(crate) fn parse_days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let mut next = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok())?
    };
    let (year, month, day) = (next(4)?, next(2)?, next(2)?);
    if parts.next().is_some() || year == 0 || !(1..=12).contains(&month) {
        return None;
    }
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=month_days).contains(&day) {
        return None;
    }
    Some(days_of(year, month, day))
}

/// A day as days since 1970.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Days of years that begin in March, as of 0000-03-01.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// Days since 1970 as `2024-05-01`.
pub(crate) fn date_text(days: i64) -> String {
    // Days of an era of 400 years that begins with a March, as of 0000-03-01.
    const ERA_DAYS: i64 = 146_097;
    let since = days.saturating_add(719_468);
    let (era, day_of_era) = (since.div_euclid(ERA_DAYS), since.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Microseconds since midnight as `12:30:00.500000`.
pub(crate) fn time_text(microseconds: i64) -> String {
    let seconds = microseconds.div_euclid(MICROSECONDS);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:06}", microseconds.rem_euclid(MICROSECONDS))
}

/// Microseconds since 1970 as `2024-05-01 12:30:00.500000`.
pub(crate) fn timestamp_text(microseconds: i64) -> String {
    let day = 86_400 * MICROSECONDS;
    format!("{} {}", date_text(microseconds.div_euclid(day)), time_text(microseconds.rem_euclid(day)))
}

/// A number in units of the last of `scale` digits as `-12.30`.
pub(crate) fn decimal_text(number: i128, scale: u8) -> String {
    let scale = usize::from(scale);
    let sign = if number < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
    match digits.split_at(digits.len() - scale) {
        (whole, "") => format!("{sign}{whole}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    }
}

/// `2024-05-01 12:30:00.5` as microseconds since 1970; a `T` may stand between the two.
pub(crate) fn parse_microseconds(text: &str) -> Option<i64> {
    let Some((date, time)) = text.split_once([' ', 'T']) else {
        return Some(parse_days(text)? * 86_400 * MICROSECONDS);
    };
    Some(parse_days(date)? * 86_400 * MICROSECONDS + parse_clock(time)?)
}

/// `12:30:00.5` as microseconds since midnight.
fn parse_clock(time: &str) -> Option<i64> {
    let (clock, part) = time.split_once('.').unwrap_or((time, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut seconds = 0;
    let mut parts = clock.split(':');
    for limit in [24, 60, 60] {
        let part = parts.next().filter(|part| part.len() == 2 && is_number(part))?;
        let value: i64 = part.parse().ok()?;
        seconds = (value < limit).then_some(seconds * 60 + value)?;
    }
    if parts.next().is_some() || part.len() > 6 || !is_number(part) {
        return None;
    }
    let microseconds: i64 = format!("{part:0<6}").parse().ok()?;
    Some(seconds * MICROSECONDS + microseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        for days in [-719_162, -1, 0, 58, 59, 11_016, 11_017, 19_782, 2_932_896] {
            assert_eq!(parse_days(&date_text(days)), Some(days));
        }
        for us in [-1, 0, 86_399_999_999, 86_400_000_000, -62_135_596_800_000_000, 1_704_067_200_000_001] {
            assert_eq!(parse_microseconds(&timestamp_text(us)), Some(us));
        }
        for (number, scale, text) in
            [(-5, 2, "-0.05"), (1230, 2, "12.30"), (0, 0, "0"), (-12, 0, "-12"), (7, 3, "0.007")]
        {
            assert_eq!(decimal_text(number, scale), text);
            assert_eq!(parse_decimal(text, 10, scale), Some(number));
        }
        assert_eq!(parse("23:59:59.000001", &DataType::Time), Some(Value::Int(86_399_000_001)));
        assert_eq!(parse("\\x00fF", &DataType::Bytea), Some(Value::Bytes(vec![0, 255])));
        assert_eq!(parse("\\x00f", &DataType::Bytea), None);
        let uuid = Some(Value::Bytes((0..16).collect()));
        assert_eq!(parse("00010203-0405-0607-0809-0a0b0c0d0e0f", &DataType::Uuid), uuid);
        assert_eq!(parse("\\x000102030405060708090a0b0c0d0e0f", &DataType::Uuid), uuid);
        assert_eq!(parse("00010203", &DataType::Uuid), None);
    }

    #[test]
    fn dates_are_counted_as_postgresql_counts_them() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-03-01", 11_017),
            ("0001-01-01", -719_162),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(parse_days(text), Some(days), "{text}");
        }
        assert_eq!(parse_microseconds("1969-12-31T23:59:59.5"), Some(-500_000));
    }
}
