//! The physical rules that finish a plan.

use std::sync::Arc;

use crate::datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    config::ConfigOptions,
    error::Result as DataFusionResult,
    physical_expr::expressions::Column,
    physical_optimizer::{
        PhysicalOptimizerRule, aggregate_statistics::AggregateStatistics,
        combine_partial_final_agg::CombinePartialFinalAggregate, ensure_coop::EnsureCooperative,
        ensure_requirements::EnsureRequirements, filter_pushdown::FilterPushdown,
        limit_pushdown::LimitPushdown, limited_distinct_aggregation::LimitedDistinctAggregation,
        output_requirements::OutputRequirements, projection_pushdown::ProjectionPushdown,
        topk_aggregation::TopKAggregation, topk_repartition::TopKRepartition,
        update_aggr_exprs::OptimizeAggregateOrder,
    },
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties,
        coalesce_partitions::CoalescePartitionsExec,
        coop::CooperativeExec,
        execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions},
        filter::FilterExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        limit::{GlobalLimitExec, LocalLimitExec},
        projection::{ProjectionExec, remove_unnecessary_projections},
        repartition::RepartitionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        union::UnionExec,
    },
};
use arrow::{
    compute::SortOptions,
    datatypes::{DataType, Schema},
};
use pystachio_plan::Result;

use super::PlanForm;
use crate::{
    compact::CompactExec, error::from_datafusion, first_rows::FirstRowsExec, functions::could_fail,
    given_rows::GivenRowsExec, scan::RowGroupScanExec, stopping::StoppableExec,
};

/// Places exchanges, pushes filters and limits, answers from statistics; one partition comes out, in the
/// order of the plan.
///
/// Absent of DataFusion's list are the rules that choose joins (the planner has), those for windows and
/// unbounded inputs, and the checks of other rules. The first rows of an order that could take more than
/// `first_rows_bytes_max` are sorted with all others. Scans below first rows begin with the row groups that may have them.
pub(super) fn optimize(
    plan: Arc<dyn ExecutionPlan>,
    config: &Arc<ConfigOptions>,
    form: PlanForm,
    first_rows_bytes_max: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    if form == PlanForm::Fast && is_flat(&plan) {
        return finish_flat(plan, config);
    }
    let rules: [Arc<dyn PhysicalOptimizerRule + Send + Sync>; 16] = [
        Arc::new(OutputRequirements::new_add_mode()),
        Arc::new(AggregateStatistics::new()),
        Arc::new(LimitedDistinctAggregation::new()),
        Arc::new(FilterPushdown::new()),
        Arc::new(EnsureRequirements::new()),
        Arc::new(CombinePartialFinalAggregate::new()),
        Arc::new(OptimizeAggregateOrder::new()),
        Arc::new(OutputRequirements::new_remove_mode()),
        Arc::new(TopKAggregation::new()),
        Arc::new(LimitPushdown::new()),
        Arc::new(TopKRepartition::new()),
        Arc::new(ManyFirstRows { bytes_max: first_rows_bytes_max }),
        Arc::new(SafeProjections),
        Arc::new(EnsureCooperative::new()),
        Arc::new(FilterPushdown::new_post_optimization()),
        Arc::new(StoppableOutputs),
    ];
    let mut plan = plan;
    for rule in rules {
        plan = rule.optimize(plan, config).map_err(|error| from_datafusion(&error))?;
    }
    if form == PlanForm::Spilling {
        plan = with_compact_inputs(plan).map_err(|error| from_datafusion(&error))?;
    }
    order_row_groups(&plan);
    Ok(merge_partitions(plan))
}

/// Whether a plan only reads rows and computes columns of them: nothing of it can be moved or exchanged.
fn is_flat(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut lowest = plan;
    while let Some(projection) = lowest.downcast_ref::<ProjectionExec>() {
        lowest = projection.input();
    }
    // The rows of a part may be in the plan's order, which an exchange would lose.
    lowest.is::<RowGroupScanExec>() || lowest.is::<GivenRowsExec>()
}

/// What of the rules applies to a flat plan.
fn finish_flat(plan: Arc<dyn ExecutionPlan>, config: &Arc<ConfigOptions>) -> Result<Arc<dyn ExecutionPlan>> {
    let rules: [&(dyn PhysicalOptimizerRule + Send + Sync); 2] =
        [&EnsureCooperative::new(), &StoppableOutputs];
    let mut plan = plan;
    for rule in rules {
        plan = rule.optimize(plan, config).map_err(|error| from_datafusion(&error))?;
    }
    Ok(merge_partitions(plan))
}

/// Makes the scans below first rows of an order begin with the row groups that may have them, so that the rest is left out.
fn order_row_groups(plan: &Arc<dyn ExecutionPlan>) {
    let ordering = match (plan.downcast_ref::<SortExec>(), plan.downcast_ref::<FirstRowsExec>()) {
        (Some(sort), _) if sort.fetch().is_some() => Some(sort.expr()),
        (_, Some(rows)) => Some(rows.ordering()),
        _ => None,
    };
    if let Some(key) = ordering.map(|ordering| ordering.first())
        && let Some(column) = key.expr.downcast_ref::<Column>()
    {
        plan.children().into_iter().for_each(|child| begin_with(child, column.name(), key.options));
    }
    plan.children().into_iter().for_each(order_row_groups);
}

fn begin_with(plan: &Arc<dyn ExecutionPlan>, name: &str, options: SortOptions) {
    if let Some(scan) = plan.downcast_ref::<RowGroupScanExec>() {
        return scan.begin_with(name, options);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let named = projection.expr().iter().find(|named| named.alias == name);
        if let Some(column) = named.and_then(|named| named.expr.downcast_ref::<Column>()) {
            begin_with(projection.input(), column.name(), options);
        }
        return;
    }
    let gives_rows_as_they_are = plan.is::<FilterExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<StoppableExec>()
        || plan.is::<CompactExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<UnionExec>();
    if gives_rows_as_they_are {
        let inputs = plan.children().into_iter().filter(|input| input.schema().index_of(name).is_ok());
        inputs.for_each(|input| begin_with(input, name, options));
    }
}

/// DataFusion's `ProjectionPushdown`, for what can't fail. It moves projections below filters, and parts of a nested
/// loop's condition, out of a CASE too, below the join: there they are computed for rows that the filter drops and
/// that no branch takes.
#[derive(Debug)]
struct SafeProjections;

impl PhysicalOptimizerRule for SafeProjections {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut has_unsafe = false;
        plan.apply(|node| {
            has_unsafe = projects_unsafe(node) || joins_unsafe(node);
            Ok(if has_unsafe { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !has_unsafe {
            return ProjectionPushdown::new().optimize(plan, config);
        }
        // Projections are merged on their way down, so what stops them stands above each filter meanwhile.
        let stopped = plan.transform_up(|node| match node.is::<FilterExec>() {
            true => Ok(Transformed::yes(Arc::new(StoppableExec::new(node)) as _)),
            false => Ok(Transformed::no(node)),
        })?;
        let pushed = stopped.data.transform_down(remove_unnecessary_projections)?;
        let filters = pushed.data.transform_up(|node| match node.children().as_slice() {
            [filter] if node.is::<StoppableExec>() && filter.is::<FilterExec>() => {
                Ok(Transformed::yes(Arc::clone(filter)))
            }
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(filters.data)
    }

    fn name(&self) -> &str {
        "safe_projections"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether the node is a projection of what could fail.
fn projects_unsafe(node: &Arc<dyn ExecutionPlan>) -> bool {
    let projection = node.downcast_ref::<ProjectionExec>();
    projection.is_some_and(|projection| projection.expr().iter().any(|named| could_fail(&named.expr)))
}

/// Whether the node is a nested loop with a condition that could fail.
fn joins_unsafe(node: &Arc<dyn ExecutionPlan>) -> bool {
    let join = node.downcast_ref::<NestedLoopJoinExec>();
    join.and_then(NestedLoopJoinExec::filter).is_some_and(|filter| could_fail(filter.expression()))
}

/// How the first rows of an order are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstRows {
    /// By DataFusion's heap.
    Heap,
    /// By [`FirstRowsExec`].
    Selected,
    /// By a sort of all rows, which may spill.
    AllSorted,
}

/// Chooses how the first rows of an order are found.
#[derive(Debug)]
struct ManyFirstRows {
    bytes_max: usize,
}

impl ManyFirstRows {
    fn choose(&self, sort: &SortExec) -> DataFusionResult<Option<FirstRows>> {
        let Some(row_count) = sort.fetch() else { return Ok(None) };
        let schema = sort.input().schema();
        let types = sort.expr().iter().map(|key| key.expr.data_type(&schema));
        let types = types.collect::<DataFusionResult<Vec<_>>>()?;
        let heap_count = sort.properties().output_partitioning().partition_count();
        let row_bytes = expected_row_bytes(&sort.schema());
        let has_long_keys =
            types.iter().any(|key| key.primitive_width().is_none() && *key != DataType::Boolean);
        Ok(Some(if row_count <= HEAP_ROWS_MAX && !has_long_keys {
            let bytes = row_count.saturating_mul(row_bytes + HEAP_ROW_BYTES);
            match bytes.saturating_mul(heap_count) <= self.bytes_max {
                true => FirstRows::Heap,
                false => FirstRows::AllSorted,
            }
        } else if row_count.saturating_mul(row_bytes + SELECTED_ROW_BYTES) <= 2 * self.bytes_max {
            // Twice as many rows are held.
            FirstRows::Selected
        } else {
            FirstRows::AllSorted
        }))
    }

    fn selected(&self, sort: &SortExec, fetch: usize) -> FirstRowsExec {
        FirstRowsExec::new(sort.input().clone(), sort.expr().clone(), 0, fetch, self.bytes_max)
    }

    fn changed(&self, node: &Arc<dyn ExecutionPlan>) -> DataFusionResult<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(sort) = node.downcast_ref::<SortExec>() {
            let (choice, Some(fetch)) = (self.choose(sort)?, sort.fetch()) else { return Ok(None) };
            return Ok(match choice {
                Some(FirstRows::AllSorted) => {
                    let all = Arc::new(sort.with_fetch(None));
                    Some(if sort.preserve_partitioning() {
                        Arc::new(LocalLimitExec::new(all, fetch)) as _
                    } else {
                        Arc::new(GlobalLimitExec::new(all, 0, Some(fetch))) as _
                    })
                }
                // Of several partitions it takes the place of their merge too.
                Some(FirstRows::Selected) if !sort.preserve_partitioning() => {
                    Some(Arc::new(self.selected(sort, fetch)))
                }
                _ => None,
            });
        }
        if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
            let sort = merge.input().downcast_ref::<SortExec>();
            let (Some(sort), Some(fetch)) = (sort, merge.fetch()) else { return Ok(None) };
            let is_selected = self.choose(sort)? == Some(FirstRows::Selected);
            return Ok(is_selected.then(|| Arc::new(self.selected(sort, fetch)) as _));
        }
        let Some(limit) = node.downcast_ref::<GlobalLimitExec>() else { return Ok(None) };
        let Some(rows) = limit.input().downcast_ref::<FirstRowsExec>() else { return Ok(None) };
        Ok(rows.limited(limit.skip(), limit.fetch()).map(|rows| Arc::new(rows) as _))
    }
}

impl PhysicalOptimizerRule for ManyFirstRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| match self.changed(&node)? {
            Some(changed) => Ok(Transformed::yes(changed)),
            None => Ok(Transformed::no(node)),
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "many_first_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What selecting keeps of a row beside the row, while it looks rows through.
const SELECTED_ROW_BYTES: usize = 32;
/// The heap allocates for each row that enters it, and copies keys whole: more rows, and rows with keys that may be long, are
/// selected.
const HEAP_ROWS_MAX: usize = 1024;
/// What a heap keeps of a row beside the row: its key in a form that compares, and where it is.
const HEAP_ROW_BYTES: usize = 96;
/// What text and bytes are expected to take beside their cell. A query that expects too little is refused memory, and runs again.
const TEXT_BYTES: usize = 32;

/// The bytes of a row of these columns, as far as they can be told.
fn expected_row_bytes(schema: &Schema) -> usize {
    let bytes = |data_type: &DataType| match data_type {
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).unwrap_or_default(),
        DataType::Utf8View | DataType::BinaryView => 16 + TEXT_BYTES,
        data_type => data_type.primitive_width().unwrap_or(16 + TEXT_BYTES),
    };
    schema.fields().iter().map(|field| bytes(field.data_type())).sum()
}

/// Makes joins and sorts stop and yield, and what a nested loop keeps be read once. One batch of a join's input may become
/// any number of batches of its output, and a sort has all of its output at hand; an operator above would otherwise take
/// them without ever waiting, so that nothing could stop the query.
#[derive(Debug)]
struct StoppableOutputs;

impl PhysicalOptimizerRule for StoppableOutputs {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let stoppable = plan.transform_up(|node| {
            let node = with_input_read_once(node)?;
            let gives_many = node.is::<HashJoinExec>()
                || node.is::<NestedLoopJoinExec>()
                || node.is::<CrossJoinExec>()
                || node.is::<SortMergeJoinExec>()
                || node.is::<SortExec>()
                || node.is::<FirstRowsExec>();
            Ok(if gives_many {
                Transformed::yes(Arc::new(StoppableExec::new(node)) as _)
            } else {
                Transformed::no(node)
            })
        })?;
        Ok(stoppable.data)
    }

    fn name(&self) -> &str {
        "stoppable_outputs"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Gives operators that keep batches, or send them to files, small ones that hold nothing else. What a sort gives points to
/// text of all its rows, and is made so too for the merge or join above.
fn with_compact_inputs(plan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let compact = plan.transform_up(|node| {
        if !node.is::<SortExec>() && !node.is::<RepartitionExec>() {
            return Ok(Transformed::no(node));
        }
        let inputs = node.children().into_iter();
        let inputs = inputs.map(|input| Arc::new(CompactExec::new(input.clone())) as _).collect();
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let is_sort = node.is::<SortExec>();
        let node = node.replace_children(inputs, options)?;
        Ok(Transformed::yes(if is_sort { Arc::new(CompactExec::new(node)) } else { node }))
    })?;
    Ok(compact.data)
}

/// Keeps a nested loop from reading its first input twice.
fn with_input_read_once(node: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    if !node.is::<NestedLoopJoinExec>() {
        return Ok(node);
    }
    let mut inputs: Vec<Arc<dyn ExecutionPlan>> = node.children().into_iter().cloned().collect();
    if let Some(first) = inputs.first_mut() {
        *first = Arc::new(StoppableExec::new(first.clone()));
    }
    node.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

fn merge_partitions(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.output_partitioning().partition_count() <= 1 {
        return plan;
    }
    match plan.output_ordering().cloned() {
        Some(ordering) => Arc::new(SortPreservingMergeExec::new(ordering, plan)),
        None => Arc::new(CoalescePartitionsExec::new(plan)),
    }
}
