//! The cost of a query whose data is many times the memory: counted, not timed.

use std::{collections::HashMap, sync::atomic::AtomicU64};

use pystachio_plan::{AggregatePhase, Function, JoinKey, JoinKind, JoinSide, NamedExpression, Value};

use super::*;
use crate::operation::SLICES;

const PAGES: usize = 100;
/// Readers of the GPU; more of them must not mean smaller pieces.
const READERS: usize = 12;

/// One row group with so many pages in every column.
fn table(seed: u64, row_count: usize) -> Table {
    let shape = Shape { seed, row_count, key_count: 20_000, repeated_percent: 0, null_percent: 2 };
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(row_count / PAGES)
        .set_write_batch_size(row_count / PAGES)
        .set_column_dictionary_enabled("key".into(), false)
        .set_column_dictionary_enabled("number".into(), false)
        .build();
    Table::written(std::env::temp_dir(), shape.rows(), properties)
}

fn file_bytes(table: &Table) -> u64 {
    table.path.metadata().unwrap().len()
}

/// How many rows there are, and the sum of column 3.
fn summed(input: Arc<Relation>) -> Plan {
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    let operator = Operator::Aggregate {
        input,
        groups: Vec::<NamedExpression>::new(),
        aggregates: vec![
            aggregate_call(201, Aggregate::Count, None, DataType::Int64),
            aggregate_call(202, Aggregate::Sum, Some(int64(3)), wide),
        ],
        phase: AggregatePhase::Whole,
    };
    plan(Relation::new(operator, 1.0))
}

fn expected<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<String>> {
    let (count, sum) = rows.fold((0, 0), |(count, sum), row| (count + 1, sum + row.number));
    vec![vec![count.to_string(), sum.to_string()]]
}

/// Rows with a value below a limit.
fn below(table: &Table, limit: i64) -> Arc<Relation> {
    let limit = Expression::literal(Value::Int(limit), DataType::Int64);
    table.filtered(0, &[Expression::predicate(Function::Less, vec![int64(2), limit])])
}

#[test]
fn pieces_of_a_row_group_share_few_pages() {
    let table = table(101, 40_000);
    let wanted = expected(table.rows.iter().filter(|row| row.value.is_some_and(|value| value < 400)));
    let platform = Watched::with_readers(READERS, |_| Ok(()));
    let fixture = Fixture::over(platform, file_bytes(&table) / 3);
    let answer = fixture.run(summed(below(&table, 400))).unwrap();
    assert_eq!(answer.rows, wanted);
    // Of the two columns that are read; every piece ends where pages do.
    assert_eq!(counter(&answer, "pages_decoded"), 2 * PAGES as u64);
    // The dictionary of one of them comes with every piece.
    assert!(counter(&answer, "bytes_read") <= 2 * file_bytes(&table), "{answer:?}");
}

#[test]
fn pages_that_do_not_fit_decoded_are_loaded_once() {
    let table = table(102, 60_000);
    let platform = Watched::with_readers(READERS, |_| Ok(()));
    let fixture = Fixture::over(platform, file_bytes(&table) / 16);
    let answer = fixture.run(summed(below(&table, 400))).unwrap();
    let wanted = expected(table.rows.iter().filter(|row| row.value.is_some_and(|value| value < 400)));
    assert_eq!(answer.rows, wanted);
    assert!(counter(&answer, "pages_decoded") > 4 * PAGES as u64, "a page fits as a whole: {answer:?}");
    assert!(counter(&answer, "bytes_read") <= 2 * file_bytes(&table), "{answer:?}");
}

#[test]
fn a_join_writes_rows_once_and_in_blocks() {
    let (probe, build) = (table(103, 40_000), table(104, 20_000));
    let rows: HashMap<i64, usize> =
        build.rows.iter().filter_map(|row| row.key).fold(HashMap::new(), |mut counts, key| {
            *counts.entry(key).or_default() += 1;
            counts
        });
    let matching = |row: &&Row| row.key.map_or(0, |key| rows.get(&key).copied().unwrap_or(0));
    let wanted = expected(probe.rows.iter().flat_map(|row| std::iter::repeat_n(row, matching(&row))));
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left: probe.scan(0),
        right: build.scan(4),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }],
        residual: None,
        build: JoinSide::Right,
    };
    let platform = Watched::with_readers(READERS, |_| Ok(()));
    let fixture = Fixture::over(platform.clone(), file_bytes(&probe) / 4);
    let answer = fixture.run(summed(Relation::new(operator, 1.0))).unwrap();
    assert_eq!(answer.rows, wanted);
    let written = answer.metrics.spilled_bytes;
    // Keys with their validity, and the probe side's numbers.
    let once = (40_000 * (9 + 8) + 20_000 * 9) as u64;
    assert!(written > once / 2 && written <= once, "{written} of {once}");
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(count(&platform.calls.returned_copies) < 2000, "{}", count(&platform.calls.returned_copies));
}

/// As much memory for each build row as a GPU of 80 GB has that is one of the ranks of a join with
/// 400 million.
#[test]
fn a_build_side_that_fits_beside_its_table_is_not_spilled() {
    const ROWS: usize = 60_000;
    let (probe, build) = (table(107, ROWS), table(108, ROWS));
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left: probe.scan(0),
        right: build.scan(4),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }],
        residual: None,
        build: JoinSide::Right,
    };
    let make = || summed(Relation::new(operator.clone(), 1.0));
    let platform = Watched::with_readers(READERS, |_| Ok(()));
    let answer = Fixture::over(platform, 135 * ROWS as u64).run(make()).unwrap();
    assert_eq!(answer.metrics.spilled_bytes, 0, "{answer:?}");
    assert_eq!(answer.rows, Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
}

/// The keys of a spilled build side are still known: scans drop rows of the probe side without a
/// match, which then are not spilled.
#[test]
fn a_build_side_that_was_spilled_filters_the_probe_side() {
    const KEYS: i64 = 4000;
    let (probe, build) = (table(105, 40_000), table(106, 60_000));
    let few = |first| {
        let limit = Expression::literal(Value::Int(KEYS), DataType::Int64);
        Expression::predicate(Function::Less, vec![int64(first), limit])
    };
    let mut rows: HashMap<i64, usize> = HashMap::new();
    for key in build.rows.iter().filter_map(|row| row.key).filter(|key| *key < KEYS) {
        *rows.entry(key).or_default() += 1;
    }
    let matches = |row: &&Row| row.key.map_or(0, |key| rows.get(&key).copied().unwrap_or(0));
    let wanted = expected(probe.rows.iter().flat_map(|row| std::iter::repeat_n(row, matches(&row))));
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left: probe.scan(0),
        right: build.filtered(4, &[few(4)]),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }],
        residual: None,
        build: JoinSide::Right,
    };
    let plan = summed(Relation::new(operator, 1.0));
    let fixture = Fixture::new(file_bytes(&probe) / 5);
    let with = fixture.run(plan.clone()).unwrap();
    assert_eq!(with.rows, wanted);
    let off = DeviceSettings { runtime_filters: false, ..DeviceSettings::default() };
    let without = fixture.run_with(plan, off).unwrap();
    assert_eq!(without.rows, wanted);
    let build_rows: usize = rows.values().sum();
    let once = |rows: usize| (rows * (9 + 8) + build_rows * 9) as u64;
    let found = probe.rows.iter().filter(|row| matches(row) > 0).count();
    assert_eq!(counter(&with, "bitmap_rows_dropped"), (probe.rows.len() - found) as u64);
    assert!(with.metrics.spilled_bytes > 0 && with.metrics.spilled_bytes <= once(found), "{with:?}");
    assert!(without.metrics.spilled_bytes > once(found), "{without:?}");
}

/// Partial results of few groups are merged before their text is copied, and parts of chunks are
/// not copied.
#[test]
fn few_groups_of_many_parts_copy_little() {
    let table = table(107, 40_000);
    let mut groups: HashMap<Option<&str>, (i64, i64)> = HashMap::new();
    for row in &table.rows {
        let group = groups.entry(row.text.as_deref()).or_default();
        *group = (group.0 + 1, group.1 + row.number);
    }
    let shown_group = |(text, (count, sum)): (Option<&str>, (i64, i64))| {
        vec![shown(&text), count.to_string(), sum.to_string()]
    };
    let wanted = sorted(groups.into_iter().map(shown_group).collect());
    let operator = Operator::Aggregate {
        input: table.scan(0),
        groups: vec![NamedExpression { id: ColumnId(100), expression: text(1) }],
        aggregates: vec![
            aggregate_call(201, Aggregate::Count, None, DataType::Int64),
            aggregate_call(
                202,
                Aggregate::Sum,
                Some(int64(3)),
                DataType::Decimal { precision: 38, scale: 0 },
            ),
        ],
        phase: AggregatePhase::Whole,
    };
    let platform = Watched::new(|_| Ok(()));
    let fixture = Fixture::over(platform.clone(), file_bytes(&table) / 4);
    let answer = fixture.run(plan(Relation::new(operator, 1.0))).unwrap();
    assert_eq!(sorted(answer.rows), wanted);
    let [parts, copies, slices] =
        ["assign_groups", "copy_strings", SLICES].map(|launches| platform.calls.count(launches));
    assert!(parts > 20, "{parts}");
    assert!(copies * 3 <= parts, "{copies} of {parts}");
    assert_eq!(slices, 0);
}
