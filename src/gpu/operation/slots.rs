//! Groups whose position is computed from their keys: integers in a narrow range, codes, numbers of
//! groups.
//!
//! ```text
//! key 1000 … 1999, NULL    ┌──────┬────────────┬──────────┬──────┬────────────┬─
//!                          │ rows │ NULLs of a │ sum of a │ rows │ NULLs of a │ …     a slot a key, the last of NULL
//!                          └──────┴────────────┴──────────┴──────┴────────────┴─
//! ```
//!
//! One launch adds all counts and sums of a row. Slots may take chunk after chunk, so nothing is
//! merged.
//!
//! Invariants: a row whose key has no slot adds nothing, and is an error when the slots are taken.

use pystachio_plan::{DataType, Error, Result};

use super::{
    Accumulator, NO_ROW, Queue, RowNumbers, SLOT_INPUTS_MAX, SLOT_KEYS_MAX, SLOT_OUTPUTS_MAX, SumWidth,
    abi::{
        AccumulateSlots, BLOCK_SLOTS_MAX, PRIVATE_SLOT_THREADS, PRIVATE_SLOTS_MAX, SHARE_CELLS_MAX,
        SLOT_CELLS_MAX, SLOT_ROWS, SlotInput, SlotKey as SlotKeyView, SlotKeyTarget, SlotOutput, TakeSlots,
    },
    error_code,
    fault::StatusCell,
};
use crate::device::{Buffer, CellType, Chunk, Column, Kernel};

/// So few slots cost next to nothing: a block keeps them in shared memory.
pub const FEW_SLOTS_MAX: u64 = BLOCK_SLOTS_MAX;

/// Bytes of a word of a slot.
const SLOT_WORD_BYTES: u64 = 8;
/// Cells of a slot and share for an input and the rows.
const SHARE_CELLS_MIN: u64 = 3;
/// Blocks that add to slots of their own: as many as multiprocessors hold at once, since each
/// begins with empty slots and ends with adding them to the global ones.
pub(super) const SHARING_BLOCKS: u64 = 132 * 6;
const _: () = assert!(Kernel::AccumulatePrivateSlots.block_threads() as u64 == PRIVATE_SLOT_THREADS);
/// Rows for each slot that such a block adds: for fewer, merging its slots would cost more than it
/// saves.
const SHARED_ROWS_PER_SLOT_MIN: u64 = 8;

/// Aggregates that slots hold, and their words.
#[derive(Clone, Debug)]
pub struct SlotLayout {
    inputs: Vec<InputPlace>,
    results: Vec<ResultPlace>,
    words: u32,
}

/// An argument of aggregates.
#[derive(Clone, Debug)]
struct InputPlace {
    argument: usize,
    null_word: u32,
    /// 0 if there is none.
    sum_word: u32,
}

/// The words of an aggregate's result.
#[derive(Clone, Copy, Debug)]
struct ResultPlace {
    /// 0 for rows, whatever their values.
    null_word: u32,
    /// 0 for a count.
    sum_word: u32,
}

impl Default for SlotLayout {
    fn default() -> Self {
        // The first word counts rows.
        Self { inputs: Vec::new(), results: Vec::new(), words: 1 }
    }
}

impl SlotLayout {
    /// A layout for aggregates, each of an argument or of rows; `None` if slots do not hold all of
    /// them.
    pub fn plan(
        aggregates: impl IntoIterator<Item = (Accumulator, Option<usize>, SumWidth)>,
    ) -> Option<Self> {
        let mut layout = Self::default();
        let mut aggregates = aggregates.into_iter();
        aggregates
            .all(|(accumulator, argument, width)| layout.push(accumulator, argument, width))
            .then_some(layout)
    }

    /// Adds an aggregate, if slots can hold it and have room. Returns whether it did.
    pub fn push(&mut self, accumulator: Accumulator, argument: Option<usize>, width: SumWidth) -> bool {
        let sums = match accumulator {
            Accumulator::Count => false,
            Accumulator::Sum if argument.is_some() && width == SumWidth::Wide => true,
            _ => return false,
        };
        if self.results.len() == SLOT_OUTPUTS_MAX {
            return false;
        }
        let Some(argument) = argument else {
            self.results.push(ResultPlace { null_word: 0, sum_word: 0 });
            return true;
        };
        let place = match self.inputs.iter().position(|input| input.argument == argument) {
            Some(place) => place,
            None if self.inputs.len() == SLOT_INPUTS_MAX => return false,
            None => {
                let null_word = self.add_words(1);
                self.inputs.push(InputPlace { argument, null_word, sum_word: 0 });
                self.inputs.len() - 1
            }
        };
        if sums && self.inputs[place].sum_word == 0 {
            self.inputs[place].sum_word = self.add_words(2);
        }
        let InputPlace { null_word, sum_word, .. } = self.inputs[place];
        self.results.push(ResultPlace { null_word, sum_word: if sums { sum_word } else { 0 } });
        true
    }

    /// Reserves words; returns the first.
    fn add_words(&mut self, count: u32) -> u32 {
        self.words += count;
        self.words - count
    }

    /// Its arguments: the number of each, the word that counts its NULLs, and the first word of its sum, or 0.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        self.inputs.iter().map(|input| (input.argument, input.null_word, input.sum_word))
    }

    /// Words of a slot.
    pub(crate) fn words(&self) -> u32 {
        self.words
    }

    /// Aggregates that it has.
    pub fn aggregate_count(&self) -> usize {
        self.results.len()
    }

    /// Device bytes of slots of some keys.
    pub fn bytes(&self, keys: &[SlotKey]) -> u64 {
        slot_count(keys).saturating_mul(u64::from(self.words) * SLOT_WORD_BYTES)
    }
}

/// A key of slots: the range of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotKey {
    /// The first value.
    pub least: i64,
    /// How many values there are, from the first on.
    pub value_count: u64,
    /// Whether NULL has a place too.
    pub has_null: bool,
}

impl SlotKey {
    /// A key of numbers from 0 on, none of which is NULL.
    pub fn numbers(count: u64) -> Self {
        Self { least: 0, value_count: count, has_null: false }
    }

    fn place_count(&self) -> u64 {
        self.value_count.saturating_add(self.has_null.into())
    }
}

/// Slots of some keys: one for every combination of places.
pub fn slot_count(keys: &[SlotKey]) -> u64 {
    keys.iter().map(SlotKey::place_count).fold(1, u64::saturating_mul)
}

/// How many slots lie between neighbouring places of each key: those of the last are neighbours.
fn strides(keys: &[SlotKey]) -> Vec<u64> {
    (0..keys.len()).map(|number| slot_count(&keys[number + 1..])).collect()
}

/// Slots with the values added so far.
pub struct Slots {
    words: Buffer,
    keys: Vec<SlotKey>,
    /// Whether some value of a key may have been NULL.
    may_be_null: Vec<bool>,
    status: StatusCell,
}

impl Slots {
    /// The keys and the layout.
    pub fn keys(&self) -> &[SlotKey] {
        &self.keys
    }

    /// Where its words are.
    pub(crate) fn address(&self) -> u64 {
        self.words.address()
    }

    /// How many slots lie between neighbouring places of each key.
    pub(crate) fn strides(&self) -> Vec<u64> {
        strides(&self.keys)
    }

    /// Notes that values of a key may be NULL.
    pub(crate) fn note_nulls(&mut self, key: usize) {
        self.may_be_null[key] = true;
    }
}

/// Groups in slots.
impl Queue {
    /// Empty slots.
    ///
    /// # Errors
    ///
    /// `Internal` for more slots than there are row numbers, or more keys than slots have.
    pub fn open_slots(&self, layout: &SlotLayout, keys: Vec<SlotKey>) -> Result<Slots> {
        let count = slot_count(&keys);
        if count >= u64::from(NO_ROW) || keys.len() > SLOT_KEYS_MAX {
            return Err(Error::internal(format!("slots that can't be: slots={count}, keys={}", keys.len())));
        }
        let words = self.allocate_filled::<u8>(layout.bytes(&keys), 0)?;
        Ok(Slots { words, may_be_null: vec![false; keys.len()], keys, status: StatusCell::new(self)? })
    }

    /// The same slots for a key whose range contains theirs. They have one key.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::open_slots`].
    pub fn grow_slots(&self, layout: &SlotLayout, slots: &Slots, key: SlotKey) -> Result<Slots> {
        let [known] = slots.keys.as_slice() else {
            return Err(Error::internal(format!("slots of {} keys do not grow", slots.keys.len())));
        };
        let slot_bytes = u64::from(layout.words) * SLOT_WORD_BYTES;
        let before = key.least.abs_diff(known.least) * slot_bytes;
        let null = key.value_count * slot_bytes;
        let grown = self.open_slots(layout, vec![key])?;
        let (source, target) = (slots.words.address(), grown.words.address());
        let bytes = known.value_count * slot_bytes;
        self.copy(source, target + before, bytes)?;
        if known.has_null {
            self.copy(source + bytes, target + null, slot_bytes)?;
        }
        Ok(Slots { may_be_null: slots.may_be_null.clone(), ..grown })
    }

    /// Adds rows. `keys` are integers, one column a key; `arguments` are the inputs of the layout's
    /// aggregates.
    ///
    /// # Errors
    ///
    /// `Internal` for a column that is missing, or has NULL if slots have no place for it.
    pub fn accumulate_slots(
        &self,
        layout: &SlotLayout,
        slots: &mut Slots,
        keys: &[Column],
        arguments: &[&Column],
        row_count: usize,
    ) -> Result<()> {
        let slot_count = slot_count(&slots.keys);
        let mut accumulate = AccumulateSlots {
            slots: slots.words.address(),
            row_count: row_count as u64,
            slot_count,
            status: slots.status.address(),
            slot_words: layout.words,
            key_count: slots.keys.len() as u32,
            input_count: layout.inputs.len() as u32,
            ..AccumulateSlots::default()
        };
        let strides = strides(&slots.keys);
        for (number, (known, stride)) in slots.keys.iter().zip(strides).enumerate() {
            let key = keys.get(number).filter(|key| known.has_null || key.validity.is_none());
            let key = key.ok_or_else(|| Error::internal("slots have no place for a key"))?;
            let SlotKey { least, value_count, .. } = *known;
            accumulate.keys[number] =
                SlotKeyView { key: key.view(), least, place_count: value_count, stride };
            slots.may_be_null[number] |= key.validity.is_some();
        }
        for (target, input) in accumulate.inputs.iter_mut().zip(&layout.inputs) {
            let column = arguments.get(input.argument);
            let column = column.ok_or_else(|| Error::internal("an aggregate without its argument"))?;
            *target = SlotInput {
                input: column.view(),
                null_word: input.null_word,
                sum_word: input.sum_word,
                ..SlotInput::default()
            };
        }
        let (kernel, copies) = match slot_count {
            count if count <= PRIVATE_SLOTS_MAX => (Kernel::AccumulatePrivateSlots, PRIVATE_SLOT_THREADS),
            count if count <= BLOCK_SLOTS_MAX => (Kernel::AccumulateBlockSlots, 1),
            _ => {
                let threads = accumulate.row_count.div_ceil(SLOT_ROWS);
                return self.launch_strided(Kernel::AccumulateSlots, threads, &accumulate);
            }
        };
        let inputs = &mut accumulate.inputs[..layout.inputs.len()];
        accumulate.share_count = divide_inputs(inputs, SLOT_CELLS_MAX / (slot_count.max(1) * copies));
        let tile_rows = u64::from(kernel.block_threads()) * SLOT_ROWS;
        let block_rows = tile_rows.max(slot_count * SHARED_ROWS_PER_SLOT_MIN);
        let shares = u64::from(accumulate.share_count);
        let blocks = accumulate.row_count.div_ceil(block_rows).min((SHARING_BLOCKS / shares).max(1));
        self.launch(kernel, shares * blocks, &accumulate)
    }

    /// The groups that have rows, by slot: keys and then aggregates, in their types. Waits for their count.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` for a sum that does not fit its type.
    pub fn take_slots(
        &self,
        layout: &SlotLayout,
        slots: &Slots,
        key_types: &[DataType],
        result_types: &[DataType],
    ) -> Result<Chunk> {
        let slot_count = slot_count(&slots.keys);
        let flags = self.allocate::<u8>(slot_count)?;
        let flag = TakeSlots { flags: flags.address(), ..self.taking(layout, slots) };
        self.launch_strided(Kernel::FlagSlots, slot_count, &flag)?;
        let numbers = self.select(&flags, slot_count as usize)?;
        let columns = self.take(layout, slots, Some(&numbers), key_types, result_types)?;
        Ok(Chunk { row_count: numbers.count, columns })
    }

    /// The aggregates of every slot, in their types.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::take_slots`].
    pub fn results_of_slots(
        &self,
        layout: &SlotLayout,
        slots: &Slots,
        result_types: &[DataType],
    ) -> Result<Vec<Column>> {
        self.take(layout, slots, None, &[], result_types)
    }

    fn taking(&self, layout: &SlotLayout, slots: &Slots) -> TakeSlots {
        TakeSlots {
            slots: slots.words.address(),
            slot_count: slot_count(&slots.keys),
            status: slots.status.address(),
            slot_words: layout.words,
            ..TakeSlots::default()
        }
    }

    fn take(
        &self,
        layout: &SlotLayout,
        slots: &Slots,
        numbers: Option<&RowNumbers>,
        key_types: &[DataType],
        result_types: &[DataType],
    ) -> Result<Vec<Column>> {
        let mut take = self.taking(layout, slots);
        take.row_count = numbers.map_or(take.slot_count, |numbers| numbers.count as u64);
        take.numbers = numbers.map_or(0, |numbers| numbers.rows.address());
        let mut columns = Vec::with_capacity(key_types.len() + result_types.len());
        let strides = strides(&slots.keys);
        for (number, data_type) in key_types.iter().enumerate().take(slots.keys.len()) {
            let key = &slots.keys[number];
            let column = self.slot_column(data_type, take.row_count, slots.may_be_null[number])?;
            take.keys[number] = SlotKeyTarget {
                target: column.values.address(),
                validity: column.validity.as_ref().map_or(0, Buffer::address),
                least: key.least,
                place_count: key.value_count,
                stride: strides[number],
                cell_bytes: column.cell_type.bytes(),
                null_places: key.has_null.into(),
            };
            take.key_count += 1;
            columns.push(column);
        }
        for (number, (place, data_type)) in layout.results.iter().zip(result_types).enumerate() {
            let is_sum = place.sum_word != 0;
            let data_type = if is_sum { data_type } else { &DataType::Int64 };
            let column = self.slot_column(data_type, take.row_count, is_sum)?;
            take.outputs[number] = SlotOutput {
                target: column.values.address(),
                validity: column.validity.as_ref().map_or(0, Buffer::address),
                null_word: place.null_word,
                sum_word: place.sum_word,
                cell_bytes: column.cell_type.bytes(),
                overflow_code: overflow_code(data_type),
                overflow_detail: column.cell_type.decimal_digits_max().into(),
                reserved: 0,
            };
            take.output_count += 1;
            columns.push(column);
        }
        self.launch_strided(Kernel::TakeSlots, take.row_count, &take)?;
        slots.status.check(self)?;
        for column in &columns {
            self.poison_nulls(column, take.row_count as usize);
        }
        Ok(columns)
    }

    fn slot_column(&self, data_type: &DataType, row_count: u64, is_nullable: bool) -> Result<Column> {
        let cell_type = CellType::of(data_type)?;
        Ok(Column {
            data_type: data_type.clone(),
            cell_type,
            values: self.memory().allocate(row_count * u64::from(cell_type.bytes()), self.stream())?,
            validity: is_nullable.then(|| self.allocate::<u8>(row_count)).transpose()?,
            strings: Vec::new(),
        })
    }
}

/// Assigns every input its share and cells: as few shares as blocks have room for, each of about as
/// many cells, since all have as many blocks. Returns the number of shares. `cells_max`: of a slot
/// and share, at least three.
fn divide_inputs(inputs: &mut [SlotInput], cells_max: u64) -> u32 {
    let share_count = fill_shares(inputs, cells_max);
    let fewer = (SHARE_CELLS_MIN..cells_max.min(SHARE_CELLS_MAX))
        .find(|cells| fill_shares(inputs, *cells) == share_count);
    fill_shares(inputs, fewer.unwrap_or(cells_max))
}

/// Assigns one share after another as many inputs as have room in it, beside a cell for the rows.
/// Returns the number of shares.
fn fill_shares(inputs: &mut [SlotInput], cells_max: u64) -> u32 {
    let (mut share, mut cells) = (0, 1);
    for input in inputs {
        let (null_cells, sum_cells) = (input.input.validity.min(1) as u16, input.sum_word.min(1) as u16);
        if u64::from(cells + null_cells + sum_cells) > cells_max {
            share += 1;
            cells = 1;
        }
        input.share = share;
        input.null_cell = null_cells * cells;
        cells += null_cells;
        input.sum_cell = sum_cells * cells;
        cells += sum_cells;
    }
    u32::from(share) + 1
}

/// The error of a sum that does not fit its type.
pub(super) fn overflow_code(data_type: &DataType) -> u32 {
    if *data_type == DataType::Int64 { error_code::INT64_RANGE } else { error_code::DECIMAL_RANGE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::abi::ColumnView;

    #[test]
    fn a_layout_shares_inputs_and_refuses_what_it_has_no_room_for() {
        let wide = SumWidth::Wide;
        let layout = SlotLayout::plan([
            (Accumulator::Count, None, wide),
            (Accumulator::Sum, Some(0), wide),
            (Accumulator::Count, Some(1), wide),
            (Accumulator::Count, Some(0), wide),
        ]);
        // Rows, and two inputs of which one is summed.
        assert_eq!(
            layout.map(|layout| (layout.words, layout.inputs.len(), layout.aggregate_count())),
            Some((5, 2, 4))
        );
        assert!(SlotLayout::plan([(Accumulator::Min, Some(0), wide)]).is_none());
        assert!(SlotLayout::plan([(Accumulator::Sum, Some(0), SumWidth::Large)]).is_none());
        let sum = |argument| (Accumulator::Sum, Some(argument), wide);
        assert!(SlotLayout::plan((0..SLOT_INPUTS_MAX).map(sum)).is_some());
        assert!(SlotLayout::plan((0..=SLOT_INPUTS_MAX).map(sum)).is_none());
        assert!(SlotLayout::plan([(Accumulator::Count, None, wide); SLOT_OUTPUTS_MAX + 1]).is_none());
    }

    #[test]
    fn shares_have_all_inputs_and_no_more_cells_than_there_is_room_for() {
        let view = |validity| ColumnView { validity, ..ColumnView::default() };
        let mut inputs: Vec<SlotInput> = (0..8)
            .map(|place| SlotInput {
                input: view(place % 3),
                sum_word: place as u32 % 4,
                ..SlotInput::default()
            })
            .collect();
        for (cells_max, shares) in [(3, 6), (4, 4), (12, 1)] {
            assert_eq!(divide_inputs(&mut inputs, cells_max), shares, "{cells_max} cells");
            for share in 0..shares {
                let of_share = inputs.iter().filter(|input| u32::from(input.share) == share);
                let cells: Vec<u16> = of_share
                    .flat_map(|input| {
                        assert_eq!(input.null_cell != 0, input.input.validity != 0);
                        assert_eq!(input.sum_cell != 0, input.sum_word != 0);
                        [input.null_cell, input.sum_cell]
                    })
                    .filter(|cell| *cell != 0)
                    .collect();
                assert_eq!(cells, (1..=cells.len() as u16).collect::<Vec<_>>());
                assert!((cells.len() as u64) < cells_max);
            }
        }
        // Five and three would be as few shares.
        let mut sums = [SlotInput { sum_word: 1, ..SlotInput::default() }; 8];
        assert_eq!(divide_inputs(&mut sums, 6), 2);
        assert_eq!(sums.map(|input| input.share), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn six_slots_of_five_sums_are_one_share_of_which_each_thread_has_its_own() {
        let wide = SumWidth::Wide;
        let (sum, count) = (Accumulator::Sum, Accumulator::Count);
        // TPC-H's Q1: sums and averages of two columns share theirs, an average more, sums of two products, rows.
        let calls =
            [(sum, 0), (sum, 1), (sum, 2), (sum, 3), (sum, 0), (count, 0), (sum, 1), (count, 1), (sum, 4)];
        let calls = calls.map(|(accumulator, input)| (accumulator, Some(input), wide));
        let layout = SlotLayout::plan(calls.into_iter().chain([(count, Some(4), wide), (count, None, wide)]));
        let inputs = layout.unwrap().inputs.into_iter();
        let input = |InputPlace { null_word, sum_word, .. }| SlotInput {
            null_word,
            sum_word,
            ..SlotInput::default()
        };
        let mut inputs: Vec<SlotInput> = inputs.map(input).collect();
        assert_eq!(inputs.len(), 5);
        assert_eq!(divide_inputs(&mut inputs, SLOT_CELLS_MAX / (6 * PRIVATE_SLOT_THREADS)), 1);
    }

    #[test]
    fn slots_are_the_ways_to_choose_places() {
        let keys = [SlotKey::numbers(3), SlotKey { least: -5, value_count: 9, has_null: true }];
        assert_eq!((slot_count(&keys), strides(&keys)), (30, vec![10, 1]));
        assert_eq!(slot_count(&[]), 1);
        let all = SlotKey { least: i64::MIN, value_count: u64::MAX, has_null: true };
        assert_eq!(slot_count(&[all.clone(), all]), u64::MAX);
    }
}
