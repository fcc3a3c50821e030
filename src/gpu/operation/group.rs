//! Groups of rows and what is computed of them.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    Queue, RowNumbers,
    abi::{
        AccumulateGroups, AssignGroups, ColumnView, FinishSums, LARGE_PRIVATE_GROUPS_MAX, LARGE_SUM_WORDS,
        PRIVATE_GROUPS_MAX,
    },
    fault::StatusCell,
    join::key_columns,
};
use crate::device::{Buffer, CellType, Column, DECIMAL128_DIGITS_MAX, Kernel};

const WORD_BYTES: u64 = size_of::<u64>() as u64;

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

impl SumWidth {
    fn words(self) -> usize {
        match self {
            Self::Wide => 2,
            Self::Large => LARGE_SUM_WORDS,
        }
    }

    fn kernel(self, group_count: u64) -> Kernel {
        match self {
            Self::Wide if group_count <= PRIVATE_GROUPS_MAX => Kernel::AccumulateFewGroups,
            Self::Wide => Kernel::AccumulateGroups,
            Self::Large if group_count <= LARGE_PRIVATE_GROUPS_MAX => Kernel::AccumulateFewLargeSums,
            Self::Large => Kernel::AccumulateLargeSums,
        }
    }
}

/// Grouping rows and accumulating them.
impl Queue {
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
    pub fn group(&self, keys: &[Column], row_count: usize, groups_max: usize) -> Result<Grouping> {
        if keys.is_empty() {
            return Ok(Grouping { groups: None, group_count: 1, leaders: None, row_count });
        }
        let rows = row_count as u64;
        let slot_count = (groups_max.min(row_count) as u64).saturating_mul(2).max(2).next_power_of_two();
        let hashes = self.hash(keys, row_count, true)?;
        let slots = self.allocate_filled::<u32>(slot_count, 0xff)?;
        let leaders = self.allocate::<u32>(rows)?;
        let flags = self.allocate::<u8>(rows)?;
        let groups = self.allocate::<u32>(rows)?;
        let status = StatusCell::new(self)?;
        let mut arguments = AssignGroups {
            keys: key_columns(keys)?,
            hashes: hashes.address(),
            slots: slots.address(),
            leaders: leaders.address(),
            leader_flags: flags.address(),
            groups: groups.address(),
            row_count: rows,
            slot_count,
            status: status.address(),
            ..AssignGroups::default()
        };
        self.launch_strided(Kernel::AssignGroups, rows, &arguments)?;
        let leaders = self.select_numbered(&flags, row_count, |offsets| {
            arguments.offsets = offsets.address();
            self.launch_strided(Kernel::NumberGroups, rows, &arguments)
        })?;
        status.check(self)?;
        Ok(Grouping { groups: Some(groups), group_count: leaders.count, leaders: Some(leaders), row_count })
    }

    /// An aggregate of every group: one row a group, in the order of their numbers. NULL inputs are skipped, and what
    /// has no input that is not NULL is NULL; a count is never.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` for a sum that does not fit its type, `NotSupported` for one of a type that can't be summed.
    pub fn accumulate(
        &self,
        grouping: &Grouping,
        accumulator: Accumulator,
        input: Option<&Column>,
        result: &DataType,
    ) -> Result<Column> {
        let width = match (accumulator, input) {
            (Accumulator::Sum, Some(input)) => SumWidth::of(&input.data_type)?,
            _ => SumWidth::Wide,
        };
        self.accumulate_in(width, grouping, accumulator, input, result)
    }

    /// [`Queue::accumulate`] of partial results.
    ///
    /// # Errors
    ///
    /// As of [`Queue::accumulate`].
    pub fn merge(
        &self,
        grouping: &Grouping,
        accumulator: Accumulator,
        partial: &Column,
        result: &DataType,
    ) -> Result<Column> {
        self.accumulate_in(SumWidth::of_partial(partial), grouping, accumulator, Some(partial), result)
    }
}

impl Queue {
    fn accumulate_in(
        &self,
        width: SumWidth,
        grouping: &Grouping,
        accumulator: Accumulator,
        input: Option<&Column>,
        result: &DataType,
    ) -> Result<Column> {
        let group_count = grouping.group_count as u64;
        // Sums, whose words are aligned so, and then counts.
        let sum_words = match accumulator {
            Accumulator::Sum => group_count * width.words() as u64,
            _ => 0,
        };
        let words = self.allocate_filled::<u64>(sum_words + group_count, 0)?;
        let slice = |start: u64, count: u64| words.slice(start * WORD_BYTES, count * WORD_BYTES);
        let (sums, counts) = (slice(0, sum_words), slice(sum_words, group_count));
        let mut arguments = AccumulateGroups {
            input: input.map_or_else(ColumnView::default, Column::view),
            groups: grouping.groups.as_ref().map_or(0, Buffer::address),
            row_count: grouping.row_count as u64,
            counts: counts.address(),
            group_count: u32::try_from(group_count).unwrap_or(u32::MAX),
            kind: accumulator as u32,
            ..AccumulateGroups::default()
        };
        match (accumulator, input) {
            (Accumulator::Count, _) => {
                self.launch_strided(SumWidth::Wide.kernel(group_count), arguments.row_count, &arguments)?;
                Ok(Column {
                    data_type: DataType::Int64,
                    cell_type: CellType::Int64,
                    values: counts,
                    validity: None,
                    strings: Vec::new(),
                })
            }
            (Accumulator::Sum, Some(_)) => {
                arguments.sums = sums.address();
                self.launch_strided(width.kernel(group_count), arguments.row_count, &arguments)?;
                self.finish(width, (&counts, &sums), group_count, result)
            }
            (_, Some(input)) => {
                let rows = self.allocate_filled::<u32>(group_count, 0xff)?;
                arguments.rows = rows.address();
                self.launch_strided(Kernel::AccumulateGroups, grouping.row_count as u64, &arguments)?;
                self.gather(
                    input,
                    &RowNumbers { rows, count: grouping.group_count, may_miss: true, is_every_row: false },
                )
            }
            (accumulator, None) => Err(Error::internal(format!("{accumulator:?} has no input"))),
        }
    }

    /// Sums as they are held, in the type of results.
    pub(super) fn finish(
        &self,
        width: SumWidth,
        (counts, sums): (&Buffer, &Buffer),
        group_count: u64,
        result: &DataType,
    ) -> Result<Column> {
        let cell_type = CellType::of(result)?;
        let values = self.memory().allocate(group_count * u64::from(cell_type.bytes()), self.stream())?;
        let validity = self.allocate::<u8>(group_count)?;
        let status = StatusCell::new(self)?;
        let arguments = FinishSums {
            counts: counts.address(),
            sums: sums.address(),
            values: values.address(),
            validity: validity.address(),
            group_count,
            status: status.address(),
            cell_bytes: cell_type.bytes(),
            // bigint out of range, or a decimal beyond its bits.
            overflow_code: if *result == DataType::Int64 { 3 } else { 4 },
            overflow_detail: cell_type.decimal_digits_max().into(),
            reserved: 0,
        };
        let kernel = match width {
            SumWidth::Wide => Kernel::FinishSums,
            SumWidth::Large => Kernel::FinishLargeSums,
        };
        self.launch_strided(kernel, group_count, &arguments)?;
        status.check(self)?;
        let finished = Column {
            data_type: result.clone(),
            cell_type,
            values,
            validity: Some(validity),
            strings: Vec::new(),
        };
        self.spoil_nulls(&finished, group_count as usize);
        Ok(finished)
    }
}
