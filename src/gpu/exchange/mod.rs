//! Rows moving between ranks: the runtime of exchanges, on one rank.
//!
//! ```text
//! driver ─► OutboxProducer ─► outbox ─┐                                   ┌─► inbox ─► InboxConsumer ─► driver
//! driver ─► OutboxProducer ─► outbox ─┼─► the one network thread ◄─ rounds ─► that of every other rank
//!   packs blocks in the region,       └──── blocks as they are taken ─────┘      unpacks blocks, lets go of them
//!   keeps its rank's own rows
//! ```
//!
//! - `communicator.rs`: what carries bytes, a trait; `socket/`: those of links between ranks, which move parts over sockets or between devices that
//!   read each other's memory
//! - `network.rs`: the thread that takes part in rounds; `round.rs`: which blocks move in one; `message.rs`: what ranks tell each
//!   other at its beginning; `patience.rs`: how long somebody is waited for; `waker.rs`: how the thread sleeps
//! - `warm_up.rs`: what ranks that have just been connected send each other, so that no query waits for what the first transfers take
//! - `announcement.rs`: what ranks say of an exchange before they send, so that all decide alike
//! - `outbox.rs`, `inbox.rs`: blocks on their way out and in, bounded by bytes; `query.rs`: the exchanges of one query
//! - `reach.rs`: which ranks a rank sends to, where an exchange is between hosts or within them
//! - `region.rs`: the memory that blocks are in
//! - `block.rs`, `pack.rs`, `unpack.rs`: how rows lie in a block, and how they come there and back; `link_meter.rs`: whether the link is slow, so
//!   that it pays to pack them
//!
//! A round: every rank tells what each open exchange has ready for whom, how much room it has, which have ended and which queries
//! it gives up. From that table every rank knows which blocks move, without another word, and begins those transfers. While they are on
//! their way the next round may begin.
//!
//! Who opens queries (a coordinator) opens each on all ranks, or refuses it there: [`ExchangeNetwork::open_query`] or
//! [`ExchangeNetwork::refuse_query`], with the same exchanges on every rank, in any order and at any time within
//! [`NetworkOptions::join_max`] of one another. A rank with nothing to say takes part in rounds all the same, slowly while it knows of no query.
//!
//! Invariants:
//! - All collectives of a rank are begun by its network thread, in the order of rounds. What is in them follows from what all ranks told,
//!   never from what one of them finds.
//! - The network thread waits for other ranks' network threads only, which wait for nothing else: not for drivers, files or memory.
//! - What an exchange has of memory is its own from the beginning to the end: however full one is, others move.
//! - A query ends on a rank when all ranks have ended its exchanges, or one has given it up; that reaches all of them in a round.
//! - A rank that does not answer within [`NetworkOptions::silence_max`] ends every query of the others, with an error that names it,
//!   and the communicator, in whose place comes another of a higher generation.
//!
//! Deliberately absent: plans and operators; how ranks find each other and queries come to them (`src/worker`); NCCL (`src/cuda`).
//!
//! Source: queue-based scheduling, adaptive regulation and dynamic buffering as in PystachIO (arXiv 2512.02862), sections 5.3 and 5.4.
//! We differ: receivers give credit, so that a queue that is full on one rank stops its own senders only.

mod announcement;
mod block;
mod communicator;
#[cfg(test)]
pub(crate) mod faulty;
mod inbox;
mod link_meter;
mod message;
mod network;
mod outbox;
mod pack;
mod patience;
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
    inbox::{InboxConsumer, ReceivedBlock},
    link_meter::LinkMeter,
    message::{EXCHANGES_MAX, EXCHANGES_OF_QUERY_MAX, RANKS_MAX},
    network::{ExchangeNetwork, NetworkOptions},
    outbox::{Destination, OutboxProducer, OutgoingBlock},
    pack::Routing,
    patience::Patience,
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

/// The number of a rank; ranks are numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(
    /// The number.
    pub u16,
);

impl Rank {
    /// Its place in what there is one of for every rank.
    pub fn place(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A run of a query, by the same number on all ranks. No other run has it, as long as a communicator lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(
    /// The number.
    pub u64,
);

/// An exchange within a query, by the same number on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(
    /// The number.
    pub u32,
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
