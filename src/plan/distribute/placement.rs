//! Operator by operator, from the scans up, where rows are and which exchanges there may be.
//!
//! Invariants: an order that rows have on each rank is still owed to the rows of all ranks: it is merged where the order
//! decides which rows come out, and at the root. What no operator above reads does not cross an exchange.
//!
//! Deliberately absent: whether one rank would be faster.

use std::{slice, sync::Arc, vec};

use super::{
    DistributeRequest, ExchangeFacts,
    alternatives::{Placed, Price, keep_cheapest, spread_of},
    cost::{ExchangeCosts, Load, Movement, ScanFigures, ShuffleSpread},
    distribution::{Distribution, renamed, windowed},
    levels::Step,
    ranges::{RangedScan, ranged_scans},
    reason::ExchangeReason,
};
use crate::{
    AggregatePhase, ColumnId, DataType, Error, ExchangeId, ExchangeKind, Expression, NamedExpression,
    Operator, Plan, Relation, Result, ScanExtent, SortKey, TwoLevelExchange, Value, is_exchange_key,
    prune::{Required, require_columns},
};

/// A plan on its way to all ranks.
pub(super) struct Placement<'a> {
    pub(super) costs: &'a ExchangeCosts,
    /// When exchanges have two levels.
    two_level: TwoLevelExchange,
    /// Whether rows with heavy keys need not be partitioned.
    pub(super) splits_heavy_keys: bool,
    scans: slice::Iter<'a, ScanFigures>,
    /// Of each scan that is still to come, how it may be partitioned by ranges.
    ranged: vec::IntoIter<Vec<RangedScan>>,
    next_column: u32,
}

/// What an exchange is to do.
pub(super) struct Wanted {
    pub(super) kind: ExchangeKind,
    pub(super) reason: ExchangeReason,
    /// How a shuffle partitions the rows.
    pub(super) shuffle: ShuffleSpread,
}

impl Placement<'_> {
    /// The distributed tree of a plan, its exchanges, and the seconds that it is expected to take.
    ///
    /// # Errors
    ///
    /// `Internal` for a plan that contradicts itself, or that is distributed already.
    pub(super) fn of(
        plan: &Plan,
        request: DistributeRequest<'_>,
    ) -> Result<(Arc<Relation>, Vec<ExchangeFacts>, f64)> {
        let DistributeRequest { costs, scans, two_level, choices, .. } = request;
        let next_column = greatest_column(&plan.root).saturating_add(1);
        let ranged = ranged_scans(&plan.root, costs, scans).into_iter();
        // A split has one level, where two are asked for.
        let has_two = two_level == TwoLevelExchange::On && costs.has_levels();
        let splits_heavy_keys = choices.heavy_keys && !has_two;
        let scans = scans.iter();
        let mut placement = Placement { costs, two_level, splits_heavy_keys, scans, ranged, next_column };
        let required = plan.outputs.iter().copied().collect();
        let ways = placement.place(&plan.root, &required)?.into_iter();
        let ways = ways.map(|way| placement.collected(way, &required, ExchangeReason::Result));
        let ways = ways.collect::<Result<Vec<_>>>()?;
        let best = ways.into_iter().min_by(|one, other| one.price.compare(&other.price));
        let Placed { relation, mut exchanges, price, .. } =
            best.ok_or_else(|| Error::internal("there is no way to compute a plan"))?;
        for (exchange, id) in exchanges.iter_mut().zip(0..) {
            exchange.id = ExchangeId(id);
        }
        Ok((numbered(&relation, &mut 0), exchanges, price.seconds))
    }

    /// The ways to compute a relation of which these columns are read, the cheapest first.
    pub(super) fn place(&mut self, relation: &Relation, required: &Required) -> Result<Vec<Placed>> {
        let rows = relation.estimate.rows;
        let mut needed = required.clone();
        relation.expressions().into_iter().for_each(|part| require_columns(part, &mut needed));
        let ways = match &relation.operator {
            Operator::Scan { .. } => self.place_scan(relation)?,
            Operator::Filter { input, predicate } => {
                self.place_each(input, &needed, |placement, below| {
                    let input = below.relation.clone();
                    let operator = Operator::Filter { input, predicate: predicate.clone() };
                    let above = placement.above(operator, rows, &[&below])?;
                    Ok(Placed { owed_order: below.owed_order, ..above })
                })?
            }
            Operator::Unnest { input, arrays, number, keeps_rows } => {
                self.place_each(input, &needed, |placement, below| {
                    let operator = Operator::Unnest {
                        input: below.relation.clone(),
                        arrays: arrays.clone(),
                        number: *number,
                        keeps_rows: *keeps_rows,
                    };
                    let above = placement.above(operator, rows, &[&below])?;
                    Ok(Placed { owed_order: below.owed_order, ..above })
                })?
            }
            Operator::Window { input, partition, .. } => {
                self.place_each(input, &needed, |placement, below| {
                    let below = placement.by_partition(below.unordered(), partition, &needed)?;
                    let operator = relation.map_inputs(&mut |_| below.relation.clone()).operator.clone();
                    placement.above(operator, rows, &[&below])
                })?
            }
            Operator::Project { input, expressions } => {
                let mut needed = Required::new();
                expressions.iter().for_each(|named| require_columns(&named.expression, &mut needed));
                self.place_each(input, &needed, |placement, below| {
                    placement.project(below, expressions, rows, &needed)
                })?
            }
            Operator::Join { .. } => self.place_join(relation, &needed)?,
            Operator::Aggregate { input, groups, aggregates, phase: AggregatePhase::Whole } => {
                let mut needed = Required::new();
                relation.expressions().into_iter().for_each(|part| require_columns(part, &mut needed));
                let below = self.place(input, &needed)?;
                self.place_aggregate(below, (groups, aggregates), rows)?
            }
            Operator::Sort { input, keys } => self.place_each(input, &needed, |placement, below| {
                placement.sort(below.unordered(), keys, rows, &needed)
            })?,
            Operator::Limit { input, offset, count } => {
                self.place_each(input, required, |placement, below| {
                    placement.limit(below, (offset, count), rows, required)
                })?
            }
            Operator::UnionAll { inputs, columns } => self.place_union(inputs, columns, rows)?,
            Operator::Exchange { .. } | Operator::Aggregate { .. } => {
                return Err(Error::internal("the plan is distributed already"));
            }
        };
        Ok(keep_cheapest(ways, |way| way.price, |way| &way.distribution))
    }

    /// An operator above each way to compute its input.
    fn place_each(
        &mut self,
        input: &Relation,
        needed: &Required,
        above: impl Fn(&Self, Placed) -> Result<Placed>,
    ) -> Result<Vec<Placed>> {
        self.place(input, needed)?.into_iter().map(|below| above(self, below)).collect()
    }

    /// A scan that every rank does whole; or one whose rows are partitioned, in all ways that may be of use.
    fn place_scan(&mut self, relation: &Relation) -> Result<Vec<Placed>> {
        let encoded_bytes = self.scans.next().map_or(0, |figures| figures.encoded_bytes);
        let ranged = self.ranged.next().unwrap_or_default();
        let Operator::Scan { files, .. } = &relation.operator else {
            return Err(Error::internal("a scan is something else"));
        };
        // Files of one rank are for that rank to read, however few they are.
        let is_small = encoded_bytes <= self.costs.whole_scan_bytes_max && !files.is_per_rank();
        let whole = if is_small { ScanExtent::Whole } else { ScanExtent::Partitioned };
        let rank_count = self.costs.rank_count();
        let seconds = self.costs.scan_seconds(encoded_bytes, if is_small { 1.0 } else { rank_count });
        let mut ways = vec![self.scan(relation, whole, seconds)?];
        if !is_small {
            for RangedScan { column, cuts, busiest_bytes } in ranged {
                let seconds = self.costs.scan_seconds(busiest_bytes, 1.0);
                ways.push(self.scan(relation, ScanExtent::Range { column, cuts }, seconds)?);
            }
        }
        Ok(ways)
    }

    fn scan(&self, relation: &Relation, extent: ScanExtent, seconds: f64) -> Result<Placed> {
        let mut operator = relation.operator.clone();
        if let Operator::Scan { extent: own, .. } = &mut operator {
            *own = extent;
        }
        let mut scan = self.above(operator, relation.estimate.rows, &[])?;
        scan.price.seconds += seconds;
        Ok(scan)
    }

    fn project(
        &self,
        mut below: Placed,
        expressions: &[NamedExpression],
        rows: f64,
        needed: &Required,
    ) -> Result<Placed> {
        let order = match &below.owed_order {
            None => None,
            Some(keys) => match renamed_order(keys, expressions) {
                Some(keys) => Some(keys),
                // Operators above could not recover the order.
                None => {
                    below = self.collected(below, needed, ExchangeReason::Order)?;
                    None
                }
            },
        };
        let operator = Operator::Project { input: below.relation.clone(), expressions: expressions.to_vec() };
        let above = self.above(operator, rows, &[&below])?;
        Ok(Placed { owed_order: order, ..above })
    }

    fn sort(&self, mut below: Placed, keys: &[SortKey], rows: f64, needed: &Required) -> Result<Placed> {
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

    fn limit(
        &self,
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
            Distribution::Arbitrary
            | Distribution::Partitioned { .. }
            | Distribution::Chosen { .. }
            | Distribution::Halfway(_) => {
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

    /// A union of what is cheapest of each input, and of what every rank has where that may be had of all.
    fn place_union(
        &mut self,
        inputs: &[(Arc<Relation>, Vec<ColumnId>)],
        columns: &[(ColumnId, DataType)],
        rows: f64,
    ) -> Result<Vec<Placed>> {
        let is_replicated = |way: &Placed| way.distribution == Distribution::Replicated;
        let mut replicated = Some(Vec::new());
        let mut parted = Vec::new();
        for (input, ids) in inputs {
            let required = ids.iter().copied().collect();
            let ways = self.place(input, &required)?;
            let whole = ways.iter().find(|way| is_replicated(way));
            replicated = replicated.zip(whole.cloned()).map(|(mut known, way): (Vec<Placed>, _)| {
                known.push(way.unordered());
                known
            });
            let once = ways.into_iter().map(|way| match is_replicated(&way) {
                true => self.owned_by_first(way, &required),
                false => Ok(way.unordered()),
            });
            let once = once.collect::<Result<Vec<_>>>()?;
            parted.extend(once.into_iter().min_by(|one, other| one.price.compare(&other.price)));
        }
        let union = |below: &[Placed]| {
            let relations =
                below.iter().zip(inputs).map(|(way, (_, ids))| (way.relation.clone(), ids.clone()));
            let operator = Operator::UnionAll { inputs: relations.collect(), columns: columns.to_vec() };
            self.above(operator, rows, &below.iter().collect::<Vec<_>>())
        };
        [replicated, Some(parted)].iter().flatten().map(|below| union(below)).collect()
    }

    /// The rows of each partition of a window on one rank.
    fn by_partition(&self, below: Placed, partition: &[Expression], needed: &Required) -> Result<Placed> {
        if windowed(partition, &below.distribution).is_ok() {
            return Ok(below);
        }
        if below.distribution == Distribution::Replicated {
            return self.owned_by_first(below, needed);
        }
        let keys = partition.iter().filter(|key| is_exchange_key(key.data_type())).cloned();
        let keys: Vec<Expression> = keys.collect();
        if keys.is_empty() {
            return self.collected(below, needed, ExchangeReason::WindowPartition);
        }
        let (kind, reason) = (ExchangeKind::Hash { keys }, ExchangeReason::WindowPartition);
        let shuffle = ShuffleSpread::among(self.costs.rank_count());
        self.exchange(below, Wanted { kind, reason, shuffle }, needed)
    }

    /// All rows on rank 0, or on every rank, in the order that is owed.
    fn collected(&self, below: Placed, required: &Required, reason: ExchangeReason) -> Result<Placed> {
        let kind = match (&below.distribution, &below.owed_order) {
            (Distribution::Single | Distribution::Replicated, _) => return Ok(below),
            (_, Some(keys)) => ExchangeKind::Merge { keys: keys.clone() },
            (_, None) => ExchangeKind::Gather,
        };
        let reason = match (&kind, reason) {
            (ExchangeKind::Merge { .. }, ExchangeReason::Result) => ExchangeReason::Order,
            (_, reason) => reason,
        };
        self.exchange(below, Wanted { kind, reason, shuffle: ShuffleSpread::among(1.0) }, required)
    }

    /// Of rows that every rank has, those of rank 0.
    fn owned_by_first(&self, below: Placed, required: &Required) -> Result<Placed> {
        let kind = ExchangeKind::Own { keys: Vec::new() };
        self.exchange(
            below,
            Wanted { kind, reason: ExchangeReason::CountedOnce, shuffle: ShuffleSpread::among(1.0) },
            required,
        )
    }

    /// A relation above an exchange, in which only these columns are read.
    pub(super) fn exchange(&self, below: Placed, wanted: Wanted, required: &Required) -> Result<Placed> {
        let Wanted { kind, reason, shuffle } = wanted;
        let mut needed = required.clone();
        kind.expressions().for_each(|key| require_columns(key, &mut needed));
        let below = if kind.moves_rows() { self.narrowed(below, &needed)? } else { below };
        let rows = below.rows();
        let load = Load { rows, row_bytes: below.row_bytes(&needed), senders: below.spread, shuffle };
        let steps = self.costs.steps(&kind, load, self.two_level);
        steps.into_iter().try_fold(below, |below, Step { reach, movement }| {
            let (input, id, kind) = (below.relation.clone(), ExchangeId(0), kind.clone());
            let mut above = self.above(Operator::Exchange { input, id, kind, reach }, rows, &[&below])?;
            above.spread = spread_of(&above.distribution, shuffle.owners);
            above.price = above.price.and(Price { seconds: movement.seconds, bytes: movement.bytes });
            above.exchanges.push(ExchangeFacts { id, rows, bytes: movement.bytes, reason });
            Ok(above)
        })
    }

    /// What an exchange moves, over both levels if it has two.
    pub(super) fn movement(&self, kind: &ExchangeKind, load: Load) -> Movement {
        let steps = self.costs.steps(kind, load, self.two_level);
        steps.iter().fold(Movement::default(), |sum, step| sum.and(step.movement))
    }

    /// A relation without its unused columns.
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
        let mut above = self.above(operator, rows, &[&below])?;
        // Leaving columns out is no work.
        above.price = below.price;
        Ok(Placed { owed_order: below.owed_order, ..above })
    }

    /// An operator above others. Nothing is owed of its order.
    pub(super) fn above(&self, operator: Operator, rows: f64, inputs: &[&Placed]) -> Result<Placed> {
        let distributions: Vec<_> = inputs.iter().map(|input| input.distribution.clone()).collect();
        let distribution = Distribution::above(&operator, &distributions)?;
        let sharing = inputs.iter().map(|input| input.spread).reduce(f64::max);
        let spread = spread_of(&distribution, sharing.unwrap_or_else(|| self.costs.rank_count()));
        let input_rows: Vec<_> = inputs.iter().map(|input| input.local_rows()).collect();
        let seconds = self.costs.operator_seconds(&operator, rows.max(0.0) / spread, &input_rows);
        let below = inputs.iter().fold(Price::default(), |sum, input| sum.and(input.price));
        let price = below.and(Price { seconds, bytes: 0.0 });
        let exchanges = inputs.iter().flat_map(|input| input.exchanges.iter().cloned()).collect();
        let relation = Relation::new(operator, rows);
        Ok(Placed { relation, distribution, owed_order: None, spread, price, exchanges })
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

/// The tree with its exchanges' ids, inputs' before those above, the left's before the right's.
fn numbered(relation: &Relation, next: &mut u32) -> Arc<Relation> {
    let mut relation = relation.map_inputs(&mut |input| numbered(input, next));
    match &mut Arc::make_mut(&mut relation).operator {
        Operator::Exchange { id, .. } => {
            *id = ExchangeId(*next);
            *next = next.saturating_add(1);
        }
        Operator::Join { left, right, .. } => {
            name_partner(left, right);
            name_partner(right, left);
        }
        _ => {}
    }
    relation
}

/// Gives a side of a join whose rows stay where the other's go to all ranks the id of that exchange.
fn name_partner(side: &mut Arc<Relation>, other: &Relation) {
    if let Operator::Exchange { kind: ExchangeKind::HashOrStay { .. }, .. } = side.operator
        && let Operator::Exchange { id, .. } = other.operator
        && let Operator::Exchange { kind: ExchangeKind::HashOrStay { partner, .. }, .. } =
            &mut Arc::make_mut(side).operator
    {
        *partner = id;
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
        Some(known) if !is_absent(offset) => literal_count(known)?,
        _ => 0,
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
