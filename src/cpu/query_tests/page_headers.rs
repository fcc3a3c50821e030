//! Page headers that can't be: each an error that names file, column and page, and never other bytes than the page's.

use std::sync::Arc;

use parquet::{
    basic::{CompressionCodec, Encoding},
    file::metadata::{
        ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
    },
    schema::{parser::parse_message_type, types::SchemaDescriptor},
};
use pystachio_plan::ErrorKind;

use super::*;

const ROWS: i64 = 30;
/// Levels that say that every row has a value: one run.
const LEVELS: [u8; 2] = [(ROWS as u8) << 1, 1];
const BODY_BYTES: i64 = LEVELS.len() as i64 + ROWS * 8;

/// What a header of a data page V2 says.
#[derive(Clone, Copy)]
struct HeaderV2 {
    uncompressed_bytes: i64,
    compressed_bytes: i64,
    value_count: i64,
    null_count: i64,
    row_count: i64,
    definition_bytes: i64,
    repetition_bytes: i64,
    is_compressed: bool,
}

const GOOD: HeaderV2 = HeaderV2 {
    uncompressed_bytes: BODY_BYTES,
    compressed_bytes: BODY_BYTES,
    value_count: ROWS,
    null_count: 0,
    row_count: ROWS,
    definition_bytes: LEVELS.len() as i64,
    repetition_bytes: 0,
    is_compressed: false,
};

/// A field of a Thrift structure whose number is one above the last: an integer.
fn integer(bytes: &mut Vec<u8>, value: i64) {
    bytes.push(0x15);
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

impl HeaderV2 {
    fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        [3, self.uncompressed_bytes, self.compressed_bytes]
            .into_iter()
            .for_each(|value| integer(&mut bytes, value));
        bytes.push(0x5c);
        let plain = 0;
        let counts = [self.value_count, self.null_count, self.row_count, plain];
        let levels = [self.definition_bytes, self.repetition_bytes];
        counts.into_iter().chain(levels).for_each(|value| integer(&mut bytes, value));
        bytes.extend([if self.is_compressed { 0x11 } else { 0x12 }, 0, 0]);
        bytes
    }
}

/// A data page V1 or a dictionary page that announces so many values.
fn older_page(is_dictionary: bool, value_count: i64) -> Vec<u8> {
    let body: Vec<u8> = if is_dictionary { Vec::new() } else { body_v1() };
    let mut bytes = Vec::new();
    let kind = if is_dictionary { 2 } else { 0 };
    [kind, body.len() as i64, body.len() as i64].into_iter().for_each(|value| integer(&mut bytes, value));
    bytes.push(if is_dictionary { 0x4c } else { 0x2c });
    [value_count, 0].into_iter().for_each(|value| integer(&mut bytes, value));
    if !is_dictionary {
        [3, 3].into_iter().for_each(|value| integer(&mut bytes, value));
    }
    bytes.extend([0, 0]);
    bytes.extend(body);
    bytes
}

fn values() -> Vec<u8> {
    (0..ROWS).flat_map(i64::to_le_bytes).collect()
}

fn body_v1() -> Vec<u8> {
    let length = LEVELS.len() as u32;
    [&length.to_le_bytes(), LEVELS.as_slice(), &values()].concat()
}

fn page(header: HeaderV2) -> Vec<u8> {
    [header.encoded(), LEVELS.to_vec(), values()].concat()
}

/// Writes a file of one column that has these pages.
fn write(path: &Path, pages: &[u8], codec: CompressionCodec) {
    let root = Arc::new(parse_message_type("message schema { optional int64 v; }").unwrap());
    let schema = Arc::new(SchemaDescriptor::new(root));
    let chunk = ColumnChunkMetaData::builder(schema.column(0))
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
        .set_compression_codec(codec)
        .set_num_values(ROWS)
        .set_data_page_offset(4)
        .set_total_compressed_size(pages.len() as i64)
        .set_total_uncompressed_size(pages.len() as i64)
        .build()
        .unwrap();
    let row_group = RowGroupMetaData::builder(schema.clone())
        .set_num_rows(ROWS)
        .set_total_byte_size(pages.len() as i64)
        .add_column_metadata(chunk)
        .build()
        .unwrap();
    let file = FileMetaData::new(2, ROWS, None, None, schema, None);
    let mut content = [b"PAR1", pages].concat();
    let metadata = ParquetMetaData::new(file, vec![row_group]);
    ParquetMetaDataWriter::new(&mut content, &metadata).finish().unwrap();
    std::fs::write(path, content).unwrap();
}

async fn read(fixture: &Fixture, pages: &[u8]) -> Result<Answer, Error> {
    read_compressed(fixture, pages, CompressionCodec::UNCOMPRESSED).await
}

async fn read_compressed(fixture: &Fixture, pages: &[u8], codec: CompressionCodec) -> Result<Answer, Error> {
    let path = fixture.path("t");
    write(&path, pages, codec);
    fixture.run(scan(&path, &[(1, "v", DataType::Int64)]), &[1]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_can_not_be_are_errors() {
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(1 << 30, cache_bytes);
        let rows: Vec<String> = (0..ROWS).map(|row| row.to_string()).collect();
        assert_eq!(read(&fixture, &page(GOOD)).await.unwrap().lines(), rows);
        assert_eq!(read(&fixture, &older_page(false, ROWS)).await.unwrap().lines(), rows);
        let bad = [
            ("a negative number", HeaderV2 { compressed_bytes: -1, ..GOOD }),
            ("a negative number", HeaderV2 { uncompressed_bytes: -BODY_BYTES, ..GOOD }),
            ("a negative number", HeaderV2 { value_count: -ROWS, ..GOOD }),
            ("a negative number", HeaderV2 { null_count: -1, ..GOOD }),
            ("a negative number", HeaderV2 { row_count: i64::from(i32::MIN), ..GOOD }),
            ("a negative number", HeaderV2 { definition_bytes: -2, ..GOOD }),
            ("a negative number", HeaderV2 { repetition_bytes: -2, ..GOOD }),
            ("too large", HeaderV2 { value_count: 1 << 40, ..GOOD }),
            ("more values", HeaderV2 { value_count: ROWS + 1, ..GOOD }),
            ("more NULLs", HeaderV2 { null_count: ROWS + 1, ..GOOD }),
            ("more rows", HeaderV2 { row_count: ROWS + 1, ..GOOD }),
            ("ends after its column chunk", HeaderV2 { compressed_bytes: BODY_BYTES + 1, ..GOOD }),
            ("levels are longer", HeaderV2 { definition_bytes: BODY_BYTES + 1, ..GOOD }),
            ("levels are longer", HeaderV2 { repetition_bytes: BODY_BYTES - 1, ..GOOD }),
            ("levels are longer", HeaderV2 { compressed_bytes: 1, ..GOOD }),
            ("levels are longer", HeaderV2 { uncompressed_bytes: 1, is_compressed: true, ..GOOD }),
        ];
        for (reason, header) in bad {
            let error = read(&fixture, &page(header)).await.err().unwrap();
            assert_eq!(error.kind, ErrorKind::FileCorrupt, "{reason}: {error}");
            let names = ["t.parquet", "column \"v\", page 0", reason];
            assert!(names.iter().all(|name| error.message.contains(name)), "{reason}: {error}");
        }
        for (page, pages) in [(0, older_page(false, -ROWS)), (0, older_page(true, -1))] {
            let error = read(&fixture, &pages).await.err().unwrap();
            assert_eq!(error.kind, ErrorKind::FileCorrupt, "{error}");
            assert!(error.message.contains(&format!("page {page}: a page header has a negative")), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_that_a_page_is_too_short_for_are_errors() {
    let fixture = Fixture::new();
    // Packed levels have no length of their own.
    let mut bytes = Vec::new();
    [0, 2, 2].into_iter().for_each(|value| integer(&mut bytes, value));
    bytes.push(0x2c);
    [ROWS, 0, 4, 4].into_iter().for_each(|value| integer(&mut bytes, value));
    bytes.extend([0, 0, 0xff, 0xff]);
    let error = read(&fixture, &bytes).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::FileCorrupt, "{error}");
    assert!(error.message.contains("t.parquet"), "{error}");
}

/// A page V2 whose compressed values are nothing that any codec makes.
fn noise(compressed_bytes: i64, uncompressed_bytes: i64) -> Vec<u8> {
    let header = HeaderV2 {
        uncompressed_bytes,
        compressed_bytes: LEVELS.len() as i64 + compressed_bytes,
        is_compressed: true,
        ..GOOD
    };
    [header.encoded(), LEVELS.to_vec(), vec![0xa5; compressed_bytes as usize]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_counted_before_they_are_decompressed() {
    for cache_bytes in [0, 8 << 20] {
        let fixture = Fixture::with_memory(16 << 20, cache_bytes);
        for (uncompressed_bytes, kind) in
            [(64 << 20, ErrorKind::OutOfMemory), (1 << 20, ErrorKind::FileCorrupt)]
        {
            let pages = noise(4096, uncompressed_bytes);
            let error = read_compressed(&fixture, &pages, CompressionCodec::ZSTD).await.err().unwrap();
            assert_eq!(error.kind, kind, "{error}");
            while fixture.engine.status().memory_used_bytes > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_announce_more_than_their_bytes_can_stand_for_are_errors() {
    let fixture = Fixture::new();
    let codecs = [
        (CompressionCodec::SNAPPY, 22),
        (CompressionCodec::LZ4_RAW, 255),
        (CompressionCodec::GZIP, 4 * 258),
        (CompressionCodec::ZSTD, 1 << 15),
    ];
    for (codec, ratio) in codecs {
        let announced = [(100, "page 0: "), (101, "page 0: it is too short for its decompressed size")];
        for (part, reason) in announced {
            let levels_bytes = LEVELS.len() as i64;
            let uncompressed_bytes =
                levels_bytes + part * ratio + if codec == CompressionCodec::LZ4_RAW { 64 } else { 0 };
            let error =
                read_compressed(&fixture, &noise(100, uncompressed_bytes), codec).await.err().unwrap();
            assert_eq!(error.kind, ErrorKind::FileCorrupt, "{error}");
            assert!(error.message.contains("column \"v\"") && error.message.contains(reason), "{error}");
            assert_eq!(error.message.contains("too short"), part > 100, "{codec:?}: {error}");
        }
    }
    for value_count in [1, 1 << 30] {
        let dictionary = [older_page(true, value_count), page(GOOD)].concat();
        let error = read(&fixture, &dictionary).await.err().unwrap();
        assert!(error.message.contains("page 0: a dictionary has more entries than bytes"), "{error}");
    }
}
