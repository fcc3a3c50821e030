//! Queries side by side, and what is told of them.
//!
//! - `sharing.rs`: admission, cancels, faults, full disks
//! - `techniques.rs`: queries without one technique after another
//! - `outputs.rs`: rows on their way to the host
//! - `timelines.rs`: what is noted of a query

mod outputs;
mod sharing;
mod techniques;
mod timelines;

use super::*;
