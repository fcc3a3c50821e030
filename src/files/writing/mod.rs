//! Files that are written: rows of queries, TPC-H data, and files rewritten for reading on a GPU.
//!
//! - `rows`: rows that come batch by batch
//! - `generate`: TPC-H data; `optimize`: the values of other files in another layout
//! - `layout`: how files are laid out that a GPU reads well
//! - `written_files.rs`: all files of a run appear, or none
//! - `admission.rs`: memory for what many threads encode
//!
//! Deliberately absent: values that queries compute; engines, which lend threads and memory.

mod admission;
mod generate;
pub(crate) mod layout;
mod optimize;
mod rows;
mod written_files;

pub use admission::Admission;
pub use generate::generate;
pub use optimize::{OptimizeMeans, optimize};
pub use rows::{RowMeans, begin_write, sort_places};
