//! Sources that treat each row by itself: filter, project, limit and union.

use pystachio_plan::{Error, Result};

use super::{
    CountedSource, Driver, Source,
    expressions::{RowCondition, RowProgram},
};
use crate::device::Rows;

/// The rows for which a condition is true.
pub(super) struct FilterSource {
    pub(super) input: CountedSource,
    pub(super) predicate: RowCondition,
}

impl Source for FilterSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        let Some(rows) = self.input.next(driver)? else { return Ok(None) };
        if rows.row_count == 0 {
            return Ok(Some(rows));
        }
        let queue = &driver.queue;
        let column = |place: usize| {
            let lacks = || Error::internal("rows lack a column of their filter");
            rows.columns.get(place).ok_or_else(lacks)
        };
        let flags = self.predicate.flags(queue, rows.row_count, column)?;
        let kept = queue.select(&flags, rows.row_count)?;
        if kept.count == rows.row_count { Ok(Some(rows)) } else { queue.gather_rows(&rows, &kept).map(Some) }
    }

    fn expect_whole(&mut self) -> bool {
        self.input.expect_whole();
        true
    }
}

/// New columns.
pub(super) struct ProjectSource {
    pub(super) input: CountedSource,
    pub(super) program: RowProgram,
}

impl Source for ProjectSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        let Some(rows) = self.input.next(driver)? else { return Ok(None) };
        project(driver, &rows, &self.program).map(Some)
    }

    fn expect_whole(&mut self) -> bool {
        self.input.expect_whole();
        false
    }
}

/// Rows of a program's results.
pub(super) fn project(driver: &Driver, rows: &Rows, program: &RowProgram) -> Result<Rows> {
    Ok(Rows { row_count: rows.row_count, columns: program.evaluate(&driver.queue, rows)? })
}

/// Some rows of the input's order.
pub(super) struct LimitSource {
    /// Absent once no more of its rows are wanted. Dropping it stops the readers of its scans.
    pub(super) input: Option<CountedSource>,
    /// Rows still to skip.
    pub(super) skip: usize,
    /// Rows still to give; `None`: all.
    pub(super) count: Option<usize>,
}

impl Source for LimitSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        if self.count == Some(0) {
            self.input = None;
        }
        let Some(input) = &mut self.input else { return Ok(None) };
        let Some(rows) = input.next(driver)? else { return Ok(None) };
        let first = self.skip.min(rows.row_count);
        self.skip -= first;
        let rest = rows.row_count - first;
        let kept = self.count.map_or(rest, |count| count.min(rest));
        self.count = self.count.map(|count| count - kept);
        if self.count == Some(0) {
            self.input = None;
        }
        driver.queue.slice_rows(&rows, first, kept).map(Some)
    }

    fn expect_whole(&mut self) -> bool {
        // The input may be asked for a few rows only.
        false
    }
}

/// The rows of several inputs, converted to common types by a program.
pub(super) struct UnionSource {
    pub(super) inputs: Vec<(CountedSource, RowProgram)>,
    /// The input being read.
    pub(super) current: usize,
}

impl Source for UnionSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        while let Some((input, program)) = self.inputs.get_mut(self.current) {
            if let Some(rows) = input.next(driver)? {
                return project(driver, &rows, program).map(Some);
            }
            self.current += 1;
        }
        Ok(None)
    }

    fn expect_whole(&mut self) -> bool {
        self.inputs.iter_mut().for_each(|(input, _)| input.expect_whole());
        false
    }
}
