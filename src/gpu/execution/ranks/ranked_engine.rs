//! What a host starts: rank 0's engine, with or without other ranks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::{ResultStream, StopFlag};
use pystachio_files::{FileCatalog, scan_size};
use pystachio_plan::{
    DistributeRequest, Distributed, ErrorKind, ExchangeCosts, Operator, Plan, QueryMetrics, QueryRequest,
    RankChoice, RankPolicy, RanksReport, Result, ScanFigures, distribute,
};
use tokio::sync::watch;

use super::{
    peer::RankPeer,
    stream::{PeerRuns, RankedStream},
};
use crate::{
    exchange::{ExchangeNetwork, QueryId},
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
    first: DeviceEngine,
    others: Option<OtherRanks>,
}

/// Ranks beside rank 0.
struct OtherRanks {
    /// Rank 0's end of the network.
    network: Arc<ExchangeNetwork>,
    peers: Vec<Arc<dyn RankPeer>>,
    options: RankedOptions,
    next_query: AtomicU64,
}

impl RankedEngine {
    /// An engine without other ranks.
    pub fn alone(first: DeviceEngine) -> Self {
        Self { first, others: None }
    }

    /// Rank 0 with its end of a network, and the ranks at the others.
    ///
    /// # Panics
    ///
    /// If the network has another number of ranks.
    pub fn new(
        first: DeviceEngine,
        network: Arc<ExchangeNetwork>,
        peers: Vec<Arc<dyn RankPeer>>,
        options: RankedOptions,
    ) -> Self {
        assert_eq!(network.rank_count(), 1 + peers.len(), "ranks of a network");
        let costs = ExchangeCosts { ranks: network.rank_count() as u32, ..options.costs };
        let others = OtherRanks {
            network,
            peers,
            options: RankedOptions { costs, ..options },
            next_query: AtomicU64::new(0),
        };
        Self { first, others: Some(others) }
    }

    /// Rank 0's engine: what is asked of an engine besides queries is asked of it.
    pub fn first(&self) -> &DeviceEngine {
        &self.first
    }

    /// How many ranks there are.
    pub fn rank_count(&self) -> usize {
        self.others.as_ref().map_or(1, |others| others.network.rank_count())
    }

    /// Starts a query on all ranks or on rank 0 alone, and waits for its first rows.
    ///
    /// # Errors
    ///
    /// As of [`DeviceEngine::run`], with the rank's number in the message where it is another one's; `Peer` for a rank that was lost.
    pub async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let Some(others) = &self.others else { return self.first.run(request, stop).await };
        let (asked, catalog, chooser) = (request.clone(), self.first.catalog().clone(), others.chooser());
        // Footers may have to be read.
        let chosen = tokio::task::spawn_blocking(move || chooser.choose(&asked, &catalog)).await;
        let mut report = chosen.unwrap_or_else(|error| {
            others.chooser().on_first(format!("its plan was not distributed: {error}"))
        });
        if let RankChoice::All { plan, .. } = &report.choice {
            let distributed = QueryRequest { plan: Plan::clone(plan), ..request.clone() };
            let with_report = request.with_metrics.then(|| report.clone());
            match self.run_on_all(others, distributed, with_report, stop.clone()).await {
                Err(refusal) if matches!(refusal.kind, ErrorKind::NotSupported | ErrorKind::OutOfMemory) => {
                    tracing::info!(reason = %refusal, "query runs on one rank");
                    report.choice = RankChoice::First { reason: refusal.message };
                }
                result => return result,
            }
        }
        let report = request.with_metrics.then_some(report);
        let stream = self.first.run(request, stop).await?;
        Ok(Box::new(RankedStream { stream, peers: None, report, counted: Vec::new() }))
    }

    async fn run_on_all(
        &self,
        others: &OtherRanks,
        request: QueryRequest,
        report: Option<RanksReport>,
        stop: StopFlag,
    ) -> Result<Box<dyn ResultStream>> {
        let query = QueryId(others.next_query.fetch_add(1, Ordering::Relaxed));
        let of_all = stop.of_part();
        let begun = Arc::new(watch::Sender::new(false));
        let mut peers = PeerRuns::start(&others.peers, query, &request, of_all.clone(), &begun);
        let part = RankPart { network: others.network.clone(), query, begun: Some(begun) };
        match self.first.run_part(request, part, of_all).await {
            Ok(stream) => {
                Ok(Box::new(RankedStream { stream, peers: Some(peers), report, counted: Vec::new() }))
            }
            Err(error) => Err(peers.reason_of(error).await),
        }
    }

    /// What a query would read. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`DeviceEngine::preview`].
    pub fn preview(&self, request: &QueryRequest) -> Result<QueryMetrics> {
        let metrics = self.first.preview(request)?;
        let report = |others: &OtherRanks| others.chooser().choose(request, self.first.catalog());
        Ok(QueryMetrics { ranks: self.others.as_ref().map(report), ..metrics })
    }
}

impl OtherRanks {
    fn chooser(&self) -> RankChooser {
        RankChooser { network: self.network.clone(), options: self.options }
    }
}

/// Who says which ranks run a query.
struct RankChooser {
    network: Arc<ExchangeNetwork>,
    options: RankedOptions,
}

impl RankChooser {
    /// What the ranks are to do. What is wrong with the files, whoever runs the query reports. Blocks.
    fn choose(&self, request: &QueryRequest, catalog: &FileCatalog) -> RanksReport {
        if let Some(error) = self.network.failure() {
            tracing::warn!(reason = %error, "query runs on one rank: the network of ranks has ended");
            return self.on_first(format!("the network of ranks has ended: {}", error.message));
        }
        let scans = match scan_figures(request, catalog) {
            Ok(scans) => scans,
            Err(error) => return self.on_first(error.message),
        };
        let RankedOptions { policy, costs } = &self.options;
        match distribute(&request.plan, DistributeRequest { costs, scans: &scans, policy: *policy }) {
            Ok(distributed) => self.report(distributed),
            Err(error) => {
                tracing::error!(reason = %error, "query runs on one rank: its plan was not distributed");
                self.on_first(format!("its plan was not distributed: {}", error.message))
            }
        }
    }

    fn report(&self, distributed: Distributed) -> RanksReport {
        let Distributed { plan, one_rank, exchanges, one_rank_s, all_ranks_s } = distributed;
        let choice = match one_rank {
            Some(reason) => RankChoice::First { reason: reason.to_string() },
            None if exchanges.is_empty() => {
                RankChoice::First { reason: "no rank has to exchange rows".into() }
            }
            None => RankChoice::All { plan: Box::new(plan), exchanges },
        };
        let micros = |seconds: f64| (seconds * 1e6) as u64;
        RanksReport {
            choice,
            one_rank_us: micros(one_rank_s),
            all_ranks_us: all_ranks_s.is_finite().then(|| micros(all_ranks_s)),
            ..self.on_first(String::new())
        }
    }

    /// Rank 0 alone, of which no time is known.
    fn on_first(&self, reason: String) -> RanksReport {
        RanksReport {
            rank_count: self.network.rank_count() as u32,
            choice: RankChoice::First { reason },
            one_rank_us: 0,
            all_ranks_us: None,
            actual_rows: Vec::new(),
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
