//! Sorts: the whole input in order, or its first rows.
//!
//! - `source.rs`: the operator, and the order that it sorts by
//! - `ranges.rs`: rows that were spilled, range of keys by range of keys
//!
//! Invariants: a sort is stable, on the device as after spilling.
//!
//! Deliberately absent: merges of sorted runs. Ranges are sorted one after another, each as a
//! whole.

mod ranges;
mod source;

pub(super) use self::source::SortSource;
