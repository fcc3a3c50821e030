//! Single values: literals, parameters, statistics.

use serde::{Deserialize, Serialize};

use crate::DataType;

/// A value of one of the [`DataType`]s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// NULL of any type.
    Null,
    /// `boolean`.
    Bool(bool),
    /// The three integers, `date` (days), `time`, `timestamp` and `timestamptz` (microseconds).
    Int(i64),
    /// `real` (widened) and `double precision`.
    Float(f64),
    /// A decimal of at most 38 digits: the value times ten to the power of the type's scale.
    Decimal(i128),
    /// `text`.
    Text(String),
    /// `bytea` and `uuid`.
    Bytes(Vec<u8>),
    /// `interval`.
    Interval(Interval),
}

/// PostgreSQL's interval: three parts that do not turn into each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Calendar months.
    pub months: i32,
    /// Days, which need not have 24 hours.
    pub days: i32,
    /// The rest.
    pub microseconds: i64,
}

/// A value with its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Literal {
    /// The value.
    pub value: Value,
    /// Its type.
    pub data_type: DataType,
}

impl Literal {
    /// A value with its type.
    pub fn new(value: Value, data_type: DataType) -> Self {
        Self { value, data_type }
    }
}
