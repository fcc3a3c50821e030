//! Sound files to begin with: those of regress/data, the corpus, and small ones of every encoding, codec and version of pages that the
//! writer at hand has.

use std::{fs, path::Path, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
        ListArray, RecordBatch, StringArray, TimestampMicrosecondArray,
    },
    datatypes::Int32Type,
};
use parquet::{
    arrow::ArrowWriter,
    basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel},
    file::properties::{WriterProperties, WriterVersion},
};

use crate::{mutate, random::Random};

const FILE_BYTES_MAX: u64 = 64 << 10;
const ROWS: usize = 70;

/// The content of every file `*.parquet` of a folder that is not too large, in the order of the names.
pub fn of_folder(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    paths.retain(|path| path.metadata().is_ok_and(|metadata| metadata.len() <= FILE_BYTES_MAX));
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}

/// Files of two columns each, one of them of the form in question.
///
/// # Errors
///
/// Those of the writer.
pub fn written(random: &mut Random) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
    ];
    let mut files = Vec::new();
    for (array, encodings) in arrays(random)? {
        for encoding in encodings.into_iter().map(Some).chain([None]) {
            for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                // Pages that are not compressed can be damaged best.
                for compression in [Compression::UNCOMPRESSED, random.pick(&compressions)] {
                    let file = write(&array, encoding, version, compression)?;
                    // The writer writes no checksums; some of the files get them.
                    files
                        .push(mutate::with_checksums(&file).filter(|_| random.below(4) == 0).unwrap_or(file));
                }
            }
        }
    }
    Ok(files)
}

fn write(
    array: &ArrayRef,
    encoding: Option<Encoding>,
    version: WriterVersion,
    compression: Compression,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(compression)
        .set_column_dictionary_enabled("v".into(), encoding.is_none())
        .set_data_page_row_count_limit(30)
        .set_write_batch_size(10)
        .set_max_row_group_row_count(Some(50));
    if let Some(encoding) = encoding {
        properties = properties.set_column_encoding("v".into(), encoding);
    }
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("v", array.clone(), true), ("n", numbers, false)])?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build()))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(bytes)
}

type ArrayAndEncodings = (ArrayRef, Vec<Encoding>);

fn arrays(random: &mut Random) -> Result<Vec<ArrayAndEncodings>, Box<dyn std::error::Error>> {
    let integers: Vec<Option<i64>> = (0..ROWS)
        .map(|_| {
            (random.below(5) > 0).then(|| (random.next() >> random.pick(&[0, 20, 40, 58])).cast_signed())
        })
        .collect();
    let texts: Vec<Option<String>> = integers
        .iter()
        .map(|value| value.map(|value| "ab".repeat((value & 15) as usize) + &value.to_string()))
        .collect();
    let small = |value: i64| value.rem_euclid(100_000);
    let numbers = vec![Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT];
    let lists = integers.iter().enumerate().map(|(row, value)| {
        value.map(|value| (0..row % 4).map(move |item| (item != 2).then_some((value as i32) ^ item as i32)))
    });
    let decimals =
        Decimal128Array::from_iter(integers.iter().map(|value| value.map(|value| i128::from(value) << 20)));
    let bytes = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        integers.iter().map(|value| value.map(|value| i128::from(value).to_le_bytes())),
        16,
    )?;
    Ok(vec![
        (
            Arc::new(BooleanArray::from_iter(integers.iter().map(|value| value.map(|value| value & 4 == 0)))),
            vec![Encoding::PLAIN, Encoding::RLE],
        ),
        (
            Arc::new(Int32Array::from_iter(integers.iter().map(|value| value.map(|value| value as i32)))),
            numbers.clone(),
        ),
        (Arc::new(Int64Array::from(integers.clone())), numbers.clone()),
        (
            Arc::new(Float64Array::from_iter(
                integers.iter().map(|value| value.map(|value| value as f64 / 7.0)),
            )),
            vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
        ),
        (
            Arc::new(TimestampMicrosecondArray::from_iter(integers.iter().map(|value| value.map(small)))),
            vec![Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED],
        ),
        (
            Arc::new(StringArray::from(texts)),
            vec![Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY],
        ),
        (
            Arc::new(decimals.with_precision_and_scale(30, 5)?),
            vec![Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY, Encoding::BYTE_STREAM_SPLIT],
        ),
        (Arc::new(bytes), vec![Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT]),
        (Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)), vec![Encoding::PLAIN]),
    ])
}
