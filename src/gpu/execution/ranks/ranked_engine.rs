//! The engine that a host starts: rank 0's engine, with or without other ranks.

use std::{sync::Arc, time::Instant};

use pystachio_engine::{QueryPlace, ResultStream, StopFlag};
use pystachio_files::{FileCatalog, sampled_values, scan_ranges};
use pystachio_plan::{
    DistributeRequest, Distributed, ErrorKind, ExchangeCosts, ExchangeSettings, FileSet, Operator, Plan,
    QueryEngine, QueryMetrics, QueryRequest, RankChoice, RankPolicy, RanksReport, Result, RunTimeChoices,
    ScanColumn, ScanFigures, distribute, range_columns, with_common_values,
};
use tokio::sync::watch;

use super::{
    peer::RankPeer,
    rank_table::{ConnectedRanks, RankTable},
    stream::{PeerRuns, RankedStream},
};
use crate::{
    exchange::QueryId,
    execution::{DeviceEngine, QueryStart, RankPart},
};

/// Under [`RankPolicy::All`] tables with more encoded bytes are distributed, which is almost every
/// table: the policy is for tests of ranks, over tables that would be too small to share.
const WHOLE_SCAN_BYTES_OF_ALL: u64 = 4 << 10;

/// Which queries run on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct RankedOptions {
    /// Whether rank 0 may run one alone.
    pub policy: RankPolicy,
    /// Costs of exchanges, and the number of hosts. The defaults are for GPUs of one host
    /// (`ExchangeCosts`); a measured link that is slower replaces them.
    pub costs: ExchangeCosts,
}

impl RankedOptions {
    /// With the default costs for a policy.
    pub fn of(policy: RankPolicy) -> Self {
        let defaults = ExchangeCosts::default();
        let whole_scan_bytes_max = match policy {
            RankPolicy::Fastest => defaults.whole_scan_bytes_max,
            RankPolicy::All => WHOLE_SCAN_BYTES_OF_ALL,
        };
        Self { policy, costs: ExchangeCosts { whole_scan_bytes_max, ..defaults } }
    }

    /// The same for ranks on so many hosts.
    pub fn on_hosts(self, host_count: usize) -> Self {
        Self { costs: ExchangeCosts { hosts: host_count as u32, ..self.costs }, ..self }
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

    /// Rank 0's engine, for requests other than queries.
    pub fn first(&self) -> &DeviceEngine {
        &self.first
    }

    /// The table of the other ranks.
    pub(super) fn peers(&self) -> Vec<Arc<dyn RankPeer>> {
        let connected = self.ranks.as_ref().and_then(|ranks| ranks.connected());
        connected.map(|connected| connected.peers.clone()).unwrap_or_default()
    }

    /// How many ranks there are.
    pub fn rank_count(&self) -> usize {
        self.ranks.as_ref().map_or(1, |ranks| ranks.rank_count())
    }

    /// Starts a query on all ranks or on rank 0 alone, and waits for its first rows.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceEngine::run`], with the rank's number in the message if it is another
    /// one's; `Peer` for a rank that was lost.
    pub async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let Some(ranks) = &self.ranks else { return self.first.run(request, stop).await };
        let (asked, catalog, chooser) = (
            request.clone(),
            self.first.catalog().for_request(&request.access, &stop),
            RankChooser { ranks: ranks.clone() },
        );
        // Footers may have to be read.
        let started = Instant::now();
        let chosen = tokio::task::spawn_blocking(move || chooser.choose(&asked, &catalog)).await;
        tracing::debug!(elapsed_us = started.elapsed().as_micros() as u64, "ranks were chosen");
        let chooser = RankChooser { ranks: ranks.clone() };
        let mut report =
            chosen.unwrap_or_else(|error| chooser.on_first(format!("its plan was not distributed: {error}")));
        if let RankChoice::All { plan, .. } = &report.choice {
            let distributed = QueryRequest { plan: Plan::clone(plan), ..request.clone() };
            let with_report = request.with_metrics.then(|| report.clone());
            // Taken after planning, so that the connection is as recent as possible.
            match connected(ranks) {
                Err(reason) => report.choice = RankChoice::First { reason },
                Ok(connected) => {
                    let query = ranks.next_query();
                    match self.run_on_all(query, &connected, distributed, with_report, stop.clone()).await {
                        Err(refusal)
                            if matches!(
                                refusal.kind,
                                ErrorKind::NotSupported | ErrorKind::OutOfMemory | ErrorKind::FilesChanged
                            ) =>
                        {
                            tracing::info!(reason = %refusal, "query runs on one rank");
                            report.choice = RankChoice::First { reason: refusal.message };
                        }
                        result => return result,
                    }
                }
            }
        }
        let report = request.with_metrics.then_some(report);
        let stream = self.first.run(request, stop).await?;
        Ok(Box::new(RankedStream { stream, peers: None, report, counted: Vec::new() }))
    }

    async fn run_on_all(
        &self,
        query: QueryId,
        ranks: &ConnectedRanks,
        request: QueryRequest,
        report: Option<RanksReport>,
        stop: StopFlag,
    ) -> Result<Box<dyn ResultStream>> {
        let rank_count = ranks.peers.len() as u32 + 1;
        stop.begin(QueryPlace { engine: QueryEngine::Gpu, rank_count });
        let of_all = stop.of_part();
        let begun = watch::Sender::new(None);
        let start = (&begun.subscribe(), self.first.waiting_count() > 0);
        let mut peers = PeerRuns::start(&ranks.peers, query, &request, of_all.clone(), start);
        let start = QueryStart::Told(Arc::new(begun));
        let part = RankPart { network: ranks.network.clone(), query, start };
        match self.first.run_part(request, part, of_all).await {
            Ok(stream) => {
                Ok(Box::new(RankedStream { stream, peers: Some(peers), report, counted: Vec::new() }))
            }
            Err(error) => Err(peers.reason_of(error).await),
        }
    }

    /// A preview of the files that a query reads. Blocks.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceEngine::preview`].
    pub fn preview(&self, request: &QueryRequest, stop: &StopFlag) -> Result<QueryMetrics> {
        let metrics = self.first.preview(request, stop)?;
        let report = |ranks: &Arc<RankTable>| {
            let catalog = self.first.catalog().for_request(&request.access, stop);
            RankChooser { ranks: ranks.clone() }.choose(request, &catalog)
        };
        Ok(QueryMetrics { ranks: self.ranks.as_ref().map(report), ..metrics })
    }
}

/// The ranks that a query can run on now, or why there are none.
fn connected(ranks: &RankTable) -> std::result::Result<Arc<ConnectedRanks>, String> {
    let reason = match ranks.connected() {
        None => "the other ranks are not connected".to_owned(),
        Some(connected) => match connected.network.failure() {
            None => return Ok(connected),
            Some(error) => format!("the network of ranks has ended: {}", error.message),
        },
    };
    tracing::warn!("query runs on one rank: {reason}");
    Err(reason)
}

/// Decides which ranks run a query.
struct RankChooser {
    ranks: Arc<RankTable>,
}

impl RankChooser {
    /// Plans the query for the ranks. The ranks that run it report errors of the files. Blocks.
    fn choose(&self, request: &QueryRequest, catalog: &FileCatalog) -> RanksReport {
        let scans = match scan_figures(request, catalog) {
            Ok(scans) => scans,
            Err(error) => return self.on_first(error.message),
        };
        let RankedOptions { policy, costs } = self.ranks.options();
        let costs = &self.with_link(costs);
        let ExchangeSettings { broadcast_choice, heavy_keys, two_level, .. } = request.device.exchange;
        let choices = RunTimeChoices { broadcast: broadcast_choice, heavy_keys };
        let asked = DistributeRequest { costs, scans: &scans, policy: *policy, choices, two_level };
        match distribute_sampled(&request.plan, asked, catalog) {
            Ok(distributed) => self.report(distributed),
            Err(error) => {
                tracing::error!(reason = %error, "query runs on one rank: its plan was not distributed");
                self.on_first(format!("its plan was not distributed: {}", error.message))
            }
        }
    }

    /// The costs for the measured link, if there is one: the link between hosts, if there are
    /// several. On one host a measured link counts only if it is slow: the defaults assume a fast
    /// one.
    fn with_link(&self, costs: &ExchangeCosts) -> ExchangeCosts {
        let connected = self.ranks.connected();
        let link = connected.as_ref().map(|connected| connected.network.link());
        if costs.hosts > 1 {
            let measured = link.and_then(|link| link.bytes_per_s());
            let host_link_bytes_per_s = measured.unwrap_or(costs.host_link_bytes_per_s);
            return ExchangeCosts { host_link_bytes_per_s, ..*costs };
        }
        let slow = link.filter(|link| link.is_slow()).and_then(|link| link.bytes_per_s());
        ExchangeCosts { link_bytes_per_s: slow.unwrap_or(costs.link_bytes_per_s), ..*costs }
    }

    fn report(&self, distributed: Distributed) -> RanksReport {
        let Distributed { plan, one_rank, exchanges, one_rank_s, all_ranks_s, .. } = distributed;
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

    /// Rank 0 alone; its time is not estimated.
    fn on_first(&self, reason: String) -> RanksReport {
        RanksReport {
            rank_count: self.ranks.rank_count() as u32,
            choice: RankChoice::First { reason },
            one_rank_us: 0,
            all_ranks_us: None,
            actual_rows: Vec::new(),
        }
    }
}

/// The plan for all ranks. If it needs common values of columns and has none, they are counted in
/// the files. Blocks.
///
/// # Errors
///
/// Errors of [`distribute`].
fn distribute_sampled(
    plan: &Plan,
    request: DistributeRequest<'_>,
    catalog: &FileCatalog,
) -> Result<Distributed> {
    let distributed = distribute(plan, request)?;
    let mut is_any_known = false;
    let mut values_of = |files: &FileSet, column: &ScanColumn| {
        let started = Instant::now();
        // The rank that scans the files reports their errors.
        let values = sampled_values(catalog, files, column).unwrap_or_default();
        let elapsed_us = started.elapsed().as_micros() as u64;
        tracing::debug!(
            column = column.name,
            common = values.len(),
            elapsed_us,
            "rows of a key were counted"
        );
        is_any_known |= !values.is_empty();
        values
    };
    let root = with_common_values(&plan.root, &distributed.unknown_keys, &mut values_of);
    match is_any_known {
        true => distribute(&Plan { root, outputs: plan.outputs.clone() }, request),
        false => Ok(distributed),
    }
}

/// The files that the scans of a plan read, from left to right. Blocks.
fn scan_figures(request: &QueryRequest, catalog: &FileCatalog) -> Result<Vec<ScanFigures>> {
    let ranged = range_columns(&request.plan.root);
    let figures = |scan: &Operator| match scan {
        Operator::Scan { table, files, columns, filters, .. } => {
            let (size, ranges) =
                scan_ranges(catalog, (table, files), columns, filters, &request.parameters, &ranged)?;
            Ok(ScanFigures { row_count: size.row_count, encoded_bytes: size.compressed_bytes, ranges })
        }
        _ => Ok(ScanFigures::default()),
    };
    request.plan.root.scans().into_iter().map(figures).collect()
}
