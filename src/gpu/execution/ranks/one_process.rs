//! Ranks side by side in one process, each with a device of its own: emulated devices, if separate
//! processes would be too costly.

use std::{sync::Arc, time::Duration};

use pystachio_files::FileCatalog;
use pystachio_plan::{Error, Result};

use super::{
    peer::{LocalPeer, RankPeer},
    rank_device::RankDevice,
    rank_table::RankTable,
    ranked_engine::{RankedEngine, RankedOptions},
};
use crate::{
    device::Platform,
    exchange::{
        Communicator, ControlledCommunicator, NetworkOptions, Rank, SocketTransfers, links_of_one_host,
    },
    execution::DeviceOptions,
};

/// Ranks of one process are not lost one by one: a silent rank waits for a processor.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Engines on these platforms, one rank for each, all with the same options.
///
/// # Errors
///
/// Errors of the platforms, and `Internal` if threads can't start.
pub fn ranks_of_one_process(
    platforms: Vec<Arc<dyn Platform>>,
    options: &DeviceOptions,
    catalog: &Arc<FileCatalog>,
    ranked: RankedOptions,
) -> Result<RankedEngine> {
    let network = NetworkOptions { silence_max: SILENCE_MAX, ..NetworkOptions::default() };
    ranks_over(platforms, (options, catalog, ranked), network, |communicator| communicator)
}

/// The same with other network options; `prepare` sees each end of the network.
pub(in crate::execution) fn ranks_over(
    platforms: Vec<Arc<dyn Platform>>,
    (options, catalog, ranked): (&DeviceOptions, &Arc<FileCatalog>, RankedOptions),
    network: NetworkOptions,
    prepare: impl Fn(Box<dyn Communicator>) -> Box<dyn Communicator>,
) -> Result<RankedEngine> {
    let links = links_of_one_host(platforms.len())?;
    let mut ranks = Vec::with_capacity(platforms.len());
    for (number, (platform, links)) in (0..).zip(platforms.into_iter().zip(links)) {
        let device = RankDevice::open(platform, options, catalog.clone())?;
        let transfers = |data| SocketTransfers::new(Rank(number), data, device.region());
        let communicator = ControlledCommunicator::connect(Rank(number), links, transfers)?;
        let block_bytes_max = device.block_bytes_max().min(network.block_bytes_max);
        let network = NetworkOptions { block_bytes_max, ..network };
        let network = device.start_network(prepare(Box::new(communicator)), network)?;
        ranks.push((device.engine().clone(), network));
    }
    let table = Arc::new(RankTable::new(ranks.len(), ranked.on_hosts(network.host_count)));
    let mut ranks = ranks.into_iter();
    let (first, network) = ranks.next().ok_or_else(|| Error::internal("an engine without ranks"))?;
    let peer = |(engine, network)| Arc::new(LocalPeer::new(engine, network)) as Arc<dyn RankPeer>;
    table.connect(network, ranks.map(peer).collect());
    Ok(RankedEngine::with_ranks(first, table))
}
