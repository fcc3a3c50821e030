//! Rank 0's rows, and the query's outcome on the other ranks.

use std::{sync::Arc, time::Duration};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_engine::{ResultStream, StopFlag};
use pystachio_plan::{
    ActualRows, Error, ErrorKind, OperatorMetrics, QueryMetrics, QueryRequest, RanksReport, Result,
};
use tokio::task::JoinHandle;

use super::peer::RankPeer;
use crate::{
    exchange::{QueryId, Rank},
    execution::{BegunOnFirst, never_begun},
};

/// The way out of a query that another rank has failed, where that rank has not said why.
const UNKNOWN_REASON_HINT: &str = "Run the query again. Look into the server log for the reason.";

/// How long rank 0 waits for the other ranks' outcome when it has ended: a round has told them that
/// the query is over, and they end their current work.
const OUTCOME_WAIT_MAX: Duration = Duration::from_secs(10);

/// A query that runs on other ranks. Dropping it stops it on all of them.
pub(super) struct PeerRuns {
    runs: Vec<(Rank, JoinHandle<Result<QueryMetrics>>)>,
    /// Stops the query on all ranks.
    stop: StopFlag,
}

impl Drop for PeerRuns {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl PeerRuns {
    /// Has other ranks prepare a query, which begins there when it has begun on rank 0. If other
    /// queries wait for admission there already, it is prepared only after its admission: this
    /// bounds the prepared queries without memory.
    pub(super) fn start(
        peers: &[Arc<dyn RankPeer>],
        query: QueryId,
        request: &QueryRequest,
        stop: StopFlag,
        (first, is_turn_awaited): (&BegunOnFirst, bool),
    ) -> Self {
        let run = |peer: &Arc<dyn RankPeer>| {
            let (peer, request, stop) = (peer.clone(), request.clone(), stop.clone());
            let (rank, mut first) = (peer.rank(), first.clone());
            let run = tokio::spawn(async move {
                if is_turn_awaited && first.wait_for(Option::is_some).await.is_err() {
                    return Err(never_begun());
                }
                let outcome = peer.run(query, request, first, stop.clone()).await;
                // The network does not tell the other ranks of this.
                if outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::Unavailable) {
                    stop.stop();
                }
                outcome
            });
            (rank, run)
        };
        Self { runs: peers.iter().map(run).collect(), stop }
    }

    /// The outcome on each rank, as far as it arrives soon.
    async fn outcomes(&mut self) -> Vec<(Rank, Result<QueryMetrics>)> {
        let mut outcomes = Vec::with_capacity(self.runs.len());
        let deadline = tokio::time::Instant::now() + OUTCOME_WAIT_MAX;
        for (rank, run) in std::mem::take(&mut self.runs) {
            let outcome = match tokio::time::timeout_at(deadline, run).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(error)) => Err(Error::internal(format!("its part of the query panicked: {error}"))),
                Err(_) => Err(Error::new(ErrorKind::Peer, format!("rank {rank} has not ended the query"))),
            };
            outcomes.push((rank, outcome));
        }
        outcomes
    }

    /// The query's error if rank 0 fails so: that one, unless another rank's failure is the reason.
    pub(super) async fn reason_of(&mut self, error: Error) -> Error {
        if !is_of_others(error.kind) {
            return error;
        }
        self.stop.stop();
        let failed = |(rank, outcome): (Rank, Result<QueryMetrics>)| Some((rank, outcome.err()?));
        let mut failures = self.outcomes().await.into_iter().filter_map(failed);
        let own = failures.find(|(_, error)| !is_of_others(error.kind));
        match own {
            Some((rank, error)) => named(rank, error),
            None if error.kind == ErrorKind::Peer && error.hint.is_none() => {
                error.with_hint(UNKNOWN_REASON_HINT)
            }
            None => error,
        }
    }
}

/// Whether a rank's failure only says that it was told to end.
fn is_of_others(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Peer | ErrorKind::Cancelled)
}

/// Another rank's error. Faults in values or files are the same on every rank, and are reported as
/// one rank would.
fn named(rank: Rank, error: Error) -> Error {
    let is_of_rank = matches!(
        error.kind,
        ErrorKind::FileNotFound
            | ErrorKind::FilePermission
            | ErrorKind::FileAccess
            | ErrorKind::NotSupported
            | ErrorKind::OutOfMemory
            | ErrorKind::Protocol
            | ErrorKind::Internal
    );
    match is_of_rank {
        // The message names the rank: that rank can't be reached or has lost its device, not this
        // one.
        _ if error.kind == ErrorKind::Unavailable => {
            Error { kind: ErrorKind::Peer, message: format!("rank {rank} {}", error.message), ..error }
        }
        _ if error.kind == ErrorKind::Device => {
            Error { kind: ErrorKind::Peer, message: format!("rank {rank}: {}", error.message), ..error }
        }
        true => Error { message: format!("rank {rank}: {}", error.message), ..error },
        false => error,
    }
}

/// Rank 0's batches for a query of a server with several ranks.
pub(super) struct RankedStream {
    pub(super) stream: Box<dyn ResultStream>,
    /// The other ranks, if they have a part in it.
    pub(super) peers: Option<PeerRuns>,
    /// The plan and the ranks that ran, if the query reports them.
    pub(super) report: Option<RanksReport>,
    /// The other ranks' counts, after the last batch.
    pub(super) counted: Vec<QueryMetrics>,
}

#[async_trait]
impl ResultStream for RankedStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.stream.next_batch().await {
            Ok(Some(batch)) => Ok(Some(batch)),
            Ok(None) => {
                // Rank 0 has all rows: an error of another rank changes nothing.
                if let Some(peers) = &mut self.peers {
                    let ended = peers.outcomes().await;
                    self.counted.extend(ended.into_iter().filter_map(|(_, outcome)| outcome.ok()));
                }
                Ok(None)
            }
            Err(error) => Err(match &mut self.peers {
                Some(peers) => peers.reason_of(error).await,
                None => error,
            }),
        }
    }

    fn metrics(&self) -> QueryMetrics {
        let mut sum = self.stream.metrics();
        self.counted.iter().for_each(|counted| add_rank(&mut sum, counted));
        let mut report = self.report.clone();
        if self.peers.is_some() {
            // The plan that ran has other operators than the requested one.
            let actual_rows = std::mem::take(&mut sum.actual_rows);
            if let Some(report) = &mut report {
                report.actual_rows = actual_rows;
            }
        }
        QueryMetrics { ranks: report, ..sum }
    }
}

/// Adds another rank's counts. Counts that every rank takes from the same footers are added once.
fn add_rank(sum: &mut QueryMetrics, rank: &QueryMetrics) {
    sum.bytes_read += rank.bytes_read;
    sum.bytes_expected += rank.bytes_expected;
    sum.cache_hits += rank.cache_hits;
    sum.cache_misses += rank.cache_misses;
    sum.spilled_bytes += rank.spilled_bytes;
    sum.temp_file_bytes += rank.temp_file_bytes;
    sum.memory_peak_bytes = sum.memory_peak_bytes.max(rank.memory_peak_bytes);
    rank.storage_paths.iter().for_each(|path| sum.add_storage_path(*path));
    for (sum, rank) in sum.operators.iter_mut().zip(&rank.operators) {
        add_operator(sum, rank);
    }
    sum.exchanges.extend_from_slice(&rank.exchanges);
    for (sum, rank) in sum.actual_rows.iter_mut().zip(&rank.actual_rows) {
        *sum = sum.zip(*rank).map(|(sum, rank)| ActualRows {
            row_count: sum.row_count + rank.row_count,
            is_reduced: sum.is_reduced || rank.is_reduced,
        });
    }
}

/// Rows and counts of all ranks together, and the time of the slowest.
fn add_operator(sum: &mut OperatorMetrics, rank: &OperatorMetrics) {
    if let Some(row_count) = rank.row_count {
        *sum.row_count.get_or_insert(0) += row_count;
    }
    sum.elapsed_us = sum.elapsed_us.max(rank.elapsed_us);
    rank.counters.iter().for_each(|(name, count)| sum.count(name, *count));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_values_is_told_as_one_rank_would() {
        let value = Error::new(ErrorKind::DivisionByZero, "division by zero");
        assert_eq!(named(Rank(2), value.clone()), value);
        let memory = named(Rank(2), Error::new(ErrorKind::OutOfMemory, "no room"));
        assert_eq!((memory.kind, memory.message.as_str()), (ErrorKind::OutOfMemory, "rank 2: no room"));
        let lost = named(Rank(2), Error::new(ErrorKind::Unavailable, "was killed"));
        assert_eq!((lost.kind, lost.message.as_str()), (ErrorKind::Peer, "rank 2 was killed"));
    }

    #[test]
    fn rows_of_all_ranks_are_added_and_the_slowest_is_waited_for() {
        let operator = |rows, elapsed| OperatorMetrics {
            row_count: Some(rows),
            elapsed_us: Some(elapsed),
            ..OperatorMetrics::default()
        };
        let rank = |rows, elapsed| QueryMetrics {
            bytes_read: 10,
            row_groups_total: 4,
            operators: vec![operator(rows, elapsed)],
            ..QueryMetrics::default()
        };
        let mut sum = rank(3, 7);
        add_rank(&mut sum, &rank(4, 5));
        assert_eq!((sum.bytes_read, sum.row_groups_total), (20, 4));
        assert_eq!(sum.operators, [operator(7, 7)]);
    }
}
