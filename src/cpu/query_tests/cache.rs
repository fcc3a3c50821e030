//! The column cache: hits, eviction, and files that change.

use super::*;

fn numbers(first: i64, count: i64) -> ArrayRef {
    int64s(&(first..first + count).map(Some).collect::<Vec<_>>())
}

fn input(path: &Path) -> Arc<Relation> {
    scan(path, &[(1, "v", DataType::Int64), (2, "w", DataType::Int64)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_read_comes_from_the_cache() {
    let fixture = Fixture::with_memory(1 << 30, 64 << 20);
    let path = fixture.write("t", vec![("v", numbers(0, 5000)), ("w", numbers(7, 5000))], 1000);
    let first = fixture.run(input(&path), &[1]).await.unwrap();
    assert_eq!((first.metrics.cache_hits, first.metrics.cache_misses), (0, 5));
    assert!(first.metrics.bytes_read > 0);
    let second = fixture.run(input(&path), &[1, 2]).await.unwrap();
    assert_eq!((second.metrics.cache_hits, second.metrics.cache_misses), (5, 5));
    let third = fixture.run(input(&path), &[2, 1]).await.unwrap();
    assert_eq!((third.metrics.cache_hits, third.metrics.bytes_read), (10, 0));
    assert_eq!(third.sorted().len(), 5000);
    let entries = fixture.engine.cache().await;
    let shown: Vec<_> = entries.iter().map(|entry| (entry.column.as_str(), entry.row_group_count)).collect();
    assert_eq!(shown, [("v", 5), ("w", 5)]);
    assert_eq!(
        entries.iter().map(|entry| entry.memory_bytes).sum::<u64>(),
        fixture.engine.status().cache_used_bytes
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_too_small_evicts_and_stays_within_its_budget() {
    let fixture = Fixture::with_memory(1 << 30, 100_000);
    let path = fixture.write("t", vec![("v", numbers(0, 10_000)), ("w", numbers(0, 10_000))], 1000);
    for _ in 0..3 {
        let answer = fixture.run(input(&path), &[1, 2]).await.unwrap();
        assert_eq!(answer.rows.len(), 10_000);
        let used = fixture.engine.status().cache_used_bytes;
        assert!(used > 50_000 && used <= 100_000, "{used}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_table_larger_than_the_cache_the_same_row_groups_stay() {
    let fixture = Fixture { in_both_forms: false, ..Fixture::with_memory(1 << 30, 100_000) };
    let path = fixture.write("t", vec![("v", numbers(0, 10_000)), ("w", numbers(0, 10_000))], 1000);
    let other = fixture.write("other", vec![("v", numbers(0, 10_000)), ("w", numbers(0, 10_000))], 1000);
    // Each table takes 160 kB, a chunk more than 8 kB.
    for table in [&path, &other, &path] {
        fixture.run(input(table), &[1, 2]).await.unwrap();
        for _ in 0..3 {
            let again = fixture.run(input(table), &[1, 2]).await.unwrap();
            assert_eq!(again.metrics.cache_hits + again.metrics.cache_misses, 20);
            assert!((8..=12).contains(&again.metrics.cache_hits), "{}", again.metrics.cache_hits);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_larger_than_the_cache_is_read_and_not_kept() {
    let fixture = Fixture::with_memory(1 << 30, 1000);
    let path = fixture.write("t", vec![("v", numbers(0, 200_000)), ("w", numbers(0, 200_000))], 200_000);
    assert_eq!(fixture.run(input(&path), &[1, 2]).await.unwrap().rows.len(), 200_000);
    assert_eq!(fixture.engine.status().cache_used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_is_seen_by_the_next_query() {
    let fixture = Fixture::with_memory(1 << 30, 64 << 20);
    let path = fixture.write("t", vec![("v", numbers(0, 3)), ("w", numbers(0, 3))], 10);
    assert_eq!(fixture.run(input(&path), &[1]).await.unwrap().sorted(), ["0", "1", "2"]);
    let other = fixture.write("other", vec![("v", numbers(5, 2)), ("w", numbers(0, 2))], 10);
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(fixture.run(input(&path), &[1]).await.unwrap().sorted(), ["5", "6"]);
    write_file(&path, vec![("v", numbers(8, 1)), ("w", numbers(0, 1))], 10);
    assert_eq!(fixture.run(input(&path), &[1]).await.unwrap().sorted(), ["8"]);
    let entries = fixture.engine.cache().await;
    assert_eq!(entries.iter().map(|entry| entry.row_group_count).sum::<u32>(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_decode_other_columns_only_where_rows_survive() {
    let fixture = Fixture::with_memory(1 << 30, 64 << 20);
    // Every row group's range holds 500, so statistics rule out none.
    let spread: Vec<_> = (0..4000).map(|row| Some(if row % 1000 == 0 { 0 } else { 1000 })).collect();
    let mut values = spread.clone();
    values[2500] = Some(500);
    let path = fixture.write("t", vec![("v", int64s(&values)), ("w", numbers(0, 4000))], 1000);
    let filters = vec![compare(Function::Equal, column(1), int(500))];
    let columns = vec![scan_column(1, "v", DataType::Int64), scan_column(2, "w", DataType::Int64)];
    let answer = fixture.run(scan_declared(&path, columns, filters), &[2]).await.unwrap();
    assert_eq!(answer.lines(), ["2500"]);
    assert_eq!(answer.metrics.cache_misses, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_at_once_share_the_cache() {
    let fixture = Arc::new(Fixture::with_memory(1 << 30, 64 << 20));
    let path = fixture.write("t", vec![("v", numbers(0, 50_000)), ("w", numbers(0, 50_000))], 5000);
    let queries: Vec<_> = (0..16)
        .map(|_| {
            let (fixture, path) = (fixture.clone(), path.clone());
            tokio::spawn(async move { fixture.run(input(&path), &[1, 2]).await.unwrap().rows.len() })
        })
        .collect();
    for query in queries {
        assert_eq!(query.await.unwrap(), 50_000);
    }
    let entries = fixture.engine.cache().await;
    assert_eq!(entries.iter().map(|entry| entry.row_group_count).sum::<u32>(), 20);
}
