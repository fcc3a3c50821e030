//! The page headers of a column chunk whose pages somebody else decodes: the CPU engine's reader takes numbers from them
//! that can't be true, and reads other bytes by them than the page's.

use parquet::file::metadata::ColumnChunkMetaData;

use super::{
    page_header::PageHeader,
    page_list::{ENDS_AFTER_CHUNK, PageFault, TOO_MANY_VALUES},
};

/// Checks the headers of a chunk's pages up to the last that has values. `bytes` are those of the whole chunk, `row_count`
/// the rows of its row group.
///
/// # Errors
///
/// The number of a page, the dictionary counted, and what is wrong with it, in words. Too few pages are none of them.
pub fn check_pages(bytes: &[u8], chunk: &ColumnChunkMetaData, row_count: u64) -> Result<(), PageFault> {
    let is_flat = chunk.column_descr().max_rep_level() == 0;
    let value_count = match is_flat {
        true => row_count,
        false => u64::try_from(chunk.num_values()).unwrap_or(0),
    };
    let (mut rest, mut values, mut number) = (bytes, 0_u64, 0);
    while values < value_count && !rest.is_empty() {
        let (header, header_bytes) = PageHeader::parse(rest).map_err(|reason| (number, reason))?;
        let page_bytes = header_bytes + header.compressed_bytes as usize;
        rest = rest.get(page_bytes..).ok_or((number, ENDS_AFTER_CHUNK))?;
        values += u64::from(header.value_count().unwrap_or(0));
        if values > value_count {
            return Err((number, TOO_MANY_VALUES));
        }
        number += 1;
    }
    Ok(())
}
