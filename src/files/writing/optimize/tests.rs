//! Files rewritten: the same values, in the layout that was promised, and what remains of runs that fail.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
        DictionaryArray, FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array, Int8Array,
        Int16Array, Int32Array, Int64Array, IntervalYearMonthArray, ListArray, MapArray, RecordBatch,
        StringArray, StructArray, Time32MillisecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
        TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
        builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder},
        types::{ArrowPrimitiveType, Float16Type, Int32Type},
    },
    buffer::NullBuffer,
    compute::concat_batches,
    datatypes::{DataType, Field, Fields, i256},
};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, Encoding, ZstdLevel},
    data_type::Int64Type,
    file::{
        metadata::{KeyValue, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, SortingColumn},
        properties::{WriterProperties, WriterVersion},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use pystachio_plan::{Error, ErrorKind};

use super::*;
use crate::{file_memory::tests::CountedMemory, writing::layout};

const MEMORY_BYTES: u64 = 1 << 30;

fn request(source: &Path, target: &Path) -> OptimizeRequest {
    OptimizeRequest {
        source: source.display().to_string(),
        target: target.display().to_string(),
        overwrite: false,
        row_group_rows: layout::ROW_GROUP_ROWS,
        compression: "auto".into(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn means(memory_bytes: u64) -> OptimizeMeans {
    let admission = Admission::new(Arc::new(CountedMemory::new(memory_bytes)));
    OptimizeMeans { catalog: Arc::default(), threads: 2, admission }
}

fn run(request: OptimizeRequest) -> Result<Vec<OptimizedColumn>> {
    runtime().block_on(optimize(request, means(MEMORY_BYTES), &|_| {}))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn write(path: &Path, batch: &RecordBatch, properties: WriterProperties) {
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn read(path: &Path) -> RecordBatch {
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let schema = builder.schema().clone();
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(|batch| batch.unwrap()).collect();
    concat_batches(&schema, &batches).unwrap()
}

fn metadata(path: &Path) -> ParquetMetaData {
    ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&fs::File::open(path).unwrap())
        .unwrap()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

/// A third of the rows NULL.
fn valid(row: usize) -> bool {
    !row.is_multiple_of(3)
}

fn column<A, V>(rows: usize, value: impl Fn(usize) -> V) -> ArrayRef
where
    A: Array + FromIterator<Option<V>> + 'static,
{
    Arc::new((0..rows).map(|row| valid(row).then(|| value(row))).collect::<A>())
}

/// Every type that Parquet has, nested ones included.
fn every_type(rows: usize) -> RecordBatch {
    let number = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    let decimal: Decimal128Array = (0..rows).map(|row| valid(row).then(|| number(row) as i128 * 7)).collect();
    let wide: Decimal256Array =
        (0..rows).map(|row| valid(row).then(|| i256::from_i128(number(row) as i128))).collect();
    let texts: Vec<String> = (0..rows).map(|row| format!("text of row {} ä", row / 7)).collect();
    let mut lists = ListBuilder::new(Int64Builder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..rows {
        for item in 0..row % 4 {
            lists.values().append_option((item != 1).then_some(row as i64));
            maps.keys().append_value(format!("k{item}"));
            maps.values().append_value(item as i64);
        }
        lists.append(row % 5 != 0);
        maps.append(true).unwrap();
    }
    let lists: ListArray = lists.finish();
    let maps: MapArray = maps.finish();
    let fields: Fields =
        vec![Field::new("x", DataType::Int32, true), Field::new("y", DataType::Utf8, true)].into();
    let parts = vec![
        column::<Int32Array, _>(rows, |row| row as i32),
        column::<StringArray, _>(rows, |row| texts[row].clone()),
    ];
    let nested =
        StructArray::new(fields, parts, Some((0..rows).map(|row| row % 4 != 0).collect::<NullBuffer>()));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        (0..rows).map(|row| valid(row).then(|| number(row).to_be_bytes())),
        8,
    );
    let keyed: DictionaryArray<Int32Type> =
        (0..rows).map(|row| valid(row).then(|| ["red", "green", "blue"][row % 3])).collect();
    batch(vec![
        ("bool", column::<BooleanArray, _>(rows, |row| number(row).is_multiple_of(2))),
        ("int8", column::<Int8Array, _>(rows, |row| row as i8)),
        ("int16", column::<Int16Array, _>(rows, |row| row as i16)),
        ("int32", column::<Int32Array, _>(rows, |row| number(row) as i32)),
        ("int64", column::<Int64Array, _>(rows, |row| row as i64 * 3)),
        ("uint8", column::<UInt8Array, _>(rows, |row| row as u8)),
        ("uint16", column::<UInt16Array, _>(rows, |row| row as u16)),
        ("uint32", column::<UInt32Array, _>(rows, |row| number(row) as u32)),
        ("uint64", column::<UInt64Array, _>(rows, number)),
        ("half", column::<Float16Array, _>(rows, |row| Half::from_f32(row as f32))),
        ("float", column::<Float32Array, _>(rows, |row| row as f32 / 3.0)),
        ("double", column::<Float64Array, _>(rows, |row| f64::from_bits(number(row) >> 2))),
        (
            "decimal9",
            Arc::new(
                Decimal128Array::from_iter_values((0..rows).map(|row| row as i128))
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
        ),
        ("decimal38", Arc::new(decimal.with_precision_and_scale(38, 3).unwrap())),
        ("decimal60", Arc::new(wide.with_precision_and_scale(60, 3).unwrap())),
        ("date", column::<Date32Array, _>(rows, |row| row as i32)),
        ("time", column::<Time32MillisecondArray, _>(rows, |row| row as i32)),
        ("time_ns", column::<Time64NanosecondArray, _>(rows, |row| row as i64)),
        ("timestamp", column::<TimestampMicrosecondArray, _>(rows, |row| row as i64)),
        ("timestamp_ns", column::<TimestampNanosecondArray, _>(rows, |row| row as i64)),
        ("interval", column::<IntervalYearMonthArray, _>(rows, |row| row as i32)),
        ("text", column::<StringArray, _>(rows, |row| texts[row].clone())),
        ("bytes", column::<BinaryArray, _>(rows, |row| number(row).to_be_bytes().to_vec())),
        ("fixed", Arc::new(fixed.unwrap())),
        ("keyed", Arc::new(keyed)),
        ("list", Arc::new(lists)),
        ("map", Arc::new(maps)),
        ("struct", Arc::new(nested)),
        ("nothing", arrow::array::new_null_array(&DataType::Int64, rows)),
    ])
}

#[test]
fn values_of_every_type_and_the_schema_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    let rows = 5_000;
    let whole = every_type(rows);
    for (version, compression, groups) in [
        (WriterVersion::PARQUET_1_0, Compression::SNAPPY, 700),
        (WriterVersion::PARQUET_2_0, Compression::ZSTD(ZstdLevel::default()), rows),
    ] {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(compression)
            .set_max_row_group_row_count(Some(groups))
            .set_key_value_metadata(Some(vec![KeyValue::new("mine".to_owned(), "kept".to_owned())]))
            .set_data_page_row_count_limit(333);
        write(&source, &whole, properties.build());
        let request = OptimizeRequest { overwrite: true, row_group_rows: 2_000, ..request(&source, &target) };
        let columns = run(request).unwrap();
        assert_eq!(read(&target), read(&source));
        assert_eq!(read(&target).num_rows(), rows);
        let (before, after) = (metadata(&source), metadata(&target));
        assert_eq!(after.file_metadata().schema(), before.file_metadata().schema());
        assert_eq!(after.file_metadata().key_value_metadata(), before.file_metadata().key_value_metadata());
        let row_counts: Vec<i64> = after.row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(row_counts, [1666, 1667, 1667]);
        assert_eq!(columns.len(), after.file_metadata().schema_descr().num_columns());
        for (column, report) in columns.iter().enumerate() {
            check_column(&before, &after, column, report);
        }
    }
}

/// Statistics and the report agree with what is in the files.
fn check_column(before: &ParquetMetaData, after: &ParquetMetaData, column: usize, report: &OptimizedColumn) {
    let chunks = |metadata: &ParquetMetaData| -> Vec<_> {
        metadata.row_groups().iter().map(|group| group.column(column).clone()).collect()
    };
    let nulls = |metadata: &ParquetMetaData| -> Option<u64> {
        chunks(metadata).iter().map(|chunk| chunk.statistics()?.null_count_opt()).sum()
    };
    let bytes = |metadata| chunks(metadata).iter().map(|chunk| chunk.compressed_size() as u64).sum::<u64>();
    let name = after.file_metadata().schema_descr().column(column).path().string();
    assert_eq!(report.column, name);
    assert_eq!(nulls(after), nulls(before), "{name}");
    assert_eq!((report.bytes_before, report.bytes_after), (bytes(before), bytes(after)), "{name}");
    assert_eq!(report.row_groups, after.num_row_groups() as u64);
    let allowed = [
        Encoding::PLAIN,
        Encoding::RLE,
        Encoding::RLE_DICTIONARY,
        Encoding::DELTA_BINARY_PACKED,
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::BYTE_STREAM_SPLIT,
    ];
    let codecs = [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW];
    for chunk in chunks(after) {
        assert!(codecs.contains(&chunk.compression()), "{name}: {}", chunk.compression());
        assert_eq!(chunk.compression().to_string(), report.compression);
        for encoding in chunk.page_encoding_stats_mask().unwrap().encodings() {
            assert!(allowed.contains(&encoding), "{name}: {encoding}");
            let mut named = report.encoding.split(", ");
            assert!(
                named.any(|name| name == encoding.to_string()),
                "{name}: {encoding}, {}",
                report.encoding
            );
        }
    }
    let fewest = (0..after.num_row_groups()).map(|group| page_starts(after, group, column).len()).min();
    assert_eq!(report.pages, fewest.unwrap() as u64, "{name}");
}

/// The first rows of a column chunk's pages.
fn page_starts(metadata: &ParquetMetaData, row_group: usize, column: usize) -> Vec<i64> {
    let index = &metadata.offset_index().unwrap()[row_group][column];
    index.page_locations().iter().map(|page| page.first_row_index).collect()
}

#[test]
fn column_chunks_have_a_hundred_pages_that_end_together() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    let rows = 300_000;
    let columns = batch(vec![
        ("number", column::<Int64Array, _>(rows, |row| row as i64)),
        ("text", column::<StringArray, _>(rows, |row| format!("{:x}", row * 7919))),
        ("flag", column::<BooleanArray, _>(rows, |row| row % 2 == 0)),
    ]);
    write(&source, &columns, WriterProperties::builder().set_max_row_group_row_count(Some(90_001)).build());
    let request = OptimizeRequest { row_group_rows: 150_000, ..request(&source, &target) };
    let report = run(request).unwrap();
    let metadata = metadata(&target);
    assert_eq!(metadata.num_row_groups(), 2);
    for row_group in 0..2 {
        let starts = page_starts(&metadata, row_group, 0);
        assert!(starts.len() as u64 >= layout::PAGES_MIN, "{}", starts.len());
        assert!(
            starts.iter().all(|start| (*start as u64).is_multiple_of(layout::PAGE_ROWS_STEP)),
            "{starts:?}"
        );
        for column in 1..3 {
            assert_eq!(page_starts(&metadata, row_group, column), starts);
        }
        assert_eq!(metadata.column_index().unwrap()[row_group].len(), 3);
    }
    assert!(report.iter().all(|column| column.pages >= layout::PAGES_MIN));
    assert_eq!(read(&target), read(&source));
}

#[test]
fn every_column_gets_what_suits_it() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    let rows = 100_000_usize;
    // Splitmix64: no encoding finds anything in it.
    let noise = |row: usize| {
        let mixed = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let columns = batch(vec![
        ("ascending", Arc::new((0..rows).map(|row| row as i64 * 3).collect::<Int64Array>())),
        ("few", Arc::new((0..rows).map(|row| (noise(row) % 7) as i64).collect::<Int64Array>())),
        ("noise", Arc::new((0..rows).map(|row| noise(row) as i64).collect::<Int64Array>())),
        (
            "words",
            Arc::new(
                (0..rows)
                    .map(|row| Some(["one", "two", "three"][noise(row) as usize % 3]))
                    .collect::<StringArray>(),
            ),
        ),
        ("hex", Arc::new((0..rows).map(|row| Some(format!("{:016x}", noise(row)))).collect::<StringArray>())),
        (
            "same",
            Arc::new(
                (0..rows)
                    .map(|row| Some(format!("{}{row}", "the same again ".repeat(4))))
                    .collect::<StringArray>(),
            ),
        ),
    ]);
    write(&source, &columns, WriterProperties::builder().build());
    let report = run(request(&source, &target)).unwrap();
    let forms: Vec<(&str, &str, &str)> = report
        .iter()
        .map(|column| (column.column.as_str(), column.encoding.as_str(), column.compression.as_str()))
        .collect();
    assert_eq!(forms[0], ("ascending", "DELTA_BINARY_PACKED", "UNCOMPRESSED"));
    assert_eq!(forms[1], ("few", "RLE_DICTIONARY", "UNCOMPRESSED"));
    assert_eq!(forms[2], ("noise", "PLAIN", "UNCOMPRESSED"));
    assert_eq!(forms[3], ("words", "RLE_DICTIONARY", "UNCOMPRESSED"));
    assert_eq!((forms[4].0, forms[4].1), ("hex", "DELTA_LENGTH_BYTE_ARRAY"));
    assert_eq!((forms[5].0, forms[5].1), ("same", "DELTA_LENGTH_BYTE_ARRAY"));
    assert_ne!(forms[5].2, "UNCOMPRESSED");
    assert!(
        report[2].reason.contains("of PLAIN") && report[2].reason.contains("would save"),
        "{}",
        report[2].reason
    );
    assert!(report[5].reason.contains(" saves "), "{}", report[5].reason);
    // One codec for all, where that is asked for.
    let forced = OptimizeRequest { compression: "zstd".into(), overwrite: true, ..request(&source, &target) };
    assert!(run(forced).unwrap().iter().all(|column| column.compression == "ZSTD"));
    assert_eq!(read(&target), read(&source));
}

#[test]
fn a_dictionary_that_fills_up_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    // Long texts that repeat at first, and then do not.
    let value = |row: usize| if row < 150_000 { row % 10 } else { row };
    let texts: StringArray =
        (0..200_000).map(|row| Some(format!("{:0>60}", value(row).wrapping_mul(0x9e37_79b9)))).collect();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    write(&source, &batch(vec![("text", Arc::new(texts))]), properties);
    let encoding = |memory_bytes| {
        let request =
            OptimizeRequest { compression: "none".into(), overwrite: true, ..request(&source, &target) };
        let report = runtime().block_on(optimize(request, means(memory_bytes), &|_| {})).unwrap();
        assert_eq!(read(&target), read(&source));
        report[0].encoding.clone()
    };
    // A sample of all rows fills it; one of little memory has the first rows only.
    assert_eq!(encoding(MEMORY_BYTES), "DELTA_LENGTH_BYTE_ARRAY");
    assert_eq!(encoding(64 << 20), "DELTA_LENGTH_BYTE_ARRAY, RLE_DICTIONARY");
}

#[test]
fn folders_and_patterns_keep_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("s");
    fs::create_dir_all(source.join("year=1")).unwrap();
    let numbers = |rows| batch(vec![("a", column::<Int32Array, _>(rows, |row| row as i32))]);
    let files = ["one.parquet", "year=1/two.parquet", "year=1/three.PARQUET"];
    for (rows, file) in files.iter().enumerate() {
        write(&source.join(file), &numbers(rows), WriterProperties::builder().build());
    }
    fs::write(source.join("notes.txt"), "x").unwrap();
    let target = folder.path().join("t/deep");
    assert_eq!(run(request(&source, &target)).unwrap().len(), 3);
    for file in files {
        assert_eq!(read(&target.join(file)), read(&source.join(file)));
    }
    assert_eq!(entries(&target).len(), 2);
    let pattern = source.join("year=*/t*o.parquet");
    let other = folder.path().join("u");
    let report = run(request(&pattern, &other)).unwrap();
    assert_eq!(report[0].file, other.join("year=1/two.parquet").display().to_string());
    assert_eq!(entries(&other.join("year=1")).len(), 1);
    // A file without the usual name gets it.
    fs::copy(source.join("one.parquet"), source.join("one.data")).unwrap();
    run(request(&source.join("one.data"), &other)).unwrap();
    assert!(other.join("one.data.parquet").is_file());
}

#[test]
fn groups_without_columns_stay() {
    let schema = "message schema { optional group nothing {} required int64 a; optional group last {} }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    let file = fs::File::create(&source).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut row_group = writer.next_row_group().unwrap();
    let mut column = row_group.next_column().unwrap().unwrap();
    let values: Vec<i64> = (0..3000).collect();
    column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    row_group.close().unwrap();
    writer.close().unwrap();
    run(request(&source, &target)).unwrap();
    let root = |path: &Path| metadata(path).file_metadata().schema_descr().root_schema().clone();
    assert_eq!(root(&target).get_fields(), root(&source).get_fields());
    assert_eq!(read(&target), read(&source));
}

#[test]
fn sorting_is_kept_where_it_stays_true() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
    let sorting = vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }];
    let numbers = batch(vec![("a", Arc::new((0..4_000_i64).map(|row| row % 2_000).collect::<Int64Array>()))]);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(2_000))
        .set_sorting_columns(Some(sorting.clone()));
    write(&source, &numbers, properties.build());
    let sorted = |row_group_rows| {
        let request = OptimizeRequest { row_group_rows, overwrite: true, ..request(&source, &target) };
        run(request).unwrap();
        metadata(&target).row_group(0).sorting_columns().cloned()
    };
    assert_eq!(sorted(2_000), Some(sorting.clone()));
    assert_eq!(sorted(1_024), Some(sorting));
    assert_eq!(sorted(4_000), None);
}

#[test]
fn requests_that_make_no_sense_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.parquet");
    write(&source, &every_type(10), WriterProperties::builder().build());
    fs::create_dir(folder.path().join("s")).unwrap();
    fs::copy(&source, folder.path().join("s/a.parquet")).unwrap();
    fs::write(folder.path().join("there.parquet"), "mine").unwrap();
    let at = |path: &str| folder.path().join(path);
    let good = request(&source, &at("t"));
    let link = at("link");
    std::os::unix::fs::symlink(at("s"), &link).unwrap();
    let bad = [
        (OptimizeRequest { target: "here".into(), ..good.clone() }, "absolute"),
        (OptimizeRequest { compression: "gzip".into(), ..good.clone() }, "zstd"),
        (OptimizeRequest { row_group_rows: 1, ..good.clone() }, "1024"),
        (request(&source, &at("there.parquet")), "already exists"),
        (request(&source, &source), "part of the source"),
        (request(&source, folder.path()), "part of the source"),
        (request(&at("s"), &at("s/t")), "lies in the source"),
        (request(&at("s"), &link.join("t")), "lies in the source"),
        (request(&at("*/a.parquet"), &at("t.parquet")), "part of the source"),
    ];
    let before = entries(folder.path());
    for (request, part) in bad {
        let error = run(OptimizeRequest { overwrite: part != "already exists", ..request }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(run(request(&at("nothing"), &at("t"))).unwrap_err().kind, ErrorKind::FileNotFound);
    assert_eq!(fs::read(at("there.parquet")).unwrap(), b"mine");
    assert_eq!(entries(folder.path()), before);
}

#[test]
fn corrupt_pages_name_the_column_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.parquet");
    write(&source, &every_type(3_000), WriterProperties::builder().build());
    let place = metadata(&source).row_group(0).column(4).byte_range();
    let mut bytes = fs::read(&source).unwrap();
    bytes[place.0 as usize..(place.0 + place.1) as usize].fill(0xff);
    fs::write(&source, bytes).unwrap();
    let error: Error = run(request(&source, &folder.path().join("t/u"))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileCorrupt, "{error}");
    assert!(error.message.contains("a.parquet") && error.detail.unwrap().contains("\"int64\""));
    assert_eq!(entries(folder.path()), [source]);
}

#[test]
fn little_memory_makes_small_row_groups_and_none_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("a.parquet"), folder.path().join("t"));
    let rows = 400_000;
    let texts: StringArray = (0..rows).map(|row| Some(format!("{row:0>100}"))).collect();
    write(
        &source,
        &batch(vec![("text", Arc::new(texts))]),
        WriterProperties::builder().set_dictionary_enabled(false).build(),
    );
    let run =
        |memory_bytes| runtime().block_on(optimize(request(&source, &target), means(memory_bytes), &|_| {}));
    assert_eq!(run(1 << 20).unwrap_err().kind, ErrorKind::OutOfMemory);
    assert_eq!(entries(folder.path()), std::slice::from_ref(&source));
    let report = run(160 << 20).unwrap();
    assert_eq!(report[0].row_groups, 3);
    assert_eq!(read(&target.join("a.parquet")), read(&source));
}

#[test]
fn dropped_run_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.parquet");
    let rows = 2_000_000;
    write(
        &source,
        &batch(vec![("a", column::<Int64Array, _>(rows, |row| row as i64))]),
        WriterProperties::builder().build(),
    );
    let runtime = runtime();
    let target = folder.path().join("made/here");
    runtime.block_on(async {
        let (reported, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let progress = move |progress| reported.send(progress).unwrap();
        let optimizing = optimize(request(&source, &target), means(MEMORY_BYTES), &progress);
        tokio::select! {
            _ = optimizing => panic!("the run was to be dropped"),
            report = reports.recv() => assert!(report.is_some()),
        }
    });
    // The runtime waits for the threads, which see that their receiver is gone.
    drop(runtime);
    assert_eq!(entries(folder.path()), [source]);
}
