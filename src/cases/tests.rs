//! The case files against the registry of functions.

use std::collections::BTreeSet;

use pystachio_plan::{DataType, FUNCTIONS, FunctionEntry, ResultType, Signature, TypeClass, Value};

use crate::{Section, case_files, is_same, section::parse_sections};

fn sections() -> Vec<Section> {
    case_files().into_iter().flat_map(|file| file.sections).collect()
}

fn is_of(section: &Section, entry: &FunctionEntry, signature: &Signature) -> bool {
    section.name() == entry.name && signature.accepts(&section.arguments, &section.result)
}

#[test]
fn every_signature_has_cases_with_null_and_edge_values() {
    let sections = sections();
    let mut missing = BTreeSet::new();
    for entry in FUNCTIONS {
        // Files of cases have no arrays and no composite values.
        let is_nested = |signature: &&Signature| {
            signature.arguments.contains(&TypeClass::Lists)
                || signature.arguments.contains(&TypeClass::Records)
                || matches!(signature.result, ResultType::Of(TypeClass::Lists | TypeClass::Records))
        };
        for signature in entry.signatures.iter().filter(|signature| !is_nested(signature)) {
            let of_it = || sections.iter().filter(|section| is_of(section, entry, signature));
            let mut lacks = |what: String| missing.insert(format!("{}({signature}): {what}", entry.name));
            let mut values = of_it().flat_map(|section| &section.lines).map(|line| &line.arguments);
            if of_it().next().is_none() {
                lacks("cases".into());
            } else if !values.any(|values| values.contains(&Value::Null)) {
                lacks("NULL".into());
            }
            let Some(class) = signature.arguments.first() else { continue };
            for data_type in class.members() {
                let of_type = || of_it().filter(|section| section.arguments[0] == *data_type);
                for edge in edges(*class, data_type) {
                    let mut firsts =
                        of_type().flat_map(|section| &section.lines).map(|line| &line.arguments[0]);
                    if !firsts.any(|value| is_same(value, &edge)) {
                        lacks(format!("{edge:?} of {data_type}"));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "missing:\n{}", Vec::from_iter(missing).join("\n"));
}

/// Values where functions of a class are likely to err. Of the other classes each function has edges of its own.
fn edges(class: TypeClass, data_type: &DataType) -> Vec<Value> {
    let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    match (class, data_type) {
        (TypeClass::Bool, _) => vec![Value::Bool(false), Value::Bool(true)],
        (TypeClass::Integers, DataType::Int16) => {
            [i16::MIN, i16::MAX].map(|end| Value::Int(end.into())).to_vec()
        }
        (TypeClass::Integers, DataType::Int32) => {
            [i32::MIN, i32::MAX].map(|end| Value::Int(end.into())).to_vec()
        }
        (TypeClass::Integers, _) => [i64::MIN, i64::MAX].map(Value::Int).to_vec(),
        (TypeClass::Floats | TypeClass::Float64, _) => floats.map(Value::Float).to_vec(),
        (TypeClass::Text, _) => vec![Value::Text(String::new())],
        // The first day that PostgreSQL has.
        (TypeClass::Date, _) => vec![Value::Int(-2_440_588)],
        _ => Vec::new(),
    }
}

#[test]
fn every_section_is_of_a_signature() {
    for section in sections() {
        let entry = section.function.entry();
        let is_known = entry.signatures.iter().any(|signature| is_of(&section, entry, signature));
        assert!(is_known, "no signature of {} is that of {}", entry.name, section.title);
    }
}

#[test]
fn a_quotient_has_a_section_for_each_scale() {
    let text = "#\tdivide_decimal\tnumeric(3;0),numeric(3;0)\tnumeric(9;2)\t$1 / $2\n1\t2\t0.5\n1\t4\t0.25\n3\t2\t1.5\n";
    let sections = parse_sections(text);
    let scales: Vec<(usize, &Value)> =
        sections.iter().map(|section| (section.lines.len(), &section.lines[0].arguments[2])).collect();
    assert_eq!(scales, [(2, &Value::Int(1)), (1, &Value::Int(2))]);
}
