//! Sort, limit, union, parameters, filters.

use super::*;
use pystachio_plan::SortKey;

fn key(id: u32, data_type: DataType, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { expression: Expression::column(ColumnId(id), data_type), descending, nulls_first }
}

fn sort(input: Arc<Relation>, keys: Vec<SortKey>) -> Arc<Relation> {
    Relation::new(Operator::Sort { input, keys }, 10.0)
}

fn limit(input: Arc<Relation>, offset: Option<Expression>, count: Option<Expression>) -> Arc<Relation> {
    Relation::new(Operator::Limit { input, offset, count }, 10.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nulls_go_where_they_are_told() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("v", int64s(&[Some(2), None, Some(3), Some(1)]))], 2);
    for (descending, nulls_first, expected) in [
        (false, false, ["1", "2", "3", "NULL"]),
        (false, true, ["NULL", "1", "2", "3"]),
        (true, false, ["3", "2", "1", "NULL"]),
        (true, true, ["NULL", "3", "2", "1"]),
    ] {
        let plan = sort(
            scan(&path, &[(1, "v", DataType::Int64)]),
            vec![key(1, DataType::Int64, descending, nulls_first)],
        );
        assert_eq!(fixture.run(plan, &[1]).await.unwrap().lines(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_survives_a_key_that_is_not_returned() {
    let fixture = Fixture::new();
    let values: Vec<_> = (0..50_000).map(|index| Some((index * 7919) % 50_021)).collect();
    let negated: Vec<_> = values.iter().map(|value| value.map(|value| -value)).collect();
    let path = fixture.write("t", vec![("v", int64s(&values)), ("w", int64s(&negated))], 9000);
    let input = scan(&path, &[(1, "v", DataType::Int64), (2, "w", DataType::Int64)]);
    let plan = sort(input, vec![key(1, DataType::Int64, false, false)]);
    let answer = fixture.run(plan, &[2]).await.unwrap();
    let mut expected = values.clone();
    expected.sort();
    let expected: Vec<String> = expected.iter().flatten().map(|value| (-value).to_string()).collect();
    assert_eq!(answer.lines(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_sorts_by_bytes() {
    let fixture = Fixture::new();
    let path =
        fixture.write("t", vec![("v", texts(&[Some("b"), Some("é"), Some("B"), Some("a "), Some("a")]))], 2);
    let plan = sort(scan(&path, &[(1, "v", DataType::Text)]), vec![key(1, DataType::Text, false, false)]);
    assert_eq!(fixture.run(plan, &[1]).await.unwrap().lines(), ["B", "a", "a ", "b", "é"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floats_sort_nan_last_and_zeros_alike() {
    let fixture = Fixture::new();
    let floats = arrow::array::Float64Array::from(vec![-f64::NAN, 1.0, 0.0, f64::INFINITY, -0.0, -1.0]);
    let rank = int64s(&[Some(1), Some(2), Some(4), Some(5), Some(3), Some(6)]);
    let path = fixture.write("t", vec![("v", Arc::new(floats)), ("r", rank)], 10);
    let input = scan(&path, &[(1, "v", DataType::Float64), (2, "r", DataType::Int64)]);
    let plan =
        sort(input, vec![key(1, DataType::Float64, false, false), key(2, DataType::Int64, false, false)]);
    assert_eq!(fixture.run(plan, &[2]).await.unwrap().lines(), ["6", "3", "4", "2", "5", "1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_offsets_cut_the_order() {
    let fixture = Fixture::new();
    let values: Vec<_> = (0..40_000).rev().map(Some).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 5000);
    let sorted =
        || sort(scan(&path, &[(1, "v", DataType::Int64)]), vec![key(1, DataType::Int64, false, false)]);
    let parameter = |index| Expression::Parameter { index, data_type: DataType::Int64 };
    let parameters =
        || vec![Literal::new(Value::Int(10), DataType::Int64), Literal::new(Value::Null, DataType::Int64)];
    for (offset, count, expected) in [
        (None, Some(int(2)), vec!["0", "1"]),
        (Some(int(39_999)), None, vec!["39999"]),
        (Some(parameter(0)), Some(int(1)), vec!["10"]),
        (Some(int(39_998)), Some(parameter(1)), vec!["39998", "39999"]),
        (Some(int(50_000)), Some(int(5)), vec![]),
        (None, Some(int(0)), vec![]),
    ] {
        let plan = limit(sorted(), offset, count);
        assert_eq!(fixture.run_with(plan, &[1], parameters()).await.unwrap().lines(), expected);
    }
}

/// Which rows they leave without an order is open, so that the two forms of a plan need not agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_offsets_without_an_order_keep_their_count() {
    let fixture = Fixture { in_both_forms: false, ..Fixture::new() };
    let values: Vec<_> = (0..40_000).map(Some).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 5000);
    let input = || scan(&path, &[(1, "v", DataType::Int64)]);
    let few = limit(input(), None, Some(int(12_345)));
    assert_eq!(fixture.run(few, &[1]).await.unwrap().rows.len(), 12_345);
    let last = limit(input(), Some(int(39_000)), None);
    assert_eq!(fixture.run(last, &[]).await.unwrap().rows.len(), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negative_limits_are_errors() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("v", int64s(&[Some(1)]))], 10);
    let input = || scan(&path, &[(1, "v", DataType::Int64)]);
    let error = fixture.run(limit(input(), None, Some(int(-1))), &[1]).await.err().unwrap();
    assert_eq!(error.message, "LIMIT must not be negative");
    let error = fixture.run(limit(input(), Some(int(-1)), None), &[1]).await.err().unwrap();
    assert_eq!(error.message, "OFFSET must not be negative");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_below_joins_and_filters_keep_their_count() {
    let fixture = Fixture { in_both_forms: false, ..Fixture::new() };
    let values: Vec<_> = (0..30_000).map(Some).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 4000);
    let filter = |input| {
        let predicate = compare(Function::GreaterEqual, column(1), int(20_000));
        Relation::new(Operator::Filter { input, predicate }, 10.0)
    };
    let input = || scan(&path, &[(1, "v", DataType::Int64)]);
    let below = limit(filter(input()), None, Some(int(5000)));
    assert_eq!(fixture.run(below, &[1]).await.unwrap().rows.len(), 5000);
    let above = filter(limit(input(), None, Some(int(30_000))));
    assert_eq!(fixture.run(above, &[1]).await.unwrap().rows.len(), 10_000);
    let twice = limit(limit(input(), Some(int(10)), Some(int(100))), Some(int(50)), Some(int(80)));
    assert_eq!(fixture.run(twice, &[1]).await.unwrap().rows.len(), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unions_align_columns_by_place() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("a", int64s(&[Some(1)])), ("b", int64s(&[None]))], 10);
    let input = |first: u32| scan(&path, &[(first, "a", DataType::Int64), (first + 1, "b", DataType::Int64)]);
    let other =
        fixture.write("u", vec![("a", int64s(&[Some(5), None])), ("b", int64s(&[Some(6), Some(9)]))], 10);
    let other = scan(&other, &[(7, "a", DataType::Int64), (8, "b", DataType::Int64)]);
    let union = Operator::UnionAll {
        inputs: vec![
            (input(1), vec![ColumnId(1), ColumnId(2)]),
            (input(3), vec![ColumnId(4), ColumnId(3)]),
            (other, vec![ColumnId(7), ColumnId(8)]),
        ],
        columns: vec![(ColumnId(20), DataType::Int64), (ColumnId(21), DataType::Int64)],
    };
    let plan = Relation::new(union, 4.0);
    let answer = fixture.run(plan.clone(), &[21, 20]).await.unwrap();
    assert_eq!(answer.sorted(), ["1|NULL", "6|5", "9|NULL", "NULL|1"]);
    assert_eq!(fixture.run(plan, &[]).await.unwrap().rows.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_may_be_returned_twice() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("v", int64s(&[Some(4)]))], 10);
    let plan = scan(&path, &[(1, "v", DataType::Int64)]);
    assert_eq!(fixture.run(plan, &[1, 1]).await.unwrap().lines(), ["4|4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_prune_row_groups_and_are_exact() {
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(1 << 30, cache_bytes);
        let values: Vec<_> =
            (0..20_000).map(|value| if value % 100 == 3 { None } else { Some(value) }).collect();
        let path = fixture.write("t", vec![("v", int64s(&values))], 1000);
        let filters = vec![
            compare(Function::GreaterEqual, column(1), int(5500)),
            compare(Function::Less, column(1), int(7500)),
        ];
        let plan = scan_declared(&path, vec![scan_column(1, "v", DataType::Int64)], filters);
        let answer = fixture.run(plan, &[1]).await.unwrap();
        assert_eq!(answer.rows.len(), 1980);
        assert_eq!((answer.metrics.row_groups_total, answer.metrics.row_groups_pruned), (20, 17));
    }
}

/// Rows of a table with NULLs, each key many times, and texts as long as `words` makes them.
fn repeated(fixture: &Fixture, words: impl Fn(i64) -> String) -> (PathBuf, Vec<(Option<i64>, String, i64)>) {
    let key = |row: i64| (row % 9 != 4).then_some(row * 31 % 11);
    let rows: Vec<_> = (0..30_000).map(|row| (key(row), words(row * 7919 % 513), row)).collect();
    let keys: Vec<_> = rows.iter().map(|row| row.0).collect();
    let texts_of: Vec<_> = rows.iter().map(|row| Some(row.1.as_str())).collect();
    let numbers: Vec<_> = rows.iter().map(|row| Some(row.2)).collect();
    let columns = vec![("k", int64s(&keys)), ("w", texts(&texts_of)), ("n", int64s(&numbers))];
    (fixture.write("t", columns, 4000), rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_far_behind_are_those_of_the_whole_order() {
    let fixture = Fixture::new();
    let words: [fn(i64) -> String; 2] =
        [|word| word.to_string(), |word| format!("{word:0>5}{}", "x".repeat(2000))];
    for words in words {
        let (path, mut rows) = repeated(&fixture, words);
        let input =
            || scan(&path, &[(1, "k", DataType::Int64), (2, "w", DataType::Text), (3, "n", DataType::Int64)]);
        for (k_descending, nulls_first) in [(false, false), (false, true), (true, true), (true, false)] {
            let keys = |with_words: bool| {
                let mut keys = vec![key(1, DataType::Int64, k_descending, nulls_first)];
                keys.extend(with_words.then(|| key(2, DataType::Text, true, true)));
                keys.push(key(3, DataType::Int64, false, false));
                keys
            };
            for with_words in [false, true] {
                rows.sort_by(|one, other| {
                    let k = match (one.0, other.0) {
                        (Some(one), Some(other)) if k_descending => other.cmp(&one),
                        (Some(one), Some(other)) => one.cmp(&other),
                        (one, other) if nulls_first => one.is_some().cmp(&other.is_some()),
                        (one, other) => other.is_some().cmp(&one.is_some()),
                    };
                    let words = if with_words { other.1.cmp(&one.1) } else { std::cmp::Ordering::Equal };
                    k.then(words).then(one.2.cmp(&other.2))
                });
                for (offset, count) in [(0, 3), (2000, 5), (9_000, 2500), (29_998, 10), (30_000, 1)] {
                    let plan = limit(sort(input(), keys(with_words)), Some(int(offset)), Some(int(count)));
                    let answer = fixture.run(plan, &[3]).await.unwrap();
                    let end = rows.len().min((offset + count) as usize);
                    let expected: Vec<String> =
                        rows[offset as usize..end].iter().map(|row| row.2.to_string()).collect();
                    assert_eq!(answer.lines(), expected, "{offset}, {count}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_rows_of_ascending_row_groups_prune_the_others() {
    let fixture = Fixture::with_one_thread();
    let values: Vec<_> = (0..200_000).map(Some).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 10_000);
    for (descending, first) in [(true, "199999"), (false, "0")] {
        let sorted = sort(
            scan(&path, &[(1, "v", DataType::Int64)]),
            vec![key(1, DataType::Int64, descending, descending)],
        );
        // By the heap, and selected.
        for (offset, count) in [(0, 10), (3000, 10)] {
            let plan = limit(sorted.clone(), Some(int(offset)), Some(int(count)));
            let answer = fixture.run(plan, &[1]).await.unwrap();
            assert_eq!(answer.rows.len(), 10);
            assert!(offset > 0 || answer.lines()[0] == first);
            // The rows of the row group that is read first prune the others.
            assert_eq!(answer.metrics.row_groups_pruned, 19, "of 20 row groups, offset {offset}");
        }
    }
}

/// A scan collects the rows that a condition leaves until they are a batch, but not beyond a row group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_rows_of_a_row_group_prune_the_others() {
    let fixture = Fixture::with_one_thread();
    let values: Vec<_> = (0..200_000).map(Some).collect();
    let others: Vec<_> = (0..200_000).map(|value| Some(value * 7919 % 1000)).collect();
    let path = fixture.write("t", vec![("v", int64s(&values)), ("w", int64s(&others))], 10_000);
    let columns = vec![scan_column(1, "v", DataType::Int64), scan_column(2, "w", DataType::Int64)];
    // The bounds of no row group refute this.
    let filter = compare(Function::Equal, column(2), int(919));
    for (descending, first) in [(false, "1"), (true, "199001")] {
        let keys = vec![key(1, DataType::Int64, descending, descending)];
        let plan = sort(scan_declared(&path, columns.clone(), vec![filter.clone()]), keys);
        let answer = fixture.run(limit(plan, None, Some(int(5))), &[1]).await.unwrap();
        assert_eq!((answer.rows.len(), answer.lines()[0].as_str()), (5, first));
        assert_eq!(answer.metrics.row_groups_pruned, 19, "of 20 row groups, descending: {descending}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_groups_with_nulls_are_read_first_where_nulls_are() {
    let fixture = Fixture { in_both_forms: false, ..Fixture::new() };
    let values: Vec<_> = (0..100_000).map(|row| (row != 15_000).then_some(row)).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 10_000);
    for (nulls_first, expected) in [(true, ["NULL", "99999"]), (false, ["99999", "99998"])] {
        let input = scan(&path, &[(1, "v", DataType::Int64)]);
        let plan = limit(sort(input, vec![key(1, DataType::Int64, true, nulls_first)]), None, Some(int(2)));
        assert_eq!(fixture.run(plan, &[1]).await.unwrap().lines(), expected);
    }
}
