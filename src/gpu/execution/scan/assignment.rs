//! Assignment of a table's rows to ranks.
//!
//! ```text
//! row groups, in the order of files:  0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6       cut where a rank has its share: beside a row group where that is near enough,
//! ranks:                              0   0 │ 1   1   1 │ 2   2       and within one otherwise
//! ```
//!
//! Each rank gets consecutive row groups, and all ranks get about as many bytes. The bytes of all
//! columns count, and each table is assigned by itself. So a rank scans the same rows of a table in
//! every query, and its device's cache holds them for the next one. If files are in the order of a
//! column, `ScanExtent::Range` over that column gives a rank about the same rows. Files that are
//! appended to a table move the cuts a little and leave most row groups where they are.
//!
//! If a table is in the order of a filtered column, all rows that pass may lie on one rank: the
//! last month of all days, for example. Then the remaining row groups are assigned anew, and ranks
//! read them even if other ranks have them in their caches.
//!
//! A row group is cut only if a rank would otherwise have far more or far less than its share. So
//! the ranks share a table of one row group, and no table has more cuts than ranks.
//!
//! Files of a rank's own (`{rank}` in a table's path) belong to that rank, however uneven that is.
//! The rank gets less of the other files in return.
//!
//! Invariants: the assignment is a pure function of the footers, of the row groups that pruning
//! leaves, and of the number of ranks. Each row belongs to one rank. Apart from its own files, no
//! rank exceeds an even share by more than an eighth of it, or by more than the least size that is
//! cut.
//!
//! Deliberately absent: pages, since footers do not say where they are. If a page has rows of two
//! ranks, both read it.

use std::ops::Range;

use crate::exchange::Rank;

/// A cut moves to a row group's boundary if that moves at most this part of a share.
const SHARE_PART_UNCUT: u64 = 16;
/// Or at most this many bytes: reading pages twice and more launches would cost more.
const CUT_BYTES_MIN: u64 = 16 << 10;
/// Or at most this many rows.
const CUT_ROWS_MIN: u64 = 128;
/// The remaining row groups are assigned anew if a rank has this many times its even share of them.
const UNEVEN_MAX: f64 = 1.25;

/// A row group, as far as the assignment needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowGroupSize {
    /// Of all of its columns, as they are in the file.
    pub(super) bytes: u64,
    pub(super) rows: u64,
    /// The rank whose own file it is in.
    pub(super) owner: Option<Rank>,
}

/// Rows of a row group, and the rank that scans them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AssignedRows {
    pub(super) rank: Rank,
    pub(super) rows: Range<u64>,
}

/// The ranges of each row group and their ranks: a list a row group, whose ranges are consecutive
/// and cover it. The list of a row group without rows is empty.
///
/// # Panics
///
/// If there are no ranks.
pub(super) fn assign(row_groups: &[RowGroupSize], rank_count: usize) -> Vec<Vec<AssignedRows>> {
    let mut assigner = Assigner::of(row_groups, rank_count);
    let of_size = |size: &RowGroupSize| match size.owner {
        _ if size.rows == 0 => Vec::new(),
        None => assigner.assign(*size),
        Some(rank) => vec![AssignedRows { rank, rows: 0..size.rows }],
    };
    row_groups.iter().map(of_size).collect()
}

/// Reassigns the row groups that pruning has `kept`. Returns `assigned` as it is if they are spread
/// evenly enough.
pub(super) fn reassign(
    row_groups: &[RowGroupSize],
    kept: &[bool],
    rank_count: usize,
    assigned: Vec<Vec<AssignedRows>>,
) -> Vec<Vec<AssignedRows>> {
    let is_kept = |place: usize| kept.get(place).copied().unwrap_or(true);
    let mut bytes = vec![0.0; rank_count];
    let left = row_groups.iter().zip(&assigned).enumerate().filter(|(place, _)| is_kept(*place));
    for (_, (size, parts)) in left {
        for part in parts {
            let share = (part.rows.end - part.rows.start) as f64 / size.rows.max(1) as f64;
            bytes[part.rank.place()] += weight(size) as f64 * share;
        }
    }
    let even = bytes.iter().sum::<f64>() / rank_count as f64;
    let most = bytes.iter().fold(0.0, |most: f64, bytes| most.max(*bytes));
    if most <= even * UNEVEN_MAX + CUT_BYTES_MIN as f64 {
        return assigned;
    }
    let none = |size: &RowGroupSize| RowGroupSize { rows: 0, bytes: 0, ..*size };
    let left = row_groups.iter().enumerate();
    let left: Vec<RowGroupSize> =
        left.map(|(place, size)| if is_kept(place) { *size } else { none(size) }).collect();
    assign(&left, rank_count)
}

/// The weight of a row group. Even one without bytes is assigned.
fn weight(size: &RowGroupSize) -> u64 {
    size.bytes.max(1)
}

/// Assigns row groups to ranks, one after another.
struct Assigner {
    /// Where the range of each rank but the last ends, in assigned bytes.
    ends: Vec<u128>,
    /// How far an end may move.
    uncut: u128,
    /// Bytes assigned so far.
    before: u128,
    /// The rank that gets the next bytes.
    rank: usize,
}

impl Assigner {
    fn of(row_groups: &[RowGroupSize], rank_count: usize) -> Self {
        assert!((1..=usize::from(u16::MAX)).contains(&rank_count), "ranks of a query");
        let ranks = rank_count as u128;
        let mut own = vec![0u128; rank_count];
        let mut total = 0u128;
        for size in row_groups.iter().filter(|size| size.rows > 0) {
            match size.owner {
                Some(rank) => own[rank.place()] += u128::from(weight(size)),
                None => total += u128::from(weight(size)),
            }
        }
        let share = (total + own.iter().sum::<u128>()) / ranks;
        // If a rank has more than its share already, the others get less than theirs.
        let quotas: Vec<u128> = own.iter().map(|own| share.saturating_sub(*own)).collect();
        let all = quotas.iter().sum::<u128>().max(1);
        let mut sum = 0;
        let ends = quotas[..rank_count - 1].iter().map(|quota| {
            sum += quota;
            scaled(total, sum, all)
        });
        let uncut = (total / ranks / u128::from(SHARE_PART_UNCUT)).max(u128::from(CUT_BYTES_MIN));
        Self { ends: ends.collect(), uncut, before: 0, rank: 0 }
    }

    fn assign(&mut self, size: RowGroupSize) -> Vec<AssignedRows> {
        let mut assigned = Vec::new();
        let mut start = 0;
        let after = self.before + u128::from(weight(&size));
        while let Some(end) = self.ends.get(self.rank).filter(|end| **end < after) {
            let cut = self.cut(&size, end.saturating_sub(self.before), start);
            if cut > start {
                assigned.push(AssignedRows { rank: Rank(self.rank as u16), rows: start..cut });
                start = cut;
            }
            self.rank += 1;
        }
        if start < size.rows {
            assigned.push(AssignedRows { rank: Rank(self.rank as u16), rows: start..size.rows });
        }
        self.before = after;
        assigned
    }

    /// The row before which to cut a row group whose first `bytes` belong to the rank, if so many
    /// of its rows are assigned already.
    fn cut(&self, size: &RowGroupSize, bytes: u128, assigned_rows: u64) -> u64 {
        let left = u128::from(weight(size)).saturating_sub(bytes);
        let row = scaled(u128::from(size.rows), bytes, u128::from(weight(size))) as u64;
        let is_near_start = bytes <= self.uncut || row < assigned_rows.saturating_add(CUT_ROWS_MIN);
        let is_near_end = left <= self.uncut || size.rows - row.min(size.rows) < CUT_ROWS_MIN;
        match (is_near_start, is_near_end) {
            (true, true) if bytes > left => size.rows,
            (true, _) => assigned_rows,
            (false, true) => size.rows,
            (false, false) => row,
        }
    }
}

/// `value × part / whole`, where the product may not fit.
fn scaled(value: u128, part: u128, whole: u128) -> u128 {
    match value.checked_mul(part) {
        Some(product) => product / whole,
        // Numbers of this size need no precision.
        None => (value as f64 * (part as f64 / whole as f64)) as u128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than the least size that is cut.
    const MB: u64 = 1 << 20;

    fn sized(sizes: &[u64]) -> Vec<RowGroupSize> {
        sizes.iter().map(|bytes| RowGroupSize { bytes: *bytes, rows: 100_000, owner: None }).collect()
    }

    /// Thousands of rows of each row group, by rank.
    fn assigned(sizes: &[u64], rank_count: usize) -> Vec<Vec<(u16, u64)>> {
        in_thousands(assign(&sized(sizes), rank_count))
    }

    fn in_thousands(assigned: Vec<Vec<AssignedRows>>) -> Vec<Vec<(u16, u64)>> {
        let part = |part: AssignedRows| (part.rank.0, (part.rows.end - part.rows.start) / 1000);
        assigned.into_iter().map(|parts| parts.into_iter().map(part).collect()).collect()
    }

    fn whole(ranks: &[u16]) -> Vec<Vec<(u16, u64)>> {
        ranks.iter().map(|rank| vec![(*rank, 100)]).collect()
    }

    #[test]
    fn row_groups_that_follow_one_another_are_on_one_rank() {
        assert_eq!(assigned(&[7 * MB; 6], 3), whole(&[0, 0, 1, 1, 2, 2]));
        assert_eq!(assigned(&[5 * MB; 3], 1), whole(&[0, 0, 0]));
        assert_eq!(assigned(&[MB, MB, MB, 9 * MB, 6 * MB, 6 * MB], 2), whole(&[0, 0, 0, 0, 1, 1]));
        assert!(assigned(&[], 4).is_empty());
    }

    #[test]
    fn what_is_too_little_for_a_cut_is_whole() {
        assert_eq!(assigned(&[5, 5], 4), whole(&[1, 3]));
        assert_eq!(assigned(&[0; 4], 2), whole(&[0, 0, 1, 1]));
        // A cut moves by half of a row group at most, which is less than a sixteenth of a share.
        assert_eq!(assigned(&[MB; 37], 3).concat().len(), 37);
        let few = [RowGroupSize { bytes: 100 * MB, rows: 200, owner: None }];
        assert_eq!(assign(&few, 4).concat().len(), 1);
        assert_eq!(assign(&[RowGroupSize::default()], 4), [[]]);
    }

    #[test]
    fn a_table_of_few_row_groups_is_on_all_ranks() {
        assert_eq!(assigned(&[8 * MB], 4), [[(0, 25), (1, 25), (2, 25), (3, 25)]]);
        assert_eq!(
            assigned(&[4 * MB; 5], 4),
            [
                vec![(0, 100)],
                vec![(0, 25), (1, 75)],
                vec![(1, 50), (2, 50)],
                vec![(2, 75), (3, 25)],
                vec![(3, 100)]
            ]
        );
    }

    #[test]
    fn sizes_of_any_magnitude_are_assigned() {
        let sizes = [10 * MB, 4 * MB, 4 * MB, 4 * MB, MB];
        assert_eq!(assigned(&sizes, 2)[..2], [vec![(0, 100)], vec![(0, 37), (1, 62)]]);
        assert_eq!(assigned(&sizes, 2)[2..], whole(&[1, 1, 1])[..]);
        assert_eq!(assigned(&[u64::MAX, u64::MAX, 1], 2), whole(&[0, 1, 1]));
    }

    #[test]
    fn what_is_a_ranks_own_is_its_and_others_have_more_of_the_rest() {
        let mut sizes = sized(&[6 * MB, 2 * MB, 2 * MB, 2 * MB, MB]);
        sizes[0].owner = Some(Rank(1));
        sizes[4] = RowGroupSize { owner: Some(Rank(1)), ..RowGroupSize::default() };
        let ranks = assign(&sizes, 2).into_iter().map(|parts| match &parts[..] {
            [] => None,
            parts => Some(parts.iter().map(|part| part.rank.0).collect::<Vec<_>>()),
        });
        let ranks: Vec<_> = ranks.collect();
        assert_eq!(ranks, [Some(vec![1]), Some(vec![0]), Some(vec![0]), Some(vec![0]), None]);
    }

    #[test]
    fn row_groups_left_on_one_rank_are_assigned_anew() {
        let sizes = sized(&[MB; 8]);
        let left = |kept: &[usize]| {
            let kept: Vec<bool> = (0..8).map(|place| kept.contains(&place)).collect();
            in_thousands(reassign(&sizes, &kept, 2, assign(&sizes, 2)))
        };
        let as_all = whole(&[0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(left(&[0, 1, 2, 3, 4, 5, 6, 7]), as_all);
        assert_eq!(left(&[2, 3, 4, 5]), as_all);
        assert_eq!(left(&[]), as_all);
        assert_eq!(left(&[4, 5, 6, 7])[4..], whole(&[0, 0, 1, 1])[..]);
        assert_eq!(left(&[7])[7], [(0, 50), (1, 50)]);
    }

    #[test]
    fn more_row_groups_leave_most_of_those_before_them_where_they_are() {
        let (few, more) = (assigned(&[9 * MB; 40], 4), assigned(&[9 * MB; 44], 4));
        assert!(few.iter().zip(&more).filter(|(few, more)| few != more).count() <= 6);
    }

    #[test]
    fn every_row_is_assigned_once_and_no_rank_has_far_more_than_its_share() {
        let mut random = 0x5eed_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for round in 0..400 {
            let (rank_count, count) = (1 + round % 9, next(30) as usize);
            let scale = [1, 1000, MB][round % 3];
            let sizes: Vec<RowGroupSize> = (0..count)
                .map(|_| RowGroupSize {
                    bytes: next(100) * scale,
                    rows: next(3) * next(100_000),
                    owner: None,
                })
                .collect();
            let kept: Vec<bool> = sizes.iter().map(|_| next(3) > 0).collect();
            let parts = assign(&sizes, rank_count);
            let left = reassign(&sizes, &kept, rank_count, parts.clone());
            let share_of = |kept: &dyn Fn(usize) -> bool| {
                let kept = sizes.iter().enumerate().filter(|(place, size)| kept(*place) && size.rows > 0);
                kept.map(|(_, size)| size.bytes.max(1)).sum::<u64>() as f64 / rank_count as f64
            };
            let most_of = |parts: &[Vec<AssignedRows>], kept: &dyn Fn(usize) -> bool| {
                let mut bytes = vec![0.0; rank_count];
                for (place, (size, parts)) in sizes.iter().zip(parts).enumerate() {
                    let mut end = 0;
                    for AssignedRows { rank, rows } in parts {
                        assert_eq!(rows.start, end);
                        assert!(rows.end > rows.start);
                        assert!(parts.len() == 1 || rows.end - rows.start >= CUT_ROWS_MIN);
                        end = rows.end;
                        let share = (rows.end - rows.start) as f64 / size.rows as f64;
                        bytes[rank.place()] +=
                            if kept(place) { size.bytes.max(1) as f64 * share } else { 0.0 };
                    }
                    assert_eq!(end, if kept(place) { size.rows } else { end });
                }
                bytes.into_iter().fold(0.0, f64::max)
            };
            assert!(parts.iter().filter(|parts| parts.len() > 1).count() <= rank_count);
            // A row group with too few rows for a cut stays whole, however many bytes it has.
            let few =
                sizes.iter().filter(|size| size.rows < 10_000).map(|size| size.bytes).max().unwrap_or(0);
            let room = 2.0 * CUT_BYTES_MIN as f64 + few as f64 + 2.0;
            let (all, most) = (share_of(&|_| true), most_of(&parts, &|_| true));
            assert!(most <= all * 1.13 + room, "round {round}: {most} of {all}: {sizes:?}");
            let is_kept = |place: usize| kept[place];
            let (all, most) = (share_of(&is_kept), most_of(&left, &is_kept));
            assert!(most <= all * UNEVEN_MAX + room, "round {round}: {most} of {all}: {sizes:?} {kept:?}");
        }
    }
}
