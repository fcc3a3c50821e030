//! The scan as an operator of DataFusion.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};

use crate::datafusion::{
    common::{ColumnStatistics, ScalarValue, Statistics, stats::Precision, tree_node::TreeNodeRecursion},
    config::ConfigOptions,
    error::Result as DataFusionResult,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{
        DynamicFilterTracking, EquivalenceProperties, PhysicalExpr, utils::reassign_expr_columns,
    },
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
        execution_plan::{Boundedness, EmissionType, apply_expression_roots},
        filter_pushdown::{ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown},
        metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet},
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{Array, BooleanArray, UInt64Array, new_null_array},
    compute::{SortColumn, SortOptions, concat, lexsort_to_indices, take},
    datatypes::SchemaRef,
};
use pystachio_plan::{ColumnId, FileSet, Result, ScanColumn};

use super::{
    BATCH_ROWS,
    decode::ColumnReader,
    metrics::ScanMetrics,
    partition::PartitionScan,
    pruning::RowGroupPruner,
    queue::{ScanQueue, ScanUnit},
    table::ScanTable,
};
use pystachio_files::{QueryFiles, ScanConditions};

use crate::{cache::ColumnCache, functions::could_fail, inputs::without_inputs, shared::inputs};

/// Pages of a column that a partition holds, as writers make them: a dictionary, and what a batch points into.
const PAGES_BYTES: usize = 2 << 20;

/// What scans of a query share.
#[derive(Debug)]
pub(crate) struct ScanContext {
    pub(crate) files: QueryFiles,
    pub(crate) cache: Arc<ColumnCache>,
    /// Partitions of a scan at most.
    pub(crate) threads: usize,
}

/// A scan as the plan has it.
pub(crate) struct ScanRequest<'a> {
    pub(crate) table: &'a str,
    pub(crate) files: &'a FileSet,
    pub(crate) conditions: ScanConditions<'a>,
    /// The columns that the scan's reader needs.
    pub(crate) output: &'a BTreeSet<ColumnId>,
    pub(crate) estimate_rows: f64,
    /// Whether the reader may answer from bounds of whole columns.
    pub(crate) with_bounds: bool,
}

/// Reads row groups of Parquet files.
#[derive(Debug)]
pub(crate) struct RowGroupScanExec {
    pub(super) table: Arc<ScanTable>,
    pub(super) cache: Arc<ColumnCache>,
    /// The table's columns that come out.
    pub(super) projection: Vec<usize>,
    /// Conditions over the table's columns: those of the scan, and then those that were pushed down to it.
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// How many of them are the scan's own.
    own_filters: usize,
    /// Conditions over the table's columns that change while the query runs.
    pub(super) dynamic_filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The row groups that `filters` leave.
    kept: OnceLock<Arc<KeptUnits>>,
    fetch: Option<usize>,
    estimate_rows: f64,
    with_bounds: bool,
    /// Which row groups are read first.
    first: OnceLock<FirstValues>,
    queue: OnceLock<Arc<ScanQueue>>,
    /// The last use of the cache before the first partition ran.
    began: OnceLock<u64>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The row groups that conditions leave.
#[derive(Clone, Debug)]
struct KeptUnits {
    units: Vec<ScanUnit>,
    files_pruned: usize,
}

impl KeptUnits {
    /// Those that the scan's conditions leave, and conditions that were pushed down.
    fn of(table: &ScanTable, pushed: &[Arc<dyn PhysicalExpr>]) -> Self {
        let pruner = RowGroupPruner::try_new(pushed, &table.schema);
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let mut units = Vec::new();
        let mut files_pruned = 0;
        for (file_index, file) in table.files.iter().enumerate() {
            let may_match = pruner.as_ref().map(|pruner| pruner.may_match(table, file));
            let before = units.len();
            for &row_group in &file.row_groups_left {
                let is_left = may_match.as_ref().and_then(|may_match| may_match.get(row_group));
                if is_left.copied().unwrap_or(true) {
                    let bytes = ColumnReader::bytes_to_read(file, row_group, &columns) as u64;
                    units.push(ScanUnit { file: file_index, row_group, first_row: 0, bytes });
                }
            }
            let is_empty = file.footer().metadata().num_row_groups() == 0;
            files_pruned += usize::from(units.len() == before && !is_empty);
        }
        Self { units, files_pruned }
    }
}

/// The values of a column that are wanted first.
#[derive(Clone, Copy, Debug)]
struct FirstValues {
    column: usize,
    options: SortOptions,
}

impl RowGroupScanExec {
    /// A scan. `lower_filters` makes the conditions physical over the schema that it is given.
    ///
    /// # Errors
    ///
    /// Those of the files and of their schemas.
    pub(crate) fn try_new(
        context: &ScanContext,
        request: &ScanRequest<'_>,
        lower_filters: impl FnOnce(SchemaRef) -> Result<Vec<Arc<dyn PhysicalExpr>>>,
    ) -> Result<Self> {
        let columns = request.conditions.columns;
        let opened = context.files.open(request.table, request.files, &request.conditions)?;
        let cache = match request.files.is_sent() {
            true => Arc::new(ColumnCache::new(0)),
            false => context.cache.clone(),
        };
        for file in &opened.files {
            cache.observe(&file.footer.path, file.footer.identity);
        }
        let table = ScanTable::try_new(request.table, opened, &request.conditions)?;
        let filters = lower_filters(table.schema.clone())?;
        let projection: Vec<usize> = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| request.output.contains(&column.id))
            .map(|(index, _)| index)
            .collect();
        let schema = table
            .schema
            .project(&projection)
            .map(Arc::new)
            .map_err(|error| crate::error::from_arrow(&error))?;
        let table = Arc::new(table);
        let unit_count: usize = table.files.iter().map(|file| file.row_groups_left.len()).sum();
        let partitions = unit_count.clamp(1, context.threads.max(1));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            table,
            cache,
            projection,
            own_filters: filters.len(),
            filters,
            kept: OnceLock::new(),
            dynamic_filters: Vec::new(),
            fetch: None,
            estimate_rows: request.estimate_rows,
            with_bounds: request.with_bounds,
            first: OnceLock::new(),
            queue: OnceLock::new(),
            began: OnceLock::new(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// About the most that a partition holds at once that decodes nothing for the cache: the column chunks of a row group, of
    /// each column a page or two, and two batches.
    pub(crate) fn partition_bytes(&self) -> usize {
        let columns: Vec<usize> = (0..self.table.columns.len()).collect();
        let row_groups = self.table.files.iter().flat_map(|file| {
            let row_groups = 0..file.footer().metadata().num_row_groups();
            row_groups.map(|row_group| {
                ColumnReader::bytes_to_read(file, row_group, &columns)
                    .saturating_add(ColumnReader::batch_bytes(file, row_group, &columns, BATCH_ROWS))
            })
        });
        row_groups.max().unwrap_or(0).saturating_add(columns.len() * PAGES_BYTES)
    }

    /// Whether this is the scan of a table with these columns.
    pub(crate) fn reads(&self, table: &str, columns: &[ScanColumn]) -> bool {
        self.table.name == table
            && self.table.columns.iter().map(|column| column.id).eq(columns.iter().map(|column| column.id))
    }

    fn copy(&self) -> Self {
        Self {
            table: self.table.clone(),
            cache: self.cache.clone(),
            projection: self.projection.clone(),
            filters: self.filters.clone(),
            own_filters: self.own_filters,
            dynamic_filters: self.dynamic_filters.clone(),
            kept: self.kept.clone(),
            fetch: self.fetch,
            estimate_rows: self.estimate_rows,
            with_bounds: self.with_bounds,
            first: self.first.clone(),
            queue: OnceLock::new(),
            began: OnceLock::new(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The reader wants the first values of a column, and drops others by a dynamic filter: row groups that may have them are
    /// read first. To be called before the scan runs.
    pub(crate) fn begin_with(&self, name: &str, options: SortOptions) {
        let column = self.table.schema.index_of(name);
        if let (Ok(column), false) = (column, self.dynamic_filters.is_empty()) {
            self.first.get_or_init(|| FirstValues { column, options });
        }
    }

    /// The row groups in the order of their first values. Those whose values are not known come first.
    fn in_order(&self, units: &[ScanUnit], first: FirstValues) -> Option<Vec<ScanUnit>> {
        let FirstValues { column, options } = first;
        let data_type = self.table.schema.field(column).data_type();
        let (mut bounds, mut with_nulls) = (Vec::new(), Vec::with_capacity(units.len()));
        for of_file in units.chunk_by(|one, other| one.file == other.file) {
            let file = self.table.files.get(of_file.first()?.file)?;
            let Some(known) = file.bounds(column) else {
                bounds.push(new_null_array(data_type, of_file.len()));
                with_nulls.extend(of_file.iter().map(|_| true));
                continue;
            };
            let row_groups = of_file.iter().map(|unit| unit.row_group as u64);
            let values = if options.descending { &known.maximums } else { &known.minimums };
            bounds.push(take(values, &UInt64Array::from_iter_values(row_groups), None).ok()?);
            with_nulls.extend(of_file.iter().map(|unit| {
                known.null_counts.is_null(unit.row_group) || known.null_counts.value(unit.row_group) > 0
            }));
        }
        let bounds: Vec<&dyn Array> = bounds.iter().map(AsRef::as_ref).collect();
        let nulls = with_nulls.into_iter().map(|with_nulls| Some(with_nulls && options.nulls_first));
        let unknown_first = SortOptions { nulls_first: true, ..options };
        let keys = [
            SortColumn {
                values: Arc::new(nulls.collect::<BooleanArray>()),
                options: Some(SortOptions { descending: true, nulls_first: true }),
            },
            SortColumn { values: concat(&bounds).ok()?, options: Some(unknown_first) },
            SortColumn {
                values: Arc::new(UInt64Array::from_iter_values(0..units.len() as u64)),
                options: None,
            },
        ];
        let places = lexsort_to_indices(&keys, None).ok()?;
        places.values().iter().map(|place| units.get(*place as usize).copied()).collect()
    }

    /// The row groups that the static filters leave. Made once, by the first partition that runs.
    fn queue(&self) -> Arc<ScanQueue> {
        self.queue.get_or_init(|| Arc::new(self.make_queue())).clone()
    }

    /// The last use of the cache before the scan. Partitions begin one after the other, and none evicts what another has kept.
    pub(super) fn began(&self) -> u64 {
        *self.began.get_or_init(|| self.cache.last_use())
    }

    fn make_queue(&self) -> ScanQueue {
        let pushed = &self.filters[self.own_filters..];
        let kept = self.kept.get_or_init(|| Arc::new(KeptUnits::of(&self.table, pushed)));
        let KeptUnits { mut units, files_pruned } = KeptUnits::clone(kept);
        let counter = |name: &'static str| MetricBuilder::new(&self.metrics).global_counter(name);
        let total = self.table.row_group_count();
        counter("files_total").add(self.table.files.len() + self.table.left_out);
        counter("row_groups_total").add(total);
        counter("row_groups_pruned").add(total - units.len());
        counter("files_pruned").add(files_pruned + self.table.left_out);
        if let Some(ordered) = self.first.get().and_then(|first| self.in_order(&units, *first)) {
            units = ordered;
        }
        ScanQueue::new(units, self.fetch)
    }

    /// Bytes that it has to go through, and those of them that it is through with.
    fn bytes(&self) -> (u64, u64) {
        self.queue.get().map_or((0, 0), |queue| queue.bytes())
    }

    fn statistics(&self) -> Statistics {
        let schema = self.properties.eq_properties.schema();
        let mut statistics = Statistics::new_unknown(schema);
        if !self.filters.is_empty() || !self.dynamic_filters.is_empty() || self.fetch.is_some() {
            statistics.num_rows = Precision::Inexact(self.estimate_rows.max(0.0) as usize);
            return statistics;
        }
        statistics.num_rows = Precision::Exact(self.table.row_count());
        if self.with_bounds {
            statistics.column_statistics =
                self.projection.iter().map(|column| self.column_statistics(*column)).collect();
        }
        statistics
    }

    /// Bounds of a whole column, where every row group's are exact.
    fn column_statistics(&self, column: usize) -> ColumnStatistics {
        let mut least: Option<ScalarValue> = None;
        let mut greatest: Option<ScalarValue> = None;
        let mut nulls = 0;
        for file in &self.table.files {
            let Some(bounds) = file.exact_bounds(column) else {
                return ColumnStatistics::new_unknown();
            };
            for (row_group, metadata) in file.footer().metadata().row_groups().iter().enumerate() {
                let values = (
                    ScalarValue::try_from_array(&bounds.minimums, row_group),
                    ScalarValue::try_from_array(&bounds.maximums, row_group),
                    bounds.null_counts.iter().nth(row_group).flatten(),
                );
                let (Ok(minimum), Ok(maximum), Some(null_count)) = values else {
                    return ColumnStatistics::new_unknown();
                };
                nulls += null_count as usize;
                let has_values = i64::try_from(null_count).is_ok_and(|nulls| nulls < metadata.num_rows());
                if has_values && (minimum.is_null() || maximum.is_null()) {
                    return ColumnStatistics::new_unknown();
                }
                least = pick(least, minimum, std::cmp::Ordering::Less);
                greatest = pick(greatest, maximum, std::cmp::Ordering::Greater);
            }
        }
        let exact = |value: Option<ScalarValue>| value.map_or(Precision::Absent, Precision::Exact);
        ColumnStatistics {
            null_count: Precision::Exact(nulls),
            min_value: exact(least),
            max_value: exact(greatest),
            ..ColumnStatistics::new_unknown()
        }
    }
}

/// Makes every scan of a plan count what it would read, without reading.
pub(crate) fn preview(plan: &Arc<dyn ExecutionPlan>) {
    if let Some(scan) = plan.downcast_ref::<RowGroupScanExec>() {
        scan.queue();
    }
    inputs(plan).into_iter().for_each(preview);
}

/// Bytes that all scans of a plan have to go through, and those of them that they are through with.
pub(crate) fn bytes(plan: &Arc<dyn ExecutionPlan>) -> (u64, u64) {
    let own = plan.downcast_ref::<RowGroupScanExec>().map_or((0, 0), RowGroupScanExec::bytes);
    inputs(plan).into_iter().map(bytes).fold(own, |sum, child| (sum.0 + child.0, sum.1 + child.1))
}

/// Whichever of two values is on the wanted side of the other; NULL is no value.
fn pick(current: Option<ScalarValue>, other: ScalarValue, wanted: std::cmp::Ordering) -> Option<ScalarValue> {
    if other.is_null() {
        return current;
    }
    match current {
        Some(current) if other.partial_cmp(&current) != Some(wanted) => Some(current),
        _ => Some(other),
    }
}

impl DisplayAs for RowGroupScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Scan: table={}, files={}, row_groups={}",
            self.table.name,
            self.table.files.len(),
            self.table.row_group_count()
        )?;
        if !self.filters.is_empty() {
            let filters: Vec<String> = self.filters.iter().map(ToString::to_string).collect();
            write!(formatter, ", filters=[{}]", filters.join(", "))?;
        }
        if !self.dynamic_filters.is_empty() {
            write!(formatter, ", dynamic_filters={}", self.dynamic_filters.len())?;
        }
        self.fetch.map_or(Ok(()), |fetch| write!(formatter, ", fetch={fetch}"))
    }
}

impl ExecutionPlan for RowGroupScanExec {
    fn name(&self) -> &'static str {
        "RowGroupScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    without_inputs!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        apply_expression_roots(self.filters.iter().chain(&self.dynamic_filters), visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = ScanMetrics::new(&self.metrics, partition);
        let schema = self.schema();
        let scan = PartitionScan::try_new(self, self.queue(), metrics, &context)?;
        let stream = futures::stream::try_unfold(scan, |mut scan| async move {
            let batch = scan.next_batch().await?;
            Ok(batch.map(|batch| (batch, scan)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        if arguments.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        Ok(Arc::new(self.statistics()))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { fetch: limit, ..self.copy() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DataFusionResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut copy = self.copy();
        let mut answers = Vec::new();
        for parent in child_pushdown_result.parent_filters {
            let filter = reassign_expr_columns(parent.filter, &self.table.schema)?;
            // A limit counts rows that the filters so far kept, so later ones must stay above it.
            if self.fetch.is_some() {
                answers.push(PushedDown::No);
            } else if DynamicFilterTracking::classify(&filter).contains_dynamic_filter() {
                // They are evaluated for rows that the conditions drop too.
                if !could_fail(&filter) {
                    copy.dynamic_filters.push(filter);
                }
                answers.push(PushedDown::No);
            } else {
                copy.filters.push(filter);
                copy.kept = OnceLock::new();
                answers.push(PushedDown::Yes);
            }
        }
        let changed =
            copy.filters.len() + copy.dynamic_filters.len() > self.filters.len() + self.dynamic_filters.len();
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        Ok(if changed { propagation.with_updated_node(Arc::new(copy)) } else { propagation })
    }
}
