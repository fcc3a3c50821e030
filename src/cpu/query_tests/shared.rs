//! Parts that are computed once for several readers.

use super::*;
use pystachio_plan::{ErrorKind, JoinKey, JoinKind, JoinSide};

/// `SELECT k, function(v), count(*) … GROUP BY k` over `path`; its columns are `id + 2`, `id + 3` and `id + 4`.
fn groups(path: &Path, id: u32, value: Expression, rows: f64) -> Arc<Relation> {
    let input = scan(path, &[(id, "k", DataType::Int64), (id + 1, "v", DataType::Int64)]);
    let operator = Operator::Aggregate {
        input,
        groups: vec![named(id + 2, column(id))],
        aggregates: vec![
            call(id + 3, Aggregate::Max, Some(value), DataType::Int64),
            call(id + 4, Aggregate::Count, None, DataType::Int64),
        ],
        phase: AggregatePhase::Whole,
    };
    Relation::new(operator, rows)
}

fn max(path: &Path, id: u32) -> Arc<Relation> {
    groups(path, id, column(id + 1), 100.0)
}

fn join(left: Arc<Relation>, right: Arc<Relation>, keys: [u32; 2]) -> Arc<Relation> {
    let keys = vec![JoinKey { left: column(keys[0]), right: column(keys[1]) }];
    let kind = JoinKind::Inner;
    Relation::new(Operator::Join { kind, left, right, keys, residual: None, build: JoinSide::Right }, 100.0)
}

fn union(inputs: Vec<(Arc<Relation>, u32)>) -> Arc<Relation> {
    let inputs = inputs.into_iter().map(|(input, id)| (input, vec![ColumnId(id)])).collect();
    Relation::new(Operator::UnionAll { inputs, columns: vec![(ColumnId(90), DataType::Int64)] }, 200.0)
}

fn table(fixture: &Fixture, row_count: i64, group_count: i64) -> PathBuf {
    let keys: Vec<_> = (0..row_count).map(|row| (row % 13 != 5).then_some(row % group_count)).collect();
    let values: Vec<_> = (0..row_count).map(Some).collect();
    fixture.write("t", vec![("k", int64s(&keys)), ("v", int64s(&values))], 500)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_readers_read_files_once() {
    let fixture = Fixture::with_memory(1 << 30, 0);
    let path = table(&fixture, 2000, 10);
    let alone = fixture.run(max(&path, 0), &[2, 3, 4]).await.unwrap();
    let root = join(max(&path, 0), max(&path, 10), [2, 12]);
    let answer = fixture.run(root.clone(), &[2, 3, 4, 13, 14]).await.unwrap();
    let twice = alone.rows.iter().filter(|row| row[0] != "NULL");
    let mut twice: Vec<_> = twice
        .map(|row| [&row[0], &row[1], &row[2], &row[1], &row[2]].map(String::as_str).join("|"))
        .collect();
    twice.sort();
    assert_eq!(answer.sorted(), twice);
    assert_eq!(answer.metrics.row_groups_total, 4);
    assert_eq!(answer.metrics.bytes_read, alone.metrics.bytes_read);
    let shared = answer.metrics.operators.iter().filter(|operator| operator.description == "SharedExec");
    assert_eq!(shared.map(|operator| operator.row_count).collect::<Vec<_>>(), [Some(11), Some(11)]);
    // The join, the part with its scan, and the part again.
    let rows: Vec<_> =
        answer.metrics.actual_rows.iter().map(|rows| rows.map(|rows| rows.row_count)).collect();
    assert_eq!(rows, [Some(10), Some(11), Some(2000), Some(11), None]);
    // Operators that spill compute each of them.
    let request = fixture.request(root, &[2, 3, 4, 13, 14]);
    let spilling = fixture.run_in_form(request, PlanForm::Spilling).await.unwrap();
    assert_eq!(spilling.sorted(), twice);
    assert_eq!(spilling.metrics.row_groups_total, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_may_end_early() {
    let fixture = Fixture::with_memory(1 << 30, 0);
    let path = table(&fixture, 200_000, 100_000);
    let alone = fixture.run(max(&path, 0), &[3]).await.unwrap();
    for count in [1_i64, 50_000, 100_000] {
        let limit = Operator::Limit { input: max(&path, 0), offset: None, count: Some(int(count)) };
        let inputs = vec![(Relation::new(limit, 1.0), 3), (max(&path, 10), 13), (max(&path, 20), 23)];
        let answer = fixture.run(union(inputs), &[90]).await.unwrap();
        assert_eq!(answer.rows.len(), count as usize + 2 * alone.rows.len());
        assert_eq!(answer.metrics.row_groups_total, 400);
    }
    let limited = Operator::Limit {
        input: union(vec![(max(&path, 0), 3), (max(&path, 10), 13)]),
        offset: None,
        count: Some(int(7)),
    };
    assert_eq!(fixture.run(Relation::new(limited, 7.0), &[90]).await.unwrap().rows.len(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_part_fails_each_reader() {
    let fixture = Fixture::with_memory(1 << 30, 0);
    let path = table(&fixture, 2000, 10);
    let failing = |id: u32| {
        let value = Expression::call(Function::Divide, vec![int(1), column(id + 1)], DataType::Int64);
        groups(&path, id, value, 100.0)
    };
    let root = union(vec![(failing(0), 3), (failing(10), 13)]);
    let Err(error) = fixture.run(root, &[90]).await else { panic!("one row divides by zero") };
    assert_eq!(error.kind, ErrorKind::DivisionByZero);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_without_memory_are_computed_for_each_reader() {
    let fixture = Fixture::with_memory(24 << 20, 0);
    let path = table(&fixture, 1_000_000, 1_000_000);
    // Expected to be few, so that only the attempt shows that they are many.
    let root = union(vec![(max(&path, 0), 3), (max(&path, 10), 13)]);
    let answer = fixture.run(root, &[90]).await.unwrap();
    let alone = fixture.run(max(&path, 0), &[3]).await.unwrap();
    assert_eq!(answer.rows.len(), 2 * alone.rows.len());
    assert_eq!(answer.metrics.row_groups_total, 4000);
    assert_eq!(fixture.engine.status().memory_used_bytes, 0);
}
