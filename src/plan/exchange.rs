//! Exchanges: the operators at which the ranks of a query meet and rows change ranks.
//!
//! ```text
//!             rank 0       rank 1       rank 2
//! fragment    scan         scan         scan         each rank scans its part
//!               └────────────┼────────────┘
//!             ═══════════ exchange ═══════════       shuffle, broadcast, gather, merge
//!               ┌────────────┼────────────┐
//! fragment    aggregate    aggregate    aggregate
//! ```
//!
//! All ranks of a query run one and the same tree. The rank's number is no part of it: an exchange is the only operator
//! that does something else on one rank than on another. What lies between exchanges is a fragment.
//!
//! Invariants: every rank takes part in every exchange of its plan, with no row if it has none, so that no rank waits for
//! one that will not come. Rank 0 is the coordinator: it alone gives rows to the client. Equal keys of an exchange have
//! equal types on both sides of a join ([`exchange_key_type`]).
//!
//! Deliberately absent: how rows travel, rounds, memory, ranks that fail. That is the engines'.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DataType, Expression, Function, SortKey, Value, types::DECIMAL256_DIGITS_MAX};

/// The identity of an exchange within one plan. Ranks name exchanges to each other by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExchangeId(pub u32);

/// Which ranks one rank's rows go to by an exchange.
///
/// Every host has as many ranks, numbered host by host; a rank's place is its number among those of its host. An exchange of all ranks may
/// be two in a plan, both of its kind and with its keys: between hosts first, and within each host above that.
///
/// ```text
///             host 0   host 1                   host 0   host 1
///    place 0    0 ─────── 2            place 0    0        2
///                                                 │        │       a row goes to the host, or the hosts, where it is wanted, and
///    place 1    1 ─────── 3            place 1    1        3       there to the rank, or the ranks
///             between hosts                     within hosts
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExchangeReach {
    /// All ranks: it is the whole exchange.
    #[default]
    All,
    /// Those of the rank's own place, one on each host: the first of two exchanges. Rows of a gather go to rank 0's host. What it gives is of
    /// use to the second alone.
    BetweenHosts,
    /// Those of the rank's own host: the second.
    WithinHost,
}

impl fmt::Display for ExchangeReach {
    /// What follows the number of an exchange; nothing if it is whole.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::All => "",
            Self::BetweenHosts => " between hosts",
            Self::WithinHost => " within hosts",
        })
    }
}

/// Where the rows of an exchange's input go.
///
/// # Shapes
///
/// The columns stay as they are; keys are expressions over them and no columns of the result. An input whose rows are on
/// every rank ([`crate::Distribution::Replicated`]) may only be the input of [`ExchangeKind::Own`]: any other exchange
/// would multiply them. The input of `Own` is always one.
///
/// # Ordering
///
/// Rows arrive in no order, on each rank in another, except those of `Merge`. `Own` keeps the order of its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ExchangeKind {
    /// A shuffle: each row goes to the rank that owns its keys, so that rows with equal keys meet. NULL is a key like
    /// others, and equals itself. The owner is a function of the keys' values in their order, of nothing else: two
    /// shuffles, of whatever relations, send equal keys to one rank. What compares as equal has one owner: -0 and 0, and
    /// all NaNs.
    Hash {
        /// At least one, of types for which [`is_exchange_key`] holds.
        keys: Vec<Expression>,
    },
    /// The smaller side of a join, as it is expected: as [`Self::Hash`], unless all ranks' rows together turn out to take
    /// no more than so many bytes on the devices. Then every rank gets all.
    HashOrBroadcast {
        /// As of `Hash`.
        keys: Vec<Expression>,
        /// Above it what is saved on the other side is less than what every rank gets more.
        bytes_max: u64,
        /// Values of the one key that many rows of the other side have ([`is_heavy`]): every rank gets the rows with one of them in
        /// either case. Empty where no value is so frequent.
        heavy: Vec<Value>,
    },
    /// The other side of that join: as [`Self::Hash`], unless its partner's rows are broadcast. Then each row stays where it is.
    HashOrStay {
        /// As of `Hash`.
        keys: Vec<Expression>,
        /// The exchange of the join's other side, a `HashOrBroadcast`.
        partner: ExchangeId,
        /// The values of the partner: rows with one of them stay where they are in either case. NULL, which matches nothing, may
        /// be one more.
        heavy: Vec<Value>,
    },
    /// Every rank gets all rows.
    Broadcast,
    /// Rank 0 gets all rows, the others none.
    Gather,
    /// Rank 0 gets all rows in the order of the keys, the others none. Every rank's rows are in that order before.
    Merge {
        /// First key first.
        keys: Vec<SortKey>,
    },
    /// Nothing moves: of rows that every rank has, each rank keeps those that it owns, as a shuffle by the keys would partition
    /// them, so that each is on one rank. Without keys rank 0 keeps all.
    Own {
        /// As of `Hash`, or none.
        keys: Vec<Expression>,
    },
}

impl ExchangeKind {
    /// Whether rows move between ranks.
    pub fn moves_rows(&self) -> bool {
        !matches!(self, Self::Own { .. })
    }

    /// The keys.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let (own, order): (&[Expression], &[SortKey]) = match self {
            Self::Hash { keys }
            | Self::HashOrBroadcast { keys, .. }
            | Self::HashOrStay { keys, .. }
            | Self::Own { keys } => (keys, &[]),
            Self::Merge { keys } => (&[], keys),
            Self::Broadcast | Self::Gather => (&[], &[]),
        };
        own.iter().chain(order.iter().map(|key| &key.expression))
    }

    /// The keys, to be changed.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let (own, order): (&mut [Expression], &mut [SortKey]) = match self {
            Self::Hash { keys }
            | Self::HashOrBroadcast { keys, .. }
            | Self::HashOrStay { keys, .. }
            | Self::Own { keys } => (keys, &mut []),
            Self::Merge { keys } => (&mut [], keys),
            Self::Broadcast | Self::Gather => (&mut [], &mut []),
        };
        own.iter_mut().chain(order.iter_mut().map(|key| &mut key.expression))
    }
}

/// Whether rows can be partitioned among ranks by values of this type: equal values must be equal cells, or be made so cheaply.
///
/// Intervals are not: a month equals thirty days. Nor are arrays and composite values, which nothing compares.
pub fn is_exchange_key(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Interval | DataType::Numeric)
}

/// The type in which both sides of a join's key are partitioned among ranks; `None` if rows can't be partitioned by this key.
///
/// It holds the values of both types exactly. Values of one type in cells of two widths would have two owners, so even
/// decimals of one scale are made one type.
pub fn exchange_key_type(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{Float32, Float64, Int16, Int32, Int64};
    if left == right {
        return is_exchange_key(left).then(|| left.clone());
    }
    match (left, right) {
        (Int16 | Int32, Int64) | (Int64, Int16 | Int32) => Some(Int64),
        (Int16, Int32) | (Int32, Int16) => Some(Int32),
        (Float32, Float64) | (Float64, Float32) => Some(Float64),
        _ => {
            let (left_whole, left_scale) = digits(left)?;
            let (right_whole, right_scale) = digits(right)?;
            let scale = left_scale.max(right_scale);
            let precision = left_whole.max(right_whole).checked_add(scale)?;
            (precision <= DECIMAL256_DIGITS_MAX).then_some(DataType::Decimal { precision, scale })
        }
    }
}

/// Whether a row's key is one of some heavy values, of the key's type. NULL if it is NULL, unless NULL is among them.
///
/// It is equality as joins have it, so that rows which match are heavy on both sides or on none. `None` of no values.
pub fn is_heavy(key: &Expression, heavy: &[Value]) -> Option<Expression> {
    let literals = heavy.iter().filter(|value| **value != Value::Null);
    let literals = literals.map(|value| Expression::literal(value.clone(), key.data_type().clone()));
    let list: Vec<Expression> = [key.clone()].into_iter().chain(literals).collect();
    let is_listed = (list.len() > 1).then(|| Expression::predicate(Function::In, list));
    let is_null =
        heavy.contains(&Value::Null).then(|| Expression::predicate(Function::IsNull, vec![key.clone()]));
    match (is_listed, is_null) {
        (Some(is_listed), Some(is_null)) => {
            Some(Expression::predicate(Function::Or, vec![is_listed, is_null]))
        }
        (is_listed, is_null) => is_listed.or(is_null),
    }
}

/// Digits before and after the point that values of a type may have.
fn digits(data_type: &DataType) -> Option<(u8, u8)> {
    match data_type {
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal { precision, scale } => Some((precision.checked_sub(*scale)?, *scale)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(precision: u8, scale: u8) -> DataType {
        DataType::Decimal { precision, scale }
    }

    #[test]
    fn keys_of_two_types_meet_in_one_that_holds_both() {
        let common = |left, right| exchange_key_type(&left, &right);
        assert_eq!(common(DataType::Int16, DataType::Int64), Some(DataType::Int64));
        assert_eq!(common(DataType::Int32, decimal(4, 2)), Some(decimal(12, 2)));
        assert_eq!(common(decimal(15, 2), decimal(12, 4)), Some(decimal(17, 4)));
        assert_eq!(common(decimal(15, 2), decimal(20, 2)), Some(decimal(20, 2)));
        assert_eq!(common(decimal(76, 0), decimal(38, 38)), None);
        assert_eq!(common(decimal(2, 4), decimal(4, 4)), None);
        assert_eq!(common(DataType::Text, DataType::Int32), None);
    }

    #[test]
    fn values_that_are_equal_in_many_forms_are_no_keys() {
        for data_type in [DataType::Interval, DataType::Numeric, DataType::List(Box::new(DataType::Int32))] {
            assert_eq!(exchange_key_type(&data_type, &data_type), None);
        }
        assert_eq!(exchange_key_type(&DataType::Text, &DataType::Text), Some(DataType::Text));
    }
}
