//! Values that are packed and unpacked again are what they were.

use super::*;
use crate::operation::{CellRange, PackRange, Packing, UnpackRange};

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
    queue.spoil_nulls(&column, values.len());
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
    // Whether that is worth it for many rows.
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
        (CellType::Int64, least, greatest, false),
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
                    // The ends of what values are among them.
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

/// Ranges that are packed at once unpack to the columns' cells, and nothing is written beside them, or beside what they are packed to. The words
/// of equal values are equal, whatever the cells of NULLs are.
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
            [Packing::new(0, 0, cell_type), Packing::new(-3, 4, cell_type)],
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
    let widths = |cell_type| (0..200).filter(|width| Packing::new(0, *width, cell_type).is_some()).count();
    let integers = [CellType::Bool, CellType::Int16, CellType::Int32, CellType::Int64, CellType::Int256];
    assert_eq!(integers.map(widths), [2, 17, 33, 65, 65]);
    let base = |base, cell_type| Packing::new(base, 0, cell_type).is_some();
    let (short, int) = (i64::from(i16::MAX), i64::from(i32::MIN));
    assert_eq!([0, 1, 2, -1].map(|value| base(value, CellType::Bool)), [true, true, false, false]);
    assert_eq!([short, short + 1].map(|value| base(value, CellType::Int16)), [true, false]);
    assert_eq!([int, int - 1].map(|value| base(value, CellType::Int32)), [true, false]);
    for cell_type in
        [CellType::Float64, CellType::Float32, CellType::String, CellType::Bytes16, CellType::Interval]
    {
        assert!(!base(0, cell_type), "{cell_type:?}");
    }
}
