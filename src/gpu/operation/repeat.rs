//! Rows repeated by numbers of their own.
//!
//! ```text
//! numbers   2  NULL  0  3        repeats   0 0 3 3 3
//! counts    2   0    0  3        of number 1 2 1 2 3
//! offsets   0   2    2  2
//! ```
//!
//! A row may be repeated more often than there are row numbers. So rounds count up to [`REPEATED_ROUND`] repeats of each row, and the
//! repeats of a round come piece by piece.

use pystachio_plan::{DataType, Result};

use super::{
    Queue, RowNumbers,
    abi::{CountRepeats, REPEATED_ROUND, RepeatRows},
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// The repeats of some rows in one round.
pub struct Repeats {
    lasts: Column,
    row_count: usize,
    keeps_rows: bool,
    /// A `u64` a row: the repeats of the rows before it.
    offsets: Buffer,
    /// How many there are in this round.
    pub total: u64,
    /// Repeats of a row in the rounds before.
    before: u64,
    has_more: bool,
}

/// Repeating rows.
impl Queue {
    /// The repeats of each row for the numbers from 1 to its own, in the first round. `lasts`: `Int64`; a row without such numbers comes
    /// once if `keeps_rows`, else never. Waits for their count.
    pub fn count_repeats(&self, lasts: Column, row_count: usize, keeps_rows: bool) -> Result<Repeats> {
        self.repeats_from(lasts, row_count, keeps_rows, 0)
    }

    /// The repeats of the same rows in the next round; `None` after the last one. Waits as often.
    pub fn next_repeats(&self, repeats: Repeats) -> Result<Option<Repeats>> {
        let Repeats { lasts, row_count, keeps_rows, before, has_more, .. } = repeats;
        match has_more {
            true => self.repeats_from(lasts, row_count, keeps_rows, before + REPEATED_ROUND).map(Some),
            false => Ok(None),
        }
    }

    /// Some of the repeats of a round: the row of each, and its number, which is NULL for a row that has none.
    pub fn repeat(&self, repeats: &Repeats, first: u64, count: usize) -> Result<(RowNumbers, Column)> {
        debug_assert!(first + count as u64 <= repeats.total);
        let rows = self.allocate::<u32>(count as u64)?;
        let numbers = Column {
            data_type: DataType::Int64,
            cell_type: CellType::Int64,
            values: self.allocate::<i64>(count as u64)?,
            validity: repeats.keeps_rows.then(|| self.allocate::<u8>(count as u64)).transpose()?,
            strings: Vec::new(),
        };
        let arguments = RepeatRows {
            offsets: repeats.offsets.address(),
            row_count: repeats.row_count as u64,
            first,
            count: count as u64,
            rows: rows.address(),
            numbers: numbers.values.address(),
            validity: numbers.validity.as_ref().map_or(0, Buffer::address),
            lasts: repeats.lasts.view(),
            before: repeats.before,
        };
        self.launch_strided(Kernel::RepeatRows, count as u64, &arguments)?;
        self.poison_nulls(&numbers, count);
        Ok((RowNumbers { rows, count, may_miss: false, is_every_row: false }, numbers))
    }

    fn repeats_from(
        &self,
        lasts: Column,
        row_count: usize,
        keeps_rows: bool,
        before: u64,
    ) -> Result<Repeats> {
        debug_assert_eq!(lasts.cell_type, CellType::Int64);
        let counts = self.allocate::<u32>(row_count as u64)?;
        let more = self.zeros::<u32>(1)?;
        let arguments = CountRepeats {
            lasts: lasts.view(),
            counts: counts.address(),
            more: more.address(),
            row_count: row_count as u64,
            before,
            keeps_rows: keeps_rows.into(),
            reserved: 0,
        };
        self.launch_strided(Kernel::CountRepeats, row_count as u64, &arguments)?;
        let more = self.memory().post::<u32>(more.address(), 1, self.stream())?;
        let (offsets, total) = self.offsets(&counts, 4, row_count)?;
        let has_more = more.wait::<u32>(1)?.first().is_some_and(|more| *more != 0);
        Ok(Repeats { lasts, row_count, keeps_rows, offsets, total, before, has_more })
    }
}
