//! Parts that are computed once for several readers.

use std::collections::BTreeMap;

use pystachio_plan::{AggregatePhase, ErrorKind, Function, JoinKey, JoinSide, NamedExpression};

use super::*;

/// `SELECT key, text, max(value), count(*) … GROUP BY key, text`; its columns are the four ids from `first + 4` on.
fn grouped(table: &Table, first: u32, value: Expression) -> Arc<Relation> {
    let group = |place: u32, expression| NamedExpression { id: ColumnId(first + 4 + place), expression };
    let operator = Operator::Aggregate {
        input: table.scan(first),
        groups: vec![group(0, int64(first)), group(1, text(first + 1))],
        aggregates: vec![
            aggregate_call(first + 6, Aggregate::Max, Some(value), DataType::Int64),
            aggregate_call(first + 7, Aggregate::Count, None, DataType::Int64),
        ],
        phase: AggregatePhase::Whole,
    };
    Relation::new(operator, table.rows.len() as f64)
}

fn greatest(table: &Table, first: u32) -> Arc<Relation> {
    grouped(table, first, int64(first + 2))
}

fn joined(table: &Table, build: JoinSide) -> Plan {
    let (left, right) = (greatest(table, 0), greatest(table, 20));
    let keys = vec![JoinKey { left: int64(4), right: int64(24) }, JoinKey { left: text(5), right: text(25) }];
    plan(Relation::new(
        Operator::Join { kind: JoinKind::Inner, left, right, keys, residual: None, build },
        table.rows.len() as f64,
    ))
}

/// Of each copy its greatest values.
fn united(table: &Table, copies: u32) -> Arc<Relation> {
    let inputs = (0..copies).map(|copy| (greatest(table, 20 * copy), vec![ColumnId(20 * copy + 6)]));
    let columns = vec![(ColumnId(900), DataType::Int64)];
    Relation::new(Operator::UnionAll { inputs: inputs.collect(), columns }, 1000.0)
}

/// Every group with its greatest value and its rows.
fn groups(table: &Table) -> Vec<Vec<String>> {
    type Group = (Option<i64>, Option<String>);
    let mut groups: BTreeMap<Group, (Option<i64>, u64)> = BTreeMap::new();
    for row in &table.rows {
        let (value, count) = groups.entry((row.key, row.text.clone())).or_default();
        *value = row.value.max(*value);
        *count += 1;
    }
    let shown_group = |((key, text), (value, count)): (&(_, _), &(_, u64))| {
        vec![shown(key), shown(text), shown(value), count.to_string()]
    };
    groups.iter().map(shown_group).collect()
}

fn table(key_count: u64) -> Table {
    Table::made(Shape { seed: 17, row_count: 20_000, key_count, repeated_percent: 10, null_percent: 5 })
}

#[test]
fn a_join_of_a_part_with_itself_reads_it_once() {
    for (key_count, build) in [(50, JoinSide::Left), (15_000, JoinSide::Right), (15_000, JoinSide::Left)] {
        let table = table(key_count);
        let groups = groups(&table).into_iter().filter(|row| row[0] != "NULL" && row[1] != "NULL");
        let expected: Vec<_> = groups.map(|row| [row.clone(), row].concat()).collect();
        let answer = Fixture::new(PLENTY_BYTES).run(joined(&table, build)).unwrap();
        assert_eq!(sorted(answer.rows), sorted(expected.clone()));
        let metrics = &answer.metrics;
        let scans = metrics.operators.iter().filter(|operator| operator.description == "Scan t");
        assert_eq!(scans.map(|scan| scan.row_count).collect::<Vec<_>>(), [Some(20_000)]);
        // The join, the part with its scan, and the part again.
        let rows: Vec<_> = metrics.actual_rows.iter().map(|rows| rows.map(|rows| rows.row_count)).collect();
        let group_count = Some(self::groups(&table).len() as u64);
        assert_eq!(rows, [Some(expected.len() as u64), group_count, Some(20_000), group_count, None]);
        if key_count > 50 {
            let parts = Run { parts: &[4, 16], in_order: false, context: "a part joined with itself" };
            check(|| joined(&table, build), table.bytes(), expected, parts);
        }
    }
}

#[test]
fn readers_may_end_early() {
    let table = table(15_000);
    let all: Vec<_> = groups(&table).into_iter().map(|row| vec![row[2].clone()]).collect();
    let thrice = all.iter().chain(&all).chain(&all).cloned().collect();
    let parts = Run { parts: &[16], in_order: false, context: "three readers" };
    check(|| plan(united(&table, 3)), table.bytes(), thrice, parts);
    let count = Some(Expression::literal(pystachio_plan::Value::Int(9), DataType::Int64));
    let limit = Operator::Limit { input: united(&table, 2), offset: None, count };
    let answer = Fixture::new(PLENTY_BYTES).run(plan(Relation::new(limit, 9.0))).unwrap();
    assert_eq!(answer.rows.len(), 9);
}

#[test]
fn a_failing_part_fails_the_query() {
    let table = table(50);
    let failing = |first: u32| {
        let zero =
            Expression::call(Function::Subtract, vec![int64(first + 3), int64(first + 3)], DataType::Int64);
        let value = Expression::call(Function::Divide, vec![int64(first + 3), zero], DataType::Int64);
        grouped(&table, first, value)
    };
    let inputs = vec![(failing(0), vec![ColumnId(6)]), (failing(20), vec![ColumnId(26)])];
    let columns = vec![(ColumnId(900), DataType::Int64)];
    let union = Relation::new(Operator::UnionAll { inputs, columns }, 10.0);
    let error = Fixture::new(PLENTY_BYTES).run(plan(union)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DivisionByZero);
}
