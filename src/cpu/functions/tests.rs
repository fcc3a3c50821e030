//! Every function against values that PostgreSQL 15 printed.
//!
//! `cases/*.tsv` has sections of one function each. A section starts with `#`, the function, its argument
//! types, its result type and the SQL that was run; each line has the arguments and what PostgreSQL gave:
//! a text, `\N` for NULL, or `ERROR: ` and the message. Every line is evaluated with arguments in columns,
//! with constants, and with the first argument in a column and the others constant.
//!
//! `numeric` results are compared by value: display scales are the planner's business. A quotient's scale
//! is taken from the expected text, because the planner passes what `QuotientScale` gives.

mod claims;
mod sums;

use std::sync::Arc;

use crate::datafusion::{
    common::DFSchema, execution::context::ExecutionProps,
    logical_expr::physical_planning_context::PhysicalPlanningContext, physical_expr::create_physical_expr,
};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array},
    compute::{cast, concat, take},
    datatypes::{
        DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type,
        Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Schema, SchemaRef, Time64MicrosecondType,
        TimestampMicrosecondType,
    },
};
use chrono::{NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use num_bigint::BigInt;
use pystachio_plan::{
    ColumnId, Ctype, DataType, DateField, Expression, Function, Interval, Literal, LocaleName, Result,
    TrimSide, Value,
};

use super::{LoweringInput, lower_expression, scalars::scalar};
use crate::error::from_datafusion;

#[test]
fn arithmetic_is_that_of_postgresql() {
    check_cases(include_str!("cases/arithmetic.tsv"));
}

#[test]
fn comparisons_are_those_of_postgresql() {
    check_cases(include_str!("cases/comparison.tsv"));
}

#[test]
fn decimals_are_those_of_postgresql() {
    check_cases(include_str!("cases/decimal.tsv"));
}

#[test]
fn quotients_are_those_of_postgresql() {
    check_cases(include_str!("cases/quotient.tsv"));
}

#[test]
fn variances_are_those_of_postgresql() {
    check_cases(include_str!("cases/variance.tsv"));
}

#[test]
fn casts_are_those_of_postgresql() {
    check_cases(include_str!("cases/cast.tsv"));
}

#[test]
fn texts_are_those_of_postgresql() {
    check_cases(include_str!("cases/text.tsv"));
}

#[test]
fn dates_and_times_are_those_of_postgresql() {
    check_cases(include_str!("cases/datetime.tsv"));
}

/// One section of a case file.
#[derive(Clone)]
struct Section {
    function: Function,
    arguments: Vec<DataType>,
    result: DataType,
    sql: String,
}

fn check_cases(cases: &str) {
    let mut section: Option<Section> = None;
    let mut failures = Vec::new();
    let mut count = 0;
    for line in cases.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "#" {
            section = Some(Section {
                function: parse_function(fields[1]),
                arguments: fields[2].split(',').map(parse_type).collect(),
                result: parse_type(fields[3]),
                sql: fields[4].to_owned(),
            });
            continue;
        }
        let section = section.as_ref().expect("a section before its lines");
        let (expected, arguments) = fields.split_last().expect("an expected value");
        count += 1;
        for failure in check_line(section, arguments, expected) {
            failures.push(format!("{} with {arguments:?}: {failure}", section.sql));
        }
    }
    assert!(count > 100, "only {count} cases");
    let shown = failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} cases failed:\n{shown}", failures.len());
}

fn check_line(section: &Section, arguments: &[&str], expected: &str) -> Vec<String> {
    let mut section = section.clone();
    let mut types = section.arguments.clone();
    let mut literals: Vec<Literal> = arguments
        .iter()
        .zip(&types)
        .map(|(text, data_type)| Literal::new(parse_value(text, data_type), data_type.clone()))
        .collect();
    assert_eq!(literals.len(), types.len(), "{arguments:?}");
    assert!(literals.iter().all(|literal| literal.value != Value::Decimal(i128::MAX)), "{arguments:?}");
    if section.function == Function::DivideDecimal {
        let scale = expected.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        literals.push(Literal::new(Value::Int(scale as i64), DataType::Int32));
        types.push(DataType::Int32);
        section.result = DataType::Decimal { precision: 76, scale: scale as u8 };
    }
    let every = types.len();
    let mut failures = Vec::new();
    // How many of the arguments are in columns.
    for column_count in [every, 0, 1.min(every)] {
        for text_type in [ArrowType::Utf8View, ArrowType::Utf8] {
            if text_type == ArrowType::Utf8 && !types.contains(&DataType::Text) {
                continue;
            }
            let actual = evaluate_line(&section, &literals, column_count, &text_type);
            if let Err(difference) = compare(&section, expected, actual) {
                failures.push(format!("{column_count} columns, {text_type}: {difference}"));
            }
        }
    }
    failures
}

/// The result for the line, which is the second of three rows; the first is all NULL, the third is again
/// the line.
fn evaluate_line(
    section: &Section,
    literals: &[Literal],
    column_count: usize,
    text_type: &ArrowType,
) -> Result<ArrayRef> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    let mut arguments = Vec::new();
    for (index, literal) in literals.iter().enumerate() {
        if index >= column_count {
            arguments.push(Expression::Literal(literal.clone()));
            continue;
        }
        let value = scalar(literal)?.to_array().map_err(|error| from_datafusion(&error))?;
        let value = match literal.data_type {
            DataType::Text => cast(&value, text_type).expect("a text type"),
            _ => value,
        };
        let null = new_null_array(value.data_type(), 1);
        let column = concat(&[&null, &value, &value]).expect("equal types");
        let id = ColumnId(index as u32);
        fields.push(Field::new(crate::column_name(id), column.data_type().clone(), true));
        columns.push(column);
        arguments.push(Expression::column(id, literal.data_type.clone()));
    }
    let expression = Expression::call(section.function, arguments, section.result.clone());
    let result = evaluate(&expression, &Arc::new(Schema::new(fields)), columns, 3)?;
    assert_eq!(result.len(), 3);
    Ok(take(&result, &UInt32Array::from(vec![1, 2]), None).expect("rows 1 and 2"))
}

/// Lowers an expression, makes it physical and evaluates it.
fn evaluate(
    expression: &Expression,
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<ArrayRef> {
    evaluate_with(expression, schema, columns, rows, &[])
}

fn evaluate_with(
    expression: &Expression,
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
    parameters: &[Literal],
) -> Result<ArrayRef> {
    let lowered = lower_expression(expression, &LoweringInput { schema, parameters })?;
    let logical = DFSchema::try_from(schema.as_ref().clone()).expect("unique names");
    let physical =
        create_physical_expr(&lowered, &logical, &ExecutionProps::new(), &PhysicalPlanningContext::default())
            .map_err(|error| from_datafusion(&error))?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).expect("a batch");
    let value = physical.evaluate(&batch).map_err(|error| from_datafusion(&error))?;
    let array = value.into_array(rows).map_err(|error| from_datafusion(&error))?;
    let declared = physical.data_type(schema).expect("a type");
    assert_eq!(*array.data_type(), declared, "{expression:?}");
    Ok(array)
}

fn compare(section: &Section, expected: &str, actual: Result<ArrayRef>) -> std::result::Result<(), String> {
    let array = match actual {
        Ok(array) => array,
        Err(error) => {
            let message = format!("ERROR: {}", error.message);
            let known = error.kind != pystachio_plan::ErrorKind::Internal
                && error.kind != pystachio_plan::ErrorKind::NotSupported;
            return if message == expected && known {
                Ok(())
            } else {
                Err(format!("expected {expected}, got {message} ({:?})", error.kind))
            };
        }
    };
    if *array.data_type() != section.result.to_arrow() {
        return Err(format!("expected {}, got {}", section.result.to_arrow(), array.data_type()));
    }
    for row in 0..array.len() {
        let actual = canonical_value(&array, row);
        let wanted = canonical_text(expected, &section.result);
        if actual != wanted {
            return Err(format!("expected {wanted}, got {actual}"));
        }
    }
    Ok(())
}

/// A value as a text that is equal for equal values only.
fn canonical_value(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "\\N".to_owned();
    }
    match array.data_type() {
        ArrowType::Boolean => if array.as_boolean().value(row) { "t" } else { "f" }.to_owned(),
        ArrowType::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
        ArrowType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        ArrowType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        ArrowType::Float32 => canonical_float(array.as_primitive::<Float32Type>().value(row).into()),
        ArrowType::Float64 => canonical_float(array.as_primitive::<Float64Type>().value(row)),
        ArrowType::Decimal128(_, scale) => canonical_decimal(
            BigInt::from(array.as_primitive::<Decimal128Type>().value(row)),
            *scale as usize,
        ),
        ArrowType::Decimal256(_, scale) => {
            let value = array.as_primitive::<Decimal256Type>().value(row);
            canonical_decimal(value.to_string().parse().expect("digits"), *scale as usize)
        }
        ArrowType::Date32 => array.as_primitive::<Date32Type>().value(row).to_string(),
        ArrowType::Time64(_) => array.as_primitive::<Time64MicrosecondType>().value(row).to_string(),
        ArrowType::Timestamp(..) => array.as_primitive::<TimestampMicrosecondType>().value(row).to_string(),
        ArrowType::Interval(_) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            assert_eq!(value.nanoseconds % 1_000, 0);
            format!("{} {} {}", value.months, value.days, value.nanoseconds / 1_000)
        }
        ArrowType::Utf8View => array.as_string_view().value(row).to_owned(),
        other => panic!("no text for {other}"),
    }
}

fn canonical_text(text: &str, data_type: &DataType) -> String {
    match parse_value(text, data_type) {
        Value::Null => "\\N".to_owned(),
        _ if text.starts_with("ERROR: ") => text.to_owned(),
        Value::Bool(value) => if value { "t" } else { "f" }.to_owned(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => canonical_float(value),
        Value::Decimal(_) => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            canonical_decimal(format!("{whole}{fraction}").parse().expect("digits"), fraction.len())
        }
        Value::Text(value) => value,
        Value::Interval(value) => format!("{} {} {}", value.months, value.days, value.microseconds),
        Value::Bytes(value) => format!("{value:?}"),
    }
}

fn canonical_float(value: f64) -> String {
    if value.is_nan() { "NaN".to_owned() } else { format!("{:016x}", value.to_bits()) }
}

fn canonical_decimal(digits: BigInt, scale: usize) -> String {
    let text = super::digits::decimal_text(&digits.to_string(), scale as u32);
    let trimmed = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if trimmed == "-0" { "0".to_owned() } else { trimmed.to_owned() }
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
            .find(|function| snake_case(&format!("{function:?}")) == name)
            .unwrap_or_else(|| panic!("unknown function {name}")),
    }
}

fn parse_ctype(name: Option<&str>) -> Ctype {
    match name.expect("a ctype") {
        "C" => Ctype::Ascii,
        name => Ctype::Libc(LocaleName::new(name).expect("a name")),
    }
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

const SIMPLE_FUNCTIONS: [Function; 60] = [
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
    // Those with parameters are parsed apart.
    Function::Trim(TrimSide::Both),
    Function::Extract(DateField::Day),
    Function::DateTrunc(DateField::Day),
    Function::Variance { sample: true, deviation: true },
    Function::VarianceScale { sample: true, deviation: true },
];

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

fn parse_value(text: &str, data_type: &DataType) -> Value {
    if text == "\\N" {
        return Value::Null;
    }
    if text.starts_with("ERROR: ") {
        return Value::Text(text.to_owned());
    }
    match data_type {
        DataType::Bool => Value::Bool(text == "t"),
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Value::Int(number(text)),
        DataType::Float32 => Value::Float(text.parse::<f32>().expect("a float").into()),
        DataType::Float64 => Value::Float(text.parse().expect("a float")),
        DataType::Decimal { scale, .. } => Value::Decimal(parse_decimal(text, usize::from(*scale))),
        DataType::Date => Value::Int(parse_date(text)),
        DataType::Time => Value::Int(parse_time(text)),
        DataType::Timestamp | DataType::TimestampTz => Value::Int(parse_timestamp(text)),
        DataType::Interval => {
            let parts: Vec<i64> = text.split(' ').map(number).collect();
            Value::Interval(Interval {
                months: parts[0] as i32,
                days: parts[1] as i32,
                microseconds: parts[2],
            })
        }
        DataType::Text => {
            let marked = text.replace("\\\\", "\u{1}").replace("\\t", "\t").replace("\\n", "\n");
            Value::Text(marked.replace('\u{1}', "\\"))
        }
        DataType::Bytea => {
            let digits = text.trim_start_matches('\\').trim_start_matches('x');
            Value::Bytes(hexadecimal(digits))
        }
        DataType::Uuid => Value::Bytes(hexadecimal(&text.replace('-', ""))),
        other => panic!("no value of {other}"),
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

/// What does not fit 128 bits is only compared as text.
fn parse_decimal(text: &str, scale: usize) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = format!("{whole}{fraction}");
    digits.extend(std::iter::repeat_n('0', scale.saturating_sub(fraction.len())));
    digits.parse().unwrap_or(i128::MAX)
}

fn hexadecimal(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    digits.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

/// Days by the calendar of another crate, which ends long before PostgreSQL's: later years are moved by
/// whole cycles of 400 years.
fn parse_date(text: &str) -> i64 {
    let (text, before_christ) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let parts: Vec<i64> = text.split('-').map(number).collect();
    let year = if before_christ { 1 - parts[0] } else { parts[0] };
    let cycles = year.div_euclid(400);
    let date = NaiveDate::from_ymd_opt(year.rem_euclid(400) as i32 + 2_000, parts[1] as u32, parts[2] as u32);
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).expect("a date");
    date.expect("a date").signed_duration_since(epoch).num_days() + (cycles - 5) * 146_097
}

fn parse_time(text: &str) -> i64 {
    if text == "24:00:00" {
        return 86_400_000_000;
    }
    let time: NaiveTime = text.parse().expect("a time");
    i64::from(time.num_seconds_from_midnight()) * 1_000_000 + i64::from(time.nanosecond()) / 1_000
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
    let moment: NaiveDateTime = "2024-02-29T12:34:56.789".parse().expect("a timestamp");
    assert_eq!(parse_timestamp("2024-02-29 12:34:56.789"), moment.and_utc().timestamp_micros());
    assert_eq!(parse_date("1970-01-01"), 0);
    assert_eq!(parse_date("4714-11-24 BC"), -2_440_588);
    assert_eq!(parse_decimal("-1.5", 3), -1_500);
}
