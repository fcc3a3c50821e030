//! Joins of every kind with either build side.

use std::{collections::HashMap, sync::Arc};

use pystachio_cases::Sample;
use pystachio_plan::{
    ColumnId, Expression, Function, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Plan, Relation,
};

use super::*;

/// The kinds that may have either build side.
const KINDS: [JoinKind; 5] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

/// How two tables are joined.
#[derive(Clone, Copy, Debug)]
struct Join {
    kind: JoinKind,
    build: JoinSide,
    has_keys: bool,
    has_residual: bool,
}

impl Join {
    /// The left table's columns are 0 to 3, the right one's 4 to 7.
    fn plan(self, left: &Table, right: &Table) -> Plan {
        let keys = vec![JoinKey { left: int64(0), right: int64(4) }];
        let residual = Expression::predicate(Function::Less, vec![int64(2), int64(6)]);
        let operator = Operator::Join {
            kind: self.kind,
            left: left.scan(0),
            right: right.scan(4),
            keys: if self.has_keys { keys } else { Vec::new() },
            residual: self.has_residual.then_some(residual),
            build: self.build,
        };
        plan(Relation::new(operator, 1.0))
    }

    fn matches(self, left: &Row, right: &Row) -> bool {
        let keys = !self.has_keys || (left.key.is_some() && left.key == right.key);
        let residual =
            !self.has_residual || left.value.zip(right.value).is_some_and(|(left, right)| left < right);
        keys && residual
    }

    fn expected(self, left: &[Row], right: &[Row]) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut right_is_matched = vec![false; right.len()];
        let mut by_key: HashMap<Option<i64>, Vec<usize>> = HashMap::new();
        for (place, row) in right.iter().enumerate() {
            by_key.entry(row.key.filter(|_| self.has_keys)).or_default().push(place);
        }
        let has_null = right.iter().any(|other| other.key.is_none());
        for row in left {
            let candidates = by_key.get(&row.key.filter(|_| self.has_keys)).map_or(&[][..], Vec::as_slice);
            let places: Vec<usize> =
                candidates.iter().copied().filter(|other| self.matches(row, &right[*other])).collect();
            for place in &places {
                right_is_matched[*place] = true;
                if matches!(self.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Full) {
                    rows.push([shown_row(row), shown_row(&right[*place])].concat());
                }
            }
            let is_null_in = has_null || row.key.is_none();
            match self.kind {
                JoinKind::Left | JoinKind::Full if places.is_empty() => {
                    rows.push([shown_row(row), nulls()].concat());
                }
                JoinKind::Semi if !places.is_empty() => rows.push(shown_row(row)),
                JoinKind::Anti if places.is_empty() => rows.push(shown_row(row)),
                JoinKind::NullAwareAnti if right.is_empty() || (places.is_empty() && !is_null_in) => {
                    rows.push(shown_row(row));
                }
                _ => {}
            }
        }
        if self.kind == JoinKind::Full {
            let alone = right.iter().zip(&right_is_matched).filter(|(_, is_matched)| !**is_matched);
            rows.extend(alone.map(|(row, _)| [nulls(), shown_row(row)].concat()));
        }
        rows
    }
}

fn check_join(join: Join, left: &Table, right: &Table) {
    let expected = join.expected(&left.rows, &right.rows);
    let build = match (join.kind, join.build) {
        (JoinKind::NullAwareAnti, _) | (_, JoinSide::Right) => right,
        (_, JoinSide::Left) => left,
    };
    let run = Run { parts: &[16], in_order: false, context: &format!("{join:?}") };
    check(|| join.plan(left, right), build.bytes(), expected, run);
}

fn shape(seed: u64, row_count: usize, key_count: u64) -> Shape {
    Shape { seed, row_count, key_count, repeated_percent: 0, null_percent: 5 }
}

#[test]
fn joins_of_every_kind_spill_either_side() {
    let left = Table::made(shape(1, 11_000, 7000));
    let right = Table::made(shape(2, 10_000, 6000));
    let mut sample = Sample::of("joins_of_every_kind_spill_either_side");
    for (place, kind) in KINDS.into_iter().enumerate() {
        for build in sample.take([JoinSide::Left, JoinSide::Right]) {
            let has_residual = (place % 2 == 0) == (build == JoinSide::Left);
            check_join(Join { kind, build, has_keys: true, has_residual }, &left, &right);
        }
    }
}

#[test]
fn not_in_spills_and_knows_nulls_and_emptiness() {
    let join =
        Join { kind: JoinKind::NullAwareAnti, build: JoinSide::Right, has_keys: true, has_residual: false };
    let left = Table::made(shape(3, 10_000, 20_000));
    let right = Table::made(Shape { null_percent: 0, ..shape(4, 15_000, 16_000) });
    check_join(join, &left, &right);
    // With a NULL or without any row there is nothing to spill.
    for right in [Table::made(shape(5, 5000, 25_000)), Table::new(Vec::new())] {
        let found = Fixture::new(PLENTY_BYTES).run(join.plan(&left, &right)).unwrap();
        assert_eq!(sorted(found.rows), sorted(join.expected(&left.rows, &right.rows)));
    }
}

#[test]
fn a_key_repeated_too_often_is_joined_piece_by_piece() {
    // Most build rows have one key, and some probe rows too.
    let many = Shape { repeated_percent: 80, ..shape(6, 10_000, 4000) };
    let few = Shape { repeated_percent: 2, ..shape(7, 400, 4000) };
    let (many, few) = (Table::made(many), Table::made(few));
    let kinds = KINDS.into_iter().enumerate();
    for (place, kind) in Sample::of("a_key_repeated_too_often_is_joined_piece_by_piece").take(kinds) {
        let has_residual = place % 2 == 0;
        check_join(Join { kind, build: JoinSide::Right, has_keys: true, has_residual }, &few, &many);
        let has_residual = !has_residual;
        check_join(Join { kind, build: JoinSide::Left, has_keys: true, has_residual }, &many, &few);
    }
}

/// Spilling needs marks of the probe rows that earlier pieces of the build side have matched: a
/// byte a row.
#[test]
fn marks_of_probe_rows_are_spilled_from_piece_to_piece() {
    let many = Table::made(Shape { repeated_percent: 80, ..shape(6, 10_000, 4000) });
    let few = Table::made(Shape { repeated_percent: 2, ..shape(7, 400, 4000) });
    let spilled_bytes = |kind| {
        let join = Join { kind, build: JoinSide::Right, has_keys: true, has_residual: false };
        let fixture = Fixture::new(many.bytes() / 16);
        fixture.run(join.plan(&few, &many)).unwrap().metrics.spilled_bytes
    };
    // A left join has the same rows to spill as an inner one, and marks besides.
    assert!(spilled_bytes(JoinKind::Left) > spilled_bytes(JoinKind::Inner));
}

#[test]
fn joins_without_keys_are_joined_piece_by_piece() {
    let left = Table::made(shape(8, 8, 20));
    let right = Table::made(shape(9, 8000, 20));
    for kind in Sample::of("joins_without_keys_are_joined_piece_by_piece").take(KINDS) {
        let join = Join { kind, build: JoinSide::Right, has_keys: false, has_residual: true };
        check_join(join, &left, &right);
        check_join(Join { build: JoinSide::Left, ..join }, &right, &left);
    }
}

#[test]
fn joins_upon_joins_share_what_there_is() {
    let tables: Vec<Table> = (20..24).map(|seed| Table::made(shape(seed, 15_000, 15_000))).collect();
    let join = |left: Arc<Relation>, right: &Table, first: u32| {
        let operator = Operator::Join {
            kind: JoinKind::Inner,
            left,
            right: right.scan(first),
            keys: vec![JoinKey { left: int64(0), right: int64(first) }],
            residual: None,
            build: JoinSide::Right,
        };
        Relation::new(operator, 1.0)
    };
    let mut expected: Vec<(Option<i64>, Vec<String>)> =
        tables[0].rows.iter().map(|row| (row.key, shown_row(row))).collect();
    for table in &tables[1..] {
        let pairs = expected.iter().flat_map(|(key, row)| {
            let matching = table.rows.iter().filter(move |other| key.is_some() && other.key == *key);
            matching.map(move |other| (*key, [row.clone(), shown_row(other)].concat()))
        });
        expected = pairs.collect();
    }
    let expected = expected.into_iter().map(|(_, row)| row).collect();
    let make = || {
        let joined = join(tables[0].scan(0), &tables[1], 4);
        plan(join(join(joined, &tables[2], 8), &tables[3], 12))
    };
    let run = Run { parts: &[8, 16], in_order: false, context: "three joins" };
    check(make, tables.iter().map(Table::bytes).sum(), expected, run);
}

/// The names of the kernels that a plan's last run launched, and its rows.
fn kernels_of(plan: Plan) -> (Vec<String>, Vec<Vec<String>>) {
    let fixture = Fixture::new(PLENTY_BYTES);
    let rows = sorted(fixture.run(plan).unwrap().rows);
    let timelines = fixture.engine.timelines();
    let activities = timelines.iter().flat_map(|timeline| &timeline.activities);
    (activities.map(|activity| activity.name.clone()).collect(), rows)
}

#[test]
fn joins_that_need_no_build_row_look_in_a_bitmap() {
    let left = Table::made(shape(10, 900, 600));
    let right = Table::made(shape(11, 700, 500));
    for kind in [JoinKind::Semi, JoinKind::Anti, JoinKind::Inner] {
        for has_residual in [false, true] {
            let join = Join { kind, build: JoinSide::Right, has_keys: true, has_residual };
            let (kernels, rows) = kernels_of(join.plan(&left, &right));
            assert_eq!(rows, sorted(join.expected(&left.rows, &right.rows)), "{join:?}");
            let is_bitmap = kernels.iter().any(|name| name == "test_bitmap_keys");
            assert_eq!(is_bitmap, kind != JoinKind::Inner && !has_residual, "{join:?}");
            assert_ne!(is_bitmap, kernels.iter().any(|name| name == "insert_build_rows"), "{join:?}");
        }
    }
}

#[test]
fn inner_joins_with_a_key_that_is_there_once_look_in_a_bitmap() {
    let probe = Table::made(shape(12, 900, 600));
    let row = |key: Option<i64>| Row { key, text: None, value: None, number: 0 };
    let once: Vec<Row> = (0..300).map(|key| row((key != 7).then_some(key * 2))).collect();
    let twice: Vec<Row> = once.iter().cloned().chain([row(Some(44))]).collect();
    for (rows, is_unique) in [(once, true), (twice, false)] {
        let build = Table::new(rows);
        for side in [JoinSide::Left, JoinSide::Right] {
            let key = NamedExpression { id: ColumnId(8), expression: int64(4) };
            let keys = Relation::new(Operator::Project { input: build.scan(4), expressions: vec![key] }, 1.0);
            let (left, right, keys) = match side {
                JoinSide::Left => (keys, probe.scan(0), JoinKey { left: int64(8), right: int64(0) }),
                JoinSide::Right => (probe.scan(0), keys, JoinKey { left: int64(0), right: int64(8) }),
            };
            let operator = Operator::Join {
                kind: JoinKind::Inner,
                left,
                right,
                keys: vec![keys],
                residual: None,
                build: side,
            };
            let (kernels, found) = kernels_of(plan(Relation::new(operator, 1.0)));
            let mut expected = Vec::new();
            for row in &probe.rows {
                let matches = build.rows.iter().filter(|other| row.key.is_some() && other.key == row.key);
                for _ in matches {
                    let key = vec![shown(&row.key)];
                    expected.push(match side {
                        JoinSide::Left => [key, shown_row(row)].concat(),
                        JoinSide::Right => [shown_row(row), key].concat(),
                    });
                }
            }
            assert!(!expected.is_empty());
            assert_eq!(found, sorted(expected), "build {side:?}, unique {is_unique}");
            let is_bitmap = kernels.iter().any(|name| name == "test_bitmap_keys");
            assert_eq!(is_bitmap, is_unique, "build {side:?}");
        }
    }
}

#[test]
fn the_probe_side_of_no_build_rows_is_not_read_where_none_of_it_comes_out() {
    let (empty, full) = (Table::new(Vec::new()), Table::made(shape(13, 600, 300)));
    for kind in JOIN_KINDS {
        for build in [JoinSide::Left, JoinSide::Right] {
            // NULLs of the right side decide, so that side is read first whatever the plan says.
            let build = if kind == JoinKind::NullAwareAnti { JoinSide::Right } else { build };
            let (left, right) = match build {
                JoinSide::Left => (empty.scan(0), full.scan(4)),
                JoinSide::Right => (full.scan(0), empty.scan(4)),
            };
            let keys = vec![JoinKey { left: int64(0), right: int64(4) }];
            let operator = Operator::Join { kind, left, right, keys, residual: None, build };
            let answer = Fixture::new(PLENTY_BYTES).run(plan(Relation::new(operator, 1.0))).unwrap();
            let scans = answer.metrics.operators.iter().filter(|operator| operator.description == "Scan t");
            let read_count: u64 = scans.filter_map(|scan| scan.row_count).sum();
            let is_read = match (kind, build) {
                (JoinKind::Inner | JoinKind::Semi, _) => false,
                (JoinKind::Left | JoinKind::Anti, build) => build == JoinSide::Right,
                (JoinKind::Full | JoinKind::NullAwareAnti, _) => true,
            };
            let expected_count = if is_read { full.rows.len() } else { 0 };
            assert_eq!(read_count, expected_count as u64, "{kind:?}, build {build:?}");
            assert_eq!(answer.rows.len(), expected_count, "{kind:?}, build {build:?}");
        }
    }
}
