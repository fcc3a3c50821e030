//! Host memory for pages that the host decompresses.

use arrow::array::{ArrayRef, StringArray};
use parquet::{
    basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel},
    file::properties::WriterProperties,
};
use pystachio_engine::StopFlag;
use pystachio_plan::ErrorKind;

use super::*;
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

/// A query that waits for host memory, which another one holds, ends when it is cancelled.
#[test]
fn a_cancelled_query_does_not_wait_for_host_memory() {
    let array: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(PAGE_BYTES)]));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .build();
    let file = matrix::write_file(vec![("v".to_owned(), array, false)], properties);
    let budget = HostBudget::new(2 * PAGE_BYTES as u64);
    let held = budget.take(budget.bytes_max(), || Ok(())).unwrap();
    let stop = StopFlag::default();
    let memory = memory().with_host_budget(budget.clone()).until(stop.clone());
    std::thread::scope(|scope| {
        let decoding = scope
            .spawn(|| decode_columns_in(&memory, &file, &footer(&file), &[(0, column("v", DataType::Text))]));
        budget.await_waiting(1);
        stop.stop();
        assert_eq!(decoding.join().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
    });
    drop(held);
}
