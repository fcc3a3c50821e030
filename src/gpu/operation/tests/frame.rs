//! Values that are narrowed and widened again are what they were.

use super::*;
use crate::operation::{Frame, WidenRange};

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

#[test]
fn frames_are_as_narrow_as_values_allow_and_widen_to_what_was() {
    let (least, greatest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let (short, int) = (i128::from(i16::MIN), i128::from(i32::MIN));
    let wide = i128::MAX / 3;
    let cases: [(CellType, i128, i128, Option<u64>); 27] = [
        (CellType::Bool, 1, 1, Some(0)),
        (CellType::Bool, 0, 1, None),
        (CellType::Int16, -7, -7, Some(0)),
        (CellType::Int16, short, short + 255, Some(1)),
        (CellType::Int16, 0, 256, None),
        (CellType::Int32, int, int + 255, Some(1)),
        (CellType::Int32, -10, 246, Some(2)),
        (CellType::Int32, int, -int - 1, None),
        (CellType::Int64, 1 << 60, 1 << 60, Some(0)),
        (CellType::Int64, greatest - 255, greatest, Some(1)),
        (CellType::Int64, least, least + 256, Some(2)),
        (CellType::Int64, -1, 65534, Some(2)),
        (CellType::Int64, -1, 65535, Some(4)),
        (CellType::Int64, 0, 0xffff_ffff, Some(4)),
        (CellType::Int64, 0, 0x1_0000_0000, None),
        (CellType::Int64, least, greatest, None),
        (CellType::Int128, 5, 5, Some(0)),
        (CellType::Int128, -1, 0xffff_ffff, Some(8)),
        (CellType::Int128, least, greatest, Some(8)),
        (CellType::Int128, least, least + 9, Some(1)),
        (CellType::Int128, least - 1, least, None),
        (CellType::Int128, wide, wide, None),
        (CellType::Int256, -3, 200, Some(1)),
        (CellType::Int256, greatest - 70_000, greatest, Some(4)),
        (CellType::Int256, least, greatest, Some(8)),
        (CellType::Int256, 0, greatest + 1, None),
        (CellType::Int256, -wide, -wide, None),
    ];
    let queue = queue();
    for nulls in [false, true] {
        for count in [2, 3, 300, 4097, 9000] {
            let values: Vec<_> = cases
                .iter()
                .map(|(_, least, greatest, _)| between(*least, *greatest, count, nulls))
                .collect();
            let columns: Vec<Column> = cases
                .iter()
                .zip(&values)
                .map(|((cell_type, ..), values)| integers(&queue, *cell_type, values))
                .collect();
            let columns: Vec<&Column> = columns.iter().collect();
            let frames = queue.measure_frames(&columns, count).unwrap();
            for ((cell_type, least, greatest, width), frame) in cases.iter().zip(&frames) {
                let name = format!("{cell_type:?} from {least} to {greatest}, {count} rows, nulls={nulls}");
                assert_eq!(frame.map(Frame::width_bytes), *width, "{name}");
                assert!(frame.is_none_or(|frame| i128::from(frame.base()) == *least), "{name}");
            }
            let framed: Vec<(&Column, Frame)> = columns
                .iter()
                .zip(&frames)
                .filter_map(|(column, frame)| Some((*column, (*frame)?)))
                .collect();
            let narrowed = queue.narrow(&framed, count).unwrap();
            for ((column, frame), narrowed) in framed.iter().zip(&narrowed) {
                check_widened(&queue, (column, *frame), narrowed.as_ref(), count);
            }
        }
    }
}

/// Distances of rows, from some row on, widen to the column's cells, and nothing is written beside them. A NULL's distance is 0.
fn check_widened(queue: &Queue, (column, frame): (&Column, Frame), narrowed: Option<&Column>, count: usize) {
    let cell_bytes = column.cell_type.bytes() as usize;
    let is_valid: Vec<u8> = match &column.validity {
        Some(validity) => queue.download(validity, count).unwrap(),
        None => vec![1; count],
    };
    assert_eq!(narrowed.is_none(), frame.width_bytes() == 0);
    if let Some(narrowed) = narrowed {
        let width = frame.width_bytes() as usize;
        let distances = read(queue, &narrowed.values, width, count);
        let mut nulls = distances.iter().zip(&is_valid).filter(|(_, is_valid)| **is_valid == 0);
        assert!(nulls.all(|(distance, _)| *distance == vec![0; width]));
    }
    let expected = read(queue, &column.values, cell_bytes, count);
    for first in [0, 1, count / 2] {
        let cells = queue.allocate_filled::<u8>((cell_bytes * (count + 2)) as u64, 0xa5).unwrap();
        let source =
            narrowed.map_or(0, |narrowed| narrowed.values.address() + first as u64 * frame.width_bytes());
        let target = cells.address() + cell_bytes as u64;
        let row_count = (count - first) as u64;
        queue.widen(&[WidenRange { source, target, row_count, frame, cell_type: column.cell_type }]).unwrap();
        let cells = read(queue, &cells, cell_bytes, count + 2);
        assert_eq!(cells[0], vec![0xa5; cell_bytes]);
        assert!(cells[1 + count - first..].iter().all(|cell| *cell == vec![0xa5; cell_bytes]));
        for row in (first..count).filter(|row| is_valid[*row] != 0) {
            assert_eq!(cells[1 + row - first], expected[row], "row {row} of {:?}", column.cell_type);
        }
    }
}

#[test]
fn nulls_have_no_part_in_a_frame() {
    let queue = queue();
    for cell_type in [CellType::Int16, CellType::Int32, CellType::Int64, CellType::Int128, CellType::Int256] {
        let none = integers(&queue, cell_type, &[None, None, None]);
        let few = integers(&queue, cell_type, &[None, Some(-3), None, Some(9)]);
        let frames = queue.measure_frames(&[&none], 3).unwrap();
        assert_eq!(frames, [Frame::new(0, 0, cell_type)], "{cell_type:?}");
        assert_eq!(
            queue.measure_frames(&[&few], 4).unwrap(),
            [Frame::new(-3, 1, cell_type)],
            "{cell_type:?}"
        );
    }
}

#[test]
fn more_columns_and_ranges_than_a_launch_takes_are_each_their_own() {
    let queue = queue();
    let columns: Vec<Column> = (0..40)
        .map(|number| numbers(&queue, &[Some(number), Some(2 * number), Some(1000 * number)]))
        .collect();
    let columns: Vec<&Column> = columns.iter().collect();
    let frames: Vec<Frame> =
        queue.measure_frames(&columns, 3).unwrap().into_iter().map(Option::unwrap).collect();
    let framed: Vec<(&Column, Frame)> = columns.iter().copied().zip(frames).collect();
    let narrowed = queue.narrow(&framed, 3).unwrap();
    let cells = queue.allocate::<i64>(3 * 40 * 3).unwrap();
    // Each of them three times, and some of no row.
    let range = |place: usize| {
        let number = place % 40;
        let source = narrowed[number].as_ref().map_or(0, |column| column.values.address());
        let target = cells.address() + 24 * place as u64;
        let row_count = 3;
        WidenRange { source, target, row_count, frame: framed[number].1, cell_type: CellType::Int64 }
    };
    let mut ranges: Vec<WidenRange> = (0..120).map(range).collect();
    ranges.insert(70, WidenRange { row_count: 0, ..ranges[0] });
    queue.widen(&ranges).unwrap();
    let cells: Vec<i64> = queue.download(&cells, 360).unwrap();
    for (place, cells) in cells.chunks(3).enumerate() {
        let number = place as i64 % 40;
        assert_eq!(cells, [number, 2 * number, 1000 * number], "range {place}");
    }
}

#[test]
fn a_frame_is_of_few_widths_and_of_a_base_that_is_a_value() {
    let width = |width| Frame::new(0, width, CellType::Int64).is_some();
    assert_eq!((0..20).filter(|bytes| width(*bytes)).collect::<Vec<_>>(), [0, 1, 2, 4]);
    let base = |base, cell_type| Frame::new(base, 0, cell_type).is_some();
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
