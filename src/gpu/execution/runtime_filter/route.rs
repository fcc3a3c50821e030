//! Which scans may use the filter that a join makes of its build side's keys.
//!
//! ```text
//! join: keys a, b ──► probe side: filter ─► projection: a is c ─► join ─┬─► scan with c: filter over the first key
//!                                                                       └─► scan with b: filter over the second
//! ```
//!
//! Invariants: a filter passes an operator only under two conditions. Dropping rows below the
//! operator must drop exactly those of its rows that have no match anyway. And the operator
//! computes nothing that could fail: PostgreSQL's error for a row without a match is an error here
//! too. PostgreSQL does not promise an order of joins and conditions of a scan.
//!
//! With several ranks a filter covers this rank's rows of the build side (`FilterScope`). It passes
//! no exchange that moves rows, unless every rank has all of them: a row without a match here may
//! match on another rank. If such a filter has reduced a build side, the filter of that side does
//! not cover all rows either. For scans below such exchanges the ranks share all keys
//! (`exchange/shared_keys.rs`).
//!
//! Deliberately absent: limits and sorts. Below a limit filters would change which rows come; below
//! a sort they gain little.

use std::sync::Arc;

use pystachio_plan::{
    Aggregate, AggregateCall, ColumnId, DataType, ExchangeKind, Expression, FilterScope, Function, JoinKey,
    JoinKind, JoinSide, NamedExpression, Operator, Relation, ScanColumn, could_fail,
};

use super::filter::{JoinFilters, RuntimeFilter, ScanRuntimeFilter};

/// Digits of a decimal that every number of rows fits.
const COUNT_DIGITS_MIN: u8 = 12;

/// The filters that operators above want the scans below to use.
#[derive(Clone, Default)]
pub(in crate::execution) struct FilterRoute {
    wanted: Vec<Wanted>,
}

/// A filter that is on its way down.
#[derive(Clone)]
struct Wanted {
    join: Arc<JoinFilters>,
    /// Which rows of the join's build side it covers.
    scope: FilterScope,
    /// Places of the join's keys, and the column of each here.
    keys: Vec<(usize, ColumnId)>,
    /// Operators that it has passed.
    passed: Vec<usize>,
    /// Whether it is made of the keys of all ranks, and whether that has paid off already: it has
    /// passed an exchange that stops a filter of one rank's keys.
    shared: Option<bool>,
}

/// Operators whose rows a filter may have reduced.
#[derive(Default)]
pub(in crate::execution) struct ReducedOperators(Vec<(Vec<usize>, Arc<RuntimeFilter>)>);

impl ReducedOperators {
    /// Whether an operator's rows may have been reduced.
    pub(in crate::execution) fn contains(&self, place: usize) -> bool {
        self.0.iter().any(|(passed, filter)| passed.contains(&place) && filter.is_used())
    }

    /// The filters that have passed an operator: scans below wait for them, and joins above make
    /// them.
    pub(in crate::execution) fn passing(&self, place: usize) -> Vec<Arc<RuntimeFilter>> {
        let passing = self.0.iter().filter(|(passed, _)| passed.contains(&place));
        passing.map(|(_, filter)| filter.clone()).collect()
    }
}

impl FilterRoute {
    /// No filters.
    pub(in crate::execution) fn none() -> Self {
        Self::default()
    }

    /// Whether there are no filters.
    pub(in crate::execution) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The filters that a join sends to a side with these columns. `keys`: the join's keys on that
    /// side; `scope`: which rows of the other side they cover.
    pub(in crate::execution) fn from_join(
        join: &Arc<JoinFilters>,
        keys: &[Option<ColumnId>],
        scope: FilterScope,
    ) -> Self {
        let known = keys.iter().enumerate().filter_map(|(place, id)| id.map(|id| (place, id)));
        let (keys, passed) = (known.collect::<Vec<_>>(), Vec::new());
        let wanted = Wanted { join: join.clone(), scope, keys, passed, shared: None };
        Self { wanted: if wanted.keys.is_empty() { Vec::new() } else { vec![wanted] } }
    }

    /// The same, made of the keys of all ranks: for scans that no filter of one rank's keys reaches.
    pub(in crate::execution) fn from_all_ranks(join: &Arc<JoinFilters>, keys: &[Option<ColumnId>]) -> Self {
        let mut route = Self::from_join(join, keys, FilterScope::Complete);
        route.wanted.iter_mut().for_each(|wanted| wanted.shared = Some(false));
        route
    }

    /// Whether a filter covers the rows of one rank only.
    pub(in crate::execution) fn has_share(&self) -> bool {
        self.wanted.iter().any(|wanted| wanted.scope == FilterScope::Share)
    }

    /// Below an exchange: without the filters of one rank's rows if rows go to other ranks.
    pub(in crate::execution) fn across(mut self, kind: &ExchangeKind) -> Self {
        self.wanted.retain(|wanted| wanted.scope.passes(kind));
        if !FilterScope::Share.passes(kind) {
            let shared = self.wanted.iter_mut().filter_map(|wanted| wanted.shared.as_mut());
            shared.for_each(|is_worth_it| *is_worth_it = true);
        }
        self
    }

    /// The filters of both routes.
    pub(in crate::execution) fn and(mut self, other: Self) -> Self {
        self.wanted.extend(other.wanted);
        self
    }

    /// Below an operator.
    pub(in crate::execution) fn below(mut self, place: usize) -> Self {
        self.wanted.iter_mut().for_each(|wanted| wanted.passed.push(place));
        self
    }

    /// Below an operator that computes these for every row of its input. No filter passes if one of
    /// them could fail.
    pub(in crate::execution) fn past<'a>(
        self,
        computed: impl IntoIterator<Item = &'a Expression>,
        input: &Relation,
    ) -> Self {
        let is_safe = |call: &Expression| count_as_decimal(call, input).is_some() || is_average(call, input);
        if computed.into_iter().any(|expression| could_fail(expression, &is_safe)) {
            Self::none()
        } else {
            self
        }
    }

    /// As far as keys are columns below too, by the ids that they have there.
    pub(in crate::execution) fn renamed(mut self, below: impl Fn(ColumnId) -> Option<ColumnId>) -> Self {
        for wanted in &mut self.wanted {
            wanted.keys = wanted.keys.iter().filter_map(|(place, id)| Some((*place, below(*id)?))).collect();
        }
        self.wanted.retain(|wanted| !wanted.keys.is_empty());
        self
    }

    /// Below an operator that makes columns of expressions.
    pub(in crate::execution) fn through(self, expressions: &[NamedExpression]) -> Self {
        self.renamed(|id| match expressions.iter().find(|named| named.id == id)?.expression {
            Expression::Column { id, .. } => Some(id),
            _ => None,
        })
    }

    /// As far as keys are among these columns.
    pub(in crate::execution) fn within(self, columns: &[(ColumnId, DataType)]) -> Self {
        self.renamed(|id| columns.iter().any(|(known, _)| *known == id).then_some(id))
    }

    /// The filters that a scan of so many rows gets.
    pub(in crate::execution) fn arrive(
        self,
        columns: &[ScanColumn],
        row_count: u64,
        reduced: &mut ReducedOperators,
    ) -> Vec<ScanRuntimeFilter> {
        let wanted = self
            .within(&columns.iter().map(|column| (column.id, column.data_type.clone())).collect::<Vec<_>>());
        let arrived = wanted.wanted.into_iter().filter(|wanted| wanted.shared != Some(false));
        let filters = arrived.flat_map(|Wanted { join, keys, passed, .. }| {
            let (places, ids): (Vec<usize>, Vec<ColumnId>) = keys.into_iter().unzip();
            let key_columns: Vec<(ColumnId, DataType, usize)> = ids
                .iter()
                .filter_map(|id| columns.iter().position(|column| column.id == *id))
                .filter_map(|place| {
                    columns.get(place).map(|column| (column.id, column.data_type.clone(), place))
                })
                .collect();
            let filters = ScanRuntimeFilter::of_join(&join, &places, &key_columns, row_count);
            reduced.0.extend(filters.iter().map(|filter| (passed.clone(), filter.filter().clone())));
            filters
        });
        filters.collect()
    }
}

/// The aggregate whose result a column is, below conditions on it.
fn aggregate_of<'a>(column: &Expression, input: &'a Relation) -> Option<&'a AggregateCall> {
    match (&input.operator, column) {
        (Operator::Filter { input, .. }, _) => aggregate_of(column, input),
        (Operator::Aggregate { aggregates, .. }, Expression::Column { id, .. }) => {
            aggregates.iter().find(|call| call.id == *id)
        }
        _ => None,
    }
}

/// The count that an expression is as a whole decimal, which a number of rows always fits.
fn count_as_decimal<'a>(expression: &Expression, input: &'a Relation) -> Option<&'a AggregateCall> {
    let Expression::Call { function: Function::Cast, arguments, data_type } = expression else { return None };
    let call = aggregate_of(arguments.first()?, input)?;
    let is_wide =
        matches!(data_type, DataType::Decimal { precision, scale: 0 } if *precision >= COUNT_DIGITS_MIN);
    (call.function == Aggregate::Count && is_wide).then_some(call)
}

/// Whether an expression divides a sum by how many values it has: NULL where there are none, so never by zero.
fn is_average(expression: &Expression, input: &Relation) -> bool {
    let Expression::Call { function: Function::DivideDecimal, arguments, .. } = expression else {
        return false;
    };
    let [sum, count, ..] = arguments.as_slice() else { return false };
    let (Some(sum), Some(count)) = (aggregate_of(sum, input), count_as_decimal(count, input)) else {
        return false;
    };
    // A cast of the counted value is NULL for the same rows.
    let counts_summed = match (&count.argument, &sum.argument) {
        (None, _) => true,
        (Some(counted), Some(Expression::Call { function: Function::Cast, arguments, .. }))
            if arguments.first() == Some(counted) =>
        {
            true
        }
        (counted, summed) => counted == summed,
    };
    sum.function == Aggregate::Sum && counts_summed && count.filter == sum.filter
}

/// Whether rows of a side that match nothing are in no result of a join.
pub(in crate::execution) fn drops_unmatched(kind: JoinKind, side: JoinSide) -> bool {
    match kind {
        JoinKind::Inner | JoinKind::Semi => true,
        JoinKind::Left | JoinKind::Anti => side == JoinSide::Right,
        JoinKind::Full | JoinKind::NullAwareAnti => false,
    }
}

/// Whether filters from above a join may pass to a side: without a row of that side, exactly the
/// rows with its columns are missing.
pub(in crate::execution) fn passes_join(kind: JoinKind, side: JoinSide) -> bool {
    match kind {
        JoinKind::Inner => true,
        JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => side == JoinSide::Left,
        JoinKind::Full => false,
    }
}

/// The join's key on a side, if it is a column of the type in which the sides are compared.
pub(in crate::execution) fn key_columns(keys: &[JoinKey], side: JoinSide) -> Vec<Option<ColumnId>> {
    let column = |key: &JoinKey| {
        let (own, other) = match side {
            JoinSide::Left => (&key.left, &key.right),
            JoinSide::Right => (&key.right, &key.left),
        };
        match own {
            Expression::Column { id, data_type } if data_type == other.data_type() => Some(*id),
            _ => None,
        }
    };
    keys.iter().map(column).collect()
}

/// Whether a relation drops rows: the keys of a whole table drop hardly any rows of another one.
pub(in crate::execution) fn is_selective(relation: &Relation) -> bool {
    match &relation.operator {
        Operator::Scan { filters, .. } => !filters.is_empty(),
        Operator::Filter { .. } | Operator::Limit { .. } => true,
        Operator::Project { input, .. }
        | Operator::Aggregate { input, .. }
        | Operator::Sort { input, .. }
        | Operator::Unnest { input, .. }
        | Operator::Window { input, .. }
        | Operator::Exchange { input, .. } => is_selective(input),
        Operator::Join { kind, left, right, .. } => match kind {
            JoinKind::Inner => is_selective(left) || is_selective(right),
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => true,
            JoinKind::Left => is_selective(left),
            JoinKind::Full => false,
        },
        Operator::UnionAll { inputs, .. } => inputs.iter().all(|(input, _)| is_selective(input)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(scope: FilterScope) -> FilterRoute {
        FilterRoute::from_join(&Arc::default(), &[Some(ColumnId(1))], scope)
    }

    #[test]
    fn a_filter_of_one_ranks_rows_passes_no_exchange_at_which_rows_move() {
        let keys = vec![Expression::column(ColumnId(1), DataType::Int64)];
        let moving = [
            ExchangeKind::Hash { keys: keys.clone() },
            ExchangeKind::Broadcast,
            ExchangeKind::Gather,
            ExchangeKind::Merge { keys: Vec::new() },
        ];
        for kind in &moving {
            assert!(route(FilterScope::Share).across(kind).is_empty(), "{kind:?}");
            assert!(!route(FilterScope::Complete).across(kind).is_empty(), "{kind:?}");
            // Each of the two filters takes its own way.
            let both = route(FilterScope::Share).and(route(FilterScope::Complete));
            assert!(both.has_share() && !both.across(kind).has_share(), "{kind:?}");
        }
        for keys in [Vec::new(), keys] {
            assert!(route(FilterScope::Share).across(&ExchangeKind::Own { keys }).has_share());
        }
    }
}
