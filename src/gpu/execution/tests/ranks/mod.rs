//! Queries on several emulated ranks have the results of one rank.
//!
//! - `plans.rs`: plans made by hand, one for each way rows change ranks
//! - `heavy.rs`: keys that most rows have
//! - `random.rs`: plans at random, with costs at random
//! - `assignment.rs`: which rows of a table ranks have, and keep
//! - `views.rs`: views of all ranks
//! - `techniques.rs`: exchanges without each optional technique
//! - `levels.rs`: exchanges that are made of two, on several hosts
//! - `failures.rs`: ranks that fail, are stopped or slow, and rows that are no longer wanted

mod assignment;
mod failures;
mod heavy;
mod levels;
mod plans;
mod random;
mod techniques;
mod views;

use std::time::Duration;

use pystachio_files::FileCatalog;
use pystachio_plan::{
    AggregatePhase, ExchangeCosts, JoinKey, JoinSide, NamedExpression, RankChoice, RankPolicy, SortKey,
};

use super::*;
use crate::{
    exchange::{Communicator, NetworkOptions},
    execution::{RankedEngine, RankedOptions, ranks::ranks_over, ranks_of_one_process},
};

/// No query takes as long, even on a busy machine.
const QUERY_TIME_MAX: Duration = Duration::from_secs(600);

/// Ranks on emulated devices, with their folder for spill files.
struct RankedFixture {
    engine: RankedEngine,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

/// How ranks are made.
#[derive(Clone, Copy)]
struct RankShape {
    rank_count: usize,
    /// Their hosts.
    host_count: usize,
    /// Memory of each.
    memory_bytes: u64,
    /// In which order devices work; without one, as the environment says.
    seed: Option<u64>,
    /// Cache of each, for column chunks.
    cache_bytes: u64,
    options: RankedOptions,
}

/// All queries on all ranks, every table distributed.
fn on_all() -> RankedOptions {
    let costs = ExchangeCosts { whole_scan_bytes_max: 0, ..ExchangeCosts::default() };
    RankedOptions { policy: RankPolicy::All, costs }
}

/// Costs by which both sides of a join of many rows are shuffled: building takes three times as long as packing a key, and each row's work
/// far longer than moving it, so that a broadcast pays up to an eighth, or a quarter, of the other side's bytes.
fn shuffling_costs() -> ExchangeCosts {
    let costs = ExchangeCosts { whole_scan_bytes_max: 0, ..ExchangeCosts::default() };
    let costs = ExchangeCosts { exchange_s: 0.0, message_s: 0.0, host_message_s: 0.0, ..costs };
    ExchangeCosts {
        build_row_s: 3.0 * 8.0 / costs.pack_bytes_per_s,
        probe_row_s: 1.5e-10,
        group_row_s: 3e-10,
        output_row_s: 5e-11,
        ..costs
    }
}

impl RankShape {
    fn new(rank_count: usize) -> Self {
        let memory_bytes = PLENTY_BYTES / 4;
        Self { rank_count, host_count: 1, memory_bytes, seed: None, cache_bytes: 0, options: on_all() }
    }
}

impl RankedFixture {
    fn new(shape: RankShape) -> Self {
        let platform = |number: usize| {
            let platform = match shape.seed {
                None => EmulatedPlatform::new(),
                Some(seed) => EmulatedPlatform::with_seed(seed.wrapping_mul(1000) + number as u64),
            };
            Arc::new(platform) as Arc<dyn Platform>
        };
        Self::over((0..shape.rank_count).map(platform).collect(), shape)
    }

    fn over(platforms: Vec<Arc<dyn Platform>>, shape: RankShape) -> Self {
        // So that ranks of few queries are soon gone.
        let idle_interval = Duration::from_millis(5);
        let silence_max = QUERY_TIME_MAX;
        let host_count = shape.host_count;
        let network = NetworkOptions { host_count, idle_interval, silence_max, ..NetworkOptions::default() };
        Self::with(shape, |options, ranked| {
            let catalog = Arc::new(FileCatalog::default().with_ranks(shape.rank_count));
            ranks_over(platforms, (options, &catalog, ranked), network, |communicator| communicator).unwrap()
        })
    }

    /// As a host makes them.
    fn as_hosted(shape: RankShape) -> Self {
        let platform = |_| Arc::new(EmulatedPlatform::new()) as Arc<dyn Platform>;
        let platforms = (0..shape.rank_count).map(platform).collect();
        Self::with(shape, |options, ranked| {
            ranks_of_one_process(platforms, options, &Arc::default(), ranked).unwrap()
        })
    }

    /// Ranks on devices that work at once, over a network of these options, each of whose ends is prepared.
    fn over_network(
        shape: RankShape,
        network: NetworkOptions,
        prepare: impl Fn(Box<dyn Communicator>) -> Box<dyn Communicator>,
    ) -> Self {
        let platform = |_| Arc::new(EmulatedPlatform::at_once()) as Arc<dyn Platform>;
        let platforms = (0..shape.rank_count).map(platform).collect();
        Self::with(shape, |options, ranked| {
            ranks_over(platforms, (options, &Arc::default(), ranked), network, prepare).unwrap()
        })
    }

    fn with(shape: RankShape, make: impl FnOnce(&DeviceOptions, RankedOptions) -> RankedEngine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = DeviceOptions {
            cache_bytes: shape.cache_bytes,
            pinned_cache_bytes: 0,
            memory_bytes: shape.memory_bytes,
            host_bytes: shape.memory_bytes,
            spill: Spilling::to(folder.path()),
            affinity: Affinity::default(),
        };
        let engine = make(&options, shape.options);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        Self { engine, runtime, _folder: folder }
    }

    fn run(&self, plan: Plan) -> Result<Answer> {
        self.run_until(plan, StopFlag::default())
    }

    fn run_until(&self, plan: Plan, stop: StopFlag) -> Result<Answer> {
        self.answer_idle(request(plan), stop)
    }

    fn run_request(&self, request: QueryRequest) -> Result<Answer> {
        self.answer_idle(request, StopFlag::default())
    }

    fn answer_idle(&self, request: QueryRequest, stop: StopFlag) -> Result<Answer> {
        let answer = self.answer(request, stop);
        self.wait_idle();
        answer
    }

    /// # Panics
    ///
    /// If it takes too long.
    fn answer(&self, request: QueryRequest, stop: StopFlag) -> Result<Answer> {
        self.runtime.block_on(async {
            let run = async {
                let mut stream = self.engine.run(request, stop).await?;
                let mut rows = Vec::new();
                while let Some(batch) = stream.next_batch().await? {
                    rows.extend(batch_rows(&batch));
                }
                Ok(Answer { rows, metrics: stream.metrics() })
            };
            tokio::time::timeout(QUERY_TIME_MAX, run).await.expect("it takes too long")
        })
    }

    /// Waits for rank 0's threads of answered queries. They leave no state behind.
    fn wait_idle(&self) {
        while self.engine.first().query_counts().1 > 0 {
            std::thread::yield_now();
        }
        let first = self.engine.first();
        assert_eq!(first.memory().used_bytes(), first.cache_bytes().0, "device memory is left over");
    }
}

/// Whether rows have changed ranks.
fn is_distributed(answer: &Answer) -> bool {
    let exchanges = ["Shuffle", "Broadcast", "Gather", "Merge", "Own"];
    let descriptions = answer.metrics.operators.iter().map(|operator| &operator.description);
    descriptions.into_iter().any(|text| exchanges.iter().any(|exchange| text.starts_with(exchange)))
}

/// Whether a table was distributed by ranges of a column.
fn has_ranges(answer: &Answer) -> bool {
    let report = answer.metrics.ranks.as_ref().expect("a query on several ranks reports them");
    let RankChoice::All { plan, .. } = &report.choice else { return false };
    let scans = plan.root.scans();
    scans.into_iter().any(|scan| matches!(scan, Operator::Scan { extent: ScanExtent::Range { .. }, .. }))
}

fn joined(
    kind: JoinKind,
    sides: [Arc<Relation>; 2],
    keys: &[(Expression, Expression)],
    build: JoinSide,
) -> Arc<Relation> {
    let [left, right] = sides;
    let key = |(left, right): &(Expression, Expression)| JoinKey { left: left.clone(), right: right.clone() };
    let rows = left.estimate.rows.max(right.estimate.rows);
    let keys = keys.iter().map(key).collect();
    Relation::new(Operator::Join { kind, left, right, keys, residual: None, build }, rows)
}

fn aggregated(
    input: Arc<Relation>,
    groups: &[(u32, Expression)],
    aggregates: Vec<AggregateCall>,
    rows: f64,
) -> Arc<Relation> {
    let named = |(id, expression): &(u32, Expression)| NamedExpression {
        id: ColumnId(*id),
        expression: expression.clone(),
    };
    let groups = groups.iter().map(named).collect();
    Relation::new(Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole }, rows)
}

fn sorted_by(input: Arc<Relation>, keys: &[(Expression, bool)]) -> Arc<Relation> {
    let key = |(expression, descending): &(Expression, bool)| SortKey {
        expression: expression.clone(),
        descending: *descending,
        nulls_first: *descending,
    };
    let rows = input.estimate.rows;
    Relation::new(Operator::Sort { input, keys: keys.iter().map(key).collect() }, rows)
}

fn limited(input: Arc<Relation>, offset: i64, count: i64) -> Arc<Relation> {
    let number = |value| Some(Expression::literal(pystachio_plan::Value::Int(value), DataType::Int64));
    let rows = input.estimate.rows.min(count as f64);
    Relation::new(Operator::Limit { input, offset: number(offset), count: number(count) }, rows)
}
