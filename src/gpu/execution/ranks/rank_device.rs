//! A device that is a rank: its engine, and its memory for exchanges.

use std::sync::Arc;

use pystachio_files::FileCatalog;
use pystachio_plan::Result;

use crate::{
    device::Platform,
    exchange::{Communicator, ExchangeNetwork, ExchangeRegion, NetworkOptions},
    execution::{DeviceEngine, DeviceOptions, exchange::block_bytes_of},
};

/// The part of a rank's memory that exchanges have.
const REGION_PART: u64 = 4;

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
        block_bytes_of(region_bytes).min(NetworkOptions::default().block_bytes_max)
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
