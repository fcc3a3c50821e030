//! On which ranks the rows of a relation are.
//!
//! ```text
//! scan, partitioned ──► Arbitrary ─┬─ shuffle ───────► Partitioned by hash
//!                            ├─ broadcast ─────► Replicated ── own ──► Partitioned by hash, Single
//!                            └─ gather, merge ─► Single                 each of them at once, or by way of Halfway: between hosts, then within
//! scan, of a range of keys ────────────────────► Partitioned by range
//! ```
//!
//! [`Distribution::of`] derives it from a plan alone, operator by operator, and is an error for a plan that would lose,
//! multiply or miss rows. The same rules choose where exchanges have to be.
//!
//! Invariants: what `Partitioned` names are expressions over the relation's own columns. `Replicated` means the same rows on
//! every rank, in whatever order: an operator for which the order decides which rows come out, a limit, has no such input.
//!
//! Deliberately absent: cost; the order of rows.

use std::sync::Arc;

use super::levels;
use crate::{
    AggregatePhase, ColumnId, DataType, Error, ExchangeId, ExchangeKind, Expression, Function, JoinKey,
    JoinKind, JoinSide, NamedExpression, Operator, Relation, Result, ScanExtent, Value, exchange_key_type,
    is_exchange_key,
};

/// Expressions that have the same value in every row, by any of which rows are partitioned among ranks.
pub type EqualExpressions = Vec<Expression>;

/// Which rank owns a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Partitioning {
    /// The one that a shuffle sends it to ([`ExchangeKind::Hash`]).
    Hash,
    /// The one in whose range it is, as of [`ScanExtent::Range`]. There is one key.
    Range {
        /// The first value of each rank but the first, ascending.
        cuts: Vec<i64>,
    },
}

/// The most expressions that are remembered of one key.
const EQUAL_EXPRESSIONS_MAX: usize = 32;

/// On which ranks the rows of a relation are.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Each row on one rank, which may be any.
    Arbitrary,
    /// Each row on the rank that owns the keys' values. Each key has at least one expression.
    Partitioned {
        /// In their order.
        keys: Vec<EqualExpressions>,
        /// Assigns owners to keys.
        by: Partitioning,
    },
    /// As it turns out when the query runs: `Partitioned` by the hash of these keys; or, if the exchange `by` broadcasts, `Replicated` (its own
    /// rows) or where they were before (those of its partner). Rows with heavy keys are so whatever it does. Of use to the join of both
    /// alone.
    Chosen {
        /// As of `Partitioned`.
        keys: Vec<EqualExpressions>,
        /// The exchange that chooses.
        by: ExchangeId,
        /// Whether these are the rows that may be broadcast.
        is_broadcast: bool,
        /// Heavy values of the one key, but for NULL, which no row is compared with.
        heavy: Vec<Value>,
    },
    /// All rows on every rank.
    Replicated,
    /// All rows on rank 0.
    Single,
    /// On the hosts where an exchange of this kind wants them, after the first of its two levels. Of use to the second alone.
    Halfway(ExchangeKind),
}

impl Distribution {
    /// Where the rows of a relation are, and whether all ranks together compute what the operators mean.
    ///
    /// # Errors
    ///
    /// `Internal` for a plan in which rows are lost, multiplied or missed.
    pub fn of(relation: &Relation) -> Result<Self> {
        let inputs =
            relation.inputs().into_iter().map(|input| Self::of(input)).collect::<Result<Vec<_>>>()?;
        Self::above(&relation.operator, &inputs)
    }

    /// As [`Distribution::of`], where the distributions of the operator's inputs are known.
    ///
    /// # Errors
    ///
    /// Those of [`Distribution::of`].
    pub(super) fn above(operator: &Operator, inputs: &[Self]) -> Result<Self> {
        match (operator, inputs) {
            (Operator::Scan { extent: ScanExtent::Partitioned, .. }, []) => Ok(Self::Arbitrary),
            (Operator::Scan { extent: ScanExtent::Whole, .. }, []) => Ok(Self::Replicated),
            (Operator::Scan { extent: ScanExtent::Range { column, cuts }, columns, .. }, []) => {
                let column = columns.iter().find(|known| known.id == *column);
                let column =
                    column.ok_or_else(|| misplaced("a scan lacks the column that it is partitioned by"))?;
                let keys = vec![equal_integers(column.id, &column.data_type)];
                Ok(Self::Partitioned { keys, by: Partitioning::Range { cuts: cuts.clone() } })
            }
            (Operator::Join { kind, keys, .. }, [left, right]) => {
                joined(*kind, keys, left, right).ok_or_else(|| misplaced("a join's sides do not meet"))
            }
            (Operator::Exchange { kind, id, reach, .. }, [input]) => {
                levels::exchanged((kind, *reach), *id, input)
            }
            (_, inputs) if inputs.iter().any(|input| matches!(input, Self::Chosen { .. })) => {
                Err(misplaced("only joins choose an exchange at run time"))
            }
            (_, inputs) if inputs.iter().any(|input| matches!(input, Self::Halfway(_))) => {
                Err(misplaced("rows that have gone between hosts go on within them"))
            }
            (Operator::Window { partition, .. }, [input]) => windowed(partition, input),
            (Operator::Filter { .. } | Operator::Sort { .. } | Operator::Unnest { .. }, [input]) => {
                Ok(input.clone())
            }
            (Operator::Project { expressions, .. }, [input]) => {
                Ok(input.renamed(&|expression| renamed(expression, expressions, &|_| true)))
            }
            (Operator::Limit { .. }, [Self::Replicated]) => {
                Err(misplaced("each rank would choose the rows of a limit for itself"))
            }
            (Operator::Limit { .. }, [input]) => Ok(input.clone()),
            (Operator::Aggregate { groups, phase, .. }, [input]) => aggregated(groups, *phase, input),
            (Operator::UnionAll { inputs: below, columns }, inputs) => united(below, columns, inputs),
            _ => Err(Error::internal("an operator has another number of inputs")),
        }
    }

    /// As far as keys are expressions of the result too, by what they are there.
    fn renamed(&self, above: &dyn Fn(&Expression) -> Option<Expression>) -> Self {
        let Self::Partitioned { keys, by } = self else { return self.clone() };
        let keys = keys.iter().map(|key| key.iter().filter_map(above).collect());
        from_keys(keys.collect(), by)
    }
}

/// A key of a join on one side, in the type that both sides have in common. `None` for one that can't partition rows among ranks.
pub(super) fn shuffle_key(key: &JoinKey, side: JoinSide) -> Option<Expression> {
    let common = exchange_key_type(key.left.data_type(), key.right.data_type())?;
    let own = match side {
        JoinSide::Left => &key.left,
        JoinSide::Right => &key.right,
    };
    Some(match *own.data_type() == common {
        true => own.clone(),
        false => Expression::call(Function::Cast, vec![own.clone()], common),
    })
}

/// What an expression is above an operator that makes columns of expressions; `None` if it is lost. `may_enter` says of
/// which calls the value is a function of the arguments' columns above.
pub(super) fn renamed(
    expression: &Expression,
    above: &[NamedExpression],
    may_enter: &dyn Fn(&[Expression]) -> bool,
) -> Option<Expression> {
    if let Some(named) = above.iter().find(|named| named.expression == *expression) {
        return Some(Expression::column(named.id, expression.data_type().clone()));
    }
    match expression {
        Expression::Call { function, arguments, data_type } if may_enter(arguments) => {
            let arguments = arguments.iter().map(|argument| renamed(argument, above, may_enter));
            Some(Expression::call(*function, arguments.collect::<Option<_>>()?, data_type.clone()))
        }
        Expression::Literal(_) | Expression::Parameter { .. } => Some(expression.clone()),
        _ => None,
    }
}

/// Whether values that are equal are the same, so that functions of them are equal.
fn are_plain(arguments: &[Expression]) -> bool {
    let is_plain =
        |argument: &Expression| is_exchange_key(argument.data_type()) && !argument.data_type().is_float();
    arguments.iter().all(is_plain)
}

/// Whether a side of a join appears in the result with rows that match nothing.
pub(super) fn preserves(kind: JoinKind, side: JoinSide) -> bool {
    match kind {
        JoinKind::Inner => false,
        JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => side == JoinSide::Left,
        JoinKind::Full => true,
    }
}

/// Where the rows of a join are; `None` if its sides do not meet as they have to.
///
/// A row of a side that is preserved, or that decides about rows by itself (semi and anti joins), must be on one rank, and
/// see all of the rows on the other side that could match it.
pub(super) fn joined(
    kind: JoinKind,
    keys: &[JoinKey],
    left: &Distribution,
    right: &Distribution,
) -> Option<Distribution> {
    use Distribution::{Arbitrary, Chosen, Halfway, Partitioned, Replicated, Single};
    match (left, right) {
        (Halfway(_), _) | (_, Halfway(_)) => None,
        (
            Chosen { keys: left_keys, by: left_by, is_broadcast: left_is_broadcast, heavy: left_heavy },
            Chosen { keys: right_keys, by: right_by, is_broadcast: right_is_broadcast, heavy: right_heavy },
        ) => {
            let hashed =
                |keys: &[EqualExpressions]| Partitioned { keys: keys.to_vec(), by: Partitioning::Hash };
            let meet_by_keys = joined(kind, keys, &hashed(left_keys), &hashed(right_keys)).is_some();
            let meet_by_broadcast = match (left_is_broadcast, right_is_broadcast) {
                (true, false) => joined(kind, keys, &Replicated, &Arbitrary).is_some(),
                (false, true) => joined(kind, keys, &Arbitrary, &Replicated).is_some(),
                _ => false,
            };
            // Rows with heavy keys meet as by a broadcast, and all others by their keys.
            let are_partitioned_alike = left_by == right_by && left_heavy == right_heavy;
            (are_partitioned_alike && meet_by_keys && meet_by_broadcast).then_some(Arbitrary)
        }
        (Chosen { .. }, _) | (_, Chosen { .. }) => None,
        (Replicated, Replicated) => Some(Replicated),
        (Single, Single) => Some(Single),
        (Partitioned { keys: left_keys, by }, Partitioned { keys: right_keys, by: right_by }) => {
            // Whether the right side is empty or has a NULL is a question to all ranks.
            if kind == JoinKind::NullAwareAnti || by != right_by || !are_partners(keys, left_keys, right_keys)
            {
                return None;
            }
            Some(match kind {
                JoinKind::Inner => {
                    let both = pairwise(left_keys, right_keys, |left, right| {
                        left.iter().chain(right).cloned().collect()
                    });
                    from_keys(both, by)
                }
                // The side without a match is NULL, and the other tells where the row is.
                JoinKind::Full => from_keys(pairwise(left_keys, right_keys, coalesced), by),
                JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => left.clone(),
            })
        }
        (_, Replicated) if !preserves(kind, JoinSide::Right) => {
            Some(if kind == JoinKind::Inner { with_equals(left, keys, JoinSide::Left) } else { left.clone() })
        }
        (Replicated, _) if !preserves(kind, JoinSide::Left) => {
            Some(with_equals(right, keys, JoinSide::Right))
        }
        _ => None,
    }
}

/// Whether rows with equal join keys are on one rank: key by key, both sides are partitioned by what the join compares.
fn are_partners(keys: &[JoinKey], left: &[EqualExpressions], right: &[EqualExpressions]) -> bool {
    let meet = |(left, right): (&EqualExpressions, &EqualExpressions)| {
        keys.iter().any(|key| {
            let has = |side, known: &EqualExpressions| {
                shuffle_key(key, side).is_some_and(|key| known.contains(&key))
            };
            has(JoinSide::Left, left) && has(JoinSide::Right, right)
        })
    };
    left.len() == right.len() && left.iter().zip(right).all(meet)
}

/// The keys by which the other side of a join has to be shuffled so that it meets this `side`, in order. `None` if this side is
/// partitioned by something that the join does not compare, or by ranges, by which no shuffle partitions.
pub(super) fn partner_keys(
    keys: &[JoinKey],
    side: JoinSide,
    distribution: &Distribution,
) -> Option<Vec<Expression>> {
    let Distribution::Partitioned { keys: known, by: Partitioning::Hash } = distribution else { return None };
    let partner = |known: &EqualExpressions| {
        let key = keys
            .iter()
            .find(|key| shuffle_key(key, side).is_some_and(|expression| known.contains(&expression)))?;
        shuffle_key(key, other(side))
    };
    known.iter().map(partner).collect()
}

/// The other side.
pub(super) fn other(side: JoinSide) -> JoinSide {
    match side {
        JoinSide::Left => JoinSide::Right,
        JoinSide::Right => JoinSide::Left,
    }
}

/// A side of an inner join that stays where it is: what equals its keys tells as well where a row is.
fn with_equals(distribution: &Distribution, keys: &[JoinKey], side: JoinSide) -> Distribution {
    let Distribution::Partitioned { keys: known, by } = distribution else { return distribution.clone() };
    let extended = |known: &EqualExpressions| {
        let equal = keys.iter().filter_map(|key| {
            let own = shuffle_key(key, side)?;
            if known.contains(&own) { shuffle_key(key, other(side)) } else { None }
        });
        known.iter().cloned().chain(equal).collect()
    };
    from_keys(known.iter().map(extended).collect(), by)
}

fn pairwise(
    left: &[EqualExpressions],
    right: &[EqualExpressions],
    pair: impl Fn(&EqualExpressions, &EqualExpressions) -> EqualExpressions,
) -> Vec<EqualExpressions> {
    left.iter().zip(right).map(|(left, right)| pair(left, right)).collect()
}

/// `coalesce(left, right)`, as the merged column of a full join is written.
fn coalesced(left: &EqualExpressions, right: &EqualExpressions) -> EqualExpressions {
    let of_types = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
    of_types
        .map(|(left, right)| {
            let data_type = left.data_type().clone();
            Expression::call(Function::Coalesce, vec![left.clone(), right.clone()], data_type)
        })
        .take(EQUAL_EXPRESSIONS_MAX)
        .collect()
}

/// Partitioned by these, if each has an expression.
fn from_keys(mut keys: Vec<EqualExpressions>, by: &Partitioning) -> Distribution {
    for key in &mut keys {
        let mut known: EqualExpressions = Vec::new();
        for expression in key.drain(..) {
            if known.len() < EQUAL_EXPRESSIONS_MAX && !known.contains(&expression) {
                known.push(expression);
            }
        }
        *key = known;
    }
    if keys.is_empty() || keys.iter().any(Vec::is_empty) {
        Distribution::Arbitrary
    } else {
        Distribution::Partitioned { keys, by: by.clone() }
    }
}

/// A column, and the same number in the wider types in which joins compare it.
fn equal_integers(id: ColumnId, data_type: &DataType) -> EqualExpressions {
    let column = Expression::column(id, data_type.clone());
    let wider: &[DataType] = match data_type {
        DataType::Int16 => &[DataType::Int32, DataType::Int64],
        DataType::Int32 => &[DataType::Int64],
        _ => &[],
    };
    let casts =
        wider.iter().map(|wider| Expression::call(Function::Cast, vec![column.clone()], wider.clone()));
    [column.clone()].into_iter().chain(casts).collect()
}

/// Where the groups of an aggregate are.
fn aggregated(
    groups: &[NamedExpression],
    phase: AggregatePhase,
    input: &Distribution,
) -> Result<Distribution> {
    let above = input.renamed(&|expression| renamed(expression, groups, &are_plain));
    match (phase, &above) {
        (_, Distribution::Replicated) => Ok(above),
        // A row on every rank, of what the rank has.
        (AggregatePhase::Partial, _) if groups.is_empty() => Ok(Distribution::Arbitrary),
        (AggregatePhase::Partial, _) => Ok(above),
        // Ranks without rows would add a row of their own.
        (_, _) if groups.is_empty() => {
            Err(misplaced("an aggregate without groups must see all rows on every rank"))
        }
        (_, Distribution::Partitioned { .. } | Distribution::Single) => Ok(above),
        (_, Distribution::Arbitrary | Distribution::Chosen { .. } | Distribution::Halfway(_)) => {
            Err(misplaced("the rows of a group do not meet"))
        }
    }
}

/// Where the rows of a window function's partitions are.
pub(super) fn windowed(partition: &[Expression], input: &Distribution) -> Result<Distribution> {
    let meet = |expression: &Expression| partition.contains(expression).then(|| expression.clone());
    match (input, input.renamed(&meet)) {
        (Distribution::Single, _) | (_, Distribution::Partitioned { .. }) => Ok(input.clone()),
        // Each rank would order rows with equal keys for itself.
        _ => Err(misplaced("the rows of a window's partition do not meet")),
    }
}

/// Where the rows of a union are.
fn united(
    below: &[(Arc<Relation>, Vec<ColumnId>)],
    columns: &[(ColumnId, DataType)],
    inputs: &[Distribution],
) -> Result<Distribution> {
    let all = |wanted: &Distribution| inputs.iter().all(|input| input == wanted);
    if all(&Distribution::Replicated) {
        return Ok(Distribution::Replicated);
    }
    if inputs.contains(&Distribution::Replicated) {
        return Err(misplaced("a union would have the rows of an input once for every rank"));
    }
    if all(&Distribution::Single) {
        return Ok(Distribution::Single);
    }
    let mut by_input = below.iter().zip(inputs).map(|((relation, ids), distribution)| {
        let known = relation.columns();
        // A column that the union makes another type of is no longer what rows were partitioned by.
        let names = ids.iter().zip(columns).filter_map(|(id, (above, data_type))| {
            let (_, own) = known.iter().find(|(known, _)| known == id)?;
            let expression = Expression::column(*id, own.clone());
            (own == data_type).then_some(NamedExpression { id: *above, expression })
        });
        let names: Vec<_> = names.collect();
        distribution.renamed(&|expression| renamed(expression, &names, &|_| true))
    });
    let first = by_input.next().unwrap_or(Distribution::Replicated);
    Ok(by_input.fold(first, |sum, next| match (sum, next) {
        (
            Distribution::Partitioned { keys: sum, by },
            Distribution::Partitioned { keys: next, by: next_by },
        ) if sum.len() == next.len() && by == next_by => {
            let both = pairwise(&sum, &next, |sum, next| {
                sum.iter().filter(|expression| next.contains(expression)).cloned().collect()
            });
            from_keys(both, &by)
        }
        _ => Distribution::Arbitrary,
    }))
}

/// Where rows are after an exchange of all ranks.
pub(super) fn exchanged(kind: &ExchangeKind, id: ExchangeId, input: &Distribution) -> Result<Distribution> {
    if matches!(input, Distribution::Chosen { .. }) {
        return Err(misplaced("only joins choose an exchange at run time"));
    }
    let is_owned = matches!(kind, ExchangeKind::Own { .. });
    if is_owned != (*input == Distribution::Replicated) {
        return Err(misplaced("an exchange would multiply rows, or lose them"));
    }
    let hashed = |keys: &[Expression]| match keys {
        [_, ..] if keys.iter().all(|key| is_exchange_key(key.data_type())) => {
            Ok(keys.iter().map(|key| vec![key.clone()]).collect())
        }
        _ => Err(misplaced("rows can't be partitioned by these keys")),
    };
    match kind {
        ExchangeKind::Broadcast => Ok(Distribution::Replicated),
        ExchangeKind::Gather | ExchangeKind::Merge { .. } => Ok(Distribution::Single),
        ExchangeKind::Own { keys } if keys.is_empty() => Ok(Distribution::Single),
        ExchangeKind::Hash { keys } | ExchangeKind::Own { keys } => {
            Ok(Distribution::Partitioned { keys: hashed(keys)?, by: Partitioning::Hash })
        }
        ExchangeKind::HashOrBroadcast { keys, heavy, .. } => {
            let heavy = heavy_of(keys, heavy)?;
            Ok(Distribution::Chosen { keys: hashed(keys)?, by: id, is_broadcast: true, heavy })
        }
        // Rows on one rank alone would stay there, which is no error and never wanted.
        ExchangeKind::HashOrStay { keys, partner, heavy } => {
            let heavy = heavy_of(keys, heavy)?;
            Ok(Distribution::Chosen { keys: hashed(keys)?, by: *partner, is_broadcast: false, heavy })
        }
    }
}

/// The heavy values of a key that rows are compared by.
fn heavy_of(keys: &[Expression], heavy: &[Value]) -> Result<Vec<Value>> {
    if !heavy.is_empty() && keys.len() != 1 {
        return Err(misplaced("heavy values are of one key"));
    }
    Ok(heavy.iter().filter(|value| **value != Value::Null).cloned().collect())
}

pub(super) fn misplaced(why: &str) -> Error {
    Error::internal(format!("the plan's rows are on the wrong ranks: {why}"))
}
