//! Which rows of a table each rank scans.
//!
//! ```text
//! row groups, in the order of files:  0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6       cut where a rank has its share: beside a row group where that is near enough,
//! ranks:                              0   0 │ 1   1   1 │ 2   2       and within one otherwise
//! ```
//!
//! A rank has row groups that follow one another, and all ranks as many bytes. They are dealt by what they have in all of their columns, and each
//! table by itself: a rank has the same rows of a table in every query, so that what its device's cache keeps of them is there for the
//! next. Where files are in the order of some column, these are also about the rows that the rank has if the table is dealt by ranges of that column
//! (`ScanExtent::Range`). Files that come to a table behind the others move the cuts a little, and leave most row groups where they are.
//!
//! What conditions leave of a table that is in the order of what they ask for, the last month of all days, may lie on one rank. What is left is
//! dealt by itself then, and read again by those who did not have it.
//!
//! A row group is cut only where the rank would have far more than its share, or less: so a table of one row group is on all ranks, and no table
//! has more cuts than ranks.
//!
//! Files that are a rank's own (`{rank}` in a table's path) are that rank's, however uneven that is; of the others it has so much less.
//!
//! Invariants: a pure function of the footers, of which row groups conditions leave, and the number of ranks. Each row is dealt to one rank. But for files of
//! its own no rank has more than an even share by more than an eighth of that, or than what is too little for a cut.
//!
//! Deliberately absent: pages, whose places footers do not tell. A page that has rows of two ranks both of them read.

use std::ops::Range;

use crate::exchange::Rank;

/// A cut goes beside a row group rather than through it where it moves by such a part of a share at most.
const SHARE_PART_UNCUT: u64 = 16;
/// Or by so few bytes: the pages that two ranks read then, and the launches, would be more.
const CUT_BYTES_MIN: u64 = 16 << 10;
/// Or by so few rows.
const CUT_ROWS_MIN: u64 = 128;
/// What conditions leave is dealt by itself where a rank has so many times its even share of it.
const UNEVEN_MAX: f64 = 1.25;

/// A row group, as far as dealing looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowGroupSize {
    /// Of all of its columns, as they are in the file.
    pub(super) bytes: u64,
    pub(super) rows: u64,
    /// The rank that has it for itself.
    pub(super) owner: Option<Rank>,
}

/// Rows of a row group, and the rank that scans them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DealtRows {
    pub(super) rank: Rank,
    pub(super) rows: Range<u64>,
}

/// Who scans which rows of row groups: a list a row group, whose ranges follow one another and are all of its rows. One without
/// rows is dealt to nobody.
///
/// # Panics
///
/// If there are no ranks.
pub(super) fn deal(row_groups: &[RowGroupSize], rank_count: usize) -> Vec<Vec<DealtRows>> {
    let mut dealer = Dealer::of(row_groups, rank_count);
    let of_size = |size: &RowGroupSize| match size.owner {
        _ if size.rows == 0 => Vec::new(),
        None => dealer.deal(*size),
        Some(rank) => vec![DealtRows { rank, rows: 0..size.rows }],
    };
    row_groups.iter().map(of_size).collect()
}

/// The same, where of the row groups those are left that are `kept`, if all were `dealt` so: as it was, if what is left is spread evenly enough,
/// and else by what is left alone.
pub(super) fn deal_what_is_left(
    row_groups: &[RowGroupSize],
    kept: &[bool],
    rank_count: usize,
    dealt: Vec<Vec<DealtRows>>,
) -> Vec<Vec<DealtRows>> {
    let is_kept = |place: usize| kept.get(place).copied().unwrap_or(true);
    let mut bytes = vec![0.0; rank_count];
    let left = row_groups.iter().zip(&dealt).enumerate().filter(|(place, _)| is_kept(*place));
    for (_, (size, parts)) in left {
        for part in parts {
            let share = (part.rows.end - part.rows.start) as f64 / size.rows.max(1) as f64;
            bytes[part.rank.place()] += weight(size) as f64 * share;
        }
    }
    let even = bytes.iter().sum::<f64>() / rank_count as f64;
    let most = bytes.iter().fold(0.0, |most: f64, bytes| most.max(*bytes));
    if most <= even * UNEVEN_MAX + CUT_BYTES_MIN as f64 {
        return dealt;
    }
    let none = |size: &RowGroupSize| RowGroupSize { rows: 0, bytes: 0, ..*size };
    let left = row_groups.iter().enumerate();
    let left: Vec<RowGroupSize> =
        left.map(|(place, size)| if is_kept(place) { *size } else { none(size) }).collect();
    deal(&left, rank_count)
}

/// What a row group counts for. What has no bytes is dealt all the same.
fn weight(size: &RowGroupSize) -> u64 {
    size.bytes.max(1)
}

/// Deals row groups one after another.
struct Dealer {
    /// Where each rank but the last ends, in bytes of what is dealt.
    ends: Vec<u128>,
    /// How far an end may move.
    uncut: u128,
    /// Bytes dealt so far.
    before: u128,
    /// Who is being dealt to.
    rank: usize,
}

impl Dealer {
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
        // Where a rank has more than its share already, the others get less than theirs.
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

    fn deal(&mut self, size: RowGroupSize) -> Vec<DealtRows> {
        let mut dealt = Vec::new();
        let mut start = 0;
        let after = self.before + u128::from(weight(&size));
        while let Some(end) = self.ends.get(self.rank).filter(|end| **end < after) {
            let cut = self.cut(&size, end.saturating_sub(self.before), start);
            if cut > start {
                dealt.push(DealtRows { rank: Rank(self.rank as u16), rows: start..cut });
                start = cut;
            }
            self.rank += 1;
        }
        if start < size.rows {
            dealt.push(DealtRows { rank: Rank(self.rank as u16), rows: start..size.rows });
        }
        self.before = after;
        dealt
    }

    /// The row before which a row group is cut whose first `bytes` are for the rank, if so many of its rows are dealt already.
    fn cut(&self, size: &RowGroupSize, bytes: u128, dealt_rows: u64) -> u64 {
        let left = u128::from(weight(size)).saturating_sub(bytes);
        let row = scaled(u128::from(size.rows), bytes, u128::from(weight(size))) as u64;
        let is_near_start = bytes <= self.uncut || row < dealt_rows.saturating_add(CUT_ROWS_MIN);
        let is_near_end = left <= self.uncut || size.rows - row.min(size.rows) < CUT_ROWS_MIN;
        match (is_near_start, is_near_end) {
            (true, true) if bytes > left => size.rows,
            (true, _) => dealt_rows,
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

    /// More than the least that is cut.
    const MB: u64 = 1 << 20;

    fn sized(sizes: &[u64]) -> Vec<RowGroupSize> {
        sizes.iter().map(|bytes| RowGroupSize { bytes: *bytes, rows: 100_000, owner: None }).collect()
    }

    /// Who has how many thousands of the rows of each row group.
    fn dealt(sizes: &[u64], rank_count: usize) -> Vec<Vec<(u16, u64)>> {
        in_thousands(deal(&sized(sizes), rank_count))
    }

    fn in_thousands(dealt: Vec<Vec<DealtRows>>) -> Vec<Vec<(u16, u64)>> {
        let part = |part: DealtRows| (part.rank.0, (part.rows.end - part.rows.start) / 1000);
        dealt.into_iter().map(|parts| parts.into_iter().map(part).collect()).collect()
    }

    fn whole(ranks: &[u16]) -> Vec<Vec<(u16, u64)>> {
        ranks.iter().map(|rank| vec![(*rank, 100)]).collect()
    }

    #[test]
    fn row_groups_that_follow_one_another_are_on_one_rank() {
        assert_eq!(dealt(&[7 * MB; 6], 3), whole(&[0, 0, 1, 1, 2, 2]));
        assert_eq!(dealt(&[5 * MB; 3], 1), whole(&[0, 0, 0]));
        assert_eq!(dealt(&[MB, MB, MB, 9 * MB, 6 * MB, 6 * MB], 2), whole(&[0, 0, 0, 0, 1, 1]));
        assert!(dealt(&[], 4).is_empty());
    }

    #[test]
    fn what_is_too_little_for_a_cut_is_whole() {
        assert_eq!(dealt(&[5, 5], 4), whole(&[1, 3]));
        assert_eq!(dealt(&[0; 4], 2), whole(&[0, 0, 1, 1]));
        // A cut moves by half of a row group at most, which is less than a sixteenth of a share.
        assert_eq!(dealt(&[MB; 37], 3).concat().len(), 37);
        let few = [RowGroupSize { bytes: 100 * MB, rows: 200, owner: None }];
        assert_eq!(deal(&few, 4).concat().len(), 1);
        assert_eq!(deal(&[RowGroupSize::default()], 4), [[]]);
    }

    #[test]
    fn a_table_of_few_row_groups_is_on_all_ranks() {
        assert_eq!(dealt(&[8 * MB], 4), [[(0, 25), (1, 25), (2, 25), (3, 25)]]);
        assert_eq!(
            dealt(&[4 * MB; 5], 4),
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
    fn sizes_of_any_magnitude_are_dealt() {
        let sizes = [10 * MB, 4 * MB, 4 * MB, 4 * MB, MB];
        assert_eq!(dealt(&sizes, 2)[..2], [vec![(0, 100)], vec![(0, 37), (1, 62)]]);
        assert_eq!(dealt(&sizes, 2)[2..], whole(&[1, 1, 1])[..]);
        assert_eq!(dealt(&[u64::MAX, u64::MAX, 1], 2), whole(&[0, 1, 1]));
    }

    #[test]
    fn what_is_a_ranks_own_is_its_and_others_have_more_of_the_rest() {
        let mut sizes = sized(&[6 * MB, 2 * MB, 2 * MB, 2 * MB, MB]);
        sizes[0].owner = Some(Rank(1));
        sizes[4] = RowGroupSize { owner: Some(Rank(1)), ..RowGroupSize::default() };
        let ranks = deal(&sizes, 2).into_iter().map(|parts| match &parts[..] {
            [] => None,
            parts => Some(parts.iter().map(|part| part.rank.0).collect::<Vec<_>>()),
        });
        let ranks: Vec<_> = ranks.collect();
        assert_eq!(ranks, [Some(vec![1]), Some(vec![0]), Some(vec![0]), Some(vec![0]), None]);
    }

    #[test]
    fn what_conditions_leave_on_one_rank_is_dealt_anew() {
        let sizes = sized(&[MB; 8]);
        let left = |kept: &[usize]| {
            let kept: Vec<bool> = (0..8).map(|place| kept.contains(&place)).collect();
            in_thousands(deal_what_is_left(&sizes, &kept, 2, deal(&sizes, 2)))
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
        let (few, more) = (dealt(&[9 * MB; 40], 4), dealt(&[9 * MB; 44], 4));
        assert!(few.iter().zip(&more).filter(|(few, more)| few != more).count() <= 6);
    }

    #[test]
    fn every_row_is_dealt_once_and_no_rank_has_far_more_than_its_share() {
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
            let parts = deal(&sizes, rank_count);
            let left = deal_what_is_left(&sizes, &kept, rank_count, parts.clone());
            let share_of = |kept: &dyn Fn(usize) -> bool| {
                let kept = sizes.iter().enumerate().filter(|(place, size)| kept(*place) && size.rows > 0);
                kept.map(|(_, size)| size.bytes.max(1)).sum::<u64>() as f64 / rank_count as f64
            };
            let most_of = |parts: &[Vec<DealtRows>], kept: &dyn Fn(usize) -> bool| {
                let mut bytes = vec![0.0; rank_count];
                for (place, (size, parts)) in sizes.iter().zip(parts).enumerate() {
                    let mut end = 0;
                    for DealtRows { rank, rows } in parts {
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
            // A row group that has too few rows for a cut is whole, whatever it weighs.
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
