//! Keeps engines running: one supervisor, a background worker, for each engine of each database.
//!
//! ```text
//! $PGDATA/pystachio/<database oid>-<server oid>-<digest of the options>/
//!   options.json   written by the backend that needs the engine; removed to stop it
//!   state.json     written by the supervisor
//!   lock           held by the supervisor as long as it lives
//!   socket         made by the engine
//! ```
//!
//! - `home.rs`: that folder
//! - `start.rs`: the backend's side: connects, and starts a supervisor if there is none
//! - `worker.rs`, `child.rs`: the supervisor and its engine process; `engine_log.rs`: the engine's log
//! - `launcher.rs`: starts engines with the server, and stops engines whose server is gone
//! - `watch.rs`: notices DROP and ALTER
//!
//! Invariants: an engine never outlives its supervisor, nor a supervisor the postmaster. Changed options
//! are another folder, so an engine's options never change. A supervisor is connected to no database, so
//! DROP DATABASE does not wait for it.
//!
//! Deliberately absent: queries; they go from backends to the engine without the supervisor.

mod child;
mod engine_log;
mod home;
mod launcher;
mod start;
mod watch;
mod worker;

pub use home::{EngineHome, EnginePhase, EngineState};
pub use launcher::register_launcher;
pub use start::{connect, connect_if_running};
pub use watch::install_hooks;
