//! Connects ranks: chooses the communicator, makes the invitation of each rank, and acts on it. No
//! other module of this crate knows all communicators.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use pystachio_cuda::{
    CudaPlatform, SharedRegions,
    nccl::{NcclId, NcclOptions, NcclTransfers},
};
use pystachio_gpu::{
    exchange::{
        Communicator, ControlledCommunicator, DirectTransfers, ExchangeNetwork, ExchangeRegion, LinkSocket,
        NetworkOptions, Rank, RankLink, SocketTransfers, links_of_one_host, warm_up,
    },
    execution::RankDevice,
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    message::{Carrier, Invitation, Links},
    tcp_links::{LinkListener, LinkToken},
};

/// Sockets of a link: for control and for data.
const SOCKETS_OF_LINK: usize = 2;

/// How long the first transfers may take. With what links and NCCL take to connect it is less than what ranks have to join (`watch.rs`).
const WARM_UP_MAX: Duration = Duration::from_secs(8);

/// Networks that failed while all ranks lived, after which GPUs don't read each other's memory.
const DIRECT_FAILURES_MAX: u32 = 1;
/// And after which they are connected by sockets.
const NCCL_FAILURES_MAX: u32 = 3;
/// The value `1` keeps GPUs from reading each other's memory, through NCCL or here. Benchmarks set it, for links as fast as a network.
const NO_PEERS_VARIABLE: &str = "NCCL_P2P_DISABLE";

/// How the ranks of an engine are connected. Each rank has one.
///
/// Each two ranks have a link: sockets for control and for data. On one host rank 0 makes them and hands them to the ranks: there is no name
/// that another process could connect to, and nothing of them is left when their processes have ended. On several hosts they are TCP connections
/// (`tcp_links.rs`). Blocks move over the data sockets between emulated devices, and between GPUs where there is no NCCL. GPUs of one host that
/// reach each other's memory read blocks there. NCCL moves those of others.
pub struct RankNetwork {
    gpu: Option<Arc<CudaPlatform>>,
    /// Where this rank listens for others, on several hosts.
    listener: Option<LinkListener>,
}

impl RankNetwork {
    /// For an emulated device.
    pub fn of_sockets() -> Self {
        Self { gpu: None, listener: None }
    }

    /// For the rank of this GPU.
    pub fn of_gpu(platform: Arc<CudaPlatform>) -> Self {
        Self { gpu: Some(platform), listener: None }
    }

    /// The same on several hosts.
    pub fn over(self, listener: LinkListener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Where this rank listens for others, on several hosts.
    pub(super) fn link_address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(LinkListener::address)
    }

    /// What each rank is told, by rank, so that all meet under a new generation; after so many in a row that failed while all ranks lived.
    /// Called on rank 0. The addresses are where the other ranks listen, on several hosts.
    ///
    /// # Errors
    ///
    /// There can be no sockets.
    pub(super) fn invite(
        &self,
        rank_count: usize,
        failures: u32,
        addresses: &[SocketAddr],
    ) -> Result<Vec<(Invitation, Vec<OwnedFd>)>> {
        let carrier = self.carrier(failures);
        let Some(listener) = &self.listener else {
            let invite = |links: Vec<Option<RankLink>>| {
                let sockets = links.into_iter().flatten().flat_map(|link| [link.control, link.data]);
                let descriptors: Vec<OwnedFd> = sockets.map(LinkSocket::into_descriptor).collect();
                let links = Links::Descriptors { count: descriptors.len() as u32 };
                (Invitation { links, carrier: carrier.clone() }, descriptors)
            };
            return Ok(links_of_one_host(rank_count)?.into_iter().map(invite).collect());
        };
        let addresses = std::iter::once(listener.address()).chain(addresses.iter().copied()).collect();
        let links = Links::Addresses { token: LinkToken::new()?, addresses };
        let invitation = Invitation { links, carrier };
        Ok((0..rank_count).map(|_| (invitation.clone(), Vec::new())).collect())
    }

    /// What moves blocks after so many networks in a row that failed.
    fn carrier(&self, failures: u32) -> Carrier {
        if self.listener.is_none() && failures < DIRECT_FAILURES_MAX && self.has_direct_memory() {
            return Carrier::Direct;
        }
        if self.gpu.is_none() {
            return Carrier::Sockets;
        }
        match NcclId::new() {
            Ok(name) if failures < NCCL_FAILURES_MAX => return Carrier::Nccl { name: name.to_bytes() },
            Ok(_) => tracing::error!(failures, "GPUs are connected by sockets: NCCL does not connect them"),
            Err(error) => {
                tracing::warn!(hint = error.hint, "GPUs are connected by sockets, which is slow: {error}");
            }
        }
        Carrier::Sockets
    }

    /// Whether the GPUs of this host read each other's memory, and may.
    fn has_direct_memory(&self) -> bool {
        let may_be = !std::env::var(NO_PEERS_VARIABLE).is_ok_and(|value| value == "1");
        let reaches = |gpu: &Arc<CudaPlatform>| match gpu.reaches_others() {
            Ok(reaches) => reaches,
            Err(error) => {
                tracing::warn!("{error}");
                false
            }
        };
        may_be && self.gpu.as_ref().is_some_and(reaches)
    }

    /// A rank's part in the network of all ranks, by what it was told, when it has sent each other one something. Waits for them, not for
    /// longer than some seconds.
    ///
    /// # Errors
    ///
    /// `Protocol` for an invitation that makes no sense, `Peer` for ranks that are not there or fail meanwhile, and faults of the device.
    pub(super) fn join(
        &self,
        place: (Rank, usize),
        invitation: (Invitation, Vec<OwnedFd>),
        device: &RankDevice,
        options: NetworkOptions,
    ) -> Result<Arc<ExchangeNetwork>> {
        let mut communicator = self.connect(place, invitation, device.region())?;
        let bytes_per_s = warm_up(&mut *communicator, device.region(), options.block_bytes_max, WARM_UP_MAX)?;
        let network = device.start_network(communicator, options)?;
        // What emulated devices move says how busy this machine is. To ranks of this host as much went as to each other one.
        let layout = network.layout();
        let far_part = match layout.host_count() {
            1 => 1.0,
            _ => (place.1 - layout.ranks_of_host()) as f64 / (place.1 - 1) as f64,
        };
        if let Some(bytes_per_s) = bytes_per_s.map(|all| all * far_part).filter(|_| self.gpu.is_some()) {
            tracing::info!(gb_per_s = bytes_per_s / 1e9, "ranks are connected");
            network.link().know(bytes_per_s);
        }
        Ok(network)
    }

    /// A rank's end, by what it was told. May wait for the other ranks.
    ///
    /// # Errors
    ///
    /// `Protocol` for an invitation that makes no sense, `Peer` for ranks that are not there, and faults of the device.
    fn connect(
        &self,
        place: (Rank, usize),
        (invitation, descriptors): (Invitation, Vec<OwnedFd>),
        region: &ExchangeRegion,
    ) -> Result<Box<dyn Communicator>> {
        let (rank, _) = place;
        let links = match invitation.links {
            Links::Descriptors { .. } => links_of(place, descriptors)?,
            Links::Addresses { token, addresses } => {
                let listener = self.listener.as_ref().ok_or_else(|| {
                    Error::new(ErrorKind::Protocol, "ranks of one host are not linked by addresses")
                })?;
                listener.link(place, &token, &addresses)?
            }
        };
        Ok(match (invitation.carrier, &self.gpu) {
            (Carrier::Sockets, _) => {
                let transfers = |data| SocketTransfers::new(rank, data, region);
                Box::new(ControlledCommunicator::connect(rank, links, transfers)?)
            }
            (Carrier::Direct, Some(gpu)) => {
                let sharing = Box::new(SharedRegions(gpu.clone()));
                let transfers = |data| DirectTransfers::connect(rank, data, region, sharing);
                Box::new(ControlledCommunicator::connect(rank, links, transfers)?)
            }
            (Carrier::Nccl { name }, Some(gpu)) => {
                let id = NcclId::from_bytes(&name)?;
                let transfers = |_| NcclTransfers::connect(gpu, region, &id, place, NcclOptions::default());
                Box::new(ControlledCommunicator::connect(rank, links, transfers)?)
            }
            (Carrier::Direct | Carrier::Nccl { .. }, None) => {
                let message = "an emulated device has no network but sockets";
                return Err(Error::new(ErrorKind::Protocol, message));
            }
        })
    }
}

/// A link to each other rank, of the sockets that came with an invitation.
///
/// # Errors
///
/// `Protocol` if there are more or fewer than two for each.
fn links_of((rank, rank_count): (Rank, usize), descriptors: Vec<OwnedFd>) -> Result<Vec<Option<RankLink>>> {
    let (count, expected) = (descriptors.len(), SOCKETS_OF_LINK * rank_count.saturating_sub(1));
    if count != expected || rank.place() >= rank_count {
        let message = format!(
            "ranks are not connected by these sockets: rank={rank}, ranks={rank_count}, sockets={count}, \
             sockets_expected={expected}: one for control and one for data to each other rank"
        );
        return Err(Error::new(ErrorKind::Protocol, message));
    }
    let failed =
        |error: std::io::Error| Error::internal(format!("a socket between ranks can't be used: {error}"));
    let mut sockets = descriptors.into_iter().map(LinkSocket::unix);
    let link = |place: usize| {
        let (control, data) = match place == rank.place() {
            true => (None, None),
            false => {
                (sockets.next().transpose().map_err(failed)?, sockets.next().transpose().map_err(failed)?)
            }
        };
        Ok(control.zip(data).map(|(control, data)| RankLink { control, data }))
    };
    (0..rank_count).map(link).collect()
}

#[cfg(test)]
mod tests {
    use pystachio_gpu::device::EmulatedPlatform;

    use super::*;

    #[test]
    fn sockets_that_are_too_few_connect_nobody() {
        let region = ExchangeRegion::new(Arc::new(EmulatedPlatform::at_once()), 1 << 20).unwrap();
        let network = RankNetwork::of_sockets();
        let mut invitations = network.invite(3, 0, &[]).unwrap();
        let (invitation, mut descriptors) = invitations.remove(1);
        let expected = Invitation { links: Links::Descriptors { count: 4 }, carrier: Carrier::Sockets };
        assert_eq!((&invitation, descriptors.len()), (&expected, 4));
        descriptors.pop();
        let error = network.connect((Rank(1), 3), (invitation, descriptors), &region).err().unwrap();
        let missing = "ranks are not connected by these sockets: rank=1, ranks=3, sockets=3, sockets_expected=4: \
                       one for control and one for data to each other rank";
        assert_eq!(error.message, missing);
        let (Invitation { links, .. }, descriptors) = invitations.remove(1);
        let named = Invitation { links, carrier: Carrier::Nccl { name: vec![0; NcclId::BYTES] } };
        let error = network.connect((Rank(2), 3), (named, descriptors), &region).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Protocol);
    }
}
