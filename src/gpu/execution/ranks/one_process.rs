//! Ranks side by side in one process, each with a device of its own: how emulated devices are several ranks.

use std::{sync::Arc, time::Duration};

use pystachio_files::FileCatalog;
use pystachio_plan::Result;

use super::{
    peer::{LocalPeer, RankPeer},
    ranked_engine::{RankedEngine, RankedOptions},
};
use crate::{
    device::Platform,
    exchange::{
        BLOCK_ALIGNMENT, ExchangeNetwork, ExchangeRegion, LocalCommunicator, LocalHub, NetworkOptions, Rank,
    },
    execution::{DeviceEngine, DeviceOptions, query::QUERIES_MAX},
};

/// The part of a rank's memory that exchanges have.
const REGION_PART: u64 = 4;
/// Exchanges of a query for each of which there is room while as many queries run as may.
const EXCHANGES_OF_QUERY: u64 = 16;
/// Blocks that each has room for at least: one on its way out, one on its way in.
const BLOCKS_OF_EXCHANGE: u64 = 2;
/// Ranks of one process do not get lost one by one: who is silent waits for a processor.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Engines on these platforms, as many ranks as there are. Each has what the options say.
///
/// # Errors
///
/// Those of the platforms, and `Internal` if there can be no threads.
pub fn ranks_of_one_process(
    platforms: Vec<Arc<dyn Platform>>,
    options: &DeviceOptions,
    catalog: &Arc<FileCatalog>,
    ranked: RankedOptions,
) -> Result<RankedEngine> {
    let network = NetworkOptions { silence_max: SILENCE_MAX, ..NetworkOptions::default() };
    ranks_over(platforms, (options, catalog, ranked), network, |_| {})
}

/// The same with a network of other options, each of whose ends is prepared.
pub(in crate::execution) fn ranks_over(
    platforms: Vec<Arc<dyn Platform>>,
    (options, catalog, ranked): (&DeviceOptions, &Arc<FileCatalog>, RankedOptions),
    network: NetworkOptions,
    prepare: impl Fn(&mut LocalCommunicator),
) -> Result<RankedEngine> {
    let hub = LocalHub::new(platforms.len());
    let mut ranks = Vec::with_capacity(platforms.len());
    for (number, platform) in (0..).zip(platforms) {
        ranks.push(start_rank(&hub, (Rank(number), platform), options, (network, &prepare))?);
    }
    let with_catalog = |engine: DeviceEngine| engine.with_catalog(catalog.clone());
    let mut ranks = ranks.into_iter().map(|(engine, network)| (with_catalog(engine), network));
    let (first, network) =
        ranks.next().ok_or_else(|| pystachio_plan::Error::internal("an engine without ranks"))?;
    let peer = |(engine, network)| Arc::new(LocalPeer { engine, network }) as Arc<dyn RankPeer>;
    Ok(RankedEngine::new(first, network, ranks.map(peer).collect(), ranked))
}

fn start_rank(
    hub: &LocalHub,
    (rank, platform): (Rank, Arc<dyn Platform>),
    options: &DeviceOptions,
    (network, prepare): (NetworkOptions, &impl Fn(&mut LocalCommunicator)),
) -> Result<(DeviceEngine, Arc<ExchangeNetwork>)> {
    let region_bytes = options.memory_bytes / REGION_PART;
    let region = ExchangeRegion::new(platform.clone(), region_bytes)?;
    let block_bytes = region_bytes / (QUERIES_MAX * EXCHANGES_OF_QUERY * BLOCKS_OF_EXCHANGE);
    let block_bytes_max =
        (block_bytes / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT).clamp(BLOCK_ALIGNMENT, network.block_bytes_max);
    let mut communicator = hub.connect(rank, &region, u64::from(rank.0))?;
    prepare(&mut communicator);
    let options_of_network = NetworkOptions { block_bytes_max, ..network };
    let network = ExchangeNetwork::start(Box::new(communicator), region, options_of_network)?;
    let left = |bytes: u64| bytes - bytes / REGION_PART;
    let device = DeviceOptions {
        memory_bytes: options.memory_bytes - region_bytes,
        cache_bytes: left(options.cache_bytes),
        ..options.clone()
    };
    Ok((DeviceEngine::new(platform, &device), Arc::new(network)))
}
