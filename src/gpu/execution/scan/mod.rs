//! Scans: from Parquet files to rows that pass a scan's conditions.
//!
//! - `source.rs`: the operator, and what its readers know of the table
//! - `readers.rs`: the query's threads that read and decode for all scans
//! - `share.rs`, `assignment.rs`: rows among ranks; `parts.rs`: row groups among readers; `pieces.rs`: those that do not fit
//! - `chunk_loads.rs`: column chunks on their way to the device; `chunk_cache`: those that stay there between queries
//! - `residency.rs`: chunks that are here as segments, and how they become it
//! - `filter.rs`, `passing_rows.rs`: which rows of a row group are wanted, and how they are decoded; `resident_rows.rs`: the same of segments
//!
//! ```text
//! files ─► parts ─► readers ─┬─ chunk_loads ◄─► chunk_cache ─┬─► rows, by the filter ─► source
//!                            └─ a part each, or a piece ─────┘
//! ```
//!
//! Invariants: chunks come in the order of files and row groups, whichever reader decodes them. The
//! bytes that readers decode ahead are bounded.
//!
//! Deliberately absent: how pages become columns (`decode`), and which joins' filters may reach a
//! scan (`runtime_filter`).

mod assignment;
mod chunk_cache;
mod chunk_loads;
mod filter;
mod parts;
mod passing_rows;
mod pieces;
mod readers;
mod residency;
mod resident_rows;
mod share;
mod source;

pub(super) use self::{
    chunk_cache::ChunkCache,
    readers::{ReaderPlace, ReaderPool},
    share::ScanShare,
    source::{PlannedScans, ScanPlace, ScanSource},
};
