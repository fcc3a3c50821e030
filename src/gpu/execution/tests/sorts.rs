//! Sorts, whole and cut off.

use std::cmp::Ordering;

use pystachio_plan::{Literal, Operator, Plan, Relation, SortKey, Value};

use super::*;

#[derive(Clone, Copy, Debug)]
struct Direction {
    descending: bool,
    nulls_first: bool,
}

const DIRECTIONS: [Direction; 3] = [
    Direction { descending: false, nulls_first: false },
    Direction { descending: true, nulls_first: true },
    Direction { descending: true, nulls_first: false },
];

/// Sorted by these columns, and cut off.
fn ordered(table: &Table, keys: &[(Expression, Direction)], limit: Option<(i64, i64)>) -> Plan {
    let key = |(expression, direction): &(Expression, Direction)| SortKey {
        expression: expression.clone(),
        descending: direction.descending,
        nulls_first: direction.nulls_first,
    };
    let sort = Operator::Sort { input: table.scan(0), keys: keys.iter().map(key).collect() };
    let sort = Relation::new(sort, 1.0);
    let number = |value| Expression::Literal(Literal::new(Value::Int(value), DataType::Int64));
    plan(match limit {
        None => sort,
        Some((offset, count)) => {
            let operator =
                Operator::Limit { input: sort, offset: Some(number(offset)), count: Some(number(count)) };
            Relation::new(operator, 1.0)
        }
    })
}

fn compare<T: Ord>(a: &Option<T>, b: &Option<T>, direction: Direction) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if direction.descending => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (None, None) => Ordering::Equal,
        (None, Some(_)) if direction.nulls_first => Ordering::Less,
        (Some(_), None) if !direction.nulls_first => Ordering::Less,
        _ => Ordering::Greater,
    }
}

fn table(key_count: u64, repeated_percent: u64) -> Table {
    Table::made(Shape { seed: 41, row_count: 20_000, key_count, repeated_percent, null_percent: 5 })
}

/// By text and key.
fn expected(table: &Table, direction: Direction) -> Vec<Vec<String>> {
    let mut rows = table.rows.clone();
    rows.sort_by(|a, b| {
        compare(&a.key, &b.key, direction).then_with(|| compare(&a.text, &b.text, DIRECTIONS[0]))
    });
    rows.iter().map(shown_row).collect()
}

fn keys(direction: Direction) -> Vec<(Expression, Direction)> {
    vec![(int64(0), direction), (text(1), DIRECTIONS[0])]
}

#[test]
fn sorts_of_several_keys_spill_and_are_stable() {
    // Many rows are equal in both keys, and their own numbers tell whether they stay in order.
    for ((key_count, repeated_percent), direction) in
        [(1 << 40, 0), (20, 0), (16_000, 70)].into_iter().zip(DIRECTIONS)
    {
        let table = table(key_count, repeated_percent);
        let rows = expected(&table, direction);
        let context = format!("keys={key_count}, repeated={repeated_percent}, {direction:?}");
        check(|| ordered(&table, &keys(direction), None), table.bytes(), rows, small(&context));
    }
}

#[test]
fn a_sort_by_one_value_that_all_rows_have_spills() {
    let table = table(1, 0);
    let rows = table
        .rows
        .iter()
        .filter(|row| row.key.is_some())
        .chain(table.rows.iter().filter(|row| row.key.is_none()));
    let rows = rows.map(shown_row).collect();
    let plan = || ordered(&table, &[(int64(0), DIRECTIONS[0])], None);
    check(plan, table.bytes(), rows, small("one value"));
}

#[test]
fn the_first_rows_need_no_spilling() {
    let table = table(100, 0);
    for direction in DIRECTIONS {
        for (offset, count) in [(0, 1), (0, 10), (7, 5), (0, 0)] {
            let rows: Vec<_> =
                expected(&table, direction).into_iter().skip(offset as usize).take(count as usize).collect();
            for memory_bytes in [PLENTY_BYTES, table.bytes() / 16] {
                let fixture = Fixture::new(memory_bytes);
                let answer = fixture.run(ordered(&table, &keys(direction), Some((offset, count)))).unwrap();
                assert_eq!(answer.rows, rows, "{direction:?} {offset} {count} {memory_bytes}");
                assert_eq!(answer.metrics.spilled_bytes, 0, "{direction:?} {offset} {count} {memory_bytes}");
            }
        }
    }
}

#[test]
fn first_rows_that_are_too_many_for_memory_spill() {
    let table = table(100, 0);
    for (offset, count) in [(0, 13_000), (19_990, 100), (40_000, 10)] {
        let rows = expected(&table, DIRECTIONS[1]);
        let rows = rows.into_iter().skip(offset as usize).take(count as usize).collect();
        let plan = || ordered(&table, &keys(DIRECTIONS[1]), Some((offset, count)));
        check(plan, table.bytes(), rows, small(&format!("{offset} {count}")));
    }
}

fn small(context: &str) -> Run<'_> {
    Run { parts: &[16], in_order: true, context }
}

/// As many rows with a text each, by number.
fn with_texts(texts: impl IntoIterator<Item = Option<String>>) -> Table {
    let row = |(number, text)| Row { key: None, text, value: None, number };
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    Table::written(std::env::temp_dir(), (0..).zip(texts).map(row).collect(), properties)
}

fn by_text(table: &Table, direction: Direction) -> Vec<Vec<String>> {
    let mut rows = table.rows.clone();
    rows.sort_by(|a, b| compare(&a.text, &b.text, direction));
    rows.iter().map(shown_row).collect()
}

#[test]
fn one_long_text_does_not_decide_how_often_all_rows_are_read() {
    let long = "x".repeat(8 << 20);
    // Another that differs only at its end, and two that are equal.
    let texts = (0..5000).map(|row| match row {
        70 | 4000 => Some(long.clone()),
        71 => Some(long.clone() + "a"),
        3000 => Some(long[1..].to_owned() + "a"),
        row if row % 10 == 0 => None,
        row => Some(format!("text {}", row * 7 % 1000)),
    });
    let table = with_texts(texts);
    for direction in DIRECTIONS {
        let platform = Watched::new(|_| Ok(()));
        let fixture = Fixture::over(platform.clone(), PLENTY_BYTES);
        let answer = fixture.run(ordered(&table, &[(text(1), direction)], None)).unwrap();
        assert!(answer.rows == by_text(&table, direction), "{direction:?}");
        let launches = platform.calls.launches();
        assert!(launches < 2000, "{direction:?}: a million words took {launches} launches");
    }
}

#[test]
fn a_cancel_is_seen_between_the_launches_of_a_sort() {
    let table = with_texts((0..3000).map(|row| Some(format!("{}{row}", "x".repeat(200)))));
    let stop = StopFlag::default();
    let plan = || ordered(&table, &[(text(1), DIRECTIONS[0])], None);
    let all = Watched::new(|_| Ok(()));
    Fixture::over(all.clone(), PLENTY_BYTES).run(plan()).unwrap();
    let (cancel, last) = (stop.clone(), all.calls.launches() / 2);
    let platform = Watched::new(move |calls| {
        if calls.launches() >= last {
            cancel.stop();
        }
        Ok(())
    });
    let error = Fixture::over(platform.clone(), PLENTY_BYTES).run_until(plan(), stop).unwrap_err();
    assert_eq!(error.kind, pystachio_plan::ErrorKind::Cancelled, "{error}");
    let (launches, of_all) = (platform.calls.launches(), all.calls.launches());
    assert_eq!(launches, last, "of {of_all} launches");
}
