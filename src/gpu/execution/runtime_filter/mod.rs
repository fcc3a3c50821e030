//! Runtime filters: what a join that has seen its build side knows of its keys, for the scans of its probe side.
//!
//! - `filter.rs`: bounds and sets of keys, made by a join and tested by scans
//! - `route.rs`: which scans of a plan may have them
//!
//! Invariants: no row of a result depends on whether there is a filter.
//!
//! Deliberately absent: joins and scans. Both know this room, and it knows neither.

mod filter;
mod route;

pub(super) use self::{
    filter::{FilterGiver, JoinFilters, MeasuredKeys, RuntimeFilter, ScanRuntimeFilter, TestedRows},
    route::{FilterRoute, ReducedOperators, drops_unmatched, is_selective, key_columns, passes_join},
};
