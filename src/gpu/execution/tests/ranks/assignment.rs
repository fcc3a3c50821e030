//! Which rows of a table ranks have, and keep.

use std::sync::atomic::AtomicBool;

use parquet::file::properties::EnabledStatistics;
use pystachio_plan::{ExchangeTraffic, OperatorMetrics};

use super::*;

const ROW_COUNT: usize = 12_000;

/// A table in one row group, with pages of so many rows.
fn table(seed: u64, page_rows: usize, has_index: bool) -> Table {
    table_of(ROW_COUNT, seed, page_rows, has_index)
}

fn table_of(row_count: usize, seed: u64, page_rows: usize, has_index: bool) -> Table {
    let shape = Shape { seed, row_count, key_count: 400, repeated_percent: 3, null_percent: 5 };
    let level = if has_index { EnabledStatistics::Page } else { EnabledStatistics::None };
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .set_statistics_enabled(level)
        .set_offset_index_disabled(!has_index)
        // Every rank reads a dictionary, and one of different values is as large as they are.
        .set_column_dictionary_enabled("number".into(), false);
    Table::written(std::env::temp_dir(), shape.rows(), properties.build())
}

fn ranks(rank_count: usize, seed: Option<u64>) -> RankedFixture {
    RankedFixture::new(RankShape { seed, cache_bytes: 8 << 20, ..RankShape::new(rank_count) })
}

/// Bytes read, and bytes that came from the devices' caches.
fn sources(answer: &Answer) -> [u64; 2] {
    ["bytes_read", "bytes_cached"].map(|name| counter(answer, name))
}

#[test]
fn a_table_of_one_row_group_is_on_all_ranks_and_stays_there() {
    for (rank_count, page_rows, has_index, seed) in
        [(2, 700, true, None), (3, 1100, false, Some(5)), (4, 700, true, Some(6)), (4, 100_000, true, None)]
    {
        let context = format!("{rank_count} ranks, pages of {page_rows}, index {has_index}");
        let (table, fixture) = (table(91, page_rows, has_index), ranks(rank_count, seed));
        let first = fixture.run(plan(table.scan(0))).unwrap();
        let given = |exchange: &ExchangeTraffic| exchange.sent_rows + exchange.kept_rows;
        let sent: Vec<u64> = first.metrics.exchanges.iter().map(given).collect();
        assert_eq!(sent.iter().sum::<u64>(), ROW_COUNT as u64, "{context}: {sent:?}");
        let share = (ROW_COUNT / rank_count) as u64;
        assert!(sent.iter().all(|rows| share.abs_diff(*rows) <= share / 8), "{context}: {sent:?}");
        assert_eq!(
            sorted(first.rows.clone()),
            sorted(table.rows.iter().map(shown_row).collect()),
            "{context}"
        );
        // A page of two ranks is read by both, and a dictionary by all.
        let (file_bytes, [read, _]) = (std::fs::metadata(&table.path).unwrap().len(), sources(&first));
        let read_max =
            if page_rows > ROW_COUNT { file_bytes * rank_count as u64 } else { file_bytes * 3 / 2 };
        assert!(read <= read_max, "{context}: {read} bytes of {file_bytes}");
        let again = fixture.run(plan(table.scan(0))).unwrap();
        let [read, cached] = sources(&again);
        assert!(read == 0 && cached > file_bytes / 2, "{context}: {read} read, {cached} cached");
        assert_eq!(
            sorted(again.rows.clone()),
            sorted(table.rows.iter().map(shown_row).collect()),
            "{context}"
        );
    }
}

#[test]
fn what_one_rank_has_of_all_rows_serves_its_part_of_them() {
    let table = table(92, 700, true);
    let fixture = ranks(2, None);
    let alone = fixture.engine.first();
    let answer = fixture.runtime.block_on(async {
        let mut stream = alone.run(request(plan(table.scan(0))), StopFlag::default()).await.unwrap();
        while stream.next_batch().await.unwrap().is_some() {}
        stream.metrics()
    });
    assert!(answer.bytes_read > 0);
    fixture.wait_idle();
    let shared = fixture.run(plan(table.scan(0))).unwrap();
    // Rank 1 alone reads.
    let [read, _] = sources(&shared);
    let file_bytes = std::fs::metadata(&table.path).unwrap().len();
    assert!(read > 0 && read < file_bytes * 3 / 4, "{read} of {file_bytes}");
    assert_eq!(sorted(shared.rows.clone()), sorted(table.rows.iter().map(shown_row).collect()));
}

#[test]
fn conditions_and_pieces_are_of_the_rows_of_a_rank() {
    const ROWS: usize = 60_000;
    let table = table_of(ROWS, 93, 300, true);
    let number = Expression::column(ColumnId(3), DataType::Int64);
    let below = |value: i64| {
        let value = Expression::literal(pystachio_plan::Value::Int(value), DataType::Int64);
        Expression::predicate(pystachio_plan::Function::Less, vec![number.clone(), value])
    };
    let little_bytes = 3 << 20;
    for (count, memory_bytes) in
        [(0, PLENTY_BYTES / 4), (10, PLENTY_BYTES / 4), (7000, little_bytes), (ROWS as i64, little_bytes)]
    {
        let fixture = RankedFixture::new(RankShape { memory_bytes, ..RankShape::new(3) });
        let answer = fixture.run(plan(table.filtered(0, &[below(count)]))).unwrap();
        let expected = table.rows.iter().filter(|row| row.number < count).map(shown_row).collect();
        // Three ranks have the rows of four columns each.
        let loads = answer.metrics.cache_misses;
        assert!(count < ROWS as i64 || loads > 3 * 4, "not in pieces: {loads} loads");
        assert_eq!(sorted(answer.rows), sorted(expected), "below {count}");
    }
}

/// A table whose ranks have a file each, of so many rows, and what all of them have.
fn table_of_ranks(row_counts: &[usize]) -> (Table, Vec<Vec<String>>) {
    let mut tables: Vec<Table> = (0..)
        .zip(row_counts)
        .map(|(seed, row_count)| {
            Table::made(Shape {
                seed: 100 + seed,
                row_count: *row_count,
                key_count: 400,
                repeated_percent: 3,
                null_percent: 5,
            })
        })
        .collect();
    let rows = tables.iter().flat_map(|table| &table.rows).map(shown_row).collect();
    let mut all = tables.remove(0);
    let path = all.path.with_file_name("{rank}.parquet");
    std::fs::rename(&all.path, path.with_file_name("0.parquet")).unwrap();
    for (rank, table) in (1..).zip(&tables) {
        std::fs::rename(&table.path, path.with_file_name(format!("{rank}.parquet"))).unwrap();
    }
    all.path = path;
    (all, sorted(rows))
}

#[test]
fn a_rank_reads_the_files_of_its_own() {
    let row_counts = [900, 2700, 10];
    let (table, expected) = table_of_ranks(&row_counts);
    // However small the table is.
    let options = RankedOptions::of(RankPolicy::All);
    let fixture = RankedFixture::new(RankShape { options, ..RankShape::new(3) });
    let answer = fixture.run(plan(table.scan(0))).unwrap();
    let given = |exchange: &ExchangeTraffic| (exchange.rank, exchange.kept_rows, exchange.sent_rows);
    let mut given: Vec<(u32, u64, u64)> = answer.metrics.exchanges.iter().map(given).collect();
    given.sort_unstable();
    assert_eq!(given, [(0, 900, 0), (1, 0, 2700), (2, 0, 10)]);
    assert_eq!(sorted(answer.rows), expected);
    // If rank 0 alone is faster, it reads the files of all ranks.
    let fixture = RankedFixture::new(RankShape {
        options: RankedOptions::of(RankPolicy::Fastest),
        ..RankShape::new(3)
    });
    let answer = fixture.run(plan(table.scan(0))).unwrap();
    assert!(!is_distributed(&answer));
    assert_eq!(sorted(answer.rows), expected);
    // A rank without files of its own is an error, and not a table of fewer rows.
    let error = RankedFixture::new(RankShape::new(4)).run(plan(table.scan(0))).unwrap_err();
    assert_eq!(error.kind, pystachio_plan::ErrorKind::FileNotFound);
    assert!(error.message.contains("/3.parquet"), "{error}");
}

/// Tables in the order of their numbers, of which `repeated` rows in a row have the same, in row groups of so many rows.
fn in_order(row_count: usize, repeated: i64, row_group_rows: usize) -> Table {
    let shape = Shape { seed: 97, row_count, key_count: 400, repeated_percent: 3, null_percent: 5 };
    let mut rows = shape.rows();
    rows.iter_mut().for_each(|row| row.number /= repeated);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group_rows))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(100);
    Table::written(std::env::temp_dir(), rows, properties.build())
}

#[test]
fn tables_in_the_order_of_a_join_key_are_cut_at_the_same_values() {
    // Rows of one number lie across row groups of the first table, and row groups of the second across cuts.
    let (items, orders) = (in_order(12_000, 4, 501), in_order(3_000, 1, 100));
    let number = |first: u32| Expression::column(ColumnId(first + 3), DataType::Int64);
    let count = AggregateCall {
        id: ColumnId(40),
        function: Aggregate::Count,
        argument: None,
        distinct: false,
        filter: None,
        data_type: DataType::Int64,
        order: Vec::new(),
    };
    for (kind, rank_count) in JOIN_KINDS.into_iter().zip([2, 3, 4].into_iter().cycle()) {
        let below = Expression::literal(pystachio_plan::Value::Int(200), DataType::Int64);
        let key = Expression::column(ColumnId(10), DataType::Int64);
        let condition = Expression::predicate(pystachio_plan::Function::Less, vec![key, below]);
        let sides = [items.scan(0), orders.filtered(10, &[condition])];
        let joined = joined(kind, sides, &[(number(0), number(10))], JoinSide::Right);
        // Neither side alone decides where a row of a full join is.
        let groups = [(30, number(0))];
        let groups = if kind == JoinKind::Full { &[][..] } else { &groups };
        let grouped = aggregated(joined, groups, vec![count.clone()], 3_000.0);
        let expected = Fixture::new(PLENTY_BYTES).run(plan(grouped.clone())).unwrap();
        // Only the cost of a shuffle decides here.
        let costs = ExchangeCosts { link_bytes_per_s: 1e3, ..on_all().costs };
        let options = RankedOptions { costs, ..on_all() };
        let fixture = RankedFixture::new(RankShape { options, ..RankShape::new(rank_count) });
        let answer = fixture.run(plan(grouped)).unwrap();
        assert_eq!(sorted(answer.rows.clone()), sorted(expected.rows), "{kind:?} on {rank_count} ranks");
        // NOT IN needs all rows.
        if kind != JoinKind::NullAwareAnti {
            assert!(has_ranges(&answer), "{kind:?}");
            let of_rows = |operator: &&OperatorMetrics| {
                let moves =
                    ["Shuffle", "Broadcast"].iter().any(|word| operator.description.starts_with(word));
                moves && operator.row_count.is_some_and(|rows| rows > 100)
            };
            assert_eq!(answer.metrics.operators.iter().filter(of_rows).count(), 0, "{kind:?}");
            // At most both ranks read the pages of a row group across a cut.
            let file_bytes = [&items, &orders].map(|table| std::fs::metadata(&table.path).unwrap().len());
            let [read, _] = sources(&answer);
            assert!(read < file_bytes.iter().sum::<u64>() * 3 / 2, "{read} of {file_bytes:?}");
        }
    }
}

#[test]
fn what_conditions_leave_of_a_table_in_order_is_on_all_ranks() {
    const ROWS: i64 = 60_000;
    let table = in_order(ROWS as usize, 1, 3_000);
    let number = Expression::column(ColumnId(3), DataType::Int64);
    let first = Expression::literal(pystachio_plan::Value::Int(ROWS * 9 / 10), DataType::Int64);
    let last = Expression::predicate(pystachio_plan::Function::GreaterEqual, vec![number, first]);
    let fixture = ranks(2, None);
    for conditions in [vec![], vec![last]] {
        let answer = fixture.run(plan(table.filtered(0, &conditions))).unwrap();
        let given = |exchange: &ExchangeTraffic| exchange.sent_rows + exchange.kept_rows;
        let given: Vec<u64> = answer.metrics.exchanges.iter().map(given).collect();
        let total: u64 = given.iter().sum();
        assert_eq!(total as i64, if conditions.is_empty() { ROWS } else { ROWS / 10 });
        assert!(given.iter().all(|rows| rows.abs_diff(total / 2) <= total / 16), "{given:?}");
    }
}

#[test]
fn ranks_read_one_state_of_files_that_are_replaced() {
    const QUERIES: usize = 60;
    let other = Shape { seed: 96, row_count: 3000, key_count: 400, repeated_percent: 3, null_percent: 5 };
    let states = [table(95, 700, true), Table::made(other)];
    let read = Table::new(states[0].rows.clone());
    let expected = states.each_ref().map(|state| sorted(state.rows.iter().map(shown_row).collect()));
    let options = RankedOptions::of(RankPolicy::All);
    let fixture = RankedFixture::new(RankShape { options, ..RankShape::new(3) });
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let replace = || {
            for state in states.iter().cycle() {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                let next = read.path.with_extension("next");
                std::fs::copy(&state.path, &next).unwrap();
                std::fs::rename(&next, &read.path).unwrap();
            }
        };
        scope.spawn(replace);
        let answers = (0..QUERIES).map(|_| fixture.run(plan(read.scan(0))));
        let answers: Vec<Answer> = answers.filter_map(Result::ok).collect();
        has_ended.store(true, Ordering::Relaxed);
        assert!(answers.len() > QUERIES / 4, "{} answers", answers.len());
        for (number, answer) in answers.into_iter().enumerate() {
            assert!(expected.contains(&sorted(answer.rows)), "answer {number} is of no state");
        }
    });
}
