//! Joins.
//!
//! - `kinds.rs`: joins of every kind, with any memory
//! - `fragments.rs`: build sides beside one another
//! - `runtime_filters.rs`: filters that joins send to scans

mod fragments;
mod kinds;
mod runtime_filters;

use super::*;
