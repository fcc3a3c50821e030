//! The rows of a row group that are read at all.
//!
//! ```text
//! rows that page indexes leave      ····██·······█████··
//! slices that are read           |    |████|    |████|████|
//! ```
//!
//! Invariant: each is a whole number of slices from a slice's first row on, but for the row group's last.

use std::ops::Range;

use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

use super::BATCH_ROWS;

/// Fewer than this part of a row group's rows are few.
const FEW_ROWS_PART: usize = 8;

/// Slices of a row group, ascending and disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedRows {
    runs: Vec<Range<usize>>,
    row_count: usize,
}

impl SelectedRows {
    /// All rows.
    pub(crate) fn all(row_count: usize) -> Self {
        Self { runs: Some(0..row_count).into_iter().filter(|run| !run.is_empty()).collect(), row_count }
    }

    /// The slices that have a row of `left`, which are sorted and disjoint.
    pub(super) fn of(left: &[Range<u32>], row_count: usize) -> Self {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for rows in left.iter().filter(|rows| !rows.is_empty()) {
            let start = rows.start as usize / BATCH_ROWS * BATCH_ROWS;
            let end = (rows.end as usize).next_multiple_of(BATCH_ROWS).min(row_count);
            match runs.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => runs.push(start..end),
            }
        }
        Self { runs, row_count }
    }

    /// Whether no row of the row group is left out.
    pub(super) fn is_all(&self) -> bool {
        self.count() == self.row_count
    }

    /// Whether they are so few that the others need not be decoded for the cache.
    pub(super) fn are_few(&self) -> bool {
        self.count() <= self.row_count / FEW_ROWS_PART
    }

    /// How many rows are read.
    pub(super) fn count(&self) -> usize {
        self.from(0).map(|run| run.len()).sum()
    }

    /// The runs of rows that are read, from a row on.
    pub(super) fn from(&self, row: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.runs.iter().map(move |run| run.start.max(row)..run.end).filter(|run| !run.is_empty())
    }

    /// The next slice that is read from a row on.
    pub(super) fn slice(&self, row: usize) -> Option<Range<usize>> {
        self.from(row).next().map(|run| run.start..run.end.min(run.start + BATCH_ROWS))
    }

    /// What a reader skips and reads to give only these rows, from a row on.
    pub(super) fn selection(&self, row: usize) -> RowSelection {
        let mut selectors = Vec::new();
        let mut place = 0;
        for run in self.from(row) {
            if run.start > place {
                selectors.push(RowSelector::skip(run.start - place));
            }
            selectors.push(RowSelector::select(run.len()));
            place = run.end;
        }
        RowSelection::from(selectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: u32 = BATCH_ROWS as u32;

    #[test]
    fn slices_are_read_whole() {
        let row_count = 5 * BATCH_ROWS + 7;
        let selected = SelectedRows::of(
            &[10..11, BATCH - 1..BATCH, 3 * BATCH..3 * BATCH + 1, 5 * BATCH + 6..5 * BATCH + 7],
            row_count,
        );
        let runs: Vec<_> = selected.from(0).collect();
        assert_eq!(runs, [0..BATCH_ROWS, 3 * BATCH_ROWS..4 * BATCH_ROWS, 5 * BATCH_ROWS..row_count]);
        assert_eq!((selected.count(), selected.is_all()), (2 * BATCH_ROWS + 7, false));
        assert_eq!(selected.slice(0), Some(0..BATCH_ROWS));
        assert_eq!(selected.slice(BATCH_ROWS), Some(3 * BATCH_ROWS..4 * BATCH_ROWS));
        assert_eq!(selected.slice(4 * BATCH_ROWS), Some(5 * BATCH_ROWS..row_count));
        assert_eq!(selected.slice(row_count), None);
        let skipped: Vec<_> =
            selected.selection(BATCH_ROWS).iter().map(|part| (part.skip, part.row_count)).collect();
        assert_eq!(skipped, [(true, 3 * BATCH_ROWS), (false, BATCH_ROWS), (true, BATCH_ROWS), (false, 7)]);
    }

    #[test]
    fn slices_side_by_side_are_one_run() {
        let selected =
            SelectedRows::of(&[0..1, BATCH..BATCH + 1, 2 * BATCH..2 * BATCH + 5], 2 * BATCH_ROWS + 5);
        assert!(selected.is_all());
        assert_eq!(selected, SelectedRows::all(2 * BATCH_ROWS + 5));
        assert_eq!(SelectedRows::of(&[], 10).slice(0), None);
        assert_eq!(SelectedRows::all(0).slice(0), None);
    }
}
