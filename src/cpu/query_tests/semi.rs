//! Semi and anti joins whose keys repeat: against an oracle that tries every pair, and in linear time.

use std::time::Duration;

use super::*;
use pystachio_plan::{JoinKey, JoinKind, JoinSide};

/// Two nullable columns and a third.
type Row = [Option<i64>; 3];
/// Whether a condition on a left and a right row is true, false or unknown.
type Condition = fn(&Row, &Row) -> Option<bool>;

const KINDS: [JoinKind; 2] = [JoinKind::Semi, JoinKind::Anti];

fn rows(count: i64, seed: i64) -> Vec<Row> {
    let value = |row: i64, step: i64, of: i64| {
        let value = (row * step + seed).rem_euclid(of);
        (value != 1).then_some(value)
    };
    (0..count).map(|row| [value(row, 7, 9), value(row, 5, 4), value(row, 13, 31)]).collect()
}

fn write(fixture: &Fixture, name: &str, rows: &[Row]) -> PathBuf {
    let values = |index: usize| int64s(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
    fixture.write(name, vec![("a", values(0)), ("b", values(1)), ("c", values(2))], 60)
}

fn side(path: &Path, first: u32) -> Arc<Relation> {
    let column = |index: u32, name| (first + index, name, DataType::Int64);
    scan(path, &[column(0, "a"), column(1, "b"), column(2, "c")])
}

fn both(conditions: Vec<Expression>) -> Expression {
    Expression::all_of(conditions).unwrap()
}

fn joined(
    kind: JoinKind,
    paths: [&Path; 2],
    key_count: u32,
    residual: Option<Expression>,
    build: JoinSide,
) -> Arc<Relation> {
    let keys = (0..key_count).map(|key| JoinKey { left: column(key), right: column(10 + key) }).collect();
    let (left, right) = (side(paths[0], 0), side(paths[1], 10));
    Relation::new(Operator::Join { kind, left, right, keys, residual, build }, 10.0)
}

/// What the join must give.
fn oracle(kind: JoinKind, [left, right]: [&[Row]; 2], key_count: usize, condition: Condition) -> Vec<String> {
    let text = |value: &Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
    let equal =
        |left: &Row, right: &Row| (0..key_count).all(|key| left[key].is_some() && left[key] == right[key]);
    let matches = |row: &Row| right.iter().any(|r| equal(row, r) && condition(row, r) == Some(true));
    let kept = left.iter().filter(|row| matches(row) == (kind == JoinKind::Semi));
    let mut lines: Vec<String> = kept.map(|row| row.iter().map(text).collect::<Vec<_>>().join("|")).collect();
    lines.sort();
    lines
}

fn and(first: Option<bool>, second: Option<bool>) -> Option<bool> {
    match (first, second) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), second) => second,
        (None, _) => None,
    }
}

/// Conditions on pairs, as expressions and as the oracle has them.
fn conditions() -> Vec<(Option<Expression>, Condition)> {
    use Function::{Greater, GreaterEqual, IsDistinctFrom, Less, LessEqual, NotEqual};
    let sum = || Expression::call(Function::Add, vec![column(2), column(12)], DataType::Int64);
    vec![
        (None, |_, _| Some(true)),
        (Some(compare(NotEqual, column(2), column(12))), |l, r| Some(l[2]? != r[2]?)),
        (Some(compare(NotEqual, column(12), column(2))), |l, r| Some(l[2]? != r[2]?)),
        (Some(compare(IsDistinctFrom, column(2), column(12))), |l, r| Some(l[2] != r[2])),
        (Some(compare(Less, column(2), column(12))), |l, r| Some(l[2]? < r[2]?)),
        (Some(compare(LessEqual, column(12), column(2))), |l, r| Some(r[2]? <= l[2]?)),
        (Some(compare(Greater, column(2), column(12))), |l, r| Some(l[2]? > r[2]?)),
        (Some(compare(GreaterEqual, column(2), column(12))), |l, r| Some(l[2]? >= r[2]?)),
        // On one side alone.
        (Some(compare(Greater, column(12), int(20))), |_, r| Some(r[2]? > 20)),
        (Some(compare(Greater, column(2), int(20))), |l, _| Some(l[2]? > 20)),
        (
            Some(both(vec![
                compare(Greater, column(2), int(3)),
                compare(NotEqual, column(1), column(11)),
                compare(Less, column(12), int(25)),
            ])),
            |l, r| and(Some(l[2]? > 3), and(Some(l[1]? != r[1]?), Some(r[2]? < 25))),
        ),
        // No comparison of one column.
        (Some(compare(Greater, sum(), int(55))), |l, r| Some(l[2]? + r[2]? > 55)),
        (
            Some(both(vec![
                compare(NotEqual, column(1), column(11)),
                compare(NotEqual, column(2), column(12)),
            ])),
            |l, r| and(Some(l[1]? != r[1]?), Some(l[2]? != r[2]?)),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reduced_joins_match_the_oracle() {
    let fixture = Fixture::new();
    let tables = [rows(150, 0), rows(200, 3), rows(3, 1), Vec::new()];
    let paths: Vec<PathBuf> =
        tables.iter().enumerate().map(|(index, rows)| write(&fixture, &format!("t{index}"), rows)).collect();
    for (left, right) in [(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)] {
        for (number, (residual, condition)) in conditions().into_iter().enumerate() {
            for (kind, key_count) in KINDS.into_iter().flat_map(|kind| (0..3).map(move |keys| (kind, keys))) {
                let build = if number % 2 == 0 { JoinSide::Left } else { JoinSide::Right };
                let sides = [paths[left].as_path(), paths[right].as_path()];
                let plan = joined(kind, sides, key_count, residual.clone(), build);
                let answer = fixture.run(plan, &[0, 1, 2]).await.unwrap();
                assert_eq!(
                    answer.sorted(),
                    oracle(kind, [&tables[left], &tables[right]], key_count as usize, condition),
                    "{kind:?} of tables {left} and {right}, {key_count} keys, condition {number}"
                );
            }
        }
    }
}

fn is_not_false(value: Option<bool>) -> Option<bool> {
    Some(value != Some(false))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_in_of_several_columns_matches_the_oracle() {
    let fixture = Fixture::new();
    let whole =
        |rows: &[Row]| rows.iter().filter(|row| row[..2].iter().all(Option::is_some)).copied().collect();
    let tables: [Vec<Row>; 5] =
        [rows(40, 0), whole(&rows(60, 3)), rows(3, 1), whole(&rows(9, 5)), vec![[Some(3), None, Some(0)]]];
    let paths: Vec<PathBuf> =
        tables.iter().enumerate().map(|(index, rows)| write(&fixture, &format!("t{index}"), rows)).collect();
    let equal = |key: u32| {
        let equal = compare(Function::Equal, column(key), column(10 + key));
        Expression::predicate(Function::IsNotFalse, vec![equal])
    };
    let cases: [(u32, Vec<Expression>, Condition); 6] = [
        (0, vec![equal(0), equal(1)], |l, r| {
            let equal = |key: usize| is_not_false(l[key].zip(r[key]).map(|(l, r)| l == r));
            and(equal(0), equal(1))
        }),
        (0, vec![equal(1), compare(Function::Less, column(2), column(12))], |l, r| {
            and(is_not_false(l[1].zip(r[1]).map(|(l, r)| l == r)), Some(l[2]? < r[2]?))
        }),
        (1, vec![equal(1)], |l, r| is_not_false(l[1].zip(r[1]).map(|(l, r)| l == r))),
        (1, vec![equal(1), equal(2)], |l, r| {
            let equal = |key: usize| is_not_false(l[key].zip(r[key]).map(|(l, r)| l == r));
            and(equal(1), equal(2))
        }),
        (0, vec![equal(0), equal(1), equal(2)], |l, r| {
            let equal = |key: usize| is_not_false(l[key].zip(r[key]).map(|(l, r)| l == r));
            and(equal(0), and(equal(1), equal(2)))
        }),
        // One more than are split.
        (0, vec![equal(1), equal(2), equal(1), equal(0)], |l, r| {
            let equal = |key: usize| is_not_false(l[key].zip(r[key]).map(|(l, r)| l == r));
            and(equal(0), and(equal(1), equal(2)))
        }),
    ];
    for (left, right) in (0..tables.len()).flat_map(|left| (0..tables.len()).map(move |right| (left, right)))
    {
        for (number, (key_count, residual, condition)) in cases.iter().enumerate() {
            let sides = [paths[left].as_path(), paths[right].as_path()];
            let residual = Some(both(residual.clone()));
            let build = if (left + number) % 2 == 0 { JoinSide::Left } else { JoinSide::Right };
            let plan = joined(JoinKind::Anti, sides, *key_count, residual, build);
            let answer = fixture.run(plan, &[0, 1, 2]).await.unwrap();
            assert_eq!(
                answer.sorted(),
                oracle(JoinKind::Anti, [&tables[left], &tables[right]], *key_count as usize, *condition),
                "tables {left} and {right}, case {number}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_and_uuids_that_differ_are_told_by_their_bounds() {
    let fixture = Fixture::new();
    let numbers = [3u8, 3, 200, 3, 7];
    let uuids = numbers.iter().map(|number| [*number; 16]);
    let uuids = arrow::array::FixedSizeBinaryArray::try_from_iter(uuids).unwrap();
    let words = [Some("é"), Some("b"), Some("b"), None, Some("b")];
    let path = fixture.write(
        "t",
        vec![
            ("k", int64s(&[Some(1), Some(1), Some(1), Some(2), Some(3)])),
            ("u", Arc::new(uuids)),
            ("w", texts(&words)),
        ],
        2,
    );
    for (name, data_type, expected) in [
        ("u", DataType::Bytea, ["1", "1", "1"].as_slice()),
        ("w", DataType::Text, ["1", "1", "1"].as_slice()),
    ] {
        let side =
            |first: u32| scan(&path, &[(first, "k", DataType::Int64), (first + 1, name, data_type.clone())]);
        let value = |id: u32| Expression::column(ColumnId(id), data_type.clone());
        let operator = Operator::Join {
            kind: JoinKind::Semi,
            left: side(0),
            right: side(10),
            keys: vec![JoinKey { left: column(0), right: column(10) }],
            residual: Some(compare(Function::NotEqual, value(1), value(11))),
            build: JoinSide::Right,
        };
        let answer = fixture.run(Relation::new(operator, 3.0), &[0]).await.unwrap();
        assert_eq!(answer.sorted(), expected, "{name}");
    }
}

/// Every pair of these tables would take hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_of_repeated_keys_are_linear() {
    let fixture = Fixture { in_both_forms: false, ..Fixture::new() };
    let count = 400_000;
    let values = |of: i64| int64s(&(0..count).map(|row| Some(row % of)).collect::<Vec<_>>());
    let columns = || vec![("a", values(2)), ("b", values(3)), ("c", values(count))];
    let path = fixture.write("t", columns(), 100_000);
    let equal = |key: u32| {
        let equal = compare(Function::Equal, column(key), column(10 + key));
        Expression::predicate(Function::IsNotFalse, vec![equal])
    };
    let residuals = [
        None,
        Some(compare(Function::NotEqual, column(2), column(12))),
        Some(compare(Function::Less, column(12), column(2))),
        Some(compare(Function::NotEqual, column(1), column(11))),
        Some(both(vec![equal(0), equal(1)])),
    ];
    for (number, residual) in residuals.into_iter().enumerate() {
        for (kind, build) in
            [JoinSide::Left, JoinSide::Right].map(|build| KINDS.map(|kind| (kind, build))).concat()
        {
            if number == 4 && kind == JoinKind::Semi {
                continue;
            }
            let key_count = if number == 4 { 0 } else { 2 };
            let plan = joined(kind, [&path, &path], key_count, residual.clone(), build);
            let counted = Operator::Aggregate {
                input: plan,
                groups: Vec::new(),
                aggregates: vec![call(30, Aggregate::Count, None, DataType::Int64)],
                phase: AggregatePhase::Whole,
            };
            let running = fixture.run(Relation::new(counted, 1.0), &[30]);
            // Only a join that tries every pair takes as long.
            let answer = tokio::time::timeout(Duration::from_secs(300), running).await;
            answer.unwrap_or_else(|_| panic!("{kind:?} with condition {number} is quadratic")).unwrap();
        }
    }
    // A NULL in each column of both sides, and otherwise other values.
    let nulls = |first: i64| {
        let column = |null: i64| {
            int64s(&(0..count).map(|row| (row % 9 != null).then_some(first + row)).collect::<Vec<_>>())
        };
        fixture.write(
            &format!("nulls{first}"),
            vec![("a", column(1)), ("b", column(4)), ("c", column(7))],
            100_000,
        )
    };
    let (left, right) = (nulls(0), nulls(count));
    let residual = both(vec![equal(0), equal(1), equal(2)]);
    let plan = joined(JoinKind::Anti, [&left, &right], 0, Some(residual), JoinSide::Right);
    let running = fixture.run(plan, &[0]);
    let answer = tokio::time::timeout(Duration::from_secs(300), running).await;
    let answer = answer.expect("NOT IN of three columns with NULLs is quadratic").unwrap();
    assert_eq!(answer.sorted().len(), count as usize);
}
