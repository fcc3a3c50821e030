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
//! - `message.rs`: what rank 0 and another rank tell each other
//! - `descriptors.rs`: a stream socket that descriptors come and go on; `control.rs`: frames on it
//! - `process.rs`: another rank's process, as rank 0 starts and ends it
//! - `remote_rank.rs`: another rank, as queries on rank 0 see it
//! - `watch.rs`: what looks after the other ranks; `slot.rs`: how it is with one of them
//! - `network.rs`: how ranks are connected: what each is told, and what it makes of that
//! - `tcp_links.rs`: links between ranks of several hosts
//! - `rank_server.rs`: what a rank other than 0 does
//! - `hosts/`: ranks on other hosts
//!
//! Rank 0 is the process that the supervisor starts and backends talk to. It starts the others: the same executable, with the same arguments and
//! `--rank`. The supervisor could start all of them; but it would have to give them their control sockets and tell rank 0 of each start and
//! end, whereas rank 0 finds out by itself, needs them all before it connects them, and has to end with what it has of them anyway. They are in
//! its process group, so that what the supervisor sends reaches all; one whose parent ends is killed by the kernel.
//!
//! A rank is lost when its process ends, its control connection does, or it is not heard for a while. What runs over the network fails then, with
//! an error that names the rank and the reason; rank 0 ends the process if it is there still, starts another, and connects all ranks anew
//! under the next generation. Meanwhile queries run on rank 0 alone.
//!
//! Invariants: no wait is without an end. What a rank tells is checked as any bytes from outside are. A query is begun on a rank after it was
//! begun on rank 0, and ends there when it ends here. Both sides have the same protocol, or are not connected.
//!
//! Deliberately absent: what a rank does in a query (`pystachio_gpu::execution`).

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
