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
    /// Starts it on a platform. Exchanges get a part of the options' memory.
    ///
    /// # Errors
    ///
    /// Errors of the platform.
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

    /// The engine that runs plans on it.
    pub fn engine(&self) -> &Arc<DeviceEngine> {
        &self.engine
    }

    /// The memory of exchanges' blocks.
    pub fn region(&self) -> &ExchangeRegion {
        &self.region
    }

    /// The largest block that there is room for, if the network would allow larger ones. All ranks
    /// of a network use the least of these.
    pub fn block_bytes_max(&self) -> u64 {
        let (_, region_bytes) = self.region.range();
        block_bytes_of(region_bytes).min(NetworkOptions::default().block_bytes_max)
    }

    /// Joins a network.
    ///
    /// # Errors
    ///
    /// Errors of [`ExchangeNetwork::start`].
    pub fn start_network(
        &self,
        communicator: Box<dyn Communicator>,
        options: NetworkOptions,
    ) -> Result<Arc<ExchangeNetwork>> {
        ExchangeNetwork::start(communicator, self.region.clone(), options).map(Arc::new)
    }
}
