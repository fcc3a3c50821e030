//! Concurrent queries, and their statistics.
//!
//! - `sharing.rs`: admission, cancels, faults, full disks
//! - `techniques.rs`: queries without one technique after another
//! - `outputs.rs`: rows on their way to the host
//! - `timelines.rs`: timelines of queries

mod outputs;
mod sharing;
mod techniques;
mod timelines;

use super::*;
