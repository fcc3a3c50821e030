//! Grouping, DISTINCT, and subexpressions that aggregates share.
//!
//! - An aggregate runs in two phases, before and after rows are exchanged by group.
//! - Aggregates that are all DISTINCT over one argument become a grouping by that argument below a plain
//!   aggregate.
//! - Subexpressions that several arguments contain are computed once, below. Only those are shared that
//!   every row evaluates anyway, so that sharing raises no error of its own.
//! - FILTER guards the argument: a row that it drops does not evaluate the argument.
//! - Groups of floats are formed by normalised keys and show the value of one of their rows.

use std::sync::Arc;

use crate::datafusion::{
    physical_expr::PhysicalExpr,
    physical_plan::{
        ExecutionPlan,
        aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
        expressions::Column,
        placeholder_row::PlaceholderRowExec,
        udaf::AggregateFunctionExpr,
    },
};
use pystachio_plan::{
    Aggregate, AggregateCall, CaseBranch, ColumnId, DataType, Estimate, Expression, Function,
    NamedExpression, Operator, Relation, Result, Value,
};

use super::{Lowering, Required, expressions::PhysicalInput, project, require_columns};
use crate::{column_name, error::from_datafusion};

/// Groups and aggregates over one input.
struct Grouping {
    groups: Vec<NamedExpression>,
    calls: Vec<AggregateCall>,
}

impl Lowering<'_> {
    pub(super) fn lower_aggregate(
        &self,
        input: &Relation,
        groups: &[NamedExpression],
        calls: &[AggregateCall],
        estimate: Estimate,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if groups.is_empty() && calls.is_empty() {
            let schema = Arc::new(arrow::datatypes::Schema::empty());
            return Ok(Arc::new(PlaceholderRowExec::new(schema)));
        }
        let mut grouping = Grouping { groups: groups.to_vec(), calls: calls.iter().map(guarded).collect() };
        let duplicates = remove_duplicates(&mut grouping.calls);
        let mut needed = Required::new();
        grouping.expressions().for_each(|expression| require_columns(expression, &mut needed));
        let plan = if matches!(input.operator, Operator::Scan { .. }) {
            // Without groups, min and max of columns may come from statistics.
            self.lower_scan(input, &needed, groups.is_empty())?
        } else {
            self.lower(input, &needed, depth + 1)?
        };
        let plan = self.share_subexpressions(plan, &mut grouping)?;
        let plan = match self.single_distinct(&mut grouping) {
            Some(distinct) => self.group(plan, &distinct, f64::INFINITY)?,
            None => plan,
        };
        let plan = self.group(plan, &grouping, estimate.rows / input.estimate.rows.max(1.0))?;
        restore_duplicates(plan, groups, calls, &duplicates)
    }

    /// The two phases of an aggregate. `group_part` is the number of groups against that of rows.
    fn group(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        grouping: &Grouping,
        group_part: f64,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = self.input(&plan)?;
        let mut calls = Vec::new();
        let mut keys: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
        let mut outputs: Vec<(String, String)> = Vec::new();
        for group in &grouping.groups {
            let key = input.physical_key(&group.expression)?;
            let output = column_name(group.id);
            if group.expression.data_type().is_float() {
                keys.push((key, column_name(self.fresh_column())));
                calls.push(any_value(group));
                outputs.push((output.clone(), output));
                continue;
            }
            let name = self.group_name(group, &keys);
            outputs.push((name.clone(), output));
            keys.push((key, name));
        }
        outputs.extend(grouping.calls.iter().map(|call| (column_name(call.id), column_name(call.id))));
        calls.extend(grouping.calls.iter().cloned());
        let (aggregates, filters) = physical_aggregates(&input, &calls)?;
        let group_by = PhysicalGroupBy::new_single(keys);
        let schema = plan.schema();
        let single_phase = !grouping.groups.is_empty() && group_part > SINGLE_PHASE_PART;
        let exec = if single_phase {
            AggregateExec::try_new(
                AggregateMode::SinglePartitioned,
                group_by,
                aggregates,
                filters,
                plan,
                schema,
            )
        } else {
            let final_mode = if grouping.groups.is_empty() {
                AggregateMode::Final
            } else {
                AggregateMode::FinalPartitioned
            };
            let final_groups = group_by.as_final();
            AggregateExec::try_new(
                AggregateMode::Partial,
                group_by,
                aggregates.clone(),
                filters.clone(),
                plan,
                schema.clone(),
            )
            .and_then(|partial| {
                AggregateExec::try_new(
                    final_mode,
                    final_groups,
                    aggregates,
                    filters,
                    Arc::new(partial),
                    schema,
                )
            })
        };
        let exec = exec.map_err(|error| from_datafusion(&error))?;
        rename(Arc::new(exec), &outputs)
    }

    /// What a group's column is called inside the aggregate. A filter on it that a join above pushes down
    /// finds the aggregate's input by this name, so it is the input column's where the group is one, and
    /// otherwise one that the input does not have.
    fn group_name(&self, group: &NamedExpression, keys: &[(Arc<dyn PhysicalExpr>, String)]) -> String {
        let name = match &group.expression {
            Expression::Column { id, .. } => column_name(*id),
            _ => column_name(self.fresh_column()),
        };
        if keys.iter().any(|(_, other)| *other == name) { column_name(self.fresh_column()) } else { name }
    }

    /// Computes subexpressions that occur more than once in a projection below, and refers to them.
    fn share_subexpressions(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        grouping: &mut Grouping,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut seen: Vec<(Expression, usize)> = Vec::new();
        grouping.expressions().for_each(|expression| count_subexpressions(expression, &mut seen));
        let shared: Vec<(Expression, ColumnId)> = seen
            .into_iter()
            .filter(|(_, count)| *count > 1)
            .map(|(expression, _)| (expression, self.fresh_column()))
            .collect();
        if shared.is_empty() {
            return Ok(plan);
        }
        let mut used = Vec::new();
        for expression in grouping.expressions_mut() {
            replace_shared(expression, &shared, &mut used);
        }
        let mut needed = Required::new();
        grouping.expressions().for_each(|expression| require_columns(expression, &mut needed));
        let input = self.input(&plan)?;
        let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
        for (index, field) in plan.schema().fields().iter().enumerate() {
            if needed.iter().any(|id| column_name(*id) == *field.name()) {
                columns.push((Arc::new(Column::new(field.name(), index)), field.name().clone()));
            }
        }
        for (expression, id) in &shared {
            if used.contains(id) {
                columns.push((input.physical(expression)?, column_name(*id)));
            }
        }
        project(plan, columns)
    }

    /// If every aggregate is DISTINCT over the same argument: the grouping that makes the argument's
    /// values distinct. `grouping` then aggregates its result.
    fn single_distinct(&self, grouping: &mut Grouping) -> Option<Grouping> {
        let argument = distinct_argument(&grouping.calls)?.clone();
        let id = self.fresh_column();
        let mut groups = grouping.groups.clone();
        groups.push(NamedExpression { id, expression: argument.clone() });
        for call in &mut grouping.calls {
            call.distinct = false;
            call.argument = Some(Expression::column(id, argument.data_type().clone()));
        }
        for group in &mut grouping.groups {
            group.expression = Expression::column(group.id, group.expression.data_type().clone());
        }
        Some(Grouping { groups, calls: Vec::new() })
    }
}

impl Grouping {
    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let groups = self.groups.iter().map(|group| &group.expression);
        groups.chain(self.calls.iter().flat_map(|call| call.argument.iter().chain(&call.filter)))
    }

    fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let groups = self.groups.iter_mut().map(|group| &mut group.expression);
        groups.chain(self.calls.iter_mut().flat_map(|call| call.argument.iter_mut().chain(&mut call.filter)))
    }
}

/// Whether an aggregate with these calls is lowered to two, of which the lower makes values distinct.
pub(crate) fn aggregates_distinct_values(calls: &[AggregateCall]) -> bool {
    let calls: Vec<AggregateCall> = calls.iter().map(guarded).collect();
    distinct_argument(&calls).is_some()
}

/// The argument that every call aggregates the distinct values of.
fn distinct_argument(calls: &[AggregateCall]) -> Option<&Expression> {
    let argument = calls.first()?.argument.as_ref()?;
    let same = |call: &AggregateCall| {
        call.distinct && call.filter.is_none() && call.argument.as_ref() == Some(argument)
    };
    calls.iter().all(same).then_some(argument)
}

/// From this part of groups to rows on, the first of two phases would hardly reduce the rows.
const SINGLE_PHASE_PART: f64 = 0.5;

type PhysicalAggregates = (Vec<Arc<AggregateFunctionExpr>>, Vec<Option<Arc<dyn PhysicalExpr>>>);

fn physical_aggregates(input: &PhysicalInput<'_>, calls: &[AggregateCall]) -> Result<PhysicalAggregates> {
    let mut aggregates = Vec::with_capacity(calls.len());
    let mut filters = Vec::with_capacity(calls.len());
    for call in calls {
        let expression = input.aggregate(call)?;
        let lowered = input
            .aggregate_builder(&expression)
            .with_name(column_name(call.id))
            .build()
            .map_err(|error| from_datafusion(&error))?;
        aggregates.push(lowered.aggregate);
        filters.push(lowered.filter);
    }
    Ok((aggregates, filters))
}

/// The call with its argument evaluated only where FILTER holds, and DISTINCT only where it matters.
fn guarded(call: &AggregateCall) -> AggregateCall {
    let mut call = call.clone();
    if matches!(
        call.function,
        Aggregate::Min | Aggregate::Max | Aggregate::BoolAnd | Aggregate::BoolOr | Aggregate::AnyValue
    ) {
        call.distinct = false;
    }
    let may_fail =
        |argument: &Expression| matches!(argument, Expression::Call { .. } | Expression::Case { .. });
    if let (Some(argument), Some(filter)) = (&call.argument, &call.filter)
        && may_fail(argument)
    {
        call.argument = Some(Expression::Case {
            data_type: argument.data_type().clone(),
            branches: vec![CaseBranch { condition: filter.clone(), result: argument.clone() }],
            otherwise: None,
        });
    }
    if let (true, Some(argument)) = (call.distinct, &call.argument)
        && argument.data_type().is_float()
    {
        // Distinct values are told apart by their bits; adding 0 leaves one zero.
        let data_type = argument.data_type().clone();
        let zero = Expression::literal(Value::Float(0.0), data_type.clone());
        call.argument = Some(Expression::call(Function::Add, vec![argument.clone(), zero], data_type));
    }
    call
}

fn any_value(group: &NamedExpression) -> AggregateCall {
    AggregateCall {
        id: group.id,
        function: Aggregate::AnyValue,
        argument: Some(group.expression.clone()),
        distinct: false,
        filter: None,
        data_type: group.expression.data_type().clone(),
    }
}

/// Removes calls that are equal to an earlier one; gives for each removed id the id that stands for it.
fn remove_duplicates(calls: &mut Vec<AggregateCall>) -> Vec<(ColumnId, ColumnId)> {
    let mut kept: Vec<AggregateCall> = Vec::with_capacity(calls.len());
    let mut duplicates = Vec::new();
    for call in calls.drain(..) {
        match kept.iter().find(|other| AggregateCall { id: call.id, ..(*other).clone() } == call) {
            Some(other) => duplicates.push((call.id, other.id)),
            None => kept.push(call),
        }
    }
    *calls = kept;
    duplicates
}

fn restore_duplicates(
    plan: Arc<dyn ExecutionPlan>,
    groups: &[NamedExpression],
    calls: &[AggregateCall],
    duplicates: &[(ColumnId, ColumnId)],
) -> Result<Arc<dyn ExecutionPlan>> {
    if duplicates.is_empty() {
        return Ok(plan);
    }
    let ids = groups.iter().map(|group| group.id).chain(calls.iter().map(|call| call.id));
    let columns: Vec<(String, String)> = ids
        .map(|id| {
            let source =
                duplicates.iter().find(|(duplicate, _)| *duplicate == id).map_or(id, |(_, kept)| *kept);
            (column_name(source), column_name(id))
        })
        .collect();
    rename(plan, &columns)
}

/// Columns of the plan by name, under new names.
fn rename(plan: Arc<dyn ExecutionPlan>, columns: &[(String, String)]) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let columns = columns
        .iter()
        .map(|(source, name)| {
            let column = Column::new_with_schema(source, &schema).map_err(|error| from_datafusion(&error))?;
            Ok((Arc::new(column) as Arc<dyn PhysicalExpr>, name.clone()))
        })
        .collect::<Result<Vec<_>>>()?;
    project(plan, columns)
}

/// Counts the calls in an expression that every row evaluates and that are worth sharing.
fn count_subexpressions(expression: &Expression, seen: &mut Vec<(Expression, usize)>) {
    let Expression::Call { function, arguments, data_type } = expression else { return };
    // A condition compiles to a bitmap, which is cheap to compute again and may guard what follows.
    if *data_type != DataType::Bool && reads_column(expression) {
        match seen.iter_mut().find(|(other, _)| other == expression) {
            Some((_, count)) => {
                *count += 1;
                return;
            }
            None => seen.push((expression.clone(), 1)),
        }
    }
    if !is_conditional(function) {
        arguments.iter().for_each(|argument| count_subexpressions(argument, seen));
    }
}

fn replace_shared(expression: &mut Expression, shared: &[(Expression, ColumnId)], used: &mut Vec<ColumnId>) {
    if let Some((_, id)) = shared.iter().find(|(other, _)| other == expression) {
        used.push(*id);
        *expression = Expression::column(*id, expression.data_type().clone());
        return;
    }
    match expression {
        Expression::Call { arguments, .. } => {
            arguments.iter_mut().for_each(|argument| replace_shared(argument, shared, used));
        }
        Expression::Case { branches, otherwise, .. } => {
            for branch in branches {
                replace_shared(&mut branch.condition, shared, used);
                replace_shared(&mut branch.result, shared, used);
            }
            if let Some(otherwise) = otherwise {
                replace_shared(otherwise, shared, used);
            }
        }
        Expression::Column { .. } | Expression::Literal(_) | Expression::Parameter { .. } => {}
    }
}

fn reads_column(expression: &Expression) -> bool {
    let mut found = false;
    expression.walk(&mut |part| found |= matches!(part, Expression::Column { .. }));
    found
}

/// Whether the function may leave arguments unevaluated.
fn is_conditional(function: &Function) -> bool {
    matches!(function, Function::Coalesce | Function::And | Function::Or)
}
