//! Conditions on text that are evaluated for the entries of a dictionary: the same rows and errors
//! as without.

use parquet::file::properties::{WriterPropertiesBuilder, WriterVersion};
use pystachio_plan::{Ctype, ErrorKind, Function, OperatorMetrics, Value};

use super::*;

const ROWS: usize = 1500;

pub(super) fn shape() -> Shape {
    Shape { seed: 91, row_count: ROWS, key_count: 20, repeated_percent: 5, null_percent: 5 }
}

/// Several row groups of pages of about a hundred rows, every text in a dictionary.
pub(super) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_max_row_group_row_count(Some(700))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(50)
}

pub(super) fn written(properties: WriterPropertiesBuilder) -> Table {
    Table::written(std::env::temp_dir(), shape().rows(), properties.build())
}

/// Forms of files, and whether row groups have all texts in a dictionary. The last one has too few rows for it.
pub(super) fn forms() -> Vec<(&'static str, WriterPropertiesBuilder, bool)> {
    vec![
        ("a dictionary", properties(), true),
        ("pages V2", properties().set_writer_version(WriterVersion::PARQUET_2_0), true),
        ("pages after the dictionary is full", properties().set_dictionary_page_size_limit(2000), false),
        ("no dictionary", properties().set_dictionary_enabled(false), false),
    ]
}

pub(super) fn literal(value: &str) -> Expression {
    Expression::literal(Value::Text(value.to_owned()), DataType::Text)
}

pub(super) fn test(function: Function, arguments: Vec<Expression>) -> Expression {
    Expression::predicate(function, arguments)
}

pub(super) fn number(value: i64) -> Expression {
    Expression::literal(Value::Int(value), DataType::Int64)
}

pub(super) fn of_text(function: Function, mut arguments: Vec<Expression>) -> Expression {
    arguments.insert(0, text(1));
    Expression::call(function, arguments, DataType::Text)
}

fn is_in(values: &[&str]) -> Expression {
    test(Function::In, [text(1)].into_iter().chain(values.iter().map(|value| literal(value))).collect())
}

type Passes = fn(&Row) -> bool;

/// Conditions, the rows for which they are true, and whether text is read by parts alone.
fn conditions() -> Vec<(&'static str, Vec<Expression>, Passes, bool)> {
    fn known(row: &Row) -> Option<&str> {
        row.text.as_deref()
    }
    vec![
        (
            "equal",
            vec![test(Function::Equal, vec![text(1), literal("ä€x1")])],
            |row| known(row) == Some("ä€x1"),
            true,
        ),
        (
            "in, and a number",
            vec![is_in(&["ä€x1", "7", "14", "none"]), test(Function::Less, vec![int64(3), number(900)])],
            |row| matches!(known(row), Some("ä€x1" | "7" | "14")) && row.number < 900,
            true,
        ),
        (
            "not in, which NULL does not meet",
            vec![test(Function::Not, vec![is_in(&["ä€x1", "7"])])],
            |row| known(row).is_some_and(|text| !matches!(text, "ä€x1" | "7")),
            true,
        ),
        ("is null", vec![test(Function::IsNull, vec![text(1)])], |row| known(row).is_none(), true),
        (
            "coalesce",
            vec![test(
                Function::Equal,
                vec![of_text(Function::Coalesce, vec![literal("none")]), literal("none")],
            )],
            |row| known(row).is_none(),
            true,
        ),
        (
            "is distinct from",
            vec![test(Function::IsDistinctFrom, vec![text(1), literal("7")])],
            |row| known(row) != Some("7"),
            true,
        ),
        (
            "like, ilike, and less than",
            vec![
                test(Function::Like, vec![text(1), literal("%x%3")]),
                test(Function::ILike(Ctype::Ascii), vec![text(1), literal("%X1%")]),
                test(Function::Less, vec![text(1), literal("ä€x13a")]),
            ],
            |row| {
                known(row).is_some_and(|text| {
                    text.contains('x') && text.ends_with('3') && text.contains("x1") && text < "ä€x13a"
                })
            },
            true,
        ),
        (
            "upper and substring",
            vec![test(
                Function::Or,
                vec![
                    test(
                        Function::Equal,
                        vec![of_text(Function::Upper(Ctype::Ascii), vec![]), literal("ä€X8")],
                    ),
                    test(
                        Function::Equal,
                        vec![
                            of_text(Function::Substring, vec![Expression::int32(4), Expression::int32(2)]),
                            literal("ä€"),
                        ],
                    ),
                ],
            )],
            |row| {
                known(row).is_some_and(|text| text == "ä€x8" || text.chars().skip(3).take(2).eq("ä€".chars()))
            },
            true,
        ),
        (
            "or with a number, where a NULL matters",
            vec![test(
                Function::Or,
                vec![
                    test(Function::Equal, vec![text(1), literal("7")]),
                    test(Function::Less, vec![int64(0), number(3)]),
                ],
            )],
            |row| known(row) == Some("7") || row.key.is_some_and(|key| key < 3),
            true,
        ),
        (
            "a part beside a use of the text itself",
            vec![
                test(Function::Less, vec![text(1), literal("5")]),
                test(
                    Function::Greater,
                    vec![
                        Expression::call(Function::Length, vec![text(1)], DataType::Int32),
                        Expression::call(
                            Function::Length,
                            vec![Expression::call(
                                Function::Concat,
                                vec![text(1), literal("")],
                                DataType::Text,
                            )],
                            DataType::Int32,
                        ),
                    ],
                ),
            ],
            |_| false,
            false,
        ),
    ]
}

fn scan_of(metrics: &QueryMetrics) -> &OperatorMetrics {
    metrics.operators.iter().find(|operator| operator.description.starts_with("Scan")).unwrap()
}

fn count(metrics: &QueryMetrics, name: &str) -> u64 {
    scan_of(metrics).counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
}

pub(super) fn without() -> DeviceSettings {
    DeviceSettings { dictionary_codes: false, ..DeviceSettings::default() }
}

#[test]
fn conditions_on_text_give_the_same_rows_whatever_the_form() {
    let fixture = Fixture::new(PLENTY_BYTES);
    for (form, properties, has_dictionary) in forms() {
        let table = written(properties);
        for (name, conditions, passes, is_coded) in conditions() {
            let expected: Vec<Vec<String>> =
                table.rows.iter().filter(|row| passes(row)).map(shown_row).collect();
            let all = plan(table.filtered(0, &conditions));
            let answer = fixture.run_with(all.clone(), DeviceSettings::default()).unwrap();
            assert_eq!(answer.rows, expected, "{name}, {form}");
            let entries = count(&answer.metrics, "dictionary_entries_tested");
            let rows = count(&answer.metrics, "dictionary_rows_tested");
            assert_eq!(entries > 0, has_dictionary && is_coded, "{name}, {form}");
            assert!(rows >= 2 * entries && rows <= ROWS as u64, "{name}, {form}: {rows} {entries}");
            let answer = fixture.run_with(all, without()).unwrap();
            assert_eq!(answer.rows, expected, "{name}, {form}, for every row");
            assert_eq!(count(&answer.metrics, "dictionary_entries_tested"), 0, "{name}, {form}");
            // Text that only its condition reads.
            let numbers = Plan { root: table.filtered(0, &conditions), outputs: vec![ColumnId(3)] };
            let answer = fixture.run(numbers).unwrap();
            let expected: Vec<Vec<String>> = expected.into_iter().map(|row| vec![row[3].clone()]).collect();
            assert_eq!(answer.rows, expected, "{name}, {form}, without the text");
        }
    }
}

#[test]
fn the_entry_for_null_is_evaluated_where_no_row_is_null() {
    let shape = Shape { null_percent: 0, ..shape() };
    let table = Table::written(std::env::temp_dir(), shape.rows(), properties().build());
    let passes = |row: &&Row| row.text.as_deref().is_some_and(|text| text >= "7");
    let expected: Vec<Vec<String>> = table.rows.iter().filter(passes).map(shown_row).collect();
    let condition = [test(Function::GreaterEqual, vec![text(1), literal("7")])];
    let answer = Fixture::new(PLENTY_BYTES).run(plan(table.filtered(0, &condition))).unwrap();
    assert_eq!(answer.rows, expected);
    assert!(count(&answer.metrics, "dictionary_entries_tested") > 0);
}

#[test]
fn codes_are_decoded_where_page_indexes_leave_rows_and_in_pieces() {
    let shape = Shape { row_count: 12_000, ..shape() };
    let form = properties().set_max_row_group_row_count(None).build();
    let table = Table::written(std::env::temp_dir(), shape.rows(), form);
    let conditions = [
        test(Function::GreaterEqual, vec![int64(3), number(300)]),
        test(Function::Less, vec![int64(3), number(9000)]),
        test(Function::NotEqual, vec![text(1), literal("7")]),
    ];
    let passes =
        |row: &&Row| (300..9000).contains(&row.number) && row.text.as_deref().is_some_and(|text| text != "7");
    let expected: Vec<Vec<String>> = table.rows.iter().filter(passes).map(shown_row).collect();
    for memory_bytes in [PLENTY_BYTES, table.bytes() / 3] {
        let answer = Fixture::new(memory_bytes).run(plan(table.filtered(0, &conditions))).unwrap();
        assert_eq!(answer.rows, expected, "memory {memory_bytes}");
        assert!(count(&answer.metrics, "pages_skipped") > 0, "memory {memory_bytes}");
    }
    let unskipped = DeviceSettings { page_skipping: false, ..DeviceSettings::default() };
    let answer = Fixture::new(PLENTY_BYTES).run_with(plan(table.filtered(0, &conditions)), unskipped);
    assert_eq!(answer.unwrap().rows, expected);
}

#[test]
fn text_of_which_some_rows_are_wanted_is_decoded_into_codes() {
    let table = written(properties());
    let conditions = [test(Function::Less, vec![int64(0), number(3)])];
    let expected: Vec<Vec<String>> =
        table.rows.iter().filter(|row| row.key.is_some_and(|key| key < 3)).map(shown_row).collect();
    let fixture = Fixture::new(PLENTY_BYTES);
    let [with, without] = [DeviceSettings::default(), without()].map(|settings| {
        let answer = fixture.run_with(plan(table.filtered(0, &conditions)), settings).unwrap();
        assert_eq!(answer.rows, expected);
        count(&answer.metrics, "bytes_decoded")
    });
    assert!(with < without, "{with} {without}");
}

/// Conditions keep their order: a row that one drops does not reach a later one that would fail, and the other way
/// round.
#[test]
fn errors_are_those_of_rows_that_reach_them() {
    let table = written(properties());
    let fixture = Fixture::new(PLENTY_BYTES);
    // Fails for one row.
    let victim = table.rows.iter().find(|row| row.text.as_deref() == Some("14")).unwrap().number;
    let difference = Expression::call(Function::Subtract, vec![int64(3), number(victim)], DataType::Int64);
    let quotient = Expression::call(Function::Divide, vec![number(1), difference], DataType::Int64);
    let can_fail = test(Function::Less, vec![quotient, number(2)]);
    let is_other = test(Function::Not, vec![test(Function::Like, vec![text(1), literal("14%")])]);
    let ends_in_escape = test(Function::Like, vec![text(1), literal("14\\")]);
    let cases = [
        ("the part comes first", vec![is_other.clone(), can_fail.clone()], None),
        ("the part comes last", vec![can_fail, is_other.clone()], Some(ErrorKind::DivisionByZero)),
        ("a pattern that fails", vec![ends_in_escape.clone()], Some(ErrorKind::EscapeSequence)),
        ("no row reaches the pattern", vec![is_other, ends_in_escape], None),
    ];
    for (name, conditions, expected) in cases {
        let [with, without] = [DeviceSettings::default(), without()].map(|settings| {
            let answer = fixture.run_with(plan(table.filtered(0, &conditions)), settings);
            answer.map(|answer| answer.rows).map_err(|error| (error.kind, error.message))
        });
        assert_eq!(with, without, "{name}");
        assert_eq!(with.map(|_| ()).err().map(|(kind, _)| kind), expected, "{name}");
    }
}

/// A key that a join's filter tests comes as codes; the filter tests each entry once.
#[test]
fn filters_of_joins_are_asked_of_entries() {
    use pystachio_plan::{JoinKey, JoinKind, JoinSide};
    let table = written(properties());
    let like = test(Function::Like, vec![text(1), literal("%1%")]);
    let few = Expression::predicate(Function::Equal, vec![text(5), literal("14")]);
    let operator = Operator::Join {
        kind: JoinKind::Semi,
        left: table.filtered(0, &[like]),
        right: table.filtered(4, &[few]),
        keys: vec![JoinKey { left: text(1), right: text(5) }],
        residual: None,
        build: JoinSide::Right,
    };
    let joined = plan(Relation::new(operator, 1.0));
    let expected: Vec<Vec<String>> =
        table.rows.iter().filter(|row| row.text.as_deref() == Some("14")).map(shown_row).collect();
    for (settings, tests_entries) in [(DeviceSettings::default(), true), (without(), false)] {
        let answer = Fixture::new(PLENTY_BYTES).run_with(joined.clone(), settings).unwrap();
        assert_eq!(sorted(answer.rows), sorted(expected.clone()));
        assert_eq!(count(&answer.metrics, "dictionary_entries_tested") > 0, tests_entries);
        assert!(count(&answer.metrics, "bloom_rows_dropped") > 0);
    }
}
