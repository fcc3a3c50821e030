//! Groups of an integer key that are found by the key itself.

use std::ops::RangeInclusive;

use pystachio_plan::{DataType, Error, Result};

use super::{
    Kernel, KernelDevice,
    abi::{AccumulateSlots, SlotInput, SlotOutput, TakeSlots},
};
use crate::{
    device::{Buffer, CellType, Chunk, Column},
    operation::{
        GroupSlots, NO_ROW, ResultPlace, RowOperations, SLOT_WORD_BYTES, SlotLayout, SlotOperations,
        SumWidth, slot_count,
    },
};

impl SlotOperations for KernelDevice {
    fn open_slots(&self, layout: &SlotLayout, keys: RangeInclusive<i64>) -> Result<GroupSlots> {
        if slot_count(&keys) >= u64::from(NO_ROW) {
            return Err(Error::internal(format!("more slots than row numbers: {}", slot_count(&keys))));
        }
        let words = self.allocate_filled::<u8>(layout.bytes(&keys), 0)?;
        Ok(GroupSlots { words, keys, may_be_null: false })
    }

    fn grow_slots(
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

    fn accumulate_slots(
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

    fn take_slots(
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
