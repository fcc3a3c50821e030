//! Which rows of a table each rank scans.
//!
//! ```text
//! row groups, in the order of files:  0   1   2   3   4   5   6      each to the rank that has the fewest bytes so far,
//! ranks:                              1   2   0   1   2   0   1 2 0  and what does not fit into its share to the next one
//! ```
//!
//! All row groups are dealt, also those that a query's conditions rule out, by what they have in all of their columns, and each
//! table by itself: a rank has the same rows of a table in every query, so that what its device's cache keeps of them is there for the
//! next. What conditions leave of a table may so be less evenly spread than all of it; but row groups side by side go to
//! different ranks, so that what they leave of a sorted table is spread too. Files that come to a table behind the others leave
//! nearly all row groups where they are.
//!
//! Every rank's share is even. As a list is wrapped around machines, a row group that a rank has no room for is cut where the rank is full, and
//! the rest goes on to others: so a table of one row group is on all ranks, and no table has more cuts than ranks. What is too little for a cut stays
//! with its row group, and which rank has it differs from table to table, as the one does that begins.
//!
//! Files that are a rank's own (`{rank}` in a table's path) are that rank's, however uneven that is; of the others it has so much less.
//!
//! Invariants: a pure function of the footers, the table's paths and the number of ranks. Each row is dealt to one rank. But for files of its own no rank has more than
//! an even share by more than an eighth of that, or than what is too little for a cut.
//!
//! Deliberately absent: pages, whose places footers do not tell. A page that has rows of two ranks both of them read.
//!
//! Source: McNaughton, "Scheduling with Deadlines and Loss Functions", Management Science 1959, theorem 3.1 (wrap-around). We differ:
//! whole row groups come first, and small excesses are not cut.

use std::ops::Range;

use pystachio_plan::FileSet;

use crate::exchange::Rank;

/// What is more than a rank's share by such a part of it is not cut off.
const SHARE_PART_UNCUT: u64 = 8;
/// Nor what has fewer bytes: the pages that two ranks read then, and the launches, would be more.
const CUT_BYTES_MIN: u64 = 16 << 10;
/// Nor fewer rows.
const CUT_ROWS_MIN: u64 = 128;

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

/// The rank that the first row group of a table goes to: another for other paths, where that is as even.
///
/// # Panics
///
/// If there are no ranks.
pub(super) fn first_rank(files: &FileSet, rank_count: usize) -> Rank {
    // FNV-1a: the same on every host.
    let bytes = files.paths.iter().flat_map(|path| path.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The upper bits are mixed best.
    Rank(((hash >> 32) % rank_count as u64) as u16)
}

/// Who scans which rows of row groups: a list a row group, whose ranges follow one another and are all of its rows. One without
/// rows is dealt to nobody.
///
/// # Panics
///
/// If there are no ranks.
pub(super) fn deal(row_groups: &[RowGroupSize], rank_count: usize, first: Rank) -> Vec<Vec<DealtRows>> {
    assert!((1..=usize::from(u16::MAX)).contains(&rank_count), "ranks of a query");
    let with_rows = row_groups.iter().filter(|size| size.rows > 0);
    let total = with_rows.fold(0u64, |total, size| total.saturating_add(size.bytes));
    let mut hands = Hands {
        bytes: vec![0; rank_count],
        first: first.place() % rank_count,
        share: total.div_ceil(rank_count as u64),
        uncut: (total / rank_count as u64 / SHARE_PART_UNCUT).max(CUT_BYTES_MIN),
    };
    for (size, owner) in row_groups.iter().filter_map(|size| Some((size, size.owner?))) {
        hands.add(owner.place(), size.bytes);
    }
    let of_size = |size: &RowGroupSize| match size.owner {
        None => hands.deal(*size),
        Some(_) if size.rows == 0 => Vec::new(),
        Some(rank) => vec![DealtRows { rank, rows: 0..size.rows }],
    };
    row_groups.iter().map(of_size).collect()
}

/// What ranks have so far.
struct Hands {
    bytes: Vec<u64>,
    /// Who goes first of those that have as much.
    first: usize,
    /// What each is to have.
    share: u64,
    /// What a rank may have beyond that.
    uncut: u64,
}

impl Hands {
    fn deal(&mut self, size: RowGroupSize) -> Vec<DealtRows> {
        let mut dealt: Vec<DealtRows> = Vec::new();
        let mut left = size;
        while left.rows > 0 {
            let place = self.least();
            let room = self.share.saturating_sub(self.bytes[place]);
            let taken = left.first_part(room.max(CUT_BYTES_MIN), self.uncut);
            self.add(place, taken.bytes);
            let start = size.rows - left.rows;
            dealt.push(DealtRows { rank: Rank(place as u16), rows: start..start + taken.rows });
            left = RowGroupSize { bytes: left.bytes - taken.bytes, rows: left.rows - taken.rows, ..left };
        }
        dealt
    }

    fn add(&mut self, place: usize, bytes: u64) {
        // What has no bytes is dealt all the same, in turn.
        self.bytes[place] = self.bytes[place].saturating_add(bytes.max(1));
    }

    /// The rank that has least.
    fn least(&self) -> usize {
        let count = self.bytes.len();
        let places = (0..count).map(|turn| (self.first + turn) % count);
        places.min_by_key(|place| self.bytes[*place]).unwrap_or(0)
    }
}

impl RowGroupSize {
    /// The first rows, of so many bytes, or all of them where what is left were too little for a cut.
    fn first_part(self, bytes: u64, uncut: u64) -> Self {
        if self.bytes <= bytes.saturating_add(uncut) {
            return self;
        }
        let rows = u128::from(self.rows) * u128::from(bytes) / u128::from(self.bytes);
        let rows = (rows as u64).max(CUT_ROWS_MIN);
        if rows.saturating_add(CUT_ROWS_MIN) > self.rows {
            return self;
        }
        let bytes = u128::from(self.bytes) * u128::from(rows) / u128::from(self.rows);
        Self { bytes: bytes as u64, rows, ..self }
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
    fn dealt(sizes: &[u64], rank_count: usize, first: u16) -> Vec<Vec<(u16, u64)>> {
        let part = |part: DealtRows| (part.rank.0, (part.rows.end - part.rows.start) / 1000);
        let dealt = deal(&sized(sizes), rank_count, Rank(first)).into_iter();
        dealt.map(|parts| parts.into_iter().map(part).collect()).collect()
    }

    fn whole(ranks: &[u16]) -> Vec<Vec<(u16, u64)>> {
        ranks.iter().map(|rank| vec![(*rank, 100)]).collect()
    }

    #[test]
    fn row_groups_of_one_size_are_dealt_in_turn_from_the_first_rank() {
        assert_eq!(dealt(&[7 * MB; 6], 3, 0), whole(&[0, 1, 2, 0, 1, 2]));
        assert_eq!(dealt(&[7 * MB; 6], 3, 1), whole(&[1, 2, 0, 1, 2, 0]));
        assert_eq!(dealt(&[0; 4], 2, 1), whole(&[1, 0, 1, 0]));
        assert_eq!(dealt(&[5 * MB; 3], 1, 0), whole(&[0, 0, 0]));
        assert!(dealt(&[], 4, 0).is_empty());
    }

    #[test]
    fn what_is_too_little_for_a_cut_is_whole() {
        assert_eq!(dealt(&[5, 5], 4, 3), whole(&[3, 0]));
        // One of twelve is less than an eighth of a share.
        assert_eq!(dealt(&[MB; 37], 3, 0).concat().len(), 37);
        let few = [RowGroupSize { bytes: 100 * MB, rows: 200, owner: None }];
        assert_eq!(deal(&few, 4, Rank(2)), [[DealtRows { rank: Rank(2), rows: 0..200 }]]);
        assert_eq!(deal(&[RowGroupSize::default()], 4, Rank(0)), [[]]);
    }

    #[test]
    fn a_table_of_few_row_groups_is_on_all_ranks() {
        assert_eq!(dealt(&[8 * MB], 4, 1), [[(1, 25), (2, 25), (3, 25), (0, 25)]]);
        assert_eq!(
            dealt(&[4 * MB; 5], 4, 0),
            [
                vec![(0, 100)],
                vec![(1, 100)],
                vec![(2, 100)],
                vec![(3, 100)],
                vec![(0, 25), (1, 25), (2, 25), (3, 25)]
            ]
        );
    }

    #[test]
    fn a_large_row_group_leaves_small_ones_to_others() {
        assert_eq!(dealt(&[10 * MB, 4 * MB, 4 * MB, 4 * MB, MB], 2, 0)[1..4], whole(&[1, 1, 1])[..]);
        assert_eq!(dealt(&[u64::MAX, u64::MAX, 1], 2, 0)[2].len(), 1);
    }

    #[test]
    fn what_is_a_ranks_own_is_its_and_others_have_more_of_the_rest() {
        let mut sizes = sized(&[6 * MB, 2 * MB, 2 * MB, 2 * MB, MB]);
        sizes[0].owner = Some(Rank(1));
        sizes[4] = RowGroupSize { owner: Some(Rank(1)), ..RowGroupSize::default() };
        let ranks = deal(&sizes, 2, Rank(0)).into_iter().map(|parts| match &parts[..] {
            [] => None,
            parts => Some(parts.iter().map(|part| part.rank.0).collect::<Vec<_>>()),
        });
        let ranks: Vec<_> = ranks.collect();
        assert_eq!(ranks, [Some(vec![1]), Some(vec![0]), Some(vec![0]), Some(vec![0]), None]);
    }

    #[test]
    fn tables_begin_at_different_ranks() {
        let begins = |path: String| first_rank(&FileSet { paths: vec![path] }, 4).0;
        let mut counts = [0; 4];
        (0..100).for_each(|table| counts[usize::from(begins(format!("/data/t{table}.parquet")))] += 1);
        assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
        // Other hosts and later versions begin there too.
        assert_eq!(begins("/data/lineitem.parquet".to_owned()), 0);
    }

    #[test]
    fn more_row_groups_leave_those_before_them_where_they_are() {
        let sizes = [9 * MB; 40];
        assert_eq!(dealt(&sizes, 4, 2)[..36], dealt(&sizes[..36], 4, 2)[..]);
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
            let parts = deal(&sizes, rank_count, Rank(next(rank_count as u64) as u16));
            let mut bytes = vec![0.0; rank_count];
            for (size, parts) in sizes.iter().zip(&parts) {
                let mut end = 0;
                for DealtRows { rank, rows } in parts {
                    assert_eq!(rows.start, end);
                    assert!(rows.end > rows.start);
                    assert!(parts.len() == 1 || rows.end - rows.start >= CUT_ROWS_MIN);
                    end = rows.end;
                    let share = (rows.end - rows.start) as f64 / size.rows as f64;
                    bytes[rank.place()] += size.bytes as f64 * share;
                }
                assert_eq!(end, size.rows);
            }
            assert!(parts.iter().filter(|parts| parts.len() > 1).count() <= rank_count);
            let total: f64 = bytes.iter().sum();
            let share = total / rank_count as f64;
            // A row group that has too few rows for a cut is whole, whatever it weighs.
            let few =
                sizes.iter().filter(|size| size.rows < 10_000).map(|size| size.bytes).max().unwrap_or(0);
            let most = bytes.iter().fold(0.0, |most: f64, bytes| most.max(*bytes));
            let room = (share / 8.0).max(CUT_BYTES_MIN as f64) + CUT_BYTES_MIN as f64 + few as f64;
            assert!(most <= share + room, "round {round}: {bytes:?} of {sizes:?}");
        }
    }
}
