//! Sources: what gives chunks of rows, and the counts and the merging of chunks between two of them.

use std::{sync::Arc, time::Instant};

use pystachio_plan::{DataType, OperatorMetrics, Result};

use super::{Columns, query::Driver, scan_fold::ScanFold};
use crate::device::{Chunk, Rows};

/// An operator that gives chunks of its columns until it has no more.
pub(super) trait Source: Send {
    /// The next rows, or `None` at the end. A chunk may have no rows.
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>>;

    /// Tells the source that an operator above reads all rows before it outputs any, so operators
    /// below that drop rows may merge the rest of several chunks. Returns whether this source may
    /// give fewer rows than its input.
    fn expect_whole(&mut self) -> bool {
        true
    }

    /// Asks the source to aggregate its rows itself where it can. If it returns true, [`Source::next_folded`] gives them instead of
    /// [`Source::next`].
    fn fold(&mut self, _: Arc<ScanFold>) -> bool {
        false
    }

    /// The next rows, or the groups of rows, or `None` at the end.
    fn next_folded(&mut self, driver: &mut Driver) -> Result<Option<FoldedRows>> {
        Ok(self.next(driver)?.map(FoldedRows::Rows))
    }
}

/// Rows of a source that aggregates some of them itself.
pub(super) enum FoldedRows {
    /// Rows that it did not aggregate.
    Rows(Rows),
    /// The groups of so many rows: keys, then partial results.
    Groups { groups: Chunk, row_count: usize },
}

/// A source with its columns, and its counts so far.
pub(super) struct CountedSource {
    pub(super) columns: Columns,
    source: Box<dyn Source>,
    /// Place in [`pystachio_plan::QueryMetrics::operators`].
    pub(super) place: usize,
    /// Rows too many for one chunk, and the first that was not given.
    rest: Option<(Rows, usize)>,
    /// Whether small chunks are merged with the following ones.
    merges: bool,
    /// A large chunk that followed small ones.
    after: Option<Rows>,
    /// Whether the source has no more.
    is_ended: bool,
}

impl CountedSource {
    /// A source whose rows are counted at `place`.
    pub(super) fn new(columns: Columns, source: impl Source + 'static, place: usize) -> Self {
        Self {
            columns,
            source: Box::new(source),
            place,
            rest: None,
            merges: false,
            after: None,
            is_ended: false,
        }
    }

    pub(super) fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        driver.check_cancelled()?;
        let started = Instant::now();
        let rows = driver.work_for(self.place, |driver| self.give(driver))?;
        let OperatorMetrics { row_count, elapsed_us, .. } = driver.metrics.operator(self.place);
        *row_count.get_or_insert(0) += rows.as_ref().map_or(0, |rows| rows.row_count) as u64;
        *elapsed_us.get_or_insert(0) += started.elapsed().as_micros() as u64;
        if let Some(rows) = &rows {
            debug_assert_eq!(rows.columns.len(), self.columns.len());
        }
        Ok(rows)
    }

    /// See [`Source::fold`].
    pub(super) fn fold(&mut self, fold: Arc<ScanFold>) -> bool {
        self.source.fold(fold)
    }

    /// See [`Source::next_folded`].
    pub(super) fn next_folded(&mut self, driver: &mut Driver) -> Result<Option<FoldedRows>> {
        driver.check_cancelled()?;
        let started = Instant::now();
        let folded = driver.work_for(self.place, |driver| self.give_folded(driver))?;
        let count = match &folded {
            None => 0,
            Some(FoldedRows::Rows(rows)) => rows.row_count,
            Some(FoldedRows::Groups { row_count, .. }) => *row_count,
        };
        let OperatorMetrics { row_count, elapsed_us, .. } = driver.metrics.operator(self.place);
        *row_count.get_or_insert(0) += count as u64;
        *elapsed_us.get_or_insert(0) += started.elapsed().as_micros() as u64;
        Ok(folded)
    }

    fn give_folded(&mut self, driver: &mut Driver) -> Result<Option<FoldedRows>> {
        if self.rest.is_some() {
            return Ok(self.give(driver)?.map(FoldedRows::Rows));
        }
        Ok(match self.source.next_folded(driver)? {
            Some(FoldedRows::Rows(rows)) => Some(FoldedRows::Rows(self.part(driver, rows, 0)?)),
            folded => folded,
        })
    }

    /// The next rows, of the rest or of the source.
    fn give(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        match self.rest.take() {
            Some((rows, first)) => self.part(driver, rows, first).map(Some),
            None => match self.merged(driver)? {
                Some(rows) => self.part(driver, rows, 0).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Tells the source that an operator above reads all rows before it outputs any.
    pub(super) fn expect_whole(&mut self) {
        self.merges = self.source.expect_whole();
    }

    /// The source's next rows; small chunks are merged with the following ones, since an operator's
    /// fixed cost for each chunk would dominate.
    fn merged(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        let first = match self.after.take() {
            Some(rows) => rows,
            None => match self.pull(driver)? {
                Some(rows) => rows,
                None => return Ok(None),
            },
        };
        if first.row_count >= FEW_ROWS || !self.merges {
            return Ok(Some(first));
        }
        let bytes_max = driver.query.memory.chunk_bytes();
        let (mut row_count, mut bytes) = (first.row_count, first.cell_bytes());
        let mut parts = vec![first];
        while row_count < MERGED_ROWS && bytes < bytes_max {
            driver.check_cancelled()?;
            match self.pull(driver)? {
                None => break,
                Some(rows) if rows.row_count == 0 => {}
                Some(rows) if rows.row_count >= FEW_ROWS => {
                    self.after = Some(rows);
                    break;
                }
                Some(rows) => {
                    row_count += rows.row_count;
                    bytes += rows.cell_bytes();
                    parts.push(rows);
                }
            }
        }
        // An empty chunk is dropped if there are others.
        if parts.len() > 1 && parts[0].row_count == 0 {
            parts.remove(0);
        }
        driver.queue.concat_rows(parts).map(Some)
    }

    fn pull(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        if self.is_ended {
            return Ok(None);
        }
        let rows = self.source.next(driver)?;
        self.is_ended = rows.is_none();
        Ok(rows)
    }

    /// As many rows as one chunk may have; the others stay as the rest.
    fn part(&mut self, driver: &Driver, rows: Rows, first: usize) -> Result<Rows> {
        let rows_max = rows_within(&rows, driver.query.memory.chunk_bytes());
        // A range of rows that starts at such a multiple is a slice without a copy.
        let rows_max = if rows_max < PART_ROWS { rows_max } else { rows_max / PART_ROWS * PART_ROWS };
        let left = rows.row_count - first;
        if left <= rows_max.saturating_add(rows_max / 2) {
            return driver.queue.slice_rows(&rows, first, left);
        }
        let part = driver.queue.slice_rows(&rows, first, rows_max)?;
        self.rest = Some((rows, first + rows_max));
        Ok(part)
    }

    /// The cells of the next rows.
    pub(super) fn next_chunk(&mut self, driver: &mut Driver) -> Result<Option<Chunk>> {
        let rows = self.next(driver)?;
        rows.map(|rows| driver.queue.chunk_of(&rows)).transpose()
    }

    pub(super) fn types(&self) -> Vec<DataType> {
        self.columns.iter().map(|(_, data_type)| data_type.clone()).collect()
    }
}

/// Fewer rows than this are merged with those that come after them.
const FEW_ROWS: usize = 1 << 20;
/// The least number of rows after merging.
const MERGED_ROWS: usize = 2 << 20;
const _: () = assert!(FEW_ROWS <= MERGED_ROWS);
/// The rows of a part are a multiple of this, unless they are fewer.
const PART_ROWS: usize = 64;

/// How many of some rows fit into this many bytes; at least one.
fn rows_within(rows: &Rows, bytes: u64) -> usize {
    match rows.cell_bytes() {
        cell_bytes if cell_bytes > bytes => {
            let rows = rows.row_count as u128 * u128::from(bytes) / u128::from(cell_bytes);
            (rows as usize).max(1)
        }
        _ => rows.row_count.max(1),
    }
}
