//! Files: sets, identity, footers, and what footers say of tables.
//!
//! - `file_set.rs`: which files a table has
//! - `files.rs`, `footer_check.rs`: file identity, footers that are read once, within a budget (`footer_memory.rs`);
//!   `query_files.rs`: the files of one query
//! - `file_systems.rs`: which ways from files to a device's memory there are
//! - `page_cache.rs`: what the page cache holds of a file
//! - `read_path.rs`: how the host reads files; `direct_reads.rs`: past the page cache
//! - `pruning.rs`: row groups ruled out by statistics; `page_index.rs`: pages ruled out by theirs
//! - `scan_size.rs`: how much is left to read
//! - `describe`, `file_type.rs`: tables for the planner
//! - `statistics.rs`: which statistics may be used, by what the file says of them (`exact_bounds.rs`) and who wrote it
//!   (`writer.rs`)
//! - `leafless.rs`: groups without columns, which the Arrow reader numbers columns without
//! - `error.rs`: errors of the file system and of Parquet as plan errors
//!
//! Deliberately absent: column data on the CPU, remote files.

mod describe;
mod direct_reads;
mod error;
mod exact_bounds;
mod file_set;
mod file_systems;
mod file_type;
mod files;
mod footer_check;
mod footer_memory;
mod leafless;
mod page_cache;
mod page_index;
mod pruning;
mod query_files;
mod read_path;
mod scan_size;
mod statistics;
mod writer;

pub use describe::{DescriptionCache, describe, identify};
pub use error::{corrupt_file, from_io, from_parquet};
pub use file_set::expand;
pub use file_systems::{FileSystems, FileWay};
pub use file_type::{FileType, Storage, file_type};
pub use files::{FileCatalog, FileFooter, FileIdentity, TableFile};
pub use footer_memory::FooterMemory;
#[cfg(test)]
pub use page_cache::PageCacheProbe;
pub use page_index::{IndexedRowGroup, PageLocation, page_locations, rows_left};
pub use pruning::{RowGroupBounds, refutes};
pub use query_files::QueryFiles;
pub use read_path::{FileReader, memory_available};
pub use scan_size::{ScanSize, scan_size};
pub use statistics::ChunkStatistics;
