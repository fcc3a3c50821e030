use pystachio_plan::{Collator, Function, Interval, LocaleName};

use super::*;
use crate::RowColumn;

fn rows(order: Option<Function>, name: &str, columns: Vec<(Source, Source)>) -> Source {
    let column = |(left, right)| RowColumn {
        function: Rc::new(CatalogFunction::builtin(name)),
        collation: None,
        left,
        right,
    };
    let columns = columns.into_iter().map(column).collect();
    Source::new(Part::RowComparison { order, columns }, SourceType::Bool)
}

#[test]
fn rows_are_bounded_by_their_first_column() {
    let pairs = vec![(column(NUMBER), integer(1)), (column(NUMBER), integer(2))];
    let before = rows(Some(Function::Less), "int4lt", pairs.clone());
    assert_eq!(lowered(&before), "((column 1 <= 1) AND ((column 1 < 1) OR (column 1 < 2)))");
    let not_after = rows(Some(Function::LessEqual), "int4le", pairs.clone());
    assert_eq!(lowered(&not_after), "((column 1 <= 1) AND ((column 1 < 1) OR (column 1 <= 2)))");
    assert_eq!(refused(&rows(None, "int4lt", pairs.clone())), Refusal::RowOperators);
    assert_eq!(refused(&rows(Some(Function::Less), "int4gt", pairs)), Refusal::RowOperators);
    assert_eq!(refused(&rows(Some(Function::Less), "int4lt", Vec::new())), Refusal::EmptyRows);
}

#[test]
fn text_of_a_language_is_ordered_by_keys() {
    let order = TextOrder::Collated(Collator::Libc(LocaleName::C_UTF8));
    let own = Collation { order, ..(*language_collation(true).unwrap()).clone() };
    let of = |name: &str, collation: &Collation| {
        let collation = Some(Rc::new(collation.clone()));
        let call = Call { collation, ..call_of(name, vec![column(NAME), text("a")]) };
        Source::new(Part::Call(call), SourceType::Bool)
    };
    assert_eq!(lowered(&of("text_lt", &own)), "(sort_key(column 4) < sort_key('a'))");
    assert_eq!(lowered(&of("texteq", &own)), "(column 4 = 'a')");
    let without_equality = Collation { is_deterministic: false, ..own };
    let refusal = refused(&of("text_lt", &without_equality));
    assert_eq!(refusal, Refusal::EqualityByCollation("de".into()));
}

#[test]
fn differences_of_timestamps_are_compared_as_seconds() {
    let difference = || call("timestamp_mi", SourceType::Interval, vec![column(LOCAL), column(LOCAL)]);
    let seconds = "(extract(epoch FROM column 6) - extract(epoch FROM column 6))";
    let hour = Value::Interval(Interval { months: 1, days: -1, microseconds: 3_600_000_000 });
    let over = test("interval_gt", difference(), constant(hour, SourceType::Interval));
    assert_eq!(lowered(&over), format!("({seconds} > 2509200.000000)"));
    assert_eq!(lowered(&test("interval_eq", difference(), difference())), format!("({seconds} = {seconds})"));
}

#[test]
fn text_is_ordered_by_bytes_only() {
    let of = |name: &str, collation| {
        let call = Call { collation, ..call_of(name, vec![column(NAME), text("a")]) };
        Source::new(Part::Call(call), SourceType::Bool)
    };
    assert_eq!(lowered(&of("text_lt", bytes_collation())), "(column 4 < 'a')");
    assert_eq!(lowered(&of("texteq", language_collation(true))), "(column 4 = 'a')");
    let order = refused(&of("text_lt", language_collation(true)));
    assert_eq!(order, Refusal::OrderByCollation("de".into()));
    let equality = refused(&of("texteq", language_collation(false)));
    assert_eq!(equality, Refusal::EqualityByCollation("de".into()));
    assert_eq!(refused(&of("texteq", None)), Refusal::SeveralCollations);
}

#[test]
fn intervals_and_json_are_not_compared() {
    let span = test("interval_lt", column(SPAN), column(SPAN));
    assert_eq!(refused(&span), Refusal::IntervalOfRow);
    assert_eq!(refused(&test("texteq", column(JSON), column(JSON))).to_string(), "equality of json");
}

#[test]
fn text_that_is_none_in_postgresql_is_only_returned_and_tested_for_null() {
    let function = |name: &str| Refusal::Function(name.into());
    assert_eq!(refused(&test("texteq", column(JSONB), column(JSONB))), function("texteq"));
    assert_eq!(refused(&call("concat", SourceType::Text, vec![column(JSONB)])), function("concat"));
    let value = given(0, SourceType::from_text("jsonb"));
    assert_eq!(refused(&value), Refusal::RuntimeValue("jsonb".into()));
    assert!(lower(&column(JSONB)).is_ok());
}

#[test]
fn a_date_before_a_timestamp_is_before_a_date() {
    const DAY_MICROSECONDS: i64 = 86_400_000_000;
    let moment = |microseconds| constant(Value::Int(microseconds), SourceType::Timestamp);
    let bound = |microseconds| match lower(&test("date_lt_timestamp", column(DAY), moment(microseconds))) {
        Ok(Lowered { expression: Expression::Call { function, arguments, .. }, .. }) => {
            (function, arguments[1].clone())
        }
        other => panic!("{other:?}"),
    };
    let day = |days| Expression::literal(Value::Int(days), DataType::Date);
    assert_eq!(bound(3 * DAY_MICROSECONDS), (Function::Less, day(3)));
    assert_eq!(bound(3 * DAY_MICROSECONDS + 1), (Function::LessEqual, day(3)));
    assert_eq!(bound(-1), (Function::LessEqual, day(-1)));
}

#[test]
fn two_types_of_moments_are_compared_if_one_is_a_value() {
    let value = given(0, SourceType::TimestampTz);
    assert_eq!(lowered(&test("date_lt_timestamptz", column(DAY), value)), "(column 5 < $1)");
    let of_row = test("date_lt_timestamptz", column(DAY), column(MOMENT));
    assert_eq!(
        refused(&of_row).to_string(),
        "a comparison of a date and a timestamp with time zone of the same row"
    );
}

#[test]
fn distinct_takes_the_operands_of_its_operator() {
    let distinct = Part::Distinct(call_of("int48eq", vec![column(NUMBER), column(BIG)]));
    let distinct = Source::new(distinct, SourceType::Bool);
    assert_eq!(lowered(&distinct), "((column 1)::bigint IS DISTINCT FROM column 10)");
}

/// A quotient of more digits than a decimal has.
fn long_quotient() -> Source {
    let of = |name, a, b| call(name, SourceType::Numeric, vec![a, b]);
    let difference = of("numeric_sub", of("numeric_div", column(PRICE), column(RATE)), numeric("1"));
    of("numeric_div", column(PRICE), difference)
}

#[test]
fn a_quotient_that_is_too_long_is_compared_by_its_size() {
    assert!(matches!(refused(&long_quotient()), Refusal::LongNumeric { .. }));
    // Cut at 10, above the constant.
    let above = lowered(&test("numeric_gt", long_quotient(), numeric("2.5")));
    assert!(above.contains("* 10)") && above.ends_with("> 2.5)"), "{above}");
    let below = lowered(&test("numeric_lt", numeric("0.5"), long_quotient()));
    assert!(!below.contains("* 10)"), "{below}");
    // In two parts.
    let function = |name| match lower(&test(name, long_quotient(), column(PRICE))).unwrap().expression {
        Expression::Call { function, arguments, .. } => (function, arguments.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(function("numeric_gt"), (Function::Or, 2));
    assert_eq!(function("numeric_ne"), (Function::Or, 2));
    assert_eq!(function("numeric_le"), (Function::And, 2));
    assert_eq!(function("numeric_eq"), (Function::And, 2));
    let sum = call("numeric_add", SourceType::Numeric, vec![long_quotient(), numeric("1")]);
    assert!(matches!(refused(&test("numeric_gt", sum, numeric("1"))), Refusal::LongNumeric { .. }));
}

#[test]
fn a_choice_among_quotients_is_ordered_by_its_parts() {
    let branches = vec![(column(FLAG), long_quotient())];
    let choice = Part::Case { operand: None, branches, otherwise: Some(Box::new(column(PRICE))) };
    let choice = Source::new(choice, SourceType::Numeric);
    let (scope, notes, server) = (scope(), Notes::default(), TestServer::default());
    let lowering = Lowering::new(&scope, &notes, &server);
    assert_eq!(lowering.lower_ordered(&choice).unwrap().len(), 2);
    assert_eq!(lowering.lower_ordered(&column(PRICE)).unwrap(), [lower(&column(PRICE)).unwrap()]);
    assert_eq!(lowering.lower_ordered(&column(JSON)).unwrap().len(), 1);
    // Each comparison lowers its operands again, and there is an end to that.
    let mut nested = test("numeric_gt", choice, numeric("1"));
    for _ in 0..12 {
        let branches = vec![(nested, long_quotient())];
        let outer = Part::Case { operand: None, branches, otherwise: None };
        nested = test("numeric_gt", Source::new(outer, SourceType::Numeric), numeric("1"));
    }
    assert!(matches!(refused(&nested), Refusal::LongNumeric { .. }));
}
