//! Selected rows of a row group, and the places of their cells in columns, which may have rows of
//! other row groups before them.
//!
//! ```text
//! row group   ──[ 100 .. 300 )───────[ 700 .. 900 )──
//! column        [   0 .. 200 )       [ 200 .. 400 )      `of`: one after another
//!               [   0 .. 200 )  not the second range     `narrowed`: rows keep their places, others have no cells
//! ```
//!
//! Invariants: ranges are sorted by row and by target, disjoint and not empty.

use std::ops::Range;

use super::abi::SLICE_ROWS;

/// The shortest gap of unwanted rows that is skipped: the rows of two slices.
const GAP_ROWS_MIN: usize = 2 * SLICE_ROWS as usize;

/// Consecutive rows, and the place of the first of them in the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedRows {
    pub(super) first_row: u32,
    pub(super) row_count: u32,
    pub(super) target_row: u32,
}

impl PlacedRows {
    pub(super) fn end(self) -> u32 {
        self.first_row + self.row_count
    }

    /// The same rows, at most so many at once.
    pub(super) fn parts(self, row_count_max: u32) -> impl Iterator<Item = Self> {
        let firsts = (self.first_row..self.end()).step_by(row_count_max as usize);
        firsts.map(move |first| self.part(first, first.saturating_add(row_count_max).min(self.end())))
    }

    /// The part from one row to another.
    fn part(self, first_row: u32, end: u32) -> Self {
        Self {
            first_row,
            row_count: end - first_row,
            target_row: self.target_row + (first_row - self.first_row),
        }
    }
}

/// Rows of a row group, and the rows of the columns that they are decoded into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSelection {
    ranges: Vec<PlacedRows>,
    row_count: usize,
}

impl RowSelection {
    /// Consecutive rows.
    pub fn range(rows: Range<u32>) -> Self {
        Self::of(std::iter::once(rows))
    }

    /// Ranges of rows, one after another. Empty ones are left out.
    ///
    /// # Panics
    ///
    /// If the ranges are not sorted and disjoint.
    pub fn of(ranges: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut placed: Vec<PlacedRows> = Vec::new();
        let mut target_row = 0;
        for range in ranges {
            let Some(row_count) = range.end.checked_sub(range.start).filter(|count| *count > 0) else {
                continue;
            };
            match placed.last_mut() {
                Some(last) if last.end() == range.start => last.row_count += row_count,
                last => {
                    assert!(
                        last.is_none_or(|last| last.end() < range.start),
                        "ranges of rows are not sorted"
                    );
                    placed.push(PlacedRows { first_row: range.start, row_count, target_row });
                }
            }
            target_row += row_count;
        }
        Self { ranges: placed, row_count: target_row as usize }
    }

    /// The same rows, all of them, whose places in the columns begin at one.
    #[must_use]
    pub fn starting_at(mut self, place: u32) -> Self {
        let first = self.ranges.first().map_or(0, |range| range.target_row);
        self.ranges.iter_mut().for_each(|range| range.target_row = range.target_row - first + place);
        self
    }

    /// Rows that it has places for.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Rows that are decoded: fewer than it has places for if the selection was narrowed.
    pub fn decoded_count(&self) -> usize {
        self.ranges.iter().map(|range| range.row_count as usize).sum()
    }

    /// The ranges of the row group's rows.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        self.ranges.iter().map(|range| range.first_row..range.end())
    }

    /// The ranges of the row group's rows, and where each begins in the column.
    pub fn placed(&self) -> impl Iterator<Item = (Range<u32>, u32)> {
        self.ranges.iter().map(|range| (range.first_row..range.end(), range.target_row))
    }

    /// The rows that both selections have.
    pub fn common(&self, other: &Self) -> Self {
        let (mut own, mut others) = (self.ranges().peekable(), other.ranges().peekable());
        Self::of(std::iter::from_fn(move || {
            let (one, two) = (own.peek()?.clone(), others.peek()?.clone());
            let _ = if one.end <= two.end { own.next() } else { others.next() };
            // It may be empty, and is left out then.
            let start = one.start.max(two.start);
            Some(start..one.end.min(two.end).max(start))
        }))
    }

    /// The same places without the rows of unwanted tiles. `is_wanted` has a flag for every
    /// `tile_rows` rows of the columns. Short gaps are not left out.
    pub fn narrowed(&self, tile_rows: usize, is_wanted: &[bool]) -> Self {
        self.narrowed_from(tile_rows, is_wanted, GAP_ROWS_MIN)
    }

    /// The same, for gaps of so many rows or more.
    pub(super) fn narrowed_from(&self, tile_rows: usize, is_wanted: &[bool], gap_rows_min: usize) -> Self {
        let end = self.ranges.last().map_or(0, |range| range.target_row + range.row_count);
        assert!(end as usize <= tile_rows * is_wanted.len(), "rows without a tile");
        let first = self.ranges.first().map_or(0, |range| range.target_row);
        let tiles = first as usize / tile_rows..(end as usize).div_ceil(tile_rows);
        let mut wanted: Vec<Range<usize>> = Vec::new();
        for tile in tiles.filter(|tile| is_wanted[*tile]) {
            let (first, end) = (tile * tile_rows, (tile + 1) * tile_rows);
            match wanted.last_mut() {
                Some(last) if first - last.end < gap_rows_min => last.end = end,
                _ => wanted.push(first..end),
            }
        }
        let mut ranges = Vec::new();
        let mut place = 0;
        for range in &self.ranges {
            let targets = range.target_row as usize..(range.target_row + range.row_count) as usize;
            while let Some(rows) = wanted.get(place).filter(|rows| rows.start < targets.end) {
                let (first, end) = (rows.start.max(targets.start), rows.end.min(targets.end));
                if first < end {
                    let row_of = |target: usize| range.first_row + (target - targets.start) as u32;
                    ranges.push(range.part(row_of(first), row_of(end)));
                }
                if rows.end > targets.end {
                    // They go on in the next range.
                    break;
                }
                place += 1;
            }
        }
        Self { ranges, row_count: self.row_count }
    }

    /// The selected rows among some consecutive ones; numbered from the first of these.
    pub(super) fn within(&self, first_row: u32, row_count: u32) -> impl Iterator<Item = PlacedRows> {
        let end = first_row + row_count;
        let first = self.ranges.partition_point(|range| range.end() <= first_row);
        let overlapping = self.ranges[first..].iter().take_while(move |range| range.first_row < end);
        overlapping.map(move |range| {
            let part = range.part(range.first_row.max(first_row), range.end().min(end));
            PlacedRows { first_row: part.first_row - first_row, ..part }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(first_row: u32, row_count: u32, target_row: u32) -> PlacedRows {
        PlacedRows { first_row, row_count, target_row }
    }

    #[test]
    fn ranges_lie_one_after_another() {
        let rows = RowSelection::of([5..10, 10..12, 12..12, 20..30]);
        assert_eq!(rows.row_count(), 17);
        assert_eq!(rows.ranges, [placed(5, 7, 0), placed(20, 10, 7)]);
        assert_eq!(rows.within(8, 15).collect::<Vec<_>>(), [placed(0, 4, 3), placed(12, 3, 7)]);
        assert_eq!(rows.within(12, 8).count(), 0);
    }

    #[test]
    fn common_rows_are_those_of_both() {
        let rows = RowSelection::of([0..10, 20..40]);
        let common = rows.common(&RowSelection::of([5..8, 9..22, 30..31, 50..60]));
        assert_eq!(common, RowSelection::of([5..8, 9..10, 20..22, 30..31]));
        assert_eq!(rows.common(&RowSelection::range(0..40)), rows);
        assert_eq!(rows.common(&RowSelection::of([])).row_count(), 0);
    }

    #[test]
    fn rows_after_those_of_other_row_groups_have_later_places() {
        let rows = RowSelection::of([0..10, 20..40]).starting_at(7);
        assert_eq!(rows.ranges, [placed(0, 10, 7), placed(20, 20, 17)]);
        // Rows 0..8, 8..16 and so on of the columns.
        let narrowed = rows.narrowed_from(8, &[false, true, false, false, true], 8);
        assert_eq!(narrowed.ranges, [placed(1, 8, 8), placed(35, 5, 32)]);
    }

    #[test]
    fn a_narrowed_selection_leaves_long_gaps_out() {
        let rows = RowSelection::of([0..10, 20..40]);
        // Rows 0..4, 4..8, 8..12 and so on of the columns.
        let wanted = [false, true, true, false, false, true, false, false];
        let narrowed = rows.narrowed_from(4, &wanted, 8);
        assert_eq!(narrowed.ranges, [placed(4, 6, 4), placed(20, 2, 10), placed(30, 4, 20)]);
        assert_eq!((narrowed.row_count(), narrowed.decoded_count()), (30, 12));
        let joined = rows.narrowed_from(4, &wanted, 9);
        assert_eq!(joined.ranges, [placed(4, 6, 4), placed(20, 14, 10)]);
        assert_eq!(rows.narrowed_from(4, &[false; 8], 1).decoded_count(), 0);
    }
}
