//! Damaged chunks: an error, or the reader's values, and never a read beyond a page.
//!
//! The emulated device reads real addresses, so a read beyond its buffers may end the test.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::datatypes::{DataType as ArrowType, TimeUnit};
use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    file::{
        metadata::ParquetMetaData,
        properties::{WriterProperties, WriterVersion},
    },
};
use pystachio_cases::Sample;
use pystachio_files::chunk_range;
use pystachio_plan::{ErrorKind, ScanColumn};

use super::{
    Random, Values, column, decode_columns, footer,
    matrix::{Nulls, compressions, encodings, random_array, write_file},
    oracle::{natural_type, read_column},
};

#[derive(Debug, Default)]
struct Outcomes {
    both_read: usize,
    differ: usize,
    only_reader_fails: usize,
    only_we_fail: usize,
    both_fail: usize,
}

/// A file to be damaged, of one column, its footer, and where its chunk is.
pub(super) struct DamagedFile {
    pub(super) file: Vec<u8>,
    pub(super) metadata: ParquetMetaData,
    pub(super) column: ScanColumn,
    pub(super) chunk: std::ops::Range<usize>,
    pub(super) words: String,
}

pub(super) fn sample(
    random: &mut Random,
    data_type: &ArrowType,
    encoding: Option<Encoding>,
    compression: Compression,
) -> DamagedFile {
    let version = *random.pick(&[WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]);
    let mut properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(compression)
        .set_dictionary_enabled(encoding.is_none())
        .set_data_page_row_count_limit(40)
        .set_write_batch_size(16);
    if let Some(encoding) = encoding {
        properties = properties.set_encoding(encoding);
    }
    let array = random_array(random, data_type, 90, Nulls::Some, 20);
    let file = write_file(vec![("v".to_owned(), array, true)], properties.build());
    let metadata = footer(&file);
    let (start, bytes) = chunk_range(metadata.row_group(0).column(0)).unwrap();
    let column = column("v", natural_type(data_type).unwrap());
    let words = format!("{data_type} {encoding:?} {compression:?} {version:?}");
    DamagedFile { file, metadata, column, chunk: start as usize..(start + bytes) as usize, words }
}

fn read_quietly(file: &[u8], metadata: &ParquetMetaData, column: &ScanColumn) -> Option<Values> {
    let read = || read_column(file, metadata, 0, &column.data_type).ok();
    catch_unwind(AssertUnwindSafe(read)).ok().flatten().filter(|values| values.len() == 90)
}

/// Decodes a damaged file and compares with the reader.
fn check_damage(sample: &DamagedFile, file: &[u8], what: &str, outcomes: &mut Outcomes) {
    let columns = [(0, sample.column.clone())];
    let decoded = decode_columns(file, &sample.metadata, &columns).map(|mut columns| columns.remove(0));
    if let Err(error) = &decoded {
        // The oracle checks no ranges.
        let is_value = matches!(error.kind, ErrorKind::DatetimeOutOfRange | ErrorKind::NumericOutOfRange);
        assert!(
            is_value || error.kind == ErrorKind::FileCorrupt || error.kind == ErrorKind::NotSupported,
            "{error}"
        );
        assert!(error.message.contains("\"v\""), "{} {what}: {error}", sample.words);
        if is_value {
            return;
        }
    }
    match (decoded.ok(), read_quietly(file, &sample.metadata, &sample.column)) {
        (Some(ours), Some(theirs)) if ours == theirs => outcomes.both_read += 1,
        (Some(_), Some(_)) => {
            println!("differ: {} {what}", sample.words);
            outcomes.differ += 1;
        }
        (Some(_), None) => outcomes.only_reader_fails += 1,
        (None, Some(_)) => outcomes.only_we_fail += 1,
        (None, None) => outcomes.both_fail += 1,
    }
}

fn check_sample(random: &mut Random, chosen: &mut Sample, sample: &DamagedFile, outcomes: &mut Outcomes) {
    let good = decode_columns(&sample.file, &sample.metadata, &[(0, sample.column.clone())]).unwrap();
    assert_eq!(Some(&good[0]), read_quietly(&sample.file, &sample.metadata, &sample.column).as_ref());
    let marks = chosen.marks(sample.chunk.len());
    for (place, is_chosen) in sample.chunk.clone().zip(marks) {
        let mut file = sample.file.clone();
        let other = random.next() as u8 | 1;
        let change = *random.pick(&[0xff, 0x80, 1, 2, other]);
        file[place] ^= change;
        if !is_chosen {
            continue;
        }
        check_damage(sample, &file, &format!("byte {place} ^ {change:#x}"), outcomes);
    }
    for is_chosen in chosen.marks(40) {
        // The rest of the chunk is replaced, or repeats its beginning.
        let mut file = sample.file.clone();
        let start = sample.chunk.start + random.below(sample.chunk.len() as u64) as usize;
        for place in start..sample.chunk.end {
            file[place] = match random.below(3) {
                0 => 0xff,
                1 => random.next() as u8,
                _ => file[sample.chunk.start + (place - start) % sample.chunk.len()],
            };
        }
        if is_chosen {
            check_damage(sample, &file, &format!("from {start}"), outcomes);
        }
    }
}

#[test]
fn damaged_chunks_are_errors_or_what_the_reader_reads() {
    let seed = std::env::var("PYSTACHIO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut outcomes = Outcomes::default();
    let mut chosen = Sample::of("damaged_chunks");
    let types = [
        ArrowType::Boolean,
        ArrowType::Int32,
        ArrowType::Int64,
        ArrowType::Float64,
        ArrowType::Decimal128(20, 4),
        ArrowType::Timestamp(TimeUnit::Millisecond, None),
        ArrowType::Utf8,
        ArrowType::Binary,
        ArrowType::FixedSizeBinary(16),
    ];
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    assert!(compressions.iter().all(|compression| super::matrix::compressions().contains(compression)));
    for data_type in &types {
        for encoding in encodings(data_type).into_iter().map(Some).chain([None]) {
            let compression = *random.pick(&compressions);
            let sample = sample(&mut random, data_type, encoding, compression);
            check_sample(&mut random, &mut chosen, &sample, &mut outcomes);
        }
    }
    for compression in [Compression::SNAPPY, Compression::LZ4_RAW, Compression::LZ4] {
        let sample = sample(&mut random, &ArrowType::Utf8, Some(Encoding::PLAIN), compression);
        check_sample(&mut random, &mut chosen, &sample, &mut outcomes);
    }
    println!("{outcomes:?}");
    assert!(!chosen.is_whole() || outcomes.both_fail > 100 && outcomes.both_read > 100, "{outcomes:?}");
    assert_eq!(outcomes.differ, 0, "{outcomes:?}");
}

#[test]
fn truncated_chunks_are_errors() {
    let seed = 2;
    println!("seed {seed}");
    let mut chosen = Sample::of("truncated_chunks");
    let mut random = Random::new(seed);
    for compression in compressions() {
        let sample = sample(&mut random, &ArrowType::Utf8, None, compression);
        let metadata = sample.metadata.row_group(0).column(0);
        let memory = super::memory();
        let queue = super::Queue::new(&memory).unwrap();
        for end in chosen.take(0..sample.chunk.len()) {
            let chunk = super::EncodedColumnChunk {
                bytes: &sample.file[sample.chunk.start..sample.chunk.start + end],
                metadata,
                column: &sample.column,
                table: "t",
                path: std::path::Path::new("f"),
            };
            let result = super::decode_row_group(&queue, &[chunk], 90);
            assert_eq!(result.unwrap_err().kind, ErrorKind::FileCorrupt, "{} end={end}", sample.words);
        }
        assert_eq!(memory.used_bytes(), 0);
    }
}
