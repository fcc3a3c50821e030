//! Operations on columns of one device: what operators are made of.
//!
//! - `device.rs`: [`Device`], the sum of all operations
//! - `queue.rs`: [`Queue`], a device as operators hold it, and its [`Lane`]: memory and a stream
//! - `rows.rs`, `text.rs`: selecting and copying rows and text
//! - `join.rs`, `key_filter.rs`: tables and sets that rows are looked up in by key
//! - `group.rs`, `slots.rs`: groups and their accumulators
//! - `sort.rs`, `partition.rs`: orders of rows, and rows by partition
//! - `program.rs`, `decode.rs`: what runs expressions, and what reads pages
//! - `chunks.rs`, `codes.rs`, `output.rs`: whole chunks, columns that come as places in a dictionary, and chunks as Arrow
//!   arrays on the host, by those operations
//! - `fault.rs`: faults that are heard of later
//!
//! ```text
//! operators ──► Queue ──► dyn Device ─ ─ implemented by ─ ─► KernelDevice ──► kernels, on a GPU or emulated
//!                 └─────► Lane: memory and a stream
//! ```
//!
//! Row numbers, flags, groups, slots, sets of keys and resident chunks are memory laid out as their documentation says,
//! for every device: operators claim it, copy it, cache it and spill it. Only a [`JoinTable`] is in a form of its
//! device's own, because nobody else looks into it.
//!
//! Invariants: operations take and give row numbers as `u32`, so a chunk has fewer than 2^32 - 1 rows.
//!
//! Deliberately absent: plans, files, threads; kernels, grids and blocks, which are `kernel/`'s.

mod chunks;
mod codes;
mod decode;
mod device;
mod fault;
mod group;
mod join;
mod key_filter;
mod output;
mod partition;
mod program;
mod queue;
mod rows;
mod slots;
mod sort;
#[cfg(test)]
mod tests;
mod text;

pub use decode::DecodeOperations;
pub use device::Device;
pub use fault::FaultReport;
pub use group::{Accumulator, GroupOperations, Grouping, SumWidth};
pub use join::{JoinOperations, JoinTable, KEYS_MAX, Pairs, ProbeMode};
pub(crate) use key_filter::BLOOM_BLOCK_WORDS;
pub use key_filter::{FilterCounts, KeyFilter, KeyFilterOperations, KeyFilterShape, KeyRange, KeyTest};
pub use output::{ArrowBatches, column_schema, to_arrow};
pub use partition::{HashPartitioning, PARTITIONS_MAX, PartitionOperations, Partitioned, SPLITTERS_MAX};
pub use program::ProgramOperations;
pub use queue::{Lane, Queue};
pub use rows::{NO_ROW, RowNumbers, RowOperations, SELECTED_TILE_ROWS, SelectedTiles};
pub use slots::{GroupSlots, SlotLayout, SlotOperations};
pub(crate) use slots::{ResultPlace, SLOT_INPUTS_MAX, SLOT_OUTPUTS_MAX, SLOT_WORD_BYTES, slot_count};
pub use sort::{SortColumn, SortOperations};
pub use text::{MeasuredText, PackedColumn, PackedText, TextOperations};
