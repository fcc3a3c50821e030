//! Sums of floats and of their squared deviations from the mean, rounded once.
//!
//! ```text
//! floats, or states ─► bounds of each group ─► places for words ─► words ─┬─► states in bytes: partial results
//!                                                                         └─► floats
//! ```
//!
//! The head of kernels/aggregate/float_sums.cuh says what words are. A state has all that a group's values say of its sum, so groups of
//! states have the sums of all values, whatever their order, and whichever rank added them.
//!
//! The host computes deviations of words, because their numbers in between have any size. There are few rows of them, one a group.

use std::num::NonZero;

use num_bigint::BigInt;
use pystachio_engine::deviations::squared_deviations;
use pystachio_plan::{DataType, Error, Result};

use super::{
    Accumulation, Accumulator, Grouping, Queue,
    abi::{
        AccumulateFloats, FLOAT_ADDENDS_MAX, FLOAT_ANY, FLOAT_BLOCK_WORDS_MAX, FLOAT_INFINITY, FLOAT_NAN,
        FLOAT_NEGATIVE_INFINITY, FLOAT_PRIVATE_THREADS, FLOAT_PRIVATE_WORDS_MAX, FLOAT_WORDS_MAX,
        FinishFloats, FloatGroup,
    },
    fault::StatusCell,
    slots::SHARING_BLOCKS,
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// Rows for each word that a block with words of its own adds: for fewer, merging its words would cost more than it saves.
const SHARED_ROWS_PER_WORD_MIN: u64 = 8;
/// Rows of a thread that adds to words of its own or its block's.
const SHARING_THREAD_ROWS_MIN: u64 = 4;
/// Fewer groups are not worth another thread of the host.
const HOST_THREAD_GROUPS: usize = 1 << 10;
const _: () = assert!(Kernel::AccumulatePrivateFloats.block_threads() as u64 == FLOAT_PRIVATE_THREADS);

/// The words of every group, without carries.
struct FloatWords {
    /// A [`FloatGroup`] a group.
    measured: Buffer,
    /// A `u64` a group: the words of those before.
    offsets: Buffer,
    /// `i64`.
    words: Buffer,
    word_count: u64,
    group_count: usize,
    deviates: bool,
    status: StatusCell,
}

impl Queue {
    /// Sums of floats or deviations of every group, of values or of states. States are `Bytea`.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` for a result that does not fit its type.
    pub(super) fn accumulate_floats(
        &self,
        grouping: &Grouping,
        input: &Column,
        call: &Accumulation,
    ) -> Result<Column> {
        let words = self.add_floats(grouping, input, call.accumulator == Accumulator::Deviations)?;
        let column = match &call.result {
            DataType::Bytea => self.float_states(&words)?,
            result if words.deviates => self.deviations(&words, result)?,
            result => self.rounded_sums(&words, result)?,
        };
        self.poison_nulls(&column, words.group_count);
        Ok(column)
    }

    fn add_floats(&self, grouping: &Grouping, input: &Column, deviates: bool) -> Result<FloatWords> {
        let group_count = grouping.group_count;
        let measured = self.allocate_filled::<FloatGroup>(group_count as u64, 0)?;
        let status = StatusCell::new(self)?;
        let mut add = AccumulateFloats {
            input: input.view(),
            groups: grouping.groups.as_ref().map_or(0, Buffer::address),
            measured: measured.address(),
            end_row: grouping.row_count as u64,
            status: status.address(),
            deviates: deviates.into(),
            ..AccumulateFloats::default()
        };
        self.launch_strided(Kernel::MeasureFloats, add.end_row, &add)?;
        let lengths = self.allocate::<u32>(group_count as u64)?;
        let finish = FinishFloats {
            measured: measured.address(),
            group_count: group_count as u64,
            lengths: lengths.address(),
            deviates: deviates.into(),
            ..FinishFloats::default()
        };
        self.launch_strided(Kernel::CountFloatWords, group_count as u64, &finish)?;
        let (offsets, word_count) = self.offsets(&lengths, 4, group_count)?;
        let words = self.allocate_filled::<u64>(word_count, 0)?;
        (add.offsets, add.words, add.word_count) = (offsets.address(), words.address(), word_count);
        let words = FloatWords { measured, offsets, words, word_count, group_count, deviates, status };
        let row_count = add.end_row;
        for first_row in (0..row_count.max(1)).step_by(FLOAT_ADDENDS_MAX) {
            (add.first_row, add.end_row) = (first_row, row_count.min(first_row + FLOAT_ADDENDS_MAX as u64));
            self.launch_adding(&add)?;
            self.launch_strided(Kernel::CarryFloats, group_count as u64, &words.finishing())?;
        }
        Ok(words)
    }

    fn launch_adding(&self, add: &AccumulateFloats) -> Result<()> {
        let row_count = add.end_row - add.first_row;
        let kernel = match add.word_count as usize {
            0..=FLOAT_PRIVATE_WORDS_MAX => Kernel::AccumulatePrivateFloats,
            count if count <= FLOAT_BLOCK_WORDS_MAX => Kernel::AccumulateBlockFloats,
            _ => return self.launch_strided(Kernel::AccumulateFloats, row_count, add),
        };
        let tile_rows = u64::from(kernel.block_threads()) * SHARING_THREAD_ROWS_MIN;
        let block_rows = tile_rows.max(add.word_count * SHARED_ROWS_PER_WORD_MIN);
        self.launch(kernel, row_count.div_ceil(block_rows).min(SHARING_BLOCKS), add)
    }

    /// The states of sums. Waits.
    fn float_states(&self, words: &FloatWords) -> Result<Column> {
        let group_count = words.group_count as u64;
        let lengths = self.allocate::<u32>(group_count)?;
        let mut finish = FinishFloats { lengths: lengths.address(), ..words.finishing() };
        self.launch_strided(Kernel::MeasureFloatStates, group_count, &finish)?;
        let (offsets, byte_count) = self.offsets(&lengths, 4, words.group_count)?;
        let bytes = self.allocate::<u8>(byte_count)?;
        let column = self.float_column(&DataType::Bytea, group_count, vec![bytes.clone()])?;
        (finish.byte_offsets, finish.bytes) = (offsets.address(), bytes.address());
        words.write_to(&column, &mut finish);
        self.launch_strided(Kernel::WriteFloatStates, group_count, &finish)?;
        words.status.check(self)?;
        Ok(column)
    }

    fn rounded_sums(&self, words: &FloatWords, result: &DataType) -> Result<Column> {
        let group_count = words.group_count as u64;
        let column = self.float_column(result, group_count, Vec::new())?;
        let mut finish = words.finishing();
        words.write_to(&column, &mut finish);
        self.launch_strided(Kernel::RoundFloatSums, group_count, &finish)?;
        words.status.check(self)?;
        Ok(column)
    }

    fn float_column(&self, data_type: &DataType, row_count: u64, strings: Vec<Buffer>) -> Result<Column> {
        let cell_type = CellType::of(data_type)?;
        Ok(Column {
            data_type: data_type.clone(),
            cell_type,
            values: self.memory().allocate(row_count * u64::from(cell_type.bytes()), self.stream())?,
            validity: Some(self.allocate::<u8>(row_count)?),
            strings,
        })
    }

    /// Waits.
    fn deviations(&self, words: &FloatWords, result: &DataType) -> Result<Column> {
        words.status.check(self)?;
        let on_host = HostWords {
            measured: self.download(&words.measured, words.group_count)?,
            offsets: self.download(&words.offsets, words.group_count)?,
            words: self.download(&words.words, words.word_count as usize)?,
        };
        let (values, validity) = on_host.deviations()?;
        let column = self.float_column(result, 0, Vec::new())?;
        if column.cell_type != CellType::Float64 {
            return Err(Error::internal(format!("deviations of floats are no {result}")));
        }
        Ok(Column { values: self.upload(&values)?, validity: Some(self.upload(&validity)?), ..column })
    }
}

impl FloatWords {
    fn finishing(&self) -> FinishFloats {
        FinishFloats {
            measured: self.measured.address(),
            offsets: self.offsets.address(),
            words: self.words.address(),
            group_count: self.group_count as u64,
            status: self.status.address(),
            deviates: self.deviates.into(),
            ..FinishFloats::default()
        }
    }

    fn write_to(&self, column: &Column, finish: &mut FinishFloats) {
        finish.values = column.values.address();
        finish.validity = column.validity.as_ref().map_or(0, Buffer::address);
        finish.cell_bytes = column.cell_type.bytes();
    }
}

/// The words of deviations on the host.
struct HostWords {
    measured: Vec<FloatGroup>,
    offsets: Vec<u64>,
    words: Vec<i64>,
}

impl HostWords {
    /// Every group's value and validity.
    fn deviations(&self) -> Result<(Vec<f64>, Vec<u8>)> {
        let group_count = self.measured.len();
        let (mut values, mut validity) = (vec![0.0; group_count], vec![0; group_count]);
        let threads_max = std::thread::available_parallelism().map_or(1, NonZero::get);
        let part = group_count.div_ceil(threads_max).max(HOST_THREAD_GROUPS);
        std::thread::scope(|scope| {
            let parts = values.chunks_mut(part).zip(validity.chunks_mut(part));
            let threads: Vec<_> = (0..group_count)
                .step_by(part)
                .zip(parts)
                .map(|(first, (values, validity))| {
                    scope.spawn(move || {
                        for (group, (value, is_valid)) in (first..).zip(values.iter_mut().zip(validity)) {
                            let found = self.deviation(group)?;
                            (*value, *is_valid) = (found.unwrap_or(0.0), found.is_some().into());
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::internal("computing deviations has failed")))
            })
        })?;
        Ok((values, validity))
    }

    /// `None` for a group without values.
    fn deviation(&self, group: usize) -> Result<Option<f64>> {
        let lacks = || Error::internal("a group of floats lacks its words");
        let measured = self.measured.get(group).ok_or_else(lacks)?;
        let has = |marks: u64| u64::from(measured.marks) & marks != 0;
        if !has(FLOAT_ANY) {
            return Ok(None);
        }
        // PostgreSQL has NaN as soon as a value is not finite.
        if has(FLOAT_NAN | FLOAT_INFINITY | FLOAT_NEGATIVE_INFINITY) {
            return Ok(Some(f64::NAN));
        }
        let start = *self.offsets.get(group).ok_or_else(lacks)? as usize;
        let words = self.words.get(start..).ok_or_else(lacks)?;
        let (count, words) = words.split_first().ok_or_else(lacks)?;
        let (sum, words) = number(words, measured.words_before, measured.words_end).ok_or_else(lacks)?;
        let (squares, _) =
            number(words, measured.square_words_before, measured.square_words_end).ok_or_else(lacks)?;
        squared_deviations(&BigInt::from(*count), &(&sum * &sum), &squares).map(Some)
    }
}

/// The number that words begin with, and the words behind it.
fn number(words: &[i64], before: u32, end: u32) -> Option<(BigInt, &[i64])> {
    if end == 0 {
        return Some((BigInt::ZERO, words));
    }
    let first = FLOAT_WORDS_MAX.checked_sub(before as usize)?;
    let (own, rest) = words.split_at_checked((end as usize).checked_sub(first)?)?;
    let total = own.iter().rev().fold(BigInt::ZERO, |total, word| (total << 32) + word);
    Some((total << (32 * first), rest))
}
