//! Aggregates.
//!
//! - `kinds.rs`: aggregates of every kind, with any memory
//! - `phases.rs`: partial results, and results of them
//! - `picks.rs`: percentiles and modes, with any memory
//! - `large_decimals.rs`: plans over decimals of more than 38 digits

mod kinds;
mod large_decimals;
mod phases;
mod picks;

use super::*;
