//! Packing and unpacking returns the values.

use super::*;
use crate::operation::{CellRange, PackRange, PackedForm, Packing, UnpackRange};

/// A column of a cell type with these values, those of NULLs apart.
fn integers(queue: &Queue, cell_type: CellType, values: &[Option<i128>]) -> Column {
    let data_type = match cell_type {
        CellType::Bool => DataType::Bool,
        CellType::Int16 => DataType::Int16,
        CellType::Int32 => DataType::Date,
        CellType::Int64 => DataType::Timestamp,
        CellType::Int128 => decimal(38),
        _ => decimal(60),
    };
    let cell_bytes = cell_type.bytes() as usize;
    let cells: Vec<u8> = values
        .iter()
        .flat_map(|value| {
            let value = value.unwrap_or(0);
            let sign = if value < 0 { 0xff } else { 0 };
            value.to_le_bytes().into_iter().chain([sign; 16]).take(cell_bytes)
        })
        .collect();
    let has_null = values.iter().any(Option::is_none);
    let column = Column {
        data_type,
        cell_type,
        values: queue.upload(&cells).unwrap(),
        validity: if has_null { validity(queue, values) } else { None },
        strings: Vec::new(),
    };
    queue.poison_nulls(&column, values.len());
    column
}

fn read(queue: &Queue, cells: &crate::device::Buffer, cell_bytes: usize, count: usize) -> Vec<Vec<u8>> {
    let cells: Vec<u8> = queue.download(cells, cell_bytes * count).unwrap();
    cells.chunks(cell_bytes).map(<[u8]>::to_vec).collect()
}

/// So many values from one of two on, of which some are NULL where they may be: the ends are among them.
fn between(least: i128, greatest: i128, count: usize, nulls: bool) -> Vec<Option<i128>> {
    let mut numbers = Numbers(SEED ^ count as u64);
    let mut value = |row: usize| match row {
        0 => Some(least),
        1 => Some(greatest),
        _ if nulls && numbers.next(3) == 0 => None,
        _ => Some(least + i128::from(numbers.next(1 << 31)) % (greatest - least + 1)),
    };
    (0..count).map(&mut value).collect()
}

/// The rows of a column from one on.
fn range_of(column: &Column, first: usize, count: usize) -> CellRange {
    CellRange {
        cells: column.values.address() + first as u64 * u64::from(column.cell_type.bytes()),
        validity: column.validity.as_ref().map(|validity| validity.address() + first as u64),
        row_count: (count - first) as u64,
        cell_type: column.cell_type,
    }
}

/// Bits of the distances of values.
fn width_of(values: &[Option<i128>]) -> u64 {
    let values = || values.iter().copied().flatten();
    let distance = values().max().unwrap_or(0) - values().min().unwrap_or(0);
    u64::from(i128::BITS - distance.leading_zeros())
}

#[test]
fn packings_are_as_narrow_as_values_allow_and_unpack_to_what_was() {
    let (least, greatest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let (short, int) = (i128::from(i16::MIN), i128::from(i32::MIN));
    let wide = i128::MAX / 3;
    // Whether packing pays for many rows.
    let cases: [(CellType, i128, i128, bool); 26] = [
        (CellType::Bool, 1, 1, true),
        (CellType::Bool, 0, 1, true),
        (CellType::Int16, -7, -7, true),
        (CellType::Int16, short, short + 255, true),
        (CellType::Int16, 0, 0x1fff, true),
        (CellType::Int16, 0, 0x7fff, false),
        (CellType::Int32, int, int + 100, true),
        (CellType::Int32, -10, 246, true),
        (CellType::Int32, int, -int - 1, false),
        (CellType::Int64, 1 << 60, 1 << 60, true),
        (CellType::Int64, greatest - 255, greatest, true),
        (CellType::Int64, least, least + 256, true),
        (CellType::Int64, -1, 65535, true),
        (CellType::Int64, 0, 0x1_0000_0000, true),
        (CellType::Int64, least, least + (1 << 54), true),
        // Most lie near the least, so that deltas are few bits.
        (CellType::Int64, least, greatest, true),
        (CellType::Int128, 5, 5, true),
        (CellType::Int128, -1, 0xffff_ffff, true),
        (CellType::Int128, least, greatest, true),
        (CellType::Int128, least - 1, least, false),
        (CellType::Int128, wide, wide, false),
        (CellType::Int256, -3, 200, true),
        (CellType::Int256, greatest - 70_000, greatest, true),
        (CellType::Int256, least, greatest, true),
        (CellType::Int256, 0, greatest + 1, false),
        (CellType::Int256, -wide, -wide, false),
    ];
    let queue = queue();
    for nulls in [false, true] {
        for count in [3, 32, 300, 1024, 1025, 5000] {
            let values: Vec<_> = cases
                .iter()
                .map(|(_, least, greatest, _)| between(*least, *greatest, count, nulls))
                .collect();
            let columns: Vec<Column> = cases
                .iter()
                .zip(&values)
                .map(|((cell_type, ..), values)| integers(&queue, *cell_type, values))
                .collect();
            for first in [0, 1, count / 2] {
                let ranges: Vec<CellRange> =
                    columns.iter().map(|column| range_of(column, first, count)).collect();
                let packings = queue.measure_packings(&ranges).unwrap();
                for ((case, values), packing) in cases.iter().zip(&values).zip(&packings) {
                    let (cell_type, least, greatest, is_worth) = *case;
                    let name =
                        format!("{cell_type:?} from {least} to {greatest}, {first}..{count}, nulls={nulls}");
                    // The least and the greatest values are among them.
                    let is_many = count > 100 && first == 0 && !nulls;
                    assert!(!is_many || packing.is_some() == is_worth, "{name}: {packing:?}");
                    let width = width_of(&values[first..]);
                    assert!(
                        packing.is_none_or(|packing| packing.width_bits() <= width),
                        "{name}: {packing:?}"
                    );
                }
                check_unpacked(&queue, (&columns, &ranges), &packings, (first, count));
            }
        }
    }
}

/// Ranges that are packed at once unpack to the columns' cells, and nothing is written beside
/// either. The words of equal values are equal, whatever the cells of NULLs are.
fn check_unpacked(
    queue: &Queue,
    (columns, ranges): (&[Column], &[CellRange]),
    packings: &[Option<Packing>],
    (first, count): (usize, usize),
) {
    let packed: Vec<(&Column, CellRange, Packing)> = columns
        .iter()
        .zip(ranges)
        .zip(packings)
        .filter_map(|((column, range), packing)| Some((column, *range, (*packing)?)))
        .collect();
    let room = |packing: &Packing| packing.bytes((count - first) as u64) as usize + 8;
    let words: Vec<_> = packed
        .iter()
        .map(|(_, _, packing)| queue.allocate_filled::<u8>(room(packing) as u64, 0xa5).unwrap())
        .collect();
    let pack = |((_, source, packing), words): (&(&Column, CellRange, Packing), &crate::device::Buffer)| {
        PackRange { source: *source, packing: *packing, target: words.address() }
    };
    queue.pack(&packed.iter().zip(&words).map(pack).collect::<Vec<_>>()).unwrap();
    let cells: Vec<_> = packed
        .iter()
        .map(|(column, ..)| {
            let bytes = u64::from(column.cell_type.bytes()) * (count - first + 2) as u64;
            queue.allocate_filled::<u8>(bytes, 0xa5).unwrap()
        })
        .collect();
    let unpack = |(((column, source, packing), words), cells): (
        (&(&Column, CellRange, Packing), &crate::device::Buffer),
        &crate::device::Buffer,
    )| UnpackRange {
        source: words.address(),
        packing: *packing,
        target: cells.address() + u64::from(column.cell_type.bytes()),
        row_count: source.row_count,
        cell_type: column.cell_type,
    };
    queue.unpack(&packed.iter().zip(&words).zip(&cells).map(unpack).collect::<Vec<_>>()).unwrap();
    for (((column, _, packing), words), cells) in packed.iter().zip(&words).zip(&cells) {
        let written: Vec<u8> = queue.download(words, room(packing)).unwrap();
        assert!(written.ends_with(&[0xa5; 8]), "{packing:?}");
        let cell_bytes = column.cell_type.bytes() as usize;
        let is_valid: Vec<u8> = match &column.validity {
            Some(validity) => queue.download(validity, count).unwrap(),
            None => vec![1; count],
        };
        let expected = read(queue, &column.values, cell_bytes, count);
        let cells = read(queue, cells, cell_bytes, count - first + 2);
        let beside = vec![0xa5; cell_bytes];
        assert_eq!((&cells[0], &cells[1 + count - first]), (&beside, &beside), "{packing:?}");
        for row in (first..count).filter(|row| is_valid[*row] != 0) {
            assert_eq!(
                cells[1 + row - first],
                expected[row],
                "row {row} of {:?}, {packing:?}",
                column.cell_type
            );
        }
    }
}

#[test]
fn nulls_have_no_part_in_what_is_packed() {
    let queue = queue();
    for cell_type in [CellType::Int16, CellType::Int32, CellType::Int64, CellType::Int128, CellType::Int256] {
        let none = integers(&queue, cell_type, &[None; 50]);
        let few: Vec<Option<i128>> =
            (0..50).map(|row| (row % 3 == 0).then(|| i128::from(row % 12) - 3)).collect();
        let few = integers(&queue, cell_type, &few);
        let ranges = [range_of(&none, 0, 50), range_of(&few, 0, 50)];
        let packings = queue.measure_packings(&ranges).unwrap();
        assert_eq!(
            packings,
            [(0, 0), (-3, 4)].map(|(base, width)| Packing::new(
                PackedForm::Distances,
                base,
                width,
                cell_type
            )),
            "{cell_type:?}"
        );
        let words = queue.allocate::<u32>(7).unwrap();
        let pack = PackRange { source: ranges[1], packing: packings[1].unwrap(), target: words.address() };
        queue.pack(&[pack]).unwrap();
        let words: Vec<u32> = queue.download(&words, 7).unwrap();
        let distance = |row: usize| words[row / 8] >> (row % 8 * 4) & 0xf;
        for row in 0..56 {
            let expected = if row < 50 && row % 3 == 0 { row as u32 % 12 } else { 0 };
            assert_eq!(distance(row), expected, "row {row} of {cell_type:?}");
        }
    }
}

#[test]
fn more_ranges_than_a_launch_takes_are_each_their_own() {
    let queue = queue();
    let columns: Vec<Column> = (0..130)
        .map(|number| {
            let value = |row: i64| Some(number + row * number % 100);
            numbers(&queue, &(0..40).map(value).collect::<Vec<_>>())
        })
        .collect();
    let mut ranges: Vec<CellRange> = columns.iter().map(|column| range_of(column, 0, 40)).collect();
    let packings = queue.measure_packings(&ranges).unwrap();
    assert!(packings.iter().all(Option::is_some));
    check_unpacked(&queue, (&columns, &ranges), &packings, (0, 40));
    // One of no rows between them.
    ranges.insert(70, CellRange { row_count: 0, ..ranges[0] });
    let with_none = queue.measure_packings(&ranges).unwrap();
    assert_eq!((&with_none[..70], with_none[70], &with_none[71..]), (&packings[..70], None, &packings[70..]));
}

#[test]
fn a_packing_is_of_bits_that_values_have_and_of_a_base_that_is_a_value() {
    let widths = |cell_type| {
        (0..200).filter(|width| Packing::new(PackedForm::Distances, 0, *width, cell_type).is_some()).count()
    };
    let integers = [CellType::Bool, CellType::Int16, CellType::Int32, CellType::Int64, CellType::Int256];
    assert_eq!(integers.map(widths), [2, 17, 33, 65, 65]);
    let base = |base, cell_type| Packing::new(PackedForm::Distances, base, 0, cell_type).is_some();
    let (short, int) = (i64::from(i16::MAX), i64::from(i32::MIN));
    assert_eq!([0, 1, 2, -1].map(|value| base(value, CellType::Bool)), [true, true, false, false]);
    assert_eq!([short, short + 1].map(|value| base(value, CellType::Int16)), [true, false]);
    assert_eq!([int, int - 1].map(|value| base(value, CellType::Int32)), [true, false]);
    for cell_type in
        [CellType::Float64, CellType::Float32, CellType::String, CellType::Bytes16, CellType::Interval]
    {
        assert!(!base(0, cell_type), "{cell_type:?}");
        assert!(Packing::new(PackedForm::Deltas, 0, 0, cell_type).is_none(), "{cell_type:?}");
    }
}

/// Values that are each the previous one plus a generated step, wrapping; every fourth is NULL if
/// some may be.
fn steps(
    count: usize,
    nulls: bool,
    first: i64,
    mut step: impl FnMut(&mut Numbers) -> i64,
) -> Vec<Option<i128>> {
    let mut numbers = Numbers(SEED ^ count as u64);
    let mut value = first;
    let mut next = |_| {
        value = value.wrapping_add(step(&mut numbers));
        (!nulls || numbers.next(4) > 0).then_some(i128::from(value))
    };
    (0..count).map(&mut next).collect()
}

#[test]
fn values_that_are_near_one_another_are_packed_as_deltas_and_unpack_to_what_was() {
    let queue = queue();
    for nulls in [false, true] {
        for count in [1, 2, 127, 128, 129, 1023, 1024, 1025, 5000] {
            let columns = [
                // Keys, each a few more than the one before; the same downwards; far from 0, over the end of what 64 bits have.
                steps(count, nulls, 0, |numbers| numbers.next(8) as i64),
                steps(count, nulls, 1 << 50, |numbers| -(numbers.next(100) as i64)),
                steps(count, nulls, i64::MAX - 1000, |numbers| numbers.next(4) as i64),
                // Steps of one length.
                steps(count, nulls, i64::MIN, |_| 1 << 40),
                // Steps that are far, there and back.
                steps(count, nulls, 0, |numbers| if numbers.next(2) == 0 { i64::MIN } else { i64::MAX }),
            ];
            let columns: Vec<Column> =
                columns.iter().map(|values| integers(&queue, CellType::Int64, values)).collect();
            for first in [0, count / 3] {
                let ranges: Vec<CellRange> =
                    columns.iter().map(|column| range_of(column, first, count)).collect();
                let packings = queue.measure_packings(&ranges).unwrap();
                let forms: Vec<Option<PackedForm>> =
                    packings.iter().map(|packing| packing.map(Packing::form)).collect();
                if count - first > 1000 {
                    let deltas = Some(PackedForm::Deltas);
                    assert_eq!(forms[..3], [deltas; 3], "{first}..{count}, nulls={nulls}");
                    assert!(forms[3] == deltas || nulls, "{first}..{count}");
                }
                check_unpacked(&queue, (&columns, &ranges), &packings, (first, count));
            }
        }
    }
}

#[test]
fn deltas_have_as_many_bits_as_the_greatest_needs_beyond_the_least() {
    let queue = queue();
    let values: Vec<Option<i128>> = (0..1000).map(|row| Some(1_000_000 * row + row % 3)).collect();
    let column = integers(&queue, CellType::Int64, &values);
    let range = range_of(&column, 0, 1000);
    let packing = queue.measure_packings(&[range]).unwrap()[0].unwrap();
    // 999,998 or 1,000,001: two bits a row, and the first value of each 128.
    assert_eq!(Some(packing), Packing::new(PackedForm::Deltas, 999_998, 2, CellType::Int64));
    assert_eq!(packing.bytes(1000), 8 * 8 + 252);
}

#[test]
fn values_that_repeat_are_packed_as_runs_and_unpack_to_what_was() {
    let queue = queue();
    for nulls in [false, true] {
        for count in [1, 2, 1000, 1024, 1025, 3000, 9000] {
            // Runs of many lengths, over the ends of tiles too; one alone; NULLs in the midst of a run begin another one.
            let columns = [1, 7, 90, 2000, 100_000].map(|length| {
                let mut numbers = Numbers(SEED ^ length);
                let mut value = 0;
                let mut next = |_| {
                    if numbers.next(length) == 0 {
                        value = (numbers.next(1 << 31) << 10) as i64 - (1 << 40);
                    }
                    (!nulls || numbers.next(100) > 0).then_some(i128::from(value))
                };
                (0..count).map(&mut next).collect::<Vec<_>>()
            });
            let columns: Vec<Column> =
                columns.iter().map(|values| integers(&queue, CellType::Int64, values)).collect();
            for first in [0, count / 3] {
                let ranges: Vec<CellRange> =
                    columns.iter().map(|column| range_of(column, first, count)).collect();
                let packings = queue.measure_packings(&ranges).unwrap();
                if count - first > 1000 {
                    let is_run = |packing: &Option<Packing>| {
                        packing.is_some_and(|packing| matches!(packing.form(), PackedForm::Runs(_)))
                    };
                    assert!(!is_run(&packings[0]) && is_run(&packings[2]), "{first}..{count}: {packings:?}");
                }
                check_unpacked(&queue, (&columns, &ranges), &packings, (first, count));
            }
        }
    }
}

#[test]
fn runs_take_a_value_and_a_row_number_each() {
    let queue = queue();
    let value = |row: i128| row / 500 * 7_919_919 % 1_000_003;
    let values: Vec<Option<i128>> = (0..3000).map(|row| Some(value(row))).collect();
    let column = integers(&queue, CellType::Int32, &values);
    let range = range_of(&column, 0, 3000);
    let packing = queue.measure_packings(&[range]).unwrap()[0].unwrap();
    // Six values; tiles begin with rows 1024 and 2048 in the midst of runs.
    assert_eq!(packing.form(), PackedForm::Runs(8));
    assert_eq!(packing.bytes(3000), 12 + (8 * packing.width_bits()).div_ceil(32) * 4);
    check_unpacked(&queue, (&[column], &[range]), &[Some(packing)], (0, 3000));
}

/// Reads packed bytes by plain loops, and nothing beyond them.
fn plain_values(bytes: &[u8], packing: Packing, row_count: usize) -> Vec<i64> {
    let bits = |bytes: &[u8], place: usize, width: usize| -> u64 {
        let bit = |number: usize| u64::from(bytes[number / 8] >> (number % 8) & 1);
        (0..width).map(|place_of_bit| bit(place * width + place_of_bit) << place_of_bit).sum()
    };
    let (base, width) = (packing.base(), packing.width_bits() as usize);
    match packing.form() {
        PackedForm::Distances => {
            (0..row_count).map(|row| base.wrapping_add(bits(bytes, row, width) as i64)).collect()
        }
        PackedForm::Deltas => {
            let (firsts, deltas) = bytes.split_at(8 * row_count.div_ceil(128));
            let mut value = 0i64;
            let mut next = |row: usize| {
                value = match row % 128 {
                    0 => i64::from_le_bytes(firsts[row / 16..row / 16 + 8].try_into().unwrap()),
                    _ => value.wrapping_add(base).wrapping_add(bits(deltas, row, width) as i64),
                };
                value
            };
            (0..row_count).map(&mut next).collect()
        }
        PackedForm::Runs(count) => {
            let count = count as usize;
            let start_width = (usize::BITS - (row_count - 1).leading_zeros()) as usize;
            let (starts, values) = bytes.split_at((count * start_width).div_ceil(32) * 4);
            let run = |row: usize| {
                let (mut low, mut high) = (0, count);
                while high - low > 1 {
                    let middle = (low + high) / 2;
                    if bits(starts, middle, start_width) as usize <= row {
                        low = middle
                    } else {
                        high = middle
                    }
                }
                low
            };
            (0..row_count).map(|row| base.wrapping_add(bits(values, run(row), width) as i64)).collect()
        }
    }
}

#[test]
fn bytes_of_any_content_unpack_to_what_plain_loops_read_of_them() {
    let queue = queue();
    let seed = SEED ^ 0xbad;
    let mut generator = Numbers(seed);
    for attempt in 0..300 {
        let row_count = 1 + generator.next(2500) as usize;
        let form = match generator.next(3) {
            0 => PackedForm::Distances,
            1 => PackedForm::Deltas,
            _ => PackedForm::Runs(1 + generator.next(row_count as u64) as u32),
        };
        let base = (generator.next(1 << 31) << 33 ^ generator.next(1 << 31) << 3) as i64;
        let packing = Packing::new(form, base, generator.next(65), CellType::Int64).unwrap();
        let bytes: Vec<u8> =
            (0..packing.bytes(row_count as u64)).map(|_| generator.next(256) as u8).collect();
        let source = queue.upload(&bytes).unwrap();
        let cells = queue.allocate_filled::<i64>(row_count as u64 + 1, 0xa5).unwrap();
        let range = UnpackRange {
            source: source.address(),
            packing,
            target: cells.address(),
            row_count: row_count as u64,
            cell_type: CellType::Int64,
        };
        queue.unpack(&[range]).unwrap();
        let mut cells: Vec<i64> = queue.download(&cells, row_count + 1).unwrap();
        assert_eq!(cells.pop(), Some(i64::from_le_bytes([0xa5; 8])));
        let expected = plain_values(&bytes, packing, row_count);
        assert_eq!(cells, expected, "seed {seed}, attempt {attempt}: {row_count} rows, {packing:?}");
    }
}
