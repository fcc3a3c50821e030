//! Arrays of a group's values, and what is made of them.

use super::*;
use pystachio_plan::{ErrorKind, SortKey};

fn texts_of(id: u32) -> Expression {
    Expression::column(ColumnId(id), DataType::Text)
}

fn list(item: DataType) -> DataType {
    DataType::List(Box::new(item))
}

/// Columns 0 `g`, 1 `v` and 2 `w`, in row groups of two rows.
fn table(fixture: &Fixture) -> Arc<Relation> {
    let groups = texts(&[Some("a"), Some("b"), None, Some("a"), Some("b"), Some("a"), Some("c"), Some("a")]);
    let values = int64s(&[Some(3), Some(2), Some(9), None, Some(2), Some(1), None, Some(3)]);
    let words = texts(&[Some("x"), Some("y"), None, Some("z"), None, Some("w"), None, Some("v")]);
    let path = fixture.write("t", vec![("g", groups), ("v", values), ("w", words)], 2);
    scan(&path, &[(0, "g", DataType::Text), (1, "v", DataType::Int64), (2, "w", DataType::Text)])
}

fn key(expression: Expression) -> SortKey {
    SortKey { expression, descending: false, nulls_first: false }
}

fn array(id: u32, argument: Expression, order: Vec<SortKey>) -> AggregateCall {
    let data_type = list(argument.data_type().clone());
    AggregateCall { order, ..call(id, Aggregate::Array, Some(argument), data_type) }
}

fn aggregate(input: Arc<Relation>, is_grouped: bool, aggregates: Vec<AggregateCall>) -> Arc<Relation> {
    let groups = if is_grouped { vec![named(0, texts_of(0))] } else { Vec::new() };
    Relation::new(Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole }, 3.0)
}

fn computed(input: Arc<Relation>, keep: &[u32], id: u32, expression: Expression) -> Arc<Relation> {
    let types = input.columns();
    let kept = types.into_iter().filter(|(column, _)| keep.contains(&column.0));
    let kept =
        kept.map(|(id, data_type)| NamedExpression { id, expression: Expression::column(id, data_type) });
    let expressions = kept.chain([named(id, expression)]).collect();
    Relation::new(Operator::Project { input, expressions }, 3.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_have_nulls_and_an_order() {
    let fixture = Fixture::new();
    let backwards = SortKey { descending: true, nulls_first: true, ..key(column(1)) };
    let calls = || {
        vec![
            array(3, column(1), vec![key(column(1))]),
            array(4, texts_of(2), vec![backwards.clone(), key(texts_of(2))]),
        ]
    };
    let grouped = aggregate(table(&fixture), true, calls());
    let answer = fixture.run(grouped, &[0, 3, 4]).await.unwrap();
    assert_eq!(
        answer.sorted(),
        ["NULL|[9]|[NULL]", "a|[1, 3, 3, NULL]|[z, v, x, w]", "b|[2, 2]|[y, NULL]", "c|[NULL]|[NULL]"]
    );
    let answer = fixture.run(aggregate(table(&fixture), false, calls()), &[3, 4]).await.unwrap();
    assert_eq!(answer.lines(), ["[1, 2, 2, 3, 3, 9, NULL, NULL]|[z, NULL, NULL, v, x, y, NULL, w]"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_array_of_no_row_is_null() {
    let fixture = Fixture::new();
    let none = compare(Function::Greater, column(1), int(100));
    let filtered = AggregateCall {
        filter: Some(compare(Function::Greater, column(1), int(2))),
        ..array(3, column(1), vec![key(column(1))])
    };
    let calls = vec![filtered, AggregateCall { filter: Some(none), ..array(4, column(1), Vec::new()) }];
    let answer = fixture.run(aggregate(table(&fixture), true, calls.clone()), &[0, 3, 4]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL|[9]|NULL", "a|[3, 3]|NULL", "b|NULL|NULL", "c|NULL|NULL"]);
    let answer = fixture.run(aggregate(table(&fixture), false, calls), &[3, 4]).await.unwrap();
    assert_eq!(answer.lines(), ["[3, 3, 9]|NULL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_arrays_are_made_beside_others() {
    let fixture = Fixture::new();
    let distinct =
        |id, filter| AggregateCall { distinct: true, filter, ..array(id, column(1), vec![key(column(1))]) };
    let alone = aggregate(table(&fixture), true, vec![distinct(3, None)]);
    let answer = fixture.run(alone, &[0, 3]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL|[9]", "a|[1, 3, NULL]", "b|[2]", "c|[NULL]"]);
    let few = compare(Function::Less, column(1), int(3));
    let calls = || {
        vec![
            distinct(3, None),
            distinct(4, Some(few.clone())),
            array(5, texts_of(2), vec![key(texts_of(2))]),
            AggregateCall { distinct: true, ..call(6, Aggregate::Count, Some(texts_of(2)), DataType::Int64) },
            AggregateCall { distinct: true, ..call(7, Aggregate::BitXor, Some(column(1)), DataType::Int64) },
        ]
    };
    let answer = fixture.run(aggregate(table(&fixture), true, calls()), &[0, 3, 4, 5, 6, 7]).await.unwrap();
    assert_eq!(
        answer.sorted(),
        [
            "NULL|[9]|NULL|[NULL]|0|9",
            "a|[1, 3, NULL]|[1]|[v, w, x, z]|4|2",
            "b|[2]|[2]|[y, NULL]|1|2",
            "c|[NULL]|NULL|[NULL]|0|NULL"
        ]
    );
    let answer = fixture.run(aggregate(table(&fixture), false, calls()), &[3, 4, 6, 7]).await.unwrap();
    assert_eq!(answer.lines(), ["[1, 2, 3, 9, NULL]|[1, 2]|5|9"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_are_joined_without_nulls() {
    let fixture = Fixture::new();
    let comma = Expression::literal(Value::Text(",".into()), DataType::Text);
    let order = || vec![key(column(1)), key(texts_of(2))];
    let joined = |second| {
        let first = Expression::column(ColumnId(3), list(DataType::Text));
        Expression::call(Function::JoinTexts, vec![first, second], DataType::Text)
    };
    let calls = || vec![array(3, texts_of(2), order()), array(4, texts_of(0), order())];
    let own = Expression::column(ColumnId(4), list(DataType::Text));
    let both = computed(aggregate(table(&fixture), true, calls()), &[0, 3], 5, joined(comma));
    let answer = fixture.run(both, &[0, 5]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL|NULL", "a|w,v,x,z", "b|y", "c|NULL"]);
    let own = computed(aggregate(table(&fixture), false, calls()), &[], 5, joined(own));
    assert_eq!(fixture.run(own, &[5]).await.unwrap().lines(), ["wbyavaxaz"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn percentiles_lie_between_or_on_values() {
    let fixture = Fixture::new();
    let values: Vec<Option<f64>> = vec![Some(10.0), None, Some(20.0), Some(40.0), Some(20.0), None];
    let values: ArrayRef = Arc::new(arrow::array::Float64Array::from(values));
    let path = fixture.write("t", vec![("v", values)], 2);
    let input = || scan(&path, &[(1, "v", DataType::Float64)]);
    let value = Expression::column(ColumnId(1), DataType::Float64);
    let fraction = |fraction| Expression::literal(Value::Float(fraction), DataType::Float64);
    let of = |nulls_first: bool, function: Function, fractions: &[f64]| {
        let order = vec![SortKey { nulls_first, ..key(value.clone()) }];
        let input = aggregate(input(), false, vec![array(2, value.clone(), order)]);
        let data_type = match fractions.len() {
            0 | 1 => DataType::Float64,
            _ => list(DataType::Float64),
        };
        let collected = Expression::column(ColumnId(2), list(DataType::Float64));
        let arguments = [collected].into_iter().chain(fractions.iter().map(|part| fraction(*part)));
        let expression = Expression::call(function, arguments.collect(), data_type);
        let plan = computed(input, &[], 3, expression);
        let fixture = &fixture;
        async move { fixture.run(plan, &[3]).await.unwrap().lines().remove(0) }
    };
    assert_eq!(of(false, Function::PercentileCont, &[0.5]).await, "20.0");
    assert_eq!(of(true, Function::PercentileCont, &[0.75, 0.0, 1.0]).await, "[25.0, 10.0, 40.0]");
    assert_eq!(of(true, Function::PercentileDisc, &[0.0, 0.25, 0.26, 1.0]).await, "[10.0, 10.0, 20.0, 40.0]");
    assert_eq!(of(false, Function::PercentileDisc, &[0.76]).await, "40.0");
    assert_eq!(of(false, Function::Mode, &[]).await, "20.0");
}

/// Groups are spilled; a group is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_of_groups_larger_than_memory_spill() {
    let row_count = 1_000_000;
    let keys: Vec<_> =
        (0..row_count).map(|row: i64| Some(row.wrapping_mul(2_654_435_761) % 50_021)).collect();
    let values: Vec<_> = (0..row_count).map(Some).collect();
    let fixture = Fixture::with_memory(24 << 20, 0);
    let path = fixture.write("t", vec![("g", int64s(&keys)), ("v", int64s(&values))], 50_000);
    let input = || scan(&path, &[(1, "g", DataType::Int64), (2, "v", DataType::Int64)]);
    let grouped = |groups| {
        let aggregates = vec![array(3, column(2), vec![key(column(2))])];
        let operator =
            Operator::Aggregate { input: input(), groups, aggregates, phase: AggregatePhase::Whole };
        Relation::new(operator, 1e4)
    };
    let answer = fixture.run(grouped(vec![named(1, column(1))]), &[1, 3]).await.unwrap();
    assert!(answer.metrics.spilled_bytes > 0);
    let mut seen = 0;
    for row in &answer.rows {
        let items: Vec<i64> =
            row[1].trim_matches(['[', ']']).split(", ").map(|item| item.parse().unwrap()).collect();
        assert!(items.is_sorted());
        let group: i64 = row[0].parse().unwrap();
        assert!(items.iter().all(|item| item.wrapping_mul(2_654_435_761) % 50_021 == group));
        seen += items.len();
    }
    assert_eq!(seen, row_count as usize);
    let error = fixture.run(grouped(Vec::new()), &[3]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error:?}");
    assert_eq!(fixture.engine.status().memory_used_bytes, 0);
}
