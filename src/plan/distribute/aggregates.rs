//! Exchanges of aggregates.
//!
//! ```text
//! rows of a group are together    whole
//! no groups                       partial ─► broadcast ─► final, on every rank
//! groups                          partial ─► broadcast, or shuffle by group ─► final
//!                                 shuffle rows by group ─► whole
//! arrays                          shuffle by group ─► whole
//! DISTINCT                        shuffle by group ─► whole, or different values first:
//!                                 distinct group and value ─► … ─► counts of them as above
//! ```
//!
//! Deliberately absent: the number of distinct values of a DISTINCT argument, which is not known here.

use std::slice;

use super::{
    alternatives::{Placed, keep_cheapest},
    cost::ShuffleSpread,
    distribution::Distribution,
    heavy::KeyedSide,
    placement::{Placement, Wanted},
    reason::ExchangeReason,
};
use crate::{
    AggregateCall, AggregatePhase, CaseBranch, ExchangeKind, Expression, NamedExpression, Operator, Result,
    is_exchange_key,
    prune::{Required, require_columns},
};

/// An aggregate over rows that are not where they have to be.
struct Grouping {
    groups: Vec<NamedExpression>,
    aggregates: Vec<AggregateCall>,
    /// Estimated groups.
    rows: f64,
}

impl Grouping {
    fn operator(&self, input: &Placed, phase: AggregatePhase) -> Operator {
        Operator::Aggregate {
            input: input.relation.clone(),
            groups: self.groups.clone(),
            aggregates: self.aggregates.clone(),
            phase,
        }
    }

    /// What the aggregate reads of its input.
    fn required(&self) -> Required {
        let mut required = Required::new();
        let arguments = self.aggregates.iter().flat_map(AggregateCall::inputs);
        let groups = self.groups.iter().map(|named| &named.expression);
        groups.chain(arguments).for_each(|part| require_columns(part, &mut required));
        required
    }

    /// The groups by which rows can be partitioned, as expressions over the input.
    fn row_keys(&self) -> Vec<Expression> {
        let groups = self.groups.iter().map(|named| &named.expression);
        groups.filter(|group| is_exchange_key(group.data_type())).cloned().collect()
    }

    /// The groups as they are above the aggregate.
    fn columns(&self) -> Vec<NamedExpression> {
        let column = |named: &NamedExpression| NamedExpression {
            id: named.id,
            expression: Expression::column(named.id, named.expression.data_type().clone()),
        };
        self.groups.iter().map(column).collect()
    }

    /// The one argument of which different values count, if there is one and nothing else is computed.
    fn distinct_argument(&self) -> Option<Expression> {
        let mut arguments = self.aggregates.iter().map(guarded);
        let first = arguments.next()??;
        let is_alone = self.aggregates.iter().all(AggregateCall::counts_distinct)
            && arguments.all(|argument| argument.as_ref() == Some(&first));
        is_alone.then_some(first)
    }
}

impl Placement<'_> {
    /// The ways to compute an aggregate of so many groups over each way to compute its input.
    pub(super) fn place_aggregate(
        &mut self,
        inputs: Vec<Placed>,
        (groups, aggregates): (&[NamedExpression], &[AggregateCall]),
        rows: f64,
    ) -> Result<Vec<Placed>> {
        let grouping = Grouping { groups: groups.to_vec(), aggregates: aggregates.to_vec(), rows };
        let mut ways = Vec::new();
        for input in inputs {
            ways.extend(self.aggregate(&input.unordered(), &grouping)?);
        }
        Ok(ways)
    }

    fn aggregate(&mut self, input: &Placed, grouping: &Grouping) -> Result<Vec<Placed>> {
        let whole = grouping.operator(input, AggregatePhase::Whole);
        if Distribution::above(&whole, slice::from_ref(&input.distribution)).is_ok() {
            return Ok(vec![self.above(whole, grouping.rows, &[input])?]);
        }
        if !grouping.aggregates.iter().all(AggregateCall::has_partial_results) {
            return self.aggregate_distinct(input, grouping);
        }
        let mut ways = Vec::new();
        let keys = grouping.row_keys();
        if grouping.groups.is_empty() || !keys.is_empty() {
            ways.push(self.in_phases(input, grouping, ExchangeKind::Broadcast, ExchangeReason::FewGroups)?);
        } else {
            ways.push(self.in_phases(
                input,
                grouping,
                ExchangeKind::Gather,
                ExchangeReason::PartialGroups,
            )?);
        }
        if !keys.is_empty() {
            let above = grouping.columns().into_iter().map(|named| named.expression);
            let partial_keys = above.filter(|key| is_exchange_key(key.data_type())).collect();
            let by_group = ExchangeKind::Hash { keys: partial_keys };
            ways.push(self.in_phases(input, grouping, by_group, ExchangeReason::PartialGroups)?);
            let by_row = ExchangeKind::Hash { keys };
            ways.push(self.rows_first(input, grouping, by_row, ExchangeReason::ManyGroups)?);
        }
        Ok(ways)
    }

    /// Among how many ranks a shuffle by groups partitions rows.
    fn owners(&self, grouping: &Grouping) -> f64 {
        self.costs.rank_count().min(grouping.rows.max(1.0))
    }

    /// Partial results, an exchange, and results.
    fn in_phases(
        &mut self,
        input: &Placed,
        grouping: &Grouping,
        kind: ExchangeKind,
        reason: ExchangeReason,
    ) -> Result<Placed> {
        let (mut partial, mut last) = (Vec::new(), Vec::new());
        for call in &grouping.aggregates {
            let (first, second) = call.in_phases(self.fresh_column()?);
            partial.push(first);
            last.push(second);
        }
        let ranks = self.costs.rank_count();
        let rows = match grouping.groups.is_empty() {
            true => ranks,
            false => input.spread * expected_groups(grouping.rows.max(1.0), input.local_rows()),
        };
        let first = Grouping { groups: grouping.groups.clone(), aggregates: partial, rows };
        let below = self.above(first.operator(input, AggregatePhase::Partial), rows, &[input])?;
        let required = below.relation.columns().into_iter().map(|(id, _)| id).collect();
        let below = self.exchange(
            below,
            Wanted { kind, reason, shuffle: ShuffleSpread::among(self.owners(grouping)) },
            &required,
        )?;
        let second = Grouping { groups: grouping.columns(), aggregates: last, rows: grouping.rows };
        self.above(second.operator(&below, AggregatePhase::Final), grouping.rows, &[&below])
    }

    /// Rows meet before they are added up.
    fn rows_first(
        &self,
        input: &Placed,
        grouping: &Grouping,
        kind: ExchangeKind,
        reason: ExchangeReason,
    ) -> Result<Placed> {
        let mut owners = self.owners(grouping);
        if let ExchangeKind::Hash { keys } = &kind
            && let [key] = keys.as_slice()
        {
            owners = owners.min(KeyedSide { key, input: &input.relation }.owners(self.costs.rank_count()));
        }
        let wanted = Wanted { kind, reason, shuffle: ShuffleSpread::among(owners) };
        let below = self.exchange(input.clone(), wanted, &grouping.required())?;
        self.above(grouping.operator(&below, AggregatePhase::Whole), grouping.rows, &[&below])
    }

    fn aggregate_distinct(&mut self, input: &Placed, grouping: &Grouping) -> Result<Vec<Placed>> {
        let reason = ExchangeReason::DistinctValues;
        let keys = grouping.row_keys();
        let mut ways = vec![match keys.is_empty() {
            // It takes no longer than a gather, and leaves the result where it is wanted.
            true => self.rows_first(input, grouping, ExchangeKind::Broadcast, reason)?,
            false => self.rows_first(input, grouping, ExchangeKind::Hash { keys }, reason)?,
        }];
        let argument = grouping.distinct_argument();
        if let Some(argument) = argument.filter(|argument| is_exchange_key(argument.data_type())) {
            ways.extend(self.values_first(input, grouping, argument)?);
        }
        Ok(ways)
    }

    /// The different values of each group, then what is computed of them.
    fn values_first(
        &mut self,
        input: &Placed,
        grouping: &Grouping,
        argument: Expression,
    ) -> Result<Vec<Placed>> {
        let value = self.fresh_column()?;
        let column = Expression::column(value, argument.data_type().clone());
        let mut groups = grouping.groups.clone();
        groups.push(NamedExpression { id: value, expression: argument });
        let rows = input.rows();
        let values = self.aggregate(input, &Grouping { groups, aggregates: Vec::new(), rows })?;
        let values = keep_cheapest(values, |way| way.price, |way| &way.distribution);
        let calls = grouping.aggregates.iter().map(|call| AggregateCall {
            argument: Some(column.clone()),
            distinct: false,
            filter: None,
            ..call.clone()
        });
        let grouping =
            Grouping { groups: grouping.columns(), aggregates: calls.collect(), rows: grouping.rows };
        let mut ways = Vec::new();
        for values in values {
            ways.extend(self.aggregate(&values, &grouping)?);
        }
        Ok(ways)
    }
}

/// How many of so many groups some rows are expected to be in, if each may be in any.
///
/// Source: Cardenas, "Analysis and performance of inverted data base structures", Communications of the ACM 18(5), 1975,
/// with the exponential for the power.
fn expected_groups(groups: f64, rows: f64) -> f64 {
    (groups * -(-rows / groups).exp_m1()).min(rows).max(0.0)
}

/// The argument of a call where its filter lets it through, and NULL elsewhere.
fn guarded(call: &AggregateCall) -> Option<Expression> {
    let argument = call.argument.clone()?;
    Some(match &call.filter {
        None => argument,
        Some(filter) => {
            let data_type = argument.data_type().clone();
            let branches = vec![CaseBranch { condition: filter.clone(), result: argument }];
            Expression::Case { branches, otherwise: None, data_type }
        }
    })
}
