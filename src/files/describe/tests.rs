//! Descriptions of files of every type, and errors for files that are not what they should be.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
        Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, NullArray,
        RecordBatch, StringArray, StructArray, Time32MillisecondArray, Time64NanosecondArray,
        TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array,
        UInt16Array, UInt32Array, UInt64Array,
    },
    datatypes::{DataType as ArrowType, Field, Int32Type, Schema},
};
use parquet::{
    arrow::ArrowWriter,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use pystachio_plan::{
    ColumnDescription, DataType, DescribeExtent, ErrorKind, FileColumn, FileSet, TableDescription, Value,
};

use super::*;
use crate::{file_memory::tests::CountedMemory, files::FileCatalog};

fn write_with(path: &Path, columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer =
        ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    for start in (0..batch.num_rows()).step_by(2) {
        writer.write(&batch.slice(start, 2.min(batch.num_rows() - start))).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

/// Writes columns in row groups of two rows.
fn write(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    write_with(path, columns, WriterProperties::default());
}

/// Writes a file without rows that has these columns.
fn write_schema(path: &Path, columns: &str) {
    let schema = parse_message_type(&format!("message schema {{ {columns} }}")).unwrap();
    let file = fs::File::create(path).unwrap();
    SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap().close().unwrap();
}

fn describe_path(path: &Path) -> Result<TableDescription> {
    describe(
        &FileCatalog::default(),
        &FileSet::parquet(vec![path.display().to_string()]),
        DescribeExtent::All,
    )
}

fn column<'a>(table: &'a TableDescription, name: &str) -> &'a ColumnDescription {
    table.columns.iter().find(|column| column.name == name).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.parquet");
    (folder, file)
}

fn numbers(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

type Bounds = Option<(Value, Value)>;

fn ints(minimum: i64, maximum: i64) -> Bounds {
    Some((Value::Int(minimum), Value::Int(maximum)))
}

fn texts(minimum: &str, maximum: &str) -> Bounds {
    Some((Value::Text(minimum.into()), Value::Text(maximum.into())))
}

/// Columns of three values: name, array, Parquet type, SQL type, bounds.
fn all_types() -> Vec<(&'static str, ArrayRef, &'static str, &'static str, Bounds)> {
    let decimal = |precision| {
        let values = Decimal128Array::from(vec![150, -250, 0]);
        Arc::new(values.with_precision_and_scale(precision, 2).unwrap())
    };
    let decimals = Some((Value::Decimal(-250), Value::Decimal(150)));
    let uuids = FixedSizeBinaryArray::try_from_iter([[1_u8; 16], [0xff; 16], [0; 16]].into_iter()).unwrap();
    let bytes = Some((Value::Bytes(vec![0; 16]), Value::Bytes(vec![0xff; 16])));
    vec![
        (
            "i8",
            Arc::new(Int8Array::from(vec![-1, 5, 2])),
            "INT32 Integer(8, signed)",
            "smallint",
            ints(-1, 5),
        ),
        (
            "i16",
            Arc::new(Int16Array::from(vec![-1, 5, 2])),
            "INT32 Integer(16, signed)",
            "smallint",
            ints(-1, 5),
        ),
        ("i32", numbers(vec![-1, 5, 2]), "INT32", "integer", ints(-1, 5)),
        (
            "i64",
            Arc::new(Int64Array::from(vec![i64::MIN, 5, i64::MAX])),
            "INT64",
            "bigint",
            ints(i64::MIN, i64::MAX),
        ),
        (
            "u8",
            Arc::new(UInt8Array::from(vec![255, 0, 7])),
            "INT32 Integer(8, unsigned)",
            "smallint",
            ints(0, 255),
        ),
        (
            "u16",
            Arc::new(UInt16Array::from(vec![65_535, 1, 7])),
            "INT32 Integer(16, unsigned)",
            "integer",
            ints(1, 65_535),
        ),
        (
            "u32",
            Arc::new(UInt32Array::from(vec![u32::MAX, 1, 7])),
            "INT32 Integer(32, unsigned)",
            "bigint",
            ints(1, u32::MAX.into()),
        ),
        (
            "u64",
            Arc::new(UInt64Array::from(vec![u64::MAX, 1, 7])),
            "INT64 Integer(64, unsigned)",
            "numeric(20,0)",
            Some((Value::Decimal(1), Value::Decimal(u64::MAX.into()))),
        ),
        ("d9", decimal(9), "INT32 Decimal(9,2)", "numeric(9,2)", decimals.clone()),
        ("d18", decimal(18), "INT64 Decimal(18,2)", "numeric(18,2)", decimals.clone()),
        ("d38", decimal(38), "FIXED_LEN_BYTE_ARRAY(16) Decimal(38,2)", "numeric(38,2)", decimals),
        ("date", Arc::new(Date32Array::from(vec![1, -1, 0])), "INT32 Date", "date", ints(-1, 1)),
        (
            "time_ms",
            Arc::new(Time32MillisecondArray::from(vec![3, 1, 2])),
            "INT32 Time(ms)",
            "time without time zone",
            ints(1_000, 3_000),
        ),
        (
            "time_ns",
            Arc::new(Time64NanosecondArray::from(vec![3_999, 1_999, 2_000])),
            "INT64 Time(ns)",
            "time without time zone",
            ints(1, 3),
        ),
        (
            "ts_ms",
            Arc::new(TimestampMillisecondArray::from(vec![3, -1, 2])),
            "INT64 Timestamp(ms)",
            "timestamp without time zone",
            ints(-1_000, 3_000),
        ),
        (
            "ts_us",
            Arc::new(TimestampMicrosecondArray::from(vec![3, -1, 2]).with_timezone("UTC")),
            "INT64 Timestamp(us, UTC)",
            "timestamp with time zone",
            ints(-1, 3),
        ),
        (
            "ts_ns",
            Arc::new(TimestampNanosecondArray::from(vec![3_001, -1, 2])),
            "INT64 Timestamp(ns)",
            "timestamp without time zone",
            ints(-1, 3),
        ),
        (
            "text",
            Arc::new(StringArray::from(vec!["b", "ä", "a"])),
            "BYTE_ARRAY String",
            "text",
            texts("a", "ä"),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"", b"a"])),
            "BYTE_ARRAY",
            "bytea",
            Some((Value::Bytes(vec![]), Value::Bytes(vec![0xff]))),
        ),
        ("fixed", Arc::new(uuids), "FIXED_LEN_BYTE_ARRAY(16)", "bytea", bytes),
        (
            "bool",
            Arc::new(BooleanArray::from(vec![true, false, true])),
            "BOOLEAN",
            "boolean",
            Some((Value::Bool(false), Value::Bool(true))),
        ),
    ]
}

#[test]
fn every_type_is_described_with_its_bounds() {
    let (_folder, file) = folder();
    write(&file, all_types().into_iter().map(|(name, array, ..)| (name, array)).collect());
    let table = describe_path(&file).unwrap();
    assert_eq!((table.row_count, table.files[0].row_group_count), (3, 2));
    for (name, _, file_type, sql_type, bounds) in all_types() {
        let column = column(&table, name);
        assert_eq!(column.file_type, file_type);
        assert_eq!(column.sql_type, sql_type, "{name}");
        assert_eq!(column.minimum.clone().zip(column.maximum.clone()), bounds, "{name}");
        assert_eq!(column.null_count, Some(0), "{name}");
        assert!(column.compressed_bytes > 0 && column.uncompressed_bytes > 0);
    }
}

#[test]
fn annotations_that_arrow_does_not_write_are_understood() {
    let (_folder, file) = folder();
    write_schema(
        &file,
        "REQUIRED BYTE_ARRAY j (JSON); OPTIONAL BYTE_ARRAY e (ENUM); OPTIONAL BYTE_ARRAY b (BSON);
         REQUIRED FIXED_LEN_BYTE_ARRAY (16) u (UUID); OPTIONAL FIXED_LEN_BYTE_ARRAY (2) h (FLOAT16);
         OPTIONAL INT96 t; OPTIONAL BYTE_ARRAY d (DECIMAL(30,3)); OPTIONAL BYTE_ARRAY w (DECIMAL(50,3));
         OPTIONAL INT64 m (TIMESTAMP_MILLIS); REPEATED INT32 r; OPTIONAL FIXED_LEN_BYTE_ARRAY (12) i (INTERVAL);",
    );
    let table = describe_path(&file).unwrap();
    let found: Vec<(&str, &str, bool)> =
        table.columns.iter().map(|column| (&*column.name, &*column.sql_type, column.required)).collect();
    let expected = [
        ("j", "json", true),
        ("e", "text", false),
        ("b", "bytea", false),
        ("u", "uuid", true),
        ("h", "real", false),
        ("t", "timestamp without time zone", false),
        ("d", "numeric(30,3)", false),
        ("w", "numeric(50,3)", false),
        ("m", "timestamp with time zone", false),
        ("r", "integer[]", false),
        ("i", "", false),
    ];
    assert_eq!(found, expected);
    assert_eq!(column(&table, "j").data_type, Some(DataType::Text));
    assert_eq!(column(&table, "w").file_type, "BYTE_ARRAY Decimal(50,3)");
    assert_eq!(column(&table, "r").file_type, "list of INT32");
}

#[test]
fn nested_columns_are_arrays_or_jsonb() {
    let (_folder, file) = folder();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let field = Arc::new(Field::new("x", ArrowType::Int32, true));
    let record = StructArray::from(vec![(field, numbers(vec![1, 2]))]);
    write(&file, vec![("l", Arc::new(list)), ("s", Arc::new(record))]);
    let table = describe_path(&file).unwrap();
    let list = column(&table, "l");
    assert_eq!(list.data_type, Some(DataType::List(Box::new(DataType::Int32))));
    assert_eq!((list.sql_type.as_str(), list.null_count, &list.minimum), ("integer[]", None, &None));
    let record = column(&table, "s");
    assert_eq!((&record.data_type, record.sql_type.as_str()), (&Some(DataType::Text), "jsonb"));
    assert_eq!((record.file_type.as_str(), record.null_count, &record.minimum), ("struct", None, &None));
}

#[test]
fn nulls_are_counted_and_bounds_skip_them() {
    let (_folder, file) = folder();
    write(
        &file,
        vec![
            ("some", Arc::new(Int32Array::from(vec![None, Some(3), None, None, Some(1)])) as ArrayRef),
            ("none", Arc::new(Int32Array::from(vec![None; 5]))),
        ],
    );
    let table = describe_path(&file).unwrap();
    let some = column(&table, "some");
    assert_eq!(
        (some.null_count, &some.minimum, &some.maximum),
        (Some(3), &Some(Value::Int(1)), &Some(Value::Int(3)))
    );
    let none = column(&table, "none");
    assert_eq!((none.null_count, &none.minimum), (Some(5), &None));
}

#[test]
fn float_bounds_allow_for_nan() {
    let (_folder, file) = folder();
    write(
        &file,
        vec![
            ("f", Arc::new(Float64Array::from(vec![1.5, f64::NAN, -2.0])) as ArrayRef),
            ("n", Arc::new(Float32Array::from(vec![f32::NAN; 3]))),
        ],
    );
    let table = describe_path(&file).unwrap();
    assert_eq!(
        (&column(&table, "f").minimum, &column(&table, "f").maximum),
        (&Some(Value::Float(-2.0)), &None)
    );
    assert_eq!((&column(&table, "n").minimum, &column(&table, "n").maximum), (&None, &None));
}

#[test]
fn without_statistics_nothing_is_claimed() {
    let (_folder, file) = folder();
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).build();
    write_with(&file, vec![("i", Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef)], properties);
    let table = describe_path(&file).unwrap();
    let column = column(&table, "i");
    assert_eq!((column.null_count, &column.minimum, &column.maximum), (None, &None, &None));
    assert_eq!(table.row_count, 2);
}

#[test]
fn files_of_a_table_are_added_up() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("b/_skipped")).unwrap();
    write(&folder.path().join("a.parquet"), vec![("k", numbers(vec![5, 6])), ("x", numbers(vec![1, 1]))]);
    write(
        &folder.path().join("b/c.parquet"),
        vec![("X", numbers(vec![0])), ("more", numbers(vec![9])), ("k", numbers(vec![4]))],
    );
    fs::write(folder.path().join("b/_skipped/d.parquet"), "junk").unwrap();
    fs::write(folder.path().join(".hidden.parquet"), "junk").unwrap();
    fs::write(folder.path().join("notes.txt"), "junk").unwrap();
    let table = describe_path(folder.path()).unwrap();
    assert_eq!((table.row_count, table.files.len(), table.columns.len()), (3, 2, 3));
    assert_eq!(
        (&column(&table, "k").minimum, &column(&table, "k").maximum),
        (&Some(Value::Int(4)), &Some(Value::Int(6)))
    );
    assert_eq!(column(&table, "x").minimum, Some(Value::Int(0)));
}

/// A table of files with these columns, in the order of their names.
fn table_of(files: Vec<Vec<(&str, ArrayRef)>>) -> TableDescription {
    let folder = tempfile::tempdir().unwrap();
    for (number, columns) in files.into_iter().enumerate() {
        write(&folder.path().join(format!("{number}.parquet")), columns);
    }
    describe_path(folder.path()).unwrap()
}

#[test]
fn a_column_that_a_file_lacks_is_null_there() {
    let table = table_of(vec![
        vec![("k", numbers(vec![5, 6, 7]))],
        vec![("other", numbers(vec![1])), ("K", numbers(vec![9]))],
    ]);
    let [k, other] = [column(&table, "k"), column(&table, "other")];
    assert_eq!(table.columns.len(), 2);
    assert_eq!((&k.minimum, &k.maximum, k.null_count), (&Some(Value::Int(5)), &Some(Value::Int(9)), Some(0)));
    assert_eq!(
        (&other.minimum, &other.maximum, other.null_count, other.required),
        (&Some(Value::Int(1)), &Some(Value::Int(1)), Some(3), false)
    );
    assert_eq!(k.differences, None);
    assert_eq!(other.differences.as_deref(), Some("missing in 1 file, where it is NULL"));
}

#[test]
fn a_column_has_the_narrowest_type_that_holds_all_values() {
    let bigint: ArrayRef = Arc::new(Int64Array::from(vec![1 << 40]));
    let decimal = |digits: u8, scale: i8, value: i128| -> ArrayRef {
        let values = Decimal128Array::from(vec![value]).with_precision_and_scale(digits, scale);
        Arc::new(values.unwrap())
    };
    let day: ArrayRef = Arc::new(Date32Array::from(vec![2]));
    let moment: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![5]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let nothing: ArrayRef = Arc::new(NullArray::new(1));
    let of_decimal = |precision, scale| Some(DataType::Decimal { precision, scale });
    let cases: Vec<(ArrayRef, ArrayRef, Option<DataType>, Bounds)> = vec![
        (numbers(vec![3]), bigint.clone(), Some(DataType::Int64), ints(3, 1 << 40)),
        (
            decimal(5, 2, 120),
            decimal(6, 1, 7),
            of_decimal(7, 2),
            Some((Value::Decimal(70), Value::Decimal(120))),
        ),
        (
            decimal(5, 2, 120),
            numbers(vec![3]),
            of_decimal(12, 2),
            Some((Value::Decimal(120), Value::Decimal(300))),
        ),
        (day, moment, Some(DataType::Timestamp), ints(5, 2 * 86_400_000_000)),
        (
            nothing,
            text.clone(),
            Some(DataType::Text),
            Some((Value::Text("x".into()), Value::Text("x".into()))),
        ),
        (numbers(vec![3]), text, None, None),
        (decimal(38, 30, 1), bigint, of_decimal(49, 30), None),
    ];
    for (one, other, expected, bounds) in cases {
        for (first, second) in [(one.clone(), other.clone()), (other, one)] {
            let table = table_of(vec![vec![("k", first)], vec![("k", second)]]);
            let k = column(&table, "k");
            assert_eq!(k.data_type, expected);
            assert_eq!(k.minimum.clone().zip(k.maximum.clone()), bounds, "{expected:?}");
            assert!(k.differences.as_deref().unwrap().contains("0.parquet"), "{:?}", k.differences);
            if expected.is_none() {
                let named = ["0.parquet", "1.parquet"].iter().all(|name| k.file_type.contains(name));
                assert!(named, "{}", k.file_type);
            }
        }
    }
}

#[test]
fn keys_of_folders_are_columns_with_what_their_values_say() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in
        [("y=2023/d=2024-01-05", 2), ("y=2024/d=2024-01-04", 1), ("y=__HIVE_DEFAULT_PARTITION__/d=x", 4)]
    {
        let path = folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        // The folder's value counts, whatever the file has.
        write(&path.join("a.parquet"), vec![("k", numbers(vec![7; rows])), ("Y", numbers(vec![1; rows]))]);
    }
    let table = describe_path(folder.path()).unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["k", "d", "y"]);
    let (y, d) = (column(&table, "y"), column(&table, "d"));
    assert_eq!((&y.data_type, y.null_count, y.distinct_count), (&Some(DataType::Int32), Some(4), Some(2)));
    assert_eq!((&y.minimum, &y.maximum), (&Some(Value::Int(2023)), &Some(Value::Int(2024))));
    assert_eq!((&d.data_type, d.null_count, d.distinct_count), (&Some(DataType::Text), Some(0), Some(3)));
    assert_eq!(d.maximum, Some(Value::Text("x".into())));
}

#[test]
fn of_many_files_some_are_read_and_all_keys_are_known() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..600 {
        let path = folder.path().join(format!("n={number}"));
        fs::create_dir_all(&path).unwrap();
        match number {
            // Not one of those that are read.
            1 => fs::write(path.join("a.parquet"), "junk").unwrap(),
            _ => write(&path.join("a.parquet"), vec![("k", numbers(vec![number, 1]))]),
        }
    }
    let files = FileSet::parquet(vec![folder.path().display().to_string()]);
    let catalog = FileCatalog::default();
    let table = describe(&catalog, &files, DescribeExtent::Some).unwrap();
    assert_eq!(table.identity, identify(&catalog, &files).unwrap());
    assert_eq!(table.files.len(), 256);
    assert!((1100..=1300).contains(&table.row_count), "{}", table.row_count);
    let (k, n) = (column(&table, "k"), column(&table, "n"));
    assert_eq!(
        (&k.data_type, &k.minimum, &k.maximum, k.null_count),
        (&Some(DataType::Int32), &None, &None, None)
    );
    assert_eq!((&n.minimum, &n.maximum), (&Some(Value::Int(0)), &Some(Value::Int(599))));
    assert_eq!((n.distinct_count, n.null_count), (Some(600), Some(table.row_count % 600)));
    assert_eq!(describe(&catalog, &files, DescribeExtent::All).unwrap_err().kind, ErrorKind::FileCorrupt);
}

#[test]
fn columns_are_described_by_their_ids_too() {
    let folder = tempfile::tempdir().unwrap();
    let table = |files: [&str; 2]| {
        for (number, columns) in files.into_iter().enumerate() {
            write_schema(&folder.path().join(format!("{number}.parquet")), columns);
        }
        describe_path(folder.path()).unwrap()
    };
    let renamed = table([
        "required int32 k = 1; optional binary v (UTF8) = 2; optional int32 w;",
        "required int64 key = 1; optional int32 v = 3; optional int32 w;",
    ]);
    let shown = |table: &TableDescription| -> Vec<(Option<i32>, String, Option<DataType>)> {
        let of =
            |column: &ColumnDescription| (column.field_id, column.name.clone(), column.data_type.clone());
        table.by_id.iter().map(of).collect()
    };
    let expected =
        [(1, "key", Some(DataType::Int64)), (2, "v", Some(DataType::Text)), (3, "v", Some(DataType::Int32))];
    assert_eq!(shown(&renamed), expected.map(|(id, name, kind)| (Some(id), name.to_owned(), kind)));
    assert_eq!((column(&renamed, "v").field_id, column(&renamed, "k").field_id), (None, Some(1)));
    let of = |name: &str, field_id| renamed.column(&FileColumn { name: name.to_owned(), field_id });
    assert_eq!(of("k", Some(3)).unwrap().data_type, Some(DataType::Int32));
    assert_eq!(of("k", None).unwrap().data_type, Some(DataType::Int32));
    assert_eq!(of("k", Some(4)), None);
    // A file without ids may have the column by any name.
    let mixed = table(["required int32 k = 1;", "required int64 other;"]);
    assert_eq!(shown(&mixed), [(Some(1), "k".to_owned(), None)]);
    assert_eq!(shown(&table(["required int32 k;", "required int64 k;"])), []);
}

#[test]
fn a_large_table_is_the_same_while_its_paths_and_the_files_that_are_read_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: i32| folder.path().join(format!("{number:03}.parquet"));
    (0..300).for_each(|number| write(&path(number), vec![("k", numbers(vec![number]))]));
    let files = FileSet::parquet(vec![folder.path().display().to_string()]);
    let catalog = FileCatalog::default();
    let before = describe(&catalog, &files, DescribeExtent::Some).unwrap().identity;
    let read = describe(&catalog, &files, DescribeExtent::Some).unwrap().files;
    let is_read = |number: &i32| read.iter().any(|file| Path::new(&file.path) == path(*number));
    let (unread, read): (Vec<i32>, Vec<i32>) = (0..300).partition(|number| !is_read(number));
    assert_eq!(read.len(), 256);
    write(&path(unread[0]), vec![("k", numbers(vec![1, 2, 3]))]);
    assert_eq!(identify(&catalog, &files).unwrap(), before);
    write(&path(read[7]), vec![("k", numbers(vec![1, 2, 3]))]);
    let after = identify(&catalog, &files).unwrap();
    assert_ne!(after, before);
    fs::rename(path(unread[1]), folder.path().join("other.parquet")).unwrap();
    assert_ne!(identify(&catalog, &files).unwrap(), after);
}

#[test]
fn describing_holds_one_footer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..40 {
        write(&folder.path().join(format!("{number}.parquet")), vec![("k", numbers(vec![number]))]);
    }
    let files = FileSet::parquet(vec![folder.path().display().to_string()]);
    // Some of the footers fit, and not all.
    let memory = Arc::new(CountedMemory::new(40_000));
    let catalog = FileCatalog::new(memory, u64::MAX);
    assert_eq!(catalog.open_all(&files).unwrap_err().kind, ErrorKind::OutOfMemory);
    assert_eq!(describe(&catalog, &files, DescribeExtent::All).unwrap().row_count, 40);
}

#[test]
fn same_type_stored_differently_is_one_type() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder.path().join("a.parquet"),
        vec![("t", Arc::new(TimestampMillisecondArray::from(vec![7])) as ArrayRef)],
    );
    write(
        &folder.path().join("b.parquet"),
        vec![("t", Arc::new(TimestampMicrosecondArray::from(vec![8])) as ArrayRef)],
    );
    let table = describe_path(folder.path()).unwrap();
    let column = column(&table, "t");
    assert_eq!((&column.minimum, &column.maximum), (&Some(Value::Int(8)), &Some(Value::Int(7_000))));
}

#[test]
fn change_is_seen_and_so_is_sameness() {
    let (_folder, file) = folder();
    let catalog = FileCatalog::default();
    let files = FileSet::parquet(vec![file.display().to_string()]);
    write(&file, vec![("k", numbers(vec![5]))]);
    let before = describe(&catalog, &files, DescribeExtent::All).unwrap();
    for _ in 0..100 {
        assert_eq!(describe(&catalog, &files, DescribeExtent::All).unwrap().identity, before.identity);
    }
    write(&file, vec![("k", numbers(vec![5, 6, 7]))]);
    let after = describe(&catalog, &files, DescribeExtent::All).unwrap();
    assert_ne!(before.identity, after.identity);
    assert_eq!(after.row_count, 3);
}

#[test]
fn files_that_are_missing_say_which() {
    let folder = tempfile::tempdir().unwrap();
    for path in
        [folder.path().join("no.parquet"), folder.path().join("no*.parquet"), folder.path().to_owned()]
    {
        let error = describe_path(&path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileNotFound, "{}", error.message);
        assert!(error.message.contains(&path.display().to_string()), "{}", error.message);
    }
}

#[test]
fn things_that_are_no_files_do_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.parquet");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(describe_path(&socket).unwrap_err().message.contains("not a regular file"));
    assert!(describe_path(Path::new("/dev/zero")).unwrap_err().message.contains("not a regular file"));
}

fn check_corrupt(file: &Path, bytes: &[u8], reason: &str) {
    fs::write(file, bytes).unwrap();
    let error = describe_path(file).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileCorrupt, "{}", error.message);
    assert!(error.message.contains("t.parquet") && error.message.contains(reason), "{}", error.message);
}

#[test]
fn corrupt_files_say_what_is_wrong() {
    let (_folder, file) = folder();
    write(
        &file,
        vec![("k", numbers(vec![5, 6, 7])), ("t", Arc::new(StringArray::from(vec!["a", "b", "c"])))],
    );
    let good = fs::read(&file).unwrap();
    let end = good.len();
    let with_end = |length: u32, magic: &[u8]| [&good[..end - 8], &length.to_le_bytes()[..], magic].concat();
    check_corrupt(&file, b"", "empty");
    check_corrupt(&file, b"PAR1", "too short");
    check_corrupt(&file, b"order,amount\n1,2\n3,4\n", "not Parquet");
    check_corrupt(&file, &good[..end - 1], "truncated");
    check_corrupt(&file, &good[..end / 2], "truncated");
    check_corrupt(&file, &with_end(100, b"PARE"), "encrypted");
    check_corrupt(&file, &with_end(u32::MAX, b"PAR1"), "footer is corrupt");
    check_corrupt(&file, &with_end(end as u32, b"PAR1"), "footer is corrupt");
    check_corrupt(&file, &with_end(0, b"PAR1"), "footer is corrupt");
    check_corrupt(&file, &with_end(7, b"PAR1"), "footer is corrupt");
    check_corrupt(
        &file,
        &[b"PAR1", &[0xff; 500][..], &500_u32.to_le_bytes(), b"PAR1"].concat(),
        "footer is corrupt",
    );
    let footer_bytes = u32::from_le_bytes(good[end - 8..end - 4].try_into().unwrap()) as usize;
    let footer_alone = [b"PAR1", &good[end - 8 - footer_bytes..]].concat();
    check_corrupt(&file, &footer_alone, "points outside");
}

#[test]
fn no_damage_to_a_footer_ends_the_process() {
    let (_folder, file) = folder();
    write(
        &file,
        vec![("k", numbers(vec![5, 6, 7])), ("t", Arc::new(StringArray::from(vec!["a", "b", "c"])))],
    );
    let good = fs::read(&file).unwrap();
    let footer_bytes = u32::from_le_bytes(good[good.len() - 8..good.len() - 4].try_into().unwrap()) as usize;
    let mut refused = 0;
    for place in good.len() - 8 - footer_bytes..good.len() - 8 {
        for damage in [0x00, 0x7f, 0x80, 0xff, good[place] ^ 0x01, good[place] ^ 0x10] {
            let mut damaged = good.clone();
            damaged[place] = damage;
            fs::write(&file, &damaged).unwrap();
            match describe_path(&file) {
                Ok(_) => {}
                Err(error) => {
                    assert_ne!(error.kind, ErrorKind::Internal, "{}", error.message);
                    assert!(error.message.contains("t.parquet"), "{}", error.message);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > footer_bytes, "refused={refused}, footer_bytes={footer_bytes}");
}

#[test]
fn description_of_an_empty_file_is_empty() {
    let (_folder, file) = folder();
    let schema = Arc::new(Schema::new(vec![Field::new("k", ArrowType::Int32, false)]));
    ArrowWriter::try_new(fs::File::create(&file).unwrap(), schema, None).unwrap().close().unwrap();
    let table = describe_path(&file).unwrap();
    assert_eq!((table.row_count, table.columns[0].required, table.columns[0].null_count), (0, true, Some(0)));
}

#[test]
fn a_file_may_have_two_columns_of_one_name() {
    let (_folder, file) = folder();
    write_schema(&file, "required int32 a; required int32 a;");
    assert_eq!(column(&describe_path(&file).unwrap(), "a").differences, None);
}
