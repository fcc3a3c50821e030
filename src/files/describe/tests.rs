//! Descriptions of files of every type, and errors for files that are not what they should be.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
        Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, RecordBatch,
        StringArray, StructArray, Time32MillisecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
        TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array,
        UInt64Array,
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
use pystachio_plan::{ColumnDescription, DataType, ErrorKind, FileSet, TableDescription, Value};

use super::*;
use crate::files::FileCatalog;

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
    describe(&FileCatalog::default(), &FileSet { paths: vec![path.display().to_string()] })
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
        ("w", "", false),
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
fn nested_columns_are_arrays_or_have_no_type() {
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
    assert_eq!((&record.data_type, record.file_type.as_str()), (&None, "struct"));
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
    assert_eq!((table.row_count, table.files.len(), table.columns.len()), (3, 2, 2));
    assert_eq!(
        (&column(&table, "k").minimum, &column(&table, "k").maximum),
        (&Some(Value::Int(4)), &Some(Value::Int(6)))
    );
    assert_eq!(column(&table, "x").minimum, Some(Value::Int(0)));
}

#[test]
fn files_that_differ_are_an_error_that_names_both() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    write(&first, vec![("k", numbers(vec![5]))]);
    write(&second, vec![("k", Arc::new(StringArray::from(vec!["x"])) as ArrayRef)]);
    let error = describe_path(folder.path()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::SchemaMismatch);
    for part in ["a.parquet", "b.parquet", "\"k\"", "INT32", "BYTE_ARRAY String"] {
        assert!(error.message.contains(part), "{part}: {}", error.message);
    }
    write(&second, vec![("other", numbers(vec![5]))]);
    let error = describe_path(folder.path()).unwrap_err();
    assert!(
        error.message.contains("is missing in") && error.message.contains("b.parquet"),
        "{}",
        error.message
    );
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
    let files = FileSet { paths: vec![file.display().to_string()] };
    write(&file, vec![("k", numbers(vec![5]))]);
    let before = describe(&catalog, &files).unwrap();
    for _ in 0..100 {
        assert_eq!(describe(&catalog, &files).unwrap().identity, before.identity);
    }
    write(&file, vec![("k", numbers(vec![5, 6, 7]))]);
    let after = describe(&catalog, &files).unwrap();
    assert_ne!(before.identity, after.identity);
    assert_eq!(after.row_count, 3);
}

#[test]
fn files_that_are_missing_say_which() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["no.parquet", "no*.parquet", ""] {
        let path = folder.path().join(path);
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
