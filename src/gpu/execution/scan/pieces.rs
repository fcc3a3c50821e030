//! Cutting of a row group, or of a rank's rows of one, that does not fit.
//!
//! ```text
//! column a   |  page 0  |  page 1  |  page 2  |  page 3  |      the column with the most bytes
//! column b   |     page 0     |     page 1    |  page 2  |
//! pieces     |          0          |          1          |      they end where its pages do
//! ```
//!
//! A piece needs its cells, and every page with some of its rows, whole and with the dictionary. So
//! the cuts keep pieces from sharing pages. Where one page alone needs too much, its rows become
//! several pieces.
//!
//! Deliberately absent: reading. `chunk_loads.rs` keeps the pages that pieces share.

use std::ops::Range;

/// Rows of a piece at least.
pub(super) const PIECE_ROWS_MIN: u64 = 128;

/// The device memory that a column of a row group needs.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnCost {
    /// Its cells.
    pub(super) row_bytes: u64,
    /// The bytes that every piece needs: a dictionary.
    pub(super) piece_bytes: u64,
    /// The first row of each page, and the bytes of the page.
    pub(super) pages: Vec<(u32, u64)>,
}

impl ColumnCost {
    /// The bytes of the pages with some of these rows.
    fn pages_bytes(&self, rows: &Range<u32>) -> u64 {
        let first = self.pages.partition_point(|(first_row, _)| *first_row <= rows.start).saturating_sub(1);
        let end = self.pages.partition_point(|(first_row, _)| *first_row < rows.end);
        self.pages[first..end.max(first)].iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Cuts rows into pieces of at most this many bytes, where possible. Returns the rows of each piece
/// and its bytes.
pub(super) fn cut(columns: &[ColumnCost], rows: Range<u32>, bytes_max: u64) -> Vec<(Range<u32>, u64)> {
    let row_bytes: u64 = columns.iter().map(|column| column.row_bytes).sum();
    let loaded = |rows: &Range<u32>| {
        columns.iter().map(|column| column.piece_bytes + column.pages_bytes(rows)).sum::<u64>()
    };
    let cost = |rows: &Range<u32>| loaded(rows) + u64::from(rows.end - rows.start) * row_bytes;
    let largest = columns.iter().max_by_key(|column| column.pages_bytes(&rows));
    let firsts = largest.iter().flat_map(|column| &column.pages).map(|(first_row, _)| *first_row);
    let ends: Vec<u32> =
        firsts.filter(|row| *row > rows.start && *row < rows.end).chain([rows.end]).collect();
    let mut pieces = Vec::new();
    let mut start = rows.start;
    while start < rows.end {
        let next = ends.partition_point(|end| *end <= start);
        let page = start..ends[next];
        if cost(&page) > bytes_max {
            // A loaded page serves all pieces of it.
            let room = bytes_max.saturating_sub(loaded(&page)).max(bytes_max / 2).max(1);
            pieces.extend(evenly(&page, (u64::from(page.end - start) * row_bytes).div_ceil(room)));
            start = page.end;
            continue;
        }
        let fitting = ends[next..].iter().take_while(|end| cost(&(start..**end)) <= bytes_max);
        let end = fitting.last().copied().unwrap_or(page.end);
        pieces.push(start..end);
        start = end;
    }
    pieces.into_iter().map(|rows| (rows.clone(), cost(&rows))).collect()
}

/// Cuts rows into this many parts of about the same size; fewer if they would be too small.
fn evenly(rows: &Range<u32>, count: u64) -> Vec<Range<u32>> {
    let row_count = u64::from(rows.end - rows.start);
    let count = count.min(row_count / PIECE_ROWS_MIN).max(1);
    let place = |number: u64| rows.start + (row_count * number / count) as u32;
    (0..count).map(|number| place(number)..place(number + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A column with pages of so many rows, each row of a byte in its page and of another as a cell.
    fn column(row_count: u32, page_rows: u32) -> ColumnCost {
        let firsts = (0..row_count).step_by(page_rows as usize);
        let pages = firsts.map(|first| (first, u64::from(page_rows.min(row_count - first)))).collect();
        ColumnCost { row_bytes: 1, piece_bytes: 0, pages }
    }

    fn rows(pieces: Vec<(Range<u32>, u64)>) -> Vec<Range<u32>> {
        pieces.into_iter().map(|(rows, _)| rows).collect()
    }

    #[test]
    fn pieces_end_where_pages_do() {
        let columns = [column(100_000, 5000), ColumnCost { row_bytes: 1, ..ColumnCost::default() }];
        let pieces = cut(&columns, 0..100_000, 100_000);
        assert_eq!(pieces[0], (0..30_000, 90_000));
        assert_eq!(rows(pieces), [0..30_000, 30_000..60_000, 60_000..90_000, 90_000..100_000]);
    }

    #[test]
    fn of_the_rows_of_a_rank_nothing_else_is_cut() {
        let columns = [column(100_000, 5000)];
        let pieces = cut(&columns, 12_000..58_000, 40_000);
        assert_eq!(pieces[0], (12_000..30_000, 20_000 + 18_000));
        assert_eq!(rows(pieces), [12_000..30_000, 30_000..50_000, 50_000..58_000]);
    }

    #[test]
    fn a_page_that_two_pieces_share_counts_for_both() {
        // The column with the most bytes decides where pieces end.
        let mut wide = column(40_000, 10_000);
        wide.pages.iter_mut().for_each(|page| page.1 *= 10);
        let columns = [wide, column(40_000, 15_000)];
        let pieces = cut(&columns, 0..40_000, 290_000);
        assert_eq!(
            pieces,
            [(0..20_000, 200_000 + 30_000 + 40_000), (20_000..40_000, 200_000 + 25_000 + 40_000)]
        );
    }

    #[test]
    fn a_page_that_does_not_fit_is_several_pieces() {
        let columns = [column(40_000, 20_000)];
        let pieces = cut(&columns, 0..40_000, 24_000);
        assert_eq!(pieces[0], (0..10_000, 30_000));
        assert_eq!(rows(pieces), [0..10_000, 10_000..20_000, 20_000..30_000, 30_000..40_000]);
        assert_eq!(cut(&columns, 0..40_000, 1).len(), 2 * (20_000 / PIECE_ROWS_MIN as usize));
    }

    #[test]
    fn without_pages_rows_are_cut_evenly() {
        let column = ColumnCost { row_bytes: 10, piece_bytes: 500, pages: Vec::new() };
        assert_eq!(rows(cut(&[column], 0..10_000, 33_900)), [0..3333, 3333..6666, 6666..10_000]);
        assert_eq!(rows(cut(&[], 0..500, 1)).as_slice(), std::slice::from_ref(&(0..500)));
    }
}
