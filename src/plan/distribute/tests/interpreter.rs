//! A plan's rows by the plainest means: nested loops over small tables of integers and NULLs.
//!
//! All ranks run beside one another: a relation's result is what each of them has. Exchanges move rows between them. Where an
//! operator promises no order, each rank has its rows in another one. Along the way every relation's rows are held against
//! what [`Distribution::of`] says of them.

use std::collections::{BTreeMap, HashMap};

use super::super::{Distribution, Partitioning};
use crate::{
    Aggregate, AggregateCall, AggregatePhase, ColumnId, DataType, ExchangeId, ExchangeKind, ExchangeReach,
    Expression, FrameBound, FrameExclusion, FrameUnit, Function, JoinKind, Operator, Relation, ScanExtent,
    SortKey, Value, WindowCall, WindowFrame, WindowFunction, is_heavy, partial_type,
};

pub(super) type Cell = Option<i128>;
pub(super) type Row = Vec<Cell>;

/// More rows in one relation are too many for nested loops.
const ROWS_MAX: usize = 4_000;

/// Why a plan has no result.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It is too large to be tried.
    TooLarge,
    /// It is wrong.
    Wrong(String),
}

pub(super) type Outcome<T> = std::result::Result<T, Fault>;

/// Numbers at random, always the same from one seed: SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
    }
}

/// Tables by name, each with the ranks that its rows are assigned to, whatever their number.
pub(super) type Tables = HashMap<String, Vec<(usize, Row)>>;

/// Ranks that run a plan.
pub(super) struct Ranks<'a> {
    pub(super) count: usize,
    /// Hosts that they are on, as many on each.
    pub(super) hosts: usize,
    pub(super) tables: &'a Tables,
    pub(super) parameters: &'a [Cell],
    pub(super) random: Random,
    /// Decides what exchanges choose at run time.
    pub(super) choices: u64,
    /// Whether relations are where the rules say that they are.
    pub(super) is_checked: bool,
}

impl Ranks<'_> {
    /// The rows that each rank has of a relation.
    pub(super) fn run(&mut self, relation: &Relation) -> Outcome<Vec<Vec<Row>>> {
        let inputs =
            relation.inputs().into_iter().map(|input| self.run(input)).collect::<Outcome<Vec<_>>>()?;
        let mut rows = match &relation.operator {
            Operator::Exchange { input, kind, id, reach: ExchangeReach::All } => {
                self.exchange((kind, *id), input, &inputs[0])?
            }
            Operator::Exchange { input, kind, reach, .. } => self.level(kind, *reach, input, &inputs[0])?,
            operator => {
                let local = |rank: usize| {
                    let inputs: Vec<_> = inputs.iter().map(|ranks| ranks[rank].as_slice()).collect();
                    self.local(operator, &inputs, rank)
                };
                (0..self.count).map(local).collect::<Outcome<Vec<_>>>()?
            }
        };
        if rows.iter().map(Vec::len).sum::<usize>() > ROWS_MAX {
            return Err(Fault::TooLarge);
        }
        let keeps_order = match &relation.operator {
            Operator::Exchange { kind, .. } => {
                matches!(kind, ExchangeKind::Merge { .. } | ExchangeKind::Own { .. })
            }
            Operator::Filter { .. }
            | Operator::Project { .. }
            | Operator::Sort { .. }
            | Operator::Limit { .. } => true,
            _ => false,
        };
        if !keeps_order {
            rows.iter_mut().for_each(|rows| self.random.shuffle(rows));
        }
        if self.is_checked {
            self.check(relation, &rows)?;
        }
        Ok(rows)
    }

    /// Whether rows are where the rules say.
    fn check(&self, relation: &Relation, rows: &[Vec<Row>]) -> Outcome<()> {
        let wrong = |why: &str| Err(Fault::Wrong(format!("{why}: {:?}", relation.operator)));
        let Ok(distribution) = Distribution::of(relation) else { return Ok(()) };
        let sorted = |rows: &[Row]| {
            let mut rows = rows.to_vec();
            rows.sort();
            rows
        };
        match distribution {
            Distribution::Arbitrary | Distribution::Chosen { .. } => Ok(()),
            Distribution::Halfway(kind) => match self.are_on_hosts(&kind, &relation.columns(), rows)? {
                true => Ok(()),
                false => wrong("rows are not on the hosts where they are wanted"),
            },
            Distribution::Single if rows.iter().skip(1).all(Vec::is_empty) => Ok(()),
            Distribution::Single => wrong("other ranks than the first have rows"),
            Distribution::Replicated => {
                let first = sorted(&rows[0]);
                match rows.iter().all(|rows| sorted(rows) == first) {
                    true => Ok(()),
                    false => wrong("not all ranks have the same rows"),
                }
            }
            Distribution::Partitioned { keys, by } => {
                let columns = relation.columns();
                // Each expression that is said to have a key's value.
                let ways = keys.iter().map(Vec::len).max().unwrap_or(0);
                for (rank, row) in
                    rows.iter().enumerate().flat_map(|(rank, rows)| rows.iter().map(move |row| (rank, row)))
                {
                    for way in 0..ways {
                        let keys: Vec<_> = keys.iter().map(|key| key[way % key.len()].clone()).collect();
                        let owner = match &by {
                            Partitioning::Hash => self.owner(&keys, &columns, row)?,
                            Partitioning::Range { cuts } => {
                                range_owner(cuts, self.value(&keys[0], &columns, row)?)
                            }
                        };
                        if owner != rank {
                            return wrong("a row is not on the rank that owns its keys");
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Whether each host has the rows that it is to have of an exchange, by whichever of its ranks.
    fn are_on_hosts(
        &self,
        kind: &ExchangeKind,
        columns: &[(ColumnId, DataType)],
        rows: &[Vec<Row>],
    ) -> Outcome<bool> {
        let of_hosts = rows.chunks(self.count / self.hosts).map(|ranks| {
            let mut rows = ranks.concat();
            rows.sort();
            rows
        });
        let mut are_right = true;
        let mut first = None;
        for (host, rows) in of_hosts.enumerate() {
            are_right = are_right
                && match kind {
                    ExchangeKind::Hash { keys } => {
                        let owners = rows.iter().map(|row| self.owner(keys, columns, row));
                        let owners = owners.collect::<Outcome<Vec<_>>>()?;
                        owners.iter().all(|owner| owner / (self.count / self.hosts) == host)
                    }
                    ExchangeKind::Broadcast => *first.get_or_insert_with(|| rows.clone()) == rows,
                    _ => host == 0 || rows.is_empty(),
                };
        }
        Ok(are_right)
    }

    /// The rank that owns a row. Equal numbers of two types have two owners.
    fn owner(&self, keys: &[Expression], columns: &[(ColumnId, DataType)], row: &Row) -> Outcome<usize> {
        let mut mixed = Random(keys.len() as u64);
        for key in keys {
            let value = self.value(key, columns, row)?;
            let text = format!("{} {value:?}", key.data_type());
            let number =
                text.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            mixed.0 = mixed.next() ^ number;
        }
        Ok((mixed.next() % self.count as u64) as usize)
    }

    /// One of the two exchanges that make one: no row goes to a rank that it does not reach. One that has another way to go is lost, as it would be
    /// there.
    fn level(
        &self,
        kind: &ExchangeKind,
        reach: ExchangeReach,
        input: &Relation,
        ranks: &[Vec<Row>],
    ) -> Outcome<Vec<Vec<Row>>> {
        let (columns, of_host) = (input.columns(), self.count / self.hosts);
        let mut arrived = vec![Vec::new(); self.count];
        for (rank, row) in
            ranks.iter().enumerate().flat_map(|(rank, rows)| rows.iter().map(move |row| (rank, row)))
        {
            let owners: Vec<usize> = match kind {
                ExchangeKind::Broadcast => (0..self.count).collect(),
                ExchangeKind::Hash { keys } => vec![self.owner(keys, &columns, row)?],
                ExchangeKind::Gather | ExchangeKind::Merge { .. } => vec![0],
                kind => return Err(Fault::Wrong(format!("{kind:?} has no levels"))),
            };
            for owner in owners {
                let (host, place) = (owner / of_host, owner % of_host);
                match reach {
                    // Of the ranks of a host that want it, the one of this place gets it for all.
                    ExchangeReach::BetweenHosts
                        if *kind != ExchangeKind::Broadcast || place == rank % of_host =>
                    {
                        arrived[host * of_host + rank % of_host].push(row.clone());
                    }
                    ExchangeReach::WithinHost if host == rank / of_host => arrived[owner].push(row.clone()),
                    _ => {}
                }
            }
        }
        if let ExchangeKind::Merge { keys } = kind {
            for rows in ranks {
                if *rows != self.sorted(keys, &columns, rows.clone())? {
                    return Err(Fault::Wrong("a rank's rows are not in the order that is merged".into()));
                }
            }
            return arrived.into_iter().map(|rows| self.sorted(keys, &columns, rows)).collect();
        }
        Ok(arrived)
    }

    fn exchange(
        &self,
        (kind, id): (&ExchangeKind, ExchangeId),
        input: &Relation,
        ranks: &[Vec<Row>],
    ) -> Outcome<Vec<Vec<Row>>> {
        let columns = input.columns();
        // As if the bytes of the rows had turned out so.
        let broadcasts = |id: ExchangeId| Random(self.choices ^ u64::from(id.0)).chance(50);
        let mut arrived = vec![Vec::new(); self.count];
        match kind {
            ExchangeKind::HashOrBroadcast { .. } if broadcasts(id) => arrived.fill(ranks.concat()),
            ExchangeKind::HashOrStay { partner, .. } if broadcasts(*partner) => arrived = ranks.to_vec(),
            ExchangeKind::Hash { keys }
            | ExchangeKind::HashOrBroadcast { keys, .. }
            | ExchangeKind::HashOrStay { keys, .. } => {
                for (rank, row) in
                    ranks.iter().enumerate().flat_map(|(rank, rows)| rows.iter().map(move |row| (rank, row)))
                {
                    match self.is_heavy(kind, &columns, row)? {
                        false => arrived[self.owner(keys, &columns, row)?].push(row.clone()),
                        true if matches!(kind, ExchangeKind::HashOrStay { .. }) => {
                            arrived[rank].push(row.clone());
                        }
                        true => arrived.iter_mut().for_each(|rows| rows.push(row.clone())),
                    }
                }
            }
            ExchangeKind::Broadcast => arrived.fill(ranks.concat()),
            ExchangeKind::Gather => arrived[0] = ranks.concat(),
            ExchangeKind::Merge { keys } => {
                for rows in ranks {
                    if *rows != self.sorted(keys, &columns, rows.clone())? {
                        return Err(Fault::Wrong("a rank's rows are not in the order that is merged".into()));
                    }
                }
                arrived[0] = self.sorted(keys, &columns, ranks.concat())?;
            }
            ExchangeKind::Own { keys } if keys.is_empty() => arrived[0] = ranks[0].clone(),
            ExchangeKind::Own { keys } => {
                for (rank, row) in
                    ranks.iter().enumerate().flat_map(|(rank, rows)| rows.iter().map(move |row| (rank, row)))
                {
                    if self.owner(keys, &columns, row)? == rank {
                        arrived[rank].push(row.clone());
                    }
                }
            }
        }
        Ok(arrived)
    }

    /// Whether a shuffle has a way of its own for a row.
    fn is_heavy(&self, kind: &ExchangeKind, columns: &[(ColumnId, DataType)], row: &Row) -> Outcome<bool> {
        let (ExchangeKind::HashOrBroadcast { keys, heavy, .. }
        | ExchangeKind::HashOrStay { keys, heavy, .. }) = kind
        else {
            return Ok(false);
        };
        let condition = keys.first().and_then(|key| is_heavy(key, heavy));
        condition.map_or(Ok(false), |condition| Ok(self.value(&condition, columns, row)? == Some(1)))
    }

    /// An operator on one rank.
    fn local(&self, operator: &Operator, inputs: &[&[Row]], rank: usize) -> Outcome<Vec<Row>> {
        let input_columns = |input: &Relation| input.columns();
        match operator {
            Operator::Scan { table, columns, filters, extent, .. } => {
                let known: Vec<_> =
                    columns.iter().map(|column| (column.id, column.data_type.clone())).collect();
                let mut rows = Vec::new();
                for (rank_of, row) in &self.tables[table] {
                    let place = |name: &str| name.trim_start_matches('c').parse::<usize>().unwrap_or(0);
                    let row: Row = columns.iter().map(|column| row[place(&column.name)]).collect();
                    let owner = match extent {
                        ScanExtent::Whole => rank,
                        ScanExtent::Partitioned => rank_of % self.count,
                        ScanExtent::Range { column, cuts } => {
                            let place = known.iter().position(|(id, _)| id == column);
                            let place = place.ok_or(Fault::Wrong("ranges of no column".to_owned()))?;
                            range_owner(cuts, row[place])
                        }
                    };
                    if owner != rank {
                        continue;
                    }
                    let mut is_kept = true;
                    for filter in filters {
                        is_kept = is_kept && self.value(filter, &known, &row)? == Some(1);
                    }
                    if is_kept {
                        rows.push(row);
                    }
                }
                Ok(rows)
            }
            Operator::Filter { input, predicate } => {
                let columns = input_columns(input);
                let mut kept = Vec::new();
                for row in inputs[0] {
                    if self.value(predicate, &columns, row)? == Some(1) {
                        kept.push(row.clone());
                    }
                }
                Ok(kept)
            }
            Operator::Project { input, expressions } => {
                let columns = input_columns(input);
                let expressions = || expressions.iter().map(|named| &named.expression);
                inputs[0].iter().map(|row| self.values(expressions(), &columns, row)).collect()
            }
            Operator::Join { .. } => self.join(operator, inputs[0], inputs[1]),
            Operator::Aggregate { .. } => self.aggregate(operator, inputs[0]),
            Operator::Sort { input, keys } => self.sorted(keys, &input_columns(input), inputs[0].to_vec()),
            Operator::Limit { offset, count, .. } => {
                let number = |part: &Option<Expression>| -> Outcome<Option<usize>> {
                    let value =
                        part.as_ref().map(|part| self.value(part, &[], &Row::new())).transpose()?.flatten();
                    value
                        .map(|value| usize::try_from(value).map_err(|_| Fault::Wrong("negative".into())))
                        .transpose()
                };
                let (offset, count) = (number(offset)?.unwrap_or(0), number(count)?.unwrap_or(usize::MAX));
                Ok(inputs[0].iter().skip(offset).take(count).cloned().collect())
            }
            Operator::UnionAll { inputs: below, .. } => {
                let mut rows = Vec::new();
                for ((relation, ids), input) in below.iter().zip(inputs) {
                    let columns = relation.columns();
                    let place = |id: &ColumnId| columns.iter().position(|(known, _)| known == id);
                    let places: Vec<_> = ids.iter().filter_map(place).collect();
                    rows.extend(
                        input.iter().map(|row| places.iter().map(|place| row[*place]).collect::<Row>()),
                    );
                }
                Ok(rows)
            }
            Operator::Exchange { .. } => Err(Fault::Wrong("an exchange is no operator of one rank".into())),
            Operator::Unnest { .. } => Err(Fault::Wrong("arrays are no values of ranks".into())),
            Operator::Window { .. } => self.windowed(operator, inputs[0]),
        }
    }

    fn join(&self, operator: &Operator, left_rows: &[Row], right_rows: &[Row]) -> Outcome<Vec<Row>> {
        let Operator::Join { kind, left, right, keys, residual, .. } = operator else {
            return Ok(Vec::new());
        };
        let (left_columns, right_columns) = (left.columns(), right.columns());
        let both = [left_columns.clone(), right_columns.clone()].concat();
        let left_keys = |row| self.values(keys.iter().map(|key| &key.left), &left_columns, row);
        let right_keys = |row| self.values(keys.iter().map(|key| &key.right), &right_columns, row);
        let rights = right_rows.iter().map(right_keys).collect::<Outcome<Vec<_>>>()?;
        let mut is_matched = vec![false; right_rows.len()];
        let mut rows = Vec::new();
        for left_row in left_rows {
            let own = left_keys(left_row)?;
            let mut matches = 0;
            for (place, right_row) in right_rows.iter().enumerate() {
                let is_equal =
                    own.iter().zip(&rights[place]).all(|(own, other)| own.is_some() && own == other);
                let pair = [left_row.clone(), right_row.clone()].concat();
                let is_match = is_equal
                    && match residual {
                        None => true,
                        Some(residual) => self.value(residual, &both, &pair)? == Some(1),
                    };
                if is_match {
                    matches += 1;
                    is_matched[place] = true;
                    if kind.keeps_right_columns() {
                        rows.push(pair);
                    }
                }
                if rows.len() > ROWS_MAX {
                    return Err(Fault::TooLarge);
                }
            }
            let has_null = |row: &Row| row.contains(&None);
            let is_in_unknown = !right_rows.is_empty() && (has_null(&own) || rights.iter().any(has_null));
            match kind {
                JoinKind::Left | JoinKind::Full if matches == 0 => {
                    rows.push([left_row.clone(), vec![None; right_columns.len()]].concat());
                }
                JoinKind::Semi if matches > 0 => rows.push(left_row.clone()),
                JoinKind::Anti if matches == 0 => rows.push(left_row.clone()),
                JoinKind::NullAwareAnti if matches == 0 && !is_in_unknown => rows.push(left_row.clone()),
                _ => {}
            }
        }
        if *kind == JoinKind::Full {
            let unmatched = right_rows.iter().zip(is_matched).filter(|(_, is_matched)| !is_matched);
            rows.extend(unmatched.map(|(row, _)| [vec![None; left_columns.len()], row.clone()].concat()));
        }
        Ok(rows)
    }

    fn aggregate(&self, operator: &Operator, input_rows: &[Row]) -> Outcome<Vec<Row>> {
        let Operator::Aggregate { input, groups, aggregates, phase } = operator else {
            return Ok(Vec::new());
        };
        let columns = input.columns();
        let mut by_group: BTreeMap<Row, Vec<&Row>> = BTreeMap::new();
        if groups.is_empty() {
            by_group.insert(Row::new(), Vec::new());
        }
        for row in input_rows {
            let group = self.values(groups.iter().map(|named| &named.expression), &columns, row)?;
            by_group.entry(group).or_default().push(row);
        }
        let mut rows = Vec::new();
        for (mut group, members) in by_group {
            for call in aggregates {
                group.push(self.result(call, *phase, &columns, &members)?);
            }
            rows.push(group);
        }
        Ok(rows)
    }

    fn result(
        &self,
        call: &AggregateCall,
        phase: AggregatePhase,
        columns: &[(ColumnId, DataType)],
        members: &[&Row],
    ) -> Outcome<Cell> {
        let argument_type = call.argument.as_ref().map(Expression::data_type);
        match phase {
            AggregatePhase::Whole => {}
            AggregatePhase::Partial => {
                let expected = partial_type(call.function, argument_type, &call.data_type);
                if call.data_type != expected || call.counts_distinct() {
                    return Err(Fault::Wrong(format!("no partial result: {call:?}")));
                }
            }
            AggregatePhase::Final => {
                let is_column = matches!(call.argument, Some(Expression::Column { .. }));
                if !is_column || call.distinct || call.filter.is_some() {
                    return Err(Fault::Wrong(format!("not of partial results: {call:?}")));
                }
            }
        }
        let mut values = Vec::new();
        for row in members {
            if let Some(filter) = &call.filter
                && self.value(filter, columns, row)? != Some(1)
            {
                continue;
            }
            values.extend(match &call.argument {
                None => Some(1),
                Some(argument) => self.value(argument, columns, row)?,
            });
        }
        if call.distinct {
            values.sort_unstable();
            values.dedup();
        }
        let sum: i128 = values.iter().sum();
        Ok(match (call.function, phase) {
            (Aggregate::Count, AggregatePhase::Final) => Some(sum),
            (Aggregate::Count, _) => Some(values.len() as i128),
            _ if values.is_empty() => None,
            (Aggregate::Sum, _) => Some(sum),
            (Aggregate::Min | Aggregate::BoolAnd, _) => values.into_iter().min(),
            (Aggregate::Max | Aggregate::BoolOr, _) => values.into_iter().max(),
            (Aggregate::AnyValue, _) => values.into_iter().next(),
            (Aggregate::BitAnd, _) => values.into_iter().reduce(|a, b| a & b),
            (Aggregate::BitOr, _) => values.into_iter().reduce(|a, b| a | b),
            (Aggregate::BitXor, _) => values.into_iter().reduce(|a, b| a ^ b),
            (Aggregate::Array | Aggregate::Deviations, _) => {
                return Err(Fault::Wrong("arrays and floats are no whole numbers".to_owned()));
            }
        })
    }

    /// Ranks and aggregates, of whole partitions or of those rows up to a row's peers.
    fn windowed(&self, operator: &Operator, input_rows: &[Row]) -> Outcome<Vec<Row>> {
        let Operator::Window { input, partition, order, calls } = operator else { return Ok(Vec::new()) };
        let columns = input.columns();
        let keyed = input_rows.iter().map(|row| {
            Ok((self.values(partition.iter(), &columns, row)?, self.place(order, &columns, row)?))
        });
        let keyed = keyed.collect::<Outcome<Vec<_>>>()?;
        let mut rows = Vec::with_capacity(input_rows.len());
        for (row, (own, place)) in input_rows.iter().zip(&keyed) {
            let together = input_rows.iter().zip(&keyed).filter(|(_, (other, _))| other == own);
            let mut windowed = row.clone();
            for WindowCall { id, function, argument, frame, data_type } in calls {
                let is_so_far = *frame
                    == WindowFrame {
                        unit: FrameUnit::Range { key: None, descending: false },
                        start: FrameBound::Unbounded,
                        end: FrameBound::Current,
                        exclude: FrameExclusion::Nothing,
                    };
                let members = together.clone();
                let members = members.filter(|(_, (_, other))| !is_so_far || other <= place);
                let members: Vec<&Row> = members.map(|(row, _)| row).collect();
                windowed.push(match function {
                    WindowFunction::Rank => {
                        let before = together.clone().filter(|(_, (_, other))| other < place).count();
                        Some(before as i128 + 1)
                    }
                    WindowFunction::Aggregate(function) if is_so_far || frame.is_whole() => {
                        let (id, argument, data_type) = (*id, argument.clone(), data_type.clone());
                        let (function, distinct, filter) = (*function, false, None);
                        let call = AggregateCall {
                            id,
                            function,
                            argument,
                            distinct,
                            filter,
                            data_type,
                            order: Vec::new(),
                        };
                        self.result(&call, AggregatePhase::Whole, &columns, &members)?
                    }
                    _ => return Err(Fault::Wrong("the interpreter has no such window".into())),
                });
            }
            rows.push(windowed);
        }
        Ok(rows)
    }

    /// Where a row is in the order of keys: less before more.
    fn place(
        &self,
        keys: &[SortKey],
        columns: &[(ColumnId, DataType)],
        row: &Row,
    ) -> Outcome<Vec<(i8, i128)>> {
        let mut place = Vec::new();
        for key in keys {
            let value = self.value(&key.expression, columns, row)?;
            let null_place = if key.nulls_first { -1 } else { 1 };
            place.push(match value {
                None => (null_place, 0),
                Some(value) => (0, if key.descending { -value } else { value }),
            });
        }
        Ok(place)
    }

    fn sorted(
        &self,
        keys: &[SortKey],
        columns: &[(ColumnId, DataType)],
        rows: Vec<Row>,
    ) -> Outcome<Vec<Row>> {
        let mut keyed = Vec::with_capacity(rows.len());
        for row in rows {
            keyed.push((self.place(keys, columns, &row)?, row));
        }
        keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(keyed.into_iter().map(|(_, row)| row).collect())
    }

    fn values<'e>(
        &self,
        expressions: impl Iterator<Item = &'e Expression>,
        columns: &[(ColumnId, DataType)],
        row: &Row,
    ) -> Outcome<Row> {
        expressions.map(|expression| self.value(expression, columns, row)).collect()
    }

    fn value(&self, expression: &Expression, columns: &[(ColumnId, DataType)], row: &Row) -> Outcome<Cell> {
        let wrong = |what: &str| Err(Fault::Wrong(format!("{what}: {expression:?}")));
        match expression {
            Expression::Column { id, data_type } => {
                match columns.iter().position(|(known, own)| known == id && own == data_type) {
                    Some(place) => Ok(row[place]),
                    None => wrong("no such column"),
                }
            }
            Expression::Literal(literal) => match &literal.value {
                Value::Null => Ok(None),
                Value::Bool(value) => Ok(Some(i128::from(*value))),
                Value::Int(value) => Ok(Some(i128::from(*value))),
                Value::Decimal(value) => Ok(Some(*value)),
                _ => wrong("no such literal"),
            },
            Expression::Parameter { index, .. } => Ok(self.parameters[*index as usize]),
            Expression::Case { branches, otherwise, .. } => {
                for branch in branches {
                    if self.value(&branch.condition, columns, row)? == Some(1) {
                        return self.value(&branch.result, columns, row);
                    }
                }
                otherwise.as_ref().map_or(Ok(None), |otherwise| self.value(otherwise, columns, row))
            }
            Expression::Call { function, arguments, .. } => {
                let values = self.values(arguments.iter(), columns, row)?;
                let truth = |value: bool| Some(i128::from(value));
                let both = || Some((values[0]?, values[1]?));
                match function {
                    Function::Cast => Ok(values[0]),
                    Function::Coalesce => Ok(values.into_iter().flatten().next()),
                    Function::IsNull => Ok(truth(values[0].is_none())),
                    Function::IsNotNull => Ok(truth(values[0].is_some())),
                    Function::Equal => Ok(both().and_then(|(one, other)| truth(one == other))),
                    Function::In => Ok(values[0].and_then(|value| truth(values[1..].contains(&Some(value))))),
                    Function::Or if values.contains(&Some(1)) => Ok(truth(true)),
                    Function::Or => Ok(if values.contains(&None) { None } else { truth(false) }),
                    Function::Less => Ok(both().and_then(|(one, other)| truth(one < other))),
                    Function::Add => Ok(both().map(|(one, other)| one + other)),
                    _ => wrong("no such function"),
                }
            }
        }
    }
}

/// The rank in whose range a value is.
fn range_owner(cuts: &[i64], value: Cell) -> usize {
    value.map_or(0, |value| cuts.iter().filter(|cut| value >= i128::from(**cut)).count())
}
