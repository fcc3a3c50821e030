//! The messages between rank 0 and another rank.
//!
//! ```text
//! rank 0                              rank k
//!   Hello ────────────────────────────► Ready | Failed: its device is open, or can't be
//!   Join, with descriptors ───────────► Joined: it takes part in the network of this generation, or can't
//!   Run ──────────────────────────────► Ended, some time: the outcome of its part of a query, or a refusal
//!   Begin ────────────────────────────►
//!   Stop ─────────────────────────────►
//!   GiveUp ───────────────────────────►          the network of this generation has lost a rank
//!   Recall ───────────────────────────► Recalled: its caches and device work, for views
//!                                     ◄── Facts, at intervals: a silent rank is lost
//! ```
//!
//! Messages have the framing, encoding and version of those between a backend and an engine: they carry the same plans.

use std::net::SocketAddr;

use pystachio_plan::{
    CacheEntry, DeviceMemoryStatus, Error, ErrorKind, PROTOCOL_VERSION, QueryBegin, QueryMetrics,
    QueryProgress, QueryRequest, QueryTimeline, Result,
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
        /// How the rank is connected with the others.
        invitation: Invitation,
    },
    /// Prepare a part in a query, and run it when it is told to begin.
    Run {
        /// Over the network of this generation.
        generation: u64,
        /// The query's number.
        query: u64,
        /// Its plan, distributed, and what it needs.
        request: Box<QueryRequest>,
    },
    /// A query has begun on rank 0.
    Begin {
        /// The query's number.
        query: u64,
        /// What holds on all ranks.
        begin: QueryBegin,
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
    /// Say what you remember.
    Recall {
        /// Of the question, for the answer.
        number: u64,
        /// Of what.
        wanted: Recollection,
    },
}

/// What a rank remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recollection {
    /// What its caches hold.
    Cache,
    /// What its device did for its part in a query.
    Timeline {
        /// The query's number.
        query: u64,
    },
}

/// How a rank is connected with all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The sockets between each two ranks: one for control and one for data.
    pub links: Links,
    /// What moves blocks.
    pub carrier: Carrier,
}

/// Where a rank's sockets to all others come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// They come with the message, in the order of ranks; on one host.
    Descriptors {
        /// How many descriptors that are.
        count: u32,
    },
    /// Ranks connect over TCP, on several hosts.
    Addresses {
        /// What ranks prove to each other by that they were invited.
        token: LinkToken,
        /// Where each listens, by rank.
        addresses: Vec<SocketAddr>,
    },
}

/// What moves blocks between ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrier {
    /// Their data sockets.
    Sockets,
    /// Devices that read each other's memory, of which data sockets tell.
    Direct,
    /// NCCL.
    Nccl {
        /// What names the connection.
        name: Vec<u8>,
    },
}

impl Carrier {
    /// What the log calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Direct => "copies between GPUs",
            Self::Nccl { .. } => "NCCL",
        }
    }
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
    /// Answers `Recall`.
    Recalled {
        /// Of the question.
        number: u64,
        /// What it remembers.
        recalled: Recalled,
    },
}

/// Answers a [`Recollection`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Recalled {
    /// What its caches hold.
    Cache(Vec<CacheEntry>),
    /// What its device did, if that was noted and is remembered.
    Timeline(Option<QueryTimeline>),
}

/// How a rank is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFacts {
    /// The process's resident memory.
    pub resident_bytes: u64,
    /// How its device's memory is used.
    pub device_memory: DeviceMemoryStatus,
    /// Queries that it runs a part of now.
    pub queries_running: u64,
    /// Queries of which it has run a part.
    pub queries_run: u64,
    /// The file systems that it has read from, and the ways to the device that each has; a line each.
    pub storage_paths: Vec<String>,
    /// How far its part in each query is that runs, by the query's number.
    pub progress: Vec<(u64, QueryProgress)>,
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
