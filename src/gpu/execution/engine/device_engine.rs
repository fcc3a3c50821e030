//! A device and what runs on it, as its host starts it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::{QueryPlace, ResultStream, StopFlag, spill::Spilling};
#[cfg(test)]
use pystachio_files::PageCacheProbe;
use pystachio_files::{FileCatalog, FileIdentity, QueryFiles};
use pystachio_plan::{
    CacheEntry, DeviceMemoryStatus, DeviceSettings, ErrorKind, QueryEngine, QueryMetrics, QueryRequest,
    QueryTimeline, Result,
};

use super::{
    run::{DeviceStream, QueryRun},
    timeline::Timelines,
};
use crate::{
    affinity::Affinity,
    device::{ActivityLog, DeviceMemory, HostBudget, HostMemory, MemoryTechniques, Platform},
    exchange::QueryId,
    execution::{
        compile::{QueryResources, RefusedPlan, compile},
        exchange::{Exchanges, RankPart},
        query::{Driver, NO_OPERATOR, QueryContext, QueryMemory, QueryMeter, Threads},
        scan::{ChunkCache, ReaderPlace, ReaderPool},
    },
    file_systems::FileSystems,
    operation::Queue,
    spill::SpillStore,
};

/// The part of the host's other memory for descriptions of the pages of cached chunks.
const DESCRIPTION_PART: u64 = 8;

/// A server's options, as sizes.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Device memory for running queries and for the cache.
    pub memory_bytes: u64,
    /// The part of it for column chunks that stay between queries.
    pub cache_bytes: u64,
    /// Page-locked memory of the host for column chunks that have left the device.
    pub pinned_cache_bytes: u64,
    /// Page-locked memory of the host for rows that do not fit there. As much again, which is not
    /// page-locked, for pages that the host decompresses and for descriptions of cached chunks'
    /// pages.
    pub host_bytes: u64,
    /// Files for rows that do not fit there either.
    pub spill: Spilling,
    /// The disks and processors near the device.
    pub affinity: Affinity,
}

/// Runs plans on one device. A plan that needs a missing kernel is `NotSupported`.
pub struct DeviceEngine {
    memory: DeviceMemory,
    catalog: Arc<FileCatalog>,
    file_systems: Arc<FileSystems>,
    reader_place: ReaderPlace,
    cache: ChunkCache,
    timelines: Timelines,
    queries_started: AtomicU64,
    queries_running: Arc<AtomicU64>,
    queries_run: Arc<AtomicU64>,
    spill_memory: HostMemory,
    spill: Spilling,
}

impl DeviceEngine {
    /// An engine on a platform.
    pub fn new(platform: Arc<dyn Platform>, options: &DeviceOptions) -> Self {
        let host = HostMemory::new(platform.clone(), options.host_bytes);
        let pinned = HostMemory::new(platform.clone(), options.pinned_cache_bytes);
        let file_systems = Arc::new(FileSystems::new(platform.clone(), options.affinity.clone()));
        let description_bytes = options.host_bytes / DESCRIPTION_PART;
        let memory = DeviceMemory::new(platform, options.memory_bytes)
            .with_host_budget(HostBudget::new(options.host_bytes - description_bytes));
        let cache = ChunkCache::new(&memory, pinned, options.cache_bytes, description_bytes);
        Self {
            memory,
            catalog: Arc::default(),
            file_systems,
            reader_place: ReaderPlace {
                threads: Threads::default(),
                processors: options.affinity.reader_processors(),
            },
            cache,
            timelines: Timelines::default(),
            queries_started: AtomicU64::new(0),
            queries_running: Arc::default(),
            queries_run: Arc::default(),
            spill_memory: host,
            spill: options.spill.clone(),
        }
    }

    /// With the footer cache of the engine beside it.
    pub fn with_catalog(self, catalog: Arc<FileCatalog>) -> Self {
        Self { catalog, ..self }
    }

    /// With a page cache of the caller's.
    #[cfg(test)]
    pub fn with_page_cache(self, page_cache: PageCacheProbe) -> Self {
        let file_systems = FileSystems::new(self.memory.platform().clone(), Affinity::default());
        Self { file_systems: Arc::new(file_systems.with_page_cache(page_cache)), ..self }
    }

    /// The cache of footers.
    pub fn catalog(&self) -> &Arc<FileCatalog> {
        &self.catalog
    }

    /// The device's memory.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// `cuda` or `emulated`.
    pub fn device(&self) -> &'static str {
        self.memory.platform().name()
    }

    /// Starts a query and waits for its first rows. If it finds too little memory before, it runs
    /// again: with as much as a query may reserve, and with one build side read after the other.
    ///
    /// # Errors
    ///
    /// `NotSupported` before the first row, if a kernel is missing; otherwise the errors of
    /// [`pystachio_engine::Engine::run`].
    pub async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let guard = self.note_running();
        let place = QueryPlace { engine: QueryEngine::Gpu, rank_count: 1 };
        stop.begin(place);
        let first = self.prepare(request.clone(), (stop.clone(), None), guard.clone())?;
        let has_begun = first.resources.fragments.has_begun();
        let minimum = first.driver.query.memory.minimum();
        let could_have_more = || has_begun.load(Ordering::Relaxed) || minimum.is_below_cap();
        let stream = match DeviceStream::start(first).await {
            Err(error) if error.kind == ErrorKind::OutOfMemory && could_have_more() => {
                stop.begin(place);
                let device = DeviceSettings { concurrent_builds: false, ..request.device };
                let again = self.prepare(QueryRequest { device, ..request }, (stop, None), guard)?;
                DeviceStream::start(QueryRun { takes_cap: true, ..again }).await
            }
            started => started,
        };
        Ok(Box::new(stream?))
    }

    /// Starts a rank's part in a query that was distributed, and waits for its first rows, which
    /// rank 0 alone gives, or for its end. Tells the other ranks if it fails.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceEngine::run`]; `Peer` for failures of other ranks.
    pub async fn run_part(
        &self,
        request: QueryRequest,
        part: RankPart,
        stop: StopFlag,
    ) -> Result<Box<dyn ResultStream>> {
        let guard = self.note_running();
        // A failed rank stops its work for the query, and not its host's work.
        let prepared = self.prepare(request, (stop.of_part(), Some(part.clone())), guard);
        let run = prepared.inspect_err(|error| part.refuse(error))?;
        Ok(Box::new(DeviceStream::start(run).await?))
    }

    fn note_running(&self) -> Arc<RunningGuard> {
        self.queries_running.fetch_add(1, Ordering::Relaxed);
        Arc::new(RunningGuard { running: self.queries_running.clone(), run: self.queries_run.clone() })
    }

    /// A query before its start, which a rank may have a part in.
    fn prepare(
        &self,
        request: QueryRequest,
        (stop, part): (StopFlag, Option<RankPart>),
        guard: Arc<RunningGuard>,
    ) -> Result<QueryRun> {
        let techniques = MemoryTechniques::of(request.device);
        let memory = self.memory.open_account().with_techniques(techniques).until(stop.clone());
        let queue = Queue::for_driver(&memory)?;
        let (queue, timeline) = match request.device.timeline || request.with_metrics {
            true => {
                let log = ActivityLog::start(self.memory.platform().clone(), queue.stream())?;
                let log = Arc::new(log);
                (Queue::for_driver(&memory.watched(log.clone()))?, Some((log, self.timelines.clone())))
            }
            false => (queue, None),
        };
        let queue = queue.with_deferred_faults();
        let (query, resources) = self.query(&request, queue.memory(), (stop.clone(), part));
        let driver = Driver::new(Arc::new(query), queue, stop, NO_OPERATOR);
        Ok(QueryRun { request, driver, resources, takes_cap: false, timeline, guard: Box::new(guard) })
    }

    /// A query whose plan is not compiled yet.
    fn query(
        &self,
        request: &QueryRequest,
        memory: &DeviceMemory,
        (stop, part): (StopFlag, Option<RankPart>),
    ) -> (QueryContext, QueryResources) {
        let settings = request.device;
        let spill = self.spill.of_query(&request.spill);
        let store = SpillStore::new(self.spill_memory.clone(), spill);
        let query_memory = QueryMemory::new(memory.clone(), store);
        let place = self.reader_place.clone();
        let meter = QueryMeter::new(memory, &query_memory);
        let number = stop.account().number();
        let readers = ReaderPool::new(memory, &query_memory, place, stop.clone(), settings);
        let resources = QueryResources {
            cache: self.cache.clone(),
            readers,
            fragments: Arc::default(),
            exchanges: Arc::new(Exchanges::new(part, settings.exchange, stop.clone())),
        };
        let context = QueryContext {
            number: number.unwrap_or_else(|| self.queries_started.fetch_add(1, Ordering::Relaxed) + 1),
            role: request.role,
            settings,
            memory: query_memory,
            threads: self.reader_place.threads.clone(),
            file_systems: self.file_systems.clone(),
            files: QueryFiles::new(
                self.catalog.for_request(&request.access, &stop),
                request.planned_files.clone(),
            )
            .of(stop.clone()),
            parameters: request.parameters.clone(),
            stop,
            meter,
            metrics: Mutex::default(),
        };
        (context, resources)
    }

    /// A preview of the files that a query reads. Blocks.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceEngine::run`].
    pub fn preview(&self, request: &QueryRequest, stop: &StopFlag) -> Result<QueryMetrics> {
        let (mut query, resources) = self.query(request, &self.memory.open_account(), (stop.clone(), None));
        compile(&request.plan, &mut query, &resources).map_err(|refused| refused.error)?;
        let mut metrics = std::mem::take(query.metrics_mut());
        metrics.operators.clear();
        Ok(metrics)
    }

    /// The lowest operator that a plan can't be run for, by the address of its relation; `None` if every operator has its kernels. Blocks.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceEngine::preview`] that are no operator's.
    pub fn refused_operator(&self, request: &QueryRequest, stop: &StopFlag) -> Result<Option<usize>> {
        let (mut query, resources) = self.query(request, &self.memory.open_account(), (stop.clone(), None));
        match compile(&request.plan, &mut query, &resources) {
            Ok(_) => Ok(None),
            Err(RefusedPlan { error, operator }) => operator.map(Some).ok_or(error),
        }
    }

    /// Counts of ended and running queries.
    pub fn query_counts(&self) -> (u64, u64) {
        (self.queries_run.load(Ordering::Relaxed), self.queries_running.load(Ordering::Relaxed))
    }

    /// The contents of the cache.
    pub fn cache_entries(&self) -> Vec<CacheEntry> {
        self.cache.entries()
    }

    /// How many chunks of a leaf of a file the cache has on the device.
    pub fn cached_chunks(&self, file: &FileIdentity, leaf: usize) -> usize {
        self.cache.held(file, leaf)
    }

    /// Device memory of the cache, and its limit.
    pub fn cache_bytes(&self) -> (u64, u64) {
        self.cache.bytes()
    }

    /// The device's timelines of the last queries that asked for one.
    pub fn timelines(&self) -> Vec<QueryTimeline> {
        self.timelines.last()
    }

    /// The timeline of one query, by its number among all ranks, if it is still kept.
    pub fn timeline_of(&self, query: QueryId) -> Option<QueryTimeline> {
        self.timelines.of_shared(query.0)
    }

    /// The file systems of the files read, and how each can read to the device; a line each.
    pub fn storage_paths(&self) -> Vec<String> {
        self.file_systems.lines()
    }

    /// Queries that wait for device memory.
    pub fn waiting_count(&self) -> u64 {
        self.memory.waiting_count() as u64
    }

    /// The use of the device's memory.
    pub fn memory_status(&self) -> DeviceMemoryStatus {
        DeviceMemoryStatus {
            max_bytes: self.memory.bytes_max(),
            used_bytes: self.memory.used_bytes(),
            peak_bytes: self.memory.peak_bytes(),
            fragmented_bytes: self.memory.pool_use().scattered_bytes,
        }
    }
}

/// Counts a query as running for as long as it lives.
struct RunningGuard {
    running: Arc<AtomicU64>,
    run: Arc<AtomicU64>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.run.fetch_add(1, Ordering::Relaxed);
    }
}
