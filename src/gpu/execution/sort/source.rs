//! Sorting: the whole input in order, or its first rows.
//!
//! If only the first rows are wanted, the operator drops rows chunk by chunk that can't be among
//! them: rows that do not come before the last of the best so far. If the rest exceeds the claim,
//! it is spilled (`ranges.rs`).
//!
//! Invariants: stable. Rows are held in the order in which they came, or sorted, with equal rows in that order.

use pystachio_plan::{DataType, Result, SortKey};

use super::ranges::RangeSort;
use crate::{
    device::{CellType, Chunk, Claim, Column, Rows},
    execution::{
        CountedSource, Driver, Source,
        query::{Held, Spilling},
    },
    operation::{Queue, SortColumn},
    program::Program,
};

/// Bytes of sorting for every row besides the row and its copy: row numbers, words, both twice.
const SORT_ROW_BYTES: u64 = 40;
/// Bytes of a computed key.
const KEY_BYTES: u64 = 17;
/// Further bytes of a text: its rank, and the temporary memory of ranking.
const TEXT_KEY_BYTES: u64 = 64;
/// The first rows are selected when there are this many times as many.
const CUT_GROWTH: usize = 4;
/// Fewer rows are not selected as long as memory suffices.
const CUT_ROWS_MIN: usize = 1 << 20;

/// All rows in order, or the first of them.
pub(in crate::execution) struct SortSource {
    input: CountedSource,
    order: RowOrder,
    /// How many of the first rows are wanted; `None`: all.
    row_count_max: Option<usize>,
    state: SortState,
}

/// The keys to sort rows by.
pub(super) struct RowOrder {
    /// The keys' values.
    pub(super) program: Program,
    pub(super) keys: Vec<SortKey>,
}

/// The state of a sort.
enum SortState {
    /// Nothing has been read.
    Start,
    /// The input was spilled.
    Ranges(Box<RangeSort>),
    /// The end.
    Done,
}

/// The rows read so far, of those that may still be among the first.
struct Reading {
    held: Held,
    claim: Claim,
    /// The keys of the last of the best rows, once there are enough.
    threshold: Option<Vec<Column>>,
}

impl RowOrder {
    /// The keys of a chunk.
    pub(super) fn keys(&self, queue: &Queue, chunk: &Chunk) -> Result<Vec<SortColumn>> {
        let values = self.program.evaluate(queue, chunk)?;
        let keys = values.into_iter().zip(&self.keys).map(|(column, key)| SortColumn {
            column,
            descending: key.descending,
            nulls_first: key.nulls_first,
        });
        Ok(keys.collect())
    }

    /// A chunk in order.
    pub(super) fn sort(&self, queue: &Queue, chunk: &Chunk) -> Result<Chunk> {
        self.first(queue, chunk, chunk.row_count)
    }

    /// The first rows of a chunk in order.
    pub(super) fn first(&self, queue: &Queue, chunk: &Chunk, row_count: usize) -> Result<Chunk> {
        let mut rows = queue.sort(&self.keys(queue, chunk)?, chunk.row_count)?;
        rows.count = rows.count.min(row_count);
        queue.gather_chunk(chunk, &rows)
    }

    /// Memory to sort rows of so many bytes.
    pub(super) fn cost(&self, bytes: u64, row_count: usize) -> u64 {
        let texts = self.keys.iter().filter(|key| is_text(key.expression.data_type())).count() as u64;
        let a_row = SORT_ROW_BYTES + KEY_BYTES * self.keys.len() as u64 + TEXT_KEY_BYTES * texts.min(1);
        2 * bytes + a_row * row_count as u64
    }
}

fn is_text(data_type: &DataType) -> bool {
    CellType::of(data_type).is_ok_and(|cell_type| cell_type == CellType::String)
}

impl SortSource {
    pub(in crate::execution) fn new(
        input: CountedSource,
        program: Program,
        keys: Vec<SortKey>,
        row_count_max: Option<usize>,
    ) -> Self {
        Self { input, order: RowOrder { program, keys }, row_count_max, state: SortState::Start }
    }

    /// Reads all input. Returns the sorted rows, or the state that outputs them.
    fn read(&mut self, driver: &mut Driver) -> Result<Option<Chunk>> {
        let mut reading =
            Reading { held: Held::default(), claim: driver.query.memory.claim()?, threshold: None };
        let mut spilled: Option<Spilling<'_>> = None;
        while let Some(chunk) = self.input.next_chunk(driver)? {
            let queue = &driver.queue;
            let chunk = self.without_late_rows(queue, chunk, reading.threshold.as_deref())?;
            if chunk.row_count == 0 {
                continue;
            }
            reading.held.push(chunk);
            let mut fits = spilled.is_none() && self.try_claim(queue, &mut reading, 1)?;
            if let Some(wanted) = self.row_count_max
                && spilled.is_none()
            {
                let row_count = reading.held.row_count();
                let is_enough = row_count > wanted.saturating_mul(CUT_GROWTH).max(CUT_ROWS_MIN);
                if is_enough || (!fits && row_count > wanted) {
                    self.cut(queue, &mut reading, wanted)?;
                    // With room for as many again: otherwise every chunk would be sorted with them.
                    fits = self.try_claim(queue, &mut reading, 2)?;
                }
            }
            if !fits {
                let spilling = spilled.get_or_insert_with(Spilling::in_order);
                for chunk in reading.held.take() {
                    spilling.push(driver, &mut reading.claim, chunk)?;
                }
            }
        }
        if let Some(spilling) = spilled {
            let partitions = spilling.finish(driver, &mut reading.claim)?;
            let sort = RangeSort::new(partitions, reading.claim, self.row_count_max);
            self.state = SortState::Ranges(Box::new(sort));
            return Ok(None);
        }
        self.state = SortState::Done;
        if reading.held.row_count() == 0 {
            return Ok(None);
        }
        let chunk = driver.queue.concat(&reading.held.take())?;
        let wanted = self.row_count_max.unwrap_or(usize::MAX);
        self.order.first(&driver.queue, &chunk, wanted).map(Some)
    }

    fn try_claim(&self, queue: &Queue, reading: &mut Reading, times: u64) -> Result<bool> {
        let cost = |bytes, rows| times * self.order.cost(bytes, rows);
        reading.held.try_claim(queue, &mut reading.claim, cost)
    }

    /// The rows that come before the threshold.
    fn without_late_rows(&self, queue: &Queue, chunk: Chunk, threshold: Option<&[Column]>) -> Result<Chunk> {
        let Some(threshold) = threshold else { return Ok(chunk) };
        let keys = self.order.keys(queue, &chunk)?;
        let rows = queue.select_before(&keys, chunk.row_count, threshold)?;
        queue.gather_chunk(&chunk, &rows)
    }

    /// Keeps the first of the held rows, and remembers the last of them as the threshold.
    fn cut(&self, queue: &Queue, reading: &mut Reading, wanted: usize) -> Result<()> {
        let chunk = queue.concat(&reading.held.take())?;
        let best = queue.compact(&self.order.first(queue, &chunk, wanted)?)?;
        drop(chunk);
        if best.row_count == wanted && wanted > 0 && self.order.keys.len() <= crate::operation::KEYS_MAX {
            let last = queue.compact(&queue.slice(&best, wanted - 1, 1)?)?;
            let keys = self.order.keys(queue, &last)?;
            reading.threshold = Some(keys.into_iter().map(|key| key.column).collect());
        }
        if best.row_count > 0 {
            reading.held.push(best);
        }
        Ok(())
    }
}

impl Source for SortSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        if matches!(self.state, SortState::Start)
            && let Some(chunk) = self.read(driver)?
        {
            return Ok(Some(chunk.into()));
        }
        match &mut self.state {
            SortState::Ranges(sort) => Ok(sort.next(&self.order, driver)?.map(Rows::from)),
            SortState::Start | SortState::Done => Ok(None),
        }
    }
}
