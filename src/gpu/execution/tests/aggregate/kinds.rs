//! Aggregates of every kind, with few groups, many, and none.

use std::collections::{BTreeMap, BTreeSet};

use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, DataType, NamedExpression, Operator, Plan, Relation,
};

use super::*;

/// An aggregate over the columns of a table, with its result for some rows.
struct Call {
    function: Aggregate,
    argument: Option<Expression>,
    distinct: bool,
    data_type: DataType,
    expected: fn(&[&Row]) -> String,
}

fn values(rows: &[&Row]) -> Vec<i64> {
    rows.iter().filter_map(|row| row.value).collect()
}

fn some<T: ToString>(value: Option<T>) -> String {
    shown(&value)
}

fn call(
    function: Aggregate,
    argument: Option<Expression>,
    data_type: DataType,
    expected: fn(&[&Row]) -> String,
) -> Call {
    Call { function, argument, distinct: false, data_type, expected }
}

fn wide() -> DataType {
    DataType::Decimal { precision: 38, scale: 0 }
}

fn plain_calls() -> Vec<Call> {
    vec![
        call(Aggregate::Count, None, DataType::Int64, |rows| rows.len().to_string()),
        call(Aggregate::Count, Some(text(1)), DataType::Int64, |rows| {
            rows.iter().filter(|row| row.text.is_some()).count().to_string()
        }),
        call(Aggregate::Sum, Some(int64(2)), wide(), |rows| {
            some(values(rows).into_iter().reduce(|a, b| a + b))
        }),
        call(Aggregate::Min, Some(int64(2)), DataType::Int64, |rows| some(values(rows).into_iter().min())),
        call(Aggregate::Max, Some(text(1)), DataType::Text, |rows| {
            some(rows.iter().filter_map(|row| row.text.clone()).max())
        }),
    ]
}

fn distinct_calls() -> Vec<Call> {
    let distinct = |call: Call| Call { distinct: true, ..call };
    vec![
        distinct(call(Aggregate::Count, Some(text(1)), DataType::Int64, |rows| {
            rows.iter().filter_map(|row| row.text.clone()).collect::<BTreeSet<_>>().len().to_string()
        })),
        distinct(call(Aggregate::Sum, Some(int64(2)), wide(), |rows| {
            some(values(rows).into_iter().collect::<BTreeSet<_>>().into_iter().reduce(|a, b| a + b))
        })),
        distinct(call(Aggregate::Count, Some(int64(2)), DataType::Int64, |rows| {
            values(rows).into_iter().collect::<BTreeSet<_>>().len().to_string()
        })),
    ]
}

/// Groups by the columns with these ids.
fn grouped(table: &Table, groups: &[Expression], calls: &[Call]) -> Plan {
    let named = |(place, expression): (usize, &Expression)| NamedExpression {
        id: ColumnId(100 + place as u32),
        expression: expression.clone(),
    };
    let aggregate = |(place, call): (usize, &Call)| AggregateCall {
        id: ColumnId(200 + place as u32),
        function: call.function,
        argument: call.argument.clone(),
        distinct: call.distinct,
        filter: None,
        data_type: call.data_type.clone(),
        order: Vec::new(),
    };
    let operator = Operator::Aggregate {
        input: table.scan(0),
        groups: groups.iter().enumerate().map(named).collect(),
        aggregates: calls.iter().enumerate().map(aggregate).collect(),
        phase: AggregatePhase::Whole,
    };
    plan(Relation::new(operator, 1.0))
}

fn expected(table: &Table, key: impl Fn(&Row) -> Vec<String>, calls: &[Call]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<Vec<String>, Vec<&Row>> = BTreeMap::new();
    for row in &table.rows {
        groups.entry(key(row)).or_default().push(row);
    }
    if groups.is_empty() && key(&Row { key: None, text: None, value: None, number: 0 }).is_empty() {
        groups.insert(Vec::new(), Vec::new());
    }
    let result = |(key, rows): (Vec<String>, Vec<&Row>)| {
        key.into_iter().chain(calls.iter().map(|call| (call.expected)(&rows))).collect()
    };
    groups.into_iter().map(result).collect()
}

fn many_groups() -> Table {
    Table::made(Shape {
        seed: 31,
        row_count: 20_000,
        key_count: 16_000,
        repeated_percent: 5,
        null_percent: 3,
    })
}

fn key_of(row: &Row) -> Vec<String> {
    vec![shown(&row.key)]
}

#[test]
fn many_groups_spill() {
    let table = many_groups();
    let calls = plain_calls();
    let rows = expected(&table, key_of, &calls);
    let run = Run { parts: &[16, 24], ..small("many groups") };
    check(|| grouped(&table, &[int64(0)], &calls), table.bytes(), rows, run);
}

/// Counts and sums, which slots hold.
fn sums_and_counts() -> Vec<Call> {
    plain_calls().into_iter().take(3).collect()
}

#[test]
fn keys_that_lie_close_together_are_summed_in_slots() {
    let table = many_groups();
    let calls = sums_and_counts();
    let rows = expected(&table, key_of, &calls);
    check(|| grouped(&table, &[int64(0)], &calls), table.bytes(), rows, small("dense keys"));
    let rows = expected(&table, |row| vec![row.number.to_string()], &calls);
    check(|| grouped(&table, &[int64(3)], &calls), table.bytes(), rows, small("ascending keys"));
}

#[test]
fn slots_and_hashed_groups_of_one_aggregate_are_merged() {
    let mut rows = many_groups().rows;
    // The first keys lie too far apart, and some of those in the middle; all of them come again at the end.
    for (place, row) in rows.iter_mut().enumerate() {
        let is_far = matches!(place, 0..2_500 | 12_000..12_500);
        row.key = row.key.map(|key| if is_far || place > 19_000 && key % 2 == 0 { key << 40 } else { key });
    }
    let table = Table::new(rows);
    let calls = sums_and_counts();
    let rows = expected(&table, key_of, &calls);
    check(|| grouped(&table, &[int64(0)], &calls), table.bytes(), rows, small("dense and sparse keys"));
}

#[test]
fn groups_of_several_keys_and_texts_spill() {
    let table = many_groups();
    let calls = plain_calls();
    let rows = expected(&table, |row| vec![shown(&row.text), shown(&row.key)], &calls);
    check(|| grouped(&table, &[text(1), int64(0)], &calls), table.bytes(), rows, small("two keys"));
}

#[test]
fn distinct_rows_spill() {
    let table = many_groups();
    let rows = expected(&table, |row| vec![row.number.to_string(), shown(&row.text)], &[]);
    check(|| grouped(&table, &[int64(3), text(1)], &[]), table.bytes(), rows, small("DISTINCT"));
}

#[test]
fn distinct_aggregates_spill_and_mix_with_others() {
    let table = many_groups();
    let calls: Vec<Call> = plain_calls().into_iter().chain(distinct_calls()).collect();
    let rows = expected(&table, key_of, &calls);
    check(|| grouped(&table, &[int64(0)], &calls), table.bytes(), rows, small("distinct aggregates"));
    let calls = distinct_calls();
    let rows = expected(&table, key_of, &calls);
    check(|| grouped(&table, &[int64(0)], &calls), table.bytes(), rows, small("only distinct aggregates"));
}

#[test]
fn different_values_of_one_group_spill() {
    let table = many_groups();
    // Every row has a number of its own.
    let mut calls = vec![Call {
        function: Aggregate::Count,
        argument: Some(int64(3)),
        distinct: true,
        data_type: DataType::Int64,
        expected: |rows| rows.len().to_string(),
    }];
    let rows = expected(&table, |_| Vec::new(), &calls);
    check(|| grouped(&table, &[], &calls), table.bytes(), rows, small("no groups, distinct"));
    calls.extend(plain_calls());
    let rows = expected(&table, |_| Vec::new(), &calls);
    check(|| grouped(&table, &[], &calls), table.bytes(), rows, small("no groups, mixed"));
}

#[test]
fn few_groups_need_no_spilling() {
    let table = Table::made(Shape {
        seed: 32,
        row_count: 20_000,
        key_count: 3,
        repeated_percent: 0,
        null_percent: 3,
    });
    let calls = plain_calls();
    for (groups, rows) in [
        (vec![int64(0)], expected(&table, key_of, &calls)),
        (vec![], expected(&table, |_| Vec::new(), &calls)),
    ] {
        let fixture = Fixture::new(table.bytes() / 16);
        let answer = fixture.run(grouped(&table, &groups, &calls)).unwrap();
        assert_eq!(sorted(answer.rows), rows);
        assert_eq!(answer.metrics.spilled_bytes, 0);
    }
}

#[test]
fn no_input_is_one_row_without_groups_and_none_with() {
    let table = Table::new(Vec::new());
    let calls: Vec<Call> = plain_calls().into_iter().chain(distinct_calls()).collect();
    let fixture = Fixture::new(PLENTY_BYTES);
    let answer = fixture.run(grouped(&table, &[], &calls)).unwrap();
    assert_eq!(answer.rows, expected(&table, |_| Vec::new(), &calls));
    let calls = distinct_calls();
    let answer = fixture.run(grouped(&table, &[], &calls)).unwrap();
    assert_eq!(answer.rows, expected(&table, |_| Vec::new(), &calls));
    assert!(fixture.run(grouped(&table, &[int64(0)], &calls)).unwrap().rows.is_empty());
}

fn small(context: &str) -> Run<'_> {
    Run { parts: &[16], in_order: false, context }
}

/// Groups that merging does not make fewer are partitioned, and stay on a device that has room for them.
#[test]
fn many_groups_stay_on_a_device_that_has_room() {
    let shape = Shape { seed: 33, row_count: 20_000, key_count: 9000, repeated_percent: 0, null_percent: 3 };
    let table = Table::made(shape);
    let calls = plain_calls();
    // Every row has a number of its own, and two keys have no slots.
    let key = |row: &Row| vec![row.number.to_string(), shown(&row.text)];
    let rows = sorted(expected(&table, key, &calls));
    for parts in [96, 64] {
        let fixture = Fixture::new(table.bytes() * parts);
        let answer = fixture.run(grouped(&table, &[int64(3), text(1)], &calls)).unwrap();
        assert_eq!(counter(&answer, "rows_partitioned"), 20_000, "{:?}", answer.metrics);
        assert_eq!(answer.metrics.spilled_bytes, 0, "{:?}", answer.metrics);
        assert_eq!(sorted(answer.rows), rows);
    }
}
