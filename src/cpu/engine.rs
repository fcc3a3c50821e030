//! The CPU engine, as its host starts it.
//!
//! Memory: queries reserve from one pool of the option `memory`. Operators that can spill (sorts,
//! aggregates, exchanges) share evenly what the others leave, and write to the spill directory beyond
//! that: first come, first served would let one partition of a sort starve the other. A join that is
//! refused ends its query, which runs again when it is alone (`stream.rs`), with operators that spill if need be. How many run at once
//! is `places.rs`'s to say. What scans decode is reserved there too, and stays so while the
//! column cache keeps it: the cache is part of `memory`, has a budget within it, and gives way to queries. So are the footers
//! that are kept (`FileCatalog`).

use std::{
    collections::HashMap,
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
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryPool},
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
    prelude::SessionConfig,
};
use async_trait::async_trait;
use pystachio_engine::{
    Engine, GivenPart, QueryPlace, ResultStream, RowWriter, StopFlag, WriteProgress, spill::Spilling,
};
use pystachio_files::{
    FieldPlace, FileCatalog, FileIdentity, HeldRowGroups, ScanSize, describe, identify, scan_size,
    writing::{Admission, OptimizeMeans, RowMeans, begin_write, generate, optimize, sort_places},
};
use pystachio_plan::{
    CacheEntry, CatalogView, DescribeExtent, EngineStatus, Error, ErrorKind, FileSet, GenerateRequest,
    Operator, OptimizeRequest, OptimizedColumn, QueryEngine, QueryMetrics, QueryRequest, Result,
    SampleRequest, SpillRequest, StoreAccess, StoreName, TableDescription, WriteRequest,
};
use tokio::runtime::Handle;

use crate::{
    cache::ColumnCache,
    error::from_datafusion,
    lowering::PlanForm,
    metrics::{self, QueryPool},
    places::{EngineMemory, Places},
    pool::{EnginePool, PoolFiles, SCAN_CONSUMER},
    preparation::{Preparation, disk_manager, spilling_session},
    sample,
    scan::{self, BATCH_ROWS},
    sorted_writer::{SortedWriter, WriteOrder},
    spill::{EXCHANGE_FILE_BYTES_MAX, OperatorFiles, SpillFiles},
    stream::{Prepare, QueryStream, guarded, run_blocking},
};

/// DataFusion's own choice for a sort's merge.
const SORT_MERGE_BYTES_MAX: usize = 10 << 20;

/// Scans of a query that is prepared where its request is answered.
const QUICK_SCANS_MAX: usize = 2;
/// Files of each of them.
const QUICK_FILES_MAX: usize = 4;

/// What a server's options come to.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Threads that compute: partitions of every operator.
    pub threads: usize,
    /// Memory for running queries and for the column cache.
    pub memory_bytes: u64,
    /// The part of it for decoded columns; 0 turns the column cache off.
    pub cache_bytes: u64,
    /// How many ranks have files of their own, where tables say that ranks do: all of them are read.
    pub rank_count: usize,
    /// Where operators that outgrow their memory write.
    pub spill: Spilling,
}

/// The CPU engine.
pub struct CpuEngine {
    options: CpuOptions,
    catalog: Arc<FileCatalog>,
    cache: Arc<ColumnCache>,
    runtime: Handle,
    environment: Arc<RuntimeEnv>,
    /// Makes the spill files of a query.
    spill_files: SpillFiles,
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
    /// `Unavailable` outside of a runtime.
    pub fn new(options: CpuOptions) -> Result<Self> {
        Self::with_spill_files(options, |spill| Arc::new(OperatorFiles::new(spill)))
    }

    /// An engine whose queries spill to files that `spill_files` makes.
    pub(crate) fn with_spill_files(options: CpuOptions, spill_files: SpillFiles) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::new(ErrorKind::Unavailable, "the engine needs a tokio runtime"))?;
        let memory_bytes = usize::try_from(options.memory_bytes).unwrap_or(usize::MAX);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(EnginePool::new(memory_bytes)))
            .build_arc()
            .map_err(|error| from_datafusion(&error))?;
        let cache_bytes_max = usize::try_from(options.cache_bytes).unwrap_or(usize::MAX);
        let cache = Arc::new(ColumnCache::new(cache_bytes_max));
        let footers = PoolFiles::footers(&environment.memory_pool, cache.clone());
        let catalog = FileCatalog::new(Arc::new(footers), options.memory_bytes);
        let catalog = Arc::new(catalog.with_ranks(options.rank_count));
        let settings = settings(&options).map_err(|error| from_datafusion(&error))?;
        let session = SessionConfig::from(settings).with_batch_size(BATCH_ROWS);
        let memory = EngineMemory {
            bytes_max: options.memory_bytes,
            free_bytes: Box::new({
                let (bytes_max, pool) = (options.memory_bytes, environment.memory_pool.clone());
                let (cache, catalog) = (cache.clone(), catalog.clone());
                move || bytes_max.saturating_sub(used_by_queries(pool.as_ref(), &cache, &catalog))
            }),
        };
        Ok(Self {
            options,
            catalog,
            cache,
            runtime,
            environment,
            spill_files,
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

    /// Runs a query of which another engine computes some parts.
    ///
    /// # Errors
    ///
    /// Those of [`Engine::run`], and of the parts.
    pub async fn run_above(
        &self,
        request: QueryRequest,
        given: Vec<GivenPart>,
        stop: StopFlag,
    ) -> Result<Box<dyn ResultStream>> {
        self.run_in_form(request, given, stop, PlanForm::Fast).await
    }

    /// How much each scan of a plan has to read, from the first in the plan's text to the last. `device_held` says of how many row
    /// groups of a file a device has the column that begins with a leaf.
    ///
    /// # Errors
    ///
    /// Those of the files.
    pub async fn scan_sizes(
        &self,
        request: &QueryRequest,
        stop: &StopFlag,
        device_held: impl Fn(&FileIdentity, usize) -> usize + Send + 'static,
    ) -> Result<Vec<ScanSize>> {
        let catalog = self.catalog.for_request(&request.access, stop);
        let root = request.plan.root.clone();
        let parameters = request.parameters.clone();
        let cache = self.cache.clone();
        self.run_blocking(move || {
            let held = |file: &FileIdentity, place: FieldPlace, leaf| HeldRowGroups {
                cpu: cache.held(*file, place.column),
                device: device_held(file, leaf),
            };
            let size = |scan: &Operator| match scan {
                Operator::Scan { table, files, columns, filters, .. } => {
                    scan_size(&catalog, (table, files), columns, filters, &parameters, &held)
                }
                _ => Ok(ScanSize::default()),
            };
            root.scans().into_iter().map(size).collect()
        })
        .await
    }

    /// What makes a query, and may do so more than once.
    fn preparation(&self, request: QueryRequest, given: Vec<GivenPart>, stop: StopFlag) -> Preparation {
        let spill = self.options.spill.of_query(&request.spill);
        let address = |part: &GivenPart| Arc::as_ptr(&part.relation) as usize;
        Preparation {
            request,
            given: given.into_iter().map(|part| (address(&part), part)).collect(),
            stop,
            catalog: self.catalog.clone(),
            cache: self.cache.clone(),
            session: self.session.clone(),
            environment: self.environment.clone(),
            spill_files: self.spill_files,
            spill,
            threads: self.threads(),
            memory_bytes: usize::try_from(self.options.memory_bytes).unwrap_or(usize::MAX),
            started: Instant::now(),
        }
    }
}

/// What is reserved but for the column cache and kept footers, which give way.
fn used_by_queries(pool: &dyn MemoryPool, cache: &ColumnCache, catalog: &FileCatalog) -> u64 {
    (pool.reserved().saturating_sub(cache.used_bytes()) as u64).saturating_sub(catalog.kept_bytes())
}

/// Up to this range of whole numbers a join finds its keys, and a scan those that a join wants, by their places in an array of 4 bytes
/// each, however few they are. An array that the processor's caches don't hold would cost as much as a hash table.
const DIRECT_KEYS_MAX: usize = 8 << 20;
/// The part of the memory that such an array of one partition may take, of that which is a partition's.
const DIRECT_KEYS_PART: usize = 64;

/// DataFusion's settings, where they are not its defaults.
fn settings(options: &CpuOptions) -> DataFusionResult<ConfigOptions> {
    let mut config = ConfigOptions::new();
    config.execution.target_partitions = options.threads.max(1);
    let partition_bytes =
        usize::try_from(options.memory_bytes).unwrap_or(usize::MAX) / options.threads.max(1);
    // What each partition of a sort sets aside for merging what it spilled.
    config.execution.sort_spill_reservation_bytes = (partition_bytes / 8).min(SORT_MERGE_BYTES_MAX);
    config.execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(EXCHANGE_FILE_BYTES_MAX)?;
    config.execution.collect_statistics = true;
    config.execution.perfect_hash_join_small_build_threshold =
        (partition_bytes / DIRECT_KEYS_PART / size_of::<u32>()).min(DIRECT_KEYS_MAX);
    config.optimizer.enable_join_dynamic_filter_pushdown = true;
    config.optimizer.enable_topk_dynamic_filter_pushdown = true;
    Ok(config)
}

#[async_trait]
impl Engine for CpuEngine {
    async fn describe(
        &self,
        files: &FileSet,
        extent: DescribeExtent,
        (access, stop): (&StoreAccess, &StopFlag),
    ) -> Result<TableDescription> {
        let (catalog, files) = (self.catalog.for_request(access, stop), files.clone());
        self.run_blocking(move || describe(&catalog, &files, extent)).await
    }

    async fn identify(&self, files: &FileSet, (access, stop): (&StoreAccess, &StopFlag)) -> Result<u64> {
        let (catalog, files) = (self.catalog.for_request(access, stop), files.clone());
        self.run_blocking(move || identify(&catalog, &files)).await
    }

    async fn names(&self, folder: &str, (access, stop): (&StoreAccess, &StopFlag)) -> Result<Vec<StoreName>> {
        let (catalog, folder) = (self.catalog.for_request(access, stop), folder.to_owned());
        self.run_blocking(move || catalog.session()?.names(&folder, 0)).await
    }

    async fn views(
        &self,
        namespace: &[String],
        wants_texts: bool,
        (access, stop): (&StoreAccess, &StopFlag),
    ) -> Result<Vec<CatalogView>> {
        let (catalog, namespace) = (self.catalog.for_request(access, stop), namespace.to_vec());
        self.run_blocking(move || catalog.session()?.catalog_views(&namespace, 0, wants_texts)).await
    }

    async fn remove(
        &self,
        paths: Vec<String>,
        (access, stop): (&StoreAccess, &StopFlag),
    ) -> Result<Vec<(String, Error)>> {
        let catalog = self.catalog.for_request(access, stop);
        self.run_blocking(move || catalog.session()?.remove(&paths)).await
    }

    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        self.run_in_form(request, Vec::new(), stop, PlanForm::Fast).await
    }

    async fn preview(&self, request: QueryRequest, stop: StopFlag) -> Result<QueryMetrics> {
        let preparation = self.preparation(request, Vec::new(), stop);
        self.run_blocking(move || {
            let plan = preparation.lower(PlanForm::Fast)?;
            scan::preview(&plan);
            let mut metrics = QueryMetrics::default();
            metrics::collect(&plan, false, &mut metrics);
            Ok(metrics)
        })
        .await
    }

    async fn sample(&self, request: SampleRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let (catalog, threads) = (self.catalog.for_request(&request.access, &stop), self.threads());
        let pool: Arc<dyn MemoryPool> = Arc::new(self.query_pool(StopFlag::default()));
        let memory = MemoryConsumer::new(SCAN_CONSUMER).register(&pool);
        self.run_blocking(move || sample::sample(&catalog, &request, threads, memory)).await
    }

    async fn generate(
        &self,
        request: GenerateRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>> {
        generate(request, self.options.threads, self.admission(), progress).await
    }

    async fn optimize(
        &self,
        request: OptimizeRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<OptimizedColumn>> {
        let (catalog, threads) = (self.catalog.clone(), self.threads());
        optimize(request, OptimizeMeans { catalog, threads, admission: self.admission() }, progress).await
    }

    async fn begin_write(&self, request: WriteRequest) -> Result<Box<dyn RowWriter>> {
        let means = RowMeans {
            catalog: self.catalog.clone(),
            threads: self.threads(),
            admission: self.admission(),
            spill: self.options.spill.of_query(&request.spill),
        };
        let places = sort_places(&request.columns, &request.form)?;
        if places.is_empty() {
            return begin_write(request, means).await;
        }
        let stop = StopFlag::default();
        let order = WriteOrder::of(&request.columns, places);
        let context = self.sort_context(&request.spill, stop.clone())?;
        let writer = begin_write(request, means).await?;
        Ok(Box::new(SortedWriter::new(writer, order, context, (self.runtime.clone(), stop))))
    }

    async fn cache(&self) -> Vec<CacheEntry> {
        let objects = self.catalog.stores().map(|stores| stores.cache_entries()).unwrap_or_default();
        self.cache.entries().into_iter().chain(objects).collect()
    }

    fn status(&self) -> EngineStatus {
        let cache_used_bytes = self.cache.used_bytes();
        EngineStatus {
            engine_pid: std::process::id(),
            device: "cpu".to_owned(),
            queries_run: self.counters.run.load(Ordering::Relaxed),
            queries_running: self.counters.running.load(Ordering::Relaxed),
            queries_waiting: self.places.waiting_count() as u64,
            memory_used_bytes: used_by_queries(
                self.environment.memory_pool.as_ref(),
                &self.cache,
                &self.catalog,
            ),
            memory_max_bytes: self.options.memory_bytes,
            cache_used_bytes: cache_used_bytes as u64,
            cache_max_bytes: self.cache.bytes_max() as u64,
            ..EngineStatus::default()
        }
    }
}

impl CpuEngine {
    /// Runs a query, first with operators of this form.
    pub(crate) async fn run_in_form(
        &self,
        request: QueryRequest,
        given: Vec<GivenPart>,
        stop: StopFlag,
        form: PlanForm,
    ) -> Result<Box<dyn ResultStream>> {
        stop.begin(QueryPlace { engine: QueryEngine::Cpu, rank_count: 1 });
        let place = self.places.take(&stop).await?;
        let running: Arc<dyn Send + Sync> = Arc::new(RunningGuard::new(self.counters.clone()));
        let is_quick = self.is_quick(&request);
        let preparation = self.preparation(request, given, stop);
        let prepare: Prepare = Arc::new(move |form| preparation.prepare(form, running.clone()));
        let first = prepare.clone();
        let query = match is_quick {
            // Handing it to another thread and back takes longer.
            true => guarded(|| first(form))?,
            false => self.run_blocking(move || first(form)).await?,
        };
        Ok(Box::new(QueryStream::start(query, place, prepare, &self.runtime)))
    }

    /// Whether a query is prepared in some microseconds: it reads few files, whose footers are here.
    fn is_quick(&self, request: &QueryRequest) -> bool {
        let scans = request.plan.root.scans();
        scans.len() <= QUICK_SCANS_MAX
            && scans.into_iter().all(|scan| match scan {
                Operator::Scan { files, .. } => {
                    files.paths.len() <= QUICK_FILES_MAX && self.catalog.has_footers(files)
                }
                _ => false,
            })
    }

    /// Memory for a run that writes files: of the engine's pool, to which the column cache gives way.
    /// What a sort of rows that are written runs with: batches and merges of operators that spill.
    fn sort_context(&self, spill: &SpillRequest, stop: StopFlag) -> Result<Arc<TaskContext>> {
        let spill = self.options.spill.of_query(spill);
        let memory_bytes = usize::try_from(self.options.memory_bytes).unwrap_or(usize::MAX);
        let files = disk_manager((self.spill_files)(spill), PlanForm::Spilling, (memory_bytes, 1))?;
        let environment = RuntimeEnv {
            memory_pool: Arc::new(self.query_pool(stop)),
            disk_manager: Arc::new(files),
            ..RuntimeEnv::clone(&self.environment)
        };
        let session = spilling_session(&self.session, 1);
        let context = TaskContext::new(
            None,
            String::new(),
            session,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            Arc::new(environment),
        );
        Ok(Arc::new(context))
    }

    fn admission(&self) -> Admission {
        let pool: Arc<dyn MemoryPool> = Arc::new(self.query_pool(StopFlag::default()));
        Admission::new(Arc::new(PoolFiles::writer(&pool)))
    }

    /// The engine's pool, to which the column cache gives way.
    fn query_pool(&self, stop: StopFlag) -> QueryPool {
        QueryPool::new(self.environment.memory_pool.clone(), self.cache.clone(), self.catalog.clone(), stop)
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
