//! Values as the `parquet` crate's Arrow reader gives them, converted as declared, row by row.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, OffsetSizeTrait},
    datatypes::{
        DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, Field, Float16Type, Float32Type,
        Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, Time32MillisecondType,
        Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
        i256,
    },
};
use bytes::Bytes;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    },
    basic::Type as PhysicalType,
    file::metadata::ParquetMetaData,
};
use pystachio_plan::DataType;

use super::{Value, Values, large_number};

/// The type that holds every value of a file's column.
pub(super) fn natural_type(file: &ArrowType) -> Option<DataType> {
    Some(match file {
        ArrowType::Boolean => DataType::Bool,
        ArrowType::Int8 | ArrowType::UInt8 | ArrowType::Int16 => DataType::Int16,
        ArrowType::UInt16 | ArrowType::Int32 => DataType::Int32,
        ArrowType::UInt32 | ArrowType::Int64 => DataType::Int64,
        ArrowType::UInt64 => DataType::Decimal { precision: 20, scale: 0 },
        ArrowType::Float16 | ArrowType::Float32 => DataType::Float32,
        ArrowType::Float64 => DataType::Float64,
        ArrowType::Date32 => DataType::Date,
        ArrowType::Time32(_) | ArrowType::Time64(_) => DataType::Time,
        ArrowType::Timestamp(_, None) => DataType::Timestamp,
        ArrowType::Timestamp(_, Some(_)) => DataType::TimestampTz,
        ArrowType::Decimal128(precision, scale) | ArrowType::Decimal256(precision, scale) => {
            DataType::Decimal { precision: *precision, scale: *scale as u8 }
        }
        ArrowType::Utf8 | ArrowType::Utf8View => DataType::Text,
        ArrowType::Binary | ArrowType::BinaryView => DataType::Bytea,
        ArrowType::FixedSizeBinary(16) => DataType::Uuid,
        ArrowType::FixedSizeBinary(_) => DataType::Bytea,
        _ => return None,
    })
}

/// The reader's view of a footer: the file's own types, INT96 in microseconds.
pub(super) fn reader_metadata(metadata: &ParquetMetaData) -> ArrowReaderMetadata {
    let metadata = Arc::new(metadata.clone());
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::try_new(metadata.clone(), options()).unwrap();
    let descriptor = metadata.file_metadata().schema_descr();
    let fields: Vec<Field> = plain
        .schema()
        .fields()
        .iter()
        .enumerate()
        .map(|(root, field)| {
            let leaf =
                (0..descriptor.num_columns()).find(|leaf| descriptor.get_column_root_idx(*leaf) == root);
            let is_int96 =
                leaf.is_some_and(|leaf| descriptor.column(leaf).physical_type() == PhysicalType::INT96);
            let data_type = match field.data_type() {
                ArrowType::Timestamp(_, zone) if is_int96 => {
                    ArrowType::Timestamp(TimeUnit::Microsecond, zone.clone())
                }
                other => other.clone(),
            };
            field.as_ref().clone().with_data_type(data_type)
        })
        .collect();
    ArrowReaderMetadata::try_new(metadata, options().with_schema(Arc::new(Schema::new(fields)))).unwrap()
}

/// A top-level column of a file, in the natural type or wider; an error if the reader has one.
pub(super) fn read_column(
    file: &[u8],
    metadata: &ParquetMetaData,
    root: usize,
    declared: &DataType,
) -> Result<Values, String> {
    let metadata = reader_metadata(metadata);
    let mask = ProjectionMask::roots(metadata.metadata().file_metadata().schema_descr(), [root]);
    let bytes = Bytes::copy_from_slice(file);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata)
        .with_projection(mask)
        .with_batch_size(1 << 20)
        .build()
        .map_err(|error| error.to_string())?;
    let mut values = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|error| error.to_string())?;
        values.extend(array_values(batch.column(0), declared)?);
    }
    Ok(values)
}

macro_rules! numbers {
    ($array:expr, $type:ty, $convert:expr) => {
        $array.as_primitive::<$type>().iter().map(|value| value.map($convert).transpose()).collect()
    };
}

/// A file's array converted to a declared type. An error for values outside of the type.
pub(super) fn array_values(array: &ArrayRef, declared: &DataType) -> Result<Values, String> {
    let exact = |value: i128| Ok::<_, String>(Value::Number(value));
    let float = |value: f64| match declared {
        DataType::Float32 => Ok(Value::Float((value as f32).to_bits().into())),
        _ => Ok::<_, String>(Value::Float(value.to_bits())),
    };
    let target_scale = match declared {
        DataType::Decimal { scale, .. } => Some(*scale),
        _ => None,
    };
    let scaled = |value: i256, scale: i8| {
        let digits = target_scale.map_or(0, |target_scale| i32::from(target_scale) - i32::from(scale));
        let factor = i256::from(10).checked_pow(digits as u32).ok_or("digits")?;
        Ok::<_, String>(large_number(value.checked_mul(factor).ok_or("digits")?))
    };
    let whole = |value: i128| scaled(value.into(), 0);
    let rounded = |value: i64| exact(value.div_euclid(1000).into());
    let thousand = |value: i64| exact(i128::from(value) * 1000);
    match array.data_type() {
        ArrowType::Boolean => Ok(array
            .as_boolean()
            .iter()
            .map(|value| value.map(|value| Value::Number(value.into())))
            .collect()),
        ArrowType::Int8 => numbers!(array, Int8Type, |value| whole(value.into())),
        ArrowType::UInt8 => numbers!(array, UInt8Type, |value| whole(value.into())),
        ArrowType::Int16 => numbers!(array, Int16Type, |value| whole(value.into())),
        ArrowType::UInt16 => numbers!(array, UInt16Type, |value| whole(value.into())),
        ArrowType::Int32 => numbers!(array, Int32Type, |value| whole(value.into())),
        ArrowType::UInt32 => numbers!(array, UInt32Type, |value| whole(value.into())),
        ArrowType::Int64 => numbers!(array, Int64Type, |value| whole(value.into())),
        ArrowType::UInt64 => numbers!(array, UInt64Type, |value| whole(value.into())),
        ArrowType::Float16 => numbers!(array, Float16Type, |value| float(value.into())),
        // Bits are kept where the type is.
        ArrowType::Float32 if *declared == DataType::Float32 => {
            numbers!(array, Float32Type, |value| Ok::<_, String>(Value::Float(value.to_bits().into())))
        }
        ArrowType::Float32 => numbers!(array, Float32Type, |value| float(value.into())),
        ArrowType::Float64 => numbers!(array, Float64Type, float),
        ArrowType::Date32 => numbers!(array, Date32Type, |value| exact(value.into())),
        ArrowType::Time32(TimeUnit::Millisecond) => {
            numbers!(array, Time32MillisecondType, |value| thousand(value.into()))
        }
        ArrowType::Time64(TimeUnit::Microsecond) => {
            numbers!(array, Time64MicrosecondType, |value| exact(value.into()))
        }
        ArrowType::Time64(TimeUnit::Nanosecond) => numbers!(array, Time64NanosecondType, rounded),
        ArrowType::Timestamp(TimeUnit::Millisecond, _) => numbers!(array, TimestampMillisecondType, thousand),
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => {
            numbers!(array, TimestampMicrosecondType, |value| exact(value.into()))
        }
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => numbers!(array, TimestampNanosecondType, rounded),
        ArrowType::Decimal128(_, scale) => {
            numbers!(array, Decimal128Type, |value| scaled(value.into(), *scale))
        }
        ArrowType::Decimal256(_, scale) => numbers!(array, Decimal256Type, |value| scaled(value, *scale)),
        ArrowType::Utf8 => Ok(bytes_of(array.as_string::<i32>().iter())),
        ArrowType::Binary if *declared == DataType::Text => {
            let is_text = |value: &[u8]| std::str::from_utf8(value).is_ok();
            let array = binary(array);
            if array.iter().flatten().all(|value| is_text(value)) {
                Ok(to_values(array))
            } else {
                Err("UTF-8".into())
            }
        }
        ArrowType::Binary => Ok(to_values(binary(array))),
        ArrowType::FixedSizeBinary(_) => Ok(array
            .as_fixed_size_binary()
            .iter()
            .map(|value| value.map(|value| Value::Bytes(value.to_vec())))
            .collect()),
        other => Err(format!("no oracle for {other}")),
    }
}

fn binary(array: &ArrayRef) -> Vec<Option<&[u8]>> {
    fn of<O: OffsetSizeTrait>(array: &ArrayRef) -> Vec<Option<&[u8]>> {
        array.as_binary::<O>().iter().collect()
    }
    of::<i32>(array)
}

fn to_values(values: Vec<Option<&[u8]>>) -> Values {
    values.into_iter().map(|value| value.map(|value| Value::Bytes(value.to_vec()))).collect()
}

fn bytes_of<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Values {
    values.map(|value| value.map(|value| Value::Bytes(value.as_bytes().to_vec()))).collect()
}
