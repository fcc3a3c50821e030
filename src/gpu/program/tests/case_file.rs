//! The case files of src/cpu/functions/cases.
//!
//! A section starts with `#`, the function, its argument types, its result type and the SQL that was run;
//! each line has the arguments and what PostgreSQL gave: a text, `\N` for NULL, or `ERROR: ` and the message.

use arrow::datatypes::i256;
use pystachio_plan::{Ctype, DataType, DateField, Function, Interval, LocaleName, TrimSide, Value};

use super::{decimal, decimal_value};

/// A function on one set of types.
#[derive(Clone)]
pub(super) struct Section {
    pub(super) function: Function,
    pub(super) arguments: Vec<DataType>,
    pub(super) result: DataType,
    pub(super) sql: String,
    pub(super) lines: Vec<Line>,
}

/// One call.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) arguments: Vec<Value>,
    pub(super) expected: String,
}

pub(super) fn parse_sections(cases: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in cases.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "#" {
            sections.push(Section {
                function: parse_function(fields[1]),
                arguments: fields[2].split(',').map(parse_type).collect(),
                result: parse_type(fields[3]),
                sql: format!("{} [{} -> {}]", fields[4], fields[2], fields[3]),
                lines: Vec::new(),
            });
            continue;
        }
        let section = sections.last_mut().expect("a section before its lines");
        let (expected, arguments) = fields.split_last().expect("an expected value");
        assert_eq!(arguments.len(), section.arguments.len(), "{line}");
        let values = arguments.iter().zip(&section.arguments).map(|(text, kind)| parse_value(text, kind));
        section.lines.push(Line { arguments: values.collect(), expected: (*expected).to_owned() });
    }
    sections
}

/// The value that PostgreSQL printed; a decimal at the scale of the type, as [`decimal_value`] has it.
pub(super) fn parse_value(text: &str, data_type: &DataType) -> Value {
    if text == "\\N" {
        return Value::Null;
    }
    match data_type {
        DataType::Bool => Value::Bool(text == "t"),
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Value::Int(number(text)),
        DataType::Float32 => Value::Float(text.parse::<f32>().expect("a float").into()),
        DataType::Float64 => Value::Float(text.parse().expect("a float")),
        DataType::Decimal { scale, .. } => decimal_value(parse_decimal(text, usize::from(*scale))),
        DataType::Date => Value::Int(parse_date(text)),
        DataType::Time => Value::Int(parse_time(text)),
        DataType::Timestamp | DataType::TimestampTz => Value::Int(parse_timestamp(text)),
        DataType::Interval => {
            let parts: Vec<i64> = text.split(' ').map(number).collect();
            let (months, days) = (parts[0] as i32, parts[1] as i32);
            Value::Interval(Interval { months, days, microseconds: parts[2] })
        }
        DataType::Text => {
            let marked = text.replace("\\\\", "\u{1}").replace("\\t", "\t").replace("\\n", "\n");
            Value::Text(marked.replace('\u{1}', "\\"))
        }
        DataType::Bytea => Value::Bytes(hexadecimal(text.trim_start_matches('\\').trim_start_matches('x'))),
        DataType::Uuid => Value::Bytes(hexadecimal(&text.replace('-', ""))),
        other => panic!("no value of {other}"),
    }
}

/// Digits after the point of what PostgreSQL printed.
pub(super) fn printed_scale(text: &str) -> u8 {
    text.split_once('.').map_or(0, |(_, fraction)| fraction.len() as u8)
}

fn parse_type(text: &str) -> DataType {
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

fn parse_function(text: &str) -> Function {
    let mut parts = text.split(':');
    let name = parts.next().expect("a name");
    let mut flag = || parts.next() == Some("1");
    match name {
        "variance" => Function::Variance { sample: flag(), deviation: flag() },
        "variance_scale" => Function::VarianceScale { sample: flag(), deviation: flag() },
        "extract" => Function::Extract(parse_field(parts.next().expect("a field"))),
        "date_part" => Function::DatePart(parse_field(parts.next().expect("a field"))),
        "date_trunc" => Function::DateTrunc(parse_field(parts.next().expect("a field"))),
        "i_like" => Function::ILike(parse_ctype(parts.next())),
        "upper" => Function::Upper(parse_ctype(parts.next())),
        "lower" => Function::Lower(parse_ctype(parts.next())),
        "trim" => Function::Trim(match parts.next() {
            Some("both") => TrimSide::Both,
            Some("leading") => TrimSide::Leading,
            _ => TrimSide::Trailing,
        }),
        _ => SIMPLE_FUNCTIONS
            .into_iter()
            .find(|function| format!("{function:?}").to_lowercase() == name.replace('_', ""))
            .unwrap_or_else(|| panic!("unknown function {name}")),
    }
}

const SIMPLE_FUNCTIONS: [Function; 55] = [
    Function::Equal,
    Function::NotEqual,
    Function::Less,
    Function::LessEqual,
    Function::Greater,
    Function::GreaterEqual,
    Function::IsDistinctFrom,
    Function::IsNotDistinctFrom,
    Function::In,
    Function::And,
    Function::Or,
    Function::Not,
    Function::IsNull,
    Function::IsNotNull,
    Function::IsTrue,
    Function::IsNotTrue,
    Function::IsFalse,
    Function::IsNotFalse,
    Function::Coalesce,
    Function::NullIf,
    Function::Greatest,
    Function::Least,
    Function::Add,
    Function::Subtract,
    Function::Multiply,
    Function::Divide,
    Function::Modulo,
    Function::Negate,
    Function::Absolute,
    Function::Sign,
    Function::DivideDecimal,
    Function::QuotientScale,
    Function::Round,
    Function::Truncate,
    Function::Ceiling,
    Function::Floor,
    Function::SquareRoot,
    Function::Cast,
    Function::Like,
    Function::Substring,
    Function::Length,
    Function::OctetLength,
    Function::Concat,
    Function::ConcatSkippingNulls,
    Function::Position,
    Function::Replace,
    Function::Left,
    Function::Right,
    Function::StartsWith,
    Function::PadBlanks,
    Function::TrimBlanks,
    Function::AddDays,
    Function::DaysBetween,
    Function::AddInterval,
    Function::TimestampDifference,
];

fn parse_ctype(name: Option<&str>) -> Ctype {
    match name.expect("a ctype") {
        "C" => Ctype::Ascii,
        name => Ctype::Libc(LocaleName::new(name).expect("a name")),
    }
}

fn parse_field(text: &str) -> DateField {
    match text {
        "microseconds" => DateField::Microseconds,
        "milliseconds" => DateField::Milliseconds,
        "second" => DateField::Second,
        "minute" => DateField::Minute,
        "hour" => DateField::Hour,
        "day" => DateField::Day,
        "week" => DateField::Week,
        "month" => DateField::Month,
        "quarter" => DateField::Quarter,
        "year" => DateField::Year,
        "decade" => DateField::Decade,
        "century" => DateField::Century,
        "millennium" => DateField::Millennium,
        "dow" => DateField::DayOfWeek,
        "isodow" => DateField::IsoDayOfWeek,
        "doy" => DateField::DayOfYear,
        "isoyear" => DateField::IsoYear,
        "epoch" => DateField::Epoch,
        other => panic!("unknown field {other}"),
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

fn parse_decimal(text: &str, scale: usize) -> i256 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = format!("{whole}{fraction}");
    digits.extend(std::iter::repeat_n('0', scale.saturating_sub(fraction.len())));
    i256::from_string(&digits).unwrap_or_else(|| panic!("{text} has more than 76 digits"))
}

fn hexadecimal(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    digits.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

/// Days since 1970-01-01, counted year by year within a cycle of 400 years: slow, and unlike the kernel's way.
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
    let (plain, era) = match text.strip_suffix(" BC") {
        Some(plain) => (plain, " BC"),
        None => (text, ""),
    };
    let (date, time) = plain.trim_end_matches("+00").split_once(' ').expect("a date and a time");
    parse_date(&format!("{date}{era}")) * 86_400_000_000 + parse_time(time)
}

#[test]
fn the_parsers_of_this_file_agree_with_a_calendar() {
    assert_eq!(parse_timestamp("2024-02-29 12:34:56.789"), 1_709_210_096_789_000);
    assert_eq!(parse_date("1970-01-01"), 0);
    assert_eq!(parse_date("4714-11-24 BC"), -2_440_588);
    assert_eq!(parse_decimal("-1.5", 3), i256::from(-1_500));
    let large = parse_value("-0012345678901234567890123456789012345678.90", &decimal(60, 3));
    assert_eq!(large, Value::Text("-12345678901234567890123456789012345678900".into()));
}
