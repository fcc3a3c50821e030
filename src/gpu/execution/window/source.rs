//! The operator: rows until their partitions are whole, their order, and the functions.
//!
//! ```text
//! SELECT rank() OVER (PARTITION BY a ORDER BY b), sum(c) OVER (PARTITION BY a) FROM t
//!
//!   sorted by a, b ─► rank() over (a, b) ─► sum(c) over (a)             two stages, one sort
//! ```
//!
//! Rows that exceed the claim are partitioned by the hash of the keys that all stages' partitions begin with, and spilled. The parts are
//! computed one after another, several small ones at once. The largest comes first: if it is too large, no rows were given yet.

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::WindowStage;
use crate::{
    device::{CellType, Chunk, Claim, Rows},
    execution::{
        CountedSource, Driver, Source,
        query::{Held, PARTITION_LEVELS_MAX, PARTITIONS, ROWS_MAX, Spilling, for_each_block, groups_within},
    },
    operation::{HashPartitioning, SortColumn},
    spill::SpilledPart,
};

/// Bytes of sorting for every row besides the row and its copy: row numbers, words, both twice, and the keys' values.
const SORT_ROW_BYTES: u64 = 40;
const KEY_BYTES: u64 = 17;
/// Further bytes of a text: its rank, and the temporary memory of ranking.
const TEXT_KEY_BYTES: u64 = 64;
/// A part with at least this part of the rows that were divided has a partition that can't be divided.
const STUCK_PART: (usize, usize) = (7, 8);

/// Rows with the functions of windows that one order serves.
pub(in crate::execution) struct WindowSource {
    input: CountedSource,
    /// From the innermost window to the outermost. The first one's order is that of the rows.
    stages: Vec<WindowStage>,
    order: WindowOrder,
    state: WindowState,
}

/// The order of the rows.
pub(in crate::execution) struct WindowOrder {
    /// Of each key of the first stage, whether its greatest value comes first, and whether NULLs do.
    pub(in crate::execution) directions: Vec<(bool, bool)>,
    /// The types of the keys.
    pub(in crate::execution) key_types: Vec<DataType>,
    /// Keys, from the first on, in which all rows of a partition of any stage are equal.
    pub(in crate::execution) shared_key_count: usize,
}

enum WindowState {
    /// Nothing has been read.
    Start,
    /// Parts off the device, the next one last.
    Parts(Vec<Part>, Claim),
    /// The end.
    Done,
}

struct Part {
    rows: SpilledPart,
    /// How often its rows were divided.
    level: u32,
    /// Whether dividing them once more would not help.
    is_stuck: bool,
}

impl WindowSource {
    pub(in crate::execution) fn new(
        input: CountedSource,
        stages: Vec<WindowStage>,
        order: WindowOrder,
    ) -> Self {
        Self { input, stages, order, state: WindowState::Start }
    }

    /// Memory to compute rows of so many bytes.
    fn cost(&self, bytes: u64, row_count: usize) -> u64 {
        let is_text = |key: &&DataType| CellType::of(key).is_ok_and(|of| of == CellType::String);
        let keys = self.order.key_types.len() as u64;
        let texts = self.order.key_types.iter().filter(is_text).count() as u64;
        let sorting = SORT_ROW_BYTES + KEY_BYTES * keys + TEXT_KEY_BYTES * texts.min(1);
        let functions: u64 = self.stages.iter().map(WindowStage::row_bytes).sum();
        2 * bytes + (sorting + functions) * row_count as u64
    }

    /// Reads all input. Returns the rows, or the state that gives them.
    fn read(&mut self, driver: &mut Driver) -> Result<Option<Chunk>> {
        let (mut held, mut claim) = (Held::default(), driver.query.memory.claim()?);
        let mut is_divided = false;
        while let Some(chunk) = self.input.next_chunk(driver)? {
            if chunk.row_count == 0 {
                continue;
            }
            held.push(chunk);
            if !held.try_claim(&driver.queue, &mut claim, |bytes, rows| self.cost(bytes, rows))? {
                is_divided = true;
                break;
            }
        }
        if is_divided {
            let parts = self.divide_input(driver, held, &mut claim)?;
            self.state = WindowState::Parts(parts, claim);
            return Ok(None);
        }
        self.state = WindowState::Done;
        if held.row_count() == 0 {
            return Ok(None);
        }
        let chunk = driver.queue.concat_taken(held.take())?;
        self.compute(driver, chunk).map(Some)
    }

    /// Divides the rows that were read, and those that are still to come.
    fn divide_input(&mut self, driver: &mut Driver, mut held: Held, claim: &mut Claim) -> Result<Vec<Part>> {
        if self.order.shared_key_count == 0 {
            return Err(self.too_large(held.bytes(), held.row_count(), claim));
        }
        let mut row_count = 0;
        let Self { input, stages, order, .. } = self;
        let mut spilling = divided(&stages[0], order, PARTITIONS, 0);
        for chunk in held.take() {
            row_count += chunk.row_count;
            spilling.push(driver, claim, chunk)?;
        }
        while let Some(chunk) = input.next_chunk(driver)? {
            row_count += chunk.row_count;
            spilling.push(driver, claim, chunk)?;
        }
        let parts = spilling.finish(driver, claim)?;
        driver.count("rows_partitioned", row_count as u64);
        let costs: Vec<u64> =
            parts.sizes().iter().map(|size| self.cost(size.bytes, size.row_count)).collect();
        let claimed = claim.resize_up_to(costs.iter().copied().max().unwrap_or(0));
        let parts = parts.into_groups(&groups_within(costs, claimed)).into_iter();
        Ok(ordered(parts.map(|rows| Part { rows, level: 0, is_stuck: false }).collect()))
    }

    /// Divides a part by other bits of the hash.
    fn divide(&self, driver: &mut Driver, part: Part, claim: &mut Claim) -> Result<Vec<Part>> {
        let (level, row_count) = (part.level + 1, part.rows.row_count());
        let cost = self.cost(part.rows.bytes(), row_count);
        let claimed = claim.resize_up_to(cost);
        let wanted = (2 * cost / claimed.max(1)).next_power_of_two();
        let count = (wanted as usize).clamp(2, PARTITIONS);
        let mut spilling = divided(&self.stages[0], &self.order, count, level);
        for_each_block(driver, part.rows, |chunk| spilling.push(driver, claim, chunk))?;
        let parts = spilling.finish(driver, claim)?.into_parts().into_iter();
        driver.count("rows_partitioned", row_count as u64);
        let is_stuck = |rows: &SpilledPart| rows.row_count() * STUCK_PART.1 >= row_count * STUCK_PART.0;
        Ok(parts.map(|rows| Part { level, is_stuck: is_stuck(&rows), rows }).collect())
    }

    /// Rows of whole partitions in order, with the functions of all stages.
    fn compute(&self, driver: &mut Driver, mut chunk: Chunk) -> Result<Chunk> {
        let queue = driver.queue.clone();
        let Some((first, rest)) = self.stages.split_first() else { return Ok(chunk) };
        if !self.order.directions.is_empty() {
            let keys = first.keys(&queue, &chunk)?.into_iter().zip(&self.order.directions);
            let keys: Vec<SortColumn> = keys
                .map(|(column, (descending, nulls_first))| SortColumn {
                    column,
                    descending: *descending,
                    nulls_first: *nulls_first,
                })
                .collect();
            let rows = queue.sort(&keys, chunk.row_count)?;
            drop(keys);
            chunk = queue.gather_chunk(&chunk, &rows)?;
        }
        for stage in std::iter::once(first).chain(rest) {
            driver.check_cancelled()?;
            stage.add_columns(&queue, &mut chunk)?;
        }
        // The last stage's rows are counted as the operator's.
        for stage in self.stages.iter().rev().skip(1) {
            *driver.metrics.operator(stage.place).row_count.get_or_insert(0) += chunk.row_count as u64;
        }
        Ok(chunk)
    }

    /// The rows of the next part, or `None` after the last.
    fn next_part(
        &self,
        driver: &mut Driver,
        parts: &mut Vec<Part>,
        claim: &mut Claim,
    ) -> Result<Option<Chunk>> {
        loop {
            driver.check_cancelled()?;
            let Some(part) = parts.pop() else {
                claim.try_resize(0);
                return Ok(None);
            };
            let (bytes, row_count) = (part.rows.bytes(), part.rows.row_count());
            let cost = self.cost(bytes, row_count);
            let fits = row_count <= ROWS_MAX && (claim.bytes() >= cost || claim.try_resize(cost));
            if !fits {
                if part.is_stuck || part.level >= PARTITION_LEVELS_MAX {
                    return Err(self.too_large(bytes, row_count, claim));
                }
                let divided = self.divide(driver, part, claim)?;
                parts.extend(ordered(divided));
                continue;
            }
            let Some(all) = part.rows.first_batch(u64::MAX) else { continue };
            let chunk = part.rows.read(&driver.queue, all)?;
            drop(part);
            return self.compute(driver, chunk).map(Some);
        }
    }

    fn too_large(&self, bytes: u64, row_count: usize, claim: &mut Claim) -> Error {
        let cost = self.cost(bytes, row_count);
        let claimed = claim.resize_up_to(cost);
        let object = match self.order.shared_key_count {
            0 => "all rows of a window without PARTITION BY do",
            _ => "a partition of a window does",
        };
        let message = format!(
            "{object} not fit the device's memory: rows={row_count}, rows_max={ROWS_MAX}, bytes={cost}, \
             bytes_max={claimed}"
        );
        Error::new(ErrorKind::OutOfMemory, message)
            .with_hint("Raise the server option memory, or partition the window by more columns.")
    }
}

/// The largest last, which comes next.
fn ordered(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by_key(|part| part.rows.bytes());
    parts
}

/// Partitioning of rows by the keys that all stages share. Blocks leave the device: a part needs the room.
fn divided<'a>(
    stage: &'a WindowStage,
    order: &'a WindowOrder,
    partition_count: usize,
    level: u32,
) -> Spilling<'a> {
    let by = HashPartitioning { partition_count, level, nulls_match: true };
    Spilling::new(partition_count, move |queue, chunk| {
        let keys = stage.keys(queue, chunk)?;
        queue.partition(&keys[..order.shared_key_count], chunk.row_count, by).map(Some)
    })
}

impl Source for WindowSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        if matches!(self.state, WindowState::Start)
            && let Some(chunk) = self.read(driver)?
        {
            return Ok(Some(chunk.into()));
        }
        let WindowState::Parts(mut parts, mut claim) = std::mem::replace(&mut self.state, WindowState::Done)
        else {
            return Ok(None);
        };
        let chunk = self.next_part(driver, &mut parts, &mut claim)?;
        self.state = WindowState::Parts(parts, claim);
        Ok(chunk.map(Rows::from))
    }
}
