//! Heavy keys: values that so many rows of a join's probe side have that the ranks which own them would do most of the work.
//!
//! ```text
//! key         probe side                     build side
//! heavy       stays where it is              goes to every rank
//! another     goes to the rank that owns it  goes to the rank that owns it
//! NULL, heavy stays, and matches nothing     goes to the rank that owns it
//! ```
//!
//! A join that may be so is one of the ways in which its sides meet, with what it costs: where a shuffle of all rows, with most of them on one rank,
//! would take longer than a broadcast of the smaller side, this often takes the least.
//!
//! The database's statistics name the frequent values of a table's column ([`CommonValue`]). Where they don't, an engine with access to the
//! files may count rows before the query begins ([`unknown_columns`]). After filters and joins both are estimates.
//!
//! Invariants: rows that match are partitioned alike on both sides, whatever the values are ([`crate::is_heavy`]): statistics that are old
//! cost time and change no row. The build side's rows are never preserved, so that one on every rank is one row of the join.
//!
//! Deliberately absent: several keys; values that only the build side has many rows of; floating-point numbers, of which one value has
//! several forms.
//!
//! Source: partial redistribution and partial duplication, Xu, Kostamaa, Zhou, Chen, "Handling Data Skew in Parallel Joins in
//! Shared-Nothing Systems", SIGMOD 2008, section 3. We differ: which values are skewed is known before the first row moves, of tables and not of
//! what the join reads.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    cost::{ExchangeCosts, ShuffleSpread, row_bytes},
    distribution::shuffle_key,
};
use crate::{
    ColumnId, CommonValue, DataType, ExchangeId, ExchangeKind, Expression, FileSet, Function, JoinKey,
    JoinKind, JoinSide, Operator, Relation, ScanColumn, Value, exchange_key_type, is_exchange_key,
};

/// A value is heavy if its rows are more than this part of a rank's even share: the busiest rank would have a quarter more than others.
const HEAVY_PART_MIN: f64 = 0.25;
/// To find out which rows are heavy takes about as long as to move so many bytes.
const HEAVY_BYTES_MIN: f64 = (8u64 << 20) as f64;
/// The most values that are heavy.
const HEAVY_VALUES_MAX: usize = 16;
/// The most digits of a decimal that a value of the plan has.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// Rows that are shuffled by one key: a side of a join, or what is grouped by it.
#[derive(Clone, Copy)]
pub(super) struct KeyedSide<'a> {
    pub(super) key: &'a Expression,
    pub(super) input: &'a Relation,
}

/// The only key of a join on each side, in the type by which both are partitioned.
#[derive(Debug)]
pub(super) struct KeyOfSides {
    left: Expression,
    right: Expression,
}

impl KeyOfSides {
    /// `None` for several keys, or one that can't partition rows.
    pub(super) fn of(keys: &[JoinKey]) -> Option<Self> {
        let [key] = keys else { return None };
        Some(Self { left: shuffle_key(key, JoinSide::Left)?, right: shuffle_key(key, JoinSide::Right)? })
    }

    /// The build side of a join of these inputs, and its probe side.
    pub(super) fn sides<'a>(
        &'a self,
        build: JoinSide,
        (left, right): (&'a Relation, &'a Relation),
    ) -> (KeyedSide<'a>, KeyedSide<'a>) {
        let left = KeyedSide { key: &self.left, input: left };
        let right = KeyedSide { key: &self.right, input: right };
        match build {
            JoinSide::Left => (left, right),
            JoinSide::Right => (right, left),
        }
    }
}

/// A shuffle of both sides of a join which partitions no rows with heavy keys.
#[derive(Debug)]
pub(super) struct HeavySplit {
    keys: KeyOfSides,
    build: JoinSide,
    /// The heavy values, the most frequent first.
    values: Vec<Value>,
    /// The share of the probe side's rows that have them.
    staying: f64,
    /// The share of the build side's rows that do, NULL not counted.
    copied: f64,
}

impl HeavySplit {
    /// That of a join of these inputs; `None` where no key is heavy, or there is not one alone. The build side's rows are not preserved.
    pub(super) fn of(
        costs: &ExchangeCosts,
        (keys, build): (&[JoinKey], JoinSide),
        inputs: (&Relation, &Relation),
    ) -> Option<Self> {
        let keys = KeyOfSides::of(keys)?;
        let (build_side, probe_side) = keys.sides(build, inputs);
        let (on_build, on_probe) = (build_side.common(), probe_side.common());
        let values = heavy_values(costs, (&on_build, build_side.bytes()), (&on_probe, probe_side.bytes()));
        let share = |common: &[(Value, f64)], is_counted: &dyn Fn(&Value) -> bool| -> f64 {
            let heavy = common.iter().filter(|(value, _)| values.contains(value) && is_counted(value));
            heavy.map(|(_, share)| share).sum::<f64>().min(1.0)
        };
        let staying = share(&on_probe, &|_| true);
        let copied = share(&on_build, &|value| *value != Value::Null);
        (!values.is_empty()).then_some(Self { keys, build, values, staying, copied })
    }

    /// The exchange of one side, whose rows are on `senders` of so many ranks, and the side's partitioning after it. The other side's exchange
    /// gets its id later.
    pub(super) fn exchange(
        &self,
        side: JoinSide,
        (senders, ranks): (f64, f64),
    ) -> (ExchangeKind, ShuffleSpread) {
        let key = match side {
            JoinSide::Left => &self.keys.left,
            JoinSide::Right => &self.keys.right,
        };
        let (keys, heavy) = (vec![key.clone()], self.values.clone());
        if side == self.build {
            let heavy = heavy.into_iter().filter(|value| *value != Value::Null).collect();
            let kind = ExchangeKind::HashOrBroadcast { keys, bytes_max: 0, heavy };
            return (kind, ShuffleSpread { owners: ranks, heavy_share: self.copied });
        }
        // What stays is where it was, on one rank perhaps.
        let owners = 1.0 / ((1.0 - self.staying) / ranks + self.staying / senders);
        let kind = ExchangeKind::HashOrStay { keys, partner: ExchangeId(0), heavy };
        (kind, ShuffleSpread { owners, heavy_share: self.staying })
    }
}

/// The columns of scans that joins compare, and of which it is worth knowing common values.
pub fn heavy_key_columns(root: &Relation) -> BTreeSet<ColumnId> {
    let mut columns = BTreeSet::new();
    if let Operator::Join { left, right, keys, .. } = &root.operator
        && let [key] = keys.as_slice()
    {
        let sides = [KeyedSide { key: &key.left, input: left }, KeyedSide { key: &key.right, input: right }];
        let scanned = sides.into_iter().filter_map(KeyedSide::column);
        columns.extend(scanned.filter(|column| may_be_heavy(&column.data_type)).map(|column| column.id));
    }
    root.inputs().into_iter().for_each(|input| columns.append(&mut heavy_key_columns(input)));
    columns
}

/// The tree, whose scans know common values of these columns.
pub fn with_common_values(
    relation: &Arc<Relation>,
    columns: &BTreeSet<ColumnId>,
    values_of: &mut dyn FnMut(&FileSet, &ScanColumn) -> Vec<CommonValue>,
) -> Arc<Relation> {
    let mut relation = relation.map_inputs(&mut |input| with_common_values(input, columns, values_of));
    if let Operator::Scan { columns: scanned, files, .. } = &mut Arc::make_mut(&mut relation).operator {
        for column in scanned.iter_mut().filter(|column| columns.contains(&column.id)) {
            column.common = values_of(files, column);
        }
    }
    relation
}

/// The columns of scans of which no common values are known, where a join may have heavy keys.
pub(super) fn unknown_columns((build, probe): (KeyedSide<'_>, KeyedSide<'_>)) -> Vec<ColumnId> {
    let Some(column) = probe.column().filter(|_| probe.bytes() >= HEAVY_BYTES_MIN) else {
        return Vec::new();
    };
    let sides = [Some(column), build.column()].into_iter().flatten();
    let is_unknown = |column: &&ScanColumn| column.common.is_empty() && may_be_heavy(&column.data_type);
    sides.filter(is_unknown).map(|column| column.id).collect()
}

/// The heavy values of a join's key, in the type by which both sides are shuffled; the most frequent first. Of each side common values, and bytes.
fn heavy_values(
    costs: &ExchangeCosts,
    (on_build, build_bytes): (&[(Value, f64)], f64),
    (on_probe, probe_bytes): (&[(Value, f64)], f64),
) -> Vec<Value> {
    let ranks = costs.rank_count();
    // What is copied takes no more than what does not move.
    let pays = |(value, share): &(Value, f64)| {
        let of_build = on_build.iter().find(|(known, _)| known == value).map_or(0.0, |(_, share)| *share);
        let copied = if *value == Value::Null { 0.0 } else { of_build * build_bytes * (ranks - 1.0) };
        share * ranks > HEAVY_PART_MIN && share * probe_bytes >= copied.max(HEAVY_BYTES_MIN)
    };
    let mut heavy: Vec<_> = on_probe.iter().filter(|common| pays(common)).collect();
    heavy.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    heavy.into_iter().map(|(value, _)| value.clone()).take(HEAVY_VALUES_MAX).collect()
}

impl<'a> KeyedSide<'a> {
    /// The column of a scan that the key is, but for a wider type.
    fn column(self) -> Option<&'a ScanColumn> {
        let id = match self.key {
            Expression::Column { id, .. } => *id,
            Expression::Call { function: Function::Cast, arguments, .. } => match arguments.as_slice() {
                [Expression::Column { id, .. }] => *id,
                _ => return None,
            },
            _ => return None,
        };
        scanned(self.input, id)
    }

    /// Common values in the key's type, with their shares.
    fn common(self) -> Vec<(Value, f64)> {
        let Some(column) = self.column() else { return Vec::new() };
        let known = |CommonValue { value, share }: &CommonValue| {
            Some((widened(value, &column.data_type, self.key.data_type())?, *share))
        };
        let is_share = |(_, share): &(Value, f64)| *share > 0.0 && *share <= 1.0;
        column.common.iter().filter_map(known).filter(is_share).collect()
    }

    /// Among how many ranks a shuffle of all rows partitions them: the one that owns the most frequent key may have more than its share.
    pub(super) fn owners(self, ranks: f64) -> f64 {
        let most = self.common().into_iter().map(|(_, share)| share).fold(0.0, f64::max);
        match most * ranks > HEAVY_PART_MIN {
            true => 1.0 / (most + (1.0 - most) / ranks),
            false => ranks,
        }
    }

    fn bytes(self) -> f64 {
        estimated_bytes(self.input)
    }
}

/// The bytes of all rows of a relation, as far as its estimate tells.
pub(super) fn estimated_bytes(relation: &Relation) -> f64 {
    relation.estimate.rows.max(0.0) * row_bytes(&relation.columns())
}

/// The column of a scan that a column of a relation is.
fn scanned(relation: &Relation, id: ColumnId) -> Option<&ScanColumn> {
    match &relation.operator {
        Operator::Scan { columns, .. } => columns.iter().find(|column| column.id == id),
        Operator::Filter { input, .. } | Operator::Sort { input, .. } | Operator::Exchange { input, .. } => {
            scanned(input, id)
        }
        Operator::Project { input, expressions } => {
            match expressions.iter().find(|named| named.id == id)?.expression {
                Expression::Column { id, .. } => scanned(input, id),
                _ => None,
            }
        }
        Operator::Join { kind, left, right, .. } => match kind {
            JoinKind::Inner => scanned(left, id).or_else(|| scanned(right, id)),
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => scanned(left, id),
            JoinKind::Full => None,
        },
        _ => None,
    }
}

/// Whether values of a type may be heavy: equal ones have one form.
fn may_be_heavy(data_type: &DataType) -> bool {
    is_exchange_key(data_type) && !data_type.is_float()
}

/// A value in a type that holds it exactly; `None` where it has no form there.
fn widened(value: &Value, from: &DataType, to: &DataType) -> Option<Value> {
    let tenfold =
        |number: i128, digits: u8| number.checked_mul(10i128.checked_pow(digits.into())?).map(Value::Decimal);
    match (value, to) {
        _ if !may_be_heavy(from) || exchange_key_type(from, to).as_ref() != Some(to) => None,
        (Value::Null, _) => Some(Value::Null),
        (_, DataType::Decimal { precision, .. }) if *precision > DECIMAL_DIGITS_MAX => None,
        _ if from == to => Some(value.clone()),
        (Value::Int(_), to) if to.is_integer() => Some(value.clone()),
        (Value::Int(number), DataType::Decimal { scale, .. }) => tenfold(i128::from(*number), *scale),
        (Value::Decimal(number), DataType::Decimal { scale, .. }) => match from {
            DataType::Decimal { scale: own, .. } => tenfold(*number, scale.checked_sub(*own)?),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_stay_are_on_the_ranks_that_had_them() {
        let values = vec![Value::Null, Value::Int(7)];
        let key = || Expression::column(ColumnId(1), DataType::Int64);
        let keys = KeyOfSides { left: Expression::column(ColumnId(2), DataType::Int64), right: key() };
        let split = HeavySplit { keys, build: JoinSide::Right, values, staying: 0.8, copied: 0.1 };
        let probe = |senders| split.exchange(JoinSide::Left, (senders, 4.0)).1;
        assert_eq!(probe(4.0), ShuffleSpread { owners: 4.0, heavy_share: 0.8 });
        let ShuffleSpread { owners, .. } = probe(1.0);
        assert!((owners - 1.0 / 0.85).abs() < 1e-9, "{owners}");
        let (kind, shuffle) = split.exchange(JoinSide::Right, (1.0, 4.0));
        assert_eq!(shuffle, ShuffleSpread { owners: 4.0, heavy_share: 0.1 });
        let (keys, heavy) = (vec![key()], vec![Value::Int(7)]);
        assert_eq!(kind, ExchangeKind::HashOrBroadcast { keys, bytes_max: 0, heavy });
    }

    #[test]
    fn values_are_widened_exactly_or_not_at_all() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        let int = Value::Int(-7);
        assert_eq!(widened(&int, &DataType::Int16, &DataType::Int64), Some(Value::Int(-7)));
        assert_eq!(widened(&int, &DataType::Int32, &decimal(12, 2)), Some(Value::Decimal(-700)));
        let cents = Value::Decimal(125);
        assert_eq!(widened(&cents, &decimal(5, 2), &decimal(9, 4)), Some(Value::Decimal(12_500)));
        assert_eq!(widened(&cents, &decimal(5, 2), &decimal(9, 1)), None);
        assert_eq!(widened(&cents, &decimal(5, 2), &decimal(40, 4)), None);
        assert_eq!(widened(&Value::Decimal(i128::MAX), &decimal(36, 2), &decimal(38, 4)), None);
        assert_eq!(widened(&int, &DataType::Int64, &DataType::Int32), None);
        let text = Value::Text("a".into());
        assert_eq!(widened(&text, &DataType::Text, &DataType::Text), Some(text.clone()));
        assert_eq!(widened(&text, &DataType::Text, &DataType::Int64), None);
        assert_eq!(widened(&Value::Float(0.0), &DataType::Float64, &DataType::Float64), None);
        assert_eq!(widened(&Value::Null, &DataType::Int16, &DataType::Int64), Some(Value::Null));
    }
}
