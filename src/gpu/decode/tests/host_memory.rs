//! What the host takes of its memory for pages that it decompresses.

use arrow::array::{ArrayRef, StringArray};
use parquet::{basic::CompressionCodec, basic::Type as PhysicalType};
use parquet::{
    basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel},
    file::properties::WriterProperties,
};
use pystachio_engine::StopFlag;
use pystachio_plan::ErrorKind;

use super::{
    handmade::{compressed_chunk_metadata, integer},
    *,
};
use crate::device::HostBudget;

const PAGE_BYTES: usize = 1 << 20;

fn memory_with(host_bytes: u64) -> DeviceMemory {
    memory().with_host_budget(HostBudget::new(host_bytes))
}

#[test]
fn pages_are_decompressed_in_the_memory_that_the_host_has_for_them() {
    let texts: Vec<String> =
        (0..9_u8).map(|row| char::from(b'a' + row).to_string().repeat(PAGE_BYTES)).collect();
    let array: ArrayRef = Arc::new(StringArray::from(texts.clone()));
    for compression in [
        Compression::BROTLI(BrotliLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_enabled(false)
            .set_write_batch_size(1)
            .set_data_page_row_count_limit(1)
            .build();
        let file = matrix::write_file(vec![("v".to_owned(), array.clone(), false)], properties);
        let columns = [(0, column("v", DataType::Text))];
        let read =
            |host_bytes: u64| decode_columns_in(&memory_with(host_bytes), &file, &footer(&file), &columns);
        // All at once; two at a time.
        for host_bytes in [u64::MAX, 2 * PAGE_BYTES as u64 + 1000] {
            let expected: Values =
                texts.iter().map(|text| Some(Value::Bytes(text.clone().into_bytes()))).collect();
            assert!(read(host_bytes).unwrap() == [expected], "{compression:?} in {host_bytes}");
        }
        let error = read(PAGE_BYTES as u64).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutOfMemory, "{compression:?}: {error}");
        assert!(error.message.contains("column \"v\", page 0"), "{error}");
    }
}

/// A data page V2 whose definition levels are longer than it is.
fn page_with_long_levels(row_count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (kind, body, plain) = (3, [0; 8], 0);
    for number in [kind, body.len() as u64, body.len() as u64] {
        integer(&mut bytes, number);
    }
    bytes.push(0x5c);
    for number in [row_count, 0, row_count, plain, 100, 0] {
        integer(&mut bytes, number);
    }
    bytes.extend([0, 0]);
    bytes.extend(body);
    bytes
}

#[test]
fn the_end_of_a_query_ends_its_wait_for_memory_in_which_a_corrupt_page_is_described() {
    let bytes = page_with_long_levels(1);
    let metadata =
        compressed_chunk_metadata(PhysicalType::INT32, true, bytes.len(), CompressionCodec::BROTLI);
    let column = column("v", DataType::Int32);
    let decode = |memory: &DeviceMemory| {
        let path = Path::new("f.parquet");
        let chunk =
            EncodedColumnChunk { bytes: &bytes, metadata: &metadata, column: &column, table: "t", path };
        decode_row_group(&Queue::new(memory).unwrap(), &[chunk], 1).map(|_| ()).unwrap_err()
    };
    let budget = HostBudget::new(1000);
    let memory = memory().with_host_budget(budget.clone());
    assert_eq!(decode(&memory).kind, ErrorKind::FileCorrupt);
    // Another query has all of it, and does not go on.
    let held = budget.take(1000, || Ok(())).unwrap();
    let stop = StopFlag::default();
    stop.stop();
    assert_eq!(decode(&memory.until(stop)).kind, ErrorKind::Cancelled);
    drop(held);
}
