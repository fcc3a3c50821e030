//! What rank 0 and another rank tell each other.
//!
//! ```text
//! rank 0                              rank k
//!   Hello ────────────────────────────► Ready | Failed: its device is open, or can't be
//!   Join, with descriptors ───────────► Joined: it takes part in the network of this generation, or can't
//!   Run ──────────────────────────────► Ended, some time: what came of its part in a query; a refusal is one too
//!   Stop ─────────────────────────────►
//!   GiveUp ───────────────────────────►          the network of this generation has lost a rank
//!                                     ◄── Facts, again and again: who is not heard is lost
//! ```
//!
//! Messages are framed and encoded as those between a backend and an engine are, and are of the same version: they carry the same plans.

use std::net::SocketAddr;

use pystachio_plan::{
    DeviceMemoryStatus, Error, ErrorKind, PROTOCOL_VERSION, QueryMetrics, QueryRequest, Result,
};
use serde::{Deserialize, Serialize};

use super::tcp_links::LinkToken;

/// From rank 0 to another rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToRank {
    /// The first message of a connection.
    Hello {
        /// [`PROTOCOL_VERSION`].
        protocol_version: u32,
    },
    /// Take part in a network, in place of the one before it.
    Join {
        /// Which one; each is of a higher generation than those before it.
        generation: u64,
        /// No block is larger: the least that any rank has room for.
        block_bytes_max: u64,
        /// How ranks find each other.
        invitation: Invitation,
    },
    /// Run a part in a query.
    Run {
        /// Over the network of this generation.
        generation: u64,
        /// The query's number.
        query: u64,
        /// Its plan, distributed, and what it needs.
        request: Box<QueryRequest>,
    },
    /// A query is not wanted any more.
    Stop {
        /// The query's number.
        query: u64,
    },
    /// The network of this generation is of no more use.
    GiveUp {
        /// Which one.
        generation: u64,
        /// Why.
        reason: Error,
    },
}

/// How ranks find each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Invitation {
    /// By sockets, which come with the message: for each other rank, in their order, one for control and one for data.
    Sockets {
        /// How many descriptors that are.
        descriptor_count: u32,
    },
    /// By a name that all ranks are told.
    Name(Vec<u8>),
    /// Over TCP, on several hosts.
    Addresses {
        /// What ranks prove to each other by that they were invited.
        token: LinkToken,
        /// Where each listens, by rank.
        addresses: Vec<SocketAddr>,
    },
}

/// From another rank to rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromRank {
    /// Answers `Hello`: its device is open.
    Ready {
        /// [`PROTOCOL_VERSION`].
        protocol_version: u32,
        /// Blocks that it has room for are not larger.
        block_bytes_max: u64,
        /// Where it listens for other ranks; on several hosts.
        link_address: Option<SocketAddr>,
    },
    /// Why it ends: its device can't be opened, or it was told what makes no sense.
    Failed(Error),
    /// Answers `Join`.
    Joined {
        /// The network's generation.
        generation: u64,
        /// What it failed with.
        joined: std::result::Result<(), Error>,
    },
    /// A query has ended there.
    Ended {
        /// The query's number.
        query: u64,
        /// What it has counted, or failed with.
        outcome: std::result::Result<Box<QueryMetrics>, Error>,
    },
    /// How it is.
    Facts(RankFacts),
}

/// How a rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFacts {
    /// The process's resident memory.
    pub resident_bytes: u64,
    /// How its device's memory is used.
    pub device_memory: DeviceMemoryStatus,
    /// Queries that it runs a part of now.
    pub queries_running: u64,
    /// Queries of which it has run a part.
    pub queries_run: u64,
}

/// # Errors
///
/// `Protocol` if the other side speaks another version.
pub(super) fn check_version(version: u32) -> Result<()> {
    if version == PROTOCOL_VERSION {
        return Ok(());
    }
    let message = format!(
        "ranks are of different versions: rank_protocol={version}, rank_0_protocol={PROTOCOL_VERSION}"
    );
    Err(Error::new(ErrorKind::Protocol, message)
        .with_hint("Restart the database server, so that all engines are of the version that is installed."))
}
