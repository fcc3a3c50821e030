//! Types and values as the case files write them.

use pystachio_plan::{DataType, Interval, Value};

/// Whether two values are the same: NaN is one value, and zero has a sign.
pub fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

/// A decimal of these digits, of which a sign may be the first: one that 128 bits do not hold is their text.
pub fn decimal_value(digits: &str) -> Value {
    if let Ok(value) = digits.parse() {
        return Value::Decimal(value);
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let digits = digits.trim_start_matches('0');
    assert!(digits.bytes().all(|byte| byte.is_ascii_digit()), "{digits} is not a number");
    assert!(digits.len() <= 77, "{digits} has more digits than 256 bits");
    Value::Text(format!("{sign}{digits}"))
}

pub(crate) fn parse_type(text: &str) -> DataType {
    if let Some(digits) = text.strip_prefix("numeric(") {
        let (precision, scale) = digits.trim_end_matches(')').split_once(';').expect("two numbers");
        return DataType::Decimal { precision: number(precision) as u8, scale: number(scale) as u8 };
    }
    match text {
        "bool" => DataType::Bool,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "date" => DataType::Date,
        "time" => DataType::Time,
        "timestamp" => DataType::Timestamp,
        "timestamptz" => DataType::TimestampTz,
        "interval" => DataType::Interval,
        "text" => DataType::Text,
        "bytea" => DataType::Bytea,
        "uuid" => DataType::Uuid,
        other => panic!("unknown type {other}"),
    }
}

/// The value that PostgreSQL printed.
pub(crate) fn parse_value(text: &str, data_type: &DataType) -> Value {
    if text == "\\N" {
        return Value::Null;
    }
    match data_type {
        DataType::Bool => Value::Bool(text == "t"),
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Value::Int(number(text)),
        DataType::Float32 => Value::Float(text.parse::<f32>().expect("a float").into()),
        DataType::Float64 => Value::Float(text.parse().expect("a float")),
        DataType::Decimal { scale, .. } => parse_decimal(text, usize::from(*scale)),
        DataType::Date => Value::Int(parse_date(text)),
        DataType::Time => Value::Int(parse_time(text)),
        DataType::Timestamp | DataType::TimestampTz => Value::Int(parse_timestamp(text)),
        DataType::Interval => {
            let parts: Vec<i64> = text.split(' ').map(number).collect();
            let (months, days) = (parts[0] as i32, parts[1] as i32);
            Value::Interval(Interval { months, days, microseconds: parts[2] })
        }
        DataType::Text => {
            let mut characters = text.chars();
            let mut plain = String::with_capacity(text.len());
            while let Some(character) = characters.next() {
                plain.push(match character {
                    '\\' => match characters.next() {
                        Some('t') => '\t',
                        Some('n') => '\n',
                        Some('r') => '\r',
                        Some('b') => '\u{8}',
                        Some('f') => '\u{c}',
                        Some('v') => '\u{b}',
                        other => other.unwrap_or('\\'),
                    },
                    other => other,
                });
            }
            Value::Text(plain)
        }
        DataType::Bytea => Value::Bytes(hexadecimal(text.trim_start_matches('\\').trim_start_matches('x'))),
        DataType::Uuid => Value::Bytes(hexadecimal(&text.replace('-', ""))),
        other => panic!("no value of {other}"),
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

/// At the type's scale: zeros that PostgreSQL prints beyond it, or does not print, are nothing of the value.
fn parse_decimal(text: &str, scale: usize) -> Value {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (kept, beyond) = fraction.split_at(fraction.len().min(scale));
    assert!(beyond.bytes().all(|digit| digit == b'0'), "{text} has more digits than a scale of {scale}");
    decimal_value(&format!("{whole}{kept:0<scale$}"))
}

fn hexadecimal(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    digits.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

/// Days since 1970-01-01, counted year by year within a cycle of 400 years: slow, and unlike any engine's way.
fn parse_date(text: &str) -> i64 {
    let (text, before_christ) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let parts: Vec<i64> = text.split('-').map(number).collect();
    let year = if before_christ { 1 - parts[0] } else { parts[0] };
    let (cycles, in_cycle) = ((year - 1970).div_euclid(400), (year - 1970).rem_euclid(400));
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_years: i64 = (0..in_cycle).map(|past| 365 + i64::from(is_leap(1970 + past))).sum();
    let lengths = [31, 28 + i64::from(is_leap(1970 + in_cycle)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days_of_months: i64 = lengths.iter().take(parts[1] as usize - 1).sum();
    cycles * 146_097 + days_of_years + days_of_months + parts[2] - 1
}

fn parse_time(text: &str) -> i64 {
    let (time, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<i64> = time.split(':').map(number).collect();
    let seconds = parts[0] * 3_600 + parts[1] * 60 + parts[2];
    seconds * 1_000_000 + number(&format!("{fraction:0<6}"))
}

fn parse_timestamp(text: &str) -> i64 {
    match text {
        "infinity" => return i64::MAX,
        "-infinity" => return i64::MIN,
        _ => {}
    }
    let (plain, era) = match text.strip_suffix(" BC") {
        Some(plain) => (plain, " BC"),
        None => (text, ""),
    };
    let (date, time) = plain.trim_end_matches("+00").split_once(' ').expect("a date and a time");
    parse_date(&format!("{date}{era}")) * 86_400_000_000 + parse_time(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(parse_timestamp("2024-02-29 12:34:56.789"), 1_709_210_096_789_000);
        assert_eq!(parse_date("1970-01-01"), 0);
        assert_eq!(parse_date("4714-11-24 BC"), -2_440_588);
    }

    #[test]
    fn decimals_are_at_their_types_scale() {
        assert_eq!(parse_decimal("-1.5", 3), Value::Decimal(-1_500));
        assert_eq!(parse_decimal("2.00", 1), Value::Decimal(20));
        let large = parse_decimal("-0012345678901234567890123456789012345678.90", 3);
        assert_eq!(large, Value::Text("-12345678901234567890123456789012345678900".into()));
    }

    #[test]
    fn zero_has_a_sign_and_nan_is_one_value() {
        assert!(is_same(&Value::Float(f64::NAN), &Value::Float(-f64::NAN)));
        assert!(!is_same(&Value::Float(0.0), &Value::Float(-0.0)));
    }
}
