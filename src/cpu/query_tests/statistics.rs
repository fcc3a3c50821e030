//! Files whose statistics are wrong, or say less than they seem to: their rows all the same.

use std::sync::Arc;

use bytes::Bytes;
use parquet::file::{
    metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter},
    statistics::Statistics,
};

use super::*;

/// A writer whose statistics are right, and one whose are not.
const RIGHT: &str = "parquet-cpp-arrow version 26.0.1";
const WRONG: &str = "Parquet.Net version 4.25.0 (build 0000000000000000)";
/// What is wrongly said of rows that are 100 to 109 and one NULL.
const WRONG_LEAST: i64 = 1;
const WRONG_GREATEST: i64 = 9;

/// A file of one column in one row group, whose footer then says another writer and other statistics.
fn rewrite(fixture: &Fixture, created_by: &str, statistics: Option<Statistics>) -> PathBuf {
    let values: Vec<Option<i64>> = (100..110).map(Some).chain([None]).collect();
    let path = fixture.write("t", vec![("v", int64s(&values))], 1000);
    let content = std::fs::read(&path).unwrap();
    let footer_bytes = footer_bytes(&content);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(content.clone())).unwrap();
    let old = metadata.file_metadata();
    let file = FileMetaData::new(
        old.version(),
        old.num_rows(),
        Some(created_by.to_owned()),
        None,
        old.schema_descr_ptr(),
        old.column_orders().cloned(),
    );
    let row_groups = metadata.row_groups().iter().map(|row_group| {
        let columns = row_group.columns().iter().map(|column| {
            let column = column.clone().into_builder();
            match &statistics {
                Some(statistics) => column.set_statistics(statistics.clone()).build().unwrap(),
                None => column.build().unwrap(),
            }
        });
        row_group.clone().into_builder().set_column_metadata(columns.collect()).build().unwrap()
    });
    let metadata = ParquetMetaData::new(file, row_groups.collect());
    let mut rewritten = content[..content.len() - 8 - footer_bytes].to_vec();
    ParquetMetaDataWriter::new(&mut rewritten, &metadata).finish().unwrap();
    std::fs::write(&path, rewritten).unwrap();
    path
}

fn footer_bytes(content: &[u8]) -> usize {
    u32::from_le_bytes(content[content.len() - 8..][..4].try_into().unwrap()) as usize
}

fn wrong() -> Option<Statistics> {
    Some(Statistics::int64(Some(WRONG_LEAST), Some(WRONG_GREATEST), None, Some(0), false))
}

fn filtered(path: &Path, function: Function, value: i64) -> Arc<Relation> {
    let columns = vec![scan_column(1, "v", DataType::Int64)];
    scan_declared(path, columns, vec![compare(function, column(1), int(value))])
}

/// The least and the greatest value, how many there are, and how many rows are NULL.
async fn summary(fixture: &Fixture, path: &Path) -> (Vec<String>, usize) {
    let aggregates = vec![
        call(2, Aggregate::Min, Some(column(1)), DataType::Int64),
        call(3, Aggregate::Max, Some(column(1)), DataType::Int64),
        call(4, Aggregate::Count, Some(column(1)), DataType::Int64),
    ];
    let input = scan(path, &[(1, "v", DataType::Int64)]);
    let root = Relation::new(
        Operator::Aggregate { input, groups: Vec::new(), aggregates, phase: AggregatePhase::Whole },
        1.0,
    );
    let summary = fixture.run(root, &[2, 3, 4]).await.unwrap().lines();
    let is_null = Expression::predicate(Function::IsNull, vec![column(1)]);
    let nulls = scan_declared(path, vec![scan_column(1, "v", DataType::Int64)], vec![is_null]);
    (summary, fixture.run(nulls, &[1]).await.unwrap().rows.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_of_a_writer_that_gets_them_wrong_decide_nothing() {
    let fixture = Fixture::new();
    let path = rewrite(&fixture, WRONG, wrong());
    assert_eq!(fixture.run(filtered(&path, Function::Equal, 105), &[1]).await.unwrap().lines(), ["105"]);
    let found = fixture.run(filtered(&path, Function::Greater, 50), &[1]).await.unwrap();
    assert_eq!(found.rows.len(), 10);
    assert_eq!(summary(&fixture, &path).await, (vec!["100|109|10".to_owned()], 1));
    let described = fixture.describe(&path).await.unwrap().columns.remove(0);
    assert_eq!((described.minimum, described.maximum, described.null_count), (None, None, None));
    // The same lies of a writer that is believed are believed: there the statistics are used.
    let path = rewrite(&fixture, RIGHT, wrong());
    assert!(fixture.run(filtered(&path, Function::Equal, 105), &[1]).await.unwrap().rows.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_that_are_crossed_or_are_of_no_row_decide_nothing() {
    let fixture = Fixture::new();
    for statistics in [
        Statistics::int64(Some(WRONG_GREATEST), Some(WRONG_LEAST), None, Some(1), false),
        Statistics::int64(Some(WRONG_LEAST), Some(WRONG_GREATEST), None, Some(11), false),
    ] {
        let path = rewrite(&fixture, RIGHT, Some(statistics));
        assert_eq!(fixture.run(filtered(&path, Function::Equal, 105), &[1]).await.unwrap().lines(), ["105"]);
        assert_eq!(summary(&fixture, &path).await, (vec!["100|109|10".to_owned()], 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_bounds_that_are_said_to_be_exact_are_answers() {
    let fixture = Fixture::new();
    let path = rewrite(&fixture, RIGHT, None);
    let content = std::fs::read(&path).unwrap();
    let summary_of = |content: Vec<u8>| {
        std::fs::write(&path, content).unwrap();
        summary(&fixture, &path)
    };
    assert_eq!(summary_of(content.clone()).await.0, ["100|109|10"]);
    // Wider bounds, which a writer that does not say they are exact may give: 64 and 255 for 100 and 109.
    let footer = content.len() - 8 - footer_bytes(&content);
    let widened = |content: &[u8]| {
        let mut content = content.to_vec();
        for (value, wider) in [(100_i64, 64_i64), (109, 255)] {
            let (value, wider) = (value.to_le_bytes(), wider.to_le_bytes());
            let places: Vec<usize> =
                (footer..content.len() - 8).filter(|place| content[*place..].starts_with(&value)).collect();
            assert!(!places.is_empty());
            places.into_iter().for_each(|place| content[place..place + 8].copy_from_slice(&wider));
        }
        content
    };
    // The flags follow the least value: two fields, 7 and 8, that are true.
    let without_flags = |content: &[u8]| {
        let mut content = content.to_vec();
        let flagged = [&64_i64.to_le_bytes()[..], &[0x11, 0x11]].concat();
        let places: Vec<usize> =
            (footer..content.len() - 8).filter(|place| content[*place..].starts_with(&flagged)).collect();
        assert_eq!(places.len(), 1);
        content[places[0] + 8..places[0] + 10].copy_from_slice(&[0x12, 0x12]);
        content
    };
    assert_eq!(summary_of(without_flags(&widened(&content))).await.0, ["100|109|10"]);
    // What is said to be exact is the answer.
    assert_eq!(summary_of(widened(&content)).await.0, ["64|255|10"]);
}
