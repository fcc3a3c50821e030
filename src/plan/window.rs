//! Window functions: what an [`crate::Operator::Window`] computes of each row and the rows around it.
//!
//! Rows with equal values of the partition's expressions form a partition, whose rows are in the order of the keys. Rows of a
//! partition that are equal by all keys are peers, and form a peer group; without keys all rows of a partition are peers. A frame is
//! the part of its partition that a function of a row looks at.

use serde::{Deserialize, Serialize};

use crate::{Aggregate, ColumnId, DataType, Expression, Function, Value, moment::mirrored};

/// One function of an [`crate::Operator::Window`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowCall {
    /// The id of its result.
    pub id: ColumnId,
    /// Which function.
    pub function: WindowFunction,
    /// What the function takes of a row; none of numbers and of `count(*)`.
    pub argument: Option<Expression>,
    /// The frame. [`WindowFrame::whole`] of functions that have none.
    pub frame: WindowFrame,
    /// The type of its result.
    pub data_type: DataType,
}

/// A function of a row's partition or frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WindowFunction {
    /// The row's number in its partition, from 1 → Int64.
    RowNumber,
    /// The number of the first row of the row's peer group → Int64.
    Rank,
    /// The number of the row's peer group → Int64.
    DenseRank,
    /// `(rank - 1) / (rows of the partition - 1)`, 0 if that has one row → Float64.
    PercentRank,
    /// Rows up to the end of the row's peer group by rows of the partition → Float64.
    CumeDist,
    /// The number, from 1, of one of so many parts of the partition, as equal as may be; the first ones have a row more → Int32.
    Ntile(u32),
    /// The argument's value in the row so many before this one in the partition, or behind it if below 0; NULL if there is none.
    Lag(i32),
    /// The argument's value in the first row of the frame; NULL if that is empty.
    FirstValue,
    /// The argument's value in the last row of the frame; NULL if that is empty.
    LastValue,
    /// The argument's value in the row of the frame with this number, from 1; NULL if there is none.
    NthValue(u32),
    /// An aggregate of the frame's rows.
    Aggregate(Aggregate),
}

impl WindowFunction {
    /// Whether the function looks at the frame, and not at the whole partition.
    pub fn has_frame(self) -> bool {
        matches!(self, Self::FirstValue | Self::LastValue | Self::NthValue(_) | Self::Aggregate(_))
    }
}

/// The rows of a partition that a function of a row looks at: those from `start` to `end`, without what `exclude` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowFrame {
    /// In what the bounds count.
    pub unit: FrameUnit,
    /// The first row.
    pub start: FrameBound,
    /// The last row.
    pub end: FrameBound,
    /// Which rows are left out.
    pub exclude: FrameExclusion,
}

/// In what the bounds of a frame count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// Peer groups.
    Groups,
    /// Values of the only key.
    Range {
        /// The key, in the type of the bounds' limits. `None` if no bound has a limit.
        key: Option<Expression>,
        /// The order of the rows' keys is descending.
        descending: bool,
    },
}

/// A bound of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FrameBound {
    /// The first row of the partition as a start, the last one as an end.
    Unbounded,
    /// The row itself if rows are counted, otherwise the first row of its peer group as a start, and the last one as an end.
    Current,
    /// So many rows or peer groups before the current one.
    Preceding(u64),
    /// So many rows or peer groups behind the current one.
    Following(u64),
    /// The first row as a start, the last one as an end, whose key is not before, or not behind, this value of the current row. A row
    /// whose key is NULL has the rows with such keys instead.
    Limit(Expression),
}

/// Which rows of a frame are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FrameExclusion {
    /// None.
    Nothing,
    /// The row itself.
    CurrentRow,
    /// The row and its peers.
    Group,
    /// The row's peers, but not the row.
    Ties,
}

impl WindowFrame {
    /// All rows of the partition.
    pub fn whole() -> Self {
        Self {
            unit: FrameUnit::Rows,
            start: FrameBound::Unbounded,
            end: FrameBound::Unbounded,
            exclude: FrameExclusion::Nothing,
        }
    }

    /// Whether it is all rows of the partition.
    pub fn is_whole(&self) -> bool {
        self.exclude == FrameExclusion::Nothing
            && self.start == FrameBound::Unbounded
            && self.end == FrameBound::Unbounded
    }

    /// The expressions of the frame.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let key = match &self.unit {
            FrameUnit::Range { key, .. } => key.as_ref(),
            FrameUnit::Rows | FrameUnit::Groups => None,
        };
        key.into_iter().chain([&self.start, &self.end].into_iter().filter_map(|bound| match bound {
            FrameBound::Limit(limit) => Some(limit),
            _ => None,
        }))
    }

    /// The same, to be changed.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let key = match &mut self.unit {
            FrameUnit::Range { key, .. } => key.as_mut(),
            FrameUnit::Rows | FrameUnit::Groups => None,
        };
        key.into_iter().chain([&mut self.start, &mut self.end].into_iter().filter_map(|bound| match bound {
            FrameBound::Limit(limit) => Some(limit),
            _ => None,
        }))
    }
}

impl WindowCall {
    /// The expressions that the call reads.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.argument.iter().chain(self.frame.expressions())
    }

    /// The same, to be changed.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        self.argument.iter_mut().chain(self.frame.expressions_mut())
    }
}

/// How many of the first rows of each partition a condition keeps at most, by the number that a call gives them.
pub fn first_of_partitions(condition: &Expression, calls: &[WindowCall]) -> Option<(WindowFunction, u64)> {
    let Expression::Call { function, arguments, .. } = condition else { return None };
    if *function == Function::And {
        return arguments.iter().find_map(|part| first_of_partitions(part, calls));
    }
    let (column, literal, function) = match arguments.as_slice() {
        [Expression::Column { id, .. }, Expression::Literal(literal)] => (id, literal, *function),
        [Expression::Literal(literal), Expression::Column { id, .. }] => (id, literal, mirrored(*function)?),
        _ => return None,
    };
    let Value::Int(bound) = literal.value else { return None };
    let count = match function {
        Function::LessEqual | Function::Equal => bound,
        Function::Less => bound.saturating_sub(1),
        _ => return None,
    };
    let call = calls.iter().find(|call| call.id == *column)?;
    let is_number =
        matches!(call.function, WindowFunction::RowNumber | WindowFunction::Rank | WindowFunction::DenseRank);
    is_number.then(|| (call.function, u64::try_from(count).unwrap_or(0)))
}
