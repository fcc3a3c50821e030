//! Percentiles and modes, computed by windows.
//!
//! In a plan such an aggregate is a function of an array. Arrays have no kernel, so no array is
//! made:
//!
//! ```text
//! percentile_cont(array(x ORDER BY x), 0.5) GROUP BY g
//!
//!   rows ─► sorted by g, x ─► number, count ─► rows at a wanted place ─► a value for each place, by g ─► between two values
//!                             two windows        filter                    aggregate                       projection
//! ```
//!
//! | function | rows whose value is taken |
//! |---|---|
//! | percentile_disc(f) | number = max(1, ceil(f · count)) |
//! | percentile_cont(f) | number - 1 = floor(f · (count - 1)), and the same with ceil |
//! | mode | peers = the most peers of the group; the least value, or the greatest of a descending order |
//!
//! - NULLs come last in the window, and the count is of values. So NULLs have no part in it, whatever the plan's order says of them.
//!   A row that FILTER drops has NULL for its value.
//! - Picks over one argument in one direction share their sort. Other aggregates are computed in the same aggregate; then all rows reach
//!   it.
//! - Windows spill, and several ranks first bring the rows of a group together, as for arrays.
//!
//! Invariants: an array is left out only if all that reads it are these functions with one constant fraction. Otherwise the aggregate
//! is refused as any array is. The compiled tree has the shape of the plan's, so that the place of a refused operator in one is that in
//! the other. The operators made here have no place in the metrics.
//!
//! Deliberately absent: several fractions at once, whose result is an array.
//!
//! Source: PostgreSQL 15, `orderedsetaggs.c`, `percentile_cont_final_common`, `percentile_disc_final` and `mode_final`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, DataType, Error, Expression, FrameBound,
    FrameExclusion, FrameUnit, Function, Literal, NamedExpression, Operator, Plan, Relation, Result, SortKey,
    Value, WindowCall, WindowFrame, WindowFunction,
};

use super::{
    compiler::Compiler,
    relations::{Window, aggregate, guarded, project, windowed},
};
use crate::execution::{
    CountedSource, expressions::RowCondition, query::NO_OPERATOR, row_wise::FilterSource,
};

/// The picks of a plan.
#[derive(Default)]
pub(super) struct Picks {
    /// By the id of the array.
    of_arrays: HashMap<ColumnId, Vec<Pick>>,
    next_column: u32,
}

/// One value of an array.
#[derive(Clone)]
struct Pick {
    /// The id of its column.
    id: ColumnId,
    place: PickPlace,
    data_type: DataType,
}

#[derive(Clone, Copy)]
enum PickPlace {
    /// `percentile_cont` of a fraction.
    Between(f64),
    /// `percentile_disc` of a fraction.
    At(f64),
    /// `mode`.
    MostFrequent,
}

/// Rows by group and in the order of an argument.
struct Ordered {
    argument: Expression,
    descending: bool,
    /// The ids of the row's number and of the count of values in its group.
    number: ColumnId,
    count: ColumnId,
    /// Those of the count of equal values, and of the greatest such count of the group; if a mode is wanted.
    peers: Option<(ColumnId, ColumnId)>,
}

/// Aggregates that are computed of picked rows.
#[derive(Default)]
struct Picked {
    calls: Vec<AggregateCall>,
    /// Where a row is picked.
    conditions: Vec<Expression>,
    results: Vec<NamedExpression>,
}

impl Picks {
    /// The picks of a plan, and the plan's tree with a column for each.
    pub(super) fn of(plan: &Plan) -> Result<(Self, Arc<Relation>)> {
        let mut picks = Self::default();
        let mut arrays = HashSet::new();
        visit(&plan.root, &mut |relation| {
            note_arrays(relation, &mut arrays);
            let greatest = relation.columns().into_iter().map(|(id, _)| id.0).max().unwrap_or(0);
            picks.next_column = picks.next_column.max(greatest);
        });
        if arrays.is_empty() {
            return Ok((picks, plan.root.clone()));
        }
        let mut others: Vec<ColumnId> = plan.outputs.clone();
        let mut read: HashMap<ColumnId, (usize, usize)> = HashMap::new();
        visit(&plan.root, &mut |relation| {
            if let Operator::UnionAll { inputs, .. } = &relation.operator {
                others.extend(inputs.iter().flat_map(|(_, ids)| ids));
            }
            for expression in relation.expressions() {
                expression.walk(&mut |part| match (part, pick_of(part)) {
                    (_, Some((id, _))) => read.entry(id).or_default().0 += 1,
                    (Expression::Column { id, .. }, None) => read.entry(*id).or_default().1 += 1,
                    _ => {}
                });
            }
        });
        // The column below a pick was counted too.
        arrays.retain(|id| read.get(id).is_some_and(|(picked, all)| picked == all) && !others.contains(id));
        if arrays.is_empty() {
            return Ok((picks, plan.root.clone()));
        }
        let mut failure = None;
        let root = plan.root.map_expressions(&mut |part| {
            let Some((array, place)) = pick_of(part).filter(|(id, _)| arrays.contains(id)) else {
                return;
            };
            let data_type = part.data_type().clone();
            match picks.fresh_column() {
                Ok(id) => {
                    *part = Expression::column(id, data_type.clone());
                    picks.of_arrays.entry(array).or_default().push(Pick { id, place, data_type });
                }
                Err(error) => failure = Some(error),
            }
        });
        failure.map_or(Ok((picks, root)), Err)
    }

    /// Whether an aggregate has arrays that are left out.
    pub(super) fn are_of(&self, relation: &Relation) -> bool {
        match &relation.operator {
            Operator::Aggregate { aggregates, .. } => {
                aggregates.iter().any(|call| self.of_arrays.contains_key(&call.id))
            }
            _ => false,
        }
    }

    fn fresh_column(&mut self) -> Result<ColumnId> {
        let next = self.next_column.checked_add(1);
        self.next_column = next.ok_or_else(|| Error::internal("a plan's columns have all ids"))?;
        Ok(ColumnId(self.next_column))
    }
}

/// An aggregate with picks. `input`: its rows, with the aggregate's own place.
pub(super) fn aggregate_picks(
    (place, mut input): (usize, CountedSource),
    relation: &Relation,
    compiler: &mut Compiler<'_>,
) -> Result<CountedSource> {
    let Operator::Aggregate { input: below, groups, aggregates, phase: AggregatePhase::Whole } =
        &relation.operator
    else {
        return Err(Error::internal("picks are of another operator than an aggregate of whole groups"));
    };
    let mut others = Vec::new();
    let mut orders: Vec<Ordered> = Vec::new();
    let mut picked = Picked::default();
    for call in aggregates {
        let Some(picks) = compiler.picks.of_arrays.get(&call.id).cloned() else {
            others.push(call.clone());
            continue;
        };
        let argument =
            guarded(call).ok_or_else(|| Error::internal("an array is made without an argument"))?;
        let descending = call.order.first().is_some_and(|key| key.descending);
        let known = |order: &Ordered| order.argument == argument && order.descending == descending;
        let order = match orders.iter().position(known) {
            Some(order) => order,
            None => {
                let (number, count) = (compiler.picks.fresh_column()?, compiler.picks.fresh_column()?);
                orders.push(Ordered { argument, descending, number, count, peers: None });
                orders.len() - 1
            }
        };
        for pick in picks {
            picked.add(&mut orders[order], pick, &mut compiler.picks)?;
        }
    }
    let partition: Vec<Expression> = groups.iter().map(|named| named.expression.clone()).collect();
    for order in &orders {
        input = order.numbered(input, &partition, below.estimate.rows, compiler)?;
    }
    let Picked { mut calls, conditions, results } = picked;
    if others.is_empty() {
        // Every group keeps a row.
        let first =
            |order: &Ordered| equal(int64(order.number), Expression::literal(Value::Int(1), DataType::Int64));
        let kept = any_of(orders.iter().map(first).chain(conditions).collect());
        let predicate = RowCondition::compile(&kept, &input.columns, &compiler.query.parameters)?;
        input = CountedSource::new(input.columns.clone(), FilterSource { input, predicate }, NO_OPERATOR);
    }
    calls.extend(others.iter().cloned());
    let whole = Relation {
        operator: Operator::Aggregate {
            input: below.clone(),
            groups: groups.clone(),
            aggregates: calls.clone(),
            phase: AggregatePhase::Whole,
        },
        estimate: relation.estimate,
    };
    let grouped = aggregate((place, input), groups, (&calls, AggregatePhase::Whole), &whole, compiler)?;
    let same = |id: ColumnId, data_type: &DataType| NamedExpression {
        id,
        expression: Expression::column(id, data_type.clone()),
    };
    let kept = groups.iter().map(|named| same(named.id, named.expression.data_type()));
    let kept = kept.chain(others.iter().map(|call| same(call.id, &call.data_type)));
    project(grouped, &kept.chain(results).collect::<Vec<_>>(), compiler)
}

impl Ordered {
    /// Rows with their numbers and counts.
    fn numbered(
        &self,
        input: CountedSource,
        partition: &[Expression],
        rows: f64,
        compiler: &mut Compiler<'_>,
    ) -> Result<CountedSource> {
        let key =
            SortKey { expression: self.argument.clone(), descending: self.descending, nulls_first: false };
        let call = |id, function, argument, frame| WindowCall {
            id,
            function,
            argument,
            frame,
            data_type: DataType::Int64,
        };
        let count = WindowFunction::Aggregate(Aggregate::Count);
        let argument = || Some(self.argument.clone());
        let mut numbers = vec![
            call(self.number, WindowFunction::RowNumber, None, WindowFrame::whole()),
            call(self.count, count, argument(), WindowFrame::whole()),
        ];
        let mut of_group = Vec::new();
        if let Some((peers, most)) = self.peers {
            let frame = WindowFrame {
                unit: FrameUnit::Groups,
                start: FrameBound::Current,
                end: FrameBound::Current,
                exclude: FrameExclusion::Nothing,
            };
            numbers.push(call(peers, count, argument(), frame));
            let greatest = WindowFunction::Aggregate(Aggregate::Max);
            of_group.push(call(most, greatest, Some(int64(peers)), WindowFrame::whole()));
        }
        let order = [key];
        let mut windows = vec![Window { partition, order: &order, calls: &numbers, place: NO_OPERATOR }];
        if !of_group.is_empty() {
            windows.push(Window { partition, order: &[], calls: &of_group, place: NO_OPERATOR });
        }
        windowed(input, rows, &windows, compiler)
    }

    /// `fraction · (count - less)`, with the count of a row or of a group.
    fn position(&self, fraction: f64, less: i64, count: Expression) -> Expression {
        let less = Expression::literal(Value::Int(less), DataType::Int64);
        let whole = float(Expression::call(Function::Subtract, vec![count, less], DataType::Int64));
        of_floats(Function::Multiply, vec![double(fraction), whole])
    }
}

impl Picked {
    /// Adds what a pick takes.
    fn add(&mut self, order: &mut Ordered, pick: Pick, picks: &mut Picks) -> Result<()> {
        let value = match pick.place {
            PickPlace::At(fraction) => {
                let last = order.position(fraction, 0, int64(order.count));
                let place = of_floats(
                    Function::Greatest,
                    vec![of_floats(Function::Ceiling, vec![last]), double(1.0)],
                );
                let is_there = equal(float(int64(order.number)), place);
                self.take(order, Aggregate::AnyValue, is_there, picks)?
            }
            PickPlace::Between(fraction) => {
                let position = order.position(fraction, 1, int64(order.count));
                let one = Expression::literal(Value::Int(1), DataType::Int64);
                let before =
                    Expression::call(Function::Subtract, vec![int64(order.number), one], DataType::Int64);
                let mut at = |rounding| {
                    let place = of_floats(rounding, vec![position.clone()]);
                    self.take(order, Aggregate::AnyValue, equal(float(before.clone()), place), picks)
                };
                let (low, high) = (at(Function::Floor)?, at(Function::Ceiling)?);
                let count = picks.fresh_column()?;
                self.calls.push(AggregateCall {
                    id: count,
                    function: Aggregate::AnyValue,
                    argument: Some(int64(order.count)),
                    distinct: false,
                    filter: None,
                    data_type: DataType::Int64,
                    order: Vec::new(),
                });
                let position = order.position(fraction, 1, int64(count));
                of_floats(Function::PercentileCont, vec![low, high, position])
            }
            PickPlace::MostFrequent => {
                let (peers, most) = match order.peers {
                    Some(known) => known,
                    None => *order.peers.insert((picks.fresh_column()?, picks.fresh_column()?)),
                };
                let first = if order.descending { Aggregate::Max } else { Aggregate::Min };
                self.take(order, first, equal(int64(peers), int64(most)), picks)?
            }
        };
        debug_assert_eq!(*value.data_type(), pick.data_type, "the type of a pick");
        self.results.push(NamedExpression { id: pick.id, expression: value });
        Ok(())
    }

    /// The value of the argument where a condition picks a row.
    fn take(
        &mut self,
        order: &Ordered,
        function: Aggregate,
        condition: Expression,
        picks: &mut Picks,
    ) -> Result<Expression> {
        let (id, data_type) = (picks.fresh_column()?, order.argument.data_type().clone());
        self.conditions.push(condition.clone());
        self.calls.push(AggregateCall {
            id,
            function,
            argument: Some(order.argument.clone()),
            distinct: false,
            filter: Some(condition),
            data_type: data_type.clone(),
            order: Vec::new(),
        });
        Ok(Expression::column(id, data_type))
    }
}

/// Notes the arrays whose values may be picked: in the order of the values themselves.
fn note_arrays(relation: &Relation, arrays: &mut HashSet<ColumnId>) {
    let Operator::Aggregate { aggregates, phase: AggregatePhase::Whole, .. } = &relation.operator else {
        return;
    };
    for call in aggregates {
        let is_ordered = match (call.order.as_slice(), &call.argument) {
            // A key that is the same in all rows is none.
            ([], Some(_)) => true,
            ([key], Some(argument)) => key.expression == *argument,
            _ => false,
        };
        if call.function == Aggregate::Array && !call.distinct && is_ordered {
            arrays.insert(call.id);
        }
    }
}

/// The array and the place of a pick, if an expression is one.
fn pick_of(expression: &Expression) -> Option<(ColumnId, PickPlace)> {
    let Expression::Call { function, arguments, data_type } = expression else { return None };
    let (Expression::Column { id, data_type: DataType::List(_) }, rest) = arguments.split_first()? else {
        return None;
    };
    let place = match (function, rest) {
        (Function::Mode, []) => PickPlace::MostFrequent,
        (Function::PercentileCont, [fraction]) => PickPlace::Between(literal_float(fraction)?),
        (Function::PercentileDisc, [fraction]) => PickPlace::At(literal_float(fraction)?),
        _ => return None,
    };
    (!matches!(data_type, DataType::List(_))).then_some((*id, place))
}

fn literal_float(expression: &Expression) -> Option<f64> {
    match expression {
        Expression::Literal(Literal { value: Value::Float(value), .. }) => Some(*value),
        _ => None,
    }
}

/// The relation of `tree` that is where `mapped` has the relation with this address. Both have one shape.
pub(super) fn same_place(mapped: &Relation, tree: &Relation, address: usize) -> Option<usize> {
    if std::ptr::from_ref(mapped).addr() == address {
        return Some(std::ptr::from_ref(tree).addr());
    }
    let pairs = mapped.inputs().into_iter().zip(tree.inputs());
    pairs.into_iter().find_map(|(mapped, tree)| same_place(mapped, tree, address))
}

fn visit(relation: &Relation, note: &mut dyn FnMut(&Relation)) {
    note(relation);
    relation.inputs().into_iter().for_each(|input| visit(input, note));
}

fn int64(id: ColumnId) -> Expression {
    Expression::column(id, DataType::Int64)
}

fn double(value: f64) -> Expression {
    Expression::literal(Value::Float(value), DataType::Float64)
}

fn float(number: Expression) -> Expression {
    of_floats(Function::Cast, vec![number])
}

fn of_floats(function: Function, arguments: Vec<Expression>) -> Expression {
    Expression::call(function, arguments, DataType::Float64)
}

fn equal(a: Expression, b: Expression) -> Expression {
    Expression::predicate(Function::Equal, vec![a, b])
}

fn any_of(mut conditions: Vec<Expression>) -> Expression {
    match conditions.len() {
        1 => conditions.remove(0),
        _ => Expression::predicate(Function::Or, conditions),
    }
}
