//! A query, its memory, and a device that is late or fails.
//!
//! - `little_memory.rs`: the cost of memory for a sixteenth of the data
//! - `late.rs`: devices that work late, in any order, and that refuse calls
//! - `failing_launches.rs`: kernels that fail

mod failing_launches;
mod late;
mod little_memory;

use super::*;
