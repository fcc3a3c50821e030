//! Ranks on several hosts: the same as on one, over another transport.
//!
//! ```text
//! host a: rank 0 ══ RemoteRank ══ socket pair ═ HostRank ═══ gRPC, mutual TLS ═══ HostListener ═ socket pair ══ rank 1's process, on host b
//!            ╚═════════════════════════ exchanges: TCP, with NCCL for blocks (`network.rs`) ═════════════════════════════╝
//! ```
//!
//! - `service.rs`: the call and its messages
//! - `tls.rs`: certificates
//! - `host_rank.rs`: a rank on another host, as the coordinator has it instead of a process
//! - `listener.rs`: what a host does for other hosts
//! - `relay.rs`: bytes between a call and a socket
//! - `interface.rs`: which network interface ranks find each other by
//!
//! Each host's engine is the coordinator (rank 0) of its own queries. It starts ranks' processes for the queries of other hosts. Hosts are
//! in the order of the option `hosts`, beginning with the coordinator's. Each has as many ranks as the option `ranks` says.
//!
//! Invariants:
//! - A host has at most one process of a coordinator's rank. A coordinator that asks again has lost the previous process.
//! - A host accepts bytes only from a host with a certificate of the authority that both name.
//! - A rank's process ends with its call. A call ends when a host is silent for [`KEEP_ALIVE_INTERVAL`] and [`KEEP_ALIVE_TIMEOUT`].
//! - The relay does not interpret bytes. The messages are those of `message.rs`, as on one host.
//!
//! Deliberately absent: files. All hosts see the same ones, under the same paths.

mod host_rank;
mod interface;
mod listener;
mod relay;
mod service;
mod tls;

use std::{path::PathBuf, time::Duration};

pub(super) use self::host_rank::HostRank;
pub use self::{interface::use_interface_of, listener::HostListener};
use self::{service::Open, tls::HostIdentity};
use pystachio_gpu::exchange::Rank;
use pystachio_plan::{PROTOCOL_VERSION, Result};

use crate::{VERSION, options::HostOptions};

/// A connection that says nothing is asked whether it is there after that.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// And is over if there is no answer within that.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// A host that can be reached answers within that.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The hosts of a server, as one of them sees them.
#[derive(Clone)]
pub struct Hosts {
    options: HostOptions,
    ranks: usize,
    identity: HostIdentity,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the key.
        formatter.debug_struct("Hosts").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Hosts {
    /// With so many ranks each. Reads the certificates.
    ///
    /// # Errors
    ///
    /// Files that can't be read, or hold no certificates.
    pub fn new(options: &HostOptions, ranks: usize) -> Result<Self> {
        let identity = HostIdentity::read(&options.tls)?;
        Ok(Self { options: options.clone(), ranks, identity })
    }

    /// This host.
    pub(super) fn own(&self) -> &str {
        self.options.own()
    }

    /// Where a rank of this host's queries is.
    pub(super) fn host_of(&self, rank: Rank) -> &str {
        let HostOptions { hosts, host, .. } = &self.options;
        &hosts[(host + rank.place() / self.ranks) % hosts.len()]
    }

    /// What another host is asked for a rank.
    fn open(&self, rank: Rank) -> Open {
        Open {
            version: VERSION.to_owned(),
            protocol_version: PROTOCOL_VERSION,
            hosts: self.options.hosts.join(","),
            ranks: self.ranks as u32,
            coordinator: self.own().to_owned(),
            rank: u32::from(rank.0),
        }
    }

    /// # Errors
    ///
    /// Why this host has no such rank for the other one.
    fn check(&self, open: &Open) -> std::result::Result<Rank, String> {
        let own = self.open(Rank(0));
        let (version, ranks) = (&own.version, own.ranks);
        if (&open.version, open.protocol_version) != (version, own.protocol_version) {
            return Err(format!(
                "hosts are of different versions: version={}, coordinator_version={} ({}); install the same \
                 on all hosts, and restart them",
                version, open.version, open.coordinator
            ));
        }
        if open.hosts != own.hosts || open.ranks != ranks {
            return Err(format!(
                "hosts name others: hosts={} of {ranks} ranks, coordinator_hosts={} of {} ranks; set the server \
                 options hosts and ranks to the same on all hosts",
                own.hosts, open.hosts, open.ranks
            ));
        }
        let HostOptions { hosts, host, .. } = &self.options;
        let coordinator = hosts.iter().position(|name| *name == open.coordinator);
        let begin =
            coordinator.map(|coordinator| (host + hosts.len() - coordinator) % hosts.len() * self.ranks);
        match begin {
            Some(begin) if begin > 0 && (begin..begin + self.ranks).contains(&(open.rank as usize)) => {
                Ok(Rank(open.rank as u16))
            }
            _ => Err(format!(
                "host {} has no such rank: rank={}, coordinator={}",
                self.own(),
                open.rank,
                open.coordinator
            )),
        }
    }
}

/// What a host starts ranks for others with.
#[derive(Debug)]
pub struct ListenerSetup {
    /// All hosts.
    pub hosts: Hosts,
    /// How a rank is started.
    pub command: super::RankCommand,
    /// Where ranks have their folders for spill files.
    pub spill_directory: PathBuf,
}

#[cfg(test)]
mod tests;
