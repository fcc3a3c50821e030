//! A device that is a rank: its engine, and its memory for exchanges.

use std::sync::Arc;

use pystachio_files::FileCatalog;
use pystachio_plan::Result;

use crate::{
    device::Platform,
    exchange::{BLOCK_ALIGNMENT, Communicator, ExchangeNetwork, ExchangeRegion, NetworkOptions},
    execution::{DeviceEngine, DeviceOptions, query::QUERIES_MAX},
};

/// The part of a rank's memory that exchanges have.
const REGION_PART: u64 = 4;
/// Exchanges of a query for each of which there is room while as many queries run as may.
const EXCHANGES_OF_QUERY: u64 = 16;
/// Blocks that each has room for at least: one on its way out, one on its way in.
const BLOCKS_OF_EXCHANGE: u64 = 2;

/// A device that is a rank. Networks come and go over it.
pub struct RankDevice {
    engine: Arc<DeviceEngine>,
    region: ExchangeRegion,
}

impl RankDevice {
    /// On a platform. Exchanges have a part of what the options say.
    ///
    /// # Errors
    ///
    /// Those of the platform.
    pub fn open(
        platform: Arc<dyn Platform>,
        options: &DeviceOptions,
        catalog: Arc<FileCatalog>,
    ) -> Result<Self> {
        let region_bytes = options.memory_bytes / REGION_PART;
        let region = ExchangeRegion::new(platform.clone(), region_bytes)?;
        let left = |bytes: u64| bytes - bytes / REGION_PART;
        let device = DeviceOptions {
            memory_bytes: options.memory_bytes - region_bytes,
            cache_bytes: left(options.cache_bytes),
            ..options.clone()
        };
        let engine = DeviceEngine::new(platform, &device).with_catalog(catalog);
        Ok(Self { engine: Arc::new(engine), region })
    }

    /// What runs plans on it.
    pub fn engine(&self) -> &Arc<DeviceEngine> {
        &self.engine
    }

    /// Where blocks of exchanges are.
    pub fn region(&self) -> &ExchangeRegion {
        &self.region
    }

    /// Blocks that there is room for are not larger, whatever the network would like. Ranks of one network go by the least of all.
    pub fn block_bytes_max(&self) -> u64 {
        let (_, region_bytes) = self.region.range();
        let block_bytes = region_bytes / (QUERIES_MAX * EXCHANGES_OF_QUERY * BLOCKS_OF_EXCHANGE);
        let wanted = NetworkOptions::default().block_bytes_max;
        (block_bytes / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT).clamp(BLOCK_ALIGNMENT, wanted)
    }

    /// Takes part in a network.
    ///
    /// # Errors
    ///
    /// As of [`ExchangeNetwork::start`].
    pub fn start_network(
        &self,
        communicator: Box<dyn Communicator>,
        options: NetworkOptions,
    ) -> Result<Arc<ExchangeNetwork>> {
        ExchangeNetwork::start(communicator, self.region.clone(), options).map(Arc::new)
    }
}
