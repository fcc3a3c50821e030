//! Files with groups that have no column below them, which count among a file's columns and not among its leaves.

use std::sync::Arc;

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int64Type},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
use pystachio_plan::ErrorKind;

use super::*;

const SCHEMA: &str = "message schema {
    optional group nothing {}
    required int64 a;
    required group neither { optional group deep {} }
    required int64 b;
    required binary c (UTF8);
    optional group last {}
}";

fn write(path: &Path) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
    let mut row_group = writer.next_row_group().unwrap();
    for first in [10, 20] {
        let mut column = row_group.next_column().unwrap().unwrap();
        let values: Vec<i64> = (first..first + 5).collect();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = row_group.next_column().unwrap().unwrap();
    let values: Vec<ByteArray> = (0..5).map(|row| ByteArray::from(format!("row {row}").as_str())).collect();
    column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    row_group.close().unwrap();
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_behind_empty_groups_are_read_in_their_own_place() {
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(1 << 30, cache_bytes);
        let path = fixture.path("t");
        write(&path);
        let whole = [(1, "a", DataType::Int64), (2, "b", DataType::Int64), (3, "c", DataType::Text)];
        let answer = fixture.run(scan(&path, &whole), &[1, 2, 3]).await.unwrap();
        let expected: Vec<String> =
            (0..5).map(|row| format!("{}|{}|row {row}", 10 + row, 20 + row)).collect();
        assert_eq!(answer.sorted(), expected);
        for (id, name, data_type) in whole {
            let answer = fixture.run(scan(&path, &[(id, name, data_type)]), &[id]).await.unwrap();
            let place = id as usize - 1;
            let column: Vec<&str> = expected.iter().map(|line| line.split('|').nth(place).unwrap()).collect();
            assert_eq!(answer.sorted(), column, "{name}");
        }
        // Statistics are those of the column too.
        let columns = vec![scan_column(1, "a", DataType::Int64), scan_column(2, "b", DataType::Int64)];
        let filter = compare(Function::Equal, column(2), int(23));
        let answer = fixture.run(scan_declared(&path, columns, vec![filter]), &[1, 2]).await.unwrap();
        assert_eq!(answer.lines(), ["13|23"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_group_is_described_and_can_not_be_read() {
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write(&path);
    let described = fixture.describe(&path).await.unwrap();
    let columns: Vec<(String, bool, Option<Value>)> = described
        .columns
        .into_iter()
        .map(|column| (column.name, column.data_type.is_some(), column.minimum))
        .collect();
    let column = |name: &str, minimum: Option<Value>| (name.to_owned(), minimum.is_some(), minimum);
    assert_eq!(
        columns,
        [
            column("nothing", None),
            column("a", Some(Value::Int(10))),
            column("neither", None),
            column("b", Some(Value::Int(20))),
            column("c", Some(Value::Text("row 0".to_owned()))),
            column("last", None),
        ]
    );
    for name in ["nothing", "neither", "last"] {
        let json = ScanColumn { content: ColumnContent::Json, ..scan_column(1, name, DataType::Text) };
        for column in [scan_column(1, name, DataType::Int64), json] {
            let error =
                fixture.run(scan_declared(&path, vec![column], Vec::new()), &[1]).await.err().unwrap();
            assert_eq!(error.kind, ErrorKind::SchemaMismatch);
            assert!(
                error.message.contains(&format!("\"{name}\"")) && error.message.contains("struct"),
                "{error}"
            );
        }
    }
}
