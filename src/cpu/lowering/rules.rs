//! The physical rules that finish a plan.

use std::sync::Arc;

use crate::datafusion::{
    common::tree_node::{Transformed, TreeNode},
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
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec},
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
    },
};
use pystachio_plan::Result;

use crate::{error::from_datafusion, stopping::StoppableExec};

/// Places exchanges, pushes filters and limits, answers from statistics; one partition comes out, in the
/// order of the plan.
///
/// Absent of DataFusion's list are the rules that choose joins (the planner has), those for windows and
/// unbounded inputs, and the checks of other rules.
pub(super) fn optimize(
    plan: Arc<dyn ExecutionPlan>,
    config: &Arc<ConfigOptions>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let rules: [Arc<dyn PhysicalOptimizerRule + Send + Sync>; 15] = [
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
        Arc::new(ProjectionPushdown::new()),
        Arc::new(EnsureCooperative::new()),
        Arc::new(FilterPushdown::new_post_optimization()),
        Arc::new(StoppableOutputs),
    ];
    let mut plan = plan;
    for rule in rules {
        plan = rule.optimize(plan, config).map_err(|error| from_datafusion(&error))?;
    }
    Ok(merge_partitions(plan))
}

/// Makes joins and sorts stop and yield. One batch of a join's input may become any number of batches of its
/// output, and a sort has all of its output at hand; an operator above would otherwise take them without ever
/// waiting, so that nothing could stop the query.
#[derive(Debug)]
struct StoppableOutputs;

impl PhysicalOptimizerRule for StoppableOutputs {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let stoppable = plan.transform_up(|node| {
            let gives_many = node.is::<HashJoinExec>()
                || node.is::<NestedLoopJoinExec>()
                || node.is::<CrossJoinExec>()
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

fn merge_partitions(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.output_partitioning().partition_count() <= 1 {
        return plan;
    }
    match plan.output_ordering().cloned() {
        Some(ordering) => Arc::new(SortPreservingMergeExec::new(ordering, plan)),
        None => Arc::new(CoalescePartitionsExec::new(plan)),
    }
}
