//! Groups of rows and what is computed of them.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::RowNumbers;
use crate::device::{Buffer, CellType, Column, DECIMAL128_DIGITS_MAX};

/// Rows by group.
pub struct Grouping {
    /// `u32` a row, 0 to `group_count - 1`; absent if all rows are one group.
    pub(crate) groups: Option<Buffer>,
    /// How many groups.
    pub group_count: usize,
    /// A row of each group, by group number; absent if all rows are one group.
    pub leaders: Option<RowNumbers>,
    pub(crate) row_count: usize,
}

/// What is computed of a group's rows. NULL inputs are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Accumulator {
    /// Rows.
    Count = 0,
    /// The sum, in as many bits as it takes.
    Sum = 1,
    /// The least.
    Min = 2,
    /// The greatest.
    Max = 3,
    /// Some value.
    Any = 4,
}

/// Digits that a sum may have more than its addends: no device holds 10^11 rows.
const SUM_DIGITS: u8 = 11;

/// How sums are held while they are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumWidth {
    /// 128 bits, which the addends' digits prove to be enough.
    Wide,
    /// More bits than the addends have. Addends are decimals of 128 or 256 bits.
    Large,
}

impl SumWidth {
    /// What sums of a type take.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types that no kernel sums.
    pub fn of(addends: &DataType) -> Result<Self> {
        match addends {
            DataType::Decimal { precision, .. } if *precision > DECIMAL128_DIGITS_MAX - SUM_DIGITS => {
                Ok(Self::Large)
            }
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal { .. } => Ok(Self::Wide),
            other => {
                Err(Error::new(ErrorKind::NotSupported, format!("no kernel sums values of type {other}")))
            }
        }
    }

    /// What sums of partial sums take.
    pub fn of_partial(partial: &Column) -> Self {
        if partial.cell_type == CellType::Int256 { Self::Large } else { Self::Wide }
    }
}

/// Grouping rows and accumulating them. See [`super::Device`] for what every operation has in common.
pub trait GroupOperations {
    /// Finds the groups of equal keys, where NULL equals NULL. Without keys all rows are one group. There must be no more
    /// groups than `groups_max`, nor can there be more than rows. Waits for the count of groups.
    ///
    /// # Ordering
    ///
    /// Groups are numbered in the order of their leaders, which are some row of theirs.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`super::KEYS_MAX`] keys.
    fn group(&self, keys: &[Column], row_count: usize, groups_max: usize) -> Result<Grouping>;

    /// An aggregate of every group: one row a group, in the order of their numbers. NULL inputs are skipped, and what
    /// has no input that is not NULL is NULL; a count is never.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` for a sum that does not fit its type, `NotSupported` for one of a type that can't be summed.
    fn accumulate(
        &self,
        grouping: &Grouping,
        accumulator: Accumulator,
        input: Option<&Column>,
        result: &DataType,
    ) -> Result<Column>;

    /// [`GroupOperations::accumulate`] of partial results.
    ///
    /// # Errors
    ///
    /// As of [`GroupOperations::accumulate`].
    fn merge(
        &self,
        grouping: &Grouping,
        accumulator: Accumulator,
        partial: &Column,
        result: &DataType,
    ) -> Result<Column>;
}
