//! Compressed pages on the GPU against the host: the same values, and the same words where a page is corrupt.
//!
//! Without a GPU the tests say so and pass; with PYSTACHIO_REQUIRE_GPU=1 that is a failure. Without nvCOMP, Zstandard and
//! gzip are the host's own; with PYSTACHIO_REQUIRE_NVCOMP=1 that is a failure.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]

#[path = "../../gpu/decode/tests/checksums.rs"]
mod checksums;
mod gpu;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType as ArrowType, Field, Schema},
};
use bytes::Bytes;
use parquet::{
    arrow::ArrowWriter,
    basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel},
    file::{
        metadata::ParquetMetaData,
        properties::{WriterProperties, WriterVersion},
        reader::{FileReader, SerializedFileReader},
    },
};
use pystachio_cuda::{CudaPlatform, library_lines};
use pystachio_files::chunk_range;
use pystachio_gpu::{
    decode::{ChunkExtent, ColumnSource, EncodedBytes, EncodedColumnChunk, decode_column_chunk},
    device::{
        ActivityLog, Chunk, DeviceMemory, EmulatedPlatform, MemoryTechniques, Platform, StreamPriority,
    },
    operation::{Queue, column_schema, to_arrow},
};
use pystachio_plan::{ColumnContent, ColumnId, DataType, DeviceSettings, ScanColumn};

use checksums::{page_bodies, with_checksums};

const MEMORY_BYTES: u64 = 8 << 30;

/// The GPU, or nothing without one; and whether it has nvCOMP.
fn open_gpu() -> Option<(Arc<CudaPlatform>, bool)> {
    let platform = gpu::open().map(Arc::new)?;
    let has_nvcomp = platform.decompressor().is_some();
    println!("{}", library_lines().join("\n"));
    assert!(has_nvcomp || !gpu::is_set("PYSTACHIO_REQUIRE_NVCOMP"), "{:?}", library_lines());
    Some((platform, has_nvcomp))
}

fn queue(platform: Arc<dyn Platform>) -> Queue {
    Queue::new(&DeviceMemory::new(platform, MEMORY_BYTES)).expect("a queue")
}

/// Numbers that repeat: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}

fn columns(row_count: usize) -> Vec<(DataType, ArrayRef)> {
    let mut random = Random(71);
    let numbers: Int64Array = (0..row_count as i64).map(|row| row * 3 + random.below(50) as i64).collect();
    let mut word = || ["", "alpha", "beta", "gamma ", "äöü"][random.below(5) as usize];
    let texts: StringArray = (0..row_count)
        .map(|row| (row % 11 != 3).then(|| format!("{}{}{row}", word(), word().repeat(row % 7))))
        .collect();
    let floats: Float64Array =
        (0..row_count).map(|row| (row % 5 != 0).then_some((row % 1000) as f64 / 8.0)).collect();
    vec![
        (DataType::Int64, Arc::new(numbers)),
        (DataType::Text, Arc::new(texts)),
        (DataType::Float64, Arc::new(floats)),
    ]
}

/// A file in memory, with checksums of its pages, its metadata, and its columns as they are declared.
struct Sample {
    bytes: Vec<u8>,
    metadata: ParquetMetaData,
    columns: Vec<ScanColumn>,
}

fn sample(row_count: usize, properties: WriterProperties) -> Sample {
    let columns = columns(row_count);
    let names = ["n", "t", "f"];
    let types = [ArrowType::Int64, ArrowType::Utf8, ArrowType::Float64];
    let fields: Vec<Field> =
        names.iter().zip(types).map(|(name, data_type)| Field::new(*name, data_type, true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).expect("a batch");
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties)).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a footer");
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(&bytes)).expect("a file");
    let (bytes, metadata) = with_checksums(&bytes, reader.metadata());
    let declared = names.iter().zip(columns).map(|(name, (data_type, _))| ScanColumn {
        id: ColumnId(1),
        name: (*name).to_owned(),
        data_type,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    });
    Sample { bytes, metadata, columns: declared.collect() }
}

/// A column of a file on a device, as Arrow has it, or what is wrong with it.
fn decode(queue: &Queue, sample: &Sample, file: &[u8], leaf: usize) -> Vec<Result<RecordBatch, String>> {
    let row_groups = sample.metadata.row_groups().iter();
    let column = &sample.columns[leaf];
    row_groups
        .map(|row_group| {
            let metadata = row_group.column(leaf);
            let (start, bytes) = chunk_range(metadata).expect("a range");
            let bytes = &file[start as usize..(start + bytes) as usize];
            let (table, path) = ("t", Path::new("f.parquet"));
            let chunk = EncodedColumnChunk { bytes, metadata, column, table, path };
            let row_count = row_group.num_rows() as usize;
            let decoded = decode_column_chunk(queue, &chunk, row_count);
            decoded.map_err(|error| error.to_string()).map(|decoded| {
                let schema = column_schema(std::slice::from_ref(&decoded.data_type));
                to_arrow(queue, &Chunk { row_count, columns: vec![decoded] }, &schema).expect("a batch")
            })
        })
        .collect()
}

fn compressions() -> Vec<Compression> {
    let zstd = |level| Compression::ZSTD(ZstdLevel::try_new(level).expect("a level"));
    let gzip = |level| Compression::GZIP(GzipLevel::try_new(level).expect("a level"));
    vec![
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::LZ4,
        zstd(1),
        zstd(15),
        gzip(1),
        gzip(9),
        Compression::BROTLI(BrotliLevel::default()),
    ]
}

#[test]
fn compressed_pages_decode_as_on_the_host() {
    let Some((platform, has_nvcomp)) = open_gpu() else { return };
    let queues = [queue(Arc::new(EmulatedPlatform::new())), queue(platform.clone())];
    for compression in compressions() {
        let mut names = std::collections::BTreeSet::new();
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for page_rows in [300, 20_000] {
                let properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(compression)
                    .set_data_page_row_count_limit(page_rows)
                    .set_write_batch_size(100)
                    .set_max_row_group_row_count(Some(30_000));
                let sample = sample(50_000, properties.build());
                let stream = queues[1].stream();
                let log = Arc::new(ActivityLog::start(platform.clone(), stream).expect("a log"));
                let watched = Queue::new(&queues[1].memory().watched(log.clone())).expect("a queue");
                for leaf in 0..sample.columns.len() {
                    let expected = decode(&queues[0], &sample, &sample.bytes, leaf);
                    assert!(expected.iter().all(Result::is_ok));
                    let found = decode(&watched, &sample, &sample.bytes, leaf);
                    assert!(
                        found == expected,
                        "{compression:?} {version:?} column {leaf} {:?}",
                        found.iter().find_map(|found| found.as_ref().err())
                    );
                }
                names.extend(log.take().into_iter().map(|noted| noted.activity.name));
            }
        }
        let kernel = match compression {
            Compression::SNAPPY => Some("decompress_snappy"),
            Compression::LZ4_RAW => Some("decompress_lz4"),
            Compression::LZ4 => Some("decompress_hadoop_lz4"),
            Compression::ZSTD(_) => has_nvcomp.then_some("nvcomp zstd"),
            Compression::GZIP(_) => has_nvcomp.then_some("nvcomp gzip"),
            _ => None,
        };
        assert!(kernel.is_none_or(|kernel| names.contains(kernel)), "{compression:?} {names:?}");
    }
    assert_eq!(platform.decompressor().is_some(), has_nvcomp, "nvCOMP was given up");
}

/// What a test is at, and since when; a test that is at one thing for longer than [`Progress::STUCK_S`] ends the process.
struct Progress(Mutex<(String, Instant)>);

impl Progress {
    const STUCK_S: u64 = 20;

    fn watched() -> Arc<Self> {
        let progress = Arc::new(Self(Mutex::new((String::new(), Instant::now()))));
        let watched = Arc::downgrade(&progress);
        std::thread::spawn(move || {
            while let Some(progress) = watched.upgrade() {
                let (place, since) = progress.0.lock().expect("no panic").clone();
                if since.elapsed().as_secs() > Self::STUCK_S {
                    println!("stuck for {} s at {place}", since.elapsed().as_secs());
                    // A kernel that does not end keeps the process from exiting in the usual way.
                    std::process::abort();
                }
                drop(progress);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        progress
    }

    fn is_at(&self, place: String) {
        *self.0.lock().expect("no panic") = (place, Instant::now());
    }
}

/// Damages pages bit by bit, but for their headers: the device must fail in the host's words, or have the host's values.
fn compare_damaged(compression: Compression) {
    let Some((platform, has_nvcomp)) = open_gpu() else { return };
    let queues = [queue(Arc::new(EmulatedPlatform::new())), queue(platform.clone())];
    let (mut random, progress) = (Random(5), Progress::watched());
    let (mut differing, mut failed) = (Vec::new(), 0);
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(compression)
            .set_dictionary_enabled(false)
            .set_data_page_row_count_limit(500)
            .set_write_batch_size(100);
        let sample = sample(2000, properties.build());
        for leaf in 0..sample.columns.len() {
            let (start, bytes) = chunk_range(sample.metadata.row_group(0).column(leaf)).expect("a range");
            let chunk = &sample.bytes[start as usize..(start + bytes) as usize];
            let places: Vec<usize> = page_bodies(chunk).into_iter().flatten().collect();
            let begun = Instant::now();
            for _ in 0..150 {
                let mut file = sample.bytes.clone();
                let (place, bit) =
                    (start as usize + places[random.below(places.len() as u64) as usize], random.below(8));
                file[place] ^= 1 << bit;
                let damage = format!(
                    "{compression:?} {version:?} column {leaf} byte {place} of {start} + {bytes}, bit {bit}"
                );
                progress.is_at(damage.clone());
                let [expected, found] = queues.each_ref().map(|queue| decode(queue, &sample, &file, leaf));
                failed += usize::from(expected[0].is_err());
                if found != expected {
                    let words = |result: &Result<RecordBatch, String>| match result {
                        Ok(_) => "values".to_owned(),
                        Err(reason) => reason.clone(),
                    };
                    differing.push(format!(
                        "{damage}: {}, on the host {}",
                        words(&found[0]),
                        words(&expected[0])
                    ));
                }
            }
            println!("{version:?} column {leaf}: {:.1} s", begun.elapsed().as_secs_f64());
        }
    }
    println!("{compression:?}: {failed} of 900 damaged chunks fail; nvCOMP: {has_nvcomp}");
    assert!(failed > 100, "{compression:?}: {failed}");
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
    assert_eq!(platform.decompressor().is_some(), has_nvcomp, "nvCOMP was given up");
}

#[test]
fn corrupt_zstd_pages_fail_in_the_words_of_the_host() {
    compare_damaged(Compression::ZSTD(ZstdLevel::default()));
}

#[test]
fn corrupt_gzip_pages_fail_in_the_words_of_the_host() {
    compare_damaged(Compression::GZIP(GzipLevel::default()));
}

/// Prints how fast a column chunk of pages of about a megabyte gets from the host's memory to decompressed pages on the
/// GPU, and how fast nvCOMP alone is; the pages are the same.
#[test]
fn nvcomp_and_the_host_load_the_same_bytes() {
    let Some((platform, has_nvcomp)) = open_gpu() else { return };
    if !has_nvcomp {
        println!("skipped: there is no nvCOMP");
        return;
    }
    let memory = DeviceMemory::new(platform.clone(), MEMORY_BYTES);
    let settings = DeviceSettings { nvcomp: false, ..DeviceSettings::default() };
    let by_host = memory.with_techniques(MemoryTechniques::of(settings));
    for compression in [Compression::ZSTD(ZstdLevel::default()), Compression::GZIP(GzipLevel::default())] {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1 << 20)
            .set_data_page_row_count_limit(1 << 17)
            .set_max_row_group_row_count(Some(1 << 23));
        let sample = sample(1 << 23, properties.build());
        for (leaf, column) in sample.columns.iter().enumerate() {
            let row_group = sample.metadata.row_group(0);
            let metadata = row_group.column(leaf);
            let (start, length) = chunk_range(metadata).expect("a range");
            let bytes = &sample.bytes[start as usize..(start + length) as usize];
            let source = ColumnSource { metadata, column, table: "t", path: Path::new("f.parquet") };
            let extent = ChunkExtent::whole(length, row_group.num_rows() as u32);
            let lease = memory.lease_stream(StreamPriority::Low).expect("a stream");
            let load = |memory: &DeviceMemory| {
                let queue = Queue::new(memory).expect("a queue");
                let begun = Instant::now();
                let chunks = vec![(&source, EncodedBytes::Host(bytes, &extent))];
                let loaded = queue.load_chunks(chunks).expect("a load").wait_chunks();
                let loaded = loaded.expect("a chunk").remove(0);
                queue.wait().expect("its work");
                (loaded, begun.elapsed().as_secs_f64())
            };
            // The first time, memory is allocated and modules are loaded.
            let ((on_device, _), (on_host, _)) = (load(&memory), load(&by_host));
            let pages = |chunk: &pystachio_gpu::decode::ResidentChunk| -> Vec<u8> {
                let buffer = chunk.buffers().next().expect("pages");
                memory.download(buffer, buffer.bytes() as usize, lease.stream()).expect("bytes")
            };
            assert!(pages(&on_device) == pages(&on_host), "{compression:?} column {leaf}");
            let log = Arc::new(ActivityLog::start(platform.clone(), lease.stream()).expect("a log"));
            let (_, nvcomp_s) = load(&memory.watched(log.clone()));
            let (_, host_s) = load(&by_host);
            let calls = log.take();
            let calls = calls.iter().filter(|noted| noted.activity.name.starts_with("nvcomp"));
            let alone_s: f64 = calls.map(|noted| noted.activity.elapsed_us as f64 * 1e-6).sum();
            let gigabytes = metadata.uncompressed_size() as f64 * 1e-9;
            println!(
                "{compression:?} column {}: {:.0} MB compressed, {:.0} MB; with nvCOMP {:.1} GB/s (alone {:.1}), with {} threads {:.1}",
                column.name,
                length as f64 * 1e-6,
                gigabytes * 1e3,
                gigabytes / nvcomp_s,
                gigabytes / alone_s,
                std::thread::available_parallelism().map_or(1, usize::from).min(16),
                gigabytes / host_s
            );
        }
    }
}
