//! Window functions, with memory for all rows and for few of them.

use std::collections::BTreeMap;

use pystachio_plan::{
    ErrorKind, FrameBound, FrameExclusion, FrameUnit, SortKey, WindowCall, WindowFrame, WindowFunction,
};

use super::*;

const SUM: DataType = DataType::Decimal { precision: 38, scale: 0 };

fn call(
    id: u32,
    function: WindowFunction,
    argument: Option<Expression>,
    frame: WindowFrame,
    data_type: DataType,
) -> WindowCall {
    WindowCall { id: ColumnId(id), function, argument, frame, data_type }
}

fn rows(start: FrameBound, end: FrameBound) -> WindowFrame {
    WindowFrame { unit: FrameUnit::Rows, start, end, exclude: FrameExclusion::Nothing }
}

fn ascending(expression: Expression) -> SortKey {
    SortKey { expression, descending: false, nulls_first: false }
}

fn window(
    input: Arc<Relation>,
    partition: Vec<Expression>,
    order: Vec<SortKey>,
    calls: Vec<WindowCall>,
) -> Arc<Relation> {
    Relation::new(Operator::Window { input, partition, order, calls }, 1.0)
}

/// By key, in the order of the rows' numbers: a number, the text before, a sum so far, and the greatest of some texts.
fn numbered(table: &Table, partition: Vec<Expression>) -> Arc<Relation> {
    let calls = vec![
        call(10, WindowFunction::RowNumber, None, WindowFrame::whole(), DataType::Int64),
        call(11, WindowFunction::Lag(1), Some(text(1)), WindowFrame::whole(), DataType::Text),
        call(
            12,
            WindowFunction::Aggregate(Aggregate::Sum),
            Some(int64(2)),
            rows(FrameBound::Unbounded, FrameBound::Current),
            SUM,
        ),
        call(
            13,
            WindowFunction::Aggregate(Aggregate::Max),
            Some(text(1)),
            rows(FrameBound::Preceding(2), FrameBound::Following(1)),
            DataType::Text,
        ),
    ];
    window(table.scan(0), partition, vec![ascending(int64(3))], calls)
}

/// The same of a partition's rows in order.
fn numbered_rows(partition: &[&Row]) -> Vec<Vec<String>> {
    let mut sum = None;
    let mut found = Vec::new();
    for (place, row) in partition.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| partition[before].text.clone());
        sum = row.value.map_or(sum, |value| Some(sum.unwrap_or(0) + value));
        let frame = &partition[place.saturating_sub(2)..(place + 2).min(partition.len())];
        let greatest = frame.iter().filter_map(|row| row.text.clone()).max();
        let own = [(place + 1).to_string(), shown(&before), shown(&sum), shown(&greatest)];
        found.push(shown_row(row).into_iter().chain(own).collect());
    }
    found
}

fn by_key(table: &Table) -> BTreeMap<Option<i64>, Vec<&Row>> {
    let mut partitions: BTreeMap<Option<i64>, Vec<&Row>> = BTreeMap::new();
    for row in &table.rows {
        partitions.entry(row.key).or_default().push(row);
    }
    partitions
}

/// The largest partition has one of a hundred rows, or so many.
fn table(key_count: u64, largest_percent: u64) -> Table {
    let (repeated_percent, null_percent) = (largest_percent, 1);
    Table::made(Shape { seed: 43, row_count: 20_000, key_count, repeated_percent, null_percent })
}

#[test]
fn partitions_are_computed_part_by_part_where_memory_is_short() {
    for (key_count, largest_percent) in [(300, 0), (15_000, 0), (15_000, 2)] {
        let table = table(key_count, largest_percent);
        let expected = by_key(&table).values().flat_map(|rows| numbered_rows(rows)).collect();
        let context = format!("keys={key_count}, largest={largest_percent}");
        let run = Run { parts: &[3], in_order: false, context: &context };
        check(|| plan(numbered(&table, vec![int64(0)])), table.bytes(), expected, run);
    }
}

#[test]
fn a_partition_that_does_not_fit_is_refused() {
    let table = table(1, 90);
    let fixture = Fixture::new(table.bytes() / 12);
    let error = fixture.run(plan(numbered(&table, vec![int64(0)]))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.message.starts_with("a partition of a window does not fit"), "{error}");
    // Without keys there is nothing to divide rows by.
    let error = fixture.run(plan(numbered(&table, Vec::new()))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.message.starts_with("all rows of a window without PARTITION BY do not fit"), "{error}");
}

#[test]
fn all_rows_are_a_partition_without_keys() {
    let table = table(300, 0);
    let expected = numbered_rows(&table.rows.iter().collect::<Vec<_>>());
    let run = Run { parts: &[], in_order: true, context: "no keys" };
    check(|| plan(numbered(&table, Vec::new())), table.bytes(), expected, run);
}

/// Above it a window of the same partition: the sum, and the greatest number of the first window.
fn summed(input: Arc<Relation>, order: Vec<SortKey>) -> Arc<Relation> {
    let whole = WindowFrame::whole;
    let calls = vec![
        call(20, WindowFunction::Aggregate(Aggregate::Sum), Some(int64(2)), whole(), SUM),
        call(21, WindowFunction::Aggregate(Aggregate::Max), Some(int64(10)), whole(), DataType::Int64),
    ];
    window(input, vec![int64(0)], order, calls)
}

#[test]
fn windows_of_one_order_sort_once() {
    let table = table(300, 0);
    let mut expected = Vec::new();
    for partition in by_key(&table).values() {
        let sum: i64 = partition.iter().filter_map(|row| row.value).sum();
        let sum = if partition.iter().any(|row| row.value.is_some()) { Some(sum) } else { None };
        let own = [shown(&sum), partition.len().to_string()];
        let rows = numbered_rows(partition).into_iter();
        expected.extend(rows.map(|row| row.into_iter().chain(own.clone()).collect::<Vec<_>>()));
    }
    let expected = sorted(expected);
    let first = || numbered(&table, vec![int64(0)]);
    let sorts = |plan: Plan| {
        let platform = Watched::new(|_| Ok(()));
        let answer = Fixture::over(platform.clone(), PLENTY_BYTES).run(plan).unwrap();
        (answer, platform.calls.count("encode_sort_words"))
    };
    let (_, of_first) = sorts(plan(first()));
    let (answer, of_both) = sorts(plan(summed(first(), Vec::new())));
    assert_eq!(sorted(answer.rows), expected);
    assert!(of_both == of_first && of_first > 0, "{of_both} {of_first}");
    // Both count their rows.
    let windows = answer.metrics.operators.iter().filter(|operator| operator.description == "Window");
    let counts: Vec<_> = windows.map(|operator| operator.row_count).collect();
    assert_eq!(counts, [Some(20_000); 2]);
    // The other way round each has its own order.
    let other = vec![ascending(int64(2))];
    let (answer, of_two) = sorts(plan(summed(first(), other)));
    assert_eq!(sorted(answer.rows), expected);
    assert!(of_two > of_first, "{of_two} {of_first}");
    let run = Run { parts: &[3], in_order: false, context: "two windows" };
    check(|| plan(summed(first(), Vec::new())), table.bytes(), expected, run);
}

#[test]
fn nothing_comes_of_no_rows() {
    let table = Table::new(Vec::new());
    let answer = Fixture::new(PLENTY_BYTES).run(plan(numbered(&table, vec![int64(0)]))).unwrap();
    assert_eq!(answer.rows, Vec::<Vec<String>>::new());
}

#[test]
fn a_cancel_is_seen_between_the_launches_of_a_window() {
    let table = table(300, 0);
    let stop = StopFlag::default();
    let make = || plan(numbered(&table, vec![int64(0)]));
    let all = Watched::new(|_| Ok(()));
    Fixture::over(all.clone(), PLENTY_BYTES).run(make()).unwrap();
    let of_all = all.calls.launches();
    let cancel = stop.clone();
    let platform = Watched::new(move |calls| {
        if calls.count("find_frames") > 0 {
            cancel.stop();
        }
        Ok(())
    });
    let error = Fixture::over(platform.clone(), PLENTY_BYTES).run_until(make(), stop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled, "{error}");
    assert_eq!(platform.calls.count("find_frames"), 1);
    assert!(platform.calls.launches() < of_all, "{} of {of_all}", platform.calls.launches());
}
