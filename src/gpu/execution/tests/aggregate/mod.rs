//! Aggregates.
//!
//! - `kinds.rs`: aggregates of every kind, with any memory
//! - `large_decimals.rs`: plans over decimals of more than 38 digits

mod kinds;
mod large_decimals;

use super::*;
