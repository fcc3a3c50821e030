//! A query, its memory, and a device that is late or fails.
//!
//! - `little_memory.rs`: what memory for a sixteenth of the data costs
//! - `late.rs`: devices that work late, in any order, and that refuse things
//! - `failing_launches.rs`: kernels that fail

mod failing_launches;
mod late;
mod little_memory;

use super::*;
