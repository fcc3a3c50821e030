//! The runtime of exchanges on one rank, which moves rows between ranks.
//!
//! ```text
//! driver ─► OutboxProducer ─► outbox ─┐                                   ┌─► inbox ─► InboxConsumer ─► driver
//! driver ─► OutboxProducer ─► outbox ─┼─► the one network thread ◄─ rounds ─► that of every other rank
//!   packs blocks in the region,       └──── blocks as they are taken ─────┘      unpacks blocks, lets go of them
//!   keeps its rank's own rows
//! ```
//!
//! - `communicator.rs`: traits that carry bytes; `socket/`: links between ranks, which move parts
//!   over sockets or between devices that read each other's memory
//! - `network.rs`: the thread that takes part in rounds; `round.rs`: which blocks move in one;
//!   `message.rs`: the ranks' reports at its beginning; `deadline.rs`: deadlines for other ranks;
//!   `waker.rs`: how the thread sleeps
//! - `warm_up.rs`: first transfers between connected ranks, so that no query waits for their setup
//! - `announcement.rs`: numbers that ranks announce before they send, so that all decide alike
//! - `outbox.rs`, `inbox.rs`: outgoing and incoming blocks, bounded by bytes; `query.rs`: the
//!   exchanges of one query
//! - `reach.rs`: the ranks that a rank sends to, if an exchange is between hosts or within them
//! - `region.rs`: the memory that blocks are in
//! - `block.rs`, `pack.rs`, `unpack.rs`: the layout of rows in a block, and how they get there and
//!   back; `link_meter.rs`: whether the link is slow enough to pack them
//!
//! A round: every rank reports the ready blocks of each open exchange and their targets, its room,
//! its ended exchanges, and the queries that it gives up. From this table every rank computes which
//! blocks move, and begins those transfers. The next round may begin while they run.
//!
//! A coordinator opens each query on all ranks, or refuses it there:
//! [`ExchangeNetwork::open_query`] or [`ExchangeNetwork::refuse_query`]. The exchanges are the same
//! on every rank, in any order and at any time within [`NetworkOptions::join_max`] of one another.
//! A rank without news takes part in rounds too, at longer intervals while it knows of no query.
//!
//! Invariants:
//! - A rank's network thread begins all collectives, in the order of rounds. They depend only on
//!   the reports of all ranks, never on the state of one.
//! - The network thread waits only for other ranks' network threads, which wait for nothing else:
//!   not for drivers, files or memory.
//! - An exchange owns its memory from beginning to end: if one is full, others still move.
//! - A query ends on a rank when all ranks have ended its exchanges, or one has given it up; that reaches all of them in a round.
//! - If a rank does not answer within [`NetworkOptions::silence_max`], every query of the others
//!   ends with an error that names it. So does the communicator; another one of a higher generation
//!   replaces it.
//!
//! Deliberately absent: plans and operators; how ranks find each other and get queries
//! (`src/worker`); NCCL (`src/cuda`).
//!
//! Source: queue-based scheduling, adaptive regulation and dynamic buffering as in PystachIO (arXiv 2512.02862), sections 5.3 and 5.4.
//! We differ: receivers give credit, so that a queue that is full on one rank stops its own senders only.

mod announcement;
mod block;
mod communicator;
mod deadline;
#[cfg(test)]
pub(crate) mod faulty;
mod inbox;
mod link_meter;
mod message;
mod network;
mod outbox;
mod pack;
mod query;
mod reach;
mod region;
mod round;
mod socket;
#[cfg(test)]
mod tests;
mod unpack;
mod waker;
mod warm_up;

use std::fmt;

pub use self::{
    announcement::{Announcements, NOT_ANNOUNCED},
    block::{BlockColumn, BlockLayout, BlockParts},
    communicator::{Communicator, ReceivePart, SendPart, Transfers},
    deadline::Deadline,
    inbox::{InboxConsumer, ReceivedBlock},
    link_meter::LinkMeter,
    message::{EXCHANGES_MAX, EXCHANGES_OF_QUERY_MAX, RANKS_MAX},
    network::{ExchangeNetwork, NetworkOptions},
    outbox::{Destination, OutboxProducer, OutgoingBlock},
    pack::Routing,
    query::{ExchangeMetrics, ExchangeSpec, Narrowing, QueryExchanges},
    reach::{RankLayout, ReachedRanks},
    region::{BLOCK_ALIGNMENT, ExchangeRegion},
    socket::{
        ControlledCommunicator, DESCRIPTORS_MAX, DirectTransfers, LinkSocket, MappedRegion, RankLink,
        RegionSharing, SocketTransfers, links_of_one_host, receive_with, send_with,
    },
    unpack::UnpackedChunks,
    warm_up::warm_up,
};

pub use pystachio_plan::ExchangeId;

/// The number of a rank; ranks are numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(
    /// The number.
    pub u16,
);

impl Rank {
    /// Its index in lists with an element for every rank.
    pub fn place(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A rank among all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankPlace {
    pub(crate) rank: Rank,
    pub(crate) rank_count: usize,
}

/// A run of a query, by the same number on all ranks. No other run has that number during a
/// communicator's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(
    /// The number.
    pub u64,
);

/// An exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ExchangeKey {
    query: QueryId,
    exchange: ExchangeId,
}

impl fmt::Display for ExchangeKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "exchange {} of query {}", self.exchange.0, self.query.0)
    }
}
