//! Compiles a plan into a tree of sources; joins are in `joins.rs`.

use std::sync::Arc;

use pystachio_plan::{
    AggregateCall, AggregatePhase, CaseBranch, ColumnId, DataType, Error, ErrorKind, Expression, Function,
    JoinKind, JoinSide, Literal, NamedExpression, Operator, OperatorMetrics, Plan, Relation, Result, SortKey,
    UnnestedArray, Value, WindowCall,
};

use super::{
    compiler::{CompiledPlan, Compiler, QueryResources, RefusedPlan},
    exchanges::{ExchangeOperator, rank_place, unread},
    joins::JoinOperator,
    picks::{Picks, aggregate_picks, same_place},
};
use crate::{
    execution::{
        Columns, CountedSource, QueryContext,
        aggregate::{AggregateSource, PlannedAggregate},
        expressions::{RowCondition, RowProgram},
        query::NO_OPERATOR,
        repeat::RepeatSource,
        row_wise::{FilterSource, LimitSource, ProjectSource, UnionSource},
        runtime_filter::FilterRoute,
        scan::{ScanPlace, ScanShare, ScanSource},
        shared::{SharedPart, SharedSource},
        sort::SortSource,
        window::{WindowOrder, WindowSource, WindowStage},
    },
    program::Program,
};

/// Relations nested deeper are refused, so that a plan can't exhaust the stack.
const DEPTH_MAX: usize = 500;

/// The sources of a plan. Blocks on files.
///
/// # Errors
///
/// Errors of the files; `NotSupported` if a kernel is missing.
pub(in crate::execution) fn compile(
    plan: &Plan,
    query: &mut QueryContext,
    resources: &QueryResources,
) -> std::result::Result<CompiledPlan, RefusedPlan> {
    let (picks, root) = Picks::of(plan).map_err(|error| RefusedPlan { error, operator: None })?;
    let picked = Plan { root: root.clone(), outputs: plan.outputs.clone() };
    let mut compiler = Compiler::new(&picked, picks, query, resources);
    match compile_whole(&picked, &mut compiler) {
        Ok(root) => {
            compiler.query.memory.expect_parts(resources.readers.part_bytes_max());
            Ok(CompiledPlan { root, reduced: compiler.scans.reduced })
        }
        Err(error) => {
            let refused = compiler.refused_operator;
            let operator = refused.and_then(|operator| same_place(&root, &plan.root, operator));
            Err(RefusedPlan { error, operator })
        }
    }
}

/// The sources of a plan whose picks are known.
fn compile_whole(plan: &Plan, compiler: &mut Compiler<'_>) -> Result<CountedSource> {
    let mut root = relation(&plan.root, FilterRoute::none(), compiler, 0)?;
    if !compiler.resources.exchanges.gives_rows() {
        // Other ranks run only the parts below exchanges.
        root = unread(root, NO_OPERATOR);
    }
    let outputs = plan
        .outputs
        .iter()
        .map(|id| {
            let column = root.columns.iter().find(|(known, _)| known == id);
            let (_, data_type) = column.ok_or_else(|| Error::internal("a plan returns an unknown column"))?;
            Ok(NamedExpression { id: *id, expression: Expression::column(*id, data_type.clone()) })
        })
        .collect::<Result<Vec<_>>>()?;
    project(root, &outputs, compiler)
}

/// The side that is hashed.
pub(super) fn build_side(kind: JoinKind, planned: JoinSide) -> JoinSide {
    // NULLs and emptiness of the right side are known only after it was read.
    if kind == JoinKind::NullAwareAnti { JoinSide::Right } else { planned }
}

/// Reserves a place for an operator's counts, above its inputs'.
pub(super) fn describe(compiler: &mut Compiler<'_>, description: String, depth: usize) -> usize {
    let operators = &mut compiler.query.metrics_mut().operators;
    operators.push(OperatorMetrics { description, depth: depth as u32, ..OperatorMetrics::default() });
    operators.len() - 1
}

/// The sources of a relation. `route`: the filters of joins above for its rows.
pub(super) fn relation(
    relation: &Relation,
    route: FilterRoute,
    compiler: &mut Compiler<'_>,
    depth: usize,
) -> Result<CountedSource> {
    let compiled = compile_operator(relation, route, compiler, depth);
    if let Err(error) = &compiled
        && error.kind == ErrorKind::NotSupported
    {
        // Those below were asked first.
        compiler.refused_operator.get_or_insert(std::ptr::from_ref(relation) as usize);
    }
    compiled
}

fn compile_operator(
    relation: &Relation,
    route: FilterRoute,
    compiler: &mut Compiler<'_>,
    depth: usize,
) -> Result<CountedSource> {
    if depth > DEPTH_MAX {
        let message = format!("the plan is nested more than {DEPTH_MAX} deep");
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    match &relation.operator {
        Operator::Scan { table, files, columns: scan_columns, filters, extent } => {
            let place = describe(compiler, format!("Scan {table}"), depth);
            let share = ScanShare::of(extent, scan_columns, || rank_place(compiler))?;
            let rank = compiler.scan_ranks.get(&(std::ptr::from_ref(relation) as usize)).copied();
            let rank = rank.unwrap_or(usize::MAX);
            let scan_place = ScanPlace { operator: place, rank, route: route.below(place), share };
            let compiled = (&mut compiler.scans, &mut *compiler.query);
            let source = ScanSource::open((table, files), scan_columns, filters, scan_place, compiled)?;
            Ok(CountedSource::new(source.columns(), source, place))
        }
        Operator::Filter { input, predicate } => {
            let place = describe(compiler, "Filter".to_owned(), depth);
            let route = route.below(place).past([predicate], input);
            let input = self::relation(input, route, compiler, depth + 1)?;
            let predicate = RowCondition::compile(predicate, &input.columns, &compiler.query.parameters)?;
            Ok(CountedSource::new(input.columns.clone(), FilterSource { input, predicate }, place))
        }
        Operator::Project { input, expressions } => {
            let place = describe(compiler, "Project".to_owned(), depth);
            let computed = expressions.iter().map(|named| &named.expression);
            let route = route.below(place).past(computed, input).through(expressions);
            let input = self::relation(input, route, compiler, depth + 1)?;
            let program = compile_named(expressions, &input.columns, &compiler.query.parameters)?;
            Ok(CountedSource::new(relation.columns(), ProjectSource { input, program }, place))
        }
        Operator::Join { kind, left, right, keys, residual, build } => {
            let join =
                JoinOperator { kind: *kind, left, right, keys, residual: residual.as_ref(), build: *build };
            join.compile(route, compiler, depth)
        }
        Operator::Aggregate { .. } | Operator::Window { .. }
            if compiler.repeated.group(relation).is_some() =>
        {
            shared(relation, compiler, depth)
        }
        Operator::Aggregate { .. } => whole_aggregate(relation, route, compiler, depth),
        Operator::Unnest { .. } => repeated(relation, route, compiler, depth),
        Operator::Window { .. } => windows(relation, compiler, depth),
        Operator::Sort { input, keys } => sort(input, keys, None, compiler, depth),
        Operator::Limit { input, offset, count } => {
            let place = describe(compiler, "Limit".to_owned(), depth);
            let skip = row_count(offset.as_ref(), "OFFSET", &compiler.query.parameters)?.unwrap_or(0);
            let count = row_count(count.as_ref(), "LIMIT", &compiler.query.parameters)?;
            let input = match (&input.operator, count) {
                (Operator::Sort { input, keys }, Some(count)) => {
                    sort(input, keys, Some(skip.saturating_add(count)), compiler, depth + 1)?
                }
                (Operator::Exchange { input, id, kind, reach }, Some(count)) => {
                    let exchange = ExchangeOperator { id: *id, input, kind, reach: *reach };
                    let count = skip.saturating_add(count);
                    exchange.compile(FilterRoute::none(), Some(count), compiler, depth + 1)?
                }
                _ => self::relation(input, FilterRoute::none(), compiler, depth + 1)?,
            };
            let columns = input.columns.clone();
            Ok(CountedSource::new(columns, LimitSource { input: Some(input), skip, count }, place))
        }
        Operator::UnionAll { inputs, columns } => union(inputs, columns, route, compiler, depth),
        Operator::Exchange { input, id, kind, reach } => {
            ExchangeOperator { id: *id, input, kind, reach: *reach }.compile(route, None, compiler, depth)
        }
    }
}

/// A part that is computed once, for one of its readers.
fn shared(part: &Relation, compiler: &mut Compiler<'_>, depth: usize) -> Result<CountedSource> {
    let group = compiler.repeated.group(part).unwrap_or(usize::MAX);
    let own = part.columns();
    if let Some((known, places)) = compiler.shared.get(&group).cloned() {
        let place = describe_again(part, compiler, depth);
        let columns = places.iter().map(|place| own[*place].clone()).collect();
        return Ok(CountedSource::new(columns, SharedSource::new(known), place));
    }
    let source = match &part.operator {
        Operator::Window { .. } => windows(part, compiler, depth)?,
        _ => whole_aggregate(part, FilterRoute::none(), compiler, depth)?,
    };
    // The columns of an operator may come in another order than the plan has them.
    let columns = source.columns.clone();
    let place = |(id, _): &(ColumnId, DataType)| own.iter().position(|(own, _)| own == id);
    let places: Option<Vec<usize>> = columns.iter().map(place).collect();
    let places = places.ok_or_else(|| Error::internal("a shared part has a column that the plan lacks"))?;
    compiler.query.memory.add_holder(part.estimate.rows, &columns);
    let part_read = SharedPart::new(source);
    compiler.shared.insert(group, (part_read.clone(), places));
    // Its rows are counted where they are computed.
    Ok(CountedSource::new(columns, SharedSource::new(part_read), NO_OPERATOR))
}

/// Places for a part whose rows another reader's operators compute: only the uppermost counts.
fn describe_again(part: &Relation, compiler: &mut Compiler<'_>, depth: usize) -> usize {
    let place = describe(compiler, "Shared".to_owned(), depth);
    for input in part.inputs() {
        describe_again(input, compiler, depth + 1);
    }
    place
}

fn whole_aggregate(
    relation: &Relation,
    route: FilterRoute,
    compiler: &mut Compiler<'_>,
    depth: usize,
) -> Result<CountedSource> {
    let Operator::Aggregate { input, groups, aggregates, phase } = &relation.operator else {
        return Err(Error::internal("a part that is shared is no aggregate"));
    };
    let description = match phase {
        AggregatePhase::Whole => "Aggregate",
        AggregatePhase::Partial => "Partial aggregate",
        AggregatePhase::Final => "Final aggregate",
    };
    let place = describe(compiler, description.to_owned(), depth);
    // The filter drops whole groups.
    let inputs = aggregates.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
    let computed = groups.iter().map(|named| &named.expression).chain(inputs);
    let route = route.below(place).past(computed, input).through(groups);
    let input = self::relation(input, route, compiler, depth + 1)?;
    match compiler.picks.are_of(relation) {
        true => aggregate_picks((place, input), relation, compiler),
        false => aggregate((place, input), groups, (aggregates, *phase), relation, compiler),
    }
}

/// A sort. `row_count_max`: how many of the first rows are wanted.
fn sort(
    input: &Relation,
    keys: &[SortKey],
    row_count_max: Option<usize>,
    compiler: &mut Compiler<'_>,
    depth: usize,
) -> Result<CountedSource> {
    let place = describe(compiler, "Sort".to_owned(), depth);
    let rows = input.estimate.rows;
    let input = relation(input, FilterRoute::none(), compiler, depth + 1)?;
    sorted((place, input, rows), keys, row_count_max, compiler)
}

/// Rows in order, or the first of them. `input`: with its place and the planner's rows.
pub(super) fn sorted(
    (place, mut input, rows): (usize, CountedSource, f64),
    keys: &[SortKey],
    row_count_max: Option<usize>,
    compiler: &mut Compiler<'_>,
) -> Result<CountedSource> {
    input.expect_whole();
    let values: Vec<_> = keys.iter().map(|key| key.expression.clone()).collect();
    let program = Program::compile(&values, &input.columns, &compiler.query.parameters)?;
    let columns = input.columns.clone();
    compiler.query.memory.add_holder(row_count_max.map_or(rows, |count| rows.min(count as f64)), &columns);
    Ok(CountedSource::new(columns, SortSource::new(input, program, keys.to_vec(), row_count_max), place))
}

/// A window, and those below it whose rows are in an order that serves it: the innermost sorts, and all are computed over the same rows.
fn windows(relation: &Relation, compiler: &mut Compiler<'_>, depth: usize) -> Result<CountedSource> {
    let mut chain = vec![relation];
    while let Operator::Window { input, .. } = &chain[chain.len() - 1].operator
        && is_ordered_for(&chain, input)
        && compiler.repeated.group(input).is_none()
    {
        chain.push(input);
    }
    // Operators have their places from the root on.
    let places: Vec<usize> =
        (0..chain.len()).map(|below| describe(compiler, "Window".to_owned(), depth + below)).collect();
    let Operator::Window { input, .. } = &chain[chain.len() - 1].operator else {
        return Err(Error::internal("a window is another operator"));
    };
    let input = self::relation(input, FilterRoute::none(), compiler, depth + chain.len())?;
    let windows: Vec<Window<'_>> = chain
        .iter()
        .zip(&places)
        .rev()
        .filter_map(|(window, place)| match &window.operator {
            Operator::Window { partition, order, calls, .. } => {
                Some(Window { partition, order, calls, place: *place })
            }
            _ => None,
        })
        .collect();
    windowed(input, relation.estimate.rows, &windows, compiler)
}

/// The functions of one window.
pub(super) struct Window<'a> {
    pub(super) partition: &'a [Expression],
    pub(super) order: &'a [SortKey],
    pub(super) calls: &'a [WindowCall],
    /// Where its rows are counted.
    pub(super) place: usize,
}

/// Windows that one sort serves, from the innermost on, over so many rows.
pub(super) fn windowed(
    mut input: CountedSource,
    rows: f64,
    windows: &[Window<'_>],
    compiler: &mut Compiler<'_>,
) -> Result<CountedSource> {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return Ok(input) };
    input.expect_whole();
    let mut columns = input.columns.clone();
    let mut stages = Vec::new();
    let mut shared_key_count = first.partition.len();
    for Window { partition, order, calls, place } in windows {
        shared_key_count = shared_key_count.min(partition.len());
        stages.push(WindowStage::compile(
            (partition, order),
            calls,
            &columns,
            &compiler.query.parameters,
            *place,
        )?);
        columns.extend(calls.iter().map(|call| (call.id, call.data_type.clone())));
    }
    let keys = window_keys(first.partition, first.order);
    let order = WindowOrder {
        directions: keys.iter().map(|key| (key.descending, key.nulls_first)).collect(),
        key_types: keys.iter().map(|key| key.expression.data_type().clone()).collect(),
        shared_key_count,
    };
    compiler.query.memory.add_holder(rows, &columns);
    Ok(CountedSource::new(columns, WindowSource::new(input, stages, order), last.place))
}

/// What rows of a window are sorted by.
fn window_keys(partition: &[Expression], order: &[SortKey]) -> Vec<SortKey> {
    let key = |expression: &Expression| SortKey {
        expression: expression.clone(),
        descending: false,
        nulls_first: false,
    };
    partition.iter().map(key).chain(order.iter().cloned()).collect()
}

/// Whether a relation is a window whose rows are in an order that serves all windows of a chain above it.
fn is_ordered_for(chain: &[&Relation], relation: &Relation) -> bool {
    let Operator::Window { partition, order, .. } = &relation.operator else { return false };
    let keys = window_keys(partition, order);
    chain.iter().all(|window| {
        let Operator::Window { partition, order, .. } = &window.operator else { return false };
        let (count, all) = (partition.len(), partition.len() + order.len());
        // Equal values are side by side in either direction.
        let is_same = |(key, wanted): (&SortKey, &Expression)| key.expression == *wanted;
        all <= keys.len() && keys.iter().zip(partition).all(is_same) && keys[count..all] == *order
    })
}

fn compile_named(
    expressions: &[NamedExpression],
    columns: &[(ColumnId, DataType)],
    parameters: &[Literal],
) -> Result<RowProgram> {
    let values: Vec<_> = expressions.iter().map(|named| named.expression.clone()).collect();
    RowProgram::compile(&values, columns, parameters)
}

/// A projection, or the input itself where it would change nothing.
pub(super) fn project(
    input: CountedSource,
    expressions: &[NamedExpression],
    compiler: &mut Compiler<'_>,
) -> Result<CountedSource> {
    let columns: Columns =
        expressions.iter().map(|named| (named.id, named.expression.data_type().clone())).collect();
    if columns == input.columns {
        return Ok(input);
    }
    let program = compile_named(expressions, &input.columns, &compiler.query.parameters)?;
    // Its rows are its input's, so it has no counts of its own.
    Ok(CountedSource::new(columns, ProjectSource { input, program }, NO_OPERATOR))
}

/// A value as another type.
pub(super) fn retyped(value: &Expression, data_type: &DataType) -> Expression {
    match value {
        Expression::Literal(Literal { value: Value::Null, .. }) => {
            Expression::literal(Value::Null, data_type.clone())
        }
        value if value.data_type() == data_type => value.clone(),
        value => Expression::call(Function::Cast, vec![value.clone()], data_type.clone()),
    }
}

fn union(
    inputs: &[(Arc<Relation>, Vec<ColumnId>)],
    columns: &[(ColumnId, DataType)],
    route: FilterRoute,
    compiler: &mut Compiler<'_>,
    depth: usize,
) -> Result<CountedSource> {
    let place = describe(compiler, format!("Union all of {}", inputs.len()), depth);
    let route = route.below(place);
    let inputs = inputs
        .iter()
        .map(|(input, ids)| {
            // Columns of the type that the union has.
            let own = |id: ColumnId| {
                let place = columns.iter().position(|(known, _)| *known == id)?;
                let (below, found) =
                    input.columns().into_iter().find(|(below, _)| Some(below) == ids.get(place))?;
                columns.get(place).is_some_and(|(_, data_type)| *data_type == found).then_some(below)
            };
            let input = relation(input, route.clone().renamed(own), compiler, depth + 1)?;
            let values = ids
                .iter()
                .zip(columns)
                .map(|(id, (_, data_type))| {
                    let found = input.columns.iter().find(|(known, _)| known == id);
                    let (_, own) = found.ok_or_else(|| Error::internal("a union names an unknown column"))?;
                    Ok(retyped(&Expression::column(*id, own.clone()), data_type))
                })
                .collect::<Result<Vec<_>>>()?;
            let program = RowProgram::compile(&values, &input.columns, &compiler.query.parameters)?;
            Ok((input, program))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(CountedSource::new(columns.to_vec(), UnionSource { inputs, current: 0 }, place))
}

/// What an aggregate takes of a row: its argument where FILTER lets the row through, and NULL elsewhere.
pub(super) fn guarded(call: &AggregateCall) -> Option<Expression> {
    let Some(filter) = &call.filter else { return call.argument.clone() };
    let value = call.argument.clone().unwrap_or(Expression::int32(1));
    let data_type = value.data_type().clone();
    let branches = vec![CaseBranch { condition: filter.clone(), result: value }];
    Some(Expression::Case { branches, otherwise: None, data_type })
}

pub(super) fn aggregate(
    (place, mut input): (usize, CountedSource),
    groups: &[NamedExpression],
    (aggregates, phase): (&[AggregateCall], AggregatePhase),
    relation: &Relation,
    compiler: &mut Compiler<'_>,
) -> Result<CountedSource> {
    let mut values: Vec<Expression> = groups.iter().map(|named| named.expression.clone()).collect();
    let mut arguments: Vec<Expression> = Vec::new();
    let mut calls = Vec::new();
    for call in aggregates {
        let argument = guarded(call).map(|argument| {
            arguments.iter().position(|known| *known == argument).unwrap_or_else(|| {
                arguments.push(argument);
                arguments.len() - 1
            })
        });
        let typed = argument.and_then(|place| Some((place, arguments.get(place)?.data_type())));
        calls.push(PlannedAggregate::new(call, typed, phase)?);
    }
    let argument_types = arguments.iter().map(|argument| argument.data_type().clone()).collect();
    values.extend(arguments.iter().cloned());
    let program = RowProgram::compile(&values, &input.columns, &compiler.query.parameters)?;
    let group_types = groups.iter().map(|named| named.expression.data_type().clone()).collect();
    input.expect_whole();
    let expected_keys = match groups {
        [NamedExpression { expression: Expression::Column { id, .. }, .. }] => {
            compiler.scans.integer_ranges.get(id)
        }
        _ => None,
    };
    let source = AggregateSource::new(input, program, group_types, argument_types, calls)
        .expecting(expected_keys.cloned())
        .folding(groups, &arguments, &compiler.query.parameters);
    let source = if phase == AggregatePhase::Partial { source.in_first_phase() } else { source };
    let columns = relation.columns();
    compiler.query.memory.add_holder(relation.estimate.rows, &columns);
    for _ in 1..source.holder_count() {
        compiler.query.memory.add_small_holder();
    }
    Ok(CountedSource::new(columns, source, place))
}

/// Rows once for each number of a series. Arrays have no kernel.
fn repeated(
    relation: &Relation,
    route: FilterRoute,
    compiler: &mut Compiler<'_>,
    depth: usize,
) -> Result<CountedSource> {
    let Operator::Unnest { input, arrays, number, keeps_rows } = &relation.operator else {
        return Err(Error::internal("rows that are repeated are another operator's"));
    };
    let [UnnestedArray { array: last, columns }] = arrays.as_slice() else {
        return Err(Error::new(ErrorKind::NotSupported, "no kernel handles several arrays"));
    };
    if *last.data_type() != DataType::Int64 {
        return Err(Error::new(ErrorKind::NotSupported, "no kernel handles arrays"));
    }
    let place = describe(compiler, "Repeat".to_owned(), depth);
    let route = route.below(place).past([last], input).within(&input.columns());
    let input = self::relation(input, route, compiler, depth + 1)?;
    let program =
        RowProgram::compile(std::slice::from_ref(last), &input.columns, &compiler.query.parameters)?;
    // A scan below may give fewer columns than the plan's.
    let mut all = input.columns.clone();
    let numbers: Vec<_> = columns.iter().chain(number).map(|id| (*id, DataType::Int64)).collect();
    let number_columns = numbers.len();
    all.extend(numbers);
    Ok(CountedSource::new(all, RepeatSource::new(input, program, number_columns, *keeps_rows), place))
}

/// The value of LIMIT or OFFSET.
fn row_count(expression: Option<&Expression>, clause: &str, parameters: &[Literal]) -> Result<Option<usize>> {
    let literal = match expression {
        None => return Ok(None),
        Some(Expression::Literal(literal)) => literal,
        Some(Expression::Parameter { index, .. }) => parameters
            .get(*index as usize)
            .ok_or_else(|| Error::internal(format!("parameter {index} of {clause} has no value")))?,
        Some(_) => return Err(Error::internal(format!("{clause} is neither literal nor parameter"))),
    };
    match literal.value {
        Value::Null => Ok(None),
        Value::Int(value) => usize::try_from(value)
            .map(Some)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("{clause} must not be negative"))),
        _ => Err(Error::internal(format!("{clause} is not an integer"))),
    }
}
