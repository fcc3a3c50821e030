//! Runtime filters: filters of build keys that a join makes for the scans of its probe side.
//!
//! - `filter.rs`: bounds and sets of keys, made by a join and tested by scans
//! - `route.rs`: which scans of a plan may use them
//!
//! Invariants: no row of a result depends on whether there is a filter.
//!
//! Deliberately absent: joins and scans. Both import this module, and it imports neither.

mod filter;
mod route;

pub(super) use self::{
    filter::{FilterGiver, JoinFilters, MeasuredKeys, RuntimeFilter, ScanRuntimeFilter, TestedRows},
    route::{FilterRoute, ReducedOperators, drops_unmatched, is_selective, key_columns, passes_join},
};
