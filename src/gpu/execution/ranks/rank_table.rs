//! The ranks beside rank 0, while they are connected.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::ExchangeCosts;

use super::{peer::RankPeer, ranked_engine::RankedOptions};
use crate::exchange::{ExchangeNetwork, QueryId};

/// The ranks beside rank 0, while they are connected. The supervisor of the ranks updates the
/// table. Queries that have begun keep the connection that they began with.
pub struct RankTable {
    rank_count: usize,
    options: RankedOptions,
    next_query: AtomicU64,
    connected: Mutex<Option<Arc<ConnectedRanks>>>,
}

/// Rank 0's end of a network, and the ranks at the others.
pub(super) struct ConnectedRanks {
    pub(super) network: Arc<ExchangeNetwork>,
    pub(super) peers: Vec<Arc<dyn RankPeer>>,
}

impl RankTable {
    /// A table for this many ranks, none of which is connected.
    pub fn new(rank_count: usize, options: RankedOptions) -> Self {
        let costs = ExchangeCosts { ranks: rank_count as u32, ..options.costs };
        let options = RankedOptions { costs, ..options };
        Self { rank_count, options, next_query: AtomicU64::new(0), connected: Mutex::default() }
    }

    /// The configured number of ranks, rank 0 among them.
    pub fn rank_count(&self) -> usize {
        self.rank_count
    }

    /// Marks all ranks as connected: new queries run on all of them.
    ///
    /// # Panics
    ///
    /// If their number or their hosts differ from the configured ones.
    pub fn connect(&self, network: Arc<ExchangeNetwork>, peers: Vec<Arc<dyn RankPeer>>) {
        assert_eq!((network.rank_count(), 1 + peers.len()), (self.rank_count, self.rank_count), "ranks");
        let host_count = self.options.costs.hosts as usize;
        assert_eq!(network.layout().host_count(), host_count, "hosts of ranks");
        let connected = Arc::new(ConnectedRanks { network, peers });
        *lock_whole(&self.connected) = Some(connected);
    }

    /// Marks the ranks as incomplete: new queries run on rank 0 alone. Running queries end by their
    /// network.
    pub fn disconnect(&self) {
        let connected = lock_whole(&self.connected).take();
        drop(connected);
    }

    /// Which queries run on all ranks, and what exchanges cost.
    pub(super) fn options(&self) -> &RankedOptions {
        &self.options
    }

    /// The ranks that a query can run on.
    pub(super) fn connected(&self) -> Option<Arc<ConnectedRanks>> {
        lock_whole(&self.connected).clone()
    }

    /// A query number that is used once.
    pub(super) fn next_query(&self) -> QueryId {
        QueryId(self.next_query.fetch_add(1, Ordering::Relaxed))
    }
}
