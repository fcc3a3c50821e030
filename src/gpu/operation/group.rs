//! Groups of rows and their aggregates.

use pystachio_plan::{Aggregate, DataType, Error, ErrorKind, Result, partial_type};

use super::{
    Accumulator, Queue, RowNumbers,
    abi::{
        AccumulateGroups, AssignGroups, FEW_GROUPS_MAX, FinishSums, LARGE_PRIVATE_GROUPS_MAX, LARGE_SUM_WORDS,
    },
    fault::StatusCell,
    join::key_columns,
    slots::{SHARING_BLOCKS, SlotKey, SlotLayout, overflow_code},
};
use crate::device::{Buffer, CellType, Column, DECIMAL128_DIGITS_MAX, Kernel};

const WORD_BYTES: u64 = size_of::<u64>() as u64;
/// Rows of a thread that searches the best of few groups: each block offers its results to all
/// others.
const FEW_GROUPS_THREAD_ROWS_MIN: u64 = 8;
/// If there are nearly as many groups as rows, slots of all aggregates would take more memory than
/// the rows do.
const SLOT_BYTES_PER_ROW: u64 = 32;

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

impl Grouping {
    /// The keys of its slots.
    fn slot_keys(&self) -> impl Iterator<Item = SlotKey> {
        self.groups.iter().map(|_| SlotKey::numbers(self.group_count as u64))
    }
}

/// The representation of sums while they are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumWidth {
    /// 128 bits, which the addends' digits prove to be enough.
    Wide,
    /// More bits than the addends have. Addends are decimals of 128 or 256 bits.
    Large,
}

impl SumWidth {
    /// The representation of sums of a type.
    ///
    /// # Errors
    ///
    /// `NotSupported` for types without a kernel.
    pub fn of(addends: &DataType) -> Result<Self> {
        match addends {
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal { .. } => {
                Ok(Self::of_sums(&partial_type(Aggregate::Sum, Some(addends), addends)))
            }
            other => {
                Err(Error::new(ErrorKind::NotSupported, format!("no kernel sums values of type {other}")))
            }
        }
    }

    /// The types of partial sums of a type, and of their sums.
    pub fn of_sums(sums: &DataType) -> Self {
        match sums {
            DataType::Decimal { precision, .. } if *precision > DECIMAL128_DIGITS_MAX => Self::Large,
            _ => Self::Wide,
        }
    }

    /// The representation of sums of partial sums.
    pub fn of_partial(partial: &Column) -> Self {
        if partial.cell_type == CellType::Int256 { Self::Large } else { Self::Wide }
    }
}

/// An aggregate of every group.
#[derive(Clone, Debug)]
pub struct Accumulation {
    /// The kind of aggregate.
    pub accumulator: Accumulator,
    /// The index of its input; `None` for a count of rows.
    pub input: Option<usize>,
    /// The representation of its sum.
    pub width: SumWidth,
    /// The type of the result.
    pub result: DataType,
}

/// Grouping rows and accumulating them.
impl Queue {
    /// Finds the groups of equal keys, where NULL equals NULL. Without keys all rows are one group.
    /// `groups_max`: an upper bound of the groups; there are never more than rows. Waits for the
    /// count of groups.
    ///
    /// # Ordering
    ///
    /// Groups are numbered in the order of their leaders: some row of each group.
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

    /// Aggregates of every group: one row a group, in the order of their numbers. NULL inputs are
    /// skipped, and an aggregate without other inputs is NULL; a count is never.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` for a sum that does not fit its type.
    pub fn accumulate(
        &self,
        grouping: &Grouping,
        inputs: &[&Column],
        calls: &[Accumulation],
    ) -> Result<Vec<Column>> {
        let mut results: Vec<Option<Column>> = vec![None; calls.len()];
        let mut rest: Vec<usize> = Vec::new();
        let (mut layout, mut placed) = (SlotLayout::default(), Vec::new());
        let slot_keys: Vec<SlotKey> = grouping.slot_keys().collect();
        let bytes_max = grouping.row_count as u64 * SLOT_BYTES_PER_ROW;
        for (number, call) in calls.iter().enumerate() {
            let mut next = layout.clone();
            if next.push(call.accumulator, call.input, call.width)
                && (placed.is_empty() || next.bytes(&slot_keys) <= bytes_max)
            {
                layout = next;
                placed.push(number);
                continue;
            }
            let mut next = SlotLayout::default();
            if !next.push(call.accumulator, call.input, call.width) {
                rest.push(number);
                continue;
            }
            // There is no more room.
            let full = (std::mem::replace(&mut layout, next), std::mem::replace(&mut placed, vec![number]));
            self.accumulate_placed(grouping, inputs, calls, full, &mut results)?;
        }
        self.accumulate_placed(grouping, inputs, calls, (layout, placed), &mut results)?;
        for number in rest {
            results[number] = Some(self.accumulate_alone(grouping, inputs, &calls[number])?);
        }
        let missing = || Error::internal("an aggregate without a result");
        results.into_iter().map(|result| result.ok_or_else(missing)).collect()
    }

    /// The calls of these numbers, which have their places in a layout.
    fn accumulate_placed(
        &self,
        grouping: &Grouping,
        inputs: &[&Column],
        calls: &[Accumulation],
        (layout, numbers): (SlotLayout, Vec<usize>),
        results: &mut [Option<Column>],
    ) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let keys: Vec<Column> = grouping.groups.iter().cloned().map(Column::of_numbers).collect();
        let mut slots = self.open_slots(&layout, grouping.slot_keys().collect())?;
        self.accumulate_slots(&layout, &mut slots, &keys, inputs, grouping.row_count)?;
        let types: Vec<DataType> = numbers.iter().map(|number| calls[*number].result.clone()).collect();
        let columns = self.results_of_slots(&layout, &slots, &types)?;
        for (number, column) in numbers.into_iter().zip(columns) {
            results[number] = Some(column);
        }
        Ok(())
    }

    /// Aggregates that slots do not hold.
    fn accumulate_alone(
        &self,
        grouping: &Grouping,
        inputs: &[&Column],
        call: &Accumulation,
    ) -> Result<Column> {
        let input = call.input.and_then(|input| inputs.get(input));
        let input = input.ok_or_else(|| Error::internal(format!("{:?} has no input", call.accumulator)))?;
        let group_count = grouping.group_count as u64;
        let mut arguments = AccumulateGroups {
            input: input.view(),
            groups: grouping.groups.as_ref().map_or(0, Buffer::address),
            row_count: grouping.row_count as u64,
            group_count: u32::try_from(group_count).unwrap_or(u32::MAX),
            kind: call.accumulator as u32,
            ..AccumulateGroups::default()
        };
        if matches!(call.accumulator, Accumulator::FloatSum | Accumulator::Deviations) {
            return self.accumulate_floats(grouping, input, call);
        }
        if call.accumulator == Accumulator::Sum {
            return self.accumulate_large_sums(arguments, group_count, &call.result);
        }
        let rows = self.allocate_filled::<u32>(group_count, 0xff)?;
        arguments.rows = rows.address();
        if group_count <= FEW_GROUPS_MAX {
            let kernel = Kernel::AccumulateFewGroups;
            let block_rows =
                (u64::from(kernel.block_threads()) * FEW_GROUPS_THREAD_ROWS_MIN).max(group_count);
            let blocks = arguments.row_count.div_ceil(block_rows).min(SHARING_BLOCKS);
            self.launch(kernel, blocks, &arguments)?;
        } else {
            self.launch_strided(Kernel::AccumulateGroups, arguments.row_count, &arguments)?;
        }
        let rows = RowNumbers { rows, count: grouping.group_count, may_miss: true, is_every_row: false };
        self.gather(input, &rows)
    }

    fn accumulate_large_sums(
        &self,
        mut arguments: AccumulateGroups,
        group_count: u64,
        result: &DataType,
    ) -> Result<Column> {
        // Sums and then counts.
        let sum_words = group_count * LARGE_SUM_WORDS;
        let words = self.allocate_filled::<u64>(sum_words + group_count, 0)?;
        let slice = |start: u64, count: u64| words.slice(start * WORD_BYTES, count * WORD_BYTES);
        let (sums, counts) = (slice(0, sum_words), slice(sum_words, group_count));
        (arguments.sums, arguments.counts) = (sums.address(), counts.address());
        let kernel = match group_count {
            0..=LARGE_PRIVATE_GROUPS_MAX => Kernel::AccumulateFewLargeSums,
            _ => Kernel::AccumulateLargeSums,
        };
        self.launch_strided(kernel, arguments.row_count, &arguments)?;
        let cell_type = CellType::of(result)?;
        let values = self.memory().allocate(group_count * u64::from(cell_type.bytes()), self.stream())?;
        let validity = self.allocate::<u8>(group_count)?;
        let status = StatusCell::new(self)?;
        let finish = FinishSums {
            counts: counts.address(),
            sums: sums.address(),
            values: values.address(),
            validity: validity.address(),
            group_count,
            status: status.address(),
            cell_bytes: cell_type.bytes(),
            overflow_code: overflow_code(result),
            overflow_detail: cell_type.decimal_digits_max().into(),
            reserved: 0,
        };
        self.launch_strided(Kernel::FinishLargeSums, group_count, &finish)?;
        status.check(self)?;
        let finished = Column {
            data_type: result.clone(),
            cell_type,
            values,
            validity: Some(validity),
            strings: Vec::new(),
        };
        self.poison_nulls(&finished, group_count as usize);
        Ok(finished)
    }
}
