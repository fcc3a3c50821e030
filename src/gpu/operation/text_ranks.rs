//! Ranks of texts, so that long ones are sorted as numbers.
//!
//! A round compares every undecided text with one of its group over a stretch of bytes, and sorts
//! the groups by the results. Texts that are alone in their group, or equal to all of it, are
//! decided.
//!
//! ```text
//! group ─► where each text leaves the leader, and the bytes there ─► sorted ─► smaller groups ─► those that go on
//! ```
//!
//! Invariants: each byte of a text is compared in one round, so all rounds together read no more
//! than the common prefixes; a launch reads a bounded amount, however long the texts are.

use pystachio_plan::{DataType, Result};

use super::{
    Queue, RowNumbers, SortColumn,
    abi::{CompareTexts, TEXT_STRETCH_MAX, TextGroups},
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// Bytes that a launch compares, unless the texts are more than [`STRETCH_MIN`] allows.
const LAUNCH_BYTES: u64 = 256 << 20;
/// Bytes of a text that a launch compares at least.
const STRETCH_MIN: u64 = 64;

/// The undecided texts, group by group.
struct Undecided {
    rows: Buffer,
    /// Bytes known to be equal in all texts of the group.
    shared: Buffer,
    /// `None`: all are one group, and nothing is known of its texts.
    groups: Option<PlaceGroups>,
    count: usize,
}

/// The start of each place's group, and the place of its leader.
struct PlaceGroups {
    firsts: Buffer,
    leaders: Buffer,
}

impl Queue {
    /// How many texts come before each, as numbers that are NULL if the text is. Equal texts have
    /// equal numbers. Waits.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::sort`].
    pub(super) fn text_ranks(&self, texts: &Column, row_count: usize) -> Result<Column> {
        let ranks = self.allocate_filled::<i64>(row_count as u64, 0)?;
        let RowNumbers { rows, count, .. } = match &texts.validity {
            Some(validity) => self.select(validity, row_count)?,
            None => self.cross(0, row_count, row_count)?.build,
        };
        let shared = self.allocate::<u32>(count as u64)?;
        let mut undecided = Undecided { rows, shared, groups: None, count };
        while undecided.count > 1 {
            undecided = self.next_round(texts, undecided, &ranks)?;
        }
        Ok(Column {
            data_type: DataType::Int64,
            cell_type: CellType::Int64,
            values: ranks,
            validity: texts.validity.clone(),
            strings: Vec::new(),
        })
    }

    /// Decides more of the texts, and returns the others.
    fn next_round(&self, texts: &Column, undecided: Undecided, ranks: &Buffer) -> Result<Undecided> {
        let count = undecided.count;
        let address =
            |of: fn(&PlaceGroups) -> &Buffer| undecided.groups.as_ref().map_or(0, |all| of(all).address());
        let group_words = self.words_column(count)?;
        let text_words = self.words_column(count)?;
        let compared = CompareTexts {
            cells: texts.values.address(),
            rows: undecided.rows.address(),
            leaders: address(|groups| &groups.leaders),
            groups: address(|groups| &groups.firsts),
            shared: undecided.shared.address(),
            group_words: group_words.values.address(),
            text_words: text_words.values.address(),
            count: count as u64,
            bytes_max: (LAUNCH_BYTES / count as u64).clamp(STRETCH_MIN, TEXT_STRETCH_MAX - 1) as u32,
            reserved: 0,
        };
        self.launch_strided(Kernel::CompareTexts, count as u64, &compared)?;
        let ascending =
            |column: &Column| SortColumn { column: column.clone(), descending: false, nulls_first: false };
        let order = self.sort(&[ascending(&group_words), ascending(&text_words)], count)?;
        let starts = self.allocate::<u8>(count as u64)?;
        let kept = self.allocate::<u8>(count as u64)?;
        let mut arguments = TextGroups {
            rows: compared.rows,
            groups: compared.groups,
            shared: compared.shared,
            group_words: compared.group_words,
            text_words: compared.text_words,
            order: order.rows.address(),
            starts: starts.address(),
            ranks: ranks.address(),
            kept: kept.address(),
            count: count as u64,
            ..TextGroups::default()
        };
        self.launch_strided(Kernel::MarkTextGroups, count as u64, &arguments)?;
        let (firsts, starts_before) = self.select_and_sum(&starts, count)?;
        arguments.firsts = firsts.rows.address();
        arguments.group_count = firsts.count as u64;
        arguments.starts_before = starts_before.address();
        self.launch_strided(Kernel::RankTextGroups, count as u64, &arguments)?;
        let (places, kept_before) = self.select_and_sum(&kept, count)?;
        let next = Undecided {
            rows: self.allocate::<u32>(places.count as u64)?,
            shared: self.allocate::<u32>(places.count as u64)?,
            groups: None,
            count: places.count,
        };
        let groups = PlaceGroups {
            firsts: self.allocate::<u32>(places.count as u64)?,
            leaders: self.allocate::<u32>(places.count as u64)?,
        };
        arguments.kept_before = kept_before.address();
        arguments.kept_places = places.rows.address();
        arguments.kept_rows = next.rows.address();
        arguments.kept_groups = groups.firsts.address();
        arguments.kept_leaders = groups.leaders.address();
        arguments.kept_shared = next.shared.address();
        arguments.kept_count = places.count as u64;
        self.launch_strided(Kernel::KeepTextGroups, places.count as u64, &arguments)?;
        Ok(Undecided { groups: Some(groups), ..next })
    }

    fn words_column(&self, count: usize) -> Result<Column> {
        Ok(Column {
            data_type: DataType::Int64,
            cell_type: CellType::Int64,
            values: self.allocate::<i64>(count as u64)?,
            validity: None,
            strings: Vec::new(),
        })
    }

    /// The places of flags that are set, and how many are set before each.
    fn select_and_sum(&self, flags: &Buffer, count: usize) -> Result<(RowNumbers, Buffer)> {
        let mut before = None;
        let places = self.select_numbered(flags, count, |sums| {
            before = Some(sums.clone());
            Ok(())
        })?;
        match before {
            Some(before) => Ok((places, before)),
            None => Ok((places, self.allocate::<u64>(0)?)),
        }
    }
}
