//! Sections of the case files, and their lines.

use pystachio_plan::{DataType, Function, Value, function_of_name};

use crate::value::{parse_type, parse_value};

/// The sections of one file.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// Its name.
    pub name: &'static str,
    /// What it has, in its order.
    pub sections: Vec<Section>,
}

/// A function on one set of types.
#[derive(Clone, Debug)]
pub struct Section {
    /// The function.
    pub function: Function,
    /// The types of its arguments.
    pub arguments: Vec<DataType>,
    /// The type of its result.
    pub result: DataType,
    /// The SQL that was run, and the types.
    pub title: String,
    /// The calls.
    pub lines: Vec<Line>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Line {
    /// A value for each argument of the section.
    pub arguments: Vec<Value>,
    /// What PostgreSQL gave.
    pub expected: Outcome,
}

/// What a call gives.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A value of the section's result type.
    Value(Value),
    /// An error of this message.
    Error(String),
}

/// Every file.
pub fn case_files() -> Vec<CaseFile> {
    let files = [
        ("arithmetic", include_str!("postgresql/arithmetic.tsv")),
        ("bits", include_str!("postgresql/bits.tsv")),
        ("bytes", include_str!("postgresql/bytes.tsv")),
        ("cast", include_str!("postgresql/cast.tsv")),
        ("comparison", include_str!("postgresql/comparison.tsv")),
        ("datetime", include_str!("postgresql/datetime.tsv")),
        ("decimal", include_str!("postgresql/decimal.tsv")),
        ("float", include_str!("postgresql/float.tsv")),
        ("form", include_str!("postgresql/form.tsv")),
        ("json", include_str!("postgresql/json.tsv")),
        ("reading", include_str!("postgresql/reading.tsv")),
        ("moment", include_str!("postgresql/moment.tsv")),
        ("regex", include_str!("postgresql/regex.tsv")),
        ("regex_parts", include_str!("postgresql/regex_parts.tsv")),
        ("number", include_str!("postgresql/number.tsv")),
        ("quotient", include_str!("postgresql/quotient.tsv")),
        ("text", include_str!("postgresql/text.tsv")),
        ("variance", include_str!("postgresql/variance.tsv")),
        ("zone", include_str!("postgresql/zone.tsv")),
    ];
    files.into_iter().map(|(name, text)| CaseFile { name, sections: parse_sections(text) }).collect()
}

impl Section {
    /// A name for messages.
    pub fn name(&self) -> &'static str {
        self.function.entry().name
    }
}

/// A section as it is written.
struct WrittenSection<'a> {
    function: Function,
    arguments: Vec<DataType>,
    result: DataType,
    title: String,
    lines: Vec<Vec<&'a str>>,
}

pub(crate) fn parse_sections(text: &str) -> Vec<Section> {
    let mut written: Vec<WrittenSection<'_>> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "#" {
            written.push(WrittenSection {
                function: function_of_name(fields[1]).unwrap_or_else(|| panic!("no function {}", fields[1])),
                arguments: fields[2].split(',').map(parse_type).collect(),
                result: parse_type(fields[3]),
                title: format!("{} [{} -> {}]", fields[4], fields[2], fields[3]),
                lines: Vec::new(),
            });
            continue;
        }
        let section = written.last_mut().expect("a section before its lines");
        assert_eq!(fields.len(), section.arguments.len() + 1, "{line}");
        section.lines.push(fields);
    }
    written.iter().flat_map(WrittenSection::parsed).collect()
}

impl WrittenSection<'_> {
    /// The section; of a quotient or root one for each scale, because its scale, which the planner has of `QuotientScale` or
    /// `RootScale`, is an argument and in the result's type: it is as many digits as PostgreSQL printed.
    fn parsed(&self) -> Vec<Section> {
        if !matches!(self.function, Function::DivideDecimal | Function::DecimalRoot) {
            return vec![self.section(None)];
        }
        let mut scales: Vec<u8> = self.lines.iter().map(|line| printed_scale(line)).collect();
        scales.sort_unstable();
        scales.dedup();
        scales.into_iter().map(|scale| self.section(Some(scale))).collect()
    }

    fn section(&self, scale: Option<u8>) -> Section {
        let mut arguments = self.arguments.clone();
        let mut result = self.result.clone();
        if let Some(scale) = scale {
            arguments.push(DataType::Int32);
            result = DataType::Decimal { precision: 76, scale };
        }
        let lines = self.lines.iter().filter(|line| scale.is_none_or(|scale| scale == printed_scale(line)));
        let lines = lines.map(|fields| {
            let (expected, texts) = fields.split_last().expect("an expected value");
            let mut values: Vec<Value> = texts
                .iter()
                .zip(&self.arguments)
                .map(|(text, data_type)| argument(text, data_type))
                .collect();
            values.extend(scale.map(|scale| Value::Int(scale.into())));
            Line { arguments: values, expected: outcome(expected, &result) }
        });
        let lines = lines.collect();
        Section {
            function: self.function,
            arguments,
            result: result.clone(),
            title: self.title.clone(),
            lines,
        }
    }
}

/// Digits after the point of what PostgreSQL printed.
fn printed_scale(fields: &[&str]) -> u8 {
    let expected = fields.last().expect("an expected value");
    expected.split_once('.').map_or(0, |(_, fraction)| fraction.len() as u8)
}

/// A plan has no constants of more than 128 bits.
fn argument(text: &str, data_type: &DataType) -> Value {
    let value = parse_value(text, data_type);
    assert!(!data_type.is_decimal() || !matches!(value, Value::Text(_)), "{text} has more than 128 bits");
    value
}

fn outcome(text: &str, data_type: &DataType) -> Outcome {
    match text.strip_prefix("ERROR: ") {
        Some(message) => Outcome::Error(message.to_owned()),
        None => Outcome::Value(parse_value(text, data_type)),
    }
}
