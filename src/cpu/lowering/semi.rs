//! Semi and anti joins in linear time.
//!
//! DataFusion's hash join tries every pair of rows with equal keys. A semi or anti join needs one match a row, so its
//! right side is grouped first, and what remains are few rows a key:
//!
//! | condition beside the keys                   | right side                                     |
//! |---------------------------------------------|------------------------------------------------|
//! | none                                        | each key once                                  |
//! | `l < r`, `l <= r`, `l > r`, `l >= r`        | each key once, with its greatest or least `r`  |
//! | `l <> r`, `l IS DISTINCT FROM r`            | each key once, with its least and greatest `r` |
//! | any other                                   | each key with the columns of the condition     |
//!
//! Without keys the same holds for the whole right side: it becomes one row, or its different rows.
//!
//! NOT IN over nullable columns has conditions `(l = r) IS NOT FALSE`, which are no keys. The rows that match without a
//! NULL are left out by a join with keys first; further joins leave out what matches by a NULL.
//!
//! Invariants: what is computed for every row of a side can't fail, unless it is a key.
//!
//! Deliberately absent: a linear form of other conditions. Pairs of a key's different rows are tried for them.

use std::{collections::BTreeSet, sync::Arc};

use crate::datafusion::physical_plan::ExecutionPlan;
use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, DataType, Expression, Function, JoinKey, JoinKind,
    JoinSide, NamedExpression, Operator, Relation, Result, Value, could_fail,
};

use super::{Lowering, Required, joins::Join};

/// How many equalities of one NOT IN are split: three times as many joins for each.
const SPLIT_EQUALITIES_MAX: usize = 3;

/// A right side with few rows a key, and the conditions over it.
pub(super) struct Reduced {
    pub(super) right: Arc<Relation>,
    pub(super) keys: Vec<JoinKey>,
    pub(super) residual: Option<Expression>,
}

/// What a join needs of its right side.
struct Needs<'a> {
    /// Conditions on the right side alone, which can't fail.
    right_only: Vec<&'a Expression>,
    /// All other conditions, but for the one of [`Deciding::Bounds`].
    others: Vec<&'a Expression>,
    deciding: Deciding<'a>,
}

enum Deciding<'a> {
    Keys,
    Bounds(Comparison<'a>),
    Columns(Vec<(ColumnId, DataType)>),
}

/// A comparison of the left side with an expression that grows with a column of the right side.
struct Comparison<'a> {
    function: Function,
    left: &'a Expression,
    right: &'a Expression,
    column: (ColumnId, &'a DataType),
}

/// What became of a join's right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RightSide {
    /// It is as the plan has it.
    Whole,
    /// Its rows are grouped by the keys, and nothing else.
    Grouped,
    /// It is reduced in another way.
    Other,
}

/// What lowering makes of a join's right side.
pub(crate) fn right_side(relation: &Relation) -> RightSide {
    let Operator::Join { kind, left, right, keys, residual, build } = &relation.operator else {
        return RightSide::Whole;
    };
    let join = Join { kind: *kind, left, right, keys, residual: residual.as_ref(), build: *build };
    match needs(&join) {
        None => RightSide::Whole,
        Some(needs) if needs.right_only.is_empty() && !keys.is_empty() => RightSide::Grouped,
        Some(_) => RightSide::Other,
    }
}

/// What the join needs of its right side; `None` if that is all of its rows.
fn needs<'a>(join: &Join<'a>) -> Option<Needs<'a>> {
    if !matches!(join.kind, JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti) {
        return None;
    }
    let side_keys =
        |side: fn(&JoinKey) -> &Expression| -> Vec<&Expression> { join.keys.iter().map(side).collect() };
    let has_keys = !join.keys.is_empty();
    if has_keys
        && (has_each_once(join.left, &side_keys(|key| &key.left))
            || has_each_once(join.right, &side_keys(|key| &key.right)))
    {
        return None;
    }
    let (left, right) = (column_ids(join.left), column_ids(join.right));
    let (mut right_only, mut others, mut of_both) = (Vec::new(), Vec::new(), Vec::new());
    for condition in join.residual.into_iter().flat_map(conjuncts) {
        let used = used_columns(condition);
        match (used.is_disjoint(&left), used.is_disjoint(&right)) {
            (true, false) if !may_fail(condition) => right_only.push(condition),
            (_, true) => others.push(condition),
            _ => of_both.push(condition),
        }
    }
    let deciding = match of_both.as_slice() {
        [] => Deciding::Keys,
        [condition] if let Some(comparison) = comparison(condition, &left, &right) => {
            Deciding::Bounds(comparison)
        }
        _ => {
            let mut columns: Vec<(ColumnId, DataType)> = Vec::new();
            for (id, data_type) in join.right.columns() {
                if of_both.iter().any(|condition| used_columns(condition).contains(&id)) {
                    columns.push((id, data_type));
                }
            }
            if columns.iter().any(|(_, data_type)| data_type.is_nested()) {
                return None;
            }
            others.append(&mut of_both);
            Deciding::Columns(columns)
        }
    };
    Some(Needs { right_only, others, deciding })
}

/// Whether no two rows of the relation have the same keys, as far as the plan tells.
fn has_each_once(relation: &Relation, keys: &[&Expression]) -> bool {
    let ids: BTreeSet<ColumnId> = keys
        .iter()
        .filter_map(|key| match key {
            Expression::Column { id, .. } => Some(*id),
            _ => None,
        })
        .collect();
    differs_by(relation, &ids)
}

fn differs_by(relation: &Relation, ids: &BTreeSet<ColumnId>) -> bool {
    match &relation.operator {
        Operator::Aggregate { groups, phase: AggregatePhase::Whole, .. } => {
            groups.iter().all(|group| ids.contains(&group.id))
        }
        Operator::Filter { input, .. } | Operator::Sort { input, .. } | Operator::Limit { input, .. } => {
            differs_by(input, ids)
        }
        Operator::Project { input, expressions } => {
            let below = expressions.iter().filter(|named| ids.contains(&named.id));
            let below = below.filter_map(|named| match &named.expression {
                Expression::Column { id, .. } => Some(*id),
                _ => None,
            });
            differs_by(input, &below.collect())
        }
        Operator::Join { kind: JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti, left, .. } => {
            differs_by(left, ids)
        }
        _ => false,
    }
}

fn conjuncts(condition: &Expression) -> Vec<&Expression> {
    match condition {
        Expression::Call { function: Function::And, arguments, .. } => {
            arguments.iter().flat_map(conjuncts).collect()
        }
        _ => vec![condition],
    }
}

fn column_ids(relation: &Relation) -> BTreeSet<ColumnId> {
    relation.columns().into_iter().map(|(id, _)| id).collect()
}

fn used_columns(expression: &Expression) -> BTreeSet<ColumnId> {
    let mut used = BTreeSet::new();
    super::require_columns(expression, &mut used);
    used
}

fn may_fail(expression: &Expression) -> bool {
    could_fail(expression, &|_| false)
}

/// The condition as a comparison that the least and the greatest value of a key answer.
fn comparison<'a>(
    condition: &'a Expression,
    left: &BTreeSet<ColumnId>,
    right: &BTreeSet<ColumnId>,
) -> Option<Comparison<'a>> {
    let Expression::Call { function, arguments, .. } = condition else { return None };
    let [first, second] = arguments.as_slice() else { return None };
    let mirrored = match function {
        Function::NotEqual | Function::IsDistinctFrom => *function,
        Function::Less => Function::Greater,
        Function::LessEqual => Function::GreaterEqual,
        Function::Greater => Function::Less,
        Function::GreaterEqual => Function::LessEqual,
        _ => return None,
    };
    let of_left = |expression| used_columns(expression).is_disjoint(right);
    let of_right = |expression| used_columns(expression).is_disjoint(left);
    let (function, left, right) = if of_left(first) && of_right(second) {
        (*function, first, second)
    } else if of_right(first) && of_left(second) {
        (mirrored, second, first)
    } else {
        return None;
    };
    let column = growing_column(right).filter(|_| !may_fail(right))?;
    Some(Comparison { function, left, right, column })
}

/// The column with which the expression grows.
fn growing_column(expression: &Expression) -> Option<(ColumnId, &DataType)> {
    match expression {
        Expression::Column { id, data_type } => has_bounds(data_type).then_some((*id, data_type)),
        Expression::Call { function: Function::Cast, arguments, data_type } => {
            let [argument] = arguments.as_slice() else { return None };
            let keeps_order = match argument.data_type() {
                from if is_number(from) => is_number(data_type),
                from => is_day_or_time(from) && is_day_or_time(data_type),
            };
            growing_column(argument).filter(|_| keeps_order)
        }
        _ => None,
    }
}

/// Whether min and max follow the order of the comparisons. Those of a UUID are of its text.
fn has_bounds(data_type: &DataType) -> bool {
    is_number(data_type)
        || is_day_or_time(data_type)
        || matches!(data_type, DataType::Time | DataType::Text | DataType::Bytea | DataType::Uuid)
}

fn is_number(data_type: &DataType) -> bool {
    use DataType::{Decimal, Float32, Float64, Int16, Int32, Int64};
    matches!(data_type, Int16 | Int32 | Int64 | Float32 | Float64 | Decimal { .. })
}

fn is_day_or_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date | DataType::Timestamp | DataType::TimestampTz)
}

/// OR of one or more conditions.
fn any_of(mut conditions: Vec<Expression>) -> Expression {
    match conditions.pop() {
        Some(only) if conditions.is_empty() => only,
        last => {
            conditions.extend(last);
            Expression::predicate(Function::Or, conditions)
        }
    }
}

fn is_null(value: &Expression) -> Expression {
    Expression::predicate(Function::IsNull, vec![value.clone()])
}

fn filtered(relation: &Arc<Relation>, predicate: Option<Expression>) -> Arc<Relation> {
    match predicate {
        Some(predicate) => {
            let filter = Operator::Filter { input: relation.clone(), predicate };
            Relation::new(filter, relation.estimate.rows)
        }
        None => relation.clone(),
    }
}

impl Lowering<'_> {
    /// The join's right side reduced to what decides, if it could have more.
    pub(super) fn reduced(&self, join: &Join<'_>) -> Option<Reduced> {
        let Needs { right_only, others, deciding } = needs(join)?;
        let right = filtered(join.right, Expression::all_of(right_only.into_iter().cloned().collect()));
        let mut residual: Vec<Expression> = others.into_iter().cloned().collect();
        if join.keys.is_empty() && matches!(deciding, Deciding::Keys) {
            let one = Expression::literal(Value::Int(1), DataType::Int64);
            let right = Operator::Limit { input: right, offset: None, count: Some(one) };
            let residual = Expression::all_of(residual);
            return Some(Reduced { right: Relation::new(right, 1.0), keys: Vec::new(), residual });
        }
        let mut groups = Vec::with_capacity(join.keys.len());
        let mut keys = Vec::with_capacity(join.keys.len());
        for key in join.keys {
            let id = self.fresh_column();
            let column = Expression::column(id, key.right.data_type().clone());
            groups.push(NamedExpression { id, expression: key.right.clone() });
            keys.push(JoinKey { left: key.left.clone(), right: column });
        }
        let mut aggregates = Vec::new();
        match deciding {
            Deciding::Keys => {}
            Deciding::Bounds(comparison) => {
                residual.push(self.compare_bounds(&comparison, &mut aggregates));
            }
            Deciding::Columns(columns) => groups.extend(columns.into_iter().map(|(id, data_type)| {
                NamedExpression { id, expression: Expression::column(id, data_type) }
            })),
        }
        let rows = if groups.is_empty() { 1.0 } else { right.estimate.rows };
        let phase = AggregatePhase::Whole;
        let right = Relation::new(Operator::Aggregate { input: right, groups, aggregates, phase }, rows);
        Some(Reduced { right, keys, residual: Expression::all_of(residual) })
    }

    /// The comparison with a key's least and greatest value, which `aggregates` compute.
    fn compare_bounds(&self, comparison: &Comparison<'_>, aggregates: &mut Vec<AggregateCall>) -> Expression {
        let (id, data_type) = comparison.column;
        let as_text = |value: Expression| match data_type {
            DataType::Uuid => Expression::call(Function::Cast, vec![value], DataType::Text),
            _ => value,
        };
        let column = as_text(Expression::column(id, data_type.clone()));
        let left = as_text(comparison.left.clone());
        let mut aggregate = |function, argument: Expression| {
            let (id, data_type) = (self.fresh_column(), argument.data_type().clone());
            aggregates.push(AggregateCall {
                id,
                function,
                argument: Some(argument),
                distinct: false,
                filter: None,
                data_type: data_type.clone(),
                order: Vec::new(),
            });
            Expression::column(id, data_type)
        };
        let mut bound = |function| {
            let bound = aggregate(function, column.clone());
            if *data_type == DataType::Uuid {
                return bound;
            }
            let mut right = comparison.right.clone();
            right.map_parts(&mut |part| {
                if matches!(part, Expression::Column { .. }) {
                    *part = bound.clone();
                }
            });
            right
        };
        let compare = |function, bound| Expression::predicate(function, vec![left.clone(), bound]);
        match comparison.function {
            Function::Less | Function::LessEqual => compare(comparison.function, bound(Aggregate::Max)),
            Function::Greater | Function::GreaterEqual => compare(comparison.function, bound(Aggregate::Min)),
            Function::NotEqual => any_of(vec![
                compare(Function::NotEqual, bound(Aggregate::Min)),
                compare(Function::NotEqual, bound(Aggregate::Max)),
            ]),
            _ => {
                let (least, greatest) = (bound(Aggregate::Min), bound(Aggregate::Max));
                let has_null = aggregate(Aggregate::BoolOr, is_null(&column));
                let both = |conditions| Expression::predicate(Function::And, conditions);
                let is_not_null =
                    |value: &Expression| Expression::predicate(Function::IsNotNull, vec![value.clone()]);
                any_of(vec![
                    both(vec![is_null(&left), is_not_null(&least)]),
                    both(vec![is_not_null(&left), has_null]),
                    compare(Function::NotEqual, least),
                    compare(Function::NotEqual, greatest),
                ])
            }
        }
    }

    /// An anti join whose conditions are in part equalities of NOT IN; `None` if there are none.
    ///
    /// A row matches if each equality holds, or has a NULL on the right, or on the left. One anti join for each combination
    /// of these three drops the rows that match so: what holds is a key, a NULL is a condition on one side alone, and so
    /// every join is linear. With two equalities there are nine joins. Equalities beyond [`SPLIT_EQUALITIES_MAX`] stay
    /// conditions on pairs.
    pub(super) fn lower_nullable_equalities(
        &self,
        join: &Join<'_>,
        required: &Required,
        depth: usize,
    ) -> Option<Result<Arc<dyn ExecutionPlan>>> {
        if join.kind != JoinKind::Anti {
            return None;
        }
        let (left, right) = (column_ids(join.left), column_ids(join.right));
        let (mut equalities, mut others) = (Vec::new(), Vec::new());
        for condition in join.residual.into_iter().flat_map(conjuncts) {
            match nullable_equality(condition, &left, &right) {
                Some(equality) => equalities.push(equality),
                None => others.push(condition.clone()),
            }
        }
        if equalities.is_empty() {
            return None;
        }
        let anti = |left: Arc<Relation>, right: &Arc<Relation>, keys: Vec<JoinKey>, residual| {
            let rows = left.estimate.rows;
            let residual = Expression::all_of(residual);
            let operator = Operator::Join {
                kind: JoinKind::Anti,
                left,
                right: right.clone(),
                keys,
                residual,
                build: join.build,
            };
            Relation::new(operator, rows)
        };
        let with = |more: &[JoinKey]| join.keys.iter().chain(more).cloned().collect::<Vec<_>>();
        let mut rows = join.left.clone();
        let unsplit = equalities.split_off(equalities.len().min(SPLIT_EQUALITIES_MAX));
        if !unsplit.is_empty() {
            // Most rows that match have no NULL, and are not tried again.
            rows = anti(rows, join.right, with(&[equalities.as_slice(), &unsplit].concat()), others.clone());
            others.extend(unsplit.iter().map(|JoinKey { left, right }| {
                let equal = Expression::predicate(Function::Equal, vec![left.clone(), right.clone()]);
                any_of(vec![equal, is_null(left), is_null(right)])
            }));
        }
        let mut combinations = vec![Combination::default()];
        for equality in &equalities {
            let extended = |way: fn(&mut Combination, &JoinKey)| {
                let extend = move |combination: &Combination| {
                    let mut combination = combination.clone();
                    way(&mut combination, equality);
                    combination
                };
                combinations.iter().map(extend).collect::<Vec<_>>()
            };
            combinations = [
                extended(|combination, equality| combination.keys.push(equality.clone())),
                extended(|combination, equality| combination.right_nulls.push(is_null(&equality.right))),
                extended(|combination, equality| combination.left_nulls.push(is_null(&equality.left))),
            ]
            .concat();
        }
        for Combination { keys, left_nulls, right_nulls } in combinations {
            let right = filtered(join.right, Expression::all_of(right_nulls));
            rows = anti(rows, &right, with(&keys), [left_nulls, others.clone()].concat());
        }
        Some(self.lower(&rows, required, depth))
    }
}

/// One way in which a row of the right side matches a row of the left.
#[derive(Clone, Default)]
struct Combination {
    /// The equalities that hold.
    keys: Vec<JoinKey>,
    /// Conditions on the left side.
    left_nulls: Vec<Expression>,
    /// Conditions on the right side.
    right_nulls: Vec<Expression>,
}

/// The equality of `(l = r) IS NOT FALSE`, where no side could fail.
fn nullable_equality(
    condition: &Expression,
    left: &BTreeSet<ColumnId>,
    right: &BTreeSet<ColumnId>,
) -> Option<JoinKey> {
    let Expression::Call { function: Function::IsNotFalse, arguments, .. } = condition else { return None };
    let [Expression::Call { function: Function::Equal, arguments, .. }] = arguments.as_slice() else {
        return None;
    };
    let [first, second] = arguments.as_slice() else { return None };
    if may_fail(first) || may_fail(second) {
        return None;
    }
    let side = |expression: &Expression| {
        let used = used_columns(expression);
        match (used.is_disjoint(left), used.is_disjoint(right)) {
            (false, true) => Some(JoinSide::Left),
            (true, false) => Some(JoinSide::Right),
            _ => None,
        }
    };
    match (side(first)?, side(second)?) {
        (JoinSide::Left, JoinSide::Right) => Some(JoinKey { left: first.clone(), right: second.clone() }),
        (JoinSide::Right, JoinSide::Left) => Some(JoinKey { left: second.clone(), right: first.clone() }),
        _ => None,
    }
}
