//! Grouping, DISTINCT, and subexpressions that aggregates share.
//!
//! - An aggregate runs in two phases, before and after rows are exchanged by group.
//! - Aggregates that are all DISTINCT over one argument become a grouping by that argument below a plain
//!   aggregate.
//! - Other DISTINCT aggregates become groupings by their arguments too, where groups are many or memory is short: every
//!   row is given once for each argument, and once for the other aggregates (`expand.rs`). Otherwise each aggregate keeps its
//!   distinct values in a table for each group, of some 30 kB for texts, or in one table for all groups, for integers. Such
//!   tables can't spill.
//! - Subexpressions that several arguments contain are computed once, below. Only those are shared that
//!   every row evaluates anyway, so that sharing raises no error of its own.
//! - FILTER guards the argument: a row that it drops does not evaluate the argument.
//! - Arrays of values are made in one phase where there are groups: the first of two would pass on as much as it takes.
//! - Groups of floats are formed by normalised keys and show the value of one of their rows.

use std::sync::Arc;

use crate::datafusion::{
    common::ScalarValue,
    physical_expr::{PhysicalExpr, expressions::lit},
    physical_plan::{
        ExecutionPlan,
        aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
        expressions::Column,
        placeholder_row::PlaceholderRowExec,
        udaf::AggregateFunctionExpr,
    },
};
use pystachio_plan::{
    Aggregate, AggregateCall, CaseBranch, ColumnId, DataType, Error, Estimate, Expression, Function,
    NamedExpression, Relation, Result, SortKey, Value,
};

use super::{Lowering, PlanForm, Required, expressions::PhysicalInput, positions, project, require_columns};
use crate::{
    column_name,
    error::from_datafusion,
    expand::{ExpandExec, RowForm},
};

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
        let plan = if self.is_own_scan(input) {
            // Without groups, min and max of columns may come from statistics.
            self.lower_scan(input, &[], &needed, groups.is_empty())?
        } else {
            self.lower(input, &needed, depth + 1)?
        };
        let group_part = match groups.iter().any(|group| is_part_of_document(&group.expression)) {
            // The planner takes it for as different as the documents. Groups are made before rows are divided by them.
            true => 0.0,
            false => estimate.rows / input.estimate.rows.max(1.0),
        };
        let plan = self.share_subexpressions(plan, &mut grouping, group_part > SINGLE_PHASE_PART)?;
        let plan = match self.single_distinct(&mut grouping) {
            Some(distinct) => self.group(plan, &distinct, f64::INFINITY)?,
            None if self.expands(&grouping, estimate) => {
                return self
                    .group_expanded(plan, &grouping)
                    .and_then(|plan| restore_duplicates(plan, groups, calls, &duplicates));
            }
            None => plan,
        };
        let plan = self.group(plan, &grouping, group_part)?;
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
        let collects = grouping.calls.iter().any(|call| call.function == Aggregate::Array);
        let single_phase = !grouping.groups.is_empty() && (collects || group_part > SINGLE_PHASE_PART);
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

    /// Computes subexpressions that occur more than once in a projection below, and refers to them. `reads_keys_twice`: so do keys, as rows
    /// are divided by them before they are grouped.
    fn share_subexpressions(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        grouping: &mut Grouping,
        reads_keys_twice: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut seen: Vec<(Expression, usize)> = Vec::new();
        grouping.expressions().for_each(|expression| count_subexpressions(expression, &mut seen));
        let shared: Vec<(Expression, ColumnId)> = seen
            .into_iter()
            .filter(|(expression, count)| {
                let is_key = || grouping.groups.iter().any(|group| group.expression == *expression);
                *count > 1 || (reads_keys_twice && is_key())
            })
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

    /// Whether DISTINCT aggregates become groupings by their arguments.
    fn expands(&self, grouping: &Grouping, estimate: Estimate) -> bool {
        let mut distinct = grouping.calls.iter().filter(|call| call.distinct);
        let has_no_table = |call: &AggregateCall| {
            matches!(call.function, Aggregate::Array | Aggregate::BitXor) || counts_rows(call)
        };
        if distinct.clone().any(has_no_table) {
            return true;
        }
        match self.form {
            PlanForm::Spilling => distinct.next().is_some(),
            PlanForm::Fast => estimate.rows > TABLE_GROUPS_MAX && !distinct.all(has_one_table),
        }
    }

    /// The grouping, with DISTINCT aggregates over values that a grouping below has made distinct.
    ///
    /// ```text
    /// rows ─► each in its forms ─► by groups, argument, form ─► by groups
    ///         form 0: groups, what aggregates without DISTINCT read
    ///         form n: groups, the n-th distinct argument
    /// ```
    fn group_expanded(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        grouping: &Grouping,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let form = NamedExpression {
            id: self.fresh_column(),
            expression: Expression::literal(Value::Int(0), DataType::Int64),
        };
        let name = |expression: &Expression| NamedExpression {
            id: self.fresh_column(),
            expression: expression.clone(),
        };
        let groups: Vec<NamedExpression> =
            grouping.groups.iter().map(|group| name(&group.expression)).collect();
        let mut distinct: Vec<NamedExpression> = Vec::new();
        let mut conditions: Vec<Option<Expression>> = Vec::new();
        let (mut below, mut above) = (Vec::new(), Vec::new());
        for call in &grouping.calls {
            if call.distinct {
                let (argument, condition) = distinct_form(call)?;
                let mut known = distinct.iter().zip(&conditions);
                let known = known.position(|known| known.0.expression == argument && *known.1 == condition);
                let index = known.unwrap_or(distinct.len());
                if known.is_none() {
                    distinct.push(name(&argument));
                    conditions.push(condition);
                }
                let filter = Some(is_form(&form, index + 1));
                above.push(AggregateCall { filter, ..of_distinct(call, column_of(&distinct[index])) });
            } else {
                let partial = AggregateCall { id: self.fresh_column(), ..call.clone() };
                above.push(AggregateCall {
                    function: Aggregate::AnyValue,
                    argument: Some(Expression::column(partial.id, call.data_type.clone())),
                    filter: Some(is_form(&form, 0)),
                    order: Vec::new(),
                    ..call.clone()
                });
                let conditions = [is_form(&form, 0)].into_iter().chain(call.filter.clone()).collect();
                below.push(guarded(&AggregateCall { filter: Expression::all_of(conditions), ..partial }));
            }
        }
        let plan = self.expand(plan, [groups.as_slice(), &distinct], (&form, &conditions), &below)?;
        let keys = groups.iter().chain(&distinct).chain([&form]);
        let keys = keys.map(|key| NamedExpression { id: key.id, expression: column_of(key) }).collect();
        let group_part = match self.form {
            PlanForm::Fast => 0.0,
            PlanForm::Spilling => f64::INFINITY,
        };
        let plan = self.group(plan, &Grouping { groups: keys, calls: below }, group_part)?;
        let outputs = grouping.groups.iter().zip(&groups);
        let outputs = outputs
            .map(|(group, key)| NamedExpression { id: group.id, expression: column_of(key) })
            .collect();
        let plan = self.group(plan, &Grouping { groups: outputs, calls: above }, 0.0)?;
        if grouping.groups.is_empty() { self.with_counts_of_nothing(plan, &grouping.calls) } else { Ok(plan) }
    }

    /// Gives each row once for what has no DISTINCT, and once for each distinct argument. A row for which the argument's condition is not true
    /// has no form.
    fn expand(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        [groups, distinct]: [&[NamedExpression]; 2],
        (form, conditions): (&NamedExpression, &[Option<Expression>]),
        calls: &[AggregateCall],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = plan.schema();
        let input = self.input(&plan)?;
        let mut names = vec![column_name(form.id)];
        let mut first = vec![input.physical(&form.expression)?];
        for named in groups.iter().chain(distinct) {
            names.push(column_name(named.id));
            first.push(input.physical(&named.expression)?);
        }
        let mut needed = Required::new();
        let read = calls.iter().flat_map(AggregateCall::inputs);
        read.for_each(|expression| require_columns(expression, &mut needed));
        needed.remove(&form.id);
        for index in positions(&plan, &needed) {
            let name = schema.field(index).name();
            names.push(name.clone());
            first.push(Arc::new(Column::new(name, index)));
        }
        let nulls = first
            .iter()
            .map(|expression| {
                let null =
                    expression.data_type(&schema).and_then(|data_type| ScalarValue::try_from(&data_type));
                Ok(lit(null.map_err(|error| from_datafusion(&error))?))
            })
            .collect::<Result<RowForm>>()?;
        let distinct_range = 1 + groups.len()..1 + groups.len() + distinct.len();
        let number_of = |number: usize| {
            let literal = Expression::literal(Value::Int(number as i64), DataType::Int64);
            let condition = number.checked_sub(1).and_then(|place| conditions.get(place)?.clone());
            input.physical(&match condition {
                Some(condition) => where_true(condition, literal),
                None => literal,
            })
        };
        let numbers = (0..=distinct.len()).map(number_of).collect::<Result<Vec<_>>>()?;
        let forms = numbers.into_iter().enumerate().map(|(number, shown)| {
            let is_kept = |index: usize| match distinct_range.contains(&index) {
                true => number > 0 && index == groups.len() + number,
                false => index < distinct_range.start || number == 0,
            };
            let columns = first.iter().zip(&nulls).enumerate().skip(1);
            let columns = columns.map(|(index, (column, null))| if is_kept(index) { column } else { null });
            [shown].into_iter().chain(columns.cloned()).collect()
        });
        let expanded = ExpandExec::try_new(plan, names, forms.collect());
        Ok(Arc::new(expanded.map_err(|error| from_datafusion(&error))?))
    }

    /// Aggregates of no rows at all: a count of them is 0, which no form of a row has given.
    fn with_counts_of_nothing(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        calls: &[AggregateCall],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = self.input(&plan)?;
        let columns = calls
            .iter()
            .map(|call| {
                let mut column = Expression::column(call.id, call.data_type.clone());
                if call.function == Aggregate::Count {
                    let zero = Expression::literal(Value::Int(0), call.data_type.clone());
                    column = Expression::call(Function::Coalesce, vec![column, zero], call.data_type.clone());
                }
                Ok((input.physical(&column)?, column_name(call.id)))
            })
            .collect::<Result<Vec<_>>>()?;
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
            *call = of_distinct(call, Expression::column(id, argument.data_type().clone()));
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
        groups.chain(self.calls.iter().flat_map(AggregateCall::inputs))
    }

    fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let groups = self.groups.iter_mut().map(|group| &mut group.expression);
        groups.chain(self.calls.iter_mut().flat_map(AggregateCall::inputs_mut))
    }
}

/// Whether an aggregate with these calls is lowered to two, of which the lower makes values distinct.
pub(crate) fn aggregates_distinct_values(calls: &[AggregateCall]) -> bool {
    let calls: Vec<AggregateCall> = calls.iter().map(guarded).collect();
    distinct_argument(&calls).is_some()
}

/// Expected groups for each of which a table of distinct values is made: rows are given once then. If there are more groups,
/// their tables are counted, and the query runs again with operators that spill.
const TABLE_GROUPS_MAX: f64 = 100.0;

/// Whether DataFusion keeps the call's distinct values in one table for all groups.
fn has_one_table(call: &AggregateCall) -> bool {
    let data_type = call.argument.as_ref().map(Expression::data_type);
    call.function == Aggregate::Count
        && matches!(data_type, Some(DataType::Int16 | DataType::Int32 | DataType::Int64))
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

/// Whether a key is a part of a JSON document.
fn is_part_of_document(key: &Expression) -> bool {
    matches!(
        key,
        Expression::Call {
            function: Function::JsonPart
                | Function::JsonbPart
                | Function::JsonPartText
                | Function::JsonbPartText
                | Function::JsonType
                | Function::JsonbType,
            ..
        }
    )
}

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
        Aggregate::Min
            | Aggregate::Max
            | Aggregate::BoolAnd
            | Aggregate::BoolOr
            | Aggregate::BitAnd
            | Aggregate::BitOr
            | Aggregate::AnyValue
    ) {
        call.distinct = false;
    }
    if let Some(filter) = call.filter.clone() {
        let keys = call.order.iter_mut().map(|key| &mut key.expression);
        for input in call.argument.iter_mut().chain(keys) {
            match input {
                Expression::Call { function: Function::Row, arguments, .. } => {
                    arguments.iter_mut().for_each(|argument| guard(argument, &filter));
                }
                single => guard(single, &filter),
            }
        }
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

/// The argument of a DISTINCT aggregate, NULL where its condition drops a row, and the condition if that is not enough: other aggregates
/// than arrays, and than counts of composite values, leave NULL out.
fn distinct_form(call: &AggregateCall) -> Result<(Expression, Option<Expression>)> {
    let argument = call.argument.clone().ok_or_else(|| Error::internal("DISTINCT without an argument"))?;
    Ok(match &call.filter {
        Some(filter) if call.function == Aggregate::Array || counts_rows(call) => {
            (argument, Some(filter.clone()))
        }
        Some(filter) => (where_true(filter.clone(), argument), None),
        None => (argument, None),
    })
}

/// Whether composite values are counted, of which none is NULL.
fn counts_rows(call: &AggregateCall) -> bool {
    let data_type = call.argument.as_ref().map(Expression::data_type);
    matches!(data_type, Some(DataType::Record(_)))
}

/// The DISTINCT call over a column that has the values once. The only key of its order is its argument, or its key in an order.
fn of_distinct(call: &AggregateCall, column: Expression) -> AggregateCall {
    let key_of = |key: &SortKey| {
        let expression = match &key.expression {
            Expression::Call { function: function @ Function::SortKey(_), data_type, .. } => {
                Expression::call(*function, vec![column.clone()], data_type.clone())
            }
            _ => column.clone(),
        };
        SortKey { expression, ..key.clone() }
    };
    let order = call.order.iter().map(key_of).collect();
    AggregateCall { argument: Some(column), distinct: false, filter: None, order, ..call.clone() }
}

/// Makes what may fail be evaluated only where a condition is true.
fn guard(value: &mut Expression, condition: &Expression) {
    if matches!(value, Expression::Call { .. } | Expression::Case { .. }) {
        *value = where_true(condition.clone(), value.clone());
    }
}

/// The value where a condition is true, and NULL elsewhere.
fn where_true(condition: Expression, value: Expression) -> Expression {
    Expression::Case {
        data_type: value.data_type().clone(),
        branches: vec![CaseBranch { condition, result: value }],
        otherwise: None,
    }
}

fn column_of(named: &NamedExpression) -> Expression {
    Expression::column(named.id, named.expression.data_type().clone())
}

/// Whether a row is in the form of this number.
fn is_form(form: &NamedExpression, number: usize) -> Expression {
    let number = Expression::literal(Value::Int(number as i64), DataType::Int64);
    Expression::predicate(Function::Equal, vec![column_of(form), number])
}

fn any_value(group: &NamedExpression) -> AggregateCall {
    AggregateCall {
        id: group.id,
        function: Aggregate::AnyValue,
        argument: Some(group.expression.clone()),
        distinct: false,
        filter: None,
        data_type: group.expression.data_type().clone(),
        order: Vec::new(),
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

/// Counts the calls and CASEs in an expression that every row evaluates and that are worth sharing.
fn count_subexpressions(expression: &Expression, seen: &mut Vec<(Expression, usize)>) {
    if !matches!(expression, Expression::Call { .. } | Expression::Case { .. }) {
        return;
    }
    // A condition compiles to a bitmap, which is cheap to compute again and may guard what follows.
    if *expression.data_type() != DataType::Bool && reads_column(expression) {
        match seen.iter_mut().find(|(other, _)| other == expression) {
            Some((_, count)) => {
                *count += 1;
                return;
            }
            None => seen.push((expression.clone(), 1)),
        }
    }
    match expression {
        Expression::Call { function, arguments, .. } if !is_conditional(function) => {
            arguments.iter().for_each(|argument| count_subexpressions(argument, seen));
        }
        Expression::Case { branches, .. } => {
            branches.iter().take(1).for_each(|branch| count_subexpressions(&branch.condition, seen));
        }
        _ => {}
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
