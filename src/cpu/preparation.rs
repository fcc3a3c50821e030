//! A request becomes a query that can run, in one form or the other.
//!
//! The fastest operators are tried first. Those that spill take their place when a query got no memory, on as many
//! partitions as leave each of them a part of the memory with which it gets on.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Instant};

use crate::datafusion::{
    execution::{
        TaskContext, TempFileFactory,
        disk_manager::{DiskManager, DiskManagerBuilder},
        memory_pool::MemoryPool,
        runtime_env::RuntimeEnv,
    },
    physical_plan::{
        ExecutionPlan, aggregates::AggregateExec, repartition::RepartitionExec, sorts::sort::SortExec,
    },
    prelude::SessionConfig,
};
use pystachio_engine::{
    GivenPart, Meter, StopFlag,
    spill::{QuerySpill, SpillSpace},
};
use pystachio_files::{FileCatalog, QueryFiles};
use pystachio_plan::{QueryRequest, Relation, RepeatedParts, Result};

use crate::{
    cache::ColumnCache,
    error::from_datafusion,
    lowering::{Lowering, PlanForm},
    metrics::{MeasuredPlan, PlanMeter, QueryPool},
    scan::{self, BATCH_ROWS, RowGroupScanExec, ScanContext, VALUE_BYTES},
    spill::SpillFiles,
    stream::{RunningQuery, micros},
};

/// The part of the memory that the first rows of an order may take before all rows are sorted instead, or rows that several readers
/// share before each reader computes them.
const KEPT_PART: usize = 8;
/// Memory for each partition of an operator that spills: some dozens of batches. With less it writes as many files.
const SPILLING_PARTITION_BYTES: usize = 8 << 20;
/// The part of the memory that scans may take where operators spill: they can't.
const SCANS_PART: usize = 2;
/// Memory for each spilled run of a sort that is merged with others: two batches of wide rows, and as much
/// for what takes the merged rows, which must not be starved.
const SORT_RUN_BYTES: usize = 8 << 20;
/// The same for smaller batches.
const SPILLING_RUN_BYTES: usize = SORT_RUN_BYTES / (BATCH_ROWS / SPILLING_BATCH_ROWS);
/// Merges at once where operators spill: of both sides of some joins.
const SPILLING_MERGES: usize = 8;
/// Spilled runs that one merge reads at most; more are merged in steps.
const SORT_RUNS_MAX: usize = 64;
/// Rows of a batch where operators spill: a merge holds some batches of each file that it reads.
pub(crate) const SPILLING_BATCH_ROWS: usize = 1024;
/// The part of the memory that all sorts together set aside for merging.
const MERGES_PART: usize = 8;

/// The share of the memory that one batch may take on its way to its client. A query whose client has stopped holds some.
const BATCH_PART: usize = 512;
const BATCH_BYTES_MIN: usize = 64 << 10;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// What makes a query.
pub(crate) struct Preparation {
    pub(crate) request: QueryRequest,
    /// The parts that another engine computes, by the addresses of their relations.
    pub(crate) given: HashMap<usize, GivenPart>,
    pub(crate) stop: StopFlag,
    pub(crate) catalog: Arc<FileCatalog>,
    pub(crate) cache: Arc<ColumnCache>,
    pub(crate) session: SessionConfig,
    pub(crate) environment: Arc<RuntimeEnv>,
    /// Makes the files that its operators spill to.
    pub(crate) spill_files: SpillFiles,
    /// Where it spills to, and how much it may.
    pub(crate) spill: QuerySpill,
    /// Partitions of every operator.
    pub(crate) threads: usize,
    /// All memory of the engine.
    pub(crate) memory_bytes: usize,
    /// When the request came.
    pub(crate) started: Instant,
}

impl Preparation {
    /// The query in a form, ready to run. It keeps `running` until its end. Blocks on files.
    ///
    /// # Errors
    ///
    /// Those of lowering.
    pub(crate) fn prepare(&self, form: PlanForm, running: Arc<dyn Send + Sync>) -> Result<RunningQuery> {
        let preparing = Instant::now();
        let (plan, session) = match form {
            PlanForm::Fast => (self.lower(form)?, self.session.clone()),
            PlanForm::Spilling => self.lower_spilling()?,
        };
        let columns = self.request.plan.root.columns();
        let outputs = self.request.plan.outputs.iter();
        let output_types = outputs
            .filter_map(|id| columns.iter().find(|(column, _)| column == id))
            .map(|(_, data_type)| data_type.clone())
            .collect();
        let engine_pool = self.environment.memory_pool.clone();
        let pool = QueryPool::new(engine_pool, self.cache.clone(), self.catalog.clone(), self.stop.clone());
        let pool = Arc::new(pool);
        let environment = RuntimeEnv {
            memory_pool: pool.clone() as Arc<dyn MemoryPool>,
            disk_manager: Arc::new(disk_manager(
                (self.spill_files)(self.spill.clone()),
                form,
                (self.memory_bytes, self.threads),
            )?),
            ..RuntimeEnv::clone(&self.environment)
        };
        let context = TaskContext::new(
            None,
            String::new(),
            session.with_extension(Arc::new(self.stop.clone())),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            Arc::new(environment),
        );
        // From now on it is known what is to be read.
        scan::preview(&plan);
        let counted = self.request.with_metrics.then(|| self.request.plan.root.clone());
        let plan_schema = plan.schema();
        let plan = Arc::new(MeasuredPlan::new(plan, counted));
        let (pool_seen, spill) = (pool.clone(), self.spill.clone());
        let meter: Arc<dyn Meter> = Arc::new(PlanMeter { plan: plan.clone(), pool: pool_seen, spill });
        self.stop.account().measure_anew(Arc::downgrade(&meter));
        Ok(RunningQuery {
            plan_schema,
            plan,
            _meter: meter,
            context: Arc::new(context),
            pool,
            output_types,
            batch_rows_max: (self.request.batch_rows_max as usize).max(1),
            batch_bytes_max: (self.memory_bytes / BATCH_PART).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX),
            spool: SpillSpace::new(self.spill.clone()),
            started: self.started,
            stop: self.stop.clone(),
            prepare_us: micros(preparing),
            _guard: running,
        })
    }

    /// The plan's operators in a form. Blocks on files.
    ///
    /// # Errors
    ///
    /// Those of lowering.
    pub(crate) fn lower(&self, form: PlanForm) -> Result<Arc<dyn ExecutionPlan>> {
        self.lower_for(form, &self.session, self.threads)
    }

    /// The plan of operators that spill, and the settings to run it with.
    fn lower_spilling(&self) -> Result<(Arc<dyn ExecutionPlan>, SessionConfig)> {
        let session = |partitions| spilling_session(&self.session, partitions);
        let plan = self.lower_for(PlanForm::Spilling, &session(self.threads), self.threads)?;
        let operators = spilling_operators(&plan).max(1);
        let partitions = self.memory_bytes / (operators * SPILLING_PARTITION_BYTES);
        let scanning = self.memory_bytes / (SCANS_PART * scan_bytes(&plan).max(1));
        let partitions = partitions.min(scanning).clamp(1, self.threads);
        let merge_bytes = self.memory_bytes / (MERGES_PART * operators * partitions);
        let session = session(partitions);
        let merge_bytes = session.options().execution.sort_spill_reservation_bytes.min(merge_bytes);
        let session = session.with_sort_spill_reservation_bytes(merge_bytes);
        Ok((self.lower_for(PlanForm::Spilling, &session, partitions)?, session))
    }

    fn lower_for(
        &self,
        form: PlanForm,
        session: &SessionConfig,
        threads: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let catalog = self.catalog.for_request(&self.request.access, &self.stop);
        let files = QueryFiles::new(catalog, self.request.planned_files.clone());
        let files = files.of(self.stop.clone());
        // Whole chunks would take of the memory that the partitions were counted by (`partition_bytes`).
        let cache = match form {
            PlanForm::Fast => self.cache.clone(),
            PlanForm::Spilling => Arc::new(ColumnCache::new(0)),
        };
        let scans = ScanContext { files, cache, threads };
        let kept_bytes_max = match form {
            PlanForm::Fast => self.memory_bytes / KEPT_PART,
            PlanForm::Spilling => 0,
        };
        let is_kept = |part: &Relation| {
            part.estimate.rows * (part.columns().len() * VALUE_BYTES) as f64 <= kept_bytes_max as f64
        };
        let root = &self.request.plan.root;
        let lowering = Lowering {
            parameters: &self.request.parameters,
            scans: &scans,
            config: session.options(),
            stop: &self.stop,
            form,
            kept_bytes_max,
            repeated: match form {
                PlanForm::Fast => RepeatedParts::of(root, is_kept),
                PlanForm::Spilling => RepeatedParts::default(),
            },
            shared: RefCell::default(),
            given: &self.given,
            next_column: std::cell::Cell::new(u32::MAX),
        };
        lowering.lower_plan(&self.request.plan)
    }
}

/// Makes spill files, and says how many of them one merge reads.
///
/// # Errors
///
/// Those of making it.
pub(crate) fn disk_manager(
    files: Arc<dyn TempFileFactory>,
    form: PlanForm,
    (memory_bytes, threads): (usize, usize),
) -> Result<DiskManager> {
    let merge_bytes = match form {
        PlanForm::Fast => threads * SORT_RUN_BYTES,
        PlanForm::Spilling => SPILLING_MERGES * SPILLING_RUN_BYTES,
    };
    DiskManagerBuilder::default()
        .with_temp_file_factory(files)
        .with_max_spill_merge_fan_in((memory_bytes / merge_bytes).clamp(2, SORT_RUNS_MAX))
        .build()
        .map_err(|error| from_datafusion(&error))
}

/// The settings of operators that spill, on so many partitions.
pub(crate) fn spilling_session(session: &SessionConfig, partitions: usize) -> SessionConfig {
    let mut session = session.clone();
    // Each batch is sorted on its own: of several that are sorted as one, each part counts the text of all.
    session.options_mut().execution.sort_in_place_threshold_bytes = 0;
    session.with_batch_size(SPILLING_BATCH_ROWS).with_target_partitions(partitions)
}

/// Operators of a plan that share what memory there is, and go on in files.
fn spilling_operators(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.is::<SortExec>() || plan.is::<AggregateExec>() || plan.is::<RepartitionExec>();
    usize::from(own) + plan.children().into_iter().map(spilling_operators).sum::<usize>()
}

/// What one partition of each scan of a plan holds, together.
fn scan_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.downcast_ref::<RowGroupScanExec>().map_or(0, RowGroupScanExec::partition_bytes);
    own + plan.children().into_iter().map(scan_bytes).sum::<usize>()
}
