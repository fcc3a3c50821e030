//! The engine process: one engine behind a Unix socket.
//!
//! ```text
//! backend ══socket══ session (I/O threads) ◄─bounded channel── job (compute threads) ── Engine
//! ```
//!
//! - `options.rs`: the command line
//! - `server.rs`: the socket, one session a connection
//! - `session.rs`: requests in, answers out, cancellation
//! - `query.rs`: an engine's stream as frames; `encoding.rs`: batches as Arrow IPC messages
//! - `devices.rs`: the device that the options name, and its limits
//! - `ranks/`: ranks in processes of their own
//! - `paired.rs`: a device's engine beside the CPU engine; `choice.rs`: the expected time on each, `machine.rs`: how fast the machine is; `divided.rs`: queries that both run
//! - `frames.rs`: whole frames from and to a socket
//! - `device_watch.rs`: ends a process whose device hangs, or whose accounts are wrong
//! - `footer_memory.rs`: the footer cache of a rank without a CPU engine
//! - `queries/`: running queries, the last ones that ended, and totals
//! - `counters.rs`, `process.rs`: counters and memory of the process
//!
//! Invariants: the threads that serve sockets never compute, so they see a cancel however busy the
//! engine is. A panic ends a request, never the process. If the device is lost, the process ends after the running answers.
//! If the device hangs, the process ends without them. At most two batches wait between an engine and a slow client.
//!
//! Deliberately absent: PostgreSQL. Nothing here reads Parquet or knows DataFusion; only `main.rs`, `paired.rs`
//! and `ranks/network.rs` know which engines and devices there are.

mod choice;
mod counters;
mod device_watch;
mod devices;
mod divided;
mod encoding;
mod footer_memory;
mod frames;
mod machine;
mod options;
mod paired;
mod process;
mod queries;
mod query;
mod ranks;
mod server;
mod session;

pub use counters::{Counters, Requests, RunningRequest};
pub use device_watch::{end_now, end_process, give_up, watch_device};
pub use devices::{OpenedDevice, open_device};
pub use encoding::{BATCH_BYTES_MAX, BatchDecoder, BatchEncoder};
pub use footer_memory::FooterMemory;
pub use frames::{Frame, FrameReader};
pub use options::{
    Command, Device, HostOptions, Options, RankProcesses, TlsFiles, USAGE, host_name, parse_arguments,
};
pub use paired::PairedEngine;
pub use process::{
    USED_FILE, end_at_memory_faults, name_thread, note_use, prefer_as_oom_victim, resident_bytes,
    return_memory_at_rest, wait_for_orphaning,
};
pub use queries::{Asker, LoggedQuery, QueryLog};
pub use ranks::{
    HostListener, Hosts, LinkListener, ListenerSetup, RankCommand, RankNetwork, RankSetup, RankWatch,
    WatchSetup, serve_rank, use_interface_of,
};
pub use server::{Host, Server};

/// The engine's version, as `pystachio.version()` gives it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
