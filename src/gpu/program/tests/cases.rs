//! Every function against values that PostgreSQL 15 printed: with arguments in columns, with constants, and
//! with the first argument in a column and the others constant.

use pystachio_cases::{Line, Outcome, Section, case_files, is_same};
use pystachio_plan::{DataType, ErrorKind, Expression, FUNCTIONS, Function, Literal, Result, Value};

use super::{Device, column};
use crate::program::compile::Compilation;

/// A section without a kernel on the device.
const NOT_ON_DEVICE: &str = "$1::float4 [numeric(76;60) -> float4]";

#[test]
fn the_registry_knows_what_the_host_computes() {
    for entry in FUNCTIONS {
        let is_on_device = !matches!(Compilation::of(entry.form.any()), Compilation::NotOnDevice(_));
        assert_eq!(is_on_device, entry.is_on_device, "{}", entry.name);
    }
}

#[derive(Default)]
struct Tally {
    lines: usize,
    skipped: Vec<String>,
    failures: Vec<String>,
}

#[test]
fn functions_are_those_of_postgresql() {
    let device = Device::new();
    let mut tally = Tally::default();
    for file in case_files() {
        let before = tally.lines;
        for section in &file.sections {
            if section.function == Function::DivideDecimal {
                check_quotients(&device, section, &mut tally);
            } else {
                check_section(&device, section, &mut tally);
            }
        }
        println!("{}: {} lines", file.name, tally.lines - before);
    }
    println!("checked {} lines", tally.lines);
    let shown = tally.failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(tally.failures.is_empty(), "{} failures:\n{shown}", tally.failures.len());
    assert_eq!(tally.skipped, [NOT_ON_DEVICE]);
}

/// In 256 bits, as every quotient is in the case files, and those that 128 bits hold in these.
fn check_quotients(device: &Device, section: &Section, tally: &mut Tally) {
    check_section(device, section, tally);
    let DataType::Decimal { scale, .. } = section.result else { panic!("{} is no decimal", section.result) };
    let mut narrow = section.clone();
    narrow.result = DataType::Decimal { precision: 38, scale };
    narrow.lines.retain(|line| !matches!(line.expected, Outcome::Value(Value::Text(_))));
    let mut again = Tally::default();
    check_section(device, &narrow, &mut again);
    assert!(again.skipped.is_empty(), "{:?}", again.skipped);
    tally.failures.extend(again.failures);
}

fn check_section(device: &Device, section: &Section, tally: &mut Tally) {
    // Time zones, regular expressions and formats are constants.
    let every = match section.function {
        Function::LocalTime | Function::Instant | Function::DateTruncInZone(_) => 1,
        Function::Matches(_) | Function::MatchesIgnoringCase(_) | Function::FormatMoment => 1,
        _ => section.arguments.len(),
    };
    let is_error = |line: &&Line| matches!(line.expected, Outcome::Error(_));
    let errors: Vec<Line> = section.lines.iter().filter(is_error).cloned().collect();
    let values: Vec<Line> = section.lines.iter().filter(|line| !is_error(line)).cloned().collect();
    let mut by_constants: Vec<Vec<Line>> = Vec::new();
    for line in &values {
        let is_same = |known: &&mut Vec<Line>| known[0].arguments[every..] == line.arguments[every..];
        match by_constants.iter_mut().find(is_same) {
            Some(known) => known.push(line.clone()),
            None => by_constants.push(vec![line.clone()]),
        }
    }
    let mut groups: Vec<(usize, &[Line])> = by_constants.iter().map(|lines| (every, &lines[..])).collect();
    // Constants and failing rows need a program or a launch of their own.
    groups.extend(errors.chunks(1).flat_map(|line| [(every, line), (0, line), (1.min(every), line)]));
    groups.extend(values.chunks(1).flat_map(|line| [(0, line), (1.min(every), line)]));
    for (column_count, lines) in groups {
        match check_lines(device, section, column_count, lines) {
            Ok(failures) => tally.failures.extend(failures),
            Err(error) if error.kind == ErrorKind::NotSupported => {
                // What the registry says is known.
                if section.function.entry().is_on_device {
                    tally.skipped.push(section.title.clone());
                }
                return;
            }
            Err(error) => tally.failures.push(format!("{}: {error}", section.title)),
        }
    }
    tally.lines += section.lines.len();
}

/// Evaluates lines with the first arguments in columns and the others, those of the first line, constant.
fn check_lines(
    device: &Device,
    section: &Section,
    column_count: usize,
    lines: &[Line],
) -> Result<Vec<String>> {
    let Some(first) = lines.first() else { return Ok(Vec::new()) };
    let mut columns = Vec::new();
    let mut arguments = Vec::new();
    for (index, data_type) in section.arguments.iter().enumerate() {
        if index >= column_count {
            let literal = Literal::new(first.arguments[index].clone(), data_type.clone());
            arguments.push(Expression::Literal(literal));
            continue;
        }
        // The first row is NULL, so that its slots could fail.
        let values = std::iter::once(Value::Null);
        let values = values.chain(lines.iter().map(|line| line.arguments[index].clone())).collect();
        columns.push((data_type.clone(), values));
        arguments.push(column(index as u32, data_type.clone()));
    }
    let expression = Expression::call(section.function, arguments, section.result.clone());
    let row_count = lines.len() + 1;
    let actual = device.evaluate(&expression, &columns, row_count);
    let context =
        |line: &Line| format!("{} of {:?} in {column_count} columns", section.title, line.arguments);
    if let Outcome::Error(message) = &first.expected {
        return Ok(match actual {
            Err(error) if error.kind == ErrorKind::NotSupported => return Err(error),
            Err(error) if error.message == *message && error.kind != ErrorKind::Internal => Vec::new(),
            other => vec![format!("{}: expected {message}, got {other:?}", context(first))],
        });
    }
    let actual = match actual {
        Err(error) if error.kind == ErrorKind::NotSupported => return Err(error),
        Err(error) => return Ok(vec![format!("{}: {error} ({:?})", context(first), error.kind)]),
        Ok(actual) => actual,
    };
    let mut failures = Vec::new();
    for (line, value) in lines.iter().zip(actual.iter().skip(1)) {
        if !matches!(&line.expected, Outcome::Value(expected) if is_same(value, expected)) {
            failures.push(format!("{}: expected {:?}, got {value:?}", context(line), line.expected));
        }
    }
    Ok(failures)
}
