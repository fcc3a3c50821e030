//! Types, encodings, compressions, page versions, sizes of pages and patterns of NULL, in random combinations.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
        Decimal256Array, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
        Int64Array, RecordBatch, StringArray, Time32MillisecondArray, Time64MicrosecondArray,
        Time64NanosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
        TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
        builder::FixedSizeBinaryBuilder,
    },
    datatypes::{DataType as ArrowType, Field, Float16Type, Schema, TimeUnit, i256},
};
use parquet::{
    arrow::ArrowWriter,
    basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel},
    file::properties::{WriterProperties, WriterVersion},
};

use pystachio_cases::Sample;
use pystachio_plan::ScanColumn;

use super::{
    Random, column, decode_columns, footer,
    oracle::{natural_type, read_column},
};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// How NULLs are spread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nulls {
    /// And the column is required.
    Required,
    None,
    All,
    Alternating,
    Some,
    /// Runs of hundreds.
    Runs,
}

const NULLS: [Nulls; 6] =
    [Nulls::Required, Nulls::None, Nulls::All, Nulls::Alternating, Nulls::Some, Nulls::Runs];

pub(super) fn types() -> Vec<ArrowType> {
    vec![
        ArrowType::Boolean,
        ArrowType::Int8,
        ArrowType::UInt8,
        ArrowType::Int16,
        ArrowType::UInt16,
        ArrowType::Int32,
        ArrowType::UInt32,
        ArrowType::Int64,
        ArrowType::UInt64,
        ArrowType::Float16,
        ArrowType::Float32,
        ArrowType::Float64,
        ArrowType::Date32,
        ArrowType::Time32(TimeUnit::Millisecond),
        ArrowType::Time64(TimeUnit::Microsecond),
        ArrowType::Time64(TimeUnit::Nanosecond),
        ArrowType::Timestamp(TimeUnit::Millisecond, None),
        ArrowType::Timestamp(TimeUnit::Microsecond, None),
        ArrowType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ArrowType::Decimal128(7, 2),
        ArrowType::Decimal128(15, 2),
        ArrowType::Decimal128(20, 4),
        ArrowType::Decimal128(38, 10),
        ArrowType::Decimal256(39, 5),
        ArrowType::Decimal256(76, 30),
        ArrowType::Utf8,
        ArrowType::Binary,
        ArrowType::FixedSizeBinary(16),
        ArrowType::FixedSizeBinary(5),
    ]
}

/// Encodings of a type's pages, where there is no dictionary or it is full.
pub(super) fn encodings(data_type: &ArrowType) -> Vec<Encoding> {
    match data_type {
        ArrowType::Boolean => vec![Encoding::PLAIN, Encoding::RLE],
        ArrowType::Float32 | ArrowType::Float64 => vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
        ArrowType::Utf8 | ArrowType::Binary => {
            vec![Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY]
        }
        ArrowType::FixedSizeBinary(5) => vec![Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY],
        ArrowType::FixedSizeBinary(_) | ArrowType::Float16 => {
            vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT, Encoding::DELTA_BYTE_ARRAY]
        }
        ArrowType::Decimal128(20.., _) | ArrowType::Decimal256(..) => {
            vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT]
        }
        _ => vec![Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT],
    }
}

pub(super) fn compressions() -> Vec<Compression> {
    vec![
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4,
        Compression::BROTLI(BrotliLevel::default()),
    ]
}

/// A random array. `distinct` bounds the number of different values.
pub(super) fn random_array(
    random: &mut Random,
    data_type: &ArrowType,
    rows: usize,
    nulls: Nulls,
    distinct: u64,
) -> ArrayRef {
    let mut run = (true, 0);
    let seeds: Vec<Option<u64>> = (0..rows)
        .map(|row| {
            let valid = match nulls {
                Nulls::Required | Nulls::None => true,
                Nulls::All => false,
                Nulls::Alternating => row % 2 == 0,
                Nulls::Some => !random.chance(20),
                Nulls::Runs => {
                    if run.1 == 0 {
                        run = (!run.0, 1 + random.below(700));
                    }
                    run.1 -= 1;
                    run.0
                }
            };
            // The same values come again; small seeds make small numbers.
            let seed = Random::new(random.below(distinct)).next();
            let seed = if seed.is_multiple_of(3) { seed >> 40 } else { seed };
            valid.then_some(seed)
        })
        .collect();
    let of = || seeds.iter().copied();
    match data_type {
        ArrowType::Boolean => Arc::new(of().map(|v| v.map(|v| v % 5 < 2)).collect::<BooleanArray>()),
        ArrowType::Int8 => Arc::new(of().map(|v| v.map(|v| v as i8)).collect::<Int8Array>()),
        ArrowType::UInt8 => Arc::new(of().map(|v| v.map(|v| v as u8)).collect::<UInt8Array>()),
        ArrowType::Int16 => Arc::new(of().map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
        ArrowType::UInt16 => Arc::new(of().map(|v| v.map(|v| v as u16)).collect::<UInt16Array>()),
        ArrowType::Int32 => Arc::new(of().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        ArrowType::UInt32 => Arc::new(of().map(|v| v.map(|v| v as u32)).collect::<UInt32Array>()),
        ArrowType::Int64 => Arc::new(of().map(|v| v.map(|v| v as i64)).collect::<Int64Array>()),
        ArrowType::UInt64 => Arc::new(of().collect::<UInt64Array>()),
        ArrowType::Float16 => {
            // No NaN: its bits may change in conversions.
            let half =
                |v: u64| Half::from_bits(if v & 0x7c00 == 0x7c00 { v as u16 & 0x8fff } else { v as u16 });
            Arc::new(of().map(|v| v.map(half)).collect::<Float16Array>())
        }
        ArrowType::Float32 => {
            Arc::new(of().map(|v| v.map(|v| f32::from_bits(v as u32))).collect::<Float32Array>())
        }
        ArrowType::Float64 => Arc::new(of().map(|v| v.map(f64::from_bits)).collect::<Float64Array>()),
        ArrowType::Date32 => {
            Arc::new(of().map(|v| v.map(|v| (v % 4_000_000) as i32 - 2_000_000)).collect::<Date32Array>())
        }
        ArrowType::Time32(_) => {
            Arc::new(of().map(|v| v.map(|v| (v % 86_400_001) as i32)).collect::<Time32MillisecondArray>())
        }
        ArrowType::Time64(TimeUnit::Microsecond) => {
            Arc::new(of().map(|v| v.map(|v| (v % 86_400_000_001) as i64)).collect::<Time64MicrosecondArray>())
        }
        ArrowType::Time64(_) => Arc::new(
            of().map(|v| v.map(|v| (v % 86_400_000_000_001) as i64)).collect::<Time64NanosecondArray>(),
        ),
        ArrowType::Timestamp(TimeUnit::Millisecond, _) => {
            Arc::new(of().map(|v| v.map(|v| v as i64 / 100_000)).collect::<TimestampMillisecondArray>())
        }
        ArrowType::Timestamp(TimeUnit::Microsecond, zone) => {
            let array: TimestampMicrosecondArray = of().map(|v| v.map(|v| v as i64 / 100)).collect();
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        ArrowType::Timestamp(_, zone) => {
            let array: TimestampNanosecondArray = of().map(|v| v.map(|v| v as i64)).collect();
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        ArrowType::Decimal256(precision, scale) => {
            let bound = i256::from(10).checked_pow((*precision).into()).unwrap();
            let large = |seed: u64| {
                let mut random = Random::new(seed);
                let low = u128::from(random.next()) << 64 | u128::from(seed);
                let high = i128::from(random.next() as i64) << random.below(64);
                i256::from_parts(low, high).checked_rem(bound).unwrap()
            };
            let array: Decimal256Array = of().map(|v| v.map(large)).collect();
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        ArrowType::Decimal128(precision, scale) => {
            let bound = 10_i128.pow((*precision).into());
            let wide = |v: u64| (i128::from(v as i64) * i128::from(v | 1)) % bound;
            let array: Decimal128Array = of().map(|v| v.map(wide)).collect();
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        ArrowType::Utf8 => Arc::new(of().map(|v| v.map(random_text)).collect::<StringArray>()),
        ArrowType::Binary => {
            let bytes = |v: u64| random_text(v).bytes().rev().map(|byte| byte ^ 0x80).collect::<Vec<u8>>();
            let values: Vec<Option<Vec<u8>>> = of().map(|v| v.map(bytes)).collect();
            Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>())
        }
        ArrowType::FixedSizeBinary(length) => {
            let mut builder = FixedSizeBinaryBuilder::new(*length);
            for seed in of() {
                match seed {
                    None => builder.append_null(),
                    Some(seed) => {
                        let mut random = Random::new(seed);
                        let bytes: Vec<u8> = (0..*length).map(|_| random.next() as u8).collect();
                        builder.append_value(bytes).unwrap();
                    }
                }
            }
            Arc::new(builder.finish())
        }
        other => panic!("no array of {other}"),
    }
}

/// Texts share prefixes; one in eight is not ASCII, one in fifty is long.
fn random_text(seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = "the same beginning "[..random.below(20) as usize].to_owned();
    let letters = if random.chance(12) { "äß€𝄞x " } else { "abc xyz" };
    let letters: Vec<char> = letters.chars().collect();
    let length = if random.chance(2) { random.below(5000) } else { random.below(30) };
    text.extend((0..length).map(|_| *random.pick(&letters)));
    text
}

pub(super) fn write_file(columns: Vec<(String, ArrayRef, bool)>, properties: WriterProperties) -> Vec<u8> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array, nullable)| Field::new(name, array.data_type().clone(), *nullable))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, array, _)| array).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

/// A file of random settings.
pub(super) struct RandomFile {
    pub(super) bytes: Vec<u8>,
    /// Its columns as they are declared, one of every type.
    pub(super) columns: Vec<(usize, ScanColumn)>,
    /// The choices for each column, and for all.
    pub(super) choices: Vec<String>,
    pub(super) context: String,
}

/// Every type once, in a file with settings from the seed.
pub(super) fn random_file(seed: u64) -> RandomFile {
    let mut random = Random::new(seed);
    let rows = *random.pick(&[0, 1, 2, 31, 33, 257, 1000, 1025, 2500, 5000]);
    let version = *random.pick(&[WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]);
    let compression = *random.pick(&compressions());
    let has_dictionary = random.chance(60);
    let mut properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(compression)
        .set_dictionary_enabled(has_dictionary)
        .set_dictionary_page_size_limit(*random.pick(&[200, 4000, 1 << 20]))
        .set_data_page_size_limit(*random.pick(&[50, 3000, 1 << 20]))
        .set_data_page_row_count_limit(*random.pick(&[7, 300, 1500, 20_000]))
        .set_write_batch_size(*random.pick(&[5, 64, 1024]))
        .set_max_row_group_row_count(Some(*random.pick(&[1100, 1 << 20])));
    let mut columns = Vec::new();
    let mut choices = Vec::new();
    for (number, data_type) in types().iter().enumerate() {
        let name = format!("c{number}");
        let nulls = *random.pick(&NULLS);
        let distinct = *random.pick(&[1, 3, 40, 700, 1 << 40]);
        let encoding = *random.pick(&encodings(data_type));
        properties = properties.set_column_encoding(name.as_str().into(), encoding);
        let array = random_array(&mut random, data_type, rows, nulls, distinct);
        choices.push(format!("{data_type} {encoding} {nulls:?} distinct={distinct}"));
        columns.push((name, array, !matches!(nulls, Nulls::Required)));
    }
    let declared = types()
        .iter()
        .enumerate()
        .map(|(number, data_type)| (number, column(&format!("c{number}"), natural_type(data_type).unwrap())))
        .collect();
    let context = format!("seed={seed} rows={rows} {version:?} {compression:?} dictionary={has_dictionary}");
    RandomFile { bytes: write_file(columns, properties.build()), columns: declared, choices, context }
}

fn check_file(seed: u64) {
    let RandomFile { bytes, columns, choices, context } = random_file(seed);
    let metadata = footer(&bytes);
    let decoded =
        decode_columns(&bytes, &metadata, &columns).unwrap_or_else(|error| panic!("{context}: {error}"));
    for ((number, column), values) in columns.iter().zip(decoded) {
        let expected = read_column(&bytes, &metadata, *number, &column.data_type).unwrap();
        assert_eq!(values.len(), expected.len(), "{context} {}", choices[*number]);
        for (row, (value, expected)) in values.iter().zip(&expected).enumerate() {
            assert_eq!(value, expected, "{context} {} row={row}", choices[*number]);
        }
    }
}

#[test]
fn every_form_that_the_writer_has_is_read_as_the_reader_does() {
    let first_seed = std::env::var("PYSTACHIO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let count = std::env::var("PYSTACHIO_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(120);
    let seeds = Sample::of("every_form_that_the_writer_has").take(first_seed..first_seed + count);
    println!("seeds {seeds:?}");
    seeds.into_iter().for_each(check_file);
}

#[test]
fn pages_of_many_tiles_are_read() {
    let rows = 60_000;
    let seed = 11;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for compression in [Compression::SNAPPY, Compression::LZ4_RAW] {
        let mut properties = WriterProperties::builder()
            .set_compression(compression)
            .set_data_page_size_limit(1 << 30)
            .set_data_page_row_count_limit(1 << 30)
            .set_dictionary_enabled(false);
        let forms = [
            (ArrowType::Int64, Encoding::DELTA_BINARY_PACKED, Nulls::Runs),
            (ArrowType::Utf8, Encoding::PLAIN, Nulls::Some),
            (ArrowType::Decimal128(15, 2), Encoding::PLAIN, Nulls::None),
            (ArrowType::Utf8, Encoding::RLE_DICTIONARY, Nulls::Required),
            (ArrowType::Int32, Encoding::RLE_DICTIONARY, Nulls::Some),
        ];
        let mut columns = Vec::new();
        for (number, (data_type, encoding, nulls)) in forms.iter().enumerate() {
            let name = format!("c{number}");
            properties = match encoding {
                Encoding::RLE_DICTIONARY => {
                    properties.set_column_dictionary_enabled(name.as_str().into(), true)
                }
                encoding => properties.set_column_encoding(name.as_str().into(), *encoding),
            };
            let distinct = if *encoding == Encoding::RLE_DICTIONARY { 1000 } else { 1 << 40 };
            let array = random_array(&mut random, data_type, rows, *nulls, distinct);
            columns.push((name, array, !matches!(nulls, Nulls::Required)));
        }
        let file = write_file(columns, properties.build());
        let metadata = footer(&file);
        for (number, (data_type, encoding, _)) in forms.iter().enumerate() {
            let declared = column(&format!("c{number}"), natural_type(data_type).unwrap());
            let decoded = decode_columns(&file, &metadata, &[(number, declared.clone())]).unwrap();
            let expected = read_column(&file, &metadata, number, &declared.data_type).unwrap();
            assert!(decoded[0] == expected, "{compression:?} {data_type} {encoding}");
        }
    }
}
