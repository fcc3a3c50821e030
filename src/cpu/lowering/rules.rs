//! The physical rules that finish a plan.

use std::sync::Arc;

use crate::datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    config::ConfigOptions,
    error::Result as DataFusionResult,
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
        execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions},
        filter::FilterExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        limit::{GlobalLimitExec, LocalLimitExec},
        projection::{ProjectionExec, remove_unnecessary_projections},
        repartition::RepartitionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
    },
};
use arrow::datatypes::{DataType, Schema};
use pystachio_plan::Result;

use super::PlanForm;
use crate::{compact::CompactExec, error::from_datafusion, functions::could_fail, stopping::StoppableExec};

/// Places exchanges, pushes filters and limits, answers from statistics; one partition comes out, in the
/// order of the plan.
///
/// Absent of DataFusion's list are the rules that choose joins (the planner has), those for windows and
/// unbounded inputs, and the checks of other rules. The first rows of an order that could take more than
/// `first_rows_bytes_max` are sorted with all others.
pub(super) fn optimize(
    plan: Arc<dyn ExecutionPlan>,
    config: &Arc<ConfigOptions>,
    form: PlanForm,
    first_rows_bytes_max: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
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
        Arc::new(SortsOfManyFirstRows { bytes_max: first_rows_bytes_max }),
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
    Ok(merge_partitions(plan))
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

/// Sorts all rows where the first of them could take much memory. DataFusion keeps these in a heap, which can't spill; a
/// sort can.
#[derive(Debug)]
struct SortsOfManyFirstRows {
    bytes_max: usize,
}

impl PhysicalOptimizerRule for SortsOfManyFirstRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let sorted = plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            let Some(row_count) = sort.fetch() else { return Ok(Transformed::no(node)) };
            let heap_count = sort.properties().output_partitioning().partition_count();
            let row_bytes = expected_row_bytes(&sort.schema()) + HEAP_ROW_BYTES;
            if row_count.saturating_mul(row_bytes).saturating_mul(heap_count) <= self.bytes_max {
                return Ok(Transformed::no(node));
            }
            let all = Arc::new(sort.with_fetch(None));
            Ok(Transformed::yes(if sort.preserve_partitioning() {
                Arc::new(LocalLimitExec::new(all, row_count)) as _
            } else {
                Arc::new(GlobalLimitExec::new(all, 0, Some(row_count))) as _
            }))
        })?;
        Ok(sorted.data)
    }

    fn name(&self) -> &str {
        "sorts_of_many_first_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

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
                || node.is::<SortExec>();
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
