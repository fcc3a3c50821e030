//! Aggregates by slots, as long as the keys lie close enough together.
//!
//! The operator measures the keys of each chunk and does not rely on statistics: keys may be
//! computed. Footers only say how far slots may grow. Slots that may not grow move with the keys, if
//! those of a chunk lie close together, as in a table that is in their order: the groups so far go to
//! `groups.rs`. Chunks that do not fit into slots are grouped there, and the slots' groups are merged
//! with those at the end.
//!
//! Invariants: slots are a few times as many as rows at most, and have a claim. Those that would not hold
//! all expected keys leave the memory beyond their guarantee to the merge of their groups.

use std::ops::RangeInclusive;

use pystachio_plan::{DataType, Error, Result};

use crate::{
    device::{Chunk, Claim, Column},
    operation::{KeyRange, Queue, SlotKey, SlotLayout, Slots, slot_count},
};

/// Slots for each row so far: more would cost more than hashes do.
const SLOTS_PER_ROW_MAX: u64 = 4;
/// The same for slots that must grow, if footers bound the keys: then they grow once to all of
/// those.
const EXPECTED_SLOTS_PER_ROW_MAX: u64 = 16;
/// Slots that are allowed even for few rows.
const SLOTS_MIN: u64 = 4096;
/// Limit of memory for slots, as a multiple of the bytes of so few slots.
const TAKEN_PART: u64 = 2;
/// Slots that row numbers can address.
const SLOTS_MAX: u64 = 1 << 31;
/// Keys that slots did not fit are measured again after this many times the rows so far.
const MEASURE_GROWTH: u64 = 2;

/// Where a chunk's rows went.
pub(super) enum Added {
    /// Into slots.
    InSlots,
    /// The same, after the slots had to move: their groups until then, as partial results.
    Moved(Chunk),
    /// Nowhere.
    Nowhere,
}

/// Groups in slots.
pub(super) struct SlotGroups {
    layout: SlotLayout,
    key_type: DataType,
    /// Of each aggregate.
    partial_types: Vec<DataType>,
    claim: Claim,
    /// The range of keys, if known.
    expected: Option<RangeInclusive<i64>>,
    /// With the values that have slots.
    slots: Option<(Slots, RangeInclusive<i64>)>,
    /// Rows so far, in slots or not.
    row_count: u64,
    /// Fewer rows than this are not measured.
    measured_from: u64,
}

impl SlotGroups {
    /// No groups yet.
    pub(super) fn new(
        layout: SlotLayout,
        key_type: DataType,
        partial_types: Vec<DataType>,
        claim: Claim,
    ) -> Self {
        let (expected, slots) = (None, None);
        Self { layout, key_type, partial_types, claim, expected, slots, row_count: 0, measured_from: 0 }
    }

    /// The same, for keys that are likely to lie in a range.
    pub(super) fn expecting(self, keys: Option<RangeInclusive<i64>>) -> Self {
        Self { expected: keys, ..self }
    }

    /// Adds rows, unless their keys lie too far apart.
    pub(super) fn add(
        &mut self,
        queue: &Queue,
        key: &Column,
        arguments: &[Column],
        row_count: usize,
    ) -> Result<Added> {
        self.row_count += row_count as u64;
        if self.row_count < self.measured_from {
            return Ok(Added::Nowhere);
        }
        let mut left = None;
        let has_room = match queue.key_range(key, row_count)? {
            Some(KeyRange { least, greatest }) => {
                self.make_room(queue, least..=greatest)? || {
                    left = self.leave(queue, least..=greatest, row_count)?;
                    left.is_some() && self.make_room(queue, least..=greatest)?
                }
            }
            None => false,
        };
        let Some((slots, _)) = self.slots.as_mut().filter(|_| has_room) else {
            self.measured_from = self.row_count.saturating_mul(MEASURE_GROWTH);
            return match left {
                None => Ok(Added::Nowhere),
                Some(_) => Err(Error::internal("no room for slots where there was room for others")),
            };
        };
        let arguments: Vec<&Column> = arguments.iter().collect();
        queue.accumulate_slots(&self.layout, slots, std::slice::from_ref(key), &arguments, row_count)?;
        Ok(left.map_or(Added::InSlots, Added::Moved))
    }

    /// Gives up the slots for those of a chunk whose keys lie close together; returns the groups so far.
    fn leave(&mut self, queue: &Queue, keys: RangeInclusive<i64>, row_count: usize) -> Result<Option<Chunk>> {
        let is_close =
            key_count(&keys) <= (row_count as u64).saturating_mul(SLOTS_PER_ROW_MAX).min(SLOTS_MAX - 1);
        let has_room = |slots: &(Slots, RangeInclusive<i64>)| {
            self.bytes_of(&keys) <= self.bytes_of(&slots.1).max(self.claim.guaranteed_bytes())
        };
        if !is_close || !self.slots.as_ref().is_some_and(has_room) {
            return Ok(None);
        }
        let partial_types = self.partial_types.clone();
        self.take(queue, &partial_types)
    }

    fn bytes_of(&self, range: &RangeInclusive<i64>) -> u64 {
        let bytes = self.layout.bytes(&[slot_key(range)]);
        if key_count(range) <= SLOTS_MIN { bytes * (1 + TAKEN_PART) } else { bytes }
    }

    /// Makes slots for more keys. Returns whether there may be so many.
    fn make_room(&mut self, queue: &Queue, keys: RangeInclusive<i64>) -> Result<bool> {
        let known = self.slots.as_ref().map(|(_, known)| known.clone());
        let all = match &known {
            Some(known) => *known.start().min(keys.start())..=*known.end().max(keys.end()),
            None => keys,
        };
        if known.as_ref() == Some(&all) {
            return Ok(true);
        }
        let count_max = self.row_count.saturating_mul(SLOTS_PER_ROW_MAX).clamp(SLOTS_MIN, SLOTS_MAX);
        if key_count(&all) > count_max {
            return Ok(false);
        }
        let held = known.as_ref().map_or(0, |known| self.bytes_of(known));
        let expected_max = self.row_count.saturating_mul(EXPECTED_SLOTS_PER_ROW_MAX);
        let expected = self.expected.as_ref().filter(|_| known.is_some());
        let expected =
            expected.map(|expected| *expected.start().min(all.start())..=*expected.end().max(all.end()));
        let claim_of = |range: &RangeInclusive<i64>| held.saturating_add(self.bytes_of(range));
        let is_too_large = expected
            .as_ref()
            .is_some_and(|range| key_count(range) >= SLOTS_MAX || !self.claim.has_room(claim_of(range)));
        let claim_max = if is_too_large { self.claim.guaranteed_bytes() } else { u64::MAX };
        let ranges: Vec<_> = expected
            .filter(|range| key_count(range) <= expected_max.min(SLOTS_MAX - 1))
            .into_iter()
            .chain(ranges(all, known.as_ref()))
            .map(|range| (claim_of(&range), range))
            .collect();
        let claimed =
            ranges.into_iter().find(|(bytes, _)| *bytes <= claim_max && self.claim.try_resize(*bytes));
        let Some((_, range)) = claimed else { return Ok(false) };
        let bytes = self.bytes_of(&range);
        let slots = match self.slots.take() {
            Some((slots, _)) => queue.grow_slots(&self.layout, &slots, slot_key(&range))?,
            None => queue.open_slots(&self.layout, vec![slot_key(&range)])?,
        };
        self.slots = Some((slots, range));
        self.claim.try_resize(bytes);
        Ok(true)
    }

    /// The groups, in the types of `result_types`; `None` if there are none.
    pub(super) fn take(&mut self, queue: &Queue, result_types: &[DataType]) -> Result<Option<Chunk>> {
        let slots = self.slots.take();
        let key_types = std::slice::from_ref(&self.key_type);
        slots.map(|(slots, _)| queue.take_slots(&self.layout, &slots, key_types, result_types)).transpose()
    }
}

fn slot_key(values: &RangeInclusive<i64>) -> SlotKey {
    SlotKey { least: *values.start(), value_count: key_count(values), has_null: true }
}

/// Values of a range.
fn key_count(values: &RangeInclusive<i64>) -> u64 {
    values.end().abs_diff(*values.start()).saturating_add(1)
}

/// Ranges to make slots for, the preferred one first.
fn ranges(
    keys: RangeInclusive<i64>,
    known: Option<&RangeInclusive<i64>>,
) -> impl Iterator<Item = RangeInclusive<i64>> {
    let wider = widened(&keys, known);
    [wider, keys].into_iter().filter(|range| slot_count(&[slot_key(range)]) <= SLOTS_MAX)
}

/// A range with room for later keys: a little on both sides at first, and as much again on a side
/// that had to grow.
fn widened(keys: &RangeInclusive<i64>, known: Option<&RangeInclusive<i64>>) -> RangeInclusive<i64> {
    let count = i64::try_from(key_count(keys)).unwrap_or(i64::MAX);
    let room = |has_grown: bool| match known {
        None => count / 8,
        Some(_) if has_grown => count,
        Some(_) => 0,
    };
    let below = room(known.is_some_and(|known| keys.start() < known.start()));
    let above = room(known.is_some_and(|known| keys.end() > known.end()));
    keys.start().saturating_sub(below)..=keys.end().saturating_add(above)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::{
        device::{CellType, DeviceMemory, EmulatedPlatform},
        operation::{Accumulator, SumWidth},
    };

    const SUM: DataType = DataType::Decimal { precision: 38, scale: 0 };

    fn memory(bytes: u64) -> DeviceMemory {
        DeviceMemory::new(Arc::new(EmulatedPlatform::new()), bytes).open_account()
    }

    fn column(queue: &Queue, values: &[Option<i32>]) -> Column {
        let cells: Vec<i32> = values.iter().map(|value| value.unwrap_or(i32::MIN)).collect();
        let flags: Vec<u8> = values.iter().map(|value| value.is_some().into()).collect();
        Column {
            data_type: DataType::Int32,
            cell_type: CellType::Int32,
            values: queue.upload(&cells).unwrap(),
            validity: flags.contains(&0).then(|| queue.upload(&flags).unwrap()),
            strings: Vec::new(),
        }
    }

    fn groups(memory: &DeviceMemory) -> SlotGroups {
        // count(*), sum(a), count(b), count(a)
        let aggregates = [
            (Accumulator::Count, None, SumWidth::Wide),
            (Accumulator::Sum, Some(0), SumWidth::Wide),
            (Accumulator::Count, Some(1), SumWidth::Wide),
            (Accumulator::Count, Some(0), SumWidth::Wide),
        ];
        let layout = SlotLayout::plan(aggregates).unwrap();
        let claim = memory.claim(memory.bytes_max() / 2).unwrap();
        SlotGroups::new(layout, DataType::Int32, result_types().to_vec(), claim)
    }

    /// Rows whose keys are `first`, `first + step`, …, of which some are NULL, with two values.
    fn rows(first: i32, step: i32, count: i32) -> Vec<[Option<i32>; 3]> {
        let row = |number: i32| {
            let key = (number % 97 != 5).then_some(first + number * step);
            let a = (number % 7 != 0).then_some(if number % 2 == 0 { i32::MIN } else { number });
            [key, a, (number % 3 != 0).then_some(1)]
        };
        (0..count).map(row).collect()
    }

    fn result_types() -> [DataType; 4] {
        [DataType::Int64, SUM, DataType::Int64, DataType::Int64]
    }

    fn added(groups: &mut SlotGroups, queue: &Queue, rows: &[[Option<i32>; 3]]) -> Added {
        let columns: Vec<Column> = (0..3)
            .map(|place| column(queue, &rows.iter().map(|row| row[place]).collect::<Vec<_>>()))
            .collect();
        groups.add(queue, &columns[0], &columns[1..], rows.len()).unwrap()
    }

    fn add(groups: &mut SlotGroups, queue: &Queue, rows: &[[Option<i32>; 3]]) -> bool {
        matches!(added(groups, queue, rows), Added::InSlots)
    }

    type Results = BTreeMap<Option<i32>, (i64, Option<i128>, i64, i64)>;

    fn expected(rows: &[[Option<i32>; 3]]) -> Results {
        let mut results = Results::new();
        for [key, a, b] in rows {
            let entry = results.entry(*key).or_default();
            entry.0 += 1;
            entry.1 = entry.1.into_iter().chain(a.map(i128::from)).reduce(|sum, value| sum + value);
            entry.2 += i64::from(b.is_some());
            entry.3 += i64::from(a.is_some());
        }
        results
    }

    fn results(mut groups: SlotGroups, queue: &Queue) -> Results {
        results_of(groups.take(queue, &result_types()).unwrap().unwrap(), queue)
    }

    fn results_of(chunk: Chunk, queue: &Queue) -> Results {
        let valid = |column: usize| -> Vec<u8> {
            let flags = chunk.columns[column].validity.as_ref();
            flags.map_or(vec![1; chunk.row_count], |flags| queue.download(flags, chunk.row_count).unwrap())
        };
        let numbers = |column: usize| -> Vec<i64> {
            queue.download(&chunk.columns[column].values, chunk.row_count).unwrap()
        };
        let keys: Vec<i32> = queue.download(&chunk.columns[0].values, chunk.row_count).unwrap();
        let sums: Vec<i128> = queue.download(&chunk.columns[2].values, chunk.row_count).unwrap();
        let (key_flags, sum_flags) = (valid(0), valid(2));
        let (counts, b_counts, a_counts) = (numbers(1), numbers(3), numbers(4));
        let row = |row: usize| {
            let sum = (sum_flags[row] != 0).then_some(sums[row]);
            let key = (key_flags[row] != 0).then_some(keys[row]);
            (key, (counts[row], sum, b_counts[row], a_counts[row]))
        };
        (0..chunk.row_count).map(row).collect()
    }

    #[test]
    fn slots_grow_with_the_keys_and_give_every_group() {
        let memory = memory(1 << 30);
        let queue = Queue::new(&memory).unwrap();
        let mut groups = groups(&memory);
        let mut all = Vec::new();
        // Ascending, then below what is known, then negative, and the same keys again.
        for (first, step) in [(20_000, 1), (25_000, 2), (10_000, 3), (-8_000, 1), (20_000, 1)] {
            let rows = rows(first, step, 5_000);
            assert!(add(&mut groups, &queue, &rows), "keys from {first}");
            all.extend(rows);
        }
        assert_eq!(results(groups, &queue), expected(&all));
    }

    #[test]
    fn keys_that_lie_far_apart_are_refused_until_there_are_more_rows() {
        let memory = memory(1 << 30);
        let queue = Queue::new(&memory).unwrap();
        let mut groups = groups(&memory);
        let chunk = rows(0, 16, 2_000);
        // 32,000 keys: four for each row there are with the fourth chunk, which is also measured again.
        let taken: Vec<bool> = (0..5).map(|_| add(&mut groups, &queue, &chunk)).collect();
        assert_eq!(taken, [false, false, false, true, true]);
        assert!(!add(&mut groups, &queue, &rows(1 << 30, 1 << 10, 2_000)));
        assert_eq!(results(groups, &queue), expected(&[chunk.clone(), chunk].concat()));
        // Few slots cost nothing, however few the rows are.
        let mut groups = self::groups(&memory);
        let few = rows(0, 400, 10);
        assert!(add(&mut groups, &queue, &few));
        assert_eq!(results(groups, &queue), expected(&few));
    }

    #[test]
    fn slots_that_have_to_grow_have_room_for_what_is_expected() {
        let memory = memory(1 << 30);
        let queue = Queue::new(&memory).unwrap();
        let range_of = |groups: &SlotGroups| groups.slots.as_ref().map(|(_, range)| range.clone());
        // As many as the rows so far allow, and more.
        for (greatest, is_expected) in [(60_000, true), (200_000, false)] {
            let mut groups = groups(&memory).expecting(Some(1..=greatest));
            let (first, second) = (rows(1, 1, 5_000), rows(5_001, 1, 5_000));
            assert!(add(&mut groups, &queue, &first));
            assert!(*range_of(&groups).unwrap().end() < 6_000);
            assert!(add(&mut groups, &queue, &second));
            assert_eq!(*range_of(&groups).unwrap().end() >= greatest, is_expected);
            assert_eq!(results(groups, &queue), expected(&[first, second].concat()));
        }
    }

    #[test]
    fn slots_that_may_not_grow_move_with_the_keys() {
        let memory = memory(1 << 30);
        let queue = Queue::new(&memory).unwrap();
        let mut groups = groups(&memory);
        // Of the second chunk some keys are the last ones' of the first.
        let chunks =
            [rows(0, 1, 3_000), rows(2_900, 1, 3_000), rows(1 << 30, 1, 3_000), rows(1 << 30, 2, 3_000)];
        assert!(add(&mut groups, &queue, &chunks[0]));
        assert!(add(&mut groups, &queue, &chunks[1]));
        let Added::Moved(left) = added(&mut groups, &queue, &chunks[2]) else { panic!("slots did not move") };
        assert_eq!(results_of(left, &queue), expected(&chunks[..2].concat()));
        assert!(add(&mut groups, &queue, &chunks[3]));
        assert_eq!(results(groups, &queue), expected(&chunks[2..].concat()));
    }

    #[test]
    fn slots_that_would_not_hold_all_keys_keep_to_their_guarantee() {
        let memory = memory(1 << 30);
        let queue = Queue::new(&memory).unwrap();
        // A guarantee of less than the slots of two chunks, and more keys than row numbers.
        let layout = groups(&memory).layout;
        let guaranteed = layout.bytes(&[slot_key(&(0..=4_999))]);
        let claim = memory.claim(guaranteed).unwrap();
        let mut groups = SlotGroups::new(layout, DataType::Int32, result_types().to_vec(), claim)
            .expecting(Some(0..=i64::from(u32::MAX)));
        let chunks = [rows(0, 1, 4_500), rows(4_500, 1, 4_500), rows(9_000, 1, 4_500)];
        assert!(add(&mut groups, &queue, &chunks[0]));
        for (place, chunk) in chunks.iter().enumerate().skip(1) {
            let Added::Moved(left) = added(&mut groups, &queue, chunk) else { panic!("slots grew") };
            assert_eq!(results_of(left, &queue), expected(&chunks[place - 1]));
        }
        assert_eq!(results(groups, &queue), expected(&chunks[2]));
    }

    #[test]
    fn few_slots_and_fewer_give_every_group() {
        let memory = memory(1 << 30);
        let queue = Queue::new(&memory).unwrap();
        // With the slot of NULL: sizes that a thread keeps, that a block keeps, and that neither
        // does; each with a first chunk of another size.
        for keys in [1, 11, 12, 1_023, 1_024] {
            let mut groups = self::groups(&memory);
            let chunks = [3_000, 10_000].map(|count| {
                let row = |mut row: [Option<i32>; 3]| {
                    row[0] = row[0].map(|key| key % keys - 3);
                    row
                };
                rows(0, 1, count).into_iter().map(row).collect::<Vec<_>>()
            });
            for chunk in &chunks {
                assert!(add(&mut groups, &queue, chunk), "{keys} keys");
            }
            assert_eq!(results(groups, &queue), expected(&chunks.concat()), "{keys} keys");
        }
    }

    #[test]
    fn without_a_claim_there_are_no_slots() {
        let memory = memory(100 << 10);
        let queue = Queue::new(&memory).unwrap();
        let mut groups = groups(&memory);
        assert!(!add(&mut groups, &queue, &rows(0, 1, 5_000)));
    }

    #[test]
    fn no_range_has_more_slots_than_there_may_be() {
        let most = 0..=(SLOTS_MAX as i64 - 2);
        assert_eq!(ranges(most.clone(), Some(&(10..=20))).collect::<Vec<_>>(), [most]);
        let grown = 0..=(SLOTS_MAX as i64 / 2);
        // As much again above would be one too many.
        assert_eq!(ranges(grown.clone(), Some(&(0..=20))).collect::<Vec<_>>(), [grown]);
        assert_eq!(ranges(0..=99, Some(&(0..=9))).collect::<Vec<_>>(), [0..=199, 0..=99]);
    }

    #[test]
    fn ranges_at_the_ends_of_the_type_do_not_wrap() {
        let ends = (i64::MIN..=i64::MAX, i64::MAX - 9..=i64::MAX);
        assert_eq!(key_count(&ends.0), u64::MAX);
        assert_eq!(widened(&ends.0, None), ends.0);
        assert_eq!(widened(&ends.1, None), i64::MAX - 10..=i64::MAX);
        assert_eq!(widened(&ends.1, Some(&(i64::MAX - 3..=i64::MAX - 1))), i64::MAX - 19..=i64::MAX);
    }
}
