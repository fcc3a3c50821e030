//! Groups of one integer key whose values lie close together: the key is the group's place.
//!
//! ```text
//! key 1000 … 1999, NULL    ┌──────┬────────────┬───────────┬──────┬────────────┬─
//!                          │ rows │ count of a │ sum of a  │ rows │ count of a │ …     a slot a key, the last of NULL
//!                          └──────┴────────────┴───────────┴──────┴────────────┴─
//! ```
//!
//! Slots take chunk after chunk, so that nothing is merged.
//!
//! Invariants: every key that is added lies in the range that the slots were opened for.

use std::ops::RangeInclusive;

use pystachio_plan::{DataType, Error, Result};

use super::{
    Accumulator, NO_ROW, Queue, SumWidth,
    abi::{AccumulateSlots, SlotInput, SlotOutput, TakeSlots},
};
use crate::device::{Buffer, CellType, Chunk, Column, Kernel};

/// Inputs of a slot's aggregates.
pub(crate) const SLOT_INPUTS_MAX: usize = 8;
/// What is taken of a slot.
pub(crate) const SLOT_OUTPUTS_MAX: usize = 24;

/// Bytes of a word of a slot.
pub(crate) const SLOT_WORD_BYTES: u64 = 8;

/// What a slot holds, and where.
#[derive(Debug)]
pub struct SlotLayout {
    pub(crate) inputs: Vec<InputPlace>,
    pub(crate) results: Vec<ResultPlace>,
    pub(crate) words: u32,
}

/// An argument of aggregates.
#[derive(Debug)]
pub(crate) struct InputPlace {
    pub(crate) argument: usize,
    pub(crate) count_word: u32,
    /// 0 if there is none.
    pub(crate) sum_word: u32,
}

/// Where an aggregate's result is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResultPlace {
    Count { word: u32 },
    Sum { count_word: u32, sum_word: u32 },
}

impl ResultPlace {
    fn output_count(&self) -> usize {
        match self {
            Self::Count { .. } => 1,
            Self::Sum { .. } => 2,
        }
    }
}

impl SlotLayout {
    /// A layout for aggregates, each of an argument or of rows; `None` if they are none that slots hold.
    pub fn plan(aggregates: &[(Accumulator, Option<usize>)], argument_types: &[DataType]) -> Option<Self> {
        // The first word counts rows.
        let mut layout = Self { inputs: Vec::new(), results: Vec::new(), words: 1 };
        for (accumulator, argument) in aggregates {
            let place = match (accumulator, argument) {
                (Accumulator::Count, None) => ResultPlace::Count { word: 0 },
                (Accumulator::Count, Some(argument)) => {
                    let place = layout.input(*argument);
                    ResultPlace::Count { word: layout.inputs[place].count_word }
                }
                (Accumulator::Sum, Some(argument)) => {
                    if !matches!(SumWidth::of(argument_types.get(*argument)?), Ok(SumWidth::Wide)) {
                        return None;
                    }
                    layout.sum(*argument)
                }
                _ => return None,
            };
            layout.results.push(place);
        }
        let outputs: usize = layout.results.iter().map(ResultPlace::output_count).sum();
        (layout.inputs.len() <= SLOT_INPUTS_MAX && outputs <= SLOT_OUTPUTS_MAX).then_some(layout)
    }

    fn input(&mut self, argument: usize) -> usize {
        let known = self.inputs.iter().position(|input| input.argument == argument);
        known.unwrap_or_else(|| {
            let count_word = self.add_words(1);
            self.inputs.push(InputPlace { argument, count_word, sum_word: 0 });
            self.inputs.len() - 1
        })
    }

    fn sum(&mut self, argument: usize) -> ResultPlace {
        let place = self.input(argument);
        if self.inputs[place].sum_word == 0 {
            self.inputs[place].sum_word = self.add_words(2);
        }
        let InputPlace { count_word, sum_word, .. } = self.inputs[place];
        ResultPlace::Sum { count_word, sum_word }
    }

    /// The first of some words that are added.
    fn add_words(&mut self, count: u32) -> u32 {
        self.words += count;
        self.words - count
    }

    /// Device bytes of slots for a range of keys.
    pub fn bytes(&self, keys: &RangeInclusive<i64>) -> u64 {
        slot_count(keys).saturating_add(1).saturating_mul(u64::from(self.words) * SLOT_WORD_BYTES)
    }
}

/// Keys of a range.
pub(crate) fn slot_count(keys: &RangeInclusive<i64>) -> u64 {
    keys.end().abs_diff(*keys.start()).saturating_add(1)
}

/// Slots with what was added to them.
pub struct GroupSlots {
    pub(crate) words: Buffer,
    pub(crate) keys: RangeInclusive<i64>,
    /// Whether some key may be NULL.
    pub(crate) may_be_null: bool,
}

impl GroupSlots {
    /// The keys that there are slots for.
    pub fn keys(&self) -> &RangeInclusive<i64> {
        &self.keys
    }
}

/// Groups in slots.
impl Queue {
    /// Empty slots.
    ///
    /// # Errors
    ///
    /// `Internal` for more slots than there are row numbers.
    pub fn open_slots(&self, layout: &SlotLayout, keys: RangeInclusive<i64>) -> Result<GroupSlots> {
        if slot_count(&keys) >= u64::from(NO_ROW) {
            return Err(Error::internal(format!("more slots than row numbers: {}", slot_count(&keys))));
        }
        let words = self.allocate_filled::<u8>(layout.bytes(&keys), 0)?;
        Ok(GroupSlots { words, keys, may_be_null: false })
    }

    /// The same slots for a range of keys that has theirs in it.
    ///
    /// # Errors
    ///
    /// As of [`Queue::open_slots`].
    pub fn grow_slots(
        &self,
        layout: &SlotLayout,
        slots: &GroupSlots,
        keys: RangeInclusive<i64>,
    ) -> Result<GroupSlots> {
        let (before, after) = (keys.start().abs_diff(*slots.keys.start()), slot_count(&keys));
        let grown = self.open_slots(layout, keys)?;
        let slot_bytes = u64::from(layout.words) * SLOT_WORD_BYTES;
        let (source, target) = (slots.words.address(), grown.words.address());
        let bytes = slot_count(&slots.keys) * slot_bytes;
        self.copy(source, target + before * slot_bytes, bytes)?;
        self.copy(source + bytes, target + after * slot_bytes, slot_bytes)?;
        Ok(GroupSlots { may_be_null: slots.may_be_null, ..grown })
    }

    /// Adds rows. `key` has integers in the range of the slots, and NULL; `arguments` are the columns that the
    /// layout's aggregates are of.
    pub fn accumulate_slots(
        &self,
        layout: &SlotLayout,
        slots: &mut GroupSlots,
        key: &Column,
        arguments: &[Column],
        row_count: usize,
    ) -> Result<()> {
        let mut accumulate = AccumulateSlots {
            key: key.view(),
            slots: slots.words.address(),
            row_count: row_count as u64,
            least: *slots.keys.start(),
            slot_count: slot_count(&slots.keys),
            slot_words: layout.words,
            input_count: layout.inputs.len() as u32,
            ..AccumulateSlots::default()
        };
        for (target, input) in accumulate.inputs.iter_mut().zip(&layout.inputs) {
            let column = arguments.get(input.argument);
            let column = column.ok_or_else(|| Error::internal("an aggregate without its argument"))?;
            *target =
                SlotInput { input: column.view(), count_word: input.count_word, sum_word: input.sum_word };
        }
        slots.may_be_null |= key.validity.is_some();
        self.launch_strided(Kernel::AccumulateSlots, accumulate.row_count, &accumulate)
    }

    /// The groups that have rows, by key and that of NULL last: the key and its aggregates in their types. Waits for
    /// their count.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` for a sum that does not fit its type.
    pub fn take_slots(
        &self,
        layout: &SlotLayout,
        slots: &GroupSlots,
        key_type: &DataType,
        result_types: &[DataType],
    ) -> Result<Chunk> {
        let slot_count = slot_count(&slots.keys);
        let flags = self.allocate::<u8>(slot_count + 1)?;
        let cell_type = CellType::of(key_type)?;
        let mut take = TakeSlots {
            slots: slots.words.address(),
            flags: flags.address(),
            least: *slots.keys.start(),
            slot_count,
            slot_words: layout.words,
            key_bytes: cell_type.bytes(),
            ..TakeSlots::default()
        };
        self.launch_strided(Kernel::FlagSlots, slot_count + 1, &take)?;
        let numbers = self.select(&flags, slot_count as usize + 1)?;
        let count = numbers.count as u64;
        let key = Column {
            data_type: key_type.clone(),
            cell_type,
            values: self.memory().allocate(count * u64::from(cell_type.bytes()), self.stream())?,
            validity: slots.may_be_null.then(|| self.allocate::<u8>(count)).transpose()?,
            strings: Vec::new(),
        };
        take.numbers = numbers.rows.address();
        take.row_count = count;
        take.keys = key.values.address();
        take.validity = key.validity.as_ref().map_or(0, Buffer::address);
        let mut outputs = Vec::new();
        let mut output = |word: u32, words: u32| -> Result<Buffer> {
            let buffer = self.allocate::<u64>(count * u64::from(words))?;
            outputs.push(SlotOutput { target: buffer.address(), word, words });
            Ok(buffer)
        };
        let mut taken = Vec::with_capacity(layout.results.len());
        for place in &layout.results {
            taken.push(match *place {
                ResultPlace::Count { word } => (output(word, 1)?, None),
                ResultPlace::Sum { count_word, sum_word } => {
                    (output(count_word, 1)?, Some(output(sum_word, 2)?))
                }
            });
        }
        take.output_count = outputs.len() as u32;
        take.outputs[..outputs.len()].copy_from_slice(&outputs);
        self.launch_strided(Kernel::TakeSlots, count, &take)?;
        self.spoil_nulls(&key, numbers.count);
        let mut columns = vec![key];
        for ((counts, sums), data_type) in taken.into_iter().zip(result_types) {
            columns.push(match sums {
                Some(sums) => self.finish(SumWidth::Wide, (&counts, &sums), count, data_type)?,
                None => Column {
                    data_type: DataType::Int64,
                    cell_type: CellType::Int64,
                    values: counts,
                    validity: None,
                    strings: Vec::new(),
                },
            });
        }
        Ok(Chunk { row_count: numbers.count, columns })
    }
}
