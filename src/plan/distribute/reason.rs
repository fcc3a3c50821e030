//! Why an exchange is there, and why one rank runs a plan, in words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an exchange is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ExchangeReason {
    /// Both sides are partitioned by their join keys, so that rows with equal keys meet.
    JoinKeys,
    /// The join's other side is partitioned by its keys already.
    JoinPartner,
    /// A side of a join is on every rank; `instead_bytes` would move if both sides were partitioned by the keys.
    SmallSide {
        /// What the best way without a broadcast would move; nothing if there is none.
        instead_bytes: Option<f64>,
    },
    /// A join without equalities.
    PairsOfAll,
    /// NOT IN asks whether the right side has a NULL anywhere, or no row at all.
    NotIn,
    /// Rows that every rank has count once.
    CountedOnce,
    /// Partial results of groups meet, one rank a group.
    PartialGroups,
    /// Partial results are so few that every rank merges all of them.
    FewGroups,
    /// There are about as many groups as rows: rows meet by their groups before they are added up.
    ManyGroups,
    /// Different values of a group are counted where all of them are.
    DistinctValues,
    /// Rows of a window's partition meet.
    WindowPartition,
    /// The first rows of all ranks.
    FirstRows,
    /// The order of all ranks' rows.
    Order,
    /// The client's rows.
    Result,
    /// All rows on one rank, which is cheaper than any other way.
    FewRows,
}

impl fmt::Display for ExchangeReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::JoinKeys => "equal join keys meet",
            Self::JoinPartner => "the other side is partitioned by it already",
            Self::SmallSide { instead_bytes: Some(bytes) } => {
                return write!(
                    formatter,
                    "the smaller side; {bytes:.0} bytes if both were shuffled by their keys"
                );
            }
            Self::SmallSide { instead_bytes: None } => "the smaller side",
            Self::PairsOfAll => "pairs of all rows",
            Self::NotIn => "NOT IN sees all of its list",
            Self::CountedOnce => "rows that every rank has count once",
            Self::PartialGroups => "partial results of a group meet",
            Self::FewGroups => "few partial results",
            Self::ManyGroups => "about as many groups as rows",
            Self::DistinctValues => "different values of a group meet",
            Self::WindowPartition => "rows of a window's partition meet",
            Self::FirstRows => "the first rows of all ranks",
            Self::Order => "the order of all ranks' rows",
            Self::Result => "the result",
            Self::FewRows => "few rows",
        })
    }
}

/// Why one rank runs a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneRankReason {
    /// There is one.
    Alone,
    /// It is expected to be at least as fast.
    Faster,
    /// No scan is large enough to be shared.
    SmallTables,
    /// With exchanges the plan would be deeper than plans may be.
    TooDeep,
}

impl fmt::Display for OneRankReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Alone => "there is one rank",
            Self::Faster => "one rank is expected to be faster",
            Self::SmallTables => "its tables are small",
            Self::TooDeep => "it would be nested too deep",
        })
    }
}
