//! Groups of several sets over one input, computed from the groups of the finest set.
//!
//! ```text
//! Union all                                       Union all
//!   Aggregate sum(x) by a, b                        Aggregate sum(x) by a, b, shared 1
//!     Join …                                          Join …
//!   Aggregate sum(x) by a              ─►           Aggregate sum(sum(x)) by a
//!     Join …                                          Aggregate sum(x) by a, b, shared 1
//!                                                       Join …
//! ```
//!
//! The rewritten tree has the finest groups once for each set: they are alike but for the ids of their columns, and so engines compute them
//! once ([`crate::RepeatedParts`]).
//!
//! Invariants: the columns of each aggregate keep their ids, types and values. An aggregate that can't be made of partial results
//! (DISTINCT) is left alone, with all others of its union.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, DataType, Expression, Function, NamedExpression,
    Operator, Plan, Relation, Value, repeated::canonical,
};

/// Groups must be so much fewer than the rows of a table that making others of them pays. Those of a join always are: it is computed once
/// then.
const ROWS_A_GROUP_MIN: f64 = 4.0;

/// The same plan with coarse groups made of the finest ones. `next_column` gives ids that the plan does not have.
pub fn share_finest_groups(plan: &Plan, next_column: &mut dyn FnMut() -> ColumnId) -> Plan {
    Plan { root: rewrite(&plan.root, next_column), outputs: plan.outputs.clone() }
}

fn rewrite(relation: &Arc<Relation>, next_column: &mut dyn FnMut() -> ColumnId) -> Arc<Relation> {
    let relation = relation.map_inputs(&mut |input| rewrite(input, next_column));
    let Operator::UnionAll { inputs, columns } = &relation.operator else { return relation };
    let (members, ids): (Vec<_>, Vec<_>) = inputs.iter().cloned().unzip();
    let Some(members) = members_of_finest(&members, next_column) else { return relation };
    let inputs = members.into_iter().zip(ids).collect();
    Relation::new(Operator::UnionAll { inputs, columns: columns.clone() }, relation.estimate.rows)
}

/// The members of a union with coarse groups made of the finest ones; `None` if that does not pay. Members that read the same relation,
/// ids included, are told by its address.
pub fn members_of_finest(
    members: &[Arc<Relation>],
    next_column: &mut dyn FnMut() -> ColumnId,
) -> Option<Vec<Arc<Relation>>> {
    let groups: Vec<Option<&Relation>> = members.iter().map(|member| aggregate_of(member)).collect();
    let finest = finest_of(&groups)?;
    let members = members.iter().zip(&groups).map(|(member, own)| {
        let coarse = own.filter(|own| !std::ptr::eq(*own, finest));
        let made = coarse.and_then(|own| of_finest(own, finest, next_column));
        made.map_or_else(|| member.clone(), |made| with_aggregate(member, &made))
    });
    Some(members.collect())
}

/// The aggregate of a member of a union, below what is computed of its groups.
fn aggregate_of(member: &Relation) -> Option<&Relation> {
    match &member.operator {
        Operator::Project { input, .. } | Operator::Filter { input, .. } => aggregate_of(input),
        Operator::Aggregate { phase: AggregatePhase::Whole, .. } => Some(member),
        _ => None,
    }
}

/// The member with another aggregate in the place of its own.
fn with_aggregate(member: &Arc<Relation>, made: &Arc<Relation>) -> Arc<Relation> {
    match &member.operator {
        Operator::Aggregate { .. } => made.clone(),
        _ => member.map_inputs(&mut |input| with_aggregate(input, made)),
    }
}

/// The aggregate with most groups, if others may be made of it.
fn finest_of<'a>(members: &[Option<&'a Relation>]) -> Option<&'a Relation> {
    let known: Vec<&Relation> = members.iter().copied().flatten().collect();
    let group_count = |relation: &&Relation| match &relation.operator {
        Operator::Aggregate { groups, .. } => groups.len(),
        _ => 0,
    };
    let finest = known.iter().copied().max_by_key(group_count).filter(|_| known.len() > 1)?;
    let Operator::Aggregate { input, groups, aggregates, .. } = &finest.operator else { return None };
    let reads_one_table = input.scans().len() == 1;
    let is_worth_it = !reads_one_table || finest.estimate.rows * ROWS_A_GROUP_MIN < input.estimate.rows;
    (is_worth_it && !groups.is_empty() && aggregates.iter().all(AggregateCall::has_partial_results))
        .then_some(finest)
}

/// An aggregate made of the groups of the finest one; `None` if it reads something else, or computes or groups by something else.
fn of_finest(
    own: &Relation,
    finest: &Relation,
    next_column: &mut dyn FnMut() -> ColumnId,
) -> Option<Arc<Relation>> {
    let (
        Operator::Aggregate { input, groups, aggregates, .. },
        Operator::Aggregate { input: other, groups: finest_groups, aggregates: finest_calls, .. },
    ) = (&own.operator, &finest.operator)
    else {
        return None;
    };
    let names = correspondence(input, other)?;
    let as_in_finest = |expression: &Expression| {
        let mut expression = expression.clone();
        expression.map_parts(&mut |part| {
            if let Expression::Column { id, .. } = part {
                *id = names.get(id).copied().unwrap_or(*id);
            }
        });
        expression
    };
    // A copy of the finest groups with ids of its own.
    let mut ids: HashMap<ColumnId, ColumnId> = HashMap::new();
    let copy = finest.map_columns(&mut |id| *ids.entry(id).or_insert_with(&mut *next_column));
    let mut made_groups = Vec::new();
    for group in groups {
        let wanted = as_in_finest(&group.expression);
        let found = finest_groups.iter().find(|known| known.expression == wanted)?;
        let column = Expression::column(*ids.get(&found.id)?, wanted.data_type().clone());
        made_groups.push(NamedExpression { id: group.id, expression: column });
    }
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for group in &made_groups {
        let column = Expression::column(group.id, group.expression.data_type().clone());
        results.push(NamedExpression { id: group.id, expression: column });
    }
    for call in aggregates {
        let wanted = AggregateCall {
            argument: call.argument.as_ref().map(as_in_finest),
            filter: call.filter.as_ref().map(as_in_finest),
            ..call.clone()
        };
        let found =
            finest_calls.iter().find(|known| AggregateCall { id: call.id, ..(*known).clone() } == wanted)?;
        // Of rounded sums nothing exact can be made.
        if call.is_of_floats() {
            return None;
        }
        let partial = Expression::column(*ids.get(&found.id)?, found.data_type.clone());
        let (call, result) = of_partial(call, partial, next_column());
        calls.push(call);
        results.push(result);
    }
    let rows = own.estimate.rows;
    let aggregate = Operator::Aggregate {
        input: copy,
        groups: made_groups,
        aggregates: calls,
        phase: AggregatePhase::Whole,
    };
    let aggregate = Relation::new(aggregate, rows);
    Some(Relation::new(Operator::Project { input: aggregate, expressions: results }, rows))
}

/// What makes a call's result of those of finer groups, and the result in the call's type.
pub(crate) fn of_partial(
    call: &AggregateCall,
    partial: Expression,
    id: ColumnId,
) -> (AggregateCall, NamedExpression) {
    let sums = matches!(call.function, Aggregate::Count | Aggregate::Sum);
    let (function, data_type) = match sums && call.data_type == DataType::Int64 {
        true => (Aggregate::Sum, DataType::Decimal { precision: 38, scale: 0 }),
        false => (call.function, call.data_type.clone()),
    };
    let column = Expression::column(id, data_type.clone());
    let mut result = match data_type == call.data_type {
        true => column,
        false => Expression::call(Function::Cast, vec![column], call.data_type.clone()),
    };
    if call.function == Aggregate::Count {
        // Of no groups at all the sum is NULL, and the count is 0.
        let zero = Expression::literal(Value::Int(0), DataType::Int64);
        result = Expression::call(Function::Coalesce, vec![result, zero], DataType::Int64);
    }
    let made = AggregateCall {
        id,
        function,
        argument: Some(partial),
        distinct: false,
        filter: None,
        data_type,
        order: Vec::new(),
    };
    (made, NamedExpression { id: call.id, expression: result })
}

/// By column of `own` that of `other` where they have other ids, if the relations are alike but for these.
fn correspondence(own: &Arc<Relation>, other: &Arc<Relation>) -> Option<HashMap<ColumnId, ColumnId>> {
    if Arc::ptr_eq(own, other) {
        return Some(HashMap::new());
    }
    if !has_shape_of(own, other) || canonical(own) != canonical(other) {
        return None;
    }
    let ids = |relation: &Relation| {
        let mut ids = Vec::new();
        relation.map_columns(&mut |id| {
            ids.push(id);
            id
        });
        ids
    };
    Some(ids(own).into_iter().zip(ids(other)).collect())
}

/// Whether relations have the same operators over the same tables. Equal relations do, and this test is cheaper than a comparison of them.
fn has_shape_of(own: &Relation, other: &Relation) -> bool {
    let is_same = match (&own.operator, &other.operator) {
        (Operator::Scan { files, .. }, Operator::Scan { files: others, .. }) => files == others,
        (own, other) => std::mem::discriminant(own) == std::mem::discriminant(other),
    };
    let (inputs, others) = (own.inputs(), other.inputs());
    is_same
        && inputs.len() == others.len()
        && inputs.into_iter().zip(others).all(|(own, other)| has_shape_of(own, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ColumnContent, FileSet, PlanFacts, RepeatedParts, ScanColumn, ScanExtent, plan_lines, prune_columns,
    };

    fn scan(first: u32) -> Arc<Relation> {
        let column = |(place, name): (u32, &str)| ScanColumn {
            id: ColumnId(first + place),
            name: name.to_owned(),
            field_id: None,
            within: Vec::new(),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            common: Vec::new(),
        };
        let columns = [(0, "a"), (1, "b"), (2, "x")].into_iter().map(column).collect();
        let files = FileSet::parquet(vec!["t".into()]);
        let operator = Operator::Scan {
            table: "t".into(),
            files,
            columns,
            filters: Vec::new(),
            extent: ScanExtent::Whole,
        };
        Relation::new(operator, 1000.0)
    }

    /// Sums and counts by some columns of the table, whose first column has the id `first`.
    fn groups(first: u32, by: &[u32], distinct: bool) -> (Arc<Relation>, Vec<ColumnId>) {
        let column = |place: u32| Expression::column(ColumnId(first + place), DataType::Int32);
        let group =
            |place: &u32| NamedExpression { id: ColumnId(first + 10 + place), expression: column(*place) };
        let call = |id: u32, function, argument| AggregateCall {
            id: ColumnId(first + id),
            function,
            argument,
            distinct,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let operator = Operator::Aggregate {
            input: scan(first),
            groups: by.iter().map(group).collect(),
            aggregates: vec![call(20, Aggregate::Sum, Some(column(2))), call(21, Aggregate::Count, None)],
            phase: AggregatePhase::Whole,
        };
        (Relation::new(operator, 10.0), vec![ColumnId(first + 20), ColumnId(first + 21)])
    }

    fn lines(members: Vec<(Arc<Relation>, Vec<ColumnId>)>) -> Vec<String> {
        let columns = vec![(ColumnId(900), DataType::Int64), (ColumnId(901), DataType::Int64)];
        let outputs = columns.iter().map(|(id, _)| *id).collect();
        let root = Relation::new(Operator::UnionAll { inputs: members, columns }, 30.0);
        let mut next = 1000;
        let plan = share_finest_groups(&Plan { root, outputs }, &mut || {
            next += 1;
            ColumnId(next)
        });
        let plan = prune_columns(&plan);
        let parts = RepeatedParts::of(&plan.root, |_| true);
        let is_shared = plan.root.inputs().iter().any(|input| parts.group(input).is_some());
        let mut lines: Vec<_> =
            plan_lines(&plan, PlanFacts::default()).iter().map(|line| line.trim().to_owned()).collect();
        lines.push(format!("shared: {is_shared}"));
        lines
    }

    #[test]
    fn coarse_groups_are_made_of_the_finest() {
        let found = lines(vec![groups(0, &[0, 1], false), groups(100, &[0], false), groups(200, &[], false)]);
        let finest = "Aggregate sum(x), count(*) by a, b, shared 1";
        assert_eq!(found.iter().filter(|line| *line == finest).count(), 3, "{found:?}");
        assert!(found.contains(&"Aggregate sum(sum(x)), sum(count(*)) by a".to_owned()), "{found:?}");
        assert!(found.contains(&"Aggregate sum(sum(x)), sum(count(*))".to_owned()), "{found:?}");
        assert_eq!(found.last().unwrap(), "shared: true");
    }

    #[test]
    fn other_groups_and_distinct_values_stay() {
        let found = lines(vec![groups(0, &[0], false), groups(100, &[1], false)]);
        assert!(!found.iter().any(|line| line.contains("sum(sum(x))")), "{found:?}");
        let found = lines(vec![groups(0, &[0, 1], true), groups(100, &[0], true)]);
        assert!(!found.iter().any(|line| line.contains("shared 1")), "{found:?}");
    }
}
