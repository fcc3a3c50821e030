//! Host memory for pages that the host decompresses.

use arrow::array::{ArrayRef, StringArray};
use parquet::{
    basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel},
    file::properties::WriterProperties,
};
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
