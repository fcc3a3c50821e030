//! A network of stream sockets, between ranks in processes of their own: every pair of ranks has a link.
//!
//! ```text
//! rank 0 ══ control: what each tells in rounds, and why it leaves ══ rank 1
//!        ══ data: parts, one after another ══════════════════════════
//!
//! region ── download ─► staging ─► data socket ─► staging ── upload ─► region      on the communicator's stream, piece by piece
//! ```
//!
//! - `controlled.rs`: a rank's end of all links, with what moves parts; `transfers.rs`: parts over data sockets
//! - `link.rs`: the two sockets between two ranks, and links between ranks of one host
//! - `gather.rs`: what is told on all links
//! - `control.rs`: what is told on one link; `data.rs`: parts that go out and come in on it
//! - `direct.rs`: parts where devices read each other's memory, and sockets say where
//! - `groups.rs`: groups of parts until they have moved; `descriptors.rs`: descriptors that travel on a socket
//! - `frame.rs`: how all that lies in bytes
//!
//! Control and data have sockets of their own: a rank that can't move data tells so all the same.
//!
//! Invariants: no call waits for another rank, or for the device. A rank keeps no more of a link than a piece that goes out, one that comes
//! in, and what is told in a round or two: whoever has no room leaves bytes in the socket, and their sender stops. What comes is looked at as
//! any bytes from outside are. A rank whose socket ends is gone, for the reason that it told, if it told one.
//!
//! Data sockets move bytes through the host's memory, and need nothing of a device but copies: GPUs have them where there is no NCCL. Ranks of one
//! process have links as well.
//!
//! Deliberately absent: how the sockets come to the ranks' processes (`src/worker/ranks`).

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
