//! Joins: a build side as a whole, and a probe side chunk by chunk.
//!
//! - `source.rs`: the operator, which chooses the side that is hashed
//! - `build.rs`: reads a build side, holds or spills it, and sends filters of its keys to scans
//! - `fragment.rs`: build sides that drivers of their own read before the join asks
//! - `matching.rs`: matches one probe chunk with a build side: by pairs, by membership, or by a
//!   dictionary's entries
//! - `partitions.rs`: both sides spilled, and joined partition by partition
//!
//! ```text
//! fragment ─► build ─► source ◄─ probe side
//!                         ├─► matching
//!                         └─► partitions ─► matching
//! ```
//!
//! Invariants: every kind of join comes from the same pairs and marks, whichever side is hashed, and spilled or not.
//!
//! Deliberately absent: nested loops and merges of sorted sides. In a join without keys every row
//! matches by key.

mod build;
mod fragment;
mod matching;
mod partitions;
mod source;

#[cfg(test)]
pub(super) use self::fragment::{RUNNING_MAX, THREAD_NAME};
pub(super) use self::{
    build::UnreadBuild,
    fragment::{FragmentPlace, Fragments},
    matching::{Matching, Residual},
    source::JoinSource,
};
