use pystachio_plan::Function;

use super::*;
use crate::RuntimeValue;

fn or(arguments: Vec<Source>) -> Source {
    let has_given = arguments.iter().any(|argument| argument.has_given);
    let logic = Part::Logic { function: Function::Or, arguments };
    Source { has_given, ..Source::new(logic, SourceType::Bool) }
}

/// `$1 / 2`, which PostgreSQL can evaluate when the query starts, and which could fail.
fn quotient() -> Source {
    evaluated(1, call("int4div", SourceType::Integer, vec![given(0, SourceType::Integer), integer(2)]))
}

#[test]
fn equal_values_are_one_parameter() {
    let notes = Notes::default();
    for _ in 0..2 {
        lower_with(&test("int4eq", column(NUMBER), quotient()), &notes).unwrap();
    }
    let value = RuntimeValue::Origin(Origin(1));
    assert_eq!(notes.parameter_at(0), Some((value, DataType::Int32)));
    assert_eq!(notes.parameter_at(1), None);
}

#[test]
fn what_could_fail_is_evaluated_only_where_it_is_reached() {
    let reached = or(vec![test("int4eq", column(NUMBER), quotient()), column(FLAG)]);
    assert_eq!(lowered(&reached), "((column 1 = $1) OR column 8)");
    // The engine divides, for rows that come to it.
    let guarded = or(vec![column(FLAG), test("int4eq", column(NUMBER), quotient())]);
    assert_eq!(lowered(&guarded), "(column 8 OR (column 1 = ($1 / 2)))");
    let of_text = evaluated(1, call("pg_sleep", SourceType::Integer, vec![given(0, SourceType::Double)]));
    let guarded = or(vec![column(FLAG), test("int4eq", column(NUMBER), of_text)]);
    assert_eq!(refused(&guarded), Refusal::ConditionalRuntimeValue);
}

#[test]
fn a_sum_of_days_is_harmless_near_what_is_given() {
    let later = |day: Source| {
        let arguments = vec![day, integer(1)];
        let sum = evaluated(1, call("date_pli", SourceType::Date, arguments));
        or(vec![column(FLAG), test("date_lt", column(DAY), sum)])
    };
    assert!(lower(&later(given(0, SourceType::Date))).is_ok());
    let of_subquery = Source { part: Part::Parameter { is_given: false }, ..given(0, SourceType::Date) };
    assert_eq!(refused(&later(of_subquery)), Refusal::ConditionalRuntimeValue);
}

#[test]
fn a_zone_of_run_time_is_not_looked_up_without_need() {
    let local = |zone| call("timezone", SourceType::Timestamp, vec![zone, column(MOMENT)]);
    let condition = |zone| test("timestamp_lt", local(zone), column(LOCAL));
    assert!(lower(&condition(given(0, SourceType::Text))).is_ok());
    let guarded = or(vec![column(FLAG), condition(given(0, SourceType::Text))]);
    assert_eq!(refused(&guarded), Refusal::ConditionalZone);
    assert!(lower(&or(vec![column(FLAG), condition(text("UTC"))])).is_ok());
}

#[test]
fn branches_of_case_are_conditional_but_for_the_first_condition() {
    let compared = |value| test("int4eq", column(NUMBER), value);
    let sleep = || evaluated(1, call("pg_sleep", SourceType::Integer, vec![given(0, SourceType::Double)]));
    let case = |branches: Vec<(Source, Source)>| {
        Source::new(Part::Case { operand: None, branches, otherwise: None }, SourceType::Integer)
    };
    let first = case(vec![(compared(sleep()), integer(1))]);
    assert!(lower(&first).is_ok());
    let second = case(vec![(column(FLAG), integer(1)), (compared(sleep()), integer(2))]);
    assert_eq!(refused(&second), Refusal::ConditionalRuntimeValue);
    let result = case(vec![(column(FLAG), sleep())]);
    assert_eq!(refused(&result), Refusal::ConditionalRuntimeValue);
    let coalesce = |values| Source::new(Part::Coalesce(values), SourceType::Integer);
    assert!(lower(&coalesce(vec![sleep(), column(NUMBER)])).is_ok());
    assert_eq!(refused(&coalesce(vec![column(NUMBER), sleep()])), Refusal::ConditionalRuntimeValue);
}

#[test]
fn a_refusal_with_a_parameter_of_the_statement_is_noted() {
    let lost = |source: &Source| {
        let notes = Notes::default();
        lower_with(source, &notes).unwrap_err();
        notes.lost_parameter()
    };
    let round = |digits| call("round", SourceType::Numeric, vec![column(RATE), digits]);
    assert!(lost(&round(given(0, SourceType::Integer))));
    assert!(!lost(&round(column(NUMBER))));
}

#[test]
fn values_of_types_that_plans_lack_are_refused() {
    assert_eq!(refused(&given(0, SourceType::other("xml"))).to_string(), "a runtime value of type xml");
    let array = SourceType::array_of(SourceType::Integer);
    assert_eq!(refused(&given(0, array)).to_string(), "a runtime value of type integer[]");
}
