//! Rows that are put aside: in page-locked memory of the host, and in files when that is full; before that on the device, if
//! an operator chooses that.
//!
//! ```text
//! chunk in partition order ─► one column after another ─► buffers of the device │ slabs of the host │ extent of the query's file
//!                                                              │ ranges of rows
//! chunk of some partition  ◄── cells, validity, text ◄─────────┘
//! ```
//!
//! - `store.rs`: bytes on the device, on the host or in the query's file ([`pystachio_engine::spill`])
//! - `chunk.rs`: a chunk as stored bytes, and ranges of rows of several back as one chunk
//! - `part.rs`: ranges of many chunks that belong together: a partition
//!
//! Invariants: a spilled chunk keeps the order of its rows. Bytes that stay on the device have a claim. Text is packed, so that it
//! no longer needs pages of a file. The file has no name in its directory, so nothing is
//! left behind when a process dies.
//!
//! Deliberately absent: which rows are spilled, and when; operators decide that. Both sides of a join never stay on the device:
//! a build side needs the room, so that it is not partitioned twice.

mod chunk;
mod part;
mod store;
#[cfg(test)]
mod tests;

pub use chunk::SpilledChunk;
pub use part::{SpilledPart, SpilledPartitions, SpilledSize};
pub use store::SpillStore;
