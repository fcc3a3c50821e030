//! Files: sets, identity, footers, what footers say of tables, how the host reads them, and how they are written. Both
//! engines use them.
//!
//! - `file_set.rs`: which files a table has, and which rank's they are; `table_files.rs`, `table_storage.rs`: those of a table with a log,
//!   `row_deletes.rs`: which of their rows delete files name
//! - `listings.rs`: what folders hold; `column_place.rs`: where a file has a scan's column; `folder_keys.rs`: values that folders' names give
//! - `files.rs`, `footer_check.rs`, `footer_decode.rs`: file identity, footers that are read once, within a budget (`footer_memory.rs`,
//!   `file_memory.rs`); `chunk_facts.rs`: what scans ask of footers, by row group; `query_files.rs`: the files of one query
//! - `encryption`: encrypted files, read as plain ones
//! - `column_batches.rs`: some columns of a file, as arrays; `nested_form.rs`: what a nested column consists of
//! - `page_cache.rs`: what the page cache holds of a file
//! - `read_path.rs`: how the host reads files, part by part (`part_source.rs`); `direct_reads.rs`: past the page cache
//! - `pruning.rs`: row groups ruled out by statistics, and by what functions of time make of them (`derived_bounds.rs`);
//!   `page_index.rs`: pages ruled out by theirs
//! - `page_header.rs`, `page_list.rs`: the pages of a column chunk; `page_check.rs`, `levels.rs`, `deltas.rs`: checks of them
//!   before the parquet crate decodes them
//! - `scan_size.rs`: how much is left to read; `sampled_values.rs`: which values many rows of a column have; both that and descriptions are
//!   kept (`bounded_map.rs`)
//! - `describe`, `file_type.rs`: tables for the planner; `column_variant.rs`: what a declared column adds to the file's
//! - `statistics.rs`: which statistics may be used, by what the file says of them (`exact_bounds.rs`) and its writer
//!   (`writer.rs`)
//! - `leafless.rs`: groups without columns, which the Arrow reader numbers columns without; `stored_schema.rs`: columns that
//!   it is given without their annotation
//! - `compact_protocol.rs`: the form of Parquet's own structures; `decoding_panics.rs`: which panics of others' decoders damage
//!   causes
//! - `stores`: objects of stores, and the local files that they are read from
//! - `writing`: TPC-H data, and files rewritten for reading on a GPU
//! - `error.rs`: errors of the file system and of Parquet as plan errors
//! - `value_range.rs`: which values a column may have; `value_fault.rs`: the words for those that it may not
//!
//! Deliberately absent: engines, devices, DataFusion, PostgreSQL, sockets; values, but for those that are written.

// Parquet's feature `simdutf8` takes this crate without its own feature `std`, by which it finds at run time what the processor has.
// Without that, text beyond ASCII is checked byte by byte on x86-64.
use simdutf8 as _;

mod bloom_filter;
mod bounded_map;
mod chunk_facts;
mod column_batches;
mod column_place;
mod column_variant;
mod compact_protocol;
pub mod decoding_panics;
mod deltas;
mod derived_bounds;
mod describe;
mod direct_reads;
mod encryption;
mod error;
mod exact_bounds;
mod field_place;
mod file_memory;
mod file_set;
mod file_type;
mod files;
mod folder_keys;
mod footer_check;
mod footer_decode;
mod footer_memory;
mod leafless;
mod levels;
mod listings;
mod nested_form;
mod page_cache;
mod page_check;
mod page_header;
mod page_index;
mod page_list;
mod part_source;
mod pruning;
mod query_files;
mod read_path;
mod row_deletes;
mod sampled_values;
mod scan_size;
mod statistics;
mod stored_schema;
mod stores;
mod table_files;
mod table_storage;
mod value_fault;
mod value_range;
mod writer;
pub mod writing;

pub use chunk_facts::ChunkSizes;
pub use column_place::{ColumnPlace, ScanConditions, column_places};
pub use column_variant::ColumnVariant;
pub use describe::{describe, identify};
pub use encryption::{FileHandle, KeyDigest};
pub use error::{corrupt_file, from_io, from_parquet};
pub use field_place::FieldPlace;
pub use file_memory::FileMemory;
pub use file_type::{FileType, Storage, file_type};
pub use files::{FileCatalog, FileFooter, FileIdentity, FileVersion, OpenedFiles, Pin, TableFile};
pub use nested_form::{FormField, NestedForm};
pub use page_cache::{PageCacheProbe, is_in_page_cache};
pub use page_check::{CheckedPages, PageSize, check_pages};
pub use page_header::{PageEncoding, PageHeader, PageKind};
pub use page_index::{IndexedRowGroup, PageLocation, page_locations, rows_left};
pub use page_list::{ListedPage, PageFault, PageList, PageWalk, chunk_range};
pub use part_source::{PartSource, Slot};
pub use pruning::{BoundedColumns, RowGroupBounds, refutes};
pub use query_files::QueryFiles;
pub use read_path::{DirectRefusals, FileParts, FileReader, memory_available, path_refused};
pub use sampled_values::sampled_values;
pub use scan_size::{HeldColumns, HeldRowGroups, HeldShares, ScanSize, scan_ranges, scan_size};
pub use statistics::ChunkStatistics;
pub use stores::{FoundObject, StoreSession, Stores};
pub use table_files::FileOfTable;
pub use value_fault::{ValueFault, ValuePlace};
pub use value_range::{
    DATE_DAYS, DATE_INFINITIES, DAY_US, TIMESTAMP_INFINITIES, TIMESTAMP_US_MIN, annotated_range,
};
