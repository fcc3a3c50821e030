//! Rows of a table added to slots: sums of products and counts, without columns between.

use bytemuck::Zeroable;
use pystachio_plan::{DataType, Result};

use super::{
    abi::{
        FOLD_COLUMNS_MAX, FOLD_FACTORS_MAX, FOLD_SUMS_MAX, FoldFactor, FoldInput, FoldKey, FoldSegments,
        SEGMENT_BLOCK_ROWS, SegmentSelection,
    },
    table::SegmentTable,
    test::SelectedRows,
};
use crate::{
    device::{CellType, Chunk, Kernel},
    operation::{Queue, SLOT_INPUTS_MAX, SLOT_KEYS_MAX, SlotKey, SlotLayout, Slots, slot_count},
};

/// Blocks of the kernel that keeps sums: as many as multiprocessors hold at once.
const FOLD_BLOCKS: u64 = 132 * 5;
const WARP_THREADS: u64 = 32;

/// `constant + coefficient * column`, of a column's number in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Added.
    pub constant: i64,
    /// Of the column.
    pub coefficient: i64,
    /// The column.
    pub column: usize,
}

/// What rows are folded into.
#[derive(Clone, Debug)]
pub struct Fold<'a> {
    /// Columns by whose values there are groups: integers, or codes.
    pub keys: &'a [usize],
    /// Of each argument of the layout, the factors of its product.
    pub arguments: &'a [Vec<Factor>],
    /// Aggregates of them.
    pub layout: &'a SlotLayout,
    /// The types of the keys' columns, those of codes aside.
    pub key_types: &'a [DataType],
    /// The types of partial results.
    pub partial_types: &'a [DataType],
}

impl Queue {
    /// The groups of the selected rows of a table, with partial results: keys, then aggregates; waits for their count. `None` if the table's
    /// columns, the number of groups or the size of addends forbid it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn fold_segments(
        &self,
        table: &SegmentTable,
        selected: Option<&SelectedRows>,
        fold: &Fold<'_>,
    ) -> Result<Option<Chunk>> {
        let Some(keys) = slot_keys(table, fold) else { return Ok(None) };
        let Some(mut arguments) = arguments_of(table, fold) else { return Ok(None) };
        if slot_count(&keys).saturating_mul(arguments.sum_count.into()) > FOLD_SUMS_MAX as u64 {
            return Ok(None);
        }
        let blocks = table.rows.block_count.div_ceil(FOLD_WARPS).clamp(1, FOLD_BLOCKS);
        let rows_of_warp = (table.rows.block_count / (blocks * FOLD_WARPS) + 1) * SEGMENT_BLOCK_ROWS;
        if !sums_fit(table, fold, rows_of_warp) {
            return Ok(None);
        }
        let mut slots = self.open_slots(fold.layout, keys)?;
        place_slots(table, fold, &mut slots, &mut arguments);
        arguments.rows = table.rows;
        arguments.selection = selected.map_or_else(SegmentSelection::default, SelectedRows::view);
        let columns = &arguments.columns[..arguments.column_count as usize];
        let bytes = || columns.iter().map(|column| table.column_bytes(*column as usize)).sum();
        self.launch_moving(Kernel::FoldSegments, blocks as u32, &arguments, bytes)?;
        let mut chunk = self.take_slots(fold.layout, &slots, fold.key_types, fold.partial_types)?;
        for (column, key) in chunk.columns.iter_mut().zip(fold.keys) {
            if let Some((entries, _)) = table.entries(*key) {
                *column = self.look_up_codes(entries, &column.values, chunk.row_count)?;
            }
        }
        Ok(Some(chunk))
    }
}

const FOLD_WARPS: u64 = Kernel::FoldSegments.block_threads() as u64 / WARP_THREADS;

/// The slots' keys, if every key has integers or codes of one dictionary.
fn slot_keys(table: &SegmentTable, fold: &Fold<'_>) -> Option<Vec<SlotKey>> {
    if fold.keys.len() > SLOT_KEYS_MAX {
        return None;
    }
    let key = |number: &usize| {
        let column = &table.columns[*number];
        if !table.is_testable(*number) {
            return None;
        }
        if let Some((_, entry_count)) = table.entries(*number) {
            // NULL has an entry, the last one.
            return Some(SlotKey::numbers(entry_count as u64 - u64::from(!column.has_nulls)));
        }
        let is_integer = matches!(column.cell_type, CellType::Int16 | CellType::Int32 | CellType::Int64);
        let (least, greatest) = column.bounds;
        let value_count = if least > greatest { 0 } else { greatest.abs_diff(least).checked_add(1)? };
        is_integer.then_some(SlotKey { least, value_count, has_null: column.has_nulls })
    };
    fold.keys.iter().map(key).collect()
}

/// The kernel's columns and inputs, without slots.
fn arguments_of(table: &SegmentTable, fold: &Fold<'_>) -> Option<FoldSegments> {
    let mut arguments = FoldSegments { sum_count: 1, ..FoldSegments::zeroed() };
    for key in fold.keys {
        column_number(&mut arguments, *key)?;
    }
    for (place, (argument, null_word, sum_word)) in fold.layout.inputs().enumerate() {
        let factors = fold.arguments.get(argument)?;
        if place == SLOT_INPUTS_MAX || factors.is_empty() || factors.len() > FOLD_FACTORS_MAX {
            return None;
        }
        let mut input =
            FoldInput { factor_count: factors.len() as u32, null_word, sum_word, ..FoldInput::zeroed() };
        let mut is_nullable = false;
        for (factor, target) in factors.iter().zip(&mut input.factors) {
            if !table.is_testable(factor.column) || table.entries(factor.column).is_some() {
                return None;
            }
            is_nullable |= table.columns[factor.column].has_nulls;
            let column = column_number(&mut arguments, factor.column)?;
            let Factor { constant, coefficient, .. } = *factor;
            *target = FoldFactor { constant, coefficient, column, reserved: 0 };
        }
        if is_nullable {
            input.null_sum = arguments.sum_count;
            arguments.sum_count += 1;
        }
        if sum_word != 0 {
            input.sum = arguments.sum_count;
            arguments.sum_count += 1;
        }
        if place > 0 {
            input.shared = shared_factors(&arguments.inputs[place - 1], &input);
        }
        arguments.inputs[place] = input;
        arguments.input_count += 1;
    }
    Some(arguments)
}

/// How many factors are all of another product's, which has a sum of its own: 0 if these are others.
fn shared_factors(before: &FoldInput, input: &FoldInput) -> u32 {
    let count = before.factor_count;
    let known = &before.factors[..count as usize];
    let continues = before.sum_word != 0 && count < input.factor_count && input.factors.starts_with(known);
    if continues { count } else { 0 }
}

/// The number of a column among the fold's, which gets one if it has none; `None` if there are too many.
fn column_number(arguments: &mut FoldSegments, column: usize) -> Option<u32> {
    let count = arguments.column_count as usize;
    if let Some(place) = arguments.columns[..count].iter().position(|known| *known == column as u32) {
        return Some(place as u32);
    }
    if count == FOLD_COLUMNS_MAX {
        return None;
    }
    arguments.columns[count] = column as u32;
    arguments.column_count += 1;
    Some(count as u32)
}

/// Gives the kernel's arguments their slots.
fn place_slots(table: &SegmentTable, fold: &Fold<'_>, slots: &mut Slots, arguments: &mut FoldSegments) {
    arguments.slots = slots.address();
    arguments.slot_count = slot_count(slots.keys());
    arguments.slot_words = fold.layout.words();
    arguments.key_count = fold.keys.len() as u32;
    let strides = slots.strides();
    for (number, key) in fold.keys.iter().enumerate() {
        let SlotKey { least, value_count, .. } = slots.keys()[number];
        let is_nullable = table.columns[*key].has_nulls;
        // Where NULLs go: behind the values, or to their entry.
        let place_count = match table.entries(*key) {
            Some(_) if is_nullable => value_count - 1,
            _ => value_count,
        };
        let column = arguments.columns.iter().position(|known| *known == *key as u32).unwrap_or(0) as u32;
        arguments.keys[number] = FoldKey { least, place_count, stride: strides[number], column, reserved: 0 };
        if is_nullable && table.entries(*key).is_none() {
            slots.note_nulls(number);
        }
    }
}

/// Whether no addend and no sum of so many of them leaves 64 bits.
fn sums_fit(table: &SegmentTable, fold: &Fold<'_>, row_count: u64) -> bool {
    let greatest = |factors: &Vec<Factor>| {
        factors.iter().try_fold(1i128, |product, factor| {
            let (least, greatest) = table.columns[factor.column].bounds;
            if least > greatest {
                return Some(product);
            }
            let value = |bound: i64| {
                (i128::from(factor.constant) + i128::from(factor.coefficient) * i128::from(bound)).abs()
            };
            product.checked_mul(value(least).max(value(greatest)).max(1))
        })
    };
    let fits = |factors: &Vec<Factor>| {
        let all = greatest(factors).and_then(|product| product.checked_mul(row_count.into()));
        all.is_some_and(|all| all <= i128::from(i64::MAX))
    };
    fold.layout
        .inputs()
        .filter(|(.., sum_word)| *sum_word != 0)
        .all(|(argument, ..)| fold.arguments.get(argument).is_some_and(fits))
}
