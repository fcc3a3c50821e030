//! Exchanges of aggregates.
//!
//! ```text
//! rows of a group are together    whole
//! no groups                       partial ─► broadcast ─► final, on every rank
//! few groups                      partial ─► broadcast, or shuffle by group ─► final
//! as many groups as rows          shuffle by group ─► whole
//! DISTINCT                        shuffle by group ─► whole, or different values first:
//!                                 distinct group and value ─► … ─► counts of them as above
//! ```
//!
//! Deliberately absent: how many different values a DISTINCT argument has, which nobody knows here.

use super::{
    cost::Movement,
    distribution::Distribution,
    placement::{Placed, Placement, Wanted},
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
        let arguments = self.aggregates.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
        let groups = self.groups.iter().map(|named| &named.expression);
        groups.chain(arguments).for_each(|part| require_columns(part, &mut required));
        required
    }

    /// The groups by which rows can be dealt, as expressions over the input.
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

/// A way to bring groups together.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Shuffle,
    Broadcast,
    Rows,
}

impl Placement<'_> {
    /// An aggregate of so many groups over a placed input.
    pub(super) fn place_aggregate(
        &mut self,
        input: Placed,
        (groups, aggregates): (Vec<NamedExpression>, Vec<AggregateCall>),
        rows: f64,
    ) -> Result<Placed> {
        self.aggregate(input, Grouping { groups, aggregates, rows })
    }

    fn aggregate(&mut self, input: Placed, grouping: Grouping) -> Result<Placed> {
        let whole = grouping.operator(&input, AggregatePhase::Whole);
        if Distribution::above(&whole, std::slice::from_ref(&input.distribution)).is_ok() {
            return self.above(whole, grouping.rows, &[&input]);
        }
        if grouping.aggregates.iter().any(AggregateCall::counts_distinct) {
            return self.aggregate_distinct(input, grouping);
        }
        let keys = grouping.row_keys();
        if grouping.groups.is_empty() {
            return self.in_phases(input, grouping, ExchangeKind::Broadcast, ExchangeReason::FewGroups);
        }
        if keys.is_empty() {
            return self.in_phases(input, grouping, ExchangeKind::Gather, ExchangeReason::PartialGroups);
        }
        match self.cheapest(&input, &grouping) {
            Way::Broadcast => {
                self.in_phases(input, grouping, ExchangeKind::Broadcast, ExchangeReason::FewGroups)
            }
            Way::Shuffle => {
                let above = grouping.columns().into_iter().map(|named| named.expression);
                let keys = above.filter(|key| is_exchange_key(key.data_type())).collect();
                self.in_phases(input, grouping, ExchangeKind::Hash { keys }, ExchangeReason::PartialGroups)
            }
            Way::Rows => {
                self.rows_first(input, &grouping, ExchangeKind::Hash { keys }, ExchangeReason::ManyGroups)
            }
        }
    }

    /// Among how many ranks a shuffle by groups deals rows.
    fn owners(&self, grouping: &Grouping) -> f64 {
        self.costs.rank_count().min(grouping.rows.max(1.0))
    }

    fn cheapest(&self, input: &Placed, grouping: &Grouping) -> Way {
        let costs = self.costs;
        let (ranks, owners) = (costs.rank_count(), self.owners(grouping));
        let local = input.rows() / ranks;
        let partial_rows = ranks * expected_groups(grouping.rows.max(1.0), local);
        let partial_bytes = super::cost::row_bytes(&partial_columns(grouping));
        let row_bytes = input.row_bytes(&grouping.required());
        let moved = |kind: ExchangeKind, rows, bytes| -> Movement {
            costs.movement(&kind, &input.distribution, rows, bytes, owners)
        };
        let hash = || ExchangeKind::Hash { keys: Vec::new() };
        let add = |rows: f64| rows * costs.group_row_s;
        let shuffle =
            add(local) + moved(hash(), partial_rows, partial_bytes).seconds + add(partial_rows / owners);
        // What every rank has needs no further exchange on its way to the client.
        let broadcast = add(local)
            + moved(ExchangeKind::Broadcast, partial_rows, partial_bytes).seconds
            + add(partial_rows)
            - costs.exchange_s;
        let rows = moved(hash(), input.rows(), row_bytes).seconds + add(input.rows() / owners);
        let ways = [(Way::Broadcast, broadcast), (Way::Shuffle, shuffle), (Way::Rows, rows)];
        let best = ways.into_iter().min_by(|(_, one), (_, other)| one.total_cmp(other));
        best.map_or(Way::Shuffle, |(way, _)| way)
    }

    /// Partial results, an exchange, and results.
    fn in_phases(
        &mut self,
        input: Placed,
        grouping: Grouping,
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
        let partial_rows = match grouping.groups.is_empty() {
            true => ranks,
            false => ranks * expected_groups(grouping.rows.max(1.0), input.rows() / ranks),
        };
        let owners = self.owners(&grouping);
        let columns = grouping.columns();
        let first = Grouping { groups: grouping.groups, aggregates: partial, rows: partial_rows };
        let below = self.above(first.operator(&input, AggregatePhase::Partial), partial_rows, &[&input])?;
        let required = below.relation.columns().into_iter().map(|(id, _)| id).collect();
        let below = self.exchange(below, Wanted { kind, reason, owners }, &required)?;
        let second = Grouping { groups: columns, aggregates: last, rows: grouping.rows };
        self.above(second.operator(&below, AggregatePhase::Final), grouping.rows, &[&below])
    }

    /// Rows meet before they are added up.
    fn rows_first(
        &mut self,
        input: Placed,
        grouping: &Grouping,
        kind: ExchangeKind,
        reason: ExchangeReason,
    ) -> Result<Placed> {
        let wanted = Wanted { kind, reason, owners: self.owners(grouping) };
        let below = self.exchange(input, wanted, &grouping.required())?;
        self.above(grouping.operator(&below, AggregatePhase::Whole), grouping.rows, &[&below])
    }

    fn aggregate_distinct(&mut self, input: Placed, grouping: Grouping) -> Result<Placed> {
        let keys = grouping.row_keys();
        let argument = grouping.distinct_argument().filter(|argument| is_exchange_key(argument.data_type()));
        // Few groups would leave ranks without work.
        let is_spread = grouping.rows >= self.costs.rank_count() * GROUPS_PER_RANK_MIN;
        match argument {
            Some(argument) if keys.is_empty() || !is_spread => self.values_first(input, grouping, argument),
            _ if !keys.is_empty() => {
                self.rows_first(input, &grouping, ExchangeKind::Hash { keys }, ExchangeReason::DistinctValues)
            }
            // It takes no longer than a gather, and leaves the result where it is wanted.
            _ => self.rows_first(input, &grouping, ExchangeKind::Broadcast, ExchangeReason::DistinctValues),
        }
    }

    /// The different values of each group, then what is computed of them.
    fn values_first(&mut self, input: Placed, grouping: Grouping, argument: Expression) -> Result<Placed> {
        let value = self.fresh_column()?;
        let columns = grouping.columns();
        let column = Expression::column(value, argument.data_type().clone());
        let mut groups = grouping.groups;
        groups.push(NamedExpression { id: value, expression: argument });
        let rows = input.rows();
        let values = self.aggregate(input, Grouping { groups, aggregates: Vec::new(), rows })?;
        let calls = grouping.aggregates.into_iter().map(|call| AggregateCall {
            argument: Some(column.clone()),
            distinct: false,
            filter: None,
            ..call
        });
        self.aggregate(values, Grouping { groups: columns, aggregates: calls.collect(), rows: grouping.rows })
    }
}

/// Groups a rank, below which a shuffle by groups would leave ranks with too little to do.
const GROUPS_PER_RANK_MIN: f64 = 8.0;

/// How many of so many groups some rows are expected to be in, if each may be in any.
///
/// Source: Cardenas, "Analysis and performance of inverted data base structures", Communications of the ACM 18(5), 1975,
/// with the exponential for the power.
fn expected_groups(groups: f64, rows: f64) -> f64 {
    (groups * -(-rows / groups).exp_m1()).min(rows).max(0.0)
}

/// The columns of partial results.
fn partial_columns(grouping: &Grouping) -> Vec<(crate::ColumnId, crate::DataType)> {
    let groups = grouping.groups.iter().map(|named| (named.id, named.expression.data_type().clone()));
    let calls = grouping.aggregates.iter().map(|call| {
        let argument = call.argument.as_ref().map(Expression::data_type);
        (call.id, crate::partial_type(call.function, argument, &call.data_type))
    });
    groups.chain(calls).collect()
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
