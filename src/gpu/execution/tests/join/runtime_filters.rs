//! Filters that joins send to the scans of their probe sides: the same rows with and without, and
//! the rows dropped.

use arrow::array::Decimal128Array;
use pystachio_plan::{
    AggregatePhase, ErrorKind, Function, JoinKey, JoinKind, JoinSide, NamedExpression, ScanExtent, Value,
};

use super::*;

const SIDES: [JoinSide; 2] = [JoinSide::Left, JoinSide::Right];

/// Keys of a join: places of columns.
const KEY: &[u32] = &[0];
const TEXT: &[u32] = &[1];
const KEY_AND_TEXT: &[u32] = &[0, 1];

fn column(id: u32) -> Expression {
    if id % 4 == 1 { text(id) } else { int64(id) }
}

/// A scan of the rows whose value, column `first + 2`, is below a limit.
fn scan_below(table: &Table, first: u32, limit: i64) -> Arc<Relation> {
    let Operator::Scan { table: name, files, columns, .. } = &table.scan(first).operator else {
        unreachable!()
    };
    let limit = Expression::literal(Value::Int(limit), DataType::Int64);
    let filters = vec![Expression::predicate(Function::Less, vec![int64(first + 2), limit])];
    let operator = Operator::Scan {
        table: name.clone(),
        files: files.clone(),
        columns: columns.clone(),
        filters,
        extent: ScanExtent::Whole,
    };
    Relation::new(operator, 1.0)
}

fn below(rows: &[Row], limit: i64) -> Vec<Row> {
    rows.iter().filter(|row| row.value.is_some_and(|value| value < limit)).cloned().collect()
}

/// A join of columns 0 to 3 with columns from 4 on.
fn join(
    kind: JoinKind,
    build: JoinSide,
    left: Arc<Relation>,
    right: Arc<Relation>,
    keys: &[(u32, u32)],
) -> Arc<Relation> {
    let keys = keys.iter().map(|(left, right)| JoinKey { left: column(*left), right: column(*right) });
    Relation::new(Operator::Join { kind, left, right, keys: keys.collect(), residual: None, build }, 1.0)
}

fn key_of(row: &Row, keys: &[u32]) -> Option<Vec<String>> {
    let part = |key: &u32| if *key == 0 { row.key.map(|key| key.to_string()) } else { row.text.clone() };
    keys.iter().map(part).collect()
}

/// The result of a join, by plain loops.
fn expected(kind: JoinKind, left: &[Row], right: &[Row], keys: &[u32]) -> Vec<Vec<String>> {
    let right_keys: Vec<_> = right.iter().map(|row| key_of(row, keys)).collect();
    let mut is_matched = vec![false; right.len()];
    let mut rows = Vec::new();
    for row in left {
        let key = key_of(row, keys);
        let matches: Vec<usize> =
            (0..right.len()).filter(|place| key.is_some() && right_keys[*place] == key).collect();
        matches.iter().for_each(|place| is_matched[*place] = true);
        let has_null = key.is_none() || right_keys.contains(&None);
        match kind {
            JoinKind::Semi if !matches.is_empty() => rows.push(shown_row(row)),
            JoinKind::Anti if matches.is_empty() => rows.push(shown_row(row)),
            JoinKind::NullAwareAnti if right.is_empty() || (matches.is_empty() && !has_null) => {
                rows.push(shown_row(row));
            }
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => {}
            JoinKind::Left | JoinKind::Full if matches.is_empty() => {
                rows.push([shown_row(row), nulls()].concat());
            }
            _ => {
                rows.extend(matches.iter().map(|place| [shown_row(row), shown_row(&right[*place])].concat()))
            }
        }
    }
    if kind == JoinKind::Full {
        let alone = right.iter().zip(&is_matched).filter(|(_, is_matched)| !**is_matched);
        rows.extend(alone.map(|(row, _)| [nulls(), shown_row(row)].concat()));
    }
    sorted(rows)
}

/// Runs a plan with filters and without.
fn run_both(root: &Arc<Relation>, memory_bytes: u64) -> [Answer; 2] {
    [true, false].map(|runtime_filters| {
        let device = DeviceSettings { runtime_filters, ..DeviceSettings::default() };
        let mut answer = Fixture::new(memory_bytes).run_with(plan(root.clone()), device).unwrap();
        answer.rows = sorted(answer.rows);
        answer
    })
}

/// Rows that filters of either kind dropped, and row groups.
fn dropped(answer: &Answer) -> u64 {
    ["bitmap_rows_dropped", "bloom_rows_dropped", "row_groups_pruned_by_joins"]
        .iter()
        .map(|name| counter(answer, name))
        .sum()
}

/// Checks both answers, and whether filters did anything.
fn check(root: &Arc<Relation>, expected: &[Vec<String>], is_dropping: bool, context: &str) -> Answer {
    let [with, without] = run_both(root, PLENTY_BYTES);
    assert!(with.rows == expected, "{context}: {} rows and not {}", with.rows.len(), expected.len());
    assert!(without.rows == expected, "{context}, without filters");
    assert_eq!(dropped(&with) > 0, is_dropping, "{context}: {:?}", with.metrics.operators);
    assert_eq!(dropped(&without), 0, "{context}");
    with
}

fn shape(seed: u64, row_count: usize, key_count: u64) -> Shape {
    Shape { seed, row_count, key_count, repeated_percent: 2, null_percent: 5 }
}

#[test]
fn a_filter_of_several_keys_tests_what_the_bitmap_of_its_integer_leaves() {
    let (left, right) = (Table::made(shape(41, 900, 400)), Table::made(shape(42, 600, 500)));
    let limit = -450;
    let keys: Vec<(u32, u32)> = KEY_AND_TEXT.iter().map(|key| (*key, *key + 4)).collect();
    let scans = (left.scan(0), scan_below(&right, 4, limit));
    let root = join(JoinKind::Inner, JoinSide::Right, scans.0, scans.1, &keys);
    let expected = expected(JoinKind::Inner, &left.rows, &below(&right.rows, limit), KEY_AND_TEXT);
    let answer = check(&root, &expected, true, "two keys");
    let [tested, dropped] = ["bitmap_rows_tested", "bitmap_rows_dropped"].map(|name| counter(&answer, name));
    assert!(dropped > 0, "{:?}", answer.metrics.operators);
    assert_eq!(counter(&answer, "bloom_rows_tested"), tested - dropped);
}

#[test]
fn joins_of_every_kind_give_the_same_rows_and_drop_only_what_they_may() {
    let left = Table::made(shape(31, 700, 400));
    let right = Table::made(shape(32, 600, 500));
    for keys in [KEY, TEXT, KEY_AND_TEXT] {
        let pairs: Vec<(u32, u32)> = keys.iter().map(|key| (*key, *key + 4)).collect();
        for kind in JOIN_KINDS {
            for build in SIDES {
                let build = if kind == JoinKind::NullAwareAnti { JoinSide::Right } else { build };
                let (left_limit, right_limit) =
                    if build == JoinSide::Left { (-450, 999) } else { (999, -450) };
                let (left_scan, right_scan) =
                    (scan_below(&left, 0, left_limit), scan_below(&right, 4, right_limit));
                let root = join(kind, build, left_scan, right_scan, &pairs);
                let expected =
                    expected(kind, &below(&left.rows, left_limit), &below(&right.rows, right_limit), keys);
                let may_drop = match (kind, build) {
                    (JoinKind::Inner | JoinKind::Semi, _) => true,
                    (JoinKind::Left | JoinKind::Anti, build) => build == JoinSide::Left,
                    _ => false,
                };
                let context = format!("{kind:?} join by {keys:?}, build {build:?}");
                let answer = check(&root, &expected, may_drop, &context);
                let bitmap = counter(&answer, "bitmap_rows_tested");
                assert_eq!(bitmap > 0, may_drop && keys != TEXT, "{context}");
            }
        }
    }
}

#[test]
fn what_is_spilled_gives_the_same_rows() {
    let left = Table::made(shape(33, 3000, 3000));
    let right = Table::made(shape(34, 3000, 3000));
    let bytes = below(&right.rows, 0).len() as u64 * 43;
    for kind in [JoinKind::Inner, JoinKind::Semi] {
        let root = join(kind, JoinSide::Right, left.scan(0), scan_below(&right, 4, 0), &[(0, 4)]);
        let expected = expected(kind, &left.rows, &below(&right.rows, 0), KEY);
        for answer in run_both(&root, bytes) {
            assert!(answer.metrics.spilled_bytes > 0, "{kind:?}");
            assert!(answer.rows == expected, "{kind:?}");
        }
    }
}

#[test]
fn an_empty_build_side_leaves_the_probe_side_unread() {
    let left = Table::made(shape(35, 700, 400));
    let right = Table::made(shape(36, 600, 400));
    for kind in [JoinKind::Inner, JoinKind::Semi] {
        let root = join(kind, JoinSide::Right, left.scan(0), scan_below(&right, 4, -9999), &[(0, 4)]);
        let answer = check(&root, &[], false, "an empty side");
        let probe = &answer.metrics.operators[1];
        assert_eq!(
            (probe.description.as_str(), probe.row_count),
            ("Scan t", None),
            "the probe side was read"
        );
    }
    let root = join(JoinKind::Anti, JoinSide::Right, left.scan(0), scan_below(&right, 4, -9999), &[(0, 4)]);
    let all = sorted(left.rows.iter().map(shown_row).collect());
    check(&root, &all, false, "nothing is excluded");
}

#[test]
fn row_groups_outside_the_keys_are_not_decoded() {
    let mut rows = shape(37, 1200, 3000).rows();
    rows.sort_by_key(|row| row.key);
    let probe = Table::new(rows);
    // Keys from 1000 to 1100, with a NULL.
    let build_rows = (0..40).map(|place| Row {
        key: (place > 0).then_some(1000 + (place * 7919) % 101),
        text: None,
        value: Some(0),
        number: place,
    });
    let build = Table::new(build_rows.collect());
    let root = join(JoinKind::Inner, JoinSide::Right, probe.scan(0), scan_below(&build, 4, 1), &[(0, 4)]);
    let expected = expected(JoinKind::Inner, &probe.rows, &build.rows, KEY);
    assert!(!expected.is_empty());
    let answer = check(&root, &expected, true, "sorted keys");
    let pruned = counter(&answer, "row_groups_pruned_by_joins");
    assert!((15..20).contains(&pruned), "{pruned} of 20 row groups");
    assert!(counter(&answer, "bitmap_rows_tested") <= (20 - pruned) * ROW_GROUP_ROWS as u64);
}

#[test]
fn pages_outside_the_keys_are_skipped() {
    let mut rows = shape(44, 6000, 3000).rows();
    rows.sort_by_key(|row| row.key);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(200)
        .set_write_batch_size(100)
        .build();
    let probe = Table::written(std::env::temp_dir(), rows, properties);
    let row = |key: i64| Row { key: Some(key), text: None, value: Some(0), number: key };
    let build = Table::new((1000..1100).map(row).collect());
    let root = join(JoinKind::Inner, JoinSide::Right, probe.scan(0), scan_below(&build, 4, 1), &[(0, 4)]);
    let rows = expected(JoinKind::Inner, &probe.rows, &build.rows, KEY);
    let [with, without] = run_both(&root, PLENTY_BYTES);
    assert!(with.rows == rows && without.rows == rows && !rows.is_empty());
    let decoded = [&with, &without].map(|answer| counter(answer, "bytes_decoded"));
    assert!(decoded[0] * 4 < decoded[1], "{decoded:?}");
    assert!(counter(&with, "bitmap_rows_tested") < 1000, "{}", counter(&with, "bitmap_rows_tested"));
}

#[test]
fn filters_go_through_operators_to_every_scan_that_has_the_keys() {
    let fact = Table::made(shape(38, 900, 300));
    let middle = Table::made(Shape { repeated_percent: 0, ..shape(39, 300, 300) });
    let few = Table::made(Shape { repeated_percent: 0, ..shape(40, 200, 300) });
    let few_rows = below(&few.rows, -400);
    let is_wanted = |row: &Row| few_rows.iter().any(|other| row.key.is_some() && other.key == row.key);
    let semi = |left: Arc<Relation>, id: u32| {
        join(JoinKind::Semi, JoinSide::Right, left, scan_below(&few, 40, -400), &[(id, 40)])
    };
    let named = |id: u32, expression| NamedExpression { id: ColumnId(id), expression };
    // A projection that gives the key another name, over a filter.
    let positive = Expression::predicate(
        Function::Greater,
        vec![int64(3), Expression::literal(Value::Int(9), DataType::Int64)],
    );
    let filtered = Relation::new(Operator::Filter { input: fact.scan(0), predicate: positive }, 1.0);
    let projected = Relation::new(
        Operator::Project { input: filtered, expressions: vec![named(8, int64(0)), named(9, int64(3))] },
        1.0,
    );
    let rows = fact.rows.iter().filter(|row| row.number > 9 && is_wanted(row));
    let pairs = rows.map(|row| vec![shown(&row.key), row.number.to_string()]).collect();
    check(&semi(projected, 8), &sorted(pairs), true, "projection");
    // Groups.
    let count_rows = aggregate_call(9, Aggregate::Count, None, DataType::Int64);
    let grouped = Relation::new(
        Operator::Aggregate {
            input: fact.scan(0),
            groups: vec![named(8, int64(0))],
            aggregates: vec![count_rows],
            phase: AggregatePhase::Whole,
        },
        1.0,
    );
    let mut keys: Vec<i64> =
        fact.rows.iter().filter(|row| is_wanted(row)).filter_map(|row| row.key).collect();
    keys.sort_unstable();
    let groups =
        keys.chunk_by(i64::eq).map(|same| vec![same[0].to_string(), same.len().to_string()]).collect();
    check(&semi(grouped, 8), &sorted(groups), true, "groups");
    // A union, whose columns have ids of their own.
    let ids = |first: u32| vec![ColumnId(first), ColumnId(first + 3)];
    let union = Operator::UnionAll {
        inputs: vec![(fact.scan(0), ids(0)), (middle.scan(4), ids(4))],
        columns: vec![(ColumnId(8), DataType::Int64), (ColumnId(9), DataType::Int64)],
    };
    let rows = fact.rows.iter().chain(&middle.rows).filter(|row| is_wanted(row));
    let pairs = rows.map(|row| vec![shown(&row.key), row.number.to_string()]).collect();
    check(&semi(Relation::new(union, 1.0), 8), &sorted(pairs), true, "union");
    // Either side of a join, and the filter that this join makes of its own build side.
    for (id, build) in [(0, JoinSide::Left), (0, JoinSide::Right), (4, JoinSide::Left), (4, JoinSide::Right)]
    {
        let joined = join(JoinKind::Inner, build, fact.scan(0), middle.scan(4), &[(0, 4)]);
        let wanted: Vec<Row> = fact.rows.iter().filter(|row| is_wanted(row)).cloned().collect();
        let rows = expected(JoinKind::Inner, &wanted, &middle.rows, KEY);
        check(&semi(joined, id), &rows, true, &format!("join by column {id}, build {build:?}"));
    }
    // The preserved side of an outer join.
    let joined = join(JoinKind::Left, JoinSide::Right, fact.scan(0), middle.scan(4), &[(0, 4)]);
    let wanted: Vec<Row> = fact.rows.iter().filter(|row| is_wanted(row)).cloned().collect();
    check(&semi(joined, 0), &expected(JoinKind::Left, &wanted, &middle.rows, KEY), true, "outer join");
}

#[test]
fn a_row_that_fails_does_so_though_it_matches_nothing() {
    let mut rows = shape(44, 900, 300).rows();
    // Only a row without a match has a divisor of 0.
    rows[500] = Row { key: Some(1 << 40), number: 0, ..rows[500].clone() };
    rows[0].number = 1;
    let (fact, few) = (Table::new(rows), Table::made(shape(45, 200, 300)));
    let named = |id: u32, expression| NamedExpression { id: ColumnId(id), expression };
    let quotient = Expression::call(Function::Divide, vec![int64(3), int64(3)], DataType::Int64);
    let operator =
        Operator::Project { input: fact.scan(0), expressions: vec![named(8, int64(0)), named(9, quotient)] };
    let projected = Relation::new(operator, 1.0);
    let build = scan_below(&few, 40, -400);
    let root = join(JoinKind::Semi, JoinSide::Right, projected, build, &[(8, 40)]);
    let error = Fixture::new(PLENTY_BYTES).run(plan(root)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DivisionByZero);
}

#[test]
fn averages_let_filters_pass_and_other_quotients_do_not() {
    let fact = Table::made(shape(46, 900, 300));
    let few = Table::made(Shape { repeated_percent: 0, ..shape(47, 200, 300) });
    let named = |id: u32, expression| NamedExpression { id: ColumnId(id), expression };
    let decimal = |precision| DataType::Decimal { precision, scale: 0 };
    // The count of the summed column, and of another one.
    for (counted, is_dropping) in [(2, true), (3, false)] {
        let value = Expression::call(Function::Cast, vec![int64(2)], decimal(19));
        let grouped = Operator::Aggregate {
            input: fact.scan(0),
            groups: vec![named(8, int64(0))],
            aggregates: vec![
                aggregate_call(9, Aggregate::Sum, Some(value), decimal(38)),
                aggregate_call(10, Aggregate::Count, Some(int64(counted)), DataType::Int64),
            ],
            phase: AggregatePhase::Whole,
        };
        let sum = Expression::column(ColumnId(9), decimal(38));
        let count = Expression::call(Function::Cast, vec![int64(10)], decimal(13));
        let scale = || Expression::literal(Value::Int(0), DataType::Int32);
        let quotient_type = DataType::Decimal { precision: 38, scale: 16 };
        let quotient = Expression::call(Function::DivideDecimal, vec![sum, count, scale()], quotient_type);
        let expressions = vec![named(11, int64(8)), named(12, quotient)];
        let projected = Operator::Project { input: Relation::new(grouped, 1.0), expressions };
        let build = scan_below(&few, 40, -400);
        let root = join(JoinKind::Semi, JoinSide::Right, Relation::new(projected, 1.0), build, &[(11, 40)]);
        let [with, without] = run_both(&root, PLENTY_BYTES);
        assert!(with.rows == without.rows && with.rows.len() > 10, "{counted}");
        assert_eq!(dropped(&with) > 0, is_dropping, "{counted}");
    }
}

#[test]
fn filters_stop_where_dropping_rows_would_change_others() {
    let fact = Table::made(shape(41, 900, 300));
    let middle = Table::made(Shape { repeated_percent: 0, ..shape(42, 300, 300) });
    let few = Table::made(Shape { repeated_percent: 0, ..shape(43, 200, 300) });
    let few_rows = below(&few.rows, -400);
    let semi = |left: Arc<Relation>, id: u32| {
        join(JoinKind::Semi, JoinSide::Right, left, scan_below(&few, 40, -400), &[(id, 40)])
    };
    // The first rows stay the first rows.
    let limited = Relation::new(
        Operator::Limit {
            input: fact.scan(0),
            offset: None,
            count: Some(Expression::literal(Value::Int(100), DataType::Int64)),
        },
        1.0,
    );
    let rows = expected(JoinKind::Semi, &fact.rows[..100], &few_rows, KEY);
    check(&semi(limited, 0), &rows, false, "limit");
    // A missing row of the other side of an outer join would give NULLs.
    for (kind, id) in [(JoinKind::Left, 4), (JoinKind::Full, 0), (JoinKind::Full, 4)] {
        let joined = join(kind, JoinSide::Right, fact.scan(0), middle.scan(4), &[(0, 4)]);
        let all = expected(kind, &fact.rows, &middle.rows, KEY);
        let place = if id == 0 { 0 } else { 4 };
        let wanted: Vec<String> =
            few_rows.iter().filter_map(|row| row.key).map(|key| key.to_string()).collect();
        let rows = all.into_iter().filter(|row| wanted.contains(&row[place])).collect();
        check(&semi(joined, id), &sorted(rows), false, &format!("{kind:?} join by column {id}"));
    }
}

#[test]
fn a_filter_that_drops_little_is_given_up() {
    let row = |key: i64| Row { key: Some(key), text: None, value: Some(0), number: key };
    let probe = Table::new((0..80_000).map(|number| row(number % 1000)).collect());
    // All keys but one.
    let build = Table::new((1..1000).map(row).collect());
    let root = join(JoinKind::Semi, JoinSide::Right, probe.scan(0), scan_below(&build, 4, 1), &[(0, 4)]);
    // As much memory as lets the rows come in more chunks than there are readers.
    let [with, without] = run_both(&root, 16 << 20);
    assert_eq!((with.rows.len(), without.rows.len()), (80_000 - 80, 80_000 - 80));
    let tested = counter(&with, "bitmap_rows_tested");
    assert!((1 << 16..80_000).contains(&tested), "{tested} rows were tested");
}

/// A table of decimals in order, with a NULL at the end.
fn decimals(precision: u8, values: impl Iterator<Item = i128>) -> (tempfile::TempDir, Arc<Relation>, u32) {
    let first = u32::from(precision) * 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.parquet");
    let values = Decimal128Array::from_iter(values.map(Some).chain([None]));
    let values: ArrayRef = Arc::new(values.with_precision_and_scale(precision, 2).unwrap());
    let batch = RecordBatch::try_from_iter([("d", values)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), Some(properties))
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let column = ScanColumn {
        id: ColumnId(first),
        name: "d".to_owned(),
        data_type: DataType::Decimal { precision, scale: 2 },
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    };
    let operator = Operator::Scan {
        table: "d".to_owned(),
        files: FileSet::parquet(vec![path.display().to_string()]),
        columns: vec![column],
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    (folder, Relation::new(operator, 1.0), first)
}

#[test]
fn decimals_are_filtered_by_value() {
    for (precision, kind) in [(15, "bitmap_rows_dropped"), (30, "bloom_rows_dropped")] {
        let (_folder, probe, id) = decimals(precision, (0..600).map(|value| value * 3));
        let (_other, build, other) = {
            let (folder, scan, _) = decimals(precision, (300..340).map(|value| value * 2));
            let data_type = DataType::Decimal { precision, scale: 2 };
            let not_null = Expression::predicate(
                Function::IsNotNull,
                vec![Expression::column(ColumnId(id), data_type.clone())],
            );
            let filtered = Relation::new(Operator::Filter { input: scan, predicate: not_null }, 1.0);
            let renamed = vec![NamedExpression {
                id: ColumnId(id + 1),
                expression: Expression::column(ColumnId(id), data_type),
            }];
            (folder, Relation::new(Operator::Project { input: filtered, expressions: renamed }, 1.0), id + 1)
        };
        let data_type = DataType::Decimal { precision, scale: 2 };
        let key = |id| Expression::column(ColumnId(id), data_type.clone());
        let operator = Operator::Join {
            kind: JoinKind::Semi,
            left: probe,
            right: build,
            keys: vec![JoinKey { left: key(id), right: key(other) }],
            residual: None,
            build: JoinSide::Right,
        };
        let values = (600..680).step_by(6).map(|value| vec![format!("{}.{:02}", value / 100, value % 100)]);
        let answer = check(&Relation::new(operator, 1.0), &sorted(values.collect()), true, kind);
        assert!(counter(&answer, kind) > 0, "{kind}");
        let pruned = counter(&answer, "row_groups_pruned_by_joins");
        // Only decimals of at most 64 bits have bounds; a row group with a single NULL matches
        // nothing.
        assert_eq!(pruned, if precision == 15 { 10 } else { 1 }, "{kind}");
    }
}
