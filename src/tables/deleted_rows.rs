//! Which rows of a file are deleted.

use std::ops::Range;

use roaring::RoaringBitmap;

/// Rows of a file, by their numbers from 0 on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletedRows(RoaringBitmap);

impl From<RoaringBitmap> for DeletedRows {
    fn from(rows: RoaringBitmap) -> Self {
        Self(rows)
    }
}

impl DeletedRows {
    /// Adds a row; `false` for a number that is too great for any.
    pub fn add(&mut self, row: u64) -> bool {
        u32::try_from(row).is_ok_and(|row| {
            self.0.insert(row);
            true
        })
    }

    /// How many they are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The last one.
    pub fn last(&self) -> Option<u64> {
        self.0.max().map(u64::from)
    }

    /// How many of some rows they are.
    pub fn count_within(&self, rows: Range<u64>) -> u64 {
        self.within(rows).map_or(0, |rows| self.0.range_cardinality(rows))
    }

    /// The others of some rows, in ranges: sorted, disjoint, not empty and not beside each other.
    pub fn kept(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        let mut kept = Vec::new();
        let mut start = rows.start;
        let deleted = self.within(rows.clone()).map(|rows| self.0.range(rows));
        for row in deleted.into_iter().flatten().map(u64::from) {
            if row > start {
                kept.push(start..row);
            }
            start = row + 1;
        }
        if start < rows.end {
            kept.push(start..rows.end);
        }
        kept
    }

    /// As numbers that a bitmap holds: it has none beyond them.
    fn within(&self, rows: Range<u64>) -> Option<std::ops::RangeInclusive<u32>> {
        let first = u32::try_from(rows.start).ok()?;
        let last = rows.end.checked_sub(1)?;
        (rows.start < rows.end).then(|| first..=u32::try_from(last).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them of one")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_deleted_is_kept() {
        let rows = DeletedRows::from(RoaringBitmap::from_iter([0, 3, 4, 9]));
        assert_eq!(rows.kept(0..12), [1..3, 5..9, 10..12]);
        assert_eq!(rows.kept(3..5), []);
        assert_eq!(rows.kept(5..9), [5..9]);
        assert_eq!(rows.kept(4..10), [5..9]);
        assert_eq!(rows.kept(7..7), []);
        let beyond = u64::from(u32::MAX);
        assert_eq!(rows.kept(beyond - 1..beyond + 5), [beyond - 1..beyond + 5]);
        assert_eq!(rows.kept(beyond + 2..beyond + 5), [beyond + 2..beyond + 5]);
        assert_eq!((rows.count(), rows.count_within(3..9), rows.last()), (4, 2, Some(9)));
        assert_eq!(DeletedRows::default().kept(0..2), [0..2]);
    }
}
