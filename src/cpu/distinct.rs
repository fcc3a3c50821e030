//! How many values a column has, from the row groups that ANALYZE reads.
//!
//! PostgreSQL estimates this from 30,000 rows. Of a table with billions of rows, a random sample has no value twice, although
//! each order has four lines. ANALYZE decodes whole row groups, at least a million rows. They tell more.
//!
//! The unit is a value in a row group, not a row: it counts once for each row group that has it. The estimate is Duj1 of Haas and
//! Stokes, PostgreSQL's own formula, over these units: `n * d / (n - f + f * r)`. `n` counts the units, `d` the different
//! values, `f` the values that are in one row group only, and `r` is the part of the table's rows that is read.
//!
//! | column | in the row groups read | estimate |
//! |---|---|---|
//! | unique | each value in one row group | as many values a row as were read |
//! | equal values are neighbours, sorted or not | the same: a run counts once | the same; that is one a run |
//! | few values, in any order | each value in several row groups | the values that were seen |
//! | many values, in random order | some values in several row groups | what Duj1 makes of them, from many more rows than 30,000 |
//! | periodic | as random, for the row groups are chosen at random places | as random |
//! | sorted, and a run is longer than a row group | the bounds in footers | the bounds that differ |
//!
//! Counting runs of equal neighbours gives the same for the second kind, but too much for columns of the third and fourth kind.
//!
//! The last kind needs the footers: in a table that is sorted by country, eight row groups have eight values of 200. The least and
//! greatest value of each row group of the whole table are known, and are counted as they are. The formula estimates the other
//! values only. If all row groups are read, bounds are not needed: the count is exact, up to the choice of hashes below.
//!
//! NULLs are no values. The estimate is a number of values, so they need no factor.
//!
//! Limits: if values come back in the next row groups but not in distant ones, and are no bounds, each row group counts them
//! again. Values whose period is much longer than the sample look unique, as they do to PostgreSQL. A range of whole numbers bounds both;
//! the extension knows it. Of values of very uneven frequency, the rare ones are underestimated, as by PostgreSQL.
//!
//! Memory is bounded by keeping values whose hash begins with enough zeros, more if there are many values ("distinct sampling",
//! Gibbons 2001). That is a random choice of the values with all their row groups. The error is about 1 %.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use arrow::array::{Array, ArrayRef};

use crate::{
    datafusion::common::hash_utils::{RandomState, create_hashes},
    sample::random,
    scan::ScanTable,
};

/// Values kept of a column, at most.
const KEPT_MAX: usize = 1 << 14;

/// The values of a column in one row group; some of them if there are many.
#[derive(Debug, Default)]
pub(crate) struct GroupValues {
    /// Zeros that hashes begin with at least.
    level: u32,
    hashes: HashSet<u64>,
    /// Whether values of the column can't be hashed.
    is_unknown: bool,
}

impl GroupValues {
    /// Adds rows of the row group.
    pub(crate) fn add(&mut self, array: &ArrayRef) {
        match hashes(array) {
            Some(hashes) => hashes.into_iter().for_each(|hash| self.add_hash(hash)),
            None => self.is_unknown = true,
        }
    }

    fn add_hash(&mut self, hash: u64) {
        if hash.leading_zeros() >= self.level && self.hashes.insert(hash) {
            while self.hashes.len() > KEPT_MAX {
                self.level += 1;
                self.hashes.retain(|hash| hash.leading_zeros() >= self.level);
            }
        }
    }
}

/// The values of a column in the row groups that were read, and in how many of them each is.
#[derive(Debug, Default)]
pub(crate) struct ColumnValues {
    level: u32,
    group_counts: HashMap<u64, u32>,
    is_unknown: bool,
}

impl ColumnValues {
    /// Adds a row group.
    pub(crate) fn add(&mut self, group: GroupValues) {
        self.is_unknown |= group.is_unknown;
        self.level = self.level.max(group.level);
        for hash in group.hashes {
            match self.group_counts.entry(hash) {
                Entry::Occupied(mut count) => *count.get_mut() += 1,
                Entry::Vacant(place) => {
                    place.insert(1);
                }
            }
        }
        self.group_counts.retain(|hash, _| hash.leading_zeros() >= self.level);
        while self.group_counts.len() > KEPT_MAX {
            self.level += 1;
            self.group_counts.retain(|hash, _| hash.leading_zeros() >= self.level);
        }
    }

    /// How many values the column has. `bounds` are values that it is known to have, and `read` is the part of the
    /// table's rows that was read.
    fn estimate(&self, bounds: &HashSet<u64>, read: f64) -> f64 {
        let (mut units, mut values, mut single) = (0.0, 0.0, 0.0);
        for (_, count) in self.group_counts.iter().filter(|(hash, _)| !bounds.contains(hash)) {
            units += f64::from(*count);
            values += 1.0;
            single += if *count == 1 { 1.0 } else { 0.0 };
        }
        let others = match units > 0.0 {
            true => units * values / (units - single + single * read) * 2.0_f64.powi(self.level as i32),
            false => 0.0,
        };
        bounds.len() as f64 + others
    }
}

/// How many values each column has; `None` where that can't be said. `read_count` rows of the table were read.
pub(crate) fn estimate(table: &ScanTable, columns: &[ColumnValues], read_count: u64) -> Vec<Option<f64>> {
    let row_count = table.row_count() as u64;
    let read = read_count.min(row_count) as f64 / row_count.max(1) as f64;
    let estimate = |(index, column): (usize, &ColumnValues)| {
        let bounds = if read_count < row_count { bounds(table, index) } else { HashSet::new() };
        (!column.is_unknown).then(|| column.estimate(&bounds, read))
    };
    columns.iter().enumerate().map(estimate).collect()
}

/// The least and greatest values of all row groups, where footers tell them. Few of them may be cut texts, which are no values.
fn bounds(table: &ScanTable, column: usize) -> HashSet<u64> {
    let bounds = table.files.iter().filter_map(|file| file.bounds(column));
    bounds.flat_map(|bounds| [&bounds.minimums, &bounds.maximums]).filter_map(hashes).flatten().collect()
}

/// Hashes of the values, of neighbours that are equal one.
fn hashes(array: &ArrayRef) -> Option<Vec<u64>> {
    let mut hashes = vec![0; array.len()];
    create_hashes([array], &RandomState::with_seed(0), &mut hashes).ok()?;
    if array.null_count() > 0 {
        let mut row = 0;
        hashes.retain(|_| {
            row += 1;
            array.is_valid(row - 1)
        });
    }
    hashes.dedup();
    // All bits are to depend on the value.
    hashes.iter_mut().for_each(|hash| *hash = random(*hash, 0));
    Some(hashes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    const GROUP_ROWS: u64 = 20_000;
    const GROUPS: u64 = 400;
    /// The row groups that are read, in places without a pattern.
    const READ: [u64; 8] = [13, 77, 101, 187, 222, 263, 340, 391];

    /// The estimate for a table of which some row groups are read, and how many values it has at most.
    fn estimated(value: impl Fn(u64) -> Option<u64>, knows_bounds: bool) -> f64 {
        let values = |group: u64| {
            let rows = group * GROUP_ROWS..(group + 1) * GROUP_ROWS;
            Int64Array::from_iter(rows.map(|row| value(row).map(|value| value as i64)))
        };
        let mut column = ColumnValues::default();
        for group in READ {
            let mut in_group = GroupValues::default();
            in_group.add(&(Arc::new(values(group)) as ArrayRef));
            column.add(in_group);
        }
        let mut bounds = HashSet::new();
        if knows_bounds {
            for group in 0..GROUPS {
                let values = values(group);
                let ends = [arrow::compute::min(&values), arrow::compute::max(&values)];
                bounds.extend(hashes(&(Arc::new(Int64Array::from(ends.to_vec())) as ArrayRef)).unwrap());
            }
        }
        column.estimate(&bounds, READ.len() as f64 / GROUPS as f64)
    }

    fn assert_near(estimate: f64, truth: f64, factor: f64) {
        let ratio = estimate / truth;
        assert!((1.0 / factor..factor).contains(&ratio), "{estimate} for {truth}");
    }

    #[test]
    fn unique_values_are_as_many_as_rows() {
        assert_near(estimated(Some, false), (GROUPS * GROUP_ROWS) as f64, 1.05);
        assert_near(estimated(|row| Some(random(3, row)), false), (GROUPS * GROUP_ROWS) as f64, 1.05);
    }

    #[test]
    fn equal_neighbours_count_once_in_any_order_of_the_runs() {
        let truth = (GROUPS * GROUP_ROWS / 4) as f64;
        assert_near(estimated(|row| Some(row / 4), false), truth, 1.05);
        assert_near(estimated(|row| Some(random(5, row / 4)), false), truth, 1.05);
        // As l_orderkey: one to seven rows, and values that lie apart.
        let order = |row: u64| {
            row / 28 * 32 + [1, 3, 6, 10, 15, 21, 28].partition_point(|end| *end <= row % 28) as u64
        };
        assert_near(estimated(|row| Some(order(row)), false), truth, 1.05);
    }

    #[test]
    fn few_values_are_those_that_were_seen() {
        assert_near(estimated(|row| Some(random(7, row) % 3), false), 3.0, 1.001);
        assert_near(estimated(|row| Some(row % 10_000), false), 10_000.0, 1.001);
    }

    #[test]
    fn many_values_in_random_order_are_estimated_from_all_rows_read() {
        for truth in [50_000, 200_000, 1_000_000] {
            assert_near(estimated(|row| Some(random(9, row) % truth), false), truth as f64, 1.25);
        }
    }

    #[test]
    fn null_is_no_value() {
        let half = |row: u64| random(11, row).is_multiple_of(2).then_some(row);
        assert_near(estimated(half, false), (GROUPS * GROUP_ROWS / 2) as f64, 1.05);
        assert_near(estimated(|_| None, false) + 1.0, 1.0, 1.001);
        let some = |row: u64| row.is_multiple_of(3).then_some(row / 12);
        assert_near(estimated(some, false), (GROUPS * GROUP_ROWS / 12) as f64, 1.05);
    }

    #[test]
    fn runs_longer_than_a_row_group_are_counted_from_footers() {
        let day = |row: u64| Some(row / 70_000);
        assert_near(estimated(day, true), 115.0, 1.01);
        assert!(estimated(day, false) > 200.0);
        // Bounds change nothing where they are few among the values.
        assert_near(estimated(|row| Some(row / 4), true), (GROUPS * GROUP_ROWS / 4) as f64, 1.05);
        assert_near(estimated(|row| Some(random(7, row) % 3), true), 3.0, 1.001);
    }

    #[test]
    fn all_rows_give_the_count() {
        let mut column = ColumnValues::default();
        for texts in [["a", "b"], ["b", "a longer text than a view holds"]] {
            let mut group = GroupValues::default();
            group.add(&(Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef));
            column.add(group);
        }
        assert!((column.estimate(&HashSet::new(), 1.0) - 3.0).abs() < 1e-9);
    }
}
