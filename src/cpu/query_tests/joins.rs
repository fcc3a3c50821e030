//! Joins of every kind against an oracle that tries every pair.

use super::*;
use pystachio_plan::{JoinKey, JoinKind, JoinSide};

type Row = (Option<i64>, i64);

const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
    JoinKind::NullAwareAnti,
];

/// What a join must give: keys equal, and the left value below the right if `residual`.
fn oracle(kind: JoinKind, left: &[Row], right: &[Row], with_key: bool, residual: bool) -> Vec<String> {
    let text = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
    let line = |left: Option<&Row>, right: Option<&Row>| {
        let side =
            |row: Option<&Row>| format!("{}|{}", text(row.and_then(|row| row.0)), text(row.map(|row| row.1)));
        format!("{}|{}", side(left), side(right))
    };
    let in_order = |left: &Row, right: &Row| !residual || left.1 < right.1;
    let equal = |left: &Row, right: &Row| !with_key || (left.0.is_some() && left.0 == right.0);
    let unknown = |left: &Row, right: &Row| equal(left, right) || left.0.is_none() || right.0.is_none();
    let mut lines = Vec::new();
    for row in left {
        let matches: Vec<&Row> =
            right.iter().filter(|other| equal(row, other) && in_order(row, other)).collect();
        let alone = format!("{}|{}", text(row.0), row.1);
        match kind {
            JoinKind::Inner => lines.extend(matches.iter().map(|other| line(Some(row), Some(other)))),
            JoinKind::Left | JoinKind::Full if matches.is_empty() => lines.push(line(Some(row), None)),
            JoinKind::Left | JoinKind::Full => {
                lines.extend(matches.iter().map(|other| line(Some(row), Some(other))));
            }
            JoinKind::Semi if !matches.is_empty() => lines.push(alone),
            JoinKind::Anti if matches.is_empty() => lines.push(alone),
            JoinKind::NullAwareAnti
                if !right.iter().any(|other| unknown(row, other) && in_order(row, other)) =>
            {
                lines.push(alone);
            }
            _ => {}
        }
    }
    if kind == JoinKind::Full {
        let lonely =
            right.iter().filter(|other| !left.iter().any(|row| equal(row, other) && in_order(row, other)));
        lines.extend(lonely.map(|other| line(None, Some(other))));
    }
    lines.sort();
    lines
}

fn tables() -> Vec<Vec<Row>> {
    let many = (0..3000).map(|index| (if index % 7 == 0 { None } else { Some(index % 50) }, index)).collect();
    vec![
        Vec::new(),
        vec![(None, 1)],
        vec![(Some(1), 10), (Some(2), 20), (None, 30), (Some(2), 21)],
        vec![(Some(2), 5), (Some(2), 22), (Some(3), 33)],
        vec![(Some(1), 11), (None, 12), (None, 31), (Some(4), 1)],
        many,
    ]
}

fn columns_of(rows: &[Row]) -> Vec<(&'static str, ArrayRef)> {
    let keys: Vec<_> = rows.iter().map(|row| row.0).collect();
    let values: Vec<_> = rows.iter().map(|row| Some(row.1)).collect();
    vec![("k", int64s(&keys)), ("v", int64s(&values))]
}

fn join(
    kind: JoinKind,
    paths: [&Path; 2],
    estimates: [f64; 2],
    with_key: bool,
    residual: bool,
    build: JoinSide,
) -> Arc<Relation> {
    let sides: Vec<Arc<Relation>> = [0u32, 1]
        .iter()
        .map(|side| {
            let first = side * 10;
            let scan = scan(
                paths[*side as usize],
                &[(first, "k", DataType::Int64), (first + 1, "v", DataType::Int64)],
            );
            Relation::new(scan.operator.clone(), estimates[*side as usize])
        })
        .collect();
    let keys = if with_key { vec![JoinKey { left: column(0), right: column(10) }] } else { Vec::new() };
    let residual = residual.then(|| compare(Function::Less, column(1), column(11)));
    let (left, right) = (sides[0].clone(), sides[1].clone());
    Relation::new(Operator::Join { kind, left, right, keys, residual, build }, 10.0)
}

/// Every kind of join of every two tables; each pair with the cache on or off, and each of the two build
/// sides with few rows expected (one shared hash table) or many (a hash table a partition).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_match_the_oracle() {
    let fixtures = [Fixture::with_memory(1 << 30, 0), Fixture::new()];
    let tables = tables();
    let paths: Vec<Vec<PathBuf>> = fixtures
        .iter()
        .map(|fixture| {
            let write = |(index, rows): (usize, &Vec<Row>)| {
                fixture.write(&format!("t{index}"), columns_of(rows), 700)
            };
            tables.iter().enumerate().map(write).collect()
        })
        .collect();
    let large = tables.len() - 1;
    let mut case = 0;
    for (left, right) in (0..tables.len()).flat_map(|left| (0..tables.len()).map(move |right| (left, right)))
    {
        for (kind, with_key, residual, build) in variants() {
            // Two large tables without a key are many pairs and show nothing new.
            if !with_key && (left == large || right == large) {
                continue;
            }
            case += 1;
            let estimates = if case % 4 < 2 { [10.0, 10.0] } else { [1e6, 1e6] };
            let side = (left + right) % 2;
            let sides = [paths[side][left].as_path(), paths[side][right].as_path()];
            let plan = join(kind, sides, estimates, with_key, residual, build);
            let outputs: &[u32] = if kind.keeps_right_columns() { &[0, 1, 10, 11] } else { &[0, 1] };
            let answer = fixtures[side].run(plan, outputs).await.unwrap();
            assert_eq!(
                answer.sorted(),
                oracle(kind, &tables[left], &tables[right], with_key, residual),
                "{kind:?} of tables {left} and {right}, key {with_key}, residual {residual}, build {build:?}, \
                 estimates {estimates:?}"
            );
        }
    }
}

fn variants() -> Vec<(JoinKind, bool, bool, JoinSide)> {
    let mut variants = Vec::new();
    for kind in KINDS {
        for with_key in [true, false] {
            if !with_key && kind == JoinKind::NullAwareAnti {
                continue;
            }
            for residual in [false, true] {
                variants.push((kind, with_key, residual, JoinSide::Left));
                variants.push((kind, with_key, residual, JoinSide::Right));
            }
        }
    }
    variants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_without_columns_counts_pairs() {
    let fixture = Fixture::new();
    let path = fixture.write("t", columns_of(&[(Some(1), 1), (Some(1), 2), (None, 3)]), 10);
    for (kind, count) in [(JoinKind::Inner, 4), (JoinKind::Left, 5), (JoinKind::Full, 6), (JoinKind::Anti, 1)]
    {
        let plan = join(kind, [&path, &path], [1.0, 1.0], true, false, JoinSide::Right);
        let answer = fixture.run(plan, &[]).await.unwrap();
        assert_eq!(answer.rows.len(), count, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimal_keys_of_different_scales_join() {
    let fixture = Fixture::new();
    let decimals = |values: &[i128], precision, scale| {
        let array = arrow::array::Decimal128Array::from(values.to_vec());
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let left = fixture.write("l", vec![("k", decimals(&[150, 275, -30], 5, 2))], 10);
    let right = fixture.write("r", vec![("k", decimals(&[15, -3, 27], 9, 1))], 10);
    let types = [DataType::Decimal { precision: 5, scale: 2 }, DataType::Decimal { precision: 9, scale: 1 }];
    let key = JoinKey {
        left: Expression::column(ColumnId(0), types[0].clone()),
        right: Expression::column(ColumnId(1), types[1].clone()),
    };
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left: scan(&left, &[(0, "k", types[0].clone())]),
        right: scan(&right, &[(1, "k", types[1].clone())]),
        keys: vec![key],
        residual: None,
        build: JoinSide::Right,
    };
    let answer = fixture.run(Relation::new(operator, 1.0), &[0, 1]).await.unwrap();
    assert_eq!(answer.sorted(), ["-0.30|-0.3", "1.50|1.5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn float_keys_join_zeros_and_nans() {
    let fixture = Fixture::new();
    let floats = |values: &[f64]| Arc::new(arrow::array::Float64Array::from(values.to_vec())) as ArrayRef;
    let left = fixture.write("l", vec![("k", floats(&[0.0, f64::NAN, 1.0]))], 10);
    let right = fixture.write("r", vec![("k", floats(&[-0.0, -f64::NAN, 2.0]))], 10);
    let key = JoinKey {
        left: Expression::column(ColumnId(0), DataType::Float64),
        right: Expression::column(ColumnId(1), DataType::Float64),
    };
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left: scan(&left, &[(0, "k", DataType::Float64)]),
        right: scan(&right, &[(1, "k", DataType::Float64)]),
        keys: vec![key],
        residual: None,
        build: JoinSide::Left,
    };
    let answer = fixture.run(Relation::new(operator, 1.0), &[0, 1]).await.unwrap();
    assert_eq!(answer.sorted(), ["0.0|-0.0", "NaN|NaN"]);
}
