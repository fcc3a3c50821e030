//! A sort of rows that were spilled: by ranges of their keys, one after another.
//!
//! ```text
//! part ─► sample of its keys ─► splitters s0 < s1 < … ─► before s0 │ equal s0 │ between s0 and s1 │ equal s1 │ …
//!                                                          sorted    as it is    too large: again    as it is
//! ```
//!
//! Invariants: the remaining parts are in order, and rows within a part are in their input order,
//! so the sort is stable. Rows equal to a splitter have a part of their own, which needs no sorting
//! however many they are.
//!
//! Source: Frazer, McKellar, "Samplesort", JACM 1970. We differ: the splitters' equals are apart.

use pystachio_plan::{Error, ErrorKind, Result};

use super::source::RowOrder;
use crate::{
    device::{Chunk, Claim, Column},
    execution::{
        Driver,
        query::{PARTITIONS, ROWS_MAX, Spilling, for_each_block},
    },
    operation::{KEYS_MAX, Queue, SPLITTERS_MAX},
    spill::{SpilledPart, SpilledPartitions},
};

/// Batches of a part that are sampled.
const SAMPLE_BATCHES_MAX: usize = 32;
/// Rows of the sample for every splitter.
const SAMPLE_ROWS_A_SPLITTER: usize = 16;
/// Ranges that a part is divided into, besides those of rows equal to a splitter: as with
/// [`PARTITIONS`], more of them would make copies back too small.
const RANGES_MAX: u64 = PARTITIONS as u64 - 1;
const _: () = assert!(RANGES_MAX <= SPLITTERS_MAX as u64);
/// How often a part is divided. Each time at least the rows equal to a splitter leave it.
const LEVELS_MAX: u32 = 16;

/// Rows off the device, output range by range.
pub(super) struct RangeSort {
    /// The last comes first.
    work: Vec<Range>,
    claim: Claim,
    /// Rows still wanted; `None`: all.
    wanted: Option<usize>,
}

/// Rows between two splitters.
struct Range {
    part: SpilledPart,
    /// How often it was divided.
    level: u32,
    /// Whether all its rows are equal.
    is_equal: bool,
}

impl RangeSort {
    /// The rows of one partition, in the order in which they came.
    pub(super) fn new(partitions: SpilledPartitions, claim: Claim, wanted: Option<usize>) -> Self {
        let parts = partitions.into_parts().into_iter();
        let work = parts.map(|part| Range { part, level: 0, is_equal: false }).collect();
        Self { work, claim, wanted }
    }

    /// The next rows, or `None` after the last.
    pub(super) fn next(&mut self, order: &RowOrder, driver: &Driver) -> Result<Option<Chunk>> {
        loop {
            driver.check_cancelled()?;
            if self.wanted == Some(0) {
                return Ok(None);
            }
            let Some(range) = self.work.pop() else { return Ok(None) };
            let chunk = if range.is_equal {
                self.next_equal(driver, range)?
            } else {
                let (bytes, rows) = (range.part.bytes(), range.part.row_count());
                if rows > ROWS_MAX || !self.claim.try_resize(order.cost(bytes, rows)) {
                    self.divide(order, driver, range)?;
                    continue;
                }
                sorted(order, driver, &range.part)?
            };
            let Some(chunk) = chunk else { continue };
            self.wanted = self.wanted.map(|wanted| wanted.saturating_sub(chunk.row_count));
            return Ok(Some(chunk));
        }
    }

    /// The next rows of a range without order.
    fn next_equal(&mut self, driver: &Driver, mut range: Range) -> Result<Option<Chunk>> {
        let Some(batch) = range.part.first_batch(driver.query.memory.chunk_bytes()) else { return Ok(None) };
        let end = batch.end;
        let chunk = range.part.read(&driver.queue, batch)?;
        range.part.forget(end);
        self.work.push(range);
        Ok(Some(chunk))
    }

    /// Divides a range by splitters of a sample.
    fn divide(&mut self, order: &RowOrder, driver: &Driver, range: Range) -> Result<()> {
        let level = range.level + 1;
        let cost = order.cost(range.part.bytes(), range.part.row_count());
        if level > LEVELS_MAX {
            let message = format!(
                "rows can't be sorted in the memory that there is: bytes={cost}, levels_max={LEVELS_MAX}"
            );
            return Err(Error::new(ErrorKind::OutOfMemory, message)
                .with_hint("Raise the server option memory, or run fewer queries at once."));
        }
        let claimed = self.claim.resize_up_to(cost);
        let wanted = (2 * cost / claimed.max(1)).clamp(1, RANGES_MAX) as usize;
        // The claim suffices for the sample, and for another copy of it.
        let sample_rows = claimed.saturating_mul(range.part.row_count() as u64) / (2 * cost);
        let sample_rows = (wanted * SAMPLE_ROWS_A_SPLITTER).min(sample_rows as usize).max(1);
        let (splitters, splitter_count) = splitters(order, driver, &range.part, wanted, sample_rows)?;
        let mut spilling = Spilling::new(2 * splitter_count + 1, |queue, chunk| {
            let mut keys = order.keys(queue, chunk)?;
            keys.truncate(KEYS_MAX);
            queue.partition_by_range(&keys, chunk.row_count, &splitters, splitter_count).map(Some)
        });
        for_each_block(driver, range.part, |chunk| spilling.push(driver, &mut self.claim, chunk))?;
        let partitions = spilling.finish(driver, &mut self.claim)?;
        self.claim.try_resize(0);
        // Rows with equal keys, as far as a kernel compares them, may differ in other keys.
        let has_all_keys = order.keys.len() <= KEYS_MAX;
        let ranges = partitions.into_parts().into_iter().enumerate();
        let ranges =
            ranges.map(|(place, part)| Range { part, level, is_equal: place % 2 == 1 && has_all_keys });
        self.work.extend(ranges.collect::<Vec<_>>().into_iter().rev());
        Ok(())
    }
}

/// The rows of a part in order.
fn sorted(order: &RowOrder, driver: &Driver, part: &SpilledPart) -> Result<Option<Chunk>> {
    let Some(all) = part.first_batch(u64::MAX) else { return Ok(None) };
    let chunk = part.read(&driver.queue, all)?;
    order.sort(&driver.queue, &chunk).map(Some)
}

/// At most `wanted` different rows of a part's sample, in order, as far apart as can be; at least one.
fn splitters(
    order: &RowOrder,
    driver: &Driver,
    part: &SpilledPart,
    wanted: usize,
    sample_rows: usize,
) -> Result<(Vec<Column>, usize)> {
    let queue = &driver.queue;
    let batches = part.batches(driver.query.memory.chunk_bytes());
    let step = batches.len().div_ceil(SAMPLE_BATCHES_MAX.min(sample_rows));
    let rows_a_batch = sample_rows.div_ceil(batches.len().div_ceil(step));
    let mut samples = Vec::new();
    for batch in batches.into_iter().step_by(step) {
        driver.check_cancelled()?;
        let chunk = part.read(queue, batch)?;
        let sample = evenly(queue, &chunk, rows_a_batch)?;
        samples.push(queue.compact(&sample)?);
    }
    let sample = order.sort(queue, &queue.concat(&samples)?)?;
    let candidates = evenly(queue, &sample, wanted)?;
    let mut columns: Vec<Column> =
        order.keys(queue, &candidates)?.into_iter().map(|key| key.column).collect();
    columns.truncate(KEYS_MAX);
    // Equal candidates are one splitter: groups are numbered, and their rows kept, in the order of
    // rows.
    let grouping = queue.group(&columns, candidates.row_count, candidates.row_count)?;
    let Some(leaders) = &grouping.leaders else { return Err(Error::internal("a sort without keys")) };
    let columns = queue.gather_all(&columns.iter().collect::<Vec<_>>(), leaders)?;
    Ok((columns, grouping.group_count))
}

/// Some rows of a chunk at even distances.
fn evenly(queue: &Queue, chunk: &Chunk, row_count: usize) -> Result<Chunk> {
    let count = row_count.min(chunk.row_count);
    let place =
        |number: usize| ((2 * number + 1) as u64 * chunk.row_count as u64 / (2 * count as u64)) as u32;
    let rows: Vec<u32> = (0..count).map(place).collect();
    let rows = crate::operation::RowNumbers {
        rows: queue.upload(&rows)?,
        count,
        may_miss: false,
        is_every_row: false,
    };
    queue.gather_chunk(chunk, &rows)
}
