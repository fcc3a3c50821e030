//! Parquet row groups in, batches out.
//!
//! ```text
//! files ─► row groups ─► pruned by statistics ─► claimed one by one by the partitions ◄── what one has no memory for
//!                                                  │
//!               cache on: decoded chunks, a column at a time, kept in the column cache
//!               cache off, or no memory for a chunk: readers over the row group, a batch at a time
//!                                                  │
//!                                  filters on slices of a batch ─► rows that survive
//! ```
//!
//! - `table.rs`: which file column is which declared column, and bounds of the row groups
//! - `conversion.rs`: file types as declared types; `json.rs`: nested values as JSON text, `variant.rs`: variants
//! - `pruning.rs`: row groups ruled out by statistics, static filters and dynamic ones; `selected_rows.rs`: slices of a row group
//!   that page indexes and Bloom filters leave
//! - `decode.rs`: bytes of column chunks into arrays; `pages.rs`: their pages, counted and checked
//! - `filter.rs`: conditions on batches; `zones.rs`: which batches of a cached column they can't be true of
//! - `queue.rs`: the row groups and their readers
//! - `row_group.rs`: a row group that is being read
//! - `partition.rs`: one partition's stream; `metrics.rs`: what it counts
//! - `exec.rs`: the operator
//!
//! Invariants: partitions share one queue, so none is idle while row groups are left. A column is read
//! only if a row may survive the filters before it. A scan fails for want of memory only if one partition of it,
//! alone, has too little to read a row group batch by batch.
//!
//! Deliberately absent: page indexes and Bloom filters for conditions that come while a query runs.

mod conversion;
mod decode;
mod exec;
mod filter;
mod json;
mod metrics;
mod pages;
mod partition;
mod pruning;
mod queue;
mod row_group;
mod selected_rows;
mod table;
mod variant;
mod zones;

pub(crate) use self::{
    conversion::Conversion,
    decode::{ColumnReader, ReadRows},
    exec::{RowGroupScanExec, ScanContext, ScanRequest, bytes, preview},
    pages::{PageMemory, VALUE_BYTES},
    table::ScanTable,
    zones::Zones,
};

/// Rows of a batch that a scan gives, and on which filters are evaluated.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Rows of one array of a cached chunk: large enough to decode well, small enough to stay in the second
/// level cache while it is converted.
pub(crate) const PIECE_ROWS: usize = 65536;

const _: () = assert!(PIECE_ROWS.is_multiple_of(BATCH_ROWS));
