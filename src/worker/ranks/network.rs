//! Connects ranks: chooses the communicator, makes the invitation of each rank, and acts on it. No other module knows all communicators.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use pystachio_cuda::{
    CudaPlatform, SharedRegions,
    nccl::{NcclCommunicator, NcclId, NcclOptions},
};
use pystachio_gpu::{
    exchange::{
        Communicator, ControlLinks, ControlledCommunicator, DirectCommunicator, ExchangeNetwork,
        ExchangeRegion, LinkSocket, NetworkOptions, Rank, RankLink, SocketCommunicator, links_of_one_host,
        warm_up,
    },
    execution::RankDevice,
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    message::Invitation,
    tcp_links::{LinkListener, LinkToken},
};

/// Sockets of a link: for control and for data.
const SOCKETS_OF_LINK: usize = 2;

/// How long the first transfers may take, with what NCCL takes to connect less than what ranks have to join (`watch.rs`).
const WARM_UP_MAX: Duration = Duration::from_secs(8);

/// Networks that did not come about, after which GPUs don't read each other's memory.
const DIRECT_FAILURES_MAX: u32 = 1;
/// And after which they are connected by sockets.
const NCCL_FAILURES_MAX: u32 = 3;
/// The value `1` keeps GPUs from reading each other's memory, through NCCL or here. Benchmarks set it, for links as fast as a network.
const NO_PEERS_VARIABLE: &str = "NCCL_P2P_DISABLE";

/// How the ranks of an engine are connected. Each rank has one.
///
/// Emulated devices have sockets between each two ranks of this host, which rank 0 makes and hands to them: there is no name that anybody else could
/// connect to, and nothing of them is left when their processes have ended. On several hosts they have TCP (`tcp_links.rs`). GPUs of one host that reach
/// each other's memory read blocks there. Others have NCCL for blocks. On one host both have sockets for what they tell one another; GPUs
/// have what emulated devices have, where there is no NCCL.
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

    /// What each rank is told, by rank, so that all meet under a new generation; after so many in a row that did not come about. Called on
    /// rank 0. The addresses are where the other ranks listen, on several hosts.
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
        if self.listener.is_none() && failures < DIRECT_FAILURES_MAX && self.has_direct_memory() {
            return invite_by_sockets(rank_count, |descriptor_count| Invitation::Direct { descriptor_count });
        }
        if self.gpu.is_some() {
            match NcclId::new() {
                Ok(name) if failures < NCCL_FAILURES_MAX => {
                    return invite_by_name(name, rank_count, self.listener.is_some());
                }
                Ok(_) => {
                    tracing::error!(failures, "GPUs are connected by sockets: NCCL does not connect them")
                }
                Err(error) => {
                    tracing::warn!(
                        hint = error.hint,
                        "GPUs are connected by sockets, which is slow: {error}"
                    );
                }
            }
        }
        match &self.listener {
            None => {
                invite_by_sockets(rank_count, |descriptor_count| Invitation::Sockets { descriptor_count })
            }
            Some(listener) => {
                let addresses: Vec<_> =
                    std::iter::once(listener.address()).chain(addresses.iter().copied()).collect();
                Ok(invite_alike(&Invitation::Addresses { token: LinkToken::new()?, addresses }, rank_count))
            }
        }
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
        match (invitation, &self.gpu) {
            (Invitation::Addresses { token, addresses }, _) => {
                let listener = self.listener.as_ref().ok_or_else(|| {
                    Error::new(ErrorKind::Protocol, "ranks of one host are not linked by addresses")
                })?;
                let links = listener.link(place, &token, &addresses)?;
                Ok(Box::new(SocketCommunicator::new(place.0, links, region)?))
            }
            (Invitation::Sockets { .. }, _) => {
                let links = links_of(place, descriptors)?;
                Ok(Box::new(SocketCommunicator::new(place.0, links, region)?))
            }
            (Invitation::Direct { .. }, Some(gpu)) => {
                let links = links_of(place, descriptors)?;
                let sharing = Box::new(SharedRegions(gpu.clone()));
                Ok(Box::new(DirectCommunicator::connect(place.0, links, region, sharing)?))
            }
            (Invitation::Name { name, .. }, Some(gpu)) => {
                let id = NcclId::from_bytes(&name)?;
                if self.listener.is_some() {
                    let options = NcclOptions::default();
                    return Ok(Box::new(NcclCommunicator::connect(gpu, region, &id, place, options)?));
                }
                let control = ControlLinks::new(place.0, control_sockets(place, descriptors)?);
                let options = NcclOptions { gathers: false, ..NcclOptions::default() };
                let transfers = NcclCommunicator::connect(gpu, region, &id, place, options)?;
                Ok(Box::new(ControlledCommunicator::new(control, transfers)))
            }
            (Invitation::Name { .. } | Invitation::Direct { .. }, None) => {
                Err(Error::new(ErrorKind::Protocol, "an emulated device has no network but sockets"))
            }
        }
    }
}

/// By a name of NCCL's, and sockets by which ranks of one host tell one another.
fn invite_by_name(
    name: NcclId,
    rank_count: usize,
    are_several_hosts: bool,
) -> Result<Vec<(Invitation, Vec<OwnedFd>)>> {
    let named = |descriptor_count| Invitation::Name { name: name.to_bytes(), descriptor_count };
    match are_several_hosts {
        true => Ok(invite_alike(&named(0), rank_count)),
        false => invite_by_links(rank_count, |RankLink { control, .. }| vec![control], named),
    }
}

fn invite_by_sockets(
    rank_count: usize,
    invitation: impl Fn(u32) -> Invitation,
) -> Result<Vec<(Invitation, Vec<OwnedFd>)>> {
    invite_by_links(rank_count, |RankLink { control, data }| vec![control, data], invitation)
}

/// By what is handed over of links between all ranks of this host.
fn invite_by_links(
    rank_count: usize,
    handed: impl Fn(RankLink) -> Vec<LinkSocket>,
    invitation: impl Fn(u32) -> Invitation,
) -> Result<Vec<(Invitation, Vec<OwnedFd>)>> {
    let invite = |links: Vec<Option<RankLink>>| {
        let sockets = links.into_iter().flatten().flat_map(&handed);
        let descriptors: Vec<OwnedFd> = sockets.map(LinkSocket::into_descriptor).collect();
        (invitation(descriptors.len() as u32), descriptors)
    };
    Ok(links_of_one_host(rank_count)?.into_iter().map(invite).collect())
}

/// The same for all ranks, with nothing that is handed over.
fn invite_alike(invitation: &Invitation, rank_count: usize) -> Vec<(Invitation, Vec<OwnedFd>)> {
    (0..rank_count).map(|_| (invitation.clone(), Vec::new())).collect()
}

/// A link to each other rank.
fn links_of(place: (Rank, usize), descriptors: Vec<OwnedFd>) -> Result<Vec<Option<RankLink>>> {
    let links = sockets_by_rank::<SOCKETS_OF_LINK>(place, descriptors)?;
    let link = |[control, data]: [LinkSocket; SOCKETS_OF_LINK]| RankLink { control, data };
    Ok(links.into_iter().map(|sockets| sockets.map(link)).collect())
}

fn control_sockets(place: (Rank, usize), descriptors: Vec<OwnedFd>) -> Result<Vec<Option<LinkSocket>>> {
    let sockets = sockets_by_rank::<1>(place, descriptors)?;
    Ok(sockets.into_iter().map(|sockets| sockets.map(|[control]| control)).collect())
}

/// So many sockets to each other rank, in the order of ranks.
///
/// # Errors
///
/// `Protocol` if there are more or fewer.
fn sockets_by_rank<const COUNT: usize>(
    (rank, rank_count): (Rank, usize),
    descriptors: Vec<OwnedFd>,
) -> Result<Vec<Option<[LinkSocket; COUNT]>>> {
    let wrong = |count| {
        let message = format!(
            "ranks are not connected by these sockets: rank={rank}, ranks={rank_count}, sockets={count}"
        );
        Error::new(ErrorKind::Protocol, message)
    };
    let count = descriptors.len();
    if count != COUNT * rank_count.saturating_sub(1) || rank.place() >= rank_count {
        return Err(wrong(count));
    }
    let failed =
        |error: std::io::Error| Error::internal(format!("a socket between ranks can't be used: {error}"));
    let mut descriptors = descriptors.into_iter();
    let mut of_other = || {
        let sockets =
            descriptors.by_ref().take(COUNT).map(|descriptor| LinkSocket::unix(descriptor).map_err(failed));
        let sockets = sockets.collect::<Result<Vec<_>>>()?;
        <[LinkSocket; COUNT]>::try_from(sockets).map_err(|sockets| wrong(sockets.len()))
    };
    (0..rank_count).map(|place| if place == rank.place() { Ok(None) } else { of_other().map(Some) }).collect()
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
        assert_eq!((&invitation, descriptors.len()), (&Invitation::Sockets { descriptor_count: 4 }, 4));
        descriptors.pop();
        let error = network.connect((Rank(1), 3), (invitation, descriptors), &region).err().unwrap();
        assert_eq!(error.message, "ranks are not connected by these sockets: rank=1, ranks=3, sockets=3");
        let named = (Invitation::Name { name: vec![0; NcclId::BYTES], descriptor_count: 0 }, Vec::new());
        assert_eq!(network.connect((Rank(1), 3), named, &region).err().unwrap().kind, ErrorKind::Protocol);
    }
}
