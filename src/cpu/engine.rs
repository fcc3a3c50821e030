//! The CPU engine, as its host starts it.
//!
//! Memory: queries reserve from one pool of the option `memory`. Operators that can spill (sorts,
//! aggregates, exchanges) share evenly what the others leave, and write to the spill directory beyond
//! that: first come, first served would let one partition of a sort starve the other. A join that is
//! refused ends its query, which runs again when it is alone (`stream.rs`), and then ends with an error. How many run at once
//! is `places.rs`'s to say. What scans decode is reserved there too, and stays so while the
//! column cache keeps it: the cache is part of `memory`, has a budget within it, and gives way to queries.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::datafusion::{
    config::{ConfigNonZeroUsize, ConfigOptions},
    error::Result as DataFusionResult,
    execution::{
        TaskContext, TempFileFactory,
        disk_manager::DiskManagerBuilder,
        memory_pool::{MemoryConsumer, MemoryPool},
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
    physical_plan::ExecutionPlan,
    prelude::SessionConfig,
};
use async_trait::async_trait;
use pystachio_engine::{
    Engine, ResultStream, StopFlag, WriteProgress,
    storage::{FileCatalog, QueryFiles, ScanSize, describe, identify, scan_size},
};
use pystachio_plan::{
    CacheEntry, EngineStatus, Error, ErrorKind, FileSet, GenerateRequest, Operator, OptimizeRequest,
    OptimizedColumn, QueryMetrics, QueryRequest, Result, SampleRequest, TableDescription,
};
use tokio::runtime::Handle;

use crate::{
    admission::Admission,
    cache::ColumnCache,
    error::from_datafusion,
    generate,
    lowering::Lowering,
    metrics::{self, MeasuredPlan, QueryPool},
    optimize::{OptimizeMeans, optimize},
    places::{EngineMemory, Places},
    pool::{EnginePool, SCAN_CONSUMER},
    sample,
    scan::{self, BATCH_ROWS, ScanContext},
    spill::{EXCHANGE_FILE_BYTES_MAX, OperatorFiles},
    stream::{Prepare, QueryStream, RunningQuery, micros, run_blocking},
};

/// Memory for each spilled run of a sort that is merged with others: two batches of wide rows, and as much
/// for what takes the merged rows, which must not be starved.
const SORT_RUN_BYTES: usize = 8 << 20;
/// Spilled runs that one merge reads at most; more are merged in steps.
const SORT_RUNS_MAX: usize = 64;
/// DataFusion's own choice for a sort's merge.
const SORT_MERGE_BYTES_MAX: usize = 10 << 20;

/// What a server's options come to.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Threads that compute: partitions of every operator.
    pub threads: usize,
    /// Memory for running queries and for the column cache.
    pub memory_bytes: u64,
    /// The part of it for decoded columns; 0 turns the column cache off.
    pub cache_bytes: u64,
    /// Where operators that outgrow their memory write; made if absent.
    pub spill_directory: PathBuf,
}

/// The CPU engine.
pub struct CpuEngine {
    options: CpuOptions,
    catalog: Arc<FileCatalog>,
    cache: Arc<ColumnCache>,
    runtime: Handle,
    environment: Arc<RuntimeEnv>,
    /// Where queries write what they have no memory for.
    files: Arc<dyn TempFileFactory>,
    session: SessionConfig,
    counters: Arc<QueryCounters>,
    places: Arc<Places>,
}

#[derive(Debug, Default)]
struct QueryCounters {
    run: AtomicU64,
    running: AtomicU64,
}

impl CpuEngine {
    /// An engine with empty caches. Queries run on the tokio runtime in which this is called; the
    /// engine's methods may be called on any.
    ///
    /// # Errors
    ///
    /// `FileAccess` and `FilePermission` if the spill directory can't be made, `Unavailable` outside of a
    /// runtime.
    pub fn new(options: CpuOptions) -> Result<Self> {
        let spill = OperatorFiles::create(&options.spill_directory)?;
        Self::with_spill_files(options, Arc::new(spill))
    }

    /// An engine that spills to files of `spill`.
    pub(crate) fn with_spill_files(options: CpuOptions, spill: Arc<dyn TempFileFactory>) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::new(ErrorKind::Unavailable, "the engine needs a tokio runtime"))?;
        let memory_bytes = usize::try_from(options.memory_bytes).unwrap_or(usize::MAX);
        let merge_fan_in = (memory_bytes / (options.threads.max(1) * SORT_RUN_BYTES)).clamp(2, SORT_RUNS_MAX);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(EnginePool::new(memory_bytes)))
            .with_disk_manager_builder(
                DiskManagerBuilder::default()
                    .with_temp_file_factory(spill.clone())
                    .with_max_spill_merge_fan_in(merge_fan_in),
            )
            .build_arc()
            .map_err(|error| from_datafusion(&error))?;
        let cache_bytes_max = usize::try_from(options.cache_bytes).unwrap_or(usize::MAX);
        let cache = Arc::new(ColumnCache::new(cache_bytes_max));
        let settings = settings(&options).map_err(|error| from_datafusion(&error))?;
        let session = SessionConfig::from(settings).with_batch_size(BATCH_ROWS);
        let memory = EngineMemory {
            bytes_max: options.memory_bytes,
            free_bytes: Box::new({
                let (bytes_max, pool, cache) =
                    (options.memory_bytes, environment.memory_pool.clone(), cache.clone());
                move || bytes_max.saturating_sub(used_by_queries(pool.as_ref(), &cache))
            }),
        };
        Ok(Self {
            options,
            catalog: Arc::default(),
            cache,
            runtime,
            environment,
            files: spill,
            session,
            counters: Arc::default(),
            places: Places::new(memory),
        })
    }

    /// The footers that it has read.
    pub fn catalog(&self) -> &Arc<FileCatalog> {
        &self.catalog
    }

    /// A place for as long as this is held.
    #[cfg(test)]
    pub(crate) async fn take_place(&self) -> Option<crate::places::Place> {
        self.places.take(&StopFlag::default()).await.ok()
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.options.threads.max(1)
    }

    /// How much each scan of a plan has to read, from the first in the plan's text to the last.
    ///
    /// # Errors
    ///
    /// Those of the files.
    pub async fn scan_sizes(&self, request: &QueryRequest) -> Result<Vec<ScanSize>> {
        let (catalog, root) = (self.catalog.clone(), request.plan.root.clone());
        let parameters = request.parameters.clone();
        self.run_blocking(move || {
            let size = |scan: &Operator| match scan {
                Operator::Scan { files, columns, filters, .. } => {
                    scan_size(&catalog, files, columns, filters, &parameters)
                }
                _ => Ok(ScanSize::default()),
            };
            root.scans().into_iter().map(size).collect()
        })
        .await
    }

    /// What the scans of a query share.
    fn scan_context(&self, request: &QueryRequest) -> ScanContext {
        ScanContext {
            files: QueryFiles::new(self.catalog.clone(), request.planned_files.clone()),
            cache: self.cache.clone(),
            threads: self.threads(),
        }
    }

    /// What makes the query; it may be made more than once.
    fn prepare(&self, request: QueryRequest, stop: StopFlag) -> Prepare {
        let started = Instant::now();
        let (scans, session) =
            (self.scan_context(&request), self.session.clone().with_extension(Arc::new(stop.clone())));
        let (environment, cache, files) = (self.environment.clone(), self.cache.clone(), self.files.clone());
        let guard = Arc::new(RunningGuard::new(self.counters.clone()));
        Arc::new(move || {
            let preparing = Instant::now();
            let plan = lower(&request, &scans, &session, &stop)?;
            let columns = request.plan.root.columns();
            let output_types = request
                .plan
                .outputs
                .iter()
                .filter_map(|id| columns.iter().find(|(column, _)| column == id))
                .map(|(_, data_type)| data_type.clone())
                .collect();
            let pool = Arc::new(QueryPool::new(environment.memory_pool.clone(), cache.clone(), stop.clone()));
            let environment = RuntimeEnv {
                memory_pool: pool.clone() as Arc<dyn MemoryPool>,
                disk_manager: environment.disk_manager.clone(),
                cache_manager: environment.cache_manager.clone(),
                object_store_registry: environment.object_store_registry.clone(),
            };
            let context = TaskContext::default()
                .with_session_config(session.clone())
                .with_runtime(Arc::new(environment));
            let counted = request.with_metrics.then(|| request.plan.root.clone());
            Ok(RunningQuery {
                plan_schema: plan.schema(),
                plan: Arc::new(MeasuredPlan::new(plan, counted)),
                context: Arc::new(context),
                pool,
                output_types,
                batch_rows_max: (request.batch_rows_max as usize).max(1),
                files: files.clone(),
                started,
                stop: stop.clone(),
                prepare_us: micros(preparing),
                _guard: guard.clone(),
            })
        })
    }
}

/// What is reserved but for the column cache, which gives way.
fn used_by_queries(pool: &dyn MemoryPool, cache: &ColumnCache) -> u64 {
    pool.reserved().saturating_sub(cache.used_bytes()) as u64
}

fn lower(
    request: &QueryRequest,
    scans: &ScanContext,
    session: &SessionConfig,
    stop: &StopFlag,
) -> Result<Arc<dyn ExecutionPlan>> {
    let lowering = Lowering {
        parameters: &request.parameters,
        scans,
        config: session.options(),
        stop,
        next_column: std::cell::Cell::new(u32::MAX),
    };
    lowering.lower_plan(&request.plan)
}

/// DataFusion's settings, where they are not its defaults.
fn settings(options: &CpuOptions) -> DataFusionResult<ConfigOptions> {
    let mut config = ConfigOptions::new();
    config.execution.target_partitions = options.threads.max(1);
    // What each partition of a sort sets aside for merging what it spilled.
    let merge_bytes =
        usize::try_from(options.memory_bytes).unwrap_or(usize::MAX) / (8 * options.threads.max(1));
    config.execution.sort_spill_reservation_bytes = merge_bytes.min(SORT_MERGE_BYTES_MAX);
    config.execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(EXCHANGE_FILE_BYTES_MAX)?;
    config.execution.collect_statistics = true;
    config.optimizer.enable_join_dynamic_filter_pushdown = true;
    config.optimizer.enable_topk_dynamic_filter_pushdown = true;
    Ok(config)
}

#[async_trait]
impl Engine for CpuEngine {
    async fn describe(&self, files: &FileSet) -> Result<TableDescription> {
        let (catalog, files) = (self.catalog.clone(), files.clone());
        self.run_blocking(move || describe(&catalog, &files)).await
    }

    async fn identify(&self, files: &FileSet) -> Result<u64> {
        let files = files.clone();
        self.run_blocking(move || identify(&files)).await
    }

    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let place = self.places.take(&stop).await?;
        let prepare = self.prepare(request, stop);
        let first = prepare.clone();
        let query = self.run_blocking(move || first()).await?;
        Ok(Box::new(QueryStream::start(query, place, prepare, &self.runtime)))
    }

    async fn preview(&self, request: QueryRequest) -> Result<QueryMetrics> {
        let (scans, session) = (self.scan_context(&request), self.session.clone());
        self.run_blocking(move || {
            let plan = lower(&request, &scans, &session, &StopFlag::default())?;
            scan::preview(&plan);
            let mut metrics = QueryMetrics::default();
            metrics::collect(&plan, false, &mut metrics);
            Ok(metrics)
        })
        .await
    }

    async fn sample(&self, request: SampleRequest) -> Result<Box<dyn ResultStream>> {
        let (catalog, threads) = (self.catalog.clone(), self.threads());
        let pool: Arc<dyn MemoryPool> = Arc::new(self.query_pool(StopFlag::default()));
        let memory = MemoryConsumer::new(SCAN_CONSUMER).register(&pool);
        self.run_blocking(move || sample::sample(&catalog, &request, threads, memory)).await
    }

    async fn generate(
        &self,
        request: GenerateRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>> {
        generate::generate(request, self.options.threads, self.admission(), progress).await
    }

    async fn optimize(
        &self,
        request: OptimizeRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<OptimizedColumn>> {
        let (catalog, threads) = (self.catalog.clone(), self.threads());
        optimize(request, OptimizeMeans { catalog, threads, admission: self.admission() }, progress).await
    }

    fn cache(&self) -> Vec<CacheEntry> {
        self.cache.entries()
    }

    fn status(&self) -> EngineStatus {
        let cache_used_bytes = self.cache.used_bytes();
        EngineStatus {
            engine_pid: std::process::id(),
            device: "cpu".to_owned(),
            queries_run: self.counters.run.load(Ordering::Relaxed),
            queries_running: self.counters.running.load(Ordering::Relaxed),
            queries_waiting: self.places.waiting_count() as u64,
            memory_used_bytes: used_by_queries(self.environment.memory_pool.as_ref(), &self.cache),
            memory_max_bytes: self.options.memory_bytes,
            cache_used_bytes: cache_used_bytes as u64,
            cache_max_bytes: self.cache.bytes_max() as u64,
            ..EngineStatus::default()
        }
    }
}

impl CpuEngine {
    /// Memory for a run that writes files: of the engine's pool, to which the column cache gives way.
    fn admission(&self) -> Admission {
        Admission::new(Arc::new(self.query_pool(StopFlag::default())))
    }

    /// The engine's pool, to which the column cache gives way.
    fn query_pool(&self, stop: StopFlag) -> QueryPool {
        QueryPool::new(self.environment.memory_pool.clone(), self.cache.clone(), stop)
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run_blocking(&self.runtime, work).await
    }
}

/// Counts a query as running for as long as it lives.
struct RunningGuard {
    counters: Arc<QueryCounters>,
}

impl RunningGuard {
    fn new(counters: Arc<QueryCounters>) -> Self {
        counters.running.fetch_add(1, Ordering::Relaxed);
        Self { counters }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.counters.running.fetch_sub(1, Ordering::Relaxed);
        self.counters.run.fetch_add(1, Ordering::Relaxed);
    }
}
