//! A network of stream sockets between ranks, which may be in different processes: every pair of
//! ranks has a link.
//!
//! ```text
//! rank 0 ══ control: what each tells in rounds, and why it leaves ══ rank 1
//!        ══ data: parts, one after another ══════════════════════════
//!
//! region ── download ─► staging ─► data socket ─► staging ── upload ─► region      on the communicator's stream, piece by piece
//! ```
//!
//! - `controlled.rs`: a rank's end of all links, with a [`Transfers`](super::Transfers) for parts;
//!   `transfers.rs`: parts over data sockets
//! - `link.rs`: the two sockets between two ranks, and links between ranks of one host
//! - `gather.rs`: control messages on all links
//! - `control.rs`: control messages on one link; `data.rs`: outgoing and incoming parts on it
//! - `direct.rs`: parts where devices read each other's memory, and sockets carry their locations
//! - `groups.rs`: groups of parts until they have moved; `descriptors.rs`: descriptors that travel on a socket
//! - `frame.rs`: the byte formats
//!
//! Control and data have separate sockets, so a rank that can't move data can still report it.
//!
//! Invariants: no call waits for another rank, or for the device. For each link a rank stores at
//! most an outgoing piece, an incoming one, and the messages of one or two rounds. A rank without
//! room leaves bytes in the socket, and the sender stops. A rank checks received bytes like any
//! bytes from outside. If a rank's socket ends, the rank is gone, for the reason in its closing
//! message, if it sent one.
//!
//! Data sockets move bytes through the host's memory, and need only copies from a device: GPUs
//! without NCCL use them. Ranks of one process have links as well.
//!
//! Deliberately absent: how the ranks' processes get the sockets (`src/worker/ranks`).

mod control;
mod controlled;
mod data;
mod descriptors;
mod direct;
mod frame;
mod gather;
mod groups;
mod link;
mod transfers;

pub use self::{
    controlled::ControlledCommunicator,
    descriptors::{DESCRIPTORS_MAX, receive_with, send_with},
    direct::{DirectTransfers, MappedRegion, RegionSharing},
    link::{LinkSocket, RankLink, links_of_one_host},
    transfers::SocketTransfers,
};
