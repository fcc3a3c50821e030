//! Regular expressions whose tables are large, and patterns that are no constants.

use pystachio_plan::{Ctype, DataType, ErrorKind, Expression, Function, Value};

use super::{Device, column, text};

fn matches(pattern: Expression) -> Expression {
    Expression::predicate(Function::Matches(Ctype::Ascii), vec![column(0, DataType::Text), pattern])
}

/// Whether a letter 13 places before a `c` is an `a`: an automaton remembers each of the last 13 letters.
#[test]
fn an_automaton_of_thousands_of_states_is_a_table() {
    let device = Device::new();
    let letters = |number: u32| (0..16).map(move |bit| if number >> bit & 1 == 1 { 'a' } else { 'b' });
    let texts: Vec<String> =
        (0..3000).map(|number| letters(number * 21).chain(['c', 'ä']).collect()).collect();
    let columns = [(DataType::Text, texts.iter().cloned().map(Value::Text).collect::<Vec<_>>())];
    let pattern = matches(text("(a|b)*a(a|b){12}c"));
    let found = device.evaluate(&pattern, &columns, texts.len()).expect("booleans");
    for (text, found) in texts.iter().zip(found) {
        assert_eq!(found, Value::Bool(text.as_bytes()[3] == b'a'), "{text}");
    }
}

#[test]
fn patterns_without_a_table_are_refused() {
    let device = Device::new();
    let columns = [
        (DataType::Text, vec![Value::Text("a".to_owned())]),
        (DataType::Text, vec![Value::Text("a".to_owned())]),
    ];
    // More states than a table has room for; a pattern a row; and one that PostgreSQL takes for an error.
    for pattern in [text("(a|b)*a(a|b){16}c"), column(1, DataType::Text), text("(a")] {
        let error = device.evaluate(&matches(pattern), &columns, 1).expect_err("no table");
        assert_eq!(error.kind, ErrorKind::NotSupported, "{error}");
    }
    let null = Expression::literal(Value::Null, DataType::Text);
    let columns = &columns[..1];
    assert_eq!(device.evaluate(&matches(null), columns, 1).expect("NULL"), [Value::Null]);
}
