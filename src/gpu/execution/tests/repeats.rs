//! Rows once for each number from 1 to one of their own.

use pystachio_plan::{ErrorKind, Function, UnnestedArray};

use super::*;

/// The rows of a table, each for the numbers from 1 to its value as 10, and numbered as 11.
fn repeated(table: &Table, keeps_rows: bool, is_numbered: bool) -> Plan {
    let hundred = Expression::literal(pystachio_plan::Value::Int(100), DataType::Int64);
    // A few of hundred.
    let last = Expression::call(Function::Modulo, vec![int64(2), hundred], DataType::Int64);
    let operator = Operator::Unnest {
        input: table.scan(0),
        arrays: vec![UnnestedArray { array: last, columns: vec![ColumnId(10)] }],
        number: is_numbered.then_some(ColumnId(11)),
        keeps_rows,
    };
    plan(Relation::new(operator, 1.0))
}

fn expected(table: &Table, keeps_rows: bool, is_numbered: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for row in &table.rows {
        let last = row.value.map_or(0, |value| value % 100);
        let numbers = (1..=last).map(|number| number.to_string());
        let kept = (last < 1 && keeps_rows).then(|| "NULL".to_owned());
        for number in numbers.chain(kept) {
            let mut shown = shown_row(row);
            shown.extend(std::iter::repeat_n(number, 1 + usize::from(is_numbered)));
            rows.push(shown);
        }
    }
    rows
}

#[test]
fn rows_are_repeated_with_any_memory() {
    let table =
        Table::made(Shape { seed: 5, row_count: 500, key_count: 40, repeated_percent: 10, null_percent: 10 });
    for (keeps_rows, is_numbered) in [(false, false), (true, false), (false, true), (true, true)] {
        for memory_bytes in [PLENTY_BYTES, 1 << 20] {
            let answer = Fixture::new(memory_bytes).run(repeated(&table, keeps_rows, is_numbered)).unwrap();
            let context = format!("keeps {keeps_rows}, numbered {is_numbered}, memory {memory_bytes}");
            assert!(sorted(answer.rows) == sorted(expected(&table, keeps_rows, is_numbered)), "{context}");
        }
    }
}

#[test]
fn a_row_that_is_repeated_without_end_can_be_cut_off() {
    let row = Row { key: Some(1), text: Some("a".to_owned()), value: Some(1), number: i64::MAX };
    let table = Table::new(vec![row]);
    let operator = Operator::Unnest {
        input: table.scan(0),
        arrays: vec![UnnestedArray { array: int64(3), columns: vec![ColumnId(10)] }],
        number: None,
        keeps_rows: false,
    };
    let count = Expression::literal(pystachio_plan::Value::Int(3), DataType::Int64);
    let limit = Operator::Limit { input: Relation::new(operator, 1.0), offset: None, count: Some(count) };
    let answer = Fixture::new(1 << 24).run(plan(Relation::new(limit, 1.0))).unwrap();
    let numbers: Vec<&str> = answer.rows.iter().map(|row| row[4].as_str()).collect();
    assert_eq!(numbers, ["1", "2", "3"]);
}

/// The scan gives no column that only its condition reads.
#[test]
fn rows_of_a_filtered_scan_are_repeated() {
    let row = |number| Row { key: Some(number), text: None, value: Some(2), number };
    let table = Table::new((0..5).map(row).collect());
    let three = Expression::literal(pystachio_plan::Value::Int(3), DataType::Int64);
    let condition = Expression::predicate(Function::Less, vec![three, int64(0)]);
    let operator = Operator::Unnest {
        input: table.filtered(0, &[condition]),
        arrays: vec![UnnestedArray { array: int64(2), columns: vec![ColumnId(10)] }],
        number: None,
        keeps_rows: false,
    };
    let plan = Plan { root: Relation::new(operator, 1.0), outputs: vec![ColumnId(10)] };
    assert_eq!(Fixture::new(1 << 24).run(plan).unwrap().rows, [["1"], ["2"]]);
}

#[test]
fn arrays_have_no_kernel() {
    let table = Table::new(Vec::new());
    let array = Expression::literal(pystachio_plan::Value::Null, DataType::List(Box::new(DataType::Int64)));
    let number = int64(3);
    for arrays in [vec![array.clone()], vec![number.clone(), number]] {
        let arrays = arrays.into_iter().zip(10..);
        let arrays = arrays.map(|(array, id)| UnnestedArray { array, columns: vec![ColumnId(id)] }).collect();
        let operator = Operator::Unnest { input: table.scan(0), arrays, number: None, keeps_rows: false };
        let error = Fixture::new(1 << 24).run(plan(Relation::new(operator, 1.0))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotSupported);
    }
}
