//! Kernels that fail: the query reports it, whichever it is.

use std::collections::BTreeMap;

use pystachio_plan::{
    AggregatePhase, Error, ErrorKind, Function, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Plan,
    Relation, SortKey,
};

use super::*;

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
        phase: AggregatePhase::Whole,
    };
    let sort = Operator::Sort {
        input: Relation::new(aggregate, 1.0),
        keys: vec![SortKey { expression: text(100), descending: true, nulls_first: false }],
    };
    plan(Relation::new(sort, 1.0))
}

/// The plan's result, by plain loops.
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

#[test]
fn a_query_fails_by_the_message_of_any_kernel_that_fails() {
    let [left, right] = tables();
    let plain = Watched::new(|_| Ok(()));
    let rows = Fixture::over(plain.clone(), PLENTY_BYTES).run(all_operators(&left, &right)).unwrap().rows;
    assert_eq!(rows, expected(&left.rows, &right.rows));
    let kernels = plain.calls.kernels();
    for of_each in ["convert_values", "test_ranges", "select_rows", "gather_cells", "insert_build_rows"] {
        assert!(kernels.contains(&of_each), "{of_each} was not launched: {kernels:?}");
    }
    for kernel in kernels {
        let platform = Watched::new(move |calls| match calls.count(kernel) {
            0 => Ok(()),
            _ => Err(Error::new(ErrorKind::Device, format!("{kernel} fails here"))),
        });
        let error = Fixture::over(platform, PLENTY_BYTES).run(all_operators(&left, &right)).unwrap_err();
        assert_eq!(error.message, format!("{kernel} fails here"));
    }
}
