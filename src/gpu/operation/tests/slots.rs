//! Sums and counts in slots against plain loops, with addends near the ends of their types: the
//! 64-bit sums of blocks and threads overflow.

use super::*;

/// A slot's result for an input: rows in which it is not NULL, and their sum.
type Taken = (i64, Option<i128>);

/// Addends of a column.
#[derive(Clone, Copy, Debug)]
struct Addends {
    cell_type: CellType,
    /// How far below one of the ends a value may be, and above it by one less.
    spread: u64,
    ends: &'static [i128],
    has_nulls: bool,
}

const MIN: i128 = i64::MIN as i128;
const MAX: i128 = i64::MAX as i128;
const KINDS: [Addends; 7] = [
    Addends { cell_type: CellType::Int64, spread: 9, ends: &[MIN + 9, MAX - 8], has_nulls: true },
    Addends { cell_type: CellType::Int64, spread: 1 << 20, ends: &[MAX - (1 << 20)], has_nulls: false },
    Addends { cell_type: CellType::Int64, spread: 3, ends: &[MIN + 3], has_nulls: false },
    Addends { cell_type: CellType::Int32, spread: 1 << 30, ends: &[-(1 << 30), 1 << 30], has_nulls: true },
    Addends { cell_type: CellType::Int16, spread: 300, ends: &[0], has_nulls: false },
    // Around the limits of 64 bits, and far beyond.
    Addends { cell_type: CellType::Int128, spread: 3, ends: &[MIN, MAX, -1, 1], has_nulls: true },
    Addends {
        cell_type: CellType::Int128,
        spread: 1 << 31,
        ends: &[-(1 << 89), 1 << 89, -1, 1 << 62, -(1 << 63)],
        has_nulls: false,
    },
];

impl Addends {
    fn values(&self, count: usize, source: &mut Numbers) -> Vec<Option<i128>> {
        let value = |_| {
            let end = self.ends[source.next(self.ends.len() as u64) as usize];
            let value = end + i128::from(source.next(2 * self.spread)) - i128::from(self.spread);
            let is_null = self.has_nulls && source.next(4) == 0;
            (!is_null).then_some(value)
        };
        (0..count).map(value).collect()
    }

    fn column(&self, queue: &Queue, values: &[Option<i128>]) -> Column {
        // The content of a NULL is not read.
        let cells = values.iter().map(|value| value.unwrap_or(-1));
        let (data_type, buffer) = match self.cell_type {
            CellType::Int16 => {
                let cells: Vec<i16> = cells.map(|cell| cell.try_into().unwrap()).collect();
                (DataType::Int16, queue.upload(&cells))
            }
            CellType::Int32 => {
                let cells: Vec<i32> = cells.map(|cell| cell.try_into().unwrap_or(i32::MAX)).collect();
                (DataType::Int32, queue.upload(&cells))
            }
            CellType::Int64 => {
                let cells: Vec<i64> = cells.map(|cell| cell.try_into().unwrap()).collect();
                (DataType::Int64, queue.upload(&cells))
            }
            _ => (decimal(27), queue.upload(&cells.collect::<Vec<_>>())),
        };
        let column = Column {
            data_type,
            cell_type: self.cell_type,
            values: buffer.unwrap(),
            validity: validity(queue, values),
            strings: Vec::new(),
        };
        queue.poison_nulls(&column, values.len());
        column
    }
}

/// Some rows: a key's values a column, and the addends'.
struct SlotRows {
    keys: Vec<Vec<Option<i64>>>,
    addends: Vec<Vec<Option<i128>>>,
    row_count: usize,
}

impl SlotRows {
    /// Rows of `key_count` keys of so many values each. Equal keys may follow one another.
    fn random(
        kinds: &[Addends],
        key_count: usize,
        values: u64,
        row_count: usize,
        source: &mut Numbers,
    ) -> Self {
        let mut key = || {
            let is_clustered = source.next(2) == 0;
            let mut value = 0;
            let next = |_| {
                if !is_clustered || source.next(3) == 0 {
                    value = source.next(values);
                }
                (source.next(9) > 0).then_some(value as i64 - 2)
            };
            (0..row_count).map(next).collect()
        };
        let keys = (0..key_count).map(|_| key()).collect();
        Self { keys, addends: kinds.iter().map(|kind| kind.values(row_count, source)).collect(), row_count }
    }

    fn add(&self, results: &mut BTreeMap<Vec<Option<i64>>, (i64, Vec<Taken>)>) {
        for row in 0..self.row_count {
            let key = self.keys.iter().map(|key| key[row]).collect();
            let (rows, taken) =
                results.entry(key).or_insert_with(|| (0, vec![(0, None); self.addends.len()]));
            *rows += 1;
            for ((count, sum), addends) in taken.iter_mut().zip(&self.addends) {
                if let Some(addend) = addends[row] {
                    *count += 1;
                    *sum = Some(sum.unwrap_or(0) + addend);
                }
            }
        }
    }
}

/// Adds some launches' rows to slots and compares the results with plain sums.
fn check(kinds: &[Addends], key_count: usize, values: u64, row_counts: &[usize], source: &mut Numbers) {
    let queue = queue();
    let wide = SumWidth::Wide;
    let calls = (0..kinds.len())
        .flat_map(|input| [(Accumulator::Count, Some(input), wide), (Accumulator::Sum, Some(input), wide)]);
    let layout = SlotLayout::plan([(Accumulator::Count, None, wide)].into_iter().chain(calls)).unwrap();
    let key = SlotKey { least: -2, value_count: values, has_null: true };
    let mut slots = queue.open_slots(&layout, vec![key; key_count]).unwrap();
    let mut expected = BTreeMap::new();
    for row_count in row_counts {
        let rows = SlotRows::random(kinds, key_count, values, *row_count, source);
        rows.add(&mut expected);
        let keys: Vec<Column> = rows.keys.iter().map(|values| numbers(&queue, values)).collect();
        let columns = kinds.iter().zip(&rows.addends).map(|(kind, values)| kind.column(&queue, values));
        let columns: Vec<Column> = columns.collect();
        let arguments: Vec<&Column> = columns.iter().collect();
        queue.accumulate_slots(&layout, &mut slots, &keys, &arguments, *row_count).unwrap();
    }
    let types: Vec<DataType> = [DataType::Int64]
        .into_iter()
        .chain(kinds.iter().flat_map(|_| [DataType::Int64, decimal(38)]))
        .collect();
    let chunk = queue.take_slots(&layout, &slots, &vec![DataType::Int64; key_count], &types).unwrap();
    let column = |place: usize| read_numbers(&queue, &chunk.columns[place], chunk.row_count);
    let keys: Vec<_> = (0..key_count).map(column).collect();
    let rows = column(key_count);
    let sums_of = |place: usize| -> Vec<Option<i128>> {
        let column = &chunk.columns[place];
        let cells: Vec<i128> = queue.download(&column.values, chunk.row_count).unwrap();
        let flags: Vec<u8> = queue.download(column.validity.as_ref().unwrap(), chunk.row_count).unwrap();
        cells.into_iter().zip(flags).map(|(cell, flag)| (flag != 0).then_some(cell)).collect()
    };
    let first = key_count + 1;
    let inputs: Vec<_> =
        (0..kinds.len()).map(|input| (column(first + 2 * input), sums_of(first + 2 * input + 1))).collect();
    let found: BTreeMap<_, _> = (0..chunk.row_count)
        .map(|row| {
            let taken = inputs.iter().map(|(counts, sums)| (counts[row].unwrap(), sums[row])).collect();
            (keys.iter().map(|key| key[row]).collect(), (rows[row].unwrap(), taken))
        })
        .collect();
    assert!(found == expected, "{key_count} keys of {values} values, {row_counts:?} rows, {kinds:?}");
}

#[test]
fn sums_of_addends_at_the_ends_of_their_types_are_exact() {
    let mut source = Numbers(SEED);
    check(&KINDS, 0, 1, &[1, 4_000, 1_023], &mut source);
    // With the slot of NULL: as many as a thread keeps, one more, as many as a block keeps in
    // copies and without, and more.
    for values in [1, 3, 11, 12, 40, 142, 1_023, 1_024, 3_000] {
        check(&KINDS, 1, values, &[3_000, 2_049], &mut source);
    }
    for values in [1, 2, 9, 31, 50] {
        check(&KINDS, 2, values, &[2_000], &mut source);
    }
}

#[test]
fn sums_of_each_kind_alone_are_exact() {
    let mut source = Numbers(SEED ^ 1);
    for kind in KINDS {
        for values in [5, 60, 2_000] {
            check(&[kind], 1, values, &[5_000], &mut source);
        }
    }
}

#[test]
fn blocks_that_go_on_to_further_rows_add_all_of_them() {
    let mut source = Numbers(SEED ^ 2);
    // More than all blocks have at once.
    check(&KINDS[..1], 0, 1, &[900_000], &mut source);
    check(&KINDS[1..2], 1, 100, &[900_000], &mut source);
}

#[test]
fn no_rows_have_no_groups_and_one_without_keys() {
    let queue = queue();
    let input = numbers(&queue, &[]);
    for (keys, group_count) in [(vec![numbers(&queue, &[])], 0), (Vec::new(), 1)] {
        let grouping = queue.group(&keys, 0, 0).unwrap();
        assert_eq!(grouping.group_count, group_count);
        let sums = accumulate(&queue, &grouping, Accumulator::Sum, &input, &DataType::Int64).unwrap();
        assert_eq!(read_numbers(&queue, &sums, group_count), vec![None; group_count]);
    }
}
