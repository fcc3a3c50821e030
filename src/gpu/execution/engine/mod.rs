//! The engine that a host starts on a device, and how it runs a query.
//!
//! - `device_engine.rs`: the engine of one device, and the state that its queries share
//! - `run.rs`: a query on a thread of its own, and the stream of its rows
//! - `timeline.rs`: the device's activity for the last queries
//!
//! Invariants: a query ends, and its last failure is reported, before its memory is returned. A
//! client that stops reading stops its query, or has the rest of its rows spooled; no other query
//! waits for it.
//!
//! Deliberately absent: the meaning of a plan (`compile`), which queries may run at once
//! (`QueryMemory::admit`).

mod device_engine;
mod run;
mod timeline;

pub use self::device_engine::{DeviceEngine, DeviceOptions};
