//! Every function against values that PostgreSQL 15 printed: with arguments in columns, with constants, and
//! with the first argument in a column and the others constant.

use pystachio_plan::{DataType, ErrorKind, Expression, Function, Literal, Result, Value};

use super::{
    Device,
    case_file::{Line, Section, parse_sections, parse_value, printed_scale},
    column,
};

const FILES: [(&str, &str); 8] = [
    ("arithmetic", include_str!("../../../cpu/functions/cases/arithmetic.tsv")),
    ("cast", include_str!("../../../cpu/functions/cases/cast.tsv")),
    ("comparison", include_str!("../../../cpu/functions/cases/comparison.tsv")),
    ("datetime", include_str!("../../../cpu/functions/cases/datetime.tsv")),
    ("decimal", include_str!("../../../cpu/functions/cases/decimal.tsv")),
    ("quotient", include_str!("../../../cpu/functions/cases/quotient.tsv")),
    ("text", include_str!("../../../cpu/functions/cases/text.tsv")),
    ("variance", include_str!("../../../cpu/functions/cases/variance.tsv")),
];

/// Below these the test fails: what the device could do once it can do for good.
const LINES_CHECKED_MIN: usize = 15_904;
const SECTIONS_CHECKED_MIN: usize = 474;

#[derive(Default)]
struct Tally {
    sections: usize,
    lines: usize,
    skipped: Vec<String>,
    failures: Vec<String>,
}

#[test]
fn functions_are_those_of_postgresql() {
    let device = Device::new();
    let mut tally = Tally::default();
    for (file, cases) in FILES {
        let before = tally.lines;
        for section in parse_sections(cases) {
            if section.function == Function::DivideDecimal {
                check_quotients(&device, &section, &mut tally);
            } else {
                check_section(&device, &section, &mut tally);
            }
        }
        println!("{file}: {} lines", tally.lines - before);
    }
    println!("checked {} lines of {} sections", tally.lines, tally.sections);
    println!("not supported: {} sections", tally.skipped.len());
    tally.skipped.iter().for_each(|skipped| println!("  {skipped}"));
    let shown = tally.failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(tally.failures.is_empty(), "{} failures:\n{shown}", tally.failures.len());
    assert!(tally.lines >= LINES_CHECKED_MIN, "only {} lines", tally.lines);
    assert!(tally.sections >= SECTIONS_CHECKED_MIN, "only {} sections", tally.sections);
}

/// A quotient's scale is what PostgreSQL printed: the planner passes what `QuotientScale` gives. In 128 bits where
/// they hold it, and all in 256.
fn check_quotients(device: &Device, section: &Section, tally: &mut Tally) {
    let mut scales: Vec<u8> = section.lines.iter().map(|line| printed_scale(&line.expected)).collect();
    scales.sort_unstable();
    scales.dedup();
    for scale in scales {
        let mut part = section.clone();
        part.arguments.push(DataType::Int32);
        part.result = DataType::Decimal { precision: 76, scale };
        part.lines.retain(|line| printed_scale(&line.expected) == scale);
        part.lines.iter_mut().for_each(|line| line.arguments.push(Value::Int(scale.into())));
        check_section(device, &part, tally);
        part.lines.retain(|line| {
            line.expected.starts_with("ERROR: ")
                || !matches!(parse_value(&line.expected, &part.result), Value::Text(_))
        });
        part.result = DataType::Decimal { precision: 38, scale };
        let mut again = Tally::default();
        check_section(device, &part, &mut again);
        assert!(again.skipped.is_empty(), "{:?}", again.skipped);
        tally.failures.extend(again.failures);
    }
}

fn check_section(device: &Device, section: &Section, tally: &mut Tally) {
    let every = section.arguments.len();
    let is_error = |line: &&Line| line.expected.starts_with("ERROR: ");
    let errors: Vec<Line> = section.lines.iter().filter(is_error).cloned().collect();
    let values: Vec<Line> = section.lines.iter().filter(|line| !is_error(line)).cloned().collect();
    let mut groups: Vec<(usize, &[Line])> = vec![(every, &values)];
    // Constants and failing rows need a program or a launch of their own.
    groups.extend(errors.chunks(1).flat_map(|line| [(every, line), (0, line), (1.min(every), line)]));
    groups.extend(values.chunks(1).flat_map(|line| [(0, line), (1.min(every), line)]));
    // A plan has no constants of more than 128 bits.
    let is_constant = |line: &Line, column_count: usize| {
        let constants = section.arguments.iter().zip(&line.arguments).skip(column_count);
        constants
            .into_iter()
            .all(|(data_type, value)| !data_type.is_decimal() || !matches!(value, Value::Text(_)))
    };
    groups.retain(|(column_count, lines)| lines.iter().all(|line| is_constant(line, *column_count)));
    for (column_count, lines) in groups {
        match check_lines(device, section, column_count, lines) {
            Ok(failures) => tally.failures.extend(failures),
            Err(error) if error.kind == ErrorKind::NotSupported => {
                tally.skipped.push(format!("{}: {}", section.sql, error.message));
                return;
            }
            Err(error) => tally.failures.push(format!("{}: {error}", section.sql)),
        }
    }
    tally.sections += 1;
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
    let context = |line: &Line| format!("{} of {:?} in {column_count} columns", section.sql, line.arguments);
    if let Some(message) = first.expected.strip_prefix("ERROR: ") {
        return Ok(match actual {
            Err(error) if error.kind == ErrorKind::NotSupported => return Err(error),
            Err(error) if error.message == message && error.kind != ErrorKind::Internal => Vec::new(),
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
        let expected = parse_value(&line.expected, &section.result);
        if canonical(value) != canonical(&expected) {
            failures.push(format!("{}: expected {expected:?}, got {value:?}", context(line)));
        }
    }
    Ok(failures)
}

/// A text that is the same for the same value only: NaN is one value, and zero has a sign.
fn canonical(value: &Value) -> String {
    match value {
        Value::Float(value) if value.is_nan() => "NaN".to_owned(),
        Value::Float(value) => format!("{:016x}", value.to_bits()),
        other => format!("{other:?}"),
    }
}
