//! Columns declared as another type than the file's, and values that a declared type does not hold.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Decimal256Array, FixedSizeBinaryArray, Float32Array,
    Int8Array, Int32Array, Int64Array, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::i256;
use parquet::file::properties::WriterProperties;
use pystachio_plan::{DataType, Error, ErrorKind, ScanColumn};

use super::{Value, Values, column, decode_column, footer, matrix::write_file, oracle::read_column};

const PLAIN_AND_DICTIONARY: [bool; 2] = [false, true];

fn file_of(array: ArrayRef, dictionary: bool) -> Vec<u8> {
    let properties = WriterProperties::builder().set_dictionary_enabled(dictionary).build();
    write_file(vec![("v".to_owned(), array, true)], properties)
}

fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

/// Reads an array as declared types and compares with the oracle.
fn check(array: ArrayRef, declared: &[DataType]) {
    for dictionary in PLAIN_AND_DICTIONARY {
        let file = file_of(array.clone(), dictionary);
        for data_type in declared {
            let decoded = decode_column(&file, 0, &column("v", data_type.clone())).unwrap();
            let expected = read_column(&file, &footer(&file), 0, data_type).unwrap();
            assert_eq!(decoded, expected, "{} as {data_type}", array.data_type());
        }
    }
}

/// The error of reading an array, the same from plain pages and from dictionaries.
fn error_of(array: ArrayRef, column: &ScanColumn) -> Error {
    let [plain, dictionary] =
        PLAIN_AND_DICTIONARY.map(|dictionary| decode_column(&file_of(array.clone(), dictionary), 0, column));
    let plain = plain.expect_err("a value that does not fit");
    assert_eq!(plain, dictionary.expect_err("a value that does not fit"));
    plain
}

fn decimals(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    let array: Decimal128Array = values.iter().map(|value| Some(*value)).collect();
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn integers_are_read_as_wider_ones_and_as_decimals() {
    check(
        Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)])),
        &[DataType::Int16, DataType::Int32, DataType::Int64, decimal(3, 0), decimal(10, 4), decimal(30, 5)],
    );
    check(
        Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX)])),
        &[DataType::Int32, DataType::Int64, decimal(18, 3), decimal(38, 20)],
    );
    check(
        Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0)])),
        &[decimal(20, 0), decimal(38, 18)],
    );
    check(Arc::new(UInt64Array::from(vec![Some(999_999_999_999_999), Some(0)])), &[decimal(18, 3)]);
    check(Arc::new(Float32Array::from(vec![Some(1.5), Some(f32::NEG_INFINITY)])), &[DataType::Float64]);
}

#[test]
fn decimals_are_read_with_more_digits() {
    for (values, precision) in [(vec![-9_999_999, 0, 9_999_999], 7), (vec![-123_456_789_012_345, 5], 15)] {
        let array = decimals(&values, precision, 2);
        check(array, &[decimal(precision, 2), decimal(18, 2), decimal(30, 6), decimal(38, 2)]);
    }
    check(decimals(&[10_i128.pow(20) - 1, -1], 20, 4), &[decimal(20, 4), decimal(38, 10)]);
    // Fewer digits before the point, where the values allow it.
    check(decimals(&[12_345, -99_999], 15, 2), &[decimal(5, 2), decimal(6, 3)]);
}

fn large_decimals(values: &[&str], precision: u8, scale: i8) -> ArrayRef {
    let array: Decimal256Array =
        values.iter().map(|digits| Some(i256::from_string(digits).unwrap())).collect();
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn numbers_are_read_as_decimals_of_more_than_38_digits() {
    check(
        Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)])),
        &[decimal(39, 0), decimal(40, 37), decimal(76, 73)],
    );
    check(
        Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0)])),
        &[decimal(39, 0), decimal(76, 56)],
    );
    for (values, precision) in [(vec![-9_999_999, 0, 9_999_999], 7), (vec![10_i128.pow(38) - 1, -5], 38)] {
        check(decimals(&values, precision, 2), &[decimal(40, 2), decimal(76, 40)]);
    }
    let greatest = "9".repeat(60);
    let array = large_decimals(&[&greatest, &format!("-{greatest}"), "0", "-1"], 60, 10);
    check(array, &[decimal(60, 10), decimal(76, 10), decimal(76, 26)]);
    // Few digits in many bytes, and fewer digits than the file's type has.
    let small = large_decimals(&["123", "-99999"], 60, 2);
    check(small, &[decimal(5, 2), decimal(38, 10), decimal(40, 2), decimal(76, 50)]);
}

#[test]
fn decimals_with_too_many_digits_are_errors() {
    let greatest = "9".repeat(60);
    for (array, data_type) in [
        (large_decimals(&[&greatest], 60, 10), decimal(59, 10)),
        (large_decimals(&["-100000"], 60, 2), decimal(45, 42)),
        (large_decimals(&["100000000000000000000000000000000000000"], 60, 2), decimal(38, 2)),
        (Arc::new(Int64Array::from(vec![-1000])) as ArrayRef, decimal(40, 37)),
        (decimals(&[1, 100_000], 15, 2), decimal(5, 2)),
        (decimals(&[-100_000], 30, 2), decimal(6, 3)),
        (Arc::new(Int64Array::from(vec![10_i64.pow(15)])) as ArrayRef, decimal(18, 3)),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), decimal(18, 0)),
    ] {
        let error = error_of(array, &column("v", data_type.clone()));
        assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
        let expected = format!(
            "numeric field overflow: a value of column \"v\" of foreign table \"t\" has more digits than {data_type} \
             or its file allows, in file \"f.parquet\""
        );
        assert_eq!(error.message, expected);
    }
}

#[test]
fn dates_and_times_out_of_range_are_errors() {
    for (array, data_type) in [
        (Arc::new(Date32Array::from(vec![0, i32::MIN])) as ArrayRef, DataType::Date),
        (Arc::new(Date32Array::from(vec![i32::MAX - 1])), DataType::Date),
        (Arc::new(Time64MicrosecondArray::from(vec![86_400_000_001])), DataType::Time),
        (Arc::new(Time64MicrosecondArray::from(vec![-1])), DataType::Time),
        (Arc::new(TimestampMicrosecondArray::from(vec![i64::MIN])), DataType::Timestamp),
        (Arc::new(TimestampMillisecondArray::from(vec![i64::MAX / 999])), DataType::Timestamp),
    ] {
        let error = error_of(array, &column("v", data_type));
        assert_eq!(error.kind, ErrorKind::DatetimeOutOfRange, "{error}");
    }
    check(Arc::new(Time64MicrosecondArray::from(vec![0, 86_400_000_000])), &[DataType::Time]);
    check(
        Arc::new(TimestampMicrosecondArray::from(vec![-210_866_803_200_000_000, i64::MAX])),
        &[DataType::Timestamp],
    );
}

#[test]
fn infinities_of_duckdb_are_those_of_postgresql() {
    for dictionary in PLAIN_AND_DICTIONARY {
        let read = |array: ArrayRef, data_type| {
            decode_column(&file_of(array, dictionary), 0, &column("v", data_type))
        };
        let numbers = |values: [i128; 3]| values.map(|value| Some(Value::Number(value))).to_vec();
        let dates = Arc::new(Date32Array::from(vec![-i32::MAX, 0, i32::MAX]));
        assert_eq!(read(dates, DataType::Date), Ok(numbers([i32::MIN.into(), 0, i32::MAX.into()])));
        let expected = numbers([i64::MIN.into(), 0, i64::MAX.into()]);
        let moments = vec![-i64::MAX, 0, i64::MAX];
        let microseconds = Arc::new(TimestampMicrosecondArray::from(moments.clone()));
        assert_eq!(read(microseconds, DataType::Timestamp), Ok(expected.clone()));
        let milliseconds = Arc::new(TimestampMillisecondArray::from(moments));
        assert_eq!(read(milliseconds, DataType::Timestamp), Ok(expected));
    }
}

#[test]
fn types_without_a_conversion_are_left_to_the_cpu_engine() {
    let file = file_of(Arc::new(Int64Array::from(vec![1])), false);
    for data_type in [
        DataType::Int32,
        DataType::Float64,
        DataType::Text,
        DataType::Interval,
        decimal(77, 0),
        DataType::Date,
    ] {
        let error = decode_column(&file, 0, &column("v", data_type)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotSupported, "{error}");
    }
    let file = file_of(decimals(&[1], 15, 2), false);
    assert!(decode_column(&file, 0, &column("v", decimal(15, 1))).is_err());
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn text_column(length_max: Option<u32>, trim_blanks: bool) -> ScanColumn {
    ScanColumn { length_max, trim_blanks, ..column("v", DataType::Text) }
}

#[test]
fn blanks_are_trimmed_before_lengths_are_checked() {
    for dictionary in PLAIN_AND_DICTIONARY {
        let file = file_of(texts(&["ab   ", "   ", "", "äöü", "a b c  "]), dictionary);
        let decoded = decode_column(&file, 0, &text_column(Some(5), true)).unwrap();
        let expected: Values = ["ab", "", "", "äöü", "a b c"]
            .iter()
            .map(|text| Some(Value::Bytes(text.as_bytes().to_vec())))
            .collect();
        assert_eq!(decoded, expected);
        assert!(decode_column(&file, 0, &text_column(Some(7), false)).is_ok());
    }
}

#[test]
fn texts_that_are_too_long_are_errors() {
    for (length_max, trim_blanks, name) in [(3, false, "character varying(3)"), (3, true, "character(3)")] {
        let error = error_of(texts(&["äöü", "äöüß"]), &text_column(Some(length_max), trim_blanks));
        assert_eq!(error.kind, ErrorKind::StringTooLong);
        assert!(
            error.message.starts_with(&format!("value too long for type {name}: column \"v\"")),
            "{error}"
        );
    }
}

#[test]
fn nulls_in_columns_declared_not_null_are_errors() {
    let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let not_null = ScanColumn { not_null: true, ..column("v", DataType::Int32) };
    let error = error_of(array, &not_null);
    assert_eq!(error.kind, ErrorKind::NullNotAllowed);
    assert!(error.message.contains("violates its NOT NULL declaration, in file \"f.parquet\""), "{error}");
    let file = file_of(Arc::new(Int32Array::from(vec![1, 2])), true);
    assert!(decode_column(&file, 0, &not_null).is_ok());
}

#[test]
fn bytes_that_are_not_utf8_are_no_text() {
    let text = column("v", DataType::Text);
    for bad in [
        &b"abc\xff"[..],
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\x80",
        b"0123456789\xf0\x9f\x98",
        b"\xe0\x80\x80",
        b"\xf8\x88\x80\x80\x80",
    ] {
        assert!(std::str::from_utf8(bad).is_err());
        let error = error_of(Arc::new(BinaryArray::from(vec![&b"good"[..], bad])), &text);
        assert_eq!(error.kind, ErrorKind::FileCorrupt, "{bad:?}");
        assert!(error.message.starts_with("invalid byte sequence for UTF-8"), "{error}");
    }
    let good =
        ["", "ascii", "äöü", "€uro", "𝄞", "\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}", "\u{d7ff}\u{e000}"];
    let array: BinaryArray = good.iter().map(|text| Some(text.as_bytes())).collect();
    check(Arc::new(array), &[DataType::Text, DataType::Bytea]);
}

#[test]
fn bytes_of_fixed_length_are_bytea_and_uuid() {
    let bytes = |length: usize| {
        let values: Vec<Vec<u8>> = (0..5).map(|row| vec![row; length]).collect();
        Arc::new(FixedSizeBinaryArray::try_from_iter(values.into_iter()).unwrap())
    };
    check(bytes(16), &[DataType::Uuid, DataType::Bytea]);
    check(bytes(3), &[DataType::Bytea]);
    let file = file_of(bytes(3), false);
    assert!(decode_column(&file, 0, &column("v", DataType::Uuid)).is_err());
}
