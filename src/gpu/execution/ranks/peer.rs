//! Another rank, as rank 0 sees it.

use std::sync::Arc;

use async_trait::async_trait;
use pystachio_engine::StopFlag;
use pystachio_plan::{CacheEntry, QueryMetrics, QueryRequest, QueryTimeline, Result};

use crate::{
    exchange::{ExchangeNetwork, QueryId, Rank},
    execution::{DeviceEngine, FilesOfFirst, QueryStart, RankPart},
};

/// Another rank, wherever it is.
#[async_trait]
pub trait RankPeer: Send + Sync + 'static {
    /// Which one.
    fn rank(&self) -> Rank;

    /// Prepares its part in a query whose plan was distributed, and runs it to its end there once it has begun on rank 0. Dropping the future or
    /// stopping `stop` stops it; the rank tells the others of that, and of what it fails with, by the exchange network.
    ///
    /// # Errors
    ///
    /// What the query failed with: on that rank, or as `Peer` on another one; `Cancelled` if it does not begin on rank 0; `Unavailable`
    /// if the rank can't be reached.
    async fn run(
        &self,
        query: QueryId,
        request: QueryRequest,
        first: FilesOfFirst,
        stop: StopFlag,
    ) -> Result<QueryMetrics>;

    /// What its caches hold, as it says itself: of rank 0.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the rank can't be reached, or does not answer soon.
    async fn cache_entries(&self) -> Result<Vec<CacheEntry>>;

    /// What its device did for its part in a query, if that was noted and is remembered: since its own start, and as of rank 0.
    ///
    /// # Errors
    ///
    /// As of [`RankPeer::cache_entries`].
    async fn timeline(&self, query: QueryId) -> Result<Option<QueryTimeline>>;
}

/// A rank of this process.
pub struct LocalPeer {
    engine: Arc<DeviceEngine>,
    network: Arc<ExchangeNetwork>,
}

impl LocalPeer {
    /// A device's engine at its end of a network.
    pub fn new(engine: Arc<DeviceEngine>, network: Arc<ExchangeNetwork>) -> Self {
        Self { engine, network }
    }
}

#[async_trait]
impl RankPeer for LocalPeer {
    fn rank(&self) -> Rank {
        self.network.rank()
    }

    async fn run(
        &self,
        query: QueryId,
        request: QueryRequest,
        first: FilesOfFirst,
        stop: StopFlag,
    ) -> Result<QueryMetrics> {
        let part = RankPart { network: self.network.clone(), query, start: QueryStart::Awaited(first) };
        let mut stream = self.engine.run_part(request, part, stop).await?;
        // It has no rows to give.
        while stream.next_batch().await?.is_some() {}
        Ok(stream.metrics())
    }

    async fn cache_entries(&self) -> Result<Vec<CacheEntry>> {
        Ok(self.engine.cache_entries())
    }

    async fn timeline(&self, query: QueryId) -> Result<Option<QueryTimeline>> {
        Ok(self.engine.timeline_of(query))
    }
}
