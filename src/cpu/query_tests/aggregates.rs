//! Groups, aggregates, DISTINCT, FILTER, and what is answered from footers.

use super::*;
use pystachio_plan::CaseBranch;

const BIG: DataType = DataType::Decimal { precision: 38, scale: 0 };

fn table(fixture: &Fixture) -> PathBuf {
    let groups = texts(&[Some("a"), Some("b"), None, Some("a"), None, Some("b"), Some("a")]);
    let values = int64s(&[Some(1), Some(2), Some(3), None, Some(5), Some(2), Some(7)]);
    fixture.write("t", vec![("g", groups), ("v", values)], 3)
}

fn input(path: &Path) -> Arc<Relation> {
    scan(path, &[(0, "g", DataType::Text), (1, "v", DataType::Int64)])
}

fn group() -> Vec<NamedExpression> {
    vec![named(0, Expression::column(ColumnId(0), DataType::Text))]
}

fn aggregate(
    input: Arc<Relation>,
    groups: Vec<NamedExpression>,
    aggregates: Vec<AggregateCall>,
) -> Arc<Relation> {
    Relation::new(Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole }, 3.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_skip_nulls_and_form_one_group_of_them() {
    let fixture = Fixture::new();
    let path = table(&fixture);
    let calls = vec![
        call(2, Aggregate::Count, None, DataType::Int64),
        call(3, Aggregate::Count, Some(column(1)), DataType::Int64),
        call(4, Aggregate::Sum, Some(column(1)), BIG),
        call(5, Aggregate::Min, Some(column(1)), DataType::Int64),
        call(6, Aggregate::Max, Some(column(1)), DataType::Int64),
    ];
    let answer = fixture.run(aggregate(input(&path), group(), calls), &[0, 2, 3, 4, 5, 6]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL|2|2|8|3|5", "a|3|2|8|1|7", "b|2|2|4|2|2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_groups_give_one_row_of_empty_input() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("v", int64s(&[]))], 3);
    let calls = vec![
        call(2, Aggregate::Count, None, DataType::Int64),
        call(3, Aggregate::Sum, Some(column(1)), BIG),
        call(4, Aggregate::Max, Some(column(1)), DataType::Int64),
    ];
    let plan = aggregate(scan(&path, &[(1, "v", DataType::Int64)]), Vec::new(), calls);
    assert_eq!(fixture.run(plan, &[2, 3, 4]).await.unwrap().lines(), ["0|NULL|NULL"]);
    let grouped = aggregate(
        scan(&path, &[(1, "v", DataType::Int64)]),
        vec![named(1, column(1))],
        vec![call(2, Aggregate::Count, None, DataType::Int64)],
    );
    assert!(fixture.run(grouped, &[1, 2]).await.unwrap().rows.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruned_aggregate_without_groups_gives_one_row() {
    let fixture = Fixture::new();
    let path = table(&fixture);
    let plan = aggregate(input(&path), Vec::new(), vec![call(2, Aggregate::Count, None, DataType::Int64)]);
    assert_eq!(fixture.run(plan, &[]).await.unwrap().rows.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_and_plain_aggregates_mix() {
    let fixture = Fixture::new();
    let path = table(&fixture);
    let distinct = |id, function, data_type| AggregateCall {
        distinct: true,
        ..call(id, function, Some(column(1)), data_type)
    };
    let alone = vec![distinct(2, Aggregate::Count, DataType::Int64), distinct(3, Aggregate::Sum, BIG)];
    let answer = fixture.run(aggregate(input(&path), group(), alone), &[0, 2, 3]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL|2|8", "a|2|8", "b|1|2"]);
    let mixed =
        vec![distinct(2, Aggregate::Count, DataType::Int64), call(3, Aggregate::Sum, Some(column(1)), BIG)];
    let answer = fixture.run(aggregate(input(&path), group(), mixed), &[0, 2, 3]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL|2|8", "a|2|8", "b|1|4"]);
    let ungrouped = vec![distinct(2, Aggregate::Count, DataType::Int64)];
    let answer = fixture.run(aggregate(input(&path), Vec::new(), ungrouped), &[2]).await.unwrap();
    assert_eq!(answer.lines(), ["5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_guards_the_argument() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("v", int64s(&[Some(0), Some(2), Some(5)]))], 3);
    let quotient = Expression::call(Function::Divide, vec![int(10), column(1)], DataType::Int64);
    let filtered = AggregateCall {
        filter: Some(compare(Function::NotEqual, column(1), int(0))),
        ..call(2, Aggregate::Max, Some(quotient), DataType::Int64)
    };
    let plan = aggregate(scan(&path, &[(1, "v", DataType::Int64)]), Vec::new(), vec![filtered]);
    assert_eq!(fixture.run(plan, &[2]).await.unwrap().lines(), ["5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_subexpressions_and_repeated_calls_keep_their_places() {
    let fixture = Fixture::new();
    let path = table(&fixture);
    let double = || Expression::call(Function::Add, vec![column(1), column(1)], DataType::Int64);
    let more = Expression::call(Function::Add, vec![double(), int(1)], DataType::Int64);
    let calls = vec![
        call(2, Aggregate::Max, Some(double()), DataType::Int64),
        call(3, Aggregate::Max, Some(more), DataType::Int64),
        call(4, Aggregate::Max, Some(double()), DataType::Int64),
        call(5, Aggregate::Min, Some(double()), DataType::Int64),
    ];
    let plan = aggregate(input(&path), group(), calls);
    let answer = fixture.run(plan, &[5, 4, 3, 2, 0]).await.unwrap();
    assert_eq!(answer.sorted(), ["2|14|15|14|a", "4|4|5|4|b", "6|10|11|10|NULL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_is_a_group_without_aggregates() {
    let fixture = Fixture::new();
    let path = table(&fixture);
    let answer = fixture.run(aggregate(input(&path), group(), Vec::new()), &[0]).await.unwrap();
    assert_eq!(answer.sorted(), ["NULL", "a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn float_groups_join_zeros_and_nans() {
    let fixture = Fixture::new();
    let floats = arrow::array::Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, -0.0]);
    let path = fixture.write("t", vec![("v", Arc::new(floats))], 3);
    let value = Expression::column(ColumnId(1), DataType::Float64);
    let plan = aggregate(
        scan(&path, &[(1, "v", DataType::Float64)]),
        vec![named(1, value)],
        vec![call(2, Aggregate::Count, None, DataType::Int64)],
    );
    let answer = fixture.run(plan, &[2]).await.unwrap();
    assert_eq!(answer.sorted(), ["2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_of_negative_zeros_are_negative() {
    let fixture = Fixture::new();
    let floats = arrow::array::Float64Array::from(vec![-0.0, -0.0]);
    let path = fixture.write("t", vec![("v", Arc::new(floats))], 3);
    let value = || Some(Expression::column(ColumnId(1), DataType::Float64));
    let calls = vec![
        call(2, Aggregate::Min, value(), DataType::Float64),
        call(3, Aggregate::Max, value(), DataType::Float64),
    ];
    let plan = aggregate(scan(&path, &[(1, "v", DataType::Float64)]), Vec::new(), calls);
    assert_eq!(fixture.run(plan, &[2, 3]).await.unwrap().lines(), ["-0.0|-0.0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_and_bounds_come_from_footers() {
    let fixture = Fixture::new();
    let path = table(&fixture);
    let calls = vec![
        call(2, Aggregate::Count, None, DataType::Int64),
        call(3, Aggregate::Count, Some(column(1)), DataType::Int64),
        call(4, Aggregate::Min, Some(column(1)), DataType::Int64),
        call(5, Aggregate::Max, Some(column(1)), DataType::Int64),
    ];
    let answer = fixture.run(aggregate(input(&path), Vec::new(), calls), &[2, 3, 4, 5]).await.unwrap();
    assert_eq!(answer.lines(), ["7|6|1|7"]);
    assert_eq!(answer.metrics.bytes_read, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_survive_both_phases() {
    let fixture = Fixture::new();
    let values: Vec<_> = (0..200_000).map(|index| Some(index % 70_000)).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 30_000);
    for estimate in [10.0, 1e6] {
        let grouped = Relation::new(
            Operator::Aggregate {
                input: scan(&path, &[(1, "v", DataType::Int64)]),
                groups: vec![named(1, column(1))],
                aggregates: vec![call(2, Aggregate::Count, None, DataType::Int64)],
                phase: AggregatePhase::Whole,
            },
            estimate,
        );
        let total = aggregate(
            grouped,
            Vec::new(),
            vec![
                call(3, Aggregate::Count, None, DataType::Int64),
                call(4, Aggregate::Sum, Some(column(2)), BIG),
                call(5, Aggregate::Max, Some(column(2)), DataType::Int64),
            ],
        );
        let answer = fixture.run(total, &[3, 4, 5]).await.unwrap();
        assert_eq!(answer.lines(), ["70000|200000|3"]);
    }
}

/// Conditions and results that are NULL, and branches that earlier ones decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_takes_the_first_branch_that_is_true() {
    let fixture = Fixture::new();
    let value = |row: i64, of: i64| (row % of != 2).then_some(row * 7 % of);
    let rows: Vec<_> = (0..20_000).map(|row| [value(row, 11), value(row, 13), value(row, 7)]).collect();
    let values = |index: usize| int64s(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
    let path = fixture.write("t", vec![("a", values(0)), ("b", values(1)), ("c", values(2))], 7000);
    let input =
        || scan(&path, &[(1, "a", DataType::Int64), (2, "b", DataType::Int64), (3, "c", DataType::Int64)]);
    let branch = |condition, result| CaseBranch { condition, result };
    let null = || Expression::literal(Value::Null, DataType::Int64);
    let below = |id, value| compare(Function::Less, column(id), int(value));
    let case = |otherwise: Option<Expression>| Expression::Case {
        branches: vec![
            branch(below(1, 3), column(2)),
            branch(below(2, 5), int(-1)),
            branch(below(1, 6), null()),
            branch(compare(Function::Equal, column(1), column(2)), column(3)),
        ],
        otherwise: otherwise.map(Box::new),
        data_type: DataType::Int64,
    };
    let expected = |row: &[Option<i64>; 3], otherwise: Option<i64>| match *row {
        [Some(a), b, _] if a < 3 => b,
        [_, Some(b), _] if b < 5 => Some(-1),
        [Some(a), ..] if a < 6 => None,
        [Some(a), Some(b), c] if a == b => c,
        _ => otherwise,
    };
    for (otherwise, of_row) in [(None, None), (Some(int(9)), Some(None)), (Some(column(3)), Some(Some(2)))] {
        let expressions = [(1, column(1)), (2, column(2)), (3, column(3)), (4, case(otherwise))];
        let expressions = expressions.into_iter().map(|(id, expression)| named(id, expression)).collect();
        let plan = Relation::new(Operator::Project { input: input(), expressions }, 10.0);
        let answer = fixture.run(plan, &[1, 2, 3, 4]).await.unwrap();
        let text = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
        let mut lines: Vec<String> = rows
            .iter()
            .map(|row| {
                let otherwise = match of_row {
                    None => None,
                    Some(None) => Some(9),
                    Some(Some(column)) => row[column],
                };
                let cells = [row[0], row[1], row[2], expected(row, otherwise)];
                cells.map(text).join("|")
            })
            .collect();
        lines.sort();
        assert_eq!(answer.sorted(), lines);
    }
    // A CASE that two aggregates read is computed once.
    let pivot = case(Some(int(0)));
    let is_counted = Expression::predicate(Function::IsNotNull, vec![pivot.clone()]);
    let digits = Expression::Case {
        branches: vec![branch(is_counted, case(None))],
        otherwise: None,
        data_type: DataType::Int64,
    };
    let calls = vec![
        call(2, Aggregate::Sum, Some(pivot), BIG),
        call(3, Aggregate::Max, Some(digits), DataType::Int64),
    ];
    let answer = fixture.run(aggregate(input(), Vec::new(), calls), &[2, 3]).await.unwrap();
    let sum: i64 = rows.iter().filter_map(|row| expected(row, Some(0))).sum();
    let max = rows.iter().filter_map(|row| expected(row, None)).max().unwrap();
    assert_eq!(answer.lines(), [format!("{sum}|{max}")]);
}
