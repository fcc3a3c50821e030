//! Ranks in processes of their own: one engine process a device.
//!
//! ```text
//! supervisor ─► rank 0: Host, RankedEngine ─► RankTable ◄── connects, disconnects ── RankWatch: a thread
//!                 │  ║                            │                                     │ starts, hears, ends
//!                 │  ║ exchange: a link to each   └─► RemoteRank 1, 2, … ◄──────────────┤
//!                 │  ║                                     ║ control                    │
//!                 │ rank 1: serve_rank ◄═══════════════════╝                            │
//!                 └──────────────────────────── child processes ◄───────────────────────┘
//! ```
//!
//! - `message.rs`: the messages between rank 0 and another rank
//! - `descriptors.rs`: a stream socket that carries descriptors; `control.rs`: frames on it
//! - `process.rs`: another rank's process, as rank 0 starts and ends it
//! - `remote_rank.rs`: rank 0's handle of another rank
//! - `watch.rs`: starts, connects and restarts the other ranks; `slot.rs`: the state of one of them
//! - `network.rs`: connects ranks
//! - `tcp_links.rs`: links between ranks of several hosts
//! - `rank_server.rs`: the loop of a rank other than 0
//! - `hosts/`: ranks on other hosts
//!
//! Rank 0 is the process that the supervisor starts and backends talk to. It starts the other
//! ranks: the same executable, with the same arguments and `--rank`. If the supervisor started
//! them, it would have to pass their control sockets and report each start and end to rank 0. Rank
//! 0 notices both by itself, and needs all ranks before it connects them. All ranks are in rank 0's
//! process group, so signals of the supervisor reach them. The kernel kills a rank whose parent
//! ends.
//!
//! A rank is lost when its process ends, its control connection closes, or it is silent for too long. Queries on the network then fail with
//! an error that names the rank and the reason. Rank 0 ends the rank's process, starts another, and connects all ranks under the next
//! generation. Meanwhile rank 0 runs queries alone.
//!
//! Invariants: every wait has a limit. Rank 0 checks messages of ranks like any bytes from outside. A query begins on a rank after it has
//! begun on rank 0, and ends there when it ends on rank 0. Both sides have the same protocol version, or are not connected.
//!
//! Deliberately absent: the execution of a rank's part of a query (`pystachio_gpu::execution`).

mod control;
mod descriptors;
mod hosts;
mod message;
mod network;
mod process;
mod rank_server;
mod remote_rank;
mod slot;
mod tcp_links;
mod watch;

pub use self::{
    hosts::{HostListener, Hosts, ListenerSetup, use_interface_of},
    network::RankNetwork,
    process::RankCommand,
    rank_server::{RankSetup, serve_rank},
    tcp_links::LinkListener,
    watch::{RankWatch, WatchSetup},
};
