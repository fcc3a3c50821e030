//! Operations on columns of one device: what operators are made of.
//!
//! - `queue.rs`: where work is enqueued: memory and a stream
//! - `select.rs`: prefix sums, selection by flags, gathering, concatenation
//! - `join.rs`: hash tables over rows, and the pairs that match
//! - `key_filter.rs`: sets of keys that rows are tested against
//! - `group.rs`: groups and their accumulators
//! - `slots.rs`: groups of an integer key that are found by the key itself
//! - `sort.rs`: orders of rows
//! - `partition.rs`: rows by partition, for spilling and exchanges
//! - `pack.rs`: text laid one after another
//! - `output.rs`: columns as Arrow arrays on the host
//! - `fault.rs`: what kernels report, as errors
//!
//! Invariants: operations take and give row numbers as `u32`, so a chunk has fewer than 2^32 - 1 rows.
//!
//! Deliberately absent: plans, files, threads.

mod fault;
mod group;
mod join;
mod key_filter;
mod output;
mod pack;
mod partition;
mod queue;
mod select;
mod slots;
mod sort;
#[cfg(test)]
mod tests;

pub use fault::{FaultReport, StatusCell};
pub use group::{Accumulator, Grouping, SumWidth};
pub use join::{JoinTable, Pairs, ProbeMode};
pub use key_filter::{KeyFilter, KeyFilterShape, KeyTest};
pub use output::{column_schema, to_arrow};
pub use pack::PackedColumn;
pub use partition::{HashPartitioning, Partitioned, SPLITTERS_MAX};
pub use queue::Queue;
pub use select::{RowNumbers, SELECTED_TILE_ROWS, SelectedTiles};
pub use slots::{GroupSlots, SlotLayout};
pub use sort::SortColumn;
