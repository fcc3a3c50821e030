//! Repeats each row once for each number from 1 to the row's own count. EXCEPT ALL and INTERSECT
//! ALL need that.
//!
//! ```text
//! a, b, 2      a, b, 2, 1
//! c, d, 0  ──► a, b, 2, 2
//! e, f, 1      e, f, 1, 1
//! ```
//!
//! Invariants: a chunk has as many repeats as memory has room for, even of a single row. Between
//! two chunks the driver polls whether they are still needed.

use pystachio_plan::Result;

use super::{CountedSource, Driver, Source, expressions::RowProgram};
use crate::{
    device::{AnyColumn, Rows},
    operation::Repeats,
};

/// Upper bound of the repeats of a chunk, whatever memory there is.
const REPEATS_MAX: u64 = 8 << 20;
/// Bytes of a repeat beside the row that it copies: the row's number, and its own once for each column that has it.
const REPEAT_BYTES: u64 = 4;
const NUMBER_BYTES: u64 = 9;

/// The rows of an input, repeated.
pub(super) struct RepeatSource {
    input: CountedSource,
    /// The last number of each row.
    last: RowProgram,
    /// How many columns behind the input's have the number of a repeat.
    number_columns: usize,
    /// Whether a row without numbers comes once.
    keeps_rows: bool,
    repeating: Option<Repeating>,
}

/// Rows whose repeats are on their way out.
struct Repeating {
    rows: Rows,
    repeats: Repeats,
    /// The next one of the round.
    next: u64,
}

impl RepeatSource {
    /// `last` gives one column, an `Int64`.
    pub(super) fn new(
        input: CountedSource,
        last: RowProgram,
        number_columns: usize,
        keeps_rows: bool,
    ) -> Self {
        Self { input, last, number_columns, keeps_rows, repeating: None }
    }

    /// Begins with the next rows of the input; false after the last.
    fn begin(&mut self, driver: &mut Driver) -> Result<bool> {
        let Some(rows) = self.input.next(driver)? else { return Ok(false) };
        let queue = &driver.queue;
        if let Some(last) = self.last.evaluate_cells(queue, &rows)?.pop() {
            let repeats = queue.count_repeats(last, rows.row_count, self.keeps_rows)?;
            self.repeating = Some(Repeating { rows, repeats, next: 0 });
        }
        Ok(true)
    }

    /// Repeats for which there is room, at least one.
    fn repeats_max(&self, driver: &Driver, rows: &Rows) -> u64 {
        let number_bytes = NUMBER_BYTES * self.number_columns.max(1) as u64;
        let row_bytes: u64 = rows.columns.iter().map(|column| u64::from(column.row_bytes())).sum();
        let room = driver.query.memory.chunk_bytes() / (row_bytes + number_bytes + REPEAT_BYTES);
        room.clamp(1, REPEATS_MAX)
    }
}

impl Source for RepeatSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        loop {
            driver.check_cancelled()?;
            let Some(Repeating { rows, repeats, next }) = self.repeating.take() else {
                if self.begin(driver)? {
                    continue;
                }
                return Ok(None);
            };
            let queue = &driver.queue;
            if next == repeats.total {
                let repeats = queue.next_repeats(repeats)?;
                self.repeating = repeats.map(|repeats| Repeating { rows, repeats, next: 0 });
                continue;
            }
            let count = (repeats.total - next).min(self.repeats_max(driver, &rows));
            let (numbers, number) = queue.repeat(&repeats, next, count as usize)?;
            let mut repeated = queue.gather_rows(&rows, &numbers)?;
            let number = (0..self.number_columns).map(|_| AnyColumn::Cells(number.clone()));
            repeated.columns.extend(number);
            self.repeating = Some(Repeating { rows, repeats, next: next + count });
            return Ok(Some(repeated));
        }
    }

    fn expect_whole(&mut self) -> bool {
        self.input.expect_whole();
        true
    }
}
