//! Parquet column chunks, decoded on a device.
//!
//! - `chunk_upload.rs`: from files to the device
//! - `load.rs`: chunks become pages on the device; `row_groups.rs`: pages become columns, any
//!   number of times: cells, or codes
//! - `pinned_chunk.rs`: a loaded chunk off the device and back
//! - `row_selection.rs`: which rows are decoded, and where their cells go
//! - `column_chunk.rs`: a chunk's metadata, and whether kernels can decode it
//! - `derived_chunk.rs`: the chunk of a column that has one value in all rows
//! - `column_memory.rs`: the memory that a column's chunks are decoded into
//! - `chunk_plan.rs`, `chunk_decoder.rs`: one chunk, before and while it is decoded
//! - `page_map.rs`: where a chunk's pages are, and which of them are read
//! - `stored_type.rs`, `conversion.rs`: from the file's type to the declared one
//! - `page_layout.rs`: where a page's levels and values are once it is decompressed
//! - `page_batch.rs`: pages in the form for kernels, and their launches
//! - `decompression.rs`: pages that the device decompresses; `frame_batches.rs`: how many at once, where a library does
//! - `host_codec.rs`: pages that the host decompresses
//! - `fault.rs`: a kernel's status as an error
//!
//! ```text
//! bytes ─► page list, upload ─► decompress, index deltas ─► ResidentChunk ─► levels ─► strings ─► values, deltas, indexes ─► Column
//!                    one launch each, over all pages of all columns of some row groups
//! ```
//!
//! Invariants: every value is the CPU engine's, or there is an error. Kernels check every read
//! against the page, so corrupt bytes cause an error or other values, and nothing worse. Text is
//! not copied: cells point into pages that the column keeps alive.
//!
//! The operations on a [`Queue`](crate::operation::Queue) are `load_chunks` (`load.rs`) and
//! `decode_columns` (`row_groups.rs`).
//!
//! Deliberately absent: files and footers (the caller reads bytes), nested columns, encryption.

mod chunk_decoder;
mod chunk_plan;
mod chunk_upload;
mod column_chunk;
mod column_memory;
mod conversion;
mod decompression;
mod derived_chunk;
mod fault;
mod frame_batches;
mod host_codec;
mod load;
mod page_batch;
mod page_layout;
mod page_map;
mod pinned_chunk;
mod row_groups;
mod row_selection;
mod stored_type;
#[cfg(test)]
pub(crate) mod tests;

use crate::abi;

pub use chunk_upload::{ChunkReads, ChunkUpload, UploadedChunk};
pub use column_chunk::{ColumnSource, EncodedColumnChunk, check_column};
pub use derived_chunk::DerivedChunk;
pub use load::{EncodedBytes, PendingLoad, ResidentChunk, is_decompressed_by_host};
pub use page_map::{ChunkExtent, HEADER_READ_BYTES, PageMap};
pub use pinned_chunk::PinnedChunk;
pub use row_groups::{
    ChunkRequest, ColumnRequest, PageCounts, PendingColumns, decode_column_chunk, decode_row_group,
};
pub use row_selection::RowSelection;
