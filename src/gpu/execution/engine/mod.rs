//! What a host starts on a device, and how a query of it runs.
//!
//! - `device_engine.rs`: the engine of one device, and what its queries share
//! - `run.rs`: a query on a thread of its own, and the stream of its rows
//! - `timeline.rs`: what the device did for the last queries
//!
//! Invariants: a query ends, and its last failure is told, before what it had is given back. Who stops reading stops a
//! query, or has the rest of its rows spooled; nobody else waits for it.
//!
//! Deliberately absent: what a plan means (`compile`), which queries may run at once (`QueryMemory::admit`).

mod device_engine;
mod run;
mod timeline;

pub use self::device_engine::{DeviceEngine, DeviceOptions};
