//! Operator by operator, from the scans up, where rows are and which exchanges there are.
//!
//! Invariants: an order that rows have on each rank is still owed to the rows of all ranks: it is merged where the order
//! decides which rows come out, and at the root. What no operator above reads does not cross an exchange.
//!
//! Deliberately absent: whether one rank would be faster.

use std::{slice, sync::Arc};

use super::{
    ExchangeFacts,
    cost::{ExchangeCosts, ScanFigures, row_bytes},
    distribution::{Distribution, renamed},
    reason::ExchangeReason,
};
use crate::{
    AggregatePhase, ColumnId, DataType, Error, ExchangeId, ExchangeKind, Expression, NamedExpression,
    Operator, Plan, Relation, Result, ScanExtent, SortKey, Value,
    prune::{Required, require_columns},
};

/// A relation of the distributed plan.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) relation: Arc<Relation>,
    pub(super) distribution: Distribution,
    /// The order in which each rank has its rows, where the rows are on several ranks and the order is wanted of all.
    pub(super) owed_order: Option<Vec<SortKey>>,
}

impl Placed {
    /// Estimated rows, over all ranks; of rows that every rank has, one rank's.
    pub(super) fn rows(&self) -> f64 {
        self.relation.estimate.rows.max(0.0)
    }

    /// Bytes of a row of what is wanted of it.
    pub(super) fn row_bytes(&self, required: &Required) -> f64 {
        let mut columns = self.relation.columns();
        columns.retain(|(id, _)| required.contains(id));
        row_bytes(&columns)
    }

    /// Without regard to the order in which the ranks have their rows.
    fn unordered(self) -> Self {
        Self { owed_order: None, ..self }
    }
}

/// A plan on its way to all ranks.
pub(super) struct Placement<'a> {
    pub(super) costs: &'a ExchangeCosts,
    scans: slice::Iter<'a, ScanFigures>,
    next_column: u32,
    exchanges: Vec<ExchangeFacts>,
}

/// What an exchange is to do.
pub(super) struct Wanted {
    pub(super) kind: ExchangeKind,
    pub(super) reason: ExchangeReason,
    /// Among how many ranks a shuffle deals the rows.
    pub(super) owners: f64,
}

impl Placement<'_> {
    /// The distributed tree of a plan, and its exchanges.
    ///
    /// # Errors
    ///
    /// `Internal` for a plan that contradicts itself, or that is distributed already.
    pub(super) fn of(
        plan: &Plan,
        costs: &ExchangeCosts,
        scans: &[ScanFigures],
    ) -> Result<(Arc<Relation>, Vec<ExchangeFacts>)> {
        let next_column = greatest_column(&plan.root).saturating_add(1);
        let mut placement = Placement { costs, scans: scans.iter(), next_column, exchanges: Vec::new() };
        let required = plan.outputs.iter().copied().collect();
        let root = placement.place(&plan.root, &required)?;
        let root = placement.collected(root, &required, ExchangeReason::Result)?;
        Ok((root.relation, placement.exchanges))
    }

    /// A relation of which these columns are read.
    fn place(&mut self, relation: &Relation, required: &Required) -> Result<Placed> {
        let rows = relation.estimate.rows;
        let mut needed = required.clone();
        relation.expressions().into_iter().for_each(|part| require_columns(part, &mut needed));
        match &relation.operator {
            Operator::Scan { .. } => self.place_scan(relation),
            Operator::Values { .. } => self.above(relation.operator.clone(), rows, &[]),
            Operator::Filter { input, predicate } => {
                let below = self.place(input, &needed)?;
                let operator =
                    Operator::Filter { input: below.relation.clone(), predicate: predicate.clone() };
                let above = self.above(operator, rows, &[&below])?;
                Ok(Placed { owed_order: below.owed_order, ..above })
            }
            Operator::Project { input, expressions } => self.place_project(input, expressions, rows),
            Operator::Join { .. } => self.place_join(relation, &needed),
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole } => {
                let mut needed = Required::new();
                relation.expressions().into_iter().for_each(|part| require_columns(part, &mut needed));
                let below = self.place(input, &needed)?.unordered();
                self.place_aggregate(below, (groups.clone(), aggregates.clone()), rows)
            }
            Operator::Sort { input, keys } => self.place_sort(input, keys, rows, &needed),
            Operator::Limit { input, offset, count } => {
                let below = self.place(input, required)?;
                self.place_limit(below, (offset, count), rows, required)
            }
            Operator::UnionAll { inputs, columns } => self.place_union(inputs, columns, rows),
            Operator::Exchange { .. } | Operator::Aggregate { .. } => {
                Err(Error::internal("the plan is distributed already"))
            }
        }
    }

    fn place_scan(&mut self, relation: &Relation) -> Result<Placed> {
        let figures = self.scans.next().copied().unwrap_or_default();
        let mut operator = relation.operator.clone();
        if let Operator::Scan { extent, .. } = &mut operator {
            let is_small = figures.encoded_bytes <= self.costs.whole_scan_bytes_max;
            *extent = if is_small { ScanExtent::Whole } else { ScanExtent::Dealt };
        }
        self.above(operator, relation.estimate.rows, &[])
    }

    fn place_project(
        &mut self,
        input: &Relation,
        expressions: &[NamedExpression],
        rows: f64,
    ) -> Result<Placed> {
        let mut needed = Required::new();
        expressions.iter().for_each(|named| require_columns(&named.expression, &mut needed));
        let mut below = self.place(input, &needed)?;
        let order = match &below.owed_order {
            None => None,
            Some(keys) => match renamed_order(keys, expressions) {
                Some(keys) => Some(keys),
                // Above, nobody could tell the order any more.
                None => {
                    below = self.collected(below, &needed, ExchangeReason::Order)?;
                    None
                }
            },
        };
        let operator = Operator::Project { input: below.relation.clone(), expressions: expressions.to_vec() };
        let above = self.above(operator, rows, &[&below])?;
        Ok(Placed { owed_order: order, ..above })
    }

    fn place_sort(
        &mut self,
        input: &Relation,
        keys: &[SortKey],
        rows: f64,
        needed: &Required,
    ) -> Result<Placed> {
        let mut below = self.place(input, needed)?.unordered();
        if keys.is_empty() {
            return Ok(below);
        }
        if below.distribution == Distribution::Replicated {
            below = self.owned_by_first(below, needed)?;
        }
        let operator = Operator::Sort { input: below.relation.clone(), keys: keys.to_vec() };
        let above = self.above(operator, rows, &[&below])?;
        let is_owed = above.distribution != Distribution::Single;
        Ok(Placed { owed_order: is_owed.then(|| keys.to_vec()), ..above })
    }

    fn place_limit(
        &mut self,
        mut below: Placed,
        (offset, count): (&Option<Expression>, &Option<Expression>),
        rows: f64,
        required: &Required,
    ) -> Result<Placed> {
        if is_absent(offset) && is_absent(count) {
            return Ok(below);
        }
        match below.distribution {
            Distribution::Single => {}
            // Each rank would choose for itself.
            Distribution::Replicated => below = self.owned_by_first(below, required)?,
            Distribution::Arbitrary | Distribution::Hashed(_) => {
                if let Some(count) = local_count(offset, count) {
                    below = self.limit_locally(below, count)?;
                }
                below = self.collected(below, required, ExchangeReason::FirstRows)?;
            }
        }
        let input = below.relation.clone();
        self.above(Operator::Limit { input, offset: offset.clone(), count: count.clone() }, rows, &[&below])
    }

    /// The first rows of each rank.
    fn limit_locally(&self, below: Placed, count: Expression) -> Result<Placed> {
        let rows = match literal_count(&count) {
            Some(count) => below.rows().min(count as f64 * self.costs.rank_count()),
            None => below.rows(),
        };
        let input = below.relation.clone();
        let limited =
            self.above(Operator::Limit { input, offset: None, count: Some(count) }, rows, &[&below])?;
        Ok(Placed { owed_order: below.owed_order, ..limited })
    }

    fn place_union(
        &mut self,
        inputs: &[(Arc<Relation>, Vec<ColumnId>)],
        columns: &[(ColumnId, DataType)],
        rows: f64,
    ) -> Result<Placed> {
        let mut below = Vec::with_capacity(inputs.len());
        for (input, ids) in inputs {
            let required = ids.iter().copied().collect();
            below.push((self.place(input, &required)?.unordered(), required));
        }
        let is_replicated = |placed: &Placed| placed.distribution == Distribution::Replicated;
        if !below.iter().all(|(placed, _)| is_replicated(placed)) {
            for (placed, required) in &mut below {
                if is_replicated(placed) {
                    *placed = self.owned_by_first(placed.clone(), required)?;
                }
            }
        }
        let relations =
            below.iter().zip(inputs).map(|((placed, _), (_, ids))| (placed.relation.clone(), ids.clone()));
        let operator = Operator::UnionAll { inputs: relations.collect(), columns: columns.to_vec() };
        let placed: Vec<&Placed> = below.iter().map(|(placed, _)| placed).collect();
        self.above(operator, rows, &placed)
    }

    /// All rows on rank 0, or on every rank, in the order that is owed.
    fn collected(&mut self, below: Placed, required: &Required, reason: ExchangeReason) -> Result<Placed> {
        let kind = match (&below.distribution, &below.owed_order) {
            (Distribution::Single | Distribution::Replicated, _) => return Ok(below),
            (_, Some(keys)) => ExchangeKind::Merge { keys: keys.clone() },
            (_, None) => ExchangeKind::Gather,
        };
        let reason = match (&kind, reason) {
            (ExchangeKind::Merge { .. }, ExchangeReason::Result) => ExchangeReason::Order,
            (_, reason) => reason,
        };
        self.exchange(below, Wanted { kind, reason, owners: 1.0 }, required)
    }

    /// Of rows that every rank has, those of rank 0.
    fn owned_by_first(&mut self, below: Placed, required: &Required) -> Result<Placed> {
        let kind = ExchangeKind::Own { keys: Vec::new() };
        self.exchange(below, Wanted { kind, reason: ExchangeReason::CountedOnce, owners: 1.0 }, required)
    }

    /// A relation above an exchange, in which only these columns are read.
    pub(super) fn exchange(&mut self, below: Placed, wanted: Wanted, required: &Required) -> Result<Placed> {
        let Wanted { kind, reason, owners } = wanted;
        let mut needed = required.clone();
        kind.expressions().for_each(|key| require_columns(key, &mut needed));
        let below = if kind.moves_rows() { self.narrowed(below, &needed)? } else { below };
        let (rows, bytes) = (below.rows(), below.row_bytes(&needed));
        let movement = self.costs.movement(&kind, &below.distribution, rows, bytes, owners);
        let id = ExchangeId(u32::try_from(self.exchanges.len()).unwrap_or(u32::MAX));
        self.exchanges.push(ExchangeFacts { id, rows, bytes: movement.bytes, reason });
        let input = below.relation.clone();
        self.above(Operator::Exchange { input, id, kind }, rows, &[&below])
    }

    /// A relation without the columns that nobody reads.
    fn narrowed(&self, below: Placed, needed: &Required) -> Result<Placed> {
        let columns = below.relation.columns();
        if columns.iter().all(|(id, _)| needed.contains(id)) {
            return Ok(below);
        }
        let kept = columns.into_iter().filter(|(id, _)| needed.contains(id));
        let expressions =
            kept.map(|(id, data_type)| NamedExpression { id, expression: Expression::column(id, data_type) });
        let rows = below.relation.estimate.rows;
        let operator =
            Operator::Project { input: below.relation.clone(), expressions: expressions.collect() };
        let above = self.above(operator, rows, &[&below])?;
        Ok(Placed { owed_order: below.owed_order, ..above })
    }

    /// An operator above others. Nothing is owed of its order.
    pub(super) fn above(&self, operator: Operator, rows: f64, inputs: &[&Placed]) -> Result<Placed> {
        let inputs: Vec<_> = inputs.iter().map(|input| input.distribution.clone()).collect();
        let distribution = Distribution::above(&operator, &inputs)?;
        Ok(Placed { relation: Relation::new(operator, rows), distribution, owed_order: None })
    }

    /// The sides of a join.
    pub(super) fn place_sides(
        &mut self,
        left: &Relation,
        right: &Relation,
        needed: &Required,
    ) -> Result<(Placed, Placed)> {
        Ok((self.place(left, needed)?.unordered(), self.place(right, needed)?.unordered()))
    }

    /// An id that no column of the plan has.
    ///
    /// # Errors
    ///
    /// `Internal` if there is none left.
    pub(super) fn fresh_column(&mut self) -> Result<ColumnId> {
        let id = ColumnId(self.next_column);
        self.next_column = self
            .next_column
            .checked_add(1)
            .ok_or_else(|| Error::internal("a plan's columns have all ids"))?;
        Ok(id)
    }
}

fn greatest_column(relation: &Relation) -> u32 {
    let own = match &relation.operator {
        Operator::Filter { .. } | Operator::Sort { .. } | Operator::Limit { .. } | Operator::Join { .. } => {
            None
        }
        _ => relation.columns().into_iter().map(|(id, _)| id.0).max(),
    };
    let below = relation.inputs().into_iter().map(|input| greatest_column(input)).max();
    own.max(below).unwrap_or(0)
}

/// The keys of an order above a projection; `None` if one is lost.
fn renamed_order(keys: &[SortKey], expressions: &[NamedExpression]) -> Option<Vec<SortKey>> {
    let above = |key: &SortKey| {
        let expression = renamed(&key.expression, expressions, &|_| true)?;
        Some(SortKey { expression, ..key.clone() })
    };
    keys.iter().map(above).collect()
}

/// Whether a part of LIMIT says nothing.
fn is_absent(part: &Option<Expression>) -> bool {
    match part {
        None => true,
        Some(Expression::Literal(literal)) => literal.value == Value::Null,
        Some(_) => false,
    }
}

/// A number of rows that the plan says. `None` for what is known later, and for what is an error then.
fn literal_count(part: &Expression) -> Option<u64> {
    match part {
        Expression::Literal(literal) => match literal.value {
            Value::Int(value) => u64::try_from(value).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// How many rows of a rank may be among those that a limit keeps. `None` for all.
fn local_count(offset: &Option<Expression>, count: &Option<Expression>) -> Option<Expression> {
    let skipped = match offset {
        offset if is_absent(offset) => 0,
        Some(offset) => literal_count(offset)?,
        None => 0,
    };
    match count {
        Some(count @ Expression::Parameter { .. }) if skipped == 0 => Some(count.clone()),
        Some(count) => {
            let rows = literal_count(count)?.checked_add(skipped)?;
            let rows = i64::try_from(rows).ok()?;
            Some(Expression::literal(Value::Int(rows), DataType::Int64))
        }
        None => None,
    }
}
