//! A plan becomes a tree of sources.
//!
//! - `compiler.rs`: what is known of a plan meanwhile, and what its sources use
//! - `relations.rs`: every operator but joins
//! - `exchanges.rs`: exchanges, at which the tree is cut
//! - `joins.rs`: joins, the filters that they send to scans below, and their build sides as fragments
//! - `picks.rs`: percentiles and modes, in terms of windows
//!
//! Invariants: a plan that needs a missing kernel is `NotSupported` here, before any of the query
//! runs. Operators get their places in the plan's order, from its root. So do scans: those wanted
//! first rank first.
//!
//! Deliberately absent: choices between plans. The planner and the host made them.

mod compiler;
mod exchanges;
mod joins;
mod picks;
mod relations;

pub(super) use self::{
    compiler::{CompiledPlan, QueryResources, RefusedPlan},
    relations::compile,
};
