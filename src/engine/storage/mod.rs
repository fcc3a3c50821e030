//! Files: sets, identity, footers, and what footers say of tables.
//!
//! - `files.rs`, `footer_check.rs`: file sets, file identity, footers that are read once
//! - `read_path.rs`: how bytes get from files into memory
//! - `pruning.rs`: row groups ruled out by statistics; `scan_size.rs`: how much that leaves to read
//! - `describe`, `file_type.rs`, `statistics.rs`: tables for the planner
//! - `error.rs`: errors of the file system and of Parquet as plan errors
//!
//! Deliberately absent: column data on the CPU, remote files.

mod describe;
mod error;
mod file_type;
mod files;
mod footer_check;
mod pruning;
mod read_path;
mod scan_size;
mod statistics;

pub use describe::{DescriptionCache, describe};
pub use error::{from_io, from_parquet};
pub use file_type::{FileType, Storage, file_type};
pub use files::{FileCatalog, FileFooter, FileIdentity, TableFile, expand};
pub use pruning::{RowGroupBounds, refutes};
pub use read_path::{FileReader, memory_available};
pub use scan_size::{ScanSize, scan_size};
