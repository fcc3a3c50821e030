//! Aggregates: partial results of chunks, merged where their groups are equal.
//!
//! - `source.rs`: the operator, and DISTINCT in terms of the others
//! - `slot_groups.rs`: groups of an integer key whose values lie close together, in slots
//! - `groups.rs`: partial results, held or spilled, and merged by key
//!
//! Invariants: a group is output once, except by the first of two phases, with the same result
//! whatever the order of chunks and the method.
//!
//! Deliberately absent: aggregates over sorted input.

mod groups;
mod slot_groups;
mod source;

pub(super) use self::source::{AggregateSource, PlannedAggregate};
