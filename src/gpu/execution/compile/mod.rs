//! A plan becomes a tree of sources.
//!
//! - `relations.rs`: every operator but joins
//! - `exchanges.rs`: exchanges, at which the tree is cut
//! - `joins.rs`: joins, the filters that they send to scans below, and their build sides as fragments
//!
//! Invariants: what no kernel has is `NotSupported` here, before anything of a query runs. Operators get their places in
//! the plan's order, from its root, and so do scans: what is wanted first is ranked first.
//!
//! Deliberately absent: choices between plans. The planner and the host made them.

mod exchanges;
mod joins;
mod relations;

pub(super) use self::relations::compile;
