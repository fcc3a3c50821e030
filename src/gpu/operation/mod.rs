//! Operations on columns of one device: the building blocks of operators, implemented by kernels.
//!
//! - `queue.rs`: [`Queue`]: memory and a stream, and the launch of a kernel
//! - `selection.rs`, `repeat.rs`, `text.rs`: selecting, repeating and copying rows and text
//! - `join.rs`, `key_filter.rs`: tables and sets that rows are looked up in by key
//! - `group.rs`, `slots.rs`, `float_sums.rs`: groups and their accumulators
//! - `sort.rs`, `text_ranks.rs`, `partition.rs`: orders of rows, and rows by partition
//! - `window_frames.rs`, `window_aggregates.rs`: functions of the rows around each row
//! - `scatter.rs`, `packing.rs`, `compression.rs`: rows partitioned by owner, integers packed and text
//!   compressed for exchanges
//! - `chunks.rs`, `codes.rs`, `output.rs`: whole chunks, columns that come as indices into a
//!   dictionary, and chunks as Arrow arrays on the host
//! - `fault.rs`, `status.rs`: reports of kernels, at once or later
//! - `traffic.rs`: the bytes that a launch moves
//!
//! ```text
//! operators ──► Queue ──► Platform::launch ──► kernels, on a GPU or emulated
//! ```
//!
//! `program` and `decode` have operations of their own, which they add to [`Queue`] over its launches.
//!
//! Invariants: operations take and give row numbers as `u32`, so a chunk has fewer than 2^32 - 1 rows. Nothing above this
//! module, `program` and `decode` launches a kernel.
//!
//! Deliberately absent: plans, files, threads.

mod chunks;
mod codes;
mod compression;
mod fault;
mod float_sums;
mod group;
mod join;
mod key_filter;
mod output;
mod packing;
mod partition;
mod queue;
mod repeat;
mod scatter;
mod selection;
mod slots;
mod sort;
mod status;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod text_ranks;
mod traffic;
mod window_aggregates;
mod window_frames;

use crate::{
    abi,
    device::{Buffer, Column},
};

pub use abi::{AccumulatorKind as Accumulator, FilterCounts, KEYS_MAX, KeyRange, NO_ROW, PARTITIONS_MAX};
pub(crate) use abi::{
    BLOOM_BLOCK_WORDS, ErrorCode as error_code, SLOT_INPUTS_MAX, SLOT_KEYS_MAX, SLOT_OUTPUTS_MAX, Status,
};
pub use compression::{CompressedText, DecompressRange, compressed_bytes_min};
pub use fault::FaultReport;
pub use group::{Accumulation, Grouping, SumWidth};
pub use join::{JoinTable, Pairs, ProbeMode};
pub use key_filter::{KeyFilter, KeyFilterShape, KeyTest};
pub use output::{ArrowBatches, column_schema, to_arrow};
pub use packing::{CellRange, PackRange, PackedForm, Packing, UnpackRange, is_worth};
pub use partition::{EXCHANGE_LEVEL, HashPartitioning, Partitioned, SPLITTERS_MAX};
pub use queue::Queue;
pub use repeat::Repeats;
pub use scatter::{RowOwners, SCATTER_TARGETS_MAX, ScatterTarget, ScatterTargetPart, StayingRows};
pub use selection::{ByteRange, RowNumbers, SELECTED_TILE_ROWS, SelectedTiles};
pub use slots::{FEW_SLOTS_MAX, SlotKey, SlotLayout, Slots, slot_count};
pub use sort::SortColumn;
pub(crate) use status::status_error;
pub use text::{MeasuredText, PackedColumn, PackedText};
#[cfg(test)]
pub(crate) use traffic::{GROUPS_OF_FEW, SLICES, operation_of};
pub use window_aggregates::FilledRows;
pub use window_frames::{FrameValues, Frames, WindowRows};

impl Column {
    /// The column as kernels are given it.
    fn view(&self) -> abi::ColumnView {
        abi::ColumnView {
            values: self.values.address(),
            validity: self.validity.as_ref().map_or(0, Buffer::address),
            cell_type: self.cell_type as u32,
            cell_bytes: self.cell_type.bytes(),
        }
    }
}
