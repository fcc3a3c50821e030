//! File types read as declared types.

use super::*;
use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, DictionaryArray,
    FixedSizeBinaryArray, Float16Array, Float32Array, Int8Array, Int16Array, Int32Array, LargeStringArray,
    ListArray, Time32MillisecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{Int32Type, i256};
use pystachio_plan::ErrorKind;

fn decimal(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(values.to_vec());
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

fn numeric(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

/// Reads one column; its values in the order of the file.
async fn read(array: ArrayRef, data_type: DataType) -> Result<Vec<String>, Error> {
    let mut answers = Vec::new();
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(1 << 30, cache_bytes);
        let path = fixture.write("t", vec![("v", array.clone())], 1000);
        answers.push(fixture.run(scan(&path, &[(1, "v", data_type.clone())]), &[1]).await?.lines());
    }
    assert_eq!(answers[0], answers[1]);
    Ok(answers.remove(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_widen() {
    let cases: Vec<(ArrayRef, DataType, Vec<&str>)> = vec![
        (Arc::new(Int8Array::from(vec![-128, 127])), DataType::Int16, vec!["-128", "127"]),
        (Arc::new(UInt8Array::from(vec![0, 255])), DataType::Int16, vec!["0", "255"]),
        (Arc::new(Int16Array::from(vec![-32768])), DataType::Int32, vec!["-32768"]),
        (Arc::new(UInt16Array::from(vec![65535])), DataType::Int32, vec!["65535"]),
        (Arc::new(Int32Array::from(vec![i32::MIN])), DataType::Int64, vec!["-2147483648"]),
        (Arc::new(UInt32Array::from(vec![u32::MAX])), DataType::Int64, vec!["4294967295"]),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), numeric(20, 0), vec!["18446744073709551615"]),
        (Arc::new(Int32Array::from(vec![Some(7), None])), numeric(12, 2), vec!["7.00", "NULL"]),
        (Arc::new(Float16Array::from(vec![half("1.5")])), DataType::Float32, vec!["1.5"]),
        (Arc::new(Float32Array::from(vec![0.5])), DataType::Float64, vec!["0.5"]),
        (Arc::new(BooleanArray::from(vec![Some(true), None])), DataType::Bool, vec!["true", "NULL"]),
    ];
    for (array, data_type, expected) in cases {
        let name = format!("{} as {data_type}", array.data_type());
        assert_eq!(read(array, data_type).await.unwrap(), expected, "{name}");
    }
}

fn half(text: &str) -> <arrow::datatypes::Float16Type as arrow::datatypes::ArrowPrimitiveType>::Native {
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimals_gain_digits_and_never_lose_them() {
    assert_eq!(read(decimal(&[-150, 5], 4, 2), numeric(10, 4)).await.unwrap(), ["-1.5000", "0.0500"]);
    assert_eq!(read(decimal(&[99_999], 9, 2), numeric(5, 2)).await.unwrap(), ["999.99"]);
    let error = read(decimal(&[100_000], 9, 2), numeric(5, 2)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
    assert!(error.message.contains("numeric(5,2)"), "{error}");
    let error = read(decimal(&[100], 9, 2), numeric(9, 1)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SchemaMismatch);
    let wide = |values: Vec<i256>| {
        Arc::new(Decimal256Array::from(values).with_precision_and_scale(50, 3).unwrap()) as ArrayRef
    };
    assert_eq!(read(wide(vec![i256::from_i128(-1234)]), numeric(20, 3)).await.unwrap(), ["-1.234"]);
    assert_eq!(read(wide(vec![i256::from_i128(-1234)]), numeric(20, 5)).await.unwrap(), ["-1.23400"]);
    let error = read(wide(vec![i256::MAX / i256::from_i128(1 << 100)]), numeric(20, 3)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_become_microseconds_rounded_down() {
    let cases: Vec<(ArrayRef, DataType, Vec<&str>)> = vec![
        (
            Arc::new(TimestampMillisecondArray::from(vec![-1])),
            DataType::Timestamp,
            vec!["1969-12-31T23:59:59.999"],
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![1])),
            DataType::Timestamp,
            vec!["1970-01-01T00:00:00.000001"],
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![-1, 1999])),
            DataType::Timestamp,
            vec!["1969-12-31T23:59:59.999999", "1970-01-01T00:00:00.000001"],
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![60_000]).with_timezone("UTC")),
            DataType::TimestampTz,
            vec!["1970-01-01T00:01:00Z"],
        ),
        (Arc::new(Time32MillisecondArray::from(vec![1500])), DataType::Time, vec!["00:00:01.500"]),
        (Arc::new(Time64NanosecondArray::from(vec![1999])), DataType::Time, vec!["00:00:00.000001"]),
        (Arc::new(Date32Array::from(vec![-2_440_588])), DataType::Date, vec!["-4713-11-24"]),
    ];
    for (array, data_type, expected) in cases {
        let name = format!("{} as {data_type}", array.data_type());
        assert_eq!(read(array, data_type).await.unwrap(), expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_beyond_postgresql_are_errors() {
    // Beside the numbers that DuckDB writes for infinite ones.
    let cases: Vec<(ArrayRef, DataType)> = vec![
        (Arc::new(Date32Array::from(vec![-2_440_589])), DataType::Date),
        (Arc::new(Date32Array::from(vec![i32::MAX - 1])), DataType::Date),
        (Arc::new(TimestampMicrosecondArray::from(vec![i64::MIN + 2])), DataType::Timestamp),
        (Arc::new(TimestampMillisecondArray::from(vec![i64::MAX - 1])), DataType::Timestamp),
    ];
    for (array, data_type) in cases {
        let error = read(array, data_type).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::DatetimeOutOfRange, "{error}");
        assert!(error.message.contains("t.parquet"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_bytes_and_lists_read_from_every_encoding() {
    let dictionary: DictionaryArray<Int32Type> = vec![Some("x"), None, Some("x")].into_iter().collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]);
    let uuid = FixedSizeBinaryArray::try_from_iter([[7u8; 16]].iter()).unwrap();
    let cases: Vec<(ArrayRef, DataType, Vec<&str>)> = vec![
        (texts(&[Some("ab"), None]), DataType::Text, vec!["ab", "NULL"]),
        (Arc::new(LargeStringArray::from(vec!["é"])), DataType::Text, vec!["é"]),
        (Arc::new(dictionary), DataType::Text, vec!["x", "NULL", "x"]),
        (Arc::new(BinaryArray::from(vec![b"ab".as_slice()])), DataType::Bytea, vec!["6162"]),
        (Arc::new(BinaryArray::from(vec!["é".as_bytes()])), DataType::Text, vec!["é"]),
        (Arc::new(uuid.clone()), DataType::Uuid, vec!["07070707070707070707070707070707"]),
        (Arc::new(uuid), DataType::Bytea, vec!["07070707070707070707070707070707"]),
        (Arc::new(list.clone()), DataType::List(Box::new(DataType::Int32)), vec!["[1, NULL]", "NULL", "[]"]),
        (Arc::new(list), DataType::List(Box::new(DataType::Int64)), vec!["[1, NULL]", "NULL", "[]"]),
    ];
    for (array, data_type, expected) in cases {
        let name = format!("{} as {data_type}", array.data_type());
        assert_eq!(read(array, data_type).await.unwrap(), expected, "{name}");
    }
    let error =
        read(Arc::new(BinaryArray::from(vec![b"\xff".as_slice()])), DataType::Text).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileCorrupt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_types_are_named_in_the_error() {
    let cases: Vec<(ArrayRef, DataType)> = vec![
        (int64s(&[Some(1)]), DataType::Int32),
        (int64s(&[Some(1)]), DataType::Text),
        (int64s(&[Some(1)]), DataType::Float64),
        (texts(&[Some("1")]), DataType::Int64),
        (Arc::new(TimestampMicrosecondArray::from(vec![1])), DataType::TimestampTz),
        (Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")), DataType::Timestamp),
        (Arc::new(Float32Array::from(vec![1.0])), numeric(5, 2)),
    ];
    for (array, data_type) in cases {
        let error = read(array, data_type.clone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::SchemaMismatch, "{error}");
        for part in ["\"v\"", "t.parquet", data_type.to_string().as_str()] {
            assert!(error.message.contains(part), "{part} in {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_match_exactly_first_and_then_without_case() {
    let fixture = Fixture::new();
    let path = fixture.write(
        "t",
        vec![("V", int64s(&[Some(1)])), ("v", int64s(&[Some(2)])), ("W", int64s(&[Some(3)]))],
        10,
    );
    let plan =
        scan(&path, &[(1, "V", DataType::Int64), (2, "v", DataType::Int64), (3, "w", DataType::Int64)]);
    assert_eq!(fixture.run(plan, &[1, 2, 3]).await.unwrap().lines(), ["1|2|3"]);
    let error = fixture.run(scan(&path, &[(1, "x", DataType::Int64)]), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::SchemaMismatch);
    assert!(error.message.contains("\"x\"") && error.message.contains("t.parquet"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declarations_are_checked_on_values() {
    let fixture = Fixture::new();
    let path = fixture.write("t", vec![("v", texts(&[Some("añb  "), Some("c"), None]))], 10);
    let declared = |not_null, length_max, trim_blanks| {
        let column = ScanColumn { not_null, length_max, trim_blanks, ..scan_column(1, "v", DataType::Text) };
        scan_declared(&path, vec![column], Vec::new())
    };
    let error = fixture.run(declared(true, None, false), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::NullNotAllowed);
    assert!(error.message.contains("\"v\"") && error.message.contains("\"t\""), "{error}");
    let error = fixture.run(declared(false, Some(4), false), &[1]).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::StringTooLong);
    assert!(error.message.contains("character varying(4)"), "{error}");
    assert_eq!(fixture.run(declared(false, Some(5), false), &[1]).await.unwrap().rows.len(), 3);
    let trimmed = fixture.run(declared(false, Some(3), true), &[1]).await.unwrap();
    assert_eq!(trimmed.lines(), ["añb", "c", "NULL"]);
    let error = fixture.run(declared(false, Some(2), true), &[1]).await.err().unwrap();
    assert!(error.message.contains("character(2)"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_of_converted_columns_prune_rightly() {
    let fixture = Fixture::new();
    let values: Vec<i64> = (0..4000).map(|row| row * 1000 + 999).collect();
    let path = fixture.write("t", vec![("v", Arc::new(TimestampNanosecondArray::from(values)))], 1000);
    let bound = Expression::literal(Value::Int(2000), DataType::Timestamp);
    let v = Expression::column(ColumnId(1), DataType::Timestamp);
    let filters = vec![compare(Function::Equal, v, bound)];
    let plan = scan_declared(&path, vec![scan_column(1, "v", DataType::Timestamp)], filters);
    let answer = fixture.run(plan, &[1]).await.unwrap();
    assert_eq!(answer.lines(), ["1970-01-01T00:00:00.002"]);
    assert_eq!(answer.metrics.row_groups_pruned, 3);
}
