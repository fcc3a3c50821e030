//! What a host starts: rank 0's engine, with or without other ranks.

use std::sync::Arc;

use pystachio_engine::{ResultStream, StopFlag};
use pystachio_files::{FileCatalog, scan_size};
use pystachio_plan::{
    DistributeRequest, ErrorKind, ExchangeCosts, Operator, Plan, QueryMetrics, QueryRequest, RankPolicy,
    Result, ScanFigures, distribute,
};
use tokio::sync::watch;

use super::{
    rank_table::{ConnectedRanks, RankTable},
    stream::{PeerRuns, RankedStream},
};
use crate::{
    exchange::QueryId,
    execution::{DeviceEngine, RankPart},
};

/// Under [`RankPolicy::All`] tables of more encoded bytes are dealt, which is next to all of them: that policy is for whoever wants
/// to see ranks at work, also over tables that no rank would share.
const WHOLE_SCAN_BYTES_OF_ALL: u64 = 4 << 10;

/// Which queries run on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct RankedOptions {
    /// Whether rank 0 may run one alone.
    pub policy: RankPolicy,
    /// What exchanges cost; the number of ranks is known without. The defaults are of GPUs of one host (`ExchangeCosts`): measuring the
    /// link of the ranks that there are takes their place once there are others.
    pub costs: ExchangeCosts,
}

impl RankedOptions {
    /// With the costs that go with a policy.
    pub fn of(policy: RankPolicy) -> Self {
        let defaults = ExchangeCosts::default();
        let whole_scan_bytes_max = match policy {
            RankPolicy::Fastest => defaults.whole_scan_bytes_max,
            RankPolicy::All => WHOLE_SCAN_BYTES_OF_ALL,
        };
        Self { policy, costs: ExchangeCosts { whole_scan_bytes_max, ..defaults } }
    }
}

/// The engine of rank 0, and the other ranks, if there are any.
pub struct RankedEngine {
    first: Arc<DeviceEngine>,
    ranks: Option<Arc<RankTable>>,
}

impl RankedEngine {
    /// An engine without other ranks.
    pub fn alone(first: DeviceEngine) -> Self {
        Self { first: Arc::new(first), ranks: None }
    }

    /// Rank 0, and the ranks beside it while they are connected.
    pub fn with_ranks(first: Arc<DeviceEngine>, ranks: Arc<RankTable>) -> Self {
        Self { first, ranks: Some(ranks) }
    }

    /// Rank 0's engine: what is asked of an engine besides queries is asked of it.
    pub fn first(&self) -> &DeviceEngine {
        &self.first
    }

    /// How many ranks there are.
    pub fn rank_count(&self) -> usize {
        self.ranks.as_ref().map_or(1, |ranks| ranks.rank_count())
    }

    /// Starts a query on all ranks or on rank 0 alone, and waits for its first rows.
    ///
    /// # Errors
    ///
    /// As of [`DeviceEngine::run`], with the rank's number in the message where it is another one's; `Peer` for a rank that was lost.
    pub async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let Some(ranks) = &self.ranks else { return self.first.run(request, stop).await };
        let Some(plan) = plan_for_all(ranks, &request, self.first.catalog()).await else {
            return self.first.run(request, stop).await;
        };
        // After the plan was made, so that what was connected is so for as short as can be.
        let Some(connected) = connected(ranks) else { return self.first.run(request, stop).await };
        let distributed = QueryRequest { plan, ..request.clone() };
        match self.run_on_all(ranks.next_query(), &connected, distributed, stop.clone()).await {
            Err(refusal) if matches!(refusal.kind, ErrorKind::NotSupported | ErrorKind::OutOfMemory) => {
                tracing::info!(reason = %refusal, "query runs on one rank");
                self.first.run(request, stop).await
            }
            result => result,
        }
    }

    async fn run_on_all(
        &self,
        query: QueryId,
        ranks: &ConnectedRanks,
        request: QueryRequest,
        stop: StopFlag,
    ) -> Result<Box<dyn ResultStream>> {
        let of_all = stop.of_part();
        let begun = Arc::new(watch::Sender::new(false));
        let mut peers = PeerRuns::start(&ranks.peers, query, &request, of_all.clone(), &begun);
        let part = RankPart { network: ranks.network.clone(), query, begun: Some(begun) };
        match self.first.run_part(request, part, of_all).await {
            Ok(stream) => Ok(Box::new(RankedStream { stream, peers, counted: Vec::new() })),
            Err(error) => Err(peers.reason_of(error).await),
        }
    }

    /// What a query would read. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`DeviceEngine::preview`].
    pub fn preview(&self, request: &QueryRequest) -> Result<QueryMetrics> {
        self.first.preview(request)
    }
}

/// The ranks that a query can run on now.
fn connected(ranks: &RankTable) -> Option<Arc<ConnectedRanks>> {
    let Some(connected) = ranks.connected() else {
        tracing::warn!("query runs on one rank: the others are not connected");
        return None;
    };
    match connected.network.failure() {
        None => Some(connected),
        Some(error) => {
            tracing::warn!(reason = %error, "query runs on one rank: the network of ranks has ended");
            None
        }
    }
}

/// The plan for all ranks; `None` if rank 0 is to run the query alone. What is wrong with the files, whoever runs it reports.
async fn plan_for_all(ranks: &RankTable, request: &QueryRequest, catalog: &Arc<FileCatalog>) -> Option<Plan> {
    let (asked, catalog) = (request.clone(), catalog.clone());
    // Footers may have to be read.
    let figures = tokio::task::spawn_blocking(move || scan_figures(&asked, &catalog)).await;
    let scans = figures.ok()?.ok()?;
    let RankedOptions { policy, costs } = ranks.options();
    let distributed = distribute(&request.plan, DistributeRequest { costs, scans: &scans, policy: *policy });
    match distributed {
        Ok(distributed) => {
            let is_on_one = distributed.one_rank.is_some() || distributed.exchanges.is_empty();
            (!is_on_one).then_some(distributed.plan)
        }
        Err(error) => {
            tracing::error!(reason = %error, "query runs on one rank: its plan was not distributed");
            None
        }
    }
}

/// What the scans of a plan read, from left to right. Blocks.
fn scan_figures(request: &QueryRequest, catalog: &FileCatalog) -> Result<Vec<ScanFigures>> {
    let figures = |scan: &Operator| match scan {
        Operator::Scan { files, columns, filters, .. } => {
            let size = scan_size(catalog, files, columns, filters, &request.parameters)?;
            Ok(ScanFigures { row_count: size.row_count, encoded_bytes: size.compressed_bytes })
        }
        _ => Ok(ScanFigures::default()),
    };
    request.plan.root.scans().into_iter().map(figures).collect()
}
