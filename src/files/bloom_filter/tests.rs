//! What filters of a file rule out, by type; filters that are not as long as they say.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, FixedSizeBinaryArray, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use parquet::{
    arrow::ArrowWriter,
    file::properties::{EnabledStatistics, WriterProperties},
};
use pystachio_plan::FileSet;

use super::*;
use crate::{ColumnPlace, FileCatalog, page_index::tests::columns_of, rows_left};

const ROWS: i64 = 500;

/// Even numbers from 0 on, in several types, without statistics and page indexes.
fn table_file() -> (tempfile::TempDir, TableFile) {
    let numbers = || (0..ROWS).map(|row| 2 * row);
    let decimals = |precision| {
        let values = numbers().map(i128::from).collect::<Decimal128Array>();
        values.with_precision_and_scale(precision, 2).unwrap()
    };
    let ids = numbers().map(|number| i128::from(number).to_be_bytes());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(numbers().map(|number| number as i32).collect::<Int32Array>())),
        ("l", Arc::new(numbers().collect::<Int64Array>())),
        ("t", Arc::new(numbers().map(|number| Some(number.to_string())).collect::<StringArray>())),
        ("d", Arc::new(Date32Array::from_iter_values(numbers().map(|number| number as i32)))),
        ("m", Arc::new(TimestampMicrosecondArray::from_iter_values(numbers()))),
        ("n4", Arc::new(decimals(9))),
        ("n8", Arc::new(decimals(18))),
        ("n16", Arc::new(decimals(30))),
        ("u", Arc::new(FixedSizeBinaryArray::try_from_iter(ids).unwrap())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let properties = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_bloom_filter_enabled(true)
        .set_bloom_filter_fpp(0.0001)
        .build();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let files = FileSet::parquet(vec![path.display().to_string()]);
    (folder, FileCatalog::default().open_all(&files).unwrap().remove(0))
}

fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

/// The columns as they may be declared.
fn declared() -> Vec<DataType> {
    let (integer, text) = (DataType::Int64, DataType::Text);
    let moment = DataType::Timestamp;
    vec![
        integer.clone(),
        integer,
        text,
        DataType::Date,
        moment,
        decimal(9, 2),
        decimal(18, 2),
        decimal(30, 2),
        DataType::Bytea,
    ]
}

fn is_refuted(file: &TableFile, conditions: &[Expression]) -> bool {
    let names = ["i", "l", "t", "d", "m", "n4", "n8", "n16", "u"];
    let columns = columns_of(names.into_iter().zip(declared()));
    let places: Vec<ColumnPlace> =
        (0..columns.len()).map(|place| ColumnPlace::Stored(place.into())).collect();
    let place = IndexedRowGroup { file, row_group: 0, columns: &columns, places: &places };
    let left = rows_left(&place, conditions, &[]);
    assert!(left.is_none() || left == Some(Vec::new()));
    left.is_some()
}

fn demand(function: Function, column: u32, values: &[Literal]) -> Expression {
    let data_type = declared().swap_remove(column as usize);
    let mut arguments = vec![Expression::column(ColumnId(column), data_type)];
    arguments.extend(values.iter().cloned().map(Expression::Literal));
    Expression::predicate(function, arguments)
}

/// A number as a value of each column.
fn values(number: i64) -> Vec<Literal> {
    let declared = declared();
    let value = |column: usize| match column {
        2 => Value::Text(number.to_string()),
        5..=7 => Value::Decimal(number.into()),
        8 => Value::Bytes(i128::from(number).to_be_bytes().to_vec()),
        _ => Value::Int(number),
    };
    (0..declared.len()).map(|column| Literal::new(value(column), declared[column].clone())).collect()
}

#[test]
fn only_values_that_a_chunk_lacks_are_ruled_out() {
    let (_folder, file) = table_file();
    let mut ruled_out = 0;
    for number in -5..2 * ROWS + 5 {
        let has = number % 2 == 0 && (0..2 * ROWS).contains(&number);
        for (column, value) in (0..).zip(values(number)) {
            let refuted = is_refuted(&file, &[demand(Function::Equal, column, &[value])]);
            assert!(!(has && refuted), "{number} of column {column}");
            ruled_out += usize::from(refuted);
        }
    }
    // All odd numbers, and those outside, but for a few that filters take for others.
    let absent = (ROWS as usize + 10) * declared().len();
    assert!(ruled_out > absent * 99 / 100, "{ruled_out} of {absent}");
}

#[test]
fn lists_and_alternatives_are_ruled_out_as_a_whole() {
    let (_folder, file) = table_file();
    let list = |numbers: &[i64]| {
        let values: Vec<Literal> = numbers.iter().map(|number| values(*number).remove(1)).collect();
        demand(Function::In, 1, &values)
    };
    assert!(is_refuted(&file, &[list(&[1, 3, 999])]));
    assert!(!is_refuted(&file, &[list(&[1, 4])]));
    let either = |numbers: [i64; 2]| {
        Expression::predicate(Function::Or, numbers.map(|number| list(&[number])).to_vec())
    };
    assert!(is_refuted(&file, &[either([1, 3])]));
    assert!(!is_refuted(&file, &[either([1, 2])]));
    // One condition is enough.
    assert!(is_refuted(&file, &[list(&[4]), list(&[5])]));
    assert!(!is_refuted(&file, &[demand(Function::NotEqual, 1, &[values(3).remove(1)])]));
}

#[test]
fn values_of_another_form_decide_only_where_they_are_the_same_number() {
    let (_folder, file) = table_file();
    let equal = |column, value, data_type| demand(Function::Equal, column, &[Literal::new(value, data_type)]);
    // 4 has the digits 400 in a column of two digits after the point, 0.5 the digits 50.
    assert!(!is_refuted(&file, &[equal(6, Value::Decimal(4), decimal(9, 0))]));
    assert!(!is_refuted(&file, &[equal(6, Value::Decimal(5), decimal(9, 1))]));
    assert!(!is_refuted(&file, &[equal(6, Value::Decimal(3001), decimal(9, 3))]));
    assert!(is_refuted(&file, &[equal(6, Value::Decimal(30), decimal(9, 3))]));
    // Numbers that the stored type does not have, and infinities, which files write in several ways.
    assert!(is_refuted(&file, &[equal(0, Value::Int(1 << 40), DataType::Int64)]));
    assert!(!is_refuted(&file, &[equal(3, Value::Int(i32::MAX.into()), DataType::Date)]));
    assert!(!is_refuted(&file, &[equal(4, Value::Int(i64::MIN), DataType::Timestamp)]));
    // A date is not a timestamp.
    assert!(!is_refuted(&file, &[equal(3, Value::Int(1), DataType::Timestamp)]));
}

#[test]
fn a_filter_is_as_long_as_it_says() {
    let (_folder, file) = table_file();
    let chunk = file.footer.metadata().row_group(0).column(1);
    let offset = chunk.bloom_filter_offset().unwrap() as u64;
    let stated = chunk.bloom_filter_length().unwrap() as usize;
    let blocks = |offset, stated| read_bits(&file, offset, stated).map(|bits| bits.num_blocks());
    let whole = blocks(offset, None);
    assert!(whole.is_some_and(|blocks| blocks * 32 < stated));
    assert_eq!(blocks(offset, Some(stated)), whole);
    assert_eq!(blocks(offset, Some(stated - 1)), None);
    assert_eq!(blocks(offset, Some(stated + 1)), None);
    // A place without a header, and places beyond the end.
    for at in [0, file.footer.identity.file_bytes, u64::MAX] {
        assert_eq!(blocks(at, None), None);
    }
    for header in [&[][..], &[0], &[0x15], &[0x15, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]] {
        assert!(filter_bytes(header).is_none_or(|bytes| bytes > FILTER_BYTES_MAX), "{header:?}");
    }
}
