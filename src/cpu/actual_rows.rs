//! Which operator of DataFusion did the work of which operator of the plan, and how many rows it gave.
//!
//! DataFusion's rules put exchanges between operators, fuse limits with sorts, push filters down and merge
//! the phases of aggregates, so that nothing of a lowered operator keeps its identity. Both trees are
//! walked together instead. Every operator of the plan has a *place* in the other tree: operators that hand on
//! rows, then the one that does the work. What comes out of the first of them is what the operator
//! gave.
//!
//! Invariants: a count is shown only where the operators at a place are those that lowering makes; below
//! anything else nothing is. A count says if rows were kept back by what is above: limits, filters pushed
//! down, dynamic filters, joins with an empty build side.
//!
//! Deliberately absent: any part in running the query.

use std::{collections::HashSet, sync::Arc};

use crate::datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    physical_expr::{PhysicalExpr, expressions::DynamicFilterPhysicalExpr, utils::split_conjunction},
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, InputOrderMode,
        aggregates::{AggregateExec, AggregateMode},
        coalesce_partitions::CoalescePartitionsExec,
        coop::CooperativeExec,
        filter::FilterExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        limit::{GlobalLimitExec, LocalLimitExec},
        placeholder_row::PlaceholderRowExec,
        projection::ProjectionExec,
        repartition::RepartitionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        union::{InterleaveExec, UnionExec},
    },
};
use pystachio_plan::{ActualRows, Expression, Function, JoinKind, Operator, Relation};

use crate::{
    compact::CompactExec,
    expand::ExpandExec,
    first_rows::FirstRowsExec,
    given_rows::GivenRowsExec,
    lowering::{RightSide, aggregates_distinct_values, right_side, swaps_join},
    scan::RowGroupScanExec,
    screen::ScreenExec,
    shared::{self, SharedExec},
    stopping::StoppableExec,
    unnest::UnnestExec,
    window::{FirstOfPartitionsExec, WindowExec},
};

/// Rows of every operator below `root`, itself included, in preorder; `None` where it can't be told.
pub(crate) fn collect(root: &Relation, plan: &Arc<dyn ExecutionPlan>) -> Vec<Option<ActualRows>> {
    let mut walk = Walk { rows: Vec::new() };
    walk.visit(root, plan, Above::default());
    walk.rows
}

/// What operators above a place have done to its rows.
#[derive(Clone, Copy, Default)]
struct Above {
    /// A limit may have stopped it. Ends at what reads all of its input before it gives a row.
    limited: bool,
    /// A filter was pushed into it, or its rows may not have been read.
    reduced: bool,
}

struct Walk {
    rows: Vec<Option<ActualRows>>,
}

/// The operators at a place.
struct OperatorPlace<'a> {
    top: &'a Arc<dyn ExecutionPlan>,
    /// Operators that hand on rows, beginning with `top`.
    passing: Vec<&'a Arc<dyn ExecutionPlan>>,
    /// What is below them.
    working: &'a Arc<dyn ExecutionPlan>,
}

impl<'a> OperatorPlace<'a> {
    fn new(top: &'a Arc<dyn ExecutionPlan>) -> Self {
        let (mut passing, mut plan) = (Vec::new(), top);
        while (passes_rows(plan) || plan.is::<ScreenExec>())
            && let [child] = plan.children().as_slice()
        {
            passing.push(plan);
            if plan.is::<ScreenExec>() {
                // It is a part of the filter above.
                passing.clear();
            }
            plan = child;
        }
        Self { top, passing, working: plan }
    }

    /// Rows that came out.
    fn row_count(&self) -> Option<u64> {
        let operators = self.passing.iter().chain([&self.working]);
        let mut counts = operators.filter_map(|plan| plan.metrics()?.output_rows());
        counts.next().map(|count| count as u64)
    }

    fn is_limited(&self) -> bool {
        self.passing.iter().chain([&self.working]).any(|plan| limits_rows(plan))
    }

    /// What is below the first operator of a kind.
    fn below<T: ExecutionPlan>(&self) -> Option<(PlanReference<'a>, PlanReference<'a>)> {
        let found = self.passing.iter().find(|plan| plan.is::<T>())?;
        Some((found, found.children().first()?))
    }
}

/// An operator of DataFusion's.
type PlanReference<'a> = &'a Arc<dyn ExecutionPlan>;

impl Walk {
    fn visit(&mut self, relation: &Relation, plan: &Arc<dyn ExecutionPlan>, above: Above) {
        let place = OperatorPlace::new(plan);
        let own = self.rows.len();
        if let Some(given) = place.working.downcast_ref::<GivenRowsExec>()
            && given.is_of(relation)
        {
            return self.rows.extend(given.actual_rows(operator_count(relation)));
        }
        self.rows.push(None);
        match &relation.operator {
            Operator::Scan { .. } => {
                if scans(relation, place.working) {
                    self.rows[own] = rows_of(&place, above);
                }
            }
            Operator::Exchange { input, .. } => self.visit(input, plan, above),
            Operator::Project { input, .. } => {
                self.visit(input, plan, above);
                self.rows[own] = self.rows[own + 1];
            }
            Operator::Filter { input, predicate } => self.visit_filter(own, input, predicate, &place, above),
            Operator::Join { left, right, .. } => {
                self.visit_join(own, relation, [left, right], &place, above);
            }
            Operator::Aggregate { input, .. } => self.visit_aggregate(own, relation, input, &place, above),
            Operator::Sort { input, .. } | Operator::Limit { input, .. } if is_ambiguous(relation) => {
                self.rows[own] = counted(&place, above);
                let input = end_of_run(input);
                self.rows
                    .extend(std::iter::repeat_n(None, operator_count(relation) - operator_count(input) - 1));
                self.visit(input, place.working, Above { reduced: true, ..above });
            }
            Operator::Sort { input, .. } => {
                let below = place.below::<SortExec>().or_else(|| place.below::<FirstRowsExec>());
                let has_limit = below.is_some_and(|(sort, _)| sort.fetch().is_some());
                self.rows[own] = counted(&place, Above { limited: above.limited || has_limit, ..above });
                match below {
                    // Ordered input may let a sort with a limit stop early.
                    Some((_, below)) => {
                        let limited = has_limit && below.output_ordering().is_some();
                        self.visit(input, below, Above { limited, ..above });
                    }
                    None => self.visit(input, plan, above),
                }
            }
            Operator::Unnest { input, .. } => {
                self.rows[own] = counted(&place, above);
                match place.working.children().as_slice() {
                    [below] if place.working.is::<UnnestExec>() => self.visit(input, below, above),
                    _ => self.rows.extend(std::iter::repeat_n(None, operator_count(input))),
                }
            }
            Operator::Window { input, .. } => self.visit_window(own, input, &place, above),
            Operator::Limit { input, .. } => {
                self.rows[own] = counted(&place, above);
                // Where the limit was fused with another operator, that one is at the same place.
                let below = place.below::<GlobalLimitExec>().map_or(plan, |(_, below)| below);
                self.visit(input, below, Above { limited: true, ..above });
            }
            Operator::UnionAll { inputs, .. } => {
                let working = place.working;
                let children = working.children();
                if let [(input, _)] = inputs.as_slice() {
                    self.visit(input, plan, above);
                    self.rows[own] = self.rows[own + 1];
                } else if (working.is::<UnionExec>() || working.is::<InterleaveExec>())
                    && children.len() == inputs.len()
                    && inputs.iter().zip(&children).all(|((input, _), child)| covers(input, child))
                {
                    self.rows[own] = rows_of(&place, above);
                    let limited = above.limited || place.is_limited();
                    for ((input, _), child) in inputs.iter().zip(children) {
                        self.visit(input, child, Above { limited, ..above });
                    }
                } else {
                    inputs.iter().for_each(|(input, _)| self.skip(input));
                }
            }
        }
        debug_assert_eq!(self.rows.len(), own + operator_count(relation), "one entry an operator");
    }

    /// Below a window is the sort that it needs, and what looks for the first rows of its partitions.
    fn visit_window(&mut self, own: usize, input: &Relation, place: &OperatorPlace<'_>, above: Above) {
        self.rows[own] = counted(place, above);
        let below = |plan: PlanReference<'_>| plan.children().first().copied().cloned();
        let Some(mut plan) = below(place.working).filter(|_| place.working.is::<WindowExec>()) else {
            return self.rows.extend(std::iter::repeat_n(None, operator_count(input)));
        };
        let sorted = OperatorPlace::new(&plan);
        if sorted.working.is::<SortExec>()
            && let Some(unsorted) = below(sorted.working)
        {
            plan = unsorted;
        }
        let first = OperatorPlace::new(&plan);
        if first.working.is::<FirstOfPartitionsExec>()
            && let Some(all) = below(first.working)
        {
            self.rows[own] = counted(place, Above { reduced: true, ..above });
            plan = all;
        }
        self.visit(input, &plan, above);
    }

    /// A filter that is not where it was made has gone down, and what is below gave fewer rows for it.
    fn visit_filter(
        &mut self,
        own: usize,
        input: &Relation,
        predicate: &Expression,
        place: &OperatorPlace<'_>,
        above: Above,
    ) {
        let Some(filter) = place.working.downcast_ref::<FilterExec>() else {
            return self.visit(input, place.working, Above { reduced: true, ..above });
        };
        let (made, found) = (conjunct_count(predicate), split_conjunction(filter.predicate()).len());
        // More than there were: some are another filter's.
        self.rows[own] = rows_of(place, Above { reduced: above.reduced || found > made, ..above });
        let limited = above.limited || place.is_limited();
        self.visit(input, filter.input(), Above { limited, reduced: above.reduced || found != made });
    }

    fn visit_join(
        &mut self,
        own: usize,
        relation: &Relation,
        sides: [&Arc<Relation>; 2],
        place: &OperatorPlace<'_>,
        above: Above,
    ) {
        let Operator::Join { kind, keys, residual, build, .. } = &relation.operator else { return };
        let working = place.working;
        let is_join = working.is::<HashJoinExec>()
            || working.is::<NestedLoopJoinExec>()
            || working.is::<CrossJoinExec>()
            || working.is::<SortMergeJoinExec>();
        // It ends with the rows of either side.
        let is_merge = working.is::<SortMergeJoinExec>();
        let swapped = swaps_join(*kind, keys.len(), residual.is_some(), *build);
        let matched = match working.children().as_slice() {
            [first, second] if is_join => {
                let (left, right) = if swapped { (*second, *first) } else { (*first, *second) };
                (covers(sides[0], left) && covers(sides[1], right)).then_some([left, right])
            }
            _ => None,
        };
        let Some(children) = matched else {
            return sides.into_iter().for_each(|side| self.skip(side));
        };
        self.rows[own] = rows_of(place, above);
        let build_rows = OperatorPlace::new(children[usize::from(swapped)]).row_count();
        let unread = build_rows.is_none_or(|rows| rows == 0) || *kind == JoinKind::NullAwareAnti;
        let build = Above { limited: false, reduced: above.reduced || is_merge };
        let probe = Above {
            limited: above.limited || place.is_limited(),
            reduced: above.reduced || unread || is_merge,
        };
        let (left, right) = if swapped { (probe, build) } else { (build, probe) };
        self.visit(sides[0], children[0], left);
        match (right_side(relation), WholeAggregate::of(OperatorPlace::new(children[1]).working)) {
            (RightSide::Whole, _) => self.visit(sides[1], children[1], right),
            (RightSide::Grouped, Some(grouped)) => {
                let limited = grouped.limits_input(right.limited);
                self.visit(sides[1], grouped.input, Above { limited, ..right });
            }
            _ => self.skip(sides[1]),
        }
    }

    fn visit_aggregate(
        &mut self,
        own: usize,
        relation: &Relation,
        input: &Relation,
        place: &OperatorPlace<'_>,
        above: Above,
    ) {
        let Operator::Aggregate { groups, aggregates, .. } = &relation.operator else { return };
        if let Some(shared) = place.working.downcast_ref::<SharedExec>() {
            self.rows[own] = rows_of(place, above);
            let Some(part) = shared.part() else { return self.skip(input) };
            let part = OperatorPlace::new(part);
            return self.visit_aggregate(own, relation, input, &part, Above::default());
        }
        let Some(aggregate) = WholeAggregate::of(place.working) else {
            // Statistics have answered.
            if groups.is_empty() && place.working.is::<PlaceholderRowExec>() {
                self.rows[own] = rows_of(place, above);
            }
            return self.skip(input);
        };
        self.rows[own] = rows_of(place, above);
        let mut limited = aggregate.limits_input(above.limited || place.is_limited());
        let mut below = aggregate.input;
        if aggregates_distinct_values(aggregates) {
            let Some(distinct) = WholeAggregate::of(OperatorPlace::new(below).working) else {
                return self.skip(input);
            };
            limited = distinct.limits_input(limited);
            below = distinct.input;
        } else if let Some(distinct) = WholeAggregate::of(OperatorPlace::new(below).working)
            && let expanded = OperatorPlace::new(distinct.input).working
            && expanded.is::<ExpandExec>()
        {
            // What has no DISTINCT, and each distinct argument.
            let Some(rows) = expanded.children().first().copied() else { return self.skip(input) };
            limited = distinct.limits_input(limited);
            below = rows;
        }
        self.visit(input, below, Above { limited, ..above });
    }

    /// Leaves an operator and all below it without counts.
    fn skip(&mut self, relation: &Relation) {
        self.rows.extend(std::iter::repeat_n(None, operator_count(relation)));
    }
}

/// An aggregate with both of its phases.
struct WholeAggregate<'a> {
    last: &'a AggregateExec,
    input: &'a Arc<dyn ExecutionPlan>,
}

impl<'a> WholeAggregate<'a> {
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let last = plan.downcast_ref::<AggregateExec>()?;
        let input = match last.mode() {
            AggregateMode::Single | AggregateMode::SinglePartitioned => last.input(),
            AggregateMode::Final | AggregateMode::FinalPartitioned => {
                let first = OperatorPlace::new(last.input()).working.downcast_ref::<AggregateExec>()?;
                if *first.mode() != AggregateMode::Partial {
                    return None;
                }
                first.input()
            }
            _ => return None,
        };
        Some(Self { last, input })
    }

    /// Whether the aggregate may leave rows of its input unread, if its own are limited or not.
    fn limits_input(&self, limited: bool) -> bool {
        self.last.limit_options().is_some()
            || (limited && *self.last.input_order_mode() != InputOrderMode::Linear)
    }
}

/// What came out of a place of an operator that takes part in no limit.
fn rows_of(place: &OperatorPlace<'_>, above: Above) -> Option<ActualRows> {
    let limited = above.limited || place.is_limited();
    counted(place, Above { limited, reduced: above.reduced || is_filtered_from_above(place.working) })
}

/// What came out of a place.
fn counted(place: &OperatorPlace<'_>, above: Above) -> Option<ActualRows> {
    let row_count = place.row_count()?;
    let is_reduced = above.limited || above.reduced || is_filtered_from_above(place.top);
    Some(ActualRows { row_count, is_reduced })
}

/// Operators that give every row of their input, or those that operators above let through.
fn passes_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<ProjectionExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<StoppableExec>()
        || plan.is::<CompactExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<SortExec>()
        || plan.is::<FirstRowsExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.downcast_ref::<FilterExec>().is_some_and(|filter| {
            split_conjunction(filter.predicate())
                .into_iter()
                .all(|part| part.is::<DynamicFilterPhysicalExpr>())
        })
}

fn limits_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.fetch().is_some()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| aggregate.limit_options().is_some())
}

/// Whether an operator above `plan` gives filters to operators below it while the query runs.
fn is_filtered_from_above(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let (mut used, mut produced) = (HashSet::new(), HashSet::new());
    let mut note = |expression: &Arc<dyn PhysicalExpr>| {
        if expression.is::<DynamicFilterPhysicalExpr>() {
            used.insert(expression.expression_id());
        }
        Ok(TreeNodeRecursion::Continue)
    };
    let visited = plan.apply(|operator| {
        produced.extend(operator.dynamic_expressions_produced().iter().map(|filter| filter.expression_id()));
        operator
            .apply_expressions(&mut |expression| expression.apply(&mut note))
            .map(|_| TreeNodeRecursion::Continue)
    });
    visited.is_err() || !used.is_subset(&produced)
}

/// Whether a run of sorts, limits and projections is more than a sort below a limit: which of DataFusion's
/// operators is whose can't be told then.
fn is_ambiguous(relation: &Relation) -> bool {
    let (mut has_sort, mut has_limit, mut relation) = (false, false, relation);
    loop {
        relation = match &relation.operator {
            Operator::Sort { .. } if has_sort => return true,
            Operator::Limit { .. } if has_sort || has_limit => return true,
            Operator::Sort { input, .. } => {
                has_sort = true;
                input
            }
            Operator::Limit { input, .. } => {
                has_limit = true;
                input
            }
            Operator::Project { input, .. } => input,
            _ => return false,
        };
    }
}

/// The first operator that is no sort, limit or projection.
fn end_of_run(mut relation: &Relation) -> &Relation {
    while let Operator::Sort { input, .. } | Operator::Limit { input, .. } | Operator::Project { input, .. } =
        &relation.operator
    {
        relation = input;
    }
    relation
}

fn scans(relation: &Relation, plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Operator::Scan { table, columns, .. } = &relation.operator else { return false };
    plan.downcast_ref::<RowGroupScanExec>().is_some_and(|scan| scan.reads(table, columns))
}

/// Whether every scan below `plan` is one below `relation`.
fn covers(relation: &Relation, plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<RowGroupScanExec>() {
        return has_scan(relation, plan);
    }
    if let Some(given) = plan.downcast_ref::<GivenRowsExec>() {
        return has_part(relation, given);
    }
    shared::inputs(plan).into_iter().all(|child| covers(relation, child))
}

fn has_scan(relation: &Relation, plan: &Arc<dyn ExecutionPlan>) -> bool {
    scans(relation, plan) || relation.inputs().into_iter().any(|input| has_scan(input, plan))
}

fn has_part(relation: &Relation, given: &GivenRowsExec) -> bool {
    given.is_of(relation) || relation.inputs().into_iter().any(|input| has_part(input, given))
}

fn conjunct_count(predicate: &Expression) -> usize {
    match predicate {
        Expression::Call { function: Function::And, arguments, .. } => {
            arguments.iter().map(conjunct_count).sum()
        }
        _ => 1,
    }
}

fn operator_count(relation: &Relation) -> usize {
    1 + relation.inputs().into_iter().map(|input| operator_count(input)).sum::<usize>()
}
