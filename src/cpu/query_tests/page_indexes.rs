//! Scans that read only the pages which indexes within the files leave.

use std::ops::Range;

use arrow::array::{Decimal128Array, Int32Array, ListArray};
use arrow::datatypes::Int64Type;
use parquet::{
    basic::Compression,
    file::properties::{WriterProperties, WriterVersion},
};

use super::*;

const ROWS: usize = 100_000;
const ROW_GROUP_ROWS: usize = 80_000;

/// An ascending number; one that says nothing of its row, NULL in every eleventh; a text of various lengths with few values in some
/// stretches; a decimal; a list.
fn write_pages(fixture: &Fixture, name: &str, compression: Compression, version: WriterVersion) -> PathBuf {
    let mixed = |row: usize| (row.wrapping_mul(2_654_435_761) >> 7) % 100_000;
    let word = |row: usize| match row / 10_000 % 2 {
        0 => Some(format!("w{}", mixed(row) % 50)),
        _ => (!row.is_multiple_of(13)).then(|| format!("{:01$}", mixed(row), 1 + mixed(row) % 40)),
    };
    let numbers = (0..ROWS).map(|row| (row % 11 > 0).then_some(mixed(row) as i32));
    let prices = (0..ROWS).map(|row| mixed(row) as i128).collect::<Decimal128Array>();
    let lists = (0..ROWS).map(|row| (row % 5 > 0).then(|| (0..row % 4).map(|item| Some(item as i64))));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new((0..ROWS as i64).collect::<Int64Array>())),
        ("m", Arc::new(numbers.collect::<Int32Array>())),
        ("w", Arc::new((0..ROWS).map(word).collect::<StringArray>())),
        ("p", Arc::new(prices.with_precision_and_scale(12, 2).unwrap())),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, name != "k")),
    );
    let batch = batch.unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_compression(compression)
        .set_writer_version(version)
        .set_data_page_row_count_limit(3_000)
        .set_data_page_size_limit(9_000)
        .set_dictionary_page_size_limit(4_000)
        .set_write_batch_size(500)
        .build();
    let path = fixture.path(name);
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

fn rows_between(path: &Path, rows: &Range<i64>, more: Vec<Expression>) -> Arc<Relation> {
    let columns = vec![
        scan_column(1, "k", DataType::Int64),
        scan_column(2, "m", DataType::Int32),
        scan_column(3, "w", DataType::Text),
        scan_column(4, "p", DataType::Decimal { precision: 12, scale: 2 }),
        scan_column(5, "l", DataType::List(Box::new(DataType::Int64))),
    ];
    let mut filters = vec![
        compare(Function::GreaterEqual, column(1), int(rows.start)),
        compare(Function::Less, column(1), int(rows.end)),
    ];
    filters.extend(more);
    scan_declared(path, columns, filters)
}

/// Without the cache, which is what reads by pages, unless few rows are left.
fn fixtures() -> [Fixture; 2] {
    [Fixture::with_memory(1 << 30, 0), Fixture::with_memory(1 << 30, 64 << 20)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_whichever_pages_are_read() {
    let outputs = [1, 2, 3, 4, 5];
    for (compression, version) in [
        (Compression::SNAPPY, WriterVersion::PARQUET_1_0),
        (Compression::LZ4, WriterVersion::PARQUET_1_0),
        (Compression::UNCOMPRESSED, WriterVersion::PARQUET_2_0),
    ] {
        for fixture in fixtures() {
            let path = write_pages(&fixture, "t", compression, version);
            // All rows, and so no index decides anything.
            let all =
                fixture.run(rows_between(&path, &(0..ROWS as i64), Vec::new()), &outputs).await.unwrap();
            let mut expected = all.rows.clone();
            assert_eq!(expected.len(), ROWS);
            expected.sort_by_key(|row| row[0].parse::<i64>().unwrap());
            for rows in [
                0..1,
                ROWS as i64 - 1..ROWS as i64 + 9,
                8_191..8_193,
                20_000..20_010,
                79_990..80_010,
                30_000..95_000,
                5_000..5_000,
            ] {
                let found = fixture.run(rows_between(&path, &rows, Vec::new()), &outputs).await.unwrap();
                let wanted = rows.start as usize..(rows.end as usize).min(ROWS);
                let mut found_rows = found.rows.clone();
                found_rows.sort_by_key(|row| row[0].parse::<i64>().unwrap());
                assert_eq!(found_rows, expected[wanted], "{rows:?}");
                // A second condition, which its index says nothing of.
                let number = Expression::column(ColumnId(2), DataType::Int32);
                let some = Expression::predicate(Function::IsNotNull, vec![number]);
                let fewer = fixture.run(rows_between(&path, &rows, vec![some]), &outputs).await.unwrap();
                let not_null = found_rows.iter().filter(|row| row[1] != "NULL").count();
                assert_eq!(fewer.rows.len(), not_null, "{rows:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_without_rows_that_are_wanted_are_not_read() {
    for (fixture, keeps) in fixtures().into_iter().zip([false, true]) {
        let path = write_pages(&fixture, "t", Compression::SNAPPY, WriterVersion::PARQUET_1_0);
        let few = rows_between(&path, &(20_000..20_010), Vec::new());
        let found = fixture.run(few.clone(), &[1, 2, 3, 4]).await.unwrap();
        assert_eq!(found.rows.len(), 10);
        let file_bytes = std::fs::metadata(&path).unwrap().len();
        assert!(
            found.metrics.bytes_read > 0 && found.metrics.bytes_read < file_bytes / 5,
            "{:?}",
            found.metrics
        );
        // Nothing was decoded for the cache until as many rows were read as the row group has, and then nothing is read again.
        assert_eq!(found.metrics.cache_misses, 0);
        let mut misses = Vec::new();
        for _ in 0..12 {
            misses.push(fixture.run(few.clone(), &[1, 2, 3, 4]).await.unwrap().metrics.cache_misses);
        }
        let is_kept = misses.iter().position(|misses| *misses > 0);
        assert_eq!(is_kept.is_some(), keeps, "{misses:?}");
        assert!(is_kept.is_none_or(|runs| runs > 5 && misses[runs + 1..].iter().all(|misses| *misses == 0)));
        let all = rows_between(&path, &(0..ROWS as i64), Vec::new());
        fixture.run(all, &[1, 2, 3, 4]).await.unwrap();
        let again = fixture.run(few, &[1, 2, 3, 4]).await.unwrap();
        assert_eq!(again.rows, found.rows);
        if again.metrics.cache_hits > 0 {
            assert_eq!(again.metrics.bytes_read, 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_group_whose_filter_lacks_a_value_is_not_read() {
    let fixture = Fixture::with_memory(1 << 30, 0);
    let path = fixture.path("b");
    let batch = RecordBatch::try_from_iter([(
        "v",
        Arc::new((0..1000_i64).map(|row| (row * 7919) % 1000 * 2).collect::<Int64Array>()) as ArrayRef,
    )]);
    let batch = batch.unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(250))
        .set_bloom_filter_enabled(true)
        .set_bloom_filter_fpp(0.0001)
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let equal = |value| {
        let columns = vec![scan_column(1, "v", DataType::Int64)];
        scan_declared(&path, columns, vec![compare(Function::Equal, column(1), int(value))])
    };
    let found = fixture.run(equal(500), &[1]).await.unwrap();
    assert_eq!(found.lines(), ["500"]);
    let absent = fixture.run(equal(501), &[1]).await.unwrap();
    assert_eq!((absent.rows.len(), absent.metrics.bytes_read), (0, 0));
    assert_eq!((absent.metrics.row_groups_total, absent.metrics.row_groups_pruned), (4, 4));
    assert_eq!(found.metrics.row_groups_pruned, 3);
}
