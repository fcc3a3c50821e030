//! Plans on a device of another kind: what is above the operations is the same code.

use std::collections::BTreeMap;

use pystachio_plan::{
    Function, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Plan, Relation, SortKey,
};

use super::{
    wrapping::{Operations, Wrapping},
    *,
};
use crate::operation::Device;

/// A filtered table joined with another by two keys, grouped, and sorted.
fn all_operators(left: &Table, right: &Table) -> Plan {
    let is_less = Expression::predicate(Function::Less, vec![int64(2), int64(3)]);
    let join = Operator::Join {
        kind: JoinKind::Left,
        left: left.filtered(0, &[is_less]),
        right: right.scan(4),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }, JoinKey { left: int64(2), right: int64(6) }],
        residual: None,
        build: JoinSide::Right,
    };
    let count = |id, argument| aggregate_call(id, Aggregate::Count, argument, DataType::Int64);
    let aggregate = Operator::Aggregate {
        input: Relation::new(join, 1.0),
        groups: vec![NamedExpression { id: ColumnId(100), expression: text(1) }],
        aggregates: vec![count(200, None), count(201, Some(int64(7)))],
    };
    let sort = Operator::Sort {
        input: Relation::new(aggregate, 1.0),
        keys: vec![SortKey { expression: text(100), descending: true, nulls_first: false }],
    };
    plan(Relation::new(sort, 1.0))
}

/// What the plan gives, by plain loops.
fn expected(left: &[Row], right: &[Row]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<Option<&str>, [usize; 2]> = BTreeMap::new();
    for row in left.iter().filter(|row| row.value.is_some_and(|value| value < row.number)) {
        let is_match = |other: &&Row| row.key.is_some() && (other.key, other.value) == (row.key, row.value);
        let matches = right.iter().filter(is_match).count();
        let [rows, matched] = groups.entry(row.text.as_deref()).or_default();
        *rows += matches.max(1);
        *matched += matches;
    }
    let shown = |(text, counts): (Option<&str>, [usize; 2])| {
        vec![shown(&text), counts[0].to_string(), counts[1].to_string()]
    };
    let (nulls, texts): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(text, _)| text.is_none());
    texts.into_iter().rev().chain(nulls).map(shown).collect()
}

fn tables() -> [Table; 2] {
    let shape = |seed| Shape { seed, row_count: 2000, key_count: 20, repeated_percent: 5, null_percent: 5 };
    [31, 32].map(|seed| Table::made(shape(seed)))
}

/// A platform whose device is wrapped, and its counts of operations.
fn wrapped(failing: Option<&'static str>) -> (Arc<Watched>, Arc<Operations>) {
    let operations = Arc::new(Operations::default());
    let counted = operations.clone();
    let wrap = move |inner| -> Arc<dyn Device> { Arc::new(Wrapping::new(inner, counted.clone(), failing)) };
    (Watched::wrapping(wrap), operations)
}

#[test]
fn a_device_that_does_operations_without_kernels_gives_the_same_rows() {
    let [left, right] = tables();
    let plain = Watched::new(|_| Ok(()));
    let rows = Fixture::over(plain.clone(), PLENTY_BYTES).run(all_operators(&left, &right)).unwrap().rows;
    assert_eq!(rows, expected(&left.rows, &right.rows));
    let (platform, operations) = wrapped(None);
    let found = Fixture::over(platform.clone(), PLENTY_BYTES).run(all_operators(&left, &right)).unwrap();
    assert_eq!(found.rows, rows);
    // What it does itself launches nothing.
    assert!(platform.calls.launches() < plain.calls.launches());
    let operations = operations.lock().unwrap();
    for operation in
        ["load_chunks", "decode_chunks", "run", "select", "gather", "build", "probe", "group", "sort"]
    {
        assert!(operations.contains_key(operation), "{operation} was not called: {operations:?}");
    }
}

#[test]
fn operations_of_a_device_are_not_passed_by() {
    let [left, right] = tables();
    for failing in ["load_chunks", "decode_chunks", "run", "select", "build", "probe", "group", "sort"] {
        let (platform, _) = wrapped(Some(failing));
        let error = Fixture::over(platform, PLENTY_BYTES).run(all_operators(&left, &right)).unwrap_err();
        assert_eq!(error.message, format!("{failing} fails here"));
    }
}
