//! Groups that are made below joins: rows are aggregated by the keys of a join before the join sees them.
//!
//! ```text
//! Aggregate sum(q) by brand                  Aggregate sum(sum(q)) by brand
//!   Inner join item = i_item                   Inner join item = i_item
//!     Scan sales [item, q]             ─►        Aggregate sum(q) by item
//!     Scan item [i_item, brand]                    Scan sales [item, q]
//!                                                Scan item [i_item, brand]
//! ```
//!
//! A query over a star groups a large table by attributes of small ones. As planned, every row of the large table looks up its
//! attributes, and is then hashed by them: texts, most often. Of a table with thousands of rows a key, the rewritten plan looks up
//! and hashes one row a key.
//!
//! Invariants
//! - Columns of the aggregate keep their ids, types and values. A join repeats a partial result as often as it would have
//!   repeated each of its rows, so the other sides' keys need not be unique.
//! - The inner aggregate groups by all columns of its side that joins and groups above it read. Rows of one inner group therefore
//!   match the same rows, and are in the same groups.
//! - Nothing fails that would not have failed. The inner aggregate sees rows that joins would have dropped. So arguments and
//!   filters can't fail, if need be because of the bounds that footers tell, and inner sums have a type that holds the sum of any
//!   such rows.
//! - Sums of floats, DISTINCT and arrays stay where they are: of rounded sums nothing exact can be made.
//! - The decision reads estimates and the tables of scans. It does not read ids of columns, so parts of a plan that are alike stay so
//!   ([`crate::RepeatedParts`]).
//!
//! It pays if the inner groups are few, if its input is large, and if the joins above drop few of the rows: [`Level::pays`]. How many
//! values a key has, footers tell, which bound the range of integers. Without such a bound the plan stays as it is.
//!
//! Deliberately absent: joins in another order; outer and semi joins; joins with further conditions; aggregates without groups, where
//! only a lookup would be saved; groups of one table alone.
//!
//! Source: Yan and Larson, "Eager Aggregation and Lazy Aggregation", VLDB 1995. We differ: counts of duplicates are
//! not carried, because aggregates that they would scale are all on one side.

use std::{collections::HashSet, sync::Arc};

use crate::{
    Aggregate, AggregateCall, AggregatePhase, ColumnContent, ColumnId, DataType, Expression, FileSet,
    Function, JoinKind, JoinSide, NamedExpression, Operator, Plan, RELATION_DEPTH_MAX, Relation, ScanColumn,
    could_fail,
    grouping_sets::of_partial,
    partial_type,
    prune::{Required, require_columns},
};

/// Fewer rows are not worth another operator.
const INPUT_ROWS_MIN: f64 = 100_000.0;
/// How many rows an inner group must have.
const ROWS_A_GROUP_MIN: f64 = 10.0;
/// The rewritten plan must be expected to do at most this part of the work: expectations err.
const WORK_SHARE_MAX: f64 = 0.75;

/// The work of looking a row up in a join's table, against one of writing a row into it, and one of a row that comes out.
///
/// Units: one is 4 ns a row of the CPU engine on two cores, measured with 2.9 million rows of TPC-DS, as are the next ones.
const PROBE_WORK: f64 = 1.0;
const BUILD_WORK: f64 = 3.0;
const OUTPUT_WORK: f64 = 0.5;
/// The work of adding a row to a group of few: by one integer, by one other value, and by several values, once and for each of them.
const INTEGER_GROUP_WORK: f64 = 2.5;
const OTHER_GROUP_WORK: f64 = 4.0;
const SEVERAL_GROUP_WORK: f64 = 2.0;
const VALUE_GROUP_WORK: f64 = 2.0;
/// So many groups double the work: a processor's cache holds fewer and fewer of them.
const CACHED_GROUPS: f64 = 30_000.0;

/// The least and the greatest number of a scan's column, or bounds beyond them, if they are known. A plan may rest on them.
pub type NumberBounds<'a> = dyn Fn(&FileSet, &ScanColumn) -> Option<(f64, f64)> + 'a;

/// The same plan with groups made below joins where that pays. `next_column` gives ids that the plan does not have.
pub fn aggregate_below_joins(
    plan: &Plan,
    bounds: &NumberBounds<'_>,
    next_column: &mut dyn FnMut() -> ColumnId,
) -> Plan {
    let root = rewrite(&plan.root, bounds, next_column);
    match root.depth() > RELATION_DEPTH_MAX {
        true => plan.clone(),
        false => Plan { root, outputs: plan.outputs.clone() },
    }
}

fn rewrite(
    relation: &Arc<Relation>,
    bounds: &NumberBounds<'_>,
    next_column: &mut dyn FnMut() -> ColumnId,
) -> Arc<Relation> {
    let relation = relation.map_inputs(&mut |input| rewrite(input, bounds, next_column));
    let Some(lazy) = LazyAggregate::of(&relation) else { return relation };
    match lazy.best_level(bounds) {
        Some(level) => lazy.at(&level, next_column),
        None => relation,
    }
}

/// An aggregate over joins, as planned.
struct LazyAggregate<'a> {
    input: &'a Arc<Relation>,
    groups: &'a [NamedExpression],
    aggregates: &'a [AggregateCall],
    /// Estimated groups.
    rows: f64,
}

/// A join above the inner aggregate, and which of its inputs has that.
#[derive(Clone, Copy)]
struct JoinAbove<'a> {
    join: &'a Relation,
    side: JoinSide,
}

/// Where an inner aggregate may be.
struct Level<'a> {
    /// What it aggregates.
    input: &'a Arc<Relation>,
    /// The joins above it, the highest first.
    above: Vec<JoinAbove<'a>>,
    /// What it groups by.
    keys: Vec<(ColumnId, DataType)>,
    /// Rows of its input.
    rows: f64,
    /// Its groups.
    groups: f64,
    /// The work of the plan with it.
    work: f64,
}

/// Where a call is computed once there is an inner aggregate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallPlace {
    /// In the inner aggregate, and from its results in the outer one.
    Both,
    /// In the outer aggregate alone: it reads nothing of the inner one's input, and equal rows make no difference to it.
    Outer,
}

impl<'a> LazyAggregate<'a> {
    fn of(relation: &'a Relation) -> Option<Self> {
        let Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole } =
            &relation.operator
        else {
            return None;
        };
        let is_made_in_steps = |call: &AggregateCall| inner_type(call).is_some();
        let is_one = !groups.is_empty() && aggregates.iter().all(is_made_in_steps);
        is_one.then_some(Self { input, groups, aggregates, rows: relation.estimate.rows })
    }

    /// The level with the least work, if one pays.
    fn best_level(&self, bounds: &NumberBounds<'_>) -> Option<Level<'a>> {
        let mut counted = Required::new();
        let calls = self.aggregates.iter().filter(|call| counts_equal_rows(call));
        calls.flat_map(AggregateCall::inputs).for_each(|part| require_columns(part, &mut counted));
        let lazy_work = |above: &[JoinAbove<'_>]| {
            let joins: f64 = above.iter().map(|step| step.work(1.0, bounds)).sum();
            joins + self.group_work() * expected_rows(self.input, bounds)
        };
        let mut best: Option<Level<'a>> = None;
        let mut above = Vec::new();
        let mut input = self.input;
        while let Some((step, below)) = step_down(input, &counted, bounds) {
            above.push(step);
            input = below;
            let Some(level) = self.level(input, &above, bounds) else { continue };
            let is_better = best.as_ref().is_none_or(|best| {
                // Both as parts of the same plan: what the deeper one has above, the other has below.
                let between = &level.above[best.above.len()..];
                let below: f64 = between.iter().map(|step| step.work(1.0, bounds)).sum();
                level.work < best.work + below
            });
            if level.pays(lazy_work(&above)) && is_better {
                best = Some(level);
            }
        }
        best
    }

    /// The work of adding a row to a group of this aggregate.
    fn group_work(&self) -> f64 {
        group_work(self.groups.iter().map(|group| group.expression.data_type()), self.rows)
    }

    /// The level at the input below some joins; `None` if the aggregate can't be divided there.
    fn level(
        &self,
        input: &'a Arc<Relation>,
        above: &[JoinAbove<'a>],
        bounds: &NumberBounds<'_>,
    ) -> Option<Level<'a>> {
        let columns = input.columns();
        let own: HashSet<ColumnId> = columns.iter().map(|(id, _)| *id).collect();
        for call in self.aggregates {
            let is_safe =
                |part: &Expression| !could_fail(part, &|cast| is_within_bounds(cast, input, bounds));
            match place_of(call, &own)? {
                CallPlace::Both if !call.inputs().all(is_safe) => return None,
                _ => {}
            }
        }
        let mut grouped = Required::new();
        self.groups.iter().for_each(|group| require_columns(&group.expression, &mut grouped));
        if grouped.is_subset(&own) {
            return None;
        }
        let mut read = grouped;
        for step in above {
            let Operator::Join { keys, .. } = &step.join.operator else { return None };
            keys.iter()
                .flat_map(|key| [&key.left, &key.right])
                .for_each(|key| require_columns(key, &mut read));
        }
        let keys: Vec<_> = columns.into_iter().filter(|(id, _)| read.contains(id)).collect();
        let values = keys.iter().map(|key| value_bound(input, key, bounds));
        let rows = expected_rows(input, bounds);
        let groups = values.product::<Option<f64>>()?.min(rows).max(1.0);
        let share = groups / rows.max(1.0);
        let joins: f64 = above.iter().map(|step| step.work(share, bounds)).sum();
        let outer = self.group_work() * expected_rows(self.input, bounds) * share;
        let work = group_work(keys.iter().map(|(_, data_type)| data_type), groups) * rows + joins + outer;
        Some(Level { input, above: above.to_vec(), keys, rows, groups, work })
    }

    /// The plan with an inner aggregate at a level.
    fn at(&self, level: &Level<'a>, next_column: &mut dyn FnMut() -> ColumnId) -> Arc<Relation> {
        let column =
            |(id, data_type): &(ColumnId, DataType)| named(*id, Expression::column(*id, data_type.clone()));
        let own: HashSet<ColumnId> = level.input.columns().into_iter().map(|(id, _)| id).collect();
        let (mut inner, mut outer, mut is_computed) = (Vec::new(), Vec::new(), false);
        let group_column = |group: &NamedExpression| (group.id, group.expression.data_type().clone());
        let mut results: Vec<_> = self.groups.iter().map(group_column).map(|group| column(&group)).collect();
        for call in self.aggregates {
            let place = place_of(call, &own);
            let Some(data_type) = inner_type(call).filter(|_| place == Some(CallPlace::Both)) else {
                outer.push(call.clone());
                results.push(column(&(call.id, call.data_type.clone())));
                continue;
            };
            let id = next_column();
            let partial = Expression::column(id, data_type.clone());
            inner.push(AggregateCall { id, data_type, distinct: false, ..call.clone() });
            let (mut made, mut result) = of_partial(call, partial, next_column());
            if let Expression::Column { id, .. } = &mut result.expression {
                (*id, made.id) = (call.id, call.id);
            } else {
                is_computed = true;
            }
            outer.push(made);
            results.push(result);
        }
        let groups = level.keys.iter().map(column).collect();
        let phase = AggregatePhase::Whole;
        let operator = Operator::Aggregate { input: level.input.clone(), groups, aggregates: inner, phase };
        let mut below = Relation::new(operator, level.groups);
        let share = level.groups / level.rows.max(1.0);
        for step in level.above.iter().rev() {
            below = step.over(below, share);
        }
        let operator =
            Operator::Aggregate { input: below, groups: self.groups.to_vec(), aggregates: outer, phase };
        let aggregate = Relation::new(operator, self.rows);
        match is_computed {
            true => Relation::new(Operator::Project { input: aggregate, expressions: results }, self.rows),
            false => aggregate,
        }
    }
}

impl Level<'_> {
    /// Whether it is worth its operator, against the work of the plan without it.
    fn pays(&self, lazy_work: f64) -> bool {
        self.rows >= INPUT_ROWS_MIN
            && self.groups * ROWS_A_GROUP_MIN <= self.rows
            && self.work <= lazy_work * WORK_SHARE_MAX
    }
}

impl JoinAbove<'_> {
    /// The work of the join of such a share of the rows of its side, the other side's own work aside.
    fn work(&self, share: f64, bounds: &NumberBounds<'_>) -> f64 {
        let Operator::Join { left, right, build, .. } = &self.join.operator else { return 0.0 };
        let input = match self.side {
            JoinSide::Left => left,
            JoinSide::Right => right,
        };
        let a_row = if *build == self.side { BUILD_WORK } else { PROBE_WORK };
        share * (a_row * expected_rows(input, bounds) + OUTPUT_WORK * expected_rows(self.join, bounds))
    }

    /// The same join of other rows, which are such a share of those that it had. Its table is still built from the side from which it was:
    /// that side's keys filter the rows of the other one.
    fn over(&self, input: Arc<Relation>, share: f64) -> Arc<Relation> {
        let mut operator = self.join.operator.clone();
        if let Operator::Join { left, right, .. } = &mut operator {
            match self.side {
                JoinSide::Left => *left = input,
                JoinSide::Right => *right = input,
            }
        }
        Relation::new(operator, (self.join.estimate.rows * share).max(1.0))
    }
}

/// An inner join without further conditions, and its input that has the columns of the calls that count equal rows. Without such columns it
/// is the input with more rows.
fn step_down<'a>(
    relation: &'a Relation,
    counted: &Required,
    bounds: &NumberBounds<'_>,
) -> Option<(JoinAbove<'a>, &'a Arc<Relation>)> {
    let Operator::Join { kind: JoinKind::Inner, left, right, keys, residual: None, .. } = &relation.operator
    else {
        return None;
    };
    let has_all = |input: &Relation| {
        let columns = input.columns();
        counted.iter().all(|wanted| columns.iter().any(|(id, _)| id == wanted))
    };
    let side = match (has_all(left), has_all(right)) {
        (true, true) if expected_rows(left, bounds) < expected_rows(right, bounds) => JoinSide::Right,
        (true, _) => JoinSide::Left,
        (false, true) => JoinSide::Right,
        (false, false) => return None,
    };
    let input = match side {
        JoinSide::Left => left,
        JoinSide::Right => right,
    };
    (!keys.is_empty()).then_some((JoinAbove { join: relation, side }, input))
}

/// Where a call is computed over an inner aggregate whose input has these columns; `None` if nowhere.
fn place_of(call: &AggregateCall, own: &HashSet<ColumnId>) -> Option<CallPlace> {
    let mut read = Required::new();
    call.inputs().for_each(|part| require_columns(part, &mut read));
    if read.is_subset(own) {
        return Some(CallPlace::Both);
    }
    (read.is_disjoint(own) && !counts_equal_rows(call)).then_some(CallPlace::Outer)
}

/// Whether a call's result depends on how often equal rows come.
fn counts_equal_rows(call: &AggregateCall) -> bool {
    use Aggregate::{AnyValue, BitAnd, BitOr, BoolAnd, BoolOr, Max, Min};
    !matches!(call.function, Min | Max | BoolAnd | BoolOr | BitAnd | BitOr | AnyValue)
}

/// The type of a call in the inner aggregate; `None` if it can't be made in two steps, or if its partial sums might not fit the type of
/// the result.
fn inner_type(call: &AggregateCall) -> Option<DataType> {
    if !call.has_partial_results() || call.is_of_floats() || call.function == Aggregate::Deviations {
        return None;
    }
    if call.function != Aggregate::Sum {
        return Some(call.data_type.clone());
    }
    let argument = call.argument.as_ref().map(Expression::data_type);
    let partial = partial_type(call.function, argument, &call.data_type);
    match (&partial, &call.data_type) {
        (DataType::Decimal { precision: needed, .. }, DataType::Decimal { precision, .. }) => {
            (needed <= precision).then(|| call.data_type.clone())
        }
        // 64 bits do not hold the sum of every number of integers.
        _ => Some(partial),
    }
}

/// The work of adding a row to one of so many groups.
fn group_work<'a>(types: impl Iterator<Item = &'a DataType>, groups: f64) -> f64 {
    let types: Vec<&DataType> = types.collect();
    let of_few = match types.as_slice() {
        [single] if is_narrow(single) => INTEGER_GROUP_WORK,
        [_] => OTHER_GROUP_WORK,
        several => SEVERAL_GROUP_WORK + VALUE_GROUP_WORK * several.len() as f64,
    };
    of_few * (1.0 + groups / CACHED_GROUPS)
}

/// Whether a key of a type is a machine's integer, and equal to another one only if it is the same.
fn is_narrow(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Bool | DataType::Date) || data_type.is_integer()
}

/// Rows that an operator is expected to give.
///
/// The planner takes each key of a dimension for as frequent as any other. Of a dimension whose keys reach far beyond the facts', such as a
/// calendar of centuries, a condition usually picks keys that there are facts of. So of a join by one key the rows are at least the facts' share
/// that as many keys have in the range of the facts' own.
fn expected_rows(relation: &Relation, bounds: &NumberBounds<'_>) -> f64 {
    let estimate = relation.estimate.rows;
    let Operator::Join { kind: JoinKind::Inner, left, right, keys, residual: None, .. } = &relation.operator
    else {
        return estimate;
    };
    let [key] = keys.as_slice() else { return estimate };
    let (left_rows, right_rows) = (expected_rows(left, bounds), expected_rows(right, bounds));
    let (facts, fact_key, fact_rows, key_rows) = match left_rows < right_rows {
        true => (right, &key.right, right_rows, left_rows),
        false => (left, &key.left, left_rows, right_rows),
    };
    let Expression::Column { id, data_type } = fact_key else { return estimate };
    match value_bound(facts, &(*id, data_type.clone()), bounds) {
        Some(values) => estimate.max(fact_rows * (key_rows / values.max(1.0)).min(1.0)),
        None => estimate,
    }
}

/// A bound on the different values of a relation's column.
fn value_bound(
    relation: &Relation,
    (id, data_type): &(ColumnId, DataType),
    bounds: &NumberBounds<'_>,
) -> Option<f64> {
    if !is_narrow(data_type) {
        return None;
    }
    let (least, greatest) = number_bounds(relation, *id, bounds)?;
    Some(greatest - least + 1.0)
}

/// Whether an expression over a relation is a cast of a column of integers, all of which have few enough digits.
fn is_within_bounds(expression: &Expression, relation: &Relation, bounds: &NumberBounds<'_>) -> bool {
    let Expression::Call { function: Function::Cast, arguments, data_type } = expression else {
        return false;
    };
    let (DataType::Decimal { precision, scale }, [Expression::Column { id, data_type: from }]) =
        (data_type, arguments.as_slice())
    else {
        return false;
    };
    let limit = 10f64.powi(i32::from(*precision) - i32::from(*scale));
    let is_within = |(least, greatest): (f64, f64)| least.abs() < limit && greatest.abs() < limit;
    from.is_integer() && number_bounds(relation, *id, bounds).is_some_and(is_within)
}

/// The bounds of a relation's column.
fn number_bounds(relation: &Relation, id: ColumnId, bounds: &NumberBounds<'_>) -> Option<(f64, f64)> {
    let (files, column) = scanned(relation, id)?;
    bounds(files, column)
}

/// The column of a scan that a relation's column is.
fn scanned(relation: &Relation, id: ColumnId) -> Option<(&FileSet, &ScanColumn)> {
    match &relation.operator {
        Operator::Scan { files, columns, .. } => {
            let is_plain = |column: &&ScanColumn| {
                column.id == id && column.within.is_empty() && column.content == ColumnContent::Column
            };
            columns.iter().find(is_plain).map(|column| (files, column))
        }
        Operator::Project { input, expressions: columns }
        | Operator::Aggregate { input, groups: columns, .. } => {
            let found = columns.iter().find(|named| named.id == id)?;
            let Expression::Column { id, .. } = &found.expression else { return None };
            scanned(input, *id)
        }
        Operator::UnionAll { .. } => None,
        _ => relation.inputs().into_iter().find_map(|input| scanned(input, id)),
    }
}

fn named(id: ColumnId, expression: Expression) -> NamedExpression {
    NamedExpression { id, expression }
}

#[cfg(test)]
mod tests;
