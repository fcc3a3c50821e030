//! Keeps engines running: one supervisor for the cluster, a background worker, with an engine process for each server in use.
//!
//! ```text
//! $PGDATA/pystachio/
//!   lock                       locked by the supervisor as long as it lives
//!   <database oid>-<server oid>-<digest of the declared options>/      a generation of a server's engine
//!     request.json             written by the backend that needs the engine; removed to retire it
//!     state.json               written by the supervisor
//!     socket, used             made by the engine; `used` changes as long as it has requests
//! ```
//!
//! - `home.rs`: that folder; `lock.rs`: whether there is a supervisor, and waking it
//! - `start.rs`: the backend's side: connects, requests an engine, and starts a supervisor if there is none
//! - `worker.rs`: the supervisor; `budget.rs`: which memory and GPUs an engine may have; `processors.rs`: on which processors all of them run; `engine.rs`: one generation and its processes; `child.rs`: a process; `executable.rs`: which file it runs; `engine_log.rs`: its log;
//!   `readable.rs`: waiting for all logs at once
//! - `checks.rs`: workers that read a database's servers: to retire engines whose server is gone, or to start engines
//! - `watch.rs`: notices DROP and ALTER
//!
//! Invariants: an engine never outlives the supervisor, nor the supervisor the postmaster. Changed options are another folder,
//! so an engine's options never change. A retired engine begins no request, and ends when those that it runs have ended. The
//! supervisor is connected to no database, so DROP DATABASE does not wait for it. README.md of the crate says why.
//!
//! Deliberately absent: queries; they go from backends to the engine without the supervisor.

mod budget;
mod checks;
mod child;
mod engine;
mod engine_log;
mod executable;
mod home;
mod lock;
mod processors;
mod readable;
mod start;
mod watch;
mod worker;

pub use home::{EngineHome, EnginePhase, Promise, retiring};
pub use start::{connect, connect_if_running};
pub use watch::install_hooks;
pub use worker::register_supervisor;
