//! Another rank, as rank 0 sees it.

use std::sync::Arc;

use async_trait::async_trait;
use pystachio_engine::StopFlag;
use pystachio_plan::{CacheEntry, QueryMetrics, QueryRequest, QueryTimeline, Result};

use crate::{
    exchange::{ExchangeNetwork, QueryId, Rank},
    execution::{BegunOnFirst, DeviceEngine, QueryStart, RankPart},
};

/// Another rank, in this process or another one.
#[async_trait]
pub trait RankPeer: Send + Sync + 'static {
    /// Its rank.
    fn rank(&self) -> Rank;

    /// Prepares its part in a distributed query, and runs it to its end once the query has begun on
    /// rank 0. Dropping the future or stopping `stop` stops it. The rank reports a stop and its
    /// failures to the others by the exchange network.
    ///
    /// # Errors
    ///
    /// The query's failure on that rank, or `Peer` for a failure of another one; `Cancelled` if it
    /// does not begin on rank 0; `Unavailable` if the rank can't be reached.
    async fn run(
        &self,
        query: QueryId,
        request: QueryRequest,
        first: BegunOnFirst,
        stop: StopFlag,
    ) -> Result<QueryMetrics>;

    /// The contents of its caches. It reports itself as rank 0.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the rank can't be reached, or does not answer soon.
    async fn cache_entries(&self) -> Result<Vec<CacheEntry>>;

    /// The timeline of its part in a query, if it has kept one. Times count from its own start, and
    /// it reports itself as rank 0.
    ///
    /// # Errors
    ///
    /// Errors of [`RankPeer::cache_entries`].
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
        first: BegunOnFirst,
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
