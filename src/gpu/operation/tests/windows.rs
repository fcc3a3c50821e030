//! Windows against what their definitions say of every pair of rows.

use pystachio_plan::{FrameBound, FrameExclusion, FrameUnit, WindowFrame, WindowFunction};

use super::*;
use crate::operation::{FilledRows, FrameValues, Frames, RowNumbers, WindowRows};

/// Rows in the order of a window.
struct Windowed {
    partition: Vec<Option<i64>>,
    key: Vec<Option<i64>>,
    /// Peer groups before the row's.
    groups: Vec<u64>,
    descending: bool,
}

/// How many partitions and keys there are.
#[derive(Clone, Copy, Debug)]
struct Variety {
    row_count: usize,
    partitions: u64,
    keys: u64,
    descending: bool,
    nulls_first: bool,
}

const FEW_ROWS: [Variety; 4] = [
    Variety { row_count: 1, partitions: 1, keys: 1, descending: false, nulls_first: false },
    Variety { row_count: 300, partitions: 40, keys: 9, descending: false, nulls_first: false },
    Variety { row_count: 300, partitions: 6, keys: 30, descending: true, nulls_first: true },
    Variety { row_count: 260, partitions: 1, keys: 50, descending: false, nulls_first: true },
];
/// More than a tile.
const MANY_ROWS: [Variety; 2] = [
    Variety { row_count: 5000, partitions: 3, keys: 700, descending: true, nulls_first: false },
    Variety { row_count: 4300, partitions: 2000, keys: 4, descending: false, nulls_first: false },
];

impl Variety {
    fn rows(self) -> Windowed {
        let mut source = Numbers(SEED ^ self.row_count as u64 ^ self.keys);
        let mut rows: Vec<(Option<i64>, Option<i64>)> = (0..self.row_count)
            .map(|_| {
                let partition = source.next(self.partitions) as i64;
                let key = source.next(self.keys) as i64 * 2 - self.keys as i64;
                let is_null = source.next(8) == 0;
                ((partition > 0 || self.partitions == 1).then_some(partition), (!is_null).then_some(key))
            })
            .collect();
        rows.sort_by(|one, other| {
            compare(&one.0, &other.0, false, false)
                .then_with(|| compare(&one.1, &other.1, self.descending, self.nulls_first))
        });
        let mut groups = vec![0];
        groups.extend(rows.windows(2).scan(0, |group, pair| {
            *group += u64::from(pair[0] != pair[1]);
            Some(*group)
        }));
        let (partition, key) = rows.into_iter().unzip();
        Windowed { partition, key, groups, descending: self.descending }
    }
}

impl Windowed {
    fn count(&self) -> usize {
        self.key.len()
    }

    /// The rows of a row's partition.
    fn partition_of(&self, row: usize) -> Vec<usize> {
        (0..self.count()).filter(|other| self.partition[*other] == self.partition[row]).collect()
    }

    fn are_peers(&self, one: usize, other: usize) -> bool {
        self.groups[one] == self.groups[other]
    }

    /// Whether another row of the partition is not before the start of a row's frame, or not behind its end.
    fn is_within(&self, frame: &WindowFrame, (row, other): (usize, usize), is_end: bool, reach: i64) -> bool {
        // Mirrored, an end is a start. Rows on the frame's own side of the row are within it, unless the bound is on that side too.
        let is_inside = if is_end { other <= row } else { row <= other };
        let (bound, inward) = match (is_end, if is_end { &frame.end } else { &frame.start }) {
            (_, FrameBound::Unbounded) => return true,
            (_, FrameBound::Limit(_)) => {
                let (Some(own), Some(key)) = (self.key[row], self.key[other]) else {
                    return self.key[row] == self.key[other] || is_inside;
                };
                let limit = own + reach;
                return if is_end != self.descending { key <= limit } else { key >= limit };
            }
            (_, FrameBound::Current) => (0, false),
            (false, FrameBound::Preceding(count)) | (true, FrameBound::Following(count)) => (*count, false),
            (false, FrameBound::Following(count)) | (true, FrameBound::Preceding(count)) => (*count, true),
        };
        let distance = match frame.unit {
            FrameUnit::Rows => row.abs_diff(other) as u64,
            _ => self.groups[row].abs_diff(self.groups[other]),
        };
        // Peers are on both sides.
        let is_inside = is_inside || distance == 0;
        match inward {
            false => is_inside || distance <= bound,
            true => is_inside && distance >= bound,
        }
    }

    /// The rows of a row's frame. `reach`: what the limits are beyond the row's key.
    fn frame_of(&self, frame: &WindowFrame, row: usize, (start, end): (i64, i64)) -> Vec<usize> {
        let mut rows = self.partition_of(row);
        rows.retain(|other| self.is_within(frame, (row, *other), false, start));
        rows.retain(|other| self.is_within(frame, (row, *other), true, end));
        rows.retain(|other| match frame.exclude {
            FrameExclusion::Nothing => true,
            FrameExclusion::CurrentRow => *other != row,
            FrameExclusion::Group => !self.are_peers(row, *other),
            FrameExclusion::Ties => *other == row || !self.are_peers(row, *other),
        });
        rows
    }

    fn on(&self, queue: &Queue) -> WindowRows {
        let (partition, key) = (numbers(queue, &self.partition), numbers(queue, &self.key));
        queue.window_rows(&[partition], &[key], self.count()).unwrap()
    }
}

fn read_rows(queue: &Queue, rows: &RowNumbers) -> Vec<Option<usize>> {
    let found: Vec<u32> = queue.download(&rows.rows, rows.count).unwrap();
    found.into_iter().map(|row| (row != u32::MAX).then_some(row as usize)).collect()
}

fn frame(unit: FrameUnit, start: FrameBound, end: FrameBound, exclude: FrameExclusion) -> WindowFrame {
    WindowFrame { unit, start, end, exclude }
}

fn limit() -> FrameBound {
    FrameBound::Limit(pystachio_plan::Expression::int32(0))
}

/// Frames of every unit, each with what its limits are beyond a row's key.
fn all_frames(descending: bool) -> Vec<(WindowFrame, (i64, i64))> {
    use FrameBound::{Current, Following, Preceding, Unbounded};
    const EXCLUSIONS: [FrameExclusion; 4] =
        [FrameExclusion::Nothing, FrameExclusion::CurrentRow, FrameExclusion::Group, FrameExclusion::Ties];
    let bounds = [
        (Unbounded, Unbounded),
        (Unbounded, Current),
        (Current, Unbounded),
        (Preceding(2), Following(1)),
        (Preceding(3), Preceding(1)),
        (Following(1), Following(4)),
        (Following(2), Following(1)),
        (Preceding(u64::MAX), Following(u64::MAX)),
        (Unbounded, Preceding(2)),
        (Following(3), Unbounded),
        (Current, Current),
    ];
    let mut frames = Vec::new();
    for exclude in EXCLUSIONS {
        for (start, end) in &bounds {
            for unit in [FrameUnit::Rows, FrameUnit::Groups] {
                frames.push((frame(unit, start.clone(), end.clone(), exclude), (0, 0)));
            }
        }
        let range = || FrameUnit::Range { key: None, descending };
        let sign = if descending { -1 } else { 1 };
        for (start, end) in [(Unbounded, Current), (Current, Unbounded), (Current, Current)] {
            frames.push((frame(range(), start, end, exclude), (0, 0)));
        }
        for (start, end) in [(-3, 3), (-5, -1), (2, 5), (1, -1)] {
            frames.push((frame(range(), limit(), limit(), exclude), (sign * start, sign * end)));
        }
        frames.push((frame(range(), Unbounded, limit(), exclude), (0, -sign)));
        frames.push((frame(range(), limit(), Current, exclude), (-4 * sign, 0)));
    }
    frames
}

fn find(
    queue: &Queue,
    windowed: &Windowed,
    frame: &WindowFrame,
    (start, end): (i64, i64),
) -> (WindowRows, Frames) {
    let rows = windowed.on(queue);
    let limits = |reach: i64| {
        numbers(queue, &windowed.key.iter().map(|key| key.map(|key| key + reach)).collect::<Vec<_>>())
    };
    let (key, start, end) = (numbers(queue, &windowed.key), limits(start), limits(end));
    let values = FrameValues { key: Some(&key), start: Some(&start), end: Some(&end) };
    let frames = queue.find_frames(&rows, frame, values).unwrap();
    (rows, frames)
}

#[test]
fn frames_have_the_rows_that_their_bounds_say() {
    let queue = queue();
    for variety in FEW_ROWS {
        let windowed = variety.rows();
        let count = windowed.count();
        for (frame, reach) in all_frames(variety.descending) {
            let (_, frames) = find(&queue, &windowed, &frame, reach);
            let expected: Vec<Vec<usize>> =
                (0..count).map(|row| windowed.frame_of(&frame, row, reach)).collect();
            let context = format!("{variety:?} {frame:?} {reach:?}");
            let all = queue.filled_rows(None, count).unwrap();
            let counts = queue.count_frames(&frames, &all).unwrap();
            let wanted: Vec<_> = expected.iter().map(|rows| Some(rows.len() as i64)).collect();
            assert_eq!(read_numbers(&queue, &counts, count), wanted, "{context}");
            let found = |function| read_rows(&queue, &queue.rows_of_frames(&frames, function).unwrap());
            let each = |of: fn(&Vec<usize>) -> Option<usize>| expected.iter().map(of).collect::<Vec<_>>();
            let first = found(WindowFunction::FirstValue);
            assert_eq!(first, each(|rows| rows.first().copied()), "{context}");
            assert_eq!(found(WindowFunction::LastValue), each(|rows| rows.last().copied()), "{context}");
            for (number, of) in [
                (1, (|rows| rows.first().copied()) as fn(&Vec<usize>) -> Option<usize>),
                (3, |rows| rows.get(2).copied()),
                (u32::MAX, |_| None),
            ] {
                let found = found(WindowFunction::NthValue(number));
                assert_eq!(found, each(of), "{context} {number}");
            }
        }
    }
}

/// A value a row, and the aggregates of frames over them.
struct Summed {
    addends: Vec<Option<i64>>,
    column: Column,
    filled: FilledRows,
}

fn summed(queue: &Queue, count: usize) -> Summed {
    let addends = random_numbers(count, 1 << 40, true);
    let column = numbers(queue, &addends);
    let filled = queue.filled_rows(Some(&column), count).unwrap();
    Summed { addends, column, filled }
}

#[test]
fn counts_sums_and_best_rows_are_those_of_the_frames() {
    let queue = queue();
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    for variety in FEW_ROWS.into_iter().chain(MANY_ROWS) {
        let windowed = variety.rows();
        let count = windowed.count();
        let Summed { addends, column, filled } = summed(&queue, count);
        // Few values, so that many are equal.
        let few: Vec<_> = addends.iter().map(|value| value.map(|value| value % 7)).collect();
        let few_column = numbers(&queue, &few);
        let frames = all_frames(variety.descending).into_iter();
        let step = if count > 1000 { 13 } else { 3 };
        for (frame, reach) in frames.step_by(step) {
            let (rows, frames) = find(&queue, &windowed, &frame, reach);
            let context = format!("{variety:?} {frame:?} {reach:?}");
            let expected: Vec<Vec<usize>> =
                (0..count).map(|row| windowed.frame_of(&frame, row, reach)).collect();
            let values = |rows: &Vec<usize>| rows.iter().filter_map(|row| addends[*row]).collect::<Vec<_>>();
            let counts = queue.count_frames(&frames, &filled).unwrap();
            let wanted: Vec<_> = expected.iter().map(|rows| Some(values(rows).len() as i64)).collect();
            assert_eq!(read_numbers(&queue, &counts, count), wanted, "{context}");
            let wanted: Vec<_> = expected
                .iter()
                .map(|rows| Some(values(rows)).filter(|values| !values.is_empty()))
                .map(|values| values.map(|values| values.into_iter().sum::<i64>()))
                .collect();
            let sums = queue.sum_frames(&frames, &column, &filled, &DataType::Int64).unwrap();
            assert_eq!(read_numbers(&queue, &sums, count), wanted, "{context}");
            let sums = queue.sum_frames(&frames, &column, &filled, &wide).unwrap();
            let cells: Vec<i128> = queue.download(&sums.values, count).unwrap();
            for (cell, wanted) in cells.iter().zip(&wanted) {
                assert!(wanted.is_none_or(|wanted| i128::from(wanted) == *cell), "{context}");
            }
            for greatest in [false, true] {
                let found = queue.best_of_frames(&rows, &frames, &few_column, greatest).unwrap();
                let best = |rows: &Vec<usize>| {
                    let rows = rows.iter().filter(|row| few[**row].is_some()).copied();
                    // Of equal rows the last.
                    rows.max_by_key(|row| {
                        (few[*row].map(|value| if greatest { value } else { -value }), *row)
                    })
                };
                let wanted: Vec<_> = expected.iter().map(best).collect();
                assert_eq!(read_rows(&queue, &found), wanted, "{context} {greatest}");
            }
        }
    }
}

#[test]
fn rows_have_their_numbers_and_those_before_them() {
    let queue = queue();
    for variety in FEW_ROWS.into_iter().chain(MANY_ROWS) {
        let windowed = variety.rows();
        let count = windowed.count();
        let rows = windowed.on(&queue);
        let partitions: Vec<Vec<usize>> = (0..count).map(|row| windowed.partition_of(row)).collect();
        let number = |function| queue.number_rows(&rows, function).unwrap();
        let whole = |function| -> Vec<i64> { queue.download(&number(function).values, count).unwrap() };
        let shares = |function| -> Vec<f64> { queue.download(&number(function).values, count).unwrap() };
        let found = [WindowFunction::RowNumber, WindowFunction::Rank, WindowFunction::DenseRank].map(whole);
        let [percent_ranks, cume_dists] = [WindowFunction::PercentRank, WindowFunction::CumeDist].map(shares);
        for row in 0..count {
            let partition = &partitions[row];
            let before = |other: &usize| *other < row && !windowed.are_peers(*other, row);
            let rank = partition.iter().filter(|other| before(other)).count();
            let up_to = partition.iter().filter(|other| **other <= row || windowed.are_peers(row, **other));
            let wanted =
                [row - partition[0], rank, (windowed.groups[row] - windowed.groups[partition[0]]) as usize];
            for (found, wanted) in found.iter().zip(wanted) {
                assert_eq!(found[row], wanted as i64 + 1, "{variety:?} {row}");
            }
            let rows = partition.len() as f64;
            let share = if partition.len() == 1 { 0.0 } else { rank as f64 / (rows - 1.0) };
            assert_eq!(percent_ranks[row].to_bits(), share.to_bits(), "{variety:?} {row}");
            assert_eq!(
                cume_dists[row].to_bits(),
                (up_to.count() as f64 / rows).to_bits(),
                "{variety:?} {row}"
            );
        }
        for parts in [1, 3, 7, 5000] {
            let found: Vec<i32> =
                queue.download(&number(WindowFunction::Ntile(parts)).values, count).unwrap();
            for row in 0..count {
                let partition = &partitions[row];
                // Where each part ends, if the first ones have a row more.
                let (each, more) = (partition.len() / parts as usize, partition.len() % parts as usize);
                let mut end = partition[0];
                let part = (0..parts as usize).position(|part| {
                    end += each + usize::from(part < more);
                    row < end
                });
                assert_eq!(Some(found[row] as usize - 1), part, "{variety:?} {row} {parts}");
            }
        }
        for offset in [0, 1, -1, 4, -300, i32::MIN, i32::MAX] {
            let found = read_rows(&queue, &queue.rows_before(&rows, offset).unwrap());
            for row in 0..count {
                let wanted = usize::try_from(row as i64 - i64::from(offset)).ok();
                let wanted = wanted.filter(|wanted| partitions[row].contains(wanted));
                assert_eq!(found[row], wanted, "{variety:?} {row} {offset}");
            }
        }
    }
}

#[test]
fn windows_without_keys_have_one_partition_of_peers() {
    let queue = queue();
    let count = 5000;
    let rows = queue.window_rows(&[], &[], count).unwrap();
    for (function, wanted) in [(WindowFunction::Rank, 1), (WindowFunction::DenseRank, 1)] {
        let column = queue.number_rows(&rows, function).unwrap();
        assert_eq!(read_numbers(&queue, &column, count), vec![Some(wanted); count]);
    }
    let Summed { addends, column, filled } = summed(&queue, count);
    let whole = queue.find_frames(&rows, &WindowFrame::whole(), FrameValues::default()).unwrap();
    let sums = queue.sum_frames(&whole, &column, &filled, &DataType::Int64).unwrap();
    let all = addends.iter().flatten().sum::<i64>();
    assert_eq!(read_numbers(&queue, &sums, count), vec![Some(all); count]);
}

#[test]
fn sums_of_more_bits_wrap_before_the_frame_and_not_in_it() {
    let queue = queue();
    let count = 4200;
    let rows = queue.window_rows(&[], &[], count).unwrap();
    let around =
        frame(FrameUnit::Rows, FrameBound::Preceding(2), FrameBound::Current, FrameExclusion::Nothing);
    let frames = queue.find_frames(&rows, &around, FrameValues::default()).unwrap();
    // All sums before a row together exceed 256 bits, those of three rows do not.
    let values: Vec<Option<i256>> = random_large_numbers(count, 4, true)
        .into_iter()
        .map(|value| value.map(|value| if value.is_negative() { value.wrapping_neg() } else { value } >> 3))
        .collect();
    let column = large_numbers(&queue, &values);
    let filled = queue.filled_rows(Some(&column), count).unwrap();
    let sums = queue.sum_frames(&frames, &column, &filled, &decimal(76)).unwrap();
    let found = read_large_numbers(&queue, &sums, count);
    for row in 0..count {
        let addends: Vec<i256> = values[row.saturating_sub(2)..=row].iter().flatten().copied().collect();
        let sum = addends.iter().fold(i256::ZERO, |sum, value| sum.wrapping_add(*value));
        assert_eq!(found[row], (!addends.is_empty()).then_some(sum), "{row}");
    }
}

#[test]
fn a_frames_sum_beyond_its_type_is_an_error() {
    let queue = queue();
    let rows = queue.window_rows(&[], &[], 4).unwrap();
    let column = numbers(&queue, &[Some(i64::MAX), Some(-1), Some(i64::MAX), Some(1)]);
    let filled = queue.filled_rows(Some(&column), 4).unwrap();
    let sums = |preceding| {
        let frame = frame(
            FrameUnit::Rows,
            FrameBound::Preceding(preceding),
            FrameBound::Current,
            FrameExclusion::Nothing,
        );
        let frames = queue.find_frames(&rows, &frame, FrameValues::default()).unwrap();
        queue.sum_frames(&frames, &column, &filled, &DataType::Int64)
    };
    let own = read_numbers(&queue, &sums(0).unwrap(), 4);
    assert_eq!(own, [Some(i64::MAX), Some(-1), Some(i64::MAX), Some(1)]);
    assert_eq!(sums(1).unwrap_err().message, "bigint out of range");
}

fn floats(queue: &Queue, values: &[f64]) -> Column {
    Column {
        data_type: DataType::Float64,
        cell_type: CellType::Float64,
        values: queue.upload(values).unwrap(),
        validity: None,
        strings: Vec::new(),
    }
}

#[test]
fn of_equal_values_that_differ_the_last_rows_is_found() {
    let queue = queue();
    let values = [0.0, -0.0, f64::NAN, 1.0, -0.0, 0.0];
    let column = floats(&queue, &values);
    let rows = queue.window_rows(&[], &[], values.len()).unwrap();
    for exclude in [FrameExclusion::Nothing, FrameExclusion::CurrentRow] {
        let frame = frame(FrameUnit::Rows, FrameBound::Unbounded, FrameBound::Unbounded, exclude);
        let frames = queue.find_frames(&rows, &frame, FrameValues::default()).unwrap();
        let best = |greatest| {
            let found = queue.best_of_frames(&rows, &frames, &column, greatest).unwrap();
            read_rows(&queue, &found)
        };
        let (least, greatest) = match exclude {
            FrameExclusion::Nothing => ([5; 6], [2; 6]),
            _ => ([5, 5, 5, 5, 5, 4], [2, 2, 3, 2, 2, 2]),
        };
        assert_eq!((best(false), best(true)), (least.map(Some).to_vec(), greatest.map(Some).to_vec()));
    }
    // -0 and 0, and NaN and NaN, are peers.
    let keys = floats(&queue, &[-0.0, 0.0, 1.0, f64::NAN, -f64::NAN]);
    let rows = queue.window_rows(&[], &[keys], 5).unwrap();
    let ranks = queue.number_rows(&rows, WindowFunction::Rank).unwrap();
    assert_eq!(read_numbers(&queue, &ranks, 5), [1, 1, 3, 4, 4].map(Some));
}

#[test]
fn the_best_texts_of_frames_are_found() {
    let queue = queue();
    let count = 700;
    let values = random_texts(count, 60);
    let column = texts(&queue, &values);
    let rows = queue.window_rows(&[], &[], count).unwrap();
    let frame =
        frame(FrameUnit::Rows, FrameBound::Preceding(9), FrameBound::Following(20), FrameExclusion::Nothing);
    let frames = queue.find_frames(&rows, &frame, FrameValues::default()).unwrap();
    let found = read_rows(&queue, &queue.best_of_frames(&rows, &frames, &column, true).unwrap());
    assert_eq!(found.len(), count);
    for (row, found) in found.into_iter().enumerate() {
        let frame = row.saturating_sub(9)..(row + 21).min(count);
        let wanted =
            frame.filter(|row| values[*row].is_some()).max_by_key(|row| (values[*row].clone(), *row));
        assert_eq!(found, wanted, "{row}");
    }
}
