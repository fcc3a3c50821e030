//! The option `memory`: spilling, and errors that name it.

use std::time::{Duration, Instant};

use super::*;
use pystachio_engine::ResultStream;
use pystachio_plan::{ErrorKind, JoinKey, JoinKind, JoinSide, SortKey};

/// What [`crowded_join`] needs, and nothing to spare.
const CROWDED_BYTES: u64 = 17 << 19;
/// Only a hang takes longer, whatever else the machine does.
const HANG: Duration = Duration::from_secs(300);

fn table(fixture: &Fixture, row_count: i64) -> PathBuf {
    let keys: Vec<_> = (0..row_count).map(|row| Some(row.wrapping_mul(2_654_435_761) % 1_000_003)).collect();
    let words: Vec<String> =
        (0..row_count).map(|row| format!("a word long enough for the heap, {row}")).collect();
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
    fixture.write("t", vec![("v", int64s(&keys)), ("w", texts(&words))], 50_000)
}

fn input(path: &Path, first: u32) -> Arc<Relation> {
    scan(path, &[(first, "v", DataType::Int64), (first + 1, "w", DataType::Text)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_larger_than_memory_spills() {
    let fixture = Fixture::with_memory(48 << 20, 0);
    let path = table(&fixture, 1_000_000);
    let keys = vec![SortKey { expression: column(1), descending: false, nulls_first: false }];
    let plan = Relation::new(Operator::Sort { input: input(&path, 1), keys }, 4e5);
    let answer = fixture.run(plan, &[1, 2]).await.unwrap();
    let values: Vec<i64> = answer.rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(values.len(), 1_000_000);
    assert!(values.is_sorted());
    assert!(answer.metrics.spilled_bytes > 0);
    let peak_bytes = answer.metrics.memory_peak_bytes;
    assert!(peak_bytes > 1 << 20 && peak_bytes <= 48 << 20, "{peak_bytes}");
    assert_eq!(fixture.engine.status().memory_used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_larger_than_memory_spill() {
    for estimate in [10.0, 4e5] {
        let fixture = Fixture::with_memory(24 << 20, 0);
        let path = table(&fixture, 400_000);
        let words = Expression::column(ColumnId(2), DataType::Text);
        let grouped = Operator::Aggregate {
            input: input(&path, 1),
            groups: vec![named(2, words)],
            aggregates: vec![call(3, Aggregate::Max, Some(column(1)), DataType::Int64)],
            phase: AggregatePhase::Whole,
        };
        let plan = Relation::new(grouped, estimate);
        let answer = fixture.run(plan, &[2, 3]).await.unwrap();
        assert_eq!(answer.rows.len(), 400_000);
        assert!(answer.metrics.spilled_bytes > 0);
    }
}

/// Each partition of a scan holds the column chunks of a row group, which can't be spilled: two of these would be all memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_of_large_row_groups_leave_memory_to_what_spills() {
    let fixture = Fixture::with_memory(32 << 20, 0);
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    let words: Vec<String> =
        (0..200_000).map(|_| (0..10).map(|_| format!("{:016x}", noise())).collect()).collect();
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
    let path = fixture.write("noise", vec![("w", texts(&words))], 100_000);
    let input = scan(&path, &[(1, "w", DataType::Text)]);
    let word = || Expression::column(ColumnId(1), DataType::Text);
    let different = Operator::Aggregate {
        input,
        groups: vec![named(1, word())],
        aggregates: Vec::new(),
        phase: AggregatePhase::Whole,
    };
    let counted = Operator::Aggregate {
        input: Relation::new(different, 2e5),
        groups: Vec::new(),
        aggregates: vec![call(2, Aggregate::Count, None, DataType::Int64)],
        phase: AggregatePhase::Whole,
    };
    let answer = fixture.run(Relation::new(counted, 1.0), &[2]).await.unwrap();
    assert_eq!(answer.rows, [["200000"]]);
    assert!(answer.metrics.spilled_bytes > 0);
}

/// A join whose build side takes most of the memory, so that its exchanges spill.
fn crowded_join(fixture: &Fixture) -> Arc<Relation> {
    let few = table(fixture, 200_000);
    let numbers: Vec<_> = (0..1_000_000).map(Some).collect();
    let many = fixture.write("many", vec![("v", int64s(&numbers))], 50_000);
    let side = |path: &Path, id, row_count| {
        let scan = Arc::unwrap_or_clone(scan(path, &[(id, "v", DataType::Int64)]));
        Relation::new(scan.operator, row_count)
    };
    let join = Operator::Join {
        kind: JoinKind::Inner,
        left: side(&few, 1, 2e5),
        right: side(&many, 2, 1e6),
        keys: vec![JoinKey { left: column(1), right: column(2) }],
        residual: None,
        build: JoinSide::Left,
    };
    let count = Operator::Aggregate {
        input: Relation::new(join, 2e5),
        groups: Vec::new(),
        aggregates: vec![call(3, Aggregate::Count, None, DataType::Int64)],
        phase: AggregatePhase::Whole,
    };
    Relation::new(count, 1.0)
}

/// A table joined with itself by its key.
fn joined_with_itself(path: &Path) -> Operator {
    Operator::Join {
        kind: JoinKind::Inner,
        left: input(path, 1),
        right: input(path, 3),
        keys: vec![JoinKey { left: column(1), right: column(3) }],
        residual: None,
        build: JoinSide::Right,
    }
}

/// As [`Fixture::run`], but nothing is read yet.
async fn open(fixture: &Fixture, root: Arc<Relation>, output: u32) -> Box<dyn ResultStream> {
    fixture.engine.run(fixture.request(root, &[output]), StopFlag::default()).await.unwrap()
}

/// Reads to the end, and counts the rows.
async fn row_count(stream: &mut dyn ResultStream) -> usize {
    let mut row_count = 0;
    while let Some(batch) = stream.next_batch().await.unwrap() {
        row_count += batch.num_rows();
    }
    row_count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_do_not_fit_side_by_side_wait_and_end() {
    // Two queries run at once, and each needs more than half.
    let fixture = Fixture::with_memory(256 << 20, 0);
    let words: Vec<String> = (0..400_000).map(|row| format!("{row} {}", "word".repeat(64))).collect();
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
    let keys: Vec<_> = (0..400_000).map(Some).collect();
    let path = fixture.write("t", vec![("v", int64s(&keys)), ("w", texts(&words))], 50_000);
    let join = || {
        let operator = joined_with_itself(&path);
        let longest = vec![call(
            5,
            Aggregate::Max,
            Some(Expression::column(ColumnId(4), DataType::Text)),
            DataType::Text,
        )];
        Relation::new(
            Operator::Aggregate {
                input: Relation::new(operator, 4e5),
                groups: Vec::new(),
                aggregates: longest,
                phase: AggregatePhase::Whole,
            },
            1.0,
        )
    };
    let alone = fixture.run(join(), &[5]).await.unwrap();
    assert!(alone.metrics.memory_peak_bytes > 128 << 20, "{}", alone.metrics.memory_peak_bytes);
    let answers = futures::future::join_all((0..8).map(|_| fixture.run(join(), &[5]))).await;
    for answer in answers {
        assert_eq!(answer.unwrap().rows, alone.rows);
    }
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_nobody_reads_gives_its_place_and_memory_to_others() {
    let fixture = Fixture::with_memory(24 << 20, 0);
    let path = table(&fixture, 1_000_000);
    let mut paused = Vec::new();
    for _ in 0..20 {
        // There is one place, and two of these queries fill the memory.
        let mut stream = open(&fixture, input(&path, 1), 1).await;
        assert!(stream.next_batch().await.unwrap().is_some());
        paused.push(stream);
    }
    assert_eq!(fixture.run(input(&path, 1), &[1]).await.unwrap().rows.len(), 1_000_000);
    for stream in &mut paused {
        assert_eq!(row_count(stream.as_mut()).await, 999_000);
        assert_eq!(stream.metrics().row_count, 1_000_000);
    }
    wait_for_release(&fixture).await;
    drop(paused);
    let spilled = std::fs::read_dir(fixture.folder.path().join("spill")).unwrap().count();
    assert_eq!(spilled, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_waits_is_counted_and_can_be_cancelled() {
    let fixture = Fixture::with_memory(24 << 20, 0);
    let path = table(&fixture, 100_000);
    let (held, stop) = (fixture.engine.take_place().await, StopFlag::default());
    let waiting = fixture.engine.run(fixture.request(input(&path, 1), &[1]), stop.clone());
    let cancel = async {
        while fixture.engine.status().queries_waiting == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.stop();
    };
    let (answer, ()) = tokio::join!(waiting, cancel);
    // The place is held still.
    assert_eq!(answer.err().unwrap().kind, ErrorKind::Cancelled);
    assert_eq!((fixture.engine.status().queries_waiting, fixture.engine.status().queries_running), (0, 0));
    drop(held);
    assert_eq!(fixture.run(input(&path, 1), &[1]).await.unwrap().rows.len(), 100_000);
}

/// What a query held comes back. After an error, tasks of it may be in the middle of a poll.
async fn wait_for_release(fixture: &Fixture) {
    let ended = Instant::now();
    while fixture.engine.status().memory_used_bytes > 0 {
        assert!(ended.elapsed() < HANG);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Two tasks spill for one exchange at the same time. With more than one batch in a file, one of some 30 such queries
/// never came to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_that_spill_come_to_an_end() {
    let fixture = Fixture::with_memory(CROWDED_BYTES, 0);
    let plan = crowded_join(&fixture);
    for _ in 0..60 {
        let run = fixture.run(plan.clone(), &[3]);
        let answer = tokio::time::timeout(HANG, run).await.expect("an end").unwrap();
        assert_eq!(answer.lines(), ["199999"]);
        assert!(answer.metrics.spilled_bytes > 0);
    }
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_that_spill_to_a_full_disk_are_errors() {
    let fixture = Fixture::with_full_disk(CROWDED_BYTES);
    let plan = crowded_join(&fixture);
    for _ in 0..10 {
        let run = fixture.run(plan.clone(), &[3]);
        let error = tokio::time::timeout(HANG, run).await.expect("an end").err().unwrap();
        assert_eq!(error.kind, ErrorKind::FileAccess, "{error}");
        assert!(error.message.contains("could not write"), "{error}");
    }
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_that_spills_to_a_full_disk_is_an_error() {
    let fixture = Fixture::with_full_disk(24 << 20);
    let path = table(&fixture, 400_000);
    let keys = vec![SortKey { expression: column(1), descending: false, nulls_first: false }];
    let plan = Relation::new(Operator::Sort { input: input(&path, 1), keys }, 4e5);
    let error = fixture.run(plan, &[1, 2]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::FileAccess, "{error}");
    assert!(error.message.contains("could not write"), "{error}");
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_larger_than_memory_spills() {
    let fixture = Fixture::with_memory(8 << 20, 0);
    let path = table(&fixture, 400_000);
    let operator = joined_with_itself(&path);
    let answer = fixture.run(Relation::new(operator, 4e5), &[2, 4]).await.unwrap();
    assert_eq!(answer.rows.len(), 400_000);
    assert!(answer.rows.iter().all(|row| row[0] == row[1]));
    assert!(answer.metrics.spilled_bytes > 0);
    assert!(answer.metrics.memory_peak_bytes <= 8 << 20, "{}", answer.metrics.memory_peak_bytes);
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_without_memory_say_what_it_was_for() {
    let fixture = Fixture::with_memory(16 << 20, 0);
    let path = table(&fixture, 400_000);
    let less = Expression::call(Function::Less, vec![column(1), column(3)], DataType::Bool);
    // DataFusion would read the first side once more, of which some row groups are read already.
    let pairs = Operator::Join {
        kind: JoinKind::Inner,
        left: input(&path, 1),
        right: input(&path, 3),
        keys: Vec::new(),
        residual: Some(less),
        build: JoinSide::Left,
    };
    let keys = vec![JoinKey { left: column(1), right: column(3) }];
    let (left, right) = (input(&path, 1), input(&path, 3));
    let not_in = Operator::Join {
        kind: JoinKind::NullAwareAnti,
        left,
        right,
        keys,
        residual: None,
        build: JoinSide::Left,
    };
    for (operator, purpose) in [(pairs, "a join without keys"), (not_in, "the table of a hash join")] {
        let error = fixture.run(Relation::new(operator, 4e5), &[2]).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
        assert!(error.message.contains("\"memory\""), "{error}");
        let detail = error.detail.unwrap_or_default();
        assert!(detail.contains(purpose), "{detail}");
    }
    wait_for_release(&fixture).await;
}

/// Rows of a table in the order of its keys, without the first of them.
fn page(path: &Path, offset: i64, count: i64) -> Arc<Relation> {
    let keys = vec![SortKey { expression: column(1), descending: false, nulls_first: false }];
    let sorted = Relation::new(Operator::Sort { input: input(path, 1), keys }, 4e5);
    Relation::new(
        Operator::Limit { input: sorted, offset: Some(int(offset)), count: Some(int(count)) },
        100.0,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rows_of_an_order_spill_when_they_are_many() {
    let roomy = Fixture::new();
    let expected = roomy.run(page(&table(&roomy, 400_000), 300_000, 100), &[1, 2]).await.unwrap();
    let fixture = Fixture::with_memory(16 << 20, 0);
    let path = table(&fixture, 400_000);
    let answer = fixture.run(page(&path, 300_000, 100), &[1, 2]).await.unwrap();
    assert_eq!(answer.rows, expected.rows);
    assert_eq!(answer.rows.len(), 100);
    assert!(answer.metrics.spilled_bytes > 0);
    // The first run is enough: what they could take is known before.
    assert!(answer.metrics.operators.iter().any(|operator| operator.description.contains("LimitExec")));
    wait_for_release(&fixture).await;
    // Few first rows keep the batches that they are in, of several row groups if both partitions begin at once. That is still less than all rows.
    let fixture = Fixture::with_memory(64 << 20, 0);
    let few = fixture.run(page(&table(&fixture, 400_000), 100, 100), &[1, 2]).await.unwrap();
    let peak_bytes = few.metrics.memory_peak_bytes;
    assert_eq!((few.rows.len(), few.metrics.spilled_bytes), (100, 0), "{peak_bytes} bytes");
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_rows_wider_than_expected_spill_in_a_second_run() {
    let words = |row: usize| format!("{row} {}", "long ".repeat(200));
    let write = |fixture: &Fixture| {
        let keys: Vec<_> = (0..40_000).map(|row: i64| Some(row * 7919 % 40_009)).collect();
        let words: Vec<String> = (0..40_000).map(words).collect();
        let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
        fixture.write("t", vec![("v", int64s(&keys)), ("w", texts(&words))], 2_000)
    };
    let roomy = Fixture::new();
    let expected = roomy.run(page(&write(&roomy), 20_000, 10), &[1, 2]).await.unwrap();
    let fixture = Fixture::with_memory(24 << 20, 0);
    let answer = fixture.run(page(&write(&fixture), 20_000, 10), &[1, 2]).await.unwrap();
    assert_eq!(answer.rows, expected.rows);
    assert!(answer.metrics.spilled_bytes > 0);
    wait_for_release(&fixture).await;
}

/// Aggregates with DISTINCT and without, as PostgreSQL may have them in one query.
fn mixed_aggregates(path: &Path, groups: Vec<NamedExpression>) -> Arc<Relation> {
    let text = || Some(Expression::column(ColumnId(2), DataType::Text));
    let distinct = |id, argument| AggregateCall {
        distinct: true,
        ..call(id, Aggregate::Count, argument, DataType::Int64)
    };
    let filtered = AggregateCall {
        filter: Some(compare(Function::Less, column(1), int(500_000))),
        ..distinct(14, text())
    };
    let aggregates = vec![
        call(11, Aggregate::Count, None, DataType::Int64),
        distinct(12, text()),
        distinct(13, Some(column(1))),
        filtered,
        call(15, Aggregate::Max, Some(column(1)), DataType::Int64),
        AggregateCall {
            filter: Some(compare(Function::Less, column(1), int(10))),
            ..call(16, Aggregate::Count, None, DataType::Int64)
        },
    ];
    Relation::new(
        Operator::Aggregate { input: input(path, 1), groups, aggregates, phase: AggregatePhase::Whole },
        1.0,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_values_beside_other_aggregates_spill() {
    let roomy = Fixture { in_both_forms: true, ..Fixture::with_memory(8 << 30, 0) };
    let crowded = Fixture::with_memory(24 << 20, 0);
    let odd = Expression::call(Function::Modulo, vec![column(1), int(3)], DataType::Int64);
    for (groups, outputs) in [
        (Vec::new(), [11, 12, 13, 14, 15, 16].as_slice()),
        (vec![named(10, odd)], [10, 11, 12, 13, 14, 15, 16].as_slice()),
    ] {
        let [expected, answer] = [&roomy, &crowded]
            .map(|fixture| fixture.run(mixed_aggregates(&table(fixture, 400_000), groups.clone()), outputs));
        let (expected, answer) = (expected.await.unwrap(), answer.await.unwrap());
        assert_eq!(expected.metrics.spilled_bytes, 0);
        assert!(answer.metrics.spilled_bytes > 0);
        assert_eq!(answer.sorted(), expected.sorted());
        assert!(answer.metrics.memory_peak_bytes <= 24 << 20);
    }
    wait_for_release(&crowded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_group_larger_than_memory_names_the_option() {
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(2 << 20, cache_bytes);
        let numbers: Vec<_> =
            (0..1_000_000_i64).map(|row| Some(row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64))).collect();
        let path = fixture.write("t", vec![("v", int64s(&numbers))], 1_000_000);
        let plan = scan(&path, &[(1, "v", DataType::Int64)]);
        let error = fixture.run(plan, &[1]).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
        assert!(error.message.contains("\"memory\""), "{error}");
        let status = fixture.engine.status();
        assert_eq!((status.memory_used_bytes, status.cache_used_bytes), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_scan_decodes_counts_once() {
    let fixture = Fixture::with_memory(64 << 20, 32 << 20);
    let numbers: Vec<_> = (0..1_000_000_i64).map(|row| Some(row % 1000)).collect();
    let path = fixture.write("t", vec![("v", int64s(&numbers))], 100_000);
    let plan = || scan(&path, &[(1, "v", DataType::Int64)]);
    let peaks = [
        fixture.run(plan(), &[1]).await.unwrap().metrics.memory_peak_bytes,
        fixture.run(plan(), &[1]).await.unwrap().metrics.memory_peak_bytes,
    ];
    // All row groups are in the cache after the first run, which reserved them.
    assert!(peaks[0] > 8_000_000 && peaks[0] < 12_000_000, "{peaks:?}");
    assert!(peaks[1] < 1_000_000, "{peaks:?}");
    let status = fixture.engine.status();
    assert!(status.cache_used_bytes > 8_000_000 && status.cache_used_bytes < 12_000_000, "{status:?}");
    assert_eq!(status.memory_used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cache_gives_way_to_a_query() {
    let fixture = Fixture::with_memory(64 << 20, 60 << 20);
    let numbers: Vec<_> = (0..6_000_000_i64).map(Some).collect();
    let path = fixture.write("large", vec![("v", int64s(&numbers))], 500_000);
    fixture.run(scan(&path, &[(1, "v", DataType::Int64)]), &[1]).await.unwrap();
    let before = fixture.engine.status().cache_used_bytes;
    assert!(before > 40 << 20, "{before}");
    let path = table(&fixture, 200_000);
    let operator = joined_with_itself(&path);
    let answer = fixture.run(Relation::new(operator, 2e5), &[2, 4]).await.unwrap();
    assert_eq!(answer.rows.len(), 200_000);
    let status = fixture.engine.status();
    assert!(status.cache_used_bytes < before, "{status:?}");
    assert_eq!(status.memory_used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_on_their_way_to_readers_count_and_are_few() {
    const MEMORY_BYTES: u64 = 24 << 20;
    let fixture = Fixture::with_memory(MEMORY_BYTES, 0);
    // A batch of 1000 rows takes 1 MB.
    let words: Vec<String> = (0..20_000).map(|row| format!("{row} {}", "long ".repeat(200))).collect();
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
    let path = fixture.write("t", vec![("w", texts(&words))], 1000);
    let table = || scan(&path, &[(1, "w", DataType::Text)]);
    let mut paused = Vec::new();
    for _ in 0..40 {
        let mut stream = open(&fixture, table(), 1).await;
        assert!(stream.next_batch().await.unwrap().is_some());
        paused.push(stream);
    }
    // No other user holds memory when this has ended.
    assert_eq!(fixture.run(table(), &[1]).await.unwrap().rows.len(), 20_000);
    let waiting = Instant::now();
    let mut used = fixture.engine.status().memory_used_bytes;
    while used > MEMORY_BYTES / 2 && waiting.elapsed() < HANG {
        tokio::time::sleep(Duration::from_millis(10)).await;
        used = fixture.engine.status().memory_used_bytes;
    }
    assert!(used > 40 * (64 << 10) && used <= MEMORY_BYTES / 2, "{used}");
    for stream in &mut paused {
        row_count(stream.as_mut()).await;
        assert_eq!(stream.metrics().row_count, 20_000);
    }
    wait_for_release(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_footer_larger_than_memory_names_the_file_and_the_option() {
    let fixture = Fixture::with_memory(2 << 20, 1 << 20);
    let numbers: Vec<_> = (0..8000).map(Some).collect();
    let few = fixture.write("few", vec![("v", int64s(&numbers))], 1000);
    let path = fixture.write("many", vec![("v", int64s(&numbers))], 1);
    let table = |path: &Path| scan(path, &[(1, "v", DataType::Int64)]);
    assert_eq!(fixture.run(table(&few), &[1]).await.unwrap().rows.len(), 8000);
    assert!(fixture.engine.catalog().kept_bytes() > 0);
    let error = fixture.run(table(&path), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
    assert!(error.message.contains("many.parquet") && error.message.contains("\"memory\""), "{error}");
    // Nothing of it stays, and what was kept has given way.
    assert_eq!((fixture.engine.catalog().kept_bytes(), fixture.engine.status().memory_used_bytes), (0, 0));
    assert_eq!(fixture.run(table(&few), &[1]).await.unwrap().rows.len(), 8000);
    let roomy = Fixture::new();
    let path = roomy.write("many", vec![("v", int64s(&numbers))], 1);
    assert_eq!(roomy.run(table(&path), &[1]).await.unwrap().rows.len(), 8000);
}
