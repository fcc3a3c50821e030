//! Chunks of columns that no file holds.

use super::*;
use crate::decode::{DerivedChunk, EncodedBytes};

/// More rows than a page has.
const MANY: u32 = (1 << 20) + 5;

fn decoded(chunk: &DerivedChunk, column: &ScanColumn, row_count: u32) -> Result<Values> {
    let EncodedBytes::Host(bytes, _) = chunk.encoded() else { panic!("bytes on the device") };
    let (metadata, path) = (chunk.metadata(), Path::new("f.parquet"));
    let chunk = EncodedColumnChunk { bytes, metadata, column, table: "t", path };
    let memory = memory();
    let columns = decode_row_group(&Queue::new(&memory)?, &[chunk], row_count as usize)?;
    Ok(column_values(&memory, &columns[0], row_count as usize))
}

#[test]
fn a_constant_is_in_every_row() {
    use pystachio_plan::Value as Plan;
    let decimal = DataType::Decimal { precision: 38, scale: 2 };
    let cases = [
        (DataType::Bool, Plan::Bool(true), Value::Number(1)),
        (DataType::Int16, Plan::Int(-7), Value::Number(-7)),
        (DataType::Int32, Plan::Int(i32::MIN.into()), Value::Number(i32::MIN.into())),
        (DataType::Int64, Plan::Int(i64::MAX), Value::Number(i64::MAX.into())),
        (DataType::Date, Plan::Int(-1), Value::Number(-1)),
        (DataType::Timestamp, Plan::Int(1_000_001), Value::Number(1_000_001)),
        (DataType::TimestampTz, Plan::Int(-1), Value::Number(-1)),
        (decimal, Plan::Decimal(-(10_i128.pow(37))), Value::Number(-(10_i128.pow(37)))),
        (DataType::Text, Plan::Text("größer".into()), Value::Bytes("größer".into())),
        (DataType::Text, Plan::Text(String::new()), Value::Bytes(Vec::new())),
    ];
    for (data_type, value, expected) in cases {
        let column = column("c", data_type);
        for row_count in [1, MANY] {
            let chunk = DerivedChunk::new(&column, &value, row_count).unwrap();
            let values = decoded(&chunk, &column, row_count).unwrap();
            assert_eq!(values.len(), row_count as usize);
            assert!(values.iter().all(|value| *value == Some(expected.clone())), "{:?}", values.first());
        }
    }
}

#[test]
fn a_column_of_any_type_may_be_null() {
    let decimal = DataType::Decimal { precision: 15, scale: 2 };
    for data_type in [
        DataType::Bool,
        DataType::Int16,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Date,
        DataType::Time,
        DataType::Timestamp,
        decimal,
        DataType::Text,
        DataType::Bytea,
        DataType::Uuid,
    ] {
        let column = column("c", data_type);
        for row_count in [1, MANY] {
            let chunk = DerivedChunk::new(&column, &pystachio_plan::Value::Null, row_count).unwrap();
            let values = decoded(&chunk, &column, row_count).unwrap();
            assert!(values.len() == row_count as usize && values.iter().all(Option::is_none), "{column:?}");
        }
    }
}

#[test]
fn numbers_follow_one_another() {
    let column = column("n", DataType::Int64);
    for (first, row_count) in [(0, 1), (0, 129), (-5, 1000), (1 << 40, MANY)] {
        let chunk = DerivedChunk::of_numbers(&column, first, row_count).unwrap();
        let values = decoded(&chunk, &column, row_count).unwrap();
        let expected = (0..row_count).map(|row| Some(Value::Number(i128::from(first) + i128::from(row))));
        assert!(values.into_iter().eq(expected), "{first} {row_count}");
    }
}
